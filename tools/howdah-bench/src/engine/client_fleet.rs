//! The clients of one thread, as the worker uses them, independently of the protocol they speak. A client is identified
//! by a number; a request that ends is a [`RequestStep`] with that number.

use rustix::event::epoll::EventFlags;

use super::connection::{Http1Client, RequestStep, SendTicket};
use super::context::ThreadContext;
use crate::plan::Plan;

/// A request that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// Whether it belongs to the measured part.
    pub measured: bool,
    /// When it was due, in nanoseconds of the run.
    pub due: u64,
    /// Whether a part of the request was sent. If so, the server may know of it.
    pub sent: bool,
}

/// The clients of one thread.
pub trait ClientFleet: Send {
    /// Creates the fleet of a thread, without clients.
    fn new(plan: &Plan, thread: usize) -> Self;

    /// Returns how many clients there are.
    fn len(&self) -> u32;

    /// Adds a client and returns its number.
    fn add(&mut self) -> u32;

    /// Lets a client begin a request.
    fn begin(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        ticket: SendTicket,
        now: u64,
    ) -> RequestStep;

    /// Handles an event of a socket.
    fn event(
        &mut self,
        context: &mut ThreadContext,
        token: u64,
        flags: EventFlags,
        steps: &mut Vec<(u32, RequestStep)>,
    );

    /// Retries connecting after [`RequestStep::RetryConnect`].
    fn retry(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        now: u64,
        steps: &mut Vec<(u32, RequestStep)>,
    );

    /// Ends the requests that have taken too long.
    fn expire(
        &mut self,
        context: &mut ThreadContext,
        now: u64,
        steps: &mut Vec<(u32, RequestStep)>,
    );

    /// Writes the requests that have begun but have not been written yet. Returns whether there were any.
    fn flush(&mut self, context: &mut ThreadContext, steps: &mut Vec<(u32, RequestStep)>) -> bool;

    /// Returns when [`ClientFleet::flush`] must be called even without events, in nanoseconds of the run; `None`: never.
    fn wake_at(&self) -> Option<u64> {
        None
    }

    /// Returns whether the client has a request.
    fn is_busy(&self, client: u32) -> bool;

    /// Returns when the client's last request ended or its pause was over, in nanoseconds of the run.
    fn free_since(&self, client: u32) -> u64;

    /// Sets the time that [`ClientFleet::free_since`] returns.
    fn set_free_since(&mut self, client: u32, now: u64);

    /// Calls `show` for each request that has not ended.
    fn under_way(&self, show: impl FnMut(PendingRequest));
}

/// The fleet of HTTP/1.x, in which every client has its own connection.
#[derive(Debug)]
pub struct Http1ClientFleet {
    all: Vec<Http1Client>,
    seed: u64,
    threads: u64,
    thread: u64,
}

impl ClientFleet for Http1ClientFleet {
    fn new(plan: &Plan, thread: usize) -> Self {
        Http1ClientFleet {
            all: Vec::new(),
            seed: plan.seed,
            threads: plan.threads as u64,
            thread: thread as u64,
        }
    }

    fn len(&self) -> u32 {
        self.all.len() as u32
    }

    fn add(&mut self) -> u32 {
        let index = self.len();
        let number = u64::from(index) * self.threads + self.thread;
        self.all.push(Http1Client::new(index, self.seed, number));
        index
    }

    #[inline]
    fn begin(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        ticket: SendTicket,
        now: u64,
    ) -> RequestStep {
        self.all[client as usize].begin(context, ticket, now)
    }

    #[inline]
    fn event(
        &mut self,
        context: &mut ThreadContext,
        token: u64,
        flags: EventFlags,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        if context.handle_closing_event(token, flags) {
            return;
        }
        let client = token as u32;
        let connection = &mut self.all[client as usize];
        // If the tokens differ, the event belongs to a socket that has been closed since.
        if connection.token() == token {
            steps.push((client, connection.event(context, flags)));
        }
    }

    fn retry(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        now: u64,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        steps.push((client, self.all[client as usize].retry(context, now)));
    }

    fn expire(
        &mut self,
        context: &mut ThreadContext,
        now: u64,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        for (client, connection) in (0..).zip(&mut self.all) {
            match connection.expire(context, now) {
                RequestStep::Working => {}
                step => steps.push((client, step)),
            }
        }
    }

    /// Does nothing, because connections write immediately.
    fn flush(&mut self, _: &mut ThreadContext, _: &mut Vec<(u32, RequestStep)>) -> bool {
        false
    }

    fn is_busy(&self, client: u32) -> bool {
        self.all[client as usize].pending_request().is_some()
    }

    fn free_since(&self, client: u32) -> u64 {
        self.all[client as usize].free_since
    }

    fn set_free_since(&mut self, client: u32, now: u64) {
        self.all[client as usize].free_since = now;
    }

    fn under_way(&self, show: impl FnMut(PendingRequest)) {
        self.all
            .iter()
            .filter_map(Http1Client::pending_request)
            .for_each(show);
    }
}
