//! Executes one order, from the account to the certificate (RFC 8555 §7).

use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Error, Identifier,
    NewOrder, Order, OrderStatus, Problem, RevocationRequest,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use tokio::time::{Instant, sleep};

use crate::certificate::StoredCertificate;
use crate::challenge::{ChallengeBoard, ChallengeMethod, PublishedChallenge, run_hook};
use crate::client::AcmeClient;
use crate::failure::{AcmeFailure, problem_text, problem_type};
use crate::nonce::nonce;
use crate::schedule::RenewalWindow;
use crate::store::CertificateStore;
use crate::{AcmeAuthority, AcmeSettings};

/// How long an authority may take to validate a proof, and to issue a certificate.
const VALIDATION_TIMEOUT: Duration = Duration::from_secs(180);
/// The first and the longest pause between two status checks.
const FIRST_POLL_PAUSE: Duration = Duration::from_millis(200);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause between two status checks that an authority can ask for.
const MAX_REQUESTED_POLL_PAUSE: Duration = Duration::from_secs(30);
/// The resources that every order uses.
pub struct OrderContext<'a> {
    /// The configuration.
    pub settings: &'a AcmeSettings,
    /// The directory.
    pub store: &'a CertificateStore,
    /// Where proofs are published.
    pub board: &'a ChallengeBoard,
    /// The HTTP client for the authorities.
    pub client: &'a AcmeClient,
}

