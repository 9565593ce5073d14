//! The state that the front threads, the supervisor and the status page of a pool share: the memory, the lanes, the
//! counters.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use howdah_os::clock;
use howdah_proto::level::LogLevel;
use howdah_proto::shm::{ChildId, Geometry, PoolPort};

use super::lane::{Lane, LaneCounters};
use super::memory::SharedPoolMemory;
use super::pool_state::PoolState;
use crate::common::condition::PoolCondition;
use crate::common::fair_queue::QueueClient;
use crate::common::sys;
use crate::config::{MAX_CHILDREN, PoolConfig};
use crate::status::{PhpUpdateStatus, SlowRow};
use crate::{ExecError, Executor, SharedScriptLog};

/// The number of slots of a front thread beyond one for each child. Requests in these slots are published before a
/// child is free to claim them, so a child never waits for the front. The rest of the queue is in private memory.
const READY_AHEAD: u32 = 64;

/// A child, as the supervisor describes it for the status page.
#[derive(Clone, Debug)]
pub(crate) struct BoardRow {
    pub id: ChildId,
    pub pid: i32,
    pub since: Instant,
    /// `Starting`, `Booting`, `Serving`, `Retiring` or `Terminating`.
    pub state: &'static str,
}

/// Counters of a pool since its start.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    pub max_queue: AtomicU32,
    pub max_active: AtomicU32,
    pub slow: AtomicU64,
    pub bailouts: AtomicU64,
    pub failures: [AtomicU64; ExecError::NAMES.len()],
}

/// The state that the front threads and the supervisor of an embed pool share.
pub(crate) struct EmbedShared {
    pub pool: PoolState,
    /// Padded, so two threads share no cache line.
    pub lanes: Vec<CachePadded<Lane>>,
    /// One for each front thread; the children have duplicates.
    pub bells: Vec<OwnedFd>,
    pub counters: PoolCounters,
    /// The limit of `outstanding`: one request for each child, and the queue.
    pub capacity: u32,
    /// Whether the condition is [`PoolCondition::Down`], for a check without the lock.
    pub down: AtomicBool,
    /// Whether no zygote has been started. The first request starts one.
    pub asleep: AtomicBool,
    pub condition: tokio::sync::watch::Sender<PoolCondition>,
    pub successor: OnceLock<Arc<dyn Executor>>,
    pub started: Instant,
    /// PHP's version and whether opcache is on, once these are known.
    pub php: Mutex<(String, bool)>,
    /// Another PHP on disk, which the pool has not taken yet.
    pub php_update: Mutex<Option<PhpUpdateStatus>>,
    pub board: Mutex<Vec<BoardRow>>,
    /// The most recent slow requests, the newest first.
    pub slow: Mutex<VecDeque<SlowRow>>,
    /// The pool's memory.
    pub memory: SharedPoolMemory,
}

