//! Determines the URL paths that a section applies to. Apache's sections name directories, files or paths, by texts
//! with `*` or by expressions, whereas rules only name paths.

use super::file_name_patterns::wildcard_regex;
use crate::expression::{alternatives, compile, compile_path, may_match};
use crate::rule_condition::PathMatch;

/// The mapping of URL paths to directories.
#[derive(Clone, Debug, Default)]
pub struct UrlMounts {
    /// URL paths without a trailing slash, and their directories. The longest path is first, and `""` is the root.
    pub mounts: Vec<(String, String)>,
}

/// Returns the paths of `<Location>` or `Alias`: whole segments, as Apache matches them.
pub fn location_paths(text: &str) -> Result<PathMatch, String> {
    if !text.starts_with('/') {
        return Err("write a path that begins with a slash".to_owned());
    }
    match text.contains(['*', '?', '[']) {
        true => Ok(PathMatch::Regex(format!(
            "^{}(?:/|$)",
            wildcard_regex(text, false)?
        ))),
        false if text.len() > 1 && text.ends_with('/') => Ok(PathMatch::Prefix(text.to_owned())),
        false => Ok(PathMatch::segment_prefix(text)),
    }
}

/// Returns the paths of `<LocationMatch>`, `RedirectMatch` or similar directives.
pub fn location_match_paths(expression: &str) -> Result<PathMatch, String> {
    compile_path(expression)?;
    Ok(match expression {
        "" | "^" | "/" | "^/" | ".*" | "^.*$" | "^/.*" | "^/.*$" | "." => PathMatch::All,
        expression => PathMatch::Regex(expression.to_owned()),
    })
}

impl UrlMounts {
    /// Returns the URL paths that are mapped below a directory, each with the paths to exclude because another
    /// directory is mapped there.
    pub fn paths_of_directory(
        &self,
        directory: &str,
    ) -> Result<Vec<(PathMatch, Vec<PathMatch>)>, String> {
        let wanted = path_segments(directory);
        let mut found = Vec::new();
        for (url, target) in &self.mounts {
            let own = path_segments(target);
            let fits = |number: usize| {
                let (Some(pattern), Some(name)) = (wanted.get(number), own.get(number)) else {
                    return Ok(true);
                };
                segment_matches(pattern, name)
            };
            let mut same = true;
            for number in 0..wanted.len().min(own.len()) {
                same &= fits(number)?;
            }
            if !same {
                continue;
            }
            let below = wanted.get(own.len()..).unwrap_or_default();
            let is_pattern = below.iter().any(|s| s.contains(['*', '?', '[']));
            let rest: String = below.iter().map(|s| format!("/{s}")).collect();
            let paths = match is_pattern {
                true => PathMatch::Regex(format!(
                    "^{}{}(?:/|$)",
                    regex::escape(url),
                    wildcard_regex(&rest, false)?
                )),
                false => PathMatch::segment_prefix(&format!("{url}{rest}")),
            };
            let others = self.mounts.iter().map(|(other, _)| other);
            let others = others.filter(|other| other.len() > url.len());
            let others = others.map(|other| PathMatch::segment_prefix(other));
            let but = others.filter(|other| covers(&paths, other)).collect();
            found.push((paths, but));
        }
        Ok(found)
    }

    /// Returns the paths whose directories match an expression of `<DirectoryMatch>`.
    pub fn paths_of_directory_match(
        &self,
        expression: &str,
    ) -> Result<Vec<(PathMatch, Vec<PathMatch>)>, String> {
        let regex = compile(expression)?;
        let mut found = Vec::new();
        for (url, target) in &self.mounts {
            if regex.is_match(format!("{target}/").as_bytes()) {
                found.push(PathMatch::segment_prefix(url));
                continue;
            }
            let own = match expression.strip_prefix('^') {
                None => expression.to_owned(),
                Some(rest) => {
                    let anywhere = ["/.*/", "/.+/", ".*/", ".+/"].iter();
                    let mut anywhere = anywhere.filter_map(|mark| rest.strip_prefix(mark));
                    let escaped = regex::escape(target);
                    let below = rest.strip_prefix(target.as_str());
                    let below = below.or_else(|| rest.strip_prefix(escaped.as_str()));
                    match (below, anywhere.next()) {
                        (Some(below), _) => format!("^{}{below}", regex::escape(url)),
                        (None, Some(rest)) => format!("/{rest}"),
                        // `^/srv/other/` is for another directory.
                        _ if names_other_directory(rest, target) => continue,
                        _ => {
                            return Err(
                                "write an expression for URL paths instead of one for directories"
                                    .to_owned(),
                            );
                        }
                    }
                }
            };
            compile_path(&own)?;
            found.push(PathMatch::Regex(own));
        }
        Ok(remove_covered(found)
            .into_iter()
            .map(|paths| (paths, Vec::new()))
            .collect())
    }

