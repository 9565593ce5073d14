//! `howdah explain` reports how a request would be handled, without sending it and without running anything. The
//! functions that handle clients' requests decide here as well, and record a trace. Inputs that are unknown here (a
//! body, memory, other servers) are omitted, and the report says so.

mod explain_request;
mod response;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use howdah_cache::Pass;
use howdah_executor::status::PoolStatus;
use howdah_executor::{ExecError, Executor, RunEvent, RunTiming, ScriptRequest, ScriptRun};
use howdah_http::message::RequestHead;
use howdah_http::{BodyKind, ConnectionInfo};
use howdah_os::shell::shell_quoted;

use super::context::RequestContext;
use super::explanation::{CacheDecision, ExplainedResponse, ExplainedStep};
use super::local_response::{self, EarlyResponse};
use super::{Front, authorize, cache_gate, find_route, log_in_and_route};
use crate::cache::lookup::{self, Lookup};
use crate::cache::purge_protocol;
use crate::failure::Failure;
use crate::server_config::ServerConfig;
use howdah_site::client_address::Client;
use howdah_site::site::config::{HostPattern, RuleAction, SiteRule};
use howdah_site::site::pattern::PathPattern;
use howdah_site::site::trace::{Trace, TraceStep};
use howdah_site::site::visitor::Visitor;
use howdah_site::site::{RouteAction, RouteInfo, Site};

use explain_request::parse;
use response::{response_from_head, response_to_action, response_to_failure};

pub use super::explanation::{RequestExplanation, ResponseKind};
pub use explain_request::ExplainRequest;

/// A pool that runs nothing.
pub struct NoPool;

