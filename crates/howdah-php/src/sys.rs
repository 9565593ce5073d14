//! What a zygote and its children ask of the system, one small safe function each. `unsafe` for the
//! calls that rustix leaves out: fork, signal handlers, `_exit`. No policy here.

#![allow(unsafe_code)]

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use howdah_os::account::Account;
use howdah_os::descriptors::send_packet;
use howdah_os::process::{set_dumpable, threads};
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

/// CLOCK_MONOTONIC in nanoseconds; the scoreboard's clock.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes standard input empty and standard output the log pipe: a script writing to
/// `php://stdout` must not write into whatever the front had there.
pub fn tidy_stdio() {
    if let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    {
        let _ = rustix::stdio::dup2_stdin(null);
    }
    let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
}

/// Writes a packet to a pipe; `false`: nobody reads it any more.
pub fn write(fd: BorrowedFd<'_>, packet: &[u8]) -> bool {
    rustix::io::retry_on_intr(|| rustix::io::write(fd, packet)).is_ok()
}

/// Rings the bell (eventfd) of a front thread. A full counter means it is ringing already.
pub fn ring(fd: BorrowedFd<'_>) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Sleeps while `word` holds `seen`; `false` when the time limit was reached. Otherwise it was woken,
/// interrupted by a signal, or the word had changed already: look again.
fn futex_wait(word: &AtomicU32, seen: u32, limit: Option<Duration>) -> bool {
    let limit = limit.map(timespec);
    // No PRIVATE flag: whoever wakes is another process.
    let waited = futex::wait(word, futex::Flags::empty(), seen, limit.as_ref());
    waited != Err(rustix::io::Errno::TIMEDOUT)
}

/// Wakes one sleeper of `word`.
pub fn futex_wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: i64::from(time.subsec_nanos()),
    }
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
pub fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    let (n, _) = rustix::net::recv(fd, buf, RecvFlags::empty())?;
    Ok((n > 0).then_some(n))
}

/// One packet and the descriptor that came with it; `None` at the end of the file.
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

/// Sends one packet, with a descriptor if given.
pub fn send(fd: BorrowedFd<'_>, packet: &[u8], passed: Option<BorrowedFd<'_>>) -> io::Result<()> {
    Ok(send_packet(
        fd,
        packet,
        passed.as_slice(),
        SendFlags::empty(),
    )?)
}

/// Which process `fork` has returned in.
pub enum Forked {
    /// This is the new process.
    Child,
    /// The old one, with the new one's id.
    Parent(i32),
}

/// Forks. The new process has the thread that forks and no other; what others hold locked stays locked
/// in it. We start no thread, but an extension may, or code that a script has run before: that is
/// reported once to `warn`, by its name.
pub fn fork(warn: impl FnOnce(&str)) -> io::Result<Forked> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let threads = threads();
    if threads > 1 && !WARNED.swap(true, Ordering::Relaxed) {
        warn(&format!(
            "ForkWithThreads: this process has {threads} threads (an extension has started them); processes that it forks have one, and may wait for ever for what another has locked"
        ));
    }
    // SAFETY: the new process goes on in C and Rust code that expects to be alone, which it is. That it
    // may call more than async-signal-safe functions rests on the process having one thread, which was
    // just looked at; with more, it may deadlock, and breaks no memory.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(pid)),
    }
}

