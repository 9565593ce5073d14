//! Measures how long one task keeps a front thread busy while other tasks wait. A turn is one poll of a task: until it
//! returns, no other task of the thread runs. Code that may run for long calls [`is_over`] and yields when it returns
//! true. Turns that still take long are recorded together with their last activity, for the status and for tests.
//!
//! The measure is the thread's CPU time, because on a busy machine the wall time depends on the other processes.
//! Reading that clock is a system call, so it is read at most once per [`CPU_CLOCK_TOLERANCE`], and at the end of turns
//! that were long by the wall clock, whose reading costs 20 ns.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_os::clock;
use rustix::time::{ClockId, clock_gettime};

/// The CPU time that no turn may exceed.
pub const MAX_TURN: Duration = Duration::from_millis(1);
/// The time after which a turn yields if it can.
const YIELD_AFTER: Duration = Duration::from_micros(500);
/// How far the CPU time recorded at the start of a turn may be off.
const CPU_CLOCK_TOLERANCE: Duration = Duration::from_micros(200);
/// The number of socket operations in one turn that do not check the time. A request needs three.
const UNCHECKED_OPERATIONS: u32 = 4;

thread_local! {
    static TURN: Cell<Option<TurnStart>> = const { Cell::new(None) };
    static DOING: Cell<&'static str> = const { Cell::new("") };
    static OPERATIONS: Cell<u32> = const { Cell::new(0) };
    static KNOWN: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    static RECENT: Cell<Option<Instant>> = const { Cell::new(None) };
    static UNRECORDED: Cell<bool> = const { Cell::new(false) };
}

/// When a turn began, and an upper bound of the thread's CPU time at that moment.
#[derive(Clone, Copy)]
struct TurnStart {
    began: Instant,
    cpu: Duration,
}

static LONG_TURNS: AtomicU64 = AtomicU64::new(0);
static LONGEST_TURN: Mutex<LongestTurn> = Mutex::new(LongestTurn {
    duration: Duration::ZERO,
    doing: "",
});

/// The longest turn of the process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LongestTurn {
    /// The CPU time that the turn took.
    pub duration: Duration,
    /// The last activity in the turn, in a word or two.
    pub doing: &'static str,
}

/// Returns the longest turn so far (zero while no turn took [`MAX_TURN`]), and how many turns took longer than
/// [`MAX_TURN`].
pub fn turn_statistics() -> (LongestTurn, u64) {
    let longest = *LONGEST_TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (longest, LONG_TURNS.load(Ordering::Relaxed))
}

/// Stops recording the turns of this thread, because no client waits for it.
pub fn disable_recording() {
    UNRECORDED.set(true);
}

/// Sets the description of the turn's current activity, in a word or two for people.
pub fn set_activity(what: &'static str) {
    DOING.set(what);
}

/// Returns the time that this thread read last: at the end of the previous turn, or after its last sleep
/// (`listener::time_slice`). For callers that need the time only to within the length of a turn.
pub fn recent_time() -> Instant {
    RECENT.get().unwrap_or_else(now)
}

/// Reads the clock and stores the time for [`recent_time`].
pub fn now() -> Instant {
    let now = clock::now();
    RECENT.set(Some(now));
    now
}

/// Returns whether the turn has lasted long enough, in which case the caller should yield if it can. Returns false
/// outside of a turn.
pub fn is_over() -> bool {
    TURN.get()
        .is_some_and(|turn| clock::now().duration_since(turn.began) >= YIELD_AFTER)
}

/// Is ready unless the turn is over. In that case it schedules the task for another turn.
pub(crate) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    if is_over() {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// Is ready unless the turn is over, in which case it schedules the task for another turn. Call this before a socket
/// operation. The first few operations of a turn skip the check.
pub fn poll_operation(cx: &mut Context<'_>) -> Poll<()> {
    let operations = OPERATIONS.get() + 1;
    OPERATIONS.set(operations);
    if operations <= UNCHECKED_OPERATIONS {
        return Poll::Ready(());
    }
    poll_turn(cx)
}

/// Yields if the turn is over.
pub async fn yield_if_over() {
    let mut given = false;
    std::future::poll_fn(|cx| match given {
        true => Poll::Ready(()),
        false => {
            given = true;
            poll_turn(cx)
        }
    })
    .await;
}

/// A task whose turns are measured.
pub struct MeasuredTask<F> {
    what: &'static str,
    task: Pin<Box<F>>,
}

/// Measures the turns of `task`; `what` describes its activity until it calls [`set_activity`].
pub fn measure<F: Future>(what: &'static str, task: F) -> MeasuredTask<F> {
    MeasuredTask {
        what,
        task: Box::pin(task),
    }
}

impl<F: Future> Future for MeasuredTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let what = self.what;
        run_measured(what, || self.task.as_mut().poll(cx))
    }
}

