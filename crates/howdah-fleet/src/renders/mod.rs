//! Shares one render of a page between all members: when a page has been invalidated, one member renders it, and the
//! others take the result from Valkey. This module treats pages as opaque bytes. The caller decides with
//! [`FleetModel::is_within`](crate::FleetModel::is_within) whether it may use a page.
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

use crate::position::LogPosition;
use crate::valkey::Valkey;
use outcome::{FleetRenderOutcome, RenderCounters};
use seal::{PageName, RenderKey, Seal};
use store::{RenderStore, StoredRender};

/// The maximum length of a shared page in the format of the disk store, in bytes.
pub const MAX_PAGE_BYTES: usize = 1 << 20;
/// How long Valkey holds a page. Pages are handed over through Valkey, not stored in it.
const PAGE_LIFETIME: Duration = Duration::from_secs(10);
/// How long Valkey remembers that a page cannot be shared.
const REFUSAL_LIFETIME: Duration = Duration::from_secs(1);
/// How long a lead lasts without being renewed. The leader renews it three times in this time.
const LEAD_LIFETIME: Duration = Duration::from_millis(900);
/// The maximum number of concurrent requests for renders, including waiting and leading ones.
const MAX_CONCURRENT_REQUESTS: usize = 64;
/// The same failure is logged at most once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Logs a failure with its details.
pub type ReportRender = Box<dyn Fn(FleetRenderOutcome, &str) + Send + Sync>;

/// The renders that the members of a fleet share.
pub struct Renders {
    store: RenderStore,
    seal: Seal,
    /// How long a member waits for the render of another.
    patience: Duration,
    runtime: Handle,
    lead_ends: Mutex<HashMap<PageName, watch::Sender<()>>>,
    permits: Arc<Semaphore>,
    tokens: AtomicU64,
    token_prefix: u64,
    counters: RenderCounters,
    /// Valkey is not used before this time, because it has failed.
    backoff_until: Mutex<Option<Instant>>,
    reported: Mutex<HashMap<FleetRenderOutcome, Instant>>,
    report: ReportRender,
}

impl std::fmt::Debug for Renders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renders").finish_non_exhaustive()
    }
}

/// What a member has to do about a page.
#[derive(Debug)]
pub enum RenderDecision {
    /// The page has been rendered. Holds the position in the log at which the render began, and the page's bytes.
    Page(LogPosition, Vec<u8>),
    /// The member renders the page for itself and for the others.
    Lead(Lead),
    /// The member renders the page for itself only.
    Alone(FleetRenderOutcome),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aborts the task when the caller that waits for it is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
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
            store: RenderStore::new(valkey, fleet, patience / 4),
            seal: Seal::new(key),
            patience,
            runtime: runtime.handle().clone(),
            lead_ends: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_REQUESTS)),
            tokens: AtomicU64::new(0),
            token_prefix: word,
            counters: RenderCounters::default(),
            backoff_until: Mutex::default(),
            reported: Mutex::default(),
            report,
        });
        let listener = Arc::downgrade(&renders);
        thread::Builder::new()
            .name("renders".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    while let Some(renders) = listener.upgrade() {
                        renders.receive_lead_ends().await;
                        sleep(renders.patience / 4).await;
                    }
                });
            })?;
        Ok(renders)
    }

    /// Receives notices of ended leads until the connection breaks.
    async fn receive_lead_ends(&self) {
        let Ok(Ok(ended)) = timeout(self.patience, self.store.subscribe_lead_ends()).await else {
            return;
        };
        let mut ended = std::pin::pin!(ended);
        while let Some(page) = ended.next().await {
            if let Some(waiting) = lock(&self.lead_ends).get(&page) {
                waiting.send_replace(());
            }
        }
    }

    /// Returns the name of the page that these parts identify. They must contain everything that distinguishes it from
    /// other pages.
    pub fn page_name(&self, parts: &[&[u8]]) -> PageName {
        self.seal.name(parts)
    }

    /// Counts the outcome of a render.
    pub fn count(&self, outcome: FleetRenderOutcome) {
        self.counters.add(outcome);
    }

    /// Counts a failure, and logs it at a limited rate.
    pub fn count_failure(&self, outcome: FleetRenderOutcome, detail: &str) {
        self.count(outcome);
        let now = Instant::now();
        let mut reported = lock(&self.reported);
        let last = reported.get(&outcome);
        if last.is_none_or(|last| now.duration_since(*last) >= REPORT_INTERVAL) {
            reported.insert(outcome, now);
            drop(reported);
            (self.report)(outcome, detail);
        }
    }

    /// Returns how often each outcome has occurred.
    pub fn outcome_counts(&self) -> Vec<(String, u64)> {
        self.counters.sums()
    }

    /// Finds out which member renders a page. If it is another member, waits for its render until `deadline`.
    /// `position` is the position of this member: a render that began before it is useless.
    pub async fn request_render(
        self: &Arc<Renders>,
        page: PageName,
        position: LogPosition,
        deadline: Instant,
    ) -> RenderDecision {
        let Ok(place) = self.permits.clone().try_acquire_owned() else {
            self.count(FleetRenderOutcome::RenderBusy);
            return RenderDecision::Alone(FleetRenderOutcome::RenderBusy);
        };
        if lock(&self.backoff_until).is_some_and(|until| Instant::now() < until) {
            self.count(FleetRenderOutcome::RenderUnreachable);
            return RenderDecision::Alone(FleetRenderOutcome::RenderUnreachable);
        }
        let renders = self.clone();
        let find = async move {
            let find = renders.wait_or_lead(page, position, place);
            let found = tokio::time::timeout_at(deadline.into(), find).await;
            found.unwrap_or_else(|_| {
                renders.count(FleetRenderOutcome::RenderTooSlow);
                RenderDecision::Alone(FleetRenderOutcome::RenderTooSlow)
            })
        };
        let mut task = AbortOnDrop(self.runtime.spawn(find));
        let answer = (&mut task.0).await;
        answer.unwrap_or(RenderDecision::Alone(FleetRenderOutcome::RenderUnreachable))
    }

    /// Returns the time until which a request that begins now waits for a render.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    async fn wait_or_lead(
        self: &Arc<Renders>,
        page: PageName,
        position: LogPosition,
        place: OwnedSemaphorePermit,
    ) -> RenderDecision {
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let token = format!("{:x}-{number:x}", self.token_prefix);
        let mut discard = false;
        // The subscription begins before Valkey is asked, so that no end of a lead is missed.
        let mut ended = LeadEndSubscription::new(self, &page);
        loop {
            let kept = self
                .store
                .find_or_lead(&page, &position, &token, LEAD_LIFETIME, discard)
                .await;
            discard = false;
            match kept {
                Err(error) => {
                    self.back_off(&error);
                    return RenderDecision::Alone(FleetRenderOutcome::RenderUnreachable);
                }
                Ok(StoredRender::Lead) => {
                    return RenderDecision::Lead(Lead::new(
                        self,
                        page.clone(),
                        position,
                        token,
                        place,
                    ));
                }
                Ok(StoredRender::Refused) => {
                    self.count(FleetRenderOutcome::RenderNotShared);
                    return RenderDecision::Alone(FleetRenderOutcome::RenderNotShared);
                }
                Ok(StoredRender::Page(kept)) => {
                    match self.seal.open(&page, &kept, PAGE_LIFETIME + self.patience) {
                        Ok((began, bytes)) => return RenderDecision::Page(began, bytes),
                        Err(why) => {
                            self.count_failure(why, "a page from Valkey was rejected");
                            discard = true;
                        }
                    }
                }
                // The leader may have died.
                Ok(StoredRender::Led) => {
                    let _ = timeout(LEAD_LIFETIME / 2, ended.ended.changed()).await;
                }
            }
        }
    }

    fn back_off(&self, error: &RedisError) {
        *lock(&self.backoff_until) = Some(Instant::now() + self.patience);
        self.count_failure(FleetRenderOutcome::RenderUnreachable, &error.to_string());
    }
}

