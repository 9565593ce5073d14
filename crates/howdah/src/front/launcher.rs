//! Starts zygotes and spawners through the master, because only the master may change the user, and it has no threads.
//! A launch is a message with descriptors; the response carries the pidfd of the process.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use howdah_executor::launch::{Launcher, SpawnerFds, Zygote, ZygoteFds};
use howdah_executor::{Mode, PoolConfig};

use crate::link::{Link, ToMaster};

/// How long a launch may take. An exec takes milliseconds, so a master that takes longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Default)]
struct Waiting {
    next: u64,
    by_id: HashMap<u64, mpsc::Sender<io::Result<Zygote>>>,
    master_is_gone: bool,
}

/// The launches that the master has not responded to yet.
pub struct Launches {
    link: Link,
    waiting: Mutex<Waiting>,
}

impl Launches {
    /// Creates the launches on the channel to the master.
    pub fn new(link: Link) -> Arc<Launches> {
        Arc::new(Launches {
            link,
            waiting: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes a launch: the master has started the process.
    pub fn launched(&self, id: u64, pid: i32, fds: Vec<OwnedFd>) {
        let pidfd = fds.into_iter().next();
        let zygote = pidfd
            .map(|pidfd| Zygote { pid, pidfd })
            .ok_or_else(|| io::Error::other("the master sent no pidfd"));
        self.settle(id, zygote);
    }

    /// Fails a launch: the master could not start the process.
    pub fn not_launched(&self, id: u64, message: String) {
        self.settle(id, Err(io::Error::other(message)));
    }

    /// Fails all launches, because the master has exited.
    pub fn master_is_gone(&self) {
        let mut waiting = self.waiting();
        waiting.master_is_gone = true;
        waiting.by_id.clear();
    }

    fn settle(&self, id: u64, outcome: io::Result<Zygote>) {
        if let Some(sender) = self.waiting().by_id.remove(&id) {
            // If the launching thread has given up, the pidfd is dropped, and the zygote reads the end of its control
            // socket.
            let _ = sender.send(outcome);
        }
    }

    fn ask(
        &self,
        generation: u64,
        pool: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<Zygote> {
        let (sender, outcome) = mpsc::channel();
        let id = {
            let mut waiting = self.waiting();
            if waiting.master_is_gone {
                return Err(io::Error::other("the master is gone"));
            }
            waiting.next += 1;
            let id = waiting.next;
            waiting.by_id.insert(id, sender);
            id
        };
        let message = ToMaster::Launch {
            id,
            generation,
            pool: pool.to_owned(),
        };
        let answer = self
            .link
            .send(&message, descriptors)
            .and_then(|()| {
                outcome
                    .recv_timeout(PATIENCE)
                    .map_err(|_| io::Error::other("the master did not answer"))
            })
            .flatten();
        self.waiting().by_id.remove(&id);
        answer
    }
}

/// Starts the zygotes and spawners of the pools of one configuration.
pub struct MasterLauncher {
    /// The launches on the channel to the master.
    pub launches: Arc<Launches>,
    /// The configuration from which the master takes the pool.
    pub generation: u64,
}

impl Launcher for MasterLauncher {
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<Zygote> {
        let mut descriptors = vec![fds.memory.as_fd(), fds.control.as_fd(), fds.stderr.as_fd()];
        descriptors.extend(fds.bells.iter().map(AsFd::as_fd));
        self.launches.ask(self.generation, &pool.name, &descriptors)
    }

    fn launch_spawner(&self, mode: &Mode, fds: SpawnerFds) -> io::Result<Zygote> {
        let descriptors = [fds.control.as_fd(), fds.stderr.as_fd()];
        self.launches
            .ask(self.generation, mode.name(), &descriptors)
    }
}
