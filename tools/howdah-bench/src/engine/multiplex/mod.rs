//! Clients that share connections, each with one stream at a time: HTTP/2 and HTTP/3. Both are polled from the same
//! event loop as HTTP/1.x, without a runtime or tasks.
//!
//! - [`MultiplexedConnection`]: what a protocol implements; see [`super::h2`] and [`super::h3`].
//! - [`client`]: one client and its request.

mod client;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Poll;

use bytes::Bytes;
use http::{Request, Response};
use rustix::event::epoll::EventFlags;

use super::client_fleet::{ClientFleet, PendingRequest};
use super::connection::{RequestStep, SendTicket};
use super::context::ThreadContext;
use super::recorder::{RecordedResponse, RequestTimes};
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::template::XorshiftRandom;
use crate::plan::{BacklogPolicy, OnSocketError, Plan};
use client::{RequestStage, ResponseBodyReader, ResponseProgress, StreamClient};

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// There is no connection.
    Down,
    /// The backlog was full, and the worker will retry.
    Backlog,
    Connecting,
    Handshake,
    /// The connection can carry requests.
    Up,
}

/// Why a connection could not be made.
pub struct ConnectFailure {
    pub outcome: Outcome,
    pub why: Option<String>,
}

impl ConnectFailure {
    /// Creates a failure with a reason in words.
    pub fn new(outcome: Outcome, why: impl std::fmt::Display) -> ConnectFailure {
        ConnectFailure {
            outcome,
            why: Some(why.to_string()),
        }
    }
}

/// Why a stream failed, or the connection that carried it.
pub struct StreamFailure {
    pub outcome: Outcome,
    pub why: String,
}

/// The part of a connection's state that the fleet uses, whatever the protocol is.
pub struct ConnectionState {
    pub index: u32,
    /// Distinguishes events of this socket from those of the previous one.
    pub generation: u32,
    pub phase: ConnectionPhase,
    /// Whether there are requests to begin or frames to write.
    pub dirty: bool,
    /// The number of complete responses on this connection.
    pub served: u64,
    /// How long connecting took, in nanoseconds. It is charged to the first request.
    pub connect: u64,
    /// When connecting began.
    pub since: u64,
    /// The error of the socket, once it has failed.
    pub error: Option<String>,
}

impl ConnectionState {
    pub fn new(index: u32) -> ConnectionState {
        ConnectionState {
            index,
            generation: 0,
            phase: ConnectionPhase::Down,
            dirty: false,
            served: 0,
            connect: 0,
            since: 0,
            error: None,
        }
    }

    /// Returns the token that epoll reports with events of the current socket.
    pub fn token(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Begins a new connection in place of the previous one.
    pub fn restart(&mut self, now: u64) {
        self.generation = self.generation.wrapping_add(1);
        self.since = now;
        self.error = None;
        self.served = 0;
    }
}

/// A connection that carries several requests at once.
pub trait MultiplexedConnection: Send {
    /// A request that has been sent. Dropping it resets its stream, unless the stream has ended.
    type Exchange: StreamExchange;

    /// The protocol's name in reports.
    const PROTOCOL: &'static str;

    /// What the user can check if a connection is not established in time; `None` if there is nothing special.
    const CONNECT_ADVICE: Option<&'static str> = None;

    /// Creates a connection that is not open yet.
    fn new(index: u32) -> Self;

    fn state(&self) -> &ConnectionState;

    fn state_mut(&mut self) -> &mut ConnectionState;

    /// Begins to connect.
    fn open(&mut self, context: &mut ThreadContext, now: u64) -> Result<(), ConnectFailure>;

    /// Handles an event of the socket: receives without handling requests.
    fn event(
        &mut self,
        context: &mut ThreadContext,
        flags: EventFlags,
    ) -> Result<(), ConnectFailure>;

    /// Lets the protocol read and write. Returns whether the connection is still open.
    fn poll(&mut self) -> Result<bool, StreamFailure>;

    /// Returns whether the server allows another stream now.
    fn has_room(&mut self) -> bool;