    /// Returns the directory or file that a URL path is mapped to.
    pub fn directory_of(&self, url: &str) -> Option<String> {
        let below = |mount: &str| {
            let rest = url.strip_prefix(mount)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        self.mounts
            .iter()
            .find_map(|(mount, target)| Some(format!("{target}{}", below(mount)?)))
    }
}

/// Removes paths that others cover.
fn remove_covered(mut found: Vec<PathMatch>) -> Vec<PathMatch> {
    let mut kept: Vec<PathMatch> = Vec::new();
    while let Some(paths) = found.pop() {
        if !found.iter().chain(&kept).any(|other| covers(other, &paths)) {
            kept.insert(0, paths);
        }
    }
    kept
}

/// Splits an expression that excludes ACME challenges, such as `^/(?!.well-known)(.*)$`, into the expression without
/// the look-ahead and the excluded paths.
pub fn split_acme_exception(expression: &str) -> Option<(String, PathMatch)> {
    let begins = ["^/(?!", "^(?!/"].iter();
    let rest = begins
        .filter_map(|begin| expression.strip_prefix(begin))
        .next()?;
    let (excepted, _) = rest.split_once(')')?;
    let names = excepted.trim_start_matches('/').replace('\\', "");
    let is_proof = names.starts_with(".well-known") && !names.contains(['|', '(', '*']);
    let wide = crate::expression::without_look_around(expression);
    (is_proof && compile_path(&wide).is_ok())
        .then(|| (wide, PathMatch::Prefix("/.well-known".to_owned())))
}

/// Returns whether an expression names another directory in its literal beginning.
fn names_other_directory(expression: &str, target: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let begin = expression.find(|c| !plain(c)).unwrap_or(expression.len());
    // The last literal character before an operator may be optional.
    let begin = &expression.as_bytes()[..begin.saturating_sub(1)];
    begin
        .iter()
        .zip(target.as_bytes())
        .any(|(one, other)| one != other)
}

fn path_segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|s| !s.is_empty()).collect()
}

fn segment_matches(pattern: &str, name: &str) -> Result<bool, String> {
    if !pattern.contains(['*', '?', '[', '\\']) {
        return Ok(pattern == name);
    }
    let regex = compile(&format!("^{}$", wildcard_regex(pattern, false)?))?;
    Ok(regex.is_match(name.as_bytes()))
}

/// Returns the paths in a directory whose file names match an expression.
///
/// # Errors
/// Returns a sentence if a single expression cannot express both.
pub fn file_paths_in(directory: &PathMatch, file: &str) -> Result<PathMatch, String> {
    let (flags, name) = match file.strip_prefix("(?i)") {
        Some(name) => ("(?i)", name),
        None => ("", file),
    };
    let joined = match directory {
        PathMatch::All => file.to_owned(),
        PathMatch::Path(path) | PathMatch::Prefix(path) => {
            let path = path.trim_end_matches('/');
            format!("^{}{flags}(?:/.*)?{name}", regex::escape(path))
        }
        PathMatch::Regex(expression)
            if expression.starts_with('^') && expression.ends_with("(?:/|$)") =>
        {
            let begin = expression.trim_end_matches("(?:/|$)");
            format!("{begin}{flags}(?:/.*)?{name}")
        }
        PathMatch::Regex(_) => {
            return Err(
                "write one rule for the directories and the files of both expressions".to_owned(),
            );
        }
    };
    compile_path(&joined)?;
    Ok(PathMatch::Regex(joined))
}

