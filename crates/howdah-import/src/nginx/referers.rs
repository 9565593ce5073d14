//! `valid_referers`, which protects files from being shown by others, as a condition of a rule.

use super::server::ServerTranslation;
use crate::directive::Directive;
use crate::expression::compile;
use crate::rule_condition::RuleCondition;
use crate::target::TomlValue;

/// `if ($invalid_referer)`
pub fn is_invalid_referer(block: &Directive) -> bool {
    matches!(&block.args[..], [word] if word == "($invalid_referer)")
}

/// The requests whose `Referer` is not among those of the line beside it.
///
/// # Errors
/// What a rule cannot ask: a sentence.
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
    // Without `none` a request without the field is refused, and one with an odd one as well.
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
