//! Whether an `.htaccess` file rewrites everything to `index.php`: how an application without
//! configuration says that it has a front controller. Looked at once, at the start.

use std::fs;
use std::io::Read;
use std::path::Path;

/// A longer file is not one of the short ones meant here.
const MAX_LENGTH: u64 = 64 * 1024;

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

#[cfg(test)]
mod tests {
    use super::*;

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
