//! The tasks of clients and connections. The simulation polls them itself, in an order that follows from the seed.
//! Tokio would wake the tasks that wait for the same event in a random order.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::random::Random;

/// A task that has not been polled yet, and its name.
pub struct NewTask {
    pub name: String,
    pub future: Pin<Box<dyn Future<Output = ()>>>,
}

impl NewTask {
    pub fn new(name: impl Into<String>, future: impl Future<Output = ()> + 'static) -> NewTask {
        NewTask {
            name: name.into(),
            // All tasks are polled in one task of the runtime, whose budget would be too small for them.
            future: Box::pin(tokio::task::unconstrained(future)),
        }
    }
}

struct Task {
    new: NewTask,
    woken: Arc<Woken>,
}

/// Whether a task has been woken since it was last polled.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// The running tasks.
#[derive(Default)]
pub struct TaskSet(Vec<Task>);

impl TaskSet {
    /// Adds a task. The next call of [`TaskSet::poll_woken`] polls it.
    pub fn add(&mut self, new: NewTask) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.0.push(Task { new, woken });
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names of the running tasks.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|task| &task.new.name[..]).collect()
    }

    /// Polls each woken task once, beginning at a task that `random` chooses. Returns how many tasks it polled.
    pub fn poll_woken(&mut self, random: &mut Random) -> u32 {
        let woken = self
            .0
            .iter()
            .filter(|task| task.woken.0.load(Ordering::Acquire));
        if woken.count() == 0 {
            return 0;
        }
        let first = random.below(self.0.len());
        self.0.rotate_left(first);
        let mut polled = 0;
        self.0.retain_mut(|task| {
            if !task.woken.0.swap(false, Ordering::AcqRel) {
                return true;
            }
            polled += 1;
            let waker = Waker::from(task.woken.clone());
            let result = task
                .new
                .future
                .as_mut()
                .poll(&mut Context::from_waker(&waker));
            matches!(result, Poll::Pending)
        });
        polled
    }
}
