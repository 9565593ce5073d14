//! Translates response headers (`Header`, `Expires…`) and variables (`SetEnv`, `SetEnvIf`, `BrowserMatch`).

use super::layers::Layer;
use super::requirement::intersection;
use super::site::HostTranslation;
use crate::directive::Directive;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::RuleStage;
use crate::target::{TomlValue, is_settable_header};

/// Translates the lines of all sections.
pub fn write_headers(work: &mut HostTranslation<'_, '_>) {
    for number in 0..work.layers.len() {
        let layer = work.layers[number].clone();
        for line in layer.directives {
            match line.name.as_str() {
                "header" => translate_header(work, &layer, line),
                "requestheader" => record_request_header(work, line),
                "setenv" | "setenvif" | "setenvifnocase" | "setenvifexpr" | "browsermatch"
                | "browsermatchnocase" | "unsetenv" | "passenv" => {
                    super::variables::translate_variable(work, &layer, line)
                }
                _ => {}
            }
        }
    }
    super::expires::write_expires(work);
}

/// Translates `Header [always] ACTION NAME [VALUE] [CONDITION]`.
fn translate_header(work: &mut HostTranslation<'_, '_>, layer: &Layer<'_>, line: &Directive) {
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
    let mut when = RuleCondition::paths(layer.paths.clone());
    let asked = condition.map_or(Ok(Vec::new()), |text| condition_of_header(work, text));
    let asked = match asked {
        Ok(asked) => asked,
        Err(need) => return ledger.mark_missing(line.id, need),
    };
    let is_hsts = name.eq_ignore_ascii_case("strict-transport-security");
    if !asked.is_empty() && !is_hsts {
        let [asked] = &asked[..] else {
            return ledger.mark_missing(line.id, "a rule for each condition");
        };
        match intersection(&when, asked) {
            Some(both) => when = both,
            None => return ledger.mark_missing(line.id, "one rule for the paths of both"),
        }
    }
    if !is_settable_header(name) || value.chars().any(char::is_control) {
        return ledger.mark_missing(
            line.id,
            "a field that the server sets itself, or that is none",
        );
    }
    if has_format_specifier(value) {
        return ledger.mark_missing(line.id, "set_header of a rule, with a text");
    }
    if is_hsts
        && matches!(action.as_str(), "set" | "add" | "append" | "setifempty")
        && layer.paths == PathMatch::All
    {
        if !work.host.tls {
            return ledger.mark_irrelevant(line.id, "browsers ignore it without TLS (RFC 6797)");
        }
        work.site.table.set("hsts", value, Some(&line.place));
        return ledger.mark_different(line.id, "in answers by HTTPS only, as RFC 6797 wants it");
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
        _ => return ledger.mark_missing(line.id, "set_header of a rule, with a text"),
    };
    let pairs = TomlValue::Pairs(vec![(name.to_owned(), value)]);
    work.stages
        .push(RuleStage::Headers, when.rule(key, pairs, &line.place));
    match (always, action.as_str()) {
        (_, "unset") | (true, "set") => ledger.mark_carried(line.id),
        _ => ledger.mark_different(
            line.id,
            "for every status, and once: a script's own field of that name is replaced",
        ),
    }
}

/// Returns the requests that `env=…` or `expr=…` after a header selects; empty for all.
fn condition_of_header(
    work: &HostTranslation<'_, '_>,
    condition: &str,
) -> Result<Vec<RuleCondition>, String> {
    let need = "a rule with this condition";
    if condition == "early" {
        return Ok(Vec::new());
    }
    if let Some(variable) = condition.strip_prefix("env=") {
        return match variable {
            "HTTPS" | "SSL_PROTOCOL" => Ok(vec![RuleCondition::https()]),
            _ if variable.starts_with('!') => {
                Err("a condition in place of the variable".to_owned())
            }
            _ => work.requests_with_variable(variable),
        };
    }
    let text = condition.strip_prefix("expr=").unwrap_or_default();
    let demands = super::expr::parse_expression(text)?
        .into_demands()
        .map_err(|()| need)?;
    // The formula's denials are the requests for which the condition is false, so their negation is the condition.
    match &demands.denials[..] {
        _ if demands.login.is_some() => Err(need.to_owned()),
        [] => Ok(Vec::new()),
        [all] if *all == RuleCondition::default() => {
            Err("a condition that holds for some".to_owned())
        }
        [others] if *others == RuleCondition::none_of(others.exceptions.clone()) => {
            Ok(others.exceptions.clone())
        }
        _ => Err(need.to_owned()),
    }
}

/// Returns whether a value has parts that depend on the request: `%{NAME}e`, `%t`.
fn has_format_specifier(value: &str) -> bool {
    let value = value.replace("%%", "");
    let mut rest = value.split('%').skip(1);
    rest.any(|rest| rest.starts_with('{') || rest.starts_with(['t', 'D', 'l', 'i', 'b', 'U', 'V']))
}

/// Records the outcome of `RequestHeader`.
fn record_request_header(work: &HostTranslation<'_, '_>, line: &Directive) {
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
            .mark_irrelevant(line.id, "Howdah drops this field from every request"),
        (_, name) if OWN.contains(&name) => work.ledger.mark_irrelevant(
            line.id,
            "servers and scripts get it from Howdah as it knows it (docs/proxy.md)",
        ),
        _ => work.ledger.mark_missing(
            line.id,
            "servers and scripts get the client's fields and Howdah's own",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_depend_on_the_request_are_recognised() {
        assert!(
            has_format_specifier("%{X}e")
                && has_format_specifier("t=%t")
                && !has_format_specifier("100%% max")
                && !has_format_specifier("a")
        );
    }
}
