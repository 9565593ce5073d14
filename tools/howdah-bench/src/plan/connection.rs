//! How requests are sent: the protocol, the local address, the proxy and the TLS settings.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::target::{LoadTarget, TargetAddress, UrlScheme};
use crate::error::BenchError;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HttpProtocol {
    /// HTTP/1.0 as ab speaks it, with `Connection: Keep-Alive` if connections are reused.
    #[serde(rename = "HTTP/1.0")]
    Http10,
    /// HTTP/1.1, without upgrades.
    #[serde(rename = "HTTP/1.1")]
    Http11,
    /// HTTP/2: chosen by ALPN over TLS, with prior knowledge (h2c) without TLS.
    #[serde(rename = "HTTP/2")]
    Http2,
    /// HTTP/3 over QUIC. The URL is https, and the connection does not begin with an earlier version (no Alt-Svc).
    #[serde(rename = "HTTP/3")]
    Http3,
}

impl HttpProtocol {
    /// Returns whether a connection carries several requests at once.
    pub fn is_multiplexed(self) -> bool {
        matches!(self, HttpProtocol::Http2 | HttpProtocol::Http3)
    }
}

/// How requests are sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionPolicy {
    /// The protocol that every connection speaks.
    pub protocol: HttpProtocol,
    /// Whether a connection is used for more than one request.
    pub keep_alive: bool,
    /// HTTP/2 and HTTP/3: how many streams a connection carries at once. Every stream is a client of its own.
    pub streams: u32,
    /// The timeout in seconds for a connection with its TLS handshake, and again for the response.
    #[serde(with = "super::seconds")]
    pub timeout: Duration,
    /// What happens when the backlog of a unix socket is full (EAGAIN).
    pub backlog: BacklogPolicy,
    /// The local address of every connection; if it is `None`, the system chooses. It applies only to TCP.
    #[serde(default)]
    pub bind: Option<IpAddr>,
    /// The size of the socket's send buffer and of its receive buffer, in bytes. `None` means the system's buffers,
    /// which grow as needed. The kernel doubles the value, and has limits of its own (socket(7)).
    #[serde(default)]
    pub buffers: Option<usize>,
    /// A proxy to connect to instead of the server: requests carry the whole URL (RFC 9112 §3.2.2). HTTP/1.x without
    /// TLS only.
    #[serde(default)]
    pub proxy: Option<TargetAddress>,
    /// How TLS is negotiated; used for HTTPS only.
    pub tls: ClientTlsOptions,
}

impl Default for ConnectionPolicy {
    fn default() -> Self {
        ConnectionPolicy {
            protocol: HttpProtocol::Http11,
            keep_alive: true,
            streams: 1,
            timeout: Duration::from_secs(30),
            backlog: BacklogPolicy::Count,
            bind: None,
            buffers: None,
            proxy: None,
            tls: ClientTlsOptions::default(),
        }
    }
}

/// What to do when a unix socket's backlog is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BacklogPolicy {
    /// The request ends as [`crate::outcome::Outcome::ConnectBacklog`], as it does in a web server
    /// in front of php-fpm. The client then pauses for a millisecond.
    Count,
    /// The client retries every millisecond until the timeout, as TCP would. The wait counts as latency.
    Wait,
}

/// TLS settings of the client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientTlsOptions {
    /// Whether to verify the server's certificate against the system's authorities (and `ca_file`).
    pub verify: bool,
    /// A PEM file of authorities to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// The server name to request instead of the URL's host; `None` means the URL's host.
    pub server_name: Option<String>,
    /// Whether to send no server name, that is, no SNI (RFC 6066 §3).
    #[serde(default)]
    pub no_sni: bool,
    /// The only version to accept; `None` means the best that both sides support.
    #[serde(default)]
    pub version: Option<TlsVersion>,
    /// The only cipher suites to offer, by OpenSSL's names; empty: all that rustls supports.
    #[serde(default)]
    pub ciphers: Vec<String>,
    /// A PEM file with the client's certificate, its intermediate certificates, and its private key.
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
    /// Returns an error if a setting cannot work with the server of this target.
    pub fn check(&self, target: &LoadTarget) -> Result<(), BenchError> {
        let impossible = |why: &str| Err(BenchError::Impossible(why.to_owned()));
        let unix = matches!(target.address, TargetAddress::Unix(_));
        let https = target.scheme == UrlScheme::Https;
        if self.timeout.is_zero() {
            return impossible("the timeout is zero, so no request could get a response");
        }
        if self.protocol.is_multiplexed() && !self.keep_alive {
            return impossible(
                "HTTP/2 and HTTP/3 without keep-alive would mainly measure handshakes; use HTTP/1.1 to measure without keep-alive",
            );
        }
        if self.protocol == HttpProtocol::Http3 {
            if unix {
                return impossible("HTTP/3 runs over UDP, which a unix socket does not support");
            }
            if !https {
                return impossible(&format!(
                    "HTTP/3 (--http3) is always encrypted, and {target} is not an https:// URL"
                ));
            }
            if self.tls.version == Some(TlsVersion::Tls12) {
                return impossible("HTTP/3 needs TLS 1.3, and -f allows only TLS 1.2");
            }
        }
        if self.proxy.is_some() && (https || unix || self.protocol.is_multiplexed()) {
            return impossible(
                "a proxy (-X) is supported only for http:// URLs and HTTP/1.x: through a tunnel to an https server \
                 (CONNECT), the run would measure how the proxy forwards bytes; measure the server directly",
            );
        }
        if unix && self.bind.is_some() {
            return impossible("-B cannot be used with a unix socket, which has no local address");
        }
        if self.tls.no_sni && self.tls.server_name.is_some() {
            return impossible(
                "-I and --server-name contradict each other, because -I sends no server name",
            );
        }
        Ok(())
    }
}

impl ClientTlsOptions {
    /// Returns whether any option is set that applies only to TLS.
    pub fn is_used(&self) -> bool {
        self.no_sni
            || self.version.is_some()
            || !self.ciphers.is_empty()
            || self.client_certificate.is_some()
            || self.ca_file.is_some()
            || self.server_name.is_some()
    }
}
