use super::*;
use crate::key::{QueryRules, Url};
use crate::policy::PrivateRules;

const ANN: &str = "0123456789abcdef-ann";
const BOB: &str = "0123456789abcdef-bob";

fn rules() -> CacheRules {
    CacheRules {
        private: Some(PrivateRules {
            cookies: vec!["sid".to_owned(), "login_*".to_owned()],
        }),
        ignore_cookies: vec!["theme".to_owned()],
        ..CacheRules::for_tests()
    }
}

fn headers<'h>(
    lines: &'h [(&'h str, &'h str)],
) -> impl Iterator<Item = (&'h [u8], &'h [u8])> + Clone {
    lines.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()))
}

fn cookies(key: &VisitorKey, line: &str) -> VisitorCookies {
    key.cookies("shop", &rules(), headers(&[("Cookie", line)]))
}

#[test]
fn visitor_is_identified_by_the_values_of_the_named_cookies() {
    let key = VisitorKey::default();
    let identity = |line: &str| cookies(&key, line).identity().map(<[_]>::to_vec);
    let ann = identity(&format!("sid={ANN}")).expect("one visitor");
    assert_eq!(ann.len(), 1);
    assert_eq!(
        identity(&format!("a=b; sid={ANN}; theme=x")),
        Some(ann.clone())
    );
    // PHP decodes the value.
    assert_eq!(
        identity(&format!("sid=%30{}", &ANN[1..])),
        Some(ann.clone())
    );
    assert_ne!(identity(&format!("sid={BOB}")), Some(ann.clone()));
    assert_ne!(identity(&format!("login_1={ANN}")), Some(ann.clone()));
    let both = identity(&format!("sid={ANN}; login_1={BOB}")).expect("one visitor");
    assert!(both.len() == 2 && both.contains(&ann[0]));
    // Another site of the same server, and another process, have other tokens.
    let elsewhere = key.cookies(
        "blog",
        &rules(),
        headers(&[("Cookie", &format!("sid={ANN}"))]),
    );
    assert_ne!(elsewhere.identity(), Some(&ann[..]));
    let other = cookies(&VisitorKey::default(), &format!("sid={ANN}"));
    assert_ne!(other.identity(), Some(&ann[..]));
}

#[test]
fn doubtful_cookies_identify_nobody_and_are_known_to_writes() {
    let key = VisitorKey::default();
    let ann = cookies(&key, &format!("sid={ANN}")).tokens()[0];
    for line in [
        format!("sid={ANN}; sid={BOB}"),
        format!("sid={ANN}; sid={ANN}"),
        format!("sid={ANN}; sid[]={BOB}"),
        format!("%73id={ANN}"),
        format!("sid[a]={ANN}"),
        format!("sid={ANN}; login_1="),
        format!("sid={ANN}; login_1=short"),
        format!("sid={ANN}; a%00=1"),
    ] {
        let found = cookies(&key, &line);
        assert_eq!(found.identity(), None, "{line}");
        assert!(found.tokens().contains(&ann), "{line}");
    }
    for line in ["", "a=b", "sid=", "sid", "sid=short", &format!("SID={ANN}")] {
        assert_eq!(cookies(&key, line).identity(), None, "{line}");
    }
    let two_lines = [
        ("Cookie", &*format!("sid={ANN}")),
        ("cookie", &*format!("sid={BOB}")),
    ];
    let found = key.cookies("shop", &rules(), headers(&two_lines));
    assert_eq!((found.identity(), found.tokens().len()), (None, 2));
    let very_long = format!("sid={}", "x".repeat(60_000));
    assert!(cookies(&key, &very_long).identity().is_some());
}

#[test]
fn many_cookies_identify_nobody_and_are_all_known_to_writes() {
    let key = VisitorKey::default();
    let found = |count: usize| {
        let pairs: Vec<_> = (0..count).map(|n| format!("login_{n}={ANN}")).collect();
        cookies(&key, &pairs.join("; "))
    };
    let most = found(MAX_VISITOR_COOKIES);
    assert_eq!(most.identity().unwrap().len(), MAX_VISITOR_COOKIES);
    let many = found(MAX_VISITOR_COOKIES + 1);
    assert_eq!(
        (many.identity(), many.tokens().len()),
        (None, MAX_VISITOR_COOKIES + 1)
    );
}

#[test]
fn key_contains_everything_that_may_change_the_response() {
    let secret = VisitorKey::default();
    let sid = format!("sid={ANN}");
    let key = |lines: &[(&str, &str)], facts: &[&[u8]], configuration: u64, path: &str| {
        let mut url = PageKey::default();
        let query = QueryRules {
            drop_tracking: false,
            ignored: &[],
            excluded: &[],
        };
        let of = Url {
            site: 0,
            https: false,
            host: b"h",
            path: path.as_bytes(),
            query: None,
        };
        url.make(&of, &query).unwrap();
        let found = secret.cookies("shop", &rules(), headers(lines));
        let visitor = found.identity().unwrap();
        secret.page_key(
            &url,
            visitor,
            &rules(),
            headers(lines),
            (configuration, facts),
        )
    };
    let base = [("Cookie", &sid[..]), ("User-Agent", "A")];
    let own = key(&base, &[b"127.0.0.1"], 1, "/");
    assert_eq!(own, key(&base, &[b"127.0.0.1"], 1, "/"));
    // Neither order nor case of names matters, nor do headers without a meaning for the page.
    let same = [
        ("user-agent", "A"),
        ("Referer", "/x"),
        ("If-None-Match", "*"),
        ("cookie", &format!("theme=dark; {sid}")),
    ];
    assert_eq!(own, key(&same, &[b"127.0.0.1"], 1, "/"));
    let bob = format!("sid={BOB}");
    let more = format!("{sid}; currency=eur");
    for other in [
        [("Cookie", &bob[..]), ("User-Agent", "A")],
        [("Cookie", &more), ("User-Agent", "A")],
        [("Cookie", &sid), ("User-Agent", "B")],
        [("Cookie", &sid), ("Accept", "A")],
        [("Cookie", &sid), ("X-Forwarded-For", "A")],
    ] {
        assert_ne!(own, key(&other, &[b"127.0.0.1"], 1, "/"), "{other:?}");
    }
    assert_ne!(own, key(&base, &[b"127.0.0.2"], 1, "/"));
    assert_ne!(own, key(&base, &[b"127.0.0.1"], 2, "/"));
    assert_ne!(own, key(&base, &[b"127.0.0.1"], 1, "/a"));
    // The value itself is not in the key.
    let contains = |text: &str| own.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(!contains(ANN) && contains("/"));
}

#[test]
fn logout_is_recognised_by_the_cookies_that_a_response_sets() {
    let sets = |value: &str| sets_visitor_cookie(&rules(), headers(&[("Set-Cookie", value)]));
    for value in [
        "sid=x",
        "sid=deleted; expires=Thu, 01 Jan 1970 00:00:01 GMT; path=/",
        "login_7=; Max-Age=0",
        "%73id=x",
        "a%00b=x",
    ] {
        assert!(sets(value), "{value}");
    }
    for value in ["theme=sid", "x=1; sid=2", "SID=x", ""] {
        assert!(!sets(value), "{value}");
    }
}
