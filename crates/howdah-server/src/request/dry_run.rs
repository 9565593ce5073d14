//! A request of a site with `cache = "dry-run"`: determines and counts what the cache would have done with the request,
//! and has pages rendered as if the cache were on. The script handles the request.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::policy::PageState;

use super::bypass::Bypass;
use super::cache_request::CacheRequest;
use super::context::RequestContext;
use crate::cache::checks::DryRun;
use crate::cache::lookup::{self, Lookup};
use crate::cache::{PageCache, SiteCache};

/// Returns why the request bypasses the cache, and what its response is compared with. The reason is the dry run,
/// unless the request would bypass the cache anyway.
pub(super) fn simulate(
    ctx: RequestContext<'_>,
    cache: &Arc<PageCache>,
    part: &SiteCache,
    has_body: bool,
) -> Bypass {
    let miss = |key, stale| CacheRequest {
        stale,
        ..CacheRequest::new(ctx, cache, part, key)
    };
    let missed = match lookup::look_up(cache, part, ctx.site, ctx.request, ctx.client, has_body) {
        Lookup::Pass { why, cookie } => {
            return Bypass {
                cookie,
                ..why.into()
            };
        }
        Lookup::Page {
            page, state, key, ..
        } if matches!(state, PageState::Fresh | PageState::Grace) => {
            part.checks.count_dry_run(true);
            if let Some(key) = key {
                miss(key, Some((page.clone(), state))).refresh_in_background();
            }
            let is_get = ctx.request.method() == b"GET";
            return Bypass {
                dry_run: is_get.then(|| DryRun::new(page, part.rules().max_object)),
                ..Pass::DryRun.into()
            };
        }
        Lookup::Page {
            page, state, key, ..
        } => key.map(|key| miss(key, Some((page, state)))),
        Lookup::None(key) => Some(miss(key, None)),
    };
    if let Some(missed) = missed
        && let Err(bypass) = missed.render_for_next_visitor()
    {
        return bypass;
    }
    part.checks.count_dry_run(false);
    Pass::DryRun.into()
}
