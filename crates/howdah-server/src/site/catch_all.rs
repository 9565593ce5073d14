//! The script that an `.htaccess` sends everything to that is no file: how an application without
//! configuration says which its front controller is. Looked at once, at the start. What `.htaccess`
//! files refuse is not read here but at every request (`htaccess`).

use std::fs;
use std::io::Read;
use std::path::Path;

/// A longer file is not one of the short ones meant here.
const MAX_LENGTH: u64 = 64 * 1024;

/// Where everything goes that is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatchAll {
    /// The script's path below the directory: `/index.php`.
    pub(super) script: String,
    /// The request's path is its PATH_INFO (`index.php/$1`).
    pub(super) path_info: bool,
    /// The query that it wants, with `$1` for the path: `url=$1`.
    pub(super) query: Option<String>,
}

/// The catch-all rule of `directory`, which lies at the URL path `folder` (empty for the root).
pub(super) fn of(directory: &Path, folder: &str) -> Option<CatchAll> {
    let text = read(&directory.join(".htaccess"))?;
    let is_there = |script: &str| directory.join(&script[1..]).is_file();
    let mut files_pass = false;
    let mut conditions: Vec<Condition> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(directive) = words.first().map(|word| word.to_ascii_lowercase()) else {
            continue;
        };
        match (&directive[..], &words[1..]) {
            ("fallbackresource", [target, ..]) => {
                if let Some(found) = target_of(target, folder).filter(|t| is_there(&t.script)) {
                    return Some(found);
                }
            }
            ("rewritecond", [subject, test, ..]) => conditions.push(Condition::of(subject, test)),
            ("rewriterule", [pattern, target, ..]) => {
                let conditions = std::mem::take(&mut conditions);
                if *target == "-" && conditions.contains(&Condition::IsFile) {
                    files_pass = true;
                }
                let Some(found) = target_of(target, folder).filter(|t| is_there(&t.script)) else {
                    continue;
                };
                // An index.php that any rule leads to gets the rest as well: so it is everywhere. Other
                // scripts must show it: the whole path, and files excepted.
                let excepted = files_pass || conditions.contains(&Condition::IsNoFile);
                let plain = excepted && !conditions.contains(&Condition::OfVisitor);
                if found.script == "/index.php" || plain && takes_all(pattern) {
                    return Some(CatchAll {
                        query: found.query.filter(|_| captures_all(pattern)),
                        path_info: found.path_info && captures_all(pattern),
                        ..found
                    });
                }
            }
            _ => {}
        }
    }
    None
}

/// What a RewriteCond asks about.
#[derive(PartialEq, Eq)]
enum Condition {
    IsFile,
    IsNoFile,
    /// Who asks, when and how: a redirect for some, no front controller.
    OfVisitor,
    Other,
}

impl Condition {
    fn of(subject: &str, test: &str) -> Condition {
        match test {
            "-f" => Condition::IsFile,
            "!-f" => Condition::IsNoFile,
            _ if ["HTTP", "REMOTE_", "TIME", "REQUEST_METHOD", "QUERY_STRING"]
                .iter()
                .any(|start| subject.starts_with(&format!("%{{{start}"))) =>
            {
                Condition::OfVisitor
            }
            _ => Condition::Other,
        }
    }
}

/// Patterns that match every path.
fn takes_all(pattern: &str) -> bool {
    matches!(
        pattern,
        "^" | "." | ".*" | ".+" | "^.*" | "^.+" | "^.*$" | "^.+$" | ".*$" | "$"
    ) || captures_all(pattern)
}

/// Those of them whose `$1` is the whole path, without its first slash.
fn captures_all(pattern: &str) -> bool {
    let inner = pattern.strip_prefix('^').unwrap_or(pattern);
    let inner = inner.strip_prefix("/?").unwrap_or(inner);
    let inner = inner.strip_suffix('$').unwrap_or(inner);
    matches!(inner, "(.*)" | "(.+)" | "([^?]*)" | "(.*)/?" | "(.*?)/?")
}

