//! HTTP/2: the framing of the `h2` crate, polled from our event loop.

mod connection;
mod exchange;
mod pipe;

use super::multiplex::MultiplexedFleet;

/// The clients of a thread that speak HTTP/2.
pub type Http2ClientFleet = MultiplexedFleet<connection::Http2Connection>;
