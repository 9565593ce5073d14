//! What holds for the whole of Apache: user, addresses, timeouts, logs, proxies, compression.

use std::collections::BTreeSet;

use super::Context;
use super::access::network;
use crate::directive::Directive;
use crate::listen::{self, Listen};
use crate::target::Value;

/// All of it. Of what each host may say for itself the first counts, since here it is for all.
pub fn write(tree: &[Directive], listens: &[Listen], context: &mut Context<'_>) {
    let mut all = Vec::new();
    for directive in tree {
        directive.walk(&mut |d| all.push(d));
    }
    user(tree, context);
    addresses(&all, listens, context);
    for line in &all {
        timeout(line, context);
        limit(line, context);
    }
    access_logs(&all, context);
    error_logs(&all, context);
    remote_ip(&all, context);
    compression(&all, context);
}

fn last<'d>(tree: &'d [Directive], name: &str) -> Option<&'d Directive> {
    tree.iter().rev().find(|d| d.name == name)
}

fn user(tree: &[Directive], context: &mut Context<'_>) {
    let Some(user) = last(tree, "user").filter(|line| !line.arg(0).contains("${")) else {
        return;
    };
    let group = last(tree, "group").filter(|line| !line.arg(0).contains("${"));
    let plain = |line: &Directive| line.arg(0).trim_start_matches('#').to_owned();
    let text = match group {
        Some(group) => format!("{}:{}", plain(user), plain(group)),
        None => plain(user),
    };
    context.config.top.set("user", text, Some(&user.place));
    for line in [Some(user), group].into_iter().flatten() {
        context.ledger.carried(line.id);
    }
    let requests = last(tree, "maxconnectionsperchild").or(last(tree, "maxrequestsperchild"));
    if let Some(line) = requests {
        context.ledger.carried(line.id);
        context.max_requests = line
            .arg(0)
            .parse()
            .ok()
            .filter(|n| *n > 0)
            .map(|n| (n, line.place.clone()));
    }
}

fn addresses(all: &[&Directive], listens: &[Listen], context: &mut Context<'_>) {
    let mut listens = listens.to_vec();
    for line in all.iter().filter(|d| d.name == "protocols") {
        let has = |word: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        if has("h2c") {
            listens
                .iter_mut()
                .filter(|listen| !listen.tls)
                .for_each(|listen| listen.h2c = true);
        }
        match has("h2") || has("h2c") {
            true => context.ledger.carried(line.id),
            false => context
                .ledger
                .remark(line.id, "HTTP/2 is on wherever TLS is"),
        }
    }
    for line in all.iter().filter(|d| d.name == "remoteipproxyprotocol") {
        context.ledger.carried(line.id);
        if line.arg(0).eq_ignore_ascii_case("on") {
            listens
                .iter_mut()
                .for_each(|listen| listen.proxy_protocol = true);
        }
    }
    listen::write(&listens, context.config);
}

/// Sets a value that is one for all sites, unless another line has set another.
fn one(
    line: &Directive,
    section: &'static str,
    key: &str,
    value: Value,
    context: &mut Context<'_>,
) {
    let table = context.config.section(section);
    if table.get(key).is_some_and(|there| *there != value) {
        return context
            .ledger
            .list(line.id, format!("one [{section}] {key} for all sites"));
    }
    table.set(key, value, Some(&line.place));
    context.ledger.carried(line.id);
}

fn timeout(line: &Directive, context: &mut Context<'_>) {
    let seconds = |least: u64, most: u64| {
        let seconds = line.arg(0).parse::<u64>().ok();
        seconds.map(|seconds| Value::Text(format!("{}s", seconds.clamp(least, most))))
    };
    match line.name.as_str() {
        "timeout" => {
            let Some(value) = seconds(1, 3600) else {
                return;
            };
            one(line, "timeouts", "send", value, context);
        }
        "keepalivetimeout" => {
            let milliseconds = line
                .arg(0)
                .strip_suffix("ms")
                .and_then(|n| n.parse::<u64>().ok());
            let value = milliseconds
                .map(|n| Value::Text(format!("{}ms", n.min(3_600_000))))
                .or(seconds(0, 3600));
            if let Some(value) = value {
                one(line, "timeouts", "keepalive", value, context);
            }
        }
        "keepalive" if line.arg(0).eq_ignore_ascii_case("off") => {
            one(line, "timeouts", "keepalive", Value::from("0ms"), context)
        }
        "keepalive" => context.ledger.carried(line.id),
        "requestreadtimeout" => read_timeout(line, context),
        _ => {}
    }
}

