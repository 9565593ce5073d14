//! What `switch`, `rollback` and `resume` print while they work, on the standard error.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;

use howdah_os::output::write_stderr_line;

use super::figures::{Baseline, share};
use super::service;
use super::state::SwitchState;
use crate::plan::{Plan, ServerKind};

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
                "the front page of {site} cannot be requested from here, or fails already, so it is not watched"
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
    pub fn kept(&self, plan: &Plan, directory: &Path) {
        self.line("the switch is complete");
        for line in remaining_work(plan, directory) {
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
            "{:.1} % of the last {requests} logged requests had a status of 500 or higher",
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
        "Howdah: {} responses, {:.1} % with a status of 500 or higher, {} crashes of PHP; front pages took {:.0} ms (p50), {:.0} ms (p99)",
        figures.requests,
        share(figures.errors, figures.requests) * 100.0,
        figures.crashes,
        figures.p50_ms,
        figures.p99_ms
    )
}

/// Returns what the user has to do after a complete switch.
pub fn remaining_work(plan: &Plan, directory: &Path) -> Vec<String> {
    let directory = directory.display();
    if service::manages(plan) {
        return vec![format!(
            "{} starts Howdah with the machine, and the old servers are stopped and disabled; to return to them, run `howdah takeover rollback --dir {directory}`",
            service::UNIT
        )];
    }
    let replaced = plan
        .servers
        .iter()
        .filter(|server| server.kind != ServerKind::PhpFpm);
    let mut lines: Vec<String> = replaced
        .map(|server| {
            format!(
                "{} (process {}) still runs without work, and `rollback` needs no pause while it does; before the machine is started again, make sure that nothing starts it",
                server.program.display(),
                server.pid
            )
        })
        .collect();
    lines.push(format!(
        "let your init system run `howdah takeover resume --dir {directory}`, which starts Howdah with the machine"
    ));
    lines
}
