//! When `plan` refuses to make a plan, and what it leaves then.

use std::fs;
use std::process::Command;

use howdah_takeover::plan::{Plan, Severity};
use howdah_test_support::executable::make_executable;
use howdah_test_support::process::run_to_exit;

use crate::machine::{Machine, found, free_address, is_root, site};

#[test]
fn process_that_is_no_server_is_refused() {
    let machine = Machine::new("plan-refused");
    let (code, _, stderr) = machine.plan_output(&[std::process::id()], &[]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("not the main process of an nginx"),
        "{stderr}"
    );
    assert!(!machine.takeover().exists());
}

#[test]
fn title_of_another_program_makes_no_server() {
    let mut machine = Machine::new("plan-hostile");
    let evil = machine
        .scratch
        .write("evil.conf", "events {}\nhttp { server { listen 1; } }\n");
    let title = format!(
        "nginx: master process /usr/sbin/nginx -c {}",
        evil.display()
    );
    let mut command = Command::new("bash");
    let script = "echo $$ > \"$2\"; exec -a \"$1\" sleep 60";
    let file = machine.path("pid");
    command.args(["-c", script, "bash", &title, &file]);
    let pid = machine.start("sleep", &mut command, || {
        let pid = fs::read_to_string(&file).unwrap_or_default();
        let arguments = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim()));
        arguments.is_ok_and(|text| text.starts_with("nginx: master"))
    });
    let (code, _, stderr) = machine.plan_output(&[pid], &[]);
    assert!(
        code == 1 && stderr.contains("not the main process"),
        "{code} {stderr}"
    );
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

#[test]
fn unprivileged_user_learns_what_was_not_visible() {
    if !is_root() {
        eprintln!("skipped: only root can start a server that this user may not see");
        return;
    }
    let mut machine = Machine::new("plan-unprivileged");
    machine.scratch.write("root/index.html", "x");
    let address = free_address();
    let root = machine.path("root");
    let http = format!("server {{ listen {address}; server_name a.test; root {root}; }}\n");
    let pid = machine.nginx("nginx", address, &http);
    let directory = machine.scratch.writable_dir("theirs").join("takeover");
    // A copy that the user may run, without `howdah` beside it.
    let program = machine.scratch.join("howdah-takeover");
    fs::copy(env!("CARGO_BIN_EXE_howdah-takeover"), &program).unwrap();
    make_executable(&program);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=www-data", "--regid=www-data", "--clear-groups"])
        .arg(&program)
        .env("PATH", "/usr/sbin:/usr/bin")
        .args(["plan", "--server", &pid.to_string(), "--dir"])
        .arg(&directory);
    let (code, _, stderr) = run_to_exit(&mut command);
    assert_eq!(code, 0, "{stderr}");
    let plan = Plan::read(&directory).unwrap();
    assert_eq!(
        found(&plan, "ProcessUnreadable", "as root").severity,
        Severity::Risk
    );
    found(&plan, "ConfigurationNotChecked", "howdah");
    assert_eq!(site(&plan, "a.test").addresses[0].address, address);
}
