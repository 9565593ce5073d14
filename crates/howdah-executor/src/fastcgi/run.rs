//! Carries one request from the queue to a backend, and repeats it as often as is safe and necessary. The server polls
//! the request. Every wait has a deadline, and the grant is released however the request ends.
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

use howdah_proto::fastcgi::FastCgiRole;

use super::attempt::{RequestAttempt, return_buffer, take_buffer};
use super::balance::BackendAdmission;
use super::connection::{BackendConnection, ConnectAttempt, Connecting, connect};
use super::request::{self, OutgoingBody};
use super::response::FastCgiResponse;
use super::run_context::RunContext;
use super::shared::FastCgiShared;
use super::ticket::{BackendGrant, BackendTicket};
use crate::{ExecError, RunEvent, RunTiming, ScriptRequest, ScriptRun};

mod recovery;

/// The first wait before a full backlog is tried again.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);

enum RunStage {
    Waiting(Arc<BackendTicket<BackendConnection>>),
    Connect(usize),
    Connecting(usize, Connecting, Instant),
    Backoff(usize, Instant),
    Talking(usize, Box<RequestAttempt>),
    Over,
}

/// The result of advancing the stage once.
enum RunStep {
    /// The stage has changed, or the time for another attempt has come: advance the stage again.
    Again,
    /// Nothing can be done now. The request is woken when it can continue.
    Pending,
    Event(RunEvent),
}

