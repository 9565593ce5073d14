//! How a request reacts to a connection that cannot be made, or fails: it waits, tries another backend, is repeated
//! where that is safe, or fails.

use std::io;
use std::time::{Duration, Instant};

use howdah_proto::fastcgi::EndStatus;

use super::{FastCgiRun, RunStage};
use crate::ExecError;
use crate::fastcgi::attempt::{AttemptFault, RequestAttempt, return_buffer};

/// The maximum wait before a full backlog is tried again.
const MAX_BACKOFF: Duration = Duration::from_millis(50);
/// How often a request without a response is repeated on a new connection.
const MAX_REPEATS: u32 = 1;

impl FastCgiRun {
    pub(super) fn cannot_connect(&mut self, backend: usize, error: &io::Error) {
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
            // A full TCP backlog gives no reply at all.
            io::ErrorKind::TimedOut => {
                let balance = self.context.shared.balance();
                let member = &balance.backends[backend];
                member.busy > 1 && member.served > 0
            }
            _ => false,
        };
        if full || short {
            if full {
                self.context.shared.balance().record_overflow(backend, now);
            }
            if !self.try_other_backend(backend) {
                self.back_off(backend, now);
            }
            return;
        }
        let why = match error.kind() {
            io::ErrorKind::TimedOut => "the connection attempt timed out".to_owned(),
            _ => error.to_string(),
        };
        let news = self.context.shared.with_balance(|balance, wake| {
            let news = balance.record_down(backend, &why, now);
            if news && balance.all_down().is_some() {
                balance.wake_all(wake);
            }
            news
        });
        if news {
            self.context.shared.log_backend_down(backend, &why);
        }
        self.requeue(false, None);
    }

    /// Handles a failed connection, which is closed: the request continues if that is safe, or fails.
    pub(super) fn recover(
        &mut self,
        backend: usize,
        mut talk: Box<RequestAttempt>,
        fault: AttemptFault,
    ) -> Result<(), ExecError> {
        talk.response
            .flush_log(&mut |level, text| self.context.log_line(level, text));
        let (heard, saw_head) = (talk.response.has_received(), talk.response.saw_head());
        let (reused, untouched) = (talk.reused, talk.nothing_sent);
        return_buffer(std::mem::take(&mut talk.out));
        drop(talk);
        if !matches!(fault, AttemptFault::RefusedRun(_)) {
            self.context.shared.balance().record_break_off(backend);
            self.context.shared.demand.notify_one();
        }
        // The grant is still held.
        self.stage = RunStage::Connect(backend);
        let now = Instant::now();
        let replayable = self.context.body.can_rewind() && !saw_head;
        let safe = replayable && (untouched || self.context.idempotent);
        let error = match fault {
            AttemptFault::RefusedRun(EndStatus::Overloaded | EndStatus::CantMultiplex)
                if replayable =>
            {
                self.context.shared.balance().record_overflow(backend, now);
                if !self.try_other_backend(backend) {
                    self.context.body.rewind();
                    self.back_off(backend, now);
                }
                return Ok(());
            }
            AttemptFault::RefusedRun(_) => ExecError::BackendRefused,
            // PHP has closed the connection after its last request (max_requests), or was restarted.
            AttemptFault::Closed if reused && !heard && safe => {
                self.requeue(true, None);
                return Ok(());
            }
            AttemptFault::Closed => ExecError::BackendClosed {
                answering: saw_head,
            },
            AttemptFault::Error(error) => error,
        };
        self.note_failure(backend, &error, now);
        if safe && self.repeats < MAX_REPEATS {
            let closed = matches!(error, ExecError::BackendClosed { .. }) && !heard;
            let nonsense = matches!(error, ExecError::ResponseInvalid(_))
                && self.context.shared.balance().another_is_up(backend);
            if closed || nonsense {
                self.repeats += 1;
                self.requeue(true, Some(backend));
                return Ok(());
            }
        }
        Err(error)
    }

    /// Counts an error against the backend, if the backend caused it.
    fn note_failure(&self, backend: usize, error: &ExecError, now: Instant) {
        let theirs = matches!(
            error,
            ExecError::BackendClosed { .. }
                | ExecError::BackendTimeout
                | ExecError::BackendRefused
                | ExecError::ResponseInvalid(_)
        );
        let shared = &self.context.shared;
        let why = error.to_string();
        if theirs && shared.balance().record_failure(backend, &why, now) {
            shared.log_backend_down(backend, &why);
        }
    }

    /// Waits briefly, while it holds the grant.
    pub(super) fn back_off(&mut self, backend: usize, now: Instant) {
        self.stage = RunStage::Backoff(backend, now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    /// Puts the request back in line, before later ones.
    pub(super) fn requeue(&mut self, fresh: bool, avoid: Option<usize>) {
        self.cancel();
        self.context.body.rewind();
        let since = self.context.began;
        let whose = (self.context.front, self.context.client);
        let fresh = fresh || !self.context.idempotent;
        let ticket = self.context.shared.with_balance(|balance, wake| {
            let ticket = balance.readmit(whose, fresh, avoid, since);
            balance.grant_waiting(whose.0, wake);
            ticket
        });
        self.stage = RunStage::Waiting(ticket);
    }

    /// Starts again on another backend, if one has room now.
    pub(super) fn try_other_backend(&mut self, backend: usize) -> bool {
        let fresh = !self.context.idempotent;
        let other = self
            .context
            .shared
            .balance()
            .choose_other(self.context.front, fresh, backend);
        let Some(grant) = other else {
            return false;
        };
        self.cancel();
        self.context.body.rewind();
        self.use_grant(grant, Instant::now());
        true
    }
}
