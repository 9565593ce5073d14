//! Listening sockets for FastCGI programs. The front creates them and passes them to the programs as standard input
//! (FastCGI specification §2.2). Programs come and go, but the sockets stay: connections that are made while a program
//! is being replaced wait in the backlog.
//!
//! A unix socket has no name: it is bound in a private directory and unlinked at once, and the front connects through a
//! descriptor of the inode. No other process can connect, whatever user the programs run as, and a crash leaves nothing
//! behind.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use howdah_os::files::create_private_directory;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use howdah_proto::backend_address::BackendAddress;

/// The length of the backlog. Requests wait in the pool's queue, not here; the backlog is for connections that are made
/// while a program starts.
const LISTEN_BACKLOG: i32 = 1024;

/// A socket that a program accepts connections on.
pub(super) struct ProgramSocket {
    /// The address to which the front connects.
    pub address: BackendAddress,
    /// The program's standard input.
    pub socket: Arc<OwnedFd>,
    /// Keeps the inode reachable; see the module's documentation.
    _inode: OwnedFd,
}

/// Creates a unix socket to which only this process can connect.
pub(super) fn listen_unix() -> io::Result<ProgramSocket> {
    let directory = create_private_directory(&std::env::temp_dir(), "howdah-")?;
    let path = directory.join("s");
    let made = (|| -> io::Result<ProgramSocket> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&socket, LISTEN_BACKLOG)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inode = rustix::fs::open(&path, flags, Mode::empty())?;
        let name = format!("/proc/self/fd/{}", inode.as_raw_fd());
        Ok(ProgramSocket {
            address: BackendAddress::Unix(PathBuf::from(name)),
            socket: Arc::new(socket),
            _inode: inode,
        })
    })();
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_dir(&directory);
    made
}
