//! The LiteSpeed Cache plugin for WordPress with its ESI, guest mode, crawler and purges. The plugin is not part of this
//! repository: `HOWDAH_LSCACHE_WP` names a checkout of github.com/litespeedtech/lscache_wp. Without it, these tests are
//! left out, and say so.

use std::path::PathBuf;
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::process::wait_until;
use howdah_tests::readers::{CachedApplication, Reader};
use howdah_tests::scratch::copy_tree;
use howdah_tests::wordpress_home::{HOST, WordpressHome};

use crate::wordpress_cache::{log_in, rename, save_text};

const VARIABLE: &str = "HOWDAH_LSCACHE_WP";
const CACHE: &str = "recognise = true\ncache = \"on\"\ncache_vary_mobile = \"on\"\n";
const PHONE: &str = "User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 17_0) Mobile/15E148\r\n";

/// Stands in for other plugins: a page shows two nonces, of which one is registered as private, and an action counts the
/// runs of PHP. `[stand_in_basket]` stands in for WooCommerce's basket: it shows how many things are in the basket of
/// the session, and `?stand_in_add` adds one.
const STAND_IN: &str = r#"<?php
file_put_contents(ABSPATH . 'runs.log', $_SERVER['REQUEST_METHOD'] . ' ' . $_SERVER['REQUEST_URI'] . "\n", FILE_APPEND);
add_action('wp_footer', function () {
    echo '<i data-shared="', wp_create_nonce('stand_in'), '" data-own="', wp_create_nonce('stand_in_own'), '"></i>';
});
function stand_in_session() {
    foreach ($_COOKIE as $name => $value) if (str_starts_with($name, 'wp_woocommerce_session_')) return $value;
    return '';
}
add_shortcode('stand_in_basket', function () {
    $session = stand_in_session();
    return '<b>basket=' . ($session === '' ? 0 : (int) get_option("basket_$session")) . '</b>';
});
add_action('init', function () {
    if ($_SERVER['REQUEST_METHOD'] !== 'POST' || !isset($_GET['stand_in_add'])) return;
    $session = stand_in_session();
    if ($session === '') setcookie('wp_woocommerce_session_1', $session = bin2hex(random_bytes(16)), 0, '/');
    update_option("basket_$session", (int) get_option("basket_$session") + 1, false);
    exit('added');
});
"#;

/// Runs the plugin's crawler once. Prints how the crawler has ended, and for each page of the sitemap the results of all
/// its crawlers: `H` for a page that is stored.
const CRAWL: &str = r#"<?php
require __DIR__ . '/wp-load.php';
if (isset($_GET['first'])) \LiteSpeed\Crawler::cls()->cls('Crawler_Map')->gen();
\LiteSpeed\Crawler::start(true);
global $wpdb;
echo \LiteSpeed\Crawler::get_summary()['done'] ?: 'again', "\n";
foreach ($wpdb->get_results("SELECT url, res FROM {$wpdb->prefix}litespeed_crawler") as $row) echo "$row->url $row->res\n";
"#;

const USERS: &str = "
$editor = wp_create_user('editor', 'edit the elephant', 'editor@example.org');
(new WP_User($editor))->set_role('editor');
$author = wp_create_user('author', 'write the elephant', 'author@example.org');
(new WP_User($author))->set_role('author');
wp_insert_post(['post_title' => 'SECRET of the author', 'post_content' => 'x', 'post_status' => 'private', 'post_author' => $author]);
wp_insert_post(['post_title' => 'Shop', 'post_name' => 'shop', 'post_type' => 'page', 'post_status' => 'publish',
    'post_content' => '[esi stand_in_basket cache=\"private\" ttl=\"600\"]']);
wp_insert_post(['post_title' => 'Unrelated', 'post_content' => 'x', 'post_status' => 'publish', 'post_author' => $author,
    'post_date' => '2020-01-01 00:00:00']);
