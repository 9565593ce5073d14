//! HTTP messages, and HTTP/1.1 on a socket: framing, limits, time-outs, order. Knows nothing of
//! sites, files or scripts: it asks a [`Handler`].
//!
//! From the inside out: [`head`], [`framing`](BodyKind), [`chunk`] and [`proxy_protocol`] are pure
//! parsers; `socket` and `outbox` move bytes; [`RequestBody`] and [`Responder`] are the two halves
//! a handler holds; `connection` is one connection's life. `crate::listener` accepts them.

mod body;
mod buffers;
pub mod chunk;
mod config;
mod connection;
pub mod date;
mod deadline;
mod framing;
mod handler;
pub mod head;
mod io;
mod lifecycle;
pub mod message;
mod outbox;
pub mod proxy_protocol;
mod reason;
mod refusal;
mod responder;
mod socket;
#[cfg(test)]
mod tests;

pub use body::{BodyError, RequestBody};
pub use config::{HalfClose, HttpConfig};
pub use framing::{BodyKind, Framing, is_host};
pub use handler::{ConnInfo, Handler, Notice};
pub use reason::reason_phrase;
pub use refusal::BadRequest;
pub use responder::{ClientGone, Length, Responder, SendFileError};

pub(crate) use connection::serve;
pub(crate) use lifecycle::Lifecycle;
pub(crate) use socket::Socket;
