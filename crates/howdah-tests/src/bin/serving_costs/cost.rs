//! Measures what one hello request costs besides time: system calls, counted by `strace -c`, and context switches, read
//! from /proc. strace slows everything down and so makes processes sleep more often; its counts of futex, epoll_wait,
//! and reads and writes of eventfds that wake processes are therefore upper bounds. The context switches are measured
//! in a run without strace.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use howdah_machine::php;
use howdah_tests::process_tree;
use howdah_tests::rig::{Server, ServerKind};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, WrkLoad};
use rustix::process::{Pid, Signal, kill_process};

use super::{Options, start};

const PROGRAMS: &[&str] = &["howdah", "howdah-php", "nginx", "php-fpm{php}"];

/// Prints both figures for Howdah and for nginx with php-fpm.
pub fn measure(options: &Options, scratch: &Scratch) {
    println!("\ncost of a hello request at c=100 and c=1");
    for kind in [ServerKind::Howdah, ServerKind::NginxFpm] {
        for connections in [100, 1] {
            // Each run has a fresh server: a process that was traced may remain slower, or stopped.
            let server = start(kind, options, scratch);
            let mut load = WrkLoad {
                target: "/hello.php".into(),
                connections,
                seconds: 1,
            };
            wrk::run(server.address(), &load);
            load.seconds = options.seconds;
            context_switches(server.as_ref(), &load);
            system_calls(server.as_ref(), &load);
        }
    }
}

fn pids() -> Vec<i32> {
    process_tree::below(std::process::id().cast_signed())
        .iter()
        .filter(|e| {
            PROGRAMS
                .iter()
                .any(|program| php::expand_placeholders(program) == e.program)
        })
        .map(|e| e.pid)
        .collect()
}

fn switches(pids: &[i32]) -> (u64, u64) {
    let mut sum = (0, 0);
    for pid in pids {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            let field = |name: &str| -> u64 {
                status
                    .lines()
                    .find_map(|l| l.strip_prefix(name)?.trim().parse().ok())
                    .unwrap_or(0)
            };
            sum.0 += field("voluntary_ctxt_switches:");
            sum.1 += field("nonvoluntary_ctxt_switches:");
        }
    }
    sum
}

fn context_switches(server: &dyn Server, load: &WrkLoad) {
    let pids = pids();
    let before = switches(&pids);
    let rate = wrk::run(server.address(), load);
    let after = switches(&pids);
    let requests = rate * f64::from(load.seconds);
    println!(
        "  {:<10} c={:<3} {:.3} sleeps and {:.3} preemptions a request, all processes together ({:.0} req/s)",
        server.kind().name(),
        load.connections,
        (after.0 - before.0) as f64 / requests,
        (after.1 - before.1) as f64 / requests,
        rate,
    );
}

fn system_calls(server: &dyn Server, load: &WrkLoad) {
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-q"]);
    for pid in pids() {
        command.arg("-p").arg(pid.to_string());
    }
    let strace = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run strace (Debian package `strace`): {error}"));
    let traced: BTreeSet<i32> = pids().into_iter().collect();
    howdah_tests::process::wait_until(
        "strace to attach",
        std::time::Duration::from_secs(10),
        || traced.iter().all(|pid| is_traced(*pid)),
    );
    let rate = wrk::run(server.address(), load);
    let requests = rate * f64::from(load.seconds);
    let _ = kill_process(Pid::from_child(&strace), Signal::INT);
    let output = strace.wait_with_output().expect("strace ends");
    let text = String::from_utf8_lossy(&output.stderr);
    let mut calls: Vec<(&str, f64)> = text
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let count: f64 = words.get(3)?.parse().ok()?;
            Some((*words.last()?, count / requests))
        })
        .filter(|(name, each)| *name == "total" || *each >= 0.02)
        .collect();
    calls.sort_by(|a, b| b.1.total_cmp(&a.1));
    let shown: Vec<String> = calls
        .iter()
        .map(|(name, each)| format!("{name} {each:.2}"))
        .collect();
    println!(
        "  {:<10} c={:<3} system calls a request under strace: {}",
        server.kind().name(),
        load.connections,
        shown.join(", ")
    );
}

fn is_traced(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .unwrap_or_default()
        .lines()
        .any(|l| {
            l.strip_prefix("TracerPid:")
                .is_some_and(|p| p.trim() != "0")
        })
}
