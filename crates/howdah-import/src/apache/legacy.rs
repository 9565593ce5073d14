//! Access control of Apache 2.2: `Order`, `Allow`, `Deny`.

use super::host_context::HostContext;
use super::networks::parse_apache_network;
use super::requirement::AccessFormula;
use super::variables::any_variable_set;
use crate::directive::Directive;
use crate::rule_condition::RuleCondition;

/// Translates `Order`, `Allow` and `Deny` into a formula.
pub fn legacy_access_formula(
    context: &HostContext<'_, '_>,
    lines: &[Directive],
) -> Result<AccessFormula, String> {
    let order = lines.iter().rev().find(|d| d.name == "order");
    let order = order.map_or(String::new(), |line| {
        line.args.concat().to_ascii_lowercase()
    });
    let allow_first = order == "allow,deny" || order == "mutual-failure";
    let allowed = clients_of(context, lines, "allow")?;
    let denied = clients_of(context, lines, "deny")?;
    let not_denied = AccessFormula::Not(Box::new(denied));
    Ok(match allow_first {
        true => AccessFormula::All(vec![allowed, not_denied]),
        // `Allow` takes precedence over `Deny`.
        false => AccessFormula::Any(vec![allowed, not_denied]),
    })
}

/// Returns the clients that `Allow from` or `Deny from` names.
fn clients_of(
    context: &HostContext<'_, '_>,
    lines: &[Directive],
    name: &str,
) -> Result<AccessFormula, String> {
    let mut any = Vec::new();
    let mut networks = Vec::new();
    for line in lines.iter().filter(|d| d.name == name) {
        let words = line
            .args
            .iter()
            .filter(|word| !word.eq_ignore_ascii_case("from"));
        for word in words {
            if word.eq_ignore_ascii_case("all") {
                any.push(AccessFormula::Granted);
            } else if let Some(variable) = word.strip_prefix("env=") {
                match variable.strip_prefix('!') {
                    Some(variable) => {
                        let unset = any_variable_set(context, &[variable.to_owned()])?;
                        any.push(AccessFormula::Not(Box::new(unset)));
                    }
                    None => any.push(any_variable_set(context, &[variable.to_owned()])?),
                }
            } else if let Some(network) = parse_apache_network(word) {
                networks.push(network);
            } else if name == "allow" {
                context.ledger.mark_missing_protection(
                    line.id,
                    "write addresses instead of host names: Howdah does not look up the names of clients",
                );
            } else {
                return Err("write addresses instead of host names".to_owned());
            }
        }
    }
    if !networks.is_empty() {
        any.push(AccessFormula::Condition(RuleCondition::clients(networks)));
    }
    Ok(AccessFormula::Any(any))
}
