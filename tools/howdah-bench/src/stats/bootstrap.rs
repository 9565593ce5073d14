//! Confidence intervals by resampling, and the two quantile functions they need.
//!
//! The plain percentile bootstrap is too narrow for the ten or so pairs of a comparison: it claims 95 % and covers
//! about 90. We widen its levels so that it is as wide as Student's interval for normal data, and keep its shape for
//! others. This is the "expanded percentile interval" of Hesterberg, *What Teachers Should Know About the Bootstrap*
//! (2015), §4.5.
//!
//! However, no resample lies outside the range of the values, and all of five values lie on one side of the true mean
//! once in sixteen times. Below six values we therefore use Student's interval itself, with the standard error of the
//! resamples.

use serde::{Deserialize, Serialize};

use super::{mean, standard_deviation};
use crate::plan::template::XorshiftRandom;

/// The number of resamples drawn for an interval: enough for the third digit of a 95 % bound.
pub const RESAMPLE_COUNT: usize = 4000;

/// A confidence interval from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConfidenceInterval {
    /// The lower bound.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl ConfidenceInterval {
    /// Returns whether a value lies in the interval.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns whether the whole interval lies within ±`margin` of zero.
    pub fn within(&self, margin: f64) -> bool {
        self.low >= -margin && self.high <= margin
    }

    /// Returns the interval with an increasing function applied to its bounds.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> ConfidenceInterval {
        ConfidenceInterval {
            low: f(self.low),
            high: f(self.high),
        }
    }
}

/// Returns the interval of the mean of `values` at `level` (for example 0.95), over resamples of the values. `None` for
/// fewer than two values, because a single value does not show how far off it may be.
pub fn mean_interval(values: &[f64], level: f64, seed: u64) -> Option<ConfidenceInterval> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    if is_below_bootstrap_minimum(n, level) {
        let error = standard_deviation(values) / (n as f64).sqrt();
        return Some(students(mean(values), error, n, level));
    }
    let mut random = XorshiftRandom::new(seed, 0);
    let mut means: Vec<f64> = (0..RESAMPLE_COUNT)
        .map(|_| {
            (0..n)
                .map(|_| values[random.next_between(0, n as u64 - 1) as usize])
                .sum::<f64>()
                / n as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Some(cut(&means, expanded_tail(n, level)))
}

/// Returns the interval of any statistic at `level`, over resamples of whole items. It is for statistics other than
/// means, such as a fitted parameter. Resamples for which the statistic is not defined are skipped. `None` if there are
/// fewer than two items or the statistic is hardly ever defined.
pub fn interval<T>(
    items: &[T],
    level: f64,
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&[&T]) -> Option<f64>,
) -> Option<ConfidenceInterval> {
    let n = items.len();
    if n < 2 {
        return None;
    }
    let mut random = XorshiftRandom::new(seed, 0);
    let mut found = Vec::with_capacity(resamples);
    let mut sample = Vec::with_capacity(n);
    for _ in 0..resamples {
        sample.clear();
        sample.extend((0..n).map(|_| &items[random.next_between(0, n as u64 - 1) as usize]));
        found.extend(statistic(&sample).filter(|value| value.is_finite()));
    }
    if found.len() * 2 < resamples {
        return None;
    }
    if is_below_bootstrap_minimum(n, level) {
        let all: Vec<&T> = items.iter().collect();
        let centre = statistic(&all).filter(|value| value.is_finite())?;
        // Resampling divides by n where an estimate divides by n - 1.
        let error = standard_deviation(&found) * (n as f64 / (n - 1) as f64).sqrt();
        return Some(students(centre, error, n, level));
    }
    found.sort_by(f64::total_cmp);
    Some(cut(&found, expanded_tail(n, level)))
}

/// Returns whether there are so few values that all of them lie on one side of the true mean too often for an interval
/// between them.
fn is_below_bootstrap_minimum(n: usize, level: f64) -> bool {
    0.5f64.powi(n as i32 - 1) > 1.0 - level
}

fn students(centre: f64, error: f64, n: usize, level: f64) -> ConfidenceInterval {
    let half = student_quantile((1.0 + level) / 2.0, n - 1) * error;
    ConfidenceInterval {
        low: centre - half,
        high: centre + half,
    }
}

fn cut(sorted: &[f64], tail: f64) -> ConfidenceInterval {
    let at = |p: f64| sorted[((sorted.len() - 1) as f64 * p).round() as usize];
    ConfidenceInterval {
        low: at(tail),
        high: at(1.0 - tail),
    }
}

