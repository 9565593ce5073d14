//! Builds the request for a server from the request of the client: without the headers that concern only the connection
//! to the client (RFC 9110 §7.6.1), and with what this server knows about the client. What a client claims about itself
//! in the headers of proxies is never forwarded.

use std::ops::Range;

use bytes::Bytes;
use howdah_http::BodyKind;
use howdah_http::message::{HttpVersion, RequestHead};
use http::header::{self, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Uri};

use crate::failure::Failure;
use howdah_site::client_address::{Client, split_host};
use howdah_site::docroot::path::{decode, encode, encode_path};

/// The name of this server in `Via`.
const VIA_VALUE: &str = "1.1 Howdah";
/// A request that has passed through this server this many times is in a loop.
const MAX_VISITS: usize = 10;

/// Headers that are never forwarded: those of the connection, those of other proxies, and those that are set here.
const NOT_FORWARDED: [&str; 18] = [
    "connection",
    "expect",
    "forwarded",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "x-forwarded-for",
    "x-real-ip",
    "x-client-ip",
];

/// The parts of a request to a server.
pub struct OutgoingRequest<'a> {
    /// The client's request.
    pub request: &'a RequestHead,
    /// The client that sent it.
    pub client: &'a Client<'a>,
    /// The peer of the connection itself.
    pub peer: Option<std::net::IpAddr>,
    /// The cleaned path that the rules have led to.
    pub path: &'a [u8],
    /// The query, if a rewrite has changed it; otherwise the request's.
    pub query: Option<&'a [u8]>,
    /// The kind of the body, with its length if it is known.
    pub body: BodyKind,
    /// Whether the client asks for WebSocket.
    pub websocket: bool,
}

