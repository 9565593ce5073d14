//! Translates response headers (`Header`, `Expires…`) and variables (`SetEnv`, `SetEnvIf`, `BrowserMatch`).

use super::expires::write_expires;
use super::expr::parse_expression;
use super::host_context::HostContext;
use super::layers::Layer;
use super::requirement::intersection;
use super::variables::{requests_with_variable, translate_variable};
use crate::directive::Directive;
use crate::ledger::ImportLedger;
use crate::rule_condition::{PathMatch, RuleCondition};
use crate::stages::{RuleStage, StagedRules};
use crate::target::{SiteTable, TomlValue, is_settable_header};

/// Translates the lines of all sections.
pub fn write_headers(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
) {
    for number in 0..context.layers.len() {
        let layer = &context.layers[number];
        for line in layer.directives {
            match line.name.as_str() {
                "header" => translate_header(context, site, stages, layer, line),
                "requestheader" => record_request_header(context.ledger, line),
                "setenv" | "setenvif" | "setenvifnocase" | "setenvifexpr" | "browsermatch"
                | "browsermatchnocase" | "unsetenv" | "passenv" => {
                    translate_variable(context.ledger, layer, line, site)
                }
                _ => {}
            }
        }
    }
    write_expires(context, stages);
}

/// Translates `Header [always] ACTION NAME [VALUE] [CONDITION]`.
fn translate_header(
    context: &HostContext<'_, '_>,
    site: &mut SiteTable,
    stages: &mut StagedRules,
    layer: &Layer<'_>,
    line: &Directive,
) {
    let ledger = context.ledger;
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
    let asked = condition.map_or(Ok(Vec::new()), |text| condition_of_header(context, text));
    let asked = match asked {
        Ok(asked) => asked,
        Err(need) => return ledger.mark_missing(line.id, need),
    };
    let is_hsts = name.eq_ignore_ascii_case("strict-transport-security");
    if !asked.is_empty() && !is_hsts {
        let [asked] = &asked[..] else {
            return ledger.mark_missing(line.id, "write a rule for each condition");
        };
        match intersection(&when, asked) {
            Some(both) => when = both,
            None => {
                return ledger.mark_missing(
                    line.id,
                    "write one rule that matches the paths of both patterns",
                );
            }
        }
    }
    if !is_settable_header(name) || value.chars().any(char::is_control) {
        return ledger.mark_missing(
            line.id,
            "the server sets this header itself, or the name is not valid",
        );
    }
    if has_format_specifier(value) {
        return ledger.mark_missing(line.id, "use `set_header` in a rule, with a fixed value");
    }
    if is_hsts
        && matches!(action.as_str(), "set" | "add" | "append" | "setifempty")
        && layer.paths == PathMatch::All
    {
        if !context.host.tls {
            return ledger.mark_irrelevant(
                line.id,
                "browsers ignore this header without TLS (RFC 6797)",
            );
        }
        site.table.set("hsts", value, Some(&line.place));
        return ledger.mark_different(
            line.id,
            "the header is sent only in responses over HTTPS, as RFC 6797 requires",
        );
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
        _ => return ledger.mark_missing(line.id, "use `set_header` in a rule, with a fixed value"),
    };
    let pairs = TomlValue::Pairs(vec![(name.to_owned(), value)]);
    stages.push(RuleStage::Headers, when.rule(key, pairs, &line.place));
    match (always, action.as_str()) {
        (_, "unset") | (true, "set") => ledger.mark_carried(line.id),
        _ => ledger.mark_different(
            line.id,
            "the header is set for every status, and replaces a script's own header of that name",
        ),
    }
}

/// Returns the requests that `env=…` or `expr=…` after a header selects. An empty list means all requests.
fn condition_of_header(
    context: &HostContext<'_, '_>,
    condition: &str,
) -> Result<Vec<RuleCondition>, String> {
    let need = "write a rule with this condition";
    if condition == "early" {
        return Ok(Vec::new());
    }
    if let Some(variable) = condition.strip_prefix("env=") {
        return match variable {
            "HTTPS" | "SSL_PROTOCOL" => Ok(vec![RuleCondition::https()]),
            _ if variable.starts_with('!') => Err(format!(
                "write a rule that excludes, with `not`, the requests for which {variable} is set",
                variable = &variable[1..]
            )),
            _ => requests_with_variable(context, variable),
        };
    }
    let text = condition.strip_prefix("expr=").unwrap_or_default();
    let demands = parse_expression(text)?.into_demands().map_err(|()| need)?;
    // The formula's denials are the requests for which the condition is false, so their negation is the condition.
    match &demands.denials[..] {
        _ if demands.login.is_some() => Err(need.to_owned()),
        [] => Ok(Vec::new()),
        [all] if *all == RuleCondition::default() => Err("the condition is never true".to_owned()),
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
fn record_request_header(ledger: &ImportLedger, line: &Directive) {
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
        ("unset", "proxy") => {
            ledger.mark_irrelevant(line.id, "Howdah drops this header from every request")
        }
        (_, name) if OWN.contains(&name) => ledger.mark_irrelevant(
            line.id,
            "servers and scripts get Howdah's own value of this header (docs/proxy.md)",
        ),
        _ => ledger.mark_missing(
            line.id,
            "Howdah passes on the client's headers and sets its own; you cannot configure other headers",
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
