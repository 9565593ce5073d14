//! Splits an SQL text into tokens. Follows the lexical rules of MySQL ("Language Structure"), SQLite (tokenize.c) and
//! PostgreSQL ("Lexical Structure") as far as they determine where a string, a name or a comment ends. Where a server
//! can be configured to read differently (`ANSI_QUOTES`, `NO_BACKSLASH_ESCAPES`), its default is assumed.

use crate::Dialect;

/// One token of a statement. Comments and white space yield no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqlToken<'a> {
    /// A keyword or an unquoted name.
    Word(&'a [u8]),
    /// The content of a quoted name.
    Name(&'a [u8]),
    /// The content of a string, or `None` if it has escapes, because then its value differs from its text.
    Text(Option<&'a [u8]>),
    /// A number or a parameter (`?`, `:name`, `$1`).
    Other,
    /// Any other byte, such as `(` or `=`.
    Symbol(u8),
    /// The text ends inside a string, name or comment, or has a comment that only some servers execute (`/*! */`).
    Unreadable,
}

impl SqlToken<'_> {
    /// Returns whether this token is the given keyword.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, SqlToken::Word(word) if word.eq_ignore_ascii_case(keyword.as_bytes()))
    }

    /// Returns whether this token is one of the given keywords.
    pub fn is_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }
}

/// An iterator over the tokens of a text. It ends after [`SqlToken::Unreadable`].
pub(crate) struct SqlTokens<'a> {
    dialect: Dialect,
    sql: &'a [u8],
    at: usize,
}

impl<'a> SqlTokens<'a> {
    pub fn new(dialect: Dialect, sql: &'a [u8]) -> SqlTokens<'a> {
        SqlTokens {
            dialect,
            sql,
            at: 0,
        }
    }

    fn peek_byte(&self, ahead: usize) -> Option<u8> {
        self.sql.get(self.at + ahead).copied()
    }

    fn unreadable(&mut self) -> Option<SqlToken<'a>> {
        self.at = self.sql.len();
        Some(SqlToken::Unreadable)
    }

    /// Skips white space and comments. Returns `false` if a comment does not end, or if some servers execute it.
    fn skip(&mut self) -> bool {
        loop {
            match (self.peek_byte(0), self.peek_byte(1)) {
                (Some(b), _) if b.is_ascii_whitespace() || b == 0x0b => self.at += 1,
                (Some(b'#'), _) if self.dialect == Dialect::Mysql => self.skip_line(),
                (Some(b'-'), Some(b'-')) => {
                    // MySQL requires white space after the dashes: there, `5--1` is an expression.
                    let blank = self.peek_byte(2).is_none_or(|b| b <= b' ');
                    if self.dialect == Dialect::Mysql && !blank {
                        return true;
                    }
                    self.skip_line();
                }
                (Some(b'/'), Some(b'*')) => {
                    let rest = &self.sql[self.at + 2..];
                    let executed = rest.starts_with(b"!") || rest.starts_with(b"M!");
                    // For the other dialects this is an ordinary comment.
                    if executed && self.dialect == Dialect::Mysql && !is_hint(rest) {
                        return false;
                    }
                    if !self.skip_block() {
                        return false;
                    }
                }
                _ => return true,
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = &self.sql[self.at..];
        self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
    }

    fn skip_block(&mut self) -> bool {
        let mut depth = 0usize;
        while let Some(byte) = self.peek_byte(0) {
            match (byte, self.peek_byte(1)) {
                (b'/', Some(b'*')) if depth == 0 || self.dialect == Dialect::Postgres => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return true;
                    }
                }
                _ => self.at += 1,
            }
        }
        false
    }

    /// Reads up to the closing quote, and returns the content and whether it is free of escapes. A doubled quote stands
    /// for the quote itself.
    fn quoted(&mut self, close: u8, backslash: bool) -> Option<(&'a [u8], bool)> {
        let start = self.at + 1;
        let mut at = start;
        let mut plain = true;
        loop {
            let byte = *self.sql.get(at)?;
            let doubled = byte == close && self.sql.get(at + 1) == Some(&close);
            if doubled || (byte == b'\\' && backslash) {
                plain = false;
                at += 2;
            } else if byte == close {
                self.at = at + 1;
                return Some((&self.sql[start..at], plain));
            } else {
                at += 1;
            }
        }
    }

