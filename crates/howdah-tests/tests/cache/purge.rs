//! Purging over HTTP: by the requests that plugins send and by headers of scripts' responses. Other clients cannot
//! purge. A page that is rendered again reveals a purge.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::rig::howdah_program;

const SECRET: &str = "0123456789abcdef0123";

/// Counts its renders, and sends the headers that the `say[]` fields of a form specify.
const PAGE: &str = r#"<?php
$file = 'SCRATCH/' . md5($_SERVER['REQUEST_URI']);
file_put_contents($file, "x", FILE_APPEND);
foreach ((array) ($_POST['say'] ?? []) as $line) header($line, false);
header('Surrogate-Key: all ' . trim(strtr($_SERVER['PATH_INFO'] ?? '', '/', '-'), '-'));
header('X-Drupal-Cache-Tags: node:1 user:' . strlen($_SERVER['PATH_INFO'] ?? ''));
header('X-Drupal-Cache-Contexts: languages theme');
header('X-LiteSpeed-Tag: ls-' . basename($_SERVER['PATH_INFO'] ?? ''));
echo 'render ', filesize($file), ' lscache=', $_SERVER['X-LSCACHE'] ?? '-', ' claimed=', $_SERVER['HTTP_X_LSCACHE'] ?? '-';
"#;

struct PurgeableSite(Fixture);

impl PurgeableSite {
    fn start(name: &str, lines: &str) -> PurgeableSite {
        let site = format!("cache = \"on\"\ncache_flush_on_write = \"off\"\n{lines}");
        let fixture = Fixture::named(name).script("page.php", PAGE).site(&site);
        let served = PurgeableSite(fixture.start());
        served.visit(&PAGES);
        served
    }

    fn ask(&self, method: &str, path: &str, lines: &str, body: &str) -> Response {
        let length = match body {
            "" => String::new(),
            body => format!(
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
                body.len()
            ),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{lines}{length}Connection: close\r\n\r\n{body}"
        );
        exchange(self.0.address(), request.as_bytes())
            .unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    fn purge(&self, method: &str, path: &str, lines: &str) -> (u16, String) {
        let answer = self.ask(method, path, lines, "");
        let name = answer.header("Howdah-Error").map(str::to_owned);
        let text = name.unwrap_or_else(|| answer.text().trim_end().to_owned());
        (answer.status(), text)
    }

    /// Visits pages for the first time. Pages are stored at their second visit.
    fn visit(&self, pages: &[&str]) {
        for page in pages {
            self.ask("GET", page, "", "");
        }
    }

    /// Returns which of these pages are rendered again.
    fn renders_anew<'p>(&self, pages: &[&'p str]) -> Vec<&'p str> {
        let is_missing =
            |page: &&str| self.ask("GET", page, "", "").header("X-Cache") == Some("MISS");
        pages.iter().copied().filter(is_missing).collect()
    }
}

const PAGES: [&str; 3] = ["/page.php/a", "/page.php/a/b", "/page.php/caf%C3%A9"];

