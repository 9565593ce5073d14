//! Limits how long, and how slowly, a client may take a response or send a body: by a time without any progress, and by
//! the bytes per second over the time spent waiting for it. A byte now and then is progress, but not enough. This
//! module does not depend on sockets; a value is created when the server first waits for the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::memory::{self, MemoryPressure};

/// The rate is checked after this much time spent waiting for the client, because the kernel takes bytes in bursts of a
/// third of its send buffer.
const RATE_WINDOW: Duration = Duration::from_secs(10);

/// How often the memory pressure is checked.
const PRESSURE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The number of bytes that a client may hold when memory is full, after one second in which it has taken nothing; it
/// is halved after each further second.
const MAX_HELD_BYTES: usize = 1 << 20;

/// Why the server stops waiting for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GiveUpReason {
    /// The client has made no progress for the permitted time.
    TakesNothing,
    /// Memory is full, and much of it is held for this client.
    HoldsMemory,
}

fn holds_too_much(held: usize, waited: Duration) -> bool {
    let Some(halvings) = waited.as_secs().checked_sub(1) else {
        return false;
    };
    held >= (MAX_HELD_BYTES >> halvings.min(40)).max(1)
}

/// Measures how fast a client takes a response or sends a body.
pub(super) struct TransferPace {
    timer: Pin<Box<Sleep>>,
    since: Option<Instant>,
    /// The time waited and the bytes transferred in this window.
    waited: Duration,
    taken: u64,
}

impl TransferPace {
    pub(super) fn new() -> TransferPace {
        TransferPace {
            timer: Box::pin(tokio::time::sleep(RATE_WINDOW)),
            since: None,
            waited: Duration::ZERO,
            taken: 0,
        }
    }

    /// Waits for a client that makes no progress. Is ready when it has made none for `patience`.
    pub(super) fn poll_wait(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_wait_holding(0, patience, cx).map(|_| ())
    }

    /// Does the same as [`TransferPace::poll_wait`] while `held` bytes of memory are held for the client. When the
    /// front's memory is full, clients that hold the most get the least time, so no other client is refused for lack of
    /// memory.
    pub(super) fn poll_wait_holding(
        &mut self,
        held: usize,
        patience: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<GiveUpReason> {
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            self.timer
                .as_mut()
                .reset(now + patience.min(PRESSURE_CHECK_INTERVAL));
            now
        });
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let waited = since.elapsed();
            if waited >= patience {
                return Poll::Ready(GiveUpReason::TakesNothing);
            }
            if holds_too_much(held, waited) && memory::pressure() == MemoryPressure::Full {
                return Poll::Ready(GiveUpReason::HoldsMemory);
            }
            let next = Instant::now() + PRESSURE_CHECK_INTERVAL.min(patience - waited);
            self.timer.as_mut().reset(next);
        }
    }

    /// Records that the client has taken or sent `n` bytes. Returns whether that is too slow for `rate` bytes per
    /// second.
    pub(super) fn record_progress(&mut self, n: usize, rate: u32) -> bool {
        self.taken += n as u64;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        if self.waited < RATE_WINDOW {
            return false;
        }
        // Each window is measured separately: an earlier fast transfer gives no credit.
        let (waited, taken) = (self.waited, self.taken);
        (self.waited, self.taken) = (Duration::ZERO, 0);
        waited.as_secs_f64() * f64::from(rate) > taken as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn wait(pace: &mut TransferPace, seconds: u64) {
        let turn = |cx: &mut Context<'_>| pace.poll_wait(Duration::from_secs(60), cx);
        let waiting = std::future::poll_fn(turn);
        let late = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
        assert!(late.is_err(), "within its patience");
    }

    #[tokio::test(start_paused = true)]
    async fn pace_of_single_bytes_is_too_slow_despite_earlier_progress() {
        let mut pace = TransferPace::new();
        assert!(!pace.record_progress(1 << 30, 240), "nobody has waited");
        wait(&mut pace, 11).await;
        assert!(
            !pace.record_progress(1, 240),
            "the first window had a gigabyte"
        );
        wait(&mut pace, 9).await;
        assert!(!pace.record_progress(1, 240), "the window is not over");
        wait(&mut pace, 9).await;
        assert!(pace.record_progress(1, 240));
    }

    #[tokio::test(start_paused = true)]
    async fn pace_at_the_minimum_rate_is_accepted_and_zero_disables_it() {
        let (mut steady, mut none) = (TransferPace::new(), TransferPace::new());
        for _ in 0..100 {
            wait(&mut steady, 20).await;
            assert!(!steady.record_progress(20 * 250, 240));
            wait(&mut none, 20).await;
            assert!(!none.record_progress(1, 0));
        }
    }

    #[test]
    fn pace_gives_the_largest_holder_the_least_time() {
        let after = |held, seconds| holds_too_much(held, Duration::from_secs(seconds));
        assert!(!after(MAX_HELD_BYTES, 0) && after(MAX_HELD_BYTES, 1));
        assert!(!after(MAX_HELD_BYTES - 1, 1) && after(MAX_HELD_BYTES / 2, 2));
        assert!(
            !after(memory::PRESSURE_BUFFER_BYTES, 6) && after(memory::PRESSURE_BUFFER_BYTES, 7)
        );
        assert!(after(1, u64::MAX) && !after(0, u64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn pace_without_progress_times_out() {
        let mut pace = TransferPace::new();
        let begun = Instant::now();
        std::future::poll_fn(|cx| pace.poll_wait(Duration::from_secs(60), cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 60);
    }
}
