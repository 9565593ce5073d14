//! The state of a switch, in the file `switch.json`. It is written before each step, so a program that is killed at any
//! time leaves a file from which another one can continue.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_os::files::create_beside;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::failure::{FailureName, SwitchFailure};
use super::figures::{Baseline, LogPart, WatchFigures};
use super::ports::SharedPort;
use super::process::{ProcessIdentity, boot_id};
use super::service::OldUnit;

/// The name of the file of the state in the directory of the takeover.
pub const STATE_FILE: &str = "switch.json";
/// The name of the file after a rollback, when nothing needs to be continued.
const ENDED_FILE: &str = "last-switch.json";
/// The name of the file that the process in charge of the switch has locked.
const LOCK_FILE: &str = "switch.lock";
/// The name of the file with which `howdah takeover rollback` asks that process to roll back.
const REQUEST_FILE: &str = "rollback.requested";

/// How far a switch is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Howdah is being started. The old servers get all connections.
    Starting,
    /// Howdah gets all new connections and is compared with the old servers, which run without work.
    Watching,
    /// The watch has passed. The services of the machine are being changed, so Howdah starts when the machine starts.
    Keeping,
    /// The switch is complete.
    Kept,
    /// The old servers get all new connections, and Howdah finishes its requests.
    RollingBack,
    /// The old servers serve.
    RolledBack,
}

/// The reason why the old servers serve again.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum RollbackReason {
    /// Howdah did not become ready.
    RolledBackStart,
    /// The share of responses with the status 429, or of 500 or higher, is higher than before.
    RolledBackErrors,
    /// The front page of a site failed in several rounds in a row.
    RolledBackProbes,
    /// PHP processes crashed repeatedly.
    RolledBackCrashes,
    /// Front pages take much longer than before.
    RolledBackSlow,
    /// Howdah exited.
    RolledBackExit,
    /// Howdah did not report its status.
    RolledBackSilent,
    /// The user asked for it.
    RolledBackByHand,
    /// The program of the takeover was killed before Howdah served.
    RolledBackInterrupted,
    /// The machine was started again before the switch was complete.
    RolledBackReboot,
    /// An old server exited during the watch, or its sockets are not available.
    RolledBackOldServer,
}

/// Why and when the switch was rolled back.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rollback {
    /// The name of the reason.
    pub reason: RollbackReason,
    /// The figures or the error behind it, as a sentence.
    pub message: String,
    /// When it was decided, in seconds since 1970.
    pub at: u64,
}

/// The state of a switch.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SwitchState {
    /// How far the switch is.
    pub phase: Phase,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// The start of the machine in which the switch began.
    pub boot: String,
    /// How long Howdah is watched, in seconds.
    pub watch_seconds: u64,
    /// Howdah's main process.
    pub howdah: Option<ProcessIdentity>,
    /// Whether Howdah has been asked to finish its requests and exit.
    pub howdah_finishes: bool,
    /// The addresses that are switched.
    pub ports: Vec<SharedPort>,
    /// The figures of the old servers.
    pub baseline: Baseline,
    /// The latest figures of Howdah.
    pub figures: WatchFigures,
    /// Why the switch was rolled back, if it was.
    pub rollback: Option<Rollback>,
    /// The latest rollback that ended with Howdah, because an old server did not start.
    pub failed_rollback: Option<FailedRollback>,
    /// The units of the old servers, as they were before the switch.
    pub units: Vec<OldUnit>,
    /// The parts of the access logs that Howdah may have written, in this switch and in earlier ones.
    pub log_parts: Vec<LogPart>,
}

/// A rollback after which Howdah serves.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FailedRollback {
    /// Why the old server did not start.
    pub message: String,
    /// When, in seconds since 1970.
    pub at: u64,
}

impl SwitchState {
    /// Returns the state at the beginning of a switch.
    pub fn begin(
        watch_seconds: u64,
        ports: Vec<SharedPort>,
        baseline: Baseline,
        units: Vec<OldUnit>,
        log_parts: Vec<LogPart>,
    ) -> SwitchState {
        SwitchState {
            phase: Phase::Starting,
            since: now(),
            boot: boot_id(),
            watch_seconds,
            howdah: None,
            howdah_finishes: false,
            ports,
            baseline,
            figures: WatchFigures::default(),
            rollback: None,
            failed_rollback: None,
            units,
            log_parts,
        }
    }

