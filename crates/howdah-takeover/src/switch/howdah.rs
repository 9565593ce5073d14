//! The Howdah that takes over: started with the shared sockets as a service manager would start it, asked for its
//! counters, and stopped.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use howdah_os::descriptors::{pass_listening_sockets, start_with_no_signal_blocked};
use rustix::process::Signal;
use serde_json::Value;

use super::criteria::Counters;
use super::failure::{FailureName, SwitchFailure};
use super::figures::is_error;
use super::process::ProcessIdentity;
use crate::plan::CONFIGURATION;
use crate::trial::preview::{howdah_program, read_from};

/// How long Howdah may take to start: a hundred pools are started one after the other.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// How long `howdah status` may take.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);
/// How long Howdah may take for its running requests (`timeouts.drain` and a little more), and then to stop at once.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// The time between two looks at a process that offers nothing to wait for.
const POLL: Duration = Duration::from_millis(20);
/// The name of the file with Howdah's messages in the directory of the takeover.
const LOG_FILE: &str = "howdah.log";
/// The directory for files that a restart of the machine removes (file-hierarchy(7)).
const RUNTIME_DIRECTORY: &str = "/run";
/// What a service has and the shell of an administrator may not have: the umask with which services start, and as many
/// descriptors as in the unit, or as many as are allowed. `LISTEN_PID` is the id of the process, which only the process
/// itself knows (sd_listen_fds(3)).
const START_SCRIPT: &str = "umask 022
{ ulimit -Sn 65536 || ulimit -n 65536 || ulimit -Sn \"$(ulimit -Hn)\"; } 2>/dev/null
LISTEN_PID=$$ exec \"$@\"";
/// The name of the socket to which Howdah reports that it is ready (sd_notify(3)).
const READY_SOCKET: &str = "ready.sock";

/// Starts and asks the Howdah of a takeover.
#[derive(Clone, Debug)]
pub struct Howdah {
    program: PathBuf,
    directory: PathBuf,
}

/// A Howdah that has been started and may not be ready yet.
#[derive(Debug)]
pub struct StartingHowdah {
    child: Child,
    /// Its main process.
    pub process: ProcessIdentity,
    ready: UnixDatagram,
    socket: PathBuf,
    log_before: u64,
    log: PathBuf,
}

impl Howdah {
    /// Returns the Howdah whose configuration is in the directory of a takeover.
    pub fn of(directory: &Path) -> Howdah {
        let directory = directory.canonicalize();
        Howdah {
            program: howdah_program(),
            directory: directory.unwrap_or_default(),
        }
    }

    fn configuration(&self) -> PathBuf {
        self.directory.join(CONFIGURATION)
    }

    /// Starts Howdah with listening sockets. It survives this program.
    ///
    /// # Errors
    /// `HowdahMissing` or `HowdahDoesNotStart`.
    pub fn start(&self, sockets: Vec<OwnedFd>) -> Result<StartingHowdah, SwitchFailure> {
        let cannot = |what: &Path, error: io::Error| {
            FailureName::HowdahDoesNotStart.with(format!("{}: {error}", what.display()))
        };
        let bind = |socket: &Path| {
            let _ = fs::remove_file(socket);
            UnixDatagram::bind(socket)
        };
        let ready = self.in_directory(READY_SOCKET, bind);
        let (socket, ready) = ready.map_err(|(path, error)| cannot(&path, error))?;
        let open = |log: &Path| File::options().create(true).append(true).open(log);
        let opened = self.in_directory(LOG_FILE, open);
        let (log, output) = opened.map_err(|(path, error)| cannot(&path, error))?;
        let log_before = output.metadata().map_or(0, |metadata| metadata.len());
        let mut command = self
            .serve_command(&socket, sockets, output)
            .map_err(|error| cannot(&self.program, error))?;
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => FailureName::HowdahMissing.with(format!(
                "{} was not found; install the package howdah",
                self.program.display()
            )),
            _ => cannot(&self.program, error),
        })?;
        let process = ProcessIdentity::of(child.id());
        let process = process.ok_or_else(|| {
            let why = io::Error::other(format!(
                "it exited at once:\n{}",
                read_from(&log, log_before)
            ));
            cannot(&self.program, why)
        })?;
        Ok(StartingHowdah {
            child,
            process,
            ready,
            socket,
            log_before,
            log,
        })
    }

    /// Makes a file in the directory of the takeover, or else in `/run`: Howdah is to serve even if that disk has become
    /// read-only. Returns its path.
    fn in_directory<T>(
        &self,
        name: &str,
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(PathBuf, T), (PathBuf, io::Error)> {
        let usual = self.directory.join(name);
        match make(&usual) {
            Ok(made) => Ok((usual, made)),
            Err(error) => {
                let other = Path::new(RUNTIME_DIRECTORY).join(format!("howdah-takeover-{name}"));
                let made = make(&other).map_err(|_| (usual, error))?;
                Ok((other, made))
            }
        }
    }

    fn serve_command(
        &self,
        ready: &Path,
        sockets: Vec<OwnedFd>,
        output: File,
    ) -> io::Result<Command> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", START_SCRIPT, "sh"]);
        command.arg(&self.program).arg("serve").arg("--config");
        command.arg(self.configuration());
        command.env("LISTEN_FDS", sockets.len().to_string());
        command.env("LISTEN_FDNAMES", vec!["takeover"; sockets.len()].join(":"));
        command.env("NOTIFY_SOCKET", ready);
        command.current_dir(&self.directory);
        command
            .stdin(Stdio::null())
            .stderr(output.try_clone()?)
            .stdout(output);
        // A signal that the terminal sends to this program does not reach Howdah.
        command.process_group(0);
        start_with_no_signal_blocked(&mut command);
        pass_listening_sockets(&mut command, sockets)?;
        Ok(command)
    }

    /// Returns the main process of the Howdah server that serves with this configuration, however it was started.
    pub fn running(&self) -> Option<ProcessIdentity> {
        let status = self.status()?;
        ProcessIdentity::of(u32::try_from(status["master"].as_u64()?).ok()?)
    }

    /// Returns the counters of Howdah. Returns `None` if it does not report them in time.
    pub fn counters(&self) -> Option<Counters> {
        Some(counters(&self.status()?))
    }

    fn status(&self) -> Option<Value> {
        let mut command = Command::new(&self.program);
        command
            .args(["status", "--json", "--config"])
            .arg(self.configuration());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let output = child.stdout.take()?;
        let reader = std::thread::spawn(move || io::read_to_string(output));
        let exited = wait_for(STATUS_TIMEOUT, || matches!(child.try_wait(), Ok(Some(_))));
        if !exited {
            let _ = child.kill();
        }
        let status = child.wait().ok()?;
        let text = reader.join().ok()?.ok()?;
        status.success().then(|| serde_json::from_str(&text).ok())?
    }
}

