//! Decides whether the front hangs: its threads no longer take their turns, be it for a deadlock, an
//! endless loop, or because somebody has stopped the process. Reads no clock and sends nothing; the
//! master's loop does.
//!
//! The limit (`timeouts.hang`) is divided into [`TICKS`]. At each the master sends a ping; the front's
//! line thread answers at once and asks each front thread to come to that ping's number in its event
//! loop. A thread that has not come to the former ping by the next has missed a tick; whoever misses
//! [`TICKS`] in a row hangs. Not counted are ticks
//! - the master itself is late for: then the machine was stopped, suspended or starved, and the front
//!   with it;
//! - at which the thread waits in the kernel for a disk (state D): another front would wait there too.

use std::time::{Duration, Instant};

/// A thread that has missed so many ticks in a row hangs.
pub const TICKS: u32 = 6;

/// Threads that answer for themselves, at most: the number comes from the front.
const MOST: usize = 1024;

/// What the master has to do at a tick.
#[derive(Debug, PartialEq, Eq)]
pub enum Tick {
    /// Nothing: it is not time yet, or the last ping is still unanswered.
    Wait,
    /// Send this ping.
    Ping(u64),
    /// These threads of the front hang.
    Hung(Vec<i32>),
    /// These threads would count as hung, but wait for a disk. Given once until they go on.
    Blocked(Vec<i32>),
}

/// What is known of a thread of the front.
#[derive(Clone, Copy, Debug)]
struct Thread {
    id: i32,
    /// The last ping it has come to.
    number: u64,
    missed: u32,
    /// As `missed`, of ticks at which it waited for a disk.
    blocked: u32,
}

/// Watches one front, from when it serves.
#[derive(Debug)]
pub struct Watch {
    interval: Duration,
    next: Instant,
    /// The last ping sent, and the last answered.
    sent: u64,
    answered: u64,
    /// The line's thread first: it answers for itself.
    threads: Vec<Thread>,
}

impl Watch {
    /// `line`: the kernel's id of the front's first thread, which is its process id.
    pub fn new(line: i32, limit: Duration, now: Instant) -> Watch {
        Watch {
            interval: limit / TICKS,
            next: now,
            sent: 0,
            answered: 0,
            threads: vec![Thread::new(line)],
        }
    }

    /// When the next tick is.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// Changes the limit, as a reload may.
    pub fn set_limit(&mut self, limit: Duration) {
        self.interval = limit / TICKS;
    }

    /// Takes the front's answer to a ping.
    pub fn heard(&mut self, number: u64, threads: &[(i32, u64)]) {
        if number != self.sent {
            return;
        }
        self.answered = number;
        // In the same order each time; a thread has no id before it runs.
        for (at, &(id, number)) in threads.iter().take(MOST).enumerate() {
            if self.threads.len() <= at + 1 {
                self.threads.push(Thread::new(id));
            }
            let thread = &mut self.threads[at + 1];
            (thread.id, thread.number) = (id, number);
        }
    }

    /// Judges the threads, if it is time to. `waits_for_disk` says whether a thread does.
    pub fn tick(&mut self, now: Instant, waits_for_disk: impl Fn(i32) -> bool) -> Tick {
        if now < self.next {
            return Tick::Wait;
        }
        let late = now - self.next > self.interval;
        self.next = now + self.interval;
        let before = self.blocked();
        for at in 0..self.threads.len() {
            let came = match at {
                0 => self.answered == self.sent,
                // Not known while the line's thread is silent. It describes the moment when the
                // last ping came: a thread had the time since the one before.
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
            .filter(|thread| thread.missed >= TICKS)
            .map(|thread| thread.id)
            .collect();
        if !hung.is_empty() {
            return Tick::Hung(hung);
        }
        let blocked = self.blocked();
        if before.is_empty() && !blocked.is_empty() {
            return Tick::Blocked(blocked);
        }
        if self.answered < self.sent {
            // A second ping would only fill the line.
            return Tick::Wait;
        }
        self.sent += 1;
        Tick::Ping(self.sent)
    }

    fn blocked(&self) -> Vec<i32> {
        let blocked = |thread: &&Thread| thread.missed + thread.blocked >= TICKS;
        self.threads.iter().filter(blocked).map(|t| t.id).collect()
    }
}

impl Thread {
    fn new(id: i32) -> Thread {
        Thread {
            id,
            number: 0,
            missed: 0,
            blocked: 0,
        }
    }
}

/// Whether a thread of a process waits in the kernel for what no signal ends: a disk, mostly.
pub fn waits_for_disk(pid: i32, thread: i32) -> bool {
    state(pid, thread) == Some('D')
}

/// What a thread is at, for people: `front-1 (thread 17) waits in futex_do_wait`.
pub fn describe(pid: i32, thread: i32) -> String {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/{name}"));
        text.ok().map(|text| text.trim().to_owned())
    };
    let name = read("comm").unwrap_or_else(|| "a thread that is gone".to_owned());
    let at = match state(pid, thread) {
        Some('T') => "is stopped by a signal".to_owned(),
        Some('t') => "is stopped by a debugger".to_owned(),
        Some('R') => "runs without taking its turn".to_owned(),
        Some('D') => "waits for a disk".to_owned(),
        // Told to whom may trace the process; others read 0.
        _ => match read("wchan").filter(|place| !matches!(place.as_str(), "" | "0")) {
            Some(place) => format!("waits in {place}"),
            None => "waits".to_owned(),
        },
    };
    format!("{name} (thread {thread}) {at}")
}

/// The state's letter in proc_pid_stat(5). The name before it may hold anything, parentheses too.
fn state(pid: i32, thread: i32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);
    const EVERY: Duration = Duration::from_secs(5);

