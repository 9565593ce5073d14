//! Scripts that do not return: the wall-clock limit kills them wherever PHP is stuck, and the queue responds with 503
//! in time when no child can serve a request.

use std::fs::File;
use std::time::{Duration, Instant};

use howdah_tests::fixture::Fixture;
use rustix::fs::{FlockOperation, flock};

/// Starts a server with one child, whose requests are terminated after a second.
fn one_child(name: &str, stuck: &str) -> Fixture {
    Fixture::named(name)
        .children(1)
        .ini("max_execution_time", "0")
        .pool("request_terminate_timeout = \"1s\"")
        .script("stuck.php", stuck)
        .command_line_php()
        .start()
}

#[track_caller]
fn check_is_killed(fixture: &Fixture) {
    let child = fixture.get("/pid.php").text();
    let begun = Instant::now();
    let answer = fixture.get("/stuck.php");
    let took = begun.elapsed();
    assert_eq!(answer.status(), 504, "{}", answer.text());
    assert_eq!(answer.header("Howdah-Error"), Some("TerminateTimeout"));
    assert!(
        took >= Duration::from_millis(900) && took < Duration::from_secs(10),
        "the client waited {took:?} for a limit of 1 s"
    );
    // The only slot is free again, and has another process.
    assert_ne!(fixture.get("/pid.php").text(), child);
    fixture.wait_for_log(&["TerminateTimeout", "/stuck.php"]);
}

#[test]
fn php_stuck_in_sleep_is_killed_and_its_slot_comes_back() {
    check_is_killed(&one_child("sleep", "<?php sleep(600);"));
}

#[test]
fn php_stuck_in_an_endless_loop_is_killed() {
    check_is_killed(&one_child("loop", "<?php while (true);"));
}

#[test]
fn php_stuck_waiting_for_a_lock_is_killed() {
    let fixture = one_child(
        "flock",
        "<?php $f = fopen('SCRATCH/lock', 'c'); flock($f, LOCK_EX); echo 'locked';",
    );
    let lock = File::create(fixture.path("lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    check_is_killed(&fixture);
    drop(lock);
    assert_eq!(fixture.get("/stuck.php").text(), "locked");
}

#[test]
fn php_that_ignores_sigterm_is_killed_all_the_same() {
    check_is_killed(&one_child(
        "sigterm",
        "<?php pcntl_signal(SIGTERM, SIG_IGN);
        ignore_user_abort(true); set_time_limit(0);
        while (true) { try { while (true) sleep(600); } catch (Throwable) { } }",
    ));
}

#[test]
fn queue_responds_503_in_time_if_all_children_hang_and_recovers() {
    let fixture = Fixture::named("all-hung")
        .children(2)
        .pool("queue_timeout = \"1s\"")
        .start();
    let gates = [fixture.gate("a"), fixture.gate("b")];
    let held = ["a", "b"].map(|name| fixture.start_get(&format!("/hold.php?gate={name}")));
    let standing = gates.map(|gate| gate.wait());
    let begun = Instant::now();
    let waiting: Vec<_> = (0..20).map(|_| fixture.start_get("/hello.php")).collect();
    for asked in waiting {
        let answer = asked.answer();
        assert_eq!(answer.status(), 503, "{}", answer.text());
        assert_eq!(answer.header("Howdah-Error"), Some("QueueTimeout"));
        let after: u32 = answer.header("Retry-After").unwrap().parse().unwrap();
        assert!(after > 0);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "refused after {took:?}");
    // A request that is still waiting when a child becomes free is served.
    let patient = fixture.start_get("/hello.php");
    standing.into_iter().for_each(|script| script.open());
    assert_eq!(patient.answer().status(), 200);
    for asked in held {
        assert_eq!(asked.answer().text(), "released");
    }
    fixture.still_serves();
}

#[test]
fn slow_request_is_logged_with_its_php_stack_while_it_runs() {
    let fixture = Fixture::named("slowlog")
        .children(1)
        .pool("request_slowlog_timeout = \"200ms\"")
        .script(
            "slow.php",
            "<?php require 'GATES';
            function deep_inside() { stand_at('slow'); }
            function outer() { deep_inside(); }
            outer(); echo 'done';",
        )
        .start();
    let gate = fixture.gate("slow");
    let asked = fixture.start_get("/slow.php");
    let standing = gate.wait();
    // The request is logged while the script is still waiting.
    fixture.wait_for_log(&["SlowRequest", "/slow.php"]);
    fixture.wait_for_log(&["deep_inside"]);
    assert!(!asked.is_there());
    standing.open();
    assert_eq!(asked.answer().text(), "done");
}
