//! Examines a visitor's response for a page that is not in the store, to find out whether the page could be stored. If
//! it could, the next visitor's request has it rendered for the cache (`howdah_cache::admission`); otherwise it is not
//! rendered for the cache. The response itself is not stored, and PHP runs as it would without a cache.
//!
//! Other requests for the page wait for the verdict. It is known when the head forbids storing, or when the script has
//! ended, however slowly this visitor reads. If the visitor disconnects, the next waiting request takes over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use howdah_cache::coalescer::{Leader, RenderOutcome};
use howdah_cache::key::PageKey;
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{ExecError, RunEvent, RunWrapper, ScriptHead, ScriptRun};
use howdah_http::message::RequestHead;

use super::judge::JudgedHead;
use super::run_effects::RunEffects;
use super::{PageCache, SiteCache, lookup, now};
use howdah_site::site::{RouteInfo, Site};

/// A response that is examined while a visitor receives it.
#[derive(Debug)]
pub struct StoreCandidate {
    cache: Arc<PageCache>,
    site: Arc<Site>,
    key: Box<PageKey>,
    /// The key of the variant, made from the headers that the page was known to vary by.
    variant: Vec<u8>,
    /// Whether the request asks for a part of the page or sets conditions. A negative verdict then says nothing about
    /// the page.
    conditional: bool,
    requested: Millis,
    /// The side effects of the run.
    effects: Arc<RunEffects>,
    state: Mutex<CandidateState>,
}

#[derive(Debug, Default)]
struct CandidateState {
    /// The key of the variant, including the headers that this response adds to `Vary`.
    own_variant: Option<Vec<u8>>,
    /// Completes the requests that wait for the verdict.
    leader: Option<Leader>,
    head: Option<ScriptHead>,
    /// Whether the page may be stored, according to its head.
    head_verdict: Option<Result<Storable, Pass>>,
    length: u64,
    /// Whether the script has ended without being cut off.
    ended: bool,
    /// Whether the verdict has been reported to admission and to the waiting requests.
    settled: bool,
}

/// The parts of a request that a candidate needs.
#[derive(Debug)]
pub struct CandidateRequest {
    /// The cache key of the page's URL.
    pub key: Box<PageKey>,
    /// The key of the variant, made from the headers that the page is known to vary by.
    pub variant: Vec<u8>,
    /// Whether the request asks for a part of the page or sets conditions.
    pub conditional: bool,
    /// Completes the requests that wait for the verdict, if requests may wait.
    pub leader: Option<Leader>,
}

impl StoreCandidate {
    /// Returns a candidate for the page of the run that `effects` observes.
    pub fn new(
        cache: &Arc<PageCache>,
        site: &Arc<Site>,
        asked: CandidateRequest,
        effects: &Arc<RunEffects>,
    ) -> Arc<StoreCandidate> {
        Arc::new(StoreCandidate {
            cache: cache.clone(),
            site: site.clone(),
            key: asked.key,
            variant: asked.variant,
            conditional: asked.conditional,
            requested: now(),
            effects: effects.clone(),
            state: Mutex::new(CandidateState {
                leader: asked.leader,
                ..CandidateState::default()
            }),
        })
    }

