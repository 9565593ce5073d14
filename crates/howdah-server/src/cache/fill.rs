//! Renders a page for the cache with a request that the server makes itself. The request contains only what the page's
//! key holds. No cookie, credentials, address or header of a visitor reaches PHP, so none can be in the page, and the
//! information that must be withheld from PHP need not be listed.
//!
//! The render is a separate task, whose end wakes all waiting requests. It continues without them once a process has
//! begun with it; before that it leaves the pool's queue with the last of them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use howdah_cache::coalescer::{Leader, RenderOutcome};
use howdah_cache::generation::{Force, Purge, Validity};
use howdah_cache::key::Key;
use howdah_cache::object::Object;
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{Event, ExecError, Head, Held, Role, Run, ScriptBody, ScriptRequest};
use howdah_http::turn;
use tokio::sync::OwnedSemaphorePermit;

use super::checks::{self, CheckKind, Finding};
use super::collect::Collect;
use super::judge::JudgedHead;
use super::run_effects::{Cause, RunEffects};
use super::shared_renders::{self, Asked};
use super::subrequest::Subrequest;
use super::vendor_headers;
use super::{FieldLine, PageCache, SiteCache, lookup, now};
use crate::log::error::ErrorLog;
use crate::script::frame::{BodyLength, script_frame};
use crate::site::{Action, Route, RouteInfo};
use crate::site_service::SiteService;

/// A page that is to be rendered for the cache.
pub struct RenderJob {
    /// The site of the page, with the pools that run its scripts.
    pub service: Arc<SiteService>,
    /// The page cache that stores the result.
    pub cache: Arc<PageCache>,
    /// The cache key of the page's URL.
    pub key: Box<Key>,
    /// Whether the connection of the request that caused the render was encrypted.
    pub https: bool,
    /// Headers that the page is known to vary by, with the values that it is rendered for.
    pub fields: Vec<FieldLine>,
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
    pub held: Option<Held>,
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
            _ if !valid => Finding::Unchecked,
            Ok(RenderOutcome::Stored(fresh)) => checks::compare_pages(&self.page, fresh).await,
            Err(Unstored { pass, text }) if !pass.is_of_the_moment() => {
                let url = Purge::Url(self.page.url_key.clone());
                part.generations.purge(&url, Force::Hard);
                let text = match &**text {
                    "" => pass.to_string(),
                    text => format!("{pass}: {text}"),
                };
                Finding::Different(format!("a fresh render would not be stored: {text}"))
            }
            _ => Finding::Unchecked,
        };
        part.checks
            .note(&finding, CheckKind::Shadow, &self.page, &self.log);
    }
}

