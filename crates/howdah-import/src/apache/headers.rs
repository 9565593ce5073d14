//! Fields of answers (`Header`, `Expires…`), and variables (`SetEnv`, `SetEnvIf`, `BrowserMatch`).

use std::collections::BTreeMap;

use super::condition::{Asked, Test, field_test, test};
use super::requirement::both;
use super::site::{Layer, Work};
use crate::directive::Directive;
use crate::expression::compile;
use crate::stages::Stage;
use crate::target::{Value, is_settable, same_type};
use crate::when::{Match, When};

/// Endings whose types `ExpiresByType` may name.
const ENDINGS: &[&str] = &[
    "css",
    "js",
    "mjs",
    "json",
    "xml",
    "html",
    "htm",
    "txt",
    "jpg",
    "jpeg",
    "png",
    "gif",
    "webp",
    "avif",
    "svg",
    "ico",
    "bmp",
    "woff",
    "woff2",
    "ttf",
    "otf",
    "eot",
    "mp4",
    "webm",
    "ogv",
    "mp3",
    "ogg",
    "wav",
    "pdf",
    "zip",
    "gz",
    "csv",
    "rss",
    "atom",
    "webmanifest",
    "map",
    "wasm",
    "vtt",
    "md",
];
/// Variables by which Apache's own modules are told something.
const OF_APACHE: &[&str] = &[
    "nokeepalive",
    "downgrade-1.0",
    "force-response-1.0",
    "redirect-carefully",
    "no-gzip",
    "no-brotli",
    "gzip-only-text/html",
    "dont-vary",
    "force-no-vary",
    "suppress-error-charset",
    "ssl-unclean-shutdown",
    "dontlog",
    "proxy-nokeepalive",
    "proxy-initial-not-pooled",
    "proxy-sendchunked",
    "proxy-sendcl",
    "proxy-sendchunks",
    "force-proxy-request-1.0",
    "proxy-interim-response",
    "proxy-fcgi-pathinfo",
];

/// The lines of all sections.
pub fn write(work: &mut Work<'_, '_>) {
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.lines {
            match line.name.as_str() {
                "header" => field(work, &layer, line),
                "requestheader" => request_field(work, line),
                "setenv" | "setenvif" | "setenvifnocase" | "setenvifexpr" | "browsermatch"
                | "browsermatchnocase" | "unsetenv" | "passenv" => variable(work, &layer, line),
                _ => {}
            }
        }
    }
    expires(work);
}

