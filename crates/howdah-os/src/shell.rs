//! Words of command lines that are printed for a user to copy.

/// Quotes a path for a shell where it needs quotes.
pub fn shell_quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:".contains(c);
    match path.chars().all(plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_only_where_needed() {
        assert_eq!(shell_quoted("/srv/a-b.c_d+e@f:g"), "/srv/a-b.c_d+e@f:g");
        assert_eq!(shell_quoted("/srv/a b"), "'/srv/a b'");
        assert_eq!(shell_quoted("it's"), r"'it'\''s'");
    }
}
