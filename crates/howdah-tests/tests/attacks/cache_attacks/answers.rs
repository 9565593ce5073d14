//! Attacks through responses: a personal response that is stored for all clients. The comment of a test describes
//! either the attack, which must fail, or what must hold instead.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::exchange;

use super::{ask, cache_status, is_hit, is_shared, page, reads, server};

/// "Your Cache Has Fallen" (CPDoS, 2019): an error that one client provokes is served to all clients.
#[test]
fn error_pages_provoked_by_a_client() {
    let php = "<?php
if (strlen($_SERVER['HTTP_X_LONG'] ?? '') > 100) http_response_code(400);
if (isset($_SERVER['HTTP_X_BAD'])) http_response_code(404);
if ($_SERVER['REQUEST_METHOD'] === 'HEAD') http_response_code(405);
if (isset($_GET['status'])) {
    http_response_code((int) $_GET['status']);
    header('Cache-Control: public, max-age=600');
}
if (file_exists('SCRATCH/trouble')) http_response_code(503);
echo 'fine ', @file_get_contents('SCRATCH/trouble');
";
    let fixture = page("errors", php);
    let address = fixture.address();
    let long = "x".repeat(20_000);
    for lines in [
        format!("X-Long: {long}\r\n"),
        format!("X-Longer: {long}{long}{long}\r\n"),
        "X-Bad: 1\r\n".to_owned(),
        "X-Meta: a\x07b\r\n".to_owned(),
        "X-Meta : a\r\n".to_owned(),
        "Expect: evil\r\n".to_owned(),
        "Range: bytes=999999-\r\n".to_owned(),
        "If-Match: \"evil\"\r\n".to_owned(),
        "Accept: application/json\r\n".to_owned(),
        "Upgrade: evil\r\n".to_owned(),
    ] {
        ask(address, "GET", "/page.php", &lines);
        ask(address, "HEAD", "/page.php", &lines);
        assert_eq!(reads(&fixture, "/page.php").text(), "fine ", "{lines:.40}");
    }
    is_hit(&reads(&fixture, "/page.php"));
    // Errors are not stored even if the application allows it.
    for status in [
        400, 401, 405, 406, 408, 411, 412, 413, 414, 415, 416, 417, 429, 431, 500, 502, 503, 504,
    ] {
        let target = format!("/page.php?status={status}");
        for _ in 0..3 {
            let answer = ask(address, "GET", &target, "");
            assert_eq!(answer.status(), status);
            assert!(!is_shared(&answer), "{status}: {}", cache_status(&answer));
        }
    }
    // A good page is never replaced by an error.
    fixture.write("trouble", "evil");
    is_hit(&reads(&fixture, "/page.php"));
}

/// "Web Cache Deception" (Gil, 2017; Mirheidari, 2020; "Gotta cache 'em all", 2024): a victim is led to a URL that
/// looks like a file, and the victim's page is stored for all clients.
#[test]
fn cache_deception() {
    let fixture = server("deception");
    let victim = [
        "Cookie: PHPSESSID=victim\r\n",
        "Authorization: Basic dmljdGltOng=\r\n",
    ];
    for target in [
        "/mirror.php",
        "/mirror.php/x.css",
        "/mirror.php/a/b/x.js",
        "/mirror.php/x.css?y.png",
        "/mirror.php;x.css",
        "/mirror.php/;x.css",
        "/mirror.php%2fx.css",
        "/mirror.php%3fx.css",
        "/mirror.php%23x.css",
        "/mirror.php%0ax.css",
        "/mirror.php%00x.css",
        "/mirror.php/..%2fx.css",
        "/static/..%2fmirror.php",
        "/static/../mirror.php",
        "/static/%2e%2e/mirror.php",
        "/robots.txt/..%2fmirror.php",
        "/mirror.php/x.css%",
        "/mirror.php\\x.css",
        "/mirror.php?x.css",
    ] {
        for who in victim {
            let own = ask(fixture.address(), "GET", target, who);
            assert!(!is_shared(&own), "{target}: {}", cache_status(&own));
        }
        for _ in 0..3 {
            let answer = ask(fixture.address(), "GET", target, "");
            assert!(
                !answer.text().contains("SECRET"),
                "{target}: {}",
                answer.text()
            );
        }
        // The victim does not get the anonymous page either.
        let own = ask(fixture.address(), "GET", target, victim[0]);
        assert!(!is_shared(&own), "{target}: {}", cache_status(&own));
    }
}

