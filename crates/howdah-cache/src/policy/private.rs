//! Decides which responses may be stored for their own visitor alone, and for how long. The application has to ask for
//! it with `X-LiteSpeed-Cache-Control: private,max-age=N`. For a fragment, it is enough that the tag that includes it
//! has `cache-control="private"` and that the response has `Cache-Control: private, max-age=N`.
//!
//! The first header addresses this cache alone, so it takes precedence over `Cache-Control` (as RFC 9213 §2.2 has it for
//! targeted headers): PHP sends `no-store` for every script that opens a session. A plain `Cache-Control: private`
//! addresses browsers, and nothing is stored because of it.

use super::litespeed::parse_litespeed_control;
use super::response::{ResponseFacts, Storable, check_kind, storable};
use super::{CacheRules, Freshness};
use crate::HeaderFields;
use crate::control::Directives;
use crate::field::{self, members};
use crate::pass::Pass;

/// Request headers that are not in the key of a private page: they describe the connection, the way to the page or the
/// number of a request, and differ between two requests of one visitor. A response that varies by one of them is not
/// stored.
const UNBOUND_HEADERS: [&str; 26] = [
    "cache-control",
    "cf-ray",
    "connection",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "pragma",
    "priority",
    "proxy-connection",
    "purpose",
    "range",
    "referer",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-purpose",
    "te",
    "traceparent",
    "tracestate",
    "upgrade-insecure-requests",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
];

/// Returns whether the key of a private page contains a request header, so a response may vary by it.
pub fn is_bound_header(name: &[u8]) -> bool {
    !UNBOUND_HEADERS
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// What a response asks of this cache, as far as private pages are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateWish {
    /// The response is its visitor's own, and may be stored for this number of seconds.
    Private(u64),
    /// The response is the same for all visitors, for this number of seconds. It may also be stored for one of them,
    /// whose cookies keep the request from the shared pages.
    Public(u64),
    /// The response does not allow to be stored.
    Nothing,
}

impl PrivateWish {
    /// Returns for how many seconds the response may be stored for its visitor.
    pub fn lifetime(self) -> Option<u64> {
        match self {
            PrivateWish::Private(lifetime) | PrivateWish::Public(lifetime) => Some(lifetime),
            PrivateWish::Nothing => None,
        }
    }
}

/// Returns what a response asks for. `included_as_private` says whether the tag of the page that includes the response
/// has `cache-control="private"`.
pub fn private_wish(fields: &HeaderFields<'_>, included_as_private: bool) -> PrivateWish {
    if let Some(said) = parse_litespeed_control(fields) {
        return match said.private_lifetime {
            _ if said.forbids => PrivateWish::Nothing,
            // What several visitors have in common is not one visitor's.
            _ if said.is_private && said.is_shared => PrivateWish::Nothing,
            lifetime if said.is_private => PrivateWish::Private(lifetime.unwrap_or(0)),
            Some(lifetime) => PrivateWish::Public(lifetime),
            None => by_cache_control(fields, included_as_private),
        };
    }
    by_cache_control(fields, included_as_private)
}

/// Returns what `Cache-Control` asks for.
fn by_cache_control(fields: &HeaderFields<'_>, included_as_private: bool) -> PrivateWish {
    let said = Directives::parse(field::all(fields, b"cache-control"));
    let own = said.max_age.value();
    match own.or(said.s_maxage.value()) {
        _ if said.no_store || said.no_cache => PrivateWish::Nothing,
        _ if said.private => match own.filter(|_| included_as_private) {
            Some(lifetime) => PrivateWish::Private(lifetime),
            None => PrivateWish::Nothing,
        },
        Some(lifetime) if said.public => PrivateWish::Public(lifetime),
        _ => PrivateWish::Nothing,
    }
}

/// Decides whether a response may be stored for its visitor, whom the request identifies, for `lifetime` seconds.
///
/// # Errors
/// Why the response may not be stored.
pub fn decide_private(
    response: &ResponseFacts<'_>,
    rules: &CacheRules,
    lifetime: u64,
) -> Result<Storable, Pass> {
    let fields = response.fields;
    check_kind(response, true)?;
    if field::first(fields, b"lsc-cookie").is_some() {
        return Err(Pass::SetCookie);
    }
    if response.status != 200 {
        return Err(Pass::Status);
    }
    let has_esi = parse_litespeed_control(fields).is_some_and(|said| said.has_esi);
    if has_esi && rules.esi.is_none() {
        return Err(Pass::DoNotCachePage);
    }
    check_vary(fields, rules)?;
    let lifetime = lifetime.min(rules.max_lifetime());
    if lifetime == 0 {
        return Err(Pass::NoLifetime);
    }
    let freshness = Freshness {
        received: response.received,
        initial_age: response.received.saturating_sub(response.requested),
        lifetime: lifetime * 1000,
        while_revalidate: 0,
        if_error: 0,
        always_validate: false,
    };
    storable(response, rules, freshness)
}

