//! System calls of the test front: shared memory, bells, the control socket. The only file of
//! the tests with `unsafe`.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use howdah_proto::shm::{Geometry, Region};

fn owned(fd: i32) -> OwnedFd {
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: a fresh descriptor that nobody else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A memfd holding a fresh pool, mapped for the rest of the test process.
pub fn pool_memory(geometry: Geometry) -> (OwnedFd, Region) {
    let len = geometry.region_len();
    // SAFETY: a NUL-terminated name.
    let fd = owned(unsafe { libc::memfd_create(c"howdah-test".as_ptr(), libc::MFD_CLOEXEC) });
    // SAFETY: plain integers.
    assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), len as i64) }, 0);
    // SAFETY: a fresh shared mapping, never unmapped.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: zeroed, page-aligned, shared, stays mapped.
    let region =
        unsafe { Region::create(NonNull::new(base.cast()).unwrap(), len, geometry) }.unwrap();
    (fd, region)
}

/// Makes an eventfd, which serves as a bell.
pub fn eventfd() -> OwnedFd {
    // SAFETY: plain integers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// A connected pair of packet sockets.
pub fn packet_pair() -> (OwnedFd, OwnedFd) {
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: writes two descriptors.
    let r = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
    assert_eq!(r, 0);
    (owned(pair[0]), owned(pair[1]))
}

/// Lets the program that `command` starts inherit these descriptors, and no other thread's.
pub fn inherit(command: &mut Command, fds: Vec<i32>) {
    // SAFETY: fcntl is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            for fd in &fds {
                if libc::fcntl(*fd, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
}

/// Wakes one process that sleeps on the word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives in a mapping that is never unmapped.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Waits until one descriptor is readable.
pub fn wait_readable(fds: &[i32], limit: Duration) {
    let mut polled: Vec<_> = fds
        .iter()
        .map(|fd| libc::pollfd {
            fd: *fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    let millis = limit.as_millis().max(1) as i32;
    // SAFETY: as many pollfds as said.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as u64, millis) };
}

/// Resets an eventfd's counter to 0.
pub fn quiet(bell: i32) {
    let mut n = [0u8; 8];
    // SAFETY: eight writable bytes; does not block.
    unsafe { libc::read(bell, n.as_mut_ptr().cast(), 8) };
}

/// Sends one packet; panics if that fails.
pub fn send(fd: i32, packet: &[u8]) {
    // SAFETY: `packet` is readable.
    let n = unsafe { libc::send(fd, packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL) };
    assert_eq!(n, packet.len() as isize, "{}", io::Error::last_os_error());
}

/// What a look at the control socket gave.
pub enum Received {
    /// A packet and the descriptor passed with it.
    Packet(Vec<u8>, Option<OwnedFd>),
    /// No packet has come yet.
    Nothing,
    /// The zygote has closed its end.
    End,
}

/// Takes one packet if there is one.
pub fn receive(fd: i32) -> Received {
    let mut buf = vec![0u8; 64 * 1024];
    let mut space = [0u64; 8];
    let mut iov = libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut iov;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space);
    // SAFETY: all buffers outlive the call.
    let n = unsafe {
        libc::recvmsg(
            fd,
            &mut message,
            libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
        )
    };
    match n {
        0 => Received::End,
        n if n < 0 => match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock => Received::Nothing,
            _ => Received::End,
        },
        n => {
            buf.truncate(n as usize);
            // SAFETY: the kernel filled the control buffer.
            let passed = unsafe {
                libc::CMSG_FIRSTHDR(&message)
                    .as_ref()
                    .map(|h| owned(libc::CMSG_DATA(h).cast::<i32>().read_unaligned()))
            };
            Received::Packet(buf, passed)
        }
    }
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) {
    // SAFETY: plain integers.
    unsafe { libc::kill(pid, signal) };
}

/// CLOCK_MONOTONIC nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    // SAFETY: always succeeds.
    unsafe { libc::geteuid() == 0 }
}