#[test]
fn plugins_purge_by_requests_from_addresses_that_are_named() {
    let lines = "cache_purge_from = [\"127.0.0.1\"]\ncache_purge_path = \"/purge/\"";
    let served = PurgeableSite::start("purge-requests", lines);
    assert_eq!(served.renders_anew(&PAGES), PAGES);
    assert!(served.renders_anew(&PAGES).is_empty());
    for (method, path, lines, told, purged) in [
        (
            "PURGE",
            "/page.php/a",
            "",
            "purged: /page.php/a",
            &PAGES[..1],
        ),
        (
            "PURGE",
            "/page.php/caf%c3%a9",
            "",
            "purged: /page.php/caf%c3%a9",
            &PAGES[2..],
        ),
        (
            "GET",
            "/purge/page.php/a",
            "",
            "purged: /page.php/a",
            &PAGES[..1],
        ),
        (
            "PURGE",
            "/page.php/a.*",
            "",
            "purged: /page.php/a*",
            &PAGES[..2],
        ),
        (
            "BAN",
            "/page.php/a/",
            "",
            "purged: /page.php/a/*",
            &PAGES[1..2],
        ),
        (
            "PURGE",
            "/",
            "Surrogate-Key: a-b none\r\n",
            "purged: tag a-b, tag none",
            &PAGES[1..2],
        ),
        (
            "PURGE",
            "/",
            "X-Magento-Tags-Pattern: ((^|,)ls-b(,|$))\r\n",
            "purged: tag ls-b",
            &PAGES[1..2],
        ),
        ("PURGE", "/.*", "", "purged: everything", &PAGES),
        ("PURGE", "/purgeall", "", "purged: everything", &PAGES),
        ("PURGE", "/other", "", "purged: /other", &[]),
    ] {
        assert_eq!(served.purge(method, path, lines), (200, told.to_owned()));
        assert_eq!(
            served.renders_anew(&PAGES),
            purged,
            "{method} {path} {lines}"
        );
    }
    let soft = served.purge("PURGE", "/page.php/a", "Fastly-Soft-Purge: 1\r\n");
    assert_eq!(soft, (200, "made stale: /page.php/a".to_owned()));
    let stale = served.ask("GET", PAGES[0], "", "");
    assert_eq!(stale.header("X-Cache"), Some("STALE"));
    let unreadable = served.purge("PURGE", "/page.php/(a|b).*", "");
    assert_eq!(unreadable, (400, "PurgeUnreadable".to_owned()));
}

#[test]
fn purge_is_refused_by_name_for_clients_without_access() {
    let denied = (403, "PurgeDenied".to_owned());
    let nobody = PurgeableSite::start("purge-nobody", "");
    assert_eq!(nobody.renders_anew(&PAGES), PAGES);
    for method in ["PURGE", "BAN", "PURGEKEYS"] {
        assert_eq!(nobody.purge(method, "/page.php/a", ""), denied);
    }
    // Without cache_purge_path, the application handles this request.
    assert_eq!(nobody.purge("GET", "/purge/page.php/a", "").0, 404);
    assert!(nobody.renders_anew(&PAGES).is_empty());
    let status = nobody.0.status();
    let failures = status["failures"].to_string();
    assert!(failures.contains("PurgeDenied"), "{status}");

    let lines = format!("cache_purge_from = \"192.0.2.1\"\ncache_purge_token = \"{SECRET}\"");
    let served = PurgeableSite::start("purge-token", &lines);
    assert_eq!(served.renders_anew(&PAGES), PAGES);
    let nearly = format!("X-Purge-Token: {}\r\n", &SECRET[1..]);
    for lines in [
        "",
        "X-Purge-Token: wrong\r\n",
        &nearly,
        "X-Forwarded-For: 192.0.2.1\r\n",
    ] {
        assert_eq!(
            served.purge("PURGE", "/page.php/a", lines),
            denied,
            "{lines}"
        );
    }
    assert!(served.renders_anew(&PAGES).is_empty());
    for lines in [
        format!("X-Purge-Token: {SECRET}\r\n"),
        format!("Authorization: Bearer {SECRET}\r\n"),
    ] {
        assert_eq!(served.purge("PURGE", "/page.php/a", &lines).0, 200);
        assert_eq!(served.renders_anew(&PAGES), PAGES[..1]);
    }
}

#[test]
fn scripts_purge_by_their_answers_in_litespeeds_words_and_clients_do_not_see_it() {
    let served = PurgeableSite::start("purge-answers", "");
    assert_eq!(served.renders_anew(&PAGES), PAGES);
    let said = served.ask("GET", PAGES[0], "X-LSCACHE: on\r\n", "");
    assert!(
        said.text().contains("lscache=on claimed=-"),
        "{}",
        said.text()
    );
    for name in [
        "Surrogate-Key",
        "X-LiteSpeed-Tag",
        "X-Drupal-Cache-Tags",
        "X-Drupal-Cache-Contexts",
    ] {
        assert_eq!(said.header(name), None, "{name} is not for clients");
    }
    for (line, purged) in [
        ("X-LiteSpeed-Purge: public,ls-b", &PAGES[1..2]),
        ("X-LiteSpeed-Purge: public,tag=all", &PAGES),
        ("X-LiteSpeed-Purge: /page.php/a", &PAGES[..1]),
        ("X-LiteSpeed-Purge2: public,ls-a", &PAGES[..1]),
        ("X-LiteSpeed-Purge: private,*", &[]),
        ("X-LiteSpeed-Purge: public,none;private,*", &[]),
        ("X-LiteSpeed-Purge: *", &PAGES),
        ("Cache-Group-Invalidation: \"a-b\"", &PAGES[1..2]),
    ] {
        // A POST also invalidates its own URL, so it goes to a page that is not tested here.
        let form = format!("say[]={}", line.replace('"', "%22").replace(' ', "+"));
        let answer = served.ask("POST", "/page.php/write", "", &form);
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.header("X-LiteSpeed-Purge"), None);
        assert_eq!(served.renders_anew(&PAGES), purged, "{line}");
    }
}

