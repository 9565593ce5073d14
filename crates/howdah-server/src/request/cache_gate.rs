//! The page cache's part in a request, at three moments: [`before`] the request is routed (after routing in a site
//! whose rules depend on the client), when a script is to [`run`](Gate::run), and [`after`](BypassContext::after) a run
//! that the cache does not share. In a site without a page cache, none of the three does anything.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::policy::PageState;
use howdah_cache::purge::PurgeCommand;
use howdah_http::message::ResponseHead;
use howdah_http::{BodyKind, RequestBody, Responder};
use howdah_proto::level::Level;

use super::bypass::{Bypass, BypassContext};
use super::cache_request::{Answered, CacheRequest};
use super::context::{RequestContext, Response};
use super::dry_run;
use super::hit::Hit;
use super::script::LocalRedirect;
use crate::cache::lookup::{self, Lookup};
use crate::cache::{PageCache, SiteCache, admin, protocol, write};
use crate::failure::Failure;
use crate::site::{Action, RouteInfo, ScriptTarget};

/// What the cache has found for a request that it has not answered.
pub(super) enum Gate<'a> {
    /// The site has no page cache.
    Off,
    /// The request may be answered from the cache, which has no fresh page for it.
    Miss(Box<CacheRequest<'a>>),
    /// The request bypasses the cache.
    Bypass(Bypass),
}

/// How a request for a script continues.
pub(super) enum Passage<'a> {
    /// The request has been answered from the cache, or the script names a path whose response is to be sent instead.
    Answered(Option<LocalRedirect>),
    /// The script is to run, accompanied by the cache if the site has one.
    Run(Option<Box<BypassContext<'a>>>),
}

/// Carries out a purge before anything else is done. Returns whether the request was a purge and has been answered.
pub(super) async fn purges(
    ctx: RequestContext<'_>,
    response: &mut Response<'_>,
) -> Result<bool, Failure> {
    let Some((_, part)) = ctx.page_cache() else {
        return Ok(false);
    };
    let Some(commands) = protocol::of(part, ctx.site, ctx.request, ctx.client) else {
        return Ok(false);
    };
    let commands = commands.map_err(Failure::Purge)?;
    // Boxed because every connection reserves memory for the largest state of this future.
    Box::pin(purge(ctx, part, &commands, response.out)).await?;
    Ok(true)
}

/// Returns why a request bypasses the cache if its route had to be known first.
pub(super) fn bypass_by_route(route: Option<(&Action, &RouteInfo)>) -> Option<Pass> {
    let is_for_some = route.is_some_and(|(action, info)| !info.is_for_everybody(action));
    is_for_some.then_some(Pass::Rule)
}

/// Serves a fresh page before the request is routed. Returns `None` if the request is answered. `route` is the
/// request's route if it had to be known first, which is the case in a site whose rules depend on the client.
pub(super) fn before<'a>(
    ctx: RequestContext<'a>,
    route: Option<&(Action, RouteInfo)>,
    body: &RequestBody,
    response: &mut Response<'_>,
) -> Option<Gate<'a>> {
    let Some((cache, part)) = ctx.page_cache() else {
        return Some(Gate::Off);
    };
    if let Some(recording) = &mut response.record.recording {
        recording.ask_cache();
    }
    if let Some(why) = bypass_by_route(route.map(|(action, info)| (action, info))) {
        return Some(Gate::Bypass(why.into()));
    }
    let has_body =
        body.expected() != BodyKind::None || ctx.request.header(b"content-length").is_some();
    match part.config.dry_run {
        true => Some(Gate::Bypass(dry_run::look(ctx, cache, part, has_body))),
        false => look(ctx, cache, part, has_body, response),
    }
}

