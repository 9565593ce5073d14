//! Keeps a pool's processes: starts the zygote and starts it again, forks and retires children
//! as `pm` decides, ends what runs too long, cleans up after the dead.
//!
//! A thread of its own a pool, asleep in `poll(2)`. Not a task of a front thread: it execs, reads
//! /proc and writes logs, all of which may block; and a front thread that hangs must not take the
//! supervision of its children with it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_proto::control::{Command, Exit, Report};
use howdah_proto::shm::{ChildId, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use super::children::{Children, Life};
use super::exchange::Exchange;
use super::pm::{self, Backoff, Census};
use super::shared::{Ask, BoardRow, Condition, Shared};
use super::sys;
use super::zygote::{self, Link, Output, Received};
use crate::ExecError;
use crate::launch::Launcher;

/// PHP's module startup, preloading included, may take this long.
const START_LIMIT: Duration = Duration::from_secs(60);
/// From SIGTERM to SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// A zygote without children has this long to leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(5);
/// A child that dies younger than this, before it has served a request, counts as a failed fork.
const INFANT: Duration = Duration::from_secs(1);

/// A zygote that lived so long did not die of its start: the back-off begins anew.
const STEADY: Duration = Duration::from_secs(10);

const ERROR: u8 = 3;
const WARNING: u8 = 4;
const NOTICE: u8 = 5;

/// The zygote, as a state.
enum Zygote {
    /// None; the next start is due then.
    None { start_at: Instant },
    /// PHP's module startup is under way.
    Starting { link: Link, deadline: Instant },
    /// Forks on command.
    Ready { link: Link },
    /// Has been told to leave (its control socket is closed).
    Leaving { link: Link, kill_at: Instant },
    /// Left for good.
    Gone,
}

/// See the module.
pub(crate) struct Supervisor {
    shared: Arc<Shared>,
    launcher: Arc<dyn Launcher>,
    zygote: Zygote,
    generation: u64,
    outputs: Vec<Output>,
    children: Children,
    traces: HashMap<ChildId, Arc<Exchange>>,
    start_backoff: Backoff,
    ready_at: Instant,
    fork_backoff: Backoff,
    fork_at: Instant,
    /// The next plan is the first since the zygote became ready.
    first_plan: bool,
    forks: u64,
    memory_looked_at: Instant,
    drain_until: Option<Instant>,
    last_complaint: String,
}

impl Supervisor {
    pub fn new(shared: Arc<Shared>, launcher: Arc<dyn Launcher>) -> Supervisor {
        let now = Instant::now();
        let rows = shared.memory.region().geometry().children;
        Supervisor {
            shared,
            launcher,
            zygote: Zygote::None { start_at: now },
            generation: 0,
            outputs: Vec::new(),
            children: Children::new(rows),
            traces: HashMap::new(),
            start_backoff: Backoff::default(),
            ready_at: now,
            fork_backoff: Backoff::default(),
            fork_at: now,
            first_plan: true,
            forks: 0,
            memory_looked_at: now,
            drain_until: None,
            last_complaint: String::new(),
        }
    }

    /// Runs until the pool is closed.
    pub fn run(mut self) {
        loop {
            let now = Instant::now();
            let wait = self.turn(now);
            self.publish_board();
            if matches!(self.zygote, Zygote::Gone) && self.children.is_empty() {
                break;
            }
            self.sleep(wait);
            self.read_outputs();
            self.read_reports();
            self.look_for_orphans();
            for letter in self.shared.take_letters() {
                self.open_letter(letter);
            }
        }
        // Nothing can come any more: whoever still waits is told so.
        self.refuse_all(&ExecError::Stopping);
        self.read_outputs();
        self.shared.condition.send_replace(Condition::Closed);
        self.shared.ring_all();
    }

    fn say(&self, level: u8, name: &str, message: &str) {
        self.shared
            .log
            .pool(&self.shared.config.name, level, name, message);
    }

    fn sleep(&mut self, wait: Duration) {
        let orphans = self.orphan_pidfds();
        let mut fds = vec![self.shared.letter_bell()];
        match &self.zygote {
            Zygote::Starting { link, .. } | Zygote::Ready { link } => {
                fds.push(link.control());
                fds.push(link.pidfd());
            }
            Zygote::Leaving { link, .. } => fds.push(link.pidfd()),
            Zygote::None { .. } | Zygote::Gone => {}
        }
        fds.extend(self.outputs.iter().map(Output::pipe));
        fds.extend(orphans);
        let mut poll: Vec<PollFd<'_>> = fds
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        // Rounded up: waking a moment early would only spin.
        let wait = wait + Duration::from_micros(500);
        let timeout = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let _ = rustix::event::poll(&mut poll, Some(&timeout));
    }

    fn orphan_pidfds(&self) -> Vec<BorrowedFd<'_>> {
        self.children
            .iter()
            .filter(|c| !self.has_zygote(c.generation))
            .filter_map(|c| c.pidfd.as_ref().map(AsFd::as_fd))
            .collect()
    }

    fn has_zygote(&self, generation: u64) -> bool {
        generation == self.generation
            && matches!(self.zygote, Zygote::Starting { .. } | Zygote::Ready { .. })
    }

    /// Does everything that is due; returns how long nothing will be.
    fn turn(&mut self, now: Instant) -> Duration {
        let mut wait = self.tend_zygote(now);
        if let Some(until) = self.drain_until {
            wait = wait.min(self.drain(until, now));
        }
        if matches!(self.zygote, Zygote::Ready { .. }) {
            self.look_at_children(now);
            if !self.is_over(now) {
                wait = wait.min(self.grow_and_shrink(now));
                self.hand_over_to_replacements(now);
            }
        }
        wait = wait.min(self.end_what_runs_too_long(now));
        wait.min(self.kill_the_deaf(now)).min(self.tick())
    }

    /// How often to look around although nobody calls.
    fn tick(&self) -> Duration {
        let config = &self.shared.config;
        let mut tick = Duration::from_secs(1);
        for limit in [
            config.request_terminate_timeout,
            config.request_slowlog_timeout,
        ]
        .into_iter()
        .flatten()
        {
            tick = tick.min((limit / 10).max(Duration::from_millis(5)));
        }
        tick = tick.min((config.process_idle_timeout / 4).max(Duration::from_millis(20)));
        if config.max_requests > 0 && self.shared.outstanding.load(Ordering::Relaxed) > 0 {
            tick = tick.min(Duration::from_millis(50));
        }
        tick
    }

    // ---- the zygote ----

    fn tend_zygote(&mut self, now: Instant) -> Duration {
        match &self.zygote {
            Zygote::None { .. } if self.is_over(now) => self.zygote = Zygote::Gone,
            Zygote::None { start_at } if *start_at <= now => self.start_zygote(now),
            Zygote::None { start_at } => return *start_at - now,
            Zygote::Starting { link, deadline } if *deadline <= now => {
                link.kill();
                self.start_failed(
                    now,
                    "StartTimeout",
                    "the zygote did not become ready within 60 s; is a preload script stuck?",
                );
            }
            Zygote::Starting { deadline, .. } => return *deadline - now,
            Zygote::Leaving { link, kill_at } => {
                if link.ended() {
                    self.zygote = Zygote::Gone;
                } else if *kill_at <= now {
                    link.kill();
                    return Duration::from_millis(20);
                } else {
                    return *kill_at - now;
                }
            }
            Zygote::Ready { .. } | Zygote::Gone => {}
        }
        Duration::from_secs(3600)
    }

    /// Whether the pool is being drained and needs no process any more.
    fn is_over(&self, now: Instant) -> bool {
        self.drain_until.is_some_and(|until| {
            until <= now || self.shared.outstanding.load(Ordering::Acquire) == 0
        })
    }

    fn start_zygote(&mut self, now: Instant) {
        self.generation += 1;
        match Link::start(&self.shared, self.launcher.as_ref()) {
            Ok((link, output)) => {
                self.outputs.push(output);
                self.zygote = Zygote::Starting {
                    link,
                    deadline: now + START_LIMIT,
                };
            }
            Err(error) => self.start_failed(now, "CannotStart", &error.to_string()),
        }
    }

    fn start_failed(&mut self, now: Instant, name: &str, message: &str) {
        let pause = self.start_backoff.failed();
        self.zygote = Zygote::None {
            start_at: now + pause,
        };
        let complaint = format!("{name}: {message}");
        if complaint != self.last_complaint {
            self.say(
                ERROR,
                name,
                &format!("{message} (tried again until it works)"),
            );
            self.last_complaint = complaint;
        }
        let error = ExecError::PoolDown {
            name: name.to_owned(),
            message: message.to_owned(),
        };
        self.set_condition(Condition::Down {
            name: name.to_owned(),
            message: message.to_owned(),
        });
        self.shared.down.store(true, Ordering::Release);
        self.refuse_all(&error);
    }

    fn set_condition(&self, condition: Condition) {
        if self.drain_until.is_none() {
            self.shared.condition.send_replace(condition);
        }
    }

    fn refuse_all(&self, error: &ExecError) {
        for lane in &self.shared.lanes {
            lane.refuse_unclaimed(&self.shared, error, |_| true);
        }
    }

    fn zygote_ended(&mut self, now: Instant) {
        let was = std::mem::replace(&mut self.zygote, Zygote::None { start_at: now });
        let (link, started) = match was {
            Zygote::Starting { link, .. } => (link, false),
            Zygote::Ready { link } => (link, true),
            other => {
                self.zygote = other;
                return;
            }
        };
        // It has closed its socket: if the process lingers, it serves nobody.
        if !link.ended() {
            link.kill();
            link.ended();
        }
        let pid = link.pid();
        if !started {
            // Its last words, if any, explain it better than we can.
            self.read_outputs();
            self.start_failed(
                now,
                "ZygoteDied",
                &format!("the zygote (pid {pid}) ended while it was starting"),
            );
            return;
        }
        self.say(
            ERROR,
            "ZygoteDied",
            &format!(
                "the zygote (pid {pid}) ended; its children finish what they run, a new one starts"
            ),
        );
        if now.duration_since(self.ready_at) >= STEADY {
            self.start_backoff.succeeded();
        }
        // At once after the first death, later and later when it dies again and again.
        let pause = self.start_backoff.failed() - Duration::from_millis(100);
        self.zygote = Zygote::None {
            start_at: now + pause,
        };
        self.set_condition(Condition::Starting);
        let generation = self.generation;
        let mut unborn = Vec::new();
        for child in self
            .children
            .iter_mut()
            .filter(|c| c.generation == generation)
        {
            match child.life {
                Life::Starting => unborn.push(child.id),
                Life::Serving { .. } => {
                    child.become_(Life::Retiring, now);
                    sys::wake(self.shared.port.retire(child.id.index));
                }
                Life::Retiring | Life::Terminating { .. } => {}
            }
        }
        for id in unborn {
            self.children.remove(id);
            self.shared.port.strike(id.index);
        }
    }

    fn read_outputs(&mut self) {
        let shared = &self.shared;
        self.outputs.retain_mut(|output| {
            output.take(|line| {
                shared
                    .log
                    .pool(&shared.config.name, NOTICE, "ProcessOutput", line);
            })
        });
    }

    fn read_reports(&mut self) {
        loop {
            let received = match &self.zygote {
                Zygote::Starting { link, .. } | Zygote::Ready { link } => link.receive(),
                _ => return,
            };
            let now = Instant::now();
            match received {
                Received::Report(report, fd) => self.on_report(report, fd, now),
                Received::Nonsense(bytes) => {
                    let text = String::from_utf8_lossy(&bytes);
                    self.say(
                        ERROR,
                        "ZygoteNonsense",
                        &format!("not a report: {text:.200}"),
                    );
                }
                Received::Nothing => return,
                Received::Closed => return self.zygote_ended(now),
            }
        }
    }

    fn on_report(&mut self, report: Report, fd: Option<std::os::fd::OwnedFd>, now: Instant) {
        match report {
            Report::Ready {
                version,
                php,
                opcache,
            } => self.on_ready(version, php, opcache, now),
            Report::Failed { name, message } => {
                self.read_outputs();
                self.start_failed(now, &name, &message);
            }
            Report::Spawned { child, pid } => self.on_spawned(child, pid, fd, now),
            Report::SpawnFailed { child, message } => {
                self.children.remove(child);
                self.shared.port.strike(child.index);
                self.fork_at = now + self.fork_backoff.failed();
                self.say(
                    ERROR,
                    "SpawnFailed",
                    &format!("cannot fork a child: {message}"),
                );
            }
            Report::Exited { child, exit } => self.on_exited(child, exit, now),
            Report::Trace { child, stack } => self.on_trace(child, &stack),
        }
    }

    fn on_ready(&mut self, version: u32, php: String, opcache: bool, now: Instant) {
        let was = std::mem::replace(&mut self.zygote, Zygote::Gone);
        let link = match was {
            Zygote::Starting { link, .. } => link,
            other => {
                self.zygote = other;
                return;
            }
        };
        if version != VERSION {
            link.kill();
            link.ended();
            let program = self.shared.config.program.display();
            let message = format!(
                "{program} speaks version {version} of the shared memory, this server {VERSION}; \
                 install both from the same build"
            );
            self.start_failed(now, "OtherVersion", &message);
            return;
        }
        if self.shared.config.opcache && !opcache {
            self.say(
                WARNING,
                "OpcacheOff",
                "opcache is not loaded or not enabled: every request compiles its files",
            );
        }
        self.zygote = Zygote::Ready { link };
        self.ready_at = now;
        self.last_complaint.clear();
        self.first_plan = true;
        *self.shared.php.lock().unwrap_or_else(|e| e.into_inner()) = (php, opcache);
        self.shared.down.store(false, Ordering::Release);
        self.set_condition(Condition::Ready);
    }

    fn on_spawned(
        &mut self,
        id: ChildId,
        pid: i32,
        fd: Option<std::os::fd::OwnedFd>,
        now: Instant,
    ) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        child.pid = pid;
        // Without the descriptor signals go by the zygote: a bare process id is only its word, and
        // might name any process.
        child.pidfd = fd;
        child.born = now;
        child.become_(
            Life::Serving {
                idle_since: now,
                seen_requests: 0,
                replaced_by: None,
            },
            now,
        );
        self.fork_at = self.fork_at.min(now);
    }

    fn on_trace(&mut self, id: ChildId, stack: &str) {
        let Some(exchange) = self.traces.remove(&id) else {
            return;
        };
        let text = |name: &str| {
            String::from_utf8_lossy(exchange.frame.variable(name).unwrap_or_default()).into_owned()
        };
        let running = Duration::from_nanos(sys::now_ns().saturating_sub(exchange.started_ns));
        self.say(
            WARNING,
            "SlowRequest",
            &format!(
                "{} {} script {} running for {:.3} s in child {}\n{}",
                text("REQUEST_METHOD"),
                text("REQUEST_URI"),
                text("SCRIPT_FILENAME"),
                running.as_secs_f64(),
                id.index,
                stack.trim_end(),
            ),
        );
    }

    // ---- children ----

    fn on_exited(&mut self, id: ChildId, exit: Exit, now: Instant) {
        let Some(child) = self.children.remove(id) else {
            return;
        };
        let served = self.shared.port.child(id.index).requests;
        self.shared.port.strike(id.index);
        self.traces.remove(&id);
        let verdict = match &child.life {
            Life::Terminating {
                why: "TerminateTimeout",
                ..
            } => ExecError::TerminateTimeout,
            Life::Terminating {
                why: "Stopping", ..
            } => ExecError::Stopping,
            Life::Terminating {
                why: "ResponseCorrupt",
                ..
            } => ExecError::ResponseCorrupt,
            _ => ExecError::ChildDied(exit),
        };
        let lost: u32 = self
            .shared
            .lanes
            .iter()
            .map(|lane| lane.child_gone(&self.shared, id, &verdict))
            .sum();
        let expected = matches!(child.life, Life::Retiring | Life::Terminating { .. });
        if !expected || (lost > 0 && matches!(child.life, Life::Retiring)) {
            let how = zygote::exit_text(exit);
            self.say(
                WARNING,
                "ChildDied",
                &format!(
                    "child {} (pid {}) ended by {how} after {served} requests; {lost} request lost",
                    id.index, child.pid
                ),
            );
        }
        if !expected && served == 0 && now.duration_since(child.born) < INFANT && lost == 0 {
            self.fork_at = now + self.fork_backoff.failed();
        } else if served > 0 {
            self.fork_backoff.succeeded();
        }
    }

    /// Children whose zygote is dead are nobody's: their pidfds tell of their end.
    fn look_for_orphans(&mut self) {
        let gone: Vec<ChildId> = self
            .children
            .iter()
            .filter(|c| !self.has_zygote(c.generation))
            .filter(|c| {
                c.pidfd
                    .as_ref()
                    .is_none_or(|fd| zygote::readable(fd.as_fd()))
            })
            .map(|c| c.id)
            .collect();
        for id in gone {
            self.on_exited(id, Exit::Unseen, Instant::now());
        }
    }

    /// Reads the scoreboard: who has been idle since when.
    fn look_at_children(&mut self, now: Instant) {
        for child in self.children.iter_mut() {
            if let Life::Serving {
                idle_since,
                seen_requests,
                ..
            } = &mut child.life
            {
                let row = self.shared.port.child(child.id.index);
                if row.busy_since.is_some() || row.requests != *seen_requests {
                    *seen_requests = row.requests;
                    *idle_since = now;
                }
            }
        }
    }

    fn grow_and_shrink(&mut self, now: Instant) -> Duration {
        let config = &self.shared.config;
        let mut census = Census::default();
        let mut idle: Vec<(Instant, ChildId)> = Vec::new();
        for child in self.children.iter() {
            match &child.life {
                Life::Starting => census.starting += 1,
                Life::Serving { idle_since, .. } => {
                    if self.shared.port.child(child.id.index).busy_since.is_some() {
                        census.busy += 1;
                    } else {
                        census.idle += 1;
                        if now.duration_since(*idle_since) >= config.process_idle_timeout {
                            census.idle_expired += 1;
                            idle.push((*idle_since, child.id));
                        }
                    }
                }
                // Until it has been reaped it takes up a place, or a pool of hung children would
                // grow beyond its limit.
                Life::Terminating { .. } => census.busy += 1,
                Life::Retiring => {}
            }
        }
        census.waiting = self.shared.queue_len();
        if census.waiting > 0 {
            let oldest = self
                .shared
                .lanes
                .iter()
                .filter_map(|lane| lane.oldest_unclaimed())
                .min();
            census.waited =
                Duration::from_nanos(sys::now_ns().saturating_sub(oldest.unwrap_or(u64::MAX)));
        }
        let plan = pm::plan(config.pm, config.max_children, self.first_plan, census);
        self.first_plan = false;
        let total = census.starting + census.idle + census.busy;
        let growing = total + plan.fork < config.max_children;
        self.shared.may_grow.store(growing, Ordering::Relaxed);
        if plan.retire > 0 {
            idle.sort_by_key(|(since, _)| *since);
            for (_, id) in idle.into_iter().take(plan.retire as usize) {
                self.retire(id, now);
            }
        }
        if plan.fork > 0 {
            if self.fork_at > now {
                return self.fork_at - now;
            }
            for _ in 0..plan.fork {
                if self.fork(now).is_none() {
                    return Duration::from_millis(20);
                }
            }
        }
        plan.again.unwrap_or(Duration::from_secs(3600))
    }

    /// Asks the zygote for a child.
    fn fork(&mut self, now: Instant) -> Option<ChildId> {
        let Zygote::Ready { link } = &self.zygote else {
            return None;
        };
        let id = self.children.begin(self.generation, now)?;
        self.shared.port.enlist(id);
        self.forks += 1;
        let max_requests = pm::jitter(self.shared.config.max_requests, self.forks);
        let command = Command::Spawn {
            child: id,
            max_requests,
        };
        if link.send(&command).is_err() {
            // Its socket is full or closed; the latter is noticed by reading it.
            self.children.remove(id);
            self.shared.port.strike(id.index);
            return None;
        }
        Some(id)
    }

    fn retire(&mut self, id: ChildId, now: Instant) {
        if let Some(child) = self.children.get(id) {
            child.become_(Life::Retiring, now);
            sys::wake(self.shared.port.retire(id.index));
        }
    }

    /// Children that have served their `max_requests` or have grown beyond `max_memory` get a
    /// replacement first, and leave when it is there.
    fn hand_over_to_replacements(&mut self, now: Instant) {
        let mut worn = Vec::new();
        let mut relieved = Vec::new();
        let mut under_way = 0;
        let look_at_memory = self.shared.config.max_memory.is_some()
            && now.duration_since(self.memory_looked_at) >= Duration::from_secs(1);
        if look_at_memory {
            self.memory_looked_at = now;
        }
        for child in self.children.iter() {
            let Life::Serving { replaced_by, .. } = &child.life else {
                continue;
            };
            if let Some(successor) = replaced_by {
                let there = self
                    .children
                    .iter()
                    .find(|c| c.id == *successor)
                    .is_none_or(|c| !matches!(c.life, Life::Starting));
                if there {
                    relieved.push(child.id);
                } else {
                    under_way += 1;
                }
                continue;
            }
            let too_large = look_at_memory
                && self
                    .shared
                    .config
                    .max_memory
                    .is_some_and(|limit| resident_bytes(child.pid) > limit);
            if too_large || self.shared.port.child(child.id.index).spent {
                worn.push(child.id);
            }
        }
        for id in relieved {
            self.retire(id, now);
        }
        let at_once = (self.shared.config.max_children / 4).max(1);
        for id in worn {
            if under_way >= at_once || self.fork_at > now {
                return;
            }
            let Some(successor) = self.fork(now) else {
                return;
            };
            under_way += 1;
            if let Some(child) = self.children.get(id)
                && let Life::Serving { replaced_by, .. } = &mut child.life
            {
                *replaced_by = Some(successor);
            }
        }
    }

    // ---- deadlines ----

    fn end_what_runs_too_long(&mut self, now: Instant) -> Duration {
        let terminate = self.shared.config.request_terminate_timeout;
        let slow = self.shared.config.request_slowlog_timeout;
        if terminate.is_none() && slow.is_none() {
            return Duration::from_secs(3600);
        }
        let now_ns = sys::now_ns();
        let mut soon = Duration::from_secs(3600);
        let claimed: Vec<(ChildId, Arc<Exchange>)> = self
            .shared
            .lanes
            .iter()
            .flat_map(|lane| lane.claimed())
            .collect();
        for (id, exchange) in claimed {
            let mut state = exchange.lock();
            let busy_since = self.shared.port.child(id.index).busy_since;
            state.claimed_by(id, || {
                // The child's own word, as far as it can be true.
                busy_since
                    .unwrap_or(now_ns)
                    .clamp(exchange.started_ns, now_ns)
            });
            let age =
                Duration::from_nanos(now_ns.saturating_sub(state.claimed_ns.unwrap_or(now_ns)));
            if let Some(limit) = slow {
                if age < limit {
                    soon = soon.min(limit - age);
                } else if !state.traced {
                    state.traced = true;
                    self.shared.counters.slow.fetch_add(1, Ordering::Relaxed);
                    self.traces.insert(id, exchange.clone());
                    if let Zygote::Ready { link } = &self.zygote {
                        let _ = link.send(&Command::Trace { child: id });
                    }
                }
            }
            if let Some(limit) = terminate {
                if age < limit {
                    soon = soon.min(limit - age);
                    continue;
                }
                state.verdict.get_or_insert(ExecError::TerminateTimeout);
                let waker = state.waker.take();
                drop(state);
                if let Some(waker) = waker {
                    waker.wake();
                }
                self.terminate(id, "TerminateTimeout", now);
            }
        }
        if let Some(limit) = terminate {
            self.end_long_shutdowns(limit, now, now_ns);
        }
        soon
    }

    /// A child may be busy without holding a slot: destructors and shutdown functions of a
    /// request already answered. The limit counts for them too.
    fn end_long_shutdowns(&mut self, limit: Duration, now: Instant, now_ns: u64) {
        let late: Vec<ChildId> = self
            .children
            .iter()
            .filter(|c| matches!(c.life, Life::Serving { .. } | Life::Retiring))
            .filter(|c| {
                let since = self.shared.port.child(c.id.index).busy_since;
                since.is_some_and(|s| Duration::from_nanos(now_ns.saturating_sub(s)) >= limit)
            })
            .map(|c| c.id)
            .collect();
        for id in late {
            self.terminate(id, "TerminateTimeout", now);
        }
    }

    fn terminate(&mut self, id: ChildId, why: &'static str, now: Instant) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        if matches!(child.life, Life::Terminating { .. }) {
            return;
        }
        child.become_(
            Life::Terminating {
                kill_at: Some(now + KILL_GRACE),
                why,
            },
            now,
        );
        let pid = child.pid;
        self.say(
            WARNING,
            why,
            &format!("child {} (pid {pid}) is terminated", id.index),
        );
        self.signal(id, Signal::TERM);
    }

    fn signal(&mut self, id: ChildId, signal: Signal) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        let direct = match &child.pidfd {
            Some(fd) => zygote::signal(fd.as_fd(), signal).is_ok(),
            None => false,
        };
        if !direct && let Zygote::Ready { link } = &self.zygote {
            let _ = link.send(&Command::Signal {
                child: id,
                signal: signal.as_raw(),
            });
        }
    }

    /// SIGKILL for children that have outlived their SIGTERM.
    fn kill_the_deaf(&mut self, now: Instant) -> Duration {
        let mut soon = Duration::from_secs(3600);
        let mut deaf = Vec::new();
        for child in self.children.iter_mut() {
            if let Life::Terminating { kill_at, .. } = &mut child.life
                && let Some(at) = *kill_at
            {
                if at <= now {
                    *kill_at = None;
                    deaf.push(child.id);
                } else {
                    soon = soon.min(at - now);
                }
            }
        }
        for id in deaf {
            self.signal(id, Signal::KILL);
        }
        soon
    }

    // ---- the end ----

    fn open_letter(&mut self, letter: Ask) {
        let now = Instant::now();
        match letter {
            Ask::Kill(id, why) => {
                self.terminate(id, why, now);
                self.signal(id, Signal::KILL);
            }
            Ask::Drain(until) => {
                self.shared.condition.send_replace(Condition::Draining);
                self.drain_until = Some(self.drain_until.map_or(until, |d| d.min(until)));
            }
        }
    }

    /// One step of the end: requests in flight, then children, then the zygote.
    fn drain(&mut self, until: Instant, now: Instant) -> Duration {
        let late = until <= now;
        if self.shared.outstanding.load(Ordering::Acquire) > 0 {
            if !late {
                return until - now;
            }
            self.refuse_all(&ExecError::Stopping);
            self.fail_claimed(&ExecError::Stopping);
        }
        let ids: Vec<(ChildId, bool)> = self
            .children
            .iter()
            .map(|c| (c.id, matches!(c.life, Life::Serving { .. })))
            .collect();
        for (id, serving) in &ids {
            if late {
                self.terminate(*id, "Stopping", now);
            } else if *serving {
                self.retire(*id, now);
            }
        }
        let starting = self
            .children
            .iter()
            .any(|c| matches!(c.life, Life::Starting));
        if self.children.is_empty() || (late && starting) {
            let was = std::mem::replace(&mut self.zygote, Zygote::Gone);
            self.zygote = match was {
                Zygote::Starting { link, .. } | Zygote::Ready { link } => Zygote::Leaving {
                    link: link.hang_up(),
                    kill_at: now + LEAVE_LIMIT,
                },
                Zygote::None { .. } => Zygote::Gone,
                other => other,
            };
            return Duration::from_millis(1);
        }
        if late { KILL_GRACE } else { until - now }
    }

    fn fail_claimed(&self, error: &ExecError) {
        for lane in &self.shared.lanes {
            for (_, exchange) in lane.claimed() {
                let mut state = exchange.lock();
                state.verdict.get_or_insert_with(|| error.clone());
                if let Some(waker) = state.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    fn publish_board(&self) {
        let board = self
            .children
            .iter()
            .map(|c| BoardRow {
                id: c.id,
                pid: c.pid,
                since: c.since,
                life: match c.life {
                    Life::Starting => "Starting",
                    Life::Serving { .. } => "Serving",
                    Life::Retiring => "Retiring",
                    Life::Terminating { .. } => "Terminating",
                },
            })
            .collect();
        *self.shared.board.lock().unwrap_or_else(|e| e.into_inner()) = board;
    }
}

/// Resident memory of a process in bytes, from `/proc/PID/statm`; 0 when it is gone.
pub(crate) fn resident_bytes(pid: i32) -> u64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/statm")) else {
        return 0;
    };
    let pages: u64 = text
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}
