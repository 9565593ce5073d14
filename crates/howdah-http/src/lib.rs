//! Connections and listeners of HTTP/1.1, HTTP/2 and HTTP/3, with TLS: accepts, reads requests, sends
//! responses, ends gracefully. Knows nothing of sites, files or scripts: it asks a [`Handler`].
//!
//! - `http`, whose items are here at the root: messages, and connections: framing, limits, time-outs.
//! - [`listener`]: sockets, accepting, front threads, the graceful end.
//! - [`tls`]: certificates, handshakes, records.
//! - [`network`]: blocks of addresses.
//! - [`memory`]: one bound for all that the front keeps; `allocated`: how much that is.
//! - [`turn`]: how long a task may keep a front thread.
//! - `socket`: a connected socket; `sys`: the `unsafe` of this crate.
//!
//! No two modules import each other, directly or in a ring (howdah-server's `tests/module_graph.rs`).

#![deny(unsafe_code)]

mod allocated;
mod http;
pub mod listener;
pub mod memory;
pub mod network;
mod socket;
mod sys;
pub mod tls;
pub mod turn;

pub use self::http::{
    BadRequest, BodyError, BodyKind, ClientGone, ConnInfo, Handler, HandshakeFailed, Http2Error,
    Http3Error, HttpConfig, Length, Notice, RequestBody, Responder, SendFileError, date,
    http2_request, http3_frames, message, proxy_protocol, serve_connected,
};
