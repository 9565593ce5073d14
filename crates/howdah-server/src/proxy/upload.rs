//! A request's body on its way to a server: hyper asks for it when the connection takes it, and the
//! front hands it on as it arrives (`script::body::hand_on`). That it ended is told apart from
//! that nobody hands on any more: a body cut off must not look complete.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use howdah_executor::BodyCutOff;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;

use howdah_http::BodyKind;

/// A piece of the body, or the news that no more will come.
type Arrived = Result<Bytes, BodyCutOff>;

/// What both ends of a body know of it.
#[derive(Debug, Default)]
pub struct Progress {
    /// All of it has been handed on.
    complete: AtomicBool,
    /// The server's side waits for the client.
    waits_for_client: AtomicBool,
    /// Bytes that hyper has taken.
    taken: AtomicU64,
}

impl Progress {
    /// All of the body has been handed on.
    pub fn complete(&self) {
        self.complete.store(true, Ordering::Relaxed);
    }

    /// The server waits for the client, which has a time-out of its own.
    pub(super) fn waits_for_client(&self) -> bool {
        self.waits_for_client.load(Ordering::Relaxed)
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

/// The server's end of a body.
#[derive(Debug)]
pub struct Upload {
    from: Option<mpsc::Receiver<Arrived>>,
    /// Bytes still to come, if the client has said how many.
    left: Option<u64>,
    progress: Arc<Progress>,
}

impl Upload {
    /// A request without a body.
    pub fn none() -> Upload {
        Upload {
            from: None,
            left: Some(0),
            progress: Arc::default(),
        }
    }

    /// A body of this kind that comes by `from`.
    pub fn new(from: mpsc::Receiver<Arrived>, kind: BodyKind) -> Upload {
        Upload {
            from: Some(from),
            left: match kind {
                BodyKind::None => Some(0),
                BodyKind::Length(length) => Some(length),
                BodyKind::Chunked => None,
            },
            progress: Arc::default(),
        }
    }

    /// What is known of it while it is sent.
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// The request can be sent twice.
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
                "the client's body was cut off",
            )
        };
        Poll::Ready(match arrived {
            Some(Ok(piece)) => {
                this.progress
                    .taken
                    .fetch_add(piece.len() as u64, Ordering::Relaxed);
                this.left = this
                    .left
                    .map(|left| left.saturating_sub(piece.len() as u64));
                Some(Ok(Frame::data(piece)))
            }
            None if this.progress.complete.load(Ordering::Relaxed) => None,
            Some(Err(_)) | None => Some(Err(cut_off())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.from.is_none() || self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
