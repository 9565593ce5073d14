//! `location` blocks in the order in which nginx prefers them.

use howdah_htaccess::rule_expression::RuleExpression;

use crate::directive::Directive;
use crate::expression::{compile_path, intersection, limit_to_prefix, may_match};
use crate::rule_condition::PathMatch;

/// How a location is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationKind {
    /// `location = /x`
    Exact,
    /// `location ~ x` within another location, which is tried before those outside.
    NestedRegex,
    /// `location ^~ /x`: no regular expressions are tried.
    PrefixNoRegex,
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
    pub kind: LocationKind,
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
    pub fn paths(&self) -> Result<PathMatch, String> {
        match self.kind {
            LocationKind::Exact => Ok(PathMatch::Path(self.pattern.clone())),
            LocationKind::PrefixNoRegex | LocationKind::Prefix => {
                Ok(PathMatch::text_prefix(&self.pattern))
            }
            LocationKind::Regex | LocationKind::NestedRegex => match &self.expression {
                Some(Err(why)) => Err(why.clone()),
                _ => Ok(PathMatch::Regex(self.pattern.clone())),
            },
            LocationKind::Named => Err("it is reached by its name only".to_owned()),
        }
    }

    /// Everything that no other location is for.
    pub fn is_catch_all(&self) -> bool {
        self.kind == LocationKind::Prefix && self.pattern == "/"
    }

    /// Whether a path is for it, others aside.
    pub fn matches_path(&self, path: &str) -> bool {
        match self.kind {
            LocationKind::Exact => path == self.pattern,
            LocationKind::PrefixNoRegex | LocationKind::Prefix => path.starts_with(&self.pattern),
            LocationKind::Regex | LocationKind::NestedRegex => {
                let expression = self.expression.as_ref();
                expression.is_some_and(|e| e.as_ref().is_ok_and(|e| may_match(e, path)))
            }
            LocationKind::Named => false,
        }
    }
}

/// All locations of a server, those first that nginx prefers.
pub fn ordered_locations(server: &Directive) -> Vec<Location<'_>> {
    let mut all = Vec::new();
    collect_locations(server, &[], Outer::default(), &mut all);
    // Expressions keep the order of the file; of prefixes the longest counts.
    all.sort_by_key(|location| {
        let length = match location.kind {
            LocationKind::PrefixNoRegex | LocationKind::Prefix => location.pattern.len(),
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
    is_no_regex: bool,
    expression: Option<&'o str>,
}

fn collect_locations<'a>(
    block: &'a Directive,
    around: &[&'a Directive],
    outer: Outer<'_>,
    all: &mut Vec<Location<'a>>,
) {
    let Outer {
        prefix,
        is_no_regex: is_firm,
        ..
    } = outer;
    for inner in block.inner().iter().filter(|d| d.name == "location") {
        let (kind, pattern) = parse_modifier(inner);
        let nested = !around.is_empty();
        let (kind, pattern) = match kind {
            LocationKind::Regex => {
                let limited = match outer.expression {
                    Some(outer) => intersection(outer, &pattern),
                    None => limit_to_prefix(prefix, &pattern),
                };
                let limited = limited.unwrap_or(pattern);
                let kind = if nested {
                    LocationKind::NestedRegex
                } else {
                    LocationKind::Regex
                };
                (kind, limited)
            }
            // No expressions outside of a firm location are tried for what is within it.
            LocationKind::Prefix if is_firm => (LocationKind::PrefixNoRegex, pattern),
            kind => (kind, pattern),
        };
        let within = [around, &[inner]].concat();
        let own = match kind {
            LocationKind::Exact | LocationKind::PrefixNoRegex | LocationKind::Prefix => {
                pattern.clone()
            }
            _ => prefix.to_owned(),
        };
        let is_regex = matches!(kind, LocationKind::Regex | LocationKind::NestedRegex);
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
            is_no_regex: is_firm || kind == LocationKind::PrefixNoRegex,
            expression: is_regex.then_some(pattern.as_str()),
        };
        collect_locations(inner, &within, outer, all);
    }
}

fn parse_modifier(block: &Directive) -> (LocationKind, String) {
    let first = block.arg(0);
    if block.args.len() > 1 {
        let pattern = block.arg(1).to_owned();
        return match first {
            "=" => (LocationKind::Exact, pattern),
            "^~" => (LocationKind::PrefixNoRegex, pattern),
            "~" => (LocationKind::Regex, pattern),
            "~*" => (LocationKind::Regex, format!("(?i){pattern}")),
            _ => (LocationKind::Named, pattern),
        };
    }
    // The mark may stand at the pattern without a space.
    for (mark, kind) in [
        ("=", LocationKind::Exact),
        ("^~", LocationKind::PrefixNoRegex),
    ] {
        if let Some(pattern) = first.strip_prefix(mark) {
            return (kind, pattern.to_owned());
        }
    }
    if let Some(pattern) = first.strip_prefix("~*") {
        return (LocationKind::Regex, format!("(?i){pattern}"));
    }
    if let Some(pattern) = first.strip_prefix('~') {
        return (LocationKind::Regex, pattern.to_owned());
    }
    match first.starts_with('/') {
        true => (LocationKind::Prefix, first.to_owned()),
        false => (LocationKind::Named, first.to_owned()),
    }
}
