//! What a client must fulfil, as a formula, and the rules that refuse everybody else.

use crate::when::{Match, When};

/// Who is let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Everybody.
    Yes,
    /// Nobody.
    No,
    /// Whose request meets this condition.
    Is(When),
    /// Who knows a password: one of these users and groups; none: any user.
    Login(Vec<String>),
    /// Whoever is not let in.
    Not(Box<Formula>),
    /// Who is let in by all of them.
    All(Vec<Formula>),
    /// Who is let in by one of them.
    Any(Vec<Formula>),
}

/// What rules refuse and ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    /// These requests are refused.
    pub denials: Vec<When>,
    /// A password is asked for.
    pub login: Option<Login>,
}

/// A password that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Not of these requests.
    pub exempt: Vec<When>,
    /// Of these users and groups; none: any user.
    pub require: Vec<String>,
}

impl Formula {
    /// As rules.
    ///
    /// # Errors
    /// Rules cannot say it.
    pub fn demands(self) -> Result<Demands, ()> {
        let mut demands = Demands::default();
        self.simple()?.add(&mut demands)?;
        Ok(demands)
    }

    fn add(self, demands: &mut Demands) -> Result<(), ()> {
        match self {
            Formula::Yes => {}
            Formula::No => demands.denials.push(When::default()),
            Formula::Is(when) => demands.denials.push(When::none_of(vec![when])),
            Formula::Not(inner) => {
                let Formula::Is(when) = *inner else {
                    return Err(());
                };
                demands.denials.push(when);
            }
            Formula::Login(require) => demands.ask(Login {
                exempt: Vec::new(),
                require,
            })?,
            Formula::All(parts) => {
                for part in parts {
                    part.add(demands)?;
                }
            }
            Formula::Any(parts) => {
                let mut allowed = Vec::new();
                let mut logins: Option<Vec<String>> = None;
                let mut denied: Option<When> = None;
                for part in parts {
                    match part {
                        Formula::Is(when) => allowed.push(when),
                        // These are refused, unless something else lets them in.
                        Formula::Not(inner) if denied.is_none() => match *inner {
                            Formula::Is(when) => denied = Some(when),
                            _ => return Err(()),
                        },
                        Formula::Login(more) => {
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
                    (Some(require), None) => demands.ask(Login {
                        exempt: allowed,
                        require,
                    })?,
                    (Some(_), Some(_)) => return Err(()),
                    (None, denied) => {
                        let mut denied = denied.unwrap_or_default();
                        denied.not.extend(allowed);
                        demands.denials.push(denied);
                    }
                }
            }
        }
        Ok(())
    }

    /// Without constants, and without containers in containers of their kind; conditions that belong
    /// together are one.
    fn simple(self) -> Result<Formula, ()> {
        Ok(match self {
            Formula::Not(inner) => match inner.simple()? {
                Formula::Yes => Formula::No,
                Formula::No => Formula::Yes,
                Formula::Not(inner) => *inner,
                Formula::Any(parts) => {
                    let parts = parts.into_iter().map(|part| Formula::Not(Box::new(part)));
                    Formula::All(parts.collect()).simple()?
                }
                Formula::Login(_) | Formula::All(_) => return Err(()),
                inner => Formula::Not(Box::new(inner)),
            },
            Formula::All(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    match part.simple()? {
                        Formula::Yes => {}
                        Formula::No => return Ok(Formula::No),
                        Formula::All(more) => all.extend(more),
                        part => all.push(part),
                    }
                }
                // Several networks, of which the client must be in all, are no condition of one rule.
                match all.len() {
                    0 => Formula::Yes,
                    1 => all.remove(0),
                    _ => Formula::All(all),
                }
            }
            Formula::Any(parts) => {
                let mut any = Vec::new();
                for part in parts {
                    match part.simple()? {
                        Formula::No => {}
                        Formula::Yes => return Ok(Formula::Yes),
                        Formula::Any(more) => any.extend(more),
                        part => any.push(part),
                    }
                }
                match any.len() {
                    0 => Formula::No,
                    1 => any.remove(0),
                    _ => {
                        let one = |part| match part {
                            Formula::All(parts) => merged(parts).map(Formula::Is),
                            part => Ok(part),
                        };
                        Formula::Any(any.into_iter().map(one).collect::<Result<_, _>>()?)
                    }
                }
            }
            formula => formula,
        })
    }
}

impl Demands {
    fn ask(&mut self, login: Login) -> Result<(), ()> {
        match self.login.replace(login) {
            None => Ok(()),
            Some(_) => Err(()),
        }
    }
}

/// Conditions that must all hold, as those of one rule.
fn merged(parts: Vec<Formula>) -> Result<When, ()> {
    let mut all = When::default();
    for part in parts {
        let Formula::Is(when) = part else {
            return Err(());
        };
        all = both(&all, &when).ok_or(())?;
    }
    Ok(all)
}

/// The requests that meet both; none if one rule cannot say it.
pub fn both(one: &When, other: &When) -> Option<When> {
    let mut both = one.clone();
    both.paths = match (&one.paths, &other.paths) {
        (paths, Match::All) | (Match::All, paths) => paths.clone(),
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
    both.from = match (one.from.is_empty(), other.from.is_empty()) {
        (_, true) => one.from.clone(),
        (true, _) => other.from.clone(),
        _ if one.from == other.from => one.from.clone(),
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
    both.missing |= other.missing;
    for not in &other.not {
        both = both.but(not.clone());
    }
    Some(both)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(network: &str) -> When {
        When::clients(vec![network.to_owned()])
    }

    #[test]
    fn formulas_become_what_is_refused() {
        use Formula::{All, Any, Is, Login as User, No, Not, Yes};
        let office = || Is(from("10.0.0.0/8"));
        let not = |inner: Formula| Not(Box::new(inner));
        let denies = |formula: Formula| formula.demands().map(|demands| demands.denials);
        assert_eq!(denies(Yes), Ok(vec![]));
        assert_eq!(denies(Any(vec![No, Yes])), Ok(vec![]));
        assert_eq!(denies(Any(vec![])), Ok(vec![When::default()]));
        assert_eq!(
            denies(Any(vec![office()])),
            Ok(vec![When::none_of(vec![from("10.0.0.0/8")])])
        );
        assert_eq!(
            denies(All(vec![Yes, not(office())])),
            Ok(vec![from("10.0.0.0/8")])
        );
        assert_eq!(
            denies(not(Any(vec![office(), Is(from("192.0.2.1"))]))),
            Ok(vec![from("10.0.0.0/8"), from("192.0.2.1")])
        );
        let either = Any(vec![office(), User(vec![])]).demands().unwrap();
        assert_eq!(either.login.unwrap().exempt, [from("10.0.0.0/8")]);
        assert!(either.denials.is_empty());
        let both = All(vec![office(), User(vec!["user ann".into()])])
            .demands()
            .unwrap();
        assert_eq!(
            (both.denials.len(), both.login.unwrap().require.len()),
            (1, 1)
        );
        let but = When {
            not: vec![from("10.1.0.0/16")],
            ..from("10.0.0.0/8")
        };
        assert_eq!(
            denies(Any(vec![Is(from("10.1.0.0/16")), not(office())])),
            Ok(vec![but])
        );
        assert!(Any(vec![not(office()), User(vec![])]).demands().is_err());
        assert!(not(User(vec![])).demands().is_err());
    }
}
