//! Reads files whose owner may be an unprivileged user, such as those in the root of a site and logs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a file for reading. A pipe or a device, which could block this program for ever, is refused.
///
/// # Errors
/// Returns the error of the system, or `InvalidInput` if this is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        let text = "this is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(file)
}

/// Reads at most `most` bytes of a file.
///
/// # Errors
/// See [`open_regular`].
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last part of a log.
#[derive(Debug)]
pub struct LogTail {
    /// The inode of the file.
    pub inode: u64,
    begin: u64,
    bytes: Vec<u8>,
}

impl LogTail {
    /// Reads at most the last `most` bytes of a log.
    ///
    /// # Errors
    /// See [`open_regular`].
    pub fn read(path: &Path, most: u64) -> io::Result<LogTail> {
        let mut file = open_regular(path)?;
        let metadata = file.metadata()?;
        let begin = metadata.len().saturating_sub(most);
        file.seek(SeekFrom::Start(begin))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(LogTail {
            inode: metadata.ino(),
            begin,
            bytes,
        })
    }

    /// Returns the lines, without empty ones, and where each begins in the file. If the log is longer than what was read,
    /// the first line is not complete and therefore omitted.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut offset = self.begin;
        let lines = self.bytes.split(|byte| *byte == b'\n').map(move |line| {
            let at = offset;
            offset += line.len() as u64 + 1;
            (at, line)
        });
        let lines = lines.skip(usize::from(self.begin > 0));
        lines.filter(|(_, line)| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::{Scratch, run};

    use super::*;

    #[test]
    fn pipe_is_refused_at_once_and_a_file_is_read_up_to_its_limit() {
        let scratch = Scratch::new("files");
        let pipe = scratch.join("pipe");
        run(std::process::Command::new("mkfifo").arg(&pipe));
        let error = read_regular(&pipe, 10).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let file = scratch.write("file", "0123456789");
        assert_eq!(read_regular(&file, 4).unwrap(), b"0123");
        assert!(read_regular(scratch.path(), 4).is_err());
        assert!(LogTail::read(&pipe, 10).is_err());
        let log = scratch.write("log", "one\ntwo\n\nthree\n");
        let lines = |most: u64| -> Vec<(u64, String)> {
            let tail = LogTail::read(&log, most).unwrap();
            let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
            tail.lines().map(|(at, line)| (at, text(line))).collect()
        };
        let three = (9, "three".to_owned());
        assert_eq!(lines(9), std::slice::from_ref(&three));
        let all = [(0, "one".to_owned()), (4, "two".to_owned()), three];
        assert_eq!(lines(99), all);
    }
}
