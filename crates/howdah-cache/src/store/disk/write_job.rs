//! The tasks of the writer.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use super::directory::FileName;
use super::format::Owner;
use crate::object::Object;

/// A task for the writer's thread.
pub(super) enum WriteJob {
    /// Write a page; the keys begin with the site's number.
    Page {
        owner: Owner,
        key: Box<[u8]>,
        page: Arc<Object>,
    },
    /// Write the headers by which a URL's pages vary; the key is without the site's number.
    Varies {
        owner: Owner,
        key: Vec<u8>,
        names: Vec<Vec<u8>>,
    },
    /// Check this file: a reader found it damaged, or did not find it.
    Inspect(FileName),
    /// Keep at most this many bytes.
    Resize(u64),
    /// Scan the files that a former process has left.
    Scan,
    /// Flush everything, and send back whether that worked.
    Close(Sender<bool>),
    /// Wakes the writer so that it sees that `ended` is set.
    Stop,
}
