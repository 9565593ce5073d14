//! The last hour of the server, as samples of its counters: what the dashboard shows of the time before it was opened.
//! The samples are kept in memory. They survive reloads, and they are lost when the process exits.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::counters::{CounterSums, LATENCY_BUCKETS_SECONDS};
use super::jobs::unix_seconds;

/// The time between two samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// The number of samples that are kept: those of an hour.
const MAX_SAMPLES: usize = 360;

/// The server's counters at the moment of a sample.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The counters of requests.
    pub sums: CounterSums,
    /// Requests that wait for PHP in all pools.
    pub queue: u64,
    /// The number of open connections.
    pub connections: u64,
}

/// The samples of the last hour. Each column has one value for each sample, the oldest first; a count is the number of
/// events since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryStatus {
    /// When each sample was taken, in seconds since 1970.
    pub at: Vec<u64>,
    /// How many seconds each sample covers.
    pub seconds: Vec<f64>,
    /// The number of finished requests.
    pub requests: Vec<u64>,
    /// Responses with a status from 500 on.
    pub errors: Vec<u64>,
    /// Bytes of response bodies sent.
    pub bytes: Vec<u64>,
    /// Responses from the page cache.
    pub cache_hits: Vec<u64>,
    /// The time in seconds that half of the requests did not exceed; `null` if there were none. The quantiles are
    /// interpolated between the bounds of `durations`.
    pub p50: Vec<Option<f64>>,
    /// The time in seconds that 95 % of the requests did not exceed.
    pub p95: Vec<Option<f64>>,
    /// The time in seconds that 99 % of the requests did not exceed.
    pub p99: Vec<Option<f64>>,
    /// Requests that waited for PHP at the moment of the sample.
    pub queue: Vec<u64>,
    /// Connections that were open at the moment of the sample.
    pub connections: Vec<u64>,
}

/// What happened between two samples.
#[derive(Clone, Debug)]
struct HistoryRow {
    at: u64,
    seconds: f64,
    requests: u64,
    errors: u64,
    bytes: u64,
    cache_hits: u64,
    quantiles: [Option<f64>; 3],
    queue: u64,
    connections: u64,
}

/// The samples so far, and the counters at the last one.
#[derive(Debug)]
pub struct History {
    rows: VecDeque<HistoryRow>,
    last: Sample,
    last_taken: Instant,
}

fn errors(sums: &CounterSums) -> u64 {
    let errors = sums.statuses.iter().filter(|(status, _)| *status >= 500);
    errors.map(|(_, n)| n).sum()
}

impl History {
    /// Returns a history that begins at `now`, when all counters are zero.
    pub fn new(now: Instant) -> History {
        History {
            rows: VecDeque::new(),
            last: Sample::default(),
            last_taken: now,
        }
    }

    /// Adds a sample. The oldest one is dropped if there are enough for an hour.
    pub fn take(&mut self, now: Instant, wall: SystemTime, sample: Sample) {
        let last = &self.last;
        let buckets: Vec<u64> = match last.sums.buckets.is_empty() {
            true => sample.sums.buckets.clone(),
            false => {
                let both = sample.sums.buckets.iter().zip(&last.sums.buckets);
                both.map(|(now, then)| now.saturating_sub(*then)).collect()
            }
        };
        let row = HistoryRow {
            at: unix_seconds(wall),
            seconds: now.duration_since(self.last_taken).as_secs_f64(),
            requests: sample.sums.finished.saturating_sub(last.sums.finished),
            errors: errors(&sample.sums).saturating_sub(errors(&last.sums)),
            bytes: sample.sums.bytes.saturating_sub(last.sums.bytes),
            cache_hits: sample.sums.cache_hits.saturating_sub(last.sums.cache_hits),
            quantiles: [0.5, 0.95, 0.99].map(|share| quantile(&buckets, share)),
            queue: sample.queue,
            connections: sample.connections,
        };
        self.rows.push_back(row);
        if self.rows.len() > MAX_SAMPLES {
            self.rows.pop_front();
        }
        self.last = sample;
        self.last_taken = now;
    }

