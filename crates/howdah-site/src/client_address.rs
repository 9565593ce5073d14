//! Determines the client: the connection's peer, or, if the peer is a configured proxy, the client that the proxy
//! names. Everything is decided from values, without a socket or a configuration file.
//!
//! No proxy is trusted by default. `X-Forwarded-*` and `Forwarded` (RFC 7239) are read only if the connection's peer
//! lies in a configured network, and then from the right: each proxy appends what it saw, so the rightmost address that
//! is not a trusted proxy's is the last one that a trusted party vouches for (nginx `real_ip_recursive on`). Everything
//! left of it is the client's own claim. Only the configured one of the two header families is read: a proxy that
//! writes `X-Forwarded-For` passes a client's `Forwarded` through unchanged, and a proxy that writes `Forwarded` does
//! the same with `X-Forwarded-For`. `X-Forwarded-Host` and `-Port` have switches of their own, off by default: most
//! proxies keep `Host` and pass these two through from any sender.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use howdah_http::message::RequestHead;
use howdah_http::network::AddressBlock;
use howdah_http::tls::NegotiatedTls;

use crate::network_file::NetworkFile;

/// The maximum number of elements of a `Forwarded` or `X-Forwarded-For` list that are inspected, from the right. A
/// longer list is forged, because no chain of trusted proxies is that long.
const MAX_HOPS: usize = 32;

/// Which header family the trusted proxies write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedStyle {
    /// `X-Forwarded-For` and its relatives: what nearly all proxies write.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The peers that may name other clients, and what is accepted from them.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    /// The networks of the trusted proxies.
    pub networks: Vec<AddressBlock>,
    /// Whether peers on unix sockets, which have no address, are trusted. The socket's mode decides who can connect.
    pub unix: bool,
    /// A file with more networks.
    pub file: Option<Arc<NetworkFile>>,
    /// The headers that the proxies write.
    pub style: ForwardedStyle,
    /// Whether `X-Forwarded-Host` (or `host=`) is accepted.
    pub host: bool,
}

/// The client, according to trusted sources only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// `REMOTE_ADDR`; `None` for a peer on a unix socket that no proxy has named.
    pub address: Option<IpAddr>,
    /// `REMOTE_PORT`; `None` if a proxy named only an address.
    pub port: Option<u16>,
    /// Whether the client's own connection was encrypted: `HTTPS`, `REQUEST_SCHEME`.
    pub https: bool,
    /// The parameters of the TLS handshake with this server: `SSL_PROTOCOL`, `SSL_CIPHER`.
    pub tls: Option<&'a NegotiatedTls>,
    /// The host that the client asked for, with the port if given, if a proxy names one.
    pub host: Option<Cow<'a, [u8]>>,
    /// Whether a trusted proxy has named the client: the listener's own port then says nothing about the client's.
    pub proxied: bool,
}

/// An unknown client.
pub static UNKNOWN_CLIENT: Client<'static> = Client {
    address: None,
    port: None,
    https: false,
    tls: None,
    host: None,
    proxied: false,
};

impl Client<'_> {
    /// Returns whether the request visibly came through a proxy that `trusted_proxies` does not name. The address is
    /// then the proxy's, and may be any client's that reaches the proxy. A proxy that adds no header looks like a
    /// client.
    pub fn came_through_untrusted_proxy(&self, request: &RequestHead) -> bool {
        const BY_PROXIES: [&[u8]; 7] = [
            b"forwarded",
            b"via",
            b"x-real-ip",
            b"x-client-ip",
            b"client-ip",
            b"true-client-ip",
            b"cf-connecting-ip",
        ];
        let by_a_proxy = |name: &[u8]| {
            let family = b"x-forwarded-";
            let begins = name.get(..family.len());
            begins.is_some_and(|begin| begin.eq_ignore_ascii_case(family))
                || BY_PROXIES
                    .iter()
                    .any(|known| name.eq_ignore_ascii_case(known))
        };
        !self.proxied && request.headers().any(|(name, _)| by_a_proxy(name))
    }
}

impl TrustedProxies {
    /// Returns whether no proxy is trusted.
    pub fn are_none(&self) -> bool {
        self.networks.is_empty() && !self.unix && self.file.is_none()
    }

    /// Returns whether a peer is trusted; `None` means a peer of a unix socket.
    pub fn trusts(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else {
            return self.unix;
        };
        let in_file = |file: &Arc<NetworkFile>| file.contains(address);
        self.networks.iter().any(|n| n.contains(address)) || self.file.as_ref().is_some_and(in_file)
    }