impl EmbedShared {
    pub fn new(
        config: PoolConfig,
        log: SharedScriptLog,
        fronts: u32,
    ) -> std::io::Result<EmbedShared> {
        if !(1..=MAX_CHILDREN).contains(&config.max_children) {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidInput,
                format!(
                    "pool {}: max_children is {}, but must be between 1 and {MAX_CHILDREN}",
                    config.name, config.max_children
                ),
            ));
        }
        let children = scoreboard_rows(config.max_children);
        let geometry = Geometry {
            fronts,
            slots: (config.max_children + READY_AHEAD).min(Geometry::MAX_SLOTS),
            children,
            shared_cache: config.shared_cache.map_or(0, |bytes| bytes.div_ceil(8)),
        };
        let (memory, ports) = SharedPoolMemory::create(geometry)?;
        Ok(EmbedShared {
            lanes: ports
                .into_iter()
                .map(|port| CachePadded::new(Lane::new(port, config.max_children)))
                .collect(),
            bells: (0..fronts)
                .map(|_| sys::create_bell())
                .collect::<Result<_, _>>()?,
            counters: PoolCounters::default(),
            capacity: config.max_children.saturating_add(config.queue_size),
            down: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            condition: tokio::sync::watch::Sender::new(PoolCondition::Starting),
            successor: OnceLock::new(),
            started: clock::now(),
            php: Mutex::default(),
            php_update: Mutex::default(),
            board: Mutex::default(),
            slow: Mutex::default(),
            pool: PoolState::new(config, log, PoolPort::new(memory.region().clone()))?,
            memory,
        })
    }

    /// Tells the successor that this pool has ended, unless a predecessor of this pool is still running.
    pub fn notify_successor(&self) {
        if let Some(successor) = self.successor.get()
            && self.pool.port.shared_cache_is_open()
        {
            successor.set_predecessor_running(false);
        }
    }

    /// Admits a client's request on front thread `front`, if there is room in the queue, or if a client with more
    /// requests in it can be made to give up one.
    ///
    /// # Errors
    /// `Stopping`, `PoolDown` or `QueueFull`.
    pub fn admit(&self, front: u32, client: QueueClient) -> Result<(), ExecError> {
        if self.pool.closing.load(Ordering::Acquire) {
            return Err(ExecError::Stopping);
        }
        if self.down.load(Ordering::Acquire) {
            return Err(self.down_error());
        }
        let outstanding = self.pool.outstanding.fetch_add(1, Ordering::SeqCst) + 1;
        if outstanding > self.capacity && !self.make_room_for(front, client) {
            self.pool.record_finished();
            return Err(ExecError::QueueFull);
        }
        // Check again, now that a drain would wait for this request. SeqCst pairs with the drain, which sets `closing`
        // before it reads `outstanding`: it cannot miss the request while this thread misses the drain.
        if self.pool.closing.load(Ordering::SeqCst) {
            self.pool.record_finished();
            return Err(ExecError::Stopping);
        }
        let max_children = self.pool.config.max_children;
        raise_mark(&self.counters.max_active, outstanding.min(max_children));
        if outstanding > max_children {
            raise_mark(&self.counters.max_queue, outstanding - max_children);
            self.lanes[front as usize]
                .counters
                .max_children_reached
                .fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Refuses the newest request of the client with the most requests in the queue, if that client has more than this
    /// one would have. Returns whether it did.
    fn make_room_for(&self, front: u32, client: QueueClient) -> bool {
        // The client that has filled the queue sends most of the requests that come here. They are refused first,
        // without a check of the other lanes.
        let (own, longest) = self.lanes[front as usize].waiting_counts(client);
        if longest.is_some_and(|(longest, _)| longest == client) {
            return false;
        }
        let others = (0..).zip(&self.lanes).filter(|(lane, _)| *lane != front);
        let others = others.map(|(_, lane)| (lane, lane.waiting_counts(client)));
        let all: Vec<_> = std::iter::once((&self.lanes[front as usize], (own, longest)))
            .chain(others)
            .collect();
        let own: usize = all.iter().map(|(_, (own, _))| own).sum();
        let longest = all
            .iter()
            .filter_map(|(lane, (_, longest))| Some((*lane, (*longest)?)));
        longest
            .filter(|(_, (_, length))| *length > own + 1)
            .max_by_key(|(_, (_, length))| *length)
            .is_some_and(|(lane, (other, _))| lane.refuse_newest(&self.pool, other))
    }

    /// Returns the sum of a counter over all lanes.
    pub fn sum(&self, counter: impl Fn(&LaneCounters) -> &AtomicU64) -> u64 {
        let each = self.lanes.iter().map(|lane| counter(&lane.counters));
        each.map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Counts a failure under its name.
    pub fn count_failure(&self, error: &ExecError) {
        self.counters.failures[error.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns duplicates of the bells that children ring: one for each front thread, and then the supervisor's, for a
    /// child that has begun its last request.
    pub fn duplicate_child_bells(&self) -> std::io::Result<Vec<OwnedFd>> {
        let bells = self.bells.iter().chain([self.pool.supervisor_bell()]);
        bells.map(OwnedFd::try_clone).collect()
    }

    /// Returns the number of requests that no child has claimed yet.
    pub fn queue_len(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.unclaimed()).sum()
    }

    /// Rings the bell of every front thread.
    pub fn ring_all_bells(&self) {
        for bell in &self.bells {
            sys::ring(bell.as_fd());
        }
    }

    /// Handles a panic of the supervisor, which is a bug of this program: without a supervisor the pool can only refuse
    /// requests.
    pub fn supervisor_panicked(&self) {
        let (name, message) = (
            "SupervisorPanicked",
            "this is a bug in the server: the pool has lost its supervisor; restart the server",
        );
        self.pool
            .log
            .pool(&self.pool.config.name, LogLevel::Emergency, name, message);
        self.condition.send_replace(PoolCondition::Down {
            name: name.to_owned(),
            message: message.to_owned(),
        });
        self.down.store(true, Ordering::Release);
        let error = self.down_error();
        for lane in &self.lanes {
            lane.refuse_unclaimed(&self.pool, &error, |_| true);
        }
    }

    /// Returns the error with which requests are refused while the pool is down.
    pub fn down_error(&self) -> ExecError {
        match &*self.condition.borrow() {
            PoolCondition::Down { name, message } => ExecError::PoolDown {
                name: name.clone(),
                message: message.clone(),
            },
            _ => ExecError::PoolDown {
                name: "ZygoteRestarting".to_owned(),
                message: "the pool's zygote is being started; try again".to_owned(),
            },
        }
    }
}

/// Raises a high-water mark. Does not write if the mark is already high enough.
fn raise_mark(mark: &AtomicU32, value: u32) {
    if mark.load(Ordering::Relaxed) < value {
        mark.fetch_max(value, Ordering::Relaxed);
    }
}

/// Returns the number of rows of the scoreboard: twice the number of children, because those of an old zygote may still
/// finish their requests while the new one's serve, and some for replacements.
fn scoreboard_rows(max_children: u32) -> u32 {
    (2 * max_children + 8).min(Geometry::MAX_CHILDREN)
}
