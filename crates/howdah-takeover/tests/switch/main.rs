//! Switches a machine with nginx and Apache under load and back, with faults, and kills what takes part in every phase.

mod killed;
mod load;
mod machine;
mod systemd;

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_takeover::plan::{Finding, Severity};
use howdah_takeover::switch::state::{Phase, RollbackReason};
use howdah_takeover::trial::{Difference, DifferenceName, TriedSite, Verdict};
use howdah_test_support::process::wait_until;
use load::{Load, get};
use machine::{Listening, Machine, PATIENCE, json, start_slow_request};
use rustix::process::Signal;

/// The number of sites of each server in the test under load.
const SITES: usize = 50;

/// Waits until the clients have got more responses of Howdah or of the old servers.
fn wait_for_responses(load: &Load, howdah: bool) {
    let count = || match howdah {
        true => load.counts.served().1,
        false => load.counts.served().0,
    };
    let enough = count() + 100;
    wait_until("responses", PATIENCE, || count() > enough);
}

fn rollback_reason(machine: &Machine) -> RollbackReason {
    let state = machine.state().expect("there was a switch");
    assert_eq!(state.phase, Phase::RolledBack);
    state.rollback.expect("a reason").reason
}

#[test]
fn switch_and_rollback_lose_no_request_under_load() {
    let Some(machine) = Machine::start("switch-load", SITES) else {
        return;
    };
    let load = Load::start(machine.addresses, SITES, "/");
    wait_for_responses(&load, false);
    let slow = start_slow_request(machine.addresses[0], "nginx0.test");
    let slow_apache = start_slow_request(machine.addresses[1], "apache0.test");

    let mut switch = machine.begin(&["switch", "--watch", "10m"]);
    machine.wait_for_phase(Phase::Watching);
    wait_for_responses(&load, true);
    assert_eq!(machine.server(), "howdah");
    assert_eq!(
        slow.join().unwrap().unwrap(),
        "old nginx0",
        "begun before the switch"
    );
    assert_eq!(slow_apache.join().unwrap().unwrap(), "old apache0");
    wait_until("figures", PATIENCE, || {
        machine
            .state()
            .is_some_and(|state| state.figures.requests > 0)
    });
    let (code, status, _) = machine.run(&["status", "--json"]);
    let status = json(&status);
    assert_eq!(code, 0);
    assert_eq!(status["watched"], true);
    let served = status["ports"].as_array().unwrap();
    assert_eq!(served.len(), 2);
    assert!(
        served.iter().all(|port| port["served_by"] == "howdah"),
        "{served:?}"
    );
    let (_, text, _) = machine.run(&["status"]);
    assert!(
        text.contains("has been watched for") && text.contains("% of the last"),
        "{text}"
    );

    let slow = start_slow_request(machine.addresses[0], "nginx0.test");
    let (code, _, messages) = machine.run(&["rollback"]);
    assert_eq!(code, 0, "{messages}");
    assert_eq!(
        slow.join().unwrap().unwrap(),
        "howdah nginx0",
        "begun before the rollback"
    );
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackByHand);
    assert_eq!(switch.wait_exit(PATIENCE).unwrap().code(), Some(1));
    wait_for_responses(&load, false);
    assert_eq!(machine.server(), "old");

    // A second switch begins where the first one began, and passes.
    let (code, text, messages) = machine.run(&["switch", "--watch", "3s"]);
    assert_eq!(code, 0, "{messages}");
    assert!(
        text.contains("the switch is complete; Howdah serves"),
        "{text}"
    );
    wait_for_responses(&load, true);
    assert_eq!(machine.server(), "howdah");
    let (code, ..) = machine.run(&["rollback"]);
    assert_eq!(code, 0);
    wait_for_responses(&load, false);
    load.end().check_nothing_failed();
}

#[test]
fn old_servers_continue_as_before_after_a_rollback() {
    let Some(mut machine) = Machine::start("switch-restart", 1) else {
        return;
    };
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    switch.signal(Signal::INT);
    assert_eq!(switch.wait_exit(PATIENCE).unwrap().code(), Some(1));
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackByHand);
    // No other server can listen at the address by mistake. One of the same user that sets SO_REUSEPORT still could,
    // because the kernel remembers that sockets have shared the port (inet_csk_update_fastreuse()).
    let other = std::net::TcpListener::bind(machine.addresses[0]);
    assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    machine.nginx.signal(Signal::HUP);
    assert_eq!(machine.server(), "old");
    machine.nginx.stop();
    assert!(get(machine.addresses[0], "nginx0.test", "/").is_err());
}

