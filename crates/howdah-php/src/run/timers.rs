//! The timers of one process of a script (`Swoole\Timer::tick`, `after`). This module has no clock: callers pass the
//! time in milliseconds of any steady clock. The shim calls the script's functions.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The timers of a process, ordered by due time.
#[derive(Debug, Default)]
pub struct Timers {
    /// (due, id): timers with the same due time run in the order in which they were created.
    heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// The active timers, with the interval of repeating ones.
    active: HashMap<u64, Option<u64>>,
    last_id: u64,
    /// When the first timer was created (ms); `None` before.
    started_at: Option<u64>,
}

impl Timers {
    /// Adds a timer that is due in `after` ms, and then every `after` ms if it repeats. Returns its id, which counts
    /// from 1.
    pub fn add(&mut self, now: u64, after: u64, repeats: bool) -> u64 {
        self.started_at.get_or_insert(now);
        self.last_id += 1;
        self.active.insert(self.last_id, repeats.then_some(after));
        self.heap.push(Reverse((now + after, self.last_id)));
        self.last_id
    }

    /// Returns when a timer is due, in ms since the first timer was created.
    pub fn due_at(&self, id: u64) -> Option<u64> {
        let mut all = self.heap.iter();
        let Reverse((due, _)) = all.find(|Reverse((_, i))| *i == id)?;
        Some(due.saturating_sub(self.started_at?))
    }

    /// Removes a timer. Returns `false` when there is none with that id.
    pub fn remove(&mut self, id: u64) -> bool {
        let known = self.active.remove(&id).is_some();
        // The timer's heap entry is dropped when it would be due. If there are many such entries, they are dropped now.
        if self.heap.len() > 64 && self.heap.len() > 2 * self.active.len() {
            self.heap
                .retain(|Reverse((_, id))| self.active.contains_key(id));
        }
        known
    }

    /// Returns the next timer that is due, and whether it repeats. A repeating timer is set again from `now` on and
    /// does not make up for missed times, so a script that was busy for long is not called in a burst.
    pub fn take_due(&mut self, now: u64) -> Option<(u64, bool)> {
        while let Some(Reverse((due, id))) = self.heap.peek().copied() {
            let repeats = match self.active.get(&id) {
                None => {
                    self.heap.pop();
                    continue;
                }
                Some(_) if due > now => return None,
                Some(repeats) => *repeats,
            };
            self.heap.pop();
            match repeats {
                Some(interval) => {
                    let next = (due + interval).max(now + 1);
                    self.heap.push(Reverse((next, id)));
                }
                None => {
                    self.active.remove(&id);
                }
            }
            return Some((id, repeats.is_some()));
        }
        None
    }

    /// Returns the milliseconds until a timer may be due.
    pub fn until_next(&self, now: u64) -> Option<u64> {
        let Reverse((due, _)) = self.heap.peek()?;
        Some(due.saturating_sub(now))
    }

    /// Removes all timers: a forked worker has none of its parent's.
    pub fn clear_all(&mut self) {
        self.heap.clear();
        self.active.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order() {
        let mut timers = Timers::default();
        let late = timers.add(0, 20, false);
        let soon = timers.add(0, 10, false);
        assert_eq!(timers.until_next(0), Some(10));
        assert_eq!(timers.take_due(9), None);
        assert_eq!(timers.take_due(25), Some((soon, false)));
        assert_eq!(timers.take_due(25), Some((late, false)));
        assert_eq!((timers.take_due(25), timers.until_next(25)), (None, None));
    }

    #[test]
    fn repeating_timer_does_not_fire_in_a_burst() {
        let mut timers = Timers::default();
        let id = timers.add(0, 10, true);
        assert_eq!(timers.take_due(10), Some((id, true)));
        assert_eq!(timers.take_due(19), None);
        // Ten ticks were missed.
        assert_eq!(timers.take_due(120), Some((id, true)));
        assert_eq!(timers.take_due(120), None);
        assert!(timers.remove(id));
        assert!(!timers.remove(id));
        assert_eq!(timers.take_due(500), None);
    }

    #[test]
    fn removed_timers_do_not_pile_up() {
        let mut timers = Timers::default();
        for _ in 0..10_000 {
            let id = timers.add(0, 1_000_000, false);
            assert!(timers.remove(id));
        }
        assert!(timers.heap.len() < 100);
    }
}
