//! What a site is configured with: typed, and made by the config reader (or by `recognise.rs` when
//! there is no file). Reads no text itself beyond the patterns and targets, whose constructors say
//! what is wrong with them. The doc of each field gives its key in the configuration file.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use howdah_proto::response::{is_field_value, is_token};
use http::uri::PathAndQuery;

use super::condition::Conditions;
use super::mistake::ConfigError;
use super::network_file::NetworkFile;
use super::pattern::Pattern;
use super::template::Template;
use crate::authentication::Authentication;
pub use crate::cache_config::CacheConfig;
use crate::docroot::root::Symlinks;
use crate::limiter::Limit;
use crate::proxy::Proxy;

/// One `[[site]]` of the configuration, checked but not yet opened.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// `name`: in logs and status.
    pub name: String,
    /// `hosts`: which hosts it answers for. The first site answers for all other hosts, too.
    pub hosts: Vec<HostPattern>,
    /// `listen`: the listeners at which alone it answers, as [`ConnInfo`](howdah_http::ConnInfo) names
    /// them. Empty: it answers at those of the server.
    pub listen: Vec<String>,
    /// The port to which redirects to HTTPS lead, if the site has listeners with TLS of its own. `None`:
    /// they lead to the server's port.
    pub https_port: Option<u16>,
    /// `root`: the directory that is served.
    pub root: PathBuf,
    /// `htaccess`: whether `.htaccess` files are obeyed.
    pub htaccess: Htaccess,
    /// `symlinks`: what links below the root may point to.
    pub symlinks: Symlinks,
    /// `index`: names tried in a directory, in order.
    pub index: Vec<String>,
    /// `try_files`: what is looked for, in order; then `front_controller`, then 404.
    pub try_files: Vec<TryFile>,
    /// `front_controller`: the script for everything that is no file.
    pub front_controller: Option<FrontController>,
    /// `pool`: which pool runs the scripts.
    pub pool: String,
    /// The script that the pool's processes have booted, if it is of mode `worker` and the root has no
    /// script of its own: it gets what is no file, wherever it lies.
    pub worker: Option<PathBuf>,
    /// `php_extensions`: names ending so are scripts, with the dot.
    pub php_extensions: Vec<String>,
    /// `deny`: never answered from, file or script, whatever path led there.
    pub deny: Vec<Pattern>,
    /// `expose`: sent although their name is on the list of what is never sent (`hidden.rs`).
    pub expose: Vec<Pattern>,
    /// `[[site.rule]]`, in order.
    pub rules: Vec<Rule>,
    /// `cache_control` and `type` of `[[site.rule]]`: the first that matches says how a file is sent.
    pub static_rules: Vec<StaticRule>,
    /// `[site.types]`: media types by extension (without dot, lower case), before the built-in ones.
    pub types: Vec<(String, String)>,
    /// `[site.sendfile]`: targets of `X-Accel-Redirect`.
    pub internal: Vec<InternalLocation>,
    /// `[site.sendfile]`: directories whose files a script may name by `X-Sendfile`.
    pub sendfile_roots: Vec<PathBuf>,
    /// `[site.env]`: environment variables of the site's scripts.
    pub env: Vec<(String, String)>,
    /// Variables of the server's own environment that conditions ask for.
    pub server_env: Vec<(String, String)>,
    /// `[site.php_value]`: settings of php.ini that scripts may change.
    pub php_value: Vec<(String, String)>,
    /// `[site.php_admin_value]`: settings of php.ini that scripts cannot change.
    pub php_admin_value: Vec<(String, String)>,
    /// `max_body_size`: bytes; a longer request body is refused with 413. 0: no limit.
    pub max_body_size: u64,
    /// `request_buffering`: how request bodies reach the script.
    pub request_buffering: RequestBuffering,
    /// `[site.error_pages]`: status and file below the root, sent as it is.
    pub error_pages: Vec<(u16, String)>,
    /// `https_redirect`: requests without TLS are redirected to HTTPS.
    pub https_redirect: bool,
    /// `hsts`: the value of `Strict-Transport-Security` in answers by HTTPS.
    pub hsts: Option<String>,
    /// `cache` and the options that begin so; none: off.
    pub cache: Option<CacheConfig>,
}

