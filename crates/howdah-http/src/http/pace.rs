//! How long, and how slowly, a client may take an answer or send a body: a time without any progress,
//! and bytes a second over the time that was waited for it. One byte now and then is progress, but
//! not enough of it. Knows no socket; made when the client is waited for the first time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::memory::{self, Pressure};

/// The rate is looked at when the client has been waited for this long: the kernel takes bytes in
/// bursts, of a third of its send buffer.
const WINDOW: Duration = Duration::from_secs(10);

/// How often it is looked whether memory is full.
const LOOK: Duration = Duration::from_secs(1);
/// What a client may hold after a second in which it has taken nothing, when memory is full; after each further
/// second half of that.
const HELD: usize = 1 << 20;

/// Why a client is waited for no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// It has made no progress for as long as it may.
    TakesNothing,
    /// Memory is full, and much of it is kept for this client.
    HoldsMemory,
}

fn holds_too_much(held: usize, waited: Duration) -> bool {
    let Some(halvings) = waited.as_secs().checked_sub(1) else {
        return false;
    };
    held >= (HELD >> halvings.min(40)).max(1)
}

/// Watches how fast a client takes an answer or sends a body.
pub(super) struct Pace {
    timer: Pin<Box<Sleep>>,
    since: Option<Instant>,
    /// In this window: the time waited, and the progress.
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

    /// The client makes no progress now; ready when it has made none for `patience`.
    pub(super) fn poll_wait(&mut self, patience: Duration, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_wait_holding(0, patience, cx).map(|_| ())
    }

    /// As [`Pace::poll_wait`], while `held` bytes of memory are kept for the client. When the front's memory
    /// is full, those who hold most have the least time, so that nobody else is refused for want of it.
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

    /// The client has taken, or sent, `n` bytes; whether that is too slow for `rate` bytes a second.
    pub(super) fn took(&mut self, n: usize, rate: u32) -> bool {
        self.taken += n as u64;
        if let Some(since) = self.since.take() {
            self.waited += since.elapsed();
        }
        if self.waited < WINDOW {
            return false;
        }
        // A window of its own each time: what was fast once is no credit.
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
