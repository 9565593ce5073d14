//! How long a server may be silent.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::upload::Progress;

/// How long a server may be silent. The time counts only while it is waited for: not while the client
/// is to take what there is, and not while the server waits for the client's body.
pub(super) struct Silence {
    pub(super) patience: Duration,
    progress: Arc<Progress>,
    taken: u64,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Silence {
    pub(super) fn new(patience: Duration, progress: Arc<Progress>) -> Silence {
        Silence {
            patience,
            progress,
            taken: 0,
            timer: None,
            waiting: false,
        }
    }

    /// The server has sent something.
    pub(super) fn is_over(&mut self) {
        self.waiting = false;
    }

    /// Ready when it has lasted for too long. Call it while the server is waited for.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.patience;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        if !std::mem::replace(&mut self.waiting, true) {
            timer.as_mut().reset(Instant::now() + patience);
        }
        loop {
            std::task::ready!(timer.as_mut().poll(cx));
            let taken = std::mem::replace(&mut self.taken, self.progress.taken());
            if taken == self.taken && !self.progress.waits_for_client() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + patience);
        }
    }
}