#[test]
fn rollback_after_a_complete_switch_starts_servers_that_were_stopped() {
    let Some(mut machine) = Machine::start("switch-kept", 2) else {
        return;
    };
    let (code, _, messages) = machine.run(&["switch", "--watch", "1s"]);
    assert_eq!(code, 0, "{messages}");
    for server in [&machine.nginx, &machine.apache] {
        // nginx finishes its requests on SIGQUIT, and Apache on SIGWINCH.
        server.signal(Signal::QUIT);
        server.signal(Signal::WINCH);
    }
    machine.nginx.wait_exit(PATIENCE).unwrap();
    machine.apache.wait_exit(PATIENCE).unwrap();
    assert_eq!(machine.server(), "howdah");

    let begun = Instant::now();
    let mut refused: Option<(Duration, Duration)> = None;
    let (code, _, messages) = std::thread::scope(|scope| {
        let rollback = scope.spawn(|| machine.run(&["rollback"]));
        while !rollback.is_finished() {
            for (address, host) in machine
                .addresses
                .iter()
                .zip(["nginx0.test", "apache0.test"])
            {
                if get(*address, host, "/").is_err() {
                    let now = begun.elapsed();
                    refused = Some((refused.map_or(now, |(first, _)| first), now));
                }
            }
        }
        rollback.join().unwrap()
    });
    assert_eq!(code, 0, "{messages}");
    let (first, last) = refused.unwrap_or_default();
    println!("connections were refused for {:?}", last - first);
    assert!(last - first < Duration::from_secs(20));
    assert_eq!(machine.server(), "old");
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackByHand);
}

#[test]
fn howdah_serves_if_an_old_server_does_not_start_and_binds_addresses_itself() {
    let Some(mut machine) = Machine::start("switch-broken", 1) else {
        return;
    };
    let (code, _, messages) = machine.run(&["switch", "--watch", "1s"]);
    assert_eq!(code, 0, "{messages}");
    let mut resume = machine.begin(&["resume"]);
    wait_until("resume", PATIENCE, || {
        json(&machine.run(&["status", "--json"]).1)["watched"] == true
    });
    machine.nginx.stop();
    std::fs::write(machine.path("nginx.conf"), "broken").unwrap();
    let begun = Instant::now();
    let (code, _, messages) = machine.run(&["rollback"]);
    assert_eq!(code, 1, "{messages}");
    assert!(
        messages.contains("OldServerDoesNotStart") && messages.contains("it exited"),
        "{messages}"
    );
    assert!(begun.elapsed() < Duration::from_secs(60), "it has waited");
    // Nobody asks for another rollback.
    machine.wait_for_howdah();
    assert_eq!(machine.state().unwrap().phase, Phase::Kept);
    assert!(!machine.directory().join("rollback.requested").exists());
    assert!(resume.is_running());

    // The next Howdah alone has the address of nginx and an additional one. It shares that of Apache with Apache.
    let added = howdah_machine::ports::free_address().unwrap();
    let file = machine.directory().join("sites.d/nginx0.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replacen("listen = [", &format!("listen = [\"{added}\", "), 1);
    std::fs::write(&file, text).unwrap();
    machine.kill_howdah();
    wait_until("another Howdah", PATIENCE, || {
        get(added, "nginx0.test", "/").is_ok_and(|page| page.starts_with("howdah"))
    });
    machine.wait_for_howdah();
    resume.signal(Signal::TERM);
    resume.wait_exit(PATIENCE).unwrap();
}

#[test]
fn howdah_serves_after_a_restart_of_the_machine_once_the_switch_is_complete() {
    let Some(mut machine) = Machine::start("switch-boot", 1) else {
        return;
    };
    assert_eq!(machine.run(&["switch", "--watch", "1s"]).0, 0);
    machine.kill_howdah();
    machine.nginx.stop();
    machine.apache.stop();
    machine.write_state(|state| state.boot = "an earlier start of the machine".to_owned());
    let mut resume = machine.begin(&["resume"]);
    wait_until("Howdah", PATIENCE, || {
        get(machine.addresses[0], "nginx0.test", "/").is_ok()
    });
    assert_eq!(machine.server(), "howdah");
    // It starts Howdah again whenever it has exited.
    let first = machine.howdah();
    machine.kill_howdah();
    wait_until("another Howdah", PATIENCE, || machine.howdah() != first);
    wait_until("Howdah", PATIENCE, || {
        get(machine.addresses[1], "apache0.test", "/").is_ok()
    });
    let (code, _, messages) = machine.run(&["rollback"]);
    assert_eq!(code, 0, "{messages}");
    assert_eq!(resume.wait_exit(PATIENCE).unwrap().code(), Some(0));
    assert_eq!(machine.server(), "old");
}

#[test]
fn restart_of_the_machine_during_the_watch_is_a_rollback() {
    let Some(machine) = Machine::start("switch-reboot", 1) else {
        return;
    };
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    switch.signal(Signal::KILL);
    switch.wait_exit(PATIENCE).unwrap();
    machine.kill_howdah();
    machine.write_state(|state| state.boot = "an earlier start of the machine".to_owned());
    let (code, text, messages) = machine.run(&["resume"]);
    assert_eq!(code, 0, "{messages}");
    assert!(text.contains("RolledBackReboot"), "{text}");
    assert_eq!(machine.server(), "old");
}

/// Requests a target that misbehaves under Howdah until the switch has been rolled back, and returns the reason.
fn reason_with_fault(name: &str, target: &'static str) -> Option<RollbackReason> {
    let machine = Machine::start(name, 1)?;
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    let load = Load::start(machine.addresses, 1, target);
    assert_eq!(switch.wait_exit(PATIENCE).unwrap().code(), Some(1));
    let counts = load.end();
    assert!(!counts.failures.lock().unwrap().is_empty());
    assert_eq!(machine.server(), "old");
    Some(rollback_reason(&machine))
}

#[test]
fn responses_that_fail_only_under_howdah_are_rolled_back() {
    let Some(reason) = reason_with_fault("switch-errors", "/?fail") else {
        return;
    };
    assert_eq!(reason, RollbackReason::RolledBackErrors);
}

#[test]
fn scripts_that_crash_only_under_howdah_are_rolled_back() {
    let Some(reason) = reason_with_fault("switch-crashes", "/?crash") else {
        return;
    };
    assert_eq!(reason, RollbackReason::RolledBackCrashes);
}

#[test]
fn front_page_that_fails_only_under_howdah_is_rolled_back_without_visitors() {
    let Some(machine) = Machine::start("switch-probes", 3) else {
        return;
    };
    std::fs::write(machine.path("apache1/faults"), "").unwrap();
    let (code, text, messages) = machine.run(&["switch"]);
    assert_eq!(code, 1, "{messages}");
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackProbes);
    assert!(
        text.contains("the front page of apache1 failed 3 times in a row (status 500)"),
        "{text}"
    );
    assert_eq!(machine.server(), "old");
}

