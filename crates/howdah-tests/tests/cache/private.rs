//! Private pages over HTTP, with real PHP sessions: what is stored for a visitor, who gets it, and when it is forgotten.
//! The rules of the policy and the bounds of the store have tests of their own in `howdah-cache`.

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Response, exchange};
use howdah_tests::http2::{Http2Request, Http2TestClient};
#[cfg(feature = "packages")]
use howdah_tests::rig::Fpm;

/// An application with logins: its pages show the user and the version of the user's data. Counts its runs.
pub const APPLICATION: &str = r#"<?php
file_put_contents('SCRATCH/runs', 'x', FILE_APPEND | LOCK_EX);
@mkdir('SCRATCH/sessions');
session_save_path('SCRATCH/sessions');
switch ($_GET['do'] ?? 'read') {
case 'login':
    session_start();
    session_regenerate_id(true);
    $_SESSION = ['user' => $_GET['name'], 'version' => 0];
    exit('in');
case 'logout':
    session_start();
    $_SESSION = [];
    session_destroy();
    if (!isset($_GET['silent'])) setcookie(session_name(), '', 1, '/');
    exit('out');
case 'write':
    session_start();
    $_SESSION['version']++;
    exit("version={$_SESSION['version']}");
case 'purge':
    header("X-LiteSpeed-Purge: {$_GET['what']}");
    exit('purged');
case 'database':
    $db = new SQLite3('SCRATCH/site.sqlite');
    $db->exec('CREATE TABLE IF NOT EXISTS t (n INTEGER)');
    exit('wrote');
case 'poll':
    exit('polled');
}
if (!isset($_GET['plain'])) header('X-LiteSpeed-Cache-Control: private,max-age=' . ($_GET['age'] ?? 600));
foreach ((array) ($_GET['header'] ?? []) as $line) header($line, false);
if (isset($_GET['marked'])) { session_cache_limiter(''); header('Surrogate-Control: content="ESI/1.0"'); }
if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
if (isset($_GET['slow'])) { require 'GATES'; stand_at('slow'); }
if (isset($_COOKIE['PHPSESSID']) && !isset($_GET['open'])) {
    session_start();
    if (isset($_GET['change'])) $_SESSION['version']++;
    if (isset($_GET['gone'])) { setcookie('x', 'y'); header_remove('Set-Cookie'); }
    echo 'user=', $_SESSION['user'] ?? 'nobody', ' version=', $_SESSION['version'] ?? 0;
}
echo ' end', str_repeat('.', (int) ($_GET['long'] ?? 0));
"#;

/// Returns a site with private pages and these further options.
pub fn builder(name: &str, options: &str) -> Builder {
    let builder = Fixture::named(name)
        .children(4)
        .script("app.php", APPLICATION)
        .ini("session.use_strict_mode", "1");
    builder.site(&format!("cache = \"on\"\n{options}\n[site.private]"))
}

pub fn request(method: &str, path: &str, lines: &str) -> String {
    let length = match method {
        "POST" => "Content-Length: 0\r\n",
        _ => "",
    };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}{length}Connection: close\r\n\r\n"
    )
}

