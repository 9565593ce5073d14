//! A member that runs: one thread drives the protocol over two connections to Valkey, and front threads ask
//! it two things: whether stored pages may be served now, and whether a write is confirmed.

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

/// Upper bounds of the counts of confirmation times, in seconds.
const BOUNDS: [f64; 9] = [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0];
/// What was said and not yet read; more is lost, which costs time.
const SAID: usize = 4096;
/// How many different reasons the log gives for one outage.
const TROUBLES: usize = 4;

/// What an administrator says of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetConfig {
    /// Where Valkey is.
    pub valkey: Valkey,
    /// The fleet's name.
    pub fleet: String,
    /// This server's name, which no other member has.
    pub member: String,
    /// How long stored pages are served after the last exchange.
    pub lease: Duration,
    /// How many replicas have to have an exchange before it counts.
    pub replicas: u32,
    /// The secret by which members hand pages over; none: each renders for itself.
    pub key: Option<RenderKey>,
    /// After how long a silent member is forgotten, which answers no write by itself then; none: never.
    pub forget_after: Option<Duration>,
}

/// What is worth a line in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Valkey does not answer, and why; stored pages are not served when the lease has run out.
    Unreachable(String),
    /// Stored pages are served again.
    Leased,
    /// Members that are not heard of, for whom stored pages are not served.
    Silent(Vec<String>),
    /// Answers of writes leave that no other member has heard of: no stored page is served by any of them.
    LetGo,
    /// The others forget this member: answers of writes do not leave.
    Fenced,
}

/// A member at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// This server's name.
    pub member: String,
    /// Where Valkey is, without a password.
    pub valkey: String,
    /// How many members the fleet has; 0: Valkey does not know this one.
    pub members: u64,
    /// The other members that this one knows of.
    pub others: Vec<String>,
    /// Seconds until stored pages are not served any more; 0: they are not.
    pub lease_left: f64,
    /// Members that are not heard of.
    pub silent: Vec<String>,
    /// Why the last exchange failed; empty: it did not.
    pub trouble: String,
    /// Writes and purges of this member.
    pub writes: u64,
    /// How many of them nobody else has heard of: their answers left when no member served stored pages.
    pub let_go: u64,
    /// How often other members' writes, or their number, have made pages old here.
    pub applied: u64,
    /// How long confirmations took: upper bound in seconds (the last has none), count.
    pub confirmations: Vec<(Option<f64>, u64)>,
    /// Seconds spent waiting for confirmations, added up.
    pub confirmation_seconds: f64,
    /// What came of renders that members share: name, count; empty: they share none.
    #[serde(default)]
    pub renders: Vec<(String, u64)>,
}

/// Writes and orders on their way to the thread.
#[derive(Debug, Default)]
struct Outbox {
    /// How many writes there have been.
    writes: Ticket,
    entries: Vec<Text>,
    forgets: Vec<Name>,
    leaves: bool,
}

/// No other member has heard of a write, and they count on it that it is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fenced;

/// What waiting writers see.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    /// Writes with smaller tickets are done with.
    first_unconfirmed: Ticket,
    /// Of these, those with smaller tickets are refused if they are done with only now.
    first_unrefused: Ticket,
}

/// A member of a fleet.
#[derive(Debug)]
pub struct Fleet {
    config: FleetConfig,
    /// Until when stored pages may be served.
    lease: AtomicU64,
    /// From when on no write is answered that the others have not heard of.
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

/// Makes pages of this member old. Must not come back to the fleet.
pub type Apply = Box<dyn Fn(&Entry<Text>) + Send>;
/// Logs what has happened.
pub type Report = Box<dyn Fn(News) + Send>;

/// The time since the machine was started, suspended or not: a lease runs out meanwhile.
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
    /// Starts a member, whose stored pages are not served before it has joined.
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
            // Its first bit is clear, and its sessions are numbered in the last 16.
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

