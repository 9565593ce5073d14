//! Renders a page for the cache with a request that the server makes itself. The request contains only what the page's
//! key holds. No cookie, credentials, address or header of a visitor reaches PHP, so none can be in the page, and the
//! information that must be withheld from PHP need not be listed.
//!
//! The render is a separate task, whose end wakes all waiting requests. When the last waiting request is gone, a render
//! that no process has started yet leaves the pool's queue; a render that a process has started continues.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use howdah_cache::coalescer::{Leader, RenderOutcome};
use howdah_cache::generation::{Force, PageValidity, Purge};
use howdah_cache::key::PageKey;
use howdah_cache::object::Object;
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{
    DropAtEnd, ExecError, RunEvent, ScriptBody, ScriptHead, ScriptRequest, ScriptRole, ScriptRun,
};
use howdah_http::turn;
use tokio::sync::OwnedSemaphorePermit;

use super::body_collector::BodyCollector;
use super::checks::{self, CheckFinding, CheckKind};
use super::judge::JudgedHead;
use super::run_effects::{Cause, RunEffects};
use super::shared_renders::{self, RenderSource};
use super::subrequest::Subrequest;
use super::vendor_headers;
use super::{OwnedHeader, PageCache, SiteCache, lookup, now};
use crate::script::frame::{BodyLength, script_frame};
use crate::site_service::SiteService;
use howdah_log::log::error::ErrorLog;
use howdah_site::site::{Route, RouteAction, RouteInfo};

/// A page that is to be rendered for the cache.
pub struct RenderJob {
    /// The site of the page, with the pools that run its scripts.
    pub service: Arc<SiteService>,
    /// The page cache that stores the result.
    pub cache: Arc<PageCache>,
    /// The cache key of the page's URL.
    pub key: Box<PageKey>,
    /// Whether the connection of the request that caused the render was encrypted.
    pub https: bool,
    /// Headers that the page is known to vary by, with the values that it is rendered for.
    pub fields: Vec<OwnedHeader>,
    /// The cache key of the variant that `fields` selects.
    pub variant: Vec<u8>,
    /// The number of the request that caused the render, for the logs.
    pub id: u64,
    /// `cache = "rfc"`: the visitor's own request, which replaces the clean request.
    pub visitor: Option<Subrequest>,
    /// `cache_shadow`: the page that was served, to be compared with this render.
    pub check_against: Option<ShadowCheck>,
    /// The permit of a background render, for which no request waits.
    pub background: Option<OwnedSemaphorePermit>,
    /// A value that the run holds until it ends.
    pub held: Option<DropAtEnd>,
}

/// A page that is checked by a fresh render, and the log for differences.
pub struct ShadowCheck {
    /// The stored page that a visitor was served.
    pub page: Arc<Object>,
    /// The log for differences.
    pub log: Arc<ErrorLog>,
}

impl ShadowCheck {
    /// Compares the page with the render, counts the result and logs a difference. A page that the cache would no
    /// longer store is purged.
    async fn check(&self, part: &SiteCache, rendered: &Result<RenderOutcome, Unstored>) {
        let valid = self.page.state(&part.generations, now()).is_some();
        let finding = match rendered {
            _ if !valid => CheckFinding::Unchecked,
            Ok(RenderOutcome::Stored(fresh)) => checks::compare_pages(&self.page, fresh).await,
            Err(Unstored { pass, text }) if !pass.is_temporary() => {
                let url = Purge::Url(self.page.url_key.clone());
                part.generations.purge(&url, Force::Hard);
                let text = match &**text {
                    "" => pass.to_string(),
                    text => format!("{pass}: {text}"),
                };
                CheckFinding::Different(format!("a fresh render would not be stored: {text}"))
            }
            _ => CheckFinding::Unchecked,
        };
        part.checks
            .record(&finding, CheckKind::Shadow, &self.page, &self.log);
    }
}

