//! Purges in constant time. Every purge gets a number; a page remembers the number of the moment
//! *before* it began to be rendered, and is no longer valid when something it belongs to was purged
//! with a higher one. So a purge touches no page, finds no list, and a render that began before a
//! purge is discarded however late it ends. The comparison is with the page's own birth, never with
//! the reader's clock.
//!
//! A [`Journal`] records a purge before the purge counts, so that it outlives the process.
//!
//! Bounded: the newest [`MAX_NAMED`] purges by name are kept, fewer if their names are long; when there
//! are more, the oldest half is folded into the site's own epoch, which purges more than was asked,
//! never less. Names are looked up in a table; only prefixes are gone through one by one, so they are
//! few.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::key::target_of;

/// How many purges by tag, URL or prefix are remembered singly, at most.
pub const MAX_NAMED: usize = 8192;
/// How many bytes the names of purges may take together: a client's POST may name a very long URL.
const MAX_NAMED_BYTES: usize = 4 << 20;
/// How many purges by prefix are remembered singly, at most.
pub const MAX_PREFIXES: usize = 256;

/// Which pages a purge concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    /// All pages of the site.
    All,
    /// One URL, all its variants: the key ([`crate::key::Key::as_bytes`]).
    Url(Vec<u8>),
    /// A path of the site, whatever host and scheme, with all its queries; or all that begin so.
    /// `/%C3%A4`, `/%c3%a4` and the bytes themselves are one path.
    Path {
        /// The path, percent-encoded or not; a query may follow.
        text: Vec<u8>,
        /// Whether only this path is purged; otherwise every path that begins with `text` is.
        exact: bool,
    },
    /// All pages that have this tag.
    Tag(Vec<u8>),
}

/// Whether purged pages may still be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// No purged page is served again.
    Hard,
    /// A purged page is stale: it may be served while a new one is rendered, and when that fails.
    Soft,
}

/// Writes purges down, so that they outlive the process. Called under the generations' own lock, in the
/// order of the numbers, and before the purge counts: no page is ever born with a number that is not
/// written down.
pub trait Journal: fmt::Debug + Send + Sync {
    /// Writes a purge down; when this returns, it outlives the process.
    fn record(&self, number: u64, what: &Purge, force: Force);

    /// Writes down whether any write is under way. One that is when the process dies may be done or
    /// not, and its purge was not: after that nothing of the site is believed.
    fn under_way(&self, any: bool);
}

/// A write in progress; dropping this marks its end, when the pages that it invalidates are purged.
#[derive(Debug)]
pub struct UnderWay(Arc<Generations>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.count_writes(|count| count - 1);
    }
}

/// What a purge made of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// No purge concerns the page.
    Valid,
    /// A soft purge made the page stale: it may be served while a new one is rendered.
    Stale,
    /// A hard purge removed the page: it is never served again.
    Gone,
}

#[derive(Debug, Default, Clone, Copy)]
struct Last {
    hard: u64,
    soft: u64,
}

impl Last {
    fn note(&mut self, force: Force, number: u64) {
        match force {
            Force::Hard => self.hard = self.hard.max(number),
            Force::Soft => self.soft = self.soft.max(number),
        }
    }

    fn judge(self, born: u64) -> Validity {
        if self.hard > born {
            Validity::Gone
        } else if self.soft > born {
            Validity::Stale
        } else {
            Validity::Valid
        }
    }
}

/// A URL's key without the number of its site, which may be another after a reload or a start.
pub(crate) fn without_site(key: &[u8]) -> &[u8] {
    match key {
        [_, _, _, _, rest @ ..] if rest.len() > 1 => rest,
        short => short,
    }
}

#[derive(Clone, Debug, Default)]
struct Named {
    /// Tags as `t…`, URLs as `u…`, paths as `p…`.
    exact: HashMap<Vec<u8>, Last>,
    /// How many bytes the names in `exact` have.
    bytes: usize,
    prefixes: Vec<(Vec<u8>, Last)>,
}

impl Named {
    fn note(&mut self, name: Vec<u8>, force: Force, number: u64) {
        let length = name.len();
        let last = self.exact.entry(name).or_insert_with(|| {
            self.bytes += length;
            Last::default()
        });
        last.note(force, number);
    }
}

