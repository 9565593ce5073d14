//! One client and its connection: a request from its beginning to its end. It is a state machine driven by events and
//! times. The worker decides which client begins the next request, and when.
//!
//! In the common case a request takes one `send` and one `recv`: its response is read in one piece, and the next
//! request is sent from within the same event.

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::client_fleet::PendingRequest;
use super::context::ThreadContext;
use super::cookies::CookieJar;
use super::recorder::{RecordedResponse, RequestTimes};
use super::socket;
use super::stream::{BenchStream, ReceiveResult};
use super::transcript::Transcript;
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::check::MAX_CHECKED_BODY_BYTES;
use crate::plan::template::{PlaceholderValues, XorshiftRandom};
use crate::plan::{BacklogPolicy, OnSocketError};
use crate::replay::ReplayedRequest;
use crate::response::head::Http1Head;
use crate::response::{ConnectionEndEffect, ResponseFault, ResponsePartSink, ResponseReader};

/// How many reads one connection may do before the other connections get their turn; 2 MiB in total.
const MAX_CONSECUTIVE_READS: usize = 32;

/// Permission to send a request.
#[derive(Clone, Debug, Default)]
pub struct SendTicket {
    /// The request's number, from 1.
    pub seq: u64,
    /// When the request was due; in a closed loop, the time at which the ticket was issued.
    pub due: u64,
    /// Whether the request belongs to the measured part.
    pub measured: bool,
    /// Open loop: how late the request is because the generator was busy.
    pub lag: Option<u64>,
    /// What to request, if it comes from a log.
    pub replayed: Option<Box<ReplayedRequest>>,
}

/// A client and its connection.
#[derive(Debug)]
pub struct Http1Client {
    index: u32,
    /// Distinguishes events of this socket from those of the previous one.
    generation: u32,
    phase: Http1Phase,
    stream: Option<BenchStream>,
    /// The number of complete responses on this connection.
    served: u64,
    /// When the client became free. The send lag counts from this time.
    pub free_since: u64,
    ticket: SendTicket,
    times: RequestTimes,
    /// When connecting, or waiting for the response, began. The timeout counts from this time.
    since: u64,
    /// The whole request, if it differs from the constant one.
    out: Vec<u8>,
    out_constant: bool,
    out_sent: usize,
    reader: ResponseReader,
    /// The body of the response, buffered for the checks.
    body: Vec<u8>,
    jar: CookieJar,
    random: XorshiftRandom,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Http1Phase {
    /// The client has no request.
    Idle,
    /// The connection is being established.
    Connecting,
    /// The backlog was full, and the worker will retry.
    Backlog,
    /// The TLS handshake is in progress.
    Handshake,
    /// A part of the request has not been sent yet.
    Sending,
    /// The request has been sent, and the client waits for the response.
    Receiving,
}

/// The result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStep {
    /// The request is still in progress.
    Working,
    /// The request has ended at this time.
    Ended { now: u64, outcome: Outcome },
    /// The backlog was full: call [`Http1Client::retry`] in a millisecond.
    RetryConnect,
}

impl Http1Client {
    pub fn new(index: u32, seed: u64, number: u64) -> Http1Client {
        Http1Client {
            index,
            generation: 0,
            phase: Http1Phase::Idle,
            stream: None,
            served: 0,
            free_since: 0,
            ticket: SendTicket::default(),
            times: RequestTimes::default(),
            since: 0,
            out: Vec::new(),
            out_constant: false,
            out_sent: 0,
            reader: ResponseReader::default(),
            body: Vec::new(),
            jar: CookieJar::default(),
            random: XorshiftRandom::new(seed, number),
        }
    }

