//! One request: from the line to a backend, over as many attempts as are safe, to its end. What the
//! server polls. Every wait has a deadline, and every way out gives back what was granted.
//!
//! ```text
//! Waiting ─► Connect ─► (Connecting) ─► Talking ─► Over
//!    ▲          │ full: Backoff ─┘          │
//!    └──────────┴── down, or closed before anything was heard and safe to repeat
//! ```
//! A request is repeated only when it cannot have been run (not a byte of it was taken, or the
//! backend refused it by END_REQUEST), or may be run twice (RFC 9110 §9.2.2) and nothing of an answer
//! has come. A POST therefore always takes a new connection: on a kept one nobody could tell whether
//! PHP closed it before or after reading.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::{End, Role};
use tokio::time::Sleep;

use super::answer::Answer;
use super::balance::Entry;
use super::connection::{Connecting, Connection, Start, connect};
use super::request::{self, Outgoing};
use super::shared::FastCgiShared;
use super::talk::{Fault, Talk, give_back, spare};
use super::ticket::{Grant, Ticket};
use crate::{Event, ExecError, Run, RunTiming, ScriptRequest};

/// First and longest wait before a full backlog is tried again.
const BACKOFF_FIRST: Duration = Duration::from_millis(1);
const BACKOFF_LAST: Duration = Duration::from_millis(50);
/// Times a request that nobody answered is repeated on a new connection.
const REPEATS: u32 = 1;
/// Deadlines are looked at this often, whatever else: a drain may have begun.
pub const LOOK: Duration = Duration::from_secs(1);

enum RunStage {
    Waiting(Arc<Ticket<Connection>>),
    Connect(usize),
    Connecting(usize, Connecting, Instant),
    Backoff(usize, Instant),
    Talking(usize, Box<Talk>),
    Over,
}

