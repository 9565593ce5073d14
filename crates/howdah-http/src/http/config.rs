//! Limits and timeouts of HTTP connections. The options `limits` and `timeouts` set them; the table of options in the
//! crate `howdah` has their defaults. Limits that need no option are constants here.

use std::time::Duration;

use howdah_http1::head::HeadLimits;

/// The maximum number of header fields of a request, as Apache's `LimitRequestFields`: 431 `TooManyHeaders`.
const MAX_FIELDS: usize = 100;

/// The maximum number of unread request body bytes that are read and dropped to keep the connection open. Reading this
/// much is cheaper than a new connection with TLS.
pub(super) const MAX_DISCARDED_BODY: u64 = 256 << 10;

/// How long, in total, the rest of a request is read and dropped after an early response, so the client receives the
/// response before a reset: nginx's `lingering_time`.
pub(super) const LINGERING_TIME: Duration = Duration::from_secs(30);

/// Limits and timeouts that options set. Sizes are in bytes. `Default` has zero values that the options replace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpConfig {
    /// `limits.header`: the maximum length of a request head, including the request line.
    pub max_header_bytes: usize,
    /// `timeouts.header`: the time for a whole head, from its first byte (for a connection's first request, from
    /// accept). A client that sends a byte now and then therefore cannot hold a connection open.
    pub header_timeout: Duration,
    /// `timeouts.body`: the time between two reads of a request body.
    pub body_timeout: Duration,
    /// `limits.min_rate`: the minimum number of bytes per second that a client must send of a body or take of a
    /// response, measured over ten seconds in which the server waits for it; 0 means no minimum.
    pub min_rate: u32,
    /// `timeouts.keepalive`: how long a connection may be idle between requests.
    pub keepalive_timeout: Duration,
    /// `limits.keepalive_requests`: the number of requests after which a connection is closed; 0 means no limit.
    pub keepalive_requests: u64,
    /// `timeouts.send`: the time without progress in sending after which the client counts as gone.
    pub send_timeout: Duration,
    /// `limits.connections`: the maximum number of simultaneous connections of all listeners. `None` derives it from
    /// RLIMIT_NOFILE (three quarters of it: an idle connection uses one descriptor, a busy one may also have a file or
    /// two open) and from the memory limit of the front.
    ///
    /// At the limit, a new connection replaces the one that has waited longest for its client; connections that have
    /// owed a request for two seconds are replaced first. While all connections handle requests, the new one waits in
    /// the backlog.
    pub max_connections: Option<u32>,
}

impl HttpConfig {
    /// Returns the limits of a request head. The request line may use a quarter of it: one of nginx's four buffers, and
    /// with the default 8 KiB of 32, more than the 8000 octets that RFC 9112 §3 recommends to support.
    pub fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            request_line: self.max_header_bytes / 4,
            bytes: self.max_header_bytes,
            fields: MAX_FIELDS,
        }
    }

    /// Returns values for tests, benchmarks and examples, which have no options.
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
