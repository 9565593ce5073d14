//! The system calls of a Swoole server, one small safe function for each: sockets, epoll, signals, unnamed files.
//! `unsafe` is used for the signal handler only. This module contains no policy.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use rustix::event::epoll::{self, CreateFlags, EventData};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};
use rustix::process::{Resource, Rlimit};
use rustix::time::{ClockId, clock_gettime};

pub use crate::sys::monotonic_ms as now_ms;
pub use epoll::{Event, EventFlags};

use crate::sys::{ring_bell, timespec};

/// Returns the time of the wall clock, in seconds since 1970.
pub fn wall_seconds() -> i64 {
    // The coarse clock is accurate to 4 ms.
    clock_gettime(ClockId::RealtimeCoarse).tv_sec
}

// ---- sockets ----

const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Returns a TCP socket that is bound to `address` but does not listen yet.
pub fn bind_tcp(address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SOCKET_FLAGS, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Accepted sockets inherit this option.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, address)?;
    Ok(socket)
}

/// Returns a unix socket that is bound to `path` but does not listen yet. Removes the socket file of a dead server.
pub fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    // Connecting to a file that is not a socket is refused, too.
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET_FLAGS, None)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// Returns the port that a socket is bound to; 0 for a unix socket.
pub fn local_port(socket: BorrowedFd<'_>) -> u16 {
    let address = rustix::net::getsockname(socket).and_then(SocketAddr::try_from);
    address.map_or(0, |address| address.port())
}

/// Accepts one connection, if one waits. The client's address is `None` on a unix socket.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let (socket, peer) = rustix::net::acceptfrom_with(listener, SOCKET_FLAGS)?;
    Ok((socket, peer.and_then(|peer| peer.try_into().ok())))
}

/// Receives into `buf`. Returns 0 at the end of the stream.
pub fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    let (n, _) = rustix::net::recv(fd, buf, RecvFlags::DONTWAIT)?;
    Ok(n)
}

/// Sends two pieces as one. Returns how many bytes of both together were sent.
pub fn send(fd: BorrowedFd<'_>, first: &[u8], second: &[u8], more: bool) -> io::Result<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    if second.is_empty() {
        return Ok(rustix::net::send(fd, first, flags)?);
    }
    let pieces = [IoSlice::new(first), IoSlice::new(second)];
    let mut none = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(fd, &pieces, &mut none, flags)?)
}

/// Sends up to `count` bytes of a file from `offset`, which is advanced.
pub fn send_file(
    fd: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    offset: &mut u64,
    count: u64,
) -> io::Result<usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(1 << 20);
    Ok(rustix::fs::sendfile(fd, file, Some(offset), count)?)
}

/// Closes the sending half of a connection, which shows the client the end of the response.
pub fn shutdown_sending(fd: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(fd, Shutdown::Write);
}

/// Waits until `fd` accepts bytes, for at most `ms`.
pub fn wait_writable(fd: BorrowedFd<'_>, ms: u32) {
    let timeout = timespec(Duration::from_millis(u64::from(ms)));
    let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&timeout));
}

// ---- epoll ----

/// Creates an epoll instance.
pub fn create_epoll() -> io::Result<OwnedFd> {
    Ok(epoll::create(CreateFlags::CLOEXEC)?)
}

/// Makes `epoll` report `events` of `fd`, together with `data`.
pub fn epoll_add(
    epoll: &OwnedFd,
    fd: BorrowedFd<'_>,
    events: EventFlags,
    data: u64,
) -> io::Result<()> {
    Ok(epoll::add(epoll, fd, EventData::new_u64(data), events)?)
}

/// Stops `epoll` from reporting events of `fd`.
pub fn epoll_delete(epoll: &OwnedFd, fd: BorrowedFd<'_>) {
    let _ = epoll::delete(epoll, fd);
}

/// Waits for at most as many events as `events` has room for, and for at most `ms` (`None` means no limit). After an
/// interruption, `events` is empty.
pub fn wait(epoll: &OwnedFd, events: &mut Vec<Event>, ms: Option<u64>) {
    events.clear();
    // The maximum that epoll_wait(2) accepts.
    let timeout = ms.map(|ms| timespec(Duration::from_millis(ms.min(i32::MAX as u64))));
    let _ = epoll::wait(
        epoll,
        rustix::buffer::spare_capacity(events),
        timeout.as_ref(),
    );
}

// ---- signals ----

/// The requests made by signals since the last call of [`take_signal_requests`].
static SIGNAL_REQUESTS: AtomicU32 = AtomicU32::new(0);
static SIGNAL_BELL: AtomicI32 = AtomicI32::new(-1);

/// SIGTERM, SIGINT: finish the running requests and exit.
pub const STOP: u32 = 1;
/// SIGUSR1 or SIGUSR2: replace the workers by new ones, which read the code again.
pub const RELOAD: u32 = 2;
/// SIGCHLD: a process has exited and can be reaped.
pub const CHILD: u32 = 4;

