//! What happens to a request, from top to bottom: who sent it, which site, which route, file or
//! script, what went wrong, what is written down. The parts decide; this file only orders them.
//!
//! ```text
//! head ─► client address ─► status page? ─► site by host ─► route ─┬─ file
//!                                                                  ├─ script
//!                                                                  ├─ redirect, return, options
//!                                                                  └─ refused ─┐
//!                                             any failure ─► one page ◄────────┘ ─► log, counters
//! ```
//! The configuration is taken once, at the top: a reload shows in the next request, on the same
//! connection.

mod around;
mod authorize;
mod cached;
mod file;
mod script;
mod trial;

pub(crate) use script::build_frame;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use howdah_cache::Pass;
use howdah_cache::purge::Order;
use howdah_cache::status::Verdict;
use howdah_executor::RunTiming;
use howdah_proto::level::Level;

use crate::admin::{Bounded, Connections, Counters, ServerStatus, StatusForm, Turns};
use crate::cache::candidate::Candidate;
use crate::cache::send::Later;
use crate::cache::trial::Trial;
use crate::cache::watch::Watch;
use crate::cache::{SiteCache, lookup, protocol, steer};
use crate::client_address::Client;
use crate::http::message::{RequestHead, ResponseHead};
use crate::http::{BodyKind, ConnInfo, Handler, Length, Notice, RequestBody, Responder};
use crate::log::access::{AccessEntry, basic_user};
use crate::log::error::{About, ErrorLog};
use crate::memory::{self, Pressure};
use crate::respond::{self, Failure};
use crate::server_config::ServerConfig;
use crate::site::{Action, Route, Site};
use crate::turn;
use script::LocalRedirect;

/// Local redirects of one request: Apache's `LimitInternalRecursion`.
const MOST_LOCAL_REDIRECTS: u32 = 10;

/// How many connections there are; the listeners know.
pub type ConnectionCounts = Box<dyn Fn() -> Connections + Send + Sync>;

/// Answers requests. One value serves all connections of all threads.
pub struct Front {
    config: ArcSwap<ServerConfig>,
    counters: Counters,
    error_log: Arc<ErrorLog>,
    connections: OnceLock<ConnectionCounts>,
    started: Instant,
    reloads: AtomicU64,
    next_id: Alone,
}

/// Every thread writes it with every request: on its cache line nothing else may lie that all read.
#[repr(align(128))]
struct Alone(AtomicU64);

/// What of a request is written down at its end.
#[derive(Default)]
struct Record {
    run: RunTiming,
    /// Boxed: an idle connection keeps the room for it.
    failure: Option<Box<Failure>>,
    /// What the page cache did, where a site has it on.
    cache: Option<Verdict>,
    /// Receives what PHP reports about the run, where a site has the page cache on.
    watch: Option<Arc<Watch>>,
    /// The page that the answer may show to be fit for the cache.
    candidate: Option<Arc<Candidate>>,
    /// What the answer is compared with, where the cache is on trial.
    trial: Option<Arc<Trial>>,
    /// The stored page that is the answer, whose coded form is to be made.
    later: Option<Box<Later>>,
}

/// One request, while it is answered.
#[derive(Clone, Copy)]
struct Exchange<'a> {
    request: &'a RequestHead,
    conn: &'a ConnInfo,
    client: &'a Client<'a>,
    config: &'a Arc<ServerConfig>,
    id: u64,
}

impl Front {
    /// A front that answers by `config` and writes problems into `error_log`.
    pub fn new(config: Arc<ServerConfig>, error_log: Arc<ErrorLog>) -> Front {
        Front {
            config: ArcSwap::new(config),
            counters: Counters::default(),
            error_log,
            connections: OnceLock::new(),
            started: Instant::now(),
            reloads: AtomicU64::new(0),
            next_id: Alone(AtomicU64::new(1)),
        }
    }

