//! System calls, one small safe function each. `unsafe` for that reason only; no policy here.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use howdah_proto::shm::{GeometryError, Region};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// CLOCK_MONOTONIC in nanoseconds; the scoreboard's clock.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the given timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Why the pool's memory could not be opened.
#[derive(Debug)]
pub enum MapError {
    /// A call of the system, fstat or mmap, failed.
    System(io::Error),
    /// The memory is not a pool of this version.
    Refused(GeometryError),
}

/// Maps the pool's memory for the rest of the process's life and closes the descriptor.
pub fn map_region(fd: i32) -> Result<Region, MapError> {
    let system = |_| MapError::System(io::Error::last_os_error());
    // SAFETY: an all-zero stat is a valid value to be overwritten.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes the given stat.
    check(unsafe { libc::fstat(fd, &mut stat) }).map_err(system)?;
    let len = stat.st_size as usize;
    // SAFETY: a fresh mapping chosen by the kernel.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) else {
        return Err(MapError::System(io::Error::last_os_error()));
    };
    close(fd);
    // SAFETY: page-aligned, readable, writable, shared, `len` bytes, never unmapped.
    unsafe { Region::open(base, len) }.map_err(MapError::Refused)
}

/// Closes a descriptor this program owns by number.
pub fn close(fd: i32) {
    // SAFETY: the caller owns `fd` and does not use it again.
    unsafe { libc::close(fd) };
}

/// Keeps a descriptor from programs that scripts start.
pub fn set_cloexec(fd: i32) -> io::Result<()> {
    // SAFETY: fcntl with an integer argument.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }).map(drop)
}

/// Makes standard input empty and standard output the log pipe: a script writing to
/// `php://stdout` must not write into whatever the front had there.
pub fn tidy_stdio() {
    // SAFETY: open and dup2 on the three standard descriptors.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        if null > 0 {
            libc::dup2(null, 0);
            if null > 2 {
                libc::close(null);
            }
        }
        libc::dup2(2, 1);
    }
}

/// Writes a packet to a pipe; `false`: nobody reads it any more.
pub fn write(fd: i32, packet: &[u8]) -> bool {
    loop {
        // SAFETY: the pointer and the length are those of a slice.
        let n = unsafe { libc::write(fd, packet.as_ptr().cast(), packet.len()) };
        if n >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return n >= 0;
        }
    }
}

/// Rings the bell (eventfd) of a front thread. A full counter means it is ringing already.
pub fn ring(fd: i32) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight readable bytes.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Why a futex wait returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    /// Woken, interrupted by a signal, or the word had changed already: look again.
    Woken,
    /// The time limit was reached.
    TimedOut,
}

/// Sleeps while `word` holds `seen`.
fn futex_wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) -> Waited {
    let limit = limit.map(|d| libc::timespec {
        tv_sec: d.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(d.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |t| t);
    // SAFETY: the word lives as long as the mapping; the timespec outlives the call.
    let r = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            seen,
            limit,
        )
    };
    if r == 0 {
        return Waited::Woken;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) => Waited::TimedOut,
        _ => Waited::Woken,
    }
}

/// Wakes one sleeper of `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: as in `futex_wait`.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Leaves at once, without exit handlers: a forked child shares too much with its zygote.
pub fn leave(status: i32) -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(status) }
}

/// Ends this process when it still runs then.
pub fn die_after(seconds: u32) {
    // SAFETY: no pointers; SIGALRM's disposition is the usual one, which ends the process.
    unsafe { libc::alarm(seconds) };
}

