//! The directives of nginx and Apache that deny paths, as patterns of URL paths.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use howdah_import::directive::Directive;
use howdah_import::expression::{compile_path, may_match};

/// The maximum number of `.htaccess` files of a site that are read.
const MAX_HTACCESS_FILES: usize = 1000;
/// The maximum length of an `.htaccess` file that is read, in bytes.
const MAX_HTACCESS_BYTES: u64 = 1 << 20;

/// A pattern of paths that a server denies.
pub struct DeniedPattern {
    path: Option<String>,
    test: Box<dyn Fn(&str) -> bool>,
}

impl DeniedPattern {
    fn path(path: &str) -> DeniedPattern {
        let own = path.to_owned();
        DeniedPattern {
            path: Some(path.to_owned()),
            test: Box::new(move |path| path == own),
        }
    }

    fn prefix(prefix: &str) -> DeniedPattern {
        let own = prefix.to_owned();
        DeniedPattern {
            path: Some(prefix.to_owned()).filter(|prefix| prefix.starts_with('/')),
            test: Box::new(move |path| path.starts_with(&own)),
        }
    }

    /// Returns the pattern of a regular expression, which is compared with the whole path or with the last part of it.
    fn expression(expression: &str, below: &str, only_name: bool) -> Option<DeniedPattern> {
        let expression = compile_path(expression).ok()?;
        let below = below.to_owned();
        let test = move |path: &str| {
            let subject = match only_name {
                true => path.rsplit('/').next().unwrap_or_default(),
                false => path,
            };
            path.starts_with(&below) && may_match(&expression, subject)
        };
        Some(DeniedPattern {
            path: None,
            test: Box::new(test),
        })
    }