    /// Returns all samples.
    pub fn status(&self) -> HistoryStatus {
        let mut status = HistoryStatus::default();
        for row in &self.rows {
            status.at.push(row.at);
            status.seconds.push((row.seconds * 1e3).round() / 1e3);
            status.requests.push(row.requests);
            status.errors.push(row.errors);
            status.bytes.push(row.bytes);
            status.cache_hits.push(row.cache_hits);
            let [p50, p95, p99] = row.quantiles;
            status.p50.push(p50);
            status.p95.push(p95);
            status.p99.push(p99);
            status.queue.push(row.queue);
            status.connections.push(row.connections);
        }
        status
    }
}

/// Returns the time in seconds that this share of the requests did not exceed, to the microsecond. `buckets` counts
/// them by the bounds of [`LATENCY_BUCKETS_SECONDS`]. Within a bucket, requests are assumed to be spread evenly. For a
/// request that exceeds the last bound, the result is that bound.
fn quantile(buckets: &[u64], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    if all == 0 {
        return None;
    }
    let wanted = share * all as f64;
    let (mut passed, mut low) = (0.0, 0.0);
    for (bound, n) in LATENCY_BUCKETS_SECONDS.iter().zip(buckets) {
        let n = *n as f64;
        if n > 0.0 && passed + n >= wanted {
            let seconds = low + (wanted - passed) / n * (bound - low);
            return Some((seconds * 1e6).round() / 1e6);
        }
        passed += n;
        low = *bound;
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(finished: u64, failed: u64, slow: u64) -> Sample {
        let mut buckets = vec![0; LATENCY_BUCKETS_SECONDS.len() + 1];
        // The buckets up to 0.5 ms and from 1 to 5 s.
        buckets[0] = finished - slow;
        buckets[10] = slow;
        Sample {
            sums: CounterSums {
                finished,
                bytes: finished * 100,
                cache_hits: finished / 2,
                buckets,
                statuses: vec![(200, finished - failed), (503, failed)],
                ..CounterSums::default()
            },
            queue: slow,
            connections: 3,
        }
    }

    #[test]
    fn history_has_what_happened_between_two_samples() {
        let began = Instant::now();
        let mut history = History::new(began);
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let after = |n: u32| (began + SAMPLE_INTERVAL * n, wall + SAMPLE_INTERVAL * n);
        for (n, sample) in [
            (1, sample(100, 0, 0)),
            (2, sample(300, 20, 40)),
            (3, sample(300, 20, 40)),
        ] {
            let (now, wall) = after(n);
            history.take(now, wall, sample);
        }
        let status = history.status();
        assert_eq!(status.at, [1_010, 1_020, 1_030]);
        assert_eq!(status.seconds, [10.0; 3]);
        assert_eq!(status.requests, [100, 200, 0]);
        assert_eq!(status.errors, [0, 20, 0]);
        assert_eq!(status.bytes, [10_000, 20_000, 0]);
        assert_eq!(status.cache_hits, [50, 100, 0]);
        assert_eq!(status.queue, [0, 40, 40]);
        assert_eq!(status.p50, [Some(0.00025), Some(0.000313), None]);
        // Of 200 requests, 160 are fast; the 190th is the thirtieth of the 40 slow ones.
        assert_eq!(status.p95, [Some(0.000475), Some(4.0), None]);
    }

    #[test]
    fn history_keeps_an_hour() {
        let began = Instant::now();
        let mut history = History::new(began);
        for n in 1..=400u32 {
            let now = began + SAMPLE_INTERVAL * n;
            history.take(now, SystemTime::UNIX_EPOCH, sample(u64::from(n), 0, 0));
        }
        let status = history.status();
        assert_eq!(status.requests.len(), MAX_SAMPLES);
        let covered: f64 = status.seconds.iter().sum();
        assert_eq!(covered, 3_600.0);
    }

    #[test]
    fn quantile_beyond_the_last_bound_is_that_bound() {
        let mut buckets = vec![0; LATENCY_BUCKETS_SECONDS.len() + 1];
        *buckets.last_mut().unwrap() = 5;
        assert_eq!(quantile(&buckets, 0.99), Some(30.0));
    }
}
