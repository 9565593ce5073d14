//! Certificates without a person: ordered from an authority by ACME (RFC 8555), renewed, kept in a
//! directory that several processes and hosts may share. Names that no public authority knows get a
//! certificate of a local one.
//!
//! It serves nobody: what is to be answered to an authority's questions is handed out ([`Event`]),
//! and whoever serves says when it answers.
//!
//! - [`manager`]: one task per name, from the first order to every renewal.
//! - [`schedule`]: when; [`order`], [`account`]: how; [`failure`]: what can go wrong, and its name.
//! - [`challenge`]: how control over a name is proved; [`client`]: the way to an authority.
//! - [`store`]: the directory; [`lease`]: its locks; [`cluster`]: who shares it.
//! - [`certificate`]: what is kept in it.
//! - [`names`]: which names a public authority knows; [`local`]: the authority for the others.

pub mod account;
pub mod certificate;
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

pub use challenge::Challenges;
pub use manager::{Command, Event, Input, NameStatus};

/// An authority that issues certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// What it is called: a word of the configuration, or its host.
    pub name: String,
    /// The URL of its directory.
    pub url: String,
    /// External account binding: the key's id, and the key in base64.
    pub eab: Option<(String, String)>,
}

/// What certificates are ordered for, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Where accounts, keys and certificates are.
    pub directory: PathBuf,
    /// Names to be covered, one certificate each.
    pub names: Vec<String>,
    /// Who hears of problems from an authority.
    pub email: Option<String>,
    /// Tried in this order.
    pub authorities: Vec<Authority>,
    /// The program that sets and removes DNS records.
    pub dns_hook: Option<PathBuf>,
    /// The URL that says which other names may have certificates; none: no others may.
    pub ask: Option<String>,
    /// A listener without TLS answers HTTP-01.
    pub http: bool,
}

/// Seconds since 1970: how times are kept and shown.
pub type Seconds = u64;

/// A time as it is kept.
pub fn seconds(time: SystemTime) -> Seconds {
    time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A kept time.
pub fn time_of(seconds: Seconds) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}
