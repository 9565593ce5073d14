//! A member's position in the fleet's log: which entries the member has certainly applied, and which it may have
//! applied. The position decides whether the member may use a page that another member has rendered.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::{Incarnation, WriteTicket};

/// A position in the log of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The incarnation of the log. Numbers of different incarnations are not comparable.
    pub incarnation: Incarnation,
    /// The number of an entry.
    pub number: u64,
}

impl LogPosition {
    /// Returns whether this position includes `other`: it is in the same log, and not before `other`.
    pub fn includes(&self, other: &LogPosition) -> bool {
        self.incarnation == other.incarnation && self.number >= other.number
    }
}

#[derive(Debug, Default)]
struct LogProgress {
    /// All entries up to and including this position have been applied.
    applied: Option<LogPosition>,
    /// No entry after this position has been applied. It is set before entries are applied.
    begun: Option<LogPosition>,
    /// This member's own writes with smaller tickets are in the log, at `begun` or before it.
    first_unpublished: WriteTicket,
}

/// A member's position in the log, updated by the fleet thread.
#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<LogProgress>);

impl Positions {
    fn lock(&self) -> MutexGuard<'_, LogProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the entries up to `position` are about to be applied.
    pub fn begin_applying(&self, position: Option<LogPosition>, first_unpublished: WriteTicket) {
        let mut known = self.lock();
        known.begun = position;
        known.first_unpublished = first_unpublished;
    }

    /// Records that the entries up to `position` have been applied.
    pub fn finish_applying(&self, position: Option<LogPosition>, first_unpublished: WriteTicket) {
        let mut known = self.lock();
        known.begun.clone_from(&position);
        known.applied = position;
        known.first_unpublished = first_unpublished;
    }

    /// Returns the last entry that has been applied here, along with all entries before it.
    pub fn last_applied(&self) -> Option<LogPosition> {
        self.lock().applied.clone()
    }

    /// Returns whether the log contains, up to `position`, every invalidation that has been applied here: those of
    /// other members, and this member's own writes up to the ticket `writes`.
    pub fn is_within(&self, position: &LogPosition, writes: WriteTicket) -> bool {
        let known = self.lock();
        let begun = known.begun.as_ref();
        known.first_unpublished > writes && begun.is_some_and(|begun| position.includes(begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(incarnation: &str, number: u64) -> LogPosition {
        LogPosition {
            incarnation: incarnation.into(),
            number,
        }
    }

    #[test]
    fn position_excludes_entries_that_are_being_applied() {
        let positions = Positions::default();
        assert!(!positions.is_within(&at("a", 9), 0), "it has not joined");
        positions.finish_applying(Some(at("a", 4)), 1);
        assert!(positions.is_within(&at("a", 4), 0) && positions.is_within(&at("a", 5), 0));
        assert!(!positions.is_within(&at("a", 3), 0));
        assert!(!positions.is_within(&at("b", 9), 0), "another log's number");
        positions.begin_applying(Some(at("a", 5)), 1);
        assert!(!positions.is_within(&at("a", 4), 0));
        assert_eq!(positions.last_applied(), Some(at("a", 4)));
    }

    #[test]
    fn position_excludes_own_unpublished_writes() {
        let positions = Positions::default();
        positions.finish_applying(Some(at("a", 4)), 7);
        assert!(positions.is_within(&at("a", 4), 6));
        assert!(
            !positions.is_within(&at("a", 100), 7),
            "its number is not known"
        );
        positions.begin_applying(Some(at("a", 5)), 8);
        assert!(positions.is_within(&at("a", 5), 7));
    }
}
