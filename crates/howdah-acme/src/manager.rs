//! Maintains a certificate for each name: a task per name orders it, renews it, and retries after a failure. The
//! manager sends [`Event`]s and receives [`Input`]s.
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

use howdah_os::shares::Client;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;

use crate::certificate::Stored;
use crate::challenge::{Board, Challenges};
use crate::client;
use crate::cluster::{self, Cluster};
use crate::failure::Failure;
use crate::lease::Watcher;
use crate::order::Orders;
use crate::store::{Store, Trouble};
use crate::{Authority, Seconds, Settings, local, names, seconds};
use name::{Keeper, Nudge};
use on_demand::OnDemand;

/// The maximum number of simultaneous orders.
const ORDERS: usize = 4;

/// An input of the manager.
#[derive(Debug)]
pub enum Input {
    /// Use these settings from now on.
    Settings(Settings),
    /// The challenges of this number and of all lower ones are now responded to.
    Answering(u64),
    /// A client asks for a name that no certificate covers.
    Wanted {
        /// The name.
        name: String,
        /// The client.
        client: Client,
    },
    /// A command of an administrator. [`Event::Done`] reports its outcome.
    Command {
        /// The id that is repeated in the outcome.
        id: u64,
        /// The command.
        command: Command,
    },
}

/// A command of an administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
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
pub enum Event {
    /// Use these certificates: chain and key, PEM, in the order of the names.
    Certificates(Vec<(String, String)>),
    /// Respond to these challenges. [`Input::Answering`] confirms it.
    Challenges {
        /// A number that increases with each event.
        number: u64,
        /// All challenges to respond to.
        challenges: Challenges,
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
    pub not_after: Option<Seconds>,
    /// When the certificate is to be renewed.
    pub renew_at: Option<Seconds>,
    /// Whether an order is in progress.
    pub ordering: bool,
    /// Why the last attempts failed.
    pub trouble: Option<Trouble>,
}

impl NameStatus {
    /// Returns the state in one word: `valid`, `expired` or `missing`.
    pub fn state(&self, now: SystemTime) -> &'static str {
        match self.not_after {
            None => "missing",
            Some(end) if end <= seconds(now) => "expired",
            Some(_) => "valid",
        }
    }
}

/// The state that the tasks share.
struct Shared {
    settings: RefCell<Rc<Settings>>,
    store: RefCell<Store>,
    client: client::Client,
    board: Board,
    orders: Semaphore,
    events: mpsc::UnboundedSender<Event>,
    names: RefCell<BTreeMap<String, NameState>>,
    on_demand: OnDemand,
}

/// The state of a name that is visible outside of its task.
#[derive(Default)]
struct NameState {
    certificate: Option<Rc<Stored>>,
    status: NameStatus,
}

impl Shared {
    fn log(&self, text: String) {
        let _ = self.events.send(Event::Log(text));
    }

    fn tell_not_ordered(&self, name: String) {
        let _ = self.events.send(Event::NotOrdered(name));
    }

    fn settings(&self) -> Rc<Settings> {
        self.settings.borrow().clone()
    }

    fn store(&self) -> Store {
        self.store.borrow().clone()
    }

    fn authority(&self, name: Option<&str>) -> Option<Authority> {
        let settings = self.settings();
        let mut authorities = settings.authorities.iter();
        authorities.find(|a| Some(&*a.name) == name).cloned()
    }

