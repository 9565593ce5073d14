//! WordPress with the page cache on, by several people at once: anonymous readers, an owner who is
//! logged in and writes, a commenter. Every answer is checked: no page of one user reaches another, no
//! page is older than what was written before it was asked for, and the cache does its work.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use howdah_tests::http::{Response, exchange};
use howdah_tests::rig::{Howdah, Server};
use howdah_tests::wordpress_home::{HOST, WordpressHome};

/// How long the readers read unless `HOWDAH_TESTS_CACHE_SECONDS` says otherwise.
const SECONDS: u64 = 6;

fn ask(address: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> Response {
    let length = if method == "POST" {
        format!(
            "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
            body.len()
        )
    } else {
        String::new()
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{lines}{length}Connection: close\r\n\r\n{body}"
    );
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{method} {path}: {why}"))
}

/// The cookies an answer sets, as a line of a request.
fn cookies(answer: &Response) -> String {
    let pairs: Vec<&str> = answer
        .head
        .headers
        .all("Set-Cookie")
        .filter_map(|cookie| cookie.split(';').next())
        .collect();
    format!("Cookie: {}\r\n", pairs.join("; "))
}

fn log_in(address: SocketAddr) -> String {
    let form = "log=owner&pwd=carry+the+howdah&testcookie=1";
    let test = "Cookie: wordpress_test_cookie=WP%20Cookie%20check\r\n";
    let answer = ask(address, "POST", "/wp-login.php", test, form);
    assert_eq!(answer.status(), 302, "{}", answer.text());
    cookies(&answer)
}

/// Writes the blog's name, as the settings page does, with the token of its form.
fn rename(address: SocketAddr, owner: &str, name: &str) {
    let page = ask(address, "GET", "/wp-admin/options-general.php", owner, "").text();
    let token = page
        .split("name=\"_wpnonce\" value=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_else(|| panic!("the settings have no token: {page}"));
    let form = format!(
        "option_page=general&action=update&_wpnonce={token}&blogname={name}&blogdescription=x\
         &siteurl=http%3A%2F%2F{HOST}&home=http%3A%2F%2F{HOST}&new_admin_email=owner%40example.org\
         &default_role=subscriber&timezone_string=UTC&date_format=Y-m-d&time_format=H%3Ai&start_of_week=1"
    );
    let answer = ask(address, "POST", "/wp-admin/options.php", owner, &form);
    assert_eq!(answer.status(), 302, "{}", answer.text());
}

/// The number in `Blog 17` of a page's title.
fn version(page: &str) -> Option<u64> {
    let title = page.split("<title>").nth(1)?;
    let digits = title.split("Blog ").nth(1)?;
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

#[test]
fn nobody_reads_anothers_page_or_one_older_than_what_was_written() {
    let seconds = std::env::var("HOWDAH_TESTS_CACHE_SECONDS")
        .map_or(SECONDS, |n| n.parse().expect("a number of seconds"));
    let home = WordpressHome::prepare();
    let mut site = home.site().children(4);
    site.howdah_arguments = ["--cache", "on"].map(str::to_owned).to_vec();
    let server = Howdah::start(&site);
    let address = server.address();
    let owner = log_in(address);
    rename(address, &owner, "Blog+1");
    let written = AtomicU64::new(1);
    let over = AtomicBool::new(false);
    let (hits, reads) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let (written, over, hits, reads) = (&written, &over, &hits, &reads);
            let lines = match reader {
                0 => "",
                1 => "Cookie: _ga=GA1.2.3; _gid=4\r\n",
                2 => "User-Agent: somebody\r\nX-Forwarded-Host: evil.example\r\n",
                _ => "Accept-Encoding: gzip\r\nCache-Control: no-cache\r\n",
            };
            let path = ["/", "/?p=1", "/?utm_source=news", "/?page_id=2"][reader];
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    let before = written.load(Ordering::SeqCst);
                    let page = ask(address, "GET", path, lines, "");
                    assert_eq!(page.status(), 200, "{path}: {}", page.text());
                    reads.fetch_add(1, Ordering::SeqCst);
                    let hit = page.header("X-Cache") == Some("HIT");
                    hits.fetch_add(u64::from(hit), Ordering::SeqCst);
                    if reader == 3 {
                        continue;
                    }
                    let text = page.text();
                    let mine = version(&text).unwrap_or_else(|| panic!("no title: {text}"));
                    assert!(
                        mine >= before,
                        "{path}: {mine} was read after {before} was written"
                    );
                    for secret in [
                        "wpadminbar",
                        "Howdy",
                        "logged-in",
                        "evil.example",
                        "A. Commenter",
                    ] {
                        assert!(!text.contains(secret), "{path} has {secret}");
                    }
                }
            });
        }
        scope.spawn(|| {
            let commenter =
                "Cookie: comment_author_0123456789abcdef0123456789abcdef=A. Commenter\r\n";
            while !over.load(Ordering::SeqCst) {
                let page = ask(address, "GET", "/?p=1", commenter, "");
                assert_eq!(page.header("X-Cache"), Some("PASS"));
                let own = ask(address, "GET", "/", &owner, "");
                assert_eq!(own.header("X-Cache"), Some("PASS"));
                assert!(own.text().contains("wpadminbar"), "the owner sees his bar");
            }
        });
        let deadline = Instant::now() + Duration::from_secs(seconds);
        let mut next = 2;
        while Instant::now() < deadline {
            rename(address, &owner, &format!("Blog+{next}"));
            written.store(next, Ordering::SeqCst);
            // Who wrote reads what he wrote, and so does everybody.
            let own = ask(address, "GET", "/", "", "");
            assert_eq!(version(&own.text()), Some(next), "{}", own.text());
            next += 1;
            // Readers get some time with the page as it is.
            let until = hits.load(Ordering::SeqCst) + 20;
            while hits.load(Ordering::SeqCst) < until && Instant::now() < deadline {
                std::thread::yield_now();
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    let (hits, reads) = (hits.into_inner(), reads.into_inner());
    println!(
        "{reads} pages read, {hits} of them from the cache, {} writes",
        written.into_inner()
    );
    assert!(hits > 20, "{hits} hits of {reads}");
}

/// What plugins and jobs do, without any request to the page: asked for by GET.
const DO: &str = r"<?php
require __DIR__ . '/wp-load.php';
$what = $_GET['what'];
switch ($what) {
case 'publish': wp_insert_post(['post_title' => 'Published by itself', 'post_content' => 'x', 'post_status' => 'publish']); break;
case 'edit': wp_update_post(['ID' => 1, 'post_title' => 'Edited title']); break;
case 'comment':
    $id = wp_insert_comment(['comment_post_ID' => 1, 'comment_content' => 'Approved words', 'comment_approved' => 0, 'comment_author' => 'C']);
    wp_set_comment_status($id, 'approve');
    break;
case 'option': update_option('blogname', 'Renamed by itself'); break;
case 'shutdown': register_shutdown_function(fn() => update_option('blogname', 'Renamed at last')); break;
case 'noise':
    set_transient('visits', uniqid(), 3600);
    set_site_transient('visits', uniqid());
    delete_transient('visits');
    wp_schedule_single_event(time() + 3600, 'nobody', [uniqid()]);
    update_post_meta(1, 'post_views_count', uniqid());
    break;
}
echo 'done';
";

#[test]
fn what_is_published_edited_approved_or_set_without_any_request_to_the_page_is_read_next() {
    let home = WordpressHome::prepare();
    let mut site = home.site().children(3);
    std::fs::write(site.root.join("do.php"), DO).expect("the site can be written to");
    site.howdah_arguments = ["--cache", "on"].map(str::to_owned).to_vec();
    let server = Howdah::start(&site);
    let address = server.address();
    let get = |path: &str| {
        let page = ask(address, "GET", path, "", "");
        assert_eq!(page.status(), 200, "{path}: {}", page.text());
        (page.text(), page.header("X-Cache") == Some("HIT"))
    };
    let run = |what: &str| assert_eq!(get(&format!("/do.php?what={what}")).0, "done");
    // Its first visits make what is made once.
    run("noise");
    for (what, path, words) in [
        ("publish", "/", "Published by itself"),
        ("edit", "/", "Edited title"),
        ("comment", "/?p=1", "Approved words"),
        ("option", "/", "Renamed by itself"),
        ("shutdown", "/", "Renamed at last"),
    ] {
        // A page with a query is stored at its second visit.
        get(path);
        get(path);
        let (text, hit) = get(path);
        assert!(
            hit && !text.contains(words),
            "{what}: {path} is in the cache"
        );
        run("noise");
        assert!(
            get(path).1,
            "{what}: a visit that counts itself makes nothing old"
        );
        run(what);
        let (text, hit) = get(path);
        assert!(!hit && text.contains(words), "{what}: {path}: {text}");
    }
}
