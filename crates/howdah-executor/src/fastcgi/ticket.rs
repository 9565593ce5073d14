//! A ticket, which a request holds while it waits for a backend, and the grant that it receives then.
//! [`super::balance`] creates and grants them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::ExecError;
use crate::common::fair_queue::Client;

/// A request that waits in line.
#[derive(Debug)]
pub struct Ticket<C> {
    /// Whether the request needs a new connection, because it cannot be repeated.
    pub fresh: bool,
    /// A backend to avoid while another is up, because it has failed the request before.
    pub avoid: Option<usize>,
    /// When the request was queued.
    pub since: Instant,
    /// The front thread that runs it.
    pub front: usize,
    /// The client of the request.
    pub(super) client: Client,
    slot: Mutex<TicketState<C>>,
}

#[derive(Debug)]
pub(super) struct TicketState<C> {
    pub(super) grant: Option<Grant<C>>,
    /// The request was refused, because the queue was full and another client had fewer requests in it.
    pub(super) refused: bool,
    pub(super) waker: Option<Waker>,
}

impl<C> Ticket<C> {
    pub(super) fn new(
        (front, client): (usize, Client),
        fresh: bool,
        avoid: Option<usize>,
        since: Instant,
    ) -> Arc<Ticket<C>> {
        Arc::new(Ticket {
            fresh,
            avoid,
            since,
            front,
            client,
            slot: Mutex::new(TicketState {
                grant: None,
                refused: false,
                waker: None,
            }),
        })
    }

    pub(super) fn slot(&self) -> MutexGuard<'_, TicketState<C>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the grant if it has arrived. Otherwise the waker is called when it arrives.
    ///
    /// # Errors
    /// [`ExecError::QueueFull`] if the request was refused in favour of another client's.
    pub fn take(&self, waker: &Waker) -> Result<Option<Grant<C>>, ExecError> {
        let mut slot = self.slot();
        if slot.refused {
            return Err(ExecError::QueueFull);
        }
        if slot.grant.is_none() && !slot.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            slot.waker = Some(waker.clone());
        }
        Ok(slot.grant.take())
    }
}

/// The permission to run one request on a backend. [`Balance::release`] returns it.
#[derive(Debug)]
pub struct Grant<C> {
    /// Index of the backend in [`Balance::members`](super::balance::Balance::members).
    pub backend: usize,
    /// A kept connection. With `None` the request makes a new one.
    pub connection: Option<C>,
}
