//! When `plan` refuses to make a plan, and what it leaves then.

use std::fs;
use std::process::Command;

use howdah_test_support::process::run_to_exit;

use crate::machine::{Machine, free_address, site};

#[test]
fn process_that_is_no_server_is_refused() {
    let machine = Machine::new("plan-refused");
    let (code, _, stderr) = machine.plan_output(&[std::process::id()], &[]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("not the first process of an nginx"),
        "{stderr}"
    );
    assert!(!machine.takeover().exists());
}

#[test]
fn switch_in_progress_keeps_its_plan() {
    let mut machine = Machine::new("plan-switch");
    machine.scratch.write("root/index.html", "x");
    let address = free_address();
    let root = machine.path("root");
    let http = format!("server {{ listen {address}; server_name a.test; root {root}; }}\n");
    let pid = machine.nginx("nginx", address, &http);
    machine.plan(&[pid]);
    let plan = fs::read(machine.takeover().join("plan.json")).unwrap();
    machine.scratch.write("takeover/switch.json", "{}");
    let (code, _, stderr) = machine.plan_output(&[pid], &[]);
    assert!(
        code == 1 && stderr.contains("SwitchInProgress"),
        "{code} {stderr}"
    );
    assert_eq!(
        fs::read(machine.takeover().join("plan.json")).unwrap(),
        plan
    );
    fs::remove_file(machine.takeover().join("switch.json")).unwrap();
    machine.plan(&[pid]);
    assert!(machine.takeover().join("previous/plan.json").is_file());
}

#[test]
fn file_that_cannot_be_written_leaves_the_former_plan() {
    let mut machine = Machine::new("plan-full");
    machine.scratch.write("root/index.html", "x");
    let address = free_address();
    let root = machine.path("root");
    let servers: String = (0..50)
        .map(|n| format!("server {{ listen {address}; server_name n{n}.test; root {root}; }}\n"))
        .collect();
    let pid = machine.nginx("nginx", address, &servers);
    machine.plan(&[pid]);
    let former = fs::read(machine.takeover().join("plan.json")).unwrap();
    // The plan is larger than the 4 KiB that a file may have here.
    let mut command = Command::new("bash");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "bash"])
        .arg(env!("CARGO_BIN_EXE_howdah-takeover"))
        .args(["plan", "--server", &pid.to_string(), "--dir"])
        .arg(machine.takeover());
    let (code, _, stderr) = run_to_exit(&mut command);
    assert!(
        code == 1 && stderr.contains("CannotWrite"),
        "{code} {stderr}"
    );
    assert_eq!(
        fs::read(machine.takeover().join("plan.json")).unwrap(),
        former
    );
    let left = fs::read_dir(machine.scratch.path()).unwrap().flatten();
    let left: Vec<_> = left
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn configuration_that_cannot_be_read_blocks_the_switch() {
    let mut machine = Machine::new("plan-unreadable");
    machine.scratch.write("root/index.html", "x");
    let (address, other) = (free_address(), free_address());
    let root = machine.path("root");
    let http = |address, name: &str| {
        format!("server {{ listen {address}; server_name {name}; root {root}; }}\n")
    };
    let good = machine.nginx("good", address, &http(address, "a.test"));
    let bad = machine.nginx("bad", other, &http(other, "b.test"));
    machine
        .scratch
        .write("bad/nginx.conf", "http {\n  server {\n");
    let plan = machine.plan(&[good, bad]);
    let finding = &plan.findings[0];
    assert_eq!(finding.name, "ConfigurationUnreadable");
    assert!(
        finding
            .place
            .as_deref()
            .is_some_and(|place| place.contains("bad/nginx.conf:")),
        "{finding:?}"
    );
    assert_eq!(site(&plan, "a.test").hosts, ["a.test"]);
    assert_eq!(plan.sites.len(), 1);
}
