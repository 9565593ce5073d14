//! `howdah status`: the scoreboard, for people or as JSON.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;

use super::client::ask;
use crate::arguments::Status;
use crate::exit;
use crate::master::control::{Answer, Ask};

/// Runs it.
pub fn run(status: &Status) -> ExitCode {
    let answer = ask(&status.target, &Ask::Status, Some(Duration::from_secs(10)));
    let answer = match answer {
        Ok(answer) => answer,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::no_server();
        }
    };
    let (true, Some(server)) = (answer.ok, &answer.status) else {
        eprintln!("howdah: {}", answer.message);
        return exit::failed();
    };
    if status.json {
        println!("{}", json(&answer, server));
    } else {
        print!("{}", text(&answer, server));
    }
    exit::done()
}

/// The server's status with what the master knows beside it.
fn json(answer: &Answer, server: &Value) -> Value {
    let mut whole = server.clone();
    if let Value::Object(fields) = &mut whole {
        fields.insert("master".to_owned(), answer.master.into());
        fields.insert("configuration".to_owned(), answer.generation.into());
    }
    whole
}

fn text(answer: &Answer, server: &Value) -> String {
    let mut out = String::new();
    let n = |value: &Value, key: &str| value[key].as_u64().unwrap_or(0);
    let s = |value: &Value, key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let _ = writeln!(
        out,
        "howdah {}, up {} s; master {}, front {}, configuration {}",
        s(server, "version"),
        n(server, "uptime"),
        answer.master,
        n(server, "pid"),
        answer.generation
    );
    let connections = &server["connections"];
    let _ = writeln!(
        out,
        "connections {} of {} (accepted {}); requests {} ({} in progress)",
        n(connections, "open"),
        n(connections, "limit"),
        n(connections, "accepted"),
        n(server, "requests"),
        n(server, "requests_active")
    );
    pairs(&mut out, "answers", &server["statuses"]);
    pairs(&mut out, "failures", &server["failures"]);
    for pool in server["pools"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "\npool {} ({}, PHP {}, opcache {}): {}",
            s(pool, "pool"),
            s(pool, "process_manager"),
            s(pool, "php"),
            if pool["opcache"] == true { "on" } else { "off" },
            s(pool, "state")
        );
        let _ = writeln!(
            out,
            "  {} idle, {} active (most {}), queue {} of {} (most {}), requests {}, slow {}",
            n(pool, "idle_processes"),
            n(pool, "active_processes"),
            n(pool, "max_active_processes"),
            n(pool, "queue"),
            n(pool, "queue_size"),
            n(pool, "max_queue"),
            n(pool, "accepted_requests"),
            n(pool, "slow_requests")
        );
        pairs(&mut out, "  failures", &pool["failures"]);
        for child in pool["children"].as_array().into_iter().flatten() {
            let _ = writeln!(
                out,
                "  {:>3} {:>8} {:<11} {:>8.1} s {:>8} requests {:>6} MB  {} {}",
                n(child, "index"),
                n(child, "pid"),
                s(child, "state"),
                child["since"].as_f64().unwrap_or(0.0),
                n(child, "requests"),
                n(child, "memory") >> 20,
                child["method"].as_str().unwrap_or(""),
                child["uri"].as_str().unwrap_or("")
            );
        }
    }
    out
}

/// `[[name, count], …]` without the zeros.
fn pairs(out: &mut String, title: &str, list: &Value) {
    let shown: Vec<String> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter(|pair| pair[1] != 0)
        .map(|pair| match &pair[0] {
            Value::String(name) => format!("{name} {}", pair[1]),
            other => format!("{other}: {}", pair[1]),
        })
        .collect();
    if !shown.is_empty() {
        let _ = writeln!(out, "{title} {}", shown.join(", "));
    }
}
