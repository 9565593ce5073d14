//! Turns a response into named facts that can be compared between servers, and compares them. This module does not
//! depend on particular probes or servers: the requests are in `tests/http/oracle_requests.rs`, the scripts in the
//! repository's `tests/probes/`, and the accepted differences in [`crate::differences`].

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::http::{Connection, ExchangeError, Response};
use crate::{http2, http3};

/// A request that is sent, byte for byte, to every server.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The probe's name in `docs/differences.md`.
    pub name: String,
    method: String,
    target: String,
    host: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// The body without chunk framing, if the probe sends chunks.
    whole: Option<Vec<u8>>,
    session: bool,
}

impl Probe {
    /// Creates a probe for `GET target`, with `Host: probe.example`.
    pub fn get(name: &str, target: &str) -> Self {
        Probe {
            name: name.into(),
            method: "GET".into(),
            target: target.into(),
            host: "probe.example".into(),
            headers: Vec::new(),
            body: Vec::new(),
            whole: None,
            session: false,
        }
    }

    /// Sets another method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.into();
        self
    }

    /// Sets another Host header.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets a body with its length and, unless `kind` is empty, its media type. The method becomes POST if it was GET.
    pub fn body(mut self, kind: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.body = bytes.into();
        if self.method == "GET" {
            self.method = "POST".into();
        }
        if !kind.is_empty() {
            self.headers.push(("Content-Type".into(), kind.into()));
        }
        self.headers
            .push(("Content-Length".into(), self.body.len().to_string()));
        self
    }

    /// Sets a body that is sent in chunks of `size` bytes (the last chunk may be shorter), instead of a body with a
    /// length. The method becomes POST.
    pub fn chunked(mut self, kind: &str, bytes: &[u8], size: usize) -> Self {
        for chunk in bytes.chunks(size) {
            self.body
                .extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            self.body.extend_from_slice(chunk);
            self.body.extend_from_slice(b"\r\n");
        }
        self.body.extend_from_slice(b"0\r\n\r\n");
        self.whole = Some(bytes.to_vec());
        self.method = "POST".into();
        self.header("Content-Type", kind)
            .header("Transfer-Encoding", "chunked")
    }

    /// Sends the session cookie that the server set in response to an earlier probe.
    pub fn in_session(mut self) -> Self {
        self.session = true;
        self
    }

    /// Returns the bytes on the wire.
    pub fn bytes(&self, cookie: Option<&str>) -> Vec<u8> {
        let mut message = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method, self.target, self.host
        );
        for (name, value) in &self.headers {
            message.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(cookie) = cookie {
            message.push_str(&format!("Cookie: {cookie}\r\n"));
        }
        message.push_str("\r\n");
        let mut message = message.into_bytes();
        message.extend_from_slice(&self.body);
        message
    }
}

impl Probe {
    /// Returns the probe as HTTP/2 and HTTP/3 express it: the body is not chunked, and the blanks around header values
    /// are removed, as parsers of HTTP/1.1 do.
    fn for_http2(&self, cookie: Option<&str>) -> http2::Http2Request {
        let mut request = http2::Http2Request::new(&self.method, &self.host, &self.target);
        for (name, value) in &self.headers {
            if !name.eq_ignore_ascii_case("transfer-encoding") {
                request = request.header(name, value.trim().as_bytes());
            }
        }
        if let Some(cookie) = cookie {
            request = request.header("cookie", cookie.as_bytes());
        }
        if self.headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        }) {
            request = request.body(self.whole.as_ref().unwrap_or(&self.body));
        }
        request
    }
}

/// The facts of one server's response to one probe, by name.
pub type ResponseProperties = BTreeMap<String, String>;

/// A server to which probes are sent.
#[derive(Debug)]
pub struct ProbedServer {
    address: SocketAddr,
    /// The document root; it is replaced by `ROOT` in responses, so it is the same for all servers.
    root: String,
    cookie: Option<String>,
    protocol: Protocol,
    /// The server's port, which may occur in responses.
    port: u16,
}

