//! The pools of a configuration, which are started beside the old ones; the old ones drain.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use howdah_executor::{Executor, ScriptPool, SharedScriptLog, modes};

use crate::front::launcher::MasterLauncher;
use howdah_config::ServeSettings;

/// Pools by name.
pub(super) type PoolsByName = HashMap<String, Arc<dyn ScriptPool>>;

/// Returns a runtime of the current thread for waiting for pools.
pub(super) fn waiting_runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
}

/// Starts all pools and waits until each can run scripts. All failures are reported. A pool that has no process while
/// it is idle is started without one, unless the pool of the same name in `former` was awake: its visitors must not
/// wait for a start.
pub(super) fn start_pools(
    settings: &ServeSettings,
    launcher: Arc<MasterLauncher>,
    log: SharedScriptLog,
    threads: u32,
    former: &PoolsByName,
) -> Result<PoolsByName, Vec<String>> {
    let failed = |name: &str, why: String| format!("pool `{name}`: {why}");
    let runtime = waiting_runtime().map_err(|e| vec![e.to_string()])?;
    let (mut pools, mut mistakes) = (PoolsByName::new(), Vec::new());
    for mode in &settings.pools {
        let name = mode.name();
        let may_sleep = former.get(name).is_none_or(|pool| pool.is_asleep());
        match modes::start(mode, launcher.clone(), log.clone(), threads, may_sleep) {
            Ok(pool) => {
                pools.insert(name.to_owned(), pool);
            }
            Err(error) => {
                mistakes.push(failed(name, format!("the pool cannot be created: {error}")))
            }
        }
    }
    let deadline = Instant::now() + settings.server.timeouts.start;
    for (name, pool) in &pools {
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = runtime.block_on(async { tokio::time::timeout(left, pool.ready()).await });
        match ready {
            Ok(Ok(())) => {}
            Ok(Err(error)) => mistakes.push(failed(name, error.to_string())),
            Err(_) => mistakes.push(failed(
                name,
                format!(
                    "StartTimeout: PHP was not ready within timeouts.start = {} s",
                    settings.server.timeouts.start.as_secs()
                ),
            )),
        }
    }
    if mistakes.is_empty() {
        Ok(pools)
    } else {
        Err(mistakes)
    }
}

/// Drains the old pools. A request that still reaches an old pool is passed on to its successor. A thread of its own
/// holds the pools until they have drained, and then calls `over`.
pub(super) fn retire(
    old: PoolsByName,
    successors: &HashMap<String, Arc<dyn Executor>>,
    drain: Duration,
    over: impl FnOnce() + Send + 'static,
) {
    for (name, pool) in &old {
        pool.drain(successors.get(name).cloned(), drain);
    }
    let waited = std::thread::Builder::new()
        .name("retire".to_owned())
        .spawn(move || {
            if let Ok(runtime) = waiting_runtime() {
                runtime.block_on(async {
                    for pool in old.values() {
                        pool.drained().await;
                    }
                });
            }
            drop(old);
            over();
        });
    // If no thread can be started, the pools are dropped here and end at once.
    drop(waited);
}
