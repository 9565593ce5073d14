//! Shares one render of a page between all members: when a page has been invalidated, one member renders it, and the
//! others take the result from Valkey. This module treats pages as opaque bytes. The caller decides with
//! [`Fleet::is_within`](crate::Fleet::is_within) whether it may use a page.
//!
//! - [`seal`]: signs pages. [`outcome`]: names the possible outcomes.
//! - `store`: the pages and leads in Valkey.
//!
//! All of this runs on a separate thread, so the exchanges that renew a member's lease never wait for a page.

pub mod outcome;
pub mod seal;
mod store;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{sleep, timeout};

use crate::position::Position;
use crate::valkey::Valkey;
use outcome::{Counters, Outcome};
use seal::{PageName, RenderKey, Seal};
use store::{Kept, Store};

/// The maximum length of a shared page in the format of the disk store, in bytes.
pub const LONGEST: usize = 1 << 20;
/// How long Valkey holds a page. Pages are handed over through Valkey, not stored in it.
const LIFE: Duration = Duration::from_secs(10);
/// How long Valkey remembers that a page cannot be shared.
const REFUSED: Duration = Duration::from_secs(1);
/// How long a lead lasts without being renewed. The leader renews it three times in this time.
const LEAD: Duration = Duration::from_millis(900);
/// The maximum number of concurrent requests for renders, including waiting and leading ones.
const PLACES: usize = 64;
/// The same failure is logged at most once in this time.
const REPORTED_EVERY: Duration = Duration::from_secs(60);

/// Logs a failure with its details.
pub type ReportRender = Box<dyn Fn(Outcome, &str) + Send + Sync>;

/// The renders that the members of a fleet share.
pub struct Renders {
    store: Store,
    seal: Seal,
    /// How long a member waits for the render of another.
    patience: Duration,
    runtime: Handle,
    ended: Mutex<HashMap<PageName, watch::Sender<()>>>,
    places: Arc<Semaphore>,
    tokens: AtomicU64,
    word: u64,
    counters: Counters,
    /// Valkey is not used before this time, because it has failed.
    rests_until: Mutex<Option<Instant>>,
    reported: Mutex<HashMap<Outcome, Instant>>,
    report: ReportRender,
}

impl std::fmt::Debug for Renders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renders").finish_non_exhaustive()
    }
}

/// What a member has to do about a page.
#[derive(Debug)]
pub enum Answer {
    /// The page has been rendered. Holds the position in the log at which the render began, and the page's bytes.
    Page(Position, Vec<u8>),
    /// The member renders the page for itself and for the others.
    Lead(Lead),
    /// The member renders the page for itself only.
    Alone(Outcome),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts the task when the caller that waits for it is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Renders {
    /// Starts the thread. `word` is a random number, `patience` is how long a member waits for the render of another.
    pub(crate) fn start(
        valkey: Valkey,
        fleet: &str,
        key: &RenderKey,
        patience: Duration,
        word: u64,
        report: ReportRender,
    ) -> io::Result<Arc<Renders>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let renders = Arc::new(Renders {
            store: Store::new(valkey, fleet, patience / 4),
            seal: Seal::new(key),
            patience,
            runtime: runtime.handle().clone(),
            ended: Mutex::default(),
            places: Arc::new(Semaphore::new(PLACES)),
            tokens: AtomicU64::new(0),
            word,
            counters: Counters::default(),
            rests_until: Mutex::default(),
            reported: Mutex::default(),
            report,
        });
        let listener = Arc::downgrade(&renders);
        thread::Builder::new()
            .name("renders".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    while let Some(renders) = listener.upgrade() {
                        renders.hear().await;
                        sleep(renders.patience / 4).await;
                    }
                });
            })?;
        Ok(renders)
    }

    /// Receives notices of ended leads until the connection breaks.
    async fn hear(&self) {
        let Ok(Ok(ended)) = timeout(self.patience, self.store.listen()).await else {
            return;
        };
        let mut ended = std::pin::pin!(ended);
        while let Some(page) = ended.next().await {
            if let Some(waiting) = lock(&self.ended).get(&page) {
                waiting.send_replace(());
            }
        }
    }

    /// Returns the name of the page that these parts identify. They must contain everything that distinguishes it from
    /// other pages.
    pub fn name(&self, parts: &[&[u8]]) -> PageName {
        self.seal.name(parts)
    }

    /// Counts the outcome of a render.
    pub fn count(&self, outcome: Outcome) {
        self.counters.add(outcome);
    }

    /// Counts a failure, and logs it at a limited rate.
    pub fn failed(&self, outcome: Outcome, detail: &str) {
        self.count(outcome);
        let now = Instant::now();
        let mut reported = lock(&self.reported);
        let last = reported.get(&outcome);
        if last.is_none_or(|last| now.duration_since(*last) >= REPORTED_EVERY) {
            reported.insert(outcome, now);
            drop(reported);
            (self.report)(outcome, detail);
        }
    }

    /// Returns how often each outcome has occurred.
    pub fn sums(&self) -> Vec<(String, u64)> {
        self.counters.sums()
    }

    /// Finds out who renders a page. If another member does, waits for its render until `deadline`. `position` is the
    /// position of this member: a render that began before it is useless.
    pub async fn ask(
        self: &Arc<Renders>,
        page: PageName,
        position: Position,
        deadline: Instant,
    ) -> Answer {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            self.count(Outcome::RenderBusy);
            return Answer::Alone(Outcome::RenderBusy);
        };
        if lock(&self.rests_until).is_some_and(|until| Instant::now() < until) {
            self.count(Outcome::RenderUnreachable);
            return Answer::Alone(Outcome::RenderUnreachable);
        }
        let renders = self.clone();
        let find = async move {
            let find = renders.find(page, position, place);
            let found = tokio::time::timeout_at(deadline.into(), find).await;
            found.unwrap_or_else(|_| {
                renders.count(Outcome::RenderTooSlow);
                Answer::Alone(Outcome::RenderTooSlow)
            })
        };
        let mut task = Task(self.runtime.spawn(find));
        let answer = (&mut task.0).await;
        answer.unwrap_or(Answer::Alone(Outcome::RenderUnreachable))
    }

    /// Returns the time until which a request that begins now waits for a render.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    async fn find(
        self: &Arc<Renders>,
        page: PageName,
        position: Position,
        place: OwnedSemaphorePermit,
    ) -> Answer {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let token = format!("{:x}-{number:x}", self.word);
        let mut discard = false;
        // Subscribed before Valkey is asked, so that no end of a lead is missed.
        let mut ended = Waiting::new(self, &page);
        loop {
            let kept = self
                .store
                .ask(&page, &position, &token, LEAD, discard)
                .await;
            discard = false;
            match kept {
                Err(error) => {
                    self.unreachable(&error);
                    return Answer::Alone(Outcome::RenderUnreachable);
                }
                Ok(Kept::Lead) => {
                    return Answer::Lead(Lead::new(self, page.clone(), position, token, place));
                }
                Ok(Kept::Refused) => {
                    self.count(Outcome::RenderNotShared);
                    return Answer::Alone(Outcome::RenderNotShared);
                }
                Ok(Kept::Page(kept)) => match self.seal.open(&page, &kept, LIFE + self.patience) {
                    Ok((began, bytes)) => return Answer::Page(began, bytes),
                    Err(why) => {
                        self.failed(why, "a page in Valkey is not taken");
                        discard = true;
                    }
                },
                // The leader may have died.
                Ok(Kept::Led) => {
                    let _ = timeout(LEAD / 2, ended.of.changed()).await;
                }
            }
        }
    }

    fn unreachable(&self, error: &RedisError) {
        *lock(&self.rests_until) = Some(Instant::now() + self.patience);
        self.failed(Outcome::RenderUnreachable, &error.to_string());
    }
}

