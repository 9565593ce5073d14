use howdah_bench::stats::paired::{BetterDirection, FigureQuestion as Asked, judge};

use super::super::arm::ArmKind;
use super::super::rows::test_row;
use super::*;

fn arm(name: &str, choice: Option<HowdahSettings>) -> AppArm {
    AppArm {
        name: name.to_owned(),
        title: name.to_owned(),
        way: choice.map_or(ArmKind::Rival(name.to_owned()), ArmKind::Howdah),
    }
}

fn arms() -> Vec<AppArm> {
    let of = |mode, children, cache| {
        Some(HowdahSettings {
            mode,
            children,
            cache,
            jit: false,
        })
    };
    vec![
        arm(DEFAULT, Some(HowdahSettings::DEFAULT_ARM)),
        arm("howdah-embed-1", of(HowdahMode::Embed, Some(1), false)),
        arm("howdah-embed-2", of(HowdahMode::Embed, Some(2), false)),
        arm("howdah-embed-8", of(HowdahMode::Embed, Some(8), false)),
        arm("howdah-embed-cache", of(HowdahMode::Embed, None, true)),
        arm("howdah-pool", of(HowdahMode::Pool, None, false)),
        arm("howdah-cgi", of(HowdahMode::Cgi, None, false)),
        arm("nginx-fpm-unix", None),
        arm("apache-mod-php", None),
    ]
}

fn look() -> Vec<ArmRow> {
    let rates = [100.0, 60.0, 101.0, 102.0, 9000.0, 90.0, 20.0, 80.0, 85.0];
    arms()
        .iter()
        .zip(rates)
        .map(|(arm, rate)| {
            let children = arm.choice().and_then(|choice| choice.children);
            test_row(&arm.name, children, rate, 0)
        })
        .collect()
}

#[test]
fn challengers_are_the_fastest_arms_and_the_fewest_children() {
    let arms = arms();
    let names = |look: &[ArmRow]| -> Vec<String> {
        let asked = challengers(&arms, look);
        asked.into_iter().map(|(_, arm)| arm.name.clone()).collect()
    };
    assert_eq!(
        names(&look()),
        [
            "howdah-pool",
            "howdah-embed-2",
            "howdah-embed-cache",
            "apache-mod-php"
        ]
    );
    let mut with_errors = look();
    for row in &mut with_errors {
        if row.arm == "apache-mod-php" || row.arm == "howdah-pool" {
            row.figures
                .errors
                .insert(howdah_bench::outcome::Outcome::Status5xx, 2);
        }
    }
    assert_eq!(
        names(&with_errors),
        [
            "howdah-cgi",
            "howdah-embed-2",
            "howdah-embed-cache",
            "nginx-fpm-unix"
        ]
    );
}

/// Returns the judgement of `n` pairs in which the challenger is `ratio` times as fast, give or take a per cent.
fn judged(n: usize, ratio: f64) -> (Judgement, bool) {
    let wobble = |at: usize| 1.0 + 0.01 * ((at * 7 % 5) as f64 - 2.0) / 2.0;
    let pairs: Vec<(f64, f64)> = (0..n)
        .map(|at| (100.0, 100.0 * ratio * wobble(at)))
        .collect();
    let question = Asked {
        metric: "good responses per second",
        primary: true,
        better: BetterDirection::Higher,
        pairs: &pairs,
        control: &[],
    };
    let judgement = judge(&[question], &[], JudgementSettings::default()).remove(0);
    let better = is_better(&judgement, false);
    (judgement, better)
}

fn four(n: usize, ratio: f64) -> Vec<(AppQuestion, Option<(Judgement, bool)>)> {
    let mut all: Vec<_> = QUESTIONS.map(|q| (q, Some(judged(n, ratio)))).to_vec();
    adjust_judgements(&mut all);
    all
}

#[test]
fn adjustment_needs_eight_pairs_for_four_questions() {
    for (_, judged) in four(8, 1.3) {
        let (judgement, better) = judged.unwrap();
        assert!(better && judgement.p_adjusted <= 0.05, "{judgement:?}");
    }
    for (_, judged) in four(6, 1.3) {
        let (judgement, better) = judged.unwrap();
        assert!(!better);
        assert_eq!(
            judgement.verdict,
            ComparisonVerdict::CannotTell {
                more_pairs: Some(2)
            }
        );
    }
}

#[test]
fn mode_changes_only_when_it_is_shown_to_be_faster() {
    let mut choice = HowdahSettings::DEFAULT_ARM;
    let pool = HowdahSettings {
        mode: HowdahMode::Pool,
        ..choice
    };
    assert_eq!(
        decide_mode(&mut choice, Some(pool), false),
        "mode embed, the default"
    );
    assert_eq!(choice, HowdahSettings::DEFAULT_ARM);
    assert_eq!(decide_mode(&mut choice, Some(pool), true), "mode pool");
    assert_eq!(choice.mode, HowdahMode::Pool);
}