extern "C" fn on_signal(signal: libc::c_int) {
    let bit = match signal {
        libc::SIGUSR1 | libc::SIGUSR2 => RELOAD,
        libc::SIGCHLD => CHILD,
        _ => STOP,
    };
    SIGNAL_REQUESTS.fetch_or(bit, Ordering::SeqCst);
    // SAFETY: `handle_signals` has set it to an eventfd that the process keeps open.
    let bell = unsafe { BorrowedFd::borrow_raw(SIGNAL_BELL.load(Ordering::SeqCst)) };
    // This system call leaves the C library's errno unchanged, which belongs to the code that the signal interrupted.
    ring_bell(bell);
}

const HANDLED_SIGNALS: [Signal; 5] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
];

/// Blocks signals until it is dropped. It is used around a fork: a signal to the new process then waits until that
/// process has its own handlers. The handlers of its parent would write to memory that the new process no longer
/// shares.
#[derive(Debug)]
pub struct BlockedSignals {
    before: Option<SigSet>,
}

/// Blocks the signals that [`handle_signals`] handles.
pub fn block_signals() -> BlockedSignals {
    let held: SigSet = HANDLED_SIGNALS.into_iter().collect();
    BlockedSignals {
        before: held.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok(),
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = before.thread_set_mask();
        }
    }
}

/// Handles the signals of a server process from now on. The returned descriptor, which the process keeps open, becomes
/// readable with each signal. The signals are not blocked, so programs that a script starts inherit a usable mask.
pub fn handle_signals(manager: bool) -> io::Result<&'static OwnedFd> {
    // The descriptor is never closed, because a signal may arrive at any time.
    let bell = Box::leak(Box::new(eventfd(
        0,
        EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
    )?));
    SIGNAL_BELL.store(bell.as_raw_fd(), Ordering::SeqCst);
    SIGNAL_REQUESTS.store(0, Ordering::SeqCst);
    for signal in HANDLED_SIGNALS {
        let ours = match signal {
            Signal::SIGCHLD => manager,
            // A terminal's Ctrl-C reaches all processes, but the manager signals its workers itself.
            Signal::SIGINT => manager,
            _ => true,
        };
        let handler = match (ours, signal) {
            (true, _) => SigHandler::Handler(on_signal),
            (false, Signal::SIGINT) => SigHandler::SigIgn,
            (false, _) => SigHandler::SigDfl,
        };
        // A system call in which a script waits is restarted.
        let action = SigAction::new(handler, SaFlags::SA_RESTART, SigSet::empty());
        // SAFETY: the handler touches only atomics and an eventfd.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(bell)
}

/// Returns and clears the requests that signals have made since the last call.
pub fn take_signal_requests() -> u32 {
    if SIGNAL_REQUESTS.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    SIGNAL_REQUESTS.swap(0, Ordering::SeqCst)
}

/// Makes the kernel send SIGTERM to this process when its parent dies. Returns false if the parent is dead already.
pub fn terminate_with_parent(parent: i32) -> bool {
    let signal = rustix::process::Signal::TERM;
    let _ = rustix::process::set_parent_process_death_signal(Some(signal));
    crate::sys::is_parent(parent)
}

/// Returns how many descriptors this process may open, after raising the limit to the allowed maximum.
pub fn descriptor_limit() -> u64 {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let now = match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    now.unwrap_or(u64::MAX)
}

// ---- unnamed files ----

/// Creates an unnamed file in `directory`: with `O_TMPFILE`, or on file systems without it as a file that is unlinked
/// at once.
pub fn unnamed_file(directory: &Path) -> io::Result<File> {
    let open = |path: &Path, flags: i32| {
        let options = &mut File::options();
        options.read(true).write(true).mode(0o600);
        options.custom_flags(flags).open(path)
    };
    match open(directory, libc::O_TMPFILE) {
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)
            ) && directory.is_dir() => {}
        result => return result,
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("howdah-spill-{}-{number}", crate::sys::own_pid());
    let path = directory.join(name);
    let file = open(&path, libc::O_CREAT | libc::O_EXCL)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use howdah_test_support::scratch::Scratch;

    use super::*;

    #[test]
    fn unix_socket_replaces_the_file_of_a_dead_server_and_of_no_other() {
        let scratch = Scratch::new("bind-unix");
        let path = scratch.join("socket");
        // Closing the listener leaves the file.
        drop(UnixListener::bind(&path).unwrap());
        let bound = UnixListener::from(bind_unix(&path).unwrap());
        rustix::net::listen(&bound, 1).unwrap();
        UnixStream::connect(&path).unwrap();
        let taken = bind_unix(&path).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        let file = scratch.write("index.php", "not a socket");
        let refused = bind_unix(&file).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(std::fs::read(&file).unwrap(), b"not a socket");
    }
}