    /// Returns a path that the pattern names literally.
    pub fn literal(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns whether a path matches.
    pub fn matches(&self, path: &str) -> bool {
        (self.test)(path)
    }
}

/// Returns the locations of an nginx server that deny all clients.
pub fn nginx_patterns(server: &Directive) -> Vec<DeniedPattern> {
    let mut patterns = Vec::new();
    server.walk(&mut |location| {
        if location.name == "location" && location.inner().iter().any(denies_in_nginx) {
            patterns.extend(location_pattern(&location.args));
        }
    });
    patterns
}

fn denies_in_nginx(line: &Directive) -> bool {
    match line.name.as_str() {
        "deny" => line.arg(0) == "all",
        "return" => matches!(line.arg(0), "401" | "403" | "404" | "410" | "444"),
        "internal" => true,
        _ => false,
    }
}

fn location_pattern(args: &[String]) -> Option<DeniedPattern> {
    let (modifier, text) = match args {
        [modifier, text, ..] => (modifier.as_str(), text.as_str()),
        [text] => {
            // The modifier may be attached: `location =/x`.
            let at = text.find('/').unwrap_or(text.len());
            text.split_at(at)
        }
        [] => return None,
    };
    match modifier {
        "=" => Some(DeniedPattern::path(text)),
        "~" => DeniedPattern::expression(text, "", false),
        "~*" => DeniedPattern::expression(&format!("(?i){text}"), "", false),
        _ if text.starts_with('/') => Some(DeniedPattern::prefix(text)),
        _ => None,
    }
}

/// Returns the sections of an Apache host, of the main server and of the site's `.htaccess` files that deny all clients.
pub fn apache_patterns(
    root: &Path,
    host: Option<&Directive>,
    tree: &[Directive],
    files: &[String],
) -> Vec<DeniedPattern> {
    let mut patterns = Vec::new();
    let of_host = host.map_or(&[][..], Directive::inner).iter();
    let of_server = tree.iter().filter(|line| line.name != "virtualhost");
    for line in of_host.chain(of_server) {
        line.walk(&mut |section| {
            if section.inner().iter().any(denies_in_apache) {
                let (name, args) = (section.name.as_str(), &section.args);
                patterns.extend(section_pattern(name, args, root, ""));
            }
        });
    }
    let htaccess = files
        .iter()
        .filter_map(|file| file.strip_suffix("/.htaccess"));
    for directory in htaccess.take(MAX_HTACCESS_FILES) {
        let path = root
            .join(directory.trim_start_matches('/'))
            .join(".htaccess");
        let mut text = Vec::new();
        let read =
            File::open(path).and_then(|file| file.take(MAX_HTACCESS_BYTES).read_to_end(&mut text));
        if read.is_ok() {
            patterns.extend(htaccess_patterns(
                &String::from_utf8_lossy(&text),
                directory,
            ));
        }
    }
    patterns
}

fn denies_in_apache(line: &Directive) -> bool {
    let is = |number: usize, word: &str| line.arg(number).eq_ignore_ascii_case(word);
    match line.name.as_str() {
        "require" => is(0, "all") && is(1, "denied"),
        "deny" => is(0, "from") && is(1, "all"),
        _ => false,
    }
}

/// Returns the pattern of a section; `directory` is the URL path of the `.htaccess` file that it is in.
fn section_pattern(
    name: &str,
    args: &[String],
    root: &Path,
    directory: &str,
) -> Option<DeniedPattern> {
    let (is_expression, text) = match args {
        [tilde, text, ..] if tilde == "~" => (true, text.as_str()),
        [text, ..] => (name.ends_with("match"), text.as_str()),
        [] => return None,
    };
    match name {
        "files" | "filesmatch" => {
            let expression = match is_expression {
                true => text.to_owned(),
                false => glob_expression(text),
            };
            DeniedPattern::expression(&expression, &format!("{directory}/"), true)
        }
        "location" | "locationmatch" if is_expression => DeniedPattern::expression(text, "", false),
        "location" => Some(DeniedPattern::prefix(text)),
        "directory" if !is_expression => {
            let below = Path::new(text).strip_prefix(root).ok()?.to_str()?;
            let below = below.trim_matches('/');
            (!below.is_empty()).then(|| DeniedPattern::prefix(&format!("/{below}/")))
        }
        "directorymatch" | "directory" => DeniedPattern::expression(text, "", false),
        _ => None,
    }
}

/// Returns the expression of a shell pattern.
fn glob_expression(pattern: &str) -> String {
    let mut expression = String::from("^");
    for c in pattern.chars() {
        match c {
            '*' => expression += ".*",
            '?' => expression.push('.'),
            c if c.is_ascii_alphanumeric() => expression.push(c),
            c => expression.extend(['\\', c]),
        }
    }
    expression + "$"
}

/// Returns what an `.htaccess` file in a directory denies to all clients.
fn htaccess_patterns(text: &str, directory: &str) -> Vec<DeniedPattern> {
    let mut patterns = Vec::new();
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let line = line.trim().to_ascii_lowercase();
        let own = line.trim_end_matches('>');
        let mut words = own
            .split_whitespace()
            .map(|word| word.trim_matches(['"', '\'']).to_owned());
        let first = words.next().unwrap_or_default();
        let rest: Vec<String> = words.collect();
        if first.starts_with("</") {
            sections.pop();
        } else if let Some(name) = first.strip_prefix('<') {
            sections.push((name.to_owned(), rest));
        } else if line.starts_with("deny from all") || line.starts_with("require all denied") {
            let files = sections.iter().rfind(|(name, _)| name.starts_with("files"));
            patterns.extend(match files {
                Some((name, args)) => section_pattern(name, args, Path::new("/"), directory),
                None => Some(DeniedPattern::prefix(&format!("{directory}/"))),
            });
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(words: &[&str]) -> DeniedPattern {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        location_pattern(&words).unwrap()
    }

    #[test]
    fn locations_match_as_in_nginx() {
        assert!(location(&["=", "/a"]).matches("/a") && !location(&["=", "/a"]).matches("/ab"));
        assert!(location(&["=/a"]).matches("/a"));
        assert!(location(&["^~", "/private/"]).matches("/private/x"));
        assert_eq!(location(&["/private/"]).literal(), Some("/private/"));
        let dots = location(&["~", r"/\.(?!well-known)"]);
        assert!(dots.matches("/.env") && !dots.matches("/.well-known/x"));
        assert!(location(&["~*", r"\.SQL$"]).matches("/a.sql"));
    }

    #[test]
    fn sections_of_htaccess_files_apply_to_their_directory() {
        let text = "<Files \"secret.txt\">\n  Require all denied\n</Files>\n<IfModule x>\n<FilesMatch \"\\.(bak|sql)$\">\nDeny from all\n</FilesMatch>\n</IfModule>\n";
        let patterns = htaccess_patterns(text, "/app");
        let denied = |path: &str| patterns.iter().any(|pattern| pattern.matches(path));
        assert!(denied("/app/secret.txt") && denied("/app/deep/x.sql"));
        assert!(!denied("/secret.txt") && !denied("/app/index.php"));
        let all = htaccess_patterns("Order deny,allow\nDeny from all\n", "/private");
        assert_eq!(all[0].literal(), Some("/private/"));
    }

    #[test]
    fn directories_become_url_paths() {
        let root = Path::new("/var/www");
        let args = |text: &str| vec![text.to_owned()];
        let inside = section_pattern("directory", &args("/var/www/private"), root, "");
        assert_eq!(inside.unwrap().literal(), Some("/private/"));
        assert!(section_pattern("directory", &args("/"), root, "").is_none());
        let files = section_pattern("files", &args(".ht*"), root, "").unwrap();
        assert!(files.matches("/a/.htpasswd") && !files.matches("/a/ht"));
    }
}
