//! Renders a page for the cache in a clean room: by a request the server makes itself, in which
//! there is nothing but what the page's key holds. No cookie, no credentials, no address, no field
//! of a visitor reaches PHP, so none can be in the page; what PHP cannot see need not be listed.
//!
//! The render is a task of its own, and all who wait are woken by its end. It goes on without them once
//! a process has begun with it; before that it leaves the pool's queue with the last of them.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use howdah_cache::flight::{Outcome, Ticket};
use howdah_cache::generation::{Force, Purge, Validity};
use howdah_cache::key::Key;
use howdah_cache::object::{Draft, Object};
use howdah_cache::policy::response::{ResponseFacts, judge};
use howdah_cache::{Millis, Pass, Storable};
use howdah_executor::{Event, ExecError, Head, Role, Run, ScriptBody, ScriptRequest};
use tokio::sync::OwnedSemaphorePermit;

use super::collect::Collect;
use super::dialect;
use super::trial::{self, Finding, Way};
use super::watch::Watch;
use super::{Line, PageCache, SiteCache, fields, lookup, now};
use crate::client_address::Client;
use crate::http::head::{self as request_head, HeadLimits};
use crate::http::message::{RequestHead, ResponseHead};
use crate::log::error::ErrorLog;
use crate::request::build_frame;
use crate::script::frame::BodyLength;
use crate::script::head;
use crate::server_config::ServerConfig;
use crate::site::{Action, Route, Site};
use crate::turn;

/// The client address of renders that no visitor asked for. An address for documentation (RFC 5737):
/// the loopback address would open what applications keep for this machine.
const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
/// The `User-Agent` of these renders: applications take it for a browser, and its owner can find it
/// in a log.
const USER_AGENT: &str = concat!(
    "Mozilla/5.0 (compatible; Howdah-Cache/",
    env!("CARGO_PKG_VERSION"),
    ")"
);
/// What the server itself writes fits in any case.
const LIMITS: HeadLimits = HeadLimits {
    request_line: 64 << 10,
    bytes: 256 << 10,
    fields: 64,
};

/// A page to be rendered for the cache, and for whom.
pub struct Order {
    /// The configuration the render runs under.
    pub config: Arc<ServerConfig>,
    /// The page cache the result is stored in.
    pub cache: Arc<PageCache>,
    /// The site the page belongs to.
    pub site: Arc<Site>,
    /// The cache key of the page's URL.
    pub key: Box<Key>,
    /// Whether the connection of the request that caused the render was encrypted.
    pub https: bool,
    /// Fields the page is known to vary by, with the values it is rendered for.
    pub fields: Vec<Line>,
    /// The cache key of the variant that `fields` selects.
    pub variant: Vec<u8>,
    /// Number of the request that caused it, for the logs.
    pub id: u64,
    /// `cache = rfc`: the visitor's own request, in place of a clean room.
    pub visitor: Option<Visitor>,
    /// `cache_shadow`: the page that was served, to be compared with this render.
    pub against: Option<Against>,
    /// For a render that nobody waits for, its place among the few of this kind.
    pub behind: Option<OwnedSemaphorePermit>,
}

/// A page that a fresh render checks, and the log that a difference is written to.
pub struct Against {
    /// The stored page that a visitor was served.
    pub page: Arc<Object>,
    /// The log a difference is written to.
    pub log: Arc<ErrorLog>,
}

impl Against {
    /// Compares the page with the render, counts the result and logs a difference. A page that the
    /// cache would not store any more is purged.
    async fn check(&self, part: &SiteCache, rendered: &Result<Outcome, Unstored>) {
        let valid = self.page.state(&part.generations, now()).is_some();
        let finding = match rendered {
            _ if !valid => Finding::Unchecked,
            Ok(Outcome::Stored(fresh)) => trial::compare_pages(&self.page, fresh).await,
            Err(Unstored { pass, text }) if !pass.is_of_the_moment() => {
                let url = Purge::Url(self.page.url_key.clone());
                part.generations.purge(&url, Force::Hard);
                let text = match &**text {
                    "" => pass.to_string(),
                    text => format!("{pass}: {text}"),
                };
                Finding::Different(format!("a fresh render would not be kept: {text}"))
            }
            _ => Finding::Unchecked,
        };
        part.checks
            .note(&finding, Way::Shadow, &self.page, &self.log);
    }
}

/// A visitor's request that outlives its connection.
pub struct Visitor {
    /// The request, for the whole page.
    pub request: RequestHead,
    /// The client that sent the request.
    pub client: Client<'static>,
    /// The server's address that the client connected to; none for a unix socket.
    pub local: Option<SocketAddr>,
}

