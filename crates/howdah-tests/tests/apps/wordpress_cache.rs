//! WordPress with the page cache on, used by several people at once: anonymous readers, an owner who is logged in and
//! writes, another user, and a commenter. Every response is checked: no user gets another user's page, no page is older
//! than a write that preceded its request, and the cache produces hits. WordPress is tested at the root of a site and
//! in a subfolder.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::readers::{CachedApplication, Reader};
use howdah_tests::rig::{Howdah, Server};
use howdah_tests::wordpress_home::{HOST, WordpressHome};

/// Returns the cookies that a response sets, as a header line of a request.
pub fn cookies(answer: &Response) -> String {
    let pairs: Vec<&str> = answer
        .head
        .headers
        .all("Set-Cookie")
        .filter_map(|cookie| cookie.split(';').next())
        .collect();
    format!("Cookie: {}\r\n", pairs.join("; "))
}

/// Logs a user in, and returns the cookies as a header line of a request.
pub fn log_in(drive: &CachedApplication<'_>, folder: &str, name: &str, password: &str) -> String {
    let form = format!("log={name}&pwd={password}&testcookie=1");
    let test = "Cookie: wordpress_test_cookie=WP%20Cookie%20check\r\n";
    let path = format!("{folder}/wp-login.php");
    let answer = drive.ask("POST", &path, test, &form);
    assert_eq!(answer.status(), 302, "{}", answer.text());
    cookies(&answer)
}

