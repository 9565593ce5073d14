//! Edge side includes over HTTP, with real PHP: pages whose tags the front replaces by fragments, for each visitor
//! again. The rules of the parser have tests of their own in `howdah-cache`.

use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Connection, ExchangeError, Response, exchange, framing_of};
use howdah_tests::http2::{Http2Request, Http2TestClient};
use howdah_tests::scratch::run;

/// Prints a text that the test has written, with the mark of a page whose tags are to be processed. Counts its runs.
const PAGE: &str = r#"<?php
file_put_contents('SCRATCH/pages', 'x', FILE_APPEND | LOCK_EX);
if (isset($_GET['litespeed'])) header('X-LiteSpeed-Cache-Control: public,max-age=60,esi=on');
elseif (!isset($_GET['unmarked'])) header('Surrogate-Control: content="ESI/1.0"');
header('Cache-Control: public, max-age=60');
header('Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT');
if (isset($_GET['private'])) header('Cache-Control: private');
echo 'page:', $_SERVER['HTTP_COOKIE'] ?? '', "\n";
if (isset($_GET['capability'])) echo $_SERVER['HTTP_SURROGATE_CAPABILITY'] ?? 'none', "\n";
readfile('SCRATCH/text/' . basename($_GET['p']));
"#;

/// A fragment that shows what it knows of its request, and that fails, waits or includes others if it is told to.
const FRAGMENT: &str = r#"<?php require 'GATES';
file_put_contents('SCRATCH/fragments', 'x', FILE_APPEND | LOCK_EX);
if (!isset($_GET['public'])) header('Cache-Control: private');
if (isset($_GET['marked'])) header('Surrogate-Control: content="ESI/1.0"');
if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
if (isset($_GET['short'])) { header('Content-Length: 100'); echo 'short'; while (ob_get_level()) ob_end_flush(); flush(); sleep(1); exit; }
if (isset($_GET['long'])) { for ($i = 0; $i < 64; $i++) echo str_repeat('l', 16384); exit; }
if (isset($_GET['gate']) && file_exists('SCRATCH/gates/' . $_GET['gate'])) { stand_at($_GET['gate']); @unlink('SCRATCH/gates/' . $_GET['gate']); }
if (isset($_GET['sleep'])) sleep((int) $_GET['sleep']);
if (isset($_GET['p'])) readfile('SCRATCH/text/' . basename($_GET['p']));
else echo '[', $_GET['n'] ?? '', ':', $_SERVER['REQUEST_METHOD'], ':', $_SERVER['HTTP_COOKIE'] ?? '', ':',
    $_SERVER['REMOTE_ADDR'], ':', $_SERVER['REMOTE_USER'] ?? '', ':', $_SERVER['HTTP_RANGE'] ?? '', ']';
"#;

fn builder(name: &str) -> Builder {
    Fixture::named(name)
        .children(4)
        .script("page.php", PAGE)
        .script("esi/fragment.php", FRAGMENT)
        .script("other/fragment.php", FRAGMENT)
        .script("secret/index.php", "<?php echo 'SECRET';")
}

const SITE: &str = "cache = \"on\"\ncache_ttl = \"60s\"\n";
const ESI: &str = "[site.esi]\npaths = [\"/esi\", \"/?lsesi=\"]\ncookies = [\"visitor\"]\n";

fn server(name: &str) -> Fixture {
    builder(name).site(SITE).site(ESI).start()
}

fn ask(fixture: &Fixture, method: &str, path: &str, lines: &str) -> Response {
    let request = request(method, path, lines);
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn request(method: &str, path: &str, lines: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}Connection: close\r\n\r\n")
}

/// Asks for a page from a new thread.
fn start(fixture: &Fixture, path: &str) -> JoinHandle<Response> {
    let (address, request) = (fixture.address(), request("GET", path, ""));
    std::thread::spawn(move || exchange(address, request.as_bytes()).expect("a response"))
}

/// Writes the text of a page and returns the page's path.
fn page(fixture: &Fixture, name: &str, text: &str) -> String {
    fixture.write(&format!("text/{name}"), text);
    format!("/page.php?p={name}")
}

