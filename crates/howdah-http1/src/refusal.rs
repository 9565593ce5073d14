//! The named reasons for refusing a request before any handler sees it. The log, the `Howdah-Error` header, the
//! documentation and the tests use the same names. Nothing is parsed here.

use strum::{Display, IntoStaticStr, VariantArray};

/// Why the bytes that a client sent are not a request that this server handles. After each of these refusals an
/// HTTP/1.1 connection is closed: either the end of the message is no longer certain (RFC 9112 §11.2), or the client
/// must not continue in this way. With HTTP/2 and HTTP/3 only the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Display, IntoStaticStr, VariantArray)]
pub enum BadRequest {
    /// The request line is not `method SP target SP HTTP/x.y` (RFC 9112 §3).
    BadRequestLine,
    /// The method is not a token (RFC 9110 §9.1).
    BadMethod,
    /// The target has none of the four forms, or contains a byte that is not allowed in a target (RFC 9112 §3.2).
    BadTarget,
    /// The version is neither HTTP/1.0 nor HTTP/1.1.
    BadVersion,
    /// A line ends with LF alone. RFC 9112 §2.2 allows a recipient to accept it. Two recipients that differ on this can
    /// be made to see different requests, so it is refused.
    BareLf,
    /// A CR is not followed by LF (RFC 9112 §2.2).
    BareCr,
    /// A NUL byte in the head (RFC 9110 §5.5).
    NulByte,
    /// A control character other than TAB in a field value (RFC 9110 §5.5).
    ControlCharacter,
    /// A field name is empty, not a token, or followed by white space (RFC 9112 §5.1).
    BadHeaderName,
    /// A line folded onto the next (RFC 9112 §5.2), or white space before the first field (§2.2).
    ObsFold,
    /// The head is longer than `max_header_bytes`.
    HeaderTooLarge,
    /// The head has more fields than [`crate::head::HeadLimits::fields`].
    TooManyHeaders,
    /// The request line is longer than [`crate::head::HeadLimits::request_line`].
    UriTooLong,
    /// An HTTP/1.1 request has no `Host` (RFC 9112 §3.2).
    MissingHost,
    /// The head has more than one `Host` (RFC 9112 §3.2).
    TwoHosts,
    /// `Host`, or the authority of an absolute target, is empty or not `host[:port]`.
    BadHost,
    /// HTTP/2 and HTTP/3: `:authority` and `Host` name different hosts (RFC 9113 §8.3.1).
    AuthorityMismatch,
    /// HTTP/2 and HTTP/3: a field's value begins or ends with white space (RFC 9113 §8.2.1).
    BadHeaderValue,
    /// `Content-Length` together with `Transfer-Encoding` (RFC 9112 §6.3: "ought to be handled as
    /// an error").
    ContentLengthAndTransferEncoding,
    /// `Content-Length` is not a decimal number below 2^63.
    BadContentLength,
    /// The head has more than one `Content-Length`, even with the same value.
    ConflictingContentLength,
    /// `Transfer-Encoding` does not end in `chunked`, occurs twice, or occurs in an HTTP/1.0 request (RFC 9112 §6.1,
    /// §6.3).
    BadTransferEncoding,
    /// A transfer coding other than `chunked` (RFC 9112 §6.1).
    UnsupportedTransferEncoding,
    /// A chunk's size line is not hexadecimal, or the size has too many digits (RFC 9112 §7.1).
    BadChunkSize,
    /// A chunk extension does not have the form `;name`, `;name=value` or `;name="value"` (RFC 9112 §7.1.1).
    BadChunkExtension,
    /// The chunk extensions of one body are longer than 16 KiB in total.
    ChunkExtensionsTooLong,
    /// A chunk's data is not followed by CRLF.
    BadChunkEnd,
    /// A trailer line is not a field, or the trailers are longer than 16 KiB (RFC 9112 §7.1.2).
    BadTrailer,
    /// `Expect` has a value other than `100-continue` (RFC 9110 §10.1.1).
    UnknownExpectation,
    /// The method is CONNECT, and this server is not a proxy.
    ConnectRefused,
    /// The method is TRACE, which would reflect cookies and credentials to scripts (RFC 9110 §9.3.8).
    TraceRefused,
    /// The head did not arrive within `header_timeout`.
    HeaderTimeout,
}

impl BadRequest {
    /// All reasons, for documentation and counters.
    pub const ALL: &'static [BadRequest] = BadRequest::VARIANTS;

    /// Returns the name, as it appears in `Howdah-Error`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the status of the response to such a request.
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
            // Most refusals have this status. strum only maps names, so the statuses are listed here.
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
