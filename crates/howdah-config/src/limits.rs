//! Turns `rate`, `connections`, `processes` and `limit`, with the options of a rule that accompany them, into the
//! server's limits.

use howdah_proto::response::is_token;
use howdah_site::limiter::rate::{MAX_RATE_AND_BURST, Rate};
use howdah_site::limiter::{ClientLimit, LimitBy};
use howdah_site::site::condition::RuleConditions;
use howdah_site::site::config::SiteRule;
use howdah_site::site::login;
use howdah_site::site::pattern::PathPattern;

use super::reader::ConfigSection;

/// The options that limit clients. A rule with at least one of them is a limit.
pub(super) const LIMIT_KEYS: [&str; 4] = ["rate", "connections", "processes", "limit"];

/// The conditions that `limit` sets by itself.
const IMPLIED_CONDITIONS: [&str; 6] = ["path", "prefix", "glob", "regex", "methods", "query"];

/// The rate and burst of `limit = "login"`: a user may mistype a password, and an office may share an address.
const LOGIN_RATE_AND_BURST: (&str, u32) = ("10/m", 20);

/// Returns the limit of a rule that has one of [`LIMIT_KEYS`].
pub(super) fn limit(section: &ConfigSection<'_>) -> Option<ClientLimit> {
    if section.is_on("if_missing") {
        let message = "if_missing: cannot be combined with a limit, because a limit counts requests whether or not a file exists";
        section
            .file()
            .mistake(section.place_of("if_missing"), message);
    }
    let by = limit_by(section);
    let number = |key| section.number(key).map(|n| n as u32);
    let preset = section.has("limit");
    let rate = match section.has("rate") {
        true => Some(rate(section)?),
        false if preset => {
            let usual = LOGIN_RATE_AND_BURST.0.parse::<Rate>().ok()?;
            Some(with_burst(
                section,
                usual.with_burst(LOGIN_RATE_AND_BURST.1),
            ))
        }
        false => None,
    };
    for key in IMPLIED_CONDITIONS {
        if preset && section.has(key) {
            let message = format!(
                "{key}: `limit = \"login\"` already selects the requests that log in; remove `{key}` or `limit`"
            );
            section.file().mistake(section.place_of(key), message);
        }
    }
    Some(ClientLimit {
        preset: preset.then_some("login"),
        rate,
        connections: number("connections"),
        processes: number("processes"),
        by: by?,
    })
}

/// Reads `rate` and `burst`.
fn rate(section: &ConfigSection<'_>) -> Option<Rate> {
    let text = section.text("rate")?;
    let rate = match text.parse::<Rate>() {
        Ok(rate) => rate,
        Err(why) => {
            let message = format!("rate: {why}, found `{}`", text.escape_debug());
            section.file().mistake(section.place_of("rate"), message);
            return None;
        }
    };
    Some(with_burst(section, rate))
}

fn with_burst(section: &ConfigSection<'_>, rate: Rate) -> Rate {
    let burst = section
        .number("burst")
        .map(|n| n.min(MAX_RATE_AND_BURST.into()) as u32);
    burst.map_or(rate, |burst| rate.with_burst(burst))
}

/// Returns the rules of a limit. `limit = "login"` gives one rule for each kind of login request, all with the same
/// limit; other limits give one rule.
pub(super) fn rules_of_limit(section: &ConfigSection<'_>, rule: SiteRule) -> Vec<SiteRule> {
    if !section.has("limit") {
        return vec![rule];
    }
    let of = |(pattern, own): (PathPattern, RuleConditions)| SiteRule {
        pattern,
        conditions: RuleConditions {
            methods: own.methods,
            query: own.query,
            ..rule.conditions.clone()
        },
        ..rule.clone()
    };
    login::login_requests().map(of).collect()
}

/// Reads `limit_by`.
fn limit_by(section: &ConfigSection<'_>) -> Option<LimitBy> {
    let text = section.text("limit_by")?;
    let mistake = |why: String| {
        let message = format!("limit_by: {why}");
        section
            .file()
            .mistake(section.place_of("limit_by"), message);
        None
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["address"] => Some(LimitBy::Address),
        ["all"] => Some(LimitBy::All),
        ["header", name] if is_token(name.as_bytes()) => Some(LimitBy::Header(name.to_owned())),
        ["header", name] => mistake(format!(
            "`{}` is not a valid header name",
            name.escape_debug()
        )),
        ["cookie", name] => Some(LimitBy::Cookie(name.to_owned())),
        ["network", ref bits @ ..] => match network_prefixes(bits) {
            Some((v4, v6)) => Some(LimitBy::Network(v4, v6)),
            None => mistake(format!(
                "expected the prefix lengths of a network, `network /24 /56` (IPv4, then IPv6), found `{}`",
                text.escape_debug()
            )),
        },
        _ => mistake(format!(
            "expected `address`, `network /24 /56` (IPv4, then IPv6), `header NAME`, `cookie NAME` or `all`, found `{}`",
            text.escape_debug()
        )),
    }
}

/// Parses `/24 /56`: the bits of IPv4, then those of IPv6.
fn network_prefixes(bits: &[&str]) -> Option<(u8, u8)> {
    let [v4, v6] = bits else {
        return None;
    };
    let prefix = |text: &str, most| {
        let bits = text.strip_prefix('/')?.parse().ok()?;
        (1..=most).contains(&bits).then_some(bits)
    };
    Some((prefix(v4, 32)?, prefix(v6, 128)?))
}
