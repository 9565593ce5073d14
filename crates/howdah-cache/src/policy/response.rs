//! Which responses may be stored, and for how long: RFC 9111 §3 and §4.2.1, RFC 9213, nginx'
//! `X-Accel-Expires`. The only maker of a [`Storable`].

pub use super::facts::ResponseFacts;
use super::lifetime::freshness;
use super::litespeed::litespeed;
use super::{Freshness, Rules, Scheme};
use crate::Fields;
use crate::control::{self, Directives};
use crate::field::{self, members};
use crate::pass::Pass;
use crate::tags::{self, Tags};

/// Longest head that is stored, in bytes of names and values.
const MAX_HEAD: usize = 64 << 10;
/// How many fields a response may vary by.
const MAX_VARY: usize = 8;

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
    let media_type = field::first(fields, b"content-type").map(<[u8]>::to_ascii_lowercase);
    if media_type.is_some_and(|text| text.starts_with(b"text/event-stream")) {
        return Err(Pass::Streaming);
    }
    let lines = fields.iter().map(|(n, v)| n.len() + v.len() + 4);
    if lines.sum::<usize>() > MAX_HEAD {
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

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
