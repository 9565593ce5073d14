//! When the requests of an open loop are due, without a clock or I/O. The times depend neither on responses
//! nor on the generator: a generator that is late sends late, and reports the lag.

use crate::plan::Spacing;
use crate::plan::template::XorshiftRandom;
use crate::replay::ReplayedRequest;
use crate::replay::reader::LogArrivals;

/// Where the requests of an open loop come from.
#[derive(Debug)]
pub enum ArrivalSource {
    /// They are due at a rate.
    Rate(DueTimes),
    /// They are due as in a log.
    Log(LogArrivals),
}

/// A request that is due.
#[derive(Debug)]
pub struct Arrival {
    /// In nanoseconds of the run.
    pub due: u64,
    /// Whether it belongs to the measured part.
    pub measured: bool,
    /// What to request, if it comes from a log.
    pub replayed: Option<Box<ReplayedRequest>>,
}

impl ArrivalSource {
    /// Returns when the next request is due. `None` if there are no more, or the next one is not known yet.
    pub fn peek(&self) -> Option<u64> {
        match self {
            ArrivalSource::Rate(times) => times.peek(),
            ArrivalSource::Log(log) => log.peek(),
        }
    }

    /// Returns whether there are no more requests.
    pub fn has_ended(&self) -> bool {
        match self {
            ArrivalSource::Rate(times) => times.peek().is_none(),
            ArrivalSource::Log(log) => log.has_ended(),
        }
    }

    /// Takes the next request if it is due. The measured part begins at `measured_from`.
    pub fn take_due(&mut self, now: u64, measured_from: u64) -> Option<Arrival> {
        if let ArrivalSource::Log(log) = self {
            log.fill();
        }
        let due = self.peek().filter(|due| *due <= now)?;
        let measured = due >= measured_from;
        let replayed = match self {
            ArrivalSource::Rate(times) => {
                times.take(measured);
                None
            }
            ArrivalSource::Log(log) => log.take().map(|arrival| arrival.request),
        };
        Some(Arrival {
            due,
            measured,
            replayed,
        })
    }
}

/// The due times of one thread, in nanoseconds of the run.
#[derive(Debug)]
pub struct DueTimes {
    start: f64,
    /// The mean number of nanoseconds between two arrivals of this thread.
    gap: f64,
    spacing: Spacing,
    random: XorshiftRandom,
    /// Constant arrivals: how many have been taken. Unused for Poisson arrivals.
    taken: u64,
    next: f64,
    left: Option<u64>,
}

impl DueTimes {
    /// Creates the share of thread `index` of `threads`. Independent Poisson streams add up to a Poisson stream, and
    /// constant streams are offset against each other so that the whole is evenly spaced.
    pub fn new(
        rate: f64,
        spacing: Spacing,
        (index, threads): (usize, usize),
        requests: Option<u64>,
        mut random: XorshiftRandom,
    ) -> DueTimes {
        let gap = 1e9 / rate * threads as f64;
        let start = match spacing {
            Spacing::Constant => 1e9 / rate * index as f64,
            Spacing::Poisson => exponential(&mut random) * gap,
        };
        let (index, threads) = (index as u64, threads as u64);
        DueTimes {
            start,
            gap,
            spacing,
            random,
            taken: 0,
            next: start,
            // The shares of the threads add up to `requests`.
            left: requests.map(|n| n / threads + u64::from(index < n % threads)),
        }
    }

    /// Returns when the next request is due. `None` if there are no more.
    pub fn peek(&self) -> Option<u64> {
        (self.left != Some(0)).then_some(self.next as u64)
    }

    /// Takes the next arrival. `counts` is false for a request of the warm-up, which does not count towards the number
    /// of requests.
    pub fn take(&mut self, counts: bool) -> Option<u64> {
        let due = self.peek()?;
        if let (Some(left), true) = (&mut self.left, counts) {
            *left -= 1;
        }
        self.taken += 1;
        self.next = match self.spacing {
            // The time is computed by multiplication, because repeated addition would drift.
            Spacing::Constant => self.start + self.taken as f64 * self.gap,
            Spacing::Poisson => self.next + exponential(&mut self.random) * self.gap,
        };
        Some(due)
    }
}

/// Returns a random number from the exponential distribution with mean 1.
fn exponential(random: &mut XorshiftRandom) -> f64 {
    -(1.0 - random.next_fraction()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rate: f64, spacing: Spacing, threads: usize, requests: u64) -> Vec<u64> {
        let mut all = Vec::new();
        for index in 0..threads {
            let random = XorshiftRandom::new(42, index as u64);
            let share = (index, threads);
            let mut due = DueTimes::new(rate, spacing, share, Some(requests), random);
            while let Some(at) = due.take(true) {
                all.push(at);
            }
        }
        all.sort_unstable();
        all
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_over_all_threads() {
        for threads in [1, 2, 3] {
            let times = times(1000.0, Spacing::Constant, threads, 10);
            let expected: Vec<u64> = (0..10).map(|n| n * 1_000_000).collect();
            assert_eq!(times, expected, "{threads} threads");
        }
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let times = times(3.0, Spacing::Constant, 1, 3_000_001);
        assert!(times.last().unwrap().abs_diff(1_000_000_000_000_000) <= 1);
    }

    #[test]
    fn poisson_arrivals_have_the_mean_and_the_spread_of_an_exponential() {
        let times = times(1000.0, Spacing::Poisson, 2, 100_000);
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|w| (w[1] - w[0]) as f64 / 1e6)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "mean {mean} ms");
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.03,
            "sd {}",
            variance.sqrt()
        );
    }

    #[test]
    fn request_shares_of_threads_add_up() {
        assert_eq!(times(10.0, Spacing::Poisson, 4, 11).len(), 11);
        assert_eq!(times(10.0, Spacing::Poisson, 4, 3).len(), 3);
    }
}
