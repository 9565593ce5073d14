//! What a request holds while it waits for a backend, and what it is given then. Made and granted by
//! [`super::balance`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::ExecError;
use crate::common::fair_queue::Client;

/// A request's place in the line.
#[derive(Debug)]
pub struct Ticket<C> {
    /// Only a new connection will do: the request cannot be repeated.
    pub fresh: bool,
    /// Any other backend than this, while another is up: it has failed the request before.
    pub avoid: Option<usize>,
    /// When the request got in line.
    pub since: Instant,
    /// The front thread that runs it.
    pub front: usize,
    /// Whose request it is.
    pub(super) client: Client,
    slot: Mutex<TicketState<C>>,
}

#[derive(Debug)]
pub(super) struct TicketState<C> {
    pub(super) grant: Option<Grant<C>>,
    /// The queue was full, and another client had fewer requests in it.
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

    /// The grant, if it has come; otherwise the waker is called when it does.
    ///
    /// # Errors
    /// [`ExecError::QueueFull`] if it has made room for another client's request.
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

/// The right to run one request on a backend. Given back by [`Balance::release`].
#[derive(Debug)]
pub struct Grant<C> {
    /// Index of the backend in [`Balance::members`](super::balance::Balance::members).
    pub backend: usize,
    /// A kept connection; `None`: the request makes a new one.
    pub connection: Option<C>,
}
