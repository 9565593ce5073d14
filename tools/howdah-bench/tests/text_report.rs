//! The report on standard output for runs with known figures: as a whole in golden files, and its most important
//! sentences one by one.

mod runs;

use howdah_bench::experiment::{SavedDocument, Search, Trial};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::Arrivals;
use howdah_bench::report::text::{ReportStyle, report};
use howdah_bench::report::{ab::AbFigures, experiments, misled};
use howdah_bench::run::{Run, RunEnd};
use howdah_bench::slo::Slo;
use runs::{
    RunBuilder, assert_golden, comparison_of_pairs, healthy_run, mostly_errors_run, sweep_of_rates,
    varying_lengths_run,
};

#[test]
fn report_of_a_healthy_run_matches_ab() {
    assert_golden(
        "healthy.txt",
        &report(&healthy_run(), ReportStyle::default()),
    );
}

#[test]
fn report_of_error_pages_shows_what_ab_would_print() {
    assert_golden(
        "mostly_errors.txt",
        &report(&mostly_errors_run(), ReportStyle::default()),
    );
}

#[test]
fn report_of_an_open_loop_has_three_rates() {
    let run = RunBuilder::open(500.0, 6.0)
        .ended(Outcome::Good, 2880, 200, 12.0, 0.5)
        .ended(Outcome::Timeout, 20, 0, 1000.0, 0.01)
        .with(|run| {
            run.unsent = 100;
            run.due += 100;
            run.ended = RunEnd::Interrupted;
            run.send_lag.record(120_000);
        })
        .build();
    assert_golden("open_loop.txt", &report(&run, ReportStyle::default()));
}

#[track_caller]
fn says(run: &Run, sentences: &[&str]) {
    let text = report(run, ReportStyle::default());
    for sentence in sentences {
        assert!(text.contains(sentence), "no {sentence:?} in:\n{text}");
    }
}

/// The fields that scripts search for have the same names, the same order, and the number first.
#[test]
fn report_has_the_fields_of_ab_in_order() {
    let text = report(&mostly_errors_run(), ReportStyle::default());
    let mut rest = text.as_str();
    for field in [
        "Server Software:        ",
        "Server Hostname:        ",
        "Server Port:            ",
        "Document Path:          ",
        "Document Length:        ",
        "Concurrency Level:      ",
        "Time taken for tests:   ",
        "Complete requests:      10000",
        "Failed requests:        8603",
        "   (Connect: 0, Receive: 0, Length: 0, Exceptions: 8603)",
        "Non-2xx responses:      8603",
        "Keep-Alive requests:    ",
        "Total transferred:      ",
        "HTML transferred:       ",
        "Requests per second:    789.27 [#/sec] (mean)",
        "Time per request:       ",
        "Time per request:       ",
        "Transfer rate:          ",
        "Connection Times (ms)",
        "Connect: ",
        "Processing: ",
        "Waiting: ",
        "Total: ",
        "Percentage of the requests served within a certain time (ms)",
        "  50%  ",
        "  99%  ",
        " 100%  ",
    ] {
        let at = rest.find(field);
        assert!(
            at.is_some(),
            "{field:?} is not after what came before:\n{rest}"
        );
        rest = &rest[at.unwrap_or_default()..];
    }
}

#[test]
fn report_names_the_bottleneck_first() {
    let run = RunBuilder::closed(100, 5.0)
        .ended(Outcome::Good, 50_000, 200, 9.8, 0.2)
        .with(|run| {
            run.client.threads[0].cpu = 0.96;
            run.client.ceiling = Some(11_000.0);
        })
        .build();
    let text = report(&run, ReportStyle::default());
    assert!(
        text.starts_with(
            "THE LOAD TESTER WAS THE BOTTLENECK: it reaches 11000 requests per second"
        ),
        "{text}"
    );
    assert!(text.contains("it used 96 % of a core"), "{text}");
}

#[test]
fn report_shows_client_time_by_littles_law() {
    let run = RunBuilder::closed(10, 5.0)
        .ended(Outcome::Good, 5000, 200, 7.0, 0.05)
        .build();
    says(
        &run,
        &["according to Little's law, the clients spent 30 % of their time outside of requests"],
    );
}

#[test]
fn report_of_varying_lengths_has_no_failures() {
    let run = varying_lengths_run();
    says(
        &run,
        &[
            "Failed requests:        0\n",
            "Document Length:        21004 to 21377 bytes",
            "ab's \"Failed requests (Length)\" would say 2970: 2970 of these were good responses whose length \
             (21004 to 21377 bytes) differs from the first response's: a dynamic \
             page's length varies.",
        ],
    );
}

#[test]
fn report_names_a_bimodal_latency() {
    let run = RunBuilder::closed(10, 6.0)
        .ended(Outcome::Good, 2000, 200, 0.4, 0.1)
        .ended(Outcome::Good, 1000, 200, 29.0, 0.1)
        .build();
    let lines = misled::misleading_figures(&run);
    let line = lines.iter().find(|l| l.figure == "Total (mean)").unwrap();
    assert!(
        line.truth.starts_with("no request took about that long"),
        "{line:?}"
    );
}