impl OrderContext<'_> {
    pub(crate) fn failure_of<'f>(
        &self,
        authority: &'f AcmeAuthority,
    ) -> impl Fn(Error) -> AcmeFailure + use<'f> {
        let client = self.client.clone();
        move |error| AcmeFailure::from_acme_error(&authority.name, error, client.take_retry_after())
    }

    /// Orders a certificate for a name. `former` is the certificate to be replaced; `attempt` is the number of failures
    /// so far.
    ///
    /// # Errors
    /// See [`AcmeFailure`].
    pub async fn order(
        &self,
        authority: &AcmeAuthority,
        name: &str,
        former: Option<&StoredCertificate>,
        attempt: u32,
    ) -> Result<StoredCertificate, AcmeFailure> {
        self.client.take_retry_after();
        let account = self.account(authority).await?;
        match self
            .order_with(&account, authority, name, former, attempt)
            .await
        {
            Err(AcmeFailure::OrderRefused { why, .. }) if is_unknown_account(&why) => {
                // The authority no longer has the account, as happens when a test authority is restarted.
                let account = self.account_instead_of(authority, &account).await?;
                self.order_with(&account, authority, name, former, attempt)
                    .await
            }
            other => other,
        }
    }

    async fn order_with(
        &self,
        account: &Account,
        authority: &AcmeAuthority,
        name: &str,
        former: Option<&StoredCertificate>,
        attempt: u32,
    ) -> Result<StoredCertificate, AcmeFailure> {
        let failed = self.failure_of(authority);
        let mut order = new_order(account, name, former).await.map_err(&failed)?;
        // The proof stays published until the authority has validated it.
        let proof = self
            .publish_proof(&mut order, authority, name, attempt)
            .await?;
        let ready = self
            .wait_for_validation(&mut order, authority, &proof)
            .await;
        if let Some(PublishedProof::Dns(program, value)) = &proof {
            // A leftover record does no harm; the next attempt sets another one.
            let _ = run_hook(program, "cleanup", name, value).await;
        }
        drop(proof);
        ready?;
        let unfit = |error: rcgen::Error| AcmeFailure::CertificateUnfit {
            why: error.to_string(),
        };
        let key = KeyPair::generate().map_err(unfit)?;
        let mut params = CertificateParams::new([name.to_owned()]).map_err(unfit)?;
        params.distinguished_name = DistinguishedName::new();
        let request = params.serialize_request(&key).map_err(unfit)?;
        if order.state().status != OrderStatus::Valid {
            nonce!(order.finalize_csr(request.der())).map_err(&failed)?;
        }
        let until = Instant::now() + VALIDATION_TIMEOUT;
        let mut pause = FIRST_POLL_PAUSE;
        while order.state().status == OrderStatus::Processing {
            self.pause(&mut pause, until, authority).await?;
            nonce!(order.refresh()).map_err(&failed)?;
        }
        let chain = nonce!(order.certificate()).map_err(&failed)?;
        let chain = chain.unwrap_or_default();
        StoredCertificate::new(name, chain, key.serialize_pem())
            .map_err(|why| AcmeFailure::CertificateUnfit { why })
    }

    /// Waits a little longer each time, or for the time that the authority asks for.
    async fn pause(
        &self,
        pause: &mut Duration,
        until: Instant,
        authority: &AcmeAuthority,
    ) -> Result<(), AcmeFailure> {
        if Instant::now() >= until {
            return Err(AcmeFailure::AuthorityUnreachable {
                authority: authority.name.clone(),
                why: format!(
                    "the order is not complete after {} s",
                    VALIDATION_TIMEOUT.as_secs()
                ),
                retry_after: None,
            });
        }
        let wanted = self.client.take_retry_after();
        let wanted = wanted.and_then(|at| at.duration_since(SystemTime::now()).ok());
        sleep(wanted.unwrap_or(*pause).min(MAX_REQUESTED_POLL_PAUSE)).await;
        *pause = (*pause * 2).min(MAX_POLL_PAUSE);
        Ok(())
    }

    /// Publishes a proof and asks the authority to validate it. Returns `None` if no proof is needed this time.
    async fn publish_proof(
        &self,
        order: &mut Order,
        authority: &AcmeAuthority,
        name: &str,
        attempt: u32,
    ) -> Result<Option<PublishedProof<'_>>, AcmeFailure> {
        let failed = self.failure_of(authority);
        let handle = nonce!(async {
            match order.authorizations().next().await {
                Some(Ok(handle)) => Ok(Some(handle.status)),
                Some(Err(error)) => Err(error),
                None => Ok(None),
            }
        });
        match handle.map_err(&failed)? {
            Some(AuthorizationStatus::Pending) => {}
            _ => return Ok(None),
        }
        let mut authorizations = order.authorizations();
        let handle = authorizations.next().await.transpose().map_err(&failed)?;
        let Some(mut handle) = handle else {
            return Ok(None);
        };
        let offered: Vec<ChallengeType> =
            handle.challenges.iter().map(|c| c.r#type.clone()).collect();
        let hook = self.settings.dns_hook.as_deref();
        let choices = ChallengeMethod::choices(name, self.settings.http, hook.is_some(), attempt);
        let method = choices
            .iter()
            .find(|m| offered.contains(&m.challenge_type()))
            .copied();
        let Some((method, mut challenge)) =
            method.and_then(|method| Some((method, handle.challenge(method.challenge_type())?)))
        else {
            let offered = offered.iter().map(|kind| format!("{kind:?}"));
            return Err(AcmeFailure::NoChallenge {
                offered: offered.collect::<Vec<_>>().join(", "),
            });
        };
        let answer = challenge.key_authorization();
        let proof = match (method, hook) {
            (ChallengeMethod::Http, _) => {
                let shown = self
                    .board
                    .publish_http(&challenge.token, answer.as_str())
                    .await;
                PublishedProof::Here {
                    method,
                    _shown: shown,
                }
            }
            (ChallengeMethod::Dns, Some(program)) => {
                run_hook(program, "present", name, &answer.dns_value()).await?;
                PublishedProof::Dns(program, answer.dns_value())
            }
            (ChallengeMethod::Tls | ChallengeMethod::Dns, _) => {
                let shown = self
                    .board
                    .publish_tls(name, answer.digest().as_ref())
                    .await?;
                PublishedProof::Here {
                    method,
                    _shown: shown,
                }
            }
        };
        nonce!(challenge.set_ready()).map_err(&failed)?;
        Ok(Some(proof))
    }

    /// Waits until the authority has validated the proof.
    async fn wait_for_validation(
        &self,
        order: &mut Order,
        authority: &AcmeAuthority,
        proof: &Option<PublishedProof<'_>>,
    ) -> Result<(), AcmeFailure> {
        let failed = self.failure_of(authority);
        let until = Instant::now() + VALIDATION_TIMEOUT;
        let mut pause = FIRST_POLL_PAUSE;
        loop {
            let status = nonce!(order.refresh()).map_err(&failed)?.status;
            match status {
                OrderStatus::Pending => {}
                OrderStatus::Invalid => {
                    return Err(self.why_invalid(order, authority, proof).await);
                }
                OrderStatus::Ready | OrderStatus::Processing | OrderStatus::Valid => return Ok(()),
            }
            self.pause(&mut pause, until, authority).await?;
        }
    }

    /// Returns the failure that explains why the authority rejected the proof.
    async fn why_invalid(
        &self,
        order: &mut Order,
        authority: &AcmeAuthority,
        proof: &Option<PublishedProof<'_>>,
    ) -> AcmeFailure {
        let problem = nonce!(async {
            let mut authorizations = order.authorizations();
            let Some(handle) = authorizations.next().await else {
                return Ok(None);
            };
            let mut handle = handle?;
            let state = handle.refresh().await?;
            Ok(state.challenges.iter().find_map(|c| c.error.clone()))
        });
        match problem {
            Ok(Some(problem)) => challenge_failed(&problem, authority, proof),
            Ok(None) => AcmeFailure::OrderRefused {
                authority: authority.name.clone(),
                why: "the order is invalid, and the authority gives no reason".to_owned(),
                retry_after: None,
            },
            Err(error) => self.failure_of(authority)(error),
        }
    }

    /// Returns the window in which the authority wants this certificate to be renewed, and how long this information is
    /// valid. Returns `None` if the authority does not provide it.
    pub async fn renewal_window(
        &self,
        authority: &AcmeAuthority,
        stored: &StoredCertificate,
    ) -> Option<(RenewalWindow, Duration)> {
        let account = self.account(authority).await.ok()?;
        let id = CertificateIdentifier::try_from(&stored.leaf).ok()?;
        let (info, again) = account.renewal_info(&id).await.ok()?;
        let window = RenewalWindow {
            start: info.suggested_window.start.into(),
            end: info.suggested_window.end.into(),
        };
        Some((window, again))
    }

    /// Asks the authority to revoke a certificate.
    ///
    /// # Errors
    /// See [`AcmeFailure`].
    pub async fn revoke(
        &self,
        authority: &AcmeAuthority,
        stored: &StoredCertificate,
    ) -> Result<(), AcmeFailure> {
        let account = self.account(authority).await?;
        let request = RevocationRequest {
            certificate: &stored.leaf,
            reason: None,
        };
        nonce!(account.revoke(&request)).map_err(self.failure_of(authority))
    }
}