/// Adds up the counters in the output of `howdah status --json`.
fn counters(status: &Value) -> Counters {
    let pairs = |value: &Value| -> Vec<(Value, u64)> {
        let rows = value.as_array().into_iter().flatten();
        rows.filter_map(|row| Some((row[0].clone(), row[1].as_u64()?)))
            .collect()
    };
    let mut counters = Counters::default();
    for (status, count) in pairs(&status["statuses"]) {
        counters.requests += count;
        if status.as_u64().is_some_and(is_error) {
            counters.errors += count;
        }
    }
    let failures = pairs(&status["failures"]).into_iter();
    let crashes = failures.filter(|(name, _)| name == "ChildDied");
    counters.crashes = crashes.map(|(_, count)| count).sum();
    counters
}

impl Drop for StartingHowdah {
    fn drop(&mut self) {
        // Howdah does not mind that no process listens to its later messages.
        let _ = fs::remove_file(&self.socket);
    }
}

impl StartingHowdah {
    /// Waits until Howdah serves. `is_cancelled` is asked repeatedly.
    ///
    /// # Errors
    /// `HowdahDoesNotStart` with Howdah's own messages if it exits or takes too long, or the start is cancelled.
    pub fn wait(mut self, mut is_cancelled: impl FnMut() -> bool) -> Result<(), SwitchFailure> {
        let failed = |what: String, log: &Path, from: u64| {
            let messages = read_from(log, from);
            FailureName::HowdahDoesNotStart.with(format!("{what}:\n{}", messages.trim_end()))
        };
        let until = Instant::now() + START_TIMEOUT;
        // The kernel refuses only a duration of zero.
        let _ = self.ready.set_read_timeout(Some(POLL));
        let mut message = [0; 4096];
        loop {
            if let Ok(length) = self.ready.recv(&mut message)
                && message[..length]
                    .split(|byte| *byte == b'\n')
                    .any(|line| line == b"READY=1")
            {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(failed(
                    format!("Howdah exited ({status})"),
                    &self.log,
                    self.log_before,
                ));
            }
            if Instant::now() > until {
                let what = format!("Howdah was not ready within {} s", START_TIMEOUT.as_secs());
                return Err(failed(what, &self.log, self.log_before));
            }
            if is_cancelled() {
                return Err(FailureName::HowdahDoesNotStart.with("the start was cancelled"));
            }
        }
    }
}

/// Lets a Howdah server finish its requests and exit. A second call would end the requests at once.
pub fn ask_to_finish(process: ProcessIdentity) {
    process.signal(Signal::QUIT);
}

/// Waits until a Howdah that has been asked to finish has exited. If it takes too long, it is asked to stop at once, and
/// then killed.
pub fn wait_until_finished(process: ProcessIdentity) {
    if !wait_for_exit(process, DRAIN_TIMEOUT) {
        stop_soon(process);
    }
}

/// Stops a Howdah server, and gives running requests only `timeouts.stop`. Kills it if that takes too long.
pub fn stop_soon(process: ProcessIdentity) {
    process.signal(Signal::TERM);
    if !wait_for_exit(process, STOP_TIMEOUT) {
        process.signal(Signal::KILL);
        wait_for_exit(process, STOP_TIMEOUT);
    }
}

/// Waits until a process has exited; returns whether it has.
pub fn wait_for_exit(process: ProcessIdentity, timeout: Duration) -> bool {
    wait_for(timeout, || !process.is_alive())
}

/// Waits until a condition holds; returns whether it does.
pub fn wait_for(timeout: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + timeout;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_added_up_from_the_status() {
        let status = json!({
            "statuses": [[200, 89], [404, 5], [429, 1], [500, 3], [503, 2]],
            "failures": [["NotFound", 5], ["ChildDied", 2]],
        });
        let expected = Counters {
            requests: 100,
            errors: 6,
            crashes: 2,
        };
        assert_eq!(counters(&status), expected);
        assert_eq!(counters(&json!({})), Counters::default());
    }
}