/// Asks for a page until it is served from the cache.
fn stored(fixture: &Fixture, path: &str, lines: &str) -> Response {
    for _ in 0..6 {
        let response = ask(fixture, "GET", path, lines);
        if is_hit(&response) {
            return response;
        }
    }
    panic!(
        "{path} is not stored: {:?}",
        ask(fixture, "GET", path, lines)
    );
}

fn is_hit(response: &Response) -> bool {
    let status = response.header("Cache-Status").unwrap_or_default();
    status.starts_with("Howdah; hit")
}

fn runs(fixture: &Fixture, of: &str) -> usize {
    std::fs::read(fixture.path(of)).map_or(0, |bytes| bytes.len())
}

#[test]
fn stored_page_is_composed_for_each_visitor() {
    let fixture = server("esi-stored");
    let text = "<p>a</p><esi:include src=\"/esi/fragment.php?n=1\"/><p>b</p><esi:remove>x</esi:remove>\n\
                <!--esi <p>c</p>--><esi:include src='/esi/fragment.php?n=2' onerror=\"continue\"/>.";
    let path = page(&fixture, "one", text);
    let composed = |cookie: &str| {
        format!(
            "page:\n<p>a</p>[1:GET:{cookie}:127.0.0.1::]<p>b</p>\n <p>c</p>[2:GET:{cookie}:127.0.0.1::]."
        )
    };
    // Responses that are not stored are composed, too.
    let first = ask(&fixture, "GET", &path, "");
    assert!(!is_hit(&first));
    assert_eq!(first.text(), composed(""));
    let hit = stored(&fixture, &path, "");
    assert_eq!(hit.text(), composed(""));
    for name in [
        "ETag",
        "Last-Modified",
        "Surrogate-Control",
        "Age",
        "Expires",
    ] {
        assert_eq!(hit.header(name), None, "{name}: {hit:?}");
    }
    assert_eq!(hit.header("Cache-Control"), Some("private, no-cache"));
    assert_eq!(hit.header("X-Cache"), Some("HIT"));
    // The cookie reaches the fragments alone, and does not keep its owner from the stored page.
    let (pages, fragments) = (runs(&fixture, "pages"), runs(&fixture, "fragments"));
    for cookie in ["visitor=ann", "visitor=bob"] {
        let own = ask(&fixture, "GET", &path, &format!("Cookie: {cookie}\r\n"));
        assert!(is_hit(&own), "{own:?}");
        assert_eq!(own.text(), composed(cookie));
    }
    assert_eq!(runs(&fixture, "pages"), pages);
    assert_eq!(runs(&fixture, "fragments"), fragments + 4);
    // Conditions and ranges have no meaning for a response that is made for each visitor.
    let lines = "Range: bytes=0-3\r\nIf-None-Match: *\r\nIf-Modified-Since: Sun, 06 Nov 2094 08:49:37 GMT\r\n";
    let whole = ask(&fixture, "GET", &path, lines);
    assert_eq!((whole.status(), whole.text()), (200, composed("")));
    let head = ask(&fixture, "HEAD", &path, "");
    assert_eq!((head.status(), head.body.len()), (200, 0));
    assert_eq!(head.header("Cache-Control"), Some("private, no-cache"));
    assert_eq!(head.header("Content-Length"), None, "{head:?}");
    assert_eq!(runs(&fixture, "fragments"), fragments + 6);
    // A visitor whose response is never stored gets a composed one, too.
    let own = ask(&fixture, "GET", &path, "Cookie: other=1; visitor=ann\r\n");
    assert!(!is_hit(&own));
    assert!(
        own.text().contains("[1:GET:other=1; visitor=ann:"),
        "{}",
        own.text()
    );
}

/// Returns the body of a response that is compressed with gzip; the program gzip also checks its checksum.
fn unzipped(fixture: &Fixture, response: &Response) -> String {
    assert_eq!(response.header("Content-Encoding"), Some("gzip"));
    let file = fixture.path("response.gz");
    std::fs::write(&file, &response.body).unwrap();
    run(Command::new("gzip").arg("-dc").arg(&file))
}

