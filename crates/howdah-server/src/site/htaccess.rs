//! Reads two things from Apache's `.htaccess` files, for sites without configuration: which
//! directories are closed altogether, and whether everything is rewritten to `index.php`. Not an
//! implementation of `.htaccess`: all else is ignored, and nothing is read while serving.

use std::fs;
use std::io::Read;
use std::path::Path;

/// Deeper directories are not looked into.
const MAX_DEPTH: usize = 4;
/// Nor more than this many.
const MAX_DIRECTORIES: usize = 4000;
/// A longer file is not one of the short ones meant here.
const MAX_LENGTH: u64 = 64 * 1024;

/// URL paths, below `root`, of directories whose `.htaccess` refuses everybody. Follows links, as
/// the server does. Those below a closed directory are not listed again.
pub fn closed_directories(root: &Path) -> Vec<String> {
    let mut closed = Vec::new();
    let mut seen = 0;
    let mut left = vec![(root.to_owned(), String::new(), 0)];
    while let Some((directory, path, depth)) = left.pop() {
        seen += 1;
        if seen > MAX_DIRECTORIES {
            break;
        }
        if !path.is_empty() && read(&directory.join(".htaccess")).is_some_and(|t| denies_all(&t)) {
            closed.push(path);
            continue;
        }
        if depth == MAX_DEPTH {
            continue;
        }
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let here = entry.path();
            if !name.starts_with('.') && here.is_dir() {
                left.push((here, format!("{path}/{name}"), depth + 1));
            }
        }
    }
    closed.sort();
    closed
}

/// The directory's `.htaccess` sends what is no file to `index.php`.
pub fn rewrites_to_index(directory: &Path) -> bool {
    directory.join("index.php").is_file()
        && read(&directory.join(".htaccess")).is_some_and(|text| {
            text.lines().any(|line| {
                let mut words = line.split_whitespace();
                let directive = words.next().unwrap_or_default();
                let target = words.nth(1).unwrap_or_default();
                let first = line.split_whitespace().nth(1).unwrap_or_default();
                let is_index = |word: &str| {
                    let path = word.split('?').next().unwrap_or_default();
                    path == "index.php" || path == "/index.php" || path.starts_with("index.php/")
                };
                directive.eq_ignore_ascii_case("RewriteRule") && is_index(target)
                    || directive.eq_ignore_ascii_case("FallbackResource") && is_index(first)
            })
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

/// `Require all denied` or `Deny from all` for the whole directory, and nobody let in anywhere:
/// exceptions (`<Files>` with a grant) are beyond what is understood here, and then nothing is
/// closed, as for nginx.
fn denies_all(text: &str) -> bool {
    let mut sections: Vec<String> = Vec::new();
    let mut denied = false;
    for line in text.lines() {
        let line = line.trim().to_ascii_lowercase();
        if let Some(name) = line.strip_prefix("</") {
            let name = name.trim_end_matches('>').trim();
            if sections.last().is_some_and(|open| open == name) {
                sections.pop();
            }
            continue;
        }
        if let Some(section) = line.strip_prefix('<') {
            let name: String = section
                .chars()
                .take_while(char::is_ascii_alphabetic)
                .collect();
            sections.push(name);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["require", "all", "granted"] | ["allow", "from", ..] => return false,
            ["require", "all", "denied"] | ["deny", "from", "all"] => {
                // <IfModule> and the like decide about the syntax, not about the file.
                denied |= sections.iter().all(|name| name.starts_with("if"));
            }
            ["require", ..] => return false,
            _ => {}
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_closes_the_whole_directory_counts() {
        for (text, closed) in [
            ("Require all denied", true),
            ("deny from all\n", true),
            (
                "# x\n<IfModule mod_authz_core.c>\n  Require all denied\n</IfModule>\n<IfModule !mod_authz_core.c>\nOrder deny,allow\nDeny from all\n</IfModule>",
                true,
            ),
            ("Require all denied\nSatisfy All\n", true),
            ("<Files *.php>\nRequire all denied\n</Files>", false),
            (
                "<FilesMatch \"x\">\nDeny from all\n</FilesMatch>\nOptions -Indexes",
                false,
            ),
            (
                "Require all denied\n<FilesMatch \"\\.js$\">\nRequire all granted\n</FilesMatch>",
                false,
            ),
            ("Deny from all\nAllow from 127.0.0.1", false),
            ("Require all denied\nRequire ip 10.0.0.0/8", false),
            ("#Require all denied", false),
            ("", false),
        ] {
            assert_eq!(denies_all(text), closed, "{text}");
        }
    }

    #[test]
    fn closed_directories_are_found_through_links_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        for sub in ["root/a/b/c", "root/open/x", "root/.hidden", "elsewhere"] {
            fs::create_dir_all(dir.path().join(sub)).unwrap();
        }
        for closed in [
            "root/a/b",
            "root/a/b/c",
            "elsewhere",
            "root/.hidden",
            "root",
        ] {
            fs::write(
                dir.path().join(closed).join(".htaccess"),
                "Require all denied",
            )
            .unwrap();
        }
        std::os::unix::fs::symlink("../elsewhere", root.join("link")).unwrap();
        std::os::unix::fs::symlink(".", root.join("circle")).unwrap();
        let closed = closed_directories(&root);
        assert!(closed.contains(&"/a/b".to_owned()) && closed.contains(&"/link".to_owned()));
        assert!(
            !closed
                .iter()
                .any(|path| path.starts_with("/a/b/") || path.contains("hidden"))
        );
        assert!(
            !closed.contains(&String::new()),
            "the root itself is what was asked to be served"
        );
    }

    #[test]
    fn a_front_controller_shows_in_the_rewrite() {
        let dir = tempfile::tempdir().unwrap();
        let check = |text: &str| {
            fs::write(dir.path().join(".htaccess"), text).unwrap();
            rewrites_to_index(dir.path())
        };
        assert!(
            !check("RewriteRule ^ index.php [L]"),
            "there is no index.php"
        );
        fs::write(dir.path().join("index.php"), "").unwrap();
        assert!(check("RewriteEngine On\nRewriteRule ^ index.php [L]"));
        assert!(check("  rewriterule . /index.php?q=$1 [L,QSA]"));
        assert!(check("FallbackResource /index.php"));
        assert!(!check("RewriteRule ^old$ new.php"));
        assert!(!check("#RewriteRule ^ index.php"));
    }
}