/// Changes the blog's name, as the settings page does, with the token of its form.
pub fn rename(drive: &CachedApplication<'_>, folder: &str, owner: &str, edition: u64) {
    let path = format!("{folder}/wp-admin/options-general.php");
    let page = drive.ask("GET", &path, owner, "").text();
    let token = page
        .split("name=\"_wpnonce\" value=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_else(|| panic!("the settings have no token: {page}"));
    let form = format!(
        "option_page=general&action=update&_wpnonce={token}&blogname=Edition+{edition}&blogdescription=x\
         &siteurl=http%3A%2F%2F{HOST}&home=http%3A%2F%2F{HOST}&new_admin_email=owner%40example.org\
         &default_role=subscriber&timezone_string=UTC&date_format=Y-m-d&time_format=H%3Ai&start_of_week=1"
    );
    let path = format!("{folder}/wp-admin/options.php");
    let answer = drive.ask("POST", &path, owner, &form);
    assert_eq!(answer.status(), 302, "{}", answer.text());
}

/// Publishes a new text of the first post over the REST interface, as the editor does.
pub fn save_text(drive: &CachedApplication<'_>, folder: &str, owner: &str, edition: u64) {
    let path = format!("{folder}/wp-admin/admin-ajax.php?action=rest-nonce");
    let token = drive.ask("GET", &path, owner, "").text();
    let path = format!("{folder}/index.php?rest_route=/wp/v2/posts/1");
    let lines = format!("{owner}X-WP-Nonce: {token}\r\n");
    let form = format!("title=Hello&content=Text+{edition}&status=publish");
    let answer = drive.ask("POST", &path, &lines, &form);
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

/// Publishes a new text of the first post, and checks that readers see it.
fn publish(drive: &CachedApplication<'_>, folder: &str, owner: &str, edition: u64) {
    save_text(drive, folder, owner, edition);
    // From now on, every reader must see the new text.
    let post = drive.ask("GET", &format!("{folder}/?p=1"), "", "").text();
    assert!(post.contains(&format!("Text {edition}")), "{post}");
}

fn by_several_people_at_once(folder: &'static str, has_object_cache: bool) {
    let home = WordpressHome::prepare_in(folder);
    let site = home.site().children(4);
    let mut server = Fixture::of("wordpress-cache", site).site("cache = \"on\"\n");
    if has_object_cache {
        home.add_object_cache();
        server = server.pool("shared_cache = \"16M\"\n");
    }
    let server = server.start();
    let path = |rest: &str| format!("{folder}{rest}");
    let paths = ["/", "/?p=1", "/?utm_source=news", "/?page_id=2"].map(path);
    let lines = [
        "",
        "Cookie: _ga=GA1.2.3; _gid=4\r\n",
        "User-Agent: somebody\r\nX-Forwarded-Host: evil.example\r\n",
        "Accept-Encoding: gzip\r\nCache-Control: no-cache\r\n",
    ];
    let mut readers = Vec::new();
    for (path, lines) in paths.iter().zip(lines) {
        readers.push(Reader { path, lines });
    }
    let drive = CachedApplication {
        address: server.address(),
        host: HOST,
        readers: &readers,
        mark: "Edition ",
        secrets: &[
            "wpadminbar",
            "Howdy",
            "logged-in",
            "evil.example",
            "A. Commenter",
        ],
    };
    let owner = log_in(&drive, folder, "owner", "carry+the+howdah");
    let rider = log_in(&drive, folder, "rider", "ride+the+elephant");
    rename(&drive, folder, &owner, 1);
    let commenter = "Cookie: comment_author_0123456789abcdef0123456789abcdef=A. Commenter\r\n";
    let own = |lines: &str, shows: Option<&str>, hides: &str| {
        let page = drive.ask("GET", &paths[0], lines, "");
        assert_eq!(page.header("X-Cache"), Some("PASS"));
        let text = page.text();
        if let Some(shows) = shows {
            assert!(
                text.contains("wpadminbar") && text.contains(shows),
                "{text}"
            );
        }
        assert!(!text.contains(hides), "{text}");
    };
    let greeting = |name: &str| format!("<span class=\"display-name\">{name}</span>");
    let (owners, riders) = (greeting("owner"), greeting("rider"));
    let users: Vec<Box<dyn FnMut() + Send + '_>> = vec![
        Box::new(|| own(commenter, None, "wpadminbar")),
        Box::new(|| own(&owner, Some(&owners), &riders)),
        Box::new(|| own(&rider, Some(&riders), &owners)),
    ];
    drive.run(users, |edition| {
        rename(&drive, folder, &owner, edition);
        if edition % 2 == 0 {
            publish(&drive, folder, &owner, edition);
        }
    });
}

#[test]
fn readers_of_wordpress_get_no_private_and_no_stale_page() {
    by_several_people_at_once("", false);
}

#[test]
fn readers_of_wordpress_in_a_subfolder_get_no_private_and_no_stale_page() {
    by_several_people_at_once("/blog", false);
}

#[test]
fn readers_of_wordpress_with_an_object_cache_get_no_private_and_no_stale_page() {
    by_several_people_at_once("", true);
}

/// A script that makes the changes that plugins and jobs make. It is requested with GET, so the method does not reveal
/// that it writes.
const ACTION_SCRIPT: &str = r"<?php
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
fn changes_in_wordpress_are_seen_by_the_next_reader() {
    let home = WordpressHome::prepare();
    let mut site = home.site().children(3);
    std::fs::write(site.root.join("do.php"), ACTION_SCRIPT).expect("the site can be written to");
    site.howdah_arguments = ["--cache", "on"].map(str::to_owned).to_vec();
    let server = Howdah::start(&site);
    let address = server.address();
    let get = |path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let page = exchange(address, request.as_bytes()).expect("a response");
        assert_eq!(page.status(), 200, "{path}: {}", page.text());
        page
    };
    let is_hit = |page: &Response| page.header("X-Cache") == Some("HIT");
    let run = |what: &str| assert_eq!(get(&format!("/do.php?what={what}")).text(), "done");
    // The first visit makes WordPress create the data that it creates only once.
    run("noise");
    for (what, path, words) in [
        ("publish", "/", "Published by itself"),
        ("edit", "/", "Edited title"),
        ("comment", "/?p=1", "Approved words"),
        ("option", "/", "Renamed by itself"),
        ("shutdown", "/", "Renamed at last"),
    ] {
        // The first visit writes data that is created once, the second shows that the page can be stored, and the third
        // may find it stored. A busy machine may need a few more visits.
        let visits: Vec<_> = (0..10).map(|_| get(path)).collect();
        let page = visits.last().expect("there were ten visits");
        assert!(
            is_hit(page) && !page.text().contains(words),
            "{what}: {path} should be a cache hit without {words:?}: {:?}",
            visits.iter().map(|page| &page.head).collect::<Vec<_>>()
        );
        run("noise");
        let page = get(path);
        assert!(
            is_hit(&page),
            "{what}: a visit that only counts itself must not invalidate a page: {:?}",
            page.head
        );
        run(what);
        let page = get(path);
        let text = page.text();
        assert!(
            !is_hit(&page) && text.contains(words),
            "{what}: {path} should be a new page with {words:?}: {text}"
        );
    }
}
