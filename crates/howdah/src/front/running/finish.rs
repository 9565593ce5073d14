//! The end of the front: it accepts no more connections, finishes the running requests, stops PHP and flushes the logs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_http::listener::HttpServer;
use howdah_server::cache::CacheDiskState;

use super::super::FrontShared;
use super::pools::{PoolsByName, waiting_runtime};
use super::{RunningServer, StopProgress};

/// How long the processes of a pool may take to exit after the last request. Also the time limit for leaving a fleet.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long flushing pages to disk may take at the end. The master waits for five seconds.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Stops within the time that is left: accepts no more connections, finishes the running requests, stops PHP and
/// flushes the logs.
pub fn finish(shared: &FrontShared) {
    let Some((server, pools)) = stop_accepting(shared) else {
        return;
    };
    if let Some(server) = server {
        server.wait();
    }
    let left = drain_pools(shared);
    if let Ok(runtime) = waiting_runtime() {
        let gone = async {
            for pool in pools.values() {
                pool.drained().await;
            }
        };
        // Remaining processes notice that their pool's sockets are closed.
        let _ = runtime.block_on(async { tokio::time::timeout(left + LEAVE_TIMEOUT, gone).await });
    }
    if let Some(front) = shared.front.get() {
        let config = front.config();
        if let Some(fleet) = &config.process.cache.fleet {
            fleet.leave_within(LEAVE_TIMEOUT);
        }
        let disk = config.resources.cache_disk.as_ref();
        if let Some(disk) = disk.and_then(CacheDiskState::store) {
            // Pages that are not flushed by then are not trusted after the machine was restarted. They are trusted
            // after a restart of the server alone.
            disk.close(FLUSH_TIMEOUT);
        }
        if let Some(traces) = &config.resources.traces {
            traces.exporter().finish();
        }
        if let Some(log) = &config.resources.access_log {
            log.sink().flush();
        }
    }
    if let Some(log) = shared.error_log.get() {
        log.sink().flush();
    }
}

fn stop_accepting(shared: &FrontShared) -> Option<(Option<HttpServer>, PoolsByName)> {
    let mut running = shared.running();
    let running = running.as_mut()?;
    let limit = shared.time_to_stop().unwrap_or_default();
    stop_serving(shared, running, limit);
    running.stop_progress = StopProgress::WaitsForRequests(Instant::now() + limit);
    Some((running.server.take(), running.pools.clone()))
}

fn stop_serving(shared: &FrontShared, running: &RunningServer, limit: Duration) {
    match shared.is_followed.load(Ordering::Relaxed) {
        true => running.control.stop_for_successor(limit),
        false => running.control.stop(limit),
    }
}

/// Stops PHP after the last response. Returns how long a script that is still running may take.
fn drain_pools(shared: &FrontShared) -> Duration {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return Duration::ZERO;
    };
    let left = match running.stop_progress {
        StopProgress::WaitsForRequests(deadline) => {
            deadline.saturating_duration_since(Instant::now())
        }
        StopProgress::NotStopping | StopProgress::WaitsForPools => Duration::ZERO,
    };
    running.stop_progress = StopProgress::WaitsForPools;
    for pool in running.pools.values() {
        pool.drain(None, left);
    }
    left
}

/// Applies another limit to a stop that is in progress.
pub fn shorten_deadline(shared: &FrontShared) {
    let mut running = shared.running();
    let Some(running) = running.as_mut() else {
        return;
    };
    let limit = shared.time_to_stop().unwrap_or_default();
    stop_serving(shared, running, limit);
    match running.stop_progress {
        StopProgress::WaitsForPools => {
            for pool in running.pools.values() {
                pool.drain(None, limit);
            }
        }
        StopProgress::NotStopping | StopProgress::WaitsForRequests(_) => {
            running.stop_progress = StopProgress::WaitsForRequests(Instant::now() + limit);
        }
    }
}
