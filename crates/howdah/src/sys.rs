//! The system calls that have no safe wrapper: accounts, giving up root, the signal descriptor, a
//! terminal's keys and size.
//! The only module with `unsafe`; no policy here.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// A user account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name, for the supplementary groups; none for a number nobody has.
    pub name: Option<CString>,
    /// User id.
    pub uid: u32,
    /// Its own group.
    pub gid: u32,
}

/// Looks a user up by name or number. A number needs no entry in the user database. Call it
/// before any thread is started.
pub fn user(text: &str) -> Option<Account> {
    let copy = |p: &libc::passwd| Account {
        // SAFETY: pw_name is a NUL-terminated string, copied before the next look-up.
        name: Some(unsafe { CStr::from_ptr(p.pw_name) }.to_owned()),
        uid: p.pw_uid,
        gid: p.pw_gid,
    };
    if let Ok(uid) = text.parse::<u32>() {
        // SAFETY: the static result is copied at once, and no other thread asks.
        let found = unsafe { libc::getpwuid(uid).as_ref() }.map(copy);
        return Some(found.unwrap_or(Account {
            name: None,
            uid,
            gid: uid,
        }));
    }
    let name = CString::new(text).ok()?;
    // SAFETY: as above; the name is NUL-terminated.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(copy)
}

/// Looks a group up by name or number.
pub fn group(text: &str) -> Option<u32> {
    if let Ok(gid) = text.parse() {
        return Some(gid);
    }
    let name = CString::new(text).ok()?;
    // SAFETY: as in `user`.
    unsafe { libc::getgrnam(name.as_ptr()).as_ref() }.map(|g| g.gr_gid)
}

/// Becomes `account` with group `gid` and the account's supplementary groups, for good, and stays
/// [`not_dumpable`]: a change of user sets what the system has as its default (`fs.suid_dumpable`).
pub fn become_user(account: &Account, gid: u32) -> io::Result<()> {
    // SAFETY: plain calls; the name is NUL-terminated. The libc wrappers of setgid and setuid
    // change all threads.
    unsafe {
        match &account.name {
            Some(name) => check(libc::initgroups(name.as_ptr(), gid))?,
            None => check(libc::setgroups(1, &gid))?,
        };
        check(libc::setgid(gid))?;
        check(libc::setuid(account.uid))?;
    }
    not_dumpable()
}

/// Neither this process nor what it starts gains rights by an exec.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }).map(drop)
}

/// Other processes of the same user can neither trace this one nor read its memory, and it leaves
/// no core file.
pub fn not_dumpable() -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }).map(drop)
}

/// Keeps what whoever started us had open, beyond the first three, from the processes that we start.
pub fn keep_descriptors_to_ourselves() {
    let cloexec = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
    // SAFETY: no pointers; no descriptor is closed, only its flag is set.
    if unsafe { libc::close_range(3, libc::c_uint::MAX, cloexec) } == 0 {
        return;
    }
    // A kernel before 5.11.
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number > 2) {
        // SAFETY: no pointers. One that is not open any more (the directory's own) is refused.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Blocks these signals for this thread (and those it starts), and gives a descriptor that is
/// readable when one is pending. Processes started by `std::process::Command` get an empty mask.
pub fn signal_descriptor(signals: &[libc::c_int]) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is a valid value to be overwritten by sigemptyset; the calls read and
    // write only it; the returned descriptor is ours alone.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            check(libc::sigaddset(&mut set, *signal))?;
        }
        check(libc::sigprocmask(
            libc::SIG_BLOCK,
            &set,
            std::ptr::null_mut(),
        ))?;
        let fd = check(libc::signalfd(
            -1,
            &set,
            libc::SFD_CLOEXEC | libc::SFD_NONBLOCK,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The signals pending on a descriptor of [`signal_descriptor`].
pub fn pending_signals(fd: &OwnedFd) -> Vec<libc::c_int> {
    const SIZE: usize = std::mem::size_of::<libc::signalfd_siginfo>();
    let mut bytes = [0u8; SIZE * 16];
    let mut signals = Vec::new();
    while let Ok(n) = rustix::io::read(fd, &mut bytes) {
        // ssi_signo is the first field, a u32.
        signals.extend(
            bytes[..n].chunks_exact(SIZE).map(|info| {
                u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as libc::c_int
            }),
        );
        if n < bytes.len() {
            break;
        }
    }
    signals
}

/// Takes over a descriptor that an exec handed down under a number.
///
/// # Errors
/// When no descriptor of that number is open, or it is one of the first three.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::Error::other("not a descriptor handed down to us"));
    }
    // SAFETY: no pointers; tells whether the descriptor is open, and sets its flag.
    check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    // SAFETY: it is open, the command line says that it is for us, and this is called once for it
    // before anything else is opened.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Lets a command inherit `fd` under its own number.
pub fn hand_down(command: &mut std::process::Command, fd: RawFd) {
    use std::os::unix::process::CommandExt;
    // SAFETY: fcntl is async-signal-safe and touches only the new process's descriptor table.
    unsafe {
        command.pre_exec(move || check(libc::fcntl(fd, libc::F_SETFD, 0)).map(drop));
    }
}

/// Columns and rows of a terminal; none if it is no terminal or does not tell.
pub fn terminal_size(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    // SAFETY: an all-zero winsize is a valid value; the kernel writes no more than one.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        check(libc::ioctl(
            terminal.as_raw_fd(),
            libc::TIOCGWINSZ,
            &mut size,
        ))
        .ok()?;
        size
    };
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// A terminal that gives keys as they are pressed, without showing them; Ctrl-C is a key too. As
/// it was again when this is dropped.
pub struct Keys {
    terminal: RawFd,
    before: libc::termios,
}

impl Keys {
    /// Of this terminal, which must stay open meanwhile.
    pub fn take(terminal: BorrowedFd<'_>) -> io::Result<Keys> {
        let terminal = terminal.as_raw_fd();
        // SAFETY: an all-zero termios is a valid value; the calls read and write only it.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            check(libc::tcgetattr(terminal, &mut before))?;
            let mut keys = before;
            keys.c_lflag &= !(libc::ICANON | libc::ECHO | libc::ISIG);
            keys.c_cc[libc::VMIN] = 1;
            keys.c_cc[libc::VTIME] = 0;
            check(libc::tcsetattr(terminal, libc::TCSANOW, &keys))?;
            Ok(Keys { terminal, before })
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        // SAFETY: reads only `before`. A terminal that is gone needs nothing back.
        let _ = unsafe { libc::tcsetattr(self.terminal, libc::TCSANOW, &self.before) };
    }
}

/// Whether we may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
