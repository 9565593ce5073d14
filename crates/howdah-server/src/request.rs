//! The path of a request: client address, site, route, file or script, failures, logs. The submodules make the
//! decisions; this file only puts them in order.
//!
//! ```text
//! head ─► client address ─► site by host ─► status page? ─► limits ─► [cache] ─► route ─┬─ file
//!                                                                                       ├─ [cache] ─► script
//!                                                                                       ├─ redirect, return, options
//!                                                                                       └─ refused ─┐
//!                                                                  any failure ─► one page ◄────────┘ ─► log, counters
//! ```
//! The configuration is loaded once, at the top, so a reload takes effect with the next request, even on the same
//! connection.

mod authorize;
mod background_render;
mod bypass;
mod cache_gate;
mod cache_request;
mod context;
mod dry_run;
pub mod explain;
mod explained;
mod export;
mod file;
mod hit;
mod limits;
mod log;
mod made_here;
mod proxy;
mod script;
mod status;
mod store_response;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use howdah_htaccess::Demand;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::tls::certificates::Certificates;
use howdah_http::turn;
use howdah_http::{ConnInfo, Handler, Length, Notice, RequestBody, Responder};
use howdah_proto::level::Level;

use crate::admin::{Connections, Counters};
use crate::client_address::Client;
use crate::failure::Failure;
use crate::log::error::ErrorLog;
use crate::respond;
use crate::server_config::ServerConfig;
use crate::site::htaccess::Live;
use crate::site::trace::Trace;
use crate::site::visitor::Visitor;
use crate::site::{Action, Route, RouteInfo, Site};
use crate::traces::recording::Recording;
use authorize::Permission;
use cache_gate::{Gate, Passage};
use context::{Record, RequestContext, Response};
use made_here::First;
use script::LocalRedirect;

/// The maximum number of local redirects that one request follows, like Apache's `LimitInternalRecursion`.
const MOST_LOCAL_REDIRECTS: u32 = 10;
/// Files of users that `.htaccess` files may have one request's password checked against.
const MAX_LOGINS: usize = 4;

/// Returns how many connections are open. The listeners provide it.
pub type ConnectionCounts = Box<dyn Fn() -> Connections + Send + Sync>;

/// Handles requests. One value serves all connections of all threads.
pub struct Front {
    config: ArcSwap<ServerConfig>,
    counters: Counters,
    error_log: Arc<ErrorLog>,
    connections: OnceLock<ConnectionCounts>,
    certificates: OnceLock<Arc<Certificates>>,
    started: Instant,
    reloads: AtomicU64,
    /// Every thread writes this with every request, so it has a cache line of its own, apart from everything that all
    /// threads read.
    next_id: CachePadded<AtomicU64>,
}

impl Front {
    /// Creates a front that handles requests with `config` and writes problems into `error_log`.
    pub fn new(config: Arc<ServerConfig>, error_log: Arc<ErrorLog>) -> Front {
        Front {
            config: ArcSwap::new(config),
            counters: Counters::default(),
            error_log,
            connections: OnceLock::new(),
            certificates: OnceLock::new(),
            started: Instant::now(),
            reloads: AtomicU64::new(0),
            next_id: CachePadded::new(AtomicU64::new(1)),
        }
    }

