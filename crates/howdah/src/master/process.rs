//! Processes: the front, zygotes that are started for it, and the process that occupies an address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use howdah_executor::PoolMode;
use howdah_executor::launch::{DirectLauncher, LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use rustix::process::{Pid, Signal, WaitStatus, kill_process};

use super::watchdog::FrontWatch;
use crate::child;
use crate::process_channel::ProcessChannel;
use howdah_os::safe_path;

/// The front's process. It is reaped by the master's loop, never here.
pub struct FrontProcess {
    /// Its id.
    pub pid: i32,
    /// The channel to the front.
    pub link: ProcessChannel,
    /// When the process was started.
    pub since: Instant,
    /// Whether the front has closed the channel and is exiting. A closed socket stays readable, so the loop must no
    /// longer poll it.
    pub hung_up: bool,
    /// Whether the front has sent the reason why it does not serve.
    pub refused: bool,
    /// Watches whether the front's threads make progress; set once the front serves.
    pub watch: Option<FrontWatch>,
    /// Whether the front has been killed; it is no longer watched then.
    pub killed: bool,
}

impl FrontProcess {
    /// Executes this program as a front.
    pub fn start() -> io::Result<FrontProcess> {
        let (pid, link) = child::execute("front")?;
        Ok(FrontProcess {
            pid,
            link,
            since: Instant::now(),
            hung_up: false,
            refused: false,
            watch: None,
            killed: false,
        })
    }

    /// Kills the front; the loop reaps it.
    pub fn kill(&mut self) {
        self.killed = true;
        // The process has not been reaped yet, because this value still exists.
        kill(self.pid);
    }
}

/// Kills a child of the master that has not been reaped; until then the id is its own.
pub fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Starts a zygote or a spawner for a pool, with the configuration that the master itself has read.
pub fn launch(mode: Option<&PoolMode>, fds: Vec<OwnedFd>) -> io::Result<LaunchedProcess> {
    let mode = mode.ok_or_else(|| io::Error::other("the master does not know this pool"))?;
    let missing = || io::Error::other("descriptors are missing");
    let mut fds = fds.into_iter();
    let mut next = || fds.next().ok_or_else(missing);
    match mode {
        PoolMode::Embed(config) => {
            let fds = ZygoteFds {
                memory: next()?,
                control: next()?,
                stderr: next()?,
                bells: fds.collect(),
            };
            DirectLauncher.launch(config, fds)
        }
        PoolMode::Cgi(_) | PoolMode::Pool(_) => {
            let (control, stderr) = (next()?, next()?);
            DirectLauncher.launch_spawner(mode, SpawnerFds { control, stderr })
        }
        PoolMode::FastCgi(_) => Err(io::Error::other("mode `fastcgi` has no process of its own")),
    }
}

/// Returns how a process ended, as text.
pub fn exit_text(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "unknown".to_owned(),
    }
}

/// Checks that the pid file is not that of another running server, which must not be overwritten.
pub fn check_pid_file(path: &Path) -> Result<(), String> {
    let Ok(text) = std::fs::read_to_string(path) else {
        return Ok(());
    };
    let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    let raw = pid.as_raw_nonzero().get();
    if raw as u32 != std::process::id() && name_of(raw).is_some_and(|name| name == "howdah") {
        return Err(format!(
            "PidFileInUse: {} names process {raw}, a running howdah; stop it or choose another pid file",
            path.display()
        ));
    }
    Ok(())
}

/// Writes our process id.
pub fn write_pid_file(path: &Path) -> Result<(), String> {
    safe_path::write(path, &format!("{}\n", std::process::id()))
        .map_err(|error| format!("cannot write the pid file {}: {error}", path.display()))
}

/// Removes the file if it contains our process id.
pub fn remove_pid_file(path: &Path) {
    let ours = std::fs::read_to_string(path)
        .is_ok_and(|text| text.trim() == std::process::id().to_string());
    if ours {
        let _ = std::fs::remove_file(path);
    }
}

fn name_of(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned())
}

/// Returns the process that listens on that port, as far as `/proc` shows it: `nginx (process 123)`.
pub fn holder_of(address: SocketAddr) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .find_map(|table| {
            let table = std::fs::read_to_string(table).ok()?;
            listening_inode(&table, address.port()).map(str::to_owned)
        })?;
    let found = holder_of_inode(inode);
    // Another howdah hides its descriptors, so its control socket is tried.
    found.or_else(|| {
        let directory = super::control::runtime_directory();
        let pid = super::control::server_of_port(&directory, address.port())?;
        Some(format!("howdah (process {pid})"))
    })
}

fn holder_of_inode(inode: String) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let Ok(fds) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let holds = fds.flatten().any(|fd| {
            std::fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == wanted.as_str())
        });
        if holds {
            return Some(format!("{} (process {pid})", name_of(pid)?));
        }
    }
    None
}

/// Returns the inode of a socket in `/proc/net/tcp` that listens (state 0A) on the port.
fn listening_inode(table: &str, port: u16) -> Option<&str> {
    let port = format!(":{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?;
        let state = words.nth(1)?;
        let inode = words.nth(5)?;
        (local.ends_with(&port) && state == "0A").then_some(inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_inode_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 111 1\n   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77401 1 0\n";
        assert_eq!(listening_inode(table, 8080), Some("77401"));
        assert_eq!(listening_inode(table, 8081), None);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = holder_of(listener.local_addr().unwrap()).unwrap();
        assert!(
            holder.ends_with(&format!("(process {})", std::process::id())),
            "{holder}"
        );
    }
}
