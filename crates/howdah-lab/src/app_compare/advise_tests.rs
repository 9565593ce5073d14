use howdah_bench::stats::paired::{Better, Question as Asked, judge};

use super::super::arm::Way;
use super::super::rows::made_up;
use super::*;

fn arm(name: &str, choice: Option<Choice>) -> Arm {
    Arm {
        name: name.to_owned(),
        title: name.to_owned(),
        way: choice.map_or(Way::Rival(name.to_owned()), Way::Howdah),
    }
}

fn arms() -> Vec<Arm> {
    let of = |mode, children, cache| {
        Some(Choice {
            mode,
            children,
            cache,
        })
    };
    vec![
        arm(DEFAULT, Some(Choice::DEFAULT)),
        arm("howdah-embed-1", of(Mode::Embed, Some(1), false)),
        arm("howdah-embed-2", of(Mode::Embed, Some(2), false)),
        arm("howdah-embed-8", of(Mode::Embed, Some(8), false)),
        arm("howdah-embed-cache", of(Mode::Embed, None, true)),
        arm("howdah-pool", of(Mode::Pool, None, false)),
        arm("howdah-cgi", of(Mode::Cgi, None, false)),
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
            made_up(&arm.name, children, rate, 0)
        })
        .collect()
}

#[test]
fn the_fastest_of_each_kind_is_asked_and_the_fewest_children_that_are_as_fast() {
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

/// `n` pairs in which the challenger is `ratio` times as fast, give or take a per cent.
fn judged(n: usize, ratio: f64) -> (Judgement, bool) {
    let wobble = |at: usize| 1.0 + 0.01 * ((at * 7 % 5) as f64 - 2.0) / 2.0;
    let pairs: Vec<(f64, f64)> = (0..n)
        .map(|at| (100.0, 100.0 * ratio * wobble(at)))
        .collect();
    let question = Asked {
        metric: "good answers per second",
        primary: true,
        better: Better::Higher,
        pairs: &pairs,
        control: &[],
    };
    let judgement = judge(&[question], &[], Settings::default()).remove(0);
    let better = is_better(&judgement, false);
    (judgement, better)
}

fn four(n: usize, ratio: f64) -> Vec<(Question, Option<(Judgement, bool)>)> {
    let mut all: Vec<_> = QUESTIONS.map(|q| (q, Some(judged(n, ratio)))).to_vec();
    adjust(&mut all);
    all
}

#[test]
fn eight_pairs_are_enough_for_four_questions_and_six_are_not() {
    for (_, judged) in four(8, 1.3) {
        let (judgement, better) = judged.unwrap();
        assert!(better && judgement.p_adjusted <= 0.05, "{judgement:?}");
    }
    for (_, judged) in four(6, 1.3) {
        let (judgement, better) = judged.unwrap();
        assert!(!better);
        assert_eq!(
            judgement.verdict,
            Verdict::CannotTell {
                more_pairs: Some(2)
            }
        );
    }
}

#[test]
fn a_setting_changes_only_when_it_is_shown_to_be_faster() {
    let mut choice = Choice::DEFAULT;
    let pool = Choice {
        mode: Mode::Pool,
        ..choice
    };
    assert_eq!(
        mode(&mut choice, Some(pool), false),
        "mode embed, the default"
    );
    assert_eq!(choice, Choice::DEFAULT);
    assert_eq!(mode(&mut choice, Some(pool), true), "mode pool");
    assert_eq!(choice.mode, Mode::Pool);
}

fn facts<'a>(arms: &'a [Arm], kept: &'a [String], changing: &'a [String]) -> Facts<'a> {
    Facts {
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
fn the_cache_is_advised_only_for_pages_it_keeps_that_stand_still_and_belong_to_nobody() {
    let arms = arms();
    let home = ["/".to_owned()];
    let cached = Some(Choice {
        cache: true,
        ..Choice::DEFAULT
    });
    let ask = |facts: &Facts<'_>, better| {
        let mut choice = Choice::DEFAULT;
        let said = cache(facts, &mut choice, cached, better);
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
    assert!(!on && said.contains("none of the pages was kept"), "{said}");
    let personal = Facts {
        personal: true,
        ..facts(&arms, &home, &[])
    };
    assert!(!ask(&personal, true).0);
}

#[test]
fn as_fast_with_fewer_children_is_mentioned_and_not_chosen() {
    let arms = arms();
    let two = Some(Choice {
        children: Some(2),
        ..Choice::DEFAULT
    });
    let mut choice = Choice::DEFAULT;
    let (same, _) = judged(12, 1.0);
    let said = children(
        &facts(&arms, &[], &[]),
        &mut choice,
        two,
        Some(&same),
        false,
    );
    assert!(said.contains("2 are as fast, if memory is short"), "{said}");
    assert_eq!(choice.children, None);
    let said = children(&facts(&arms, &[], &[]), &mut choice, two, None, true);
    assert_eq!(
        (said.as_str(), choice.children),
        ("max_children = 2", Some(2))
    );
}

#[test]
fn a_challenger_that_outran_the_load_tester_is_still_faster() {
    let (mut judgement, _) = judged(8, 5.0);
    let bound = Invalid::GeneratorBound {
        evidence: "97 % of a core".to_owned(),
    };
    judgement.verdict = Verdict::Invalid {
        because: vec![bound.clone()],
    };
    assert!(is_better(&judgement, false));
    assert!(
        !is_better(&judgement, true),
        "the default's own rate is unknown, too"
    );
    judgement.verdict = Verdict::Invalid {
        because: vec![bound, Invalid::ForeignLoad { share: 0.5 }],
    };
    assert!(!is_better(&judgement, false));
}

#[test]
fn without_figures_the_default_stays_and_every_question_says_why() {
    let arms = arms();
    let look = look();
    let facts = Facts {
        look: &look,
        ..facts(&arms, &[], &[])
    };
    let advice = advise(&facts);
    assert_eq!(advice.choice, Choice::DEFAULT);
    assert_eq!(advice.decisions.len(), 4);
    for decision in &advice.decisions {
        assert!(
            decision.evidence.contains("was not measured"),
            "{decision:?}"
        );
    }
}
