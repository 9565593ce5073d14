//! Translates Apache's expressions (`ap_expr`), as far as rules can express them: comparisons of variables, joined by
//! operators.

use super::condition::{TranslatedCondition, VariableTest, translate_test};
use super::requirement::AccessFormula;
use crate::rule_condition::RuleCondition;

/// The maximum nesting depth of parentheses.
const MAX_NESTING_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq)]
enum ExprToken {
    /// `%{NAME}`
    Variable(String),
    /// A quoted text, or a number.
    Text(String),
    /// `m#…#` or `/…/`, with its flags.
    Expression(String),
    /// An operator or a word.
    Word(String),
}

/// Parses an expression into a formula.
///
/// # Errors
/// Returns a sentence if rules cannot express it.
pub fn parse_expression(text: &str) -> Result<AccessFormula, String> {
    let mut parser = ExprParser {
        tokens: tokenize(text)?,
        next: 0,
    };
    let found = parser.parse_or(0)?;
    match parser.next == parser.tokens.len() {
        true => Ok(found),
        false => Err(UNSUPPORTED_EXPRESSION.to_owned()),
    }
}

const UNSUPPORTED_EXPRESSION: &str =
    "write conditions of rules instead of this expression (docs/access.md)";

struct ExprParser {
    tokens: Vec<ExprToken>,
    next: usize,
}

impl ExprParser {
    fn take_word(&mut self, words: &[&str]) -> bool {
        let found = matches!(self.tokens.get(self.next), Some(ExprToken::Word(word)) if words.contains(&word.as_str()));
        self.next += usize::from(found);
        found
    }

    fn parse_or(&mut self, depth: usize) -> Result<AccessFormula, String> {
        let mut parts = vec![self.parse_and(depth)?];
        while self.take_word(&["||"]) {
            parts.push(self.parse_and(depth)?);
        }
        Ok(AccessFormula::Any(parts))
    }

    fn parse_and(&mut self, depth: usize) -> Result<AccessFormula, String> {
        let mut parts = vec![self.parse_operand(depth)?];
        while self.take_word(&["&&"]) {
            parts.push(self.parse_operand(depth)?);
        }
        Ok(AccessFormula::All(parts))
    }

    fn parse_operand(&mut self, depth: usize) -> Result<AccessFormula, String> {
        if depth > MAX_NESTING_DEPTH {
            return Err(UNSUPPORTED_EXPRESSION.to_owned());
        }
        if self.take_word(&["!"]) {
            return Ok(AccessFormula::Not(Box::new(self.parse_operand(depth + 1)?)));
        }
        if self.take_word(&["("]) {
            let inner = self.parse_or(depth + 1)?;
            return match self.take_word(&[")"]) {
                true => Ok(inner),
                false => Err(UNSUPPORTED_EXPRESSION.to_owned()),
            };
        }
        if self.take_word(&["true"]) {
            return Ok(AccessFormula::Granted);
        }
        if self.take_word(&["false"]) {
            return Ok(AccessFormula::Denied);
        }
        let rest = &self.tokens[self.next..];
        let (found, taken) = match rest {
            [ExprToken::Word(is), ExprToken::Text(network), ..] if is == "-R" => {
                (TranslatedCondition::Requests(client_condition(network)?), 2)
            }
            [
                ExprToken::Variable(name),
                ExprToken::Word(is),
                ExprToken::Text(network),
                ..,
            ] if is == "-ipmatch" && name == "REMOTE_ADDR" => {
                (TranslatedCondition::Requests(client_condition(network)?), 3)
            }
            [
                ExprToken::Variable(name),
                ExprToken::Word(is),
                ExprToken::Text(text),
                ..,
            ] => {
                let equal = translate_test(name, &VariableTest::Equals(text.clone(), false))?;
                match is.as_str() {
                    "==" | "=" | "-eq" => (equal, 3),
                    "!=" | "-ne" => (equal.not(), 3),
                    _ => return Err(UNSUPPORTED_EXPRESSION.to_owned()),
                }
            }
            [
                ExprToken::Variable(name),
                ExprToken::Word(is),
                ExprToken::Expression(text),
                ..,
            ] => {
                let matches = translate_test(name, &VariableTest::Matches(text.clone()))?;
                match is.as_str() {
                    "=~" => (matches, 3),
                    "!~" => (matches.not(), 3),
                    _ => return Err(UNSUPPORTED_EXPRESSION.to_owned()),
                }
            }
            _ => return Err(UNSUPPORTED_EXPRESSION.to_owned()),
        };
        self.next += taken;
        match found {
            TranslatedCondition::Always(true) => Ok(AccessFormula::Granted),
            TranslatedCondition::Always(false) => Ok(AccessFormula::Denied),
            TranslatedCondition::Requests(when) => Ok(AccessFormula::Condition(when)),
            TranslatedCondition::OtherRequests(when) => {
                Ok(AccessFormula::Not(Box::new(AccessFormula::Condition(when))))
            }
            TranslatedCondition::FileExists(_) => Err(UNSUPPORTED_EXPRESSION.to_owned()),
        }
    }
}

fn client_condition(text: &str) -> Result<RuleCondition, String> {
    let network = super::networks::parse_apache_network(text).ok_or(UNSUPPORTED_EXPRESSION)?;
    Ok(RuleCondition::clients(vec![network]))
}

fn tokenize(text: &str) -> Result<Vec<ExprToken>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        let quoted = |after: &str, end: char| -> Option<(String, usize)> {
            let at = after.find(end)?;
            Some((after[..at].to_owned(), at + end.len_utf8()))
        };
        let (token, taken) = if let Some(inner) = rest.strip_prefix("%{") {
            let (name, taken) = quoted(inner, '}').ok_or(UNSUPPORTED_EXPRESSION)?;
            (ExprToken::Variable(name), taken + 2)
        } else if matches!(first, '"' | '\'') {
            let (text, taken) = quoted(after, first).ok_or(UNSUPPORTED_EXPRESSION)?;
            if text.contains("%{") || text.contains('\\') {
                return Err(UNSUPPORTED_EXPRESSION.to_owned());
            }
            (ExprToken::Text(text), taken + 1)
        } else if first == '/'
            || first == 'm' && after.starts_with(['#', '/', '|', ',', ';', '!', '%', '@'])
        {
            let (mark, begin) = match first {
                '/' => ('/', 1),
                _ => (after.chars().next().unwrap_or('/'), 2),
            };
            let (text, taken) = quoted(&rest[begin..], mark).ok_or(UNSUPPORTED_EXPRESSION)?;
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
            (ExprToken::Expression(text), begin + taken + flags)
        } else if let Some(word) = ["&&", "||", "==", "!=", "=~", "!~"]
            .iter()
            .find(|w| rest.starts_with(**w))
        {
            (ExprToken::Word((*word).to_owned()), 2)
        } else if matches!(first, '(' | ')' | '!' | '=') {
            (ExprToken::Word(first.to_string()), 1)
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "()!=&|'\"".contains(c));
            let end = end.unwrap_or(rest.len());
            if end == 0 {
                return Err(UNSUPPORTED_EXPRESSION.to_owned());
            }
            let word = &rest[..end];
            let token = match word.chars().all(|c| c.is_ascii_digit()) {
                true => ExprToken::Text(word.to_owned()),
                false => ExprToken::Word(word.to_owned()),
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
    fn expressions_are_parsed_or_refused() {
        let demands = |text: &str| parse_expression(text).map(|formula| formula.into_demands());
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
            assert!(parse_expression(text).is_err(), "{text}");
        }
    }
}
