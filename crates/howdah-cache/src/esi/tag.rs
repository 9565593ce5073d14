//! The text of one ESI tag: its attributes, and the fragment that an `<esi:include>` asks for.

use super::parser::EsiInclude;
use crate::field::members;

/// The attributes of a tag, as name and value. An attribute without a value has an empty one.
pub(super) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.trim_ascii_start();
        if text.is_empty() {
            return None;
        }
        let ends = |b: &u8| *b == b'=' || b.is_ascii_whitespace();
        let (name, rest) = text.split_at(text.iter().position(ends).unwrap_or(text.len()));
        let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else {
            self.0 = rest;
            return Some((name, b""));
        };
        let value = value.trim_ascii_start();
        let (value, rest) = match value.first() {
            Some(quote @ (b'"' | b'\'')) => {
                let inner = &value[1..];
                let end = inner.iter().position(|b| b == quote);
                let end = end.unwrap_or(inner.len());
                (&inner[..end], inner.get(end + 1..).unwrap_or_default())
            }
            _ => {
                let end = value.iter().position(u8::is_ascii_whitespace);
                value.split_at(end.unwrap_or(value.len()))
            }
        };
        self.0 = rest;
        Some((name, value))
    }
}

/// Returns the include that a tag asks for; `None` if it names no fragment, or more than one.
pub(super) fn parse_include(attributes: &[u8]) -> Option<EsiInclude> {
    let (mut src, mut alt, mut continues, mut is_private) = (None, None, false, false);
    for (name, value) in Attributes(attributes) {
        match name {
            b"src" if src.is_some() => return None,
            b"src" => src = Some(decode(value)),
            b"alt" => alt = Some(decode(value)).filter(|alt| !alt.is_empty()),
            b"onerror" => continues = value == b"continue",
            b"cache-control" => {
                is_private = members(value).any(|word| word.eq_ignore_ascii_case(b"private"));
            }
            _ => {}
        }
    }
    let src = src.filter(|src| !src.is_empty())?;
    Some(EsiInclude {
        src,
        alt,
        continues,
        is_private,
    })
}

/// Decodes the five named entities of XML, and numeric references to ASCII characters. Everything else stays, because
/// applications also write URLs that are not escaped.
pub(super) fn decode(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value.trim_ascii();
    while let Some(at) = rest.iter().position(|b| *b == b'&') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let reference = rest.iter().take(8).position(|b| *b == b';');
        match reference.and_then(|end| Some((end, character(&rest[1..end])?))) {
            Some((end, byte)) => {
                out.push(byte);
                rest = &rest[end + 1..];
            }
            None => {
                out.push(b'&');
                rest = &rest[1..];
            }
        }
    }
    out.extend_from_slice(rest);
    out
}

/// Returns the ASCII character that an entity or a numeric reference stands for.
fn character(reference: &[u8]) -> Option<u8> {
    let number = |digits: &[u8], radix| {
        let text = std::str::from_utf8(digits).ok()?;
        u8::from_str_radix(text, radix).ok().filter(u8::is_ascii)
    };
    match reference {
        b"amp" => Some(b'&'),
        b"lt" => Some(b'<'),
        b"gt" => Some(b'>'),
        b"quot" => Some(b'"'),
        b"apos" => Some(b'\''),
        [b'#', b'x' | b'X', digits @ ..] => number(digits, 16),
        [b'#', digits @ ..] => number(digits, 10),
        _ => None,
    }
}
