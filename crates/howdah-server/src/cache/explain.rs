//! `howdah cache explain`: describes what would happen to an anonymous request, on this server and on the other members
//! of its fleet.

use std::fmt::Write as _;

use howdah_cache::admission::AdmissionStep;
use howdah_cache::key::PageKey;
use howdah_cache::policy::PageState;
use howdah_cache::vary;
use howdah_cache::{Object, Pass};
use howdah_http::message::RequestHead;

use serde::Serialize;

use super::fleet::FleetExplanation;
use super::lookup::{self, Lookup, Variant};
use super::{PageCache, SiteCache, now, private_page, subrequest};
use howdah_site::client_address::Client;
use howdah_site::site::{Site, Sites};

/// A description of what happens to a request.
#[derive(Debug, Serialize)]
pub(super) struct CacheExplanation {
    /// The site's name.
    pub site: String,
    /// The preset of the site's page cache; `None` if the cache is off.
    pub preset: Option<&'static str>,
    /// What happens on this server, one fact per line.
    pub lines: Vec<String>,
    /// What happens on the other members, which are asked only if the page cache is on here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetExplanation>,
}

/// Explains what happens to a request for `url`, a path or a whole URL, with these header lines.
pub(super) fn explain(
    all_sites: &Sites,
    cache: &PageCache,
    url: &str,
    fields: &[String],
    json: bool,
) -> Result<String, String> {
    let mut explanation = explain_here(all_sites, cache, url, fields)?;
    if explanation.preset.is_some() {
        explanation.fleet = cache.explain_on_fleet(url, fields);
    }
    if json {
        return serde_json::to_string_pretty(&explanation).map_err(|error| error.to_string());
    }
    let CacheExplanation {
        site,
        preset,
        lines,
        fleet,
    } = explanation;
    let Some(preset) = preset else {
        return Ok(format!("site {site}: the page cache is off\n"));
    };
    let mut out = format!("site {site}, preset {preset}\n");
    if let Some(fleet) = &fleet {
        fleet.write_leases(&mut out);
    }
    for line in lines {
        out += &line;
        out.push('\n');
    }
    if let Some(fleet) = &fleet {
        fleet.write_answers(&mut out);
    }
    Ok(out)
}

/// Explains what happens on this server.
pub(super) fn explain_here(
    all_sites: &Sites,
    cache: &PageCache,
    url: &str,
    fields: &[String],
) -> Result<CacheExplanation, String> {
    let (https, host, path) = split_url(url)?;
    let host = host.unwrap_or("localhost");
    let mut text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n");
    for field in fields {
        let _ = write!(text, "{field}\r\n");
    }
    text.push_str("\r\n");
    let request = subrequest::parse_head(text.as_bytes())
        .ok_or_else(|| format!("BadUrl: `{url}` with these headers is not a valid request"))?;
    let (site, _) = all_sites.find_for_url(https, host.as_bytes());
    let explanation = |preset, text: &str| CacheExplanation {
        site: site.config().name.clone(),
        preset,
        lines: text.lines().map(str::to_owned).collect(),
        fleet: None,
    };
    let Some(part) = cache.site(site) else {
        return Ok(explanation(None, ""));
    };
    let client = Client {
        address: None,
        port: None,
        https,
        tls: None,
        host: None,
        proxied: false,
    };
    let mut out = String::new();
    let writes_matter = match lookup::look_up(cache, part, site, &request, &client, false) {
        Lookup::Pass { why, cookie } => {
            let _ = writeln!(out, "bypasses the cache: {why}: {}", why.meaning());
            if let Some(cookie) = cookie {
                let _ = writeln!(out, "  because of the cookie `{}`", cookie.escape_ascii());
            }
            false
        }
        Lookup::Page { page, state, .. } => {
            describe_stored(&mut out, &page, state);
            true
        }
        Lookup::None(key) => describe_missing(&mut out, cache, part, &key, &request),
    };
    describe_private(&mut out, cache, part, site, &request, &client);
    if writes_matter {
        for write in part.reasons.writes() {
            let _ = writeln!(
                out,
                "pages were invalidated by {} ({} times, most recently {} s ago)",
                write.text,
                write.times,
                now().saturating_sub(write.at) / 1000
            );
        }
    }
    Ok(explanation(Some(part.rules().preset.name), &out))
}

/// Returns a URL's scheme, host and path; a path has neither scheme nor host.
pub(crate) fn split_url(url: &str) -> Result<(bool, Option<&str>, &str), String> {
    if url.starts_with('/') {
        return Ok((false, None, url));
    }
    let (https, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => {
            return Err(format!(
                "BadUrl: `{url}` is neither a path (`/…`) nor a URL (`http://host/…`)"
            ));
        }
    };
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    Ok((https, Some(host), path))
}

