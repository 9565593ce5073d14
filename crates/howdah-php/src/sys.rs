//! The system calls of a zygote and its children, one small safe function for each. `unsafe` covers the calls that
//! rustix does not have, such as fork, signal handlers and `_exit`. This module contains no policy.

#![allow(unsafe_code)]

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use howdah_os::account::Account;
use howdah_os::descriptors::send_packet;
use howdah_os::process::{set_dumpable, thread_count};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType,
};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

/// Returns CLOCK_MONOTONIC in nanoseconds, the clock of the scoreboard.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns CLOCK_MONOTONIC in milliseconds.
pub fn monotonic_ms() -> u64 {
    monotonic_ns() / 1_000_000
}

/// Makes standard input empty and sends standard output to the log pipe: a script that writes to `php://stdout` must
/// not write to the front's standard output.
pub fn redirect_stdio() {
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::stdio::dup2_stdin(null);
    }
    let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
}

/// Writes a packet to a pipe or socket. Returns `false` if the write fails, for example because no process reads it any
/// more.
pub fn write_packet(fd: BorrowedFd<'_>, packet: &[u8]) -> bool {
    rustix::io::retry_on_intr(|| rustix::io::write(fd, packet)).is_ok()
}

/// Rings the bell (eventfd) of a front thread. If the counter is full, the bell is ringing already.
pub fn ring_bell(fd: BorrowedFd<'_>) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Sleeps while `word` holds `seen`. Returns `false` when the time limit was reached. Otherwise the sleeper was woken
/// or interrupted by a signal, or the word had already changed, and the caller checks again.
fn futex_wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(timespec);
    // No PRIVATE flag, because the waker is another process.
    let waited = futex::wait(word, futex::Flags::empty(), seen, limit.as_ref());
    waited != Err(rustix::io::Errno::TIMEDOUT)
}

/// Wakes one sleeper on `word`.
pub fn futex_wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

/// Converts a duration to the form of system calls.
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

/// Exits at once, without exit handlers: a forked child shares too much with its zygote.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` never returns.
    unsafe { libc::_exit(status) }
}

/// Kills this process after `seconds` if it still runs then.
pub fn set_exit_alarm(seconds: u32) {
    // SAFETY: no pointers are passed. SIGALRM has its default disposition, which ends the process.
    unsafe { libc::alarm(seconds) };
}

/// Receives one packet from a socket. Returns `None` at end of file.
pub fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    let (n, _) = rustix::net::recv(fd, buf, RecvFlags::empty())?;
    Ok((n > 0).then_some(n))
}

/// Receives one packet and the descriptor that came with it. Returns `None` at end of file.
pub fn receive_with_fd(
    fd: BorrowedFd<'_>,
    buf: &mut [u8],
) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(buf)];
    let message = rustix::net::recvmsg(fd, &mut pieces, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            passed = fds.next();
        }
    }
    Ok((message.bytes > 0).then_some((message.bytes, passed)))
}

/// Sends one packet, with a descriptor if one is given.
pub fn send(fd: BorrowedFd<'_>, packet: &[u8], passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
    Ok(send_packet(
        fd,
        packet,
        passed.as_slice(),
        SendFlags::empty(),
    )?)
}

/// The process in which `fork` has returned.
pub enum ForkResult {
    /// This is the new process.
    Child,
    /// This is the old process; the value is the id of the new one.
    Parent(i32),
}

/// Forks. Only the forking thread exists in the new process, where locks held by other threads stay locked. Howdah
/// starts no thread here, but an extension may, or code that a script ran earlier. The first such fork is reported to
/// `warn`, with the warning's name.
pub fn fork(warn: impl FnOnce(&str)) -> io::Result<ForkResult> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let threads = thread_count();
    if threads > 1 && !WARNED.swap(true, Ordering::Relaxed) {
        warn(&format!(
            "ForkWithThreads: this process has {threads} threads, which an extension has started; processes that it forks have only one, and may wait forever for a lock that another thread held"
        ));
    }
    // SAFETY: the new process continues in C and Rust code that expects a single thread, and it has one. That it may
    // call functions that are not async-signal-safe depends on the parent having one thread, which was checked above.
    // With more threads the new process may deadlock, but it does not violate memory safety.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(ForkResult::Child),
        pid => Ok(ForkResult::Parent(pid)),
    }
}

