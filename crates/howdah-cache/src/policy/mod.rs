//! The rules: which requests may be answered from the cache, which responses may be stored, and how long they are
//! fresh. They follow RFC 9111 for a shared cache; where they are stricter, the name of the [`Pass`] says why. This
//! module uses no store and no clock.
//!
//! - [`request`]: the decision before the lookup; [`response`]: the decision before storing, which creates a
//!   [`Storable`].
//! - [`private`]: the decision before storing a response for its own visitor alone.
//! - [`freshness`]: the freshness of a stored response at a given time.

mod facts;
pub mod freshness;
mod lifetime;
mod litespeed;
pub mod private;
pub mod request;
pub mod response;

use crate::cookie::matches_pattern;
use crate::esi::EsiRules;
use crate::preset::{NamePattern, Preset, TRACKING_COOKIES};
use crate::vary::VaryRules;

pub use freshness::{Freshness, PageState};
pub use request::RequestGate;
pub use response::{ResponseFacts, Storable};

/// How pages get into the cache: what is rendered, and for which request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScheme {
    /// `cache = on`: pages are rendered for an anonymous request that the server makes, so they cannot contain anything
    /// of a visitor. A page that does not specify a lifetime is kept for `cache_ttl`.
    #[default]
    CleanRoom,
    /// `cache = rfc`: an HTTP cache as in RFC 9111: the response to a visitor is stored if, and for as long as, the
    /// application explicitly allows it. For applications that declare `Vary` correctly.
    Rfc,
}

/// Maximum time in seconds for which any page is kept, whatever its headers say. The effect of a wrong header ends
/// within a day.
pub const MAX_TTL_SECONDS: u64 = 86_400;

/// A site's configuration of its page cache.
#[derive(Clone, Debug)]
pub struct CacheRules {
    /// `cache`: whether and by which rules pages are stored.
    pub scheme: CacheScheme,
    /// `cache_preset`: the knowledge about the site's application.
    pub preset: &'static Preset,
    /// `cache_ttl`: seconds for a page that specifies no lifetime.
    pub ttl: u64,
    /// `cache_grace`: seconds for which a page is served beyond its lifetime while a new one is rendered.
    pub grace: u64,
    /// `cache_stale_if_error`: seconds for which a page is served beyond its lifetime when PHP fails.
    pub stale_if_error: u64,
    /// Maximum length of a body that is stored, in bytes, which the cache derives from `[cache] memory`.
    pub max_object: u64,
    /// `cache_ignore_cookies`: names of harmless cookies; a `*` at the end matches any ending.
    pub ignore_cookies: Vec<String>,
    /// What shared pages vary by, besides what they say in `Vary`.
    pub vary: VaryRules,
    /// `cache_ignore_query`: parameters that are omitted from the key in addition to the tracking ones.
    pub ignore_query: Vec<String>,
    /// `cache_never`: prefixes of paths that are never cached, decoded.
    pub never: Vec<Vec<u8>>,
    /// `cache_keep_tags`: clients also get the headers that carry tags.
    pub keep_tags: bool,
    /// `[site.esi]`: which fragments pages may include; `None` if no tags are processed.
    pub esi: Option<EsiRules>,
    /// `[site.private]`: how visitors are identified for private pages; `None` if no private page is stored.
    pub private: Option<PrivateRules>,
}

/// `[site.private]`: the cookies that identify a visitor.
#[derive(Clone, Debug, Default)]
pub struct PrivateRules {
    /// `cookies`: names of cookies; a `*` at the end matches any ending. If there are none, the preset's count.
    pub cookies: Vec<String>,
}

impl CacheRules {
    /// Returns whether the preset or `cache_never` excludes a path, decoded and cleaned, from the cache.
    pub fn never_caches(&self, path: &[u8]) -> bool {
        self.preset.excludes_path(path) || self.never.iter().any(|prefix| path.starts_with(prefix))
    }
}

impl Default for CacheRules {
    /// Returns the blank values, which the options of a site replace.
    fn default() -> Self {
        CacheRules {
            scheme: CacheScheme::default(),
            preset: Preset::fallback(),
            ttl: 0,
            grace: 0,
            stale_if_error: 0,
            max_object: 0,
            ignore_cookies: Vec::new(),
            vary: VaryRules::default(),
            ignore_query: Vec::new(),
            never: Vec::new(),
            keep_tags: false,
            esi: None,
            private: None,
        }
    }
}

impl CacheRules {
    /// Returns values for tests, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> CacheRules {
        CacheRules {
            ttl: 120,
            grace: 10,
            stale_if_error: 3600,
            max_object: 8 << 20,
            ..CacheRules::default()
        }
    }
}

impl CacheRules {
    /// Returns whether a cookie of this name, read as PHP reads it, changes no page.
    pub fn ignores_cookie(&self, name: &[u8]) -> bool {
        let among = |list: &[NamePattern]| list.iter().any(|known| known.matches(name));
        let ignored = |pattern: &String| matches_pattern(pattern, name);
        among(TRACKING_COOKIES)
            || among(self.preset.harmless_cookies)
            || self.ignore_cookies.iter().any(ignored)
    }

    /// Returns whether scripts find a LiteSpeed cache with ESI: the site allows the URLs of the plugin's fragments,
    /// stores private pages, and renders shared pages without the data of any visitor.
    pub fn has_litespeed_esi(&self) -> bool {
        let esi = self.esi.as_ref();
        self.scheme == CacheScheme::CleanRoom
            && self.private.is_some()
            && esi.is_some_and(EsiRules::has_litespeed_fragments)
    }

    /// Returns whether only fragments of pages read a cookie of this name, so no page depends on it.
    pub fn is_cookie_of_fragments(&self, name: &[u8]) -> bool {
        let esi = self.esi.as_ref();
        esi.is_some_and(|esi| esi.is_cookie_of_fragments(name))
    }

    /// Returns whether a cookie of this name, read as PHP reads it, identifies a visitor who has private pages.
    pub fn is_visitor_cookie(&self, name: &[u8]) -> bool {
        let Some(private) = &self.private else {
            return false;
        };
        match &private.cookies[..] {
            [] => {
                let mut known = self.preset.visitor_cookies.iter();
                known.any(|pattern| pattern.matches(name))
            }
            own => own.iter().any(|pattern| matches_pattern(pattern, name)),
        }
    }

    /// Returns the longest lifetime in seconds: the site's or the application's.
    pub fn max_lifetime(&self) -> u64 {
        match self.scheme {
            CacheScheme::CleanRoom => MAX_TTL_SECONDS.min(self.preset.max_ttl),
            CacheScheme::Rfc => MAX_TTL_SECONDS,
        }
    }
}