/// A line end in a value that a script sends back becomes a header, or a second response, in a page for all clients.
#[test]
fn response_splitting() {
    let php = r#"<?php
@header('Location: /' . $_GET['to']);
@header('X-Back: ' . $_GET['to'], false);
@setcookie('back', $_GET['to']);
header_remove('Set-Cookie');
http_response_code(200);
echo 'fine';
"#;
    let fixture = page("splitting", php);
    for to in [
        "x%0d%0aSet-Cookie:%20evil=1",
        "x%0aSet-Cookie:%20evil=1",
        "x%0dSet-Cookie:%20evil=1",
        "x%00%0d%0aSet-Cookie:%20evil=1",
        "x%0d%0a%0d%0aHTTP/1.1%20200%20OK%0d%0a%0d%0aevil",
        "x%e5%98%8a%e5%98%8dSet-Cookie:%20evil=1",
    ] {
        for _ in 0..3 {
            let answer = ask(fixture.address(), "GET", &format!("/page.php?to={to}"), "");
            assert_eq!(answer.text(), "fine", "{to}");
            let set = answer.header("Set-Cookie");
            assert!(set.is_none(), "{to}: {:?}", answer.head);
        }
    }
}

/// A session is given to all clients by a stored Set-Cookie (Souin, and every recipe with `fastcgi_ignore_headers
/// Set-Cookie`), whatever else the response says.
#[test]
fn stored_set_cookie() {
    let php = r#"<?php
header('Cache-Control: public, max-age=3600, s-maxage=3600');
header('Cache-Control: no-cache="set-cookie", max-age=60', false);
header('CDN-Cache-Control: max-age=3600');
header('X-Accel-Expires: 3600');
header('set-COOKIE: id=' . random_int(1, PHP_INT_MAX));
echo 'fine';
"#;
    let fixture = page("set-cookie", php);
    let mut cookies = Vec::new();
    for _ in 0..4 {
        let answer = ask(fixture.address(), "GET", "/page.php", "");
        assert!(!is_shared(&answer), "{}", cache_status(&answer));
        let own = answer
            .header("Set-Cookie")
            .expect("each visitor gets a cookie");
        cookies.push(own.to_owned());
    }
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 4, "{cookies:?}");
}

/// An attacker distributes a link whose URL names a session, and the response is stored for all clients.
#[test]
fn session_fixed_by_a_link() {
    let php = "<?php session_start(); $_SESSION['n'] = 1; echo 'SECRET ', session_id();";
    let fixture = Fixture::named("attack-fixation")
        .children(2)
        .ini("session.use_only_cookies", "0")
        .ini("session.use_trans_sid", "1")
        .ini("session.use_cookies", "0")
        .ini("session.cache_limiter", "")
        .script("page.php", php)
        .site("cache = \"on\"")
        .start();
    for _ in 0..4 {
        let answer = ask(fixture.address(), "GET", "/page.php?PHPSESSID=evil", "");
        assert!(!is_shared(&answer), "{}", cache_status(&answer));
    }
}

/// "Web Cache Overflow": a page that varies by a header that the client chooses is requested with ever new values and
/// fills the memory; `Vary: User-Agent` does so without an attacker.
#[test]
fn vary_bomb() {
    let php = r#"<?php header('Vary: ' . (substr($_SERVER['PATH_INFO'] ?? '', 1) ?: 'X-Bomb'));
echo 'bomb=', $_SERVER['HTTP_X_BOMB'] ?? 'none';
if (is_numeric($_SERVER['HTTP_X_BOMB'] ?? '')) echo ' ', str_repeat('x', 8000);"#;
    let fixture = Fixture::named("attack-vary")
        .children(2)
        .script("page.php", php)
        .config("[cache]\nmemory = \"1M\"")
        .site("cache = \"on\"")
        .start();
    let address = fixture.address();
    ask(address, "GET", "/page.php", "X-Bomb: read\r\n");
    for n in 0..400 {
        let answer = ask(address, "GET", "/page.php", &format!("X-Bomb: {n}\r\n"));
        // No client gets another client's variant, stored or not.
        let text = answer.text();
        assert!(text.starts_with(&format!("bomb={n} ")), "{text:.20}");
        if n % 20 == 0 {
            // Pages that are being read are not evicted.
            is_hit(&ask(address, "GET", "/page.php", "X-Bomb: read\r\n"));
        }
    }
    let cache = fixture.status()["cache"].clone();
    assert!(cache["bytes"].as_u64() <= cache["capacity"].as_u64());
    assert!(cache["evictions"].as_u64() > Some(0), "{cache}");
    for long in ["y".repeat(2000), format!("{}, z", "y".repeat(1000))] {
        let answer = ask(address, "GET", "/page.php", &format!("X-Bomb: {long}\r\n"));
        assert_eq!(answer.text(), format!("bomb={long}"));
    }
    for names in [
        "*",
        "User-Agent",
        "X-Bomb,*",
        "Referer",
        "A,B,C,D,E,F,G,H,I",
    ] {
        let target = format!("/page.php/{names}");
        for _ in 0..2 {
            let answer = ask(address, "GET", &target, "X-Bomb: evil\r\n");
            assert!(!is_shared(&answer), "{names}: {}", cache_status(&answer));
        }
    }
}