/// Returns whether all paths of `narrow` are among those of `wide`.
pub fn covers(wide: &PathMatch, narrow: &PathMatch) -> bool {
    let within = |prefix: &str, path: &str| {
        let prefix = prefix.trim_end_matches('/');
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match (wide, narrow) {
        (PathMatch::All, _) => true,
        (wide, narrow) if wide == narrow => true,
        (PathMatch::Prefix(wide), PathMatch::Prefix(narrow) | PathMatch::Path(narrow)) => {
            within(wide, narrow)
        }
        (PathMatch::Prefix(wide), PathMatch::Regex(narrow)) => {
            narrow.strip_prefix('^').is_some_and(|rest| {
                let begin = regex::escape(wide.trim_end_matches('/'));
                rest.strip_prefix(begin.as_str())
                    .is_some_and(|rest| rest.starts_with('/') || rest.starts_with("(?:/"))
            })
        }
        _ => false,
    }
}

/// Returns whether some path may match both; false only if their literal beginnings differ.
pub fn may_overlap(one: &PathMatch, other: &PathMatch) -> bool {
    let begin = |paths: &PathMatch| match paths {
        PathMatch::All => String::new(),
        PathMatch::Path(path) | PathMatch::Prefix(path) => path.trim_end_matches('/').to_owned(),
        PathMatch::Regex(expression) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
            let rest = expression
                .strip_prefix('^')
                .filter(|_| alternatives(expression).len() == 1)
                .unwrap_or_default();
            let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
            // The last literal character before an operator may be optional.
            match rest[end..].starts_with(['?', '*', '{']) {
                true => rest[..end.saturating_sub(1)].to_owned(),
                false => rest[..end].to_owned(),
            }
        }
    };
    let (one, other) = (begin(one), begin(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// Returns whether the paths include a path.
pub fn contains_path(paths: &PathMatch, path: &str) -> bool {
    match paths {
        PathMatch::All => true,
        PathMatch::Path(own) => own == path,
        PathMatch::Prefix(_) => covers(paths, &PathMatch::Path(path.to_owned())),
        PathMatch::Regex(expression) => {
            compile_path(expression).is_ok_and(|regex| may_match(&regex, path))
        }
    }
}

/// Returns whether all of these paths have a name that begins with a dot.
pub fn names_dotfiles(paths: &PathMatch) -> bool {
    matches!(paths, PathMatch::Regex(expression) if expression.starts_with(r"/\."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_paths_of_the_site() {
        let mount = |url: &str, directory: &str| (url.to_owned(), directory.to_owned());
        let places = UrlMounts {
            mounts: vec![
                mount("/docs", "/usr/share/doc"),
                mount("", "/var/www/a/web"),
            ],
        };
        let prefix = |path: &str| PathMatch::Prefix(path.to_owned());
        let regex = |text: &str| PathMatch::Regex(text.to_owned());
        for (directory, expected) in [
            ("/", vec![prefix("/docs"), PathMatch::All]),
            ("/var/www/", vec![PathMatch::All]),
            ("/var/www/a/web/b", vec![prefix("/b")]),
            ("/var/www/*/web", vec![PathMatch::All]),
            ("/var/www/*/web/*/x", vec![regex("^/[^/]*/x(?:/|$)")]),
            ("/usr/share/doc/z", vec![prefix("/docs/z")]),
            ("/usr/share", vec![prefix("/docs")]),
            ("/srv", vec![]),
            ("/var/www/a/website", vec![]),
        ] {
            let found = places.paths_of_directory(directory).unwrap().into_iter();
            let found: Vec<PathMatch> = found.map(|(paths, _)| paths).collect();
            assert_eq!(found, expected, "{directory}");
        }
        for (expression, expected) in [
            (r"/\.git", Ok(vec![regex(r"/\.git")])),
            ("^/var/www/a/web/(b|c)", Ok(vec![regex("^/(b|c)")])),
            (r"^/.*/\.svn/", Ok(vec![regex(r"/\.svn/")])),
            ("^/srv/(x|y)", Ok(vec![])),
            ("^/var/www/", Ok(vec![PathMatch::All])),
            ("(?!x)", Err(())),
        ] {
            let found = places.paths_of_directory_match(expression).map_err(drop);
            let paths =
                |found: Vec<(PathMatch, _)>| found.into_iter().map(|(paths, _)| paths).collect();
            let found: Result<Vec<PathMatch>, ()> = found.map(paths);
            assert_eq!(found, expected, "{expression}");
        }
        let (_, but) = places.paths_of_directory("/var/www").unwrap().remove(0);
        assert_eq!(but, [prefix("/docs")]);
        let proofs = split_acme_exception(r"^/(?!\.well-known)(.*)$").unwrap();
        assert_eq!(proofs, ("^/(.*)$".into(), prefix("/.well-known")));
        assert_eq!(split_acme_exception("^/(?!x)(.*)$"), None);
        assert_eq!(
            places.directory_of("/docs/a").as_deref(),
            Some("/usr/share/doc/a")
        );
        assert_eq!(
            places.directory_of("/docsa").as_deref(),
            Some("/var/www/a/web/docsa")
        );
    }
}