fn ask(fixture: &Fixture, method: &str, path: &str, lines: &str) -> Response {
    let request = request(method, path, lines);
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Returns the session's cookie that a response sets.
pub fn session_of(response: &Response) -> String {
    let cookies = response.head.headers.all("Set-Cookie");
    let session = cookies.filter(|line| line.starts_with("PHPSESSID=")).last();
    let session = session.unwrap_or_else(|| panic!("no session: {response:?}"));
    session.split(';').next().unwrap().to_owned()
}

/// Logs a user in and returns the request header with the cookie.
fn log_in(fixture: &Fixture, name: &str) -> String {
    let path = format!("/app.php?do=login&name={name}");
    let response = ask(fixture, "POST", &path, "");
    assert_eq!(response.text(), "in");
    format!("Cookie: {}\r\n", session_of(&response))
}

fn cache_status(response: &Response) -> &str {
    response.header("Cache-Status").unwrap_or_default()
}

fn is_hit(response: &Response) -> bool {
    let status = cache_status(response);
    status.starts_with("Howdah; hit; ttl=") && status.ends_with("; detail=private")
}

fn runs(fixture: &Fixture) -> usize {
    std::fs::read(fixture.path("runs")).map_or(0, |bytes| bytes.len())
}

/// Asks for a page until it is the visitor's stored one. Returns its text.
fn keep(fixture: &Fixture, path: &str, lines: &str) -> String {
    fixture.wait("the page to be stored for its visitor", |f| {
        is_hit(&ask(f, "GET", path, lines))
    });
    ask(fixture, "GET", path, lines).text()
}

/// Checks that the visitor's next response comes from PHP and has this text.
fn check_forgotten(fixture: &Fixture, path: &str, lines: &str, text: &str) {
    let response = ask(fixture, "GET", path, lines);
    assert!(!is_hit(&response), "{path}: {response:?}");
    assert_eq!(response.text(), text, "{path}");
}

#[test]
fn visitor_gets_the_stored_page_without_php_and_nobody_else_does() {
    let fixture = builder("private-own", "").start();
    let (ann, bob) = (log_in(&fixture, "ann"), log_in(&fixture, "bob"));
    let first = ask(&fixture, "GET", "/app.php", &ann);
    assert_eq!(
        cache_status(&first),
        "Howdah; fwd=miss; stored; detail=private"
    );
    assert_eq!(first.header("X-LiteSpeed-Cache-Control"), None);
    assert_eq!(keep(&fixture, "/app.php", &ann), "user=ann version=0 end");
    assert_eq!(keep(&fixture, "/app.php", &bob), "user=bob version=0 end");
    let before = runs(&fixture);
    for (lines, name) in [(&ann, "ann"), (&bob, "bob"), (&ann, "ann")] {
        let hit = ask(&fixture, "GET", "/app.php", lines);
        assert!(is_hit(&hit), "{hit:?}");
        assert_eq!(hit.text(), format!("user={name} version=0 end"));
        assert_eq!(hit.header("X-Cache"), Some("HIT"));
        // The browser still gets what PHP said to it.
        let control = hit.header("Cache-Control").unwrap_or_default();
        assert!(control.contains("no-store"), "{control}");
        let tag = hit.header("ETag").expect("a validator").to_owned();
        let condition = format!("{lines}If-None-Match: {tag}\r\n");
        assert_eq!(ask(&fixture, "GET", "/app.php", &condition).status(), 304);
        let head = ask(&fixture, "HEAD", "/app.php", lines);
        assert!(is_hit(&head) && head.body.is_empty());
        let part = ask(
            &fixture,
            "GET",
            "/app.php",
            &format!("{lines}Range: bytes=5-7\r\n"),
        );
        assert_eq!((part.status(), part.text()), (206, name.to_owned()));
    }
    assert_eq!(runs(&fixture), before);
    // A visitor without a session has no private pages, from whatever address.
    for _ in 0..3 {
        let response = ask(&fixture, "GET", "/app.php", "");
        let expected = "Howdah; fwd=miss; detail=VisitorUnidentified";
        assert_eq!(
            (cache_status(&response), &*response.text()),
            (expected, " end")
        );
    }
    let status = fixture.status();
    let private = &status["cache"]["private"];
    assert_eq!(private["pages"], 2, "{status}");
    assert!(private["bytes"].as_u64() < private["capacity"].as_u64());
    let site = &status["cache"]["sites"][0];
    assert!(site["private_hits"].as_u64() >= Some(12), "{site}");
}

#[test]
fn what_the_visitor_writes_is_seen_at_once() {
    let fixture = builder("private-writes", "").start();
    let (ann, bob) = (log_in(&fixture, "ann"), log_in(&fixture, "bob"));
    keep(&fixture, "/app.php", &bob);
    // A session may also be changed by a GET.
    for (version, method) in ["POST", "GET", "PUT", "GET"].into_iter().enumerate() {
        keep(&fixture, "/app.php", &ann);
        keep(&fixture, "/app.php?other", &ann);
        let wrote = ask(&fixture, method, "/app.php?do=write", &ann);
        let version = version + 1;
        assert_eq!(wrote.text(), format!("version={version}"), "{method}");
        let expected = format!("user=ann version={version} end");
        check_forgotten(&fixture, "/app.php", &ann, &expected);
        check_forgotten(&fixture, "/app.php?other", &ann, &expected);
    }
    // A response that opens no session and writes nothing changes nothing.
    keep(&fixture, "/app.php", &ann);
    ask(&fixture, "GET", "/app.php?do=poll", &ann);
    assert!(is_hit(&ask(&fixture, "GET", "/app.php", &ann)));
    // A write of another visitor without a session invalidates what any write invalidates: all pages of the site.
    ask(&fixture, "POST", "/app.php?do=poll", "");
    check_forgotten(&fixture, "/app.php", &bob, "user=bob version=0 end");
}

/// Only a response that can be stored shows that the script has changed nothing, whatever its headers say.
#[test]
fn changed_session_is_seen_unless_the_response_can_be_stored() {
    let fixture = builder("private-not-storable", "").start();
    let ann = log_in(&fixture, "ann");
    let mut version = 0;
    let mut change = |method: &str, query: &str| {
        keep(&fixture, "/app.php", &ann);
        let path = format!("/app.php?do=read&change=1&{query}");
        ask(&fixture, method, &path, &ann);
        version += 1;
        let expected = format!("user=ann version={version} end");
        check_forgotten(&fixture, "/app.php", &ann, &expected);
    };
    for query in [
        "age=0",
        "plain=1&header=Cache-Control:public,max-age%3D0,must-revalidate",
        "status=302",
        "status=404",
        "header=Set-Cookie:a%3Db",
        "header=Vary:*",
        "gone=1",
    ] {
        change("GET", query);
    }
    change("OPTIONS", "");
    change("HEAD", "");
}

#[cfg(feature = "packages")]
#[test]
fn database_write_forgets_the_visitors_pages() {
    let fixture = builder("private-database", "").start();
    let ann = log_in(&fixture, "ann");
    keep(&fixture, "/app.php", &ann);
    assert_eq!(
        ask(&fixture, "GET", "/app.php?do=database", &ann).text(),
        "wrote"
    );
    check_forgotten(&fixture, "/app.php", &ann, "user=ann version=0 end");
}

#[test]
fn write_to_which_a_render_is_too_late_is_not_lost() {
    let fixture = builder("private-race", "").start();
    let ann = log_in(&fixture, "ann");
    // This render opens its session when it is released, after a purge has happened.
    let gate = fixture.gate("slow");
    let path = "/app.php?slow=1&open=1";
    let (address, slow) = (fixture.address(), request("GET", path, &ann));
    let reader = std::thread::spawn(move || exchange(address, slow.as_bytes()).expect("a page"));
    let render = gate.wait();
    let purged = ask(
        &fixture,
        "GET",
        "/app.php?do=purge&what=private,tag%3Dx",
        &ann,
    );
    assert_eq!(purged.text(), "purged");
    render.open();
    let late = reader.join().unwrap();
    assert_eq!(late.text(), " end");
    assert_eq!(
        cache_status(&late),
        "Howdah; fwd=miss; detail=OutdatedRender"
    );
    assert_eq!(fixture.status()["cache"]["private"]["pages"], 0);
}

#[test]
fn logout_forgets_everything_of_the_visitor() {
    let fixture = builder("private-logout", "").start();
    for (method, how) in [
        ("POST", ""),
        ("GET", ""),
        ("POST", "&silent"),
        ("GET", "&silent"),
    ] {
        let ann = log_in(&fixture, "ann");
        keep(&fixture, "/app.php", &ann);
        keep(&fixture, "/app.php?other", &ann);
        ask(&fixture, method, &format!("/app.php?do=logout{how}"), &ann);
        for path in ["/app.php", "/app.php?other"] {
            // The old cookie shows nothing of the old session.
            let response = ask(&fixture, "GET", path, &ann);
            assert!(!is_hit(&response), "{method} {how}");
            assert_eq!(response.text(), "user=nobody version=0 end");
        }
    }
    // So does a login that gives the visitor a new session.
    let ann = log_in(&fixture, "ann");
    keep(&fixture, "/app.php", &ann);
    ask(&fixture, "GET", "/app.php?do=login&name=bob", &ann);
    check_forgotten(&fixture, "/app.php", &ann, "user=nobody version=0 end");
}

#[test]
fn private_purge_reaches_the_visitors_own_pages_alone() {
    let fixture = builder("private-purge", "").start();
    let (ann, bob) = (log_in(&fixture, "ann"), log_in(&fixture, "bob"));
    let tagged = "/app.php?header=X-LiteSpeed-Tag:cart";
    let other = "/app.php?other";
    for (what, purges_tagged, purges_other) in [
        ("private,*", true, true),
        ("private,tag%3Dcart", true, false),
        ("private,cart", true, false),
        ("private,/app.php?other", false, true),
        ("private,/app*", true, true),
        ("private,/elsewhere", false, false),
        ("public,nothing%3Bprivate,stale,tag%3Dcart", true, false),
    ] {
        for visitor in [&ann, &bob] {
            keep(&fixture, tagged, visitor);
            keep(&fixture, other, visitor);
        }
        ask(
            &fixture,
            "GET",
            &format!("/app.php?do=purge&what={what}"),
            &ann,
        );
        for (path, is_purged) in [(tagged, purges_tagged), (other, purges_other)] {
            let hit = is_hit(&ask(&fixture, "GET", path, &ann));
            assert_eq!(hit, !is_purged, "{what}: {path}");
            assert!(is_hit(&ask(&fixture, "GET", path, &bob)), "{what}: {path}");
        }
    }
    // Public purges reach private pages, too, and so does an administrator's.
    for words in [&["--tag", "cart"][..], &["/app.php"], &["--all"]] {
        keep(&fixture, tagged, &ann);
        let purge = [&["cache", "purge"][..], words].concat();
        assert!(fixture.control(&purge).status.success());
        assert!(!is_hit(&ask(&fixture, "GET", tagged, &ann)), "{words:?}");
    }
}

#[test]
fn response_is_not_stored_for_its_visitor_without_a_doubt() {
    let fixture = builder("private-refused", "").start();
    let ann = log_in(&fixture, "ann");
    let cookie = ann.trim_end().strip_prefix("Cookie: ").unwrap().to_owned();
    let refused = |path: &str, lines: &str, why: &str| {
        for _ in 0..3 {
            let response = ask(&fixture, "GET", path, lines);
            let expected = format!("detail={why}");
            assert!(
                cache_status(&response).ends_with(&expected),
                "{path} {lines}: {response:?}"
            );
        }
    };
    for (query, why) in [
        ("header=Set-Cookie:a%3Db", "SetCookie"),
        ("header=Vary:*", "VaryStar"),
        ("header=Vary:Referer", "VaryUnbounded"),
        ("status=404", "Status"),
        ("status=500", "Status"),
        ("age=0", "NoLifetime"),
        (
            "header=X-LiteSpeed-Cache-Control:esi%3Don",
            "DoNotCachePage",
        ),
        // The application does not ask for it.
        (
            "plain=1&header=Cache-Control:private,max-age%3D60",
            "SessionCookie",
        ),
        ("plain=1", "SessionCookie"),
        (
            "plain=1&header=X-LiteSpeed-Cache-Control:private,no-cache",
            "SessionCookie",
        ),
    ] {
        refused(&format!("/app.php?{query}"), &ann, why);
    }
    for (lines, why) in [
        (
            format!("Cookie: {cookie}; {cookie}\r\n"),
            "VisitorUnidentified",
        ),
        (
            format!("Cookie: {cookie}\r\nCookie: {cookie}\r\n"),
            "VisitorUnidentified",
        ),
        (
            format!("Cookie: {}\r\n", cookie.replace("PHPSESSID", "PHPSESSID[]")),
            "VisitorUnidentified",
        ),
        (
            format!("Cookie: {}\r\n", cookie.replace("PHPSESSID", "%50HPSESSID")),
            "VisitorUnidentified",
        ),
        (
            format!("Cookie: {}\r\n", cookie.replace("PHPSESSID", "phpsessid")),
            "VisitorUnidentified",
        ),
        ("Cookie: PHPSESSID=\r\n".to_owned(), "VisitorUnidentified"),
        (
            "Cookie: PHPSESSID=short\r\n".to_owned(),
            "VisitorUnidentified",
        ),
        (format!("Cookie: {cookie}; a%00b=1\r\n"), "UnreadableCookie"),
        (
            format!("{ann}Authorization: Basic eDp5\r\n"),
            "Authorization",
        ),
        (
            format!("{ann}X-Requested-With: XMLHttpRequest\r\n"),
            "PersonalField",
        ),
    ] {
        refused("/app.php?open=1", &lines, why);
    }
    assert_eq!(fixture.status()["cache"]["private"]["pages"], 0);
    let very_long = format!("Cookie: PHPSESSID={}\r\n", "x".repeat(6000));
    assert_eq!(keep(&fixture, "/app.php?open=1", &very_long), " end");
}

#[test]
fn everything_that_php_sees_of_the_request_is_in_the_key() {
    let fixture = builder("private-key", "").start();
    let ann = log_in(&fixture, "ann");
    let base = format!("{ann}User-Agent: A\r\nAccept-Language: de\r\n");
    keep(&fixture, "/app.php", &base);
    for other in [
        format!("{ann}User-Agent: B\r\nAccept-Language: de\r\n"),
        format!("{ann}User-Agent: A\r\nAccept-Language: en\r\n"),
        format!("{ann}User-Agent: A\r\n"),
        format!("{base}Accept-Encoding: gzip\r\n"),
        format!("{base}X-Anything: 1\r\n"),
        format!("{}; currency=eur\r\n", ann.trim_end())
            + "User-Agent: A\r\nAccept-Language: de\r\n",
    ] {
        let response = ask(&fixture, "GET", "/app.php", &other);
        assert!(!is_hit(&response), "{other}");
        assert!(is_hit(&ask(&fixture, "GET", "/app.php", &other)), "{other}");
    }
    for path in ["/app.php?utm_source=a", "/app.php?a"] {
        assert!(!is_hit(&ask(&fixture, "GET", path, &base)), "{path}");
    }
    // What differs between two requests of one browser does not matter.
    for same in [
        "Referer: http://example.org/x\r\n",
        "Cache-Control: no-cache\r\n",
        "Cookie: _ga=1\r\n",
    ] {
        let lines = format!("{base}{same}");
        assert!(is_hit(&ask(&fixture, "GET", "/app.php", &lines)), "{same}");
    }
}

#[test]
fn http2_visitor_gets_the_own_page() {
    let fixture = builder("private-http2", "").h2c().start();
    let (ann, bob) = (log_in(&fixture, "ann"), log_in(&fixture, "bob"));
    let mut http2 = Http2TestClient::open(fixture.address()).unwrap();
    for (lines, name) in [(&ann, "ann"), (&bob, "bob")] {
        let cookie = lines.trim_end().strip_prefix("Cookie: ").unwrap();
        let get = || {
            Http2Request::new("GET", "example.org", "/app.php").header("cookie", cookie.as_bytes())
        };
        let first = http2.ask(&get()).unwrap();
        assert!(!is_hit(&first), "{first:?}");
        let second = http2.ask(&get()).unwrap();
        assert!(is_hit(&second), "{second:?}");
        assert_eq!(second.text(), format!("user={name} version=0 end"));
    }
}

#[test]
fn many_private_pages_evict_neither_public_ones_nor_those_in_use() {
    let fixture = builder("private-many", "")
        .script("public.php", "<?php echo 'public';")
        .config("[cache]\nmemory = \"4M\"")
        .start();
    fixture.wait("the public page to be stored", |f| {
        ask(f, "GET", "/public.php", "").header("X-Cache") == Some("HIT")
    });
    let cookie = |n: usize| format!("Cookie: PHPSESSID=aaaaaaaaaaaaaaaaaaaa{n:08}\r\n");
    let path = "/app.php?open=1&long=20000";
    let used = |n: usize| is_hit(&ask(&fixture, "GET", path, &cookie(n)));
    for n in 0..200 {
        assert!(!used(n));
        assert!(used(n) && used(0));
    }
    assert!(!used(1));
    let status = fixture.status();
    let private = &status["cache"]["private"];
    assert_eq!(private["capacity"], 1 << 20);
    assert!(
        private["bytes"].as_u64() <= private["capacity"].as_u64(),
        "{private}"
    );
    assert!(private["evictions"].as_u64() > Some(100), "{private}");
    let public = ask(&fixture, "GET", "/public.php", "");
    assert_eq!(public.header("X-Cache"), Some("HIT"));
    // One visitor cannot use more than a share.
    for n in 0..40 {
        ask(&fixture, "GET", &format!("{path}&n={n}"), &cookie(1000));
    }
    assert!(used(0));
    // A page that is longer than the share is not stored.
    let response = ask(&fixture, "GET", "/app.php?open=1&long=100000", &cookie(0));
    assert!(
        cache_status(&response).contains("private")
            || cache_status(&response).ends_with("TooLarge")
    );
    let again = ask(&fixture, "GET", "/app.php?open=1&long=100000", &cookie(0));
    assert!(!is_hit(&again));
}

#[test]
fn private_pages_are_never_on_disk_and_end_with_the_process_and_the_configuration() {
    let mut fixture = builder("private-disk", "")
        .script("public.php", "<?php echo 'public page';")
        .config("[cache]\npath = \"SCRATCH/cache\"")
        .start();
    let ann = log_in(&fixture, "ann");
    assert_eq!(keep(&fixture, "/app.php", &ann), "user=ann version=0 end");
    fixture.wait("the public page to be on disk", |f| {
        ask(f, "GET", "/public.php", "");
        contains(&f.path("cache"), b"public page")
    });
    let session = ann.trim_end().rsplit('=').next().unwrap().to_owned();
    for secret in [&b"user=ann"[..], session.as_bytes()] {
        assert!(!contains(&fixture.path("cache"), secret));
    }
    fixture.reload();
    check_forgotten(&fixture, "/app.php", &ann, "user=ann version=0 end");
    keep(&fixture, "/app.php", &ann);
    fixture.restart();
    check_forgotten(&fixture, "/app.php", &ann, "user=ann version=0 end");
    assert!(!contains(&fixture.path("cache"), b"user=ann"));
}

/// Returns whether any file below a directory contains the bytes.
fn contains(directory: &std::path::Path, bytes: &[u8]) -> bool {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return false;
    };
    entries.flatten().any(|entry| match entry.path() {
        path if path.is_dir() => contains(&path, bytes),
        path => {
            let text = std::fs::read(path).unwrap_or_default();
            text.windows(bytes.len()).any(|part| part == bytes)
        }
    })
}

