//! A request for a script: receives its body, runs it, passes its response on, and sends the file
//! it names in place of a body, if it does. Where a program names another path of this server
//! (RFC 3875 §6.2.2), its caller goes there.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use howdah_executor::{EffectSink, Head, Role, Run, ScriptBody, ScriptRequest};
use howdah_proto::level::Level;
use howdah_proto::request::RequestFrame;

use super::{Exchange, Front, Record, file};
use crate::client_address::Client;
use crate::http::message::{RequestHead, ResponseHead};
use crate::http::{BodyKind, RequestBody, Responder};
use crate::memory::allowance;
use crate::respond::Failure;
use crate::script::body::{self, BodyPolicy, Received};
use crate::script::frame::{self, BodyLength, ScriptNames};
use crate::script::head::{self, SendFile};
use crate::script::pump::{Ended, Pump};
use crate::script::streams::StreamPlace;
use crate::server_config::SiteService;
use crate::site::path::UrlPath;
use crate::site::{Refused, ScriptTarget, Site};

/// Changes a response's head as the site's rules say.
pub(super) type Edit<'a> = &'a (dyn Fn(&mut ResponseHead) + Sync);

/// Nothing has been sent: the answer to this target of the same host is to be sent.
#[derive(Debug)]
pub(super) struct LocalRedirect(pub Vec<u8>);

/// Most frames need less; more is allocated once, not by doubling.
const FRAME_CAPACITY: usize = 2048;

#[allow(clippy::too_many_arguments)] // The request's two halves, and what routing found.
pub(super) async fn answer(
    front: &Front,
    exchange: Exchange<'_>,
    site: &Site,
    target: &ScriptTarget,
    edit: Edit<'_>,
    body: &mut RequestBody,
    out: &mut Responder,
    record: &mut Record,
) -> Result<Option<LocalRedirect>, Failure> {
    let service = exchange.config.service(site);
    let received = if body.expected() == BodyKind::None {
        let length = match exchange.request.header(b"content-length") {
            Some(_) => BodyLength::Known(0),
            None => BodyLength::None,
        };
        Received::Whole(ScriptBody::Empty, length, None)
    } else {
        let policy = BodyPolicy {
            memory: allowance(exchange.config.settings.body_memory),
            directory: &exchange.config.settings.spill_directory,
            room: &exchange.config.settings.spill_room,
            limit: service.body_limit,
            buffering: site.config().request_buffering,
            streams: service.streams(target),
            progress_name: &service.progress_name,
            unknown_length: service.executor(target).takes_unknown_length(),
        };
        // Boxed: a connection's memory is that of its largest state, and most requests have no body.
        Box::pin(body::receive(exchange.request, body, &policy)).await?
    };
    let ended = match received {
        // The share lives as long as the run reads the file.
        Received::Whole(script_body, length, _share) => {
            note_form(exchange.request, &script_body, record);
            let frame = exchange.frame(service, target, length)?;
            let request = ScriptRequest {
                frame,
                body: script_body,
                id: exchange.id,
                role: role(target),
                effects: sink(record),
            };
            let mut run = service.start(target, request);
            if let Some(candidate) = &record.candidate {
                run = candidate.look_at(run);
            }
            if let Some(trial) = &record.trial {
                run = trial.copy(run);
            }
            // Not `pass_on`: a future within a future takes its room twice in every connection.
            let mut pump = Pump::new(&exchange.config.pump, exchange.request, edit, true);
            let ended = poll_fn(|cx| {
                let turn = pump.poll(cx, &mut *run, out);
                note_spill_error(front, exchange, &mut pump);
                turn
            })
            .await;
            record.run = run.timing();
            note_repairs(front, exchange, &pump);
            ended
        }
        Received::Arriving(first, length, place) => {
            let frame = exchange.frame(service, target, length)?;
            let arriving = arriving(
                front,
                exchange,
                (service, target),
                frame,
                (first, place),
                edit,
                body,
                out,
                record,
            );
            Box::pin(arriving).await
        }
    };
    match ended {
        Ended::Complete => Ok(None),
        Ended::Failed(failure) | Ended::CutOff(failure) => Err(failure),
        Ended::SendFile(head) => {
            let sent = Box::pin(send_file(
                exchange,
                site,
                &target.permitted,
                &head,
                edit,
                out,
            ))
            .await;
            sent.map(|()| None)
        }
        Ended::LocalRedirect(target) => Ok(Some(LocalRedirect(target))),
    }
}

/// Passes on what a run says to a request whose body nobody reads, and which no authorizer has allowed.
pub(super) async fn pass_on(
    front: &Front,
    exchange: Exchange<'_>,
    site: &Site,
    run: &mut dyn Run,
    edit: Edit<'_>,
    out: &mut Responder,
    record: &mut Record,
) -> Result<(), Failure> {
    let mut pump = Pump::new(&exchange.config.pump, exchange.request, edit, true);
    let ended = poll_fn(|cx| {
        let turn = pump.poll(cx, run, out);
        note_spill_error(front, exchange, &mut pump);
        turn
    })
    .await;
    record.run = run.timing();
    note_repairs(front, exchange, &pump);
    drop(pump);
    match ended {
        Ended::Complete | Ended::LocalRedirect(_) => Ok(()),
        Ended::Failed(failure) | Ended::CutOff(failure) => Err(failure),
        Ended::SendFile(head) => send_file(exchange, site, &[], &head, edit, out).await,
    }
}

/// Keeps a small form body, from which the page cache sees whether the request writes.
fn note_form(request: &RequestHead, body: &ScriptBody, record: &Record) {
    let (Some(watch), ScriptBody::Memory(bytes)) = (&record.watch, body) else {
        return;
    };
    const URLENCODED: &[u8] = b"application/x-www-form-urlencoded";
    let is_form = request
        .header(b"content-type")
        .and_then(|value| value.get(..URLENCODED.len()))
        .is_some_and(|start| start.eq_ignore_ascii_case(URLENCODED));
    if is_form {
        // Given once: a request has one body.
        let _ = watch.form.set(bytes.clone());
    }
}

