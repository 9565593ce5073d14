//! How a zygote gets started. The front is unprivileged and has threads, so where pools run as
//! other users a master process execs for it; without a master [`DirectLauncher`] does.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::config::PoolConfig;

/// The descriptors a zygote inherits. The launcher consumes them: after `launch` only the child
/// process holds them.
#[derive(Debug)]
pub struct ZygoteFds {
    /// The pool's shared memory (memfd).
    pub memory: OwnedFd,
    /// The zygote's end of the control socket.
    pub control: OwnedFd,
    /// One eventfd per front thread.
    pub bells: Vec<OwnedFd>,
    /// The writing end of the pipe that becomes the zygote's stderr and stdout.
    pub stderr: OwnedFd,
}

/// A started zygote.
#[derive(Debug)]
pub struct Zygote {
    /// Its process id.
    pub pid: i32,
    /// Readable when the process has ended.
    pub pidfd: OwnedFd,
}

/// Starts zygotes. May block for the time of an exec.
pub trait Launcher: Send + Sync {
    /// Execs `pool.program` for this pool.
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<Zygote>;
}

/// Starts zygotes as this process's own children, under its own user: there is no master.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectLauncher;

impl Launcher for DirectLauncher {
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<Zygote> {
        let mut command = command(pool, &fds);
        let bells: Vec<&OwnedFd> = fds.bells.iter().collect();
        let inherited: Vec<&OwnedFd> = [&fds.memory, &fds.control]
            .into_iter()
            .chain(bells)
            .collect();
        crate::embed::sys::inherit(&mut command, &inherited);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::from(fds.stderr.try_clone()?))
            .stderr(Stdio::from(fds.stderr.try_clone()?))
            // The terminal's Ctrl-C is for the server, which then drains its pools.
            .process_group(0);
        let child = command.spawn().map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("cannot start {}: {e}", pool.program.display()),
            )
        })?;
        let pid = child.id() as i32;
        let raw = rustix::process::Pid::from_raw(pid)
            .ok_or_else(|| io::Error::other("spawn gave process id 0"))?;
        // The child is not reaped before its pidfd has been opened, so the id is still its own.
        let pidfd = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty())?;
        Ok(Zygote { pid, pidfd })
    }
}

/// The command line and environment of a pool's zygote. The descriptors keep their numbers.
pub fn command(pool: &PoolConfig, fds: &ZygoteFds) -> Command {
    let mut command = Command::new(&pool.program);
    let bells: Vec<String> = fds
        .bells
        .iter()
        .map(|b| b.as_raw_fd().to_string())
        .collect();
    command
        .arg("--pool")
        .arg(&pool.name)
        .arg("--memory-fd")
        .arg(fds.memory.as_raw_fd().to_string())
        .arg("--control-fd")
        .arg(fds.control.as_raw_fd().to_string())
        .arg("--bell-fds")
        .arg(bells.join(","));
    if let Some(ini) = &pool.php_ini {
        command.arg("--php-ini").arg(ini);
    }
    for (name, value) in &pool.defines {
        command.arg("-d").arg(format!("{name}={value}"));
    }
    if let Some(user) = &pool.user {
        command.arg("--user").arg(user);
    }
    if let Some(group) = &pool.group {
        command.arg("--group").arg(group);
    }
    command
        .arg("--opcache")
        .arg(if pool.opcache { "on" } else { "off" });
    if pool.clear_env {
        command.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
    }
    command.envs(pool.environment.iter().map(|(k, v)| (k, v)));
    command
}
