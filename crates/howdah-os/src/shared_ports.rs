//! Listening sockets of two servers at one address, and a program in the kernel that decides which of them gets each new
//! connection (SO_REUSEPORT and SO_ATTACH_REUSEPORT_CBPF, socket(7)). Neither server has to know about the other one,
//! and no connection is refused while the choice changes.
//!
//! The kernel numbers the sockets of an address in the order in which they began to listen. If the program names a
//! number that does not exist, because that server has exited, the kernel ignores the program and distributes
//! connections over the remaining sockets (`reuseport_select_sock()` in net/core/sock_reuseport.c). A server that
//! crashes therefore leaves its port to the other server.

#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Gid, Uid, fchown, fstat};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// The maximum number of connections that wait until a server accepts them. The kernel lowers this number to
/// `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// The sockets of an address that get new connections, by their numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SocketChoice {
    /// A range of sockets shares the connections.
    Range {
        /// The number of the first socket.
        first: u32,
        /// How many there are; at least 1.
        count: u32,
    },
    /// One socket gets the connections of IPv4, and another one those of IPv6. Both are bound to an address of IPv6 that
    /// includes IPv4.
    ByFamily {
        /// The number of the socket for IPv4.
        ipv4: u32,
        /// The number of the socket for IPv6.
        ipv6: u32,
    },
}

/// A process that is held by a descriptor, so its id cannot come to mean another process.
#[derive(Debug)]
pub struct HeldProcess(OwnedFd);

impl HeldProcess {
    /// Opens the process that has this id now. The caller must then verify that this is the intended process, because
    /// ids are reused.
    ///
    /// # Errors
    /// The error of `pidfd_open(2)`; `ESRCH` if there is no such process.
    pub fn open(pid: u32) -> io::Result<HeldProcess> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(HeldProcess(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Returns a copy of a descriptor of the process.
    ///
    /// # Errors
    /// The error of `pidfd_getfd(2)`, which Linux 5.6 introduced: `EPERM` without the right to trace the process.
    pub fn descriptor(&self, number: RawFd) -> io::Result<OwnedFd> {
        Ok(pidfd_getfd(&self.0, number, PidfdGetfdFlags::empty())?)
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// The error of `pidfd_send_signal(2)`; `ESRCH` if the process has exited.
    pub fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.0, signal)?)
    }
}

/// Opens `count` sockets that listen beside `present`, the sockets of another server at one address, in the order in
/// which they began to listen. All new connections continue to go to the sockets of `present` until [`choose`] is
/// called.
///
/// # Errors
/// The error of the system; `InvalidInput` if `present` is empty or is not TCP.
pub fn listen_beside(present: &[OwnedFd], count: usize) -> io::Result<Vec<OwnedFd>> {
    for socket in present {
        sockopt::set_socket_reuseport(socket, true)?;
    }
    let mut sockets = Vec::new();
    while sockets.len() < count {
        sockets.push(join(present)?);
    }
    Ok(sockets)
}

fn join(present: &[OwnedFd]) -> io::Result<OwnedFd> {
    let first = present.first().ok_or(io::ErrorKind::InvalidInput)?;
    let address = SocketAddr::try_from(getsockname(first)?)?;
    let ipv6_only = address.is_ipv6() && sockopt::ipv6_v6only(first)?;
    let socket = unbound(address, ipv6_only)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    // The kernel lets only sockets of one user share an address.
    let owner = fstat(first)?;
    fchown(
        &socket,
        Some(Uid::from_raw(owner.st_uid)),
        Some(Gid::from_raw(owner.st_gid)),
    )?;
    bind(&socket, &address)?;
    // Between the next two calls, the kernel may give a new connection to the new socket. The filter drops its SYN,
    // and the client sends it again.
    attach(&socket, libc::SO_ATTACH_FILTER, &[returns(0)])?;
    listen(&socket, BACKLOG)?;
    let present = SocketChoice::Range {
        first: 0,
        count: present.len() as u32,
    };
    choose(&socket, present)?;
    set_option(&socket, libc::SO_DETACH_FILTER, &0i32)?;
    Ok(socket)
}

