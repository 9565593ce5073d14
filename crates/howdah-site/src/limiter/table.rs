//! The state of clients in bounded memory, however many addresses there are. A client may be in one of eight slots.
//! When all eight are taken, a client whose requests no longer count is replaced, or else the client whose requests
//! will stop counting first: a flood of addresses replaces its own entries, and a client that has used up its limit
//! stays.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::rate::Rate;
use super::{LimitPart, Limited};

/// The maximum number of clients: 24 bytes each, 6 MiB.
pub(super) const MAX_CLIENTS: usize = 1 << 18;
/// The number of slots that a client may be in.
const SLOTS_PER_SET: usize = 8;
/// The number of parts with a lock of their own, so front threads seldom contend.
const PARTS: usize = 64;
/// The minimum time between two log entries about a client, in nanoseconds.
const LOG_INTERVAL_NANOS: u64 = 60_000_000_000;

/// The state of a client under a limit. Times are nanoseconds since the table was made.
#[derive(Clone, Copy, Debug, Default)]
struct ClientSlot {
    key: u64,
    /// The time from which the client's requests no longer count.
    clear_at: u64,
    /// The time until which there is no further log entry about the client.
    no_log_until: u64,
}

/// The state of all clients of all limits.
#[derive(Debug)]
pub(super) struct ClientTable {
    /// Each part is empty until it is needed, since most servers have no limit.
    parts: Box<[CachePadded<Mutex<Vec<ClientSlot>>>]>,
    /// The number of slots of each part.
    slots_per_part: usize,
    forgotten: AtomicU64,
}

impl ClientTable {
    /// Returns a table with this many slots, rounded up to whole sets of all parts.
    pub fn new(capacity: usize) -> ClientTable {
        ClientTable {
            parts: (0..PARTS).map(|_| CachePadded::default()).collect(),
            slots_per_part: capacity.div_ceil(PARTS * SLOTS_PER_SET).max(1) * SLOTS_PER_SET,
            forgotten: AtomicU64::new(0),
        }
    }

    /// Counts a request of a client, unless it exceeds the rate.
    pub fn count(&self, key: u64, rate: &Rate, now: u64) -> Result<(), Limited> {
        let mut part = self.part(key);
        let known = self.find_or_replace(&mut part, key, now);
        match rate.pass(known.clear_at, now) {
            Ok(clear_at) => {
                known.clear_at = clear_at;
                Ok(())
            }
            Err(wait) => Err(Limited {
                over: LimitPart::Rate,
                wait: Duration::from_nanos(wait),
                should_log: known.should_log(now),
            }),
        }
    }

    /// Reverts the count of a client's request.
    pub fn revert_count(&self, key: u64, rate: &Rate) {
        let mut part = self.part(key);
        if let Some(known) = self
            .set(&mut part, key)
            .iter_mut()
            .find(|known| known.key == key)
        {
            known.clear_at = rate.revert(known.clear_at);
        }
    }

    /// Returns whether a client should be logged now. The client is remembered if that replaces no client whose
    /// requests still count.
    pub fn should_log(&self, key: u64, now: u64) -> bool {
        let mut part = self.part(key);
        let set = self.set(&mut part, key);
        if set
            .iter()
            .all(|known| known.key != key && known.clear_at > now)
        {
            return true;
        }
        self.find_or_replace(&mut part, key, now).should_log(now)
    }

    /// Returns how many clients were replaced while their requests still counted.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    fn part(&self, key: u64) -> MutexGuard<'_, Vec<ClientSlot>> {
        let part = &self.parts[(key >> 32) as usize % PARTS];
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        if part.is_empty() {
            part.resize(self.slots_per_part, ClientSlot::default());
        }
        part
    }

    /// Returns the slots that a client may be in.
    fn set<'p>(&self, part: &'p mut [ClientSlot], key: u64) -> &'p mut [ClientSlot] {
        let first = key as u32 as usize % (self.slots_per_part / SLOTS_PER_SET) * SLOTS_PER_SET;
        &mut part[first..first + SLOTS_PER_SET]
    }

    fn find_or_replace<'p>(
        &self,
        part: &'p mut [ClientSlot],
        key: u64,
        now: u64,
    ) -> &'p mut ClientSlot {
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
        set[at] = ClientSlot {
            key,
            clear_at,
            no_log_until: quiet_until,
        };
        &mut set[at]
    }
}

impl ClientSlot {
    /// Returns whether the client should be logged now; if so, it will not be logged again for a while.
    fn should_log(&mut self, now: u64) -> bool {
        let is_news = now >= self.no_log_until;
        if is_news {
            self.no_log_until = now + LOG_INTERVAL_NANOS;
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, RandomState};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bytes(table: &ClientTable) -> usize {
        let part = |part: &CachePadded<Mutex<Vec<ClientSlot>>>| {
            part.lock().unwrap().capacity() * size_of::<ClientSlot>() + size_of_val(part)
        };
        table.parts.iter().map(part).sum()
    }

    #[test]
    fn client_table_is_bounded_and_keeps_clients_over_their_limit() {
        let (table, keys) = (ClientTable::new(MAX_CLIENTS), RandomState::new());
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
            // A new client passes, whichever client it replaces.
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
            bytes(&table) <= 24 * MAX_CLIENTS + (16 << 10),
            "{}",
            bytes(&table)
        );
    }

    #[test]
    fn client_table_replaces_clear_clients_first_then_the_one_clear_soonest() {
        // Each part has one set: keys that differ only above the 38th bit share it.
        let table = ClientTable::new(1);
        let key = |n: u64| n << 40;
        let rate = "1/s".parse::<Rate>().unwrap().with_burst(9);
        for n in 1..=8 {
            for _ in 0..n {
                table.count(key(n), &rate, SECOND).unwrap();
            }
        }
        // The requests of client 1 no longer count after two seconds, those of client 2 after three.
        table.count(key(9), &rate, 2 * SECOND).unwrap();
        assert_eq!(table.forgotten(), 0);
        table.count(key(10), &rate, 2 * SECOND).unwrap();
        assert_eq!(table.forgotten(), 1);
        // Eight requests of client 8 are remembered: two more pass at once, and one for the second that has passed.
        let passed = (0..9).filter(|_| table.count(key(8), &rate, 2 * SECOND).is_ok());
        assert_eq!(passed.count(), 3);
    }

    #[test]
    fn client_table_logs_a_client_once_a_minute() {
        let table = ClientTable::new(MAX_CLIENTS);
        let rate = "1/s".parse::<Rate>().unwrap();
        let mut heard = Vec::new();
        for now in (0..150).map(|n| SECOND + n * SECOND / 2) {
            if table
                .count(7, &rate, now)
                .is_err_and(|limited| limited.should_log)
            {
                heard.push(now / SECOND);
            }
        }
        assert_eq!(heard, [1, 61]);
    }
}
