//! The meaning of figures: intervals, verdicts, percentiles. This is pure arithmetic on slices, without a clock or I/O.
//! Every random choice comes from a seed that the caller passes in, so a verdict can be computed again.
//!
//! The unit of evidence is a window or a run, never a request: the requests of one run share its disturbances, and ten
//! thousand of them are one sample (Kalibera & Jones 2013).
//!
//! - [`bootstrap`], [`sign_flip`], [`holm`]: the statistical methods.
//! - [`paired`]: two servers measured alternately, and the verdict that follows from it.
//! - [`steady`], [`little`]: whether the figures are reliable at all.
//! - [`knee`]: where a sweep over concurrency is saturated, and where it falls off.
//! - [`quantile`]: percentiles, and when there are too few samples for one.

pub mod bootstrap;
pub mod holm;
pub mod knee;
pub mod little;
pub mod paired;
pub mod quantile;
pub mod sign_flip;
pub mod steady;
pub mod verdict;

pub use bootstrap::ConfidenceInterval;
pub use paired::{Judgement, JudgementSettings, judge};
pub use verdict::{ComparisonVerdict, InvalidReason};

/// Returns the arithmetic mean; NaN for an empty slice.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sample standard deviation (n − 1); zero for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let middle = mean(values);
    let squares: f64 = values.iter().map(|v| (v - middle).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Returns the median: the middle value, or the mean of the two in the middle; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Returns a standard normal random number (Box and Muller), for tests with a known true value.
#[cfg(test)]
pub(crate) fn normal(random: &mut crate::plan::template::XorshiftRandom) -> f64 {
    let radius = (-2.0 * (1.0 - random.next_fraction()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.next_fraction()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_odd_number_is_the_middle_value() {
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[1.0, 2.0, 3.0, 10.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn standard_deviation_is_of_the_sample() {
        assert_eq!(standard_deviation(&[2.0, 4.0]), 2.0_f64.sqrt());
        assert_eq!(standard_deviation(&[3.0]), 0.0);
    }
}
