//! Sockets that a service manager has bound and passes at the start (sd_listen_fds(3)). They are used instead of
//! binding: the server needs no permission to use a low port, and connections wait in the kernel's queue while the
//! server is started again.
//!
//! Every `listen` must have its socket, and every socket its `listen`, because a connection to a socket on which no
//! process accepts would hang. The sockets stay open while the server runs, since only the manager can bind them again.
//!
//! `howdah takeover` passes the sockets that share an address with an old server. Other addresses are bound as usual, and a
//! socket without a `listen` is closed, which leaves its connections to the old server.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;

use howdah_http::listener::{ListenAddress, adopt_socket};
use rustix::net::{
    Shutdown, SocketAddrAny, SocketAddrUnix, SocketType, getsockname, shutdown, sockopt,
};

use crate::sys;
use howdah_config::ListenSettings;

/// The first descriptor that is passed.
const FIRST_DESCRIPTOR: i32 = 3;
/// The maximum number of sockets that are accepted.
const MAX_SOCKETS: i32 = 256;

/// The name of the sockets that `howdah takeover` passes.
const TAKEOVER: &str = "takeover";

/// The name of the unit in messages, if the manager does not pass a name.
const DEFAULT_UNIT: &str = "howdah.socket";

/// The sockets that the service manager has passed.
#[derive(Debug)]
pub struct InheritedSockets {
    sockets: Vec<InheritedSocket>,
}

#[derive(Debug)]
struct InheritedSocket {
    socket: OwnedFd,
    bound: BoundAddress,
    /// The manager's name of the socket: the unit, or its `FileDescriptorName`.
    name: String,
}

/// The address that a socket is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BoundAddress {
    /// The flag says whether the socket accepts IPv4, too, as `[::]` may.
    Tcp(SocketAddr, bool),
    Udp(SocketAddr, bool),
    Unix(PathBuf),
}

/// The sockets of one `listen` that were passed.
#[derive(Clone, Debug)]
pub struct ListenSockets {
    /// The TCP or unix sockets; `None` if this process binds the address itself.
    pub stream: Option<Rc<Vec<OwnedFd>>>,
    /// The UDP sockets for HTTP/3; `None` if there are none, or this process binds them itself.
    pub udp: Option<Rc<Vec<OwnedFd>>>,
}

/// Which sockets serve which `listen`.
#[derive(Clone, Debug, Default)]
pub struct AssignedSockets {
    /// The sockets of each `listen` of sites, in order.
    pub each: Vec<ListenSockets>,
    /// The numbers of the sockets of a takeover that no `listen` names.
    pub unused: Vec<usize>,
}

