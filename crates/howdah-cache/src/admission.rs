//! Decides which pages are rendered for the cache. Such a render is a run of PHP that no browser requested. If its
//! result may not be stored, the run was wasted, and the application may have counted a visitor who does not exist. So
//! a page is rendered only after the response to a visitor has shown that it could be stored: a page is in the cache
//! from its second visit on, and PHP does not run more often than there are visits.
//!
//! The server's own render may still produce a different response than that visitor's request did. After each render
//! that is not stored, the page is not tried for a time that doubles with each failure. A page whose render wrote to a
//! database, as applications that count visitors do, is tried once more and then never again.
//!
//! That a page could not be stored counts only within an *epoch*, a number that the caller changes when an
//! administrator asks for a fresh start (a manual purge). The number of entries is bounded; a forgotten entry is learnt
//! again at the next visit.

use std::hash::{BuildHasher, RandomState};

use quick_cache::sync::Cache;

use crate::Millis;
use crate::pass::Pass;

/// Maximum number of pages that are remembered.
const REMEMBERED: usize = 32_768;
/// How long a page is not tried after a render that was not stored. The time doubles with each further failure.
const FIRST_PAUSE: Millis = 120_000;
/// The longest time for which a page is not tried, unless its renders write to a database.
const LONGEST_PAUSE: Millis = 86_400_000;
/// If this many renders in a row were not stored and the latest one wrote to a database, the page is not tried again.
const WRITES: u32 = 2;
/// A page with a query must be requested twice within this many milliseconds (Batcache's value), since clients can make
/// up any number of such pages.
pub const SEEN_WITHIN: Millis = 120_000;

/// What to do about a page that is not in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Render it for the cache: the response to a visitor could have been stored.
    Render,
    /// Nothing is known of the page: inspect the response to its next visitor. Other requests may wait for that
    /// response.
    Ask,
    /// PHP answers each visitor, for this reason. The cache still inspects these responses.
    Pass(Pass),
}

/// What the latest requests for a page have shown about it.
#[derive(Clone, Copy, Debug)]
struct Known {
    epoch: u64,
    /// Whether the response to the latest visitor could be stored: `Ok` with its time, or the reason against it.
    answer: Result<Millis, Pass>,
    /// The number of renders in a row that were not stored.
    failed: u32,
    /// The page is not rendered before this time.
    until: Millis,
}

/// Decides which pages are rendered, from the responses to their visitors.
#[derive(Debug)]
pub struct Admission {
    known: Cache<u64, Known>,
    hasher: RandomState,
}

impl Default for Admission {
    fn default() -> Self {
        Admission {
            known: Cache::new(REMEMBERED),
            hasher: RandomState::new(),
        }
    }
}

impl Admission {
    fn get(&self, key: &[u8], epoch: u64) -> (u64, Option<Known>) {
        let hash = self.hasher.hash_one(key);
        let known = self.known.get(&hash);
        let fresh = |known: Known| match known.answer {
            _ if known.epoch == epoch => Some(known),
            Ok(at) => Some(Known {
                epoch,
                answer: Ok(at),
                failed: 0,
                until: 0,
            }),
            Err(_) => None,
        };
        (hash, known.and_then(fresh))
    }

    /// Decides what to do about the page with this variant's key. With `within`, an earlier response counts only for
    /// that long.
    pub fn step(&self, key: &[u8], epoch: u64, now: Millis, within: Option<Millis>) -> Step {
        let Some(known) = self.get(key, epoch).1 else {
            return Step::Ask;
        };
        match known.answer {
            Err(why) => Step::Pass(why),
            Ok(_) if now < known.until => Step::Pass(Pass::PassedBefore),
            Ok(at) if within.is_some_and(|within| now.saturating_sub(at) >= within) => Step::Ask,
            Ok(_) => Step::Render,
        }
    }

    /// Notes whether the response to a visitor could have been stored. A reason that is only temporary changes nothing.
    pub fn answered(&self, key: &[u8], epoch: u64, now: Millis, fit: Result<(), Pass>) {
        if fit.is_err_and(Pass::is_of_the_moment) {
            return;
        }
        let (hash, known) = self.get(key, epoch);
        if let (Some(known), Err(why)) = (&known, fit)
            && known.answer == Err(why)
        {
            return;
        }
        let (failed, until) = known.map_or((0, 0), |known| (known.failed, known.until));
        let known = Known {
            epoch,
            answer: fit.map(|()| now),
            failed,
            until,
        };
        self.known.insert(hash, known);
    }

