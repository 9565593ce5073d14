//! Turns a request into a request frame: every CGI meta-variable that the script finds in `$_SERVER`, and the site's
//! PHP settings and environment. This module only builds bytes.
//!
//! The set contains what nginx's `fastcgi.conf` and Apache's `ap_add_cgi_vars` agree on. Where they differ:
//!
//! | variable | nginx | Apache | here, because |
//! |---|---|---|---|
//! | `CONTENT_TYPE` | always, perhaps empty | if the header is present | Apache: some interfaces require it on a GET, against forged requests |
//! | `CONTENT_LENGTH` | always, perhaps empty | only with a body | Apache; RFC 3875 §4.1.2 |
//! | `PATH_INFO` | only if configured | if not empty | Apache |
//! | `PATH_TRANSLATED` | no | with `PATH_INFO` | Apache; RFC 3875 §4.1.6 |
//! | `DOCUMENT_URI` | the internal path | no | nginx |
//! | `SERVER_NAME` | the configured name | the requested host | the requested host, if the site's `hosts` contain it; otherwise the first of these, like nginx: applications put it into mails |
//! | `SERVER_PORT` | the listener's | the listener's | both, but behind a trusted proxy the client's |
//! | `REMOTE_USER`, `AUTH_TYPE` | Basic's user, unchecked | only if checked | Apache: an application that trusts `REMOTE_USER` must not get an unchecked name |
//! | `HTTP_AUTHORIZATION` | yes | only with `CGIPassAuth` | nginx: REST interfaces need it |
//! | `REDIRECT_STATUS` | `200` | on internal redirects | nginx; `REDIRECT_URL` as Apache |
//! | `HTTP_HOST` | the header | the header | the absolute form's authority if there is one (RFC 9112 §3.2.2) |
//! | `HTTP_TRANSFER_ENCODING` | yes | yes | no: the body is de-chunked before PHP sees it |
//!
//! Headers of the same name are joined by `, `, cookies by `; ` (nginx since 1.23, RFC 9110 §5.3).

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use howdah_cache::vary::{self, Browser};
use howdah_htaccess::Table;
use howdah_http::message::RequestHead;
use howdah_proto::request::{FrameBuilder, IniKind, RequestFrame, RequestFrameError};
use howdah_proto::variables::{HeaderMapping, Var, header_mapping, header_variable_name};

use howdah_site::client_address::{Client, split_host};
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::ScriptTarget;
use howdah_site::site::config::HostPattern;
use howdah_site::site::route::ApacheRequest;

/// The value of `SERVER_SOFTWARE`, which names the server and its version.
pub const SOFTWARE: &str = concat!("Howdah/", env!("CARGO_PKG_VERSION"));
/// The value of `SERVER_SOFTWARE` if the site uses `.htaccess` files: applications write such files only for a server
/// that they recognise.
const SOFTWARE_WITH_HTACCESS: &str = concat!("Howdah/", env!("CARGO_PKG_VERSION"), " (Apache)");

/// The variables that a site adds to each of its requests. They are built once for each configuration.
#[derive(Clone, Debug, Default)]
pub struct SiteVariables {
    /// The site's number, for caches that are separate for each site.
    pub number: u32,
    /// The site's host names; empty if it handles every host.
    pub hosts: Vec<HostPattern>,
    /// `php_value`, `php_admin_value` and `env`, in this order of kinds.
    pub settings: Vec<(IniKind, Vec<u8>, Vec<u8>)>,
    /// Whether PHP is to report the side effects of the run, because the site has the page cache on.
    pub effects: bool,
    /// Whether ESI tags of marked responses are processed, which PHP is told.
    pub esi: bool,
    /// Whether pages for mobile browsers are stored separately, which PHP is told.
    pub vary_mobile: bool,
}

