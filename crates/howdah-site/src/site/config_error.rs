//! Mistakes in a site's configuration.

use std::fmt;
use std::path::PathBuf;

use super::template::TemplateError;
use crate::refusal::Refusal;
use crate::watched_file::UnreadableFile;

/// A mistake in a site's configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// The root, or the root of an internal location or of `[site.sendfile]`, cannot be opened.
    Root(PathBuf, std::io::Error),
    /// Neither a host name, nor an address, nor `*.` and a name.
    BadHost(String),
    /// A status that is not allowed here, and a description of those that are.
    BadStatus(String, &'static str),
    /// The target of a redirect or rewrite cannot be parsed.
    Template(TemplateError),
    /// A client could choose the host that a redirect leads to.
    OpenRedirect {
        /// The target of the redirect.
        target: String,
        /// The variable that may continue or replace the host.
        variable: String,
    },
    /// A redirect leads back to a path that its own rule matches.
    RedirectLoop(String),
    /// The target of a rewrite or of `try_files` is not an absolute path.
    RelativeTarget(String),
    /// Not a header name, or a header that the server sets itself.
    BadHeaderName(String),
    /// Not a valid header value.
    BadHeaderValue(String),
    /// An extension without its dot, or without a name.
    BadExtension(String),
    /// An index name that is empty or has a slash.
    BadIndex(String),
    /// The front controller is not the path of a script.
    BadFrontController(String),
    /// `=STATUS` is not the last entry: the entries after it are never reached.
    UnreachableTryFile,
    /// The prefix of an internal location does not begin and end with a slash.
    BadInternalPrefix(String),
    /// An error page that is never sent: a script, which would be sent as text, or a file that the site denies.
    BadErrorPage(String, Refusal),
    /// A file of users or groups cannot be read.
    PasswordFile(UnreadableFile),
    /// A list of networks cannot be read, or has a line that is not a network.
    NetworkFile(UnreadableFile),
    /// Two sites have the same host: the host, and the names of the sites.
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
                "`{host}` is not a host: write `example.org`, `*.example.org` or an address, without a port"
            ),
            ConfigError::BadStatus(status, allowed) => {
                write!(
                    f,
                    "status `{status}` cannot be used here; the status must be {allowed}"
                )
            }
            ConfigError::Template(error) => error.fmt(f),
            ConfigError::OpenRedirect { target, variable } => write!(
                f,
                "OpenRedirect: `{target}`: a client could choose the host of the redirect, because {variable} does not always begin with a slash; write `/` in front of it, or use $request_uri"
            ),
            ConfigError::RedirectLoop(target) => write!(
                f,
                "RedirectLoop: `{target}` leads back to a path that the rule matches, so browsers give up; add a condition, or name another path or host"
            ),
            ConfigError::RelativeTarget(target) => {
                write!(
                    f,
                    "`{target}`: an internal target must be a path that begins with `/`"
                )
            }
            ConfigError::BadHeaderName(name) => {
                write!(
                    f,
                    "`{name}` is not a valid header name, or the server sets this header itself"
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
                    "`{text}` is not an extension: write it with its dot, such as `.php`"
                )
            }
            ConfigError::BadIndex(text) => {
                write!(
                    f,
                    "`{text}` is not an index file: write a file name without a slash"
                )
            }
            ConfigError::BadFrontController(text) => {
                write!(
                    f,
                    "front controller `{text}`: write the URL path of a script, such as `/index.php`"
                )?;
                match text.ends_with(".html") || text.ends_with(".htm") {
                    true => write!(
                        f,
                        "; for a file, use try_files = [\"$uri\", \"{text}\"] instead"
                    ),
                    false => Ok(()),
                }
            }
            ConfigError::UnreachableTryFile => {
                f.write_str("entries of try_files after `=STATUS` are never reached")
            }
            ConfigError::BadInternalPrefix(text) => {
                write!(f, "internal prefix `{text}` must begin and end with `/`")
            }
            ConfigError::BadErrorPage(page, refusal) => {
                write!(
                    f,
                    "error page `{page}` is never sent to clients ({refusal}): name another file"
                )
            }
            ConfigError::DuplicateHost(host, one, two) => {
                write!(
                    f,
                    "host `{host}` belongs to site `{one}` and to site `{two}`"
                )
            }
            ConfigError::PasswordFile(why) => {
                write!(f, "no user could log in: cannot read {why}")
            }
            ConfigError::NetworkFile(why) => write!(f, "from_file: {why}"),
            ConfigError::NoSite => f.write_str("no site is configured"),
        }
    }
}

impl std::error::Error for ConfigError {}
