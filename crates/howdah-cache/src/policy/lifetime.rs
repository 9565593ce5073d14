//! The lifetime of a response that may be stored: RFC 9111 §4.2, and the headers that override it.

use super::facts::ResponseFacts;
use super::litespeed::parse_litespeed_control;
use super::{CacheRules, CacheScheme, Freshness};
use crate::control::{Directives, TimeDirective};
use crate::field::{self, members};
use crate::pass::Pass;
use crate::{HeaderFields, Millis};

/// The divisor of a resource's age that gives its heuristic lifetime (RFC 9111 §4.2.2 suggests 10 %).
const HEURISTIC_DIVISOR: u64 = 10;
/// The longest heuristic lifetime in seconds: one day.
const MAX_HEURISTIC_LIFETIME: u64 = 86_400;

/// Returns whether a status has a heuristic lifetime (RFC 9110 §15.1).
fn is_heuristic(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Returns whether this is a final status whose meaning is understood (RFC 9110 §15, and 425, 428, 429, 431, 451, 511).
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 425 | 426 | 428 | 429 | 431 | 451 | 500..=505 | 511
    )
}

/// Returns whether a client's malformed request can cause the status: if such a response were stored, every visitor
/// would get it (cpdos.org). Under [`CacheScheme::CleanRoom`], it is never stored.
fn is_client_provoked(status: u16) -> bool {
    matches!(
        status,
        400 | 405 | 406 | 408 | 411..=417 | 421 | 425 | 429 | 431
    ) || status >= 500
}

/// Checks whether the status and the directives allow a response to be stored at all.
fn may_be_stored(
    response: &ResponseFacts<'_>,
    clean: bool,
    directives: &Directives,
) -> Result<(), Pass> {
    let status = response.status;
    if status < 200 || status == 304 {
        return Err(Pass::Status);
    }
    if clean && status >= 500 {
        return Err(Pass::ServerError);
    }
    if clean && is_client_provoked(status) {
        return Err(Pass::Status);
    }
    // §5.2.2.3: `must-understand` lifts `no-store` for a cache that understands the status.
    let lifted = directives.must_understand && is_understood(status);
    if directives.must_understand && !is_understood(status) {
        return Err(Pass::Status);
    }
    if directives.no_store && !lifted {
        return Err(Pass::NoStore);
    }
    if directives.private {
        return Err(Pass::Private);
    }
    let shared = directives.public
        || directives.must_revalidate
        || directives.s_maxage != TimeDirective::Absent;
    if response.authorized && !shared {
        return Err(Pass::Authorization);
    }
    Ok(())
}

/// Returns the lifetime in seconds that the response states, if it states one.
fn stated_lifetime(
    response: &ResponseFacts<'_>,
    directives: &Directives,
    is_targeted: bool,
    date: Option<Millis>,
) -> Option<u64> {
    let fields = response.fields;
    let stated = directives.s_maxage.value().or(directives.max_age.value());
    let expires = || expires(fields, date.unwrap_or(response.received));
    // RFC 9213 §2.2: with targeted directives, `Expires` is ignored just as `Cache-Control` is.
    let dialect = parse_litespeed_control(fields).and_then(|said| said.lifetime);
    let stated = dialect.or(stated);
    stated.or_else(|| if is_targeted { None } else { expires() })
}

