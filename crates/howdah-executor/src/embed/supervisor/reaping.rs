//! Forks, retires and replaces children, and cleans up after those that died.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_os::clock;
use howdah_proto::control::{Exit, ZygoteCommand};
use howdah_proto::level::LogLevel;
use howdah_proto::shm::{ChildId, EXIT_BAILED_OUT, EXIT_BROKEN};

use super::super::children::PoolChild;
use super::super::pidfd::{self, PidfdOrigin};
use super::super::zygote::ProtocolError;
use super::memory_repair::pool_corrupt_error;
use super::{
    Census, ChildState, ExecError, FAILED_FORK_AGE, Ordering, Supervisor, ZygoteClient,
    ZygoteState, pm, sys,
};
use crate::common::process;

/// The progress of replacing children.
#[derive(Default)]
struct Replacements {
    /// Children that must be replaced.
    due: Vec<ChildId>,
    /// Children whose replacement serves, so they can exit.
    replaced: Vec<ChildId>,
    /// Children whose replacement did not start.
    failed: Vec<ChildId>,
    /// The number of replacements that are starting.
    under_way: u32,
}

impl Supervisor {
    /// Records that a zygote has forked a child. Signals are sent through the descriptor that came with the report.
    /// Like everything from a zygote, the report is untrusted: the child must have been requested from that zygote, and
    /// be reported only once. Otherwise the user of a pool could make the front signal processes that do not belong to
    /// the pool.
    pub(super) fn on_spawned(
        &mut self,
        id: ChildId,
        pid: i32,
        fd: Option<OwnedFd>,
        generation: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if !self.is_starting(id, generation) {
            return Err(ProtocolError::of("spawned", "no such child was requested"));
        }
        let zygote = self.zygote_of(generation).map(ZygoteClient::pid);
        let origin = fd.as_ref().map(|fd| pidfd::origin(fd.as_fd(), pid, zygote));
        if origin == Some(PidfdOrigin::Other) {
            let why = format!("process {pid} is not a child of the zygote");
            return Err(ProtocolError::of("spawned", &why));
        }
        let Some(child) = self.children.get(id) else {
            return Ok(());
        };
        child.pid = pid;
        // If there is no descriptor, or its origin is unknown, signals are sent through the zygote. A bare process id
        // is only the zygote's claim and might name any process.
        child.pidfd = fd.filter(|_| origin == Some(PidfdOrigin::Zygote));
        child.born = now;
        let life = if self.shared.pool.config.worker.is_some() {
            ChildState::Booting
        } else {
            ChildState::serving(now)
        };
        child.set_state(life, now);
        self.next_fork_at = self.next_fork_at.min(now);
        Ok(())
    }

    pub(super) fn on_exited(&mut self, id: ChildId, exit: Exit, now: Instant) {
        self.find_booted_workers(now);
        let Some(child) = self.children.remove(id) else {
            return;
        };
        let row = self.shared.pool.port.child_status(id.index);
        let served = row.requests;
        self.served |= served > 0 && child.generation == self.generation;
        self.shared.pool.port.remove_child(id.index);
        self.traces.remove(&id);
        let verdict = match &child.state {
            ChildState::Terminating {
                why: "TerminateTimeout",
                ..
            } => ExecError::TerminateTimeout,
            ChildState::Terminating {
                why: "Stopping", ..
            } => ExecError::Stopping,
            ChildState::Terminating {
                why: "ResponseCorrupt",
                ..
            } => ExecError::ResponseCorrupt,
            ChildState::Terminating {
                why: "PoolCorrupt", ..
            } => pool_corrupt_error(),
            _ => ExecError::ChildDied(exit),
        };
        let (mut lost, mut awaited) = (0, false);
        for lane in &self.shared.lanes {
            let gone = lane.end_child_requests(&self.shared.pool, id, &verdict);
            lost += gone.requests;
            awaited |= gone.has_waiting_run;
        }
        if matches!(child.state, ChildState::Booting) {
            return self.on_exit_during_boot(exit, now);
        }
        // A worker script may exit between any two requests; any other child may exit only after its last request.
        let may_end = row.spent || self.shared.pool.config.worker.is_some();
        let bailed_out = row.spent && exit == Exit::Code(EXIT_BAILED_OUT);
        if bailed_out || exit == Exit::Code(EXIT_BROKEN) {
            let counters = &self.shared.counters;
            counters.bailouts.fetch_add(1, Ordering::Relaxed);
        }
        let by_itself = may_end && (bailed_out || exit == Exit::Code(0)) && served > 0 && lost == 0;
        let expected = by_itself
            || matches!(
                child.state,
                ChildState::Retiring | ChildState::Terminating { .. }
            );
        if !expected || (lost > 0 && matches!(child.state, ChildState::Retiring)) {
            let how = process::exit_text(exit);
            // If a run waits, the log line about its request is an error and contains the same and more.
            self.log_event(
                if awaited {
                    LogLevel::Info
                } else {
                    LogLevel::Warning
                },
                "ChildDied",
                &format!(
                    "child {} (pid {}) exited after {served} requests ({how}); {lost} request was lost",
                    id.index, child.pid
                ),
            );
        }
        if !expected && served == 0 && now.duration_since(child.born) < FAILED_FORK_AGE && lost == 0
        {
            self.next_fork_at = now + self.fork_backoff.record_failure();
        } else if served > 0 {
            self.fork_backoff.record_success();
        }
    }