/// Has a page rendered; the ticket's flight ends with it.
pub fn start(order: Order, ticket: Ticket) {
    let order_cache = order.cache.clone();
    let task = async move {
        let (mut order, cache) = (order, order_cache);
        let Some(part) = cache.site(&order.site) else {
            return;
        };
        let epoch = part.epoch();
        let rendered = render(&mut order, part, &ticket).await;
        if let Some(against) = &order.against {
            against.check(part, &rendered).await;
        }
        let admission = &order.cache.admission;
        let outcome = match rendered {
            Ok(outcome) => {
                part.rendered(true);
                admission.rendered(&order.variant, epoch, now(), Ok(()));
                outcome
            }
            Err(Unstored { pass: why, text }) => {
                if !why.is_of_the_moment() {
                    part.rendered(false);
                }
                admission.rendered(&order.variant, epoch, now(), Err(why));
                part.reasons.passed(&order.variant, why, &text);
                Outcome::Passed(why)
            }
        };
        ticket.land(outcome);
    };
    tokio::spawn(turn::measured("rendering a page for the cache", task));
}

/// Why a render was not stored, and what the script did, if that is known.
struct Unstored {
    pass: Pass,
    text: Arc<str>,
}

impl From<Pass> for Unstored {
    fn from(pass: Pass) -> Unstored {
        Unstored {
            pass,
            text: "".into(),
        }
    }
}

/// Lets a run that has written end by itself: who asked for it need not wait, but it is not to be
/// cut off in the middle of what it does.
async fn let_end(mut run: Box<dyn Run>, watch: Arc<Watch>) {
    while let Ok(event) = poll_fn(|cx| run.poll_event(cx)).await {
        if matches!(event, Event::End) {
            break;
        }
    }
    watch.settle();
}

/// What the run says next; none: nobody waits for it any more, and no process has begun with it.
async fn next(
    run: &mut dyn Run,
    ticket: &Ticket,
    behind: bool,
) -> Option<Result<Event, ExecError>> {
    let mut deserted = pin!(ticket.deserted());
    poll_fn(|cx| {
        if let Poll::Ready(event) = run.poll_event(cx) {
            return Poll::Ready(Some(event));
        }
        if !behind && !run.is_claimed() && deserted.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}

async fn render(order: &mut Order, part: &SiteCache, ticket: &Ticket) -> Result<Outcome, Unstored> {
    // Before anything else: what is written from now on makes this render old.
    let born = part.generations.now();
    let requested = now();
    let clean = order.visitor.is_none();
    let Visitor {
        request,
        client,
        local,
    } = match order.visitor.take() {
        Some(visitor) => visitor,
        None => nobody(order)?,
    };
    let order = &*order;
    let mut route = order.site.route(&request);
    let none = Action::Options { allow: "" };
    let Action::Script(target) = std::mem::replace(&mut route.action, none) else {
        return Err(Pass::SentFile.into());
    };
    if target.program || route.needs_permission() {
        // Not PHP: nothing is known of what it does. Or not for everybody.
        return Err(Pass::RunFailed.into());
    }
    let service = order.config.service(&order.site);
    let frame = build_frame(&request, &client, local, service, &target, BodyLength::None)
        .map_err(|_| Pass::RunFailed)?;
    let watch = Watch::new(&order.cache, &order.site);
    let mut run = service.executor(&target).start(ScriptRequest {
        frame,
        body: ScriptBody::Empty,
        id: order.id,
        role: Role::Responder,
        effects: Some(watch.clone()),
    });
    let mut stored: Option<(Storable, Vec<Line>, Head)> = None;
    let mut body = Collect::default();
    loop {
        turn::give_way().await;
        let event = next(&mut *run, ticket, order.behind.is_some()).await;
        let event = event.ok_or(Pass::FlightFailed)?;
        match event.map_err(|_| Pass::RunFailed)? {
            Event::Informational(_) | Event::Flush => {}
            Event::Head(head) => {
                let own = head.headers.iter().map(|(n, v)| (&n[..], &v[..]));
                dialect::purge(part, true, own);
                let lines = judged_fields(&order.site, &route, &head);
                // A no ends the run here: the script learns that its client has left.
                let storable = verdict(&head, &lines, part, (requested, now()), false)?;
                stored = Some((storable, lines, head));
            }
            Event::Body(bytes) => {
                if let Some((storable, ..)) = &stored {
                    storable.allows(body.len() + bytes.len() as u64)?;
                }
                body.push(&bytes);
            }
            Event::Effect => {
                let Some(cause) = watch.forbidden() else {
                    continue;
                };
                let unstored = Unstored {
                    pass: cause.pass,
                    text: cause.text.clone(),
                };
                if watch.has_written() {
                    tokio::spawn(let_end(run, watch.clone()));
                }
                return Err(unstored);
            }
            Event::End => break,
        }
    }
    let (mut storable, mut lines, head) = stored.ok_or(Pass::RunFailed)?;
    watch.tag(&mut storable)?;
    if clean {
        tag(&mut lines, &head, &body);
    }
    let body = body.finish();
    let lines = fields(&lines);
    let orders = head::orders(&head);
    let draft = Draft {
        status: orders.status,
        reason: orders.reason,
        fields: &lines,
        body,
        url_key: order.key.as_bytes(),
        born,
    };
    let page = Object::new(&storable, draft)?;
    if part
        .generations
        .judge(born, order.key.as_bytes(), storable.tags())
        != Validity::Valid
    {
        return Ok(Outcome::LookAgain);
    }
    let memory = &order.cache.memory;
    let key = |names: &[Vec<u8>]| lookup::variant(&order.key, names, &request);
    let before = memory.varies(order.key.as_bytes());
    let page = memory.keep(order.key.as_bytes(), storable.vary(), key, page)?;
    let after = memory.varies(order.key.as_bytes());
    part.reasons.stored(&order.variant);
    // A waiting request may want another variant than the one that was made without knowing of any.
    if before.as_ref().map(|v| v.names()) != after.as_ref().map(|v| v.names()) {
        return Ok(Outcome::LookAgain);
    }
    Ok(Outcome::Stored(page))
}

/// The visitor and the request of a render that no visitor asked for.
fn nobody(order: &Order) -> Result<Visitor, Pass> {
    Ok(Visitor {
        request: clean_request(order)?,
        client: Client {
            address: Some(NOBODY),
            port: None,
            https: order.https,
            host: None,
            server_port: None,
            // The port is the one in the host, not the listener's.
            proxied: true,
        },
        local: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 80))),
    })
}

