//! MediaWiki and the demo guestbook with the page cache on, used by several people at once: anonymous readers, and two
//! logged-in users, one of whom writes. For WordPress see `wordpress_cache.rs`.

use std::process::Command;

use howdah_machine::php;
use howdah_tests::browser::Browser;
use howdah_tests::readers::{CachedApplication, Reader};
use howdah_tests::rig::{Howdah, Server, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository, run};

fn serve(mut site: Site, words: &[&str]) -> Howdah {
    site.howdah_arguments = words.iter().map(|&word| word.to_owned()).collect();
    Howdah::start(&site.children(4))
}

#[test]
fn readers_of_the_guestbook_get_no_private_and_no_stale_page() {
    let scratch = Scratch::new("guestbook-cached");
    copy_tree(&repository().join("demo"), &scratch.join("site"));
    let data = scratch.writable_dir("data");
    run(Command::new(php::expand_placeholders("php{php}"))
        .arg(scratch.join("site/seed.php"))
        .env("DEMO_DATA", &data));
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(&data));
    let site = Site::new(scratch.join("site/public"))
        .project(scratch.join("site"))
        .environment("DEMO_DATA", data.display().to_string());
    let server = serve(site, &["--cache", "on"]);
    let host = server.address().to_string();
    let drive = CachedApplication {
        address: server.address(),
        host: &host,
        readers: &[
            Reader {
                path: "/entry/3",
                lines: "",
            },
            Reader {
                path: "/entry/3?utm_source=letter",
                lines: "Cookie: _ga=1\r\n",
            },
            Reader {
                path: "/entry/3",
                lines: "X-Forwarded-Host: evil.example\r\nAccept-Encoding: gzip\r\n",
            },
        ],
        mark: "Edition ",
        secrets: &[
            "Log out",
            "keeper",
            "name=\"token\"",
            "class=\"notice\"",
            "evil.example",
        ],
    };
    let mut keeper = log_in(&server);
    let mut other = log_in(&server);
    let mut edit = move |edition: u64| {
        let text = format!("Edition {edition}.");
        keeper
            .fill("/entry/3/edit", "/edit", &[("message", &text)])
            .shows(&text)
            .shows("The entry has been changed.")
            .shows("Log out keeper");
    };
    edit(1);
    // This visitor has a session but has not logged in; the session's notices and tokens are personal.
    let mut visitor = Browser::new(server.address());
    visitor.get("/sign").shows("Sign the book");
    let users: Vec<Box<dyn FnMut() + Send>> = vec![
        Box::new(move || {
            let page = other.get("/entry/3");
            page.shows("Log out keeper").shows("Edition ");
            assert_eq!(page.response.header("X-Cache"), Some("PASS"));
        }),
        Box::new(move || {
            let page = visitor.get("/entry/3");
            page.hides("Log out").hides("The entry has been changed");
            assert_eq!(page.response.header("X-Cache"), Some("PASS"));
        }),
    ];
    drive.run(users, edit);
}

fn log_in(server: &Howdah) -> Browser {
    let mut keeper = Browser::new(server.address());
    let right = [("name", "keeper"), ("password", "elephant")];
    keeper
        .fill("/login", "/login", &right)
        .shows("Welcome, keeper.");
    keeper
}

/// Copies the package as in `mediawiki.rs`: without the extensions, the links into /var/lib, and the translations.
const COPY: &str = r#"cd "$0" && find . \( -path ./extensions-core -o -type l \) -prune -o \
    -type f ! \( -path '*/i18n/*' -name '*.json' ! -name en.json \) -print0 \
    | tar --null -T - -cf - | tar -xf - -C "$1""#;

const SETTINGS: &str = r#"
$wgServer = 'http://' . ($_SERVER['HTTP_HOST'] ?? 'localhost');
$wgArticlePath = '/index.php/$1'; $wgPingback = false; $wgUseImageMagick = false;
// The administrator has to set this, because otherwise every page is private.
$wgUseCdn = true; $wgCdnMaxAge = 600;
"#;

#[test]
fn readers_of_mediawiki_get_no_private_and_no_stale_page() {
    let scratch = Scratch::new("mediawiki-cached");
    let root = scratch.writable_dir("site");
    run(Command::new("sh")
        .args(["-c", COPY, "/usr/share/mediawiki"])
        .arg(&root));
    for directory in ["site/images", "site/cache", "site/extensions", "data"] {
        scratch.writable_dir(directory);
    }
    let maintenance = |script: &str| {
        let mut command = Command::new(php::expand_placeholders("php{php}"));
        command.arg(root.join("maintenance").join(script));
        command
    };
    run(maintenance("install.php")
        .args([
            "--dbtype",
            "sqlite",
            "--dbname",
            "wiki",
            "--server",
            "http://localhost",
        ])
        .args([
            "--scriptpath",
            "",
            "--pass",
            "seven wise masters",
            "--dbpath",
        ])
        .arg(scratch.join("data"))
        .args(["Caravanserai", "Keeper"]));
    let settings = std::fs::read_to_string(root.join("LocalSettings.php"))
        .expect("the installer wrote LocalSettings.php");
    scratch.write("site/LocalSettings.php", settings + SETTINGS);
    run(maintenance("createAndPromote.php").args(["Guest", "eight wise masters"]));
    run(Command::new("chmod")
        .args(["-R", "a+rwX"])
        .arg(scratch.join("data")));
    let server = serve(
        Site::new(&root).ini("display_errors", "Off"),
        &["--cache", "on"],
    );
    let host = server.address().to_string();
    let drive = CachedApplication {
        address: server.address(),
        host: &host,
        readers: &[
            Reader {
                path: "/index.php/Elephant",
                lines: "",
            },
            Reader {
                path: "/index.php/Elephant?utm_source=x",
                lines: "Cookie: _pk_id=1\r\n",
            },
            Reader {
                path: "/index.php/Elephant",
                lines: "User-Agent: somebody\r\nX-Forwarded-Host: evil.example\r\n",
            },
        ],
        mark: "Edition ",
        secrets: &[
            "Keeper</",
            "User:Guest",
            "Log out",
            "evil.example",
            "pt-logout",
        ],
    };
    let mut keeper = enter(&server, "Keeper", "seven wise masters");
    let mut guest = enter(&server, "Guest", "eight wise masters");
    let mut edit = move |edition: u64| {
        let text = format!("Edition {edition}.");
        keeper
            .fill(
                "/index.php?title=Elephant&action=edit",
                "editform",
                &[
                    ("wpTextbox1", text.as_str()),
                    ("wpSummary", "another"),
                    ("wpSave", "Save page"),
                ],
            )
            .shows(&text)
            .shows("User:Keeper");
    };
    edit(1);
    let users: Vec<Box<dyn FnMut() + Send>> = vec![Box::new(move || {
        let page = guest.get("/index.php/Elephant");
        page.shows("User:Guest")
            .hides("User:Keeper")
            .shows("Edition ");
        assert_eq!(page.response.header("X-Cache"), Some("PASS"));
    })];
    drive.run(users, edit);
}

fn enter(server: &Howdah, name: &str, password: &str) -> Browser {
    let mut browser = Browser::new(server.address());
    let right = [("wpName", name), ("wpPassword", password)];
    browser
        .fill("/index.php/Special:UserLogin", "userlogin", &right)
        .shows("Log out")
        .shows(name);
    browser
}
