//! Splits nginx's configuration into tokens: words, bare or quoted, with escapes and `${variables}`; `;`, `{`, `}`.
//! Comments are skipped.

use std::iter::Peekable;
use std::str::Chars;

/// A word or a punctuation mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NginxToken {
    /// A word, without its quotes.
    Word(String),
    /// `;`
    End,
    /// `{`
    Open,
    /// `}`
    Close,
}

/// Why text cannot be split into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexerError {
    /// A quote is not closed.
    OpenQuote,
    /// A closing quote is not followed by a space or punctuation.
    AfterQuote,
}

impl LexerError {
    /// Returns the error message.
    pub fn message(self) -> &'static str {
        match self {
            LexerError::OpenQuote => "a quote that begins here is not closed",
            LexerError::AfterQuote => "after a closing quote, a space, `;` or `{` is expected",
        }
    }
}

/// Reads tokens from a text, one after the other.
#[derive(Debug)]
pub struct Lexer<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
}

impl<'t> Lexer<'t> {
    /// Creates a lexer at the beginning of a text.
    pub fn new(text: &'t str) -> Lexer<'t> {
        Lexer {
            rest: text.chars().peekable(),
            line: 1,
        }
    }

    /// Returns the current line.
    pub fn line(&self) -> usize {
        self.line
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    /// Returns the next token and its line, or `None` at the end.
    pub fn next_token(&mut self) -> Result<Option<(NginxToken, usize)>, (LexerError, usize)> {
        loop {
            match self.rest.peek() {
                None => return Ok(None),
                Some('#') => while self.take().is_some_and(|c| c != '\n') {},
                Some(c) if c.is_ascii_whitespace() => drop(self.take()),
                Some(_) => break,
            }
        }
        let line = self.line;
        let mark = match self.rest.peek() {
            Some(';') => Some(NginxToken::End),
            Some('{') => Some(NginxToken::Open),
            Some('}') => Some(NginxToken::Close),
            _ => None,
        };
        if let Some(mark) = mark {
            self.take();
            return Ok(Some((mark, line)));
        }
        let word = match self.rest.peek() {
            Some(&quote @ ('"' | '\'')) => self.quoted(quote).map_err(|fault| (fault, line))?,
            _ => self.bare(),
        };
        Ok(Some((NginxToken::Word(word), line)))
    }

    fn quoted(&mut self, quote: char) -> Result<String, LexerError> {
        self.take();
        let mut word = String::new();
        loop {
            match self.take().ok_or(LexerError::OpenQuote)? {
                c if c == quote => break,
                '\\' => self.escape(&mut word),
                c => word.push(c),
            }
        }
        match self.rest.peek() {
            None | Some(';' | '{' | ')') => Ok(word),
            Some(c) if c.is_ascii_whitespace() => Ok(word),
            Some(_) => Err(LexerError::AfterQuote),
        }
    }

    /// Resolves an escape as nginx does: a quote or a backslash loses its backslash, `\t`, `\r` and `\n` have their
    /// usual meaning, and any other character keeps the backslash, because regular expressions need it.
    fn escape(&mut self, word: &mut String) {
        match self.take() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(c) => word.extend(['\\', c]),
            None => word.push('\\'),
        }
    }

    fn bare(&mut self) -> String {
        let mut word = String::new();
        while let Some(&c) = self.rest.peek() {
            match c {
                ';' => break,
                // `${name}` is a variable; any other brace begins a block.
                '{' if !word.ends_with('$') => break,
                c if c.is_ascii_whitespace() => break,
                '\\' => {
                    self.take();
                    self.escape(&mut word);
                }
                c => {
                    self.take();
                    word.push(c);
                }
            }
        }
        word
    }

    /// Skips a block of another language whose opening brace has been read. Returns whether the block is closed.
    pub fn skip_block(&mut self) -> bool {
        let mut depth = 1usize;
        while let Some(c) = self.take() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut lexer = Lexer::new(text);
        let mut words = Vec::new();
        while let Some((token, line)) = lexer.next_token().unwrap() {
            words.push(match token {
                NginxToken::Word(word) => format!("{line}{word}"),
                NginxToken::End => ";".to_owned(),
                NginxToken::Open => "{".to_owned(),
                NginxToken::Close => "}".to_owned(),
            });
        }
        words
    }

    #[test]
    fn tokens_are_split_as_in_nginx() {
        assert_eq!(
            words("a b;# c ;\nlocation ~ \\.php$ {x 'y \"z' \"\\\"\";}"),
            [
                "1a",
                "1b",
                ";",
                "2location",
                "2~",
                "2\\.php$",
                "{",
                "2x",
                "2y \"z",
                "2\"",
                ";",
                "}"
            ]
        );
        assert_eq!(words("a ${b}c{"), ["1a", "1${b}c", "{"]);
        assert_eq!(words("if (-f \"x\") {"), ["1if", "1(-f", "1x", "1)", "{"]);
        let fault = |text| Lexer::new(text).next_token().unwrap_err();
        assert_eq!(fault("\n'a"), (LexerError::OpenQuote, 2));
        assert_eq!(fault("'a'b"), (LexerError::AfterQuote, 1));
    }
}
