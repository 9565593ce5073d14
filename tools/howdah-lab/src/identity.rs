//! The conditions that figures depend on: the programs, their versions and settings, the machine. Figures of two
//! identities are never mixed; the lab names the differences.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::versions;

/// Everything that affects a measurement besides its plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasurementIdentity {
    /// Howdah's programs, and this one: path, and a checksum of the content.
    pub programs: Vec<(PathBuf, String)>,
    /// Versions of the programs that take part, a line each.
    pub versions: Vec<String>,
    /// A checksum of the files that specify which extensions PHP loads.
    pub extensions: String,
    /// The machine, a line for each of its properties.
    pub machine: Vec<(String, String)>,
}

impl MeasurementIdentity {
    /// Determines the current identity of this machine.
    pub fn now(howdah: &Path) -> MeasurementIdentity {
        let tester = std::env::current_exe().unwrap_or_default();
        let php = versions::php_files(howdah);
        let programs = [howdah.to_owned(), tester]
            .into_iter()
            .chain(php)
            .map(|path| {
                let sum = fs::read(&path).map_or("not here".to_owned(), |bytes| checksum(&bytes));
                (path, sum)
            });
        MeasurementIdentity {
            programs: programs.collect(),
            versions: versions::version_lines(howdah),
            extensions: extensions_checksum(&howdah_machine::php::extension_settings()),
            machine: machine_properties(),
        }
    }

    /// Returns the differences of `now`, a sentence each.
    pub fn differences(&self, now: &MeasurementIdentity) -> Vec<String> {
        let mut out = Vec::new();
        for (path, sum) in &now.programs {
            if !self.programs.iter().any(|(p, s)| (p, s) == (path, sum)) {
                out.push(format!(
                    "{} has been replaced by another program",
                    path.display()
                ));
            }
        }
        for line in &now.versions {
            if !self.versions.contains(line) {
                out.push(format!("a program has another version: {line}"));
            }
        }
        for line in &self.versions {
            if !now.versions.contains(line) {
                out.push(format!("a program is no longer in this version: {line}"));
            }
        }
        if self.extensions != now.extensions {
            out.push("the extensions that PHP loads, or their settings, have changed".to_owned());
        }
        for (name, value) in &now.machine {
            let before = self.machine.iter().find(|(n, _)| n == name);
            let before = before.map_or("nothing", |(_, value)| value);
            if before != value {
                out.push(format!("{name}: now {value}, before {before}"));
            }
        }
        out
    }
}

fn extensions_checksum(directory: &Path) -> String {
    let mut names: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    names.sort();
    let mut all = Vec::new();
    for name in names {
        all.extend_from_slice(name.as_os_str().as_encoded_bytes());
        all.extend(fs::read(&name).unwrap_or_default());
    }
    checksum(&all)
}

fn machine_properties() -> Vec<(String, String)> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let line = |text: String, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let own = |name: &str, value: String| (name.to_owned(), value);
    vec![
        own("host", text("/proc/sys/kernel/hostname").trim().to_owned()),
        own(
            "kernel",
            text("/proc/sys/kernel/osrelease").trim().to_owned(),
        ),
        own("processor", line(text("/proc/cpuinfo"), "model name")),
        own("cores", cores.to_string()),
        own("memory", line(text("/proc/meminfo"), "MemTotal")),
    ]
}

/// Computes FNV-1a, which detects accidents, not attacks.
fn checksum(bytes: &[u8]) -> String {
    let fnv = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{fnv:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_differences_are_named() {
        let before = MeasurementIdentity {
            programs: vec![("/bin/howdah".into(), checksum(b"one"))],
            versions: vec!["nginx 1".into(), "PHP 8.2.1".into()],
            extensions: checksum(b"apcu"),
            machine: vec![("cores".into(), "2".into()), ("host".into(), "a".into())],
        };
        assert_eq!(before.differences(&before), Vec::<String>::new());
        let after = MeasurementIdentity {
            programs: vec![("/bin/howdah".into(), checksum(b"two"))],
            versions: vec!["nginx 1".into(), "PHP 8.2.2".into()],
            extensions: checksum(b"apcu"),
            machine: vec![("cores".into(), "4".into()), ("host".into(), "a".into())],
        };
        assert_eq!(
            before.differences(&after),
            [
                "/bin/howdah has been replaced by another program",
                "a program has another version: PHP 8.2.2",
                "a program is no longer in this version: PHP 8.2.1",
                "cores: now 4, before 2",
            ]
        );
        // The published values of FNV-1a.
        assert_eq!(checksum(b""), "cbf29ce484222325");
        assert_eq!(checksum(b"a"), "af63dc4c8601ec8c");
    }
}