/// A subscription to the end of a page's lead.
struct Waiting<'r> {
    renders: &'r Renders,
    page: PageName,
    of: watch::Receiver<()>,
}

impl<'r> Waiting<'r> {
    fn new(renders: &'r Renders, page: &PageName) -> Waiting<'r> {
        let mut ended = lock(&renders.ended);
        let sender = ended
            .entry(page.clone())
            .or_insert_with(|| watch::Sender::new(()));
        Waiting {
            renders,
            page: page.clone(),
            of: sender.subscribe(),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut ended = lock(&self.renders.ended);
        // The remaining receiver is the one of this subscription.
        if ended
            .get(&self.page)
            .is_some_and(|s| s.receiver_count() <= 1)
        {
            ended.remove(&self.page);
        }
    }
}

/// The lead of a render, for which the others wait. If it is dropped, the next member that asks becomes the leader.
#[derive(Debug)]
pub struct Lead {
    renders: Arc<Renders>,
    page: PageName,
    position: Position,
    token: String,
    renewal: AbortHandle,
    is_settled: bool,
    place: Option<OwnedSemaphorePermit>,
}

impl Lead {
    fn new(
        renders: &Arc<Renders>,
        page: PageName,
        position: Position,
        token: String,
        place: OwnedSemaphorePermit,
    ) -> Lead {
        let (owner, name, own) = (renders.clone(), page.clone(), token.clone());
        let renewal = renders.runtime.spawn(async move {
            loop {
                sleep(LEAD / 3).await;
                // A failed renewal is retried, because the lead may not have expired.
                if let Ok(false) = owner.store.renew(&name, &own, LEAD).await {
                    return;
                }
            }
        });
        Lead {
            renders: renders.clone(),
            page,
            position,
            token,
            renewal: renewal.abort_handle(),
            is_settled: false,
            place: Some(place),
        }
    }

    /// Hands the page over to the others. The page is the concatenation of `parts`.
    pub fn give<B: AsRef<[u8]> + Send + 'static>(mut self, parts: Vec<B>) {
        let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        if length > LONGEST {
            self.renders.count(Outcome::RenderTooLong);
            return self.refuse();
        }
        let (renders, page) = (self.renders.clone(), self.page.clone());
        let position = self.position.clone();
        let sealed = move || {
            let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
            renders.seal.seal(&page, &position, &parts.concat())
        };
        self.settle(LIFE, Some(Outcome::Given), sealed);
    }

    /// Reports that the page cannot be shared, so the others render it for themselves.
    pub fn refuse(mut self) {
        let text = format!("r {} {} -", self.position.incarnation, self.position.number);
        self.settle(REFUSED, None, || text.into_bytes());
    }

    fn settle(
        &mut self,
        life: Duration,
        outcome: Option<Outcome>,
        kept: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) {
        self.is_settled = true;
        let (renders, page) = (self.renders.clone(), self.page.clone());
        let (token, renewal) = (std::mem::take(&mut self.token), self.renewal.clone());
        let place = self.place.take();
        self.renders.runtime.spawn(async move {
            match renders.store.settle(&page, &token, &kept(), life).await {
                Ok(true) => outcome
                    .into_iter()
                    .for_each(|outcome| renders.count(outcome)),
                // The lead has passed to another member.
                Ok(false) => {}
                Err(error) => renders.unreachable(&error),
            }
            renewal.abort();
            drop(place);
        });
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(LIFE, None, Vec::new);
        }
    }
}
