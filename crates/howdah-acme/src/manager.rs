//! Maintains a certificate for each name: a task per name orders it, renews it, and retries after a failure. The
//! manager sends [`ManagerEvent`]s and receives [`ManagerInput`]s.
//!
//! Whatever fails, an existing certificate stays in use. The clock is read at least once a minute, so that a change of
//! the clock takes effect; so is the directory, where another host may have renewed a certificate.

mod commands;
mod name;
mod on_demand;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use howdah_os::client_quota::QuotaClient;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

use crate::certificate::StoredCertificate;
use crate::challenge::{ActiveChallenges, ChallengeBoard};
use crate::client;
use crate::cluster::{self, DirectoryPeers};
use crate::failure::AcmeFailure;
use crate::lease::LockWatcher;
use crate::order::OrderContext;
use crate::store::{CertificateStore, FailedAttempts};
use crate::{AcmeAuthority, AcmeSettings, UnixSeconds, local, names, unix_seconds};
use name::{NameTask, NameTaskMessage};
use on_demand::OnDemandLimits;

/// The maximum number of simultaneous orders.
const MAX_SIMULTANEOUS_ORDERS: usize = 4;

/// An input of the manager.
#[derive(Debug)]
pub enum ManagerInput {
    /// Use these settings from now on.
    Settings(AcmeSettings),
    /// The challenges of this number and of all lower ones are now responded to.
    ChallengesServed(u64),
    /// A client asks for a name that no certificate covers.
    NameRequested {
        /// The host name of the TLS handshake.
        name: String,
        /// The client whose share of orders is used.
        client: QuotaClient,
    },
    /// A command of an administrator. [`ManagerEvent::Done`] reports its outcome.
    Command {
        /// The id that is repeated in the outcome.
        id: u64,
        /// What the administrator wants to be done.
        command: CertificateCommand,
    },
}

/// A command of an administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CertificateCommand {
    /// Order or renew now, regardless of the schedule.
    Order {
        /// The name; `None` means all names.
        name: Option<String>,
    },
    /// Revoke the certificate at the authority, and remove it.
    Remove {
        /// The name.
        name: String,
    },
}

/// An event that the manager reports.
#[derive(Debug)]
pub enum ManagerEvent {
    /// Use these certificates: each with its chain and its key in PEM, in the order of the names.
    Certificates(Vec<(String, String)>),
    /// Respond to these challenges. [`ManagerInput::ChallengesServed`] confirms it.
    Challenges {
        /// A number that increases with each event.
        number: u64,
        /// All challenges to respond to.
        challenges: ActiveChallenges,
    },
    /// The state of each name.
    Status(Vec<NameStatus>),
    /// A line for the log.
    Log(String),
    /// A client has asked for this name, and no certificate is ordered for it.
    NotOrdered(String),
    /// A command has been completed or has failed.
    Done {
        /// The id of the command.
        id: u64,
        /// What was done, or why it failed.
        outcome: Result<String, String>,
    },
}

/// The state of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameStatus {
    /// The name.
    pub name: String,
    /// The authority that issued its certificate.
    pub authority: Option<String>,
    /// When the certificate expires; `None` if there is no certificate.
    pub not_after: Option<UnixSeconds>,
    /// When the certificate is to be renewed.
    pub renew_at: Option<UnixSeconds>,
    /// Whether an order is in progress.
    pub ordering: bool,
    /// Why the last attempts failed.
    pub trouble: Option<FailedAttempts>,
}

impl NameStatus {
    /// Returns the state in one word: `valid`, `expired` or `missing`.
    pub fn state(&self, now: SystemTime) -> &'static str {
        match self.not_after {
            None => "missing",
            Some(end) if end <= unix_seconds(now) => "expired",
            Some(_) => "valid",
        }
    }
}

/// The state that the tasks share.
struct ManagerState {
    settings: RefCell<Rc<AcmeSettings>>,
    store: RefCell<CertificateStore>,
    client: client::AcmeClient,
    board: ChallengeBoard,
    orders: Semaphore,
    events: mpsc::UnboundedSender<ManagerEvent>,
    names: RefCell<BTreeMap<String, PublishedName>>,
    on_demand: OnDemandLimits,
}

/// The state of a name that is visible outside of its task.
#[derive(Default)]
struct PublishedName {
    certificate: Option<Rc<StoredCertificate>>,
    status: NameStatus,
}

impl ManagerState {
    fn log(&self, text: String) {
        let _ = self.events.send(ManagerEvent::Log(text));
    }

