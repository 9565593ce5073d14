//! Limits how long, and how slowly, a client may take a response or send a body: by a time without any progress, and by
//! the bytes per second over the time spent waiting for it. A byte now and then is progress, but not enough. This
//! module does not depend on sockets; a value is created when the server first waits for the client.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::memory::{self, Pressure};

/// The rate is checked after this much time spent waiting for the client, because the kernel takes bytes in bursts of a
/// third of its send buffer.
const WINDOW: Duration = Duration::from_secs(10);

/// How often the memory pressure is checked.
const LOOK: Duration = Duration::from_secs(1);
/// The number of bytes that a client may hold when memory is full, after one second in which it has taken nothing; it
/// is halved after each further second.
const HELD: usize = 1 << 20;

/// Why the server stops waiting for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The client has made no progress for the permitted time.
    TakesNothing,
    /// Memory is full, and much of it is held for this client.
    HoldsMemory,
}

fn holds_too_much(held: usize, waited: Duration) -> bool {
    let Some(halvings) = waited.as_secs().checked_sub(1) else {
        return false;
    };
    held >= (HELD >> halvings.min(40)).max(1)
}

/// Measures how fast a client takes a response or sends a body.
pub(super) struct Pace {
    timer: Pin<Box<Sleep>>,
    since: Option<Instant>,
    /// The time waited and the bytes transferred in this window.
    waited: Duration,
    taken: u64,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace {
            timer: Box::pin(tokio::time::sleep(WINDOW)),
            since: None,
            waited: Duration::ZERO,
            taken: 0,
        }
    }

    /// Waits for a client that makes no progress. Is ready when it has made none for `patience`.
    pub(super) fn poll_wait(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_wait_holding(0, patience, cx).map(|_| ())
    }

    /// Does the same as [`Pace::poll_wait`] while `held` bytes of memory are held for the client. When the front's
    /// memory is full, clients that hold the most get the least time, so no other client is refused for lack of memory.
    pub(super) fn poll_wait_holding(
        &mut self,
        held: usize,
        patience: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Gone> {
        let now = Instant::now();
        let since = *self.since.get_or_insert_with(|| {
            self.timer.as_mut().reset(now + patience.min(LOOK));
            now
        });
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let waited = since.elapsed();
            if waited >= patience {
                return Poll::Ready(Gone::TakesNothing);
            }
            if holds_too_much(held, waited) && memory::pressure() == Pressure::Full {
                return Poll::Ready(Gone::HoldsMemory);
            }
            let next = Instant::now() + LOOK.min(patience - waited);
            self.timer.as_mut().reset(next);
        }
    }

    /// Records that the client has taken or sent `n` bytes. Returns whether that is too slow for `rate` bytes per
    /// second.
    pub(super) fn took(&mut self, n: usize, rate: u32) -> bool {
        self.taken += n as u64;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        if self.waited < WINDOW {
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

    async fn wait(pace: &mut Pace, seconds: u64) {
        let turn = |cx: &mut Context<'_>| pace.poll_wait(Duration::from_secs(60), cx);
        let waiting = std::future::poll_fn(turn);
        let late = tokio::time::timeout(Duration::from_secs(seconds), waiting).await;
        assert!(late.is_err(), "within its patience");
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_too_slow_however_much_was_taken_before() {
        let mut pace = Pace::new();
        assert!(!pace.took(1 << 30, 240), "nobody has waited");
        wait(&mut pace, 11).await;
        assert!(!pace.took(1, 240), "the first window had a gigabyte");
        wait(&mut pace, 9).await;
        assert!(!pace.took(1, 240), "the window is not over");
        wait(&mut pace, 9).await;
        assert!(pace.took(1, 240));
    }

    #[tokio::test(start_paused = true)]
    async fn who_keeps_to_the_rate_goes_on_and_zero_is_none() {
        let (mut steady, mut none) = (Pace::new(), Pace::new());
        for _ in 0..100 {
            wait(&mut steady, 20).await;
            assert!(!steady.took(20 * 250, 240));
            wait(&mut none, 20).await;
            assert!(!none.took(1, 0));
        }
    }

    #[test]
    fn who_holds_most_has_the_least_time() {
        let after = |held, seconds| holds_too_much(held, Duration::from_secs(seconds));
        assert!(!after(HELD, 0) && after(HELD, 1));
        assert!(!after(HELD - 1, 1) && after(HELD / 2, 2));
        assert!(!after(memory::SPARSE, 6) && after(memory::SPARSE, 7));
        assert!(after(1, u64::MAX) && !after(0, u64::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_at_all_is_waited_for_no_longer_than_allowed() {
        let mut pace = Pace::new();
        let begun = Instant::now();
        std::future::poll_fn(|cx| pace.poll_wait(Duration::from_secs(60), cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 60);
    }
}