#[test]
fn howdah_that_does_not_start_leaves_everything_as_it_was() {
    let Some(machine) = Machine::start("switch-start", 1) else {
        return;
    };
    let load = Load::start(machine.addresses, 1, "/");
    let file = machine.directory().join("sites.d/nginx0.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}no_such_key = 1\n")).unwrap();
    machine.write_trial(|_| {});
    let (code, _, messages) = machine.run(&["switch"]);
    assert_eq!(code, 1);
    assert!(
        messages.contains("RolledBackStart") && messages.contains("no_such_key"),
        "{messages}"
    );
    assert_eq!(rollback_reason(&machine), RollbackReason::RolledBackStart);
    let counts = load.end();
    assert_eq!(counts.howdah.load(Ordering::Relaxed), 0);
    counts.check_nothing_failed();
}

#[test]
fn switch_is_refused_with_all_reasons_at_once() {
    let Some(mut machine) = Machine::start("switch-refused", 1) else {
        return;
    };
    machine.write_trial(|trial| {
        trial.sites.push(TriedSite {
            name: "nginx0".to_owned(),
            verdict: Verdict::Differs,
            reason: None,
            asked: 1,
            differences: vec![Difference {
                name: DifferenceName::OpensDenied,
                request: "GET http://nginx0.test/secret".to_owned(),
                old: "403".to_owned(),
                new: "200".to_owned(),
                cause: String::new(),
                remedy: String::new(),
            }],
            harmless: Vec::new(),
            unjudged: Vec::new(),
        });
    });
    machine.plan.findings.push(Finding {
        severity: Severity::Blocks,
        name: "CertificateExpired".to_owned(),
        site: Some("nginx0".to_owned()),
        place: None,
        message: "the certificate has expired".to_owned(),
        remedy: String::new(),
    });
    machine.plan.made_at = 1;
    machine.plan.servers[0].started += 1;
    machine.write_plan();
    let (code, _, messages) = machine.run(&["switch"]);
    assert_eq!(code, 1);
    for expected in [
        "howdah: PlanBlocks: ",
        "nginx0: the certificate has expired (CertificateExpired)",
        "howdah: OpensDenied: ",
        "GET http://nginx0.test/secret",
        "howdah: OldConfigurationChanged: ",
        "howdah: OldServerChanged: ",
    ] {
        assert!(
            messages.contains(expected),
            "{expected:?} is not in {messages}"
        );
    }
    assert_eq!(machine.state(), None);
    std::fs::remove_file(machine.directory().join("trial.json")).unwrap();
    assert!(
        machine
            .run(&["switch"])
            .2
            .contains("howdah: TrialMissing: ")
    );
    assert!(
        machine
            .run(&["rollback"])
            .2
            .contains("howdah: NothingToRollBack: ")
    );
    let (_, text, _) = machine.run(&["status"]);
    assert!(text.starts_with("next: `howdah takeover try"), "{text}");
    std::fs::remove_file(machine.directory().join("plan.json")).unwrap();
    assert!(
        machine
            .run(&["switch"])
            .2
            .contains("howdah: PlanUnreadable: ")
    );
}

