//! Notices that PHP was updated under a running pool, and takes the new PHP.
//!
//! ```text
//! files have changed → unchanged at the next check, and no package manager is at work → a second zygote is
//!           started with the new PHP (`workers`) → it replaces the running zygote if it has every extension of
//!           that one
//! ```
//! In any other case the running PHP continues, `howdah status` says why, and the pool tries again later.
//!
//! The pool checks the files by itself. A package's trigger could not start the update, because it runs while dpkg
//! still holds its lock.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use howdah_os::files::FileStamp;
use howdah_os::package_manager;
use howdah_proto::control::StartedPhp;
use howdah_proto::level::LogLevel;

use super::{Supervisor, ZygoteState};
use crate::php_host::PhpHost;
use crate::status::PhpUpdateStatus;

/// How often the files are checked, by a stat(2) of the program and of each directory.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The pause after the first failed attempt. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The maximum pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(600);

/// The maximum number of directories that are checked. There is a limit because the zygote, which is untrusted, names
/// them.
const MAX_DIRECTORIES: usize = 16;

/// The name of the event that reports why a new PHP was not taken.
const REFUSED: &str = "PhpUpdateRefused";

/// A file or a directory, and its state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FileState {
    path: PathBuf,
    stamp: Option<FileStamp>,
}

impl FileState {
    fn of(path: &Path) -> FileState {
        FileState {
            path: path.to_owned(),
            stamp: FileStamp::of(path),
        }
    }
}

/// PHP's files: the program, the directory of extensions, and those of further php.ini files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct PhpFiles {
    program: FileState,
    directories: Vec<FileState>,
}

impl PhpFiles {
    /// Returns the present state of the same files.
    fn again(&self) -> PhpFiles {
        let directories = self.directories.iter();
        PhpFiles {
            program: FileState::of(&self.program.path),
            directories: directories.map(|old| FileState::of(&old.path)).collect(),
        }
    }
}

/// Files that differ from those that the running PHP was started from.
struct Change {
    files: PhpFiles,
    /// The version of the program on disk.
    version: String,
    is_logged: bool,
    failures: u32,
    try_at: Instant,
    last_failure: String,
}

/// What the supervisor knows about the running PHP, and about another one on disk.
pub(super) struct PhpUpdate {
    /// The files of the running PHP; `None` before one has started.
    running: Option<PhpFiles>,
    /// The extensions of the running PHP.
    extensions: Vec<String>,
    /// The state of the files at the launch of the zygote that is starting.
    starting: PhpFiles,
    change: Option<Change>,
    look_at: Instant,
}

impl PhpUpdate {
    pub fn new(now: Instant) -> PhpUpdate {
        PhpUpdate {
            running: None,
            extensions: Vec::new(),
            starting: PhpFiles::default(),
            change: None,
            look_at: now,
        }
    }

    /// Returns the extensions of the running PHP that another PHP lacks.
    fn missing_in(&self, php: &StartedPhp) -> Vec<&str> {
        let had = self.extensions.iter().map(String::as_str);
        had.filter(|name| !php.extensions.iter().any(|other| other == name))
            .collect()
    }
}

impl Supervisor {
    /// Remembers PHP's files before a zygote is started, so that a change during its start is noticed.
    pub(super) fn note_php_files(&mut self) {
        let running = self.php_update.running.as_ref();
        self.php_update.starting = running.map(PhpFiles::again).unwrap_or_default();
    }

    /// Remembers which program a zygote was started from. Before the first zygote starts, only the launcher knows the
    /// program.
    pub(super) fn note_php_program(&mut self, program: &Path) {
        let files = &mut self.php_update.starting;
        if files.program.path != program {
            files.program = FileState::of(program);
        }
    }

    /// Records the PHP of the zygote that the pool uses now.
    pub(super) fn record_started_php(&mut self, php: StartedPhp, now: Instant) {
        let mut files = std::mem::take(&mut self.php_update.starting);
        let named = || php.directories.iter().take(MAX_DIRECTORIES).map(Path::new);
        if !files.directories.iter().map(|old| &*old.path).eq(named()) {
            files.directories = named().map(FileState::of).collect();
        }
        self.php_update.running = Some(files);
        self.php_update.extensions = php.extensions;
        self.php_update.change = None;
        self.php_update.look_at = now + LOOK_INTERVAL;
        self.publish_php_update(None);
        let mut shared = self.shared.php.lock().unwrap_or_else(|e| e.into_inner());
        *shared = (php.version, php.opcache);
    }

    /// Reports extensions that the former zygote had and the new one lacks. The former zygote died during an update, so
    /// the pool runs with the PHP that it gets. When the update ends, the files change again, which restarts the pool
    /// again.
    pub(super) fn report_lost_extensions(&self, php: &StartedPhp) {
        let missing = self.php_update.missing_in(php);
        if !missing.is_empty() {
            let message = format!(
                "PHP {} has started without {}, which the previous PHP had",
                php.version,
                missing.join(", ")
            );
            self.log_event(LogLevel::Warning, "PhpExtensionsMissing", &message);
        }
    }

