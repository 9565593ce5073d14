//! Proves control over a name to an authority: by a response over HTTP (RFC 8555 §8.3), by a certificate in a TLS
//! handshake (RFC 8737), or by a DNS record that a program sets (RFC 8555 §8.4).

use std::cell::RefCell;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use instant_acme::ChallengeType;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::{mpsc, watch};

use crate::cluster::{self, DirectoryPeers};
use crate::failure::AcmeFailure;
use crate::manager::ManagerEvent;

/// How long to wait until the serving program confirms that it responds to the challenges. An authority that checks too
/// early rejects the proof.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of the hook program. The DNS servers must have the record when it exits.
const HOOK_TIMEOUT: Duration = Duration::from_secs(300);

/// The method by which control is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeMethod {
    /// HTTP-01: `/.well-known/acme-challenge/TOKEN` on port 80.
    Http,
    /// TLS-ALPN-01: a certificate for the protocol `acme-tls/1` on port 443.
    Tls,
    /// DNS-01: a TXT record.
    Dns,
}

impl ChallengeMethod {
    /// Returns its name in RFC 8555 and RFC 8737.
    pub fn name(self) -> &'static str {
        match self {
            ChallengeMethod::Http => "http-01",
            ChallengeMethod::Tls => "tls-alpn-01",
            ChallengeMethod::Dns => "dns-01",
        }
    }

    /// Returns the corresponding type of the ACME crate.
    pub fn challenge_type(self) -> ChallengeType {
        match self {
            ChallengeMethod::Http => ChallengeType::Http01,
            ChallengeMethod::Tls => ChallengeType::TlsAlpn01,
            ChallengeMethod::Dns => ChallengeType::Dns01,
        }
    }

    /// Returns the methods to try for a name, best first. If there is a hook, only DNS is used. Otherwise, successive
    /// attempts alternate between the other two methods, because a firewall may let only one of them through.
    pub fn choices(name: &str, http: bool, hook: bool, attempt: u32) -> Vec<ChallengeMethod> {
        match (hook, name.starts_with("*."), http) {
            (true, _, _) => vec![ChallengeMethod::Dns],
            (false, true, _) => Vec::new(),
            (false, false, false) => vec![ChallengeMethod::Tls],
            (false, false, true) if attempt.is_multiple_of(2) => {
                vec![ChallengeMethod::Http, ChallengeMethod::Tls]
            }
            (false, false, true) => vec![ChallengeMethod::Tls, ChallengeMethod::Http],
        }
    }
}

/// The responses to be given to authorities at present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveChallenges {
    /// HTTP-01: token and response.
    pub http: Vec<(String, String)>,
    /// TLS-ALPN-01: name, certificate and key (PEM).
    pub tls: Vec<(String, String, String)>,
}

/// Publishes challenges to the serving program of this host and to the other hosts.
pub struct ChallengeBoard {
    state: RefCell<BoardState>,
    events: mpsc::UnboundedSender<ManagerEvent>,
    answering: watch::Receiver<u64>,
    /// `None` until the directory is known.
    pub cluster: RefCell<Option<DirectoryPeers>>,
}

#[derive(Default)]
struct BoardState {
    number: u64,
    own: ActiveChallenges,
    others: ActiveChallenges,
}

/// A proof that stays published until this value is dropped.
pub struct PublishedChallenge<'a> {
    board: &'a ChallengeBoard,
    token: String,
    name: String,
}

impl ChallengeBoard {
    /// Creates a board that sends challenges as events. `answering` holds the highest number of an event whose
    /// challenges are being responded to.
    pub fn new(
        events: mpsc::UnboundedSender<ManagerEvent>,
        answering: watch::Receiver<u64>,
    ) -> ChallengeBoard {
        ChallengeBoard {
            state: RefCell::default(),
            events,
            answering,
            cluster: RefCell::default(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut BoardState)) -> u64 {
        let mut state = self.state.borrow_mut();
        state.number += 1;
        change(&mut state);
        let mut challenges = state.own.clone();
        challenges.http.extend(state.others.http.iter().cloned());
        challenges.tls.extend(state.others.tls.iter().cloned());
        let number = state.number;
        // Sending fails only when the serving program has stopped receiving, at shutdown.
        let _ = self
            .events
            .send(ManagerEvent::Challenges { number, challenges });
        number
    }

    /// Publishes the challenges of other hosts here if they have changed.
    pub fn import_foreign(&self) {
        let news = self
            .cluster
            .borrow_mut()
            .as_mut()
            .and_then(DirectoryPeers::changed_challenges);
        if let Some(others) = news
            && others != self.state.borrow().others
        {
            self.change(|state| state.others = others);
        }
    }

    /// Writes this host's challenges to the shared directory. Returns whether other processes are to read them.
    fn share(&self) -> bool {
        let own = self.state.borrow().own.clone();
        let cluster = self.cluster.borrow();
        cluster
            .as_ref()
            .is_some_and(|cluster| cluster.publish(&own))
    }

    async fn wait_until_served(&self, number: u64) {
        let others = self.share();
        let mut answering = self.answering.clone();
        let wait = answering.wait_for(|answered| *answered >= number);
        // The order continues in any case, because the authority's check decides.
        let _ = tokio::time::timeout(CONFIRMATION_TIMEOUT, wait).await;
        if others {
            tokio::time::sleep(cluster::PROPAGATION_TIME).await;
        }
    }

    /// Publishes a response to HTTP-01.
    pub async fn publish_http(&self, token: &str, answer: &str) -> PublishedChallenge<'_> {
        let pair = (token.to_owned(), answer.to_owned());
        let shown = self.published(token, "");
        let number = self.change(|state| state.own.http.push(pair));
        self.wait_until_served(number).await;
        shown
    }

