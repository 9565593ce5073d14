//! What a rule is for: paths and conditions, as Howdah's configuration has them.

use crate::directive::SourceLine;
use crate::target::{TomlTable, TomlValue};

/// Which URL paths a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PathMatch {
    /// Every path.
    #[default]
    All,
    /// This path alone.
    Path(String),
    /// What begins so; it ends with a slash.
    Prefix(String),
    /// A regular expression.
    Regex(String),
}

impl PathMatch {
    /// What begins with the text, whole segments or not, as nginx means it.
    pub fn text_prefix(text: &str) -> PathMatch {
        match text {
            "" | "/" => PathMatch::All,
            _ if text.ends_with('/') => PathMatch::Prefix(text.to_owned()),
            _ => PathMatch::Regex(format!("^{}", regex::escape(text))),
        }
    }

    /// The path and what is below it, as Apache means it.
    pub fn segment_prefix(text: &str) -> PathMatch {
        match text.trim_end_matches('/') {
            "" => PathMatch::All,
            text => PathMatch::Prefix(text.to_owned()),
        }
    }

    /// Its key and value.
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

/// The requests that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleCondition {
    /// Their paths.
    pub paths: PathMatch,
    /// Their methods; none: all.
    pub methods: Vec<String>,
    /// `query`, `cookie`, `header`, `env`: names and tests.
    pub tests: Vec<(&'static str, String, String)>,
    /// The clients' networks; none: all.
    pub client_networks: Vec<String>,
    /// No file is there.
    pub if_missing: bool,
    /// None of these.
    pub exceptions: Vec<RuleCondition>,
}

impl RuleCondition {
    /// All requests for these paths.
    pub fn paths(paths: PathMatch) -> RuleCondition {
        RuleCondition {
            paths,
            ..RuleCondition::default()
        }
    }

    /// Requests for what is no file.
    pub fn missing() -> RuleCondition {
        RuleCondition {
            if_missing: true,
            ..RuleCondition::default()
        }
    }

    /// Requests from these networks.
    pub fn clients(from: Vec<String>) -> RuleCondition {
        RuleCondition {
            client_networks: from,
            ..RuleCondition::default()
        }
    }

    /// Requests with one of these methods.
    pub fn methods(methods: Vec<String>) -> RuleCondition {
        RuleCondition {
            methods,
            ..RuleCondition::default()
        }
    }

    /// Requests that pass a test of `query`, `cookie`, `header` or `env`.
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

    /// Requests by HTTPS.
    pub fn https() -> RuleCondition {
        RuleCondition::test("env", "HTTPS", "*")
    }

    /// All requests but these.
    pub fn none_of(not: Vec<RuleCondition>) -> RuleCondition {
        RuleCondition {
            exceptions: not,
            ..RuleCondition::default()
        }
    }

    /// All requests for these paths, others excepted.
    pub fn except(paths: PathMatch, others: Vec<PathMatch>) -> RuleCondition {
        RuleCondition {
            paths,
            exceptions: others.into_iter().map(RuleCondition::paths).collect(),
            ..RuleCondition::default()
        }
    }

    /// With another exception; one that says nothing would except everything.
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

    /// A rule for these requests with one action, and the place that it comes from.
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
