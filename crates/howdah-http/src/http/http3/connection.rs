//! One HTTP/3 connection from start to end: the handshake; requests, each on a task of its own once it has to wait; and
//! an end that loses no request that the client may believe to be handled.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, ConnectionError};
use h3::server::RequestResolver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::config::HttpConfig;
use super::super::deadline::Deadline;
use super::super::handler::{ConnectionInfo, ConnectionNotice, RequestHandler};
use super::super::lifecycle::EnrolledConnection;
use super::super::multiplexed::RemainingResets;
use super::handshake::{self, HandshakeStatus, UnfinishedHandshake};
use super::pipe::code;
use super::request::{self, IncomingRequest};
use super::transport::{Http3Shared, Transport};
use super::{Http3Error, MAX_STREAMS, max_head_bytes};
use crate::tls::quic::HandshakeWitness;
use crate::turn;

/// How long a client without a request in progress has to learn that the connection ends: a few round trips.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection whose first packet has arrived.
pub(crate) struct IncomingConnection {
    pub(crate) connecting: quinn::Connecting,
    pub(crate) witness: HandshakeWitness,
    pub(crate) config: Arc<HttpConfig>,
    pub(crate) info: ConnectionInfo,
    pub(crate) place: EnrolledConnection,
    /// The channel whose sender is dropped when the listener is closed.
    pub(crate) listener: watch::Receiver<()>,
    /// Counts as a handshake in progress until it is dropped.
    pub(crate) handshake: Arc<()>,
}

/// The state that a connection's requests share: the progress of the handshake, the allowance of cancelled requests and
/// the number of requests in progress.
pub(super) struct ConnectionState {
    left: Mutex<RemainingResets>,
    pub(super) handshake: HandshakeStatus,
    too_many: AtomicBool,
    pub(super) streams: AtomicUsize,
}

impl ConnectionState {
    /// Records that the client has cancelled a request.
    pub(super) fn record_cancellation(&self) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if !left.take(turn::recent_time()) {
            self.too_many.store(true, Ordering::Relaxed);
        }
    }
}

/// What a connection without a request in progress waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Http3Awaited {
    /// The connection's first request.
    First,
    /// Nothing: a request is in progress.
    Busy,
    /// The next request.
    Idle,
    /// The client to close the connection.
    End,
}

struct Http3Connection<H> {
    handler: Arc<H>,
    quic: quinn::Connection,
    config: Arc<HttpConfig>,
    info: ConnectionInfo,
    place: EnrolledConnection,
    shared: Arc<Http3Shared>,
    common: Arc<ConnectionState>,
    /// The rest of the handshake.
    shaking: Option<UnfinishedHandshake>,
    listener_gone: Pin<Box<dyn Future<Output = ()> + Send>>,
    streams: JoinSet<()>,
    deadline: Deadline,
    awaited: Http3Awaited,
    /// Whether GOAWAY has been sent or is about to be.
    ending: bool,
}

type Http3Resolver = RequestResolver<Transport, Bytes>;
type AcceptedRequest = Result<Option<Http3Resolver>, ConnectionError>;

enum Http3Step {
    Request(Box<Http3Resolver>),
    GoAway,
    End,
}

