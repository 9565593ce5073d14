//! Counts are exact: the requested number is sent, and every request that was sent is counted.

use std::time::Duration;

use howdah_bench::engine::null::{NullServer, RequestEnd};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::plan::{Arrivals, HttpProtocol, LoadTarget, Plan, Spacing, StopLimits};
use howdah_bench::run::RunEnd;

fn server(keep: bool) -> NullServer {
    NullServer::start(RequestEnd::EmptyLine, NullServer::response(24), keep).unwrap()
}

fn plan(server: &NullServer, arrivals: Arrivals, stop: StopLimits) -> Plan {
    let target = LoadTarget::parse(&format!("http://{}/x", server.address())).unwrap();
    Plan::new(target, arrivals, stop)
}

fn requests(n: u64) -> StopLimits {
    StopLimits {
        requests: Some(n),
        time: None,
    }
}

#[test]
fn closed_loop_sends_the_requested_number() {
    for (threads, concurrency, n) in [(1, 1, 1), (1, 10, 1000), (2, 7, 999), (3, 3, 3)] {
        let server = server(true);
        let mut plan = plan(&server, Arrivals::Closed { concurrency }, requests(n));
        plan.threads = threads;
        let run = run(&plan, RunControl::default()).unwrap();
        run.balance().unwrap();
        assert_eq!((run.good(), run.sent, run.begun), (n, n, n));
        assert_eq!(run.errors(), 0, "{:?}", run.reasons);
        assert_eq!(run.ended, RunEnd::Requests);
        assert_eq!(run.document.first_length, Some(24));
        // A client that starts late, when the last requests have been issued, never connects.
        let opened = run.connections.opened;
        assert!((1..=u64::from(concurrency)).contains(&opened), "{opened}");
        assert_eq!(run.connections.reused, n - opened);
        assert_eq!(run.seconds.iter().map(|s| s.good()).sum::<u64>(), n);
    }
}

#[test]
fn keep_alive_off_uses_a_connection_per_request() {
    for protocol in [HttpProtocol::Http10, HttpProtocol::Http11] {
        let server = server(false);
        let mut plan = plan(&server, Arrivals::Closed { concurrency: 5 }, requests(200));
        plan.connection.keep_alive = false;
        plan.connection.protocol = protocol;
        let run = run(&plan, RunControl::default()).unwrap();
        run.balance().unwrap();
        assert_eq!(run.good(), 200, "{:?}", run.outcomes.keys());
        assert_eq!((run.connections.opened, run.connections.reused), (200, 0));
        assert_eq!(run.phases.connect.len(), 200);
    }
}

#[test]
fn open_loop_sends_at_its_rate() {
    for spacing in [Spacing::Constant, Spacing::Poisson] {
        let server = server(true);
        let arrivals = Arrivals::Open {
            rate: 2000.0,
            spacing,
            max_connections: 50,
        };
        let run = run(
            &plan(&server, arrivals, requests(1000)),
            RunControl::default(),
        )
        .unwrap();
        run.balance().unwrap();
        assert_eq!((run.due, run.good()), (1000, 1000));
        assert_eq!(run.send_lag.len(), 1000);
        assert!(run.elapsed > 0.4, "{} s", run.elapsed);
    }
}

#[test]
fn requests_in_flight_at_the_end_are_counted() {
    let server = server(true);
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_millis(300)),
    };
    let mut plan = plan(&server, Arrivals::Closed { concurrency: 20 }, stop);
    plan.warmup = Duration::from_millis(100);
    let run = run(&plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    assert_eq!(run.ended, RunEnd::Time);
    assert!(run.warmup.good > 0 && run.good() > 0);
    // Requests of the warm-up that are answered in the measured part count as work of that part.
    assert!(run.warmup.carried_good <= 20, "{:?}", run.warmup);
    let answered = run.good() + run.warmup.carried_good;
    assert!((run.good_rate() * run.elapsed - answered as f64).abs() < 1e-6);
    assert!((0.19..5.0).contains(&run.elapsed), "{} s", run.elapsed);
}

#[test]
fn run_round_trips_through_json() {
    let server = server(true);
    let plan = plan(&server, Arrivals::Closed { concurrency: 2 }, requests(20));
    let run = run(&plan, RunControl::default()).unwrap();
    let text = serde_json::to_string(&run).unwrap();
    let back: howdah_bench::run::Run = serde_json::from_str(&text).unwrap();
    back.balance().unwrap();
    assert_eq!(back.good(), 20);
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn plan_errors_are_named_before_sending() {
    let server = server(true);
    let closed = Arrivals::Closed { concurrency: 10 };
    let few = run(&plan(&server, closed, requests(9)), RunControl::default()).unwrap_err();
    assert_eq!(few.name(), "Impossible");
    assert!(
        few.to_string()
            .contains("10 clients cannot share 9 requests"),
        "{few}"
    );
    let endless = run(
        &plan(&server, closed, StopLimits::default()),
        RunControl::default(),
    )
    .unwrap_err();
    assert!(endless.to_string().contains("needs an end"), "{endless}");
    let address = server.address();
    let refused = plan(&server, closed, requests(10));
    drop(server);
    let refused = run(&refused, RunControl::default()).unwrap_err();
    assert_eq!((refused.name(), refused.exit_code()), ("Unreachable", 6));
    assert!(
        refused.to_string().contains(&address.to_string()),
        "{refused}"
    );
    let nobody = LoadTarget::parse("http://nobody.invalid/").unwrap();
    let dns = run(
        &Plan::new(nobody, closed, requests(10)),
        RunControl::default(),
    )
    .unwrap_err();
    assert_eq!((dns.name(), dns.exit_code()), ("Dns", 6));
}

#[test]
fn server_is_sampled_every_second_and_at_the_end() {
    let server = server(true);
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_millis(1200)),
    };
    let mut plan = plan(&server, Arrivals::Closed { concurrency: 4 }, stop);
    // The null server is a thread of this process.
    plan.observe.pid = Some(std::process::id());
    let run = run(&plan, RunControl::default()).unwrap();
    assert!((1..=2).contains(&run.server.len()), "{:?}", run.server);
    for sample in &run.server {
        let process = sample.process.unwrap();
        assert!(process.cpu > 0.0 && process.resident > 0, "{sample:?}");
        assert!(sample.at >= 1.0 && sample.missing.is_none());
    }
}