/// Decides which sockets of an address get new connections. `socket` is any of them.
///
/// # Errors
/// The error of the system; `EINVAL` if no other socket shares the address of this one.
pub fn choose(socket: impl AsFd, choice: SocketChoice) -> io::Result<()> {
    let program = match choice {
        SocketChoice::Range { first, count: 1 } => vec![returns(first)],
        SocketChoice::Range { first, count } => vec![
            // A random number (bpf, ancillary data), modulo the number of sockets.
            load(libc::SKF_AD_RANDOM),
            instruction(0x94, count),
            instruction(0x04, first),
            instruction(0x16, 0),
        ],
        SocketChoice::ByFamily { ipv4, ipv6 } => vec![
            load(libc::SKF_AD_PROTOCOL),
            // Skips the next instruction if the packet is not one of IPv6.
            libc::sock_filter {
                jf: 1,
                ..instruction(0x15, libc::ETH_P_IPV6 as u32)
            },
            returns(ipv6),
            returns(ipv4),
        ],
    };
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Removes the program of [`choose`], and no longer lets other sockets join this one, if `exclusive`.
///
/// # Errors
/// The error of the system. An address without a program is not an error.
pub fn end_choice(socket: impl AsFd, exclusive: bool) -> io::Result<()> {
    match set_option(&socket, libc::SO_DETACH_REUSEPORT_BPF, &0i32) {
        Err(error) if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINVAL)) => {
            return Err(error);
        }
        _ => {}
    }
    if exclusive {
        sockopt::set_socket_reuseport(socket, false)?;
    }
    Ok(())
}

fn unbound(address: SocketAddr, ipv6_only: bool) -> io::Result<OwnedFd> {
    let family = match address.is_ipv4() {
        true => AddressFamily::INET,
        false => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    // Connections that the address has had before do not prevent this socket from being bound.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, ipv6_only)?;
    }
    Ok(socket)
}

fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Returns the instruction that loads what the kernel knows about a packet.
fn load(offset: i32) -> libc::sock_filter {
    instruction(0x20, (libc::SKF_AD_OFF + offset) as u32)
}

/// Returns the instruction that ends a program with this value.
fn returns(value: u32) -> libc::sock_filter {
    instruction(0x06, value)
}

fn attach(socket: impl AsFd, option: i32, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        // The kernel only reads the instructions.
        filter: program.as_ptr().cast_mut(),
    };
    set_option(socket, option, &program)
}

