//! Parses responses of HTTP/1.x. It is strict enough to decide whether a response was complete, and to name what is not
//! valid HTTP. It does not depend on sockets or clocks.
//!
//! - [`head`]: status line and fields (RFC 9112 §4, §5), and what they say about the body (§6.3).
//! - [`chunked`]: the chunked coding (§7.1), decoded without copying the data.
//! - [`ResponseReader`]: a response from its first byte to its last, in pieces of any size.

pub mod chunked;
pub mod head;
mod reader;

pub use reader::{ConnectionEndEffect, ResponsePartSink, ResponseReader};

/// Why bytes are not a valid response. Each variant has one name; the outcome is
/// [`crate::outcome::Outcome::ProtocolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// The first line is not `HTTP/1.x NNN …`.
    StatusLine,
    /// A version other than 1.0 and 1.1.
    Version,
    /// A line of the head is not `name: value`; folded lines are not valid (RFC 9112 §5.2).
    Field,
    /// The head is over 64 KiB.
    HeadTooLong,
    /// Content-Length is not a number, or two of them differ.
    ContentLength,
    /// Content-Length together with Transfer-Encoding (RFC 9112 §6.1: treat as an error).
    LengthAndCoding,
    /// The status is 101, although the request did not ask to switch protocols.
    Switching,
    /// A chunk's size or line ends are invalid.
    Chunk,
    /// The response has more bytes than it declared.
    Surplus,
}

impl ResponseFault {
    /// Returns a short description for people.
    pub fn description(self) -> &'static str {
        match self {
            ResponseFault::StatusLine => "the first line is not an HTTP status line",
            ResponseFault::Version => "the version is neither HTTP/1.0 nor HTTP/1.1",
            ResponseFault::Field => "a line is not a valid header",
            ResponseFault::HeadTooLong => "the headers are longer than 64 KiB",
            ResponseFault::ContentLength => {
                "Content-Length is not a number, or occurs twice with different values"
            }
            ResponseFault::LengthAndCoding => {
                "both Content-Length and Transfer-Encoding are present"
            }
            ResponseFault::Switching => {
                "the status is 101 Switching Protocols, which was not requested"
            }
            ResponseFault::Chunk => "the size or the line end of a chunk is wrong",
            ResponseFault::Surplus => "the response is longer than it declared",
        }
    }
}
