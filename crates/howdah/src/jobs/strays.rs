//! Processes that have left the group of their job (`setsid`, daemons) and lost their parent. This process adopts them
//! as a subreaper (prctl(2)) and kills them, so nothing that a job has started outlives it.

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// Makes processes whose parent exits children of this process.
pub fn become_subreaper() {
    // A kernel without this feature makes them children of process 1.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Reaps and kills children that do not belong to a running job. `groups` are the groups of the jobs' processes;
/// `ended` are groups that were killed with their leader. Returns the name and id of each killed process that had left
/// its group.
pub fn kill_strays(groups: &[Pid], ended: &[Pid]) -> Vec<(String, i32)> {
    let me = getpid().as_raw_nonzero().get();
    let children = std::fs::read_to_string(format!("/proc/self/task/{me}/children"));
    let mut killed = Vec::new();
    for word in children.unwrap_or_default().split_whitespace() {
        let Some(pid) = word.parse().ok().and_then(Pid::from_raw) else {
            continue;
        };
        if groups.contains(&pid) {
            continue;
        }
        let Some(process) = ChildProcess::read(word) else {
            continue;
        };
        if process.state == 'Z' {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            continue;
        }
        let group = Pid::from_raw(process.group);
        if group.is_some_and(|group| groups.contains(&group)) {
            continue;
        }
        // The process is our child, so the id is its own until we reap it.
        let is_killed = kill_process(pid, Signal::KILL).is_ok();
        if is_killed && !group.is_some_and(|group| ended.contains(&group)) {
            killed.push((process.name, pid.as_raw_nonzero().get()));
        }
    }
    killed
}

/// The state of a process according to `/proc/PID/stat`.
struct ChildProcess {
    name: String,
    state: char,
    group: i32,
}

impl ChildProcess {
    fn read(pid: &str) -> Option<ChildProcess> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may contain spaces and parentheses.
        let (before, after) = text.rsplit_once(") ")?;
        let mut words = after.split_whitespace();
        Some(ChildProcess {
            name: before.split_once('(')?.1.to_owned(),
            state: words.next()?.chars().next()?,
            group: words.nth(1)?.parse().ok()?,
        })
    }
}
