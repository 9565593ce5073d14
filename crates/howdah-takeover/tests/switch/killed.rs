//! Kills the program of the takeover and Howdah in every phase.

use howdah_takeover::switch::state::{Phase, RollbackReason};
use howdah_test_support::process::wait_until;
use rustix::process::Signal;

use crate::load::Load;
use crate::machine::{Machine, PATIENCE, start_slow_request};
use crate::{rollback_reason, wait_for_responses};

/// Kills the program of the takeover in a phase, and Howdah with it or not; one of the servers serves at once, and
/// `resume` comes to the expected end.
fn check_killed(phase: Phase, with_howdah: bool, server: &str, end: Phase) {
    let name = format!("switch-kill-{phase:?}-{with_howdah}");
    let Some(machine) = Machine::start(&name, 1) else {
        return;
    };
    let mut switch = machine.begin(&["switch", "--watch", "6s"]);
    let mut slow = None;
    if phase == Phase::RollingBack {
        machine.wait_for_phase(Phase::Watching);
        machine.wait_for_howdah();
        // Keeps Howdah busy, and with it the phase.
        slow = Some(start_slow_request(machine.addresses[0], "nginx0.test"));
        switch.signal(Signal::INT);
    }
    machine.wait_for_phase(phase);
    match phase {
        Phase::Starting => {
            machine.howdah();
        }
        Phase::Watching => machine.wait_for_howdah(),
        _ => wait_until("the old servers", PATIENCE, || {
            machine.served_by() == ["old", "old"]
        }),
    }
    switch.signal(Signal::KILL);
    switch.wait_exit(PATIENCE).unwrap();
    if with_howdah {
        machine.kill_howdah();
    }
    let (code, text, _) = machine.run(&["status"]);
    assert_eq!(code, 0);
    if phase != Phase::RollingBack {
        let resume = "next: `howdah takeover resume";
        assert!(text.contains(resume), "{text}");
    }
    let served = machine.server();
    assert!(served == "old" || !with_howdah, "{phase:?}: {served}");

    let (code, _, messages) = machine.run(&["resume"]);
    assert_eq!(code, 0, "{phase:?} {with_howdah}: {messages}");
    assert_eq!(machine.state().unwrap().phase, end, "{messages}");
    assert_eq!(machine.server(), server);
    if let (Some(slow), false) = (slow, with_howdah) {
        assert_eq!(slow.join().unwrap().unwrap(), "howdah nginx0");
    }
}

#[test]
fn resume_after_a_kill_during_the_start_returns_to_the_old_servers() {
    check_killed(Phase::Starting, false, "old", Phase::RolledBack);
    check_killed(Phase::Starting, true, "old", Phase::RolledBack);
}

#[test]
fn resume_after_a_kill_during_the_watch_continues_if_howdah_lives() {
    check_killed(Phase::Watching, false, "howdah", Phase::Kept);
    check_killed(Phase::Watching, true, "old", Phase::RolledBack);
}

#[test]
fn resume_after_a_kill_during_the_rollback_completes_it() {
    check_killed(Phase::RollingBack, false, "old", Phase::RolledBack);
    check_killed(Phase::RollingBack, true, "old", Phase::RolledBack);
}

#[test]
fn kill_of_howdah_during_the_watch_leaves_the_ports_to_the_old_servers() {
    let Some(machine) = Machine::start("switch-exit", 1) else {
        return;
    };
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    machine.wait_for_howdah();
    switch.signal(Signal::STOP);
    machine.kill_howdah();
    assert_eq!(machine.server(), "old", "without any help");
    switch.signal(Signal::CONT);
    assert_eq!(switch.wait_exit(PATIENCE).unwrap().code(), Some(1));
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackExit);
    assert_eq!(machine.server(), "old");
}

#[test]
fn kill_of_everything_during_the_watch_loses_only_what_howdah_had_begun() {
    let Some(machine) = Machine::start("switch-kill-load", 1) else {
        return;
    };
    let load = Load::start(machine.addresses, 1, "/");
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    wait_for_responses(&load, true);
    switch.signal(Signal::KILL);
    machine.kill_howdah();
    wait_for_responses(&load, false);
    switch.wait_exit(PATIENCE).unwrap();
    let counts = load.end();
    let failures = counts.failures.lock().unwrap();
    println!(
        "{} requests were lost by the kill: {failures:?}",
        failures.len()
    );
    // No client of the load has more than one request at a time.
    let clients = 8;
    assert!(failures.len() <= clients, "{failures:?}");
    assert_eq!(machine.server(), "old");
}