    /// Checks PHP's files if that is due, and orders a restart for a new PHP. Returns the time until the next check.
    pub(super) fn look_at_php_files(&mut self, now: Instant) -> Duration {
        if self.php_update.look_at > now {
            return self.php_update.look_at - now;
        }
        self.php_update.look_at = now + LOOK_INTERVAL;
        if !matches!(self.zygote, ZygoteState::Ready { .. }) || self.workers.is_starting_next() {
            return LOOK_INTERVAL;
        }
        let Some(running) = &self.php_update.running else {
            return LOOK_INTERVAL;
        };
        let files = running.again();
        if files == *running {
            if self.php_update.change.take().is_some() {
                self.publish_php_update(None);
            }
            return LOOK_INTERVAL;
        }
        let is_program_changed = files.program != running.program;
        match self.php_update.change.take() {
            // The files are the same as at the last check, so the program that writes them has probably finished.
            Some(change) if change.files == files => self.take_php_update(change, now),
            former => {
                let version = match is_program_changed {
                    true => PhpHost::read(&files.program.path).map(|host| host.version),
                    false => Ok(self.running_version()),
                };
                let change = Change {
                    files,
                    version: version.unwrap_or_else(|_| "an unreadable file".to_owned()),
                    is_logged: former.is_some_and(|former| former.is_logged),
                    failures: 0,
                    try_at: now,
                    last_failure: String::new(),
                };
                self.publish_change(
                    &change,
                    "the PHP on disk will be used once its files stop changing",
                );
                self.php_update.change = Some(change);
            }
        }
        LOOK_INTERVAL
    }

    /// Orders a restart for a change of PHP's files, unless a package manager is at work or an attempt has just failed.
    fn take_php_update(&mut self, mut change: Change, now: Instant) {
        if !change.is_logged {
            change.is_logged = true;
            let message = format!(
                "{} ({})",
                self.both_versions(&change.version),
                change.files.program.path.display()
            );
            self.log_event(LogLevel::Notice, "PhpUpdated", &message);
        }
        if change.try_at <= now && change.files.program.stamp.is_some() {
            match package_manager::is_at_work() {
                true => self.publish_change(
                    &change,
                    "the PHP on disk will be used once the package manager has finished",
                ),
                false => {
                    let why = self.both_versions(&change.version);
                    self.order_restart(why);
                }
            }
        }
        self.php_update.change = Some(change);
    }

    /// Returns a reason against the PHP of a second zygote: it was updated, but an extension of the running one is
    /// missing. An administrator who has removed that extension reloads the configuration.
    pub(super) fn objection_to_updated_php(
        &self,
        php: &StartedPhp,
    ) -> Option<(&'static str, String)> {
        let running = self.php_update.running.as_ref()?;
        let missing = self.php_update.missing_in(php);
        if missing.is_empty() || running.again() == *running {
            return None;
        }
        let message = format!(
            "PHP {} on disk does not load {}, which PHP {} in memory has; if this is intended, run `howdah reload`",
            php.version,
            missing.join(", "),
            self.running_version()
        );
        Some((REFUSED, message))
    }

    /// Records that a second zygote has failed. Returns whether this is worth a line in the log: the same failure of
    /// the same PHP is logged once.
    pub(super) fn record_failed_restart(
        &mut self,
        name: &str,
        message: &str,
        now: Instant,
    ) -> bool {
        let Some(mut change) = self.php_update.change.take() else {
            return true;
        };
        let failure = format!("{name}: {message}");
        let is_new = change.last_failure != failure;
        change.try_at = now + (FIRST_PAUSE * 2u32.pow(change.failures.min(8))).min(MAX_PAUSE);
        change.failures += 1;
        self.publish_change(&change, &failure);
        change.last_failure = failure;
        self.php_update.change = Some(change);
        is_new
    }

    /// Returns whether a second zygote of this PHP has failed before.
    pub(super) fn tries_php_update_again(&self) -> bool {
        let change = self.php_update.change.as_ref();
        change.is_some_and(|change| change.failures > 0)
    }

    fn running_version(&self) -> String {
        let php = self.shared.php.lock().unwrap_or_else(|e| e.into_inner());
        php.0.clone()
    }

    fn both_versions(&self, on_disk: &str) -> String {
        PhpUpdateStatus::both_versions(&self.running_version(), on_disk)
    }

    fn publish_change(&self, change: &Change, state: &str) {
        self.publish_php_update(Some(PhpUpdateStatus {
            version: change.version.clone(),
            state: state.to_owned(),
        }));
    }

    fn publish_php_update(&self, status: Option<PhpUpdateStatus>) {
        let mut shared = self
            .shared
            .php_update
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        *shared = status;
    }
}
