//! What `howdah cache explain` reports about a site: why pages were not stored, with the place in the script, and which
//! writes invalidated pages recently. The records are bounded, and no decision depends on them.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use howdah_cache::{Millis, Pass};

/// The maximum number of pages whose reason is remembered.
const MAX_PAGES: usize = 1024;
/// The maximum number of different writes that are remembered.
const MAX_WRITES: usize = 16;
/// The maximum number of cookie names that are remembered, and the maximum length of a name in characters.
const MAX_COOKIES: usize = 16;
const MAX_COOKIE_NAME_CHARS: usize = 64;

/// The recent history of a site for `howdah cache explain`.
#[derive(Debug, Default)]
pub struct CacheReasons {
    inner: Mutex<Inner>,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Inner {
    /// Reasons by the hashes of the variants' keys, because clients can make keys very long. Two keys with the same
    /// hash would show the wrong reason, which hardly ever happens.
    unstored: HashMap<u64, UnstoredReason>,
    /// The keys of `unstored`, oldest first.
    order: VecDeque<u64>,
    writes: VecDeque<WriteRecord>,
    cookies: Vec<(String, u64)>,
}

/// Why a page was last not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstoredReason {
    /// The policy's reason.
    pub pass: Pass,
    /// What the script did, and where; empty if that is unknown.
    pub text: Arc<str>,
    /// When the page was last not stored.
    pub at: Millis,
}

/// A write that invalidated pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRecord {
    /// The SQL verb, the table, and the place in the script.
    pub text: String,
    /// How often this write happened.
    pub times: u64,
    /// When this write happened last.
    pub at: Millis,
}

impl CacheReasons {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, variant: &[u8]) -> u64 {
        self.hasher.hash_one(variant)
    }

    /// Records that a page was not stored. `variant` is its key, `text` describes the cause.
    pub fn record_unstored(&self, variant: &[u8], pass: Pass, text: &Arc<str>) {
        let passed = UnstoredReason {
            pass,
            text: text.clone(),
            at: super::now(),
        };
        let variant = self.hash(variant);
        let mut inner = self.lock();
        if inner.unstored.insert(variant, passed).is_some() {
            return;
        }
        inner.order.push_back(variant);
        if inner.order.len() > MAX_PAGES
            && let Some(oldest) = inner.order.pop_front()
        {
            inner.unstored.remove(&oldest);
        }
    }

    /// Forgets why the page was not stored, because it has been stored now.
    pub fn forget_unstored(&self, variant: &[u8]) {
        self.lock().unstored.remove(&self.hash(variant));
    }

    /// Returns why the page was last not stored, unless it has been stored since.
    pub fn last_unstored(&self, variant: &[u8]) -> Option<UnstoredReason> {
        self.lock().unstored.get(&self.hash(variant)).cloned()
    }

    /// Counts a request that bypassed the cache because of an unknown cookie. If there are too many names, the new name
    /// replaces the one with the lowest count and inherits its count, so frequent names stay.
    pub fn count_cookie(&self, name: &str) {
        let name: String = name.chars().take(MAX_COOKIE_NAME_CHARS).collect();
        let mut inner = self.lock();
        let cookies = &mut inner.cookies;
        if let Some((_, times)) = cookies.iter_mut().find(|(known, _)| *known == name) {
            *times += 1;
        } else if cookies.len() < MAX_COOKIES {
            cookies.push((name, 1));
        } else if let Some(least) = cookies.iter_mut().min_by_key(|(_, times)| *times) {
            *least = (name, least.1 + 1);
        }
    }

    /// Returns the names of unknown cookies with their approximate counts, the most frequent first.
    pub fn cookies(&self) -> Vec<(String, u64)> {
        let mut cookies = self.lock().cookies.clone();
        cookies.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        cookies
    }

    /// Records that a write invalidated the site's pages.
    pub fn record_write(&self, text: &str, at: Millis) {
        let mut inner = self.lock();
        let known = inner.writes.iter().position(|w| w.text == text);
        let mut write = known
            .and_then(|place| inner.writes.remove(place))
            .unwrap_or_else(|| WriteRecord {
                text: text.to_owned(),
                times: 0,
                at,
            });
        write.times += 1;
        write.at = at;
        inner.writes.push_front(write);
        inner.writes.truncate(MAX_WRITES);
    }

    /// Returns the recent writes, the newest first.
    pub fn writes(&self) -> Vec<WriteRecord> {
        self.lock().writes.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_remember_the_newest_and_forget_the_oldest() {
        let reasons = CacheReasons::default();
        for n in 0..=MAX_PAGES {
            let text = format!("at {n}").into();
            reasons.record_unstored(n.to_string().as_bytes(), Pass::SetCookie, &text);
        }
        assert_eq!(reasons.last_unstored(b"0"), None);
        let known = reasons.last_unstored(b"1").unwrap();
        assert_eq!((known.pass, &*known.text), (Pass::SetCookie, "at 1"));
        for n in 0..40 {
            reasons.record_write(&format!("INSERT t{}", n % 20), n);
        }
        let writes = reasons.writes();
        assert_eq!(writes.len(), MAX_WRITES);
        assert_eq!((&writes[0].text[..], writes[0].at), ("INSERT t19", 39));
        reasons.record_write("INSERT t19", 41);
        assert_eq!(reasons.writes()[0].times, writes[0].times + 1);
    }

    #[test]
    fn frequent_cookie_names_stay_whatever_else_clients_send() {
        let reasons = CacheReasons::default();
        for n in 0..1000 {
            reasons.count_cookie("colour");
            reasons.count_cookie(&format!("junk {n}"));
        }
        let cookies = reasons.cookies();
        assert_eq!(cookies[0], ("colour".to_owned(), 1000));
        assert_eq!(cookies.len(), MAX_COOKIES);
    }
}
