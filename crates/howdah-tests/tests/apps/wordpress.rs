//! WordPress as its owner, its readers and API clients use it, from the first page of its installer to logging out. It
//! is Debian's package, on a private MariaDB, with permalinks.

use std::path::Path;

use howdah_tests::browser::{Browser, Page};
use howdah_tests::forms::{File, Form, attributes, forms, percent_encode};
use howdah_tests::http::get;
use howdah_tests::image;
use howdah_tests::mariadb::Mariadb;
use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::{Scratch, copy_tree};
use serde_json::{Value, json};

const PASSWORD: &str = "carry the howdah";

struct Blog {
    server: Box<dyn Server>,
    owner: Browser,
    /// The token for the REST interface, from the editor's page.
    nonce: String,
    _mariadb: Mariadb,
    scratch: Scratch,
}

#[test]
fn wordpress_from_its_installer_to_logging_out() {
    let mut blog = Blog::prepare();
    blog.install();
    blog.log_in();
    blog.switch_permalinks_on();
    let post = blog.publish();
    blog.readers_find_it();
    blog.upload_a_picture();
    blog.edit(post);
    blog.comment(post);
    blog.programs_use_the_interfaces(post);
    blog.log_out();
}

impl Blog {
    /// Copies the package without a configuration, which the installer creates.
    fn prepare() -> Self {
        let mariadb = Mariadb::start();
        mariadb.create("wordpress", "wordpress", "database password");
        let scratch = Scratch::new("wordpress");
        copy_tree(Path::new("/usr/share/wordpress"), &scratch.join("site"));
        std::fs::remove_file(scratch.join("site/wp-config.php"))
            .expect("the package has a configuration");
        std::fs::remove_file(scratch.join("site/.htaccess")).expect("the package has a .htaccess");
        let site = Site::new(scratch.join("site"))
            .front_controller("/index.php")
            .ini("display_errors", "Off");
        let server = ServerKind::chosen().start(&site);
        let owner = Browser::new(server.address());
        Blog {
            server,
            owner,
            nonce: String::new(),
            _mariadb: mariadb,
            scratch,
        }
    }

    fn install(&mut self) {
        let first = self.owner.get("/");
        assert!(
            first.location.starts_with("/wp-admin/setup-config.php"),
            "{}",
            first.location
        );
        let host = format!("localhost:{}", self._mariadb.socket().display());
        let database = [
            ("dbname", "wordpress"),
            ("uname", "wordpress"),
            ("pwd", "database password"),
            ("dbhost", &host),
            ("prefix", "wp_"),
        ];
        self.owner
            .fill(
                "/wp-admin/setup-config.php?step=1",
                "setup-config.php?step=2",
                &database,
            )
            .shows("Run the installation");

        // These are the settings of an administrator who has neither a mail server nor internet access.
        let path = self.scratch.join("site/wp-config.php");
        let text = std::fs::read_to_string(&path).expect("the installer wrote wp-config.php");
        let ours = "define('DISABLE_WP_CRON', true); define('WP_HTTP_BLOCK_EXTERNAL', true);\ndefine('WP_ENVIRONMENT_TYPE', 'local'); define('WP_DEBUG_LOG', true);\n";
        let marker = "/* That's all";
        assert!(text.contains(marker), "{text}");
        std::fs::write(&path, text.replacen(marker, &format!("{ours}{marker}"), 1))
            .expect("wp-config.php is writable");

        let title = [
            ("weblog_title", "Caravan & Co"),
            ("user_name", "owner"),
            ("admin_password", PASSWORD),
            ("admin_password2", PASSWORD),
            ("pw_weak", "1"),
            ("admin_email", "owner@example.org"),
        ];
        self.owner
            .fill(
                "/wp-admin/install.php?language=en_US",
                "install.php?step=2",
                &title,
            )
            .shows("Success!");
        Browser::new(self.server.address())
            .get("/")
            .shows("Caravan &amp; Co")
            .shows("Hello world!");
    }

