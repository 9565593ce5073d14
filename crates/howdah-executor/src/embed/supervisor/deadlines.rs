//! Wall-clock limits of requests: the slow log, `request_terminate_timeout`, and the signals that enforce it. PHP
//! enforces `max_execution_time` itself, which counts CPU time.

use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use howdah_proto::control::ZygoteCommand;
use howdah_proto::level::LogLevel;
use howdah_proto::shm::ChildId;
use rustix::process::Signal;

use super::{ChildState, ExecError, KILL_GRACE, Ordering, Supervisor, sys};
use crate::common::process;
use crate::status::SlowRow;

impl Supervisor {
    pub(super) fn enforce_time_limits(&mut self, now: Instant) -> Duration {
        let terminate = self.shared.pool.config.request_terminate_timeout;
        let slow = self.shared.pool.config.request_slowlog_timeout;
        if terminate.is_none() && slow.is_none() {
            return Duration::from_secs(3600);
        }
        let now_ns = sys::now_ns();
        let mut soon = Duration::from_secs(3600);
        let claimed: Vec<_> = self
            .shared
            .lanes
            .iter()
            .flat_map(|lane| lane.claimed())
            .collect();
        for (id, in_flight, claimed_ns) in claimed {
            let mut state = in_flight.lock();
            state.record_claim(id, || claimed_ns);
            let age =
                Duration::from_nanos(now_ns.saturating_sub(state.claimed_ns.unwrap_or(now_ns)));
            if let Some(limit) = slow {
                if age < limit {
                    soon = soon.min(limit - age);
                } else if !state.traced {
                    state.traced = true;
                    self.shared.counters.slow.fetch_add(1, Ordering::Relaxed);
                    self.traces.insert(id, in_flight.clone());
                    let generation = self.children.get(id).map(|c| c.generation);
                    if let Some(link) = generation.and_then(|g| self.zygote_of(g)) {
                        let _ = link.send(&ZygoteCommand::Trace { child: id });
                    }
                }
            }
            if let Some(limit) = terminate {
                let Some(age) = self.counted_age(id, age, state.ended, now) else {
                    continue;
                };
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

    /// Terminates children that have been busy for too long without a slot: in shutdown functions and destructors of a
    /// request whose response is complete.
    pub(super) fn end_long_shutdowns(&mut self, limit: Duration, now: Instant, now_ns: u64) {
        let is_late = |id: ChildId| {
            let since = self.shared.pool.port.child_status(id.index).busy_since?;
            let age = Duration::from_nanos(now_ns.saturating_sub(since));
            let age = self.counted_age(id, age, true, now)?;
            (age >= limit).then_some(id)
        };
        let late = self.children.iter().map(|child| child.id);
        let late: Vec<ChildId> = late.filter_map(is_late).collect();
        for id in late {
            self.terminate(id, "TerminateTimeout", now);
        }
    }

    /// Returns how much of a run's `age` counts towards `request_terminate_timeout`, or `None` if there is no limit.
    /// The script's work after its response is complete (`finished`) has no limit, as in php-fpm, unless
    /// `track_finished` is set. Without `track_finished`, once the child has been asked to exit, only the time since
    /// then counts.
    fn counted_age(
        &self,
        id: ChildId,
        age: Duration,
        finished: bool,
        now: Instant,
    ) -> Option<Duration> {
        if !finished {
            return Some(age);
        }
        let tracked = self.shared.pool.config.track_finished;
        let child = self.children.iter().find(|child| child.id == id)?;
        match child.state {
            ChildState::Serving { .. } => tracked.then_some(age),
            ChildState::Retiring if tracked => Some(age),
            ChildState::Retiring => Some(age.min(now.duration_since(child.since))),
            _ => None,
        }
    }

    pub(super) fn terminate(&mut self, id: ChildId, why: &'static str, now: Instant) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        if matches!(child.state, ChildState::Terminating { .. }) {
            return;
        }
        child.set_state(
            ChildState::Terminating {
                kill_at: Some(now + KILL_GRACE),
                why,
            },
            now,
        );
        let pid = child.pid;
        // A script may handle SIGTERM and end before SIGKILL. Its child must not claim another request, which would be
        // killed in its place.
        sys::wake(self.shared.pool.port.retire(id.index));
        self.log_event(
            LogLevel::Warning,
            why,
            &format!("child {} (pid {pid}) is terminated", id.index),
        );
        self.signal(id, Signal::TERM);
    }

    pub(super) fn signal(&mut self, id: ChildId, signal: Signal) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        let direct = match &child.pidfd {
            Some(fd) => process::signal(fd.as_fd(), signal).is_ok(),
            None => false,
        };
        let generation = child.generation;
        if !direct && let Some(link) = self.zygote_of(generation) {
            let _ = link.send(&ZygoteCommand::Signal {
                child: id,
                signal: signal.as_raw(),
            });
        }
    }

    /// Sends SIGKILL to children that have outlived their SIGTERM. Returns the time until the next one is due.
    pub(super) fn kill_overdue_children(&mut self, now: Instant) -> Duration {
        let mut soon = Duration::from_secs(3600);
        let mut deaf = Vec::new();
        for child in self.children.iter_mut() {
            if let ChildState::Terminating { kill_at, .. } = &mut child.state
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

    pub(super) fn on_trace(&mut self, id: ChildId, stack: &str) {
        let Some(in_flight) = self.traces.remove(&id) else {
            return;
        };
        let text = |name: &str| {
            String::from_utf8_lossy(in_flight.frame.variable(name).unwrap_or_default()).into_owned()
        };
        let running = Duration::from_nanos(sys::now_ns().saturating_sub(in_flight.started_ns));
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let stack = stack.trim_end();
        let row = SlowRow {
            at: at.unwrap_or_default().as_secs(),
            seconds: running.as_secs_f64(),
            method: text("REQUEST_METHOD"),
            uri: text("REQUEST_URI"),
            script: text("SCRIPT_FILENAME"),
            stack: stack[..stack.floor_char_boundary(SlowRow::MAX_STACK_BYTES)].to_owned(),
        };
        self.log_event(
            LogLevel::Warning,
            "SlowRequest",
            &format!(
                "{} {} script {} running for {:.3} s in child {}\n{stack}",
                row.method, row.uri, row.script, row.seconds, id.index,
            ),
        );
        let mut slow = self.shared.slow.lock().unwrap_or_else(|e| e.into_inner());
        slow.push_front(row);
        slow.truncate(SlowRow::MAX_ROWS);
    }
}
