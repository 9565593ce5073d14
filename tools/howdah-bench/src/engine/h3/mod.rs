//! HTTP/3: the frames of the `h3` crate over QUIC of the `quinn-proto` crate, both polled from our event loop. Each
//! connection has a UDP socket of its own, as connections of different visitors have.

mod connection;
mod exchange;
mod quic;

use super::multiplex::MultiplexedFleet;

/// The clients of a thread that speak HTTP/3.
pub type Http3ClientFleet = MultiplexedFleet<connection::Http3Connection>;