impl InheritedSockets {
    /// Returns the sockets that were passed to this process, or `None` if there are none. Must be called before
    /// [`sys::close_inherited_on_exec`].
    pub fn take() -> Result<Option<InheritedSockets>, String> {
        let variable = |name: &str| std::env::var(name).ok();
        let ours = variable("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string());
        let Some(count) = variable("LISTEN_FDS").filter(|_| ours) else {
            return Ok(None);
        };
        let count = count
            .parse::<i32>()
            .ok()
            .filter(|n| (0..=MAX_SOCKETS).contains(n));
        let count = count.ok_or_else(|| {
            format!(
                "SocketUnusable: LISTEN_FDS is not a number from 0 to {MAX_SOCKETS}: correct the program that starts howdah"
            )
        })?;
        let names = variable("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').filter(|name| !name.is_empty());
        let sockets = (FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + count).map(|number| {
            let name = names.next().unwrap_or("unknown").to_owned();
            InheritedSocket::take(number, name.clone()).map_err(|why| {
                format!("SocketUnusable: the socket {name} (descriptor {number}): {why}")
            })
        });
        let sockets = sockets.collect::<Result<Vec<_>, String>>()?;
        Ok((!sockets.is_empty()).then_some(InheritedSockets { sockets }))
    }

    /// Returns all sockets, under the numbers that the manager gave them.
    pub fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets
            .iter()
            .map(|inherited| inherited.socket.as_fd())
    }

    /// Returns which sockets serve each `listen` of sites, or all mistakes.
    pub fn assign(&self, listen: &[&ListenSettings]) -> Result<AssignedSockets, String> {
        let mut taken: Vec<bool> = self
            .sockets
            .iter()
            .map(InheritedSocket::is_closed)
            .collect();
        let binds_others = self.sockets.iter().all(InheritedSocket::is_of_takeover);
        let bound = self.bound_for(listen);
        let mut mistakes = Vec::new();
        let mut all = Vec::new();
        for listen in listen {
            if !binds_others && (listen.owner.is_some() || listen.group.is_some()) {
                mistakes.push(format!(
                    "SocketPassed: {}: owner= and group= have no effect on a socket that the service manager passes; set SocketUser= and SocketGroup= in its unit",
                    listen.address
                ));
            }
            let stream = self.take_for(&bound, &mut taken, |bound| {
                bound.is_stream_of(&listen.address)
            });
            let udp = match listen.http3 {
                true => self.take_for(&bound, &mut taken, |bound| bound.is_udp_of(&listen.address)),
                false => Ok(Vec::new()),
            };
            let (stream, udp) = match (stream, udp) {
                (Ok(stream), Ok(udp)) => (stream, udp),
                (Err(why), _) | (_, Err(why)) => return Err(why.to_string()),
            };
            if binds_others {
                // What is missing is bound by this process.
            } else if stream.is_empty() {
                let fits = |bound: &BoundAddress| bound.is_stream_of(&listen.address).is_some();
                mistakes.push(self.missing_socket_message(&listen.address, "ListenStream", fits));
            } else if listen.http3 && udp.is_empty() {
                let fits = |bound: &BoundAddress| bound.is_udp_of(&listen.address).is_some();
                mistakes.push(self.missing_socket_message(&listen.address, "ListenDatagram", fits));
            }
            let some = |sockets: Vec<OwnedFd>| (!sockets.is_empty()).then(|| Rc::new(sockets));
            all.push(ListenSockets {
                stream: some(stream),
                udp: some(udp),
            });
        }
        let free = taken.iter().enumerate().filter(|(_, taken)| !**taken);
        let mut unused: Vec<usize> = free.map(|(number, _)| number).collect();
        for socket in unused
            .extract_if(.., |number| !self.sockets[*number].is_of_takeover())
            .map(|number| &self.sockets[number])
        {
            let how = match socket.bound {
                BoundAddress::Udp(..) => "add `http3` to the `listen` of that port",
                _ => "add the address to `listen`",
            };
            mistakes.push(format!(
                "SocketUnused: {socket} was passed, but no `listen` names it, so its clients would wait forever; {how}, or remove it from {}",
                socket.unit()
            ));
        }
        match mistakes.is_empty() {
            true => Ok(AssignedSockets { each: all, unused }),
            false => Err(mistakes.join("\n")),
        }
    }

    /// Closes sockets of a takeover, so that the kernel gives their connections to the old server. Their descriptors
    /// remain, because an upgrade passes all descriptors on under their numbers.
    pub fn close(&self, numbers: &[usize]) {
        for number in numbers {
            // Ends a socket that listens, although it has no connection (tcp_disconnect() in net/ipv4/tcp.c).
            let _ = shutdown(&self.sockets[*number].socket, Shutdown::Both);
        }
    }

    /// Returns the addresses of the sockets, as `listen` uses them. If two or more sockets are bound to `[::]` with IPv4,
    /// and both `[::]` and `0.0.0.0` have a `listen` at their port, the first of them is for IPv4. `howdah takeover` passes
    /// such sockets and directs the connections of each family to one of them.
    fn bound_for(&self, listen: &[&ListenSettings]) -> Vec<BoundAddress> {
        let mut bound: Vec<BoundAddress> = self.sockets.iter().map(|s| s.bound.clone()).collect();
        let has = |wanted: &SocketAddr| {
            let wanted = ListenAddress::Tcp(*wanted);
            listen.iter().any(|listen| listen.address == wanted)
        };
        for number in 0..bound.len() {
            let BoundAddress::Tcp(both, true) = bound[number] else {
                continue;
            };
            let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, both.port()));
            let is_alone = !bound[number + 1..].contains(&bound[number]);
            let is_served = bound.contains(&BoundAddress::Tcp(ipv4, false));
            if both.ip().is_unspecified() && !is_alone && !is_served && has(&both) && has(&ipv4) {
                bound[number] = BoundAddress::Tcp(ipv4, false);
            }
        }
        bound
    }

    /// Returns copies of the sockets that fit best according to `is_meant`, and marks them as taken. `bound` has the
    /// address of each socket.
    fn take_for(
        &self,
        bound: &[BoundAddress],
        taken: &mut [bool],
        is_meant: impl Fn(&BoundAddress) -> Option<SocketFit>,
    ) -> std::io::Result<Vec<OwnedFd>> {
        let free = self.sockets.iter().zip(bound).zip(taken.iter_mut());
        let fits = free.filter(|(_, taken)| !**taken);
        let mut fits: Vec<_> = fits
            .filter_map(|((socket, bound), taken)| Some((is_meant(bound)?, socket, taken)))
            .collect();
        let best = fits.iter().map(|(fit, ..)| *fit).max();
        fits.retain(|(fit, ..)| Some(*fit) == best);
        let copies = fits.into_iter().map(|(_, socket, taken)| {
            *taken = true;
            socket.socket.try_clone()
        });
        copies.collect()
    }

    fn missing_socket_message(
        &self,
        address: &ListenAddress,
        key: &str,
        fits: impl Fn(&BoundAddress) -> bool,
    ) -> String {
        // The socket exists, but an earlier address has taken it.
        if let Some(taken) = self.sockets.iter().find(|socket| fits(&socket.bound)) {
            return format!(
                "SocketMissing: {taken} is already used for another address in `listen`; remove {address}, or pass a separate socket for each address (BindIPv6Only=ipv6-only in {})",
                taken.unit()
            );
        }
        let passed: Vec<String> = self.sockets.iter().map(ToString::to_string).collect();
        let unit = self
            .sockets
            .first()
            .map_or(DEFAULT_UNIT, InheritedSocket::unit);
        let value = match address {
            ListenAddress::Tcp(address) => address.to_string(),
            ListenAddress::Unix { path, .. } => path.display().to_string(),
        };
        format!(
            "SocketMissing: the service manager passed no socket for {address}, only {}; add {key}={value} to {unit} (systemctl edit {unit}) and restart it, or change `listen`",
            passed.join(", ")
        )
    }
}

