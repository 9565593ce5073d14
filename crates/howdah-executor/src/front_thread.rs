//! What a front thread does for its pools before it sleeps and after it wakes. This module runs no request and starts
//! no thread.
//!
//! The server runs one `current_thread` tokio runtime per front thread. It calls [`attach`] on the thread before the
//! first request, and installs [`before_park`] and [`after_unpark`] as the runtime's `on_thread_park` and
//! `on_thread_unpark` hooks. Tokio does not sleep if `before_park` has woken a task. If it has woken none, every lane
//! has announced its sleep, so the next child that responds rings the eventfd, which the runtime's epoll watches. The
//! eventfd is registered edge-triggered and never read: a ring costs the child one write, and the front no system call
//! besides its epoll.

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::io::unix::AsyncFd;

use crate::common::condition::PoolCondition;
use crate::common::sys;
use crate::embed::shared::EmbedShared;
use crate::embed::timer;

/// If children have signalled in this many rounds while the thread tried to sleep, the thread rings its own bell and
/// continues after one check of its sockets.
const MAX_PARK_ROUNDS: u32 = 8;

/// A pool that this thread has used.
struct UsedPool {
    shared: Arc<EmbedShared>,
    /// Registered with the thread's runtime while the entry lives.
    _bell: AsyncFd<OwnedFd>,
}

struct FrontThreadPools {
    index: u32,
    pools: Vec<UsedPool>,
}

thread_local! {
    static THREAD: RefCell<Option<FrontThreadPools>> = const { RefCell::new(None) };
}

/// Makes this thread the front thread `index` (from 0, below the number with which the pools are started).
pub fn attach(index: u32) {
    THREAD.with_borrow_mut(|thread| {
        *thread = Some(FrontThreadPools {
            index,
            pools: Vec::new(),
        });
    });
}

/// Returns the index of this front thread, or `None` on another thread.
pub(crate) fn index() -> Option<u32> {
    THREAD.with_borrow(|thread| thread.as_ref().map(|t| t.index))
}

/// Makes this thread listen to a pool. Called at the pool's first request on this thread, within the runtime.
pub(crate) fn register(shared: &Arc<EmbedShared>) -> std::io::Result<()> {
    THREAD.with_borrow_mut(|thread| {
        let Some(thread) = thread else {
            return Err(std::io::Error::other("not a front thread"));
        };
        let fd = shared.bells[thread.index as usize].try_clone()?;
        let bell = sys::register_bell(fd)?;
        tokio::spawn(timer::run(shared.clone(), thread.index));
        thread.pools.push(UsedPool {
            shared: shared.clone(),
            _bell: bell,
        });
        Ok(())
    })
}

/// Runs as the runtime's `on_thread_park` hook.
pub fn before_park() {
    THREAD.with_borrow_mut(|thread| {
        let Some(thread) = thread else { return };
        let index = thread.index as usize;
        thread
            .pools
            .retain(|pool| !is_finished(&pool.shared, thread.index));
        for pool in &thread.pools {
            let lane = &pool.shared.lanes[index];
            let mut round = 0;
            loop {
                lane.handle_notifications(&pool.shared.pool);
                if lane.go_to_sleep() {
                    break;
                }
                round += 1;
                if round == MAX_PARK_ROUNDS {
                    sys::ring(pool.shared.bells[index].as_fd());
                    break;
                }
            }
            lane.arm_timer(&pool.shared.pool);
        }
    });
}

/// Runs as the runtime's `on_thread_unpark` hook.
pub fn after_unpark() {
    THREAD.with_borrow(|thread| {
        let Some(thread) = thread else { return };
        for pool in &thread.pools {
            let lane = &pool.shared.lanes[thread.index as usize];
            lane.port.woke_up();
            lane.handle_notifications(&pool.shared.pool);
        }
    });
}

/// Returns whether a pool is closed and has no requests left on this thread.
fn is_finished(shared: &EmbedShared, front: u32) -> bool {
    if !shared.pool.closing.load(Ordering::Relaxed) {
        return false;
    }
    *shared.condition.borrow() == PoolCondition::Closed && {
        let lane = &shared.lanes[front as usize];
        lane.timer.notify_one();
        lane.is_empty()
    }
}
