//! Decides which requests run and which wait. It contains the rows of a pool's scoreboard, each with room for a number
//! of requests at once, and one bounded queue in front of them, which serves clients in turn. It starts no process and
//! knows no protocol.
//!
//! In mode `cgi` a row is a program that may run, with room for one request. In mode `pool` it is a FastCGI program
//! with the connections that it can serve. A request gets the row that is least busy relative to its room, the lowest
//! among equals, so work concentrates on few warm programs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_proto::request::RequestFrame;
use tokio::sync::oneshot;

use crate::ExecError;
use crate::common::fair_queue::{FairQueue, QueueClient};
use crate::status::{ChildRow, PoolStatus};

/// The rows of a pool and the queue for them; see the module's documentation.
pub(crate) struct SlotQueue {
    queue_size: u32,
    state: Mutex<QueueState>,
    failures: [AtomicU64; ExecError::NAMES.len()],
    /// Notified each time a permit is released.
    permit_released: tokio::sync::Notify,
}

#[derive(Default)]
struct QueueState {
    rows: Vec<ScoreboardRow>,
    waiting: FairQueue<Waiter>,
    /// While it is set, no request gets a permit, for this reason.
    refusal: Option<ExecError>,
    tickets: u64,
    accepted: u64,
    max_queue: u32,
    max_active: u32,
    reached: u64,
}

#[derive(Default)]
struct ScoreboardRow {
    /// `None` if the row is free.
    active: Option<ActiveRow>,
    epoch: u64,
}

struct ActiveRow {
    open: bool,
    room: u32,
    running: Vec<RunningRequest>,
    served: u64,
    pid: i32,
    since: Instant,
    state: &'static str,
}

struct RunningRequest {
    ticket: u64,
    since: Instant,
    summary: RequestSummary,
}

struct Waiter {
    sender: oneshot::Sender<Result<Permit, ExecError>>,
    since: Instant,
    summary: RequestSummary,
}

/// The part of a request that the scoreboard shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestSummary {
    method: String,
    uri: String,
    script: String,
}

impl RequestSummary {
    /// Takes the method, URI and script from the request's variables.
    pub fn new(frame: &RequestFrame) -> RequestSummary {
        let text = |name| {
            let value = frame.variable(name).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        RequestSummary {
            method: text("REQUEST_METHOD"),
            uri: text("REQUEST_URI"),
            script: text("SCRIPT_FILENAME"),
        }
    }
}

/// A row in use. Its epoch distinguishes it from other uses of the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowId {
    pub index: u16,
    epoch: u64,
}

/// The length of the queue and the longest waiting time in it, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueView {
    pub waiting: u32,
    /// How long the oldest request in the queue has waited.
    pub waited: Duration,
}

/// The permission to run, released when it is dropped.
pub(crate) struct Permit {
    slot_queue: Arc<SlotQueue>,
    row: RowId,
    ticket: u64,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit {}", self.row.index)
    }
}

impl Permit {
    /// Returns the row that the permit belongs to.
    pub fn row(&self) -> RowId {
        self.row
    }

    /// Records the process that now runs in the row.
    pub fn set_pid(&self, pid: i32) {
        let mut state = self.slot_queue.lock();
        if let Some(used) = state.active_row(self.row) {
            used.pid = pid;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.slot_queue.lock();
        if let Some(used) = state.active_row(self.row) {
            used.running.retain(|running| running.ticket != self.ticket);
            used.served += 1;
            used.since = Instant::now();
        }
        drop(state);
        self.slot_queue.grant_permits();
        self.slot_queue.permit_released.notify_waiters();
    }
}

impl QueueState {
    fn active_row(&mut self, id: RowId) -> Option<&mut ActiveRow> {
        let row = self.rows.get_mut(id.index as usize)?;
        row.active.as_mut().filter(|_| row.epoch == id.epoch)
    }

