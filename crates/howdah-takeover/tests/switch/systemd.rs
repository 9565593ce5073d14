//! Switches on a machine that systemd manages. The tests replace `systemctl` by a script, in a mount namespace in which
//! `/run/systemd/system` exists and `/etc/systemd/system` is empty.

use std::fs;
use std::process::Command;

use howdah_machine::ports::free_address;
use howdah_takeover::switch::process::ProcessIdentity;
use howdah_takeover::switch::state::Phase;
use howdah_test_support::executable::make_executable;
use howdah_test_support::process::{Process, wait_until};
use rustix::process::Signal;

use crate::machine::{Machine, PATIENCE};

/// Does what systemd would do, and writes down what it was asked.
const SYSTEMCTL: &str = r#"#!/bin/sh
case "$*" in
'show --property MainPID --value nginx.service') cat "$DIRECTORY/nginx.pid"; exit ;;
'show --property MainPID --value apache2.service') cat "$DIRECTORY/apache.pid"; exit ;;
'show --property MainPID --value ssh.service') echo 1; exit ;;
'is-enabled nginx.service') echo enabled; exit ;;
'is-enabled '*) echo disabled; exit 1 ;;
esac
echo "$*" >>"$DIRECTORY/systemctl.log"
gone() { while kill -0 "$1" 2>/dev/null && ! grep -q '^State:.Z' "/proc/$1/status"; do sleep 0.02; done; }
case "$*" in
'enable --now howdah-takeover.service')
  line=$(sed -n 's/^ExecStart=//p' /etc/systemd/system/howdah-takeover.service)
  eval "setsid $line >>$DIRECTORY/resume.log 2>&1 </dev/null &"
  echo $! >"$DIRECTORY/resume.pid" ;;
'disable --now nginx.service') pid=$(cat "$DIRECTORY/nginx.pid"); kill -QUIT "$pid"; gone "$pid" ;;
'disable --now apache2.service') pid=$(cat "$DIRECTORY/apache.pid"); kill -WINCH "$pid"; gone "$pid" ;;
'start nginx.service') setsid /usr/sbin/nginx -c "$DIRECTORY/nginx.conf" >/dev/null 2>&1 </dev/null & ;;
'start apache2.service') setsid /usr/sbin/apache2 -f "$DIRECTORY/apache.conf" -DFOREGROUND >/dev/null 2>&1 </dev/null & ;;
esac
"#;

/// Starts `switch` where systemd seems to run.
fn begin(machine: &mut Machine, watch: &str) -> Process {
    begin_with(machine, ["nginx.service", "apache2.service"], watch)
}

fn begin_with(machine: &mut Machine, units: [&str; 2], watch: &str) -> Process {
    for (server, unit) in machine.plan.servers.iter_mut().zip(units) {
        server.unit = Some(unit.to_owned());
    }
    machine.write_plan();
    fs::create_dir(machine.path("bin")).unwrap();
    let systemctl = machine.path("bin/systemctl");
    fs::write(&systemctl, SYSTEMCTL).unwrap();
    make_executable(&systemctl);
    let script = "mount -t tmpfs none /run && mkdir -p /run/systemd/system && \
                  mount -t tmpfs none /etc/systemd/system && exec \"$@\"";
    let switch = machine.command(&["switch", "--watch", watch]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(switch.get_program()).args(switch.get_args());
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", machine.path("bin").display()));
    command.env("DIRECTORY", machine.path(""));
    Process::start("howdah-takeover", &mut command)
}

fn asked(machine: &Machine) -> Vec<String> {
    let text = fs::read_to_string(machine.path("systemctl.log")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn systemd_starts_howdah_after_a_complete_switch_and_the_old_servers_after_a_rollback() {
    let Some(mut machine) = Machine::start("switch-systemd", 1) else {
        return;
    };
    let mut switch = begin(&mut machine, "2s");
    assert_eq!(
        switch.wait_exit(PATIENCE).unwrap().code(),
        Some(0),
        "{}",
        switch.log()
    );
    let kept = [
        "daemon-reload",
        "enable --now howdah-takeover.service",
        "disable --now nginx.service",
        "disable --now apache2.service",
    ];
    assert_eq!(asked(&machine), kept);
    machine.nginx.wait_exit(PATIENCE).unwrap();
    machine.apache.wait_exit(PATIENCE).unwrap();
    assert_eq!(machine.server(), "howdah");
    // The unit starts Howdah again.
    let first = machine.howdah();
    machine.kill_howdah();
    wait_until("another Howdah", PATIENCE, || machine.howdah() != first);
    wait_until("Howdah", PATIENCE, || {
        crate::load::get(machine.addresses[0], "nginx0.test", "/").is_ok()
    });
    assert_eq!(machine.server(), "howdah");

    let (code, _, messages) = machine.run(&["rollback"]);
    assert_eq!(code, 0, "{messages}");
    let rolled_back = [
        "start nginx.service",
        "start apache2.service",
        // Apache's unit was not enabled before.
        "enable nginx.service",
        "disable howdah-takeover.service",
    ];
    assert_eq!(asked(&machine)[kept.len()..], rolled_back);
    assert_eq!(machine.server(), "old");
}

#[test]
fn unit_of_another_program_is_not_touched() {
    let Some(mut machine) = Machine::start("switch-other-unit", 1) else {
        return;
    };
    let mut switch = begin_with(&mut machine, ["ssh.service", "apache2.service"], "1s");
    let code = switch.wait_exit(PATIENCE).unwrap().code();
    assert_eq!(code, Some(0), "{}", switch.log());
    let asked = asked(&machine);
    assert!(asked.contains(&"disable --now apache2.service".to_owned()));
    assert!(!asked.iter().any(|line| line.contains("ssh")), "{asked:?}");
    assert!(machine.nginx.is_running());
    assert_eq!(machine.server(), "howdah");
    // After a reload, nginx no longer listens at its address. Apache must get its own address back nevertheless.
    let elsewhere = free_address().unwrap().to_string();
    let file = machine.path("nginx.conf");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace(&machine.addresses[0].to_string(), &elsewhere);
    fs::write(&file, text).unwrap();
    machine.nginx.signal(Signal::HUP);
    let nginx = ProcessIdentity::of(machine.nginx.pid()).unwrap();
    let inode = machine.plan.servers[0].listeners[0].inode;
    wait_until("the reload", PATIENCE, || {
        !nginx.sockets().unwrap().contains_key(&inode)
    });
    let (code, _, messages) = machine.run(&["rollback"]);
    assert_eq!(code, 0, "{messages}");
    let howdah = machine.state().unwrap();
    assert_eq!((howdah.phase, howdah.howdah), (Phase::RolledBack, None));
    let get = |number: usize, host: &str| crate::load::get(machine.addresses[number], host, "/");
    assert!(get(0, "nginx0.test").is_err());
    assert!(get(1, "apache0.test").unwrap().starts_with("old"));
}

#[test]
fn systemd_unit_continues_a_watch_whose_program_was_killed() {
    let Some(mut machine) = Machine::start("switch-unit", 1) else {
        return;
    };
    let switch = begin(&mut machine, "5s");
    machine.wait_for_phase(Phase::Watching);
    machine.wait_for_howdah();
    switch.signal(Signal::KILL);
    machine.wait_for_phase(Phase::Kept);
    assert_eq!(machine.server(), "howdah");
    let resumed = fs::read_to_string(machine.path("resume.log")).unwrap();
    assert!(resumed.contains("the watch continues"), "{resumed}");
    let (_, text, _) = machine.run(&["status"]);
    assert!(
        text.contains("the switch is complete; Howdah serves"),
        "{text}"
    );
}
