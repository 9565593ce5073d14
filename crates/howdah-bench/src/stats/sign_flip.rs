//! The exact test for pairs, Fisher's randomisation test: if the two arms were equal, the sign of each difference would
//! be random. It assumes no distribution, only that the difference of a pair is as likely to be +d as −d, which
//! alternating the order of the arms ensures.

use crate::plan::template::Random;

/// Up to this number of pairs, the test evaluates every assignment of signs; beyond it, a sample of them.
const EXACT_UP_TO: usize = 16;
const SAMPLED: u64 = 20_000;

/// Returns the two-sided p-value for "the mean difference is zero". With n pairs it cannot be below 2^(1−n): five pairs
/// never reach 0.05, whatever they show. 1 for no pairs.
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
    if n <= EXACT_UP_TO {
        let all = 1u64 << n;
        let extreme = (0..all).filter(|signs| sum(*signs) >= observed).count();
        return extreme as f64 / all as f64;
    }
    let mut random = Random::new(seed, 0);
    let extreme = (0..SAMPLED)
        .filter(|_| {
            let flipped: f64 = differences
                .chunks(64)
                .map(|chunk| {
                    let signs = random.bits();
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
    (extreme + 1) as f64 / (SAMPLED + 1) as f64
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
    fn five_pairs_cannot_be_significant_and_six_can() {
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0], 0), 0.0625);
        assert_eq!(p_value(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0), 0.03125);
        assert_eq!(fewest_pairs(0.05), 6);
    }

    #[test]
    fn differences_that_cancel_out_say_nothing() {
        assert_eq!(p_value(&[1.0, -1.0, 1.0, -1.0], 0), 1.0);
        assert_eq!(p_value(&[], 0), 1.0);
        assert_eq!(p_value(&[0.0; 20], 0), 1.0);
    }

    #[test]
    fn the_sampled_test_agrees_with_the_exact_one() {
        let mut random = Random::new(5, 0);
        let sixteen: Vec<f64> = (0..16).map(|_| normal(&mut random) + 0.4).collect();
        let exact = p_value(&sixteen, 0);
        // A seventeenth difference of zero changes no sum, only the method of counting.
        let mut seventeen = sixteen.clone();
        seventeen.push(0.0);
        assert!((p_value(&seventeen, 1) - exact).abs() < 0.01);
    }

    #[test]
    fn of_many_comparisons_of_equals_five_percent_at_most_are_called_different() {
        let mut random = Random::new(9, 0);
        let called = (0..1000)
            .filter(|_| {
                let differences: Vec<f64> = (0..10).map(|_| normal(&mut random)).collect();
                p_value(&differences, 0) <= 0.05
            })
            .count();
        assert!((30..=70).contains(&called), "{called} of 1000");
    }
}
