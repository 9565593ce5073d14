//! The possible failures of an order, each with the name that the log, the status and the documentation use.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use instant_acme::Problem;
use strum::IntoStaticStr;

/// The class of a failure, which determines the pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// No decision was made: the authority, the connection to it, or local storage does not work.
    Unreachable,
    /// The authority refused, or something in the local setup is wrong.
    Refused,
}

/// Why there is no new certificate. The text says what to do.
#[derive(Debug, IntoStaticStr)]
pub enum AcmeFailure {
    /// The authority cannot be reached, does not respond in time, or responds with an internal error.
    AuthorityUnreachable {
        /// The name of the authority.
        authority: String,
        /// What happened to the connection or the request.
        why: String,
        /// How long the authority asks to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The authority refuses the order or the account.
    OrderRefused {
        /// The name of the authority.
        authority: String,
        /// The authority's explanation.
        why: String,
        /// How long the authority asks to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// Too many orders or failures: the authority accepts no orders for some time.
    OrderRateLimited {
        /// The name of the authority.
        authority: String,
        /// The authority's explanation.
        why: String,
        /// How long the authority asks to wait before the next attempt.
        retry_after: Option<Duration>,
    },
    /// The authority did not find the proof of control over the name.
    ChallengeFailed {
        /// The challenge that was used.
        challenge: &'static str,
        /// The authority's explanation.
        why: String,
    },
    /// None of the challenges that the authority offers can be fulfilled here.
    NoChallenge {
        /// The challenges that the authority offers.
        offered: String,
    },
    /// The program that sets DNS records failed.
    DnsHookFailed {
        /// The program, as `acme.dns_hook` names it.
        program: String,
        /// Its exit status and output.
        why: String,
    },
    /// The platform does not allow a certificate for this name.
    OnDemandDenied {
        /// The platform's response.
        why: String,
    },
    /// The certificate that the authority issued cannot be used.
    CertificateUnfit {
        /// What is wrong with it.
        why: String,
    },
    /// The root of the local authority exists but cannot be used. It is not replaced, because no browser would trust a
    /// new root.
    LocalRootUnusable {
        /// The root's file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The directory of certificates cannot be read or written.
    StoreFailed {
        /// The attempted operation, its file, and the error of the system.
        why: String,
    },
}

impl AcmeFailure {
    /// Returns the name that the log, the status and the documentation use.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> FailureClass {
        match self {
            AcmeFailure::AuthorityUnreachable { .. }
            | AcmeFailure::StoreFailed { .. }
            | AcmeFailure::LocalRootUnusable { .. } => FailureClass::Unreachable,
            _ => FailureClass::Refused,
        }
    }

    /// Returns how long the authority asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            AcmeFailure::AuthorityUnreachable { retry_after, .. }
            | AcmeFailure::OrderRefused { retry_after, .. }
            | AcmeFailure::OrderRateLimited { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether another authority may succeed where this one failed.
    pub fn may_succeed_elsewhere(&self) -> bool {
        !matches!(
            self,
            AcmeFailure::DnsHookFailed { .. } | AcmeFailure::StoreFailed { .. }
        )
    }

    /// Converts an error of an authority. `retry_after` is from the response's headers.
    pub fn from_acme_error(
        authority: &str,
        error: instant_acme::Error,
        retry_after: Option<SystemTime>,
    ) -> AcmeFailure {
        let retry_after =
            retry_after.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let authority = authority.to_owned();
        match error {
            instant_acme::Error::Api(problem) => {
                let why = problem_text(&problem);
                match (problem_type(&problem), problem.status) {
                    ("rateLimited", _) => AcmeFailure::OrderRateLimited {
                        authority,
                        why,
                        retry_after,
                    },
                    ("serverInternal" | "badNonce", _) | (_, Some(500..)) => {
                        AcmeFailure::AuthorityUnreachable {
                            authority,
                            why,
                            retry_after,
                        }
                    }
                    _ => AcmeFailure::OrderRefused {
                        authority,
                        why,
                        retry_after,
                    },
                }
            }
            other => AcmeFailure::AuthorityUnreachable {
                authority,
                why: error_with_causes(&other),
                retry_after,
            },
        }
    }
}

/// Returns the last part of a problem's type, such as `rateLimited`.
pub fn problem_type(problem: &Problem) -> &str {
    let whole = problem.r#type.as_deref().unwrap_or("");
    whole.rsplit(':').next().unwrap_or("")
}

/// Returns the text of a problem document with the details of its subproblems.
pub fn problem_text(problem: &Problem) -> String {
    let mut text = problem_type(problem).to_owned();
    let parts = problem.detail.iter().chain(
        problem
            .subproblems
            .iter()
            .filter_map(|sub| sub.detail.as_ref()),
    );
    for part in parts {
        let separator = if text.is_empty() { "" } else { ": " };
        text = format!("{text}{separator}{part}");
    }
    // The text must fit on one line of the log.
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(600).collect()
}

/// Formats an error with its causes, without repetitions.
pub fn error_with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

impl fmt::Display for AcmeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcmeFailure::AuthorityUnreachable { authority, why, .. } => {
                write!(f, "cannot order a certificate from {authority}: {why}")
            }
            AcmeFailure::OrderRefused { authority, why, .. }
            | AcmeFailure::OrderRateLimited { authority, why, .. } => {
                write!(f, "{authority} refused the order: {why}")
            }
            AcmeFailure::ChallengeFailed { challenge, why } => write!(
                f,
                "the authority could not verify the {challenge} challenge: {why}; the name's DNS must point to this server"
            ),
            AcmeFailure::NoChallenge { offered } => write!(
                f,
                "the authority offers no challenge that this server can complete (it offers {offered}); a wildcard needs `acme.dns_hook`, and other names need a listener that is reachable from the Internet on port 80 or 443"
            ),
            AcmeFailure::DnsHookFailed { program, why } => write!(f, "{program}: {why}"),
            AcmeFailure::CertificateUnfit { why } => {
                write!(f, "the issued certificate cannot be used: {why}")
            }
            AcmeFailure::OnDemandDenied { why } => write!(f, "no certificate is ordered: {why}"),
            AcmeFailure::LocalRootUnusable { path, why } => write!(
                f,
                "the local authority cannot use {}: {why}; restore the file and its owner, or remove `root.key`, `root.pem` and `names` to create a new root; you must then make every browser trust it",
                path.display()
            ),
            AcmeFailure::StoreFailed { why } => f.write_str(why),
        }
    }
}
