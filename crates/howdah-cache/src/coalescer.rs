//! Coalesces requests: each page has at most one render at a time. The first request that misses a page becomes its
//! [`Leader`] and has it rendered. Requests for the page that arrive meanwhile are [`Follower`]s: they wait, and all of
//! them wake when the page is ready (nginx lets them poll every 500 ms; Varnish before 8.0 woke them one by one). They
//! get the page only if the policy allowed storing it. A response that belongs to one visitor is never shared. The
//! followers then continue immediately, and PHP answers each of them separately.
//!
//! A leader that is dropped, because its task died or gave up, releases its followers. A render for which no request
//! waits any more can be abandoned ([`Leader::abandoned`]), so work that clients request but do not wait for cannot
//! pile up.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::object::Object;
use crate::pass::Pass;

const SHARDS: usize = 16;

/// How a render ended, for the requests that waited for it.
#[derive(Clone, Debug)]
pub enum RenderOutcome {
    /// The page is stored now.
    Stored(Arc<Object>),
    /// The page was not stored, for this reason.
    Passed(Pass),
    /// The entry under the key has changed its kind (a new `Vary`, a purge during the render): look it up again.
    Retry,
}

type OutcomeSender = Arc<watch::Sender<Option<RenderOutcome>>>;
// The table holds senders, so every receiver is a caller that waits.
type RenderTable = HashMap<Box<[u8]>, OutcomeSender>;

/// The renders in progress, by key: one caller does the work, and the others wait for its outcome.
#[derive(Debug, Default)]
pub struct Coalescer {
    shards: Arc<[Mutex<RenderTable>; SHARDS]>,
    hasher: RandomState,
}

/// The part a caller plays in a render.
#[derive(Debug)]
pub enum Join {
    /// The caller does the work.
    Leader(Leader),
    /// Another caller already does the work; this caller waits for the outcome.
    Follower(Follower),
}

impl Coalescer {
    /// Joins the render of `key` as a follower, or begins one as its leader.
    pub fn join(&self, key: &[u8]) -> Join {
        let shard = (self.hasher.hash_one(key) as usize) % SHARDS;
        let mut table = lock(&self.shards[shard]);
        if let Some(entry) = table.get(key) {
            return Join::Follower(Follower(entry.subscribe()));
        }
        let sender = Arc::new(watch::Sender::new(None));
        table.insert(key.into(), sender.clone());
        Join::Leader(Leader {
            shards: self.shards.clone(),
            shard,
            key: key.into(),
            sender,
        })
    }

    /// Returns whether the page is being rendered now.
    pub fn is_rendering(&self, key: &[u8]) -> bool {
        let shard = (self.hasher.hash_one(key) as usize) % SHARDS;
        lock(&self.shards[shard]).contains_key(key)
    }
}

fn lock(table: &Mutex<RenderTable>) -> MutexGuard<'_, RenderTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right, and the duty, to complete a render.
#[derive(Debug)]
pub struct Leader {
    shards: Arc<[Mutex<RenderTable>; SHARDS]>,
    shard: usize,
    key: Box<[u8]>,
    sender: OutcomeSender,
}

impl Leader {
    /// Returns a follower of this render, so the leader's own request can wait while another task does the work.
    pub fn follower(&self) -> Follower {
        Follower(self.sender.subscribe())
    }

    /// Resolves when no follower is left. The render is over then, and a later caller begins another one.
    pub async fn abandoned(&self) {
        loop {
            self.sender.closed().await;
            let mut table = lock(&self.shards[self.shard]);
            // Followers join while they hold this lock, so no follower can join between the check and the removal.
            if self.sender.receiver_count() == 0 {
                table.remove(&self.key);
                return;
            }
        }
    }

    /// Removes the render from the table, unless another render has replaced it.
    fn remove(&self) {
        let mut table = lock(&self.shards[self.shard]);
        if table
            .get(&self.key)
            .is_some_and(|entry| Arc::ptr_eq(entry, &self.sender))
        {
            table.remove(&self.key);
        }
    }

