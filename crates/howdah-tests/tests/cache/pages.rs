//! The page cache over HTTP: which pages are shared and which never are, and writes that invalidate pages. For shared
//! renders see `flights.rs`; for known attacks see `attacks/cache_attacks`.

use std::net::SocketAddr;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Counts its renders and prints every part of its request that it could leak.
const PAGE: &str = r#"<?php
file_put_contents('SCRATCH/renders', "x", FILE_APPEND);
if (isset($_GET['cookie'])) setcookie('visitor', 'somebody');
if (isset($_GET['session'])) session_start();
if (isset($_GET['private'])) header('Cache-Control: private');
if (isset($_GET['silent'])) { ini_set('session.use_cookies', '0'); session_cache_limiter(''); session_start(); session_write_close(); }
if (isset($_GET['nocache'])) define('DONOTCACHEPAGE', true);
if (isset($_GET['fatal'])) { echo 'half'; flush(); no_such_function(); }
if (isset($_GET['fail'])) http_response_code(500);
if ($_SERVER['REQUEST_METHOD'] === 'POST') file_put_contents('SCRATCH/text', file_get_contents('php://input'));
$text = @file_get_contents('SCRATCH/text');
echo "text=$text ";
foreach (['REMOTE_ADDR', 'HTTP_USER_AGENT', 'HTTP_COOKIE', 'HTTP_X_FORWARDED_HOST', 'HTTP_X_ORIGINAL_URL', 'HTTP_REFERER', 'QUERY_STRING', 'HTTP_ACCEPT_LANGUAGE'] as $name)
    echo $name, '=', $_SERVER[$name] ?? '-', ' ';
echo 'end';
"#;

fn server(name: &str, lines: &str) -> Fixture {
    Fixture::named(name)
        .children(4)
        .script("page.php", PAGE)
        .site(lines)
        .start()
}

fn ask(address: SocketAddr, method: &str, path: &str, lines: &str) -> Response {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}Connection: close\r\n\r\n"
    );
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{method} {path}: {why}"))
}

fn cache(response: &Response) -> String {
    response.header("Cache-Status").unwrap_or("none").to_owned()
}

fn renders(fixture: &Fixture) -> usize {
    std::fs::read(fixture.path("renders")).map_or(0, |bytes| bytes.len())
}

#[test]
fn page_is_rendered_once_and_holds_nothing_of_whoever_asked_first() {
    let fixture = server("cache-clean", "cache = \"on\"");
    let evil = "User-Agent: evil-agent\r\nX-Forwarded-Host: evil.example\r\nX-Original-URL: /evil\r\n\
                Referer: evil-page\r\nAccept-Language: evil\r\nCookie: _ga=evil\r\n";
    // The visitor's own response shows that the page can be stored, but is not itself stored.
    let own = ask(fixture.address(), "GET", "/page.php?utm_source=evil", evil);
    assert_eq!(cache(&own), "Howdah; fwd=miss; detail=NotYetAdmitted");
    assert_eq!(own.header("X-Cache"), Some("MISS"));
    let own = own.text();
    assert!(own.contains("HTTP_USER_AGENT=evil-agent"), "{own}");
    let first = ask(fixture.address(), "GET", "/page.php?utm_source=evil", evil);
    assert_eq!(
        cache(&first),
        "Howdah; fwd=miss; stored",
        "{}",
        first.text()
    );
    assert!(!first.text().contains("evil"), "{}", first.text());
    assert!(
        first.text().contains("REMOTE_ADDR=192.0.2.1"),
        "{}",
        first.text()
    );
    for lines in ["", evil, "Cookie: _ga=x; __utma=y\r\n"] {
        let again = ask(fixture.address(), "GET", "/page.php", lines);
        assert!(
            cache(&again).starts_with("Howdah; hit; ttl="),
            "{}",
            cache(&again)
        );
        assert_eq!(again.header("X-Cache"), Some("HIT"));
        assert_eq!(again.body, first.body);
    }
    let head = ask(fixture.address(), "HEAD", "/page.php", "");
    assert!(cache(&head).starts_with("Howdah; hit"), "{}", cache(&head));
    let tag = first.header("ETag").expect("a page gets a tag").to_owned();
    let none = ask(
        fixture.address(),
        "GET",
        "/page.php",
        &format!("If-None-Match: {tag}\r\n"),
    );
    assert_eq!((none.status(), none.body.len()), (304, 0));
    let part = ask(
        fixture.address(),
        "GET",
        "/page.php",
        "Range: bytes=0-4\r\n",
    );
    assert_eq!((part.status(), part.text()), (206, "text=".to_owned()));
    assert_eq!(renders(&fixture), 2);
}

