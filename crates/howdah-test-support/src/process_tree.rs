//! The processes below a server, read from /proc: their parents and their memory. Howdah's processes are recognised by
//! their place in the tree and the program that they run.

use std::path::Path;

/// One process at the time of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessEntry {
    /// The process id.
    pub pid: i32,
    /// The parent's process id.
    pub parent: i32,
    /// The file name of the process's program (`howdah`), or `howdah-php` for a process of PHP.
    pub program: String,
    /// The state as one letter (proc_pid_stat(5)); `Z` is a process that has exited and has not been reaped by its
    /// parent.
    pub state: char,
}

/// Returns `root` and everything below it, parents first. Processes that have exited are not included.
pub fn below(root: i32) -> Vec<ProcessEntry> {
    let all = all();
    let mut found: Vec<ProcessEntry> = all.iter().filter(|e| e.pid == root).cloned().collect();
    let mut next = 0;
    while next < found.len() {
        let parent = found[next].pid;
        found.extend(all.iter().filter(|e| e.parent == parent).cloned());
        next += 1;
    }
    found.retain(|e| e.state != 'Z' && e.state != 'X');
    found
}

/// Returns all command lines on this machine that mention `folder`, wherever their processes are in the tree.
pub fn left_behind(folder: &Path) -> Vec<String> {
    let folder = folder.display().to_string();
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

/// Returns whether the process exists and has not exited.
pub fn is_alive(pid: i32) -> bool {
    entry(pid).is_some_and(|e| e.state != 'Z' && e.state != 'X')
}

/// Returns the memory of one process in KiB from `smaps_rollup`; `field` is the name of a line, such as `Rss` or
/// `Pss_Anon`. Returns `None` if the process has exited.
pub fn memory(pid: i32, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(field)?
            .strip_prefix(':')?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    })
}

fn all() -> Vec<ProcessEntry> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|dir| entry(dir.file_name().to_str()?.parse().ok()?))
        .collect()
}

fn entry(pid: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which is in parentheses, may itself contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    // The executable of a `howdah-php` process is the PHP program that hosts it, so only its name identifies it.
    let program = match name.split(':').next().unwrap_or_default().trim() {
        "howdah-php" => "howdah-php".to_owned(),
        name => match std::fs::read_link(format!("/proc/{pid}/exe")) {
            Ok(path) => path.file_name()?.to_string_lossy().into_owned(),
            // The link of a process that is not dumpable cannot be read.
            Err(_) => name.to_owned(),
        },
    };
    Some(ProcessEntry {
        pid,
        parent,
        program: program.trim_end_matches(" (deleted)").to_owned(),
        state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn child_is_found_below_us_and_gone_after_its_end() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = i32::try_from(std::process::id()).unwrap();
        assert!(below(me).iter().any(|e| e.pid == pid && e.parent == me));
        assert!(memory(pid, "Rss").is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_alive(pid));
    }
}
