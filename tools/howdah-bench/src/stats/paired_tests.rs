use super::*;
use crate::plan::template::XorshiftRandom;
use crate::stats::normal;

/// Returns `n` pairs of a server and one that is `ratio` times as fast. Each window is off by `noise`, and both windows
/// of a pair by a disturbance they share.
fn pairs(random: &mut XorshiftRandom, n: usize, ratio: f64, noise: f64) -> Vec<(f64, f64)> {
    (0..n)
        .map(|_| {
            let shared = (0.1 * normal(random)).exp();
            (
                1000.0 * shared * (noise * normal(random)).exp(),
                1000.0 * shared * ratio * (noise * normal(random)).exp(),
            )
        })
        .collect()
}

fn ask(
    pairs: &[(f64, f64)],
    control: &[(f64, f64)],
    invalid: &[InvalidReason],
    seed: u64,
) -> Judgement {
    let question = FigureQuestion {
        metric: "good responses per second",
        primary: true,
        better: BetterDirection::Higher,
        pairs,
        control,
    };
    let settings = JudgementSettings {
        seed,
        ..JudgementSettings::default()
    };
    judge(&[question], invalid, settings).remove(0)
}

#[test]
fn judgement_of_a_server_against_itself_is_same() {
    let same = (0..200)
        .filter(|seed| {
            let mut random = XorshiftRandom::new(*seed, 1);
            let (arms, control) = (
                pairs(&mut random, 10, 1.0, 0.01),
                pairs(&mut random, 10, 1.0, 0.01),
            );
            matches!(
                ask(&arms, &control, &[], *seed).verdict,
                ComparisonVerdict::Same { .. }
            )
        })
        .count();
    assert!(same >= 190, "{same} of 200");
}

#[test]
fn judgement_rarely_claims_faster_on_noise() {
    let called = (0..400)
        .filter(|seed| {
            let mut random = XorshiftRandom::new(*seed, 2);
            let arms = pairs(&mut random, 10, 1.0, 0.10);
            let control = pairs(&mut random, 10, 1.0, 0.10);
            matches!(
                ask(&arms, &control, &[], *seed).verdict,
                ComparisonVerdict::Faster { .. } | ComparisonVerdict::Slower { .. }
            )
        })
        .count();
    assert!(called <= 20, "{called} of 400");
}

#[test]
fn judgement_finds_ten_percent() {
    let mut found = 0;
    let mut held = 0;
    for seed in 0..100 {
        let mut random = XorshiftRandom::new(seed, 3);
        let (arms, control) = (
            pairs(&mut random, 10, 1.10, 0.02),
            pairs(&mut random, 10, 1.0, 0.02),
        );
        let judgement = ask(&arms, &control, &[], seed);
        found += usize::from(
            matches!(judgement.verdict, ComparisonVerdict::Faster { by, .. } if (5.0..15.0).contains(&by)),
        );
        held += usize::from(judgement.interval.unwrap().contains(1.10));
    }
    assert!(found >= 95, "{found} of 100");
    assert!(held >= 88, "{held} of 100");
}

#[test]
fn pairs_cancel_disturbance_and_drift() {
    // The machine becomes 5 % slower with every window; A and B are equal; the order alternates.
    let arms: Vec<(f64, f64)> = (0..10)
        .map(|block| {
            let (first, second) = (0.95f64.powi(2 * block), 0.95f64.powi(2 * block + 1));
            let speed = 1000.0;
            if block % 2 == 0 {
                (speed * first, speed * second)
            } else {
                (speed * second, speed * first)
            }
        })
        .collect();
    let judgement = ask(&arms, &[], &[], 1);
    assert!((judgement.ratio - 1.0).abs() < 1e-9);
    assert!(!matches!(
        judgement.verdict,
        ComparisonVerdict::Faster { .. } | ComparisonVerdict::Slower { .. }
    ));
}

#[test]
fn pairs_below_six_ask_for_more() {
    let judgement = ask(&[(100.0, 200.0); 5], &[], &[], 1);
    assert_eq!(
        judgement.verdict,
        ComparisonVerdict::CannotTell {
            more_pairs: Some(1)
        }
    );
}