/// A page behind a password is stored and served to visitors without a password.
#[test]
fn protected_pages() {
    let php = "<?php
header('Cache-Control: public, max-age=60');
if (($_SERVER['PHP_AUTH_PW'] ?? '') !== 'x') {
    header('WWW-Authenticate: Basic realm=x');
    http_response_code(401);
    exit('no');
}
echo 'SECRET';";
    let fixture = page("password", php);
    for _ in 0..3 {
        let password = "Authorization: Basic dmljdGltOng=\r\n";
        let own = ask(fixture.address(), "GET", "/page.php", password);
        assert_eq!((own.status(), own.text().as_str()), (200, "SECRET"));
        let other = ask(fixture.address(), "GET", "/page.php", "");
        assert_eq!((other.status(), other.text().as_str()), (401, "no"));
        assert!(!is_shared(&other), "{}", cache_status(&other));
    }
}

/// Headers with which applications tell caches what to purge are not accepted from clients.
#[test]
fn purge_by_a_stranger() {
    let fixture = server("purge");
    is_hit(&reads(&fixture, "/mirror.php"));
    for lines in [
        "X-LiteSpeed-Purge: *\r\n",
        "X-LiteSpeed-Purge: tag=evil\r\n",
        "Cache-Group-Invalidation: \"a\"\r\n",
        "X-Purge: *\r\n",
        "Cache-Control: no-cache, no-store, max-age=0\r\nPragma: no-cache\r\n",
        "X-Magento-Tags-Pattern: .*\r\n",
        "Surrogate-Key: evil\r\n",
    ] {
        is_hit(&ask(fixture.address(), "GET", "/mirror.php", lines));
        is_hit(&reads(&fixture, "/mirror.php"));
    }
}

/// `Cache-Status` tells a stranger only a word of the documentation, not a key, a path on the disk or another client's
/// URL.
#[test]
fn leak_by_cache_status() {
    let fixture = server("status");
    for (target, lines) in [
        ("/mirror.php", ""),
        ("/mirror.php", ""),
        ("/mirror.php?a=1", ""),
        ("/mirror.php", "Cookie: PHPSESSID=x\r\n"),
        ("/mirror.php/%2e%2e", ""),
    ] {
        let status = cache_status(&ask(fixture.address(), "GET", target, lines));
        let leaks = ["mirror", "/", "key=", "example"];
        assert!(!leaks.iter().any(|leak| status.contains(leak)), "{status}");
    }
}

