//! A request's body on its way to a server: hyper polls it when the connection can take more, and the front forwards it
//! as it arrives (`script::body::forward`). The end of the body is distinguished from the end of the channel: a
//! truncated body must not look complete.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use howdah_executor::BodyCutOff;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::Instant;

use howdah_http::BodyKind;

/// A piece of the body, or the notice that no more will come.
type UploadChunk = Result<Bytes, BodyCutOff>;

/// The state that both ends of a body share.
#[derive(Debug, Default)]
pub struct UploadProgress {
    /// Whether the whole body has been forwarded.
    complete: AtomicBool,
    /// Whether the connection to the server waits for the client.
    waits_for_client: AtomicBool,
    /// When hyper last took a piece, or the end.
    taken_at: Mutex<Option<Instant>>,
    /// Whether hyper has taken the whole body.
    is_taken: AtomicBool,
    /// Whether a connection has taken the request's head.
    head_taken: AtomicBool,
}

impl UploadProgress {
    /// Marks the whole body as forwarded.
    pub fn mark_complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server waits for the client, which has a timeout of its own.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Ordering::Relaxed)
    }

    /// Records whether a connection has taken the request's head.
    pub(super) fn set_head_taken(&self, taken: bool) {
        self.head_taken.store(taken, Ordering::Relaxed);
    }

    /// Returns whether a connection has taken the whole request.
    pub(super) fn is_request_taken(&self) -> bool {
        self.head_taken.load(Ordering::Relaxed) && self.is_taken.load(Ordering::Relaxed)
    }

    /// Returns when the connection last took a part of the body.
    pub(super) fn taken_at(&self) -> Option<Instant> {
        *self.taken_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_taken(&self, is_last: bool) {
        self.is_taken.store(is_last, Ordering::Relaxed);
        let mut taken_at = self.taken_at.lock().unwrap_or_else(PoisonError::into_inner);
        *taken_at = Some(Instant::now());
    }
}

/// The receiving end of a body, which hyper reads.
#[derive(Debug)]
pub struct Upload {
    from: Option<mpsc::Receiver<UploadChunk>>,
    /// The number of bytes still to come, if the client has announced a length.
    remaining: Option<u64>,
    progress: Arc<UploadProgress>,
}

impl Upload {
    /// Returns the upload of a request without a body.
    pub fn none() -> Upload {
        Upload {
            from: None,
            remaining: Some(0),
            progress: Arc::new(UploadProgress {
                is_taken: true.into(),
                ..UploadProgress::default()
            }),
        }
    }

    /// Creates an upload for a body of this kind, whose pieces arrive through `from`.
    pub fn new(from: mpsc::Receiver<UploadChunk>, kind: BodyKind) -> Upload {
        Upload {
            from: Some(from),
            remaining: match kind {
                BodyKind::None => Some(0),
                BodyKind::Length(length) => Some(length),
                BodyKind::Chunked => None,
            },
            progress: Arc::default(),
        }
    }

    /// Returns the shared state of the body.
    pub fn progress(&self) -> Arc<UploadProgress> {
        self.progress.clone()
    }

    /// Returns whether there is no body, so the request can be sent again.
    pub(super) fn is_none(&self) -> bool {
        self.from.is_none()
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        let Some(from) = &mut this.from else {
            return Poll::Ready(None);
        };
        this.progress
            .waits_for_client
            .store(true, Ordering::Relaxed);
        let arrived = ready!(from.poll_recv(cx));
        this.progress
            .waits_for_client
            .store(false, Ordering::Relaxed);
        let cut_off = || {
            io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the client's request body was cut off",
            )
        };
        Poll::Ready(match arrived {
            Some(Ok(piece)) => {
                this.remaining = this
                    .remaining
                    .map(|left| left.saturating_sub(piece.len() as u64));
                this.progress.record_taken(this.remaining == Some(0));
                Some(Ok(Frame::data(piece)))
            }
            None if this.progress.complete.load(Ordering::Relaxed) => {
                this.progress.record_taken(true);
                None
            }
            Some(Err(_)) | None => Some(Err(cut_off())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.from.is_none() || self.remaining == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.remaining {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