#[test]
fn pairs_as_many_as_advised_decide() {
    let mut decided = 0;
    let mut asked = 0;
    for seed in 0..60 {
        let mut random = XorshiftRandom::new(seed, 4);
        let few = pairs(&mut random, 8, 1.05, 0.05);
        let judgement = ask(&few, &[], &[], seed);
        let ComparisonVerdict::CannotTell {
            more_pairs: Some(more),
        } = judgement.verdict
        else {
            continue;
        };
        asked += 1;
        // A new experiment of the advised size, with the difference that the first one estimated.
        let guess = judgement.ratio;
        let spread = standard_deviation(&log_ratios(&few, BetterDirection::Higher)) / 2f64.sqrt();
        let many = pairs(&mut random, 8 + more, guess, spread);
        decided += usize::from(!matches!(
            ask(&many, &[], &[], seed).verdict,
            ComparisonVerdict::CannotTell { .. }
        ));
    }
    assert!(asked >= 20, "{asked}");
    assert!(decided * 10 >= asked * 6, "{decided} of {asked}");
}

#[test]
fn invalid_condition_overrides_any_ratio() {
    let reasons = [InvalidReason::ErrorRates {
        base: 0.86,
        candidate: 0.02,
    }];
    let judgement = ask(&[(100.0, 900.0); 10], &[], &reasons, 1);
    assert_eq!(
        judgement.verdict,
        ComparisonVerdict::Invalid {
            because: reasons.to_vec()
        }
    );
}

#[test]
fn control_that_differs_invalidates_the_comparison() {
    let control: Vec<_> = (0..10)
        .map(|i| (100.0, 120.0 + f64::from(i) / 10.0))
        .collect();
    let judgement = ask(&[(100.0, 130.0); 10], &control, &[], 1);
    assert!(matches!(
        &judgement.verdict,
        ComparisonVerdict::Invalid { because } if because[0].name() == "control-differs"
    ));
}

#[test]
fn noise_floor_limits_claims() {
    // B is 5 % faster in every pair, but the same server against itself is off by as much.
    let arms: Vec<_> = (0..10)
        .map(|i| (100.0, 105.0 + f64::from(i % 3) / 10.0))
        .collect();
    let control: Vec<_> = (0..10)
        .map(|i| (100.0, if i % 2 == 0 { 112.0 } else { 89.0 }))
        .collect();
    let judgement = ask(&arms, &control, &[], 1);
    assert!(judgement.noise_floor.unwrap() > 1.06, "{judgement:?}");
    assert!(matches!(
        judgement.verdict,
        ComparisonVerdict::CannotTell { .. }
    ));
}

#[test]
fn window_without_good_response_is_invalid() {
    let mut arms = vec![(100.0, 100.0); 10];
    arms[3].1 = 0.0;
    assert_eq!(
        ask(&arms, &[], &[], 1).verdict,
        ComparisonVerdict::Invalid {
            because: vec![InvalidReason::NothingGood {
                arm: ComparisonSide::Candidate
            }]
        }
    );
}

#[test]
fn latency_judgement_prefers_lower() {
    let question = FigureQuestion {
        metric: "p99",
        primary: true,
        better: BetterDirection::Lower,
        pairs: &[(0.030, 0.020); 8],
        control: &[],
    };
    let judgement = judge(&[question], &[], JudgementSettings::default()).remove(0);
    assert!((judgement.ratio - 1.5).abs() < 1e-9);
    assert!(
        matches!(judgement.verdict, ComparisonVerdict::Faster { by, .. } if (by - 50.0).abs() < 1e-6)
    );
}

#[test]
fn disturbed_pair_is_kept_and_reported() {
    let mut arms: Vec<_> = (0..10)
        .map(|i| (100.0, 110.0 + f64::from(i) / 10.0))
        .collect();
    arms[4] = (100.0, 20.0);
    let judgement = ask(&arms, &[], &[], 1);
    assert_eq!(judgement.disturbed, [4]);
    assert!((judgement.ratio_without_disturbed.unwrap() - 1.10).abs() < 0.01);
    assert!(judgement.ratio < 1.0);
}

/// Two pairs show almost nothing of the noise, six show much more. The advice is the four missing pairs, not hundreds.
#[test]
fn noise_floor_of_few_pairs_is_expected_to_shrink() {
    let found = ask(
        &[(100.0, 110.0), (100.0, 111.0)],
        &[(100.0, 101.0), (100.0, 99.0)],
        &[],
        1,
    );
    assert!(found.noise_floor.unwrap() > found.ratio, "{found:?}");
    let four = ComparisonVerdict::CannotTell {
        more_pairs: Some(4),
    };
    assert_eq!(found.verdict, four);
}
