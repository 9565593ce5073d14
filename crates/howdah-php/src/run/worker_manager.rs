//! Decides which workers a Swoole server starts and waits for: it spawns all of them at once, replaces a worker that
//! died (with a delay if workers die soon after their start), and replaces one generation by the next on a reload. This
//! module has no clock and performs no action: callers pass the time (ms), and the manager's loop performs the returned
//! actions.

/// Shortest and longest delay before a worker is started after one that died early (ms).
const MIN_RESTART_DELAY_MS: u64 = 100;
const MAX_RESTART_DELAY_MS: u64 = 5_000;
/// If a worker lived for at least this long (ms), its start is not the reason why it died.
const STABLE_AFTER_MS: u64 = 5_000;
/// Extra time that a leaving worker gets beyond `max_wait` before it is killed (ms).
const KILL_GRACE_MS: u64 = 1_000;
/// Two stop signals within this time (ms) count as one.
const STOP_REPEAT_WINDOW_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerPlace {
    /// A worker must be started at this time (ms).
    ToStart { at: u64 },
    /// A worker has run as process `pid` since this time (ms).
    Running { pid: i32, since: u64 },
    /// No worker is started under this number any more.
    Empty,
}

/// A worker to which the signal to exit has been sent.
#[derive(Clone, Copy, Debug)]
struct LeavingWorker {
    number: u64,
    pid: i32,
    deadline: u64,
    killed: bool,
}

/// The manager's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerAction {
    /// Fork worker `number`, then call [`WorkerManager::spawned`].
    Spawn(u64),
    /// Send this signal (second field) to this process (first field).
    Signal(i32, i32),
    /// Wait until this time (ms); without limit if `None`.
    Wait(Option<u64>),
    /// Every worker has exited, so the manager can exit.
    Done,
}

/// The effect of a call of [`WorkerManager::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopEffect {
    /// The first signal: the workers finish their requests.
    Begun,
    /// The signal follows the first too soon to be another order, so nothing changes.
    Unchanged,
    /// A later signal: the remaining workers are killed at once.
    Immediate,
}

/// How a worker exited, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerExit {
    /// The worker was told to exit, or had served its requests.
    Left(u64),
    /// The worker was killed because it did not exit in time.
    Killed(u64),
    /// The worker died; the next one starts in the given number of ms.
    Died(u64, u64),
}

/// The workers of a server by number, and those that are leaving.
#[derive(Debug)]
pub struct WorkerManager {
    places: Vec<WorkerPlace>,
    leaving: Vec<LeavingWorker>,
    signals: Vec<(i32, i32)>,
    failures: u32,
    max_wait: u64,
    /// When the server was told to stop (ms); `None` while it serves.
    stopping: Option<u64>,
}

impl WorkerManager {
    /// Creates a manager that starts `workers` workers at once and gives a leaving worker `max_wait` ms to exit.
    pub fn new(workers: u64, max_wait: u64) -> WorkerManager {
        WorkerManager {
            places: vec![WorkerPlace::ToStart { at: 0 }; workers as usize],
            leaving: Vec::new(),
            signals: Vec::new(),
            failures: 0,
            max_wait,
            stopping: None,
        }
    }

    /// Returns the action that is due now, or how long to wait for the next one.
    pub fn next_action(&mut self, now: u64) -> ManagerAction {
        for gone in &mut self.leaving {
            if !gone.killed && now >= gone.deadline {
                gone.killed = true;
                self.signals.push((gone.pid, libc::SIGKILL));
            }
        }
        if let Some((pid, signal)) = self.signals.pop() {
            return ManagerAction::Signal(pid, signal);
        }
        let mut soonest: Option<u64> = None;
        let mut earlier = |at: u64| soonest = Some(soonest.map_or(at, |s| s.min(at)));
        for (number, place) in self.places.iter().enumerate() {
            match place {
                WorkerPlace::ToStart { at } if *at <= now => {
                    return ManagerAction::Spawn(number as u64);
                }
                WorkerPlace::ToStart { at } => earlier(*at),
                _ => {}
            }
        }
        for gone in self.leaving.iter().filter(|gone| !gone.killed) {
            earlier(gone.deadline);
        }
        if self.stopping.is_some() && self.leaving.is_empty() {
            return ManagerAction::Done;
        }
        ManagerAction::Wait(soonest)
    }

