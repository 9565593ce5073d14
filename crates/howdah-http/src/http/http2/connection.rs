//! One HTTP/2 connection from start to end: requests are accepted and handled, each on a task of its own once it has to
//! wait; frames are sent; and the connection ends without losing a request that the client may believe to be handled.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::channel::Channel;
use super::super::config::HttpConfig;
use super::super::connection::ConnectionEnd;
use super::super::deadline::Deadline;
use super::super::handler::{ConnectionInfo, ConnectionNotice, RequestHandler};
use super::super::lifecycle::EnrolledConnection;
use super::super::message::HttpVersion;
use super::super::multiplexed::request::{RequestRefusal, convert_request};
use super::super::multiplexed::{request_response, urgency};
use super::super::request_io::RequestIo;
use super::super::stream::ByteStream;
use super::floods::Http2Error;
use super::stream::Http2Stream;
use super::wire::{Wire, WireEnd};
use crate::turn;
use howdah_http1::refusal::BadRequest;

/// The maximum number of simultaneous streams of a connection: nginx's default.
const MAX_STREAMS: u32 = 128;
/// The window of one stream: the number of body bytes in transit or waiting for their reader. Allows 5 MB/s at 50 ms.
const STREAM_WINDOW: u32 = 256 << 10;
/// The window of all streams together: a few bodies that are not read do not block others.
const CONNECTION_WINDOW: u32 = 32 * STREAM_WINDOW;
/// How long a client without a request in progress has to learn that the connection ends, and how long a broken
/// connection may take to report its end. Both need a few round trips.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a connection without a request in progress waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http2Awaited {
    /// The connection's first request.
    First,
    /// Nothing: a request is in progress.
    Busy,
    /// The next request.
    Idle,
    /// The rest of a header block or of a frame.
    Rest,
    /// The client to close the connection.
    End,
}

/// An HTTP/2 connection, starting with its first frame.
pub(in crate::http) struct Http2Connection<'a, H> {
    handler: &'a Arc<H>,
    stream: Arc<ByteStream>,
    config: Arc<HttpConfig>,
    info: &'a mut ConnectionInfo,
    place: &'a EnrolledConnection,
    wire: Arc<Wire>,
    streams: JoinSet<()>,
    deadline: Deadline,
    awaited: Http2Awaited,
    /// Whether GOAWAY has been sent or is about to be.
    ending: bool,
}

type H2 = h2::server::Connection<WireEnd, Bytes>;

