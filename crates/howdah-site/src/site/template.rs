//! Targets of rules: text with variables. `$1`..`$9` and `${name}` are captures, `$0` the matched path, `$uri` the
//! cleaned path, `$query` the query string, `$request_uri` path and query as the client sent them, `$host` the host as the client named it;
//! `$$` is a dollar. Anything else after a dollar is a mistake that the configuration check reports.
//!
//! Decoded values are encoded again for their position: a path of a `Location`, or a query. Thus no capture can add a
//! parameter, end a header line or start another URL.

use std::fmt;

use super::pattern::{PathPattern, PatternMatch};
use crate::docroot::path::{encode_path, encode_query_value};

/// The target of a redirect or rewrite, parsed and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleTemplate {
    pieces: Vec<TemplatePiece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Text(Vec<u8>),
    Number(usize),
    Name(String),
    Uri,
    Query,
    RequestUri,
    Host,
}

/// Why a string is not a valid target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `$word` names no variable.
    UnknownVariable(String),
    /// The pattern has no such capture.
    NoSuchCapture(String),
    /// A control character, which is not allowed in a header or path.
    ControlCharacter,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::UnknownVariable(name) => write!(
                f,
                "`${name}` is not a variable; the variables are $0..$9, ${{capture}}, $uri, $query, $request_uri and $host, and $$ is a dollar sign"
            ),
            TemplateError::NoSuchCapture(name) => {
                write!(f, "`${name}`: the pattern does not have this capture")
            }
            TemplateError::ControlCharacter => {
                f.write_str("control characters are not allowed here")
            }
        }
    }
}

impl std::error::Error for TemplateError {}

/// The values of the variables, for one request.
#[derive(Debug)]
pub struct TemplateValues<'a> {
    /// The captures of the rule's pattern.
    pub captures: &'a PatternMatch<'a>,
    /// The request's path, decoded and cleaned.
    pub uri: &'a [u8],
    /// The current query, without `?`.
    pub query: Option<&'a [u8]>,
    /// Path and query as the client sent them, not decoded.
    pub request_uri: &'a [u8],
    /// The host as the client named it.
    pub host: &'a [u8],
}

impl RuleTemplate {
    /// Parses and checks a target.
    pub fn parse(text: &str) -> Result<RuleTemplate, TemplateError> {
        if text.bytes().any(|b| b.is_ascii_control()) {
            return Err(TemplateError::ControlCharacter);
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            push_text(&mut pieces, &rest[..dollar]);
            let after = &rest[dollar + 1..];
            rest = if let Some(after) = after.strip_prefix('$') {
                push_text(&mut pieces, "$");
                after
            } else if let Some(inner) = after.strip_prefix('{') {
                let Some(end) = inner.find('}') else {
                    return Err(TemplateError::UnknownVariable(after.to_owned()));
                };
                pieces.push(variable(&inner[..end], true)?);
                &inner[end + 1..]
            } else {
                let end = if after.starts_with(|c: char| c.is_ascii_digit()) {
                    1
                } else {
                    after
                        .find(|c: char| c != '_' && !c.is_ascii_alphabetic())
                        .unwrap_or(after.len())
                };
                pieces.push(variable(&after[..end], false)?);
                &after[end..]
            };
        }
        push_text(&mut pieces, rest);
        Ok(RuleTemplate { pieces })
    }

