//! Manages a pool's processes: it starts and restarts the zygote, forks and retires children as `pm` decides, ends
//! requests that run too long, and cleans up after processes that died.
//!
//! Each pool has its own thread for this, which sleeps in `poll(2)`. It is not a task of a front thread for two
//! reasons. First, it executes programs, reads /proc and writes logs, and each of these may block. Second, a hanging
//! front thread must not end the supervision of its children.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_os::clock;
use howdah_proto::level::LogLevel;
use howdah_proto::shm::ChildId;
use rustix::event::{PollFd, PollFlags, Timespec};
use tokio::sync::oneshot;

mod deadlines;
mod draining;
mod memory_repair;
mod php_update;
mod reaping;
mod scripts;
mod workers;
mod zygote_lifecycle;

use super::children::{ChildState, Children};
use super::in_flight::InFlightRequest;
use super::pool_state::SupervisorMessage;
use super::shared::{BoardRow, EmbedShared};
use super::zygote::{ZygoteClient, ZygoteMessage};
use crate::ExecError;
use crate::common::condition::PoolCondition;
use crate::common::output::ProcessOutput;
use crate::common::pm::{self, Backoff, Census};
use crate::common::sys;
use crate::launch::Launcher;

/// The time between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(1);
/// The time that a zygote without children has to exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A child that dies before this age, and before it has served a request, counts as a failed fork.
const FAILED_FORK_AGE: Duration = Duration::from_secs(1);

/// If a zygote lived longer than this, its start was not the reason for its exit, and the back-off is reset.
const STEADY_AFTER: Duration = Duration::from_secs(10);

/// The state of the pool's current zygote.
enum ZygoteState {
    /// There is no zygote yet. The first request starts one.
    Asleep,
    /// There is no zygote. The next one is started at this time.
    None { start_at: Instant },
    /// PHP's module startup is under way.
    Starting {
        link: ZygoteClient,
        deadline: Instant,
    },
    /// The zygote is ready and forks a child at each command.
    Ready { link: ZygoteClient },
    /// The zygote has been asked to exit (its control socket is closed) and is killed at this time.
    Leaving {
        link: ZygoteClient,
        kill_at: Instant,
    },
    /// The pool has ended: the last zygote has exited and no other follows.
    Gone,
}

/// The supervisor of a pool. It starts zygotes, which fork the children, and retires and kills children.
pub(crate) struct Supervisor {
    shared: Arc<EmbedShared>,
    launcher: Arc<dyn Launcher>,
    zygote: ZygoteState,
    generation: u64,
    outputs: Vec<ProcessOutput>,
    children: Children,
    traces: HashMap<ChildId, Arc<InFlightRequest>>,
    /// The sender that is notified when work on scripts is done, and the generation of the zygote that does the work.
    scripts: Option<(u64, oneshot::Sender<()>)>,
    start_backoff: Backoff,
    ready_at: Instant,
    /// Whether a child of the current zygote that has exited had served a request.
    served: bool,
    fork_backoff: Backoff,
    next_fork_at: Instant,
    /// Whether the next plan is the first since the zygote became ready.
    first_plan: bool,
    memory_checked_at: Instant,
    exits_checked_at: Instant,
    drain_until: Option<Instant>,
    last_complaint: String,
    /// The last line of output of the newest zygote or its children.
    last_output_line: String,
    workers: workers::ZygoteRestarts,
    memory_repair: memory_repair::MemoryRepair,
    php_update: php_update::PhpUpdate,
}

impl Supervisor {
    pub fn new(shared: Arc<EmbedShared>, launcher: Arc<dyn Launcher>) -> Supervisor {
        let now = clock::now();
        let rows = shared.memory.region().geometry().children;
        let zygote = match shared.asleep.load(Ordering::Acquire) {
            true => ZygoteState::Asleep,
            false => ZygoteState::None { start_at: now },
        };
        Supervisor {
            shared,
            launcher,
            zygote,
            generation: 0,
            outputs: Vec::new(),
            children: Children::new(rows),
            traces: HashMap::new(),
            scripts: None,
            start_backoff: Backoff::default(),
            ready_at: now,
            served: false,
            fork_backoff: Backoff::default(),
            next_fork_at: now,
            first_plan: true,
            memory_checked_at: now,
            exits_checked_at: now,
            drain_until: None,
            last_complaint: String::new(),
            last_output_line: String::new(),
            workers: workers::ZygoteRestarts::new(),
            memory_repair: memory_repair::MemoryRepair::new(now),
            php_update: php_update::PhpUpdate::new(now),
        }
    }