    /// Returns the token that epoll reports with events of the current socket.
    pub fn token(&self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// Returns the request in progress, if there is one.
    pub fn pending_request(&self) -> Option<PendingRequest> {
        (self.phase != Http1Phase::Idle).then_some(PendingRequest {
            measured: self.ticket.measured,
            due: self.ticket.due,
            sent: self.times.sent > 0,
        })
    }

    /// Begins a request.
    pub fn begin(
        &mut self,
        context: &mut ThreadContext,
        ticket: SendTicket,
        now: u64,
    ) -> RequestStep {
        self.times = RequestTimes {
            due: ticket.due,
            ..RequestTimes::default()
        };
        context
            .recorder
            .count_begun(ticket.measured, now, ticket.lag);
        self.ticket = ticket;
        self.since = now;
        if self.stream.is_some() {
            return self.start_sending(context, now);
        }
        self.connect(context, now)
    }

    /// Retries connecting after [`RequestStep::RetryConnect`].
    pub fn retry(&mut self, context: &mut ThreadContext, now: u64) -> RequestStep {
        if self.phase == Http1Phase::Backlog {
            self.connect(context, now)
        } else {
            RequestStep::Working
        }
    }

    fn connect(&mut self, context: &mut ThreadContext, now: u64) -> RequestStep {
        self.served = 0;
        self.generation = self.generation.wrapping_add(1);
        match socket::open(&context.peer, &context.plan.connection) {
            Ok(opened) => {
                let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
                if !context.peer.is_unix() {
                    flags |= EventFlags::OUT;
                }
                let data = EventData::new_u64(self.token());
                if let Err(error) = epoll::add(&context.epoll, &opened.fd, data, flags) {
                    return self.fail(context, Outcome::ConnectFailed, Some(&error), now);
                }
                match BenchStream::new(opened.fd, context.tls.as_deref()) {
                    Ok(stream) => self.stream = Some(stream),
                    Err(why) => return self.fail(context, Outcome::Tls, Some(&why), now),
                }
                self.phase = Http1Phase::Connecting;
                if opened.established {
                    return self.handle_established(context);
                }
                RequestStep::Working
            }
            Err(Errno::AGAIN) if context.peer.is_unix() => {
                context.recorder.connections().backlog_full += 1;
                let waits = context.plan.connection.backlog == BacklogPolicy::Wait;
                if waits && now.saturating_sub(self.since) < context.timeout {
                    self.phase = Http1Phase::Backlog;
                    return RequestStep::RetryConnect;
                }
                self.fail(context, Outcome::ConnectBacklog, None, now)
            }
            Err(error) => self.fail(context, socket::connect_outcome(error), Some(&error), now),
        }
    }

    /// Continues after the TCP or unix connection has been established.
    fn handle_established(&mut self, context: &mut ThreadContext) -> RequestStep {
        context.record_reached();
        context.recorder.count_opened();
        let tls = self
            .stream
            .as_ref()
            .is_some_and(BenchStream::is_handshaking);
        if tls {
            self.phase = Http1Phase::Handshake;
            return self.handshake(context);
        }
        self.handle_ready(context)
    }

    /// Sends the request once the connection can carry one.
    fn handle_ready(&mut self, context: &mut ThreadContext) -> RequestStep {
        let now = context.clock.now();
        self.times.connect = (now - self.since).max(1);
        self.since = now;
        self.start_sending(context, now)
    }

    fn handshake(&mut self, context: &mut ThreadContext) -> RequestStep {
        let stream = self.stream.as_mut().expect("a handshake has a stream");
        match stream.handshake(&mut context.scratch) {
            Ok(true) => {
                let stream = self.stream.as_ref().expect("it was just there");
                if !context.record_handshake() {
                    context.recorder.connections().tls = stream.description();
                }
                self.handle_ready(context)
            }
            Ok(false) => RequestStep::Working,
            Err(why) => {
                let now = context.clock.now();
                self.fail(context, Outcome::Tls, Some(&why), now)
            }
        }
    }

    fn start_sending(&mut self, context: &mut ThreadContext, now: u64) -> RequestStep {
        let replayed = self.ticket.replayed.as_deref();
        self.reader
            .begin(replayed.map_or(context.requests.head_only, |request| request.head));
        self.body.clear();
        self.out.clear();
        self.out_sent = 0;
        self.out_constant =
            replayed.is_none() && context.requests.constant(self.ticket.seq).is_some();
        if !self.out_constant {
            let mut filling = PlaceholderValues {
                seq: self.ticket.seq,
                client: self.index * context.threads + context.thread + 1,
                random: &mut self.random,
            };
            let jar = context.requests.cookie_jar().then_some(&self.jar);
            context
                .requests
                .write(replayed, &mut filling, jar, &mut self.out);
        }
        if context.plan.transcript != Transcript::Silent {
            let constant = context.requests.constant(self.ticket.seq);
            let bytes = constant.filter(|_| self.out_constant).unwrap_or(&self.out);
            context.plan.transcript.request(self.ticket.seq, bytes);
        }
        self.phase = Http1Phase::Sending;
        self.send(context, now)
    }

    fn send(&mut self, context: &mut ThreadContext, mut now: u64) -> RequestStep {
        loop {
            let constant = context.requests.constant(self.ticket.seq);
            let out = match constant {
                Some(bytes) if self.out_constant => bytes,
                _ => &self.out,
            };
            let stream = self.stream.as_mut().expect("sending needs a stream");
            match stream.send(&out[self.out_sent..]) {
                Ok(sent) => {
                    let complete = self.out_sent + sent == out.len();
                    if self.out_sent == 0 {
                        context.recorder.count_sent(self.ticket.measured);
                        self.times.sent = now;
                    } else {
                        now = context.clock.now();
                        self.times.sent = now;
                    }
                    self.out_sent += sent;
                    context
                        .recorder
                        .count_bytes_sent(self.ticket.measured, sent);
                    if complete {
                        self.phase = Http1Phase::Receiving;
                        return RequestStep::Working;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.wait_until_writable(context);
                    return RequestStep::Working;
                }
                // The response may already be there: a server that refuses a body responds and closes.
                Err(_) if self.out_sent > 0 => return self.receive(context, true),
                Err(error) => {
                    let now = context.clock.now();
                    return self.fail(context, Outcome::Reset, Some(&error), now);
                }
            }
        }
    }

    /// Watches a unix socket for writability after a send fell short. If it were watched from the start, it would
    /// report every byte that the peer reads. TCP sockets are watched from the start, because they report it only after
    /// a send fell short.
    fn wait_until_writable(&mut self, context: &ThreadContext) {
        if context.peer.is_unix() {
            self.watch(context, EventFlags::OUT);
        }
    }

    /// Registers the socket again, so that epoll reports again what is ready now.
    fn watch(&mut self, context: &ThreadContext, besides: EventFlags) {
        if let Some(stream) = &self.stream {
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET | besides;
            let data = EventData::new_u64(self.token());
            // This fails only for a descriptor that is not watched, and this one is.
            let _ = epoll::modify(&context.epoll, stream.fd(), data, flags);
        }
    }

    /// Handles an event of the socket.
    pub fn event(&mut self, context: &mut ThreadContext, flags: EventFlags) -> RequestStep {
        let ended = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        match self.phase {
            Http1Phase::Connecting => {
                let stream = self.stream.as_ref().expect("connecting has a stream");
                match socket::connect_result(stream.fd()) {
                    Ok(()) if flags.intersects(EventFlags::OUT | EventFlags::IN) => {
                        self.handle_established(context)
                    }
                    Ok(()) => RequestStep::Working,
                    Err(error) => {
                        let now = context.clock.now();
                        self.fail(context, socket::connect_outcome(error), Some(&error), now)
                    }
                }
            }
            Http1Phase::Handshake => self.handshake(context),
            Http1Phase::Receiving => {
                if flags.contains(EventFlags::OUT)
                    && let Some(stream) = &mut self.stream
                {
                    // TLS may hold back records of the request. An error will show when receiving.
                    let _ = stream.flush();
                }
                self.receive(context, ended)
            }
            Http1Phase::Sending => {
                if flags.contains(EventFlags::IN) || ended {
                    let step = self.receive(context, ended);
                    if step != RequestStep::Working {
                        return step;
                    }
                }
                if self.phase == Http1Phase::Sending && flags.contains(EventFlags::OUT) {
                    let now = context.clock.now();
                    return self.send(context, now);
                }
                RequestStep::Working
            }
            Http1Phase::Idle | Http1Phase::Backlog => {
                if self.stream.is_some() && self.idle_event(context, ended) {
                    self.close(context);
                    context.recorder.connections().closed_idle += 1;
                }
                RequestStep::Working
            }
        }
    }

    /// Handles an event between two requests. Returns whether the connection has become unusable.
    fn idle_event(&mut self, context: &mut ThreadContext, ended: bool) -> bool {
        let Some(stream) = &mut self.stream else {
            return false;
        };
        // Unrequested bytes make it unusable as well. Session tickets of TLS are not such bytes.
        ended
            || !matches!(
                stream.receive(&mut context.buffer, &mut context.scratch),
                Ok(ReceiveResult::WouldBlock)
            )
    }

    fn receive(&mut self, context: &mut ThreadContext, ended: bool) -> RequestStep {
        for _ in 0..MAX_CONSECUTIVE_READS {
            let stream = self.stream.as_mut().expect("receiving needs a stream");
            let received = stream.receive(&mut context.buffer, &mut context.scratch);
            match received {
                Ok(ReceiveResult::Bytes { length, drained }) => {
                    let now = context.clock.now();
                    if self.times.first_byte == 0 {
                        self.times.first_byte = now;
                    }
                    let step = self.read(context, length, ended, now);
                    if step != RequestStep::Working || (drained && !ended) {
                        return step;
                    }
                }
                Ok(ReceiveResult::WouldBlock) => return RequestStep::Working,
                Ok(ReceiveResult::End) => {
                    let now = context.clock.now();
                    return match self.reader.end() {
                        ConnectionEndEffect::Complete => self.complete(context, true, now),
                        ConnectionEndEffect::Nothing => {
                            self.fail(context, Outcome::ClosedEarly, None, now)
                        }
                        ConnectionEndEffect::Truncated => {
                            self.fail(context, Outcome::Truncated, None, now)
                        }
                    };
                }
                // Over TLS, the connection ended without close_notify, so only a body with its own end marker is known
                // to be complete.
                Ok(ReceiveResult::CutOff) => {
                    let now = context.clock.now();
                    let outcome = match self.reader.end() {
                        ConnectionEndEffect::Nothing => Outcome::ClosedEarly,
                        ConnectionEndEffect::Complete | ConnectionEndEffect::Truncated => {
                            Outcome::Truncated
                        }
                    };
                    return self.fail(context, outcome, Some(&"no close_notify"), now);
                }
                Err(why) => {
                    let now = context.clock.now();
                    let outcome = if why.is_tls() {
                        Outcome::Tls
                    } else {
                        Outcome::Reset
                    };
                    return self.fail(context, outcome, Some(&why), now);
                }
            }
        }
        // A long response arrives as fast as it is read. Other connections get their turn, and the socket will be
        // reported again.
        self.watch(context, EventFlags::OUT);
        RequestStep::Working
    }

    /// Passes received bytes to the reader.
    #[inline]
    fn read(
        &mut self,
        context: &mut ThreadContext,
        length: usize,
        ended: bool,
        now: u64,
    ) -> RequestStep {
        context
            .recorder
            .count_bytes_received(self.ticket.measured, length);
        let bytes = &context.buffer[..length];
        let wants_server = context.recorder.needs_server_header();
        let mut sink = ResponseCollector {
            jar: context.requests.cookie_jar().then_some(&mut self.jar),
            body: context.checks_bodies.then_some(&mut self.body),
            server: wants_server.then_some(&mut context.server_field),
            transcript: context.plan.transcript,
            seq: self.ticket.seq,
        };
        match self.reader.feed(bytes, &mut sink) {
            Ok(used) if used < length => self.fail(
                context,
                Outcome::ProtocolError,
                Some(&ResponseFault::Surplus.description()),
                now,
            ),
            Ok(_) if self.reader.is_done() => self.complete(context, ended, now),
            Ok(_) => RequestStep::Working,
            Err(fault) => self.fail(
                context,
                Outcome::ProtocolError,
                Some(&fault.description()),
                now,
            ),
        }
    }

    /// Ends the request with a complete response. `ended` says whether the server has closed its side.
    fn complete(&mut self, context: &mut ThreadContext, ended: bool, now: u64) -> RequestStep {
        let head = *self.reader.head().expect("a complete answer has a head");
        let (status, length) = (head.status, self.reader.body_length());
        let kept = self.reader.keeps_connection();
        let keep_alive = context.plan.connection.keep_alive;
        let replayed = self.ticket.replayed.as_deref();
        let outcome = context.judge(status, length, &self.body, replayed);
        let answer = RecordedResponse {
            status,
            length,
            has_length: matches!(head.framing, crate::response::head::BodyFraming::Length(_)),
            protocol: if head.http10 { "HTTP/1.0" } else { "HTTP/1.1" },
            reused: self.served > 0,
            kept,
            wanted_to_keep: keep_alive,
        };
        let server = context.server_field.take();
        let good = outcome == Outcome::Good;
        context
            .recorder
            .count_response(self.ticket.measured, answer, good, server);
        self.served += 1;
        // If the response came before the whole request was sent, the connection is closed, because the rest of the
        // request can no longer be sent.
        if ended {
            // The server has closed its side first.
            self.close(context);
        } else if !(kept && keep_alive) || self.phase == Http1Phase::Sending {
            self.let_server_close(context);
        }
        self.finish(context, outcome, status, now)
    }

    /// Ends the request as failed and closes its connection.
    fn fail(
        &mut self,
        context: &mut ThreadContext,
        outcome: Outcome,
        why: Option<&dyn std::fmt::Display>,
        now: u64,
    ) -> RequestStep {
        if let Some(why) = why {
            context
                .recorder
                .count_reason(self.ticket.measured, outcome, why);
        }
        context.handle_failure(outcome, why);
        self.close(context);
        if context.plan.on_socket_error == OnSocketError::Stop
            && matches!(
                outcome.kind(),
                OutcomeStage::Connect | OutcomeStage::Transport
            )
        {
            context.stop_on_error(outcome, why);
        }
        self.finish(context, outcome, 0, now)
    }

    fn finish(
        &mut self,
        context: &mut ThreadContext,
        outcome: Outcome,
        status: u16,
        now: u64,
    ) -> RequestStep {
        self.phase = Http1Phase::Idle;
        self.free_since = now;
        let measured = self.ticket.measured;
        context
            .recorder
            .count_ended(measured, outcome, self.times, status, now);
        if let Some(request) = self.ticket.replayed.take() {
            let latency = now.saturating_sub(self.times.due);
            context
                .recorder
                .count_replayed(&request, outcome, status, latency);
        }
        RequestStep::Ended { now, outcome }
    }

    /// Ends a request that has taken too long.
    pub fn expire(&mut self, context: &mut ThreadContext, now: u64) -> RequestStep {
        if now.saturating_sub(self.since) < context.timeout {
            return RequestStep::Working;
        }
        match self.phase {
            Http1Phase::Idle => RequestStep::Working,
            Http1Phase::Connecting | Http1Phase::Handshake => {
                self.fail(context, Outcome::ConnectTimeout, None, now)
            }
            Http1Phase::Backlog => self.fail(context, Outcome::ConnectBacklog, None, now),
            Http1Phase::Sending | Http1Phase::Receiving => {
                self.fail(context, Outcome::Timeout, None, now)
            }
        }
    }

    /// Closes the connection at once.
    fn close(&mut self, context: &mut ThreadContext) {
        if let Some(stream) = self.stream.take()
            && (self.phase != Http1Phase::Connecting)
        {
            drop(stream);
            context.recorder.count_closed();
        }
    }

    /// Lets the server close first, as ab does, because the side that closes first keeps the port in TIME_WAIT.
    fn let_server_close(&mut self, context: &mut ThreadContext) {
        if let Some(stream) = self.stream.take() {
            context.recorder.count_closed();
            context.let_server_close(stream, self.token());
        }
    }
}

/// Takes from a response what the checks, the cookie jar, the report or the transcript need.
struct ResponseCollector<'a> {
    jar: Option<&'a mut CookieJar>,
    body: Option<&'a mut Vec<u8>>,
    server: Option<&'a mut Option<String>>,
    transcript: Transcript,
    seq: u64,
}

impl ResponsePartSink for ResponseCollector<'_> {
    #[inline]
    fn head(&mut self, head: &Http1Head, bytes: &[u8]) {
        if self.transcript != Transcript::Silent {
            self.transcript
                .answer(self.seq, head.status, || bytes.to_vec());
        }
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        if let Some(jar) = &mut self.jar
            && name.eq_ignore_ascii_case(b"set-cookie")
        {
            jar.set(value);
        }
        if let Some(server) = &mut self.server
            && name.eq_ignore_ascii_case(b"server")
        {
            **server = Some(String::from_utf8_lossy(value).into_owned());
        }
    }

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        if let Some(body) = &mut self.body {
            let room = MAX_CHECKED_BODY_BYTES.saturating_sub(body.len());
            body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}