/// Serves a connection to its end.
pub(crate) async fn serve<H: RequestHandler>(handler: Arc<H>, arrival: IncomingConnection) {
    let IncomingConnection {
        connecting,
        witness,
        config,
        mut info,
        mut place,
        mut listener,
        handshake,
    } = arrival;
    let life = place.life.clone();
    let mut deadline = Deadline::after(config.header_timeout);
    let shaken = handshake::handshake_within(&mut deadline, &mut place, connecting, &witness).await;
    let shaken = match shaken {
        Ok(shaken) => shaken,
        Err(why) => {
            let conn = &info;
            return handler.notice(&ConnectionNotice::HandshakeFailed { conn, why: &why });
        }
    };
    let progress = HandshakeStatus::new(&shaken);
    let (quic, unfinished) = shaken;
    let agreed = info.tls.insert(Arc::new(witness.agreed(&quic)));
    handler.notice(&ConnectionNotice::Handshake { agreed });
    let shaking =
        unfinished.map(|end| UnfinishedHandshake::new(end, config.header_timeout, handshake));
    let mut connection = Http3Connection {
        handler,
        shared: Http3Shared::new(quic.clone(), max_head_bytes(&config)),
        quic,
        deadline: Deadline::after(config.header_timeout),
        config,
        info,
        place,
        shaking,
        common: Arc::new(ConnectionState {
            handshake: progress,
            left: Mutex::new(RemainingResets::new(turn::recent_time())),
            too_many: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
        }),
        // No value is ever sent: the wait ends when the sender is dropped.
        listener_gone: Box::pin(async move { while listener.changed().await.is_ok() {} }),
        streams: JoinSet::new(),
        awaited: Http3Awaited::First,
        ending: false,
    };
    {
        let mut running = pin!(connection.run());
        poll_fn(|cx| match life.is_killed() {
            true => Poll::Ready(()),
            false => running.as_mut().poll(cx),
        })
        .await;
    }
    connection.quic.close(code(Code::H3_NO_ERROR), b"");
    connection.streams.abort_all();
    // quinn's task has been woken; it sends the last packet before the connection counts as closed.
    tokio::task::yield_now().await;
}

impl<H: RequestHandler> Http3Connection<H> {
    async fn run(&mut self) {
        let mut builder = h3::server::builder();
        builder
            .max_field_section_size(max_head_bytes(&self.config))
            .send_grease(false);
        let begun = {
            let mut building = pin!(builder.build(Transport::new(self.shared.clone())));
            poll_fn(|cx| match building.as_mut().poll(cx) {
                Poll::Ready(built) => Poll::Ready(built.ok()),
                Poll::Pending if self.place.must_close(&mut self.deadline) => Poll::Ready(None),
                Poll::Pending => self.deadline.poll(cx).map(|()| None),
            })
            .await
        };
        let Some(mut h3) = begun else { return };
        loop {
            let step = {
                let mut accepting = pin!(h3.accept());
                poll_fn(|cx| self.poll_step(accepting.as_mut(), cx)).await
            };
            match step {
                Http3Step::Request(resolver) => {
                    let mut resolver = Some(*resolver);
                    poll_fn(|cx| {
                        if let Some(resolver) = resolver.take() {
                            self.begin(resolver, cx);
                        }
                        Poll::Ready(())
                    })
                    .await;
                    turn::yield_if_over().await;
                }
                // The first request that is not handled is the next one.
                Http3Step::GoAway => {
                    drop(tokio::time::timeout(CLOSE_TIMEOUT, h3.shutdown(1)).await)
                }
                Http3Step::End => break,
            }
        }
        // This notifies handlers that the client is gone, and requests that wait for the handshake.
        self.common.handshake.ended();
        self.quic.close(code(Code::H3_NO_ERROR), b"");
        while self.streams.join_next().await.is_some() {}
    }