    /// Runs until the pool is closed.
    pub fn run(mut self) {
        self.begin();
        while let Some(wait) = self.work() {
            self.sleep(wait);
            self.receive();
        }
        self.close();
    }

    pub(super) fn begin(&self) {
        if let ZygoteState::Asleep = self.zygote {
            self.set_condition(PoolCondition::Ready);
        }
    }

    /// Does everything that is due. Returns the time until the next action, or `None` if the pool has ended.
    pub(super) fn work(&mut self) -> Option<Duration> {
        let now = clock::now();
        let wait = self.run_due_work(now);
        self.publish_board();
        let over = matches!(self.zygote, ZygoteState::Gone) && self.children.is_empty();
        (!over || !self.workers.is_empty()).then_some(wait)
    }

    /// Handles everything that has arrived, without waiting.
    pub(super) fn receive(&mut self) {
        self.read_outputs();
        self.read_reports();
        self.read_other_reports();
        self.reap_orphans();
        for letter in self.shared.pool.take_messages() {
            self.handle_message(letter);
        }
    }

    /// Closes the pool, after [`Supervisor::work`] has returned `None`.
    pub(super) fn close(&mut self) {
        // Nothing can arrive any more, so requests that still wait are refused.
        self.refuse_all(&ExecError::Stopping);
        self.read_outputs();
        self.shared.condition.send_replace(PoolCondition::Closed);
        self.shared.notify_successor();
        self.shared.ring_all_bells();
    }

    fn log_event(&self, level: LogLevel, name: &str, message: &str) {
        self.shared
            .pool
            .log
            .pool(&self.shared.pool.config.name, level, name, message);
    }

    fn sleep(&mut self, wait: Duration) {
        let orphans = self.orphan_pidfds();
        let mut fds = vec![self.shared.pool.message_bell()];
        match &self.zygote {
            ZygoteState::Starting { link, .. } | ZygoteState::Ready { link } => {
                fds.push(link.control());
                fds.push(link.pidfd());
            }
            ZygoteState::Leaving { link, .. } => fds.push(link.pidfd()),
            ZygoteState::Asleep | ZygoteState::None { .. } | ZygoteState::Gone => {}
        }
        fds.extend(self.workers.descriptors());
        fds.extend(self.outputs.iter().map(ProcessOutput::pipe));
        fds.extend(orphans);
        let mut poll: Vec<PollFd<'_>> = fds
            .iter()
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        // Rounded up: waking slightly too early would only spin.
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
        let present = matches!(
            self.zygote,
            ZygoteState::Starting { .. } | ZygoteState::Ready { .. }
        );
        (generation == self.generation && present) || self.workers.has_former(generation)
    }

    /// Does everything that is due. Returns the time until the next action.
    fn run_due_work(&mut self, now: Instant) -> Duration {
        let mut wait = self.manage_zygote(now).min(self.manage_restarts(now));
        if let Some(until) = self.drain_until {
            wait = wait.min(self.drain(until, now));
        }
        if matches!(self.zygote, ZygoteState::Ready { .. }) {
            self.check_memory(now);
            self.update_idle_times(now);
            self.kill_stuck_zygote(now);
            if !self.is_drained(now) {
                wait = wait.min(self.scale_children(now));
                self.hand_over_to_replacements(now);
            }
        }
        wait = wait.min(self.enforce_time_limits(now));
        wait.min(self.kill_overdue_children(now)).min(self.tick())
    }

    /// Returns the maximum wait until limits are checked again.
    fn tick(&self) -> Duration {
        let config = &self.shared.pool.config;
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
        tick
    }

    fn publish_board(&self) {
        let board = self
            .children
            .iter()
            .map(|c| BoardRow {
                id: c.id,
                pid: c.pid,
                since: c.since,
                state: (&c.state).into(),
            })
            .collect();
        *self.shared.board.lock().unwrap_or_else(|e| e.into_inner()) = board;
    }
}
