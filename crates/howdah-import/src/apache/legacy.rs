//! Access control of Apache 2.2: `Order`, `Allow`, `Deny`.

use std::net::{IpAddr, Ipv4Addr};

use super::access::any_variable_set;
use super::requirement::AccessFormula;
use super::site::HostTranslation;
use crate::directive::Directive;
use crate::network::network_of;
use crate::rule_condition::RuleCondition;

/// Translates `Order`, `Allow` and `Deny` into a formula.
pub fn legacy_access_formula(
    work: &HostTranslation<'_, '_>,
    lines: &[Directive],
) -> Result<AccessFormula, String> {
    let order = lines.iter().rev().find(|d| d.name == "order");
    let order = order.map_or(String::new(), |line| {
        line.args.concat().to_ascii_lowercase()
    });
    let allow_first = order == "allow,deny" || order == "mutual-failure";
    let allowed = clients_of(work, lines, "allow")?;
    let denied = clients_of(work, lines, "deny")?;
    let not_denied = AccessFormula::Not(Box::new(denied));
    Ok(match allow_first {
        true => AccessFormula::All(vec![allowed, not_denied]),
        // `Allow` takes precedence over `Deny`.
        false => AccessFormula::Any(vec![allowed, not_denied]),
    })
}

/// Returns the clients that `Allow from` or `Deny from` names.
fn clients_of(
    work: &HostTranslation<'_, '_>,
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
                        let unset = any_variable_set(work, &[variable.to_owned()])?;
                        any.push(AccessFormula::Not(Box::new(unset)));
                    }
                    None => any.push(any_variable_set(work, &[variable.to_owned()])?),
                }
            } else if let Some(network) = parse_apache_network(word) {
                networks.push(network);
            } else if name == "allow" {
                work.ledger.mark_missing_protection(
                    line.id,
                    "addresses in place of host names: Howdah looks up no client",
                );
            } else {
                return Err("addresses in place of names of hosts".to_owned());
            }
        }
    }
    if !networks.is_empty() {
        any.push(AccessFormula::Condition(RuleCondition::clients(networks)));
    }
    Ok(AccessFormula::Any(any))
}

/// Parses `10.1`, `10.1.0.0/255.255.0.0`, `192.0.2.1` or `2001:db8::/32`.
pub fn parse_apache_network(text: &str) -> Option<String> {
    if let Some(found) = crate::network::parse_network(text) {
        return Some(found);
    }
    if let Some((address, mask)) = text.split_once('/') {
        let (address, mask) = (address.parse().ok()?, mask.parse::<Ipv4Addr>().ok()?);
        let ones = mask.to_bits().leading_ones();
        return (mask.to_bits().count_ones() == ones)
            .then(|| network_of(IpAddr::V4(address), ones))?;
    }
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    let are_bytes = parts.iter().all(|part| part.parse::<u8>().is_ok());
    if !are_bytes || parts.len() > 3 {
        return None;
    }
    let bits = parts.len() * 8;
    let whole = [&parts[..], &["0"; 3][..4 - parts.len()]].concat();
    Some(format!("{}/{bits}", whole.join(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apache_networks_are_parsed_in_all_notations() {
        for (text, expected) in [
            ("10.1", Some("10.1.0.0/16")),
            ("10.", Some("10.0.0.0/8")),
            ("10.1.0.0/255.255.0.0", Some("10.1.0.0/16")),
            ("10.1.2.3/255.255.0.0", Some("10.1.0.0/16")),
            ("10.0.0.0/255.0.255.0", None),
            ("192.0.2.1", Some("192.0.2.1")),
            ("2001:db8::/32", Some("2001:db8::/32")),
            ("10.0.0.0/33", None),
            ("example.org", None),
            (".example.org", None),
        ] {
            assert_eq!(parse_apache_network(text).as_deref(), expected, "{text}");
        }
    }
}