impl Executor for NoPool {
    fn mode(&self) -> &'static str {
        "none"
    }

    fn start(&self, _: ScriptRequest) -> Box<dyn ScriptRun> {
        Box::new(NotRun)
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

struct NotRun;

impl ScriptRun for NotRun {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        Poll::Ready(Err(ExecError::Stopping))
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

/// Explains a request. The error says what is wrong with it.
pub async fn explain(
    front: &Front,
    question: &ExplainRequest<'_>,
) -> Result<RequestExplanation, String> {
    let config = front.config();
    let (https, request) = parse(question)?;
    let peer = question.from.map(|address| SocketAddr::new(address, 0));
    let proxies = &config.settings.trusted_proxies;
    let mut client = proxies.client(peer, None, &request);
    client.https |= https;
    let (site, listener) = find_site(&config, &request, &client);
    let conn = ConnectionInfo {
        peer,
        local: None,
        listener: listener.unwrap_or("explain").into(),
        tls: None,
        alternative: None,
        id: 0,
        request: 1,
    };
    let ctx = RequestContext {
        front,
        config: &config,
        site,
        request: &request,
        traced: None,
        conn: &conn,
        client: &client,
        id: 0,
        esi: None,
    };
    let mut explanation = RequestExplanation {
        method: lossy(request.method()),
        url: url(&request, &client),
        from: client.address.map(|address| address.to_string()),
        site: site.config().name.clone(),
        site_because: site_because(ctx),
        ..RequestExplanation::default()
    };
    explanation.answer = answer(ctx, question, &mut explanation)
        .await
        .unwrap_or_else(|failed| response_to_failure(ctx, &failed.0, failed.1.as_ref()));
    Ok(explanation)
}

/// Returns the site that the request's URL addresses, and the site's own listener.
fn find_site<'a>(
    config: &'a ServerConfig,
    request: &RequestHead,
    client: &Client<'_>,
) -> (&'a Arc<Site>, Option<&'a str>) {
    let host = client.host.as_deref();
    let host = host.unwrap_or_else(|| request.host());
    config.sites.find_for_url(client.https, host)
}

/// A failure, and the route on which it occurred.
type FailureOnRoute = (Failure, Option<RouteInfo>);

/// Takes the same steps in the same order as [`Front::answer`].
async fn answer(
    ctx: RequestContext<'_>,
    question: &ExplainRequest<'_>,
    explanation: &mut RequestExplanation,
) -> Result<ExplainedResponse, Box<FailureOnRoute>> {
    let failed = |failure, route| Box::new((failure, route));
    match local_response::early_response(ctx, BodyKind::None)
        .map_err(|failure| failed(failure, None))?
    {
        Some(EarlyResponse::Challenge(_)) => {
            return Ok(ExplainedResponse::new(ResponseKind::Challenge, 200));
        }
        Some(EarlyResponse::StatusPage) => {
            return Ok(ExplainedResponse::new(ResponseKind::StatusPage, 200));
        }
        Some(EarlyResponse::HttpsRedirect(head)) => {
            return Ok(response_from_head(ResponseKind::Redirect, &head));
        }
        None => {}
    }
    if let Some((_, part)) = ctx.page_cache()
        && let Some(commands) =
            purge_protocol::purge_request(part, ctx.site, ctx.request, ctx.client)
    {
        return match commands {
            Ok(_) => Ok(ExplainedResponse::new(ResponseKind::Purge, 200)),
            Err(why) => Err(failed(Failure::Purge(why), None)),
        };
    }
    let trace = Trace::default();
    let visitor = Visitor {
        trace: Some(&trace),
        ..ctx.visitor()
    };
    let (mut action, mut route) = find_route(ctx, visitor);
    if let Some(demand) = route.demand() {
        let routed = log_in_and_route(ctx, demand.clone(), Some(&trace)).await;
        (action, route) = routed.map_err(|failure| failed(failure, None))?;
    }
    explanation.steps = ctx
        .site
        .deduplicate_preset_steps(trace.take())
        .into_iter()
        .map(|step| describe_step(ctx.site, step))
        .collect();
    for number in route.guard_rules() {
        let rule = &ctx.site.config().rules[*number];
        match &rule.action {
            RuleAction::Authenticate(demand) => {
                let asked = authorize::authenticate(ctx, demand, &mut Vec::new()).await;
                if let Err(failure) = asked {
                    return Err(failed(failure, Some(route)));
                }
            }
            _ => explanation.not_asked.push(ExplainedStep {
                at: rule_location(rule),
                what: describe_rule(rule),
                ..ExplainedStep::default()
            }),
        }
    }
    explanation.cache = cache_decision(ctx, question, &action, &route);
    response_to_action(ctx, action, &mut route).map_err(|failure| failed(failure, Some(route)))
}

fn url(request: &RequestHead, client: &Client<'_>) -> String {
    let scheme = if client.https { "https" } else { "http" };
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    format!(
        "{scheme}://{}{}",
        lossy(host),
        lossy(&request.path_and_query())
    )
}

fn site_because(ctx: RequestContext<'_>) -> String {
    let host = ctx.client.host.as_deref();
    let host = host.unwrap_or_else(|| ctx.request.host());
    let name = howdah_site::site::host_name(host);
    let hosts = &ctx.site.config().hosts;
    let is_named = hosts.iter().find(|pattern| pattern.is_for(name));
    let there = match ctx.site.config().listen.is_empty() {
        true => String::new(),
        false => format!(" at {}", ctx.conn.listener),
    };
    match (is_named, ctx.config.sites.all()) {
        (Some(HostPattern::Exact(own)), _) => format!("the site's hosts include {own}{there}"),
        (Some(HostPattern::Below(end)), _) => format!("the site's hosts include *{end}{there}"),
        (None, [_]) => "it is the only site".to_owned(),
        (None, _) => {
            let name = lossy(name);
            format!("it is the first site{there}, and no site has the host {name}")
        }
    }
}

fn rule_location(rule: &SiteRule) -> Option<String> {
    Some(format!("{}:{}", rule.file.as_ref()?, rule.line?))
}

/// Describes a rule and the paths that it applies to. A rule for all paths is described without a path.
fn describe_rule(rule: &SiteRule) -> String {
    match &rule.pattern {
        _ if is_of_preset(rule) => rule.action.to_string(),
        PathPattern::Prefix(prefix) if prefix == b"/" => rule.action.to_string(),
        pattern => format!("{}, {pattern}", rule.action),
    }
}

fn is_of_preset(rule: &SiteRule) -> bool {
    matches!(&rule.action, RuleAction::Limit(limit) if limit.preset.is_some())
}

fn describe_step(site: &Site, step: TraceStep) -> ExplainedStep {
    match step {
        TraceStep::Denied { path, pattern } => ExplainedStep {
            what: format!("deny {pattern}"),
            path: Some(lossy(&path)),
            matches: Some(true),
            said: lossy(&path),
            ..ExplainedStep::default()
        },
        TraceStep::Rule {
            number,
            path,
            failed_option: why_not,
            rewritten_to: led_to,
        } => {
            let rule = &site.config().rules[number];
            let led_to = match rule.action {
                RuleAction::Limit(_) => Some("not counted here".to_owned()),
                _ => led_to.map(|path| format!("rewritten to {}", lossy(&path))),
            };
            ExplainedStep {
                at: rule_location(rule),
                what: describe_rule(rule),
                path: Some(lossy(&path)),
                matches: Some(why_not.is_none()),
                said: match why_not {
                    Some(_) if is_of_preset(rule) => "limit".to_owned(),
                    Some(why_not) => why_not.to_owned(),
                    None => led_to.unwrap_or_default(),
                },
            }
        }
        TraceStep::Searched { entry, found } => ExplainedStep {
            what: entry,
            said: found,
            ..ExplainedStep::default()
        },
        TraceStep::Htaccess {
            line,
            outcome: said,
        } => ExplainedStep {
            at: line,
            said,
            ..ExplainedStep::default()
        },
        TraceStep::NotAdmitted { path, refusal } => ExplainedStep {
            what: lossy(&path),
            said: refusal.to_owned(),
            ..ExplainedStep::default()
        },
    }
}

/// Determines what the page cache does with the request, with the functions that [`cache_gate`] uses.
fn cache_decision(
    ctx: RequestContext<'_>,
    question: &ExplainRequest<'_>,
    action: &RouteAction,
    route: &RouteInfo,
) -> Option<CacheDecision> {
    let (cache, part) = ctx.page_cache()?;
    let RouteAction::Script(target) = action else {
        return None;
    };
    if target.program {
        return None;
    }
    let bypass = |why: Pass, cookie: Option<Vec<u8>>| CacheDecision::Bypass {
        reason: why.name(),
        meaning: why.meaning(),
        cookie: cookie.map(|name| lossy(&name)),
    };
    let early = ctx.site.depends_on_client().then_some((action, route));
    let early = match route.needs_permission() {
        true => route.cache_pass_reason(),
        false => cache_gate::bypass_by_route(early),
    };
    if let Some(why) = early {
        return Some(bypass(why, None));
    }
    let has_body = ctx.request.header(b"content-length").is_some();
    match lookup::look_up(cache, part, ctx.site, ctx.request, ctx.client, has_body) {
        Lookup::Pass { why, cookie } => return Some(bypass(why, cookie)),
        _ if part.config.dry_run => return Some(bypass(Pass::DryRun, None)),
        _ if !part.may_serve() => return Some(bypass(part.serving_refusal(), None)),
        _ => {}
    }
    if let Some(why) = route.cache_pass_reason() {
        return Some(bypass(why, None));
    }
    let fields = question.fields.iter();
    let fields = fields.map(|field| format!(" -H {}", shell_quoted(field)));
    let url = shell_quoted(question.url);
    Some(CacheDecision::Asked {
        command: format!("howdah cache explain {url}{}", fields.collect::<String>()),
    })
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
