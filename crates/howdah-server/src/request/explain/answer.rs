//! Determines the response that the client would get from the action that its request is routed to.

use howdah_http::message::ResponseHead;

use super::super::context::RequestContext;
use super::super::explained::{Answer, Kind};
use super::super::made_here;
use super::lossy;
use crate::failure::Failure;
use crate::site::config::HeaderEdit;
use crate::site::{Action, RouteInfo};

/// Describes the response to a routed request.
pub(super) fn of_action(
    ctx: RequestContext<'_>,
    action: Action,
    route: &mut RouteInfo,
) -> Result<Answer, Failure> {
    let mut answer = match action {
        Action::Static(plan) => {
            let file = plan.root.file_name(&[b"/", &plan.relative[..]].concat());
            let refused = |refusal: crate::refusal::Refusal| Failure::Refused {
                status: refusal.status(),
                refusal,
                allow: None,
            };
            let mut head = plan.answer(ctx.request).map_err(refused)?.head;
            ctx.site.edit_headers(route, &mut head);
            Answer {
                file: Some(lossy(&file)),
                ..of_head(Kind::File, &head)
            }
        }
        Action::Script(target) => {
            let script = &target.script;
            let own_query = ctx.request.query();
            let query = target.query.as_deref().or(own_query).unwrap_or_default();
            let kind = match target.program {
                true => Kind::Program,
                false => Kind::Script,
            };
            let pool = target.pool.as_deref();
            Answer {
                script: Some(lossy(script.script_filename())),
                script_name: Some(lossy(script.script_name())),
                path_info: Some(lossy(script.path_info())).filter(|text| !text.is_empty()),
                query: Some(lossy(query)).filter(|text| !text.is_empty()),
                pool: Some(pool.unwrap_or(&ctx.site.config().pool).to_owned()),
                ..of_others(ctx, kind, route)
            }
        }
        Action::Proxy(target) => {
            let query = target.query.as_deref().or_else(|| ctx.request.query());
            let servers = target.proxy.servers().into_iter();
            Answer {
                servers: servers.map(|server| server.at.to_string()).collect(),
                path: Some(lossy(&target.path)),
                query: query.map(lossy),
                ..of_others(ctx, Kind::Proxy, route)
            }
        }
        action => {
            let kind = match action {
                Action::Redirect { .. } => Kind::Redirect,
                Action::Options { .. } => Kind::Options,
                _ => Kind::Return,
            };
            of_head(kind, &made_here::short(ctx, route, action)?.0)
        }
    };
    if let Some(refusal) = route.passed_over {
        answer.because = Some(format!("the path itself is never sent: {refusal}"));
    }
    Ok(answer)
}

/// Describes the response of a script or of another server: only the site's part of its header is known.
fn of_others(ctx: RequestContext<'_>, kind: Kind, route: &RouteInfo) -> Answer {
    let mut head = ResponseHead::new(200);
    ctx.site.edit_headers(route, &mut head);
    let removed = ctx.site.edits(route).filter_map(|edit| match edit {
        HeaderEdit::Unset(name) => Some(name.clone()),
        HeaderEdit::Set(..) | HeaderEdit::Add(..) => None,
    });
    Answer {
        status: Some(head.status).filter(|status| *status != 200),
        without: removed.collect(),
        ..of_head(kind, &head)
    }
}

/// Describes a response whose header is known.
pub(super) fn of_head(kind: Kind, head: &ResponseHead) -> Answer {
    let fields = head.fields();
    let header: Vec<_> = fields
        .map(|(name, value)| (lossy(name), lossy(value)))
        .collect();
    let location = header
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("location"));
    Answer {
        location: location.map(|(_, value)| value.clone()),
        header: header.clone(),
        ..Answer::new(kind, head.status)
    }
}

/// Describes the response to a failure.
pub(super) fn of_failure(
    ctx: RequestContext<'_>,
    failure: &Failure,
    route: Option<&RouteInfo>,
) -> Answer {
    let live = route.and_then(|route| route.live.as_deref());
    let (head, _) = made_here::page(ctx, failure, live);
    let pages = ctx.site.config().error_pages.iter();
    let page = pages.filter(|(status, _)| *status == failure.status());
    let page = page.map(|(_, page)| page.clone());
    let is_there = |page: &String| ctx.site.error_page(page, ctx.request).is_some();
    let message = failure.message();
    Answer {
        error: Some(failure.name()),
        file: page.take(1).find(is_there),
        because: Some(message.into_owned()).filter(|message| !message.is_empty()),
        ..of_head(Kind::Error, &head)
    }
}

impl Answer {
    pub(super) fn new(kind: Kind, status: u16) -> Answer {
        Answer {
            kind,
            status: Some(status),
            ..Answer::default()
        }
    }
}
