//! What the threads of a run share, and what a client needs of its thread: where to connect, what to
//! send, where to count, and when to give up. No event loop.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use rustix::event::epoll::{self, CreateFlags, EventFlags};

use super::clock::{Clock, SECOND};
use super::recorder::{First, Recorder};
use super::request::Requests;
use super::socket::Peer;
use super::stream::Stream;
use super::tls::TlsClient;
use crate::error::BenchError;
use crate::outcome::{Kind, Outcome};
use crate::plan::Plan;
use crate::plan::check::LONGEST_CHECKED_BODY;

/// Connections left to the server to close, at most, per thread.
const MOST_LEAVING: usize = 64;

/// A connection left to the server to close.
#[derive(Debug)]
struct Leaving {
    /// Held open.
    #[expect(dead_code, reason = "dropping it closes the connection")]
    stream: Stream,
    /// Of its events.
    token: u64,
    since: u64,
}

/// What the threads of a run share.
#[derive(Debug)]
pub struct Shared {
    pub clock: Clock,
    /// Requests given out, of the measured part; the numbers of `{seq}`.
    pub given: AtomicU64,
    /// No more requests: Ctrl-C, or an error.
    pub stop: AtomicBool,
    /// Why it cannot go on.
    pub error: Mutex<Option<BenchError>>,
    /// A connection has been established: the server is there.
    pub reached: AtomicBool,
    /// A TLS handshake has succeeded.
    pub handshook: AtomicBool,
    pub first: Arc<OnceLock<First>>,
    /// Where the measured part begins, nanoseconds.
    pub from: u64,
    /// Where the run ends, if it has a time.
    pub until: Option<u64>,
}

impl Shared {
    /// Ends the run for a reason; the first one counts.
    pub fn fail(&self, error: BenchError) {
        let mut slot = self.error.lock().unwrap_or_else(|e| e.into_inner());
        slot.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// What a connection needs of its thread.
#[derive(Debug)]
pub struct Context {
    pub plan: Arc<Plan>,
    pub shared: Arc<Shared>,
    pub clock: Clock,
    pub epoll: OwnedFd,
    pub peer: Peer,
    pub tls: Option<Arc<TlsClient>>,
    pub requests: Arc<Requests>,
    pub recorder: Recorder,
    /// Nanoseconds.
    pub timeout: u64,
    pub checks_bodies: bool,
    pub thread: u32,
    pub threads: u32,
    pub buffer: Box<[u8]>,
    /// For TLS records.
    pub scratch: Box<[u8]>,
    pub server_field: Option<String>,
    leaving: VecDeque<Leaving>,
}

impl Context {
    /// The server is there.
    pub fn reached(&self) {
        if !self.shared.reached.load(Ordering::Relaxed) {
            self.shared.reached.store(true, Ordering::Relaxed);
        }
    }

    /// A handshake has succeeded; whether one had before.
    pub fn handshook(&self) -> bool {
        self.shared.handshook.swap(true, Ordering::Relaxed)
    }

    /// A request failed. If the server has never been reached there is nothing to measure.
    pub fn failed(&self, outcome: Outcome, why: Option<&dyn std::fmt::Display>) {
        let why = || why.map_or_else(|| outcome.words().to_owned(), ToString::to_string);
        let never_reached = !self.shared.reached.load(Ordering::Relaxed);
        let never_shook = !self.shared.handshook.load(Ordering::Relaxed);
        if outcome.kind() == Kind::Connect && outcome != Outcome::ConnectBacklog && never_reached {
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

    /// What a complete answer is.
    #[inline]
    pub fn judge(&self, status: u16, length: u64, body: &[u8]) -> Outcome {
        let checks = &self.plan.checks;
        if !checks.status.contains(status) {
            Outcome::of_unexpected_status(status)
        } else if self.checks_bodies
            && (length > LONGEST_CHECKED_BODY as u64
                || !checks.body.iter().all(|check| check.passes(body)))
        {
            Outcome::WrongBody
        } else {
            Outcome::Good
        }
    }

    /// Ends the run, as ab does without `-r`.
    pub fn stop_for(&self, outcome: Outcome, why: Option<&dyn std::fmt::Display>) {
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        self.shared.fail(BenchError::SocketError(format!(
            "a request ended as {outcome}{why}"
        )));
    }

    /// Keeps a connection open until the server has had time to close it.
    pub fn leave(&mut self, stream: Stream, token: u64) {
        if self.leaving.len() >= MOST_LEAVING {
            self.leaving.pop_front();
        }
        let since = self.clock.now();
        self.leaving.push_back(Leaving {
            stream,
            token,
            since,
        });
    }

    /// An event of a connection that waits for the server to close: it has, so we do. Apache closes half and
    /// then waits up to two seconds for us, and its process serves nobody meanwhile (`lingering_close`).
    /// Whether it was one of those.
    #[inline]
    pub fn left(&mut self, token: u64, flags: EventFlags) -> bool {
        if !flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            return false;
        }
        let at = self.leaving.iter().position(|left| left.token == token);
        at.and_then(|at| self.leaving.remove(at)).is_some()
    }
}

impl Context {
    /// Everything that may fail does so here, before the run.
    pub fn new(
        plan: Arc<Plan>,
        shared: Arc<Shared>,
        peer: Peer,
        tls: Option<Arc<TlsClient>>,
        requests: Arc<Requests>,
        thread: usize,
    ) -> Result<Context, BenchError> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|e| BenchError::System {
            what: "creating an epoll instance".to_owned(),
            why: e.to_string(),
        })?;
        let recorder = Recorder::new(shared.from, shared.first.clone(), plan.keep_samples);
        Ok(Context {
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
            server_field: None,
            leaving: VecDeque::new(),
            plan,
            shared,
        })
    }

    /// Closes those that the server has had a second to close.
    pub fn close_those_left(&mut self, now: u64) {
        let over = |left: &Leaving| now.saturating_sub(left.since) > SECOND;
        while self.leaving.front().is_some_and(over) {
            self.leaving.pop_front();
        }
    }
}
