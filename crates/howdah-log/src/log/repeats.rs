//! Holds repeated messages back. The caller passes the time.
//!
//! The same message may appear [`MAX_REPEATS`] times within [`REPEAT_WINDOW`]. Further ones are counted, and the log
//! gets the count when the window has passed. Otherwise a page that causes a warning with each request could write more
//! bytes to the log than to its clients.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the same message may appear within a window.
pub const MAX_REPEATS: u32 = 5;
/// The time within which repeats of a message are counted.
pub const REPEAT_WINDOW: Duration = Duration::from_secs(10);
/// The maximum number of different messages that are counted separately. Beyond it all windows are closed early.
const MAX_WINDOWS: usize = 512;

/// Counters of recent messages.
#[derive(Debug, Default)]
pub struct RepeatFilter {
    windows: HashMap<u64, RepeatWindow>,
}

#[derive(Debug)]
struct RepeatWindow {
    since: Instant,
    seen: u32,
    first: String,
}

/// Repeats that were held back: their number, and the beginning of their message.
pub type HeldBack = (u32, String);

impl RepeatFilter {
    /// Returns whether a message with this key may be written now. `first` returns the text by which the message is
    /// reported later, and is called once for each window.
    pub fn admit(&mut self, key: u64, now: Instant, first: impl FnOnce() -> String) -> bool {
        if let Some(window) = self.windows.get_mut(&key)
            && now.saturating_duration_since(window.since) < REPEAT_WINDOW
        {
            window.seen = window.seen.saturating_add(1);
            return window.seen <= MAX_REPEATS;
        }
        self.windows.insert(
            key,
            RepeatWindow {
                since: now,
                seen: 1,
                first: first(),
            },
        );
        true
    }

    /// Closes the windows that have passed (all of them, if there are too many), and returns the messages that were
    /// held back in them. Call it before [`RepeatFilter::admit`].
    pub fn close_expired(&mut self, now: Instant) -> Vec<HeldBack> {
        let all = self.windows.len() >= MAX_WINDOWS;
        self.close(|w| all || now.saturating_duration_since(w.since) >= REPEAT_WINDOW)
    }

    /// Closes all windows, and returns the messages that were held back in them.
    pub fn drain(&mut self) -> Vec<HeldBack> {
        self.close(|_| true)
    }

    fn close(&mut self, which: impl Fn(&RepeatWindow) -> bool) -> Vec<HeldBack> {
        let mut told = Vec::new();
        self.windows.retain(|_, window| {
            if !which(window) {
                return true;
            }
            if window.seen > MAX_REPEATS {
                told.push((window.seen - MAX_REPEATS, std::mem::take(&mut window.first)));
            }
            false
        });
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_beyond_a_burst_are_counted_and_reported() {
        let (mut repeats, start) = (RepeatFilter::default(), Instant::now());
        let passed = (0..100)
            .filter(|_| repeats.admit(7, start, || "w".into()))
            .count();
        assert_eq!(passed, MAX_REPEATS as usize);
        assert!(
            repeats.admit(8, start, || "other".into()),
            "another message is not held back"
        );
        assert_eq!(repeats.close_expired(start + REPEAT_WINDOW / 2), []);
        assert_eq!(
            repeats.close_expired(start + REPEAT_WINDOW),
            [(95, "w".to_owned())]
        );
        assert!(repeats.admit(7, start + REPEAT_WINDOW, || "w".into()));
        assert_eq!(repeats.drain(), []);
    }

    #[test]
    fn repeat_windows_are_bounded() {
        let (mut repeats, start) = (RepeatFilter::default(), Instant::now());
        for key in 0..100_000 {
            repeats.close_expired(start);
            assert!(repeats.admit(key, start, String::new));
            assert!(repeats.windows.len() <= MAX_WINDOWS);
        }
    }
}
