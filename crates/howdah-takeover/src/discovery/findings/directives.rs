//! Findings about directives that are not carried over.

use howdah_import::hosting::NAME_CONFLICT;
use howdah_import::ledger::{LedgerEntry, OutcomeKind, UNKNOWN_DIRECTIVE};

use super::super::imports::ServerImport;
use super::{Findings, finding};
use crate::plan::Severity;

/// The maximum length of a remedy in characters.
const MAX_REMEDY_CHARS: usize = 400;

/// Adds a finding for each directive that is not carried over: first those that denied or limited access.
pub fn report(imports: &[ServerImport], findings: &mut Findings) {
    let all = imports.iter().flat_map(|import| &import.parts.entries);
    let missing = all.filter(|entry| entry.outcome.kind() == OutcomeKind::Missing);
    let (protecting, others): (Vec<_>, Vec<_>) = missing.partition(|entry| entry.outcome.protects);
    for entry in protecting {
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
    for entry in others {
        report_other(entry, findings);
    }
}

fn report_other(entry: &LedgerEntry, findings: &mut Findings) {
    let mut needs = entry.outcome.needs.iter();
    if let Some(conflict) = needs.find(|need| need.contains(NAME_CONFLICT)) {
        add(
            entry,
            Severity::Risk,
            "NameConflict",
            conflict.clone(),
            findings,
        );
        return;
    }
    let severity = match concerns_only_logs(&entry.text) {
        true => Severity::Note,
        false => Severity::Risk,
    };
    let message = format!("{} is not carried over", entry.text);
    add(
        entry,
        severity,
        "DirectiveNotCarriedOver",
        message,
        findings,
    );
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
            "The importer does not know this directive; the documentation of its module says what it does."
                .to_owned()
        }
        false => sentence(&entry.outcome.needs.join("; ")),
    };
    findings.push(finding(severity, name, message, &remedy).at(&entry.place));
}

/// Returns a text of the import's list as a sentence. A list of many commands is shortened.
fn sentence(text: &str) -> String {
    let mut text = match text.starts_with("ln -s ") {
        true => format!("Run: {text}"),
        false => {
            let mut chars = text.chars();
            let first: String = chars
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .collect();
            first + chars.as_str()
        }
    };
    if let Some((end, _)) = text.char_indices().nth(MAX_REMEDY_CHARS) {
        text.truncate(end);
        text += "… (all of it is in the notes)";
    }
    text.trim_end_matches('.').to_owned() + "."
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
    let shows_state = ["server-status", "server-info"]
        .iter()
        .any(|page| text.contains(page));
    shows_state || NAMES.contains(&name.to_ascii_lowercase().as_str())
}
