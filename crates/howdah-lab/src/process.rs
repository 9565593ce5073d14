//! A started program: its session, its log file, its end, and what it uses. Does not know which
//! server it is.
//!
//! Each program begins a session (setsid(2)), which all its descendants share, even those in
//! process groups of their own. The lab counts and ends them together by its id. A watcher (a shell
//! blocked on a pipe from the lab) ends the program when the lab is killed, so that nothing is left
//! running.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::LabError;

/// Time that a program has to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// Time that a program has to start.
const START: Duration = Duration::from_secs(30);
/// How often a condition is polled.
const AGAIN: Duration = Duration::from_millis(10);
/// Number of a log's last lines that a message shows.
const TAIL: usize = 20;

const WATCHER: &str =
    "read -r _; kill -s TERM -- -$0 2>/dev/null; sleep 3; kill -s KILL -- -$0 2>/dev/null";

/// Holds a program back until its watcher runs: otherwise a program that is started just when the
/// lab is killed would be left running. The watcher and the gate see the end of the lab as the end
/// of their input.
const GATE: &str = "read -r _ && exec \"$@\" </dev/null";

/// The user that the programs run as: never root, whoever started the lab.
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
                what: "the user www-data, who the stacks run as when root starts them,".to_owned(),
                install: "run the comparison as an ordinary user".to_owned(),
            }),
        }
    }

    fn apply(self, command: &mut Command) {
        if let RunAs::Other { uid, gid } = self {
            // The standard library drops supplementary groups with it.
            command.uid(uid).gid(gid);
        }
    }
}

/// A running program. Dropping it ends its whole session.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    watcher: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

/// What the processes of a session have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// CPU time, user and system, of all processes alive and those they have reaped.
    pub cpu: Duration,
    /// Proportional set size in bytes: shared pages are counted once over all processes.
    pub memory: u64,
    /// Number of processes that are alive.
    pub processes: usize,
}

impl Process {
    /// Starts `command` in a session of its own; its output and its errors go to the file `log`.
    pub fn start(
        name: &str,
        command: &Command,
        log: PathBuf,
        run_as: RunAs,
    ) -> Result<Process, LabError> {
        let file = File::create(&log).map_err(LabError::file(&log))?;
        if let RunAs::Other { uid, gid } = run_as {
            // Programs that log to /dev/stderr open it again.
            std::os::unix::fs::fchown(&file, Some(uid), Some(gid)).map_err(LabError::file(&log))?;
        }
        let copy = file.try_clone().map_err(LabError::file(&log))?;
        let text = format!("{command:?}");
        let refused = |error: std::io::Error| LabError::DoesNotStart {
            program: name.to_owned(),
            why: format!("{text}: {error}"),
            log: String::new(),
        };
        // setsid(1) executes the program in its own place, since it is no group leader. env(1)
        // unblocks what our own caller blocked to read it from a descriptor: `php -S` and others
        // would never see a SIGTERM.
        let mut session = Command::new("sh");
        session.args(["-c", GATE, "sh", "setsid", "--"]);
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
            .args(["-c", WATCHER, &child.id().to_string()])
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
        let process = Process {
            name: name.to_owned(),
            child,
            watcher,
            log,
            ended: None,
        };
        let opened = gate.map_or(Ok(()), |mut gate| gate.write_all(b"\n"));
        opened.map_err(refused).map(|()| process)
    }

