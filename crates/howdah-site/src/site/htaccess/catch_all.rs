//! Finds the script to which an `.htaccess` file sends every path without a file. This is how an application without
//! configuration names its front controller. The file is read once, at the start. Whether
//! `.htaccess` files refuse a request is determined for each request instead (`htaccess`).

use std::path::Path;

use howdah_htaccess::{ConditionView, RuleView};

use super::report::read;

/// The target of every path without a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatchAll {
    /// The script's path below the directory, such as `/index.php`.
    pub(crate) script: String,
    /// Whether the request's path becomes the script's PATH_INFO (`index.php/$1`).
    pub(crate) path_info: bool,
    /// The query that the script expects, with `$1` for the path: `url=$1`.
    pub(crate) query: Option<String>,
}

/// Returns the catch-all rule of `directory`, whose URL path is `folder` (empty for the root).
pub(crate) fn of(directory: &Path, folder: &str) -> Option<CatchAll> {
    let file = read(&directory.join(".htaccess"))?;
    let script_of = |target: &str| {
        target_of(target, folder).filter(|found| directory.join(&found.script[1..]).is_file())
    };
    let mut files_pass = false;
    for rule in file.rewrite_rules() {
        let target = match rule.internal_target().map(std::str::from_utf8) {
            Some(Ok("")) => {
                files_pass |= tests_file(rule, false);
                continue;
            }
            Some(Ok(target)) => target,
            _ => continue,
        };
        let Some(found) = script_of(target) else {
            continue;
        };
        // If any rule leads to an `index.php`, this script also gets all other paths, as is the custom. For any other
        // script, the rule must match every path and exclude files.
        let excepted = files_pass || tests_file(rule, true);
        let plain = excepted && !rule.conditions().any(is_of_visitor);
        let pattern = rule.pattern();
        if found.script == "/index.php" || plain && pattern.is_some_and(takes_all) {
            let captured = pattern.is_some_and(captures_all);
            return Some(CatchAll {
                query: found.query.filter(|_| captured),
                path_info: found.path_info && captured,
                ..found
            });
        }
    }
    script_of(file.fallback()?)
}

/// Returns true if the rule has a condition `-f`, or `!-f` if `negated` is true.
fn tests_file(rule: RuleView<'_>, negated: bool) -> bool {
    let tests =
        |condition: ConditionView<'_>| condition.is_file_test && condition.negated == negated;
    rule.conditions().any(tests)
}

/// Returns true if the condition depends on the visitor, the method, the query or the time. A rule for some visitors
/// does not define a front controller.
fn is_of_visitor(condition: ConditionView<'_>) -> bool {
    ["HTTP", "REMOTE_", "TIME", "REQUEST_METHOD", "QUERY_STRING"]
        .iter()
        .any(|start| {
            condition
                .input
                .starts_with(format!("%{{{start}").as_bytes())
        })
}

/// Returns true for a pattern that matches every path.
fn takes_all(pattern: &str) -> bool {
    matches!(
        pattern,
        "^" | "." | ".*" | ".+" | "^.*" | "^.+" | "^.*$" | "^.+$" | ".*$" | "$"
    ) || captures_all(pattern)
}

/// Returns true if the pattern's `$1` is also the whole path without its first slash.
fn captures_all(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let inner = inner.strip_prefix("/?").unwrap_or(inner);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    matches!(inner, "(.*)" | "(.+)" | "([^?]*)" | "(.*)/?" | "(.*?)/?")
}

