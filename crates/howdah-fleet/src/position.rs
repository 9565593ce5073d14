//! A member's position in the log, which decides whether a shared render may be used: which entries the member has
//! certainly applied, and which it may have applied.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::{Incarnation, Ticket};

/// A position in the log of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The incarnation of the log. Numbers of different incarnations are not comparable.
    pub incarnation: Incarnation,
    /// The number of an entry.
    pub number: u64,
}

impl Position {
    /// Returns whether this position includes `other`: it is in the same log, and not before `other`.
    pub fn has(&self, other: &Position) -> bool {
        self.incarnation == other.incarnation && self.number >= other.number
    }
}

#[derive(Debug, Default)]
struct Known {
    /// All entries up to and including this position have been applied.
    applied: Option<Position>,
    /// No entry after this position has been applied. It is set before entries are applied.
    begun: Option<Position>,
    /// This member's own writes with smaller tickets are in the log, at `begun` or before it.
    first_unpublished: Ticket,
}

/// A member's position in the log, updated by the fleet thread.
#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<Known>);

impl Positions {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the entries up to `position` are about to be applied.
    pub fn begin(&self, position: Option<Position>, first_unpublished: Ticket) {
        let mut known = self.lock();
        known.begun = position;
        known.first_unpublished = first_unpublished;
    }

    /// Records that the entries up to `position` have been applied.
    pub fn applied(&self, position: Option<Position>, first_unpublished: Ticket) {
        let mut known = self.lock();
        known.begun.clone_from(&position);
        known.applied = position;
        known.first_unpublished = first_unpublished;
    }

    /// Returns the last entry that has been applied here, along with all entries before it.
    pub fn last_applied(&self) -> Option<Position> {
        self.lock().applied.clone()
    }

    /// Returns whether every invalidation applied here is in the log up to `position`: the entries of other members,
    /// and this member's own `writes`.
    pub fn is_within(&self, position: &Position, writes: Ticket) -> bool {
        let known = self.lock();
        let begun = known.begun.as_ref();
        known.first_unpublished > writes && begun.is_some_and(|begun| position.has(begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(incarnation: &str, number: u64) -> Position {
        Position {
            incarnation: incarnation.into(),
            number,
        }
    }

    #[test]
    fn what_a_member_begins_to_make_old_is_not_in_a_page_that_was_begun_before() {
        let positions = Positions::default();
        assert!(!positions.is_within(&at("a", 9), 0), "it has not joined");
        positions.applied(Some(at("a", 4)), 1);
        assert!(positions.is_within(&at("a", 4), 0) && positions.is_within(&at("a", 5), 0));
        assert!(!positions.is_within(&at("a", 3), 0));
        assert!(!positions.is_within(&at("b", 9), 0), "another log's number");
        positions.begin(Some(at("a", 5)), 1);
        assert!(!positions.is_within(&at("a", 4), 0));
        assert_eq!(positions.last_applied(), Some(at("a", 4)));
    }

    #[test]
    fn a_members_own_write_counts_before_it_is_in_the_log() {
        let positions = Positions::default();
        positions.applied(Some(at("a", 4)), 7);
        assert!(positions.is_within(&at("a", 4), 6));
        assert!(
            !positions.is_within(&at("a", 100), 7),
            "its number is not known"
        );
        positions.begin(Some(at("a", 5)), 8);
        assert!(positions.is_within(&at("a", 5), 7));
    }
}
