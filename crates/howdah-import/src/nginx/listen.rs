//! `listen` of all servers as Howdah's one list of addresses.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::directive::Directive;
use crate::ledger::Ledger;
use crate::target::{Config, Value};

/// An address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// As Howdah writes it: `0.0.0.0:80`, `[::]:80`, `unix:/path`.
    pub address: String,
    /// Connections are encrypted.
    pub tls: bool,
    /// HTTP/3.
    pub quic: bool,
    /// HTTP/2 without TLS.
    pub h2c: bool,
    /// Connections begin with a PROXY header.
    pub proxy_protocol: bool,
    /// The server answers here for hosts that no server names.
    pub default: bool,
}

/// Reads a `listen`.
///
/// # Errors
/// What Howdah cannot do: a sentence.
pub fn parse(directive: &Directive) -> Result<Listen, String> {
    let word = |word: &str| directive.args.iter().skip(1).any(|arg| arg == word);
    let tls = word("ssl") || word("quic");
    Ok(Listen {
        address: address(directive.arg(0))?,
        tls,
        quic: word("quic"),
        h2c: word("http2") && !tls,
        proxy_protocol: word("proxy_protocol"),
        default: word("default_server") || word("default"),
    })
}

/// What nginx listens on where a server says nothing.
pub fn usual() -> Listen {
    Listen {
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
            "name an address in place of `{}`",
            text.escape_debug()
        )),
    }
}

/// Whether one socket takes what the other is for.
fn covers(wide: &str, narrow: &str) -> bool {
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

/// All addresses, those of the same socket together, into `listen`.
pub fn write(listens: &[Listen], config: &mut Config) {
    let mut merged: Vec<Listen> = Vec::new();
    for listen in listens {
        match merged
            .iter_mut()
            .find(|there| there.address == listen.address)
        {
            Some(there) => {
                there.tls |= listen.tls;
                there.quic |= listen.quic;
                there.h2c |= listen.h2c;
                there.proxy_protocol |= listen.proxy_protocol;
            }
            None => merged.push(listen.clone()),
        }
    }
    let all = merged.clone();
    merged.retain(|narrow| {
        !all.iter()
            .any(|wide| covers(&wide.address, &narrow.address))
    });
    if merged.is_empty() {
        return;
    }
    let line = |listen: &Listen| {
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
    config.top.set(
        "listen",
        Value::Texts(merged.iter().map(line).collect()),
        None,
    );
}

/// The addresses of a server.
pub fn of_server(server: &Directive, ledger: &Ledger) -> Vec<Listen> {
    let mut listens = Vec::new();
    let lines: Vec<&Directive> = server
        .inner()
        .iter()
        .filter(|d| d.name == "listen")
        .collect();
    // `ssl on` is of old configurations.
    let all_tls = server.last("ssl").filter(|d| d.arg(0) == "on");
    for line in server.inner().iter().filter(|d| d.name == "ssl") {
        ledger.carried(line.id);
    }
    for line in &lines {
        match parse(line) {
            Ok(mut listen) => {
                listen.tls |= all_tls.is_some();
                if listen.quic && listen.proxy_protocol {
                    ledger.remark(line.id, "HTTP/3 takes no PROXY header: it is left out");
                }
                ledger.carried(line.id);
                listens.push(listen);
            }
            Err(need) => ledger.list(line.id, need),
        }
    }
    if lines.is_empty() {
        listens.push(usual());
    }
    listens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_nginx_means() {
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
        assert!(covers("0.0.0.0:80", "192.0.2.1:80"));
        assert!(!covers("[::]:80", "192.0.2.1:80"));
    }
}
