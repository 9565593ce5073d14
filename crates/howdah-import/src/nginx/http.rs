//! Translates the settings that apply to all of nginx: user, logs, timeouts, compression. Then translates its servers.

use std::ops::RangeInclusive;

use super::hosts;
use super::scope::NginxScope;
use super::{NginxContext, server};
use crate::directive::Directive;
use crate::media_type::needs_no_compression_line;
use crate::reasons;
use crate::target::TomlValue;
use crate::time;

/// Translates the directives outside `http`.
pub fn translate_main(tree: &[Directive], context: &mut NginxContext<'_>) {
    let ledger = context.ledger;
    for directive in tree {
        match directive.name.as_str() {
            "user" => {
                let user = match directive.args.len() {
                    2.. => format!("{}:{}", directive.arg(0), directive.arg(1)),
                    _ => directive.arg(0).to_owned(),
                };
                context.config.top.set("user", user, Some(&directive.place));
                ledger.mark_carried(directive.id);
            }
            "pid" => ledger.mark_irrelevant(directive.id, reasons::SERVICE),
            "error_log" => translate_error_log(directive, context),
            "events" | "stream" | "mail" => {
                let events = directive.name == "events";
                directive.walk(&mut |d| match events {
                    true => ledger.mark_irrelevant(d.id, reasons::TUNING),
                    false => ledger.mark_missing(d.id, "Howdah serves only HTTP"),
                });
            }
            _ => {}
        }
    }
}

fn translate_error_log(directive: &Directive, context: &mut NginxContext<'_>) {
    let ledger = context.ledger;
    let log = context.config.section("log");
    if log.get("error").is_some() {
        ledger.mark_missing(
            directive.id,
            "all sites share one error log, whose lines name the site",
        );
        return;
    }
    match directive.arg(0) {
        "stderr" | "/dev/stderr" => log.set("error", "stderr", Some(&directive.place)),
        path if path.starts_with('/') => log.set("error", path, Some(&directive.place)),
        _ => return ledger.mark_missing(directive.id, "`error` in [log] must be a path or stderr"),
    }
    let level = match directive.arg(1) {
        "debug" => Some("debug"),
        "info" => Some("info"),
        "warn" => Some("warning"),
        "notice" => Some("notice"),
        "error" | "crit" | "alert" | "emerg" => Some("error"),
        _ => None,
    };
    if let Some(level) = level {
        log.set("level", level, Some(&directive.place));
    }
    ledger.mark_carried(directive.id);
}

/// Translates the content of `http`.
pub fn translate_http<'a>(directives: &'a [Directive], context: &mut NginxContext<'a>) {
    let scope = NginxScope::outermost(directives);
    translate_timeouts(directives, context);
    translate_access_logs(directives, context);
    translate_compression(directives, context);
    super::real_ip::write_trusted_proxies(directives, context);
    context.zones = super::limits::parse_zones(directives, context.ledger);
    context.constants = super::scope::map_constants(directives, context.ledger);
    let blocks: Vec<&Directive> = scope.in_own_block("server").collect();
    let (servers, sites, common) = hosts::assign_servers(&blocks, &scope, context.ledger);
    if !common.is_empty() {
        let top = &mut context.config.top;
        top.set("listen", crate::listen::listen_values(&common), None);
    }
    let first = context.config.sites.len();
    for answers in &sites {
        let site = match answers.first_site {
            Some(number) => answers.copy_of_site(&context.config.sites[first + number]),
            None => server::translate_server(&servers[answers.server], answers, &scope, context),
        };
        context.config.sites.push(site);
    }
    for name in [
        "root",
        "index",
        "client_max_body_size",
        "add_header",
        "expires",
        "fastcgi_param",
        "ssl_certificate",
        "ssl_certificate_key",
    ] {
        for directive in scope.in_own_block(name) {
            if !context.ledger.has_outcome(directive.id) {
                context.ledger.mark_irrelevant(
                    directive.id,
                    "every server that could inherit this directive has one of its own",
                );
            }
        }
    }
}

/// Parses a size into KiB, rounded up.
fn parse_kib(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    match unit {
        "" => Some(number.div_ceil(1024)),
        "k" | "K" => Some(number),
        "m" | "M" => number.checked_mul(1024),
        _ => None,
    }
}

/// Translates the options of connections. The first value in any block is used, because Howdah's options apply to all
/// sites.
fn translate_timeouts(directives: &[Directive], context: &mut NginxContext<'_>) {
    const HOUR: u64 = 3600 * time::SECOND;
    const TIMES: &[(&str, &str, RangeInclusive<u64>)] = &[
        ("keepalive_timeout", "keepalive", 0..=HOUR),
        ("client_header_timeout", "header", 100..=HOUR / 6),
        ("client_body_timeout", "body", 100..=HOUR),
        ("send_timeout", "send", 100..=HOUR),
    ];
    let ledger = context.ledger;
    let servers = directives.iter().filter(|d| d.name == "server");
    let all = directives.iter().chain(servers.flat_map(Directive::inner));
    for directive in all {
        let name = directive.name.as_str();
        let time = TIMES.iter().find(|(known, ..)| *known == name);
        let (section, key, value) = if let Some((_, key, range)) = time {
            let time = time::parse_milliseconds(directive.arg(0));
            if let Some(remark) = time.and_then(|time| time::range_remark(time, range)) {
                ledger.mark_different(directive.id, remark);
            }
            let time = time.map(|time| TomlValue::Text(time::format_clamped(time, range)));
            ("timeouts", *key, time)
        } else if name == "keepalive_requests" {
            let number = directive.arg(0).parse::<u64>().ok();
            let number = number.map(|number| TomlValue::Number(number.min(1 << 40)));
            ("limits", "keepalive_requests", number)
        } else if name == "large_client_header_buffers" {
            let size = parse_kib(directive.arg(1));
            // nginx's default of 4 buffers of 8 KiB is Howdah's default of 32 KiB.
            let number: u64 = directive.arg(0).parse().unwrap_or(4);
            let total = size.map(|size| size.saturating_mul(number).clamp(1, 1024));
            (
                "limits",
                "header",
                total.map(|k| TomlValue::Text(format!("{k}K"))),
            )
        } else {
            continue;
        };
        let Some(value) = value else { continue };
        let table = context.config.section(section);
        if table.get(key).is_some_and(|there| *there != value) {
            ledger.mark_missing(
                directive.id,
                format!("all sites share one `{key}` in [{section}]"),
            );
            continue;
        }
        table.set(key, value, Some(&directive.place));
        ledger.mark_carried(directive.id);
    }
}

