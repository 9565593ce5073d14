//! Which responses may be stored, and for how long: RFC 9111 §3 and §4.2.1, RFC 9213, nginx'
//! `X-Accel-Expires`. The only maker of a [`Storable`].

use super::{Freshness, Rules, Scheme};
use crate::control::{self, Directives, Given};
use crate::field::{self, members};
use crate::pass::Pass;
use crate::tags::{self, Tags};
use crate::{Fields, Millis};

/// Longest head that is stored, in bytes of names and values.
const MAX_HEAD: usize = 64 << 10;
/// How many fields a response may vary by.
const MAX_VARY: usize = 8;
/// Part of a resource's age for which it is taken to stay as it is (RFC 9111 §4.2.2 suggests 10 %).
const HEURISTIC: u64 = 10;
/// The longest lifetime guessed from a resource's age, in seconds: one day.
const HEURISTIC_MAX: u64 = 86_400;

/// A complete response, as it came.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFacts<'a> {
    /// The response's status code.
    pub status: u16,
    /// The response's header fields.
    pub fields: &'a Fields<'a>,
    /// The request carried `Authorization`.
    pub authorized: bool,
    /// When the request was sent.
    pub requested: Millis,
    /// When the response's head was there.
    pub received: Millis,
    /// What the run did beside answering, if that forbids to store it.
    pub effect: Option<Pass>,
}

/// The proof that the policy allows this response to be stored, as far as its head shows, and how. The
/// body is still to be checked, by [`Storable::complete`].
#[derive(Clone, Debug)]
pub struct Storable {
    freshness: Freshness,
    vary: Vec<Vec<u8>>,
    left_out: Vec<Vec<u8>>,
    tags: Tags,
    max_object: u64,
    announced: Option<u64>,
}

impl Storable {
    /// How long the response may be served, and how stale.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// The fields it varies by: lower case, sorted, each once.
    pub fn vary(&self) -> &[Vec<u8>] {
        &self.vary
    }

    /// Fields that are not stored, lower case (`no-cache="…"`, `Connection`'s).
    pub fn leaves_out(&self, name: &[u8]) -> bool {
        self.left_out.iter().any(|n| n.eq_ignore_ascii_case(name)) || never_stored(name)
    }

    /// The tags the response gave itself, by which it can be purged.
    pub fn tags(&self) -> &[Vec<u8>] {
        self.tags.as_slice()
    }

    /// Adds a tag that the script set with `howdah_cache_tag()`.
    pub fn tag(&mut self, tag: &[u8]) -> Result<(), Pass> {
        self.tags.add(tag)
    }

    /// Checks a body of this many bytes, which ended as it should.
    pub fn complete(&self, length: u64) -> Result<(), Pass> {
        if length > self.max_object {
            return Err(Pass::TooLarge);
        }
        match self.announced {
            Some(announced) if announced != length => Err(Pass::Incomplete),
            _ => Ok(()),
        }
    }

    /// Whether a body may still become that long.
    pub fn allows(&self, length: u64) -> Result<(), Pass> {
        if length > self.max_object {
            return Err(Pass::TooLarge);
        }
        Ok(())
    }
}

/// Fields of one connection or one exchange (RFC 9111 §3.1), and instructions to this cache.
fn never_stored(name: &[u8]) -> bool {
    const NEVER: [&[u8]; 16] = [
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"age",
        b"date",
        b"status",
        b"content-length",
        b"set-cookie",
        b"x-accel-expires",
    ];
    NEVER.iter().any(|never| name.eq_ignore_ascii_case(never)) || tags::is_instruction(name)
}

/// Whether, how long and under what a response may be stored.
pub fn judge(response: &ResponseFacts<'_>, rules: &Rules) -> Result<Storable, Pass> {
    let ResponseFacts { status, fields, .. } = *response;
    if let Some(effect) = response.effect {
        return Err(effect);
    }
    let clean = rules.scheme == Scheme::CleanRoom;
    let has = |name: &'static [u8]| field::first(fields, name).is_some();
    // Even if it says `public`: a cookie stored is somebody's session given to all.
    if has(b"set-cookie") || (clean && has(b"set-cookie2")) {
        return Err(Pass::SetCookie);
    }
    if has(b"x-accel-redirect") || has(b"x-sendfile") {
        return Err(Pass::SentFile);
    }
    // RFC 9110 §14.4: `Content-Range` says nothing in any other answer that may be stored (416 may not);
    // Backdrop sends it with every page.
    if status == 206 {
        return Err(Pass::PartialContent);
    }
    let asks = has(b"www-authenticate") || has(b"proxy-authenticate");
    if (clean && asks) || matches!(status, 401 | 407) {
        return Err(Pass::AuthenticationAsked);
    }
    if field::first(fields, b"content-type")
        .is_some_and(|v| v.to_ascii_lowercase().starts_with(b"text/event-stream"))
    {
        return Err(Pass::Streaming);
    }
    if fields
        .iter()
        .map(|(n, v)| n.len() + v.len() + 4)
        .sum::<usize>()
        > MAX_HEAD
    {
        return Err(Pass::HeadTooLarge);
    }
    do_not_cache(fields, rules)?;
    let targeted = control::targeted(fields);
    let is_targeted = targeted.is_some();
    let directives =
        targeted.unwrap_or_else(|| Directives::read(field::all(fields, b"cache-control")));
    let vary = vary(fields, clean)?;
    let accel = control::accel_expires(fields, response.received);
    let freshness = freshness(response, rules, &directives, is_targeted, accel)?;
    let announced = match field::all(fields, b"content-length").count() {
        1 => field::first(fields, b"content-length").and_then(field::seconds),
        _ => None,
    };
    let mut left_out = directives.no_cache_fields;
    if !rules.keep_tags {
        left_out.extend(tags::FIELDS.iter().map(|name| name.to_vec()));
    }
    for line in field::all(fields, b"connection") {
        left_out.extend(members(line).map(<[u8]>::to_ascii_lowercase));
    }
    Ok(Storable {
        freshness,
        vary,
        left_out,
        tags: Tags::of(fields)?,
        max_object: rules.max_object,
        // Beyond what a number of seconds may be there is no body either.
        announced: announced.filter(|n| *n < field::MAX_SECONDS),
    })
}

