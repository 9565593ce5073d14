//! A deadline that is mostly moved later. Moving it only stores a value; the runtime's timer is changed only when it
//! fires early or the deadline moves nearer. A request on a keep-alive connection therefore needs no timer operation.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    armed: Instant,
    due: Instant,
}

impl Deadline {
    pub(super) fn after(wait: Duration) -> Deadline {
        let due = Instant::now() + wait;
        Deadline {
            sleep: Box::pin(tokio::time::sleep_until(due)),
            armed: due,
            due,
        }
    }

    /// Sets the deadline to `wait` after `now`.
    pub(super) fn set(&mut self, now: Instant, wait: Duration) {
        self.due = now + wait;
    }

    /// Brings the deadline forward to `due` if it is later than that.
    pub(super) fn at_most(&mut self, due: Instant) {
        self.due = self.due.min(due);
    }

    /// Is ready when the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.due < self.armed {
                self.arm();
            }
            ready!(self.sleep.as_mut().poll(cx));
            if self.due <= self.armed {
                return Poll::Ready(());
            }
            self.arm();
        }
    }

    fn arm(&mut self) {
        self.armed = self.due;
        self.sleep.as_mut().reset(self.due);
    }
}
