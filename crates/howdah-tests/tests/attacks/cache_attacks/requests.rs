//! Attacks through requests: a part of the request shapes the page but is not in the page's cache key.

use howdah_tests::http::{Connection, exchange};

use super::{ask, cache_status, is_hit, is_shared, raw, reads, server, with};

/// "Practical Web Cache Poisoning" (Kettle, 2018): headers that no cache has in its key, and that frameworks put into
/// links and redirects.
#[test]
fn unkeyed_request_fields() {
    const FIELDS: &str = "X-Forwarded-Host X-Forwarded-Proto X-Forwarded-Port X-Forwarded-Prefix \
        X-Forwarded-For X-Forwarded-Server X-Forwarded-Scheme X-Forwarded-SSL X-Forwarded-Path \
        Forwarded X-Host X-Original-URL X-Rewrite-URL X-HTTP-Host-Override X-Original-Host X-Real-IP \
        True-Client-IP Client-IP CF-Connecting-IP CF-IPCountry Via Origin Referer User-Agent From \
        Accept Accept-Language Accept-Charset Save-Data X-Wap-Profile DNT Surrogate-Capability \
        X-LSCACHE X-LSCACHE-VARY-VALUE X-LITEMAGE X-Accel-Expires X-Accel-Redirect X-Sendfile-Type \
        Proxy Cache-Control Pragma X_Forwarded_Host X-Amz-Website-Redirect-Location X-Evil";
    let fixture = server("fields");
    for (n, field) in FIELDS.split_whitespace().enumerate() {
        let target = format!("/mirror.php/{n}");
        let lines = format!("{field}: evil.example\r\n");
        ask(fixture.address(), "GET", &target, &lines);
        is_hit(&reads(&fixture, &target));
    }
}

/// The same headers come through a trusted proxy: now they may shape the page, so they are in the key.
#[test]
fn x_forwarded_through_a_trusted_proxy() {
    let fixture = with(
        "proxied",
        "[trusted_proxies]\nnetworks = [\"127.0.0.0/8\"]\nhost = true\n",
    );
    for lines in [
        "X-Forwarded-Host: evil.example\r\n",
        "X-Forwarded-Proto: https\r\n",
        "X-Forwarded-Port: 6666\r\nX-Forwarded-Host: example.org:6666\r\n",
        "X-Forwarded-For: 203.0.113.66\r\n",
    ] {
        ask(fixture.address(), "GET", "/mirror.php", lines);
    }
    let answer = reads(&fixture, "/mirror.php");
    is_hit(&answer);
    for theirs in ["\"6666\"", ":6666", "203.0.113.66", "\"https\""] {
        assert!(!answer.text().contains(theirs), "{}", answer.text());
    }
    let https = "X-Forwarded-Proto: https\r\n";
    let other = ask(fixture.address(), "GET", "/mirror.php", https);
    assert!(other.text().contains("\"https\""), "{}", other.text());
}

/// Pingora before 0.8 had no host in its key (CVE-2026-2836); other caches disagree with the router about ports, dots,
/// case and the absolute form.
#[test]
fn host_field() {
    let fixture = server("host");
    let address = fixture.address();
    for head in [
        "GET /mirror.php HTTP/1.1\r\nHost: evil.example\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: example.org:6666\r\nX-Evil: evil\r\n",
        "GET http://evil.example/mirror.php HTTP/1.1\r\nHost: example.org\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: EXAMPLE.org.\r\nX-Forwarded-Host: evil\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: example.org:80\r\nX-Evil: evil\r\n",
        "GET /mirror.php HTTP/1.0\r\n",
        "GET /mirror.php HTTP/1.0\r\nHost: \r\n",
    ] {
        raw(address, head);
    }
    for head in [
        "GET /mirror.php HTTP/1.1\r\nHost: example.org\r\nHost: evil.example\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: evil@example.org\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: example.org/evil\r\n",
        "GET /mirror.php HTTP/1.1\r\nHost: example.org evil\r\n",
        "GET /mirror.php HTTP/1.1\r\n",
    ] {
        let answer = raw(address, head);
        let refused = answer.status() == 400;
        assert!(
            refused || cache_status(&answer).ends_with("NoHost"),
            "{head}: {:?}",
            answer.head
        );
    }
    let answer = reads(&fixture, "/mirror.php");
    is_hit(&answer);
    assert!(!answer.text().contains("6666"), "{}", answer.text());
    // A request for another host gets that host's page.
    let other = raw(
        address,
        "GET /mirror.php HTTP/1.1\r\nHost: evil.example\r\n",
    );
    assert!(other.text().contains("evil.example"), "{}", other.text());
    // All spellings of a host share one page, and none of the unusual spellings appears in it.
    for same in ["Example.ORG", "example.org.", "example.org:80"] {
        let spelt = raw(
            address,
            &format!("GET /mirror.php HTTP/1.1\r\nHost: {same}\r\n"),
        );
        is_hit(&spelt);
        assert_eq!(spelt.body, answer.body, "{same}");
    }
}