#[test]
fn texts_of_a_stored_page_are_compressed_once_for_all_visitors() {
    let fixture = server("esi-gzip");
    let row = |n: usize| {
        format!(
            "<tr><td class=\"n\">{n}</td><td>{:x}</td></tr>\n",
            n * n * 7919
        )
    };
    let texts: Vec<String> = [0..900, 900..905, 905..3000]
        .map(|rows| rows.map(row).collect())
        .to_vec();
    let fragment = |n: usize| format!("<esi:include src='/esi/fragment.php?n={n}'/>");
    let text = format!(
        "{}{}{}{}{}{}{}",
        texts[0],
        fragment(1),
        texts[1],
        fragment(2),
        texts[2],
        fragment(3),
        fragment(4)
    );
    let path = page(&fixture, "table", &text);
    stored(&fixture, &path, "");
    let coded = "Accept-Encoding: br, gzip\r\n";
    let mut plain_length = 0;
    let mut sizes = Vec::new();
    // The first responses are compressed as a whole, with what the client prefers.
    for visitor in ["ann", "bob", "cleo"] {
        let cookie = format!("Cookie: visitor={visitor}\r\n");
        let plain = ask(&fixture, "GET", &path, &cookie);
        plain_length = plain.body.len();
        let lines = format!("{cookie}{coded}");
        let mut whole = ask(&fixture, "GET", &path, &lines);
        fixture.wait("the compressed texts", |fixture| {
            whole = ask(fixture, "GET", &path, &lines);
            whole.header("Content-Encoding") == Some("gzip")
        });
        assert!(is_hit(&whole));
        assert_eq!(whole.header("Vary"), Some("Accept-Encoding"));
        assert_eq!(unzipped(&fixture, &whole), plain.text());
        assert!(plain.text().contains(&format!("[4:GET:visitor={visitor}:")));
        sizes.push(whole.body.len());
    }
    assert!(
        sizes.iter().all(|size| *size < plain_length / 3),
        "{sizes:?} of {plain_length}"
    );
    // A client that does not accept gzip gets another coding, and one that accepts none the plain page.
    let brotli = ask(&fixture, "GET", &path, "Accept-Encoding: br, gzip;q=0\r\n");
    assert_eq!(brotli.header("Content-Encoding"), Some("br"));
    let plain = ask(&fixture, "GET", &path, "Accept-Encoding: identity\r\n");
    assert_eq!(plain.header("Content-Encoding"), None);
    let head = ask(&fixture, "HEAD", &path, coded);
    assert_eq!(
        (head.header("Content-Encoding"), head.body.len()),
        (Some("gzip"), 0)
    );
}

#[test]
fn fragment_is_served_from_the_cache_itself() {
    let fixture = server("esi-cached-fragment");
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?n=1&amp;public'/>b",
    );
    for _ in 0..6 {
        ask(&fixture, "GET", &path, "");
    }
    let before = runs(&fixture, "fragments");
    for _ in 0..3 {
        let hit = ask(&fixture, "GET", &path, "");
        assert!(is_hit(&hit));
        assert_eq!(hit.text(), "page:\na[1:GET::192.0.2.1::]b");
        // Nothing had to be waited for, so the length was known.
        assert!(hit.header("Content-Length").is_some(), "{hit:?}");
    }
    assert_eq!(runs(&fixture, "fragments"), before, "no fragment was run");
    // A cookie that only fragments read bypasses the stored fragment.
    let own = ask(&fixture, "GET", &path, "Cookie: visitor=ann\r\n");
    assert_eq!(own.text(), "page:\na[1:GET:visitor=ann:127.0.0.1::]b");
    assert!(is_hit(&own));
}