/// Runs `turn` and measures it as one turn; `what` describes its activity until it calls [`set_activity`].
pub(crate) fn run_measured<T>(what: &'static str, turn: impl FnOnce() -> T) -> T {
    let _turn = OngoingTurn::begin(what);
    turn()
}

/// Ends the turn when it is dropped, also by a panic.
struct OngoingTurn(TurnStart);

impl OngoingTurn {
    fn begin(what: &'static str) -> OngoingTurn {
        let began = recent_time();
        let (at, cpu) = match KNOWN.get() {
            Some(known) if began.duration_since(known.0) < CPU_CLOCK_TOLERANCE => known,
            _ => read_cpu_clock(began),
        };
        // The CPU time used since `at` is at most the wall time since then, and part of it may belong to other turns.
        let cpu = cpu + began.duration_since(at);
        let turn = TurnStart { began, cpu };
        TURN.set(Some(turn));
        DOING.set(what);
        OPERATIONS.set(0);
        OngoingTurn(turn)
    }

    /// Returns a lower bound of the CPU time that the turn has used so far, or `None` if it is less than [`MAX_TURN`].
    fn too_long(&self) -> Option<Duration> {
        let now = now();
        if now.duration_since(self.0.began) < MAX_TURN {
            return None;
        }
        let used = read_cpu_clock(now).1.saturating_sub(self.0.cpu);
        (used >= MAX_TURN).then_some(used)
    }
}

impl Drop for OngoingTurn {
    fn drop(&mut self) {
        TURN.set(None);
        if let Some(used) = self.too_long()
            && !UNRECORDED.get()
        {
            record_long_turn(used, DOING.get());
        }
    }
}

/// Reads the thread's CPU clock.
fn read_cpu_clock(now: Instant) -> (Instant, Duration) {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let cpu = Duration::new(cpu.tv_sec.max(0) as u64, cpu.tv_nsec.max(0) as u32);
    KNOWN.set(Some((now, cpu)));
    (now, cpu)
}

#[cold]
fn record_long_turn(duration: Duration, doing: &'static str) {
    LONG_TURNS.fetch_add(1, Ordering::Relaxed);
    let mut longest = LONGEST_TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if duration > longest.duration {
        *longest = LongestTurn { duration, doing };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses CPU time, not wall time.
    fn burn(time: Duration) {
        let used = || read_cpu_clock(Instant::now()).1;
        let until = used() + time;
        while used() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn turn_with_much_cpu_time_is_recorded_and_waiting_is_not() {
        let turn = OngoingTurn::begin("waiting");
        std::thread::park_timeout(3 * MAX_TURN);
        assert_eq!(turn.too_long(), None);
        drop(turn);
        let (_, before) = turn_statistics();
        run_measured("burning", || {
            assert!(!is_over());
            set_activity("counting");
            burn(5 * MAX_TURN);
            assert!(is_over());
        });
        // The record belongs to the whole process, so other tests contribute to it.
        let (longest, count) = turn_statistics();
        assert!(count > before);
        assert!(longest.duration >= 4 * MAX_TURN, "{longest:?}");
        assert!(!is_over(), "there is no turn");
    }

    #[tokio::test]
    async fn turn_yields_when_asked() {
        let mut others = 0;
        let mut task = Box::pin(measure("asking", async {
            for _ in 0..4 {
                burn(YIELD_AFTER);
                yield_if_over().await;
            }
        }));
        std::future::poll_fn(|cx| {
            let polled = task.as_mut().poll(cx);
            others += usize::from(polled.is_pending());
            polled
        })
        .await;
        assert_eq!(others, 4);
    }
}
