//! The typed configuration of a site, made by the configuration reader (or by `recognise.rs` when there is no file).
//! This module parses no text except patterns and targets, whose constructors report mistakes. The documentation of
//! each field gives its key in the configuration file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use howdah_proto::response::{is_field_value, is_token};
use http::uri::PathAndQuery;

use super::condition::RuleConditions;
use super::config_error::ConfigError;
use super::pattern::PathPattern;
use super::template::RuleTemplate;
use crate::authentication::Authentication;
pub use crate::cache_config::CacheConfig;
use crate::docroot::root::Symlinks;
use crate::limiter::ClientLimit;
use crate::network_file::NetworkFile;
use crate::proxy_config::ServerGroupConfig;

/// One `[[site]]` of the configuration, checked but not yet opened.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// `name`: the site's name in logs and status.
    pub name: String,
    /// `hosts`: the hosts of the site. The first site also answers for all other hosts.
    pub hosts: Vec<HostPattern>,
    /// `listen`: the only listeners at which the site answers, as [`ConnectionInfo`](howdah_http::ConnectionInfo) names
    /// them. If empty, the site answers at the listeners of the server.
    pub listen: Vec<String>,
    /// The port that redirects to HTTPS use, if the site has listeners with TLS of its own. `None` for the server's
    /// port.
    pub https_port: Option<u16>,
    /// `root`: the directory that is served.
    pub root: PathBuf,
    /// `htaccess`: how `.htaccess` files are treated.
    pub htaccess: HtaccessMode,
    /// `symlinks`: what links below the root may point to.
    pub symlinks: Symlinks,
    /// `index`: the file names that are tried in a directory, in order.
    pub index: Vec<String>,
    /// `try_files`: the entries that are tried for a path, in order. After them come `front_controller` and then a 404
    /// response.
    pub try_files: Vec<TryFile>,
    /// `front_controller`: the script for every path that is not a file.
    pub front_controller: Option<FrontController>,
    /// `pool`: the pool that runs the scripts.
    pub pool: String,
    /// The script that the pool's processes have booted, if the pool has mode `worker` and the root has no script of
    /// its own. It receives every request that names no file, and may lie anywhere.
    pub worker: Option<PathBuf>,
    /// `php_extensions`: the extensions of scripts, with the dot.
    pub php_extensions: Vec<String>,
    /// `deny`: paths that are never sent or run, whatever led there.
    pub deny: Vec<PathPattern>,
    /// Paths below which the recognised application keeps files that are never sent or run. In contrast to `deny`, they
    /// say nothing about the application's pages (`Site::denied_file`).
    pub deny_files: Vec<PathPattern>,
    /// `expose`: paths that are sent although their name is on the list of names that are never sent
    /// (`howdah_http1::hidden`).
    pub expose: Vec<PathPattern>,
    /// `[[site.rule]]`, in order.
    pub rules: Vec<SiteRule>,
    /// `cache_control` and `type` of `[[site.rule]]`: the first match determines how a file is sent.
    pub static_rules: Vec<StaticRule>,
    /// `[site.types]`: media types by extension (without dot, lower case), which take precedence over the built-in
    /// ones.
    pub types: Vec<(String, String)>,
    /// `[site.sendfile]`: the targets of `X-Accel-Redirect`.
    pub internal: Vec<InternalLocation>,
    /// `[site.sendfile]`: directories whose files a script may name by `X-Sendfile`.
    pub sendfile_roots: Vec<PathBuf>,
    /// `[site.env]`: environment variables of the site's scripts.
    pub env: Vec<(String, String)>,
    /// Variables of the server's own environment that conditions use.
    pub server_env: Vec<(String, String)>,
    /// `[site.php_value]`: php.ini settings that scripts may change.
    pub php_value: Vec<(String, String)>,
    /// `[site.php_admin_value]`: php.ini settings that scripts cannot change.
    pub php_admin_value: Vec<(String, String)>,
    /// `max_body_size`, in bytes: a longer request body is refused with status 413. 0 for no limit.
    pub max_body_size: u64,
    /// `request_buffering`: how request bodies are passed to the script.
    pub request_buffering: RequestBuffering,
    /// `[site.error_pages]`: status, and the file below the root that is sent for it without changes.
    pub error_pages: Vec<(u16, String)>,
    /// `https_redirect`: whether requests without TLS are redirected to HTTPS.
    pub https_redirect: bool,
    /// `hsts`: the value of `Strict-Transport-Security` in responses over HTTPS.
    pub hsts: Option<String>,
    /// `cache` and the options whose names begin with it; `None` if the cache is off.
    pub cache: Option<CacheConfig>,
}

impl SiteConfig {
    /// Returns the patterns of all files that are never sent or run.
    pub(super) fn denials(&self) -> impl Iterator<Item = &PathPattern> {
        self.deny.iter().chain(&self.deny_files)
    }