impl SiteConfig {
    /// Numbers of the rules by which somebody is asked before anything is answered.
    pub(super) fn guards(&self) -> impl Iterator<Item = usize> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(number, rule)| rule.action.is_guard().then_some(number))
    }

    /// Numbers of the rules that limit clients.
    pub(super) fn limits(&self) -> impl Iterator<Item = usize> {
        let rules = self.rules.iter().enumerate();
        let limits = |rule: &Rule| matches!(rule.action, RuleAction::Limit(_));
        rules.filter_map(move |(number, rule)| limits(rule).then_some(number))
    }

    /// The lists of networks that rules ask.
    pub fn network_files(&self) -> impl Iterator<Item = &Arc<NetworkFile>> {
        let rules = self.rules.iter();
        rules.flat_map(|rule| rule.conditions.network_files())
    }

    /// What the rules ask for by user and password.
    pub fn authentications(&self) -> impl Iterator<Item = &Arc<Authentication>> {
        self.rules.iter().filter_map(|rule| match &rule.action {
            RuleAction::Authenticate(demand) => Some(demand),
            _ => None,
        })
    }

    /// A rewrite or `try_files` may lead to scripts that neither the path nor the front controller
    /// names.
    pub(super) fn leads_to_other_scripts(&self) -> bool {
        let rewrites = |rule: &Rule| matches!(rule.action, RuleAction::Rewrite(_));
        self.rules.iter().any(rewrites)
            || self
                .try_files
                .iter()
                .any(|entry| matches!(entry, TryFile::Target(_)))
    }

    /// Values for tests, benchmarks and examples, which have no options.
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
            ..SiteConfig::blank(name, root)
        }
    }

    /// The blank form that the options fill in.
    pub fn blank(name: impl Into<String>, root: impl Into<PathBuf>) -> SiteConfig {
        SiteConfig {
            name: name.into(),
            hosts: Vec::new(),
            listen: Vec::new(),
            https_port: None,
            root: root.into(),
            htaccess: Htaccess::Deny,
            symlinks: Symlinks::Follow,
            index: Vec::new(),
            try_files: Vec::new(),
            front_controller: None,
            pool: String::new(),
            worker: None,
            php_extensions: Vec::new(),
            deny: Vec::new(),
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

/// What is made of Apache's `.htaccess` files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Htaccess {
    /// `on`: they decide what becomes of a request, as under Apache.
    On,
    /// `deny`: what they close is closed; nothing else of them is read.
    Deny,
    /// `off`: they are not looked at.
    Off,
}

/// A host a site answers for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// `example.org`, lower case.
    Exact(String),
    /// `*.example.org`: any name below, of any depth, but not `example.org`. Holds `.example.org`.
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

    /// Whether it is for this name, which has no port.
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
    Target(Template),
    /// `=404`: this status. Nothing after it is reached.
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
                let template = Template::parse(text).map_err(ConfigError::Template)?;
                template
                    .check(&Pattern::Exact(Vec::new()))
                    .map_err(ConfigError::Template)?;
                if !text.starts_with('/') && !text.starts_with("$uri") {
                    return Err(ConfigError::RelativeTarget(text.to_owned()));
                }
                Ok(TryFile::Target(template))
            }
        }
    }
}

/// As it was written.
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

/// The script that gets what is no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontController {
    /// `front_controller`: its URL path, `/index.php`.
    pub script: String,
    /// Whether it gets the request's path as `PATH_INFO`, as an application's `.htaccess` asks for it.
    /// WordPress, Laravel, Symfony and Drupal go by `REQUEST_URI`.
    pub path_info: bool,
}

/// How a request body reaches the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBuffering {
    /// `on`: whole, so a slow client never holds a child.
    On,
    /// `off`: each piece when it arrives.
    Off,
    /// `auto`: whole, but as it arrives when PHP's upload progress is asked for, for at most a
    /// quarter of the pool's processes at once: a client claims that progress by a field.
    Auto,
}

/// A rule: what to do with which requests.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `path` | `prefix` | `glob` | `regex`
    pub pattern: Pattern,
    /// What must be true of the request beside its path.
    pub conditions: Conditions,
    /// `if_missing`: only when the path names no file, script or directory with an index.
    pub if_missing: bool,
    /// What the rule does with a request that matches.
    pub action: RuleAction,
    /// The configuration file that has it; none for what the server has added by itself.
    pub file: Option<Arc<str>>,
    /// Its line there.
    pub line: Option<usize>,
}

