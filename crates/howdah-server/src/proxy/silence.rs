//! The timeout for a silent server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::upload::UploadProgress;

/// Measures how long a server is silent. The time counts only while the front waits for the server: not while the
/// client has to read what is queued, and not while the server waits for the client's body.
pub(super) struct SilenceTimeout {
    pub(super) limit: Duration,
    progress: Arc<UploadProgress>,
    taken: u64,
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl SilenceTimeout {
    pub(super) fn new(patience: Duration, progress: Arc<UploadProgress>) -> SilenceTimeout {
        SilenceTimeout {
            limit: patience,
            progress,
            taken: 0,
            timer: None,
            waiting: false,
        }
    }

    /// Ends the wait, because the server has sent something.
    pub(super) fn end_wait(&mut self) {
        self.waiting = false;
    }

    /// Resolves when the silence has lasted too long. To be polled while the front waits for the server.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let patience = self.limit;
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
