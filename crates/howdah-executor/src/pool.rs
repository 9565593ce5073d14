//! What the pools of all modes have in common: they are started, get ready, drain and are gone.
//! The only place that goes from a mode's settings to the code that runs it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::cgi::CgiPool;
use crate::config::{Mode, ProcessManager};
use crate::embed::EmbedPool;
use crate::fastcgi::FastCgiPool;
use crate::launch::Launcher;
use crate::program_pool::ProgramPool;
use crate::{ExecError, Executor, Log};

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
}

/// Starts a pool for `fronts` front threads (see [`crate::front_thread::attach`]). Returns at once:
/// requests queue until they can be run; [`Pool::ready`] resolves then, or says why not.
/// `may_sleep`: a pool that is to have no process at rest (`ondemand`) has none before its first
/// request.
///
/// # Errors
/// The pool's memory, thread or sockets could not be had.
pub fn start(
    mode: &Mode,
    launcher: Arc<dyn Launcher>,
    log: Log,
    fronts: u32,
    may_sleep: bool,
) -> io::Result<Arc<dyn Pool>> {
    Ok(match mode {
        Mode::Embed(config)
            if may_sleep && config.pm == ProcessManager::Ondemand && config.worker.is_none() =>
        {
            EmbedPool::start_asleep(config.clone(), launcher, log, fronts)?
        }
        Mode::Embed(config) => EmbedPool::start(config.clone(), launcher, log, fronts)?,
        Mode::FastCgi(config) => FastCgiPool::start(config.clone(), log, fronts)?,
        Mode::Cgi(config) => CgiPool::start(config.clone(), launcher, log)?,
        Mode::Pool(config) => ProgramPool::start(config.clone(), launcher, log, fronts)?,
    })
}

impl Pool for EmbedPool {
    fn ready(&self) -> Happens<'_, Result<(), ExecError>> {
        Box::pin(EmbedPool::ready(self))
    }

    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        EmbedPool::drain(self, successor, limit);
    }

    fn drained(&self) -> Happens<'_, ()> {
        Box::pin(EmbedPool::drained(self))
    }

    fn is_asleep(&self) -> bool {
        EmbedPool::is_asleep(self)
    }

    fn restart(&self) {
        EmbedPool::restart(self);
    }
}
