//! The record of a comparison in progress: its plan, its measurement conditions, and every finished part, each saved
//! completely or not at all. Whatever ends the program (Ctrl-C, `kill -9`, a power cut), the next `--resume` continues
//! after the last finished part.
//!
//! ```text
//! plan.json   the request and its conditions
//! NAME.json   one part each, written beside its final name and renamed
//! ```
//!
//! Files are readable by their owner only, because requests may contain cookies.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::LabError;
use crate::folder::RunFolder;

/// The version of the files' format.
pub const FORMAT_VERSION: u32 = 1;
const PLAN_FILE: &str = "plan.json";

/// A comparison's folder, locked while this value exists.
#[derive(Debug)]
pub struct ComparisonJournal {
    folder: RunFolder,
    _lock: File,
}

impl ComparisonJournal {
    /// Starts a new comparison in `folder`.
    ///
    /// # Errors
    /// Returns an error if the folder holds a comparison already, or cannot be written.
    pub fn begin(folder: &RunFolder, plan: &impl Serialize) -> Result<ComparisonJournal, LabError> {
        let path = folder.join(PLAN_FILE);
        if path.exists() {
            return Err(not_resumable(format!(
                "{} already holds a comparison: continue it with --resume, or choose another --out",
                folder.path().display()
            )));
        }
        write_atomically(&path, &json(plan), 0o600)?;
        let lock = lock(&path)?;
        Ok(ComparisonJournal {
            folder: folder.clone(),
            _lock: lock,
        })
    }

    /// Opens a comparison that was begun before, and returns its plan.
    ///
    /// # Errors
    /// Returns an error if the folder holds no comparison, another program is using it, or another version saved it.
    pub fn resume<P: DeserializeOwned>(
        folder: &RunFolder,
    ) -> Result<(ComparisonJournal, P), LabError> {
        let path = folder.join(PLAN_FILE);
        if !path.is_file() {
            return Err(not_resumable(format!(
                "--resume: there is no comparison in {} ({PLAN_FILE} is missing)",
                folder.path().display()
            )));
        }
        let lock = lock(&path)?;
        let plan = read(&path)?;
        let journal = ComparisonJournal {
            folder: folder.clone(),
            _lock: lock,
        };
        Ok((journal, plan))
    }

    /// Returns whether `folder` holds a comparison.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(PLAN_FILE).is_file()
    }

    /// Returns the folder of the comparison.
    pub fn folder(&self) -> &RunFolder {
        &self.folder
    }

    /// Saves `value` as `NAME.json`; `name` may contain directories.
    pub fn save(&self, name: &str, value: &impl Serialize) -> Result<(), LabError> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(LabError::file(parent))?;
        }
        write_atomically(&path, &json(value), 0o600)
    }

    /// Reads the value that was saved as `NAME.json`; returns `None` if there is no such file.
    ///
    /// # Errors
    /// Returns an error if the file is damaged.
    pub fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LabError> {
        let path = self.path(name);
        match path.exists() {
            true => read(&path).map(Some),
            false => Ok(None),
        }
    }

    /// Reads the value that was saved as `NAME.json`, or creates and saves it, so a value that was decided once is the
    /// same in every later session.
    pub fn load_or_save<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Result<T, LabError> {
        if let Some(kept) = self.load(name)? {
            return Ok(kept);
        }
        let made = make();
        self.save(name, &made)?;
        Ok(made)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }
}

fn not_resumable(why: String) -> LabError {
    LabError::NotResumable { why }
}

/// Locks the folder for one program; the system releases the lock when the program exits.
fn lock(path: &Path) -> Result<File, LabError> {
    let file = File::open(path).map_err(LabError::file(path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(_) => Err(not_resumable(format!(
            "{}: another howdah compare is using it",
            path.display()
        ))),
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data becomes JSON") + "\n"
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    #[derive(Deserialize)]
    struct FormatVersion {
        schema: Option<u32>,
    }
    let text = fs::read_to_string(path).map_err(LabError::file(path))?;
    if let Ok(FormatVersion {
        schema: Some(schema),
    }) = serde_json::from_str(&text)
        && schema != FORMAT_VERSION
    {
        return Err(not_resumable(format!(
            "{}: saved in format version {schema}; this program reads version {FORMAT_VERSION}: start a new comparison",
            path.display()
        )));
    }
    serde_json::from_str(&text).map_err(|error| {
        not_resumable(format!(
            "{} is damaged ({error}): remove the file to measure this part again",
            path.display()
        ))
    })
}

/// Writes a file atomically: afterwards it has either the old content or the complete new one.
fn write_atomically(path: &Path, text: &str, mode: u32) -> Result<(), LabError> {
    let beside = path.with_extension("json.new");
    let write = || -> std::io::Result<()> {
        // A leftover file would keep its own mode.
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(LabError::file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::RunAs;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let directory = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(directory.path().join("run"), RunAs::Ourselves).unwrap();
        (directory, folder)
    }

    #[test]
    fn resume_distinguishes_missing_from_damaged_comparisons() {
        let (_directory, folder) = folder();
        let error = ComparisonJournal::resume::<u32>(&folder)
            .unwrap_err()
            .to_string();
        assert!(error.contains("there is no comparison in"), "{error}");
        folder.write(PLAN_FILE, "{\"schema\":99}").unwrap();
        let error = ComparisonJournal::resume::<u32>(&folder)
            .unwrap_err()
            .to_string();
        assert!(error.contains("version 99"), "{error}");
        folder.write(PLAN_FILE, "{\"schema\":1").unwrap();
        let error = ComparisonJournal::resume::<u32>(&folder)
            .unwrap_err()
            .to_string();
        assert!(error.contains("is damaged"), "{error}");
    }

    #[test]
    fn write_atomically_leaves_complete_private_files() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, folder) = folder();
        let path = folder.join("x.json");
        write_atomically(&path, "1", 0o600).unwrap();
        // A half-written file of a killed program is ignored.
        fs::write(folder.join("x.json.new"), "2 is half wr").unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), 1);
        write_atomically(&path, "3", 0o600).unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), 3);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let held = lock(&path).unwrap();
        let error = lock(&path).unwrap_err().to_string();
        assert!(error.contains("another howdah compare"), "{error}");
        drop(held);
        lock(&path).unwrap();
    }
}
