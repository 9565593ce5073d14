//! Words of command lines that are printed for a user to copy.

/// Quotes a string as one word for a shell, if it needs quotes.
pub fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:%,=".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_only_where_needed() {
        let plain = "/srv/a-b.c_d+e@f:g%20,h=i";
        assert_eq!(shell_quoted(plain), plain);
        assert_eq!(shell_quoted("/srv/a b"), "'/srv/a b'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
    }
}