update_option('permalink_structure', '/%postname%/');
flush_rewrite_rules();
require_once ABSPATH . 'wp-admin/includes/plugin.php';
$result = activate_plugin('litespeed-cache/litespeed-cache.php');
if (is_wp_error($result)) exit($result->get_error_message());
";

/// A WordPress with the plugin, and the server in front of it.
struct Blog {
    home: WordpressHome,
    server: Fixture,
    host: String,
}

impl Blog {
    /// Starts the server with these settings of the plugin and further options of the site. Returns `None` if there is
    /// no checkout of the plugin.
    fn start(name: &str, settings: &str, options: &str, esi_options: &str) -> Option<Blog> {
        Blog::start_in("", name, settings, (options, esi_options))
    }

    /// Does the same as [`Blog::start`] for a WordPress in a folder of the site.
    fn start_in(
        folder: &'static str,
        name: &str,
        settings: &str,
        (options, esi_options): (&str, &str),
    ) -> Option<Blog> {
        let Some(plugin) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
            eprintln!("left out: {VARIABLE} names no checkout of the LiteSpeed Cache plugin");
            return None;
        };
        assert!(
            plugin.join("litespeed-cache.php").is_file(),
            "{VARIABLE}: {} is not the plugin",
            plugin.display()
        );
        let home = match folder {
            "" => WordpressHome::prepare(),
            _ => WordpressHome::prepare_in(folder),
        };
        let site = home.site().children(4);
        let content = site.root.join(format!(".{folder}/wp-content"));
        let to = content.join("plugins/litespeed-cache");
        copy_tree(&plugin, &to);
        std::fs::create_dir_all(content.join("mu-plugins")).expect("a directory");
        home.run(USERS);
        home.run(&format!(
            "\\LiteSpeed\\Conf::cls()->update_confs(['esi' => true, 'cache-mobile' => true,
                'esi-nonce' => ['stand_in', 'stand_in_own private'], {settings}]);"
        ));
        std::fs::write(content.join("mu-plugins/stand-in.php"), STAND_IN).expect("a file");
        std::fs::write(site.root.join("crawl.php"), CRAWL).expect("a file");
        let fragments = match folder {
            "" => "litespeed".to_owned(),
            _ => format!("{folder}/?lsesi="),
        };
        // The crawler runs however busy the machine is.
        let tables = format!(
            "[site.esi]\npaths = [\"{fragments}\"]\n{esi_options}\n[site.private]\n\
             [site.env]\nCRAWLER_LOAD_LIMIT_ENFORCE = \"1000\"\n"
        );
        let server = Fixture::of(name, site)
            .site(&format!("{CACHE}{options}\n{tables}"))
            .start();
        let host = HOST.to_owned();
        Some(Blog { home, server, host })
    }

    /// Gives the blog the server's address, so PHP can request its pages.
    fn move_to_own_address(&mut self) {
        let config = self.home.site().root.join("wp-config.php");
        let text = std::fs::read_to_string(&config).expect("the settings");
        self.host = self.server.address().to_string();
        let own = format!("http://{}", self.host);
        let text = text.replace(&format!("http://{HOST}"), &own);
        std::fs::write(config, text).expect("the settings can be changed");
        self.home.run(&format!(
            "\\LiteSpeed\\Conf::cls()->update_confs(['crawler-sitemap' => '{own}/wp-sitemap.xml']);"
        ));
    }

    fn ask(&self, method: &str, path: &str, lines: &str) -> Response {
        let length = match method {
            "POST" => "Content-Length: 0\r\n",
            _ => "",
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{lines}{length}Connection: close\r\n\r\n",
            self.host
        );
        let response = exchange(self.server.address(), request.as_bytes());
        response.unwrap_or_else(|why| panic!("{path}: {why}"))
    }

    /// Asks for a page until it comes from the cache.
    fn stored(&self, path: &str, lines: &str) -> Response {
        let mut last = None;
        wait_until(
            &format!("{path} with {lines:?} to be stored"),
            Duration::from_secs(30),
            || {
                let page = self.ask("GET", path, lines);
                assert_eq!(page.status(), 200, "{path}: {}", page.text());
                let text = page.text();
                assert!(!text.contains("<esi:"), "{path}: {text}");
                let is_hit = page.header("X-Cache") == Some("HIT");
                last = Some(page);
                is_hit
            },
        );
        last.expect("a page")
    }

    /// Returns the page that is stored for the visitor alone.
    fn own(&self, path: &str, lines: &str) -> String {
        let page = self.stored(path, lines);
        let status = page.header("Cache-Status").unwrap_or_default();
        assert!(status.ends_with("detail=private"), "{path}: {status}");
        page.text()
    }

    /// Returns the page that is stored for all.
    fn shared(&self, path: &str, lines: &str) -> String {
        let page = self.stored(path, lines);
        let status = page.header("Cache-Status").unwrap_or_default();
        assert!(!status.contains("private"), "{path}: {status}");
        assert_eq!(page.header("X-LiteSpeed-Cache"), Some("hit"));
        assert_eq!(page.header("X-LiteSpeed-Tag"), None);
        page.text()
    }

    /// Returns the requests that reached PHP since the last call.
    fn runs(&self) -> Vec<String> {
        let path = self.home.site().root.join("runs.log");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text.lines().map(str::to_owned).collect()
    }

    fn application(&self) -> CachedApplication<'_> {
        CachedApplication {
            address: self.server.address(),
            host: HOST,
            readers: &[],
            mark: "Edition ",
            secrets: &[],
        }
    }

    fn log_in(&self, name: &str, password: &str) -> String {
        log_in(&self.application(), "", name, password)
    }
}

