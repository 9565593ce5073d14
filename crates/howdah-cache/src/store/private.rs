//! Private pages: responses that are stored for one visitor alone, in memory only. This module does not decide what may
//! be stored; it keeps the pages within bounds and forgets them.
//!
//! A page belongs to every cookie that identified its visitor ([`VisitorToken`]), so a write by a request that has one of
//! these cookies reaches it, also if the browser sends some of them for certain paths only. A run that may become a page
//! takes a [`PrivateRender`] before it starts. If the visitor writes, logs out or is purged meanwhile, the render is
//! outdated, however late it ends.
//!
//! The bytes are a budget of their own, so private pages never evict public ones. When it is full, the page that was not
//! used for the longest time is evicted; when a visitor has too much, it is a page of the same visitor.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Millis;
use crate::generation::{Generations, PageValidity, Purge};
use crate::object::Object;
use crate::pass::Pass;
use crate::policy::PageState;
use crate::visitor::{VisitorKey, VisitorToken};

/// The maximum number of pages of one visitor.
pub const MAX_PAGES_PER_VISITOR: usize = 256;
/// The part of the capacity that one visitor may use: one in this many.
const VISITOR_SHARE: u64 = 16;
/// Estimated bytes of the structures around a page, besides those of the page itself and its keys.
const ENTRY_OVERHEAD_BYTES: u64 = 512;

/// The private pages of all sites and visitors of a process.
#[derive(Debug, Default)]
pub struct PrivateStore {
    /// The secret by which visitors and requests are hashed.
    pub key: VisitorKey,
    state: Mutex<StoreState>,
}

#[derive(Default)]
struct StoreState {
    capacity: u64,
    bytes: u64,
    evictions: u64,
    /// Counts configurations. Each has pages of its own.
    configuration: u64,
    /// Counts uses of pages, and writes of visitors.
    clock: u64,
    pages: HashMap<Arc<[u8]>, Entry>,
    /// The keys of `pages` in the order of their last use.
    by_use: BTreeMap<u64, Arc<[u8]>>,
    visitors: HashMap<VisitorToken, VisitorState>,
}

/// What the store knows of a visitor by one cookie. It is there while the visitor has pages or renders.
#[derive(Default)]
struct VisitorState {
    /// The time of the last write, logout or purge.
    forgotten_at: u64,
    renders: usize,
    bytes: u64,
    pages: HashSet<Arc<[u8]>>,
}

struct Entry {
    page: Arc<Object>,
    visitor: Box<[VisitorToken]>,
    used_at: u64,
    bytes: u64,
}

impl fmt::Debug for StoreState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreState")
            .field("pages", &self.pages.len())
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// A run whose response may become a page of its visitor.
#[derive(Debug)]
pub struct PrivateRender {
    store: Arc<PrivateStore>,
    visitor: Box<[VisitorToken]>,
    begun_at: u64,
}

impl PrivateRender {
    /// Returns whether the visitor has written, logged out or been purged since the run began.
    pub fn is_outdated(&self) -> bool {
        self.store.lock().is_outdated(self)
    }
}

impl Drop for PrivateRender {
    fn drop(&mut self) {
        let mut state = self.store.lock();
        for token in &self.visitor {
            if let Some(visitor) = state.visitors.get_mut(token) {
                visitor.renders -= 1;
            }
            state.drop_visitor_if_unused(*token);
        }
    }
}

/// How full the store is, for the status page and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrivateUsage {
    /// The number of pages.
    pub pages: u64,
    /// The bytes that the pages use at most, with their encoded forms.
    pub bytes: u64,
    /// The maximum of these bytes.
    pub capacity: u64,
    /// Pages that were evicted to make room for others.
    pub evictions: u64,
}

