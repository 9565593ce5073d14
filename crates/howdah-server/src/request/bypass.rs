//! A script's run whose response the page cache does not share, in a site that has a page cache: this module tells the
//! client the reason, and invalidates the pages that the run may have changed.

use std::sync::{Arc, OnceLock};

use howdah_cache::Pass;
use howdah_cache::preset::FormBody;
use howdah_cache::status::CacheVerdict;
use howdah_executor::{DropAtEnd, EffectSink, ScriptBody, ScriptRun};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_proto::level::LogLevel;

use super::context::{RequestContext, ResponseInProgress};
use super::litespeed;
use super::private_run::{PrivateRequest, PrivateRun};
use super::script::LocalRedirect;
use crate::cache::candidate::{self, StoreCandidate};
use crate::cache::checks::DryRun;
use crate::cache::run_effects::RunEffects;
use crate::cache::send::add_status_fields;
use crate::cache::{PageCache, SiteCache, vendor_headers, write};
use crate::failure::Failure;
use crate::script::pump::Confirmation;
use howdah_site::site::{RouteInfo, ScriptTarget};

/// Why a request is not answered from the cache, and what the cache does with the script's response to it.
pub(super) struct Bypass {
    pub why: Pass,
    /// The name of the cookie that is the reason, if a cookie is.
    pub cookie: Option<Vec<u8>>,
    /// The page, if the response is examined to find out whether the page could be stored.
    pub candidate: Option<Box<candidate::CandidateRequest>>,
    /// The page that the response is compared with in a dry run.
    pub dry_run: Option<Arc<DryRun>>,
}

impl From<Pass> for Bypass {
    fn from(why: Pass) -> Bypass {
        Bypass {
            why,
            cookie: None,
            candidate: None,
            dry_run: None,
        }
    }
}

/// Accompanies one run that bypasses the cache.
pub(super) struct BypassContext<'a> {
    ctx: RequestContext<'a>,
    cache: &'a Arc<PageCache>,
    part: &'a SiteCache,
    route: &'a RouteInfo,
    /// Why the request itself bypasses the cache; its response may give another reason.
    why: Pass,
    /// The name of the cookie that is the reason.
    cookie: Option<Box<str>>,
    /// The verdict for the access log and the counters, once it is final.
    verdict: OnceLock<CacheVerdict>,
    effects: Arc<RunEffects>,
    candidate: Option<Arc<StoreCandidate>>,
    dry_run: Option<Arc<DryRun>>,
    /// The run as a page of its visitor's own, in a site that stores such pages.
    private: Option<PrivateRun>,
}

impl<'a> BypassContext<'a> {
    pub fn new(
        ctx: RequestContext<'a>,
        (cache, part): (&'a Arc<PageCache>, &'a SiteCache),
        (route, private): (&'a RouteInfo, Option<PrivateRequest>),
        bypass: Bypass,
        response: &mut ResponseInProgress<'_>,
    ) -> BypassContext<'a> {
        let effects = RunEffects::new(cache, ctx.site);
        response.record.effects = Some(effects.clone());
        let Bypass {
            why,
            cookie,
            candidate,
            dry_run,
        } = bypass;
        let candidate = candidate.map(|page| StoreCandidate::new(cache, ctx.site, *page, &effects));
        let cookie = cookie.map(|name| name.escape_ascii().to_string().into_boxed_str());
        if let Some(name) = cookie.as_ref().filter(|_| why == Pass::UnknownCookie) {
            part.reasons.count_cookie(name);
        }
        response.record.cookie.clone_from(&cookie);
        if write::may_write(part, ctx.request) {
            effects.may_write();
        }
        let private =
            private.map(|request| PrivateRun::begin(ctx, (cache, part), request, &effects));
        BypassContext {
            ctx,
            cache,
            part,
            route,
            why,
            cookie,
            verdict: OnceLock::new(),
            effects,
            candidate,
            dry_run,
            private,
        }
    }

    /// Returns the receiver of what PHP reports about the run.
    pub fn effects(&self) -> Arc<dyn EffectSink> {
        self.effects.clone()
    }

    /// Notes what the run writes, as far as the request shows it. A small form body may show that the run changes no
    /// page. Called before the run starts.
    pub fn note_write(&self, target: &ScriptTarget, body: &ScriptBody) {
        let RequestContext {
            request,
            client,
            site,
            ..
        } = self.ctx;
        let form = match body {
            ScriptBody::Empty => FormBody::Absent,
            ScriptBody::Memory(bytes) => form_of(request, bytes),
            _ => FormBody::NotInspected,
        };
        let reports_effects = self.ctx.service().executor(target).reports_effects();
        *self.effects.request_write() =
            write::of_request(self.part, site, request, client, form, reports_effects);
    }

    /// Returns a value that the run holds until nothing runs for the request any more. Only then has everything been
    /// written, whether or not the client still waits, and whether or not PHP reports what it does.
    pub fn hold(&self, permits: Option<DropAtEnd>) -> DropAtEnd {
        Box::new((permits, self.effects.clone()))
    }