    /// The program's name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The session's id, which is the first process's.
    pub fn session(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `condition` holds.
    pub fn wait_for(
        &mut self,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), LabError> {
        let until = Instant::now() + START;
        loop {
            if condition() {
                return Ok(());
            }
            let why = match self.alive() {
                Err(LabError::Died { how, .. }) => format!("it ended ({how})"),
                _ if Instant::now() > until => {
                    format!("no {what} within {} s", START.as_secs())
                }
                _ => {
                    std::thread::sleep(AGAIN);
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

    /// Fails if the program has ended.
    ///
    /// # Errors
    /// [`LabError::Died`], with the last lines of its log.
    pub fn alive(&mut self) -> Result<(), LabError> {
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

    /// The last lines of the program's log.
    pub fn log_tail(&self) -> String {
        let text = tail_of(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// What the session's processes use now.
    pub fn usage(&self) -> Usage {
        let [usage] = usage_of([&[self.session()]], Memory::Read);
        usage
    }

    fn signal_all(&self, signal: Signal) {
        for stat in stats() {
            if stat.session == self.session()
                && let Some(pid) = Pid::from_raw(stat.pid)
            {
                // It was of this session a moment ago. If another process had its number by now,
                // that one would have the same user and have started within this loop.
                let _ = kill_process(pid, signal);
            }
        }
    }

    fn gone_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        loop {
            if self.alive().is_err() && !session_lives(self.session()) {
                return true;
            }
            if Instant::now() > until {
                return false;
            }
            std::thread::sleep(AGAIN);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The first process ends its children; some servers leave others of their process group
        // behind.
        if self.ended.is_none() {
            let first = Pid::from_child(&self.child);
            // Until setsid(1) has run there is no such group.
            if kill_process_group(first, Signal::TERM).is_err() {
                let _ = kill_process(first, Signal::TERM);
            }
        }
        if !self.gone_within(GRACE) {
            self.signal_all(Signal::KILL);
            self.gone_within(GRACE);
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

/// A port of 127.0.0.1 that no program listens on now.
pub fn free_address() -> Result<SocketAddr, LabError> {
    free_addresses_in_a_row(1)
}

/// `count` ports in a row that nobody listens on now, for programs that get the first one.
///
/// They lie below the range that the kernel uses for outgoing connections. Thousands of those come
/// and go during a measurement, and one of them could take the port before the program binds it,
/// which would cost the stack its row. If that range begins too low, any port is used.
pub fn free_addresses_in_a_row(count: u16) -> Result<SocketAddr, LabError> {
    let lowest_outgoing = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|range| range.split_whitespace().next()?.parse().ok());
    let end = lowest_outgoing.filter(|port| *port >= 2 * LOWEST_PORT);
    let end = end.unwrap_or(u16::MAX) - count;
    let mut last = None;
    for _ in 0..200 {
        let random = RandomState::new().hash_one(count);
        let first = LOWEST_PORT + (random % u64::from(end - LOWEST_PORT)) as u16;
        let is_free = |port| {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port))
                .map_err(|error| last = Some(error))
                .is_ok()
        };
        if (first..first + count).all(is_free) {
            return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, first)));
        }
    }
    let error = last.unwrap_or_else(|| std::io::Error::other("no such row of ports"));
    Err(LabError::file(format!(
        "{count} ports in a row on 127.0.0.1"
    ))(error))
}

/// The ports of well-known services are below this one.
const LOWEST_PORT: u16 = 10_000;

/// Whether to measure memory as well: that reads a second file of each process, which costs the
/// kernel a walk through its page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Measures CPU time and counts the processes.
    Leave,
    /// Measures the proportional set size as well.
    Read,
}

/// What the processes of each group of sessions use, from one pass over `/proc`: the groups are
/// measured at the same moment, and a machine with many processes is disturbed once.
pub fn usage_of<const N: usize>(groups: [&[u32]; N], memory: Memory) -> [Usage; N] {
    let mut usages = [Usage::default(); N];
    for stat in stats() {
        for (usage, sessions) in usages.iter_mut().zip(groups) {
            if sessions.contains(&stat.session) {
                usage.add(&stat, memory);
            }
        }
    }
    usages
}

impl Usage {
    fn add(&mut self, stat: &Stat, memory: Memory) {
        self.cpu += Duration::from_secs_f64(stat.ticks as f64 / TICKS_PER_SECOND);
        self.processes += 1;
        if memory == Memory::Leave {
            return;
        }
        // Only root may read those of another user; without them the memory is reported as unknown
        // (0) rather than as a wrong sum.
        if let Ok(rollup) = fs::read_to_string(format!("/proc/{}/smaps_rollup", stat.pid)) {
            self.memory += proportional_bytes(&rollup).unwrap_or(0);
        }
    }
}

/// Time that all cores have been busy with programs, from `/proc/stat`; it excludes interrupts and
/// what the hypervisor kept back. Zero where the kernel does not report it.
pub fn busy_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    Duration::from_secs_f64(busy_ticks(&text).unwrap_or(0) as f64 / TICKS_PER_SECOND)
}

/// Reads the line `cpu` (proc(5)): user, nice, system.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers = line.split_whitespace().take(3).map(str::parse::<u64>);
    numbers.sum::<Result<u64, _>>().ok()
}

/// CPU time that this process has used.
pub fn own_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat(&text).map_or(0, |stat| stat.own_ticks);
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
}

/// Whether any process of the session is left.
fn session_lives(session: u32) -> bool {
    stats().any(|stat| stat.session == session)
}

/// `USER_HZ`, which is 100 on every architecture Debian has a PHP for.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process, as `/proc/PID/stat` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    pid: i32,
    session: u32,
    /// CPU time in ticks, that of its reaped children included.
    ticks: u64,
    own_ticks: u64,
}

