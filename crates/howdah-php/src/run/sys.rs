//! System calls of the Swoole mode, one small safe function each: sockets, epoll, signals, shared
//! memory. `unsafe` for that reason only; no policy here.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

pub use libc::epoll_event as Event;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a descriptor just made by the kernel, which nobody else owns.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Milliseconds of CLOCK_MONOTONIC.
pub fn now_ms() -> u64 {
    crate::sys::monotonic_ns() / 1_000_000
}

/// The time of the wall clock, in seconds since 1970.
pub fn wall_seconds() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the given timespec. The coarse clock is exact to 4 ms.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    now.tv_sec
}

// ---- sockets ----

fn to_raw(address: &SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let len = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger and aligned for every kind of address.
            unsafe {
                std::ptr::from_mut(&mut storage)
                    .cast::<libc::sockaddr_in>()
                    .write(raw)
            };
            size_of_val(&raw)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe {
                std::ptr::from_mut(&mut storage)
                    .cast::<libc::sockaddr_in6>()
                    .write(raw)
            };
            size_of_val(&raw)
        }
    };
    (storage, len as libc::socklen_t)
}

/// The address of a peer; `None` for a unix socket.
fn from_raw(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at = std::ptr::from_ref(storage);
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which it is; the storage is large and aligned enough.
            let raw = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Sets an integer option of a socket.
pub fn set_option(fd: i32, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: reads four bytes of `value`.
    check(unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(&value).cast(), 4) })
        .map(drop)
}

/// A TCP socket bound to `address`, not listening yet.
pub fn bind_tcp(address: &SocketAddr, reuse_port: bool) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let socket = owned(unsafe { libc::socket(family, kind, 0) })?;
    let fd = socket.as_raw_fd();
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if reuse_port {
        set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    }
    // Inherited by accepted sockets.
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    let (raw, len) = to_raw(address);
    // SAFETY: an address of `len` bytes.
    check(unsafe { libc::bind(fd, std::ptr::from_ref(&raw).cast(), len) })?;
    Ok(socket)
}

/// A unix socket bound to `path`, not listening yet. What a dead server left there is removed.
pub fn bind_unix(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut raw: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    raw.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= raw.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in raw.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    if std::os::unix::net::UnixStream::connect(path)
        .is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain integers.
    let socket = owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    let len = size_of_val(&raw) as libc::socklen_t;
    // SAFETY: an address of `len` bytes.
    check(unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(&raw).cast(), len) })?;
    Ok(socket)
}

/// Makes a bound socket listen.
pub fn listen(fd: i32, backlog: i32) -> io::Result<()> {
    // SAFETY: plain integers.
    check(unsafe { libc::listen(fd, backlog) }).map(drop)
}

/// The port a socket is bound to; 0 for a unix socket.
pub fn local_port(fd: i32) -> u16 {
    // SAFETY: all-zero is valid, and getsockname writes at most `len` bytes.
    let (storage, result) = unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of_val(&storage) as libc::socklen_t;
        let result = libc::getsockname(fd, std::ptr::from_mut(&mut storage).cast(), &mut len);
        (storage, result)
    };
    if result != 0 {
        return 0;
    }
    from_raw(&storage).map_or(0, |a| a.port())
}

/// Takes one connection, if one waits.
pub fn accept(listener: i32) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: all-zero is a valid sockaddr_storage, and accept4 writes at most `len` bytes.
    let (fd, storage) = unsafe {
        let mut storage: libc::sockaddr_storage = std::mem::zeroed();
        let mut len = size_of_val(&storage) as libc::socklen_t;
        let at = std::ptr::from_mut(&mut storage).cast();
        let fd = libc::accept4(listener, at, &mut len, flags);
        (fd, storage)
    };
    Ok((owned(fd)?, from_raw(&storage)))
}

