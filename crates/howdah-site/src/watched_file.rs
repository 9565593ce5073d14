//! A file that is read again when it changes: passwords, groups, lists of networks. The caller parses the content; this
//! module only decides when the file is read, and how much of it.
//!
//! A file that cannot be read, or is too long, is an error until it can be read: its previous content is no longer what
//! the owner wants.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use howdah_os::files::FileStamp;

/// The maximum size of a file in bytes: enough for a hundred thousand users.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
/// A file that changed less than this before it was read may have changed again unnoticed, because of the resolution of
/// the file system's clock. It is read again.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFile {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with the file, as text that follows its name.
    pub why: Box<str>,
}

impl fmt::Display for UnreadableFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for UnreadableFile {}

/// The parsed content of a file, or why there is none.
pub type FileContent<T> = Result<Arc<T>, UnreadableFile>;

/// A file, and its parsed content when it was last read.
pub struct WatchedFile<T> {
    path: PathBuf,
    parse: fn(&[u8]) -> Result<T, String>,
    last_parsed: ArcSwapOption<ParsedFile<T>>,
}

struct ParsedFile<T> {
    stamp: Option<FileStamp>,
    settled: bool,
    content: FileContent<T>,
}

impl<T> fmt::Debug for WatchedFile<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedFile").field(&self.path).finish()
    }
}

impl<T> WatchedFile<T> {
    /// Returns a file for `parse`, which has not been read yet.
    pub fn new(path: impl Into<PathBuf>, parse: fn(&[u8]) -> Result<T, String>) -> WatchedFile<T> {
        WatchedFile {
            path: path.into(),
            parse,
            last_parsed: ArcSwapOption::empty(),
        }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the parsed content if the file is unchanged since it was last read. Only the file's metadata is read.
    pub fn unchanged(&self) -> Option<FileContent<T>> {
        let known = self.last_parsed.load();
        let known = known.as_ref().filter(|known| known.settled)?;
        (FileStamp::of(&self.path) == known.stamp).then(|| known.content.clone())
    }

    /// Returns the content that was last parsed, however old; `None` if the file has not been read yet.
    pub fn last(&self) -> Option<FileContent<T>> {
        let known = self.last_parsed.load();
        known.as_ref().map(|known| known.content.clone())
    }

    /// Returns the current content. Reads the file if it has changed.
    pub fn read(&self) -> FileContent<T> {
        if let Some(content) = self.unchanged() {
            return content;
        }
        // The stamp is taken before the file is opened: a change in between is noticed by the next check.
        let stamp = FileStamp::of(&self.path);
        let now = SystemTime::now();
        let (content, changed) = match read(&self.path) {
            Ok((bytes, changed)) => ((self.parse)(&bytes), changed),
            Err(why) => (Err(why), None),
        };
        let content = content.map(Arc::new).map_err(|why| UnreadableFile {
            path: self.path.clone(),
            why: why.into(),
        });
        let age = changed.map(|changed| now.duration_since(changed).unwrap_or_default());
        self.last_parsed.store(Some(Arc::new(ParsedFile {
            stamp,
            // A file that cannot be opened may become readable without a change of its own, by the permissions of its
            // directory.
            settled: age.is_some_and(|age| age >= SETTLED_AFTER),
            content: content.clone(),
        })));
        content
    }
}

/// Returns the bytes of a regular file, and when it was changed.
fn read(path: &Path) -> Result<(Vec<u8>, Option<SystemTime>), String> {
    let text = |error: std::io::Error| error.to_string();
    // With `O_NONBLOCK` a pipe without a writer is opened at once, and then refused.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
        .map_err(text)?;
    let meta = file.metadata().map_err(text)?;
    if !meta.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let most = MAX_FILE_BYTES + 1;
    (&file).take(most).read_to_end(&mut bytes).map_err(text)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is longer than {} MiB", MAX_FILE_BYTES >> 20));
    }
    Ok((bytes, meta.modified().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn text(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|_| "is not UTF-8".to_owned())
    }

    fn old(path: &Path) {
        let file = File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60))
            .unwrap();
    }

    #[test]
    fn watched_file_is_read_again_only_when_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = WatchedFile::new(&path, text);
        assert!(file.last().is_none());
        assert!(
            file.read()
                .unwrap_err()
                .to_string()
                .contains("No such file")
        );
        fs::write(&path, "one").unwrap();
        assert_eq!(*file.read().unwrap(), "one");
        assert!(
            file.unchanged().is_none(),
            "it may have changed within its clock's grain"
        );
        old(&path);
        assert_eq!(*file.read().unwrap(), "one");
        assert!(file.unchanged().is_some());
        fs::write(&path, "two").unwrap();
        assert!(file.unchanged().is_none());
        assert_eq!(*file.last().unwrap().unwrap(), "one");
        assert_eq!(*file.read().unwrap(), "two");
        fs::remove_file(&path).unwrap();
        assert!(file.read().is_err());
    }

    #[test]
    fn watched_file_that_is_not_readable_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let directory = WatchedFile::new(dir.path(), text);
        assert!(directory.read().unwrap_err().why.contains("regular"));
        let path = dir.path().join("f");
        fs::write(&path, [0xff]).unwrap();
        assert!(
            WatchedFile::new(&path, text)
                .read()
                .unwrap_err()
                .why
                .contains("UTF-8")
        );
        File::create(&path)
            .unwrap()
            .set_len(MAX_FILE_BYTES + 1)
            .unwrap();
        assert!(
            WatchedFile::new(&path, text)
                .read()
                .unwrap_err()
                .why
                .contains("16 MiB")
        );
    }
}
