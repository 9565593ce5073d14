//! A request that may be answered from the cache and for which no fresh page was found: this module has the page
//! rendered, waits for the request that renders it, or lets the request bypass the cache. The policy decides what may
//! be stored.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use howdah_cache::Pass;
use howdah_cache::admission::{AdmissionStep, SECOND_VISIT_WITHIN};
use howdah_cache::coalescer::{Follower, Join, Leader, RenderOutcome};
use howdah_cache::key::PageKey;
use howdah_cache::object::Object;
use howdah_cache::policy::{CacheScheme, PageState};
use howdah_cache::status::CacheVerdict;
use howdah_cache::store::PageLookup;
use howdah_http::Responder;

use super::bypass::Bypass;
use super::cache_hit::{CacheHit, is_conditional};
use super::context::{RequestContext, ResponseInProgress};
use super::limits;
use super::litespeed;
use super::script::LocalRedirect;
use crate::cache::candidate;
use crate::cache::lookup::{self, Variant};
use crate::cache::render::{self, RenderJob};
use crate::cache::{PageCache, SiteCache, now};
use crate::failure::Failure;
use howdah_site::site::{RouteInfo, ScriptTarget};

/// How many times a request looks for the page before it bypasses the cache.
const MAX_LOOKUPS: usize = 4;

/// A request for which the cache has no fresh page.
pub(super) struct CacheRequest<'a> {
    pub ctx: RequestContext<'a>,
    pub cache: &'a Arc<PageCache>,
    pub part: &'a SiteCache,
    pub key: Box<PageKey>,
    /// The page that was found, which is too old to be served as it is.
    pub stale: Option<(Arc<Object>, PageState)>,
    pub conditional: bool,
}

/// The result of trying to answer a request from the cache.
pub(super) enum CacheOutcome {
    /// The response has been sent.
    Served,
    /// The script handles the request without the cache.
    Bypassed(Bypass),
    /// The program names another path of this server, whose response is to be sent instead.
    LocalRedirect(LocalRedirect),
}

/// How to obtain a page that was not found.
pub(super) enum RenderPlan {
    /// Render the page for the cache.
    Render(Variant),
    /// Examine the response that the visitor gets. Other requests wait for the result.
    Observe(Variant),
    /// The visitor gets a personal response, which may show that the page can be stored.
    Pass(Bypass),
}

/// The result of one attempt to get the page.
enum RenderAttempt {
    /// The page has been looked for, waited for or rendered. `collapsed` is true if another request has done so.
    Ended {
        outcome: RenderOutcome,
        collapsed: bool,
    },
    /// This request has to store its own response (`cache = "rfc"`).
    Store(Leader),
    /// No further attempt is needed.
    Finished(CacheOutcome),
}

