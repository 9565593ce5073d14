//! A list of networks in a file: one address or network per line, `#` begins a comment. A changed file is read by
//! another thread, and takes effect within about a second. Until then, and while the file cannot be read or has a line
//! that is not a network, the previous list stays in force.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use howdah_http::network::AddressBlock;
use howdah_os::clock;

use crate::blocking;
use crate::watched_file::{UnreadableFile, WatchedFile};

/// How often the file is checked, in milliseconds.
const CHECK_INTERVAL_MILLIS: u64 = 1000;
/// The maximum number of bad lines that are reported. A file of another kind consists of bad lines only.
const MAX_REPORTED_LINES: usize = 5;

/// The networks of a file, sorted for searching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// First and last address of each range, sorted and disjoint.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Networks {
    /// Parses a file.
    pub fn parse(bytes: &[u8]) -> Result<Networks, String> {
        let mut networks = Networks::default();
        let mut mistakes = Vec::new();
        for (number, line) in bytes.split(|b| *b == b'\n').enumerate() {
            let text = line
                .split(|b| *b == b'#')
                .next()
                .unwrap_or_default()
                .trim_ascii();
            if text.is_empty() {
                continue;
            }
            let text = String::from_utf8_lossy(text);
            match text.parse::<AddressBlock>() {
                Ok(network) => networks.push(network),
                Err(why) if mistakes.len() < MAX_REPORTED_LINES => {
                    mistakes.push(format!(
                        "line {}: `{}`: {why}",
                        number + 1,
                        text.escape_debug()
                    ));
                }
                Err(_) => {}
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes.join("; "));
        }
        networks.v4 = merged(networks.v4, |last| last.checked_add(1));
        networks.v6 = merged(networks.v6, |last| last.checked_add(1));
        Ok(networks)
    }

    fn push(&mut self, network: AddressBlock) {
        match network.range() {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                self.v4.push((first.to_bits(), last.to_bits()));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                self.v6.push((first.to_bits(), last.to_bits()));
            }
            _ => {}
        }
    }

    /// Returns whether the address is in one of the networks.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => is_within(&self.v4, address.to_bits()),
            IpAddr::V6(address) => is_within(&self.v6, address.to_bits()),
        }
    }
}

fn merged<T: Copy + Ord>(mut ranges: Vec<(T, T)>, next: fn(T) -> Option<T>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match out.last_mut() {
            Some(before) if next(before.1).is_none_or(|next| first <= next) => {
                before.1 = before.1.max(last);
            }
            _ => out.push((first, last)),
        }
    }
    out
}

fn is_within<T: Ord>(ranges: &[(T, T)], address: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= address);
    after > 0 && ranges[after - 1].1 >= address
}

/// A file with networks, and the list that was read from it.
#[derive(Debug)]
pub struct NetworkFile {
    file: WatchedFile<Networks>,
    networks: ArcSwap<Networks>,
    /// When the file was last checked, in milliseconds of the monotonic clock.
    checked_at: AtomicU64,
    problem: Mutex<NetworkFileProblem>,
}

/// The current problem of the file, and whether it has yet to be reported.
#[derive(Debug, Default)]
struct NetworkFileProblem {
    text: Option<String>,
    is_unreported: bool,
}

impl NetworkFile {
    /// Returns a list that is empty until the file is read.
    pub fn new(path: impl AsRef<Path>) -> NetworkFile {
        NetworkFile {
            file: WatchedFile::new(path.as_ref(), Networks::parse),
            networks: ArcSwap::default(),
            checked_at: AtomicU64::new(0),
            problem: Mutex::default(),
        }
    }

    /// Reads the file, if it has changed.
    pub fn read(&self) -> Result<(), UnreadableFile> {
        let read = self.file.read();
        let text = read.as_ref().err().map(ToString::to_string);
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if problem.text != text {
            problem.is_unreported = text.is_some();
            problem.text = text;
        }
        drop(problem);
        self.networks.store(read?);
        Ok(())
    }

