//! MediaWiki as its editors use it, from its web installer to logging out. It is Debian's package on SQLite, with
//! uploads and pretty `index.php/Title` addresses.

use std::process::Command;

use howdah_tests::browser::{Browser, Page};
use howdah_tests::forms::{File, Form, attributes, percent_encode};
use howdah_tests::http::get;
use howdah_tests::image;
use howdah_tests::rig::{Server, ServerKind, Site};
use howdah_tests::scratch::{Scratch, run};

const PASSWORD: &str = "seven wise masters";

/// Copies the package without the extensions, which this journey does not need, the links into /var/lib, and the
/// translations into four hundred languages.
const COPY: &str = r#"cd "$0" && find . \( -path ./extensions-core -o -type l \) -prune -o \
    -type f ! \( -path '*/i18n/*' -name '*.json' ! -name en.json \) -print0 \
    | tar --null -T - -cf - | tar -xf - -C "$1""#;

struct Wiki {
    server: Box<dyn Server>,
    editor: Browser,
    scratch: Scratch,
}

#[test]
fn mediawiki_from_its_installer_to_logging_out() {
    let mut wiki = Wiki::prepare();
    wiki.install();
    wiki.log_in();
    wiki.write_a_page();
    wiki.upload_a_picture();
    wiki.edit_again_and_compare();
    wiki.search();
    wiki.programs_use_the_interface();
    wiki.log_out();
}

impl Wiki {
    fn prepare() -> Self {
        let scratch = Scratch::new("mediawiki");
        let root = scratch.writable_dir("site");
        run(Command::new("sh")
            .args(["-c", COPY, "/usr/share/mediawiki"])
            .arg(&root));
        for directory in ["site/images", "site/cache", "site/extensions", "data"] {
            scratch.writable_dir(directory);
        }
        let server = ServerKind::chosen().start(&Site::new(&root).ini("display_errors", "Off"));
        let editor = Browser::new(server.address());
        Wiki {
            server,
            editor,
            scratch,
        }
    }

    /// Submits the installer's pages one after the other, as an administrator does.
    fn install(&mut self) {
        self.editor.get("/").shows("LocalSettings.php not found");
        let data = self.scratch.join("data").display().to_string();
        let answers = [
            ("ContLang", "en"),
            ("uselang", "en"),
            ("DBType", "sqlite"),
            ("config_wgSQLiteDataDir", data.as_str()),
            ("sqlite_wgSQLiteDataDir", data.as_str()),
            ("sqlite_wgDBname", "wiki"),
            ("config_wgSitename", "Caravanserai"),
            ("config__NamespaceType", "site-name"),
            ("config__AdminName", "Keeper"),
            ("config__AdminPassword", PASSWORD),
            ("config__AdminPasswordConfirm", PASSWORD),
            ("config__SkipOptional", "skip"),
        ];
        let mut page = self.editor.get("/mw-config/index.php");
        let mut seen = Vec::new();
        while !page.location.contains("page=Complete") {
            seen.push(page.location.clone());
            assert!(
                seen.len() < 12,
                "the installer does not reach its last page: {seen:?} {:?}\n{}",
                page.form("page="),
                page.excerpt()
            );
            let mut form = page.form("page=");
            for (name, value) in answers {
                if page.text().contains(&format!("name=\"{name}\"")) {
                    form = form.set(name, value);
                }
            }
            page = self.editor.submit(&form.set("submit-continue", "Continue"));
        }
        page.shows("Congratulations");
        let settings = self
            .editor
            .get("/mw-config/index.php?page=Complete&localsettings=1");
        let ours = "\n$wgEnableUploads = true; $wgUseImageMagick = false; $wgPingback = false;\n$wgArticlePath = '/index.php/$1'; $wgFileExtensions[] = 'jpg';\n";
        self.scratch
            .write("site/LocalSettings.php", settings.text() + ours);
        let home = self.editor.get("/");
        home.shows("MediaWiki has been installed")
            .shows("Caravanserai");
        assert_eq!(home.location, "/index.php/Main_Page");
    }

