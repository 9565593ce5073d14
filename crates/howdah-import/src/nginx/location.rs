//! `location` blocks in the order in which nginx prefers them.

use howdah_htaccess::rule_expression::RuleExpression;

use crate::directive::Directive;
use crate::expression::{below, both, compile_path, matches};
use crate::when::Match;

/// How a location is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `location = /x`
    Exact,
    /// `location ~ x` within another location, which is tried before those outside.
    NestedRegex,
    /// `location ^~ /x`: no regular expressions are tried.
    Firm,
    /// `location ~ x`
    Regex,
    /// `location /x`
    Prefix,
    /// `location @x`, and those of a kind that does not exist.
    Named,
}

/// A location, flattened.
#[derive(Clone, Debug)]
pub struct Location<'a> {
    /// The `location` directive with its block.
    pub block: &'a Directive,
    /// The locations around it, the outermost first.
    pub around: Vec<&'a Directive>,
    /// How it is chosen.
    pub kind: Kind,
    /// Its prefix or name, or its expression.
    pub pattern: String,
    /// The prefix that it begins with; empty for an expression of its own.
    pub prefix: String,
    /// Its expression, or why rules cannot have it.
    expression: Option<Result<RuleExpression, String>>,
}

impl Location<'_> {
    /// Which paths it is for, if a rule can say so.
    ///
    /// # Errors
    /// What rules cannot express.
    pub fn paths(&self) -> Result<Match, String> {
        match self.kind {
            Kind::Exact => Ok(Match::Path(self.pattern.clone())),
            Kind::Firm | Kind::Prefix => Ok(Match::beginning(&self.pattern)),
            Kind::Regex | Kind::NestedRegex => match &self.expression {
                Some(Err(why)) => Err(why.clone()),
                _ => Ok(Match::Regex(self.pattern.clone())),
            },
            Kind::Named => Err("it is reached by its name only".to_owned()),
        }
    }

    /// Everything that no other location is for.
    pub fn is_rest(&self) -> bool {
        self.kind == Kind::Prefix && self.pattern == "/"
    }

    /// Whether a path is for it, others aside.
    pub fn has(&self, path: &str) -> bool {
        match self.kind {
            Kind::Exact => path == self.pattern,
            Kind::Firm | Kind::Prefix => path.starts_with(&self.pattern),
            Kind::Regex | Kind::NestedRegex => {
                let expression = self.expression.as_ref();
                expression.is_some_and(|e| e.as_ref().is_ok_and(|e| matches(e, path)))
            }
            Kind::Named => false,
        }
    }
}

/// All locations of a server, those first that nginx prefers.
pub fn ordered(server: &Directive) -> Vec<Location<'_>> {
    let mut all = Vec::new();
    collect(server, &[], Outer::default(), &mut all);
    // Expressions keep the order of the file; of prefixes the longest counts.
    all.sort_by_key(|location| {
        let length = match location.kind {
            Kind::Firm | Kind::Prefix => location.pattern.len(),
            _ => 0,
        };
        (location.kind, std::cmp::Reverse(length))
    });
    all
}

/// Which paths the location around others is for.
#[derive(Clone, Copy, Debug, Default)]
struct Outer<'o> {
    prefix: &'o str,
    is_firm: bool,
    expression: Option<&'o str>,
}

fn collect<'a>(
    block: &'a Directive,
    around: &[&'a Directive],
    outer: Outer<'_>,
    all: &mut Vec<Location<'a>>,
) {
    let Outer {
        prefix, is_firm, ..
    } = outer;
    for inner in block.inner().iter().filter(|d| d.name == "location") {
        let (kind, pattern) = kind(inner);
        let nested = !around.is_empty();
        let (kind, pattern) = match kind {
            Kind::Regex => {
                let limited = match outer.expression {
                    Some(outer) => both(outer, &pattern),
                    None => below(prefix, &pattern),
                };
                let limited = limited.unwrap_or(pattern);
                let kind = if nested {
                    Kind::NestedRegex
                } else {
                    Kind::Regex
                };
                (kind, limited)
            }
            // No expressions outside of a firm location are tried for what is within it.
            Kind::Prefix if is_firm => (Kind::Firm, pattern),
            kind => (kind, pattern),
        };
        let within = [around, &[inner]].concat();
        let own = match kind {
            Kind::Exact | Kind::Firm | Kind::Prefix => pattern.clone(),
            _ => prefix.to_owned(),
        };
        let is_regex = matches!(kind, Kind::Regex | Kind::NestedRegex);
        all.push(Location {
            expression: is_regex.then(|| compile_path(&pattern)),
            block: inner,
            around: around.to_vec(),
            kind,
            pattern: pattern.clone(),
            prefix: own.clone(),
        });
        let outer = Outer {
            prefix: &own,
            is_firm: is_firm || kind == Kind::Firm,
            expression: is_regex.then_some(pattern.as_str()),
        };
        collect(inner, &within, outer, all);
    }
}

fn kind(block: &Directive) -> (Kind, String) {
    let first = block.arg(0);
    if block.args.len() > 1 {
        let pattern = block.arg(1).to_owned();
        return match first {
            "=" => (Kind::Exact, pattern),
            "^~" => (Kind::Firm, pattern),
            "~" => (Kind::Regex, pattern),
            "~*" => (Kind::Regex, format!("(?i){pattern}")),
            _ => (Kind::Named, pattern),
        };
    }
    // The mark may stand at the pattern without a space.
    for (mark, kind) in [("=", Kind::Exact), ("^~", Kind::Firm)] {
        if let Some(pattern) = first.strip_prefix(mark) {
            return (kind, pattern.to_owned());
        }
    }
    if let Some(pattern) = first.strip_prefix("~*") {
        return (Kind::Regex, format!("(?i){pattern}"));
    }
    if let Some(pattern) = first.strip_prefix('~') {
        return (Kind::Regex, pattern.to_owned());
    }
    match first.starts_with('/') {
        true => (Kind::Prefix, first.to_owned()),
        false => (Kind::Named, first.to_owned()),
    }
}
