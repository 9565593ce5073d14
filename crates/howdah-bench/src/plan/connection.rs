//! How requests are sent: the protocol, from where, through what, and with which TLS.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::target::{Address, Scheme, Target};
use crate::error::BenchError;

/// The protocol on the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// HTTP/1.0, as ab speaks it: with `Connection: Keep-Alive` if connections are kept.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    /// HTTP/1.1, without upgrades.
    #[serde(rename = "HTTP/1.1")]
    Http11,
    /// HTTP/2: chosen by ALPN over TLS, with prior knowledge (h2c) without TLS.
    #[serde(rename = "HTTP/2")]
    Http2,
}

/// How requests are sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionPolicy {
    /// The protocol that every connection speaks.
    pub protocol: Protocol,
    /// Whether a connection is used for more than one request.
    pub keep_alive: bool,
    /// HTTP/2: how many streams a connection carries at once; every stream is a client of its own.
    pub streams: u32,
    /// Seconds allowed for a connection with its TLS handshake, and again for the answer.
    #[serde(with = "super::seconds")]
    pub timeout: Duration,
    /// What happens when the backlog of a unix socket is full (EAGAIN).
    pub backlog: Backlog,
    /// The local address of every connection; None: the system chooses. TCP only.
    #[serde(default)]
    pub bind: Option<IpAddr>,
    /// Size of the socket's send buffer and of its receive buffer, bytes; None: the system's, which
    /// grow as needed. The kernel doubles the value, and has limits of its own (socket(7)).
    #[serde(default)]
    pub buffers: Option<usize>,
    /// A proxy to connect to in place of the server: requests carry the whole URL (RFC 9112
    /// §3.2.2). HTTP/1.x without TLS only.
    #[serde(default)]
    pub proxy: Option<Address>,
    /// How TLS is negotiated; used for HTTPS only.
    pub tls: TlsOptions,
}

impl Default for ConnectionPolicy {
    fn default() -> Self {
        ConnectionPolicy {
            protocol: Protocol::Http11,
            keep_alive: true,
            streams: 1,
            timeout: Duration::from_secs(30),
            backlog: Backlog::Count,
            bind: None,
            buffers: None,
            proxy: None,
            tls: TlsOptions::default(),
        }
    }
}

/// What to do when a unix socket's backlog is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backlog {
    /// The request ends as [`crate::outcome::Outcome::ConnectBacklog`], as it does in a web server
    /// in front of php-fpm. The client then pauses for a millisecond.
    Count,
    /// The client tries again every millisecond until the timeout, as TCP would; the wait counts as
    /// latency.
    Wait,
}

/// TLS settings of the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TlsOptions {
    /// Whether to verify the server's certificate against the system's authorities (and `ca_file`).
    pub verify: bool,
    /// PEM file of authorities to trust besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Server name to ask for in place of the URL's host; None: the URL's host.
    pub server_name: Option<String>,
    /// Whether to ask for no name: no SNI (RFC 6066 §3).
    #[serde(default)]
    pub no_sni: bool,
    /// The only version to accept; None: the best that both sides have.
    #[serde(default)]
    pub version: Option<TlsVersion>,
    /// The only cipher suites to offer, by OpenSSL's names; empty: all that rustls has.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// PEM file with the client's certificate, the certificates above it, and its private key.
    #[serde(default)]
    pub client_certificate: Option<PathBuf>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    #[serde(rename = "TLS1.2")]
    Tls12,
    /// TLS 1.3 (RFC 8446).
    #[serde(rename = "TLS1.3")]
    Tls13,
}

impl ConnectionPolicy {
    /// Fails if something cannot work with the server of this target.
    pub fn check(&self, target: &Target) -> Result<(), BenchError> {
        let impossible = |why: &str| Err(BenchError::Impossible(why.to_owned()));
        let unix = matches!(target.address, Address::Unix(_));
        let https = target.scheme == Scheme::Https;
        if self.timeout.is_zero() {
            return impossible("a timeout of zero: nothing could be answered");
        }
        if self.protocol == Protocol::Http2 && !self.keep_alive {
            return impossible(
                "HTTP/2 without keep-alive would measure handshakes; use HTTP/1.1 for that",
            );
        }
        if self.proxy.is_some() && (https || unix || self.protocol == Protocol::Http2) {
            return impossible(
                "a proxy (-X) is asked for plain http:// URLs over HTTP/1.x only: a tunnel to an https \
                 server (CONNECT) would measure the proxy's forwarding of bytes; measure the server itself",
            );
        }
        if unix && self.bind.is_some() {
            return impossible("a unix socket has no local address to bind (-B)");
        }
        if self.tls.no_sni && self.tls.server_name.is_some() {
            return impossible("-I asks for no server name, and --server-name gives one");
        }
        Ok(())
    }
}

impl TlsOptions {
    /// Whether any option is set that only TLS has.
    pub fn is_used(&self) -> bool {
        self.no_sni
            || self.version.is_some()
            || !self.ciphers.is_empty()
            || self.client_certificate.is_some()
            || self.ca_file.is_some()
            || self.server_name.is_some()
    }
}