    /// A front of two threads, answering as `alive` says: line, first thread, second thread.
    struct FakeFront {
        watch: Watch,
        now: Instant,
        numbers: [u64; 2],
    }

    impl FakeFront {
        fn new() -> FakeFront {
            let now = Instant::now();
            FakeFront {
                watch: Watch::new(1, LIMIT, now),
                now,
                numbers: [0; 2],
            }
        }

        /// A tick after `pause`; who waits for a disk does not answer either.
        fn tick(&mut self, pause: Duration, alive: [bool; 3], disk: &[i32]) -> Tick {
            self.now += pause;
            let tick = self.watch.tick(self.now, |id| disk.contains(&id));
            if let (Tick::Ping(number), true) = (&tick, alive[0]) {
                let [first, second] = self.numbers;
                self.watch.heard(*number, &[(11, first), (12, second)]);
                for (number_of, alive) in self.numbers.iter_mut().zip(&alive[1..]) {
                    if *alive {
                        *number_of = *number;
                    }
                }
            }
            tick
        }

        /// Ticks until a verdict comes: how many that took, and the verdict.
        fn until_said(&mut self, alive: [bool; 3], disk: &[i32]) -> (u32, Tick) {
            for n in 1..100 {
                match self.tick(EVERY, alive, disk) {
                    Tick::Wait | Tick::Ping(_) => {}
                    said => return (n, said),
                }
            }
            (0, Tick::Wait)
        }
    }

    const ALL: [bool; 3] = [true; 3];

    #[test]
    fn a_front_whose_threads_take_their_turns_is_left_alone() {
        let mut front = FakeFront::new();
        assert_eq!(front.until_said(ALL, &[]), (0, Tick::Wait));
        assert_eq!(front.tick(EVERY / 2, ALL, &[]), Tick::Wait, "not yet");
    }

    #[test]
    fn one_thread_of_several_that_hangs_is_enough() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let (ticks, said) = front.until_said([true, true, false], &[]);
        assert_eq!(said, Tick::Hung(vec![12]));
        assert!((TICKS..=TICKS + 2).contains(&ticks), "{ticks} ticks");
    }

    #[test]
    fn a_stopped_process_hangs_by_its_line() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let (ticks, said) = front.until_said([false; 3], &[]);
        assert_eq!(said, Tick::Hung(vec![1]));
        assert!((TICKS..=TICKS + 2).contains(&ticks), "{ticks} ticks");
    }

    #[test]
    fn who_comes_to_a_ping_in_time_has_missed_nothing() {
        let mut front = FakeFront::new();
        for _ in 0..20 {
            for _ in 0..TICKS - 1 {
                let tick = front.tick(EVERY, [true, false, true], &[]);
                assert!(matches!(tick, Tick::Ping(_)), "{tick:?}");
            }
            front.tick(EVERY, ALL, &[]);
            front.tick(EVERY, ALL, &[]);
        }
    }

    #[test]
    fn time_in_which_the_machine_stood_still_is_not_counted() {
        let mut front = FakeFront::new();
        front.tick(EVERY, ALL, &[]);
        for _ in 0..10 {
            for _ in 0..TICKS - 1 {
                let tick = front.tick(EVERY, [false; 3], &[]);
                assert!(matches!(tick, Tick::Ping(_) | Tick::Wait), "{tick:?}");
            }
            // The master was not there either.
            let tick = front.tick(EVERY * 3, [false; 3], &[]);
            assert!(matches!(tick, Tick::Ping(_) | Tick::Wait), "{tick:?}");
        }
        // An answer that comes late counts.
        front.watch.heard(front.watch.sent, &[]);
        assert!(matches!(front.tick(EVERY, ALL, &[]), Tick::Ping(_)));
    }

    #[test]
    fn a_thread_that_waits_for_a_disk_is_named_once_and_not_hung() {
        let mut front = FakeFront::new();
        front.until_said(ALL, &[]);
        let stuck = [true, false, true];
        let (ticks, said) = front.until_said(stuck, &[11]);
        assert_eq!(said, Tick::Blocked(vec![11]));
        assert!((TICKS..=TICKS + 2).contains(&ticks), "{ticks} ticks");
        assert_eq!(front.until_said(stuck, &[11]), (0, Tick::Wait));
        // The disk is back, and the thread does not go on.
        let (_, said) = front.until_said(stuck, &[]);
        assert_eq!(said, Tick::Hung(vec![11]));
    }

    #[test]
    fn a_thread_that_had_not_begun_at_the_first_ping_is_no_other_one_later() {
        let mut front = FakeFront::new();
        front.watch.tick(front.now, |_| false);
        front.watch.heard(1, &[(0, 0), (0, 0)]);
        assert_eq!(front.until_said(ALL, &[]), (0, Tick::Wait));
        assert_eq!(front.watch.threads.len(), 3);
    }

    #[test]
    fn an_answer_to_another_ping_is_no_answer() {
        let mut front = FakeFront::new();
        front.tick(EVERY, [false; 3], &[]);
        for number in [0, 2, u64::MAX] {
            front.watch.heard(number, &[]);
        }
        let (_, said) = front.until_said([false; 3], &[]);
        assert_eq!(said, Tick::Hung(vec![1]));
    }

    #[test]
    fn a_thread_of_this_process_is_described() {
        let id = rustix::thread::gettid().as_raw_nonzero().get();
        let pid = std::process::id() as i32;
        assert_eq!(state(pid, id), Some('R'));
        assert!(!waits_for_disk(pid, id));
        let text = describe(pid, id);
        assert!(text.contains(&format!("(thread {id}) runs")), "{text}");
        assert!(describe(pid, 1).starts_with("a thread that is gone"));
    }
}