    /// Completes the render: its followers wake, and a later caller begins another one. The page must be in the store
    /// by now; otherwise a later caller would have it rendered again.
    pub fn complete(self, outcome: RenderOutcome) {
        self.remove();
        self.sender.send_replace(Some(outcome));
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        if self.sender.borrow().is_none() {
            self.remove();
            let failed = RenderOutcome::Passed(Pass::FlightFailed);
            self.sender.send_replace(Some(failed));
        }
    }
}

/// A caller that waits for the outcome of a render.
#[derive(Debug)]
pub struct Follower(watch::Receiver<Option<RenderOutcome>>);

impl Follower {
    /// Waits until the render has ended.
    pub async fn wait(mut self) -> RenderOutcome {
        match self.0.wait_for(Option::is_some).await {
            Ok(outcome) => match &*outcome {
                Some(outcome) => outcome.clone(),
                None => RenderOutcome::Passed(Pass::FlightFailed),
            },
            Err(_) => RenderOutcome::Passed(Pass::FlightFailed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use super::*;
    use crate::object::tests::page;

    fn follow(coalescer: &Coalescer, key: &[u8]) -> Follower {
        match coalescer.join(key) {
            Join::Follower(follower) => follower,
            Join::Leader(_) => panic!("somebody renders it"),
        }
    }

    fn lead(coalescer: &Coalescer, key: &[u8]) -> Leader {
        match coalescer.join(key) {
            Join::Leader(leader) => leader,
            Join::Follower(_) => panic!("nobody renders it"),
        }
    }

    #[tokio::test]
    async fn followers_share_one_render_and_wake_together() {
        let coalescer = Coalescer::default();
        let leader = lead(&coalescer, b"k");
        let waiting: Vec<_> = (0..499)
            .map(|_| tokio::spawn(follow(&coalescer, b"k").wait()))
            .collect();
        lead(&coalescer, b"other").complete(RenderOutcome::Retry);
        tokio::task::yield_now().await;
        leader.complete(RenderOutcome::Stored(Arc::new(page(&[], "text"))));
        for one in waiting {
            let RenderOutcome::Stored(page) = one.await.unwrap() else {
                panic!("the page was stored");
            };
            assert_eq!(page.body, "text");
        }
        assert!(!coalescer.is_rendering(b"k"));
    }

    #[tokio::test]
    async fn unstored_response_is_not_shared() {
        let coalescer = Coalescer::default();
        let leader = lead(&coalescer, b"k");
        let one = follow(&coalescer, b"k");
        leader.complete(RenderOutcome::Passed(Pass::SetCookie));
        let outcome = one.wait().await;
        assert!(
            matches!(outcome, RenderOutcome::Passed(Pass::SetCookie)),
            "{outcome:?}"
        );
    }

    #[tokio::test]
    async fn a_render_is_abandoned_when_its_last_follower_has_left() {
        let coalescer = Coalescer::default();
        let leader = lead(&coalescer, b"k");
        let (one, two) = (leader.follower(), follow(&coalescer, b"k"));
        let pending = |leader: &Leader| {
            let mut abandoned = std::pin::pin!(leader.abandoned());
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            abandoned.as_mut().poll(&mut cx).is_pending()
        };
        assert!(pending(&leader));
        drop(one);
        assert!(pending(&leader));
        drop(two);
        assert!(!pending(&leader));
        // Another render may have begun meanwhile, which the end of the first one does not affect.
        let next = lead(&coalescer, b"k");
        drop(leader);
        assert!(coalescer.is_rendering(b"k"));
        next.complete(RenderOutcome::Retry);
        assert!(!coalescer.is_rendering(b"k"));
    }

    #[tokio::test]
    async fn dropped_leader_releases_its_followers() {
        let coalescer = Coalescer::default();
        let leader = lead(&coalescer, b"k");
        let one = follow(&coalescer, b"k");
        drop(leader);
        let outcome = one.wait().await;
        assert!(
            matches!(outcome, RenderOutcome::Passed(Pass::FlightFailed)),
            "{outcome:?}"
        );
        lead(&coalescer, b"k").complete(RenderOutcome::Retry);
    }
}
