//! The state that the threads of a run share, and the state that a client needs from its thread: where to connect, what
//! to send, where to count, and when to give up. It contains no event loop.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::event::epoll::{self, CreateFlags, EventFlags};

use super::clock::{Clock, SECOND};
use super::recorder::{FirstResponse, Recorder};
use super::request::Requests;
use super::socket::ServerPeer;
use super::stream::BenchStream;
use super::tls::TlsClient;
use crate::error::BenchError;
use crate::outcome::{Outcome, OutcomeStage};
use crate::plan::check::MAX_CHECKED_BODY_BYTES;
use crate::plan::{HttpProtocol, Plan};
use crate::replay::ReplayedRequest;

/// The maximum number of connections per thread that wait for the server to close them.
const MAX_CLOSING_CONNECTIONS: usize = 64;

/// The number of buffers for received datagrams, and the size of each. The kernel merges up to 64 KiB of datagrams into
/// one buffer (UDP_GRO).
pub const DATAGRAM_BUFFERS: usize = 4;
const DATAGRAM_BUFFER_BYTES: usize = 64 << 10;

/// A connection that waits for the server to close it.
#[derive(Debug)]
struct ClosingConnection {
    /// The connection, which stays open while this value lives.
    #[expect(dead_code, reason = "dropping it closes the connection")]
    stream: BenchStream,
    /// The token that epoll reports with its events.
    token: u64,
    since: u64,
}

/// The state that the threads of a run share.
#[derive(Debug)]
pub struct RunState {
    pub clock: Clock,
    /// The number of requests issued for the measured part. It is also the source of the numbers in `{seq}`.
    pub issued: AtomicU64,
    /// Set to issue no more requests: after Ctrl-C or an error.
    pub stop: AtomicBool,
    /// The error that ended the run; `None` while there is none.
    pub error: Mutex<Option<BenchError>>,
    /// Whether a connection has ever been established, which shows that there is a server.
    pub reached: AtomicBool,
    /// Whether a TLS handshake has ever succeeded.
    pub handshook: AtomicBool,
    pub first: Arc<OnceLock<FirstResponse>>,
    /// When the measured part begins, in nanoseconds of the run.
    pub measured_from: u64,
    /// When the run ends, in nanoseconds of the run; `None` if only the number of requests ends it.
    pub ends_at: Option<u64>,
}

