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
mod cache_hit;
mod cache_request;
mod context;
mod dry_run;
mod esi;
pub mod explain;
mod explanation;
mod export;
mod file;
mod limits;
mod litespeed;
mod local_response;
mod log;
mod pending_response;
mod private_run;
mod proxy;
mod script;
mod status;
mod store_response;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use crossbeam_utils::CachePadded;
use howdah_htaccess::Demand;
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::tls::certificates::ServerCertificates;
use howdah_http::turn;
use howdah_http::{
    ConnectionInfo, ConnectionNotice, RequestBody, RequestHandler, Responder, ResponseLength,
};
use howdah_os::clock;
use howdah_proto::level::LogLevel;

use crate::admin::{Connections, History, RequestCounters};
use crate::failure::Failure;
use crate::respond;
use crate::server_config::ServerConfig;
use authorize::Permission;
use cache_gate::{CacheGate, GateOutcome};
use context::{RequestContext, RequestRecord, ResponseInProgress};
use howdah_log::log::error::ErrorLog;
use howdah_log::traces::recording::Recording;
use howdah_site::client_address::Client;
use howdah_site::site::htaccess::Live;
use howdah_site::site::trace::Trace;
use howdah_site::site::visitor::Visitor;
use howdah_site::site::{Route, RouteAction, RouteInfo, Site};
use local_response::EarlyResponse;
use script::LocalRedirect;

/// The maximum number of local redirects that one request follows, like Apache's `LimitInternalRecursion`.
const MAX_LOCAL_REDIRECTS: u32 = 10;
/// The maximum number of times that `.htaccess` files may have the password of one request checked.
const MAX_LOGINS: usize = 4;

/// Returns how many connections are open. The listeners provide it.
pub type ConnectionCountSource = Box<dyn Fn() -> Connections + Send + Sync>;

/// Handles requests. One value serves all connections of all threads.
pub struct Front {
    config: ArcSwap<ServerConfig>,
    counters: RequestCounters,
    history: Mutex<History>,
    error_log: Arc<ErrorLog>,
    connections: OnceLock<ConnectionCountSource>,
    certificates: OnceLock<Arc<ServerCertificates>>,
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
            counters: RequestCounters::default(),
            history: Mutex::new(History::new(clock::now())),
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
    pub fn replace_config(&self, config: Arc<ServerConfig>) -> Arc<ServerConfig> {
        self.reloads.fetch_add(1, Ordering::Relaxed);
        self.config.swap(config)
    }

    /// Sets the source of the connection counts. It is called once, when the listeners exist.
    pub fn set_connection_count_source(&self, counts: ConnectionCountSource) {
        // A second call is ignored: a front keeps its listeners.
        let _ = self.connections.set(counts);
    }

    /// Sets the certificates of the TLS listeners, which the status shows. It is called once.
    pub fn set_certificates(&self, certificates: Arc<ServerCertificates>) {
        // A second call is ignored, as in `set_connection_count_source`.
        let _ = self.certificates.set(certificates);
    }

