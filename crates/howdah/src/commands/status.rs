//! `howdah status`: the scoreboard, for people or as JSON.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use howdah_server::admin::render::cache_text;
use howdah_server::cache::CacheStatus;
use howdah_server::log::escape;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Patience, ask};
use super::watch;
use crate::arguments::Status;
use crate::exit;
use crate::master::control::{Answer, Ask};

/// Runs it.
pub fn run(status: &Status) -> ExitCode {
    if status.watch {
        return watch::run(&status.target);
    }
    let patience = Patience::Time(Duration::from_secs(10));
    let answer = ask(&status.target, &Ask::Status, patience);
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
    super::answer(&match status.json {
        true => json(&answer, server).to_string(),
        false => text(&answer, server),
    })
}

/// The server's status with what the master knows beside it.
fn json(answer: &Answer, server: &Value) -> Value {
    let mut whole = server.clone();
    if let Value::Object(fields) = &mut whole {
        fields.insert("master".to_owned(), answer.master.into());
        fields.insert("configuration".to_owned(), answer.generation.into());
        if let Ok(server) = serde_json::to_value(&answer.server) {
            fields.insert("server".to_owned(), server);
        }
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
    if let Some(facts) = &answer.server {
        let directories = facts.directories();
        let _ = writeln!(
            out,
            "listening on {}; serves {directories}",
            facts.listen.join(" ")
        );
    }
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
    for (key, log) in [
        ("access_log_dropped", "access log"),
        ("error_log_dropped", "error log"),
    ] {
        let lost = n(server, key);
        if lost > 0 {
            let _ = writeln!(out, "{log}: {lost} lines lost");
        }
    }
    // A server of another version may say it otherwise.
    if let Ok(cache) = CacheStatus::deserialize(&server["cache"]) {
        cache_text(&mut out, &cache);
    }
    for pool in server["pools"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "\npool {} ({}{}): {}",
            s(pool, "pool"),
            s(pool, "process_manager"),
            php(pool),
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
        for backend in pool["backends"].as_array().into_iter().flatten() {
            let _ = writeln!(
                out,
                "  {:<28} {:<5} {:>4} busy of {:>4}, {:>3} kept, {:>8} requests, {:>6} connects, {} failures, {} overflows {}",
                s(backend, "address"),
                s(backend, "state"),
                n(backend, "busy"),
                n(backend, "limit"),
                n(backend, "kept"),
                n(backend, "requests"),
                n(backend, "connects"),
                n(backend, "failures"),
                n(backend, "overflows"),
                backend["why"].as_str().unwrap_or("")
            );
        }
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
                clean(&child["method"]),
                clean(&child["uri"])
            );
        }
    }
    out
}

/// What clients chose must not steer the terminal.
fn clean(text: &Value) -> String {
    let mut out = Vec::new();
    escape::message(&mut out, text.as_str().unwrap_or_default().as_bytes(), 500);
    String::from_utf8_lossy(&out).into_owned()
}

/// What is known of PHP: of one that somebody else runs, or that has not started, nothing.
fn php(pool: &Value) -> String {
    if pool["backends"].is_array() || pool["php"] == "" {
        return String::new();
    }
    let opcache = if pool["opcache"] == true { "on" } else { "off" };
    format!(
        ", PHP {}, opcache {opcache}",
        pool["php"].as_str().unwrap_or("-")
    )
}

fn pairs(out: &mut String, title: &str, list: &Value) {
    if let Some(shown) = shown_pairs(list) {
        let _ = writeln!(out, "{title} {shown}");
    }
}

/// `[[name, count], …]` without the zeros; none if nothing is left.
pub(super) fn shown_pairs(list: &Value) -> Option<String> {
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
    (!shown.is_empty()).then(|| shown.join(", "))
}