    fn log_in(&mut self) {
        let wrong = [("log", "owner"), ("pwd", "wrong")];
        self.owner
            .fill("/wp-login.php", "loginform", &wrong)
            .shows("is incorrect");
        let dashboard = self.owner.fill(
            "/wp-login.php",
            "loginform",
            &[("log", "owner"), ("pwd", PASSWORD)],
        );
        dashboard.shows("Dashboard").shows("Howdy");
        assert!(
            dashboard.location.starts_with("/wp-admin/"),
            "{}",
            dashboard.location
        );
        // A script of WordPress concatenates the dashboard's styles.
        let text = dashboard.text();
        let bundle = attributes(&text, "link", "href")
            .into_iter()
            .find(|link| link.contains("load-styles.php"));
        let styles = self
            .owner
            .get(&bundle.expect("the dashboard loads its styles"));
        assert!(
            styles
                .response
                .header("Content-Type")
                .is_some_and(|kind| kind.starts_with("text/css"))
        );
        assert!(
            styles.response.body.len() > 50_000,
            "{} bytes",
            styles.response.body.len()
        );
    }

    fn switch_permalinks_on(&mut self) {
        let saved = self.owner.fill(
            "/wp-admin/options-permalink.php",
            "options-permalink.php",
            &[
                ("selection", "/%postname%/"),
                ("permalink_structure", "/%postname%/"),
            ],
        );
        saved.shows("Permalink structure updated");
        Browser::new(self.server.address())
            .get("/hello-world/")
            .shows("Welcome to WordPress");
    }

    fn rest(&mut self, method: &str, path: &str, body: &Value) -> Value {
        self.owner
            .headers
            .push(("X-WP-Nonce".into(), self.nonce.clone()));
        let response = self.owner.request(
            method,
            path,
            Some(("application/json", body.to_string().into_bytes())),
        );
        self.owner.headers.clear();
        let value = response.json();
        assert!(
            matches!(response.status(), 200 | 201),
            "{method} {path}: {} {value}",
            response.status()
        );
        value
    }

    /// Publishes a post as the block editor does: through the REST interface, with the page's nonce.
    fn publish(&mut self) -> u64 {
        let editor = self.owner.get("/wp-admin/post-new.php");
        editor.shows("The block editor requires JavaScript");
        self.nonce = editor.between("wp.apiFetch.createNonceMiddleware( \"", "\"");
        let post = json!({"title": "On elephants", "status": "publish", "content": "<!-- wp:paragraph --><p>They never forget a señorial gesture.</p><!-- /wp:paragraph -->"});
        let made = self.rest("POST", "/wp-json/wp/v2/posts", &post);
        assert_eq!(made["slug"], "on-elephants");
        made["id"].as_u64().expect("a post has an id")
    }

    fn readers_find_it(&self) {
        let mut reader = Browser::new(self.server.address());
        reader
            .get("/on-elephants/")
            .shows("señorial gesture")
            .shows("On elephants");
        reader
            .get("/?s=se%C3%B1orial")
            .shows("On elephants")
            .hides("Welcome to WordPress");
        reader.get("/?p=1").shows("Hello world!");
        assert_eq!(reader.get("/?p=1").location, "/hello-world/");
        let feed = reader.get("/feed/");
        assert_eq!(
            feed.response.header("Content-Type"),
            Some("application/rss+xml; charset=UTF-8")
        );
        assert!(feed.text().contains("<title>On elephants</title>"));
        let missing = reader.get("/no-such-page/");
        assert_eq!(missing.status(), 404);
        // In every theme, WordPress gives this page the class `error404`.
        let excerpt = missing.excerpt();
        assert!(missing.text().contains("error404"), "{excerpt}");
        let year = reader.get("/category/uncategorized/");
        year.shows("On elephants");
        reader
            .get("/wp-sitemap.xml")
            .shows("wp-sitemap-posts-post-1.xml");
        // A conditional request with the feed's tag gets a response without a body.
        let tag = feed
            .response
            .header("ETag")
            .expect("WordPress tags feeds")
            .to_owned();
        reader.headers.push(("If-None-Match".into(), tag));
        let again = reader.request("GET", "/feed/", None);
        assert_eq!((again.status(), again.body.len()), (304, 0));
        // Static files beside the scripts are sent, and the source of a script is not.
        let script = get(
            self.server.address(),
            "/wp-includes/js/jquery/jquery.min.js",
        );
        assert!(
            script.status() == 200 && script.body.len() > 50_000,
            "{} {}",
            script.status(),
            script.body.len()
        );
        assert!(
            !get(self.server.address(), "/wp-config.php")
                .text()
                .contains("DB_PASSWORD")
        );
    }

