//! Decides whether the front hangs, which means that its threads no longer take their turns: because of a deadlock or
//! an endless loop, or because the process was stopped. This module reads no clock and sends nothing; the master's loop
//! does.
//!
//! The limit (`timeouts.hang`) is divided into [`TICKS_UNTIL_HUNG`]. At each tick the master sends a ping. The front's
//! main thread, which reads the channel, responds at once and asks each front thread to reach the number of that ping
//! in its event loop. A thread that has not reached the previous ping by the next one has missed a tick. A thread that
//! misses [`TICKS_UNTIL_HUNG`] in a row hangs. Two kinds of ticks are not counted:
//! - ticks for which the master itself is late, because then the machine was stopped, suspended or starved, and the
//!   front with it;
//! - ticks at which the thread waits in the kernel for a disk (state D), because another front would wait there too.

use std::time::{Duration, Instant};

/// The number of ticks that a thread must miss in a row to count as hung.
pub const TICKS_UNTIL_HUNG: u32 = 6;

/// The maximum number of threads that are tracked, because the list of threads comes from the front.
const MAX_THREADS: usize = 1024;

/// What the master must do at a tick.
#[derive(Debug, PartialEq, Eq)]
pub enum TickAction {
    /// Nothing: no tick is due yet, or the front has not responded to the last ping.
    Wait,
    /// Send this ping.
    Ping(u64),
    /// These threads of the front hang.
    Hung(Vec<i32>),
    /// These threads would count as hung, but wait for a disk. Returned once, until they continue.
    Blocked(Vec<i32>),
}

/// The state of a thread of the front.
#[derive(Clone, Copy, Debug)]
struct WatchedThread {
    id: i32,
    /// The last ping that the thread has reached.
    number: u64,
    missed: u32,
    /// The number of missed ticks at which the thread waited for a disk.
    blocked: u32,
}

/// Watches one front from the moment it serves.
#[derive(Debug)]
pub struct FrontWatch {
    interval: Duration,
    next: Instant,
    /// The number of the last ping that was sent; below, the last one that was responded to.
    sent: u64,
    answered: u64,
    /// The first entry is the main thread, which responds for itself.
    threads: Vec<WatchedThread>,
}

impl FrontWatch {
    /// Creates a watch. `line` is the kernel's id of the front's main thread, which is its process id.
    pub fn new(line: i32, limit: Duration, now: Instant) -> FrontWatch {
        FrontWatch {
            interval: limit / TICKS_UNTIL_HUNG,
            next: now,
            sent: 0,
            answered: 0,
            threads: vec![WatchedThread::new(line)],
        }
    }

    /// Returns when the next tick is due.
    pub fn next_tick(&self) -> Instant {
        self.next
    }

    /// Changes the limit after a reload.
    pub fn set_limit(&mut self, limit: Duration) {
        self.interval = limit / TICKS_UNTIL_HUNG;
    }

    /// Handles the front's response to a ping.
    pub fn handle_pulse(&mut self, number: u64, threads: &[(i32, u64)]) {
        if number != self.sent {
            return;
        }
        self.answered = number;
        // The threads are in the same order each time. A thread that does not run yet has no id.
        for (at, &(id, number)) in threads.iter().take(MAX_THREADS).enumerate() {
            if self.threads.len() <= at + 1 {
                self.threads.push(WatchedThread::new(id));
            }
            let thread = &mut self.threads[at + 1];
            (thread.id, thread.number) = (id, number);
        }
    }

    /// Evaluates the threads if a tick is due. `waits_for_disk` says whether a thread waits for a disk.
    pub fn tick(&mut self, now: Instant, waits_for_disk: impl Fn(i32) -> bool) -> TickAction {
        if now < self.next {
            return TickAction::Wait;
        }
        let late = now - self.next > self.interval;
        self.next = now + self.interval;
        let before = self.blocked();
        for at in 0..self.threads.len() {
            let came = match at {
                0 => self.answered == self.sent,
                // The state of the thread is unknown while the main thread does not respond. The numbers describe the
                // moment when the last ping arrived, so a thread had the time since the ping before that one.
                _ if self.answered < self.sent => continue,
                _ => self.threads[at].number.saturating_add(1) >= self.answered,
            };
            let thread = &mut self.threads[at];
            if came || late {
                (thread.missed, thread.blocked) = (0, 0);
            } else if waits_for_disk(thread.id) {
                thread.blocked += 1;
            } else {
                thread.missed += 1;
            }
        }
        let hung: Vec<i32> = self
            .threads
            .iter()
            .filter(|thread| thread.missed >= TICKS_UNTIL_HUNG)
            .map(|thread| thread.id)
            .collect();
        if !hung.is_empty() {
            return TickAction::Hung(hung);
        }
        let blocked = self.blocked();
        if before.is_empty() && !blocked.is_empty() {
            return TickAction::Blocked(blocked);
        }
        if self.answered < self.sent {
            // Another ping would only fill the channel.
            return TickAction::Wait;
        }
        self.sent += 1;
        TickAction::Ping(self.sent)
    }

