//! The part that private pages have in a request for a script: a visitor's stored page is served, or the response is
//! stored for the visitor. This happens after routing, so every access check and limit has been passed as if PHP ran.

use std::sync::{Arc, OnceLock};

use howdah_cache::policy::private::PrivateWish;
use howdah_cache::status::CacheVerdict;
use howdah_cache::visitor::VisitorCookies;
use howdah_cache::{Millis, Pass};
use howdah_executor::ScriptRun;
use howdah_http::message::ResponseHead;

use super::cache_hit::CacheHit;
use super::context::{RequestContext, ResponseInProgress};
use super::esi;
use crate::cache::judge::JudgedHead;
use crate::cache::private_page::{
    OwnHead, PrivateCandidate, PrivateJudgement, PrivatePage, WatchedRun, visitor_of,
};
use crate::cache::run_effects::RunEffects;
use crate::cache::{PageCache, SiteCache, now, write};
use howdah_site::site::{RouteInfo, ScriptTarget};

/// A request to a site that stores private pages.
pub(super) struct PrivateRequest {
    visitor: VisitorCookies,
    /// The page, or why the response cannot be one.
    page: Result<PrivatePage, Pass>,
    /// Whether the script's pool reports what the script writes.
    reports_effects: bool,
}

impl PrivateRequest {
    /// Returns the request, if the site stores private pages. `why` says why the response is not a shared page.
    pub fn new(
        ctx: RequestContext<'_>,
        route: &RouteInfo,
        target: &ScriptTarget,
        why: Pass,
    ) -> Option<PrivateRequest> {
        let (cache, part) = ctx.page_cache()?;
        part.rules().private.as_ref()?;
        let visitor = visitor_of(cache, part, ctx.site, ctx.request);
        let reports_effects = ctx.service().executor(target).reports_effects();
        let page = match refusal(ctx, part, route, why) {
            Some(why) => Err(why),
            None if !reports_effects => Err(Pass::WritesUnseen),
            None => {
                let of = (ctx.request, ctx.client, ctx.conn);
                let included_by = esi::including_page(ctx);
                PrivatePage::of_request((cache, part, ctx.site), of, included_by, &visitor)
            }
        };
        Some(PrivateRequest {
            visitor,
            page,
            reports_effects,
        })
    }

    /// Serves the visitor's stored page, if there is one.
    pub fn serve(&self, ctx: RequestContext<'_>, response: &mut ResponseInProgress<'_>) -> bool {
        let (Some((cache, part)), Ok(page)) = (ctx.page_cache(), &self.page) else {
            return false;
        };
        // A changed `.htaccess` file may change the headers of pages.
        part.purge_if_htaccess_changed(ctx.site.htaccess_changes());
        let now = now();
        let Some(stored) = page.find(cache, part, now) else {
            return false;
        };
        if !part.may_serve() {
            return false;
        }
        let verdict = CacheVerdict::PrivateHit {
            ttl: stored.freshness.ttl(now).div_euclid(1000),
        };
        let hit = CacheHit {
            page: &stored,
            conditional: page.conditional,
            now,
        };
        hit.deliver(ctx, part, verdict, response);
        true
    }
}

/// Returns why the response cannot be a private page, if the request alone has already shown this.
fn refusal(
    ctx: RequestContext<'_>,
    part: &SiteCache,
    route: &RouteInfo,
    why: Pass,
) -> Option<Pass> {
    let is_by_cookie = matches!(why, Pass::SessionCookie | Pass::UnknownCookie);
    if why.is_from_request() && !is_by_cookie {
        return Some(why);
    }
    if write::may_write(part, ctx.request) {
        return Some(Pass::NeverCachedParameter);
    }
    route.cache_pass_reason()
}

/// The run of a script whose response may be stored for its visitor.
pub(super) struct PrivateRun {
    /// The copy of the response, or why it cannot be stored.
    candidate: Result<Arc<PrivateCandidate>, Pass>,
    /// Whether the tag of the page that includes the response has `cache-control="private"`.
    included_as_private: bool,
    requested: Millis,
    /// The head of the response, once the script has sent one that asks for the response to be stored.
    head: Arc<OnceLock<OwnHead>>,
    /// Whether the response is stored, as far as is known before its head is sent.
    judged: OnceLock<Result<(), Pass>>,
}

impl PrivateRun {
    /// Begins to watch the run. Call it before the run starts.
    pub fn begin(
        ctx: RequestContext<'_>,
        (cache, part): (&Arc<PageCache>, &SiteCache),
        request: PrivateRequest,
        effects: &Arc<RunEffects>,
    ) -> PrivateRun {
        effects.visitor.set_visitor(request.visitor.tokens());
        if write::may_write(part, ctx.request) || !request.reports_effects {
            effects.visitor.note_change();
        }
        let included_as_private = ctx.esi.is_some_and(|scope| scope.includes_as_private());
        let candidate = request.page.and_then(|page| {
            if ctx.request.method() != b"GET" || page.conditional {
                return Err(Pass::NotYetAdmitted);
            }
            Ok(PrivateCandidate::new(cache, part, ctx.site, page, effects))
        });
        PrivateRun {
            candidate,
            included_as_private,
            requested: now(),
            head: Arc::default(),
            judged: OnceLock::new(),
        }
    }

    /// Wraps the run so that its response can be copied.
    pub fn watch(&self, run: Box<dyn ScriptRun>, effects: &Arc<RunEffects>) -> Box<dyn ScriptRun> {
        Box::new(WatchedRun {
            run,
            included_as_private: self.included_as_private,
            head: self.head.clone(),
            candidate: self.candidate.as_ref().ok().cloned(),
            effects: effects.clone(),
        })
    }

    /// Reads the head of the response before anything of it is removed. `head` is what the client gets, and the script's
    /// own head says whether the response is stored.
    pub fn read_head(
        &self,
        ctx: RequestContext<'_>,
        (cache, part): (&PageCache, &SiteCache),
        route: &RouteInfo,
        effects: &RunEffects,
        head: &ResponseHead,
    ) {
        let judged = self.judge_head(ctx, part, route);
        let is_storable = matches!(judged, Some(Ok(_))) && ctx.request.method() == b"GET";
        let visitor = &effects.visitor;
        visitor.read_head(cache, part, head, is_storable);
        if let Some(judged) = judged {
            let judged = match &self.candidate {
                Ok(candidate) => candidate.judge(judged),
                Err(why) => Err(*why),
            };
            // A response has one head.
            let _ = self.judged.set(judged);
        }
    }

    /// Judges the script's head, if it asks for the response to be stored.
    fn judge_head(
        &self,
        ctx: RequestContext<'_>,
        part: &SiteCache,
        route: &RouteInfo,
    ) -> Option<PrivateJudgement> {
        let OwnHead { script, wish } = self.head.get()?;
        let lifetime = wish.lifetime()?;
        let head = JudgedHead::new(ctx.site, route, script);
        let storable = head.judge_private(part, self.requested, lifetime);
        Some(storable.map(|storable| (head, storable)))
    }

    /// Returns the verdict on a response that may be stored for its visitor. If a response that is meant for all visitors
    /// is not stored, its request was bypassed for a reason of its own.
    pub fn verdict(&self) -> Option<CacheVerdict> {
        let wish = self.head.get()?.wish;
        match (self.judged.get()?, wish) {
            (Ok(()), _) => Some(CacheVerdict::PrivateStored),
            (Err(why), PrivateWish::Private(_)) => Some(CacheVerdict::Pass(*why)),
            (Err(_), _) => None,
        }
    }
}
