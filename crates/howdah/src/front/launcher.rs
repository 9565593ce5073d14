//! Starts zygotes and spawners through the master: only the master has the right to change the user, and because it has
//! no threads, it can fork safely. A launch is a message with descriptors; the response carries the pidfd of the
//! process.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_executor::{PoolConfig, PoolMode};

use crate::process_channel::{ProcessChannel, ToMaster};

/// How long a launch may take. An exec takes milliseconds, so a master that takes longer than this is stuck.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Default)]
struct PendingLaunches {
    last_id: u64,
    senders: HashMap<u64, mpsc::Sender<io::Result<LaunchedProcess>>>,
    master_is_gone: bool,
}

/// The launches that the master has not responded to yet.
pub struct Launches {
    link: ProcessChannel,
    pending: Mutex<PendingLaunches>,
}

impl Launches {
    /// Creates an empty table of launches. `link` is the channel to the master.
    pub fn new(link: ProcessChannel) -> Arc<Launches> {
        Arc::new(Launches {
            link,
            pending: Mutex::default(),
        })
    }

    fn pending(&self) -> MutexGuard<'_, PendingLaunches> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes a launch: the master has started the process.
    pub fn complete(&self, id: u64, pid: i32, program: PathBuf, fds: Vec<OwnedFd>) {
        let pidfd = fds.into_iter().next();
        let zygote = pidfd
            .map(|pidfd| LaunchedProcess {
                pid,
                pidfd,
                program,
            })
            .ok_or_else(|| io::Error::other("the master sent no pidfd"));
        self.settle(id, zygote);
    }

    /// Fails a launch: the master could not start the process.
    pub fn fail(&self, id: u64, message: String) {
        self.settle(id, Err(io::Error::other(message)));
    }

    /// Fails all launches, because the master has exited.
    pub fn fail_all(&self) {
        let mut waiting = self.pending();
        waiting.master_is_gone = true;
        waiting.senders.clear();
    }

    fn settle(&self, id: u64, outcome: io::Result<LaunchedProcess>) {
        if let Some(sender) = self.pending().senders.remove(&id) {
            // If the launching thread has given up, the pidfd is dropped, and the zygote or spawner reads end-of-file
            // from its control socket and exits.
            let _ = sender.send(outcome);
        }
    }

    fn request_launch(
        &self,
        generation: u64,
        pool: &str,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<LaunchedProcess> {
        let (sender, outcome) = mpsc::channel();
        let id = {
            let mut waiting = self.pending();
            if waiting.master_is_gone {
                return Err(io::Error::other("the master is gone"));
            }
            waiting.last_id += 1;
            let id = waiting.last_id;
            waiting.senders.insert(id, sender);
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
                    .recv_timeout(LAUNCH_TIMEOUT)
                    .map_err(|_| io::Error::other("the master did not respond"))
            })
            .flatten();
        self.pending().senders.remove(&id);
        answer
    }
}

/// Starts the zygotes and spawners of the pools of one configuration.
pub struct MasterLauncher {
    /// The launches on the channel to the master.
    pub launches: Arc<Launches>,
    /// The number of the configuration from which the master takes the pool.
    pub generation: u64,
}

impl Launcher for MasterLauncher {
    fn launch(&self, pool: &PoolConfig, fds: ZygoteFds) -> io::Result<LaunchedProcess> {
        let mut descriptors = vec![fds.memory.as_fd(), fds.control.as_fd(), fds.stderr.as_fd()];
        descriptors.extend(fds.bells.iter().map(AsFd::as_fd));
        self.launches
            .request_launch(self.generation, &pool.name, &descriptors)
    }

    fn launch_spawner(&self, mode: &PoolMode, fds: SpawnerFds) -> io::Result<LaunchedProcess> {
        let descriptors = [fds.control.as_fd(), fds.stderr.as_fd()];
        self.launches
            .request_launch(self.generation, mode.name(), &descriptors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_channel::ReceiveOutcome;

    #[test]
    fn launch_that_the_master_cannot_do_fails_with_its_reason() {
        let (ours, theirs) = ProcessChannel::pair().unwrap();
        let (launches, master) = (Launches::new(ours), ProcessChannel::new(theirs));
        let launching = std::thread::spawn({
            let launches = launches.clone();
            move || launches.request_launch(3, "www", &[])
        });
        let ReceiveOutcome::Message(ToMaster::Launch { id, pool, .. }, _) = master.receive() else {
            panic!("not a launch");
        };
        assert_eq!(pool, "www");
        launches.fail(id + 1, "another launch".to_owned());
        launches.fail(id, "no such user: shop".to_owned());
        let error = launching.join().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "no such user: shop");
        launches.fail_all();
        let gone = launches.request_launch(3, "www", &[]).unwrap_err();
        assert_eq!(gone.to_string(), "the master is gone");
    }
}
