//! One connection from start to end: heads are read and parsed, requests are handled one after the other, responses are
//! sent in order, and the connection is closed in a way that lets the client receive them. Pipelined requests that have
//! already arrived are handled before anything is sent, so their responses share a write.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::body::RequestBody;
use super::buffers;
use super::channel::Channel;
use super::config::{HttpConfig, LINGERING_TIME, MAX_DISCARDED_BODY};
use super::deadline::Deadline;
use super::handler::{ConnectionInfo, ConnectionNotice, HandshakeFailure, RequestHandler};
use super::http2;
use super::lifecycle::EnrolledConnection;
use super::message::{HttpVersion, RequestHead};
use super::proxy_protocol::{self, TrustedPeers};
use super::request_io::RequestIo;
use super::responder::{Responder, ResponseEnd};
use super::stream::ByteStream;
use crate::memory::{self, MemoryPressure};
use crate::tls::on_demand::{HandshakeHold, HelloReader, RequestedServerName};
use crate::tls::{ConnectionSettings, CurrentSettings, NegotiatedTls};
use crate::turn;
use howdah_http1::framing::RequestFraming;
use howdah_http1::head::{self, HeadLimits};
use howdah_http1::refusal::BadRequest;

/// The number of bytes up to which responses to pipelined requests are collected before they are sent.
const MAX_PIPELINED_BATCH_BYTES: usize = 64 << 10;

/// The longest pause between two reads of the rest of a request after an early response, like nginx's
/// `lingering_timeout`. [`LINGERING_TIME`] limits the total.
const LINGERING_TIMEOUT: Duration = Duration::from_secs(5);

/// The response to a request without TLS on a TLS port.
const PLAIN_HTTP_RESPONSE: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Howdah-Error: PlainHttp\r\nConnection: close\r\nContent-Length: 49\r\n\r\nThis port speaks HTTPS. Use an https:// address.\n";

/// The data from the client that the connection waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http1Awaited {
    /// The first request, since accept.
    First,
    /// Nothing: a request is being handled, or was handled just now.
    Busy,
    /// The next request, on a connection that has sent a response.
    Idle,
    /// The rest of a head that has begun to arrive.
    Rest,
}

/// The outcome of waiting for a head.
enum NextHead {
    Request(RequestHead, RequestFraming),
    Refused(BadRequest),
    /// Memory is short, and the head is long or no memory is left for it.
    NoMemory,
    Closed,
}

/// How the connection ends.
pub(super) enum ConnectionEnd {
    /// Everything has been sent and read: close.
    Close,
    /// The client may still be sending: let it receive the response first.
    Linger,
    /// The server does not wait for the client.
    Gone,
    /// The client must not treat the part that it has received as a complete response.
    Reset,
}

/// How a connection begins before its first request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionSetup {
    /// The peers that must begin with a PROXY header; `None` means that no peer does.
    pub(crate) proxies: Option<Arc<TrustedPeers>>,
    /// The TLS settings; `None` means that the connection is not encrypted.
    pub(crate) tls: Option<CurrentSettings>,
    /// Whether HTTP/2 without TLS is used with clients that begin with it (RFC 9113 §3.3).
    pub(crate) h2c: bool,
}

/// One client connection, owned by one task from accept to close.
pub(crate) struct Http1Connection<H> {
    handler: Arc<H>,
    stream: Arc<ByteStream>,
    io: Arc<RequestIo>,
    info: ConnectionInfo,
    body: RequestBody,
    out: Responder,
    deadline: Deadline,
    waiting: Http1Awaited,
    /// Whether the input has grown since it was last parsed.
    unparsed: bool,
    /// The last field, so its slot is released after the socket is closed.
    place: EnrolledConnection,
}

