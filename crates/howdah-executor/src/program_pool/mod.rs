//! The pool mode: it starts and supervises FastCGI programs (php-cgi, or any other), as mod_fcgid does. The FastCGI
//! client sends them the requests.
//!
//! ```text
//! ProgramPool ─ start() → FastCgiPool   (front threads)   queue, least busy, connections, records
//!            └─ supervisor              (its own thread)  slots: start, open, replace, end ─ spawner
//! ```
//!
//! - `slots`: a socket and the program behind it, with one state each; `supervisor`: when and how that state changes;
//!   `sockets`: the listening sockets.

mod slots;
mod sockets;
mod supervisor;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::common::condition::PoolCondition;
use crate::config::{FastCgiConfig, Processes, ProgramPoolConfig};
use crate::fastcgi::FastCgiPool;
use crate::launch::Launcher;
use crate::pool::PoolFuture;
use crate::programs::spawner_client::SpawnerClient;
use crate::status::{ChildRow, PoolStatus};
use crate::{ExecError, Executor, PoolMode, ScriptPool, ScriptRequest, ScriptRun, SharedScriptLog};
use howdah_proto::backend_address::FastCgiBackend;
use howdah_proto::level::LogLevel;

use slots::ProgramSlots;
use supervisor::ProgramSupervisor;

/// The maximum number of sockets of a pool, for the programs and their replacements.
const MAX_SOCKETS: usize = 1100;

struct ProgramPoolShared {
    config: ProgramPoolConfig,
    log: SharedScriptLog,
    client: Arc<FastCgiPool>,
    spawner: Arc<SpawnerClient>,
    condition: tokio::sync::watch::Sender<PoolCondition>,
    board: Mutex<Vec<ChildRow>>,
}

/// A pool of mode `pool`, which starts FastCGI programs and sends them requests.
pub struct ProgramPool {
    shared: Arc<ProgramPoolShared>,
}

impl ProgramPool {
    /// Creates the sockets and starts the pool's spawner, which starts the programs. Returns at once: requests queue
    /// until a program serves.
    ///
    /// # Errors
    /// A socket or a thread cannot be created.
    pub fn start(
        config: ProgramPoolConfig,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
        fronts: u32,
    ) -> io::Result<Arc<ProgramPool>> {
        let (count, room) = match config.processes {
            // One socket for the program that serves, and one for its replacement.
            Processes::Shared => (2, config.max_children),
            Processes::Independent { connections } => {
                let replacements = (config.max_children / 4).max(1);
                (config.max_children + replacements, connections)
            }
        };
        let count = (count as usize).min(MAX_SOCKETS);
        let sockets = (0..count).map(|_| sockets::listen_unix());
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        let backends = sockets.iter().map(|listening| FastCgiBackend {
            address: listening.address.clone(),
            weight: 1,
        });
        let client = FastCgiConfig {
            name: config.name.clone(),
            backends: backends.collect(),
            max_connections: Some(room),
            ..config.client.clone()
        };
        let client = FastCgiPool::start_supervised(client, log.clone(), fronts)?;
        let mode = PoolMode::Pool(config.clone());
        let link = SpawnerClient::start(mode, config.spawner_timeout, launcher, log.clone())?;
        let shared = Arc::new(ProgramPoolShared {
            config,
            log,
            client,
            spawner: link,
            condition: tokio::sync::watch::Sender::new(PoolCondition::Starting),
            board: Mutex::default(),
        });
        let name = format!("watch-{}", shared.config.name);
        std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn({
                let shared = shared.clone();
                move || supervise(shared, ProgramSlots::new(sockets))
            })?;
        Ok(Arc::new(ProgramPool { shared }))
    }
}