    /// Determines the client of a request. `peer` is the connection's peer (`None` for a unix socket), `tls` says
    /// whether that connection is encrypted.
    pub fn client<'a>(
        &self,
        peer: Option<SocketAddr>,
        tls: Option<&'a NegotiatedTls>,
        request: &'a RequestHead,
    ) -> Client<'a> {
        let mut client = Client {
            address: peer.map(|p| p.ip().to_canonical()),
            port: peer.map(|p| p.port()),
            https: tls.is_some(),
            tls,
            host: None,
            proxied: false,
        };
        if self.are_none() || !self.trusts(client.address) {
            return client;
        }
        match self.style {
            ForwardedStyle::XForwarded => self.apply_x_forwarded(&mut client, request),
            ForwardedStyle::Forwarded => self.apply_forwarded(&mut client, request),
        }
        client
    }

    fn apply_x_forwarded<'a>(&self, client: &mut Client<'a>, request: &'a RequestHead) {
        let hops = rightmost(request, b"x-forwarded-for");
        for hop in hops.iter().rev() {
            let Some((address, port)) = parse_node(hop) else {
                break;
            };
            (client.address, client.port, client.proxied) = (Some(address), port, true);
            if !self.trusts(Some(address)) {
                break;
            }
        }
        if let Some(proto) = rightmost(request, b"x-forwarded-proto").pop() {
            set_scheme(client, proto);
        }
        if self.host
            && let Some(host) = rightmost(request, b"x-forwarded-host").pop()
            && is_host(host)
        {
            (client.host, client.proxied) = (Some(Cow::Borrowed(host)), true);
        }
    }

    fn apply_forwarded<'a>(&self, client: &mut Client<'a>, request: &'a RequestHead) {
        let mut elements = Vec::new();
        for line in request.header_all(b"forwarded") {
            match forwarded_elements(line) {
                Some(more) => elements.extend(more),
                // A line that violates RFC 7239 proves nothing, and neither does anything left of it.
                None => elements.clear(),
            }
        }
        for element in elements.into_iter().rev().take(MAX_HOPS) {
            let Some((address, port)) = element.node.as_deref().and_then(parse_node) else {
                break;
            };
            (client.address, client.port, client.proxied) = (Some(address), port, true);
            if let Some(proto) = element.proto {
                set_scheme(client, &proto);
            }
            if self.host
                && let Some(host) = element.host.filter(|h| is_host(h))
            {
                client.host = Some(Cow::Owned(host));
            }
            if !self.trusts(Some(address)) {
                break;
            }
        }
    }
}

fn set_scheme(client: &mut Client<'_>, proto: &[u8]) {
    if proto.eq_ignore_ascii_case(b"https") {
        (client.https, client.proxied) = (true, true);
    } else if proto.eq_ignore_ascii_case(b"http") {
        (client.https, client.proxied) = (false, true);
    }
}

/// Returns the last [`MAX_HOPS`] members of a comma-separated header, over all its lines, in order.
fn rightmost<'a>(request: &'a RequestHead, name: &'a [u8]) -> Vec<&'a [u8]> {
    let mut members: Vec<&[u8]> = Vec::new();
    for line in request.header_all(name) {
        members.extend(line.split(|b| *b == b',').map(<[u8]>::trim_ascii));
    }
    members.drain(..members.len().saturating_sub(MAX_HOPS));
    members
}

fn parse_port(text: &[u8]) -> Option<u16> {
    std::str::from_utf8(text)
        .ok()?
        .parse()
        .ok()
        .filter(|n| *n > 0)
}

/// Parses an address with or without port: `1.2.3.4`, `1.2.3.4:5`, `::1`, `[::1]`, `[::1]:5`.
fn parse_node(text: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address.to_canonical(), None));
    }
    if let Ok(both) = text.parse::<SocketAddr>() {
        return Some((both.ip().to_canonical(), Some(both.port())));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some((inner.parse::<IpAddr>().ok()?.to_canonical(), None))
}

/// Returns whether the bytes can be a `Host`: letters, digits and the punctuation of names, ports and IPv6.
fn is_host(text: &[u8]) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(b))
}

/// Splits a host into name and port. An IPv6 literal keeps its brackets.
pub fn split_host(host: &[u8]) -> (&[u8], Option<u16>) {
    match host.iter().rposition(|b| *b == b':') {
        Some(colon) if !host[colon..].contains(&b']') => {
            (&host[..colon], parse_port(&host[colon + 1..]))
        }
        _ => (host, None),
    }
}

/// Returns whether the host is empty, `localhost` or an IP address. The owner of a web page cannot change what these
/// resolve to, but can make the page's own host name resolve to 127.0.0.1 (DNS rebinding).
pub fn is_loopback_or_literal_host(host: &[u8]) -> bool {
    let name = std::str::from_utf8(split_host(host).0).unwrap_or("?");
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.is_empty() || name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

#[derive(Default)]
struct ForwardedElement {
    node: Option<Vec<u8>>,
    proto: Option<Vec<u8>>,
    host: Option<Vec<u8>>,
}

/// Parses RFC 7239 §4: `forwarded-element *( "," forwarded-element )`, each `[pair] *( ";" [pair] )`, a pair `token "="
/// ( token / quoted-string )`. `None` if the line violates the grammar.
fn forwarded_elements(line: &[u8]) -> Option<Vec<ForwardedElement>> {
    let mut elements = vec![ForwardedElement::default()];
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        match rest[0] {
            b',' => elements.push(ForwardedElement::default()),
            b';' | b' ' | b'\t' => {}
            _ => {
                let equals = rest.iter().position(|b| *b == b'=')?;
                let (name, after) = (&rest[..equals], &rest[equals + 1..]);
                let (value, left) = pair_value(after)?;
                let element = elements.last_mut()?;
                let place = match () {
                    () if name.eq_ignore_ascii_case(b"for") => Some(&mut element.node),
                    () if name.eq_ignore_ascii_case(b"proto") => Some(&mut element.proto),
                    () if name.eq_ignore_ascii_case(b"host") => Some(&mut element.host),
                    () if howdah_proto::response::is_token(name) => None,
                    () => return None,
                };
                if let Some(place) = place {
                    *place = Some(value);
                }
                rest = left;
                continue;
            }
        }
        rest = &rest[1..];
    }
    Some(elements)
}

fn pair_value(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if text.first() != Some(&b'"') {
        let end = text
            .iter()
            .position(|b| b",; \t".contains(b))
            .unwrap_or(text.len());
        return Some((text[..end].to_vec(), &text[end..]));
    }
    let mut value = Vec::new();
    let mut bytes = text[1..].iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => return Some((value, &text[at + 2..])),
            b'\\' => value.push(*bytes.next()?.1),
            other => value.push(*other),
        }
    }
    None
}

#[cfg(test)]
mod tests;
