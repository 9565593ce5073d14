//! The requests that a rule applies to: paths and conditions, as Howdah's configuration expresses them.

use crate::directive::SourceLine;
use crate::target::{TomlTable, TomlValue};

/// The URL paths that a rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathMatch {
    /// Every path.
    #[default]
    All,
    /// Exactly this path.
    Path(String),
    /// Paths with this prefix.
    Prefix(String),
    /// Paths that match a regular expression.
    Regex(String),
}

impl PathMatch {
    /// Returns a match for paths that begin with the text, whether or not it ends at a segment boundary, as nginx
    /// matches prefixes.
    pub fn text_prefix(text: &str) -> PathMatch {
        match text {
            "" | "/" => PathMatch::All,
            _ if text.ends_with('/') => PathMatch::Prefix(text.to_owned()),
            _ => PathMatch::Regex(format!("^{}", regex::escape(text))),
        }
    }

    /// Returns a match for the path and everything below it, as Apache matches prefixes.
    pub fn segment_prefix(text: &str) -> PathMatch {
        match text.trim_end_matches('/') {
            "" => PathMatch::All,
            text => PathMatch::Prefix(text.to_owned()),
        }
    }

    /// Returns the key and value of the rule, or `None` if every path matches.
    pub fn pair(&self) -> Option<(String, TomlValue)> {
        let (key, text) = match self {
            PathMatch::All => return None,
            PathMatch::Path(path) => ("path", path),
            PathMatch::Prefix(path) => ("prefix", path),
            PathMatch::Regex(regex) => ("regex", regex),
        };
        Some((key.to_owned(), TomlValue::Text(text.clone())))
    }
}

/// The requests that a rule applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCondition {
    /// The paths.
    pub paths: PathMatch,
    /// The methods; empty for all.
    pub methods: Vec<String>,
    /// Conditions on `query`, `cookie`, `header` or `env`: kind, name and test.
    pub tests: Vec<(&'static str, String, String)>,
    /// The networks of the clients; empty for all.
    pub client_networks: Vec<String>,
    /// Whether the rule applies only if the path names no file.
    pub if_missing: bool,
    /// Requests that are excluded.
    pub exceptions: Vec<RuleCondition>,
}

impl RuleCondition {
    /// Returns all requests for these paths.
    pub fn paths(paths: PathMatch) -> RuleCondition {
        RuleCondition {
            paths,
            ..RuleCondition::default()
        }
    }

    /// Returns requests for paths that name no file.
    pub fn missing() -> RuleCondition {
        RuleCondition {
            if_missing: true,
            ..RuleCondition::default()
        }
    }

    /// Returns requests from these networks.
    pub fn clients(from: Vec<String>) -> RuleCondition {
        RuleCondition {
            client_networks: from,
            ..RuleCondition::default()
        }
    }

    /// Returns requests with one of these methods.
    pub fn methods(methods: Vec<String>) -> RuleCondition {
        RuleCondition {
            methods,
            ..RuleCondition::default()
        }
    }

    /// Returns requests that pass a test of `query`, `cookie`, `header` or `env`.
    pub fn test(
        kind: &'static str,
        name: impl Into<String>,
        test: impl Into<String>,
    ) -> RuleCondition {
        RuleCondition {
            tests: vec![(kind, name.into(), test.into())],
            ..RuleCondition::default()
        }
    }

    /// Returns requests over HTTPS.
    pub fn https() -> RuleCondition {
        RuleCondition::test("env", "HTTPS", "*")
    }

    /// Returns all requests except these.
    pub fn none_of(not: Vec<RuleCondition>) -> RuleCondition {
        RuleCondition {
            exceptions: not,
            ..RuleCondition::default()
        }
    }

    /// Returns all requests for these paths except the others.
    pub fn except(paths: PathMatch, others: Vec<PathMatch>) -> RuleCondition {
        RuleCondition {
            paths,
            exceptions: others.into_iter().map(RuleCondition::paths).collect(),
            ..RuleCondition::default()
        }
    }

    /// Adds another exception. An exception without conditions is ignored, because it would exclude everything.
    pub fn but(mut self, other: RuleCondition) -> RuleCondition {
        if other != RuleCondition::default() && !self.exceptions.contains(&other) {
            self.exceptions.push(other);
        }
        self
    }

    fn pairs(&self) -> Vec<(String, TomlValue)> {
        let mut pairs: Vec<(String, TomlValue)> = self.paths.pair().into_iter().collect();
        let mut texts = |key: &str, texts: &[String]| {
            if !texts.is_empty() {
                pairs.push((key.to_owned(), TomlValue::Texts(texts.to_vec())));
            }
        };
        texts("methods", &self.methods);
        texts("from", &self.client_networks);
        for kind in ["query", "cookie", "header", "env"] {
            let of = self.tests.iter().filter(|(known, ..)| *known == kind);
            let of: Vec<_> = of
                .map(|(_, name, test)| (name.clone(), test.clone()))
                .collect();
            if !of.is_empty() {
                pairs.push((kind.to_owned(), TomlValue::Pairs(of)));
            }
        }
        if self.if_missing {
            pairs.push(("if_missing".to_owned(), TomlValue::Bool(true)));
        }
        if !self.exceptions.is_empty() {
            let tables = self.exceptions.iter().map(RuleCondition::pairs).collect();
            pairs.push(("not".to_owned(), TomlValue::Tables(tables)));
        }
        pairs
    }

    /// Creates a rule for these requests with one action and a comment that names its place in the old configuration.
    pub fn rule(&self, action: &str, value: impl Into<TomlValue>, place: &SourceLine) -> TomlTable {
        let mut table = TomlTable::default();
        table.comment(place.to_string());
        for (key, value) in self.pairs() {
            table.set(&key, value, None);
        }
        table.set(action, value, None);
        table
    }
}
