//! Parses the address of a proxied server in a rule. It resolves and connects nothing.

use std::fmt;

use howdah_proto::backend_address::{self, AddressError, BackendAddress};
use http::uri::PathAndQuery;

/// The address of a server, and the protocol that it speaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerAddress {
    /// Host and port, or socket.
    pub address: BackendAddress,
    /// The protocol that it speaks.
    pub protocol: ServerProtocol,
    /// The name that the TLS handshake asks for (`name=`); `None` for the host of the address.
    pub tls_name: Option<Box<str>>,
}

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerProtocol {
    /// HTTP/1.1 (`http://`, `unix:`).
    Http1,
    /// HTTP/1.1 over TLS (`https://`).
    Https,
    /// HTTP/1.1 over TLS with any certificate (`https+insecure://`).
    HttpsAnyCertificate,
    /// HTTP/2 without TLS (`h2c://`).
    H2c,
}

/// A server of a rule, and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedServer {
    /// The address of the server.
    pub at: ServerAddress,
    /// The weight: a server of weight 2 is considered as busy with two requests as one of weight 1 with one.
    pub weight: u32,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match (address, self.protocol) {
            (BackendAddress::Unix(_), _) => write!(f, "{address}"),
            (_, ServerProtocol::Http1) => write!(f, "http://{address}"),
            (_, ServerProtocol::Https) => write!(f, "https://{address}"),
            (_, ServerProtocol::HttpsAnyCertificate) => write!(f, "https+insecure://{address}"),
            (_, ServerProtocol::H2c) => write!(f, "h2c://{address}"),
        }?;
        match &self.tls_name {
            Some(name) => write!(f, " name={name}"),
            None => Ok(()),
        }
    }
}

/// Why a string is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddressError {
    /// The text begins with none of the schemes and not with `unix:`.
    Scheme,
    /// The host and port are followed by further text.
    Path,
    /// The path after host and port is not valid in a URL.
    Url,
    /// The value of `name=` is not the name of a host.
    TlsName,
    /// The text after the scheme is not a host and port, or not the path of a socket.
    Address(AddressError),
}

impl fmt::Display for ServerAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddressError::Scheme => f.write_str(
                "expected `http://127.0.0.1:3000`, `https://HOST`, `h2c://127.0.0.1:3000` or `unix:/path/to/socket`",
            ),
            ServerAddressError::Path => f.write_str(
                "only a host and a port are possible here; to change the path, add a rule with `rewrite` before this one",
            ),
            ServerAddressError::Url => {
                f.write_str("the path after the host and port is not valid in a URL; percent-encode it")
            }
            ServerAddressError::TlsName => {
                f.write_str("`name=` must be the name of a host, such as `name=example.org`")
            }
            ServerAddressError::Address(why) => why.fmt(f),
        }
    }
}

