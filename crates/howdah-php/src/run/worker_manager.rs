//! Decides which workers a Swoole server starts and waits for: it spawns all of them at once, replaces a worker that
//! died (with a delay if workers die soon after their start), and replaces one generation by the next on a reload. This
//! module has no clock and performs no action: callers pass the time (ms), and the manager's loop performs the returned
//! actions.

/// Shortest and longest delay before a worker is started after one that died early (ms).
const FIRST_WAIT: u64 = 100;
const LONGEST_WAIT: u64 = 5_000;
/// A worker that lived this long (ms) did not die because of its start.
const LIVED: u64 = 5_000;
/// Extra time that a leaving worker gets beyond `max_wait` before it is killed (ms).
const GRACE: u64 = 1_000;
/// Two stop signals within this time (ms) count as one.
const SAME_STOP: u64 = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A worker must be started at this time (ms).
    Wanted { at: u64 },
    /// A worker has run as process `pid` since this time (ms).
    Running { pid: i32, since: u64 },
    /// This place stays without a worker.
    Empty,
}

/// A worker to which the signal to exit has been sent.
#[derive(Clone, Copy, Debug)]
struct Leaving {
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
pub enum Stop {
    /// The first signal: the workers finish their requests.
    Begins,
    /// The signal follows the first too soon to be another order, so nothing changes.
    GoesOn,
    /// A later signal: the remaining workers are killed at once.
    AtOnce,
}

/// How a worker exited, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerExit {
    /// The worker was told to exit, or had served its requests.
    Left(u64),
    /// The worker was killed because it did not exit in time.
    TookTooLong(u64),
    /// The worker died; the next one starts in the given number of ms.
    Died(u64, u64),
}

/// The workers of a server by number, and those that are leaving.
#[derive(Debug)]
pub struct WorkerManager {
    places: Vec<Place>,
    leaving: Vec<Leaving>,
    signals: Vec<(i32, i32)>,
    failures: u32,
    max_wait: u64,
    /// When the server was told to stop (ms); `None` while it serves.
    stopping: Option<u64>,
}

impl WorkerManager {
    /// Creates a manager that starts `workers` workers at once and gives a leaving one `max_wait` ms.
    pub fn new(workers: u64, max_wait: u64) -> WorkerManager {
        WorkerManager {
            places: vec![Place::Wanted { at: 0 }; workers as usize],
            leaving: Vec::new(),
            signals: Vec::new(),
            failures: 0,
            max_wait,
            stopping: None,
        }
    }

    /// Returns the action that is due now, or how long to wait for the next one.
    pub fn next(&mut self, now: u64) -> ManagerAction {
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
                Place::Wanted { at } if *at <= now => return ManagerAction::Spawn(number as u64),
                Place::Wanted { at } => earlier(*at),
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
        self.places[number as usize] = Place::Running { pid, since: now };
    }

    /// Notes that worker `number` could not be forked.
    pub fn not_spawned(&mut self, number: u64, now: u64) {
        let at = now + self.brake();
        self.places[number as usize] = Place::Wanted { at };
    }

    fn brake(&mut self) -> u64 {
        self.failures += 1;
        (FIRST_WAIT << self.failures.min(10).saturating_sub(1)).min(LONGEST_WAIT)
    }

    /// Returns the ids of all processes that may have exited.
    pub fn pids(&self) -> Vec<i32> {
        let running = self.places.iter().filter_map(|place| match place {
            Place::Running { pid, .. } => Some(*pid),
            _ => None,
        });
        running
            .chain(self.leaving.iter().map(|gone| gone.pid))
            .collect()
    }

    /// Notes that a process has exited; `well` means with exit code 0. Returns `None` if it is not a worker.
    pub fn ended(&mut self, pid: i32, well: bool, now: u64) -> Option<WorkerExit> {
        if let Some(at) = self.leaving.iter().position(|gone| gone.pid == pid) {
            let gone = self.leaving.swap_remove(at);
            return Some(if gone.killed {
                WorkerExit::TookTooLong(gone.number)
            } else {
                WorkerExit::Left(gone.number)
            });
        }
        let number = self
            .places
            .iter()
            .position(|place| matches!(place, Place::Running { pid: p, .. } if *p == pid))?;
        let Place::Running { since, .. } = self.places[number] else {
            return None;
        };
        let lived = now.saturating_sub(since) >= LIVED;
        if well || lived {
            self.failures = 0;
        }
        // A worker that had served its requests, or lived long before it died, is replaced at once.
        let wait = if well || lived { 0 } else { self.brake() };
        self.places[number] = Place::Wanted { at: now + wait };
        Some(if well {
            WorkerExit::Left(number as u64)
        } else {
            WorkerExit::Died(number as u64, wait)
        })
    }