    /// Completes an answer: follows the script's local redirect, and makes and sends a stored page that could not be
    /// sent at once.
    async fn complete(
        ctx: RequestContext<'_>,
        body: RequestBody,
        answered: Result<Option<LocalRedirect>, Failure>,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<(), Failure> {
        let mut answered = match answered {
            Ok(None) => Ok(()),
            Ok(Some(to)) => Front::follow_redirects(ctx, to, body, response).await,
            Err(failure) => Err(failure),
        };
        if let Some(later) = response.record.later.take() {
            let sent = later.send(ctx, response).await;
            answered = answered.and(sent);
        }
        match answered {
            Err(Failure::ClientGone) if response.out.client_too_slow() => {
                Err(Failure::ClientTooSlow)
            }
            answered => answered,
        }
    }

    /// Follows the local redirects of scripts one after the other (RFC 3875 §6.2.2). The response is the one that the
    /// last target would have had if the client had requested it.
    async fn follow_redirects(
        ctx: RequestContext<'_>,
        mut to: LocalRedirect,
        mut body: RequestBody,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<(), Failure> {
        for _ in 0..MAX_LOCAL_REDIRECTS {
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
        response: &mut ResponseInProgress<'_>,
    ) -> Result<Option<LocalRedirect>, Failure> {
        match local_response::early_response(ctx, body.delimiter())? {
            None => {}
            Some(EarlyResponse::Challenge(answer)) => {
                send_challenge_response(answer, response.out);
                return Ok(None);
            }
            Some(EarlyResponse::StatusPage) => {
                ctx.front.status_page(ctx.request, response.out);
                return Ok(None);
            }
            Some(EarlyResponse::HttpsRedirect(head)) => {
                response.out.begin(&head, ResponseLength::Known(0));
                response.out.end();
                return Ok(None);
            }
        }
        turn::set_activity("looking a page up");
        if cache_gate::handle_purge(ctx, response).await? {
            return Ok(None);
        }
        limits::count(ctx, ctx.site.limit_rules_of(ctx.requested()), response)?;
        let Some((gate, (mut action, mut route))) = look_up_and_route(ctx, body, response) else {
            return Ok(None);
        };
        if let Some(demand) = route.demand() {
            // Boxed because every connection reserves memory for the largest state of this future.
            let routed = log_in_and_route(ctx, demand.clone(), None);
            (action, route) = Box::pin(routed).await?;
        }
        response.record.live = route.live.clone();
        limits::count(ctx, route.limit_rules().iter().copied(), response)?;
        if route.needs_permission() {
            // Boxed because every connection reserves memory for the largest state of this future.
            let asked = authorize::check_permission(ctx, &route, response);
            match (Box::pin(asked).await?, &mut action) {
                (Permission::Refused, _) => return Ok(None),
                (Permission::Granted(variables), RouteAction::Script(target)) => {
                    target.granted_variables = variables.into();
                    target.permitting_rules = route.guard_rules().into();
                }
                (Permission::Granted(_), _) => {}
            }
        }
        match action {
            RouteAction::Script(target) => {
                turn::set_activity("a script");
                limits::check_bailouts(ctx, &target)?;
                // The request waits for its process permit before other requests begin to wait for its page.
                if matches!(gate, CacheGate::Miss(_))
                    && limits::needs_process_permit(ctx, &target, response)
                {
                    // Boxed because every connection reserves memory for the largest state of this future.
                    Box::pin(limits::wait_for_process_permit(ctx, true, response)).await?;
                }
                let bypass = match gate.run(ctx, &route, &target, response).await? {
                    GateOutcome::Answered(redirect) => return Ok(redirect),
                    GateOutcome::Run(bypass) => bypass,
                };
                let run = script::answer(ctx, &route, &target, bypass.as_deref(), body, response);
                let answered = run.await;
                let confirmation = bypass.and_then(|bypass| bypass.finish(&answered, response));
                if let Some(confirmation) = confirmation
                    && let Err(failure) = confirmation.await
                    && !matches!(answered, Ok(None))
                {
                    return Err(failure);
                }
                answered
            }
            RouteAction::Static(plan) => {
                turn::set_activity("a file");
                file::answer(ctx, &route, plan, response.out).await?;
                Ok(None)
            }
            RouteAction::Proxy(target) => {
                turn::set_activity("a proxied request");
                // Boxed because every connection reserves memory for the largest state of this future.
                Box::pin(proxy::answer(ctx, &route, target, body, response)).await
            }
            action => {
                let (head, body) = local_response::short_response(ctx, &mut route, action)?;
                response.out.respond(&head, body);
                Ok(None)
            }
        }
    }

    /// Sends the response to a failure, if a response can still be sent.
    fn send_failure(
        ctx: RequestContext<'_>,
        failure: &Failure,
        live: Option<&Live>,
        out: &mut Responder,
    ) {
        ctx.front.counters.count_failure(failure.name());
        if !failure.is_already_logged() {
            ctx.log_note(failure.level(), failure.name(), &failure.message());
        }
        if out.has_ended() {
            return;
        }
        if out.has_begun() || matches!(failure, Failure::ClientGone | Failure::ClientTooSlow) {
            out.abort();
            return;
        }
        let (mut head, page) = local_response::failure_page(ctx, failure, live);
        respond::add_request_number(&mut head, ctx.id);
        out.respond(&head, page);
    }
}

fn find_site<'a>(
    config: &'a ServerConfig,
    request: &RequestHead,
    client: &Client<'_>,
    conn: &ConnectionInfo,
) -> &'a Arc<Site> {
    let host = client.host.as_deref();
    let host = host.unwrap_or_else(|| request.host());
    config.sites.find(&conn.listener, host)
}

/// Looks up a stored page, then routes the request. The order is reversed if the site's rules depend on the client.
/// Returns `None` if a page has been served.
fn look_up_and_route<'a>(
    ctx: RequestContext<'a>,
    body: &RequestBody,
    response: &mut ResponseInProgress<'_>,
) -> Option<(CacheGate<'a>, (RouteAction, RouteInfo))> {
    let asks_who = ctx.site.depends_on_client();
    let early = asks_who.then(|| find_route(ctx, ctx.visitor()));
    let gate = cache_gate::serve_before_routing(ctx, early.as_ref(), body, response)?;
    turn::set_activity("routing");
    let route = early.unwrap_or_else(|| find_route(ctx, ctx.visitor()));
    Some((gate, route))
}

