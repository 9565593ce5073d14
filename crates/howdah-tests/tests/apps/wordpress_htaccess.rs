//! WordPress with `.htaccess` files as its owners have them, under Howdah with `htaccess = "on"` and under Apache: one
//! tree and one database, with the same requests to both. With the rules that WordPress writes for permalinks, its
//! owner works under each server, and readers of both servers see the result. With the files of caching and security
//! plugins, if [`files_of_applications`] finds them, both servers send the same responses.

use std::fs;
use std::path::PathBuf;

use howdah_tests::browser::Browser;
use howdah_tests::forms::{File, Form};
use howdah_tests::http::{self, Response};
use howdah_tests::image;
use howdah_tests::rig::{Howdah, ModPhp, Server};
use howdah_tests::scratch::{at_root, files_of_applications};
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};
use serde_json::json;

/// Makes WordPress write its rules for permalinks, as it does when it recognises the server.
const PERMALINKS: &str = "
add_filter('got_rewrite', '__return_true');
require_once ABSPATH . 'wp-admin/includes/admin.php';
global $wp_rewrite;
$wp_rewrite->set_permalink_structure('/%postname%/');
$wp_rewrite->flush_rules(true);
wp_update_user(['ID' => 1, 'user_nicename' => 'carl']);
echo file_get_contents(ABSPATH . '.htaccess');
";

/// Requests of visitors, scanners and robots: method, target, headers.
const REQUESTS: &[(&str, &str, &str)] = &[
    ("GET", "/", ""),
    ("HEAD", "/", ""),
    ("GET", "/hello-world/", ""),
    ("GET", "/hello-world", ""),
    ("GET", "/hello-world/?utm_source=a", ""),
    (
        "GET",
        "/hello-world/",
        "Cookie: wordpress_logged_in_1=owner\r\n",
    ),
    ("GET", "/hello-world/", "Accept-Encoding: gzip\r\n"),
    ("GET", "/sample-page/", ""),
    ("GET", "/?p=1", ""),
    ("GET", "/?s=elephant", ""),
    ("GET", "/feed/", ""),
    ("GET", "/no-such-page/", ""),
    ("GET", "/no/such/page.css", ""),
    ("GET", "/category/uncategorized/", ""),
    ("GET", "/index.php", ""),
    ("GET", "/index.php/hello-world/", ""),
    ("GET", "/wp-json/wp/v2/posts", ""),
    ("GET", "/wp-sitemap.xml", ""),
    ("GET", "/robots.txt", ""),
    ("GET", "/wp-admin", ""),
    ("GET", "/wp-admin/", ""),
    ("GET", "/wp-admin/install.php", ""),
    ("GET", "/wp-admin/load-styles.php?load=dashicons", ""),
    ("GET", "/wp-login.php", ""),
    ("GET", "/wp-config.php", ""),
    ("GET", "/wp-includes/version.php", ""),
    ("GET", "/wp-includes/js/jquery/jquery.min.js", ""),
    (
        "GET",
        "/wp-includes/js/jquery/jquery.min.js",
        "Accept-Encoding: gzip\r\n",
    ),
    ("GET", "/wp-includes/css/dashicons.min.css", ""),
    (
        "GET",
        "/wp-includes/images/w-logo-blue.png",
        "Referer: http://elsewhere.example/\r\n",
    ),
    ("GET", "/wp-content/uploads/", ""),
    ("GET", "/wp-content/uploads/evil.php", ""),
    ("GET", "/wp-content/plugins/", ""),
    ("GET", "/wp-content/debug.log", ""),
    ("GET", "/readme.html", ""),
    ("GET", "/license.txt", ""),
    ("GET", "/xmlrpc.php", ""),
    ("POST", "/xmlrpc.php", ""),
    ("POST", "/wp-comments-post.php", ""),
    (
        "POST",
        "/wp-login.php",
        "Referer: http://elsewhere.example/\r\n",
    ),
    ("PUT", "/hello-world/", ""),
    ("OPTIONS", "/wp-json/", ""),
    ("GET", "/?author=1", ""),
    ("GET", "/?a=%3Cscript%3E", ""),
    ("GET", "/?a=../../etc/passwd", ""),
    ("GET", "/?a=union%20select%201", ""),
    ("GET", "/?GLOBALS[a]=1", ""),
    ("GET", "//hello-world//", ""),
    ("GET", "/%C3%BCber/", ""),
    ("GET", "/", "User-Agent: HTTrack\r\n"),
    ("GET", "/", "User-Agent: Mozilla/5.0 Indy Library\r\n"),
];
/// Paths that Howdah never sends, whatever Apache does (docs/differences.md).
const NEVER_SENT: &[&str] = &["/.htaccess", "/.git/config"];
/// The response headers that are compared.
const FIELDS: &[&str] = &[
    "cache-control",
    "content-type",
    "expires",
    "link",
    "location",
    "pragma",
    "referrer-policy",
    "strict-transport-security",
    "x-content-type-options",
    "x-frame-options",
    "x-pingback",
    "x-powered-by",
    "x-robots-tag",
    "x-xss-protection",
];

