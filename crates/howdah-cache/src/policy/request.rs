//! Decides which requests may be answered from the cache, and rendered for it. The decision uses the request alone:
//! method, headers, path. The query is handled by `key`.
//!
//! A header that is not in the key must not influence a shared page. Under [`CacheScheme::CleanRoom`] PHP does not see
//! such headers; this module looks for those that make the *visitor* expect a personal response.

use super::{CacheRules, CacheScheme};
use crate::cookie;
use crate::pass::Pass;

/// Inspects a request's headers one by one, then decides whether the request may be answered from the cache.
#[derive(Debug)]
pub struct RequestGate<'r> {
    rules: &'r CacheRules,
    bypass: Option<Pass>,
    /// Whether the request is for a fragment of pages, which may read cookies that pages do not read.
    is_fragment: bool,
    /// Whether the response is looked for among the visitor's own, whose keys contain the cookies.
    is_private: bool,
    /// The cookies of the request by which pages vary, as positions in `vary.cookies`.
    vary_cookies: Vec<usize>,
    /// The name of the cookie that caused the bypass, as PHP reads it.
    pub cookie: Option<Vec<u8>>,
    /// Whether the request has `Range` or a conditional header such as `If-None-Match`. If so, [`crate::serve`] must
    /// decide how a stored page is sent.
    pub conditional: bool,
}