    /// Replaces every worker: the next generation starts at once, and the present one exits when its requests are
    /// finished.
    pub fn reload(&mut self, now: u64) {
        if self.stopping.is_some() {
            return;
        }
        self.failures = 0;
        self.dismiss(now, Place::Wanted { at: now });
    }

    /// Makes all workers exit. A repeated call kills the remaining ones, unless it follows within a second of the
    /// first: scripts' tools signal both the master and the manager, which are the same process here.
    pub fn stop(&mut self, now: u64) -> Stop {
        match self.stopping {
            None => {
                self.stopping = Some(now);
                self.dismiss(now, Place::Empty);
                Stop::Begins
            }
            Some(since) if now - since < SAME_STOP => Stop::GoesOn,
            Some(_) => {
                for gone in &mut self.leaving {
                    gone.deadline = now;
                }
                Stop::AtOnce
            }
        }
    }

    fn dismiss(&mut self, now: u64, then: Place) {
        for (number, place) in self.places.iter_mut().enumerate() {
            if let Place::Running { pid, .. } = *place {
                self.signals.push((pid, libc::SIGTERM));
                self.leaving.push(Leaving {
                    number: number as u64,
                    pid,
                    deadline: now + self.max_wait + GRACE,
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
            assert_eq!(manager.next(0), ManagerAction::Spawn(number));
            manager.spawned(number, 100 + number as i32, 0);
        }
        assert_eq!(manager.next(0), ManagerAction::Wait(None));
        manager
    }

    #[test]
    fn a_worker_that_dies_is_replaced_and_the_second_death_waits_longer() {
        let mut manager = manager_of(2);
        assert_eq!(
            manager.ended(101, false, 10),
            Some(WorkerExit::Died(1, 100))
        );
        assert_eq!(manager.next(10), ManagerAction::Wait(Some(110)));
        assert_eq!(manager.next(110), ManagerAction::Spawn(1));
        manager.spawned(1, 102, 110);
        assert_eq!(
            manager.ended(102, false, 120),
            Some(WorkerExit::Died(1, 200))
        );
        manager.next(400);
        manager.spawned(1, 103, 400);
        // The worker lived long enough: it is replaced at once, and the delay is reset.
        assert_eq!(
            manager.ended(103, false, 9000),
            Some(WorkerExit::Died(1, 0))
        );
        assert_eq!(manager.next(9000), ManagerAction::Spawn(1));
        assert_eq!(manager.ended(7, false, 9000), None);
    }

    #[test]
    fn a_worker_that_served_its_requests_is_replaced_at_once() {
        let mut manager = manager_of(1);
        assert_eq!(manager.ended(100, true, 10), Some(WorkerExit::Left(0)));
        assert_eq!(manager.next(10), ManagerAction::Spawn(0));
    }

    #[test]
    fn a_reload_starts_the_next_generation_before_the_present_one_has_left() {
        let mut manager = manager_of(1);
        manager.reload(1000);
        assert_eq!(
            manager.next(1000),
            ManagerAction::Signal(100, libc::SIGTERM)
        );
        assert_eq!(manager.next(1000), ManagerAction::Spawn(0));
        manager.spawned(0, 200, 1000);
        assert_eq!(manager.next(1000), ManagerAction::Wait(Some(5000)));
        assert_eq!(manager.pids(), [200, 100]);
        assert_eq!(manager.ended(100, true, 1100), Some(WorkerExit::Left(0)));
        assert_eq!(manager.next(1100), ManagerAction::Wait(None));
    }

    #[test]
    fn who_does_not_leave_in_time_is_killed() {
        let mut manager = manager_of(1);
        manager.stop(0);
        assert_eq!(manager.next(0), ManagerAction::Signal(100, libc::SIGTERM));
        assert_eq!(manager.next(0), ManagerAction::Wait(Some(4000)));
        assert_eq!(
            manager.next(4000),
            ManagerAction::Signal(100, libc::SIGKILL)
        );
        assert_eq!(manager.next(4000), ManagerAction::Wait(None));
        assert_eq!(
            manager.ended(100, false, 4001),
            Some(WorkerExit::TookTooLong(0))
        );
        assert_eq!(manager.next(4001), ManagerAction::Done);
    }

    #[test]
    fn a_second_stop_does_not_wait() {
        let mut manager = manager_of(1);
        assert_eq!(manager.stop(0), Stop::Begins);
        manager.next(0);
        assert_eq!(manager.stop(5), Stop::GoesOn);
        assert_eq!(manager.next(5), ManagerAction::Wait(Some(4000)));
        assert_eq!(manager.stop(1500), Stop::AtOnce);
        assert_eq!(
            manager.next(1500),
            ManagerAction::Signal(100, libc::SIGKILL)
        );
    }
}
