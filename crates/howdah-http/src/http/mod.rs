//! HTTP messages, and HTTP/1.1, HTTP/2 and HTTP/3 on sockets: framing, limits, timeouts, order.
//!
//! From the inside out: `head`, `framing` and `chunk` of `howdah-http1` and [`proxy_protocol`] are pure parsers;
//! `stream` and `outbox` move bytes; [`RequestBody`] and [`Responder`] are the two halves of a request that a handler
//! holds, on a `channel` that is an HTTP/1.1 connection or a stream of `http2` or `http3`; `connection` serves one
//! connection from start to end. `crate::listener` accepts connections.

mod body;
mod buffers;
mod captured;
mod captured_stream;
mod channel;
mod config;
mod connected;
mod connection;
pub mod date;
mod deadline;
mod eviction;
mod handler;
mod http1_text;
mod http2;
mod http3;
mod lifecycle;
pub mod message;
mod multiplexed;
mod outbox;
mod pace;
pub mod proxy_protocol;
mod request_io;
mod responder;
pub(crate) mod slots;
mod stream;
#[cfg(test)]
mod tests;

pub use body::{BodyError, RequestBody};
pub use captured::CapturedResponse;
pub use config::HttpConfig;
pub use connected::serve_connected;
pub use handler::{ConnectionInfo, ConnectionNotice, HandshakeFailure, RequestHandler};
pub use howdah_http1::framing::BodyKind;
pub use howdah_http1::refusal::BadRequest;
pub use http2::Http2Error;
pub use http3::Http3Error;
pub use http3::frames as http3_frames;
pub use multiplexed::request as http2_request;
pub use responder::{ClientGone, Responder, ResponseLength, SendFileError};

pub(crate) use connection::{ConnectionSetup, serve};
pub(crate) use http3::{
    IncomingConnection, max_head_bytes, serve as serve_http3, transport_config,
};
pub(crate) use lifecycle::{FrontThreadConnections, make_room, make_room_in_advance};
pub(crate) use stream::ByteStream;
