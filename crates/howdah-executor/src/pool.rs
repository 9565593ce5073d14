//! The life cycle that the pools of all modes share: they become ready, drain and end. [`crate::modes`] starts them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{ExecError, Executor};

/// A future that the owner of a pool awaits.
pub type PoolFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The life cycle of a pool, apart from the requests it runs.
pub trait ScriptPool: Executor {
    /// Waits until scripts can run, or the first attempt to start has failed (further attempts follow all the same).
    fn ready(&self) -> PoolFuture<'_, Result<(), ExecError>>;

    /// Drains the pool: requests that run or wait are finished within `limit` (after it they fail with `Stopping`), and
    /// processes exit. Requests that start from now on go to `successor`; without one they are refused (`Stopping`).
    /// Returns at once. A second call may shorten the limit; the first call's successor remains.
    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration);

    /// Waits until a draining pool has released everything.
    fn drained(&self) -> PoolFuture<'_, ()>;

    /// Returns whether the pool has no process yet and waits for its first request to start one.
    fn is_asleep(&self) -> bool {
        false
    }

    /// Returns the paths of the scripts in the pool's opcode cache, each ended by NUL. The result is empty in modes
    /// that do not compile scripts in advance.
    fn cached_scripts(&self) -> PoolFuture<'_, Vec<u8>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Compiles the scripts with these paths, so no request has to wait for it. A script that cannot be compiled is
    /// left to its request. The work continues for a while if the future is dropped.
    fn compile_scripts<'p>(&'p self, _scripts: &'p [u8]) -> PoolFuture<'p, ()> {
        Box::pin(std::future::ready(()))
    }
}