/// The form in which targets are compared: the path's escapes decoded, the query as it is. No two
/// paths that are stored become one by it: an encoded slash, `?` or control character is never cached.
pub(crate) fn canonical(target: &[u8]) -> Cow<'_, [u8]> {
    let path = path_of(target);
    if !path.contains(&b'%') {
        return Cow::Borrowed(target);
    }
    let mut out = Vec::with_capacity(target.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let escape = after.get(..2).filter(|_| *first == b'%');
        match escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out.extend_from_slice(&target[path.len()..]);
    Cow::Owned(out)
}

/// A target whose canonical form is `canonical`.
fn encoded(canonical: &[u8]) -> Vec<u8> {
    let path = path_of(canonical);
    let mut out = Vec::with_capacity(canonical.len());
    for byte in path {
        match byte {
            b'%' => out.extend_from_slice(b"%25"),
            other => out.push(*other),
        }
    }
    out.extend_from_slice(&canonical[path.len()..]);
    out
}

/// A target without its query.
fn path_of(target: &[u8]) -> &[u8] {
    target.split(|b| *b == b'?').next().unwrap_or_default()
}

impl Purge {
    /// Whether this purge means a page of its site, with this key and these tags.
    pub fn names(&self, url_key: &[u8], tags: &[Vec<u8>]) -> bool {
        let target = canonical(target_of(url_key));
        match self {
            Purge::All => true,
            Purge::Url(key) => without_site(key) == without_site(url_key),
            Purge::Tag(tag) => tags.contains(tag),
            Purge::Path { text, exact: true } => {
                let text = canonical(text);
                *text == *target || *text == *path_of(&target)
            }
            Purge::Path { text, exact: false } => target.starts_with(&canonical(text)),
        }
    }
}

impl fmt::Display for Purge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purge::All => f.write_str("everything"),
            Purge::Url(key) => write!(f, "{}", key.escape_ascii()),
            Purge::Tag(tag) => write!(f, "tag {}", tag.escape_ascii()),
            Purge::Path { text, exact } => {
                let star = if *exact { "" } else { "*" };
                write!(f, "{}{star}", text.escape_ascii())
            }
        }
    }
}

/// The generations of one site.
#[derive(Debug)]
pub struct Generations {
    /// The number of the last purge.
    clock: AtomicU64,
    hard: AtomicU64,
    soft: AtomicU64,
    /// The number of the last purge by name: pages born later need not ask.
    named_last: AtomicU64,
    named: RwLock<Named>,
    journal: Option<Box<dyn Journal>>,
    /// How many database writes are in progress.
    writes: Mutex<u64>,
}

impl Default for Generations {
    fn default() -> Self {
        Generations::starting_at(1)
    }
}

impl Generations {
    /// With a clock that goes on from where a former process was: pages born at or after `number` are
    /// valid until they are purged, older ones are gone.
    pub fn starting_at(number: u64) -> Generations {
        Generations {
            clock: AtomicU64::new(number),
            hard: AtomicU64::new(0),
            soft: AtomicU64::new(0),
            named_last: AtomicU64::new(0),
            named: RwLock::default(),
            journal: None,
            writes: Mutex::default(),
        }
    }

    /// As these are, with every purge written down from now on.
    pub fn continued(&self, journal: Box<dyn Journal>) -> Generations {
        let copy = |number: &AtomicU64| AtomicU64::new(number.load(Ordering::SeqCst));
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        Generations {
            clock: copy(&self.clock),
            hard: copy(&self.hard),
            soft: copy(&self.soft),
            named_last: copy(&self.named_last),
            named: RwLock::new(named.clone()),
            journal: Some(journal),
            writes: Mutex::default(),
        }
    }

