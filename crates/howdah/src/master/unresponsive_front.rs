//! How the master handles a front that hangs, does not begin to serve, or does not respond: it logs the problem and
//! kills a front that hangs. [`watchdog`] decides whether a front hangs.

use std::time::{Duration, Instant};

use super::control::ControlClient;
use super::watchdog::{self, FrontWatch, TickAction};
use super::{Master, print_message};
use crate::process_channel::ToFront;

/// How long the front may take to respond to a request. After that the master responds in its place.
pub(super) const FRONT_RESPONSE_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a front may take to begin to serve, in addition to the time that PHP has for its start.
const FRONT_START_TIMEOUT: Duration = Duration::from_secs(60);

impl Master {
    /// Returns the deadline by which a front that does not serve yet must do so.
    pub(super) fn front_deadline(&self) -> Option<Instant> {
        let front = self.front.as_ref()?;
        let begins = front.watch.is_none() && !front.killed && !self.is_stopping();
        begins.then(|| front.since + self.settings.server.timeouts.start + FRONT_START_TIMEOUT)
    }

    /// Returns the watch over the front, if the front serves and has not been killed.
    pub(super) fn watch(&self) -> Option<&FrontWatch> {
        let front = self.front.as_ref()?;
        let watched = !front.killed && !self.is_stopping();
        front.watch.as_ref().filter(|_| watched)
    }

    /// Pings the front's threads when a ping is due, and kills a front that hangs.
    pub(super) fn watch_front(&mut self, now: Instant) {
        if self
            .front_deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            let allowed = self.settings.server.timeouts.start + FRONT_START_TIMEOUT;
            print_message(format!(
                "FrontHung: the front has not started to serve within {} s, so Howdah kills it",
                allowed.as_secs()
            ));
            if let Some(front) = &mut self.front {
                front.kill();
            }
        }
        if self.watch().is_none() {
            return;
        }
        let Some(front) = &mut self.front else { return };
        let pid = front.pid;
        let Some(watch) = &mut front.watch else {
            return;
        };
        let list = |threads: Vec<i32>| -> String {
            let each = threads.iter().map(|id| watchdog::describe(pid, *id));
            each.collect::<Vec<_>>().join(", ")
        };
        let limit = self.settings.server.timeouts.hang.as_secs_f64();
        match watch.tick(now, |thread| watchdog::waits_for_disk(pid, thread)) {
            TickAction::Wait => {}
            TickAction::Ping(number) => {
                let sent = front.link.send_now(&ToFront::Ping { number }, &[]);
                self.kill_front_if_unsent(sent);
            }
            TickAction::Blocked(threads) => print_message(format!(
                "FrontBlocked: the front (process {pid}) has made no progress for {limit} s: {}; it is not killed, because a new front would wait for the same disk",
                list(threads)
            )),
            TickAction::Hung(threads) => {
                print_message(format!(
                    "FrontHung: the front (process {pid}) has made no progress for {limit} s (timeouts.hang), so Howdah kills it: {}",
                    list(threads)
                ));
                front.kill();
            }
        }
    }

    /// Responds to clients whose request the front has not handled in time.
    pub(super) fn respond_for_front(&mut self, now: Instant) {
        let late = self
            .front_requests
            .extract_if(.., |_, (_, until)| now >= *until);
        let late: Vec<ControlClient> = late.map(|(_, (asker, _))| asker).collect();
        if late.is_empty() {
            return;
        }
        let why = self.silence_message();
        for asker in late {
            asker.refuse(&why);
        }
    }

    fn silence_message(&self) -> String {
        let pid = self.front.as_ref().map_or(0, |front| front.pid);
        format!(
            "FrontSilent: the front (process {pid}) has not responded within {} s: {}. It is killed and restarted if it makes no progress for {} s (timeouts.hang)",
            FRONT_RESPONSE_TIMEOUT.as_secs(),
            watchdog::describe(pid, pid),
            self.settings.server.timeouts.hang.as_secs_f64()
        )
    }
}
