//! Limits and timeouts of HTTP connections. Most are set by options in the sections `limits` and `timeouts`, whose
//! defaults are in the table of options of the crate `howdah-config`. Limits that need no option are constants here.

use std::time::Duration;

use howdah_http1::head::HeadLimits;

/// The maximum number of header fields of a request, the same as the default of Apache's `LimitRequestFields`. The
/// response to a request with more is 431 `TooManyHeaders`.
const MAX_FIELDS: usize = 100;

/// The maximum number of unread request body bytes that are read and dropped to keep the connection open. Reading this
/// much is cheaper than a new connection with TLS.
pub(super) const MAX_DISCARDED_BODY: u64 = 256 << 10;

/// The total time for which the rest of a request is read and dropped after an early response. If the connection were
/// closed at once, a reset could reach the client before it has read the response. nginx calls this `lingering_time`.
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
    /// `limits.min_rate`: the minimum number of bytes per second at which a client must send a body or receive a
    /// response; 0 means no minimum. The rate is measured over ten seconds that the server has spent waiting for the
    /// client.
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
    /// At the limit, a new connection replaces the one that has waited longest for its client. Connections that have
    /// waited two seconds for a client's first request, for the rest of a request, or for the client to close are
    /// replaced first, before those that are idle between requests. While all connections handle requests, the new one
    /// waits in the backlog.
    pub max_connections: Option<u32>,
}

impl HttpConfig {
    /// Returns the limits of a request head. The request line may use a quarter of the head, as in nginx, where it has
    /// to fit in one of four buffers. With the default of 32 KiB, that is 8 KiB, which is more than the 8000 octets
    /// that RFC 9112 §3 recommends as a minimum.
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
