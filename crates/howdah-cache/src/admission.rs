//! Decides which pages are rendered for the cache. Such a render is a run of PHP that no browser requested. If its
//! result may not be stored, the run was wasted, and the application may have counted a visitor who does not exist. So
//! a page is rendered only after the response to a visitor has shown that it could be stored: a page is in the cache
//! from its second visit on, and PHP does not run more often than there are visits.
//!
//! The server's own render may still produce a different response than that visitor's request did. After each render
//! that is not stored, the page is not tried for a time that doubles with each failure. A page whose render wrote to a
//! database, as applications that count visitors do, is tried once more and then never again.
//!
//! A failure to store a page counts only within an *epoch*, a number that the caller changes when an administrator asks
//! for a fresh start (a manual purge). The number of entries is bounded; a forgotten entry is learnt again at the next
//! visit.

use std::hash::{BuildHasher, RandomState};

use quick_cache::sync::Cache;

use crate::Millis;
use crate::pass::Pass;

/// Maximum number of pages that are remembered.
const MAX_REMEMBERED_PAGES: usize = 32_768;
/// How long a page is not tried after a render that was not stored. The time doubles with each further failure.
const MIN_RETRY_DELAY: Millis = 120_000;
/// The longest time for which a page is not tried, unless its renders write to a database.
const MAX_RETRY_DELAY: Millis = 86_400_000;
/// If this many renders in a row were not stored and the latest one wrote to a database, the page is not tried again.
const MAX_WRITING_RENDERS: u32 = 2;
/// A page with a query must be requested twice within this many milliseconds (Batcache's value), since clients can make
/// up any number of such pages.
pub const SECOND_VISIT_WITHIN: Millis = 120_000;

/// What to do about a page that is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionStep {
    /// Render it for the cache: the response to a visitor could have been stored.
    Render,
    /// Nothing is known of the page: inspect the response to its next visitor. Other requests may wait for that
    /// response.
    Observe,
    /// PHP answers each visitor, for this reason. The cache still inspects these responses.
    Pass(Pass),
}

/// What the latest requests for a page have shown about it.
#[derive(Clone, Copy, Debug)]
struct PageHistory {
    epoch: u64,
    /// Whether the response to the latest visitor could be stored: `Ok` with its time, or the reason against it.
    response: Result<Millis, Pass>,
    /// The number of renders in a row that were not stored.
    failed_renders: u32,
    /// The page is not rendered before this time.
    not_before: Millis,
}

/// Decides which pages are rendered, from the responses to their visitors.
#[derive(Debug)]
pub struct Admission {
    pages: Cache<u64, PageHistory>,
    hasher: RandomState,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            pages: Cache::new(MAX_REMEMBERED_PAGES),
            hasher: RandomState::new(),
        }
    }
}

impl Admission {
    fn history(&self, key: &[u8], epoch: u64) -> (u64, Option<PageHistory>) {
        let hash = self.hasher.hash_one(key);
        let known = self.pages.get(&hash);
        let fresh = |known: PageHistory| match known.response {
            _ if known.epoch == epoch => Some(known),
            Ok(at) => Some(PageHistory {
                epoch,
                response: Ok(at),
                failed_renders: 0,
                not_before: 0,
            }),
            Err(_) => None,
        };
        (hash, known.and_then(fresh))
    }

    /// Decides what to do about the page with this variant's key. With `within`, an earlier response counts only for
    /// that long.
    pub fn decide(
        &self,
        key: &[u8],
        epoch: u64,
        now: Millis,
        within: Option<Millis>,
    ) -> AdmissionStep {
        let Some(known) = self.history(key, epoch).1 else {
            return AdmissionStep::Observe;
        };
        match known.response {
            Err(why) => AdmissionStep::Pass(why),
            Ok(_) if now < known.not_before => AdmissionStep::Pass(Pass::PassedBefore),
            Ok(at) if within.is_some_and(|within| now.saturating_sub(at) >= within) => {
                AdmissionStep::Observe
            }
            Ok(_) => AdmissionStep::Render,
        }
    }

    /// Notes whether the response to a visitor could have been stored. A reason that is only temporary changes nothing.
    pub fn note_response(&self, key: &[u8], epoch: u64, now: Millis, fit: Result<(), Pass>) {
        if fit.is_err_and(Pass::is_temporary) {
            return;
        }
        let (hash, known) = self.history(key, epoch);
        if let (Some(known), Err(why)) = (&known, fit)
            && known.response == Err(why)
        {
            return;
        }
        let (failed, until) =
            known.map_or((0, 0), |known| (known.failed_renders, known.not_before));
        let known = PageHistory {
            epoch,
            response: fit.map(|()| now),
            failed_renders: failed,
            not_before: until,
        };
        self.pages.insert(hash, known);
    }

