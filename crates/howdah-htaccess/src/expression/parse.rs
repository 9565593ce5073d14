//! Parses tokens into a tree: `or` binds weakest, then `and`, then `not`.

use super::tokens::{Token, string, tokens};
use super::{ComparisonOperator, Condition, GlobKind, Word};
use crate::network::Network;
use crate::pattern::Regex;
use crate::text::lossy;

/// The maximum nesting depth. Deeper nesting is an error, because it would overflow the thread's stack.
const DEEPEST: usize = 64;

const VARIABLES: &[&str] = &[
    "TIME_YEAR",
    "TIME_MON",
    "TIME_DAY",
    "TIME_HOUR",
    "TIME_MIN",
    "TIME_SEC",
    "TIME_WDAY",
    "TIME",
    "SERVER_SOFTWARE",
    "API_VERSION",
    "HTTP_USER_AGENT",
    "HTTP_PROXY_CONNECTION",
    "HTTP_REFERER",
    "HTTP_COOKIE",
    "HTTP_FORWARDED",
    "HTTP_HOST",
    "HTTP_ACCEPT",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "REQUEST_FILENAME",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_USER",
    "SERVER_ADMIN",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SCRIPT_FILENAME",
    "PATH_INFO",
    "QUERY_STRING",
    "IS_SUBREQ",
    "DOCUMENT_ROOT",
    "AUTH_TYPE",
    "THE_REQUEST",
    "CONTENT_TYPE",
    "HANDLER",
    "REQUEST_LOG_ID",
    "SCRIPT_USER",
    "SCRIPT_GROUP",
    "DOCUMENT_URI",
    "LAST_MODIFIED",
    "CONTEXT_PREFIX",
    "CONTEXT_DOCUMENT_ROOT",
    "REQUEST_STATUS",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "HTTPS",
    "IPV6",
    "CONN_LOG_ID",
    "CONN_REMOTE_ADDR",
    "HTTP2",
    "SERVER_ADDR",
];

/// The functions that are known. `file`, `md5`, `sha1` and `ldap` are errors.
const FUNCTIONS: &[&str] = &[
    "osenv",
    "env",
    "resp",
    "req",
    "http",
    "note",
    "reqenv",
    "req_novary",
    "tolower",
    "toupper",
    "escape",
    "unescape",
    "filesize",
    "base64",
    "unbase64",
    "ssl",
];

/// Parses a condition. Returns `None` where Apache reports a syntax error.
pub(crate) fn condition(text: &[u8]) -> Option<Condition> {
    let mut parser = ExpressionParser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
    };
    let condition = parser.or()?;
    (parser.at == parser.tokens.len()).then_some(condition)
}

/// Parses a text with `%{…}` in it.
pub(crate) fn text(text: &[u8]) -> Option<Word> {
    let (word, _) = string(text, None)?;
    known(&word).then_some(word)
}

/// Returns true if the variables and functions of `word` exist.
fn known(word: &Word) -> bool {
    match word {
        Word::Text(_) | Word::Group(_) => true,
        Word::Variable(name) => VARIABLES.contains(&&**name),
        Word::Function(name, argument) => FUNCTIONS.contains(&&**name) && known(argument),
        Word::Concatenated(words) => words.iter().all(known),
    }
}