/// The names of the script, as the router found them.
#[derive(Clone, Copy, Debug)]
pub struct ScriptNames<'a> {
    /// The value of `REQUEST_URI`; `None` for the target as the client sent it.
    pub request_uri: Option<&'a [u8]>,
    /// The path of the script's file (`SCRIPT_FILENAME`).
    pub script_filename: &'a [u8],
    /// The URL path of the script (`SCRIPT_NAME`).
    pub script_name: &'a [u8],
    /// The rest of the path after the script's URL path (`PATH_INFO`), often empty.
    pub path_info: &'a [u8],
    /// The file that `PATH_INFO` would name below the root (`PATH_TRANSLATED`); `None` without `PATH_INFO`, or if it
    /// names a file that is never sent.
    pub path_translated: Option<&'a [u8]>,
    /// The directory of the site's files (`DOCUMENT_ROOT`).
    pub document_root: &'a [u8],
    /// The value of `QUERY_STRING`, if a rewrite changed it.
    pub query: Option<&'a [u8]>,
    /// The value of `REDIRECT_URL`, if a rewrite or front controller led to the script.
    pub redirect_url: Option<&'a [u8]>,
    /// Variables that an authorizer has set.
    pub granted: &'a [(Vec<u8>, Vec<u8>)],
    /// The settings of `.htaccess` files for the script.
    pub apache: Option<&'a ApacheRequest>,
    /// The target of the page that includes the script's response, for a fragment of the LiteSpeed Cache plugin.
    pub included_by: Option<&'a [u8]>,
}

/// What PHP is told if ESI tags are processed (Edge Architecture Specification §2.1): applications write tags only then.
const SURROGATE_CAPABILITY: &[u8] = b"howdah=\"ESI/1.0\"";

/// The initial capacity of a frame's buffer, which suffices for most. The buffer grows for a larger frame.
const FRAME_CAPACITY: usize = 2048;

/// Builds the frame of a request for a script. `local` is the address that the client connected to (`None` for a unix
/// socket). `included_by` is the target of the page that includes the response, if the script is to know it.
pub fn script_frame(
    request: &RequestHead,
    client: &Client<'_>,
    local: Option<SocketAddr>,
    site: &SiteVariables,
    target: &ScriptTarget,
    (body, included_by): (BodyLength, Option<&[u8]>),
) -> Result<RequestFrame, RequestFrameError> {
    let script = &target.script;
    let translated = script.path_translated();
    // As in Apache, `REDIRECT_URL` contains the client's decoded path, which routing has found valid.
    let path = target.redirected.then(|| UrlPath::parse(request.path()));
    let redirect_url = path.as_ref().and_then(|path| path.as_ref().ok());
    let names = ScriptNames {
        request_uri: None,
        script_filename: script.script_filename(),
        script_name: script.script_name(),
        path_info: script.path_info(),
        path_translated: translated.as_deref(),
        document_root: script.document_root(),
        query: target.query.as_deref(),
        redirect_url: redirect_url.map(UrlPath::as_bytes),
        granted: &target.granted_variables,
        apache: target.apache.as_deref(),
        included_by,
    };
    let buffer = Vec::with_capacity(FRAME_CAPACITY);
    build(buffer, request, client, local, &names, site, body)
}

/// Builds the frame in `buffer`, whose capacity is kept. `local` is the address that the client connected to (`None`
/// for a unix socket).
pub fn build(
    buffer: Vec<u8>,
    request: &RequestHead,
    client: &Client<'_>,
    local: Option<SocketAddr>,
    script: &ScriptNames<'_>,
    site: &SiteVariables,
    body: BodyLength,
) -> Result<RequestFrame, RequestFrameError> {
    let mut frame = FrameBuilder::new(buffer);
    if site.effects {
        frame.request_effects();
    }
    let apache = script.apache;
    let method = apache.and_then(|apache| apache.method);
    frame.var(
        Var::RequestMethod,
        method.map_or(request.method(), str::as_bytes),
    );
    let request_uri = script.request_uri.unwrap_or_else(|| request.target());
    frame.var(Var::RequestUri, request_uri);
    frame.var(
        Var::QueryString,
        script.query.or(request.query()).unwrap_or_default(),
    );
    frame.var(Var::ScriptFilename, script.script_filename);
    frame.var(Var::ScriptName, script.script_name);
    frame.var(Var::DocumentRoot, script.document_root);
    for var in [Var::PhpSelf, Var::DocumentUri] {
        frame.var_parts(var, &[script.script_name, script.path_info]);
    }
    if !script.path_info.is_empty() {
        frame.var(Var::PathInfo, script.path_info);
        if let Some(translated) = script.path_translated {
            frame.var(Var::PathTranslated, translated);
        }
    }
    let redirect = apache.and_then(|apache| apache.redirect.as_ref());
    if let Some(url) = redirect.map(|(url, _)| &url[..]).or(script.redirect_url) {
        frame.var(Var::RedirectUrl, url);
    }
    frame.var(Var::GatewayInterface, b"CGI/1.1");
    frame.var(Var::ServerProtocol, request.version().as_str().as_bytes());
    let software = match apache {
        Some(_) => SOFTWARE_WITH_HTACCESS,
        None => SOFTWARE,
    };
    frame.var(Var::ServerSoftware, software.as_bytes());
    let status = apache.and_then(|apache| apache.status).unwrap_or(200);
    frame.var(
        Var::RedirectStatus,
        DecimalDigits::new(u64::from(status)).as_bytes(),
    );
    add_address_variables(&mut frame, request, client, local, site);
    if let Some(length) = body.known() {
        if body != BodyLength::None {
            frame.var(Var::ContentLength, DecimalDigits::new(length).as_bytes());
        }
        add_header_variables(&mut frame, request, client, site, script);
        add_site_variables(&mut frame, request, client, site, script);
        return frame.finish(Some(length), site.number);
    }
    add_header_variables(&mut frame, request, client, site, script);
    add_site_variables(&mut frame, request, client, site, script);
    frame.finish(None, site.number)
}

