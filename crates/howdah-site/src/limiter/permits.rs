//! Permits for requests of a client that are in progress at once, or that have a PHP process. Each request acquires a
//! permit and releases it. If requests may wait for a permit, they wait in a queue of their own client, in the order in
//! which they arrived: a client that sends many requests waits only for itself. The memory is proportional to the
//! number of requests in progress.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crossbeam_utils::CachePadded;
use tokio::sync::oneshot;

/// The number of parts with a lock of their own, so front threads seldom contend.
const PARTS: usize = 16;

/// The permits of all clients of a limit.
#[derive(Debug)]
pub(super) struct ClientPermits {
    parts: [CachePadded<Mutex<HashMap<u64, ClientState>>>; PARTS],
    /// The number of permits of each client.
    permits_per_client: u32,
    /// How many requests of a client may wait for a permit.
    max_waiting_per_client: usize,
}

/// A client with requests in progress.
#[derive(Debug, Default)]
struct ClientState {
    taken: u32,
    waiting: VecDeque<oneshot::Sender<ClientPermit>>,
}

/// A permit of a request, which is released when it is dropped.
#[derive(Debug)]
pub struct ClientPermit {
    /// `None` once the permit has been passed on.
    places: Option<Arc<ClientPermits>>,
    key: u64,
}

/// The position of a request in its client's queue: a future that resolves to a permit.
#[derive(Debug)]
pub struct PermitQueue(oneshot::Receiver<ClientPermit>);

/// The result of asking for a permit.
#[derive(Debug)]
pub(super) enum PermitRequest {
    /// The request has a permit.
    Place(ClientPermit),
    /// The request waits for a permit.
    Queued(PermitQueue),
    /// The queue is full.
    Full,
}

impl ClientPermits {
    pub fn new(most: u32, most_waiting: usize) -> Arc<ClientPermits> {
        Arc::new(ClientPermits {
            parts: Default::default(),
            permits_per_client: most,
            max_waiting_per_client: most_waiting,
        })
    }

    fn part(&self, key: u64) -> MutexGuard<'_, HashMap<u64, ClientState>> {
        let part = &self.parts[(key >> 32) as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a permit for a client.
    pub fn acquire(self: &Arc<Self>, key: u64) -> PermitRequest {
        let mut part = self.part(key);
        let client = part.entry(key).or_default();
        if client.taken < self.permits_per_client {
            client.taken += 1;
            let places = Some(self.clone());
            return PermitRequest::Place(ClientPermit { places, key });
        }
        if client.waiting.len() >= self.max_waiting_per_client {
            // Requests whose clients have disconnected no longer wait.
            client.waiting.retain(|waiting| !waiting.is_closed());
            if client.waiting.len() >= self.max_waiting_per_client {
                return PermitRequest::Full;
            }
        }
        let (give, line) = oneshot::channel();
        client.waiting.push_back(give);
        PermitRequest::Queued(PermitQueue(line))
    }

    /// Returns the waiting request that gets a released permit; `None` if no request waits, and the permit is free.
    fn next_waiting(&self, key: u64) -> Option<oneshot::Sender<ClientPermit>> {
        let mut part = self.part(key);
        let client = part.get_mut(&key)?;
        let next = client.waiting.pop_front();
        if next.is_none() {
            client.taken -= 1;
            if client.taken == 0 {
                part.remove(&key);
            }
        }
        next
    }

    /// Returns the numbers of permits in use and of waiting requests.
    pub fn taken_and_waiting(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for part in &self.parts {
            let part = part.lock().unwrap_or_else(PoisonError::into_inner);
            for client in part.values() {
                let waiting = client.waiting.iter();
                sums.0 += u64::from(client.taken);
                sums.1 += waiting.filter(|waiting| !waiting.is_closed()).count() as u64;
            }
        }
        sums
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else {
            return;
        };
        // The lock is not held while the permit is passed on, since the permit may be released at once.
        while let Some(next) = places.next_waiting(self.key) {
            let place = ClientPermit {
                places: Some(places.clone()),
                key: self.key,
            };
            match next.send(place) {
                Ok(()) => return,
                Err(mut unwanted) => unwanted.places = None,
            }
        }
    }
}

impl Future for PermitQueue {
    type Output = ClientPermit;

    /// Resolves when there is a permit.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ClientPermit> {
        match Pin::new(&mut self.0).poll(cx) {
            Poll::Ready(Ok(place)) => Poll::Ready(place),
            // The sender is dropped only together with the `ClientPermits`, which the permits in use keep alive.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(entry: PermitRequest) -> ClientPermit {
        match entry {
            PermitRequest::Place(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn line(entry: PermitRequest) -> PermitQueue {
        match entry {
            PermitRequest::Queued(line) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn permits_are_per_client_and_released() {
        let places = ClientPermits::new(2, 0);
        let taken = [place(places.acquire(1)), place(places.acquire(1))];
        assert!(matches!(places.acquire(1), PermitRequest::Full));
        let other = place(places.acquire(2));
        assert_eq!(places.taken_and_waiting(), (3, 0));
        drop(taken);
        drop(place(places.acquire(1)));
        drop(other);
        assert_eq!(places.taken_and_waiting(), (0, 0));
        assert!(
            places
                .parts
                .iter()
                .all(|part| part.lock().unwrap().is_empty())
        );
    }

    #[tokio::test]
    async fn permit_queue_is_in_order_and_skips_disconnected_clients() {
        let places = ClientPermits::new(1, 3);
        let first = place(places.acquire(1));
        let [second, third, fourth] = std::array::from_fn(|_| line(places.acquire(1)));
        assert!(matches!(places.acquire(1), PermitRequest::Full));
        drop(second);
        let fifth = line(places.acquire(1));
        assert_eq!(places.taken_and_waiting(), (1, 3));
        drop(first);
        let third = third.await;
        // A request that disconnects before it notices its permit passes the permit on.
        drop(third);
        drop(fourth);
        let fifth = fifth.await;
        assert_eq!(places.taken_and_waiting(), (1, 0));
        drop(fifth);
        assert_eq!(places.taken_and_waiting(), (0, 0));
    }
}