#[derive(Debug)]
enum Protocol {
    Http1,
    Http2,
    /// The certificate authority (a PEM file) that the client trusts.
    Http3(PathBuf),
}

impl ProbedServer {
    /// Creates the server at `address`, which serves `root`.
    pub fn new(address: SocketAddr, root: &str) -> Self {
        ProbedServer {
            address,
            root: root.into(),
            cookie: None,
            protocol: Protocol::Http1,
            port: address.port(),
        }
    }

    /// Uses HTTP/2 from now on.
    pub fn over_http2(mut self) -> Self {
        self.protocol = Protocol::Http2;
        self
    }

    /// Uses HTTP/3 from now on; `authority` (a PEM file) has signed a certificate for the server's address.
    pub fn over_http3(mut self, authority: &Path) -> Self {
        self.protocol = Protocol::Http3(authority.to_path_buf());
        self
    }

    /// Sets the server's own port, for requests that reach it through another program.
    pub fn of_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sends a probe on a new connection and returns the response as facts.
    pub fn ask(&mut self, probe: &Probe) -> ResponseProperties {
        let mut facts = ResponseProperties::new();
        match self.exchange(probe) {
            Ok(response) => self.record_properties(&response, &mut facts),
            Err(broken) => {
                facts.insert("broken".into(), broken.to_string());
            }
        }
        facts
    }

    fn exchange(&mut self, probe: &Probe) -> Result<Response, ExchangeError> {
        let cookie = self.cookie.as_deref().filter(|_| probe.session);
        let response = match &self.protocol {
            Protocol::Http1 => self.exchange_http1(probe, cookie),
            Protocol::Http2 => {
                http2::Http2TestClient::open(self.address)?.ask(&probe.for_http2(cookie))
            }
            Protocol::Http3(authority) => {
                let name = self.address.ip().to_string();
                let mut client = http3::Http3TestClient::open(authority, self.address, &name)?;
                client.ask(&probe.for_http2(cookie))
            }
        };
        Ok(self.keep_cookie(probe, response?))
    }

    fn exchange_http1(
        &self,
        probe: &Probe,
        cookie: Option<&str>,
    ) -> Result<Response, ExchangeError> {
        let mut connection = Connection::open(self.address)?;
        // The server may reject the request and close the connection before everything has been sent.
        let sent = connection.send(probe.bytes(cookie));
        let answer = connection.read_response(&probe.method);
        answer.map_err(|broken| sent.err().map_or(broken, ExchangeError::Io))
    }

    fn keep_cookie(&mut self, probe: &Probe, response: Response) -> Response {
        if probe.session
            && let Some(line) = response.header("Set-Cookie")
        {
            self.cookie = line.split(';').next().map(str::to_owned);
        }
        response
    }

    fn record_properties(&self, response: &Response, facts: &mut ResponseProperties) {
        let reason = response.head.reason.as_deref().unwrap_or_default();
        facts.insert(
            "status".into(),
            format!("{} {reason}", response.status()).trim_end().into(),
        );
        facts.insert("keeps_alive".into(), response.keeps_alive.to_string());
        for interim in &response.interim {
            facts.insert(
                format!("interim.{}", interim.status),
                interim.reason.clone().unwrap_or_default(),
            );
        }
        // PHP had no part in such a response, so each server may write a text of its own. Only whether there is a text
        // is compared.
        let own_page = response.status() >= 300 && response.header("X-Powered-By").is_none();
        for (name, value) in &response.head.headers.0 {
            let name = name.to_ascii_lowercase();
            if own_page && name == "content-type" {
                continue;
            }
            if let Some(value) = header_fact(&name, value) {
                let value = self.normalise(&value);
                facts
                    .entry(format!("header.{name}"))
                    .and_modify(|have| *have = format!("{have} || {value}"))
                    .or_insert(value);
            }
        }
        if own_page {
            facts.insert(
                "body.by_the_server".into(),
                (!response.body.is_empty()).to_string(),
            );
        } else {
            self.tell_body(&response.body, facts);
        }
    }

