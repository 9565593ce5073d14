//! Limits the useless work that a client may cause: a maximum burst and a rate per second. This module depends neither
//! on sockets nor on a clock.

use std::time::Instant;

/// The streams that a client may reset: a browser that leaves a page resets all of its open streams.
pub(in crate::http) const RESETS: Allowance = Allowance {
    burst: 128,
    per_second: 10,
};
/// How many events of one kind a client may cause: in a burst, and per second.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Allowance {
    pub(in crate::http) burst: u32,
    pub(in crate::http) per_second: u32,
}

/// The rest of an allowance.
#[derive(Debug)]
pub(in crate::http) struct RemainingAllowance {
    of: Allowance,
    left: u32,
    since: Instant,
}

impl RemainingAllowance {
    pub(in crate::http) fn all(of: Allowance, now: Instant) -> RemainingAllowance {
        RemainingAllowance {
            of,
            left: of.burst,
            since: now,
        }
    }

    /// Takes one from the allowance. Returns false if it is used up.
    pub(in crate::http) fn take(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let millis = now.saturating_duration_since(self.since).as_millis();
            let grown = millis * u128::from(self.of.per_second) / 1000;
            self.left = grown.min(u128::from(self.of.burst)) as u32;
            if self.left == 0 {
                return false;
            }
            self.since = now;
        }
        self.left -= 1;
        true
    }

    pub(in crate::http) fn give(&mut self, n: u32) {
        self.left = self.left.saturating_add(n).min(self.of.burst);
    }

    #[cfg(test)]
    pub(in crate::http) fn left(&self) -> u32 {
        self.left
    }
}

/// The streams that a client may cancel, for HTTP/3, whose library does not count them.
#[derive(Debug)]
pub(in crate::http) struct RemainingResets(RemainingAllowance);

impl RemainingResets {
    pub(in crate::http) fn new(now: Instant) -> RemainingResets {
        RemainingResets(RemainingAllowance::all(RESETS, now))
    }

    /// Takes one from the allowance. Returns false if it is used up.
    pub(in crate::http) fn take(&mut self, now: Instant) -> bool {
        self.0.take(now)
    }
}
