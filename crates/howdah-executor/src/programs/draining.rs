//! The end of a pool of external programs: first the requests that run or wait, then the spawner with any programs that
//! still run. It does not depend on the mode.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::slot_queue::SlotQueue;
use super::spawner_client::SpawnerClient;
use crate::common::condition::PoolCondition;
use crate::{ExecError, Executor};

/// The end of a pool: whether it has begun, and the deadline for its requests.
pub(crate) struct Draining {
    spawner: Arc<SpawnerClient>,
    slot_queue: Arc<SlotQueue>,
    successor: OnceLock<Arc<dyn Executor>>,
    /// The deadline by which requests must finish; `None` if the pool is not draining.
    deadline: watch::Sender<Option<Instant>>,
    /// Set when the deadline has passed: runs are cut off.
    cut: watch::Sender<bool>,
    /// Runs whose response has not been delivered completely. A permit is released when its program has exited, which
    /// is before the last of its response has been read.
    runs: watch::Sender<usize>,
}

/// Counts as a run that a draining pool waits for, until it is dropped.
pub(crate) struct RunGuard(watch::Sender<usize>);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.send_modify(|runs| *runs -= 1);
    }
}

impl Draining {
    /// Creates the state of a pool that is not draining.
    pub fn new(link: Arc<SpawnerClient>, places: Arc<SlotQueue>) -> Draining {
        Draining {
            spawner: link,
            slot_queue: places,
            successor: OnceLock::new(),
            deadline: watch::Sender::new(None),
            cut: watch::Sender::new(false),
            runs: watch::Sender::new(0),
        }
    }

    /// Counts a run that the draining pool waits for, until the result is dropped.
    pub fn track_run(&self) -> RunGuard {
        self.runs.send_modify(|runs| *runs += 1);
        RunGuard(self.runs.clone())
    }

    /// Returns whether draining has begun, so new requests go to the successor.
    pub fn has_begun(&self) -> bool {
        self.deadline.borrow().is_some()
    }

    /// Returns the pool that gets new requests, or `None` if they are refused.
    pub fn successor(&self) -> Option<&Arc<dyn Executor>> {
        self.successor.get()
    }

    /// Returns a receiver of whether runs in flight must end.
    pub fn cut(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// See [`crate::ScriptPool::drain`].
    pub fn begin(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        if let Some(successor) = successor {
            // The successor of the first call remains.
            let _ = self.successor.set(successor);
        }
        let asked = Instant::now() + limit;
        let mut first = false;
        self.deadline.send_modify(|deadline| {
            first = deadline.is_none();
            *deadline = Some(deadline.map_or(asked, |before| before.min(asked)));
        });
        if !first {
            return;
        }
        let (link, places) = (self.spawner.clone(), self.slot_queue.clone());
        let (deadline, cut) = (self.deadline.subscribe(), self.cut.clone());
        let runs = self.runs.subscribe();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(wait_for_requests(&places, runs, deadline));
            }
            // If no runtime could be created, the requests are cut off at once.
            cut.send_replace(true);
            places.set_refusal(Some(ExecError::Stopping));
            link.close();
        };
        let thread = std::thread::Builder::new().name("drain".to_owned());
        if thread.spawn(work).is_err() {
            self.cut.send_replace(true);
            self.slot_queue.set_refusal(Some(ExecError::Stopping));
            self.spawner.close();
        }
    }

    /// Waits until the spawner and its programs have exited.
    pub async fn wait_until_closed(&self) {
        let mut condition = self.spawner.condition();
        // An error means that the sender is gone.
        let _ = condition.wait_for(|c| *c == PoolCondition::Closed).await;
    }

    /// Returns the pool's condition in the words of the status page.
    pub fn state(&self) -> String {
        match self.spawner.condition().borrow().clone() {
            PoolCondition::Closed => PoolCondition::Closed,
            _ if self.has_begun() => PoolCondition::Draining,
            condition => condition,
        }
        .to_string()
    }
}

impl Drop for Draining {
    /// A pool that is dropped without a drain ends at once.
    fn drop(&mut self) {
        self.cut.send_replace(true);
        self.spawner.close();
    }
}

/// Waits until no request is left, or until the deadline, which may become earlier meanwhile.
async fn wait_for_requests(
    places: &SlotQueue,
    mut runs: watch::Receiver<usize>,
    mut deadline: watch::Receiver<Option<Instant>>,
) {
    loop {
        let until = deadline.borrow_and_update().unwrap_or_else(Instant::now);
        tokio::select! {
            () = async {
                places.wait_until_idle().await;
                // The sender lives as long as the pool or any of its runs.
                let _ = runs.wait_for(|runs| *runs == 0).await;
            } => return,
            () = tokio::time::sleep_until(until.into()) => return,
            changed = deadline.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
