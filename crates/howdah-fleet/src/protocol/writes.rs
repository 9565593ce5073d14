//! The states of a member's own writes: queued, published, confirmed.

use std::collections::VecDeque;

use super::ClockNanoseconds;
use super::message::{Incarnation, LogEntry, SessionId};

/// The number of a write of this member. Writes are confirmed in the order of their tickets.
pub type WriteTicket = u64;

/// Writes that were published in one exchange and are waiting for confirmation by the other members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PublishedBatch {
    /// The ticket of the first of these writes.
    pub first_ticket: WriteTicket,
    pub incarnation: Incarnation,
    /// The log number of the last of these writes.
    pub number: u64,
    /// The members that have not confirmed, each with the time after which it serves no older page.
    pub unconfirmed: Vec<(SessionId, ClockNanoseconds)>,
    /// The time until which members that the registry does not know may serve pages.
    pub unknown_until: ClockNanoseconds,
}

impl PublishedBatch {
    /// Records that a member has applied all entries up to `number`.
    fn confirm(&mut self, session: SessionId, incarnation: &Incarnation, number: u64) {
        if *incarnation == self.incarnation && number >= self.number {
            self.unconfirmed.retain(|(waits, _)| *waits != session);
        }
    }

    /// Returns the time after which no member serves an older page, even if none confirms.
    fn deadline(&self) -> ClockNanoseconds {
        let waits = self.unconfirmed.iter().map(|(_, until)| *until);
        waits.fold(self.unknown_until, ClockNanoseconds::max)
    }
}

/// All unconfirmed writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OwnWrites<E> {
    /// The ticket of the next write.
    next: WriteTicket,
    queue: VecDeque<LogEntry<E>>,
    published: Vec<PublishedBatch>,
}

impl<E: Clone> OwnWrites<E> {
    pub fn new() -> OwnWrites<E> {
        OwnWrites {
            next: 1,
            queue: VecDeque::new(),
            published: Vec::new(),
        }
    }

    pub fn enqueue(&mut self, entry: LogEntry<E>) -> WriteTicket {
        self.queue.push_back(entry);
        self.next += 1;
        self.next - 1
    }

    /// Returns the ticket of the next write.
    pub fn next_ticket(&self) -> WriteTicket {
        self.next
    }

    pub fn queued(&self) -> impl ExactSizeIterator<Item = &LogEntry<E>> {
        self.queue.iter()
    }

    /// Removes the first `count` writes from the queue because they are in the log. Returns the ticket of the first of
    /// them.
    pub fn dequeue_published(&mut self, count: usize) -> WriteTicket {
        let first = self.first_unpublished();
        self.queue.drain(..count);
        first
    }

    pub fn add_published(&mut self, published: PublishedBatch) {
        self.published.push(published);
    }

    pub fn confirm(&mut self, session: SessionId, incarnation: &Incarnation, number: u64) {
        for published in &mut self.published {
            published.confirm(session, incarnation, number);
        }
    }

    /// Removes the published writes whose deadline has passed.
    pub fn expire(&mut self, now: ClockNanoseconds) {
        self.published
            .retain(|published| published.deadline() > now);
    }

    /// Drops the queued writes without publishing them. Returns their number.
    pub fn drop_queued(&mut self) -> u64 {
        self.queue.drain(..).count() as u64
    }

    /// Returns the time at which the next published write counts as confirmed even without confirmations.
    pub fn deadline(&self) -> Option<ClockNanoseconds> {
        self.published.iter().map(PublishedBatch::deadline).min()
    }

    /// Returns the first unconfirmed ticket: writes with smaller tickets are confirmed.
    pub fn first_unconfirmed(&self) -> WriteTicket {
        // A batch begins where the previous one ended. The previous batch may be confirmed later than this one.
        match self.published.first() {
            Some(first) => first.first_ticket,
            None => self.first_unpublished(),
        }
    }

    /// Returns the first unpublished ticket: writes with smaller tickets are in the log, or were dropped without being
    /// published.
    pub fn first_unpublished(&self) -> WriteTicket {
        self.next - self.queue.len() as WriteTicket
    }
}
