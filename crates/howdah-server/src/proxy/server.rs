//! One server: how busy it is, and whether it is up. A server that could not be reached gets no request for ten
//! seconds, unless all others are down as well (nginx's `max_fails=1 fail_timeout=10s`). With `proxy_health` its health
//! is checked.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_proto::backend_address::BackendAddress;
use howdah_proto::level::LogLevel;
use http::HeaderValue;
use serde::{Deserialize, Serialize};

use howdah_log::log::error::ErrorLog;
use howdah_site::proxy_config::address::ServerAddress;

/// How long a server that could not be reached gets no requests.
const RETRY_UNREACHABLE_AFTER: Duration = Duration::from_secs(10);

/// A server that requests are forwarded to.
#[derive(Debug)]
pub struct UpstreamServer {
    /// Distinguishes its connections from those of all other servers.
    pub(super) id: u64,
    /// The address of the server.
    pub at: ServerAddress,
    /// `proxy_health`: the path that health checks request.
    pub(super) health_path: Option<Box<str>>,
    /// Whether its health checks have been started.
    pub(super) is_checked: AtomicBool,
    busy: AtomicU32,
    pub(super) kept: AtomicU32,
    pub(super) connects: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
    health: Mutex<ServerHealth>,
}

#[derive(Debug, Default)]
struct ServerHealth {
    /// The time until which the server gets no requests, because it could not be reached.
    down_until: Option<Instant>,
    /// Whether the last health check failed.
    failed_check: bool,
    /// When the log reported that the server is down, and why it is.
    reported_down: Option<(Instant, String)>,
}

/// The status of a proxied server at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerRow {
    /// The address as it is configured.
    pub address: String,
    /// `proxy_health`: the path that health checks request; empty if there are none.
    pub health: String,
    /// `Up` or `Down`.
    pub state: String,
    /// For how many seconds it has been down; 0 while it is up.
    pub since: f64,
    /// Why it is down; empty while it is up.
    pub why: String,
    /// How many requests it is handling, including WebSocket connections.
    pub busy: u32,
    /// How many connections are kept open without a request.
    pub kept: u32,
    /// How many requests it has answered since the start.
    pub requests: u64,
    /// How many connections to it have been opened since the start.
    pub connects: u64,
    /// How many attempts failed: the server could not be reached, closed the connection, was silent, or sent an invalid
    /// response.
    pub failures: u64,
}

