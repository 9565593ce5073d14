//! Mistakes in a site's configuration, by name, and the checks that need no file. Roots are opened
//! by [`Site::new`](super::Site::new).

use std::fmt;
use std::path::PathBuf;

use howdah_proto::response::is_field_value;

use super::access::error_page_refusal;
use super::config::{Rule, RuleAction, SiteConfig, TryFile};
use super::path::UrlPath;
use super::refusal::Refusal;
use super::template::{Template, TemplateError};

/// A mistake in a site's configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// The root (or an internal one) cannot be opened.
    Root(PathBuf, std::io::Error),
    /// Not a host name, address, or `*.` and a name.
    BadHost(String),
    /// A status that cannot stand there; what can.
    BadStatus(String, &'static str),
    /// The target of a redirect or rewrite cannot be parsed.
    Template(TemplateError),
    /// An internal target that is no absolute path.
    RelativeTarget(String),
    /// Not a header name, or one the server sets itself.
    BadHeaderName(String),
    /// Not a valid header value.
    BadHeaderValue(String),
    /// An extension without its dot, or without name.
    BadExtension(String),
    /// An index name with a slash, or none.
    BadIndex(String),
    /// The front controller is not the path of a script.
    BadFrontController(String),
    /// `=STATUS` before the end: nothing after it is reached.
    UnreachableTryFile,
    /// A prefix of an internal location must begin and end with a slash.
    BadInternalPrefix(String),
    /// An error page that is never sent: a script, which would be sent as text, or a file that the
    /// site denies.
    BadErrorPage(String, Refusal),
    /// Two sites answer for one host.
    DuplicateHost(String, String, String),
    /// The configuration has no site.
    NoSite,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Root(path, error) => {
                write!(f, "cannot serve the directory {}: {error}", path.display())
            }
            ConfigError::BadHost(host) => write!(
                f,
                "`{host}` is no host: write `example.org`, `*.example.org` or an address, without port"
            ),
            ConfigError::BadStatus(status, may) => {
                write!(f, "status `{status}` cannot be used here; it may be {may}")
            }
            ConfigError::Template(error) => error.fmt(f),
            ConfigError::RelativeTarget(target) => {
                write!(
                    f,
                    "`{target}`: an internal target is a path and begins with `/`"
                )
            }
            ConfigError::BadHeaderName(name) => {
                write!(
                    f,
                    "`{name}` is no header name, or one that the server sets itself"
                )
            }
            ConfigError::BadHeaderValue(value) => {
                write!(
                    f,
                    "`{}` cannot be the value of a header",
                    value.escape_debug()
                )
            }
            ConfigError::BadExtension(text) => {
                write!(
                    f,
                    "`{text}` is no extension: write it with its dot, as `.php`"
                )
            }
            ConfigError::BadIndex(text) => {
                write!(
                    f,
                    "`{text}` is no index file: write a file name without slash"
                )
            }
            ConfigError::BadFrontController(text) => write!(
                f,
                "front controller `{text}`: write the URL path of a script, as `/index.php`"
            ),
            ConfigError::UnreachableTryFile => {
                f.write_str("entries of try_files after `=STATUS` are never reached")
            }
            ConfigError::BadInternalPrefix(text) => {
                write!(f, "internal prefix `{text}` must begin and end with `/`")
            }
            ConfigError::BadErrorPage(page, refusal) => {
                write!(
                    f,
                    "error page `{page}` is never sent ({refusal}): error pages are sent as they are, and closed files are closed to them"
                )
            }
            ConfigError::DuplicateHost(host, one, two) => {
                write!(
                    f,
                    "host `{host}` belongs to site `{one}` and to site `{two}`"
                )
            }
            ConfigError::NoSite => f.write_str("there is no site"),
        }
    }
}

impl std::error::Error for ConfigError {}