    /// Sends a request on a new stream. Returns `None` if the connection turns out to have ended, which
    /// [`MultiplexedConnection::poll`] then reports. Fails if the request can be sent on no connection.
    fn begin(
        &mut self,
        request: Request<()>,
        body: &Bytes,
    ) -> Result<Option<Self::Exchange>, StreamFailure>;

    /// Sends what the protocol has written.
    fn send(&mut self, context: &mut ThreadContext);

    /// Closes the connection at once.
    fn close(&mut self, context: &mut ThreadContext);

    /// Returns when [`MultiplexedConnection::handle_timer`] has to be called, in nanoseconds of the run; `None`: never.
    fn timer(&mut self, _: &ThreadContext) -> Option<u64> {
        None
    }

    /// Handles a timer of the protocol.
    fn handle_timer(&mut self, _: &mut ThreadContext) -> Result<(), ConnectFailure> {
        Ok(())
    }
}

/// A request that has been sent on a stream.
pub trait StreamExchange: Send {
    /// Polls the header of the response, without interim ones.
    fn poll_head(&mut self) -> Poll<Result<Response<()>, StreamFailure>>;

    /// Polls the body. Passes each piece to `take`, and returns when the response is complete.
    fn poll_body(&mut self, take: impl FnMut(&[u8])) -> Poll<Result<(), StreamFailure>>;
}

/// The clients of a thread and the connections they share.
pub struct MultiplexedFleet<C: MultiplexedConnection> {
    connections: Vec<C>,
    clients: Vec<StreamClient<C::Exchange>>,
    /// The timers of the connections, at most one for each: a time and the connection's index. A connection whose
    /// timer has moved to a later time keeps its entry, and is asked again when the entry is due.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// The time of each connection's valid entry in `timers`.
    armed: Vec<Option<u64>>,
    /// How many clients share a connection.
    streams: u32,
    dirty: Vec<u32>,
    body: Bytes,
    seed: u64,
    threads: u64,
    thread: u64,
}

impl<C: MultiplexedConnection> ClientFleet for MultiplexedFleet<C> {
    fn new(plan: &Plan, thread: usize) -> Self {
        MultiplexedFleet {
            connections: Vec::new(),
            clients: Vec::new(),
            timers: BinaryHeap::new(),
            armed: Vec::new(),
            streams: plan.connection.streams.max(1),
            dirty: Vec::new(),
            body: Bytes::from(plan.request.body.clone()),
            seed: plan.seed,
            threads: plan.threads as u64,
            thread: thread as u64,
        }
    }

    fn len(&self) -> u32 {
        self.clients.len() as u32
    }

    fn add(&mut self) -> u32 {
        let client = self.len();
        let number = u64::from(client) * self.threads + self.thread;
        if client.is_multiple_of(self.streams) {
            self.connections.push(C::new(client / self.streams));
            self.armed.push(None);
        }
        let random = XorshiftRandom::new(self.seed, number);
        self.clients.push(StreamClient::new(random));
        client
    }

    fn begin(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        ticket: SendTicket,
        now: u64,
    ) -> RequestStep {
        context
            .recorder
            .count_begun(ticket.measured, now, ticket.lag);
        let slot = &mut self.clients[client as usize];
        slot.since = now;
        slot.times = RequestTimes {
            due: ticket.due,
            ..RequestTimes::default()
        };
        slot.ticket = ticket;
        slot.exchange = RequestStage::Waiting;
        self.mark_dirty(client / self.streams);
        RequestStep::Working
    }

    fn event(
        &mut self,
        context: &mut ThreadContext,
        token: u64,
        flags: EventFlags,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        let index = token as u32;
        let connection = &mut self.connections[index as usize];
        if connection.state().token() != token {
            return;
        }
        match connection.event(context, flags) {
            Ok(()) => self.mark_dirty(index),
            Err(failure) => self.handle_connect_failure(context, index, &failure, steps),
        }
        self.arm(context, index);
    }

    fn retry(
        &mut self,
        _: &mut ThreadContext,
        client: u32,
        _: u64,
        _: &mut Vec<(u32, RequestStep)>,
    ) {
        let index = client / self.streams;
        let state = self.connections[index as usize].state_mut();
        if state.phase == ConnectionPhase::Backlog {
            state.phase = ConnectionPhase::Down;
            self.mark_dirty(index);
        }
    }