    /// Returns the numbers of the rules that require authentication or authorization before a response.
    pub(super) fn guards(&self) -> impl Iterator<Item = usize> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(number, rule)| rule.action.is_guard().then_some(number))
    }

    /// Returns the numbers of the rules that limit clients.
    pub(super) fn limits(&self) -> impl Iterator<Item = usize> {
        let rules = self.rules.iter().enumerate();
        let limits = |rule: &SiteRule| matches!(rule.action, RuleAction::Limit(_));
        rules.filter_map(move |(number, rule)| limits(rule).then_some(number))
    }

    /// Returns the lists of networks that the rules use.
    pub fn network_files(&self) -> impl Iterator<Item = &Arc<NetworkFile>> {
        let rules = self.rules.iter();
        rules.flat_map(|rule| rule.conditions.network_files())
    }

    /// Returns the user and password requirements of the rules.
    pub fn authentications(&self) -> impl Iterator<Item = &Arc<Authentication>> {
        self.rules.iter().filter_map(|rule| match &rule.action {
            RuleAction::Authenticate(demand) => Some(demand),
            _ => None,
        })
    }

    /// Returns whether a rewrite or `try_files` may lead to scripts that neither the path nor the front controller
    /// names.
    pub(super) fn leads_to_other_scripts(&self) -> bool {
        let rewrites = |rule: &SiteRule| matches!(rule.action, RuleAction::Rewrite(_));
        self.rules.iter().any(rewrites)
            || self
                .try_files
                .iter()
                .any(|entry| matches!(entry, TryFile::Target(_)))
    }

    /// Returns a configuration for tests, benchmarks and examples, which read no options.
    #[doc(hidden)]
    pub fn for_tests(name: impl Into<String>, root: impl Into<PathBuf>) -> SiteConfig {
        SiteConfig {
            index: ["index.php", "index.html", "index.htm"]
                .map(str::to_owned)
                .to_vec(),
            try_files: vec![TryFile::File, TryFile::Directory],
            pool: "www".to_owned(),
            php_extensions: vec![".php".to_owned()],
            max_body_size: 1 << 30,
            ..SiteConfig::empty(name, root)
        }
    }

    /// Returns an empty configuration, which the options fill in.
    pub fn empty(name: impl Into<String>, root: impl Into<PathBuf>) -> SiteConfig {
        SiteConfig {
            name: name.into(),
            hosts: Vec::new(),
            listen: Vec::new(),
            https_port: None,
            root: root.into(),
            htaccess: HtaccessMode::Deny,
            symlinks: Symlinks::Follow,
            index: Vec::new(),
            try_files: Vec::new(),
            front_controller: None,
            pool: String::new(),
            worker: None,
            php_extensions: Vec::new(),
            deny: Vec::new(),
            deny_files: Vec::new(),
            expose: Vec::new(),
            rules: Vec::new(),
            static_rules: Vec::new(),
            types: Vec::new(),
            internal: Vec::new(),
            sendfile_roots: Vec::new(),
            env: Vec::new(),
            server_env: Vec::new(),
            php_value: Vec::new(),
            php_admin_value: Vec::new(),
            max_body_size: 0,
            request_buffering: RequestBuffering::On,
            error_pages: Vec::new(),
            https_redirect: false,
            hsts: None,
            cache: None,
        }
    }
}

/// How Apache's `.htaccess` files are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HtaccessMode {
    /// `on`: they determine how every request is handled, as under Apache.
    On,
    /// `deny`: the server refuses the paths that they deny, and ignores their other directives.
    Deny,
    /// `off`: they are not read.
    Off,
}

/// A host that a site answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `example.org`, lower case.
    Exact(String),
    /// `*.example.org`: any name below, of any depth, but not `example.org`. The value is `.example.org`.
    Below(String),
}

