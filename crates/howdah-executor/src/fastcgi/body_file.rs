//! A stored request body under a name that php-fpm can open (`REQUEST_BODY_FILE`), for as long as its
//! request lasts. Copies nothing: the file is the one the body was received into, and gets a second
//! way to it. Removed with its request; what a crash has left, by the next start.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD};

/// What the names begin with; the process's id and a number follow.
const PREFIX: &str = "howdah-body-";

/// The name of a stored body in a directory; dropping it removes the name.
#[derive(Debug)]
pub struct BodyFile(PathBuf);

impl BodyFile {
    /// Names `file` in `directory`, which must be on its file system. php-fpm runs as another user:
    /// the file may be read by all who may enter the directory.
    pub fn name(file: &File, directory: &Path) -> io::Result<BodyFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{PREFIX}{}-{number}", std::process::id()));
        file.set_permissions(Permissions::from_mode(0o644))?;
        let here = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, here, CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
        Ok(BodyFile(path))
    }

    /// The name by which php-fpm can open the body.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for BodyFile {
    fn drop(&mut self) {
        // Somebody may have been quicker.
        let _ = fs::remove_file(&self.0);
    }
}

/// Removes what processes that are gone have left.
pub fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.split_once('-'));
        if let Some((pid, _)) = owner
            && pid.parse::<u32>().is_ok()
            && !Path::new("/proc").join(pid).exists()
        {
            fs::remove_file(directory.join(&*name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_body_has_a_name_for_a_time_and_a_crash_leaves_none_for_long() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = tempfile::tempfile_in(directory.path()).unwrap();
        file.write_all(b"hello").unwrap();
        let named = BodyFile::name(&file, directory.path()).unwrap();
        assert_eq!(fs::read(named.path()).unwrap(), b"hello");
        let (left, other) = (format!("{PREFIX}4294967295-0"), format!("{PREFIX}x"));
        for name in [&left, &other] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        clear(directory.path()).unwrap();
        assert!(named.path().exists() && !directory.path().join(left).exists());
        drop(named);
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "only what is none of ours: {left:?}");
    }
}
