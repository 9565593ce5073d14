//! Translates `limit_req` and `limit_conn` into limits of rules.

use std::collections::BTreeMap;

use super::location::{Location, LocationKind};
use super::server::ServerTranslation;
use super::variables::has_variables;
use crate::directive::Directive;
use crate::ledger::ImportLedger;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;

/// A zone: the key that distinguishes clients, and the permitted rate. A zone without a rate counts connections.
#[derive(Clone, Debug)]
pub struct LimitZone {
    by: Option<String>,
    rate: Option<String>,
}

/// The zones by name, with the prefix `r` for requests and `c` for connections.
pub type LimitZones = BTreeMap<String, LimitZone>;

/// Parses the zones of an `http` block.
pub fn parse_zones(directives: &[Directive], ledger: &ImportLedger) -> LimitZones {
    let mut zones = LimitZones::new();
    for line in directives {
        let kind = match line.name.as_str() {
            "limit_req_zone" => 'r',
            "limit_conn_zone" => 'c',
            _ => continue,
        };
        let word = |prefix: &str| line.args.iter().find_map(|arg| arg.strip_prefix(prefix));
        let Some(name) = word("zone=").and_then(|zone| zone.split(':').next()) else {
            continue;
        };
        let by = match limit_key(line.arg(0)) {
            Ok(by) => by,
            Err(need) => {
                ledger.mark_missing_protection(line.id, need);
                continue;
            }
        };
        let rate = word("rate=").and_then(parse_rate);
        if kind == 'r' && rate.is_none() {
            ledger.mark_missing_protection(line.id, "use `rate = \"10/s\"` in a rule");
            continue;
        }
        ledger.mark_carried(line.id);
        zones.insert(format!("{kind}{name}"), LimitZone { by, rate });
    }
    zones
}

/// Translates a zone's key into `limit_by`; `None` means the client's address.
fn limit_key(key: &str) -> Result<Option<String>, String> {
    let name = key.trim_start_matches('$').trim_matches(['{', '}']);
    match name {
        "binary_remote_addr" | "remote_addr" => return Ok(None),
        "server_name" | "host" | "http_host" => return Ok(Some("all".to_owned())),
        _ => {}
    }
    let plain = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if let Some(field) = name.strip_prefix("http_").filter(|field| plain(field)) {
        return Ok(Some(format!("header {}", field.replace('_', "-"))));
    }
    if let Some(cookie) = name.strip_prefix("cookie_").filter(|cookie| plain(cookie)) {
        return Ok(Some(format!("cookie {cookie}")));
    }
    match has_variables(key) {
        true => Err(
            "`limit_by` in a rule must be an address, a network, a header or a cookie".to_owned(),
        ),
        false => Ok(Some("all".to_owned())),
    }
}

/// Translates `30r/m` into `30/m`.
fn parse_rate(text: &str) -> Option<String> {
    let (number, unit) = text.split_once("r/")?;
    let number: u32 = number.parse().ok()?;
    ((1..=100_000).contains(&number) && matches!(unit, "s" | "m"))
        .then(|| format!("{number}/{unit}"))
}

/// Translates the limits of the server. They apply except in the locations with limits of their own.
pub fn translate_server_limits(work: &mut ServerTranslation<'_, '_>) {
    for name in ["limit_req", "limit_conn"] {
        let lines = work.scope.all(&[name]);
        let has_own =
            |l: &&Location<'_>| l.kind != LocationKind::Named && l.block.last(name).is_some();
        let own = work.locations.iter().filter(has_own);
        let own: Vec<PathMatch> = own.filter_map(|l| l.paths().ok()).collect();
        if own.contains(&PathMatch::All) {
            continue;
        }
        let when = RuleCondition::except(PathMatch::All, own);
        for line in lines {
            translate_limit(work, line, &when);
        }
    }
}

/// Translates the limits of a location.
pub fn translate_location_limits(
    work: &mut ServerTranslation<'_, '_>,
    location: &Location<'_>,
    when: &RuleCondition,
) {
    let lines = location.block.inner().iter();
    for line in lines.filter(|d| matches!(d.name.as_str(), "limit_req" | "limit_conn")) {
        translate_limit(work, line, when);
    }
}

fn translate_limit(work: &mut ServerTranslation<'_, '_>, line: &Directive, when: &RuleCondition) {
    let ledger = work.ledger;
    let of_requests = line.name == "limit_req";
    let word = |prefix: &str| line.args.iter().find_map(|arg| arg.strip_prefix(prefix));
    let zone = match of_requests {
        true => word("zone=").map(|name| format!("r{name}")),
        false => Some(format!("c{}", line.arg(0))),
    };
    let zone = zone.and_then(|name| work.context.zones.get(&name).cloned());
    let Some(zone) = zone else {
        return ledger.mark_missing_protection(
            line.id,
            "use `rate` or `connections` in a rule (docs/limits.md)",
        );
    };
    let mut rule = match (zone.rate, line.arg(1).parse::<u64>()) {
        (Some(rate), _) if of_requests => {
            let burst: u64 = word("burst=").and_then(|n| n.parse().ok()).unwrap_or(0);
            let mut rule = when.rule("rate", rate, &line.place);
            rule.set("burst", burst.min(1_000_000), None);
            rule
        }
        (_, Ok(number @ 1..=1_000_000)) if !of_requests => {
            when.rule("connections", number, &line.place)
        }
        _ => {
            return ledger
                .mark_missing_protection(line.id, "use `rate` or `connections` in a rule");
        }
    };
    if let Some(by) = zone.by {
        rule.set("limit_by", by, None);
    }
    work.push_at(RuleStage::Responses, rule);
    ledger.mark_different(
        line.id,
        "requests beyond the limit get 429 with Retry-After, and no request is delayed",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_keys_and_rates_are_translated() {
        for (key, by) in [
            ("$binary_remote_addr", Ok(None)),
            ("$http_x_api_key", Ok(Some("header x-api-key"))),
            ("$cookie_sid", Ok(Some("cookie sid"))),
            ("$server_name", Ok(Some("all"))),
            ("everybody", Ok(Some("all"))),
            ("$binary_remote_addr$uri", Err(())),
            ("$limit", Err(())),
        ] {
            let by = by.map(|by| by.map(str::to_owned));
            assert_eq!(limit_key(key).map_err(|_| ()), by, "{key}");
        }
        assert_eq!(parse_rate("30r/m").as_deref(), Some("30/m"));
        assert_eq!(parse_rate("0r/s"), None);
        assert_eq!(parse_rate("10/s"), None);
    }
}
