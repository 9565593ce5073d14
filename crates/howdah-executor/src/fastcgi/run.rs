//! One request: from the queue to a backend, over as many attempts as are safe, to its end. The server polls it. Every
//! wait has a deadline, and every exit releases the grant.
//!
//! ```text
//! Waiting ─► Connect ─► (Connecting) ─► Talking ─► Over
//!    ▲          │ full: Backoff ─┘          │
//!    └──────────┴── down, or closed before any response and safe to repeat
//! ```
//! A request is repeated only in two cases. In the first, it cannot have been run: no byte of it was sent, or the
//! backend refused it by END_REQUEST. In the second, it may be run twice (RFC 9110 §9.2.2) and no part of a response
//! has arrived. A POST therefore always uses a new connection, because on a kept one it is not known whether PHP closed
//! it before or after reading the request.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::Role;

use super::answer::Answer;
use super::balance::Entry;
use super::connection::{Connecting, Connection, Start, connect};
use super::request::{self, Outgoing};
use super::run_context::RunContext;
use super::shared::FastCgiShared;
use super::talk::{Talk, give_back, spare};
use super::ticket::{Grant, Ticket};
use crate::{Event, ExecError, Run, RunTiming, ScriptRequest};

mod recovery;

/// The first wait before a full backlog is tried again.
const BACKOFF_FIRST: Duration = Duration::from_millis(1);

enum RunStage {
    Waiting(Arc<Ticket<Connection>>),
    Connect(usize),
    Connecting(usize, Connecting, Instant),
    Backoff(usize, Instant),
    Talking(usize, Box<Talk>),
    Over,
}

/// The result of advancing the stage once.
enum RunStep {
    /// The stage has changed, or the time has: advance it again.
    Again,
    /// Nothing can be done now. The request is woken when something can.
    Pending,
    Event(Event),
}

/// The [`crate::Run`] of a request in a pool of backends, which the server polls.
pub struct FastCgiRun {
    context: RunContext,
    repeats: u32,
    backoff: Duration,
    stage: RunStage,
}

impl FastCgiRun {
    pub fn new(
        shared: Arc<FastCgiShared>,
        front: usize,
        role: Role,
        request: ScriptRequest,
        entry: Entry<Connection>,
        now: Instant,
    ) -> FastCgiRun {
        let mut run = FastCgiRun {
            context: RunContext {
                shared,
                front,
                client: request.client,
                id: request.id,
                role,
                idempotent: request::is_idempotent(&request.frame),
                frame: request.frame,
                body: Outgoing::new(request.body),
                held: request.held,
                began: now,
                granted: None,
                timer: None,
            },
            repeats: 0,
            backoff: BACKOFF_FIRST,
            stage: RunStage::Over,
        };
        match entry {
            Entry::Granted(grant) => run.take(grant, now),
            Entry::Waits(ticket) => run.stage = RunStage::Waiting(ticket),
            Entry::Full => {}
        }
        run
    }

    /// Uses the granted backend: its kept connection, or a new one.
    fn take(&mut self, grant: Grant<Connection>, now: Instant) {
        self.context.granted = Some((now, grant.backend));
        let kept = grant
            .connection
            .map(|kept| kept.moved_to(self.context.front));
        self.stage = match kept {
            Some(Ok(connection)) => self.talk(grant.backend, connection, true, now),
            // A connection that cannot be registered with this thread is closed, and a new one is made.
            Some(Err(_)) | None => RunStage::Connect(grant.backend),
        };
    }

    fn talk(
        &mut self,
        backend: usize,
        connection: Connection,
        reused: bool,
        now: Instant,
    ) -> RunStage {
        let keep = {
            let mut balance = self.context.shared.balance();
            if !reused {
                balance.connected(backend, self.context.id, now);
            }
            // php-fpm before 8.2.36, 8.3.37, 8.4.28 and 8.5.13 takes the unread rest of a body for the next request on
            // the connection (CVE-2026-129289).
            balance.may_keep(backend) && self.context.body.is_empty()
        };
        RunStage::Talking(
            backend,
            Box::new(Talk {
                connection,
                reused,
                keep,
                out: spare(),
                sent: 0,
                untouched: true,
                deaf: false,
                answer: Answer::default(),
                began: now,
                send_stalled: None,
                last_read: now,
                unflushed: false,
                silent: keep && !reused,
                made_room: false,
            }),
        )
    }