    fn log_in(&mut self) {
        let wrong = [("wpName", "Keeper"), ("wpPassword", "wrong")];
        self.editor
            .fill("/index.php/Special:UserLogin", "userlogin", &wrong)
            .shows("Incorrect username or password");
        let right = [("wpName", "Keeper"), ("wpPassword", PASSWORD)];
        let page = self
            .editor
            .fill("/index.php/Special:UserLogin", "userlogin", &right);
        page.shows("Log out").shows("Keeper");
        assert_eq!(page.location, "/index.php/Main_Page");
        // Scripts and styles come from load.php, with tags.
        let text = page.text();
        let styles = attributes(&text, "link", "href")
            .into_iter()
            .find(|link| link.contains("/load.php"))
            .expect("the page has styles");
        let styles = self.editor.get(&styles).response;
        assert!(
            styles
                .header("Content-Type")
                .is_some_and(|kind| kind.starts_with("text/css")),
            "{:?}",
            styles.head
        );
        assert!(
            styles.header("ETag").is_some() && styles.body.len() > 5_000,
            "{:?}",
            styles.head
        );
        let startup = self
            .editor
            .get("/load.php?lang=en&modules=startup&only=scripts&raw=1&skin=vector");
        startup.shows("mw.loader");
    }

    /// Writes a page with the edit form and returns the page that the wiki shows afterwards.
    fn save(&mut self, title: &str, text: &str, summary: &str) -> Page {
        let address = format!("/index.php?title={}&action=edit", percent_encode(title));
        let saved = self.editor.fill(
            &address,
            "editform",
            &[
                ("wpTextbox1", text),
                ("wpSummary", summary),
                ("wpSave", "Save page"),
            ],
        );
        assert!(
            saved.location.starts_with("/index.php/"),
            "{}: {}",
            saved.location,
            saved.excerpt()
        );
        saved
    }

    fn write_a_page(&mut self) {
        let preview = [
            ("wpTextbox1", "''A preview only''"),
            ("wpPreview", "Show preview"),
        ];
        self.editor
            .fill(
                "/index.php?title=%C3%89l%C3%A9phant&action=edit",
                "editform",
                &preview,
            )
            .shows("<i>A preview only</i>");
        let page = self.save(
            "Éléphant",
            "== Habits ==\nThey '''remember''' [[caravan]]s & wells.",
            "first",
        );
        page.shows("<b>remember</b>")
            .shows("Caravan (page does not exist)");
        assert_eq!(page.location, "/index.php/%C3%89l%C3%A9phant");
        let mut reader = Browser::new(self.server.address());
        reader
            .get("/index.php/%C3%89l%C3%A9phant")
            .shows("<b>remember</b>");
        assert_eq!(reader.get("/index.php/No_such_page").status(), 404);
        // A conditional request with the page's date gets a 304, because the page has not changed since.
        let seen = reader.get("/index.php/%C3%89l%C3%A9phant").response;
        let date = seen
            .header("Last-Modified")
            .expect("pages have a date")
            .to_owned();
        reader.headers.push(("If-Modified-Since".into(), date));
        let again = reader.request("GET", "/index.php/%C3%89l%C3%A9phant", None);
        assert_eq!((again.status(), again.body.len()), (304, 0));
    }

    fn upload_a_picture(&mut self) {
        let form = self
            .editor
            .get("/index.php/Special:Upload")
            .form("mw-upload-form");
        let form = form
            .set("wpDestFile", "Elephant.jpg")
            .set("wpUploadDescription", "Drawn for a test")
            .set("wpUpload", "Upload file");
        let picture = File {
            field: "wpUploadFile".into(),
            name: "elephant.jpg".into(),
            kind: "image/jpeg".into(),
            bytes: image::jpeg(1600, 800),
        };
        let page = self.editor.upload(&form, &[picture]);
        page.shows("Drawn for a test").shows("1,600 × 800 pixels");
        assert_eq!(page.location, "/index.php/File:Elephant.jpg");
        let page = self.save(
            "Gallery",
            "[[File:Elephant.jpg|thumb|320px|In full]]",
            "with a picture",
        );
        let thumb = attributes(&page.text(), "img", "src")
            .into_iter()
            .find(|source| source.contains("320px-Elephant.jpg"))
            .expect("the page shows the thumbnail");
        let file = get(self.server.address(), &thumb);
        assert_eq!(file.header("Content-Type"), Some("image/jpeg"), "{thumb}");
        assert_eq!(image::dimensions(&file.body), (320, 160));
        let by_script = get(self.server.address(), "/thumb.php?f=Elephant.jpg&width=200");
        assert_eq!(
            (by_script.status(), image::dimensions(&by_script.body)),
            (200, (200, 100))
        );
        // A disguised script is refused.
        let form = self
            .editor
            .get("/index.php/Special:Upload")
            .form("mw-upload-form")
            .set("wpDestFile", "Evil.jpg")
            .set("wpUpload", "Upload file");
        let script = File {
            field: "wpUploadFile".into(),
            name: "evil.jpg".into(),
            kind: "image/jpeg".into(),
            bytes: b"<?php echo 1; ?>".to_vec(),
        };
        let refused = self.editor.upload(&form, &[script]);
        assert!(
            refused.location.contains("Special:Upload"),
            "{}",
            refused.location
        );
        assert_eq!(self.editor.get("/index.php/File:Evil.jpg").status(), 404);
    }

