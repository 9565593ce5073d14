//! What is answered to certificate authorities that look for a proof of control over a name: HTTP-01
//! (RFC 8555 §8.3), before every rule of a site, and TLS-ALPN-01 (RFC 8737), in the handshake.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificates::Certificates;
use super::crypto::provider;
use super::on_demand::OnDemand;

/// The protocol of TLS-ALPN-01.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";
/// Where HTTP-01 asks.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

#[derive(Debug, Default)]
struct Answers {
    http: HashMap<Box<[u8]>, Box<[u8]>>,
    tls: HashMap<String, Arc<CertifiedKey>>,
}

/// The answers of this moment.
#[derive(Debug, Default)]
pub struct Challenges(ArcSwap<Answers>);

impl Challenges {
    /// Gives these answers from now on: to tokens; and for names, certificates with their keys (PEM).
    /// What cannot be read is left out.
    pub fn set(&self, http: Vec<(String, String)>, tls: Vec<(String, String, String)>) {
        let bytes = |text: String| text.into_bytes().into_boxed_slice();
        let http = http
            .into_iter()
            .map(|(token, answer)| (bytes(token), bytes(answer)));
        let tls = tls
            .into_iter()
            .filter_map(|(name, chain, key)| Some((name, proof(&chain, &key)?)));
        self.0.store(Arc::new(Answers {
            http: http.collect(),
            tls: tls.collect(),
        }));
    }

    /// What is answered to a request for this path; none: it is as any other.
    pub fn answer(&self, path: &[u8]) -> Option<Box<[u8]>> {
        let token = path.strip_prefix(PREFIX)?;
        self.0.load().http.get(token).cloned()
    }
}

/// Not checked against each other: a proof has a critical extension, which rustls refuses.
fn proof(chain: &str, key: &str) -> Option<Arc<CertifiedKey>> {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let chain: Vec<_> = chain.collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
    let key = provider().key_provider.load_private_key(key).ok()?;
    Some(Arc::new(CertifiedKey::new(chain, key)))
}

/// Whether the client is an authority that looks for a proof.
pub(super) fn looks_for_a_proof(hello: &ClientHello<'_>) -> bool {
    let protocols = hello.alpn();
    protocols.is_some_and(|mut protocols| protocols.any(|name| name == PROTOCOL))
}

/// Chooses the certificate of a handshake.
#[derive(Debug)]
pub(super) struct Resolver {
    pub(super) certificates: Arc<Certificates>,
    pub(super) challenges: Arc<Challenges>,
    pub(super) on_demand: Arc<OnDemand>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if looks_for_a_proof(&hello) {
            let name = hello.server_name()?.to_ascii_lowercase();
            return self.challenges.0.load().tls.get(&name).cloned();
        }
        if self.on_demand.is_on()
            && let Some(name) = hello.server_name().map(str::to_ascii_lowercase)
            && !self.certificates.cover(&name)
        {
            // Whoever knows the client has reported the name.
            return None;
        }
        self.certificates.resolve(hello)
    }
}
