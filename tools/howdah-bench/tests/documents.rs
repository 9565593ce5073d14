//! The documentation of the load tester is complete: every field of the JSON, every outcome, every reason for an
//! invalid comparison.

mod runs;

use std::collections::BTreeSet;

use howdah_bench::experiment::{SavedDocument, Search, Trial};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::Arrivals;
use howdah_bench::plan::check::{BodyCheck, BodyPattern};
use howdah_bench::run::ServerSample;
use howdah_bench::run::server_side::{HowdahStatus, ProcessUse};
use howdah_bench::slo::Slo;
use runs::{RunBuilder, comparison_of_pairs, sweep_of_rates};
use serde_json::Value;

fn page(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Collects the names of all fields, except those that are data (outcomes, statuses, reasons).
fn fields(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let data = name.chars().next().is_some_and(|c| !c.is_ascii_lowercase());
                if !data {
                    into.insert(name.clone());
                }
                fields(value, into);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| fields(value, into)),
        _ => {}
    }
}

#[test]
fn every_field_of_the_json_is_documented() {
    let run = RunBuilder::closed(2, 2.0)
        .ended(Outcome::Good, 100, 200, 5.0, 0.2)
        .with(|run| {
            run.server.push(ServerSample {
                at: 1.0,
                process: Some(ProcessUse::default()),
                howdah: Some(HowdahStatus::default()),
                missing: None,
            });
            run.plan.checks.body = vec![
                BodyCheck::Contains("a".into()),
                BodyCheck::ContainsNot("b".into()),
                BodyCheck::Matches(BodyPattern::new("c").unwrap()),
                BodyCheck::Json {
                    pointer: "/d".into(),
                    equals: None,
                },
            ];
        })
        .build();
    let open = RunBuilder::open(50.0, 2.0)
        .ended(Outcome::Good, 100, 200, 5.0, 0.2)
        .build();
    assert!(matches!(open.plan.arrivals, Arrivals::Open { .. }));
    let mut names = BTreeSet::new();
    for document in [
        SavedDocument::Run(run),
        SavedDocument::Comparison(comparison_of_pairs(1, 1.0, 0.0)),
        SavedDocument::Sweep(sweep_of_rates(&[(1, 10.0)], 9)),
        SavedDocument::Search(Search {
            slo: Slo::parse("p50<1s").unwrap(),
            trials: vec![Trial {
                rate: 50.0,
                confirming: false,
                broken: vec![],
                run: open,
            }],
            found: None,
            limited_by: None,
        }),
    ] {
        let json: Value = serde_json::from_str(&document.to_json()).unwrap();
        fields(&json, &mut names);
    }
    let page = page("bench-json.md");
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(names.len() > 100, "{names:?}");
    assert_eq!(missing, Vec::<&String>::new(), "not in docs/bench-json.md");
}

#[test]
fn every_outcome_is_documented() {
    let page = page("bench.md");
    for outcome in Outcome::ALL {
        let ranged = matches!(
            outcome,
            Outcome::Good | Outcome::Status3xx | Outcome::Status4xx
        );
        assert!(
            ranged || page.contains(&format!("`{outcome}`")),
            "{outcome} is not in docs/bench.md"
        );
    }
}

#[test]
fn every_reason_for_an_invalid_comparison_is_documented() {
    let page = page("bench.md");
    for name in howdah_bench::stats::InvalidReason::NAMES {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} is not in docs/bench.md"
        );
    }
}