/// How well a socket fits a `listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SocketFit {
    /// The socket is bound to `[::]` with IPv4, and the `listen` is `0.0.0.0`.
    BothFamilies,
    Exact,
}

impl BoundAddress {
    fn is_stream_of(&self, wanted: &ListenAddress) -> Option<SocketFit> {
        match (self, wanted) {
            (BoundAddress::Tcp(bound, both), ListenAddress::Tcp(wanted)) => {
                fit(bound, *both, wanted)
            }
            (BoundAddress::Unix(bound), ListenAddress::Unix { path, .. }) if bound == path => {
                Some(SocketFit::Exact)
            }
            _ => None,
        }
    }

    fn is_udp_of(&self, wanted: &ListenAddress) -> Option<SocketFit> {
        match (self, wanted) {
            (BoundAddress::Udp(bound, both), ListenAddress::Tcp(wanted)) => {
                fit(bound, *both, wanted)
            }
            _ => None,
        }
    }
}

fn fit(bound: &SocketAddr, both: bool, wanted: &SocketAddr) -> Option<SocketFit> {
    let is_any = |ip: IpAddr, ipv6: bool| ip.is_unspecified() && ip.is_ipv6() == ipv6;
    if (bound.ip(), bound.port()) == (wanted.ip(), wanted.port()) {
        return Some(SocketFit::Exact);
    }
    let both = both && is_any(bound.ip(), true) && is_any(wanted.ip(), false);
    (both && bound.port() == wanted.port()).then_some(SocketFit::BothFamilies)
}

impl InheritedSocket {
    fn take(number: i32, name: String) -> Result<InheritedSocket, String> {
        let socket = sys::take_inherited(number).map_err(|error| error.to_string())?;
        let bound = bound_address(&socket)?;
        let inherited = InheritedSocket {
            socket,
            bound,
            name,
        };
        if !inherited.is_closed() {
            adopt_socket(&inherited.socket)
                .map_err(|error| format!("cannot listen on it: {error}"))?;
        }
        Ok(inherited)
    }

    /// Returns whether `howdah takeover` has passed it.
    fn is_of_takeover(&self) -> bool {
        self.name == TAKEOVER
    }

    /// Returns whether it was closed, perhaps by the program before an upgrade.
    fn is_closed(&self) -> bool {
        self.is_of_takeover() && matches!(sockopt::socket_acceptconn(&self.socket), Ok(false))
    }

    /// Returns the unit of the socket, as far as the manager passes its name.
    fn unit(&self) -> &str {
        match self.name.ends_with(".socket") {
            true => &self.name,
            false => DEFAULT_UNIT,
        }
    }
}

fn bound_address(socket: &OwnedFd) -> Result<BoundAddress, String> {
    let failed = |error: rustix::io::Errno| error.to_string();
    let kind = sockopt::socket_type(socket).map_err(|_| "it is not a socket".to_owned())?;
    let name = getsockname(socket).map_err(failed)?;
    if let Ok(unix) = SocketAddrUnix::try_from(name.clone()) {
        let path = unix.path_bytes().filter(|_| kind == SocketType::STREAM);
        let path = path.ok_or("a unix socket must be configured as ListenStream= with a path")?;
        return Ok(BoundAddress::Unix(std::ffi::OsStr::from_bytes(path).into()));
    }
    let address = internet_address(name).ok_or("it is neither a TCP, a UDP nor a unix socket")?;
    let both = address.is_ipv6() && !sockopt::ipv6_v6only(socket.as_fd()).map_err(failed)?;
    match kind {
        SocketType::STREAM => Ok(BoundAddress::Tcp(address, both)),
        SocketType::DGRAM => Ok(BoundAddress::Udp(address, both)),
        _ => Err("it is neither a TCP nor a UDP socket".to_owned()),
    }
}

