//! Knowledge about applications: cookies that identify a visitor, paths and parameters that are never cached, requests
//! that write. This is data, read by `policy` and `key`. It is in the applications' files of howdah-apps (`[cache]`).
//!
//! Names are matched after they were read as PHP reads them, and paths as the router reads them: decoded and cleaned.
//! Segments are matched anywhere in the path, so an application in a subfolder is covered as well.

use std::sync::LazyLock;

pub use howdah_apps::cache_profile::{NoiseParameter, NoiseRows, ParameterSource, WritingGet};
pub use howdah_apps::name_pattern::NamePattern;
use howdah_apps::{CacheProfile, known_applications};

use crate::cookie::php_name;

mod known;
mod multipart;

pub use known::{TRACKING_COOKIES, TRACKING_PARAMETERS};

/// The knowledge about an application: [`CacheProfile`] describes the fields.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// The name of the preset, as used in `cache_preset`.
    pub name: &'static str,
    /// Cookies of a login, a session, a basket, a message for one visitor.
    pub session_cookies: &'static [NamePattern],
    /// Cookies whose value only one visitor has, for private pages.
    pub visitor_cookies: &'static [NamePattern],
    /// Cookies that change no page.
    pub harmless_cookies: &'static [NamePattern],
    /// Path segments below which nothing is cached.
    pub never_segments: &'static [&'static str],
    /// Parameters that exclude a request from the cache.
    pub never_parameters: &'static [NamePattern],
    /// GET requests that write.
    pub writing_gets: &'static [WritingGet],
    /// Writes that change no page, identified by parameter and value, in the query or a form.
    pub noise: &'static [NoiseParameter],
    /// Path segments below which a write changes no page.
    pub noise_segments: &'static [&'static str],
    /// Path segments below which a request changes nothing but the database.
    pub database_segments: &'static [&'static str],
    /// Tables of the database from which nothing is rendered.
    pub noise_tables: &'static [&'static str],
    /// Rows of other tables from which nothing is rendered.
    pub noise_rows: &'static [NoiseRows],
    /// Longest lifetime of a page, in seconds, chosen so that nonces in pages do not expire first.
    pub max_ttl: u64,
    /// What an administrator may have to set in the application.
    pub advice: &'static str,
}

/// All presets. The last one, `php`, is for all other applications.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let of_applications = known_applications().iter().filter_map(|known| {
        let profile = known.profile.cache.as_ref()?;
        Some(Preset::of_profile(known.name, profile))
    });
    of_applications.chain([known::FALLBACK]).collect()
});

/// The form in a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormBody<'a> {
    /// The request has no body.
    Absent,
    /// `application/x-www-form-urlencoded`.
    UrlEncoded(&'a [u8]),
    /// `multipart/form-data`.
    Multipart {
        /// The boundary that the request's `Content-Type` names.
        boundary: &'a [u8],
        /// The whole body, from the first boundary to the last.
        text: &'a [u8],
    },
    /// A body that was not inspected.
    NotInspected,
}

/// Returns whether a request has the parameter with one of the values.
fn has_noise_parameter(noise: &NoiseParameter, query: &[u8], form: FormBody<'_>) -> bool {
    let in_query = || last_value(noise.name, query);
    let in_form = match (noise.source, form) {
        (ParameterSource::Query, _) | (ParameterSource::Request, FormBody::Absent) => Some(None),
        (ParameterSource::Request, FormBody::NotInspected) => None,
        (ParameterSource::Request, FormBody::UrlEncoded(text)) => last_value(noise.name, text),
        (ParameterSource::Request, FormBody::Multipart { boundary, text }) => {
            multipart::last_value(noise.name, boundary, text)
        }
    };
    let value = match in_form {
        Some(None) => in_query(),
        said => said,
    };
    let is_listed = |value: &[u8]| {
        let mut values = noise.values.iter();
        values.any(|v| *v == "*" || v.as_bytes() == value)
    };
    matches!(value, Some(Some(value)) if is_listed(value))
}

