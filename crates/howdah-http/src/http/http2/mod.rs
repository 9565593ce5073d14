//! HTTP/2 (RFC 9113) by the h2 crate, up to requests and responses in the form of HTTP/1.1: a stream is a request's
//! [`Channel`](super::channel::Channel), and all code above it is shared.
//!
//! `frames` and `floods` watch the frames; `wire` collects the output; `gate` decides which stream sends next;
//! [`Http2Stream`] is one stream, [`Http2Connection`] the connection of all streams.

mod connection;
mod floods;
mod frames;
mod gate;
mod stream;
mod wire;

pub(super) use connection::Http2Connection;
pub use floods::Http2Error;
pub(super) use frames::PREFACE;
pub(super) use stream::Http2Stream;