    fn report_not_ordered(&self, name: String) {
        let _ = self.events.send(ManagerEvent::NotOrdered(name));
    }

    fn settings(&self) -> Rc<AcmeSettings> {
        self.settings.borrow().clone()
    }

    fn store(&self) -> CertificateStore {
        self.store.borrow().clone()
    }

    fn authority(&self, name: Option<&str>) -> Option<AcmeAuthority> {
        let settings = self.settings();
        let mut authorities = settings.authorities.iter();
        authorities.find(|a| Some(&*a.name) == name).cloned()
    }

    /// Updates the state of a name, and publishes the certificates if they have changed.
    fn update_name(
        &self,
        name: &str,
        certificate: Option<Rc<StoredCertificate>>,
        status: NameStatus,
    ) {
        let changed = {
            let mut names = self.names.borrow_mut();
            // The name may have been removed from the configuration meanwhile.
            let Some(state) = names.get_mut(name) else {
                return;
            };
            let changed = state.certificate != certificate;
            *state = PublishedName {
                certificate,
                status,
            };
            changed
        };
        if changed {
            self.publish();
        }
        self.publish_status();
    }

    /// Maps the state of every name: the configured ones in their order, then those ordered on demand.
    fn map_names<T>(&self, of: impl Fn(&PublishedName) -> Option<T>) -> Vec<T> {
        let names = self.names.borrow();
        let settings = self.settings();
        let own = settings.names.iter().filter_map(|name| names.get(name));
        let others = names
            .iter()
            .filter(|(name, _)| !settings.names.contains(name));
        own.chain(others.map(|(_, state)| state))
            .filter_map(of)
            .collect()
    }

    fn publish(&self) {
        let certificates = self.map_names(|state| {
            let stored = state.certificate.as_ref()?;
            Some((stored.chain.clone(), stored.key.clone()))
        });
        let _ = self.events.send(ManagerEvent::Certificates(certificates));
    }

    fn publish_status(&self) {
        let all = self.map_names(|state| Some(state.status.clone()));
        let _ = self.events.send(ManagerEvent::Status(all));
    }

    /// Obtains a certificate from the local authority, or from the first public one that issues it.
    async fn obtain_certificate(
        &self,
        name: &str,
        former: Option<(&StoredCertificate, Option<&str>)>,
        attempt: u32,
    ) -> Result<(String, StoredCertificate), AcmeFailure> {
        on_demand::check_permission(self, name).await?;
        let (settings, store, client) =
            (self.settings(), self.store(), self.client.for_new_order());
        if names::needs_local_authority(name) {
            let issued = issue_locally(&store, name).await?;
            if issued.new_root {
                self.log(format!(
                    "{name}: the local authority has a new root, because the previous root could not sign a certificate for a name without a dot; make browsers trust {}",
                    local::root_path(store.directory()).display()
                ));
            }
            return Ok((local::LOCAL_AUTHORITY_NAME.to_owned(), issued.stored));
        }
        let orders = OrderContext {
            settings: &settings,
            store: &store,
            board: &self.board,
            client: &client,
        };
        let mut last = None;
        for authority in &settings.authorities {
            let replaced = former.filter(|(_, issuer)| *issuer == Some(&*authority.name));
            let replaced = replaced.map(|(stored, _)| stored);
            match orders.order(authority, name, replaced, attempt).await {
                Ok(stored) => return Ok((authority.name.clone(), stored)),
                Err(failure) => {
                    let over = !failure.may_succeed_elsewhere();
                    if let Some(before) = last.replace(failure) {
                        self.log(format!("{}: {name}: {before}", before.name()));
                    }
                    if over {
                        break;
                    }
                }
            }
        }
        Err(last.unwrap_or(AcmeFailure::NoChallenge {
            offered: "nothing, because no authority is configured".to_owned(),
        }))
    }
}

/// Issues a certificate of the local authority. Only one host at a time may create the root, or the certificates of the
/// other hosts would not be trusted.
async fn issue_locally(
    store: &CertificateStore,
    name: &str,
) -> Result<local::IssuedCertificate, AcmeFailure> {
    let _only_host = store
        .lock("local-authority", &mut LockWatcher::default())
        .await?;
    local::issue_certificate(store.directory(), name)
}

