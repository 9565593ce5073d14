//! The certificates of all sites, and the choice of one for a client: by the requested name (SNI), then by the
//! signature schemes that the client accepts. A name may have several certificates, ECDSA and RSA.
//!
//! A client that requests no name, or a name that no certificate covers, gets the first certificate, as under nginx and
//! Apache. Its request gets a 421 response if its `Host` has no site here.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::SignatureAlgorithm;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::{Deserialize, Serialize};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

thread_local! {
    /// The name requested by the handshake in progress. It is stored here because rustls passes it only to the
    /// certificate resolver.
    static ASKED: RefCell<Option<RequestedName>> = const { RefCell::new(None) };
}

/// The name that a handshake requested, and the names of the certificate it got.
#[derive(Clone, Debug)]
pub(super) struct RequestedName {
    /// The name in lower case; `None` if the client requested none.
    pub name: Option<Box<str>>,
    /// The names of the certificate.
    pub names: Arc<[String]>,
}

impl Default for RequestedName {
    fn default() -> RequestedName {
        RequestedName {
            name: None,
            names: Arc::new([]),
        }
    }
}

/// Why a certificate and its key cannot be used. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadCertificate {
    /// The file has no certificate in PEM form.
    NoCertificate,
    /// The key's file has no private key in PEM form.
    NoKey,
    /// A certificate or key cannot be parsed, with the parser's message.
    Unreadable(String),
    /// The key belongs to another certificate.
    KeyMismatch,
    /// The certificate names no host (`subjectAltName`).
    NoNames,
    /// Every user of the machine may read the key's file.
    KeyOpenToAll,
}

impl BadCertificate {
    /// Returns the name of the failure in the log, the status and the documentation.
    pub fn name(&self) -> &'static str {
        match self {
            BadCertificate::NoCertificate => "CertificateMissing",
            BadCertificate::NoKey => "CertificateKeyMissing",
            BadCertificate::Unreadable(_) => "CertificateUnreadable",
            BadCertificate::KeyMismatch => "CertificateKeyMismatch",
            BadCertificate::NoNames => "CertificateWithoutNames",
            BadCertificate::KeyOpenToAll => "CertificateKeyOpenToAll",
        }
    }
}

impl fmt::Display for BadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadCertificate::NoCertificate => {
                f.write_str("the file does not contain a certificate (-----BEGIN CERTIFICATE-----)")
            }
            BadCertificate::NoKey => {
                f.write_str("the file does not contain a private key (-----BEGIN PRIVATE KEY-----)")
            }
            BadCertificate::Unreadable(why) => write!(f, "the file cannot be read: {why}"),
            BadCertificate::KeyMismatch => f.write_str("the key belongs to another certificate"),
            BadCertificate::KeyOpenToAll => f.write_str(
                "every user of this machine can read the file, and so can PHP: chmod o-rwx",
            ),
            BadCertificate::NoNames => {
                f.write_str("the certificate names no host (subjectAltName); browsers refuse it")
            }
        }
    }
}

/// Returns whether a certificate for `pattern` is valid for `name`. Both are in lower case.
pub(super) fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_prefix("*.") {
        None => pattern == name,
        Some(parent) => name
            .split_once('.')
            .is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
    }
}

/// A certificate with its chain, its key and its properties.
#[derive(Clone)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    /// Host names, in lower case; `*.example.org` covers one label.
    pub names: Arc<[String]>,
    /// The beginning of its validity.
    pub not_before: SystemTime,
    /// The end of its validity.
    pub not_after: SystemTime,
}

impl Certificate {
    /// Parses a chain (the site's certificate first) and its key, both PEM.
    ///
    /// # Errors
    /// See [`BadCertificate`].
    pub fn parse(
        chain: &[u8],
        key: &[u8],
        provider: &CryptoProvider,
    ) -> Result<Certificate, BadCertificate> {
        let unreadable = |why: &dyn fmt::Display| BadCertificate::Unreadable(why.to_string());
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|e| unreadable(&e))?;
        let Some(first) = chain.first() else {
            return Err(BadCertificate::NoCertificate);
        };
        let (_, parsed) = X509Certificate::from_der(first).map_err(|e| unreadable(&e))?;
        let alternatives = parsed
            .subject_alternative_name()
            .map_err(|e| unreadable(&e))?;
        let names: Arc<[String]> = alternatives
            .iter()
            .flat_map(|names| &names.value.general_names)
            .filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                GeneralName::IPAddress(bytes) => address(bytes),
                _ => None,
            })
            .collect();
        if names.is_empty() {
            return Err(BadCertificate::NoNames);
        }
        let validity = parsed.validity();
        let (not_before, not_after) = (
            time(validity.not_before.timestamp()),
            time(validity.not_after.timestamp()),
        );
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| match e {
            rustls::pki_types::pem::Error::NoItemsFound => BadCertificate::NoKey,
            other => unreadable(&other),
        })?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => BadCertificate::KeyMismatch,
            other => unreadable(&other),
        })?;
        Ok(Certificate {
            key: Arc::new(key),
            names,
            not_before,
            not_after,
        })
    }

    /// Returns whether the certificate is valid for `name` (lower case).
    pub fn covers(&self, name: &str) -> bool {
        self.names.iter().any(|own| covers(own, name))
    }
}

