//! The report states the truth about a server that fails in known ways. The figures of ab for the same server are shown
//! beside it.

mod faulty;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faulty::{Faulty, FaultyReply, ab, closed, measure, wrk};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::check::BodyCheck;
use howdah_bench::plan::{
    Arrivals, BacklogPolicy, OnSocketError, RequestTemplate, Spacing, StopLimits,
};
use howdah_bench::report::text::{ReportStyle, report};
use howdah_bench::run::RunEnd;

/// Starts a server that gives every `nth` request this reply, and the others a short page.
fn every(nth: u64, fault: FaultyReply) -> Faulty {
    Faulty::start(move |request| {
        if request.number.is_multiple_of(nth) {
            fault.clone()
        } else {
            FaultyReply::Ok("a page".to_owned())
        }
    })
}

/// Measures 1000 requests, of which every tenth fails: 900 are good, and 100 have one outcome.
#[track_caller]
fn one_in_ten(fault: FaultyReply, outcome: Outcome) -> howdah_bench::run::Run {
    let server = every(10, fault);
    let run = measure(&closed(&server.url, 4, 1000));
    assert_eq!(
        (run.good(), run.count(outcome)),
        (900, 100),
        "{:?}",
        run.outcomes.keys()
    );
    assert_eq!(
        (run.errors(), run.sent, server.requests()),
        (100, 1000, 1000)
    );
    assert_eq!(
        run.latency().len(),
        900,
        "errors are not among the latencies"
    );
    run
}

#[test]
fn throughput_excludes_error_pages() {
    let fault = FaultyReply::Status(502, "<h1>502 Bad Gateway</h1>".to_owned());
    let run = one_in_ten(fault.clone(), Outcome::Status5xx);
    assert_eq!(run.statuses[&502], 100);
    assert!(run.good_rate() < run.achieved_rate());
    // The success rate of oha is the share of responses with any status among all requests that ended, so it shows
    // nothing here.
    assert_eq!(run.answers(), run.ended_requests());
    let server_of_wrk = every(10, fault.clone());
    let (requests, not_2xx) = wrk(&server_of_wrk.url);
    let share = not_2xx as f64 / requests as f64;
    assert!(
        (0.09..0.11).contains(&share),
        "wrk's requests hold the errors: {share}"
    );
    assert!(requests.abs_diff(server_of_wrk.requests()) <= 4);
    let server = every(10, fault);
    let ab = ab(&["-n", "1000", "-c", "4", "-k", &server.url]);
    assert_eq!(
        ab.number("Complete requests"),
        1000,
        "ab counts them as throughput"
    );
    assert_eq!(ab.number("Non-2xx responses"), 100);
}

#[test]
fn length_that_varies_is_not_a_failure() {
    let varying =
        || Faulty::start(|request| FaultyReply::Ok("x".repeat((request.number % 10) as usize)));
    let server = varying();
    let run = measure(&closed(&server.url, 4, 1000));
    assert_eq!((run.good(), run.errors()), (1000, 0));
    assert_eq!(
        (run.document.shortest, run.document.longest),
        (Some(0), Some(9))
    );
    assert_eq!(run.document.other_length, 900);
    let server = varying();
    let ab = ab(&["-n", "1000", "-c", "4", "-k", &server.url]);
    assert_eq!(
        ab.failed("Length"),
        900,
        "ab takes them for failures: {}",
        ab.text
    );
}

#[test]
fn truncated_responses_are_found_wherever_they_end() {
    let head = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n";
    let short = format!("{head}Content-Length: 100\r\n\r\nonly a part");
    let chunks = format!("{head}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    for cut in [short.clone(), chunks, "HTTP/1.1 200 O".to_owned()] {
        one_in_ten(FaultyReply::Bytes(cut.into_bytes()), Outcome::Truncated);
    }
    let server = every(10, FaultyReply::Bytes(short.into_bytes()));
    let ab = ab(&["-n", "1000", "-c", "4", "-k", "-l", &server.url]);
    let complete = ab.number("Complete requests");
    assert_eq!(
        (complete, ab.number("Failed requests")),
        (1000, 0),
        "ab -l misses them"
    );
}