/// The dashboard's heartbeat is a POST every minute; it was once treated as a write, after which every page was
/// rendered again.
#[test]
fn dashboards_heartbeat_makes_no_page_old_and_another_post_does() {
    let fixture = Fixture::named("purge-heartbeat")
        .script("page.php", PAGE)
        .script("wp-admin/admin-ajax.php", "<?php echo 'beat';")
        .site("cache = \"on\"\ncache_preset = \"wordpress\"")
        .start();
    let served = PurgeableSite(fixture);
    served.visit(&PAGES);
    let ajax = "/wp-admin/admin-ajax.php";
    assert_eq!(served.renders_anew(&PAGES), PAGES);
    for (query, form, purged) in [
        ("", "interval=60&action=heartbeat&_nonce=1", &[][..]),
        ("?action=heartbeat", "interval=60", &[]),
        ("?action=heartbeat", "action=inline-save", &PAGES),
        ("", "action=heartbeat&%61ction=inline-save", &PAGES),
    ] {
        let answer = served.ask("POST", &format!("{ajax}{query}"), "", form);
        assert_eq!(answer.text(), "beat");
        assert_eq!(served.renders_anew(&PAGES), purged, "{query} {form}");
    }
}

/// Purges and tags with the functions, and prints their results.
const FUNCTIONS: &str = r#"<?php
set_error_handler(function ($level, $text) { echo 'warning: ', $text, "\n"; return true; });
try {
    if (isset($_GET['finish'])) { echo 'early'; fastcgi_finish_request(); }
    if (isset($_GET['what'])) var_dump(howdah_cache_purge(...(array) $_GET['what']));
    if (isset($_GET['tag'])) var_dump(howdah_cache_tag(...(array) $_GET['tag']));
    if (isset($_GET['many'])) for ($i = 0; $i < 1025; $i++) howdah_cache_tag("t$i");
    if (isset($_GET['number'])) howdah_cache_purge(7);
    if (isset($_GET['none'])) howdah_cache_tag();
} catch (Error $e) {
    echo get_class($e), ': ', $e->getMessage();
}
"#;

/// Calls `steps.php` with a POST, which purges nothing but its own URL.
fn call(served: &PurgeableSite, query: &str) -> String {
    let answer = served.ask("POST", &format!("/steps.php?{query}"), "", "a=b");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.text().trim_end().to_owned()
}

