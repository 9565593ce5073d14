//! `howdah takeover try`: starts Howdah on preview ports beside the old servers, asks both for the same URLs of each
//! site, and writes what differs to `trial.json`, which `switch` reads.
//!
//! - [`configuration`]: the configuration of the takeover, and its hash; [`preview_configuration`]: that of the preview;
//!   [`preview`]: the Howdah that runs with it.
//! - [`replay`]: which URLs are never requested, because a request might change something; [`access_log`] and
//!   [`page_links`]: where URLs come from; [`requests`]: the requests of a site;
//!   [`route`]: what `howdah explain` says about those that are not sent.
//! - [`endpoint`]: where the servers are asked; [`response`]: what is compared; [`mask`]: what changes from response to
//!   response; [`comparison`]: what differs between two servers; [`explanation`]: why, and what to do.
//! - [`site`]: the trial of one site; [`run`]: that of all sites; [`report`]: the table.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

pub mod access_log;
pub mod comparison;
pub mod configuration;
pub mod endpoint;
pub mod explanation;
pub mod mask;
pub mod page_links;
pub mod preview;
pub mod preview_configuration;
pub mod replay;
pub mod report;
pub mod requests;
pub mod response;
pub mod route;
pub mod run;
pub mod site;

/// The name of the file in the directory of the takeover.
pub const TRIAL_FILE: &str = "trial.json";

/// The result of `howdah takeover try`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Trial {
    /// When the trial ended, in seconds since 1970.
    pub made_at: u64,
    /// How long it took, in seconds.
    pub duration: u64,
    /// The hash of the configuration that was tried: see [`configuration::configuration_hash`].
    pub configuration_hash: String,
    /// The result for each site of the plan, in its order.
    pub sites: Vec<TriedSite>,
    /// How the preview differed from Howdah after the switch, in sentences.
    pub remarks: Vec<String>,
}

/// The result of the trial for a site.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TriedSite {
    /// The name of the site, as in the plan.
    pub name: String,
    /// The result in one word.
    pub verdict: Verdict,
    /// Why the site cannot be judged; absent with another verdict.
    pub reason: Option<UnjudgedReason>,
    /// The number of different requests that were sent to both servers.
    pub asked: usize,
    /// What differs, the most important first. At most [`MAX_DIFFERENCES`].
    pub differences: Vec<Difference>,
    /// What differs without being worse, such as a response that only Howdah compresses. At most [`MAX_DIFFERENCES`].
    pub harmless: Vec<Difference>,
    /// Requests whose responses cannot be compared, and why.
    pub unjudged: Vec<UnjudgedRequest>,
}

/// The maximum number of differences of a site that are recorded.
pub const MAX_DIFFERENCES: usize = 40;

/// The result of a trial in one word.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Both servers respond alike to all requests.
    Equal,
    /// The servers respond differently to at least one request.
    Differs,
    /// The trial does not show whether the servers respond alike.
    CannotBeJudged,
}

/// A part of a response that differs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Difference {
    /// The kind of the difference.
    pub name: DifferenceName,
    /// The request, as `GET https://example.org/page`.
    pub request: String,
    /// The value of the old server; empty if it has none.
    pub old: String,
    /// The value of Howdah; empty if it has none.
    pub new: String,
    /// The likely cause, in a sentence.
    pub cause: String,
    /// What to do, in a sentence.
    pub remedy: String,
}

/// The kinds of differences, the most important first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum DifferenceName {
    /// The old server denies a path that Howdah would serve. `switch` refuses to run.
    OpensDenied,
    /// The old server responds, and Howdah does not.
    NoResponse,
    /// Howdah does not listen at an address of the old server.
    AddressNotServed,
    /// Howdah fails with a status of 500 or higher.
    ServerError,
    /// The status differs in another way.
    StatusDiffers,
    /// The target of a redirect differs.
    LocationDiffers,
    /// The media type differs.
    ContentTypeDiffers,
    /// The body differs.
    BodyDiffers,
    /// The TLS certificate differs.
    CertificateDiffers,
    /// `WWW-Authenticate` differs.
    AuthenticationDiffers,
    /// A header that protects visitors differs.
    SecurityHeaderDiffers,
    /// The names of cookies differ.
    CookiesDiffer,
    /// `Cache-Control` differs.
    CacheControlDiffers,
    /// Only one of the servers supports ranges for a file, or they send different ranges.
    RangeDiffers,
    /// Only one of the servers compresses a response.
    CompressionDiffers,
    /// Only one of the servers sends `ETag`, or confirms that a stored file is still current.
    ValidatorsDiffer,
}

/// A request whose responses cannot be compared.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct UnjudgedRequest {
    /// The request, as `GET https://example.org/page`.
    pub request: String,
    /// Why it cannot be judged.
    pub reason: UnjudgedReason,
}

/// Why a response or a site cannot be judged.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum UnjudgedReason {
    /// The old server does not accept connections.
    OldServerUnreachable,
    /// The old server sent no valid response, or not in time, or it failed with a status of 500 or higher.
    OldServerFails,
    /// A server limits the number of requests of one client (429).
    RateLimited,
    /// The old server responds differently to each request.
    ResponsesVary,
    /// The time for the site was over before all requests had been sent.
    TimeLimitReached,
    /// The old server refuses other clients, but not this machine.
    AllowedHere,
    /// A request might change something, so it was not sent.
    NotReplayed,
    /// The site has no TCP address.
    NoAddress,
}

impl Trial {
    /// Reads the result of the last trial in the directory of a takeover.
    ///
    /// # Errors
    /// Returns a sentence for the user if the file cannot be read, or was written by another version.
    pub fn read(directory: &Path) -> Result<Trial, String> {
        let path = directory.join(TRIAL_FILE);
        let again = format!("run `howdah takeover try --dir {}`", directory.display());
        let text = std::fs::read(&path)
            .map_err(|error| format!("{}: {error}; {again}", path.display()))?;
        serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}; {again}", path.display()))
    }

    /// Returns whether the configuration in the directory is still the one that was tried.
    ///
    /// # Errors
    /// Returns a sentence for the user if the configuration cannot be read.
    pub fn configuration_is_current(&self, directory: &Path) -> Result<bool, String> {
        let hash = configuration::configuration_hash(directory)?;
        Ok(hash == self.configuration_hash)
    }

    /// Returns the paths that the old servers deny and Howdah would serve, each with the name of its site. If there are
    /// any, `switch` must not run.
    pub fn opened_paths(&self) -> impl Iterator<Item = (&str, &Difference)> {
        self.sites.iter().flat_map(|site| {
            let opened = site.differences.iter();
            let opened = opened.filter(|one| one.name == DifferenceName::OpensDenied);
            opened.map(|one| (site.name.as_str(), one))
        })
    }

    /// Returns whether all sites are equal.
    pub fn all_equal(&self) -> bool {
        self.sites.iter().all(|site| site.verdict == Verdict::Equal)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Equal => "equal",
            Verdict::Differs => "differs",
            Verdict::CannotBeJudged => "cannot be judged",
        })
    }
}

impl fmt::Display for DifferenceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Display for UnjudgedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
