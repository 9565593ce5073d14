//! What a rule is for: paths and conditions, as Howdah's configuration has them.

use crate::directive::Place;
use crate::target::{Table, Value};

/// Which URL paths a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Match {
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

impl Match {
    /// What begins with the text, whole segments or not, as nginx means it.
    pub fn beginning(text: &str) -> Match {
        match text {
            "" | "/" => Match::All,
            _ if text.ends_with('/') => Match::Prefix(text.to_owned()),
            _ => Match::Regex(format!("^{}", regex::escape(text))),
        }
    }

    /// The path and what is below it, as Apache means it.
    pub fn segments(text: &str) -> Match {
        match text.trim_end_matches('/') {
            "" => Match::All,
            text => Match::Prefix(text.to_owned()),
        }
    }

    /// Its key and value.
    pub fn pair(&self) -> Option<(String, Value)> {
        let (key, text) = match self {
            Match::All => return None,
            Match::Path(path) => ("path", path),
            Match::Prefix(path) => ("prefix", path),
            Match::Regex(regex) => ("regex", regex),
        };
        Some((key.to_owned(), Value::Text(text.clone())))
    }
}

/// The requests that a rule is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Their paths.
    pub paths: Match,
    /// Their methods; none: all.
    pub methods: Vec<String>,
    /// `query`, `cookie`, `header`, `env`: names and tests.
    pub tests: Vec<(&'static str, String, String)>,
    /// The clients' networks; none: all.
    pub from: Vec<String>,
    /// No file is there.
    pub missing: bool,
    /// None of these.
    pub not: Vec<When>,
}

impl When {
    /// All requests for these paths.
    pub fn paths(paths: Match) -> When {
        When {
            paths,
            ..When::default()
        }
    }

    /// Requests for what is no file.
    pub fn missing() -> When {
        When {
            missing: true,
            ..When::default()
        }
    }

    /// Requests from these networks.
    pub fn clients(from: Vec<String>) -> When {
        When {
            from,
            ..When::default()
        }
    }

    /// Requests with one of these methods.
    pub fn methods(methods: Vec<String>) -> When {
        When {
            methods,
            ..When::default()
        }
    }

    /// Requests that pass a test of `query`, `cookie`, `header` or `env`.
    pub fn test(kind: &'static str, name: impl Into<String>, test: impl Into<String>) -> When {
        When {
            tests: vec![(kind, name.into(), test.into())],
            ..When::default()
        }
    }

    /// Requests by HTTPS.
    pub fn https() -> When {
        When::test("env", "HTTPS", "*")
    }

    /// All requests but these.
    pub fn none_of(not: Vec<When>) -> When {
        When {
            not,
            ..When::default()
        }
    }

    /// All requests for these paths, others excepted.
    pub fn except(paths: Match, others: Vec<Match>) -> When {
        When {
            paths,
            not: others.into_iter().map(When::paths).collect(),
            ..When::default()
        }
    }

    /// With another exception; one that says nothing would except everything.
    pub fn but(mut self, other: When) -> When {
        if other != When::default() && !self.not.contains(&other) {
            self.not.push(other);
        }
        self
    }

    fn pairs(&self) -> Vec<(String, Value)> {
        let mut pairs: Vec<(String, Value)> = self.paths.pair().into_iter().collect();
        let mut texts = |key: &str, texts: &[String]| {
            if !texts.is_empty() {
                pairs.push((key.to_owned(), Value::Texts(texts.to_vec())));
            }
        };
        texts("methods", &self.methods);
        texts("from", &self.from);
        for kind in ["query", "cookie", "header", "env"] {
            let of = self.tests.iter().filter(|(known, ..)| *known == kind);
            let of: Vec<_> = of
                .map(|(_, name, test)| (name.clone(), test.clone()))
                .collect();
            if !of.is_empty() {
                pairs.push((kind.to_owned(), Value::Pairs(of)));
            }
        }
        if self.missing {
            pairs.push(("if_missing".to_owned(), Value::On(true)));
        }
        if !self.not.is_empty() {
            let tables = self.not.iter().map(When::pairs).collect();
            pairs.push(("not".to_owned(), Value::Tables(tables)));
        }
        pairs
    }

    /// A rule for these requests with one action, and the place that it comes from.
    pub fn rule(&self, action: &str, value: impl Into<Value>, place: &Place) -> Table {
        let mut table = Table::default();
        table.comment(place.to_string());
        for (key, value) in self.pairs() {
            table.set(&key, value, None);
        }
        table.set(action, value, None);
        table
    }
}
