//! A started program: its session, its log file and its end. This module does not know which server the program is.
//!
//! Each program begins a session (setsid(2)), which all its descendants share, even those in process groups of their
//! own. The lab counts and ends them together by its id. A watcher (a shell blocked on a pipe from the lab) ends the
//! program when the lab is killed, so nothing is left running.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::LabError;
use crate::usage::{MemoryMeasurement, ResourceUsage, all_process_stats, session_lives, usage_of};

/// The time that a program has to exit after SIGTERM.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that a program has to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval at which a condition is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The number of lines at the end of a log that a message shows.
const LOG_TAIL_LINES: usize = 20;

const WATCHER_SCRIPT: &str =
    "read -r _; kill -s TERM -- -$0 2>/dev/null; sleep 3; kill -s KILL -- -$0 2>/dev/null";

/// Holds a program back until its watcher runs: otherwise a program that is started just when the lab is killed would
/// be left running. When the lab ends, the watcher and the gate read end-of-file from their input.
const GATE_SCRIPT: &str = "read -r _ && exec \"$@\" </dev/null";

/// The user that the programs run as: never root, whichever user started the lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// The same user as the lab's.
    Ourselves,
    /// Another user, because the lab runs as root.
    Other {
        /// The user's id.
        uid: u32,
        /// The group's id.
        gid: u32,
    },
}

impl RunAs {
    /// Chooses `www-data` for root, and the lab's own user otherwise.
    pub fn choose() -> Result<RunAs, LabError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(RunAs::Ourselves);
        }
        let path = Path::new("/etc/passwd");
        let accounts = fs::read_to_string(path).map_err(LabError::file(path))?;
        let account = accounts.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == "www-data").then_some(())?;
            let uid = fields.nth(1)?.parse().ok()?;
            Some((uid, fields.next()?.parse().ok()?))
        });
        match account {
            Some((uid, gid)) => Ok(RunAs::Other { uid, gid }),
            None => Err(LabError::NotHere {
                what: "the user www-data, as which the stacks run when root starts them,"
                    .to_owned(),
                install: "run the comparison as an ordinary user".to_owned(),
            }),
        }
    }

    fn apply(self, command: &mut Command) {
        if let RunAs::Other { uid, gid } = self {
            // The standard library also drops the supplementary groups.
            command.uid(uid).gid(gid);
        }
    }
}

/// A running program. Dropping it ends its whole session.
#[derive(Debug)]
pub struct LabProcess {
    name: String,
    child: Child,
    watcher: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl LabProcess {
    /// Starts `command` in a session of its own; its standard output and standard error go to the file `log`.
    pub fn start(
        name: &str,
        command: &Command,
        log: PathBuf,
        run_as: RunAs,
    ) -> Result<LabProcess, LabError> {
        let file = File::create(&log).map_err(LabError::file(&log))?;
        if let RunAs::Other { uid, gid } = run_as {
            // Programs that log to /dev/stderr open the file again.
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).map_err(LabError::file(&log))?;
        }
        let copy = file.try_clone().map_err(LabError::file(&log))?;
        let text = format!("{command:?}");
        let refused = |error: std::io::Error| LabError::DoesNotStart {
            program: name.to_owned(),
            why: format!("{text}: {error}"),
            log: String::new(),
        };
        // setsid(1) executes the program in place of itself, because it is not a group leader. env(1) unblocks signals
        // that our own caller blocked in order to read them from a descriptor: `php -S` and other programs would never
        // receive a SIGTERM.
        let mut session = Command::new("sh");
        session.args(["-c", GATE_SCRIPT, "sh", "setsid", "--"]);
        session.args(["env", "--default-signal", "--"]);
        session.arg(command.get_program());
        session.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            session.current_dir(directory);
        }
        run_as.apply(&mut session);
        session.stdin(Stdio::piped()).stdout(file).stderr(copy);
        let mut child = session.spawn().map_err(&refused)?;
        let watcher = Command::new("sh")
            .args(["-c", WATCHER_SCRIPT, &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let watcher = match watcher {
            Ok(watcher) => watcher,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(refused(error));
            }
        };
        let gate = child.stdin.take();
        let process = LabProcess {
            name: name.to_owned(),
            child,
            watcher,
            log,
            ended: None,
        };
        let opened = gate.map_or(Ok(()), |mut gate| gate.write_all(b"\n"));
        opened.map_err(refused).map(|()| process)
    }

