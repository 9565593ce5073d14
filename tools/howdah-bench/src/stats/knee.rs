//! Finds where a sweep over concurrency bends: the fewest clients that get nearly all the available throughput, and the
//! fewest with which it falls off again. More clients than the first number only measure a queue.

use super::median;

/// A throughput within this share of the best counts as nearly all of it.
const SATURATION_TOLERANCE: f64 = 0.03;

/// One measurement of a level of a sweep. Repetitions of a level are separate measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredLevel {
    /// The number of clients.
    pub concurrency: u32,
    /// Good responses per second.
    pub good_rate: f64,
}

/// The levels at which a sweep bends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knee {
    /// The fewest clients with nearly all (97 %) of the best good throughput; with more clients, each only waits
    /// longer. `None` if this is the highest level measured, where the throughput still rose.
    pub saturated_at: Option<u32>,
    /// The fewest clients above `saturated_at` from which on throughput is below nine tenths of the best; `None` if it
    /// does not fall.
    pub falls_off_at: Option<u32>,
}

/// Returns the knees of a sweep, by the medians of its levels; `None` for fewer than three levels.
pub fn find(levels: &[MeasuredLevel]) -> Option<Knee> {
    let mut names: Vec<u32> = levels.iter().map(|l| l.concurrency).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 3 {
        return None;
    }
    let middle = |concurrency: &u32| {
        let values: Vec<f64> = levels
            .iter()
            .filter(|l| l.concurrency == *concurrency)
            .map(|l| l.good_rate)
            .collect();
        median(&values)
    };
    let rates: Vec<f64> = names.iter().map(middle).collect();
    let best = rates.iter().copied().fold(0.0, f64::max);
    let saturated = rates
        .iter()
        .position(|r| *r >= best * (1.0 - SATURATION_TOLERANCE))?;
    let falls = (saturated..names.len()).find(|i| rates[*i..].iter().all(|r| *r < best * 0.9));
    Some(Knee {
        saturated_at: (saturated + 1 < names.len()).then(|| names[saturated]),
        falls_off_at: falls.map(|i| names[i]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(rates: &[(u32, f64)]) -> Vec<MeasuredLevel> {
        rates
            .iter()
            .map(|(concurrency, good_rate)| MeasuredLevel {
                concurrency: *concurrency,
                good_rate: *good_rate,
            })
            .collect()
    }

    /// The figures of a published comparison of mod_php and php-fpm, 100 children each.
    #[test]
    fn knee_of_mod_php_and_php_fpm() {
        let levels = [10, 30, 50, 100, 150, 200, 250, 300, 400, 500];
        let mod_php = [
            97.26, 100.61, 100.37, 99.46, 97.76, 99.36, 98.64, 98.46, 71.24, 71.11,
        ];
        let fpm = [
            98.14, 100.41, 99.71, 100.20, 100.62, 100.63, 100.04, 99.92, 100.71, 100.67,
        ];
        let of = |rates: [f64; 10]| {
            let pairs: Vec<_> = levels.into_iter().zip(rates).collect();
            find(&sweep(&pairs)).unwrap()
        };
        assert_eq!(of(mod_php).falls_off_at, Some(400));
        assert_eq!(of(fpm).falls_off_at, None);
        assert_eq!(of(fpm).saturated_at, Some(10));
    }

    #[test]
    fn knee_of_eight_processes_is_at_eight_clients() {
        let pairs = [
            (1, 100.0),
            (2, 200.0),
            (4, 400.0),
            (8, 790.0),
            (16, 800.0),
            (32, 800.0),
        ];
        let knee = find(&sweep(&pairs)).unwrap();
        assert_eq!((knee.saturated_at, knee.falls_off_at), (Some(8), None));
    }

    #[test]
    fn knee_is_absent_while_throughput_rises() {
        let knee = find(&sweep(&[(1, 348.0), (5, 1764.0), (10, 2942.0)])).unwrap();
        assert_eq!(knee.saturated_at, None);
    }

    #[test]
    fn knee_needs_three_levels() {
        assert_eq!(find(&sweep(&[(1, 1.0), (2, 2.0)])), None);
    }
}
