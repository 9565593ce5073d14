//! The slots of a pool: each has a listening socket and the program behind it, with one state. This module only stores
//! them: it starts and stops no program.

use std::time::Instant;

use super::sockets::ProgramSocket;
use crate::programs::spawner_client::SpawnedProcess;

/// The state of a slot's program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotStage {
    /// The slot has no program.
    Empty,
    /// The program has been ordered from the spawner. It serves once it responds, or once it has lived for a while.
    Starting,
    /// The program gets requests.
    Serving {
        /// The slot of its replacement, which has been ordered.
        replaced_by: Option<usize>,
    },
    /// A request on the program broke off, and the program may still be running it. The program gets no requests until
    /// it responds.
    Doubtful {
        /// When the program is terminated if it has not responded.
        until: Instant,
    },
    /// The program gets no more requests, and is terminated when it has none left.
    Retiring {
        /// When the program is terminated even if it still has requests.
        until: Instant,
    },
    /// The program has been sent SIGTERM; the spawner sends SIGKILL.
    Ending,
}

/// A listening socket and the program behind it.
pub(super) struct ProgramSlot {
    pub listening: ProgramSocket,
    pub stage: SlotStage,
    /// When the slot entered its stage.
    pub since: Instant,
    /// The program, from its order to its exit.
    pub process: Option<SpawnedProcess>,
    pub pid: i32,
    pub born: Instant,
    /// The number of requests that earlier programs on this socket had served.
    pub served_before: u64,
    /// The number of timeouts on this socket that have been handled.
    pub timeouts_handled: u64,
    /// The replacement is ordered after this many requests; 0 means never.
    pub replace_after: u64,
    /// Whether the program has responded to GET_VALUES. Only then can it be asked whether it is free.
    pub responds_to_probe: bool,
    /// Whether the program has been asked whether it is free, and has not responded yet.
    pub probe_under_way: bool,
    /// The time of the last check at which the program was running a request, or had served one since the check before.
    pub idle_since: Instant,
    /// The number of requests that programs on this socket had served at the last check.
    pub served_seen: u64,
    /// Distinguishes a program from earlier ones in the slot.
    pub incarnation: u64,
}

impl ProgramSlot {
    /// Changes the slot's stage, beginning at `now`.
    pub fn set_stage(&mut self, stage: SlotStage, now: Instant) {
        self.stage = stage;
        self.since = now;
    }

    /// Returns the word for the stage on the status page.
    pub fn stage_name(&self, busy: bool) -> &'static str {
        match self.stage {
            SlotStage::Empty => "Empty",
            SlotStage::Starting => "Starting",
            SlotStage::Serving { .. } if busy => "Busy",
            SlotStage::Serving { .. } => "Idle",
            SlotStage::Doubtful { .. } => "Finishing",
            SlotStage::Retiring { .. } => "Retiring",
            SlotStage::Ending => "Terminating",
        }
    }
}

/// The slots of a pool; an index identifies a slot.
pub(super) struct ProgramSlots(pub Vec<ProgramSlot>);

impl ProgramSlots {
    /// Creates an empty slot for each socket.
    pub fn new(sockets: Vec<ProgramSocket>) -> ProgramSlots {
        let now = Instant::now();
        let slot = |listening| ProgramSlot {
            listening,
            stage: SlotStage::Empty,
            since: now,
            process: None,
            pid: 0,
            born: now,
            served_before: 0,
            timeouts_handled: 0,
            replace_after: 0,
            responds_to_probe: false,
            probe_under_way: false,
            idle_since: now,
            served_seen: 0,
            incarnation: 0,
        };
        ProgramSlots(sockets.into_iter().map(slot).collect())
    }

    /// Returns the index of the first slot without a program.
    pub fn first_empty(&self) -> Option<usize> {
        self.0
            .iter()
            .position(|slot| slot.stage == SlotStage::Empty)
    }
}
