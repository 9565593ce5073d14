//! Decides, before a script runs, whether a request may be served from the cache and under which key, and looks up the
//! page. This module does not change the request, and it sends and renders nothing.

use std::cell::RefCell;
use std::sync::Arc;

use howdah_cache::key::{PageKey, QueryRules, Url};
use howdah_cache::policy::{CacheScheme, PageState, RequestGate};
use howdah_cache::store::PageLookup;
use howdah_cache::vary;
use howdah_cache::{Millis, Object, Pass};
use howdah_http::message::{HttpVersion, RequestHead};

use super::{OwnedHeader, PageCache, SiteCache};
use howdah_site::client_address::Client;
use howdah_site::docroot::path::UrlPath;
use howdah_site::site::Site;

/// The maximum length of a header value in a variant's key, in bytes.
const MAX_VARY_VALUE_BYTES: usize = 1024;

/// The result of looking up a request's page in the cache.
#[derive(Debug)]
pub enum Lookup {
    /// The cache has a page.
    Page {
        /// The stored page for the request.
        page: Arc<Object>,
        /// How fresh the page is, which decides whether it may be served.
        state: PageState,
        /// Whether the request asks for a part of the page or sets conditions.
        conditional: bool,
        /// The time of the lookup.
        now: Millis,
        /// The key, if the page has to be rendered again.
        key: Option<Box<PageKey>>,
    },
    /// The cache has no page under this key.
    None(Box<PageKey>),
    /// The request bypasses the cache.
    Pass {
        /// Why the request bypasses the cache.
        why: Pass,
        /// The name of the cookie that is the reason, if there is one.
        cookie: Option<Vec<u8>>,
    },
}

impl From<Pass> for Lookup {
    fn from(why: Pass) -> Lookup {
        Lookup::Pass { why, cookie: None }
    }
}

thread_local! {
    // Reused, so a hit allocates nothing for its key.
    static KEY: RefCell<PageKey> = RefCell::default();
}

/// Looks up the page of a request.
pub fn look_up(
    cache: &PageCache,
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    has_body: bool,
) -> Lookup {
    let rules = part.rules();
    let gate = match request_gate(part, site, request, has_body, false) {
        Ok(gate) => gate,
        Err(why) => return why.into(),
    };
    if let Err(why) = gate.verdict() {
        return Lookup::Pass {
            why,
            cookie: gate.cookie,
        };
    }
    KEY.with_borrow_mut(|key| {
        if let Err(why) = make_key(key, part, site, request, client, drops_tracking(part)) {
            return why.into();
        }
        let rfc = rules.scheme == CacheScheme::Rfc;
        if rfc && is_spelled_differently(key, request, client) {
            return Pass::AmbiguousUrl.into();
        }
        let variant = |names: &[Vec<u8>]| variant_key(key, names, request);
        let now = super::now();
        let memory = &cache.memory;
        match memory.find(key.as_bytes(), variant, &part.generations, now) {
            PageLookup::Page(page, state) => Lookup::Page {
                page,
                state,
                conditional: gate.conditional,
                now,
                key: (state != PageState::Fresh).then(|| Box::new(key.clone())),
            },
            PageLookup::NotFound => Lookup::None(Box::new(key.clone())),
        }
    })
}

/// Inspects a request up to its query. `is_private` says that a page of the visitor's own is looked for.
fn request_gate<'r>(
    part: &'r SiteCache,
    site: &Site,
    request: &RequestHead,
    has_body: bool,
    is_private: bool,
) -> Result<RequestGate<'r>, Pass> {
    let rules = part.rules();
    // The router refuses a path that it cannot parse; the cache need not handle it.
    let path = UrlPath::parse(request.path()).map_err(|_| Pass::AmbiguousPath)?;
    let mut gate = RequestGate::new(rules, request.method(), path.as_bytes(), has_body);
    let esi = rules.esi.as_ref();
    if esi.is_some_and(|esi| esi.allows(path.as_bytes(), request.query())) {
        gate.set_fragment();
    }
    if is_private {
        gate.set_private();
    }
    for route in site.routes_behind_script(path.as_bytes()) {
        gate.check_path(&route);
    }
    for (name, value) in request.headers() {
        gate.check_header(name, value);
    }
    if rules.vary.mobile && !is_private && vary::browser(request.headers()).is_none() {
        gate.verdict()?;
        return Err(Pass::UnclearBrowser);
    }
    Ok(gate)
}

/// The URL of a page that may be a visitor's own.
#[derive(Debug)]
pub struct PrivateUrl {
    /// The key of the URL as the script of the visitor's own request sees it.
    pub key: Box<PageKey>,
    /// Whether the request asks for a part of the page or sets conditions.
    pub conditional: bool,
}

/// Returns the URL of a request without a body as the key of a visitor's own page. The cookies are not inspected.
///
/// # Errors
/// Why the response cannot be such a page.
pub fn private_url(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
) -> Result<PrivateUrl, Pass> {
    let gate = request_gate(part, site, request, false, true)?;
    gate.verdict()?;
    if request.version() == HttpVersion::Http10 {
        return Err(Pass::OldProtocol);
    }
    let mut key = Box::<PageKey>::default();
    // The script of a visitor's own request sees tracking parameters as well.
    make_key(&mut key, part, site, request, client, false)?;
    match is_spelled_differently(&key, request, client) {
        true => Err(Pass::AmbiguousUrl),
        false => Ok(PrivateUrl {
            key,
            conditional: gate.conditional,
        }),
    }
}

/// Returns whether tracking parameters are omitted from the keys of shared pages.
fn drops_tracking(part: &SiteCache) -> bool {
    part.rules().scheme == CacheScheme::CleanRoom
}