#[test]
fn ab_figures_follow_abs_arithmetic() {
    let ab = AbFigures::of(&mostly_errors_run());
    assert_eq!(ab.complete, 10_000);
    // The first response was an error page, so for ab the good ones have the wrong length.
    assert_eq!(ab.length, 1397);
    assert_eq!(ab.non_2xx, 8603);
    assert!((ab.per_second - 5649.7).abs() < 0.1);
    assert!((ab.per_request_ms - 88.5).abs() < 0.01);
}

#[test]
fn report_of_a_healthy_run_has_no_misleading_figures() {
    assert_eq!(misled::misleading_figures(&healthy_run()), []);
}

#[test]
fn ab_figures_abort_after_ten_failed_connects() {
    let run = RunBuilder::closed(10, 5.0)
        .ended(Outcome::ConnectBacklog, 2000, 0, 0.1, 0.1)
        .ended(Outcome::Good, 3000, 200, 10.0, 0.2)
        .build();
    says(
        &run,
        &[
            "would say nothing (\"Test aborted after 10 failures\"): 2000 requests could not connect, but 3000 got \
             good responses.",
        ],
    );
}

#[test]
fn report_says_that_keep_alive_was_refused() {
    let run = RunBuilder::closed(10, 5.0)
        .ended(Outcome::Good, 3000, 200, 10.0, 0.2)
        .with(|run| {
            run.connections.kept = 0;
            run.connections.refused_to_keep = 3000;
        })
        .build();
    says(
        &run,
        &[
            "ab's \"Keep-Alive requests\" would say 0: the server closed the connection after 3000 of 3000 responses",
        ],
    );
}

#[test]
fn report_shows_a_request_that_hangs_at_the_end() {
    let run = RunBuilder::closed(10, 5.0)
        .ended(Outcome::Good, 3000, 200, 10.0, 0.2)
        .with(|run| {
            run.in_flight.count = 1;
            run.in_flight.oldest = 4.2;
            run.begun += 1;
            run.due += 1;
        })
        .build();
    says(
        &run,
        &[
            "1 request still without a response (the server may log it); the oldest had waited for 4.20 s",
            "ab's \"100% (longest request)\" would say",
        ],
    );
}

#[test]
fn report_explains_a_stall_in_a_closed_loop() {
    let run = RunBuilder::closed(10, 6.0)
        .ended(Outcome::Good, 13_000, 200, 4.0, 0.1)
        .ended(Outcome::Good, 10, 200, 1400.0, 0.001)
        .build();
    let lines = misled::misleading_figures(&run);
    let stall = lines.iter().find(|l| l.figure == "99%").unwrap();
    assert!(
        stall
            .truth
            .starts_with("a stall of 1.40 s counts at most once for each of the 10 clients"),
        "{stall:?}"
    );
}

#[test]
fn report_skips_percentiles_with_few_samples() {
    says(
        &healthy_run(),
        &["p99.9 8.", "; p99.99 needs 100000 good responses"],
    );
}

#[test]
fn report_without_good_responses_has_no_times() {
    let run = RunBuilder::closed(2, 1.0)
        .ended(Outcome::ConnectRefused, 40, 0, 0.1, 0.1)
        .build();
    says(
        &run,
        &["There was no good response, so there are no times to report."],
    );
    assert!(!report(&run, ReportStyle::default()).contains("Requests per second:"));
}

#[test]
fn report_options_d_and_s_skip_the_same_as_ab() {
    let style = ReportStyle {
        percentiles: false,
        deviations: false,
        variable_length: true,
    };
    let text = report(&healthy_run(), style);
    assert!(!text.contains("Percentage of the requests served"));
    assert!(!text.contains("+/-sd"));
    assert!(text.contains("Document Length:        Variable"));
}

#[test]
fn comparison_report_begins_with_the_verdict() {
    assert_golden(
        "faster.txt",
        &experiments::comparison(&comparison_of_pairs(10, 1.10, 0.01)),
    );
    let text = experiments::comparison(&comparison_of_pairs(10, 1.0, 0.005));
    assert!(
        text.starts_with("A and B are the same within ±3.0 %."),
        "{text}"
    );
    let text = experiments::comparison(&comparison_of_pairs(4, 1.2, 0.05));
    assert!(
        text.starts_with("Cannot tell A and B apart yet: about "),
        "{text}"
    );
    assert!(text.contains("Measure again with --pairs "), "{text}");
}