/// What plugins say when they speak to another cache: a no is a no in every dialect.
fn do_not_cache(fields: &Fields<'_>, rules: &Rules) -> Result<(), Pass> {
    if litespeed(fields).is_some_and(|said| said.forbids) {
        return Err(Pass::DoNotCachePage);
    }
    // A cookie that decides what the page shows must not be one that is ignored.
    let decides = |member: &[u8]| {
        let name = member.strip_prefix(b"cookie=");
        name.is_some_and(|name| rules.ignores_cookie(name))
    };
    if field::all(fields, b"x-litespeed-vary").any(|line| members(line).any(decides)) {
        return Err(Pass::VaryUnbounded);
    }
    match field::first(fields, b"surrogate-control") {
        Some(value) if Directives::read(std::iter::once(value)).no_store => Err(Pass::NoStore),
        _ => Ok(()),
    }
}

/// What `X-LiteSpeed-Cache-Control` says (OpenLiteSpeed's cachectrl.cpp). It may forbid, and give a
/// lifetime; unlike there it does not overrule `private` and `no-store` of `Cache-Control`.
struct LiteSpeed {
    forbids: bool,
    lifetime: Option<u64>,
}

fn litespeed(fields: &Fields<'_>) -> Option<LiteSpeed> {
    let mut lines = field::all(fields, b"x-litespeed-cache-control").peekable();
    lines.peek()?;
    let (mut forbids, mut shared, mut own) = (false, None, None);
    for member in lines.flat_map(members) {
        match &member.to_ascii_lowercase()[..] {
            // There is no cache of a visitor's own here, and nothing fills in ESI's holes.
            b"no-cache" | b"no-store" | b"private" | b"esi=on" => forbids = true,
            other => {
                let time = |name: &[u8]| other.strip_prefix(name).and_then(field::seconds);
                shared = shared.or_else(|| time(b"s-maxage="));
                own = own.or_else(|| time(b"max-age="));
            }
        }
    }
    let lifetime = shared.or(own);
    Some(LiteSpeed { forbids, lifetime })
}

/// The fields a response varies by. `Accept-Encoding` is not one of them: the body is kept plain and
/// encoded here. Under [`Scheme::CleanRoom`] neither is `Cookie`: the page was rendered without any,
/// and only requests without one that matters are answered by it.
fn vary(fields: &Fields<'_>, clean: bool) -> Result<Vec<Vec<u8>>, Pass> {
    let encoded = field::first(fields, b"content-encoding").is_some();
    let mut names = Vec::new();
    for line in field::all(fields, b"vary") {
        for member in members(line) {
            match &member.to_ascii_lowercase()[..] {
                b"*" => return Err(Pass::VaryStar),
                b"accept-encoding" if !encoded => {}
                b"cookie" if clean => {}
                b"user-agent" | b"cookie" | b"referer" => return Err(Pass::VaryUnbounded),
                name => names.push(name.to_vec()),
            }
        }
    }
    names.sort();
    names.dedup();
    if names.len() > MAX_VARY {
        return Err(Pass::VaryUnbounded);
    }
    Ok(names)
}

