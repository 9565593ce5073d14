//! All patterns of `deny`, or of the files that are refused for an application, in one automaton. Every request is
//! checked against them, and an application has dozens. One pass over the path is enough, whatever their number.

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::pattern::PathPattern;

/// The maximum size of the compiled patterns, in bytes for each of them.
const MAX_BYTES_PER_PATTERN: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum Denials {
    /// All patterns in one automaton.
    Together(RegexSet),
    /// Single patterns, because the common automaton would be too large.
    OneByOne(Vec<PathPattern>),
}

impl Denials {
    pub(super) fn new(patterns: &[PathPattern]) -> Denials {
        let texts = patterns.iter().map(PathPattern::to_regex);
        let set = RegexSetBuilder::new(texts)
            .unicode(false)
            .dot_matches_new_line(true)
            .size_limit(MAX_BYTES_PER_PATTERN * patterns.len().max(1))
            .build();
        match set {
            Ok(set) => Denials::Together(set),
            Err(_) => Denials::OneByOne(patterns.to_vec()),
        }
    }

    pub(super) fn is_match(&self, path: &[u8]) -> bool {
        match self {
            Denials::Together(set) => set.is_match(path),
            Denials::OneByOne(patterns) => patterns.iter().any(|pattern| pattern.is_match(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_match_what_each_pattern_matches() {
        let patterns = [
            PathPattern::exact("/a.b/c+").unwrap(),
            PathPattern::prefix("/p(1)").unwrap(),
            PathPattern::prefix("/é/").unwrap(),
            PathPattern::glob("/up/**.ph*").unwrap(),
            PathPattern::glob("*.log").unwrap(),
            PathPattern::regex("^/user/.*\\.(?:md|ya?ml)$").unwrap(),
        ];
        let together = Denials::new(&patterns);
        assert!(matches!(together, Denials::Together(_)));
        let one_by_one = Denials::OneByOne(patterns.to_vec());
        let mut matched = 0;
        for path in [
            "/",
            "/a.b/c+",
            "/a.b/c+d",
            "/axb/c+",
            "/p(1)",
            "/p(1)/x",
            "/p(1)x",
            "/é",
            "/é/x",
            "/up/a/x.php",
            "/up/a\n/x.phtml",
            "/up/x.html",
            "/x.log",
            "/a/b.log",
            "/x.log/y",
            "/user/a.yaml",
            "/user/a.md\n",
            "/x/user/a.md",
        ] {
            let found = together.is_match(path.as_bytes());
            assert_eq!(found, one_by_one.is_match(path.as_bytes()), "{path:?}");
            matched += usize::from(found);
        }
        assert_eq!(matched, 9);
        assert!(!Denials::new(&[]).is_match(b"/"));
    }
}
