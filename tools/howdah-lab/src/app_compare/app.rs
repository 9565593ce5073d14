//! The application to measure: the directory, the pages, and PHP's environment and settings. This module parses the
//! words of a command line and reports all mistakes at once; it writes nothing and starts nothing.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The maximum number of pages: each is requested from every stack before the measurement.
const MAX_URLS: usize = 100;
/// The maximum length of a path with its query, in bytes: the limit of nginx and Apache for a request line, less a
/// margin.
const MAX_URL_BYTES: usize = 4096;
/// The host in requests if the user specifies none.
pub const DEFAULT_HOST: &str = "localhost";

/// An application and its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedApp {
    /// The application's directory, absolute.
    pub directory: PathBuf,
    /// The document root: the same directory or one below it.
    pub root: PathBuf,
    /// The script that handles paths that are not files, such as `/index.php`; `None` if there is none.
    pub front_controller: Option<String>,
    /// Whether the user specified the front controller, rather than the lab recognising it.
    pub front_controller_given: bool,
    /// What the lab recognised, as a sentence.
    pub found: String,
    /// The value of `Host` in every request.
    pub host: String,
    /// Paths with their queries, in the order of the requests.
    pub urls: Vec<String>,
    /// The headers of every request, cookies included.
    pub headers: Vec<(String, String)>,
    /// Variables in PHP's environment.
    pub environment: Vec<(String, String)>,
    /// The script of mode `worker`; `None` if there is none.
    pub worker: Option<PathBuf>,
    /// The user's php.ini; `None` if the user specified none.
    pub php_ini: Option<UserPhpIni>,
    /// The number of children that `max_children = "auto"` results in on this machine.
    pub auto_children: u32,
    /// The number of cores of this machine.
    pub cores: u32,
}

/// A php.ini of the user, read once, so all stacks and a resumed run have the same content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPhpIni {
    /// The path of the user's file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
}

impl TestedApp {
    /// Returns the host without its port.
    pub fn host_name(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
            _ => &self.host,
        }
    }

    /// Returns the names of the headers: the values of `Cookie` and others grant access, so no report contains them.
    pub fn header_names(&self) -> Vec<&str> {
        self.headers.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns whether requests identify their user, so that a page cache cannot share the responses.
    pub fn is_personal(&self) -> bool {
        let personal = ["cookie", "authorization"];
        self.headers
            .iter()
            .any(|(name, _)| personal.contains(&name.to_ascii_lowercase().as_str()))
    }
}

/// Parses the pages as they were typed: `/`, `/blog/?page=2`, or `http://HOST/…`, whose host is sent and never
/// contacted.
///
/// # Errors
/// Returns a sentence for each mistake.
pub fn parse_pages(words: &[String]) -> Result<(String, Vec<String>), Vec<String>> {
    let mut mistakes = Vec::new();
    let mut host: Option<String> = None;
    let mut urls: Vec<String> = Vec::new();
    for word in words {
        match parse_page(word) {
            Ok((named, path)) => {
                match (&host, named) {
                    (Some(before), Some(named)) if *before != named => mistakes.push(format!(
                        "--url {word}: the host is `{named}`, but an earlier --url has `{before}`: a comparison \
                         measures only one site"
                    )),
                    (_, Some(named)) => host = Some(named),
                    (_, None) => {}
                }
                if !urls.contains(&path) {
                    urls.push(path);
                }
            }
            Err(why) => mistakes.push(format!("--url {word}: {why}")),
        }
    }
    if words.is_empty() {
        mistakes.push("--app needs the pages to request, such as --url / --url /blog/".to_owned());
    }
    if urls.len() > MAX_URLS {
        mistakes.push(format!(
            "--url: {} pages; at most {MAX_URLS} are measured",
            urls.len()
        ));
    }
    match mistakes.is_empty() {
        true => Ok((host.unwrap_or_else(|| DEFAULT_HOST.to_owned()), urls)),
        false => Err(mistakes),
    }
}