/// `index.php?url=$1` of a rule.
fn target_of(target: &str, folder: &str) -> Option<CatchAll> {
    let target = target.trim_matches('"');
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    // An absolute target begins at the site's root.
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
    // What of a query can be had here: names, values and the path.
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

fn read(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    let file = fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    file.take(MAX_LENGTH).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        scripts: &[&str],
        folder: &str,
        text: &str,
        expected: Option<(&str, bool, Option<&str>)>,
    ) {
        let dir = tempfile::tempdir().unwrap();
        for script in scripts {
            fs::write(dir.path().join(script), "").unwrap();
        }
        fs::write(dir.path().join(".htaccess"), text).unwrap();
        let found = of(dir.path(), folder);
        let expected = expected.map(|(script, path_info, query)| CatchAll {
            script: script.to_owned(),
            path_info,
            query: query.map(str::to_owned),
        });
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn an_index_php_shows_in_any_rewrite() {
        let index = Some(("/index.php", false, None));
        let here = &["index.php"][..];
        check(&[], "", "RewriteRule ^ index.php [L]", None);
        check(
            here,
            "",
            "RewriteEngine On\nRewriteRule ^ index.php [L]",
            index,
        );
        check(here, "", "  rewriterule . /index.php?q=$1 [L,QSA]", index);
        check(here, "", "FallbackResource /index.php", index);
        check(here, "", "RewriteRule ^old$ new.php", None);
        check(here, "", "#RewriteRule ^ index.php", None);
        check(
            here,
            "",
            "RewriteRule ^(.*)$ https://other.example/index.php",
            None,
        );
    }

    #[test]
    fn a_script_of_another_name_must_get_all_that_is_no_file() {
        let both = &["loader.php", "index.php"][..];
        let loader = Some(("/loader.php", false, None));
        let no_file = "RewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\n";
        check(
            both,
            "",
            &format!("{no_file}RewriteRule ^.*$ /loader.php [L]"),
            loader,
        );
        check(
            both,
            "",
            "RewriteCond %{REQUEST_FILENAME} -f [OR]\nRewriteCond %{REQUEST_FILENAME} -d\nRewriteRule ^ - [L]\nRewriteRule . loader.php [L]",
            loader,
        );
        check(both, "", "FallbackResource /loader.php", loader);
        check(both, "", "FallbackResource disabled", None);
        // Everything, files too, or for some only: no front controller.
        check(both, "", "RewriteRule ^.*$ loader.php [L]", None);
        check(
            both,
            "",
            &format!("{no_file}RewriteRule ^feed/(.*)$ loader.php [L]"),
            None,
        );
        check(
            both,
            "",
            &format!("{no_file}RewriteCond %{{REMOTE_ADDR}} !^10\nRewriteRule ^ loader.php"),
            None,
        );
    }

    #[test]
    fn what_the_script_wants_of_the_path_is_kept() {
        let index = &["index.php"][..];
        check(
            index,
            "",
            "RewriteRule ^(.*)$ index.php?url=$1 [QSA,L]",
            Some(("/index.php", false, Some("url=$1"))),
        );
        check(
            index,
            "",
            "RewriteRule ^(.*)$ index.php/$1 [L]",
            Some(("/index.php", true, None)),
        );
        check(
            index,
            "",
            "RewriteRule ^([a-z]+)/(.*)$ index.php?a=$1&b=$2",
            Some(("/index.php", false, None)),
        );
        check(
            index,
            "",
            "RewriteRule ^x/(.*)$ index.php?a=$1",
            Some(("/index.php", false, None)),
        );
    }

    #[test]
    fn below_a_folder_targets_are_relative_or_begin_with_it() {
        let index = Some(("/index.php", false, None));
        let here = &["index.php"][..];
        check(here, "/shop", "RewriteRule . index.php [L]", index);
        check(here, "/shop", "RewriteRule . /shop/index.php [L]", index);
        check(here, "/shop", "RewriteRule . /index.php [L]", None);
        check(here, "/shop", "RewriteRule . /shopping/index.php [L]", None);
        check(here, "", "RewriteRule . ../index.php [L]", None);
    }
}
