//! Shared pages that vary by cookies and by the kind of browser: each visitor gets a page that was rendered for the same
//! value, and a value that a visitor makes up changes nothing for others.

use howdah_tests::fixture::{Fixture, TRUSTED_PROXIES, from};
use howdah_tests::http::{Response, exchange};

const SCRIPT: &str = r#"<?php
file_put_contents('SCRATCH/runs', 'x', FILE_APPEND | LOCK_EX);
if (($_COOKIE['currency'] ?? 'EUR') === 'forged') setcookie('currency', 'EUR');
header("X-LiteSpeed-Vary: cookie=currency");
echo 'cookies=', json_encode($_COOKIE), ' vary=', $_SERVER['LSCACHE_VARY_VALUE'] ?? 'none',
    ' mobile=', (int) str_contains($_SERVER['HTTP_USER_AGENT'] ?? '', 'Mobile');
"#;
const PHONE: &str = "User-Agent: Mozilla/5.0 (iPhone) Mobile/15E148\r\n";

fn ask(fixture: &Fixture, lines: &str) -> Response {
    let request =
        format!("GET /page.php HTTP/1.1\r\nHost: example.org\r\n{lines}Connection: close\r\n\r\n");
    exchange(fixture.address(), request.as_bytes()).expect("a response")
}

/// Returns the stored page for a request with these headers.
fn stored(fixture: &Fixture, lines: &str) -> String {
    let is_hit = |page: &Response| page.header("X-Cache") == Some("HIT");
    fixture.wait("the page to be stored", |fixture| {
        is_hit(&ask(fixture, lines))
    });
    let page = ask(fixture, lines);
    assert!(is_hit(&page), "{page:?}");
    page.text()
}

fn runs(fixture: &Fixture) -> usize {
    std::fs::read(fixture.path("runs")).map_or(0, |bytes| bytes.len())
}