#[test]
fn configuration_that_was_changed_after_the_trial_is_refused() {
    let Some(machine) = Machine::start("switch-outdated", 1) else {
        return;
    };
    let file = machine.directory().join("howdah.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("# changed\n{text}")).unwrap();
    let (code, _, messages) = machine.run(&["switch"]);
    assert_eq!(code, 1);
    assert!(messages.contains("howdah: TrialOutdated: "), "{messages}");
}

#[test]
fn second_switch_is_refused_while_one_is_at_work_or_complete() {
    let Some(machine) = Machine::start("switch-twice", 1) else {
        return;
    };
    let mut switch = machine.begin(&["switch", "--watch", "8s"]);
    machine.wait_for_phase(Phase::Watching);
    let (code, _, messages) = machine.run(&["switch"]);
    assert_eq!(code, 1);
    assert!(
        messages.contains("howdah: SwitchInProgress: "),
        "{messages}"
    );
    assert_eq!(switch.wait_exit(PATIENCE).unwrap().code(), Some(0));
    let (_, _, messages) = machine.run(&["switch"]);
    assert!(messages.contains("howdah: AlreadySwitched: "), "{messages}");
}

#[test]
fn nginx_with_a_socket_for_each_worker_is_switched_and_serves_with_all_of_them_again() {
    let Some(machine) = Machine::start_with("switch-reuseport", 1, Listening::SocketPerWorker)
    else {
        return;
    };
    assert_eq!(machine.plan.servers[0].listeners.len(), 2);
    let load = Load::start(machine.addresses, 1, "/");
    let mut switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    machine.wait_for_howdah();
    wait_for_responses(&load, true);
    // The user's connection breaks, and the watch goes on.
    switch.signal(Signal::HUP);
    let before = machine.state().unwrap().figures.seconds;
    wait_until("the next round", PATIENCE, || {
        machine.state().unwrap().figures.seconds > before + 1
    });
    assert!(switch.is_running());
    assert_eq!(machine.run(&["rollback"]).0, 0);
    wait_for_responses(&load, false);
    assert_eq!(machine.server(), "old");
    load.end().check_nothing_failed();
}

#[test]
fn socket_of_both_families_is_switched_for_each_of_them() {
    let Some(machine) = Machine::start_with("switch-families", 2, Listening::BothFamilies) else {
        return;
    };
    let ipv6 = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), machine.addresses[1].port());
    let over_ipv6 = || get(ipv6, "apache1.test", "/").unwrap();
    let load = Load::start(machine.addresses, 2, "/");
    let _switch = machine.begin(&["switch"]);
    machine.wait_for_phase(Phase::Watching);
    machine.wait_for_howdah();
    wait_for_responses(&load, true);
    assert_eq!(over_ipv6(), "howdah apache1");
    assert_eq!(machine.run(&["rollback"]).0, 0);
    wait_for_responses(&load, false);
    assert_eq!(machine.server(), "old");
    assert_eq!(over_ipv6(), "old apache1");
    load.end().check_nothing_failed();
}

#[test]
fn howdah_may_open_more_files_than_the_shell_of_the_administrator() {
    let Some(machine) = Machine::start("switch-descriptors", 1) else {
        return;
    };
    let switch = machine.command(&["switch", "--watch", "1s"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 300; exec \"$@\"", "sh"]);
    shell.arg(switch.get_program()).args(switch.get_args());
    let (code, _, messages) = howdah_test_support::process::run_to_exit(&mut shell);
    assert_eq!(code, 0, "{messages}");
    let limits = format!("/proc/{}/limits", machine.howdah().pid);
    let limits = std::fs::read_to_string(limits).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let numbers: Vec<u64> = line
        .into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [soft, hard] = numbers[..] else {
        panic!("{limits}");
    };
    assert_eq!(soft, hard.min(65_536));
    assert_eq!(machine.run(&["rollback"]).0, 0);
}
