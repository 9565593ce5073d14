//! The parts of a plan that say how requests are sent and which responses are good.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{duration, impossible, read};
use crate::command::arguments::BenchArguments;
use crate::error::BenchError;
use crate::plan::check::{BodyCheck, BodyPattern, StatusSet};
use crate::plan::{
    BacklogPolicy, ClientTlsOptions, ConnectionPolicy, HttpProtocol, LoadTarget, RequestShape,
    RequestTemplate, ResponseChecks, TargetAddress, TlsVersion,
};

/// Returns the method, the headers and the body of the requests.
pub(super) fn request(typed: &BenchArguments) -> Result<RequestShape, BenchError> {
    let mut shape = RequestShape {
        cookie_jar: typed.cookies,
        ..RequestShape::default()
    };
    let body = typed.post.as_ref().or(typed.put.as_ref());
    if let Some(path) = body {
        shape.body = read(path)?;
    }
    shape.method = match (&typed.post, &typed.put, typed.head, &typed.method) {
        (Some(_), ..) => "POST".to_owned(),
        (_, Some(_), ..) => "PUT".to_owned(),
        (_, _, true, _) => "HEAD".to_owned(),
        (_, _, _, Some(method)) => method.clone(),
        _ => "GET".to_owned(),
    };
    for (flag, name, given) in [
        ("-A", "Authorization", &typed.auth),
        ("-P", "Proxy-Authorization", &typed.proxy_auth),
    ] {
        let Some(given) = given else { continue };
        if !given.contains(':') {
            return Err(impossible(format!("{flag}: expected user:password")));
        }
        let value = format!("Basic {}", BASE64.encode(given));
        shape
            .headers
            .push((name.to_owned(), RequestTemplate::new(value)));
    }
    if !typed.cookie.is_empty() {
        let value = typed.cookie.join("; ");
        shape
            .headers
            .push(("Cookie".to_owned(), RequestTemplate::new(value)));
    }
    match (&typed.content_type, body) {
        (Some(kind), Some(_)) => shape.headers.push((
            "Content-Type".to_owned(),
            RequestTemplate::new(kind.as_str()),
        )),
        (None, Some(_)) => shape.headers.push((
            "Content-Type".to_owned(),
            RequestTemplate::new("text/plain"),
        )),
        (Some(_), None) => {
            return Err(impossible(
                "-T sets the type of the request's body, but the request has no body: give a body with -p or -u",
            ));
        }
        (None, None) => {}
    }
    for field in &typed.header {
        let Some((name, value)) = field.split_once(':') else {
            return Err(impossible(format!(
                "-H '{field}': expected a header, such as 'Accept-Encoding: gzip'"
            )));
        };
        shape
            .headers
            .push((name.trim().to_owned(), RequestTemplate::new(value.trim())));
    }
    Ok(shape)
}

/// Returns the protocol, the connection and its TLS settings.
pub(super) fn connection(typed: &BenchArguments) -> Result<ConnectionPolicy, BenchError> {
    let defaults = ConnectionPolicy::default();
    if typed.streams.is_some() && !(typed.http2 || typed.http3) {
        return Err(impossible(
            "--streams needs a protocol whose connections carry several requests at once: --http2 or --http3",
        ));
    }
    Ok(ConnectionPolicy {
        protocol: match (typed.http10, typed.http2, typed.http3) {
            (true, ..) => HttpProtocol::Http10,
            (_, true, _) => HttpProtocol::Http2,
            (.., true) => HttpProtocol::Http3,
            _ => HttpProtocol::Http11,
        },
        keep_alive: !typed.no_keepalive,
        streams: typed.streams.unwrap_or(defaults.streams),
        timeout: match &typed.timeout {
            Some(text) => duration("-s", text)?,
            None => defaults.timeout,
        },
        backlog: if typed.wait_backlog {
            BacklogPolicy::Wait
        } else {
            BacklogPolicy::Count
        },
        bind: typed.bind,
        buffers: typed.buffers.map(|size| size as usize),
        proxy: typed.proxy.as_deref().map(proxy).transpose()?,
        tls: ClientTlsOptions {
            verify: !typed.insecure,
            ca_file: typed.ca.clone(),
            server_name: typed.server_name.clone(),
            no_sni: typed.no_sni,
            version: match &typed.tls_protocol {
                Some(text) => tls_version(text)?,
                None => None,
            },
            ciphers: match &typed.ciphers {
                Some(text) => text.split(':').map(str::to_owned).collect(),
                None => Vec::new(),
            },
            client_certificate: typed.client_certificate.clone(),
        },
    })
}

/// Parses `host:port`, or `host` for port 80.
fn proxy(text: &str) -> Result<TargetAddress, BenchError> {
    let target = LoadTarget::parse(&format!("http://{text}/"))
        .ok()
        .filter(|target| {
            !text.contains('/') && matches!(target.address, TargetAddress::Tcp { .. })
        });
    target
        .map(|target| target.address)
        .ok_or_else(|| impossible(format!("-X {text}: expected host:port")))
}

/// Parses a TLS version in ab's notation. Returns `None` for all versions.
fn tls_version(text: &str) -> Result<Option<TlsVersion>, BenchError> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" => Ok(None),
        "TLS1.2" => Ok(Some(TlsVersion::Tls12)),
        "TLS1.3" => Ok(Some(TlsVersion::Tls13)),
        "SSL2" | "SSL3" | "TLS1" | "TLS1.1" => Err(impossible(format!(
            "-f {text}: this version is insecure (RFC 7568, RFC 8996) and is not supported; use TLS1.2 or TLS1.3"
        ))),
        _ => Err(impossible(format!(
            "-f {text}: expected TLS1.2, TLS1.3 or ALL"
        ))),
    }
}

pub(super) fn checks(typed: &BenchArguments) -> Result<ResponseChecks, BenchError> {
    let mut checks = ResponseChecks::default();
    if let Some(text) = &typed.expect_status {
        checks.status = StatusSet::parse(text)?;
    }
    for text in &typed.expect_body {
        checks.body.push(BodyCheck::Contains(text.clone()));
    }
    for text in &typed.expect_not {
        checks.body.push(BodyCheck::ContainsNot(text.clone()));
    }
    for text in &typed.expect_match {
        checks
            .body
            .push(BodyCheck::Matches(BodyPattern::new(text)?));
    }
    for text in &typed.expect_json {
        checks.body.push(json_check(text)?);
    }
    if !checks.body.is_empty() && typed.head {
        return Err(impossible(
            "-i requests responses without a body, but the checks of bodies (--expect-body and others) need one",
        ));
    }
    Ok(checks)
}

/// Parses `/pointer` or `/pointer=value`. A value that is not JSON is taken as a string.
fn json_check(text: &str) -> Result<BodyCheck, BenchError> {
    let (pointer, value) = match text.split_once('=') {
        Some((pointer, value)) => (pointer, Some(value)),
        None => (text, None),
    };
    if !pointer.is_empty() && !pointer.starts_with('/') {
        return Err(BenchError::BadCheck(format!(
            "--expect-json {text}: expected a pointer that begins with a slash, such as /user/id (RFC 6901)"
        )));
    }
    Ok(BodyCheck::Json {
        pointer: pointer.to_owned(),
        equals: value.map(|value| {
            serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::from(value))
        }),
    })
}