#[test]
fn whoever_is_somebody_gets_his_own_answer_and_leaves_nothing_behind() {
    let fixture = server("cache-personal", "cache = \"on\"");
    for (lines, why) in [
        ("Cookie: PHPSESSID=secret\r\n", "SessionCookie"),
        ("Cookie: PHPSESSID[a]=secret\r\n", "SessionCookie"),
        ("Cookie: %50HPSESSID=secret\r\n", "SessionCookie"),
        ("Cookie: anything=secret\r\n", "UnknownCookie"),
        ("Cookie: a%00b=secret\r\n", "UnreadableCookie"),
        (
            "Authorization: Basic c2VjcmV0OnNlY3JldA==\r\n",
            "Authorization",
        ),
        ("X-HTTP-Method-Override: DELETE\r\n", "MethodOverride"),
        ("Accept: application/json\r\n", "OtherRepresentation"),
        ("Content-Length: 0\r\n", "RequestBody"),
    ] {
        let own = ask(fixture.address(), "GET", "/page.php", lines);
        let expected = format!("Howdah; fwd=bypass; detail={why}");
        assert_eq!(cache(&own), expected, "{lines}");
    }
    ask(fixture.address(), "GET", "/page.php", "");
    let anonymous = ask(fixture.address(), "GET", "/page.php", "");
    assert_eq!(cache(&anonymous), "Howdah; fwd=miss; stored");
    assert!(!anonymous.text().contains("secret"), "{}", anonymous.text());
}

#[test]
fn answer_with_a_cookie_a_session_or_a_private_word_is_never_shared() {
    let fixture = server("cache-refused", "cache = \"on\"");
    for (query, why) in [
        ("cookie", "SetCookie"),
        ("session", "SessionOpened"),
        ("private", "Private"),
        ("fail", "ServerError"),
        ("silent", "SessionOpened"),
        ("nocache", "DoNotCachePage"),
        ("fatal", "FatalError"),
    ] {
        let path = format!("/page.php?{query}=1");
        let told: Vec<String> = (0..3)
            .map(|_| cache(&ask(fixture.address(), "GET", &path, "")))
            .collect();
        // A failure after the headers have been sent may come too late to be named in them.
        let late = |told: &String| query == "fatal" && told.ends_with("NotYetAdmitted");
        let expected = format!("Howdah; fwd=miss; detail={why}");
        assert!(told.iter().all(|t| *t == expected || late(t)), "{told:?}");
    }
    // Each of these responses came from the visitor's own run of the script, and there was no other run.
    assert_eq!(renders(&fixture), 7 * 3);
}

