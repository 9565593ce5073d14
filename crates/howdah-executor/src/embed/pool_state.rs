//! What the lanes of a pool know of it: its configuration, its log, the shared memory, how many requests it
//! has, and the supervisor's message queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use howdah_proto::control::ScriptsWork;
use howdah_proto::shm::{ChildId, PoolPort};
use tokio::sync::oneshot;

use super::bailouts::Bailouts;
use super::leavers::Leavers;
use crate::Log;
use crate::common::sys;
use crate::config::{PoolConfig, ProcessManager};

/// What a front thread wants of the supervisor.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Kill a child whose memory or answers make no sense.
    Kill(ChildId, &'static str),
    /// Replace all workers by newly booted ones.
    Restart,
    /// Finish what is in flight, by then at the latest, and end all processes.
    Drain(Instant),
    /// Have the zygote do this with a file of scripts.
    Scripts(ScriptsWork, OwnedFd, oneshot::Sender<()>),
}

/// A pool, but for its lanes.
pub(crate) struct PoolState {
    pub config: PoolConfig,
    pub log: Log,
    /// Cores there are to run children: how many the front keeps awake (see
    /// [`PoolPort::choose_wake`]).
    pub budget: u32,
    pub port: PoolPort,
    /// Requests started and not yet through (waiting, published or claimed).
    /// Every thread writes it with every request, so it has a cache line of its own.
    pub outstanding: CachePadded<AtomicU32>,
    /// No new requests: the pool drains.
    pub closing: AtomicBool,
    /// Whether the supervisor could fork more children if it were asked to.
    pub may_grow: AtomicBool,
    pub leavers: Leavers,
    pub bailouts: Arc<Bailouts>,
    letters: Mutex<Vec<Ask>>,
    wanted: AtomicBool,
    supervisor_bell: OwnedFd,
}

impl PoolState {
    pub fn new(config: PoolConfig, log: Log, port: PoolPort) -> std::io::Result<PoolState> {
        Ok(PoolState {
            budget: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            port,
            outstanding: CachePadded::default(),
            closing: AtomicBool::new(false),
            may_grow: AtomicBool::new(!matches!(config.pm, ProcessManager::Static)),
            leavers: Leavers::of(config.max_children),
            bailouts: Arc::default(),
            letters: Mutex::new(Vec::new()),
            wanted: AtomicBool::new(false),
            supervisor_bell: sys::bell()?,
            config,
            log,
        })
    }

    /// Counts a request as finished; the last one of a closing pool wakes the supervisor.
    pub fn leave(&self) {
        let before = self.outstanding.fetch_sub(1, Ordering::AcqRel);
        if before == 1 && self.closing.load(Ordering::Acquire) {
            self.nudge();
        }
    }

    /// Puts a request into the supervisor's queue and wakes it.
    pub fn ask(&self, ask: Ask) {
        self.letters
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push(ask);
        sys::ring(self.supervisor_bell.as_fd());
    }

    /// Informs the supervisor that requests wait and no child sleeps that could be woken; rings once until
    /// it has looked.
    pub fn want_children(&self) {
        if self.may_grow.load(Ordering::Relaxed) && !self.wanted.swap(true, Ordering::AcqRel) {
            sys::ring(self.supervisor_bell.as_fd());
        }
    }

    /// Wakes the supervisor so that it looks at the pool's state.
    pub fn nudge(&self) {
        sys::ring(self.supervisor_bell.as_fd());
    }

    /// The supervisor's: what has been asked since the last call.
    pub fn take_letters(&self) -> Vec<Ask> {
        sys::silence(self.supervisor_bell.as_fd());
        self.wanted.store(false, Ordering::Release);
        std::mem::take(&mut *self.letters.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// The supervisor's: readable when there is something to take.
    pub fn letter_bell(&self) -> BorrowedFd<'_> {
        self.supervisor_bell.as_fd()
    }

    /// The bell by which the supervisor is woken.
    pub fn supervisor_bell(&self) -> &OwnedFd {
        &self.supervisor_bell
    }
}