/// The [`crate::Run`] of a request in a pool of backends: what the server polls.
pub struct FastCgiRun {
    pub shared: Arc<FastCgiShared>,
    front: usize,
    pub id: u64,
    pub role: Role,
    pub frame: howdah_proto::request::RequestFrame,
    pub body: Outgoing,
    idempotent: bool,
    began: Instant,
    /// When a backend was granted, and which.
    pub granted: Option<(Instant, usize)>,
    repeats: u32,
    backoff: Duration,
    stage: RunStage,
    timer: Option<Pin<Box<Sleep>>>,
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
            shared,
            front,
            id: request.id,
            role,
            idempotent: request::is_idempotent(&request.frame),
            frame: request.frame,
            body: Outgoing::new(request.body),
            began: now,
            granted: None,
            repeats: 0,
            backoff: BACKOFF_FIRST,
            stage: RunStage::Over,
            timer: None,
        };
        match entry {
            Entry::Granted(grant) => run.take(grant, now),
            Entry::Waits(ticket) => run.stage = RunStage::Waiting(ticket),
            Entry::Full => {}
        }
        run
    }

    /// Takes the granted backend: uses the kept connection, or has one made.
    fn take(&mut self, grant: Grant<Connection>, now: Instant) {
        self.granted = Some((now, grant.backend));
        let kept = grant.connection.map(|kept| kept.moved_to(self.front));
        self.stage = match kept {
            Some(Ok(connection)) => self.talk(grant.backend, connection, true, now),
            // One that cannot be watched here is closed, and another made.
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
            let mut balance = self.shared.balance();
            if !reused {
                balance.connected(backend, self.id, now);
            }
            balance.may_keep(backend)
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

    fn queue_deadline(&self) -> Instant {
        self.began + self.shared.config.queue_timeout
    }

    /// Sleeps until `at`; `true`: it is past, look again.
    pub fn sleep(&mut self, cx: &mut Context<'_>, now: Instant, at: Instant) -> bool {
        let at = tokio::time::Instant::from_std(at.min(now + LOOK));
        let timer = match &mut self.timer {
            Some(timer) => {
                // An earlier end is kept: it only means to look once more.
                if timer.is_elapsed() || timer.deadline() > at {
                    timer.as_mut().reset(at);
                }
                timer
            }
            None => self.timer.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        timer.as_mut().poll(cx).is_ready()
    }

    /// What ends a request that has no backend yet.
    fn waited_too_long(&self, now: Instant) -> Option<ExecError> {
        if self.shared.is_over(now) {
            return Some(ExecError::Stopping);
        }
        if now >= self.queue_deadline() {
            let down = self.shared.unreachable(now, false);
            return Some(down.unwrap_or(ExecError::QueueTimeout));
        }
        self.shared.unreachable(now, true)
    }

    /// Gives back what was granted. `connection`: it can serve again.
    fn let_go(&mut self, backend: usize, connection: Option<Connection>, success: bool) {
        let (front, id) = (self.front, self.id);
        let now = Instant::now();
        self.shared.with_balance(|balance, wake| {
            balance.heard(backend, id);
            if success {
                balance.succeeded(backend, now);
            }
            balance.release(front, backend, connection, now, wake);
        });
    }

    /// Leaves everything as if the request had never been; the stage is `Over` then.
    fn leave(&mut self) {
        match std::mem::replace(&mut self.stage, RunStage::Over) {
            RunStage::Waiting(ticket) => {
                let granted = self.shared.balance().leave(self.front, &ticket);
                if let Some(grant) = granted {
                    self.let_go(grant.backend, grant.connection, false);
                }
            }
            RunStage::Connect(backend)
            | RunStage::Connecting(backend, ..)
            | RunStage::Backoff(backend, ..) => self.let_go(backend, None, false),
            RunStage::Talking(backend, mut talk) => {
                let (shared, id, frame) = (&self.shared, self.id, &self.frame);
                talk.answer.flush_log(&mut |level, text| {
                    shared
                        .log
                        .script(&shared.config.name, id, frame, level, text);
                });
                give_back(std::mem::take(&mut talk.out));
                // Closed first: whoever is granted this place next must not find it taken.
                drop(talk);
                self.shared.balance().broke_off(backend);
                self.let_go(backend, None, false);
                self.shared.demand.notify_one();
            }
            RunStage::Over => {}
        }
    }

    fn fail(&mut self, error: ExecError) -> Poll<Result<Event, ExecError>> {
        self.leave();
        self.shared.count(&error);
        Poll::Ready(Err(error))
    }

    /// Puts the request back into the line, ahead of later ones.
    fn again(&mut self, fresh: bool, avoid: Option<usize>) {
        self.leave();
        self.body.rewind();
        let (front, since) = (self.front, self.began);
        let fresh = fresh || !self.idempotent;
        let ticket = self.shared.with_balance(|balance, wake| {
            let ticket = balance.enter_again(front, fresh, avoid, since);
            balance.serve(front, Instant::now(), wake);
            ticket
        });
        self.stage = RunStage::Waiting(ticket);
    }

    /// The same on another backend that has room now.
    fn elsewhere(&mut self, backend: usize) -> bool {
        let fresh = !self.idempotent;
        let other = self.shared.balance().instead_of(self.front, fresh, backend);
        let Some(grant) = other else {
            return false;
        };
        self.leave();
        self.body.rewind();
        self.take(grant, Instant::now());
        true
    }

    fn cannot_connect(&mut self, backend: usize, error: &io::Error) {
        use rustix::io::Errno;
        let now = Instant::now();
        let ours = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::ADDRNOTAVAIL,
        ];
        let code = error.raw_os_error();
        let short = ours.iter().any(|e| Some(e.raw_os_error()) == code);
        let full = match error.kind() {
            io::ErrorKind::WouldBlock => true,
            // A TCP backlog that is full says nothing at all.
            io::ErrorKind::TimedOut => {
                let balance = self.shared.balance();
                let member = &balance.members[backend];
                member.busy > 1 && member.answered > 0
            }
            _ => false,
        };
        if full || short {
            if full {
                self.shared.balance().overflowed(backend, now);
            }
            if !self.elsewhere(backend) {
                self.back_off(backend, now);
            }
            return;
        }
        let why = match error.kind() {
            io::ErrorKind::TimedOut => "connecting timed out".to_owned(),
            _ => error.to_string(),
        };
        let news = self.shared.with_balance(|balance, wake| {
            let news = balance.down(backend, &why, now);
            if news && balance.all_down().is_some() {
                balance.wake_all(wake);
            }
            news
        });
        if news {
            self.shared.note_down(backend, &why);
        }
        self.again(false, None);
    }

    fn connected(&mut self, backend: usize, socket: OwnedFd) -> Result<(), ExecError> {
        match Connection::new(socket, self.front) {
            Ok(connection) => {
                self.stage = self.talk(backend, connection, false, Instant::now());
                Ok(())
            }
            Err(error) => Err(ExecError::BackendDown {
                message: format!("a connection cannot be watched: {error}"),
            }),
        }
    }

    /// A connection failed, and is closed: the request goes on if that is safe, or fails.
    fn recover(
        &mut self,
        backend: usize,
        mut talk: Box<Talk>,
        fault: Fault,
    ) -> Result<(), ExecError> {
        talk.answer
            .flush_log(&mut |level, text| self.log_line(level, text));
        let (heard, saw_head) = (talk.answer.heard(), talk.answer.saw_head());
        let (reused, untouched) = (talk.reused, talk.untouched);
        give_back(std::mem::take(&mut talk.out));
        drop(talk);
        if !matches!(fault, Fault::RefusedRun(_)) {
            self.shared.balance().broke_off(backend);
            self.shared.demand.notify_one();
        }
        // What is granted is still ours.
        self.stage = RunStage::Connect(backend);
        let now = Instant::now();
        let replayable = self.body.can_rewind() && !saw_head;
        let safe = replayable && (untouched || self.idempotent);
        let error = match fault {
            Fault::RefusedRun(End::Overloaded | End::CantMultiplex) if replayable => {
                self.shared.balance().overflowed(backend, now);
                if !self.elsewhere(backend) {
                    self.body.rewind();
                    self.back_off(backend, now);
                }
                return Ok(());
            }
            Fault::RefusedRun(_) => ExecError::BackendRefused,
            // PHP has closed it after its last request (max_requests), or was restarted.
            Fault::Closed if reused && !heard && safe => {
                self.again(true, None);
                return Ok(());
            }
            Fault::Closed => ExecError::BackendClosed {
                answering: saw_head,
            },
            Fault::Error(error) => error,
        };
        let theirs = matches!(
            error,
            ExecError::BackendClosed { .. }
                | ExecError::BackendTimeout
                | ExecError::BackendRefused
                | ExecError::ResponseInvalid(_)
        );
        if theirs {
            let why = error.to_string();
            if self.shared.balance().failed(backend, &why, now) {
                self.shared.note_down(backend, &why);
            }
        }
        if safe && self.repeats < REPEATS {
            let closed = matches!(error, ExecError::BackendClosed { .. }) && !heard;
            let nonsense = matches!(error, ExecError::ResponseInvalid(_))
                && self.shared.balance().another_is_up(backend);
            if closed || nonsense {
                self.repeats += 1;
                self.again(true, Some(backend));
                return Ok(());
            }
        }
        Err(error)
    }

    /// Waits a little, with what is granted in hand.
    fn back_off(&mut self, backend: usize, now: Instant) {
        self.stage = RunStage::Backoff(backend, now + self.backoff);
        self.backoff = (self.backoff * 2).min(BACKOFF_LAST);
    }

    /// The answer is complete: the connection is kept if it can serve again.
    fn finish(&mut self, backend: usize, mut talk: Talk) {
        let quiet = self.body.is_ended() && talk.sent == talk.out.len() && !talk.deaf;
        give_back(std::mem::take(&mut talk.out));
        let connection = (talk.keep && quiet).then_some(talk.connection);
        // One that is not kept is closed before its place is: PHP waits for that (`fcgi_close`).
        self.let_go(backend, connection, true);
    }
}

impl Run for FastCgiRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        loop {
            let now = Instant::now();
            match std::mem::replace(&mut self.stage, RunStage::Over) {
                RunStage::Over => return Poll::Ready(Ok(Event::End)),
                RunStage::Waiting(ticket) => {
                    if let Some(grant) = ticket.take(cx.waker()) {
                        self.take(grant, now);
                        continue;
                    }
                    self.stage = RunStage::Waiting(ticket);
                    if let Some(error) = self.waited_too_long(now) {
                        return self.fail(error);
                    }
                    let due = self.queue_deadline();
                    if !self.sleep(cx, now, due) {
                        return Poll::Pending;
                    }
                }
                RunStage::Connect(backend) => {
                    self.stage = RunStage::Connect(backend);
                    match connect(&self.shared.config.backends[backend].address) {
                        Start::Now(Ok(socket)) => {
                            if let Err(error) = self.connected(backend, socket) {
                                return self.fail(error);
                            }
                        }
                        Start::Now(Err(error)) => self.cannot_connect(backend, &error),
                        Start::Later(connecting) => {
                            let by = now + self.shared.config.connect_timeout;
                            self.stage = RunStage::Connecting(backend, connecting, by);
                        }
                    }
                }
                RunStage::Connecting(backend, mut connecting, by) => {
                    let done = match connecting.as_mut().poll(cx) {
                        Poll::Ready(done) => done,
                        Poll::Pending if now >= by => Err(io::ErrorKind::TimedOut.into()),
                        Poll::Pending => {
                            self.stage = RunStage::Connecting(backend, connecting, by);
                            if let Some(error) = self.waited_too_long(now) {
                                return self.fail(error);
                            }
                            let due = by.min(self.queue_deadline());
                            if !self.sleep(cx, now, due) {
                                return Poll::Pending;
                            }
                            continue;
                        }
                    };
                    self.stage = RunStage::Connect(backend);
                    match done {
                        Ok(socket) => {
                            if let Err(error) = self.connected(backend, socket) {
                                return self.fail(error);
                            }
                        }
                        Err(error) => self.cannot_connect(backend, &error),
                    }
                }
                RunStage::Backoff(backend, until) => {
                    if now >= until {
                        self.stage = RunStage::Connect(backend);
                        continue;
                    }
                    self.stage = RunStage::Backoff(backend, until);
                    if let Some(error) = self.waited_too_long(now) {
                        return self.fail(error);
                    }
                    let due = until.min(self.queue_deadline());
                    if !self.sleep(cx, now, due) {
                        return Poll::Pending;
                    }
                }
                RunStage::Talking(backend, mut talk) => {
                    match self.poll_talk(cx, backend, &mut talk) {
                        Poll::Pending => {
                            self.stage = RunStage::Talking(backend, talk);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(Event::End)) => {
                            self.finish(backend, *talk);
                            return Poll::Ready(Ok(Event::End));
                        }
                        Poll::Ready(Ok(event)) => {
                            self.stage = RunStage::Talking(backend, talk);
                            return Poll::Ready(Ok(event));
                        }
                        Poll::Ready(Err(fault)) => {
                            if let Err(error) = self.recover(backend, talk, fault) {
                                return self.fail(error);
                            }
                        }
                    }
                }
            }
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming {
            queued: self.granted.map(|(at, _)| at.duration_since(self.began)),
            child: self.granted.map(|(_, backend)| backend as u16),
        }
    }
}

impl Drop for FastCgiRun {
    fn drop(&mut self) {
        self.leave();
    }
}
