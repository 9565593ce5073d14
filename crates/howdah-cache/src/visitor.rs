//! Whom a request comes from, for private pages: the cookies that identify a visitor, and a key that contains everything
//! of a request by which its response may differ. Nothing here falls back to the client's address: a request without
//! such a cookie has no private pages.
//!
//! Cookies and headers enter keys only as keyed 128-bit hashes, whose key is random in each process and never leaves it.
//! A client can therefore neither choose values that collide with another visitor's, nor can a value be read from the
//! memory of the store.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use percent_encoding::percent_decode;
use siphasher::sip128::{Hasher128, SipHasher24};

use crate::cookie::{CookiePair, pairs};
use crate::key::PageKey;
use crate::policy::CacheRules;
use crate::policy::private::is_bound_header;

/// The minimum length of a value that can identify a visitor, as in LiteSpeed's server. Shorter values, such as the
/// number of things in a basket, are the same for many visitors.
pub const MIN_VISITOR_VALUE_BYTES: usize = 16;

/// The maximum number of cookies that identify a visitor. Applications have one or two; a request with more identifies
/// nobody.
pub const MAX_VISITOR_COOKIES: usize = 16;

/// Returns whether a response sets or deletes a cookie that identifies a visitor.
pub fn sets_visitor_cookie<'h>(
    rules: &CacheRules,
    mut headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
) -> bool {
    headers.any(|(name, value)| {
        let is_own = |(_, name, _): CookiePair<'_>| match name {
            Ok(name) => rules.is_visitor_cookie(&name),
            // A browser may read the name differently.
            Err(_) => rules.private.is_some(),
        };
        name.eq_ignore_ascii_case(b"set-cookie") && pairs(value).next().is_some_and(is_own)
    })
}

/// The hash of one cookie that identifies a visitor of one site.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct VisitorToken([u8; 16]);

impl fmt::Debug for VisitorToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VisitorToken(…)")
    }
}

/// The cookies of a request that identify its visitor.
#[derive(Clone, Debug, Default)]
pub struct VisitorCookies {
    tokens: Vec<VisitorToken>,
    is_unclear: bool,
}

impl VisitorCookies {
    /// Returns all tokens of the request, however unclear they are: the visitors whom a write may concern.
    pub fn tokens(&self) -> &[VisitorToken] {
        &self.tokens
    }

    /// Returns the tokens if they identify one visitor without doubt: there is at least one such cookie and not more than
    /// [`MAX_VISITOR_COOKIES`], each is spelled as its name in PHP and appears once, and each value is long enough to be
    /// one visitor's alone.
    pub fn identity(&self) -> Option<&[VisitorToken]> {
        (!self.is_unclear && !self.tokens.is_empty()).then_some(&self.tokens)
    }
}

/// A part of a request that PHP sees and that is neither its URL nor a header.
pub type ConnectionFact<'a> = &'a [u8];

/// The secret of a process, by which cookies and headers are hashed.
pub struct VisitorKey(u64, u64);

impl fmt::Debug for VisitorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VisitorKey(…)")
    }
}

impl Default for VisitorKey {
    /// Returns a random key.
    fn default() -> VisitorKey {
        // The keys of a `RandomState` come from the system's generator, and its hash does not reveal them.
        let random = RandomState::new();
        VisitorKey(random.hash_one(0_u8), random.hash_one(1_u8))
    }
}

impl VisitorKey {
    /// Reads the cookies that identify the visitor of a request to the site of this name.
    pub fn cookies<'h>(
        &self,
        site: &str,
        rules: &CacheRules,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) -> VisitorCookies {
        let mut found = VisitorCookies::default();
        let mut names: Vec<Vec<u8>> = Vec::new();
        for (_, line) in headers.filter(|(name, _)| is_cookie(name)) {
            for (raw, name, value) in pairs(line) {
                let Ok(name) = name else {
                    found.is_unclear = true;
                    continue;
                };
                if !rules.is_visitor_cookie(&name) {
                    continue;
                }
                // PHP reads the value of a cookie with php_raw_url_decode.
                let value: Vec<u8> = percent_decode(value).collect();
                found.is_unclear |= *raw != *name || value.len() < MIN_VISITOR_VALUE_BYTES;
                let hash = self.hash([&b"visitor"[..], site.as_bytes(), &name, &value]);
                found.tokens.push(VisitorToken(hash));
                names.push(name.into_owned());
            }
        }
        names.sort_unstable();
        found.is_unclear |=
            names.len() > MAX_VISITOR_COOKIES || names.windows(2).any(|two| two[0] == two[1]);
        found.tokens.sort_unstable_by_key(|token| token.0);
        found.tokens.dedup();
        found
    }

    /// Returns the key of a private page: the URL as it was requested, compared in full, and a hash of everything else
    /// that may determine the response. `visitor` comes from [`VisitorCookies::identity`]; `configuration` is the number
    /// of the configuration, and `facts` are those of the connection, always in the same order.
    pub fn page_key<'h>(
        &self,
        url: &PageKey,
        visitor: &[VisitorToken],
        rules: &CacheRules,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
        (configuration, facts): (u64, &[ConnectionFact<'_>]),
    ) -> Vec<u8> {
        let mut bound: Vec<(Vec<u8>, &[u8])> = Vec::new();
        for (name, value) in headers.filter(|(name, _)| is_bound_header(name)) {
            if !is_cookie(name) {
                bound.push((name.to_ascii_lowercase(), value));
                continue;
            }
            for (raw, name, value) in pairs(value) {
                let is_harmless =
                    |name: &[u8]| rules.ignores_cookie(name) && !rules.is_visitor_cookie(name);
                if name.is_ok_and(|name| is_harmless(&name)) {
                    continue;
                }
                // No header name contains a semicolon.
                bound.push(([b"cookie;", raw].concat(), value));
            }
        }
        // HTTP/2 clients may send the same headers in another order.
        bound.sort_by(|(a, _), (b, _)| a.cmp(b));
        let headers = bound.iter().flat_map(|(name, value)| [&name[..], *value]);
        let tokens = visitor.iter().map(|token| &token.0[..]);
        let all = [&b"page"[..]]
            .into_iter()
            .chain(facts.iter().copied())
            .chain(tokens)
            .chain(headers);
        let hash = self.hash(all);
        [&configuration.to_le_bytes()[..], &hash, url.as_bytes()].concat()
    }

    /// Hashes parts with their lengths, so no two lists of parts are the same text.
    fn hash<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_keys(self.0, self.1);
        for part in parts {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }
}

fn is_cookie(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"cookie")
}

#[cfg(test)]
#[path = "visitor_tests.rs"]
mod tests;
