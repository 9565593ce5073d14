//! What the pools of all modes have in common: they get ready, drain and are gone. [`crate::modes`]
//! starts them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::{ExecError, Executor};

/// A future that a pool's owner awaits.
pub type Happens<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A pool's life, around the requests it runs.
pub trait Pool: Executor {
    /// Waits until scripts can be run, or the first attempt to get there has failed (it is
    /// tried again all the same).
    fn ready(&self) -> Happens<'_, Result<(), ExecError>>;

    /// Ends the pool: requests in flight and waiting are finished, by `limit` at the latest (then
    /// `Stopping`), processes leave. Requests started from now on go to `successor`; without one
    /// they are refused (`Stopping`). Returns at once. A second call may shorten the limit; the
    /// first call's successor stays.
    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration);

    /// Waits until a draining pool has let go of everything.
    fn drained(&self) -> Happens<'_, ()>;

    /// Whether it has no process yet and waits for its first request to start any.
    fn is_asleep(&self) -> bool {
        false
    }

    /// The scripts have changed: processes that keep code in memory from one request to the next
    /// are replaced, one after the other, each when its replacement is ready. Nothing to do where
    /// none does. Returns at once; what becomes of it is in the log.
    fn restart(&self) {}

    /// The paths of the scripts that its opcode cache has, each ended by NUL; nothing where none are compiled
    /// in advance.
    fn scripts(&self) -> Happens<'_, Vec<u8>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Compiles the scripts of these paths, so that no request waits for that. What cannot be compiled is left to
    /// its request. Goes on, for a while, when nobody waits for it any more.
    fn compile<'p>(&'p self, _scripts: &'p [u8]) -> Happens<'p, ()> {
        Box::pin(std::future::ready(()))
    }
}
