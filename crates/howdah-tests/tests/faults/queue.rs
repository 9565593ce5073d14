//! More clients than the pool and its queue can take: every response is a 200 or a 503, no connection is reset, and the
//! access log agrees with the clients.

use howdah_tests::fixture::Fixture;
use howdah_tests::load::{Load, LoadOutcome};

fn overflow(clients: usize, requests: u64) -> (Fixture, LoadOutcome) {
    let fixture = Fixture::named("overflow")
        .children(2)
        .pool("queue_size = 64")
        .script("work.php", "<?php usleep(2000); echo 'worked';")
        .start();
    let outcome = Load::new(fixture.address(), "/work.php", "worked")
        .clients(clients)
        .run(requests);
    println!("overflow at c={clients}: {outcome}");
    (fixture, outcome)
}

#[track_caller]
fn check_honest(fixture: &Fixture, outcome: &LoadOutcome) {
    outcome.only(&["200", "503 QueueFull", "503 QueueTimeout"]);
    assert!(
        outcome.status(200) > 64,
        "the pool continued to work: {outcome}"
    );
    assert!(
        outcome.count("503 QueueFull") > 0,
        "the queue was full: {outcome}"
    );
    let logged = |f: &Fixture, status: &str| {
        let status = format!("\" {status} ");
        let lines = f.access_log();
        lines.iter().filter(|line| line.contains(&status)).count() as u64
    };
    for status in [200, 503] {
        fixture.wait(&format!("all {status} in the access log"), |f| {
            logged(f, &status.to_string()) >= outcome.status(status)
        });
        assert_eq!(logged(fixture, &status.to_string()), outcome.status(status));
    }
    assert_eq!(fixture.access_log().len() as u64, outcome.total());
    fixture.still_serves();
}

#[test]
fn five_hundred_clients_get_200_or_503_and_the_log_agrees() {
    let (fixture, outcome) = overflow(500, 8);
    check_honest(&fixture, &outcome);
}

#[test]
fn two_thousand_clients_get_200_or_503_and_the_log_agrees() {
    let (fixture, outcome) = overflow(2000, 4);
    check_honest(&fixture, &outcome);
}

#[test]
fn refusal_says_when_to_come_back() {
    let fixture = Fixture::named("retry-after")
        .children(1)
        .pool("queue_size = 0")
        .start();
    let gate = fixture.gate("only");
    let held = fixture.start_get("/hold.php?gate=only");
    let standing = gate.wait();
    let answer = fixture.get("/hello.php");
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.header("Howdah-Error"), Some("QueueFull"));
    assert!(answer.header("Retry-After").is_some());
    standing.open();
    assert_eq!(held.answer().text(), "released");
    fixture.still_serves();
}