#[test]
fn scripts_purge_and_tag_by_functions_and_mistakes_are_told() {
    let fixture = Fixture::named("purge-functions")
        .script("page.php", PAGE)
        .script("steps.php", FUNCTIONS)
        .site("cache = \"on\"\ncache_flush_on_write = \"off\"")
        .start();
    let served = PurgeableSite(fixture);
    let tagged = "/steps.php?tag[]=one&tag[]=two";
    for _ in 0..2 {
        // A page with a query is stored at its second visit.
        served.ask("GET", tagged, "", "");
    }
    let pages = [PAGES[0], PAGES[1], PAGES[2], tagged];
    served.visit(&PAGES);
    served.renders_anew(&pages);
    assert!(served.renders_anew(&pages).is_empty());
    for (query, purged) in [
        ("what=/page.php/a", &pages[..1]),
        ("what[]=/page.php/a&what[]=tag:a-b", &pages[..2]),
        (
            "what=http://example.org/page.php/caf%25c3%25a9",
            &pages[2..3],
        ),
        ("what=/page.php/a*", &pages[..2]),
        ("what=tag:two", &pages[3..]),
        ("what=*", &pages),
        ("finish&what=/page.php/a", &pages[..1]),
    ] {
        let said = call(&served, query);
        let expected = match query.starts_with("finish") {
            true => "early",
            false => "bool(true)",
        };
        assert_eq!(said, expected, "{query}");
        if query.starts_with("finish") {
            // The script continues after its client has received everything.
            served.0.wait("the page to be purged", |_| {
                served.renders_anew(&pages[..1]) == pages[..1]
            });
        } else {
            assert_eq!(served.renders_anew(&pages), purged, "{query}");
        }
    }
    for (query, told) in [
        (
            "what=post-17",
            "ValueError: howdah_cache_purge(): Argument #1 must be a path (/...), a URL (http://host/...), \"tag:NAME\" or \"*\", \"post-17\" given",
        ),
        (
            "what[]=/page.php/a&what[]=",
            "ValueError: howdah_cache_purge(): Argument #2 must have 1 to 4000 bytes, 0 given",
        ),
        (
            "what=/a%0ab",
            "ValueError: howdah_cache_purge(): Argument #1 must not contain control characters",
        ),
        (
            "number",
            "TypeError: howdah_cache_purge(): Argument #1 must be of type string, int given",
        ),
        (
            "none",
            "ArgumentCountError: howdah_cache_tag() expects at least 1 argument, 0 given",
        ),
    ] {
        assert_eq!(call(&served, query), told);
    }
    assert!(
        served.renders_anew(&pages).is_empty(),
        "a mistake purges nothing"
    );
    for _ in 0..2 {
        served.ask("GET", "/steps.php?many", "", "");
    }
    let many = served.ask("GET", "/steps.php?many", "", "");
    assert_eq!(many.header("X-Cache"), Some("PASS"));
    let passes = served.0.status()["cache"]["sites"][0]["passes"].to_string();
    assert!(passes.contains("TooManyTags"), "{passes}");
}

#[test]
fn purge_that_reaches_no_cache_warns() {
    let fixture = Fixture::named("purge-off")
        .script("steps.php", FUNCTIONS)
        .start();
    let served = PurgeableSite(fixture);
    for query in ["what=*", "tag=a"] {
        let said = call(&served, query);
        let told = "The page cache of this site is off (cache = \"on\"); nothing was done";
        assert!(
            said.contains(told) && said.ends_with("bool(false)"),
            "{said}"
        );
    }
}

#[test]
fn command_line_purges_what_it_names_and_nothing_else() {
    let served = PurgeableSite::start("purge-command-line", "");
    let run = |code: &str| {
        let output = std::process::Command::new(howdah_program())
            .args(["php", "--control"])
            .arg(served.0.path("control.sock"))
            .args(["-n", "-d", "display_errors=1", "-r", code])
            .output()
            .expect("howdah can be started");
        assert!(output.stderr.is_empty(), "{code}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(served.renders_anew(&PAGES), PAGES);
    for (code, purged) in [
        ("'tag:ls-b'", &PAGES[1..2]),
        ("'tag:nobody', '/page.php/a'", &PAGES[..1]),
        ("'http://example.org/page.php/*'", &PAGES),
        ("'tag:' . str_repeat('x', 1024), '/nowhere'", &[]),
        (
            "...array_map(fn($n) => \"/nowhere/$n\", range(1, 100))",
            &[],
        ),
        ("'*'", &PAGES),
    ] {
        let said = run(&format!("var_dump(howdah_cache_purge({code}));"));
        assert_eq!(said.trim(), "bool(true)", "{code}");
        assert_eq!(served.renders_anew(&PAGES), purged, "{code}");
    }
    let said = run("var_dump(howdah_cache_tag('a'));");
    assert!(
        said.contains("creates no page") && said.contains("bool(false)"),
        "{said}"
    );
    assert!(served.renders_anew(&PAGES).is_empty());
}
