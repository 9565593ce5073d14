//! HTTP/3 (RFC 9114) over QUIC by quinn, up to requests and responses as HTTP/1.1 has them: a stream is a
//! request's [`Channel`](super::channel::Channel), and everything above is the same.
//!
//! The h3 crate has the control streams and the compression of heads. Bodies pass it by: it would keep
//! what a client sends in many small frames, or in one large one, however much that is. `frames` parses
//! them; `transport` gives the h3 crate quinn's streams, each through its `pipe`; [`Http3Stream`] is one
//! request's stream, [`serve`] a connection.

mod connection;
pub mod frames;
mod handshake;
mod order;
mod pipe;
mod request;
mod stream;
mod transport;

use std::time::Duration;

use strum::{Display, IntoStaticStr, VariantArray};

pub(crate) use connection::{Arrival, serve};
pub(super) use stream::Http3Stream;

use super::config::HttpConfig;

/// Streams of a connection at once, and bytes of their bodies that may wait: as for HTTP/2.
const STREAMS: u32 = 128;
const STREAM_WINDOW: u32 = 64 << 10;
/// Streams of a client that are no requests: control, two of QPACK, and what it tries beside them.
const CONTROL_STREAMS: u32 = 8;
/// Bytes of a connection's answers that the client has not acknowledged.
const SEND_WINDOW: u64 = 512 << 10;

/// Why an HTTP/3 connection was ended by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, IntoStaticStr, VariantArray)]
pub enum Http3Error {
    /// The client cancels requests faster than browsers do.
    Http3RapidReset,
    /// The client floods control streams, or sends frame after frame with nothing in them.
    Http3ControlFlood,
    /// The client broke the protocol in another way; the message says how.
    Http3Protocol,
}

impl Http3Error {
    /// All of them, for documentation and counters.
    pub const ALL: &'static [Http3Error] = Http3Error::VARIANTS;

    /// The name, in the log and in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The length of heads that the server's SETTINGS allow. Fields count 32 bytes more each there: a head that is
/// too long is refused when it is converted.
pub(crate) fn longest_head(config: &HttpConfig) -> u64 {
    let bytes = u64::try_from(config.max_header_bytes).unwrap_or(u64::MAX);
    bytes.saturating_mul(2)
}

/// What QUIC connections are to keep to.
pub(crate) fn transport_config(config: &HttpConfig) -> quinn::TransportConfig {
    let mut transport = quinn::TransportConfig::default();
    let idle = config.keepalive_timeout.max(Duration::from_secs(1));
    transport
        .max_concurrent_bidi_streams(STREAMS.into())
        .max_concurrent_uni_streams(CONTROL_STREAMS.into())
        .stream_receive_window(STREAM_WINDOW.into())
        .receive_window((STREAMS * STREAM_WINDOW).into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(quinn::IdleTimeout::try_from(idle).ok());
    transport
}
