//! Detects damage to a pool's shared memory, for example by a stray write of an extension, and rebuilds the pool. With
//! damaged memory, requests do not reach the children although everything else looks fine.
//!
//! ```text
//! Damaged → all children are killed, the zygote exits → no process is left → the memory is reset to its
//!           initial state → the next zygote
//! ```
//! Requests that had not been offered to a child wait meanwhile.

use std::time::{Duration, Instant};

use howdah_os::clock;
use howdah_proto::level::LogLevel;
use howdah_proto::shm::ChildId;
use rustix::process::Signal;

use super::{ChildState, ExecError, PoolCondition, Supervisor, sys};
use crate::common::process;

/// How often the memory is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// If requests have waited this long although children sleep, the children are woken, whatever the memory says.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// The state of the memory checks.
pub(super) struct MemoryRepair {
    checked_at: Instant,
    /// The number of requests that the pool had accepted when all children were woken.
    woken_at: Option<u64>,
    /// The number of requests that the pool had accepted at the last check.
    accepted: u64,
    /// Whether the memory is damaged. No zygote is started before the memory has been reset.
    damaged: bool,
}

impl MemoryRepair {
    pub fn new(now: Instant) -> MemoryRepair {
        MemoryRepair {
            checked_at: now,
            woken_at: None,
            accepted: 0,
            damaged: false,
        }
    }
}

impl Supervisor {
    /// Checks the pool's memory, and rebuilds the pool if the memory is damaged.
    pub(super) fn check_memory(&mut self, now: Instant) {
        if now.duration_since(self.memory_repair.checked_at) < CHECK_INTERVAL
            || self.memory_repair.damaged
        {
            return;
        }
        self.memory_repair.checked_at = now;
        for lane in &self.shared.lanes {
            // A done slot whose notification has been overwritten would otherwise never be found.
            lane.handle_done_slots(&self.shared.pool);
        }
        if let Some(damage) = self.find_damage().or_else(|| self.find_stalled_children()) {
            self.rebuild(damage, now);
        }
    }

    fn find_damage(&self) -> Option<&'static str> {
        if !self.shared.pool.port.is_intact() {
            return Some("its header has been overwritten");
        }
        let lives = |id: ChildId| self.children.iter().any(|child| child.id == id);
        let intact = self.shared.lanes.iter().all(|lane| lane.is_intact(lives));
        (!intact).then_some("its record of the requests contradicts itself")
    }

    /// Describes the damage if requests wait although children sleep, and the children continue to sleep after they
    /// were woken.
    fn find_stalled_children(&mut self) -> Option<&'static str> {
        let answered = self.shared.sum(|counters| &counters.accepted);
        let progress = std::mem::replace(&mut self.memory_repair.accepted, answered) != answered;
        let oldest = self.shared.lanes.iter();
        let oldest = oldest.filter_map(|lane| lane.oldest_unclaimed()).min()?;
        let waited = Duration::from_nanos(sys::now_ns().saturating_sub(oldest));
        let serving = |life: &ChildState| matches!(life, ChildState::Serving { .. });
        let serving = self.children.iter().filter(|child| serving(&child.state));
        if progress || waited < STALLED_AFTER {
            self.memory_repair.woken_at = None;
            return None;
        }
        if self.memory_repair.woken_at != Some(answered) {
            self.memory_repair.woken_at = Some(answered);
            for child in serving {
                sys::wake(self.shared.pool.port.force_wake(child.id.index));
            }
            return None;
        }
        let port = &self.shared.pool.port;
        let mut idle =
            serving.filter(|child| port.child_status(child.id.index).busy_since.is_none());
        idle.any(|child| process::is_sleeping(child.pid))
            .then_some("children sleep although requests wait for them")
    }

    fn rebuild(&mut self, damage: &str, now: Instant) {
        self.memory_repair.damaged = true;
        let message = format!(
            "the memory that the pool's processes share has been damaged: {damage}. Howdah rebuilds the pool; the requests that its processes were running are lost. Look for an extension, or a script with native code, that writes to memory that it does not own"
        );
        self.log_event(LogLevel::Error, "PoolCorrupt", &message);
        for lane in &self.shared.lanes {
            lane.suspend();
        }
        self.set_condition(PoolCondition::Starting);
        let all: Vec<ChildId> = self.children.iter().map(|child| child.id).collect();
        for id in all {
            self.signal(id, Signal::KILL);
            if let Some(child) = self.children.get(id) {
                let (kill_at, why) = (None, "PoolCorrupt");
                child.set_state(ChildState::Terminating { kill_at, why }, now);
            }
        }
        self.stop_other_zygotes(now);
        // The zygote may belong to another user. It exits by itself when it reads end-of-file from its control socket,
        // after the signals.
        self.stop_zygote(now);
    }

    /// Returns whether the next zygote may be started because the memory is intact. Resets damaged memory once no
    /// process is left that could write to it.
    pub(super) fn prepare_memory(&mut self) -> bool {
        if !self.memory_repair.damaged {
            return true;
        }
        if !self.children.is_empty() || !self.workers.is_empty() {
            return false;
        }
        self.shared.pool.port.reset(sys::now_ns());
        for lane in &self.shared.lanes {
            lane.reset(&self.shared.pool, &pool_corrupt_error());
        }
        self.memory_repair = MemoryRepair::new(clock::now());
        // Requests that still wait are not in the memory yet, so their threads must check again.
        self.shared.ring_all_bells();
        true
    }
}

/// Returns the failure of a request that was in damaged memory.
pub(super) fn pool_corrupt_error() -> ExecError {
    ExecError::PoolDown {
        name: "PoolCorrupt".to_owned(),
        message:
            "the memory that the pool's processes share has been damaged; the pool is being rebuilt"
                .to_owned(),
    }
}