    fn edit_again_and_compare(&mut self) {
        self.save(
            "Éléphant",
            "== Habits ==\nThey '''forget nothing''' about wells.",
            "second",
        )
        .shows("<b>forget nothing</b>");
        let history = self
            .editor
            .get("/index.php?title=%C3%89l%C3%A9phant&action=history");
        history.shows("first").shows("second");
        self.editor
            .get("/index.php?title=%C3%89l%C3%A9phant&diff=cur&oldid=prev")
            .shows("forget nothing")
            .shows("remember")
            .shows("diff-deletedline");
        let raw = self
            .editor
            .get("/index.php?title=%C3%89l%C3%A9phant&action=raw");
        assert_eq!(
            raw.text(),
            "== Habits ==\nThey '''forget nothing''' about wells."
        );
    }

    fn search(&mut self) {
        self.editor
            .get("/index.php?search=wells&fulltext=1")
            .shows("Éléphant")
            .shows("searchmatch");
        let found = self
            .editor
            .get("/index.php?search=%C3%89l%C3%A9phant&go=Go");
        assert_eq!(found.location, "/index.php/%C3%89l%C3%A9phant");
    }

    /// Uses api.php with a token, and rest.php, whose routes are in PATH_INFO.
    fn programs_use_the_interface(&mut self) {
        let token = self
            .editor
            .get("/api.php?action=query&meta=tokens&format=json")
            .response
            .json();
        let token = token["query"]["tokens"]["csrftoken"]
            .as_str()
            .expect("a token")
            .to_owned();
        let edit = Form {
            action: "/api.php".into(),
            method: "POST".into(),
            ..Form::default()
        }
        .set("action", "edit")
        .set("format", "json")
        .set("title", "Made by a program")
        .set("text", "Beep & boop.")
        .set("token", token);
        let answer = self.editor.submit(&edit).response.json();
        assert_eq!(answer["edit"]["result"], "Success", "{answer}");
        let answer = self
            .editor
            .submit(&edit.set("token", "+\\"))
            .response
            .json();
        assert_eq!(answer["error"]["code"], "badtoken", "{answer}");
        let mut reader = Browser::new(self.server.address());
        let parsed = reader
            .get("/api.php?action=parse&page=Made_by_a_program&format=json&formatversion=2")
            .response
            .json();
        assert!(
            parsed["parse"]["text"]
                .as_str()
                .is_some_and(|text| text.contains("Beep &amp; boop.")),
            "{parsed}"
        );
        let rest = reader
            .get("/rest.php/v1/page/Made_by_a_program")
            .response
            .json();
        assert_eq!(rest["source"], "Beep & boop.", "{rest}");
        let missing = reader.request("GET", "/rest.php/v1/page/Nothing%20here", None);
        assert_eq!(
            (missing.status(), missing.header("Content-Type")),
            (404, Some("application/json"))
        );
        let feed = reader.get("/index.php?title=Special:RecentChanges&feed=atom");
        feed.shows("Made by a program");
    }

    fn log_out(&mut self) {
        let page = self
            .editor
            .fill("/index.php/Special:UserLogout", "Special:UserLogout", &[]);
        page.shows("You are now logged out");
        self.editor
            .get("/index.php/Main_Page")
            .shows("Log in")
            .hides("Keeper");
        let form = self.editor.get("/index.php/Special:Upload");
        assert!(form.text().contains("log in"), "{}", form.excerpt());
    }
}
