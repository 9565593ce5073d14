//! Writes the files of a command that belong together: either all of them or none. A reader never sees a part of a
//! file. Errors are complete messages for the user.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::files::create_beside;

/// The mode of the files, which may contain database passwords.
const FILE_MODE: u32 = 0o640;

/// The path of a file and its content.
pub type NewFile<'a> = (&'a Path, &'a str);

/// Refuses to overwrite files, unless that is requested (`--force`).
///
/// # Errors
/// Returns a message that names the file that is there already.
pub fn refuse_existing(paths: &[&Path], overwrite: bool) -> Result<(), String> {
    for path in paths {
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                return Err(format!("{} is a directory", path.display()));
            }
            Ok(_) if !overwrite => {
                return Err(format!(
                    "{} already exists: name another file (-o FILE), or overwrite it (--force)",
                    path.display()
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes the files in this order. `group` may read them; `None` means the group of the process.
///
/// # Errors
/// Returns a message that names the file that cannot be written. Then none of the files has been written.
pub fn write(files: &[NewFile<'_>], group: Option<u32>, overwrite: bool) -> Result<(), String> {
    let mut written = UncommittedFiles::default();
    let mut staged = Vec::new();
    for (path, text) in files {
        let new = written.stage(path, text, group);
        staged.push((*path, new.map_err(|error| write_error(path, &error))?));
    }
    for (path, new) in staged {
        written
            .place(&new, path, overwrite)
            .map_err(|error| write_error(path, &error))?;
    }
    written.commit();
    Ok(())
}

fn write_error(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!("cannot write {path}: {error}; use -o FILE to name another file")
        }
        _ => format!("cannot write {path}: {error}"),
    }
}

/// The files that have been written so far. If this is dropped before it is complete, the previous state is restored.
#[derive(Default)]
struct UncommittedFiles {
    new: Vec<PathBuf>,
    /// Files that have received their final name, with the path of the former file of that name.
    placed: Vec<(PathBuf, Option<PathBuf>)>,
}

impl UncommittedFiles {
    /// Writes a file beside its final path, under a name that begins with a dot, because servers do not send dotfiles.
    fn stage(&mut self, path: &Path, text: &str, group: Option<u32>) -> io::Result<PathBuf> {
        let (mut file, new) = create_beside(path, FILE_MODE)?;
        self.new.push(new.clone());
        if let Some(group) = group {
            std::os::unix::fs::fchown(&file, None, Some(group))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(new)
    }

    fn place(&mut self, new: &Path, path: &Path, overwrite: bool) -> io::Result<()> {
        let mut former = None;
        if overwrite && path.symlink_metadata().is_ok() {
            let kept = new.with_added_extension("former");
            fs::hard_link(path, &kept)?;
            self.new.push(kept.clone());
            former = Some(kept);
        }
        // Unlike a rename, a link does not replace an existing file.
        match overwrite {
            true => fs::rename(new, path)?,
            false => fs::hard_link(new, path)?,
        }
        self.placed.push((path.to_owned(), former));
        Ok(())
    }

    fn commit(mut self) {
        self.placed.clear();
    }
}

impl Drop for UncommittedFiles {
    fn drop(&mut self) {
        for (path, former) in &self.placed {
            let _ = match former {
                Some(former) => fs::rename(former, path),
                None => fs::remove_file(path),
            };
        }
        for path in &self.new {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().flatten();
        let mut names: Vec<String> = entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn new_files_are_all_written_or_none() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let (one, two, missing) = (at("one"), at("two"), at("none/three"));
        let why = write(&[(&one, "1"), (&missing, "3")], None, false).unwrap_err();
        assert!(why.contains("none/three: No such file"), "{why}");
        assert!(names(directory.path()).is_empty());
        fs::write(&two, "before").unwrap();
        // Another process has written the file in the meantime.
        let why = write(&[(&one, "1"), (&two, "2")], None, false).unwrap_err();
        assert!(why.contains("two: File exists"), "{why}");
        assert_eq!(names(directory.path()), ["two"]);
        assert_eq!(fs::read_to_string(&two).unwrap(), "before");
        let three = at("three");
        fs::create_dir(&three).unwrap();
        write(&[(&two, "2"), (&three, "3")], None, true).unwrap_err();
        assert_eq!(names(directory.path()), ["three", "two"]);
        assert_eq!(fs::read_to_string(&two).unwrap(), "before");
        fs::remove_dir(&three).unwrap();
        write(&[(&one, "1"), (&two, "2")], None, true).unwrap();
        assert_eq!(names(directory.path()), ["one", "two"]);
        assert_eq!(fs::read_to_string(&two).unwrap(), "2");
    }

    #[test]
    fn new_files_overwrite_only_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("howdah.toml");
        let refused = |overwrite| refuse_existing(&[&file], overwrite).err();
        assert_eq!(refused(false), None);
        // A dangling link counts as existing, too.
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        let why = refused(false).unwrap();
        assert!(why.contains("howdah.toml already exists"), "{why}");
        assert_eq!(refused(true), None);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(refused(true).unwrap().ends_with("is a directory"));
    }
}
