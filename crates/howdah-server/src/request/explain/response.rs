//! Determines the response that the client would get from the action that its request is routed to.

use howdah_http::message::ResponseHead;

use super::super::context::RequestContext;
use super::super::explanation::{ExplainedResponse, ResponseKind};
use super::super::local_response;
use super::lossy;
use crate::failure::Failure;
use howdah_site::site::config::HeaderEdit;
use howdah_site::site::{RouteAction, RouteInfo};

/// Describes the response to a routed request.
pub(super) fn response_to_action(
    ctx: RequestContext<'_>,
    action: RouteAction,
    route: &mut RouteInfo,
) -> Result<ExplainedResponse, Failure> {
    let mut answer = match action {
        RouteAction::Static(plan) => {
            let file = plan.root.file_name(&[b"/", &plan.relative[..]].concat());
            let refused = |refusal: howdah_site::refusal::Refusal| Failure::Refused {
                status: refusal.status(),
                refusal,
                allow: None,
            };
            let mut head = plan.respond(ctx.request).map_err(refused)?.head;
            ctx.site.edit_headers(route, &mut head);
            ExplainedResponse {
                file: Some(lossy(&file)),
                ..response_from_head(ResponseKind::File, &head)
            }
        }
        RouteAction::Script(target) => {
            let script = &target.script;
            let own_query = ctx.request.query();
            let query = target.query.as_deref().or(own_query).unwrap_or_default();
            let kind = match target.program {
                true => ResponseKind::Program,
                false => ResponseKind::Script,
            };
            let pool = target.pool.as_deref();
            ExplainedResponse {
                script: Some(lossy(script.script_filename())),
                script_name: Some(lossy(script.script_name())),
                path_info: Some(lossy(script.path_info())).filter(|text| !text.is_empty()),
                query: Some(lossy(query)).filter(|text| !text.is_empty()),
                pool: Some(pool.unwrap_or(&ctx.site.config().pool).to_owned()),
                ..response_of_script_or_server(ctx, kind, route)
            }
        }
        RouteAction::Proxy(target) => {
            let query = target.query.as_deref().or_else(|| ctx.request.query());
            ExplainedResponse {
                servers: target.servers.addresses().collect(),
                path: Some(lossy(&target.path)),
                query: query.map(lossy),
                ..response_of_script_or_server(ctx, ResponseKind::Proxy, route)
            }
        }
        action => {
            let kind = match action {
                RouteAction::Redirect { .. } => ResponseKind::Redirect,
                RouteAction::Options { .. } => ResponseKind::Options,
                _ => ResponseKind::Return,
            };
            response_from_head(kind, &local_response::short_response(ctx, route, action)?.0)
        }
    };
    if let Some(refusal) = route.skipped_refusal {
        answer.because = Some(format!("the file at this path is never sent: {refusal}"));
    }
    Ok(answer)
}

/// Describes the response of a script or of another server: only the headers that the site sets are known.
fn response_of_script_or_server(
    ctx: RequestContext<'_>,
    kind: ResponseKind,
    route: &RouteInfo,
) -> ExplainedResponse {
    let mut head = ResponseHead::new(200);
    ctx.site.edit_headers(route, &mut head);
    let removed = ctx.site.header_edits(route).filter_map(|edit| match edit {
        HeaderEdit::Unset(name) => Some(name.clone()),
        HeaderEdit::Set(..) | HeaderEdit::Add(..) => None,
    });
    ExplainedResponse {
        status: Some(head.status).filter(|status| *status != 200),
        without: removed.collect(),
        ..response_from_head(kind, &head)
    }
}

/// Describes a response whose header is known.
pub(super) fn response_from_head(kind: ResponseKind, head: &ResponseHead) -> ExplainedResponse {
    let fields = head.fields();
    let header: Vec<_> = fields
        .map(|(name, value)| (lossy(name), lossy(value)))
        .collect();
    let location = header
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("location"));
    ExplainedResponse {
        location: location.map(|(_, value)| value.clone()),
        header: header.clone(),
        ..ExplainedResponse::new(kind, head.status)
    }
}

/// Describes the response to a failure.
pub(super) fn response_to_failure(
    ctx: RequestContext<'_>,
    failure: &Failure,
    route: Option<&RouteInfo>,
) -> ExplainedResponse {
    let live = route.and_then(|route| route.live.as_deref());
    let (head, _) = local_response::failure_page(ctx, failure, live);
    let pages = ctx.site.config().error_pages.iter();
    let page = pages.filter(|(status, _)| *status == failure.status());
    let page = page.map(|(_, page)| page.clone());
    let is_there = |page: &String| ctx.site.error_page(page, ctx.request).is_some();
    let message = failure.message();
    ExplainedResponse {
        error: Some(failure.name()),
        file: page.take(1).find(is_there),
        because: Some(message.into_owned()).filter(|message| !message.is_empty()),
        ..response_from_head(ResponseKind::Error, &head)
    }
}

impl ExplainedResponse {
    pub(super) fn new(kind: ResponseKind, status: u16) -> ExplainedResponse {
        ExplainedResponse {
            kind,
            status: Some(status),
            ..ExplainedResponse::default()
        }
    }
}