impl RunState {
    /// Ends the run with this error. Only the first error is kept.
    pub fn fail(&self, error: BenchError) {
        let mut slot = self.error.lock().unwrap_or_else(|e| e.into_inner());
        slot.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The state that a connection needs from its thread.
#[derive(Debug)]
pub struct ThreadContext {
    pub plan: Arc<Plan>,
    pub shared: Arc<RunState>,
    pub clock: Clock,
    pub epoll: OwnedFd,
    pub peer: ServerPeer,
    pub tls: Option<Arc<TlsClient>>,
    pub requests: Arc<Requests>,
    pub recorder: Recorder,
    /// The timeout of a connection and of a response, in nanoseconds.
    pub timeout: u64,
    pub checks_bodies: bool,
    pub thread: u32,
    pub threads: u32,
    pub buffer: Box<[u8]>,
    /// The buffer for TLS records.
    pub scratch: Box<[u8]>,
    /// The buffers for received datagrams; empty unless the protocol is HTTP/3.
    pub datagrams: Box<[u8]>,
    pub server_field: Option<String>,
    leaving: VecDeque<ClosingConnection>,
}

impl ThreadContext {
    /// Records that the server has been reached.
    pub fn record_reached(&self) {
        if !self.shared.reached.load(Ordering::Relaxed) {
            self.shared.reached.store(true, Ordering::Relaxed);
        }
    }

    /// Records that a TLS handshake has succeeded. Returns whether an earlier one had.
    pub fn record_handshake(&self) -> bool {
        self.shared.handshook.swap(true, Ordering::Relaxed)
    }

    /// Handles a failed request. If the server has never been reached, this ends the run, because there is nothing to
    /// measure.
    pub fn handle_failure(&self, outcome: Outcome, why: Option<&dyn std::fmt::Display>) {
        let why = || why.map_or_else(|| outcome.description().to_owned(), ToString::to_string);
        let never_reached = !self.shared.reached.load(Ordering::Relaxed);
        let never_shook = !self.shared.handshook.load(Ordering::Relaxed);
        if outcome.kind() == OutcomeStage::Connect
            && outcome != Outcome::ConnectBacklog
            && never_reached
        {
            self.shared.fail(BenchError::Unreachable {
                address: self.peer.to_string(),
                why: why(),
            });
        } else if outcome == Outcome::Tls && never_shook {
            self.shared.fail(BenchError::TlsRefused {
                address: self.peer.to_string(),
                why: why(),
            });
        }
    }

    /// Returns the outcome of a complete response.
    #[inline]
    pub fn judge(
        &self,
        status: u16,
        length: u64,
        body: &[u8],
        replayed: Option<&ReplayedRequest>,
    ) -> Outcome {
        let checks = &self.plan.checks;
        let by_log = replayed.filter(|_| {
            let log = self.plan.log.as_ref();
            log.is_some_and(|log| log.expects_logged_status)
        });
        let expected = match by_log {
            // The log may have errors of the server, which are no good responses.
            Some(request) => status < 500 && request.has_same_status(status),
            None => checks.status.contains(status),
        };
        if !expected {
            Outcome::of_unexpected_status(status)
        } else if self.checks_bodies
            && (length > MAX_CHECKED_BODY_BYTES as u64
                || !checks.body.iter().all(|check| check.passes(body)))
        {
            Outcome::WrongBody
        } else {
            Outcome::Good
        }
    }

    /// Ends the run, as ab does without `-r`.
    pub fn stop_on_error(&self, outcome: Outcome, why: Option<&dyn std::fmt::Display>) {
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        self.shared.fail(BenchError::SocketError(format!(
            "a request ended as {outcome}{why}"
        )));
    }

    /// Keeps a connection open until the server has had time to close it.
    pub fn let_server_close(&mut self, stream: BenchStream, token: u64) {
        if self.leaving.len() >= MAX_CLOSING_CONNECTIONS {
            self.leaving.pop_front();
        }
        let since = self.clock.now();
        self.leaving.push_back(ClosingConnection {
            stream,
            token,
            since,
        });
    }

    /// Handles an event of a connection that waits for the server to close. When the server has closed its side, we
    /// close ours: Apache closes its half and then waits up to two seconds for the client, and its process serves no
    /// other client meanwhile (`lingering_close`). Returns whether the token belonged to such a connection.
    #[inline]
    pub fn handle_closing_event(&mut self, token: u64, flags: EventFlags) -> bool {
        if !flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return false;
        }
        let at = self.leaving.iter().position(|left| left.token == token);
        at.and_then(|at| self.leaving.remove(at)).is_some()
    }
}

impl ThreadContext {
    /// Creates the context of a thread. Everything that may fail does so here, before the run.
    pub fn new(
        plan: Arc<Plan>,
        shared: Arc<RunState>,
        peer: ServerPeer,
        tls: Option<Arc<TlsClient>>,
        requests: Arc<Requests>,
        thread: usize,
    ) -> Result<ThreadContext, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| BenchError::System {
            what: "creating an epoll instance".to_owned(),
            why: e.to_string(),
        })?;
        let recorder = Recorder::new(
            shared.measured_from,
            shared.first.clone(),
            plan.keep_samples,
        );
        Ok(ThreadContext {
            clock: shared.clock,
            epoll,
            peer,
            tls,
            requests,
            recorder,
            timeout: plan.connection.timeout.as_nanos() as u64,
            checks_bodies: !plan.checks.body.is_empty(),
            thread: thread as u32,
            threads: plan.threads as u32,
            buffer: vec![0; 64 << 10].into_boxed_slice(),
            scratch: vec![0; 32 << 10].into_boxed_slice(),
            datagrams: match plan.connection.protocol {
                HttpProtocol::Http3 => vec![0; DATAGRAM_BUFFERS * DATAGRAM_BUFFER_BYTES],
                _ => Vec::new(),
            }
            .into_boxed_slice(),
            server_field: None,
            leaving: VecDeque::new(),
            plan,
            shared,
        })
    }

    /// Closes the connections that the server has had a second to close.
    pub fn close_overdue(&mut self, now: u64) {
        let over = |left: &ClosingConnection| now.saturating_sub(left.since) > SECOND;
        while self.leaving.front().is_some_and(over) {
            self.leaving.pop_front();
        }
    }
}