#[test]
fn part_before_a_fragment_is_sent_while_the_fragment_runs() {
    let fixture = server("esi-streamed");
    let text = format!(
        "<p>{}</p><esi:include src='/esi/fragment.php?n=1&gate=slow'/><p>end</p>",
        "x".repeat(60_000)
    );
    let path = page(&fixture, "one", &text);
    for is_stored in [false, true] {
        if is_stored {
            stored(&fixture, &path, "");
        }
        for coding in ["", "Accept-Encoding: gzip\r\n"] {
            let lines = match is_stored {
                true => coding.to_owned(),
                false => format!("Cookie: other=1\r\n{coding}"),
            };
            let gate = fixture.gate("slow");
            let mut client = Connection::open(fixture.address()).unwrap();
            let begun = Instant::now();
            client.send(request("GET", &path, &lines)).unwrap();
            let head = client.read_head().unwrap();
            let mut framing = framing_of("GET", &head).unwrap();
            let mut trailers = Default::default();
            let first = client.read_piece(&mut framing, &mut trailers).unwrap();
            println!(
                "stored: {is_stored} {coding:?}: first bytes after {:?}",
                begun.elapsed()
            );
            assert!(first.is_some_and(|piece| !piece.is_empty()));
            gate.wait().open();
            let mut rest = 0;
            while let Some(piece) = client.read_piece(&mut framing, &mut trailers).unwrap() {
                rest += piece.len();
            }
            assert!(rest > 10, "{rest}");
            let status = head.headers.get("Cache-Status").unwrap_or_default();
            assert_eq!(status.starts_with("Howdah; hit"), is_stored, "{status}");
            assert_eq!(
                head.headers.get("Content-Encoding").is_some(),
                !coding.is_empty()
            );
        }
    }
}

#[test]
fn fragments_run_at_the_same_time_and_are_inserted_in_order() {
    let fixture = server("esi-parallel");
    let tags: String = (1..=3)
        .map(|n| format!("<esi:include src='/esi/fragment.php?n={n}&gate=g{n}'/>"))
        .collect();
    let path = page(&fixture, "one", &format!("a{tags}b"));
    let gates: Vec<_> = (1..=3).map(|n| fixture.gate(&format!("g{n}"))).collect();
    let pending = start(&fixture, &path);
    // All three have begun before any of them may end; they end in reverse order.
    let waiting: Vec<_> = gates.into_iter().map(|gate| gate.wait()).collect();
    for one in waiting.into_iter().rev() {
        one.open();
    }
    let text = pending.join().unwrap().text();
    let order: Vec<_> = ["a[1:", "][2:", "][3:", "]b"]
        .map(|part| text.find(part))
        .into();
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{text}"
    );
}

#[test]
fn one_process_suffices_for_a_page_and_its_fragments() {
    let fixture = builder("esi-one-process")
        .children(1)
        .site(SITE)
        .site(ESI)
        .start();
    let text = format!(
        "a<esi:include src='/esi/fragment.php?n=1'/>{}<esi:include src='/esi/fragment.php?long=1'/>b",
        "x".repeat(3 << 20)
    );
    let path = page(&fixture, "one", &text);
    for lines in ["", "Cookie: other=1\r\n", "", ""] {
        let response = ask(&fixture, "GET", &path, lines);
        let text = response.text();
        assert_eq!(text.matches('x').count(), 3 << 20);
        assert_eq!(text.matches('l').count(), 1 << 20);
        assert!(text.ends_with("lb"));
    }
}

#[test]
fn failed_fragment_has_an_alternative_or_is_skipped_or_fails_the_page() {
    let fixture = server("esi-failed");
    let broken = "/esi/fragment.php?status=500";
    let good = "/esi/fragment.php?n=alt";
    for (at, (tag, expected)) in [
        (
            format!("src='{broken}' alt='{good}'"),
            Some("a[alt:GET::127.0.0.1::]b"),
        ),
        (format!("src='{broken}' onerror='continue'"), Some("ab")),
        (
            format!("src='{broken}' alt='/esi/fragment.php?status=404' onerror='continue'"),
            Some("ab"),
        ),
        (
            "src='/esi/missing.php' onerror='continue'".to_owned(),
            Some("ab"),
        ),
        (
            format!("src='/other/fragment.php' alt='{good}'"),
            Some("a[alt:GET::127.0.0.1::]b"),
        ),
        (format!("src='{broken}' alt='/other/fragment.php'"), None),
        // A fragment of which a part has been inserted cannot be replaced any more.
        (
            "src='/esi/fragment.php?short' onerror='continue'".to_owned(),
            Some("ashortb"),
        ),
        (format!("src='/esi/fragment.php?short' alt='{good}'"), None),
        (format!("src='{broken}'"), None),
        ("src='/esi/missing.php'".to_owned(), None),
        ("src='/esi/fragment.php?status=302'".to_owned(), None),
    ]
    .into_iter()
    .enumerate()
    {
        let path = page(
            &fixture,
            &format!("p{at}"),
            &format!("a<esi:include {tag}/>b"),
        );
        for _ in 0..5 {
            let response = exchange(fixture.address(), request("GET", &path, "").as_bytes());
            match (expected, response) {
                (Some(expected), response) => {
                    let text = response.unwrap().text();
                    assert_eq!(text, format!("page:\n{expected}"), "{tag}");
                }
                // A part of the page was sent before the fragment failed.
                (None, Err(ExchangeError::Closed { midway: true })) => {}
                (None, Ok(response)) => {
                    assert_eq!(response.status(), 502, "{tag}: {response:?}");
                    assert_eq!(response.header("Howdah-Error"), Some("EsiFailed"));
                }
                (None, Err(other)) => panic!("{tag}: {other}"),
            }
        }
    }
    fixture.wait_for_log(&[
        "EsiFailed",
        "/esi/fragment.php?status=500",
        "the status was 500",
    ]);
    fixture.wait_for_log(&["EsiFailed", "/esi/missing.php", "NotFound (404)"]);
    let failures = fixture.status()["failures"].to_string();
    assert!(failures.contains("EsiFailed"), "{failures}");
    fixture.still_serves();
}

