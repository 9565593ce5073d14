//! Patterns of files to watch, such as `src/**/*.{php,twig}`, matched by globset. This module accesses no files.
//!
//! ```text
//! *  any characters but `/`     **  any number of directories, even none
//! ?  one character but `/`      {a,b}  one of these     [ab]  one of these characters
//! ```

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher, escape};

/// The characters that make a part of a path a pattern.
const SPECIAL_CHARACTERS: [char; 4] = ['*', '?', '[', '{'];

/// A pattern of absolute paths.
#[derive(Clone, Debug)]
pub struct Glob {
    /// The directory that contains everything the pattern matches.
    root: PathBuf,
    /// The part of the pattern below `root`.
    rest: String,
    matcher: GlobMatcher,
}

impl Glob {
    /// Parses a pattern. A relative pattern counts from `base`.
    ///
    /// # Errors
    /// What is wrong with the pattern, for example an unclosed bracket.
    pub fn parse(text: &str, base: &Path) -> Result<Glob, String> {
        let text = text.strip_prefix("./").unwrap_or(text);
        let plain = |part: &&str| !part.contains(SPECIAL_CHARACTERS);
        let mut parts: Vec<&str> = text.split('/').collect();
        // The last part names a file.
        let last = parts.pop().unwrap_or_default();
        let fixed = parts.iter().take_while(|part| plain(part)).count();
        let beginning = match parts[..fixed].join("/") {
            empty if empty.is_empty() && text.starts_with('/') => "/".to_owned(),
            beginning => beginning,
        };
        let root = base.join(beginning);
        let rest = [&parts[fixed..], &[last]].concat().join("/");
        let whole = format!(
            "{}/{rest}",
            escape(root.to_string_lossy().trim_end_matches('/'))
        );
        let matcher = GlobBuilder::new(&whole)
            .literal_separator(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| format!("`{text}` is not a valid pattern: {}", error.kind()))?
            .compile_matcher();
        Ok(Glob {
            root,
            rest,
            matcher,
        })
    }

    /// Returns the directory that contains everything the pattern matches.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns whether the pattern matches files in subdirectories of `root`.
    pub fn is_deep(&self) -> bool {
        self.rest.contains('/') || self.rest.contains("**")
    }

    /// Returns whether the pattern matches this absolute path.
    pub fn matches(&self, path: &Path) -> bool {
        self.matcher.is_match(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> Glob {
        Glob::parse(text, Path::new("/srv/app")).unwrap()
    }

    #[track_caller]
    fn check(pattern: &str, path: &str, expect: bool) {
        assert_eq!(
            glob(pattern).matches(Path::new(path)),
            expect,
            "{pattern} {path}"
        );
    }

    #[test]
    fn pattern_matches_like_shells_and_frankenphp() {
        check("src/**/*.php", "/srv/app/src/a.php", true);
        check("src/**/*.php", "/srv/app/src/b/c/a.php", true);
        check("src/**/*.php", "/srv/app/src/a.phpx", false);
        check("./**/*.{env,php}", "/srv/app/.env", true);
        check("./**/*.{env,php}", "/srv/app/x/y.php", true);
        check("./**/*.{env,php}", "/srv/other/y.php", false);
        check("*.php", "/srv/app/a.php", true);
        check("*.php", "/srv/app/b/a.php", false);
        check("a?.php", "/srv/app/ab.php", true);
        check("[ab].php", "/srv/app/b.php", true);
        check("[ab].php", "/srv/app/c.php", false);
        check("/etc/app/*.yaml", "/etc/app/x.yaml", true);
        check("/*.yaml", "/x.yaml", true);
        check("config", "/srv/app/config", true);
        check("../lib/*.php", "/srv/app/../lib/a.php", true);
    }

    #[test]
    fn special_characters_in_the_base_directory_are_literal() {
        let base = Path::new("/srv/[a] {b}*");
        let glob = Glob::parse("*.php", base).unwrap();
        assert!(glob.matches(&base.join("x.php")));
        assert!(!glob.matches(Path::new("/srv/a b/x.php")));
        assert_eq!(glob.root(), base);
    }

    #[test]
    fn pattern_with_many_stars_is_fast() {
        let pattern = format!("{}b", "*a".repeat(40));
        assert!(!glob(&pattern).matches(&Path::new("/srv/app").join("a".repeat(200))));
    }

    #[test]
    fn invalid_pattern_is_refused() {
        let why = Glob::parse("src/[a.php", Path::new("/srv/app")).unwrap_err();
        assert!(
            why.starts_with("`src/[a.php` is not a valid pattern: "),
            "{why}"
        );
    }

    #[test]
    fn pattern_root_is_the_directory_before_its_first_star() {
        assert_eq!(glob("src/**/*.php").root(), Path::new("/srv/app/src"));
        assert_eq!(glob("*.php").root(), Path::new("/srv/app/"));
        assert_eq!(glob("config/a.yaml").root(), Path::new("/srv/app/config"));
        assert_eq!(glob("/etc/{a,b}/c").root(), Path::new("/etc"));
        for deep in ["src/**/*.php", "src/*/a.php", "{a,b}/c.php", "**"] {
            assert!(glob(deep).is_deep(), "{deep}");
        }
        assert!(!glob("*.php").is_deep() && !glob("config/a.yaml").is_deep());
    }
}
