//! The address that a Swoole script names, as a bound socket: an IP address or host name with a port, or the path of a
//! unix socket. `--listen` of `howdah run` overrides the address that the script names.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use super::sys;

/// The address of `--listen`, which overrides the one that the script names.
static LISTEN_OVERRIDE: OnceLock<SwooleAddress> = OnceLock::new();

/// An address that a server listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwooleAddress {
    /// Host and port; port 0 means any free port.
    Tcp(String, u16),
    /// The path of a unix socket.
    Unix(String),
}

/// Parses `--listen`: `HOST:PORT`, `:PORT` or `unix:PATH`.
pub fn parse_listen_address(text: &str) -> Result<SwooleAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(SwooleAddress::Unix(path.to_owned()));
    }
    let bad =
        || format!("BadAddress: --listen cannot be {text:?}; write HOST:PORT, :PORT or unix:PATH");
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let port = port.parse().map_err(|_| bad())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    Ok(SwooleAddress::Tcp(host.to_owned(), port))
}

/// Sets the address to listen on, whatever the script names.
pub fn override_listen_address(address: SwooleAddress) {
    // Called once, before the script runs.
    let _ = LISTEN_OVERRIDE.set(address);
}

/// Binds the address that the script names, or the one of `--listen`. Returns the socket and the address as it is
/// logged.
pub fn bind(host: &str, port: u16, unix: bool) -> Result<(OwnedFd, String), String> {
    let named = if unix {
        SwooleAddress::Unix(host.to_owned())
    } else {
        SwooleAddress::Tcp(host.to_owned(), port)
    };
    let address = LISTEN_OVERRIDE.get().unwrap_or(&named);
    let (shown, bound) = match address {
        SwooleAddress::Unix(path) => {
            let bound = sys::bind_unix(Path::new(path));
            (path.clone(), bound.map(|s| (s, format!("unix:{path}"))))
        }
        SwooleAddress::Tcp(host, port) => {
            let shown = format!("{host}:{port}");
            let mut at = resolve(host, *port).map_err(|e| format!("BadAddress: {shown}: {e}"))?;
            let bound = sys::bind_tcp(&at).map(|socket| {
                at.set_port(sys::local_port(socket.as_fd()));
                (socket, format!("http://{at}"))
            });
            (shown, bound)
        }
    };
    bound.map_err(|e| {
        let hint = match e.raw_os_error() {
            Some(libc::EADDRINUSE) => "; another program listens there (ss -tlnp shows which)",
            Some(libc::EACCES) => "; ports below 1024 need root",
            Some(libc::EADDRNOTAVAIL) => "; this machine does not have this address",
            _ => "",
        };
        format!("CannotListen: {shown}: {e}{hint}")
    })
}

fn resolve(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    if let Ok(ip) = host.parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let mut all = (host, port).to_socket_addrs()?;
    all.next()
        .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses_are_parsed() {
        let tcp = |host: &str, port| Ok(SwooleAddress::Tcp(host.to_owned(), port));
        assert_eq!(parse_listen_address("127.0.0.1:0"), tcp("127.0.0.1", 0));
        assert_eq!(parse_listen_address(":9501"), tcp("0.0.0.0", 9501));
        assert_eq!(parse_listen_address("[::1]:80"), tcp("::1", 80));
        assert_eq!(
            parse_listen_address("unix:/run/a"),
            Ok(SwooleAddress::Unix("/run/a".to_owned()))
        );
        for bad in ["9501", "a:b", "h:70000"] {
            assert!(
                parse_listen_address(bad)
                    .unwrap_err()
                    .starts_with("BadAddress"),
                "{bad}"
            );
        }
    }
}
