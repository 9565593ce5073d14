//! Operations that would block a front thread for too long: checking a password takes 50 ms by design, and reading a
//! file on a slow disk takes an unknown time. Threads of their own perform them.
//!
//! Each client has a queue of its own, and the queues are served in turn: a visitor waits for one check of each client
//! that guesses passwords, not for all of their checks. When too much waits, the newest job of the client with the most
//! jobs is dropped. Files are read by a separate thread, so a list of blocked addresses can be read again while clients
//! that should be on it keep the other threads busy.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::LazyLock;

use tokio::sync::oneshot;

use crate::thread_pool::{ThreadPool, ThreadPoolQueue, half_of_the_cores};

/// The maximum number of jobs that may wait in one queue.
const MAX_WAITING_JOBS: usize = 64;
/// The maximum number of jobs of one client that may wait or run.
const MAX_JOBS_PER_CLIENT: usize = 8;

/// Too many jobs are waiting, or there are no threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockingQueueFull;

type BlockingJob = Box<dyn FnOnce() + Send>;

/// The waiting jobs of one client, the oldest first.
struct ClientJobs {
    client: Option<IpAddr>,
    jobs: VecDeque<BlockingJob>,
}

#[derive(Default)]
struct JobQueue {
    /// The clients' queues in the order of their turns; none of them is empty.
    lines: VecDeque<ClientJobs>,
    /// How many of each client's jobs wait or run.
    jobs_per_client: HashMap<IpAddr, usize>,
}

impl JobQueue {
    fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.jobs.len()).sum()
    }

    fn push(&mut self, client: Option<IpAddr>, job: BlockingJob) -> Result<(), BlockingQueueFull> {
        let of_client = client.and_then(|client| self.jobs_per_client.get(&client));
        if of_client.is_some_and(|count| *count >= MAX_JOBS_PER_CLIENT) {
            return Err(BlockingQueueFull);
        }
        if self.waiting() >= MAX_WAITING_JOBS {
            self.make_room_for(client)?;
        }
        if let Some(client) = client {
            *self.jobs_per_client.entry(client).or_default() += 1;
        }
        match self.lines.iter_mut().find(|line| line.client == client) {
            Some(line) => line.jobs.push_back(job),
            None => self.lines.push_back(ClientJobs {
                client,
                jobs: VecDeque::from([job]),
            }),
        }
        Ok(())
    }

    /// Drops the newest job of the client with the most jobs, if that is more than the newcomer would have. The caller
    /// of a dropped job sees its channel closed.
    fn make_room_for(&mut self, newcomer: Option<IpAddr>) -> Result<(), BlockingQueueFull> {
        let line_of_newcomer = self.lines.iter().find(|line| line.client == newcomer);
        let own = line_of_newcomer.map_or(0, |line| line.jobs.len());
        let longest = self.lines.iter_mut().max_by_key(|line| line.jobs.len());
        let longest = longest
            .filter(|line| line.jobs.len() > own + 1)
            .ok_or(BlockingQueueFull)?;
        drop(longest.jobs.pop_back());
        let client = longest.client;
        self.job_finished(client);
        Ok(())
    }

    fn job_finished(&mut self, client: Option<IpAddr>) {
        if let Some(client) = client
            && let Some(count) = self.jobs_per_client.get_mut(&client)
        {
            *count -= 1;
            if *count == 0 {
                self.jobs_per_client.remove(&client);
            }
        }
    }
}

impl ThreadPoolQueue for JobQueue {
    type Work = BlockingJob;
    type Account = Option<IpAddr>;

    /// Returns the next job: the oldest of the client whose turn it is.
    fn pop(&mut self) -> Option<(Option<IpAddr>, BlockingJob)> {
        let mut line = self.lines.pop_front()?;
        let client = line.client;
        let job = line.jobs.pop_front()?;
        if !line.jobs.is_empty() {
            self.lines.push_back(line);
        }
        Some((client, job))
    }

    fn perform(job: BlockingJob) -> Option<BlockingJob> {
        job();
        None
    }

    fn settle(&mut self, client: Option<IpAddr>, _: Option<BlockingJob>) {
        self.job_finished(client);
    }
}

static PASSWORD_THREADS: LazyLock<ThreadPool<JobQueue>> =
    LazyLock::new(|| ThreadPool::new("passwords", half_of_the_cores(), JobQueue::default()));
static FILE_THREADS: LazyLock<ThreadPool<JobQueue>> =
    LazyLock::new(|| ThreadPool::new("files", 1, JobQueue::default()));

