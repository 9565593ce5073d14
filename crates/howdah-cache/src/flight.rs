//! One render at a time of each page. The first request that misses a page gets a [`Ticket`] and has it
//! rendered; requests that come meanwhile wait, and are woken all at once when the page is there (nginx
//! lets them poll every 500 ms; Varnish before 8.0 let them go one by one). They get the page only
//! if the policy allowed to store it: an answer that is somebody's own is never shared, and each of
//! them is then answered by PHP for itself, at once.
//!
//! A ticket that is dropped, because its holder died or gave up, frees the others: no holder keeps a
//! flight after its own end. And a flight for which nobody waits any more can be given up
//! ([`Ticket::deserted`]): work that clients ask for and do not wait for must not pile up.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::object::Object;
use crate::pass::Pass;

const SHARDS: usize = 16;

/// How a flight ended, for those who waited.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The page is stored now.
    Stored(Arc<Object>),
    /// The page was not stored, for this reason.
    Passed(Pass),
    /// What is stored under the key has changed its shape (a new `Vary`, a purge during the
    /// render): look again.
    LookAgain,
}

type Sender = Arc<watch::Sender<Option<Outcome>>>;
// Senders, so that each receiver is a caller that waits.
type Table = HashMap<Box<[u8]>, Sender>;

/// The flights in progress, by key: one caller does the work, the others wait for its outcome.
#[derive(Debug, Default)]
pub struct Flights {
    shards: Arc<[Mutex<Table>; SHARDS]>,
    hasher: RandomState,
}

/// The part a caller plays in a flight.
#[derive(Debug)]
pub enum Seat {
    /// The caller does the work, and holds the ticket until it is done.
    Lead(Ticket),
    /// Somebody else does the work already; the caller waits for the outcome.
    Wait(Waiter),
}

impl Flights {
    /// Takes a seat in the flight of `key`, or begins one.
    pub fn board(&self, key: &[u8]) -> Seat {
        let shard = (self.hasher.hash_one(key) as usize) % SHARDS;
        let mut table = lock(&self.shards[shard]);
        if let Some(flight) = table.get(key) {
            return Seat::Wait(Waiter(flight.subscribe()));
        }
        let sender = Arc::new(watch::Sender::new(None));
        table.insert(key.into(), sender.clone());
        Seat::Lead(Ticket {
            shards: self.shards.clone(),
            shard,
            key: key.into(),
            sender,
        })
    }

    /// Whether somebody renders it now.
    pub fn is_flying(&self, key: &[u8]) -> bool {
        let shard = (self.hasher.hash_one(key) as usize) % SHARDS;
        lock(&self.shards[shard]).contains_key(key)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right, and the duty, to end a flight.
#[derive(Debug)]
pub struct Ticket {
    shards: Arc<[Mutex<Table>; SHARDS]>,
    shard: usize,
    key: Box<[u8]>,
    sender: Sender,
}

impl Ticket {
    /// A place to wait in one's own flight, for a caller that has another task do the work.
    pub fn waiter(&self) -> Waiter {
        Waiter(self.sender.subscribe())
    }

    /// Resolves when nobody waits any more. The flight is then over: a later caller begins another.
    pub async fn deserted(&self) {
        loop {
            self.sender.closed().await;
            let mut table = lock(&self.shards[self.shard]);
            // Seats are given out under the lock.
            if self.sender.receiver_count() == 0 {
                table.remove(&self.key);
                return;
            }
        }
    }

    /// Removes the flight from the table, unless it is another's already.
    fn leave(&self) {
        let mut table = lock(&self.shards[self.shard]);
        if table
            .get(&self.key)
            .is_some_and(|flight| Arc::ptr_eq(flight, &self.sender))
        {
            table.remove(&self.key);
        }
    }

    /// Ends the flight: waiting callers are woken, a later one begins another. The page must be in the
    /// store by now, or a later caller would have it rendered again.
    pub fn land(self, outcome: Outcome) {
        self.leave();
        self.sender.send_replace(Some(outcome));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.sender.borrow().is_none() {
            self.leave();
            let failed = Outcome::Passed(Pass::FlightFailed);
            self.sender.send_replace(Some(failed));
        }
    }
}

/// The place of a caller that waits for the outcome of a flight.
#[derive(Debug)]
pub struct Waiter(watch::Receiver<Option<Outcome>>);

impl Waiter {
    /// Waits until the flight has ended.
    pub async fn wait(mut self) -> Outcome {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => match &*outcome {
                Some(outcome) => outcome.clone(),
                None => Outcome::Passed(Pass::FlightFailed),
            },
            Err(_) => Outcome::Passed(Pass::FlightFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;
    use crate::object::tests::page;

    fn waiter(flights: &Flights, key: &[u8]) -> Waiter {
        match flights.board(key) {
            Seat::Wait(waiter) => waiter,
            Seat::Lead(_) => panic!("somebody renders it"),
        }
    }

    fn leader(flights: &Flights, key: &[u8]) -> Ticket {
        match flights.board(key) {
            Seat::Lead(ticket) => ticket,
            Seat::Wait(_) => panic!("nobody renders it"),
        }
    }

    #[tokio::test]
    async fn five_hundred_wait_for_one_render_and_are_woken_at_once() {
        let flights = Flights::default();
        let ticket = leader(&flights, b"k");
        let waiting: Vec<_> = (0..499)
            .map(|_| tokio::spawn(waiter(&flights, b"k").wait()))
            .collect();
        leader(&flights, b"other").land(Outcome::LookAgain);
        tokio::task::yield_now().await;
        ticket.land(Outcome::Stored(Arc::new(page(&[], "text"))));
        for one in waiting {
            let Outcome::Stored(page) = one.await.unwrap() else {
                panic!("the page was stored");
            };
            assert_eq!(page.body, "text");
        }
        assert!(!flights.is_flying(b"k"));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_stored_is_not_shared() {
        let flights = Flights::default();
        let ticket = leader(&flights, b"k");
        let one = waiter(&flights, b"k");
        ticket.land(Outcome::Passed(Pass::SetCookie));
        let outcome = one.wait().await;
        assert!(
            matches!(outcome, Outcome::Passed(Pass::SetCookie)),
            "{outcome:?}"
        );
    }

    #[tokio::test]
    async fn a_flight_is_deserted_when_the_last_who_waits_has_left() {
        let flights = Flights::default();
        let ticket = leader(&flights, b"k");
        let (one, two) = (ticket.waiter(), waiter(&flights, b"k"));
        let pending = |ticket: &Ticket| {
            let mut deserted = std::pin::pin!(ticket.deserted());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            deserted.as_mut().poll(&mut cx).is_pending()
        };
        assert!(pending(&ticket));
        drop(one);
        assert!(pending(&ticket));
        drop(two);
        assert!(!pending(&ticket));
        // Another may have begun meanwhile, which the first one's end does not touch.
        let next = leader(&flights, b"k");
        drop(ticket);
        assert!(flights.is_flying(b"k"));
        next.land(Outcome::LookAgain);
        assert!(!flights.is_flying(b"k"));
    }

    #[tokio::test]
    async fn a_leader_who_dies_holds_nobody() {
        let flights = Flights::default();
        let ticket = leader(&flights, b"k");
        let one = waiter(&flights, b"k");
        drop(ticket);
        let outcome = one.wait().await;
        assert!(
            matches!(outcome, Outcome::Passed(Pass::FlightFailed)),
            "{outcome:?}"
        );
        leader(&flights, b"k").land(Outcome::LookAgain);
    }
}
