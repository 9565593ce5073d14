//! A file's lines as Apache reads them (`ap_cfg_getline`, `ap_getword_conf`): continued by a backslash,
//! split into words, without comments.

/// A line with its continuations, and the number of the first.
pub type Line = (usize, String);

/// The lines of a text that say something.
pub fn logical(text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut open: Option<Line> = None;
    for (number, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (piece, goes_on) = match line.strip_suffix('\\') {
            Some(piece) => (piece, true),
            None => (line, false),
        };
        let (_, whole) = open.get_or_insert_with(|| (number + 1, String::new()));
        *whole += piece;
        if !goes_on {
            lines.extend(open.take());
        }
    }
    lines.extend(open);
    lines
        .into_iter()
        .map(|(number, line)| (number, line.trim().to_owned()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The words of a directive. A quote that is not closed ends with the line, as under Apache.
/// `escapes`: a backslash keeps a space in its word, as in `RewriteRule`.
pub fn words(text: &str, escapes: bool) -> Vec<String> {
    let mut words = Vec::new();
    let mut chars = text.trim().chars().peekable();
    while let Some(&first) = chars.peek() {
        if first.is_whitespace() {
            chars.next();
            continue;
        }
        let quote = matches!(first, '"' | '\'').then_some(first);
        if quote.is_some() {
            chars.next();
        }
        let mut word = String::new();
        while let Some(c) = chars.next() {
            let ends = match quote {
                Some(quote) => c == quote,
                None => c.is_whitespace(),
            };
            if ends {
                break;
            }
            let next = chars.peek().copied();
            let escaped = match (c, next, quote) {
                ('\\', Some(next), Some(quote)) => next == quote || next == '\\' && !escapes,
                ('\\', Some(next), None) => escapes && next.is_whitespace(),
                _ => false,
            };
            word.push(if escaped {
                chars.next().unwrap_or(c)
            } else {
                c
            });
        }
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_continued_as_apache_does() {
        let found = logical("a b \\\n  c\r\n# d \\\n e\n\n  f  \n g\\");
        let expected = [(1, "a b   c"), (6, "f"), (7, "g")];
        let expected: Vec<Line> = expected.map(|(n, l)| (n, l.to_owned())).to_vec();
        assert_eq!(found, expected);
    }

    #[test]
    fn words_may_be_quoted() {
        for (text, escapes, expected) in [
            (r#"a "b c" 'd "e"'"#, false, vec!["a", "b c", r#"d "e""#]),
            (r#""%h \"%r\" \\ \n""#, false, vec![r#"%h "%r" \ \n"#]),
            (r#""open until the end"#, false, vec!["open until the end"]),
            (r"^a\ b$ /c [L]", true, vec!["^a b$", "/c", "[L]"]),
            (r"^a\.b$ \\", false, vec![r"^a\.b$", r"\\"]),
            (r#""" x"#, false, vec!["", "x"]),
        ] {
            assert_eq!(words(text, escapes), expected, "{text}");
        }
    }
}
