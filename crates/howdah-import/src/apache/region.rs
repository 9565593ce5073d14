//! Which URL paths a section is for. Apache's sections name directories, files or paths, by texts with
//! `*`, or by expressions; rules name paths alone.

use super::names::wildcard;
use crate::expression::{alternatives, compile, compile_path, matches};
use crate::when::Match;

/// Where a site's files are.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// URL paths without a slash at the end, and directories; the longest path first, `""` is the root.
    pub mounts: Vec<(String, String)>,
}

/// The paths of `<Location>` and `Alias`: whole segments, as Apache means them.
pub fn location(text: &str) -> Result<Match, String> {
    if !text.starts_with('/') {
        return Err("a path that begins with a slash".to_owned());
    }
    match text.contains(['*', '?', '[']) {
        true => Ok(Match::Regex(format!("^{}(?:/|$)", wildcard(text, false)?))),
        false if text.len() > 1 && text.ends_with('/') => Ok(Match::Prefix(text.to_owned())),
        false => Ok(Match::segments(text)),
    }
}

/// The paths of `<LocationMatch>`, `RedirectMatch` and their like.
pub fn location_match(expression: &str) -> Result<Match, String> {
    compile_path(expression)?;
    Ok(match expression {
        "" | "^" | "/" | "^/" | ".*" | "^.*$" | "^/.*" | "^/.*$" | "." => Match::All,
        expression => Match::Regex(expression.to_owned()),
    })
}

impl Places {
    /// The paths below a directory, for each place where the site shows some of it; without those that
    /// another directory is shown at.
    pub fn of_directory(&self, directory: &str) -> Result<Vec<(Match, Vec<Match>)>, String> {
        let wanted = segments(directory);
        let mut found = Vec::new();
        for (url, target) in &self.mounts {
            let own = segments(target);
            let fits = |number: usize| {
                let (Some(pattern), Some(name)) = (wanted.get(number), own.get(number)) else {
                    return Ok(true);
                };
                one_segment(pattern, name)
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
                true => Match::Regex(format!(
                    "^{}{}(?:/|$)",
                    regex::escape(url),
                    wildcard(&rest, false)?
                )),
                false => Match::segments(&format!("{url}{rest}")),
            };
            let others = self.mounts.iter().map(|(other, _)| other);
            let others = others.filter(|other| other.len() > url.len());
            let others = others.map(|other| Match::segments(other));
            let but = others.filter(|other| covers(&paths, other)).collect();
            found.push((paths, but));
        }
        Ok(found)
    }

    /// The paths whose files an expression of `<DirectoryMatch>` is for.
    pub fn of_directory_match(&self, expression: &str) -> Result<Vec<(Match, Vec<Match>)>, String> {
        let regex = compile(expression)?;
        let mut found = Vec::new();
        for (url, target) in &self.mounts {
            if regex.is_match(format!("{target}/").as_bytes()) {
                found.push(Match::segments(url));
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
                        // `^/srv/other/`: of another directory.
                        _ if is_plain_until_it_differs(rest, target) => continue,
                        _ => {
                            return Err(
                                "an expression for URL paths, in place of one for directories"
                                    .to_owned(),
                            );
                        }
                    }
                }
            };
            compile_path(&own)?;
            found.push(Match::Regex(own));
        }
        Ok(widest(found)
            .into_iter()
            .map(|paths| (paths, Vec::new()))
            .collect())
    }

    /// The directory of a path, and whether it is that of the root itself.
    pub fn path_of(&self, url: &str) -> Option<String> {
        let below = |mount: &str| {
            let rest = url.strip_prefix(mount)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        self.mounts
            .iter()
            .find_map(|(mount, target)| Some(format!("{target}{}", below(mount)?)))
    }
}

/// Without those that others cover.
fn widest(mut found: Vec<Match>) -> Vec<Match> {
    let mut kept: Vec<Match> = Vec::new();
    while let Some(paths) = found.pop() {
        if !found.iter().chain(&kept).any(|other| covers(other, &paths)) {
            kept.insert(0, paths);
        }
    }
    kept
}

/// An expression that excepts proofs of who owns a name, `^/(?!.well-known)(.*)$`, without what it looks
/// ahead at; the exception is of the rule.
pub fn but_proofs(expression: &str) -> Option<(String, Match)> {
    let begins = ["^/(?!", "^(?!/"].iter();
    let rest = begins
        .filter_map(|begin| expression.strip_prefix(begin))
        .next()?;
    let (excepted, _) = rest.split_once(')')?;
    let names = excepted.trim_start_matches('/').replace('\\', "");
    let is_proof = names.starts_with(".well-known") && !names.contains(['|', '(', '*']);
    let wide = crate::expression::widened(expression);
    (is_proof && compile_path(&wide).is_ok())
        .then(|| (wide, Match::Prefix("/.well-known".to_owned())))
}

/// Whether an expression names, without any operator, another directory.
fn is_plain_until_it_differs(expression: &str, target: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
    let begin = expression.find(|c| !plain(c)).unwrap_or(expression.len());
    // What an operator follows may be optional.
    let begin = &expression.as_bytes()[..begin.saturating_sub(1)];
    begin
        .iter()
        .zip(target.as_bytes())
        .any(|(one, other)| one != other)
}

fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|s| !s.is_empty()).collect()
}

fn one_segment(pattern: &str, name: &str) -> Result<bool, String> {
    if !pattern.contains(['*', '?', '[', '\\']) {
        return Ok(pattern == name);
    }
    let regex = compile(&format!("^{}$", wildcard(pattern, false)?))?;
    Ok(regex.is_match(name.as_bytes()))
}

