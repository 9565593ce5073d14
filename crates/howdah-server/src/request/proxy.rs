//! A request that another server handles: the body is forwarded as it arrives, and the response comes back like a
//! script's.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use howdah_executor::ExecError;
use howdah_http::message::ResponseHead;
use howdah_http::{BodyKind, RequestBody};

use super::context::{RequestContext, Response};
use super::script::{Edit, LocalRedirect, Upload, finish, pass_on};
use crate::failure::Failure;
use crate::proxy::fields::{self, Outgoing};
use crate::proxy::run::{Agreement, ProxyRun};
use crate::proxy::{tunnel, upload};
use crate::respond;
use crate::script::{body, head};
use crate::site::{ProxyTarget, RouteInfo};
use crate::traces::recording::RunBy;

/// Forwards the request to the server and sends the response.
pub(super) async fn answer(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    target: Box<ProxyTarget>,
    body: &mut RequestBody,
    response: &mut Response<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    let log = &ctx.front.error_log;
    let websocket = body.expected() == BodyKind::None && fields::asks_for_websocket(ctx.request);
    let request = fields::request(&Outgoing {
        request: ctx.request,
        client: ctx.client,
        peer: ctx.conn.peer.map(|peer| peer.ip()),
        path: &target.path,
        query: target.query.as_deref().or_else(|| ctx.request.query()),
        body: body.expected(),
        websocket,
    })?;
    if websocket {
        let mut run = target.proxy.start(request, upload::Upload::none(), log);
        if let Some(switched) = agree(&mut run, response).await? {
            let head = head::informational(&switched.head);
            response.out.switch_protocols(&head, b"websocket");
            body.switch_protocols();
            tunnel::pass_on(*switched, body, response.out).await?;
            return Ok(None);
        }
        return answer_by(ctx, route, run, None, response).await;
    }
    if body.expected() == BodyKind::None {
        let run = target.proxy.start(request, upload::Upload::none(), log);
        return answer_by(ctx, route, run, None, response).await;
    }
    body.set_limit(ctx.service().body_limit);
    let (to, from) = body::channel();
    let sent = upload::Upload::new(from, body.expected());
    let progress = sent.progress();
    let handing_on = async move {
        // This sender keeps the channel open until it is known how the body ended.
        let open = to.clone();
        let outcome = body::hand_on(body, Bytes::new(), to).await;
        if outcome.is_ok() && body.is_done() {
            progress.complete();
        }
        drop(open);
        outcome
    };
    let run = target.proxy.start(request, sent, log);
    answer_by(ctx, route, run, Some(Upload::new(handing_on)), response).await
}

/// Passes the server's response on.
async fn answer_by(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    mut run: ProxyRun,
    upload: Option<Upload<'_>>,
    response: &mut Response<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    if let Some(recording) = &mut response.record.recording {
        recording.begin_run(RunBy::Server);
    }
    let edit = |head: &mut ResponseHead| {
        respond::number(head, ctx.id);
        ctx.site.edit_headers(route, head);
    };
    let ended = pass_on(ctx, &mut run, Edit::of(&edit), upload, response).await;
    finish(ctx, ended, &[], Edit::of(&edit), response).await
}

/// Waits for the server's response to a WebSocket handshake. Returns `None` if it is an ordinary response.
async fn agree(
    run: &mut ProxyRun,
    response: &mut Response<'_>,
) -> Result<Option<Box<crate::proxy::run::Switched>>, Failure> {
    let agreed = poll_fn(|cx| match run.poll_agreement(cx) {
        Poll::Ready(agreed) => Poll::Ready(agreed.map_err(Failure::Run)),
        Poll::Pending => match response.out.poll_client_gone(cx) {
            Poll::Ready(()) => Poll::Ready(Err(Failure::ClientGone)),
            Poll::Pending if response.out.is_draining() => {
                Poll::Ready(Err(Failure::Run(ExecError::Stopping)))
            }
            Poll::Pending => Poll::Pending,
        },
    });
    Ok(match agreed.await? {
        Agreement::Switched(switched) => Some(switched),
        Agreement::Answer => None,
    })
}