    /// Wraps the run so that the cache can observe it.
    pub fn observe(&self, mut run: Box<dyn ScriptRun>) -> Box<dyn ScriptRun> {
        if let Some(candidate) = &self.candidate {
            run = candidate.examine(run);
        }
        if let Some(dry_run) = &self.dry_run {
            run = dry_run.copy(run);
        }
        if let Some(private) = &self.private {
            run = private.watch(run, &self.effects);
        }
        run
    }

    /// Returns the reason why the request bypasses the cache: the one that its response showed, or else the one that
    /// the request shows. The first call counts it.
    fn verdict(&self) -> CacheVerdict {
        *self.verdict.get_or_init(|| {
            let candidate = self.candidate.as_ref();
            let shown = candidate.and_then(|page| page.judge(self.route, self.ctx.request));
            let own = self.private.as_ref();
            let own = own.and_then(PrivateRun::verdict);
            let verdict = own.unwrap_or(CacheVerdict::Pass(shown.unwrap_or(self.why)));
            self.part.count(verdict);
            verdict
        })
    }

    /// Edits the response's header before it is sent, and invalidates what the run has changed: the client that wrote
    /// must not read an older page afterwards.
    pub fn edit_head(&self, head: &mut ResponseHead) {
        let RequestContext {
            request,
            client,
            site,
            ..
        } = self.ctx;
        let before = self.part.generations.now();
        if let Some(private) = &self.private {
            let cache = (&**self.cache, self.part);
            private.read_head(self.ctx, cache, self.route, &self.effects, head);
        }
        vendor_headers::apply_and_remove(self.part, request.method(), head);
        site.edit_headers(self.route, head);
        let verdict = self.verdict();
        add_status_fields(head, verdict);
        litespeed::add_crawler_status(self.ctx, head, verdict);
        if let Some(value) = self.part.rules().vary.header_value() {
            head.header(b"Vary", value.as_bytes());
        }
        if let Some(write) = &mut *self.effects.request_write() {
            write.note_head(self.part, site, (request, client), head);
        }
        self.effects.settle();
        if let Some(cause) = self.visible_cause() {
            let text = cause.replace(|c: char| !c.is_ascii(), "?");
            head.header(b"Howdah-Cache-Cause", text.as_bytes());
        }
        // The change may come from another request's write, whose confirmation may be awaited here without harm.
        if self.part.generations.now() != before {
            self.effects.note_invalidation();
        }
    }

    /// Waits until every server of the fleet has invalidated what this run has changed; see
    /// [`RunEffects::confirmation`].
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.effects.confirmation()
    }

    /// Describes why the request bypassed the cache. Only administrators may see it, because it can contain file names.
    fn visible_cause(&self) -> Option<String> {
        let status = self.ctx.config.settings.status.as_ref()?;
        if !status.allows(self.ctx.request, self.ctx.client) {
            return None;
        }
        match (self.effects.forbidden(), &self.cookie) {
            (Some(cause), _) => Some(cause.to_string()),
            (None, Some(cookie)) => Some(format!("{}: {cookie}", self.why)),
            (None, None) => None,
        }
    }

    /// Takes into account what the run wrote after its headers, or before it failed. Returns the confirmation to wait
    /// for before anything else is sent.
    pub fn finish(
        self,
        answered: &Result<Option<LocalRedirect>, Failure>,
        response: &mut ResponseInProgress<'_>,
    ) -> Option<Confirmation> {
        let failure = answered.as_ref().err();
        let before = self.part.generations.now();
        self.effects.settle();
        if let Some(candidate) = &self.candidate {
            candidate.finish(failure.is_some_and(|failure| *failure != Failure::ClientGone));
        }
        response.record.cache = Some(self.verdict());
        let (site, log) = (self.ctx.site, &self.ctx.front.error_log);
        if let Some(text) = self.part.fitness.take_message() {
            let text = format!("site {}: {text}", site.config().name);
            log.problem(LogLevel::Notice, "NothingStorable", &text);
        }
        if let Some(dry_run) = self.dry_run {
            dry_run.judge(self.cache, site.number(), log);
        }
        let is_old_news = self.part.generations.now() == before;
        if !matches!(answered, Ok(None)) && !is_old_news {
            // An error page or another path's response is yet to be sent.
            self.effects.note_invalidation();
        }
        self.effects.confirmation()
    }
}

/// Returns the form in a request's body.
fn form_of<'a>(request: &'a RequestHead, text: &'a [u8]) -> FormBody<'a> {
    let kind = request.header(b"content-type").unwrap_or_default();
    let behind = |start: &[u8]| {
        let (head, rest) = kind.split_at_checked(start.len())?;
        head.eq_ignore_ascii_case(start).then_some(rest)
    };
    if behind(b"application/x-www-form-urlencoded").is_some() {
        return FormBody::UrlEncoded(text);
    }
    // Browsers send no quotation marks and no other parameter.
    match behind(b"multipart/form-data; boundary=") {
        Some(boundary)
            if boundary
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || *b == b'-') =>
        {
            FormBody::Multipart { boundary, text }
        }
        _ => FormBody::NotInspected,
    }
}