impl Rule {
    /// A rule for all requests to such paths.
    pub fn new(pattern: Pattern, action: RuleAction) -> Rule {
        Rule {
            pattern,
            conditions: Conditions::default(),
            if_missing: false,
            action,
            file: None,
            line: None,
        }
    }

    /// The rule makes the answer another one for some of those who ask for the same page.
    pub(super) fn is_personal(&self) -> bool {
        self.conditions.ask_who() && !self.action.is_guard()
    }

    /// Where a request goes depends on who sends it.
    pub(super) fn asks_who(&self) -> bool {
        self.conditions.ask_who() && !matches!(self.action, RuleAction::Limit(_))
    }
}

/// What a rule does with a request that matches.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// `redirect = TARGET`, `status`: 301, 302, 303, 307 or 308. The request's query is kept
    /// unless the target has its own.
    Redirect {
        /// The status code of the redirect.
        status: u16,
        /// The target of the redirect, a path or a URL.
        to: Template,
    },
    /// `rewrite = TARGET`: continues with this path (and query) in place of the request's; later
    /// rules see it. The request's query is appended to the target's own.
    Rewrite(Template),
    /// `deny = STATUS`: 403 or 404.
    Deny(u16),
    /// `return = STATUS`, `body`, `type`
    Return {
        /// The status code of the answer.
        status: u16,
        /// `Content-Type` of the body.
        content_type: String,
        /// The body of the answer.
        body: String,
    },
    /// `pool = NAME`: if a script is to be run, this pool does; later rules still apply, and the
    /// last of this kind that matches counts.
    Pool(Arc<str>),
    /// `cgi = POOL`: what the path names is a program, executed as it is by this pool of mode `cgi`.
    /// Nothing there is ever sent as a file.
    Cgi(Arc<str>),
    /// `proxy = URL`: another server answers, whatever lies at the path.
    Proxy(Arc<Proxy>),
    /// `authorizer = POOL`: somebody who says first whether the request may be answered.
    Authorize(Authorizer),
    /// `auth_request = URL`: another server says whether the request may be answered.
    AuthRequest(Arc<AuthRequest>),
    /// `auth_basic = REALM`: only for users who name themselves, with their password.
    Authenticate(Arc<Authentication>),
    /// `set_header`, `add_header`; later rules still apply.
    Header(HeaderEdit),
    /// `rate` and the options beside it: how much one client may ask for. Several rules may share one.
    Limit(Arc<Limit>),
}

impl RuleAction {
    /// Somebody, or something, is asked before anything is answered.
    pub fn is_guard(&self) -> bool {
        matches!(
            self,
            RuleAction::Authorize(_) | RuleAction::AuthRequest(_) | RuleAction::Authenticate(_)
        )
    }
}

/// A server that is asked by an HTTP request of its own (nginx' `auth_request`).
#[derive(Debug)]
pub struct AuthRequest {
    /// `auth_request`: the server.
    pub proxy: Arc<Proxy>,
    /// Path and query of the request.
    pub path: PathAndQuery,
    /// `auth_request_set`: variables for the script, and the fields of the answer they come from.
    pub variables: Vec<(String, String)>,
}

/// A FastCGI application in the role Authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorizer {
    /// `authorizer`: the pool that runs it.
    pub pool: Arc<str>,
    /// `authorizer_script`: its SCRIPT_FILENAME, for PHP, which needs one; else empty.
    pub script: String,
}

/// A change of the response's header, of files and scripts alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderEdit {
    /// Replaces all fields of the name.
    Set(String, String),
    /// Adds a field beside those the response has.
    Add(String, String),
    /// Removes all fields of the name.
    Unset(String),
}

impl HeaderEdit {
    /// The name of the header field.
    pub fn name(&self) -> &str {
        match self {
            HeaderEdit::Set(name, _) | HeaderEdit::Add(name, _) | HeaderEdit::Unset(name) => name,
        }
    }

    /// Name and value can stand in a header, and the name is not the connection's business.
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
    pub pattern: Pattern,
    /// `cache_control`: the field's value.
    pub cache_control: Option<String>,
    /// `type`: `Content-Type` in place of the table's.
    pub content_type: Option<String>,
}

/// Files only a script can have sent, by `X-Accel-Redirect: PREFIX…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalLocation {
    /// `prefix`: of the path the script names, with a slash at the end.
    pub prefix: String,
    /// `root`: the directory in place of the prefix (nginx's `alias`).
    pub root: PathBuf,
}
