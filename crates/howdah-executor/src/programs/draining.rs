//! The end of a pool of external programs: requests in flight and waiting, then the spawner with
//! whatever still runs. Knows no mode.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::slot_queue::SlotQueue;
use super::spawner_client::SpawnerClient;
use crate::common::condition::Condition;
use crate::{ExecError, Executor};

/// The end of a pool: whether it has begun, by when requests must finish, and who waits for it.
pub(crate) struct Draining {
    link: Arc<SpawnerClient>,
    places: Arc<SlotQueue>,
    successor: OnceLock<Arc<dyn Executor>>,
    /// By when requests are finished; none: the pool does not end.
    deadline: watch::Sender<Option<Instant>>,
    /// The deadline has passed: runs are cut off.
    cut: watch::Sender<bool>,
    /// Runs whose answer has not been given in full. A place is free when its program has ended,
    /// which is before the last of its answer has been read.
    runs: watch::Sender<usize>,
}

/// A run that a draining pool waits for, until this is dropped.
pub(crate) struct RunGuard(watch::Sender<usize>);

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.0.send_modify(|runs| *runs -= 1);
    }
}

impl Draining {
    /// Makes the ending of a pool that does not end yet.
    pub fn new(link: Arc<SpawnerClient>, places: Arc<SlotQueue>) -> Draining {
        Draining {
            link,
            places,
            successor: OnceLock::new(),
            deadline: watch::Sender::new(None),
            cut: watch::Sender::new(false),
            runs: watch::Sender::new(0),
        }
    }

    /// Counts a run that the draining pool waits for until the result is dropped.
    pub fn in_flight(&self) -> RunGuard {
        self.runs.send_modify(|runs| *runs += 1);
        RunGuard(self.runs.clone())
    }

    /// Whether new requests go elsewhere.
    pub fn has_begun(&self) -> bool {
        self.deadline.borrow().is_some()
    }

    /// The pool that gets new requests; `None`: they are refused.
    pub fn successor(&self) -> Option<&Arc<dyn Executor>> {
        self.successor.get()
    }

    /// True when runs in flight must end.
    pub fn cut(&self) -> watch::Receiver<bool> {
        self.cut.subscribe()
    }

    /// See [`crate::Pool::drain`].
    pub fn begin(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        if let Some(successor) = successor {
            // A second drain keeps the first's successor.
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
        let (link, places) = (self.link.clone(), self.places.clone());
        let (deadline, cut) = (self.deadline.subscribe(), self.cut.clone());
        let runs = self.runs.subscribe();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(requests(&places, runs, deadline));
            }
            // Without a runtime to be had they are cut off at once.
            cut.send_replace(true);
            places.refuse(Some(ExecError::Stopping));
            link.close();
        };
        let thread = std::thread::Builder::new().name("drain".to_owned());
        if thread.spawn(work).is_err() {
            self.cut.send_replace(true);
            self.places.refuse(Some(ExecError::Stopping));
            self.link.close();
        }
    }

    /// Waits until the spawner and its programs are gone.
    pub async fn over(&self) {
        let mut condition = self.link.condition();
        // An error means that nobody is left to change it.
        let _ = condition.wait_for(|c| *c == Condition::Closed).await;
    }

    /// The pool's condition, in the status page's word.
    pub fn state(&self) -> String {
        match self.link.condition().borrow().clone() {
            Condition::Closed => Condition::Closed,
            _ if self.has_begun() => Condition::Draining,
            condition => condition,
        }
        .to_string()
    }
}

impl Drop for Draining {
    /// A pool that is dropped without a drain ends at once.
    fn drop(&mut self) {
        self.cut.send_replace(true);
        self.link.close();
    }
}

/// Until no request is left, or the deadline, which may come nearer.
async fn requests(
    places: &SlotQueue,
    mut runs: watch::Receiver<usize>,
    mut deadline: watch::Receiver<Option<Instant>>,
) {
    loop {
        let until = deadline.borrow_and_update().unwrap_or_else(Instant::now);
        tokio::select! {
            () = async {
                places.idle().await;
                // The sender lives as long as the pool, or a run of it.
                let _ = runs.wait_for(|runs| *runs == 0).await;
            } => return,
            () = tokio::time::sleep_until(until.into()) => return,
            changed = deadline.changed() => if changed.is_err() {
                return;
            },
        }
    }
}
