//! The page cache's part in a request, in three steps. [`serve_before_routing`] serves a page before the request is
//! routed, or after routing in a site whose rules depend on the client. [`CacheGate::run`] is called before a script
//! runs, and [`BypassContext::finish`] after a run that the cache does not share. In a site without a page cache, these
//! steps do nothing.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::policy::PageState;
use howdah_cache::purge::PurgeCommand;
use howdah_http::message::ResponseHead;
use howdah_http::{BodyKind, RequestBody, Responder};
use howdah_proto::level::LogLevel;

use super::bypass::{Bypass, BypassContext};
use super::cache_hit::CacheHit;
use super::cache_request::{CacheOutcome, CacheRequest};
use super::context::{RequestContext, ResponseInProgress};
use super::dry_run;
use super::private_run::PrivateRequest;
use super::script::LocalRedirect;
use crate::cache::lookup::{self, Lookup};
use crate::cache::{PageCache, SiteCache, admin, purge_protocol, write};
use crate::failure::Failure;
use howdah_site::site::{RouteAction, RouteInfo, ScriptTarget};

/// What the cache has found for a request that it has not answered.
pub(super) enum CacheGate<'a> {
    /// The site has no page cache.
    Off,
    /// The request may be answered from the cache, which has no fresh page for it.
    Miss(Box<CacheRequest<'a>>),
    /// The request bypasses the cache.
    Bypass(Bypass),
}

/// How a request for a script continues.
pub(super) enum GateOutcome<'a> {
    /// The request has been answered from the cache, or the script names a path whose response is to be sent instead.
    Answered(Option<LocalRedirect>),
    /// The script is to run, accompanied by the cache if the site has one.
    Run(Option<Box<BypassContext<'a>>>),
}

/// Carries out a purge request before anything else is done. Returns whether the request was a purge and has been
/// answered.
pub(super) async fn handle_purge(
    ctx: RequestContext<'_>,
    response: &mut ResponseInProgress<'_>,
) -> Result<bool, Failure> {
    let Some((_, part)) = ctx.page_cache() else {
        return Ok(false);
    };
    let Some(commands) = purge_protocol::purge_request(part, ctx.site, ctx.request, ctx.client)
    else {
        return Ok(false);
    };
    let commands = commands.map_err(Failure::Purge)?;
    // Boxed because every connection reserves memory for the largest state of this future.
    Box::pin(execute_purge(ctx, part, &commands, response.out)).await?;
    Ok(true)
}

/// Returns why a request bypasses the cache because of its route. `route` is `None` if the route need not be known
/// first.
pub(super) fn bypass_by_route(route: Option<(&RouteAction, &RouteInfo)>) -> Option<Pass> {
    let is_for_some = route.is_some_and(|(action, info)| !info.is_same_for_everyone(action));
    is_for_some.then_some(Pass::Rule)
}

/// Serves a fresh page before the request is routed. Returns `None` if the request is answered. `route` is the
/// request's route if it had to be known first, which is the case in a site whose rules depend on the client.
pub(super) fn serve_before_routing<'a>(
    ctx: RequestContext<'a>,
    route: Option<&(RouteAction, RouteInfo)>,
    body: &RequestBody,
    response: &mut ResponseInProgress<'_>,
) -> Option<CacheGate<'a>> {
    let Some((cache, part)) = ctx.page_cache() else {
        return Some(CacheGate::Off);
    };
    if let Some(recording) = &mut response.record.recording {
        recording.begin_cache();
    }
    if let Some(why) = bypass_by_route(route.map(|(action, info)| (action, info))) {
        return Some(CacheGate::Bypass(why.into()));
    }
    let has_body =
        body.delimiter() != BodyKind::None || ctx.request.header(b"content-length").is_some();
    match part.config.dry_run {
        true => Some(CacheGate::Bypass(dry_run::simulate(
            ctx, cache, part, has_body,
        ))),
        false => look_up(ctx, cache, part, has_body, response),
    }
}