/// Runs the supervisor's thread. If the supervisor fails, the pool can only refuse requests.
fn supervise(shared: Arc<ProgramPoolShared>, slots: ProgramSlots) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let (name, message) = match runtime {
        Ok(runtime) => {
            let work = ProgramSupervisor::new(shared.clone(), slots);
            let run = std::panic::AssertUnwindSafe(|| runtime.block_on(work.run()));
            match std::panic::catch_unwind(run) {
                Ok(()) => {
                    shared.condition.send_replace(PoolCondition::Closed);
                    return;
                }
                Err(_) => (
                    "SupervisorPanicked".to_owned(),
                    "this is a bug in the server: the pool has lost its supervisor; restart the server"
                        .to_owned(),
                ),
            }
        }
        Err(error) => (
            "NoSupervisor".to_owned(),
            format!("the pool's thread cannot run: {error}"),
        ),
    };
    shared.spawner.close();
    shared
        .log
        .pool(&shared.config.name, LogLevel::Emergency, &name, &message);
    shared.refuse(name, message);
}

impl ProgramPoolShared {
    /// Makes the pool refuse requests from now on, for this reason.
    fn refuse(&self, name: String, message: String) {
        self.client.shared.set_refusal(Some(ExecError::PoolDown {
            name: name.clone(),
            message: message.clone(),
        }));
        self.condition
            .send_replace(PoolCondition::Down { name, message });
    }
}

impl Executor for ProgramPool {
    fn max_processes(&self) -> Option<u32> {
        Some(self.shared.config.max_children)
    }

    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        self.shared.client.start(request)
    }

    fn mode(&self) -> &'static str {
        "pool"
    }

    fn accepts_unknown_length(&self) -> bool {
        self.shared.client.accepts_unknown_length()
    }

    fn reports_effects(&self) -> bool {
        false
    }

    fn status(&self) -> PoolStatus {
        let shared = &self.shared;
        let mut status = shared.client.status();
        status.process_manager = match shared.config.processes {
            Processes::Shared => "shared",
            _ => shared.config.pm.word(),
        }
        .to_owned();
        let condition = shared.condition.borrow().clone();
        if let PoolCondition::Down { .. } | PoolCondition::Starting = condition {
            status.state = condition.to_string();
        }
        let board = shared.board.lock().unwrap_or_else(PoisonError::into_inner);
        status.children.clone_from(&board);
        // The scoreboard is slightly out of date, but the client knows exactly which programs are busy.
        for row in &mut status.children {
            let busy = |client: &crate::status::BackendRow| client.busy > 0;
            let busy = status
                .backends
                .get(usize::from(row.index))
                .is_some_and(busy);
            if matches!(row.state.as_str(), "Busy" | "Idle") {
                row.state = if busy { "Busy" } else { "Idle" }.to_owned();
            }
        }
        let idle = status.children.iter().filter(|row| row.state == "Idle");
        status.idle_processes = idle.count() as u32;
        // Only the sockets of present programs, in the order of the rows.
        let rows = std::mem::take(&mut status.backends).into_iter().enumerate();
        status.backends = rows
            .filter(|(at, _)| board.iter().any(|row| usize::from(row.index) == *at))
            .map(|(_, row)| row)
            .collect();
        status
    }
}

impl ScriptPool for ProgramPool {
    fn ready(&self) -> PoolFuture<'_, Result<(), ExecError>> {
        Box::pin(async {
            PoolCondition::wait_until_settled(self.shared.condition.subscribe()).await
        })
    }

    fn drain(&self, successor: Option<Arc<dyn Executor>>, limit: Duration) {
        self.shared.client.drain(successor, limit);
        self.shared.client.shared.demand.notify_one();
    }

    fn drained(&self) -> PoolFuture<'_, ()> {
        Box::pin(async {
            let mut condition = self.shared.condition.subscribe();
            // An error means that the sender is gone, and the pool with it.
            let _ = condition.wait_for(|c| *c == PoolCondition::Closed).await;
        })
    }
}

impl Drop for ProgramPool {
    /// A pool that is dropped without a drain ends at once.
    fn drop(&mut self) {
        self.drain(None, Duration::ZERO);
    }
}
