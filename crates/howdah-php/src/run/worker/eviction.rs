//! Decides which connection is closed at the connection limit to admit a new visitor: the one that has been silent for
//! the longest time, and never one whose request is being handled. A client that opens connections and stays silent
//! thus keeps no other client out.

use super::SwooleWorker;
use crate::run::connection::Connection;
use crate::run::log;

/// How many connections are chosen at once, since a scan of all of them for each new connection would cost too much.
const CHOSEN: usize = 1024;
/// Minimum time between two log lines about closed connections (ms).
const LOG_EVERY: u64 = 10_000;

/// A connection that may be closed if it has not been active since it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// When it was last active (ms).
    active: u64,
    served: u64,
    id: u64,
}

/// The connections to close next; the last element is closed first.
#[derive(Debug, Default)]
pub struct Eviction {
    chosen: Vec<Candidate>,
    logged_at: Option<u64>,
}

impl SwooleWorker {
    /// Closes the connection of this worker that has been silent for the longest time. Returns false if there is none.
    pub(super) fn close_a_silent_one(&mut self) -> bool {
        let Some(id) = self.next_candidate() else {
            return false;
        };
        self.close(id);
        if self
            .eviction
            .logged_at
            .is_none_or(|at| self.now - at >= LOG_EVERY)
        {
            self.eviction.logged_at = Some(self.now);
            log::warn(
                "TooManyConnections: the limit is reached; for each new connection the one that has been silent longest is closed",
            );
        }
        true
    }

    /// Returns whether a silent connection could be closed for a new one.
    pub(super) fn has_a_silent_one(&self) -> bool {
        let mut connections = self
            .slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref());
        connections.any(Connection::is_silent)
    }

    fn next_candidate(&mut self) -> Option<u64> {
        while let Some(candidate) = self.eviction.chosen.pop() {
            if self.candidate(candidate.id) == Some(candidate) {
                return Some(candidate.id);
            }
        }
        let mut all: Vec<_> = (0..self.slots.len() as u32)
            .filter_map(|slot| self.candidate(self.id(slot)))
            .collect();
        if all.len() > CHOSEN {
            all.select_nth_unstable(CHOSEN);
            all.truncate(CHOSEN);
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        self.eviction.chosen = all;
        Some(self.eviction.chosen.pop()?.id)
    }

    fn candidate(&self, id: u64) -> Option<Candidate> {
        let connection = self.slots[self.slot(id)?].connection.as_ref()?;
        connection.is_silent().then_some(Candidate {
            active: connection.active,
            served: connection.served,
            id,
        })
    }
}