/// Waits until a render completes or the client disconnects.
async fn wait_for_render(
    follower: Follower,
    out: &mut Responder,
) -> Result<RenderOutcome, Failure> {
    let mut completed = pin!(follower.wait());
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = completed.as_mut().poll(cx) {
            return Poll::Ready(Ok(outcome));
        }
        match out.poll_client_gone(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Failure::ClientGone)),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl<'a> CacheRequest<'a> {
    /// Creates the request, without a stale page.
    pub fn new(
        ctx: RequestContext<'a>,
        cache: &'a Arc<PageCache>,
        part: &'a SiteCache,
        key: Box<PageKey>,
    ) -> CacheRequest<'a> {
        CacheRequest {
            ctx,
            cache,
            part,
            key,
            stale: None,
            conditional: false,
        }
    }

    pub fn variant(&self) -> Result<Variant, Pass> {
        lookup::selected_variant(self.cache, &self.key, self.ctx.request)
    }

    pub fn is_rfc(&self) -> bool {
        self.part.rules().scheme == CacheScheme::Rfc
    }

    /// Returns the job that renders this request's page.
    pub fn render_job(&self, variant: Variant) -> RenderJob {
        RenderJob {
            service: self.ctx.service().clone(),
            cache: self.cache.clone(),
            key: self.key.clone(),
            https: self.ctx.client.https,
            fields: variant.fields,
            variant: variant.key,
            id: self.ctx.id,
            visitor: None,
            check_against: None,
            background: None,
            held: None,
        }
    }

    /// Lets the request bypass the cache, which examines the response if that is worthwhile.
    pub fn bypass(&self, why: Pass, variant: Variant, leader: Option<Leader>) -> Bypass {
        let request = self.ctx.request;
        let worth_a_look = !self.is_rfc() && request.method() == b"GET";
        Bypass {
            // Boxed because every connection reserves memory for the largest state of this future.
            candidate: worth_a_look.then(|| {
                Box::new(candidate::CandidateRequest {
                    key: self.key.clone(),
                    variant: variant.key,
                    conditional: is_conditional(request),
                    leader,
                })
            }),
            ..why.into()
        }
    }

    /// Returns how to proceed with the page. Under `rfc` this is always a render, because the visitor's own response is
    /// stored.
    pub fn admission_step(&self, variant: &Variant) -> AdmissionStep {
        if self.is_rfc() {
            return AdmissionStep::Render;
        }
        // A stale page has been stored before, so no second visit is needed to store it again.
        let within =
            (self.key.query().is_some() && self.stale.is_none()).then_some(SECOND_VISIT_WITHIN);
        let admission = &self.cache.admission;
        match admission.decide(&variant.key, self.part.epoch(), now(), within) {
            AdmissionStep::Observe if self.stale.is_some() || litespeed::is_crawler(self.ctx) => {
                AdmissionStep::Render
            }
            step => step,
        }
    }

    /// Tries to answer the request with a page that may be shared: one that is on disk, that another request has
    /// rendered, or that is rendered now.
    pub async fn answer(
        mut self,
        route: &RouteInfo,
        target: &ScriptTarget,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<CacheOutcome, Failure> {
        if self.stale.is_none() && self.serve_from_disk(response).await {
            return Ok(CacheOutcome::Served);
        }
        for attempt in 0..MAX_LOOKUPS {
            if attempt > 0 && self.serve_from_memory(response) {
                return Ok(CacheOutcome::Served);
            }
            if !self.part.may_serve() {
                return Ok(CacheOutcome::Bypassed(self.part.serving_refusal().into()));
            }
            let (outcome, collapsed) = match self.attempt(response).await? {
                RenderAttempt::Ended { outcome, collapsed } => (outcome, collapsed),
                RenderAttempt::Store(leader) => {
                    return self.store_response(route, target, leader, response).await;
                }
                RenderAttempt::Finished(answered) => return Ok(answered),
            };
            match outcome {
                // Under `rfc` the leader's page may be another variant than this request's.
                RenderOutcome::Stored(page) if !self.is_rfc() => {
                    let state = page.state(&self.part.generations, now());
                    if matches!(state, Some(PageState::Fresh | PageState::Grace))
                        && self.part.may_serve()
                    {
                        self.deliver(&page, CacheVerdict::Stored { collapsed }, response);
                        return Ok(CacheOutcome::Served);
                    }
                }
                RenderOutcome::Stored(_) | RenderOutcome::Retry => {}
                RenderOutcome::Passed(why) => {
                    if why.is_failure() && self.serve_stale(response) {
                        return Ok(CacheOutcome::Served);
                    }
                    return Ok(CacheOutcome::Bypassed(match self.variant() {
                        Ok(variant) => self.bypass(why, variant, None),
                        Err(_) => why.into(),
                    }));
                }
            }
        }
        Ok(CacheOutcome::Bypassed(Pass::OutdatedRender.into()))
    }

    async fn attempt(
        &mut self,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<RenderAttempt, Failure> {
        match self.plan() {
            RenderPlan::Render(variant) => self.render(variant, response).await,
            RenderPlan::Observe(variant) => self.observe_response(variant, response).await,
            RenderPlan::Pass(bypass) => Ok(RenderAttempt::Finished(CacheOutcome::Bypassed(bypass))),
        }
    }

    /// Returns whether the request must not wait for the response to another visitor. A fragment must not: that response
    /// may itself wait for fragments, even for this one. A render for the cache waits for none.
    fn must_not_wait(&self) -> bool {
        self.ctx.esi.is_some()
    }

    /// Has the visitor's own response examined, or waits for the verdict on another visitor's.
    async fn observe_response(
        &self,
        variant: Variant,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<RenderAttempt, Failure> {
        let bypass = match self.cache.coalescer.join(&variant.key) {
            // Another visitor's response may have been judged between the lookup and `join`.
            Join::Leader(leader)
                if !matches!(self.admission_step(&variant), AdmissionStep::Observe) =>
            {
                leader.complete(RenderOutcome::Retry);
                return Ok(RenderAttempt::Ended {
                    outcome: RenderOutcome::Retry,
                    collapsed: false,
                });
            }
            Join::Leader(leader) => self.bypass(Pass::NotYetAdmitted, variant, Some(leader)),
            Join::Follower(_) if self.must_not_wait() => {
                self.bypass(Pass::NotYetAdmitted, variant, None)
            }
            Join::Follower(follower) => match wait_for_render(follower, response.out).await? {
                RenderOutcome::Passed(why) => self.bypass(why, variant, None),
                RenderOutcome::Stored(_) | RenderOutcome::Retry => {
                    return Ok(RenderAttempt::Ended {
                        outcome: RenderOutcome::Retry,
                        collapsed: true,
                    });
                }
            },
        };
        Ok(RenderAttempt::Finished(CacheOutcome::Bypassed(bypass)))
    }

    /// Has the page rendered, or waits for the request that renders it.
    async fn render(
        &mut self,
        variant: Variant,
        response: &mut ResponseInProgress<'_>,
    ) -> Result<RenderAttempt, Failure> {
        let leader = match self.cache.coalescer.join(&variant.key) {
            Join::Leader(leader) => leader,
            Join::Follower(_) if self.is_rfc() && self.must_not_wait() => {
                let bypass = Pass::NotYetAdmitted.into();
                return Ok(RenderAttempt::Finished(CacheOutcome::Bypassed(bypass)));
            }
            Join::Follower(follower) => {
                return Ok(RenderAttempt::Ended {
                    outcome: wait_for_render(follower, response.out).await?,
                    collapsed: true,
                });
            }
        };
        if self.is_rfc() {
            return Ok(match self.ctx.request.method() {
                b"HEAD" => {
                    RenderAttempt::Finished(CacheOutcome::Bypassed(Pass::NotYetAdmitted.into()))
                }
                _ => RenderAttempt::Store(leader),
            });
        }
        // The page may have been stored between the lookup and `join`.
        let stale = self.stale.clone();
        if self.serve_from_memory(response) {
            leader.complete(RenderOutcome::Retry);
            return Ok(RenderAttempt::Finished(CacheOutcome::Served));
        }
        self.stale = self.stale.take().or(stale);
        let follower = leader.follower();
        let job = RenderJob {
            held: limits::take_process_permits(response),
            ..self.render_job(variant)
        };
        render::spawn_render(job, leader);
        Ok(RenderAttempt::Ended {
            outcome: wait_for_render(follower, response.out).await?,
            collapsed: false,
        })
    }

    /// Serves a page that is on disk and not in memory. If the page is too old to be served unchanged, it is kept in
    /// `stale`, to be served if PHP fails, or to be validated.
    async fn serve_from_disk(&mut self, response: &mut ResponseInProgress<'_>) -> bool {
        let memory = &self.cache.memory;
        if memory.disk().is_none() {
            return false;
        }
        let request = self.ctx.request;
        let variant = |names: &[Vec<u8>]| lookup::variant_key(&self.key, names, request);
        let generations = &self.part.generations;
        let found = memory.find_on_disk(self.key.as_bytes(), variant, generations, now());
        let PageLookup::Page(page, state) = found.await else {
            return false;
        };
        if !self.part.may_serve() {
            return false;
        }
        self.stale = Some((page.clone(), state));
        match state {
            PageState::Grace => self.refresh_in_background(),
            PageState::Fresh => {}
            PageState::IfError | PageState::Stale => return false,
        }
        let hit = CacheHit {
            page: &page,
            conditional: is_conditional(request),
            now: now(),
        };
        hit.serve(self.ctx, self.part, state, response);
        true
    }

    /// Decides how to obtain the page.
    pub fn plan(&self) -> RenderPlan {
        let variant = match self.variant() {
            Ok(variant) => variant,
            Err(why) => return RenderPlan::Pass(why.into()),
        };
        if let Some(why) = self.storing_forbidden_by() {
            return RenderPlan::Pass(why.into());
        }
        let request = self.ctx.request;
        let why = match self.admission_step(&variant) {
            AdmissionStep::Pass(why) => why,
            // The responses to these requests show little or nothing about the page.
            AdmissionStep::Observe if request.method() == b"HEAD" || is_conditional(request) => {
                Pass::NotYetAdmitted
            }
            AdmissionStep::Observe => return RenderPlan::Observe(variant),
            AdmissionStep::Render if self.stale.is_none() && !self.is_rendering_worthwhile() => {
                Pass::SiteRarelyStores
            }
            AdmissionStep::Render => return RenderPlan::Render(variant),
        };
        RenderPlan::Pass(self.bypass(why, variant, None))
    }

    /// Returns why the response to the visitor's own request must not be stored, whatever its headers say. Only under
    /// `rfc` does that request render the page.
    pub fn storing_forbidden_by(&self) -> Option<Pass> {
        let RequestContext {
            request, client, ..
        } = self.ctx;
        self.is_rfc()
            .then(|| lookup::reason_against_sharing(request, client))
            .flatten()
    }

    fn is_rendering_worthwhile(&self) -> bool {
        self.is_rfc() || self.part.should_try_render()
    }

    fn serve_from_memory(&mut self, response: &mut ResponseInProgress<'_>) -> bool {
        let request = self.ctx.request;
        let variant = |names: &[Vec<u8>]| lookup::variant_key(&self.key, names, request);
        let memory = &self.cache.memory;
        let found = memory.find(self.key.as_bytes(), variant, &self.part.generations, now());
        match found {
            PageLookup::Page(page, PageState::Fresh) if self.part.may_serve() => {
                self.deliver(&page, CacheVerdict::Stored { collapsed: true }, response);
                true
            }
            PageLookup::Page(page, state) => {
                self.stale = Some((page, state));
                false
            }
            PageLookup::NotFound => {
                self.stale = None;
                false
            }
        }
    }

    /// Serves a page after its lifetime because it could not be rendered, if that is allowed.
    pub fn serve_stale(&self, response: &mut ResponseInProgress<'_>) -> bool {
        let Some((page, _)) = &self.stale else {
            return false;
        };
        // The page's state is checked again, because something may have been written meanwhile.
        let now = now();
        match page.state(&self.part.generations, now) {
            None | Some(PageState::Stale) => false,
            Some(_) if !self.part.may_serve() => false,
            Some(state) => {
                let hit = CacheHit {
                    page,
                    conditional: self.conditional,
                    now,
                };
                hit.serve(self.ctx, self.part, state, response);
                true
            }
        }
    }

    pub fn deliver(
        &self,
        page: &Arc<Object>,
        verdict: CacheVerdict,
        response: &mut ResponseInProgress<'_>,
    ) {
        let hit = CacheHit {
            page,
            conditional: self.conditional || is_conditional(self.ctx.request),
            now: now(),
        };
        hit.deliver(self.ctx, self.part, verdict, response);
    }
}
