//! Decides which connection is closed at the connection limit to admit a new visitor: the one that has been silent for
//! the longest time, and never one whose request is being handled. A client that opens connections and stays silent
//! thus keeps no other client out.

use super::SwooleWorker;
use crate::run::connection::SwooleConnection;
use crate::run::log;

/// How many connections are chosen at once, since a scan of all of them for each new connection would cost too much.
const MAX_CANDIDATES: usize = 1024;
/// Minimum time between two log lines about closed connections (ms).
const LOG_INTERVAL_MS: u64 = 10_000;

/// A connection that may be closed if it has not been active since it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct EvictionCandidate {
    /// When it was last active (ms).
    active: u64,
    served: u64,
    id: u64,
}

/// The connections to close next; the last element is closed first.
#[derive(Debug, Default)]
pub struct Eviction {
    candidates: Vec<EvictionCandidate>,
    logged_at: Option<u64>,
}

impl SwooleWorker {
    /// Closes the connection of this worker that has been silent for the longest time. Returns false if there is none.
    pub(super) fn close_silent_connection(&mut self) -> bool {
        let Some(id) = self.next_candidate() else {
            return false;
        };
        self.close(id);
        if self
            .eviction
            .logged_at
            .is_none_or(|at| self.now - at >= LOG_INTERVAL_MS)
        {
            self.eviction.logged_at = Some(self.now);
            log::warn(
                "TooManyConnections: the limit is reached; each new connection replaces the one that has been idle for the longest time",
            );
        }
        true
    }

    /// Returns whether a silent connection could be closed for a new one.
    pub(super) fn has_silent_connection(&self) -> bool {
        let mut connections = self
            .slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref());
        connections.any(SwooleConnection::is_silent)
    }

    fn next_candidate(&mut self) -> Option<u64> {
        while let Some(candidate) = self.eviction.candidates.pop() {
            if self.candidate(candidate.id) == Some(candidate) {
                return Some(candidate.id);
            }
        }
        let mut all: Vec<_> = (0..self.slots.len() as u32)
            .filter_map(|slot| self.candidate(self.connection_id(slot)))
            .collect();
        if all.len() > MAX_CANDIDATES {
            all.select_nth_unstable(MAX_CANDIDATES);
            all.truncate(MAX_CANDIDATES);
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        self.eviction.candidates = all;
        Some(self.eviction.candidates.pop()?.id)
    }

    fn candidate(&self, id: u64) -> Option<EvictionCandidate> {
        let connection = self.slots[self.slot_of(id)?].connection.as_ref()?;
        connection.is_silent().then_some(EvictionCandidate {
            active: connection.last_active,
            served: connection.served,
            id,
        })
    }
}
