//! A request on its connection: sends and reads at once, returns what has arrived, and what is due
//! by the clock. Half of [`FastCgiRun`], which decides what to do about a [`Fault`].

use std::cell::RefCell;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::End;
use howdah_proto::level::Level;

use super::answer::Answer;
use super::connection::Connection;
use super::member::SILENCE;
use super::request;
use super::run::{FastCgiRun, LOOK};
use crate::{Event, ExecError};

/// Most bytes read from a connection at once.
const READ: usize = 64 << 10;
/// Buffers grown beyond this by a body are freed: a short request would hold all of it while its
/// script runs.
const KEEP: usize = 8 << 10;
/// Pieces of a body sent in one turn.
const PIECES: u32 = 16;
/// What came is passed on if nothing more comes within this time: FastCGI does not tell a `flush()`
/// from a buffer that was full.
const LULL: Duration = Duration::from_millis(20);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A request on its connection: what has been sent, and what has been read.
pub struct Talk {
    pub connection: Connection,
    pub reused: bool,
    pub keep: bool,
    pub out: Vec<u8>,
    pub sent: usize,
    /// No byte of the request has been sent.
    pub untouched: bool,
    /// Sending has failed; an answer may still be there.
    pub deaf: bool,
    pub answer: Answer,
    pub began: Instant,
    /// Since then nothing has been sent although there was something to send.
    pub send_stalled: Option<Instant>,
    pub last_read: Instant,
    /// Something was given out that has not been flushed.
    pub unflushed: bool,
    /// This is a new connection while others are kept, and nothing has come on it yet.
    pub silent: bool,
    /// Kept connections were closed to make room for this one.
    pub made_room: bool,
}

/// Why a request cannot go on with its connection.
pub enum Fault {
    /// The backend has closed the connection.
    Closed,
    /// The request has failed with this error, on either side of the connection.
    Error(ExecError),
    /// END_REQUEST says that the request was not run.
    RefusedRun(End),
}

