//! Replays of access logs, against a server that records what it is asked for.

mod faulty;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faulty::{Faulty, FaultyReply};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::{Arrivals, LoadTarget, LogSource, Plan, StopLimits};
use howdah_bench::report::replay::{has_met_arrivals, verdict};
use howdah_bench::report::text::{ReportStyle, report};
use howdah_bench::run::replay::StatusChange;
use howdah_bench::run::{Run, RunEnd};

/// A request that the server got: when, and its request line.
type Received = (Instant, String);

/// Starts a server that responds with 404 to `/gone`, with 500 to `/broken`, and otherwise with 200.
fn server() -> (Faulty, Arc<Mutex<Vec<Received>>>) {
    let received: Arc<Mutex<Vec<Received>>> = Arc::default();
    let list = received.clone();
    let server = Faulty::start(move |request| {
        let mut list = list.lock().unwrap();
        list.push((Instant::now(), request.line.clone()));
        match request.line.split(' ').nth(1) {
            Some("/gone") => FaultyReply::Status(404, "gone".to_owned()),
            Some("/broken") => FaultyReply::Status(500, "broken".to_owned()),
            _ if request.line.starts_with("HEAD ") => {
                FaultyReply::BytesAndStay(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec())
            }
            _ => FaultyReply::Ok("a page".to_owned()),
        }
    });
    (server, received)
}

fn plan(url: &str, log: &Path, speed: f64) -> Plan {
    let arrivals = Arrivals::Log {
        speed,
        max_connections: 50,
    };
    let mut plan = Plan::new(
        LoadTarget::parse(url).unwrap(),
        arrivals,
        StopLimits::default(),
    );
    plan.log = Some(LogSource {
        path: log.to_owned(),
        expects_logged_status: true,
    });
    plan
}

