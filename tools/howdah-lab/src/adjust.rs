//! Adjusts the judgements of a benchmark for their number, by Holm's method.

use howdah_bench::stats::paired::{Judgement, JudgementSettings};
use howdah_bench::stats::{ComparisonVerdict, holm, sign_flip};

/// Applies Holm's adjustment to a family of comparisons, because many questions yield some result by chance. A result
/// that fails the adjustment is withdrawn.
pub(crate) fn holm_adjust<'a>(family: impl Iterator<Item = &'a mut Judgement>) {
    let mut family: Vec<&mut Judgement> = family.collect();
    let raw: Vec<f64> = family.iter().map(|judgement| judgement.p).collect();
    let level = 1.0 - JudgementSettings::default().level;
    let questions = family.len();
    for (judgement, adjusted) in family.iter_mut().zip(holm::adjust(&raw)) {
        judgement.p_adjusted = adjusted;
        let found = matches!(
            judgement.verdict,
            ComparisonVerdict::Faster { .. } | ComparisonVerdict::Slower { .. }
        );
        if found && adjusted > level {
            judgement.verdict = ComparisonVerdict::CannotTell {
                more_pairs: Some(more_pairs(judgement.pairs.len(), questions, level)),
            };
        }
    }
}

/// Returns how many more pairs are needed before the test could pass Holm's first step at all; at least one.
fn more_pairs(have: usize, questions: usize, level: f64) -> usize {
    let fewest = sign_flip::fewest_pairs(level / questions.max(1) as f64);
    fewest.saturating_sub(have).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use howdah_bench::stats::paired::{BetterDirection, FigureQuestion, judge};

    fn twice_as_fast(pairs: usize) -> Judgement {
        let pairs: Vec<(f64, f64)> = (0..pairs)
            .map(|n| (100.0 + n as f64, 200.0 + 3.0 * n as f64))
            .collect();
        let question = FigureQuestion {
            metric: "good responses per second",
            primary: true,
            better: BetterDirection::Higher,
            pairs: &pairs,
            control: &[],
        };
        let found = judge(&[question], &[], JudgementSettings::default());
        found.into_iter().next().unwrap()
    }

    #[test]
    fn holm_adjustment_withdraws_results_of_large_families() {
        let mut alone = [twice_as_fast(6)];
        holm_adjust(alone.iter_mut());
        assert!(matches!(alone[0].verdict, ComparisonVerdict::Faster { .. }));
        let mut family: Vec<Judgement> = (0..10).map(|_| twice_as_fast(6)).collect();
        holm_adjust(family.iter_mut());
        // 2^-8 * 10 is the first value below 0.05.
        let expected = ComparisonVerdict::CannotTell {
            more_pairs: Some(3),
        };
        assert_eq!(family[0].verdict, expected);
        let mut family: Vec<Judgement> = (0..10).map(|_| twice_as_fast(9)).collect();
        holm_adjust(family.iter_mut());
        assert!(matches!(
            family[9].verdict,
            ComparisonVerdict::Faster { .. }
        ));
    }
}
