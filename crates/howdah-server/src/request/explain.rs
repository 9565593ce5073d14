//! `howdah explain`: what becomes of a request, without sending it and without running anything. It is
//! decided by the functions that decide for a client's request, with a trace; what they are asked about
//! (a body, memory, other servers) and cannot be known here is left out, and said so.

use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};

use howdah_cache::Pass;
use howdah_executor::status::PoolStatus;
use howdah_executor::{Event, ExecError, Executor, Run, RunTiming, ScriptRequest};

use super::context::RequestContext;
use super::explained::{Answer, CacheDecision, Kind, Told};
use super::made_here::{self, First};
use super::{Front, authorize, cache_gate, find_route, find_site};
use crate::cache::explain::parts;
use crate::cache::lookup::{self, Lookup};
use crate::cache::protocol;
use crate::cache::subrequest;
use crate::client_address::Client;
use crate::failure::Failure;
use crate::http::message::{RequestHead, ResponseHead};
use crate::http::{BodyKind, ConnInfo};
use crate::site::config::{HeaderEdit, HostPattern, Rule, RuleAction};
use crate::site::htaccess::Visitor;
use crate::site::pattern::Pattern;
use crate::site::trace::{Step, Trace};
use crate::site::{Action, RouteInfo, Site};

pub use super::explained::Explanation;

/// The request that is to be explained.
#[derive(Clone, Debug)]
pub struct Question<'q> {
    /// Its method.
    pub method: &'q str,
    /// A path, or a whole URL.
    pub url: &'q str,
    /// Lines of its header.
    pub fields: &'q [String],
    /// The connection's peer; none: on a unix socket.
    pub from: Option<IpAddr>,
    /// The name of the configuration file; none: there is none.
    pub file: Option<&'q str>,
}

/// A pool that runs nothing.
pub struct NoPool;

