//! How long, and how slowly, a client may take an answer or send a body: a time without any progress,
//! and bytes a second over the time that was waited for it. One byte now and then is progress, but
//! not enough of it. Knows no socket; made when the client is waited for the first time.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// The rate is looked at when the client has been waited for this long: the kernel takes bytes in
/// bursts, of a third of its send buffer.
const WINDOW: Duration = Duration::from_secs(10);

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
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            self.timer.as_mut().reset(now + patience);
        }
        self.timer.as_mut().poll(cx)
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

    #[tokio::test(start_paused = true)]
    async fn nothing_at_all_is_waited_for_no_longer_than_allowed() {
        let mut pace = Pace::new();
        let begun = Instant::now();
        std::future::poll_fn(|cx| pace.poll_wait(Duration::from_secs(60), cx)).await;
        assert_eq!(begun.elapsed().as_secs(), 60);
    }
}
