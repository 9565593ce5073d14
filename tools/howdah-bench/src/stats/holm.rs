//! Adjustment for asking several questions about one experiment: Holm's step-down procedure (1979). Ten questions whose
//! true answer is "no", each asked at 5 %, would give a false "yes" in four of ten experiments; adjusted, in one of
//! twenty.

/// Adjusts p-values; returns them in the order of the raw ones.
pub fn adjust(raw: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| raw[*a].total_cmp(&raw[*b]));
    let mut adjusted = vec![1.0; raw.len()];
    let mut highest: f64 = 0.0;
    for (rank, index) in order.iter().enumerate() {
        highest = highest.max((raw[*index] * (raw.len() - rank) as f64).min(1.0));
        adjusted[*index] = highest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjust_matches_r() {
        // p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") of R.
        let got = adjust(&[0.01, 0.04, 0.03, 0.005]);
        for (got, expect) in got.iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((got - expect).abs() < 1e-12, "{got} {expect}");
        }
        assert_eq!(adjust(&[0.7, 0.9]), vec![1.0, 1.0]);
        assert!(adjust(&[]).is_empty());
    }
}