/// "Web Cache Entanglement" (Kettle, 2020): a parameter is not in the key, but reaches the script or carries another
/// parameter past the cache.
#[test]
fn parameter_cloaking() {
    let fixture = server("cloak");
    let address = fixture.address();
    for query in [
        "utm_source=evil",
        "id=1&utm_source=evil",
        "id=1&utm_content=x;callback=evil",
        "id=1&utm_content[callback]=evil",
        "id=1&utm.source=evil",
        "id=1&utm%5Fsource=evil",
        "id=1&utm%20source=evil",
        "id=1&%20utm_source=evil",
        "id=1&+utm_source=evil",
        "id=1&gclid=evil&gclid=evil",
        "id=1&id=evil",
        "id=evil&id=1",
        "id=1&id[]=evil",
        "id=1;id=evil",
        "id=1%26id=evil",
        "id=1&utm_source",
        "&id=1&&fbclid=evil",
        "id=1#evil",
        "id=1&=evil",
        "id=1&utm_source%00=evil",
    ] {
        for _ in 0..3 {
            ask(address, "GET", &format!("/mirror.php?{query}"), "");
        }
    }
    for target in ["/mirror.php", "/mirror.php?id=1"] {
        let answer = reads(&fixture, target);
        is_hit(&answer);
        // Parameters that are removed from the key are also removed from what the script sees.
        let mark = if target.contains('?') { '&' } else { '?' };
        let tracked = format!("{target}{mark}utm_source=evil");
        let shared = ask(address, "GET", &tracked, "");
        is_hit(&shared);
        assert_eq!(shared.body, answer.body);
    }
}

/// Only the application knows whether the order of parameters matters, and which of two parameters with one name
/// counts.
#[test]
fn query_order_and_repetition() {
    let fixture = server("order");
    let queries = [
        "a=1&b=2",
        "b=2&a=1",
        "a=1&a=2",
        "a=2&a=1",
        "a[]=1&a[]=2",
        "A=1&b=2",
        "a=1&b",
        "a=1&b=",
    ];
    let mut texts = Vec::new();
    for query in queries {
        let target = format!("/mirror.php?{query}");
        // A page with a query is stored at its second visit.
        reads(&fixture, &target);
        let answer = reads(&fixture, &target);
        is_hit(&answer);
        let own = format!("\"QUERY_STRING\":\"{query}\"");
        assert!(answer.text().contains(&own), "{query}: {}", answer.text());
        texts.push(answer.text());
    }
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), queries.len());
}

/// A GET has a body, which the script reads but which is not in the key. On a hit, bytes of the body that remain in the
/// connection would be taken for the next request (Pingora, CVE-2025-4366).
#[test]
fn fat_get() {
    let fixture = server("fat");
    let body = "id=evil&callback=evil";
    for lines in [
        format!(
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        ),
        format!(
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
    ] {
        for method in ["GET", "HEAD"] {
            let request = format!("{method} /mirror.php HTTP/1.1\r\nHost: example.org\r\n{lines}");
            let answer = exchange(fixture.address(), request.as_bytes()).unwrap();
            assert_eq!(
                cache_status(&answer),
                "Howdah; fwd=bypass; detail=RequestBody"
            );
        }
    }
    is_hit(&reads(&fixture, "/mirror.php"));
    let smuggled = "GET /mirror.php/evil HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let request = format!(
        "GET /mirror.php HTTP/1.1\r\nHost: example.org\r\nContent-Length: {}\r\n\r\n{smuggled}\
         GET /hello.php HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n",
        smuggled.len()
    );
    let mut connection = Connection::open(fixture.address()).unwrap();
    connection.send(request).unwrap();
    assert_eq!(connection.read_response("GET").unwrap().status(), 200);
    let next = connection.read_response("GET").unwrap();
    assert!(next.text().starts_with("Hello"), "{}", next.text());
    is_hit(&reads(&fixture, "/mirror.php"));
}

/// Because of a header, WordPress before 6.3.2 treated a GET as another method, and the empty response was stored.
#[test]
fn method_override() {
    let fixture = server("method");
    let overridden = "Howdah; fwd=bypass; detail=MethodOverride";
    for lines in [
        "X-HTTP-Method-Override: HEAD\r\n",
        "X-HTTP-Method: DELETE\r\n",
        "X-Method-Override: POST\r\n",
    ] {
        let answer = ask(fixture.address(), "GET", "/mirror.php", lines);
        assert_eq!(cache_status(&answer), overridden, "{lines}");
    }
    for query in [
        "_method=DELETE",
        "%5Fmethod=DELETE",
        ".method=DELETE",
        "a=1&_method[]=DELETE",
    ] {
        let target = format!("/mirror.php?{query}");
        let answer = ask(fixture.address(), "GET", &target, "");
        assert_eq!(cache_status(&answer), overridden, "{query}");
    }
    is_hit(&reads(&fixture, "/mirror.php"));
}