/// The [`crate::ScriptRun`] of a request in a pool of backends, which the server polls.
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
        role: FastCgiRole,
        request: ScriptRequest,
        entry: BackendAdmission<BackendConnection>,
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
                body: OutgoingBody::new(request.body),
                drop_at_end: request.drop_at_end,
                began: now,
                granted: None,
                timer: None,
            },
            repeats: 0,
            backoff: FIRST_BACKOFF,
            stage: RunStage::Over,
        };
        match entry {
            BackendAdmission::Granted(grant) => run.use_grant(grant, now),
            BackendAdmission::Waits(ticket) => run.stage = RunStage::Waiting(ticket),
            BackendAdmission::Full => {}
        }
        run
    }

    /// Uses the granted backend: its kept connection, or a new one.
    fn use_grant(&mut self, grant: BackendGrant<BackendConnection>, now: Instant) {
        self.context.granted = Some((now, grant.backend));
        let kept = grant
            .connection
            .map(|kept| kept.moved_to(self.context.front));
        self.stage = match kept {
            Some(Ok(connection)) => self.start_attempt(grant.backend, connection, true, now),
            // A connection that cannot be registered with this thread is closed, and a new one is made.
            Some(Err(_)) | None => RunStage::Connect(grant.backend),
        };
    }

    fn start_attempt(
        &mut self,
        backend: usize,
        connection: BackendConnection,
        reused: bool,
        now: Instant,
    ) -> RunStage {
        let keep = {
            let mut balance = self.context.shared.balance();
            if !reused {
                balance.record_connect(backend, self.context.id, now);
            }
            // php-fpm before 8.2.36, 8.3.37, 8.4.28 and 8.5.13 treats the unread rest of a body as the next request on
            // the connection (CVE-2026-129289).
            balance.may_keep(backend) && self.context.body.is_empty()
        };
        RunStage::Talking(
            backend,
            Box::new(RequestAttempt {
                connection,
                reused,
                keep,
                out: take_buffer(),
                sent: 0,
                nothing_sent: true,
                send_failed: false,
                response: FastCgiResponse::default(),
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
    fn release_grant(
        &mut self,
        backend: usize,
        connection: Option<BackendConnection>,
        success: bool,
    ) {
        let (front, id) = (self.context.front, self.context.id);
        let now = Instant::now();
        self.context.drop_at_end = None;
        self.context.shared.with_balance(|balance, wake| {
            balance.record_first_bytes(backend, id);
            if success {
                balance.record_success(backend, now);
            }
            balance.release(front, backend, connection, now, wake);
        });
    }

    /// Cancels the request and releases everything. The stage is `Over` afterwards.
    fn cancel(&mut self) {
        match std::mem::replace(&mut self.stage, RunStage::Over) {
            RunStage::Waiting(ticket) => {
                let granted = self.context.shared.balance().withdraw(&ticket);
                if let Some(grant) = granted {
                    self.release_grant(grant.backend, grant.connection, false);
                }
            }
            RunStage::Connect(backend)
            | RunStage::Connecting(backend, ..)
            | RunStage::Backoff(backend, ..) => self.release_grant(backend, None, false),
            RunStage::Talking(backend, mut talk) => {
                let (shared, id, frame) =
                    (&self.context.shared, self.context.id, &self.context.frame);
                talk.response.flush_log(&mut |level, text| {
                    shared
                        .log
                        .script(&shared.config.name, id, frame, level, text);
                });
                return_buffer(std::mem::take(&mut talk.out));
                // The connection is closed first: the next request that is granted this backend must find its process
                // free.
                drop(talk);
                self.context.shared.balance().record_break_off(backend);
                self.release_grant(backend, None, false);
                self.context.shared.demand.notify_one();
            }
            RunStage::Over => {}
        }
    }

    fn fail(&mut self, error: ExecError) -> Poll<Result<RunEvent, ExecError>> {
        self.cancel();
        self.context.shared.count_failure(&error);
        Poll::Ready(Err(error))
    }

    fn connected(&mut self, backend: usize, socket: OwnedFd) -> Result<(), ExecError> {
        match BackendConnection::new(socket, self.context.front) {
            Ok(connection) => {
                self.stage = self.start_attempt(backend, connection, false, Instant::now());
                Ok(())
            }
            Err(error) => Err(ExecError::BackendDown {
                message: format!("a connection cannot be watched: {error}"),
            }),
        }
    }

    /// Ends a request whose response is complete. Its connection is kept if it can serve again.
    fn finish(&mut self, backend: usize, mut talk: RequestAttempt) {
        let quiet =
            self.context.body.is_ended() && talk.sent == talk.out.len() && !talk.send_failed;
        return_buffer(std::mem::take(&mut talk.out));
        let connection = (talk.keep && quiet).then_some(talk.connection);
        // A connection that is not kept is closed before the grant is released, because PHP waits for that
        // (`fcgi_close`).
        self.release_grant(backend, connection, true);
    }
}

impl FastCgiRun {
    fn poll_waiting(
        &mut self,
        cx: &mut Context<'_>,
        ticket: Arc<BackendTicket<BackendConnection>>,
        now: Instant,
    ) -> Result<RunStep, ExecError> {
        if let Some(grant) = ticket.poll_grant(cx.waker())? {
            self.use_grant(grant, now);
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
            ConnectAttempt::Now(done) => self.on_connect_result(backend, done)?,
            ConnectAttempt::Later(connecting) => {
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
        self.on_connect_result(backend, done)?;
        Ok(RunStep::Again)
    }

    fn on_connect_result(
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
        mut talk: Box<RequestAttempt>,
    ) -> Result<RunStep, ExecError> {
        match talk.poll(cx, backend, &mut self.context) {
            Poll::Pending => {
                self.stage = RunStage::Talking(backend, talk);
                Ok(RunStep::Pending)
            }
            Poll::Ready(Ok(RunEvent::End)) => {
                self.finish(backend, *talk);
                Ok(RunStep::Event(RunEvent::End))
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
        if let Some(error) = self.context.waiting_error(now) {
            return Err(error);
        }
        let due = due.min(self.context.queue_deadline());
        Ok(match self.context.sleep(cx, now, due) {
            true => RunStep::Again,
            false => RunStep::Pending,
        })
    }
}

impl ScriptRun for FastCgiRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        loop {
            let now = Instant::now();
            let step = match std::mem::replace(&mut self.stage, RunStage::Over) {
                RunStage::Over => return Poll::Ready(Ok(RunEvent::End)),
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

    /// PHP runs a request that it has received completely, even if the connection is closed in the meantime.
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
        self.cancel();
    }
}