/// Serves a connection to its end.
pub(crate) async fn serve<H: RequestHandler>(
    handler: Arc<H>,
    stream: ByteStream,
    config: Arc<HttpConfig>,
    info: ConnectionInfo,
    place: EnrolledConnection,
    beginning: ConnectionSetup,
) {
    let life = place.life.clone();
    let deadline = Deadline::after(config.header_timeout);
    let stream = Arc::new(stream);
    let channel = Channel::Http1(stream.clone());
    let io = Arc::new(RequestIo::new(
        channel,
        config,
        life.clone(),
        info.alternative.clone(),
    ));
    let mut connection = pin!(
        Http1Connection {
            handler,
            body: RequestBody::new(io.clone()),
            out: Responder::new(io.clone()),
            stream,
            io,
            info,
            place,
            deadline,
            waiting: Http1Awaited::First,
            unparsed: false,
        }
        .run(beginning)
    );
    poll_fn(|cx| {
        if life.is_killed() {
            return Poll::Ready(());
        }
        turn::run_measured("a connection", || connection.as_mut().poll(cx))
    })
    .await;
}

impl<H: RequestHandler> Http1Connection<H> {
    async fn run(mut self, beginning: ConnectionSetup) {
        poll_fn(|cx| {
            self.place.set_task(cx.waker());
            Poll::Ready(())
        })
        .await;
        if let Some(proxies) = beginning.proxies
            && !Box::pin(self.read_proxy_header(&proxies)).await
        {
            return;
        }
        if let Some(settings) = beginning.tls
            && !Box::pin(self.handshake(settings.load_full())).await
        {
            return;
        }
        let http2 = match &self.info.tls {
            Some(agreed) => agreed.http2,
            None => beginning.h2c && Box::pin(self.begins_with_http2()).await,
        };
        let end = match http2 {
            true => Box::pin(self.http2()).await,
            false => self.requests().await,
        };
        match end {
            ConnectionEnd::Gone => {}
            ConnectionEnd::Close if self.body.input.is_empty() && !self.stream.has_unread() => {
                self.stream.close_notify();
            }
            end => Box::pin(self.close_gracefully(end)).await,
        }
    }

    async fn http2(&mut self) -> ConnectionEnd {
        let before = self.body.input.bytes().to_vec();
        self.body.input.consume(before.len());
        let (stream, config) = (self.stream.clone(), self.io.config.clone());
        http2::Http2Connection::new(
            &self.handler,
            stream,
            config,
            &mut self.info,
            &self.place,
            before,
        )
        .run()
        .await
    }

    /// Reads until the client's protocol is known, and returns whether it is HTTP/2.
    async fn begins_with_http2(&mut self) -> bool {
        poll_fn(|cx| {
            loop {
                let begun = self.body.input.bytes();
                let compared = begun.len().min(http2::PREFACE.len());
                if begun[..compared] != http2::PREFACE[..compared] {
                    self.unparsed = true;
                    return Poll::Ready(false);
                }
                if compared == http2::PREFACE.len() {
                    return Poll::Ready(true);
                }
                // The end of the stream or a pause is handled as on any other connection.
                if !ready!(self.poll_more(cx)) {
                    return Poll::Ready(false);
                }
            }
        })
        .await
    }

