//! The named reasons for which a request is refused before any handler sees it. A name is the same
//! word in the log, the `Howdah-Error` header, the docs and the tests. No parsing happens here.

use strum::{Display, IntoStaticStr, VariantArray};

/// Why what a client sent is not a request that this server answers. The connection is closed after
/// each of these: where one message ends is no longer certain (RFC 9112 §11.2), or the client must
/// not go on as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr, VariantArray)]
pub enum BadRequest {
    /// The request line is not `method SP target SP HTTP/x.y` (RFC 9112 §3).
    BadRequestLine,
    /// The method is not a token (RFC 9110 §9.1).
    BadMethod,
    /// The target is none of the four forms, or carries a byte no target may (RFC 9112 §3.2).
    BadTarget,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    BadVersion,
    /// A line ends with LF alone. RFC 9112 §2.2 lets a recipient accept it; two that differ about
    /// it can be made to see different requests, so it is refused.
    BareLf,
    /// A CR not followed by LF (RFC 9112 §2.2).
    BareCr,
    /// A NUL byte in the head (RFC 9110 §5.5).
    NulByte,
    /// A control character other than TAB in a field value (RFC 9110 §5.5).
    ControlCharacter,
    /// A field name that is empty, no token, or followed by white space (RFC 9112 §5.1).
    BadHeaderName,
    /// A line folded onto the next (RFC 9112 §5.2), or white space before the first field (§2.2).
    ObsFold,
    /// The head is longer than `max_header_bytes`.
    HeaderTooLarge,
    /// More fields than [`crate::head::HeadLimits::fields`].
    TooManyHeaders,
    /// The request line is longer than [`crate::head::HeadLimits::request_line`].
    UriTooLong,
    /// HTTP/1.1 without `Host` (RFC 9112 §3.2).
    MissingHost,
    /// More than one `Host` (RFC 9112 §3.2).
    TwoHosts,
    /// `Host`, or the authority of an absolute target, is empty or not `host[:port]`.
    BadHost,
    /// HTTP/2: `:authority` and `Host` name different hosts (RFC 9113 §8.3.1).
    AuthorityMismatch,
    /// HTTP/2: a field's value begins or ends with white space (RFC 9113 §8.2.1).
    BadHeaderValue,
    /// `Content-Length` together with `Transfer-Encoding` (RFC 9112 §6.3: "ought to be handled as
    /// an error").
    ContentLengthAndTransferEncoding,
    /// `Content-Length` is not a decimal number below 2^63.
    BadContentLength,
    /// More than one `Content-Length`, even with the same value.
    ConflictingContentLength,
    /// `Transfer-Encoding` does not end in `chunked`, comes twice, or comes with HTTP/1.0
    /// (RFC 9112 §6.1, §6.3).
    BadTransferEncoding,
    /// A transfer coding other than `chunked` (RFC 9112 §6.1).
    UnsupportedTransferEncoding,
    /// A chunk's size line is not hexadecimal, too big, or too long (RFC 9112 §7.1).
    BadChunkSize,
    /// A chunk extension that is not `;name`, `;name=value` or `;name="value"` (RFC 9112 §7.1.1).
    BadChunkExtension,
    /// Chunk extensions of one body longer than 16 KiB together.
    ChunkExtensionsTooLong,
    /// A chunk's data is not followed by CRLF.
    BadChunkEnd,
    /// A trailer line that is no field, or trailers longer than 16 KiB (RFC 9112 §7.1.2).
    BadTrailer,
    /// `Expect` with anything but `100-continue` (RFC 9110 §10.1.1).
    UnknownExpectation,
    /// CONNECT: this is not a proxy.
    ConnectRefused,
    /// TRACE would reflect cookies and credentials to scripts (RFC 9110 §9.3.8).
    TraceRefused,
    /// The head did not arrive within `header_timeout`.
    HeaderTimeout,
}

impl BadRequest {
    /// All of them, for documentation and counters.
    pub const ALL: &'static [BadRequest] = BadRequest::VARIANTS;

    /// The name, as in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The status it is answered with.
    pub fn status(self) -> u16 {
        match self {
            BadRequest::BadVersion => 505,
            BadRequest::HeaderTooLarge | BadRequest::TooManyHeaders => 431,
            BadRequest::UriTooLong => 414,
            BadRequest::UnsupportedTransferEncoding
            | BadRequest::ConnectRefused
            | BadRequest::TraceRefused => 501,
            BadRequest::UnknownExpectation => 417,
            BadRequest::HeaderTimeout => 408,
            // Statuses are not names: strum has no place for them, and most are this one.
            _ => 400,
        }
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
