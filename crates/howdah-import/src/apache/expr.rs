//! Apache's expressions (`ap_expr`), as far as rules can say them: comparisons of variables, joined.

use super::condition::{Asked, Test, test};
use super::requirement::Formula;
use crate::when::When;

/// How deeply parentheses may be nested.
const DEEPEST: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// `%{NAME}`
    Variable(String),
    /// A text in quotes, or a number.
    Text(String),
    /// `m#…#` or `/…/`, with its flags.
    Expression(String),
    /// An operator or a word.
    Word(String),
}

/// An expression as a formula.
///
/// # Errors
/// Rules cannot say it: a sentence.
pub fn condition(text: &str) -> Result<Formula, String> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        next: 0,
    };
    let found = parser.either(0)?;
    match parser.next == parser.tokens.len() {
        true => Ok(found),
        false => Err(UNKNOWN.to_owned()),
    }
}

const UNKNOWN: &str = "conditions of rules in place of this expression (docs/access.md)";

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn word(&mut self, words: &[&str]) -> bool {
        let found = matches!(self.tokens.get(self.next), Some(Token::Word(word)) if words.contains(&word.as_str()));
        self.next += usize::from(found);
        found
    }

    fn either(&mut self, depth: usize) -> Result<Formula, String> {
        let mut parts = vec![self.all(depth)?];
        while self.word(&["||"]) {
            parts.push(self.all(depth)?);
        }
        Ok(Formula::Any(parts))
    }

    fn all(&mut self, depth: usize) -> Result<Formula, String> {
        let mut parts = vec![self.one(depth)?];
        while self.word(&["&&"]) {
            parts.push(self.one(depth)?);
        }
        Ok(Formula::All(parts))
    }

    fn one(&mut self, depth: usize) -> Result<Formula, String> {
        if depth > DEEPEST {
            return Err(UNKNOWN.to_owned());
        }
        if self.word(&["!"]) {
            return Ok(Formula::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.word(&["("]) {
            let inner = self.either(depth + 1)?;
            return match self.word(&[")"]) {
                true => Ok(inner),
                false => Err(UNKNOWN.to_owned()),
            };
        }
        if self.word(&["true"]) {
            return Ok(Formula::Yes);
        }
        if self.word(&["false"]) {
            return Ok(Formula::No);
        }
        let rest = &self.tokens[self.next..];
        let (found, taken) = match rest {
            [Token::Word(is), Token::Text(network), ..] if is == "-R" => {
                (Asked::Is(client(network)?), 2)
            }
            [
                Token::Variable(name),
                Token::Word(is),
                Token::Text(network),
                ..,
            ] if is == "-ipmatch" && name == "REMOTE_ADDR" => (Asked::Is(client(network)?), 3),
            [
                Token::Variable(name),
                Token::Word(is),
                Token::Text(text),
                ..,
            ] => {
                let equal = test(name, &Test::Equals(text.clone(), false))?;
                match is.as_str() {
                    "==" | "=" | "-eq" => (equal, 3),
                    "!=" | "-ne" => (equal.not(), 3),
                    _ => return Err(UNKNOWN.to_owned()),
                }
            }
            [
                Token::Variable(name),
                Token::Word(is),
                Token::Expression(text),
                ..,
            ] => {
                let matches = test(name, &Test::Matches(text.clone()))?;
                match is.as_str() {
                    "=~" => (matches, 3),
                    "!~" => (matches.not(), 3),
                    _ => return Err(UNKNOWN.to_owned()),
                }
            }
            _ => return Err(UNKNOWN.to_owned()),
        };
        self.next += taken;
        match found {
            Asked::Always(true) => Ok(Formula::Yes),
            Asked::Always(false) => Ok(Formula::No),
            Asked::Is(when) => Ok(Formula::Is(when)),
            Asked::IsNot(when) => Ok(Formula::Not(Box::new(Formula::Is(when)))),
            Asked::Exists(_) => Err(UNKNOWN.to_owned()),
        }
    }
}

fn client(text: &str) -> Result<When, String> {
    let network = super::legacy::network(text).ok_or(UNKNOWN)?;
    Ok(When::clients(vec![network]))
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let quoted = |after: &str, end: char| -> Option<(String, usize)> {
            let at = after.find(end)?;
            Some((after[..at].to_owned(), at + end.len_utf8()))
        };
        let (token, taken) = if let Some(inner) = rest.strip_prefix("%{") {
            let (name, taken) = quoted(inner, '}').ok_or(UNKNOWN)?;
            (Token::Variable(name), taken + 2)
        } else if matches!(first, '"' | '\'') {
            let (text, taken) = quoted(after, first).ok_or(UNKNOWN)?;
            if text.contains("%{") || text.contains('\\') {
                return Err(UNKNOWN.to_owned());
            }
            (Token::Text(text), taken + 1)
        } else if first == '/'
            || first == 'm' && after.starts_with(['#', '/', '|', ',', ';', '!', '%', '@'])
        {
            let (mark, begin) = match first {
                '/' => ('/', 1),
                _ => (after.chars().next().unwrap_or('/'), 2),
            };
            let (text, taken) = quoted(&rest[begin..], mark).ok_or(UNKNOWN)?;
            let flags = rest[begin + taken..]
                .chars()
                .take_while(char::is_ascii_alphabetic)
                .count();
            let any_case = rest[begin + taken..begin + taken + flags].contains('i');
            let text = if any_case {
                format!("(?i){text}")
            } else {
                text
            };
            (Token::Expression(text), begin + taken + flags)
        } else if let Some(word) = ["&&", "||", "==", "!=", "=~", "!~"]
            .iter()
            .find(|w| rest.starts_with(**w))
        {
            (Token::Word((*word).to_owned()), 2)
        } else if matches!(first, '(' | ')' | '!' | '=') {
            (Token::Word(first.to_string()), 1)
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "()!=&|'\"".contains(c));
            let end = end.unwrap_or(rest.len());
            if end == 0 {
                return Err(UNKNOWN.to_owned());
            }
            let word = &rest[..end];
            let token = match word.chars().all(|c| c.is_ascii_digit()) {
                true => Token::Text(word.to_owned()),
                false => Token::Word(word.to_owned()),
            };
            (token, end)
        };
        tokens.push(token);
        rest = rest[taken..].trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_far_as_rules_go() {
        let demands = |text: &str| condition(text).map(|formula| formula.demands());
        for text in [
            "%{HTTPS} == 'on'",
            "%{REQUEST_METHOD} == 'GET' || -R '10.0.0.0/8'",
            "!(%{HTTP_USER_AGENT} =~ /bot/i)",
            "%{HTTP_HOST} != 'a.org' && %{REMOTE_ADDR} -ipmatch '192.0.2.0/24'",
            "%{SERVER_PORT} -eq 443",
        ] {
            assert!(
                matches!(demands(text), Ok(Ok(_))),
                "{text}: {:?}",
                demands(text)
            );
        }
        for text in [
            "%{TIME_HOUR} -gt 9",
            "-f '/x'",
            "%{HTTPS} ==",
            "'a' == 'a'",
            "",
            "(",
            "m#",
            "é",
            "%{HTTP_HOST} == '%{SERVER_NAME}'",
        ] {
            assert!(condition(text).is_err(), "{text}");
        }
    }
}
