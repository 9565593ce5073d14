//! `location` blocks, in nginx's order of precedence.

use howdah_htaccess::rule_expression::RuleExpression;

use crate::directive::Directive;
use crate::expression::{compile_path, intersection, limit_to_prefix, may_match};
use crate::rule_condition::PathMatch;

/// How a location is selected, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LocationKind {
    /// `location = /x`
    Exact,
    /// `location ~ x` within another location, which is tried before those outside.
    NestedRegex,
    /// `location ^~ /x`: regular expressions are not tried.
    PrefixNoRegex,
    /// `location ~ x`
    Regex,
    /// `location /x`
    Prefix,
    /// `location @x`, and locations with an unknown modifier.
    Named,
}

/// A location, extracted from the nesting of blocks.
#[derive(Clone, Debug)]
pub struct Location<'a> {
    /// The `location` directive with its block.
    pub block: &'a Directive,
    /// The location whose only line leads to `block`, which is then that of a named location.
    pub entrance: Option<&'a Directive>,
    /// The enclosing locations, the outermost first.
    pub around: Vec<&'a Directive>,
    /// How the location is selected.
    pub kind: LocationKind,
    /// The prefix, the name or the expression.
    pub pattern: String,
    /// The prefix that all its paths have; empty for an expression that is not nested.
    pub prefix: String,
    /// The compiled expression, or the reason why rules do not support it.
    expression: Option<Result<RuleExpression, String>>,
}

impl Location<'_> {
    /// Returns the paths that the location's pattern matches, including those that other locations take from it.
    ///
    /// # Errors
    /// Returns a sentence if rules cannot express them.
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
            LocationKind::Named => Err("this location has only a name and no path".to_owned()),
        }
    }

    /// Returns whether this is `location /`, which takes everything that no other location takes.
    pub fn is_catch_all(&self) -> bool {
        self.kind == LocationKind::Prefix && self.pattern == "/"
    }

    /// Returns whether the location's pattern matches a path, even if another location takes precedence there.
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

/// Returns all locations of a server, in nginx's order of precedence.
pub fn ordered_locations(server: &Directive) -> Vec<Location<'_>> {
    let mut all = Vec::new();
    collect_locations(server, &[], Outer::default(), &mut all);
    enter_named_locations(&mut all);
    // Expressions keep the order of the file; among prefixes the longest takes precedence.
    all.sort_by_key(|location| {
        let length = match location.kind {
            LocationKind::PrefixNoRegex | LocationKind::Prefix => location.pattern.len(),
            _ => 0,
        };
        (location.kind, std::cmp::Reverse(length))
    });
    all
}

/// Replaces the block of a location that always leads to a named location by the block of that one, as in
/// `location ~ \.php$ { try_files /none @php; }`: nginx finds no file of that name.
fn enter_named_locations(all: &mut [Location<'_>]) {
    let named: Vec<_> = all
        .iter()
        .filter(|location| location.kind == LocationKind::Named)
        .map(|location| (location.pattern.clone(), location.block))
        .collect();
    for location in all {
        let [line] = location.block.inner() else {
            continue;
        };
        let Some((last, before)) = line.args.split_last() else {
            continue;
        };
        let is_constant = |name: &String| name.starts_with('/') && !name.contains('$');
        if line.name != "try_files" || before.is_empty() || !before.iter().all(is_constant) {
            continue;
        }
        if let Some((_, block)) = named.iter().find(|(name, _)| name == last) {
            location.entrance = Some(location.block);
            location.around.push(location.block);
            location.block = block;
        }
    }
}

/// The paths of the enclosing location.
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
            // Regular expressions outside a `^~` location are not tried for the locations in it.
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
            entrance: None,
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
    // The modifier may precede the pattern without a space.
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

#[cfg(test)]
mod tests {
    use crate::{ConfigFormat, import_text};

    #[test]
    fn location_that_only_leads_to_a_named_one_runs_its_scripts() {
        let text = "http { server { listen 80; server_name a.test; root /srv/a; index index.php;\n\
            location ~ \\.php$ { try_files /none.htm @php; }\n\
            location @php { try_files $uri =404; fastcgi_pass unix:/run/php/a.sock;\n\
            fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }\n\
            location /cgi-bin/ { fastcgi_pass unix:/run/fcgiwrap.socket; } } }";
        let import = import_text(ConfigFormat::Nginx, text).unwrap();
        let found = &import.configuration;
        assert!(
            found.contains("fastcgi = [\"unix:/run/php/a.sock\"]"),
            "{found}"
        );
        let site = &found[found.find("[[site]]").unwrap()..];
        let pool = site.lines().find(|line| line.starts_with("pool = "));
        assert!(
            pool.is_none_or(|pool| !pool.contains("fcgiwrap")),
            "{found}"
        );
        assert!(!import.list.contains("none.htm"), "{}", import.list);
    }
}
