//! Threads for work that would keep a front thread busy for too long, and the queue that they work on. A queue decides
//! whose work is next and how much may wait. Each kind of work has a pool of its own, so a long compression does not
//! delay the check of a password.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

pub(crate) trait ThreadPoolQueue: Send + 'static {
    /// What a thread takes from the queue.
    type Work;
    /// What the queue has to know about work that a thread has taken, even if it panics.
    type Account: Copy;

    /// Removes the work whose turn it is.
    fn pop(&mut self) -> Option<(Self::Account, Self::Work)>;

    /// Performs work while the queue is not locked. Returns the work if other work is to have its turn before this work
    /// is continued.
    fn perform(work: Self::Work) -> Option<Self::Work>;

    /// Receives work that is to be continued, or `None` if the work is complete or has panicked.
    fn settle(&mut self, account: Self::Account, unfinished: Option<Self::Work>);
}

/// Threads, and the queue that they work on.
pub(crate) struct ThreadPool<Q> {
    name: &'static str,
    size: usize,
    queue: Mutex<Q>,
    work_added: Condvar,
    started: OnceLock<bool>,
}

impl<Q: ThreadPoolQueue> ThreadPool<Q> {
    /// Creates a pool of `size` threads, which are named `name` and a number.
    pub(crate) fn new(name: &'static str, size: usize, queue: Q) -> ThreadPool<Q> {
        ThreadPool {
            name,
            size,
            queue: Mutex::new(queue),
            work_added: Condvar::new(),
            started: OnceLock::new(),
        }
    }

    /// Locks the queue.
    pub(crate) fn queue(&self) -> MutexGuard<'_, Q> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `push` add work to the queue, and wakes a thread unless it fails.
    ///
    /// # Errors
    /// The error of `push`.
    pub(crate) fn add<E>(
        &'static self,
        push: impl FnOnce(&mut Q) -> Result<(), E>,
    ) -> Result<(), E> {
        push(&mut self.queue())?;
        self.work_added.notify_one();
        Ok(())
    }

    /// Starts the threads when it is called for the first time; callers do this before they add work. Returns whether
    /// there are any threads.
    pub(crate) fn start(&'static self) -> bool {
        *self.started.get_or_init(|| {
            let started = (0..self.size).filter(|number| {
                std::thread::Builder::new()
                    .name(format!("{}-{number}", self.name))
                    .spawn(|| self.run())
                    .is_ok()
            });
            started.count() > 0
        })
    }

    fn run(&self) {
        let mut queue = self.queue();
        loop {
            let Some((account, work)) = queue.pop() else {
                let woken = self.work_added.wait(queue);
                queue = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            // If work panics, it is dropped, which a waiting caller notices.
            let unfinished = catch_unwind(AssertUnwindSafe(|| Q::perform(work))).unwrap_or(None);
            queue = self.queue();
            queue.settle(account, unfinished);
        }
    }
}

/// Returns half of the number of cores, but at least one, so PHP and the front keep the other cores.
pub(crate) fn half_of_the_cores() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::{LazyLock, mpsc};

    /// Jobs that send their name once for each step that they need, and panic if they need none.
    #[derive(Default)]
    struct Steps {
        waiting: VecDeque<Job>,
        settled: Vec<(char, bool)>,
    }

    struct Job {
        name: char,
        steps: usize,
        done: mpsc::Sender<char>,
    }

    impl ThreadPoolQueue for Steps {
        type Work = Job;
        type Account = char;

        fn pop(&mut self) -> Option<(char, Job)> {
            self.waiting.pop_front().map(|job| (job.name, job))
        }

        fn perform(mut job: Job) -> Option<Job> {
            job.steps = job.steps.checked_sub(1).expect("a job's own mistake");
            job.done.send(job.name).unwrap();
            (job.steps > 0).then_some(job)
        }

        fn settle(&mut self, name: char, unfinished: Option<Job>) {
            self.settled.push((name, unfinished.is_none()));
            self.waiting.extend(unfinished);
        }
    }

    #[test]
    fn thread_pool_performs_work_in_turns_and_survives_a_panic() {
        static POOL: LazyLock<ThreadPool<Steps>> =
            LazyLock::new(|| ThreadPool::new("steps", 1, Steps::default()));
        assert!(POOL.start());
        let (done, steps) = mpsc::channel();
        let refused = POOL.add(|queue| {
            for (name, steps) in [('p', 0), ('a', 2), ('b', 3)] {
                let done = done.clone();
                queue.waiting.push_back(Job { name, steps, done });
            }
            Ok::<(), ()>(())
        });
        assert_eq!(refused, Ok(()));
        drop(done);
        // The channel is closed when all jobs have been dropped.
        assert_eq!(steps.iter().collect::<String>(), "ababb");
        assert_eq!(POOL.add(|_| Err("full")), Err("full"));
        let settled = POOL.queue().settled.clone();
        let of_panicked = [('p', true)];
        let of_others = [('a', false), ('b', false), ('a', true), ('b', false)];
        assert_eq!(settled[..5], [&of_panicked[..], &of_others[..]].concat());
    }
}