    /// Releases the grant. `connection` is the connection if it can serve again.
    fn let_go(&mut self, backend: usize, connection: Option<Connection>, success: bool) {
        let (front, id) = (self.context.front, self.context.id);
        let now = Instant::now();
        self.context.held = None;
        self.context.shared.with_balance(|balance, wake| {
            balance.heard(backend, id);
            if success {
                balance.succeeded(backend, now);
            }
            balance.release(front, backend, connection, now, wake);
        });
    }

    /// Cancels the request and releases everything. The stage is `Over` afterwards.
    fn leave(&mut self) {
        match std::mem::replace(&mut self.stage, RunStage::Over) {
            RunStage::Waiting(ticket) => {
                let granted = self.context.shared.balance().leave(&ticket);
                if let Some(grant) = granted {
                    self.let_go(grant.backend, grant.connection, false);
                }
            }
            RunStage::Connect(backend)
            | RunStage::Connecting(backend, ..)
            | RunStage::Backoff(backend, ..) => self.let_go(backend, None, false),
            RunStage::Talking(backend, mut talk) => {
                let (shared, id, frame) =
                    (&self.context.shared, self.context.id, &self.context.frame);
                talk.answer.flush_log(&mut |level, text| {
                    shared
                        .log
                        .script(&shared.config.name, id, frame, level, text);
                });
                give_back(std::mem::take(&mut talk.out));
                // The connection is closed first: the next request that is granted this backend must find its process
                // free.
                drop(talk);
                self.context.shared.balance().broke_off(backend);
                self.let_go(backend, None, false);
                self.context.shared.demand.notify_one();
            }
            RunStage::Over => {}
        }
    }

    fn fail(&mut self, error: ExecError) -> Poll<Result<Event, ExecError>> {
        self.leave();
        self.context.shared.count(&error);
        Poll::Ready(Err(error))
    }

    fn connected(&mut self, backend: usize, socket: OwnedFd) -> Result<(), ExecError> {
        match Connection::new(socket, self.context.front) {
            Ok(connection) => {
                self.stage = self.talk(backend, connection, false, Instant::now());
                Ok(())
            }
            Err(error) => Err(ExecError::BackendDown {
                message: format!("a connection cannot be watched: {error}"),
            }),
        }
    }

    /// Ends a request whose response is complete. Its connection is kept if it can serve again.
    fn finish(&mut self, backend: usize, mut talk: Talk) {
        let quiet = self.context.body.is_ended() && talk.sent == talk.out.len() && !talk.deaf;
        give_back(std::mem::take(&mut talk.out));
        let connection = (talk.keep && quiet).then_some(talk.connection);
        // A connection that is not kept is closed before the grant is released, because PHP waits for that
        // (`fcgi_close`).
        self.let_go(backend, connection, true);
    }
}