fn facts<'a>(arms: &'a [AppArm], kept: &'a [String], changing: &'a [String]) -> AdviceInput<'a> {
    AdviceInput {
        arms,
        look: &[],
        windows: &[],
        failures: &[],
        personal: false,
        kept_by_cache: kept,
        changing,
        auto_children: 16,
        machine_memory: 1 << 30,
    }
}

#[test]
fn cache_is_advised_only_for_stored_constant_shared_pages() {
    let arms = arms();
    let home = ["/".to_owned()];
    let cached = Some(HowdahSettings {
        cache: true,
        ..HowdahSettings::DEFAULT_ARM
    });
    let ask = |facts: &AdviceInput<'_>, better| {
        let mut choice = HowdahSettings::DEFAULT_ARM;
        let said = decide_cache(facts, &mut choice, cached, better);
        (choice.cache, said)
    };
    assert!(ask(&facts(&arms, &home, &[]), true).0);
    assert!(!ask(&facts(&arms, &home, &[]), false).0);
    let (on, said) = ask(&facts(&arms, &home, &home), true);
    assert!(
        !on && said.contains("changes from request to request"),
        "{said}"
    );
    let (on, said) = ask(&facts(&arms, &[], &[]), true);
    assert!(
        !on && said.contains("none of the pages was stored"),
        "{said}"
    );
    let personal = AdviceInput {
        personal: true,
        ..facts(&arms, &home, &[])
    };
    assert!(!ask(&personal, true).0);
}

#[test]
fn fewer_children_that_are_as_fast_are_mentioned_and_not_chosen() {
    let arms = arms();
    let two = Some(HowdahSettings {
        children: Some(2),
        ..HowdahSettings::DEFAULT_ARM
    });
    let mut choice = HowdahSettings::DEFAULT_ARM;
    let (same, _) = judged(12, 1.0);
    let said = decide_children(
        &facts(&arms, &[], &[]),
        &mut choice,
        two,
        Some(&same),
        false,
    );
    assert!(said.contains("if memory is short, 2 are as fast"), "{said}");
    assert_eq!(choice.children, None);
    let said = decide_children(&facts(&arms, &[], &[]), &mut choice, two, None, true);
    assert_eq!(
        (said.as_str(), choice.children),
        ("max_children = 2", Some(2))
    );
}

#[test]
fn challenger_that_outran_the_load_tester_is_faster() {
    let (mut judgement, _) = judged(8, 5.0);
    let bound = InvalidReason::GeneratorBound {
        evidence: "97 % of a core".to_owned(),
    };
    judgement.verdict = ComparisonVerdict::Invalid {
        because: vec![bound.clone()],
    };
    assert!(is_better(&judgement, false));
    assert!(
        !is_better(&judgement, true),
        "the default's own rate is unknown, too"
    );
    judgement.verdict = ComparisonVerdict::Invalid {
        because: vec![bound, InvalidReason::ForeignLoad { share: 0.5 }],
    };
    assert!(!is_better(&judgement, false));
}

#[test]
fn advice_without_figures_keeps_the_default() {
    let arms = arms();
    let look = look();
    let facts = AdviceInput {
        look: &look,
        ..facts(&arms, &[], &[])
    };
    let advice = advise(&facts);
    assert_eq!(advice.choice, HowdahSettings::DEFAULT_ARM);
    assert_eq!(advice.decisions.len(), 5);
    for decision in &advice.decisions {
        assert!(
            decision.evidence.contains("was not measured"),
            "{decision:?}"
        );
    }
}

#[test]
fn jit_is_on_only_if_it_is_faster_in_the_recommended_mode() {
    let mut choice = HowdahSettings::DEFAULT_ARM;
    assert_eq!(decide_jit(&mut choice, false), "off, the default");
    assert!(!choice.jit);
    let said = decide_jit(&mut choice, true);
    assert_eq!(
        said,
        "on: opcache.jit = tracing, opcache.jit_buffer_size = 64M"
    );
    assert!(choice.jit);
    let mut pool = HowdahSettings {
        mode: HowdahMode::Pool,
        ..HowdahSettings::DEFAULT_ARM
    };
    assert!(decide_jit(&mut pool, true).starts_with("off: measured in mode embed"));
    assert!(!pool.jit);
    let compiled = arm(
        "howdah-embed-jit",
        Some(HowdahSettings {
            jit: true,
            ..HowdahSettings::DEFAULT_ARM
        }),
    );
    assert_eq!(AppQuestion::about(&compiled), Some(AppQuestion::Jit));
}
