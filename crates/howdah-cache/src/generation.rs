//! Purges in constant time. Every purge gets a number. A page stores the number that was current *before* its render
//! began, and it is no longer valid once something it belongs to has been purged with a higher number. So a purge
//! touches no page and walks no list, and a render that began before a purge is discarded however late it ends. The
//! comparison uses the page's own birth, never the reader's clock.
//!
//! A [`PurgeRecorder`] records a purge before the purge takes effect, so the purge outlives the process.
//!
//! Memory is bounded: the newest [`MAX_NAMED_PURGES`] purges by name are kept, fewer if their names are long. When
//! there are more, the oldest half is replaced by a purge of the whole site, which purges more than was requested,
//! never less. Names are looked up in a table; only prefixes are compared one by one, so their number is small.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::key::target_of;

mod purge;

pub use purge::{Force, Purge};
pub(crate) use purge::{canonical, without_site};
use purge::{encoded, path_of};

/// Maximum number of purges by tag, URL or path that are remembered individually.
pub const MAX_NAMED_PURGES: usize = 8192;
/// Maximum total bytes of the names of purges, since a client's POST may name a very long URL.
const MAX_NAMED_PURGE_BYTES: usize = 4 << 20;
/// Maximum number of purges by prefix that are remembered individually.
pub const MAX_PREFIX_PURGES: usize = 256;

/// Records purges, so they outlive the process. It is called under the generations' own lock, in the order of the
/// numbers, and before the purge takes effect: no page is ever born with a number that has not been recorded.
pub trait PurgeRecorder: fmt::Debug + Send + Sync {
    /// Records a purge. When this returns, the purge outlives the process.
    fn record(&self, number: u64, what: &Purge, force: Force);

    /// Records whether any database write is in progress. If the process dies meanwhile, the write may have happened
    /// although its purge is not recorded, so all pages of the site are dropped.
    fn record_writes(&self, any: bool);
}

/// Passes purges on to other servers. It is called under the generations' own lock, when the purge takes effect here.
pub trait PurgeRelay: fmt::Debug + Send + Sync {
    /// Called after a purge has been carried out.
    fn relay_purge(&self, what: &Purge, force: Force);
}

/// A write in progress. It is dropped once the pages that the write invalidates have been purged.
#[derive(Debug)]
pub struct WriteInProgress(Arc<Generations>);

impl Drop for WriteInProgress {
    fn drop(&mut self) {
        self.0.update_write_count(|count| count - 1);
    }
}

/// The effect of the purges on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageValidity {
    /// No purge concerns the page.
    Valid,
    /// A soft purge made the page stale: it may be served while a new one is rendered.
    Stale,
    /// A hard purge removed the page: it is never served again.
    Purged,
}

#[derive(Debug, Default, Clone, Copy)]
struct LastPurges {
    hard: u64,
    soft: u64,
}

impl LastPurges {
    fn note(&mut self, force: Force, number: u64) {
        match force {
            Force::Hard => self.hard = self.hard.max(number),
            Force::Soft => self.soft = self.soft.max(number),
        }
    }

    fn validity(self, born: u64) -> PageValidity {
        if self.hard > born {
            PageValidity::Purged
        } else if self.soft > born {
            PageValidity::Stale
        } else {
            PageValidity::Valid
        }
    }
}

#[derive(Clone, Debug, Default)]
struct NamedPurges {
    /// The last purges by name: tags as `t…`, URLs as `u…`, paths as `p…`.
    exact: HashMap<Vec<u8>, LastPurges>,
    /// Total bytes of the names in `exact`.
    bytes: usize,
    prefixes: Vec<(Vec<u8>, LastPurges)>,
}

impl NamedPurges {
    fn note(&mut self, name: Vec<u8>, force: Force, number: u64) {
        let length = name.len();
        let last = self.exact.entry(name).or_insert_with(|| {
            self.bytes += length;
            LastPurges::default()
        });
        last.note(force, number);
    }
}

/// The generations of one site.
#[derive(Debug)]
pub struct Generations {
    /// The number of the last purge.
    clock: AtomicU64,
    last_hard_purge: AtomicU64,
    last_soft_purge: AtomicU64,
    /// The number of the last purge by name. Pages born later need not be compared with names.
    last_named_purge: AtomicU64,
    named: RwLock<NamedPurges>,
    journal: Option<Box<dyn PurgeRecorder>>,
    relay: RwLock<Option<Arc<dyn PurgeRelay>>>,
    /// How many database writes are in progress.
    writes_in_progress: Mutex<u64>,
}