/// Statuses with a heuristic lifetime (RFC 9110 §15.1).
fn is_heuristic(status: u16) -> bool {
    matches!(
        status,
        200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}

/// Final statuses whose meaning is understood (RFC 9110 §15, and 425, 428, 429, 431, 451, 511).
fn is_understood(status: u16) -> bool {
    matches!(
        status,
        200..=205 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 425 | 426 | 428 | 429 | 431 | 451 | 500..=505 | 511
    )
}

/// Statuses a client's malformed request can cause: stored, they would be everybody's answer
/// (cpdos.org). Never stored for a page that did not ask for it, and never if it did.
fn is_clients_fault(status: u16) -> bool {
    matches!(
        status,
        400 | 405 | 406 | 408 | 411..=417 | 421 | 425 | 429 | 431
    ) || status >= 500
}

fn freshness(
    response: &ResponseFacts<'_>,
    rules: &Rules,
    directives: &Directives,
    is_targeted: bool,
    accel: Option<u64>,
) -> Result<Freshness, Pass> {
    let ResponseFacts { status, fields, .. } = *response;
    let clean = rules.scheme == Scheme::CleanRoom;
    if status < 200 || status == 304 {
        return Err(Pass::Status);
    }
    if clean && status >= 500 {
        return Err(Pass::ServerError);
    }
    if clean && is_clients_fault(status) {
        return Err(Pass::Status);
    }
    // §5.2.2.3: `must-understand` lifts `no-store` for who understands the status.
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
    let shared =
        directives.public || directives.must_revalidate || directives.s_maxage != Given::No;
    if response.authorized && !shared {
        return Err(Pass::Authorization);
    }
    if accel == Some(0) {
        return Err(Pass::NoLifetime);
    }
    let date = field::first(fields, b"date").and_then(field::date);
    let explicit = match accel {
        Some(seconds) => Some(seconds),
        None => {
            let stated = directives.s_maxage.value().or(directives.max_age.value());
            let expires = || expires(fields, date.unwrap_or(response.received));
            // RFC 9213 §2.2: `Expires` is no more heeded than `Cache-Control` then.
            let dialect = || litespeed(fields).and_then(|said| said.lifetime);
            let stated = dialect().or(stated);
            stated.or_else(|| if is_targeted { None } else { expires() })
        }
    };
    let validator = field::first(fields, b"etag").is_some()
        || field::first(fields, b"last-modified")
            .and_then(field::date)
            .is_some();
    let pragma = !directives.present
        && clean
        && field::all(fields, b"pragma").any(|v| v.eq_ignore_ascii_case(b"no-cache"));
    let always_validate = (directives.no_cache && accel.is_none()) || pragma;
    // Nothing is revalidated for a clean room: to render is to revalidate.
    if always_validate && (clean || !validator) {
        return Err(Pass::NoCache);
    }
    let lifetime = match explicit {
        Some(seconds) => seconds.min(rules.longest()),
        None if clean && matches!(status, 200 | 301 | 308) => rules.ttl.min(rules.longest()),
        None if clean => return Err(Pass::Status),
        None => heuristic(response, directives, date)
            .or(validator.then_some(0))
            .ok_or(if is_heuristic(status) {
                Pass::NoLifetime
            } else {
                Pass::Status
            })?,
    };
    let initial_age = initial_age(response, date);
    if lifetime == 0 && (clean || !validator) {
        return Err(Pass::NoLifetime);
    }
    if initial_age >= lifetime * 1000 && (clean || !validator) {
        return Err(Pass::AlreadyStale);
    }
    // §4.2.4: these forbid to serve what is stale, whatever is configured.
    let strict = directives.must_revalidate
        || directives.proxy_revalidate
        || directives.s_maxage != Given::No
        || always_validate;
    let beyond = |given: Given, configured: u64| match (strict, given) {
        (true, _) => 0,
        (false, Given::No) if clean => configured * 1000,
        (false, given) => given.value().unwrap_or(0).min(rules.longest()) * 1000,
    };
    Ok(Freshness {
        received: response.received,
        initial_age,
        lifetime: lifetime * 1000,
        while_revalidate: beyond(directives.stale_while_revalidate, rules.grace),
        if_error: beyond(directives.stale_if_error, rules.stale_if_error),
        always_validate,
    })
}

/// Seconds from `Expires`; a broken one is in the past (§5.3), and so are two that differ.
fn expires(fields: &Fields<'_>, date: Millis) -> Option<u64> {
    let mut lines = field::all(fields, b"expires");
    let first = lines.next()?;
    if lines.any(|other| other != first) {
        return Some(0);
    }
    Some(field::date(first).map_or(0, |at| at.saturating_sub(date) / 1000))
}

/// §4.2.2; only where nothing is explicit.
fn heuristic(
    response: &ResponseFacts<'_>,
    directives: &Directives,
    date: Option<Millis>,
) -> Option<u64> {
    if !is_heuristic(response.status) && !directives.public {
        return None;
    }
    let modified = field::first(response.fields, b"last-modified").and_then(field::date)?;
    let at = date.unwrap_or(response.received);
    Some((at.saturating_sub(modified) / 1000 / HEURISTIC).min(HEURISTIC_MAX))
}

/// `corrected_initial_age` of §4.2.3, in milliseconds.
fn initial_age(response: &ResponseFacts<'_>, date: Option<Millis>) -> Millis {
    let apparent = response
        .received
        .saturating_sub(date.unwrap_or(response.received));
    let delay = response.received.saturating_sub(response.requested);
    // §5.1: of several members the first; a field that is no number is ignored.
    let stated = field::first(response.fields, b"age")
        .and_then(|value| members(value).next())
        .and_then(field::seconds)
        .unwrap_or(0);
    // `Date` has whole seconds: less than one of them is no age.
    let apparent = if apparent < 1000 { 0 } else { apparent };
    let delay = if delay < 1000 { 0 } else { delay };
    apparent.max(stated * 1000 + delay)
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
