//! A request that another server handles: the body is forwarded as it arrives, and the response comes back like a
//! script's.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;
use howdah_executor::ExecError;
use howdah_http::message::ResponseHead;
use howdah_http::{BodyKind, RequestBody};

use super::context::{RequestContext, ResponseInProgress};
use super::script::{BodyForwarding, LocalRedirect, ResponseEdit, finish_response, relay_response};
use crate::failure::Failure;
use crate::proxy::outgoing_request::{self, OutgoingRequest};
use crate::proxy::run::{ProxyRun, WebSocketHandshake};
use crate::proxy::{tunnel, upload};
use crate::respond;
use crate::script::{body, head};
use howdah_log::traces::recording::RunnerKind;
use howdah_site::site::{ProxyTarget, RouteInfo};

/// Forwards the request to the server and sends the response.
pub(super) async fn answer(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    target: Box<ProxyTarget>,
    body: &mut RequestBody,
    response: &mut ResponseInProgress<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    let log = &ctx.front.error_log;
    let servers = ctx.service().server_group(target.rule);
    let websocket =
        body.delimiter() == BodyKind::None && outgoing_request::asks_for_websocket(ctx.request);
    let request = outgoing_request::build_request(&OutgoingRequest {
        request: ctx.request,
        client: ctx.client,
        peer: ctx.conn.peer.map(|peer| peer.ip()),
        path: &target.path,
        query: target.query.as_deref().or_else(|| ctx.request.query()),
        body: body.delimiter(),
        websocket,
    })?;
    if websocket {
        let mut run = servers.start(request, upload::Upload::none(), log);
        if let Some(switched) = await_websocket_handshake(&mut run, response).await? {
            let head = head::informational_for_client(&switched.head);
            response.out.switch_protocols(&head, b"websocket");
            body.switch_protocols();
            tunnel::run_tunnel(*switched, body, response.out).await?;
            return Ok(None);
        }
        return relay_server_response(ctx, route, run, None, response).await;
    }
    if body.delimiter() == BodyKind::None {
        let run = servers.start(request, upload::Upload::none(), log);
        return relay_server_response(ctx, route, run, None, response).await;
    }
    body.set_limit(ctx.service().body_limit);
    let (to, from) = body::channel();
    let sent = upload::Upload::new(from, body.delimiter());
    let progress = sent.progress();
    let handing_on = async move {
        // This sender keeps the channel open until it is known how the body ended.
        let open = to.clone();
        let outcome = body::forward(body, Bytes::new(), to).await;
        if outcome.is_ok() && body.is_done() {
            progress.mark_complete();
        }
        drop(open);
        outcome
    };
    let run = servers.start(request, sent, log);
    relay_server_response(
        ctx,
        route,
        run,
        Some(BodyForwarding::new(handing_on)),
        response,
    )
    .await
}

/// Passes the server's response on.
async fn relay_server_response(
    ctx: RequestContext<'_>,
    route: &RouteInfo,
    mut run: ProxyRun,
    upload: Option<BodyForwarding<'_>>,
    response: &mut ResponseInProgress<'_>,
) -> Result<Option<LocalRedirect>, Failure> {
    if let Some(recording) = &mut response.record.recording {
        recording.begin_run(RunnerKind::Server);
    }
    let edit = |head: &mut ResponseHead| {
        respond::add_request_number(head, ctx.id);
        ctx.site.edit_headers(route, head);
    };
    let ended = relay_response(ctx, &mut run, ResponseEdit::of(&edit), upload, response).await;
    finish_response(ctx, ended, &[], ResponseEdit::of(&edit), response).await
}

/// Waits for the server's response to a WebSocket handshake. Returns `None` if it is an ordinary response.
async fn await_websocket_handshake(
    run: &mut ProxyRun,
    response: &mut ResponseInProgress<'_>,
) -> Result<Option<Box<crate::proxy::run::AcceptedWebSocket>>, Failure> {
    let agreed = poll_fn(|cx| match run.poll_websocket_handshake(cx) {
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
        WebSocketHandshake::Accepted(switched) => Some(switched),
        WebSocketHandshake::OrdinaryResponse => None,
    })
}