/// Opens a descriptor for a child that has not been reaped yet.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Ignores SIGPIPE, as Rust does before the `main` of a program: a write to a closed pipe is an error.
pub fn ignore_broken_pipes() {
    // SAFETY: installs no handler; called before any thread exists.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Sends a signal to a child that has not been reaped yet.
pub fn send_signal(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// How a reaped process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessExit {
    /// The process exited with this status.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

impl ProcessExit {
    fn from_status(status: WaitStatus) -> ProcessExit {
        match status.terminating_signal() {
            Some(signal) => ProcessExit::Signal(signal),
            None => ProcessExit::Code(status.exit_status().unwrap_or(0)),
        }
    }
}

/// Reaps one dead child, if there is one.
pub fn reap_any() -> Option<(i32, ProcessExit)> {
    let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
    Some((pid.as_raw_nonzero().get(), ProcessExit::from_status(status)))
}

/// Reaps the child `pid` if it has exited.
pub fn reap_child(pid: i32) -> Option<ProcessExit> {
    let pid = Pid::from_raw(pid)?;
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
    Some(ProcessExit::from_status(status))
}

/// Waits until one of the descriptors is readable, or for `limit`. Returns which of them are readable.
pub fn wait_readable<const N: usize>(
    fds: [Option<BorrowedFd<'_>>; N],
    limit: Option<Duration>,
) -> [bool; N] {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .flatten()
        .map(|fd| PollFd::new(fd, PollFlags::IN))
        .collect();
    let limit = limit.map(timespec);
    if rustix::event::poll(&mut polled, limit.as_ref()).is_err() {
        return [false; N];
    }
    let mut polled = polled.into_iter();
    fds.map(|fd| fd.is_some() && polled.next().is_some_and(|fd| !fd.revents().is_empty()))
}

/// Creates a pair of packet sockets, the first of which never blocks. Both are closed on exec.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = rustix::net::socketpair(unix, packets, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Configures the zygote's own process:
///
/// - It gets its own session, because the front handles a terminal's Ctrl-C.
/// - It ignores SIGPIPE.
/// - A crash kills it: the Rust runtime's handlers, which look for Rust's own stack overflows, are removed.
/// - Other processes of its user may not read its memory or take its descriptors, because anyone with the control
///   socket can ask the front for signals.
///
/// The children inherit the last rule, since a script could otherwise read or change other visitors' requests in a
/// sibling. (php-fpm's children are not dumpable either, unless `process.dumpable` is set.) As a consequence there are
/// no core files.
pub fn prepare_zygote() {
    // Fails harmlessly for a session leader.
    let _ = rustix::process::setsid();
    // SAFETY: the dispositions are the kernel's own, so no handler runs.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    let _ = set_dumpable(false);
}

/// Gives the zygote a descriptor that reads this process's memory, for the slow log. The process may be inspected only
/// while the descriptor is opened, but the descriptor stays valid afterwards. The message contains the process id.
pub fn send_memory_descriptor(socket: OwnedFd) {
    let _ = set_dumpable(true);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let memory = rustix::fs::open("/proc/self/mem", flags, Mode::empty());
    let _ = set_dumpable(false);
    if let Ok(memory) = memory {
        // If this fails, the slow log lacks a stack.
        let pid = own_pid().to_string();
        let _ = send(socket.as_fd(), pid.as_bytes(), Some(memory.as_fd()));
    }
}

/// The zygote has died: exit after the current request.
static ORPHANED: AtomicBool = AtomicBool::new(false);
static ORPHAN_TIMEOUT_MS: AtomicU64 = AtomicU64::new(60_000);
/// The child sleeps between two requests, so the signal handler may exit.
static IDLE: AtomicBool = AtomicBool::new(false);

/// Returns a signal that no PHP script expects. The kernel sends it when the zygote dies.
fn orphan_signal() -> i32 {
    libc::SIGRTMAX() - 1
}

extern "C" fn on_orphaned(_signal: libc::c_int) {
    ORPHANED.store(true, Ordering::SeqCst);
    if IDLE.load(Ordering::SeqCst) {
        exit_now(0);
    }
}

/// Configures a freshly forked child: clears the signal mask and requests a signal when the zygote dies. `zygote` is
/// the parent's id before the fork.
pub fn prepare_child(zygote: i32) {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    // SAFETY: an all-zero sigaction is a valid value; the handler only touches atomics and calls _exit.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_orphaned as *const () as usize;
        // A system call in which the script waits is restarted (except sleep(), which every handled signal interrupts).
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(orphan_signal(), &action, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, orphan_signal(), 0, 0, 0);
    }
    if !is_parent(zygote) {
        exit_now(0);
    }
}

/// Returns whether `pid` is the parent of this process.
pub fn is_parent(pid: i32) -> bool {
    getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == pid)
}

/// Returns the id of this process.
pub fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Returns whether a process with this id exists, whichever user owns it.
pub fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Returns whether the zygote has died.
pub fn is_orphaned() -> bool {
    ORPHANED.load(Ordering::SeqCst)
}

/// Sleeps within a request while `word` holds `seen`, until the front takes or provides something. Returns `false` when
/// the zygote is gone and nothing has happened for the time set by [`set_orphan_timeout`]: the front is then probably
/// gone too, and no process will ever read the response.
pub fn sleep_in_request(word: &AtomicU32, seen: u32) -> bool {
    let orphaned = is_orphaned();
    let timeout = if orphaned {
        Duration::from_millis(ORPHAN_TIMEOUT_MS.load(Ordering::Relaxed))
    } else {
        Duration::from_secs(3600)
    };
    // With a time limit, however long, a futex wait is interrupted by a signal handler despite SA_RESTART. The caller
    // then checks again and calls this function as an orphan.
    futex_wait(word, seen, Some(timeout)) || !orphaned
}

/// Sets how long a child without a zygote waits for the front within a request. Called before the fork.
pub fn set_orphan_timeout(timeout: Duration) {
    let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    ORPHAN_TIMEOUT_MS.store(ms, Ordering::Relaxed);
}

/// Sleeps between requests. Exits at once if the zygote dies meanwhile.
pub fn sleep_idle(word: &AtomicU32, seen: u32) {
    IDLE.store(true, Ordering::SeqCst);
    if is_orphaned() {
        exit_now(0);
    }
    futex_wait(word, seen, None);
    IDLE.store(false, Ordering::SeqCst);
}

/// Sets `USER` and `HOME` in the environment, as php-fpm does: programs that scripts start (git, composer) look for
/// their files there. Called before PHP starts.
pub fn set_user_environment(account: &Account) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for (name, value) in [("USER", &account.name), ("HOME", &account.home)] {
        if let Some(value) = value {
            // SAFETY: no other thread reads the environment, because PHP, which may create some, has not been started.
            unsafe { std::env::set_var(name, OsStr::from_bytes(value.as_bytes())) };
        }
    }
}

/// Checks that the current user can open a file for reading.
pub fn check_readable(path: &std::ffi::CStr) -> io::Result<()> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fork_with_threads_is_reported_once() {
        // The test harness runs each test on its own thread, so this process has more than one.
        let mut warnings = Vec::new();
        for _ in 0..2 {
            match fork(|warning| warnings.push(warning.to_owned())).unwrap() {
                ForkResult::Child => exit_now(3),
                ForkResult::Parent(pid) => {
                    let end = std::iter::repeat_with(|| reap_child(pid)).find_map(|end| end);
                    assert_eq!(end, Some(ProcessExit::Code(3)));
                }
            }
        }
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("ForkWithThreads: this process has "));
    }
}