    /// Finds children that have exited after their zygote. No zygote reports these, so their pidfds are checked.
    pub(super) fn reap_orphans(&mut self) {
        let gone: Vec<ChildId> = self
            .children
            .iter()
            .filter(|c| !self.has_zygote(c.generation))
            .filter(|c| {
                c.pidfd
                    .as_ref()
                    .is_none_or(|fd| process::is_readable(fd.as_fd()))
            })
            .map(|c| c.id)
            .collect();
        for id in gone {
            self.on_exited(id, Exit::Unseen, clock::now());
        }
    }

    /// Kills a zygote that has not responded to a fork command, or not reported the exit of a child, in time. After
    /// that it is handled like any dead zygote.
    pub(super) fn kill_stuck_zygote(&mut self, now: Instant) {
        let limit = self.shared.pool.config.timeouts.fork;
        if now.duration_since(self.exits_checked_at) >= Duration::from_secs(1).min(limit / 4) {
            self.exits_checked_at = now;
            for child in self.children.iter_mut() {
                if child.died.is_none()
                    && child
                        .pidfd
                        .as_ref()
                        .is_some_and(|fd| process::is_readable(fd.as_fd()))
                {
                    child.died = Some(now);
                }
            }
        }
        let late = |since: Instant| now.duration_since(since) >= limit;
        let fork = |c: &PoolChild| matches!(c.state, ChildState::Starting) && late(c.since);
        let silent = if self.children.iter().any(fork) {
            "has not responded to a fork command"
        } else if self.children.iter().any(|c| c.died.is_some_and(late)) {
            "has not reported the exit of a child"
        } else {
            return;
        };
        if let ZygoteState::Ready { link } = &self.zygote {
            link.kill();
            let message = format!(
                "the zygote (pid {}) {silent} for {limit:?}, so Howdah kills it",
                link.pid()
            );
            self.log_event(LogLevel::Error, "ZygoteStuck", &message);
        }
    }

    /// Reads from the scoreboard when each child became idle.
    pub(super) fn update_idle_times(&mut self, now: Instant) {
        for child in self.children.iter_mut() {
            if let ChildState::Serving {
                idle_since,
                seen_requests,
                ..
            } = &mut child.state
            {
                let row = self.shared.pool.port.child_status(child.id.index);
                if row.busy_since.is_some() || row.requests != *seen_requests {
                    *seen_requests = row.requests;
                    *idle_since = now;
                }
            }
        }
    }