fn attribute<'t>(text: &'t str, name: &str) -> &'t str {
    let start = format!("{name}=\"");
    let rest = text.split_once(&start).map(|(_, rest)| rest);
    let value = rest.and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("no {name}: {text}"))
}

fn greeting(name: &str) -> String {
    format!("<span class=\"display-name\">{name}</span>")
}

#[test]
fn guests_share_pages_and_users_have_their_own_with_every_fragment() {
    let Some(blog) = Blog::start("lscache-esi", "", "", "") else {
        return;
    };
    let home = blog.shared("/", "");
    assert!(
        !home.contains("wpadminbar") && !home.contains("SECRET"),
        "{home}"
    );
    // The plugin's issue 1009: a private nonce has to be there for guests, too.
    for nonce in ["data-shared", "data-own"] {
        let value = attribute(&home, nonce);
        assert_eq!(value.len(), 10, "{nonce}: {value}");
        assert_eq!(
            attribute(&blog.shared("/", "Cookie: _ga=1\r\n"), nonce),
            value
        );
    }
    // Four users with three roles, of whom three have the same value of the plugin's cookie.
    let users = [
        ("owner", "carry+the+howdah", true),
        ("editor", "edit+the+elephant", true),
        ("author", "write+the+elephant", true),
        ("rider", "ride+the+elephant", false),
    ];
    let sessions = users.map(|(name, password, _)| blog.log_in(name, password));
    let group = |lines: &str| {
        let value = lines.split("_lscache_vary=").nth(1).expect("the cookie");
        value[..32].to_owned()
    };
    assert_eq!(group(&sessions[1]), group(&sessions[3]));
    assert_ne!(group(&sessions[0]), group(&sessions[3]));
    for path in ["/", "/hello-world/"] {
        for ((name, _, sees_secret), lines) in users.iter().zip(&sessions) {
            let page = blog.own(path, lines);
            assert!(page.contains(&greeting(name)), "{name}: {page}");
            // WordPress shows an author's private post to its author and to editors, and the plugin marks the page as
            // public, for every visitor with the same value of its cookie.
            let has_secret = page.contains("SECRET of the author");
            assert_eq!(has_secret, *sees_secret, "{path}, {name}: {page}");
            // The fragment of the admin bar knows the page around it.
            let can_edit = matches!(*name, "owner" | "editor") && path != "/";
            let has_link = page.contains("id='wp-admin-bar-edit'");
            assert_eq!(has_link, can_edit, "{path}, {name}: {page}");
            if path != "/" {
                let form = format!("Logged in as {name}.");
                assert!(page.contains(&form), "{path}, {name}: {page}");
            }
        }
    }
    let nonces = sessions.each_ref().map(|lines| {
        let page = blog.own("/", lines);
        attribute(&page, "data-own").to_owned()
    });
    for (at, nonce) in nonces.iter().enumerate() {
        assert_eq!(
            nonces.iter().filter(|other| *other == nonce).count(),
            1,
            "{at}: {nonces:?}"
        );
    }
    // Everything comes from the store.
    blog.runs();
    for lines in &sessions {
        blog.own("/hello-world/", lines);
    }
    assert!(blog.runs().is_empty(), "{:?}", blog.runs());
    // A guest who knows the cookie of a group gets nothing of its members.
    let forged = format!("Cookie: _lscache_vary={}\r\n", group(&sessions[0]));
    for _ in 0..4 {
        let page = blog.ask("GET", "/", &forged);
        assert_eq!(page.header("X-Cache"), Some("PASS"), "{:?}", page.head);
        let text = page.text();
        assert!(
            !text.contains("wpadminbar") && !text.contains("SECRET"),
            "{text}"
        );
    }
    assert!(!blog.shared("/", "").contains("wpadminbar"));
    check_logout(&blog, &sessions[3]);
}