/// `RequestReadTimeout header=20-40,MinRate=500 body=20`
fn read_timeout(line: &Directive, context: &mut Context<'_>) {
    for word in &line.args {
        let Some((key, value)) = word.split_once('=') else {
            continue;
        };
        let (times, rate) = value.split_once(',').unwrap_or((value, ""));
        let most = times.rsplit('-').next().and_then(|n| n.parse::<u64>().ok());
        let rate = rate
            .split_once('=')
            .and_then(|(_, n)| n.parse::<u64>().ok());
        match (key.to_ascii_lowercase().as_str(), most) {
            ("header", Some(n)) if n > 0 => one(
                line,
                "timeouts",
                "header",
                Value::Text(format!("{}s", n.min(600))),
                context,
            ),
            ("body", Some(n)) if n > 0 => one(
                line,
                "timeouts",
                "body",
                Value::Text(format!("{}s", n.min(3600))),
                context,
            ),
            _ => context.ledger.carried(line.id),
        }
        if let Some(rate) = rate {
            one(
                line,
                "limits",
                "min_rate",
                Value::Number(rate.min(1 << 30)),
                context,
            );
        }
    }
}

fn limit(line: &Directive, context: &mut Context<'_>) {
    let number = line.arg(0).parse::<u64>();
    let Ok(number) = number else { return };
    match line.name.as_str() {
        "maxkeepaliverequests" => one(
            line,
            "limits",
            "keepalive_requests",
            Value::Number(number.min(1 << 40)),
            context,
        ),
        "limitrequestline" | "limitrequestfieldsize" => {
            // The request line may take a quarter of the head.
            let head = if line.name.ends_with("line") {
                number.saturating_mul(4)
            } else {
                number
            };
            let kib = head.div_ceil(1024).clamp(1, 1024);
            // Howdah's own limit, which Apache's defaults do not reach.
            if kib <= 32 {
                return context
                    .ledger
                    .remark(line.id, "a request's head may have 32 KiB: [limits] header");
            }
            let table = context.config.section("limits");
            let known = match table.get("header") {
                Some(Value::Text(text)) => text.trim_end_matches('K').parse().unwrap_or(0),
                _ => 0u64,
            };
            table.set("header", format!("{}K", kib.max(known)), Some(&line.place));
            context.ledger.carried(line.id);
        }
        _ => {}
    }
}

const COMMON: &str = "%h %l %u %t \"%r\" %>s";
const COMBINED: &str = "\"%{Referer}i\" \"%{User-Agent}i\"";

/// The format of Howdah's that a `LogFormat` comes to.
fn format_of(text: &str) -> &'static str {
    let text = text.replace("User-agent", "User-Agent");
    match text.strip_prefix(COMMON).map(str::trim) {
        Some("%b" | "%O" | "%B") => "common",
        Some(rest)
            if [
                format!("%b {COMBINED}"),
                format!("%O {COMBINED}"),
                format!("%B {COMBINED}"),
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

fn hosts_logs<'d>(all: &[&'d Directive]) -> Vec<&'d Directive> {
    let hosts = all.iter().filter(|d| d.name == "virtualhost");
    let lines = hosts.flat_map(|host| host.inner());
    lines
        .filter(|d| d.name == "customlog" || d.name == "transferlog")
        .collect()
}

/// The first access log is the one that all sites have.
fn access_logs(all: &[&Directive], context: &mut Context<'_>) {
    let ledger = context.ledger;
    let formats: Vec<&&Directive> = all.iter().filter(|d| d.name == "logformat").collect();
    let is_log =
        |d: &&&Directive| matches!(d.name.as_str(), "customlog" | "transferlog" | "globallog");
    let mut logs: Vec<&Directive> = all.iter().filter(is_log).copied().collect();
    // A host's own log comes before that of hosts without one; several hosts share that one.
    let own: Vec<&Directive> = hosts_logs(all);
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
                true => ledger.carried(log.id),
                false => ledger.list(log.id, "one access log for all sites: access_format = \"extended\" or \"json\" names the host of each line"),
            }
            continue;
        }
        if path.starts_with('|') || path.starts_with("syslog:") || path.contains("${") {
            ledger.list(log.id, "[log] access takes a path, stdout or stderr; logrotate is told `howdah reopen` by the packages");
            continue;
        }
        main = Some(log);
        let path = context.path(path);
        context
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
        context.config.section("log").set(
            "access_format",
            word,
            format.map(|format| &format.place),
        );
        if let Some(format) = format {
            match word {
                "common" | "combined" => ledger.carried(format.id),
                _ => ledger.remark(
                    format.id,
                    format!("its fields are those of access_format = \"{word}\""),
                ),
            }
        }
        match is_condition {
            true => ledger.remark(log.id, "all requests are in it"),
            false => ledger.carried(log.id),
        }
    }
    for format in formats {
        if !ledger.is_settled(format.id) {
            let used = all
                .iter()
                .any(|d| d.name == "customlog" && d.arg(1) == format.arg(1));
            match used {
                true => ledger.moot(format.id, "the log that has it is listed"),
                false => ledger.moot(format.id, "no log is written in this format"),
            }
        }
    }
}