impl Default for Generations {
    fn default() -> Self {
        Generations::starting_at(1)
    }
}

impl Generations {
    /// Creates generations that continue those of a former process: pages born at or after `number` are valid until
    /// they are purged, older ones are not.
    pub fn starting_at(number: u64) -> Generations {
        Generations {
            clock: AtomicU64::new(number),
            last_hard_purge: AtomicU64::new(0),
            last_soft_purge: AtomicU64::new(0),
            last_named_purge: AtomicU64::new(0),
            named: RwLock::default(),
            journal: None,
            relay: RwLock::default(),
            writes_in_progress: Mutex::default(),
        }
    }

    /// Returns a copy of these generations whose purges `journal` records from now on.
    pub fn with_journal(&self, journal: Box<dyn PurgeRecorder>) -> Generations {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::SeqCst));
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        Generations {
            clock: copy(&self.clock),
            last_hard_purge: copy(&self.last_hard_purge),
            last_soft_purge: copy(&self.last_soft_purge),
            last_named_purge: copy(&self.last_named_purge),
            named: RwLock::new(named.clone()),
            journal: Some(journal),
            relay: RwLock::new(self.relay()),
            writes_in_progress: Mutex::default(),
        }
    }

    /// Returns the purges in force, in any order. Together with [`Generations::now`], they are all that is needed to
    /// restore these generations.
    pub(crate) fn purges(&self) -> Vec<(u64, Purge, Force)> {
        let mut purges = Vec::new();
        let mut put = |last: LastPurges, what: &Purge| {
            for (number, force) in [(last.hard, Force::Hard), (last.soft, Force::Soft)] {
                if number > 0 {
                    purges.push((number, what.clone(), force));
                }
            }
        };
        put(self.site_purges(), &Purge::All);
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let path = |text: &[u8], exact| Purge::Path {
            text: encoded(text),
            exact,
        };
        for (name, last) in &named.exact {
            match name.split_first() {
                Some((b'u', key)) => put(*last, &Purge::Url([&[0; 4], key].concat())),
                Some((b'p', text)) => put(*last, &path(text, true)),
                Some((_, tag)) => put(*last, &Purge::Tag(tag.to_vec())),
                None => {}
            }
        }
        for (text, last) in &named.prefixes {
            put(*last, &path(text, false));
        }
        purges
    }

    fn site_purges(&self) -> LastPurges {
        LastPurges {
            hard: self.last_hard_purge.load(Ordering::SeqCst),
            soft: self.last_soft_purge.load(Ordering::SeqCst),
        }
    }

    /// Returns whether a purge of the whole site has invalidated all pages born at `born`, so none of them needs to be
    /// read.
    pub fn all_purged_since(&self, born: u64) -> bool {
        self.last_hard_purge.load(Ordering::SeqCst) > born
    }

    /// Returns the number for a page whose render begins now.
    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Returns [`Generations::now`] if `agrees` returns true. No purge is carried out while `agrees` runs.
    pub fn now_if(&self, agrees: impl FnOnce() -> bool) -> Option<u64> {
        let _no_purge = self.named.read().unwrap_or_else(PoisonError::into_inner);
        agrees().then(|| self.now())
    }

    /// Carries out a purge and returns its number. Once this returns, no request is served a purged page.
    pub fn purge(&self, what: &Purge, force: Force) -> u64 {
        self.apply(what, force, true)
    }

    /// Does the same as [`Generations::purge`], but does not pass the purge on: either another server has passed it on,
    /// or the same purge follows.
    pub fn purge_locally(&self, what: &Purge, force: Force) -> u64 {
        self.apply(what, force, false)
    }

    /// Passes purges on through `relay` from now on, or to no server if it is `None`.
    pub fn set_relay(&self, relay: Option<Arc<dyn PurgeRelay>>) {
        *self.relay.write().unwrap_or_else(PoisonError::into_inner) = relay;
    }

    fn relay(&self) -> Option<Arc<dyn PurgeRelay>> {
        let relay = self.relay.read().unwrap_or_else(PoisonError::into_inner);
        relay.clone()
    }

    fn apply(&self, what: &Purge, force: Force, is_own: bool) -> u64 {
        // The lock is held for `All` as well: a page must not be judged by a later purge while an earlier one has its
        // number but is not in force yet.
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        let number = match &self.journal {
            None => self.clock.fetch_add(1, Ordering::SeqCst) + 1,
            Some(journal) => {
                let number = self.clock.load(Ordering::SeqCst) + 1;
                journal.record(number, what, force);
                number
            }
        };
        self.note(&mut named, number, what, force);
        if is_own && let Some(relay) = self.relay() {
            relay.relay_purge(what, force);
        }
        number
    }

    /// Begins a write. Must be called before anything is written.
    pub fn begin_write(self: &Arc<Self>) -> WriteInProgress {
        self.update_write_count(|count| count + 1);
        WriteInProgress(self.clone())
    }

    fn update_write_count(&self, change: impl FnOnce(u64) -> u64) {
        let Some(journal) = &self.journal else {
            return;
        };
        let mut writes = self
            .writes_in_progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *writes, 0);
        *writes = change(before);
        if (before == 0) != (*writes == 0) {
            journal.record_writes(*writes > 0);
        }
    }

    /// Invalidates all pages born before `number`; the journal has recorded this already.
    pub(crate) fn reset_at(&self, number: u64) {
        self.replay(number, &Purge::All, Force::Hard);
    }

    /// Puts a purge into force that the journal has recorded.
    pub(crate) fn replay(&self, number: u64, what: &Purge, force: Force) {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        self.note(&mut named, number, what, force);
    }

    fn note(&self, named: &mut NamedPurges, number: u64, what: &Purge, force: Force) {
        match what {
            Purge::All => {
                self.site_purge_number(force)
                    .fetch_max(number, Ordering::SeqCst);
            }
            Purge::Url(key) => {
                let name = [b"u", without_site(key)].concat();
                named.note(name, force, number);
            }
            Purge::Tag(tag) => {
                let name = [b"t", &tag[..]].concat();
                named.note(name, force, number);
            }
            Purge::Path { text, exact: true } => {
                let name = [b"p", &*canonical(text)].concat();
                named.note(name, force, number);
            }
            Purge::Path { text, exact: false } => {
                let text = canonical(text);
                let mut last = LastPurges::default();
                let known = named.prefixes.iter().position(|(known, _)| *known == *text);
                if let Some(at) = known {
                    // The prefix moves to the end, because the oldest purges are folded first.
                    (_, last) = named.prefixes.remove(at);
                }
                last.note(force, number);
                named.prefixes.push((text.into_owned(), last));
            }
        }
        if *what != Purge::All {
            self.fold_oldest(named);
            self.last_named_purge.fetch_max(number, Ordering::SeqCst);
        }
        // The clock is set last, so a page can be born with this number only once the whole purge is in force.
        self.clock.fetch_max(number, Ordering::SeqCst);
    }

    fn site_purge_number(&self, force: Force) -> &AtomicU64 {
        match force {
            Force::Hard => &self.last_hard_purge,
            Force::Soft => &self.last_soft_purge,
        }
    }

    /// Makes room by replacing the older half of the purges by name with a purge of the whole site.
    fn fold_oldest(&self, named: &mut NamedPurges) {
        let newest = |last: &LastPurges| last.hard.max(last.soft);
        if named.exact.len() > MAX_NAMED_PURGES || named.bytes > MAX_NAMED_PURGE_BYTES {
            let mut numbers: Vec<u64> = named.exact.values().map(newest).collect();
            let middle = numbers.len() / 2;
            let (_, cut, _) = numbers.select_nth_unstable(middle);
            let cut = *cut;
            self.last_hard_purge.fetch_max(cut, Ordering::SeqCst);
            named.exact.retain(|_, last| newest(last) > cut);
            named.bytes = named.exact.keys().map(Vec::len).sum();
        }
        if named.prefixes.len() > MAX_PREFIX_PURGES {
            let half = named.prefixes.drain(..MAX_PREFIX_PURGES / 2);
            let cut = half.map(|(_, last)| newest(&last)).max().unwrap_or(0);
            self.last_hard_purge.fetch_max(cut, Ordering::SeqCst);
        }
    }

    /// Returns the effect of the purges on a page that was born at `born`, is stored under `key` (the URL's key,
    /// without the variant) and has `tags`.
    pub fn validity_of(&self, born: u64, key: &[u8], tags: &[Vec<u8>]) -> PageValidity {
        let mut verdict = self.site_purges().validity(born);
        if verdict == PageValidity::Purged || self.last_named_purge.load(Ordering::SeqCst) <= born {
            return verdict;
        }
        let mut worse = |next: PageValidity| {
            if (next as u8) > (verdict as u8) {
                verdict = next;
            }
        };
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        // Read again under the lock: a purge by name may have been folded into a purge of the site meanwhile.
        worse(self.site_purges().validity(born));
        let mut name = Vec::with_capacity(key.len() + 1);
        let target = canonical(target_of(key));
        // A purge of a path names either one query or all queries of the path.
        let own = [
            (b'u', without_site(key)),
            (b'p', &target),
            (b'p', path_of(&target)),
        ];
        for (kind, text) in own.into_iter().chain(tags.iter().map(|t| (b't', &t[..]))) {
            name.clear();
            name.push(kind);
            name.extend_from_slice(text);
            if let Some(last) = named.exact.get(&name) {
                worse(last.validity(born));
            }
        }
        for (prefix, last) in &named.prefixes {
            if target.starts_with(prefix) {
                worse(last.validity(born));
            }
        }
        verdict
    }

    /// Returns the number of the last purge by name that is in force. A page that is valid at this number needs to be
    /// compared only with later purges.
    pub fn last_named_purge(&self) -> u64 {
        self.last_named_purge.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn key(target: &str) -> Vec<u8> {
        let mut key = crate::key::PageKey::default();
        let (path, query) = target
            .split_once('?')
            .map_or((target, None), |(p, q)| (p, Some(q)));
        let url = crate::key::Url {
            site: 47,
            https: false,
            host: b"h",
            path: path.as_bytes(),
            query: query.map(str::as_bytes),
        };
        let rules = crate::key::QueryRules {
            drop_tracking: true,
            ignored: &[],
            excluded: &[],
        };
        key.make(&url, &rules).unwrap();
        key.as_bytes().to_vec()
    }

    fn path(text: &str, exact: bool) -> Purge {
        let text = text.as_bytes().to_vec();
        Purge::Path { text, exact }
    }

    fn tags(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|n| n.as_bytes().to_vec()).collect()
    }

    #[test]
    fn page_is_purged_by_url_tag_prefix_or_all() {
        let purges = [
            (Purge::All, true),
            (Purge::Url(key("/a?b")), true),
            (Purge::Url(key("/a")), false),
            (path("/", false), true),
            (path("/a", false), true),
            (path("/a", true), true),
            (path("/a?b", true), true),
            (path("/", true), false),
            (path("/a/", false), false),
            (Purge::Tag(b"post-1".to_vec()), true),
            (Purge::Tag(b"/a".to_vec()), false),
        ];
        for (purge, hit) in purges {
            let generations = Generations::default();
            let born = generations.now();
            assert_eq!(
                generations.validity_of(born, &key("/a?b"), &tags(&["post-1"])),
                PageValidity::Valid
            );
            generations.purge(&purge, Force::Hard);
            let expected = if hit {
                PageValidity::Purged
            } else {
                PageValidity::Valid
            };
            assert_eq!(
                generations.validity_of(born, &key("/a?b"), &tags(&["post-1"])),
                expected,
                "{purge:?}"
            );
            let after = generations.now();
            assert_eq!(
                generations.validity_of(after, &key("/a?b"), &tags(&["post-1"])),
                PageValidity::Valid
            );
        }
    }

    #[test]
    fn long_names_are_folded_by_their_bytes() {
        let generations = Generations::default();
        let born = generations.now();
        for n in 0..2000 {
            let name = format!("{n:010000}").into_bytes();
            generations.purge(&Purge::Tag(name), Force::Hard);
        }
        let named = generations.named.read().unwrap();
        let bytes: usize = named.exact.keys().map(Vec::len).sum();
        assert_eq!(bytes, named.bytes);
        assert!(bytes <= MAX_NAMED_PURGE_BYTES, "{bytes}");
        drop(named);
        // More is purged than was requested, never less.
        assert_eq!(
            generations.validity_of(born, &key("/a"), &[]),
            PageValidity::Purged
        );
        let after = generations.now();
        assert_eq!(
            generations.validity_of(after, &key("/a"), &[]),
            PageValidity::Valid
        );
    }

    #[test]
    fn a_render_that_began_before_a_purge_is_outdated_when_it_ends() {
        let generations = Generations::default();
        let born = generations.now();
        generations.purge(&Purge::All, Force::Hard);
        assert_eq!(
            generations.validity_of(born, b"/a", &[]),
            PageValidity::Purged
        );
    }

    #[test]
    fn exported_purges_replay_to_the_same_state() {
        let generations = Generations::default();
        let born = generations.now();
        for what in [
            Purge::Url(key("/url?a%20b")),
            Purge::Tag(b"tag".to_vec()),
            path("/exact%2541", true),
            path("/query?x%41", true),
            path("/prefix%25/", false),
        ] {
            generations.purge(&what, Force::Soft);
        }
        let again = Generations::starting_at(generations.now());
        for _ in 0..2 {
            for (number, what, force) in generations.purges() {
                again.replay(number, &what, force);
            }
        }
        for target in [
            "/url?a%20b",
            "/exact%2541",
            "/query?x%41",
            "/prefix%25/x",
            "/none",
            "/exactA",
            "/query?xA",
        ] {
            let expected = generations.validity_of(born, &key(target), &[]);
            assert_eq!(
                again.validity_of(born, &key(target), &[]),
                expected,
                "{target}"
            );
        }
        assert_eq!(
            again.validity_of(born, &key("/exact%2541"), &[]),
            PageValidity::Stale
        );
        assert_eq!(again.purges().len(), generations.purges().len());
    }

    #[test]
    fn a_soft_purge_makes_stale_and_a_hard_one_goes_before_it() {
        let generations = Generations::default();
        let born = generations.now();
        generations.purge(&Purge::Tag(b"t".to_vec()), Force::Soft);
        assert_eq!(
            generations.validity_of(born, b"/a", &tags(&["t"])),
            PageValidity::Stale
        );
        generations.purge(&Purge::Url(b"/a".to_vec()), Force::Hard);
        assert_eq!(
            generations.validity_of(born, b"/a", &tags(&["t"])),
            PageValidity::Purged
        );
    }

    #[test]
    fn purged_page_stays_purged_while_names_are_folded() {
        let generations = Generations::default();
        let born = generations.now();
        generations.purge(&Purge::Tag(b"post-1".to_vec()), Force::Hard);
        let reads = AtomicU64::new(0);
        let ended = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                let (key, tags) = (key("/a"), tags(&["post-1"]));
                while !ended.load(Ordering::SeqCst) {
                    let validity = generations.validity_of(born, &key, &tags);
                    assert_eq!(validity, PageValidity::Purged);
                    reads.fetch_add(1, Ordering::SeqCst);
                }
            });
            // The reader waits for the lock while the tag is folded, and has read the purges of the site before.
            while reads.load(Ordering::SeqCst) == 0 && !reader.is_finished() {
                std::thread::yield_now();
            }
            for n in 0..=MAX_NAMED_PURGES {
                generations.purge(&Purge::Tag(n.to_string().into_bytes()), Force::Hard);
            }
            ended.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn too_many_purges_purge_more_and_never_less() {
        let generations = Generations::default();
        let born = generations.now();
        let name = |n: usize| format!("tag{n}").into_bytes();
        for n in 0..=MAX_NAMED_PURGES {
            generations.purge(&Purge::Tag(name(n)), Force::Hard);
        }
        for n in 0..MAX_PREFIX_PURGES + 2 {
            generations.purge(&path(&format!("/{n}"), false), Force::Hard);
        }
        for n in [0, 1, MAX_NAMED_PURGES / 2, MAX_NAMED_PURGES] {
            assert_eq!(
                generations.validity_of(born, b"/a", &[name(n)]),
                PageValidity::Purged,
                "{n}"
            );
        }
        let named = generations.named.read().unwrap();
        assert!(named.exact.len() <= MAX_NAMED_PURGES && named.prefixes.len() <= MAX_PREFIX_PURGES);
    }

    #[test]
    fn path_purge_ignores_how_letters_are_escaped() {
        for (purge, target) in [
            (path("/%C3%A4/", true), "/%c3%a4/"),
            (path("/\u{e4}/", true), "/%c3%a4/?x=1"),
            (path("/%61", false), "/abc"),
            (path("/a", true), "/%61?q=%41"),
            (path("/%zz%4", true), "/%zz%4"),
        ] {
            let generations = Generations::default();
            let born = generations.now();
            generations.purge(&purge, Force::Hard);
            let verdict = generations.validity_of(born, &key(target), &[]);
            assert_eq!(verdict, PageValidity::Purged, "{purge:?} {target}");
        }
    }
}
