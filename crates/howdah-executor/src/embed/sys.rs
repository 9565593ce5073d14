//! The system calls of the embed mode that need `unsafe` or a trick: mapping a pool's memory,
//! letting a child process inherit descriptors, futex wakes, the monotonic clock. No policy.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

use howdah_proto::shm::{Geometry, Region, Wake};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A pool's shared memory: a sealed memfd, mapped for as long as this value lives. Every
/// [`Region`] got from it, and every port made of that, must be dropped before it.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
    region: Region,
}

// SAFETY: the mapping is shared memory whose words are atomics (see `Region`); `base` is only
// used to unmap it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Creates and maps zeroed memory for this geometry. It is sealed against shrinking: a
    /// process that holds the descriptor cannot make the front fault (SIGBUS) by truncating it.
    pub fn create(geometry: Geometry) -> io::Result<Memory> {
        let len = geometry.region_len();
        let fd = rustix::fs::memfd_create(
            "howdah-pool",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &fd,
                0,
            )?
        };
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        // SAFETY: fresh (zeroed), page-aligned, of length `len`, and mapped until `Drop`, which
        // the type's contract puts after the last use of the region.
        let region = unsafe { Region::create(base, len, geometry) }.map_err(|e| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{geometry:?}: {e:?}"))
        })?;
        Ok(Memory {
            fd,
            base,
            len,
            region,
        })
    }

    /// The view of the pool's layout in this memory.
    pub fn region(&self) -> Region {
        self.region
    }

    /// The memory's descriptor, which the zygote inherits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this length; nobody uses it any more (type's contract).
        // munmap cannot fail for a mapping that exists.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Makes `fds` survive the exec of `command`, at the numbers they have here.
pub fn inherit(command: &mut Command, fds: &[&OwnedFd]) {
    let numbers: Vec<RawFd> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    // SAFETY: between fork and exec only async-signal-safe calls are allowed: fcntl is one, and
    // nothing is allocated. The numbers are open descriptors, which the caller holds until spawn
    // has returned.
    unsafe {
        command.pre_exec(move || {
            for number in &numbers {
                let fd = BorrowedFd::borrow_raw(*number);
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

/// A fresh eventfd that never blocks its writer.
pub fn bell() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Registers a bell, edge-triggered, with the runtime of this thread.
pub fn listen(bell: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    watch(bell, Interest::READABLE)
}

/// Registers a descriptor, edge-triggered, with the runtime of this thread.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the AsyncFd owns the descriptor, whose number an OwnedFd never changes, until it
    // deregisters it when dropped.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(io::Error::from)
}

/// Writes an eventfd. A full counter (`EAGAIN`) means that it is readable anyway.
pub fn ring(fd: BorrowedFd<'_>) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Empties an eventfd. Not for bells: a read could swallow a ring that a front thread's epoll has
/// not reported yet.
pub fn silence(fd: BorrowedFd<'_>) {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
}

/// An eventfd's counter, without reading it (proc_pid_fdinfo(5)); 0 when /proc is not there.
pub fn times_rung(fd: BorrowedFd<'_>) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("eventfd-count:"))
        .and_then(|n| u64::from_str_radix(n.trim(), 16).ok())
        .unwrap_or(0)
}

/// Who forked the process that a pidfd refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// One that the zygote has forked; or one that has ended and been reaped, to which a signal goes
    /// nowhere.
    Zygote,
    /// Another's, or it is no pidfd of the process that was named.
    Other,
    /// The kernel does not say: /proc is missing, or hides other users' processes (`hidepid`).
    Unknown,
}

/// Whether a descriptor is a pidfd of process `pid`, forked by `zygote`, if that is known.
pub fn origin(pidfd: BorrowedFd<'_>, pid: i32, zygote: Option<i32>) -> Origin {
    let look = || {
        named(pidfd, pid)?;
        let found = forked_by(pid, zygote);
        // Asked again: until it has been reaped the number is nobody else's, so what was read is of it.
        named(pidfd, pid).map(|()| found)
    };
    look().unwrap_or_else(|otherwise| otherwise)
}

/// Whether a process is the zygote's child (proc_pid_stat(5)).
///
/// A zygote leads a process group, which its children are born into and nobody else can be put into:
/// that still tells when the zygote has ended before its report is read.
fn forked_by(pid: i32, zygote: Option<i32>) -> Origin {
    let is_zygote = |id: i32| zygote == Some(id);
    let id = rustix::process::Pid::from_raw(pid);
    let group = id.and_then(|id| rustix::process::getpgid(Some(id)).ok());
    if group.is_some_and(|group| is_zygote(group.as_raw_nonzero().get())) {
        return Origin::Zygote;
    }
    match parent(pid) {
        Some(parent) if is_zygote(parent) => Origin::Zygote,
        Some(_) => Origin::Other,
        None => Origin::Unknown,
    }
}

/// Whether it is a pidfd of that process, which has not been reaped (proc_pid_fdinfo(5)); otherwise
/// what it is.
fn named(pidfd: BorrowedFd<'_>, pid: i32) -> Result<(), Origin> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).map_err(|_| Origin::Unknown)?;
    let told = text.lines().find_map(|line| line.strip_prefix("Pid:"));
    match told.and_then(|told| told.trim().parse::<i32>().ok()) {
        Some(-1) => Err(Origin::Zygote),
        Some(told) if told == pid && pid > 0 => Ok(()),
        // None: no pidfd.
        _ => Err(Origin::Other),
    }
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold blanks and brackets itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.nth(1)?.parse().ok()
}

/// Does the futex wake that the exchange asked for; returns whether there was one.
pub fn wake(wake: Wake<'_>) -> bool {
    let Some(word) = wake.0 else {
        return false;
    };
    // No PRIVATE flag: the sleeper is another process. It fails only for a bad address.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
    true
}

/// CLOCK_MONOTONIC in nanoseconds: the clock the children stamp their jobs with.
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pidfd_is_of_its_zygotes_child_or_of_another() {
        let us = std::process::id() as i32;
        let mut child = Command::new("sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        let open = |pid| {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap()
        };
        let origin = |fd: &OwnedFd, pid, zygote| origin(fd.as_fd(), pid, zygote);
        let (fd, own) = (open(pid), open(us));
        for (fd, named, zygote, expected, why) in [
            (&fd, pid, Some(us), Origin::Zygote, "by its parent"),
            (&fd, pid, Some(pid), Origin::Zygote, "by its group"),
            (&fd, pid, Some(1), Origin::Other, "of another zygote"),
            (&fd, pid, None, Origin::Other, "of no zygote that is known"),
            (&fd, us, Some(us), Origin::Other, "of another than said"),
            (&own, us, Some(pid), Origin::Other, "of ourselves"),
            (&bell().unwrap(), pid, Some(us), Origin::Other, "no pidfd"),
        ] {
            assert_eq!(origin(fd, named, zygote), expected, "{why}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let reaped = origin(&fd, pid, Some(us));
        assert_eq!(reaped, Origin::Zygote, "reaped: harmless");
    }
}
