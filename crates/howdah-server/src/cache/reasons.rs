//! What the cache of a site remembers for people: why pages were not stored, with the place in the
//! script, and which writes made pages old lately. Bounded, and asked by `howdah cache explain` only:
//! nothing is decided by it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use howdah_cache::tables::MadeOf;
use howdah_cache::{Millis, Pass};

/// Most pages whose reason is remembered.
const MAX_PAGES: usize = 1024;
/// Most different writes.
const MAX_WRITES: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Reasons(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    passed: Pages<(Pass, Arc<str>)>,
    made: Pages<Made>,
    writes: VecDeque<Written>,
}

/// What a page was made of when it was last stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its generation.
    pub born: u64,
    /// Tables, if they are known.
    pub made_of: MadeOf,
    /// Why they are not, with the place.
    pub why: String,
}

/// A map that forgets the oldest of more than [`MAX_PAGES`].
#[derive(Debug)]
struct Pages<T> {
    by_variant: HashMap<Vec<u8>, T>,
    /// Their order of arrival.
    order: VecDeque<Vec<u8>>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Pages {
            by_variant: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<T> Pages<T> {
    fn put(&mut self, variant: &[u8], value: T) {
        if self.by_variant.insert(variant.to_vec(), value).is_some() {
            return;
        }
        self.order.push_back(variant.to_vec());
        if self.order.len() > MAX_PAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_variant.remove(&oldest);
        }
    }
}

/// A write that made pages old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Verb, table and place.
    pub text: String,
    /// How often.
    pub times: u64,
    /// When last.
    pub at: Millis,
}

impl Reasons {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page was not stored: `variant` is its key, `text` what did it.
    pub fn passed(&self, variant: &[u8], pass: Pass, text: &Arc<str>) {
        self.lock().passed.put(variant, (pass, text.clone()));
    }

    /// A page was stored.
    pub fn made(&self, variant: &[u8], made: Made) {
        self.lock().made.put(variant, made);
    }

    /// What the page was made of when it was last stored.
    pub fn made_of(&self, variant: &[u8]) -> Option<Made> {
        self.lock().made.by_variant.get(variant).cloned()
    }

    /// What did it when the page was last not stored, if it was for this reason.
    pub fn why(&self, variant: &[u8], pass: Pass) -> Option<Arc<str>> {
        let inner = self.lock();
        let (known, text) = inner.passed.by_variant.get(variant)?;
        (*known == pass && !text.is_empty()).then(|| text.clone())
    }

    /// Something was written that made the site's pages old.
    pub fn written(&self, text: &str, at: Millis) {
        let mut inner = self.lock();
        let known = inner.writes.iter().position(|w| w.text == text);
        let mut write = known
            .and_then(|place| inner.writes.remove(place))
            .unwrap_or_else(|| Written {
                text: text.to_owned(),
                times: 0,
                at,
            });
        write.times += 1;
        write.at = at;
        inner.writes.push_front(write);
        inner.writes.truncate(MAX_WRITES);
    }

    /// The writes of late, the newest first.
    pub fn writes(&self) -> Vec<Written> {
        self.lock().writes.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_remembered_and_the_oldest_forgotten() {
        let reasons = Reasons::default();
        for n in 0..=MAX_PAGES {
            let text = format!("at {n}").into();
            reasons.passed(n.to_string().as_bytes(), Pass::SetCookie, &text);
        }
        assert_eq!(reasons.why(b"0", Pass::SetCookie), None);
        assert_eq!(reasons.why(b"1", Pass::SetCookie).as_deref(), Some("at 1"));
        assert_eq!(reasons.why(b"1", Pass::NoStore), None);
        for n in 0..40 {
            reasons.written(&format!("INSERT t{}", n % 20), n);
        }
        let writes = reasons.writes();
        assert_eq!(writes.len(), MAX_WRITES);
        assert_eq!((&writes[0].text[..], writes[0].at), ("INSERT t19", 39));
        reasons.written("INSERT t19", 41);
        assert_eq!(reasons.writes()[0].times, writes[0].times + 1);
    }
}
