//! The possible failures of an order, each with the name that the log, the status and the documentation use.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use instant_acme::Problem;
use strum::IntoStaticStr;

/// The class of a failure, which determines the pauses between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No decision was made: the authority, the connection to it, or local storage does not work.
    Unreachable,
    /// The authority refused, or something in the local setup is wrong.
    Refused,
}

/// Why there is no new certificate. The text says what to do.
#[derive(Debug, IntoStaticStr)]
pub enum Failure {
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

impl Failure {
    /// Returns the name that the log, the status and the documentation use.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the class of the failure.
    pub fn kind(&self) -> Kind {
        match self {
            Failure::AuthorityUnreachable { .. }
            | Failure::StoreFailed { .. }
            | Failure::LocalRootUnusable { .. } => Kind::Unreachable,
            _ => Kind::Refused,
        }
    }

    /// Returns how long the authority asks to wait before the next attempt.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::AuthorityUnreachable { retry_after, .. }
            | Failure::OrderRefused { retry_after, .. }
            | Failure::OrderRateLimited { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether another authority may succeed where this one failed.
    pub fn is_the_authoritys(&self) -> bool {
        !matches!(
            self,
            Failure::DnsHookFailed { .. } | Failure::StoreFailed { .. }
        )
    }

    /// Converts an error of an authority. `retry_after` is from the response's headers.
    pub fn of(
        authority: &str,
        error: instant_acme::Error,
        retry_after: Option<SystemTime>,
    ) -> Failure {
        let retry_after =
            retry_after.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let authority = authority.to_owned();
        match error {
            instant_acme::Error::Api(problem) => {
                let why = sentence(&problem);
                match (problem_type(&problem), problem.status) {
                    ("rateLimited", _) => Failure::OrderRateLimited {
                        authority,
                        why,
                        retry_after,
                    },
                    ("serverInternal" | "badNonce", _) | (_, Some(500..)) => {
                        Failure::AuthorityUnreachable {
                            authority,
                            why,
                            retry_after,
                        }
                    }
                    _ => Failure::OrderRefused {
                        authority,
                        why,
                        retry_after,
                    },
                }
            }
            other => Failure::AuthorityUnreachable {
                authority,
                why: chain(&other),
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
pub fn sentence(problem: &Problem) -> String {
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
pub fn chain(error: &dyn std::error::Error) -> String {
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::AuthorityUnreachable { authority, why, .. } => {
                write!(f, "{authority} does not work: {why}")
            }
            Failure::OrderRefused { authority, why, .. }
            | Failure::OrderRateLimited { authority, why, .. } => {
                write!(f, "{authority} refuses: {why}")
            }
            Failure::ChallengeFailed { challenge, why } => write!(
                f,
                "the authority did not find the proof by {challenge}: {why}; the name's DNS must lead here"
            ),
            Failure::NoChallenge { offered } => write!(
                f,
                "the authority offers {offered}; a wildcard needs `acme.dns_hook`, other names a listener that the Internet reaches on port 80 or 443"
            ),
            Failure::DnsHookFailed { program, why } => write!(f, "{program}: {why}"),
            Failure::CertificateUnfit { why } => {
                write!(f, "the certificate issued cannot be used: {why}")
            }
            Failure::OnDemandDenied { why } => write!(f, "not ordered: {why}"),
            Failure::LocalRootUnusable { path, why } => write!(
                f,
                "the local authority cannot use {}: {why}; restore the file and its owner, or remove `root.key`, `root.pem` and `names` to get a new root, which every browser then has to be told to trust",
                path.display()
            ),
            Failure::StoreFailed { why } => f.write_str(why),
        }
    }
}