fn error_logs(all: &[&Directive], context: &mut Context<'_>) {
    let ledger = context.ledger;
    for line in all.iter().filter(|d| d.name == "errorlog") {
        let path = line.arg(0);
        let log = context.config.section("log");
        let value = match path {
            "/dev/stderr" | "stderr" => "stderr".to_owned(),
            path if path.starts_with(['|', '$']) || path.starts_with("syslog") => {
                ledger.list(line.id, "[log] error takes a path or stderr");
                continue;
            }
            path => context.root.join(path).display().to_string(),
        };
        match log.get("error") {
            Some(Value::Text(known)) if *known == value => ledger.carried(line.id),
            Some(_) => ledger.list(line.id, "one error log for all sites, which names the site"),
            None => {
                log.set("error", value, Some(&line.place));
                ledger.carried(line.id);
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
                ledger.moot(line.id, "levels of Apache's own modules");
                continue;
            }
        };
        one(line, "log", "level", Value::from(level), context);
    }
}

/// mod_remoteip as `[trusted_proxies]`, which hold for all sites.
fn remote_ip(all: &[&Directive], context: &mut Context<'_>) {
    let ledger = context.ledger;
    let field = all.iter().rev().find(|d| d.name == "remoteipheader");
    let is_known = field.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("x-forwarded-for"));
    if let Some(line) = field {
        match is_known {
            true => ledger.carried(line.id),
            false => ledger.list(
                line.id,
                "[trusted_proxies] reads X-Forwarded-For or Forwarded: have the proxy send it",
            ),
        }
    }
    let mut networks: Vec<String> = Vec::new();
    for line in all.iter().filter(|d| {
        matches!(
            d.name.as_str(),
            "remoteipinternalproxy" | "remoteiptrustedproxy"
        )
    }) {
        if !is_known {
            let need = "[trusted_proxies] networks, once the proxy sends X-Forwarded-For; until then every client has the proxy's address";
            ledger.list_protection(line.id, need);
            continue;
        }
        for word in &line.args {
            match network(word) {
                Some(network) if !networks.contains(&network) => networks.push(network),
                Some(_) => {}
                None => ledger.list_protection(
                    line.id,
                    "[trusted_proxies] networks: an address or a network",
                ),
            }
        }
        ledger.remark(
            line.id,
            "X-Forwarded-Proto of these proxies is believed as well",
        );
    }
    for line in all.iter().filter(|d| {
        matches!(
            d.name.as_str(),
            "remoteipinternalproxylist"
                | "remoteiptrustedproxylist"
                | "remoteipproxiesheader"
                | "remoteipproxyprotocolexceptions"
        )
    }) {
        ledger.list(line.id, "[trusted_proxies] networks");
    }
    if !networks.is_empty() {
        context
            .config
            .section("trusted_proxies")
            .set("networks", Value::Texts(networks), None);
    }
}

/// mod_deflate and mod_brotli: whatever they compress, Howdah compresses text.
fn compression(all: &[&Directive], context: &mut Context<'_>) {
    let filters = ["deflate", "brotli_compress", "inflate"];
    let mut more: Vec<String> = Vec::new();
    for line in all {
        let is_filter = line.args.first().is_some_and(|first| {
            first
                .split(';')
                .any(|name| filters.contains(&name.to_ascii_lowercase().as_str()))
        });
        match line.name.as_str() {
            "addoutputfilterbytype" if is_filter => {
                more.extend(
                    line.args
                        .iter()
                        .skip(1)
                        .filter(|kind| kind.contains('/') && !kind.contains('*') && !is_text(kind))
                        .cloned(),
                );
                context.ledger.carried(line.id);
            }
            "setoutputfilter" | "addoutputfilter" if is_filter => context
                .ledger
                .remark(line.id, "text is compressed, and nothing else"),
            _ => {}
        }
    }
    more.sort();
    more.dedup();
    if !more.is_empty() {
        context
            .config
            .section("compression")
            .set("types", Value::Texts(more), None);
    }
}

/// Compressed in any case.
fn is_text(kind: &str) -> bool {
    let known = ["+xml", "+json", "/xml", "/json", "javascript"];
    let begins = ["text/", "font/", "image/"];
    begins.iter().any(|begin| kind.starts_with(begin))
        || known.iter().any(|end| kind.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_of_logs_are_recognised() {
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
