//! The state of a pool that its lanes need: its configuration, its log, the shared memory, the number of its requests,
//! and the supervisor's message queue.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use howdah_proto::control::ScriptsOperation;
use howdah_proto::shm::{ChildId, PoolPort};
use tokio::sync::oneshot;

use super::abandoning_clients::AbandoningClients;
use super::bailouts::Bailouts;
use crate::SharedScriptLog;
use crate::common::sys;
use crate::config::{PoolConfig, ProcessManager};

/// A message from a front thread to the supervisor.
#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// Kill a child whose memory or response is invalid.
    Kill(ChildId, &'static str),
    /// Wait until this deadline for the requests in flight to finish, then end all processes.
    Drain(Instant),
    /// Make the zygote perform this operation on the file of scripts. The sender is notified when it is done.
    Scripts(ScriptsOperation, OwnedFd, oneshot::Sender<()>),
}

/// The state of a pool, without its lanes.
pub(crate) struct PoolState {
    pub config: PoolConfig,
    pub log: SharedScriptLog,
    /// The number of cores for children: how many children the front keeps awake (see [`PoolPort::choose_wake`]).
    pub budget: u32,
    pub port: PoolPort,
    /// The number of requests that have started and not finished (waiting, published or claimed). Every thread writes
    /// it for every request, so it has its own cache line.
    pub outstanding: CachePadded<AtomicU32>,
    /// Whether the pool drains and accepts no new requests.
    pub closing: AtomicBool,
    /// Whether the supervisor could fork more children if it were asked to.
    pub may_grow: AtomicBool,
    pub abandoning_clients: AbandoningClients,
    pub bailouts: Arc<Bailouts>,
    messages: Mutex<Vec<SupervisorMessage>>,
    children_wanted: AtomicBool,
    supervisor_bell: OwnedFd,
}

impl PoolState {
    pub fn new(
        config: PoolConfig,
        log: SharedScriptLog,
        port: PoolPort,
    ) -> std::io::Result<PoolState> {
        Ok(PoolState {
            budget: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            port,
            outstanding: CachePadded::default(),
            closing: AtomicBool::new(false),
            may_grow: AtomicBool::new(!matches!(config.pm, ProcessManager::Static)),
            abandoning_clients: AbandoningClients::new(config.max_children),
            bailouts: Arc::default(),
            messages: Mutex::new(Vec::new()),
            children_wanted: AtomicBool::new(false),
            supervisor_bell: sys::create_bell()?,
            config,
            log,
        })
    }

    /// Counts a request as finished; the last one of a closing pool wakes the supervisor.
    pub fn record_finished(&self) {
        // SeqCst pairs with the drain, which sets `closing` before it reads `outstanding`: either the drain counts the
        // request as finished, or this thread sees that the pool closes.
        let before = self.outstanding.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.closing.load(Ordering::SeqCst) {
            self.wake_supervisor();
        }
    }

    /// Puts a message into the supervisor's queue and wakes the supervisor.
    pub fn send_to_supervisor(&self, ask: SupervisorMessage) {
        self.messages
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push(ask);
        sys::ring(self.supervisor_bell.as_fd());
    }

    /// Tells the supervisor that requests wait and no sleeping child can be woken. Rings only once until the supervisor
    /// has reacted.
    pub fn want_children(&self) {
        if self.may_grow.load(Ordering::Relaxed)
            && !self.children_wanted.swap(true, Ordering::AcqRel)
        {
            sys::ring(self.supervisor_bell.as_fd());
        }
    }

    /// Wakes the supervisor, which then checks the pool's state.
    pub fn wake_supervisor(&self) {
        sys::ring(self.supervisor_bell.as_fd());
    }

    /// Takes the messages since the last call. Called by the supervisor.
    pub fn take_messages(&self) -> Vec<SupervisorMessage> {
        sys::drain_bell(self.supervisor_bell.as_fd());
        // A swap, and not a store, because the requests of a thread that found `true` here must be visible from now on.
        self.children_wanted.swap(false, Ordering::AcqRel);
        std::mem::take(&mut *self.messages.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Returns a descriptor that is readable when there are messages. Used by the supervisor.
    pub fn message_bell(&self) -> BorrowedFd<'_> {
        self.supervisor_bell.as_fd()
    }

    /// Returns the bell that wakes the supervisor.
    pub fn supervisor_bell(&self) -> &OwnedFd {
        &self.supervisor_bell
    }
}