/// All processes of the machine.
fn stats() -> impl Iterator<Item = Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        stat(&fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// From proc(5): the id (field 1); the session (6); utime, stime, cutime and cstime (14 to 17)
/// together. The name (field 2) may hold anything, so fields are counted from its closing
/// parenthesis. None for a zombie: its time is its parent's as soon as that waits for it.
fn stat(text: &str) -> Option<Stat> {
    let (before, after) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    if *fields.first()? == "Z" {
        return None;
    }
    let ticks = |from: usize, to: usize| -> Option<u64> {
        let numbers = fields
            .get(from..to)?
            .iter()
            .map(|field| field.parse::<u64>());
        numbers.sum::<Result<u64, _>>().ok()
    };
    Some(Stat {
        pid: before.split_whitespace().next()?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: ticks(11, 15)?,
        own_ticks: ticks(11, 13)?,
    })
}

/// Reads the `Pss:` line of `/proc/PID/smaps_rollup`, in bytes.
fn proportional_bytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_none_that_an_outgoing_connection_may_get() {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = range.split_whitespace().next().unwrap().parse().unwrap();
        for count in [1, 8, 1000] {
            let first = free_addresses_in_a_row(count).unwrap().port();
            let all = first..first + count;
            assert!(all.start >= LOWEST_PORT);
            assert!(all.end <= lowest || lowest < 2 * LOWEST_PORT, "{all:?}");
        }
    }

    #[test]
    fn a_process_with_an_awkward_name_is_counted() {
        let text = "77 (a) b (c) S 1 60 50 0 -1 4194560 1 2 3 4 11 22 33 44 20 0 1 0 5";
        let expected = Stat {
            pid: 77,
            session: 50,
            ticks: 110,
            own_ticks: 33,
        };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("77 (x) Z 1 50 50 0"), None);
        assert_eq!(stat("nonsense"), None);
        assert_eq!(
            busy_ticks("cpu  10 20 30 4000 5 6 7 8 0 0\ncpu0 1 2 3"),
            Some(60)
        );
        assert_eq!(
            proportional_bytes("56 ---p\nRss:  9 kB\nPss:    7 kB\n"),
            Some(7168)
        );
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::start(
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
    fn several_programs_are_looked_at_in_one_pass_and_each_counted_in_its_own_group() {
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str| {
            let log = folder.path().join(name);
            let mut command = Command::new("sleep");
            Process::start(name, command.arg("60"), log, RunAs::Ourselves).unwrap()
        };
        let programs = [start("one"), start("two")];
        let [one, two] = [programs[0].session(), programs[1].session()];
        // Until setsid(1) has run, they are of our session.
        let until = Instant::now() + START;
        while !(session_lives(one) && session_lives(two)) && Instant::now() < until {
            std::thread::yield_now();
        }
        let groups = [&[one, two][..], &[two], &[]];
        let found = usage_of(groups, Memory::Read).map(|usage| usage.processes);
        assert_eq!(found, [2, 1, 0]);
        let [unread] = usage_of([&[one]], Memory::Leave);
        assert_eq!((unread.processes, unread.memory), (1, 0));
    }

    #[test]
    fn a_dropped_program_takes_its_whole_session_along() {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let script = format!(
            "set -m; (trap '' TERM; touch {}; while :; do sleep 60; done) & wait",
            ready.display()
        );
        let mut process = Process::start(
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