    /// Notes that worker `number` has been forked.
    pub fn spawned(&mut self, number: u64, pid: i32, now: u64) {
        self.places[number as usize] = WorkerPlace::Running { pid, since: now };
    }

    /// Notes that worker `number` could not be forked.
    pub fn spawn_failed(&mut self, number: u64, now: u64) {
        let at = now + self.next_restart_delay();
        self.places[number as usize] = WorkerPlace::ToStart { at };
    }

    fn next_restart_delay(&mut self) -> u64 {
        self.failures += 1;
        (MIN_RESTART_DELAY_MS << self.failures.min(10).saturating_sub(1)).min(MAX_RESTART_DELAY_MS)
    }

    /// Returns the ids of all processes that may have exited.
    pub fn pids(&self) -> Vec<i32> {
        let running = self.places.iter().filter_map(|place| match place {
            WorkerPlace::Running { pid, .. } => Some(*pid),
            _ => None,
        });
        running
            .chain(self.leaving.iter().map(|gone| gone.pid))
            .collect()
    }

    /// Notes that a process has exited; `well` means with exit code 0. Returns `None` if it is not a worker.
    pub fn process_exited(&mut self, pid: i32, well: bool, now: u64) -> Option<WorkerExit> {
        if let Some(at) = self.leaving.iter().position(|gone| gone.pid == pid) {
            let gone = self.leaving.swap_remove(at);
            return Some(if gone.killed {
                WorkerExit::Killed(gone.number)
            } else {
                WorkerExit::Left(gone.number)
            });
        }
        let number = self
            .places
            .iter()
            .position(|place| matches!(place, WorkerPlace::Running { pid: p, .. } if *p == pid))?;
        let WorkerPlace::Running { since, .. } = self.places[number] else {
            return None;
        };
        let lived = now.saturating_sub(since) >= STABLE_AFTER_MS;
        if well || lived {
            self.failures = 0;
        }
        // A worker that had served its requests, or lived long before it died, is replaced at once.
        let wait = if well || lived {
            0
        } else {
            self.next_restart_delay()
        };
        self.places[number] = WorkerPlace::ToStart { at: now + wait };
        Some(if well {
            WorkerExit::Left(number as u64)
        } else {
            WorkerExit::Died(number as u64, wait)
        })
    }

    /// Replaces every worker: the next generation starts at once, and the present one finishes its requests and exits.
    pub fn reload(&mut self, now: u64) {
        if self.stopping.is_some() {
            return;
        }
        self.failures = 0;
        self.stop_workers(now, WorkerPlace::ToStart { at: now });
    }

    /// Makes all workers exit. A repeated call kills the remaining ones, unless it follows within a second of the
    /// first: scripts' tools signal both the master and the manager, which are the same process here.
    pub fn stop(&mut self, now: u64) -> StopEffect {
        match self.stopping {
            None => {
                self.stopping = Some(now);
                self.stop_workers(now, WorkerPlace::Empty);
                StopEffect::Begun
            }
            Some(since) if now - since < STOP_REPEAT_WINDOW_MS => StopEffect::Unchanged,
            Some(_) => {
                for gone in &mut self.leaving {
                    gone.deadline = now;
                }
                StopEffect::Immediate
            }
        }
    }