#[test]
fn connection_reset_and_early_close_are_distinct() {
    one_in_ten(FaultyReply::Reset, Outcome::Reset);
    one_in_ten(FaultyReply::Bytes(Vec::new()), Outcome::ClosedEarly);
    let server = every(10, FaultyReply::Reset);
    let ab = ab(&["-n", "1000", "-c", "4", "-k", &server.url]);
    assert!(
        !ab.ok && ab.errors.contains("reset"),
        "ab without -r gives up: {}",
        ab.text
    );
    let mut plan = closed(&server.url, 4, 1000);
    plan.on_socket_error = OnSocketError::Stop;
    let error = run(&plan, RunControl::default()).unwrap_err();
    assert_eq!((error.name(), error.exit_code()), ("SocketError", 1));
    assert!(error.to_string().contains("Reset"), "{error}");
}

#[test]
fn protocol_errors_are_named() {
    let run = one_in_ten(
        FaultyReply::Bytes(b"220 smtp ready\r\n".to_vec()),
        Outcome::ProtocolError,
    );
    let reason = "ProtocolError: the first line is not an HTTP status line";
    assert_eq!(run.reasons.get(reason), Some(&100), "{:?}", run.reasons);
    let surplus = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokand more";
    let run = one_in_ten(
        FaultyReply::BytesAndStay(surplus.into()),
        Outcome::ProtocolError,
    );
    assert!(
        run.reasons
            .keys()
            .all(|why| why.contains("longer than it declared")),
        "{:?}",
        run.reasons
    );
}

#[test]
fn timeout_affects_only_the_unanswered_request() {
    let server = every(50, FaultyReply::Nothing);
    let mut plan = closed(&server.url, 4, 200);
    plan.connection.timeout = Duration::from_millis(200);
    let run = measure(&plan);
    assert_eq!((run.good(), run.count(Outcome::Timeout)), (196, 4));
    let waited = &run.outcomes[&Outcome::Timeout].latency;
    assert!(waited.min() >= 199_000_000, "{} ns", waited.min());
}

#[test]
fn stall_counts_for_every_request_due_in_it() {
    let stall = Duration::from_millis(1400);
    let page = || Faulty::start(|_| FaultyReply::Ok("a page".to_owned()));
    let server = Arc::new(page());
    let mut plan = closed(&server.url, 1, 1);
    plan.stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs(3)),
    };
    plan.arrivals = Arrivals::Open {
        rate: 200.0,
        spacing: Spacing::Constant,
        max_connections: 8,
    };
    let stalls = server.clone();
    let mut once = |_: &howdah_bench::engine::RunProgress<'_>| {
        if stalls.is_not_stalled() {
            stalls.stall(stall);
        }
    };
    let control = RunControl {
        progress: Some(&mut once),
        ..RunControl::default()
    };
    let run = run(&plan, control).unwrap();
    run.balance().unwrap();
    // 1.4 s at 200/s: 280 requests were due in it. Half of them waited for 0.7 s and longer.
    let latency = run.latency();
    let over = |ms: u64| latency.len() - latency.count_up_to(ms * 1_000_000);
    assert!((240..=450).contains(&over(50)), "{} late", over(50));
    assert!((110..=300).contains(&over(700)), "{} over 0.7 s", over(700));
    assert!(latency.max() > 1_200_000_000);
    // A closed loop has one request per client in the stall, and never sees the others.
    let server = page();
    server.stall(stall);
    let run = measure(&closed(&server.url, 4, 2000));
    let latency = run.latency();
    let seen = latency.len() - latency.count_up_to(500_000_000);
    assert_eq!(seen, 4, "one for each client");
    let text = report(&run, ReportStyle::default());
    assert!(text.contains("ab's \"99%\" would say "), "{text}");
    assert!(text.contains(": a stall of "), "{text}");
    let server = page();
    server.stall(stall);
    let ab = ab(&["-n", "2000", "-c", "4", "-k", &server.url]);
    assert!(ab.number("95%") < 500, "ab shows no stall: {}", ab.text);
}

