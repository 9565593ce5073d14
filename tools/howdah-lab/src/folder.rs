//! The folder of a run: one directory for everything that the lab generates, so a reader who doubts a figure can look
//! up the configuration behind it. It remains after the run; the lab writes nothing elsewhere.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::LabError;
use crate::process::RunAs;

/// A directory of the lab.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
    run_as: RunAs,
}

impl RunFolder {
    /// Creates the directory and its parents.
    pub fn create(path: impl Into<PathBuf>, run_as: RunAs) -> Result<RunFolder, LabError> {
        let path = path.into();
        fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        // The path is made absolute, because every program started here has its own working directory.
        let path = path.canonicalize().map_err(LabError::file(&path))?;
        let folder = RunFolder { path, run_as };
        folder.set_owner_and_mode(&folder.path)?;
        Ok(folder)
    }

    /// Creates a directory in this one.
    pub fn directory(&self, name: &str) -> Result<RunFolder, LabError> {
        RunFolder::create(self.path.join(name), self.run_as)
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file or directory in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the user that the stacks' programs run as and that owns the files.
    pub fn run_as(&self) -> RunAs {
        self.run_as
    }

    /// Writes a file into the directory and returns its path.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, LabError> {
        let path = self.path.join(name);
        if let Some(parent) = path.parent()
            && parent != self.path
        {
            RunFolder::create(parent, self.run_as)?;
        }
        fs::write(&path, text).map_err(LabError::file(&path))?;
        self.set_owner_and_mode(&path)?;
        Ok(path)
    }

    /// Copies a tree as a package installed it, following symbolic links (Debian's WordPress links
    /// into `/usr/share/javascript` and `/etc`).
    pub fn copy_tree(&self, from: &Path, name: &str) -> Result<PathBuf, LabError> {
        let to = self.path.join(name);
        let copy = |command: &mut Command| run_command(command).map(drop);
        copy(
            Command::new("cp")
                .args(["-rL", "--no-preserve=mode,ownership", "--"])
                .arg(from)
                .arg(&to),
        )?;
        copy(
            Command::new("chmod")
                .args(["-R", "u+rwX,go+rX", "--"])
                .arg(&to),
        )?;
        if let RunAs::Other { uid, gid } = self.run_as {
            copy(
                Command::new("chown")
                    .arg("-R")
                    .arg(format!("{uid}:{gid}"))
                    .arg("--")
                    .arg(&to),
            )?;
        }
        Ok(to)
    }

    fn set_owner_and_mode(&self, path: &Path) -> Result<(), LabError> {
        if let RunAs::Other { uid, gid } = self.run_as {
            chown(path, Some(uid), Some(gid)).map_err(LabError::file(path))?;
        }
        let mode = if path.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(LabError::file(path))
    }
}

/// Runs a preparatory command to its end and returns its output.
pub fn run_command(command: &mut Command) -> Result<String, LabError> {
    let text = format!("{command:?}");
    let failed = |said: String| LabError::Preparation {
        command: text,
        said,
    };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return Err(failed(error.to_string())),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}\n{said}{complaint}", output.status)))
}