/// Returns whether the request asks for WebSocket (RFC 6455 §4.1). Only HTTP/1.1 requests can
/// ask for it: browsers open an HTTP/1.1 connection for each WebSocket.
pub fn asks_for_websocket(request: &RequestHead) -> bool {
    let lists = |name: &'static [u8], token: &[u8]| {
        let values = request.header_all(name);
        values
            .flat_map(|value| value.split(|b| *b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
    };
    request.version() == HttpVersion::Http11
        && request.method() == b"GET"
        && lists(b"connection", b"upgrade")
        && lists(b"upgrade", b"websocket")
}

/// Builds the request, with path and query as its URI.
pub fn build_request(out: &OutgoingRequest<'_>) -> Result<Request<()>, Failure> {
    let visits = out
        .request
        .header_all(b"via")
        .flat_map(|value| value.split(|b| *b == b','))
        .filter(|visit| visit.trim_ascii() == VIA_VALUE.as_bytes());
    if visits.count() >= MAX_VISITS {
        return Err(Failure::ProxyLoop);
    }
    let mut request = Request::new(());
    // The method is a token, which `Method` accepts.
    *request.method_mut() = Method::from_bytes(out.request.method()).unwrap_or(Method::GET);
    *request.uri_mut() = Uri::from(target(out));
    *request.headers_mut() = headers(out);
    Ok(request)
}

/// Headers with which a client could claim to an authorization service that the request is a different one, or comes
/// from a different client. For example, Authelia's `/api/verify` prefers `X-Original-URL` to `X-Forwarded-Uri`.
const MISLEADING_HEADERS: [&str; 10] = [
    "cf-connecting-ip",
    "fastly-client-ip",
    "true-client-ip",
    "x-cluster-client-ip",
    "x-host",
    "x-http-host-override",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-rewrite-url",
];
const MISLEADING_HEADER_PREFIXES: [&str; 3] = ["x-auth-request-", "x-envoy-", "x-original-"];

/// Builds the request to an authorization service: a GET of `path` with the client's headers and without its body.
///
/// `out.path` is the cleaned path that the service has to judge. It is in `X-Forwarded-Uri` with the query and in
/// `X-Original-URL` with scheme and host, always in the same spelling, so the service judges the path that the rules
/// have seen. `X-Forwarded-Method` and `X-Original-Method` contain the client's method. These are the names that
/// Caddy's `forward_auth`, Traefik's `forwardAuth` and ingress-nginx use.
pub fn build_authorization_request(
    out: &OutgoingRequest<'_>,
    path: &PathAndQuery,
) -> Result<Request<()>, Failure> {
    let mut question = build_request(out)?;
    *question.method_mut() = Method::GET;
    *question.uri_mut() = Uri::from(path.clone());
    let headers = question.headers_mut();
    // These concern the client's body, or the page that the client has stored: they must not turn a 200 into a 206, 304 or
    // 412.
    for of_another_message in [
        header::CONTENT_LENGTH,
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::RANGE,
        header::IF_MATCH,
        header::IF_MODIFIED_SINCE,
        header::IF_NONE_MATCH,
        header::IF_RANGE,
        header::IF_UNMODIFIED_SINCE,
    ] {
        headers.remove(of_another_message);
    }
    let names: Vec<HeaderName> = headers.keys().cloned().collect();
    for name in names {
        let is_misleading = MISLEADING_HEADERS.contains(&name.as_str())
            || MISLEADING_HEADER_PREFIXES
                .iter()
                .any(|begin| name.as_str().starts_with(begin));
        if is_misleading {
            headers.remove(name);
        }
    }
    let uri = clean_target(out.path, out.query);
    let client = out.client;
    let host = client.host.as_deref().unwrap_or_else(|| out.request.host());
    let scheme: &[u8] = if client.https {
        b"https://"
    } else {
        b"http://"
    };
    let url = [scheme, host, &uri].concat();
    for (name, value) in [
        ("x-forwarded-method", out.request.method()),
        ("x-forwarded-uri", &uri[..]),
        ("x-original-method", out.request.method()),
        ("x-original-url", &url[..]),
    ] {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    Ok(question)
}

/// Returns a cleaned path with the client's query, percent-encoded in one spelling.
pub fn clean_target(path: &[u8], query: Option<&[u8]>) -> Vec<u8> {
    let mut target = Vec::new();
    encode_path(path, &mut target);
    if let Some(query) = query {
        target.push(b'?');
        encode(query, TARGET_CHARACTERS, &mut target);
    }
    target
}

/// The characters that are permitted in a path and query (RFC 3986 §3.3, §3.4), including existing percent-encodings.
const TARGET_CHARACTERS: &[u8] = b"-._~!$&'()*+,;=:@/?%[]";

/// Returns path and query: as the client wrote them, unless a rule or the cleaning has changed the path.
fn target(out: &OutgoingRequest<'_>) -> PathAndQuery {
    let raw = out.request.path();
    let mut target = Vec::with_capacity(raw.len() + 64);
    match decode(raw) {
        // The server sees the path that the rules saw.
        Ok(decoded) if decoded == out.path => encode(raw, TARGET_CHARACTERS, &mut target),
        _ => encode_path(out.path, &mut target),
    }
    if let Some(query) = out.query {
        target.push(b'?');
        encode(query, TARGET_CHARACTERS, &mut target);
    }
    // All remaining bytes are valid in a URI.
    PathAndQuery::from_maybe_shared(Bytes::from(target))
        .unwrap_or_else(|_| PathAndQuery::from_static("/"))
}

fn headers(out: &OutgoingRequest<'_>) -> HeaderMap {
    let OutgoingRequest {
        request, client, ..
    } = out;
    let named: Vec<&[u8]> = request
        .header_all(b"connection")
        .flat_map(|value| value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let stays = |name: &[u8]| {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        NOT_FORWARDED.iter().any(|stays| is(stays.as_bytes()))
            || named.iter().any(|listed| is(listed))
            // Servers that turn headers into variables treat `_` like `-` (nginx's underscores_in_headers).
            || name.contains(&b'_')
            || name.len() > 12 && name[..12].eq_ignore_ascii_case(b"x-forwarded-")
    };
    let mut list = HeaderList::default();
    for (name, value) in request.headers() {
        if !stays(name)
            && let Ok(name) = HeaderName::from_bytes(name)
        {
            list.push(name, value);
        }
    }
    let mut set = |name: HeaderName, value: &[u8]| list.push(name, value);
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    if !host.is_empty() {
        set(header::HOST, host);
        set(HeaderName::from_static("x-forwarded-host"), host);
    }
    set(
        HeaderName::from_static("x-forwarded-for"),
        &forwarded_for(out),
    );
    if let Some(address) = client.address {
        set(
            HeaderName::from_static("x-real-ip"),
            address.to_string().as_bytes(),
        );
    }
    let scheme: &[u8] = if client.https { b"https" } else { b"http" };
    set(HeaderName::from_static("x-forwarded-proto"), scheme);
    let (_, port) = split_host(host);
    if let Some(port) = port {
        set(
            HeaderName::from_static("x-forwarded-port"),
            port.to_string().as_bytes(),
        );
    }
    set(header::VIA, VIA_VALUE.as_bytes());
    if out.websocket {
        set(header::CONNECTION, b"Upgrade");
        set(header::UPGRADE, b"websocket");
    }
    match out.body {
        BodyKind::None if request.header(b"content-length").is_some() => {
            set(header::CONTENT_LENGTH, b"0");
        }
        BodyKind::Length(length) => set(header::CONTENT_LENGTH, length.to_string().as_bytes()),
        // Without this header, hyper's HTTP/1.1 client assumes that a GET or HEAD has no body. Its HTTP/2 client
        // removes the header.
        BodyKind::Chunked => set(header::TRANSFER_ENCODING, b"chunked"),
        BodyKind::None => {}
    }
    list.into_map()
}

/// Headers whose values are in one buffer, so copying the request for an attempt copies no value.
#[derive(Default)]
struct HeaderList {
    names: Vec<(HeaderName, Range<usize>)>,
    values: Vec<u8>,
}

impl HeaderList {
    fn push(&mut self, name: HeaderName, value: &[u8]) {
        let start = self.values.len();
        self.values.extend_from_slice(value);
        self.names.push((name, start..self.values.len()));
    }

    /// Returns the headers, without those whose values are invalid.
    fn into_map(self) -> HeaderMap {
        let values = Bytes::from(self.values);
        let mut headers = HeaderMap::with_capacity(self.names.len());
        for (name, value) in self.names {
            if let Ok(value) = HeaderValue::from_maybe_shared(values.slice(value)) {
                headers.append(name, value);
            }
        }
        headers
    }
}

/// Returns the address of the client. Behind trusted proxies, returns the list that they have sent, followed by the
/// address of the last proxy.
fn forwarded_for(out: &OutgoingRequest<'_>) -> Vec<u8> {
    let mut list = Vec::new();
    if out.client.proxied {
        for value in out.request.header_all(b"x-forwarded-for") {
            list.extend_from_slice(value);
            list.extend_from_slice(b", ");
        }
        if list.is_empty()
            && let Some(address) = out.client.address
        {
            list.extend_from_slice(format!("{address}, ").as_bytes());
        }
    }
    match out.peer {
        Some(peer) => list.extend_from_slice(peer.to_canonical().to_string().as_bytes()),
        None => list.extend_from_slice(b"unknown"),
    }
    list
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
