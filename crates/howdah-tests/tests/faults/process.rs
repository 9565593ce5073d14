//! The server's own processes die or are stopped: the zygote, the front, the master. Everything else continues, and no
//! process is left behind.

use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::process::wait_until;
use howdah_tests::process_tree;
use rustix::process::Signal;

#[test]
fn zygote_killed_under_load_loses_no_request() {
    let fixture = Fixture::named("zygote").children(3).start();
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(8)
        .start(LoadEnd::OnFinish);
    for _ in 0..3 {
        load.wait_for(100);
        let zygote = fixture.zygotes()[0];
        signal(zygote, Signal::KILL);
        fixture.wait("another zygote", |f| {
            let now = f.zygotes();
            now.len() == 1 && now[0] != zygote && f.children().len() == 3
        });
    }
    load.wait_for(100);
    let outcome = load.finish();
    println!("three zygotes killed: {outcome}");
    outcome.only(&["200"]);
}

#[test]
fn request_in_progress_survives_the_death_of_its_zygote() {
    let fixture = Fixture::named("zygote-held").children(1).start();
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    let child = standing.pid;
    signal(fixture.zygotes()[0], Signal::KILL);
    fixture.still_serves();
    standing.open();
    assert_eq!(held.answer().text(), "released");
    wait_until("the orphan to exit", Duration::from_secs(20), || {
        !process_tree::is_alive(child)
    });
}

#[test]
fn front_that_crashes_is_started_again() {
    let fixture = Fixture::named("front").start();
    for _ in 0..2 {
        let front = fixture.front();
        let old_php = [fixture.zygotes(), fixture.children()].concat();
        signal(front, Signal::KILL);
        fixture.wait("another front", |f| {
            f.try_front().is_some_and(|pid| pid != front)
        });
        fixture.still_serves();
        wait_until(
            "the old PHP processes to exit",
            Duration::from_secs(20),
            || !old_php.iter().any(|pid| process_tree::is_alive(*pid)),
        );
    }
    fixture.wait_for_log(&["front"]);
}

#[test]
fn children_that_hang_when_their_front_has_crashed_are_killed_in_time() {
    let fixture = Fixture::named("hung-orphan")
        .children(1)
        .ini("max_execution_time", "0")
        .config("[timeouts]\ndrain = \"1s\"")
        .script(
            "hang.php",
            "<?php require 'GATES'; ignore_user_abort(true); stand_at('hang'); while (true) sleep(600);",
        )
        .start();
    let gate = fixture.gate("hang");
    let held = fixture.start_get("/hang.php");
    let standing = gate.wait();
    let hung = standing.pid;
    standing.open();
    let old_php = [fixture.zygotes(), vec![hung]].concat();
    signal(fixture.front(), Signal::KILL);
    assert!(
        held.try_answer().is_err(),
        "the client's connection is closed"
    );
    wait_until(
        "the hung child to be killed",
        Duration::from_secs(20),
        || !old_php.iter().any(|pid| process_tree::is_alive(*pid)),
    );
    fixture.still_serves();
}

#[test]
fn zygote_that_hangs_is_replaced_when_a_child_is_to_be_forked() {
    let fixture = Fixture::named("stuck-fork")
        .pool("pm = \"ondemand\"\nmax_children = 2\nprocess_idle_timeout = \"1s\"")
        .start();
    fixture.still_serves();
    fixture.wait("all children to exit", |f| f.children().is_empty());
    let zygote = fixture.zygotes()[0];
    signal(zygote, Signal::STOP);
    // The request waits in vain for the old zygote to fork, and then for the new zygote.
    fixture.still_serves();
    fixture.wait_for_log(&["ZygoteStuck", "fork command"]);
    assert!(!fixture.zygotes().contains(&zygote));
}