/// The length of the request body, as far as it is known when the frame is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// The request has no body.
    None,
    /// The body has this many bytes.
    Known(u64),
    /// The body is still arriving, and the request did not give its length.
    Unknown,
}

impl BodyLength {
    fn known(self) -> Option<u64> {
        match self {
            BodyLength::None => Some(0),
            BodyLength::Known(n) => Some(n),
            BodyLength::Unknown => None,
        }
    }
}

fn add_address_variables(
    frame: &mut FrameBuilder,
    request: &RequestHead,
    client: &Client<'_>,
    local: Option<SocketAddr>,
    site: &SiteVariables,
) {
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    let (asked, host_port) = split_host(host);
    let mut text = AddressText { bytes: [0; 48] };
    let own = site_name_for(&site.hosts, asked);
    if own.is_some() {
        frame.set_own_name();
    }
    if let Some(name) = own.or((!asked.is_empty()).then_some(asked)) {
        frame.var(Var::ServerName, name);
    } else if let Some(local) = local {
        frame.var(Var::ServerName, text.of(local.ip()));
    }
    if let Some(local) = local {
        frame.var(Var::ServerAddr, text.of(local.ip().to_canonical()));
    }
    let standard = if client.https { 443 } else { 80 };
    // Behind a proxy, the listener's port means nothing to the client.
    let port = match local {
        Some(local) if !client.proxied => local.port(),
        _ => host_port.unwrap_or(standard),
    };
    frame.var(
        Var::ServerPort,
        DecimalDigits::new(u64::from(port)).as_bytes(),
    );
    if let Some(address) = client.address {
        frame.var(Var::RemoteAddr, text.of(address));
    } else {
        frame.var(Var::RemoteAddr, b"unix:");
    }
    if let Some(port) = client.port {
        frame.var(
            Var::RemotePort,
            DecimalDigits::new(u64::from(port)).as_bytes(),
        );
    }
    if client.https {
        frame.var(Var::RequestScheme, b"https");
        frame.var(Var::Https, b"on");
    } else {
        frame.var(Var::RequestScheme, b"http");
    }
    if let Some(agreed) = client.tls {
        frame.var(Var::SslProtocol, agreed.protocol.as_bytes());
        frame.var(Var::SslCipher, agreed.cipher.as_bytes());
    }
}

/// Returns the site's name for this request: `asked`, if it is one of `hosts`; otherwise the first of `hosts` that is a
/// full name. Returns `None` if there is no such name.
fn site_name_for<'h>(hosts: &'h [HostPattern], asked: &'h [u8]) -> Option<&'h [u8]> {
    let bare = asked.strip_suffix(b".").unwrap_or(asked);
    match hosts.iter().any(|host| host.is_for(bare)) {
        true => Some(asked),
        false => HostPattern::first_name(hosts).map(str::as_bytes),
    }
}