    /// What it was started by.
    pub fn config(&self) -> &FleetConfig {
        &self.config
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status_mut(&self) -> MutexGuard<'_, FleetStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether stored pages may be served at this moment. To be asked after the page has been found.
    pub fn may_serve(&self) -> bool {
        clock() < self.lease.load(Ordering::SeqCst)
    }

    /// This member has made pages old, and the others are to.
    pub fn publish(&self, text: Text) -> Ticket {
        let mut outbox = self.outbox();
        outbox.entries.push(text);
        outbox.writes += 1;
        let ticket = outbox.writes;
        drop(outbox);
        self.wake.notify_one();
        ticket
    }

    /// The ticket of the last write so far; 0: there was none.
    pub fn last(&self) -> Ticket {
        self.outbox().writes
    }

    /// Renders that members share, if they do.
    pub fn renders(&self) -> Option<&Arc<Renders>> {
        self.renders.as_ref()
    }

    /// The last entry of the log that has been carried out here, with all before it; none: at present none is
    /// known. A render that begins now sees what they are about.
    pub fn position(&self) -> Option<Position> {
        self.positions.last_applied()
    }

    /// Whether a render that began at `position`, on any member, sees everything by which this one has made
    /// pages old so far. To be asked while no purge can be carried out here.
    pub fn is_within(&self, position: &Position) -> bool {
        self.positions.is_within(position, self.last())
    }

    /// Whether no write is to be answered, since no other member would hear of it.
    pub fn is_fenced(&self) -> bool {
        clock() >= self.fenced_from.load(Ordering::SeqCst)
    }

    /// Waits until no member serves a page that is older than this write: a lease at most. An error: the write
    /// must not be answered.
    pub async fn confirmed(&self, ticket: Ticket) -> Result<(), Fenced> {
        let mut confirmed = self.confirmed.subscribe();
        let wait = confirmed.wait_for(|confirmed| confirmed.first_unconfirmed > ticket);
        // The sender is this value's own. A process may have been stopped since the thread saw it.
        let is_refused = wait.await.is_ok_and(|c| ticket < c.first_unrefused);
        match ticket > 0 && (is_refused || self.is_fenced()) {
            true => Err(Fenced),
            false => Ok(()),
        }
    }

    /// As [`Fleet::confirmed`], for a thread without a runtime.
    pub fn wait(&self, ticket: Ticket) -> Result<(), Fenced> {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        // Without memory for a runtime the write counts as unconfirmed.
        runtime.map_or(Err(Fenced), |runtime| {
            runtime.block_on(self.confirmed(ticket))
        })
    }

    /// An administrator vouches for it that a member runs no more: the others wait for it no longer.
    pub fn forget(&self, member: &str) {
        self.outbox().forgets.push(member.into());
        self.wake.notify_one();
    }

    /// What the other members answer to a question, by their names, in two seconds at most: for a thread without
    /// a runtime.
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

    /// Serves no stored page any more, and leaves when all is published.
    pub fn leave(&self) {
        self.lease.store(0, Ordering::SeqCst);
        self.outbox().leaves = true;
        self.wake.notify_one();
    }

    /// As [`Fleet::leave`], for a thread without a runtime. Whether it has left within this time; a member that
    /// has not is waited for until it is started again.
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

    /// The member at this moment.
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

/// The thread has ended: nothing is served from the store, and nobody waits.
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

/// What the log knows already.
#[derive(Default)]
struct Saying {
    leased: bool,
    /// The reasons given in this outage: the first may be a timeout and only the second name the cause.
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
    /// How long an exchange may take.
    patience: Duration,
    process: Session,
    sessions: Session,
    word: u64,
    connection: Option<MultiplexedConnection>,
    /// Writes that are not confirmed, with when they were made.
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
                // An hour: a timer does not take any number.
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
            // A connection on which something failed may yet carry what was given up.
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
                    // Who is confirmed may ask at once what this member has applied.
                    self.fleet.positions.applied(self.position(), unpublished);
                    let (registry, connection) = (self.registry.clone(), self.connection.clone());
                    tokio::spawn(async move {
                        if let Some(mut connection) = connection {
                            let what = (session, &incarnation, number);
                            // One that is lost costs the writer time: the next exchange says it, too.
                            let _ = registry.confirm(&mut connection, to, what).await;
                        }
                    });
                }
            }
        }
    }

    /// Hands what is said on, by a connection of its own.
    fn listen(&self) -> mpsc::Receiver<Said> {
        let (to, heard) = mpsc::channel(SAID);
        let (registry, process) = (self.registry.clone(), self.process);
        let pause = self.patience / 3;
        tokio::spawn(async move {
            while !to.is_closed() {
                if let Ok(said) = registry.listen(process).await {
                    let mut said = std::pin::pin!(said);
                    while let Some(said) = said.next().await {
                        // Who does not keep up reads the log.
                        let _ = to.try_send(said);
                    }
                }
                tokio::time::sleep(pause).await;
            }
        });
        heard
    }

    /// Shows front threads, the status and the log what has changed. All effects have been carried out.
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
        // Whose write is let go reads in the status that it was.
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
        // Once until there is a lease again: each write does it meanwhile.
        if let_go > self.said.let_go && !std::mem::replace(&mut self.said.lets_go, true) {
            (self.report)(News::LetGo);
        }
        self.said.lets_go &= !leased;
        self.said.let_go = let_go;
        // A member that starts is fenced for as long as it takes to join.
        let fenced = self.fleet.is_fenced() && !trouble.is_empty();
        if fenced && !self.said.fenced {
            (self.report)(News::Fenced);
        }
        self.said.fenced = fenced;
    }
}