    fn text(&mut self, quote: u8, backslash: bool) -> Option<SqlToken<'a>> {
        match self.quoted(quote, backslash) {
            Some((text, plain)) => Some(SqlToken::Text(plain.then_some(text))),
            None => self.unreadable(),
        }
    }

    fn name(&mut self, close: u8) -> Option<SqlToken<'a>> {
        match self.quoted(close, false) {
            // No table has a quote in its name in practice, so such a name is accepted but not interpreted.
            Some((name, plain)) => Some(if plain {
                SqlToken::Name(name)
            } else {
                SqlToken::Other
            }),
            None => self.unreadable(),
        }
    }

    /// Reads `$tag$ … $tag$`, PostgreSQL's quoting, or a parameter such as `$1`.
    fn dollar_quoted(&mut self) -> Option<SqlToken<'a>> {
        let rest = &self.sql[self.at + 1..];
        let tag = rest
            .iter()
            .position(|b| !(b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80))
            .unwrap_or(rest.len());
        let quotes = rest.get(tag) == Some(&b'$') && !rest[0].is_ascii_digit();
        if !quotes {
            self.at += 1 + tag;
            return Some(SqlToken::Other);
        }
        let mark = &self.sql[self.at..self.at + tag + 2];
        let inside = self.at + mark.len();
        let found = self.sql[inside..]
            .windows(mark.len())
            .position(|window| window == mark);
        match found {
            Some(end) => {
                self.at = inside + end + mark.len();
                Some(SqlToken::Text(None))
            }
            None => self.unreadable(),
        }
    }

    fn word(&mut self) -> SqlToken<'a> {
        let start = self.at;
        while self.peek_byte(0).is_some_and(is_word) {
            self.at += 1;
        }
        SqlToken::Word(&self.sql[start..self.at])
    }
}

/// Returns whether the content of a `/*! */` comment, which MySQL executes, only says how a `SELECT` is to be run.
/// MediaWiki sends such hints, to SQLite as well.
fn is_hint(comment: &[u8]) -> bool {
    const HINTS: [&[u8]; 6] = [
        b"STRAIGHT_JOIN",
        b"HIGH_PRIORITY",
        b"SQL_NO_CACHE",
        b"SQL_BIG_RESULT",
        b"SQL_SMALL_RESULT",
        b"SQL_CALC_FOUND_ROWS",
    ];
    let Some(end) = comment.windows(2).position(|two| two == b"*/") else {
        return false;
    };
    let inside = comment[..end].trim_ascii_start();
    let inside = inside.strip_prefix(b"M").unwrap_or(inside);
    let inside = inside.strip_prefix(b"!").unwrap_or(inside);
    let mut words = inside
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    words.all(|word| HINTS.iter().any(|hint| word.eq_ignore_ascii_case(hint)))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

impl<'a> Iterator for SqlTokens<'a> {
    type Item = SqlToken<'a>;

    fn next(&mut self) -> Option<SqlToken<'a>> {
        if !self.skip() {
            return self.unreadable();
        }
        let mysql = self.dialect == Dialect::Mysql;
        match self.peek_byte(0)? {
            b'\'' => self.text(b'\'', mysql),
            b'"' if mysql => self.text(b'"', true),
            b'"' => self.name(b'"'),
            b'`' => self.name(b'`'),
            b'[' if self.dialect == Dialect::Sqlite => self.name(b']'),
            b'$' if self.dialect == Dialect::Postgres => self.dollar_quoted(),
            b'e' | b'E'
                if self.dialect == Dialect::Postgres && self.peek_byte(1) == Some(b'\'') =>
            {
                self.at += 1;
                self.text(b'\'', true)
            }
            b'0'..=b'9' => {
                self.word();
                Some(SqlToken::Other)
            }
            byte if is_word(byte) => Some(self.word()),
            b'?' => {
                self.at += 1;
                Some(SqlToken::Other)
            }
            byte => {
                self.at += 1;
                Some(SqlToken::Symbol(byte))
            }
        }
    }
}
