//! Every reason why a request or a response bypasses the cache. Each has one name, which is the same in the log, the
//! metrics, `Cache-Status`, `howdah cache explain`, the docs and the tests.

use std::sync::atomic::{AtomicU64, Ordering};

use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// Why a request or response bypasses the cache: first the reasons found in the request, then those found in the
/// response, then the cache's own.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Display,
    EnumMessage,
    IntoStaticStr,
    VariantArray,
)]
#[non_exhaustive]
pub enum Pass {
    /// The method is neither GET nor HEAD.
    Method,
    /// The request has a body, which is not part of the cache key.
    RequestBody,
    /// The request has `Authorization` or `Proxy-Authorization` (RFC 9111 §3.5).
    Authorization,
    /// The request has a cookie of a login, a session or a basket.
    SessionCookie,
    /// The request has an unknown cookie. If the cookie is harmless, name it in `cache_ignore_cookies`.
    UnknownCookie,
    /// The name of a cookie is invalid, or PHP would turn it into a `__Host-` or `__Secure-` name.
    UnreadableCookie,
    /// The request overrides its method (`X-HTTP-Method-Override`, `_method`).
    MethodOverride,
    /// A header of the request asks for a personal response (`X-WP-Nonce`, `X-Requested-With` …).
    PersonalField,
    /// The application or `cache_never` excludes the path.
    NeverCachedPath,
    /// The application excludes a query parameter (`preview`, `add-to-cart` …).
    NeverCachedParameter,
    /// The query is too long, or the name of a parameter is invalid.
    UnreadableQuery,
    /// The client sent no valid host.
    NoHost,
    /// The result of `.htaccess` files depends on more than the URL, such as cookies or the client's address.
    Htaccess,
    /// A matching rule of the site depends on more than the URL of the request, or runs a program (`cgi`).
    Rule,
    /// The path contains `//`, `/./`, an encoded slash, a NUL or a line end, which programs interpret differently.
    AmbiguousPath,
    /// With `cache = "rfc"`, scripts would see the URL in an unusual form: with capitals in the host, or as a full URL.
    AmbiguousUrl,
    /// With `cache = "rfc"`, responses to HTTP/1.0 requests are not stored, because scripts can see the protocol.
    OldProtocol,
    /// With `cache = "rfc"`, a header such as `X-Forwarded-Host` names another URL, which scripts may use in links.
    ForwardedUrl,
    /// The client accepts only JSON; or, with `cache = "rfc"`, it claims to process ESI tags (`Surrogate-Capability`).
    OtherRepresentation,
    /// With `cache_vary_mobile`, the headers of the request disagree about whether the browser is mobile.
    UnclearBrowser,
    /// The request asks to upgrade the connection.
    Upgrade,
    /// With `cache = "dry-run"`, nothing is served from the cache.
    DryRun,
    /// This server of a fleet has no lease, so nothing is served from the cache.
    NoLease,
    /// After an upgrade, another process of this server serves the stored pages.
    HandedOver,
    /// The response sets a cookie.
    SetCookie,
    /// The response has `Cache-Control: no-store`.
    NoStore,
    /// The response has `Cache-Control: private`.
    Private,
    /// The response has `Cache-Control: no-cache`, and no validator (`ETag` or `Last-Modified`).
    NoCache,
    /// The response has `X-Accel-Expires: 0`, or a lifetime of zero and no validator (`ETag` or `Last-Modified`).
    NoLifetime,
    /// The response had already expired when it arrived.
    AlreadyStale,
    /// Responses with this status are never stored, or are stored only if they have an explicit lifetime.
    Status,
    /// The response has `Vary: *`, so it matches no other request.
    VaryStar,
    /// The response varies by a header with too many values (`User-Agent`, `Cookie` …), or by something that the key does not contain (`X-LiteSpeed-Vary`).
    VaryUnbounded,
    /// The response has status 206 (RFC 9111 §3.3).
    PartialContent,
    /// The response was cut off, or it is shorter than its `Content-Length`.
    Incomplete,
    /// The body is longer than `[cache] memory` allows.
    TooLarge,
    /// The response header exceeds the limit for a stored page.
    HeadTooLarge,
    /// The response has more tags, or a longer tag, than a stored page may have.
    TooManyTags,
    /// The response is an event stream, or it never ends.
    Streaming,
    /// The script named a file to send (`X-Accel-Redirect`, `X-Sendfile`).
    SentFile,
    /// A program sent a local redirect to another path of this server.
    LocalRedirect,
    /// The script did not run, or sent no response.
    RunFailed,
    /// The application responded with a status of 500 or higher.
    ServerError,
    /// The script ended with a fatal error.
    FatalError,
    /// The script opened or read a session.
    SessionOpened,
    /// The script defined `DONOTCACHEPAGE`, or sent a plugin's header with this meaning.
    DoNotCachePage,
    /// The script wrote to a database.
    DatabaseWrite,
    /// The script asked for HTTP authentication.
    AuthenticationAsked,
    /// The response is private, but no cookie of `[site.private]` clearly identifies its visitor.
    VisitorUnidentified,
    /// The response is private, but its pool runs in a mode in which the cache cannot see what a script writes.
    WritesUnseen,
    /// A purge or a write happened while the page was being rendered.
    OutdatedRender,
    /// The cache has rendered this page before, but the response could not be stored. Howdah will try again later.
    PassedBefore,
    /// The page can be stored, and will be stored at its next GET request. HEAD requests store nothing.
    NotYetAdmitted,
    /// Howdah could not store the last pages that it rendered for this site, so it tries other pages less often.
    SiteRarelyStores,
    /// The request that rendered the page took too long or was abandoned.
    FlightFailed,
}

