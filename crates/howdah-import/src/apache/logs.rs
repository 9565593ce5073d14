//! Translates logs: `CustomLog`, `LogFormat`, `ErrorLog`. All sites of Howdah share one log of each kind.

use std::collections::BTreeSet;

use super::global_settings::GlobalSettings;
use crate::directive::Directive;
use crate::target::TomlValue;

const COMMON_LOG_FORMAT: &str = "%h %l %u %t \"%r\" %>s";
const COMBINED_LOG_FORMAT: &str = "\"%{Referer}i\" \"%{User-Agent}i\"";

/// Returns the access log format of Howdah that corresponds to a `LogFormat`.
fn format_of(text: &str) -> &'static str {
    let text = text.replace("User-agent", "User-Agent");
    match text.strip_prefix(COMMON_LOG_FORMAT).map(str::trim) {
        Some("%b" | "%O" | "%B") => "common",
        Some(rest)
            if [
                format!("%b {COMBINED_LOG_FORMAT}"),
                format!("%O {COMBINED_LOG_FORMAT}"),
                format!("%B {COMBINED_LOG_FORMAT}"),
            ]
            .iter()
            .any(|whole| whole == rest) =>
        {
            "combined"
        }
        _ if text.starts_with('{') => "json",
        _ => "extended",
    }
}

fn logs_of_hosts<'d>(all: &[&'d Directive]) -> Vec<&'d Directive> {
    let hosts = all.iter().filter(|d| d.name == "virtualhost");
    let lines = hosts.flat_map(|host| host.inner());
    lines
        .filter(|d| d.name == "customlog" || d.name == "transferlog")
        .collect()
}

/// Carries over the first access log, as the log of all sites.
pub fn translate_access_logs(all: &[&Directive], settings: &mut GlobalSettings<'_, '_>) {
    let ledger = settings.server.ledger;
    let formats: Vec<&&Directive> = all.iter().filter(|d| d.name == "logformat").collect();
    let is_log =
        |d: &&&Directive| matches!(d.name.as_str(), "customlog" | "transferlog" | "globallog");
    let mut logs: Vec<&Directive> = all.iter().filter(is_log).copied().collect();
    // If all hosts that configure a log name the same one, it takes precedence over the log of the hosts that configure
    // none.
    let own: Vec<&Directive> = logs_of_hosts(all);
    let paths: BTreeSet<&str> = own.iter().map(|log| log.arg(0)).collect();
    if paths.len() == 1 {
        logs.sort_by_key(|log| !own.iter().any(|own| own.id == log.id));
    }
    let mut main: Option<&Directive> = None;
    for log in logs {
        let path = log.arg(0);
        let is_condition = log
            .args
            .iter()
            .any(|arg| arg.starts_with("env=") || arg.starts_with("expr="));
        if let Some(main) = main {
            match main.args == log.args {
                true => ledger.mark_carried(log.id),
                false => ledger.mark_missing(log.id, "all sites share one access log; with access_format = \"extended\" or \"json\", each line names its host"),
            }
            continue;
        }
        if path.starts_with('|') || path.starts_with("syslog:") || path.contains("${") {
            ledger.mark_missing(log.id, "`access` in [log] must be a path, stdout or stderr; to rotate logs, use logrotate and `howdah reopen`");
            continue;
        }
        main = Some(log);
        let path = settings.server.path(path);
        settings
            .config
            .section("log")
            .set("access", path, Some(&log.place));
        let name = Some(log.arg(1)).filter(|name| !name.is_empty() && log.name != "transferlog");
        let format =
            name.and_then(|name| formats.iter().rev().find(|format| format.arg(1) == name));
        let text = format.map_or(name.unwrap_or("%h %l %u %t \"%r\" %>s %b"), |format| {
            format.arg(0)
        });
        let word = match (format, name) {
            (None, Some("common" | "combined")) => name.unwrap_or_default(),
            _ => format_of(text),
        };
        settings.config.section("log").set(
            "access_format",
            word,
            format.map(|format| &format.place),
        );
        if let Some(format) = format {
            match word {
                "common" | "combined" => ledger.mark_carried(format.id),
                _ => ledger.mark_different(
                    format.id,
                    format!("access_format = \"{word}\" has the fields of this format"),
                ),
            }
        }
        match is_condition {
            true => ledger.mark_different(log.id, "the log contains all requests"),
            false => ledger.mark_carried(log.id),
        }
    }
    for format in formats {
        if !ledger.has_outcome(format.id) {
            let used = all
                .iter()
                .any(|d| d.name == "customlog" && d.arg(1) == format.arg(1));
            match used {
                true => ledger.mark_irrelevant(
                    format.id,
                    "this list also contains the log that uses this format",
                ),
                false => ledger.mark_irrelevant(format.id, "no log is written in this format"),
            }
        }
    }
}

pub fn translate_error_logs(all: &[&Directive], settings: &mut GlobalSettings<'_, '_>) {
    let ledger = settings.server.ledger;
    for line in all.iter().filter(|d| d.name == "errorlog") {
        let path = line.arg(0);
        let log = settings.config.section("log");
        let value = match path {
            "/dev/stderr" | "stderr" => "stderr".to_owned(),
            path if path.starts_with(['|', '$']) || path.starts_with("syslog") => {
                ledger.mark_missing(line.id, "`error` in [log] must be a path or stderr");
                continue;
            }
            path => settings.server.root.join(path).display().to_string(),
        };
        match log.get("error") {
            Some(TomlValue::Text(known)) if *known == value => ledger.mark_carried(line.id),
            Some(_) => ledger.mark_missing(
                line.id,
                "all sites share one error log, whose lines name the site",
            ),
            None => {
                log.set("error", value, Some(&line.place));
                ledger.mark_carried(line.id);
            }
        }
    }
    for line in all.iter().filter(|d| d.name == "loglevel") {
        let words = line.args.iter().map(|word| word.to_ascii_lowercase());
        let mut plain = words.filter(|word| !word.contains(':'));
        let level = match plain.next().as_deref() {
            Some("emerg" | "alert" | "crit" | "error") => "error",
            Some("warn") => "warning",
            Some("notice") => "notice",
            Some("info") => "info",
            Some(word) if word.starts_with("debug") || word.starts_with("trace") => "debug",
            _ => {
                ledger.mark_irrelevant(
                    line.id,
                    "Howdah does not have the modules to which these levels apply",
                );
                continue;
            }
        };
        settings.set_once(line, "log", "level", TomlValue::from(level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_formats_are_recognised() {
        for (text, expected) in [
            ("%h %l %u %t \"%r\" %>s %b", "common"),
            (
                "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-agent}i\"",
                "combined",
            ),
            ("%v:%p %h %l %u %t \"%r\" %>s %O", "extended"),
            ("{ \"a\": \"%h\" }", "json"),
        ] {
            assert_eq!(format_of(text), expected, "{text}");
        }
    }
}
