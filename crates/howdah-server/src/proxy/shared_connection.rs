//! An HTTP/2 connection to a server, and how many requests of its thread use it.

use std::sync::Arc;

use hyper::client::conn::http2::SendRequest;

use super::upload::Upload;

/// The maximum number of requests that share a connection. RFC 9113 §6.5.2 recommends that servers permit at least this
/// many. hyper does not report the limit of the server. Beyond that limit, requests would wait until others end, which
/// event streams do not.
pub(super) const MAX_SHARING_REQUESTS: usize = 100;

/// An HTTP/2 connection. The connection that a thread keeps and the copies that its requests hold count together.
#[derive(Clone)]
pub(super) struct SharedConnection {
    pub(super) sender: SendRequest<Upload>,
    copies: Arc<()>,
}

impl SharedConnection {
    pub(super) fn new(sender: SendRequest<Upload>) -> SharedConnection {
        SharedConnection {
            sender,
            copies: Arc::default(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Returns whether a request uses the connection. To be called on the copy that the thread keeps.
    pub(super) fn is_used(&self) -> bool {
        Arc::strong_count(&self.copies) > 1
    }

    /// Returns whether another request may use the connection. To be called on the copy that the thread keeps.
    pub(super) fn has_room(&self) -> bool {
        !self.is_closed() && Arc::strong_count(&self.copies) <= MAX_SHARING_REQUESTS
    }

    pub(super) fn is_same(&self, other: &SharedConnection) -> bool {
        Arc::ptr_eq(&self.copies, &other.copies)
    }
}