/// Spawns a task that renders a page, and completes the render for all waiting requests.
pub fn start(job: RenderJob, leader: Leader) {
    let task = async move {
        let mut job = job;
        let cache = job.cache.clone();
        let Some(part) = cache.site(&job.service.site) else {
            return;
        };
        let epoch = part.epoch();
        let rendered = get(&mut job, part, &leader).await;
        if let Some(check_against) = &job.check_against {
            check_against.check(part, &rendered).await;
        }
        let admission = &cache.admission;
        let outcome = match rendered {
            Ok(outcome) => {
                part.rendered(true);
                admission.rendered(&job.variant, epoch, now(), Ok(()));
                outcome
            }
            Err(Unstored { pass: why, text }) => {
                if !why.is_of_the_moment() {
                    part.rendered(false);
                }
                admission.rendered(&job.variant, epoch, now(), Err(why));
                part.reasons.passed(&job.variant, why, &text);
                RenderOutcome::Passed(why)
            }
        };
        leader.complete(outcome);
    };
    tokio::spawn(turn::measured("rendering a page for the cache", task));
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
async fn run_out(mut run: Box<dyn Run>, effects: Arc<RunEffects>) {
    while let Ok(event) = poll_fn(|cx| run.poll_event(cx)).await {
        if matches!(event, Event::End) {
            break;
        }
    }
    effects.settle();
}

/// Returns the next event of the run; `None` if no request waits for the run any more and no process has begun with it.
async fn next(
    run: &mut dyn Run,
    leader: &Leader,
    background: bool,
) -> Option<Result<Event, ExecError>> {
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
async fn get(
    job: &mut RenderJob,
    part: &SiteCache,
    leader: &Leader,
) -> Result<RenderOutcome, Unstored> {
    let lead = match shared_renders::ask(job, part, leader).await? {
        Asked::Taken(page) => return Ok(RenderOutcome::Stored(page)),
        Asked::Render(lead) => lead,
    };
    let rendered = render(job, part, leader).await;
    if let Some(lead) = lead {
        shared_renders::settle(lead, job, part, &rendered);
    }
    rendered
}

async fn render(
    job: &mut RenderJob,
    part: &SiteCache,
    leader: &Leader,
) -> Result<RenderOutcome, Unstored> {
    // This comes first: every later write invalidates this render.
    let born = part.generations.now();
    let requested = now();
    let clean = job.visitor.is_none();
    let subrequest = match job.visitor.take() {
        Some(visitor) => visitor,
        None => Subrequest::clean(&job.key, &job.fields, job.https).ok_or(Pass::RunFailed)?,
    };
    let held = job.held.take();
    let job = &*job;
    let run = Render::start(job, part, &subrequest, requested, held)?;
    let mut rendered = run.collect(leader).await?;
    if clean {
        rendered.head.tag(&rendered.body);
    }
    let Rendered {
        head,
        storable,
        body,
    } = rendered;
    let url_key = job.key.as_bytes();
    let page = head.page(&storable, body.finish(), url_key, born)?;
    let validity = part.generations.judge(born, url_key, storable.tags());
    if validity != Validity::Valid {
        return Ok(RenderOutcome::LookAgain);
    }
    let memory = &job.cache.memory;
    let key = |names: &[Vec<u8>]| lookup::variant(&job.key, names, &subrequest.request);
    let before = memory.varies(url_key);
    let page = memory.keep(url_key, storable.vary(), key, page)?;
    let after = memory.varies(url_key);
    part.reasons.stored(&job.variant);
    // The render was made without knowing of the variants, and a waiting request may need a different one.
    if before.as_ref().map(|v| v.names()) != after.as_ref().map(|v| v.names()) {
        return Ok(RenderOutcome::LookAgain);
    }
    Ok(RenderOutcome::Stored(page))
}

/// A render in progress.
struct Render<'o> {
    job: &'o RenderJob,
    part: &'o SiteCache,
    route: RouteInfo,
    run: Box<dyn Run>,
    effects: Arc<RunEffects>,
    requested: Millis,
}

/// A complete response that may be stored.
struct Rendered {
    head: JudgedHead,
    storable: Storable,
    body: Collect,
}

impl<'o> Render<'o> {
    fn start(
        job: &'o RenderJob,
        part: &'o SiteCache,
        subrequest: &Subrequest,
        requested: Millis,
        held: Option<Held>,
    ) -> Result<Render<'o>, Pass> {
        let Subrequest {
            request,
            client,
            local,
        } = subrequest;
        let service = &job.service;
        let Route { action, mut info } = service.site.route(request);
        info.https = client.https;
        let Action::Script(target) = action else {
            return Err(Pass::SentFile);
        };
        if info.personal {
            return Err(Pass::Rule);
        }
        if target.program || info.needs_permission() || info.is_for_some() {
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
            BodyLength::None,
        )
        .map_err(|_| Pass::RunFailed)?;
        let effects = RunEffects::new(&job.cache, &service.site);
        let run = service.start(
            &target,
            ScriptRequest {
                frame,
                body: ScriptBody::Empty,
                id: job.id,
                role: Role::Responder,
                client: None,
                effects: Some(effects.clone()),
                held,
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
        let mut body = Collect::default();
        loop {
            turn::give_way().await;
            let event = next(&mut *self.run, leader, self.job.background.is_some()).await;
            let event = event.ok_or(Pass::FlightFailed)?;
            match event.map_err(|_| Pass::RunFailed)? {
                Event::Informational(_) | Event::Flush => {}
                // A negative verdict ends the run here: for the script, its client has disconnected.
                Event::Head(head) => judged = Some(self.judge(&head)?),
                Event::Body(bytes) => {
                    if let Some((_, storable)) = &judged {
                        storable.allows(body.len() + bytes.len() as u64)?;
                    }
                    body.push(&bytes);
                }
                Event::Effect => {
                    if let Some(cause) = self.effects.forbidden().cloned() {
                        self.abandon();
                        return Err(cause.into());
                    }
                }
                Event::End => break,
            }
        }
        let (head, mut storable) = judged.ok_or(Pass::RunFailed)?;
        self.effects.tag(&mut storable)?;
        Ok(Rendered {
            head,
            storable,
            body,
        })
    }

    fn judge(&self, script: &Head) -> Result<(JudgedHead, Storable), Pass> {
        let fields = script.headers.iter().map(|(n, v)| (&n[..], &v[..]));
        vendor_headers::purge(self.part, true, fields);
        let head = JudgedHead::new(&self.job.service.site, &self.route, script);
        let storable = head.judge(self.part, self.requested, false)?;
        Ok((head, storable))
    }

    /// Gives up the page, which will not be stored. A run that has written continues to its end, because it must not be
    /// cut off in the middle of its work.
    fn abandon(self) {
        if self.effects.has_written() {
            tokio::spawn(run_out(self.run, self.effects));
        }
    }
}
