//! Static files of a Swoole server (`document_root` with `enable_static_handler`): from a request
//! to a file below the root, or none, which then is the script's request. Stricter than Swoole:
//! what the front never sends (`howdah_http1::hidden`: source, dotfiles, backups, databases) and what a
//! symbolic link leads out of the root is not sent here either; no directory is ever listed.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use howdah_http1::date::imf_fixdate;
use howdah_http1::hidden;
use howdah_http1::message::RequestHead;

use super::mime;

/// The directory that static files are sent from.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
    /// Path prefixes it answers; none: all.
    locations: Vec<Vec<u8>>,
}

/// A static file that answers a request.
#[derive(Debug)]
pub struct Found {
    /// The file, opened for reading.
    pub file: File,
    /// The file's size in bytes.
    pub size: u64,
    /// When it was changed, as `Last-Modified` has it.
    pub modified: [u8; 29],
    /// The media type, chosen by the file's extension.
    pub content_type: &'static str,
    /// The client has it already (`If-Modified-Since`).
    pub not_modified: bool,
}

/// What answers a request: a file, 404 or the script.
#[derive(Debug)]
pub enum Answer {
    /// This file is sent.
    File(Found),
    /// Nobody: it names nothing below one of the `locations`. 404, as in Swoole.
    Missing,
    /// The script answers the request.
    Script,
}

impl Root {
    /// Resolves the directory once.
    pub fn new(directory: &Path, locations: Vec<Vec<u8>>) -> std::io::Result<Root> {
        let path = std::fs::canonicalize(directory)?;
        if !path.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::NotADirectory));
        }
        Ok(Root { path, locations })
    }

    /// Decides whether a file of this root, 404 or the script answers the request.
    pub fn find(&self, head: &RequestHead) -> Answer {
        let Some(path) = self.wanted(head) else {
            return Answer::Script;
        };
        match self.open(&path, head) {
            Ok(Some(found)) => Answer::File(found),
            Ok(None) => Answer::Script,
            Err(_) if self.locations.is_empty() => Answer::Script,
            Err(_) => Answer::Missing,
        }
    }

    /// The decoded path of a request for files, unless files of this name are never sent.
    fn wanted(&self, head: &RequestHead) -> Option<Vec<u8>> {
        if !matches!(head.method(), b"GET" | b"HEAD") {
            return None;
        }
        let path = decode(head.path())?;
        if !self.locations.is_empty() && !self.locations.iter().any(|l| path.starts_with(l)) {
            return None;
        }
        (path.starts_with(b"/") && !is_hidden(&path)).then_some(path)
    }

    /// The file at a path; none for a directory, and where a link leads to what is never sent. Outside
    /// of the root there is nothing.
    fn open(&self, path: &[u8], head: &RequestHead) -> std::io::Result<Option<Found>> {
        // join() takes an absolute path for the whole.
        let slashes = path.iter().take_while(|b| **b == b'/').count();
        let wanted = self
            .path
            .join(std::ffi::OsStr::from_bytes(&path[slashes..]));
        let real = std::fs::canonicalize(wanted)?;
        let Ok(below) = real.strip_prefix(&self.path) else {
            return Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        };
        // What a link is called says nothing of what it leads to.
        if !std::fs::metadata(&real)?.is_file()
            || is_hidden(&[b"/", below.as_os_str().as_bytes()].concat())
        {
            return Ok(None);
        }
        let extension = real.extension().unwrap_or_default().as_bytes();
        let file = File::open(&real)?;
        let meta = file.metadata()?;
        let modified = imf_fixdate(meta.mtime());
        Ok(Some(Found {
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
        .or_else(|| hidden::never_sent(name))
        .is_some()
}

/// Takes the percent coding off; none for what is no path: a broken escape, a NUL.
fn decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'%', [high, low, tail @ ..]) => {
                let digit = |b: u8| (b as char).to_digit(16);
                ((digit(*high)? << 4 | digit(*low)?) as u8, tail)
            }
            (b'%', _) => return None,
            (byte, tail) => (*byte, tail),
        };
        if byte == 0 {
            return None;
        }
        out.push(byte);
        rest = tail;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_once_and_broken_ones_are_no_path() {
        assert_eq!(decode(b"/a%20b%2520"), Some(b"/a b%20".to_vec()));
        for bad in ["/%", "/%2", "/%zz", "/%00"] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }
}
