//! The front's end of a spawner: it starts and restarts the spawner, sends commands, and passes the reports about a
//! process to the code that waits for that process. Each pool has its own thread for this, since starting a process and
//! writing logs may block. It runs no request.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use howdah_os::descriptors::send_packet;
use howdah_proto::control::Exit;
use howdah_proto::level::LogLevel;
use howdah_proto::spawner::{MAX_PACKET_BYTES, ProgramStart, SpawnerCommand};
use rustix::net::SendFlags;
use tokio::sync::{mpsc, watch};

use crate::common::condition::PoolCondition;
use crate::launch::Launcher;
use crate::{ExecError, PoolMode, SharedScriptLog};

mod thread;

use thread::ClientThread;

/// A report about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
    /// The process runs under this process id.
    Started(i32),
    /// The process was not started, for this errno.
    NotStarted(i32),
    /// The process has exited. It is `Exit::Unseen` if its spawner exited before it reported how.
    Exited(Exit),
}

/// A process that was requested from the spawner. Dropping the value lets the spawner reap the process, but does not
/// terminate the process.
pub(crate) struct SpawnedProcess {
    pub id: u64,
    /// The reports about the process. The end of the stream means that its spawner is gone.
    pub events: mpsc::UnboundedReceiver<ProcessEvent>,
    client: Arc<SpawnerClient>,
}

impl Drop for SpawnedProcess {
    fn drop(&mut self) {
        self.client.processes().remove(&self.id);
        self.client
            .send_reliably(SpawnerCommand::Release { id: self.id });
    }
}

/// The receiver of the reports about a process.
struct ProcessWatcher {
    events: mpsc::UnboundedSender<ProcessEvent>,
    /// The start has been reported.
    started: bool,
}

/// Why a command was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnRefused {
    /// The socket is full: retry after a short pause.
    Busy,
    /// No spawner is connected now.
    NoSpawner,
    /// The command does not fit in a packet.
    TooLarge,
}

/// The front's connection to a spawner, and the thread that keeps a spawner running.
pub(crate) struct SpawnerClient {
    mode: PoolMode,
    log: SharedScriptLog,
    control: Mutex<Option<Arc<OwnedFd>>>,
    processes: Mutex<HashMap<u64, ProcessWatcher>>,
    /// Commands for which the socket was full. The thread sends them when there is room.
    deferred: Mutex<Vec<SpawnerCommand>>,
    next_id: AtomicU64,
    condition: watch::Sender<PoolCondition>,
    /// An eventfd that wakes the thread.
    bell: OwnedFd,
    closing: std::sync::atomic::AtomicBool,
}

impl SpawnerClient {
    /// Starts the thread. The thread starts the spawner, and kills it when it has not responded for `silence`.
    pub fn start(
        mode: PoolMode,
        silence: Duration,
        launcher: Arc<dyn Launcher>,
        log: SharedScriptLog,
    ) -> io::Result<Arc<SpawnerClient>> {
        let link = Arc::new(SpawnerClient {
            log,
            control: Mutex::default(),
            processes: Mutex::default(),
            deferred: Mutex::default(),
            next_id: AtomicU64::new(1),
            condition: watch::Sender::new(PoolCondition::Starting),
            bell: crate::common::sys::create_bell()?,
            closing: false.into(),
            mode,
        });
        let name = format!("spawn-{}", link.mode.name());
        std::thread::Builder::new()
            .name(name.chars().take(15).collect())
            .spawn({
                let link = link.clone();
                move || {
                    ClientThread {
                        client: link,
                        silence,
                        outputs: Vec::new(),
                        has_started_program: false,
                    }
                    .run(&*launcher)
                }
            })?;
        Ok(link)
    }

    /// Returns the spawner's condition: `Starting`, `Ready`, `Down` or `Closed`.
    pub fn condition(&self) -> watch::Receiver<PoolCondition> {
        self.condition.subscribe()
    }

    /// Waits until processes can be started, or the first attempt to start the spawner has failed.
    pub async fn ready(&self) -> Result<(), ExecError> {
        PoolCondition::wait_until_settled(self.condition.subscribe()).await
    }

    /// Terminates a process. The process may already have been released.
    pub fn terminate(&self, id: u64, grace: Duration) {
        let grace_ms = grace.as_millis() as u64;
        self.send_reliably(SpawnerCommand::End { id, grace_ms });
    }

