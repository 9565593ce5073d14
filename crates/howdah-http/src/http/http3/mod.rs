//! HTTP/3 (RFC 9114) over QUIC by quinn, up to requests and responses in the form of HTTP/1.1: a stream is a request's
//! [`Channel`](super::channel::Channel), and all code above it is shared.
//!
//! The h3 crate handles the control streams and the compression of heads. Bodies bypass it: it would buffer everything
//! that a client sends in many small frames or in one large one, without a limit. `frames` parses them; `transport`
//! gives the h3 crate quinn's streams, each through its `pipe`; [`Http3Stream`] is one request's stream, and [`serve`]
//! serves a connection.

mod connection;
pub mod frames;
mod handshake;
mod pipe;
mod request;
mod send_order;
mod stream;
mod transport;

use std::time::Duration;

use strum::{Display, IntoStaticStr, VariantArray};

pub(crate) use connection::{IncomingConnection, serve};
pub(super) use stream::Http3Stream;

use super::config::HttpConfig;

/// The maximum number of simultaneous streams of a connection, as for HTTP/2, and the window of each stream in bytes.
const MAX_STREAMS: u32 = 128;
const STREAM_WINDOW: u32 = 64 << 10;
/// The maximum number of a client's streams that carry no requests: the control stream, two of QPACK, and a few unknown
/// ones.
const MAX_CONTROL_STREAMS: u32 = 8;
/// The maximum number of bytes of a connection's responses that the client has not acknowledged.
const SEND_WINDOW: u64 = 512 << 10;

/// Why the server ended an HTTP/3 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr, VariantArray)]
pub enum Http3Error {
    /// The client cancels requests faster than browsers do.
    Http3RapidReset,
    /// The client floods control streams, or sends many empty frames in a row.
    Http3ControlFlood,
    /// The client violated the protocol in another way, which the message describes.
    Http3Protocol,
}

impl Http3Error {
    /// All reasons, for documentation and counters.
    pub const ALL: &'static [Http3Error] = Http3Error::VARIANTS;

    /// Returns the name in the log and in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Returns the maximum head length in the server's SETTINGS. Each field counts 32 bytes more there; a head that is too
/// long is refused when it is converted.
pub(crate) fn max_head_bytes(config: &HttpConfig) -> u64 {
    let bytes = u64::try_from(config.max_header_bytes).unwrap_or(u64::MAX);
    bytes.saturating_mul(2)
}

/// Returns the transport parameters of QUIC connections.
pub(crate) fn transport_config(config: &HttpConfig) -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    let idle = config.keepalive_timeout.max(Duration::from_secs(1));
    transport
        .max_concurrent_bidi_streams(MAX_STREAMS.into())
        .max_concurrent_uni_streams(MAX_CONTROL_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window((MAX_STREAMS * STREAM_WINDOW).into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(quinn::IdleTimeout::try_from(idle).ok());
    transport
}