/// Receives into `buf`; 0 is the end.
pub fn receive(fd: i32, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most `buf.len()` bytes.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), libc::MSG_DONTWAIT) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Sends two pieces as one; how much of them together.
pub fn send(fd: i32, first: &[u8], second: &[u8], more: bool) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | if more { libc::MSG_MORE } else { 0 };
    let n = if second.is_empty() {
        // SAFETY: reads `first`.
        unsafe { libc::send(fd, first.as_ptr().cast(), first.len(), flags) }
    } else {
        let mut pieces = [first, second].map(|piece| libc::iovec {
            iov_base: piece.as_ptr().cast_mut().cast(),
            iov_len: piece.len(),
        });
        // SAFETY: an all-zero msghdr is valid; the pieces outlive the call.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = pieces.as_mut_ptr();
            message.msg_iovlen = 2;
            libc::sendmsg(fd, &message, flags)
        }
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Sends up to `count` bytes of a file from `offset`, which moves on.
pub fn send_file(fd: i32, file: i32, offset: &mut i64, count: u64) -> io::Result<usize> {
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(1 << 20);
    // SAFETY: writes the offset.
    let n = unsafe { libc::sendfile(fd, file, offset, count) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Closes the sending half of a connection; the client sees the end of the answer.
pub fn shut_sending(fd: i32) {
    // SAFETY: plain integers.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Waits until `fd` takes bytes or `ms` are over.
pub fn wait_writable(fd: i32, ms: i32) -> bool {
    let mut polled = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd.
    unsafe { libc::poll(&mut polled, 1, ms) > 0 }
}

// ---- epoll ----

/// Makes an epoll instance.
pub fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

/// Watches `fd` for `events`; `data` comes back with them.
pub fn watch(epoll: i32, fd: i32, events: i32, data: u64) -> io::Result<()> {
    let mut event = Event {
        events: events as u32,
        u64: data,
    };
    // SAFETY: reads the event.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) }).map(drop)
}

/// Stops watching `fd`.
pub fn unwatch(epoll: i32, fd: i32) {
    // SAFETY: DEL reads no event.
    unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
}

/// Waits for events, at most `ms` (-1: for ever). An interruption counts as none.
pub fn wait(epoll: i32, events: &mut Vec<Event>, ms: i32) {
    events.clear();
    let room = events.capacity() as i32;
    // SAFETY: the kernel fills at most `room` events, which then are initialised.
    unsafe {
        let n = libc::epoll_wait(epoll, events.as_mut_ptr(), room, ms);
        events.set_len(n.max(0) as usize);
    }
}

// ---- signals ----

/// What signals have asked for since the last look.
static ASKED: AtomicU32 = AtomicU32::new(0);
static BELL: AtomicI32 = AtomicI32::new(-1);

/// SIGTERM, SIGINT: finish the running requests and leave.
pub const STOP: u32 = 1;
/// SIGUSR1 or SIGUSR2: replace the workers by new ones, which read the code again.
pub const RELOAD: u32 = 2;
/// SIGCHLD: a process has ended and can be reaped.
pub const CHILD: u32 = 4;

extern "C" fn on_signal(signal: libc::c_int) {
    let bit = match signal {
        libc::SIGUSR1 | libc::SIGUSR2 => RELOAD,
        libc::SIGCHLD => CHILD,
        _ => STOP,
    };
    ASKED.fetch_or(bit, Ordering::SeqCst);
    let (bell, one) = (BELL.load(Ordering::SeqCst), 1u64.to_ne_bytes());
    // SAFETY: write(2) is async-signal-safe; errno is kept for whom the signal interrupted.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(bell, one.as_ptr().cast(), one.len());
        *libc::__errno_location() = errno;
    }
}

const HANDLED: [i32; 5] = [
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGCHLD,
];

/// Signals wait while this lives: around a fork, so that the new process gets what is sent to it
/// when it has handlers of its own, and not by its parent's, whose memory it no longer shares.
#[derive(Debug)]
pub struct HeldSignals {
    before: libc::sigset_t,
}

/// Makes the signals that [`handle_signals`] handles wait.
pub fn hold_signals() -> HeldSignals {
    // SAFETY: all-zero is a valid sigset_t, which the calls fill.
    unsafe {
        let mut held: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut held);
        for signal in HANDLED {
            libc::sigaddset(&mut held, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &held, &mut before);
        HeldSignals { before }
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        // SAFETY: the mask that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// Handles the signals of a server process from now on; the descriptor becomes readable with each.
/// Not blocked: programs a script starts inherit a usable mask.
pub fn handle_signals(manager: bool) -> io::Result<OwnedFd> {
    // SAFETY: plain integers.
    let bell = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    BELL.store(bell.as_raw_fd(), Ordering::SeqCst);
    ASKED.store(0, Ordering::SeqCst);
    for signal in HANDLED {
        let ours = match signal {
            libc::SIGCHLD => manager,
            // A terminal's Ctrl-C reaches all; the manager tells its workers.
            libc::SIGINT => manager,
            _ => true,
        };
        let handler = match (ours, signal) {
            (true, _) => on_signal as *const () as usize,
            (false, libc::SIGINT) => libc::SIG_IGN,
            (false, _) => libc::SIG_DFL,
        };
        // SAFETY: the handler touches atomics, an eventfd and errno only.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            // What a script waits for goes on.
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut());
        }
    }
    Ok(bell)
}

/// What has been asked for since the last call.
pub fn asked() -> u32 {
    if ASKED.load(Ordering::Relaxed) == 0 {
        return 0;
    }
    ASKED.swap(0, Ordering::SeqCst)
}

/// Has the kernel send this process SIGTERM when its parent dies. False: the parent is dead already.
pub fn die_with(parent: i32) -> bool {
    // SAFETY: plain integers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0);
        libc::getppid() == parent
    }
}

/// Reaps `pid` if it has ended: its exit code, or the signal that killed it, negated.
pub fn reap(pid: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: writes the given int.
    let reaped = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    if reaped != pid {
        return None;
    }
    Some(if libc::WIFSIGNALED(status) {
        -libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    })
}

/// Open descriptors this process may have; the limit is raised to what is allowed.
pub fn descriptor_limit() -> u64 {
    // SAFETY: reads and writes the given struct.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 {
            return 1024;
        }
        if limit.rlim_cur < limit.rlim_max {
            let raised = libc::rlimit {
                rlim_cur: limit.rlim_max,
                ..limit
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0 {
                return raised.rlim_cur;
            }
        }
        limit.rlim_cur
    }
}