/// Sets an option of the level SOL_SOCKET that rustix does not have.
fn set_option<T>(socket: impl AsFd, option: i32, value: &T) -> io::Result<()> {
    let socket: BorrowedFd<'_> = socket.as_fd();
    // SAFETY: the kernel reads `size_of::<T>()` bytes at `value`, which is borrowed during the call. If `value` is a
    // `sock_fprog`, it reads the instructions, too: `attach` borrows them during the call and passes their number. The
    // kernel copies and checks a program before it uses it, and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    const CONNECTIONS: usize = 50;

    /// Answers each connection with its name, until the listener is shut down.
    fn serve(listener: TcpListener, name: &'static [u8]) {
        listener.set_nonblocking(false).unwrap();
        thread::spawn(move || {
            use std::io::Write;
            while let Ok((mut client, _)) = listener.accept() {
                client.write_all(name).unwrap();
            }
        });
    }

    fn served_by(address: SocketAddr) -> Vec<String> {
        let ask = |_| {
            let mut text = String::new();
            let mut client = TcpStream::connect(address).unwrap();
            client.read_to_string(&mut text).unwrap();
            text
        };
        let mut names: Vec<String> = (0..CONNECTIONS).map(ask).collect();
        names.sort();
        names.dedup();
        names
    }

    fn shut(socket: &OwnedFd) {
        rustix::net::shutdown(socket, rustix::net::Shutdown::Both).unwrap();
    }

    #[test]
    fn choice_moves_an_address_between_two_servers() {
        for host in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let old = TcpListener::bind(host).unwrap();
            let address = old.local_addr().unwrap();
            let present = [OwnedFd::from(old.try_clone().unwrap())];
            serve(old, b"old");
            let [new] = listen_beside(&present, 1).unwrap().try_into().unwrap();
            serve(TcpListener::from(new.try_clone().unwrap()), b"new");
            assert_eq!(served_by(address), ["old"]);
            let choose_socket =
                |first| choose(&present[0], SocketChoice::Range { first, count: 1 });
            choose_socket(1).unwrap();
            assert_eq!(served_by(address), ["new"]);
            choose_socket(0).unwrap();
            assert_eq!(served_by(address), ["old"]);
            // The new server dies although it was chosen.
            choose_socket(1).unwrap();
            shut(&new);
            assert_eq!(served_by(address), ["old"]);
            end_choice(&present[0], true).unwrap();
            assert_eq!(served_by(address), ["old"]);
            shut(&present[0]);
        }
    }

    /// Opens the sockets of an old server at an address.
    fn listen_alone(address: &str, count: usize) -> Vec<OwnedFd> {
        let mut address: SocketAddr = address.parse().unwrap();
        let mut sockets = Vec::new();
        for _ in 0..count {
            let socket = unbound(address, false).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            bind(&socket, &address).unwrap();
            listen(&socket, BACKLOG).unwrap();
            address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
            sockets.push(socket);
        }
        sockets
    }

    #[test]
    fn choice_of_several_sockets_uses_all_of_them_and_no_other() {
        let old = listen_alone("127.0.0.1:0", 2);
        let [new] = listen_beside(&old, 1).unwrap().try_into().unwrap();
        let address = SocketAddr::try_from(getsockname(&new).unwrap()).unwrap();
        for (socket, name) in [(&old[0], &b"a"[..]), (&old[1], b"b"), (&new, b"new")] {
            serve(TcpListener::from(socket.try_clone().unwrap()), name);
        }
        assert_eq!(served_by(address), ["a", "b"]);
        choose(&new, SocketChoice::Range { first: 2, count: 1 }).unwrap();
        assert_eq!(served_by(address), ["new"]);
        old.iter().for_each(shut);
        assert_eq!(served_by(address), ["new"]);
        shut(&new);
    }

    #[test]
    fn choice_by_family_divides_an_address_of_both_families() {
        let old = listen_alone("[::]:0", 1);
        let new = listen_beside(&old, 2).unwrap();
        let port = SocketAddr::try_from(getsockname(&new[0]).unwrap())
            .unwrap()
            .port();
        for (socket, name) in [(&old[0], &b"old"[..]), (&new[0], b"v4"), (&new[1], b"v6")] {
            serve(TcpListener::from(socket.try_clone().unwrap()), name);
        }
        let clients = [
            SocketAddr::from(([127, 0, 0, 1], port)),
            SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), port),
        ];
        assert_eq!(clients.map(served_by), [["old"], ["old"]]);
        choose(&old[0], SocketChoice::ByFamily { ipv4: 1, ipv6: 2 }).unwrap();
        assert_eq!(clients.map(served_by), [["v4"], ["v6"]]);
        new.iter().for_each(shut);
        assert_eq!(clients.map(served_by), [["old"], ["old"]]);
        shut(&old[0]);
    }

    #[test]
    fn listen_beside_joins_the_sockets_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let old = listen_alone("127.0.0.1:0", 1);
        // The kernel compares the owners of the sockets, which are those of their inodes.
        fchown(&old[0], Some(Uid::from_raw(65534)), None).unwrap();
        let new = listen_beside(&old, 1).unwrap();
        assert_eq!(fstat(&new[0]).unwrap().st_uid, 65534);
    }
}