    /// Returns the program's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the session's id, which is that of the first process.
    pub fn session(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `condition` holds.
    pub fn wait_for(
        &mut self,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), LabError> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if condition() {
                return Ok(());
            }
            let why = match self.check_alive() {
                Err(LabError::Died { how, .. }) => format!("it exited ({how})"),
                _ if Instant::now() > until => {
                    format!("no {what} within {} s", START_TIMEOUT.as_secs())
                }
                _ => {
                    std::thread::sleep(POLL_INTERVAL);
                    continue;
                }
            };
            return Err(LabError::DoesNotStart {
                program: self.name.clone(),
                why,
                log: self.log_tail(),
            });
        }
    }

    /// Waits until a program accepts connections at `address`.
    pub fn wait_for_listener(&mut self, address: SocketAddr) -> Result<(), LabError> {
        self.wait_for(&format!("listener on {address}"), || {
            TcpStream::connect(address).is_ok()
        })
    }

    /// Checks that the program is still running.
    ///
    /// # Errors
    /// [`LabError::Died`], with the last lines of its log.
    pub fn check_alive(&mut self) -> Result<(), LabError> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        match self.ended {
            None => Ok(()),
            Some(status) => Err(LabError::Died {
                program: self.name.clone(),
                how: status.to_string(),
                log: self.log_tail(),
            }),
        }
    }

    /// Returns the last lines of the program's log.
    pub fn log_tail(&self) -> String {
        let text = tail_of(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    /// Returns the current usage of the session's processes.
    pub fn usage(&self) -> ResourceUsage {
        let [usage] = usage_of([&[self.session()]], MemoryMeasurement::Measure);
        usage
    }

    fn signal_all(&self, signal: Signal) {
        for stat in all_process_stats() {
            if stat.session == self.session()
                && let Some(pid) = Pid::from_raw(stat.pid)
            {
                // The process belonged to this session a moment ago. If another process has its number by now, that
                // process has the same user and was started within this loop.
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn exits_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if self.check_alive().is_err() && !session_lives(self.session()) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        // The first process ends its children; some servers leave other processes of their group behind.
        if self.ended.is_none() {
            let first = Pid::from_child(&self.child);
            // Until setsid(1) has run, the group does not exist.
            if kill_process_group(first, Signal::TERM).is_err() {
                let _ = kill_process(first, Signal::TERM);
            }
        }
        if !self.exits_within(TERMINATION_TIMEOUT) {
            self.signal_all(Signal::KILL);
            self.exits_within(TERMINATION_TIMEOUT);
        }
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
    }
}

fn tail_of(path: &Path) -> std::io::Result<String> {
    const MOST: u64 = 16 * 1024;
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_exits_at_once_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = LabProcess::start(
            "shell",
            Command::new("sh").args(["-c", "echo cannot bind >&2; exit 3"]),
            folder.path().join("log"),
            RunAs::Ourselves,
        )
        .unwrap();
        let error = process.wait_for("miracle", || false).unwrap_err();
        assert_eq!(error.name(), "DoesNotStart");
        let text = error.to_string();
        assert!(text.contains("exit status: 3"), "{text}");
        assert!(text.contains("| cannot bind"), "{text}");
    }

    #[test]
    fn usage_counts_several_sessions_in_one_pass() {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str| {
            let log = folder.path().join(name);
            let mut command = Command::new("sleep");
            LabProcess::start(name, command.arg("60"), log, RunAs::Ourselves).unwrap()
        };
        let programs = [start("one"), start("two")];
        let [one, two] = [programs[0].session(), programs[1].session()];
        // Until setsid(1) has run, the processes belong to our session.
        let until = Instant::now() + START_TIMEOUT;
        while !(session_lives(one) && session_lives(two)) && Instant::now() < until {
            std::thread::yield_now();
        }
        let groups = [&[one, two][..], &[two], &[]];
        let found = usage_of(groups, MemoryMeasurement::Measure).map(|usage| usage.processes);
        assert_eq!(found, [2, 1, 0]);
        let [unread] = usage_of([&[one]], MemoryMeasurement::Skip);
        assert_eq!((unread.processes, unread.memory), (1, 0));
    }

    #[test]
    fn dropped_program_ends_its_whole_session() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!(
            "set -m; (trap '' TERM; touch {}; while :; do sleep 60; done) & wait",
            ready.display()
        );
        let mut process = LabProcess::start(
            "family",
            Command::new("sh").args(["-c", &script]),
            folder.path().join("log"),
            RunAs::Ourselves,
        )
        .unwrap();
        process.wait_for("child", || ready.exists()).unwrap();
        let session = process.session();
        assert!(process.usage().processes >= 2);
        drop(process);
        assert!(!session_lives(session));
    }
}
