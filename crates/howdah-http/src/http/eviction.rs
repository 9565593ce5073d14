//! The order in which a thread's connections are closed when there are too many: by how long they have waited for their
//! client, in two queues. This module depends neither on sockets nor on the limit; the caller has the clock.
//!
//! Beginning a request costs nothing here: the connection stays in its queue, marked as busy, until it waits again and
//! moves to the end, or until a search for a connection to close removes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use super::slots::ConnectionSlot;

/// The queue in which a connection waits for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EvictionQueue {
    /// The server waits for something that the client must send: its first request, the rest of a head, or the end of
    /// the connection after a response that closes it.
    Owing = 0,
    /// The client has received its response and may send another request.
    Idle = 1,
}

/// The state that a connection shares with the threads that may close it.
#[derive(Debug, Default)]
pub(super) struct EvictionState {
    /// Whether the connection is handling a request.
    pub(super) busy: AtomicBool,
    /// Whether the connection must close to make room.
    pub(super) evicted: AtomicBool,
}

/// The index that means "no connection".
const NONE: u32 = u32::MAX;

struct QueueNode {
    place: Arc<EvictionState>,
    task: Option<Waker>,
    slot: Option<ConnectionSlot>,
    queue: Option<EvictionQueue>,
    /// The start of the wait in microseconds of the caller's clock.
    since: u64,
    before: u32,
    after: u32,
}

#[derive(Clone, Copy)]
struct QueueEnds {
    first: u32,
    last: u32,
}

/// The slot of a connection that must close, and its task to wake.
pub(super) struct EvictedConnection {
    pub(super) slot: Option<ConnectionSlot>,
    pub(super) task: Option<Waker>,
}

/// The connections of a thread in the order in which they would be closed.
pub(super) struct EvictionQueues {
    nodes: Vec<Option<QueueNode>>,
    free: Vec<u32>,
    queues: [QueueEnds; 2],
}

impl Default for EvictionQueues {
    fn default() -> EvictionQueues {
        let empty = QueueEnds {
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
    /// Adds a connection that waits for its first request since `now`.
    pub(super) fn add(
        &mut self,
        slot: Option<ConnectionSlot>,
        now: u64,
    ) -> (u32, Arc<EvictionState>) {
        let place = Arc::<EvictionState>::default();
        let node = QueueNode {
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
            // There are fewer connections than descriptors, whose numbers have 31 bits.
            (self.nodes.len() - 1) as u32
        });
        self.nodes[at as usize] = Some(node);
        self.push(at, EvictionQueue::Owing, now);
        (at, place)
    }

    /// Sets the connection's task, which is woken when the connection must close.
    pub(super) fn set_task(&mut self, at: u32, task: &Waker) {
        if let Some(node) = self.node(at) {
            node.task = Some(task.clone());
        }
    }

    /// Moves a connection that waits for its client to the end of `queue`.
    pub(super) fn wait(&mut self, at: u32, queue: EvictionQueue, now: u64) {
        self.unlink(at);
        let evicted = |node: &mut QueueNode| node.place.evicted.load(Ordering::Relaxed);
        if !self.node(at).is_none_or(evicted) {
            self.push(at, queue, now);
        }
    }

    /// Removes a connection that has ended, and returns its slot for release.
    pub(super) fn remove(&mut self, at: u32) -> Option<ConnectionSlot> {
        self.unlink(at);
        let node = self.nodes.get_mut(at as usize)?.take()?;
        self.free.push(at);
        if self.free.len() == self.nodes.len() && self.nodes.len() > 1024 {
            // Frees the memory after a flood of connections.
            *self = EvictionQueues::default();
        }
        node.slot
    }

    /// Returns when the first connection in a queue began to wait.
    pub(super) fn waiting_since(&mut self, queue: EvictionQueue) -> Option<u64> {
        self.skip_busy(queue);
        let first = self.queues[queue as usize].first;
        self.node(first).map(|node| node.since)
    }

    /// Marks the first connection in a queue for closing; the caller must wake its task. If `other` is given, the
    /// connection gets it in exchange for its own slot, which is returned.
    pub(super) fn evict(
        &mut self,
        queue: EvictionQueue,
        other: Option<ConnectionSlot>,
    ) -> Option<EvictedConnection> {
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
        Some(EvictedConnection { slot, task })
    }

    /// Returns the tasks of all connections.
    pub(super) fn tasks(&self) -> Vec<Waker> {
        let nodes = self.nodes.iter().flatten();
        nodes.filter_map(|node| node.task.clone()).collect()
    }

    fn node(&mut self, at: u32) -> Option<&mut QueueNode> {
        self.nodes.get_mut(at as usize)?.as_mut()
    }

    /// Removes the connections at the front of a queue that are handling a request. They are queued again when they
    /// wait.
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

    fn is_evicted(place: &EvictionState) -> bool {
        place.evicted.load(Ordering::Relaxed)
    }

    #[test]
    fn eviction_takes_the_longest_waiting_and_skips_busy() {
        let mut waiting = EvictionQueues::default();
        let all: Vec<_> = (0..4).map(|now| waiting.add(None, now)).collect();
        // The first two send requests: one is answered and waits again, the other one is still being handled.
        waiting.wait(all[0].0, EvictionQueue::Idle, 10);
        all[1].1.busy.store(true, Ordering::Relaxed);
        assert_eq!(waiting.waiting_since(EvictionQueue::Owing), Some(2));
        assert_eq!(waiting.waiting_since(EvictionQueue::Idle), Some(10));
        waiting.wait(all[2].0, EvictionQueue::Owing, 11);
        assert!(waiting.evict(EvictionQueue::Owing, None).is_some());
        assert!(is_evicted(&all[3].1));
        assert_eq!(waiting.waiting_since(EvictionQueue::Owing), Some(11));
        assert!(waiting.evict(EvictionQueue::Owing, None).is_some());
        assert!(
            waiting.evict(EvictionQueue::Owing, None).is_none(),
            "the busy one is left"
        );
        assert!(!is_evicted(&all[1].1) && !is_evicted(&all[0].1));
        assert!(waiting.evict(EvictionQueue::Idle, None).is_some());
        assert!(is_evicted(&all[0].1));
        // A connection that is no longer busy is found again.
        all[1].1.busy.store(false, Ordering::Relaxed);
        waiting.wait(all[1].0, EvictionQueue::Idle, 12);
        assert_eq!(waiting.waiting_since(EvictionQueue::Idle), Some(12));
        for (at, _) in all {
            waiting.remove(at);
        }
        assert_eq!(waiting.waiting_since(EvictionQueue::Idle), None);
        assert!(waiting.add(None, 20).0 < 4, "places are used again");
    }

    #[test]
    fn eviction_queues_stay_linked_after_any_removal() {
        let mut waiting = EvictionQueues::default();
        for gone in 0..3 {
            let all: Vec<_> = (0..3).map(|now| waiting.add(None, now)).collect();
            waiting.remove(all[gone].0);
            let mut left: Vec<u64> = (0..3).filter(|now| *now != gone as u64).collect();
            while let Some(since) = waiting.waiting_since(EvictionQueue::Owing) {
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