#[test]
fn each_value_of_a_cookie_has_a_page_of_its_own() {
    let fixture = Fixture::named("vary-cookies")
        .script("page.php", SCRIPT)
        .site("cache = \"on\"\ncache_vary_cookies = [\"currency\", \"size\"]")
        .start();
    for (lines, cookies) in [
        ("", "[]"),
        ("Cookie: currency=EUR\r\n", r#"{"currency":"EUR"}"#),
        (
            "Cookie: _ga=1; currency=US%20D\r\n",
            r#"{"currency":"US D"}"#,
        ),
        ("Cookie: currency=\r\n", r#"{"currency":""}"#),
        (
            "Cookie: size=9\r\nCookie: currency=EUR\r\n",
            r#"{"currency":"EUR","size":"9"}"#,
        ),
    ] {
        let expected = format!("cookies={cookies} vary=none mobile=0");
        assert_eq!(stored(&fixture, lines), expected, "{lines}");
    }
    // All pages are still there.
    let before = runs(&fixture);
    for lines in ["", "Cookie: currency=EUR\r\n", "Cookie: currency=\r\n"] {
        assert_eq!(ask(&fixture, lines).header("X-Cache"), Some("HIT"));
    }
    assert_eq!(runs(&fixture), before);
    // Caches in front have to know, too.
    let varies = |page: &Response| page.head.headers.all("Vary").any(|line| line == "Cookie");
    assert!(varies(&ask(&fixture, "")) && varies(&ask(&fixture, "Cookie: x=1\r\n")));
    for (lines, why) in [
        ("Cookie: currency=EUR; colour=red\r\n", "UnknownCookie"),
        ("Cookie: currency=EUR; currency=USD\r\n", "UnreadableCookie"),
        ("Cookie: currency[]=EUR\r\n", "UnreadableCookie"),
    ] {
        let page = ask(&fixture, lines);
        let status = page.header("Cache-Status").unwrap_or_default();
        assert!(status.ends_with(why), "{lines}: {status}");
    }
}

#[test]
fn forged_value_stores_nothing_and_changes_nothing_for_others() {
    let fixture = Fixture::named("vary-forged")
        .script("page.php", SCRIPT)
        .site("cache = \"on\"\ncache_vary_cookies = [\"currency\"]")
        .start();
    let plain = stored(&fixture, "");
    for _ in 0..5 {
        let forged = ask(&fixture, "Cookie: currency=forged\r\n");
        assert_eq!(forged.header("X-Cache"), Some("PASS"), "{forged:?}");
        assert!(forged.header("Set-Cookie").is_some());
    }
    // A crafted value adds no cookie, no header and no parameter to the request that the page is rendered with.
    let crafted = "a%3b%20admin=1&size=2";
    let lines = format!("Cookie: currency={crafted}\r\n");
    let expected = r#"cookies={"currency":"a; admin=1&size=2"} vary=none mobile=0"#;
    assert_eq!(stored(&fixture, &lines), expected);
    let long = format!("Cookie: currency={}\r\n", "x".repeat(1025));
    for _ in 0..5 {
        assert_eq!(ask(&fixture, &long).header("X-Cache"), Some("PASS"));
    }
    let page = ask(&fixture, "");
    assert_eq!(page.header("X-Cache"), Some("HIT"));
    assert_eq!(page.text(), plain);
}

#[test]
fn mobile_browsers_get_pages_of_their_own() {
    let fixture = Fixture::named("vary-mobile")
        .script("page.php", SCRIPT)
        .site("cache = \"on\"\ncache_vary_mobile = \"on\"")
        .start();
    let desk = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\n";
    let hinted = format!("{PHONE}Sec-CH-UA-Mobile: ?1\r\n");
    for _ in 0..2 {
        for (lines, expected) in [
            ("", "cookies=[] vary=none mobile=0"),
            (desk, "cookies=[] vary=none mobile=0"),
            (PHONE, "cookies=[] vary=ismobile mobile=1"),
            (&hinted, "cookies=[] vary=ismobile mobile=1"),
        ] {
            assert_eq!(stored(&fixture, lines), expected, "{lines}");
        }
    }
    // Versions of WordPress disagree about this browser.
    let tablet = format!("{PHONE}Sec-CH-UA-Mobile: ?0\r\n");
    let page = ask(&fixture, &tablet);
    let status = page.header("Cache-Status").unwrap_or_default();
    assert!(status.ends_with("UnclearBrowser"), "{status}");
    // A client cannot set the variable.
    let lines = "X-LSCACHE-Vary-Value: ismobile\r\nLSCACHE-VARY-VALUE: ismobile\r\n";
    assert!(ask(&fixture, lines).text().contains("vary=none"));
}

/// The plugin offers ESI and its crawler if it finds `X-LSCACHE` with the word `crawler` and no edition.
#[test]
fn litespeed_plugin_finds_esi_only_where_fragments_and_private_pages_are() {
    let script = "<?php echo json_encode([$_SERVER['X-LSCACHE'] ?? null, $_SERVER['LSWS_EDITION'] ?? null]);";
    let without = r#"["on","Openlitespeed 1.8 (Howdah)"]"#;
    let esi = "[site.esi]\npaths = [\"litespeed\"]";
    for (lines, expected) in [
        ("cache = \"on\"".to_owned(), without),
        (format!("cache = \"on\"\n{esi}"), without),
        (
            "cache = \"on\"\n[site.esi]\npaths = [\"/a\"]\n[site.private]".to_owned(),
            without,
        ),
        (format!("cache = \"rfc\"\n{esi}\n[site.private]"), without),
        (
            format!("cache = \"on\"\n{esi}\n[site.private]"),
            r#"["on,crawler",null]"#,
        ),
        (
            "cache = \"on\"\n[site.esi]\npaths = [\"/blog/?lsesi=\"]\n[site.private]".to_owned(),
            r#"["on,crawler",null]"#,
        ),
    ] {
        let fixture = Fixture::named("litespeed-esi")
            .script("page.php", script)
            .site(&lines)
            .start();
        assert_eq!(ask(&fixture, "").text(), expected, "{lines}");
    }
}

/// A client on another machine must not make the server store a page at its first visit, so this crawler's name counts
/// only where the plugin can be.
#[test]
fn crawler_of_the_litespeed_plugin_has_a_page_stored_at_its_first_request() {
    let start = |tables: &str| {
        Fixture::named("litespeed-crawler")
            .script("page.php", "<?php echo 'page';")
            .config(TRUSTED_PROXIES)
            .site(&format!("cache = \"on\"\n{tables}"))
            .start()
    };
    let status = |fixture: &Fixture, lines: &str| {
        let page = ask(fixture, lines);
        page.header("Cache-Status").unwrap_or_default().to_owned()
    };
    let crawler = "User-Agent: lscache_runner Mobile iPhone\r\n";
    let far = format!("{crawler}{}", from("203.0.113.9"));
    // The page for another value of the cookie has not been requested before.
    let near = format!("{crawler}Cookie: _lscache_vary=1\r\n");
    let not_yet = "Howdah; fwd=miss; detail=NotYetAdmitted";
    let fixture = start("[site.esi]\npaths = [\"litespeed\"]\n[site.private]");
    assert_eq!(status(&fixture, &far), not_yet);
    let page = ask(&fixture, &format!("{far}Cookie: _lscache_vary=2\r\n"));
    assert_eq!(page.header("X-LiteSpeed-Cache"), Some("miss"));
    assert_eq!(status(&fixture, &near), "Howdah; fwd=miss; stored");
    assert_eq!(status(&start(""), crawler), not_yet);
}
