//! Counters of requests. Each thread counts in a share of its own, so two front threads do not bounce a cache line for
//! every request; a reader adds up the shares.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use howdah_http::tls::NegotiatedTls;

use crate::traffic::counted_status;
use howdah_site::sharded_counter::{SHARES, share_of_this_thread};

/// Statuses from 100 to 599 are counted one by one, all others together.
const FIRST_STATUS: usize = 100;
const STATUS_SLOTS: usize = 501;

/// Upper bounds of the latency buckets in seconds, as OpenMetrics requires them.
pub const LATENCY_BUCKETS_SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0,
];

/// The kinds of TLS handshakes: the protocol, and whether a session was resumed.
const HANDSHAKE_KINDS: [(&str, bool); 4] = [
    ("TLSv1.2", false),
    ("TLSv1.2", true),
    ("TLSv1.3", false),
    ("TLSv1.3", true),
];

/// The counters of one group of threads.
struct CounterShare {
    bytes: AtomicU64,
    cache_hits: AtomicU64,
    microseconds: AtomicU64,
    buckets: [AtomicU64; LATENCY_BUCKETS_SECONDS.len() + 1],
    statuses: [AtomicU64; STATUS_SLOTS],
    started: AtomicU64,
    /// Full and resumed handshakes of each protocol.
    handshakes: [AtomicU64; HANDSHAKE_KINDS.len()],
}

impl CounterShare {
    fn new() -> CounterShare {
        CounterShare {
            bytes: AtomicU64::new(0),
            cache_hits: AtomicU64::new(0),
            microseconds: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            statuses: std::array::from_fn(|_| AtomicU64::new(0)),
            started: AtomicU64::new(0),
            handshakes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

/// The counters of a server since its start.
pub struct RequestCounters {
    shares: Box<[CachePadded<CounterShare>]>,
    failures: Mutex<BTreeMap<&'static str, u64>>,
}

/// The counters, summed over all threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CounterSums {
    /// Requests that a handler has begun.
    pub started: u64,
    /// Requests that were answered or aborted.
    pub finished: u64,
    /// Bytes of response bodies sent.
    pub bytes: u64,
    /// Responses from the page cache.
    pub cache_hits: u64,
    /// The total time of finished requests, in seconds.
    pub seconds: f64,
    /// Finished requests by the bounds of [`LATENCY_BUCKETS_SECONDS`], not cumulative. The last bucket is for all
    /// longer requests.
    pub buckets: Vec<u64>,
    /// Responses by status; 0 is for statuses above 599.
    pub statuses: Vec<(u16, u64)>,
    /// TLS handshakes: protocol, whether a session was resumed, count.
    pub handshakes: Vec<(String, bool, u64)>,
    /// How often each failure has occurred, by name.
    pub failures: Vec<(String, u64)>,
}

impl Default for RequestCounters {
    fn default() -> RequestCounters {
        RequestCounters {
            shares: (0..SHARES)
                .map(|_| CachePadded::new(CounterShare::new()))
                .collect(),
            failures: Mutex::new(BTreeMap::new()),
        }
    }
}

impl RequestCounters {
    fn share_of_thread(&self) -> &CounterShare {
        &self.shares[share_of_this_thread()]
    }

    /// Counts a request that has begun.
    pub fn count_started(&self) {
        self.share_of_thread()
            .started
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a finished request: its status, the bytes of its body, and its time. See
    /// [`counted_status`].
    pub fn count_finished(&self, status: u16, bytes: u64, time: Duration) {
        let share = self.share_of_thread();
        let index = usize::from(counted_status(status))
            .wrapping_sub(FIRST_STATUS)
            .min(STATUS_SLOTS - 1);
        share.statuses[index].fetch_add(1, Ordering::Relaxed);
        share.bytes.fetch_add(bytes, Ordering::Relaxed);
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        share
            .microseconds
            .fetch_add(microseconds, Ordering::Relaxed);
        let seconds = time.as_secs_f64();
        let bucket = LATENCY_BUCKETS_SECONDS
            .iter()
            .position(|b| seconds <= *b)
            .unwrap_or(LATENCY_BUCKETS_SECONDS.len());
        share.buckets[bucket].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response from the page cache.
    pub fn count_cache_hit(&self) {
        self.share_of_thread()
            .cache_hits
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a completed TLS handshake.
    pub fn count_handshake(&self, agreed: &NegotiatedTls) {
        let kind = (agreed.protocol, agreed.resumed);
        if let Some(at) = HANDSHAKE_KINDS.iter().position(|known| *known == kind) {
            self.share_of_thread().handshakes[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a failure of this name.
    pub fn count_failure(&self, name: &'static str) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        *failures.entry(name).or_default() += 1;
    }

    /// Returns the sums of all threads' shares.
    pub fn sums(&self) -> CounterSums {
        let mut sums = CounterSums {
            buckets: vec![0; LATENCY_BUCKETS_SECONDS.len() + 1],
            ..CounterSums::default()
        };
        let mut statuses = vec![0; STATUS_SLOTS];
        let mut microseconds = 0;
        let mut handshakes = [0; HANDSHAKE_KINDS.len()];
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        for share in &self.shares {
            sums.bytes += get(&share.bytes);
            sums.cache_hits += get(&share.cache_hits);
            microseconds += get(&share.microseconds);
            for (sum, n) in sums.buckets.iter_mut().zip(&share.buckets) {
                *sum += get(n);
            }
            for (sum, n) in statuses.iter_mut().zip(&share.statuses) {
                *sum += get(n);
            }
            for (sum, n) in handshakes.iter_mut().zip(&share.handshakes) {
                *sum += get(n);
            }
            // This is read last, so the sums never contain more finished requests than started ones.
            sums.started += get(&share.started);
        }
        sums.handshakes = HANDSHAKE_KINDS
            .iter()
            .zip(handshakes)
            .filter(|(_, n)| *n > 0)
            .map(|((protocol, resumed), n)| ((*protocol).to_owned(), *resumed, n))
            .collect();
        sums.seconds = microseconds as f64 / 1e6;
        sums.finished = statuses.iter().sum();
        for (index, count) in statuses.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            let status = if index == STATUS_SLOTS - 1 {
                0
            } else {
                (index + FIRST_STATUS) as u16
            };
            sums.statuses.push((status, count));
        }
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        sums.failures = failures
            .iter()
            .map(|(name, n)| ((*name).to_owned(), *n))
            .collect();
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_threads_add_up() {
        let counters = RequestCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..100u16 {
                        counters.count_started();
                        let status = [200, 404, 0, 999][usize::from(n % 4)];
                        counters.count_finished(status, 10, Duration::from_millis(2));
                    }
                    counters.count_failure("QueueFull");
                    counters.count_cache_hit();
                });
            }
        });
        counters.count_started();
        let sums = counters.sums();
        assert_eq!((sums.started, sums.finished, sums.bytes), (401, 400, 4000));
        assert_eq!(sums.cache_hits, 4);
        assert_eq!(
            sums.statuses,
            [(200, 100), (404, 100), (499, 100), (0, 100)]
        );
        assert_eq!(sums.failures, [("QueueFull".to_owned(), 4)]);
        assert_eq!((sums.buckets[2], sums.buckets.iter().sum()), (400, 400u64));
        assert!((sums.seconds - 0.8).abs() < 1e-9);
    }
}