/// `Header [always] ACTION NAME [VALUE] [CONDITION]`
fn field(work: &mut Work<'_, '_>, layer: &Layer<'_>, line: &Directive) {
    let ledger = work.ledger;
    let mut words: Vec<&str> = line.args.iter().map(String::as_str).collect();
    let always = words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case("always"));
    if always
        || words
            .first()
            .is_some_and(|word| word.eq_ignore_ascii_case("onsuccess"))
    {
        words.remove(0);
    }
    let condition = words
        .iter()
        .position(|word| word.starts_with("env=") || word.starts_with("expr=") || *word == "early");
    let condition = condition.filter(|at| *at > 1).map(|at| words.remove(at));
    let (Some(action), Some(name)) = (
        words.first().map(|word| word.to_ascii_lowercase()),
        words.get(1),
    ) else {
        return;
    };
    let name = name.trim_end_matches(':');
    let value = words.get(2).copied().unwrap_or_default();
    let mut when = When::paths(layer.paths.clone());
    let asked = match condition {
        None | Some("early") => Ok(Vec::new()),
        Some(text) => match text.strip_prefix("env=") {
            Some(variable) if !variable.starts_with('!') => match variable {
                "HTTPS" | "SSL_PROTOCOL" => Ok(vec![secure()]),
                _ => work.variable(variable),
            },
            Some(_) => Err("a condition in place of the variable".to_owned()),
            None => {
                super::expr::condition(&text["expr=".len()..]).and_then(|formula| {
                    match formula.demands() {
                        // What is refused where it must hold is what it holds for, the other way round.
                        Ok(demands) => match &demands.denials[..] {
                            [] => Ok(Vec::new()),
                            [all] if *all == When::default() => {
                                Err("a condition that holds for some".to_owned())
                            }
                            [When { not, .. }]
                                if demands.login.is_none()
                                    && demands.denials[0]
                                        == (When {
                                            not: not.clone(),
                                            ..When::default()
                                        }) =>
                            {
                                Ok(not.clone())
                            }
                            _ => Err("a rule with this condition".to_owned()),
                        },
                        Err(()) => Err("a rule with this condition".to_owned()),
                    }
                })
            }
        },
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(need) => return ledger.list(line.id, need),
    };
    let is_hsts = name.eq_ignore_ascii_case("strict-transport-security");
    if !asked.is_empty() && !is_hsts {
        let [asked] = &asked[..] else {
            return ledger.list(line.id, "a rule for each condition");
        };
        match both(&when, asked) {
            Some(both) => when = both,
            None => return ledger.list(line.id, "one rule for the paths of both"),
        }
    }
    if !is_settable(name) || value.chars().any(char::is_control) {
        return ledger.list(
            line.id,
            "a field that the server sets itself, or that is none",
        );
    }
    if has_format(value) {
        return ledger.list(line.id, "set_header of a rule, with a text");
    }
    if is_hsts
        && matches!(action.as_str(), "set" | "add" | "append" | "setifempty")
        && layer.paths == Match::All
    {
        if !work.host.tls {
            return ledger.moot(line.id, "browsers ignore it without TLS (RFC 6797)");
        }
        work.site.table.set("hsts", value, Some(&line.place));
        return ledger.remark(line.id, "in answers by HTTPS only, as RFC 6797 wants it");
    }
    let value = value.replace("%%", "%");
    let is_list = ["link", "set-cookie", "vary"]
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known));
    let (key, value) = match action.as_str() {
        "set" | "setifempty" => ("set_header", value),
        "add" | "append" | "merge" if is_list => ("add_header", value),
        "add" | "append" | "merge" => ("set_header", value),
        "unset" => ("set_header", String::new()),
        _ => return ledger.list(line.id, "set_header of a rule, with a text"),
    };
    let pairs = Value::Pairs(vec![(name.to_owned(), value)]);
    work.stages
        .push(Stage::Fields, when.rule(key, pairs, &line.place));
    match (always, action.as_str()) {
        (_, "unset") | (true, "set") => ledger.carried(line.id),
        _ => ledger.remark(
            line.id,
            "for every status, and once: a script's own field of that name is replaced",
        ),
    }
}

fn secure() -> When {
    When {
        tests: vec![("env", "HTTPS".to_owned(), "*".to_owned())],
        ..When::default()
    }
}

/// Whether a value has parts that are known at a request only: `%{NAME}e`, `%t`.
fn has_format(value: &str) -> bool {
    let value = value.replace("%%", "");
    let mut rest = value.split('%').skip(1);
    rest.any(|rest| rest.starts_with('{') || rest.starts_with(['t', 'D', 'l', 'i', 'b', 'U', 'V']))
}

/// `RequestHeader`
fn request_field(work: &Work<'_, '_>, line: &Directive) {
    const OWN: &[&str] = &[
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-ssl",
        "x-real-ip",
        "x-scheme",
        "host",
    ];
    let (action, name) = (
        line.arg(0).to_ascii_lowercase(),
        line.arg(1).trim_end_matches(':').to_ascii_lowercase(),
    );
    match (action.as_str(), name.as_str()) {
        ("unset", "proxy") => work
            .ledger
            .moot(line.id, "Howdah drops this field from every request"),
        (_, name) if OWN.contains(&name) => work.ledger.moot(
            line.id,
            "servers and scripts get it from Howdah as it knows it (docs/proxy.md)",
        ),
        _ => work.ledger.list(
            line.id,
            "servers and scripts get the client's fields and Howdah's own",
        ),
    }
}

