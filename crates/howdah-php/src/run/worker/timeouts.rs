//! Timeouts: periodically checks every connection, and closes or refuses those that take too long.

use howdah_http1::receiver::ReceiveRefusal;
use howdah_http1::refusal::BadRequest;

use super::{CLIENT_TIMEOUT_MS, SwooleWorker};
use crate::run::connection::Phase;
use crate::run::counters::Counter;
use crate::run::log;

/// How long a refused client may take to close its side (ms).
const CLOSE_TIMEOUT_MS: u64 = 2_000;
/// How long a persistent connection may still send a request while the worker is leaving (ms).
const LAST_REQUEST_TIMEOUT_MS: u64 = 500;

impl SwooleWorker {
    /// Checks the time limits of every connection, and whether connections may be accepted again.
    pub(super) fn sweep(&mut self) {
        self.swept_at = self.now;
        if !self.listening && self.leaving_since.is_none() && self.accept_paused_until.is_none() {
            let total = self.counters.sum(Counter::Connections);
            if (total < self.config.max_connections || self.has_silent_connection())
                && let Err(e) = self.listen()
            {
                log::warn(&format!("CannotListen: {e}"));
            }
        }
        let (now, idle, leaving) = (self.now, self.config.idle, self.leaving_since.is_some());
        // A script that sets a short idle time means it for connections within a request, too.
        let timeout = CLIENT_TIMEOUT_MS.min(idle);
        for slot in 0..self.slots.len() {
            let Some(connection) = &self.slots[slot].connection else {
                continue;
            };
            let quiet = now.saturating_sub(connection.last_active);
            let id = self.connection_id(slot as u32);
            match connection.phase {
                Phase::Closing if quiet > CLOSE_TIMEOUT_MS && !connection.has_output() => {
                    self.close(id)
                }
                _ if connection.has_output() => {
                    if quiet > CLIENT_TIMEOUT_MS || connection.reads_too_slowly(now) {
                        self.close(id);
                    }
                }
                Phase::Receiving if connection.is_idle() => {
                    if quiet > idle || (leaving && quiet > LAST_REQUEST_TIMEOUT_MS) {
                        self.close(id);
                    }
                }
                Phase::Receiving => {
                    let late = if !connection.receiver.in_body() {
                        let late = now.saturating_sub(connection.request_began) > timeout;
                        late.then_some(ReceiveRefusal::Bad(BadRequest::HeaderTimeout))
                    } else if quiet > timeout {
                        Some(ReceiveRefusal::BodyTimeout)
                    } else {
                        let slow = connection.body_is_too_slow(now);
                        slow.then_some(ReceiveRefusal::BodyTooSlow)
                    };
                    if let Some(why) = late {
                        self.refuse(id, why);
                    }
                }
                Phase::Answering | Phase::Closing => {}
            }
        }
    }
}
