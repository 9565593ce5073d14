//! Limits and time-outs of HTTP connections, each with its default and the reason for it. Read from
//! no file here: the configuration reader fills this in.

use std::time::Duration;

/// Limits and time-outs. Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Longest request line → `UriTooLong`. 8 KiB: nginx' large_client_header_buffers and Apache's
    /// LimitRequestLine; RFC 9112 §3 recommends to support 8000.
    pub max_request_line: usize,
    /// Longest head, in bytes, request line included → `HeaderTooLarge`. 32 KiB: nginx' 4 x 8 KiB.
    pub max_header_bytes: usize,
    /// How many header fields a request may have → `TooManyHeaders`. 100, as Apache; browsers send
    /// about 20.
    pub max_headers: usize,
    /// The time for a whole head, from its first byte (for a connection's first request, from
    /// accept), so that a byte now and then holds nothing open → `HeaderTimeout`. 10 s: a slow mobile
    /// link needs 2; nginx' 60 s serves slowloris.
    pub header_timeout: Duration,
    /// The time between two reads of a request body → `BodyTimeout`. 30 s: nginx has 60, Apache 20.
    pub body_timeout: Duration,
    /// Bytes a second that a body must come with while it is waited for, over ten seconds of waiting
    /// → `BodyTooSlow`. 240, as Kestrel; 0 is no minimum.
    pub min_body_rate: u32,
    /// How long a connection may stay idle between requests. 75 s, as nginx: above the 60 s of
    /// load balancers in front, so that they close first and never send into a closing connection.
    pub keepalive_timeout: Duration,
    /// Requests on one connection before it is closed; 0 is no limit. 10 000: frees a
    /// connection's memory now and then (nginx: 1000, which costs heavy clients reconnects).
    pub keepalive_requests: u64,
    /// After this time without progress in sending, the client is taken for gone. 60 s, as nginx'
    /// send_timeout.
    pub send_timeout: Duration,
    /// Bytes a second that a client must take of an answer while it is waited for, over ten seconds
    /// of waiting → the client is too slow, `ClientTooSlow`. 240, as IIS and Kestrel; 0 is no minimum.
    pub min_send_rate: u32,
    /// Most connections at once, of all listeners; none: derived from RLIMIT_NOFILE (three quarters
    /// of it: an idle connection is one descriptor, a busy one may have a file or two besides), and
    /// from the bound of the front's memory.
    /// At the limit a new one takes the place of the one that has waited longest for its client, those
    /// first that have owed a request for two seconds; while all answer, it waits in the backlog.
    pub max_connections: Option<u32>,
    /// Bytes of an unread request body that are read and dropped so that the connection can live
    /// on; with more to come it is closed. 256 KiB: cheaper than a new connection with TLS.
    pub max_discarded_body: u64,
    /// After an early answer: how long altogether the rest of the request is read and dropped so
    /// that the client receives the answer before a reset. 30 s, as nginx' lingering_time.
    pub lingering_time: Duration,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            max_request_line: 8 << 10,
            max_header_bytes: 32 << 10,
            max_headers: 100,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            min_body_rate: 240,
            keepalive_timeout: Duration::from_secs(75),
            keepalive_requests: 10_000,
            send_timeout: Duration::from_secs(60),
            min_send_rate: 240,
            max_connections: None,
            max_discarded_body: 256 << 10,
            lingering_time: Duration::from_secs(30),
        }
    }
}
