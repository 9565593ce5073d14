//! One request of HTTP/2 or HTTP/3 and its response. It becomes a task of its own as soon as it has to wait.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use h2::Reason;
use howdah_http1::framing::RequestFraming;
use howdah_http1::refusal::BadRequest;

use super::super::body::RequestBody;
use super::super::buffers;
use super::super::channel::Channel;
use super::super::handler::{ConnectionInfo, ConnectionNotice, RequestHandler};
use super::super::message::{HttpVersion, RequestHead};
use super::super::request_io::RequestIo;
use super::super::responder::{Responder, ResponseEnd};

/// Handles a request and sends its response.
pub(in crate::http) async fn handle<H: RequestHandler>(
    handler: Arc<H>,
    io: Arc<RequestIo>,
    conn: ConnectionInfo,
    head: RequestHead,
    framing: RequestFraming,
) {
    let mut body = RequestBody::new(io.clone());
    body.begin(&framing);
    let mut out = Responder::new(io.clone());
    out.prepare(head.version(), head.method() == b"HEAD", true);
    let panicked = {
        let mut handling = pin!(handler.handle(&head, &conn, &mut body, &mut out));
        poll_fn(
            |cx| match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))) {
                Ok(handled) => handled.map(|()| false),
                Err(_) => Poll::Ready(true),
            },
        )
        .await
    };
    let (buf, fields) = head.into_buffers();
    buffers::return_bytes(buf);
    buffers::return_fields(fields);
    let conn = &conn;
    if panicked {
        handler.notice(&ConnectionNotice::HandlerPanicked { conn });
    }
    match out.outcome() {
        ResponseEnd::Silent => {
            if !panicked {
                handler.notice(&ConnectionNotice::NoAnswer { conn });
            }
            let name = if panicked {
                "HandlerPanicked"
            } else {
                "NoAnswer"
            };
            out.respond_error(500, name);
            finish(&io, &mut out).await;
        }
        ResponseEnd::Complete { .. } => finish(&io, &mut out).await,
        ResponseEnd::Cut { .. } => cut(&io, &mut out).await,
    }
}

/// Responds to a request that is refused before it reaches a handler.
pub(in crate::http) async fn refuse<H: RequestHandler>(
    handler: Arc<H>,
    io: Arc<RequestIo>,
    conn: ConnectionInfo,
    version: HttpVersion,
    why: BadRequest,
    line: Vec<u8>,
) {
    io.life.refused.fetch_add(1, Ordering::Relaxed);
    let conn = &conn;
    let line = &line[..line.len().min(256)];
    handler.notice(&ConnectionNotice::Refused { conn, why, line });
    let mut out = Responder::new(io.clone());
    out.prepare(version, false, false);
    out.respond_error(why.status(), why.name());
    finish(&io, &mut out).await;
}

/// Sends the queued bytes. If the client does not take them, the stream is reset.
async fn finish(io: &RequestIo, out: &mut Responder) {
    let sent = out.flush().await;
    match &io.channel {
        Channel::Http2(stream) if sent.is_err() => stream.reset(Reason::CANCEL),
        Channel::Http3(stream) if sent.is_err() => stream.reset(true),
        Channel::Http3(stream) => {
            stream
                .wait_until_delivered(io.config.send_timeout, &io.life)
                .await
        }
        Channel::Http1(_) | Channel::Http2(_) | Channel::Captured(_) => {}
    }
}

/// Sends the available part of a response that cannot be completed, then resets the stream.
async fn cut(io: &RequestIo, out: &mut Responder) {
    let sent = out.flush().await;
    match &io.channel {
        Channel::Http2(stream) => {
            if sent.is_ok() {
                poll_fn(|cx| stream.poll_written(cx)).await;
            }
            stream.reset(match sent {
                Ok(()) => Reason::INTERNAL_ERROR,
                Err(_) => Reason::CANCEL,
            });
        }
        // Bytes that have not been sent by now do not reach the client.
        Channel::Http3(stream) => stream.reset(sent.is_err()),
        Channel::Http1(_) | Channel::Captured(_) => {}
    }
}