/// Only the zygote reports how a child exited; without its report the client would wait forever.
#[test]
fn zygote_that_hangs_is_replaced_when_it_does_not_report_a_childs_death() {
    let fixture = Fixture::named("stuck-reap").children(1).start();
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    let zygote = fixture.zygotes()[0];
    signal(zygote, Signal::STOP);
    signal(standing.pid, Signal::KILL);
    let answer = held.answer();
    assert_eq!(answer.status(), 502, "{}", answer.text());
    assert_eq!(answer.header("Howdah-Error"), Some("ChildDied"));
    fixture.wait_for_log(&["ZygoteStuck", "the exit of a child"]);
    fixture.still_serves();
    assert!(!fixture.zygotes().contains(&zygote));
}

#[test]
fn killed_master_leaves_no_process_behind() {
    let fixture = Fixture::named("master").start();
    fixture.wait("both children", |f| f.children().len() == 2);
    let gate = fixture.gate("last");
    let held = fixture.start_get("/hold.php?gate=last");
    let standing = gate.wait();
    let others: Vec<i32> = fixture.processes().iter().skip(1).map(|e| e.pid).collect();
    assert!(others.len() >= 4, "front, zygote, two children: {others:?}");
    signal(fixture.master(), Signal::KILL);
    standing.open();
    assert_eq!(
        held.answer().text(),
        "released",
        "a running request finishes"
    );
    wait_until("all processes to exit", Duration::from_secs(30), || {
        !others.iter().any(|pid| process_tree::is_alive(*pid))
    });
}

#[track_caller]
fn check_stops_gracefully(name: &str, stop: impl FnOnce(&Fixture)) {
    let mut fixture = Fixture::named(name).children(2).start();
    let mut idle = howdah_tests::http::Connection::open(fixture.address()).unwrap();
    idle.send("GET /hello.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert_eq!(idle.read_response("GET").unwrap().status(), 200);
    let gate = fixture.gate("running");
    let held = fixture.start_get("/hold.php?gate=running");
    let standing = gate.wait();
    let others: Vec<i32> = fixture.processes().iter().skip(1).map(|e| e.pid).collect();
    stop(&fixture);
    assert!(idle.peer_closes(), "an idle connection is closed properly");
    fixture.wait("new connections to be refused", |f| {
        std::net::TcpStream::connect(f.address()).is_err()
    });
    assert!(!held.is_there());
    standing.open();
    assert_eq!(held.answer().text(), "released");
    let status = fixture
        .howdah
        .process
        .wait_exit(Duration::from_secs(20))
        .unwrap();
    assert!(status.success(), "{status}");
    assert!(!others.iter().any(|pid| process_tree::is_alive(*pid)));
}

#[test]
fn sigquit_lets_a_running_request_finish() {
    check_stops_gracefully("sigquit", |fixture| signal(fixture.master(), Signal::QUIT));
}

#[test]
fn howdah_stop_lets_a_running_request_finish() {
    check_stops_gracefully("stop", |fixture| {
        // The command returns once the server has stopped, so the test does not wait for the command here.
        let mut stop = std::process::Command::new(howdah_tests::rig::howdah_program())
            .args(["stop", "--control"])
            .arg(fixture.path("control.sock"))
            .spawn()
            .unwrap();
        std::thread::spawn(move || stop.wait());
    });
}

#[test]
fn stop_waits_for_a_script_that_continues_after_its_response() {
    let fixture = Fixture::named("continues")
        .config("[timeouts]\nstop = \"10m\"")
        .script(
            "on.php",
            "<?php require 'GATES'; echo 'answered'; fastcgi_finish_request(); stand_at('on');",
        )
        .start();
    let gate = fixture.gate("on");
    assert_eq!(fixture.get("/on.php").text(), "answered");
    let standing = gate.wait();
    let (master, port) = (fixture.master(), fixture.address());
    signal(master, Signal::TERM);
    wait_until("the listener to close", Duration::from_secs(20), || {
        std::net::TcpStream::connect(port).is_err()
    });
    assert!(process_tree::is_alive(standing.pid), "the script continues");
    standing.open();
    fixture.wait("the server to exit", |f| f.try_front().is_none());
}
