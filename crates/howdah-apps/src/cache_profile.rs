//! What the page cache needs to know about an application: the table `[cache]` of its file. The entries come from the
//! applications themselves (their core code and Varnish files) and from widely used caches (Batcache, LiteSpeed,
//! Cloudflare APO, Wikimedia's Varnish). `preset_tests` of howdah-cache names the file or function for each entry.
//!
//! A write is noise if it changes no page, such as the bookkeeping that applications do on ordinary visits. Without the
//! lists of noise, every visit that an application counts would invalidate the whole site. A write to the database is
//! noise only if its table, or every row that it is known to touch, is listed; an unknown write is not noise. A table
//! or row that names no source comes from the application's database schema. A table whose content appears on any page
//! is not listed, however rarely that page is read.

use serde::Deserialize;

use crate::NamePattern;

/// The default of `max_ttl`: a day, in seconds.
pub const DEFAULT_MAX_TTL_SECONDS: u64 = 86_400;

/// What the page cache needs to know about an application.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheProfile {
    /// Cookies of a login, a session, a basket, a message for one visitor.
    pub session_cookies: Vec<NamePattern>,
    /// Cookies whose value only one visitor has, by which private pages are stored (`[site.private]`).
    #[serde(default)]
    pub visitor_cookies: Vec<NamePattern>,
    /// Cookies that change no page.
    #[serde(default)]
    pub harmless_cookies: Vec<NamePattern>,
    /// Path segments below which nothing is cached.
    #[serde(default)]
    pub never_segments: Vec<&'static str>,
    /// Parameters that exclude a request from the cache.
    #[serde(default)]
    pub never_parameters: Vec<NamePattern>,
    /// GET requests that write.
    #[serde(rename = "writing_get", default)]
    pub writing_gets: Vec<WritingGet>,
    /// Requests that would count as writes but change no page, identified by a parameter.
    #[serde(rename = "noise_request", default)]
    pub noise_requests: Vec<NoiseParameter>,
    /// Path segments below which a write changes no page. An entry may consist of several segments: `wc/store/cart`.
    #[serde(default)]
    pub noise_segments: Vec<&'static str>,
    /// Path segments below which a request changes nothing but the database. Where the cache sees database writes, only
    /// these count.
    #[serde(default)]
    pub database_segments: Vec<&'static str>,
    /// Database tables whose content appears on no page. Their names have the prefix of an installation, so most
    /// patterns begin with `*`.
    #[serde(default)]
    pub noise_tables: Vec<&'static str>,
    /// Rows that appear on no page, in tables whose other rows do.
    #[serde(default)]
    pub noise_rows: Vec<NoiseRows>,
    /// The longest lifetime of a page, in seconds, chosen so that nonces in pages do not expire first.
    #[serde(default = "default_max_ttl")]
    pub max_ttl: u64,
    /// Advice on what an administrator may have to set in the application.
    #[serde(default)]
    pub advice: &'static str,
}

fn default_max_ttl() -> u64 {
    DEFAULT_MAX_TTL_SECONDS
}

/// GET requests below a path segment, which write if they have one of these parameters.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WritingGet {
    /// The segment of the path.
    pub segment: &'static str,
    /// The names of the parameters.
    pub parameters: Vec<&'static str>,
}

/// A write that changes no page, identified by a parameter in the query or a form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseParameter {
    /// The path segment below which the request must be. If it is empty, the request may have any path that does not
    /// name a script other than `index.php`.
    #[serde(default)]
    pub segment: &'static str,
    /// The parameter's name.
    #[serde(rename = "parameter")]
    pub name: &'static str,
    /// Where the application reads the parameter.
    pub source: ParameterSource,
    /// The values of the parameter with which the request changes no page; `*` stands for every value.
    pub values: Vec<&'static str>,
}

/// Where an application reads a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterSource {
    /// In `$_GET`, the query's parameters.
    Query,
    /// In `$_REQUEST`, where the form's parameter takes precedence over the query's.
    Request,
}

/// Rows that appear on no page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseRows {
    /// A pattern for the table's name.
    pub table: &'static str,
    /// The column that identifies the rows.
    pub column: &'static str,
    /// Patterns for the values of that column.
    pub values: Vec<&'static str>,
}