    /// Reads the state in the directory of a takeover: that of the switch in progress, or else of the last one. Returns
    /// `None` if there has been no switch.
    ///
    /// # Errors
    /// `StateUnreadable` with what to do.
    pub fn read(directory: &Path) -> Result<Option<SwitchState>, SwitchFailure> {
        match SwitchState::read_file(directory.join(STATE_FILE))? {
            Some(state) => Ok(Some(state)),
            None => SwitchState::read_file(directory.join(ENDED_FILE)),
        }
    }

    fn read_file(path: PathBuf) -> Result<Option<SwitchState>, SwitchFailure> {
        let unreadable = |why: String| {
            let path = path.display();
            FailureName::StateUnreadable.with(format!(
                "{path}: {why}; check with `ss -ltnp` which server has the ports, stop the other one, and remove the file"
            ))
        };
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| unreadable(error.to_string())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }

    /// Enters a phase and writes the state.
    ///
    /// # Errors
    /// See [`SwitchState::write`].
    pub fn enter(&mut self, phase: Phase, directory: &Path) -> Result<(), SwitchFailure> {
        self.phase = phase;
        self.since = now();
        self.write(directory)
    }

    /// Writes the state. A reader, and the machine after a power failure, sees the former state or this one. After a
    /// rollback, `switch.json` no longer exists: the directory has no switch in progress.
    ///
    /// # Errors
    /// `StateNotWritten`, for example on a full disk.
    pub fn write(&self, directory: &Path) -> Result<(), SwitchFailure> {
        let current = directory.join(STATE_FILE);
        let (path, written) = match self.phase {
            Phase::RolledBack => {
                let path = directory.join(ENDED_FILE);
                let removed = self.replace(&path).and_then(|()| remove(&current));
                (path, removed)
            }
            _ => (current.clone(), self.replace(&current)),
        };
        written.map_err(|error| {
            FailureName::StateNotWritten.with(format!(
                "cannot write {}: {error}; free space there, or correct its permissions",
                path.display()
            ))
        })
    }

