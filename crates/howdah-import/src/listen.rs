//! Addresses to listen on, and rules for private sites whose address becomes part of a wider one in Howdah.

use std::net::{IpAddr, SocketAddr};

use crate::directive::SourceLine;
use crate::rule_condition::RuleCondition;
use crate::target::{TomlTable, TomlValue};

/// An address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteListen {
    /// The address as Howdah writes it: `0.0.0.0:80`, `[::]:80`, `unix:/path`.
    pub address: String,
    /// Whether connections use TLS.
    pub tls: bool,
    /// Whether HTTP/3 is enabled.
    pub quic: bool,
    /// HTTP/2 without TLS is enabled.
    pub h2c: bool,
    /// Whether connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// Whether the server responds here to hosts that no server names.
    pub default: bool,
}

/// Returns whether a socket on `wide` also accepts the connections to `narrow`.
pub fn covers(wide: &str, narrow: &str) -> bool {
    let parse = |text: &str| text.parse::<SocketAddr>().ok();
    match (parse(wide), parse(narrow)) {
        (Some(wide), Some(narrow)) => {
            wide.ip().is_unspecified()
                && wide.port() == narrow.port()
                && wide.is_ipv4() == narrow.is_ipv4()
                && !narrow.ip().is_unspecified()
        }
        _ => false,
    }
}

/// Formats addresses as values of `listen`.
pub fn listen_values(listens: &[SiteListen]) -> TomlValue {
    let line = |listen: &SiteListen| {
        let mut line = listen.address.clone();
        let quic = listen.quic && !listen.proxy_protocol;
        for (is, word) in [
            (listen.tls, " tls"),
            (quic, " http3"),
            (listen.h2c && !listen.tls, " h2c"),
            (listen.proxy_protocol, " proxy_protocol"),
        ] {
            if is {
                line += word;
            }
        }
        line
    };
    TomlValue::Texts(listens.iter().map(line).collect())
}

/// Returns a rule for a server whose old addresses only this machine or a private network could reach, and whose site
/// responds at wider ones. The rule denies access to all other clients.
pub fn private_access_rule(
    old: &[SiteListen],
    new: &[SiteListen],
    place: &SourceLine,
) -> Option<TomlTable> {
    const LOOPBACK: &[&str] = &["127.0.0.0/8", "::1/128", "unix"];
    const PRIVATE: &[&str] = &[
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "fc00::/7",
        "fe80::/10",
    ];
    let own = widest_reach(old);
    if own >= widest_reach(new) {
        return None;
    }
    let mut from: Vec<String> = LOOPBACK.iter().map(|n| (*n).to_owned()).collect();
    if own == 1 {
        from.extend(PRIVATE.iter().map(|n| (*n).to_owned()));
    }
    let when = RuleCondition::none_of(vec![RuleCondition::clients(from)]);
    let mut rule = when.rule("deny", 403, place);
    rule.comment("The old server had a private address. Here, a public address includes it.");
    Some(rule)
}

/// The remark in the list for a server that needs [`private_access_rule`].
pub const PRIVATE_REMARK: &str = "only clients on this machine or in private networks are allowed, because the server's own address is private";

/// Removes the TLS addresses of a server that has neither a certificate nor a name for which Howdah could order one.
/// Returns the remark for the list if there were any such addresses, with which the old server does not start.
pub fn remove_tls_without_certificate(
    listens: &mut Vec<SiteListen>,
    names: &[String],
    has_certificate: bool,
) -> Option<&'static str> {
    if has_certificate || !names.is_empty() || !listens.iter().any(|listen| listen.tls) {
        return None;
    }
    listens.retain(|listen| !listen.tls);
    Some(
        "the server has no certificate for its TLS addresses, and no name for which Howdah could order one",
    )
}

/// Returns how far the widest of these addresses reaches: 0 for this machine, 1 for private networks, 2 for everyone.
pub fn widest_reach(listens: &[SiteListen]) -> u8 {
    listens.iter().map(reach).max().unwrap_or(2)
}

fn reach(listen: &SiteListen) -> u8 {
    match listen
        .address
        .parse::<SocketAddr>()
        .map(|address| address.ip())
    {
        Ok(ip) if ip.is_loopback() => 0,
        Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => 1,
        Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => 1,
        Ok(_) => 2,
        // A unix socket.
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_socket_covers_single_addresses() {
        assert!(covers("0.0.0.0:80", "192.0.2.1:80"));
        assert!(!covers("[::]:80", "192.0.2.1:80"));
    }
}