/// One packet from the control socket; `None` at the end of the file.
pub fn receive(fd: i32, buf: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: writes at most `buf.len()` bytes.
    let n = unsafe { libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), 0) };
    match n {
        0 => Ok(None),
        n if n > 0 => Ok(Some(n as usize)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// One packet and the descriptor that came with it; `None` at the end of the file.
pub fn receive_with_fd(fd: i32, buf: &mut [u8]) -> io::Result<Option<(usize, Option<i32>)>> {
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    let mut space = [0u64; 8];
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = std::mem::size_of_val(&space);
    // SAFETY: all buffers live across the call, which writes at most their lengths.
    let n = unsafe { libc::recvmsg(fd, &mut message, libc::MSG_CMSG_CLOEXEC) };
    let n = match n {
        0 => return Ok(None),
        n if n > 0 => n as usize,
        _ => return Err(io::Error::last_os_error()),
    };
    // SAFETY: the kernel has filled the header in, or left its length 0; a descriptor's data are four
    // bytes, read unaligned.
    let passed = unsafe {
        let header = libc::CMSG_FIRSTHDR(&message).as_ref();
        header
            .filter(|h| h.cmsg_level == libc::SOL_SOCKET && h.cmsg_type == libc::SCM_RIGHTS)
            .map(|h| libc::CMSG_DATA(h).cast::<i32>().read_unaligned())
    };
    Ok(Some((n, passed)))
}

/// Sends one packet, with a descriptor if given.
pub fn send(fd: i32, packet: &[u8], passed: Option<i32>) -> io::Result<()> {
    let mut iov = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut space = [0u64; 8];
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    if let Some(passed) = passed {
        message.msg_control = space.as_mut_ptr().cast();
        // SAFETY: arithmetic only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
        // SAFETY: `space` is aligned and larger than CMSG_SPACE(4).
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(header)
                .cast::<i32>()
                .write_unaligned(passed);
        }
    }
    loop {
        // SAFETY: all buffers live across the call.
        if unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Which process `fork` has returned in.
pub enum Forked {
    /// This is the new process.
    Child,
    /// The old one, with the new one's id.
    Parent(i32),
}

/// Forks. The zygote has one thread, so the child may do anything.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: single-threaded (PHP's module startup is over and started no thread).
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// A descriptor for a child not reaped yet.
pub fn pidfd_open(pid: i32) -> io::Result<i32> {
    // SAFETY: plain integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    check(fd as i32)
}

/// Sends a signal to a child not reaped yet.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: plain integers.
    unsafe { libc::kill(pid, signal) };
}

/// How a reaped process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The process exited with this status.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

/// Reaps one dead child, if there is one.
pub fn reap() -> Option<(i32, Ended)> {
    let mut status = 0;
    // SAFETY: writes the given int.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let ended = if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Code(libc::WEXITSTATUS(status))
    };
    Some((pid, ended))
}

/// Blocks SIGCHLD and gives a descriptor that becomes readable with it.
pub fn child_signals() -> io::Result<i32> {
    // SAFETY: a signal set on the stack, initialised by sigemptyset.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &set,
            std::ptr::null_mut(),
        ))?;
        check(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))
    }
}

/// Empties the descriptor of [`child_signals`].
pub fn drain(fd: i32) {
    let mut buf = [0u8; 1024];
    // SAFETY: writes at most `buf.len()` bytes; the descriptor does not block.
    while unsafe { libc::read(fd, buf.as_mut_ptr().cast(), buf.len()) } > 0 {}
}

/// Waits until one of the descriptors is readable, or for `limit`; says which are.
pub fn wait_readable<const N: usize>(fds: [Option<i32>; N], limit: Option<Duration>) -> [bool; N] {
    let mut polled = fds.map(|fd| libc::pollfd {
        fd: fd.unwrap_or(-1),
        events: libc::POLLIN,
        revents: 0,
    });
    let millis = limit.map_or(-1, |d| d.as_millis().min(i32::MAX as u128) as i32);
    // SAFETY: N pollfds on the stack.
    unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, millis) };
    polled.map(|fd| fd.revents != 0)
}

/// A pair of packet sockets that never block the reader and close on exec.
pub fn packet_pair() -> io::Result<(i32, i32)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: writes two descriptors to the array.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) })?;
    // SAFETY: fcntl with an integer argument, on a descriptor just opened.
    check(unsafe { libc::fcntl(fds[0], libc::F_SETFL, libc::O_NONBLOCK) })?;
    Ok((fds[0], fds[1]))
}

/// What the zygote asks of the kernel for itself: a session of its own (a terminal's Ctrl-C is
/// the front's business), no SIGPIPE, a crash that is a crash (the Rust runtime's handlers look
/// for its own stack overflows), and that nobody of its user may read its memory or take its
/// descriptors: by its control socket one asks the front for signals. Its children have that from it:
/// what a script reads of a sibling, or writes there, are other visitors' requests. (php-fpm's
/// children are not dumpable either, unless `process.dumpable` says so.) There are no core files.
pub fn settle_zygote() {
    // SAFETY: plain calls; setsid fails harmlessly for a session leader.
    unsafe {
        libc::setsid();
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    set_dumpable(false);
}

fn set_dumpable(yes: bool) {
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(yes), 0, 0, 0) };
}

/// Gives the zygote a descriptor that reads this process's memory, for the slow log: opened in the
/// moment in which this process may be looked into, it stays good. A message says whose it is.
pub fn hand_over_memory(socket: i32) {
    set_dumpable(true);
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let memory = unsafe { libc::open(c"/proc/self/mem".as_ptr(), flags) };
    set_dumpable(false);
    if memory >= 0 {
        // Without it the slow log lacks a stack.
        let _ = send(socket, own_pid().to_string().as_bytes(), Some(memory));
        close(memory);
    }
    close(socket);
}

/// The zygote is gone: leave after the present request.
static ORPHANED: AtomicBool = AtomicBool::new(false);
static ORPHAN_PATIENCE_MS: AtomicU64 = AtomicU64::new(60_000);
/// The child sleeps between two requests: it may leave from the signal handler.
static IDLE: AtomicBool = AtomicBool::new(false);

/// A signal no PHP script expects; sent by the kernel when the zygote dies.
fn orphan_signal() -> i32 {
    libc::SIGRTMAX() - 1
}

extern "C" fn on_orphaned(_signal: libc::c_int) {
    ORPHANED.store(true, Ordering::SeqCst);
    if IDLE.load(Ordering::SeqCst) {
        leave(0);
    }
}

