//! The server's status at one moment, as data: the status page, `howdah status` and the metrics are made from it.

use howdah_executor::status::PoolStatus;
use howdah_http::message::RequestHead;
use howdah_http::network::AddressBlock;
use howdah_http::tls::certificates::{CertificateStatus, FailingOrder};
use howdah_http::turn::LongestTurn;
use serde::{Deserialize, Serialize};

use super::history::HistoryStatus;
use super::jobs::JobStatus;
use super::limits::LimitsStatus;
use crate::cache::CacheStatus;
use crate::proxy::server::ServerRow;
use crate::traffic::SiteStatus;
use howdah_log::traces::exporter::SpanCounts;
use howdah_site::client_address::Client;

/// The server at one moment. Values that a server of another version does not report are zero or empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// The version of the server's program.
    pub version: String,
    /// The process id of the front.
    pub pid: u32,
    /// Seconds since the server started.
    pub uptime: u64,
    /// How often the configuration has been replaced since the start.
    pub reloads: u64,
    /// Clients' connections and their limit.
    pub connections: Connections,
    /// The memory that the front uses, in bytes.
    pub memory: UsageAndLimit,
    /// The size of the request bodies and responses that the front keeps in files, for scripts and for slow clients, in
    /// bytes.
    pub spilled: UsageAndLimit,
    /// Requests that have begun since the start.
    pub requests: u64,
    /// Requests that are in progress now.
    pub requests_active: u64,
    /// Bytes of response bodies sent.
    pub bytes_sent: u64,
    /// How long single connections kept front threads busy.
    pub turns: TurnsStatus,
    /// The total time of finished requests, in seconds.
    pub request_seconds: f64,
    /// Finished requests by duration: upper bound in seconds (`None` for the last), count.
    pub durations: Vec<(Option<f64>, u64)>,
    /// Responses by status; 499 means that the client disconnected first.
    pub statuses: Vec<(u16, u64)>,
    /// How often each failure has occurred, by name.
    pub failures: Vec<(String, u64)>,
    /// TLS handshakes: protocol, whether a session was resumed, count.
    pub handshakes: Vec<(String, bool, u64)>,
    /// The certificates of TLS listeners.
    pub certificates: Vec<CertificateStatus>,
    /// Names whose certificates could not be ordered or renewed recently.
    pub failing_orders: Vec<FailingOrder>,
    /// Access log lines that were lost because the log could not take them.
    pub access_log_dropped: u64,
    /// Error log lines that were lost because the log could not take them.
    pub error_log_dropped: u64,
    /// The counts of spans, if requests are traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spans: Option<SpanCounts>,
    /// The status of each pool.
    pub pools: Vec<PoolStatus>,
    /// The counts of the status listener, which only its own responses contain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_listener: Option<StatusListenerCounts>,
    /// The servers that `proxy` rules pass requests to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proxied: Vec<ServerRow>,
    /// The limits of clients.
    pub limits: LimitsStatus,
    /// The last hour, a sample every ten seconds.
    pub history: HistoryStatus,
    /// The requests of each site in the last hour.
    pub sites: Vec<SiteStatus>,
    /// The background jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobStatus>,
    /// The page cache, if any site has it on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheStatus>,
}

impl ServerStatus {
    /// Returns each log's name, and the lines that it has lost since the start.
    pub(super) fn log_lines_lost(&self) -> [(&'static str, u64); 2] {
        [
            ("access", self.access_log_dropped),
            ("error", self.error_log_dropped),
        ]
    }
}

/// An amount and its limit, both in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageAndLimit {
    /// How much is used now.
    pub used: u64,
    /// How much may be used.
    pub limit: u64,
}

/// Turns of the front's event loops that took more than a millisecond of CPU time, while the other connections of the
/// thread waited.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnsStatus {
    /// The number of long turns since the start.
    pub long: u64,
    /// The duration of the longest turn in seconds; 0 if none was long.
    pub longest: f64,
    /// What the longest turn was doing.
    pub doing: String,
}