fn internet_address(name: SocketAddrAny) -> Option<SocketAddr> {
    SocketAddr::try_from(name).ok()
}

impl fmt::Display for InheritedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bound {
            BoundAddress::Tcp(address, false) => write!(f, "{address}")?,
            BoundAddress::Tcp(address, true) => write!(f, "{address} including IPv4")?,
            BoundAddress::Udp(address, _) => write!(f, "{address} (UDP)")?,
            BoundAddress::Unix(path) => write!(f, "unix:{}", path.display())?,
        }
        write!(f, " ({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    use super::*;

    fn passed(sockets: Vec<(OwnedFd, &str)>) -> InheritedSockets {
        let sockets = sockets.into_iter().map(|(socket, name)| InheritedSocket {
            bound: bound_address(&socket).unwrap(),
            socket,
            name: name.to_owned(),
        });
        InheritedSockets {
            sockets: sockets.collect(),
        }
    }

    #[test]
    fn passed_udp_socket_serves_http3_of_its_port() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        let mut listen = ListenSettings::at(ListenAddress::Tcp(address));
        (listen.tls, listen.http3) = (true, true);

        let copy = tcp.try_clone().unwrap();
        let without = passed(vec![(copy.into(), "http.socket")]);
        let missing = without.assign(&[&listen]).unwrap_err();
        let advice = format!("add ListenDatagram={address} to http.socket");
        assert!(missing.contains(&advice), "{missing}");

        let numbers = [tcp.as_raw_fd(), udp.as_raw_fd()];
        let both = passed(vec![
            (tcp.into(), "http.socket"),
            (udp.into(), "http3.socket"),
        ]);
        let assigned = both.assign(&[&listen]).unwrap().each;
        let [ListenSockets { stream, udp }] = &assigned[..] else {
            panic!("{assigned:?}");
        };
        let kinds = [stream.as_ref().unwrap(), udp.as_ref().unwrap()].map(|sockets| {
            assert_eq!(sockets.len(), 1);
            sockopt::socket_type(&sockets[0]).unwrap()
        });
        assert_eq!(kinds, [SocketType::STREAM, SocketType::DGRAM]);
        // The next program after an upgrade finds the sockets under the numbers that the manager gave them.
        let kept: Vec<i32> = both.sockets().map(|socket| socket.as_raw_fd()).collect();
        assert_eq!(kept, numbers);
    }

    #[test]
    fn first_of_two_sockets_for_both_families_serves_ipv4() {
        let socket = || {
            let flags = rustix::net::SocketFlags::CLOEXEC;
            let kind = SocketType::STREAM;
            let family = rustix::net::AddressFamily::INET6;
            let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
            sockopt::set_ipv6_v6only(&socket, false).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            socket
        };
        let listening = |socket: &OwnedFd| rustix::net::listen(socket, 1).unwrap();
        let first = socket();
        rustix::net::bind(&first, &"[::]:0".parse::<SocketAddr>().unwrap()).unwrap();
        let address = SocketAddr::try_from(getsockname(&first).unwrap()).unwrap();
        let second = socket();
        rustix::net::bind(&second, &address).unwrap();
        [&first, &second].into_iter().for_each(listening);
        let inode = |socket: &OwnedFd| rustix::fs::fstat(socket).unwrap().st_ino;
        let inodes = [inode(&first), inode(&second)];

        let sockets = passed(vec![(first, "takeover"), (second, "takeover")]);
        let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        let ipv4 = ListenSettings::at(ListenAddress::Tcp(ipv4));
        let ipv6 = ListenSettings::at(ListenAddress::Tcp(address));
        let assigned = |listen: &[&ListenSettings]| -> Vec<Vec<u64>> {
            let assigned = sockets.assign(listen).unwrap().each;
            let inodes = |one: &ListenSockets| {
                one.stream
                    .iter()
                    .flat_map(|all| all.iter())
                    .map(inode)
                    .collect()
            };
            assigned.iter().map(inodes).collect()
        };
        let each = [vec![inodes[0]], vec![inodes[1]]];
        assert_eq!(assigned(&[&ipv4, &ipv6]), each);
        assert_eq!(
            assigned(&[&ipv6, &ipv4]),
            [each[1].clone(), each[0].clone()]
        );
        // A single address gets both.
        assert_eq!(assigned(&[&ipv4]), [inodes.to_vec()]);
        assert_eq!(assigned(&[&ipv6]), [inodes.to_vec()]);
    }
}