/// A page is outdated if its render began before a write and ended after it. It must not be stored.
#[test]
fn write_during_a_render() {
    let php = r#"<?php require 'GATES';
if ($_SERVER['REQUEST_METHOD'] === 'POST') {
    file_put_contents('SCRATCH/text', 'new');
    exit('written');
}
$text = @file_get_contents('SCRATCH/text') ?: 'old';
if ($text === 'old') stand_at('render');
echo "text=$text";"#;
    let fixture = page("race", php);
    let gate = fixture.gate("render");
    // The first visitor's response is personal, and shows that the page can be stored.
    let first = fixture.start_get("/page.php");
    gate.wait().open();
    assert_eq!(first.answer().text(), "text=old");
    let gate = fixture.gate("render");
    let reader = fixture.start_get("/page.php");
    let standing = gate.wait();
    let host = fixture.address();
    let post = format!(
        "POST /page.php HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let wrote = exchange(host, post.as_bytes()).unwrap();
    assert_eq!(wrote.text(), "written");
    standing.open();
    // The page was requested before the write, so either version is right; but no later request gets the old one.
    assert_eq!(reader.answer().status(), 200);
    for _ in 0..3 {
        assert_eq!(fixture.get("/page.php").text(), "text=new");
    }
}

/// A partial response, a response to HEAD, a 304 or an encoded form of a page is mistaken for the whole page.
#[test]
fn partial_answers_and_forms() {
    let text = "0123456789".repeat(300);
    let php = format!("<?php header('Content-Type: text/plain'); echo '{text}';");
    let fixture = page("parts", &php);
    let address = fixture.address();
    let first = ask(address, "HEAD", "/page.php", "");
    assert_eq!((first.status(), first.body.len()), (200, 0));
    for lines in [
        "Range: bytes=0-4\r\n",
        "Range: bytes=-5\r\nIf-Range: \"evil\"\r\n",
        "If-None-Match: *\r\n",
        "If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT\r\n",
        "If-None-Match: \"evil\"\r\n",
        "Accept-Encoding: gzip\r\n",
        "Accept-Encoding: br;q=1\r\n",
        "Accept-Encoding: identity;q=0, *;q=0\r\n",
    ] {
        let answer = ask(address, "GET", "/page.php", lines);
        match answer.status() {
            200 if answer.header("Content-Encoding").is_none() => {
                assert_eq!(answer.text(), text, "{lines}");
            }
            200 => assert_ne!(answer.text(), text, "{lines}"),
            206 => assert_eq!(answer.body.len(), 5, "{lines}"),
            304 => assert!(answer.body.is_empty(), "{lines}"),
            other => panic!("{lines}: {other}"),
        }
        let whole = ask(address, "GET", "/page.php", "");
        assert_eq!(whole.text(), text, "after {lines}");
    }
    // Each encoded form has a tag of its own, which differs from the tags of the other forms.
    let plain = ask(address, "GET", "/page.php", "");
    let plain = plain.header("ETag").expect("a page gets a tag");
    let packed = ask(address, "GET", "/page.php", "Accept-Encoding: gzip\r\n");
    assert_eq!(packed.header("Vary"), Some("Accept-Encoding"));
    assert_ne!(packed.header("ETag"), Some(plain));
    let lines = format!("Accept-Encoding: gzip\r\nRange: bytes=0-4\r\nIf-Range: {plain}\r\n");
    let part = ask(address, "GET", "/page.php", &lines);
    assert!(
        part.status() == 200 || part.text() == "01234",
        "{:?}",
        part.head
    );
}

/// ESI tags that an attacker gets into a page are plain text to this server.
#[test]
fn esi_injection() {
    let tag = r#"<esi:include src="http://127.0.0.1:1/evil"/><!--#include virtual="/evil" -->"#;
    let php = format!("<?php header('Surrogate-Control: content=\"ESI/1.0\"'); echo '{tag}';");
    let fixture = page("esi", &php);
    for _ in 0..2 {
        let lines = "Surrogate-Capability: x=\"ESI/1.0\"\r\n";
        let answer = ask(fixture.address(), "GET", "/page.php", lines);
        assert_eq!(answer.text(), tag);
    }
}

/// A line of an `.htaccess` file puts a visitor's header or address into the response, which is a widespread way to
/// allow any origin by CORS. If the response were stored, all clients would get the header of the first visitor.
#[test]
fn response_headers_that_name_the_visitor() {
    for (cache, value) in [
        ("on", "\"expr=%{HTTP:Origin}\""),
        ("rfc", "\"expr=%{HTTP:Origin}\""),
        ("on", "\"expr=%{REMOTE_ADDR}\""),
        ("on", "\"expr=%{THE_REQUEST}\""),
        ("rfc", "\"%{HTTP_ORIGIN}e\" env=HTTP_ORIGIN"),
        ("rfc", "1 \"expr=%{HTTP:Origin} == 'https://evil.test'\""),
    ] {
        let fixture = Fixture::named("attack-header-of-visitor")
            .children(2)
            .script(
                "page.php",
                "<?php header('Cache-Control: public, max-age=60'); echo 'page';",
            )
            .file(".htaccess", format!("Header set X-Allowed {value}\n"))
            .site(&format!("cache = \"{cache}\"\nhtaccess = \"on\""))
            .start();
        for _ in 0..3 {
            let own = ask(
                fixture.address(),
                "GET",
                "/page.php",
                "Origin: https://evil.test\r\n",
            );
            assert!(!is_shared(&own), "{cache} {value}: {}", cache_status(&own));
            assert!(own.header("X-Allowed").is_some(), "{cache} {value}");
        }
        let other = reads(&fixture, "/page.php");
        assert!(
            !is_shared(&other),
            "{cache} {value}: {}",
            cache_status(&other)
        );
        assert!(
            cache_status(&other).contains("Htaccess"),
            "{}",
            cache_status(&other)
        );
    }
    // A page whose rules depend only on the URL and the response is shared.
    let fixture = Fixture::named("attack-header-of-url")
        .children(2)
        .script("page.php", "<?php echo 'page';")
        .file(
            ".htaccess",
            "Header set X-Url \"expr=%{REQUEST_URI}\"\nHeader set X-T 1 \"expr=%{CONTENT_TYPE} =~ m#html#\"\n",
        )
        .site("cache = \"on\"\nhtaccess = \"on\"")
        .start();
    // While the `.htaccess` file has only just been written, it is read again for each request, and pages that were
    // stored before are not served.
    fixture.wait("a shared page", |fixture| {
        cache_status(&reads(fixture, "/page.php")).contains("; hit")
    });
    let page = reads(&fixture, "/page.php");
    assert_eq!(page.header("X-Url"), Some("/page.php"));
}