impl TurnsStatus {
    /// Converts the result of [`howdah_http::turn::turn_statistics`] to a status.
    pub fn from_record((longest, long): &(LongestTurn, u64)) -> TurnsStatus {
        TurnsStatus {
            long: *long,
            longest: longest.duration.as_secs_f64(),
            doing: longest.doing.to_owned(),
        }
    }
}

/// The connections at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    /// Connections that are open now.
    pub open: u64,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// `max_connections`: the maximum number of open connections.
    pub limit: u64,
    /// Requests that were refused before their head was parsed.
    pub refused: u64,
}

/// The status listener at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusListenerCounts {
    /// Connections that are open now.
    pub connections: u64,
    /// Requests since the start.
    pub requests: u64,
}

/// `[status] path`: the path of the status page, and the clients that may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPage {
    /// The path of the page on every site.
    pub path: String,
    /// The clients that may see the page, by address (behind a trusted proxy, the client's address).
    pub allow: Vec<AddressBlock>,
}

impl StatusPage {
    /// Returns a status page for tests, which read no options.
    #[doc(hidden)]
    pub fn for_tests() -> StatusPage {
        let this_machine = ["127.0.0.0/8", "::1"].map(|n| n.parse().expect("a network"));
        StatusPage {
            path: "/howdah-status".to_owned(),
            allow: this_machine.to_vec(),
        }
    }
}

impl StatusPage {
    /// Returns whether this request is for the page, by a client that may see it. For all other clients, requests of
    /// the path are handled as if there were no status page.
    pub fn answers(&self, request: &RequestHead, client: &Client<'_>) -> bool {
        request.path() == self.path.as_bytes() && self.allows(request, client)
    }

    /// Returns whether this client may see what the page shows. It may not if the address is that of a proxy that is
    /// not configured as trusted.
    pub fn allows(&self, request: &RequestHead, client: &Client<'_>) -> bool {
        let named = |address| self.allow.iter().any(|n| n.contains(address));
        client.address.is_some_and(named) && !client.came_through_untrusted_proxy(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use howdah_site::client_address::TrustedProxies;

    #[test]
    fn status_page_is_for_this_machine_unless_others_are_configured() {
        let mut page = StatusPage::for_tests();
        let check = |page: &StatusPage, path: &str, client: &str| {
            let request = request("GET", path, &[]);
            let peer = client
                .parse()
                .ok()
                .map(|ip| std::net::SocketAddr::new(ip, 1));
            let client = TrustedProxies::default().client(peer, None, &request);
            page.answers(&request, &client)
        };
        assert!(check(&page, "/howdah-status", "127.0.0.1"));
        assert!(check(&page, "/howdah-status", "::ffff:127.0.0.1"));
        assert!(!check(&page, "/howdah-status/", "127.0.0.1"));
        assert!(!check(&page, "/howdah-status", "192.0.2.1"));
        assert!(!check(&page, "/howdah-status", ""));
        page.allow = vec!["192.0.2.0/24".parse().unwrap()];
        assert!(check(&page, "/howdah-status", "192.0.2.1"));
        assert!(!check(&page, "/howdah-status", "127.0.0.1"));
    }

    #[test]
    fn status_page_is_denied_behind_an_untrusted_proxy() {
        let page = StatusPage::for_tests();
        let local = "127.0.0.1:1".parse().ok();
        let named = TrustedProxies {
            networks: vec!["127.0.0.1".parse().unwrap()],
            ..TrustedProxies::default()
        };
        let check = |proxies: &TrustedProxies, field: (&str, &str)| {
            let request = request("GET", "/howdah-status", &[field]);
            page.answers(&request, &proxies.client(local, None, &request))
        };
        for name in [
            "X-Forwarded-For",
            "x-forwarded-proto",
            "X-Forwarded-Host",
            "X-Real-IP",
            "Via",
            "Forwarded",
            "CF-Connecting-IP",
            "True-Client-IP",
        ] {
            assert!(
                !check(&TrustedProxies::default(), (name, "127.0.0.1")),
                "{name}"
            );
        }
        assert!(check(&TrustedProxies::default(), ("User-Agent", "curl")));
        let said = |address| ("X-Forwarded-For", address);
        assert!(check(&named, said("127.0.0.1")));
        assert!(!check(&named, said("192.0.2.1")));
    }
}
