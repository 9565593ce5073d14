//! The state that the two halves of a request share: the channel to the client, the queue of bytes to send, and a few
//! facts about the request in progress. Only the task that owns the connection uses it, so the lock is never contended;
//! it exists because handlers' futures are `Send`.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use super::channel::Channel;
use super::config::HttpConfig;
use super::lifecycle::FrontThreadConnections;
use super::outbox::SendQueue;

/// The unread part of the current request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyLeft {
    /// This many bytes of a body with `Content-Length`.
    Bytes(u64),
    /// A chunked body that has not ended.
    Unknown,
    /// The rest may never arrive: the body is broken, or the client waits for `100 Continue`.
    NeverComes,
}

const UNKNOWN: u64 = u64::MAX;
const NEVER_COMES: u64 = u64::MAX - 1;

/// The state that a request body, its responder and, for HTTP/1.1, their connection share.
pub(super) struct RequestIo {
    pub(super) channel: Channel,
    pub(super) config: Arc<HttpConfig>,
    pub(super) life: Arc<FrontThreadConnections>,
    /// The value of `Alt-Svc`.
    pub(super) alternative: Option<Arc<str>>,
    outbox: Mutex<SendQueue>,
    body_left: AtomicU64,
}

impl RequestIo {
    pub(super) fn new(
        channel: Channel,
        config: Arc<HttpConfig>,
        life: Arc<FrontThreadConnections>,
        alternative: Option<Arc<str>>,
    ) -> RequestIo {
        RequestIo {
            alternative,
            channel,
            config,
            life,
            outbox: Mutex::default(),
            body_left: AtomicU64::new(0),
        }
    }

    /// Locks the queue. After a panic of a handler it is still usable, because each change is complete in itself.
    pub(super) fn outbox(&self) -> MutexGuard<'_, SendQueue> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the `Alt-Svc` header, which announces HTTP/3.
    pub(super) fn write_alternative(&self, lines: &mut Vec<u8>) {
        if let Some(value) = &self.alternative {
            for part in ["Alt-Svc: ", value, "\r\n"] {
                lines.extend_from_slice(part.as_bytes());
            }
        }
    }

    pub(super) fn poll_flush(&self, cx: &mut Context<'_>, more: bool) -> Poll<io::Result<()>> {
        self.outbox()
            .poll_flush(&self.channel, &self.config, more, cx)
    }

    pub(super) fn body_left(&self) -> BodyLeft {
        match self.body_left.load(Ordering::Relaxed) {
            UNKNOWN => BodyLeft::Unknown,
            NEVER_COMES => BodyLeft::NeverComes,
            n => BodyLeft::Bytes(n),
        }
    }

    pub(super) fn set_body_left(&self, left: BodyLeft) {
        let left = match left {
            // Lengths are below 2^63.
            BodyLeft::Bytes(n) => n,
            BodyLeft::Unknown => UNKNOWN,
            BodyLeft::NeverComes => NEVER_COMES,
        };
        self.body_left.store(left, Ordering::Relaxed);
    }
}
