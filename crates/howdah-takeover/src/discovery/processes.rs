//! The processes of this machine, as `/proc` shows them. Every text in `/proc` may be chosen by an unprivileged user: the
//! name of a process may contain any character, and its arguments may claim that it is another program. Only the path of
//! its program and its user are facts.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use crate::proc::ProcessStat;

/// The maximum number of bytes of a process's arguments that are read.
const MAX_ARGUMENT_BYTES: u64 = 64 << 10;

/// A process of this machine, as it was when `/proc` was read.
#[derive(Clone, Debug)]
pub struct Process {
    /// The id of the process.
    pub pid: u32,
    /// The id of its parent.
    pub parent: u32,
    /// When it started, in clock ticks since the machine did (field 22 of `/proc/PID/stat`).
    pub started: u64,
    /// Its effective user; `None` if `/proc` does not show it.
    pub user: Option<u32>,
    /// Its program; `None` if this process may not see it.
    pub program: Option<PathBuf>,
    /// Its arguments. Programs such as nginx replace them by a title.
    pub arguments: Vec<String>,
}

impl Process {
    /// Reads one process.
    ///
    /// # Errors
    /// Returns the system's error, in particular if the process has exited.
    pub fn read(pid: u32) -> io::Result<Process> {
        let ProcessStat {
            parent, started, ..
        } = ProcessStat::read(pid)?;
        let status = fs::read_to_string(directory(pid).join("status")).unwrap_or_default();
        Ok(Process {
            pid,
            parent,
            started,
            user: effective_user(&status),
            program: fs::read_link(directory(pid).join("exe")).ok(),
            arguments: arguments(pid)?,
        })
    }

    /// Returns the name of its program, without the mark of a program whose file has been replaced. Returns the first
    /// word of its arguments if the program is not visible.
    pub fn name(&self) -> &str {
        let file = self.program.as_deref().and_then(Path::file_name);
        let file = file.and_then(|name| name.to_str());
        match file {
            Some(name) => name.trim_end_matches(" (deleted)"),
            None => {
                let first = self.arguments.first().map_or("", String::as_str);
                let word = first.split([' ', ':']).next().unwrap_or_default();
                word.rsplit('/').next().unwrap_or_default()
            }
        }
    }

    /// Returns the path of its program, and whether the file has been replaced since the process started.
    pub fn program_file(&self) -> Option<(PathBuf, bool)> {
        let path = self.program.as_deref()?;
        match path
            .to_str()
            .and_then(|path| path.strip_suffix(" (deleted)"))
        {
            Some(former) => Some((former.into(), true)),
            None => Some((path.to_owned(), false)),
        }
    }

    /// Returns the title that the program has given itself, or its arguments in one text.
    pub fn title(&self) -> String {
        self.arguments.join(" ")
    }

    /// Returns the target of one of its links in `/proc`, such as `ns/net` or `cwd`.
    pub fn link(&self, name: &str) -> Option<PathBuf> {
        fs::read_link(directory(self.pid).join(name)).ok()
    }

    /// Returns the variables of the environment that it was started with, as far as they are visible.
    pub fn environment(&self) -> Vec<(String, String)> {
        let bytes = read_bounded(&directory(self.pid).join("environ")).unwrap_or_default();
        let words = bytes.split(|byte| *byte == 0);
        let words = words.filter_map(|word| std::str::from_utf8(word).ok()?.split_once('='));
        words
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Returns the unit of systemd in whose control group it is: the last part of that group that is a service. The unit may
    /// be that of another program, such as sshd or cron, which has started it.
    pub fn unit(&self) -> Option<String> {
        let text = fs::read_to_string(directory(self.pid).join("cgroup")).ok()?;
        let parts = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let mut services = parts
            .flat_map(|path| path.split('/').rev())
            .filter(|part| part.ends_with(".service"));
        services.next().map(str::to_owned)
    }

    /// Returns when it started.
    pub fn start_time(&self) -> SystemTime {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let since_boot = Duration::from_millis(self.started.saturating_mul(1000) / ticks);
        boot_time() + since_boot
    }
}

/// Returns when the machine started.
fn boot_time() -> SystemTime {
    let uptime = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(uptime.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(uptime.tv_nsec).unwrap_or_default();
    SystemTime::now() - Duration::new(seconds, nanoseconds)
}

fn directory(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

/// The processes of the machine, by id.
#[derive(Debug, Default)]
pub struct Processes {
    all: HashMap<u32, Process>,
}

impl Processes {
    /// Reads all processes. Those that exit meanwhile are skipped.
    ///
    /// # Errors
    /// Returns the system's error if `/proc` cannot be read.
    pub fn read() -> io::Result<Processes> {
        let entries = fs::read_dir("/proc")?.flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let all = pids.filter_map(|pid| Some((pid, Process::read(pid).ok()?)));
        Ok(Processes { all: all.collect() })
    }

    /// Returns a process.
    pub fn get(&self, pid: u32) -> Option<&Process> {
        self.all.get(&pid)
    }

    /// Returns all processes in the order of their ids.
    pub fn all(&self) -> Vec<&Process> {
        let mut all: Vec<&Process> = self.all.values().collect();
        all.sort_by_key(|process| process.pid);
        all
    }

    /// Returns the processes that a process has started.
    pub fn children(&self, pid: u32) -> Vec<&Process> {
        let all = self.all().into_iter();
        all.filter(|process| process.parent == pid).collect()
    }
}

/// Returns the effective user in the text of `/proc/PID/status`. The kernel escapes line breaks in the name there.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn arguments(pid: u32) -> io::Result<Vec<String>> {
    let bytes = read_bounded(&directory(pid).join("cmdline"))?;
    let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    let words = text.split(|byte| *byte == 0);
    let word = |word: &[u8]| {
        std::ffi::OsString::from_vec(word.to_vec())
            .to_string_lossy()
            .into_owned()
    };
    let mut words: Vec<String> = words.map(word).collect();
    // A title is followed by the rest of the memory that it was written into.
    while words.last().is_some_and(String::is_empty) {
        words.pop();
    }
    Ok(words)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?
        .take(MAX_ARGUMENT_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_process_name_does_not_change_the_user() {
        let status = "Name:\tUid:\\n\nUmask:\t0022\nUid:\t1\t33\t3\t4\n";
        assert_eq!(effective_user(status), Some(33));
    }

    #[test]
    fn own_process_is_read_with_its_start_time() {
        let own = Process::read(std::process::id()).unwrap();
        assert_eq!(own.program, std::env::current_exe().ok());
        let age = SystemTime::now().duration_since(own.start_time()).unwrap();
        assert!(age < Duration::from_secs(3600), "{age:?}");
        let all = Processes::read().unwrap();
        assert_eq!(all.get(own.pid).unwrap().started, own.started);
        assert!(all.children(own.parent).iter().any(|p| p.pid == own.pid));
    }
}