fn add_header_variables(
    frame: &mut FrameBuilder,
    request: &RequestHead,
    client: &Client<'_>,
    site: &SiteVariables,
    script: &ScriptNames<'_>,
) {
    if site.esi {
        frame.named(b"HTTP_SURROGATE_CAPABILITY", SURROGATE_CAPABILITY);
    }
    if site.vary_mobile && vary::browser(request.headers()) == Some(Browser::Mobile) {
        frame.named(b"LSCACHE_VARY_VALUE", b"ismobile");
    }
    if let Some(page) = script.included_by {
        frame.named(b"ESI_REFERER", page);
    }
    let mut name_buffer = Vec::new();
    if let Some(edited) = script.apache.and_then(|apache| apache.headers.as_ref()) {
        return add_edited_headers(frame, edited, site, &mut name_buffer);
    }
    // Filled, and allocated, only if a name occurs more than once.
    let mut parts: Vec<&[u8]> = Vec::new();
    for (at, (name, value)) in request.headers().enumerate() {
        match header_mapping(name) {
            HeaderMapping::Pass => {}
            HeaderMapping::OwnVariable => {
                let is_type = name.len() == b"content-type".len();
                let first = || request.header(name).is_some_and(|v| std::ptr::eq(v, value));
                if is_type && first() {
                    frame.var(Var::ContentType, value);
                }
                continue;
            }
            HeaderMapping::DropProxy | HeaderMapping::DropAlias => continue,
        }
        if name.eq_ignore_ascii_case(b"transfer-encoding")
            || announces_litespeed_cache(name)
            || (site.esi && concerns_esi(name))
        {
            continue;
        }
        let same = |other: &[u8]| other.len() == name.len() && other.eq_ignore_ascii_case(name);
        if request.headers().take(at).any(|(other, _)| same(other)) {
            continue;
        }
        let known = known_header_variable(name);
        let value = match known {
            Some(Var::HttpHost) => client.host.as_deref().unwrap_or_else(|| request.host()),
            _ => value,
        };
        parts.clear();
        if known != Some(Var::HttpHost) {
            let separator: &[u8] = if known == Some(Var::HttpCookie) {
                b"; "
            } else {
                b", "
            };
            for (_, more) in request.headers().skip(at + 1).filter(|(n, _)| same(n)) {
                parts.extend([separator, more]);
            }
        }
        if parts.is_empty() {
            match known {
                Some(var) => frame.var(var, value),
                None => {
                    header_variable_name(name, &mut name_buffer);
                    frame.named(&name_buffer, value);
                }
            }
            continue;
        }
        parts.insert(0, value);
        match known {
            Some(var) => frame.var_parts(var, &parts),
            None => {
                header_variable_name(name, &mut name_buffer);
                frame.named(&name_buffer, &parts.concat());
            }
        }
    }
}

/// Like [`add_header_variables`], for a request header that `RequestHeader` lines have changed. Only the first header
/// of each name is used.
fn add_edited_headers(
    frame: &mut FrameBuilder,
    edited: &Table,
    site: &SiteVariables,
    name_buffer: &mut Vec<u8>,
) {
    let mut seen: Vec<&[u8]> = Vec::new();
    for (name, value) in edited.iter() {
        let is_type = name.eq_ignore_ascii_case(b"content-type");
        match header_mapping(name) {
            HeaderMapping::Pass => {}
            HeaderMapping::OwnVariable if is_type => {
                frame.var(Var::ContentType, value);
                continue;
            }
            _ => continue,
        }
        let again = seen.iter().any(|known| known.eq_ignore_ascii_case(name));
        if again
            || name.eq_ignore_ascii_case(b"transfer-encoding")
            || announces_litespeed_cache(name)
            || (site.esi && concerns_esi(name))
        {
            continue;
        }
        seen.push(name);
        match known_header_variable(name) {
            Some(var) => frame.var(var, value),
            None => {
                header_variable_name(name, name_buffer);
                frame.named(name_buffer, value);
            }
        }
    }
}

/// Returns whether PHP does not see a header of a client, because this server processes ESI tags: what the client says
/// about the abilities of caches, and the codings in which it accepts the response. Tags cannot be found in an encoded
/// body; this server compresses the response itself.
fn concerns_esi(name: &[u8]) -> bool {
    match name.len() {
        15 => name.eq_ignore_ascii_case(b"accept-encoding"),
        20 => name.eq_ignore_ascii_case(b"surrogate-capability"),
        _ => false,
    }
}

/// Returns whether a header announces a LiteSpeed cache in front of PHP. Plugins believe any client that sends one, and
/// leave holes in the page for the cache to fill (lscache_wp, litespeed-cache.php).
fn announces_litespeed_cache(name: &[u8]) -> bool {
    match name.len() {
        9 => name.eq_ignore_ascii_case(b"x-lscache"),
        10 => name.eq_ignore_ascii_case(b"x-litemage"),
        20 => name.eq_ignore_ascii_case(b"x-lscache-vary-value"),
        _ => false,
    }
}

