//! HTTP/2 (RFC 9113) by the h2 crate, up to requests and responses as HTTP/1.1 has them: a stream is a
//! request's [`Channel`](super::channel::Channel), and everything above is the same.
//!
//! `frames` and `floods` watch what passes; `wire` gathers what is sent; `gate` says whose turn it is;
//! [`Http2Stream`] is one stream, [`Http2Connection`] all of them.

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
