//! The page with plots, opened in real Chromium: nothing is loaded from elsewhere, nothing is wider than a phone, dark,
//! light and paper differ as they should, and the pictures contain the measurements.

mod chromium;
mod runs;

use std::sync::LazyLock;

use chromium::Gallery;
use howdah_bench::experiment::{SavedDocument, Search, Trial};
use howdah_bench::outcome::Outcome;
use howdah_bench::report::experiments;
use howdah_bench::report::html::page;
use howdah_bench::report::text::ReportStyle;
use howdah_bench::slo::Slo;
use runs::{RunBuilder, comparison_of_pairs, mostly_errors_run, sweep_of_rates};

fn page_of(document: &SavedDocument) -> String {
    page(
        document,
        &experiments::report(document, ReportStyle::default()),
    )
}

fn run() -> SavedDocument {
    SavedDocument::Run(
        RunBuilder::closed(50, 30.0)
            .ended(Outcome::Good, 60_000, 200, 11.0, 0.4)
            .ended(Outcome::Good, 300, 200, 400.0, 0.3)
            .ended(Outcome::Status5xx, 2400, 502, 1.5, 0.3)
            .ended(Outcome::Timeout, 40, 0, 2000.0, 0.01)
            .build(),
    )
}

fn sweep() -> SavedDocument {
    let rates = [
        (1, 610.0),
        (2, 1180.0),
        (4, 2100.0),
        (8, 3050.0),
        (16, 3500.0),
        (32, 3420.0),
        (64, 3100.0),
        (128, 2500.0),
        (256, 1700.0),
    ];
    SavedDocument::Sweep(sweep_of_rates(&rates, 128))
}

fn search() -> SavedDocument {
    let trial = |rate: f64, broken: &[&str]| Trial {
        rate,
        confirming: false,
        broken: broken.iter().map(|b| (*b).to_owned()).collect(),
        run: RunBuilder::open(rate, 3.0)
            .ended(
                Outcome::Good,
                (rate.min(900.0) * 3.0) as u64,
                200,
                rate / 40.0,
                0.3,
            )
            .build(),
    };
    SavedDocument::Search(Search {
        slo: Slo::parse("p99<50ms,errors<0.1%").unwrap(),
        trials: vec![
            trial(250.0, &[]),
            trial(500.0, &[]),
            trial(1000.0, &["p99"]),
            trial(750.0, &[]),
            trial(875.0, &["p99"]),
        ],
        found: Some(750.0),
        limited_by: None,
    })
}

/// A page of each kind.
static PAGES: LazyLock<Gallery> = LazyLock::new(|| {
    Gallery::of(
        [
            ("run", run()),
            ("errors", SavedDocument::Run(mostly_errors_run())),
            (
                "comparison",
                SavedDocument::Comparison(comparison_of_pairs(10, 1.10, 0.03)),
            ),
            ("sweep", sweep()),
            ("search", search()),
        ]
        .map(|(name, document)| (name, page_of(&document))),
    )
});

#[test]
fn page_is_readable_on_desktop_and_phone() {
    for width in [1200, 380] {
        let seen = PAGES.seen(width);
        for name in PAGES.names() {
            let page = &seen[name];
            let at = format!("{name} at {width}: {page}");
            assert!(page["figures"].as_u64().unwrap() >= 2, "{at}");
            // Each plot occurs once, and is shown.
            assert_eq!(page["plots"], page["figures"], "{at}");
            assert_eq!(page["drawn"], page["plots"], "{at}");
            assert_eq!(page["outside"], serde_json::json!([]), "{at}");
            assert_eq!(page["cut"], serde_json::json!([]), "{at}");
            assert_eq!(page["overlaps"], 0, "{at}");
            assert_eq!(page["loaded"], 0, "{at}");
            assert!(page["width"].as_u64().unwrap() <= u64::from(width), "{at}");
            assert!(page["smallest"].as_f64().unwrap() >= 9.5, "{at}");
        }
        assert_eq!(seen["comparison"]["background"], "rgb(251, 250, 247)");
        assert!(
            seen["sweep"]["title"]
                .as_str()
                .unwrap()
                .starts_with("Saturated at 16 clients"),
            "{seen}"
        );
    }
}

#[test]
fn page_picture_is_not_blank_and_dark_is_dark() {
    // A blank picture of this size takes less than 10 KB.
    PAGES.picture("run", (1100, 1400), 40_000, &[]);
    let dark = "--blink-settings=preferredColorScheme=0";
    PAGES.picture("comparison", (1100, 1400), 40_000, &[dark]);
}

#[test]
fn page_is_self_contained_and_runs_nothing() {
    PAGES.assert_complete(300_000);
}

#[test]
fn page_escapes_text_from_the_server() {
    let run = RunBuilder::closed(2, 3.0)
        .ended(Outcome::Good, 200, 200, 5.0, 0.2)
        .with(|run| {
            run.document.server = Some("<script>alert(1)</script>".into());
            run.command.push("--expect-body=<img onerror=x>".into());
        })
        .build();
    let html = page_of(&SavedDocument::Run(run));
    assert!(
        !html.contains("<script") && !html.contains("<img"),
        "{html}"
    );
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
}

#[test]
fn page_exists_for_a_run_without_good_responses() {
    let run = RunBuilder::closed(2, 3.0)
        .ended(Outcome::ConnectRefused, 200, 0, 0.1, 0.2)
        .build();
    let html = page_of(&SavedDocument::Run(run));
    assert!(
        html.contains("<h1>No good response to 200 requests</h1>"),
        "{html}"
    );
    assert!(!html.contains("NaN"), "{html}");
}
