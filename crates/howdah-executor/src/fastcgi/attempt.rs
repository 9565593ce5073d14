//! A request on its connection. It sends and reads in the same poll, and returns the data that has arrived and the
//! events that are due by the clock. The run decides how to handle an [`AttemptFault`].

use std::cell::RefCell;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::EndStatus;
use howdah_proto::level::LogLevel;

use super::backend_state::SILENT_AFTER;
use super::connection::BackendConnection;
use super::request;
use super::response::FastCgiResponse;
use super::run_context::{DEADLINE_CHECK_INTERVAL, RunContext};
use crate::{ExecError, RunEvent};

/// The maximum number of bytes in one read from a connection.
const READ_CHUNK_BYTES: usize = 64 << 10;
/// The maximum capacity of a buffer that is reused, in bytes. A buffer that a body has made larger is freed, because a
/// short request would occupy all of it while its script runs.
const MAX_REUSED_BUFFER_BYTES: usize = 8 << 10;
/// The maximum number of pieces of a body that are sent in one poll.
const MAX_PIECES_PER_POLL: u32 = 16;
/// Received data is flushed if no more arrives within this time, because FastCGI does not distinguish a `flush()` from
/// a buffer that was full.
const FLUSH_AFTER: Duration = Duration::from_millis(20);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A request on its connection: the data sent and the data received.
pub struct RequestAttempt {
    pub connection: BackendConnection,
    pub reused: bool,
    pub keep: bool,
    pub out: Vec<u8>,
    pub sent: usize,
    /// Whether no byte of the request has been sent.
    pub nothing_sent: bool,
    /// Whether sending has failed. A response may still arrive.
    pub send_failed: bool,
    pub response: FastCgiResponse,
    pub began: Instant,
    /// When sending stalled. Nothing has been sent since this time, although there is something to send.
    pub send_stalled: Option<Instant>,
    pub last_read: Instant,
    /// Whether an event was returned that has not been flushed.
    pub unflushed: bool,
    /// Whether this is a new connection while others are kept, and nothing has arrived on it yet.
    pub silent: bool,
    /// Whether kept connections were closed to make room for this one.
    pub made_room: bool,
}

/// Why a request cannot continue on its connection.
pub enum AttemptFault {
    /// The backend has closed the connection.
    Closed,
    /// The request has failed with this error, on either side of the connection.
    Error(ExecError),
    /// END_REQUEST says that the request was not run.
    RefusedRun(EndStatus),
}

