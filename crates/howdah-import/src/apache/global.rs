//! Translates the settings that apply to all of Apache: user, addresses, timeouts, logs, proxies, compression.

use super::global_settings::GlobalSettings;
use super::networks::parse_apache_network;
use crate::directive::{Directive, SourceLine};
use crate::hosting::SiteHosting;
use crate::ledger::ImportLedger;
use crate::listen::{self, SiteListen};
use crate::media_type::needs_no_compression_line;
use crate::target::TomlValue;

/// Translates all settings of this module. If hosts differ in a setting, the first value is used, because it applies to
/// all sites in Howdah.
pub fn write_global_settings(
    tree: &[Directive],
    common: &mut [SiteListen],
    sites: &mut [SiteHosting],
    settings: &mut GlobalSettings<'_, '_>,
) {
    let mut all = Vec::new();
    for directive in tree {
        directive.walk(&mut |d| all.push(d));
    }
    translate_user(tree, settings);
    let own = sites.iter_mut().flat_map(|site| &mut site.listens);
    for listen in common.iter_mut().chain(own) {
        apply_protocols(&all, listen);
    }
    record_protocols(&all, settings.server.ledger);
    if !common.is_empty() {
        let top = &mut settings.config.top;
        top.set("listen", listen::listen_values(common), None);
    }
    for line in &all {
        translate_timeout(line, settings);
        translate_limit(line, settings);
    }
    super::logs::translate_access_logs(&all, settings);
    super::logs::translate_error_logs(&all, settings);
    translate_remote_ip(&all, settings);
    translate_compression(&all, settings);
}

fn last_line<'d>(tree: &'d [Directive], name: &str) -> Option<&'d Directive> {
    tree.iter().rev().find(|d| d.name == name)
}

fn user_line(tree: &[Directive]) -> Option<&Directive> {
    last_line(tree, "user").filter(|line| !line.arg(0).contains("${"))
}

fn translate_user(tree: &[Directive], settings: &mut GlobalSettings<'_, '_>) {
    let Some(user) = user_line(tree) else {
        return;
    };
    let group = last_line(tree, "group").filter(|line| !line.arg(0).contains("${"));
    let plain = |line: &Directive| line.arg(0).trim_start_matches('#').to_owned();
    let text = match group {
        Some(group) => format!("{}:{}", plain(user), plain(group)),
        None => plain(user),
    };
    settings.config.top.set("user", text, Some(&user.place));
    for line in [Some(user), group].into_iter().flatten() {
        settings.server.ledger.mark_carried(line.id);
    }
}

/// Returns how many requests an Apache process handles before it exits, and the line that says so. The line counts only
/// if the configuration has a `User`.
pub fn max_requests(tree: &[Directive], ledger: &ImportLedger) -> Option<(u64, SourceLine)> {
    user_line(tree)?;
    let line =
        last_line(tree, "maxconnectionsperchild").or(last_line(tree, "maxrequestsperchild"))?;
    ledger.mark_carried(line.id);
    let requests = line.arg(0).parse().ok().filter(|n| *n > 0)?;
    Some((requests, line.place.clone()))
}

/// Applies lines for all addresses to one address.
fn apply_protocols(all: &[&Directive], listen: &mut SiteListen) {
    for line in all {
        let has = |word: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        match line.name.as_str() {
            "protocols" => listen.h2c |= has("h2c") && !listen.tls,
            "remoteipproxyprotocol" => listen.proxy_protocol |= has("on"),
            _ => {}
        }
    }
}

fn record_protocols(all: &[&Directive], ledger: &ImportLedger) {
    for line in all {
        let has = |word: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        match line.name.as_str() {
            "protocols" if !has("h2") && !has("h2c") => {
                ledger.mark_different(line.id, "HTTP/2 is on at every address with TLS");
            }
            "protocols" | "remoteipproxyprotocol" => ledger.mark_carried(line.id),
            _ => {}
        }
    }
}

fn translate_timeout(line: &Directive, settings: &mut GlobalSettings<'_, '_>) {
    let seconds = |least: u64, most: u64| {
        let seconds = line.arg(0).parse::<u64>().ok();
        seconds.map(|seconds| TomlValue::Text(format!("{}s", seconds.clamp(least, most))))
    };
    match line.name.as_str() {
        "timeout" => {
            let Some(value) = seconds(1, 3600) else {
                return;
            };
            settings.set_once(line, "timeouts", "send", value);
        }
        "keepalivetimeout" => {
            let milliseconds = line
                .arg(0)
                .strip_suffix("ms")
                .and_then(|n| n.parse::<u64>().ok());
            let value = milliseconds
                .map(|n| TomlValue::Text(format!("{}ms", n.min(3_600_000))))
                .or(seconds(0, 3600));
            if let Some(value) = value {
                settings.set_once(line, "timeouts", "keepalive", value);
            }
        }
        "keepalive" if line.arg(0).eq_ignore_ascii_case("off") => {
            settings.set_once(line, "timeouts", "keepalive", TomlValue::from("0ms"))
        }
        "keepalive" => settings.server.ledger.mark_carried(line.id),
        "requestreadtimeout" => translate_read_timeout(line, settings),
        _ => {}
    }
}