impl<'a, H: RequestHandler> Http2Connection<'a, H> {
    /// Creates a connection. `before` holds the client's frames received so far.
    pub(in crate::http) fn new(
        handler: &'a Arc<H>,
        stream: Arc<ByteStream>,
        config: Arc<HttpConfig>,
        info: &'a mut ConnectionInfo,
        place: &'a EnrolledConnection,
        before: Vec<u8>,
    ) -> Http2Connection<'a, H> {
        Http2Connection {
            wire: Arc::new(Wire::new(stream.clone(), config.clone(), before)),
            handler,
            stream,
            deadline: Deadline::after(config.header_timeout),
            config,
            info,
            place,
            streams: JoinSet::new(),
            awaited: Http2Awaited::First,
            ending: false,
        }
    }

    /// Serves the connection until no stream of it is left.
    pub(in crate::http) async fn run(mut self) -> ConnectionEnd {
        let Some(mut h2) = self.begin().await else {
            return ConnectionEnd::Close;
        };
        let end = poll_fn(|cx| self.poll_connection(&mut h2, cx)).await;
        // Dropping the connection notifies the handlers that are still running that their client is gone.
        drop(h2);
        self.wire.gate.close();
        if !matches!(end, ConnectionEnd::Gone) {
            self.stream.shutdown_write();
        }
        while self.streams.join_next().await.is_some() {}
        end
    }

    /// Sends the server's settings, and reads the client's preface.
    async fn begin(&mut self) -> Option<H2> {
        let header = u32::try_from(self.config.max_header_bytes).unwrap_or(u32::MAX);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(MAX_STREAMS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // Here each field counts 32 bytes more. A head that is too long is refused when it is converted.
            .max_header_list_size(header.saturating_mul(2));
        let mut handshake = pin!(builder.handshake(WireEnd(self.wire.clone())));
        poll_fn(|cx| {
            let mut begun = handshake.as_mut().poll(cx);
            if begun.is_pending() && self.wire.release_end() {
                begun = handshake.as_mut().poll(cx);
            }
            let flushed = self.wire.poll_flush(cx);
            match begun {
                Poll::Pending if matches!(flushed, Poll::Ready(Err(_))) => Poll::Ready(None),
                // A client that takes no data may still have sent requests.
                Poll::Ready(begun) => Poll::Ready(begun.ok()),
                Poll::Pending if self.place.must_close(&mut self.deadline) => Poll::Ready(None),
                Poll::Pending => self.deadline.poll(cx).map(|()| None),
            }
        })
        .await
    }

    fn poll_connection(&mut self, h2: &mut H2, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        let most = self.config.keepalive_requests;
        if self.place.life.is_draining() || most > 0 && self.info.request >= most {
            self.end_gracefully(h2);
        }
        if let Poll::Ready(end) = self.poll_frames(h2, cx) {
            // Sends the last frames, perhaps a GOAWAY.
            let _ = self.wire.poll_flush(cx);
            return Poll::Ready(end);
        }
        if let Poll::Ready(Err(_)) = self.wire.poll_flush(cx) {
            self.accept_remaining(h2, cx);
            return Poll::Ready(ConnectionEnd::Gone);
        }
        if let Some(when) = self.wire.broken_since() {
            // The h2 crate reads the rest of the client's data, whose end follows immediately.
            self.deadline.set(when, CLOSE_TIMEOUT);
            return self.deadline.poll(cx).map(|()| ConnectionEnd::Gone);
        }
        self.poll_idle(h2, cx)
    }

    /// Starts handling the requests that a client sent before the server ended its connection because the client reads
    /// no data. Requests with side effects are therefore still run.
    fn accept_remaining(&mut self, h2: &mut H2, cx: &mut Context<'_>) {
        for _ in self.streams.len()..MAX_STREAMS as usize {
            let Poll::Ready(Some(Ok((request, respond)))) = h2.poll_accept(cx) else {
                return;
            };
            self.accept(request, respond, cx);
        }
    }

    /// Lets the h2 crate receive and send, and starts handling requests.
    fn poll_frames(&mut self, h2: &mut H2, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        loop {
            while let Poll::Ready(Some(_)) = self.streams.poll_join_next(cx) {}
            // Streams that were reset are counted until their handler has returned.
            let polled = if self.streams.len() < MAX_STREAMS as usize {
                h2.poll_accept(cx)
            } else {
                h2.poll_closed(cx)
                    .map(|closed| closed.err().map(Err::<(Request<_>, _), _>))
            };
            if let Some(why) = self.wire.flood() {
                return Poll::Ready(self.end_with_flood(h2, why, cx));
            }
            match polled {
                // All requests that arrived before the end are accepted.
                Poll::Pending if self.wire.release_end() => {}
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(ConnectionEnd::Close),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(self.failed(&error)),
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.accept(request, respond, cx);
                    ready!(turn::poll_turn(cx));
                }
            }
        }
    }

    /// Starts handling a request immediately, and continues it as a task if it has to wait.
    fn accept(
        &mut self,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        cx: &mut Context<'_>,
    ) {
        self.awaited = Http2Awaited::Busy;
        self.place.set_busy();
        self.info.request += 1;
        let (request, recv) = request.into_parts();
        let has_body = !recv.is_end_stream();
        let urgency = urgency(&request.headers);
        let stream = Http2Stream::new(self.wire.clone(), urgency, recv, respond);
        let converted = convert_request(
            &request,
            has_body,
            HttpVersion::Http2,
            &self.config.head_limits(),
        );
        drop(request);
        if matches!(converted, Err(RequestRefusal::Malformed)) {
            return stream.reset(Reason::PROTOCOL_ERROR);
        }
        let life = &self.place.life;
        let channel = Channel::Http2(Box::new(stream));
        let io = Arc::new(RequestIo::new(
            channel,
            self.config.clone(),
            life.clone(),
            self.info.alternative.clone(),
        ));
        let (handler, info) = (self.handler.clone(), self.info.clone());
        match converted {
            Ok((head, framing)) => {
                life.requests.fetch_add(1, Ordering::Relaxed);
                self.start(
                    request_response::handle(handler, io, info, head, framing),
                    cx,
                );
            }
            Err(RequestRefusal::Bad { why, line }) => {
                self.start(
                    request_response::refuse(handler, io, info, HttpVersion::Http2, why, line),
                    cx,
                );
            }
            Err(RequestRefusal::Malformed) => {}
        }
    }

    fn start(&mut self, task: impl Future<Output = ()> + Send + 'static, cx: &mut Context<'_>) {
        let mut task = Box::pin(task);
        if task.as_mut().poll(cx).is_pending() {
            // The request's task sees any event that has woken the connection's task meanwhile, because a new task is
            // polled once.
            self.streams.spawn(turn::measure("a stream", task));
        }
    }

    /// Waits while no request is in progress, but only for the permitted time.
    fn poll_idle(&mut self, h2: &mut H2, cx: &mut Context<'_>) -> Poll<ConnectionEnd> {
        if !self.streams.is_empty() || !self.wire.is_flushed() {
            self.awaited = Http2Awaited::Busy;
            self.place.set_busy();
            return Poll::Pending;
        }
        let awaited = match self.awaited {
            _ if self.ending => Http2Awaited::End,
            _ if self.wire.is_within_frame() => Http2Awaited::Rest,
            Http2Awaited::First => Http2Awaited::First,
            _ => Http2Awaited::Idle,
        };
        if awaited != self.awaited {
            self.awaited = awaited;
            let now = Instant::now();
            match awaited {
                Http2Awaited::Idle => self.place.set_idle(now),
                _ => self.place.set_owing(now),
            }
            let wait = match awaited {
                Http2Awaited::Idle => self.config.keepalive_timeout,
                Http2Awaited::End => CLOSE_TIMEOUT,
                _ => self.config.header_timeout,
            };
            self.deadline.set(now, wait);
        }
        if self.place.is_evicted() {
            h2.abrupt_shutdown(Reason::NO_ERROR);
            return self.poll_last(h2, cx, ConnectionEnd::Close);
        }
        ready!(self.deadline.poll(cx));
        match awaited {
            Http2Awaited::End => Poll::Ready(ConnectionEnd::Close),
            Http2Awaited::Rest => {
                self.notice_header_timeout();
                h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                self.poll_last(h2, cx, ConnectionEnd::Linger)
            }
            _ => {
                self.end_gracefully(h2);
                // Polls again, now waiting for the end.
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn end_gracefully(&mut self, h2: &mut H2) {
        if !std::mem::replace(&mut self.ending, true) {
            h2.graceful_shutdown();
        }
    }

    /// Sends as much of the last frames as the socket takes without blocking.
    fn poll_last(
        &mut self,
        h2: &mut H2,
        cx: &mut Context<'_>,
        end: ConnectionEnd,
    ) -> Poll<ConnectionEnd> {
        let _ = h2.poll_closed(cx);
        let _ = self.wire.poll_flush(cx);
        Poll::Ready(end)
    }

    fn end_with_flood(
        &mut self,
        h2: &mut H2,
        why: Http2Error,
        cx: &mut Context<'_>,
    ) -> ConnectionEnd {
        self.notice(why, "");
        h2.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        let _ = self.poll_last(h2, cx, ConnectionEnd::Gone);
        self.stream.shutdown_write();
        ConnectionEnd::Gone
    }

    /// Reports why the h2 crate has ended the connection, and returns how to close it.
    fn failed(&self, error: &h2::Error) -> ConnectionEnd {
        if error.is_library() {
            let why = Http2Error::from_goaway_text(&self.wire.goaway_text());
            self.notice(why, &error.to_string());
            return match why {
                Http2Error::Http2Protocol => ConnectionEnd::Linger,
                _ => ConnectionEnd::Gone,
            };
        }
        match error.is_io() {
            true => ConnectionEnd::Gone,
            // The client has sent a GOAWAY with an error.
            false => ConnectionEnd::Close,
        }
    }

    fn notice(&self, why: Http2Error, detail: &str) {
        let conn = &*self.info;
        self.handler
            .notice(&ConnectionNotice::Http2Ended { conn, why, detail });
    }

    fn notice_header_timeout(&self) {
        self.place.life.refused.fetch_add(1, Ordering::Relaxed);
        self.handler.notice(&ConnectionNotice::Refused {
            conn: self.info,
            why: BadRequest::HeaderTimeout,
            line: b"",
        });
    }
}