    /// Returns whether the address is in the list. If the file has changed, another thread is asked to read it.
    pub fn contains(self: &Arc<Self>, address: IpAddr) -> bool {
        let now = clock::monotonic_ns() / 1_000_000;
        let seen = self.checked_at.load(Ordering::Relaxed);
        // One thread checks the file; the others use the current list meanwhile.
        let look = |seen| {
            let (set, fetched) = (Ordering::Relaxed, Ordering::Relaxed);
            self.checked_at
                .compare_exchange(seen, now, set, fetched)
                .is_ok()
        };
        if now >= seen + CHECK_INTERVAL_MILLIS && look(seen) && self.file.unchanged().is_none() {
            let file = self.clone();
            // If the reading threads are too busy, the next check is in a second. `take_new_problem` returns the
            // problem of the file.
            let _ = blocking::enqueue_file_read(move || drop(file.read()));
        }
        self.networks.load().contains(address)
    }

    /// Returns the problem of the file; each problem is returned once.
    pub fn take_new_problem(&self) -> Option<String> {
        let mut problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        let text = problem.text.clone();
        std::mem::take(&mut problem.is_unreported)
            .then_some(text)
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_list_contains_the_addresses_of_its_networks() {
        let file = b"# bad neighbours\r\n192.0.2.0/24\n192.0.3.0/24 # beside it\n 10.1.2.3 \n\n\
            2001:db8::/32\n0.0.0.0\n255.255.255.255\n192.0.2.128/25\n::ffff:198.51.100.7";
        let networks = Networks::parse(file).unwrap();
        assert_eq!(networks.v4.len(), 5, "{networks:?}");
        for (address, expected) in [
            ("192.0.2.0", true),
            ("192.0.3.255", true),
            ("192.0.4.0", false),
            ("192.0.1.255", false),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("0.0.0.0", true),
            ("255.255.255.255", true),
            ("::ffff:192.0.2.1", true),
            ("198.51.100.7", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
        ] {
            assert_eq!(
                networks.contains(address.parse().unwrap()),
                expected,
                "{address}"
            );
        }
        let mapped = Networks::parse(b"::ffff:198.51.100.0/120").unwrap();
        assert!(mapped.contains("198.51.100.7".parse().unwrap()));
        assert!(!mapped.contains("198.51.101.7".parse().unwrap()));
        let all = Networks::parse(b"0.0.0.0/0\n10.0.0.0/8\n::/0\n::1").unwrap();
        assert_eq!((all.v4.len(), all.v6.len()), (1, 1));
    }

    #[test]
    fn network_list_reports_invalid_lines_by_number() {
        let why = Networks::parse(b"10.0.0.0/8\n10.0.0.1/8\nevil.example\n").unwrap_err();
        assert!(
            why.contains("line 2: ") && why.contains("line 3: `evil.example`"),
            "{why}"
        );
        let many = Networks::parse(&b"deny all;\n".repeat(1000)).unwrap_err();
        assert_eq!(many.matches("line").count(), MAX_REPORTED_LINES);
    }

    #[test]
    fn network_file_keeps_its_list_while_the_file_is_invalid() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = Arc::new(NetworkFile::new(&path));
        assert!(file.read().is_err());
        assert!(file.take_new_problem().is_some() && file.take_new_problem().is_none());
        std::fs::write(&path, "10.0.0.0/8\n").unwrap();
        file.read().unwrap();
        let address = "10.0.0.1".parse().unwrap();
        assert!(file.contains(address));
        std::fs::write(&path, "nonsense\n").unwrap();
        assert!(file.read().is_err());
        assert!(file.contains(address));
        assert!(file.take_new_problem().unwrap().contains("nonsense"));
        std::fs::write(&path, "").unwrap();
        file.read().unwrap();
        assert!(!file.contains(address));
        assert!(file.take_new_problem().is_none());
    }
}
