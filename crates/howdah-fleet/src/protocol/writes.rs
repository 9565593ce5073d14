//! A member's own writes on their way: queued, published, confirmed.

use std::collections::VecDeque;

use super::Moment;
use super::message::{Entry, Incarnation, Session};

/// The number of a write of this member. Writes are confirmed in their order.
pub type Ticket = u64;

/// Writes that were published in one exchange and wait for the other members.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Published {
    /// The ticket of the first of them.
    pub first: Ticket,
    pub incarnation: Incarnation,
    /// The number of the last entry.
    pub number: u64,
    /// Members that have not confirmed, with the moment when they serve no older page.
    pub waits: Vec<(Session, Moment)>,
    /// Until when members may serve pages that the registry does not know.
    pub unknown_until: Moment,
}

impl Published {
    /// A member has applied everything up to `number`.
    fn confirm(&mut self, session: Session, incarnation: &Incarnation, number: u64) {
        if *incarnation == self.incarnation && number >= self.number {
            self.waits.retain(|(waits, _)| *waits != session);
        }
    }

    /// When no member serves an older page any more, even if nobody confirms.
    fn deadline(&self) -> Moment {
        let waits = self.waits.iter().map(|(_, until)| *until);
        waits.fold(self.unknown_until, Moment::max)
    }
}

/// All writes that are not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Writes<E> {
    /// The ticket of the next write.
    next: Ticket,
    queue: VecDeque<Entry<E>>,
    published: Vec<Published>,
}

impl<E: Clone> Writes<E> {
    pub fn new() -> Writes<E> {
        Writes {
            next: 1,
            queue: VecDeque::new(),
            published: Vec::new(),
        }
    }

    pub fn add(&mut self, entry: Entry<E>) -> Ticket {
        self.queue.push_back(entry);
        self.next += 1;
        self.next - 1
    }

    /// The ticket of the next write.
    pub fn next(&self) -> Ticket {
        self.next
    }

    pub fn queued(&self) -> impl ExactSizeIterator<Item = &Entry<E>> {
        self.queue.iter()
    }

    /// The first `count` of the queue are in the log; gives the ticket of the first of them.
    pub fn take_published(&mut self, count: usize) -> Ticket {
        let first = self.first_unpublished();
        self.queue.drain(..count);
        first
    }

    pub fn wait_for(&mut self, published: Published) {
        self.published.push(published);
    }

    pub fn confirm(&mut self, session: Session, incarnation: &Incarnation, number: u64) {
        for published in &mut self.published {
            published.confirm(session, incarnation, number);
        }
    }

    /// Forgets what nobody needs to wait for any more.
    pub fn expire(&mut self, now: Moment) {
        self.published
            .retain(|published| published.deadline() > now);
    }

    /// Gives up publishing what is queued; gives how many writes.
    pub fn let_go(&mut self) -> u64 {
        self.queue.drain(..).count() as u64
    }

    /// When the first published write is confirmed though nobody confirms it.
    pub fn deadline(&self) -> Option<Moment> {
        self.published.iter().map(Published::deadline).min()
    }

    /// Writes with smaller tickets are confirmed.
    pub fn first_unconfirmed(&self) -> Ticket {
        // A batch begins where the one before it ended, which may be confirmed before it.
        match self.published.first() {
            Some(first) => first.first,
            None => self.first_unpublished(),
        }
    }

    /// Writes with smaller tickets are in the log, or were let go.
    pub fn first_unpublished(&self) -> Ticket {
        self.next - self.queue.len() as Ticket
    }
}
