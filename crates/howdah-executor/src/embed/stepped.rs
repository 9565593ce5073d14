//! A pool for simulations: the same pool, but its supervisor has no thread of its own. The supervisor works when the
//! caller calls it, by the simulated clock of the caller's thread ([`howdah_os::clock::simulated`]).

use std::io;
use std::sync::Arc;

use super::EmbedPool;
use super::shared::EmbedShared;
use super::supervisor::Supervisor;
use crate::launch::Launcher;
use crate::{PoolConfig, SharedScriptLog};

/// A pool whose supervisor works in [`SteppedPool::step`].
pub struct SteppedPool {
    pool: Arc<EmbedPool>,
    /// `None` once the pool has ended.
    supervisor: Option<Supervisor>,
}

impl SteppedPool {
    /// Like [`EmbedPool::start`], for one front thread. `awake_children` replaces the number of cores: as many children
    /// are kept awake.
    ///
    /// # Errors
    /// The errors of [`EmbedPool::start`].
    pub fn start(
        config: PoolConfig,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
        awake_children: u32,
    ) -> io::Result<SteppedPool> {
        let mut shared = EmbedShared::new(config, log, 1)?;
        shared.pool.budget = awake_children;
        let shared = Arc::new(shared);
        let supervisor = Supervisor::new(shared.clone(), launcher);
        supervisor.begin();
        Ok(SteppedPool {
            pool: Arc::new(EmbedPool::over(shared)),
            supervisor: Some(supervisor),
        })
    }

    /// Returns the pool, which executes requests.
    pub fn pool(&self) -> &Arc<EmbedPool> {
        &self.pool
    }

    /// Lets the supervisor handle everything that has arrived and do everything that is due. Returns whether the pool
    /// still runs.
    pub fn step(&mut self) -> bool {
        let Some(supervisor) = &mut self.supervisor else {
            return false;
        };
        supervisor.receive();
        if supervisor.work().is_none() {
            supervisor.close();
            self.supervisor = None;
        }
        self.supervisor.is_some()
    }
}
