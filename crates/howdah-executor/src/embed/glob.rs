//! Patterns of files to watch, as `src/**/*.{php,twig}`: which paths they name. Looks at no file.
//!
//! ```text
//! *  any characters but `/`     **  any directories, none included
//! ?  one character but `/`      {a,b}  one of these
//! ```

use std::path::{Path, PathBuf};

/// More alternatives than this are no pattern that anybody writes.
const MOST_ALTERNATIVES: usize = 64;

/// A pattern of absolute paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    parts: Vec<Vec<u8>>,
}

impl Glob {
    /// The patterns that `text` stands for; a relative one counts from `base`.
    pub fn parse(text: &str, base: &Path) -> Vec<Glob> {
        let whole = base.join(text.strip_prefix("./").unwrap_or(text));
        let mut todo = vec![whole.to_string_lossy().into_owned()];
        let mut flat = Vec::new();
        while let Some(text) = todo.pop() {
            match alternatives(&text) {
                Some(each) if todo.len() + flat.len() + each.len() <= MOST_ALTERNATIVES => {
                    todo.extend(each);
                }
                _ => flat.push(text),
            }
        }
        let parts = |text: String| {
            let parts = text.split('/').filter(|p| !p.is_empty() && *p != ".");
            parts.map(|p| p.as_bytes().to_vec()).collect()
        };
        flat.into_iter()
            .map(|text| Glob { parts: parts(text) })
            .collect()
    }

    /// The directory below which everything it names lies.
    pub fn root(&self) -> PathBuf {
        let plain = |part: &&Vec<u8>| !part.iter().any(|b| b"*?".contains(b));
        let fixed = self.parts.iter().take_while(plain).count();
        // The last part names a file.
        let fixed = fixed.min(self.parts.len().saturating_sub(1));
        let names = self.parts[..fixed]
            .iter()
            .map(|p| String::from_utf8_lossy(p).into_owned());
        PathBuf::from("/").join(names.collect::<PathBuf>())
    }

    /// Whether it names directories at any depth.
    pub fn is_deep(&self) -> bool {
        let below = self.root().components().count() - 1;
        self.parts.len() > below + 1 || self.parts.iter().any(|p| p == b"**")
    }

    /// Whether it names this absolute path.
    pub fn names(&self, path: &Path) -> bool {
        let components = path.components().skip(1);
        let names: Vec<&[u8]> = components
            .map(|c| c.as_os_str().as_encoded_bytes())
            .collect();
        path_matches(&self.parts, &names)
    }
}

/// `a{b,c}d` as `abd`, `acd`; none without braces.
fn alternatives(text: &str) -> Option<Vec<String>> {
    let open = text.find('{')?;
    let close = open + text[open..].find('}')?;
    let (before, after) = (&text[..open], &text[close + 1..]);
    let each = text[open + 1..close].split(',');
    Some(each.map(|one| format!("{before}{one}{after}")).collect())
}

fn path_matches(parts: &[Vec<u8>], names: &[&[u8]]) -> bool {
    match parts.split_first() {
        None => names.is_empty(),
        Some((part, rest)) if part == b"**" => {
            (0..=names.len()).any(|skipped| path_matches(rest, &names[skipped..]))
        }
        Some((part, rest)) => match names.split_first() {
            Some((name, others)) => name_matches(part, name) && path_matches(rest, others),
            None => false,
        },
    }
}

fn name_matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => (0..=name.len()).any(|n| name_matches(&pattern[1..], &name[n..])),
        (Some(b'?'), Some(_)) => name_matches(&pattern[1..], &name[1..]),
        (Some(a), Some(b)) if a == b => name_matches(&pattern[1..], &name[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, expect: bool) {
        let named = Glob::parse(pattern, Path::new("/srv/app"));
        let named = named.iter().any(|g| g.names(Path::new(path)));
        assert_eq!(named, expect, "{pattern} {path}");
    }

    #[test]
    fn a_pattern_names_what_shells_and_frankenphp_take_it_for() {
        check("src/**/*.php", "/srv/app/src/a.php", true);
        check("src/**/*.php", "/srv/app/src/b/c/a.php", true);
        check("src/**/*.php", "/srv/app/src/a.phpx", false);
        check("./**/*.{env,php}", "/srv/app/.env", true);
        check("./**/*.{env,php}", "/srv/app/x/y.php", true);
        check("./**/*.{env,php}", "/srv/other/y.php", false);
        check("*.php", "/srv/app/a.php", true);
        check("*.php", "/srv/app/b/a.php", false);
        check("a?.php", "/srv/app/ab.php", true);
        check("/etc/app/*.yaml", "/etc/app/x.yaml", true);
        check("config", "/srv/app/config", true);
        check("../lib/*.php", "/srv/app/../lib/a.php", true);
    }

    #[test]
    fn what_has_to_be_watched_for_a_pattern_is_the_directory_before_its_first_star() {
        let one = |text| Glob::parse(text, Path::new("/srv/app")).remove(0);
        assert_eq!(one("src/**/*.php").root(), Path::new("/srv/app/src"));
        assert_eq!(one("*.php").root(), Path::new("/srv/app"));
        assert_eq!(one("config/a.yaml").root(), Path::new("/srv/app/config"));
        assert!(one("src/**/*.php").is_deep() && one("src/*/a.php").is_deep());
        assert!(!one("*.php").is_deep() && !one("config/a.yaml").is_deep());
    }
}
