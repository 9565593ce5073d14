//! Requests that the server makes itself: to render a page, from the page's key alone or as a visitor's own request for
//! the whole page (`cache = "rfc"`), and for a fragment of a visitor's page.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use howdah_cache::key::PageKey;
use howdah_cache::object::Object;
use howdah_cache::vary;
use howdah_http::message::{HttpVersion, RequestHead};
use howdah_http1::head::{self, HeadLimits};

use super::OwnedHeader;
use howdah_site::client_address::Client;

/// The client address of renders for no particular visitor. This is an address for documentation (RFC 5737): the
/// loopback address would give access to what applications reserve for the local machine.
const CLEAN_CLIENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The `User-Agent` of these renders: applications treat it as a browser, and the site's owner can find it in a log.
const USER_AGENT_START: &str = "Mozilla/5.0";
/// The end of the `User-Agent` of these renders.
const USER_AGENT_COMMENT: &str = concat!(
    " (compatible; Howdah-Cache/",
    env!("CARGO_PKG_VERSION"),
    ")"
);
/// Limits that all requests written by the server itself fit in.
const SUBREQUEST_LIMITS: HeadLimits = HeadLimits {
    request_line: 64 << 10,
    bytes: 256 << 10,
    fields: 128,
};

/// A request that outlives its connection, or never had one.
pub struct Subrequest {
    /// The request, for the whole page.
    pub request: RequestHead,
    /// The client that PHP sees.
    pub client: Client<'static>,
    /// The server's address that the client connected to; `None` for a unix socket.
    pub local: Option<SocketAddr>,
}

impl Subrequest {
    /// Returns a clean request: it contains nothing of a visitor, only what the page's key holds. `varied` has what the
    /// page is known to vary by, headers or the names of [`vary`], with the values that it is rendered for. `None` if the head is too
    /// large.
    pub fn clean_head(key: &PageKey, varied: &[OwnedHeader], https: bool) -> Option<Subrequest> {
        Some(Subrequest {
            request: clean(key, varied)?,
            client: Client {
                address: Some(CLEAN_CLIENT_ADDRESS),
                port: None,
                https,
                tls: None,
                host: None,
                // The port is the one in the host, not the listener's.
                proxied: true,
            },
            local: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 80))),
        })
    }
}

fn clean(key: &PageKey, varied: &[OwnedHeader]) -> Option<RequestHead> {
    let mut text = b"GET ".to_vec();
    text.extend_from_slice(key.target());
    text.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    text.extend_from_slice(key.push_host());
    let varies = |name: &str| varied.iter().any(|(n, _)| n == name.as_bytes());
    let is_mobile = varied.iter().any(|(name, _)| vary::is_mobile_name(name));
    if !varies("user-agent") {
        let start = match is_mobile {
            true => vary::MOBILE_USER_AGENT_START,
            false => USER_AGENT_START,
        };
        push_header(
            &mut text,
            b"User-Agent",
            [start, USER_AGENT_COMMENT].concat().as_bytes(),
        );
    }
    if !varies("accept") {
        text.extend_from_slice(
            b"\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        );
    }
    let mut cookies: Vec<u8> = Vec::new();
    for (name, value) in varied {
        if let Some(cookie) = vary::cookie_of(name) {
            let separator: &[u8] = if cookies.is_empty() { b"" } else { b"; " };
            cookies.extend([separator, cookie, b"=", value].concat());
        } else if !vary::is_mobile_name(name) {
            push_header(&mut text, name, value);
        }
    }
    if !cookies.is_empty() {
        push_header(&mut text, b"Cookie", &cookies);
    }
    text.extend_from_slice(b"\r\n\r\n");
    parse_head(&text)
}

/// Returns a visitor's request for the whole page: without conditions, ranges and codings of the client, with the
/// validators of the stored page. `None` if the head is too large.
pub fn whole_page_head(request: &RequestHead, stored: Option<&Object>) -> Option<RequestHead> {
    let mut validators: Vec<(&[u8], &[u8])> = Vec::new();
    if let Some(page) = stored {
        if let Some(tag) = page.field(b"etag") {
            validators.push((b"If-None-Match", tag));
        }
        if let Some(date) = page.field(b"last-modified") {
            validators.push((b"If-Modified-Since", date));
        }
    }
    let asks_for_less = |name: &[u8]| is_among(&ASK_FOR_LESS, name);
    let target = (request.method(), request.target());
    rewritten_head(request, target, asks_for_less, &validators)
}

/// Returns the request for a fragment of the page that a visitor has requested: a GET of `target` with the visitor's
/// headers, except for those that belong to the page's own request. `None` if the head is too large.
pub fn fragment_head(request: &RequestHead, target: &[u8]) -> Option<RequestHead> {
    const OF_THE_PAGE: [&[u8]; 15] = [
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
        b"x-requested-with",
    ];
    let omitted = |name: &[u8]| is_among(&ASK_FOR_LESS, name) || is_among(&OF_THE_PAGE, name);
    rewritten_head(request, (b"GET", target), omitted, &[])
}

/// Headers that ask for less than the whole page, without content coding.
const ASK_FOR_LESS: [&[u8]; 7] = [
    b"range",
    b"if-range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
    b"accept-encoding",
];

fn is_among(names: &[&[u8]], name: &[u8]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns a request with this method and target, and with the headers of another request that are not omitted.
fn rewritten_head(
    request: &RequestHead,
    (method, target): (&[u8], &[u8]),
    is_omitted: impl Fn(&[u8]) -> bool,
    more: &[(&[u8], &[u8])],
) -> Option<RequestHead> {
    let mut text = Vec::new();
    // The text is parsed as HTTP/1.1; a request of HTTP/2 or HTTP/3 keeps its version.
    let own = matches!(request.version(), HttpVersion::Http2 | HttpVersion::Http3);
    let version = match own {
        true => HttpVersion::Http11,
        false => request.version(),
    };
    for part in [method, b" ", target, b" ", version.as_str().as_bytes()] {
        text.extend_from_slice(part);
    }
    for (name, value) in request.headers() {
        if !is_omitted(name) {
            push_header(&mut text, name, value);
        }
    }
    for (name, value) in more {
        push_header(&mut text, name, value);
    }
    text.extend_from_slice(b"\r\n\r\n");
    if !own {
        return parse_head(&text);
    }
    let mut spans = Vec::new();
    let parsed = head::parse(&text, &SUBREQUEST_LIMITS, &mut spans).ok()??;
    Some(parsed.into_head_of(request.version(), text, spans))
}

fn push_header(text: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [b"\r\n", name, b": ", value] {
        text.extend_from_slice(part);
    }
}

/// Parses the text of a head with the same parser as clients' requests.
pub fn parse_head(text: &[u8]) -> Option<RequestHead> {
    let mut spans = Vec::new();
    let parsed = head::parse(text, &SUBREQUEST_LIMITS, &mut spans).ok()??;
    Some(parsed.into_head(text, Vec::new(), spans))
}