    /// The configuration that requests are answered by at this moment.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Answers by another configuration from the next request on. Gives the former one back;
    /// requests in progress still use it, and its pools.
    pub fn swap(&self, config: Arc<ServerConfig>) -> Arc<ServerConfig> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.config.swap(config)
    }

    /// Where the number of connections comes from. Given once, when the listeners are there.
    pub fn count_connections_by(&self, counts: ConnectionCounts) {
        // A second time is ignored: the listeners of a front do not change hands.
        let _ = self.connections.set(counts);
    }

    /// Everything there is to know, for the status page, `howdah status` and metrics.
    pub fn status(&self) -> ServerStatus {
        let config = self.config();
        let sums = self.counters.sums();
        let bounds = crate::admin::counters::BUCKETS
            .into_iter()
            .map(Some)
            .chain([None]);
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime: self.started.elapsed().as_secs(),
            reloads: self.reloads.load(Ordering::Relaxed),
            connections: self
                .connections
                .get()
                .map(|counts| counts())
                .unwrap_or_default(),
            memory: Bounded {
                used: memory::used(),
                limit: memory::limit().unwrap_or(u64::MAX),
            },
            spilled: Bounded {
                used: config.settings.spill_room.used(),
                limit: config.settings.spill_room.limit(),
            },
            requests: sums.started,
            requests_active: sums.started.saturating_sub(sums.finished),
            bytes_sent: sums.bytes,
            turns: Turns::of(&turn::record()),
            request_seconds: sums.seconds,
            durations: bounds.zip(sums.buckets).collect(),
            statuses: sums.statuses,
            failures: sums.failures,
            access_log_dropped: config
                .settings
                .access_log
                .as_ref()
                .map_or(0, |l| l.sink().dropped()),
            error_log_dropped: self.error_log.sink().dropped(),
            pools: config.pools.iter().map(|pool| pool.status()).collect(),
            cache: config
                .cache
                .as_ref()
                .map(|cache| cache.status(&config.sites)),
        }
    }

    /// Goes where programs of this server point to, one after the other (RFC 3875 §6.2.2): what is
    /// sent is what a client that asked for the last target would get.
    async fn go_on(
        &self,
        exchange: Exchange<'_>,
        mut to: LocalRedirect,
        mut body: RequestBody,
        out: &mut Responder,
        record: &mut Record,
    ) -> Result<(), Failure> {
        for _ in 0..MOST_LOCAL_REDIRECTS {
            let request = &exchange.request.without_body_to(&to.0);
            let exchange = Exchange {
                request,
                ..exchange
            };
            match self.answer(exchange, &mut body, out, record).await? {
                None => return Ok(()),
                Some(next) => to = next,
            }
        }
        Err(Failure::LocalRedirectLoop(to.0))
    }

    async fn answer(
        &self,
        exchange: Exchange<'_>,
        body: &mut RequestBody,
        out: &mut Responder,
        record: &mut Record,
    ) -> Result<Option<LocalRedirect>, Failure> {
        let Exchange {
            request,
            client,
            config,
            ..
        } = exchange;
        if let Some(page) = &config.settings.status
            && page.answers(request, client)
        {
            self.status_page(request, out);
            return Ok(None);
        }
        if memory::pressure() == Pressure::Full {
            return Err(Failure::MemoryLimit);
        }
        turn::doing("looking a page up");
        let site = find_site(config, request, client);
        if let (BodyKind::Length(length), limit) =
            (body.expected(), config.service(site).body_limit)
            && length > limit
        {
            return Err(Failure::Body(crate::http::BodyError::TooLarge));
        }
        let cache = config.cache.as_ref();
        let cache = cache.and_then(|cache| Some((cache, cache.site(site)?)));
        let mut asked = None;
        let mut passed = (None, None);
        if let Some((_, part)) = cache
            && let Some(asked) = protocol::of(part, site, request, client)
        {
            let orders = asked.map_err(Failure::Purge)?;
            self.purge(exchange, part, &orders, out);
            return Ok(None);
        }
        if let Some((cache, part)) = cache {
            let has_body =
                body.expected() != BodyKind::None || request.header(b"content-length").is_some();
            let looked = match part.config.dry_run {
                true => Err(trial::try_out(
                    exchange, cache, part, site, has_body, record,
                )),
                false => cached::look(self, exchange, cache, part, site, has_body, out, record)
                    .map_err(|why| (why, None)),
            };
            match looked {
                Ok(None) => return Ok(None),
                Ok(Some(question)) => asked = Some(question),
                Err((why, asked)) => passed = (Some(why), asked),
            }
        }
        turn::doing("routing");
        let mut route = site.route(request);
        for text in site.htaccess_news() {
            self.error_log
                .problem(Level::Warning, "HtaccessNotExact", &text);
        }
        if let Some(refusal) = route.passed_over {
            let mut message = "not sent; the front controller answers".to_owned();
            if let Some(because) = route.because.take() {
                message += &format!(" ({because})");
            }
            self.note(Level::Info, refusal.name(), &message, exchange);
        }
        if route.needs_permission() {
            // Boxed: a connection's memory is that of its largest state.
            let asked = authorize::ask(self, exchange, site, &mut route, out, record);
            if let authorize::Word::Answered = Box::pin(asked).await? {
                return Ok(None);
            }
        }
        let allow_all = Action::Options { allow: "" };
        match std::mem::replace(&mut route.action, allow_all) {
            Action::Script(target) => {
                turn::doing("a script");
                // Nothing is kept of what is not for everybody; what it writes counts.
                let shared = !route.needs_permission();
                let Some(cache) = cache.filter(|_| !target.program) else {
                    let edit = |head: &mut ResponseHead| {
                        respond::number(head, exchange.id);
                        site.edit_headers(&route, head);
                    };
                    let run =
                        script::answer(self, exchange, site, &target, &edit, body, out, record);
                    return run.await;
                };
                if let Some(asked) = asked.filter(|_| shared) {
                    // Boxed: a connection's memory is that of its largest state.
                    match Box::pin(asked.answer(self, &route, &target, out, record)).await? {
                        cached::Answered::Yes => return Ok(None),
                        cached::Answered::Elsewhere(to) => return Ok(Some(to)),
                        cached::Answered::No(why, asked) => passed = (Some(why), asked),
                    }
                }
                let why = match (shared, passed) {
                    (true, (why, asked)) => (why.unwrap_or(Pass::OutdatedRender), asked),
                    (false, _) => (Pass::Authorization, None),
                };
                // Boxed, as above.
                let around = Box::new(around::Around::new(
                    cache, exchange, site, &route, why, record,
                ));
                let edit = |head: &mut ResponseHead| {
                    respond::number(head, exchange.id);
                    around.head(head);
                };
                let run = script::answer(self, exchange, site, &target, &edit, body, out, record);
                let answered = Box::pin(run).await;
                around.through(answered.as_ref().err());
                record.cache = Some(around.verdict());
                if let Some(text) = cache.1.fitness.news() {
                    let text = format!("site {}: {text}", site.config().name);
                    self.error_log
                        .problem(Level::Notice, "NothingStorable", &text);
                }
                if let Some(trial) = record.trial.take() {
                    trial.judge(cache.0, site.number(), &self.error_log);
                }
                answered
            }
            Action::Static(plan) => {
                turn::doing("a file");
                let answer = plan.answer(request).map_err(|refusal| Failure::Refused {
                    status: refusal.status(),
                    refusal,
                    allow: None,
                })?;
                file::send(exchange, site, &route, answer, out).await?;
                Ok(None)
            }
            Action::Redirect { status, location } => {
                let mut head = ResponseHead::new(status);
                head.header(b"Location", &location);
                short(site, &route, head, Bytes::new(), out);
                Ok(None)
            }
            Action::Return {
                status,
                content_type,
                body,
            } => {
                let mut head = ResponseHead::new(status);
                if !body.is_empty() {
                    head.header(b"Content-Type", content_type.as_bytes());
                }
                short(site, &route, head, Bytes::from(body), out);
                Ok(None)
            }
            Action::Options { allow } => {
                let mut head = ResponseHead::new(204);
                head.header(b"Allow", allow.as_bytes());
                short(site, &route, head, Bytes::new(), out);
                Ok(None)
            }
            Action::Refused {
                status,
                refusal,
                allow,
            } => Err(match route.because.take() {
                Some(because) => Failure::Closed {
                    refusal,
                    status,
                    because,
                },
                None => Failure::Refused {
                    refusal,
                    status,
                    allow,
                },
            }),
        }
    }

    /// Carries out a purge request and says so.
    fn purge(
        &self,
        exchange: Exchange<'_>,
        part: &SiteCache,
        orders: &[Order],
        out: &mut Responder,
    ) {
        let text = steer::carry_out(orders.iter().map(|order| (part, order)), &[]);
        self.note(Level::Info, "Purged", &text, exchange);
        let mut head = ResponseHead::new(200);
        head.header(b"Content-Type", b"text/plain; charset=utf-8");
        head.header(b"Cache-Control", b"no-store");
        out.begin(&head, Length::Known(text.len() as u64 + 1));
        out.push(Bytes::from(text + "\n"));
        out.end();
    }

    fn status_page(&self, request: &RequestHead, out: &mut Responder) {
        let form = StatusForm::of(request);
        let text = form.write(&self.status());
        let mut head = ResponseHead::new(200);
        head.header(b"Content-Type", form.content_type().as_bytes());
        head.header(b"Cache-Control", b"no-store");
        out.begin(&head, Length::Known(text.len() as u64));
        out.push(Bytes::from(text));
        out.end();
    }

    /// Answers a failure, if anything can still be answered.
    fn fail(&self, exchange: Exchange<'_>, failure: &Failure, out: &mut Responder) {
        let Exchange {
            request,
            client,
            config,
            id,
            ..
        } = exchange;
        self.counters.failed(failure.name());
        self.note(
            failure.level(),
            failure.name(),
            &failure.message(),
            exchange,
        );
        if out.ended() {
            return;
        }
        if out.began() || matches!(failure, Failure::ClientGone | Failure::ClientTooSlow) {
            out.abort();
            return;
        }
        let site = find_site(config, request, client);
        let (mut head, page) = file::configured_page(site, failure)
            .unwrap_or_else(|| respond::page(failure, request, id));
        respond::number(&mut head, id);
        out.begin(&head, Length::Known(page.len() as u64));
        out.push(page);
        out.end();
    }

    fn note(&self, level: Level, name: &str, message: &str, exchange: Exchange<'_>) {
        if !self.error_log.writes(level) {
            return;
        }
        let client = match exchange.client.address {
            Some(address) => address.to_string(),
            None => "unix:".to_owned(),
        };
        let about = About {
            method: exchange.request.method(),
            host: exchange.request.host(),
            target: exchange.request.target(),
            client: &client,
            id: exchange.id,
        };
        self.error_log.request(level, name, message, &about);
    }

    /// Writes down a request that was refused before it was understood.
    fn refused(&self, conn: &ConnInfo, status: u16, name: &'static str, line: &[u8]) {
        let line = line.trim_ascii_end();
        self.counters.failed(name);
        self.counters.started();
        self.counters.finished(status, 0, Duration::ZERO);
        let id = self.next_id.0.fetch_add(1, Ordering::Relaxed);
        let client = conn.peer.map(|peer| peer.ip().to_canonical());
        if self.error_log.writes(Level::Info) {
            let text = client.map_or_else(|| "unix:".to_owned(), |client| client.to_string());
            let line = String::from_utf8_lossy(line);
            let message = format!("{line} client={text} id={id}");
            self.error_log.problem(Level::Info, name, &message);
        }
        if let Some(log) = &self.config.load().settings.access_log {
            log.write(&AccessEntry {
                at: SystemTime::now(),
                client,
                user: b"",
                method: line,
                target: b"",
                protocol: "",
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
            });
        }
    }

    fn write_down(&self, exchange: Exchange<'_>, record: &Record, out: &Responder, since: Instant) {
        let duration = turn::now().duration_since(since);
        let (status, bytes) = (out.status(), out.body_bytes_sent());
        self.counters.finished(status, bytes, duration);
        let Exchange {
            request,
            client,
            config,
            id,
            ..
        } = exchange;
        let Some(log) = &config.settings.access_log else {
            return;
        };
        let cause = record.watch.as_ref().and_then(|watch| watch.forbidden());
        let cause = cause.map(ToString::to_string).or_else(|| {
            let Some(Verdict::Pass(why @ (Pass::UnknownCookie | Pass::SessionCookie))) =
                record.cache
            else {
                return None;
            };
            let part = config
                .cache
                .as_ref()?
                .site(find_site(config, request, client))?;
            Some(format!("{why}: {}", lookup::cookie(part, request)?))
        });
        let field = |name| request.header(name).unwrap_or_default();
        log.write(&AccessEntry {
            at: SystemTime::now(),
            client: client.address,
            user: &basic_user(field(b"authorization")),
            method: request.method(),
            target: request.target(),
            protocol: request.version().as_str(),
            host: request.host(),
            site: &find_site(config, request, client).config().name,
            status,
            bytes,
            duration,
            referer: field(b"referer"),
            user_agent: field(b"user-agent"),
            run: record.run,
            cache: record.cache,
            cache_cause: cause.as_deref(),
            error: record.failure.as_deref().map(Failure::name),
            id,
        });
    }
}