    /// Notes whether a render for the cache was stored.
    pub fn rendered(&self, key: &[u8], epoch: u64, now: Millis, stored: Result<(), Pass>) {
        if stored.is_err_and(Pass::is_of_the_moment) {
            return;
        }
        let (hash, known) = self.get(key, epoch);
        let stored_now = Known {
            epoch,
            answer: Ok(now),
            failed: 0,
            until: 0,
        };
        let known = match stored {
            Ok(()) => stored_now,
            Err(why) => {
                let before = known.unwrap_or(stored_now);
                let failed = before.failed + 1;
                let pause = match (why, failed) {
                    (Pass::DatabaseWrite, WRITES..) => Millis::MAX,
                    _ => FIRST_PAUSE
                        .saturating_mul(1 << (failed - 1).min(30))
                        .min(LONGEST_PAUSE),
                };
                Known {
                    failed,
                    until: now.saturating_add(pause),
                    ..before
                }
            }
        };
        self.known.insert(hash, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Millis = 60_000;

    #[test]
    fn a_page_is_rendered_once_a_visitors_answer_could_have_been_stored() {
        let pages = Admission::default();
        assert_eq!(pages.step(b"k", 0, 0, None), Step::Ask);
        pages.answered(b"k", 0, 0, Ok(()));
        assert_eq!(pages.step(b"k", 0, 1 << 40, None), Step::Render);
        assert_eq!(pages.step(b"other", 0, 0, None), Step::Ask);
    }

    #[test]
    fn a_page_with_a_query_must_be_asked_for_twice_within_a_time() {
        let pages = Admission::default();
        pages.answered(b"k", 0, 0, Ok(()));
        let within = Some(SEEN_WITHIN);
        assert_eq!(pages.step(b"k", 0, SEEN_WITHIN - 1, within), Step::Render);
        assert_eq!(pages.step(b"k", 0, SEEN_WITHIN, within), Step::Ask);
    }

    #[test]
    fn a_page_that_is_somebodys_own_is_never_rendered_until_an_answer_says_otherwise() {
        let pages = Admission::default();
        let opened = Err(Pass::SessionOpened);
        pages.answered(b"k", 0, 0, opened);
        let passes = Step::Pass(Pass::SessionOpened);
        assert_eq!(pages.step(b"k", 0, 1 << 40, None), passes);
        // A process that dies does not show anything about the page.
        pages.answered(b"k", 0, 1, Err(Pass::RunFailed));
        assert_eq!(pages.step(b"k", 0, 1, None), passes);
        pages.answered(b"k", 0, 2, Ok(()));
        assert_eq!(pages.step(b"k", 0, 2, None), Step::Render);
    }

    #[test]
    fn renders_that_come_to_nothing_are_tried_ever_more_rarely() {
        let pages = Admission::default();
        pages.answered(b"k", 0, 0, Ok(()));
        let (mut now, mut tries) = (0, 0);
        // A day in the life of a page that is visited once a minute and whose responses could always be stored.
        while now < 24 * 60 * MINUTE {
            pages.answered(b"k", 0, now, Ok(()));
            if pages.step(b"k", 0, now, None) == Step::Render {
                pages.rendered(b"k", 0, now, Err(Pass::SetCookie));
                tries += 1;
            }
            now += MINUTE;
        }
        assert_eq!(tries, 10);
        pages.rendered(b"k", 0, now, Ok(()));
        assert_eq!(pages.step(b"k", 0, now, None), Step::Render);
        pages.rendered(b"k", 0, now, Err(Pass::SetCookie));
        let again = now + FIRST_PAUSE;
        let passed = Step::Pass(Pass::PassedBefore);
        assert_eq!(pages.step(b"k", 0, again - 1, None), passed);
        assert_eq!(pages.step(b"k", 0, again, None), Step::Render);
    }

    #[test]
    fn a_render_that_wrote_to_a_database_is_tried_once_more_and_never_again() {
        let pages = Admission::default();
        let wrote = Err(Pass::DatabaseWrite);
        pages.answered(b"k", 0, 0, Ok(()));
        pages.rendered(b"k", 0, 0, wrote);
        assert_eq!(pages.step(b"k", 0, FIRST_PAUSE, None), Step::Render);
        pages.rendered(b"k", 0, FIRST_PAUSE, wrote);
        pages.answered(b"k", 0, 1 << 50, Ok(()));
        let passed = Step::Pass(Pass::PassedBefore);
        assert_eq!(pages.step(b"k", 0, 1 << 50, None), passed);
        // A new epoch, after a manual purge, starts afresh.
        assert_eq!(pages.step(b"k", 1, 1 << 50, None), Step::Render);
        pages.answered(b"own", 0, 0, Err(Pass::SetCookie));
        assert_eq!(pages.step(b"own", 1, 0, None), Step::Ask);
    }

    #[test]
    fn a_failure_and_a_write_meanwhile_say_nothing_about_the_page() {
        let pages = Admission::default();
        pages.answered(b"k", 0, 0, Ok(()));
        for why in [Pass::ServerError, Pass::OutdatedRender, Pass::FlightFailed] {
            pages.rendered(b"k", 0, 0, Err(why));
            assert_eq!(pages.step(b"k", 0, 0, None), Step::Render, "{why}");
        }
    }
}