/// Looks up a page and serves a fresh one at once, in which case nothing is left to do. A remaining request is boxed,
/// because every connection reserves memory for the largest state of its future.
fn look<'a>(
    ctx: RequestContext<'a>,
    cache: &'a Arc<PageCache>,
    part: &'a SiteCache,
    has_body: bool,
    response: &mut Response<'_>,
) -> Option<Gate<'a>> {
    let RequestContext {
        site,
        request,
        client,
        ..
    } = ctx;
    if !part.may_serve() {
        return Some(Gate::Bypass(part.unserved().into()));
    }
    let miss = |key| CacheRequest::new(ctx, cache, part, key);
    match lookup::look(cache, part, site, request, client, has_body) {
        Lookup::Pass { why, cookie } => Some(Gate::Bypass(Bypass {
            cookie,
            ..why.into()
        })),
        Lookup::None(key) => Some(Gate::Miss(Box::new(miss(key)))),
        // A newly written `.htaccess` file denies access to stored pages as well. Routing repeats that decision.
        Lookup::Page { .. }
            if site.is_closed_by_htaccess(request, ctx.visitor())
                || part.is_outdated(site.htaccess_changes()) =>
        {
            Some(match lookup::key_of(part, site, request, client) {
                Ok(key) => Gate::Miss(Box::new(miss(key))),
                Err(why) => Gate::Bypass(why.into()),
            })
        }
        Lookup::Page {
            page,
            state,
            conditional,
            now,
            key,
        } => {
            let hit = Hit {
                page: &page,
                conditional,
                now,
            };
            // This is checked again as late as possible: the lease may have expired, or the process may have been
            // suspended.
            if !part.may_serve() {
                return Some(Gate::Bypass(part.unserved().into()));
            }
            let Some(key) = key else {
                hit.serve(ctx, part, state, response);
                if part.checks.is_turn(part.config.shadow)
                    && let Ok(key) = lookup::key_of(part, site, request, client)
                {
                    miss(key).check(page);
                }
                return None;
            };
            let stale = CacheRequest {
                stale: Some((page.clone(), state)),
                conditional,
                ..miss(key)
            };
            if state != PageState::Grace {
                return Some(Gate::Miss(Box::new(stale)));
            }
            stale.refresh_in_background();
            hit.serve(ctx, part, state, response);
            None
        }
    }
}

/// Carries out a purge request and responds to it.
async fn purge(
    ctx: RequestContext<'_>,
    part: &SiteCache,
    commands: &[PurgeCommand],
    out: &mut Responder,
) -> Result<(), Failure> {
    let text = admin::execute(commands.iter().map(|command| (part, command)), &[]);
    if let Some(confirmation) = part.confirmation() {
        confirmation.await?;
    }
    ctx.note(Level::Info, "Purged", &text);
    let mut head = ResponseHead::new(200);
    head.header(b"Content-Type", b"text/plain; charset=utf-8");
    head.header(b"Cache-Control", b"no-store");
    out.answer(&head, text + "\n");
    Ok(())
}

impl<'a> Gate<'a> {
    /// Called before a script runs: has a page that may be shared rendered, or waits for it, and serves it.
    pub async fn run(
        self,
        ctx: RequestContext<'a>,
        route: &'a RouteInfo,
        target: &ScriptTarget,
        response: &mut Response<'_>,
    ) -> Result<Passage<'a>, Failure> {
        // The effects of a program of a `cgi` rule are unknown.
        let Some(cache) = ctx.page_cache().filter(|_| !target.program) else {
            return Ok(Passage::Run(None));
        };
        let bypass = match self {
            Gate::Off => return Ok(Passage::Run(None)),
            Gate::Bypass(bypass) if route.needs_permission() => Bypass {
                dry_run: bypass.dry_run,
                ..Pass::Authorization.into()
            },
            Gate::Bypass(bypass) => bypass,
            Gate::Miss(request) => match route.keeps_from_cache() {
                // A response that is not for all visitors is not stored, but what its run writes is taken into account.
                Some(why) => why.into(),
                // Boxed because every connection reserves memory for the largest state of this future.
                None => match Box::pin(request.answer(route, target, response)).await? {
                    Answered::Yes => return Ok(Passage::Answered(None)),
                    Answered::Elsewhere(to) => return Ok(Passage::Answered(Some(to))),
                    Answered::No(bypass) => bypass,
                },
            },
        };
        if let Some((_, part)) = ctx.page_cache()
            && part.is_fenced()
            && write::may_write(part, ctx.request)
        {
            return Err(Failure::FleetFenced);
        }
        // Boxed for the same reason.
        let bypass = BypassContext::new(ctx, cache, route, bypass, response);
        Ok(Passage::Run(Some(Box::new(bypass))))
    }
}