    /// Checks that every capture in the template exists in `pattern`.
    pub fn check(&self, pattern: &PathPattern) -> Result<(), TemplateError> {
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Number(number) if *number > pattern.capture_count() => {
                    return Err(TemplateError::NoSuchCapture(number.to_string()));
                }
                TemplatePiece::Name(name) if !pattern.has_capture(name) => {
                    return Err(TemplateError::NoSuchCapture(format!("{{{name}}}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn pieces(&self) -> &[TemplatePiece] {
        &self.pieces
    }

    /// Returns a variable as it is written in a template.
    pub(super) fn variable_text(piece: &TemplatePiece) -> String {
        let alone = RuleTemplate {
            pieces: vec![piece.clone()],
        };
        alone.to_string()
    }

    /// Returns the text before the first variable.
    pub fn literal_start(&self) -> &[u8] {
        match self.pieces.first() {
            Some(TemplatePiece::Text(text)) => text,
            _ => b"",
        }
    }

    /// Returns the target of a rewrite or of `try_files`, with its variables replaced: the decoded path, and the query
    /// if the target has one.
    pub fn expand_target(&self, values: &TemplateValues<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut path = Vec::new();
        let mut query: Option<Vec<u8>> = None;
        for piece in &self.pieces {
            match (piece, &mut query) {
                (TemplatePiece::Text(text), None) => match text.iter().position(|b| *b == b'?') {
                    Some(at) => {
                        path.extend_from_slice(&text[..at]);
                        query = Some(text[at + 1..].to_vec());
                    }
                    None => path.extend_from_slice(text),
                },
                (TemplatePiece::Text(text), Some(query)) => query.extend_from_slice(text),
                (piece, None) => path.extend_from_slice(value(piece, values)),
                (piece, Some(query)) => push_in_query(piece, values, query),
            }
        }
        (path, query)
    }

    /// Returns the value of a `Location`: text as written, captures and paths percent-encoded.
    pub fn expand_location(&self, values: &TemplateValues<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut in_query = false;
        for piece in &self.pieces {
            match piece {
                TemplatePiece::Text(text) => {
                    in_query |= text.contains(&b'?');
                    out.extend_from_slice(text);
                }
                piece if in_query => push_in_query(piece, values, &mut out),
                // These are raw by definition; the request parser has checked them for control characters.
                TemplatePiece::RequestUri | TemplatePiece::Query | TemplatePiece::Host => {
                    out.extend_from_slice(value(piece, values));
                }
                piece => encode_path(value(piece, values), &mut out),
            }
        }
        out
    }
}

/// Writes the template as in the configuration.
impl fmt::Display for RuleTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pieces.iter().try_for_each(|piece| match piece {
            TemplatePiece::Text(text) => {
                f.write_str(&String::from_utf8_lossy(text).replace('$', "$$"))
            }
            TemplatePiece::Number(number) => write!(f, "${number}"),
            TemplatePiece::Name(name) => write!(f, "${{{name}}}"),
            TemplatePiece::Uri => f.write_str("$uri"),
            TemplatePiece::Query => f.write_str("$query"),
            TemplatePiece::RequestUri => f.write_str("$request_uri"),
            TemplatePiece::Host => f.write_str("$host"),
        })
    }
}

fn push_text(pieces: &mut Vec<TemplatePiece>, text: &str) {
    if let Some(TemplatePiece::Text(last)) = pieces.last_mut() {
        last.extend_from_slice(text.as_bytes());
    } else if !text.is_empty() {
        pieces.push(TemplatePiece::Text(text.as_bytes().to_vec()));
    }
}

fn variable(name: &str, braces: bool) -> Result<TemplatePiece, TemplateError> {
    Ok(match name {
        "uri" => TemplatePiece::Uri,
        "query" | "args" => TemplatePiece::Query,
        "request_uri" => TemplatePiece::RequestUri,
        "host" => TemplatePiece::Host,
        _ => match name.parse() {
            Ok(number) => TemplatePiece::Number(number),
            Err(_) if braces && !name.is_empty() => TemplatePiece::Name(name.to_owned()),
            Err(_) => return Err(TemplateError::UnknownVariable(name.to_owned())),
        },
    })
}

fn value<'a>(piece: &TemplatePiece, values: &TemplateValues<'a>) -> &'a [u8] {
    match piece {
        TemplatePiece::Text(_) => b"",
        TemplatePiece::Number(number) => values.captures.capture(*number),
        TemplatePiece::Name(name) => values.captures.named_capture(name),
        TemplatePiece::Uri => values.uri,
        TemplatePiece::Query => values.query.unwrap_or(b""),
        TemplatePiece::RequestUri => values.request_uri,
        TemplatePiece::Host => values.host,
    }
}

