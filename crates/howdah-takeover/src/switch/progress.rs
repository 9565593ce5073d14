//! What `switch`, `rollback` and `resume` print while they work, on the standard error.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;

use howdah_os::output::write_stderr_line;

use super::figures::{Baseline, share};
use super::service;
use super::state::SwitchState;
use crate::plan::{HTTP3_NOT_SWITCHED, Plan};

/// Prints the progress of a switch.
#[derive(Debug, Default)]
pub struct Progress {
    printed_once: RefCell<BTreeSet<String>>,
}

impl Progress {
    /// Prints a line.
    pub fn line(&self, text: &str) {
        clear_line();
        write_stderr_line(&format!("howdah: {text}"));
    }

    /// Prints a line, unless it has been printed already.
    pub fn once(&self, text: &str) {
        if self.printed_once.borrow_mut().insert(text.to_owned()) {
            self.line(text);
        }
    }

    /// Prints the figures of the old servers.
    pub fn baseline(&self, baseline: &Baseline) {
        self.line(&baseline_text(baseline));
        for site in &baseline.unwatched {
            self.line(&format!(
                "the front page of {site} is not watched, because it cannot be requested from here, fails already, or only redirects to another address"
            ));
        }
    }

    /// Replaces the last line of a terminal by the figures of Howdah. Prints nothing elsewhere.
    pub fn watch(&self, state: &SwitchState) {
        if !stderr().is_terminal() {
            return;
        }
        clear_line();
        let left = (state.since + state.watch_seconds).saturating_sub(super::state::now());
        let line = format!("howdah: {}; {left} s left", watch_text(state));
        // The process continues if the terminal is gone.
        let _ = stderr().write_all(line.as_bytes());
    }

    /// Says what a complete switch leaves to the user.
    pub fn kept(&self, state: &SwitchState, plan: &Plan, directory: &Path) {
        self.line("the switch is complete");
        for line in remaining_work(state, plan, directory) {
            self.line(&line);
        }
    }
}

fn clear_line() {
    if stderr().is_terminal() {
        let _ = stderr().write_all(b"\r\x1b[K");
    }
}

/// Returns the figures of the old servers as a sentence.
pub fn baseline_text(baseline: &Baseline) -> String {
    let errors = match baseline.logged_requests {
        0 => "their access logs have no requests".to_owned(),
        requests => format!(
            "{:.1} % of the last {requests} logged requests had the status 429, or 500 or higher",
            baseline.error_share() * 100.0
        ),
    };
    format!(
        "old servers: {errors}; {} front pages took {:.0} ms (p50), {:.0} ms (p99)",
        baseline.probes.len(),
        baseline.p50_ms,
        baseline.p99_ms
    )
}

/// Returns the figures of Howdah as a sentence.
pub fn watch_text(state: &SwitchState) -> String {
    let figures = &state.figures;
    format!(
        "Howdah: {} responses, {:.1} % with the status 429, or 500 or higher, {} crashes of PHP; front pages took {:.0} ms (p50), {:.0} ms (p99)",
        figures.requests,
        share(figures.errors, figures.requests) * 100.0,
        figures.crashes,
        figures.p50_ms,
        figures.p99_ms
    )
}

/// Returns what the user has to do after a complete switch.
pub fn remaining_work(state: &SwitchState, plan: &Plan, directory: &Path) -> Vec<String> {
    let directory = directory.display();
    let running = plan.servers.iter().filter(|server| {
        let mut owners = state.ports.iter().map(|port| port.owner);
        owners.any(|owner| owner.pid == server.pid && owner.is_alive())
    });
    let mut lines: Vec<String> = running
        .map(|server| {
            format!(
                "{} (process {}) continues to run without work, so that `rollback` needs no pause; make sure that it is not started when the machine restarts",
                server.program.display(),
                server.pid
            )
        })
        .collect();
    let mut findings = plan.findings.iter();
    if let Some(found) = findings.find(|found| found.name == HTTP3_NOT_SWITCHED) {
        lines.push(format!(
            "{}: {}. {}",
            found.name, found.message, found.remedy
        ));
    }
    lines.push(match state.is_managed() {
        true => format!(
            "{} starts Howdah when the machine starts; to return to the old servers, run `howdah takeover rollback --dir {directory}`",
            service::UNIT
        ),
        false => format!(
            "let your init system run `howdah takeover resume --dir {directory}` when the machine starts; this command starts Howdah"
        ),
    });
    lines
}
