//! Recently verified credentials, so a page with fifty pictures costs one check. What is stored is a keyed hash of the
//! stored password, the user and the given password: it is useless to an attacker who reads the memory without the key,
//! and a changed password has another hash at once.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::rand;

use super::credentials::Credentials;
use super::hash::PasswordHash;

/// How long verified credentials are remembered.
const REMEMBERED_FOR: Duration = Duration::from_secs(300);
/// The maximum number of entries in one part of the table. Beyond it the expired entries are removed, or else all
/// entries of the part.
const MAX_ENTRIES_PER_PART: usize = 1024;
/// The number of parts with a lock of their own, so front threads seldom contend.
const PARTS: usize = 16;

/// The keyed hash of verified credentials.
pub(super) type VerifiedKey = [u8; 32];

struct Verified {
    key: Option<Key>,
    parts: [Mutex<HashMap<VerifiedKey, Instant>>; PARTS],
}

static VERIFIED: LazyLock<Verified> = LazyLock::new(|| {
    let mut key = [0; 32];
    // Without random bytes for a key nothing is remembered.
    let key = rand::fill(&mut key)
        .ok()
        .map(|()| Key::new(HMAC_SHA256, &key));
    Verified {
        key,
        parts: Default::default(),
    }
});

fn part(mark: &VerifiedKey) -> MutexGuard<'static, HashMap<VerifiedKey, Instant>> {
    let part = &VERIFIED.parts[usize::from(mark[0]) % PARTS];
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the hash of these credentials and the stored password; `None` if it cannot be computed.
pub(super) fn verified_key(
    stored: &PasswordHash,
    credentials: &Credentials,
) -> Option<VerifiedKey> {
    // Only the last part may have a colon, so the text is unambiguous.
    let pair = [stored.as_bytes(), &credentials.user, &credentials.password].join(&b':');
    let tag = sign(VERIFIED.key.as_ref()?, &pair);
    tag.as_ref().try_into().ok()
}

/// Returns whether the credentials were verified recently.
pub(super) fn is_verified(mark: &VerifiedKey) -> bool {
    let part = part(mark);
    part.get(mark)
        .is_some_and(|since| since.elapsed() < REMEMBERED_FOR)
}

/// Remembers verified credentials.
pub(super) fn remember(mark: VerifiedKey) {
    let mut part = part(&mark);
    if part.len() >= MAX_ENTRIES_PER_PART {
        part.retain(|_, since| since.elapsed() < REMEMBERED_FOR);
    }
    if part.len() >= MAX_ENTRIES_PER_PART {
        part.clear();
    }
    part.insert(mark, Instant::now());
}
