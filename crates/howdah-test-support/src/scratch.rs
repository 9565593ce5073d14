//! Private directories for servers and sites in the system's temporary directory, and the locations of the built
//! programs, of the repository, and of the `.htaccess` files of other projects.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A private directory that is removed with its contents when dropped. If the thread is panicking or
/// `HOWDAH_TESTS_KEEP` is set, the directory is kept and its path is printed.
///
/// It lies in the system's temporary directory because the paths of unix sockets are limited to 107 bytes (unix(7)),
/// which a target directory easily exceeds.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates `TMP/howdah-tests-PID-N-name`, readable by other users: Apache refuses to serve as root and reads sites
    /// as `www-data`.
    ///
    /// # Panics
    /// If the directory cannot be created.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("howdah-tests-{}-{n}-{name}", std::process::id()));
        // If a directory of this name exists, an earlier process with the same id has left it behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        set_mode(&path, 0o755);
        Scratch { path }
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of `name` inside the directory.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Creates a subdirectory that every user may write to: PHP runs as `www-data` under Apache and as the test's user
    /// elsewhere.
    pub fn writable_dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        set_mode(&path, 0o777);
        path
    }

    /// Writes a file, creating its parent directories, and returns its path.
    pub fn write(&self, name: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)
                .unwrap_or_else(|error| panic!("cannot make {}: {error}", parent.display()));
        }
        fs::write(&path, contents)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() || std::env::var_os("HOWDAH_TESTS_KEEP").is_some() {
            eprintln!("kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("cannot chmod {}: {error}", path.display()));
}

/// Copies a tree as a package installed it, following symbolic links (Debian's WordPress links into
/// `/usr/share/javascript` and `/etc`). The copy is writable by every user.
///
/// # Panics
/// If `cp` fails; the message contains its output.
pub fn copy_tree(from: &Path, to: &Path) {
    run(Command::new("cp")
        .arg("-rL")
        .arg("--no-preserve=mode")
        .arg("--")
        .arg(from)
        .arg(to));
    run(Command::new("chmod").args(["-R", "a+rwX", "--"]).arg(to));
}

/// Runs a preparatory command until it exits, and returns its standard output.
///
/// # Panics
/// If the command cannot be started or fails; the message contains its output.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?} failed ({}):\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// Returns `target/PROFILE`, found from the running test program (`target/PROFILE/deps/x-hash`).
pub fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test program has a path");
    let mut dir = exe.parent().expect("a program lies in a directory");
    if dir.ends_with("deps") {
        dir = dir.parent().expect("deps lies in a profile directory");
    }
    dir.to_path_buf()
}

/// Returns the path of the `howdah` program: the one that `HOWDAH_BIN` names, or else the one that was built beside the
/// tests.
///
/// # Panics
/// If the program was not built; the message says how to build it.
pub fn howdah_program() -> PathBuf {
    let path =
        std::env::var_os("HOWDAH_BIN").map_or_else(|| profile_dir().join("howdah"), PathBuf::from);
    assert!(
        path.is_file(),
        "{} does not exist: run `make test`, or `cargo build --workspace --bins` first",
        path.display()
    );
    path
}

/// Returns the directory of the `.htaccess` files of applications and plugins, which belong to other projects and are
/// not part of this one. The directory contains a subdirectory for each application, laid out like a document root. It
/// is the directory that `HOWDAH_HTACCESS_TREES` names, or else `shared/htaccess-upstream` beside the checkout. If it
/// does not exist, this function prints a message and returns `None`, and the test skips these files.
pub fn files_of_applications() -> Option<PathBuf> {
    let beside = || Some(repository().parent()?.join("shared/htaccess-upstream"));
    let named = std::env::var_os("HOWDAH_HTACCESS_TREES").map(PathBuf::from);
    let found = named.or_else(beside).filter(|trees| trees.is_dir());
    if found.is_none() {
        eprintln!("skipped: there are no files of applications beside the checkout");
    }
    found
}

/// Returns the text of one of these `.htaccess` files. Where a line names another file (`auto_prepend_file`,
/// `AuthUserFile`), the path is replaced by that of a file with the same name in `root`.
pub fn at_root(text: &str, root: &Path) -> String {
    let place = |line: &str| {
        let names_a_file = ["auto_prepend_file", "AuthUserFile"]
            .iter()
            .any(|word| line.contains(word));
        match (line.find('/'), line.rsplit_once('/')) {
            (Some(start), Some((_, name))) if names_a_file => {
                format!("{}{}/{name}\n", &line[..start], root.display())
            }
            _ => format!("{line}\n"),
        }
    };
    text.lines().map(place).collect()
}

/// Returns the repository's root directory, which contains `demo/`, `docs/` and `tests/`.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/howdah-tests lies two levels down")
        .to_path_buf()
}