    /// Publishes a certificate for TLS-ALPN-01.
    ///
    /// # Errors
    /// Fails with [`AcmeFailure::CertificateUnfit`].
    pub async fn publish_tls(
        &self,
        name: &str,
        digest: &[u8],
    ) -> Result<PublishedChallenge<'_>, AcmeFailure> {
        let (chain, key) =
            proof_certificate(name, digest).map_err(|error| AcmeFailure::CertificateUnfit {
                why: error.to_string(),
            })?;
        let shown = self.published("", name);
        let entry = (name.to_owned(), chain, key);
        let number = self.change(|state| state.own.tls.push(entry));
        self.wait_until_served(number).await;
        Ok(shown)
    }

    fn published(&self, token: &str, name: &str) -> PublishedChallenge<'_> {
        PublishedChallenge {
            board: self,
            token: token.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl Drop for PublishedChallenge<'_> {
    fn drop(&mut self) {
        self.board.change(|state| {
            let own = &mut state.own;
            own.http.retain(|(token, _)| *token != self.token);
            own.tls.retain(|(name, ..)| *name != self.name);
        });
        self.board.share();
    }
}

/// Creates a self-signed certificate with the digest of the key authorization (RFC 8737 §3).
fn proof_certificate(name: &str, digest: &[u8]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new([name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Returns the name of the DNS record for a name. A wildcard uses the record of its parent.
pub fn dns_record_name(name: &str) -> String {
    format!(
        "_acme-challenge.{}.",
        name.strip_prefix("*.").unwrap_or(name)
    )
}

/// Runs the hook as `PROGRAM present NAME VALUE` or `PROGRAM cleanup NAME VALUE`, like lego's `exec` provider.
///
/// # Errors
/// Fails with [`AcmeFailure::DnsHookFailed`].
pub async fn run_hook(
    program: &Path,
    verb: &str,
    name: &str,
    value: &str,
) -> Result<(), AcmeFailure> {
    let failed = |why: String| AcmeFailure::DnsHookFailed {
        program: format!("{} {verb} {}", program.display(), dns_record_name(name)),
        why,
    };
    let mut command = Command::new(program);
    command
        .arg(verb)
        .arg(dns_record_name(name))
        .arg(value)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let run = async {
        let child = command.spawn()?;
        child.wait_with_output().await
    };
    let output = match tokio::time::timeout(HOOK_TIMEOUT, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(failed(format!("it cannot be executed: {error}"))),
        Err(_) => {
            return Err(failed(format!(
                "it has not exited within {} s",
                HOOK_TIMEOUT.as_secs()
            )));
        }
    };
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    let last = printed
        .trim()
        .lines()
        .next_back()
        .unwrap_or("it printed nothing");
    let last: String = last.chars().filter(|c| !c.is_control()).take(300).collect();
    Err(failed(format!("{}: {last}", output.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenge_methods_alternate_if_both_are_available() {
        let of = |name, http, hook, attempt| ChallengeMethod::choices(name, http, hook, attempt);
        assert_eq!(
            of("a.org", true, false, 0),
            [ChallengeMethod::Http, ChallengeMethod::Tls]
        );
        assert_eq!(
            of("a.org", true, false, 1),
            [ChallengeMethod::Tls, ChallengeMethod::Http]
        );
        assert_eq!(of("a.org", false, false, 0), [ChallengeMethod::Tls]);
        assert_eq!(of("*.a.org", true, true, 0), [ChallengeMethod::Dns]);
        assert!(of("*.a.org", true, false, 0).is_empty());
        assert_eq!(dns_record_name("*.a.org"), dns_record_name("a.org"));
    }
}
