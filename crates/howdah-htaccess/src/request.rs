//! The data of a request: the client's input ([`EvaluationInput`]), and what Apache's hooks have made of it so far
//! (`EvaluatedRequest`). Also [`ServerContext`], through which the caller provides information about files.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::Config;
use crate::decision::Demand;
use crate::storage::HtFileChain;
use crate::table::Table;

/// The type of the file with a given name; symbolic links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// There is no such file.
    Missing,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device or a socket.
    Other,
    /// A file that must not be accessed: a symbolic link that leads out of the site, or a lack of permission.
    Forbidden,
}

/// The environment of an evaluation: the file system, the clock and the server's settings.
pub trait ServerContext {
    /// Returns the type of the file with this absolute name.
    fn stat(&self, file: &[u8]) -> Stat;
    /// Returns the size of a regular file in bytes, or `None` if there is no such file.
    fn length(&self, file: &[u8]) -> Option<u64>;
    /// Returns true if the name itself is a symbolic link. The default is for a file system without links.
    fn is_link(&self, _file: &[u8]) -> bool {
        false
    }
    /// Returns true if any user may execute the file.
    fn is_executable(&self, _file: &[u8]) -> bool {
        false
    }
    /// Returns the combined `.htaccess` files on the way to a directory. The directory is given by its URL path, which
    /// ends with a slash or is empty.
    fn htaccess(&self, directory: &[u8]) -> Arc<HtFileChain>;
    /// Returns true if a file of this name is run as PHP by default.
    fn is_script(&self, path: &[u8]) -> bool;
    /// Returns the media type of a file by its name, without regard to `.htaccess` files.
    fn media_type(&self, _path: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Returns year, month, day, hour, minute, second, and the day of the week counted from Sunday.
    fn local_time(&self) -> [u32; 7];
    /// Returns the Unix time in microseconds.
    fn now(&self) -> i64;
    /// Returns a variable of the server's environment.
    fn environment(&self, _name: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Receives a trace message: what a directive did with the request, or why it did nothing. `howdah explain` shows
    /// these messages. `line` is the directive's file, line number and text, or `None` if no directive decides. The
    /// message is formatted only when `message` is called.
    fn trace(&self, _line: Option<&str>, _message: &dyn Fn() -> String) {}
}

/// The properties of a request, beyond method, host, path and query, that the evaluation has read. Decisions depend on
/// them.
#[derive(Debug, Default)]
pub struct InputDependencies {
    header: AtomicBool,
    client: AtomicBool,
    time: AtomicBool,
    credentials: AtomicBool,
}

impl InputDependencies {
    pub(crate) fn header(&self, name: &[u8]) {
        // A cache does not share the response to a request with credentials anyway.
        if name.eq_ignore_ascii_case(b"authorization") {
            self.credentials.store(true, Ordering::Relaxed);
        } else if !name.eq_ignore_ascii_case(b"host") {
            self.header.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, other: &InputDependencies) {
        for (own, other) in [
            (&self.header, &other.header),
            (&self.client, &other.client),
            (&self.time, &other.time),
            (&self.credentials, &other.credentials),
        ] {
            own.fetch_or(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(crate) fn client(&self) {
        self.client.store(true, Ordering::Relaxed);
    }

    pub(crate) fn time(&self) {
        self.time.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials.load(Ordering::Relaxed)
    }

    /// Returns true if the evaluation has read only method, host, path, query and files, so the decision is the same
    /// for all visitors.
    pub fn depends_only_on_url(&self) -> bool {
        let all = [&self.header, &self.client, &self.time];
        !all.iter().any(|asked| asked.load(Ordering::Relaxed))
    }

    /// Returns true if the evaluation has read a request header or the client's address, so the decision may differ for
    /// another visitor.
    pub fn depends_on_visitor(&self) -> bool {
        [&self.header, &self.client]
            .iter()
            .any(|asked| asked.load(Ordering::Relaxed))
    }
}

/// The request as the client sent it, and the site's settings. These values do not change during the evaluation.
#[derive(Clone, Debug, Default)]
pub struct EvaluationInput<'a> {
    /// The request's method.
    pub method: Cow<'a, [u8]>,
    /// Path and query as the client sent them.
    pub target: Cow<'a, [u8]>,
    /// The path, normalized and decoded.
    pub path: Cow<'a, [u8]>,
    /// The query.
    pub query: Option<Cow<'a, [u8]>>,
    /// The protocol, such as `HTTP/1.1`.
    pub protocol: &'static str,
    /// The header fields; repeated fields are joined.
    pub headers: Table,
    /// Whether the request came over TLS.
    pub https: bool,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The client's port.
    pub port: Option<u16>,
    /// The local address of the connection.
    pub local: Option<SocketAddr>,
    /// The port that the client connected to.
    pub server_port: u16,
    /// The site's name, for a request without a host.
    pub server_name: Cow<'a, [u8]>,
    /// The document root, without a trailing slash.
    pub document_root: Cow<'a, [u8]>,
    /// The default of `DirectoryIndex`.
    pub index: Cow<'a, [String]>,
    /// The default of `FallbackResource`.
    pub fallback: Option<Cow<'a, str>>,
    /// The results of the password checks so far, each with its demand.
    pub logins: Vec<(Demand, LoginResult)>,
}

/// The result of a password check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginResult {
    /// The password is right.
    Verified {
        /// The user's name.
        user: Vec<u8>,
        /// The groups of the group file that the user belongs to.
        groups: Vec<Vec<u8>>,
    },
    /// The request has no credentials, or a wrong password.
    Refused,
    /// The password or group file is not readable.
    Failed,
}

impl EvaluationInput<'_> {
    /// Copies everything that is borrowed.
    pub fn into_owned(self) -> EvaluationInput<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        EvaluationInput {
            method: own(self.method),
            target: own(self.target),
            path: own(self.path),
            query: self.query.map(own),
            protocol: self.protocol,
            headers: self.headers,
            https: self.https,
            address: self.address,
            port: self.port,
            local: self.local,
            server_port: self.server_port,
            server_name: own(self.server_name),
            document_root: own(self.document_root),
            index: Cow::Owned(self.index.into_owned()),
            fallback: self.fallback.map(|name| Cow::Owned(name.into_owned())),
            logins: self.logins,
        }
    }

    /// Returns scheme, host and port as Apache writes them in an absolute URL.
    pub(crate) fn origin(&self) -> Vec<u8> {
        let scheme: &[u8] = if self.https { b"https://" } else { b"http://" };
        let (default, port) = (if self.https { 443 } else { 80 }, self.url_port());
        let mut out = [scheme, self.host_name()].concat();
        if port != default {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
        out
    }

    /// Returns `Host` without its port, or the site's name.
    pub(crate) fn host_name(&self) -> &[u8] {
        let host = self.headers.get(b"host").unwrap_or_default();
        let (name, _) = split_port(host);
        match name {
            b"" => &self.server_name,
            name => name,
        }
    }

    /// Returns the port of the `Host` header, or the default port of the scheme if the header has none; without the
    /// header, the port that the client connected to.
    pub(crate) fn url_port(&self) -> u16 {
        let host = self.headers.get(b"host").unwrap_or_default();
        match split_port(host) {
            (b"", _) => self.server_port,
            (_, Some(port)) => port,
            (_, None) if self.https => 443,
            (_, None) => 80,
        }
    }

    /// Returns the request line, such as `GET /a HTTP/1.1`.
    pub(crate) fn request_line(&self) -> Vec<u8> {
        [
            &self.method,
            &b" "[..],
            &self.target,
            b" ",
            self.protocol.as_bytes(),
        ]
        .concat()
    }
}

fn split_port(host: &[u8]) -> (&[u8], Option<u16>) {
    let colon = host.iter().rposition(|b| *b == b':');
    match colon.filter(|at| !host[*at..].contains(&b']')) {
        Some(at) => {
            let port = std::str::from_utf8(&host[at + 1..]).ok();
            (&host[..at], port.and_then(|port| port.parse().ok()))
        }
        None => (host, None),
    }
}

/// A request that is being evaluated: Apache's `request_rec`.
#[derive(Clone, Debug)]
pub(crate) struct EvaluatedRequest {
    pub method: Vec<u8>,
    /// The path, normalized and decoded.
    pub uri: Vec<u8>,
    pub args: Option<Vec<u8>>,
    pub filename: Vec<u8>,
    pub path_info: Vec<u8>,
    pub found: Stat,
    pub env: Table,
    pub headers_out: Table,
    pub config: Arc<Config>,
    /// The addresses of the scopes that `config` is merged from.
    pub merged: Vec<usize>,
    pub handler: Handler,
    pub media_type: Option<Vec<u8>>,
    pub encoding: Option<Vec<u8>>,
    pub languages: Vec<String>,
    pub forced_type: Option<Vec<u8>>,
    pub forced_handler: Option<Vec<u8>>,
    /// Whether `media_type` comes from the server's table of file name extensions.
    pub type_by_table: bool,
    /// The directive that stops PHP from running this file, by setting or removing a handler.
    pub closed: Option<Arc<str>>,
    pub status: u16,
    pub user: Option<Vec<u8>>,
    /// The groups of the user, limited to those that a `Require group` names.
    pub groups: Vec<Vec<u8>>,
    /// Whether this is a subrequest.
    pub is_sub: bool,
    /// Whether the site chooses the response itself. If so, only directives that refuse a request count
    /// ([`refusals`](crate::refusals)).
    pub refusals_only: bool,
    /// Whether a rule would have served this request from another path. Set only with `refusals_only`.
    pub is_led_elsewhere: bool,
    /// Whether a rule with the `END` flag has matched.
    pub ended: bool,
    /// How many internal redirects led to this request, and how deeply nested this subrequest is (`depth`).
    pub redirects: usize,
    pub depth: usize,
    /// The path of the parent request, if this is a subrequest.
    pub main_uri: Option<Vec<u8>>,
    /// Path and query of the request that was redirected to this one.
    pub prev: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// Whether the request itself has been authorized.
    pub is_authorized: bool,
    /// The scopes and the user with which the previous request was authorized.
    pub authorized_as: Option<(Vec<usize>, Option<Vec<u8>>)>,
}

/// The handler that generates the response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Handler {
    #[default]
    None,
    Named(Vec<u8>),
    /// mod_rewrite's internal redirect: `filename` is the new URL.
    Redirect,
}

impl EvaluatedRequest {
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

impl Default for EvaluatedRequest {
    fn default() -> EvaluatedRequest {
        EvaluatedRequest {
            method: Vec::new(),
            uri: Vec::new(),
            args: None,
            filename: Vec::new(),
            path_info: Vec::new(),
            found: Stat::Missing,
            env: Table::default(),
            headers_out: Table::default(),
            config: Arc::new(Config::default()),
            merged: Vec::new(),
            handler: Handler::None,
            media_type: None,
            encoding: None,
            languages: Vec::new(),
            forced_type: None,
            forced_handler: None,
            type_by_table: false,
            closed: None,
            status: 200,
            user: None,
            groups: Vec::new(),
            is_sub: false,
            refusals_only: false,
            is_led_elsewhere: false,
            ended: false,
            redirects: 0,
            depth: 0,
            main_uri: None,
            prev: None,
            is_authorized: false,
            authorized_as: None,
        }
    }
}
