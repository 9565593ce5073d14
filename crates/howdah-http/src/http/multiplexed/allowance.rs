//! What a client may cause the server to do for nothing, so many at once and so many a second. Knows no
//! socket and no clock.

use std::time::Instant;

/// Streams that a client resets: a browser that leaves a page resets all it has open.
pub(in crate::http) const RESETS: Allowance = Allowance {
    most: 128,
    a_second: 10,
};
/// How many of something a client may cause: at once, and a second.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Allowance {
    pub(in crate::http) most: u32,
    pub(in crate::http) a_second: u32,
}

/// What is left of an allowance.
#[derive(Debug)]
pub(in crate::http) struct Left {
    of: Allowance,
    left: u32,
    since: Instant,
}

impl Left {
    pub(in crate::http) fn all(of: Allowance, now: Instant) -> Left {
        Left {
            of,
            left: of.most,
            since: now,
        }
    }

    /// Takes one; whether there was one.
    pub(in crate::http) fn take(&mut self, now: Instant) -> bool {
        if self.left == 0 {
            let millis = now.saturating_duration_since(self.since).as_millis();
            let grown = millis * u128::from(self.of.a_second) / 1000;
            self.left = grown.min(u128::from(self.of.most)) as u32;
            if self.left == 0 {
                return false;
            }
            self.since = now;
        }
        self.left -= 1;
        true
    }

    pub(in crate::http) fn give(&mut self, n: u32) {
        self.left = self.left.saturating_add(n).min(self.of.most);
    }

    #[cfg(test)]
    pub(in crate::http) fn left(&self) -> u32 {
        self.left
    }
}

/// Streams that a client may cancel, where the protocol's library counts none: HTTP/3.
#[derive(Debug)]
pub(in crate::http) struct Resets(Left);

impl Resets {
    pub(in crate::http) fn new(now: Instant) -> Resets {
        Resets(Left::all(RESETS, now))
    }

    /// Takes one; whether there was one.
    pub(in crate::http) fn take(&mut self, now: Instant) -> bool {
        self.0.take(now)
    }
}
