//! How a zygote gets started. The front is unprivileged and has threads, so where pools run as
//! other users a master process execs for it; without a master [`DirectLauncher`] does.

use std::io;
use std::os::fd::OwnedFd;

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
