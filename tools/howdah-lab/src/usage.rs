//! Reads the usage of programs from `/proc`: CPU time and memory of sessions, of this process and of the machine.

use std::fs;
use std::time::Duration;

/// The resources that the processes of a session have used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUsage {
    /// CPU time, user and system, of all processes alive and those they have reaped.
    pub cpu: Duration,
    /// Proportional set size in bytes: shared pages are counted once over all processes.
    pub memory: u64,
    /// The number of running processes.
    pub processes: usize,
}

/// Whether to measure memory as well, which requires a second file of each process and costs the kernel a walk through
/// its page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMeasurement {
    /// Measures CPU time and counts the processes only.
    Skip,
    /// Measures the proportional set size as well.
    Measure,
}

/// Measures the processes of each group of sessions in one pass over `/proc`: the groups are measured at the same
/// moment, and a machine with many processes is disturbed only once.
pub fn usage_of<const N: usize>(
    groups: [&[u32]; N],
    memory: MemoryMeasurement,
) -> [ResourceUsage; N] {
    let mut usages = [ResourceUsage::default(); N];
    for stat in all_process_stats() {
        for (usage, sessions) in usages.iter_mut().zip(groups) {
            if sessions.contains(&stat.session) {
                usage.add(&stat, memory);
            }
        }
    }
    usages
}

impl ResourceUsage {
    fn add(&mut self, stat: &ProcessStat, memory: MemoryMeasurement) {
        self.cpu += Duration::from_secs_f64(stat.ticks as f64 / TICKS_PER_SECOND);
        self.processes += 1;
        if memory == MemoryMeasurement::Skip {
            return;
        }
        // Only root may read the file of another user's process; without it the memory is reported as unknown (0)
        // rather than as a wrong sum.
        if let Ok(rollup) = fs::read_to_string(format!("/proc/{}/smaps_rollup", stat.pid)) {
            self.memory += proportional_bytes(&rollup).unwrap_or(0);
        }
    }
}

/// Returns the time that all cores have been busy with programs, from `/proc/stat`; it excludes interrupts and time
/// stolen by the hypervisor. It is zero if the kernel does not report it.
pub fn busy_time() -> Duration {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    Duration::from_secs_f64(busy_ticks(&text).unwrap_or(0) as f64 / TICKS_PER_SECOND)
}

/// Parses the line `cpu` (proc(5)): user, nice, system.
fn busy_ticks(text: &str) -> Option<u64> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let numbers = line.split_whitespace().take(3).map(str::parse::<u64>);
    numbers.sum::<Result<u64, _>>().ok()
}

/// Returns the CPU time that this process has used.
pub fn own_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = parse_process_stat(&text).map_or(0, |stat| stat.own_ticks);
    Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND)
}

/// Returns whether any process of the session is still running.
pub(crate) fn session_lives(session: u32) -> bool {
    all_process_stats().any(|stat| stat.session == session)
}

/// `USER_HZ`, which is 100 on every architecture Debian has a PHP for.
const TICKS_PER_SECOND: f64 = 100.0;

/// A process as described in `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    /// The process id.
    pub pid: i32,
    /// The session id.
    pub session: u32,
    /// CPU time in ticks, that of its reaped children included.
    ticks: u64,
    own_ticks: u64,
}

/// Returns all processes of the machine.
pub(crate) fn all_process_stats() -> impl Iterator<Item = ProcessStat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        parse_process_stat(&fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Parses the fields of proc(5): the id (field 1); the session (6); utime, stime, cutime and cstime (14 to 17)
/// together. The name (field 2) may contain any character, so fields are counted from its closing parenthesis. Returns
/// `None` for a zombie, whose time is added to its parent's as soon as the parent waits for it.
fn parse_process_stat(text: &str) -> Option<ProcessStat> {
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
    Some(ProcessStat {
        pid: before.split_whitespace().next()?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        ticks: ticks(11, 15)?,
        own_ticks: ticks(11, 13)?,
    })
}

/// Parses the `Pss:` line of `/proc/PID/smaps_rollup` into bytes.
fn proportional_bytes(rollup: &str) -> Option<u64> {
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_stat_with_awkward_name_is_parsed() {
        let text = "77 (a) b (c) S 1 60 50 0 -1 4194560 1 2 3 4 11 22 33 44 20 0 1 0 5";
        let expected = ProcessStat {
            pid: 77,
            session: 50,
            ticks: 110,
            own_ticks: 33,
        };
        assert_eq!(parse_process_stat(text), Some(expected));
        assert_eq!(parse_process_stat("77 (x) Z 1 50 50 0"), None);
        assert_eq!(parse_process_stat("nonsense"), None);
        assert_eq!(
            busy_ticks("cpu  10 20 30 4000 5 6 7 8 0 0\ncpu0 1 2 3"),
            Some(60)
        );
        assert_eq!(
            proportional_bytes("56 ---p\nRss:  9 kB\nPss:    7 kB\n"),
            Some(7168)
        );
    }
}
