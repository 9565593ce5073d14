//! Clients that make the page cache useless, fill it with junk, or read another client's pages.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Response, exchange};

fn site(name: &str, lines: &str) -> Builder {
    Fixture::named(&format!("attack-cache-{name}"))
        .children(2)
        .site(lines)
}

fn ask(address: SocketAddr, target: &str, lines: &str) -> Response {
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: example.org\r\n{lines}Connection: close\r\n\r\n");
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{target}: {why}"))
}

fn cache_status(answer: &Response) -> String {
    answer.header("Cache-Status").unwrap_or("none").to_owned()
}

fn is_shared(answer: &Response) -> bool {
    let told = cache_status(answer);
    told.contains("; hit") || told.contains("; stored")
}

/// An attacker leads a visitor to an account page by a URL in another spelling. A page that must never be stored is not
/// stored, however its path is written.
#[test]
fn path_never_cached_is_not_cached_in_another_spelling() {
    for cache in ["on", "rfc"] {
        let lines = format!("cache = \"{cache}\"\ncache_never = [\"/account\", \"/caf%C3%A9\"]");
        let php = "<?php header('Cache-Control: max-age=600'); echo $_COOKIE['name'] ?? 'nobody';";
        let fixture = site(&format!("spelling-{cache}"), &lines)
            .script("account.php", php)
            .script("caf\u{e9}/x.php", php)
            .start();
        for target in [
            "/account.php",
            "/acc%6funt.php",
            "/%61ccount.php",
            "/acc%6Funt%2Ephp",
            "//account.php",
            "/./account.php",
            "/x/../account.php",
            "/x/%2e%2e/account.php",
            "/caf%c3%a9/x.php",
            "/caf%C3%A9/%78.php",
        ] {
            for lines in ["Cookie: name=victim\r\n", "", "", ""] {
                let answer = ask(fixture.address(), target, lines);
                assert!(
                    !is_shared(&answer),
                    "{cache} {target}: {}",
                    cache_status(&answer)
                );
                let victims = !lines.is_empty();
                assert_eq!(answer.text().contains("victim"), victims, "{target}");
            }
        }
    }
}

/// An application may evaluate each byte of a header, so a variant that one client caused by an unusual spelling is not
/// served to clients that send other bytes.
#[test]
fn variant_is_of_those_who_send_the_same_bytes() {
    let php = "<?php header('Vary: Accept-Language, X-Site'); header('Cache-Control: max-age=600');
echo substr($_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? '', 0, 2) === 'de' ? 'deutsch' : 'other';";
    let fixture = site("variants", "cache = \"on\"")
        .script("page.php", php)
        .start();
    for odd in [",,,de", ", de", "\"\",de", ",\tde"] {
        for _ in 0..4 {
            let lines = format!("Accept-Language: {odd}\r\n");
            assert_eq!(ask(fixture.address(), "/page.php", &lines).text(), "other");
        }
    }
    for _ in 0..4 {
        let answer = ask(fixture.address(), "/page.php", "Accept-Language: de\r\n");
        assert_eq!(answer.text(), "deutsch", "{}", cache_status(&answer));
    }
}

/// An application's own cookie whose name begins like that of an analytics tool is not ignored, because the cookie's
/// owner would then get the anonymous page.
#[test]
fn cookie_that_begins_like_one_of_analytics_is_the_applications() {
    let php = "<?php echo 'owner=', $_COOKIE['_gallery_session'] ?? $_COOKIE['_hjemme_session'] ?? 'nobody';";
    let fixture = site("cookies", "cache = \"on\"")
        .script("page.php", php)
        .start();
    for _ in 0..3 {
        ask(
            fixture.address(),
            "/page.php",
            "Cookie: _ga=1; _ga_1ABC2DEF3G=2\r\n",
        );
    }
    assert!(is_shared(&ask(fixture.address(), "/page.php", "")));
    for name in ["_gallery_session", "_hjemme_session"] {
        let answer = ask(
            fixture.address(),
            "/page.php",
            &format!("Cookie: {name}=me\r\n"),
        );
        assert_eq!(answer.text(), "owner=me", "{name}");
        assert!(!is_shared(&answer), "{name}: {}", cache_status(&answer));
    }
}

