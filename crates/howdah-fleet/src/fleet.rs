//! A running member. One thread drives the protocol over two connections to Valkey. Front threads ask it whether stored
//! pages may be served now, and whether a write is confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use futures_util::StreamExt;
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, watch};

use crate::position::{LogPosition, Positions};
use crate::protocol::{
    ClockNanoseconds, Effect, FleetMember, LogEntry, MemberName, RegistryReply, RegistryRequest,
    SessionId, Timing, WriteTicket,
};
use crate::questions::{QuestionHandler, Questions};
use crate::registry::{InvalidationText, PeerMessage, Registry};
use crate::renders::seal::RenderKey;
use crate::renders::{Renders, ReportRender};
use crate::valkey::Valkey;

/// The upper bounds of the buckets of the confirmation time histogram, in seconds.
const CONFIRMATION_BUCKETS_SECONDS: [f64; 9] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// The maximum number of received messages that wait for the thread. Further messages are dropped, which only costs
/// time.
const MAX_QUEUED_MESSAGES: usize = 4096;
/// The maximum number of different reasons that are logged for one outage.
const MAX_LOGGED_REASONS: usize = 4;

/// The configuration of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetConfig {
    /// The address of Valkey.
    pub valkey: Valkey,
    /// The fleet's name.
    pub fleet: String,
    /// This server's name, which is unique in the fleet.
    pub member: String,
    /// How long stored pages may be served after the last exchange.
    pub lease: Duration,
    /// How many replicas must have received an exchange before it counts.
    pub replicas: u32,
    /// The secret by which members sign the pages that they share. `None` means that each member renders for itself.
    pub key: Option<RenderKey>,
    /// How long a member must be silent before the others forget it. From then on, it does not respond to writes that
    /// the others have not heard of. `None` means that members are not forgotten.
    pub forget_after: Option<Duration>,
}

/// An event that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetEvent {
    /// Valkey does not answer, with the reason. Stored pages are not served once the lease has expired.
    Unreachable(String),
    /// Stored pages are served again.
    Leased,
    /// Members have not been heard from, and stored pages are not served because of them.
    Silent(Vec<String>),
    /// Responses to writes are sent although no other member has been notified. While this lasts, no member serves a
    /// stored page.
    WriteUnheard,
    /// The others may have forgotten this member, so responses to writes are not sent.
    Fenced,
}

/// The status of a member at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// This server's name.
    pub member: String,
    /// The address of Valkey, without its password.
    pub valkey: String,
    /// The number of members of the fleet; 0 while Valkey does not know this member.
    pub members: u64,
    /// The other members that this one knows.
    pub others: Vec<String>,
    /// The number of seconds until stored pages are no longer served; 0 if they are not served now.
    pub lease_left: f64,
    /// Members that have not been heard from.
    pub silent: Vec<String>,
    /// The reason why the last exchange failed; empty if it succeeded.
    pub trouble: String,
    /// The number of writes and purges of this member.
    pub writes: u64,
    /// How many of these writes were answered although no other member had heard of them, while no member served stored
    /// pages.
    pub let_go: u64,
    /// How many invalidations were applied on this member because of the log: entries of other members, and
    /// invalidations of everything.
    pub applied: u64,
    /// A histogram of confirmation times: the upper bound of each bucket in seconds (the last bucket has none), and its
    /// count.
    pub confirmations: Vec<(Option<f64>, u64)>,
    /// The total time spent waiting for confirmations, in seconds.
    pub confirmation_seconds: f64,
    /// The name and count of each outcome of shared renders; empty if members do not share renders.
    #[serde(default)]
    pub renders: Vec<(String, u64)>,
}

/// Writes and commands waiting for the thread.
#[derive(Debug, Default)]
struct FleetOutbox {
    /// The number of writes so far.
    writes: WriteTicket,
    entries: Vec<InvalidationText>,
    forgets: Vec<MemberName>,
    leaves: bool,
}

/// No other member has heard of a write, and the others rely on this member not to respond to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

