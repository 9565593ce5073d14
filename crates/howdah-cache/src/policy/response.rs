//! Decides which responses may be stored, and for how long: RFC 9111 §3 and §4.2.1, RFC 9213, nginx's
//! `X-Accel-Expires`. Only this module creates a [`Storable`].

pub use super::facts::ResponseFacts;
use super::lifetime::freshness;
use super::litespeed::parse_litespeed_control;
use super::{CacheRules, CacheScheme, Freshness};
use crate::HeaderFields;
use crate::control::{self, Directives};
use crate::esi;
use crate::field::{self, members};
use crate::pass::Pass;
use crate::tags::{self, Tags};

/// Maximum size of a stored header section, in bytes of names and values.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Maximum number of headers by which a response may vary.
const MAX_VARY_HEADERS: usize = 8;

/// The proof that the policy allows this response to be stored, as far as its headers show, and how. The body remains
/// to be checked by [`Storable::check_complete`].
#[derive(Clone, Debug)]
pub struct Storable {
    freshness: Freshness,
    vary: Vec<Vec<u8>>,
    omitted: Vec<Vec<u8>>,
    tags: Tags,
    max_object: u64,
    announced: Option<u64>,
    has_esi: bool,
}

impl Storable {
    /// Returns how long the response may be served, fresh and stale.
    pub fn freshness(&self) -> &Freshness {
        &self.freshness
    }

    /// Returns the headers by which it varies: in lower case, sorted, each once.
    pub fn vary_headers(&self) -> &[Vec<u8>] {
        &self.vary
    }

    /// Returns whether the header `name` is not stored: `no-cache="…"` or `Connection` names it, or it is never stored.
    pub fn omits(&self, name: &[u8]) -> bool {
        self.omitted.iter().any(|n| n.eq_ignore_ascii_case(name)) || never_stored(name)
    }

    /// Returns whether the tags of the body are processed for each delivery ([`crate::esi`]).
    pub fn has_esi(&self) -> bool {
        self.has_esi
    }

    /// Returns the tags that the response gave itself, by which it can be purged.
    pub fn tags(&self) -> &[Vec<u8>] {
        self.tags.as_slice()
    }

    /// Adds a tag that the script set with `howdah_cache_tag()`.
    pub fn add_tag(&mut self, tag: &[u8]) -> Result<(), Pass> {
        self.tags.add(tag)
    }

    /// Checks a complete body of this many bytes.
    pub fn check_complete(&self, length: u64) -> Result<(), Pass> {
        if length > self.max_object {
            return Err(Pass::TooLarge);
        }
        match self.announced {
            Some(announced) if announced != length => Err(Pass::Incomplete),
            _ => Ok(()),
        }
    }

    /// Checks whether a body may still grow to this length.
    pub fn check_length(&self, length: u64) -> Result<(), Pass> {
        if length > self.max_object {
            return Err(Pass::TooLarge);
        }
        Ok(())
    }
}

/// Returns whether a header belongs to one connection or one exchange (RFC 9111 §3.1), or is an instruction to this
/// cache.
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

/// Checks what no kind of stored page may be. `clean` adds what is stricter here than RFC 9111.
pub(super) fn check_kind(response: &ResponseFacts<'_>, clean: bool) -> Result<(), Pass> {
    let ResponseFacts { status, fields, .. } = *response;
    if let Some(effect) = response.effect {
        return Err(effect);
    }
    let has = |name: &'static [u8]| field::first(fields, name).is_some();
    // This holds even if the response is `public`: a stored cookie would give one visitor's session to all.
    if has(b"set-cookie") || (clean && has(b"set-cookie2")) {
        return Err(Pass::SetCookie);
    }
    if has(b"x-accel-redirect") || has(b"x-sendfile") {
        return Err(Pass::SentFile);
    }
    // RFC 9110 §14.4: `Content-Range` has no meaning in any other response that may be stored (416 may not). Backdrop
    // sends it with every page.
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
    if lines.sum::<usize>() > MAX_HEAD_BYTES {
        return Err(Pass::HeadTooLarge);
    }
    Ok(())
}

