//! Reads configuration files within size limits.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::ImportError;
use crate::directive::SourceLine;

/// The maximum size of a file, in bytes.
pub const MAX_FILE_BYTES: u64 = 10 << 20;
/// The maximum length of a line, in bytes: longer than any line that a person or a control panel writes.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// The limits on all files of a configuration together. Each inclusion counts, because snippets are included often.
const MAX_TOTAL_BYTES: u64 = 256 << 20;
const MAX_FILES: usize = 20_000;
/// The maximum nesting depth of inclusions.
const MAX_INCLUDE_DEPTH: usize = 50;

/// Reads files and counts how much has been read.
#[derive(Debug, Default)]
pub struct SourceReader {
    bytes: Cell<u64>,
    files: Cell<usize>,
}

/// A file's text, and its name in messages.
#[derive(Clone, Debug)]
pub struct SourceText {
    /// The file's name.
    pub name: Arc<str>,
    /// The file's text.
    pub text: String,
}

impl SourceReader {
    /// Reads a file.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, is too long, or is not text.
    pub fn read(&self, path: &Path) -> Result<SourceText, ImportError> {
        let name: Arc<str> = path.display().to_string().into();
        let fail = |line: usize, why: String| {
            let file = name.clone();
            ImportError::at(&SourceLine { file, line }, why)
        };
        self.files.set(self.files.get() + 1);
        if self.files.get() > MAX_FILES {
            let why =
                format!("TooManyFiles: the configuration includes more than {MAX_FILES} files");
            return Err(fail(1, why));
        }
        let bytes = read_bounded(path).map_err(|why| fail(1, why))?;
        self.bytes.set(self.bytes.get() + bytes.len() as u64);
        if self.bytes.get() > MAX_TOTAL_BYTES {
            let why = "TooLong: the configuration is larger than 256 MiB; a file counts each time that it is included";
            return Err(fail(1, why.to_owned()));
        }
        for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
            if line.len() > MAX_LINE_BYTES {
                let why = format!(
                    "LineTooLong: the line is {} bytes long, but at most 1 MiB is read",
                    line.len()
                );
                return Err(fail(number + 1, why));
            }
            if line.contains(&0) {
                let why = "NotText: there is a NUL byte, so this is not a configuration file";
                return Err(fail(number + 1, why.to_owned()));
            }
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|b| **b == b'\n').count();
            let why = "NotUtf8: convert the file to UTF-8 (iconv -f ISO-8859-1 -t UTF-8) and import again";
            fail(line, why.to_owned())
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
        Ok(SourceText { name, text })
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a FIFO or a device could block.
    let meta = fs::metadata(path).map_err(cannot)?;
    if !meta.is_file() {
        return Err("cannot be read: it is not a regular file".to_owned());
    }
    if meta.len() > MAX_FILE_BYTES {
        return Err("TooLong: the file is larger than 10 MiB".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    Ok(bytes)
}

/// The files that are being read, each included by the previous one.
#[derive(Clone, Debug, Default)]
pub struct IncludeChain {
    paths: Vec<PathBuf>,
}

impl IncludeChain {
    /// Creates the chain of a file that no other file includes.
    pub fn root(path: &Path) -> IncludeChain {
        IncludeChain {
            paths: vec![canonical_path(path)],
        }
    }

    /// Returns the chain with one more file.
    ///
    /// # Errors
    /// Returns a sentence if the file includes itself or inclusions are nested too deeply.
    pub fn push(&self, path: &Path) -> Result<IncludeChain, String> {
        let real = canonical_path(path);
        if self.paths.contains(&real) {
            return Err(format!(
                "IncludeLoop: {} includes itself, by way of {} files",
                real.display(),
                self.paths.len()
            ));
        }
        if self.paths.len() >= MAX_INCLUDE_DEPTH {
            return Err(format!(
                "IncludeLoop: {MAX_INCLUDE_DEPTH} files include each other"
            ));
        }
        let mut paths = self.paths.clone();
        paths.push(real);
        Ok(IncludeChain { paths })
    }
}

fn canonical_path(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Joins a path for Howdah's configuration: relative paths are resolved against `base`, and trailing slashes are
/// removed.
pub fn join_path(base: &Path, text: &str) -> String {
    let path = base.join(text).display().to_string();
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_files_are_reported_with_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        let files = SourceReader::default();
        let why = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            files.read(&path).unwrap_err().to_string()
        };
        assert!(why(b"a\nb\0").contains("x:2: NotText"));
        let long = [b"a\n", &vec![b'x'; MAX_LINE_BYTES + 1][..]].concat();
        assert!(why(&long).contains("x:2: LineTooLong"));
        assert!(why(b"a\n\xe9").contains("x:2: NotUtf8"));
        let missing = files.read(&directory.path().join("y")).unwrap_err();
        assert!(missing.to_string().contains("y:1: cannot be read"));
        let directory = files.read(directory.path()).unwrap_err();
        assert!(directory.to_string().contains("not a regular file"));
    }
}
