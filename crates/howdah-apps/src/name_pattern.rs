//! Patterns for the names of cookies and parameters.

use serde::{Deserialize, Deserializer};

/// A pattern for names of cookies and parameters. In a file it is written as `name`, `prefix*`, `*suffix`,
/// `prefix{hex}` or `prefix{account}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Exactly this name.
    Exact(&'static str),
    /// All names with this prefix.
    Prefix(&'static str),
    /// All names with this suffix.
    Suffix(&'static str),
    /// This prefix followed by 32 hexadecimal digits, as in the cookies that Joomla, Drupal and WordPress name per
    /// site.
    HexAfter(&'static str),
    /// This prefix followed by capital letters and digits: the number of an account (`_ga_1ABC2DEF3G`). It does not
    /// match `_gallery_session`, which is an application's cookie.
    AccountAfter(&'static str),
}

impl NamePattern {
    /// Parses a pattern as the files write it. Returns `None` if it has a `*` or a brace at another position, or if it
    /// would match every name.
    pub fn parse(text: &'static str) -> Option<NamePattern> {
        let (pattern, name) = if let Some(prefix) = text.strip_suffix("{hex}") {
            (NamePattern::HexAfter(prefix), prefix)
        } else if let Some(prefix) = text.strip_suffix("{account}") {
            (NamePattern::AccountAfter(prefix), prefix)
        } else if let Some(prefix) = text.strip_suffix('*').filter(|name| !name.is_empty()) {
            (NamePattern::Prefix(prefix), prefix)
        } else if let Some(suffix) = text.strip_prefix('*').filter(|name| !name.is_empty()) {
            (NamePattern::Suffix(suffix), suffix)
        } else {
            (NamePattern::Exact(text), text)
        };
        let is_plain = !name.contains(['*', '{', '}']) && !text.is_empty();
        is_plain.then_some(pattern)
    }

    /// Returns whether the pattern matches `name`.
    pub fn matches(self, name: &[u8]) -> bool {
        match self {
            NamePattern::Exact(is) => name == is.as_bytes(),
            NamePattern::Prefix(start) => name.starts_with(start.as_bytes()),
            NamePattern::Suffix(end) => name.ends_with(end.as_bytes()),
            NamePattern::HexAfter(start) => name
                .strip_prefix(start.as_bytes())
                .is_some_and(|rest| rest.len() == 32 && rest.iter().all(u8::is_ascii_hexdigit)),
            NamePattern::AccountAfter(start) => {
                name.strip_prefix(start.as_bytes()).is_some_and(|rest| {
                    let capital = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
                    !rest.is_empty() && rest.iter().all(capital)
                })
            }
        }
    }
}

impl<'de: 'static> Deserialize<'de> for NamePattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NamePattern, D::Error> {
        let text = <&'static str>::deserialize(deserializer)?;
        NamePattern::parse(text).ok_or_else(|| {
            serde::de::Error::custom(format!(
                "`{text}` is not a pattern of names: expected `name`, `prefix*`, `*suffix`, `prefix{{hex}}` or `prefix{{account}}`"
            ))
        })
    }
}
