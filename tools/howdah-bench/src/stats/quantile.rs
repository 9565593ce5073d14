//! Percentiles of a histogram. A percentile with too few samples beyond it is not reported.

use crate::histogram::Histogram;

/// The number of samples that must lie beyond a quantile for it to be reported. With fewer, it depends on the few
/// slowest samples, and changes with every run.
pub const MIN_SAMPLES_BEYOND: f64 = 10.0;

/// The percentiles of a report, in per cent.
pub const REPORTED_PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 99.999];

/// Returns the value at `percentile`, or `None` if fewer than ten samples lie beyond it.
pub fn trusted(histogram: &Histogram, percentile: f64) -> Option<u64> {
    (histogram.len() as f64 * (1.0 - percentile / 100.0) >= MIN_SAMPLES_BEYOND - 1e-6)
        .then(|| histogram.quantile(percentile / 100.0))
}

/// Detects a bimodal distribution: two modes, each with at least a tenth of the samples, with a wide (a factor of
/// three) and nearly empty gap between them. No request took the mean time in that case. Returns the middles of the two
/// modes (the value at the centre of each).
pub fn two_modes(histogram: &Histogram) -> Option<(u64, u64)> {
    const MIN_MODE_SHARE: f64 = 0.1;
    const MIN_GAP_RATIO: f64 = 3.0;
    let total = histogram.len();
    if total < 50 {
        return None;
    }
    // The widest gap, as a ratio, between neighbouring percentiles in steps of one per cent. At most a hundredth of the
    // samples can lie inside it.
    let at = |percent: u32| histogram.quantile(f64::from(percent) / 100.0).max(1);
    let lowest = (MIN_MODE_SHARE * 100.0) as u32;
    let (split, ratio) = (lowest..100 - lowest)
        .map(|p| (p, at(p + 1) as f64 / at(p) as f64))
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    if ratio < MIN_GAP_RATIO {
        return None;
    }
    let below = f64::from(split) / 2.0;
    let above = f64::from(split) + f64::from(100 - split) / 2.0;
    Some((
        histogram.quantile(below / 100.0),
        histogram.quantile(above / 100.0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::template::XorshiftRandom;
    use crate::stats::normal;

    fn of(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::new();
        for value in values {
            histogram.record(value);
        }
        histogram
    }

    #[test]
    fn percentile_needs_ten_samples_beyond_it() {
        let thousand = of(1..=1000);
        assert_eq!(trusted(&thousand, 99.0), Some(990));
        assert_eq!(trusted(&thousand, 99.9), None);
        assert_eq!(trusted(&of(1..=10_000), 99.9).map(|v| v / 10), Some(999));
        assert_eq!(trusted(&of([]), 50.0), None);
    }

    #[test]
    fn two_modes_finds_hits_and_misses() {
        let mut random = XorshiftRandom::new(3, 0);
        let mixed = of((0..2000).map(|i| {
            let middle = if i % 3 == 0 { 30_000.0 } else { 400.0 };
            (middle * (1.0 + 0.2 * normal(&mut random)).abs().max(0.1)) as u64
        }));
        let (fast, slow) = two_modes(&mixed).unwrap();
        assert!((300..500).contains(&fast), "{fast}");
        assert!((25_000..35_000).contains(&slow), "{slow}");
    }

    #[test]
    fn two_modes_ignores_a_long_tail() {
        let mut random = XorshiftRandom::new(4, 0);
        let skewed = of((0..5000).map(|_| (1000.0 * (0.8 * normal(&mut random)).exp()) as u64));
        assert_eq!(two_modes(&skewed), None);
        let outliers = of((0..1000).map(|i| if i % 50 == 0 { 90_000 } else { 1000 }));
        assert_eq!(two_modes(&outliers), None);
    }
}