/// The requests for which a line sets a variable; none if it does not.
///
/// # Errors
/// Rules cannot say it.
pub fn sets(line: &Directive, variable: &str) -> Result<Option<When>, String> {
    let names = |from: usize| {
        line.args
            .iter()
            .skip(from)
            .any(|word| word.split('=').next() == Some(variable))
    };
    let flags = if line.name.ends_with("nocase") {
        "(?i)"
    } else {
        ""
    };
    let (subject, expression) = match line.name.as_str() {
        "setenvif" | "setenvifnocase" if names(2) => (line.arg(0), line.arg(1)),
        "browsermatch" | "browsermatchnocase" if names(1) => ("User-Agent", line.arg(0)),
        "setenvifexpr" if names(1) => {
            return Err(format!("a condition in place of the variable {variable}"));
        }
        _ => return Ok(None),
    };
    let comparison = Test::Matches(format!("{flags}{expression}"));
    compile(expression)?;
    let asked = match subject.to_ascii_lowercase().as_str() {
        "request_uri" => test("REQUEST_URI", &comparison)?,
        "request_method" => test("REQUEST_METHOD", &comparison)?,
        "remote_addr" => test("REMOTE_ADDR", &comparison)?,
        "remote_host" | "server_addr" | "request_protocol" => {
            return Err(format!("rules cannot ask for {subject}"));
        }
        field
            if field.starts_with('^')
                || !field.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') =>
        {
            return Err(format!("rules cannot ask for {subject}"));
        }
        _ => Asked::Is(field_test(subject, &comparison)),
    };
    match asked {
        Asked::Is(when) => Ok(Some(when)),
        _ => Err(format!("rules cannot ask for {subject}")),
    }
}

fn variable(work: &mut Work<'_, '_>, layer: &Layer<'_>, line: &Directive) {
    let ledger = work.ledger;
    let is_of_apache = |word: &String| {
        OF_APACHE.contains(
            &word
                .trim_start_matches('!')
                .split('=')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
                .as_str(),
        )
    };
    let names = match line.name.as_str() {
        "setenvif" | "setenvifnocase" => line.args.get(2..),
        "setenv" => line.args.get(..1),
        _ => line.args.get(1..),
    };
    let names = names.unwrap_or_default();
    if !names.is_empty() && names.iter().all(is_of_apache) {
        return ledger.moot(
            line.id,
            "it tells Apache's modules what Howdah finds out by itself",
        );
    }
    match line.name.as_str() {
        "setenv" if layer.paths == Match::All || is_whole(layer) => {
            work.site
                .pairs
                .entry("env")
                .or_default()
                .retain(|(name, _)| name != line.arg(0));
            work.site.pair("env", line.arg(0), line.arg(1));
            ledger.remark(line.id, "in getenv() as well");
        }
        "setenv" => ledger.list(line.id, "env holds for a whole site"),
        "passenv" => ledger.list(line.id, "env of the pool, with the value"),
        "unsetenv" => ledger.carried(line.id),
        _ if line
            .args
            .iter()
            .any(|word| word.to_ascii_uppercase().starts_with("HTTP_AUTHORIZATION=")) =>
        {
            ledger.moot(line.id, "PHP gets the Authorization field by itself");
        }
        _ if line
            .args
            .iter()
            .any(|word| word.to_ascii_lowercase().starts_with("https=on"))
            && line.name.starts_with("setenvif") =>
        {
            let need = "[trusted_proxies] networks: the scheme that these proxies name is believed, and PHP has HTTPS";
            ledger.list(line.id, need);
        }
        // What asks for the variable carries the condition over.
        _ => {}
    }
}

/// Whether a section is for all files of the site.
fn is_whole(layer: &Layer<'_>) -> bool {
    layer.has("/") && layer.has("/x7q/y9z.php")
}