/// Returns whether a script would see a different spelling of the URL than the key contains. Under `rfc` the page of a
/// visitor's own run is stored, and its links may repeat the visitor's spelling.
fn is_spelled_differently(key: &PageKey, request: &RequestHead, client: &Client<'_>) -> bool {
    let host = client.host.as_deref().or_else(|| request.header(b"host"));
    !request.target().starts_with(b"/") || host != Some(key.push_host())
}

/// Returns why, under `rfc`, the response to this request must not be stored for others: the script sees a value that
/// is not in the key and that the page's links may repeat. A page that is already stored may still be served for the
/// request.
pub fn reason_against_sharing(request: &RequestHead, client: &Client<'_>) -> Option<Pass> {
    if request.version() == HttpVersion::Http10 {
        return Some(Pass::OldProtocol);
    }
    let names_another = |(name, value)| names_another_url(request, client, name, value);
    let another = request.headers().any(names_another);
    another.then_some(Pass::ForwardedUrl)
}

/// Returns whether a header names another URL than the request's. Proxies write these headers, frameworks build links
/// from them, and a client may send them as well.
fn names_another_url(
    request: &RequestHead,
    client: &Client<'_>,
    name: &[u8],
    value: &[u8],
) -> bool {
    let is_one_of = |known: &[&str]| {
        let mut known = known.iter();
        known.any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    };
    let all_are = |expected: &[u8]| {
        let mut members = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
        members.all(|member| member == expected)
    };
    let (scheme, switch, port): (&[u8], &[u8], &[u8]) = match client.https {
        true => (b"https", b"on", b"443"),
        false => (b"http", b"off", b"80"),
    };
    // The first letter rules out almost all headers of almost all requests.
    let may_be = |first: u8| matches!(first.to_ascii_lowercase(), b'x' | b'f' | b'c');
    if !name.first().copied().is_some_and(may_be) {
        return false;
    }
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    if is_one_of(&[
        "x-forwarded-host",
        "x-original-host",
        "x-host",
        "x-http-host-override",
    ]) {
        return !all_are(host);
    }
    if is_one_of(&[
        "x-forwarded-proto",
        "x-forwarded-scheme",
        "x-forwarded-protocol",
    ]) {
        return !all_are(scheme);
    }
    if is_one_of(&["x-forwarded-ssl", "front-end-https"]) {
        return !all_are(switch);
    }
    if is_one_of(&["cf-visitor"]) {
        return value != [b"{\"scheme\":\"", scheme, b"\"}"].concat();
    }
    if is_one_of(&["x-forwarded-port"]) {
        let named = host.rsplit(|b| *b == b':').next();
        let named =
            named.filter(|port| port.len() < host.len() && port.iter().all(u8::is_ascii_digit));
        return !all_are(named.unwrap_or(port));
    }
    if is_one_of(&[
        "x-original-url",
        "x-rewrite-url",
        "x-original-uri",
        "x-forwarded-uri",
    ]) {
        return value != request.target();
    }
    if is_one_of(&["forwarded"]) {
        let says = |word: &[u8]| {
            value
                .windows(word.len())
                .any(|part| part.eq_ignore_ascii_case(word))
        };
        return !client.proxied && (says(b"host=") || says(b"proto="));
    }
    is_one_of(&["x-forwarded-prefix", "x-forwarded-path"])
}

/// Makes the key of a request.
fn make_key(
    key: &mut PageKey,
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    drop_tracking: bool,
) -> Result<(), Pass> {
    let rules = part.rules();
    let url = Url {
        site: site.number(),
        https: client.https,
        host: client.host.as_deref().unwrap_or_else(|| request.host()),
        path: request.path(),
        query: request.query(),
    };
    let query = QueryRules {
        drop_tracking,
        ignored: &rules.ignore_query,
        excluded: rules.preset.never_parameters,
    };
    key.make(&url, &query)
}

/// Returns the key of a request that has been looked up, by making it again.
pub fn key_of(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
) -> Result<Box<PageKey>, Pass> {
    let mut key = Box::<PageKey>::default();
    make_key(&mut key, part, site, request, client, drops_tracking(part))?;
    Ok(key)
}

/// Returns the key of a request's variant.
pub fn variant_key(key: &PageKey, names: &[Vec<u8>], request: &RequestHead) -> Vec<u8> {
    key.variant_key(names, |name, each| {
        vary::each_value(name, request.headers(), each);
    })
}

/// The variant of a page that a request selects.
#[derive(Debug, Default)]
pub struct Variant {
    /// What the page is known to vary by, headers or the names of [`vary`], with this request's values.
    pub fields: Vec<OwnedHeader>,
    /// The cache key of that variant.
    pub key: Vec<u8>,
}

/// Returns the variant that a request selects. A value that is too long for a key makes the request bypass the cache.
pub fn selected_variant(
    cache: &PageCache,
    key: &PageKey,
    request: &RequestHead,
) -> Result<Variant, Pass> {
    let Some(variants) = cache.memory.variants(key.as_bytes()) else {
        return Ok(Variant {
            fields: Vec::new(),
            key: key.as_bytes().to_vec(),
        });
    };
    let mut fields: Vec<OwnedHeader> = Vec::new();
    for name in variants.names() {
        vary::each_value(name, request.headers(), &mut |value| {
            fields.push((name.clone(), value.to_vec()));
        });
    }
    if fields
        .iter()
        .any(|(_, value)| value.len() > MAX_VARY_VALUE_BYTES)
    {
        return Err(Pass::VaryUnbounded);
    }
    let key = variant_key(key, variants.names(), request);
    Ok(Variant { fields, key })
}