/// Appends the value of a variable to a query. The query string is already encoded; all other values are encoded here.
fn push_in_query(piece: &TemplatePiece, values: &TemplateValues<'_>, out: &mut Vec<u8>) {
    match piece {
        TemplatePiece::Query => out.extend_from_slice(value(piece, values)),
        piece => encode_query_value(value(piece, values), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str, pattern: &PathPattern, path: &str) -> (String, Option<String>, String) {
        let template = RuleTemplate::parse(text).unwrap();
        template.check(pattern).unwrap();
        assert_eq!(template.to_string(), text);
        let captures = pattern.captures(path.as_bytes()).unwrap().unwrap();
        let values = TemplateValues {
            captures: &captures,
            uri: path.as_bytes(),
            query: Some(b"q=1%20"),
            request_uri: b"/raw%20?q=1%20",
            host: b"h.example",
        };
        let (target, query) = template.expand_target(&values);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (
            text(target),
            query.map(text),
            text(template.expand_location(&values)),
        )
    }

    #[test]
    fn variables_have_the_values_that_the_documents_name() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/variables.md");
        let page = std::fs::read_to_string(path).unwrap();
        let section = page
            .split("\n## ")
            .find(|part| part.starts_with("In targets"));
        let pattern = PathPattern::Prefix(b"/old".to_vec());
        let captures = pattern.captures("/old/café".as_bytes()).unwrap().unwrap();
        let values = TemplateValues {
            captures: &captures,
            uri: "/old/café".as_bytes(),
            query: Some(b"b=c"),
            request_uri: b"/old/caf%C3%A9?b=c",
            host: b"shop.test",
        };
        let mut documented = Vec::new();
        for row in section
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| `$"))
        {
            let mut cells = row.split(" | ").map(|cell| cell.split('`').nth(1));
            let name = cells.next().unwrap().unwrap();
            documented.push(name);
            let template = RuleTemplate::parse(name).unwrap();
            if let [piece] = &template.pieces[..]
                && let Some(expected) = cells.next().unwrap()
            {
                let value = value(piece, &values);
                assert_eq!(String::from_utf8_lossy(value), expected, "{name}");
            }
        }
        let all = "$request_uri $uri $query $host $0 $1 ${name} $$";
        assert_eq!(documented.join(" "), all);
    }

    #[test]
    fn template_captures_are_encoded_for_their_position() {
        let pattern = PathPattern::prefix("/w/").unwrap();
        assert_eq!(
            expand("/index.php?title=$1&x=2", &pattern, "/w/A&b=c d\r"),
            (
                "/index.php".into(),
                Some("title=A%26b%3Dc%20d%0D&x=2".into()),
                "/index.php?title=A%26b%3Dc%20d%0D&x=2".into()
            )
        );
        assert_eq!(
            expand("/new/$1", &pattern, "/w/a?b\r\nc"),
            ("/new/a?b\r\nc".into(), None, "/new/a%3Fb%0D%0Ac".into())
        );
    }

    #[test]
    fn template_variables_are_replaced() {
        let pattern = PathPattern::regex("^/(?<lang>[a-z]{2})/(.*)$").unwrap();
        let (_, _, location) = expand("https://$host/${lang}-$2$$?$query", &pattern, "/de/x");
        assert_eq!(location, "https://h.example/de-x$?q=1%20");
        let (_, _, location) = expand("https://www.example$request_uri", &pattern, "/de/x");
        assert_eq!(location, "https://www.example/raw%20?q=1%20");
        let (target, query, _) = expand("/i.php?$query&p=$uri", &pattern, "/de/x");
        assert_eq!(
            (&*target, query.as_deref()),
            ("/i.php", Some("q=1%20&p=/de/x"))
        );
    }

    #[test]
    fn template_mistakes_are_named() {
        use TemplateError::*;
        assert_eq!(
            RuleTemplate::parse("/$foo"),
            Err(UnknownVariable("foo".into()))
        );
        assert_eq!(
            RuleTemplate::parse("/${foo"),
            Err(UnknownVariable("{foo".into()))
        );
        assert_eq!(RuleTemplate::parse("/$"), Err(UnknownVariable("".into())));
        assert_eq!(RuleTemplate::parse("/a\nb"), Err(ControlCharacter));
        let pattern = PathPattern::glob("/*/x").unwrap();
        let check = |text| RuleTemplate::parse(text).unwrap().check(&pattern);
        assert_eq!(check("/$1"), Ok(()));
        assert_eq!(check("/$2"), Err(NoSuchCapture("2".into())));
        assert_eq!(check("/${x}"), Err(NoSuchCapture("{x}".into())));
    }
}