impl HostPattern {
    /// Parses `example.org`, `*.example.org`, `192.0.2.1` or `[2001:db8::1]`.
    pub fn parse(text: &str) -> Result<HostPattern, ConfigError> {
        let bad = || ConfigError::BadHost(text.to_owned());
        let name = text.to_ascii_lowercase();
        let (below, name) = match name.strip_prefix('*') {
            Some(rest) => (true, rest),
            None => (false, &name[..]),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let bracketed = name.starts_with('[') && name.ends_with(']') && !below;
        let inner = name.trim_start_matches('[').trim_end_matches(']');
        let fits = if bracketed {
            inner.parse::<std::net::Ipv6Addr>().is_ok()
        } else if below {
            name.starts_with('.') && name.len() > 1 && name.chars().all(plain)
        } else {
            !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
        };
        if !fits || name.ends_with('.') || name.contains("..") {
            return Err(bad());
        }
        Ok(if below {
            HostPattern::Below(name.to_owned())
        } else {
            HostPattern::Exact(name.to_owned())
        })
    }

    /// Returns the first of these patterns that is a full name.
    pub fn first_name(hosts: &[HostPattern]) -> Option<&str> {
        hosts.iter().find_map(|host| match host {
            HostPattern::Exact(name) => Some(name.as_str()),
            HostPattern::Below(_) => None,
        })
    }

    /// Returns whether the pattern matches this name, which has no port.
    pub fn is_for(&self, name: &[u8]) -> bool {
        match self {
            HostPattern::Exact(own) => own.as_bytes().eq_ignore_ascii_case(name),
            HostPattern::Below(end) => {
                let start = name.len().checked_sub(end.len()).filter(|start| *start > 0);
                start.is_some_and(|start| name[start..].eq_ignore_ascii_case(end.as_bytes()))
            }
        }
    }
}

/// One entry of `try_files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TryFile {
    /// `$uri`: the path as a file or script.
    File,
    /// `$uri/`: the path as a directory with an index file.
    Directory,
    /// A path made from a template (`/cache$uri.html`, `/index.php?$query`): a file or script.
    Target(RuleTemplate),
    /// `=404`: this status. Entries after it are never reached.
    Status(u16),
}

impl TryFile {
    /// Parses one entry of `try_files`.
    pub fn parse(text: &str) -> Result<TryFile, ConfigError> {
        match text {
            "$uri" => Ok(TryFile::File),
            "$uri/" => Ok(TryFile::Directory),
            _ => {
                if let Some(status) = text.strip_prefix('=') {
                    return match status.parse() {
                        Ok(status) if (400..600).contains(&status) => Ok(TryFile::Status(status)),
                        _ => Err(ConfigError::BadStatus(status.to_owned(), "400 to 599")),
                    };
                }
                let template = RuleTemplate::parse(text).map_err(ConfigError::Template)?;
                template
                    .check(&PathPattern::Exact(Vec::new()))
                    .map_err(ConfigError::Template)?;
                if !text.starts_with('/') && !text.starts_with("$uri") {
                    return Err(ConfigError::RelativeTarget(text.to_owned()));
                }
                Ok(TryFile::Target(template))
            }
        }
    }
}

/// Writes the entry as in the configuration.
impl fmt::Display for TryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryFile::File => f.write_str("$uri"),
            TryFile::Directory => f.write_str("$uri/"),
            TryFile::Target(target) => target.fmt(f),
            TryFile::Status(status) => write!(f, "={status}"),
        }
    }
}

/// The script that receives every request that names no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontController {
    /// `front_controller`: its URL path, `/index.php`.
    pub script: String,
    /// Whether the script receives the request's path as `PATH_INFO`, as some applications' `.htaccess` asks.
    /// WordPress, Laravel, Symfony and Drupal use `REQUEST_URI`.
    pub path_info: bool,
}

/// How a request body is passed to the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBuffering {
    /// `on`: the complete body, so a slow client never occupies a PHP process.
    On,
    /// `off`: each piece when it arrives.
    Off,
    /// `auto`: the complete body, except if the client asks for PHP's upload progress: then the body is passed on as it
    /// arrives. At most a quarter of the pool's processes receive such bodies at once, because any client can ask for
    /// upload progress by a form field.
    Auto,
}

/// A rule: what to do with which requests.
#[derive(Clone, Debug)]
pub struct SiteRule {
    /// `path` | `prefix` | `glob` | `regex`
    pub pattern: PathPattern,
    /// Conditions on the request, in addition to its path.
    pub conditions: RuleConditions,
    /// `if_missing`: the rule applies only if the path names no file, script or directory with an index.
    pub if_missing: bool,
    /// What the rule does with a request that matches.
    pub action: RuleAction,
    /// The configuration file that has the rule; `None` for a rule that the server has added.
    pub file: Option<Arc<str>>,
    /// The rule's line in that file.
    pub line: Option<usize>,
}

impl SiteRule {
    /// Returns a rule for all requests to paths that match.
    pub fn new(pattern: PathPattern, action: RuleAction) -> SiteRule {
        SiteRule {
            pattern,
            conditions: RuleConditions::default(),
            if_missing: false,
            action,
            file: None,
            line: None,
        }
    }

    /// Returns whether the rule gives different clients different responses for the same page.
    pub(super) fn varies_response_by_client(&self) -> bool {
        self.conditions.depend_on_client() && !self.action.is_guard()
    }

    /// Returns whether the route of a request depends on who sends it.
    pub(super) fn depends_on_client(&self) -> bool {
        self.conditions.depend_on_client() && !matches!(self.action, RuleAction::Limit(_))
    }
}

