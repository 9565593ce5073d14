//! Logging and counting of requests and connections: a line in the access log at the end of each request, and the
//! notices of listeners and connections.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use howdah_cache::status::CacheVerdict;
use howdah_executor::RunTiming;
use howdah_http::turn;
use howdah_http::{ConnectionInfo, ConnectionNotice, Http2Error, Http3Error, Responder};
use howdah_proto::level::LogLevel;

use super::Front;
use super::context::{RequestContext, RequestRecord};
use crate::failure::Failure;
use crate::traffic::CountedRequest;
use howdah_log::log::access::{AccessEntry, basic_user};

/// The message about a connection that is closed because its client floods it or breaks the protocol.
const CONNECTION_ENDED_MESSAGE: &str = "the connection was closed";
const BUG_REPORT_MESSAGE: &str =
    "a request failed because of a bug in the server; please report it";

impl Front {
    /// Counts a request that has been answered, and writes its line into the access log. Returns how long the request
    /// took.
    pub(super) fn log_request(
        &self,
        ctx: RequestContext<'_>,
        record: &RequestRecord,
        out: &Responder,
        since: Instant,
    ) -> Duration {
        let duration = turn::now().duration_since(since);
        let (status, bytes) = (out.status(), out.body_bytes_sent());
        self.counters.count_finished(status, bytes, duration);
        let counted = CountedRequest {
            path: ctx.request.path(),
            status,
            from_cache: record.cache.is_some_and(CacheVerdict::is_hit),
        };
        if counted.from_cache {
            self.counters.count_cache_hit();
        }
        ctx.service().traffic.count(&counted, duration);
        let Some(log) = &ctx.config.resources.access_log else {
            return duration;
        };
        let request = ctx.request;
        let field = |name| request.header(name).unwrap_or_default();
        log.write(&AccessEntry {
            at: SystemTime::now(),
            client: ctx.client.address,
            user: &basic_user(field(b"authorization")),
            method: request.method(),
            target: request.target(),
            protocol: request.version().as_str(),
            tls: ctx.conn.tls.as_deref(),
            host: request.host(),
            site: &ctx.site.config().name,
            status,
            bytes,
            duration,
            referer: field(b"referer"),
            user_agent: field(b"user-agent"),
            run: record.run,
            cache: record.cache,
            cache_cause: record.cache_cause().as_deref(),
            error: record.failure.as_deref().map(Failure::name),
            id: ctx.id,
            trace: ctx.traced.map(|traced| &traced.context),
        });
        duration
    }

    /// Counts and logs a request that was refused before it could be parsed.
    fn log_refused(&self, conn: &ConnectionInfo, status: u16, name: &'static str, line: &[u8]) {
        let line = line.trim_ascii_end();
        self.counters.count_failure(name);
        self.counters.count_started();
        self.counters.count_finished(status, 0, Duration::ZERO);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let client = conn.peer.map(|peer| peer.ip().to_canonical());
        if self.error_log.is_enabled(LogLevel::Info) {
            let text = client.map_or_else(|| "unix:".to_owned(), |client| client.to_string());
            let line = String::from_utf8_lossy(line);
            let details = format!("{line} client={text} id={id}");
            self.error_log
                .connection(LogLevel::Info, name, "", &details);
        }
        if let Some(log) = &self.config.load().resources.access_log {
            log.write(&AccessEntry {
                at: SystemTime::now(),
                client,
                user: b"",
                method: line,
                target: b"",
                protocol: "",
                tls: conn.tls.as_deref(),
                host: b"",
                site: "",
                status,
                bytes: 0,
                duration: Duration::ZERO,
                referer: b"",
                user_agent: b"",
                run: RunTiming::default(),
                cache: None,
                cache_cause: None,
                error: Some(name),
                id,
                trace: None,
            });
        }
    }

    /// Counts and logs what a listener or a connection reports.
    pub(super) fn log_notice(&self, notice: &ConnectionNotice<'_>) {
        let log = &self.error_log;
        let client = |conn: &ConnectionInfo| match conn.peer {
            Some(peer) => format!("client={peer}"),
            None => "client=unix:".to_owned(),
        };
        match notice {
            ConnectionNotice::Refused { conn, why, line } => {
                self.log_refused(conn, why.status(), why.name(), line);
            }
            ConnectionNotice::BadProxyHeader { conn, why } => {
                self.counters.count_failure("BadProxyHeader");
                log.connection(LogLevel::Warning, "BadProxyHeader", why, &client(conn));
            }
            ConnectionNotice::Handshake { agreed } => self.counters.count_handshake(agreed),
            // Caused by scanners and by clients that disconnect, so it is counted but not logged.
            ConnectionNotice::HandshakeFailed { why, .. } => {
                self.counters.count_failure(why.name())
            }
            ConnectionNotice::Http2Ended { conn, why, detail } => {
                self.counters.count_failure(why.name());
                let level = match why {
                    // Caused by scanners and by faulty clients.
                    Http2Error::Http2Protocol => LogLevel::Debug,
                    _ => LogLevel::Warning,
                };
                let details = format!("{} {detail}", client(conn));
                log.connection(level, why.name(), CONNECTION_ENDED_MESSAGE, &details);
            }
            ConnectionNotice::Http3Ended { conn, why, detail } => {
                self.counters.count_failure(why.name());
                let level = match why {
                    Http3Error::Http3Protocol => LogLevel::Debug,
                    _ => LogLevel::Warning,
                };
                let details = format!("{} {detail}", client(conn));
                log.connection(level, why.name(), CONNECTION_ENDED_MESSAGE, &details);
            }
            ConnectionNotice::NoMemory { conn } => self.log_refused(conn, 503, "MemoryLimit", b""),
            ConnectionNotice::HandlerPanicked { conn } => {
                self.counters.count_failure("HandlerPanicked");
                log.connection(
                    LogLevel::Critical,
                    "HandlerPanicked",
                    BUG_REPORT_MESSAGE,
                    &client(conn),
                );
            }
            ConnectionNotice::NoAnswer { conn } => {
                self.counters.count_failure("NoAnswer");
                log.connection(
                    LogLevel::Critical,
                    "NoAnswer",
                    BUG_REPORT_MESSAGE,
                    &client(conn),
                );
            }
            ConnectionNotice::AcceptFailed { listener, error } => {
                self.counters.count_failure("AcceptFailed");
                let message = format!("{listener}: {error}; raise RLIMIT_NOFILE if this lasts");
                log.problem(LogLevel::Error, "AcceptFailed", &message);
            }
            ConnectionNotice::TooManyConnections { limit } => {
                self.counters.count_failure("TooManyConnections");
                let message = format!(
                    "{limit} connections are open; each new connection replaces the one that has been idle for the longest time"
                );
                log.problem(LogLevel::Warning, "TooManyConnections", &message);
            }
        }
    }
}