    fn lock(&self) -> MutexGuard<'_, CandidateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(&self) -> Option<&SiteCache> {
        self.cache.site(&self.site)
    }

    /// Wraps a run to examine its events while they pass.
    pub fn examine(self: &Arc<StoreCandidate>, run: Box<dyn ScriptRun>) -> Box<dyn ScriptRun> {
        Box::new(ExaminedRun {
            run,
            candidate: self.clone(),
        })
    }

    /// Judges the script's head, just before the visitor's head is sent. Returns why the page cannot be stored, if that
    /// is already known.
    pub fn judge(&self, route: &RouteInfo, request: &RequestHead) -> Option<Pass> {
        let part = self.part()?;
        let mut state = self.lock();
        if state.head_verdict.is_none() {
            let head = state.head.take()?;
            let judged = JudgedHead::new(&self.site, route, &head);
            let judged = judged.judge(part, self.requested, false);
            if let Ok(storable) = &judged {
                let memory = &self.cache.memory;
                let names = memory.all_vary_names(self.key.as_bytes(), storable.vary_headers());
                if !names.is_empty() {
                    state.own_variant = Some(lookup::variant_key(&self.key, &names, request));
                }
            }
            state.head_verdict = Some(judged);
            self.report_verdict(&mut state);
        }
        if let Some(cause) = self.effects.forbidden() {
            return Some(cause.pass);
        }
        match &state.head_verdict {
            Some(Err(why)) => Some(*why),
            Some(Ok(storable)) => storable.check_length(state.length).err(),
            None => None,
        }
    }

    /// Reports the verdict once it is known.
    fn report_verdict(&self, state: &mut CandidateState) {
        let Some(part) = self.part() else { return };
        if state.settled {
            return;
        }
        let verdict = match (&state.head_verdict, self.effects.forbidden()) {
            (_, Some(cause)) => Err(cause.pass),
            (Some(Err(why)), None) => Err(*why),
            (Some(Ok(storable)), None) if state.ended => {
                let whole = storable.check_complete(state.length);
                whole.and_then(|()| {
                    let key = self.key.as_bytes();
                    let learnt = self
                        .cache
                        .memory
                        .add_vary_names(key, storable.vary_headers());
                    learnt.map(|_| ())
                })
            }
            _ => return,
        };
        state.settled = true;
        let says_something = verdict.is_ok() || !self.conditional;
        if says_something {
            let own = state.own_variant.as_ref().filter(|_| verdict.is_ok());
            let variant = own.unwrap_or(&self.variant);
            let admission = &self.cache.admission;
            admission.note_response(variant, part.epoch(), now(), verdict);
            part.fitness.count(verdict);
            if let Err(why) = verdict {
                let text = self.effects.forbidden().map(|cause| cause.text.clone());
                let text = text.unwrap_or_else(|| "".into());
                part.reasons.record_unstored(&self.variant, why, &text);
            }
        }
        if let Some(leader) = state.leader.take() {
            leader.complete(match verdict {
                Err(why) if says_something => RenderOutcome::Passed(why),
                // The first waiting request starts a render.
                _ => RenderOutcome::Retry,
            });
        }
    }

    /// Reports the verdict after the end of the run, however it ended.
    pub fn finish(&self, failed: bool) {
        let mut state = self.lock();
        if failed && state.head_verdict.is_none() {
            state.head_verdict = Some(Err(Pass::RunFailed));
        }
        self.report_verdict(&mut state);
    }
}

/// If the visitor disconnects or the run is cut off, the next waiting request takes over.
impl Drop for StoreCandidate {
    fn drop(&mut self) {
        if let Some(leader) = self.lock().leader.take() {
            leader.complete(RenderOutcome::Retry);
        }
    }
}

struct ExaminedRun {
    run: Box<dyn ScriptRun>,
    candidate: Arc<StoreCandidate>,
}

impl RunWrapper for ExaminedRun {
    fn inner(&self) -> &dyn ScriptRun {
        &*self.run
    }

    fn poll_event_around(&mut self, cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        let event = std::task::ready!(self.run.poll_event(cx))?;
        let mut state = self.candidate.lock();
        match &event {
            RunEvent::Head(head) => state.head = Some(head.clone()),
            RunEvent::Body(bytes) => state.length += bytes.len() as u64,
            RunEvent::Effect => self.candidate.report_verdict(&mut state),
            RunEvent::End => {
                state.ended = true;
                self.candidate.report_verdict(&mut state);
            }
            RunEvent::Informational(_) | RunEvent::Flush => {}
        }
        drop(state);
        Poll::Ready(Ok(event))
    }
}
