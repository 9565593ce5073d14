//! The scripts of the site, which respond as the model says: in one piece, in several, after a `103`, with the name of
//! a file to send instead, or by crashing.

use std::collections::HashMap;

use bytes::Bytes;
use howdah_executor::{ExecError, RunEvent, ScriptHead};

use super::model::{echo, page};

/// Returns what the site's scripts respond to a request with these variables and this body.
pub fn respond(variable: impl Fn(&str) -> String, body: &[u8]) -> Vec<Result<RunEvent, ExecError>> {
    let query: HashMap<String, String> = variable("QUERY_STRING")
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let field = |name: &str| query.get(name).cloned().unwrap_or_default();
    let method = variable("REQUEST_METHOD");
    if variable("SCRIPT_NAME") == "/page.php" {
        let cookie = variable("HTTP_COOKIE").replace("sid=", "");
        let text = Bytes::from(page(&field("n"), &cookie));
        let mut head = ScriptHead {
            status: 200,
            ..ScriptHead::default()
        };
        head.headers
            .push((b"Content-Type".to_vec(), b"text/html".to_vec()));
        return vec![
            Ok(RunEvent::Head(head)),
            Ok(RunEvent::Body(text)),
            Ok(RunEvent::End),
        ];
    }
    let (id, mode) = (field("id"), field("mode"));
    let text = Bytes::from(echo(
        &id,
        &method,
        body,
        field("filler").parse().unwrap_or(0),
    ));
    let mut head = ScriptHead {
        status: 200,
        ..ScriptHead::default()
    };
    head.headers
        .push((b"Content-Type".to_vec(), b"text/plain".to_vec()));
    head.headers
        .push((b"X-Id".to_vec(), id.as_bytes().to_vec()));
    if mode == "0" {
        head.headers.push((
            b"Content-Length".to_vec(),
            text.len().to_string().into_bytes(),
        ));
    }
    let sent = [("6", "/file1.txt"), ("7", "/closed/secret.txt")];
    if let Some((_, path)) = sent.iter().find(|(m, _)| *m == mode) {
        head.headers
            .push((b"X-Accel-Redirect".to_vec(), path.as_bytes().to_vec()));
    }
    let mut events = Vec::new();
    if mode == "5" {
        return vec![Err(ExecError::ChildDied(
            howdah_proto::control::Exit::Signal(9),
        ))];
    }
    if mode == "4" {
        let mut hints = ScriptHead {
            status: 103,
            ..ScriptHead::default()
        };
        hints
            .headers
            .push((b"Link".to_vec(), b"</a.css>; rel=preload".to_vec()));
        events.push(Ok(RunEvent::Informational(hints)));
    }
    events.push(Ok(RunEvent::Head(head)));
    let cut = match mode.as_str() {
        "1" | "2" => text.len() / 3,
        _ => text.len(),
    };
    events.push(Ok(RunEvent::Body(text.slice(..cut))));
    if mode == "1" {
        events.push(Ok(RunEvent::Flush));
    }
    if cut < text.len() {
        events.push(Ok(RunEvent::Body(text.slice(cut..))));
    }
    events.push(Ok(RunEvent::End));
    events
}
