//! Automatic certificates: they are ordered from an authority by ACME (RFC 8555), renewed, and stored in a directory
//! that several processes and hosts may share. Names that no public authority can certify get a certificate of a local
//! authority.
//!
//! This crate serves no requests. It hands out the responses to an authority's challenges as [`ManagerEvent`]s, and the
//! program that serves requests reports when it is ready to give them.
//!
//! - [`manager`]: one task per name, from the first order through every renewal.
//! - [`schedule`]: when to order; [`order`], [`account`]: how to order; [`failure`]: the possible failures and their
//!   names.
//! - [`challenge`]: how control over a name is proved; [`client`]: the HTTP client for authorities.
//! - [`store`]: the directory; [`lease`]: its locks; [`cluster`]: the processes that share it.
//! - [`certificate`]: a stored certificate.
//! - [`names`]: which names a public authority can certify; [`local`]: the authority for the other names.

pub mod account;
pub mod certificate;
pub mod certificate_directory;
pub mod challenge;
pub mod client;
pub mod cluster;
pub mod failure;
pub mod lease;
pub mod local;
pub mod manager;
pub mod names;
mod nonce;
pub mod order;
pub mod schedule;
pub mod store;

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

pub use challenge::ActiveChallenges;
pub use manager::{CertificateCommand, ManagerEvent, ManagerInput, NameStatus};

/// An authority that issues certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeAuthority {
    /// Its name: a word of the configuration, or its host.
    pub name: String,
    /// The URL of its directory.
    pub url: String,
    /// External account binding: the key's id, and the key in base64.
    pub eab: Option<(String, String)>,
}

/// The names to order certificates for, and how to order them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcmeSettings {
    /// The directory of accounts, keys and certificates.
    pub directory: PathBuf,
    /// The names to be covered, each by a certificate of its own.
    pub names: Vec<String>,
    /// The address to which an authority reports problems.
    pub email: Option<String>,
    /// The authorities, in the order in which they are tried.
    pub authorities: Vec<AcmeAuthority>,
    /// The program that sets and removes DNS records.
    pub dns_hook: Option<PathBuf>,
    /// The URL that decides whether other names may have certificates. `None` means that no others may.
    pub ask: Option<String>,
    /// Whether a listener without TLS responds to HTTP-01 challenges.
    pub http: bool,
}

/// Seconds since 1970, the form in which times are stored and shown.
pub type UnixSeconds = u64;

/// Converts a time to its stored form.
pub fn unix_seconds(time: SystemTime) -> UnixSeconds {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Converts a stored time back.
pub fn system_time(seconds: UnixSeconds) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}
