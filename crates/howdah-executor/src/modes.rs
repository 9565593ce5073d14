//! Starts the pool for a mode's settings. This is the only module that knows all modes.

use std::io;
use std::sync::Arc;

use crate::cgi::CgiPool;
use crate::config::{PoolMode, ProcessManager};
use crate::embed::EmbedPool;
use crate::fastcgi::FastCgiPool;
use crate::launch::Launcher;
use crate::program_pool::ProgramPool;
use crate::{ScriptPool, SharedScriptLog};

/// Starts a pool for `fronts` front threads (see [`crate::front_thread::attach`]). Returns at once: requests queue
/// until they can run. [`ScriptPool::ready`] then resolves, or returns the reason for a failure. With `may_sleep`, a
/// pool that runs no idle processes (`ondemand`) starts none before its first request.
///
/// # Errors
/// The pool's memory, thread or sockets cannot be created.
pub fn start(
    mode: &PoolMode,
    launcher: Arc<dyn Launcher>,
    log: SharedScriptLog,
    fronts: u32,
    may_sleep: bool,
) -> io::Result<Arc<dyn ScriptPool>> {
    Ok(match mode {
        PoolMode::Embed(config)
            if may_sleep && config.pm == ProcessManager::Ondemand && config.worker.is_none() =>
        {
            EmbedPool::start_asleep(config.clone(), launcher, log, fronts)?
        }
        PoolMode::Embed(config) => EmbedPool::start(config.clone(), launcher, log, fronts)?,
        PoolMode::FastCgi(config) => FastCgiPool::start(config.clone(), log, fronts)?,
        PoolMode::Cgi(config) => CgiPool::start(config.clone(), launcher, log)?,
        PoolMode::Pool(config) => ProgramPool::start(config.clone(), launcher, log, fronts)?,
    })
}
