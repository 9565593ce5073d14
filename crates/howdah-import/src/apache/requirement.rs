//! The requirements for access as a formula over requests, and the translation of this formula into rules that deny all
//! other requests.

use crate::rule_condition::{PathMatch, RuleCondition};

/// The requests that are granted access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessFormula {
    /// All requests.
    Granted,
    /// No request.
    Denied,
    /// Requests that meet this condition.
    Condition(RuleCondition),
    /// Requests with a valid password of one of these users and groups. An empty list permits any user.
    Login(Vec<String>),
    /// Requests that the inner formula does not grant.
    Not(Box<AccessFormula>),
    /// Requests that all of the formulas grant.
    All(Vec<AccessFormula>),
    /// Requests that one of the formulas grants.
    Any(Vec<AccessFormula>),
}

/// The denials and the password request that a formula is translated into.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessDemands {
    /// Requests that are denied.
    pub denials: Vec<RuleCondition>,
    /// The password that is required, if any.
    pub login: Option<PasswordDemand>,
}

/// A required password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordDemand {
    /// Requests that need no password.
    pub exempt: Vec<RuleCondition>,
    /// The permitted users and groups. An empty list permits any user.
    pub require: Vec<String>,
}

impl AccessFormula {
    /// Translates the formula into rules.
    ///
    /// # Errors
    /// Returns an error if rules cannot express the formula.
    pub fn into_demands(self) -> Result<AccessDemands, ()> {
        let mut demands = AccessDemands::default();
        self.simplify()?.add_to(&mut demands)?;
        Ok(demands)
    }

    fn add_to(self, demands: &mut AccessDemands) -> Result<(), ()> {
        match self {
            AccessFormula::Granted => {}
            AccessFormula::Denied => demands.denials.push(RuleCondition::default()),
            AccessFormula::Condition(when) => {
                demands.denials.push(RuleCondition::none_of(vec![when]))
            }
            AccessFormula::Not(inner) => {
                let AccessFormula::Condition(when) = *inner else {
                    return Err(());
                };
                demands.denials.push(when);
            }
            AccessFormula::Login(require) => demands.require_password(PasswordDemand {
                exempt: Vec::new(),
                require,
            })?,
            AccessFormula::All(parts) => {
                for part in parts {
                    part.add_to(demands)?;
                }
            }
            AccessFormula::Any(parts) => {
                let mut allowed = Vec::new();
                let mut logins: Option<Vec<String>> = None;
                let mut denied: Option<RuleCondition> = None;
                for part in parts {
                    match part {
                        AccessFormula::Condition(when) => allowed.push(when),
                        // These requests are denied unless another part grants them.
                        AccessFormula::Not(inner) if denied.is_none() => match *inner {
                            AccessFormula::Condition(when) => denied = Some(when),
                            _ => return Err(()),
                        },
                        AccessFormula::Login(more) => {
                            let known = logins.get_or_insert_with(|| more.clone());
                            match known.is_empty() || more.is_empty() {
                                true => known.clear(),
                                false => known.extend(
                                    more.into_iter()
                                        .filter(|m| !known.contains(m))
                                        .collect::<Vec<_>>(),
                                ),
                            }
                        }
                        _ => return Err(()),
                    }
                }
                match (logins, denied) {
                    (Some(require), None) => demands.require_password(PasswordDemand {
                        exempt: allowed,
                        require,
                    })?,
                    (Some(_), Some(_)) => return Err(()),
                    (None, denied) => {
                        let mut denied = denied.unwrap_or_default();
                        denied.exceptions.extend(allowed);
                        demands.denials.push(denied);
                    }
                }
            }
        }
        Ok(())
    }

    /// Simplifies the formula: removes constants, flattens nested containers of the same kind, and merges the
    /// conditions of an `All` in an `Any` into one.
    fn simplify(self) -> Result<AccessFormula, ()> {
        Ok(match self {
            AccessFormula::Not(inner) => match inner.simplify()? {
                AccessFormula::Granted => AccessFormula::Denied,
                AccessFormula::Denied => AccessFormula::Granted,
                AccessFormula::Not(inner) => *inner,
                AccessFormula::Any(parts) => {
                    let parts = parts
                        .into_iter()
                        .map(|part| AccessFormula::Not(Box::new(part)));
                    AccessFormula::All(parts.collect()).simplify()?
                }
                AccessFormula::Login(_) | AccessFormula::All(_) => return Err(()),
                inner => AccessFormula::Not(Box::new(inner)),
            },
            AccessFormula::All(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    match part.simplify()? {
                        AccessFormula::Granted => {}
                        AccessFormula::Denied => return Ok(AccessFormula::Denied),
                        AccessFormula::All(more) => all.extend(more),
                        part => all.push(part),
                    }
                }
                // Several networks that must all contain the client cannot be one condition of a rule, so an `All` is
                // not merged here.
                match all.len() {
                    0 => AccessFormula::Granted,
                    1 => all.remove(0),
                    _ => AccessFormula::All(all),
                }
            }
            AccessFormula::Any(parts) => {
                let mut any = Vec::new();
                for part in parts {
                    match part.simplify()? {
                        AccessFormula::Denied => {}
                        AccessFormula::Granted => return Ok(AccessFormula::Granted),
                        AccessFormula::Any(more) => any.extend(more),
                        part => any.push(part),
                    }
                }
                match any.len() {
                    0 => AccessFormula::Denied,
                    1 => any.remove(0),
                    _ => {
                        let one = |part| match part {
                            AccessFormula::All(parts) => {
                                merge_conditions(parts).map(AccessFormula::Condition)
                            }
                            part => Ok(part),
                        };
                        AccessFormula::Any(any.into_iter().map(one).collect::<Result<_, _>>()?)
                    }
                }
            }
            formula => formula,
        })
    }
}