impl RequestAttempt {
    /// Advances a request on its connection.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        run: &mut RunContext,
    ) -> Poll<Result<RunEvent, AttemptFault>> {
        if let Err(fault) = self.poll_send(cx, run) {
            return Poll::Ready(Err(fault));
        }
        loop {
            if let Some(head) = self.response.take_head() {
                self.unflushed = true;
                return Poll::Ready(Ok(RunEvent::Head(head)));
            }
            if let Some(body) = self.response.take_body() {
                self.unflushed = true;
                return Poll::Ready(Ok(RunEvent::Body(body)));
            }
            match self.response.end() {
                None => {}
                Some(EndStatus::Complete { app_status }) => {
                    if !self.response.saw_head() {
                        return Poll::Ready(Err(AttemptFault::Error(
                            self.response.missing_head_error(),
                        )));
                    }
                    if app_status != 0 {
                        let message =
                            format!("AppStatus: the application exited with status {app_status}");
                        run.log_line(LogLevel::Warning, message.as_bytes());
                    }
                    return Poll::Ready(Ok(RunEvent::End));
                }
                Some(refused) => return Poll::Ready(Err(AttemptFault::RefusedRun(refused))),
            }
            match self.poll_read(cx, backend, run) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) if self.response.is_complete_at_close() => {
                    self.keep = false;
                    return Poll::Ready(Ok(RunEvent::End));
                }
                Poll::Ready(Ok(false)) => return Poll::Ready(Err(AttemptFault::Closed)),
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => return self.idle(cx, backend, run),
            }
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        run: &mut RunContext,
    ) -> Result<(), AttemptFault> {
        if self.nothing_sent && self.out.is_empty() {
            let about = request::RequestFacts {
                role: run.role,
                roots: &run.shared.config.script_root,
                keep: self.keep,
            };
            if let Err(long) = request::write_head(&mut self.out, &run.frame, &about) {
                let length = long.length;
                return Err(AttemptFault::Error(ExecError::VariableTooLong { length }));
            }
            // The available part of the body is added to the records, so a request takes one write.
            if let Poll::Ready(Err(error)) = run.body.poll_fill(cx, &mut self.out) {
                return Err(AttemptFault::Error(error));
            }
        }
        for _ in 0..MAX_PIECES_PER_POLL {
            if self.send_failed {
                return Ok(());
            }
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
                match run.body.poll_fill(cx, &mut self.out) {
                    Poll::Ready(Ok(())) if self.out.is_empty() => return Ok(()),
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Err(AttemptFault::Error(error)),
                    Poll::Pending => return Ok(()),
                }
            }
            match self.connection.poll_send(cx, &self.out[self.sent..]) {
                Poll::Ready(Ok(n)) => {
                    self.sent += n;
                    (self.nothing_sent, self.send_stalled) = (false, None);
                }
                // If PHP responds without reading its input, it closes the connection. Its response is read first.
                Poll::Ready(Err(_)) => self.send_failed = true,
                Poll::Pending => {
                    self.send_stalled.get_or_insert_with(Instant::now);
                    return Ok(());
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Reads once. Returns `false` if the backend has closed the connection.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        run: &RunContext,
    ) -> Poll<Result<bool, AttemptFault>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(READ_CHUNK_BYTES, 0);
            let n = match self.connection.poll_recv(cx, buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(false)),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(_)) => return Poll::Ready(Err(AttemptFault::Closed)),
            };
            if std::mem::take(&mut self.silent) {
                run.shared.balance().record_first_bytes(backend, run.id);
            }
            self.last_read = Instant::now();
            let mut log = |level, text: &[u8]| run.log_line(level, text);
            let fed = self.response.feed(&buffer[..n], &mut log);
            Poll::Ready(fed.map(|()| true).map_err(AttemptFault::Error))
        })
    }

    /// Handles what is due by the clock, when there is nothing to send or read.
    fn idle(
        &mut self,
        cx: &mut Context<'_>,
        backend: usize,
        run: &mut RunContext,
    ) -> Poll<Result<RunEvent, AttemptFault>> {
        loop {
            let now = Instant::now();
            if run.shared.is_past_drain_deadline(now) {
                return Poll::Ready(Err(AttemptFault::Error(ExecError::Stopping)));
            }
            let config = &run.shared.config;
            let terminate = config.request_terminate_timeout.map(|t| self.began + t);
            let read = config.read_timeout.map(|t| self.last_read + t);
            let send = self.send_stalled.map(|since| since + config.send_timeout);
            let lull = self.unflushed.then(|| self.last_read + FLUSH_AFTER);
            let past = |at: Option<Instant>| at.is_some_and(|at| at <= now);
            if past(terminate) {
                if let Some((_, backend)) = run.granted {
                    run.shared.balance().backends[backend].timeouts += 1;
                    run.shared.demand.notify_one();
                }
                return Poll::Ready(Err(AttemptFault::Error(ExecError::TerminateTimeout)));
            }
            if past(read) || past(send) {
                return Poll::Ready(Err(AttemptFault::Error(ExecError::BackendTimeout)));
            }
            if past(lull) {
                self.unflushed = false;
                return Poll::Ready(Ok(RunEvent::Flush));
            }
            let waits = self.silent && !self.made_room;
            let silent = waits.then(|| self.began + SILENT_AFTER);
            if past(silent) {
                // From now on no connection is kept until this one has received data; see `Balance::release`.
                self.made_room = true;
                let kept = run.shared.balance().take_kept_connections(backend);
                drop(kept);
                continue;
            }
            let due = [terminate, read, send, lull, silent];
            let due = due
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(now + DEADLINE_CHECK_INTERVAL);
            if !run.sleep(cx, now, due) {
                return Poll::Pending;
            }
        }
    }
}

/// Returns an empty buffer, if possible one that this thread has used before.
pub fn take_buffer() -> Vec<u8> {
    let mut buffer = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    buffer.clear();
    buffer
}

/// Stores a buffer for the next request of this thread.
pub fn return_buffer(buffer: Vec<u8>) {
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < 64 && buffer.capacity() > 0 && buffer.capacity() <= MAX_REUSED_BUFFER_BYTES
        {
            spare.push(buffer);
        }
    });
}