/// Parses one page: the host, if it names one, and path and query.
fn parse_page(word: &str) -> Result<(Option<String>, String), String> {
    if let Some(bad) = word
        .chars()
        .find(|c| c.is_control() || !c.is_ascii() || " \"<>\\^`{|}".contains(*c))
    {
        return Err(format!(
            "{bad:?} is not allowed in a URL: encode it (a space, for example, is %20)"
        ));
    }
    if word.len() > MAX_URL_BYTES {
        return Err(format!("it is longer than {MAX_URL_BYTES} bytes"));
    }
    // A fragment belongs to the browser and is never sent.
    let word = word.split('#').next().unwrap_or_default();
    if word.starts_with('/') && !word.starts_with("//") {
        return Ok((None, word.to_owned()));
    }
    let lower = word.to_ascii_lowercase();
    if lower.starts_with("https://") {
        return Err(
            "requests are sent to the stacks without TLS: write http://…, and if the application requires https, \
             add the header that its proxy would send, such as --header 'X-Forwarded-Proto: https'"
                .to_owned(),
        );
    }
    let Some(rest) = lower
        .starts_with("http://")
        .then(|| &word["http://".len()..])
    else {
        return Err("expected a path, such as /blog/, or http://HOST/blog/".to_owned());
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if host.is_empty() || !host.chars().all(plain) {
        return Err(format!("`{host}` is not a host"));
    }
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    };
    Ok((Some(host.to_owned()), path))
}

/// Parses `NAME: VALUE` from each `--header`, and joins all `--cookie` into one `Cookie` header.
pub fn parse_headers(
    headers: &[String],
    cookies: &[String],
) -> Result<Vec<(String, String)>, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut out = Vec::new();
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    let value = |text: &str| !text.chars().any(char::is_control);
    for word in headers {
        match word.split_once(':') {
            Some((name, text))
                if !name.is_empty() && name.bytes().all(token) && value(text.trim()) =>
            {
                let ours = ["host", "connection", "content-length", "transfer-encoding"];
                match ours.contains(&name.to_ascii_lowercase().as_str()) {
                    true => mistakes.push(format!(
                        "--header: `{name}` is set by the load tester; to set a host, use --url http://HOST/…"
                    )),
                    false => out.push((name.to_owned(), text.trim().to_owned())),
                }
            }
            // The value may be a secret, so the message does not repeat it.
            _ => mistakes.push("--header: expected `NAME: VALUE`".to_owned()),
        }
    }
    for cookie in cookies {
        if !cookie.contains('=') || !value(cookie) {
            mistakes.push("--cookie: expected `NAME=VALUE`".to_owned());
        }
    }
    if !cookies.is_empty() {
        out.push(("Cookie".to_owned(), cookies.join("; ")));
    }
    match mistakes.is_empty() {
        true => Ok(out),
        false => Err(mistakes),
    }
}

