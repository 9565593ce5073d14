//! Translates mod_expires into `cache_control` of rules.

use std::collections::BTreeMap;

use super::host_context::HostContext;
use crate::directive::Directive;
use crate::media_type;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};

/// File name extensions with media types that `ExpiresByType` may name.
const FILE_EXTENSIONS: &[&str] = &[
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

/// Translates `ExpiresDefault` and `ExpiresByType`. The first matching rule applies, so the innermost sections come
/// first.
pub fn write_expires(context: &HostContext<'_, '_>, stages: &mut StagedRules) {
    for number in (0..context.layers.len()).rev() {
        let layer = &context.layers[number];
        let of = |name: &'static str| layer.directives.iter().filter(move |d| d.name == name);
        let active = context.layers.effective_line(number, "expiresactive");
        let is_on = active.is_some_and(|line| line.arg(0).eq_ignore_ascii_case("on"));
        for line in of("expiresactive") {
            context.ledger.mark_carried(line.id);
        }
        if !is_on {
            for line in of("expiresbytype").chain(of("expiresdefault")) {
                context
                    .ledger
                    .mark_irrelevant(line.id, "ExpiresActive is off here");
            }
            continue;
        }
        let mut by_time: BTreeMap<u64, (Vec<&str>, &Directive)> = BTreeMap::new();
        for line in of("expiresbytype") {
            let Some(time) = parse_seconds(line.arg(1)) else {
                context.ledger.mark_missing(
                    line.id,
                    "use `cache_control` in a rule, with max-age in seconds",
                );
                continue;
            };
            let is_of_type = |ending: &&&str| {
                media_type::is_equivalent(
                    (context.server.media_type)(format!("x.{ending}").as_bytes()),
                    line.arg(0),
                )
            };
            let endings: Vec<&str> = FILE_EXTENSIONS.iter().filter(is_of_type).copied().collect();
            if endings.is_empty() {
                context
                    .ledger
                    .mark_irrelevant(line.id, "no file that Howdah sends has this type");
                continue;
            }
            context.ledger.mark_different(
                line.id,
                "files get Cache-Control but not Expires; scripts set their own headers",
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
            match super::region::file_paths_in(&layer.paths, &files) {
                Ok(paths) => add_cache_rule(stages, line, paths, time),
                Err(need) => context.ledger.mark_missing(line.id, need),
            }
        }
        if let Some(line) = of("expiresdefault").next_back() {
            match parse_seconds(line.arg(0)) {
                Some(time) => {
                    add_cache_rule(stages, line, layer.paths.clone(), time);
                    context.ledger.mark_different(
                        line.id,
                        "files get Cache-Control but not Expires; scripts set their own headers",
                    );
                }
                None => context.ledger.mark_missing(
                    line.id,
                    "use `cache_control` in a rule, with max-age in seconds",
                ),
            }
        }
    }
}

fn add_cache_rule(stages: &mut StagedRules, line: &Directive, paths: PathMatch, seconds: u64) {
    let value = format!("max-age={seconds}");
    stages.push(
        RuleStage::Headers,
        RuleCondition::paths(paths).rule("cache_control", value, &line.place),
    );
}

/// Parses `access plus 1 month 2 days`, `A3600` or `now` into seconds. Rules do not support times relative to a file's
/// last change, `modification …` and `M3600`.
fn parse_seconds(text: &str) -> Option<u64> {
    if let Some(number) = text.strip_prefix('A') {
        return number.parse().ok();
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
    fn expiry_times_are_parsed_as_in_apache() {
        for (text, expected) in [
            ("access plus 1 month 2 days", Some(2_764_800)),
            ("A3600", Some(3600)),
            ("access 0 seconds", Some(0)),
            ("now", Some(0)),
            ("modification plus 1 day", None),
            ("M3600", None),
            ("access plus 99999999999999999999 years", None),
        ] {
            assert_eq!(parse_seconds(text), expected, "{text}");
        }
    }
}
