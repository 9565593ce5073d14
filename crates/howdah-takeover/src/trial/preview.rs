//! The Howdah that serves the preview: started with its own configuration, and stopped in every case. The kernel sends
//! it SIGTERM when this program exits in whatever way (`PR_SET_PDEATHSIG`), and its other processes exit with it.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use howdah_os::files::create_beside;
use rustix::process::{Pid, Signal, kill_process};

use super::configuration::ConfigurationFile;
use super::preview_configuration::{
    PREVIEW_DIRECTORY, PREVIEW_FILE, PreviewConfiguration, PreviewListener, preview_configuration,
};

/// How long Howdah may take to start, PHP included.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long Howdah may take to exit after SIGTERM before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// The time between two looks at a process or a port that offers nothing to wait for.
const POLL: Duration = Duration::from_millis(20);
/// How often a start is repeated because another program has taken one of the ports in the meantime.
const PORT_ATTEMPTS: usize = 3;
/// Howdah's exit code if an address is in use.
const ADDRESS_IN_USE: i32 = 5;
/// The maximum number of bytes of Howdah's messages that are shown.
const SHOWN_BYTES: u64 = 4 << 10;

/// A Howdah process that listens on preview ports. Dropping the value stops the process.
#[derive(Debug)]
pub struct Preview {
    child: Child,
    log: PathBuf,
    /// The addresses of the configuration, and where the preview listens for each.
    pub listeners: Vec<PreviewListener>,
    /// How the preview differs from the real server, in sentences.
    pub remarks: Vec<String>,
}

impl Preview {
    /// Starts Howdah with the configuration of a takeover, and waits until it listens at all addresses. The calling
    /// thread must exist until the preview is dropped, because Howdah is stopped when that thread exits.
    ///
    /// # Errors
    /// Returns a sentence with Howdah's own messages.
    pub fn start(
        howdah: &Path,
        directory: &Path,
        files: &[ConfigurationFile],
        first_port: Option<u16>,
    ) -> Result<Preview, String> {
        let own = directory.join(PREVIEW_DIRECTORY);
        wait_for_earlier_preview(&own)?;
        prepare_directory(&own).map_err(|error| format!("{}: {error}", own.display()))?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let made = preview_configuration(directory, files, first_port)?;
            match start_once(howdah, directory, made) {
                Err(StartFailure::AddressInUse(_)) if attempts < PORT_ATTEMPTS => {}
                Err(StartFailure::AddressInUse(why) | StartFailure::Other(why)) => return Err(why),
                Ok(preview) => return Ok(preview),
            }
        }
    }

    /// Returns whether Howdah is still running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the length of Howdah's log, in bytes.
    pub fn log_length(log: &Path) -> u64 {
        fs::metadata(log).map_or(0, |metadata| metadata.len())
    }

    /// Returns the path of Howdah's log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the last lines of Howdah's log.
    pub fn last_messages(&self) -> String {
        read_from(&self.log, u64::MAX)
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        // The process has not been reaped, so its id belongs to no other process.
        if self.is_running() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            if wait(&mut self.child, STOP_TIMEOUT).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

enum StartFailure {
    AddressInUse(String),
    Other(String),
}

/// Waits until the preview of a trial that was killed has exited. It still responds at its control socket until then.
fn wait_for_earlier_preview(own: &Path) -> Result<(), String> {
    let until = Instant::now() + STOP_TIMEOUT;
    let control = own.join("control.sock");
    while UnixStream::connect(&control).is_ok() {
        if Instant::now() >= until {
            let program = own.join("howdah.pid");
            return Err(format!(
                "the Howdah of an earlier trial still runs; end the process in {}",
                program.display()
            ));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Empties the directory of the preview. What an earlier preview has left there is not needed.
fn prepare_directory(own: &Path) -> io::Result<()> {
    match fs::remove_dir_all(own) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut builder = fs::DirBuilder::new();
    // The server's user reaches nothing in it except through descriptors that the master has opened.
    builder.mode(0o755).create(own)?;
    builder.mode(0o700).create(own.join("certificates"))
}

/// Writes a file that only its owner can read: the configuration may contain passwords.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let (mut file, new) = create_beside(path, 0o600)?;
    let written = file.write_all(text.as_bytes());
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn start_once(
    howdah: &Path,
    directory: &Path,
    made: PreviewConfiguration,
) -> Result<Preview, StartFailure> {
    let cannot = |what: &Path, error: &io::Error| {
        StartFailure::Other(format!("{}: {error}", what.display()))
    };
    let configuration = directory.join(PREVIEW_FILE);
    write_private(&configuration, &made.text).map_err(|error| cannot(&configuration, &error))?;
    let log = directory.join(PREVIEW_DIRECTORY).join("howdah.log");
    let output = fs::File::create(&log).map_err(|error| cannot(&log, &error))?;
    let errors = output.try_clone().map_err(|error| cannot(&log, &error))?;
    let mut command = Command::new(howdah);
    command.arg("serve").arg("--config").arg(&configuration);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    // A signal that the terminal sends to this program must not reach Howdah before the trial has ended.
    command.process_group(0);
    howdah_os::descriptors::exit_with_parent(&mut command, Signal::TERM);
    let child = command.spawn().map_err(|error| cannot(howdah, &error))?;
    let mut preview = Preview {
        child,
        log,
        listeners: made.listeners,
        remarks: made.remarks,
    };
    wait_until_ready(&mut preview)?;
    Ok(preview)
}

fn wait_until_ready(preview: &mut Preview) -> Result<(), StartFailure> {
    let until = Instant::now() + START_TIMEOUT;
    let mut waiting: Vec<_> = preview.listeners.iter().map(|one| one.preview).collect();
    loop {
        if let Ok(Some(status)) = preview.child.try_wait() {
            let messages = preview.last_messages();
            let text = format!("Howdah exited with {status}:\n{messages}");
            return Err(match status.code() {
                Some(ADDRESS_IN_USE) => StartFailure::AddressInUse(text),
                _ => StartFailure::Other(text),
            });
        }
        waiting.retain(|address| TcpStream::connect_timeout(address, POLL).is_err());
        if waiting.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let messages = preview.last_messages();
            return Err(StartFailure::Other(format!(
                "Howdah did not listen within {} s:\n{messages}",
                START_TIMEOUT.as_secs()
            )));
        }
        std::thread::sleep(POLL);
    }
}

/// Waits for a process to exit.
fn wait(child: &mut Child, time: Duration) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        // waitpid(2) has no deadline.
        std::thread::sleep(POLL);
    }
    None
}

/// Reads a log from a position to its end, but not more than its last part.
pub fn read_from(log: &Path, position: u64) -> String {
    let read = || {
        let mut file = fs::File::open(log)?;
        let end = file.metadata()?.len();
        let earliest = end.saturating_sub(SHOWN_BYTES);
        let begin = if position == u64::MAX {
            earliest
        } else {
            position.max(earliest)
        };
        file.seek(SeekFrom::Start(begin.min(end)))?;
        let mut bytes = Vec::new();
        file.take(SHOWN_BYTES).read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}

/// Returns the program `howdah` that belongs to this one: beside it, or in `bin` of the same installation, or else the
/// one in `PATH`.
pub fn howdah_program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let directories = own.ancestors().skip(1).take(3);
    let candidates = directories.flat_map(|one| [one.join("howdah"), one.join("bin/howdah")]);
    let found = candidates.into_iter().find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from("howdah"))
}