impl UpstreamServer {
    pub(super) fn new(at: ServerAddress, asked_for: Option<Box<str>>) -> UpstreamServer {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        UpstreamServer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            at,
            health_path: asked_for,
            is_checked: AtomicBool::new(false),
            busy: AtomicU32::new(0),
            kept: AtomicU32::new(0),
            connects: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            health: Mutex::default(),
        }
    }

    fn health(&self) -> MutexGuard<'_, ServerHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many requests the server is handling.
    pub fn busy(&self) -> u32 {
        self.busy.load(Ordering::Relaxed)
    }

    /// Returns the value of `Host` for requests that have none, such as health checks: the name in `name=`, or the
    /// server's own address.
    pub(super) fn host(&self) -> HeaderValue {
        let host = match (&self.at.tls_name, &self.at.address) {
            (Some(name), _) => name.to_string(),
            (None, BackendAddress::Unix(_)) => "localhost".to_owned(),
            (None, address) => address.to_string(),
        };
        HeaderValue::try_from(host).unwrap_or(HeaderValue::from_static("localhost"))
    }

    /// Returns whether the server gets requests.
    pub fn is_up(&self) -> bool {
        self.health().is_up()
    }

    /// Returns the server's current status.
    pub(super) fn row(&self) -> ServerRow {
        let health = self.health();
        let (state, since, why) = match (&health.reported_down, health.is_up()) {
            (Some((since, why)), false) => ("Down", since.elapsed().as_secs_f64(), why.clone()),
            _ => ("Up", 0.0, String::new()),
        };
        ServerRow {
            address: self.at.to_string(),
            health: self.health_path.as_deref().unwrap_or_default().to_owned(),
            state: state.to_owned(),
            since,
            why,
            busy: self.busy(),
            kept: self.kept.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            connects: self.connects.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// Notes that the server could not be reached.
    pub(super) fn note_unreachable(&self, why: &str) -> Option<ServerEvent> {
        self.note_broken();
        let mut health = self.health();
        health.down_until = Some(Instant::now() + RETRY_UNREACHABLE_AFTER);
        health.report_down(&self.at, why)
    }

    /// Notes that a request to it failed, which does not mean that it is down.
    pub(super) fn note_broken(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that it has answered a request.
    pub(super) fn note_response(&self) -> Option<ServerEvent> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut health = self.health();
        health.down_until = None;
        match health.failed_check {
            true => None,
            false => health.report_up(&self.at),
        }
    }

    /// Notes the outcome of a health check.
    pub(super) fn note_health_check(&self, outcome: Result<(), String>) -> Option<ServerEvent> {
        let mut health = self.health();
        health.failed_check = outcome.is_err();
        match outcome {
            Ok(()) => {
                health.down_until = None;
                health.report_up(&self.at)
            }
            Err(why) => health.report_down(&self.at, &why),
        }
    }
}

impl ServerHealth {
    fn is_up(&self) -> bool {
        let rests = |until: Instant| until > Instant::now();
        !self.failed_check && !self.down_until.is_some_and(rests)
    }

    fn report_down(&mut self, at: &ServerAddress, why: &str) -> Option<ServerEvent> {
        if let Some((_, known)) = &mut self.reported_down {
            why.clone_into(known);
            return None;
        }
        self.reported_down = Some((Instant::now(), why.to_owned()));
        Some(ServerEvent {
            level: LogLevel::Error,
            name: "BackendDown",
            message: format!("{at}: {why}"),
        })
    }

    fn report_up(&mut self, at: &ServerAddress) -> Option<ServerEvent> {
        self.reported_down.take().map(|_| ServerEvent {
            level: LogLevel::Notice,
            name: "BackendUp",
            message: format!("{at}: the backend responds again"),
        })
    }
}

/// A message for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerEvent {
    level: LogLevel,
    name: &'static str,
    message: String,
}

/// Logs the message, if there is one.
pub(super) fn log_event(log: &ErrorLog, news: Option<ServerEvent>) {
    if let Some(news) = news {
        log.problem(news.level, news.name, &news.message);
    }
}

/// Counts a request as handled by a server until it is dropped.
#[derive(Debug)]
pub(super) struct BusyGuard(pub(super) Arc<UpstreamServer>);

impl BusyGuard {
    pub(super) fn acquire(server: &Arc<UpstreamServer>) -> BusyGuard {
        server.busy.fetch_add(1, Ordering::Relaxed);
        BusyGuard(server.clone())
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_site::proxy_config::address;

    #[test]
    fn requests_without_a_host_name_the_server() {
        for (text, host) in [
            ("https://127.0.0.1:8443 name=shop.example", "shop.example"),
            ("http://[::1]:3000", "[::1]:3000"),
            ("unix:/run/app.sock", "localhost"),
        ] {
            let at = address::parse(text).unwrap().remove(0).at;
            assert_eq!(UpstreamServer::new(at, None).host(), host);
        }
    }

    #[test]
    fn server_health_changes_are_reported_once() {
        let at = address::parse("http://a:1").unwrap().remove(0).at;
        let server = UpstreamServer::new(at, Some("/up".into()));
        let name = |news: Option<ServerEvent>| news.map(|news| (news.name, news.message));
        let down = Some(("BackendDown", "http://a:1: refused".to_owned()));
        assert_eq!(name(server.note_unreachable("refused")), down);
        assert_eq!(server.note_unreachable("refused"), None);
        assert!(name(server.note_response()).is_some_and(|(name, _)| name == "BackendUp"));
        assert_eq!(server.note_response(), None);
        assert!(
            server
                .note_health_check(Err("GET /up returned status 500".to_owned()))
                .is_some()
        );
        assert!(!server.is_up());
        assert_eq!(server.note_response(), None);
        assert!(!server.is_up(), "it says so itself");
        let row = server.row();
        assert_eq!(
            (&*row.state, &*row.why),
            ("Down", "GET /up returned status 500")
        );
        assert_eq!((row.requests, row.failures), (3, 2));
        assert!(server.note_health_check(Ok(())).is_some());
        assert!(server.is_up());
    }
}