/// Parses `NAME=VALUE` from each `--env`; only characters that every stack's configuration can contain are permitted.
pub fn parse_environment(words: &[String]) -> Result<Vec<(String, String)>, Vec<String>> {
    let mut mistakes = Vec::new();
    let mut out = Vec::new();
    for word in words {
        let Some((name, value)) = word.split_once('=') else {
            mistakes.push(format!("--env {word}: expected NAME=VALUE"));
            continue;
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let digit = |c: char| c.is_ascii_digit();
        if name.is_empty() || !name.chars().all(plain) || name.starts_with(digit) {
            mistakes.push(format!(
                "--env: `{name}` is not a name: expected letters, digits and `_`"
            ));
        } else if value.chars().any(|c| c.is_control() || "\"\\$".contains(c)) {
            mistakes.push(format!(
                "--env {name}: a quotation mark, `\\`, `$` or line end in the value would be read \
                 differently by php-fpm, Apache and Howdah: let the application read the value from a file"
            ));
        } else {
            out.push((name.to_owned(), value.to_owned()));
        }
    }
    match mistakes.is_empty() {
        true => Ok(out),
        false => Err(mistakes),
    }
}

/// Fails if a path cannot be written into every stack's configuration unchanged.
pub fn check_path_characters(path: &Path) -> Result<(), String> {
    let plain = |c: char| c.is_alphanumeric() || "/._-+@,=~".contains(c);
    match path.to_str() {
        Some(text) if text.chars().all(plain) => Ok(()),
        Some(text) => Err(format!(
            "{text}: {:?} in a path has another meaning in nginx's or Apache's configuration: give a symbolic link \
             to the directory, with a path that does not contain this character",
            text.chars().find(|c| !plain(*c)).unwrap_or(' ')
        )),
        None => Err(format!(
            "{}: the path is not UTF-8: give a symbolic link to the directory instead",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn parse_pages_takes_paths_and_urls_of_one_host() {
        let (host, urls) = parse_pages(&words(&["/", "/blog/?p=2#top", "/"])).unwrap();
        assert_eq!(
            (host.as_str(), urls),
            ("localhost", words(&["/", "/blog/?p=2"]))
        );
        let (host, urls) = parse_pages(&words(&["http://shop.test:81?a", "/b"])).unwrap();
        assert_eq!(
            (host.as_str(), urls),
            ("shop.test:81", words(&["/?a", "/b"]))
        );
    }

    #[test]
    fn parse_pages_reports_every_invalid_page() {
        for (word, part) in [
            ("blog/", "expected a path, such as /blog/"),
            ("//cdn/x", "expected a path"),
            ("ftp://x/", "expected a path"),
            ("https://x/", "X-Forwarded-Proto"),
            ("http:///x", "`` is not a host"),
            ("http://u@x/", "`u@x` is not a host"),
            ("/a b", "' ' is not allowed in a URL"),
            ("/{seq}", "'{' is not allowed in a URL"),
            ("/\u{e9}", "encode it"),
        ] {
            let mistakes = parse_pages(&words(&[word, "/"])).unwrap_err();
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            assert!(mistakes[0].contains(part), "{mistakes:?}");
        }
        let two = parse_pages(&words(&["http://a/", "http://b/"])).unwrap_err();
        assert!(
            two[0].contains("a comparison measures only one site"),
            "{two:?}"
        );
        assert!(parse_pages(&[]).unwrap_err()[0].contains("--url / --url"));
    }

    #[test]
    fn header_mistakes_do_not_repeat_secrets() {
        let mistakes = parse_headers(
            &words(&["Authorization Basic c2VjcmV0"]),
            &words(&["secret"]),
        )
        .unwrap_err();
        assert_eq!(mistakes.len(), 2);
        assert!(!mistakes.join("").to_lowercase().contains("c2vjcmv0"));
        let fields = parse_headers(&words(&["X-A:  b "]), &words(&["a=b", "c=d"])).unwrap();
        let expected = [("X-A", "b"), ("Cookie", "a=b; c=d")];
        assert_eq!(
            fields,
            expected.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec()
        );
        assert!(parse_headers(&words(&["Host: x"]), &[]).is_err());
    }

    #[test]
    fn environment_that_stacks_read_differently_is_refused() {
        assert_eq!(
            parse_environment(&words(&["A_1=b c"])).unwrap(),
            [("A_1".to_owned(), "b c".to_owned())]
        );
        for bad in ["A", "1A=b", "A-B=c", "A=\"", "A=$HOME", "A=b\n"] {
            assert_eq!(
                parse_environment(&words(&[bad])).unwrap_err().len(),
                1,
                "{bad}"
            );
        }
    }

    #[test]
    fn path_with_special_characters_is_refused() {
        assert!(check_path_characters(Path::new("/srv/site-1.2/web")).is_ok());
        let why = check_path_characters(Path::new("/srv/my site")).unwrap_err();
        assert!(why.contains("' '") && why.contains("symbolic link"));
    }
}