impl FastCgiRun {
    /// One turn of a request on its connection.
    pub fn poll_talk(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        talk: &mut Talk,
    ) -> Poll<Result<Event, Fault>> {
        if let Err(fault) = self.poll_send(cx, talk) {
            return Poll::Ready(Err(fault));
        }
        loop {
            if let Some(head) = talk.answer.take_head() {
                talk.unflushed = true;
                return Poll::Ready(Ok(Event::Head(head)));
            }
            if let Some(body) = talk.answer.take_body() {
                talk.unflushed = true;
                return Poll::Ready(Ok(Event::Body(body)));
            }
            match talk.answer.end() {
                None => {}
                Some(End::Complete { app_status }) => {
                    if !talk.answer.saw_head() {
                        return Poll::Ready(Err(Fault::Error(talk.answer.headless())));
                    }
                    if app_status != 0 {
                        let message = format!("AppStatus: the application ended with {app_status}");
                        self.log_line(Level::Warning, message.as_bytes());
                    }
                    return Poll::Ready(Ok(Event::End));
                }
                Some(refused) => return Poll::Ready(Err(Fault::RefusedRun(refused))),
            }
            match self.poll_read(cx, backend, talk) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if talk.answer.is_complete_at_close() => {
                    talk.keep = false;
                    return Poll::Ready(Ok(Event::End));
                }
                Poll::Ready(Ok(false)) => return Poll::Ready(Err(Fault::Closed)),
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => return self.idle(cx, backend, talk),
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, talk: &mut Talk) -> Result<(), Fault> {
        if talk.untouched && talk.out.is_empty() {
            let about = request::RequestFacts {
                role: self.role,
                roots: &self.shared.config.script_root,
                keep: talk.keep,
            };
            if let Err(long) = request::head(&mut talk.out, &self.frame, &about) {
                let length = long.length;
                return Err(Fault::Error(ExecError::VariableTooLong { length }));
            }
            // With what there is of the body, so that a request is one write.
            if let Poll::Ready(Err(error)) = self.body.poll_fill(cx, &mut talk.out) {
                return Err(Fault::Error(error));
            }
        }
        for _ in 0..PIECES {
            if talk.deaf {
                return Ok(());
            }
            if talk.sent == talk.out.len() {
                talk.out.clear();
                talk.sent = 0;
                match self.body.poll_fill(cx, &mut talk.out) {
                    Poll::Ready(Ok(())) if talk.out.is_empty() => return Ok(()),
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Err(Fault::Error(error)),
                    Poll::Pending => return Ok(()),
                }
            }
            match talk.connection.poll_send(cx, &talk.out[talk.sent..]) {
                Poll::Ready(Ok(n)) => {
                    talk.sent += n;
                    (talk.untouched, talk.send_stalled) = (false, None);
                }
                // PHP that answers without reading its input closes; the answer is read first.
                Poll::Ready(Err(_)) => talk.deaf = true,
                Poll::Pending => {
                    talk.send_stalled.get_or_insert_with(Instant::now);
                    return Ok(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Reads once; `false` when the backend has closed the connection.
    fn poll_read(
        &self,
        cx: &mut Context<'_>,
        backend: usize,
        talk: &mut Talk,
    ) -> Poll<Result<bool, Fault>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ, 0);
            let n = match talk.connection.poll_recv(cx, buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(Fault::Closed)),
            };
            if std::mem::take(&mut talk.silent) {
                self.shared.balance().heard(backend, self.id);
            }
            talk.last_read = Instant::now();
            let mut log = |level, text: &[u8]| self.log_line(level, text);
            let fed = talk.answer.feed(&buffer[..n], &mut log);
            Poll::Ready(fed.map(|()| true).map_err(Fault::Error))
        })
    }

    pub fn log_line(&self, level: Level, text: &[u8]) {
        let shared = &self.shared;
        shared
            .log
            .script(&shared.config.name, self.id, &self.frame, level, text);
    }

    /// Nothing can be done now: what is due by the clock?
    fn idle(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        talk: &mut Talk,
    ) -> Poll<Result<Event, Fault>> {
        loop {
            let now = Instant::now();
            if self.shared.is_over(now) {
                return Poll::Ready(Err(Fault::Error(ExecError::Stopping)));
            }
            let config = &self.shared.config;
            let terminate = config.request_terminate_timeout.map(|t| talk.began + t);
            let read = config.read_timeout.map(|t| talk.last_read + t);
            let send = talk.send_stalled.map(|since| since + config.send_timeout);
            let lull = talk.unflushed.then(|| talk.last_read + LULL);
            let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if past(terminate) {
                if let Some((_, backend)) = self.granted {
                    self.shared.balance().members[backend].overdue += 1;
                    self.shared.demand.notify_one();
                }
                return Poll::Ready(Err(Fault::Error(ExecError::TerminateTimeout)));
            }
            if past(read) || past(send) {
                return Poll::Ready(Err(Fault::Error(ExecError::BackendTimeout)));
            }
            if past(lull) {
                talk.unflushed = false;
                return Poll::Ready(Ok(Event::Flush));
            }
            let waits = talk.silent && !talk.made_room;
            let silent = waits.then(|| talk.began + SILENCE);
            if past(silent) {
                // From now on nothing is kept until it is heard of, see `Balance::release`.
                talk.made_room = true;
                let kept = self.shared.balance().make_room(backend);
                drop(kept);
                continue;
            }
            let due = [terminate, read, send, lull, silent];
            let due = due.into_iter().flatten().min().unwrap_or(now + LOOK);
            if !self.sleep(cx, now, due) {
                return Poll::Pending;
            }
        }
    }
}

/// An empty buffer, one this thread used before if there is any.
pub fn spare() -> Vec<u8> {
    let mut buffer = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    buffer.clear();
    buffer
}

/// A buffer for the next request of this thread.
pub fn give_back(buffer: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < 64 && buffer.capacity() > 0 && buffer.capacity() <= KEEP {
            spare.push(buffer);
        }
    });
}