/// A descriptor for a child not reaped yet.
pub fn pidfd_open(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal to a child not reaped yet.
pub fn kill(pid: i32, signal: i32) {
    if let (Some(pid), Some(signal)) = (Pid::from_raw(pid), Signal::from_named_raw(signal)) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// How a reaped process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The process exited with this status.
    Code(i32),
    /// This signal killed the process.
    Signal(i32),
}

impl ProcessEnd {
    fn of(status: WaitStatus) -> ProcessEnd {
        match status.terminating_signal() {
            Some(signal) => ProcessEnd::Signal(signal),
            None => ProcessEnd::Code(status.exit_status().unwrap_or(0)),
        }
    }
}

/// Reaps one dead child, if there is one.
pub fn reap() -> Option<(i32, ProcessEnd)> {
    let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
    Some((pid.as_raw_nonzero().get(), ProcessEnd::of(status)))
}

/// Reaps the child `pid` if it has ended.
pub fn reap_child(pid: i32) -> Option<ProcessEnd> {
    let pid = Pid::from_raw(pid)?;
    let (_, status) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok()??;
    Some(ProcessEnd::of(status))
}

/// Waits until one of the descriptors is readable, or for `limit`; says which are.
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

/// A pair of packet sockets of which the first never blocks; both close on exec.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, theirs) = rustix::net::socketpair(unix, packets, SocketFlags::CLOEXEC, None)?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// What the zygote asks of the kernel for itself: a session of its own (a terminal's Ctrl-C is
/// the front's business), no SIGPIPE, a crash that is a crash (the Rust runtime's handlers look
/// for its own stack overflows), and that nobody of its user may read its memory or take its
/// descriptors: by its control socket one asks the front for signals. Its children have that from it:
/// what a script reads of a sibling, or writes there, are other visitors' requests. (php-fpm's
/// children are not dumpable either, unless `process.dumpable` says so.) There are no core files.
pub fn settle_zygote() {
    // Fails harmlessly for a session leader.
    let _ = rustix::process::setsid();
    // SAFETY: dispositions of the kernel's own; no handler runs.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    let _ = set_dumpable(false);
}

/// Gives the zygote a descriptor that reads this process's memory, for the slow log: opened in the
/// moment in which this process may be looked into, it stays good. A message says whose it is.
pub fn hand_over_memory(socket: OwnedFd) {
    let _ = set_dumpable(true);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let memory = rustix::fs::open("/proc/self/mem", flags, Mode::empty());
    let _ = set_dumpable(false);
    if let Ok(memory) = memory {
        // Without it the slow log lacks a stack.
        let pid = own_pid().to_string();
        let _ = send(socket.as_fd(), pid.as_bytes(), Some(memory.as_fd()));
    }
}

/// The zygote is gone: leave after the present request.
static ORPHANED: AtomicBool = AtomicBool::new(false);
static ORPHAN_TIMEOUT_MS: AtomicU64 = AtomicU64::new(60_000);
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
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    // SAFETY: an all-zero sigaction is a value; the handler touches atomics and _exit.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_orphaned as *const () as usize;
        // What the script waits for goes on (but sleep(), which any handled signal ends).
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(orphan_signal(), &action, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, orphan_signal(), 0, 0, 0);
    }
    if !is_parent(zygote) {
        leave(0);
    }
}

/// Whether that process is this one's parent.
pub fn is_parent(pid: i32) -> bool {
    getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == pid)
}

/// The id of this process.
pub fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Whether there is a process of this number, of whatever user.
pub fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Whether the zygote has died.
pub fn orphaned() -> bool {
    ORPHANED.load(Ordering::SeqCst)
}

/// Sleeps within a request while `word` holds `seen`: until the front takes or gives something.
/// `false` when the zygote is gone and nothing has happened for [`set_orphan_timeout`]: the front
/// is probably gone too, and nobody will ever read the answer.
pub fn sleep_in_request(word: &AtomicU32, seen: u32) -> bool {
    let orphaned = orphaned();
    let timeout = if orphaned {
        Duration::from_millis(ORPHAN_TIMEOUT_MS.load(Ordering::Relaxed))
    } else {
        Duration::from_secs(3600)
    };
    // With a time limit, however long, a futex wait is ended by a signal handler despite
    // SA_RESTART; the caller then looks again and comes back as an orphan.
    futex_wait(word, seen, Some(timeout)) || !orphaned
}

/// How long a child without a zygote waits for the front within a request. Set before the fork.
pub fn set_orphan_timeout(timeout: Duration) {
    let ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    ORPHAN_TIMEOUT_MS.store(ms, Ordering::Relaxed);
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

/// Says in the environment whose it is, as php-fpm does (`USER`, `HOME`): what scripts start (git,
/// composer) looks for its files there. Before PHP starts.
pub fn name_user(account: &Account) {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    for (name, value) in [("USER", &account.name), ("HOME", &account.home)] {
        if let Some(value) = value {
            // SAFETY: no other thread reads the environment: PHP, which may have some, is not started.
            unsafe { std::env::set_var(name, OsStr::from_bytes(value.as_bytes())) };
        }
    }
}

/// Whether a file can be opened for reading by who we are now.
pub fn readable(path: &std::ffi::CStr) -> io::Result<()> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_of_a_process_with_threads_is_reported_once() {
        // The test runs on a thread of its own.
        let mut warnings = Vec::new();
        for _ in 0..2 {
            match fork(|warning| warnings.push(warning.to_owned())).unwrap() {
                Forked::Child => leave(3),
                Forked::Parent(pid) => {
                    let end = std::iter::repeat_with(|| reap_child(pid)).find_map(|end| end);
                    assert_eq!(end, Some(ProcessEnd::Code(3)));
                }
            }
        }
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("ForkWithThreads: this process has "));
    }
}