/// Returns the value of a parameter as PHP reads the text, in which the last one counts. The outer `None` means that
/// the name is spelled in a different way, and that PHP's interpretation of it is not examined.
fn last_value<'t>(parameter: &str, text: &'t [u8]) -> Option<Option<&'t [u8]>> {
    let mut last = None;
    for pair in text.split(|b| *b == b'&') {
        let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        if php_name(&pair[..end]).ok()? == parameter.as_bytes() {
            if pair[..end] != *parameter.as_bytes() {
                // A name such as `action[]` or `%61ction` makes an array, or is an attempted trick.
                return None;
            }
            last = Some(pair.get(end + 1..).unwrap_or_default());
        }
    }
    Some(last)
}

impl Preset {
    fn of_profile(name: &'static str, profile: &'static CacheProfile) -> Preset {
        Preset {
            name,
            session_cookies: &profile.session_cookies,
            visitor_cookies: &profile.visitor_cookies,
            harmless_cookies: &profile.harmless_cookies,
            never_segments: &profile.never_segments,
            never_parameters: &profile.never_parameters,
            writing_gets: &profile.writing_gets,
            noise: &profile.noise_requests,
            noise_segments: &profile.noise_segments,
            database_segments: &profile.database_segments,
            noise_tables: &profile.noise_tables,
            noise_rows: &profile.noise_rows,
            max_ttl: profile.max_ttl,
            advice: profile.advice,
        }
    }

    /// Returns the preset with this name, if there is one.
    pub fn find(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name == name)
    }

    /// Returns the preset for all other applications.
    pub fn fallback() -> &'static Preset {
        &known::FALLBACK
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
                let here = match noise.segment {
                    "" => !names_script(path),
                    segment => has_segment(path, &[segment]),
                };
                here && has_noise_parameter(noise, query, form)
            })
    }

    /// Returns whether a request changes nothing but the database, so that it changes a page only with a database write
    /// that the cache sees, if the cache sees them.
    pub fn changes_only_database(&self, path: &[u8]) -> bool {
        has_segment(path, self.database_segments)
    }

    /// Returns whether a GET request writes nevertheless.
    pub fn get_writes(&self, path: &[u8], query: Option<&[u8]>) -> bool {
        let Some(query) = query else { return false };
        self.writing_gets.iter().any(|writing| {
            has_segment(path, &[writing.segment])
                && query.split(|b| *b == b'&').any(|pair| {
                    let end = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
                    // A name that cannot be read might be one of the parameters.
                    php_name(&pair[..end]).map_or(true, |name| {
                        let parameters = &mut writing.parameters.iter();
                        parameters.any(|p| p.as_bytes() == &*name)
                    })
                })
        })
    }
}

/// Returns whether a path contains one of the segments, or of the sequences of segments (`wc/store`).
fn has_segment(path: &[u8], segments: &[&str]) -> bool {
    let begins_with = |rest: &[u8], segment: &str| {
        let (start, behind) = (rest.get(..segment.len()), rest.get(segment.len()));
        start.is_some_and(|start| start.eq_ignore_ascii_case(segment.as_bytes()))
            && behind.is_none_or(|byte| *byte == b'/')
    };
    !segments.is_empty()
        && (0..path.len())
            .filter(|at| *at == 0 || path[at - 1] == b'/')
            .any(|at| segments.iter().any(|s| begins_with(&path[at..], s)))
}

/// Returns whether a path names a script other than the front controller, such as `wp-comments-post.php`. Such a script
/// does not read the parameters of the front controller's pages.
fn names_script(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|segment| {
        let end = segment.len().saturating_sub(b".php".len());
        segment[end..].eq_ignore_ascii_case(b".php") && segment != b"index.php"
    })
}

#[cfg(test)]
#[path = "preset_tests.rs"]
mod tests;
