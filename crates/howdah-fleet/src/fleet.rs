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

use crate::exchange::{Registry, Said, Text};
use crate::position::{Position, Positions};
use crate::protocol::{
    Effect, Entry, Member, Moment, Name, Reply, Request, Session, Ticket, Timing,
};
use crate::questions::{Answer, Questions};
use crate::renders::seal::RenderKey;
use crate::renders::{Renders, ReportRender};
use crate::valkey::Valkey;

/// The upper bounds of the buckets of the confirmation time histogram, in seconds.
const BOUNDS: [f64; 9] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// The maximum number of received messages that wait for the thread. More are dropped, which only costs time.
const SAID: usize = 4096;
/// The maximum number of different reasons that are logged for one outage.
const TROUBLES: usize = 4;

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
    /// The secret by which members sign the pages that they share. `None`: each member renders for itself.
    pub key: Option<RenderKey>,
    /// How long a member must be silent to be forgotten. From then on it does not respond to writes on its own. `None`:
    /// members are not forgotten.
    pub forget_after: Option<Duration>,
}

/// An event that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Valkey does not answer, with the reason. Stored pages are not served once the lease has expired.
    Unreachable(String),
    /// Stored pages are served again.
    Leased,
    /// Members have not been heard from, and stored pages are not served because of them.
    Silent(Vec<String>),
    /// Responses to writes are sent although no other member has been notified. While this lasts, no member serves a
    /// stored page.
    LetGo,
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
struct Outbox {
    /// The number of writes so far.
    writes: Ticket,
    entries: Vec<Text>,
    forgets: Vec<Name>,
    leaves: bool,
}

/// No other member has heard of a write, and the others rely on this member not to respond to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

/// The progress of confirmations, as waiting writers see it.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    /// Writes with smaller tickets are finished.
    first_unconfirmed: Ticket,
    /// Finished writes with smaller tickets are refused if they finish only now.
    first_unrefused: Ticket,
}

/// A member of a fleet.
#[derive(Debug)]
pub struct Fleet {
    config: FleetConfig,
    /// The time until which stored pages may be served.
    lease: AtomicU64,
    /// The time from which this member does not respond to writes that the others have not heard of.
    fenced_from: AtomicU64,
    outbox: Mutex<Outbox>,
    wake: Notify,
    confirmed: watch::Sender<Confirmed>,
    positions: Positions,
    renders: Option<Arc<Renders>>,
    questions: Questions,
    status: Mutex<FleetStatus>,
    has_left: watch::Sender<bool>,
}

/// Invalidates pages of this member. Must not call the fleet.
pub type Apply = Box<dyn Fn(&Entry<Text>) + Send>;
/// Logs an event.
pub type Report = Box<dyn Fn(News) + Send>;

/// Returns the time since boot, including the time for which the machine was suspended, because leases expire
/// meanwhile.
fn clock() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or_default()
}

fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}

