//! The exact test for pairs, Fisher's randomisation test: if the two arms were equal, the sign of each difference would
//! be random. It assumes no distribution, only that the difference of a pair is as likely to be +d as −d, which
//! alternating the order of the arms ensures.

use crate::plan::template::XorshiftRandom;

/// Up to this number of pairs, the test evaluates every assignment of signs; beyond it, a sample of them.
const MAX_EXACT_PAIRS: usize = 16;
const SAMPLED_ASSIGNMENTS: u64 = 20_000;

/// Returns the two-sided p-value for "the mean difference is zero". With n pairs it cannot be below 2^(1−n): five pairs
/// never reach 0.05. It is 1 if there are no pairs.
pub fn p_value(differences: &[f64], seed: u64) -> f64 {
    let n = differences.len();
    if n == 0 {
        return 1.0;
    }
    // The sum is compared instead of the mean, because n is the same for all. The slack prevents ties from being lost
    // to rounding.
    let observed = differences.iter().sum::<f64>().abs() * (1.0 - 1e-12);
    let sum = |signs: u64| -> f64 {
        differences
            .iter()
            .enumerate()
            .map(|(i, d)| if signs >> (i % 64) & 1 == 1 { -d } else { *d })
            .sum::<f64>()
            .abs()
    };
    if n <= MAX_EXACT_PAIRS {
        let all = 1u64 << n;
        let extreme = (0..all).filter(|signs| sum(*signs) >= observed).count();
        return extreme as f64 / all as f64;
    }
    let mut random = XorshiftRandom::new(seed, 0);
    let extreme = (0..SAMPLED_ASSIGNMENTS)
        .filter(|_| {
            let flipped: f64 = differences
                .chunks(64)
                .map(|chunk| {
                    let signs = random.next_u64();
                    chunk
                        .iter()
                        .enumerate()
                        .map(|(i, d)| if signs >> i & 1 == 1 { -d } else { *d })
                        .sum::<f64>()
                })
                .sum();
            flipped.abs() >= observed
        })
        .count();
    // The observed assignment counts as one of the possible ones, so that p is never zero.
    (extreme + 1) as f64 / (SAMPLED_ASSIGNMENTS + 1) as f64
}

/// Returns the smallest number of pairs with which `level` (for example 0.05) can be reached.
pub fn fewest_pairs(level: f64) -> usize {
    (1..=64).find(|n| 2f64.powi(1 - n) <= level).unwrap_or(64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::normal;

    #[test]
    fn p_value_needs_six_pairs() {
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], 0), 0.0625);
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0), 0.03125);
        assert_eq!(fewest_pairs(0.05), 6);
    }

    #[test]
    fn p_value_of_cancelling_differences_is_high() {
        assert_eq!(p_value(&[1.0, -1.0, 1.0, -1.0], 0), 1.0);
        assert_eq!(p_value(&[], 0), 1.0);
        assert_eq!(p_value(&[0.0; 20], 0), 1.0);
    }

    #[test]
    fn p_value_sampled_agrees_with_exact() {
        let mut random = XorshiftRandom::new(5, 0);
        let sixteen: Vec<f64> = (0..16).map(|_| normal(&mut random) + 0.4).collect();
        let exact = p_value(&sixteen, 0);
        // A seventeenth difference of zero changes no sum, only the method of counting.
        let mut seventeen = sixteen.clone();
        seventeen.push(0.0);
        assert!((p_value(&seventeen, 1) - exact).abs() < 0.01);
    }

    #[test]
    fn p_value_has_its_nominal_error_rate() {
        let mut random = XorshiftRandom::new(9, 0);
        let called = (0..1000)
            .filter(|_| {
                let differences: Vec<f64> = (0..10).map(|_| normal(&mut random)).collect();
                p_value(&differences, 0) <= 0.05
            })
            .count();
        assert!((30..=70).contains(&called), "{called} of 1000");
    }
}