    fn upload_a_picture(&mut self) {
        let token = self
            .owner
            .get("/wp-admin/media-new.php")
            .form("file-form")
            .value("_wpnonce")
            .expect("the form has a token")
            .to_owned();
        let upload = Form {
            action: "/wp-admin/async-upload.php".into(),
            ..Form::default()
        }
        .set("action", "upload-attachment")
        .set("name", "elephant.jpg")
        .set("_wpnonce", token);
        let picture = File {
            field: "async-upload".into(),
            name: "elephant.jpg".into(),
            kind: "image/jpeg".into(),
            bytes: image::jpeg(2000, 1200),
        };
        let answer = self.owner.upload(&upload, &[picture]).response.json();
        assert_eq!(answer["success"], true, "{answer}");
        assert_eq!(
            (&answer["data"]["width"], &answer["data"]["height"]),
            (&json!(2000), &json!(1200))
        );
        let id = answer["data"]["id"]
            .as_u64()
            .expect("an attachment has an id");
        let media = self.rest("GET", &format!("/wp-json/wp/v2/media/{id}"), &Value::Null);
        let sizes = media["media_details"]["sizes"]
            .as_object()
            .expect("sizes")
            .clone();
        for (name, (width, height)) in [
            ("thumbnail", (150, 150)),
            ("medium", (300, 180)),
            ("large", (1024, 614)),
        ] {
            let url = sizes[name]["source_url"]
                .as_str()
                .expect("a thumbnail has a URL");
            let file = self.owner.get(url);
            assert_eq!(file.status(), 200, "{url}");
            assert_eq!(
                file.response.header("Content-Type"),
                Some("image/jpeg"),
                "{url}"
            );
            assert_eq!(
                image::dimensions(&file.response.body),
                (width, height),
                "{name}"
            );
        }
        self.owner
            .get("/wp-admin/upload.php?mode=list")
            .shows("elephant");
        // WordPress refuses a file that looks like a script.
        let script = File {
            field: "async-upload".into(),
            name: "evil.php".into(),
            kind: "text/plain".into(),
            bytes: b"<?php echo 1;".to_vec(),
        };
        let refused = self
            .owner
            .upload(&upload.set("name", "evil.php"), &[script])
            .response
            .json();
        assert_eq!(refused["success"], false, "{refused}");
    }

    fn edit(&mut self, post: u64) {
        let new =
            json!({"content": "<p>They remember everything, twice.</p>", "excerpt": "Memory"});
        let edited = self.rest("PUT", &format!("/wp-json/wp/v2/posts/{post}"), &new);
        assert!(
            edited["content"]["raw"]
                .as_str()
                .is_some_and(|text| text.contains("twice")),
            "{edited}"
        );
        // Uses the list's quick edit, which is sent to admin-ajax.php.
        let list = self.owner.get("/wp-admin/edit.php");
        let token = forms(&list.text())
            .iter()
            .find_map(|form| form.value("_inline_edit").map(str::to_owned))
            .expect("the list has a quick edit");
        let fields: String = [
            ("action", "inline-save"),
            ("post_type", "post"),
            ("post_ID", &post.to_string()),
            ("screen", "edit-post"),
            ("edit_date", "true"),
            ("post_title", "On great elephants"),
            ("post_name", "on-elephants"),
            ("post_author", "1"),
            ("_status", "publish"),
            ("comment_status", "open"),
            ("_inline_edit", &token),
        ]
        .iter()
        .map(|(name, value)| format!("{name}={}&", percent_encode(value)))
        .collect();
        let saved = self.owner.request(
            "POST",
            "/wp-admin/admin-ajax.php",
            Some(("application/x-www-form-urlencoded", fields.into_bytes())),
        );
        assert!(
            saved.status() == 200 && saved.text().contains("On great elephants"),
            "{} {}",
            saved.status(),
            saved.text()
        );
        Browser::new(self.server.address())
            .get("/on-elephants/")
            .shows("On great elephants")
            .shows("everything, twice")
            .hides("señorial");
        let revisions = self.rest(
            "GET",
            &format!("/wp-json/wp/v2/posts/{post}/revisions"),
            &Value::Null,
        );
        assert!(
            revisions.as_array().is_some_and(|list| !list.is_empty()),
            "{revisions}"
        );
    }