    fn replace(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        let (mut file, new) = create_beside(path, 0o600)?;
        let written = file
            .write_all(&text)
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, path))
            .and_then(|()| fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all());
        if written.is_err() {
            // The name is ours alone; after the rename it no longer exists.
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Returns whether Howdah may have connections, or processes of a switch may be at work.
    pub fn is_in_progress(&self) -> bool {
        !matches!(self.phase, Phase::Kept | Phase::RolledBack)
    }

    /// Returns whether Howdah serves alone: no old server gets the connections if Howdah does not run.
    pub fn is_complete(&self) -> bool {
        matches!(
            self.phase,
            Phase::Keeping | Phase::Kept | Phase::RollingBack
        )
    }

    /// Returns whether systemd manages old servers. If it does not, no unit is written or changed.
    pub fn is_managed(&self) -> bool {
        !self.units.is_empty()
    }

    /// Returns whether the machine has been started again since the switch began, or since this was asked last. If so,
    /// all processes in the state have exited, and their ids may belong to other processes.
    pub fn enter_present_boot(&mut self) -> bool {
        let boot = boot_id();
        if self.boot == boot {
            return false;
        }
        self.boot = boot;
        self.howdah = None;
        self.howdah_finishes = false;
        for port in &mut self.ports {
            port.owner = port.owner.exited();
            port.howdah_inodes.clear();
        }
        true
    }

    /// Ends the parts of the access logs that Howdah has written.
    pub fn end_log_parts(&mut self) {
        self.log_parts.iter_mut().for_each(LogPart::end);
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The right to change the state. The kernel releases it when its holder exits, however that happens.
#[derive(Debug)]
pub struct SwitchLock {
    _file: fs::File,
    request: PathBuf,
}

impl SwitchLock {
    /// Takes the lock. Returns `None` if another process has it.
    ///
    /// # Errors
    /// `StateNotWritten` if the file of the lock cannot be opened.
    pub fn try_take(directory: &Path) -> Result<Option<SwitchLock>, SwitchFailure> {
        SwitchLock::lock(directory, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock, and waits while another process has it.
    ///
    /// # Errors
    /// `StateNotWritten` if the file of the lock cannot be opened.
    pub fn wait(directory: &Path) -> Result<SwitchLock, SwitchFailure> {
        loop {
            if let Some(lock) = SwitchLock::lock(directory, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    fn lock(
        directory: &Path,
        operation: FlockOperation,
    ) -> Result<Option<SwitchLock>, SwitchFailure> {
        let path = directory.join(LOCK_FILE);
        let failed = |error: std::io::Error| {
            FailureName::StateNotWritten.with(format!("cannot lock {}: {error}", path.display()))
        };
        let mut options = fs::File::options();
        let file = options.create(true).truncate(false).write(true).open(&path);
        // The file can be locked on a disk that has become read-only, too.
        let file = file.or_else(|error| fs::File::open(&path).map_err(|_| error));
        let file = file.map_err(failed)?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(SwitchLock {
                _file: file,
                request: directory.join(REQUEST_FILE),
            })),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Returns whether a user has asked for a rollback.
    pub fn is_rollback_requested(&self) -> bool {
        self.request.exists()
    }

    /// Removes the request for a rollback, which has been fulfilled or came too late.
    pub fn clear_rollback_request(&self) {
        let _ = fs::remove_file(&self.request);
    }
}

/// Asks the process that has the lock to roll back.
///
/// # Errors
/// `StateNotWritten`, for example on a full disk.
pub fn request_rollback(directory: &Path) -> Result<(), SwitchFailure> {
    let path = directory.join(REQUEST_FILE);
    fs::write(&path, "").map_err(|error| {
        FailureName::StateNotWritten.with(format!("cannot write {}: {error}", path.display()))
    })
}

/// Returns the time in seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use howdah_test_support::scratch::Scratch;

    use super::*;

    #[test]
    fn state_is_read_as_it_was_written() {
        let directory = Scratch::new("switch-state");
        assert_eq!(SwitchState::read(directory.path()).unwrap(), None);
        let mut state =
            SwitchState::begin(60, Vec::new(), Baseline::default(), Vec::new(), Vec::new());
        state.enter(Phase::Watching, directory.path()).unwrap();
        assert_eq!(
            SwitchState::read(directory.path()).unwrap(),
            Some(state.clone())
        );
        assert!(state.is_in_progress() && !state.enter_present_boot());
        let names = || fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(names(), 1, "no other file is left");
        state.enter(Phase::RolledBack, directory.path()).unwrap();
        assert!(!directory.join(STATE_FILE).exists());
        assert_eq!(names(), 1);
        assert_eq!(
            SwitchState::read(directory.path()).unwrap(),
            Some(state.clone())
        );

        directory.write(STATE_FILE, "{\"phase\":");
        let error = SwitchState::read(directory.path()).unwrap_err();
        assert_eq!(error.name, FailureName::StateUnreadable);
    }

    #[test]
    fn no_process_survives_a_start_of_the_machine() {
        let own = ProcessIdentity::of(std::process::id()).unwrap();
        let port = SharedPort {
            address: "127.0.0.1:80".parse().unwrap(),
            served_by: crate::plan::ServerKind::Nginx,
            owner: own,
            inodes: Vec::new(),
            ipv6_only: false,
            was_shared: false,
            howdah_inodes: Vec::new(),
        };
        let baseline = Baseline::default();
        let mut state = SwitchState::begin(60, vec![port], baseline, Vec::new(), Vec::new());
        state.howdah = Some(own);
        state.boot = "another".to_owned();
        assert!(state.enter_present_boot() && !state.enter_present_boot());
        assert_eq!(state.howdah, None);
        let owner = state.ports[0].owner;
        assert!(!owner.is_alive() && owner.pid == own.pid);
    }

    #[test]
    fn lock_has_one_holder() {
        let directory = Scratch::new("switch-lock");
        let first = SwitchLock::try_take(directory.path()).unwrap().unwrap();
        assert!(SwitchLock::try_take(directory.path()).unwrap().is_none());
        request_rollback(directory.path()).unwrap();
        assert!(first.is_rollback_requested());
        first.clear_rollback_request();
        assert!(!first.is_rollback_requested());
        drop(first);
        assert!(SwitchLock::try_take(directory.path()).unwrap().is_some());
    }
}
