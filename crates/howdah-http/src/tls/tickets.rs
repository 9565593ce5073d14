//! Session tickets: the state of a session, encrypted and given to the client, so its next connection needs no full
//! handshake and the server stores nothing (RFC 5077 §4, RFC 8446 §4.6.1).
//!
//! The keys are passed in. Either the master creates and rotates them, so tickets survive a reload and a restart of the
//! front, or they come from a file that several hosts share. The first key encrypts; all keys decrypt.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use rustls::server::ProducesTickets;

/// The length of a key's name, with which every ticket begins, in bytes.
const KEY_NAME_BYTES: usize = 16;
/// The length of a key in bytes: its name, and the key of AES-256-GCM.
pub const KEY_BYTES: usize = KEY_NAME_BYTES + 32;
/// How long a ticket is valid, in seconds. Keys must be kept for this long after they have rotated.
pub const TICKET_LIFETIME_SECONDS: u32 = 12 * 3600;

struct TicketKey {
    name: [u8; KEY_NAME_BYTES],
    key: LessSafeKey,
    /// Additional data that authenticates a ticket.
    context: Vec<u8>,
    /// The key from which other secrets are derived.
    derived: hmac::Key,
}

/// The keys of session tickets. Without keys no tickets are issued.
#[derive(Default)]
pub struct TicketKeys(ArcSwap<Vec<TicketKey>>);

impl TicketKeys {
    /// Replaces the keys; the first one encrypts. A ticket is valid only with the `context` under which it was created:
    /// the authority of client certificates, because a ticket records that the client's certificate was verified.
    pub fn set(&self, keys: &[[u8; KEY_BYTES]], context: &[u8]) {
        let keys = keys.iter().filter_map(|bytes| {
            let (name, key) = bytes.split_first_chunk::<KEY_NAME_BYTES>()?;
            let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), b"derived");
            Some(TicketKey {
                derived: hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()),
                name: *name,
                context: [name, context].concat(),
                key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?),
            })
        });
        self.0.store(Arc::new(keys.collect()));
    }

    /// Derives a secret for another `purpose`, which changes when the keys rotate. Returns `None` if there is no key.
    pub(super) fn derive(&self, purpose: &[u8]) -> Option<[u8; 32]> {
        let keys = self.0.load();
        hmac::sign(&keys.first()?.derived, purpose)
            .as_ref()
            .try_into()
            .ok()
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.0.load().len())
    }
}

impl ProducesTickets for TicketKeys {
    fn enabled(&self) -> bool {
        !self.0.load().is_empty()
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME_SECONDS
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.0.load();
        let TicketKey {
            name, key, context, ..
        } = keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        aws_lc_rs::rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context),
            &mut sealed,
        )
        .ok()?;
        Some([name.as_slice(), &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<KEY_NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.0.load();
        let TicketKey { key, context, .. } = keys.iter().find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = key
            .open_in_place(nonce, Aad::from(context), &mut sealed)
            .ok()?;
        let length = plain.len();
        sealed.truncate(length);
        Some(sealed)
    }
}
