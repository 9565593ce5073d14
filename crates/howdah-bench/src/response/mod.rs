//! Reads answers of HTTP/1.x. Strict enough to decide whether an answer was complete and to name
//! what is not valid HTTP. Knows neither sockets nor clocks.
//!
//! - [`head`]: status line and fields (RFC 9112 §4, §5), and what they say of the body (§6.3).
//! - [`chunked`]: the chunked coding (§7.1), data handed on without copying.
//! - [`Reader`]: an answer from its first byte to its last, however it is cut.

pub mod chunked;
pub mod head;
mod reader;

pub use reader::{End, Reader, Sink};

/// Why bytes are not a valid answer. Each variant has one name; the outcome is
/// [`crate::outcome::Outcome::ProtocolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
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
    /// Content-Length beside Transfer-Encoding (RFC 9112 §6.1: treat as an error).
    LengthAndCoding,
    /// Status 101, though the request did not ask to switch protocols.
    Switching,
    /// A chunk's size or line ends are wrong.
    Chunk,
    /// The answer has more bytes than it declared.
    Surplus,
}

impl Fault {
    /// A few words for people.
    pub fn words(self) -> &'static str {
        match self {
            Fault::StatusLine => "the first line is not an HTTP status line",
            Fault::Version => "a version that is neither HTTP/1.0 nor HTTP/1.1",
            Fault::Field => "a line of the head is not a header field",
            Fault::HeadTooLong => "a head of more than 64 KiB",
            Fault::ContentLength => "a Content-Length that is not a number, or two that differ",
            Fault::LengthAndCoding => "Content-Length beside Transfer-Encoding",
            Fault::Switching => "101 Switching Protocols that was not asked for",
            Fault::Chunk => "a chunk's size or line end is wrong",
            Fault::Surplus => "more bytes than the answer declared",
        }
    }
}
