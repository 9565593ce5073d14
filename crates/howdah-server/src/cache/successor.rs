//! An upgrade: for a while a server has two processes that serve HTTP. The one that ends serves no stored page
//! from the moment it hands over, and has no news of what the other's scripts write. What its own last scripts
//! write reaches the other before their answers leave, as in a fleet: so pages of the other are never older
//! than an answered write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use howdah_cache::generation::{Force, Purge, Relay};
use howdah_cache::pass::Pass;
use tokio::sync::watch;

use super::{PageCache, SiteCache, fleet};
use crate::script::pump::Confirmation;
use crate::site::Sites;

/// Passes a purge on: its number, which counts up from 1, and its text.
pub type Send = Box<dyn Fn(u64, String) + std::marker::Send>;

/// The process that takes over from this one: one value for all configurations.
pub struct Successor {
    has_taken_over: AtomicBool,
    outbox: Mutex<Outbox>,
    /// All purges up to this one are carried out there.
    confirmed: watch::Sender<u64>,
}

#[derive(Default)]
struct Outbox {
    last: u64,
    send: Option<Send>,
}

impl Default for Successor {
    fn default() -> Successor {
        Successor {
            has_taken_over: AtomicBool::new(false),
            outbox: Mutex::default(),
            confirmed: watch::Sender::new(0),
        }
    }
}

impl std::fmt::Debug for Successor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let last = self.outbox().last;
        f.debug_struct("Successor")
            .field("has_taken_over", &self.has_taken_over())
            .field("last", &last)
            .finish_non_exhaustive()
    }
}

impl Successor {
    fn outbox(&self) -> std::sync::MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stored pages are served no more. Purges are passed on by `send` once [`PageCache::hand_over`] has
    /// been called.
    pub fn take_over(&self, send: Send) {
        self.outbox().send = Some(send);
        self.has_taken_over.store(true, Ordering::SeqCst);
    }

    /// It has carried out all purges up to this one.
    pub fn confirm(&self, number: u64) {
        self.confirmed.send_modify(|n| *n = number.max(*n));
    }

    /// There is none, or none any more: nobody waits for it.
    pub fn is_gone(&self) {
        self.has_taken_over.store(true, Ordering::SeqCst);
        self.confirm(u64::MAX);
    }

    /// Whether there is one. Asked for each hit: a page that is being sent when this changes was asked for before.
    pub fn has_taken_over(&self) -> bool {
        self.has_taken_over.load(Ordering::Acquire)
    }

    async fn confirmed(&self, number: u64) {
        let mut confirmed = self.confirmed.subscribe();
        // The sender is this value's own.
        let _ = confirmed.wait_for(|n| *n >= number).await;
    }
}

/// Passes the purges of a site on.
#[derive(Debug)]
struct SiteRelay {
    site: String,
    successor: Arc<Successor>,
}

impl Relay for SiteRelay {
    fn purged(&self, what: &Purge, force: Force) {
        let mut outbox = self.successor.outbox();
        outbox.last += 1;
        if let Some(send) = &outbox.send {
            send(
                outbox.last,
                fleet::text(&self.site, what, force).to_string(),
            );
        }
    }
}

impl PageCache {
    /// Passes all purges on to the successor from now on. The fleet hears of them by it.
    pub fn hand_over(&self, sites: &Sites) {
        for site in sites.all() {
            if let Some(part) = self.site(site) {
                let relay = SiteRelay {
                    site: site.config().name.clone(),
                    successor: self.successor.clone(),
                };
                part.generations.relay_to(Some(Arc::new(relay)));
            }
        }
    }

    /// Carries out what the process before has passed on.
    pub(super) fn purge_as_before(&self, sites: &Sites, purges: &[String]) {
        for purge in purges {
            let Some((site, what, force)) = fleet::read(purge) else {
                // Of another version.
                self.invalidate_all();
                continue;
            };
            let named = sites
                .all()
                .iter()
                .filter(|known| known.config().name == site);
            for part in named.filter_map(|site| self.site(site)) {
                part.generations.purge(&what, force);
            }
        }
    }
}

impl SiteCache {
    /// Whether stored pages may be served now: always, but for a process that has handed over, and for a
    /// member of a fleet that has no lease. To be asked when the page has been found.
    pub fn may_serve(&self) -> bool {
        !self.successor.has_taken_over() && self.may_serve_by_fleet()
    }

    /// Why stored pages may not be served, where [`SiteCache::may_serve`] says so.
    pub fn unserved(&self) -> Pass {
        match self.successor.has_taken_over() {
            true => Pass::HandedOver,
            false => Pass::NoLease,
        }
    }

    /// Waits until all others have carried out what has been purged so far; none: there are no others.
    pub fn confirmation(&self) -> Option<Confirmation> {
        if !self.successor.has_taken_over() {
            return self.confirmation_by_fleet();
        }
        let successor = self.successor.clone();
        let last = successor.outbox().last;
        Some(Box::pin(async move {
            successor.confirmed(last).await;
            Ok(())
        }))
    }
}
