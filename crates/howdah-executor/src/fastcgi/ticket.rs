//! A ticket, which a request holds while it waits for a backend, and the grant that it receives then.
//! [`super::balance`] creates and grants them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crate::ExecError;
use crate::common::fair_queue::QueueClient;

/// A request that waits in line.
#[derive(Debug)]
pub struct BackendTicket<C> {
    /// Whether the request needs a new connection, because it cannot be repeated.
    pub needs_new_connection: bool,
    /// A backend to avoid while another is up, because it has failed the request before.
    pub avoid: Option<usize>,
    /// When the request was queued.
    pub since: Instant,
    /// The front thread that runs it.
    pub front: usize,
    /// The client of the request.
    pub(super) client: QueueClient,
    state: Mutex<TicketState<C>>,
}

#[derive(Debug)]
pub(super) struct TicketState<C> {
    pub(super) grant: Option<BackendGrant<C>>,
    /// Whether the request was refused, because the queue was full and another client had fewer requests in it.
    pub(super) refused: bool,
    pub(super) waker: Option<Waker>,
}

impl<C> BackendTicket<C> {
    pub(super) fn new(
        (front, client): (usize, QueueClient),
        fresh: bool,
        avoid: Option<usize>,
        since: Instant,
    ) -> Arc<BackendTicket<C>> {
        Arc::new(BackendTicket {
            needs_new_connection: fresh,
            avoid,
            since,
            front,
            client,
            state: Mutex::new(TicketState {
                grant: None,
                refused: false,
                waker: None,
            }),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, TicketState<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the grant if it has arrived. Otherwise the waker is called when it arrives.
    ///
    /// # Errors
    /// [`ExecError::QueueFull`] if the request was refused in favour of another client's.
    pub fn poll_grant(&self, waker: &Waker) -> Result<Option<BackendGrant<C>>, ExecError> {
        let mut slot = self.state();
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
pub struct BackendGrant<C> {
    /// Index of the backend in [`Balance::backends`](super::balance::Balance::backends).
    pub backend: usize,
    /// A kept connection. With `None` the request makes a new one.
    pub connection: Option<C>,
}