/// Returns how long the response may be served, fresh and stale, or the reason why it may not be stored. `accel` is the
/// seconds of `X-Accel-Expires`, which take precedence over every other lifetime.
pub(super) fn freshness(
    response: &ResponseFacts<'_>,
    rules: &CacheRules,
    directives: &Directives,
    is_targeted: bool,
    accel: Option<u64>,
) -> Result<Freshness, Pass> {
    let ResponseFacts { status, fields, .. } = *response;
    let clean = rules.scheme == CacheScheme::CleanRoom;
    may_be_stored(response, clean, directives)?;
    if accel == Some(0) {
        return Err(Pass::NoLifetime);
    }
    // In a clean room, the server has just rendered the page itself. `Date` may be older nevertheless: Drupal keeps pages
    // until their content changes, and repeats the header fields of the first response.
    let date = field::first(fields, b"date").filter(|_| !clean);
    let date = date.and_then(field::date);
    let explicit = accel.or_else(|| stated_lifetime(response, directives, is_targeted, date));
    let validator = field::first(fields, b"etag").is_some()
        || field::first(fields, b"last-modified")
            .and_then(field::date)
            .is_some();
    let pragma = !directives.present
        && clean
        && field::all(fields, b"pragma").any(|v| v.eq_ignore_ascii_case(b"no-cache"));
    let always_validate = (directives.no_cache && accel.is_none()) || pragma;
    // Nothing is revalidated in a clean room: rendering replaces revalidation.
    if always_validate && (clean || !validator) {
        return Err(Pass::NoCache);
    }
    let lifetime = match explicit {
        Some(seconds) => seconds.min(rules.max_lifetime()),
        None if clean && matches!(status, 200 | 301 | 308) => rules.ttl.min(rules.max_lifetime()),
        None if clean || (!is_heuristic(status) && !validator) => return Err(Pass::Status),
        None => heuristic_lifetime(response, directives, date)
            .or(validator.then_some(0))
            .ok_or(Pass::NoLifetime)?,
    };
    let initial_age = initial_age(response, date);
    if lifetime == 0 && (clean || !validator) {
        return Err(Pass::NoLifetime);
    }
    if initial_age >= lifetime * 1000 && (clean || !validator) {
        return Err(Pass::AlreadyStale);
    }
    // §4.2.4: these directives forbid serving a stale response, whatever is configured.
    let strict = directives.must_revalidate
        || directives.proxy_revalidate
        || directives.s_maxage != TimeDirective::Absent
        || always_validate;
    let stale = |given: TimeDirective, configured: u64| match (strict, given) {
        (true, _) => 0,
        (false, TimeDirective::Absent) if clean => configured * 1000,
        (false, given) => given.value().unwrap_or(0).min(rules.max_lifetime()) * 1000,
    };
    Ok(Freshness {
        received: response.received,
        initial_age,
        lifetime: lifetime * 1000,
        while_revalidate: stale(directives.stale_while_revalidate, rules.grace),
        if_error: stale(directives.stale_if_error, rules.stale_if_error),
        always_validate,
    })
}

/// Returns the seconds from `Expires`. An invalid date is in the past (§5.3), and so are two headers that differ.
fn expires(fields: &HeaderFields<'_>, date: Millis) -> Option<u64> {
    let mut lines = field::all(fields, b"expires");
    let first = lines.next()?;
    if lines.any(|other| other != first) {
        return Some(0);
    }
    Some(field::date(first).map_or(0, |at| at.saturating_sub(date) / 1000))
}

/// Returns the heuristic lifetime of §4.2.2, used only if nothing is explicit.
fn heuristic_lifetime(
    response: &ResponseFacts<'_>,
    directives: &Directives,
    date: Option<Millis>,
) -> Option<u64> {
    if !is_heuristic(response.status) && !directives.public {
        return None;
    }
    let modified = field::first(response.fields, b"last-modified").and_then(field::date)?;
    let at = date.unwrap_or(response.received);
    Some((at.saturating_sub(modified) / 1000 / HEURISTIC_DIVISOR).min(MAX_HEURISTIC_LIFETIME))
}

/// Returns `corrected_initial_age` of §4.2.3, in milliseconds.
fn initial_age(response: &ResponseFacts<'_>, date: Option<Millis>) -> Millis {
    let apparent = response
        .received
        .saturating_sub(date.unwrap_or(response.received));
    let delay = response.received.saturating_sub(response.requested);
    // §5.1: the first of several members counts; a header that is not a number is ignored.
    let stated = field::first(response.fields, b"age")
        .and_then(|value| members(value).next())
        .and_then(field::seconds)
        .unwrap_or(0);
    // `Date` has whole seconds, so an age of less than a second counts as none.
    let apparent = if apparent < 1000 { 0 } else { apparent };
    let delay = if delay < 1000 { 0 } else { delay };
    apparent.max(stated * 1000 + delay)
}
