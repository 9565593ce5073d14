//! Parses the PROXY protocol's header, versions 1 and 2 (haproxy.org, doc/proxy-protocol.txt), and decides which peers
//! may send it. This module does no I/O. A header is accepted only on listeners configured for it and from trusted
//! peers, for which it is mandatory: otherwise clients could forge their address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use strum::IntoStaticStr;

const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The maximum length of a version 1 line, including CRLF.
const MAX_V1_BYTES: usize = 107;
/// The maximum length of an accepted version 2 header, including TLVs. Proxies send a few hundred bytes.
const MAX_V2_BYTES: usize = 4096;

/// Why a connection from a trusted proxy does not begin with a valid PROXY header. It is closed without a response, as
/// the specification requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub enum BadProxyHeader {
    /// The input has neither version's signature.
    #[strum(serialize = "ProxyHeaderMissing")]
    NoSignature,
    /// A version 1 line is not `PROXY TCP4|TCP6|UNKNOWN ...` with canonical addresses.
    #[strum(serialize = "ProxyHeaderBadLine")]
    BadLine,
    /// The version is neither 1 nor 2, or the command is neither LOCAL nor PROXY.
    #[strum(serialize = "ProxyHeaderBadVersion")]
    BadVersion,
    /// The address block is shorter than its family needs, or the transport is not a stream.
    #[strum(serialize = "ProxyHeaderBadAddress")]
    BadAddress,
    /// A version 2 header is longer than 4 KiB.
    #[strum(serialize = "ProxyHeaderTooLong")]
    TooLong,
    /// The header did not arrive within `header_timeout`.
    #[strum(serialize = "ProxyHeaderTimeout")]
    Timeout,
}

impl BadProxyHeader {
    /// Returns the name of the failure for logs.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A PROXY header that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The length of the header in bytes.
    pub len: usize,
    /// The client's address and the address that it connected to. `None` for the proxy's own health checks (LOCAL), for
    /// UNKNOWN and for unix sockets; then the connection's own addresses apply.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
}

/// Parses the header at the start of `input`. `Ok(None)` means that more bytes are needed.
pub fn parse(input: &[u8]) -> Result<Option<ProxyHeader>, BadProxyHeader> {
    let same = |signature: &[u8]| {
        let n = input.len().min(signature.len());
        input[..n] == signature[..n]
    };
    if same(V2_SIGNATURE) {
        return parse_v2(input);
    }
    if same(b"PROXY ") {
        return parse_v1(input);
    }
    Err(BadProxyHeader::NoSignature)
}

fn parse_v1(input: &[u8]) -> Result<Option<ProxyHeader>, BadProxyHeader> {
    let window = &input[..input.len().min(MAX_V1_BYTES)];
    let Some(end) = window.windows(2).position(|w| w == b"\r\n") else {
        return if window.len() == MAX_V1_BYTES {
            Err(BadProxyHeader::BadLine)
        } else {
            Ok(None)
        };
    };
    let bad = BadProxyHeader::BadLine;
    let line = std::str::from_utf8(&window[..end]).map_err(|_| bad)?;
    let mut words = line.split(' ').skip(1);
    let addresses = match words.next() {
        // "the receiver must ignore anything presented before the CRLF"
        Some("UNKNOWN") => None,
        Some(family @ ("TCP4" | "TCP6")) => {
            let mut next = || words.next().ok_or(bad);
            let (client, server) = (next()?, next()?);
            let (client_port, server_port) = (next()?, next()?);
            if words.next().is_some() {
                return Err(bad);
            }
            let address = |text: &str, port: &str| {
                let ip = match family {
                    "TCP4" => IpAddr::V4(text.parse::<Ipv4Addr>().map_err(|_| bad)?),
                    _ => IpAddr::V6(text.parse::<Ipv6Addr>().map_err(|_| bad)?),
                };
                let canonical = port.bytes().all(|b| b.is_ascii_digit())
                    && (port == "0" || !port.starts_with('0'));
                let port = port.parse::<u16>().map_err(|_| bad)?;
                if canonical {
                    Ok(SocketAddr::new(ip, port))
                } else {
                    Err(bad)
                }
            };
            Some((address(client, client_port)?, address(server, server_port)?))
        }
        _ => return Err(bad),
    };
    Ok(Some(ProxyHeader {
        len: end + 2,
        addresses,
    }))
}

fn parse_v2(input: &[u8]) -> Result<Option<ProxyHeader>, BadProxyHeader> {
    let Some(fixed) = input.get(12..16) else {
        return Ok(None);
    };
    let (version, command) = (fixed[0] >> 4, fixed[0] & 15);
    if version != 2 || command > 1 {
        return Err(BadProxyHeader::BadVersion);
    }
    let len = 16 + usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if len > MAX_V2_BYTES {
        return Err(BadProxyHeader::TooLong);
    }
    let Some(block) = input.get(16..len) else {
        return Ok(None);
    };
    let header = |addresses| Ok(Some(ProxyHeader { len, addresses }));
    if command == 0 {
        return header(None);
    }
    let port = |at: usize| u16::from_be_bytes([block[at], block[at + 1]]);
    match (fixed[1], block.len()) {
        // TCP over IPv4: source, destination, ports.
        (0x11, 12..) => {
            let ip =
                |at: usize| Ipv4Addr::new(block[at], block[at + 1], block[at + 2], block[at + 3]);
            header(Some((
                SocketAddr::new(ip(0).into(), port(8)),
                SocketAddr::new(ip(4).into(), port(10)),
            )))
        }
        // TCP over IPv6.
        (0x21, 36..) => {
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&block[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            header(Some((
                SocketAddr::new(ip(0).into(), port(32)),
                SocketAddr::new(ip(16).into(), port(34)),
            )))
        }
        // Unspecified, and unix streams: there is no address to use.
        (0x00, _) | (0x31, 216..) => header(None),
        _ => Err(BadProxyHeader::BadAddress),
    }
}

/// The peers that may send a PROXY header: a function that accepts or refuses an address. It gets `None` for a peer of
/// a unix socket.
pub struct TrustedPeers(Box<TrustsPeer>);

type TrustsPeer = dyn Fn(Option<IpAddr>) -> bool + Send + Sync;

impl TrustedPeers {
    /// Trusts the peers for which the function returns true.
    pub fn new(trusts: impl Fn(Option<IpAddr>) -> bool + Send + Sync + 'static) -> TrustedPeers {
        TrustedPeers(Box::new(trusts))
    }

    /// Returns whether a peer is trusted; `None` means a peer of a unix socket.
    pub fn trusts(&self, peer: Option<SocketAddr>) -> bool {
        self.0(peer.map(|peer| peer.ip().to_canonical()))
    }
}

impl fmt::Debug for TrustedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrustedPeers")
    }
}