#[test]
fn backlog_of_a_unix_socket_is_counted_or_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pace = Duration::from_millis(2);
    let server = Faulty::slow_unix(directory.path().join("a.sock"), 4, pace);
    let run = measure(&closed(&server.url, 50, 2000));
    assert!(
        run.count(Outcome::ConnectBacklog) > 500,
        "{:?}",
        run.outcomes.keys()
    );
    assert_eq!(run.errors(), run.count(Outcome::ConnectBacklog));
    assert_eq!(
        (run.good(), run.sent),
        (server.requests(), server.requests())
    );
    assert_eq!(
        run.connections.backlog_full,
        run.count(Outcome::ConnectBacklog)
    );

    let server = Faulty::slow_unix(directory.path().join("b.sock"), 4, pace);
    let mut plan = closed(&server.url, 50, 300);
    plan.connection.backlog = BacklogPolicy::Wait;
    let run = measure(&plan);
    assert_eq!((run.good(), run.errors()), (300, 0));
    assert!(run.connections.backlog_full > 0);
    assert!(
        run.latency().max() > 50_000_000,
        "the wait is in the latency"
    );
}

#[test]
fn backlog_of_tcp_is_a_connect_timeout() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut plan = closed(&url, 6, 6);
    plan.connection.timeout = Duration::from_millis(300);
    let run = measure(&plan);
    let (connect, answer) = (
        run.count(Outcome::ConnectTimeout),
        run.count(Outcome::Timeout),
    );
    assert_eq!(connect + answer, 6, "{:?}", run.outcomes.keys());
    assert!(connect >= 3 && answer >= 1, "{connect} and {answer}");
}

#[test]
fn keep_alive_refusals_are_counted() {
    let server = Faulty::start(|_| FaultyReply::OkAndClose("a page".to_owned()));
    let run = measure(&closed(&server.url, 3, 200));
    assert_eq!(run.good(), 200, "{:?}", run.reasons);
    assert_eq!(
        (run.connections.refused_to_keep, run.connections.kept),
        (200, 0)
    );
    assert_eq!((run.connections.opened, server.accepted()), (200, 200));
}

/// This imitates Apache's prefork and its `lingering_close`: a process closes half of a connection and serves no other
/// client until this client has closed the rest, or two seconds have passed. A client that delays this measures itself.
#[test]
fn connection_closes_as_soon_as_the_server_has() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        // Connections are served one after the other, since there is one process.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let mut plan = closed(&url, 2, 60);
    plan.connection.keep_alive = false;
    // A delay of a second for each connection would take a minute in total.
    plan.stop.time = Some(std::time::Duration::from_secs(20));
    let run = measure(&plan);
    assert_eq!((run.good(), run.errors()), (60, 0), "{:?}", run.reasons);
}

#[test]
fn body_that_ends_with_the_connection_is_complete() {
    let bytes = b"HTTP/1.1 200 OK\r\n\r\nto the end".to_vec();
    let server = Faulty::start(move |_| FaultyReply::Bytes(bytes.clone()));
    let run = measure(&closed(&server.url, 3, 100));
    assert_eq!(
        (run.good(), run.document.without_length),
        (100, 100),
        "{:?}",
        run.reasons
    );
    assert_eq!(run.document.first_length, Some(10));
}

#[test]
fn idle_connection_closes_lose_no_request() {
    let server = Faulty::start(|request| {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        // Closes the connection without having announced it.
        if request.number.is_multiple_of(2) {
            FaultyReply::Bytes(page.into())
        } else {
            FaultyReply::BytesAndStay(page.into())
        }
    });
    let mut plan = closed(&server.url, 1, 40);
    (plan.think.min, plan.think.max) = (0.01, 0.01);
    let run = measure(&plan);
    assert_eq!((run.good(), run.errors()), (40, 0), "{:?}", run.reasons);
    assert_eq!(run.connections.opened, 20);
}

#[test]
fn counts_match_the_servers_log_when_time_cuts_the_run_off() {
    let server = Faulty::start(|_| FaultyReply::Ok("a page".to_owned()));
    let mut plan = closed(&server.url, 8, 8);
    plan.stop = StopLimits {
        requests: None,
        time: Some(Duration::from_millis(400)),
    };
    let run = measure(&plan);
    assert_eq!(run.ended, RunEnd::Time);
    assert_eq!(run.sent, run.good() + run.in_flight.count);
    assert!(run.in_flight.count + run.in_flight.connecting <= 8);
    // The requests in progress reach the server shortly after the run has ended.
    let deadline = Instant::now() + Duration::from_secs(10);
    while server.requests() < run.sent && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!(server.requests(), run.sent);
}