fn find_site<'a>(
    config: &'a ServerConfig,
    request: &RequestHead,
    client: &Client<'_>,
) -> &'a Arc<Site> {
    config
        .sites
        .find(client.host.as_deref().unwrap_or_else(|| request.host()))
}

/// Sends a head made here, with its rules' changes.
fn short(site: &Site, route: &Route, mut head: ResponseHead, body: Bytes, out: &mut Responder) {
    site.edit_headers(route, &mut head);
    out.begin(&head, Length::Known(body.len() as u64));
    out.push(body);
    out.end();
}

impl Handler for Front {
    async fn handle<'a>(
        &'a self,
        request: &'a RequestHead,
        conn: &'a ConnInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        self.counters.started();
        // Counted also when the future is dropped, at the end of a graceful stop.
        let mut unfinished = Unfinished(Some(&self.counters), turn::recently());
        let config = self.config.load_full();
        let client = config
            .settings
            .trusted_proxies
            .client(conn.peer, conn.tls, request);
        let id = self.next_id.0.fetch_add(1, Ordering::Relaxed);
        let exchange = Exchange {
            request,
            conn,
            client: &client,
            config: &config,
            id,
        };
        let mut record = Record::default();
        let answered = match self.answer(exchange, body, out, &mut record).await {
            Ok(None) => Ok(()),
            // Boxed: a connection's memory is that of its largest state.
            Ok(Some(to)) => {
                let body = body.none();
                Box::pin(self.go_on(exchange, to, body, out, &mut record)).await
            }
            Err(Failure::ClientGone) if out.client_too_slow() => Err(Failure::ClientTooSlow),
            Err(failure) => Err(failure),
        };
        if let Some(later) = record.later.take() {
            // Boxed, as above.
            Box::pin(later.send(&config.settings.encoding, out)).await;
        }
        if let Err(failure) = answered {
            self.fail(exchange, &failure, out);
            record.failure = Some(Box::new(failure));
        }
        unfinished.0 = None;
        self.write_down(exchange, &record, out, unfinished.1);
    }

    fn notice(&self, notice: &Notice<'_>) {
        let log = &self.error_log;
        let peer = |conn: &ConnInfo| match conn.peer {
            Some(peer) => peer.to_string(),
            None => "unix:".to_owned(),
        };
        match notice {
            Notice::Refused { conn, why, line } => {
                self.refused(conn, why.status(), why.name(), line);
            }
            Notice::BadProxyHeader { conn, why } => {
                self.counters.failed("BadProxyHeader");
                let message = format!("from {}: {why}", peer(conn));
                log.problem(Level::Warning, "BadProxyHeader", &message);
            }
            Notice::NoMemory { conn } => self.refused(conn, 503, "MemoryLimit", b""),
            Notice::HandlerPanicked { conn } => {
                self.counters.failed("HandlerPanicked");
                let message = format!("a request from {}; please report this", peer(conn));
                log.problem(Level::Critical, "HandlerPanicked", &message);
            }
            Notice::NoAnswer { conn } => {
                self.counters.failed("NoAnswer");
                let message = format!("a request from {}; please report this", peer(conn));
                log.problem(Level::Critical, "NoAnswer", &message);
            }
            Notice::AcceptFailed { listener, error } => {
                self.counters.failed("AcceptFailed");
                let message = format!("{listener}: {error}; raise RLIMIT_NOFILE if this lasts");
                log.problem(Level::Error, "AcceptFailed", &message);
            }
            Notice::TooManyConnections { limit } => {
                self.counters.failed("TooManyConnections");
                let message =
                    format!("{limit} are open; new ones take the places of the longest silent");
                log.problem(Level::Warning, "TooManyConnections", &message);
            }
        }
    }
}

/// Counts a request whose handling was dropped.
struct Unfinished<'a>(Option<&'a Counters>, Instant);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0 {
            counters.finished(0, 0, self.1.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answering_takes_little_of_a_connections_memory() {
        fn size<F: Future>(
            _: impl FnOnce(
                &'static Front,
                &'static RequestHead,
                &'static ConnInfo,
                &'static mut RequestBody,
                &'static mut Responder,
            ) -> F,
        ) -> usize {
            size_of::<F>()
        }
        let size = size(|front, request, conn, body, out| front.handle(request, conn, body, out));
        assert!(
            size <= 2048,
            "{size} bytes are reserved in every idle connection"
        );
    }
}
