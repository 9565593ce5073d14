//! Purge requests over HTTP, as plugins send them to nginx and Varnish: recognises them, checks who may send them, and
//! parses what they purge. Nothing is purged here.
//!
//! | request | purges | sent by |
//! |---|---|---|
//! | `PURGE /path?query` | this URL, whatever host and scheme; without a query all of its queries | nginx's purge modules, MediaWiki, W3 Total Cache |
//! | `PURGE /path*`, `PURGE /path/.*`, any path with `X-Purge-Method: regex` | all paths that begin with this | ngx_cache_purge (torden), W3 Total Cache, Proxy Cache Purge |
//! | `PURGE /.*`, `PURGE …/purgeall` | everything | W3 Total Cache, recipes |
//! | `PURGE /([a-z]*)sitemap…` | all paths that begin with the literal start of the expression: here everything | W3 Total Cache |
//! | `GET` below `cache_purge_path` | like `PURGE` of the rest of the path | nginx-helper |
//! | `BAN /path` | all paths that begin with this | Varnish recipes |
//! | `PURGE`, `PURGEKEYS`, `BAN` with `Surrogate-Key`, `xkey-purge`, `Cache-Tag`, `Cache-Tags`, `Purge-Cache-Tags` | pages with these tags | FOSHttpCache, Drupal's purgers |
//! | `PURGE` with `X-Magento-Tags-Pattern` | pages with these tags | Magento |
//!
//! `Fastly-Soft-Purge: 1` and `xkey-softpurge` ask for a soft purge. An expression of another form is refused, because
//! a wrong interpretation would leave old pages.

use howdah_cache::generation::Purge;
use howdah_cache::key::target_of;
use howdah_cache::purge::{self, PurgeCommand};
use howdah_cache::tags::TagSyntax;
use howdah_http::message::RequestHead;

use super::{SiteCache, write};
use crate::failure::PurgeRefused;
use howdah_site::cache_config::PurgeAccess;
use howdah_site::client_address::Client;
use howdah_site::site::Site;

/// Returns the purges that a request asks for; `None` if it is not a purge request.
pub fn purge_request(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
) -> Option<Result<Vec<PurgeCommand>, PurgeRefused>> {
    let access = &part.config.purge;
    let (path, bans) = match request.method() {
        b"PURGE" | b"PURGEKEYS" => (request.path(), false),
        b"BAN" => (request.path(), true),
        b"GET" => (path_below_purge_path(access, request.path())?, false),
        _ => return None,
    };
    if let Err(why) = check_access(access, request, client) {
        return Some(Err(why));
    }
    Some(requested_purges(part, site, request, client, path, bans))
}

/// Returns the rest of a path below the configured purge path; it begins with a slash.
fn path_below_purge_path<'p>(access: &PurgeAccess, path: &'p [u8]) -> Option<&'p [u8]> {
    let prefix = access.path.as_ref()?.as_bytes();
    let rest = path.strip_prefix(prefix)?;
    Some(&path[path.len() - rest.len() - 1..])
}

fn check_access(
    access: &PurgeAccess,
    request: &RequestHead,
    client: &Client<'_>,
) -> Result<(), PurgeRefused> {
    let bearer = request
        .header(b"authorization")
        .and_then(|value| value.strip_prefix(b"Bearer "));
    if let Some(given) = request.header(b"x-purge-token").or(bearer) {
        return match &access.token {
            Some(token) if token.matches(given) => Ok(()),
            Some(_) => Err(PurgeRefused::Denied(
                "the token is not the one in cache_purge_token",
            )),
            None => Err(PurgeRefused::Denied(
                "the client sent a token, but the site has no cache_purge_token",
            )),
        };
    }
    let (named, nobody) = match client.address {
        Some(address) => (
            access.networks.iter().any(|n| n.contains(address)),
            access.networks.is_empty(),
        ),
        None => (access.unix, !access.unix),
    };
    if !named {
        return Err(PurgeRefused::Denied(
            match nobody && access.token.is_none() {
                true => "purging over HTTP is disabled; set cache_purge_from or cache_purge_token",
                false => "the client's address is not in cache_purge_from, and it sent no token",
            },
        ));
    }
    if client.came_through_untrusted_proxy(request) {
        return Err(PurgeRefused::Denied(
            "the request came through a proxy that trusted_proxies does not name, so its client is unknown",
        ));
    }
    Ok(())
}

