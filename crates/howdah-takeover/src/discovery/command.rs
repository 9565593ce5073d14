//! Runs the programs that are asked for their version or for the built-in path of their configuration, with a limit on
//! time and output. A program that an unprivileged user could have written is never run.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The maximum length of each of the two outputs that is read, in bytes.
const MAX_OUTPUT_BYTES: u64 = 4 << 20;

/// What a program has printed.
#[derive(Debug)]
pub struct CommandOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a command until it exits, and kills it after `limit`.
///
/// # Errors
/// Returns the error of the system, or `TimedOut`.
pub fn run(command: &mut Command, limit: Duration) -> io::Result<CommandOutput> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let waited = wait(&mut child, limit);
    if waited.is_err() {
        // The process may have exited by itself in the meantime.
        let _ = child.kill();
    }
    let status = child.wait()?;
    waited?;
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader
            .and_then(|reader| reader.join().ok())
            .unwrap_or_default()
    };
    Ok(CommandOutput {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// Reads the output in a thread of its own, because a program that fills one pipe would wait for us forever.
fn collect(pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut pipe = pipe;
        // What has been read before an error is still useful.
        let _ = (&mut pipe).take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
        let _ = io::copy(&mut pipe, &mut io::sink());
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, limit: Duration) -> io::Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
    let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut descriptors, Some(&limit))? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

/// Runs a server's program with one option, in an environment with nothing but a `PATH`. Returns both outputs, or
/// `None` if the program may not be run, does not start, or does not exit.
pub fn ask(program: &Path, option: &str) -> Option<String> {
    if !is_trusted(program) {
        return None;
    }
    let mut command = Command::new(program);
    command
        .arg(option)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = run(&mut command, Duration::from_secs(10)).ok()?;
    Some(output.stdout + "\n" + &output.stderr)
}

/// Returns whether only root, or the user of this process, can have written a program.
pub fn is_trusted(program: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    fs::metadata(program).is_ok_and(|meta| {
        meta.is_file() && (meta.uid() == 0 || meta.uid() == own) && meta.mode() & 0o022 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_killed_after_its_limit() {
        let mut command = Command::new("sleep");
        let error = run(command.arg("60"), Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 9000000 /dev/zero; echo done >&2; exit 3"]);
        let output = run(&mut command, Duration::from_secs(60)).unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stderr, "done\n");
        assert_eq!(output.stdout.len() as u64, MAX_OUTPUT_BYTES);
    }

    #[test]
    fn program_that_others_can_write_is_not_run() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = howdah_test_support::scratch::Scratch::new("trusted");
        let program = scratch.write("nginx", "#!/bin/sh\necho run\n");
        howdah_test_support::executable::make_executable(&program);
        assert_eq!(ask(&program, "-V").as_deref(), Some("run\n\n"));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(ask(&program, "-V"), None);
    }
}