    fn expire(
        &mut self,
        context: &mut ThreadContext,
        now: u64,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        for client in 0..self.len() {
            let slot = &self.clients[client as usize];
            if matches!(slot.exchange, RequestStage::Idle)
                || now.saturating_sub(slot.since) < context.timeout
            {
                continue;
            }
            let index = client / self.streams;
            let outcome = match self.connections[index as usize].state().phase {
                ConnectionPhase::Up => Outcome::Timeout,
                ConnectionPhase::Backlog => Outcome::ConnectBacklog,
                ConnectionPhase::Down
                | ConnectionPhase::Connecting
                | ConnectionPhase::Handshake => Outcome::ConnectTimeout,
            };
            if outcome == Outcome::Timeout {
                // Dropping the exchange resets the stream; the connection stays open.
                steps.push((client, self.fail(context, client, outcome, None, now)));
                self.mark_dirty(index);
            } else {
                let advice = C::CONNECT_ADVICE.filter(|_| outcome == Outcome::ConnectTimeout);
                let why = advice.map(|advice| format!("no response in time; {advice}"));
                let failure = ConnectFailure { outcome, why };
                self.handle_connect_failure(context, index, &failure, steps);
            }
        }
    }

    fn flush(&mut self, context: &mut ThreadContext, steps: &mut Vec<(u32, RequestStep)>) -> bool {
        self.handle_timers(context, steps);
        let dirty = std::mem::take(&mut self.dirty);
        for index in &dirty {
            self.connections[*index as usize].state_mut().dirty = false;
            self.drive(context, *index, steps);
            self.arm(context, *index);
        }
        !dirty.is_empty()
    }

    fn wake_at(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    fn is_busy(&self, client: u32) -> bool {
        !matches!(self.clients[client as usize].exchange, RequestStage::Idle)
    }

    fn free_since(&self, client: u32) -> u64 {
        self.clients[client as usize].free_since
    }

    fn set_free_since(&mut self, client: u32, now: u64) {
        self.clients[client as usize].free_since = now;
    }

    fn under_way(&self, show: impl FnMut(PendingRequest)) {
        let busy = self.clients.iter();
        busy.filter(|slot| !matches!(slot.exchange, RequestStage::Idle))
            .map(|slot| PendingRequest {
                measured: slot.ticket.measured,
                due: slot.ticket.due,
                sent: slot.times.sent > 0,
            })
            .for_each(show);
    }
}

impl<C: MultiplexedConnection> MultiplexedFleet<C> {
    fn mark_dirty(&mut self, index: u32) {
        let state = self.connections[index as usize].state_mut();
        if !state.dirty {
            state.dirty = true;
            self.dirty.push(index);
        }
    }

    /// Notes the connection's timer, if it is earlier than the noted one.
    fn arm(&mut self, context: &ThreadContext, index: u32) {
        let Some(at) = self.connections[index as usize].timer(context) else {
            return;
        };
        let armed = &mut self.armed[index as usize];
        if armed.is_none_or(|noted| at < noted) {
            *armed = Some(at);
            self.timers.push(Reverse((at, index)));
        }
    }

    /// Handles the timers that are due.
    fn handle_timers(&mut self, context: &mut ThreadContext, steps: &mut Vec<(u32, RequestStep)>) {
        if self.timers.is_empty() {
            return;
        }
        let now = context.clock.now();
        while let Some(Reverse((at, index))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            if self.armed[index as usize] != Some(at) {
                // An earlier time has been noted since, and has been handled.
                continue;
            }
            self.armed[index as usize] = None;
            let connection = &mut self.connections[index as usize];
            if connection.timer(context).is_some_and(|at| at <= now) {
                match connection.handle_timer(context) {
                    Ok(()) => self.mark_dirty(index),
                    Err(failure) => self.handle_connect_failure(context, index, &failure, steps),
                }
            }
            self.arm(context, index);
        }
    }

