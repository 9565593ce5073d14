//! The addresses of FastCGI applications: `unix:PATH`, `HOST:PORT`, `HOST:FIRST-LAST`, each with an optional weight.
//! This module only parses; it resolves and connects nothing.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The maximum number of backends that a pool can name, including every port of a range.
pub const MAX_BACKENDS: usize = 256;
/// The maximum length of a unix socket's path in bytes: `sun_path` of unix(7) without its NUL.
pub const MAX_UNIX_PATH: usize = 107;

/// An address of a FastCGI application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BackendAddress {
    /// The path of a unix socket.
    Unix(PathBuf),
    /// A TCP host and port. A host name is resolved at each connection, so a container may move.
    Tcp(String, u16),
}

impl fmt::Display for BackendAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            BackendAddress::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            BackendAddress::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// An address and its share of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCgiBackend {
    /// The address to connect to.
    pub address: BackendAddress,
    /// A backend of weight 2 with two requests is as busy as a backend of weight 1 with one.
    pub weight: u32,
}

/// Why a string is not an address. [`fmt::Display`] says what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// Neither `unix:PATH` nor `HOST:PORT`.
    Form,
    /// `unix:` with a path that is not absolute.
    RelativePath,
    /// `unix:` with a path longer than [`MAX_UNIX_PATH`].
    LongPath,
    /// The port is not a number in 1..=65535.
    Port(String),
    /// A range of ports whose end is below its beginning, such as `9007-9000`.
    ReversedRange(u16, u16),
    /// More backends than [`MAX_BACKENDS`].
    TooMany,
    /// A word after the address that is not `weight=N` with N in 1..=100.
    Word(String),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Form => f.write_str(
                "expected `unix:/path/to/socket`, `host:port` or a range such as `127.0.0.1:9000-9007`",
            ),
            AddressError::RelativePath => f.write_str("the socket's path must begin with `/`"),
            AddressError::LongPath => write!(
                f,
                "the socket's path is longer than the {MAX_UNIX_PATH} bytes that the system allows"
            ),
            AddressError::Port(text) => write!(f, "`{text}` is not a port from 1 to 65535"),
            AddressError::ReversedRange(first, last) => {
                write!(
                    f,
                    "the range {first}-{last} is reversed; write {last}-{first}"
                )
            }
            AddressError::TooMany => write!(f, "the range has more than {MAX_BACKENDS} backends"),
            AddressError::Word(word) => {
                write!(f, "`{word}`: expected `weight=N`, from 1 to 100")
            }
        }
    }
}

/// Parses an address, which gives one backend or, for a range of ports, several.
pub fn parse(text: &str) -> Result<Vec<FastCgiBackend>, AddressError> {
    let mut words = text.split_ascii_whitespace();
    let address = words.next().ok_or(AddressError::Form)?;
    let mut weight = 1;
    for word in words {
        let number = word.strip_prefix("weight=").and_then(|n| n.parse().ok());
        weight = number
            .filter(|n| (1..=100).contains(n))
            .ok_or_else(|| AddressError::Word(word.escape_debug().to_string()))?;
    }
    let with = |address| FastCgiBackend { address, weight };
    if let Some(path) = address.strip_prefix("unix:") {
        if !path.starts_with('/') {
            return Err(AddressError::RelativePath);
        }
        if path.len() > MAX_UNIX_PATH {
            return Err(AddressError::LongPath);
        }
        return Ok(vec![with(BackendAddress::Unix(path.into()))]);
    }
    let (host, ports) = address.rsplit_once(':').ok_or(AddressError::Form)?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host = match bare {
        Some(v6) if matches!(v6.parse(), Ok(IpAddr::V6(_))) => v6,
        None if is_name(host) => host,
        _ => return Err(AddressError::Form),
    };
    let (first, last) = match ports.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(ports)?, port(ports)?),
    };
    if first > last {
        return Err(AddressError::ReversedRange(first, last));
    }
    if usize::from(last - first) >= MAX_BACKENDS {
        return Err(AddressError::TooMany);
    }
    let tcp = |port| with(BackendAddress::Tcp(host.to_owned(), port));
    Ok((first..=last).map(tcp).collect())
}

fn is_name(host: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !host.is_empty() && host.len() <= 253 && host.bytes().all(allowed)
}

fn port(text: &str) -> Result<u16, AddressError> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let port = text.parse().ok().filter(|port| digits && *port > 0);
    port.ok_or_else(|| AddressError::Port(text.escape_debug().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, AddressError> {
        let show = |b: &FastCgiBackend| format!("{} x{}", b.address, b.weight);
        parse(text).map(|list| list.iter().map(show).collect())
    }

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let is = |text, expected: &[&str]| assert_eq!(shown(text).unwrap(), expected, "{text}");
        is(
            "unix:/run/php/php8.2-fpm.sock",
            &["unix:/run/php/php8.2-fpm.sock x1"],
        );
        is("127.0.0.1:9000", &["127.0.0.1:9000 x1"]);
        is("php-fpm:9000 weight=3", &["php-fpm:9000 x3"]);
        is("[::1]:9000-9001", &["[::1]:9000 x1", "[::1]:9001 x1"]);
        assert_eq!(shown("127.0.0.1:9000-9007").unwrap().len(), 8);
    }

    #[test]
    fn invalid_addresses_are_refused_by_name() {
        let is = |text: &str, why| assert_eq!(parse(text), Err(why), "{text}");
        is("", AddressError::Form);
        is("9000", AddressError::Form);
        is("::1:9000", AddressError::Form);
        is("http://x:80", AddressError::Form);
        is("unix:php.sock", AddressError::RelativePath);
        let long = format!("unix:/{}", "x".repeat(200));
        is(&long, AddressError::LongPath);
        is("a:0", AddressError::Port("0".into()));
        is("a:http", AddressError::Port("http".into()));
        is("a:65536", AddressError::Port("65536".into()));
        is("a:9007-9000", AddressError::ReversedRange(9007, 9000));
        is("a:1-60000", AddressError::TooMany);
        is("a:1 weight=0", AddressError::Word("weight=0".into()));
        is("a:1 backup", AddressError::Word("backup".into()));
    }
}
