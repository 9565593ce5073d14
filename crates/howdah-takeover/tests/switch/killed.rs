//! Kills the program of the takeover and Howdah in every phase.

use std::time::Duration;

use howdah_takeover::switch::state::{Phase, RollbackReason};
use howdah_test_support::process::{Process, wait_until};
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
fn kill_of_everything_during_the_watch_is_over_within_a_second() {
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
    println!("{} requests were lost by the kill", failures.len());
    // Howdah's sockets are closed when the last of its processes has exited.
    let first = failures.iter().map(|(at, _)| *at).min().unwrap_or_default();
    let last = failures.iter().map(|(at, _)| *at).max().unwrap_or_default();
    assert!(last - first < Duration::from_secs(1), "{failures:?}");
    assert_eq!(machine.server(), "old");
}

/// Puts the directory of the takeover on a disk of 4 MiB, switches, fills the disk, and presses Ctrl-C.
const FULL_DISK: &str = r#"
set -e
cp -a "$DIRECTORY" "$DIRECTORY.copy"
mount -t tmpfs -o size=4m none "$DIRECTORY"
cp -a "$DIRECTORY.copy/." "$DIRECTORY/"
"$@" &
switch=$!
served() { curl -s -H 'Host: nginx0.test' "http://$ADDRESS/"; }
until served | grep -q howdah; do kill -0 $switch; sleep 0.05; done
dd if=/dev/zero of="$DIRECTORY/fill" bs=64k 2>/dev/null || true
! echo more 2>/dev/null >"$DIRECTORY/more"
kill -INT $switch
wait $switch && echo 'exit 0' || echo "exit $?"
"#;

#[test]
fn full_disk_during_the_watch_does_not_prevent_the_rollback() {
    let Some(machine) = Machine::start("switch-disk", 1) else {
        return;
    };
    let load = Load::start(machine.addresses, 1, "/");
    let switch = machine.command(&["switch"]);
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", FULL_DISK, "sh"]);
    command.arg(switch.get_program()).args(switch.get_args());
    command.env("DIRECTORY", machine.directory());
    command.env("ADDRESS", machine.addresses[0].to_string());
    let mut script = Process::start("a full disk", &mut command);
    let code = script.wait_for_line("the exit code", PATIENCE, |line| {
        line.strip_prefix("exit ").map(str::to_owned)
    });
    assert!(script.wait_exit(PATIENCE).unwrap().success());
    let log = script.log();
    assert_eq!(code, "1", "{log}");
    assert!(log.contains("StateNotWritten"), "{log}");
    assert!(log.contains("RolledBackByHand"), "{log}");
    assert_eq!(machine.server(), "old");
    load.end().check_nothing_failed();
}

#[test]
fn read_only_disk_does_not_keep_howdah_down_after_a_complete_switch() {
    let Some(mut machine) = Machine::start("switch-read-only", 1) else {
        return;
    };
    assert_eq!(machine.run(&["switch", "--watch", "1s"]).0, 0);
    machine.nginx.stop();
    machine.kill_howdah();
    let script = "mount -t tmpfs none /run && mount --bind \"$DIRECTORY\" \"$DIRECTORY\" && \
                  mount -o remount,bind,ro \"$DIRECTORY\" && exec \"$@\"";
    let resume = machine.command(&["resume"]);
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(resume.get_program()).args(resume.get_args());
    command.env("DIRECTORY", machine.directory());
    let mut resume = Process::start("howdah-takeover", &mut command);
    wait_until("Howdah", PATIENCE, || {
        crate::load::get(machine.addresses[0], "nginx0.test", "/").is_ok()
    });
    machine.wait_for_howdah();
    assert!(resume.log().contains("StateNotWritten"));
    assert!(resume.is_running());
    resume.signal(Signal::TERM);
    resume.wait_exit(PATIENCE).unwrap();
}