#[test]
fn fragment_that_does_not_end_is_terminated() {
    let fixture = builder("esi-slow")
        .pool("request_terminate_timeout = \"1s\"")
        .site(SITE)
        .site(ESI)
        .start();
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?sleep=30' onerror='continue'/>b",
    );
    let begun = Instant::now();
    assert_eq!(ask(&fixture, "GET", &path, "").text(), "page:\nab");
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    fixture.wait_for_log(&["EsiFailed", "TerminateTimeout (504)"]);
}

#[test]
fn fragments_may_include_fragments_until_a_limit() {
    let fixture = server("esi-nested");
    let tag = |name: &str| format!("<esi:include src='/esi/fragment.php?marked&p={name}'/>");
    fixture.write("text/leaf", "leaf");
    fixture.write("text/inner", format!("({})", tag("leaf")));
    let path = page(&fixture, "nested", &format!("a{}b", tag("inner")));
    assert_eq!(ask(&fixture, "GET", &path, "").text(), "page:\na(leaf)b");
    // A fragment without the mark is inserted as it is.
    fixture.write("text/plain", format!("({})", tag("leaf")));
    let path = page(
        &fixture,
        "unmarked",
        "<esi:include src='/esi/fragment.php?p=plain'/>",
    );
    let text = ask(&fixture, "GET", &path, "").text();
    assert_eq!(text, format!("page:\n({})", tag("leaf")));
    // A fragment that includes itself ends after three levels.
    fixture.write("text/loop", format!("<{}>", tag("loop")));
    let path = page(&fixture, "loops", &tag("loop"));
    for _ in 0..5 {
        assert_eq!(ask(&fixture, "GET", &path, "").text(), "page:\n<<<>>>");
    }
    fixture.wait_for_log(&["EsiTooDeep", "p=loop"]);
    // Two tags in each fragment would be fourteen requests, ten would be more than a thousand.
    fixture.write("text/bomb", tag("bomb").repeat(10));
    let path = page(&fixture, "bombs", &tag("bomb").repeat(10));
    let before = runs(&fixture, "fragments");
    ask(&fixture, "GET", &path, "");
    assert_eq!(runs(&fixture, "fragments") - before, 64);
    let failures = fixture.status()["failures"].to_string();
    assert!(failures.contains("EsiTooMany"), "{failures}");
}

#[test]
fn tags_that_are_not_allowed_do_not_use_up_the_fragments_of_a_page() {
    let fixture = server("esi-many-tags");
    let text = "x<esi:include src='/no'/>".repeat(1000);
    let fragment = "<esi:include src='/esi/fragment.php?p=leaf'/>";
    fixture.write("text/leaf", "leaf");
    let path = page(&fixture, "around", &format!("{fragment}{text}{fragment}"));
    let expected = format!("page:\nleaf{}leaf", "x".repeat(1000));
    assert_eq!(ask(&fixture, "GET", &path, "").text(), expected);
    assert_eq!(stored(&fixture, &path, "").text(), expected);
}