/// Runs `job`, the check of a password, for a client on another thread. If the caller stops waiting before the job has
/// begun, it is not run.
///
/// # Errors
/// [`BlockingQueueFull`] if too much is waiting.
pub(crate) async fn check_password<T: Send + 'static>(
    client: Option<IpAddr>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingQueueFull> {
    run(&PASSWORD_THREADS, client, job).await
}

/// Runs `job`, the reading of a file, for a client on another thread.
///
/// # Errors
/// [`BlockingQueueFull`] if too much is waiting.
pub(crate) async fn read_file<T: Send + 'static>(
    client: Option<IpAddr>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingQueueFull> {
    run(&FILE_THREADS, client, job).await
}

/// Like [`read_file`], without waiting for the result.
///
/// # Errors
/// [`BlockingQueueFull`] if too much is waiting.
pub(crate) fn enqueue_file_read(
    job: impl FnOnce() + Send + 'static,
) -> Result<(), BlockingQueueFull> {
    push(&FILE_THREADS, None, Box::new(job))
}

/// Runs `job` for a client on one of `threads`.
async fn run<T: Send + 'static>(
    threads: &'static ThreadPool<JobQueue>,
    client: Option<IpAddr>,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, BlockingQueueFull> {
    let (done, waited) = oneshot::channel();
    let job = move || {
        if !done.is_closed() {
            // An error means that the caller does not wait any more, so the result can be dropped.
            let _ = done.send(job());
        }
    };
    push(threads, client, Box::new(job))?;
    // A closed channel means that the job panicked, or was dropped in favour of another client's.
    waited.await.map_err(|_| BlockingQueueFull)
}

fn push(
    threads: &'static ThreadPool<JobQueue>,
    client: Option<IpAddr>,
    job: BlockingJob,
) -> Result<(), BlockingQueueFull> {
    if !threads.start() {
        return Err(BlockingQueueFull);
    }
    threads.add(|queue| queue.push(client, job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};

    fn client(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test]
    async fn blocking_queue_cannot_be_filled_by_one_client() {
        let (go, wait) = mpsc::channel::<()>();
        let wait = std::sync::Arc::new(Mutex::new(wait));
        let mut jobs = Vec::new();
        for _ in 0..MAX_JOBS_PER_CLIENT {
            let wait = wait.clone();
            let job = check_password(client(1), move || {
                let _ = wait.lock().unwrap().recv();
                1
            });
            jobs.push(tokio::spawn(job));
        }
        tokio::task::yield_now().await;
        assert_eq!(
            check_password(client(1), || 1).await,
            Err(BlockingQueueFull)
        );
        let other = tokio::spawn(check_password(client(2), || 2));
        tokio::task::yield_now().await;
        // Files are read meanwhile.
        assert_eq!(read_file(None, || 4).await, Ok(4));
        drop(go);
        for job in jobs {
            assert_eq!(job.await.unwrap(), Ok(1));
        }
        assert_eq!(other.await.unwrap(), Ok(2));
        let broken = check_password(None, || panic!("a job's own mistake")).await;
        assert_eq!(broken, Err::<(), BlockingQueueFull>(BlockingQueueFull));
        assert_eq!(check_password(None, || 3).await, Ok(3));
    }

    #[test]
    fn job_queue_serves_clients_in_turn_and_drops_from_the_longest() {
        let mut queue = JobQueue::default();
        let job = || -> BlockingJob { Box::new(|| ()) };
        for guesser in 1..=8 {
            for _ in 0..MAX_JOBS_PER_CLIENT {
                queue.push(client(guesser), job()).unwrap();
            }
            assert_eq!(queue.push(client(guesser), job()), Err(BlockingQueueFull));
        }
        assert_eq!(queue.waiting(), MAX_WAITING_JOBS);
        // The queue is full, and a newcomer still gets room.
        queue.push(client(9), job()).unwrap();
        assert_eq!(queue.waiting(), MAX_WAITING_JOBS);
        let served: Vec<_> = (0..9).map(|_| queue.pop().unwrap().0).collect();
        assert_eq!(served, (1..=9).map(client).collect::<Vec<_>>());
        // No job is dropped in favour of a client that has as many jobs.
        let mut queue = JobQueue::default();
        for visitor in 0..MAX_WAITING_JOBS {
            queue.push(client(visitor as u8), job()).unwrap();
        }
        assert_eq!(queue.push(client(200), job()), Err(BlockingQueueFull));
        assert_eq!(queue.push(client(0), job()), Err(BlockingQueueFull));
    }
}