/// What the router's target is asked for.
fn role(target: &ScriptTarget) -> Role {
    match target.program {
        true => Role::Program,
        false => Role::Responder,
    }
}

/// The receiver of what PHP reports about the run, if the site has the page cache on.
fn sink(record: &Record) -> Option<Arc<dyn EffectSink>> {
    let watch = record.watch.clone()?;
    Some(watch)
}

impl Exchange<'_> {
    fn frame(
        &self,
        service: &SiteService,
        target: &ScriptTarget,
        length: BodyLength,
    ) -> Result<RequestFrame, Failure> {
        let (request, client) = (self.request, self.client);
        build_frame(request, client, self.conn.local, service, target, length)
    }
}

/// The frame of a request for a script. `local` is the address the client connected to.
pub(crate) fn build_frame(
    request: &RequestHead,
    client: &Client<'_>,
    local: Option<SocketAddr>,
    service: &SiteService,
    target: &ScriptTarget,
    length: BodyLength,
) -> Result<RequestFrame, Failure> {
    let script = &target.script;
    let translated = script.path_translated();
    // Apache's value: the client's path, decoded. It was clean when it was routed.
    let path = target.redirected.then(|| UrlPath::parse(request.path()));
    let redirect_url = path.as_ref().and_then(|path| path.as_ref().ok());
    let names = ScriptNames {
        script_filename: script.script_filename(),
        script_name: script.script_name(),
        path_info: script.path_info(),
        path_translated: translated.as_deref(),
        document_root: script.document_root(),
        query: target.query.as_deref(),
        redirect_url: redirect_url.map(UrlPath::as_bytes),
        granted: &target.granted,
    };
    frame::build(
        Vec::with_capacity(FRAME_CAPACITY),
        request,
        client,
        local,
        &names,
        &service.variables,
        length,
    )
    .map_err(Failure::Frame)
}

pub(super) fn note_repairs(front: &Front, exchange: Exchange<'_>, pump: &Pump<'_>) {
    if pump.was_cut() {
        let message = "the script wrote more than its Content-Length; the rest was cut off";
        front.note(Level::Warning, "LengthMismatch", message, exchange);
    }
    if pump.rejected() > 0 {
        let message = "header lines of the script were left out: no name, or control characters";
        front.note(Level::Warning, "HeaderRejected", message, exchange);
    }
}

pub(super) fn note_spill_error(front: &Front, exchange: Exchange<'_>, pump: &mut Pump<'_>) {
    if let Some(error) = pump.take_spill_error() {
        let message = format!(
            "the response cannot be kept in limits.spill_directory for its slow client ({error}); the \
             script waits for the client"
        );
        front.note(Level::Warning, error.name(), &message, exchange);
    }
}

/// The body is handed on while the response comes back: a script may answer before it has read
/// everything.
#[allow(clippy::too_many_arguments)] // As above.
async fn arriving(
    front: &Front,
    exchange: Exchange<'_>,
    (service, target): (&SiteService, &ScriptTarget),
    frame: RequestFrame,
    (first, mut place): (Bytes, Option<StreamPlace>),
    edit: Edit<'_>,
    body: &mut RequestBody,
    out: &mut Responder,
    record: &mut Record,
) -> Ended {
    let (to, from) = body::channel();
    let request = ScriptRequest {
        frame,
        body: ScriptBody::Stream(from),
        id: exchange.id,
        role: role(target),
        effects: sink(record),
    };
    let mut run: Box<dyn Run> = service.start(target, request);
    let mut pump = Pump::new(&exchange.config.pump, exchange.request, edit, false);
    let mut handing_on = Some(pin!(body::hand_on(body, first, to)));
    let ended = poll_fn(|cx| {
        if let Some(future) = &mut handing_on
            && let Poll::Ready(outcome) = future.as_mut().poll(cx)
        {
            handing_on = None;
            place = None;
            pump.watch_client();
            if let Err(failure) = outcome {
                return Poll::Ready(Ended::Failed(failure));
            }
        }
        let turn = pump.poll(cx, &mut *run, out);
        note_spill_error(front, exchange, &mut pump);
        turn
    })
    .await;
    record.run = run.timing();
    note_repairs(front, exchange, &pump);
    ended
}

/// `X-Accel-Redirect` and `X-Sendfile`: the file answers, with what the script said about it.
pub(super) async fn send_file(
    exchange: Exchange<'_>,
    site: &Site,
    permitted: &[usize],
    script: &Head,
    edit: Edit<'_>,
    out: &mut Responder,
) -> Result<(), Failure> {
    let orders = head::orders(script);
    let content_type = script
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(b"content-type"))
        .map(|(_, value)| &value[..]);
    let plan = match orders.send_file {
        Some(SendFile::AccelRedirect(target)) => {
            site.accel_redirect(target, exchange.request, permitted, content_type)
        }
        Some(SendFile::Sendfile(name)) => site.sendfile(name, content_type).map_err(Refused::from),
        None => return Ok(()),
    };
    let refused = |refused: Refused| Failure::Refused {
        status: refused.status,
        refusal: refused.refusal,
        allow: None,
    };
    let mut answer = plan
        .and_then(|plan| Ok(plan.answer(exchange.request)?))
        .map_err(refused)?;
    if answer.head.status == 200 && orders.status != 200 {
        answer.head.status = orders.status;
    }
    head::merge(&mut answer.head, script);
    edit(&mut answer.head);
    file::send_body(answer, out).await
}