    /// Counts the children by state. Also returns the children that have been idle for too long, with the time at which
    /// each became idle.
    fn census(&self, now: Instant) -> (Census, Vec<(Instant, ChildId)>) {
        let pool = &self.shared.pool;
        let mut census = Census::default();
        let mut idle: Vec<(Instant, ChildId)> = Vec::new();
        for child in self.children.iter() {
            match &child.state {
                ChildState::Starting | ChildState::Booting => census.starting += 1,
                ChildState::Serving { idle_since, .. } => {
                    if pool.port.child_status(child.id.index).busy_since.is_some() {
                        census.busy += 1;
                    } else {
                        census.idle += 1;
                        if now.duration_since(*idle_since) >= pool.config.process_idle_timeout {
                            census.idle_expired += 1;
                            idle.push((*idle_since, child.id));
                        }
                    }
                }
                // The child counts as busy until it has been reaped. Otherwise a pool of hanging children would grow
                // beyond its limit.
                ChildState::Terminating { .. } => census.busy += 1,
                ChildState::Retiring => {}
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
        (census, idle)
    }

    /// Forks and retires children as `pm` plans. Returns the time until the next plan.
    pub(super) fn scale_children(&mut self, now: Instant) -> Duration {
        let (census, mut idle) = self.census(now);
        let config = &self.shared.pool.config;
        let mut plan = pm::plan(config.pm, config.max_children, self.first_plan, census);
        if config.worker.is_some() {
            let none = census.starting + census.idle + census.busy == 0;
            plan.fork = self
                .workers
                .limit_forks(plan.fork.max(u32::from(none)), census.starting);
        }
        self.first_plan = false;
        let total = census.starting + census.idle + census.busy;
        let growing = total + plan.fork < config.max_children;
        let could_grow = self.shared.pool.may_grow.swap(growing, Ordering::Relaxed);
        if plan.retire > 0 {
            idle.sort_by_key(|(since, _)| *since);
            for (_, id) in idle.into_iter().take(plan.retire as usize) {
                self.retire(id, now);
            }
        }
        if plan.fork > 0 {
            if self.next_fork_at > now {
                return self.next_fork_at - now;
            }
            for _ in 0..plan.fork {
                if self.fork(now).is_none() {
                    return Duration::from_millis(20);
                }
            }
        }
        if growing && !could_grow {
            // A front thread may have queued a request after the census, and asked for no children because the pool could
            // not grow then. The next census counts the request, because both take the lane's lock.
            return Duration::ZERO;
        }
        plan.recheck_after.unwrap_or(Duration::from_secs(3600))
    }

    /// Orders a child from the zygote.
    pub(super) fn fork(&mut self, now: Instant) -> Option<ChildId> {
        let ZygoteState::Ready { link } = &self.zygote else {
            return None;
        };
        let id = self.children.reserve_row(self.generation, now)?;
        self.shared.pool.port.prepare_row(id);
        let command = ZygoteCommand::Spawn {
            child: id,
            max_requests: self.shared.pool.config.max_requests,
        };
        if link.send(&command).is_err() {
            // The zygote's socket is full or closed. A closed socket is noticed when it is read.
            self.children.remove(id);
            self.shared.pool.port.remove_child(id.index);
            return None;
        }
        Some(id)
    }

    pub(super) fn retire(&mut self, id: ChildId, now: Instant) {
        if let Some(child) = self.children.get(id) {
            child.set_state(ChildState::Retiring, now);
            sys::wake(self.shared.pool.port.retire(id.index));
        }
    }

    /// Orders a replacement for each child that has grown beyond `max_memory`. The child retires when its replacement
    /// serves. A child that has begun the last of its `max_requests` exits by itself, and its replacement is forked
    /// meanwhile.
    pub(super) fn hand_over_to_replacements(&mut self, now: Instant) {
        let Replacements {
            due: worn,
            replaced: relieved,
            failed: forsaken,
            mut under_way,
        } = self.replacements(now);
        for id in relieved {
            self.retire(id, now);
        }
        for id in forsaken {
            if let Some(child) = self.children.get(id)
                && let ChildState::Serving { replaced_by, .. } = &mut child.state
            {
                *replaced_by = None;
            }
        }
        let worker = self.shared.pool.config.worker.is_some();
        let at_once = (self.shared.pool.config.max_children / 4).max(1);
        for id in worn {
            if under_way >= at_once || self.next_fork_at > now {
                return;
            }
            if worker && self.workers.limit_forks(1, under_way) == 0 {
                return;
            }
            let Some(successor) = self.fork(now) else {
                return;
            };
            under_way += 1;
            if let Some(child) = self.children.get(id)
                && let ChildState::Serving { replaced_by, .. } = &mut child.state
            {
                *replaced_by = Some(successor);
            }
        }
    }

    /// Returns which children must be replaced, and the progress of the replacements under way.
    fn replacements(&mut self, now: Instant) -> Replacements {
        let mut found = Replacements::default();
        let worker = self.shared.pool.config.worker.is_some();
        let look_at_memory = self.shared.pool.config.max_memory.is_some()
            && now.duration_since(self.memory_checked_at) >= Duration::from_secs(1);
        if look_at_memory {
            self.memory_checked_at = now;
        }
        for child in self.children.iter() {
            let ChildState::Serving { replaced_by, .. } = &child.state else {
                continue;
            };
            if let Some(successor) = replaced_by {
                let its_life = self.children.iter().find(|c| c.id == *successor);
                match its_life.map(|c| &c.state) {
                    Some(ChildState::Starting | ChildState::Booting) => found.under_way += 1,
                    // The replacement's script did not boot, so the old worker continues until one does.
                    None | Some(ChildState::Retiring | ChildState::Terminating { .. })
                        if worker =>
                    {
                        found.failed.push(child.id);
                    }
                    _ => found.replaced.push(child.id),
                }
                continue;
            }
            let too_large = look_at_memory
                && self
                    .shared
                    .pool
                    .config
                    .max_memory
                    .is_some_and(|limit| process::resident_bytes(child.pid) > limit);
            let outdated = child.generation < self.generation;
            if too_large || outdated || self.shared.pool.port.child_status(child.id.index).spent {
                found.due.push(child.id);
            }
        }
        found
    }
}
