//! Parses `listen` of a server.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::directive::Directive;
use crate::ledger::ImportLedger;
use crate::listen::SiteListen;

/// Parses a `listen` directive.
///
/// # Errors
/// Returns a sentence if Howdah does not support the address.
pub fn parse_listen(directive: &Directive) -> Result<SiteListen, String> {
    let word = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
    let tls = word("ssl") || word("quic");
    Ok(SiteListen {
        address: address(directive.arg(0))?,
        tls,
        quic: word("quic"),
        h2c: word("http2") && !tls,
        proxy_protocol: word("proxy_protocol"),
        default: word("default_server") || word("default"),
    })
}

/// Returns the address that nginx uses for a server without `listen`.
pub fn default_listen() -> SiteListen {
    SiteListen {
        address: "0.0.0.0:80".to_owned(),
        tls: false,
        quic: false,
        h2c: false,
        proxy_protocol: false,
        default: false,
    }
}

fn address(text: &str) -> Result<String, String> {
    if text.starts_with("unix:") {
        return Ok(text.to_owned());
    }
    let any = |port: u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).to_string();
    let port = |text: &str| text.parse::<u16>().ok();
    if let Some(port) = port(text.strip_prefix("*:").unwrap_or(text)) {
        return Ok(any(port));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.to_string());
    }
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(format!("{ip}:80"));
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = bare.parse::<Ipv6Addr>() {
        return Ok(format!("[{ip}]:80"));
    }
    match text.rsplit_once(':') {
        Some(("localhost", text)) if port(text).is_some() => Ok(format!("127.0.0.1:{text}")),
        None if text == "localhost" => Ok("127.0.0.1:80".to_owned()),
        _ => Err(format!(
            "name an address instead of `{}`",
            text.escape_debug()
        )),
    }
}

/// Returns the addresses of a server, and records the outcomes of their lines.
pub fn server_addresses(server: &Directive, ledger: &ImportLedger) -> Vec<SiteListen> {
    let mut listens = Vec::new();
    let lines: Vec<&Directive> = server
        .inner()
        .iter()
        .filter(|d| d.name == "listen")
        .collect();
    // `ssl on` is used in old configurations.
    let all_tls = server.last("ssl").filter(|d| d.arg(0) == "on");
    for line in server.inner().iter().filter(|d| d.name == "ssl") {
        ledger.mark_carried(line.id);
    }
    for line in &lines {
        match parse_listen(line) {
            Ok(mut listen) => {
                listen.tls |= all_tls.is_some();
                if listen.quic && listen.proxy_protocol {
                    ledger.mark_different(
                        line.id,
                        "HTTP/3 cannot have a PROXY header, so this address does not offer HTTP/3",
                    );
                }
                ledger.mark_carried(line.id);
                listens.push(listen);
            }
            Err(need) => ledger.mark_missing(line.id, need),
        }
    }
    if lines.is_empty() {
        listens.push(default_listen());
    }
    listens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_nginx() {
        for (text, expected) in [
            ("80", "0.0.0.0:80"),
            ("*:8080", "0.0.0.0:8080"),
            ("[::]:443", "[::]:443"),
            ("[::1]", "[::1]:80"),
            ("192.0.2.1", "192.0.2.1:80"),
            ("localhost:8000", "127.0.0.1:8000"),
            ("unix:/run/x", "unix:/run/x"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(address("web.internal:80").is_err());
    }
}
