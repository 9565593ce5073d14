//! Writes the directory of the takeover: all of it or nothing. The new directory is made beside the old one and takes its
//! place in one step, so a full disk or a crash leaves the old plan.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use howdah_os::files::random_hex;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::plan::{CONFIGURATION, PLAN_FILE};

/// The state of a switch, which `howdah takeover switch` writes.
pub const SWITCH_FILE: &str = "switch.json";
/// The directory with the files of the plan before.
const PREVIOUS: &str = "previous";
/// Files and directories that are made again from the plan.
const DERIVED: &[&str] = &["trial.json", "preview", PREVIOUS];

/// A new directory of the takeover that has not taken its place. If it is dropped before that, it is removed.
#[derive(Debug)]
pub struct StagedDirectory {
    /// The path that it will have.
    target: PathBuf,
    /// Its path now.
    path: PathBuf,
    /// The group that may read it.
    group: Option<u32>,
    is_committed: bool,
}

/// Refuses a directory that belongs to a switch in progress, or that contains files of another user.
///
/// # Errors
/// Returns a sentence for the user.
pub fn refuse_directory_in_use(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    if directory.join(SWITCH_FILE).symlink_metadata().is_ok() {
        return Err(format!(
            "SwitchInProgress: {shown} has the state of a switch ({SWITCH_FILE}), which a new plan would lose; finish it or run `howdah takeover rollback --dir {shown}` first, or plan into another directory"
        ));
    }
    let has_plan = directory.join(PLAN_FILE).is_file();
    match fs::read_dir(directory).map(|mut entries| entries.next().is_some()) {
        Ok(true) if !has_plan => Err(format!(
            "DirectoryInUse: {shown} is not empty and has no plan of a takeover; name another directory with --dir"
        )),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(format!(
            "DirectoryInUse: {shown} is not a directory; name another one with --dir"
        )),
        _ => Ok(()),
    }
}

impl StagedDirectory {
    /// Creates the new directory beside `target`. `group` may read its files.
    ///
    /// # Errors
    /// Returns a sentence for the user.
    pub fn create(target: &Path, group: Option<u32>) -> Result<StagedDirectory, String> {
        // A link to a directory remains, and its target is replaced.
        let target = match fs::canonicalize(target) {
            Ok(real) => real,
            Err(_) => std::path::absolute(target).map_err(|error| cannot_write(target, &error))?,
        };
        let parent = target.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(parent).map_err(|error| cannot_write(parent, &error))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let create = || {
            let path = parent.join(format!(".{name}.{}", random_hex()?));
            make_directory(&path, group)?;
            Ok(path)
        };
        let path = create().map_err(|error| cannot_write(&target, &error))?;
        Ok(StagedDirectory {
            target,
            path,
            group,
            is_committed: false,
        })
    }

    /// Returns the path that the directory has now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that the directory will have.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Creates a directory in it.
    ///
    /// # Errors
    /// Returns a sentence for the user.
    pub fn make_directory(&self, name: &str) -> Result<(), String> {
        make_directory(&self.path.join(name), self.group)
            .map_err(|error| cannot_write(&self.target.join(name), &error))
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// Returns a sentence for the user.
    pub fn write(&self, name: &Path, text: &str) -> Result<(), String> {
        let write = || {
            let mut options = File::options();
            let path = self.path.join(name);
            let mut file = options
                .write(true)
                .create_new(true)
                .mode(0o640)
                .open(&path)?;
            give_to_group(&path, self.group)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| cannot_write(&self.target.join(name), &error))
    }

    /// Lets the directory take the place of the old one, whose files are then in its directory `previous`. Files that
    /// the takeover has not made are moved to the new directory.
    ///
    /// # Errors
    /// Returns a sentence for the user if the old directory is still in place.
    pub fn commit(mut self) -> Result<(), String> {
        let place = || {
            sync(&self.path)?;
            let flags = match self.target.exists() {
                true => RenameFlags::EXCHANGE,
                false => RenameFlags::empty(),
            };
            renameat_with(CWD, &self.path, CWD, &self.target, flags)?;
            sync(self.target.parent().unwrap_or(Path::new("/")))
        };
        place().map_err(|error| cannot_write(&self.target, &error))?;
        self.is_committed = true;
        match self.path.exists() {
            true => self.keep_former().map_err(|error| {
                format!(
                    "the new plan is in place, but the previous plan remains in {}: {error}",
                    self.path.display()
                )
            }),
            false => Ok(()),
        }
    }

    /// Moves the former directory, which is at the temporary path now.
    fn keep_former(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)?.flatten() {
            let name = entry.file_name();
            let text = name.to_string_lossy();
            let is_directory = entry.file_type()?.is_dir();
            if DERIVED.contains(&&*text) {
                match is_directory {
                    true => fs::remove_dir_all(entry.path())?,
                    false => fs::remove_file(entry.path())?,
                }
            } else if !is_own(&text) && !self.target.join(&name).exists() {
                fs::rename(entry.path(), self.target.join(&name))?;
            }
        }
        fs::rename(&self.path, self.target.join(PREVIOUS))
    }
}