#[test]
fn tags_beyond_the_limit_of_a_page_insert_nothing_and_are_logged_once() {
    let fixture = server("esi-too-many-tags");
    let tag = |number: usize| format!("x<esi:include src='/no?{number}'/>");
    let text: String = (1..=1030).map(tag).collect();
    let path = page(&fixture, "one", &text);
    let expected = format!("page:\n{}", "x".repeat(1030));
    assert_eq!(ask(&fixture, "GET", &path, "").text(), expected);
    fixture.wait_for_log(&["EsiTooManyTags", "1024", "/no?1025"]);
    assert!(!fixture.log().contains("/no?1026"), "{}", fixture.log());
    assert_eq!(stored(&fixture, &path, "").text(), expected);
    let failures = fixture.status()["failures"].to_string();
    assert!(failures.contains("EsiTooManyTags"), "{failures}");
}

#[test]
fn only_named_paths_of_the_own_site_are_included() {
    let fixture = server("esi-paths");
    for (at, src) in [
        "/secret/",
        "/other/fragment.php",
        "/esi/../secret/",
        "/esi/%2e%2e/secret/",
        "//example.org/esi/fragment.php",
        "http://elsewhere.example/esi/fragment.php",
        "https://example.org/esi/fragment.php",
        "secret/",
        "../esi/fragment.php",
        "/esix/fragment.php",
        "/?x=1",
        "file:///etc/passwd",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        let path = page(
            &fixture,
            &format!("p{at}"),
            &format!("a<esi:include src=\"{src}\"/>b"),
        );
        for _ in 0..2 {
            assert_eq!(ask(&fixture, "GET", &path, "").text(), "page:\nab", "{src}");
        }
    }
    assert_eq!(runs(&fixture, "fragments"), 0);
    fixture.wait_for_log(&["EsiNotAllowed", "/secret/", "[site.esi]"]);
    // A relative path is relative to the response with the tag: the page, or the fragment in it.
    fixture.write(
        "text/inner",
        "<esi:include src='fragment.php?n=1'/><esi:include src='esi/fragment.php' onerror='continue'/>",
    );
    let own = page(
        &fixture,
        "own",
        "<esi:include src=\"http://EXAMPLE.org/esi/fragment.php?n=1\"/><esi:include src='esi/fragment.php?marked&p=inner'/>",
    );
    for _ in 0..3 {
        assert_eq!(
            ask(&fixture, "GET", &own, "").text(),
            "page:\n[1:GET::127.0.0.1::][1:GET::127.0.0.1::]"
        );
    }
}

/// What a visitor writes into a page is not run, whether the application escapes it or not.
#[test]
fn tag_of_a_visitor_is_not_run() {
    let fixture = server("esi-typed");
    let typed = "<esi:include src=\"/secret/\"/>";
    let escaped = "&lt;esi:include src=&quot;/esi/fragment.php&quot;/&gt;";
    // The page is not marked: an application that knows nothing of ESI, on a site that has the table.
    let unmarked = page(
        &fixture,
        "a",
        &format!("{typed}<esi:include src='/esi/fragment.php'/>"),
    );
    let text = ask(&fixture, "GET", &format!("{unmarked}&unmarked=1"), "").text();
    assert!(
        text.contains(typed) && text.contains("<esi:include src='/esi"),
        "{text}"
    );
    // The page is marked, and shows a comment of a visitor.
    let marked = page(
        &fixture,
        "b",
        &format!("<esi:include src='/esi/fragment.php?n=1'/><p>{typed}</p><p>{escaped}</p>"),
    );
    for _ in 0..5 {
        let text = ask(&fixture, "GET", &marked, "").text();
        let expected = format!("page:\n[1:GET::127.0.0.1::]<p></p><p>{escaped}</p>");
        assert_eq!(text, expected);
    }
    // The visitor's own headers mark nothing, and do not tell the application what the server can do.
    let lines = "Surrogate-Control: content=\"ESI/1.0\"\r\nX-LiteSpeed-Cache-Control: esi=on\r\n\
                 Surrogate-Capability: evil=\"ESI/1.0 ESI-INLINE/1.0\"\r\n";
    let text = ask(&fixture, "GET", &format!("{unmarked}&unmarked=2"), lines).text();
    assert!(text.contains(typed), "{text}");
    let text = ask(&fixture, "GET", &format!("{marked}&capability=1"), lines).text();
    assert!(text.starts_with("page:\nhowdah=\"ESI/1.0\"\n"), "{text}");
}

