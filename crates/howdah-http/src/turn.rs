//! How long one task keeps a front thread from all the others. A turn is one poll of a task: until it
//! returns, nobody else of the thread is answered. Code that may go on for long asks
//! [`is_over`] and gives way; what goes on for long all the same is recorded with what it was doing, for
//! the status and for tests.
//!
//! What counts is the thread's CPU time: on a busy machine wall time says how many others there were.
//! That clock is a system call, so it is read at most once in [`ANCHOR`], and at the end of turns that
//! were long by the wall clock, which costs 20 ns.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that no turn may exceed.
pub const LIMIT: Duration = Duration::from_millis(1);
/// When a turn that can end does.
const OVER: Duration = Duration::from_micros(500);
/// The CPU clock is known this exactly when a turn begins.
const ANCHOR: Duration = Duration::from_micros(200);
/// Operations of a socket in one turn before the time is looked at: a request takes three.
const FREE_OPERATIONS: u32 = 4;

thread_local! {
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
    static DOING: Cell<&'static str> = const { Cell::new("") };
    static OPERATIONS: Cell<u32> = const { Cell::new(0) };
    static KNOWN: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
    static RECENT: Cell<Option<Instant>> = const { Cell::new(None) };
    static UNRECORDED: Cell<bool> = const { Cell::new(false) };
}

/// When a turn began, and the CPU time the thread had then, rounded down.
#[derive(Clone, Copy)]
struct Turn {
    began: Instant,
    cpu: Duration,
}

static TOO_LONG: AtomicU64 = AtomicU64::new(0);
static LONGEST: Mutex<Longest> = Mutex::new(Longest {
    duration: Duration::ZERO,
    doing: "",
});

/// The longest turn of the process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// The CPU time that the turn took.
    pub duration: Duration,
    /// What the turn was doing last, in a word or two.
    pub doing: &'static str,
}

/// The longest turn so far (zero while none took [`LIMIT`]), and how many took longer than [`LIMIT`].
pub fn record() -> (Longest, u64) {
    let longest = *LONGEST.lock().unwrap_or_else(PoisonError::into_inner);
    (longest, TOO_LONG.load(Ordering::Relaxed))
}

/// Records no turn of this thread: no visitor waits for it.
pub fn leave_out_this_thread() {
    UNRECORDED.set(true);
}

/// Says what the turn is doing from now on, in a word or two for people.
pub fn doing(what: &'static str) {
    DOING.set(what);
}

/// The time that this thread has read last: at the end of the turn before, or after its last sleep
/// (`listener::slice`). For callers that need the time only to within a turn's length.
pub fn recently() -> Instant {
    RECENT.get().unwrap_or_else(now)
}

/// Reads the clock, and keeps the time for [`recently`].
pub fn now() -> Instant {
    let now = Instant::now();
    RECENT.set(Some(now));
    now
}

/// Whether the turn has lasted long enough: the caller is to give way if it can. Outside of a turn: no.
pub fn is_over() -> bool {
    TURN.get().is_some_and(|turn| turn.began.elapsed() >= OVER)
}

/// Ready unless the turn is over; then the task is woken for another.
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<()> {
    if is_over() {
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(())
}

/// Before an operation of a socket: ready unless the turn is over; then the task is woken for another.
/// The first few of a turn are free.
pub fn poll_operation(cx: &mut Context<'_>) -> Poll<()> {
    let operations = OPERATIONS.get() + 1;
    OPERATIONS.set(operations);
    if operations <= FREE_OPERATIONS {
        return Poll::Ready(());
    }
    poll_proceed(cx)
}

/// Gives way if the turn is over.
pub async fn give_way() {
    let mut given = false;
    std::future::poll_fn(|cx| match given {
        true => Poll::Ready(()),
        false => {
            given = true;
            poll_proceed(cx)
        }
    })
    .await;
}

/// A task whose turns are measured.
pub struct Measured<F> {
    what: &'static str,
    task: Pin<Box<F>>,
}

/// Measures the turns of `task`, which does `what` unless it says otherwise.
pub fn measured<F: Future>(what: &'static str, task: F) -> Measured<F> {
    Measured {
        what,
        task: Box::pin(task),
    }
}

impl<F: Future> Future for Measured<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let what = self.what;
        take(what, || self.task.as_mut().poll(cx))
    }
}

/// Measures one turn that is no task's.
pub(crate) fn take<T>(what: &'static str, turn: impl FnOnce() -> T) -> T {
    let _turn = Ongoing::begin(what);
    turn()
}

/// Ends the turn, also when it panics.
struct Ongoing(Turn);

impl Ongoing {
    fn begin(what: &'static str) -> Ongoing {
        let began = recently();
        let (at, cpu) = match KNOWN.get() {
            Some(known) if began.duration_since(known.0) < ANCHOR => known,
            _ => know(began),
        };
        // At most this much of what was used since belongs to others.
        let cpu = cpu + began.duration_since(at);
        let turn = Turn { began, cpu };
        TURN.set(Some(turn));
        DOING.set(what);
        OPERATIONS.set(0);
        Ongoing(turn)
    }

    /// The CPU time it took so far, at least; none: less than [`LIMIT`].
    fn too_long(&self) -> Option<Duration> {
        let now = now();
        if now.duration_since(self.0.began) < LIMIT {
            return None;
        }
        let used = know(now).1.saturating_sub(self.0.cpu);
        (used >= LIMIT).then_some(used)
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        TURN.set(None);
        if let Some(used) = self.too_long()
            && !UNRECORDED.get()
        {
            was_long(used, DOING.get());
        }
    }
}

/// Reads the thread's CPU clock.
fn know(now: Instant) -> (Instant, Duration) {
    let cpu = clock_gettime(ClockId::ThreadCPUTime);
    let cpu = Duration::new(cpu.tv_sec.max(0) as u64, cpu.tv_nsec.max(0) as u32);
    KNOWN.set(Some((now, cpu)));
    (now, cpu)
}

#[cold]
fn was_long(duration: Duration, doing: &'static str) {
    TOO_LONG.fetch_add(1, Ordering::Relaxed);
    let mut longest = LONGEST.lock().unwrap_or_else(PoisonError::into_inner);
    if duration > longest.duration {
        *longest = Longest { duration, doing };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the processor, not the clock on the wall.
    fn burn(time: Duration) {
        let used = || know(Instant::now()).1;
        let until = used() + time;
        while used() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn what_uses_the_processor_for_long_is_recorded_and_what_waits_is_not() {
        let turn = Ongoing::begin("waiting");
        std::thread::park_timeout(3 * LIMIT);
        assert_eq!(turn.too_long(), None);
        drop(turn);
        let (_, before) = record();
        take("burning", || {
            assert!(!is_over());
            doing("counting");
            burn(5 * LIMIT);
            assert!(is_over());
        });
        // The record is the process's: other tests have their part in it.
        let (longest, count) = record();
        assert!(count > before);
        assert!(longest.duration >= 4 * LIMIT, "{longest:?}");
        assert!(!is_over(), "there is no turn");
    }

    #[tokio::test]
    async fn a_task_that_asks_gives_way() {
        let mut others = 0;
        let mut task = Box::pin(measured("asking", async {
            for _ in 0..4 {
                burn(OVER);
                give_way().await;
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