/// What a rule does with a request that matches.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// `redirect = TARGET`, `status`: 301, 302, 303, 307 or 308. The request's query is kept unless the target has its
    /// own.
    Redirect {
        /// The status code of the redirect.
        status: u16,
        /// The target of the redirect, a path or a URL.
        to: RuleTemplate,
    },
    /// `rewrite = TARGET`: continues with this path (and query) in place of the request's; later rules see the new
    /// path. The request's query is appended to the target's own.
    Rewrite(RuleTemplate),
    /// `deny = STATUS`: 403, 404 or 410.
    Deny(u16),
    /// `return = STATUS`, `body`, `type`
    Return {
        /// The status code of the response.
        status: u16,
        /// `Content-Type` of the body.
        content_type: String,
        /// The body of the response.
        body: String,
    },
    /// `pool = NAME`: the pool that runs the script, if the request leads to one. Later rules still apply, and the last
    /// match of this kind counts.
    Pool(Arc<str>),
    /// `cgi = POOL`: the path names a program, which this pool of mode `cgi` executes. No file that matches is ever
    /// sent.
    Cgi(Arc<str>),
    /// `proxy = URL`: the request is passed to another server, whatever lies at the path.
    Proxy(Arc<ServerGroupConfig>),
    /// `authorizer = POOL`: a FastCGI authorizer decides whether the request is permitted.
    Authorize(Authorizer),
    /// `auth_request = URL`: another server decides whether the request is permitted.
    AuthRequest(Arc<AuthRequest>),
    /// `auth_basic = REALM`: only users with a valid name and password are permitted.
    Authenticate(Arc<Authentication>),
    /// `set_header`, `add_header`; later rules still apply.
    Header(HeaderEdit),
    /// `rate` and the related options: how much one client may request. Several rules may share one limit.
    Limit(Arc<ClientLimit>),
}

impl RuleAction {
    /// Returns whether the rule requires authentication or authorization before a response.
    pub fn is_guard(&self) -> bool {
        matches!(
            self,
            RuleAction::Authorize(_) | RuleAction::AuthRequest(_) | RuleAction::Authenticate(_)
        )
    }
}

/// A server that authorizes requests by a subrequest (nginx's `auth_request`).
#[derive(Debug)]
pub struct AuthRequest {
    /// `auth_request`: the server, or several of them on a range of ports.
    pub servers: ServerGroupConfig,
    /// Path and query of the subrequest.
    pub path: PathAndQuery,
    /// `auth_request_set`: variables for the script, and the response headers that they come from.
    pub variables: Vec<(String, String)>,
}

/// A FastCGI application in the role Authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorizer {
    /// `authorizer`: the pool that runs the authorizer.
    pub pool: Arc<str>,
    /// `authorizer_script`: its SCRIPT_FILENAME, which PHP needs; empty for other programs.
    pub script: String,
}

/// A change of a response's headers, of files and scripts alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    /// Replaces all headers of the name.
    Set(String, String),
    /// Adds a header to those that the response has.
    Add(String, String),
    /// Removes all headers of the name.
    Unset(String),
}

impl HeaderEdit {
    /// Returns the name of the header.
    pub fn name(&self) -> &str {
        match self {
            HeaderEdit::Set(name, _) | HeaderEdit::Add(name, _) | HeaderEdit::Unset(name) => name,
        }
    }

    /// Checks that name and value are valid in a header, and that the server does not set the header itself.
    pub fn check(&self) -> Result<(), ConfigError> {
        const FRAMING: &[&str] = &[
            "content-length",
            "transfer-encoding",
            "connection",
            "date",
            "upgrade",
        ];
        let name = self.name();
        if !is_token(name.as_bytes()) || FRAMING.contains(&&*name.to_ascii_lowercase()) {
            return Err(ConfigError::BadHeaderName(name.to_owned()));
        }
        match self {
            HeaderEdit::Set(_, value) | HeaderEdit::Add(_, value)
                if !is_field_value(value.as_bytes()) =>
            {
                Err(ConfigError::BadHeaderValue(value.clone()))
            }
            _ => Ok(()),
        }
    }
}

/// How files that match are sent.
#[derive(Clone, Debug)]
pub struct StaticRule {
    /// `path` | `prefix` | `glob` | `regex`
    pub pattern: PathPattern,
    /// `cache_control`: the header's value.
    pub cache_control: Option<String>,
    /// `type`: the `Content-Type`, in place of the built-in one.
    pub content_type: Option<String>,
}

/// Files that are sent only at the request of a script, by `X-Accel-Redirect: PREFIX…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalLocation {
    /// `prefix`: the beginning of the path that the script names, with a slash at the end.
    pub prefix: String,
    /// `root`: the directory that replaces the prefix (nginx's `alias`).
    pub root: PathBuf,
}