#[test]
fn site_without_the_table_processes_nothing() {
    let fixture = builder("esi-off").site(SITE).start();
    let tag = "<esi:include src='/esi/fragment.php'/>";
    let path = page(&fixture, "one", tag);
    let lines = "Surrogate-Capability: varnish=\"ESI/1.0\"\r\n";
    let own = ask(&fixture, "GET", &format!("{path}&capability=1"), lines);
    assert_eq!(own.text(), format!("page:\nvarnish=\"ESI/1.0\"\n{tag}"));
    for _ in 0..4 {
        let response = ask(&fixture, "GET", &path, "");
        assert_eq!(response.text(), format!("page:\n{tag}"));
        assert!(response.header("Last-Modified").is_some());
    }
    assert_eq!(runs(&fixture, "fragments"), 0);
}

#[test]
fn fragment_is_shown_only_to_visitors_who_may_see_it() {
    let fixture = builder("esi-access")
        .site(SITE)
        .site("[site.esi]\npaths = [\"/esi\", \"/other\"]\n")
        .site("[[site.rule]]\nprefix = \"/other\"\nauth_basic = \"members\"\nauth_basic_user_file = \"ROOT/users\"\n")
        .file("users", "ann:$2y$04$6uIEqby2HLR.PpVdSTz2A.IS3XhKY6C8qujo6HuutCnYrJaR6x.4C\n")
        .start();
    let tag = "<esi:include src='/other/fragment.php?n=1' alt='/esi/fragment.php?n=public'/>";
    let path = page(&fixture, "one", tag);
    let public = "page:\n[public:GET::127.0.0.1::]";
    let member = "Authorization: Basic YW5uOnB3\r\n";
    for _ in 0..2 {
        for _ in 0..4 {
            let anonymous = ask(&fixture, "GET", &path, "");
            assert_eq!(anonymous.text(), public);
            assert_eq!(anonymous.header("WWW-Authenticate"), None);
        }
        let own = ask(&fixture, "GET", &path, member);
        assert_eq!(own.text(), "page:\n[1:GET::127.0.0.1:ann:]");
        let wrong = ask(&fixture, "GET", &path, "Authorization: Basic YW5uOnB4\r\n");
        assert_eq!(wrong.text(), public);
    }
}

#[test]
fn litespeed_page_is_processed_by_its_own_words() {
    let fixture = server("esi-litespeed");
    fixture.write(
        "site/index.php",
        "<?php header('X-LiteSpeed-Cache-Control: no-cache'); echo \"<{$_GET['lsesi']}>\";",
    );
    let path = page(
        &fixture,
        "one",
        "<!-- lscwp widget --><esi:inline name='/?lsesi=nonce' cache-control='private' cache-tag='t'>N</esi:inline>\
         <esi:include src='/?lsesi=nonce' cache-control='private' as-var='1' />\
         <a data-x='<esi:include src='/?lsesi=cart&_hash=1' cache-control='private,no-vary' />'>",
    );
    let path = format!("{path}&litespeed=1");
    let expected = "page:\n<!-- lscwp widget -->N<a data-x='<cart>'>";
    assert_eq!(ask(&fixture, "GET", &path, "").text(), expected);
    let hit = stored(&fixture, &path, "");
    assert_eq!(hit.text(), expected);
    assert_eq!(hit.header("X-LiteSpeed-Cache-Control"), None);
}

#[test]
fn page_of_a_post_is_composed_with_get_fragments() {
    let fixture = server("esi-post");
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?n=1'/>b",
    );
    let lines = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\nX-HTTP-Method-Override: DELETE\r\n";
    let request = format!("{}x=1", request("POST", &path, lines));
    let response = exchange(fixture.address(), request.as_bytes()).unwrap();
    assert_eq!(response.text(), "page:\na[1:GET::127.0.0.1::]b");
}

