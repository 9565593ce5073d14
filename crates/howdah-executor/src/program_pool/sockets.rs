//! Listening sockets for FastCGI programs. The front makes them and passes them on as standard input
//! (FastCGI specification §2.2): programs come and go, the sockets stay, and what connects while a
//! program is being replaced waits in the backlog.
//!
//! A unix socket has no name: it is bound in a private directory and unlinked at once; the front
//! connects through a descriptor of the inode. Nobody else can, whatever user the programs run as,
//! and nothing is left behind by a crash.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use howdah_os::files::private_directory;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::fastcgi::address::Address;

/// Requests wait in our queue, not here; this is for what connects while a program starts.
const BACKLOG: i32 = 1024;

/// A socket that a program accepts connections on.
pub(super) struct Listening {
    /// The address the front connects to.
    pub address: Address,
    /// The program's standard input.
    pub socket: Arc<OwnedFd>,
    /// Keeps the inode reachable: see the module.
    _inode: OwnedFd,
}

/// A unix socket that only this process can connect to.
pub(super) fn unix() -> io::Result<Listening> {
    let directory = private_directory(&std::env::temp_dir(), "howdah-")?;
    let path = directory.join("s");
    let made = (|| -> io::Result<Listening> {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path)?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inode = rustix::fs::open(&path, flags, Mode::empty())?;
        let name = format!("/proc/self/fd/{}", inode.as_raw_fd());
        Ok(Listening {
            address: Address::Unix(PathBuf::from(name)),
            socket: Arc::new(socket),
            _inode: inode,
        })
    })();
    let _ = std::fs::remove_file(&path);
    let _ = std::fs::remove_dir(&directory);
    made
}
