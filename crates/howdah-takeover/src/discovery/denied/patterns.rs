//! The directives of nginx and Apache that deny paths, as patterns of URL paths.

use std::path::Path;

use howdah_import::directive::Directive;
use howdah_import::expression::{compile_path, may_match};

use super::super::files::read_regular;

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

    /// Returns the pattern of a directory without the directories below it that `opened` names.
    fn directory(url: &str, opened: &[String]) -> DeniedPattern {
        let own = format!("{url}/");
        let is_below = |other: &&String| other.len() > url.len() && other.starts_with(&own);
        let opened: Vec<String> = opened
            .iter()
            .filter(is_below)
            .map(|url| format!("{url}/"))
            .collect();
        let pattern = DeniedPattern::prefix(&own);
        let test = move |path: &str| {
            path.starts_with(&own) && !opened.iter().any(|opened| path.starts_with(opened))
        };
        DeniedPattern {
            test: Box::new(test),
            ..pattern
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
    let read = |directory: &str| {
        let path = root
            .join(directory.trim_start_matches('/'))
            .join(".htaccess");
        let text = read_regular(&path, MAX_HTACCESS_BYTES).ok()?;
        let lines = access_lines(&String::from_utf8_lossy(&text));
        Some((directory.to_owned(), lines))
    };
    let files: Vec<(String, Vec<AccessLine>)> =
        htaccess.take(MAX_HTACCESS_FILES).filter_map(read).collect();
    let opens = |(_, lines): &&(String, Vec<AccessLine>)| opens_directory(lines);
    let opened = files.iter().filter(opens).map(|(url, _)| url.clone());
    let opened: Vec<String> = opened.collect();
    for (directory, lines) in &files {
        patterns.extend(htaccess_patterns(lines, directory, &opened));
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

/// A line of an `.htaccess` file that denies access to all clients, or grants it, if they send GET requests.
struct AccessLine {
    denies: bool,
    /// Name and arguments of the `Files` or `FilesMatch` section that it is in.
    files: Option<(String, Vec<String>)>,
}

fn access_lines(text: &str) -> Vec<AccessLine> {
    let mut lines = Vec::new();
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
        } else if sections.iter().all(applies_to_get) {
            let is = |text: &str| line.starts_with(text);
            let denies = is("deny from all") || is("require all denied");
            if denies || is("allow from all") || is("require all granted") {
                let files = sections.iter().rfind(|(name, _)| name.starts_with("files"));
                let files = files.cloned();
                lines.push(AccessLine { denies, files });
            }
        }
    }
    lines
}

/// Returns whether the lines of a section apply to GET requests.
fn applies_to_get((name, methods): &(String, Vec<String>)) -> bool {
    let names_get = methods.iter().any(|method| method == "get");
    match name.as_str() {
        "limit" => names_get,
        "limitexcept" => !names_get,
        _ => true,
    }
}

/// Returns whether a directory is open although one above it is denied.
fn opens_directory(lines: &[AccessLine]) -> bool {
    let mut of_directory = lines.iter().filter(|line| line.files.is_none()).peekable();
    of_directory.peek().is_some() && of_directory.all(|line| !line.denies)
}

/// Returns what the `.htaccess` file in a directory denies. The files in `opened` open theirs again.
fn htaccess_patterns(
    lines: &[AccessLine],
    directory: &str,
    opened: &[String],
) -> Vec<DeniedPattern> {
    let pattern = |line: &AccessLine| match &line.files {
        Some((name, args)) => section_pattern(name, args, Path::new("/"), directory),
        None => Some(DeniedPattern::directory(directory, opened)),
    };
    let denials = lines.iter().filter(|line| line.denies);
    denials.filter_map(pattern).collect()
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
        let patterns = htaccess_patterns(&access_lines(text), "/app", &[]);
        let denied = |path: &str| patterns.iter().any(|pattern| pattern.matches(path));
        assert!(denied("/app/secret.txt") && denied("/app/deep/x.sql"));
        assert!(!denied("/secret.txt") && !denied("/app/index.php"));
        let lines = access_lines("Order deny,allow\nDeny from all\n");
        let all = htaccess_patterns(&lines, "/private", &["/private/open".to_owned()]);
        assert_eq!(all[0].literal(), Some("/private/"));
        assert!(all[0].matches("/private/x") && !all[0].matches("/private/open/x"));
        assert!(opens_directory(&access_lines("Allow from all\n")));
        assert!(!opens_directory(&lines));
    }

    #[test]
    fn sections_for_other_methods_deny_no_page() {
        let denies = |section: &str| {
            let text = format!("<{section}>\nRequire all denied\n</X>\n");
            !htaccess_patterns(&access_lines(&text), "", &[]).is_empty()
        };
        assert!(!denies("LimitExcept GET POST") && denies("LimitExcept POST"));
        assert!(!denies("Limit PUT DELETE") && denies("Limit GET"));
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
