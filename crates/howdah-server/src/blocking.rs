//! Threads for what would keep a front thread from its other visitors: a password's check takes 50 ms
//! by design. So much may wait, and of one client only a part of it: somebody who guesses passwords
//! does not keep the others from logging in.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::oneshot;

/// Jobs that may wait: a few seconds of bcrypt.
const MOST_WAITING: usize = 64;
/// Of one client's.
const MOST_OF_ONE: usize = 8;

/// Too much is waiting, or there are no threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Option<IpAddr>, Job)>,
    /// How many of a client's jobs wait or run.
    of: HashMap<IpAddr, usize>,
}

static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);
static MORE: Condvar = Condvar::new();

fn queue() -> MutexGuard<'static, Option<Queue>> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has `job` done for a client, by another thread. A caller that stops waiting has it left undone, if
/// it has not begun.
pub(crate) async fn run<T: Send + 'static>(
    client: Option<IpAddr>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Full> {
    let (done, waited) = oneshot::channel();
    let job = move || {
        if !done.is_closed() {
            // Nobody waits any more: nothing is lost.
            let _ = done.send(job());
        }
    };
    push(client, Box::new(job))?;
    // Dropped without a word: it panicked.
    waited.await.map_err(|_| Full)
}

/// Has `job` done for a client, by another thread, without waiting for it.
pub(crate) fn offer(
    client: Option<IpAddr>,
    job: impl FnOnce() + Send + 'static,
) -> Result<(), Full> {
    push(client, Box::new(job))
}

fn push(client: Option<IpAddr>, job: Job) -> Result<(), Full> {
    if !start() {
        return Err(Full);
    }
    let mut queue = queue();
    let queue = queue.get_or_insert_default();
    if queue.waiting.len() >= MOST_WAITING {
        return Err(Full);
    }
    if let Some(client) = client {
        let count = queue.of.entry(client).or_default();
        if *count >= MOST_OF_ONE {
            return Err(Full);
        }
        *count += 1;
    }
    queue.waiting.push_back((client, job));
    MORE.notify_one();
    Ok(())
}

/// Starts the threads when there is first something to do: one for two cores, so that PHP and the front
/// keep the others. Whether there are any.
fn start() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let started = (0..(cores / 2).max(1)).filter(|number| {
            std::thread::Builder::new()
                .name(format!("blocking-{number}"))
                .spawn(work)
                .is_ok()
        });
        started.count() > 0
    })
}

fn work() {
    loop {
        let (client, job) = {
            let mut queue = queue();
            loop {
                match queue.as_mut().and_then(|queue| queue.waiting.pop_front()) {
                    Some(entry) => break entry,
                    None => queue = MORE.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        // The caller of a job that panicked sees it dropped.
        let _ = catch_unwind(AssertUnwindSafe(job));
        if let Some(client) = client
            && let Some(queue) = queue().as_mut()
            && let Some(count) = queue.of.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                queue.of.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn one_client_cannot_fill_the_queue_and_everybody_is_served_at_last() {
        let guesser: IpAddr = "192.0.2.1".parse().unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(Mutex::new(wait));
        let mut jobs = Vec::new();
        for _ in 0..MOST_OF_ONE {
            let wait = wait.clone();
            let job = run(Some(guesser), move || {
                let _ = wait.lock().unwrap().recv();
                1
            });
            jobs.push(tokio::spawn(job));
        }
        tokio::task::yield_now().await;
        assert_eq!(run(Some(guesser), || 1).await, Err(Full));
        let other = tokio::spawn(run(Some("192.0.2.2".parse().unwrap()), || 2));
        tokio::task::yield_now().await;
        drop(go);
        for job in jobs {
            assert_eq!(job.await.unwrap(), Ok(1));
        }
        assert_eq!(other.await.unwrap(), Ok(2));
        let broken = run(None, || panic!("a job's own mistake")).await;
        assert_eq!(broken, Err::<(), Full>(Full));
        assert_eq!(run(None, || 3).await, Ok(3));
    }
}