struct ExpressionParser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl ExpressionParser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Consumes the next token if it is this sign or this word.
    fn accept(&mut self, sign: &str, word: &str) -> bool {
        let is = match self.peek() {
            Some(Token::Sign(found)) => *found == sign,
            Some(Token::Name(found)) => found == word,
            _ => false,
        };
        self.at += usize::from(is);
        is
    }

    fn or(&mut self) -> Option<Condition> {
        let left = self.and()?;
        match self.accept("||", "or") {
            false => Some(left),
            true => {
                self.deeper()?;
                let right = self.or()?;
                Some(Condition::Or(Box::new(left), Box::new(right)))
            }
        }
    }

    fn and(&mut self) -> Option<Condition> {
        let left = self.not()?;
        match self.accept("&&", "and") {
            false => Some(left),
            true => {
                self.deeper()?;
                let right = self.and()?;
                Some(Condition::And(Box::new(left), Box::new(right)))
            }
        }
    }

    fn not(&mut self) -> Option<Condition> {
        match self.accept("!", "not") {
            false => self.primary(),
            true => {
                self.deeper()?;
                Some(Condition::Not(Box::new(self.not()?)))
            }
        }
    }

    fn deeper(&mut self) -> Option<()> {
        self.depth += 1;
        (self.depth <= DEEPEST).then_some(())
    }

    fn primary(&mut self) -> Option<Condition> {
        match self.peek()? {
            Token::Sign("(") => {
                self.at += 1;
                self.deeper()?;
                let inner = self.or()?;
                self.accept(")", "").then_some(inner)
            }
            Token::Unary(letter) => {
                let letter = *letter;
                self.at += 1;
                let word = self.word()?;
                match letter {
                    b'R' => {
                        let network = Network::parse(&lossy(word.constant()?))?;
                        Some(Condition::Network(None, network))
                    }
                    letter if b"nzTdefsLhxFUA".contains(&letter) => {
                        Some(Condition::Unary(letter, word))
                    }
                    _ => None,
                }
            }
            Token::Name(name) if name == "true" || name == "false" => {
                let holds = name == "true";
                self.at += 1;
                Some(Condition::Constant(holds))
            }
            _ => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Option<Condition> {
        let left = self.word()?;
        let operator = match self.take()? {
            Token::Sign(sign) => sign.to_owned(),
            Token::Name(name) => name,
            Token::Dashed(name) => format!("-{name}"),
            _ => return None,
        };
        let texts = match &*operator {
            "=" | "==" => Some(ComparisonOperator::Equal),
            "!=" => Some(ComparisonOperator::NotEqual),
            "<" => Some(ComparisonOperator::Less),
            "<=" => Some(ComparisonOperator::LessOrEqual),
            ">" => Some(ComparisonOperator::Greater),
            ">=" => Some(ComparisonOperator::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = texts {
            return Some(Condition::Texts(comparison, left, self.word()?));
        }
        let numbers = match operator.trim_start_matches('-') {
            "eq" => Some(ComparisonOperator::Equal),
            "ne" => Some(ComparisonOperator::NotEqual),
            "lt" => Some(ComparisonOperator::Less),
            "le" => Some(ComparisonOperator::LessOrEqual),
            "gt" => Some(ComparisonOperator::Greater),
            "ge" => Some(ComparisonOperator::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = numbers {
            return Some(Condition::Numbers(comparison, left, self.word()?));
        }
        match &*operator {
            "=~" | "!~" => self.regex(left, operator == "!~"),
            "in" | "-in" => self.list(left),
            "-ipmatch" => {
                let network = Network::parse(&lossy(self.word()?.constant()?))?;
                Some(Condition::Network(Some(left), network))
            }
            other => {
                let shell = match &*other.to_ascii_lowercase() {
                    "-fnmatch" => GlobKind::Path,
                    "-strmatch" => GlobKind::Text,
                    "-strcmatch" => GlobKind::TextNoCase,
                    _ => return None,
                };
                Some(Condition::Glob(shell, left, self.word()?))
            }
        }
    }

    fn regex(&mut self, word: Word, negated: bool) -> Option<Condition> {
        let Token::Regex(expression, ignores_case) = self.take()? else {
            return None;
        };
        Some(Condition::Matches {
            word,
            keeps: has_groups(expression.as_bytes()),
            regex: Regex::new(&expression, ignores_case)?,
            negated,
        })
    }

    fn list(&mut self, needle: Word) -> Option<Condition> {
        if !self.accept("{", "") {
            return None;
        }
        let mut words = vec![self.word()?];
        while self.accept(",", "") {
            words.push(self.word()?);
        }
        self.accept("}", "").then_some(Condition::In(needle, words))
    }

    fn word(&mut self) -> Option<Word> {
        let first = match self.take()? {
            Token::Word(word) => word,
            Token::Name(name) => {
                let name = name.to_ascii_lowercase();
                if !self.accept("(", "") {
                    return None;
                }
                self.deeper()?;
                let argument = self.word()?;
                if !self.accept(")", "") {
                    return None;
                }
                Word::Function(name, Box::new(argument))
            }
            _ => return None,
        };
        if !known(&first) {
            return None;
        }
        match self.accept(".", "") {
            false => Some(first),
            true => {
                self.deeper()?;
                Some(Word::Concatenated(vec![first, self.word()?]))
            }
        }
    }
}

/// Returns true if the expression has a capturing group.
fn has_groups(expression: &[u8]) -> bool {
    let mut rest = expression;
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [_, after @ ..]) => after,
            (b'(', [b'?', b'<' | b'P', b'=' | b'!', ..]) => after,
            (b'(', [b'?', b'<' | b'P', ..]) => return true,
            (b'(', [b'?' | b'*', ..]) => after,
            (b'(', _) => return true,
            (_, after) => after,
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_that_apache_accepts_are_parsed() {
        for text in [
            "true",
            "%{HTTP_HOST} == 'example.org'",
            "%{REQUEST_URI} =~ m#^/a/(.*)$#i && ! -f %{REQUEST_FILENAME}",
            "-z %{QUERY_STRING} || req('X-A') in {'a', \"b\"}",
            "%{REMOTE_ADDR} -ipmatch '10.0.0.0/8'",
            "tolower(%{HTTP:Accept}) -strmatch '*html*' and not (1 -eq 2)",
            "%{env:X}.'b' != \"a%{HTTP_HOST}b$1\"",
            "-R '192.0.2.1'",
            "%{TIME_HOUR} -lt 7",
        ] {
            assert!(condition(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "",
            "%{NO_SUCH} == 'a'",
            "nosuch(%{HTTP_HOST}) == 'a'",
            "%{HTTP_HOST} == example.org",
            "'a",
            "%{HTTP_HOST",
            "true true",
            "%{HTTP_HOST} =~ /(/",
            "-q 'a'",
        ] {
            assert!(condition(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn deep_nesting_is_a_mistake() {
        let deep = "(".repeat(10_000) + "true" + &")".repeat(10_000);
        assert!(condition(deep.as_bytes()).is_none());
        assert!(condition(("!".repeat(10_000) + "true").as_bytes()).is_none());
    }

    #[test]
    fn text_may_contain_variables() {
        assert_eq!(text(b"/e.html"), Some(Word::Text(b"/e.html".to_vec())));
        assert!(matches!(text(b"a %{REQUEST_URI} b"), Some(Word::Concatenated(w)) if w.len() == 3));
        assert_eq!(text(b"%{nope}"), None);
    }
}