/// Spawns a task that renders a page, and completes the render for all waiting requests.
pub fn spawn_render(job: RenderJob, leader: Leader) {
    let task = async move {
        let mut job = job;
        let cache = job.cache.clone();
        let Some(part) = cache.site(&job.service.site) else {
            return;
        };
        let epoch = part.epoch();
        let rendered = take_or_render(&mut job, part, &leader).await;
        if let Some(check_against) = &job.check_against {
            check_against.check(part, &rendered).await;
        }
        let admission = &cache.admission;
        let outcome = match rendered {
            Ok(outcome) => {
                part.record_render(true);
                admission.note_render(&job.variant, epoch, now(), Ok(()));
                outcome
            }
            Err(Unstored { pass: why, text }) => {
                if !why.is_temporary() {
                    part.record_render(false);
                }
                admission.note_render(&job.variant, epoch, now(), Err(why));
                part.reasons.record_unstored(&job.variant, why, &text);
                RenderOutcome::Passed(why)
            }
        };
        leader.complete(outcome);
    };
    tokio::spawn(turn::measure("rendering a page for the cache", task));
}

/// Why a render was not stored, and what the script did, if that is known.
struct Unstored {
    pass: Pass,
    text: Arc<str>,
}

impl From<Pass> for Unstored {
    fn from(pass: Pass) -> Unstored {
        Unstored {
            pass,
            text: "".into(),
        }
    }
}

impl From<Cause> for Unstored {
    fn from(cause: Cause) -> Unstored {
        Unstored {
            pass: cause.pass,
            text: cause.text,
        }
    }
}

/// Polls a run to its end, although no request waits for it.
async fn drain_run(mut run: Box<dyn ScriptRun>, effects: Arc<RunEffects>) {
    while let Ok(event) = poll_fn(|cx| run.poll_event(cx)).await {
        if matches!(event, RunEvent::End) {
            break;
        }
    }
    effects.settle();
}