    /// Returns the row that a request would get now.
    fn find_free_row(&self) -> Option<usize> {
        let rows = self.rows.iter().enumerate();
        let with_room = rows.filter_map(|(index, row)| {
            let used = row.active.as_ref().filter(|used| used.open)?;
            let running = used.running.len() as u32;
            (running < used.room).then_some((index, running, used.room))
        });
        // Compares running/room without a division.
        let least = with_room.min_by(|(_, a, x), (_, b, y)| {
            (u64::from(*a) * u64::from(*y)).cmp(&(u64::from(*b) * u64::from(*x)))
        });
        least.map(|(index, ..)| index)
    }

    /// Makes room in the queue if possible. Requests that are no longer waiting are removed. If there are none, the
    /// newest request of the client with the most requests is refused, if that client has more than this one would
    /// have. Returns whether there is room.
    fn make_room_for(&mut self, client: QueueClient) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiter| !waiter.sender.is_closed());
        if self.waiting.len() < before {
            return true;
        }
        let longest = self.waiting.longest();
        let longest = longest.filter(|(_, length)| *length > self.waiting.len_of(client) + 1);
        let Some(waiter) = longest.and_then(|(longest, _)| self.waiting.pop_newest(longest)) else {
            return false;
        };
        // That request may stop waiting at this very moment.
        let _ = waiter.sender.send(Err(ExecError::QueueFull));
        true
    }

    fn running_requests(&self) -> u32 {
        let used = self.rows.iter().filter_map(|row| row.active.as_ref());
        used.map(|used| used.running.len() as u32).sum()
    }
}