/// Checks that everything by which the response says that it varies is in the key.
fn check_vary(fields: &HeaderFields<'_>, rules: &CacheRules) -> Result<(), Pass> {
    for member in field::all(fields, b"vary").flat_map(members) {
        if member == b"*" {
            return Err(Pass::VaryStar);
        }
        if !is_bound_header(member) {
            return Err(Pass::VaryUnbounded);
        }
    }
    let decides = |member: &[u8]| {
        let name = member.strip_prefix(b"cookie=");
        name.is_some_and(|name| rules.ignores_cookie(name))
    };
    match field::all(fields, b"x-litespeed-vary").any(|line| members(line).any(decides)) {
        true => Err(Pass::VaryUnbounded),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{EsiRules, PrivateRules};

    fn fields<'a>(lines: &'a [(&'a str, &'a str)]) -> Vec<(&'a [u8], &'a [u8])> {
        let bytes = |(n, v): &(&'a str, &'a str)| (n.as_bytes(), v.as_bytes());
        lines.iter().map(bytes).collect()
    }

    fn decide(lines: &[(&str, &str)], status: u16) -> Result<u64, Pass> {
        let rules = CacheRules {
            private: Some(PrivateRules::default()),
            ignore_cookies: vec!["theme".to_owned()],
            ..CacheRules::for_tests()
        };
        let fields = fields(lines);
        let PrivateWish::Private(lifetime) = private_wish(&fields, false) else {
            return Err(Pass::Private);
        };
        let facts = ResponseFacts {
            status,
            fields: &fields,
            authorized: false,
            requested: 1000,
            received: 3000,
            effect: None,
        };
        let storable = decide_private(&facts, &rules, lifetime)?;
        let freshness = storable.freshness();
        assert_eq!(freshness.initial_age, 2000);
        assert!(storable.vary_headers().is_empty() && !storable.has_esi());
        Ok(freshness.lifetime / 1000)
    }

    const ASKS: (&str, &str) = ("X-LiteSpeed-Cache-Control", "private,max-age=60");

    #[test]
    fn application_asks_for_a_private_page_by_the_header_of_this_cache() {
        use PrivateWish::{Nothing, Private, Public};
        for (lines, tagged, expected) in [
            (&[ASKS][..], false, Private(60)),
            // PHP sends these headers for a script that opens a session.
            (
                &[ASKS, ("Cache-Control", "no-store, no-cache")],
                false,
                Private(60),
            ),
            (
                &[("X-LiteSpeed-Cache-Control", "private")],
                false,
                Private(0),
            ),
            (
                &[("X-LiteSpeed-Cache-Control", "Private, s-maxage=9")],
                false,
                Private(9),
            ),
            (
                &[("X-LiteSpeed-Cache-Control", "private,no-cache")],
                false,
                Nothing,
            ),
            (
                &[("X-LiteSpeed-Cache-Control", "shared,private,max-age=9")],
                false,
                Nothing,
            ),
            (
                &[("X-LiteSpeed-Cache-Control", "public,max-age=9")],
                false,
                Public(9),
            ),
            (&[("Cache-Control", "private, max-age=60")], false, Nothing),
            (
                &[("Cache-Control", "private, max-age=60")],
                true,
                Private(60),
            ),
            (
                &[("Cache-Control", "private, no-store, max-age=60")],
                true,
                Nothing,
            ),
            (&[("Cache-Control", "private")], true, Nothing),
            (&[("Cache-Control", "max-age=60")], true, Nothing),
            (&[("Cache-Control", "public, max-age=60")], true, Public(60)),
            (&[("Cache-Control", "public, s-maxage=9")], false, Public(9)),
            (&[("Cache-Control", "public")], false, Nothing),
            (
                &[("Cache-Control", "public, no-cache, max-age=9")],
                false,
                Nothing,
            ),
            (&[], true, Nothing),
        ] {
            assert_eq!(private_wish(&fields(lines), tagged), expected, "{lines:?}");
        }
    }

    #[test]
    fn private_page_is_stored_only_if_it_may_be() {
        assert_eq!(decide(&[ASKS], 200), Ok(60));
        for (line, why) in [
            (("Set-Cookie", "a=b"), Pass::SetCookie),
            (("LSC-Cookie", "a=b"), Pass::SetCookie),
            (("Vary", "*"), Pass::VaryStar),
            (("Vary", "Accept, Referer"), Pass::VaryUnbounded),
            (("X-LiteSpeed-Vary", "cookie=theme"), Pass::VaryUnbounded),
            (("X-Sendfile", "/a"), Pass::SentFile),
            (("WWW-Authenticate", "Basic"), Pass::AuthenticationAsked),
            (("Content-Type", "text/event-stream"), Pass::Streaming),
        ] {
            assert_eq!(decide(&[ASKS, line], 200), Err(why), "{line:?}");
        }
        for line in [
            ("Vary", "Cookie, User-Agent, Accept"),
            ("X-LiteSpeed-Vary", "cookie=a"),
        ] {
            assert_eq!(decide(&[ASKS, line], 200), Ok(60), "{line:?}");
        }
        for (status, why) in [
            (206, Pass::PartialContent),
            (302, Pass::Status),
            (304, Pass::Status),
            (404, Pass::Status),
            (500, Pass::Status),
        ] {
            assert_eq!(decide(&[ASKS], status), Err(why), "{status}");
        }
        let asks = |value| decide(&[("X-LiteSpeed-Cache-Control", value)], 200);
        assert_eq!(asks("private"), Err(Pass::NoLifetime));
        assert_eq!(asks("private,max-age=99999999"), Ok(86_400));
        // Nothing processes the tags of this page.
        assert_eq!(asks("private,max-age=60,esi=on"), Err(Pass::DoNotCachePage));
    }

    #[test]
    fn private_page_may_have_tags_that_are_processed() {
        let rules = CacheRules {
            esi: Some(EsiRules::default()),
            ..CacheRules::for_tests()
        };
        let fields = fields(&[("X-LiteSpeed-Cache-Control", "private,max-age=60,esi=on")]);
        let facts = ResponseFacts {
            status: 200,
            fields: &fields,
            authorized: false,
            requested: 0,
            received: 0,
            effect: None,
        };
        assert!(decide_private(&facts, &rules, 60).unwrap().has_esi());
    }
}
