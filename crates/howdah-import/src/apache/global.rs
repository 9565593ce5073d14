//! What holds for the whole of Apache: user, addresses, timeouts, logs, proxies, compression.

use super::Context;
use super::legacy::network;
use crate::directive::Directive;
use crate::hosting::Answers;
use crate::ledger::Ledger;
use crate::listen::{self, Listen};
use crate::media_type::needs_no_line;
use crate::target::Value;

/// All of it. Of what each host may say for itself the first counts, since here it is for all.
pub fn write(
    tree: &[Directive],
    common: &mut [Listen],
    sites: &mut [Answers],
    context: &mut Context<'_>,
) {
    let mut all = Vec::new();
    for directive in tree {
        directive.walk(&mut |d| all.push(d));
    }
    user(tree, context);
    let own = sites.iter_mut().flat_map(|site| &mut site.listens);
    for listen in common.iter_mut().chain(own) {
        protocols(&all, listen);
    }
    settle_protocols(&all, context.ledger);
    if !common.is_empty() {
        let top = &mut context.config.top;
        top.set("listen", listen::texts(common), None);
    }
    for line in &all {
        timeout(line, context);
        limit(line, context);
    }
    super::logs::access_logs(&all, context);
    super::logs::error_logs(&all, context);
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

/// What lines that hold for all addresses make of one.
fn protocols(all: &[&Directive], listen: &mut Listen) {
    for line in all {
        let has = |word: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        match line.name.as_str() {
            "protocols" => listen.h2c |= has("h2c") && !listen.tls,
            "remoteipproxyprotocol" => listen.proxy_protocol |= has("on"),
            _ => {}
        }
    }
}

fn settle_protocols(all: &[&Directive], ledger: &Ledger) {
    for line in all {
        let has = |word: &str| line.args.iter().any(|arg| arg.eq_ignore_ascii_case(word));
        match line.name.as_str() {
            "protocols" if !has("h2") && !has("h2c") => {
                ledger.remark(line.id, "HTTP/2 is on wherever TLS is");
            }
            "protocols" | "remoteipproxyprotocol" => ledger.carried(line.id),
            _ => {}
        }
    }
}

/// Sets a value that is one for all sites, unless another line has set another.
pub fn one(
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
                        .filter(|kind| {
                            kind.contains('/') && !kind.contains('*') && !needs_no_line(kind)
                        })
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
