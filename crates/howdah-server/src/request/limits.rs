//! Counts a request under the limits of the rules for its path: first for the path that the client names, before a
//! stored page is looked up, and then for the path that it is routed to. A rule counts a request once, however the
//! request reaches it. A request that is refused is not counted anywhere.
//!
//! A request over a limit of PHP processes waits for a while until other requests of its client finish: a browser that
//! requests the parts of a page at once gets all of them, and a crawler only delays itself. The request waits before it
//! enters the pool's queue, so no other client is delayed.

use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use howdah_executor::DropAtEnd;
use howdah_http::Responder;
use howdah_http::network;
use howdah_http::turn;

use super::context::{RequestContext, ResponseInProgress};
use crate::failure::Failure;
use howdah_site::limiter::meter::Meter;
use howdah_site::limiter::permits::{ClientPermit, PermitQueue};
use howdah_site::limiter::{
    ClientIdentity, ClientKey, LimitBy, LimitPart, Limited, Limiter, ProcessPermit,
};
use howdah_site::site::ScriptTarget;
use howdah_site::site::condition::cookies;

/// The log message about a request that got no permit under the limit of clients that disconnect while their scripts
/// run.
const ABANDONING_CLIENT_MESSAGE: &str = "the client requests scripts and disconnects while they run, and such clients already occupy three quarters of the processes";

/// The log message about a request whose client has too many scripts bail out.
const BAILOUT_MESSAGE: &str = "PHP bails out of more than ten of this client's scripts per second (memory or time exhausted, or a fatal error), and each time a process has to be replaced";

/// The limits under which a request has been counted.
#[derive(Default)]
pub(super) struct AppliedLimits {
    limits: Vec<CountedLimit>,
    /// The process permits for the coming run.
    processes: Vec<ClientPermit>,
}

struct CountedLimit {
    /// The number of the rule; `None` for the limit of clients that disconnect while their scripts run.
    rule: Option<usize>,
    meter: Arc<Meter>,
    key: ClientKey,
    /// Released when the request has been answered.
    _connection: Option<ClientPermit>,
}

impl AppliedLimits {
    fn contains(&self, meter: &Arc<Meter>) -> bool {
        self.limits
            .iter()
            .any(|limit| Arc::ptr_eq(&limit.meter, meter))
    }

    /// Takes the request out of all counts, because it is refused.
    fn uncount(&mut self, limiter: &Limiter) {
        self.processes.clear();
        for limit in self.limits.drain(..) {
            limiter.revert_count(&limit.meter, limit.key);
        }
    }
}

/// Counts the request under the limits of these rules of its site, unless it has been counted already.
pub(super) fn count(
    ctx: RequestContext<'_>,
    rules: impl Iterator<Item = usize>,
    response: &mut ResponseInProgress<'_>,
) -> Result<(), Failure> {
    let limiter = &ctx.config.process.limiter;
    let now = turn::recent_time();
    for rule in rules {
        let Some(meter) = ctx.service().meter(rule) else {
            continue;
        };
        let counted = response.record.limits.get_or_insert_default();
        if counted.contains(meter) {
            continue;
        }
        let key = limiter.key(meter, client_identity(ctx, &meter.limit.by));
        let entered = limiter
            .acquire_connection(meter, key, now)
            .and_then(|connection| {
                limiter.count(meter, key, now)?;
                Ok(connection)
            });
        match entered {
            Ok(connection) => counted.limits.push(CountedLimit {
                rule: Some(rule),
                meter: meter.clone(),
                key,
                _connection: connection,
            }),
            Err(limited) => {
                counted.uncount(limiter);
                return Err(limit_failure(ctx, Some(rule), meter, limited));
            }
        }
    }
    Ok(())
}

/// Returns whether a request needs a permit of its client for a PHP process and does not have it yet.
pub(super) fn needs_process_permit(
    ctx: RequestContext<'_>,
    target: &ScriptTarget,
    response: &mut ResponseInProgress<'_>,
) -> bool {
    count_abandoning_client(ctx, target, response);
    let counted = response.record.limits.as_ref();
    counted.is_some_and(|counted| {
        let mut limits = counted.limits.iter();
        counted.processes.is_empty() && limits.any(|limit| limit.meter.limit.processes.is_some())
    })
}

/// Refuses the request of a client whose scripts PHP has bailed out of too often, except for a request that comes
/// through a proxy as in [`count_abandoning_client`].
///
/// # Errors
/// 429 `ClientLimited`.
pub(super) fn check_bailouts(
    ctx: RequestContext<'_>,
    target: &ScriptTarget,
) -> Result<(), Failure> {
    let Some(address) = ctx.client.address else {
        return Ok(());
    };
    let client = network::client_network(address);
    match ctx.service().executor(target).too_many_bailouts(client) {
        Some(too_many) if !is_of_unknown_proxy(ctx, address) => Err(Failure::ClientLimited {
            retry_after: retry_after_seconds(too_many.wait),
            news: too_many.is_first.then(|| BAILOUT_MESSAGE.into()),
        }),
        _ => Ok(()),
    }
}

/// Returns whether the address is that of a proxy in a private network which `trusted_proxies` does not name. Many
/// clients share such an address.
fn is_of_unknown_proxy(ctx: RequestContext<'_>, address: IpAddr) -> bool {
    network::is_private(address) && ctx.client.came_through_untrusted_proxy(ctx.request)
}