/// Has the passwords checked that `.htaccess` files demand of a request, and routes it again with the results.
async fn log_in_and_route(
    ctx: RequestContext<'_>,
    mut demand: Demand,
    trace: Option<&Trace>,
) -> Result<(RouteAction, RouteInfo), Failure> {
    let mut logins = Vec::new();
    loop {
        let login = authorize::check_login(ctx, &demand).await?;
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
fn find_route(ctx: RequestContext<'_>, visitor: Visitor<'_>) -> (RouteAction, RouteInfo) {
    let Route { action, mut info } = ctx.site.route_for(ctx.request, visitor);
    info.https = ctx.client.https;
    for text in ctx.site.take_htaccess_warnings() {
        let log = &ctx.front.error_log;
        log.problem(LogLevel::Warning, "HtaccessNotExact", &text);
    }
    let proxies = &ctx.config.settings.trusted_proxies.file;
    let of_proxies = proxies.iter().filter_map(|file| file.take_new_problem());
    for text in ctx
        .site
        .new_network_file_problems()
        .into_iter()
        .chain(of_proxies)
    {
        let log = &ctx.front.error_log;
        log.problem(LogLevel::Warning, "NetworkFileUnreadable", &text);
    }
    if let Some(refusal) = info.skipped_refusal {
        let mut message =
            "the file is not sent; the front controller handles the request".to_owned();
        if let Some(because) = info.htaccess_line.take() {
            message += &format!(" ({because})");
        }
        ctx.log_note(LogLevel::Info, refusal.name(), &message);
    }
    (action, info)
}

/// Responds to the challenge of a certificate authority.
fn send_challenge_response(answer: Box<[u8]>, out: &mut Responder) {
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", b"application/octet-stream");
    out.respond(&head, answer);
}

impl RequestHandler for Front {
    async fn handle<'a>(
        &'a self,
        request: &'a RequestHead,
        conn: &'a ConnectionInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        self.counters.count_started();
        // The request is counted even if this future is dropped, at the end of a graceful stop.
        let mut unfinished = UnfinishedRequest(Some(&self.counters), turn::recent_time());
        let config = self.config.load_full();
        let client =
            config
                .settings
                .trusted_proxies
                .client(conn.peer, conn.tls.as_deref(), request);
        // Boxed because every connection reserves memory for the largest state of this future.
        let traced = config.resources.traces.as_ref().map(|traces| {
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
            esi: None,
        };
        let mut response = ResponseInProgress {
            out,
            record: RequestRecord {
                recording: Recording::of(traced.as_deref()),
                ..RequestRecord::default()
            },
        };
        let answered = match Front::answer(ctx, body, &mut response).await {
            Ok(None) if response.record.later.is_none() => Ok(()),
            // Boxed because every connection reserves memory for the largest state of this future.
            answered => {
                let body = body.none();
                Box::pin(Front::complete(ctx, body, answered, &mut response)).await
            }
        };
        let ResponseInProgress { out, mut record } = response;
        if let Err(failure) = answered {
            Front::send_failure(ctx, &failure, record.live.as_deref(), out);
            record.failure = Some(Box::new(failure));
        }
        unfinished.0 = None;
        let duration = self.log_request(ctx, &record, out, unfinished.1);
        if let Some(recording) = record.recording.take() {
            self.export(ctx, &record, *recording, out, (unfinished.1, duration));
        }
    }

    fn notice(&self, notice: &ConnectionNotice<'_>) {
        self.log_notice(notice);
    }
}

/// Counts a request as finished if its handling is dropped.
struct UnfinishedRequest<'a>(Option<&'a RequestCounters>, Instant);

impl Drop for UnfinishedRequest<'_> {
    fn drop(&mut self) {
        if let Some(counters) = self.0 {
            counters.count_finished(0, 0, self.1.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_future_is_small() {
        fn size<F: Future>(
            _: impl FnOnce(
                &'static Front,
                &'static RequestHead,
                &'static ConnectionInfo,
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