fn requested_purges(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    path: &[u8],
    bans: bool,
) -> Result<Vec<PurgeCommand>, PurgeRefused> {
    let soft = request
        .header(b"fastly-soft-purge")
        .is_some_and(purge::is_nonzero);
    let tags = tag_purges(request, soft)?;
    if !tags.is_empty() {
        return Ok(tags);
    }
    if request.method() == b"PURGEKEYS" {
        return Err(PurgeRefused::Unreadable(
            "PURGEKEYS needs the tags in xkey-purge, xkey-softpurge or Surrogate-Key",
        ));
    }
    const EXPRESSIONS: [&[u8]; 4] = [b"x-url", b"x-ban-url", b"x-cache-tags", b"x-content-type"];
    if EXPRESSIONS
        .iter()
        .any(|name| request.header(name).is_some())
    {
        return Err(PurgeRefused::Unreadable(
            "a BAN with expressions (X-Url, X-Cache-Tags) is not supported; send PURGE with the path, or with tags in Surrogate-Key",
        ));
    }
    let is_expression = match request.header(b"x-purge-method") {
        None | Some(b"default" | b"exact") => false,
        Some(b"regex") => true,
        Some(_) => {
            return Err(PurgeRefused::Unreadable(
                "X-Purge-Method must be `default`, `exact` or `regex`",
            ));
        }
    };
    let targets = if is_expression || path.ends_with(b".*") {
        let prefix = purge::parse_prefix_pattern(path).ok_or(PurgeRefused::Unreadable(
            "the only supported expression is a path that ends with `.*`",
        ))?;
        vec![prefix]
    } else if let Some(what) = multi_page_purge(path, request.query(), bans) {
        vec![what]
    } else {
        single_path_purges(part, site, request, client, path)
    };
    let command = |what| PurgeCommand {
        what,
        is_soft: soft,
    };
    Ok(targets.into_iter().map(command).collect())
}

/// Returns the purge for a path that names more than one page; `None` for any other path.
fn multi_page_purge(path: &[u8], query: Option<&[u8]>, bans: bool) -> Option<Purge> {
    let starts = |text: &[u8]| match text {
        b"/" => Purge::All,
        text => Purge::Path {
            text: text.to_vec(),
            exact: false,
        },
    };
    if let Some(what) = purge::parse_undeclared_expression(path, query) {
        return Some(what);
    }
    if path.ends_with(b"/purgeall") {
        return Some(Purge::All);
    }
    let prefix = path.strip_suffix(b"*");
    prefix.or(bans.then_some(path)).map(starts)
}

/// Returns the pages of one path: with all of its queries, or with the given one.
fn single_path_purges(
    part: &SiteCache,
    site: &Site,
    request: &RequestHead,
    client: &Client<'_>,
    path: &[u8],
) -> Vec<Purge> {
    let exact = |text: Vec<u8>| Purge::Path { text, exact: true };
    let Some(query) = request.query() else {
        return vec![exact(path.to_vec())];
    };
    // The query is normalised as in the page's key, which has no tracking parameters.
    let keys = write::url_keys(part, site, client, request.host(), path, Some(query));
    match keys.is_empty() {
        // The URL is never cached: there is nothing to purge, which is not a mistake.
        true => vec![exact([path, b"?", query].concat())],
        false => keys
            .iter()
            .map(|key| exact(target_of(key).to_vec()))
            .collect(),
    }
}

/// Returns the purges of the tags in all headers that carry tags in purge requests.
fn tag_purges(request: &RequestHead, soft: bool) -> Result<Vec<PurgeCommand>, PurgeRefused> {
    const FIELDS: [(&[u8], TagSyntax, bool); 8] = [
        (b"surrogate-key", TagSyntax::Words, false),
        (b"xkey", TagSyntax::Words, false),
        (b"xkey-purge", TagSyntax::Words, false),
        (b"xkey-softpurge", TagSyntax::Words, true),
        (b"cache-tags", TagSyntax::Words, false),
        (b"purge-cache-tags", TagSyntax::Words, false),
        (b"cache-tag", TagSyntax::Members, false),
        (b"x-magento-tags", TagSyntax::Members, false),
    ];
    let mut commands = Vec::new();
    let mut add = |purges: Vec<Purge>, is_soft: bool| {
        let purges = purges.into_iter();
        commands.extend(purges.map(|what| PurgeCommand { what, is_soft }));
    };
    for (name, syntax, softly) in FIELDS {
        for value in request.header_all(name) {
            let tags = purge::tag_purges(syntax, value).ok_or(PurgeRefused::Unreadable(
                "the request has more tags, or longer tags, than a page can have",
            ))?;
            add(tags, soft || softly);
        }
    }
    for value in request.header_all(b"x-magento-tags-pattern") {
        let tags = purge::parse_magento_pattern(value).ok_or(PurgeRefused::Unreadable(
            "X-Magento-Tags-Pattern must be `.*` or `((^|,)TAG(,|$))`; join several with `|`",
        ))?;
        add(tags, soft);
    }
    Ok(commands)
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
