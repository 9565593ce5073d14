//! Static files of a Swoole server (`document_root` with `enable_static_handler`): maps a request to a file below the
//! root, or leaves the request to the script. This is stricter than Swoole: the files that the front never sends
//! (`howdah_http1::hidden`: source, dotfiles, backups, databases) and files to which a symbolic link leads out of the
//! root are not sent here either, and no directory is ever listed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_http1::date::imf_fixdate;
use howdah_http1::hidden;
use howdah_http1::message::RequestHead;
use howdah_http1::percent;

use super::mime;

/// The directory from which static files are sent.
#[derive(Clone, Debug)]
pub struct StaticRoot {
    path: PathBuf,
    /// Path prefixes below which files are served; empty for all paths.
    locations: Vec<Vec<u8>>,
}

/// A static file that answers a request.
#[derive(Debug)]
pub struct StaticFile {
    /// The file, opened for reading.
    pub file: File,
    /// The file's size in bytes.
    pub size: u64,
    /// When the file was last modified, in the format of `Last-Modified`.
    pub modified: [u8; 29],
    /// The media type, chosen by the file's extension.
    pub content_type: &'static str,
    /// Whether the client has this version already (`If-Modified-Since`).
    pub not_modified: bool,
}

/// What answers a request: a file, a 404 or the script.
#[derive(Debug)]
pub enum StaticOutcome {
    /// This file is sent.
    File(StaticFile),
    /// A 404, as in Swoole: the path is below one of the `locations` but names no file.
    NotFound,
    /// The script answers the request.
    Script,
}

impl StaticRoot {
    /// Resolves the directory once, when the server starts.
    pub fn new(directory: &Path, locations: Vec<Vec<u8>>) -> std::io::Result<StaticRoot> {
        let path = std::fs::canonicalize(directory)?;
        if !path.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotADirectory));
        }
        Ok(StaticRoot { path, locations })
    }

    /// Decides whether a file of this root, a 404 or the script answers the request.
    pub fn resolve(&self, head: &RequestHead) -> StaticOutcome {
        let Some(path) = self.requested_path(head) else {
            return StaticOutcome::Script;
        };
        match self.open(&path, head) {
            Ok(Some(found)) => StaticOutcome::File(found),
            Ok(None) => StaticOutcome::Script,
            Err(_) if self.locations.is_empty() => StaticOutcome::Script,
            Err(_) => StaticOutcome::NotFound,
        }
    }

    /// Returns the decoded path of a request for a file, or `None` if the request is not one or files of this name are
    /// never sent.
    fn requested_path(&self, head: &RequestHead) -> Option<Vec<u8>> {
        if !matches!(head.method(), b"GET" | b"HEAD") {
            return None;
        }
        let path = percent::decode(head.path()).ok()?;
        if !self.locations.is_empty() && !self.locations.iter().any(|l| path.starts_with(l)) {
            return None;
        }
        (path.starts_with(b"/") && !is_hidden(&path)).then_some(path)
    }

    /// Opens the file at a path. Returns `None` for a directory, and where a link leads to a file that is never sent.
    /// Fails with `NotFound` for a path outside of the root.
    fn open(&self, path: &[u8], head: &RequestHead) -> std::io::Result<Option<StaticFile>> {
        // join() would treat an absolute path as the whole result.
        let slashes = path.iter().take_while(|b| **b == b'/').count();
        let wanted = self
            .path
            .join(std::ffi::OsStr::from_bytes(&path[slashes..]));
        let real = std::fs::canonicalize(wanted)?;
        let Ok(below) = real.strip_prefix(&self.path) else {
            return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        };
        // The name of a link does not reveal the name of its target, so the target is checked too.
        if !std::fs::metadata(&real)?.is_file()
            || is_hidden(&[b"/", below.as_os_str().as_bytes()].concat())
        {
            return Ok(None);
        }
        let extension = real.extension().unwrap_or_default().as_bytes();
        let file = File::open(&real)?;
        let meta = file.metadata()?;
        let modified = imf_fixdate(meta.mtime());
        Ok(Some(StaticFile {
            size: meta.len(),
            not_modified: head.header(b"if-modified-since") == Some(&modified[..]),
            modified,
            content_type: mime::content_type(extension),
            file,
        }))
    }
}

fn is_hidden(path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    hidden::hidden_segment(path)
        .or_else(|| hidden::hidden_file_name(name))
        .is_some()
}