fn add_site_variables(
    frame: &mut FrameBuilder,
    request: &RequestHead,
    client: &Client<'_>,
    site: &SiteVariables,
    script: &ScriptNames<'_>,
) {
    let granted = script.granted;
    // An authorizer's variable takes precedence over the configuration's. It is a variable of the request, not of the
    // environment. In mode `cgi`, where such variables become the environment, the executor checks their names.
    let is_granted = |name: &[u8]| granted.iter().any(|(known, _)| known == name);
    for (kind, name, value) in &site.settings {
        if *kind != IniKind::Environment || !is_granted(name) {
            frame.ini(*kind, name, value);
        }
    }
    for (name, value) in granted {
        frame.named(name, value);
    }
    if let Some(apache) = script.apache {
        for (name, value) in &apache.php {
            frame.ini(IniKind::Value, name.as_bytes(), value.as_bytes());
        }
        if let Some((_, Some(query))) = &apache.redirect {
            frame.named(b"REDIRECT_QUERY_STRING", query);
        }
        if let Some(user) = &apache.user {
            frame.var(Var::RemoteUser, user);
            frame.var(Var::AuthType, b"Basic");
        }
        for (name, value) in &apache.environment {
            if !is_granted(name) && may_be_set(name, script, request, client) {
                frame.named(name, value);
            }
        }
    }
    for (name, value) in client.tls.iter().flat_map(|tls| &tls.client) {
        frame.named(name.as_bytes(), value.as_bytes());
    }
}

/// Returns whether an `.htaccess` file may set this variable, because the server does not set it for this request.
fn may_be_set(
    name: &[u8],
    script: &ScriptNames<'_>,
    request: &RequestHead,
    client: &Client<'_>,
) -> bool {
    if let Some(field) = name.strip_prefix(b"HTTP_") {
        let mut own = Vec::new();
        let is_there = request.headers().any(|(header, _)| {
            header_variable_name(header, &mut own);
            own[..] == *name
        });
        return !field.is_empty() && !is_there;
    }
    match Var::from_name(name) {
        Some(Var::Https) => !client.https,
        Some(Var::RemoteUser | Var::AuthType) => {
            script.apache.is_none_or(|apache| apache.user.is_none())
        }
        Some(Var::PathInfo) => script.path_info.is_empty(),
        Some(_) => false,
        None => name != b"REDIRECT_QUERY_STRING",
    }
}

/// Returns the known variable for a header without first building the variable's name. The known names are grouped by
/// length once, and few of them have the same length.
fn known_header_variable(name: &[u8]) -> Option<Var> {
    const PREFIX: &str = "HTTP_";
    static BY_LENGTH: OnceLock<Vec<Vec<Var>>> = OnceLock::new();
    let by_length = BY_LENGTH.get_or_init(|| {
        let mut table: Vec<Vec<Var>> = Vec::new();
        for var in Var::ALL {
            if let Some(header) = var.name().strip_prefix(PREFIX) {
                table.resize(table.len().max(header.len() + 1), Vec::new());
                table[header.len()].push(*var);
            }
        }
        table
    });
    let is = |var: &&Var| {
        let known = &var.name().as_bytes()[PREFIX.len()..];
        known.iter().zip(name).all(|(k, n)| match k {
            b'_' => *n == b'-',
            k => *k == n.to_ascii_uppercase(),
        })
    };
    by_length.get(name.len())?.iter().find(is).copied()
}

/// The text of an address, written without an allocation; for IPv4, the common case, also without the formatter.
struct AddressText {
    bytes: [u8; 48],
}

impl AddressText {
    fn of(&mut self, address: IpAddr) -> &[u8] {
        let mut used = 0;
        match address {
            IpAddr::V4(address) => {
                for (at, octet) in address.octets().into_iter().enumerate() {
                    if at > 0 {
                        self.bytes[used] = b'.';
                        used += 1;
                    }
                    let digits = DecimalDigits::new(u64::from(octet));
                    let digits = digits.as_bytes();
                    self.bytes[used..used + digits.len()].copy_from_slice(digits);
                    used += digits.len();
                }
            }
            IpAddr::V6(address) => {
                let room = self.bytes.len();
                let mut rest = &mut self.bytes[..];
                // An IPv6 address has at most 39 characters, so this cannot fail.
                let _ = write!(rest, "{address}");
                used = room - rest.len();
            }
        }
        &self.bytes[..used]
    }
}

/// Decimal digits, written without an allocation.
struct DecimalDigits {
    bytes: [u8; 20],
    start: usize,
}

impl DecimalDigits {
    fn new(mut n: u64) -> DecimalDigits {
        let mut digits = DecimalDigits {
            bytes: [0; 20],
            start: 20,
        };
        loop {
            digits.start -= 1;
            digits.bytes[digits.start] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                return digits;
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