#[test]
fn explanation_names_the_visitors_pages_and_why_others_are_not_stored() {
    let fixture = builder("private-explain", "").start();
    let ann = log_in(&fixture, "ann");
    keep(&fixture, "/app.php", &ann);
    ask(
        &fixture,
        "GET",
        "/app.php?open=1&header=Set-Cookie:a%3Db",
        &ann,
    );
    // That response has a cookie, but it is not the session's.
    let explain = |path: &str, header: &str| {
        let url = format!("http://example.org{path}");
        let words = ["cache", "explain", &url, "-H", header];
        String::from_utf8(fixture.control(&words).stdout).unwrap()
    };
    let text = explain("/app.php", ann.trim_end());
    assert!(text.contains("this visitor has 1 private pages"), "{text}");
    assert!(
        text.contains("private page stored: fresh; status 200"),
        "{text}"
    );
    let text = explain("/app.php?open=1&header=Set-Cookie:a%3Db", ann.trim_end());
    assert!(
        text.contains("as a private page") && text.contains("SetCookie"),
        "{text}"
    );
    let text = explain("/app.php", "Accept: */*");
    assert!(
        text.contains("no private page: VisitorUnidentified"),
        "{text}"
    );
}

/// Starts a server that stores no private pages, and checks that a visitor's requests bypass the cache.
fn bypassed(name: &str, site: &str) -> Fixture {
    let fixture = Fixture::named(name)
        .script("app.php", APPLICATION)
        .site(site)
        .start();
    let ann = log_in(&fixture, "ann");
    for _ in 0..4 {
        let response = ask(&fixture, "GET", "/app.php", &ann);
        assert_eq!(
            cache_status(&response),
            "Howdah; fwd=bypass; detail=SessionCookie"
        );
    }
    fixture
}

