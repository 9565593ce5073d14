//! Pages after their lifetime, as the application allows by header (RFC 5861): served while one new page is rendered, or
//! if PHP fails, and never after a write or a purge.

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Response, exchange};

/// Shows a version that the test writes behind the server's back, fails if it is told to, and can be held while it runs.
const PAGE: &str = r#"<?php
file_put_contents('SCRATCH/runs', 'x', FILE_APPEND | LOCK_EX);
header('Cache-Control: public, max-age=1, DIRECTIVES');
if (file_exists('SCRATCH/fails')) { http_response_code(500); exit('failed'); }
$version = file_get_contents('SCRATCH/version');
if (file_exists('SCRATCH/holds')) { unlink('SCRATCH/holds'); require 'GATES'; stand_at('render'); }
echo 'version ', $version;
"#;

fn builder(name: &str, directives: &str) -> Builder {
    Fixture::named(name)
        .children(4)
        .script("page.php", &PAGE.replace("DIRECTIVES", directives))
        .script("write.php", "<?php echo 'written';")
        .site("cache = \"on\"\ncache_grace = \"0s\"\ncache_stale_if_error = \"0s\"")
}

fn ask(fixture: &Fixture, method: &str, path: &str) -> Response {
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let request = match method {
        "GET" => request.replace("Content-Length: 0\r\n", ""),
        _ => request,
    };
    exchange(fixture.address(), request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn read(fixture: &Fixture) -> (String, String) {
    let response = ask(fixture, "GET", "/page.php");
    let label = response.header("X-Cache").unwrap_or_default().to_owned();
    (response.text(), label)
}

/// Writes the version and has its page stored, then waits until the page has expired.
fn keep_and_expire(fixture: &Fixture, version: u32) {
    fixture.write("version", version.to_string());
    let text = format!("version {version}");
    fixture.wait("the page to be stored", |f| {
        read(f) == (text.clone(), "HIT".to_owned())
    });
    fixture.wait("the page to expire", |f| {
        let words = ["cache", "explain", "http://example.org/page.php"];
        let text = String::from_utf8(f.control(&words).stdout).unwrap();
        text.contains("stored: expired")
    });
}

fn runs(fixture: &Fixture) -> usize {
    std::fs::read(fixture.path("runs")).map_or(0, |bytes| bytes.len())
}

#[test]
fn expired_page_is_served_while_one_new_page_is_rendered() {
    let fixture = builder("stale-while", "stale-while-revalidate=600").start();
    keep_and_expire(&fixture, 1);
    let before = runs(&fixture);
    let gate = fixture.gate("render");
    fixture.write("holds", "");
    fixture.write("version", "2");
    for _ in 0..20 {
        assert_eq!(read(&fixture), ("version 1".to_owned(), "STALE".to_owned()));
    }
    gate.wait().open();
    fixture.wait("the new page", |f| read(f).0 == "version 2");
    assert_eq!(runs(&fixture), before + 1, "one render for all visitors");
}

#[test]
fn expired_page_is_never_served_after_a_write_or_a_purge() {
    let directives = "stale-while-revalidate=600, stale-if-error=600";
    let fixture = builder("stale-written", directives).start();
    let purge = |fixture: &Fixture| {
        assert!(
            fixture
                .control(&["cache", "purge", "/page.php"])
                .status
                .success()
        );
    };
    let post = |fixture: &Fixture| {
        assert_eq!(ask(fixture, "POST", "/write.php").text(), "written");
    };
    let invalidations: [&dyn Fn(&Fixture); 2] = [&purge, &post];
    for (round, invalidate) in invalidations.into_iter().enumerate() {
        let version = 10 * (round as u32 + 1);
        keep_and_expire(&fixture, version);
        fixture.write("version", (version + 1).to_string());
        invalidate(&fixture);
        let (text, label) = read(&fixture);
        assert_eq!(text, format!("version {}", version + 1));
        assert_ne!(label, "STALE");
        // The old page is not served either if PHP fails.
        keep_and_expire(&fixture, version + 2);
        invalidate(&fixture);
        fixture.write("fails", "");
        let response = ask(&fixture, "GET", "/page.php");
        assert_eq!((response.status(), &*response.text()), (500, "failed"));
        std::fs::remove_file(fixture.path("fails")).unwrap();
    }
}

#[test]
fn expired_page_is_served_if_php_fails() {
    let fixture = builder("stale-error", "stale-if-error=600").start();
    keep_and_expire(&fixture, 1);
    fixture.write("fails", "");
    for _ in 0..3 {
        assert_eq!(read(&fixture), ("version 1".to_owned(), "STALE".to_owned()));
    }
    std::fs::remove_file(fixture.path("fails")).unwrap();
    fixture.write("version", "2");
    assert_eq!(read(&fixture).0, "version 2");
}

#[test]
fn expired_page_is_not_served_without_the_applications_word() {
    let fixture = builder("stale-not", "must-revalidate, stale-if-error=600").start();
    keep_and_expire(&fixture, 1);
    fixture.write("fails", "");
    assert_eq!(ask(&fixture, "GET", "/page.php").status(), 500);
}
