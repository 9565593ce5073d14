//! The heads of a server's responses in the form of a script's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use howdah_executor::ScriptHead;
use howdah_proto::response::{is_field_value, is_token};
use http::{HeaderMap, Request, StatusCode, header};

/// The maximum number of interim responses that wait for the client; more are dropped.
const MAX_INTERIM_RESPONSES: usize = 8;

/// The interim responses to a request that have not been passed on yet. Nobody is woken for them: hyper reports them
/// only for HTTP/1.1, whose connections are polled by the task that takes them.
#[derive(Clone, Default)]
pub(super) struct InterimResponses(Arc<Mutex<VecDeque<ScriptHead>>>);

impl InterimResponses {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<ScriptHead>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Collects the interim responses to `request`.
    pub(super) fn collect<B>(&self, request: &mut Request<B>) {
        let to = self.clone();
        hyper::ext::on_informational(request, move |response| {
            let status = response.status();
            let mut waiting = to.waiting();
            // If there are too many at once, some are dropped, because they are only hints.
            if status != StatusCode::CONTINUE
                && status != StatusCode::SWITCHING_PROTOCOLS
                && waiting.len() < MAX_INTERIM_RESPONSES
            {
                waiting.push_back(head_of(status, response.headers()));
            }
        });
    }

    /// Returns the oldest one.
    pub(super) fn take(&self) -> Option<ScriptHead> {
        self.waiting().pop_front()
    }
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