    /// Returns the configuration that requests are handled with at this moment.
    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.load_full()
    }

    /// Replaces the configuration from the next request on, and returns the previous one. Requests in progress still
    /// use that one and its pools.
    pub fn swap(&self, config: Arc<ServerConfig>) -> Arc<ServerConfig> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.config.swap(config)
    }

    /// Sets the source of the connection counts. It is called once, when the listeners exist.
    pub fn count_connections_by(&self, counts: ConnectionCounts) {
        // A second call is ignored: a front keeps its listeners.
        let _ = self.connections.set(counts);
    }

    /// Sets the certificates of the TLS listeners, which the status shows. It is called once.
    pub fn show_certificates(&self, certificates: Arc<Certificates>) {
        // A second call is ignored, as in `count_connections_by`.
        let _ = self.certificates.set(certificates);
    }

    /// Follows the local redirects of scripts one after the other (RFC 3875 §6.2.2). The response is the one that a
    /// client would get that requested the last target.
    async fn follow_redirects(
        ctx: RequestContext<'_>,
        mut to: LocalRedirect,
        mut body: RequestBody,
        response: &mut Response<'_>,
    ) -> Result<(), Failure> {
        for _ in 0..MOST_LOCAL_REDIRECTS {
            let request = &ctx.request.without_body_to(&to.0);
            let ctx = RequestContext {
                request,
                site: find_site(ctx.config, request, ctx.client, ctx.conn),
                ..ctx
            };
            match Front::answer(ctx, &mut body, response).await? {
                None => return Ok(()),
                Some(next) => to = next,
            }
        }
        Err(Failure::LocalRedirectLoop(to.0))
    }

    async fn answer(
        ctx: RequestContext<'_>,
        body: &mut RequestBody,
        response: &mut Response<'_>,
    ) -> Result<Option<LocalRedirect>, Failure> {
        match made_here::first(ctx, body.expected())? {
            None => {}
            Some(First::Challenge(answer)) => {
                answer_challenge(answer, response.out);
                return Ok(None);
            }
            Some(First::Status) => {
                ctx.front.status_page(ctx.request, response.out);
                return Ok(None);
            }
            Some(First::ToHttps(head)) => {
                response.out.begin(&head, Length::Known(0));
                response.out.end();
                return Ok(None);
            }
        }
        turn::doing("looking a page up");
        if cache_gate::purges(ctx, response).await? {
            return Ok(None);
        }
        limits::count(ctx, ctx.site.limits_of(ctx.asked()), response)?;
        let Some((gate, (mut action, mut route))) = look_and_route(ctx, body, response) else {
            return Ok(None);
        };
        if let Some(demand) = route.demand() {
            // Boxed because every connection reserves memory for the largest state of this future.
            let routed = log_in_and_route(ctx, demand.clone(), None);
            (action, route) = Box::pin(routed).await?;
        }
        response.record.live = route.live.clone();
        limits::count(ctx, route.limits().iter().copied(), response)?;
        if route.needs_permission() {
            // Boxed because every connection reserves memory for the largest state of this future.
            let asked = authorize::ask(ctx, &route, response);
            match (Box::pin(asked).await?, &mut action) {
                (Permission::Answered, _) => return Ok(None),
                (Permission::Granted(variables), Action::Script(target)) => {
                    target.granted = variables.into();
                    target.permitted = route.guarding_rules().into();
                }
                (Permission::Granted(_), _) => {}
            }
        }
        match action {
            Action::Script(target) => {
                turn::doing("a script");
                limits::check_bailouts(ctx, &target)?;
                // Waits for a process before other requests begin to wait for this request's page.
                if matches!(gate, Gate::Miss(_)) && limits::wants_process(ctx, &target, response) {
                    // Boxed because every connection reserves memory for the largest state of this future.
                    Box::pin(limits::wait_for_process(ctx, true, response)).await?;
                }
                let bypass = match gate.run(ctx, &route, &target, response).await? {
                    Passage::Answered(redirect) => return Ok(redirect),
                    Passage::Run(bypass) => bypass,
                };
                let run = script::answer(ctx, &route, &target, bypass.as_deref(), body, response);
                let answered = run.await;
                let confirmation = bypass.and_then(|bypass| bypass.after(&answered, response));
                if let Some(confirmation) = confirmation
                    && let Err(failure) = confirmation.await
                    && !matches!(answered, Ok(None))
                {
                    return Err(failure);
                }
                answered
            }
            Action::Static(plan) => {
                turn::doing("a file");
                file::answer(ctx, &route, plan, response.out).await?;
                Ok(None)
            }
            Action::Proxy(target) => {
                turn::doing("a proxied request");
                // Boxed because every connection reserves memory for the largest state of this future.
                Box::pin(proxy::answer(ctx, &route, target, body, response)).await
            }
            action => {
                let (head, body) = made_here::short(ctx, &mut route, action)?;
                response.out.answer(&head, body);
                Ok(None)
            }
        }
    }

    /// Sends the response to a failure, if a response can still be sent.
    fn fail(ctx: RequestContext<'_>, failure: &Failure, live: Option<&Live>, out: &mut Responder) {
        ctx.front.counters.failed(failure.name());
        if !failure.is_old_news() {
            ctx.note(failure.level(), failure.name(), &failure.message());
        }
        if out.ended() {
            return;
        }
        if out.began() || matches!(failure, Failure::ClientGone | Failure::ClientTooSlow) {
            out.abort();
            return;
        }
        let (mut head, page) = made_here::page(ctx, failure, live);
        respond::number(&mut head, ctx.id);
        out.answer(&head, page);
    }
}

fn find_site<'a>(
    config: &'a ServerConfig,
    request: &RequestHead,
    client: &Client<'_>,
    conn: &ConnInfo,
) -> &'a Arc<Site> {
    let host = client.host.as_deref();
    let host = host.unwrap_or_else(|| request.host());
    config.sites.find(&conn.listener, host)
}

