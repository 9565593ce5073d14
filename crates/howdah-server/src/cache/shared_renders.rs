//! Renders that the members of a fleet share (docs/fleet.md): before a page is rendered for the cache, another member
//! may have rendered it already, or be rendering it. The other member's page is then stored as if its render had begun
//! here when the page was taken. This is correct if that render saw every write that had invalidated pages here before
//! the page was taken.
//!
//! Only the results of clean requests are shared, for pages that do not vary.

use std::sync::Arc;

use howdah_cache::Pass;
use howdah_cache::coalescer::{Leader, RenderOutcome};
use howdah_cache::generation::{Force, Generations, Purge};
use howdah_cache::object::Object;
use howdah_cache::policy::PageState;
use howdah_cache::store::disk::Owner;
use howdah_cache::store::disk::format::{self, RecordContent};
use howdah_fleet::renders::{Lead, RenderDecision, Renders};
use howdah_fleet::{Fleet, FleetRenderOutcome, LogPosition};

use super::render::RenderJob;
use super::subrequest::Subrequest;
use super::{PageCache, SiteCache, lookup, now};

/// A tag that no page has: its purge is an entry of the log that invalidates nothing.
const CONFIGURATION_LOADED_TAG: &[u8] = b"howdah: loaded";

/// What a site needs to share renders.
#[derive(Debug)]
pub(super) struct SharedRenders {
    fleet: Arc<Fleet>,
    renders: Arc<Renders>,
    /// The site and everything that shapes its pages; identical on every member with the same configuration.
    owner: Owner,
    /// `release`: the version of the site's code.
    release: Arc<str>,
}

/// How a page is obtained.
pub(super) enum RenderSource {
    /// Another member has rendered the page, and it is stored here.
    TakenFromMember(Arc<Object>),
    /// The page has to be rendered here; with a lead, on behalf of the other members as well.
    Render(Option<Lead>),
}

impl SharedRenders {
    /// Returns what a site of this fleet needs to share renders; `None` if the members share no renders. From now on,
    /// no page is taken whose render began before this call, because the configuration or the code may have been
    /// different then.
    pub fn new(
        fleet: &Arc<Fleet>,
        release: Option<&Arc<str>>,
        owner: Owner,
        generations: &Generations,
    ) -> Option<SharedRenders> {
        let renders = fleet.renders()?.clone();
        let release = release?.clone();
        generations.purge(&Purge::Tag(CONFIGURATION_LOADED_TAG.to_vec()), Force::Hard);
        Some(SharedRenders {
            fleet: fleet.clone(),
            renders,
            owner,
            release,
        })
    }

    /// Stores a page that another member has rendered.
    fn store_taken(
        &self,
        job: &RenderJob,
        part: &SiteCache,
        began: &LogPosition,
        bytes: Vec<u8>,
    ) -> Result<Arc<Object>, FleetRenderOutcome> {
        let key = job.key.as_bytes();
        let record =
            format::parse(&bytes.into()).map_err(|_| FleetRenderOutcome::RenderUnreadable)?;
        let RecordContent::Page(page) = record.content else {
            return Err(FleetRenderOutcome::RenderUnreadable);
        };
        if record.owner != self.owner || record.key != without_site(key) {
            return Err(FleetRenderOutcome::RenderUnreadable);
        }
        if page.body.len() as u64 > part.rules().max_object {
            return Err(FleetRenderOutcome::RenderTooLong);
        }
        let born = part.generations.now_if(|| self.fleet.is_within(began));
        let born = born.ok_or(FleetRenderOutcome::RenderOutdated)?;
        let page = page.adopted(key, born, now());
        if page.state(&part.generations, now()) != Some(PageState::Fresh) {
            return Err(FleetRenderOutcome::RenderUntimely);
        }
        let variant = |names: &[Vec<u8>]| match Subrequest::clean_head(&job.key, &[], job.https) {
            Some(clean) => lookup::variant_key(&job.key, names, &clean.request),
            None => job.key.variant_key(names, |_, _| {}),
        };
        let kept = job.cache.memory.store(key, &[], variant, page);
        kept.map_err(|_| FleetRenderOutcome::RenderUnreadable)
    }
}

/// Returns the part of a key without the number that the site has in this process.
fn without_site(key: &[u8]) -> &[u8] {
    key.get(4..).unwrap_or_default()
}

/// Returns whether the page of this job has no variants.
fn has_no_variants(cache: &PageCache, job: &RenderJob) -> bool {
    job.fields.is_empty() && cache.memory.variants(job.key.as_bytes()).is_none()
}

/// Asks the fleet for a page, and waits for the member that renders it: for one lease at most, and only while a request
/// waits here.
pub(super) async fn take_or_lead(
    job: &RenderJob,
    part: &SiteCache,
    leader: &Leader,
) -> Result<RenderSource, Pass> {
    let Some(shared) = &part.shared_renders else {
        return Ok(RenderSource::Render(None));
    };
    let is_shared = job.visitor.is_none() && job.check_against.is_none();
    if !is_shared || !part.may_serve() || !has_no_variants(&job.cache, job) {
        return Ok(RenderSource::Render(None));
    }
    let find = async {
        let deadline = shared.renders.deadline();
        // The question is repeated after each write, but only a few times.
        for _ in 0..3 {
            let Some(position) = shared.fleet.position() else {
                break;
            };
            let Owner { site, policy } = &shared.owner;
            let (release, key) = (shared.release.as_bytes(), without_site(job.key.as_bytes()));
            let version = format::FORMAT_VERSION.to_le_bytes();
            let page = shared
                .renders
                .page_name(&[&version, site, policy, release, key]);
            match shared
                .renders
                .request_render(page, position, deadline)
                .await
            {
                RenderDecision::Lead(lead) => return RenderSource::Render(Some(lead)),
                RenderDecision::Alone(_) => break,
                RenderDecision::Page(began, bytes) => {
                    match shared.store_taken(job, part, &began, bytes) {
                        Ok(page) => {
                            shared.renders.count(FleetRenderOutcome::Taken);
                            part.reasons.forget_unstored(&job.variant);
                            return RenderSource::TakenFromMember(page);
                        }
                        Err(FleetRenderOutcome::RenderOutdated) => {
                            shared.renders.count(FleetRenderOutcome::RenderOutdated)
                        }
                        Err(why) => {
                            let target = String::from_utf8_lossy(job.key.target());
                            shared.renders.count_failure(why, &target);
                            break;
                        }
                    }
                }
            }
        }
        RenderSource::Render(None)
    };
    if job.background.is_some() {
        return Ok(find.await);
    }
    tokio::select! {
        biased;
        asked = find => Ok(asked),
        () = leader.abandoned() => Err(Pass::FlightFailed),
    }
}

/// Passes on the result of a render that this member leads. A page that was invalidated meanwhile is left to the next
/// member that asks.
pub(super) fn publish_result<E>(
    lead: Lead,
    job: &RenderJob,
    part: &SiteCache,
    rendered: &Result<RenderOutcome, E>,
) {
    let page = match rendered {
        Ok(RenderOutcome::Stored(page)) => page,
        Ok(_) if has_no_variants(&job.cache, job) => return,
        Ok(_) | Err(_) => return lead.refuse(),
    };
    let shared = part.shared_renders.as_ref();
    let key = without_site(job.key.as_bytes());
    let parts = shared.and_then(|shared| format::encode_page(&shared.owner, key, key, page));
    match parts {
        Some(parts) if has_no_variants(&job.cache, job) => lead.share(parts),
        _ => lead.refuse(),
    }
}