impl Drop for StagedDirectory {
    fn drop(&mut self) {
        if !self.is_committed {
            // The message about the first error has been printed.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns whether the takeover makes a file of this name.
fn is_own(name: &str) -> bool {
    let names = [
        CONFIGURATION,
        PLAN_FILE,
        super::sites::SITES,
        howdah_import::EMPTY_ROOT,
    ];
    names.contains(&name) || name.ends_with(".notes")
}

fn make_directory(path: &Path, group: Option<u32>) -> io::Result<()> {
    DirBuilder::new().mode(0o750).create(path)?;
    give_to_group(path, group)
}

fn give_to_group(path: &Path, group: Option<u32>) -> io::Result<()> {
    group.map_or(Ok(()), |group| chown(path, None, Some(group)))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!(
        "CannotWrite: {} cannot be written: {error}; a previous plan has not been changed",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;

    fn plan(target: &Path, text: &str) {
        let staged = StagedDirectory::create(target, None).unwrap();
        staged.make_directory("sites.d").unwrap();
        staged.write(Path::new(PLAN_FILE), text).unwrap();
        staged.write(Path::new("sites.d/1.toml"), text).unwrap();
        staged.commit().unwrap();
    }

    #[test]
    fn new_directory_replaces_the_former_and_keeps_files_of_others() {
        let scratch = Scratch::new("staging");
        let target = scratch.join("takeover");
        plan(&target, "one");
        scratch.write("takeover/my-notes.txt", "mine");
        scratch.write("takeover/trial.json", "{}");
        for text in ["two", "three"] {
            plan(&target, text);
        }
        let read = |name: &str| fs::read_to_string(target.join(name)).ok();
        assert_eq!(read(PLAN_FILE).as_deref(), Some("three"));
        assert_eq!(read("previous/sites.d/1.toml").as_deref(), Some("two"));
        assert_eq!(read("my-notes.txt").as_deref(), Some("mine"));
        assert_eq!(read("trial.json"), None);
        assert_eq!(read("previous/previous/plan.json"), None);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn staged_directory_that_is_not_committed_leaves_nothing() {
        let scratch = Scratch::new("staging");
        let target = scratch.join("takeover");
        plan(&target, "one");
        let staged = StagedDirectory::create(&target, None).unwrap();
        staged.write(Path::new("a"), "two").unwrap();
        assert!(
            staged
                .write(Path::new("none/a"), "two")
                .unwrap_err()
                .contains("CannotWrite")
        );
        drop(staged);
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(target.join(PLAN_FILE)).unwrap(), "one");
    }

    #[test]
    fn directory_of_others_is_refused() {
        let scratch = Scratch::new("staging");
        assert_eq!(refuse_directory_in_use(scratch.path()), Ok(()));
        let file = scratch.write("passwd", "");
        let why = refuse_directory_in_use(scratch.path()).unwrap_err();
        assert!(why.starts_with("DirectoryInUse"), "{why}");
        assert!(refuse_directory_in_use(&file).is_err());
        scratch.write(PLAN_FILE, "");
        assert_eq!(refuse_directory_in_use(scratch.path()), Ok(()));
        scratch.write(SWITCH_FILE, "{}");
        let why = refuse_directory_in_use(scratch.path()).unwrap_err();
        assert!(why.starts_with("SwitchInProgress"), "{why}");
    }
}