enum PublishedProof<'a> {
    Here {
        method: ChallengeMethod,
        _shown: PublishedChallenge<'a>,
    },
    Dns(&'a std::path::Path, String),
}

impl PublishedProof<'_> {
    fn method(&self) -> ChallengeMethod {
        match self {
            PublishedProof::Here { method, .. } => *method,
            PublishedProof::Dns(..) => ChallengeMethod::Dns,
        }
    }
}

async fn new_order(
    account: &Account,
    name: &str,
    former: Option<&StoredCertificate>,
) -> Result<Order, Error> {
    let identifiers = [match name.parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }];
    let replaced = former.and_then(|stored| CertificateIdentifier::try_from(&stored.leaf).ok());
    if let Some(replaced) = replaced {
        let order = NewOrder::new(&identifiers).replaces(replaced);
        match nonce!(account.new_order(&order)) {
            Err(Error::Api(problem)) if is_unrelated_to_replacement(problem_type(&problem)) => {
                return Err(Error::Api(problem));
            }
            // The certificate may belong to another account or another authority, it may already have been replaced, or
            // the authority may not support RFC 9773. A plain order can still succeed.
            Err(Error::Api(_) | Error::Unsupported(_) | Error::Other(_)) => {}
            outcome => return outcome,
        }
    }
    let order = NewOrder::new(&identifiers);
    nonce!(account.new_order(&order))
}

/// Returns whether the reason for a refusal is unrelated to the certificate to be replaced (RFC 8555 §6.7). In this
/// case a second order would be refused as well.
fn is_unrelated_to_replacement(problem: &str) -> bool {
    matches!(
        problem,
        "badNonce" | "rateLimited" | "serverInternal" | "accountDoesNotExist"
    )
}

fn is_unknown_account(why: &str) -> bool {
    why.starts_with("accountDoesNotExist")
}

fn challenge_failed(
    problem: &Problem,
    authority: &AcmeAuthority,
    proof: &Option<PublishedProof<'_>>,
) -> AcmeFailure {
    match (problem_type(problem), proof) {
        ("serverInternal", _) => AcmeFailure::AuthorityUnreachable {
            authority: authority.name.clone(),
            why: problem_text(problem),
            retry_after: None,
        },
        (_, Some(proof)) => AcmeFailure::ChallengeFailed {
            challenge: proof.method().name(),
            why: problem_text(problem),
        },
        (_, None) => AcmeFailure::OrderRefused {
            authority: authority.name.clone(),
            why: problem_text(problem),
            retry_after: None,
        },
    }
}