/// Logs the user `rider` out, and checks that nothing of the user is left.
fn check_logout(blog: &Blog, rider: &str) {
    let page = blog.own("/", rider);
    assert!(page.contains(&greeting("rider")), "{page}");
    let link = page.split("action=logout").nth(1).expect("a link");
    let nonce = link.split("_wpnonce=").nth(1).expect("a nonce")[..10].to_owned();
    let path = format!("/wp-login.php?action=logout&_wpnonce={nonce}");
    let out = blog.ask("GET", &path, rider);
    assert_eq!(out.status(), 302, "{}", out.text());
    // The old cookies are worthless.
    for path in ["/", "/hello-world/"] {
        let page = blog.ask("GET", path, rider);
        assert_ne!(page.header("X-Cache"), Some("HIT"), "{:?}", page.head);
        assert!(!page.text().contains(&greeting("rider")), "{}", page.text());
    }
}

#[test]
fn guest_mode_the_crawler_and_mobile_pages_work() {
    let settings = "'guest' => true, 'guest_optm' => true";
    let Some(blog) = Blog::start("lscache-guest", settings, "", "") else {
        return;
    };
    let is_guest = |page: &str| page.contains("<!-- Guest Mode -->");
    let first = blog.shared("/", "");
    assert!(is_guest(&first), "{first}");
    // The script in the page sends this request for a visitor who is new.
    assert!(first.contains("/wp-content/plugins/litespeed-cache/guest.vary.php"));
    let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0\r\n";
    let path = "/wp-content/plugins/litespeed-cache/guest.vary.php";
    let set = blog.ask("POST", path, browser);
    assert_eq!(set.text(), r#"{"reload":"yes"}"#);
    let cookie = set.header("Set-Cookie").expect("a cookie");
    let cookie = cookie.split(';').next().expect("a cookie");
    let known = format!("{browser}Cookie: {cookie}\r\n");
    assert!(!is_guest(&blog.shared("/", &known)));
    // The request has invalidated nothing, and the first page is still there for new visitors.
    assert_eq!(blog.ask("POST", path, &known).text(), "[]");
    for (lines, guest) in [(browser, true), (&known, false), ("", true)] {
        let page = blog.ask("GET", "/", lines);
        assert_eq!(
            page.header("X-Cache"),
            Some("HIT"),
            "{lines}: {:?}",
            page.head
        );
        assert_eq!(is_guest(&page.text()), guest, "{lines}");
    }
    let forged = format!("{browser}Cookie: _lscache_vary=forged\r\n");
    for _ in 0..3 {
        let page = blog.ask("GET", "/", &forged);
        assert_eq!(page.header("X-Cache"), Some("PASS"), "{:?}", page.head);
    }
    // The crawler's request alone has a page stored, for the cookie and the browser that it names. WordPress writes when
    // it makes a page for the first time, so somebody has to have seen it.
    blog.ask("GET", "/sample-page/", "Cookie: unknown=1\r\n");
    let phone_cookie = format!("Cookie: {cookie}\r\n");
    for (agent, cookie, visitor) in [
        ("lscache_runner", "", browser.to_owned()),
        ("lscache_runner", &phone_cookie, known.clone()),
        (
            "lscache_runner iPhone Mobile",
            &phone_cookie,
            format!("{PHONE}{phone_cookie}"),
        ),
    ] {
        let crawler = format!("User-Agent: {agent}\r\n{cookie}");
        let page = blog.ask("GET", "/sample-page/", &crawler);
        assert_eq!(
            page.header("X-LiteSpeed-Cache"),
            Some("hit"),
            "{:?}",
            page.head
        );
        blog.runs();
        let page = blog.ask("GET", "/sample-page/", &visitor);
        assert_eq!(
            page.header("X-Cache"),
            Some("HIT"),
            "{visitor}: {:?}",
            page.head
        );
        // The private nonce of a guest is made for each visit.
        let runs = blog.runs();
        assert!(
            runs.iter().all(|run| run.contains("lsesi=nonce")),
            "{runs:?}"
        );
    }
    // The crawler is told that this page is never stored, by the absence of the header.
    let crawler = "User-Agent: lscache_runner\r\n";
    let login = blog.ask("GET", "/wp-login.php", crawler);
    assert_eq!(login.header("X-LiteSpeed-Cache"), None, "{:?}", login.head);
}

#[test]
fn crawler_stores_the_pages_of_the_sitemap_for_all_kinds_of_guests() {
    let settings = "'guest' => true, 'crawler' => true";
    let Some(mut blog) = Blog::start("lscache-crawler", settings, "", "") else {
        return;
    };
    blog.move_to_own_address();
    // WordPress writes when it makes a page for the first time, which invalidates all pages.
    let paths = [
        "/",
        "/hello-world/",
        "/sample-page/",
        "/unrelated/",
        "/shop/",
        "/category/uncategorized/",
        "/author/author/",
        "/author/owner/",
    ];
    for path in paths {
        blog.ask("GET", path, "Cookie: unknown=1\r\n");
    }
    let mut path = "/crawl.php?first";
    let mut said = String::new();
    for _ in 0..20 {
        said = blog.ask("GET", path, "").text();
        if said.starts_with("touchedEnd") {
            break;
        }
        path = "/crawl.php";
    }
    assert!(said.starts_with("touchedEnd"), "{said}");
    // Two kinds of guests with two kinds of browsers.
    for path in paths {
        let line = format!("http://{}{path} HHHH", blog.host);
        assert!(said.lines().any(|own| own == line), "{path}: {said}");
    }
    let set = blog.ask(
        "POST",
        "/wp-content/plugins/litespeed-cache/guest.vary.php",
        "User-Agent: Firefox\r\n",
    );
    let cookie = set.header("Set-Cookie").and_then(|c| c.split(';').next());
    let known = format!("Cookie: {}\r\n", cookie.expect("a cookie"));
    for path in paths {
        for lines in ["", &known, PHONE, &format!("{PHONE}{known}")] {
            let page = blog.ask("GET", path, lines);
            assert_eq!(
                page.header("X-Cache"),
                Some("HIT"),
                "{path} {lines}: {said} {:?}",
                page.head
            );
        }
    }
}

#[test]
fn plugin_purges_exactly_the_pages_that_have_changed() {
    // No write invalidates pages by itself, so only the plugin's headers do.
    let options = "cache_flush_on_write = \"off\"";
    let Some(blog) = Blog::start("lscache-purge", "", options, "") else {
        return;
    };
    let owner = blog.log_in("owner", "carry+the+howdah");
    let drive = blog.application();
    let is_hit = |path: &str| blog.ask("GET", path, "").header("X-Cache") == Some("HIT");
    for path in ["/", "/hello-world/", "/author/author/"] {
        blog.shared(path, "");
    }
    save_text(&drive, "", &owner, 7);
    assert!(!is_hit("/") && !is_hit("/hello-world/"));
    assert!(is_hit("/author/author/"));
    assert!(blog.shared("/hello-world/", "").contains("Text 7"));
    // A comment that the owner writes is approved at once.
    blog.shared("/", "");
    let form = "comment=Words+of+the+owner&comment_post_ID=1&comment_parent=0";
    let said = drive.ask("POST", "/wp-comments-post.php", &owner, form);
    assert_eq!(said.status(), 302, "{}", said.text());
    assert!(!is_hit("/hello-world/"));
    assert!(is_hit("/author/author/"));
    assert!(
        blog.shared("/hello-world/", "")
            .contains("Words of the owner")
    );
    // "Purge all" of the plugin.
    for path in ["/", "/hello-world/", "/author/author/"] {
        blog.shared(path, "");
    }
    let dashboard = drive.ask("GET", "/wp-admin/", &owner, "").text();
    let link = dashboard.split("index.php?LSCWP_CTRL=purge&#038;").nth(1);
    let link = link.and_then(|rest| rest.split(['\'', '"']).next());
    let link = link.unwrap_or_else(|| panic!("no link: {dashboard}"));
    let path = format!(
        "/wp-admin/index.php?LSCWP_CTRL=purge&{}",
        link.replace("&#038;", "&")
    );
    let purged = drive.ask("GET", &path, &owner, "");
    assert!(purged.status() < 400, "{}", purged.text());
    for path in ["/", "/hello-world/", "/author/author/"] {
        assert!(!is_hit(path), "{path}");
    }
}

#[test]
fn basket_of_a_stand_in_is_a_fragment_of_its_visitor() {
    // The whole page is shared, because only the fragment reads the session's cookie.
    let esi = "cookies = [\"wp_woocommerce_session_*\"]";
    let Some(blog) = Blog::start("lscache-basket", "", "", esi) else {
        return;
    };
    let add = |lines: &str| {
        let added = blog.ask("POST", "/?stand_in_add", lines);
        assert_eq!(added.text(), "added");
        let cookie = added.header("Set-Cookie").and_then(|c| c.split(';').next());
        cookie.map(|cookie| format!("Cookie: {cookie}\r\n"))
    };
    let ann = add("").expect("a session");
    let bob = add("").expect("a session");
    let shows = |lines: &str| {
        let page = blog.shared("/shop/", lines);
        page.split("basket=")
            .nth(1)
            .and_then(|rest| rest.split('<').next().map(str::to_owned))
    };
    for round in 1..4 {
        for (lines, count) in [("", 0), (&ann[..], round), (&bob, 1)] {
            assert_eq!(shows(lines), Some(count.to_string()), "{round} {lines}");
        }
        blog.runs();
        for lines in [&ann, &bob] {
            shows(lines);
        }
        let runs = blog.runs();
        assert!(
            !runs.iter().any(|run| run.contains("lsesi=esi")),
            "{runs:?}"
        );
        assert_eq!(add(&ann), None);
    }
}

#[test]
fn readers_and_users_of_all_roles_get_no_wrong_page_while_others_write() {
    let Some(blog) = Blog::start("lscache-judge", "", "", "") else {
        return;
    };
    let readers = [
        Reader {
            path: "/",
            lines: "",
        },
        Reader {
            path: "/hello-world/",
            lines: "Cookie: _ga=GA1.2.3\r\n",
        },
        Reader {
            path: "/",
            lines: PHONE,
        },
        Reader {
            path: "/sample-page/",
            lines: "Cookie: _lscache_vary=forged; _gid=1\r\nAccept: */*\r\n",
        },
    ];
    let drive = CachedApplication {
        readers: &readers[..3],
        secrets: &["wpadminbar", "Howdy", "Logged in as", "SECRET", "<esi:"],
        ..blog.application()
    };
    let owner = blog.log_in("owner", "carry+the+howdah");
    rename(&drive, "", &owner, 1);
    let names = [
        ("owner", "carry+the+howdah", true),
        ("editor", "edit+the+elephant", true),
        ("author", "write+the+elephant", true),
        ("rider", "ride+the+elephant", false),
    ];
    let sessions: Vec<_> = names
        .iter()
        .map(|(name, password, sees)| (*name, blog.log_in(name, password), *sees))
        .collect();
    let written = std::sync::atomic::AtomicU64::new(1);
    let own_hits = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    let look = |name: &str, lines: &str, sees_secret: bool, path: &str| {
        let before = written.load(order);
        let page = drive.ask("GET", path, lines, "");
        assert_eq!(page.status(), 200, "{name}");
        let text = page.text();
        for (other, ..) in &names {
            let is_shown = text.contains(&greeting(other));
            assert_eq!(is_shown, *other == name, "{name} sees {other}: {text}");
        }
        let has_secret = text.contains("SECRET of the author");
        assert_eq!(has_secret, sees_secret, "{name}: {text}");
        let edition = drive.edition(&text);
        assert!(
            edition.is_some_and(|edition| edition >= before),
            "{name}: {edition:?} after {before}: {text}"
        );
        if page.header("X-Cache") == Some("HIT") {
            own_hits.fetch_add(1, order);
        }
    };
    let look = &look;
    let mut users: Vec<Box<dyn FnMut() + Send + '_>> = Vec::new();
    for (name, lines, sees) in &sessions {
        let mut page = 0;
        users.push(Box::new(move || {
            page += 1;
            look(name, lines, *sees, ["/", "/hello-world/"][page % 2]);
        }));
    }
    let forger = readers[3];
    users.push(Box::new(|| {
        let page = drive.ask("GET", forger.path, forger.lines, "");
        let text = page.text();
        assert_ne!(page.header("X-Cache"), Some("HIT"), "{:?}", page.head);
        assert!(
            !text.contains("wpadminbar") && !text.contains("SECRET"),
            "{text}"
        );
    }));
    drive.run(users, |edition| {
        rename(&drive, "", &owner, edition);
        written.store(edition, order);
        if edition % 2 == 0 {
            publish_pretty(&blog, &owner, edition);
        }
    });
    let hits = own_hits.into_inner();
    println!("{hits} pages of users came from the store");
    assert!(hits > 0);
}

/// Publishes a new text of the first post, and checks that readers see it.
fn publish_pretty(blog: &Blog, owner: &str, edition: u64) {
    save_text(&blog.application(), "", owner, edition);
    let text = blog.ask("GET", "/hello-world/", "").text();
    assert!(text.contains(&format!("Text {edition}")), "{text}");
}

#[test]
fn plugin_works_in_a_folder_of_the_site() {
    let options = ("", "");
    let Some(blog) = Blog::start_in("/blog", "lscache-folder", "", options) else {
        return;
    };
    let guest = blog.shared("/blog/", "");
    assert_eq!(attribute(&guest, "data-shared").len(), 10);
    let rider = log_in(&blog.application(), "/blog", "rider", "ride+the+elephant");
    let editor = log_in(&blog.application(), "/blog", "editor", "edit+the+elephant");
    for (name, lines) in [("rider", &rider), ("editor", &editor)] {
        let page = blog.own("/blog/hello-world/", lines);
        assert!(page.contains(&greeting(name)), "{name}: {page}");
        let can_edit = page.contains("id='wp-admin-bar-edit'");
        assert_eq!(can_edit, name == "editor", "{page}");
    }
    assert!(!blog.shared("/blog/", "").contains("wpadminbar"));
}