impl FastCgiRun {
    fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
        ticket: Arc<Ticket<Connection>>,
        now: Instant,
    ) -> Result<RunStep, ExecError> {
        if let Some(grant) = ticket.take(cx.waker())? {
            self.take(grant, now);
            return Ok(RunStep::Again);
        }
        self.stage = RunStage::Waiting(ticket);
        let due = self.context.queue_deadline();
        self.wait_until(cx, now, due)
    }

    fn connect(&mut self, backend: usize, now: Instant) -> Result<RunStep, ExecError> {
        self.stage = RunStage::Connect(backend);
        let config = &self.context.shared.config;
        match connect(&config.backends[backend].address) {
            Start::Now(done) => self.connecting_is_over(backend, done)?,
            Start::Later(connecting) => {
                let by = now + config.connect_timeout;
                self.stage = RunStage::Connecting(backend, connecting, by);
            }
        }
        Ok(RunStep::Again)
    }

    fn poll_connecting(
        &mut self,
        cx: &mut Context<'_>,
        (backend, mut connecting, by): (usize, Connecting, Instant),
        now: Instant,
    ) -> Result<RunStep, ExecError> {
        let done = match connecting.as_mut().poll(cx) {
            Poll::Ready(done) => done,
            Poll::Pending if now >= by => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => {
                self.stage = RunStage::Connecting(backend, connecting, by);
                return self.wait_until(cx, now, by);
            }
        };
        self.stage = RunStage::Connect(backend);
        self.connecting_is_over(backend, done)?;
        Ok(RunStep::Again)
    }

    fn connecting_is_over(
        &mut self,
        backend: usize,
        done: io::Result<OwnedFd>,
    ) -> Result<(), ExecError> {
        match done {
            Ok(socket) => self.connected(backend, socket),
            Err(error) => {
                self.cannot_connect(backend, &error);
                Ok(())
            }
        }
    }

    fn poll_backoff(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        until: Instant,
        now: Instant,
    ) -> Result<RunStep, ExecError> {
        if now >= until {
            self.stage = RunStage::Connect(backend);
            return Ok(RunStep::Again);
        }
        self.stage = RunStage::Backoff(backend, until);
        self.wait_until(cx, now, until)
    }

    fn poll_talking(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        mut talk: Box<Talk>,
    ) -> Result<RunStep, ExecError> {
        match talk.poll(cx, backend, &mut self.context) {
            Poll::Pending => {
                self.stage = RunStage::Talking(backend, talk);
                Ok(RunStep::Pending)
            }
            Poll::Ready(Ok(Event::End)) => {
                self.finish(backend, *talk);
                Ok(RunStep::Event(Event::End))
            }
            Poll::Ready(Ok(event)) => {
                self.stage = RunStage::Talking(backend, talk);
                Ok(RunStep::Event(event))
            }
            Poll::Ready(Err(fault)) => {
                self.recover(backend, talk, fault)?;
                Ok(RunStep::Again)
            }
        }
    }

    /// Sleeps until `due`, because nothing can be done before it. Fails if the request has waited too long for a
    /// backend.
    fn wait_until(
        &mut self,
        cx: &mut Context<'_>,
        now: Instant,
        due: Instant,
    ) -> Result<RunStep, ExecError> {
        if let Some(error) = self.context.waited_too_long(now) {
            return Err(error);
        }
        let due = due.min(self.context.queue_deadline());
        Ok(match self.context.sleep(cx, now, due) {
            true => RunStep::Again,
            false => RunStep::Pending,
        })
    }
}

impl Run for FastCgiRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        loop {
            let now = Instant::now();
            let step = match std::mem::replace(&mut self.stage, RunStage::Over) {
                RunStage::Over => return Poll::Ready(Ok(Event::End)),
                RunStage::Waiting(ticket) => self.poll_waiting(cx, ticket, now),
                RunStage::Connect(backend) => self.connect(backend, now),
                RunStage::Connecting(backend, connecting, by) => {
                    self.poll_connecting(cx, (backend, connecting, by), now)
                }
                RunStage::Backoff(backend, until) => self.poll_backoff(cx, backend, until, now),
                RunStage::Talking(backend, talk) => self.poll_talking(cx, backend, talk),
            };
            match step {
                Ok(RunStep::Again) => {}
                Ok(RunStep::Pending) => return Poll::Pending,
                Ok(RunStep::Event(event)) => return Poll::Ready(Ok(event)),
                Err(error) => return self.fail(error),
            }
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming {
            queued: self
                .context
                .granted
                .map(|(at, _)| at.duration_since(self.context.began)),
            child: self.context.granted.map(|(_, backend)| backend as u16),
        }
    }

    /// PHP runs a request that it has received completely, even if the connection is closed then.
    fn is_claimed(&self) -> bool {
        match &self.stage {
            RunStage::Talking(_, talk) => {
                self.context.body.is_ended() && talk.sent == talk.out.len()
            }
            RunStage::Over => true,
            _ => false,
        }
    }
}

impl Drop for FastCgiRun {
    fn drop(&mut self) {
        self.leave();
    }
}
