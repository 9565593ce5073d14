//! Handles a request for a script: receives its body, runs it, passes its response on, and sends the file that the
//! script names in place of a body, if it does. If a program names another path of this server (RFC 3875 §6.2.2), the
//! caller follows that redirect.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use howdah_cache::esi::DeflatedTexts;
use howdah_executor::{ScriptBody, ScriptHead, ScriptRequest, ScriptRole, ScriptRun};
use howdah_http::memory::allowance;
use howdah_http::message::ResponseHead;
use howdah_http::network;
use howdah_http::{BodyKind, RequestBody, Responder};
use howdah_proto::level::LogLevel;

use super::bypass::BypassContext;
use super::context::{RequestContext, ResponseInProgress};
use super::{esi, file, limits};
use crate::failure::Failure;
use crate::respond;
use crate::script::abandoned_request::{AbandonedRequest, runs_without_client};
use crate::script::body::{self, BODY_MEMORY_BYTES, BodyPolicy, ReceivedBody};
use crate::script::frame::{BodyLength, script_frame};
use crate::script::head::{self, SendFile};
use crate::script::pump::{ConfirmationSource, Pump, ResponseOutcome};
use crate::script::stream_permits::StreamPermit;
use howdah_log::traces::recording::RunnerKind;
use howdah_site::site::{RefusedAccess, RouteInfo, ScriptTarget};

/// What happens to a response before it is sent.
#[derive(Clone, Copy)]
pub(super) struct ResponseEdit<'a> {
    /// Edits the headers by the site's rules.
    pub head: &'a (dyn Fn(&mut ResponseHead) + Sync),
    /// Returns the confirmation to wait for after the edit, if the site has a page cache.
    pub confirmation: Option<ConfirmationSource<'a>>,
    /// Parts of the body that have been compressed before.
    pub texts: Option<&'a Arc<DeflatedTexts>>,
}