fn describe_stored(out: &mut String, page: &Object, state: PageState) {
    let at = now();
    let state = match state {
        PageState::Fresh => "fresh",
        PageState::Grace => "expired, served while a new page is rendered",
        PageState::IfError => "expired, served only if PHP fails",
        PageState::Stale => "expired, kept only for revalidation",
    };
    let _ = writeln!(
        out,
        "stored: {state}; status {}, {} bytes, {} s old, time to live {} s",
        page.status,
        page.body.len(),
        page.freshness.age(at) / 1000,
        page.freshness.ttl(at).div_euclid(1000)
    );
    for tag in &page.tags {
        let _ = writeln!(out, "tag: {}", tag.escape_ascii());
    }
}

/// Describes the visitor's own pages, in a site that stores such pages. The request of an explanation has neither the
/// visitor's address nor the browser's headers, so all stored pages of the visitor with this URL are described.
fn describe_private(
    out: &mut String,
    cache: &PageCache,
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
) {
    if part.rules().private.is_none() {
        return;
    }
    let url = match lookup::private_url(part, site, request, client) {
        Ok(url) => url,
        Err(why) => {
            let _ = writeln!(out, "no private page: {why}: {}", why.meaning());
            return;
        }
    };
    let visitor = private_page::visitor_of(cache, part, site, request);
    let Some(visitor) = visitor.identity() else {
        let why = Pass::VisitorUnidentified;
        let _ = writeln!(out, "no private page: {why}: {}", why.meaning());
        return;
    };
    let pages = cache.private.store.pages_of(visitor);
    let _ = writeln!(out, "this visitor has {} private pages", pages.len());
    let url_key = url.key.as_bytes();
    for page in pages.iter().filter(|page| page.url_key == url_key) {
        if let Some(state) = page.state(&part.generations, now()) {
            out.push_str("private page ");
            describe_stored(out, page, state);
        }
    }
    let key = private_page::reason_key(url_key);
    if let Some(last) = part.reasons.last_unstored(&key) {
        let ago = now().saturating_sub(last.at) / 1000;
        let (pass, meaning) = (last.pass, last.pass.meaning());
        let _ = writeln!(
            out,
            "a response was not stored as a private page {ago} s ago, because of {pass}: {meaning}"
        );
        if !last.text.is_empty() {
            let _ = writeln!(out, "  {}", last.text);
        }
    }
}

/// Describes a page that is not stored. Returns whether the writes that invalidate pages matter: they do not while the
/// page could not be stored for another reason.
fn describe_missing(
    out: &mut String,
    cache: &PageCache,
    part: &SiteCache,
    key: &PageKey,
    request: &RequestHead,
) -> bool {
    let _ = writeln!(
        out,
        "not stored; PHP would see the URL {}",
        key.target().escape_ascii()
    );
    let variant = lookup::selected_variant(cache, key, request);
    let last = variant
        .ok()
        .and_then(|variant| describe_prospects(out, cache, part, &variant));
    if let Some(variants) = cache.memory.variants(key.as_bytes()) {
        for name in variants.names() {
            let what = match vary::cookie_of(name) {
                Some(cookie) => format!("the cookie {}", cookie.escape_ascii()),
                None if vary::is_mobile_name(name) => "mobile and other browsers".to_owned(),
                None => format!("the header {}", name.escape_ascii()),
            };
            let _ = writeln!(out, "the page varies by {what}");
        }
    }
    last.is_none_or(|pass| matches!(pass, Pass::DatabaseWrite | Pass::OutdatedRender))
}

/// Describes where a page that is not in memory may come from. Returns why the page was last not stored.
fn describe_prospects(
    out: &mut String,
    cache: &PageCache,
    part: &SiteCache,
    variant: &Variant,
) -> Option<Pass> {
    if cache.memory.may_be_on_disk(&variant.key, now()) {
        out.push_str("the page may be stored on disk; only a request checks the disk\n");
    }
    if cache.coalescer.is_rendering(&variant.key) {
        out.push_str("the page is being rendered\n");
    }
    let last = part.reasons.last_unstored(&variant.key);
    if let Some(last) = &last {
        let ago = now().saturating_sub(last.at) / 1000;
        let (pass, meaning) = (last.pass, last.pass.meaning());
        let _ = writeln!(out, "not stored {ago} s ago, because of {pass}: {meaning}");
        if !last.text.is_empty() {
            let _ = writeln!(out, "  {}", last.text);
        }
    }
    let admission = &cache.admission;
    out.push_str(
        match admission.decide(&variant.key, part.epoch(), now(), None) {
            AdmissionStep::Render => "the page is rendered for the cache when it is next requested\n",
            AdmissionStep::Observe => "the response to the next GET request shows whether the page can be stored\n",
            AdmissionStep::Pass(Pass::PassedBefore) => "it is too early to render the page for the cache again\n",
            AdmissionStep::Pass(_) => "the page is not rendered for the cache until the response to a GET request can be stored\n",
        },
    );
    last.map(|last| last.pass)
}