#[test]
fn under_rfc_the_page_is_stored_with_its_tags() {
    let fixture = builder("esi-rfc")
        .site("cache = \"rfc\"\n")
        .site(ESI)
        .start();
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?n=1'/>b",
    );
    let first = ask(&fixture, "GET", &path, "");
    assert_eq!(first.text(), "page:\na[1:GET::127.0.0.1::]b");
    assert_eq!(
        first.header("Cache-Status"),
        Some("Howdah; fwd=miss; stored")
    );
    let hit = ask(&fixture, "GET", &path, "Cookie: visitor=ann\r\n");
    assert!(is_hit(&hit), "{hit:?}");
    assert_eq!(hit.text(), "page:\na[1:GET:visitor=ann:127.0.0.1::]b");
    assert_eq!(hit.header("Last-Modified"), None);
}

#[test]
fn page_on_disk_keeps_its_tags() {
    let mut fixture = builder("esi-disk")
        .config("[cache]\npath = \"SCRATCH/store\"\n")
        .site(SITE)
        .site(ESI)
        .start();
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?n=1'/>b",
    );
    stored(&fixture, &path, "");
    fixture.restart();
    let before = runs(&fixture, "pages");
    let hit = ask(&fixture, "GET", &path, "");
    assert!(is_hit(&hit), "{hit:?}");
    assert_eq!(hit.text(), "page:\na[1:GET::127.0.0.1::]b");
    assert_eq!(runs(&fixture, "pages"), before);
}

#[test]
fn page_is_composed_over_http2_and_http3() {
    let fixture = builder("esi-versions")
        .h2c()
        .site(SITE)
        .site(ESI)
        .http3()
        .start();
    let path = page(
        &fixture,
        "one",
        "a<esi:include src='/esi/fragment.php?n=1'/>b",
    );
    let get = || Http2Request::new("GET", "localhost", &path).header("cookie", b"visitor=ann");
    let mut http2 = Http2TestClient::open(fixture.address()).unwrap();
    let mut http3 = fixture.http3();
    for _ in 0..6 {
        for response in [http2.ask(&get()).unwrap(), http3.ask(&get()).unwrap()] {
            assert!(
                response
                    .text()
                    .ends_with("\na[1:GET:visitor=ann:127.0.0.1::]b")
            );
            assert_eq!(response.header("Cache-Control"), Some("private, no-cache"));
        }
    }
}

#[test]
fn fragment_ends_when_the_client_leaves() {
    let fixture = server("esi-abort");
    let active = |f: &Fixture| f.status()["requests_active"].as_u64().unwrap();
    let before = active(&fixture);
    for name in ["one", "two", "three"] {
        let text = format!("a<esi:include src='/esi/fragment.php?gate={name}'/>b");
        let path = page(&fixture, name, &text);
        let gate = fixture.gate(name);
        let mut client = Connection::open(fixture.address()).unwrap();
        client.send(request("GET", &path, "")).unwrap();
        let waiting = gate.wait();
        drop(client);
        fixture.wait("the request to end", |f| active(f) == before);
        waiting.open();
    }
    fixture.wait("all children to be idle", |f| {
        f.status()["pools"][0]["active"].as_u64().unwrap_or(0) == 0
    });
    fixture.still_serves();
}

#[test]
fn slow_client_holds_no_process() {
    let fixture = builder("esi-slow-client")
        .children(1)
        .script("esi/large.php", "<?php header('Cache-Control: private'); for ($i = 0; $i < 512; $i++) echo str_repeat('l', 16384);")
        .site(SITE)
        .site(ESI)
        .start();
    let path = page(&fixture, "one", "a<esi:include src='/esi/large.php'/>b");
    let mut client = Connection::open(fixture.address()).unwrap();
    client.send(request("GET", &path, "")).unwrap();
    let head = client.read_head().unwrap();
    // The client reads nothing more, and the only process serves another one.
    fixture.still_serves();
    let mut framing = framing_of("GET", &head).unwrap();
    let mut trailers = Default::default();
    let mut length = 0;
    while let Some(piece) = client.read_piece(&mut framing, &mut trailers).unwrap() {
        length += piece.len();
    }
    assert_eq!(length, "page:\nab".len() + 512 * 16384);
}
