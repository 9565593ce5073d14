//! A parsed URL: `http://host[:port]/path?query`, `https://…`, and for unix sockets nginx's notation
//! `http://unix:/run/app.sock:/path` or `unix:/run/app.sock:/path`, similar to curl. User information is not accepted
//! (credentials go into a header). Fragments are dropped, as browsers do.

use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::template::RequestTemplate;
use crate::error::BenchError;

/// A URL that can be requested. Its host is not empty. Its path begins with a slash and has neither spaces nor control
/// characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadTarget {
    /// The URL's scheme.
    pub scheme: UrlScheme,
    /// The address to connect to, unless the plan has a proxy.
    pub address: TargetAddress,
    /// The value of the Host header: the host, and the port unless it is the scheme's default.
    pub authority: String,
    /// The path and query, as a template.
    pub path: RequestTemplate,
    text: String,
}

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UrlScheme {
    /// HTTP without TLS.
    Http,
    /// HTTP over TLS.
    Https,
}

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetAddress {
    /// A host that is resolved once, before the run.
    Tcp {
        /// A name or an IP address, without brackets.
        host: String,
        /// The TCP port.
        port: u16,
    },
    /// The path of a unix socket. A path that begins with `@` is an abstract name.
    Unix(PathBuf),
}

impl LoadTarget {
    /// Parses a URL.
    pub fn parse(url: &str) -> Result<LoadTarget, BenchError> {
        parse(url).map_err(|why| BenchError::BadUrl {
            url: url.to_owned(),
            why,
        })
    }

    /// Returns the URL as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the host name without the port: ab's "Server Hostname", and the default server name for TLS.
    pub fn host(&self) -> &str {
        match &self.address {
            TargetAddress::Tcp { host, .. } => host,
            TargetAddress::Unix(_) => &self.authority,
        }
    }

    /// Returns the port, ab's "Server Port". `None` for a unix socket.
    pub fn port(&self) -> Option<u16> {
        match self.address {
            TargetAddress::Tcp { port, .. } => Some(port),
            TargetAddress::Unix(_) => None,
        }
    }
}

fn parse(url: &str) -> Result<LoadTarget, String> {
    if let Some(bad) = url.chars().find(|c| c.is_control() || *c == ' ') {
        return Err(format!(
            "it contains {bad:?}; encode it (a space, for example, is %20)"
        ));
    }
    let (scheme, rest) = match url.split_once("://") {
        Some(("http", rest)) => (UrlScheme::Http, rest),
        Some(("https", rest)) => (UrlScheme::Https, rest),
        Some((other, _)) if other.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            return Err(format!("the scheme `{other}` is neither http nor https"));
        }
        _ => (UrlScheme::Http, url),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    if let Some(socket) = rest.strip_prefix("unix:") {
        return unix(url, scheme, socket);
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("a URL must not contain a user and password; give them with -A".to_owned());
    }
    let own_port = match scheme {
        UrlScheme::Http => 80,
        UrlScheme::Https => 443,
    };
    let (host, port) = host_and_port(authority)?;
    let shown = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let port = port.unwrap_or(own_port);
    Ok(LoadTarget {
        scheme,
        authority: if port == own_port {
            shown
        } else {
            format!("{shown}:{port}")
        },
        address: TargetAddress::Tcp {
            host: host.to_owned(),
            port,
        },
        path: path_of(path)?,
        text: url.to_owned(),
    })
}

fn unix(url: &str, scheme: UrlScheme, rest: &str) -> Result<LoadTarget, String> {
    // The socket's path ends at the last ":/", so that it may contain colons.
    let (socket, path) = match rest.rfind(":/") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest.strip_suffix(':').unwrap_or(rest), ""),
    };
    if !socket.starts_with(['/', '@', '.']) || socket.len() < 2 {
        return Err(format!(
            "`{socket}` is not the path of a socket: expected an absolute path, as in unix:/run/app.sock:/path"
        ));
    }
    // sockaddr_un has 108 bytes for the path, one of which is the terminating NUL.
    if socket.len() > 107 {
        return Err(format!(
            "the socket's path is {} bytes long, but the system allows only 107",
            socket.len()
        ));
    }
    Ok(LoadTarget {
        scheme,
        address: TargetAddress::Unix(PathBuf::from(socket)),
        authority: "localhost".to_owned(),
        path: path_of(path)?,
        text: url.to_owned(),
    })
}