impl<'a> ResponseEdit<'a> {
    /// Creates an edit without a confirmation.
    pub fn of(head: &'a (dyn Fn(&mut ResponseHead) + Sync)) -> ResponseEdit<'a> {
        ResponseEdit {
            head,
            confirmation: None,
            texts: None,
        }
    }
}

/// A target on the same host whose response is to be sent in place of the program's. Nothing has been sent yet.
#[derive(Debug)]
pub(super) struct LocalRedirect(pub Vec<u8>);

/// Runs a script and sends its response. `bypass` is set if the site has a page cache.
pub(super) async fn answer(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    target: &ScriptTarget,
    bypass: Option<&BypassContext<'_>>,
    body: &mut RequestBody,
    response: &mut ResponseInProgress<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    // The share is held while the run reads the file.
    let (script_body, length, _share, upload) = match receive(ctx, target, body).await? {
        ReceivedBody::Whole(script_body, length, share) => (script_body, length, share, None),
        ReceivedBody::Arriving(first, length, place) => {
            let (to, from) = body::channel();
            let upload = BodyForwarding {
                handing_on: Box::pin(body::forward(body, first, to)),
                _place: place,
            };
            (ScriptBody::Stream(from), length, None, Some(upload))
        }
    };
    if limits::needs_process_permit(ctx, target, response) {
        // Boxed because every connection reserves memory for the largest state of this future.
        let watch = upload.is_none() && !runs_without_client(ctx.request.method());
        Box::pin(limits::wait_for_process_permit(ctx, watch, response)).await?;
    }
    let service = ctx.service();
    let frame = script_frame(
        ctx.request,
        ctx.client,
        ctx.conn.local,
        &service.variables,
        target,
        (length, esi::including_page(ctx)),
    )
    .map_err(Failure::Frame)?;
    if let Some(bypass) = bypass {
        bypass.note_write(target, &script_body);
    }
    let permits = limits::take_process_permits(response);
    let request = ScriptRequest {
        frame,
        body: script_body,
        id: ctx.id,
        role: match target.program {
            true => ScriptRole::Program,
            false => ScriptRole::Responder,
        },
        client: ctx.client.address.map(network::client_network),
        effects: bypass.map(BypassContext::effects),
        drop_at_end: match bypass {
            Some(bypass) => Some(bypass.hold(permits)),
            None => permits,
        },
    };
    if let Some(recording) = &mut response.record.recording {
        recording.begin_run(runner_of(ctx, target));
    }
    let mut run = service.start(target, request);
    if let Some(bypass) = bypass {
        run = bypass.observe(run);
    }
    let edit = |head: &mut ResponseHead| {
        respond::add_request_number(head, ctx.id);
        match bypass {
            Some(bypass) => bypass.edit_head(head),
            None => ctx.site.edit_headers(route, head),
        }
    };
    let confirmation = || bypass.and_then(BypassContext::confirmation);
    let edit = ResponseEdit {
        head: &edit,
        confirmation: bypass.is_some().then_some(&confirmation),
        texts: None,
    };
    let ended = match esi::rules(ctx) {
        // Boxed because every connection reserves memory for the largest state of this future.
        Some(rules) => Box::pin(esi::relay(ctx, rules, &mut *run, edit, upload, response)).await,
        None => relay_response(ctx, &mut *run, edit, upload, response).await,
    };
    finish_response(ctx, ended, &target.permitting_rules, edit, response).await
}

/// Returns the pool that runs a script, for a trace.
pub(super) fn runner_of(ctx: RequestContext<'_>, target: &ScriptTarget) -> RunnerKind {
    let service = ctx.service();
    RunnerKind::Pool {
        pool: service.pool_name(target).into(),
        mode: service.executor(target).mode(),
    }
}

/// Receives the request's body in the way that its site and pool require.
async fn receive(
    ctx: RequestContext<'_>,
    target: &ScriptTarget,
    body: &mut RequestBody,
) -> Result<ReceivedBody, Failure> {
    if body.delimiter() == BodyKind::None {
        let length = match ctx.request.header(b"content-length") {
            Some(_) => BodyLength::Known(0),
            None => BodyLength::None,
        };
        return Ok(ReceivedBody::Whole(ScriptBody::Empty, length, None));
    }
    let service = ctx.service();
    let of_files = target.apache.as_ref().and_then(|apache| apache.body_limit);
    let policy = BodyPolicy {
        memory: allowance(BODY_MEMORY_BYTES),
        directory: &ctx.config.settings.buffers.directory,
        room: &ctx.config.process.spill_room,
        limit: service.body_limit.min(of_files.unwrap_or(u64::MAX)),
        buffering: ctx.site.config().request_buffering,
        streams: service.streams(target),
        progress_name: &service.progress_name,
        unknown_length: service.executor(target).accepts_unknown_length(),
    };
    // Boxed because every connection reserves memory for the largest state of this future, and most requests have no
    // body.
    Box::pin(body::receive(ctx.request, body, &policy)).await
}

/// A body that is forwarded while the response comes back: a script may respond before it has read everything.
pub(super) struct BodyForwarding<'a> {
    handing_on: Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>,
    /// Released when the whole body has been forwarded.
    _place: Option<StreamPermit>,
}

impl<'a> BodyForwarding<'a> {
    /// Creates the value for a body that the future `handing_on` forwards.
    pub(super) fn new(
        handing_on: impl Future<Output = Result<(), Failure>> + Send + 'a,
    ) -> BodyForwarding<'a> {
        BodyForwarding {
            handing_on: Box::pin(handing_on),
            _place: None,
        }
    }
}

/// Passes the events of a run on until the response has ended. `upload` is set while the request's body is still
/// arriving.
pub(super) fn relay_response<'a>(
    ctx: RequestContext<'a>,
    run: &'a mut dyn ScriptRun,
    edit: ResponseEdit<'a>,
    mut upload: Option<BodyForwarding<'a>>,
    response: &'a mut ResponseInProgress<'_>,
) -> impl Future<Output = ResponseOutcome> {
    // This is not an async function, because its arguments would then take up room twice in every connection.
    let mut pump = Pump::new(&ctx.config.pump, ctx.request, edit.head, upload.is_none());
    pump.confirmation = edit.confirmation;
    pump.texts = edit.texts.cloned();
    if runs_without_client(ctx.request.method()) {
        pump.run_without_client(AbandonedRequest::of_client(
            ctx.client.address.map(network::client_network),
        ));
    }
    poll_fn(move |cx| {
        let ended = match poll_upload(&mut upload, &mut pump, cx) {
            Err(failure) => ResponseOutcome::Failed(failure),
            Ok(()) => {
                let polled = pump.poll(cx, run, &mut *response.out);
                if let Some(recording) = &mut response.record.recording
                    && response.out.has_begun()
                {
                    recording.first_byte();
                }
                note_spill_error(ctx, &mut pump);
                ready!(polled)
            }
        };
        response.record.run = run.timing();
        if let Some(recording) = &mut response.record.recording {
            recording.end_run(run.timing(), run.process());
        }
        note_repairs(ctx, &pump);
        Poll::Ready(ended)
    })
}