/// An application's own parameter whose name begins like that of a tracking parameter is not removed, because the
/// script would then return another page.
#[test]
fn parameter_that_begins_like_one_of_tracking_is_the_applications() {
    let php = "<?php echo 'product=', $_GET['pk_product'] ?? $_GET['trk_id'] ?? 'none';";
    let fixture = site("parameters", "cache = \"on\"")
        .script("page.php", php)
        .start();
    for product in [
        "pk_product=5",
        "pk_product=6",
        "trk_id=7",
        "utm_x=1&trk_id=8",
    ] {
        let number = product.rsplit('=').next().unwrap_or_default();
        for _ in 0..4 {
            let answer = ask(fixture.address(), &format!("/page.php?{product}"), "");
            assert_eq!(answer.text(), format!("product={number}"));
        }
    }
}

/// `Content-Range` on a 200 has no meaning (RFC 9110 §14.4): the page is stored, and partial responses made from it
/// have a `Content-Range` of their own.
#[test]
fn content_range_on_a_whole_page_neither_keeps_it_out_nor_gets_into_its_parts() {
    let php = "<?php header('Cache-Control: public, max-age=300');
header('Content-Range: 0-9/10'); echo '0123456789';";
    let fixture = site("range", "cache = \"on\"")
        .script("page.php", php)
        .start();
    for _ in 0..3 {
        ask(fixture.address(), "/page.php", "");
    }
    let answer = ask(fixture.address(), "/page.php", "");
    assert!(
        cache_status(&answer).contains("; hit"),
        "{}",
        cache_status(&answer)
    );
    let part = ask(fixture.address(), "/page.php", "Range: bytes=2-4\r\n");
    assert_eq!((part.status(), part.text().as_str()), (206, "234"));
    let ranges = part.head.headers.0.iter();
    let ranges = ranges.filter(|(name, _)| name.eq_ignore_ascii_case("Content-Range"));
    let ranges: Vec<_> = ranges.map(|(_, value)| value.as_str()).collect();
    assert_eq!(ranges, ["bytes 2-4/10"]);
}

/// New values of a header that a page varies by create variants. They neither keep other clients' variants out of the
/// cache nor make the script run more often than the page is requested.
#[test]
fn junk_variants_do_not_keep_others_out() {
    let php = "<?php file_put_contents('SCRATCH/runs', 'x', FILE_APPEND); header('Vary: Accept-Language');
echo $_SERVER['HTTP_ACCEPT_LANGUAGE'] ?? 'none';";
    let fixture = site("junk", "cache = \"on\"")
        .script("page.php", php)
        .start();
    let runs = || std::fs::read(fixture.path("runs")).map_or(0, |bytes| bytes.len());
    let asks = |language: &str, times: usize| {
        let lines = format!("Accept-Language: {language}\r\n");
        let told = |_| {
            let answer = ask(fixture.address(), "/page.php", &lines);
            assert_eq!(answer.text(), language);
            cache_status(&answer)
        };
        (0..times).map(told).collect::<Vec<_>>()
    };
    for n in 0..40 {
        asks(&format!("zz-{n}"), 2);
    }
    assert_eq!(runs(), 80, "PHP should run once for each request");
    for purged in [false, true] {
        if purged {
            let output = fixture.control(&["cache", "purge", "--all"]);
            assert!(output.status.success(), "{output:?}");
        }
        let language = if purged { "fr" } else { "de" };
        let told = asks(language, 4);
        assert!(told[1].ends_with("; stored"), "{told:?}");
        assert!(told[3].contains("; hit"), "{told:?}");
    }
}

