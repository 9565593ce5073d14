//! Manages a pool's programs: it starts them as `pm` decides, opens their sockets to requests, replaces aged programs,
//! terminates hanging ones, and backs off when they exit right after their start. Each pool has its own thread and
//! runtime for this. It runs no requests.

use std::os::fd::AsFd;
use std::sync::{Arc, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::spawner::{ProgramStart, ProgramToStart};
use tokio::sync::mpsc;

use super::ProgramPoolShared;
use super::slots::{ProgramSlots, SlotStage};
use crate::common::condition::PoolCondition;
use crate::common::pm::{self, Backoff, Census};
use crate::common::process::exit_text;
use crate::common::process::resident_bytes;
use crate::config::{ProcessManager, Processes};
use crate::error::ExecErrno;
use crate::fastcgi::health_checker;
use crate::programs::spawner_client::{ProcessEvent, SpawnRefused};
use crate::status::ChildRow;

/// A program that does not respond to GET_VALUES counts as serving when it has lived this long.
const SERVING_AFTER: Duration = Duration::from_secs(1);
/// The maximum time for a program's first response to GET_VALUES, on a busy machine.
const FIRST_PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum time for a serving program's response to GET_VALUES.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);
/// A program that exits before this age counts as a failed start.
const FAILED_START_AGE: Duration = Duration::from_secs(1);
/// The number of failed starts in a row that counts as a crash loop.
const CRASH_LOOP_STARTS: u32 = 5;
/// The time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The time that a retiring program has to finish its requests, if they have no limit of their own.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(300);
/// The maximum time between two checks of the programs while any of them is neither serving nor gone, for example while
/// one is starting. At other times, `CHECK_INTERVAL` is the maximum.
const BUSY_CHECK_INTERVAL: Duration = Duration::from_millis(20);
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// A program's response to a question: slot, incarnation, and the result of the probe.
type ProbeResult = (usize, u64, std::io::Result<Option<u32>>);

/// A socket, as the FastCGI client sees it at one moment.
#[derive(Clone, Copy)]
struct SocketView {
    busy: u32,
    answered: u64,
    overdue: u64,
    open: bool,
    /// The program has been granted all the requests that it may have.
    exhausted: bool,
}

/// Starts and ends the programs of a pool, according to its slots and its load.
pub(super) struct ProgramSupervisor {
    shared: Arc<ProgramPoolShared>,
    slots: ProgramSlots,
    probe_results: mpsc::UnboundedReceiver<ProbeResult>,
    probe_sender: mpsc::UnboundedSender<ProbeResult>,
    backoff: Backoff,
    /// The number of programs in a row that exited right after their start.
    failed_starts: u32,
    next_start_at: Instant,
    starts: u64,
    first_plan: bool,
    memory_checked_at: Instant,
}

impl ProgramSupervisor {
    pub fn new(shared: Arc<ProgramPoolShared>, slots: ProgramSlots) -> ProgramSupervisor {
        let (teller, answers) = mpsc::unbounded_channel();
        let now = Instant::now();
        ProgramSupervisor {
            shared,
            slots,
            probe_results: answers,
            probe_sender: teller,
            backoff: Backoff::default(),
            failed_starts: 0,
            next_start_at: now,
            starts: 0,
            first_plan: true,
            memory_checked_at: now,
        }
    }

    /// Runs until the client has drained, then ends all programs.
    pub async fn run(mut self) {
        let shared = self.shared.clone();
        let mut client = shared.client.shared.condition.subscribe();
        let mut link = shared.spawner.condition();
        loop {
            if *client.borrow_and_update() == PoolCondition::Closed {
                break;
            }
            let spawner = link.borrow_and_update().clone();
            let wait = match spawner {
                PoolCondition::Ready => self.run_due_work(Instant::now()),
                PoolCondition::Down { name, message } => {
                    shared.refuse(name, message);
                    CHECK_INTERVAL
                }
                _ => CHECK_INTERVAL,
            };
            self.publish_board();
            let demand = shared.client.shared.demand.notified();
            tokio::select! {
                (at, fate) = next_event(&mut self.slots) => self.on_event(at, fate),
                Some(answer) = self.probe_results.recv() => self.on_probe_result(answer),
                () = demand => {}
                // The senders live as long as `shared`.
                _ = link.changed() => {}
                _ = client.changed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        // No request is left. The spawner terminates the remaining programs.
        shared.spawner.close();
        let _ = link.wait_for(|c| *c == PoolCondition::Closed).await;
        self.slots.0.clear();
        self.publish_board();
    }

    fn log_event(&self, level: LogLevel, name: &str, message: &str) {
        let shared = &self.shared;
        shared.log.pool(&shared.config.name, level, name, message);
    }

    fn views(&self) -> (Vec<SocketView>, u32, Duration) {
        let balance = self.shared.client.shared.balance();
        let members = balance.backends.iter().map(|member| SocketView {
            busy: member.busy,
            answered: member.served,
            overdue: member.timeouts,
            open: member.open,
            exhausted: member.quota == Some(0),
        });
        let views = members.collect();
        (views, balance.queued(), balance.waited(Instant::now()))
    }

    /// Does everything that is due. Returns the time until the next check.
    fn run_due_work(&mut self, now: Instant) -> Duration {
        let (views, waiting, waited) = self.views();
        for (at, view) in views.iter().enumerate() {
            self.update_slot(at, *view, now);
        }
        let under_way = self
            .slots
            .0
            .iter()
            .any(|slot| !matches!(slot.stage, SlotStage::Empty | SlotStage::Serving { .. }));
        let mut wait = if under_way {
            BUSY_CHECK_INTERVAL
        } else {
            CHECK_INTERVAL
        };
        self.hand_over_to_replacements(&views, now);
        let census = self.census(&views, waiting, waited, now);
        let (pm, most) = match self.shared.config.processes {
            Processes::Shared => (ProcessManager::Static, 1),
            Processes::Independent { .. } => {
                (self.shared.config.pm, self.shared.config.max_children)
            }
        };
        let plan = pm::plan(pm, most, self.first_plan, census);
        self.first_plan = false;
        wait = wait.min(plan.recheck_after.unwrap_or(wait));
        self.retire_idle(plan.retire, &views, now);
        if plan.fork > 0 {
            if self.next_start_at > now {
                return wait.min(self.next_start_at - now);
            }
            for _ in 0..plan.fork {
                let Some(at) = self.slots.first_empty() else {
                    break;
                };
                if !self.start(at, &views, now) {
                    return BUSY_CHECK_INTERVAL;
                }
            }
        }
        wait
    }

    /// Updates one slot from the client's view of it, and advances its stage if that is due.
    fn update_slot(&mut self, at: usize, view: SocketView, now: Instant) {
        let limit = self.shared.config.client.request_terminate_timeout;
        let until = now + limit.unwrap_or(RETIRE_TIMEOUT);
        let single = matches!(
            self.shared.config.processes,
            Processes::Independent { connections: 1 }
        );
        let slot = &mut self.slots.0[at];
        if view.busy > 0 || view.answered != slot.served_seen {
            slot.served_seen = view.answered;
            slot.idle_since = now;
        }
        let overdue = std::mem::replace(&mut slot.timeouts_handled, view.overdue) != view.overdue;
        match slot.stage {
            SlotStage::Serving { .. } | SlotStage::Doubtful { .. } if overdue && single => {
                self.terminate(at, "TerminateTimeout", now);
            }
            SlotStage::Serving { .. } if overdue => {
                // It is not known which of the program's children hangs, so all are replaced. Their other requests
                // finish first.
                let text = "a request ran too long; the program is replaced after its other requests have finished";
                self.log_event(LogLevel::Warning, "TerminateTimeout", text);
                self.close_slot(at);
                self.slots.0[at].set_stage(SlotStage::Retiring { until }, now);
            }
            SlotStage::Serving { .. } if single && !view.open => {
                slot.set_stage(SlotStage::Doubtful { until }, now);
                match slot.responds_to_probe {
                    true => self.probe(at),
                    // The program cannot be asked. A new program is better than a request that waits behind a hanging
                    // one.
                    false => self.terminate(at, "RequestBrokeOff", now),
                }
            }
            // A request broke off, and its socket was closed because one of the program's children may still be running
            // it. The program itself manages its children and the socket's backlog, so reopen the socket.
            SlotStage::Serving { .. } if !view.open => self.take_requests(at),
            SlotStage::Serving { .. } if now.duration_since(slot.born) >= FAILED_START_AGE => {
                self.failed_starts = 0;
                self.backoff.record_success();
            }
            SlotStage::Starting
                if slot.pid != 0 && now.duration_since(slot.since) >= SERVING_AFTER =>
            {
                self.open_slot(at, now);
            }
            SlotStage::Doubtful { until } if until <= now => {
                self.terminate(at, "TerminateTimeout", now);
            }
            SlotStage::Doubtful { .. } if !slot.probe_under_way => self.probe(at),
            SlotStage::Retiring { until } if view.busy == 0 || until <= now => {
                self.end_program(at, now)
            }
            _ => {}
        }
    }

    fn census(&self, views: &[SocketView], waiting: u32, waited: Duration, now: Instant) -> Census {
        let idle_limit = self.shared.config.process_idle_timeout;
        let mut census = Census {
            waiting,
            waited,
            ..Census::default()
        };
        for (slot, view) in self.slots.0.iter().zip(views) {
            match slot.stage {
                SlotStage::Starting => census.starting += 1,
                SlotStage::Serving { .. } if view.busy == 0 && !view.exhausted => {
                    census.idle += 1;
                    if now.duration_since(slot.idle_since) >= idle_limit {
                        census.idle_expired += 1;
                    }
                }
                // The program still counts until it is gone.
                SlotStage::Serving { .. } | SlotStage::Doubtful { .. } | SlotStage::Ending => {
                    census.busy += 1
                }
                SlotStage::Retiring { .. } | SlotStage::Empty => {}
            }
        }
        if self.shared.config.processes == Processes::Shared {
            // PHP manages the children itself, so waiting requests need no further program. An ending program and a
            // busy one count as one.
            census.busy = census.busy.min(1);
            census.waiting = 0;
        }
        census
    }

    fn retire_idle(&mut self, count: u32, views: &[SocketView], now: Instant) {
        let slots = self.slots.0.iter().zip(views).enumerate();
        let mut idle: Vec<(Instant, usize)> = slots
            .filter(|(_, (slot, view))| {
                matches!(slot.stage, SlotStage::Serving { replaced_by: None }) && view.busy == 0
            })
            .map(|(at, (slot, _))| (slot.idle_since, at))
            .collect();
        idle.sort_unstable();
        for (_, at) in idle.into_iter().take(count as usize) {
            self.retire(at, now);
        }
    }

    /// Orders a replacement for each program that has served its `max_requests` or grown beyond `max_memory`. Retires
    /// the program when its replacement serves.
    fn hand_over_to_replacements(&mut self, views: &[SocketView], now: Instant) {
        let shared = self.shared.clone();
        let config = &shared.config;
        let look_at_memory = now.duration_since(self.memory_checked_at) >= Duration::from_secs(1);
        if look_at_memory {
            self.memory_checked_at = now;
        }
        let (mut worn, mut relieved, mut under_way) = (Vec::new(), Vec::new(), 0);
        for (at, slot) in self.slots.0.iter().enumerate() {
            match slot.stage {
                SlotStage::Serving {
                    replaced_by: Some(next),
                } => match self.slots.0[next].stage {
                    SlotStage::Starting => under_way += 1,
                    _ => relieved.push(at),
                },
                SlotStage::Serving { replaced_by: None } => {
                    let served = views[at].answered - slot.served_before;
                    let spent = slot.replace_after > 0 && served >= slot.replace_after;
                    let large = look_at_memory
                        && config
                            .max_memory
                            .is_some_and(|most| resident_bytes(slot.pid) > most);
                    if spent || views[at].exhausted || large {
                        worn.push(at);
                    }
                }
                _ => {}
            }
        }
        for at in relieved {
            self.retire(at, now);
        }
        let at_once = (config.max_children / 4).max(1);
        for at in worn {
            if under_way >= at_once || self.next_start_at > now {
                return;
            }
            match self.slots.first_empty() {
                Some(next) => {
                    if self.start(next, views, now) {
                        let replaced_by = Some(next);
                        self.slots.0[at].stage = SlotStage::Serving { replaced_by };
                    }
                }
                // Every socket is in use: one program must exit before another can start.
                None => self.retire(at, now),
            }
            under_way += 1;
        }
    }

    /// Orders a program from the spawner. Returns `false` if there is no spawner now.
    fn start(&mut self, at: usize, views: &[SocketView], now: Instant) -> bool {
        let config = &self.shared.config;
        let (children, php_max_requests) = match config.processes {
            Processes::Shared => (config.max_children, config.max_requests),
            // This server counts the requests. PHP's own limit of 500 would end the program between two requests
            // without notice.
            Processes::Independent { .. } => (0, 0),
        };
        let mut order = ProgramStart {
            id: 0,
            program: ProgramToStart::Configured,
            directory: Vec::new(),
            environment: vec![
                format!("PHP_FCGI_CHILDREN={children}").into_bytes(),
                format!("PHP_FCGI_MAX_REQUESTS={php_max_requests}").into_bytes(),
            ],
            limit_ms: 0,
        };
        self.starts += 1;
        let max_requests = match config.processes {
            Processes::Shared => 0,
            Processes::Independent { .. } => config.max_requests,
        };
        let slot = &mut self.slots.0[at];
        let socket = slot.listening.socket.as_fd();
        match self.shared.spawner.spawn(&mut order, &[socket]) {
            Ok(process) => {
                slot.process = Some(process);
                slot.pid = 0;
                slot.born = now;
                slot.idle_since = now;
                slot.served_before = views[at].answered;
                slot.replace_after = pm::replacement_due_after(max_requests, self.starts);
                let quota = (max_requests > 0).then_some(max_requests);
                self.shared.client.shared.balance().backends[at].quota = quota;
                slot.responds_to_probe = false;
                slot.probe_under_way = false;
                slot.incarnation += 1;
                slot.set_stage(SlotStage::Starting, now);
                true
            }
            Err(SpawnRefused::Busy | SpawnRefused::NoSpawner | SpawnRefused::TooLarge) => false,
        }
    }

    /// Opens the slot's program to requests.
    fn open_slot(&mut self, at: usize, now: Instant) {
        self.slots.0[at].set_stage(SlotStage::Serving { replaced_by: None }, now);
        self.shared.client.shared.set_refusal(None);
        self.take_requests(at);
        self.shared.condition.send_if_modified(|condition| {
            let news = *condition != PoolCondition::Ready;
            *condition = PoolCondition::Ready;
            news
        });
    }

    fn take_requests(&self, at: usize) {
        let client = &self.shared.client.shared;
        client.with_balance(|balance, wake| {
            for front in 0..client.fronts {
                balance.open_backend(at, front, wake);
            }
        });
    }

    fn close_slot(&self, at: usize) {
        let kept = self.shared.client.shared.balance().close_backend(at);
        // The connections are closed outside the lock.
        drop(kept);
    }

    fn retire(&mut self, at: usize, now: Instant) {
        self.close_slot(at);
        let limit = self.shared.config.client.request_terminate_timeout;
        let until = now + limit.unwrap_or(RETIRE_TIMEOUT);
        self.slots.0[at].set_stage(SlotStage::Retiring { until }, now);
    }

    fn end_program(&mut self, at: usize, now: Instant) {
        self.close_slot(at);
        let slot = &mut self.slots.0[at];
        if let Some(process) = &slot.process {
            self.shared.spawner.terminate(process.id, KILL_GRACE);
        }
        slot.set_stage(SlotStage::Ending, now);
    }

    fn terminate(&mut self, at: usize, why: &str, now: Instant) {
        let pid = self.slots.0[at].pid;
        self.log_event(
            LogLevel::Warning,
            why,
            &format!("program {at} (pid {pid}) is terminated"),
        );
        self.end_program(at, now);
    }

    /// Asks a program whether it runs and is free (GET_VALUES).
    fn probe(&mut self, at: usize) {
        let slot = &mut self.slots.0[at];
        slot.probe_under_way = true;
        let (address, incarnation) = (slot.listening.address.clone(), slot.incarnation);
        let teller = self.probe_sender.clone();
        let limit = match slot.stage {
            SlotStage::Starting => FIRST_PROBE_TIMEOUT,
            _ => PROBE_TIMEOUT,
        };
        tokio::spawn(async move {
            let said = health_checker::probe_within(&address, limit).await;
            // The receiver may be gone.
            let _ = teller.send((at, incarnation, said));
        });
    }

    fn on_probe_result(&mut self, (at, incarnation, said): ProbeResult) {
        let now = Instant::now();
        let slot = &mut self.slots.0[at];
        if slot.incarnation != incarnation {
            return;
        }
        slot.probe_under_way = false;
        let told = matches!(said, Ok(Some(_)));
        slot.responds_to_probe |= told;
        match (&slot.stage, said) {
            (SlotStage::Starting | SlotStage::Doubtful { .. }, Ok(Some(_))) => {
                self.open_slot(at, now)
            }
            (SlotStage::Starting | SlotStage::Doubtful { .. }, Err(error)) => {
                self.terminate(at, "NotFastCgi", now);
                self.record_failed_start("NotFastCgi", &error.to_string(), now);
            }
            _ => {}
        }
    }

    fn on_event(&mut self, at: usize, fate: Option<ProcessEvent>) {
        let now = Instant::now();
        match fate {
            Some(ProcessEvent::Started(pid)) => {
                let slot = &mut self.slots.0[at];
                slot.pid = pid;
                slot.since = now;
                self.probe(at);
            }
            Some(ProcessEvent::NotStarted(errno)) => {
                self.clear(at, now);
                let program = self.shared.config.command.first();
                let program = program.map(String::as_str).unwrap_or_default();
                let message = format!("cannot execute {program}: {}", ExecErrno(errno));
                self.failed_starts = self.failed_starts.max(CRASH_LOOP_STARTS);
                self.record_failed_start("CannotExecute", &message, now);
            }
            Some(ProcessEvent::Exited(exit)) => self.on_exit(at, exit, now),
            // The program's spawner is gone, which the spawner client logs.
            None => self.on_exit(at, Exit::Unseen, now),
        }
    }

    fn on_exit(&mut self, at: usize, exit: Exit, now: Instant) {
        let slot = &self.slots.0[at];
        let expected = matches!(slot.stage, SlotStage::Ending | SlotStage::Retiring { .. });
        let (pid, lived) = (slot.pid, now.duration_since(slot.born));
        self.clear(at, now);
        if expected || exit == Exit::Unseen {
            return;
        }
        let how = exit_text(exit);
        if lived >= FAILED_START_AGE {
            let text = format!("program {at} (pid {pid}) exited ({how}); another one is started");
            self.log_event(LogLevel::Warning, "ChildDied", &text);
            return;
        }
        self.failed_starts += 1;
        let text = format!(
            "the program exited ({how}) within {} ms of its start, {} times in a row",
            lived.as_millis(),
            self.failed_starts
        );
        self.record_failed_start("CrashLoop", &text, now);
    }

    /// Empties the slot of a program that has ended.
    fn clear(&mut self, at: usize, now: Instant) {
        self.close_slot(at);
        let slot = &mut self.slots.0[at];
        // The spawner reaps it, and kills its children.
        slot.process = None;
        slot.pid = 0;
        slot.set_stage(SlotStage::Empty, now);
    }

    /// Handles a failed start by delaying the next. After several in a row, if no program serves, requests are refused.
    fn record_failed_start(&mut self, name: &str, message: &str, now: Instant) {
        let pause = self.backoff.record_failure();
        self.next_start_at = now + pause;
        let serving = |stage: &SlotStage| matches!(stage, SlotStage::Serving { .. });
        let nobody = !self.slots.0.iter().any(|slot| serving(&slot.stage));
        let text = format!("{message}; retrying in {:.1} s", pause.as_secs_f64());
        if self.failed_starts >= CRASH_LOOP_STARTS && nobody {
            let news = !matches!(&*self.shared.condition.borrow(), PoolCondition::Down { .. });
            self.shared.refuse(name.to_owned(), text.clone());
            if news {
                self.log_event(LogLevel::Error, name, &text);
            }
        } else {
            self.log_event(LogLevel::Warning, name, &text);
        }
    }

    fn publish_board(&self) {
        let (views, ..) = self.views();
        let slots = self.slots.0.iter().zip(views).enumerate();
        let rows = slots.filter(|(_, (slot, _))| slot.stage != SlotStage::Empty);
        let board = rows.map(|(at, (slot, view))| ChildRow {
            index: at as u16,
            pid: slot.pid,
            state: slot.stage_name(view.busy > 0).to_owned(),
            since: slot.since.elapsed().as_secs_f64(),
            requests: view.answered.saturating_sub(slot.served_before),
            memory: resident_bytes(slot.pid),
            ..ChildRow::default()
        });
        let board = board.collect();
        *self
            .shared
            .board
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = board;
    }
}

/// Returns the next report about a program, with its slot.
async fn next_event(slots: &mut ProgramSlots) -> (usize, Option<ProcessEvent>) {
    std::future::poll_fn(|cx| {
        for (at, slot) in slots.0.iter_mut().enumerate() {
            if let Some(process) = &mut slot.process
                && let Poll::Ready(fate) = process.events.poll_recv(cx)
            {
                return Poll::Ready((at, fate));
            }
        }
        Poll::Pending
    })
    .await
}
