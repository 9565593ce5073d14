//! The timer of a lane's queue. It wakes one more child when the awake ones turn out to be stuck, and ends requests
//! whose `queue_timeout` has passed. It is a task of the lane's own thread, which sleeps while no request waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lane::QueueAlarm;
use super::shared::EmbedShared;
use crate::ExecError;
use crate::common::condition::PoolCondition;
use crate::common::sys;

/// The interval at which the wake decision is repeated while requests wait although children sleep (the age test of
/// `PoolPort::choose_wake` needs time to pass).
const WAKE_RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Runs until the pool is closed.
pub(crate) async fn run(shared: Arc<EmbedShared>, front: u32) {
    let lane = &shared.lanes[front as usize];
    let closed = || {
        shared.pool.closing.load(Ordering::Relaxed)
            && *shared.condition.borrow() == PoolCondition::Closed
    };
    while !closed() {
        let wait = match lane.reset_alarm(&shared.pool) {
            QueueAlarm::Off => {
                lane.timer.notified().await;
                continue;
            }
            QueueAlarm::Deadline => time_until_timeout(&shared, front),
            QueueAlarm::Soon => WAKE_RETRY_INTERVAL,
        };
        // A notification means that the alarm has become more urgent, or that the pool is closed.
        let rung = tokio::time::timeout(wait, lane.timer.notified()).await;
        if rung.is_err() {
            check_queue(&shared, front);
        }
    }
}

/// Returns how long the oldest request may still wait.
fn time_until_timeout(shared: &EmbedShared, front: u32) -> Duration {
    let Some(oldest) = shared.lanes[front as usize].oldest_unclaimed() else {
        return WAKE_RETRY_INTERVAL;
    };
    let left = oldest
        .saturating_add(queue_timeout_ns(shared))
        .saturating_sub(sys::now_ns());
    Duration::from_nanos(left).max(WAKE_RETRY_INTERVAL)
}

fn queue_timeout_ns(shared: &EmbedShared) -> u64 {
    u64::try_from(shared.pool.config.queue_timeout.as_nanos()).unwrap_or(u64::MAX)
}

/// Refuses requests that have waited too long, and wakes children for those that still wait.
fn check_queue(shared: &EmbedShared, front: u32) {
    let lane = &shared.lanes[front as usize];
    let (now, patience) = (sys::now_ns(), queue_timeout_ns(shared));
    let late = |started_ns: u64| started_ns.saturating_add(patience) <= now;
    if lane.oldest_unclaimed().is_some_and(late) {
        lane.refuse_unclaimed(&shared.pool, &ExecError::QueueTimeout, |e| {
            late(e.started_ns)
        });
    }
    for _ in 0..shared.pool.budget {
        if !lane.has_unclaimed() || !lane.wake_child(&shared.pool, now) {
            break;
        }
    }
}