    /// Updates the state of a name, and publishes the certificates if they have changed.
    fn set(&self, name: &str, certificate: Option<Rc<Stored>>, status: NameStatus) {
        let changed = {
            let mut names = self.names.borrow_mut();
            // The name may have been removed from the configuration meanwhile.
            let Some(state) = names.get_mut(name) else {
                return;
            };
            let changed = state.certificate != certificate;
            *state = NameState {
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
    fn of_all<T>(&self, of: impl Fn(&NameState) -> Option<T>) -> Vec<T> {
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
        let certificates = self.of_all(|state| {
            let stored = state.certificate.as_ref()?;
            Some((stored.chain.clone(), stored.key.clone()))
        });
        let _ = self.events.send(Event::Certificates(certificates));
    }

    fn publish_status(&self) {
        let all = self.of_all(|state| Some(state.status.clone()));
        let _ = self.events.send(Event::Status(all));
    }

    /// Obtains a certificate from the local authority, or from the first public one that issues it.
    async fn obtain(
        &self,
        name: &str,
        former: Option<(&Stored, Option<&str>)>,
        attempt: u32,
    ) -> Result<(String, Stored), Failure> {
        on_demand::permit(self, name).await?;
        let (settings, store, client) = (self.settings(), self.store(), self.client.fresh());
        if names::is_local(name) {
            let issued = issue_locally(&store, name).await?;
            if issued.new_root {
                self.log(format!(
                    "{name}: the local authority has a new root, because the former one could not vouch for a name without a dot; browsers have to be told to trust {}",
                    local::root_path(store.directory()).display()
                ));
            }
            return Ok((local::NAME.to_owned(), issued.stored));
        }
        let orders = Orders {
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
                    let over = !failure.is_the_authoritys();
                    if let Some(before) = last.replace(failure) {
                        self.log(format!("{}: {name}: {before}", before.name()));
                    }
                    if over {
                        break;
                    }
                }
            }
        }
        Err(last.unwrap_or(Failure::NoChallenge {
            offered: "nothing: there is no authority".to_owned(),
        }))
    }
}

/// Issues a certificate of the local authority. Only one host at a time may create the root, or the certificates of the
/// other hosts would not be trusted.
async fn issue_locally(store: &Store, name: &str) -> Result<local::Issued, Failure> {
    let _only_host = store
        .lock("local-authority", &mut Watcher::default())
        .await?;
    local::issue(store.directory(), name)
}

/// Processes inputs until the channel is closed. Must run in a [`tokio::task::LocalSet`].
///
/// # Errors
/// The HTTP client cannot be created.
pub async fn run(
    mut inputs: mpsc::UnboundedReceiver<Input>,
    events: mpsc::UnboundedSender<Event>,
) -> Result<(), String> {
    let (answered, answering) = watch::channel(0);
    let shared = Rc::new(Shared {
        settings: RefCell::default(),
        store: RefCell::new(Store::at(std::path::Path::new("/nonexistent"))),
        client: client::Client::new()?,
        board: Board::new(events.clone(), answering),
        orders: Semaphore::new(ORDERS),
        events,
        names: RefCell::default(),
        on_demand: OnDemand::default(),
    });
    let mut tasks = Tasks::new();
    tokio::task::spawn_local(look_at_others(shared.clone()));
    let (allowed, mut names) = mpsc::unbounded_channel();
    loop {
        let input = tokio::select! {
            input = inputs.recv() => input,
            Some(name) = names.recv() => {
                add(&shared, vec![name], &mut tasks);
                continue;
            }
        };
        let Some(input) = input else { break };
        match input {
            Input::Wanted { name, client } => {
                let known = tasks.get(&name);
                if known.is_none_or(|(_, nudges)| nudges.is_closed()) {
                    on_demand::wanted(&shared, name, client, &allowed);
                }
            }
            Input::Settings(settings) => {
                apply(&shared, settings, &mut tasks);
            }
            Input::Answering(number) => {
                answered.send_replace(number);
            }
            Input::Command { id, command } => commands::run(&shared, &tasks, id, command),
        }
    }
    for (task, _) in tasks.values() {
        task.abort();
    }
    Ok(())
}

/// Publishes the challenges of other hosts, and renews the file that shows that this process is alive.
async fn look_at_others(shared: Rc<Shared>) {
    let mut said = std::time::Instant::now();
    loop {
        tokio::time::sleep(cluster::LOOK).await;
        shared.board.look_at_others();
        if said.elapsed() >= cluster::ALIVE {
            said = std::time::Instant::now();
            if let Some(cluster) = &*shared.board.cluster.borrow() {
                cluster.say_alive();
            }
        }
    }
}

type Tasks = BTreeMap<String, (AbortHandle, mpsc::UnboundedSender<Nudge>)>;

/// Switches to other settings. Names that remain keep their tasks.
fn apply(shared: &Rc<Shared>, settings: Settings, tasks: &mut Tasks) {
    let moved = shared.settings().directory != settings.directory;
    let store = Store::at(&settings.directory);
    if moved {
        *shared.board.cluster.borrow_mut() = Some(Cluster::join(&store));
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
    add(shared, names, tasks);
    // Stored certificates are served before anything is ordered.
    shared.publish();
    shared.publish_status();
}

/// Maintains certificates for more names. For names that are already known, failed orders are retried.
fn add(shared: &Rc<Shared>, names: Vec<String>, tasks: &mut Tasks) {
    for name in names {
        match tasks.get(&name).filter(|(_, nudges)| !nudges.is_closed()) {
            // The change of the configuration may have removed the reason for the failure.
            Some((_, nudges)) => drop(nudges.send(Nudge::Retry)),
            None => {
                let keeper = Keeper::new(shared.clone(), name.clone());
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
pub fn in_words(duration: Duration) -> String {
    match duration.as_secs() {
        0..=119 => format!("{} s", duration.as_secs()),
        120..=7199 => format!("{} min", duration.as_secs() / 60),
        7200..=172_799 => format!("{} h", duration.as_secs() / 3600),
        _ => format!("{} days", duration.as_secs() / 86400),
    }
}