    fn blocked(&self) -> Vec<i32> {
        let blocked = |thread: &&WatchedThread| thread.missed + thread.blocked >= TICKS_UNTIL_HUNG;
        self.threads.iter().filter(blocked).map(|t| t.id).collect()
    }
}

impl WatchedThread {
    fn new(id: i32) -> WatchedThread {
        WatchedThread {
            id,
            number: 0,
            missed: 0,
            blocked: 0,
        }
    }
}

/// Returns whether a thread of a process waits in the kernel for something that no signal interrupts, which is mostly a
/// disk.
pub fn waits_for_disk(pid: i32, thread: i32) -> bool {
    thread_state(pid, thread) == Some('D')
}

/// Describes what a thread is doing: `front-1 (thread 17) waits in futex_do_wait`.
pub fn describe(pid: i32, thread: i32) -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/{name}"));
        text.ok().map(|text| text.trim().to_owned())
    };
    let name = read("comm").unwrap_or_else(|| "a thread that has exited".to_owned());
    let at = match thread_state(pid, thread) {
        Some('T') => "is stopped by a signal".to_owned(),
        Some('t') => "is stopped by a debugger".to_owned(),
        Some('R') => "runs without returning to its event loop".to_owned(),
        Some('D') => "waits for a disk".to_owned(),
        // The kernel shows this only to processes that may trace the process; others read 0.
        _ => match read("wchan").filter(|place| !matches!(place.as_str(), "" | "0")) {
            Some(place) => format!("waits in {place}"),
            None => "waits".to_owned(),
        },
    };
    format!("{name} (thread {thread}) {at}")
}

