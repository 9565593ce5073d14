//! The responses to certificate authorities that check control over a name: HTTP-01 (RFC 8555 §8.3), which takes
//! precedence over all rules of a site, and TLS-ALPN-01 (RFC 8737), in the handshake.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificates::ServerCertificates;
use super::crypto::provider;
use super::on_demand::OnDemandNames;

/// The ALPN protocol of TLS-ALPN-01.
pub(super) const ACME_TLS_PROTOCOL: &[u8] = b"acme-tls/1";
/// The path prefix of HTTP-01.
const HTTP_01_PREFIX: &[u8] = b"/.well-known/acme-challenge/";

#[derive(Debug, Default)]
struct CurrentResponses {
    http: HashMap<Box<[u8]>, Box<[u8]>>,
    tls: HashMap<String, Arc<CertifiedKey>>,
}

/// The current responses.
#[derive(Debug, Default)]
pub struct ChallengeResponses(ArcSwap<CurrentResponses>);

impl ChallengeResponses {
    /// Replaces the responses: `http` has tokens and their responses; `tls` has names with their certificates and keys
    /// (PEM). Entries that cannot be parsed are skipped.
    pub fn set(&self, http: Vec<(String, String)>, tls: Vec<(String, String, String)>) {
        let bytes = |text: String| text.into_bytes().into_boxed_slice();
        let http = http
            .into_iter()
            .map(|(token, answer)| (bytes(token), bytes(answer)));
        let tls = tls
            .into_iter()
            .filter_map(|(name, chain, key)| Some((name, parse_proof(&chain, &key)?)));
        self.0.store(Arc::new(CurrentResponses {
            http: http.collect(),
            tls: tls.collect(),
        }));
    }

    /// Returns the response to a request for this path, or `None` if the path is not a challenge.
    pub fn response(&self, path: &[u8]) -> Option<Box<[u8]>> {
        let token = path.strip_prefix(HTTP_01_PREFIX)?;
        self.0.load().http.get(token).cloned()
    }
}

/// Parses a certificate and its key without checking that they match: the certificate has a critical extension that
/// rustls refuses.
fn parse_proof(chain: &str, key: &str) -> Option<Arc<CertifiedKey>> {
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes());
    let chain: Vec<_> = chain.collect::<Result<_, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).ok()?;
    let key = provider().key_provider.load_private_key(key).ok()?;
    Some(Arc::new(CertifiedKey::new(chain, key)))
}

/// Returns whether the client is an authority that checks a proof.
pub(super) fn is_acme_challenge(hello: &ClientHello<'_>) -> bool {
    let protocols = hello.alpn();
    protocols.is_some_and(|mut protocols| protocols.any(|name| name == ACME_TLS_PROTOCOL))
}

/// Chooses the certificate of a handshake.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    pub(super) certificates: Arc<ServerCertificates>,
    pub(super) challenges: Arc<ChallengeResponses>,
    pub(super) on_demand: Arc<OnDemandNames>,
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        if is_acme_challenge(&hello) {
            let name = hello.server_name()?.to_ascii_lowercase();
            return self.challenges.0.load().tls.get(&name).cloned();
        }
        if self.on_demand.is_enabled()
            && let Some(name) = hello.server_name().map(str::to_ascii_lowercase)
            && !self.certificates.cover(&name)
        {
            // The caller that knows the client's address has reported the name.
            return None;
        }
        self.certificates.resolve(hello)
    }
}