fn poll_upload(
    upload: &mut Option<BodyForwarding<'_>>,
    pump: &mut Pump<'_>,
    cx: &mut Context<'_>,
) -> Result<(), Failure> {
    let Some(arriving) = upload else {
        return Ok(());
    };
    let Poll::Ready(outcome) = arriving.handing_on.as_mut().poll(cx) else {
        return Ok(());
    };
    *upload = None;
    pump.watch_client();
    outcome
}

/// Completes a response after its run has ended: reports the failure, sends the file that the script has named, or
/// returns the path whose response is to be sent.
pub(super) async fn finish_response(
    ctx: RequestContext<'_>,
    ended: ResponseOutcome,
    permitted: &[usize],
    edit: ResponseEdit<'_>,
    response: &mut ResponseInProgress<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    match ended {
        ResponseOutcome::Complete => Ok(None),
        ResponseOutcome::Failed(failure) | ResponseOutcome::CutOff(failure) => Err(failure),
        ResponseOutcome::SendFile(head) => {
            // Boxed because every connection reserves memory for the largest state of this future.
            let sent = send_file(ctx, permitted, &head, edit, response.out);
            Box::pin(sent).await.map(|()| None)
        }
        ResponseOutcome::LocalRedirect(target) => Ok(Some(LocalRedirect(target))),
    }
}

fn note_repairs(ctx: RequestContext<'_>, pump: &Pump<'_>) {
    if pump.was_truncated() {
        let message = "the script wrote more than its Content-Length; the rest was cut off";
        ctx.log_note(LogLevel::Warning, "LengthMismatch", message);
    }
    if pump.rejected() > 0 {
        let message = "headers of the script were dropped, because they have invalid names or control characters";
        ctx.log_note(LogLevel::Warning, "HeaderRejected", message);
    }
}

fn note_spill_error(ctx: RequestContext<'_>, pump: &mut Pump<'_>) {
    if let Some(error) = pump.take_spill_error() {
        let message = format!(
            "cannot store the response for a slow client in limits.spill_directory ({error}); the script waits for the client"
        );
        ctx.log_note(LogLevel::Warning, error.name(), &message);
    }
}

/// `X-Accel-Redirect` and `X-Sendfile`: sends the file, with the headers of the script.
async fn send_file(
    ctx: RequestContext<'_>,
    permitted: &[usize],
    script: &ScriptHead,
    edit: ResponseEdit<'_>,
    out: &mut Responder,
) -> Result<(), Failure> {
    let instructions = head::instructions(script);
    let content_type = script
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"))
        .map(|(_, value)| &value[..]);
    let plan = match instructions.send_file {
        Some(SendFile::AccelRedirect(target)) => {
            ctx.site
                .accel_redirect(target, ctx.requested(), permitted, content_type)
        }
        Some(SendFile::Sendfile(name)) => ctx
            .site
            .sendfile(name, content_type)
            .map_err(RefusedAccess::from),
        None => return Ok(()),
    };
    let refused = |refused: RefusedAccess| Failure::Refused {
        status: refused.status,
        refusal: refused.refusal,
        allow: None,
    };
    let mut answer = plan
        .and_then(|plan| Ok(plan.respond(ctx.request)?))
        .map_err(refused)?;
    if answer.head.status == 200 && instructions.status != 200 {
        answer.head.status = instructions.status;
    }
    head::merge_script_headers(&mut answer.head, script);
    (edit.head)(&mut answer.head);
    if let Some(confirmation) = edit.confirmation.and_then(|confirmation| confirmation()) {
        confirmation.await?;
    }
    file::send_body(answer, out).await
}
