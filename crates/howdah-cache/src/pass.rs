//! Every reason why a request or a response bypasses the cache, by its one name: the same in the
//! log, the metrics, `Cache-Status`, `howdah cache explain`, the docs and the tests.

use std::fmt;

macro_rules! passes {
    ($($(#[doc = $doc:literal])* $name:ident $side:ident;)*) => {
        /// Why something passes the cache by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Pass { $($(#[doc = $doc])* $name,)* }

        impl Pass {
            /// All of them, in the order of the reference.
            pub const ALL: &'static [Pass] = &[$(Pass::$name,)*];

            /// The reason's name in logs, metrics, the `Cache-Status` field and the docs.
            pub fn name(self) -> &'static str {
                match self { $(Pass::$name => stringify!($name),)* }
            }

            /// What it means, for the reference and `howdah cache explain`.
            pub fn meaning(self) -> &'static str {
                match self { $(Pass::$name => concat!($($doc),*).trim_ascii(),)* }
            }

            /// Whether the request alone decided, or the response.
            pub fn side(self) -> Side {
                match self { $(Pass::$name => Side::$side,)* }
            }

            fn index(self) -> usize {
                self as usize
            }

            /// Whether it says something about the moment rather than about the page: not remembered.
            pub fn is_of_the_moment(self) -> bool {
                self.is_failure() || self == Pass::OutdatedRender
            }

            /// Whether something went wrong: a reason to serve a page beyond its lifetime (RFC 5861 §4).
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
    };
}

/// Whose doing a [`Pass`] is: the request's, the response's or the cache's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The request's: no lookup was made.
    Request,
    /// The response's: it was not stored.
    Response,
    /// The cache's own: its limits, its order.
    Cache,
}

passes! {
    /// The method is neither GET nor HEAD.
    Method Request;
    /// The request has a body, which is not in the key.
    RequestBody Request;
    /// The request has `Authorization` or `Proxy-Authorization` (RFC 9111 §3.5).
    Authorization Request;
    /// A cookie of a login, a session or a basket.
    SessionCookie Request;
    /// A cookie not known to be harmless; if it is, name it in `cache_ignore_cookies`.
    UnknownCookie Request;
    /// A cookie whose name cannot be read as PHP reads it.
    UnreadableCookie Request;
    /// A method override (`X-HTTP-Method-Override`, `_method`).
    MethodOverride Request;
    /// A field that asks for a personal answer (`X-WP-Nonce`, `X-Requested-With` …).
    PersonalField Request;
    /// A path that the application or `cache_never` excludes.
    NeverCachedPath Request;
    /// A query parameter that the application excludes (`preview`, `add-to-cart` …).
    NeverCachedParameter Request;
    /// The query is too long, or cannot be read as PHP reads it.
    UnreadableQuery Request;
    /// The client sent no valid host.
    NoHost Request;
    /// Programs may read the path differently: `//`, `/./`, an encoded slash, NUL or line end.
    AmbiguousPath Request;
    /// The client accepts JSON alone.
    OtherRepresentation Request;
    /// The request asks to upgrade the connection.
    Upgrade Request;
    /// With `cache = "dry-run"` nothing is served from the cache.
    DryRun Request;
    /// The response sets a cookie.
    SetCookie Response;
    /// `Cache-Control: no-store`
    NoStore Response;
    /// `Cache-Control: private`
    Private Response;
    /// `Cache-Control: no-cache` without a validator.
    NoCache Response;
    /// `X-Accel-Expires: 0`, or a lifetime of zero without a validator.
    NoLifetime Response;
    /// The response was expired on arrival.
    AlreadyStale Response;
    /// Responses with this status are not stored, or not without an explicit lifetime.
    Status Response;
    /// `Vary: *`: no other request matches.
    VaryStar Response;
    /// `Vary` by a field with too many values (`User-Agent`, `Cookie` …).
    VaryUnbounded Response;
    /// Status 206 (RFC 9111 §3.3).
    PartialContent Response;
    /// The response was cut off, or shorter than its length.
    Incomplete Response;
    /// The body exceeds `cache_max_object`, or half of `[cache] memory`.
    TooLarge Response;
    /// The head exceeds the limit of a stored head.
    HeadTooLarge Response;
    /// More tags, or a longer one, than a stored page may have.
    TooManyTags Response;
    /// An event stream, or a response that never ends.
    Streaming Response;
    /// The script named a file to send (`X-Accel-Redirect`, `X-Sendfile`).
    SentFile Response;
    /// A program redirected to another path of this server.
    LocalRedirect Response;
    /// The script did not run, or sent no response.
    RunFailed Response;
    /// The application answered 5xx.
    ServerError Response;
    /// The script ended with a fatal error.
    FatalError Response;
    /// The script opened or read a session.
    SessionOpened Response;
    /// The script defined `DONOTCACHEPAGE`, or sent a plugin's field for it.
    DoNotCachePage Response;
    /// The script wrote to a database.
    DatabaseWrite Response;
    /// The script asked for HTTP authentication.
    AuthenticationAsked Response;
    /// A purge or write happened during the render.
    OutdatedRender Cache;
    /// The last render of this page for the cache could not be stored; it is not tried again yet.
    PassedBefore Cache;
    /// The page can be stored, and is from its next visit on.
    NotYetAdmitted Cache;
    /// The site's last renders could not be stored; others are tried more rarely.
    SiteRarelyStores Cache;
    /// The request that rendered the page took too long or gave up.
    FlightFailed Cache;
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each reason has occurred.
#[derive(Debug)]
pub struct PassCounters(Vec<std::sync::atomic::AtomicU64>);

impl Default for PassCounters {
    fn default() -> Self {
        PassCounters(Pass::ALL.iter().map(|_| Default::default()).collect())
    }
}

impl PassCounters {
    /// Counts one more request or response that the cache passed for this reason.
    pub fn add(&self, pass: Pass) {
        self.0[pass.index()].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    /// Those that happened, by name.
    pub fn sums(&self) -> Vec<(String, u64)> {
        Pass::ALL
            .iter()
            .map(|p| {
                (
                    *p,
                    self.0[p.index()].load(std::sync::atomic::Ordering::Relaxed),
                )
            })
            .filter(|(_, n)| *n > 0)
            .map(|(p, n)| (p.name().to_owned(), n))
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
            assert_eq!(pass.index(), at);
            assert!(pass.meaning().len() > 10, "{pass}");
        }
    }

    #[test]
    fn reasons_are_counted_by_name() {
        let counters = PassCounters::default();
        counters.add(Pass::SetCookie);
        counters.add(Pass::SetCookie);
        assert_eq!(counters.sums(), [("SetCookie".to_owned(), 2)]);
    }
}
