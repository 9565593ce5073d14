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
pub(super) struct Places {
    parts: [CachePadded<Mutex<HashMap<u64, Client>>>; PARTS],
    /// The number of permits of each client.
    most: u32,
    /// How many requests of a client may wait for a permit.
    most_waiting: usize,
}

/// A client with requests in progress.
#[derive(Debug, Default)]
struct Client {
    taken: u32,
    waiting: VecDeque<oneshot::Sender<Place>>,
}

/// A permit of a request, which is released when it is dropped.
#[derive(Debug)]
pub struct Place {
    /// `None` once the permit has been passed on.
    places: Option<Arc<Places>>,
    key: u64,
}

/// The position of a request in its client's queue: a future that resolves to a permit.
#[derive(Debug)]
pub struct Line(oneshot::Receiver<Place>);

/// The result of asking for a permit.
#[derive(Debug)]
pub(super) enum Entry {
    /// The request has a permit.
    Place(Place),
    /// The request waits for a permit.
    Waits(Line),
    /// The queue is full.
    Full,
}

impl Places {
    pub fn new(most: u32, most_waiting: usize) -> Arc<Places> {
        Arc::new(Places {
            parts: Default::default(),
            most,
            most_waiting,
        })
    }

    fn part(&self, key: u64) -> MutexGuard<'_, HashMap<u64, Client>> {
        let part = &self.parts[(key >> 32) as usize % PARTS];
        part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a permit for a client.
    pub fn enter(self: &Arc<Self>, key: u64) -> Entry {
        let mut part = self.part(key);
        let client = part.entry(key).or_default();
        if client.taken < self.most {
            client.taken += 1;
            let places = Some(self.clone());
            return Entry::Place(Place { places, key });
        }
        if client.waiting.len() >= self.most_waiting {
            // Requests whose clients have disconnected no longer wait.
            client.waiting.retain(|waiting| !waiting.is_closed());
            if client.waiting.len() >= self.most_waiting {
                return Entry::Full;
            }
        }
        let (give, line) = oneshot::channel();
        client.waiting.push_back(give);
        Entry::Waits(Line(line))
    }

    /// Returns the waiting request that gets a released permit; `None` if no request waits, and the permit is free.
    fn next(&self, key: u64) -> Option<oneshot::Sender<Place>> {
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
    pub fn count(&self) -> (u64, u64) {
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

impl Drop for Place {
    fn drop(&mut self) {
        let Some(places) = self.places.take() else {
            return;
        };
        // The lock is not held while the permit is passed on, since the permit may be released at once.
        while let Some(next) = places.next(self.key) {
            let place = Place {
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

impl Future for Line {
    type Output = Place;

    /// Resolves when there is a permit.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Place> {
        match Pin::new(&mut self.0).poll(cx) {
            Poll::Ready(Ok(place)) => Poll::Ready(place),
            // The queue ends with its permits, which every waiting request keeps alive.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(entry: Entry) -> Place {
        match entry {
            Entry::Place(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn line(entry: Entry) -> Line {
        match entry {
            Entry::Waits(line) => line,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_client_has_its_places_and_nothing_stays() {
        let places = Places::new(2, 0);
        let taken = [place(places.enter(1)), place(places.enter(1))];
        assert!(matches!(places.enter(1), Entry::Full));
        let other = place(places.enter(2));
        assert_eq!(places.count(), (3, 0));
        drop(taken);
        drop(place(places.enter(1)));
        drop(other);
        assert_eq!(places.count(), (0, 0));
        assert!(
            places
                .parts
                .iter()
                .all(|part| part.lock().unwrap().is_empty())
        );
    }

    #[tokio::test]
    async fn requests_wait_in_order_and_whoever_has_left_is_passed_over() {
        let places = Places::new(1, 3);
        let first = place(places.enter(1));
        let [second, third, fourth] = std::array::from_fn(|_| line(places.enter(1)));
        assert!(matches!(places.enter(1), Entry::Full));
        drop(second);
        let fifth = line(places.enter(1));
        assert_eq!(places.count(), (1, 3));
        drop(first);
        let third = third.await;
        // A request that disconnects before it notices its permit passes the permit on.
        drop(third);
        drop(fourth);
        let fifth = fifth.await;
        assert_eq!(places.count(), (1, 0));
        drop(fifth);
        assert_eq!(places.count(), (0, 0));
    }
}