struct HowdahAndApache {
    home: WordpressHome,
    root: PathBuf,
    howdah: Howdah,
    apache: ModPhp,
}

impl HowdahAndApache {
    fn start() -> HowdahAndApache {
        let home = WordpressHome::prepare();
        let site = home.site().ini("expose_php", "Off");
        let mut site = site.obeying_htaccess("on");
        // The `.htaccess` files determine how paths that are not files are handled.
        site.front_controller = None;
        let root = site.root.clone();
        fs::create_dir_all(root.join("wp-content/uploads")).unwrap();
        fs::write(
            root.join("wp-content/uploads/evil.php"),
            "<?php echo 'EVIL';",
        )
        .unwrap();
        fs::write(root.join("wp-content/debug.log"), "a log").unwrap();
        HowdahAndApache {
            howdah: Howdah::start(&site),
            apache: ModPhp::start(&site),
            root,
            home,
        }
    }

    /// Sends all requests to both servers and returns the differences.
    fn differences(&self, title: &str) -> Vec<String> {
        let compare = |request: &(&str, &str, &str)| {
            let (ours, theirs) = (ask(&self.howdah, request), ask(&self.apache, request));
            let (our, their) = (shown(&ours), shown(&theirs));
            // Howdah compresses responses by itself, so the text of a compressed response is not compared.
            let is_coded = ours.header("Content-Encoding").is_some();
            let (text, other) = (ours.text(), theirs.text());
            let same_text = is_own(&theirs) || is_coded || text == other;
            (our != their || !same_text).then(|| {
                let place = difference(&text, &other);
                format!("{title}: {request:?}\n  Howdah {our:?}\n  Apache {their:?}\n  {place}")
            })
        };
        let mut wrong: Vec<String> = REQUESTS.iter().filter_map(compare).collect();
        for target in NEVER_SENT {
            let answer = ask(&self.howdah, &("GET", target, ""));
            if answer.status() < 400 {
                wrong.push(format!("{title}: {target} is sent"));
            }
        }
        wrong
    }
}