/// What a freshly forked child asks of the kernel: SIGCHLD as scripts expect it, and a signal
/// when the zygote dies. `zygote` is the parent's id before the fork.
pub fn settle_child(zygote: i32) {
    // SAFETY: handlers are installed in the only thread; the handler touches atomics and _exit.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_orphaned as *const () as usize;
        // What the script waits for goes on (but sleep(), which any handled signal ends).
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(orphan_signal(), &action, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, orphan_signal(), 0, 0, 0);
        if libc::getppid() != zygote {
            leave(0);
        }
    }
}

/// The id of this process.
pub fn own_pid() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// Whether the zygote has died.
pub fn orphaned() -> bool {
    ORPHANED.load(Ordering::SeqCst)
}

/// Sleeps within a request while `word` holds `seen`: until the front takes or gives something.
/// `false` when the zygote is gone and nothing has happened for [`set_orphan_patience`]: the front
/// is probably gone too, and nobody will ever read the answer.
pub fn sleep_in_request(word: &AtomicU32, seen: u32) -> bool {
    let orphaned = orphaned();
    let patience = if orphaned {
        Duration::from_millis(ORPHAN_PATIENCE_MS.load(Ordering::Relaxed))
    } else {
        Duration::from_secs(3600)
    };
    // With a time limit, however long, a futex wait is ended by a signal handler despite
    // SA_RESTART; the caller then looks again and comes back as an orphan.
    let waited = futex_wait(word, seen, Some(patience));
    !(orphaned && waited == Waited::TimedOut)
}

/// How long a child without a zygote waits for the front within a request. Set before the fork.
pub fn set_orphan_patience(patience: Duration) {
    let ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    ORPHAN_PATIENCE_MS.store(ms, Ordering::Relaxed);
}

/// Sleeps between requests; leaves at once when the zygote dies meanwhile.
pub fn sleep_idle(word: &AtomicU32, seen: u32) {
    IDLE.store(true, Ordering::SeqCst);
    if orphaned() {
        leave(0);
    }
    futex_wait(word, seen, None);
    IDLE.store(false, Ordering::SeqCst);
}

/// A user account of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Login name, when the system knows one.
    pub name: Option<CString>,
    /// Home directory, when the system knows one.
    pub home: Option<CString>,
    /// The user's id.
    pub uid: u32,
    /// The id of the user's primary group.
    pub gid: u32,
}

/// The account with this login name; `None` if there is none.
pub fn user_named(name: &str) -> Option<Account> {
    let name = CString::new(name).ok()?;
    // SAFETY: single-threaded; the static result is copied before the next call.
    unsafe { account(libc::getpwnam(name.as_ptr())) }
}

/// The account with this user id; `None` if there is none.
pub fn user_numbered(uid: u32) -> Option<Account> {
    // SAFETY: as in `user_named`.
    unsafe { account(libc::getpwuid(uid)) }
}

/// Copies an entry of the user database.
///
/// # Safety
/// NULL or a valid entry, whose strings are NULL or NUL-terminated.
unsafe fn account(found: *const libc::passwd) -> Option<Account> {
    // SAFETY: as this function demands.
    let found = unsafe { found.as_ref() }?;
    let text = |at: *const libc::c_char| {
        // SAFETY: as this function demands; not NULL.
        (!at.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(at) }.to_owned())
    };
    Some(Account {
        name: text(found.pw_name),
        home: text(found.pw_dir),
        uid: found.pw_uid,
        gid: found.pw_gid,
    })
}

/// The id of the group with this name; `None` if there is none.
pub fn group_named(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: as in `user_named`.
    unsafe { libc::getgrnam(name.as_ptr()).as_ref() }.map(|g| g.gr_gid)
}

/// The effective user id and group id of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: always succeed.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Says in the environment whose it is, as php-fpm does (`USER`, `HOME`): what scripts start (git,
/// composer) looks for its files there.
pub fn name_user(account: &Account) {
    let pairs = [(c"USER", &account.name), (c"HOME", &account.home)];
    for (name, value) in pairs {
        if let Some(value) = value {
            // SAFETY: both are NUL-terminated and copied; single-threaded, before PHP starts.
            unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
        }
    }
}

/// Becomes `account` with group `gid`, for good.
pub fn become_user(account: &Account, gid: u32) -> io::Result<()> {
    // SAFETY: plain calls; the name is NUL-terminated.
    unsafe {
        match &account.name {
            Some(name) => check(libc::initgroups(name.as_ptr(), gid))?,
            None => check(libc::setgroups(1, &gid))?,
        };
        check(libc::setgid(gid))?;
        check(libc::setuid(account.uid))?;
    }
    // The system may have a default for processes that change their user (fs.suid_dumpable).
    set_dumpable(false);
    Ok(())
}

/// Whether a file can be opened for reading by who we are now.
pub fn readable(path: &std::ffi::CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated path.
    let fd = check(unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) })?;
    close(fd);
    Ok(())
}
