//! What shared pages vary by besides whole request headers: the values of some cookies (`cache_vary_cookies`), and
//! whether the browser is a mobile one (`cache_vary_mobile`). Each of them has a name in the list of header names, so
//! the stores treat it like a member of `Vary`. No header can have such a name.
//!
//! A page is always stored under the values of the request that it was rendered for. A render for the cache has exactly
//! the cookies of its key, so a visitor who sends a made-up value can neither get a page that was made for another value
//! nor change what others get.

use crate::cookie::pairs;

/// Begins the name by which a page varies by a cookie.
const COOKIE: &[u8] = b"cookie;";
/// The name by which a page varies by the kind of browser.
const MOBILE: &[u8] = b"browser;mobile";
/// The `User-Agent` of renders for mobile browsers, without the comment that names this server.
pub const MOBILE_USER_AGENT_START: &str =
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 Mobile";

/// What the shared pages of a site vary by.
#[derive(Clone, Debug, Default)]
pub struct VaryRules {
    /// `cache_vary_cookies`: names of cookies whose values pages may show. They are in the key, and renders for the cache
    /// have them.
    pub cookies: Vec<String>,
    /// `cache_vary_mobile`: whether pages for mobile browsers and for others are stored separately.
    pub mobile: bool,
}

impl VaryRules {
    /// Returns the names by which every shared page of the site varies.
    pub fn names(&self) -> impl Iterator<Item = Vec<u8>> {
        let cookies = self.cookies.iter();
        let cookies = cookies.map(|name| [COOKIE, name.as_bytes()].concat());
        cookies.chain(self.mobile.then(|| MOBILE.to_vec()))
    }

    /// Returns the value of `Vary` that tells caches in front what every page varies by; `None` if there is no such
    /// thing.
    pub fn header_value(&self) -> Option<&'static str> {
        match (!self.cookies.is_empty(), self.mobile) {
            (true, true) => Some("Cookie, User-Agent, Sec-CH-UA-Mobile"),
            (true, false) => Some("Cookie"),
            (false, true) => Some("User-Agent, Sec-CH-UA-Mobile"),
            (false, false) => None,
        }
    }
}

/// Returns the cookie by which a page varies, if `name` is such a name.
pub fn cookie_of(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(COOKIE)
}

/// Returns whether `name` says that a page varies by the kind of browser.
pub fn is_mobile_name(name: &[u8]) -> bool {
    name == MOBILE
}

/// Calls `each` with the values that a request has for a name by which a page varies.
pub fn each_value<'h>(
    name: &[u8],
    headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    each: &mut dyn FnMut(&'h [u8]),
) {
    if is_mobile_name(name) {
        if browser(headers) != Some(Browser::Other) {
            each(b"1");
        }
        return;
    }
    let cookie = cookie_of(name);
    for (own, value) in headers {
        match cookie {
            None if own.eq_ignore_ascii_case(name) => each(value),
            Some(cookie) if own.eq_ignore_ascii_case(b"cookie") => {
                for (_, _, value) in pairs(value).filter(|(raw, ..)| *raw == cookie) {
                    each(value);
                }
            }
            _ => {}
        }
    }
}

/// The kind of browser that a page is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Browser {
    /// A mobile browser.
    Mobile,
    /// Any other client.
    Other,
}

/// Returns the kind of browser that sends a request, as WordPress decides it (`wp_is_mobile()`): by `Sec-CH-UA-Mobile`
/// since version 6.4, and by `User-Agent` in all versions. Returns `None` if the two disagree, as they do for some
/// tablets: the result then depends on the version.
pub fn browser<'h>(headers: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> Option<Browser> {
    const WORDS: [&[u8]; 7] = [
        b"Mobile",
        b"Android",
        b"Silk/",
        b"Kindle",
        b"BlackBerry",
        b"Opera Mini",
        b"Opera Mobi",
    ];
    let (mut by_name, mut by_hint) = (false, None);
    for (name, value) in headers {
        if name.eq_ignore_ascii_case(b"user-agent") {
            by_name |= WORDS
                .iter()
                .any(|word| value.windows(word.len()).any(|part| part == *word));
        } else if name.eq_ignore_ascii_case(b"sec-ch-ua-mobile") {
            by_hint = Some(value == b"?1");
        }
    }
    match (by_name, by_hint) {
        (true, None | Some(true)) => Some(Browser::Mobile),
        (false, None | Some(false)) => Some(Browser::Other),
        (true, Some(false)) | (false, Some(true)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &[u8], lines: &[(&str, &str)]) -> Vec<String> {
        let mut found = Vec::new();
        let headers = lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        each_value(name, headers, &mut |value| {
            found.push(String::from_utf8_lossy(value).into_owned());
        });
        found
    }

    #[test]
    fn page_varies_by_the_values_of_a_cookie_and_by_no_other() {
        let lines = [
            ("Cookie", "a=1; currency=EUR; Currency=USD"),
            ("cookie", "xcurrency=2; currency="),
            ("X-Currency", "GBP"),
        ];
        assert_eq!(values(b"cookie;currency", &lines), ["EUR", ""]);
        assert!(values(b"cookie;b", &lines).is_empty());
        assert_eq!(values(b"x-currency", &lines), ["GBP"]);
    }

    #[test]
    fn browser_is_the_one_that_wordpress_sees() {
        const PHONE: &str =
            "Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Mobile Safari/537.36";
        const DESK: &str = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0";
        let hint = |value| ("Sec-CH-UA-Mobile", value);
        for (lines, expected) in [
            (&[][..], Some(Browser::Other)),
            (&[("User-Agent", DESK)], Some(Browser::Other)),
            (&[("User-Agent", PHONE)], Some(Browser::Mobile)),
            (
                &[("User-Agent", MOBILE_USER_AGENT_START)],
                Some(Browser::Mobile),
            ),
            (&[("User-Agent", "mobile")], Some(Browser::Other)),
            (&[("user-agent", PHONE), hint("?1")], Some(Browser::Mobile)),
            (&[("User-Agent", DESK), hint("?0")], Some(Browser::Other)),
            (&[("User-Agent", PHONE), hint("?0")], None),
            (&[("User-Agent", DESK), hint("?1")], None),
        ] {
            let headers = lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
            assert_eq!(browser(headers), expected, "{lines:?}");
        }
    }
}