/// Returns a wait in the unit of `Retry-After`: whole seconds, at least one.
fn retry_after_seconds(wait: Duration) -> u32 {
    let seconds = wait.as_millis().div_ceil(1000).max(1);
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// If the client often disconnects while its scripts run, counts the request under the limit of such clients. Requests
/// that come through a proxy on a private address which `trusted_proxies` does not name are exempt, because they may
/// come from different clients.
fn count_abandoning_client(
    ctx: RequestContext<'_>,
    target: &ScriptTarget,
    response: &mut ResponseInProgress<'_>,
) {
    let Some(address) = ctx.client.address else {
        return;
    };
    let client = network::client_network(address);
    let Some(meter) = ctx.service().abandon_limit(target, client) else {
        return;
    };
    if is_of_unknown_proxy(ctx, address) {
        return;
    }
    let counted = response.record.limits.get_or_insert_default();
    if !counted.contains(meter) {
        let limiter = &ctx.config.process.limiter;
        counted.limits.push(CountedLimit {
            rule: None,
            meter: meter.clone(),
            key: limiter.key(meter, ClientIdentity::Everyone),
            _connection: None,
        });
    }
}

/// Waits until the client may have another PHP process; see [`needs_process_permit`]. `watch` is true if the whole
/// request has arrived; the wait then ends when the client disconnects.
pub(super) async fn wait_for_process_permit(
    ctx: RequestContext<'_>,
    watch: bool,
    response: &mut ResponseInProgress<'_>,
) -> Result<(), Failure> {
    let limiter = &ctx.config.process.limiter;
    let Some(counted) = &mut response.record.limits else {
        return Ok(());
    };
    // All requests acquire their permits in the same order, so no two of them wait for each other.
    counted.limits.sort_by_key(|limit| limit.meter.id);
    let mut places = Vec::new();
    let mut refused = None;
    for limit in &counted.limits {
        let (meter, key) = (&limit.meter, limit.key);
        let place = match limiter.acquire_process(meter, key, turn::recent_time()) {
            Ok(None) => continue,
            Ok(Some(ProcessPermit::Acquired(place))) => Ok(place),
            Ok(Some(ProcessPermit::Queued(line))) => {
                match wait_for_permit(line, meter.max_wait, watch, response.out).await? {
                    Some(place) => Ok(place),
                    None => Err(limiter.refuse_without_permit(
                        meter,
                        key,
                        LimitPart::Processes,
                        turn::recent_time(),
                    )),
                }
            }
            Err(limited) => Err(limited),
        };
        match place {
            Ok(place) => places.push(place),
            Err(limited) => {
                refused = Some(limit_failure(ctx, limit.rule, meter, limited));
                break;
            }
        }
    }
    match refused {
        None => {
            counted.processes = places;
            Ok(())
        }
        Some(failure) => {
            counted.uncount(limiter);
            Err(failure)
        }
    }
}

/// Returns the permits for the run to hold while it has the process.
pub(super) fn take_process_permits(response: &mut ResponseInProgress<'_>) -> Option<DropAtEnd> {
    let counted = response.record.limits.as_mut()?;
    let places = std::mem::take(&mut counted.processes);
    (!places.is_empty()).then(|| Box::new(places) as DropAtEnd)
}

/// Waits for a permit. Returns `None` if that took too long.
async fn wait_for_permit(
    line: PermitQueue,
    longest: Duration,
    watch: bool,
    out: &mut Responder,
) -> Result<Option<ClientPermit>, Failure> {
    let mut line = pin!(tokio::time::timeout(longest, line));
    poll_fn(|cx| {
        if let Poll::Ready(place) = line.as_mut().poll(cx) {
            return Poll::Ready(Ok(place.ok()));
        }
        match watch && out.poll_client_gone(cx).is_ready() {
            true => Poll::Ready(Err(Failure::ClientGone)),
            false => Poll::Pending,
        }
    })
    .await
}

/// Returns the property of the request that identifies its client.
fn client_identity<'a>(ctx: RequestContext<'a>, by: &'a LimitBy) -> ClientIdentity<'a> {
    let request = ctx.request;
    let value = match by {
        LimitBy::Header(name) => request.header(name.as_bytes()),
        LimitBy::Cookie(name) => cookies(request, name).next(),
        _ => None,
    };
    match value {
        None | Some(b"") => by.client_at(ctx.client.address),
        Some(value) => ClientIdentity::Value(value),
    }
}

fn limit_failure(
    ctx: RequestContext<'_>,
    rule: Option<usize>,
    meter: &Meter,
    limited: Limited,
) -> Failure {
    let news = limited.should_log.then(|| {
        let Some(rule) = rule else {
            return ABANDONING_CLIENT_MESSAGE.into();
        };
        let line = ctx.site.config().rules[rule].line;
        let line = line.map_or_else(String::new, |line| format!(" of line {line}"));
        let part = meter.limit.describe_part(limited.over).unwrap_or_default();
        let mut text = format!("over the limit{line}: {part}");
        let by_address = matches!(meter.limit.by, LimitBy::Address | LimitBy::Network(..));
        if by_address && ctx.client.came_through_untrusted_proxy(ctx.request) {
            text +=
                "; the request came through a proxy that trusted_proxies does not name, so all clients of the proxy count as one";
        }
        text.into()
    });
    Failure::ClientLimited {
        retry_after: retry_after_seconds(limited.wait),
        news,
    }
}
