//! Decides whether the server was steady during the measurement. It classifies a series of windows as Barrett et al. do
//! (*Virtual Machine Warmup Blows Hot and Cold*, OOPSLA 2017): flat, warming, slowing, unsteady. The mean over a
//! warm-up is the mean of two different servers.

use serde::{Deserialize, Serialize};

use super::{mean, standard_deviation};

/// The development of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Steadiness {
    /// The series stayed at its level.
    Flat,
    /// The series rose from its start to its end.
    Warming {
        /// The rise, as a share: 0.2 is 20 %.
        by: f64,
        /// The first window from which the series is flat; `None` if it never is.
        flat_from: Option<usize>,
    },
    /// The series fell from its start to its end.
    Slowing {
        /// The fall, as a share: 0.2 is 20 %.
        by: f64,
    },
    /// The series varied without a trend.
    Unsteady {
        /// The deviation of a window from the mean, beyond the effect of counting alone; 0.1 is 10 %.
        variation: f64,
    },
    /// The series has fewer than five windows, too few to classify.
    TooShort,
}

/// The smallest number of windows that can be classified.
pub const MIN_WINDOWS: usize = 5;
/// The tolerated drift from start to end, as a share.
const MAX_DRIFT: f64 = 0.05;
/// The tolerated deviation of windows beyond that of counting, as a share.
const MAX_VARIATION: f64 = 0.05;
/// How many standard errors a drift must be away from zero, so that not every noisy run has one.
const MIN_DRIFT_STANDARD_ERRORS: f64 = 3.0;

/// Classifies counts of events in windows of equal length. Counts of independent events scatter by their square root,
/// which is not called unsteady.
pub fn classify(counts: &[f64]) -> Steadiness {
    if counts.len() < MIN_WINDOWS {
        return Steadiness::TooShort;
    }
    let middle = mean(counts);
    if middle <= 0.0 {
        return Steadiness::Unsteady { variation: 1.0 };
    }
    let (drift, error) = drift(counts);
    let (drift, error) = (drift / middle, error / middle);
    if drift.abs() > MAX_DRIFT && drift.abs() > MIN_DRIFT_STANDARD_ERRORS * error {
        if drift < 0.0 {
            return Steadiness::Slowing { by: -drift };
        }
        let flat_from = (1..=counts.len() - MIN_WINDOWS).find(|from| {
            let rest = &counts[*from..];
            matches!(classify_once(rest), Steadiness::Flat)
        });
        return Steadiness::Warming {
            by: drift,
            flat_from,
        };
    }
    spread(counts, middle)
}

fn classify_once(counts: &[f64]) -> Steadiness {
    let middle = mean(counts);
    let (drift, error) = drift(counts);
    if (drift / middle).abs() > MAX_DRIFT && drift.abs() > MIN_DRIFT_STANDARD_ERRORS * error {
        return Steadiness::Slowing { by: 0.0 };
    }
    spread(counts, middle)
}

fn spread(counts: &[f64], middle: f64) -> Steadiness {
    let seen = (standard_deviation(counts) / middle).powi(2);
    let variation = (seen - 1.0 / middle).max(0.0).sqrt();
    if variation > MAX_VARIATION {
        Steadiness::Unsteady { variation }
    } else {
        Steadiness::Flat
    }
}

/// Returns the change along a straight line through the series, from its first to its last window, and its standard
/// error.
fn drift(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let (centre_x, centre_y) = ((n - 1.0) / 2.0, mean(values));
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in values.iter().enumerate() {
        let x = x as f64 - centre_x;
        xx += x * x;
        xy += x * (y - centre_y);
    }
    let slope = xy / xx;
    let residuals: f64 = values
        .iter()
        .enumerate()
        .map(|(x, y)| (y - centre_y - slope * (x as f64 - centre_x)).powi(2))
        .sum();
    let error = (residuals / (n - 2.0) / xx).sqrt();
    (slope * (n - 1.0), error * (n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::template::XorshiftRandom;
    use crate::stats::normal;

    fn noisy(n: usize, share: f64, level: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut random = XorshiftRandom::new(11, 0);
        (0..n)
            .map(|i| level(i) * (1.0 + share * normal(&mut random)))
            .collect()
    }

    #[test]
    fn steadiness_of_slight_noise_is_flat() {
        assert_eq!(classify(&noisy(20, 0.02, |_| 50_000.0)), Steadiness::Flat);
    }

    #[test]
    fn steadiness_allows_for_counting_noise() {
        // Ten a second scatter by 30 %, which is an effect of counting and not of the server.
        let counts = [
            12.0, 7.0, 10.0, 14.0, 9.0, 8.0, 11.0, 6.0, 13.0, 10.0, 9.0, 12.0,
        ];
        assert_eq!(classify(&counts), Steadiness::Flat);
    }

    #[test]
    fn steadiness_of_filling_caches_is_warming() {
        let series = noisy(20, 0.01, |i| if i < 6 { 200.0 + 130.0 * i as f64 } else { 1000.0 } * 10.0);
        match classify(&series) {
            Steadiness::Warming {
                by,
                flat_from: Some(from),
            } => {
                assert!(by > 0.2, "{by}");
                assert!((4..=7).contains(&from), "{from}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn steadiness_of_a_leak_is_slowing() {
        let series = noisy(30, 0.01, |i| 10_000.0 - 100.0 * i as f64);
        assert!(matches!(classify(&series), Steadiness::Slowing { by } if by > 0.2));
    }

    #[test]
    fn steadiness_of_stalls_is_unsteady() {
        let series = noisy(20, 0.0, |i| if i % 7 == 3 { 1000.0 } else { 10_000.0 });
        assert!(matches!(classify(&series), Steadiness::Unsteady { .. }));
        assert!(matches!(classify(&[0.0; 6]), Steadiness::Unsteady { .. }));
    }

    #[test]
    fn steadiness_needs_five_windows() {
        assert_eq!(classify(&[1.0, 2.0, 3.0, 4.0]), Steadiness::TooShort);
    }
}
