//! The slots of a pool: a listening socket each, and the program behind it, as one state. Starts and
//! ends nothing.

use std::time::Instant;

use super::sockets::Listening;
use crate::programs::spawner_client::Process;

/// The state of a slot's program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotStage {
    /// The slot has no program.
    Empty,
    /// It has been asked for; it serves when it answers, or has lived for a while.
    Starting,
    /// The program gets requests.
    Serving {
        /// The slot of its replacement, which has been asked for.
        replaced_by: Option<usize>,
    },
    /// A request on it broke off: does it still run it? Gets no requests until it answers.
    Doubtful {
        /// When the program is ended if it has not answered.
        until: Instant,
    },
    /// It gets no more requests, and leaves when it has none.
    Retiring {
        /// When it is ended even if it still has requests.
        until: Instant,
    },
    /// It has been sent SIGTERM; the spawner sends SIGKILL.
    Ending,
}

/// A listening socket and the program behind it.
pub(super) struct Slot {
    pub listening: Listening,
    pub stage: SlotStage,
    /// Since when the stage is what it is.
    pub since: Instant,
    /// The program, from the order to its end.
    pub process: Option<Process>,
    pub pid: i32,
    pub born: Instant,
    /// Answers of the socket's programs before this one.
    pub answered_before: u64,
    /// Time-outs of the socket's programs that have been dealt with.
    pub overdue_seen: u64,
    /// Its replacement is asked for after this many requests; 0: never.
    pub worn_after: u64,
    /// It has answered GET_VALUES: it can be asked whether it is free.
    pub answers: bool,
    /// A question to it is on its way.
    pub asked: bool,
    /// When it was last seen to run something or to have answered.
    pub idle_since: Instant,
    pub answered_seen: u64,
    /// Tells a program from those before it in the slot.
    pub incarnation: u64,
}

impl Slot {
    /// Puts the slot into another stage, which it is in since `now`.
    pub fn become_(&mut self, stage: SlotStage, now: Instant) {
        self.stage = stage;
        self.since = now;
    }

    /// The word for the stage on the status page.
    pub fn name(&self, busy: bool) -> &'static str {
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
pub(super) struct Slots(pub Vec<Slot>);

impl Slots {
    /// Makes an empty slot for each socket.
    pub fn new(sockets: Vec<Listening>) -> Slots {
        let now = Instant::now();
        let slot = |listening| Slot {
            listening,
            stage: SlotStage::Empty,
            since: now,
            process: None,
            pid: 0,
            born: now,
            answered_before: 0,
            overdue_seen: 0,
            worn_after: 0,
            answers: false,
            asked: false,
            idle_since: now,
            answered_seen: 0,
            incarnation: 0,
        };
        Slots(sockets.into_iter().map(slot).collect())
    }

    /// Index of the first slot without a program.
    pub fn empty(&self) -> Option<usize> {
        self.0
            .iter()
            .position(|slot| slot.stage == SlotStage::Empty)
    }
}