/// Looks up a stored page, then routes the request. The order is reversed if the site's rules depend on the client.
/// Returns `None` if a page has been served.
fn look_and_route<'a>(
    ctx: RequestContext<'a>,
    body: &RequestBody,
    response: &mut Response<'_>,
) -> Option<(Gate<'a>, (Action, RouteInfo))> {
    let asks_who = ctx.site.asks_who();
    let early = asks_who.then(|| find_route(ctx, ctx.visitor()));
    let gate = cache_gate::before(ctx, early.as_ref(), body, response)?;
    turn::doing("routing");
    let route = early.unwrap_or_else(|| find_route(ctx, ctx.visitor()));
    Some((gate, route))
}

/// Has the passwords checked that `.htaccess` files demand of a request, and routes it again with the results.
async fn log_in_and_route(
    ctx: RequestContext<'_>,
    mut demand: Demand,
    trace: Option<&Trace>,
) -> Result<(Action, RouteInfo), Failure> {
    let mut logins = Vec::new();
    loop {
        let login = authorize::log_in(ctx, &demand).await?;
        logins.push((demand, login));
        if let Some(trace) = trace {
            trace.take();
        }
        let visitor = Visitor {
            logins: &logins,
            trace,
            ..ctx.visitor()
        };
        let (action, route) = find_route(ctx, visitor);
        match route.demand().filter(|_| logins.len() < MAX_LOGINS) {
            None => return Ok((action, route)),
            // A rewrite may lead to a directory with users of its own.
            Some(next) => demand = next.clone(),
        }
    }
}

/// Routes the request, and logs the warnings that arise from that.
fn find_route(ctx: RequestContext<'_>, visitor: Visitor<'_>) -> (Action, RouteInfo) {
    let Route { action, mut info } = ctx.site.route_for(ctx.request, visitor);
    info.https = ctx.client.https;
    for text in ctx.site.take_htaccess_warnings() {
        let log = &ctx.front.error_log;
        log.problem(Level::Warning, "HtaccessNotExact", &text);
    }
    for text in ctx.site.network_file_news() {
        let log = &ctx.front.error_log;
        log.problem(Level::Warning, "NetworkFileUnreadable", &text);
    }
    if let Some(refusal) = info.passed_over {
        let mut message = "not sent; the front controller answers".to_owned();
        if let Some(because) = info.because.take() {
            message += &format!(" ({because})");
        }
        ctx.note(Level::Info, refusal.name(), &message);
    }
    (action, info)
}

/// Responds to the challenge of a certificate authority.
fn answer_challenge(answer: Box<[u8]>, out: &mut Responder) {
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", b"application/octet-stream");
    out.answer(&head, answer);
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
        // The request is counted even if this future is dropped, at the end of a graceful stop.
        let mut unfinished = Unfinished(Some(&self.counters), turn::recently());
        let config = self.config.load_full();
        let client =
            config
                .settings
                .trusted_proxies
                .client(conn.peer, conn.tls.as_deref(), request);
        // Boxed because every connection reserves memory for the largest state of this future.
        let traced = config.settings.traces.as_ref().map(|traces| {
            let trusted = client.proxied;
            Box::new(traces.begin(request, trusted, unfinished.1))
        });
        let ctx = RequestContext {
            front: self,
            config: &config,
            site: find_site(&config, request, &client, conn),
            request: traced.as_ref().map_or(request, |traced| &traced.head),
            traced: traced.as_deref(),
            conn,
            client: &client,
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
        };
        let mut response = Response {
            out,
            record: Record {
                recording: Recording::of(traced.as_deref()),
                ..Record::default()
            },
        };
        let answered = match Front::answer(ctx, body, &mut response).await {
            Ok(None) => Ok(()),
            // Boxed because every connection reserves memory for the largest state of this future.
            Ok(Some(to)) => {
                let body = body.none();
                Box::pin(Front::follow_redirects(ctx, to, body, &mut response)).await
            }
            Err(Failure::ClientGone) if response.out.client_too_slow() => {
                Err(Failure::ClientTooSlow)
            }
            Err(failure) => Err(failure),
        };
        let Response { out, mut record } = response;
        if let Some(later) = record.later.take() {
            // Boxed for the same reason.
            Box::pin(later.send(&config.settings.encoding, out)).await;
        }
        if let Err(failure) = answered {
            Front::fail(ctx, &failure, record.live.as_deref(), out);
            record.failure = Some(Box::new(failure));
        }
        unfinished.0 = None;
        let duration = self.log_request(ctx, &record, out, unfinished.1);
        if let Some(recording) = record.recording.take() {
            self.export(ctx, &record, *recording, out, (unfinished.1, duration));
        }
    }

    fn notice(&self, notice: &Notice<'_>) {
        self.log_notice(notice);
    }
}

/// Counts a request as finished if its handling is dropped.
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
