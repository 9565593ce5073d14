//! Dry runs (`dry-run`) and checks (`cache_shadow`) of the cache: which requests would have been hits, and which hits
//! would have been wrong, except for nonces.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// Shows a file that changes without the cache noticing, and on request a nonce for each render.
const PAGE: &str = r#"<?php
echo "line one\nprice: ", file_get_contents('SCRATCH/price'), "\n";
if (isset($_GET['nonce'])) echo '<input value="', bin2hex(random_bytes(16)), 'a1b2">';
if (file_exists('SCRATCH/private')) header('Cache-Control: private');
"#;

fn served(name: &str, lines: &str) -> Fixture {
    let fixture = Fixture::named(name)
        .script("page.php", PAGE)
        .site(lines)
        .start();
    fixture.write("price", "19.99");
    fixture
}

fn ask(fixture: &Fixture, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n");
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn site(fixture: &Fixture) -> serde_json::Value {
    fixture.status()["cache"]["sites"][0].clone()
}

fn checks(fixture: &Fixture, of: &str) -> u64 {
    site(fixture)["checks"][of].as_u64().unwrap()
}

/// Requests the page until it is stored, and checks that none of these responses is a hit.
fn keep(fixture: &Fixture, path: &str) {
    let stored = |f: &Fixture| f.status()["cache"]["entries"].as_u64().unwrap();
    let before = stored(fixture);
    fixture.wait("the page to be stored", |f| {
        assert!(matches!(
            ask(f, path).header("X-Cache"),
            Some("PASS" | "MISS")
        ));
        stored(f) > before
    });
}

#[test]
fn dry_run_serves_nothing_and_counts_what_would_have_been_wrong() {
    let fixture = served("trial-dry", "cache = \"dry-run\"");
    keep(&fixture, "/page.php");
    let before = (checks(&fixture, "same"), checks(&fixture, "would_hit"));
    for _ in 0..3 {
        let own = ask(&fixture, "/page.php");
        let told = own.header("Cache-Status").unwrap();
        assert_eq!(told, "Howdah; fwd=bypass; detail=DryRun");
    }
    let after = (checks(&fixture, "same"), checks(&fixture, "would_hit"));
    assert_eq!(after, (before.0 + 3, before.1 + 3));
    assert_eq!(checks(&fixture, "different"), 0);

    keep(&fixture, "/page.php?nonce");
    ask(&fixture, "/page.php?nonce");
    assert!(checks(&fixture, "noise") >= 1);
    assert_eq!(checks(&fixture, "different"), 0);

    // The cache cannot notice this write.
    fixture.write("price", "24.99");
    let own = ask(&fixture, "/page.php");
    assert!(
        own.text().contains("24.99"),
        "the response comes from the visitor's own run"
    );
    assert_eq!(checks(&fixture, "different"), 1);
    let line = fixture.wait_for_log(&[
        "DryRunDiffers",
        "/page.php: the bodies differ, starting at byte 16 (line 2)",
    ]);
    assert!(
        line.contains("2 bytes of the stored page, 2 bytes of the fresh one"),
        "{line}"
    );
    assert!(
        !line.contains("24.99"),
        "the log must not contain the text of the page"
    );
    let text = fixture.control(&["status"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains(" 1 different, "), "{text}");

    // After a purge, the stored page is no longer the page that a visitor would get.
    assert!(
        fixture
            .control(&["cache", "purge", "--all"])
            .status
            .success()
    );
    ask(&fixture, "/page.php");
    assert_eq!(checks(&fixture, "different"), 1);
    assert_eq!(site(&fixture)["hits"], 0);
}

#[test]
fn shadow_finds_what_the_cache_could_not_see_and_heals_it() {
    let fixture = served("trial-shadow", "cache = \"on\"\ncache_shadow = 1");
    let hit = |f: &Fixture| {
        let page = ask(f, "/page.php");
        assert!(matches!(page.header("X-Cache"), Some("HIT" | "MISS")));
        page.text()
    };
    hit(&fixture);
    fixture.wait("a hit to be checked", |f| {
        hit(f);
        checks(f, "same") > 0
    });
    assert_eq!(checks(&fixture, "different"), 0);
    fixture.write("price", "24.99");
    fixture.wait("the difference to be found", |f| {
        hit(f);
        checks(f, "different") > 0
    });
    fixture.wait_for_log(&[
        "ShadowDiffers",
        "/page.php: the bodies differ, starting at byte 16 (line 2)",
    ]);
    fixture.wait("the fresh page is served", |f| hit(f).contains("24.99"));
    assert_eq!(checks(&fixture, "different"), 1);

    fixture.write("private", "");
    fixture.wait("the page to be stored no longer", |f| {
        ask(f, "/page.php").header("X-Cache") == Some("PASS")
    });
    fixture.wait_for_log(&[
        "ShadowDiffers",
        "a fresh render would not be stored: Private",
    ]);
}
