//! A thread's connections in the order in which they are closed when there are too many: by how long
//! they have waited for their client, in two queues. Knows no socket and no limit; the caller has the
//! clock.
//!
//! To begin a request costs a connection nothing here: it stays in its queue, marked as busy, until it
//! waits again and goes to the end, or until whoever looks for a connection to close takes it out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::slots::Slot;

/// The queue in which a connection waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionQueue {
    /// The client owes the server something: its first request, the rest of a head, or its end after
    /// an answer that closes the connection.
    Owing = 0,
    /// The client has been answered and may ask again.
    Idle = 1,
}

/// The state that a connection shares with the threads that may close it.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Whether the connection is answering a request.
    pub(super) busy: AtomicBool,
    /// Whether the connection is to close, to make room.
    pub(super) evicted: AtomicBool,
}

/// The index that stands for no connection.
const NONE: u32 = u32::MAX;

struct Node {
    place: Arc<Place>,
    task: Option<Waker>,
    slot: Option<Slot>,
    queue: Option<EvictionQueue>,
    /// Microseconds of the caller's clock.
    since: u64,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

/// What the caller gets of a connection that is to close: its slot, and the task to wake.
pub(super) struct Evicted {
    pub(super) slot: Option<Slot>,
    pub(super) task: Option<Waker>,
}

/// The connections of a thread in the order in which they would be closed.
pub(super) struct EvictionQueues {
    nodes: Vec<Option<Node>>,
    free: Vec<u32>,
    queues: [Ends; 2],
}

impl Default for EvictionQueues {
    fn default() -> EvictionQueues {
        let empty = Ends {
            first: NONE,
            last: NONE,
        };
        EvictionQueues {
            nodes: Vec::new(),
            free: Vec::new(),
            queues: [empty; 2],
        }
    }
}

impl EvictionQueues {
    /// A connection that owes its first request since `now`.
    pub(super) fn add(&mut self, slot: Option<Slot>, now: u64) -> (u32, Arc<Place>) {
        let place = Arc::<Place>::default();
        let node = Node {
            place: place.clone(),
            task: None,
            slot,
            queue: None,
            since: now,
            before: NONE,
            after: NONE,
        };
        let at = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            // Connections are fewer than descriptors, which are numbered by 31 bits.
            (self.nodes.len() - 1) as u32
        });
        self.nodes[at as usize] = Some(node);
        self.push(at, EvictionQueue::Owing, now);
        (at, place)
    }

    /// The connection's task, to be woken when it is to close.
    pub(super) fn set_task(&mut self, at: u32, task: &Waker) {
        if let Some(node) = self.node(at) {
            node.task = Some(task.clone());
        }
    }

    /// The connection waits for its client, last in `queue`.
    pub(super) fn wait(&mut self, at: u32, queue: EvictionQueue, now: u64) {
        self.unlink(at);
        let evicted = |node: &mut Node| node.place.evicted.load(Ordering::Relaxed);
        if !self.node(at).is_none_or(evicted) {
            self.push(at, queue, now);
        }
    }

    /// The connection has ended; its slot, to be given back.
    pub(super) fn remove(&mut self, at: u32) -> Option<Slot> {
        self.unlink(at);
        let node = self.nodes.get_mut(at as usize)?.take()?;
        self.free.push(at);
        if self.free.len() == self.nodes.len() && self.nodes.len() > 1024 {
            // After a flood of connections: give the memory back.
            *self = EvictionQueues::default();
        }
        node.slot
    }

    /// Since when the first in a queue has waited.
    pub(super) fn oldest(&mut self, queue: EvictionQueue) -> Option<u64> {
        self.skip_busy(queue);
        let first = self.queues[queue as usize].first;
        self.node(first).map(|node| node.since)
    }

    /// Has the first in a queue close: its task is to be woken. The slot it gives up for `other`, if one
    /// is given, is the caller's.
    pub(super) fn evict(&mut self, queue: EvictionQueue, other: Option<Slot>) -> Option<Evicted> {
        self.skip_busy(queue);
        let first = self.queues[queue as usize].first;
        self.unlink(first);
        let node = self.node(first)?;
        node.place.evicted.store(true, Ordering::Relaxed);
        let slot = match other {
            Some(other) => node.slot.replace(other),
            None => None,
        };
        let task = node.task.clone();
        Some(Evicted { slot, task })
    }

    /// The tasks of all connections.
    pub(super) fn tasks(&self) -> Vec<Waker> {
        let nodes = self.nodes.iter().flatten();
        nodes.filter_map(|node| node.task.clone()).collect()
    }

    fn node(&mut self, at: u32) -> Option<&mut Node> {
        self.nodes.get_mut(at as usize)?.as_mut()
    }

    /// Takes out those at a queue's front that answer a request: they wait again later.
    fn skip_busy(&mut self, queue: EvictionQueue) {
        loop {
            let first = self.queues[queue as usize].first;
            match self.node(first) {
                Some(node) if node.place.busy.load(Ordering::Relaxed) => self.unlink(first),
                _ => return,
            }
        }
    }

    fn push(&mut self, at: u32, queue: EvictionQueue, now: u64) {
        let last = self.queues[queue as usize].last;
        let Some(node) = self.node(at) else { return };
        (node.queue, node.since) = (Some(queue), now);
        (node.before, node.after) = (last, NONE);
        match self.node(last) {
            Some(last) => last.after = at,
            None => self.queues[queue as usize].first = at,
        }
        self.queues[queue as usize].last = at;
    }

    fn unlink(&mut self, at: u32) {
        let Some(node) = self.node(at) else { return };
        let Some(queue) = node.queue.take() else {
            return;
        };
        let (before, after) = (node.before, node.after);
        match self.node(before) {
            Some(before) => before.after = after,
            None => self.queues[queue as usize].first = after,
        }
        match self.node(after) {
            Some(after) => after.before = before,
            None => self.queues[queue as usize].last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(place: &Place) -> bool {
        place.evicted.load(Ordering::Relaxed)
    }

    #[test]
    fn who_has_waited_longest_goes_first_and_who_is_busy_stays() {
        let mut waiting = EvictionQueues::default();
        let all: Vec<_> = (0..4).map(|now| waiting.add(None, now)).collect();
        // The first two ask; one is answered and waits again, the other is being answered.
        waiting.wait(all[0].0, EvictionQueue::Idle, 10);
        all[1].1.busy.store(true, Ordering::Relaxed);
        assert_eq!(waiting.oldest(EvictionQueue::Owing), Some(2));
        assert_eq!(waiting.oldest(EvictionQueue::Idle), Some(10));
        waiting.wait(all[2].0, EvictionQueue::Owing, 11);
        assert!(waiting.evict(EvictionQueue::Owing, None).is_some());
        assert!(is_evicted(&all[3].1));
        assert_eq!(waiting.oldest(EvictionQueue::Owing), Some(11));
        assert!(waiting.evict(EvictionQueue::Owing, None).is_some());
        assert!(
            waiting.evict(EvictionQueue::Owing, None).is_none(),
            "the busy one is left"
        );
        assert!(!is_evicted(&all[1].1) && !is_evicted(&all[0].1));
        assert!(waiting.evict(EvictionQueue::Idle, None).is_some());
        assert!(is_evicted(&all[0].1));
        // Busy no more, it can be found again.
        all[1].1.busy.store(false, Ordering::Relaxed);
        waiting.wait(all[1].0, EvictionQueue::Idle, 12);
        assert_eq!(waiting.oldest(EvictionQueue::Idle), Some(12));
        for (at, _) in all {
            waiting.remove(at);
        }
        assert_eq!(waiting.oldest(EvictionQueue::Idle), None);
        assert!(waiting.add(None, 20).0 < 4, "places are used again");
    }

    #[test]
    fn lines_stay_whole_whoever_leaves() {
        let mut waiting = EvictionQueues::default();
        for gone in 0..3 {
            let all: Vec<_> = (0..3).map(|now| waiting.add(None, now)).collect();
            waiting.remove(all[gone].0);
            let mut left: Vec<u64> = (0..3).filter(|now| *now != gone as u64).collect();
            while let Some(since) = waiting.oldest(EvictionQueue::Owing) {
                assert_eq!(since, left.remove(0));
                waiting.evict(EvictionQueue::Owing, None);
            }
            assert!(left.is_empty(), "{gone}");
            for (at, (number, _)) in all.iter().enumerate() {
                if at != gone {
                    waiting.remove(*number);
                }
            }
        }
    }
}
