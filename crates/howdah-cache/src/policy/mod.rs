//! The rules: which requests may be answered from the cache, which responses may be stored, how long
//! they are fresh. RFC 9111 as a shared cache reads it; where this is stricter, the [`Pass`]'s name
//! says why. Touches no store and no clock.
//!
//! - [`request`]: before the lookup; [`response`]: before storing, makes a [`Storable`].
//! - [`freshness`]: of what is stored, at a given time.

mod facts;
pub mod freshness;
mod lifetime;
mod litespeed;
pub mod request;
pub mod response;

use crate::preset::{NamePattern, Preset, TRACKING_COOKIES};

pub use freshness::{Freshness, PageState};
pub use request::RequestGate;
pub use response::{ResponseFacts, Storable};

/// What is rendered for the cache, and by whose request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// `cache = on`: pages are rendered for an anonymous request the server makes, so that nothing of
    /// a visitor can be in them. What says nothing of its lifetime is kept for `cache_ttl`.
    #[default]
    CleanRoom,
    /// `cache = rfc`: an HTTP cache as RFC 9111 has it: a visitor's own answer is stored if, and as
    /// long as, the application explicitly allows it. For applications that declare `Vary` truly.
    Rfc,
}

/// Longest time in seconds that any page is kept, whatever its headers say: a mistake in a header ends
/// within a day.
pub const MAX_TTL: u64 = 86_400;

/// What a site has configured for its page cache.
#[derive(Clone, Debug)]
pub struct Rules {
    /// `cache`: whether and by which rules pages are stored.
    pub scheme: Scheme,
    /// `cache_preset`: what is known of the site's application.
    pub preset: &'static Preset,
    /// `cache_ttl`: seconds for a page that does not say.
    pub ttl: u64,
    /// `cache_grace`: seconds a page is served beyond its lifetime while a new one is rendered.
    pub grace: u64,
    /// `cache_stale_if_error`: seconds a page is served beyond its lifetime when PHP fails.
    pub stale_if_error: u64,
    /// The longest body that is stored; the cache derives it from `[cache] memory`.
    pub max_object: u64,
    /// `cache_ignore_cookies`: harmless ones, `*` at the end for all that begin so.
    pub ignore_cookies: Vec<String>,
    /// `cache_ignore_query`: parameters left out beside the tracking ones.
    pub ignore_query: Vec<String>,
    /// `cache_never`: beginnings of paths never cached, decoded.
    pub never: Vec<Vec<u8>>,
    /// `cache_keep_tags`: clients get the fields that carry tags.
    pub keep_tags: bool,
}

impl Rules {
    /// Whether the preset or `cache_never` keeps pages of a path, decoded and cleaned, from the cache.
    pub fn never_caches(&self, path: &[u8]) -> bool {
        self.preset.never_path(path) || self.never.iter().any(|prefix| path.starts_with(prefix))
    }
}

impl Default for Rules {
    /// The blank form that the options of a site fill in.
    fn default() -> Self {
        Rules {
            scheme: Scheme::default(),
            preset: Preset::plain(),
            ttl: 0,
            grace: 0,
            stale_if_error: 0,
            max_object: 0,
            ignore_cookies: Vec::new(),
            ignore_query: Vec::new(),
            never: Vec::new(),
            keep_tags: false,
        }
    }
}

impl Rules {
    /// Values for tests, which have no options.
    #[doc(hidden)]
    pub fn for_tests() -> Rules {
        Rules {
            ttl: 120,
            grace: 10,
            stale_if_error: 3600,
            max_object: 8 << 20,
            ..Rules::default()
        }
    }
}

impl Rules {
    /// Whether a cookie of this name, read as PHP reads it, changes no page.
    pub fn ignores_cookie(&self, name: &[u8]) -> bool {
        let among = |list: &[NamePattern]| list.iter().any(|known| known.matches(name));
        let ignored = |pattern: &String| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => *name == *pattern.as_bytes(),
        };
        among(TRACKING_COOKIES)
            || among(self.preset.harmless_cookies)
            || self.ignore_cookies.iter().any(ignored)
    }

    /// The longest lifetime: the site's or the application's.
    pub fn longest(&self) -> u64 {
        match self.scheme {
            Scheme::CleanRoom => MAX_TTL.min(self.preset.max_ttl),
            Scheme::Rfc => MAX_TTL,
        }
    }
}