/// Returns the letter of the state in proc_pid_stat(5). The name before it may contain any character, including
/// parentheses.
fn thread_state(pid: i32, thread: i32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_secs(5);

    /// A front with two threads. `alive` says which respond: the main thread, the first thread, the second thread.
    struct FakeFront {
        watch: FrontWatch,
        now: Instant,
        numbers: [u64; 2],
    }

    impl FakeFront {
        fn new() -> FakeFront {
            let now = Instant::now();
            FakeFront {
                watch: FrontWatch::new(1, LIMIT, now),
                now,
                numbers: [0; 2],
            }
        }

        /// Runs a tick after `pause`. A thread that waits for a disk does not respond either.
        fn tick(&mut self, pause: Duration, alive: [bool; 3], disk: &[i32]) -> TickAction {
            self.now += pause;
            let tick = self.watch.tick(self.now, |id| disk.contains(&id));
            if let (TickAction::Ping(number), true) = (&tick, alive[0]) {
                let [first, second] = self.numbers;
                self.watch
                    .handle_pulse(*number, &[(11, first), (12, second)]);
                for (number_of, alive) in self.numbers.iter_mut().zip(&alive[1..]) {
                    if *alive {
                        *number_of = *number;
                    }
                }
            }
            tick
        }

        /// Runs ticks until there is a verdict. Returns the number of ticks and the verdict.
        fn until_said(&mut self, alive: [bool; 3], disk: &[i32]) -> (u32, TickAction) {
            for n in 1..100 {
                match self.tick(EVERY, alive, disk) {
                    TickAction::Wait | TickAction::Ping(_) => {}
                    said => return (n, said),
                }
            }
            (0, TickAction::Wait)
        }
    }

    const ALL: [bool; 3] = [true; 3];

    #[test]
    fn watchdog_ignores_threads_that_take_their_turns() {
        let mut front = FakeFront::new();
        assert_eq!(front.until_said(ALL, &[]), (0, TickAction::Wait));
        assert_eq!(front.tick(EVERY / 2, ALL, &[]), TickAction::Wait, "not yet");
    }

    #[test]
    fn watchdog_reports_one_hung_thread_of_several() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let (ticks, said) = front.until_said([true, true, false], &[]);
        assert_eq!(said, TickAction::Hung(vec![12]));
        assert!(
            (TICKS_UNTIL_HUNG..=TICKS_UNTIL_HUNG + 2).contains(&ticks),
            "{ticks} ticks"
        );
    }

    #[test]
    fn watchdog_reports_the_main_thread_of_a_stopped_process() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let (ticks, said) = front.until_said([false; 3], &[]);
        assert_eq!(said, TickAction::Hung(vec![1]));
        assert!(
            (TICKS_UNTIL_HUNG..=TICKS_UNTIL_HUNG + 2).contains(&ticks),
            "{ticks} ticks"
        );
    }

    #[test]
    fn watchdog_resets_missed_ticks_of_a_thread_that_responds() {
        let mut front = FakeFront::new();
        for _ in 0..20 {
            for _ in 0..TICKS_UNTIL_HUNG - 1 {
                let tick = front.tick(EVERY, [true, false, true], &[]);
                assert!(matches!(tick, TickAction::Ping(_)), "{tick:?}");
            }
            front.tick(EVERY, ALL, &[]);
            front.tick(EVERY, ALL, &[]);
        }
    }

    #[test]
    fn watchdog_does_not_count_ticks_while_the_machine_stood_still() {
        let mut front = FakeFront::new();
        front.tick(EVERY, ALL, &[]);
        for _ in 0..10 {
            for _ in 0..TICKS_UNTIL_HUNG - 1 {
                let tick = front.tick(EVERY, [false; 3], &[]);
                assert!(
                    matches!(tick, TickAction::Ping(_) | TickAction::Wait),
                    "{tick:?}"
                );
            }
            // The master did not run during this time either.
            let tick = front.tick(EVERY * 3, [false; 3], &[]);
            assert!(
                matches!(tick, TickAction::Ping(_) | TickAction::Wait),
                "{tick:?}"
            );
        }
        // A late response counts.
        front.watch.handle_pulse(front.watch.sent, &[]);
        assert!(matches!(front.tick(EVERY, ALL, &[]), TickAction::Ping(_)));
    }

    #[test]
    fn watchdog_reports_a_thread_that_waits_for_a_disk_once_as_blocked() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let stuck = [true, false, true];
        let (ticks, said) = front.until_said(stuck, &[11]);
        assert_eq!(said, TickAction::Blocked(vec![11]));
        assert!(
            (TICKS_UNTIL_HUNG..=TICKS_UNTIL_HUNG + 2).contains(&ticks),
            "{ticks} ticks"
        );
        assert_eq!(front.until_said(stuck, &[11]), (0, TickAction::Wait));
        // The disk works again, but the thread does not continue.
        let (_, said) = front.until_said(stuck, &[]);
        assert_eq!(said, TickAction::Hung(vec![11]));
    }

    #[test]
    fn watchdog_keeps_a_thread_that_starts_after_the_first_ping() {
        let mut front = FakeFront::new();
        front.watch.tick(front.now, |_| false);
        front.watch.handle_pulse(1, &[(0, 0), (0, 0)]);
        assert_eq!(front.until_said(ALL, &[]), (0, TickAction::Wait));
        assert_eq!(front.watch.threads.len(), 3);
    }

    #[test]
    fn watchdog_ignores_the_response_to_another_ping() {
        let mut front = FakeFront::new();
        front.tick(EVERY, [false; 3], &[]);
        for number in [0, 2, u64::MAX] {
            front.watch.handle_pulse(number, &[]);
        }
        let (_, said) = front.until_said([false; 3], &[]);
        assert_eq!(said, TickAction::Hung(vec![1]));
    }

    #[test]
    fn describe_names_a_thread_and_its_state() {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let pid = std::process::id() as i32;
        assert_eq!(thread_state(pid, id), Some('R'));
        assert!(!waits_for_disk(pid, id));
        let text = describe(pid, id);
        assert!(text.contains(&format!("(thread {id}) runs")), "{text}");
        assert!(describe(pid, 1).starts_with("a thread that has exited"));
    }
}
