//! The cgi mode (RFC 3875): one process for each request, for PHP (`php-cgi`) and for any other program (Perl, Python,
//! C, shell). This is the front's side of a pool.
//!
//! ```text
//! CgiPool ─ start() → Run   permit → pipes → spawner: fork, exec → output → head, body → exit
//! ```
//!
//! - [`run`]: one request; [`variables`]: its program's environment; `input`: its request body; `cleanup`: the work
//!   that outlives the run: standard error, the exit, the permit.
//!
//! The spawner owns the processes (see [`crate::programs`]). A program's permit is released when the program has
//! exited, not when its response is complete.

mod cleanup;
mod input;
mod run;
mod variables;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::condition::PoolCondition;
use crate::common::event_channel::FutureRun;
use crate::config::CgiConfig;
use crate::launch::Launcher;
use crate::pool::PoolFuture;
use crate::programs::draining::Draining;
use crate::programs::slot_queue::SlotQueue;
use crate::programs::spawner_client::SpawnerClient;
use crate::status::PoolStatus;
use crate::{
    ExecError, Executor, PoolMode, ScriptPool, ScriptRequest, ScriptRole, ScriptRun,
    SharedScriptLog,
};

/// How a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptKind {
    /// The pool's configured program runs the script.
    Php,
    /// The script is itself a program and is executed directly.
    Program,
}

struct CgiShared {
    config: CgiConfig,
    log: SharedScriptLog,
    spawner: Arc<SpawnerClient>,
    slot_queue: Arc<SlotQueue>,
    draining: Draining,
    started: Instant,
}

/// A pool of mode `cgi`: it starts a process for each request.
pub struct CgiPool {
    shared: Arc<CgiShared>,
}

impl CgiPool {
    /// Starts the pool's spawner. Returns at once; [`ScriptPool::ready`] resolves when programs can run.
    ///
    /// # Errors
    /// The thread that communicates with the spawner cannot be started.
    pub fn start(
        config: CgiConfig,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
    ) -> io::Result<Arc<CgiPool>> {
        let mode = PoolMode::Cgi(config.clone());
        let link = SpawnerClient::start(mode, config.spawner_timeout, launcher, log.clone())?;
        let places = SlotQueue::new(config.queue_size);
        for _ in 0..config.max_children {
            places.add_row(1, 0);
        }
        let shared = CgiShared {
            draining: Draining::new(link.clone(), places.clone()),
            started: Instant::now(),
            config,
            log,
            spawner: link,
            slot_queue: places,
        };
        Ok(Arc::new(CgiPool {
            shared: Arc::new(shared),
        }))
    }
}

impl Executor for CgiPool {
    fn max_processes(&self) -> Option<u32> {
        Some(self.shared.config.max_children)
    }

    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        let shared = self.shared.clone();
        if shared.draining.has_begun() {
            return match shared.draining.successor() {
                Some(next) => next.start(request),
                None => refuse(&shared, ExecError::Stopping),
            };
        }
        let kind = match request.role {
            ScriptRole::Responder => ScriptKind::Php,
            ScriptRole::Program => ScriptKind::Program,
            ScriptRole::Authorizer => return refuse(&shared, request.role.unsupported()),
        };
        if let PoolCondition::Down { name, message } = &*shared.spawner.condition().borrow() {
            let (name, message) = (name.clone(), message.clone());
            return refuse(&shared, ExecError::PoolDown { name, message });
        }
        FutureRun::boxed(move |events| async move {
            let outcome = run::run(&shared, kind, request, events).await;
            if let Err(error) = &outcome {
                shared.slot_queue.count_failure(error);
            }
            outcome
        })
    }

    fn mode(&self) -> &'static str {
        "cgi"
    }

    fn status(&self) -> PoolStatus {
        let shared = &self.shared;
        let mut status = PoolStatus {
            pool: shared.config.name.clone(),
            process_manager: "cgi".to_owned(),
            state: shared.draining.state(),
            uptime: shared.started.elapsed().as_secs(),
            ..PoolStatus::default()
        };
        shared.slot_queue.fill_status(&mut status);
        status
    }
}

fn refuse(shared: &CgiShared, error: ExecError) -> Box<dyn ScriptRun> {
    shared.slot_queue.count_failure(&error);
    FutureRun::boxed(|_| async { Err(error) })
}

impl ScriptPool for CgiPool {
    fn ready(&self) -> PoolFuture<'_, Result<(), ExecError>> {
        Box::pin(self.shared.spawner.ready())
    }

    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        self.shared.draining.begin(successor, limit);
    }

    fn drained(&self) -> PoolFuture<'_, ()> {
        Box::pin(self.shared.draining.wait_until_closed())
    }
}