const COMMON_LOG_FORMAT: &str =
    "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent";
const COMBINED_LOG_FORMAT: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// Carries over the first access log, as the log of all sites.
fn translate_access_logs(directives: &[Directive], context: &mut NginxContext<'_>) {
    let ledger = context.ledger;
    let formats: Vec<&Directive> = directives
        .iter()
        .filter(|d| d.name == "log_format")
        .collect();
    let mut logs = Vec::new();
    for directive in directives {
        directive.walk(&mut |d| {
            if d.name == "access_log" {
                logs.push(d);
            }
        });
    }
    let main = logs.iter().find(|d| d.arg(0) != "off").copied();
    for log in &logs {
        let is_main =
            main.is_some_and(|main| main.arg(0) == log.arg(0) && main.arg(1) == log.arg(1));
        if log.arg(0) == "off" {
            ledger.mark_irrelevant(log.id, reasons::LOGGING);
        } else if !is_main {
            let need = "all sites share one access log; with access_format = \"extended\" or \"json\", each line names its host";
            ledger.mark_missing(log.id, need);
        } else if log.arg(0).starts_with("syslog:") || log.arg(0).contains('$') {
            ledger.mark_missing(log.id, "`access` in [log] must be a path, stdout or stderr");
        } else {
            let table = context.config.section("log");
            table.set("access", log.arg(0), Some(&log.place));
            let name = Some(log.arg(1)).filter(|name| !name.is_empty() && !name.contains('='));
            let format = formats.iter().find(|format| Some(format.arg(0)) == name);
            match (format, name) {
                (_, None | Some("combined")) => ledger.mark_carried(log.id),
                (Some(format), _) => {
                    let text: String = format.args[1..]
                        .iter()
                        .filter(|a| !a.starts_with("escape="))
                        .cloned()
                        .collect();
                    let word = match text.trim() {
                        COMMON_LOG_FORMAT => "common",
                        COMBINED_LOG_FORMAT => "combined",
                        text if text.starts_with('{') => "json",
                        _ => "extended",
                    };
                    context
                        .config
                        .section("log")
                        .set("access_format", word, Some(&format.place));
                    match word {
                        "common" | "combined" => ledger.mark_carried(format.id),
                        _ => ledger.mark_different(
                            format.id,
                            format!("access_format = \"{word}\" has the fields of this format"),
                        ),
                    }
                    ledger.mark_carried(log.id);
                }
                (None, Some(_)) => ledger.mark_different(
                    log.id,
                    "its format is not defined, so the log uses combined",
                ),
            }
        }
    }
    for format in formats {
        if !ledger.has_outcome(format.id) {
            ledger.mark_missing(
                format.id,
                "access_format must be common, combined, extended or json",
            );
        }
    }
}

fn translate_compression(directives: &[Directive], context: &mut NginxContext<'_>) {
    let ledger = context.ledger;
    let mut found = Vec::new();
    for directive in directives {
        directive.walk(&mut |d| found.push(d));
    }
    let on = found.iter().any(|d| d.name == "gzip" && d.arg(0) == "on");
    let table = context.config.section("compression");
    let mut more: Vec<String> = Vec::new();
    for directive in found {
        match directive.name.as_str() {
            "gzip" if !on => {
                table.set(
                    "codings",
                    TomlValue::Texts(vec!["off".to_owned()]),
                    Some(&directive.place),
                );
                ledger.mark_carried(directive.id);
            }
            "gzip" if directive.arg(0) == "off" => {
                ledger.mark_missing(directive.id, "compression applies to all sites")
            }
            "gzip" => ledger.mark_carried(directive.id),
            "gzip_types" | "brotli_types" | "zstd_types" => {
                more.extend(
                    directive
                        .args
                        .iter()
                        .filter(|t| !needs_no_compression_line(t) && t.contains('/'))
                        .cloned(),
                );
                match directive.args.iter().any(|t| t == "*") {
                    true => ledger.mark_different(
                        directive.id,
                        "only text types are compressed, because other types are compressed already",
                    ),
                    false => ledger.mark_carried(directive.id),
                }
            }
            _ => {}
        }
    }
    more.sort();
    more.dedup();
    if !more.is_empty() {
        table.set("types", TomlValue::Texts(more), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_as_in_nginx() {
        for (text, expected) in [
            ("8k", Some(8)),
            ("16384", Some(16)),
            ("1", Some(1)),
            ("1m", Some(1024)),
            ("8x", None),
            ("18446744073709551615m", None),
        ] {
            assert_eq!(parse_kib(text), expected, "{text}");
        }
    }
}