/// Clients request pages and disconnect at once. Their requests, both first visits and renders for the cache, must not
/// stay in the pool's queue before those of other clients.
#[test]
fn requests_of_disconnected_clients_leave_the_queue() {
    const CLIENTS: usize = 60;
    let fixture = site("leaving", "cache = \"on\"")
        .script(
            "page.php",
            "<?php require 'GATES'; if (file_exists('SCRATCH/stand')) stand_at('busy');
file_put_contents('SCRATCH/runs', 'x', FILE_APPEND); echo 'page';",
        )
        .start();
    let runs = || std::fs::read(fixture.path("runs")).map_or(0, |bytes| bytes.len());
    let queued = |f: &Fixture| f.status()["pools"][0]["queue"].as_u64().unwrap();
    // Every other page has had its first visit, so it is rendered for the cache.
    for n in (0..CLIENTS).step_by(2) {
        ask(fixture.address(), &format!("/page.php/{n}"), "");
    }
    let before = runs();
    fixture.write("stand", "");
    let gate = fixture.gate("busy");
    let busy: Vec<_> = (0..2)
        .map(|n| fixture.start_get(&format!("/page.php/busy{n}")))
        .collect();
    let standing = gate.wait();
    fixture.wait("both processes to be busy", |f| {
        f.status()["pools"][0]["active_processes"] == 2
    });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut stream = TcpStream::connect(fixture.address()).expect("the server listens");
            let request = format!("GET /page.php/{n} HTTP/1.1\r\nHost: example.org\r\n\r\n");
            stream
                .write_all(request.as_bytes())
                .expect("a request can be sent");
            stream
        })
        .collect();
    fixture.wait("all requests to wait", |f| queued(f) >= CLIENTS as u64);
    drop(clients);
    fixture.wait("the queue to be empty", |f| queued(f) == 0);
    std::fs::remove_file(fixture.path("stand")).unwrap();
    standing.open();
    for one in busy {
        assert_eq!(one.answer().status(), 200);
    }
    assert_eq!(
        ask(fixture.address(), "/page.php/visitor", "").text(),
        "page"
    );
    assert_eq!(
        runs(),
        before + 3,
        "no request of a disconnected client should have been run"
    );
}

/// A script that counts the visits of a link runs exactly once for each visit: PHP does not run again for the cache if
/// the result could not be stored.
#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-sqlite3")]
fn visit_is_counted_once() {
    let count = "<?php $db = new PDO('sqlite:SCRATCH/db/site');
$db->exec(\"INSERT INTO clicks VALUES ('{$_SERVER['REMOTE_ADDR']}')\"); ";
    let builder = site("clicks", "cache = \"on\"");
    builder.scratch().writable_dir("db");
    let fixture = builder
        .script("make.php", "<?php (new PDO('sqlite:SCRATCH/db/site'))->exec('CREATE TABLE clicks (ip TEXT)'); echo 'made';")
        .script("go.php", &format!("{count} header('Location: /elsewhere', true, 301);"))
        .script("session.php", "<?php file_put_contents('SCRATCH/runs', 'x', FILE_APPEND); session_start(); echo 'mine';")
        .script("clicks.php", "<?php header('Cache-Control: no-store');
foreach ((new PDO('sqlite:SCRATCH/db/site'))->query('SELECT ip, count(*) FROM clicks GROUP BY ip') as $row) echo $row[0], '=', $row[1], ' ';")
        .start();
    assert_eq!(ask(fixture.address(), "/make.php", "").text(), "made");
    for _ in 0..10 {
        assert_eq!(ask(fixture.address(), "/go.php", "").status(), 301);
    }
    let clicks = ask(fixture.address(), "/clicks.php", "").text();
    assert_eq!(clicks, "127.0.0.1=10 ");
    for n in 0..30 {
        ask(fixture.address(), &format!("/session.php/{n}"), "");
    }
    let runs = std::fs::read(fixture.path("runs")).unwrap().len();
    assert_eq!(runs, 30);
    // The log and the status tell the administrator the reason.
    let line = fixture.wait_for_log(&["NothingStorable", "SessionOpened"]);
    assert!(line.contains("could be stored"), "{line}");
    let status = fixture.control(&["status"]).stdout;
    let status = String::from_utf8_lossy(&status).into_owned();
    assert!(
        status.contains("responses could be stored (SessionOpened"),
        "{status}"
    );
}