#[test]
fn urls_that_can_be_read_in_two_ways_are_not_cached() {
    let fixture = server("cache-urls", "cache = \"on\"");
    for (path, why) in [
        ("//page.php", "AmbiguousPath"),
        ("/page.php/%2e%2e/x.css", "AmbiguousPath"),
        ("/page.php/x;y.css", "AmbiguousPath"),
        ("/page.php?_method=DELETE", "MethodOverride"),
    ] {
        let answer = ask(fixture.address(), "GET", path, "");
        // Some of these responses do not come from a script, and the cache does not handle such responses.
        let told = cache(&answer);
        let passed = told == format!("Howdah; fwd=bypass; detail={why}");
        assert!(passed || told == "none", "{path}: {told}");
    }
    let hosts = ["one.example", "two.example:81"];
    for host in hosts {
        let request =
            format!("GET /page.php HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        exchange(fixture.address(), request.as_bytes()).unwrap();
        let answer = exchange(fixture.address(), request.as_bytes()).unwrap();
        assert_eq!(
            cache(&answer),
            "Howdah; fwd=miss; stored",
            "{host} has a page of its own"
        );
    }
}

#[test]
fn under_rfc_nobody_gets_links_in_the_spelling_that_another_visitor_chose() {
    let fixture = Fixture::named("cache-rfc-spelling")
        .script(
            "page.php",
            "<?php header('Cache-Control: max-age=600'); $host = $_SERVER['HTTP_X_FORWARDED_HOST'] ?? $_SERVER['HTTP_HOST']; echo \"http://$host$_SERVER[REQUEST_URI] $_SERVER[SERVER_PROTOCOL]\";",
        )
        .site("cache = \"rfc\"")
        .start();
    let exchange = |request: String| {
        let request = format!("{request}Connection: close\r\n\r\n");
        exchange(fixture.address(), request.as_bytes()).expect("a response")
    };
    let spellings = [
        (
            "AmbiguousUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: SHOP.example\r\n",
        ),
        (
            "AmbiguousUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example.\r\n",
        ),
        (
            "AmbiguousUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example:80\r\n",
        ),
        (
            "AmbiguousUrl",
            "GET http://shop.example/page.php?N HTTP/1.1\r\nHost: shop.example\r\n",
        ),
        (
            "AmbiguousUrl",
            "GET hTTp://SHOP.EXAMPLE./page.php?N HTTP/1.1\r\nHost: x\r\n",
        ),
        (
            "OldProtocol",
            "GET /page.php?N HTTP/1.0\r\nHost: shop.example\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Host: evil.example\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Proto: https\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Port: 444\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nX-Rewrite-Url: /evil\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nForwarded: for=1.2.3.4;host=evil.example\r\n",
        ),
        (
            "ForwardedUrl",
            "GET /page.php?N HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Prefix: /evil\r\n",
        ),
    ];
    for (number, (why, attack)) in spellings.iter().enumerate() {
        let path = format!("/page.php?{number}");
        for _ in 0..3 {
            let response = exchange(attack.replace("/page.php?N", &path));
            let told = cache(&response);
            assert!(told.ends_with(&format!("detail={why}")), "{attack}: {told}");
        }
        let plain = || exchange(format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\n"));
        let expected = format!("http://shop.example{path} HTTP/1.1");
        assert_eq!(plain().text(), expected, "after {attack}");
        let stored = plain();
        assert_eq!(stored.text(), expected);
        assert!(
            cache(&stored).starts_with("Howdah; hit"),
            "{}",
            cache(&stored)
        );
    }
    // Forwarding headers that name the request's own URL have no effect.
    let proxied = |path: &str| {
        exchange(format!(
            "GET {path} HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-Host: shop.example\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 80\r\n"
        ))
    };
    proxied("/page.php?proxied");
    let stored = proxied("/page.php?proxied");
    assert!(
        cache(&stored).starts_with("Howdah; hit"),
        "{}",
        cache(&stored)
    );
    // A client of HTTP/1.0 receives the stored page.
    let old = exchange("GET /page.php?0 HTTP/1.0\r\nHost: shop.example\r\n".to_owned());
    assert!(cache(&old).starts_with("Howdah; hit"), "{}", cache(&old));
}

#[test]
fn write_is_seen_by_its_writer_and_by_all_readers() {
    let fixture = server("cache-writes", "cache = \"on\"");
    ask(fixture.address(), "GET", "/page.php", "");
    for text in ["one", "two", "three"] {
        let lines = format!("Content-Length: {}\r\n\r\n{text}", text.len());
        let request =
            format!("POST /page.php HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{lines}");
        let wrote = exchange(fixture.address(), request.as_bytes()).unwrap();
        assert_eq!(cache(&wrote), "Howdah; fwd=method; detail=Method");
        for expected in ["Howdah; fwd=miss; stored", "Howdah; hit; ttl="] {
            let read = ask(fixture.address(), "GET", "/page.php", "");
            assert!(cache(&read).starts_with(expected), "{}", cache(&read));
            assert!(
                read.text().starts_with(&format!("text={text} ")),
                "{}",
                read.text()
            );
        }
    }
    // A reload may bring new code, so the cache begins empty.
    fixture.reload();
    ask(fixture.address(), "GET", "/page.php", "");
    let read = ask(fixture.address(), "GET", "/page.php", "");
    assert_eq!(cache(&read), "Howdah; fwd=miss; stored");
    let status = fixture.status();
    assert_eq!(status["cache"]["sites"][0]["stored"], 1, "{status}");
}

#[test]
fn administrator_purges_and_asks_why() {
    let fixture = server("cache-steer", "cache = \"on\"");
    let words = |words: &[&str]| {
        let output = fixture.control(words);
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    let told = |path: &str| cache(&ask(fixture.address(), "GET", path, ""));
    for path in ["/page.php", "/page.php/below"] {
        assert_eq!(told(path), "Howdah; fwd=miss; detail=NotYetAdmitted");
        assert_eq!(told(path), "Howdah; fwd=miss; stored");
        assert!(told(path).starts_with("Howdah; hit"));
    }
    let explain = [
        "cache",
        "explain",
        "http://example.org/page.php?utm_source=x",
    ];
    assert!(
        words(&explain).contains("stored: fresh; status 200"),
        "{}",
        words(&explain)
    );
    let cookie = [
        "cache",
        "explain",
        "http://example.org/page.php",
        "-H",
        "Cookie: x=1",
    ];
    assert!(
        words(&cookie).contains("UnknownCookie: ") && words(&cookie).contains("the cookie `x`"),
        "{}",
        words(&cookie)
    );
    let passed =
        "GET /page.php HTTP/1.1\r\nHost: example.org\r\nCookie: x=1\r\nConnection: close\r\n\r\n";
    for _ in 0..3 {
        exchange(fixture.address(), passed.as_bytes()).unwrap();
    }
    let cookies = &fixture.status()["cache"]["sites"][0]["cookies"];
    assert_eq!(*cookies, serde_json::json!([["x", 3]]));
    assert!(words(&["status"]).contains("unknown cookies: x 3"));
    assert_eq!(
        words(&["cache", "purge", "/page.php"]),
        "purged: /page.php (1 page in memory)\n"
    );
    assert_eq!(
        words(&["cache", "purge", "/pgae.php"]),
        "purged: /pgae.php (no page in memory)\n"
    );
    assert_eq!(told("/page.php"), "Howdah; fwd=miss; stored");
    assert!(told("/page.php/below").starts_with("Howdah; hit"));
    assert_eq!(
        words(&["cache", "purge", "--soft", "/page*"]),
        "made stale: /page* (2 pages in memory)\n"
    );
    let stale = ask(fixture.address(), "GET", "/page.php/below", "");
    assert_eq!(stale.status(), 200);
    let said = words(&["cache", "purge", "--all"]);
    assert!(said.starts_with("purged: everything ("), "{said}");
    assert_eq!(told("/page.php"), "Howdah; fwd=miss; stored");
    assert!(words(&["cache", "purge"]).contains("NothingToPurge"));
    assert!(words(&["cache", "purge", "--all", "--site", "x"]).contains("NoSuchSite"));
    assert!(words(&["cache", "purge", "page"]).contains("BadUrl"));
}

/// A page that is validated before each use. Its header counts the runs of the script.
const VALIDATED_PAGE: &str = r#"<?php
file_put_contents('SCRATCH/renders', "x", FILE_APPEND);
header(file_exists('SCRATCH/private') ? 'Cache-Control: private' : 'Cache-Control: public, no-cache');
header('ETag: "one"');
header('X-Run: ' . filesize('SCRATCH/renders'));
if (($_SERVER['HTTP_IF_NONE_MATCH'] ?? '') === '"one"') { http_response_code(304); exit; }
echo 'made by run ', filesize('SCRATCH/renders');
"#;

#[test]
fn rfc_9111_4_3_4_stored_page_is_freshened_by_a_304_of_its_script() {
    let fixture = Fixture::named("cache-validated")
        .script("page.php", VALIDATED_PAGE)
        .site("cache = \"rfc\"")
        .start();
    let get = |run: &str, text: &str, verdict: &str| {
        let page = ask(fixture.address(), "GET", "/page.php", "");
        assert_eq!((page.status(), page.text()), (200, text.to_owned()));
        assert_eq!(page.header("X-Run"), Some(run));
        assert_eq!(cache(&page), format!("Howdah; {verdict}"));
    };
    get("1", "made by run 1", "fwd=miss; stored");
    get("2", "made by run 1", "fwd=stale; fwd-status=304");
    get("3", "made by run 1", "fwd=stale; fwd-status=304");
    // If a 304 says that the page may no longer be stored, the stored page is served for the last time.
    fixture.write("private", "");
    get("3", "made by run 1", "fwd=stale; fwd-status=304");
    get("5", "made by run 5", "fwd=miss; detail=Private");
}
