//! The end: no more connections, what runs is finished, PHP leaves, logs are written.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_http::listener::Server;

use super::super::Shared;
use super::pools::{Pools, runtime};
use super::{Ending, Running};

/// After the last request, how long the processes of a pool may take to leave, and leaving a fleet.
pub const LEAVING: Duration = Duration::from_secs(2);
/// At the end, how long pages on disk may take to be flushed; the master waits five seconds.
const FLUSHING: Duration = Duration::from_secs(3);

/// Stops in the time that is left: no more connections, what runs is finished, PHP leaves, logs are
/// written.
pub fn finish(shared: &Shared) {
    let Some((server, pools)) = begin_to_finish(shared) else {
        return;
    };
    if let Some(server) = server {
        server.wait();
    }
    let left = drain_pools(shared);
    if let Ok(runtime) = runtime() {
        let gone = async {
            for pool in pools.values() {
                pool.drained().await;
            }
        };
        // Remaining processes notice their pool's closed sockets.
        let _ = runtime.block_on(async { tokio::time::timeout(left + LEAVING, gone).await });
    }
    if let Some(front) = shared.front.get() {
        let config = front.config();
        if let Some(fleet) = &config.settings.fleet {
            fleet.leave_within(LEAVING);
        }
        if let Some(disk) = &config.settings.cache_disk {
            // What is not flushed by then is not believed after the machine was stopped; it is after a
            // restart.
            disk.close(FLUSHING);
        }
        if let Some(traces) = &config.settings.traces {
            traces.exporter().finish();
        }
        if let Some(log) = &config.settings.access_log {
            log.sink().flush();
        }
    }
    if let Some(log) = shared.error_log.get() {
        log.sink().flush();
    }
}

fn begin_to_finish(shared: &Shared) -> Option<(Option<Server>, Pools)> {
    let mut running = shared.running();
    let running = running.as_mut()?;
    let limit = shared.time_to_stop().unwrap_or_default();
    stop_serving(shared, running, limit);
    running.ending = Ending::Requests(Instant::now() + limit);
    Some((running.server.take(), running.pools.clone()))
}

fn stop_serving(shared: &Shared, running: &Running, limit: Duration) {
    match shared.followed.load(Ordering::Relaxed) {
        true => running.control.part(limit),
        false => running.control.stop(limit),
    }
}

/// The last request is answered: PHP leaves. Returns how long a script that runs on may take.
fn drain_pools(shared: &Shared) -> Duration {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return Duration::ZERO;
    };
    let left = match running.ending {
        Ending::Requests(deadline) => deadline.saturating_duration_since(Instant::now()),
        Ending::No | Ending::Pools => Duration::ZERO,
    };
    running.ending = Ending::Pools;
    for pool in running.pools.values() {
        pool.drain(None, left);
    }
    left
}

/// A stop in progress gets another limit.
pub fn shorten_deadline(shared: &Shared) {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return;
    };
    let limit = shared.time_to_stop().unwrap_or_default();
    stop_serving(shared, running, limit);
    match running.ending {
        Ending::Pools => {
            for pool in running.pools.values() {
                pool.drain(None, limit);
            }
        }
        Ending::No | Ending::Requests(_) => {
            running.ending = Ending::Requests(Instant::now() + limit);
        }
    }
}
