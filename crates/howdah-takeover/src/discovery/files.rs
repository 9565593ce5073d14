//! Reads files whose owner may be an unprivileged user, such as those in the root of a site.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Reads at most `most` bytes of a file. A pipe or a device, which could block this program for ever, is refused.
///
/// # Errors
/// Returns the error of the system, or `InvalidInput` if this is not a regular file.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        let text = "this is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
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
    }
}