    /// Everything that makes these what they are, as purges in no order; beside [`Generations::now`].
    pub(crate) fn purges(&self) -> Vec<(u64, Purge, Force)> {
        let mut purges = Vec::new();
        let mut put = |last: Last, what: &Purge| {
            for (number, force) in [(last.hard, Force::Hard), (last.soft, Force::Soft)] {
                if number > 0 {
                    purges.push((number, what.clone(), force));
                }
            }
        };
        put(self.site_last(), &Purge::All);
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

    fn site_last(&self) -> Last {
        Last {
            hard: self.hard.load(Ordering::SeqCst),
            soft: self.soft.load(Ordering::SeqCst),
        }
    }

    /// Whether everything of the site born then is gone; a page of it need not be read to know that.
    pub fn are_all_gone(&self, born: u64) -> bool {
        self.hard.load(Ordering::SeqCst) > born
    }

    /// The number a page is born with. To be taken before it begins to be rendered.
    pub fn now(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    /// Carries out a purge, and gives its number. When this returns, no request is served what was
    /// purged.
    pub fn purge(&self, what: &Purge, force: Force) -> u64 {
        // Held for `All` as well: a page must not be judged by a later purge while an earlier one has
        // its number and is not yet in force.
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
        number
    }

    /// A write begins. To be called before the first thing is written.
    pub fn write_begins(self: &Arc<Self>) -> UnderWay {
        self.count_writes(|count| count + 1);
        UnderWay(self.clone())
    }

    fn count_writes(&self, change: impl FnOnce(u64) -> u64) {
        let Some(journal) = &self.journal else {
            return;
        };
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *writes, 0);
        *writes = change(before);
        if (before == 0) != (*writes == 0) {
            journal.under_way(*writes > 0);
        }
    }

    /// Everything born before `number` is gone, as it is written down already.
    pub(crate) fn reset_at(&self, number: u64) {
        self.replay(number, &Purge::All, Force::Hard);
    }

    /// A purge that was written down is in force again.
    pub(crate) fn replay(&self, number: u64, what: &Purge, force: Force) {
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        self.note(&mut named, number, what, force);
    }

    fn note(&self, named: &mut Named, number: u64, what: &Purge, force: Force) {
        match what {
            Purge::All => {
                self.site(force).fetch_max(number, Ordering::SeqCst);
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
                let mut last = Last::default();
                let known = named.prefixes.iter().position(|(known, _)| *known == *text);
                if let Some(at) = known {
                    // To the end: the oldest are folded first.
                    (_, last) = named.prefixes.remove(at);
                }
                last.note(force, number);
                named.prefixes.push((text.into_owned(), last));
            }
        }
        if *what != Purge::All {
            self.fold(named);
            self.named_last.fetch_max(number, Ordering::SeqCst);
        }
        // Last: who is born with this number was born when all of it was in force.
        self.clock.fetch_max(number, Ordering::SeqCst);
    }

    fn site(&self, force: Force) -> &AtomicU64 {
        match force {
            Force::Hard => &self.hard,
            Force::Soft => &self.soft,
        }
    }

    /// Makes room by replacing the older half of the purges by name with a purge of the whole site.
    fn fold(&self, named: &mut Named) {
        let newest = |last: &Last| last.hard.max(last.soft);
        if named.exact.len() > MAX_NAMED || named.bytes > MAX_NAMED_BYTES {
            let mut numbers: Vec<u64> = named.exact.values().map(newest).collect();
            let middle = numbers.len() / 2;
            let (_, cut, _) = numbers.select_nth_unstable(middle);
            let cut = *cut;
            self.hard.fetch_max(cut, Ordering::SeqCst);
            named.exact.retain(|_, last| newest(last) > cut);
            named.bytes = named.exact.keys().map(Vec::len).sum();
        }
        if named.prefixes.len() > MAX_PREFIXES {
            let half = named.prefixes.drain(..MAX_PREFIXES / 2);
            let cut = half.map(|(_, last)| newest(&last)).max().unwrap_or(0);
            self.hard.fetch_max(cut, Ordering::SeqCst);
        }
    }

    /// What became of a page that was born at `born`, is stored under `key` (the URL's, without
    /// variant) and has `tags`.
    pub fn judge(&self, born: u64, key: &[u8], tags: &[Vec<u8>]) -> Validity {
        let mut verdict = self.site_last().judge(born);
        if verdict == Validity::Gone || self.named_last.load(Ordering::SeqCst) <= born {
            return verdict;
        }
        let mut worse = |next: Validity| {
            if (next as u8) > (verdict as u8) {
                verdict = next;
            }
        };
        let named = self.named.read().unwrap_or_else(PoisonError::into_inner);
        let mut name = Vec::with_capacity(key.len() + 1);
        let target = canonical(target_of(key));
        // A purge of a path with its query, and one of the path with all its queries.
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
                worse(last.judge(born));
            }
        }
        for (prefix, last) in &named.prefixes {
            if target.starts_with(prefix) {
                worse(last.judge(born));
            }
        }
        verdict
    }

    /// The number of the last purge by name that is in force: who judged a page valid after asking
    /// this may judge it as one born then.
    pub fn named_last(&self) -> u64 {
        self.named_last.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: &str) -> Vec<u8> {
        let mut key = crate::key::Key::default();
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
            never: &[],
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
    fn a_page_is_gone_when_it_its_tag_its_prefix_or_all_was_purged_after_its_birth() {
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
                generations.judge(born, &key("/a?b"), &tags(&["post-1"])),
                Validity::Valid
            );
            generations.purge(&purge, Force::Hard);
            let expected = if hit { Validity::Gone } else { Validity::Valid };
            assert_eq!(
                generations.judge(born, &key("/a?b"), &tags(&["post-1"])),
                expected,
                "{purge:?}"
            );
            let after = generations.now();
            assert_eq!(
                generations.judge(after, &key("/a?b"), &tags(&["post-1"])),
                Validity::Valid
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
        assert!(bytes <= MAX_NAMED_BYTES, "{bytes}");
        drop(named);
        // More is purged than was asked, never less.
        assert_eq!(generations.judge(born, &key("/a"), &[]), Validity::Gone);
        let after = generations.now();
        assert_eq!(generations.judge(after, &key("/a"), &[]), Validity::Valid);
    }

    #[test]
    fn a_render_that_began_before_a_purge_is_outdated_when_it_ends() {
        let generations = Generations::default();
        let born = generations.now();
        generations.purge(&Purge::All, Force::Hard);
        assert_eq!(generations.judge(born, b"/a", &[]), Validity::Gone);
    }

    #[test]
    fn purges_told_and_replayed_are_in_force_as_before() {
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
            let expected = generations.judge(born, &key(target), &[]);
            assert_eq!(again.judge(born, &key(target), &[]), expected, "{target}");
        }
        assert_eq!(again.judge(born, &key("/exact%2541"), &[]), Validity::Stale);
        assert_eq!(again.purges().len(), generations.purges().len());
    }

    #[test]
    fn a_soft_purge_makes_stale_and_a_hard_one_goes_before_it() {
        let generations = Generations::default();
        let born = generations.now();
        generations.purge(&Purge::Tag(b"t".to_vec()), Force::Soft);
        assert_eq!(
            generations.judge(born, b"/a", &tags(&["t"])),
            Validity::Stale
        );
        generations.purge(&Purge::Url(b"/a".to_vec()), Force::Hard);
        assert_eq!(
            generations.judge(born, b"/a", &tags(&["t"])),
            Validity::Gone
        );
    }

    #[test]
    fn more_purges_than_are_remembered_purge_more_and_never_less() {
        let generations = Generations::default();
        let born = generations.now();
        let name = |n: usize| format!("tag{n}").into_bytes();
        for n in 0..=MAX_NAMED {
            generations.purge(&Purge::Tag(name(n)), Force::Hard);
        }
        for n in 0..MAX_PREFIXES + 2 {
            generations.purge(&path(&format!("/{n}"), false), Force::Hard);
        }
        for n in [0, 1, MAX_NAMED / 2, MAX_NAMED] {
            assert_eq!(
                generations.judge(born, b"/a", &[name(n)]),
                Validity::Gone,
                "{n}"
            );
        }
        let named = generations.named.read().unwrap();
        assert!(named.exact.len() <= MAX_NAMED && named.prefixes.len() <= MAX_PREFIXES);
    }

    #[test]
    fn a_path_is_the_same_however_its_letters_are_escaped() {
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
            let verdict = generations.judge(born, &key(target), &[]);
            assert_eq!(verdict, Validity::Gone, "{purge:?} {target}");
        }
    }
}
