//! Translates `valid_referers`, which prevents other sites from embedding files, into a condition of a rule.

use super::server::ServerTranslation;
use crate::directive::Directive;
use crate::expression::compile;
use crate::rule_condition::RuleCondition;
use crate::target::TomlValue;

/// Recognises `if ($invalid_referer)`.
pub fn is_invalid_referer(block: &Directive) -> bool {
    matches!(&block.args[..], [word] if word == "($invalid_referer)")
}

/// Returns the requests whose `Referer` is not in the `valid_referers` beside the `if`, or else of the server.
///
/// # Errors
/// Returns a sentence if a rule cannot express the condition.
pub fn invalid_referer_condition(
    work: &ServerTranslation<'_, '_>,
    beside: &[Directive],
) -> Result<RuleCondition, String> {
    let lines = [beside, work.block.inner()];
    let line = lines
        .iter()
        .find_map(|lines| lines.iter().rev().find(|d| d.name == "valid_referers"))
        .ok_or("there are no valid_referers")?;
    let is = |test: String| RuleCondition::test("header", "Referer", test);
    let says = |word: &str| line.args.iter().any(|arg| arg == word);
    // Without `none`, requests without `Referer` are denied, and so are those with a malformed one.
    let mut when = match (says("none"), says("blocked")) {
        (true, true) => is("~* ^https?://".to_owned()),
        (true, false) => is("*".to_owned()),
        (false, _) => RuleCondition::default(),
    };
    let mut hosts: Vec<String> = Vec::new();
    for arg in &line.args {
        match arg.as_str() {
            "none" | "blocked" => {}
            "server_names" => hosts.extend(match work.site.table.get("hosts") {
                Some(TomlValue::Texts(hosts)) => hosts.clone(),
                _ => Vec::new(),
            }),
            text => hosts.push(text.to_owned()),
        }
    }
    for host in hosts {
        let test = match host.strip_prefix('~') {
            Some(expression) => match expression.strip_prefix('^') {
                Some(start) => format!("~* ^https?://(?:{start})"),
                None => format!("~* ^https?://.*(?:{expression})"),
            },
            None => {
                let host = match host.strip_prefix('.') {
                    Some(rest) => format!("(?:.+\\.)?{}", regex::escape(rest)),
                    None => regex::escape(&host).replace(r"\*", ".+"),
                };
                format!("~* ^https?://{host}(?:[:/]|$)")
            }
        };
        compile(test.trim_start_matches("~* "))?;
        when = when.but(is(test));
    }
    work.ledger.mark_carried(line.id);
    Ok(when)
}
