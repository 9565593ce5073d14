//! The memory that this process may use: the memory of the machine (`MemTotal`), or the limit of the control group if
//! that is lower. The lowest limit from the process's own group up to the root applies.

use std::path::{Path, PathBuf};

/// Returns the number of bytes that this process may use, if it can be determined. `read` returns the text of a file if
/// the file exists.
pub fn available_memory(read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let total = read(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let limits = groups
        .lines()
        .filter_map(parse_cgroup_line)
        .flat_map(|group| {
            // Walks from the group up to the root, because a group's limit also applies to the groups below it.
            let mut found = Vec::new();
            let mut dir = Some(group.path.as_path());
            while let Some(at) = dir {
                found.extend(
                    read(&group.mount.join(at).join(group.file))
                        .and_then(|t| parse_memory_limit(&t)),
                );
                dir = at.parent();
            }
            found
        });
    limits.chain(total).min()
}

/// A line of /proc/self/cgroup that concerns memory (cgroups(7)).
struct MemoryCgroup {
    mount: PathBuf,
    /// The group's directory, relative to `mount`.
    path: PathBuf,
    file: &'static str,
}

fn parse_cgroup_line(line: &str) -> Option<MemoryCgroup> {
    let mut parts = line.splitn(3, ':');
    let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let path = PathBuf::from(path.trim_start_matches('/'));
    if id == "0" && controllers.is_empty() {
        return Some(MemoryCgroup {
            mount: PathBuf::from("/sys/fs/cgroup"),
            path,
            file: "memory.max",
        });
    }
    controllers
        .split(',')
        .any(|c| c == "memory")
        .then(|| MemoryCgroup {
            mount: PathBuf::from("/sys/fs/cgroup/memory"),
            path,
            file: "memory.limit_in_bytes",
        })
}

/// Parses the content of a limit file. `max` (v2) is not a number and gives `None`. In v1, "no limit" is a number
/// larger than the memory of any machine.
fn parse_memory_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes > 0)
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MEMINFO: &str = "MemTotal:        8388608 kB\nMemFree:         1 kB\n";

    #[track_caller]
    fn check(files: &[(&str, &str)], expect: Option<u64>) {
        let read = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(available_memory(read), expect, "{files:?}");
    }

    #[test]
    fn machine_memory_applies_without_a_control_group() {
        check(&[("/proc/meminfo", MEMINFO)], Some(8 * GIB));
        check(&[], None);
        check(&[("/proc/meminfo", "nonsense")], None);
    }

    #[test]
    fn cgroup_v2_limit_applies_at_any_level() {
        let meminfo = ("/proc/meminfo", MEMINFO);
        let group = ("/proc/self/cgroup", "0::/system.slice/howdah.service\n");
        let own = "/sys/fs/cgroup/system.slice/howdah.service/memory.max";
        let slice = "/sys/fs/cgroup/system.slice/memory.max";
        check(&[meminfo, group, (own, "max\n")], Some(8 * GIB));
        check(&[meminfo, group, (own, "1073741824\n")], Some(GIB));
        check(
            &[meminfo, group, (own, "max\n"), (slice, "2147483648\n")],
            Some(2 * GIB),
        );
        // Inside a container, the process's own group appears as the root.
        let root = ("/proc/self/cgroup", "0::/\n");
        check(
            &[meminfo, root, ("/sys/fs/cgroup/memory.max", "1073741824")],
            Some(GIB),
        );
    }

    #[test]
    fn cgroup_v1_limit_applies_unless_it_means_unlimited() {
        let meminfo = ("/proc/meminfo", MEMINFO);
        let group = (
            "/proc/self/cgroup",
            "9:cpu,cpuacct:/x\n4:memory:/docker/abc\n",
        );
        let file = "/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes";
        check(&[meminfo, group, (file, "536870912\n")], Some(GIB / 2));
        check(
            &[meminfo, group, (file, "9223372036854771712\n")],
            Some(8 * GIB),
        );
        // Inside a container the path is not visible: the root of the mount is the group.
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        check(&[meminfo, group, (root, "536870912\n")], Some(GIB / 2));
    }
}
