//! HTTP/2: clients that share connections, each with one stream at a time. The framing is that of the `h2` crate,
//! polled from the same event loop as HTTP/1.x, without a runtime, tasks or separate timers.

mod client;
mod connection;
mod pipe;

use std::task::{Poll, Waker};

use bytes::Bytes;
use rustix::event::epoll::EventFlags;

use super::client_fleet::{ClientFleet, PendingRequest};
use super::connection::{RequestStep, SendTicket};
use super::context::ThreadContext;
use super::recorder::{RecordedResponse, RequestTimes};
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::template::XorshiftRandom;
use crate::plan::{BacklogPolicy, OnSocketError, Plan};
use client::{RequestStage, ResponseBodyReader, ResponseProgress, StreamClient};
use connection::{ConnectFailure, ConnectionPhase, SharedHttp2Connection};

/// The clients of a thread and the connections they share.
pub struct Http2ClientFleet {
    connections: Vec<SharedHttp2Connection>,
    clients: Vec<StreamClient>,
    /// How many clients share a connection.
    streams: u32,
    dirty: Vec<u32>,
    body: Bytes,
    seed: u64,
    threads: u64,
    thread: u64,
}

impl ClientFleet for Http2ClientFleet {
    fn new(plan: &Plan, thread: usize) -> Self {
        Http2ClientFleet {
            connections: Vec::new(),
            clients: Vec::new(),
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
            self.connections
                .push(SharedHttp2Connection::new(client / self.streams));
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
        slot.ticket = ticket;
        slot.since = now;
        slot.times = RequestTimes {
            due: ticket.due,
            ..RequestTimes::default()
        };
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
        if connection.token() != token {
            return;
        }
        match connection.event(context, flags) {
            Ok(()) => self.mark_dirty(index),
            Err(failure) => self.handle_connect_failure(context, index, &failure, steps),
        }
    }

    fn retry(
        &mut self,
        _: &mut ThreadContext,
        client: u32,
        _: u64,
        _: &mut Vec<(u32, RequestStep)>,
    ) {
        let index = client / self.streams;
        let connection = &mut self.connections[index as usize];
        if connection.phase == ConnectionPhase::Backlog {
            connection.phase = ConnectionPhase::Down;
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
            let outcome = match self.connections[index as usize].phase {
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
                let failure = ConnectFailure { outcome, why: None };
                self.handle_connect_failure(context, index, &failure, steps);
            }
        }
    }

    fn flush(&mut self, context: &mut ThreadContext, steps: &mut Vec<(u32, RequestStep)>) -> bool {
        let dirty = std::mem::take(&mut self.dirty);
        for index in &dirty {
            self.connections[*index as usize].dirty = false;
            self.drive(context, *index, steps);
        }
        !dirty.is_empty()
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

impl Http2ClientFleet {
    fn mark_dirty(&mut self, index: u32) {
        let connection = &mut self.connections[index as usize];
        if !connection.dirty {
            connection.dirty = true;
            self.dirty.push(index);
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
        if connection.phase == ConnectionPhase::Down {
            let waiting = |slot: &StreamClient| matches!(slot.exchange, RequestStage::Waiting);
            let range = index as usize * self.streams as usize;
            let end = (range + self.streams as usize).min(self.clients.len());
            if !self.clients[range..end].iter().any(waiting) {
                return;
            }
            let now = context.clock.now();
            if let Err(failure) = connection.open(context, now) {
                let waits = context.plan.connection.backlog == BacklogPolicy::Wait;
                if failure.outcome == Outcome::ConnectBacklog && waits {
                    connection.phase = ConnectionPhase::Backlog;
                    steps.push((index * self.streams, RequestStep::RetryConnect));
                } else {
                    self.handle_connect_failure(context, index, &failure, steps);
                }
                return;
            }
        }
        if self.connections[index as usize].phase != ConnectionPhase::Up {
            return;
        }
        // The connection is polled twice, because reading may free streams and windows, and the server has to learn
        // that at once.
        let mut alive = self.poll(index);
        self.send_waiting(context, index, steps);
        alive = alive.and_then(|_| self.poll(index));
        self.read_responses(context, index, steps);
        alive = alive.and_then(|_| self.poll(index));
        self.connections[index as usize].send(context);
        match alive {
            Ok(true) => {}
            Ok(false) => self.handle_connection_end(context, index, None, steps),
            Err(why) => self.handle_connection_end(context, index, Some(why), steps),
        }
    }

    fn poll(&mut self, index: u32) -> Result<bool, String> {
        self.connections[index as usize]
            .poll()
            .map_err(|e| e.to_string())
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
            let connection = &mut self.connections[index as usize];
            let Some(sender) = &mut connection.sender else {
                return;
            };
            let mut waker = std::task::Context::from_waker(Waker::noop());
            match sender.poll_ready(&mut waker) {
                Poll::Ready(Ok(())) => {}
                // Pending: the server allows no further stream. Error: the connection will report the reason.
                Poll::Ready(Err(_)) | Poll::Pending => return,
            }
            let request = match self.clients[client as usize].request(context, client) {
                Ok(request) => request,
                Err(why) => {
                    let now = context.clock.now();
                    let outcome = Outcome::ProtocolError;
                    let step = self.fail(context, client, outcome, Some(&why), now);
                    steps.push((client, step));
                    continue;
                }
            };
            let bodyless = self.body.is_empty();
            let connection = &mut self.connections[index as usize];
            let Some(sender) = &mut connection.sender else {
                return;
            };
            let Ok((response, mut stream)) = sender.send_request(request, bodyless) else {
                return;
            };
            if !bodyless && stream.send_data(self.body.clone(), true).is_err() {
                return;
            }
            let now = context.clock.now();
            let slot = &mut self.clients[client as usize];
            slot.times.sent = now;
            slot.times.connect = std::mem::take(&mut connection.connect);
            slot.since = now;
            slot.body.clear();
            slot.exchange = RequestStage::Head(response);
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
            let broken = self.connections[index as usize].error.clone();
            let slot = &mut self.clients[client as usize];
            let step = match slot.progress(context, wants_server, broken) {
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
        answer: ResponseBodyReader,
    ) -> RequestStep {
        let now = context.clock.now();
        let connection = &mut self.connections[(client / self.streams) as usize];
        let slot = &mut self.clients[client as usize];
        let outcome = context.judge(answer.status, answer.length, &slot.body);
        let counted = RecordedResponse {
            status: answer.status,
            length: answer.length,
            has_length: answer.has_length,
            protocol: "HTTP/2",
            reused: connection.served > 0,
            kept: true,
            wanted_to_keep: true,
        };
        let (measured, good) = (slot.ticket.measured, outcome == Outcome::Good);
        context
            .recorder
            .count_response(measured, counted, good, answer.server);
        connection.served += 1;
        slot.exchange = RequestStage::Idle;
        slot.free_since = now;
        context
            .recorder
            .count_ended(measured, outcome, slot.times, answer.status, now);
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
        why: Option<String>,
        steps: &mut Vec<(u32, RequestStep)>,
    ) {
        let now = context.clock.now();
        let connection = &mut self.connections[index as usize];
        let (served, broken) = (connection.served, connection.error.take());
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
            let outcome = match (&broken, &why, head) {
                (Some(_), ..) => Outcome::Reset,
                (None, _, true) => Outcome::Truncated,
                (None, Some(_), false) => Outcome::ProtocolError,
                (None, None, false) => Outcome::ClosedEarly,
            };
            let why = broken.clone().or(why.clone()).unwrap_or_default();
            steps.push((client, self.fail(context, client, outcome, Some(&why), now)));
        }
        if lost == 0 {
            context.recorder.connections().closed_idle += 1;
        }
        self.mark_dirty(index);
    }
}
