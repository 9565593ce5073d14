//! `howdah status`: the scoreboard, as text or as JSON.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use howdah_server::admin::{ServerStatus, StatusForm};
use serde::Deserialize;
use serde_json::Value;

use super::cert;
use super::client::{ResponseWait, send_request};
use super::watch;
use crate::exit;
use crate::master::control::{ControlRequest, ControlResponse};
use howdah_config::arguments::StatusArguments;
use howdah_config::php::releases;

/// Runs `howdah status`.
pub fn run(status: &StatusArguments) -> ExitCode {
    if status.watch {
        return watch::run(&status.target);
    }
    let seconds = if status.quick { 3 } else { 10 };
    let wait = ResponseWait::AtMost(Duration::from_secs(seconds));
    let answer = send_request(&status.target, &ControlRequest::Status, wait);
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
    if status.quick {
        return quick(server);
    }
    super::print_output(&match status.json {
        true => json(&answer, server).to_string(),
        false => text(&answer, server),
    })
}

/// Runs `--quick`, which reports whether scripts can run.
fn quick(server: &Value) -> ExitCode {
    let pools = server["pools"].as_array().map_or(&[][..], Vec::as_slice);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if pools.iter().any(|pool| pool["state"] == "Ready") {
        return super::print_output("serving");
    }
    let states = pools
        .iter()
        .map(|pool| (word(&pool["pool"]), word(&pool["state"])));
    let states: Vec<String> = states
        .map(|(pool, state)| format!("pool {pool}: {state}"))
        .collect();
    match states.is_empty() {
        true => eprintln!("howdah: NotReady: the front is starting"),
        false => eprintln!("howdah: NotReady: {}", states.join("; ")),
    }
    exit::failed()
}

/// Returns the server's status together with the data of the master.
fn json(answer: &ControlResponse, server: &Value) -> Value {
    let mut whole = server.clone();
    if let Value::Object(fields) = &mut whole {
        fields.insert("master".to_owned(), answer.master.into());
        fields.insert("configuration".to_owned(), answer.generation.into());
        if !answer.certificates.is_null() {
            fields.insert(
                "ordered_certificates".to_owned(),
                answer.certificates.clone(),
            );
        }
        if let Ok(server) = serde_json::to_value(&answer.server) {
            fields.insert("server".to_owned(), server);
        }
    }
    whole
}

/// Returns the data of the master, followed by the front's status as its status page shows it.
fn text(answer: &ControlResponse, server: &Value) -> String {
    let mut out = format!(
        "master process {}, configuration {}",
        answer.master, answer.generation
    );
    if let Some(facts) = &answer.server {
        let (listen, directories) = (facts.listen.join(" "), facts.directories());
        out += &format!("\nlistening on {listen}; serves {directories}");
    }
    for line in cert::status_lines(&cert::statuses(answer), SystemTime::now()) {
        out += &format!("\n{line}");
    }
    out.push('\n');
    match ServerStatus::deserialize(server) {
        // Before it serves, the front sends no other status.
        Ok(_) if server["state"] == "starting" => out.push_str("the front is starting"),
        Ok(status) => {
            out.push_str(&StatusForm::Text.write(&status));
            let versions: BTreeSet<&str> = status.pools.iter().map(|pool| &*pool.php).collect();
            for warning in versions.into_iter().filter_map(releases::warning) {
                out += &format!("\n{warning}");
            }
        }
        Err(_) => out.push_str(
            "the server runs another version of Howdah; `howdah status --json` shows its status",
        ),
    }
    out
}