/// Returns the next event of the run; `None` if no request waits for the run any more and no process has begun with it.
async fn next_event(
    run: &mut dyn ScriptRun,
    leader: &Leader,
    background: bool,
) -> Option<Result<RunEvent, ExecError>> {
    let mut abandoned = pin!(leader.abandoned());
    poll_fn(|cx| {
        if let Poll::Ready(event) = run.poll_event(cx) {
            return Poll::Ready(Some(event));
        }
        if !background && !run.is_claimed() && abandoned.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}

/// Takes the page from another member of the fleet, or renders it.
async fn take_or_render(
    job: &mut RenderJob,
    part: &SiteCache,
    leader: &Leader,
) -> Result<RenderOutcome, Unstored> {
    let lead = match shared_renders::take_or_lead(job, part, leader).await? {
        RenderSource::TakenFromMember(page) => return Ok(RenderOutcome::Stored(page)),
        RenderSource::Render(lead) => lead,
    };
    let rendered = render(job, part, leader).await;
    if let Some(lead) = lead {
        shared_renders::publish_result(lead, job, part, &rendered);
    }
    rendered
}

async fn render(
    job: &mut RenderJob,
    part: &SiteCache,
    leader: &Leader,
) -> Result<RenderOutcome, Unstored> {
    // The generation is taken before anything else, so every later write invalidates this render.
    let born = part.generations.now();
    let requested = now();
    let clean = job.visitor.is_none();
    let subrequest = match job.visitor.take() {
        Some(visitor) => visitor,
        None => Subrequest::clean_head(&job.key, &job.fields, job.https).ok_or(Pass::RunFailed)?,
    };
    let held = job.held.take();
    let job = &*job;
    let run = Render::start(job, part, &subrequest, requested, held)?;
    let mut rendered = run.collect(leader).await?;
    if clean {
        rendered.head.add_entity_tag(&rendered.body);
    }
    rendered.head.add_vary(part);
    if part.rules().has_litespeed_esi() {
        rendered.head.add_litespeed_status();
    }
    let Rendered {
        head,
        storable,
        body,
    } = rendered;
    let url_key = job.key.as_bytes();
    let page = head.page(&storable, body.finish(), url_key, born)?;
    let validity = part.generations.validity_of(born, url_key, storable.tags());
    if validity != PageValidity::Valid {
        return Ok(RenderOutcome::Retry);
    }
    let memory = &job.cache.memory;
    let key = |names: &[Vec<u8>]| lookup::variant_key(&job.key, names, &subrequest.request);
    let before = memory.variants(url_key);
    let page = memory.store(url_key, storable.vary_headers(), key, page)?;
    let after = memory.variants(url_key);
    part.reasons.forget_unstored(&job.variant);
    // The render was made without knowing of the variants, and a waiting request may need a different one.
    if before.as_ref().map(|v| v.names()) != after.as_ref().map(|v| v.names()) {
        return Ok(RenderOutcome::Retry);
    }
    Ok(RenderOutcome::Stored(page))
}

/// A render in progress.
struct Render<'o> {
    job: &'o RenderJob,
    part: &'o SiteCache,
    route: RouteInfo,
    run: Box<dyn ScriptRun>,
    effects: Arc<RunEffects>,
    requested: Millis,
}

/// A complete response that may be stored.
struct Rendered {
    head: JudgedHead,
    storable: Storable,
    body: BodyCollector,
}

impl<'o> Render<'o> {
    fn start(
        job: &'o RenderJob,
        part: &'o SiteCache,
        subrequest: &Subrequest,
        requested: Millis,
        held: Option<DropAtEnd>,
    ) -> Result<Render<'o>, Pass> {
        let Subrequest {
            request,
            client,
            local,
        } = subrequest;
        let service = &job.service;
        let Route { action, mut info } = service.site.route(request);
        info.https = client.https;
        let RouteAction::Script(target) = action else {
            return Err(Pass::SentFile);
        };
        if info.varies_by_visitor {
            return Err(Pass::Rule);
        }
        if target.program || info.needs_permission() || info.htaccess_varies_by_visitor() {
            // The program is not PHP, so its effects are unknown; or the response is not the same for every visitor.
            return Err(Pass::RunFailed);
        }
        let variables = &service.variables;
        let frame = script_frame(
            request,
            client,
            *local,
            variables,
            &target,
            (BodyLength::None, None),
        )
        .map_err(|_| Pass::RunFailed)?;
        let effects = RunEffects::new(&job.cache, &service.site);
        let run = service.start(
            &target,
            ScriptRequest {
                frame,
                body: ScriptBody::Empty,
                id: job.id,
                role: ScriptRole::Responder,
                client: None,
                effects: Some(effects.clone()),
                drop_at_end: held,
            },
        );
        Ok(Render {
            job,
            part,
            route: info,
            run,
            effects,
            requested,
        })
    }

    /// Collects the response while it may be stored.
    async fn collect(mut self, leader: &Leader) -> Result<Rendered, Unstored> {
        let mut judged: Option<(JudgedHead, Storable)> = None;
        let mut body = BodyCollector::default();
        loop {
            turn::yield_if_over().await;
            let event = next_event(&mut *self.run, leader, self.job.background.is_some()).await;
            let event = event.ok_or(Pass::FlightFailed)?;
            match event.map_err(|_| Pass::RunFailed)? {
                RunEvent::Informational(_) | RunEvent::Flush => {}
                // A negative verdict ends the run here. To the script it appears that its client has disconnected.
                RunEvent::Head(head) => judged = Some(self.judge(&head)?),
                RunEvent::Body(bytes) => {
                    if let Some((_, storable)) = &judged {
                        storable.check_length(body.len() + bytes.len() as u64)?;
                    }
                    body.push(&bytes);
                }
                RunEvent::Effect => {
                    if let Some(cause) = self.effects.forbidden().cloned() {
                        self.abandon();
                        return Err(cause.into());
                    }
                }
                RunEvent::End => break,
            }
        }
        let (head, mut storable) = judged.ok_or(Pass::RunFailed)?;
        self.effects.add_tags(&mut storable)?;
        Ok(Rendered {
            head,
            storable,
            body,
        })
    }

    fn judge(&self, script: &ScriptHead) -> Result<(JudgedHead, Storable), Pass> {
        let fields = script.headers.iter().map(|(n, v)| (&n[..], &v[..]));
        vendor_headers::apply_purges(self.part, true, fields);
        let head = JudgedHead::new(&self.job.service.site, &self.route, script);
        let storable = head.judge(self.part, self.requested, false)?;
        Ok((head, storable))
    }

    /// Gives up the page, which will not be stored. A run that has written continues to its end, because it must not be
    /// cut off in the middle of its work.
    fn abandon(self) {
        if self.effects.has_written() {
            tokio::spawn(drain_run(self.run, self.effects));
        }
    }
}