    fn stop_workers(&mut self, now: u64, then: WorkerPlace) {
        for (number, place) in self.places.iter_mut().enumerate() {
            if let WorkerPlace::Running { pid, .. } = *place {
                self.signals.push((pid, libc::SIGTERM));
                self.leaving.push(LeavingWorker {
                    number: number as u64,
                    pid,
                    deadline: now + self.max_wait + KILL_GRACE_MS,
                    killed: false,
                });
            }
            *place = then;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager_of(workers: u64) -> WorkerManager {
        let mut manager = WorkerManager::new(workers, 3000);
        for number in 0..workers {
            assert_eq!(manager.next_action(0), ManagerAction::Spawn(number));
            manager.spawned(number, 100 + number as i32, 0);
        }
        assert_eq!(manager.next_action(0), ManagerAction::Wait(None));
        manager
    }

    #[test]
    fn dead_worker_is_replaced_with_growing_delay() {
        let mut manager = manager_of(2);
        assert_eq!(
            manager.process_exited(101, false, 10),
            Some(WorkerExit::Died(1, 100))
        );
        assert_eq!(manager.next_action(10), ManagerAction::Wait(Some(110)));
        assert_eq!(manager.next_action(110), ManagerAction::Spawn(1));
        manager.spawned(1, 102, 110);
        assert_eq!(
            manager.process_exited(102, false, 120),
            Some(WorkerExit::Died(1, 200))
        );
        manager.next_action(400);
        manager.spawned(1, 103, 400);
        // The worker lived long enough: it is replaced at once, and the delay is reset.
        assert_eq!(
            manager.process_exited(103, false, 9000),
            Some(WorkerExit::Died(1, 0))
        );
        assert_eq!(manager.next_action(9000), ManagerAction::Spawn(1));
        assert_eq!(manager.process_exited(7, false, 9000), None);
    }

    #[test]
    fn worker_that_cannot_be_forked_is_retried_with_growing_delay() {
        let mut manager = WorkerManager::new(1, 3000);
        assert_eq!(manager.next_action(0), ManagerAction::Spawn(0));
        manager.spawn_failed(0, 10);
        assert_eq!(manager.next_action(10), ManagerAction::Wait(Some(110)));
        assert_eq!(manager.next_action(110), ManagerAction::Spawn(0));
        manager.spawn_failed(0, 110);
        assert_eq!(manager.next_action(110), ManagerAction::Wait(Some(310)));
    }

    #[test]
    fn finished_worker_is_replaced_at_once() {
        let mut manager = manager_of(1);
        assert_eq!(
            manager.process_exited(100, true, 10),
            Some(WorkerExit::Left(0))
        );
        assert_eq!(manager.next_action(10), ManagerAction::Spawn(0));
    }

    #[test]
    fn reload_starts_the_next_generation_before_the_present_one_has_exited() {
        let mut manager = manager_of(1);
        manager.reload(1000);
        assert_eq!(
            manager.next_action(1000),
            ManagerAction::Signal(100, libc::SIGTERM)
        );
        assert_eq!(manager.next_action(1000), ManagerAction::Spawn(0));
        manager.spawned(0, 200, 1000);
        assert_eq!(manager.next_action(1000), ManagerAction::Wait(Some(5000)));
        assert_eq!(manager.pids(), [200, 100]);
        assert_eq!(
            manager.process_exited(100, true, 1100),
            Some(WorkerExit::Left(0))
        );
        assert_eq!(manager.next_action(1100), ManagerAction::Wait(None));
    }

    #[test]
    fn worker_that_does_not_exit_in_time_is_killed() {
        let mut manager = manager_of(1);
        manager.stop(0);
        assert_eq!(
            manager.next_action(0),
            ManagerAction::Signal(100, libc::SIGTERM)
        );
        assert_eq!(manager.next_action(0), ManagerAction::Wait(Some(4000)));
        assert_eq!(
            manager.next_action(4000),
            ManagerAction::Signal(100, libc::SIGKILL)
        );
        assert_eq!(manager.next_action(4000), ManagerAction::Wait(None));
        assert_eq!(
            manager.process_exited(100, false, 4001),
            Some(WorkerExit::Killed(0))
        );
        assert_eq!(manager.next_action(4001), ManagerAction::Done);
    }

    #[test]
    fn repeated_stop_kills_at_once() {
        let mut manager = manager_of(1);
        assert_eq!(manager.stop(0), StopEffect::Begun);
        manager.next_action(0);
        assert_eq!(manager.stop(5), StopEffect::Unchanged);
        assert_eq!(manager.next_action(5), ManagerAction::Wait(Some(4000)));
        assert_eq!(manager.stop(1500), StopEffect::Immediate);
        assert_eq!(
            manager.next_action(1500),
            ManagerAction::Signal(100, libc::SIGKILL)
        );
    }
}
