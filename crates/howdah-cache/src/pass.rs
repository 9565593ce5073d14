//! Every reason why a request or a response is not the cache's business, by its one name: the same
//! in the log, the metrics, `Cache-Status`, `howdah cache explain`, the docs and the tests.

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
    /// The request carries a body; a page must not depend on what is not in the key (fat GET).
    RequestBody Request;
    /// The request carries `Authorization` or `Proxy-Authorization` (RFC 9111 §3.5).
    Authorization Request;
    /// A cookie that means a login, a session or a basket.
    SessionCookie Request;
    /// A cookie that is not known to be harmless; name it in `cache_ignore_cookies` if it is.
    UnknownCookie Request;
    /// A cookie whose name cannot be read as PHP reads it.
    UnreadableCookie Request;
    /// A method override (`X-HTTP-Method-Override`, `_method`): the application may take this GET for something else.
    MethodOverride Request;
    /// A field that makes the application answer this client alone (`X-WP-Nonce`, `X-Requested-With` …).
    PersonalField Request;
    /// The path is one the application never wants cached.
    NeverCachedPath Request;
    /// A query parameter the application never wants cached (`preview`, `add-to-cart` …).
    NeverCachedParameter Request;
    /// The query cannot be taken apart as PHP does it, or is too long.
    UnreadableQuery Request;
    /// The client named no host, or one that cannot be one.
    NoHost Request;
    /// The path has what another program may read differently: `//`, `/./`, an encoded slash, NUL or line end.
    AmbiguousPath Request;
    /// The client asks for JSON alone; an application may answer that from the same URL.
    OtherRepresentation Request;
    /// The request asks for an upgrade of the connection.
    Upgrade Request;
    /// The cache is on trial (`cache = "dry-run"`): nothing is served from it.
    DryRun Request;
    /// The response sets a cookie.
    SetCookie Response;
    /// `Cache-Control: no-store`
    NoStore Response;
    /// `Cache-Control: private`
    Private Response;
    /// `Cache-Control: no-cache`, and nothing to validate with.
    NoCache Response;
    /// `X-Accel-Expires: 0`, or a lifetime of zero and nothing to validate with.
    NoLifetime Response;
    /// The response was old when it came.
    AlreadyStale Response;
    /// The status is not one that is stored without an explicit lifetime, or never is.
    Status Response;
    /// `Vary: *`: no other request is like it.
    VaryStar Response;
    /// `Vary` by a field with too many values to keep (`User-Agent`, `Cookie` of a visitor …).
    VaryUnbounded Response;
    /// Status 206: a part is never stored as the whole (RFC 9111 §3.3).
    PartialContent Response;
    /// The response was cut off, or is shorter than it said.
    Incomplete Response;
    /// The body is longer than `cache_max_object`, or than half of `[cache] memory`.
    TooLarge Response;
    /// The head is longer than a stored head may be.
    HeadTooLarge Response;
    /// More tags than are kept with a page, or one too long: a purge by what is left out would miss it.
    TooManyTags Response;
    /// An event stream, or a response that flushes as it goes and never ends.
    Streaming Response;
    /// The script named a file to send (`X-Accel-Redirect`, `X-Sendfile`): files are served faster as files.
    SentFile Response;
    /// A program named another path of this server, whose answer is sent (RFC 3875 §6.2.2).
    LocalRedirect Response;
    /// The run failed: no response, a dead process, a full queue.
    RunFailed Response;
    /// The application answered 5xx.
    ServerError Response;
    /// The script ended by a fatal error.
    FatalError Response;
    /// The script opened or read a session.
    SessionOpened Response;
    /// The script defined `DONOTCACHEPAGE`, or said so by a plugin's field.
    DoNotCachePage Response;
    /// The script wrote to a database.
    DatabaseWrite Response;
    /// The script asked for HTTP authentication.
    AuthenticationAsked Response;
    /// Something was purged or written while the page was rendered: it may be older than that.
    OutdatedRender Cache;
    /// A visitor's answer could have been stored, but not what the page's last render for the cache gave; it is not tried again yet.
    PassedBefore Cache;
    /// The visitor's own answer shows that the page can be stored; it is from the next visit on.
    NotYetAdmitted Cache;
    /// No render for the cache of this site was stored of late; the others are tried ever more rarely.
    SiteRarelyStores Cache;
    /// The one who rendered took too long or gave up.
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
