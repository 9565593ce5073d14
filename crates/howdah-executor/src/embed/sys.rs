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

    /// The pool in this memory.
    pub fn region(&self) -> Region {
        self.region
    }

    /// The memfd, for the zygote.
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

/// Whether a descriptor is a pidfd of process `pid`, forked by `zygote` (proc_pid_fdinfo(5),
/// proc_pid_stat(5)). Also `true` for a process that has ended and been reaped: a signal to it goes
/// nowhere.
///
/// A zygote leads a process group, which its children are born into and nobody else can be put into:
/// that still tells when the zygote has ended before its report is read.
pub fn is_child_of(pidfd: BorrowedFd<'_>, pid: i32, zygote: i32) -> bool {
    let is_told = || match pid_of(pidfd) {
        Some(-1) => Some(false),
        Some(told) if told == pid && pid > 0 => Some(true),
        _ => None,
    };
    match is_told() {
        None => return false,
        Some(false) => return true,
        Some(true) => {}
    }
    let (parent, group) = parent_and_group(pid).unwrap_or_default();
    let theirs = zygote > 0 && (parent == zygote || group == zygote);
    // Asked again: until it has been reaped the number is nobody else's, so what was read is of it.
    match is_told() {
        None => false,
        Some(false) => true,
        Some(true) => theirs,
    }
}

/// The process of a pidfd: -1 when it has been reaped; none for what is no pidfd, or one of a
/// process outside of our namespace.
fn pid_of(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    line.trim().parse().ok()
}

fn parent_and_group(pid: i32) -> Option<(i32, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold blanks and brackets itself.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
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
