//! Media types: which are equivalent, and which are compressed by default.

/// Returns a media type without its parameters. The equivalent names of JavaScript's type, and those of XML's, become
/// one name.
pub fn essence(text: &str) -> String {
    let text = text.split(';').next().unwrap_or_default().trim();
    match text.to_ascii_lowercase().as_str() {
        "application/javascript" | "application/x-javascript" => "text/javascript".to_owned(),
        "application/xml" => "text/xml".to_owned(),
        text => text.to_owned(),
    }
}

/// Returns whether Howdah's own type of a file is equivalent to the configured one.
pub fn is_equivalent(ours: &str, theirs: &str) -> bool {
    let plain = |text: &str| match essence(text).as_str() {
        "application/x-gzip" => "application/gzip".to_owned(),
        text => text.to_owned(),
    };
    plain(ours) == plain(theirs)
}

/// Returns whether `[compression] types` has no influence on the type, because Howdah always or never compresses it.
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