/// Parses a rule's target, such as `index.php?url=$1`.
fn target_of(target: &str, folder: &str) -> Option<CatchAll> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    // An absolute target starts at the site's root.
    let path = match path.strip_prefix('/') {
        Some(_) => path.strip_prefix(folder)?.strip_prefix('/')?,
        None => path.strip_prefix("./").unwrap_or(path),
    };
    let end = path.find(".php")? + ".php".len();
    let (script, rest) = path.split_at(end);
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let is_script = script.bytes().all(plain) && !script.split('/').any(|s| s.starts_with('.'));
    if !is_script || !matches!(rest, "" | "/" | "/$1") {
        return None;
    }
    // Only names, values and the path are supported in a query.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.=&/$".contains(&b);
    let query = query.filter(|query| {
        let captures = query.matches('$').count();
        captures == 1 && query.contains("$1") && query.bytes().all(plain)
    });
    Some(CatchAll {
        script: format!("/{script}"),
        path_info: rest == "/$1",
        query: query.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A script, whether it expects PATH_INFO, and the query that it expects.
    type Expected<'e> = Option<(&'e str, bool, Option<&'e str>)>;

    fn check(scripts: &[&str], folder: &str, cases: &[(&str, Expected<'_>)]) {
        let dir = tempfile::tempdir().unwrap();
        for script in scripts {
            fs::write(dir.path().join(script), "").unwrap();
        }
        for (text, expected) in cases {
            fs::write(dir.path().join(".htaccess"), text).unwrap();
            let expected = expected.map(|(script, path_info, query)| CatchAll {
                script: script.to_owned(),
                path_info,
                query: query.map(str::to_owned),
            });
            assert_eq!(of(dir.path(), folder), expected, "{text}");
        }
    }

    const INDEX: Expected<'static> = Some(("/index.php", false, None));

    #[test]
    fn an_index_php_shows_in_any_rewrite() {
        check(&[], "", &[("RewriteRule ^ index.php [L]", None)]);
        check(
            &["index.php"],
            "",
            &[
                ("RewriteEngine On\nRewriteRule ^ index.php [L]", INDEX),
                ("  rewriterule . /index.php?q=$1 [L,QSA]", INDEX),
                ("RewriteRule ^ \"index.php\" [L]", INDEX),
                ("RewriteRule ^(.*)$ \\\n  index.php [L]", INDEX),
                ("FallbackResource /index.php", INDEX),
                (
                    "<IfModule mod_rewrite.c>\nRewriteRule ^ index.php\n</IfModule>",
                    INDEX,
                ),
                (
                    "<IfModule mod_none.c>\nRewriteRule ^ index.php\n</IfModule>",
                    None,
                ),
                ("RewriteRule ^old$ new.php", None),
                ("RewriteRule ^old$ index.php [R=301]", None),
                ("#RewriteRule ^ index.php", None),
                ("RewriteRule ^(.*)$ https://other.example/index.php", None),
            ],
        );
    }

    #[test]
    fn a_script_of_another_name_must_get_all_that_is_no_file() {
        let loader = Some(("/loader.php", false, None));
        let no_file = |rest: &str| {
            format!(
                "RewriteCond %{{REQUEST_FILENAME}} !-f\nRewriteCond %{{REQUEST_FILENAME}} !-d\n{rest}"
            )
        };
        check(
            &["loader.php", "index.php"],
            "",
            &[
                (&no_file("RewriteRule ^.*$ /loader.php [L]"), loader),
                (
                    "RewriteCond %{REQUEST_FILENAME} -f [OR]\nRewriteCond %{REQUEST_FILENAME} -d\nRewriteRule ^ - [L]\nRewriteRule . loader.php [L]",
                    loader,
                ),
                ("FallbackResource /loader.php", loader),
                ("FallbackResource disabled", None),
                // Not a front controller: the rule also matches files, or applies only to some paths.
                ("RewriteRule ^.*$ loader.php [L]", None),
                (&no_file("RewriteRule ^feed/(.*)$ loader.php [L]"), None),
                (
                    &no_file("RewriteCond %{REMOTE_ADDR} !^10\nRewriteRule ^ loader.php"),
                    None,
                ),
            ],
        );
    }

    #[test]
    fn what_the_script_wants_of_the_path_is_kept() {
        check(
            &["index.php"],
            "",
            &[
                (
                    "RewriteRule ^(.*)$ index.php?url=$1 [QSA,L]",
                    Some(("/index.php", false, Some("url=$1"))),
                ),
                (
                    "RewriteRule ^(.*)$ index.php/$1 [L]",
                    Some(("/index.php", true, None)),
                ),
                ("RewriteRule ^([a-z]+)/(.*)$ index.php?a=$1&b=$2", INDEX),
                ("RewriteRule ^x/(.*)$ index.php?a=$1", INDEX),
            ],
        );
    }

    #[test]
    fn below_a_folder_targets_are_relative_or_begin_with_it() {
        check(
            &["index.php"],
            "/shop",
            &[
                ("RewriteRule . index.php [L]", INDEX),
                ("RewriteRule . /shop/index.php [L]", INDEX),
                ("RewriteRule . /index.php [L]", None),
                ("RewriteRule . /shopping/index.php [L]", None),
            ],
        );
        check(
            &["index.php"],
            "",
            &[("RewriteRule . ../index.php [L]", None)],
        );
    }
}
