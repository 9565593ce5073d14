//! What can go wrong with an order, each with its name in log, status and docs.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use instant_acme::Problem;
use strum::IntoStaticStr;

/// Who can act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing was decided: the authority, or the way to it, does not work.
    Unreachable,
    /// The authority said no, or something of ours is not as it must be.
    Refused,
}

/// Why there is no new certificate. The text says what to do.
#[derive(Debug, IntoStaticStr)]
pub enum Failure {
    /// The authority cannot be reached, does not answer in time, or answers with an error of its own.
    AuthorityUnreachable {
        /// The name of the authority.
        authority: String,
        /// What happened to the connection or the request.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The authority refuses the order or the account.
    OrderRefused {
        /// The name of the authority.
        authority: String,
        /// What it says.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Too many orders or failures: the authority wants to be left alone for some time.
    OrderRateLimited {
        /// The name of the authority.
        authority: String,
        /// What it says.
        why: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The authority did not find the proof of control over the name.
    ChallengeFailed {
        /// How control was to be proved.
        challenge: &'static str,
        /// What it says.
        why: String,
    },
    /// No challenge that the authority offers can be answered here.
    NoChallenge {
        /// What it offers.
        offered: String,
    },
    /// The program that sets DNS records failed.
    DnsHookFailed {
        /// The program, as `acme.dns_hook` names it.
        program: String,
        /// How it ended, and what it printed.
        why: String,
    },
    /// The platform does not want a certificate for this name.
    OnDemandDenied {
        /// What it answers.
        why: String,
    },
    /// What the authority issued cannot be used.
    CertificateUnfit {
        /// What is wrong with it.
        why: String,
    },
    /// The root of the local authority is there, and cannot be used. It is not replaced, because nobody
    /// would trust another one.
    LocalRootUnusable {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The directory of certificates cannot be read or written.
    StoreFailed {
        /// What was attempted, on what, and what the system said.
        why: String,
    },
}

impl Failure {
    /// Its name in log, status and documents.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Who can act.
    pub fn kind(&self) -> Kind {
        match self {
            Failure::AuthorityUnreachable { .. }
            | Failure::StoreFailed { .. }
            | Failure::LocalRootUnusable { .. } => Kind::Unreachable,
            _ => Kind::Refused,
        }
    }

    /// When the authority wants to be asked again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::AuthorityUnreachable { retry_after, .. }
            | Failure::OrderRefused { retry_after, .. }
            | Failure::OrderRateLimited { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether another authority may do what this one did not.
    pub fn is_the_authoritys(&self) -> bool {
        !matches!(
            self,
            Failure::DnsHookFailed { .. } | Failure::StoreFailed { .. }
        )
    }

    /// What an authority answered; `retry_after` is from the answer's head.
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

/// The last part of a problem's type: `rateLimited`.
pub fn problem_type(problem: &Problem) -> &str {
    let whole = problem.r#type.as_deref().unwrap_or("");
    whole.rsplit(':').next().unwrap_or("")
}

/// What a problem document says, and about which name.
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
    // It goes on one line of the log.
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(600).collect()
}

/// An error with its causes, once each.
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
