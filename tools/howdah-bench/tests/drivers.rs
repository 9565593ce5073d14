//! Several runs: the order of measurements, and that the results are complete.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use howdah_bench::driver::{self, BenchSession, SearchOptions, SessionEvent, SweepOptions};
use howdah_bench::engine::null::{NullServer, RequestEnd};
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, StopLimits};
use howdah_bench::slo::Slo;

fn server() -> NullServer {
    NullServer::start(RequestEnd::EmptyLine, NullServer::response(24), true).unwrap()
}

fn plan(server: &NullServer, stop: StopLimits) -> Plan {
    let target = LoadTarget::parse(&format!("http://{}/", server.address())).unwrap();
    Plan::new(target, Arrivals::Closed { concurrency: 4 }, stop)
}

fn requests(n: u64) -> StopLimits {
    StopLimits {
        requests: Some(n),
        time: None,
    }
}

fn session(watch: &mut dyn FnMut(SessionEvent<'_>)) -> BenchSession<'_> {
    BenchSession {
        interrupt: Arc::new(AtomicBool::new(false)),
        command: vec!["bench".to_owned()],
        watch,
    }
}

#[test]
fn sweep_measures_every_level_the_requested_times() {
    let server = server();
    let options = SweepOptions {
        levels: vec![1, 2, 8],
        repetitions: 2,
        seed: 3,
    };
    let plan = plan(&server, requests(40));
    let sweep = driver::sweep(&plan, &options, &mut session(&mut |_| {})).unwrap();
    let mut seen: Vec<(u32, u32)> = sweep
        .points
        .iter()
        .map(|p| (p.repetition, p.concurrency))
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1), (0, 2), (0, 8), (1, 1), (1, 2), (1, 8)]);
    let too_many = SweepOptions {
        levels: vec![41],
        ..options
    };
    let error = driver::sweep(&plan, &too_many, &mut session(&mut |_| {})).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("41 clients cannot share 40 requests"),
        "{error}"
    );
}

#[test]
fn search_finds_a_rate_that_was_confirmed() {
    let server = server();
    let slo = Slo::parse("errors<50%").unwrap();
    let options = SearchOptions {
        trial: Duration::from_millis(150),
        max_connections: 2,
        resolution: 0.9,
        confirmations: 2,
        ..SearchOptions::default()
    };
    let plan = plan(&server, requests(40));
    let impossible = Slo::parse("p50<1us").unwrap();
    let search = driver::find_max(&plan, &impossible, options, &mut session(&mut |_| {})).unwrap();
    assert_eq!(search.found, None);
    assert!(search.trials.iter().all(|trial| !trial.broken.is_empty()));
    let search = driver::find_max(&plan, &slo, options, &mut session(&mut |_| {})).unwrap();
    let found = search
        .found
        .unwrap_or_else(|| panic!("{:?}", search.limited_by));
    for trial in search.trials.iter().rev().take(2) {
        assert!(trial.confirming && trial.broken.is_empty());
        assert_eq!(trial.rate, found);
    }
    // A rate that no server can sustain must not hold merely because nothing was sent that could fail.
    let broken = |t: &howdah_bench::experiment::Trial| !t.broken.is_empty();
    assert!(search.trials.iter().any(broken));
    assert!(
        search
            .trials
            .iter()
            .all(|trial| trial.run.balance().is_ok())
    );
}

#[test]
fn ceiling_is_the_rate_of_the_null_server() {
    let server = server();
    let mut plan = plan(&server, requests(4));
    let time = Duration::from_millis(200);
    for (method, body) in [("GET", ""), ("HEAD", ""), ("POST", "a=1&b={seq}")] {
        plan.request.method = method.to_owned();
        plan.request.body = body.as_bytes().to_vec();
        let ceiling = driver::ceiling(&plan, 1000, time, &mut session(&mut |_| {})).unwrap();
        assert!(ceiling.unwrap() > 100.0, "{method}: {ceiling:?}");
    }
    plan.connection.keep_alive = false;
    let ceiling = driver::ceiling(&plan, 1000, time, &mut session(&mut |_| {})).unwrap();
    assert!(ceiling.unwrap() > 10.0);
}