    fn clients_of(&self, index: u32) -> std::ops::Range<u32> {
        let first = index * self.streams;
        first..(first + self.streams).min(self.len())
    }

    /// Begins the waiting requests, reads the responses that have arrived, and writes the frames that are ready.
    fn drive(
        &mut self,
        context: &mut ThreadContext,
        index: u32,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        let connection = &mut self.connections[index as usize];
        if connection.state().phase == ConnectionPhase::Down {
            let waiting = |slot: &StreamClient<_>| matches!(slot.exchange, RequestStage::Waiting);
            let range = index as usize * self.streams as usize;
            let end = (range + self.streams as usize).min(self.clients.len());
            if !self.clients[range..end].iter().any(waiting) {
                return;
            }
            let now = context.clock.now();
            if let Err(failure) = connection.open(context, now) {
                let waits = context.plan.connection.backlog == BacklogPolicy::Wait;
                if failure.outcome == Outcome::ConnectBacklog && waits {
                    connection.state_mut().phase = ConnectionPhase::Backlog;
                    steps.push((index * self.streams, RequestStep::RetryConnect));
                } else {
                    self.handle_connect_failure(context, index, &failure, steps);
                }
                return;
            }
        }
        if self.connections[index as usize].state().phase != ConnectionPhase::Up {
            return;
        }
        // The connection is polled again after each step, because reading may free streams and windows, and the server
        // has to learn that at once.
        let mut alive = self.connections[index as usize].poll();
        self.send_waiting(context, index, steps);
        alive = alive.and_then(|_| self.connections[index as usize].poll());
        self.read_responses(context, index, steps);
        alive = alive.and_then(|_| self.connections[index as usize].poll());
        self.connections[index as usize].send(context);
        match alive {
            Ok(true) => {}
            Ok(false) => self.handle_connection_end(context, index, None, steps),
            Err(failure) => self.handle_connection_end(context, index, Some(failure), steps),
        }
    }

    fn send_waiting(
        &mut self,
        context: &mut ThreadContext,
        index: u32,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        for client in self.clients_of(index) {
            if !matches!(
                self.clients[client as usize].exchange,
                RequestStage::Waiting
            ) {
                continue;
            }
            // The server may allow no further stream now. If the connection has ended, polling it reports that.
            if !self.connections[index as usize].has_room() {
                return;
            }
            let request = match self.clients[client as usize].request(context, client, C::PROTOCOL)
            {
                Ok(request) => request,
                Err(why) => {
                    let now = context.clock.now();
                    let outcome = Outcome::ProtocolError;
                    let step = self.fail(context, client, outcome, Some(&why), now);
                    steps.push((client, step));
                    continue;
                }
            };
            let connection = &mut self.connections[index as usize];
            let exchange = match connection.begin(request, &self.body) {
                Ok(Some(exchange)) => exchange,
                Ok(None) => return,
                Err(StreamFailure { outcome, why }) => {
                    let now = context.clock.now();
                    let step = self.fail(context, client, outcome, Some(&why), now);
                    steps.push((client, step));
                    continue;
                }
            };
            let now = context.clock.now();
            let slot = &mut self.clients[client as usize];
            slot.times.sent = now;
            slot.times.connect = std::mem::take(&mut connection.state_mut().connect);
            slot.since = now;
            slot.body.clear();
            slot.exchange = RequestStage::Head(exchange);
            context.recorder.count_sent(slot.ticket.measured);
        }
    }

    fn read_responses(
        &mut self,
        context: &mut ThreadContext,
        index: u32,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        for client in self.clients_of(index) {
            let wants_server = context.recorder.needs_server_header();
            let broken = self.connections[index as usize].state().error.as_deref();
            let slot = &mut self.clients[client as usize];
            let step = match slot.progress(context, wants_server, broken, C::PROTOCOL) {
                ResponseProgress::Pending => continue,
                ResponseProgress::Complete(answer) => self.complete(context, client, answer),
                ResponseProgress::Failed(outcome, why) => {
                    let now = context.clock.now();
                    self.fail(context, client, outcome, Some(&why), now)
                }
            };
            steps.push((client, step));
        }
    }