/// Processes inputs until the channel is closed. Must run in a [`tokio::task::LocalSet`].
///
/// # Errors
/// Fails if the HTTP client cannot be created.
pub async fn run(
    mut inputs: mpsc::UnboundedReceiver<ManagerInput>,
    events: mpsc::UnboundedSender<ManagerEvent>,
) -> Result<(), String> {
    let (answered, answering) = watch::channel(0);
    let shared = Rc::new(ManagerState {
        settings: RefCell::default(),
        store: RefCell::new(CertificateStore::new(std::path::Path::new("/nonexistent"))),
        client: client::AcmeClient::new()?,
        board: ChallengeBoard::new(events.clone(), answering),
        orders: Semaphore::new(MAX_SIMULTANEOUS_ORDERS),
        events,
        names: RefCell::default(),
        on_demand: OnDemandLimits::default(),
    });
    let mut tasks = NameTasks::new();
    tokio::task::spawn_local(watch_peers(shared.clone()));
    let (allowed, mut names) = mpsc::unbounded_channel();
    loop {
        let input = tokio::select! {
            input = inputs.recv() => input,
            Some(name) = names.recv() => {
                add_names(&shared, vec![name], &mut tasks);
                continue;
            }
        };
        let Some(input) = input else { break };
        match input {
            ManagerInput::NameRequested { name, client } => {
                let known = tasks.get(&name);
                if known.is_none_or(|(_, nudges)| nudges.is_closed()) {
                    on_demand::handle_requested_name(&shared, name, client, &allowed);
                }
            }
            ManagerInput::Settings(settings) => {
                apply_settings(&shared, settings, &mut tasks);
            }
            ManagerInput::ChallengesServed(number) => {
                answered.send_replace(number);
            }
            ManagerInput::Command { id, command } => commands::run(&shared, &tasks, id, command),
        }
    }
    for (task, _) in tasks.values() {
        task.abort();
    }
    Ok(())
}

/// Publishes the challenges of other hosts, and renews the file that shows that this process is alive.
async fn watch_peers(shared: Rc<ManagerState>) {
    let mut said = std::time::Instant::now();
    loop {
        tokio::time::sleep(cluster::POLL_INTERVAL).await;
        shared.board.import_foreign();
        if said.elapsed() >= cluster::HEARTBEAT_INTERVAL {
            said = std::time::Instant::now();
            if let Some(cluster) = &*shared.board.cluster.borrow() {
                cluster.send_heartbeat();
            }
        }
    }
}

type NameTasks = BTreeMap<String, (AbortHandle, mpsc::UnboundedSender<NameTaskMessage>)>;

/// Switches to other settings. Names that remain keep their tasks.
fn apply_settings(shared: &Rc<ManagerState>, settings: AcmeSettings, tasks: &mut NameTasks) {
    let moved = shared.settings().directory != settings.directory;
    let store = CertificateStore::new(&settings.directory);
    if moved {
        *shared.board.cluster.borrow_mut() = Some(DirectoryPeers::join(&store));
    }
    *shared.store.borrow_mut() = store;
    let mut names = settings.names.clone();
    if settings.ask.is_some() {
        let kept = shared.store().names().into_iter();
        names.extend(kept.filter(|name| !settings.names.contains(name)));
    }
    *shared.settings.borrow_mut() = Rc::new(settings);
    tasks.retain(|name, (task, _)| {
        let stays = names.contains(name) && !moved;
        if !stays {
            task.abort();
            shared.names.borrow_mut().remove(name);
        }
        stays
    });
    add_names(shared, names, tasks);
    // Stored certificates are served before anything is ordered.
    shared.publish();
    shared.publish_status();
}

/// Maintains certificates for more names. For names that are already known, failed orders are retried.
fn add_names(shared: &Rc<ManagerState>, names: Vec<String>, tasks: &mut NameTasks) {
    for name in names {
        match tasks.get(&name).filter(|(_, nudges)| !nudges.is_closed()) {
            // The change of the configuration may have removed the reason for the failure.
            Some((_, nudges)) => drop(nudges.send(NameTaskMessage::Retry)),
            None => {
                let keeper = NameTask::new(shared.clone(), name.clone());
                let state = keeper.state();
                shared.names.borrow_mut().insert(name.clone(), state);
                let (nudges, inbox) = mpsc::unbounded_channel();
                // The task starts after this function has returned.
                let task = tokio::task::spawn_local(keeper.run(inbox));
                tasks.insert(name, (task.abort_handle(), nudges));
            }
        }
    }
}

/// Formats a duration for people.
pub fn human_duration(duration: Duration) -> String {
    match duration.as_secs() {
        0..=119 => format!("{} s", duration.as_secs()),
        120..=7199 => format!("{} min", duration.as_secs() / 60),
        7200..=172_799 => format!("{} h", duration.as_secs() / 3600),
        _ => format!("{} days", duration.as_secs() / 86400),
    }
}
