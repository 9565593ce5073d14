//! What `/proc` says of a process, for the plan and for the switch.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::RawFd;

/// The fields of `/proc/PID/stat` that are needed (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessStat {
    /// The state of the process: `Z` or `X` if it has exited.
    pub state: u8,
    /// The id of its parent.
    pub parent: u32,
    /// When it started, in clock ticks since the machine did (field 22).
    pub started: u64,
}

impl ProcessStat {
    /// Reads the file of a process.
    ///
    /// # Errors
    /// Returns the system's error, in particular if the process has exited and has been reaped.
    pub fn read(pid: u32) -> io::Result<ProcessStat> {
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        ProcessStat::parse(&stat).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Parses the file. The name of the process, in parentheses, may contain any byte, parentheses and spaces included.
    fn parse(stat: &[u8]) -> Option<ProcessStat> {
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
        // Field 3, the state, is the first one behind the name.
        let mut fields = rest.split_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(22 - 5)?.parse().ok()?;
        Some(ProcessStat {
            state,
            parent,
            started,
        })
    }
}

/// Returns the descriptors of a process that are sockets, by inode.
///
/// # Errors
/// The error of reading `/proc/PID/fd`: without root's rights, the directories of other users cannot be read.
pub fn socket_descriptors(pid: u32) -> io::Result<HashMap<u64, RawFd>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let sockets = entries.filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        Some((inode.strip_suffix(']')?.parse().ok()?, number))
    });
    Ok(sockets.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_process_name_does_not_shift_fields() {
        let fields = b"S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 2000\n";
        let expected = ProcessStat {
            state: b'S',
            parent: 7,
            started: 4242,
        };
        let names: [&[u8]; 6] = [
            b"nginx",
            b"a b) S 1 (c",
            b") R 1 1 1",
            b"",
            b"\n((",
            b"\xff\xfe",
        ];
        for name in names {
            let stat = [b"123 (", name, b") ", fields].concat();
            assert_eq!(ProcessStat::parse(&stat), Some(expected), "{name:?}");
        }
        assert_eq!(ProcessStat::parse(b"123 (x"), None);
        assert_eq!(ProcessStat::parse(b"123 (x) S 1"), None);
    }
}
