//! Finds out whether any page of a site can be stored. Many applications open a session for every visitor; this is
//! logged, so the administrator knows why the cache stays empty.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use howdah_cache::Pass;
use howdah_cache::pass::PassCounters;
use serde::{Deserialize, Serialize};

/// The message is logged once this many responses have been examined and none of them could be stored.
const MIN_RESPONSES_TO_REPORT: u64 = 20;

/// The counters of visitors' own responses that were examined.
#[derive(Debug, Default)]
pub struct Fitness {
    fit: AtomicU64,
    unfit: AtomicU64,
    why: PassCounters,
    is_reported: AtomicBool,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitnessStatus {
    /// Responses that could have been stored.
    pub fit: u64,
    /// Responses that could not have been stored.
    pub unfit: u64,
    /// The number of responses that could not have been stored, by reason.
    pub why: Vec<(String, u64)>,
}

impl Fitness {
    /// Counts a response, unless its reason is temporary.
    pub fn count(&self, fit: Result<(), Pass>) {
        match fit {
            Ok(()) => self.fit.fetch_add(1, Ordering::Relaxed),
            Err(why) if why.is_temporary() => return,
            Err(why) => {
                self.why.add(why);
                self.unfit.fetch_add(1, Ordering::Relaxed)
            }
        };
    }

    /// Returns the message that no page of the site can be stored. It does so only once, when that has become clear.
    pub fn take_message(&self) -> Option<String> {
        let unfit = self.unfit.load(Ordering::Relaxed);
        if unfit < MIN_RESPONSES_TO_REPORT || self.is_reported.load(Ordering::Relaxed) {
            return None;
        }
        let text = self.status().message()?;
        (!self.is_reported.swap(true, Ordering::Relaxed)).then_some(text)
    }

    /// Returns the current values of the counters.
    pub fn status(&self) -> FitnessStatus {
        FitnessStatus {
            fit: self.fit.load(Ordering::Relaxed),
            unfit: self.unfit.load(Ordering::Relaxed),
            why: self.why.counts(),
        }
    }
}

impl FitnessStatus {
    /// Returns the message that no page of the site can be stored, if that is so.
    pub fn message(&self) -> Option<String> {
        if self.fit > 0 || self.unfit < MIN_RESPONSES_TO_REPORT {
            return None;
        }
        let mut why = self.why.clone();
        why.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        let why: Vec<_> = why.iter().map(|(name, n)| format!("{name} {n}")).collect();
        Some(format!(
            "none of {} responses could be stored ({}): the application creates a personal page for every visitor",
            self.unfit,
            why.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitness_message_is_returned_once_and_only_if_nothing_can_be_stored() {
        let site = Fitness::default();
        for _ in 1..MIN_RESPONSES_TO_REPORT {
            site.count(Err(Pass::SessionOpened));
            site.count(Err(Pass::RunFailed));
        }
        assert_eq!(site.take_message(), None);
        site.count(Err(Pass::SetCookie));
        let said = site.take_message().unwrap();
        assert!(said.contains("(SessionOpened 19, SetCookie 1)"), "{said}");
        assert_eq!(site.take_message(), None);
        assert!(site.status().message().is_some());
        site.count(Ok(()));
        assert_eq!(site.status().message(), None);
    }
}
