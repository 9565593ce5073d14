//! System calls of the test front: shared memory, bells, the control socket.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use howdah_os::mapping::PoolMemory;
use howdah_proto::shm::{FrontPort, Geometry, PoolPort, Region};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags,
    SocketType,
};
use rustix::process::{Pid, Signal};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};

pub use howdah_os::descriptors::inherit;

/// Creates a memfd with a fresh pool. Returns it with the ports of its front thread and of the pool.
pub fn pool_memory(geometry: Geometry) -> (OwnedFd, FrontPort, PoolPort) {
    let fd = rustix::fs::memfd_create("howdah-test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, geometry.region_len() as u64).unwrap();
    let memory = Arc::new(PoolMemory::map(&fd).unwrap());
    let (region, mut ports) = Region::create(memory, geometry).unwrap();
    (fd, ports.pop().unwrap(), PoolPort::new(region))
}

/// Creates an eventfd, which serves as a bell.
pub fn eventfd() -> OwnedFd {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap()
}

/// Creates a connected pair of packet sockets.
pub fn packet_pair() -> (OwnedFd, OwnedFd) {
    let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socketpair(unix, packets, SocketFlags::CLOEXEC, None).unwrap()
}

/// Wakes one process that sleeps on the word.
pub fn futex_wake(word: &AtomicU32) {
    futex::wake(word, futex::Flags::empty(), 1).unwrap();
}

/// Waits until one descriptor is readable.
pub fn wait_readable(fds: &[BorrowedFd<'_>], limit: Duration) {
    let polled = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
    let mut polled: Vec<_> = polled.collect();
    let limit = Timespec::try_from(limit).unwrap();
    let _ = rustix::event::poll(&mut polled, Some(&limit));
}

/// Resets an eventfd's counter to 0.
pub fn reset_bell(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// Sends one packet; panics if that fails.
pub fn send(fd: &OwnedFd, packet: &[u8]) {
    let n = rustix::net::send(fd, packet, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(n, packet.len());
}

/// The result of reading from the control socket.
pub enum ControlPacket {
    /// A packet and the descriptor that was passed with it.
    Packet(Vec<u8>, Option<OwnedFd>),
    /// No packet has arrived yet.
    Nothing,
    /// The zygote has closed its end.
    End,
}

/// Receives one packet if there is one.
pub fn receive(fd: &OwnedFd) -> ControlPacket {
    let mut buf = vec![0u8; 64 * 1024];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut pieces = [IoSliceMut::new(&mut buf)];
    let received = rustix::net::recvmsg(fd, &mut pieces, &mut ancillary, flags);
    let n = match received {
        Ok(message) if message.bytes > 0 => message.bytes,
        Err(rustix::io::Errno::AGAIN) => return ControlPacket::Nothing,
        Ok(_) | Err(_) => return ControlPacket::End,
    };
    let mut passed = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            passed = fds.next();
        }
    }
    buf.truncate(n);
    ControlPacket::Packet(buf, passed)
}

/// Sends a signal to a process.
pub fn kill(pid: i32, signal: i32) {
    let (pid, signal) = (Pid::from_raw(pid), Signal::from_named_raw(signal));
    let _ = rustix::process::kill_process(pid.unwrap(), signal.unwrap());
}

/// Returns CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Borrows the descriptors, to wait for them.
pub fn borrowed<'a>(fds: impl IntoIterator<Item = &'a OwnedFd>) -> Vec<BorrowedFd<'a>> {
    fds.into_iter().map(AsFd::as_fd).collect()
}

/// Returns whether the tests run as root.
pub fn is_root() -> bool {
    howdah_os::process::is_root()
}