    /// Shuts the spawner down. Programs that still run are terminated.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
        crate::common::sys::ring(self.bell.as_fd());
    }

    fn processes(&self) -> MutexGuard<'_, HashMap<u64, ProcessWatcher>> {
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deferred(&self) -> MutexGuard<'_, Vec<SpawnerCommand>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Orders a process, and sets `start.id`. Never waits.
    pub fn spawn(
        self: &Arc<Self>,
        start: &mut ProgramStart,
        fds: &[BorrowedFd<'_>],
    ) -> Result<SpawnedProcess, SpawnRefused> {
        start.id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, fates) = mpsc::unbounded_channel();
        let watcher = ProcessWatcher {
            events: sender,
            started: false,
        };
        self.processes().insert(start.id, watcher);
        let sent = self.send(&SpawnerCommand::Start(start.clone()), fds);
        if let Err(refused) = sent {
            self.processes().remove(&start.id);
            return Err(refused);
        }
        Ok(SpawnedProcess {
            id: start.id,
            events: fates,
            client: self.clone(),
        })
    }

    fn send(&self, command: &SpawnerCommand, fds: &[BorrowedFd<'_>]) -> Result<(), SpawnRefused> {
        let packet = command.encode();
        if packet.len() > MAX_PACKET_BYTES {
            return Err(SpawnRefused::TooLarge);
        }
        let control = self.control().clone().ok_or(SpawnRefused::NoSpawner)?;
        match send_packet(control.as_fd(), &packet, fds, SendFlags::DONTWAIT) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => Err(SpawnRefused::Busy),
            Err(rustix::io::Errno::MSGSIZE) => Err(SpawnRefused::TooLarge),
            Err(_) => Err(SpawnRefused::NoSpawner),
        }
    }

    /// Sends a command. If the socket is full, the command is sent later. If there is no spawner, the command is
    /// dropped, since its process is gone as well.
    fn send_reliably(&self, command: SpawnerCommand) {
        if self.send(&command, &[]) == Err(SpawnRefused::Busy) {
            self.deferred().push(command);
            crate::common::sys::ring(self.bell.as_fd());
        }
    }

    fn report_event(&self, id: u64, fate: ProcessEvent) -> bool {
        report_fate(&mut self.processes(), id, fate)
    }

    fn log_event(&self, level: LogLevel, name: &str, message: &str) {
        self.log.pool(self.mode.name(), level, name, message);
    }
}

/// Passes on a spawner's report about a process. Returns `false` for a second start of one process, which is a protocol
/// error. Nothing is passed on after the exit of a process: otherwise a spawner, which runs as the pool's user, could
/// fill the front's memory or make the front ask a program repeatedly.
fn report_fate(processes: &mut HashMap<u64, ProcessWatcher>, id: u64, fate: ProcessEvent) -> bool {
    let Some(heard) = processes.get_mut(&id) else {
        // No receiver waits for it any more.
        return true;
    };
    let is_start = matches!(fate, ProcessEvent::Started(_));
    if is_start && std::mem::replace(&mut heard.started, true) {
        return false;
    }
    let _ = heard.events.send(fate);
    if !is_start {
        processes.remove(&id);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_starts_once_and_no_event_follows_its_exit() {
        let (fates, mut told) = mpsc::unbounded_channel();
        let watcher = ProcessWatcher {
            events: fates,
            started: false,
        };
        let mut processes = HashMap::from([(7, watcher)]);
        assert!(report_fate(&mut processes, 7, ProcessEvent::Started(42)));
        assert!(!report_fate(&mut processes, 7, ProcessEvent::Started(42)));
        assert!(report_fate(
            &mut processes,
            7,
            ProcessEvent::Exited(Exit::Code(0))
        ));
        for _ in 0..3 {
            assert!(report_fate(
                &mut processes,
                7,
                ProcessEvent::Exited(Exit::Code(0))
            ));
            assert!(report_fate(&mut processes, 8, ProcessEvent::Started(1)));
        }
        assert_eq!(told.try_recv(), Ok(ProcessEvent::Started(42)));
        assert_eq!(told.try_recv(), Ok(ProcessEvent::Exited(Exit::Code(0))));
        assert!(told.try_recv().is_err());
    }
}
