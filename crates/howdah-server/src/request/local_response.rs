//! Responses that need neither a file nor a script: those that precede a site's rules, short responses of its rules,
//! and error pages. Nothing here sends anything, so `explain` obtains the same responses.

use std::net::IpAddr;

use bytes::Bytes;
use howdah_http::memory::{self, MemoryPressure};
use howdah_http::message::ResponseHead;
use howdah_http::{BodyError, BodyKind};

use super::context::RequestContext;
use super::file;
use crate::failure::Failure;
use crate::respond;
use howdah_site::client_address::{is_loopback_or_literal_host, split_host};
use howdah_site::site::config::HostPattern;
use howdah_site::site::htaccess::{HtaccessLogin, Live};
use howdah_site::site::{RouteAction, RouteInfo, Sites};

/// A response that a request gets whatever the site's rules say.
pub(super) enum EarlyResponse {
    /// The response to a certificate authority's challenge.
    Challenge(Box<[u8]>),
    /// The status page.
    StatusPage,
    /// A redirect to the same address by HTTPS.
    HttpsRedirect(ResponseHead),
}

/// Returns whether a page of a foreign site may be making a browser on this machine send the request (DNS rebinding):
/// the client is on this machine, and the host is neither one of the site's names nor an address of this machine.
fn is_dns_rebinding(ctx: RequestContext<'_>) -> bool {
    let host = ctx.request.host();
    let address = ctx.client.address.map(|address| address.to_canonical());
    let name = split_host(host).0;
    address.is_some_and(|address| address.is_loopback())
        && !is_loopback_or_literal_host(host)
        && !ctx.site.config().hosts.iter().any(|own| own.is_for(name))
}

/// Handles requests that are answered before the page cache and the site's rules. Returns `None` if the request
/// continues to them.
pub(super) fn early_response(
    ctx: RequestContext<'_>,
    body: BodyKind,
) -> Result<Option<EarlyResponse>, Failure> {
    let challenges = &ctx.config.process.challenges;
    if let Some(answer) = challenges.response(ctx.request.path()) {
        return Ok(Some(EarlyResponse::Challenge(answer)));
    }
    if let Some(page) = &ctx.config.settings.status
        && page.answers(ctx.request, ctx.client)
        && !is_dns_rebinding(ctx)
    {
        return Ok(Some(EarlyResponse::StatusPage));
    }
    if memory::pressure() == MemoryPressure::Full {
        return Err(Failure::MemoryLimit);
    }
    if !Sites::answers_at(ctx.site, &ctx.conn.listener) {
        return Err(Failure::ListenerRemoved);
    }
    check_body_length(ctx, body)?;
    if let Some(tls) = ctx.client.tls
        && !tls.covers_host(split_host(ctx.request.host()).0)
    {
        return Err(Failure::MisdirectedRequest);
    }
    // `OPTIONS *` asks about the server and not about an address.
    let redirects =
        ctx.site.config().https_redirect && !ctx.client.https && ctx.request.path() != b"*";
    Ok(redirects.then(|| EarlyResponse::HttpsRedirect(https_redirect_head(ctx))))
}

/// Refuses a body that is longer than the site allows before any of it is read.
fn check_body_length(ctx: RequestContext<'_>, body: BodyKind) -> Result<(), Failure> {
    match body {
        BodyKind::Length(length) if length > ctx.service().body_limit => {
            Err(Failure::Body(BodyError::TooLarge))
        }
        _ => Ok(()),
    }
}

/// Redirects the client permanently to the same address by HTTPS. A method other than GET and HEAD is preserved (308).
fn https_redirect_head(ctx: RequestContext<'_>) -> ResponseHead {
    let host = ctx
        .client
        .host
        .as_deref()
        .unwrap_or_else(|| ctx.request.host());
    let own = ctx.site.config().https_port;
    let port = match own.unwrap_or(ctx.config.settings.https_port) {
        443 => String::new(),
        port => format!(":{port}"),
    };
    let name = match split_host(host).0 {
        // The request of an HTTP/1.0 client may have no host.
        b"" => own_name(ctx),
        name => name.to_vec(),
    };
    let mut location = [b"https://", &name[..], port.as_bytes()].concat();
    location.extend_from_slice(ctx.request.path());
    if let Some(query) = ctx.request.query() {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    let mut head = ResponseHead::new(match ctx.request.method() {
        b"GET" | b"HEAD" => 301,
        _ => 308,
    });
    head.header(b"Location", &location);
    head
}

/// Returns the first name of the site, or the address of the connection if the site has no name.
fn own_name(ctx: RequestContext<'_>) -> Vec<u8> {
    let first = HostPattern::first_name(&ctx.site.config().hosts).map(str::to_owned);
    let address = || ctx.conn.local.map(|local| url_host(local.ip()));
    first.or_else(address).unwrap_or_default().into_bytes()
}

/// Returns an address as the host of a URL.
fn url_host(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Returns the headers and the body of the response to an action that involves neither a file, a script nor another
/// server, edited by the site's rules; or the failure.
pub(super) fn short_response(
    ctx: RequestContext<'_>,
    route: &mut RouteInfo,
    action: RouteAction,
) -> Result<(ResponseHead, Bytes), Failure> {
    let (mut head, body) = match action {
        RouteAction::Redirect { status, location } => {
            let mut head = ResponseHead::new(status);
            head.header(b"Location", &location);
            (head, Bytes::new())
        }
        RouteAction::Return {
            status,
            content_type,
            body,
        } => {
            let mut head = ResponseHead::new(status);
            if !body.is_empty() {
                head.header(b"Content-Type", content_type.as_bytes());
            }
            (head, Bytes::from(body))
        }
        RouteAction::Options { allow } => {
            let mut head = ResponseHead::new(204);
            head.header(b"Allow", allow.as_bytes());
            (head, Bytes::new())
        }
        RouteAction::Refused {
            status,
            refusal,
            allow,
        } => {
            let challenge = match route.login.take().map(|login| *login) {
                Some(HtaccessLogin::Challenge(challenge)) => Some(challenge),
                _ => None,
            };
            return Err(match (route.htaccess_line.take(), challenge) {
                (Some(because), challenge) => Failure::Closed {
                    refusal,
                    status,
                    because,
                    challenge,
                },
                (None, _) => Failure::Refused {
                    refusal,
                    status,
                    allow,
                },
            });
        }
        // The caller handles these actions itself, so this response is never sent.
        RouteAction::Static(_) | RouteAction::Script(_) | RouteAction::Proxy(_) => {
            (ResponseHead::new(500), Bytes::new())
        }
    };
    ctx.site.edit_headers(route, &mut head);
    Ok((head, body))
}

/// Returns the error page of a failure: the site's own page for the status, or the built-in one. `live` is what the
/// site's `.htaccess` files say about the response.
pub(super) fn failure_page(
    ctx: RequestContext<'_>,
    failure: &Failure,
    live: Option<&Live>,
) -> (ResponseHead, Bytes) {
    let (mut head, page) = file::configured_page(ctx, failure, live)
        .unwrap_or_else(|| respond::failure_page(failure, ctx.request, ctx.id));
    ctx.site.edit_error_headers(ctx.requested(), &mut head);
    if let Some(live) = live {
        live.edit(ctx.site, &mut head, true);
    }
    respond::forbid_storing(&mut head);
    if ctx.client.https {
        ctx.site.add_hsts(&mut head);
    }
    (head, page)
}
