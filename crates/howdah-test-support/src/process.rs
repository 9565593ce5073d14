//! One started server: its process group, its output, and its exit. This module does not depend on HTTP or on the kind
//! of server.
//!
//! Signals go to the process group by id, never by name. A watcher (a shell blocked on a pipe from the test) terminates
//! the group when the test process dies without dropping the value.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How long a server may take to exit after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(10);
/// The watcher's script. When the pipe closes, it sends SIGTERM to the group `$0`, and SIGKILL three seconds later.
const WATCHER: &str =
    "read -r _; kill -s TERM -- -$0 2>/dev/null; sleep 3; kill -s KILL -- -$0 2>/dev/null";

/// A running server with everything that it has written to stdout and stderr.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    watcher: Child,
    printed: Arc<CapturedOutput>,
    ended: Option<ExitStatus>,
}

#[derive(Debug, Default)]
struct CapturedOutput {
    text: Mutex<OutputText>,
    grew: Condvar,
}

#[derive(Debug, Default)]
struct OutputText {
    log: String,
    open_pipes: u8,
}

impl Process {
    /// Starts `command` in its own process group, and collects its standard output and standard error.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name} ({command:?}): {error}"));
        let watcher = Command::new("sh")
            .args(["-c", WATCHER, &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        let printed = Arc::new(CapturedOutput::default());
        printed.lock().open_pipes = 2;
        collect(child.stdout.take().expect("stdout is piped"), &printed);
        collect(child.stderr.take().expect("stderr is piped"), &printed);
        Process {
            name: name.to_owned(),
            child,
            watcher,
            printed,
            ended: None,
        }
    }

    /// Returns the process id of the server's first process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns everything that the server has printed so far.
    pub fn log(&self) -> String {
        self.printed.lock().log.clone()
    }

    /// Waits until `wanted` returns a value for a printed line, and returns that value.
    ///
    /// # Panics
    /// If the server exits or `deadline` passes before that. The message contains the server's log.
    pub fn wait_for_line<T>(
        &self,
        what: &str,
        deadline: Duration,
        wanted: impl Fn(&str) -> Option<T>,
    ) -> T {
        let until = Instant::now() + deadline;
        let mut text = self.printed.lock();
        loop {
            if let Some(found) = text.log.lines().find_map(&wanted) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero() && text.open_pipes > 0,
                "{} {} before it printed {what}. Its log:\n{}",
                self.name,
                if left.is_zero() {
                    "took too long"
                } else {
                    "exited"
                },
                text.log
            );
            (text, _) = self
                .printed
                .grew
                .wait_timeout(text, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether the first process is still running.
    pub fn is_running(&mut self) -> bool {
        self.try_reap().is_none()
    }

    /// Sends `signal` to the first process only, as an administrator would.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            // The process may have exited in the meantime, but it has not been reaped, so no other process has its id.
            let _ = kill_process(self.group(), signal);
        }
    }

    /// Waits for the server to exit by itself.
    ///
    /// # Errors
    /// Returns the log so far if `deadline` passes before that.
    pub fn wait_exit(&mut self, deadline: Duration) -> Result<ExitStatus, String> {
        let until = Instant::now() + deadline;
        loop {
            if let Some(status) = self.try_reap() {
                return Ok(status);
            }
            if Instant::now() >= until {
                return Err(format!(
                    "{} is still running after {deadline:?}:\n{}",
                    self.name,
                    self.log()
                ));
            }
            // waitpid(2) has no deadline, so it is called repeatedly, with a short sleep between the calls.
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM, and SIGKILL to the whole group once `GRACE` has passed.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let status = match self.wait_exit(GRACE) {
            Ok(status) => status,
            Err(_) => {
                eprintln!("{} does not exit on SIGTERM and is killed", self.name);
                let _ = kill_process_group(self.group(), Signal::KILL);
                self.wait_exit(GRACE)
                    .unwrap_or_else(|_| ExitStatus::from_raw(9))
            }
        };
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        status
    }

    fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    fn group(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- the last lines of {}:", self.name);
            for line in tail.into_iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}

impl CapturedOutput {
    fn lock(&self) -> std::sync::MutexGuard<'_, OutputText> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Appends the data from `pipe` to the log until the pipe closes.
fn collect(pipe: impl Read + Send + 'static, printed: &Arc<CapturedOutput>) {
    let printed = Arc::clone(printed);
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while let Ok(read) = reader.read_until(b'\n', &mut line)
            && read > 0
        {
            printed.lock().log.push_str(&String::from_utf8_lossy(&line));
            printed.grew.notify_all();
            line.clear();
        }
        printed.lock().open_pipes -= 1;
        printed.grew.notify_all();
    });
}

/// Polls `condition` until it holds.
///
/// # Panics
/// If `deadline` passes before that. The message names `what`.
pub fn wait_until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + deadline;
    while !condition() {
        assert!(Instant::now() < until, "waited {deadline:?} for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs a program until it exits. Returns its exit code (-1 if a signal ended it), standard output and standard error.
///
/// # Panics
/// If the program cannot be started, or if its output is not UTF-8.
pub fn run_to_exit(command: &mut Command) -> (i32, String, String) {
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
    let code = output.status.code().unwrap_or(-1);
    (code, text(output.stdout), text(output.stderr))
}