// ---- files without a name ----

/// A file in `directory` that has no name: `O_TMPFILE`, or where the file system has none, one that
/// is unlinked at once.
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

/// A file's bytes, mapped to be read.
#[derive(Debug)]
pub struct Mapped {
    at: *const u8,
    len: usize,
}

impl Mapped {
    /// Maps the first `len` bytes of a file that has no name and is written no more.
    pub fn new(file: &File, len: u64) -> io::Result<Mapped> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        if len == 0 {
            return Ok(Mapped {
                at: std::ptr::NonNull::dangling().as_ptr(),
                len,
            });
        }
        // SAFETY: a fresh mapping chosen by the kernel.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped {
            at: at.cast_const().cast(),
            len,
        })
    }
}

impl std::ops::Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: mapped until drop. The file has no name and its descriptor is this process's
        // alone, so that nobody shortens or changes it.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping made above; no slice of it outlives this value.
            unsafe { libc::munmap(self.at.cast_mut().cast(), self.len) };
        }
    }
}

// ---- shared memory ----

/// Zeroed counters that processes forked later share.
pub fn shared_counters(count: usize) -> io::Result<&'static [AtomicU64]> {
    let len = count.max(1) * size_of::<AtomicU64>();
    // SAFETY: a fresh mapping chosen by the kernel.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: page-aligned, zeroed, never unmapped; only ever accessed as atomics.
    Ok(unsafe { std::slice::from_raw_parts(base.cast::<AtomicU64>(), count) })
}
