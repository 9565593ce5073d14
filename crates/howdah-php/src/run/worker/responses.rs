//! How a worker sends the script's responses and static files, and what happens to a connection after a complete
//! response. The timeouts of slow clients are in `timeouts`.

use std::os::fd::OwnedFd;

use super::{CLIENT_TIMEOUT_MS, SwooleWorker};
use crate::run::connection::{Phase, SwooleConnection};
use crate::run::files::{StaticFile, StaticOutcome};
use crate::run::response_heads::{closing_response, file_response_head, not_found_response};
use crate::run::{log, sys};

impl SwooleWorker {
    /// Returns the slot of a connection whose request waits for a response.
    fn answering_slot(&mut self, id: u64) -> Option<usize> {
        let answering = |c: &SwooleConnection| c.phase == Phase::Answering;
        let slot = self.slot_of(id).filter(|_| self.is_usable(id))?;
        self.slots[slot]
            .connection
            .as_ref()
            .is_some_and(answering)
            .then_some(slot)
    }

    /// Returns the connection if its request waits for a response.
    fn answering(&mut self, id: u64) -> Option<&mut SwooleConnection> {
        let slot = self.answering_slot(id)?;
        self.slots[slot].connection.as_mut()
    }

    /// Returns whether the connection stays open after the current response.
    pub fn keeps_connection(&mut self, id: u64) -> bool {
        let leaving = self.leaving_since.is_some();
        self.connection(id)
            .is_some_and(|c| c.receiver.keep_alive() && !c.close_after && !leaving)
    }

    /// Sends a part of a response. Returns `false` if the client is gone.
    pub fn send(&mut self, id: u64, first: &[u8], second: &[u8]) -> bool {
        let now = self.now;
        let Some(slot) = self.answering_slot(id) else {
            return false;
        };
        let alive = self.slots[slot]
            .connection
            .as_mut()
            .is_some_and(|c| c.write(first, second, &self.spill_store, now));
        if !alive {
            self.close(id);
        }
        alive
    }

    /// Waits until the client has read enough of a streamed response for which there was no room in a file. The script
    /// cannot be interrupted, so the worker waits for this client alone, and therefore for no more than
    /// [`CLIENT_TIMEOUT_MS`] in total. Returns `false` if the client does not read in time or is gone.
    pub fn make_room(&mut self, id: u64) -> bool {
        let limit = self.config.max_output;
        loop {
            let now = sys::now_ms();
            self.now = now;
            let Some(connection) = self.answering(id) else {
                return false;
            };
            if connection.pending_output() <= limit {
                return true;
            }
            let alive = connection.flush(now);
            if alive && connection.pending_output() <= limit {
                return true;
            }
            if !alive || connection.script_waited >= CLIENT_TIMEOUT_MS {
                if alive {
                    log::warn(
                        "ClientTooSlow: a script waited 30 s for its client to read the response, which is cut off",
                    );
                }
                self.close(id);
                return false;
            }
            sys::wait_writable(connection.fd(), 1000);
            connection.script_waited += sys::now_ms() - now;
        }
    }

    /// Sends a part of a file. Returns `false` if the client is gone.
    pub fn send_file(&mut self, id: u64, file: OwnedFd, offset: u64, length: u64) -> bool {
        let now = self.now;
        let Some(connection) = self.answering(id) else {
            return false;
        };
        if connection.write_file(file, offset, length, now) {
            return true;
        }
        self.close(id);
        false
    }

    /// Completes the response. The request is kept while the script's callback runs, because the callback may still
    /// read it.
    pub fn finish_response(&mut self, id: u64, keep: bool) {
        if let Some(connection) = self.answering(id)
            && !keep
        {
            connection.close_after = true;
        }
        match &mut self.current_call {
            Some((called, answered)) if *called == id => *answered = true,
            _ => self.finish(id),
        }
    }

    /// Notes that the script's callback has returned, after which nothing reads its request any more.
    pub fn callback_returned(&mut self) {
        let close_pending = std::mem::take(&mut self.close_pending);
        match self.current_call.take() {
            Some((id, _)) if close_pending => self.close(id),
            Some((id, true)) => self.finish(id),
            _ => {}
        }
    }

    /// Returns whether the connection exists and will not be closed when the script's callback returns.
    pub fn is_usable(&mut self, id: u64) -> bool {
        let close_pending =
            self.close_pending && self.current_call.is_some_and(|(called, _)| called == id);
        !close_pending && self.connection(id).is_some()
    }

    /// Continues with the next request, or closes, after a complete response.
    fn finish(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connection(id) else {
            return;
        };
        if connection.phase != Phase::Answering {
            return;
        }
        if connection.close_after {
            connection.drop_request();
            connection.close_after_output(now);
            // Check at once whether the client has already closed its side.
            connection.mark_readable();
            self.resumable.push_back(id);
            return;
        }
        connection.begin_next_request(now);
        if connection.can_resume() {
            self.resumable.push_back(id);
        }
    }

    /// Sends the queued output when the socket accepts bytes again.
    pub(super) fn flush(&mut self, id: u64) {
        let now = self.now;
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.flush(now) {
            self.close(id);
        } else if !connection.has_output() && connection.phase == Phase::Closing {
            sys::shutdown_sending(connection.fd());
        }
    }

    pub(super) fn send_static(&mut self, id: u64) -> bool {
        let Some(root) = &self.config.files else {
            return false;
        };
        let Some(slot) = self.slot_of(id) else {
            return false;
        };
        let Some(head) = self.slots[slot]
            .connection
            .as_ref()
            .and_then(|c| c.receiver.head())
        else {
            return false;
        };
        let found = match root.resolve(head) {
            StaticOutcome::File(found) => found,
            StaticOutcome::NotFound => {
                let keep = self.keeps_connection(id);
                if self.send(id, not_found_response(keep).as_bytes(), b"") {
                    self.finish_response(id, keep);
                }
                return true;
            }
            StaticOutcome::Script => return false,
        };
        let wants_body = head.method() == b"GET" && !found.not_modified;
        let keep = self.keeps_connection(id);
        let head = file_response_head(&found, keep);
        let StaticFile { file, size, .. } = found;
        if self.send(id, head.as_bytes(), b"")
            && (!wants_body || self.send_file(id, file.into(), 0, size))
        {
            self.finish_response(id, keep);
        }
        true
    }

    /// Sends a 500 for the current request, unless its response has begun. Called when the script's code kills the
    /// worker.
    pub fn prepare_to_die(&mut self, name: &str) {
        if let Some((id, false)) = self.current_call.take()
            && let Some(slot) = self.slot_of(id)
            && let Some(connection) = &mut self.slots[slot].connection
            && connection.phase == Phase::Answering
        {
            let now = sys::now_ms();
            connection.write(
                closing_response(500, name).as_bytes(),
                b"",
                &self.spill_store,
                now,
            );
            connection.close_after_output(now);
        }
    }
}
