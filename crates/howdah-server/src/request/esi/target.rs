//! Which fragment a tag names. A tag can be a visitor's text in a page that does not escape it, so its URL is checked
//! like a client's, and more strictly: only paths of the same site that the site has named are requested at all.

use std::borrow::Cow;

use howdah_cache::esi::EsiRules;
use howdah_http::message::RequestHead;

use howdah_site::client_address::Client;
use howdah_site::docroot::path::UrlPath;

/// Returns the target of the request for a fragment; `None` if the URL may not be included: it leads to another host,
/// scheme or path, or can be read in two ways. A relative path is relative to the page with the tag (ESI Language
/// Specification §3.1).
pub(super) fn fragment_target<'u>(
    url: &'u [u8],
    request: &RequestHead,
    client: &Client<'_>,
    rules: &EsiRules,
) -> Option<Cow<'u, [u8]>> {
    let host = client.host.as_deref().unwrap_or_else(|| request.host());
    let end = url.iter().position(|b| *b == b'#');
    let url = &url[..end.unwrap_or(url.len())];
    let target = match url.first()? {
        b'/' => Cow::Borrowed(url),
        _ => match without_own_origin(url, client.https, host) {
            Some(target) => Cow::Borrowed(target),
            None => Cow::Owned(beside_page(url, request.path())?),
        },
    };
    if !target.iter().all(|b| b.is_ascii_graphic() && *b != b'\\') {
        return None;
    }
    let mut parts = target.splitn(2, |b| *b == b'?');
    let (path, query) = (parts.next().unwrap_or_default(), parts.next());
    let cleaned = UrlPath::parse(path).ok()?;
    // The path has to mean the same to the rules and to the application, which decodes it itself.
    let is_literal = cleaned.as_bytes() == path;
    let is_allowed = is_literal && rules.allows(path, query);
    is_allowed.then_some(target)
}

/// Returns the path that a relative one has, seen from a page (RFC 3986 §5.2.3).
fn beside_page(url: &[u8], page: &[u8]) -> Option<Vec<u8>> {
    // A colon would make the first segment a scheme; `?…` alone would name the page itself.
    let end = url.iter().position(|b| matches!(b, b'/' | b'?'));
    let segment = &url[..end.unwrap_or(url.len())];
    if segment.is_empty() || segment.contains(&b':') {
        return None;
    }
    let directory = page.iter().rposition(|b| *b == b'/')? + 1;
    Some([&page[..directory], url].concat())
}

/// Returns the rest of a URL after the scheme and host of this request.
fn without_own_origin<'u>(url: &'u [u8], https: bool, host: &[u8]) -> Option<&'u [u8]> {
    let scheme: &[u8] = match https {
        true => b"https://",
        false => b"http://",
    };
    let (start, rest) = url.split_at_checked(scheme.len())?;
    let (own, target) = rest.split_at_checked(host.len())?;
    let is_own = start.eq_ignore_ascii_case(scheme) && own.eq_ignore_ascii_case(host);
    (is_own && !host.is_empty() && target.starts_with(b"/")).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;
    use howdah_cache::esi::EsiPath;
    use howdah_site::client_address::TrustedProxies;

    #[test]
    fn only_named_paths_of_the_own_site_are_targets() {
        let rules = EsiRules {
            paths: vec![
                EsiPath::parse("/_fragment").unwrap(),
                EsiPath::parse("/?lsesi=").unwrap(),
            ],
            ..EsiRules::default()
        };
        let page = request("GET", "/page", &[("Host", "shop.example:8080")]);
        let client = TrustedProxies::default().client(None, None, &page);
        let target = |url: &'static str| {
            let found = fragment_target(url.as_bytes(), &page, &client, &rules);
            found.map(|target| String::from_utf8(target.into_owned()).unwrap())
        };
        for (url, expected) in [
            ("/_fragment", "/_fragment"),
            (
                "/_fragment?_path=a%26b&_hash=x",
                "/_fragment?_path=a%26b&_hash=x",
            ),
            ("/_fragment/a#part", "/_fragment/a"),
            ("/?lsesi=w&_hash=1", "/?lsesi=w&_hash=1"),
            ("http://shop.example:8080/_fragment", "/_fragment"),
            ("_fragment/a?b=/c#part", "/_fragment/a?b=/c"),
            ("HTTP://Shop.Example:8080/_fragment?a", "/_fragment?a"),
        ] {
            assert_eq!(target(url).as_deref(), Some(expected), "{url}");
        }
        for url in [
            "",
            "/",
            "/admin",
            "/_fragments",
            "./_fragment",
            "../_fragment",
            "?lsesi=w",
            "#part",
            "x:/_fragment",
            "//evil.example/_fragment",
            "http://evil.example/_fragment",
            "http://shop.example/_fragment",
            "http://shop.example:80801/_fragment",
            "https://shop.example:8080/_fragment",
            "http://shop.example:8080@evil.example/_fragment",
            "http://shop.example:8080",
            "file:///_fragment",
            "/_fragment/../admin",
            "/x/../_fragment",
            "/_fragment/%2e%2e/admin",
            "/%5ffragment",
            "//_fragment",
            "/_fragment\\a",
            "/_fragment a",
            "/_fragment\r\nX: y",
            "/_fragment/\u{e9}",
            "/?x=1",
        ] {
            assert_eq!(target(url), None, "{url}");
        }
    }
}