impl SlotQueue {
    /// Creates a scoreboard without rows.
    pub fn new(queue_size: u32) -> Arc<SlotQueue> {
        Arc::new(SlotQueue {
            queue_size,
            state: Mutex::default(),
            failures: std::array::from_fn(|_| AtomicU64::new(0)),
            permit_released: tokio::sync::Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a row, which requests get from now on.
    pub fn add_row(self: &Arc<Self>, room: u32, pid: i32) -> RowId {
        let mut state = self.lock();
        let index = match state.rows.iter().position(|row| row.active.is_none()) {
            Some(index) => index,
            None => {
                state.rows.push(ScoreboardRow::default());
                state.rows.len() - 1
            }
        };
        let row = &mut state.rows[index];
        row.epoch += 1;
        row.active = Some(ActiveRow {
            open: true,
            room,
            running: Vec::new(),
            served: 0,
            pid,
            since: Instant::now(),
            state: "Idle",
        });
        let id = RowId {
            index: index as u16,
            epoch: row.epoch,
        };
        drop(state);
        self.grant_permits();
        id
    }

    /// Waits for a permit, which is granted at once or when it is this request's turn.
    ///
    /// # Errors
    /// `QueueFull`, `QueueTimeout`, or the error passed to [`SlotQueue::set_refusal`].
    pub async fn acquire(
        self: &Arc<Self>,
        client: QueueClient,
        about: RequestSummary,
        limit: Duration,
    ) -> Result<Permit, ExecError> {
        let receiver = {
            let mut state = self.lock();
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            // Waiting requests go first, even if a row became free at this moment.
            if state.waiting.is_empty()
                && let Some(index) = state.find_free_row()
            {
                return Ok(self.occupy(&mut state, index, about));
            }
            if state.waiting.len() as u32 >= self.queue_size && !state.make_room_for(client) {
                return Err(ExecError::QueueFull);
            }
            let (sender, receiver) = oneshot::channel();
            let waiter = Waiter {
                sender,
                since: Instant::now(),
                summary: about,
            };
            state.waiting.push(client, waiter);
            state.reached += 1;
            state.max_queue = state.max_queue.max(state.waiting.len() as u32);
            receiver
        };
        match tokio::time::timeout(limit, receiver).await {
            Ok(Ok(outcome)) => outcome,
            // The sender is dropped only with the pool.
            Ok(Err(_)) => Err(ExecError::Stopping),
            Err(_) => Err(ExecError::QueueTimeout),
        }
    }

    fn occupy(
        self: &Arc<Self>,
        state: &mut QueueState,
        index: usize,
        about: RequestSummary,
    ) -> Permit {
        state.tickets += 1;
        state.accepted += 1;
        let ticket = state.tickets;
        let row = &mut state.rows[index];
        let id = RowId {
            index: index as u16,
            epoch: row.epoch,
        };
        if let Some(used) = &mut row.active {
            let since = Instant::now();
            used.since = since;
            used.running.push(RunningRequest {
                ticket,
                since,
                summary: about,
            });
        }
        state.max_active = state.max_active.max(state.running_requests());
        Permit {
            slot_queue: self.clone(),
            row: id,
            ticket,
        }
    }

    /// Grants permits for free rows to waiting requests.
    fn grant_permits(self: &Arc<Self>) {
        loop {
            let (sender, place) = {
                let mut state = self.lock();
                if state.refusal.is_some() {
                    return;
                }
                let Some(index) = state.find_free_row() else {
                    return;
                };
                let Some(waiter) = state.waiting.pop() else {
                    return;
                };
                if waiter.sender.is_closed() {
                    continue;
                }
                let place = self.occupy(&mut state, index, waiter.summary);
                (waiter.sender, place)
            };
            // If the request has stopped waiting at this very moment, the permit is dropped here, outside the lock, and
            // so released.
            let _ = sender.send(Ok(place));
        }
    }

    /// Refuses all requests with this error, including waiting ones. `None` grants permits again.
    pub fn set_refusal(self: &Arc<Self>, refusal: Option<ExecError>) {
        let waiting = {
            let mut state = self.lock();
            state.refusal = refusal.clone();
            match refusal {
                Some(_) => std::mem::take(&mut state.waiting),
                None => FairQueue::default(),
            }
        };
        match refusal {
            Some(error) => {
                for waiter in waiting.into_items() {
                    let _ = waiter.sender.send(Err(error.clone()));
                }
            }
            None => self.grant_permits(),
        }
    }

    /// Returns the current length of the queue, and how long its oldest request has waited.
    pub fn queue_view(&self) -> QueueView {
        let mut state = self.lock();
        state.waiting.retain(|waiter| !waiter.sender.is_closed());
        QueueView {
            waiting: state.waiting.len() as u32,
            waited: state
                .waiting
                .heads()
                .map(|waiter| waiter.since.elapsed())
                .max()
                .unwrap_or_default(),
        }
    }

    /// Waits until no request runs and none waits. A request that gives up waiting is noticed when a permit is
    /// released, or at the next periodic check.
    pub async fn wait_until_idle(&self) {
        loop {
            let left = self.permit_released.notified();
            let idle = {
                let state = self.lock();
                state.running_requests() == 0 && state.waiting.iter().all(|w| w.sender.is_closed())
            };
            if idle {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(50), left).await;
        }
    }

    /// Counts a failure. Called once per failed request.
    pub fn count_failure(&self, error: &ExecError) {
        self.failures[error.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Sets the fields of the status that this queue knows.
    pub fn fill_status(&self, status: &mut PoolStatus) {
        status.queue_size = self.queue_size;
        status.queue = self.queue_view().waiting;
        status.failures = crate::status::failures(&self.failures);
        let state = self.lock();
        status.accepted_requests = state.accepted;
        status.max_queue = state.max_queue;
        status.max_active_processes = state.max_active;
        status.max_children_reached = state.reached;
        for (index, row) in state.rows.iter().enumerate() {
            let Some(used) = &row.active else { continue };
            let oldest = used.running.iter().min_by_key(|running| running.since);
            match oldest {
                Some(_) => status.active_processes += 1,
                None if used.open => status.idle_processes += 1,
                None => {}
            }
            let about = oldest.map(|running| running.summary.clone());
            let about = about.unwrap_or_default();
            let since = oldest.map_or(used.since, |running| running.since);
            status.children.push(ChildRow {
                index: index as u16,
                pid: used.pid,
                state: match oldest {
                    Some(_) if used.open => "Busy",
                    _ => used.state,
                }
                .to_owned(),
                since: since.elapsed().as_secs_f64(),
                requests: used.served,
                method: about.method,
                uri: about.uri,
                script: about.script,
                memory: crate::common::process::resident_bytes(used.pid),
            });
        }
    }
}
