//! Time-outs: periodically checks every connection, and closes or refuses those that take too long.

use howdah_http1::receiver::Refused;
use howdah_http1::refusal::BadRequest;

use super::{SwooleWorker, TIMEOUT};
use crate::run::connection::Phase;
use crate::run::counters::Counter;
use crate::run::log;

/// How long a refused client may take to close its side (ms).
const HANG_UP_LIMIT: u64 = 2_000;
/// How long a persistent connection may still send a request while the worker is leaving (ms).
const LAST_REQUEST: u64 = 500;

impl SwooleWorker {
    /// Checks the time limits of every connection, and whether connections may be accepted again.
    pub(super) fn sweep(&mut self) {
        self.swept = self.now;
        if !self.listening && self.leaving.is_none() && self.accept_paused_until.is_none() {
            let total = self.counters.sum(Counter::Connections);
            if (total < self.config.max_connections || self.has_a_silent_one())
                && let Err(e) = self.listen()
            {
                log::warn(&format!("CannotListen: {e}"));
            }
        }
        let (now, idle, leaving) = (self.now, self.config.idle, self.leaving.is_some());
        // A script that sets a short idle time means it for connections within a request, too.
        let timeout = TIMEOUT.min(idle);
        for slot in 0..self.slots.len() {
            let Some(connection) = &self.slots[slot].connection else {
                continue;
            };
            let quiet = now.saturating_sub(connection.active);
            let id = self.id(slot as u32);
            match connection.phase {
                Phase::Closing if quiet > HANG_UP_LIMIT && !connection.has_output() => {
                    self.close(id)
                }
                _ if connection.has_output() => {
                    if quiet > TIMEOUT || connection.reads_too_slowly(now) {
                        self.close(id);
                    }
                }
                Phase::Receiving if connection.is_idle() => {
                    if quiet > idle || (leaving && quiet > LAST_REQUEST) {
                        self.close(id);
                    }
                }
                Phase::Receiving => {
                    let late = if !connection.receiver.in_body() {
                        let late = now.saturating_sub(connection.began) > timeout;
                        late.then_some(Refused::Bad(BadRequest::HeaderTimeout))
                    } else if quiet > timeout {
                        Some(Refused::BodyTimeout)
                    } else {
                        let slow = connection.body_is_too_slow(now);
                        slow.then_some(Refused::BodyTooSlow)
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