    fn comment(&mut self, post: u64) {
        let mut reader = Browser::new(self.server.address());
        let page = reader.fill(
            "/on-elephants/",
            "commentform",
            &[
                ("author", "A reader"),
                ("email", "reader@example.org"),
                ("comment", "So do whales."),
            ],
        );
        page.shows("awaiting moderation");
        let waiting = self.rest(
            "GET",
            &format!("/wp-json/wp/v2/comments?status=hold&post={post}"),
            &Value::Null,
        );
        let id = waiting[0]["id"]
            .as_u64()
            .expect("the comment waits for moderation");
        self.rest(
            "POST",
            &format!("/wp-json/wp/v2/comments/{id}"),
            &json!({"status": "approved"}),
        );
        Browser::new(self.server.address())
            .get("/on-elephants/")
            .shows("So do whales.");
    }

    /// Uses basic authentication, XML-RPC and deletion, as scripts and phone apps do.
    fn programs_use_the_interfaces(&mut self, post: u64) {
        let made = self.rest(
            "POST",
            "/wp-json/wp/v2/users/me/application-passwords",
            &json!({"name": "a program"}),
        );
        let password = made["password"]
            .as_str()
            .expect("a password, shown once")
            .to_owned();
        let mut program = Browser::new(self.server.address());
        assert_eq!(
            program
                .request("GET", "/wp-json/wp/v2/users/me", None)
                .status(),
            401
        );
        program.headers.push((
            "Authorization".into(),
            format!("Basic {}", base64(&format!("owner:{password}"))),
        ));
        let me = program.request("GET", "/wp-json/wp/v2/users/me?context=edit", None);
        assert_eq!(
            (me.status(), &me.json()["username"]),
            (200, &json!("owner"))
        );
        let draft = program.request(
            "POST",
            "/wp-json/wp/v2/posts",
            Some(("application/json", br#"{"title":"Draft"}"#.to_vec())),
        );
        assert_eq!(draft.status(), 201, "{}", draft.text());
        let id = draft.json()["id"].as_u64().expect("a post has an id");
        let deleted = program.request(
            "DELETE",
            &format!("/wp-json/wp/v2/posts/{id}?force=true"),
            None,
        );
        assert_eq!(deleted.json()["deleted"], true);
        let head = program.request("HEAD", &format!("/wp-json/wp/v2/posts/{post}"), None);
        assert_eq!((head.status(), head.body.len()), (200, 0));
        let pages = program.request("GET", "/wp-json/wp/v2/posts?per_page=1", None);
        assert_eq!(pages.header("X-WP-Total"), Some("2"));

        let call = "<?xml version=\"1.0\"?><methodCall><methodName>wp.getPost</methodName><params><param><value><int>1</int></value></param><param><value>owner</value></param>".to_owned()
            + &format!("<param><value>{PASSWORD}</value></param><param><value><int>{post}</int></value></param></params></methodCall>");
        let answer = Browser::new(self.server.address()).request(
            "POST",
            "/xmlrpc.php",
            Some(("text/xml", call.into_bytes())),
        );
        assert!(
            answer.text().contains("On great elephants"),
            "{}",
            answer.text()
        );
    }

    fn log_out(&mut self) {
        let dashboard = self.owner.get("/wp-admin/");
        let link = attributes(&dashboard.text(), "a", "href")
            .into_iter()
            .find(|link| link.contains("action=logout"))
            .expect("a link to log out");
        self.owner.get(&link).shows("You are now logged out.");
        let page: Page = self.owner.get("/wp-admin/");
        assert!(
            page.location.starts_with("/wp-login.php"),
            "{}",
            page.location
        );
    }
}

fn base64(text: &str) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    text.as_bytes()
        .chunks(3)
        .flat_map(|chunk| {
            let n = chunk.iter().fold(0u32, |n, byte| n << 8 | u32::from(*byte))
                << (8 * (3 - chunk.len()));
            (0..4).map(move |i| {
                if i > chunk.len() {
                    '='
                } else {
                    char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize])
                }
            })
        })
        .collect()
}