    fn complete(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        answer: ResponseBodyReader<C::Exchange>,
    ) -> RequestStep {
        let now = context.clock.now();
        let connection = &mut self.connections[(client / self.streams) as usize];
        let slot = &mut self.clients[client as usize];
        let replayed = slot.ticket.replayed.as_deref();
        let outcome = context.judge(answer.status, answer.length, &slot.body, replayed);
        let counted = RecordedResponse {
            status: answer.status,
            length: answer.length,
            has_length: answer.has_length,
            protocol: C::PROTOCOL,
            reused: connection.state().served > 0,
            kept: true,
            wanted_to_keep: true,
        };
        let (measured, good) = (slot.ticket.measured, outcome == Outcome::Good);
        context
            .recorder
            .count_response(measured, counted, good, answer.server);
        connection.state_mut().served += 1;
        slot.exchange = RequestStage::Idle;
        slot.free_since = now;
        context
            .recorder
            .count_ended(measured, outcome, slot.times, answer.status, now);
        slot.count_replayed(context, outcome, answer.status, now);
        RequestStep::Ended { now, outcome }
    }

    fn fail(
        &mut self,
        context: &mut ThreadContext,
        client: u32,
        outcome: Outcome,
        why: Option<&dyn std::fmt::Display>,
        now: u64,
    ) -> RequestStep {
        let slot = &mut self.clients[client as usize];
        let measured = slot.ticket.measured;
        if let Some(why) = why {
            context.recorder.count_reason(measured, outcome, why);
        }
        context.handle_failure(outcome, why);
        if context.plan.on_socket_error == OnSocketError::Stop
            && matches!(
                outcome.kind(),
                OutcomeStage::Connect | OutcomeStage::Transport
            )
        {
            context.stop_on_error(outcome, why);
        }
        slot.exchange = RequestStage::Idle;
        slot.free_since = now;
        context
            .recorder
            .count_ended(measured, outcome, slot.times, 0, now);
        slot.count_replayed(context, outcome, 0, now);
        RequestStep::Ended { now, outcome }
    }

    /// Handles a connection that could not be established: the requests of all its clients fail with the same outcome.
    fn handle_connect_failure(
        &mut self,
        context: &mut ThreadContext,
        index: u32,
        failure: &ConnectFailure,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        let now = context.clock.now();
        self.connections[index as usize].close(context);
        let why = failure
            .why
            .as_ref()
            .map(|why| why as &dyn std::fmt::Display);
        for client in self.clients_of(index) {
            if !matches!(self.clients[client as usize].exchange, RequestStage::Idle) {
                steps.push((
                    client,
                    self.fail(context, client, failure.outcome, why, now),
                ));
            }
        }
    }

    /// Handles the end of an established connection. Requests that had not been sent begin again on another connection,
    /// if this one has ever carried a response.
    fn handle_connection_end(
        &mut self,
        context: &mut ThreadContext,
        index: u32,
        failure: Option<StreamFailure>,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        let now = context.clock.now();
        let connection = &mut self.connections[index as usize];
        let state = connection.state_mut();
        let (served, broken) = (state.served, state.error.take());
        connection.close(context);
        let mut lost = 0;
        for client in self.clients_of(index) {
            let slot = &mut self.clients[client as usize];
            let (head, sent) = match slot.exchange {
                RequestStage::Idle => continue,
                RequestStage::Waiting => (false, false),
                RequestStage::Head(_) => (false, true),
                RequestStage::Body(_) => (true, true),
            };
            if !sent && served > 0 {
                continue;
            }
            lost += 1;
            let outcome = match (&broken, &failure, head) {
                (Some(_), ..) => Outcome::Reset,
                (None, _, true) => Outcome::Truncated,
                (None, Some(failure), false) => failure.outcome,
                (None, None, false) => Outcome::ClosedEarly,
            };
            let why = broken.as_ref().or(failure.as_ref().map(|f| &f.why));
            let why = why.map_or("", String::as_str);
            steps.push((client, self.fail(context, client, outcome, Some(&why), now)));
        }
        if lost == 0 {
            context.recorder.connections().closed_idle += 1;
        }
        self.mark_dirty(index);
    }
}