/// All mistakes of `config` that show without opening anything.
pub fn check(config: &SiteConfig) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for extension in &config.php_extensions {
        if extension.len() < 2 || !extension.starts_with('.') || extension.contains('/') {
            errors.push(ConfigError::BadExtension(extension.clone()));
        }
    }
    for index in &config.index {
        if index.is_empty() || index.contains(['/', '\0']) || index == "." || index == ".." {
            errors.push(ConfigError::BadIndex(index.clone()));
        }
    }
    if let Some(controller) = &config.front_controller {
        let script = &controller.script;
        let is_script = config.php_extensions.iter().any(|e| script.ends_with(&**e));
        let is_path = UrlPath::from_decoded(script.as_bytes()).is_ok();
        if !is_path || !is_script || script.contains('?') {
            errors.push(ConfigError::BadFrontController(script.clone()));
        }
    }
    let status = config
        .try_files
        .iter()
        .position(|t| matches!(t, TryFile::Status(_)));
    if let Some(at) = status
        && (at + 1 < config.try_files.len() || config.front_controller.is_some())
    {
        errors.push(ConfigError::UnreachableTryFile);
    }
    for rule in &config.rules {
        check_rule(rule, &mut errors);
    }
    for rule in &config.static_rules {
        for value in [&rule.cache_control, &rule.content_type]
            .into_iter()
            .flatten()
        {
            check_value(value, &mut errors);
        }
    }
    for (_, media_type) in &config.types {
        check_value(media_type, &mut errors);
    }
    for location in &config.internal {
        let prefix = &location.prefix;
        if !prefix.starts_with('/') || !prefix.ends_with('/') {
            errors.push(ConfigError::BadInternalPrefix(prefix.clone()));
        }
    }
    for (status, page) in &config.error_pages {
        if !(400..600).contains(status) {
            errors.push(ConfigError::BadStatus(status.to_string(), "400 to 599"));
        }
        if let Some(refusal) = error_page_refusal(config, page) {
            errors.push(ConfigError::BadErrorPage(page.clone(), refusal));
        }
    }
    errors
}

fn check_value(value: &str, errors: &mut Vec<ConfigError>) {
    if value.is_empty() || !is_field_value(value.as_bytes()) {
        errors.push(ConfigError::BadHeaderValue(value.to_owned()));
    }
}

fn check_rule(rule: &Rule, errors: &mut Vec<ConfigError>) {
    let mut template = |to: &Template| {
        if let Err(error) = to.check(&rule.pattern) {
            errors.push(ConfigError::Template(error));
        }
    };
    match &rule.action {
        RuleAction::Redirect { status, to } => {
            template(to);
            if ![301, 302, 303, 307, 308].contains(status) {
                let may = "301, 302, 303, 307 or 308";
                errors.push(ConfigError::BadStatus(status.to_string(), may));
            }
        }
        RuleAction::Rewrite(to) => {
            template(to);
            let start = to.literal_start();
            if !start.is_empty() && !start.starts_with(b"/") {
                let text = String::from_utf8_lossy(start).into_owned();
                errors.push(ConfigError::RelativeTarget(text));
            }
        }
        RuleAction::Deny(status) => {
            if ![403, 404, 410].contains(status) {
                errors.push(ConfigError::BadStatus(
                    status.to_string(),
                    "403, 404 or 410",
                ));
            }
        }
        RuleAction::Return {
            status,
            content_type,
            body,
        } => {
            if !body.is_empty() {
                check_value(content_type, errors);
            }
            let redirect = [301, 302, 303, 304, 307, 308].contains(status);
            if !(200..600).contains(status) || redirect {
                let may = "200 to 599, but for a redirect use `redirect`";
                errors.push(ConfigError::BadStatus(status.to_string(), may));
            }
        }
        // That it is there is known where the pools are: `ServerConfig::new`.
        RuleAction::Pool(_) | RuleAction::Cgi(_) | RuleAction::Authorize(_) => {}
        RuleAction::Header(edit) => {
            if let Err(error) = edit.check() {
                errors.push(error);
            }
        }
    }
}
