//! Connections and listeners for HTTP/1.1, HTTP/2 and HTTP/3, with TLS: accepts connections, reads requests, sends
//! responses, stops gracefully. This crate does not depend on sites, files or scripts: it calls a [`RequestHandler`].
//!
//! - `http`, whose items are re-exported here: messages and connections, with framing, limits and timeouts.
//! - [`listener`]: sockets, accepting, front threads, the graceful stop.
//! - [`tls`]: certificates, handshakes, records.
//! - [`network`]: blocks of addresses.
//! - [`memory`]: one limit for all memory of the front; `allocated`: counts the memory in use.
//! - [`turn`]: limits how long a task may occupy a front thread.
//! - `socket`: a connected socket; `sys`: the `unsafe` code of this crate.
//!
//! No two modules import each other, directly or in a cycle (howdah-server's `tests/module_graph.rs`).

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
    BadRequest, BodyError, BodyKind, CapturedResponse, ClientGone, ConnectionInfo,
    ConnectionNotice, HandshakeFailure, Http2Error, Http3Error, HttpConfig, RequestBody,
    RequestHandler, Responder, ResponseLength, SendFileError, date, http2_request, http3_frames,
    message, proxy_protocol, serve_connected,
};