fn host_and_port(authority: &str) -> Result<(&str, Option<u16>), String> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err(format!("`{text}` is not a port: expected 1 to 65535")),
    };
    let (host, port) = if let Some(inside) = authority.strip_prefix('[') {
        let (host, after) = inside
            .split_once(']')
            .ok_or("the bracket of the IPv6 address is not closed")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("`{host}` is not an IPv6 address"));
        }
        match after.strip_prefix(':') {
            Some(text) => (host, port(text)?),
            None if after.is_empty() => (host, None),
            None => return Err(format!("`{after}` follows the IPv6 address")),
        }
    } else {
        match authority.split_once(':') {
            Some((_, text)) if text.contains(':') => {
                return Err("an IPv6 address is written in brackets".to_owned());
            }
            Some((host, text)) => (host, port(text)?),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err("it names no host".to_owned());
    }
    Ok((host, port))
}

fn path_of(text: &str) -> Result<RequestTemplate, String> {
    if !text.is_ascii() {
        return Err("its path is not ASCII; encode it (é, for example, is %C3%A9)".to_owned());
    }
    Ok(match text.as_bytes().first() {
        Some(b'/') => RequestTemplate::new(text),
        Some(_) => RequestTemplate::new(format!("/{text}")),
        None => RequestTemplate::new("/"),
    })
}

impl std::fmt::Display for LoadTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TargetAddress::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            TargetAddress::Tcp { host, port } => write!(f, "{host}:{port}"),
            TargetAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Serialize for LoadTarget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for LoadTarget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        LoadTarget::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, address: &str, authority: &str, path: &str) {
        let target = LoadTarget::parse(url).unwrap();
        assert_eq!(target.address.to_string(), address, "{url}");
        assert_eq!(target.authority, authority, "{url}");
        assert_eq!(target.path.text(), path, "{url}");
    }

    #[test]
    fn target_url_is_parsed() {
        check("http://a.example", "a.example:80", "a.example", "/");
        check(
            "http://a.example:8080/x?y=1#z",
            "a.example:8080",
            "a.example:8080",
            "/x?y=1",
        );
        check("https://a.example:443/", "a.example:443", "a.example", "/");
        check("https://a.example/", "a.example:443", "a.example", "/");
        check("127.0.0.1:8080/x", "127.0.0.1:8080", "127.0.0.1:8080", "/x");
        check("http://a.example?q", "a.example:80", "a.example", "/?q");
        check("http://[::1]:81/", "[::1]:81", "[::1]:81", "/");
        check(
            "http://a.example/p/{seq}",
            "a.example:80",
            "a.example",
            "/p/{seq}",
        );
    }

    #[test]
    fn target_accepts_unix_sockets_in_nginx_notation() {
        check(
            "unix:/run/a.sock:/x?y",
            "unix:/run/a.sock",
            "localhost",
            "/x?y",
        );
        check(
            "http://unix:/run/a.sock:/x",
            "unix:/run/a.sock",
            "localhost",
            "/x",
        );
        check("unix:/run/a.sock", "unix:/run/a.sock", "localhost", "/");
        check("unix:/run/a.sock:", "unix:/run/a.sock", "localhost", "/");
        check("unix:@name:/", "unix:@name", "localhost", "/");
        check(
            "unix:/run/a:b.sock:/x",
            "unix:/run/a:b.sock",
            "localhost",
            "/x",
        );
    }

    #[test]
    fn target_url_errors_have_a_reason() {
        for (url, why) in [
            ("", "it names no host"),
            ("http://", "it names no host"),
            ("http://:80/", "it names no host"),
            ("ftp://a.example/", "neither http nor https"),
            ("http://a.example:0/", "is not a port"),
            ("http://a.example:99999/", "is not a port"),
            ("http://a.example:x/", "is not a port"),
            ("http://a b/", "encode it"),
            ("http://a/\r\nX: y", "encode it"),
            ("http://a/é", "not ASCII"),
            ("http://u:p@a/", "with -A"),
            ("http://::1/", "in brackets"),
            ("http://[::1/", "not closed"),
            ("http://[x]/", "not an IPv6 address"),
            ("http://[::1]x/", "follows the IPv6 address"),
            ("unix::/x", "not the path of a socket"),
            ("unix:run.sock:/x", "not the path of a socket"),
        ] {
            let error = LoadTarget::parse(url).unwrap_err();
            assert_eq!(error.name(), "BadUrl");
            assert!(error.to_string().contains(why), "{url}: {error}");
        }
        let long = format!("unix:/{}:/", "x".repeat(108));
        assert!(
            LoadTarget::parse(&long)
                .unwrap_err()
                .to_string()
                .contains("107")
        );
    }
}