    /// Reads more of the client's first bytes. Returns false if no more bytes arrive, or not in time.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self.poll_receive(cx) {
            Poll::Ready(Ok(1..)) => Poll::Ready(true),
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(false),
            Poll::Pending if self.place.must_close(&mut self.deadline) => Poll::Ready(false),
            Poll::Pending => self.deadline.poll(cx).map(|()| false),
        }
    }

    /// Receives into the input, and returns the number of bytes; 0 is the end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<usize>> {
        let (stream, input) = (&self.stream, &mut self.body.input);
        buffers::with_scratch(|buf| {
            let received = ready!(stream.poll_recv(cx, buf))?;
            input.extend(&buf[..received]);
            Poll::Ready(Ok(received))
        })
    }

    /// Waits while the certificate for the client's name is being ordered, but not longer than a handshake may take.
    async fn await_certificate(&mut self, demand: HandshakeHold) {
        let mut reader = HelloReader::default();
        let wants = poll_fn(|cx| {
            loop {
                match reader.inspect(self.body.input.bytes()) {
                    RequestedServerName::NotKnown if ready!(self.poll_more(cx)) => {}
                    wants => return Poll::Ready(wants),
                }
            }
        });
        let RequestedServerName::Name(name) = wants.await else {
            return;
        };
        let client = self.info.peer.map(|peer| peer.ip());
        let Some(waiting) = demand.wait_for(&name, client) else {
            return;
        };
        let mut waiting = pin!(waiting);
        poll_fn(|cx| {
            let over = waiting.as_mut().poll(cx).is_ready()
                || self.place.is_evicted()
                || self.place.is_last_request()
                || self.stream.poll_read_closed(cx).is_ready();
            match over {
                true => Poll::Ready(()),
                false => self.deadline.poll(cx),
            }
        })
        .await;
        self.deadline = Deadline::after(self.io.config.header_timeout);
    }

    async fn requests(&mut self) -> ConnectionEnd {
        loop {
            match poll_fn(|cx| self.poll_head(cx)).await {
                NextHead::Closed => return ConnectionEnd::Close,
                NextHead::Refused(why) => return Box::pin(self.refuse(why)).await,
                NextHead::NoMemory => {
                    self.handler
                        .notice(&ConnectionNotice::NoMemory { conn: &self.info });
                    return Box::pin(self.respond_error(503, "MemoryLimit")).await;
                }
                NextHead::Request(head, framing) => {
                    self.info.request += 1;
                    self.place.set_busy();
                    self.place.life.requests.fetch_add(1, Ordering::Relaxed);
                    let most = self.io.config.keepalive_requests;
                    let keep = framing.keep_alive
                        && (most == 0 || self.info.request < most)
                        && !self.place.is_last_request();
                    self.body.begin(&framing);
                    self.out
                        .prepare(head.version(), head.method() == b"HEAD", keep);
                    let panicked = self.handle(&head).await;
                    let (buf, fields) = head.into_buffers();
                    buffers::return_bytes(buf);
                    buffers::return_fields(fields);
                    if let Some(end) = self.finish_request(panicked).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Runs the handler, and returns whether it panicked.
    async fn handle(&mut self, head: &RequestHead) -> bool {
        let io = &self.io;
        // The future is on the heap because an idle connection must not contain the largest handler's state.
        let mut handling =
            Box::pin(
                self.handler
                    .handle(head, &self.info, &mut self.body, &mut self.out),
            );
        poll_fn(|cx| {
            match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))) {
                Ok(Poll::Ready(())) => Poll::Ready(false),
                Ok(Poll::Pending) => {
                    // Earlier responses and interim responses are sent without waiting for this handler. The next
                    // send reports a failure.
                    if io.outbox().has_ahead() {
                        let _ = io.poll_flush(cx, false);
                    }
                    Poll::Pending
                }
                Err(_) => Poll::Ready(true),
            }
        })
        .await
    }

    /// Finishes a request after its handler. Returns `None` if the connection stays open.
    async fn finish_request(&mut self, panicked: bool) -> Option<ConnectionEnd> {
        self.waiting = Http1Awaited::Busy;
        match self.out.outcome() {
            ResponseEnd::Silent => {
                let conn = &self.info;
                let name = if panicked {
                    self.handler
                        .notice(&ConnectionNotice::HandlerPanicked { conn });
                    "HandlerPanicked"
                } else {
                    self.handler.notice(&ConnectionNotice::NoAnswer { conn });
                    "NoAnswer"
                };
                Some(Box::pin(self.respond_error(500, name)).await)
            }
            ResponseEnd::Cut { reset } => {
                if panicked {
                    let conn = &self.info;
                    self.handler
                        .notice(&ConnectionNotice::HandlerPanicked { conn });
                }
                let _ = self.out.flush().await;
                Some(if reset {
                    ConnectionEnd::Reset
                } else {
                    ConnectionEnd::Linger
                })
            }
            ResponseEnd::Complete { keep } => {
                if keep && self.body.is_done() {
                    // The queue is sent before the connection waits for the next head, or when enough has been
                    // collected.
                    if self.body.input.is_empty() || self.out.queued() < MAX_PIPELINED_BATCH_BYTES {
                        if !self.body.input.is_empty() {
                            turn::yield_if_over().await;
                        }
                        return None;
                    }
                    return self.out.flush().await.err().map(|_| ConnectionEnd::Close);
                }
                if self.out.flush().await.is_err() {
                    return Some(ConnectionEnd::Close);
                }
                if !keep {
                    return Some(if self.body.is_done() {
                        ConnectionEnd::Close
                    } else {
                        ConnectionEnd::Linger
                    });
                }
                let drained = Box::pin(self.discard_body()).await;
                (!drained).then_some(ConnectionEnd::Linger)
            }
        }
    }

    /// Reads the rest of the body if it is short. Returns whether its end was reached.
    async fn discard_body(&mut self) -> bool {
        // It is unknown whether the client will send the body (RFC 9110 §10.1.1).
        if self.body.awaits_continue() {
            return false;
        }
        let most = self.body.received() + MAX_DISCARDED_BODY;
        self.body.set_limit(most);
        self.place.set_owing(Instant::now());
        let (body, place) = (&mut self.body, &self.place);
        poll_fn(|cx| {
            loop {
                match body.poll_next(cx) {
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(_))) => return Poll::Ready(false),
                    Poll::Pending if place.is_evicted() => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Waits for the next head. Sends the queue first unless the next head has already arrived.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<NextHead> {
        let limits = self.io.config.head_limits();
        self.unparsed |= self.waiting == Http1Awaited::Busy;
        loop {
            if std::mem::take(&mut self.unparsed) && !self.body.input.is_empty() {
                match parse_head(self.body.input.bytes(), &limits) {
                    Ok(Some((head, framing, len))) => {
                        self.body.input.consume(len);
                        return Poll::Ready(NextHead::Request(head, framing));
                    }
                    Ok(None) => {}
                    Err(why) => return Poll::Ready(NextHead::Refused(why)),
                }
            }
            if self.out.queued() > 0 && ready!(self.out.poll_flush(cx)).is_err() {
                return Poll::Ready(NextHead::Closed);
            }
            let partial = !self.body.input.is_empty();
            if partial && lacks_memory_for_head(self.body.input.bytes().len()) {
                return Poll::Ready(NextHead::NoMemory);
            }
            let (stream, input) = (&self.stream, &mut self.body.input);
            let next = buffers::with_scratch(|buf| {
                let received = match stream.poll_recv(cx, buf) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Some(NextHead::Closed)),
                    Poll::Ready(Ok(n)) => &buf[..n],
                    Poll::Pending => return Poll::Pending,
                };
                if partial {
                    input.extend(received);
                    self.unparsed = limits.may_be_head(input.bytes(), received.len());
                    return Poll::Ready(None);
                }
                match parse_head(received, &limits) {
                    Ok(Some((head, framing, len))) => {
                        if len < received.len() {
                            input.extend(&received[len..]);
                        }
                        Poll::Ready(Some(NextHead::Request(head, framing)))
                    }
                    Ok(None) => {
                        input.extend(received);
                        Poll::Ready(None)
                    }
                    Err(why) => {
                        input.extend(received);
                        Poll::Ready(Some(NextHead::Refused(why)))
                    }
                }
            });
            match next {
                Poll::Ready(Some(next)) => return Poll::Ready(next),
                Poll::Ready(None) => {}
                Poll::Pending if self.place.is_evicted() => return Poll::Ready(NextHead::Closed),
                Poll::Pending => {
                    let late = ready!(self.poll_waiting(partial, cx));
                    return Poll::Ready(late);
                }
            }
        }
    }

    /// Waits for bytes, but only for the permitted time.
    fn poll_waiting(&mut self, partial: bool, cx: &mut Context<'_>) -> Poll<NextHead> {
        match (self.waiting, partial) {
            (Http1Awaited::Busy, false) => {
                self.waiting = Http1Awaited::Idle;
                let now = Instant::now();
                self.place.set_idle(now);
                self.deadline.set(now, self.io.config.keepalive_timeout);
            }
            (Http1Awaited::Busy | Http1Awaited::Idle, true) => {
                self.waiting = Http1Awaited::Rest;
                let now = Instant::now();
                self.place.set_owing(now);
                self.deadline.set(now, self.io.config.header_timeout);
            }
            _ => {}
        }
        if !partial && self.place.must_close(&mut self.deadline) {
            return Poll::Ready(NextHead::Closed);
        }
        ready!(self.deadline.poll(cx));
        Poll::Ready(if partial {
            NextHead::Refused(BadRequest::HeaderTimeout)
        } else {
            // Browsers open connections in advance and would treat a 408 as the response to the next request.
            NextHead::Closed
        })
    }

    async fn refuse(&mut self, why: BadRequest) -> ConnectionEnd {
        self.place.life.refused.fetch_add(1, Ordering::Relaxed);
        let input = self.body.input.bytes();
        let line = input.split(|b| *b == b'\n').next().unwrap_or(input);
        self.handler.notice(&ConnectionNotice::Refused {
            conn: &self.info,
            why,
            line: &line[..line.len().min(256)],
        });
        self.respond_error(why.status(), why.name()).await
    }

    /// Sends a response of the connection itself, when no handler creates one.
    async fn respond_error(&mut self, status: u16, name: &str) -> ConnectionEnd {
        self.out.prepare(HttpVersion::Http11, false, false);
        self.out.respond_error(status, name);
        match self.out.flush().await {
            Ok(()) => ConnectionEnd::Linger,
            Err(_) => ConnectionEnd::Close,
        }
    }

    /// Ends the connection so that the client receives the bytes sent so far: if it still sends, a close would cause a
    /// reset, which may overtake the response (RFC 9112 §9.6).
    async fn close_gracefully(&mut self, end: ConnectionEnd) {
        if matches!(end, ConnectionEnd::Reset) {
            self.stream.reset_on_close();
            return;
        }
        self.stream.shutdown_write();
        self.place.set_owing(Instant::now());
        // The input is dropped now because it will not be used, and the client may take long to close.
        let rest = self.body.input.bytes().len();
        self.body.input.consume(rest);
        let (stream, place) = (&self.stream, &self.place);
        let dropping = async {
            loop {
                let read = poll_fn(|cx| match place.is_evicted() {
                    true => Poll::Ready(Ok(0)),
                    false => buffers::with_scratch(|buf| stream.poll_recv(cx, buf)),
                });
                match tokio::time::timeout(LINGERING_TIMEOUT, read).await {
                    Ok(Ok(1..)) => tokio::task::coop::consume_budget().await,
                    _ => return,
                }
            }
        };
        // The connection is closed whether or not the time is over.
        let _ = tokio::time::timeout(LINGERING_TIME, dropping).await;
    }

    /// Completes the TLS handshake within the time for a head. Returns true if the connection continues.
    async fn handshake(&mut self, settings: Arc<ConnectionSettings>) -> bool {
        if let Some(demand) = settings.demand() {
            Box::pin(self.await_certificate(demand)).await;
        }
        let received = self.body.input.bytes().to_vec();
        self.body.input.consume(received.len());
        self.unparsed = false;
        let agreed = match self.stream.start_tls(&settings, &received) {
            Err(error) => Err(HandshakeFailure::Protocol(error.to_string())),
            Ok(()) => poll_fn(|cx| self.poll_handshake(cx)).await,
        };
        match agreed {
            Ok(agreed) if agreed.challenge => false,
            Ok(agreed) => {
                let tls = self.info.tls.insert(Arc::new(agreed));
                self.handler
                    .notice(&ConnectionNotice::Handshake { agreed: tls });
                self.deadline = Deadline::after(self.io.config.header_timeout);
                true
            }
            Err(why) => {
                let conn = &self.info;
                let notice = ConnectionNotice::HandshakeFailed { conn, why: &why };
                self.handler.notice(&notice);
                if why == HandshakeFailure::PlainHttp {
                    self.stream.send_without_tls(PLAIN_HTTP_RESPONSE);
                }
                false
            }
        }
    }

    fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<NegotiatedTls, HandshakeFailure>> {
        match self.stream.poll_handshake(cx) {
            Poll::Ready(Ok(Some(agreed))) => return Poll::Ready(Ok(agreed)),
            Poll::Ready(Ok(None)) => {}
            Poll::Ready(Err(error)) => {
                return Poll::Ready(Err(match error.kind() {
                    std::io::ErrorKind::InvalidData => {
                        HandshakeFailure::Protocol(error.to_string())
                    }
                    std::io::ErrorKind::Unsupported => HandshakeFailure::PlainHttp,
                    _ => HandshakeFailure::ClientGone,
                }));
            }
            Poll::Pending => {}
        }
        if self.place.must_close(&mut self.deadline) {
            return Poll::Ready(Err(HandshakeFailure::ClientGone));
        }
        ready!(self.deadline.poll(cx));
        Poll::Ready(Err(HandshakeFailure::TimedOut))
    }

    /// Reads the PROXY header that a trusted proxy sends first. Returns true if the connection continues.
    async fn read_proxy_header(&mut self, proxies: &TrustedPeers) -> bool {
        if !proxies.trusts(self.info.peer) {
            return true;
        }
        let parsed = poll_fn(|cx| {
            loop {
                match proxy_protocol::parse(self.body.input.bytes()) {
                    Ok(None) => {}
                    other => return Poll::Ready(other.transpose()),
                }
                match self.poll_receive(cx) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending if self.place.is_evicted() => return Poll::Ready(None),
                    Poll::Pending => {
                        ready!(self.deadline.poll(cx));
                        return Poll::Ready(Some(Err(proxy_protocol::BadProxyHeader::Timeout)));
                    }
                }
            }
        })
        .await;
        match parsed {
            Some(Ok(header)) => {
                self.body.input.consume(header.len);
                self.unparsed = true;
                if let Some((client, server)) = header.addresses {
                    self.info.peer = Some(client);
                    self.info.local = Some(server);
                }
                true
            }
            Some(Err(why)) => {
                self.handler.notice(&ConnectionNotice::BadProxyHeader {
                    conn: &self.info,
                    why: why.name(),
                });
                false
            }
            None => false,
        }
    }
}

type ReceivedHead = (RequestHead, RequestFraming, usize);

/// Returns whether memory is too short to wait for the rest of a head after this many of its bytes have arrived.
fn lacks_memory_for_head(bytes: usize) -> bool {
    match memory::pressure() {
        MemoryPressure::None => false,
        MemoryPressure::High => bytes > memory::SHORT_HEAD_BYTES,
        MemoryPressure::Full => true,
    }
}

/// Parses a head into buffers of the thread's pool.
fn parse_head(input: &[u8], limits: &HeadLimits) -> Result<Option<ReceivedHead>, BadRequest> {
    let mut fields = buffers::take_fields();
    match head::parse(input, limits, &mut fields) {
        Ok(Some(parsed)) => {
            let head = parsed.into_head(input, buffers::take_bytes(), fields);
            Ok(Some((head, parsed.framing, parsed.len)))
        }
        Ok(None) => {
            buffers::return_fields(fields);
            Ok(None)
        }
        Err(why) => {
            buffers::return_fields(fields);
            Err(why)
        }
    }
}
