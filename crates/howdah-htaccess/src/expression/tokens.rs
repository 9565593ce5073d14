//! Splits the text of an expression into tokens. A string with variables is one token.

use super::Word;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, an operator written as a word (`and`, `eq`), or `true`.
    Name(String),
    /// `-x`
    Unary(u8),
    /// `-xy`
    Dashed(String),
    /// `==`, `&&`, `(` …
    Sign(&'static str),
    Word(Word),
    Regex(String, bool),
}

const SIGNS: &[&str] = &[
    "==", "=~", "!=", "!~", "<=", ">=", "&&", "||", "<", ">", "=", "!", ".", "(", ")", "{", "}",
    ",", ":",
];
const IS_NAME_BYTE: fn(&u8) -> bool = |b| b.is_ascii_alphanumeric() || *b == b'_';
/// The length limit of a string in bytes; Apache's own buffer for a string is shorter.
const MAX_STRING_BYTES: usize = 8192;

/// Returns the tokens, or `None` where Apache reports an error.
pub(super) fn tokens(text: &[u8]) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let length = |of: &[u8], fits: fn(&u8) -> bool| of.iter().take_while(|b| fits(b)).count();
        let (token, used) = match rest {
            [b' ' | b'\t' | b'\n', ..] => {
                at += 1;
                continue;
            }
            [quote @ (b'"' | b'\''), inner @ ..] => {
                let (word, used) = string(inner, Some(*quote))?;
                (Token::Word(word), used + 1)
            }
            [b'%', b'{', inner @ ..] => {
                let (word, used) = variable(inner, 0)?;
                (Token::Word(word), used + 2)
            }
            [b'$', digit @ b'0'..=b'9', ..] => {
                (Token::Word(Word::Group(usize::from(digit - b'0'))), 2)
            }
            [b'm', delimiter, inner @ ..] if b"/#$%^,;:_?|-!.'\"".contains(delimiter) => {
                let (token, used) = regex(inner, *delimiter)?;
                (token, used + 2)
            }
            [b'/', inner @ ..] => {
                let (token, used) = regex(inner, b'/')?;
                (token, used + 1)
            }
            [b'-', b'0'..=b'9', ..] | [b'0'..=b'9', ..] => {
                let used = 1 + length(&rest[1..], u8::is_ascii_digit);
                (Token::Word(Word::Text(rest[..used].to_vec())), used)
            }
            [b'-', first, ..] if first.is_ascii_alphabetic() || *first == b'_' => {
                let used = 1 + length(&rest[1..], IS_NAME_BYTE);
                let token = match used {
                    2 => Token::Unary(*first),
                    _ => Token::Dashed(text_of(&rest[1..used])),
                };
                (token, used)
            }
            [first, ..] if first.is_ascii_alphabetic() => {
                let used = length(rest, IS_NAME_BYTE);
                (Token::Name(text_of(&rest[..used])), used)
            }
            rest => {
                let sign = SIGNS
                    .iter()
                    .find(|sign| rest.starts_with(sign.as_bytes()))?;
                (Token::Sign(sign), sign.len())
            }
        };
        tokens.push(token);
        at += used;
    }
    Some(tokens)
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn regex(inner: &[u8], delimiter: u8) -> Option<(Token, usize)> {
    let end = inner.iter().position(|b| *b == delimiter)?;
    let expression = text_of(&inner[..end]);
    let ignores_case = inner.get(end + 1) == Some(&b'i');
    let used = end + 1 + usize::from(ignores_case);
    Some((Token::Regex(expression, ignores_case), used))
}

/// Collects pieces of text and variables.
#[derive(Default)]
struct Pieces {
    words: Vec<Word>,
    text: Vec<u8>,
}

impl Pieces {
    fn push(&mut self, word: Word) {
        if !self.text.is_empty() {
            self.words.push(Word::Text(std::mem::take(&mut self.text)));
        }
        self.words.push(word);
    }

    fn word(mut self) -> Word {
        if !self.text.is_empty() {
            self.words.push(Word::Text(self.text));
        }
        match self.words.len() {
            0 => Word::empty(),
            1 => self.words.remove(0),
            _ => Word::Concatenated(self.words),
        }
    }
}

/// Parses a string up to its quote, or to the end of the text if it has no quote. Returns the string and the number of
/// bytes of `inner` that it takes.
pub(super) fn string(inner: &[u8], quote: Option<u8>) -> Option<(Word, usize)> {
    let mut pieces = Pieces::default();
    let mut at = 0;
    loop {
        match &inner[at..] {
            [] if quote.is_none() => return Some((pieces.word(), at)),
            [] | [b'\n', ..] => return None,
            [byte, ..] if Some(*byte) == quote => return Some((pieces.word(), at + 1)),
            rest => at += piece(rest, &mut pieces, 0)?,
        }
        if pieces.text.len() > MAX_STRING_BYTES {
            return None;
        }
    }
}

/// Parses one escape, variable, group or plain byte, and returns its length.
fn piece(rest: &[u8], pieces: &mut Pieces, depth: usize) -> Option<usize> {
    match rest {
        [b'\\', b'0'..=b'9', ..] => {
            let digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
            let octal = rest[1..]
                .iter()
                .take_while(|b| (b'0'..=b'7').contains(b))
                .count()
                .min(3);
            if octal == 0 || digits > octal {
                return None;
            }
            let value = rest[1..=octal]
                .iter()
                .fold(0_u32, |v, b| v * 8 + u32::from(b - b'0'));
            pieces.text.push(u8::try_from(value).ok()?);
            Some(1 + octal)
        }
        [b'\\', escaped, ..] => {
            pieces.text.push(match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'b' => 8,
                b'f' => 12,
                other => *other,
            });
            Some(2)
        }
        [b'$', digit @ b'0'..=b'9', ..] => {
            pieces.push(Word::Group(usize::from(digit - b'0')));
            Some(2)
        }
        [b'%', b'{', inner @ ..] => {
            let (word, used) = variable(inner, depth)?;
            pieces.push(word);
            Some(used + 2)
        }
        [byte, ..] => {
            pieces.text.push(*byte);
            Some(1)
        }
        [] => None,
    }
}

/// Parses the text after `%{` up to and including its closing bracket.
fn variable(inner: &[u8], depth: usize) -> Option<(Word, usize)> {
    if depth > 10 || !inner.first()?.is_ascii_alphabetic() {
        return None;
    }
    let end = inner.iter().take_while(|b| IS_NAME_BYTE(b)).count();
    let name = text_of(&inner[..end]);
    match inner.get(end)? {
        b'}' => Some((Word::Variable(name.to_ascii_uppercase()), end + 1)),
        b':' => {
            let mut pieces = Pieces::default();
            let mut at = end + 1;
            while *inner.get(at)? != b'}' {
                if inner[at] == b'\n' {
                    return None;
                }
                at += piece(&inner[at..], &mut pieces, depth + 1)?;
            }
            let word = pieces.word();
            if word == Word::empty() {
                return None;
            }
            let function = Word::Function(name.to_ascii_lowercase(), Box::new(word));
            Some((function, at + 1))
        }
        _ => None,
    }
}