#[test]
fn checks_find_wrong_bodies() {
    let server = every(4, FaultyReply::Ok("Fatal error: out of memory".to_owned()));
    let mut plan = closed(&server.url, 2, 400);
    plan.checks.body = vec![BodyCheck::Contains("a page".to_owned())];
    let run = measure(&plan);
    assert_eq!((run.good(), run.count(Outcome::WrongBody)), (300, 100));
    plan.checks.body = vec![BodyCheck::ContainsNot("Fatal error".to_owned())];
    assert_eq!(measure(&plan).count(Outcome::WrongBody), 100);
}

#[test]
fn clients_have_their_own_cookies_and_requests() {
    let seen = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
    let noted = seen.clone();
    let server = Faulty::start(move |request| {
        let mut noted = noted.lock().unwrap();
        noted.0.insert(request.line.clone());
        match request.field("cookie") {
            Some(cookie) => {
                noted.1.insert(cookie.to_owned());
                FaultyReply::Ok("again".to_owned())
            }
            None => {
                let set = format!("Set-Cookie: visitor={}; Path=/", request.number);
                let bytes = format!("HTTP/1.1 200 OK\r\n{set}\r\nContent-Length: 0\r\n\r\n");
                FaultyReply::BytesAndStay(bytes.into_bytes())
            }
        }
    });
    let mut plan = closed(&format!("{}page?n={{seq}}", server.url), 5, 500);
    plan.request.cookie_jar = true;
    plan.request.headers = vec![("X-Client".to_owned(), RequestTemplate::new("{client}"))];
    plan.think.max = 0.001;
    let run = measure(&plan);
    assert_eq!(run.good(), 500);
    let seen = seen.lock().unwrap();
    assert_eq!(seen.0.len(), 500, "every request has its own line");
    assert_eq!(
        seen.1.len(),
        5,
        "every client has its own cookie: {:?}",
        seen.1
    );
}

#[test]
fn request_bodies_arrive_complete() {
    let lengths = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = lengths.clone();
    let server = Faulty::start(move |request| {
        noted.lock().unwrap().insert(request.body.len());
        FaultyReply::Ok("taken".to_owned())
    });
    for length in [0, 1, 3_000_000] {
        let mut plan = closed(&server.url, 2, 6);
        plan.request.method = "POST".to_owned();
        plan.request.body = vec![b'x'; length];
        let run = measure(&plan);
        assert_eq!(run.good(), 6, "{:?}", run.reasons);
        assert!(run.bytes.sent >= 6 * length as u64);
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Faulty::slow_unix(directory.path().join("a.sock"), 16, Duration::ZERO);
    let mut plan = closed(&server.url, 1, 3);
    plan.request.method = "PUT".to_owned();
    plan.request.body = vec![b'x'; 3_000_000];
    let run = measure(&plan);
    assert_eq!((run.good(), server.requests()), (3, 3), "{:?}", run.reasons);
    let lengths = lengths.lock().unwrap();
    assert_eq!(
        lengths.iter().copied().collect::<Vec<_>>(),
        [0, 1, 3_000_000]
    );
}

#[test]
fn long_responses_are_read_completely() {
    let long = "x".repeat(7_000_000);
    let server = Faulty::start(move |_| FaultyReply::Ok(long.clone()));
    let run = measure(&closed(&server.url, 3, 12));
    assert_eq!(
        (run.good(), run.bytes.good_bodies),
        (12, 84_000_000),
        "{:?}",
        run.reasons
    );
}

#[test]
fn interrupted_run_reports_its_measurements() {
    let server = Faulty::start(|_| FaultyReply::Ok("a page".to_owned()));
    let interrupt = Arc::new(AtomicBool::new(false));
    let flag = interrupt.clone();
    let mut after_a_second = |_: &howdah_bench::engine::RunProgress<'_>| {
        flag.store(true, Ordering::Relaxed);
    };
    let control = RunControl {
        interrupt,
        progress: Some(&mut after_a_second),
        command: Vec::new(),
    };
    let run = run(&closed(&server.url, 2, u64::MAX), control).unwrap();
    run.balance().unwrap();
    assert_eq!(run.ended, RunEnd::Interrupted);
    assert!(run.good() > 0 && run.elapsed >= 1.0);
}
