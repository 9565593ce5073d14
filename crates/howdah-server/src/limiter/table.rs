//! What is known of clients, in a room that never grows: a million addresses cost what a hundred thousand
//! do. A client has a set of eight places to be in. When all are taken, the one goes against whom nothing
//! counts any more, else the one of whom that will be true first: a flood of addresses pushes out its own,
//! and a client that has used its limit up stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::rate::Rate;
use super::{Limited, Over};

/// Clients that are known at once: 24 bytes each, 6 MiB.
pub(super) const CAPACITY: usize = 1 << 18;
/// Places that a client may be in.
const PLACES: usize = 8;
/// Parts with a lock of their own, so that front threads seldom meet.
const PARTS: usize = 64;
/// How long the log hears nothing more of a client, in nanoseconds.
const QUIET: u64 = 60_000_000_000;

/// A client under a limit. Times are nanoseconds since the table was made.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    key: u64,
    /// From when on nothing counts against it.
    clear_at: u64,
    /// Until when the log needs not hear of it.
    quiet_until: u64,
}

/// All clients of all limits.
#[derive(Debug)]
pub(super) struct Table {
    /// Each is empty until it is needed: most servers have no limit.
    parts: Box<[CachePadded<Mutex<Vec<Known>>>]>,
    /// Places of each part.
    size: usize,
    forgotten: AtomicU64,
}

impl Table {
    /// A table of so many places, rounded up to whole sets of all parts.
    pub fn new(capacity: usize) -> Table {
        Table {
            parts: (0..PARTS).map(|_| CachePadded::default()).collect(),
            size: capacity.div_ceil(PARTS * PLACES).max(1) * PLACES,
            forgotten: AtomicU64::new(0),
        }
    }

    /// Counts a request of a client, unless it is over the rate.
    pub fn count(&self, key: u64, rate: &Rate, now: u64) -> Result<(), Limited> {
        let mut part = self.part(key);
        let known = self.find(&mut part, key, now);
        match rate.pass(known.clear_at, now) {
            Ok(clear_at) => {
                known.clear_at = clear_at;
                Ok(())
            }
            Err(wait) => Err(Limited {
                over: Over::Rate,
                wait: Duration::from_nanos(wait),
                is_news: known.is_news(now),
            }),
        }
    }

    /// Takes a request of a client back.
    pub fn uncount(&self, key: u64, rate: &Rate) {
        let mut part = self.part(key);
        if let Some(known) = self
            .set(&mut part, key)
            .iter_mut()
            .find(|known| known.key == key)
        {
            known.clear_at = rate.back(known.clear_at);
        }
    }

    /// Whether the log is to hear of a client. It is remembered if that costs nobody else a place.
    pub fn hear(&self, key: u64, now: u64) -> bool {
        let mut part = self.part(key);
        let set = self.set(&mut part, key);
        if set
            .iter()
            .all(|known| known.key != key && known.clear_at > now)
        {
            return true;
        }
        self.find(&mut part, key, now).is_news(now)
    }

    /// How many clients had to go while something counted against them.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn part(&self, key: u64) -> MutexGuard<'_, Vec<Known>> {
        let part = &self.parts[(key >> 32) as usize % PARTS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.is_empty() {
            part.resize(self.size, Known::default());
        }
        part
    }

    /// The places that a client may be in.
    fn set<'p>(&self, part: &'p mut [Known], key: u64) -> &'p mut [Known] {
        let first = key as u32 as usize % (self.size / PLACES) * PLACES;
        &mut part[first..first + PLACES]
    }

    fn find<'p>(&self, part: &'p mut [Known], key: u64, now: u64) -> &'p mut Known {
        let set = self.set(part, key);
        if let Some(at) = set.iter().position(|known| known.key == key) {
            return &mut set[at];
        }
        let soonest = set
            .iter()
            .enumerate()
            .min_by_key(|(_, known)| known.clear_at);
        let at = soonest.map_or(0, |(at, _)| at);
        if set[at].clear_at > now {
            self.forgotten.fetch_add(1, Ordering::Relaxed);
        }
        let (clear_at, quiet_until) = (0, 0);
        set[at] = Known {
            key,
            clear_at,
            quiet_until,
        };
        &mut set[at]
    }
}

impl Known {
    /// Whether the log is to hear of it now; then not for a while.
    fn is_news(&mut self, now: u64) -> bool {
        let is_news = now >= self.quiet_until;
        if is_news {
            self.quiet_until = now + QUIET;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bytes(table: &Table) -> usize {
        let part = |part: &CachePadded<Mutex<Vec<Known>>>| {
            part.lock().unwrap().capacity() * size_of::<Known>() + size_of_val(part)
        };
        table.parts.iter().map(part).sum()
    }

    #[test]
    fn a_million_addresses_take_bounded_memory_and_do_not_hide_who_is_over() {
        let (table, keys) = (Table::new(CAPACITY), RandomState::new());
        assert!(
            bytes(&table) < 16 << 10,
            "nothing is taken before the first client"
        );
        let rate = "10/m".parse::<Rate>().unwrap();
        let guesser = |n: u32| keys.hash_one(("guesser", n));
        let now = 1000 * SECOND;
        for n in 0..1000 {
            let passed = (0..50).filter(|_| table.count(guesser(n), &rate, now).is_ok());
            assert_eq!(passed.count(), 10);
        }
        let mut refused = 0;
        for n in 0..1_000_000_u32 {
            // A new client passes, whoever has to go for it.
            assert!(
                table
                    .count(keys.hash_one(n), &rate, now + u64::from(n) * 1000)
                    .is_ok()
            );
            refused += u32::from(table.count(guesser(n % 1000), &rate, now + SECOND).is_err());
        }
        assert_eq!(refused, 1_000_000, "no guesser is forgotten");
        assert!(table.forgotten() > 700_000);
        assert!(
            bytes(&table) <= 24 * CAPACITY + (16 << 10),
            "{}",
            bytes(&table)
        );
    }

    #[test]
    fn who_has_nothing_against_them_goes_first_then_who_is_clear_first() {
        // One set of each part: keys that differ above the 38th bit meet.
        let table = Table::new(1);
        let key = |n: u64| n << 40;
        let rate = "1/s".parse::<Rate>().unwrap().with_burst(9);
        for n in 1..=8 {
            for _ in 0..n {
                table.count(key(n), &rate, SECOND).unwrap();
            }
        }
        // Against 1 nothing counts after two seconds, against 2 after three.
        table.count(key(9), &rate, 2 * SECOND).unwrap();
        assert_eq!(table.forgotten(), 0);
        table.count(key(10), &rate, 2 * SECOND).unwrap();
        assert_eq!(table.forgotten(), 1);
        // Eight requests of the eighth are remembered: two more pass at once, and one for the second.
        let passed = (0..9).filter(|_| table.count(key(8), &rate, 2 * SECOND).is_ok());
        assert_eq!(passed.count(), 3);
    }

    #[test]
    fn the_log_hears_of_a_client_once_a_minute() {
        let table = Table::new(CAPACITY);
        let rate = "1/s".parse::<Rate>().unwrap();
        let mut heard = Vec::new();
        for now in (0..150).map(|n| SECOND + n * SECOND / 2) {
            if table
                .count(7, &rate, now)
                .is_err_and(|limited| limited.is_news)
            {
                heard.push(now / SECOND);
            }
        }
        assert_eq!(heard, [1, 61]);
    }
}