/// Two spellings of a path are one path for the cache and two for the script, or the other way round.
#[test]
fn path_normalisation() {
    let fixture = server("paths");
    // The second value says whether the page of this spelling is shared.
    for (target, shared) in [
        ("//mirror.php", false),
        ("/./mirror.php", false),
        ("/mirror.php//", false),
        ("/mirror.php/./evil", false),
        ("/mirror.php/../mirror.php", false),
        ("/x/%2e%2e/mirror.php", false),
        ("/mirror%2ephp", true),
        ("/%6dirror.php", true),
        ("/mirror.php/%65vil", true),
        ("/mirror.php/%2e%2e/evil", false),
        ("/mirror.php/%252e", true),
        ("/MIRROR.PHP", false),
        ("/mirror.php/", true),
    ] {
        for _ in 0..2 {
            let answer = ask(fixture.address(), "GET", target, "X-Evil: evil\r\n");
            assert_eq!(is_shared(&answer), shared, "{target}");
            if shared {
                // The page is one of its own, which shows the spelling of the request.
                let own = format!("\"REQUEST_URI\":\"{target}\"");
                assert!(answer.text().contains(&own), "{target}: {}", answer.text());
            }
        }
    }
    is_hit(&reads(&fixture, "/mirror.php"));
    is_hit(&reads(&fixture, "/mirror.php/"));
}

/// PHP treats a cookie as a session although the cache overlooks the cookie. However the name is spelt, the page of a
/// user whom PHP recognises must not be shown to others.
#[test]
fn cookies_read_differently() {
    let fixture = server("cookies");
    let mut somebody = 0;
    for cookie in [
        "PHPSESSID=x",
        "PHPSESSID",
        "PHPSESSID=",
        " PHPSESSID=x",
        "\tPHPSESSID=x",
        "_ga=1;PHPSESSID=x",
        "_ga=1; ; PHPSESSID=x",
        "_ga=1,PHPSESSID=x",
        "_ga=\"1; PHPSESSID=x\"",
        "PHPSESSID[]=x",
        "PHPSESSID[a][b]=x",
        "PHPSESSID[=x",
        "PHPSESSID]=x",
        "%50HPSESSID=x",
        "PHPSESSID%5B%5D=x",
        "+PHPSESSID=x",
        "%20PHPSESSID=x",
        "[PHPSESSID=x",
        "_ga[PHPSESSID]=x",
        "PHPSESSID%00=x",
        "PHPSESSID%3Dx=y",
        "phpsessid=x",
        "$Version=1; PHPSESSID=x",
        "_ga=1; PHPSESSID=x; PHPSESSID=y",
        "=PHPSESSID=x",
        "__Host-PHPSESSID=x",
        "\u{a0}PHPSESSID=x",
    ] {
        let lines = format!("Cookie: {cookie}\r\n");
        let own = ask(fixture.address(), "GET", "/mirror.php", &lines);
        if own.text().contains("SECRET") {
            somebody += 1;
            let passed = cache_status(&own).starts_with("Howdah; fwd=bypass; detail=");
            assert!(passed, "{cookie}: {}", cache_status(&own));
        }
        reads(&fixture, "/mirror.php");
    }
    assert!(
        somebody >= 12,
        "PHP took only {somebody} of the cookies for a session"
    );
    // The cookies are spread over several headers, as in HTTP/2.
    let lines = "Cookie: _ga=1\r\nCookie: PHPSESSID=x\r\n";
    let two = ask(fixture.address(), "GET", "/mirror.php", lines);
    assert!(two.text().contains("SECRET"));
    assert_eq!(
        cache_status(&two),
        "Howdah; fwd=bypass; detail=SessionCookie"
    );
    is_hit(&reads(&fixture, "/mirror.php"));
}

/// A client names a header in `Connection`, so that it is removed as hop-by-hop. If it were removed for the script but
/// not for the cache, or the other way round, the page of one visitor could be stored for others.
#[test]
fn hop_by_hop_fields() {
    let fixture = server("hops");
    let own = raw(
        fixture.address(),
        "GET /mirror.php HTTP/1.1\r\nHost: example.org\r\nCookie: PHPSESSID=x\r\nConnection: Cookie\r\n",
    );
    assert_eq!(
        cache_status(&own),
        "Howdah; fwd=bypass; detail=SessionCookie"
    );
    assert!(own.text().contains("SECRET"), "{}", own.text());
    for named in ["Host", "X-Forwarded-For", "Authorization", "Accept", "evil"] {
        let lines = format!("Connection: {named}\r\n");
        ask(fixture.address(), "GET", "/mirror.php", &lines);
        is_hit(&reads(&fixture, "/mirror.php"));
    }
}