fn time(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|b| std::net::Ipv4Addr::from(b).to_string()),
        16 => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|b| std::net::Ipv6Addr::from(b).to_string()),
        _ => None,
    }
}

/// All certificates of a configuration, by name.
#[derive(Default)]
struct CertificatesByName {
    /// The certificates of a name or of `*.parent`. ECDSA comes before RSA, because it is cheaper for both sides.
    found: HashMap<String, Vec<Certificate>>,
    first: Vec<Certificate>,
    all: Vec<Certificate>,
}

impl CertificatesByName {
    fn of(&self, name: &str) -> &[Certificate] {
        if let Some(found) = self.found.get(name) {
            return found;
        }
        let wildcard = name
            .split_once('.')
            .map(|(_, parent)| format!("*.{parent}"));
        wildcard
            .and_then(|wildcard| self.found.get(&wildcard))
            .unwrap_or(&self.first)
    }
}

/// The certificates that handshakes choose from. They can be replaced at any time.
#[derive(Default)]
pub struct ServerCertificates {
    by_name: ArcSwap<CertificatesByName>,
    failing: ArcSwap<Vec<FailingOrder>>,
}

impl ServerCertificates {
    /// Replaces the certificates. The first one is for clients whose name no certificate covers.
    pub fn set(&self, certificates: Vec<Certificate>) {
        let mut new = CertificatesByName::default();
        for certificate in &certificates {
            for name in &*certificate.names {
                let found = new.found.entry(name.clone()).or_default();
                found.push(certificate.clone());
            }
        }
        for found in new.found.values_mut() {
            found.sort_by_key(|found| found.key.key.algorithm() == SignatureAlgorithm::RSA);
        }
        if let Some(first) = certificates.first().and_then(|c| c.names.first()) {
            new.first = new.found[first].clone();
        }
        new.all = certificates;
        self.by_name.store(Arc::new(new));
    }

    /// Sets the failing orders that the status shows.
    pub fn set_failing_orders(&self, failing: Vec<FailingOrder>) {
        self.failing.store(Arc::new(failing));
    }

    /// Returns the failing orders of certificates.
    pub fn failing_orders(&self) -> Vec<FailingOrder> {
        self.failing.load().to_vec()
    }

    /// Returns whether a certificate covers this name, which is in lower case.
    pub(super) fn cover(&self, name: &str) -> bool {
        let by_name = self.by_name.load();
        let wildcard = name
            .split_once('.')
            .map(|(_, parent)| format!("*.{parent}"));
        let has = |name: &str| by_name.found.contains_key(name);
        has(name) || wildcard.is_some_and(|wildcard| has(&wildcard))
    }

    /// Returns the state of the certificates for the status.
    pub fn status(&self) -> Vec<CertificateStatus> {
        let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let now = seconds(SystemTime::now());
        let status = |certificate: &Certificate| {
            let not_after = seconds(certificate.not_after);
            CertificateStatus {
                names: certificate.names.to_vec(),
                not_after,
                seconds_left: not_after as i64 - now as i64,
            }
        };
        self.by_name.load().all.iter().map(status).collect()
    }
}

/// A certificate in the server's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The names that the certificate is for.
    pub names: Vec<String>,
    /// When it expires, in seconds since 1970.
    pub not_after: u64,
    /// The seconds until it expires; negative if it has expired.
    pub seconds_left: i64,
}

/// A name whose certificate could not be ordered or renewed recently, in the server's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailingOrder {
    /// The name.
    pub name: String,
    /// The name of the last failure.
    pub failure: String,
    /// How many attempts have failed in a row.
    pub attempts: u32,
}

impl fmt::Debug for ServerCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_name = self.by_name.load();
        f.debug_list().entries(by_name.found.keys()).finish()
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let by_name = self.by_name.load();
        let found = match &name {
            Some(name) => by_name.of(name),
            None => &by_name.first,
        };
        let fits = |found: &&Certificate| {
            let schemes = hello.signature_schemes();
            found.key.key.choose_scheme(schemes).is_some()
        };
        let certificate = found.iter().find(fits).or(found.first());
        ASKED.set(certificate.map(|certificate| RequestedName {
            name: name.map(String::into_boxed_str),
            names: certificate.names.clone(),
        }));
        certificate.map(|certificate| certificate.key.clone())
    }
}

/// Takes the name that the handshake just processed on this thread requested.
pub(super) fn take_requested_name() -> Option<RequestedName> {
    ASKED.take()
}