/// The request that the server makes itself to render a page: without a visitor's cookies.
fn clean_request(order: &Order) -> Result<RequestHead, Pass> {
    let mut text = b"GET ".to_vec();
    text.extend_from_slice(order.key.target());
    text.extend_from_slice(b" HTTP/1.1\r\nHost: ");
    text.extend_from_slice(order.key.host());
    let varies = |name: &str| order.fields.iter().any(|(n, _)| n == name.as_bytes());
    if !varies("user-agent") {
        text.extend_from_slice(b"\r\nUser-Agent: ");
        text.extend_from_slice(USER_AGENT.as_bytes());
    }
    if !varies("accept") {
        text.extend_from_slice(
            b"\r\nAccept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        );
    }
    for (name, value) in &order.fields {
        for part in [b"\r\n", &name[..], b": ", value] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n\r\n");
    parsed(&text).ok_or(Pass::RunFailed)
}

/// A head made of text, by the same parser as everybody's.
pub fn parsed(text: &[u8]) -> Option<RequestHead> {
    let mut spans = Vec::new();
    let parsed = request_head::parse(text, &LIMITS, &mut spans).ok()??;
    Some(parsed.into_head(text, Vec::new(), spans))
}

/// What the policy is asked about: the head as clients get it, and what the script said to the
/// server. A rule of the site cannot hide a cookie from the policy.
pub fn judged_fields(site: &Site, route: &Route, script: &Head) -> Vec<Line> {
    const TO_US: [&[u8]; 8] = [
        b"x-accel-expires",
        b"x-accel-redirect",
        b"x-sendfile",
        b"date",
        b"content-length",
        b"connection",
        b"set-cookie",
        b"set-cookie2",
    ];
    let mut ours: ResponseHead = head::for_client(script, &head::orders(script));
    site.edit_headers(route, &mut ours);
    let own = |name: &[u8]| TO_US.iter().any(|n| name.eq_ignore_ascii_case(n));
    let mut lines: Vec<_> = ours
        .fields()
        .filter(|(name, _)| !own(name))
        .map(|(n, v)| (n.to_vec(), v.to_vec()))
        .collect();
    lines.extend(script.headers.iter().filter(|(name, _)| own(name)).cloned());
    lines
}

/// The policy's word on a response's head. `times`: when it was asked for and when it was there.
pub fn verdict(
    script: &Head,
    lines: &[Line],
    part: &SiteCache,
    times: (Millis, Millis),
    authorized: bool,
) -> Result<Storable, Pass> {
    if script.local_redirect {
        // The answer is another URL's, and comes from there.
        return Err(Pass::LocalRedirect);
    }
    let facts = ResponseFacts {
        status: head::orders(script).status,
        fields: &fields(lines),
        authorized,
        requested: times.0,
        received: times.1,
        effect: None,
    };
    judge(&facts, part.rules())
}

/// Gives a page without validators an entity tag of its bytes: a reader who comes back gets a 304
/// from any application.
fn tag(lines: &mut Vec<Line>, head: &Head, body: &Collect) {
    let has = lines.iter().any(|(n, _)| n.eq_ignore_ascii_case(b"etag"));
    if has || head::orders(head).status != 200 || body.len() == 0 {
        return;
    }
    lines.push((b"ETag".to_vec(), body.tag().into_bytes()));
}