/// `ExpiresDefault` and `ExpiresByType`; the first rule that matches counts, so the innermost come first.
fn expires(work: &mut Work<'_, '_>) {
    for number in (0..work.layers.len()).rev() {
        let layer = work.layers[number].clone();
        let of = |name: &'static str| layer.lines.iter().filter(move |d| d.name == name);
        let active = work.effective(number, "expiresactive");
        let is_on = active.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("on"));
        for line in of("expiresactive") {
            work.ledger.carried(line.id);
        }
        if !is_on {
            for line in of("expiresbytype").chain(of("expiresdefault")) {
                work.ledger.moot(line.id, "ExpiresActive is off here");
            }
            continue;
        }
        let mut by_time: BTreeMap<u64, (Vec<&str>, &Directive)> = BTreeMap::new();
        for line in of("expiresbytype") {
            let Some(time) = seconds(line.arg(1)) else {
                work.ledger
                    .list(line.id, "cache_control of a rule, with max-age in seconds");
                continue;
            };
            let is_of_type = |ending: &&&str| {
                same_type(
                    (work.context.media_type)(format!("x.{ending}").as_bytes()),
                    line.arg(0),
                )
            };
            let endings: Vec<&str> = ENDINGS.iter().filter(is_of_type).copied().collect();
            if endings.is_empty() {
                work.ledger.moot(line.id, "no file has this type here");
                continue;
            }
            work.ledger.remark(
                line.id,
                "Cache-Control of files, without Expires; scripts set their own",
            );
            by_time
                .entry(time)
                .or_insert_with(|| (Vec::new(), line))
                .0
                .extend(endings);
        }
        for (time, (mut endings, line)) in by_time {
            endings.sort_unstable();
            endings.dedup();
            let files = format!(r"\.(?:{})$", endings.join("|"));
            match super::region::both(&layer.paths, &files) {
                Ok(paths) => cache(work, line, paths, time),
                Err(need) => work.ledger.list(line.id, need),
            }
        }
        if let Some(line) = of("expiresdefault").next_back() {
            match seconds(line.arg(0)) {
                Some(time) => {
                    cache(work, line, layer.paths.clone(), time);
                    work.ledger.remark(
                        line.id,
                        "Cache-Control of files, without Expires; scripts set their own",
                    );
                }
                None => work
                    .ledger
                    .list(line.id, "cache_control of a rule, with max-age in seconds"),
            }
        }
    }
}

fn cache(work: &mut Work<'_, '_>, line: &Directive, paths: Match, seconds: u64) {
    let value = format!("max-age={seconds}");
    work.stages.push(
        Stage::Fields,
        When::paths(paths).rule("cache_control", value, &line.place),
    );
}

/// `access plus 1 month 2 days`, `A3600`, `now`
fn seconds(text: &str) -> Option<u64> {
    if let Some(number) = text
        .strip_prefix(['A', 'M'])
        .and_then(|number| number.parse().ok())
    {
        return Some(number);
    }
    let mut words = text.split_whitespace().peekable();
    if !matches!(
        words.next()?.to_ascii_lowercase().as_str(),
        "access" | "now"
    ) {
        return None;
    }
    words.next_if(|word| word.eq_ignore_ascii_case("plus"));
    let mut total = 0u64;
    while let Some(number) = words.next() {
        let number: u64 = number.parse().ok()?;
        let unit = match words.next()?.to_ascii_lowercase().trim_end_matches('s') {
            "second" | "sec" => 1,
            "minute" | "min" => 60,
            "hour" => 3600,
            "day" => 86_400,
            "week" => 7 * 86_400,
            "month" => 30 * 86_400,
            "year" => 365 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_apaches() {
        for (text, expected) in [
            ("access plus 1 month 2 days", Some(2_764_800)),
            ("A3600", Some(3600)),
            ("access 0 seconds", Some(0)),
            ("now", Some(0)),
            ("modification plus 1 day", None),
            ("access plus 99999999999999999999 years", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert!(
            has_format("%{X}e")
                && has_format("t=%t")
                && !has_format("100%% max")
                && !has_format("a")
        );
    }
}
