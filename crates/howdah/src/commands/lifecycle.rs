//! `howdah reload`, `howdah reopen`, `howdah upgrade` and `howdah stop`.

use std::process::ExitCode;
use std::time::Duration;

use super::client::{ResponseWait, send_request};
use crate::exit;
use crate::master::control::{ControlRequest, ControlResponse};
use howdah_config::arguments::{ServerTarget, StopArguments};
use howdah_config::value::milliseconds;

/// How long the server may take to open its log files. Only a broken file system needs longer.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Prints the response of the server. `done` is the participle for a refused command, as in "not stopped".
fn print_response(response: Result<ControlResponse, String>, done: &str) -> ExitCode {
    let response = match response {
        Ok(response) => response,
        Err(why) => {
            eprintln!("howdah: {why}");
            return exit::no_server();
        }
    };
    for advice in &response.advice {
        eprintln!("advice: {advice}");
    }
    if response.ok {
        return super::print_output(&response.message);
    }
    for mistake in &response.mistakes {
        eprintln!("{mistake}");
    }
    if !response.message.is_empty() {
        eprintln!("howdah: {}", response.message);
    }
    if response.mistakes.is_empty() {
        exit::failed()
    } else {
        eprintln!("howdah: not {done}");
        exit::configuration()
    }
}

/// Runs `howdah reload`. Returns when the new configuration is served or refused.
pub fn reload(target: &ServerTarget) -> ExitCode {
    // This needs no limit of its own, because `timeouts.start` limits how long PHP takes to start.
    print_response(
        send_request(
            target,
            &ControlRequest::Reload,
            ResponseWait::WhileMasterLives,
        ),
        "reloaded; the previous configuration remains in use",
    )
}

/// Runs `howdah reopen`. Returns when the new files are open.
pub fn reopen(target: &ServerTarget) -> ExitCode {
    print_response(
        send_request(
            target,
            &ControlRequest::Reopen,
            ResponseWait::AtMost(REOPEN_TIMEOUT),
        ),
        "reopened",
    )
}

/// Runs `howdah upgrade`. Returns when the front of the new program serves, or when the upgrade is refused.
pub fn upgrade(target: &ServerTarget) -> ExitCode {
    print_response(
        send_request(
            target,
            &ControlRequest::Upgrade,
            ResponseWait::WhileMasterLives,
        ),
        "upgraded; the previous program continues to serve",
    )
}

/// Runs `howdah stop`. Returns when the server has exited.
pub fn stop(stop: &StopArguments) -> ExitCode {
    let limit_ms = match &stop.timeout {
        None => None,
        // Without a unit, it is a number of seconds, as for timeout(1).
        Some(text) => match milliseconds(text).or_else(|| milliseconds(&format!("{text}s"))) {
            Some(ms) => Some(ms),
            None => {
                eprintln!("howdah: --timeout: expected a time such as 30s, found `{text}`");
                return ExitCode::from(2);
            }
        },
    };
    let wait = limit_ms.map_or(ResponseWait::WhileMasterLives, |ms| {
        ResponseWait::AtMost(Duration::from_millis(ms) + Duration::from_secs(10))
    });
    print_response(
        send_request(&stop.target, &ControlRequest::Stop { limit_ms }, wait),
        "stopped",
    )
}
