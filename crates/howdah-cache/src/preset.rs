//! Knowledge about applications: cookies that identify a visitor, paths and parameters that are never cached, requests
//! that write. This is data, read by `policy` and `key`. Its sources are the applications' own (core code, their
//! Varnish files) and the lists of the caches that serve most of them (Batcache, LiteSpeed, Cloudflare APO, Wikimedia's
//! Varnish); `preset_tests` names the file or function for each.
//!
//! Names are matched after they were read as PHP reads them, and paths as the router reads them: decoded and cleaned.
//! Segments are matched anywhere in the path, so an application in a subfolder is covered as well.

use crate::cookie::php_name;

mod known;

pub use known::{PRESETS, TRACKING_COOKIES, TRACKING_PARAMETERS};

/// A pattern for names of cookies and parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePattern {
    /// Exactly this name.
    Exact(&'static str),
    /// All names with this prefix.
    Prefix(&'static str),
    /// All names with this suffix.
    Suffix(&'static str),
    /// This prefix followed by 32 hexadecimal digits: how Joomla, Drupal and WordPress name cookies per site.
    HexAfter(&'static str),
    /// This prefix followed by capital letters and digits: the number of an account (`_ga_1ABC2DEF3G`). It does not
    /// match `_gallery_session`, which is an application's cookie.
    AccountAfter(&'static str),
}

impl NamePattern {
    /// Returns whether the pattern matches `name`.
    pub fn matches(self, name: &[u8]) -> bool {
        match self {
            NamePattern::Exact(is) => name == is.as_bytes(),
            NamePattern::Prefix(start) => name.starts_with(start.as_bytes()),
            NamePattern::Suffix(end) => name.ends_with(end.as_bytes()),
            NamePattern::HexAfter(start) => name
                .strip_prefix(start.as_bytes())
                .is_some_and(|rest| rest.len() == 32 && rest.iter().all(u8::is_ascii_hexdigit)),
            NamePattern::AccountAfter(start) => {
                name.strip_prefix(start.as_bytes()).is_some_and(|rest| {
                    let capital = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit();
                    !rest.is_empty() && rest.iter().all(capital)
                })
            }
        }
    }
}

/// The knowledge about an application.
#[derive(Debug)]
pub struct Preset {
    /// The name of the preset, as used in `cache_preset`.
    pub name: &'static str,
    /// Cookies of a login, a session, a basket, a message for one visitor.
    pub session_cookies: &'static [NamePattern],
    /// Cookies that change no page.
    pub harmless_cookies: &'static [NamePattern],
    /// Path segments below which nothing is cached.
    pub never_segments: &'static [&'static str],
    /// Parameters that exclude a request from the cache.
    pub never_parameters: &'static [NamePattern],
    /// GET requests below this segment write if they have one of these parameters.
    pub writing_gets: &'static [(&'static str, &'static [&'static str])],
    /// Writes that change no page, identified by parameter and value, in the query or a form.
    pub noise: &'static [NoiseParameter],
    /// Path segments below which a write changes no page.
    pub noise_segments: &'static [&'static str],
    /// Longest lifetime of a page, in seconds, chosen so that nonces in pages do not expire first.
    pub max_ttl: u64,
    /// What an administrator may have to set in the application.
    pub advice: &'static str,
}

/// A write that changes no page, identified by a parameter.
#[derive(Debug)]
pub struct NoiseParameter {
    /// Only below this segment of the path; empty: anywhere.
    pub segment: &'static str,
    /// The parameter's name.
    pub name: &'static str,
    /// Where the application reads it.
    pub source: ParameterSource,
    /// The values with which the request changes no page.
    pub values: &'static [&'static str],
}

/// Where an application reads a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterSource {
    /// In `$_GET`, the query's parameters.
    Query,
    /// In `$_REQUEST`, where the form's parameter takes precedence over the query's.
    Request,
}

/// The form in a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormBody<'a> {
    /// The request has no body.
    Absent,
    /// `application/x-www-form-urlencoded`.
    UrlEncoded(&'a [u8]),
    /// A body that was not inspected.
    NotInspected,
}

impl NoiseParameter {
    fn matches(&self, query: &[u8], form: FormBody<'_>) -> bool {
        let value = match (self.source, form) {
            (ParameterSource::Query, _) | (ParameterSource::Request, FormBody::Absent) => {
                self.last_value(query)
            }
            (ParameterSource::Request, FormBody::NotInspected) => return false,
            (ParameterSource::Request, FormBody::UrlEncoded(text)) => match self.last_value(text) {
                Some(None) => self.last_value(query),
                said => said,
            },
        };
        matches!(value, Some(Some(value)) if self.values.iter().any(|v| v.as_bytes() == value))
    }

    /// Returns the value of the parameter as PHP reads the text, in which the last one counts. The outer `None` means
    /// that the name is spelled in a different way, and that PHP's interpretation of it is not examined.
    fn last_value<'t>(&self, text: &'t [u8]) -> Option<Option<&'t [u8]>> {
        let mut last = None;
        for pair in text.split(|b| *b == b'&') {
            let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
            if php_name(&pair[..end]).ok()? == self.name.as_bytes() {
                if pair[..end] != *self.name.as_bytes() {
                    // `action[]`, `%61ction`: an array, or an attempted trick.
                    return None;
                }
                last = Some(pair.get(end + 1..).unwrap_or_default());
            }
        }
        Some(last)
    }
}

impl Preset {
    /// Returns the preset with this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns the preset for all other applications.
    pub fn fallback() -> &'static Preset {
        &PRESETS[PRESETS.len() - 1]
    }

    /// Returns whether the application excludes this path from caching.
    pub fn excludes_path(&self, path: &[u8]) -> bool {
        has_segment(path, self.never_segments)
    }

    /// Returns whether a request that would count as a write (any method but GET, HEAD, OPTIONS, TRACE) changes no
    /// page.
    pub fn is_noise(&self, path: &[u8], query: Option<&[u8]>, form: FormBody<'_>) -> bool {
        let query = query.unwrap_or_default();
        has_segment(path, self.noise_segments)
            || self.noise.iter().any(|noise| {
                let here = noise.segment.is_empty() || has_segment(path, &[noise.segment]);
                here && noise.matches(query, form)
            })
    }

    /// Returns whether a GET request writes nevertheless.
    pub fn get_writes(&self, path: &[u8], query: Option<&[u8]>) -> bool {
        let Some(query) = query else { return false };
        self.writing_gets.iter().any(|(segment, parameters)| {
            has_segment(path, &[segment])
                && query.split(|b| *b == b'&').any(|pair| {
                    let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
                    // A name that cannot be read might be one of them.
                    php_name(&pair[..end]).map_or(true, |name| {
                        parameters.iter().any(|p| p.as_bytes() == &*name)
                    })
                })
        })
    }
}

fn has_segment(path: &[u8], segments: &[&str]) -> bool {
    !segments.is_empty()
        && path.split(|b| *b == b'/').any(|part| {
            segments
                .iter()
                .any(|segment| part.eq_ignore_ascii_case(segment.as_bytes()))
        })
}

#[cfg(test)]
#[path = "preset_tests.rs"]
mod tests;
