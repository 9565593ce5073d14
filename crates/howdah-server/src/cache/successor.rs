//! An upgrade: for a while a server has two processes that serve HTTP. The one that is about to exit serves no stored
//! page from the moment it hands over, because it is not notified of the writes of the new process's scripts. The
//! writes of its own last scripts are sent to the new process before their responses are sent, as in a fleet. So no
//! page of the new process is older than a write whose response has been sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use howdah_cache::generation::{Force, Purge, PurgeRelay};
use howdah_cache::pass::Pass;
use tokio::sync::watch;

use super::{PageCache, SiteCache, fleet, now};
use crate::script::pump::Confirmation;
use howdah_site::site::Sites;

/// Passes a purge on. The arguments are its number, which counts up from 1, and its text.
pub type SendPurge = Box<dyn Fn(u64, String) + std::marker::Send>;

/// The process that takes over from this one. All configurations share one value.
pub struct Successor {
    has_taken_over: AtomicBool,
    outbox: Mutex<PurgeOutbox>,
    /// The successor has carried out all purges up to this number.
    confirmed: watch::Sender<u64>,
}

#[derive(Default)]
struct PurgeOutbox {
    last: u64,
    send: Option<SendPurge>,
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
    fn outbox(&self) -> std::sync::MutexGuard<'_, PurgeOutbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops serving stored pages in this process. Purges are passed on by `send` once [`PageCache::hand_over`] has
    /// been called.
    pub fn take_over(&self, send: SendPurge) {
        self.outbox().send = Some(send);
        self.has_taken_over.store(true, Ordering::SeqCst);
    }

    /// Records that the successor has carried out all purges up to this number.
    pub fn confirm(&self, number: u64) {
        self.confirmed.send_modify(|n| *n = number.max(*n));
    }

    /// Records that no successor will confirm purges, because there is none or it has exited. From then on, this
    /// process serves no stored page, and no response waits for a confirmation.
    pub fn mark_gone(&self) {
        self.has_taken_over.store(true, Ordering::SeqCst);
        self.confirm(u64::MAX);
    }

    /// Returns whether the successor has taken over. This is checked for each hit. A page that is already being sent
    /// when the value changes was requested before the change.
    pub fn has_taken_over(&self) -> bool {
        self.has_taken_over.load(Ordering::Acquire)
    }

    async fn confirmed(&self, number: u64) {
        let mut confirmed = self.confirmed.subscribe();
        // This cannot fail, because the sender belongs to this value.
        let _ = confirmed.wait_for(|n| *n >= number).await;
    }
}

/// Passes the purges of a site on to the successor.
#[derive(Debug)]
struct SuccessorRelay {
    site: String,
    successor: Arc<Successor>,
}

impl PurgeRelay for SuccessorRelay {
    fn relay_purge(&self, what: &Purge, force: Force) {
        let mut outbox = self.successor.outbox();
        outbox.last += 1;
        if let Some(send) = &outbox.send {
            send(
                outbox.last,
                fleet::purge_text(&self.site, what, force).to_string(),
            );
        }
    }
}

impl PageCache {
    /// Passes all purges on to the successor from now on. The successor publishes them to the fleet.
    pub fn hand_over(&self, sites: &Sites) {
        for site in sites.all() {
            if let Some(part) = self.site(site) {
                let relay = SuccessorRelay {
                    site: site.config().name.clone(),
                    successor: self.process.successor.clone(),
                };
                part.generations.set_relay(Some(Arc::new(relay)));
            }
        }
    }

    /// Carries out the purges that the previous process has passed on.
    pub(super) fn apply_predecessor_purges(&self, sites: &Sites, purges: &[String]) {
        for purge in purges {
            let Some((site, what, force)) = fleet::parse_purge(purge, now()) else {
                // Another version has written the text, so it is not known which pages are stale.
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
    /// Returns whether stored pages may be served now. A process that has handed over serves none, and neither does a
    /// member of a fleet without a lease. This must be called after the page has been found.
    pub fn may_serve(&self) -> bool {
        !self.successor.has_taken_over() && self.may_serve_by_fleet()
    }

    /// Returns whether another process has taken over.
    pub(super) fn has_handed_over(&self) -> bool {
        self.successor.has_taken_over()
    }

    /// Returns why stored pages may not be served if [`SiteCache::may_serve`] returns false.
    pub fn serving_refusal(&self) -> Pass {
        match self.successor.has_taken_over() {
            true => Pass::HandedOver,
            false => Pass::NoLease,
        }
    }

    /// Returns a future that waits until all other processes and members have carried out the purges so far; `None` if
    /// there is no other process or member.
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