impl Executor for NoPool {
    fn start(&self, _: ScriptRequest) -> Box<dyn Run> {
        Box::new(NotRun)
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

struct NotRun;

impl Run for NotRun {
    fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        Poll::Ready(Err(ExecError::Stopping))
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

/// Explains a request; an error says what is wrong with it.
pub async fn explain(front: &Front, question: &Question<'_>) -> Result<Explanation, String> {
    let config = front.config();
    let (https, request) = parse(question)?;
    let peer = question.from.map(|address| SocketAddr::new(address, 0));
    let conn = ConnInfo {
        peer,
        local: None,
        listener: "explain".into(),
        tls: None,
        alternative: None,
        id: 0,
        request: 1,
    };
    let proxies = &config.settings.trusted_proxies;
    let mut client = proxies.client(peer, None, &request);
    client.https |= https;
    let site = find_site(&config, &request, &client);
    let ctx = RequestContext {
        front,
        config: &config,
        site,
        request: &request,
        conn: &conn,
        client: &client,
        id: 0,
    };
    let mut explanation = Explanation {
        method: lossy(request.method()),
        url: url(&request, &client),
        from: client.address.map(|address| address.to_string()),
        site: site.config().name.clone(),
        site_because: site_because(ctx),
        ..Explanation::default()
    };
    explanation.answer = answer(ctx, question, &mut explanation)
        .await
        .unwrap_or_else(|failed| of_failure(ctx, &failed.0, failed.1.as_ref()));
    Ok(explanation)
}

/// A failure, and the route on which it came.
type Failed = (Failure, Option<RouteInfo>);

/// As [`Front::answer`] orders it.
async fn answer(
    ctx: RequestContext<'_>,
    question: &Question<'_>,
    explanation: &mut Explanation,
) -> Result<Answer, Box<Failed>> {
    let failed = |failure, route| Box::new((failure, route));
    match made_here::first(ctx, BodyKind::None).map_err(|failure| failed(failure, None))? {
        Some(First::Challenge(_)) => return Ok(Answer::new(Kind::Challenge, 200)),
        Some(First::Status) => return Ok(Answer::new(Kind::StatusPage, 200)),
        Some(First::ToHttps(head)) => return Ok(of_head(Kind::Redirect, &head)),
        None => {}
    }
    if let Some((_, part)) = ctx.page_cache()
        && let Some(commands) = protocol::of(part, ctx.site, ctx.request, ctx.client)
    {
        return match commands {
            Ok(_) => Ok(Answer::new(Kind::Purge, 200)),
            Err(why) => Err(failed(Failure::Purge(why), None)),
        };
    }
    let trace = Trace::default();
    let visitor = Visitor {
        trace: Some(&trace),
        ..ctx.visitor()
    };
    let (mut action, mut route) = find_route(ctx, visitor);
    if let Some(demand) = route.live.as_ref().and_then(|live| live.demand()) {
        let login = authorize::log_in(ctx, demand).await;
        let login = login.map_err(|failure| failed(failure, None))?;
        trace.take();
        let visitor = Visitor {
            login: Some(&login),
            ..visitor
        };
        (action, route) = find_route(ctx, visitor);
    }
    let file = question.file;
    explanation.steps = ctx
        .site
        .steps_once(trace.take())
        .into_iter()
        .map(|step| in_words(ctx.site, file, step))
        .collect();
    for number in route.guarding_rules() {
        let rule = &ctx.site.config().rules[*number];
        match &rule.action {
            RuleAction::Authenticate(demand) => {
                let asked = authorize::authenticate(ctx, demand, &mut Vec::new()).await;
                if let Err(failure) = asked {
                    return Err(failed(failure, Some(route)));
                }
            }
            _ => explanation.not_asked.push(Told {
                at: place(file, rule.line),
                what: what(rule),
                ..Told::default()
            }),
        }
    }
    explanation.cache = cache(ctx, question, &action, &route);
    of_action(ctx, action, &mut route).map_err(|failure| failed(failure, Some(route)))
}

fn parse(question: &Question<'_>) -> Result<(bool, RequestHead), String> {
    let Question {
        method,
        url,
        fields,
        ..
    } = question;
    let (https, host, target) = parts(url)?;
    let is_host = |field: &&String| {
        field
            .split_once(':')
            .is_some_and(|(name, _)| name.eq_ignore_ascii_case("host"))
    };
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.iter().any(|field| is_host(&field)) {
        text += &format!("Host: {}\r\n", host.unwrap_or("localhost"));
    }
    for field in *fields {
        if field.contains(['\r', '\n']) || !field.contains(':') {
            let field = field.escape_debug();
            return Err(format!(
                "BadUrl: -H: `{field}` is no field: write `Name: value`"
            ));
        }
        text += field;
        text += "\r\n";
    }
    text += "\r\n";
    let head = subrequest::parse(text.as_bytes()).ok_or_else(|| {
        format!(
            "BadUrl: `{}` with these fields is no valid request",
            url.escape_debug()
        )
    })?;
    Ok((https, head))
}

fn url(request: &RequestHead, client: &Client<'_>) -> String {
    let scheme = if client.https { "https" } else { "http" };
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    format!("{scheme}://{}{}", lossy(host), lossy(request.target()))
}

fn site_because(ctx: RequestContext<'_>) -> String {
    let host = ctx.client.host.as_deref();
    let host = host.unwrap_or_else(|| ctx.request.host());
    let name = crate::site::host_name(host);
    let hosts = &ctx.site.config().hosts;
    let is_named = hosts.iter().find(|pattern| match pattern {
        HostPattern::Exact(own) => own.as_bytes().eq_ignore_ascii_case(name),
        HostPattern::Below(end) => {
            let start = name.len().checked_sub(end.len()).filter(|start| *start > 0);
            start.is_some_and(|start| name[start..].eq_ignore_ascii_case(end.as_bytes()))
        }
    });
    match (is_named, ctx.config.sites.all()) {
        (Some(HostPattern::Exact(own)), _) => format!("its hosts have {own}"),
        (Some(HostPattern::Below(end)), _) => format!("its hosts have *{end}"),
        (None, [_]) => "the only one".to_owned(),
        (None, _) => format!("the first, since no site has the host {}", lossy(name)),
    }
}

fn place(file: Option<&str>, line: Option<usize>) -> Option<String> {
    Some(format!("{}:{}", file?, line?))
}

/// What a rule does, and for which paths; a rule for all paths names none.
fn what(rule: &Rule) -> String {
    match &rule.pattern {
        _ if is_of_preset(rule) => rule.action.to_string(),
        Pattern::Prefix(prefix) if prefix == b"/" => rule.action.to_string(),
        pattern => format!("{}, {pattern}", rule.action),
    }
}

fn is_of_preset(rule: &Rule) -> bool {
    matches!(&rule.action, RuleAction::Limit(limit) if limit.preset.is_some())
}

fn in_words(site: &Site, file: Option<&str>, step: Step) -> Told {
    match step {
        Step::Denied { path, pattern } => Told {
            what: format!("deny {pattern}"),
            path: Some(lossy(&path)),
            matches: Some(true),
            said: lossy(&path),
            ..Told::default()
        },
        Step::Rule {
            number,
            path,
            why_not,
            led_to,
        } => {
            let rule = &site.config().rules[number];
            let led_to = match rule.action {
                RuleAction::Limit(_) => Some("not counted here".to_owned()),
                _ => led_to.map(|path| format!("now {}", lossy(&path))),
            };
            Told {
                at: place(file, rule.line),
                what: what(rule),
                path: Some(lossy(&path)),
                matches: Some(why_not.is_none()),
                said: match why_not {
                    Some(_) if is_of_preset(rule) => "limit".to_owned(),
                    Some(why_not) => why_not.to_owned(),
                    None => led_to.unwrap_or_default(),
                },
            }
        }
        Step::Searched { entry, found } => Told {
            what: entry,
            said: found,
            ..Told::default()
        },
        Step::Htaccess { line, said } => Told {
            at: line,
            said,
            ..Told::default()
        },
        Step::NotAdmitted { path, refusal } => Told {
            what: lossy(&path),
            said: refusal.to_owned(),
            ..Told::default()
        },
    }
}

/// What the page cache does with the request, by the functions that [`cache_gate`] asks.
fn cache(
    ctx: RequestContext<'_>,
    question: &Question<'_>,
    action: &Action,
    route: &RouteInfo,
) -> Option<CacheDecision> {
    let (cache, part) = ctx.page_cache()?;
    let Action::Script(target) = action else {
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
    let early = ctx.site.asks_who().then_some((action, route));
    let early = match route.needs_permission() {
        true => route.keeps_from_cache(),
        false => cache_gate::bypass_by_route(early),
    };
    if let Some(why) = early {
        return Some(bypass(why, None));
    }
    let has_body = ctx.request.header(b"content-length").is_some();
    match lookup::look(cache, part, ctx.site, ctx.request, ctx.client, has_body) {
        Lookup::Pass { why, cookie } => return Some(bypass(why, cookie)),
        _ if part.config.dry_run => return Some(bypass(Pass::DryRun, None)),
        _ => {}
    }
    if let Some(why) = route.keeps_from_cache() {
        return Some(bypass(why, None));
    }
    let fields = question.fields.iter();
    let fields = fields.map(|field| format!(" -H {}", quoted(field)));
    let url = quoted(question.url);
    Some(CacheDecision::Asked {
        command: format!("howdah cache explain {url}{}", fields.collect::<String>()),
    })
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/:@%+,=".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn of_action(
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

/// The answer of a script or of another server: the site's part of its header.
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

fn of_head(kind: Kind, head: &ResponseHead) -> Answer {
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

fn of_failure(ctx: RequestContext<'_>, failure: &Failure, route: Option<&RouteInfo>) -> Answer {
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
    fn new(kind: Kind, status: u16) -> Answer {
        Answer {
            kind,
            status: Some(status),
            ..Answer::default()
        }
    }
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
