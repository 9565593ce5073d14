//! What a run changes for its own visitor: when the visitor's private pages are forgotten. Like public pages, they are
//! forgotten before the head of the response is sent, and again when the run has ended.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_cache::generation::{Force, Purge};
use howdah_cache::purge;
use howdah_cache::visitor::{VisitorToken, sets_visitor_cookie};
use howdah_http::message::ResponseHead;

use super::run_effects::Cause;
use super::{PageCache, SiteCache};

/// The part of a run's effects that concerns the visitor of its request. It does nothing in a site without private
/// pages.
#[derive(Debug, Default)]
pub struct VisitorEffects {
    tokens: OnceLock<Box<[VisitorToken]>>,
    /// Whether the run writes or may write something that the visitor's pages show.
    has_changed: AtomicBool,
    opened_session: AtomicBool,
    /// Whether the head of the response has been read, so it is known whether the response may be stored.
    has_head: AtomicBool,
    /// Whether the head of the response lets it be stored for its visitor, which means that its script changes nothing.
    is_storable: AtomicBool,
    /// The first event that forbids storing the page for its visitor.
    forbidden: OnceLock<Cause>,
}

impl VisitorEffects {
    /// Sets the visitor of the run. Call it before the run starts.
    pub fn set_visitor(&self, tokens: &[VisitorToken]) {
        // A run has one request.
        let _ = self.tokens.set(tokens.into());
    }

    fn tokens(&self) -> &[VisitorToken] {
        self.tokens.get().map_or(&[], |tokens| tokens)
    }

    /// Records that the run writes or may write.
    pub fn note_change(&self) {
        self.has_changed.store(true, Ordering::SeqCst);
    }

    /// Records that the script opened a session, which it may write.
    pub fn note_session(&self) {
        self.opened_session.store(true, Ordering::SeqCst);
    }

    /// Records an event that forbids storing the page for its visitor. Only the first one counts.
    pub fn forbid(&self, cause: Cause) {
        let _ = self.forbidden.set(cause);
    }

    /// Returns the event that forbids storing the page for its visitor, if there has been one.
    pub fn forbidden(&self) -> Option<&Cause> {
        self.forbidden.get()
    }

    /// Reads the head of the response before it is sent: carries out its purges of private pages, and recognises logins
    /// and logouts. `is_storable` says whether the response can become one of its visitor's pages.
    pub fn read_head(
        &self,
        cache: &PageCache,
        part: &SiteCache,
        head: &ResponseHead,
        is_storable: bool,
    ) {
        self.is_storable.store(is_storable, Ordering::SeqCst);
        self.has_head.store(true, Ordering::SeqCst);
        if sets_visitor_cookie(part.rules(), head.fields()) {
            self.note_change();
        }
        let purges = purge::private_purges(head.fields());
        if !purges.is_empty() && !self.tokens().is_empty() {
            cache.private.store.purge(self.tokens(), &purges);
            forget_on_successor(part);
        }
    }

    /// Forgets the visitor's private pages if the run has changed, or may have changed, what they show. A session may
    /// have been changed by any run whose response cannot be stored. `has_ended` says that no head will follow.
    pub fn settle(&self, cache: &PageCache, part: &SiteCache, has_ended: bool) {
        let is = |flag: &AtomicBool| flag.load(Ordering::SeqCst);
        let can_be_stored = is(&self.is_storable) && self.forbidden().is_none();
        let may_have_written_session =
            is(&self.opened_session) && !can_be_stored && (has_ended || is(&self.has_head));
        let is_due = may_have_written_session || is(&self.has_changed);
        if is_due && !self.tokens().is_empty() {
            cache.private.store.forget(self.tokens());
            forget_on_successor(part);
        }
    }
}

/// After an upgrade, the successor has private pages that this process cannot name, so all pages of the site are
/// invalidated there.
fn forget_on_successor(part: &SiteCache) {
    if part.has_handed_over() {
        part.generations.purge(&Purge::All, Force::Hard);
    }
}
