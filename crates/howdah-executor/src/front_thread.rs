//! What a front thread does for its pools when it is about to sleep and when it wakes. Runs no
//! request and starts no thread.
//!
//! The server runs one `current_thread` tokio runtime a front thread, calls [`attach`] on it
//! before its first request and installs [`before_park`] and [`after_unpark`] as the runtime's
//! `on_thread_park` and `on_thread_unpark` hooks. Tokio does not sleep when `before_park` has
//! woken a task; when nothing was woken, every lane has announced its sleep, so that the next
//! child to answer rings the eventfd that the runtime's own epoll watches. The eventfd is
//! registered edge-triggered and never read: a ring costs the child one write and the front no
//! system call but the epoll it was in.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::unix::AsyncFd;

use crate::common::condition::Condition;
use crate::common::sys;
use crate::embed::shared::EmbedShared;
use crate::embed::timer;

/// After so many rounds of children signalling while the thread tries to sleep, it rings its own
/// bell and looks again after one look at its sockets.
const ROUNDS: u32 = 8;

/// A pool that this thread has used.
struct UsedPool {
    shared: Arc<EmbedShared>,
    /// Registered with the thread's runtime for as long as the entry lives.
    _bell: AsyncFd<OwnedFd>,
}

struct FrontThread {
    index: u32,
    pools: Vec<UsedPool>,
}

thread_local! {
    static THREAD: RefCell<Option<FrontThread>> = const { RefCell::new(None) };
}

/// Makes this thread front thread `index` (from 0, below the number the pools are started with).
pub fn attach(index: u32) {
    THREAD.with_borrow_mut(|thread| {
        *thread = Some(FrontThread {
            index,
            pools: Vec::new(),
        });
    });
}

/// Which front thread this is.
pub(crate) fn index() -> Option<u32> {
    THREAD.with_borrow(|thread| thread.as_ref().map(|t| t.index))
}

/// Makes the thread listen to a pool: called at its first request here, within the runtime.
pub(crate) fn register(shared: &Arc<EmbedShared>) -> std::io::Result<()> {
    THREAD.with_borrow_mut(|thread| {
        let Some(thread) = thread else {
            return Err(std::io::Error::other("not a front thread"));
        };
        let fd = shared.bells[thread.index as usize].try_clone()?;
        let bell = sys::listen(fd)?;
        tokio::spawn(timer::run(shared.clone(), thread.index));
        thread.pools.push(UsedPool {
            shared: shared.clone(),
            _bell: bell,
        });
        Ok(())
    })
}

/// The runtime's `on_thread_park` hook.
pub fn before_park() {
    THREAD.with_borrow_mut(|thread| {
        let Some(thread) = thread else { return };
        let index = thread.index as usize;
        thread
            .pools
            .retain(|pool| !forget(&pool.shared, thread.index));
        for pool in &thread.pools {
            let lane = &pool.shared.lanes[index];
            let mut round = 0;
            loop {
                lane.take_notified(&pool.shared.pool);
                if lane.go_to_sleep() {
                    break;
                }
                round += 1;
                if round == ROUNDS {
                    sys::ring(pool.shared.bells[index].as_fd());
                    break;
                }
            }
            lane.arm_timer(&pool.shared.pool);
        }
    });
}

/// The runtime's `on_thread_unpark` hook.
pub fn after_unpark() {
    THREAD.with_borrow(|thread| {
        let Some(thread) = thread else { return };
        for pool in &thread.pools {
            let lane = &pool.shared.lanes[thread.index as usize];
            lane.port.woke_up();
            lane.take_notified(&pool.shared.pool);
        }
    });
}

/// Whether a pool is closed and this thread has nothing of it left.
fn forget(shared: &EmbedShared, front: u32) -> bool {
    if !shared.pool.closing.load(Ordering::Relaxed) {
        return false;
    }
    *shared.condition.borrow() == Condition::Closed && {
        let lane = &shared.lanes[front as usize];
        lane.timer.notify_one();
        lane.is_empty()
    }
}
