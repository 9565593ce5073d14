//! The checks that decide whether a response is good. A length that differs from that of the first response is not a
//! failure, because dynamic pages vary. [`crate::response`] checks whether a response is complete.

use regex::bytes::Regex;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::BenchError;

/// The maximum length of a body that is buffered for a check, in bytes. A longer body fails the check.
pub const MAX_CHECKED_BODY_BYTES: usize = 16 << 20;

/// The conditions for a good response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ResponseChecks {
    /// The expected statuses.
    pub status: StatusSet,
    /// The checks of the body, all of which must pass. If there are none, the body is ignored.
    #[serde(default)]
    pub body: Vec<BodyCheck>,
}

/// A set of statuses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusSet(Vec<(u16, u16)>);

impl Default for StatusSet {
    fn default() -> Self {
        StatusSet(vec![(200, 299)])
    }
}

impl StatusSet {
    /// Parses `200`, `2xx`, `200-204`, and lists of them: `200,304`.
    pub fn parse(text: &str) -> Result<StatusSet, BenchError> {
        let bad = || {
            BenchError::Impossible(format!(
                "`{text}` is not a set of statuses: expected 200, 2xx, 200-204 or a list such as 200,304"
            ))
        };
        let status = |text: &str| match text.parse::<u16>() {
            Ok(status @ 200..=599) => Ok(status),
            _ => Err(bad()),
        };
        let mut ranges = Vec::new();
        for part in text.split(',').map(str::trim) {
            let range = match (part.strip_suffix("xx"), part.split_once('-')) {
                (Some(class @ ("2" | "3" | "4" | "5")), _) => {
                    let class = u16::from(class.as_bytes()[0] - b'0') * 100;
                    (class, class + 99)
                }
                (Some(_), _) => return Err(bad()),
                (None, Some((low, high))) => (status(low)?, status(high)?),
                (None, None) => (status(part)?, status(part)?),
            };
            if range.0 > range.1 {
                return Err(bad());
            }
            ranges.push(range);
        }
        Ok(StatusSet(ranges))
    }

    /// Returns whether the status is in the set.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.0
            .iter()
            .any(|(low, high)| (*low..=*high).contains(&status))
    }
}

impl std::fmt::Display for StatusSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (low, high)) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match (low, high) {
                (low, high) if low == high => write!(f, "{low}")?,
                (low, high) if low % 100 == 0 && *high == low + 99 => write!(f, "{}xx", low / 100)?,
                _ => write!(f, "{low}-{high}")?,
            }
        }
        Ok(())
    }
}

/// One check of the body.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyCheck {
    /// The body contains this text.
    Contains(String),
    /// The body does not contain this text (an error page sent as 200).
    ContainsNot(String),
    /// The regular expression matches somewhere in the body.
    Matches(BodyPattern),
    /// The body is JSON, and the value at this pointer (RFC 6901) exists and, if `equals` is given,
    /// equals it.
    Json {
        /// The pointer, as `/items/0/name`; empty for the whole document.
        pointer: String,
        /// The value at the pointer; `None` accepts any value.
        equals: Option<serde_json::Value>,
    },
}

impl BodyCheck {
    /// Returns whether the body passes the check.
    pub fn passes(&self, body: &[u8]) -> bool {
        match self {
            BodyCheck::Contains(text) => memchr::memmem::find(body, text.as_bytes()).is_some(),
            BodyCheck::ContainsNot(text) => memchr::memmem::find(body, text.as_bytes()).is_none(),
            BodyCheck::Matches(pattern) => pattern.0.is_match(body),
            BodyCheck::Json { pointer, equals } => {
                let parsed: Result<serde_json::Value, _> = serde_json::from_slice(body);
                let Ok(value) = parsed else {
                    return false;
                };
                match (value.pointer(pointer), equals) {
                    (Some(found), Some(expected)) => found == expected,
                    (Some(_), None) => true,
                    (None, _) => false,
                }
            }
        }
    }
}

/// A regular expression, represented in JSON by its text.
#[derive(Clone, Debug)]
pub struct BodyPattern(Regex);

impl BodyPattern {
    /// Compiles the expression. Fails with [`BenchError::BadCheck`] if it is invalid.
    pub fn new(text: &str) -> Result<BodyPattern, BenchError> {
        Regex::new(text)
            .map(BodyPattern)
            .map_err(|e| BenchError::BadCheck(format!("`{text}` is not a regular expression: {e}")))
    }

    /// Returns the expression as it was written.
    pub fn text(&self) -> &str {
        self.0.as_str()
    }
}

impl Serialize for BodyPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de> Deserialize<'de> for BodyPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BodyPattern::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_sets_are_parsed() {
        let set = StatusSet::parse("2xx, 304,401-403").unwrap();
        for (status, expected) in [
            (200, true),
            (299, true),
            (300, false),
            (304, true),
            (402, true),
        ] {
            assert_eq!(set.contains(status), expected, "{status}");
        }
        assert_eq!(set.to_string(), "2xx,304,401-403");
        for bad in ["", "99", "1xx", "xx", "204-200", "abc", "200,", "600"] {
            let error = StatusSet::parse(bad).unwrap_err();
            assert!(
                error.to_string().contains("is not a set of statuses"),
                "{error}"
            );
        }
    }

    #[test]
    fn body_checks_pass_and_fail() {
        let body = br#"{"ok":true,"items":[{"name":"x"}]}"#;
        let json = |pointer: &str, equals| BodyCheck::Json {
            pointer: pointer.to_owned(),
            equals,
        };
        for (check, expected) in [
            (BodyCheck::Contains("\"ok\"".to_owned()), true),
            (BodyCheck::ContainsNot("Fatal error".to_owned()), true),
            (BodyCheck::Matches(BodyPattern::new("na.e").unwrap()), true),
            (BodyCheck::Matches(BodyPattern::new("^x").unwrap()), false),
            (json("/items/0/name", Some("x".into())), true),
            (json("/items/0/name", Some("y".into())), false),
            (json("/items/1", None), false),
            (json("", None), true),
        ] {
            assert_eq!(check.passes(body), expected, "{check:?}");
        }
        assert!(!json("", None).passes(b"<html>"));
        assert!(BodyPattern::new("(").is_err());
    }
}