impl AccessDemands {
    fn require_password(&mut self, login: PasswordDemand) -> Result<(), ()> {
        match self.login.replace(login) {
            None => Ok(()),
            Some(_) => Err(()),
        }
    }
}

/// Merges conditions that must all hold into one.
fn merge_conditions(parts: Vec<AccessFormula>) -> Result<RuleCondition, ()> {
    let mut all = RuleCondition::default();
    for part in parts {
        let AccessFormula::Condition(when) = part else {
            return Err(());
        };
        all = intersection(&all, &when).ok_or(())?;
    }
    Ok(all)
}

/// Returns the requests that meet both conditions, or `None` if the condition of a single rule cannot express this.
pub fn intersection(one: &RuleCondition, other: &RuleCondition) -> Option<RuleCondition> {
    let mut both = one.clone();
    both.paths = match (&one.paths, &other.paths) {
        (paths, PathMatch::All) | (PathMatch::All, paths) => paths.clone(),
        (one, other) if super::region::covers(one, other) => other.clone(),
        (one, other) if super::region::covers(other, one) => one.clone(),
        _ => return None,
    };
    both.methods = match (one.methods.is_empty(), other.methods.is_empty()) {
        (_, true) => one.methods.clone(),
        (true, _) => other.methods.clone(),
        _ => {
            let methods = one.methods.iter().filter(|m| other.methods.contains(m));
            let methods: Vec<String> = methods.cloned().collect();
            if methods.is_empty() {
                return None;
            }
            methods
        }
    };
    both.client_networks = match (
        one.client_networks.is_empty(),
        other.client_networks.is_empty(),
    ) {
        (_, true) => one.client_networks.clone(),
        (true, _) => other.client_networks.clone(),
        _ if one.client_networks == other.client_networks => one.client_networks.clone(),
        _ => return None,
    };
    for test in &other.tests {
        match both
            .tests
            .iter()
            .find(|(kind, name, _)| (*kind, name) == (test.0, &test.1))
        {
            Some(same) if same == test => {}
            Some(_) => return None,
            None => both.tests.push(test.clone()),
        }
    }
    both.if_missing |= other.if_missing;
    for not in &other.exceptions {
        both = both.but(not.clone());
    }
    Some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(network: &str) -> RuleCondition {
        RuleCondition::clients(vec![network.to_owned()])
    }

    #[test]
    fn formulas_are_translated_to_denials() {
        use AccessFormula::{All, Any, Condition, Denied, Granted, Login as User, Not};
        let office = || Condition(from("10.0.0.0/8"));
        let not = |inner: AccessFormula| Not(Box::new(inner));
        let denies = |formula: AccessFormula| formula.into_demands().map(|demands| demands.denials);
        assert_eq!(denies(Granted), Ok(vec![]));
        assert_eq!(denies(Any(vec![Denied, Granted])), Ok(vec![]));
        assert_eq!(denies(Any(vec![])), Ok(vec![RuleCondition::default()]));
        assert_eq!(
            denies(Any(vec![office()])),
            Ok(vec![RuleCondition::none_of(vec![from("10.0.0.0/8")])])
        );
        assert_eq!(
            denies(All(vec![Granted, not(office())])),
            Ok(vec![from("10.0.0.0/8")])
        );
        assert_eq!(
            denies(not(Any(vec![office(), Condition(from("192.0.2.1"))]))),
            Ok(vec![from("10.0.0.0/8"), from("192.0.2.1")])
        );
        let either = Any(vec![office(), User(vec![])]).into_demands().unwrap();
        assert_eq!(either.login.unwrap().exempt, [from("10.0.0.0/8")]);
        assert!(either.denials.is_empty());
        let both = All(vec![office(), User(vec!["user ann".into()])])
            .into_demands()
            .unwrap();
        assert_eq!(
            (both.denials.len(), both.login.unwrap().require.len()),
            (1, 1)
        );
        let but = RuleCondition {
            exceptions: vec![from("10.1.0.0/16")],
            ..from("10.0.0.0/8")
        };
        assert_eq!(
            denies(Any(vec![Condition(from("10.1.0.0/16")), not(office())])),
            Ok(vec![but])
        );
        assert!(
            Any(vec![not(office()), User(vec![])])
                .into_demands()
                .is_err()
        );
        assert!(not(User(vec![])).into_demands().is_err());
    }
}