#[track_caller]
fn measure(plan: &Plan) -> Run {
    let run = run(plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    run
}

/// A line of Howdah's JSON log, at this time in milliseconds.
fn json(at: u64, method: &str, target: &str, status: u16) -> String {
    format!(
        "{{\"time\":\"2026-11-29T09:03:{:02}.{:03}Z\",\"host\":\"other.example\",\"method\":\"{method}\",\
         \"target\":\"{target}\",\"status\":{status},\"request_time\":0.0}}\n",
        at / 1000,
        at % 1000
    )
}

fn write(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn replay_keeps_paths_methods_and_pauses() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (at, method, target) in [
        (0, "GET", "/a?x=1"),
        (600, "HEAD", "/b"),
        (700, "POST", "/form"),
        (900, "GET", "/c"),
        (3000, "GET", "/d"),
    ] {
        text += &json(at, method, target, 200);
    }
    let log = write(&directory, &text);
    for (speed, threads) in [(1.0, 1), (10.0, 2)] {
        let (server, received) = server();
        let mut plan = plan(&server.url, &log, speed);
        plan.threads = threads;
        let run = measure(&plan);
        assert_eq!((run.good(), run.errors(), run.unsent), (4, 0, 0));
        assert_eq!(run.ended, RunEnd::Requests);
        let mut received = received.lock().unwrap();
        // On a busy machine, requests that are due shortly after each other may arrive in another order.
        received.sort_by_key(|(_, line)| line.split(['/', '?']).nth(1).map(str::to_owned));
        let lines: Vec<&str> = received.iter().map(|(_, line)| line.as_str()).collect();
        let expected = ["GET /a?x=1", "HEAD /b", "GET /c", "GET /d"];
        assert_eq!(lines, expected.map(|line| format!("{line} HTTP/1.1")));
        for ((at, _), due) in received.iter().zip([0.0, 0.6, 0.9, 3.0]) {
            let offset = at.duration_since(received[0].0).as_secs_f64();
            let due = due / speed;
            assert!((offset - due).abs() < 0.15, "{offset} s, due at {due} s");
        }
        let replay = run.replay.as_ref().unwrap();
        assert_eq!((replay.same, replay.changed.len()), (4, 0));
        assert_eq!(replay.log.other_methods["POST"], 1);
        assert_eq!(replay.lateness.len(), 4);
        // On a busy machine the requests may be late.
        let [arrivals, _] = verdict(&run, replay);
        let met = has_met_arrivals(&run, replay);
        assert_eq!(met, arrivals.starts_with("as in the log: 99 % of"));
        let text = report(&run, ReportStyle::default());
        for part in [
            "Replay of ",
            "  arrivals      ",
            "statuses      4 responses as in the log",
            "4 requests of 5 lines, from 2026-11-29 09:03:00 UTC, 3.00 s of the log",
            "left out      1 POST",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
    }
}

#[test]
fn replay_compares_statuses_with_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for n in 0..30 {
        text += &json(n, "GET", "/gone", 200);
    }
    text += &json(30, "GET", "/gone", 404);
    text += &json(31, "GET", "/broken", 500);
    text += &json(32, "GET", "/page", 304);
    text += &json(33, "GET", "/page", 499);
    text += &json(34, "GET", "/page", 301);
    let log = write(&directory, &text);
    let (server, _) = server();
    let mut plan = plan(&server.url, &log, 1.0);
    let run = measure(&plan);
    let replay = run.replay.as_ref().unwrap();
    assert_eq!((replay.same, replay.without_response), (4, 0));
    let change = |logged, now| replay.changed.get(&StatusChange { logged, now });
    assert_eq!((change(200, 404), change(301, 200)), (Some(&30), Some(&1)));
    let lines: Vec<u64> = replay.changes.iter().map(|change| change.line).collect();
    assert_eq!(lines, (1..=10).collect::<Vec<u64>>());
    assert_eq!(replay.changes[0].target, "/gone");
    // An error that the log has as well is as in the log, and is no good response.
    assert_eq!((run.good(), run.count(Outcome::Status5xx)), (3, 1));
    assert_eq!(run.count(Outcome::Status4xx), 30);
    let by_status: Vec<(u16, u64)> = replay
        .statuses
        .iter()
        .map(|(status, latency)| (*status, latency.len()))
        .collect();
    assert_eq!(by_status, [(200, 3), (404, 31), (500, 1)]);
    let text = report(&run, ReportStyle::default());
    for part in [
        "31 of 35 responses differ from the log",
        "200 in the log, 404 now: 30",
        "line 10: GET /gone: 200 in the log, 404 now",
        "  404              31",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let json = serde_json::to_string(&run).unwrap();
    let saved: Run = serde_json::from_str(&json).unwrap();
    assert_eq!(saved.replay, run.replay);
    assert!(json.contains("\"200 > 404\":30"), "{json}");

    plan.log.as_mut().unwrap().expects_logged_status = false;
    let by_status = measure(&plan);
    assert_eq!(by_status.good(), 3);
    assert_eq!(by_status.count(Outcome::Status4xx), 31);
}

#[test]
fn replay_that_cannot_keep_up_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let text: String = (0..200).map(|n| json(n * 5, "GET", "/", 200)).collect();
    let log = write(&directory, &text);
    let server = Faulty::start(|_| {
        std::thread::sleep(Duration::from_millis(20));
        FaultyReply::Ok("slow".to_owned())
    });
    let mut plan = plan(&server.url, &log, 10.0);
    plan.arrivals = Arrivals::Log {
        speed: 10.0,
        max_connections: 1,
    };
    let run = measure(&plan);
    let replay = run.replay.as_ref().unwrap();
    assert!(!has_met_arrivals(&run, replay));
    let [arrivals, _] = verdict(&run, replay);
    assert!(arrivals.contains("NOT as in the log"), "{arrivals}");
    assert!(arrivals.contains("all 1 connection"), "{arrivals}");
    // The wait for a connection counts as latency.
    assert!(run.latency().quantile(0.9) > 1_000_000_000);
}

#[test]
fn replay_takes_paths_below_the_given_url_and_stops_at_limits() {
    let directory = tempfile::tempdir().unwrap();
    let text: String = (0..5000).map(|n| json(n * 4, "GET", "/x", 200)).collect();
    let log = write(&directory, &text);
    let (server, received) = server();
    let mut plan = plan(&format!("{}staging/", server.url), &log, 10.0);
    plan.stop.requests = Some(20);
    assert_eq!(measure(&plan).good(), 20);
    let first = received.lock().unwrap()[0].1.clone();
    assert_eq!(first, "GET /staging/x HTTP/1.1");
    plan.stop.requests = None;
    plan.stop.time = Some(Duration::from_millis(300));
    let run = measure(&plan);
    assert_eq!(run.ended, RunEnd::Time);
    assert!(run.good() < 5000);
    assert!(run.replay.unwrap().log.lines > 20);
}

#[test]
fn logs_without_requests_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let log = write(&directory, "nonsense\nmore of it\n");
    let refused = |plan: &Plan| run(plan, RunControl::default()).unwrap_err();
    let plan = plan("http://127.0.0.1:9/", &log, 1.0);
    let error = refused(&plan);
    assert_eq!((error.name(), error.exit_code()), ("Impossible", 2));
    let text = error.to_string();
    assert!(text.contains("2 with no time (first in line 1)"), "{text}");
    let mut missing = plan.clone();
    missing.log.as_mut().unwrap().path = directory.path().join("missing.log");
    assert_eq!(refused(&missing).name(), "MissingFile");
    let mut fast = plan.clone();
    fast.arrivals = Arrivals::Log {
        speed: 11.0,
        max_connections: 1,
    };
    assert!(refused(&fast).to_string().contains("--speed 11"));
    let mut query = plan;
    query.targets = vec![LoadTarget::parse("http://127.0.0.1:9/?a").unwrap()];
    assert!(
        refused(&query)
            .to_string()
            .contains("must not have a query")
    );
}