/// A subscription to the end of a page's lead.
struct LeadEndSubscription<'r> {
    renders: &'r Renders,
    page: PageName,
    ended: watch::Receiver<()>,
}

impl<'r> LeadEndSubscription<'r> {
    fn new(renders: &'r Renders, page: &PageName) -> LeadEndSubscription<'r> {
        let mut ended = lock(&renders.lead_ends);
        let sender = ended
            .entry(page.clone())
            .or_insert_with(|| watch::Sender::new(()));
        LeadEndSubscription {
            renders,
            page: page.clone(),
            ended: sender.subscribe(),
        }
    }
}

impl Drop for LeadEndSubscription<'_> {
    fn drop(&mut self) {
        let mut ended = lock(&self.renders.lead_ends);
        // If only one receiver remains, it belongs to this subscription.
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
    position: LogPosition,
    token: String,
    renewal: AbortHandle,
    is_settled: bool,
    permit: Option<OwnedSemaphorePermit>,
}

impl Lead {
    fn new(
        renders: &Arc<Renders>,
        page: PageName,
        position: LogPosition,
        token: String,
        place: OwnedSemaphorePermit,
    ) -> Lead {
        let (owner, name, own) = (renders.clone(), page.clone(), token.clone());
        let renewal = renders.runtime.spawn(async move {
            loop {
                sleep(LEAD_LIFETIME / 3).await;
                // A failed renewal is retried, because the lead may not have expired.
                if let Ok(false) = owner.store.renew(&name, &own, LEAD_LIFETIME).await {
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
            permit: Some(place),
        }
    }

    /// Hands the page over to the others. The page is the concatenation of `parts`.
    pub fn share<B: AsRef<[u8]> + Send + 'static>(mut self, parts: Vec<B>) {
        let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        if length > MAX_PAGE_BYTES {
            self.renders.count(FleetRenderOutcome::RenderTooLong);
            return self.refuse();
        }
        let (renders, page) = (self.renders.clone(), self.page.clone());
        let position = self.position.clone();
        let sealed = move || {
            let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
            renders.seal.seal(&page, &position, &parts.concat())
        };
        self.settle(PAGE_LIFETIME, Some(FleetRenderOutcome::Given), sealed);
    }

    /// Reports that the page cannot be shared, so the others render it for themselves.
    pub fn refuse(mut self) {
        let text = format!("r {} {} -", self.position.incarnation, self.position.number);
        self.settle(REFUSAL_LIFETIME, None, || text.into_bytes());
    }

    fn settle(
        &mut self,
        life: Duration,
        outcome: Option<FleetRenderOutcome>,
        kept: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) {
        self.is_settled = true;
        let (renders, page) = (self.renders.clone(), self.page.clone());
        let (token, renewal) = (std::mem::take(&mut self.token), self.renewal.clone());
        let place = self.permit.take();
        self.renders.runtime.spawn(async move {
            match renders.store.settle(&page, &token, &kept(), life).await {
                Ok(true) => outcome
                    .into_iter()
                    .for_each(|outcome| renders.count(outcome)),
                // The lead has passed to another member.
                Ok(false) => {}
                Err(error) => renders.back_off(&error),
            }
            renewal.abort();
            drop(place);
        });
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(PAGE_LIFETIME, None, Vec::new);
        }
    }
}