/// Parses one string: a server, or several servers on a range of ports.
pub fn parse(text: &str) -> Result<Vec<WeightedServer>, ServerAddressError> {
    let text = text.trim();
    if text.starts_with("unix:") {
        return parse_backends(text, ServerProtocol::Http1, None);
    }
    let schemes = [
        ("http://", ServerProtocol::Http1, 80),
        ("https://", ServerProtocol::Https, 443),
        (
            "https+insecure://",
            ServerProtocol::HttpsAnyCertificate,
            443,
        ),
        ("h2c://", ServerProtocol::H2c, 80),
    ];
    let found = schemes
        .into_iter()
        .find_map(|(scheme, speaks, port)| Some((text.strip_prefix(scheme)?, speaks, port)));
    let (rest, speaks, port) = found.ok_or(ServerAddressError::Scheme)?;
    let (authority, words) = match rest.split_once(char::is_whitespace) {
        Some((authority, words)) => (authority, words),
        None => (rest, ""),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains(['/', '?', '#', '@']) {
        return Err(ServerAddressError::Path);
    }
    let has_port = !authority.ends_with(']') && authority.contains(':');
    let port = match has_port {
        true => String::new(),
        false => format!(":{port}"),
    };
    let (tls_name, words) = match speaks {
        ServerProtocol::Https | ServerProtocol::HttpsAnyCertificate => split_tls_name(words)?,
        ServerProtocol::Http1 | ServerProtocol::H2c => (None, words.to_owned()),
    };
    parse_backends(&format!("{authority}{port} {words}"), speaks, tls_name)
}

/// Parses a URL with a path: `http://127.0.0.1:9091/verify?x`, `unix:/run/auth.sock:/verify` (in nginx's notation).
pub fn parse_url(text: &str) -> Result<(Vec<WeightedServer>, PathAndQuery), ServerAddressError> {
    let text = text.trim();
    let after_scheme = match text.strip_prefix("unix:") {
        Some(socket) => socket.find(":/").map(|at| (at + 5, at + 6)),
        None => text.find("://").and_then(|scheme| {
            let authority = scheme + 3;
            let slash = text[authority..].find('/')?;
            Some((authority + slash, authority + slash))
        }),
    };
    let (server, path) = match after_scheme {
        Some((end, path)) => (&text[..end], &text[path..]),
        None => (text, "/"),
    };
    let path = path.parse().map_err(|_| ServerAddressError::Url)?;
    Ok((parse(server)?, path))
}

/// Splits `name=HOST` from the other words after an address.
fn split_tls_name(words: &str) -> Result<(Option<Box<str>>, String), ServerAddressError> {
    let (mut name, mut others) = (None, Vec::new());
    for word in words.split_whitespace() {
        match word.strip_prefix("name=") {
            Some(host) => name = Some(host),
            None => others.push(word),
        }
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let is_host = |host: &str| !host.is_empty() && host.chars().all(is_plain);
    match name.is_none_or(is_host) {
        true => Ok((name.map(Box::from), others.join(" "))),
        false => Err(ServerAddressError::TlsName),
    }
}

fn parse_backends(
    text: &str,
    speaks: ServerProtocol,
    tls_name: Option<Box<str>>,
) -> Result<Vec<WeightedServer>, ServerAddressError> {
    let backends = backend_address::parse(text).map_err(ServerAddressError::Address)?;
    let server = |backend: backend_address::FastCgiBackend| WeightedServer {
        at: ServerAddress {
            address: backend.address,
            protocol: speaks,
            tls_name: tls_name.clone(),
        },
        weight: backend.weight,
    };
    Ok(backends.into_iter().map(server).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_are_parsed() {
        let is = |text: &str, expected: &[&str]| {
            let shown: Vec<_> = parse(text)
                .unwrap()
                .iter()
                .map(|s| s.at.to_string())
                .collect();
            assert_eq!(shown, expected, "{text}");
        };
        is("http://127.0.0.1:3000", &["http://127.0.0.1:3000"]);
        is("http://localhost:3000/", &["http://localhost:3000"]);
        is("http://node", &["http://node:80"]);
        is("http://[::1]", &["http://[::1]:80"]);
        is("https://node", &["https://node:443"]);
        is("https://[::1]:8443", &["https://[::1]:8443"]);
        is("https+insecure://[::1]", &["https+insecure://[::1]:443"]);
        is("h2c://[::1]:50051", &["h2c://[::1]:50051"]);
        is("unix:/run/app.sock", &["unix:/run/app.sock"]);
        is(
            "http://app:3000-3001 weight=2",
            &["http://app:3000", "http://app:3001"],
        );
        assert_eq!(parse("http://app:3000 weight=2").unwrap()[0].weight, 2);
        let named = &parse("https://127.0.0.1 name=example.org weight=2").unwrap()[0];
        assert_eq!(
            named.at.to_string(),
            "https://127.0.0.1:443 name=example.org"
        );
        assert_eq!(named.weight, 2);
    }

    #[test]
    fn server_urls_have_a_path() {
        for (text, server, path) in [
            (
                "http://127.0.0.1:9091/verify?a=b",
                "http://127.0.0.1:9091",
                "/verify?a=b",
            ),
            ("https://auth/b", "https://auth:443", "/b"),
            ("h2c://auth:9091", "h2c://auth:9091", "/"),
            ("http://auth/", "http://auth:80", "/"),
            (
                "unix:/run/auth.sock:/verify",
                "unix:/run/auth.sock",
                "/verify",
            ),
            ("unix:/run/auth.sock", "unix:/run/auth.sock", "/"),
        ] {
            let (servers, found) = parse_url(text).unwrap();
            assert_eq!(
                (servers[0].at.to_string().as_str(), found.as_str()),
                (server, path)
            );
        }
        assert_eq!(parse_url("http://a/b c"), Err(ServerAddressError::Url));
        assert_eq!(parse_url("/verify"), Err(ServerAddressError::Scheme));
    }

    #[test]
    fn server_address_errors_are_distinguished() {
        let is = |text: &str, why| assert_eq!(parse(text), Err(why), "{text}");
        is("127.0.0.1:3000", ServerAddressError::Scheme);
        is("", ServerAddressError::Scheme);
        is("ftp://example.org", ServerAddressError::Scheme);
        is("http://127.0.0.1:3000/app", ServerAddressError::Path);
        is("http://user@host:1", ServerAddressError::Path);
        is("https://127.0.0.1 name=a/b", ServerAddressError::TlsName);
        let form = ServerAddressError::Address;
        is("http://", form(AddressError::Form));
        is("http://a:0", form(AddressError::Port("0".into())));
        is("unix:app.sock", form(AddressError::RelativePath));
    }
}