#[test]
fn comparison_conditions_override_any_ratio() {
    type Spoil = fn(&mut Run);
    let cases: [(&str, Spoil); 6] = [
        ("error-rates", |run| {
            let tally = run.outcomes.remove(&Outcome::Good).unwrap();
            run.outcomes.insert(Outcome::Status5xx, tally);
        }),
        ("keep-alive-differs", |run| run.connections.kept = 0),
        ("protocol-differs", |run| {
            run.connections.protocol = Some("HTTP/1.0".into())
        }),
        ("generator-bound", |run| run.client.threads[0].cpu = 0.99),
        ("foreign-load", |run| run.client.steal = 0.5),
        ("plans-differ", |run| {
            run.plan.arrivals = Arrivals::Closed { concurrency: 11 };
        }),
    ];
    let sound = comparison_of_pairs(8, 3.0, 0.01);
    for (name, spoil) in cases {
        let mut comparison = sound.clone();
        for window in comparison.windows.iter_mut().filter(|w| w.arm == 2) {
            spoil(&mut window.run);
        }
        let judged = howdah_bench::report::judge::comparison(&comparison);
        let verdict = &judged[0].primary().verdict;
        let howdah_bench::stats::ComparisonVerdict::Invalid { because } = verdict else {
            panic!("{name}: {verdict:?}");
        };
        assert!(
            because.iter().any(|reason| reason.name() == name),
            "{name}: {because:?}"
        );
        let text = experiments::comparison(&comparison);
        assert!(text.starts_with("Invalid because "), "{text}");
    }
}

#[test]
fn sweep_report_names_the_knee() {
    let mod_php = [
        (10, 97.26),
        (30, 100.61),
        (50, 100.37),
        (100, 99.46),
        (150, 97.76),
        (200, 99.36),
        (250, 98.64),
        (300, 98.46),
        (400, 71.24),
        (500, 71.11),
    ];
    assert_golden(
        "sweep.txt",
        &experiments::sweep(&sweep_of_rates(&mod_php, 1000)),
    );
    let text = experiments::sweep(&sweep_of_rates(&mod_php, 200));
    assert!(
        text.contains("At 5 of 10 numbers of clients there were errors"),
        "{text}"
    );
}

#[test]
fn search_report_says_what_held_and_broke() {
    let slo = Slo::parse("p99<100ms,errors<0.1%").unwrap();
    let good = RunBuilder::open(100.0, 5.0)
        .ended(Outcome::Good, 500, 200, 20.0, 0.2)
        .build();
    let late = RunBuilder::open(200.0, 5.0)
        .ended(Outcome::Good, 900, 200, 20.0, 0.2)
        .with(|run| {
            run.unsent = 100;
            run.due += 100;
        })
        .build();
    assert_eq!(slo.broken_by(&good), Vec::<String>::new());
    // The responses that came were quick, but a tenth of the requests was not even sent.
    let broken = slo.broken_by(&late);
    assert_eq!(
        broken,
        ["only 90 % of the requests took no longer than 100.0 ms; the objective is 99 %"]
    );
    let trial = |rate, broken, run| Trial {
        rate,
        confirming: false,
        broken,
        run,
    };
    let search = Search {
        slo,
        trials: vec![trial(100.0, vec![], good), trial(200.0, broken, late)],
        found: Some(100.0),
        limited_by: None,
    };
    assert_golden("search.txt", &experiments::search(&search));
}

#[test]
fn saved_document_gives_the_same_report() {
    for document in [
        SavedDocument::Run(mostly_errors_run()),
        SavedDocument::Comparison(comparison_of_pairs(3, 1.1, 0.01)),
        SavedDocument::Sweep(sweep_of_rates(&[(1, 10.0), (2, 20.0), (4, 30.0)], 4)),
    ] {
        let json = document.to_json();
        assert!(
            json.starts_with(&format!(
                "{{\n  \"kind\": \"{}\",\n  \"schema\": 1",
                document.kind()
            )),
            "{}",
            &json[..80]
        );
        let back = SavedDocument::from_json(&json).unwrap();
        assert_eq!(
            experiments::report(&back, ReportStyle::default()),
            experiments::report(&document, ReportStyle::default())
        );
        assert_eq!(back.to_json(), json);
    }
}

#[test]
fn saved_document_errors_have_a_reason() {
    let good = SavedDocument::Run(healthy_run()).to_json();
    for (text, why) in [
        ("".to_owned(), "not a saved run of howdah bench"),
        ("{}".to_owned(), "`kind` and `schema` are missing"),
        (
            good.replace("\"schema\": 1", "\"schema\": 7"),
            "saved in format version 7",
        ),
        (
            good.replace("\"kind\": \"run\"", "\"kind\": \"x\""),
            "expected run, comparison, sweep or search",
        ),
        (
            good.replace("\"begun\": 14400", "\"begun\": 14401"),
            "the counts of a run do not add up",
        ),
        (
            good.replace("\"elapsed\"", "\"elapsd\""),
            "the run is damaged: missing field `elapsed`",
        ),
    ] {
        let error = SavedDocument::from_json(&text).unwrap_err();
        assert!(error.contains(why), "{why}: {error}");
    }
}
