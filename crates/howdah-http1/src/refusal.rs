//! The named reasons for which a request is refused before any handler sees it. A name is the same
//! word in the log, the `Howdah-Error` header, the docs and the tests. No parsing happens here.

use std::fmt;

macro_rules! refusals {
    ($( $(#[doc = $doc:literal])+ $name:ident => $status:literal, )+) => {
        /// Why what a client sent is not a request that this server answers. The connection is
        /// closed after each of these: where one message ends is no longer certain (RFC 9112 §11.2),
        /// or the client must not go on as it does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum BadRequest {
            $( $(#[doc = $doc])+ $name, )+
        }

        impl BadRequest {
            /// All of them, for documentation and counters.
            pub const ALL: &'static [BadRequest] = &[ $( BadRequest::$name, )+ ];

            /// The name, as in `Howdah-Error`.
            pub fn name(self) -> &'static str {
                match self { $( BadRequest::$name => stringify!($name), )+ }
            }

            /// The status it is answered with.
            pub fn status(self) -> u16 {
                match self { $( BadRequest::$name => $status, )+ }
            }
        }
    };
}

refusals! {
    /// The request line is not `method SP target SP HTTP/x.y` (RFC 9112 §3).
    BadRequestLine => 400,
    /// The method is not a token (RFC 9110 §9.1).
    BadMethod => 400,
    /// The target is none of the four forms, or carries a byte no target may (RFC 9112 §3.2).
    BadTarget => 400,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    BadVersion => 505,
    /// A line ends with LF alone. RFC 9112 §2.2 lets a recipient accept it; two that differ about
    /// it can be made to see different requests, so it is refused.
    BareLf => 400,
    /// A CR not followed by LF (RFC 9112 §2.2).
    BareCr => 400,
    /// A NUL byte in the head (RFC 9110 §5.5).
    NulByte => 400,
    /// A control character other than TAB in a field value (RFC 9110 §5.5).
    ControlCharacter => 400,
    /// A field name that is empty, no token, or followed by white space (RFC 9112 §5.1).
    BadHeaderName => 400,
    /// A line folded onto the next (RFC 9112 §5.2), or white space before the first field (§2.2).
    ObsFold => 400,
    /// The head is longer than `max_header_bytes`.
    HeaderTooLarge => 431,
    /// More fields than [`crate::head::HeadLimits::fields`].
    TooManyHeaders => 431,
    /// The request line is longer than [`crate::head::HeadLimits::request_line`].
    UriTooLong => 414,
    /// HTTP/1.1 without `Host` (RFC 9112 §3.2).
    MissingHost => 400,
    /// More than one `Host` (RFC 9112 §3.2).
    TwoHosts => 400,
    /// `Host`, or the authority of an absolute target, is empty or not `host[:port]`.
    BadHost => 400,
    /// `Content-Length` together with `Transfer-Encoding` (RFC 9112 §6.3: "ought to be handled as
    /// an error").
    ContentLengthAndTransferEncoding => 400,
    /// `Content-Length` is not a decimal number below 2^63.
    BadContentLength => 400,
    /// More than one `Content-Length`, even with the same value.
    ConflictingContentLength => 400,
    /// `Transfer-Encoding` does not end in `chunked`, comes twice, or comes with HTTP/1.0
    /// (RFC 9112 §6.1, §6.3).
    BadTransferEncoding => 400,
    /// A transfer coding other than `chunked` (RFC 9112 §6.1).
    UnsupportedTransferEncoding => 501,
    /// A chunk's size line is not hexadecimal, too big, or too long (RFC 9112 §7.1).
    BadChunkSize => 400,
    /// A chunk extension that is not `;name`, `;name=value` or `;name="value"` (RFC 9112 §7.1.1).
    BadChunkExtension => 400,
    /// Chunk extensions of one body longer than 16 KiB together.
    ChunkExtensionsTooLong => 400,
    /// A chunk's data is not followed by CRLF.
    BadChunkEnd => 400,
    /// A trailer line that is no field, or trailers longer than 16 KiB (RFC 9112 §7.1.2).
    BadTrailer => 400,
    /// `Expect` with anything but `100-continue` (RFC 9110 §10.1.1).
    UnknownExpectation => 417,
    /// CONNECT: this is not a proxy.
    ConnectRefused => 501,
    /// TRACE would reflect cookies and credentials to scripts (RFC 9110 §9.3.8).
    TraceRefused => 501,
    /// The head did not arrive within `header_timeout`.
    HeaderTimeout => 408,
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for BadRequest {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_a_client_or_capability_error_under_its_own_name() {
        for (at, why) in BadRequest::ALL.iter().enumerate() {
            assert!(
                (400..=431).contains(&why.status()) || [501, 505].contains(&why.status()),
                "{why} has status {}",
                why.status()
            );
            assert!(
                BadRequest::ALL[..at].iter().all(|w| w.name() != why.name()),
                "{why} is named twice"
            );
        }
    }
}