/// Returns the share of resamples to cut from each end, so that the interval is as wide as Student's.
fn expanded_tail(n: usize, level: f64) -> f64 {
    let t = student_quantile((1.0 + level) / 2.0, n - 1);
    normal_cdf(-t * (n as f64 / (n - 1) as f64).sqrt())
}

/// Φ: returns the share of a standard normal distribution below `z`. The absolute error is below 1.5e-7 (Abramowitz and
/// Stegun 7.1.26), which is far finer than the grid of a resample.
pub fn normal_cdf(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let polynomial = t
        * (0.254_829_592
            + t * (-0.284_496_736
                + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let tail = polynomial * (-x * x).exp() / 2.0;
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// Φ⁻¹, computed by bisection on [`normal_cdf`]; `p` must be strictly between 0 and 1.
pub fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if normal_cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// Returns Student's quantile for `freedom` degrees of freedom: exact for 1 and 2, otherwise by Hill's algorithm 396
/// (1970), whose error is below a thousandth of the value.
pub fn student_quantile(p: f64, freedom: usize) -> f64 {
    assert!(freedom > 0, "no degree of freedom, no quantile");
    let tail = 2.0 * (1.0 - p);
    match freedom {
        1 => return 1.0 / (tail * std::f64::consts::FRAC_PI_2).tan(),
        2 => return (2.0 / (tail * (2.0 - tail)) - 2.0).sqrt(),
        _ => {}
    }
    let n = freedom as f64;
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20_700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * std::f64::consts::FRAC_PI_2).sqrt() * n;
    let mut y = (d * tail).powf(2.0 / n);
    if y > 0.05 + a {
        let x = normal_quantile(tail / 2.0);
        y = x * x;
        if freedom < 5 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = (a * y * y).exp_m1();
    } else {
        y = ((1.0 / (((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0)
            + 0.5 / (n + 4.0))
            * y
            - 1.0)
            * (n + 1.0)
            / (n + 2.0)
            + 1.0 / y;
    }
    (n * y).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal;

    #[test]
    fn student_quantile_matches_tables() {
        for (freedom, expect) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (19, 2.093),
            (100, 1.984),
        ] {
            let got = student_quantile(0.975, freedom);
            assert!((got / expect - 1.0).abs() < 2e-3, "{freedom}: {got}");
        }
    }

    #[test]
    fn normal_quantile_matches_tables() {
        assert!((normal_quantile(0.975) - 1.959_964).abs() < 1e-5);
        assert!((normal_cdf(-1.0) - 0.158_655).abs() < 1e-6);
    }

    /// The purpose of the interval: it contains the true value in 95 % of many experiments, however few values each
    /// has.
    #[test]
    fn interval_has_its_nominal_coverage() {
        for (name, draw) in [
            ("normal", normal as fn(&mut XorshiftRandom) -> f64),
            ("uniform", |r: &mut XorshiftRandom| r.next_fraction() - 0.5),
        ] {
            let mut random = XorshiftRandom::new(7, 0);
            for n in [2, 3, 5, 6, 10] {
                // Student's interval is for normal data, and a little narrow for others.
                let least = match (name, n) {
                    ("uniform", 5 | 6) => 364,
                    _ => 368,
                };
                let mut hold = |of: fn(&[f64], u64) -> Option<ConfidenceInterval>| {
                    (0..400)
                        .filter(|seed| {
                            let values: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
                            of(&values, *seed).unwrap().contains(0.0)
                        })
                        .count()
                };
                let held = hold(|values, seed| mean_interval(values, 0.95, seed));
                assert!((least..=396).contains(&held), "{name}, {n}: {held} of 400");
                let held = hold(|values, seed| {
                    let of_all = |drawn: &[&f64]| Some(drawn.iter().copied().sum::<f64>());
                    interval(values, 0.95, 400, seed, of_all)
                });
                assert!((least..=396).contains(&held), "{name}, {n}: {held} of 400");
            }
        }
    }

    #[test]
    fn interval_is_reproducible_by_seed() {
        let values = [1.0, 2.0, 4.0, 8.0];
        assert_eq!(
            mean_interval(&values, 0.95, 3),
            mean_interval(&values, 0.95, 3)
        );
    }

    #[test]
    fn interval_needs_two_values() {
        assert_eq!(mean_interval(&[1.0], 0.95, 1), None);
    }
}
