//! Parses the request to explain, as it was typed.

use std::net::IpAddr;

use howdah_http::message::RequestHead;

use crate::cache::explain::split_url;
use crate::cache::subrequest;

/// The request to explain.
#[derive(Clone, Debug)]
pub struct ExplainRequest<'q> {
    /// The method of the request, such as `GET`.
    pub method: &'q str,
    /// A path, or a whole URL.
    pub url: &'q str,
    /// The request's header lines.
    pub fields: &'q [String],
    /// The connection's peer; `None` for a unix socket.
    pub from: Option<IpAddr>,
}

/// Returns the request, and whether it uses HTTPS. The error says what is wrong with it.
pub(super) fn parse(question: &ExplainRequest<'_>) -> Result<(bool, RequestHead), String> {
    let ExplainRequest {
        method,
        url,
        fields,
        ..
    } = question;
    let (https, host, target) = split_url(url)?;
    let is_host = |field: &&String| {
        field
            .split_once(':')
            .is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"))
    };
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.iter().any(|field| is_host(&field)) {
        text += &format!("Host: {}\r\n", host.unwrap_or("localhost"));
    }
    for field in *fields {
        if field.contains(['\r', '\n']) || !field.contains(':') {
            let field = field.escape_debug();
            return Err(format!(
                "BadUrl: -H: `{field}` is not a header: write it as `Name: value`"
            ));
        }
        text += field;
        text += "\r\n";
    }
    text += "\r\n";
    let head = subrequest::parse_head(text.as_bytes()).ok_or_else(|| {
        format!(
            "BadUrl: `{}` with these headers is not a valid request",
            url.escape_debug()
        )
    })?;
    Ok((https, head))
}
