//! Limits and timeouts of HTTP connections. The options `limits` and `timeouts` set them; the table of
//! options in the crate `howdah` has their defaults. What nobody needs to set is a constant here.

use std::time::Duration;

use howdah_http1::head::HeadLimits;

/// Most fields of a request's header, as Apache's `LimitRequestFields`: 431 `TooManyHeaders`.
const MAX_FIELDS: usize = 100;

/// Most bytes of an unread request body that are read and dropped so that the connection can be kept
/// open. Reading this much is cheaper than a new connection with TLS.
pub(super) const MAX_DISCARDED_BODY: u64 = 256 << 10;

/// How long, in all, the rest of a request is read and dropped after an early answer, so that the client
/// receives the answer before a reset: nginx' `lingering_time`.
pub(super) const LINGERING_TIME: Duration = Duration::from_secs(30);

/// Limits and timeouts that options set. Sizes are in bytes. `Default` is the blank form that the
/// options fill in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// `limits.header`: the longest request head, request line included.
    pub max_header_bytes: usize,
    /// `timeouts.header`: the time for a whole head, from its first byte (for a connection's first
    /// request, from accept), so that a byte now and then holds nothing open.
    pub header_timeout: Duration,
    /// `timeouts.body`: the time between two reads of a request body.
    pub body_timeout: Duration,
    /// `limits.min_rate`: the bytes a second that a client must send of a body, or take of an answer,
    /// over ten seconds in which the server waits for it; 0 is no minimum.
    pub min_rate: u32,
    /// `timeouts.keepalive`: how long a connection may be idle between requests.
    pub keepalive_timeout: Duration,
    /// `limits.keepalive_requests`: requests on one connection before it is closed; 0 is no limit.
    pub keepalive_requests: u64,
    /// `timeouts.send`: after this time without progress in sending, the client counts as gone.
    pub send_timeout: Duration,
    /// `limits.connections`: most connections at once, of all listeners; none: derived from
    /// RLIMIT_NOFILE (three quarters of it: an idle connection is one descriptor, a busy one may have a
    /// file or two besides), and from the bound of the front's memory.
    ///
    /// At the limit a new one takes the place of the one that has waited longest for its client, those
    /// first that have owed a request for two seconds; while all answer, it waits in the backlog.
    pub max_connections: Option<u32>,
}

impl HttpConfig {
    /// The limits of a request head. The request line may take a quarter of it: one of nginx' four
    /// buffers, and 8 KiB of 32, which RFC 9112 §3 recommends to support.
    pub fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            request_line: self.max_header_bytes / 4,
            bytes: self.max_header_bytes,
            fields: MAX_FIELDS,
        }
    }

    /// Values for tests, benchmarks and examples, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> HttpConfig {
        HttpConfig {
            max_header_bytes: 32 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_rate: 240,
            keepalive_timeout: Duration::from_secs(75),
            keepalive_requests: 10_000,
            send_timeout: Duration::from_secs(60),
            max_connections: None,
        }
    }
}
