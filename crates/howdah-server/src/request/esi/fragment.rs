//! The request for a fragment. It goes through the whole handler like a request of the visitor for the same URL, with
//! the visitor's address, cookies and credentials: limits, access checks, cache, routing. Its response stays in memory.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use howdah_http::message::RequestHead;
use howdah_http::{CapturedResponse, RequestBody, Responder};

use super::super::Front;
use super::super::context::{RequestContext, RequestRecord, ResponseInProgress};
use super::EsiScope;
use crate::cache::subrequest::fragment_head;

type FragmentFuture<'a> = dyn Future<Output = Result<(), Box<str>>> + Send + 'a;

/// A fragment that has been requested.
pub(super) struct Fragment<'a> {
    has_begun: bool,
    /// The handling of the request, until it has ended.
    handling: Option<Pin<Box<FragmentFuture<'a>>>>,
    /// `None` once the fragment is not needed any more.
    response: Option<CapturedResponse>,
    /// Why the handling failed.
    failed: Option<Box<str>>,
}

/// What is available of a fragment at the moment.
pub(super) enum FragmentState {
    /// The fragment has no further bytes yet.
    Pending,
    /// The next bytes of the fragment.
    Body(Bytes),
    /// The fragment is complete.
    Complete,
    /// The fragment failed for this reason.
    Failed(Box<str>),
}

impl<'a> Fragment<'a> {
    /// Prepares the request for a target. The request begins when it is first polled. Returns `None` if the request
    /// would be too large.
    pub fn new(ctx: RequestContext<'a>, scope: EsiScope, target: &[u8]) -> Option<Fragment<'a>> {
        let request = fragment_head(ctx.request, target)?;
        let (out, body, response) = Responder::captured();
        let handling: Pin<Box<FragmentFuture<'a>>> =
            Box::pin(handle(ctx, request, scope, out, body));
        Some(Fragment {
            has_begun: false,
            handling: Some(handling),
            response: Some(response),
            failed: None,
        })
    }

    /// Advances the handling of the request. Returns whether it has ended.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.has_begun = true;
        let Some(handling) = &mut self.handling else {
            return true;
        };
        let Poll::Ready(ended) = handling.as_mut().poll(cx) else {
            return false;
        };
        self.handling = None;
        self.failed = ended.err();
        true
    }

    /// Returns whether the fragment has been polled.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the next bytes of the fragment, or how it has ended. A response other than a success is not inserted,
    /// but read to its end: its script must not be cut off.
    pub fn take(&mut self) -> FragmentState {
        let Some(response) = &mut self.response else {
            return FragmentState::Complete;
        };
        let Some(status) = response.status() else {
            return match (&self.handling, self.failed.take()) {
                (Some(_), _) => FragmentState::Pending,
                (None, Some(why)) => FragmentState::Failed(why),
                (None, None) => FragmentState::Failed("there was no response".into()),
            };
        };
        let is_encoded = |value: &[u8]| !value.eq_ignore_ascii_case(b"identity");
        let refused = match status {
            200 | 204 if response.has_header(b"content-encoding", is_encoded) => {
                Some("the response is encoded, although no encoding was accepted".into())
            }
            200 | 204 => None,
            status => Some(format!("the status was {status}").into_boxed_str()),
        };
        while let Some(bytes) = response.take() {
            if refused.is_none() {
                return FragmentState::Body(bytes);
            }
        }
        match (&self.handling, refused, self.failed.take()) {
            (Some(_), ..) => FragmentState::Pending,
            (None, Some(why), _) | (None, None, Some(why)) => FragmentState::Failed(why),
            (None, None, None) => FragmentState::Complete,
        }
    }

    /// Tells the handler that the response is not needed any more. The handler has to be polled until it has ended.
    pub fn abandon(&mut self) {
        self.response = None;
    }
}

/// Handles the request of a fragment.
async fn handle(
    ctx: RequestContext<'_>,
    request: RequestHead,
    scope: EsiScope,
    mut out: Responder,
    mut body: RequestBody,
) -> Result<(), Box<str>> {
    let ctx = RequestContext {
        request: &request,
        id: ctx.front.next_id.fetch_add(1, Ordering::Relaxed),
        esi: Some(&scope),
        ..ctx
    };
    let mut response = ResponseInProgress {
        out: &mut out,
        record: RequestRecord::default(),
    };
    let answered = Front::answer(ctx, &mut body, &mut response).await;
    let none = body.none();
    let answered = Front::complete(ctx, none, answered, &mut response).await;
    if let Err(failure) = answered {
        if !failure.is_already_logged() {
            ctx.log_note(failure.level(), failure.name(), &failure.message());
        }
        ctx.front.counters.count_failure(failure.name());
        return Err(format!("{} ({})", failure.name(), failure.status()).into());
    }
    match out.finish_captured().await {
        true => Ok(()),
        false => Err("the response was cut off".into()),
    }
}
