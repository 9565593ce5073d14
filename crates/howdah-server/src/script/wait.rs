//! A script that waits for its client because memory and file for its response are full, while its PHP process cannot
//! serve other requests. This module decides when the client is too slow for that. Only the time during which the
//! script waits counts; the bytes that the client reads always count, because the kernel accepts some for it whenever
//! there are more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How many bytes a second a client must read while a script waits for it: 2 Mbit/s. A faster client gets what a script
/// writes beyond a full file within its `request_terminate_timeout`. A slower one would not, and would occupy the PHP
/// process until then.
pub const MIN_BYTES_PER_SECOND: u64 = 256 << 10;
/// The time over which that rate is measured.
pub const RATE_WINDOW: Duration = Duration::from_secs(10);

/// Measures how fast a client reads a response while its script waits.
#[derive(Debug, Default)]
pub struct ScriptWait {
    /// Fires at the end of the window. It is set only while the script waits.
    timer: Option<Pin<Box<Sleep>>>,
    /// When the current wait began; `None` while the script does not wait.
    since: Option<Instant>,
    /// How long the script has waited before in this window.
    waited: Duration,
    /// How much the client had read when the window began; `None` before the first window, which begins when the script
    /// first waits.
    taken_before: Option<u64>,
}

impl ScriptWait {
    /// Resolves when the client reads too little. `taken` is how much of the response it has read so far. Poll this
    /// while the script waits.
    pub fn poll(&mut self, taken: u64, cx: &mut Context<'_>) -> Poll<()> {
        let before = self.taken_before.get_or_insert(taken);
        self.since.get_or_insert_with(Instant::now);
        let left = RATE_WINDOW.saturating_sub(self.waited);
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(left)));
        loop {
            ready!(timer.as_mut().poll(cx));
            if taken - *before < MIN_BYTES_PER_SECOND * RATE_WINDOW.as_secs() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            *before = taken;
            (self.waited, self.since) = (Duration::ZERO, Some(now));
            timer.as_mut().reset(now + RATE_WINDOW);
        }
    }

    /// Ends the wait, because the script continues.
    pub fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
            // The next wait sets the timer for the rest of the window.
            self.timer = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENOUGH: u64 = MIN_BYTES_PER_SECOND * 10;

    async fn too_slow_within(wait: &mut ScriptWait, taken: u64, seconds: u64) -> bool {
        let waiting = std::future::poll_fn(|cx| wait.poll(taken, cx));
        let limit = Duration::from_secs(seconds);
        tokio::time::timeout(limit, waiting).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn script_wait_ends_after_a_window_without_progress() {
        let mut wait = ScriptWait::default();
        let begun = Instant::now();
        assert!(too_slow_within(&mut wait, 5, 60).await);
        assert_eq!(begun.elapsed(), RATE_WINDOW);
    }

    #[tokio::test(start_paused = true)]
    async fn script_wait_continues_with_enough_progress() {
        let mut wait = ScriptWait::default();
        for window in 0..20 {
            assert!(!too_slow_within(&mut wait, window * ENOUGH, 9).await);
        }
        assert!(too_slow_within(&mut wait, 20 * ENOUGH, 60).await);
    }

    #[tokio::test(start_paused = true)]
    async fn script_wait_window_survives_a_moment_of_room() {
        let mut wait = ScriptWait::default();
        assert!(!too_slow_within(&mut wait, 0, 6).await);
        wait.end();
        assert!(too_slow_within(&mut wait, 1000, 5).await);
    }

    #[tokio::test(start_paused = true)]
    async fn script_wait_counts_only_waiting_time() {
        let mut wait = ScriptWait::default();
        for _ in 0..3 {
            assert!(!too_slow_within(&mut wait, 0, 3).await);
            wait.end();
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        assert!(too_slow_within(&mut wait, 0, 2).await, "3 * 3 s are over");
    }
}