fn ask(server: &dyn Server, (method, target, fields): &(&str, &str, &str)) -> Response {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {HOST}\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    http::exchange(server.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{method} {target}: {broken}\n{}", server.log()))
}

/// Returns whether this is an error page or a redirect, which each server writes in its own words.
fn is_own(answer: &Response) -> bool {
    let redirects = (300..400).contains(&answer.status());
    redirects || answer.status() >= 400 && !answer.text().contains("wp-")
}

fn shown(answer: &Response) -> Vec<String> {
    let is_own = is_own(answer);
    let field = |name: &&str| {
        let value = answer.header(name)?.to_ascii_lowercase();
        let value = match *name {
            "content-type" if is_own => return None,
            "content-type" => value
                .split(';')
                .next()?
                .replace("text/javascript", "application/javascript"),
            // The value depends on the time of the response, so only the presence of the header is compared.
            "expires" => String::new(),
            _ => value,
        };
        // Howdah gives this type to a file of unknown type; it counts as no type.
        (value != "application/octet-stream").then(|| format!("{name}: {value}"))
    };
    let refused = answer.status() >= 400 && is_own;
    let fields = FIELDS.iter().filter(|_| !refused).filter_map(field);
    [answer.status().to_string()]
        .into_iter()
        .chain(fields)
        .collect()
}

fn difference(ours: &str, theirs: &str) -> String {
    let at = ours
        .bytes()
        .zip(theirs.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let around = |text: &str| {
        String::from_utf8_lossy(
            text.as_bytes()
                .get(at.saturating_sub(40)..)
                .unwrap_or_default(),
        )
        .chars()
        .take(120)
        .collect::<String>()
    };
    format!("at {at}: {:?} and {:?}", around(ours), around(theirs))
}

#[test]
fn wordpress_with_its_htaccess_files_is_the_same_under_howdah_and_apache() {
    let pair = HowdahAndApache::start();
    let rules = pair.home.run(PERMALINKS);
    assert!(rules.contains("RewriteRule . /index.php [L]"), "{rules}");
    let mut wrong = pair.differences("permalinks");
    let mut owner = work(&pair, &pair.howdah, &pair.apache, "howdah");
    work(&pair, &pair.apache, &pair.howdah, "apache");
    // Under Howdah too, WordPress knows that its file takes effect, and writes it.
    let file = pair.root.join(".htaccess");
    let rules = || {
        let text = fs::read_to_string(&file).expect("WordPress has written .htaccess");
        let (_, rules) = text
            .split_once("# BEGIN WordPress")
            .expect(".htaccess contains WordPress's rules");
        rules.trim_end().to_owned()
    };
    let written = rules();
    fs::remove_file(&file).unwrap();
    let structure = "/%postname%/";
    let saved = owner.fill(
        "/wp-admin/options-permalink.php",
        "options-permalink.php",
        &[("selection", structure), ("permalink_structure", structure)],
    );
    saved.shows("Permalink structure updated");
    assert_eq!(rules(), written);
    let own = fs::read_to_string(pair.root.join(".htaccess")).unwrap();
    for plugin in [
        "w3tc",
        "wp-super-cache",
        "wp-rocket",
        "wordfence",
        "ithemes",
        "aios",
    ] {
        let Some(file) = files_of_applications().map(|trees| trees.join(plugin).join(".htaccess"))
        else {
            break;
        };
        let text = fs::read_to_string(file).expect("the plugin's file");
        let text = at_root(&text, &pair.root);
        fs::write(pair.root.join("prepend.php"), "").unwrap();
        // The places where the caching plugins store pages.
        for place in [
            format!("page_enhanced/{HOST}/hello-world/_index_slash.html"),
            format!("page_enhanced/{HOST}//hello-world//_index_slash.html"),
            format!("supercache/{HOST}/hello-world/index.html"),
            format!("wp-rocket/{HOST}/hello-world/index.html"),
        ] {
            let file = pair.root.join("wp-content/cache").join(place);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("a page that {plugin} keeps, wp-")).unwrap();
        }
        // Some of these files contain the rules for permalinks; the others are put before the rules.
        let with_rules = match text.contains("BEGIN WordPress") {
            true => text,
            false => format!("{text}\n{own}"),
        };
        fs::write(pair.root.join(".htaccess"), with_rules).unwrap();
        wrong.extend(pair.differences(plugin));
    }
    assert!(
        wrong.is_empty(),
        "{} responses differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Logs the owner in, uploads a picture and publishes a post under the server `at`, and checks that readers of both
/// servers see the post. Returns the owner's browser.
fn work(pair: &HowdahAndApache, at: &dyn Server, beside: &dyn Server, name: &str) -> Browser {
    let mut owner = Browser::at(at.address(), HOST);
    let password = [("log", "owner"), ("pwd", "carry the howdah")];
    let dashboard = owner.fill("/wp-login.php", "loginform", &password);
    dashboard.shows("Howdy");
    assert_eq!(dashboard.location, "/wp-admin/");
    let media = owner.get("/wp-admin/media-new.php");
    let token = media
        .form("file-form")
        .value("_wpnonce")
        .unwrap()
        .to_owned();
    let upload = Form {
        action: "/wp-admin/async-upload.php".into(),
        ..Form::default()
    };
    let upload = upload
        .set("action", "upload-attachment")
        .set("name", format!("{name}.jpg"))
        .set("_wpnonce", token);
    let picture = File {
        field: "async-upload".into(),
        name: format!("{name}.jpg"),
        kind: "image/jpeg".into(),
        bytes: image::jpeg(400, 240),
    };
    let uploaded = owner.upload(&upload, &[picture]).response.json();
    assert_eq!(uploaded["success"], true, "{uploaded}");
    let picture = uploaded["data"]["url"]
        .as_str()
        .expect("the picture's address")
        .to_owned();
    let nonce = owner
        .get("/wp-admin/admin-ajax.php?action=rest-nonce")
        .text();
    owner.headers.push(("X-WP-Nonce".into(), nonce));
    let post = json!({"title": format!("Written at {name}"), "status": "publish", "content": "A rider writes."});
    let post = owner.request(
        "POST",
        "/wp-json/wp/v2/posts",
        Some(("application/json", post.to_string().into_bytes())),
    );
    assert_eq!(post.status(), 201, "{}", post.text());
    for server in [at, beside] {
        let mut reader = Browser::at(server.address(), HOST);
        reader
            .get("/")
            .shows(MARK)
            .shows(&format!("Written at {name}"));
        reader
            .get(&format!("/written-at-{name}/"))
            .shows("A rider writes.");
        let shown = reader.get(&picture);
        assert_eq!(shown.status(), 200, "{picture}");
        assert_eq!(image::dimensions(&shown.response.body), (400, 240));
    }
    // WordPress writes files as the user that runs PHP. Afterwards, the user of the other server must be able to write
    // there, too.
    howdah_tests::scratch::run(
        std::process::Command::new("chmod")
            .args(["-R", "a+rwX"])
            .arg(&pair.root),
    );
    owner
}