/// Decides whether a response may be stored, for how long and under which key.
pub fn decide_storable(response: &ResponseFacts<'_>, rules: &CacheRules) -> Result<Storable, Pass> {
    let fields = response.fields;
    let clean = rules.scheme == CacheScheme::CleanRoom;
    check_kind(response, clean)?;
    check_other_dialects(fields, rules)?;
    let targeted = control::targeted(fields);
    let is_targeted = targeted.is_some();
    let directives =
        targeted.unwrap_or_else(|| Directives::parse(field::all(fields, b"cache-control")));
    let vary = vary(fields, rules)?;
    let accel = control::accel_expires(fields, response.received);
    let freshness = freshness(response, rules, &directives, is_targeted, accel)?;
    let mut storable = storable(response, rules, freshness)?;
    storable.vary = vary;
    storable.omitted.extend(directives.no_cache_fields);
    Ok(storable)
}

/// Returns the proof for a response that passed all checks of its headers, without what it varies by.
pub(super) fn storable(
    response: &ResponseFacts<'_>,
    rules: &CacheRules,
    freshness: Freshness,
) -> Result<Storable, Pass> {
    let fields = response.fields;
    let announced = match field::all(fields, b"content-length").count() {
        1 => field::first(fields, b"content-length").and_then(field::seconds),
        _ => None,
    };
    let mut left_out = Vec::new();
    if !rules.keep_tags {
        left_out.extend(tags::TAG_HEADERS.iter().map(|name| name.to_vec()));
    }
    let has_esi = rules.esi.is_some()
        && esi::is_marked(fields)
        && esi::is_processable(response.status, fields);
    if has_esi {
        // The object has a mark of its own.
        left_out.push(esi::MARK_NAME.to_ascii_lowercase());
    }
    for line in field::all(fields, b"connection") {
        left_out.extend(members(line).map(<[u8]>::to_ascii_lowercase));
    }
    Ok(Storable {
        freshness,
        vary: Vec::new(),
        omitted: left_out,
        tags: Tags::from_headers(fields)?,
        max_object: rules.max_object,
        has_esi,
        // `seconds` reduces a larger length to `MAX_SECONDS`, so a length of `MAX_SECONDS` means that the real one is
        // unknown.
        announced: announced.filter(|n| *n < field::MAX_SECONDS),
    })
}

/// Checks what plugins tell other caches: a refusal counts in every dialect.
fn check_other_dialects(fields: &HeaderFields<'_>, rules: &CacheRules) -> Result<(), Pass> {
    if let Some(said) = parse_litespeed_control(fields) {
        // A page with tags that nothing processes must not be stored.
        if said.forbids || said.is_private || (said.has_esi && rules.esi.is_none()) {
            return Err(Pass::DoNotCachePage);
        }
    }
    // LiteSpeed's server sets this cookie for every visitor who gets the stored page.
    if field::first(fields, b"lsc-cookie").is_some() {
        return Err(Pass::SetCookie);
    }
    // A cookie that determines what the page shows must not be one that is ignored. A value stands for something in the
    // request that only the application knows. Under `rfc`, scripts see all cookies, also those that are not in the key.
    let rfc = rules.scheme == CacheScheme::Rfc;
    let is_in_key = |name: &[u8]| rules.vary.cookies.iter().any(|own| own.as_bytes() == name);
    let decides = |member: &[u8]| match member.strip_prefix(b"cookie=") {
        Some(name) if rfc => !is_in_key(name),
        Some(name) => rules.ignores_cookie(name) || rules.is_cookie_of_fragments(name),
        None => rfc || member.starts_with(b"value="),
    };
    if field::all(fields, b"x-litespeed-vary").any(|line| members(line).any(decides)) {
        return Err(Pass::VaryUnbounded);
    }
    match esi::surrogate_directives(fields).any(|name| name.eq_ignore_ascii_case(b"no-store")) {
        true => Err(Pass::NoStore),
        false => Ok(()),
    }
}

/// Returns the headers by which a response varies. `Accept-Encoding` is not one of them: the body is stored plain and
/// encoded here. Under [`CacheScheme::CleanRoom`] `Cookie` is not one of them either: the page was rendered without
/// cookies, and it answers only requests that have no relevant one. The site's own names (`rules.vary`) are always
/// among them, whatever the response says, because the site knows what its pages may show.
fn vary(fields: &HeaderFields<'_>, rules: &CacheRules) -> Result<Vec<Vec<u8>>, Pass> {
    let clean = rules.scheme == CacheScheme::CleanRoom;
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
    if names.len() > MAX_VARY_HEADERS {
        return Err(Pass::VaryUnbounded);
    }
    names.extend(rules.vary.names());
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
