//! Splits a file into logical lines and words, as Apache's `ap_cfg_getline` and `ap_getword_conf` do, and into
//! arguments, as mod_rewrite does. This module does not depend on any directive.

use std::borrow::Cow;

/// A logical line: a line with its continuation lines, without white space at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'t> {
    /// The number of its first physical line, counted from 1.
    pub number: u32,
    /// The text, which is neither empty nor a comment.
    pub text: Cow<'t, str>,
}

/// Returns the lines of a file that are neither empty nor comments, and whether the file begins with a byte-order mark.
/// Apache treats the mark as a part of the first directive and refuses the file.
pub fn lines(text: &str) -> (Vec<Line<'_>>, bool) {
    let (text, marked) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let mut lines = Vec::new();
    let mut open: Option<(u32, String)> = None;
    for (number, line) in (1..).zip(text.split('\n')) {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (line, continues) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match (&mut open, continues) {
            (Some((_, whole)), true) => whole.push_str(line),
            (None, true) => open = Some((number, line.to_owned())),
            (Some((_, whole)), false) => {
                whole.push_str(line);
                if let Some((first, whole)) = open.take() {
                    push(&mut lines, first, Cow::Owned(whole));
                }
            }
            (None, false) => push(&mut lines, number, Cow::Borrowed(line)),
        }
    }
    if let Some((first, whole)) = open {
        push(&mut lines, first, Cow::Owned(whole));
    }
    (lines, marked)
}

fn push<'t>(lines: &mut Vec<Line<'t>>, number: u32, text: Cow<'t, str>) {
    let text = match text {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_ascii()),
        Cow::Owned(text) => Cow::Owned(text.trim_ascii().to_owned()),
    };
    if !text.is_empty() && !text.starts_with('#') {
        lines.push(Line { number, text });
    }
}

/// Returns the first word of `text` and the rest. A quoted word ends at the next quote of the same kind; a backslash
/// escapes a quote or a backslash.
pub fn word(text: &str) -> (String, &str) {
    let text = text.trim_ascii_start();
    let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        let end = text
            .find(|c: char| c.is_ascii_whitespace())
            .unwrap_or(text.len());
        let word = text[..end].replace("\\\\", "\\");
        return (word, text[end..].trim_ascii_start());
    };
    let mut word = String::new();
    let mut chars = text[1..].char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next_if(|(_, next)| *next == quote || *next == '\\') {
                Some((_, escaped)) => word.push(escaped),
                None => word.push('\\'),
            },
            c if c == quote => return (word, text[at + 2..].trim_ascii_start()),
            c => word.push(c),
        }
    }
    (word, "")
}

/// Returns all words of `text`.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        let (first, after) = word(rest);
        words.push(first);
        rest = after;
    }
    words
}

/// Returns the first argument of a `RewriteRule` or `RewriteCond`, as mod_rewrite's `parseargline` splits them, and the
/// rest, which is `None` if the line ends with the argument. A backslash keeps a blank in its argument, and is kept
/// too.
pub fn argument(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let text = text.trim_ascii_start();
    let (quote, text) = match text {
        [quote @ (b'"' | b'\''), rest @ ..] => (Some(*quote), rest),
        all => (None, all),
    };
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        let ends = match quote {
            None => byte.is_ascii_whitespace(),
            Some(quote) => byte == quote,
        };
        if ends {
            return (&text[..at], Some(&text[at + 1..]));
        }
        let escapes = byte == b'\\' && text.get(at + 1).is_some_and(u8::is_ascii_whitespace);
        at += 1 + usize::from(escapes);
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_trimmed_and_numbered_by_their_first() {
        let text =
            "\u{feff}# a \\\nstill a comment\r\n\n  Require \\\r\n  all denied \r\nOptions None\\";
        let (lines, marked) = lines(text);
        assert!(marked);
        let seen: Vec<(u32, &str)> = lines.iter().map(|l| (l.number, &*l.text)).collect();
        assert_eq!(seen, [(4, "Require   all denied"), (6, "Options None")]);
    }

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(
            words(r#"a "b c" 'd "e' "f\"g\\h\.i" j"k"#),
            ["a", "b c", "d \"e", "f\"g\\h\\.i", "j\"k"]
        );
        assert_eq!(words("\"never closed"), ["never closed"]);
        assert!(words("  ").is_empty());
    }
}
