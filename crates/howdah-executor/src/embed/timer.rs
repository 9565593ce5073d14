//! The clock of a lane's queue: wakes one more child when those awake turn out to be stuck, and
//! ends requests whose `queue_timeout` has passed. A task of the lane's own thread, asleep while
//! nothing waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::{Condition, Shared};
use super::sys;
use crate::ExecError;

/// While requests wait although children sleep, the wake decision is taken again this often (the
/// age test of `PoolPort::choose_wake` needs time to pass).
const WAKE_AGAIN: Duration = Duration::from_millis(1);

/// Runs until the pool is closed.
pub(crate) async fn run(shared: Arc<Shared>, front: u32) {
    let lane = &shared.lanes[front as usize];
    loop {
        lane.timer.notified().await;
        if shared.closing.load(Ordering::Relaxed) && *shared.condition.borrow() == Condition::Closed
        {
            return;
        }
        while let Some(wait) = look(&shared, front) {
            tokio::time::sleep(wait).await;
        }
        lane.disarm_timer();
    }
}

/// Does what is due; returns when to look again, `None` when nothing waits.
fn look(shared: &Shared, front: u32) -> Option<Duration> {
    let lane = &shared.lanes[front as usize];
    let oldest = lane.oldest_unclaimed()?;
    let now = sys::now_ns();
    let patience = u64::try_from(shared.config.queue_timeout.as_nanos()).unwrap_or(u64::MAX);
    let mut left = oldest.saturating_add(patience).saturating_sub(now);
    if left == 0 {
        lane.refuse_unclaimed(shared, &ExecError::QueueTimeout, |e| {
            e.started_ns.saturating_add(patience) <= now
        });
        left = lane
            .oldest_unclaimed()?
            .saturating_add(patience)
            .saturating_sub(now);
    }
    let mut wakes = 0;
    while wakes < shared.budget && lane.wake_a_child(shared, now) {
        wakes += 1;
    }
    if shared.port.sleepers() > 0 {
        return Some(WAKE_AGAIN);
    }
    Some(Duration::from_nanos(left).max(WAKE_AGAIN))
}
