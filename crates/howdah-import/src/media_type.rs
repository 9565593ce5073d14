//! Media types: which are the same, and which are compressed anyway.

/// A type without its parameters; scripts and XML have two names.
pub fn essence(text: &str) -> String {
    let text = text.split(';').next().unwrap_or_default().trim();
    match text.to_ascii_lowercase().as_str() {
        "application/javascript" | "application/x-javascript" => "text/javascript".to_owned(),
        "application/xml" => "text/xml".to_owned(),
        text => text.to_owned(),
    }
}

/// Whether Howdah's own type of a file says the same as the one that is configured.
pub fn is_equivalent(ours: &str, theirs: &str) -> bool {
    let plain = |text: &str| match essence(text).as_str() {
        "application/x-gzip" => "application/gzip".to_owned(),
        text => text.to_owned(),
    };
    plain(ours) == plain(theirs)
}

/// Whether Howdah compresses it, or never does, without a line in `[compression] types`.
pub fn needs_no_compression_line(text: &str) -> bool {
    let begins = ["text/", "font/", "image/"];
    let ends = ["+xml", "+json", "/xml", "/json", "javascript"];
    begins.iter().any(|begin| text.starts_with(begin)) || ends.iter().any(|end| text.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_compared_by_essence() {
        assert_eq!(essence("text/html; charset=utf-8"), essence("text/HTML"));
        assert_eq!(
            essence("application/javascript"),
            essence("text/javascript;charset=x")
        );
        assert_ne!(essence("text/plain"), essence("text/html"));
        assert!(is_equivalent("application/gzip", "application/x-gzip"));
    }
}