impl Pass {
    /// All reasons, in the order of the reference.
    pub const ALL: &'static [Pass] = Pass::VARIANTS;

    /// Returns the reason's name in logs, metrics, the `Cache-Status` header and the docs.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the meaning, for the reference and `howdah cache explain`: the variant's doc comment.
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Returns whether the request alone decided, so no lookup was made.
    pub fn is_from_request(self) -> bool {
        matches!(
            self,
            Pass::Method
                | Pass::RequestBody
                | Pass::Authorization
                | Pass::SessionCookie
                | Pass::UnknownCookie
                | Pass::UnreadableCookie
                | Pass::MethodOverride
                | Pass::PersonalField
                | Pass::NeverCachedPath
                | Pass::NeverCachedParameter
                | Pass::UnreadableQuery
                | Pass::NoHost
                | Pass::Rule
                | Pass::AmbiguousPath
                | Pass::AmbiguousUrl
                | Pass::OldProtocol
                | Pass::ForwardedUrl
                | Pass::OtherRepresentation
                | Pass::UnclearBrowser
                | Pass::Upgrade
                | Pass::DryRun
                | Pass::NoLease
                | Pass::HandedOver
        )
    }

    /// Returns whether the reason is temporary rather than a property of the page; such a reason is not remembered.
    pub fn is_temporary(self) -> bool {
        self.is_failure()
            || matches!(
                self,
                Pass::OutdatedRender | Pass::NoLease | Pass::HandedOver
            )
    }

    /// Returns whether something failed, which is a reason to serve a page beyond its lifetime (RFC 5861 §4).
    pub fn is_failure(self) -> bool {
        matches!(
            self,
            Pass::RunFailed
                | Pass::ServerError
                | Pass::FatalError
                | Pass::FlightFailed
                | Pass::Incomplete
        )
    }
}

/// How often each reason has occurred.
#[derive(Debug)]
pub struct PassCounters([AtomicU64; Pass::VARIANTS.len()]);

impl Default for PassCounters {
    fn default() -> Self {
        PassCounters([const { AtomicU64::new(0) }; Pass::VARIANTS.len()])
    }
}

impl PassCounters {
    /// Counts a request or response that bypassed the cache for this reason.
    pub fn add(&self, pass: Pass) {
        self.0[pass as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the reasons that have occurred, by name, each with its count.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let all = Pass::ALL.iter().zip(&self.0);
        all.map(|(pass, n)| (pass.name().to_owned(), n.load(Ordering::Relaxed)))
            .filter(|(_, n)| *n > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_name_and_a_meaning() {
        let mut names: Vec<_> = Pass::ALL.iter().map(|p| p.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Pass::ALL.len());
        for (at, pass) in Pass::ALL.iter().enumerate() {
            assert_eq!(*pass as usize, at);
            assert!(pass.meaning().len() > 10, "{pass}");
        }
    }

    #[test]
    fn reasons_are_counted_by_name() {
        let counters = PassCounters::default();
        counters.add(Pass::SetCookie);
        counters.add(Pass::SetCookie);
        assert_eq!(counters.counts(), [("SetCookie".to_owned(), 2)]);
    }
}
