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
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl SilenceTimeout {
    pub(super) fn new(patience: Duration, progress: Arc<UploadProgress>) -> SilenceTimeout {
        SilenceTimeout {
            limit: patience,
            progress,
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
            let now = Instant::now();
            let since = match self.progress.waits_for_client() {
                true => Some(now),
                false => self.progress.taken_at(),
            };
            match since.map(|since| since + patience).filter(|due| *due > now) {
                Some(due) => timer.as_mut().reset(due),
                None => return Poll::Ready(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::future::poll_fn;

    use bytes::Bytes;
    use howdah_http::BodyKind;
    use hyper::body::Body;

    use super::super::upload::Upload;
    use crate::script::body;

    #[tokio::test(start_paused = true)]
    async fn silence_is_measured_from_the_last_bytes_that_the_server_has_taken() {
        let patience = Duration::from_secs(60);
        let (to, from) = body::channel();
        let mut upload = Upload::new(from, BodyKind::Length(2));
        let mut silence = SilenceTimeout::new(patience, upload.progress());
        let begun = Instant::now();
        let mut wait = Box::pin(poll_fn(|cx| silence.poll(cx)));
        for pause in [0, 50] {
            let elapsed = tokio::time::timeout(Duration::from_secs(pause), &mut wait).await;
            assert!(
                elapsed.is_err(),
                "the server has not been silent for a minute"
            );
            to.send(Ok(Bytes::from_static(b"x"))).await.unwrap();
            let taken = poll_fn(|cx| Pin::new(&mut upload).poll_frame(cx)).await;
            assert!(taken.is_some_and(|frame| frame.is_ok()));
        }
        wait.await;
        assert_eq!((Instant::now() - begun).as_secs(), 50 + 60);
    }
}
