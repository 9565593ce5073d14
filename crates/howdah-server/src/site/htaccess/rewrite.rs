//! What `RewriteRule` lines refuse, and what they hide: a file whose path they lead elsewhere is never
//! sent by Apache. Follows `apply_rewrite_list` of mod_rewrite in a directory's context, once: the
//! second round, after a rewrite, is another question ([`AccessQuery::redirected`]). Rewrites nothing.

use super::access_query::{AccessQuery, Lies};
use super::pattern::{LimitReached, Regex};
use super::truth::Truth;
use rewriting::Rewriting;

mod rewriting;

/// How often `[N]` begins again; beyond it the path is refused.
const MOST_ROUNDS: u32 = 64;

/// A `RewriteRule` with its conditions.
#[derive(Debug)]
pub(super) struct RewriteRule {
    pub line: u32,
    pub pattern: Regex,
    pub negated: bool,
    pub conditions: Vec<Condition>,
    pub target: Target,
    /// `L`, `END`, `PT`, `P`, a redirect: no further rules.
    pub last: bool,
    pub chained: bool,
    /// Its conditions or its target name groups (`$1`).
    pub uses_groups: bool,
    /// The same, of the groups of its conditions (`%1`).
    pub uses_condition_groups: bool,
    pub skip: usize,
    pub again: bool,
    /// `H=`, `T=`: is it PHP?
    pub handler: Option<bool>,
}

impl RewriteRule {
    /// Whether it is for the request or not, the next rule is looked at.
    pub(super) fn is_passed_over(&self) -> bool {
        self.target == Target::Redirect && !self.chained
    }

    /// It refuses or hides what it matches, or keeps it from being run.
    pub(super) fn closes(&self) -> bool {
        matches!(self.target, Target::Refuse(_) | Target::Elsewhere(_))
            || self.handler == Some(false)
            || self.again
    }
}

/// Where a rule leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `-`
    Same,
    /// `F`, `G`, `R=4xx`
    Refuse(u16),
    /// Another path of this server, or a proxy.
    Elsewhere(String),
    /// The client is to go elsewhere: no answer that could be refused here.
    Redirect,
}

/// A `RewriteCond`.
#[derive(Debug)]
pub(super) struct Condition {
    pub text: String,
    pub test: Test,
    pub negated: bool,
    pub ignore_case: bool,
    /// `OR` with the next.
    pub or: bool,
}

impl Condition {
    /// The texts in which variables and groups are replaced.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        let compared = match &self.test {
            Test::Equals(text) => Some(text.as_str()),
            _ => None,
        };
        [Some(self.text.as_str()), compared].into_iter().flatten()
    }

    /// What its pattern weighs, and the text that it is compared with.
    pub(super) fn weight(&self) -> usize {
        let test = match &self.test {
            Test::Matches(regex) => regex.weight(),
            Test::Equals(text) => text.len(),
            Test::Is(_) | Test::Unknown => 0,
        };
        test.saturating_add(self.text.len())
    }
}

#[derive(Debug)]
pub(super) enum Test {
    Matches(Regex),
    /// `=`
    Equals(String),
    /// `-f`, `-F`, `-s` and the like, by their letter.
    Is(u8),
    /// What is not understood: expressions, comparisons of order.
    Unknown,
}

/// What the rules make of a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RewriteOutcome {
    /// Nothing that concerns access.
    Nothing,
    /// Refused with a status.
    Refused { line: u32, status: u16 },
    /// The path is led elsewhere, so what lies at it is not sent.
    Hidden { line: u32 },
    /// A script at the path is not run.
    NoScript { line: u32 },
}

/// `base` is the URL path of the rules' directory, with its slash. `at_root`: what depends on the
/// visitor is answered as for a stranger; elsewhere it closes, and opens nothing.
pub(super) fn apply(
    rules: &[&RewriteRule],
    base: &[u8],
    at_root: bool,
    asked: &AccessQuery<'_>,
) -> RewriteOutcome {
    // The directory itself, named without its slash, is redirected to first.
    if !asked.path.starts_with(base) {
        return RewriteOutcome::Nothing;
    }
    let mut walk = Rewriting::new(asked, base.len());
    let (mut moved_by, mut may_hide) = (None, None);
    let mut rounds = 0;
    let mut at = 0;
    while let Some(rule) = rules.get(at) {
        at += 1;
        if rule.is_passed_over() {
            continue;
        }
        let limit_reached = RewriteOutcome::Refused {
            line: rule.line,
            status: 403,
        };
        let Ok(mut holds) = walk.matches(rule) else {
            return limit_reached;
        };
        if at_root {
            holds = holds.as_for_a_stranger();
        }
        if let Target::Refuse(status) = rule.target
            && !holds.is_no()
        {
            return RewriteOutcome::Refused {
                line: rule.line,
                status,
            };
        }
        let keeps_from_running = rule.handler == Some(false) && asked.lies == Lies::Script;
        let no_script = RewriteOutcome::NoScript { line: rule.line };
        if !holds.is_yes() {
            if keeps_from_running && !walk.moved && !holds.is_no() {
                return no_script;
            }
            // Below the root what may lead elsewhere hides.
            if let (Target::Elsewhere(to), false) = (&rule.target, holds.is_no()) {
                match walk.leads_away(to, base) {
                    Err(LimitReached) => return limit_reached,
                    Ok(true) => may_hide = Some(rule.line),
                    Ok(false) => {}
                }
            }
            // The rules chained to it go with it.
            let mut chained = rule.chained;
            while let (true, Some(next)) = (chained, rules.get(at)) {
                chained = next.chained;
                at += 1;
            }
            continue;
        }
        match &rule.target {
            Target::Elsewhere(to) => {
                if walk.go(to, base).is_err() {
                    return limit_reached;
                }
                moved_by = Some(rule.line);
            }
            // Whether the client comes back with https or another name is not known: the rules
            // behind it hold for it, too.
            Target::Redirect => continue,
            Target::Same | Target::Refuse(_) => {}
        }
        if keeps_from_running && !walk.moved {
            return no_script;
        }
        if rule.last {
            break;
        }
        if rule.again {
            rounds += 1;
            if rounds == MOST_ROUNDS {
                return limit_reached;
            }
            at = 0;
        }
        at = at.saturating_add(rule.skip);
    }
    let hidden_by = moved_by.filter(|_| walk.is_away()).or(may_hide);
    hidden_by.map_or(RewriteOutcome::Nothing, |line| RewriteOutcome::Hidden {
        line,
    })
}

/// Whether a single condition holds, as one of an `<If>` does.
pub(super) fn holds(condition: &Condition, asked: &AccessQuery<'_>) -> Result<Truth, LimitReached> {
    Rewriting::new(asked, 0).holds(condition, false)
}