    /// Notes whether a render for the cache was stored.
    pub fn note_render(&self, key: &[u8], epoch: u64, now: Millis, stored: Result<(), Pass>) {
        if stored.is_err_and(Pass::is_temporary) {
            return;
        }
        let (hash, known) = self.history(key, epoch);
        let stored_now = PageHistory {
            epoch,
            response: Ok(now),
            failed_renders: 0,
            not_before: 0,
        };
        let known = match stored {
            Ok(()) => stored_now,
            Err(why) => {
                let before = known.unwrap_or(stored_now);
                let failed = before.failed_renders + 1;
                let pause = match (why, failed) {
                    (Pass::DatabaseWrite, MAX_WRITING_RENDERS..) => Millis::MAX,
                    _ => MIN_RETRY_DELAY
                        .saturating_mul(1 << (failed - 1).min(30))
                        .min(MAX_RETRY_DELAY),
                };
                PageHistory {
                    failed_renders: failed,
                    not_before: now.saturating_add(pause),
                    ..before
                }
            }
        };
        self.pages.insert(hash, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Millis = 60_000;

    #[test]
    fn page_is_rendered_after_a_storable_response() {
        let pages = Admission::default();
        assert_eq!(pages.decide(b"k", 0, 0, None), AdmissionStep::Observe);
        pages.note_response(b"k", 0, 0, Ok(()));
        assert_eq!(pages.decide(b"k", 0, 1 << 40, None), AdmissionStep::Render);
        assert_eq!(pages.decide(b"other", 0, 0, None), AdmissionStep::Observe);
    }

    #[test]
    fn page_with_a_query_needs_a_second_visit_in_time() {
        let pages = Admission::default();
        pages.note_response(b"k", 0, 0, Ok(()));
        let within = Some(SECOND_VISIT_WITHIN);
        assert_eq!(
            pages.decide(b"k", 0, SECOND_VISIT_WITHIN - 1, within),
            AdmissionStep::Render
        );
        assert_eq!(
            pages.decide(b"k", 0, SECOND_VISIT_WITHIN, within),
            AdmissionStep::Observe
        );
    }

    #[test]
    fn personal_page_is_not_rendered_until_a_response_is_storable() {
        let pages = Admission::default();
        let opened = Err(Pass::SessionOpened);
        pages.note_response(b"k", 0, 0, opened);
        let passes = AdmissionStep::Pass(Pass::SessionOpened);
        assert_eq!(pages.decide(b"k", 0, 1 << 40, None), passes);
        // A process that dies does not show anything about the page.
        pages.note_response(b"k", 0, 1, Err(Pass::RunFailed));
        assert_eq!(pages.decide(b"k", 0, 1, None), passes);
        pages.note_response(b"k", 0, 2, Ok(()));
        assert_eq!(pages.decide(b"k", 0, 2, None), AdmissionStep::Render);
    }

    #[test]
    fn failed_renders_are_retried_ever_more_rarely() {
        let pages = Admission::default();
        pages.note_response(b"k", 0, 0, Ok(()));
        let (mut now, mut tries) = (0, 0);
        // A day in the life of a page that is visited once a minute and whose responses could always be stored.
        while now < 24 * 60 * MINUTE {
            pages.note_response(b"k", 0, now, Ok(()));
            if pages.decide(b"k", 0, now, None) == AdmissionStep::Render {
                pages.note_render(b"k", 0, now, Err(Pass::SetCookie));
                tries += 1;
            }
            now += MINUTE;
        }
        assert_eq!(tries, 10);
        pages.note_render(b"k", 0, now, Ok(()));
        assert_eq!(pages.decide(b"k", 0, now, None), AdmissionStep::Render);
        pages.note_render(b"k", 0, now, Err(Pass::SetCookie));
        let again = now + MIN_RETRY_DELAY;
        let passed = AdmissionStep::Pass(Pass::PassedBefore);
        assert_eq!(pages.decide(b"k", 0, again - 1, None), passed);
        assert_eq!(pages.decide(b"k", 0, again, None), AdmissionStep::Render);
    }

    #[test]
    fn writing_render_is_tried_once_more_and_never_again() {
        let pages = Admission::default();
        let wrote = Err(Pass::DatabaseWrite);
        pages.note_response(b"k", 0, 0, Ok(()));
        pages.note_render(b"k", 0, 0, wrote);
        assert_eq!(
            pages.decide(b"k", 0, MIN_RETRY_DELAY, None),
            AdmissionStep::Render
        );
        pages.note_render(b"k", 0, MIN_RETRY_DELAY, wrote);
        pages.note_response(b"k", 0, 1 << 50, Ok(()));
        let passed = AdmissionStep::Pass(Pass::PassedBefore);
        assert_eq!(pages.decide(b"k", 0, 1 << 50, None), passed);
        // A new epoch, after a manual purge, starts afresh.
        assert_eq!(pages.decide(b"k", 1, 1 << 50, None), AdmissionStep::Render);
        pages.note_response(b"own", 0, 0, Err(Pass::SetCookie));
        assert_eq!(pages.decide(b"own", 1, 0, None), AdmissionStep::Observe);
    }

    #[test]
    fn temporary_reasons_do_not_count_against_a_page() {
        let pages = Admission::default();
        pages.note_response(b"k", 0, 0, Ok(()));
        for why in [Pass::ServerError, Pass::OutdatedRender, Pass::FlightFailed] {
            pages.note_render(b"k", 0, 0, Err(why));
            assert_eq!(
                pages.decide(b"k", 0, 0, None),
                AdmissionStep::Render,
                "{why}"
            );
        }
    }
}