    fn poll_step(
        &mut self,
        accepting: Pin<&mut impl Future<Output = AcceptedRequest>>,
        cx: &mut Context<'_>,
    ) -> Poll<Http3Step> {
        while let Poll::Ready(Some(_)) = self.streams.poll_join_next(cx) {}
        if let Some(shaking) = &mut self.shaking
            && let Poll::Ready(shaken) = shaking.poll(&self.quic, &self.common.handshake, cx)
        {
            self.shaking = None;
            if let Err(why) = shaken {
                let conn = &self.info;
                self.handler
                    .notice(&ConnectionNotice::HandshakeFailed { conn, why: &why });
                return Poll::Ready(Http3Step::End);
            }
        }
        if let Some(why) = self.flood() {
            self.notice(why, "");
            self.quic.close(code(Code::H3_EXCESSIVE_LOAD), b"");
            return Poll::Ready(Http3Step::End);
        }
        let most = self.config.keepalive_requests;
        let is_last = most > 0 && self.info.request >= most;
        if !self.ending
            && (is_last
                || self.place.life.is_draining()
                || self.listener_gone.as_mut().poll(cx).is_ready())
        {
            self.ending = true;
            return Poll::Ready(Http3Step::GoAway);
        }
        if self.streams.len() < MAX_STREAMS as usize
            && let Poll::Ready(accepted) = accepting.poll(cx)
        {
            return Poll::Ready(match accepted {
                Ok(Some(resolver)) => Http3Step::Request(Box::new(resolver)),
                Ok(None) => Http3Step::End,
                Err(error) => {
                    self.failed(&error);
                    Http3Step::End
                }
            });
        }
        self.poll_idle(cx)
    }

    fn flood(&self) -> Option<Http3Error> {
        if self.common.too_many.load(Ordering::Relaxed) {
            return Some(Http3Error::Http3RapidReset);
        }
        let flooded = self.shared.is_flooded();
        flooded.then_some(Http3Error::Http3ControlFlood)
    }

    /// Starts handling a request immediately, and continues it as a task if it has to wait.
    fn begin(&mut self, resolver: Http3Resolver, cx: &mut Context<'_>) {
        let Some(pipe) = self.shared.take_accepted() else {
            return;
        };
        self.awaited = Http3Awaited::Busy;
        self.place.set_busy();
        self.info.request += 1;
        // The client's address may have changed.
        self.info.peer = Some(self.quic.remote_address());
        let arrived = IncomingRequest {
            handler: self.handler.clone(),
            config: self.config.clone(),
            life: self.place.life.clone(),
            info: self.info.clone(),
            common: self.common.clone(),
            pipe,
        };
        let mut task = Box::pin(request::serve(arrived, resolver));
        if task.as_mut().poll(cx).is_pending() {
            // The request's task sees any event that has woken the connection's task meanwhile, because a new task is
            // polled once.
            self.streams.spawn(turn::measure("a stream", task));
        }
    }

    /// Waits while no request is in progress, but only for the permitted time.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Http3Step> {
        if !self.streams.is_empty() {
            self.awaited = Http3Awaited::Busy;
            self.place.set_busy();
            return Poll::Pending;
        }
        let awaited = match self.awaited {
            _ if self.ending => Http3Awaited::End,
            Http3Awaited::First => Http3Awaited::First,
            _ => Http3Awaited::Idle,
        };
        if awaited != self.awaited {
            self.awaited = awaited;
            let now = Instant::now();
            match awaited {
                Http3Awaited::Idle => self.place.set_idle(now),
                _ => self.place.set_owing(now),
            }
            let wait = match awaited {
                Http3Awaited::Idle => self.config.keepalive_timeout,
                Http3Awaited::End => CLOSE_TIMEOUT,
                _ => self.config.header_timeout,
            };
            self.deadline.set(now, wait);
        }
        if self.place.is_evicted() {
            return Poll::Ready(Http3Step::End);
        }
        ready!(self.deadline.poll(cx));
        Poll::Ready(match self.ending {
            true => Http3Step::End,
            false => {
                self.ending = true;
                Http3Step::GoAway
            }
        })
    }

    /// Handles a failed connection: the client closed it or went silent, or it violated the protocol.
    fn failed(&self, error: &ConnectionError) {
        if self.shared.is_flooded() {
            self.notice(Http3Error::Http3ControlFlood, "");
        } else if let ConnectionError::Local { error, .. } = error {
            self.notice(Http3Error::Http3Protocol, &format!("{error:?}"));
        }
    }

    fn notice(&self, why: Http3Error, detail: &str) {
        let conn = &self.info;
        self.handler
            .notice(&ConnectionNotice::Http3Ended { conn, why, detail });
    }
}