/// The paths of a directory whose files have such a name.
///
/// # Errors
/// One expression cannot say both.
pub fn both(directory: &Match, file: &str) -> Result<Match, String> {
    let (flags, name) = match file.strip_prefix("(?i)") {
        Some(name) => ("(?i)", name),
        None => ("", file),
    };
    let joined = match directory {
        Match::All => file.to_owned(),
        Match::Path(path) | Match::Prefix(path) => {
            let path = path.trim_end_matches('/');
            format!("^{}{flags}(?:/.*)?{name}", regex::escape(path))
        }
        Match::Regex(expression)
            if expression.starts_with('^') && expression.ends_with("(?:/|$)") =>
        {
            let begin = expression.trim_end_matches("(?:/|$)");
            format!("{begin}{flags}(?:/.*)?{name}")
        }
        Match::Regex(_) => {
            return Err(
                "one rule for the directories and the files of both expressions".to_owned(),
            );
        }
    };
    compile_path(&joined)?;
    Ok(Match::Regex(joined))
}

/// Whether all paths of the one are among those of the other.
pub fn covers(wide: &Match, narrow: &Match) -> bool {
    let within = |prefix: &str, path: &str| {
        let prefix = prefix.trim_end_matches('/');
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match (wide, narrow) {
        (Match::All, _) => true,
        (wide, narrow) if wide == narrow => true,
        (Match::Prefix(wide), Match::Prefix(narrow) | Match::Path(narrow)) => within(wide, narrow),
        (Match::Prefix(wide), Match::Regex(narrow)) => {
            narrow.strip_prefix('^').is_some_and(|rest| {
                let begin = regex::escape(wide.trim_end_matches('/'));
                rest.strip_prefix(begin.as_str())
                    .is_some_and(|rest| rest.starts_with('/') || rest.starts_with("(?:/"))
            })
        }
        _ => false,
    }
}

/// Whether some path may be among both: false only where both begin with other texts.
pub fn may_meet(one: &Match, other: &Match) -> bool {
    let begin = |paths: &Match| match paths {
        Match::All => String::new(),
        Match::Path(path) | Match::Prefix(path) => path.trim_end_matches('/').to_owned(),
        Match::Regex(expression) => {
            let plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
            let rest = expression
                .strip_prefix('^')
                .filter(|_| alternatives(expression).len() == 1)
                .unwrap_or_default();
            let end = rest.find(|c| !plain(c)).unwrap_or(rest.len());
            // What an operator follows may be optional.
            match rest[end..].starts_with(['?', '*', '{']) {
                true => rest[..end.saturating_sub(1)].to_owned(),
                false => rest[..end].to_owned(),
            }
        }
    };
    let (one, other) = (begin(one), begin(other));
    one.starts_with(&other) || other.starts_with(&one)
}

/// Whether a path is among them.
pub fn has(paths: &Match, path: &str) -> bool {
    match paths {
        Match::All => true,
        Match::Path(own) => own == path,
        Match::Prefix(_) => covers(paths, &Match::Path(path.to_owned())),
        Match::Regex(expression) => {
            compile_path(expression).is_ok_and(|regex| matches(&regex, path))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_become_paths_of_the_site() {
        let mount = |url: &str, directory: &str| (url.to_owned(), directory.to_owned());
        let places = Places {
            mounts: vec![
                mount("/docs", "/usr/share/doc"),
                mount("", "/var/www/a/web"),
            ],
        };
        let prefix = |path: &str| Match::Prefix(path.to_owned());
        let regex = |text: &str| Match::Regex(text.to_owned());
        for (directory, expected) in [
            ("/", vec![prefix("/docs"), Match::All]),
            ("/var/www/", vec![Match::All]),
            ("/var/www/a/web/b", vec![prefix("/b")]),
            ("/var/www/*/web", vec![Match::All]),
            ("/var/www/*/web/*/x", vec![regex("^/[^/]*/x(?:/|$)")]),
            ("/usr/share/doc/z", vec![prefix("/docs/z")]),
            ("/usr/share", vec![prefix("/docs")]),
            ("/srv", vec![]),
            ("/var/www/a/website", vec![]),
        ] {
            let found = places.of_directory(directory).unwrap().into_iter();
            let found: Vec<Match> = found.map(|(paths, _)| paths).collect();
            assert_eq!(found, expected, "{directory}");
        }
        for (expression, expected) in [
            (r"/\.git", Ok(vec![regex(r"/\.git")])),
            ("^/var/www/a/web/(b|c)", Ok(vec![regex("^/(b|c)")])),
            (r"^/.*/\.svn/", Ok(vec![regex(r"/\.svn/")])),
            ("^/srv/(x|y)", Ok(vec![])),
            ("^/var/www/", Ok(vec![Match::All])),
            ("(?!x)", Err(())),
        ] {
            let found = places.of_directory_match(expression).map_err(drop);
            let paths =
                |found: Vec<(Match, _)>| found.into_iter().map(|(paths, _)| paths).collect();
            let found: Result<Vec<Match>, ()> = found.map(paths);
            assert_eq!(found, expected, "{expression}");
        }
        let (_, but) = places.of_directory("/var/www").unwrap().remove(0);
        assert_eq!(but, [prefix("/docs")]);
        let proofs = but_proofs(r"^/(?!\.well-known)(.*)$").unwrap();
        assert_eq!(proofs, ("^/(.*)$".into(), prefix("/.well-known")));
        assert_eq!(but_proofs("^/(?!x)(.*)$"), None);
        assert_eq!(
            places.path_of("/docs/a").as_deref(),
            Some("/usr/share/doc/a")
        );
        assert_eq!(
            places.path_of("/docsa").as_deref(),
            Some("/var/www/a/web/docsa")
        );
    }
}