fn nanoseconds(duration: Duration) -> Moment {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Fleet {
    /// Starts a member. Stored pages are not served before it has joined.
    pub fn start(
        config: &FleetConfig,
        apply: Apply,
        report: Report,
        report_render: ReportRender,
        answer: Answer,
    ) -> io::Result<Arc<Fleet>> {
        let renders = match &config.key {
            Some(key) => {
                let valkey = config.valkey.clone();
                let (fleet, lease) = (&config.fleet, config.lease);
                let word = random()?;
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
            lease: AtomicU64::new(0),
            outbox: Mutex::default(),
            wake: Notify::new(),
            fenced_from: AtomicU64::new(Moment::MAX),
            confirmed: watch::Sender::new(Confirmed {
                first_unconfirmed: 1,
                first_unrefused: 0,
            }),
            positions: Positions::default(),
            renders,
            questions: questions.clone(),
            status: Mutex::new(FleetStatus {
                member: config.member.clone(),
                valkey: config.valkey.to_string(),
                confirmations: BOUNDS
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
        questions.answer_by(move |text| {
            let fleet = asked.upgrade()?;
            (!*fleet.has_left.borrow()).then(|| answer(text))
        })?;
        let driver = Driver {
            fleet: fleet.clone(),
            registry,
            member: Member::new(
                config.member.as_str().into(),
                Timing {
                    fence: config.forget_after.map(nanoseconds),
                    ..Timing::of(nanoseconds(config.lease))
                },
                clock(),
            ),
            patience: config.lease / 2,
            // The highest bit is clear, and the lowest 16 bits number the sessions of this process.
            process: random()? >> 17 << 16,
            sessions: 1,
            word: random()?,
            connection: None,
            written: VecDeque::new(),
            apply,
            report,
            said: Saying::default(),
        };
        thread::Builder::new()
            .name("fleet".to_owned())
            .spawn(move || {
                let _ended = Ended(driver.fleet.clone());
                runtime.block_on(driver.run());
            })?;
        Ok(fleet)
    }

    /// Returns the configuration that the member was started with.
    pub fn config(&self) -> &FleetConfig {
        &self.config
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status_mut(&self) -> MutexGuard<'_, FleetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether stored pages may be served now. It must be called after the page has been found.
    pub fn may_serve(&self) -> bool {
        clock() < self.lease.load(Ordering::SeqCst)
    }

    /// Publishes an invalidation that this member has already applied, so that the others apply it too.
    pub fn publish(&self, text: Text) -> Ticket {
        let mut outbox = self.outbox();
        outbox.entries.push(text);
        outbox.writes += 1;
        let ticket = outbox.writes;
        drop(outbox);
        self.wake.notify_one();
        ticket
    }

    /// Returns the ticket of the latest write, or 0 if there was none.
    pub fn last(&self) -> Ticket {
        self.outbox().writes
    }

    /// Returns the shared renders, if the members share any.
    pub fn renders(&self) -> Option<&Arc<Renders>> {
        self.renders.as_ref()
    }

    /// Returns the last log entry that has been applied here along with all entries before it. `None` if it is unknown
    /// at present. A render that begins now sees the writes of these entries.
    pub fn position(&self) -> Option<Position> {
        self.positions.last_applied()
    }

    /// Returns whether a render that began at `position`, on any member, includes every write that has invalidated
    /// pages here so far. It must be called while no purge can be applied here.
    pub fn is_within(&self, position: &Position) -> bool {
        self.positions.is_within(position, self.last())
    }

    /// Returns whether responses to writes must not be sent, because no other member would hear of the writes.
    pub fn is_fenced(&self) -> bool {
        clock() >= self.fenced_from.load(Ordering::SeqCst)
    }

    /// Waits until no member serves a page that is older than this write, for at most one lease. On error, the response
    /// to the write must not be sent.
    pub async fn confirmed(&self, ticket: Ticket) -> Result<(), Fenced> {
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

    /// Does the same as [`Fleet::confirmed`], for a thread without a runtime.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Fenced> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        // If the runtime cannot be created, for example without memory, the write counts as unconfirmed.
        runtime.map_or(Err(Fenced), |runtime| {
            runtime.block_on(self.confirmed(ticket))
        })
    }

    /// Forgets a member that an administrator asserts is no longer running. The others stop waiting for it.
    pub fn forget(&self, member: &str) {
        self.outbox().forgets.push(member.into());
        self.wake.notify_one();
    }

    /// Asks the other members a question, and returns their responses by member name after at most two seconds. For a
    /// thread without a runtime.
    pub fn ask(&self, question: &str) -> Result<BTreeMap<String, String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let (runtime, word) = runtime
            .and_then(|runtime| Ok((runtime, random()?)))
            .map_err(|error| error.to_string())?;
        let status = self.status();
        let (others, silent) = (&status.others, &status.silent);
        runtime.block_on(self.questions.ask(question, word, others, silent))
    }

    /// Stops serving stored pages, and leaves the fleet once everything is published.
    pub fn leave(&self) {
        self.lease.store(0, Ordering::SeqCst);
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
        let left = self.lease.load(Ordering::SeqCst).saturating_sub(clock());
        FleetStatus {
            lease_left: Duration::from_nanos(left).as_secs_f64(),
            writes: self.last(),
            renders: self
                .renders
                .as_ref()
                .map_or(Vec::new(), |renders| renders.sums()),
            ..self.status_mut().clone()
        }
    }
}

/// Records on drop that the thread has ended: stored pages are not served, and no writer waits.
struct Ended(Arc<Fleet>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.lease.store(0, Ordering::SeqCst);
        let first_unrefused = match self.0.config.forget_after {
            Some(_) => Ticket::MAX,
            None => 0,
        };
        self.0.confirmed.send_replace(Confirmed {
            first_unconfirmed: Ticket::MAX,
            first_unrefused,
        });
        self.0.has_left.send_replace(true);
    }
}

type Exchanged = (
    Result<Reply<Text>, RedisError>,
    Option<MultiplexedConnection>,
);
type InFlight = Pin<Box<dyn Future<Output = Exchanged> + Send>>;

/// The state that has already been logged.
#[derive(Default)]
struct Saying {
    leased: bool,
    /// The reasons already logged for this outage. The first may be a timeout, and only the second may name the cause.
    troubles: BTreeSet<String>,
    silent: Vec<Name>,
    let_go: u64,
    lets_go: bool,
    fenced: bool,
}

struct Driver {
    fleet: Arc<Fleet>,
    registry: Arc<Registry>,
    member: Member<Text>,
    /// The maximum duration of an exchange.
    patience: Duration,
    process: Session,
    sessions: Session,
    word: u64,
    connection: Option<MultiplexedConnection>,
    /// Unconfirmed writes, each with the time at which it was made.
    written: VecDeque<(Ticket, Moment)>,
    apply: Apply,
    report: Report,
    said: Saying,
}

impl Driver {
    async fn run(mut self) {
        let mut heard = self.listen();
        let mut exchange: Option<InFlight> = None;
        while !self.member.has_left() {
            self.take_orders();
            let now = clock();
            if let Some(request) = self.member.poll(now, self.process | self.sessions) {
                if matches!(request, Request::Join { .. }) {
                    self.sessions = (self.sessions + 1) & 0xffff;
                }
                exchange = Some(self.exchange(request));
            } else if !self.member.awaits_reply() {
                exchange = None;
            }
            self.show();
            let sleep = Duration::from_nanos(self.member.wakes_at().saturating_sub(clock()));
            tokio::select! {
                biased;
                Some(said) = heard.recv() => self.hear(said),
                answer = async { exchange.as_mut().expect("there is one").await },
                    if exchange.is_some() =>
                {
                    exchange = None;
                    self.answered(answer);
                }
                () = self.fleet.wake.notified() => {}
                // The sleep is limited to an hour, because a timer does not accept arbitrarily long durations.
                () = tokio::time::sleep(sleep.min(Duration::from_secs(3600))) => {}
            }
        }
    }

    fn take_orders(&mut self) {
        let mut outbox = self.fleet.outbox();
        let entries = std::mem::take(&mut outbox.entries);
        let forgets = std::mem::take(&mut outbox.forgets);
        let leaves = std::mem::take(&mut outbox.leaves);
        drop(outbox);
        let now = clock();
        for text in entries {
            let ticket = self.member.publish(Entry::Purge(text));
            self.written.push_back((ticket, now));
        }
        for name in forgets {
            self.member.forget(name, now);
        }
        if leaves {
            self.member.leave(now);
        }
    }

    fn exchange(&self, request: Request<Text>) -> InFlight {
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

    fn answered(&mut self, (answer, connection): Exchanged) {
        self.connection = connection;
        let now = clock();
        match answer {
            Ok(reply) => {
                self.fleet.status_mut().trouble.clear();
                let effects = self.member.reply(now, reply);
                self.carry_out(effects);
            }
            Err(error) => {
                self.fleet.status_mut().trouble = error.to_string();
                self.member.lost(now);
            }
        }
    }

    fn hear(&mut self, said: Said) {
        let now = clock();
        match said {
            Said::Hint(hint) => {
                let effects = self.member.hint(now, hint);
                self.carry_out(effects);
            }
            Said::Confirm(session, incarnation, number) => {
                self.member.confirmed(now, session, &incarnation, number);
            }
        }
    }

    fn position(&self) -> Option<Position> {
        let (incarnation, number) = self.member.position()?;
        Some(Position {
            incarnation: incarnation.clone(),
            number,
        })
    }

    fn carry_out(&mut self, effects: Vec<Effect<Text>>) {
        let unpublished = self.member.first_unpublished();
        self.fleet.positions.begin(self.position(), unpublished);
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
                    self.fleet.positions.applied(self.position(), unpublished);
                    let (registry, connection) = (self.registry.clone(), self.connection.clone());
                    tokio::spawn(async move {
                        if let Some(mut connection) = connection {
                            let what = (session, &incarnation, number);
                            // A lost confirmation only costs the writer time, because the next exchange confirms the
                            // entries too.
                            let _ = registry.confirm(&mut connection, to, what).await;
                        }
                    });
                }
            }
        }
    }

    /// Receives messages of the other members over a separate connection.
    fn listen(&self) -> mpsc::Receiver<Said> {
        let (to, heard) = mpsc::channel(SAID);
        let (registry, process) = (self.registry.clone(), self.process);
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

    /// Updates the state that front threads see, the status and the log. All effects have been carried out.
    fn show(&mut self) {
        let unpublished = self.member.first_unpublished();
        self.fleet.positions.applied(self.position(), unpublished);
        let now = clock();
        let lease = self.member.lease();
        self.fleet.lease.store(lease, Ordering::SeqCst);
        if self.fleet.outbox().leaves {
            self.fleet.lease.store(0, Ordering::SeqCst);
        }
        self.fleet
            .fenced_from
            .store(self.member.fenced_from(), Ordering::SeqCst);
        let first = self.member.first_unconfirmed();
        let silent = self.member.silent(now);
        let mut status = self.fleet.status_mut();
        while let Some((ticket, since)) = self.written.front().copied()
            && ticket < first
        {
            self.written.pop_front();
            let took = Duration::from_nanos(now.saturating_sub(since)).as_secs_f64();
            status.confirmation_seconds += took;
            let fits = |(bound, _): &&mut (Option<f64>, u64)| bound.is_none_or(|b| took <= b);
            if let Some((_, count)) = status.confirmations.iter_mut().find(fits) {
                *count += 1;
            }
        }
        let others = self.member.others();
        status.members = others.map_or(0, |others| others.len() as u64 + 1);
        status.others = others
            .into_iter()
            .flatten()
            .map(ToString::to_string)
            .collect();
        status.silent = silent.iter().map(ToString::to_string).collect();
        status.let_go = self.member.let_go();
        let trouble = status.trouble.clone();
        drop(status);
        // The status is updated before, so that a writer whose write was not published finds it counted there.
        self.fleet.confirmed.send_if_modified(|shown| {
            let modified = shown.first_unconfirmed != first;
            shown.first_unconfirmed = first;
            shown.first_unrefused = self.member.first_unrefused();
            modified
        });
        self.report(now < lease, &trouble, silent);
    }

    fn report(&mut self, leased: bool, trouble: &str, silent: Vec<Name>) {
        if leased && !self.said.leased {
            (self.report)(News::Leased);
        }
        self.said.leased = leased;
        if leased || trouble.is_empty() {
            self.said.troubles.clear();
        } else if self.said.troubles.len() < TROUBLES
            && self.said.troubles.insert(trouble.to_owned())
        {
            (self.report)(News::Unreachable(trouble.to_owned()));
        }
        if !leased && silent != self.said.silent {
            if !silent.is_empty() {
                let names = silent.iter().map(ToString::to_string).collect();
                (self.report)(News::Silent(names));
            }
            self.said.silent = silent;
        }
        let let_go = self.member.let_go();
        // The event is reported once until there is a lease again, because every write in between causes it.
        if let_go > self.said.let_go && !std::mem::replace(&mut self.said.lets_go, true) {
            (self.report)(News::LetGo);
        }
        self.said.lets_go &= !leased;
        self.said.let_go = let_go;
        // A starting member is fenced until it has joined, which is not reported while Valkey answers.
        let fenced = self.fleet.is_fenced() && !trouble.is_empty();
        if fenced && !self.said.fenced {
            (self.report)(News::Fenced);
        }
        self.said.fenced = fenced;
    }
}