impl PrivateStore {
    fn lock(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a new configuration, which may bring new code: all pages are forgotten. Returns the number of the
    /// configuration, which is part of its keys.
    pub fn begin_configuration(&self, capacity: u64) -> u64 {
        let mut state = self.lock();
        state.capacity = capacity;
        state.configuration += 1;
        let keys: Vec<_> = state.pages.keys().cloned().collect();
        for key in keys {
            state.remove(&key);
        }
        state.configuration
    }

    /// Returns the longest body that may fit, in bytes.
    pub fn max_body_bytes(&self) -> u64 {
        self.lock().capacity / VISITOR_SHARE
    }

    /// Records that a run for this visitor begins. Call it before PHP starts.
    pub fn begin_render(self: &Arc<Self>, visitor: &[VisitorToken]) -> PrivateRender {
        let mut state = self.lock();
        for token in visitor {
            state.visitors.entry(*token).or_default().renders += 1;
        }
        PrivateRender {
            store: self.clone(),
            visitor: visitor.into(),
            begun_at: state.clock,
        }
    }

    /// Returns the page under a key, if it is fresh.
    pub fn find(&self, key: &[u8], generations: &Generations, now: Millis) -> Option<Arc<Object>> {
        let mut state = self.lock();
        let page = state.pages.get(key)?.page.clone();
        if page.state(generations, now) != Some(PageState::Fresh) {
            state.remove(key);
            return None;
        }
        state.touch(key);
        Some(page)
    }

    /// Stores the page of a render.
    ///
    /// # Errors
    /// The page is too large, or it was outdated before it was complete.
    pub fn store(
        &self,
        render: &PrivateRender,
        key: &[u8],
        page: Object,
        generations: &Generations,
    ) -> Result<(), Pass> {
        let mut state = self.lock();
        let validity = generations.validity_of(page.born, &page.url_key, &page.tags);
        if state.is_outdated(render) || validity != PageValidity::Valid {
            return Err(Pass::OutdatedRender);
        }
        let bytes = entry_bytes(&page, key, &render.visitor);
        if bytes > state.capacity / VISITOR_SHARE {
            return Err(Pass::TooLarge);
        }
        state.remove(key);
        state.insert(key.into(), Arc::new(page), &render.visitor, bytes);
        state.evict(&render.visitor);
        Ok(())
    }

    /// Forgets everything of a visitor, because the visitor has written or logged out. Renders in progress are outdated.
    pub fn forget(&self, visitor: &[VisitorToken]) {
        self.purge(visitor, &[Purge::All]);
    }

    /// Forgets what these purges name among the pages of a visitor. Renders in progress are outdated.
    pub fn purge(&self, visitor: &[VisitorToken], purges: &[Purge]) {
        let mut state = self.lock();
        state.clock += 1;
        let now = state.clock;
        for token in visitor {
            let Some(known) = state.visitors.get_mut(token) else {
                continue;
            };
            known.forgotten_at = now;
            let keys: Vec<_> = known.pages.iter().cloned().collect();
            for key in keys {
                let concerns = |entry: &Entry| {
                    let mut purges = purges.iter();
                    purges.any(|purge| purge.concerns(&entry.page.url_key, &entry.page.tags))
                };
                if state.pages.get(&key).is_some_and(concerns) {
                    state.remove(&key);
                }
            }
        }
    }

    /// Returns the pages of a visitor, for explanations.
    pub fn pages_of(&self, visitor: &[VisitorToken]) -> Vec<Arc<Object>> {
        let state = self.lock();
        let first = visitor.first().and_then(|token| state.visitors.get(token));
        let keys = first.into_iter().flat_map(|visitor| &visitor.pages);
        keys.filter_map(|key| Some(state.pages.get(key)?.page.clone()))
            .collect()
    }

    /// Returns the figures for the status page and the metrics.
    pub fn usage(&self) -> PrivateUsage {
        let state = self.lock();
        PrivateUsage {
            pages: state.pages.len() as u64,
            bytes: state.bytes,
            capacity: state.capacity,
            evictions: state.evictions,
        }
    }
}

/// Returns the bytes that a page uses at most. The encoded forms of a page, or the compressed texts between its ESI tags,
/// are together not longer than its body and these texts.
fn entry_bytes(page: &Object, key: &[u8], visitor: &[VisitorToken]) -> u64 {
    let keys = key.len() + visitor.len() * 64;
    let plain = page.body.len() + page.esi_bytes();
    page.memory_bytes() + (plain / 2 + keys) as u64 + ENTRY_OVERHEAD_BYTES
}

impl StoreState {
    fn is_outdated(&self, render: &PrivateRender) -> bool {
        render.visitor.iter().any(|token| {
            let visitor = self.visitors.get(token);
            visitor.is_none_or(|visitor| visitor.forgotten_at > render.begun_at)
        })
    }

    fn insert(&mut self, key: Arc<[u8]>, page: Arc<Object>, visitor: &[VisitorToken], bytes: u64) {
        for token in visitor {
            let visitor = self.visitors.entry(*token).or_default();
            visitor.pages.insert(key.clone());
            visitor.bytes += bytes;
        }
        self.clock += 1;
        self.bytes += bytes;
        self.by_use.insert(self.clock, key.clone());
        let entry = Entry {
            page,
            visitor: visitor.into(),
            used_at: self.clock,
            bytes,
        };
        self.pages.insert(key, entry);
    }

    fn touch(&mut self, key: &[u8]) {
        self.clock += 1;
        if let Some(entry) = self.pages.get_mut(key)
            && let Some(key) = self.by_use.remove(&entry.used_at)
        {
            entry.used_at = self.clock;
            self.by_use.insert(self.clock, key);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let Some(entry) = self.pages.remove(key) else {
            return;
        };
        self.by_use.remove(&entry.used_at);
        self.bytes -= entry.bytes;
        for token in &entry.visitor {
            if let Some(visitor) = self.visitors.get_mut(token) {
                visitor.pages.remove(key);
                visitor.bytes -= entry.bytes;
            }
            self.drop_visitor_if_unused(*token);
        }
    }

    fn drop_visitor_if_unused(&mut self, token: VisitorToken) {
        let visitor = self.visitors.get(&token);
        if visitor.is_some_and(|visitor| visitor.renders == 0 && visitor.pages.is_empty()) {
            self.visitors.remove(&token);
        }
    }

    /// Evicts pages until the bounds of the visitor and of the store are kept.
    fn evict(&mut self, visitor: &[VisitorToken]) {
        for token in visitor {
            while let Some(key) = self.excess_of(*token) {
                self.remove(&key);
                self.evictions += 1;
            }
        }
        while self.bytes > self.capacity
            && let Some((_, key)) = self.by_use.first_key_value()
        {
            let key = key.clone();
            self.remove(&key);
            self.evictions += 1;
        }
    }

    /// Returns the page of a visitor that was not used for the longest time, if the visitor has too much.
    fn excess_of(&self, token: VisitorToken) -> Option<Arc<[u8]>> {
        let visitor = self.visitors.get(&token)?;
        let is_within = visitor.pages.len() <= MAX_PAGES_PER_VISITOR
            && visitor.bytes <= self.capacity / VISITOR_SHARE;
        if is_within {
            return None;
        }
        let last_use = |key: &&Arc<[u8]>| self.pages.get(*key).map(|entry| entry.used_at);
        visitor.pages.iter().min_by_key(last_use).cloned()
    }
}

#[cfg(test)]
#[path = "private_tests.rs"]
mod tests;
