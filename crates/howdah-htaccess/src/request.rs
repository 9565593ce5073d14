//! What is known of a request: what came from the client ([`Facts`]), and what the run of Apache's hooks
//! has made of it so far (`Request`). Also what the caller answers about files ([`World`]).

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::answer::Demand;
use crate::config::Config;
use crate::storage::Chain;
use crate::table::Table;

/// What lies at a file name; links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stat {
    /// Nothing.
    Missing,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A device, a socket.
    Other,
    /// Something that must not be looked at: a link that leads out of the site, no permission.
    Forbidden,
}

/// The machine that the request is answered on.
pub trait World {
    /// What lies at an absolute file name.
    fn stat(&self, file: &[u8]) -> Stat;
    /// How many bytes a regular file has; none if none lies there.
    fn length(&self, file: &[u8]) -> Option<u64>;
    /// Whether a link lies there itself. A world without links has none.
    fn is_link(&self, _file: &[u8]) -> bool {
        false
    }
    /// Whether somebody may execute what lies there.
    fn is_executable(&self, _file: &[u8]) -> bool {
        false
    }
    /// What the `.htaccess` files say on the way to a directory, given by its URL path with a slash at its
    /// end, or nothing.
    fn htaccess(&self, directory: &[u8]) -> Arc<Chain>;
    /// Whether a file of this name is run as PHP where nothing else is said.
    fn is_script(&self, path: &[u8]) -> bool;
    /// The media type of a file by its name, without what `.htaccess` files say.
    fn media_type(&self, _path: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Year, month, day, hour, minute, second, day of the week from Sunday.
    fn local_time(&self) -> [u32; 7];
    /// Microseconds of Unix.
    fn now(&self) -> i64;
    /// A variable of the server's environment.
    fn environment(&self, _name: &[u8]) -> Option<Vec<u8>> {
        None
    }
    /// Hears what a line has done with a request, or why it did nothing: for who wants an answer explained.
    /// `line` is its file, number and text; none where no line decides. Nothing is put into words unless
    /// `said` is called.
    fn hear(&self, _line: Option<&str>, _said: &dyn Fn() -> String) {}
}

/// What a request asked of the client beyond method, host, path and query: answers differ by it.
#[derive(Debug, Default)]
pub struct Consulted {
    header: AtomicBool,
    client: AtomicBool,
    time: AtomicBool,
    credentials: AtomicBool,
}

impl Clone for Consulted {
    fn clone(&self) -> Consulted {
        let clone = Consulted::default();
        clone.add(self);
        clone
    }
}

impl Consulted {
    pub(crate) fn header(&self, name: &[u8]) {
        // For a cache a request with credentials is nobody else's anyway.
        if name.eq_ignore_ascii_case(b"authorization") {
            self.credentials.store(true, Ordering::Relaxed);
        } else if !name.eq_ignore_ascii_case(b"host") {
            self.header.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn add(&self, other: &Consulted) {
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

    /// Nothing but method, host, path, query and files has been asked for: the answer is the same for
    /// everybody.
    pub fn is_nothing(&self) -> bool {
        let all = [&self.header, &self.client, &self.time];
        !all.iter().any(|asked| asked.load(Ordering::Relaxed))
    }

    /// A header of the request or the client's address has been asked for: the answer may differ for
    /// another visitor.
    pub fn is_of_visitor(&self) -> bool {
        [&self.header, &self.client]
            .iter()
            .any(|asked| asked.load(Ordering::Relaxed))
    }
}

/// What came from the client, and what the site says. Nothing of it changes.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// The request's method.
    pub method: Cow<'a, [u8]>,
    /// Path and query as they came.
    pub target: Cow<'a, [u8]>,
    /// The path: clean and decoded.
    pub path: Cow<'a, [u8]>,
    /// The query.
    pub query: Option<Cow<'a, [u8]>>,
    /// `HTTP/1.1`
    pub protocol: &'static str,
    /// The header's fields; those of a name that comes twice are joined.
    pub headers: Table,
    /// By TLS.
    pub https: bool,
    /// The client's address.
    pub address: Option<IpAddr>,
    /// The client's port.
    pub port: Option<u16>,
    /// The address that the client asked.
    pub local: Option<SocketAddr>,
    /// The port that the client asked.
    pub server_port: u16,
    /// The site's name where the request has no host.
    pub server_name: Cow<'a, [u8]>,
    /// The directory of the site's files, without a slash at its end.
    pub document_root: Cow<'a, [u8]>,
    /// `DirectoryIndex` where nothing else is said.
    pub index: Cow<'a, [String]>,
    /// `FallbackResource` where nothing else is said.
    pub fallback: Option<Cow<'a, str>>,
    /// The results of the password checks so far, each with the demand that it is for.
    pub logins: Vec<(Demand, Login)>,
}

/// What the check of a password has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// The user has given the right password.
    Verified {
        /// The user's name.
        user: Vec<u8>,
        /// The groups of the group file that have the user.
        groups: Vec<Vec<u8>>,
    },
    /// Nobody, or with a wrong password.
    Refused,
    /// The files cannot be read.
    Failed,
}

impl Facts<'_> {
    /// With nothing borrowed.
    pub fn into_owned(self) -> Facts<'static> {
        let own = |text: Cow<'_, [u8]>| Cow::Owned(text.into_owned());
        Facts {
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

    /// Scheme, host and port, as Apache puts them into an absolute URL.
    pub(crate) fn origin(&self) -> Vec<u8> {
        let scheme: &[u8] = if self.https { b"https://" } else { b"http://" };
        let (default, port) = (if self.https { 443 } else { 80 }, self.url_port());
        let mut out = [scheme, self.host_name()].concat();
        if port != default {
            out.extend_from_slice(format!(":{port}").as_bytes());
        }
        out
    }

    /// `Host` without its port.
    pub(crate) fn host_name(&self) -> &[u8] {
        let host = self.headers.get(b"host").unwrap_or_default();
        let (name, _) = split_port(host);
        match name {
            b"" => &self.server_name,
            name => name,
        }
    }

    /// The port that the client named, or asked.
    pub(crate) fn url_port(&self) -> u16 {
        let host = self.headers.get(b"host").unwrap_or_default();
        match split_port(host) {
            (b"", _) => self.server_port,
            (_, Some(port)) => port,
            (_, None) if self.https => 443,
            (_, None) => 80,
        }
    }

    /// `GET /a HTTP/1.1`
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

/// A request on its way: Apache's `request_rec`.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: Vec<u8>,
    /// Clean and decoded.
    pub uri: Vec<u8>,
    pub args: Option<Vec<u8>>,
    pub filename: Vec<u8>,
    pub path_info: Vec<u8>,
    pub found: Stat,
    pub env: Table,
    pub headers_out: Table,
    pub config: Arc<Config>,
    /// The scopes that `config` is made of, by address.
    pub merged: Vec<usize>,
    pub handler: Handler,
    pub media_type: Option<Vec<u8>>,
    pub encoding: Option<Vec<u8>>,
    pub languages: Vec<String>,
    pub forced_type: Option<Vec<u8>>,
    pub forced_handler: Option<Vec<u8>>,
    /// `media_type` is what the server's table says of the name.
    pub type_by_table: bool,
    /// A handler or a removal of one said that PHP is not to run; the line.
    pub closed: Option<Arc<str>>,
    pub status: u16,
    pub user: Option<Vec<u8>>,
    /// The groups of the user, as far as a `Require group` names them.
    pub groups: Vec<Vec<u8>>,
    /// It only asks what would be answered.
    pub is_sub: bool,
    /// The site chooses the response itself, and only the lines that refuse something count
    /// ([`refusals`](crate::refusals)).
    pub refusals_only: bool,
    /// A rule would have another path answer this request. Set only with `refusals_only`.
    pub leads_elsewhere: bool,
    /// `END` was used.
    pub ended: bool,
    /// Internal redirects that led here, and requests that this one is asked for.
    pub redirects: usize,
    pub depth: usize,
    /// The path of the request that asks this one, if one does.
    pub main_uri: Option<Vec<u8>>,
    /// Path and query of the request that was redirected here.
    pub prev: Option<(Vec<u8>, Option<Vec<u8>>)>,
    /// Whether it has been authorized itself.
    pub let_in: bool,
    /// What authorized the request before it, to be compared with.
    pub authorized: Option<(Vec<usize>, Option<Vec<u8>>)>,
}

/// What answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Handler {
    #[default]
    None,
    Named(Vec<u8>),
    /// mod_rewrite's internal redirect: `filename` is the new URL.
    Redirect,
}

impl Request {
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

impl Default for Request {
    fn default() -> Request {
        Request {
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
            leads_elsewhere: false,
            ended: false,
            redirects: 0,
            depth: 0,
            main_uri: None,
            prev: None,
            let_in: false,
            authorized: None,
        }
    }
}
