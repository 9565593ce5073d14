//! Findings about directives that are not carried over.

use howdah_import::ledger::{LedgerEntry, OutcomeKind, UNKNOWN_DIRECTIVE};

use super::super::imports::ServerImport;
use super::{Findings, finding};
use crate::plan::Severity;

/// Adds a finding for each directive that is not carried over: first those that denied or limited access.
pub fn report(imports: &[ServerImport], findings: &mut Findings) {
    let all = || imports.iter().flat_map(|import| &import.parts.entries);
    let missing = |entry: &&LedgerEntry| entry.outcome.kind() == OutcomeKind::Missing;
    for entry in all().filter(missing).filter(|entry| entry.outcome.protects) {
        let message = format!(
            "{} denied or limited access, and is not carried over",
            entry.text
        );
        add(
            entry,
            Severity::Risk,
            "ProtectionNotCarriedOver",
            message,
            findings,
        );
    }
    for entry in all()
        .filter(missing)
        .filter(|entry| !entry.outcome.protects)
    {
        let conflict = entry
            .outcome
            .needs
            .iter()
            .find(|need| need.contains(" is served by the server at "));
        if let Some(conflict) = conflict {
            add(
                entry,
                Severity::Risk,
                "NameConflict",
                conflict.clone(),
                findings,
            );
            continue;
        }
        let (severity, message) = match concerns_only_logs(&entry.text) {
            true => (
                Severity::Note,
                format!("{} is not carried over", entry.text),
            ),
            false => (
                Severity::Risk,
                format!("{} is not carried over", entry.text),
            ),
        };
        add(
            entry,
            severity,
            "DirectiveNotCarriedOver",
            message,
            findings,
        );
    }
}

fn add(
    entry: &LedgerEntry,
    severity: Severity,
    name: &str,
    message: String,
    findings: &mut Findings,
) {
    let unknown = entry
        .outcome
        .needs
        .iter()
        .any(|need| need == UNKNOWN_DIRECTIVE);
    let remedy = match unknown {
        true => {
            "This directive is not known: read what it does in the documentation of its module."
                .to_owned()
        }
        false => sentence(&entry.outcome.needs.join("; ")),
    };
    findings.push(finding(severity, name, message, &remedy).at(&entry.place));
}

/// Returns a text of the import's list as a sentence.
fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first: String = chars
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    format!("{first}{}.", chars.as_str().trim_end_matches('.'))
}

/// Returns whether a directive changes only what is logged or measured, which no visitor notices.
fn concerns_only_logs(text: &str) -> bool {
    const NAMES: &[&str] = &[
        "access_log",
        "error_log",
        "log_format",
        "customlog",
        "transferlog",
        "errorlog",
        "logformat",
        "loglevel",
        "pm.status_path",
        "pm.status_listen",
        "ping.path",
        "ping.response",
        "access.log",
        "access.format",
        "slowlog",
        "stub_status",
        "extendedstatus",
    ];
    let name = text.split([' ', '=']).next().unwrap_or_default();
    NAMES.contains(&name.to_ascii_lowercase().as_str())
}