#[test]
fn without_the_table_nothing_private_is_stored() {
    let fixture = bypassed("private-off", "cache = \"on\"");
    assert!(fixture.status()["cache"]["private"].is_null());
}

/// A page for all visitors with a fragment for one visitor.
const PAGE: &str = r#"<?php
file_put_contents('SCRATCH/runs', 'x', FILE_APPEND | LOCK_EX);
header('X-LiteSpeed-Cache-Control: public,max-age=600,esi=on');
$tag = $_GET['tag'] ?? '';
echo "<p>hello <esi:include src='/app.php?fragment=1{$_GET['query']}' $tag/></p>";
"#;

#[test]
fn public_page_with_a_private_fragment_needs_no_php() {
    let fixture = builder("private-fragment", "")
        .script("page.php", PAGE)
        .site("[site.esi]\npaths = [\"/app.php\"]\ncookies = [\"PHPSESSID\"]")
        .start();
    let (ann, bob) = (log_in(&fixture, "ann"), log_in(&fixture, "bob"));
    // In the second case, the tag and the browser's header say that the fragment is the visitor's own.
    let by_tag = "/page.php?query=%26plain=1%26open=1%26header=Cache-Control:private,max-age%253D60&tag=cache-control%3D%27private%27";
    for (path, of_ann, of_bob) in [
        (
            "/page.php?query=",
            "user=ann version=0 end",
            "user=bob version=0 end",
        ),
        (by_tag, " end", " end"),
    ] {
        for _ in 0..4 {
            for lines in [&ann, &bob] {
                ask(&fixture, "GET", path, lines);
            }
        }
        let before = runs(&fixture);
        for (lines, own) in [(&ann, of_ann), (&bob, of_bob)] {
            let response = ask(&fixture, "GET", path, lines);
            assert_eq!(response.text(), format!("<p>hello {own}</p>"));
            assert!(
                cache_status(&response).starts_with("Howdah; hit"),
                "{response:?}"
            );
        }
        assert_eq!(runs(&fixture), before, "{path}");
    }
    // A fragment that is the same for all visitors is stored for each visitor, and not shared with them.
    for control in ["X-LiteSpeed-Cache-Control", "Cache-Control"] {
        let query = format!("%26plain=1%26open=1%26header={control}:public,max-age%253D60");
        let path = format!("/page.php?query={query}");
        for _ in 0..4 {
            ask(&fixture, "GET", &path, "");
            ask(&fixture, "GET", &path, &ann);
        }
        let before = runs(&fixture);
        ask(&fixture, "GET", &path, &ann);
        assert_eq!(runs(&fixture), before, "{control}");
        ask(&fixture, "GET", &path, &bob);
        assert_eq!(runs(&fixture), before + 1, "{control}");
    }
    // The same fragment without the word in the tag comes from PHP.
    let path = "/page.php?query=%26plain=1%26open=1%26header=Cache-Control:private,max-age%253D60%26untagged";
    for _ in 0..4 {
        ask(&fixture, "GET", path, &ann);
    }
    let before = runs(&fixture);
    ask(&fixture, "GET", path, &ann);
    assert_eq!(runs(&fixture), before + 1);
    // A fragment whose own tags are processed is stored like any other, and forgets nothing.
    let marked = "/page.php?query=%26plain=1%26header=Cache-Control:private,max-age%253D60%26marked=1&tag=cache-control%3D%27private%27";
    for _ in 0..4 {
        ask(&fixture, "GET", marked, &ann);
    }
    let before = runs(&fixture);
    let response = ask(&fixture, "GET", marked, &ann);
    assert_eq!(response.text(), "<p>hello user=ann version=0 end</p>");
    ask(&fixture, "GET", "/page.php?query=", &ann);
    assert_eq!(runs(&fixture), before);
    // What the visitor writes is in the fragment at once.
    ask(&fixture, "GET", "/app.php?do=write", &ann);
    let response = ask(&fixture, "GET", "/page.php?query=", &ann);
    assert_eq!(response.text(), "<p>hello user=ann version=1 end</p>");
}

