//! The head of a server's response in the form of a script's.

use howdah_executor::ScriptHead;
use howdah_proto::response::{is_field_value, is_token};
use http::{HeaderMap, Request, StatusCode, header};
use tokio::sync::mpsc;

/// Has the interim responses to `request` passed to `to`.
pub(super) fn forward_interim_responses<B>(request: &mut Request<B>, to: mpsc::Sender<ScriptHead>) {
    hyper::ext::on_informational(request, move |response| {
        let status = response.status();
        if status != StatusCode::CONTINUE && status != StatusCode::SWITCHING_PROTOCOLS {
            // If there are too many at once, some are dropped, because they are only hints.
            let _ = to.try_send(head_of(status, response.headers()));
        }
    });
}

/// Returns the status and the headers in the form of a script's response, without the headers that its `Connection`
/// lists (RFC 9110 §7.6.1).
pub(super) fn head_of(status: StatusCode, headers: &HeaderMap) -> ScriptHead {
    let listed: Vec<&[u8]> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let mut head = ScriptHead {
        status: status.as_u16(),
        ..ScriptHead::default()
    };
    for (name, value) in headers {
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        // `StatusPage` sets the status in CGI. From an HTTP server it would change the status that the server has sent.
        let is_listed = listed.iter().any(|other| name.eq_ignore_ascii_case(other));
        if is_listed || name == b"status" {
            continue;
        }
        match is_token(name) && is_field_value(value) {
            true => head.headers.push((name.to_vec(), value.to_vec())),
            false => head.rejected += 1,
        }
    }
    head
}