/// The progress of confirmations, as waiting writers see it.
#[derive(Clone, Copy, Debug)]
struct ConfirmationProgress {
    /// Writes with smaller tickets are finished.
    first_unconfirmed: WriteTicket,
    /// The responses to writes with smaller tickets must not be sent, unless the writes were confirmed earlier.
    first_unrefused: WriteTicket,
}

/// A member of a fleet.
#[derive(Debug)]
pub struct Fleet {
    config: FleetConfig,
    /// The time until which stored pages may be served.
    lease_until: AtomicU64,
    /// The time from which this member does not respond to writes that the others have not heard of.
    fenced_from: AtomicU64,
    outbox: Mutex<FleetOutbox>,
    wake: Notify,
    confirmed: watch::Sender<ConfirmationProgress>,
    positions: Positions,
    renders: Option<Arc<Renders>>,
    questions: Questions,
    status: Mutex<FleetStatus>,
    has_left: watch::Sender<bool>,
}

/// Invalidates pages of this member. Must not call the fleet.
pub type ApplyInvalidation = Box<dyn Fn(&LogEntry<InvalidationText>) + Send>;
/// Logs an event.
pub type ReportEvent = Box<dyn Fn(FleetEvent) + Send>;

/// Returns the time since boot, including the time for which the machine was suspended, because leases also expire
/// during a suspension.
fn boot_clock() -> ClockNanoseconds {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

fn random_u64() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn nanoseconds(duration: Duration) -> ClockNanoseconds {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Fleet {
    /// Starts a member. Stored pages are not served before it has joined.
    pub fn start(
        config: &FleetConfig,
        apply: ApplyInvalidation,
        report: ReportEvent,
        report_render: ReportRender,
        answer: QuestionHandler,
    ) -> io::Result<Arc<Fleet>> {
        let renders = match &config.key {
            Some(key) => {
                let valkey = config.valkey.clone();
                let (fleet, lease) = (&config.fleet, config.lease);
                let word = random_u64()?;
                Some(Renders::start(
                    valkey,
                    fleet,
                    key,
                    lease,
                    word,
                    report_render,
                )?)
            }
            None => None,
        };
        let registry = Registry::new(config.valkey.clone(), &config.fleet, config.replicas);
        let registry = Arc::new(registry);
        let questions = Questions::new(registry.clone(), &config.member);
        let fleet = Arc::new(Fleet {
            config: config.clone(),
            lease_until: AtomicU64::new(0),
            outbox: Mutex::default(),
            wake: Notify::new(),
            fenced_from: AtomicU64::new(ClockNanoseconds::MAX),
            confirmed: watch::Sender::new(ConfirmationProgress {
                first_unconfirmed: 1,
                first_unrefused: 0,
            }),
            positions: Positions::default(),
            renders,
            questions: questions.clone(),
            status: Mutex::new(FleetStatus {
                member: config.member.clone(),
                valkey: config.valkey.to_string(),
                confirmations: CONFIRMATION_BUCKETS_SECONDS
                    .map(Some)
                    .into_iter()
                    .chain([None])
                    .map(|b| (b, 0))
                    .collect(),
                ..FleetStatus::default()
            }),
            has_left: watch::Sender::new(false),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let asked = Arc::downgrade(&fleet);
        questions.spawn_responder(move |text| {
            let fleet = asked.upgrade()?;
            (!*fleet.has_left.borrow()).then(|| answer(text))
        })?;
        let driver = FleetDriver {
            fleet: fleet.clone(),
            registry,
            member: FleetMember::new(
                config.member.as_str().into(),
                Timing {
                    fence: config.forget_after.map(nanoseconds),
                    ..Timing::for_lease(nanoseconds(config.lease))
                },
                boot_clock(),
            ),
            patience: config.lease / 2,
            // The highest bit is clear, and the lowest 16 bits number the sessions of this process.
            process_session: random_u64()? >> 17 << 16,
            next_session: 1,
            word: random_u64()?,
            connection: None,
            unconfirmed_writes: VecDeque::new(),
            apply,
            report,
            logged: LoggedState::default(),
        };
        thread::Builder::new()
            .name("fleet".to_owned())
            .spawn(move || {
                let _ended = ThreadEndGuard(driver.fleet.clone());
                runtime.block_on(driver.run());
            })?;
        Ok(fleet)
    }

    /// Returns the configuration that the member was started with.
    pub fn config(&self) -> &FleetConfig {
        &self.config
    }

    fn outbox(&self) -> MutexGuard<'_, FleetOutbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status_mut(&self) -> MutexGuard<'_, FleetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether stored pages may be served now. It must be called after the page has been found.
    pub fn may_serve(&self) -> bool {
        boot_clock() < self.lease_until.load(Ordering::SeqCst)
    }

    /// Publishes an invalidation that this member has already applied, so that the others apply it too.
    pub fn publish(&self, text: InvalidationText) -> WriteTicket {
        let mut outbox = self.outbox();
        outbox.entries.push(text);
        outbox.writes += 1;
        let ticket = outbox.writes;
        drop(outbox);
        self.wake.notify_one();
        ticket
    }

    /// Returns the ticket of the latest write, or 0 if there was none.
    pub fn last_ticket(&self) -> WriteTicket {
        self.outbox().writes
    }

    /// Returns the shared renders, if the members share any.
    pub fn renders(&self) -> Option<&Arc<Renders>> {
        self.renders.as_ref()
    }

    /// Returns the last log entry that has been applied here along with all entries before it. `None` if it is unknown
    /// at present. A render that begins now sees the writes of these entries.
    pub fn position(&self) -> Option<LogPosition> {
        self.positions.last_applied()
    }

    /// Returns whether a render that began at `position`, on any member, includes every write that has invalidated
    /// pages here so far. It must be called while no purge can be applied here.
    pub fn is_within(&self, position: &LogPosition) -> bool {
        self.positions.is_within(position, self.last_ticket())
    }

    /// Returns whether responses to writes must not be sent, because no other member would be notified of the writes.
    pub fn is_fenced(&self) -> bool {
        boot_clock() >= self.fenced_from.load(Ordering::SeqCst)
    }

    /// Waits until no member serves a page that is older than this write, for at most one lease. On error, the response
    /// to the write must not be sent.
    pub async fn wait_until_confirmed(&self, ticket: WriteTicket) -> Result<(), Fenced> {
        let mut confirmed = self.confirmed.subscribe();
        let wait = confirmed.wait_for(|confirmed| confirmed.first_unconfirmed > ticket);
        // The sender belongs to `self`, so it is not dropped while we wait. The fence is checked again, because the
        // process may have been stopped since the thread last checked it.
        let is_refused = wait.await.is_ok_and(|c| ticket < c.first_unrefused);
        match ticket > 0 && (is_refused || self.is_fenced()) {
            true => Err(Fenced),
            false => Ok(()),
        }
    }

    /// Does the same as [`Fleet::wait_until_confirmed`], for a thread without a runtime.
    pub fn block_until_confirmed(&self, ticket: WriteTicket) -> Result<(), Fenced> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        // If the runtime cannot be created, for example without memory, the write counts as unconfirmed.
        runtime.map_or(Err(Fenced), |runtime| {
            runtime.block_on(self.wait_until_confirmed(ticket))
        })
    }

    /// Forgets a member that an administrator asserts is no longer running. The others stop waiting for it.
    pub fn forget(&self, member: &str) {
        self.outbox().forgets.push(member.into());
        self.wake.notify_one();
    }

    /// Asks the other members a question, and returns their responses by member name after at most two seconds. For a
    /// thread without a runtime.
    pub fn ask_members(&self, question: &str) -> Result<BTreeMap<String, String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let (runtime, word) = runtime
            .and_then(|runtime| Ok((runtime, random_u64()?)))
            .map_err(|error| error.to_string())?;
        let status = self.status();
        let (others, silent) = (&status.others, &status.silent);
        runtime.block_on(self.questions.ask(question, word, others, silent))
    }

    /// Stops serving stored pages, and leaves the fleet once everything is published.
    pub fn leave(&self) {
        self.lease_until.store(0, Ordering::SeqCst);
        self.outbox().leaves = true;
        self.wake.notify_one();
    }

    /// Does the same as [`Fleet::leave`], for a thread without a runtime, and returns whether the member has left
    /// within this time. The others wait for a member that has not left until it is started again.
    pub fn leave_within(&self, time: Duration) -> bool {
        self.leave();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.is_ok_and(|runtime| {
            let mut left = self.has_left.subscribe();
            let left = async { tokio::time::timeout(time, left.wait_for(|left| *left)).await };
            runtime.block_on(left).is_ok()
        })
    }

    /// Returns the current status of the member.
    pub fn status(&self) -> FleetStatus {
        let left = self
            .lease_until
            .load(Ordering::SeqCst)
            .saturating_sub(boot_clock());
        FleetStatus {
            lease_left: Duration::from_nanos(left).as_secs_f64(),
            writes: self.last_ticket(),
            renders: self
                .renders
                .as_ref()
                .map_or(Vec::new(), |renders| renders.outcome_counts()),
            ..self.status_mut().clone()
        }
    }
}

/// Records on drop that the thread has ended: stored pages are not served, and no writer waits.
struct ThreadEndGuard(Arc<Fleet>);

impl Drop for ThreadEndGuard {
    fn drop(&mut self) {
        self.0.lease_until.store(0, Ordering::SeqCst);
        let first_unrefused = match self.0.config.forget_after {
            Some(_) => WriteTicket::MAX,
            None => 0,
        };
        self.0.confirmed.send_replace(ConfirmationProgress {
            first_unconfirmed: WriteTicket::MAX,
            first_unrefused,
        });
        self.0.has_left.send_replace(true);
    }
}

type ExchangeResult = (
    Result<RegistryReply<InvalidationText>, RedisError>,
    Option<MultiplexedConnection>,
);
type ExchangeFuture = Pin<Box<dyn Future<Output = ExchangeResult> + Send>>;

/// The state that has already been logged.
#[derive(Default)]
struct LoggedState {
    leased: bool,
    /// The reasons already logged for this outage. The first may be a timeout, and only the second may name the cause.
    reasons: BTreeSet<String>,
    silent: Vec<MemberName>,
    unheard_writes: u64,
    has_reported_unheard: bool,
    fenced: bool,
}

struct FleetDriver {
    fleet: Arc<Fleet>,
    registry: Arc<Registry>,
    member: FleetMember<InvalidationText>,
    /// The maximum duration of an exchange.
    patience: Duration,
    process_session: SessionId,
    next_session: SessionId,
    word: u64,
    connection: Option<MultiplexedConnection>,
    /// Unconfirmed writes, each with the time at which it was made.
    unconfirmed_writes: VecDeque<(WriteTicket, ClockNanoseconds)>,
    apply: ApplyInvalidation,
    report: ReportEvent,
    logged: LoggedState,
}

impl FleetDriver {
    async fn run(mut self) {
        let mut heard = self.spawn_listener();
        let mut exchange: Option<ExchangeFuture> = None;
        while !self.member.has_left() {
            self.take_commands();
            let now = boot_clock();
            if let Some(request) = self
                .member
                .poll(now, self.process_session | self.next_session)
            {
                if matches!(request, RegistryRequest::Join { .. }) {
                    self.next_session = (self.next_session + 1) & 0xffff;
                }
                exchange = Some(self.exchange(request));
            } else if !self.member.awaits_reply() {
                exchange = None;
            }
            self.publish_state();
            let sleep =
                Duration::from_nanos(self.member.next_poll_at().saturating_sub(boot_clock()));
            tokio::select! {
                biased;
                Some(said) = heard.recv() => self.handle_peer_message(said),
                answer = async { exchange.as_mut().expect("there is one").await },
                    if exchange.is_some() =>
                {
                    exchange = None;
                    self.handle_exchange_result(answer);
                }
                () = self.fleet.wake.notified() => {}
                // The sleep is limited to an hour, because a timer does not accept arbitrarily long durations.
                () = tokio::time::sleep(sleep.min(Duration::from_secs(3600))) => {}
            }
        }
    }

    fn take_commands(&mut self) {
        let mut outbox = self.fleet.outbox();
        let entries = std::mem::take(&mut outbox.entries);
        let forgets = std::mem::take(&mut outbox.forgets);
        let leaves = std::mem::take(&mut outbox.leaves);
        drop(outbox);
        let now = boot_clock();
        for text in entries {
            let ticket = self.member.publish(LogEntry::Purge(text));
            self.unconfirmed_writes.push_back((ticket, now));
        }
        for name in forgets {
            self.member.forget(name, now);
        }
        if leaves {
            self.member.leave(now);
        }
    }

    fn exchange(&self, request: RegistryRequest<InvalidationText>) -> ExchangeFuture {
        let (registry, patience, word) = (self.registry.clone(), self.patience, self.word);
        let connection = self.connection.clone();
        Box::pin(async move {
            let mut connection = match connection {
                Some(connection) => connection,
                None => match registry.connect(patience).await {
                    Ok(connection) => connection,
                    Err(error) => return (Err(error), None),
                },
            };
            let reply = registry
                .exchange(&mut connection, &request, word, patience)
                .await;
            // After a failure, the connection may still carry the request that was given up, so it is closed.
            let connection = reply.is_ok().then_some(connection);
            (reply, connection)
        })
    }

    fn handle_exchange_result(&mut self, (answer, connection): ExchangeResult) {
        self.connection = connection;
        let now = boot_clock();
        match answer {
            Ok(reply) => {
                self.fleet.status_mut().trouble.clear();
                let effects = self.member.handle_reply(now, reply);
                self.apply_effects(effects);
            }
            Err(error) => {
                self.fleet.status_mut().trouble = error.to_string();
                self.member.fail_exchange(now);
            }
        }
    }

    fn handle_peer_message(&mut self, said: PeerMessage) {
        let now = boot_clock();
        match said {
            PeerMessage::Hint(hint) => {
                let effects = self.member.handle_hint(now, hint);
                self.apply_effects(effects);
            }
            PeerMessage::Confirm(session, incarnation, number) => {
                self.member
                    .handle_confirmation(now, session, &incarnation, number);
            }
        }
    }

    fn position(&self) -> Option<LogPosition> {
        let (incarnation, number) = self.member.position()?;
        Some(LogPosition {
            incarnation: incarnation.clone(),
            number,
        })
    }

    fn apply_effects(&mut self, effects: Vec<Effect<InvalidationText>>) {
        let unpublished = self.member.first_unpublished();
        self.fleet
            .positions
            .begin_applying(self.position(), unpublished);
        for effect in effects {
            match effect {
                Effect::Apply(entry) => {
                    (self.apply)(&entry);
                    self.fleet.status_mut().applied += 1;
                }
                Effect::Confirm {
                    to,
                    session,
                    incarnation,
                    number,
                } => {
                    // A member that receives the confirmation may immediately ask what this member has applied.
                    self.fleet
                        .positions
                        .finish_applying(self.position(), unpublished);
                    let (registry, connection) = (self.registry.clone(), self.connection.clone());
                    tokio::spawn(async move {
                        if let Some(mut connection) = connection {
                            let what = (session, &incarnation, number);
                            // A lost confirmation only costs the writer time, because the next exchange confirms the
                            // entries too.
                            let _ = registry
                                .publish_confirmation(&mut connection, to, what)
                                .await;
                        }
                    });
                }
            }
        }
    }

    /// Receives messages of the other members over a separate connection.
    fn spawn_listener(&self) -> mpsc::Receiver<PeerMessage> {
        let (to, heard) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let (registry, process) = (self.registry.clone(), self.process_session);
        let pause = self.patience / 3;
        tokio::spawn(async move {
            while !to.is_closed() {
                if let Ok(said) = registry.listen(process).await {
                    let mut said = std::pin::pin!(said);
                    while let Some(said) = said.next().await {
                        // If the thread does not keep up, messages are dropped, and it reads the entries from the log.
                        let _ = to.try_send(said);
                    }
                }
                tokio::time::sleep(pause).await;
            }
        });
        heard
    }

    /// Updates the state that front threads see, the status and the log. The caller has carried out all effects before.
    fn publish_state(&mut self) {
        let unpublished = self.member.first_unpublished();
        self.fleet
            .positions
            .finish_applying(self.position(), unpublished);
        let now = boot_clock();
        let lease = self.member.lease_until();
        self.fleet.lease_until.store(lease, Ordering::SeqCst);
        if self.fleet.outbox().leaves {
            self.fleet.lease_until.store(0, Ordering::SeqCst);
        }
        self.fleet
            .fenced_from
            .store(self.member.fenced_from(), Ordering::SeqCst);
        let first = self.member.first_unconfirmed();
        let silent = self.member.silent_members(now);
        let mut status = self.fleet.status_mut();
        while let Some((ticket, since)) = self.unconfirmed_writes.front().copied()
            && ticket < first
        {
            self.unconfirmed_writes.pop_front();
            let took = Duration::from_nanos(now.saturating_sub(since)).as_secs_f64();
            status.confirmation_seconds += took;
            let fits = |(bound, _): &&mut (Option<f64>, u64)| bound.is_none_or(|b| took <= b);
            if let Some((_, count)) = status.confirmations.iter_mut().find(fits) {
                *count += 1;
            }
        }
        let others = self.member.other_members();
        status.members = others.map_or(0, |others| others.len() as u64 + 1);
        status.others = others
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        status.silent = silent.iter().map(ToString::to_string).collect();
        status.let_go = self.member.unheard_writes();
        let trouble = status.trouble.clone();
        drop(status);
        // The status is updated before the writers wake up, so it already counts a write that was not published.
        self.fleet.confirmed.send_if_modified(|shown| {
            let modified = shown.first_unconfirmed != first;
            shown.first_unconfirmed = first;
            shown.first_unrefused = self.member.first_unrefused();
            modified
        });
        self.report_changes(now < lease, &trouble, silent);
    }

    fn report_changes(&mut self, leased: bool, trouble: &str, silent: Vec<MemberName>) {
        if leased && !self.logged.leased {
            (self.report)(FleetEvent::Leased);
        }
        self.logged.leased = leased;
        if leased || trouble.is_empty() {
            self.logged.reasons.clear();
        } else if self.logged.reasons.len() < MAX_LOGGED_REASONS
            && self.logged.reasons.insert(trouble.to_owned())
        {
            (self.report)(FleetEvent::Unreachable(trouble.to_owned()));
        }
        if !leased && silent != self.logged.silent {
            if !silent.is_empty() {
                let names = silent.iter().map(ToString::to_string).collect();
                (self.report)(FleetEvent::Silent(names));
            }
            self.logged.silent = silent;
        }
        let let_go = self.member.unheard_writes();
        // Until there is a lease again, every write causes this event, so only the first one is reported.
        if let_go > self.logged.unheard_writes
            && !std::mem::replace(&mut self.logged.has_reported_unheard, true)
        {
            (self.report)(FleetEvent::WriteUnheard);
        }
        self.logged.has_reported_unheard &= !leased;
        self.logged.unheard_writes = let_go;
        // A starting member is fenced until it has joined, which is not reported while Valkey answers.
        let fenced = self.fleet.is_fenced() && !trouble.is_empty();
        if fenced && !self.logged.fenced {
            (self.report)(FleetEvent::Fenced);
        }
        self.logged.fenced = fenced;
    }
}