#[test]
fn dry_run_stores_and_serves_no_private_pages() {
    let fixture = bypassed("private-dry", "cache = \"dry-run\"\n[site.private]");
    let private = &fixture.status()["cache"]["private"];
    assert!(private.is_null() || private["pages"] == 0, "{private}");
}

#[cfg(feature = "packages")]
#[test]
fn nothing_private_is_stored_where_writes_are_not_seen() {
    let builder = builder(
        "private-unseen",
        "[[site.rule]]\npath = \"/fpm.php\"\npool = \"fpm\"",
    );
    let socket = builder.scratch().join("fpm.sock").display().to_string();
    let _fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &socket, "");
    let fixture = builder
        .script("fpm.php", APPLICATION)
        .config("[pool.www]\n[pool.fpm]\nmode = \"fastcgi\"")
        .config(&format!("fastcgi = \"unix:{socket}\""))
        .start();
    let visitor = "Cookie: PHPSESSID=aaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    for _ in 0..3 {
        let response = ask(&fixture, "GET", "/fpm.php?open=1", visitor);
        let expected = "Howdah; fwd=miss; detail=WritesUnseen";
        assert_eq!(cache_status(&response), expected);
    }
    // Such a run may have written anything, so it forgets what is stored by others.
    keep(&fixture, "/app.php?open=1", visitor);
    ask(&fixture, "GET", "/fpm.php?do=poll", visitor);
    assert!(!is_hit(&ask(&fixture, "GET", "/app.php?open=1", visitor)));
}