/// Looks up a page. Serves a fresh one at once and returns `None`, since nothing is left to do. A request that is not
/// yet answered is boxed, because every connection reserves memory for the largest state of its future.
fn look_up<'a>(
    ctx: RequestContext<'a>,
    cache: &'a Arc<PageCache>,
    part: &'a SiteCache,
    has_body: bool,
    response: &mut ResponseInProgress<'_>,
) -> Option<CacheGate<'a>> {
    let RequestContext {
        site,
        request,
        client,
        ..
    } = ctx;
    if !part.may_serve() {
        return Some(CacheGate::Bypass(part.serving_refusal().into()));
    }
    let miss = |key| CacheRequest::new(ctx, cache, part, key);
    match lookup::look_up(cache, part, site, request, client, has_body) {
        Lookup::Pass { why, cookie } => Some(CacheGate::Bypass(Bypass {
            cookie,
            ..why.into()
        })),
        Lookup::None(key) => Some(CacheGate::Miss(Box::new(miss(key)))),
        // A newly written `.htaccess` file has to deny access to stored pages as well. A page that it closes is
        // therefore treated as missing, and routing denies the access.
        Lookup::Page { .. }
            if site.is_closed_by_htaccess(request, ctx.visitor())
                || part.purge_if_htaccess_changed(site.htaccess_changes()) =>
        {
            Some(match lookup::key_of(part, site, request, client) {
                Ok(key) => CacheGate::Miss(Box::new(miss(key))),
                Err(why) => CacheGate::Bypass(why.into()),
            })
        }
        Lookup::Page {
            page,
            state,
            conditional,
            now,
            key,
        } => {
            let hit = CacheHit {
                page: &page,
                conditional,
                now,
            };
            // This is checked again as late as possible: the lease may have expired, or the process may have been
            // suspended.
            if !part.may_serve() {
                return Some(CacheGate::Bypass(part.serving_refusal().into()));
            }
            let Some(key) = key else {
                hit.serve(ctx, part, state, response);
                if part.checks.is_due(part.config.shadow)
                    && let Ok(key) = lookup::key_of(part, site, request, client)
                {
                    miss(key).shadow_check(page);
                }
                return None;
            };
            let stale = CacheRequest {
                stale: Some((page.clone(), state)),
                conditional,
                ..miss(key)
            };
            if state != PageState::Grace {
                return Some(CacheGate::Miss(Box::new(stale)));
            }
            stale.refresh_in_background();
            hit.serve(ctx, part, state, response);
            None
        }
    }
}

/// Carries out a purge request and responds to it.
async fn execute_purge(
    ctx: RequestContext<'_>,
    part: &SiteCache,
    commands: &[PurgeCommand],
    out: &mut Responder,
) -> Result<(), Failure> {
    let text = admin::purge_and_describe(commands.iter().map(|command| (part, command)), &[]);
    if let Some(confirmation) = part.confirmation() {
        confirmation.await?;
    }
    ctx.log_note(LogLevel::Info, "Purged", &text);
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", b"text/plain; charset=utf-8");
    head.header(b"Cache-Control", b"no-store");
    out.respond(&head, text + "\n");
    Ok(())
}

impl<'a> CacheGate<'a> {
    /// Serves a page that may be shared: has it rendered, or waits for its render. Called before a script runs.
    pub async fn run(
        self,
        ctx: RequestContext<'a>,
        route: &'a RouteInfo,
        target: &ScriptTarget,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<GateOutcome<'a>, Failure> {
        let Some(cache) = ctx.page_cache() else {
            return Ok(GateOutcome::Run(None));
        };
        let bypass = match self {
            CacheGate::Off => return Ok(GateOutcome::Run(None)),
            // The effects of a program of a `cgi` rule are unknown, so its response is not even examined.
            _ if target.program => Pass::Rule.into(),
            CacheGate::Bypass(bypass) if route.needs_permission() => Bypass {
                dry_run: bypass.dry_run,
                ..Pass::Authorization.into()
            },
            CacheGate::Bypass(bypass) => bypass,
            CacheGate::Miss(request) => match route.cache_pass_reason() {
                // A response that is not for all visitors is not stored, but what its run writes is taken into account.
                Some(why) => why.into(),
                // Boxed because every connection reserves memory for the largest state of this future.
                None => match Box::pin(request.answer(route, target, response)).await? {
                    CacheOutcome::Served => return Ok(GateOutcome::Answered(None)),
                    CacheOutcome::LocalRedirect(to) => return Ok(GateOutcome::Answered(Some(to))),
                    CacheOutcome::Bypassed(bypass) => bypass,
                },
            },
        };
        if let Some((_, part)) = ctx.page_cache()
            && part.is_fenced()
            && write::may_write(part, ctx.request)
        {
            return Err(Failure::FleetFenced);
        }
        let private = PrivateRequest::new(ctx, route, target, bypass.why);
        if let Some(private) = &private
            && private.serve(ctx, response)
        {
            return Ok(GateOutcome::Answered(None));
        }
        // Boxed because every connection reserves memory for the largest state of this future.
        let bypass = BypassContext::new(ctx, cache, (route, private), bypass, response);
        Ok(GateOutcome::Run(Some(Box::new(bypass))))
    }
}