    fn tell_body(&self, body: &[u8], facts: &mut ResponseProperties) {
        let text = std::str::from_utf8(body)
            .ok()
            .filter(|text| text.len() < 200_000);
        let Some(text) = text else {
            let mut hasher = DefaultHasher::new();
            body.hash(&mut hasher);
            facts.insert(
                "body".into(),
                format!("{} bytes, hash {:016x}", body.len(), hasher.finish()),
            );
            return;
        };
        facts.insert("body.is_empty".into(), text.is_empty().to_string());
        let mut other = 0;
        for line in text.split('\n').map(|line| self.normalise(line)) {
            let named = line
                .split_once(" = ")
                .filter(|(name, _)| !name.is_empty() && !name.contains([' ', '<', '>', '"']));
            match named {
                Some((name, value)) => {
                    let mut key = name.to_owned();
                    while facts.contains_key(&key) {
                        key.push('\'');
                    }
                    facts.insert(key, value.to_owned());
                }
                None if line.trim().is_empty() => {}
                None => {
                    other += 1;
                    facts.insert(format!("body.{other}"), line);
                }
            }
        }
    }

    /// Replaces text that necessarily differs between two servers: the port, the document root, the names of private
    /// directories and temporary files, session ids, and the remaining time of cookies.
    fn normalise(&self, text: &str) -> String {
        let port = self.port.to_string();
        let mut text = text
            .replace(&self.root, "ROOT")
            .replace(&format!(":{port}"), ":PORT")
            .replace(&format!("\"{port}\""), "\"PORT\"");
        for marker in ["/howdah-tests-", "PHPSESSID=", "Max-Age=", "/php"] {
            let mut from = 0;
            while let Some(at) = text[from..].find(marker).map(|at| at + from + marker.len()) {
                let end = text[at..]
                    .find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
                    .map_or(text.len(), |end| at + end);
                let random = marker != "/php"
                    || (end - at == 6
                        && text[at..end]
                            .chars()
                            .any(|c| c.is_ascii_uppercase() || c.is_ascii_digit()));
                if random && end > at {
                    text.replace_range(at..end, "*");
                }
                from = at;
            }
        }
        text
    }
}

/// Returns the value of a header as a fact. Returns `None` for headers in which servers legitimately differ: framing,
/// the current date, the server's name, and the number of a request in the server's log.
fn header_fact(name: &str, value: &str) -> Option<String> {
    let ours = match name {
        "content-length" | "transfer-encoding" | "connection" | "keep-alive" | "howdah-request" => {
            return None;
        }
        "server" => value != "mine",
        "date" => !value.contains("1970"),
        "etag" if !value.contains("probe") => return Some("a tag".into()),
        _ => false,
    };
    let year = value
        .get(12..16)
        .filter(|_| value.len() == 29 && value.ends_with(" GMT"));
    let today = year
        .and_then(|year| year.parse::<u32>().ok())
        .is_some_and(|year| (2024..2033).contains(&year));
    match (ours, today) {
        (true, _) => None,
        (false, true) => Some("a date of today".into()),
        (false, false) => Some(value.to_owned()),
    }
}

/// A fact on which two servers disagree. `None` as a value means that the server's response does not have the fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The probe's name.
    pub probe: String,
    /// The fact's name.
    pub fact: String,
    /// The value from the server under test.
    pub ours: Option<String>,
    /// The value from the rival.
    pub theirs: Option<String>,
}

/// Returns every fact on which the responses to `probe` differ.
pub fn compare(
    probe: &str,
    ours: &ResponseProperties,
    theirs: &ResponseProperties,
) -> Vec<Disagreement> {
    let mut names: Vec<&String> = ours.keys().chain(theirs.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| ours.get(*name) != theirs.get(*name))
        .map(|name| Disagreement {
            probe: probe.to_owned(),
            fact: name.clone(),
            ours: ours.get(name).cloned(),
            theirs: theirs.get(name).cloned(),
        })
        .collect()
}