impl<'r> RequestGate<'r> {
    /// Creates the gate for a request with this method and path. The path is decoded and cleaned, as the router reads
    /// it: `/acc%6funt` is `/account` to the application. `body` says whether the request has a body, of whatever
    /// length.
    pub fn new(rules: &'r CacheRules, method: &[u8], path: &[u8], body: bool) -> RequestGate<'r> {
        let why = match method {
            b"GET" | b"HEAD" if body => Some(Pass::RequestBody),
            b"GET" | b"HEAD" if rules.never_caches(path) => Some(Pass::NeverCachedPath),
            b"GET" | b"HEAD" => None,
            _ => Some(Pass::Method),
        };
        RequestGate {
            rules,
            bypass: why,
            is_fragment: false,
            is_private: false,
            vary_cookies: Vec::new(),
            cookie: None,
            conditional: false,
        }
    }

    /// Takes into account that the request is for a fragment of pages, whether a page includes it or a visitor requests
    /// it. To be called before the headers are checked.
    pub fn set_fragment(&mut self) {
        self.is_fragment = true;
    }

    /// Takes into account that a private page is looked for, whose key contains the cookies. To be called before the
    /// headers are checked.
    pub fn set_private(&mut self) {
        self.is_private = true;
    }

    /// Takes another path of the same page into account: the route that a front controller reads from `PATH_INFO`.
    pub fn check_path(&mut self, path: &[u8]) {
        if self.bypass.is_none() && self.rules.never_caches(path) {
            self.bypass = Some(Pass::NeverCachedPath);
        }
    }

    /// Takes one header field of the request into account.
    pub fn check_header(&mut self, name: &[u8], value: &[u8]) {
        if self.bypass.is_some() {
            return;
        }
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let rfc = self.rules.scheme == CacheScheme::Rfc;
        self.bypass = match name.len() {
            5 if is("range") => {
                self.conditional = true;
                None
            }
            6 if is("cookie") => self.check_cookies(value).err(),
            // Scripts of a page send such requests. Applications answer them under the page's own URL, and few of them
            // send `Vary: Accept`.
            6 if is("accept") && !rfc => {
                let names = |word: &[u8]| {
                    value
                        .windows(word.len())
                        .any(|part| part.eq_ignore_ascii_case(word))
                };
                (names(b"json") && !names(b"text/html")).then_some(Pass::OtherRepresentation)
            }
            7 if is("upgrade") => Some(Pass::Upgrade),
            // RFC 9111 §3.5 allows storing the response to such a request if the response permits it; under `rfc`, the
            // response is checked for that.
            13 if is("authorization") && !rfc => Some(Pass::Authorization),
            19 if is("proxy-authorization") => Some(Pass::Authorization),
            17 if is("x-method-override") => Some(Pass::MethodOverride),
            13 if is("x-http-method") => Some(Pass::MethodOverride),
            22 if is("x-http-method-override") => Some(Pass::MethodOverride),
            10 if is("x-wp-nonce") => Some(Pass::PersonalField),
            12 if is("x-csrf-token") || is("x-xsrf-token") => Some(Pass::PersonalField),
            16 if is("x-requested-with") && !rfc => Some(Pass::PersonalField),
            8 if is("if-match") || is("if-range") => {
                self.conditional = true;
                None
            }
            13 if is("if-none-match") => {
                self.conditional = true;
                None
            }
            17 if is("if-modified-since") => {
                self.conditional = true;
                None
            }
            19 if is("if-unmodified-since") => {
                self.conditional = true;
                None
            }
            _ => None,
        };
    }

    fn check_cookies(&mut self, line: &[u8]) -> Result<(), Pass> {
        for (raw, name, _) in cookie::pairs(line) {
            let name = name.map_err(|_| Pass::UnreadableCookie)?;
            if self.is_private || (!self.is_fragment && self.rules.is_cookie_of_fragments(&name)) {
                continue;
            }
            let mut varying = self.rules.vary.cookies.iter();
            if let Some(at) = varying.position(|own| own.as_bytes() == &*name) {
                // PHP sees one value, and it has to be the one in the key.
                if *raw != *name || self.vary_cookies.contains(&at) {
                    return Err(Pass::UnreadableCookie);
                }
                self.vary_cookies.push(at);
                continue;
            }
            let sessions = self.rules.preset.session_cookies;
            let is_session = sessions.iter().any(|known| known.matches(&name));
            if is_session || self.rules.is_visitor_cookie(&name) {
                self.cookie = Some(name.into_owned());
                return Err(Pass::SessionCookie);
            }
            // Under `rfc`, the application declares by `Vary` what its pages depend on.
            if self.rules.scheme == CacheScheme::CleanRoom && !self.rules.ignores_cookie(&name) {
                self.cookie = Some(name.into_owned());
                return Err(Pass::UnknownCookie);
            }
        }
        Ok(())
    }

    /// Returns whether the cache may answer the request; the error is the first reason against it.
    pub fn verdict(&self) -> Result<(), Pass> {
        self.bypass.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esi::EsiRules;
    use crate::preset::Preset;
    use crate::vary::VaryRules;

    fn wordpress() -> CacheRules {
        CacheRules {
            preset: Preset::find("wordpress").unwrap(),
            ignore_cookies: vec!["theme".to_owned(), "ab_*".to_owned()],
            never: vec![b"/shop/".to_vec()],
            ..CacheRules::for_tests()
        }
    }

    fn ask(
        rules: &CacheRules,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> Result<(), Pass> {
        let mut gate = RequestGate::new(rules, method.as_bytes(), path.as_bytes(), false);
        for (name, value) in fields {
            gate.check_header(name.as_bytes(), value.as_bytes());
        }
        gate.verdict()
    }

    #[test]
    fn anonymous_visitor_is_served_from_the_cache() {
        let rules = wordpress();
        for fields in [
            &[][..],
            &[("Cookie", "_ga=1; wordpress_test_cookie=WP+Cookie+check")],
            &[("Cookie", "theme=dark; ab_7=x"), ("Cookie", "_pk_id.1=2")],
            &[("Cache-Control", "no-cache"), ("Range", "bytes=0-1")],
        ] {
            assert_eq!(
                ask(&rules, "GET", "/2026/hello/", fields),
                Ok(()),
                "{fields:?}"
            );
            assert_eq!(ask(&rules, "HEAD", "/", fields), Ok(()));
        }
    }

    #[test]
    fn identified_visitor_is_not_served_from_the_cache() {
        let rules = wordpress();
        let hash = "0123456789abcdef0123456789abcdef";
        for (fields, why) in [
            (
                ("Cookie", format!("wordpress_logged_in_{hash}=a")),
                Pass::SessionCookie,
            ),
            (
                ("Cookie", format!("_ga=1; wordpress%5Flogged_in_{hash}=")),
                Pass::SessionCookie,
            ),
            (
                ("Cookie", format!("wordpress.logged.in_{hash}=a")),
                Pass::SessionCookie,
            ),
            (
                ("cookie", format!("comment_author_{hash}=Jo")),
                Pass::SessionCookie,
            ),
            (
                ("Cookie", "woocommerce_items_in_cart=1".into()),
                Pass::SessionCookie,
            ),
            (("Cookie", "PHPSESSID[]=1".into()), Pass::SessionCookie),
            (("Cookie", "colour=red".into()), Pass::UnknownCookie),
            (("Cookie", "a%00=1".into()), Pass::UnreadableCookie),
            (("Authorization", "Basic eDp5".into()), Pass::Authorization),
            (
                ("X-HTTP-Method-Override", "DELETE".into()),
                Pass::MethodOverride,
            ),
            (("X-WP-Nonce", "1".into()), Pass::PersonalField),
            (
                ("Accept", "application/json, */*".into()),
                Pass::OtherRepresentation,
            ),
        ] {
            let got = ask(&rules, "GET", "/", &[(fields.0, &fields.1)]);
            assert_eq!(got, Err(why), "{fields:?}");
        }
    }

    #[test]
    fn method_body_or_path_can_bypass_the_cache() {
        let rules = wordpress();
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "get", "M-SEARCH"] {
            assert_eq!(ask(&rules, method, "/", &[]), Err(Pass::Method), "{method}");
        }
        assert_eq!(
            ask(&rules, "GET", "/wp-admin/", &[]),
            Err(Pass::NeverCachedPath)
        );
        assert_eq!(
            ask(&rules, "GET", "/shop/x", &[]),
            Err(Pass::NeverCachedPath)
        );
        let gate = RequestGate::new(&rules, b"GET", b"/", true);
        assert_eq!(gate.verdict(), Err(Pass::RequestBody));
    }

    #[test]
    fn cookie_of_fragments_affects_only_fragments() {
        for scheme in [CacheScheme::CleanRoom, CacheScheme::Rfc] {
            let rules = CacheRules {
                scheme,
                esi: Some(EsiRules {
                    cookies: vec!["PHPSESSID".to_owned(), "cart_*".to_owned()],
                    ..EsiRules::default()
                }),
                ..CacheRules::for_tests()
            };
            let verdict = |is_fragment: bool, cookie: &str| {
                let mut gate = RequestGate::new(&rules, b"GET", b"/", false);
                if is_fragment {
                    gate.set_fragment();
                }
                gate.check_header(b"Cookie", cookie.as_bytes());
                gate.verdict()
            };
            assert_eq!(verdict(false, "PHPSESSID=a; cart_1=b"), Ok(()));
            assert_eq!(verdict(true, "PHPSESSID=a"), Err(Pass::SessionCookie));
            if scheme == CacheScheme::CleanRoom {
                assert_eq!(verdict(true, "cart_1=b"), Err(Pass::UnknownCookie));
                assert_eq!(verdict(false, "cart_1=b; c=d"), Err(Pass::UnknownCookie));
            }
        }
    }

    #[test]
    fn cookie_that_pages_vary_by_counts_only_if_php_sees_the_value_of_the_key() {
        let rules = CacheRules {
            vary: VaryRules {
                cookies: vec!["currency".to_owned()],
                mobile: false,
            },
            ..wordpress()
        };
        let verdict = |lines: &[&str]| {
            let lines: Vec<_> = lines.iter().map(|line| ("Cookie", *line)).collect();
            ask(&rules, "GET", "/", &lines)
        };
        assert_eq!(verdict(&["currency=EUR; theme=dark"]), Ok(()));
        assert_eq!(verdict(&["currency="]), Ok(()));
        for tricky in [
            &["currency=EUR; currency=USD"][..],
            &["currency=EUR", "currency=EUR"],
            &["currency[a]=EUR"],
            &["%63urrency=EUR"],
        ] {
            assert_eq!(verdict(tricky), Err(Pass::UnreadableCookie), "{tricky:?}");
        }
        for other in ["Currency=EUR", "currency_2=EUR"] {
            assert_eq!(verdict(&[other]), Err(Pass::UnknownCookie), "{other}");
        }
        let logged_in = "currency=EUR; wordpress_logged_in_1=a";
        assert_eq!(verdict(&[logged_in]), Err(Pass::SessionCookie));
    }

    #[test]
    fn under_rfc_an_unknown_cookie_is_the_applications_to_declare_but_a_session_is_not() {
        let rules = CacheRules {
            scheme: CacheScheme::Rfc,
            ..CacheRules::for_tests()
        };
        assert_eq!(ask(&rules, "GET", "/", &[("Cookie", "a=b")]), Ok(()));
        let session = [("Cookie", "PHPSESSID=b")];
        assert_eq!(ask(&rules, "GET", "/", &session), Err(Pass::SessionCookie));
    }
}