/// Translates `RequestReadTimeout header=20-40,MinRate=500 body=20`.
fn translate_read_timeout(line: &Directive, settings: &mut GlobalSettings<'_, '_>) {
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
            ("header", Some(n)) if n > 0 => settings.set_once(
                line,
                "timeouts",
                "header",
                TomlValue::Text(format!("{}s", n.min(600))),
            ),
            ("body", Some(n)) if n > 0 => settings.set_once(
                line,
                "timeouts",
                "body",
                TomlValue::Text(format!("{}s", n.min(3600))),
            ),
            _ => settings.server.ledger.mark_carried(line.id),
        }
        if let Some(rate) = rate {
            settings.set_once(
                line,
                "limits",
                "min_rate",
                TomlValue::Number(rate.min(1 << 30)),
            );
        }
    }
}

fn translate_limit(line: &Directive, settings: &mut GlobalSettings<'_, '_>) {
    let number = line.arg(0).parse::<u64>();
    let Ok(number) = number else { return };
    match line.name.as_str() {
        "maxkeepaliverequests" => settings.set_once(
            line,
            "limits",
            "keepalive_requests",
            TomlValue::Number(number.min(1 << 40)),
        ),
        "limitrequestline" | "limitrequestfieldsize" => {
            // The request line may take a quarter of the limit for the request head.
            let head = if line.name.ends_with("line") {
                number.saturating_mul(4)
            } else {
                number
            };
            let kib = head.div_ceil(1024).clamp(1, 1024);
            // 32 KiB is Howdah's default limit, and Apache's defaults do not exceed it.
            if kib <= 32 {
                return settings.server.ledger.mark_different(
                    line.id,
                    "the header of a request may be 32 KiB long; `header` in [limits] changes this limit",
                );
            }
            let table = settings.config.section("limits");
            let known = match table.get("header") {
                Some(TomlValue::Text(text)) => text.trim_end_matches('K').parse().unwrap_or(0),
                _ => 0u64,
            };
            table.set("header", format!("{}K", kib.max(known)), Some(&line.place));
            settings.server.ledger.mark_carried(line.id);
        }
        _ => {}
    }
}

/// Translates mod_remoteip into `[trusted_proxies]`, which applies to all sites.
fn translate_remote_ip(all: &[&Directive], settings: &mut GlobalSettings<'_, '_>) {
    let ledger = settings.server.ledger;
    let field = all.iter().rev().find(|d| d.name == "remoteipheader");
    let is_known = field.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("x-forwarded-for"));
    if let Some(line) = field {
        match is_known {
            true => ledger.mark_carried(line.id),
            false => ledger.mark_missing(
                line.id,
                "[trusted_proxies] reads X-Forwarded-For or Forwarded: let the proxy send one of these headers",
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
            let need = "add the proxy to `networks` in [trusted_proxies] once the proxy sends X-Forwarded-For; until then, every client has the proxy's address";
            ledger.mark_missing_protection(line.id, need);
            continue;
        }
        for word in &line.args {
            match parse_apache_network(word) {
                Some(network) if !networks.contains(&network) => networks.push(network),
                Some(_) => {}
                None => ledger.mark_missing_protection(
                    line.id,
                    "`networks` in [trusted_proxies] can contain only addresses and networks",
                ),
            }
        }
        ledger.mark_different(
            line.id,
            "Howdah also trusts X-Forwarded-Proto of these proxies",
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
        ledger.mark_missing(line.id, "use `networks` in [trusted_proxies]");
    }
    if !networks.is_empty() {
        settings.config.section("trusted_proxies").set(
            "networks",
            TomlValue::Texts(networks),
            None,
        );
    }
}

/// Translates mod_deflate and mod_brotli. Howdah compresses text by default; other types are added to `types` of
/// `[compression]`.
fn translate_compression(all: &[&Directive], settings: &mut GlobalSettings<'_, '_>) {
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
                        .filter(|kind| {
                            kind.contains('/')
                                && !kind.contains('*')
                                && !needs_no_compression_line(kind)
                        })
                        .cloned(),
                );
                settings.server.ledger.mark_carried(line.id);
            }
            "setoutputfilter" | "addoutputfilter" if is_filter => settings
                .server
                .ledger
                .mark_different(line.id, "only text is compressed"),
            _ => {}
        }
    }
    more.sort();
    more.dedup();
    if !more.is_empty() {
        settings
            .config
            .section("compression")
            .set("types", TomlValue::Texts(more), None);
    }
}
