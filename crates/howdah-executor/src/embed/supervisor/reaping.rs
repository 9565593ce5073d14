//! Forks, retires and replaces children, and cleans up after those that died.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use howdah_proto::control::{Command, Exit};
use howdah_proto::level::Level;
use howdah_proto::shm::{ChildId, EXIT_BAILED_OUT, EXIT_BROKEN};

use super::super::children::Child;
use super::super::pidfd::{self, Origin};
use super::super::zygote::ProtocolError;
use super::healing::pool_corrupt;
use super::{
    Census, ExecError, INFANT, Life, Ordering, Supervisor, ZygoteClient, ZygoteState, pm, sys,
};
use crate::common::process;

/// The progress of replacing children.
#[derive(Default)]
struct Replacements {
    /// Children that must be replaced.
    worn: Vec<ChildId>,
    /// Children whose replacement serves, so they can exit.
    relieved: Vec<ChildId>,
    /// Children whose replacement did not start.
    forsaken: Vec<ChildId>,
    /// The number of replacements that are starting.
    under_way: u32,
}

impl Supervisor {
    /// Records that a zygote has forked a child. Signals are sent through the descriptor that came with the report.
    /// Like everything from a zygote, the report is untrusted: the child must have been ordered, be reported once, and
    /// belong to that zygote. Otherwise the user of a pool could make this process signal any of its other processes.
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
        let zygote = self.link_of(generation).map(ZygoteClient::pid);
        let origin = fd.as_ref().map(|fd| pidfd::origin(fd.as_fd(), pid, zygote));
        if origin == Some(Origin::Other) {
            let why = format!("process {pid} is not a child of the zygote's");
            return Err(ProtocolError::of("spawned", &why));
        }
        let Some(child) = self.children.get(id) else {
            return Ok(());
        };
        child.pid = pid;
        // If there is no descriptor, or its origin is unknown, signals are sent through the zygote. A bare process id
        // is only the zygote's claim and might name any process.
        child.pidfd = fd.filter(|_| origin == Some(Origin::Zygote));
        child.born = now;
        let life = if self.shared.pool.config.worker.is_some() {
            Life::Booting
        } else {
            Life::serving(now)
        };
        child.become_(life, now);
        self.fork_at = self.fork_at.min(now);
        Ok(())
    }

    pub(super) fn on_exited(&mut self, id: ChildId, exit: Exit, now: Instant) {
        self.look_for_the_booted(now);
        let Some(child) = self.children.remove(id) else {
            return;
        };
        let row = self.shared.pool.port.child(id.index);
        let served = row.requests;
        self.served |= served > 0 && child.generation == self.generation;
        self.shared.pool.port.strike(id.index);
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
            Life::Terminating {
                why: "PoolCorrupt", ..
            } => pool_corrupt(),
            _ => ExecError::ChildDied(exit),
        };
        let (mut lost, mut awaited) = (0, false);
        for lane in &self.shared.lanes {
            let gone = lane.child_gone(&self.shared.pool, id, &verdict);
            lost += gone.requests;
            awaited |= gone.awaited;
        }
        if matches!(child.life, Life::Booting) {
            return self.boot_ended(&child, exit, now);
        }
        // A worker script may exit between any two requests, any other child after its last one.
        let may_end = row.spent || self.shared.pool.config.worker.is_some();
        let bailed_out = row.spent && exit == Exit::Code(EXIT_BAILED_OUT);
        if bailed_out || exit == Exit::Code(EXIT_BROKEN) {
            let counters = &self.shared.counters;
            counters.bailouts.fetch_add(1, Ordering::Relaxed);
        }
        let by_itself = may_end && (bailed_out || exit == Exit::Code(0)) && served > 0 && lost == 0;
        let expected = by_itself || matches!(child.life, Life::Retiring | Life::Terminating { .. });
        if !expected || (lost > 0 && matches!(child.life, Life::Retiring)) {
            let how = process::exit_text(exit);
            // The log line about the request, which is an error, contains the same and more.
            self.say(
                if awaited { Level::Info } else { Level::Warning },
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

    /// Finds children that have exited after their zygote. No zygote reports these, so their pidfds are checked.
    pub(super) fn look_for_orphans(&mut self) {
        let gone: Vec<ChildId> = self
            .children
            .iter()
            .filter(|c| !self.has_zygote(c.generation))
            .filter(|c| {
                c.pidfd
                    .as_ref()
                    .is_none_or(|fd| process::readable(fd.as_fd()))
            })
            .map(|c| c.id)
            .collect();
        for id in gone {
            self.on_exited(id, Exit::Unseen, Instant::now());
        }
    }

    /// Kills a zygote that has not responded to a fork command, or not reported the exit of a child, in time. After
    /// that it is handled like any dead zygote.
    pub(super) fn look_for_a_stuck_zygote(&mut self, now: Instant) {
        let limit = self.shared.pool.config.timeouts.fork;
        if now.duration_since(self.deaths_looked_at) >= Duration::from_secs(1).min(limit / 4) {
            self.deaths_looked_at = now;
            for child in self.children.iter_mut() {
                if child.died.is_none()
                    && child
                        .pidfd
                        .as_ref()
                        .is_some_and(|fd| process::readable(fd.as_fd()))
                {
                    child.died = Some(now);
                }
            }
        }
        let late = |since: Instant| now.duration_since(since) >= limit;
        let fork = |c: &Child| matches!(c.life, Life::Starting) && late(c.since);
        let silent = if self.children.iter().any(fork) {
            "has not answered a fork command"
        } else if self.children.iter().any(|c| c.died.is_some_and(late)) {
            "has not reported the end of a child"
        } else {
            return;
        };
        if let ZygoteState::Ready { link } = &self.zygote {
            link.kill();
            let message = format!(
                "the zygote (pid {}) {silent} for {limit:?} and is killed",
                link.pid()
            );
            self.say(Level::Error, "ZygoteStuck", &message);
        }
    }

    /// Reads from the scoreboard since when each child has been idle.
    pub(super) fn look_at_children(&mut self, now: Instant) {
        for child in self.children.iter_mut() {
            if let Life::Serving {
                idle_since,
                seen_requests,
                ..
            } = &mut child.life
            {
                let row = self.shared.pool.port.child(child.id.index);
                if row.busy_since.is_some() || row.requests != *seen_requests {
                    *seen_requests = row.requests;
                    *idle_since = now;
                }
            }
        }
    }

    /// Counts the children by state. Also returns the children that have been idle for too long, and since when.
    fn census(&self, now: Instant) -> (Census, Vec<(Instant, ChildId)>) {
        let pool = &self.shared.pool;
        let mut census = Census::default();
        let mut idle: Vec<(Instant, ChildId)> = Vec::new();
        for child in self.children.iter() {
            match &child.life {
                Life::Starting | Life::Booting => census.starting += 1,
                Life::Serving { idle_since, .. } => {
                    if pool.port.child(child.id.index).busy_since.is_some() {
                        census.busy += 1;
                    } else {
                        census.idle += 1;
                        if now.duration_since(*idle_since) >= pool.config.process_idle_timeout {
                            census.idle_expired += 1;
                            idle.push((*idle_since, child.id));
                        }
                    }
                }
                // It counts until it has been reaped. Otherwise a pool of hanging children would grow beyond its limit.
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
        (census, idle)
    }

    /// Forks and retires children as `pm` plans. Returns the time until the next plan.
    pub(super) fn grow_and_shrink(&mut self, now: Instant) -> Duration {
        let (census, mut idle) = self.census(now);
        let config = &self.shared.pool.config;
        let mut plan = pm::plan(config.pm, config.max_children, self.first_plan, census);
        if config.worker.is_some() {
            let none = census.starting + census.idle + census.busy == 0;
            plan.fork = self
                .workers
                .allow(plan.fork.max(u32::from(none)), census.starting);
        }
        self.first_plan = false;
        let total = census.starting + census.idle + census.busy;
        let growing = total + plan.fork < config.max_children;
        self.shared.pool.may_grow.store(growing, Ordering::Relaxed);
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

    /// Orders a child from the zygote.
    pub(super) fn fork(&mut self, now: Instant) -> Option<ChildId> {
        let ZygoteState::Ready { link } = &self.zygote else {
            return None;
        };
        let id = self.children.begin(self.generation, now)?;
        self.shared.pool.port.enlist(id);
        let command = Command::Spawn {
            child: id,
            max_requests: self.shared.pool.config.max_requests,
        };
        if link.send(&command).is_err() {
            // The zygote's socket is full or closed. A closed socket is noticed when it is read.
            self.children.remove(id);
            self.shared.pool.port.strike(id.index);
            return None;
        }
        Some(id)
    }

    pub(super) fn retire(&mut self, id: ChildId, now: Instant) {
        if let Some(child) = self.children.get(id) {
            child.become_(Life::Retiring, now);
            sys::wake(self.shared.pool.port.retire(id.index));
        }
    }

    /// Orders a replacement for each child that has grown beyond `max_memory`. The child retires when its replacement
    /// serves. A child that has begun the last of its `max_requests` exits by itself, and its replacement is forked
    /// meanwhile.
    pub(super) fn hand_over_to_replacements(&mut self, now: Instant) {
        let Replacements {
            worn,
            relieved,
            forsaken,
            mut under_way,
        } = self.replacements(now);
        for id in relieved {
            self.retire(id, now);
        }
        for id in forsaken {
            if let Some(child) = self.children.get(id)
                && let Life::Serving { replaced_by, .. } = &mut child.life
            {
                *replaced_by = None;
            }
        }
        let worker = self.shared.pool.config.worker.is_some();
        let at_once = (self.shared.pool.config.max_children / 4).max(1);
        for id in worn {
            if under_way >= at_once || self.fork_at > now {
                return;
            }
            if worker && self.workers.allow(1, under_way) == 0 {
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

    /// Returns which children must be replaced, and the progress of the replacements under way.
    fn replacements(&mut self, now: Instant) -> Replacements {
        let mut found = Replacements::default();
        let worker = self.shared.pool.config.worker.is_some();
        let look_at_memory = self.shared.pool.config.max_memory.is_some()
            && now.duration_since(self.memory_looked_at) >= Duration::from_secs(1);
        if look_at_memory {
            self.memory_looked_at = now;
        }
        for child in self.children.iter() {
            let Life::Serving { replaced_by, .. } = &child.life else {
                continue;
            };
            if let Some(successor) = replaced_by {
                let its_life = self.children.iter().find(|c| c.id == *successor);
                match its_life.map(|c| &c.life) {
                    Some(Life::Starting | Life::Booting) => found.under_way += 1,
                    // The replacement's script did not boot, so the old worker continues until one does.
                    None | Some(Life::Retiring | Life::Terminating { .. }) if worker => {
                        found.forsaken.push(child.id);
                    }
                    _ => found.relieved.push(child.id),
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
            let outdated = self.restarts() && child.generation < self.generation;
            if too_large || outdated || self.shared.pool.port.child(child.id.index).spent {
                found.worn.push(child.id);
            }
        }
        found
    }
}
