//! A client that requests files which an application closes with `.htaccess`: drafts, sessions, logs, uploads. The
//! bound is the same everywhere: the secret is in no response, and an uploaded script does not run.

use std::os::unix::fs::PermissionsExt;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{self, Response};
use howdah_tests::rig::howdah_program;

/// The content of each file that must not be seen.
const SECRET: &str = "TOP SECRET";
/// The source of an uploaded script. Its output never appears in a response.
const RAN: &str = "<?php echo 'UPLOADED-', 'CODE';";

fn ask(fixture: &Fixture, target: &str) -> Response {
    fixture.get(target)
}

/// Checks that the request is refused with this name, and that the response contains nothing of the file.
fn assert_closed(fixture: &Fixture, target: &str, status: u16, name: &str) {
    let answer = ask(fixture, target);
    let text = answer.text();
    assert!(
        !text.contains(SECRET) && !text.contains("UPLOADED-CODE") && !text.contains("<?php"),
        "{target}: {text}\n{}",
        fixture.howdah.process.log()
    );
    assert_eq!(
        (answer.status(), answer.header("Howdah-Error")),
        (status, Some(name)),
        "{target}\n{}",
        fixture.howdah.process.log()
    );
}

/// Adds one directory for each of these ways to close a directory.
fn closed(builder: Builder, ways: &[(&str, &str)]) -> Builder {
    ways.iter().fold(builder, |builder, (directory, text)| {
        builder
            .file(&format!("{directory}/.htaccess"), text)
            .file(&format!("{directory}/secret.txt"), SECRET)
            .script(&format!("{directory}/run.php"), RAN)
    })
}

#[test]
fn no_way_to_close_a_directory_is_read_as_a_grant() {
    let ways = [
        (
            "versions",
            "<IfVersion >= 2.4>\nRequire all denied\n</IfVersion>\n<IfVersion < 2.4>\nAllow from none\nDeny from all\n</IfVersion>",
        ),
        ("none", "Deny from all\nAllow from none"),
        (
            "password",
            "AuthType Basic\nAuthName x\nAuthUserFile /none\nRequire valid-user",
        ),
        ("network", "Require ip 192.0.2.0/24"),
        ("host", "Require host example.org"),
        (
            "listed",
            "Order deny,allow\nDeny from all\nAllow from 192.0.2.1",
        ),
        ("order", "Order allow,deny"),
        ("files", "<Files \"*\">\nRequire all denied\n</Files>"),
        ("match", "<FilesMatch \".*\">\nDeny from all\n</FilesMatch>"),
        (
            "limit",
            "<Limit GET POST HEAD>\nRequire all denied\n</Limit>",
        ),
        (
            "container",
            "<RequireAll>\nRequire all denied\n</RequireAll>",
        ),
        ("rewrite", "RewriteEngine On\nRewriteRule ^ - [F]"),
        ("condition", "<If \"true\">\nRequire all denied\n</If>"),
        ("unknown", "TotallyNewProtection on"),
        ("half", "<Files x>\nRequire all granted\n"),
        ("a/b/c/d/e/f/deep", "Require all denied"),
    ];
    let fixture = closed(Fixture::named("attack-htaccess"), &ways).start();
    for (directory, _) in ways {
        let (status, name) = match directory {
            "unknown" | "half" => (500, "HtaccessNotUnderstood"),
            "password" => (401, "HtaccessPassword"),
            _ => (403, "HtaccessDenied"),
        };
        for file in ["secret.txt", "run.php", "run.php/info", "none.txt", ""] {
            assert_closed(&fixture, &format!("/{directory}/{file}"), status, name);
        }
    }
    fixture.still_serves();
}

#[test]
fn statuses_are_those_in_the_file() {
    let ways = [
        ("gone", "RewriteEngine On\nRewriteRule ^ - [G]"),
        ("missing", "RewriteEngine On\nRewriteRule . - [R=404,L]"),
        ("alias", "RedirectMatch 404 ^/alias/"),
    ];
    let fixture = closed(Fixture::named("attack-htaccess-status"), &ways).start();
    for (directory, status) in [("gone", 410), ("missing", 404), ("alias", 404)] {
        let target = format!("/{directory}/secret.txt");
        assert_closed(&fixture, &target, status, "HtaccessDenied");
    }
}

#[test]
fn files_that_a_root_htaccess_hides_are_not_sent_and_the_site_is_up() {
    let root = "RewriteEngine On\n\
        RewriteCond %{REMOTE_ADDR} ^192\\.0\\.2\\.\n\
        RewriteRule ^ - [F]\n\
        RewriteCond %{HTTP_USER_AGENT} evilbot\n\
        RewriteRule ^ - [F]\n\
        RewriteRule ^(?:config|logs)/ - [F]\n\
        RewriteRule ^\\.(?!well-known) - [R=404]\n\
        RewriteRule ^content/(.*) index.php [L]\n\
        RewriteRule ^site/(.*) index.php [L]\n\
        RewriteCond %{REQUEST_FILENAME} !-f\n\
        RewriteCond %{REQUEST_FILENAME} !-d\n\
        RewriteRule ^ index.php [L]\n\
        Order allow,deny\nAllow from all\nDeny from 192.0.2.7\n\
        <FilesMatch \"\\.(ini|log)$\">\nRequire all denied\n</FilesMatch>\n";
    let fixture = Fixture::named("attack-htaccess-root")
        .script(
            "index.php",
            "<?php http_response_code(404); echo 'page of the application';",
        )
        .file(".htaccess", root)
        .file("config/db.txt", SECRET)
        .file("logs/x/errors.txt", SECRET)
        .file("content/draft.txt", SECRET)
        .script("site/x.php", RAN)
        .file("debug.log", SECRET)
        .file("style.css", "css")
        .start();
    assert_closed(&fixture, "/config/db.txt", 403, "HtaccessDenied");
    assert_closed(&fixture, "/logs/x/errors.txt", 403, "HtaccessDenied");
    assert_closed(&fixture, "/debug.log", 403, "HtaccessDenied");
    for hidden in ["/content/draft.txt", "/site/x.php", "/site/x.php/y"] {
        let answer = ask(&fixture, hidden);
        assert_eq!(answer.text(), "page of the application", "{hidden}");
    }
    assert_eq!(ask(&fixture, "/style.css").text(), "css");
    let bot = format!(
        "GET /style.css HTTP/1.1\r\nHost: {}\r\nUser-Agent: evilbot\r\nConnection: close\r\n\r\n",
        fixture.address()
    );
    let bot = http::exchange(fixture.address(), bot.as_bytes()).unwrap();
    assert_eq!(bot.status(), 403);
    fixture.still_serves();
    // The file came with the application, so Howdah applies it as with `htaccess = "on"`, and every line has an effect.
    let log = fixture.howdah.process.log();
    assert!(log.contains("htaccess = \"on\""), "{log}");
    assert!(!log.contains("HtaccessNotExact"), "{log}");
}

#[test]
fn uploaded_script_does_not_run_where_php_is_off() {
    let ways = [
        (
            "engine",
            "<IfModule mod_php.c>\nphp_flag engine off\n</IfModule>",
        ),
        (
            "handler",
            "SetHandler My_Security_Do_Not_Remove\n<Files *>\nSetHandler My_Security_Do_Not_Remove\n</Files>",
        ),
        ("removed", "RemoveHandler .php .phtml\nRemoveType .php"),
        ("typed", "AddType text/plain .php .phtml"),
        (
            "named",
            "<FilesMatch \"\\.ph(p[0-9]?|tml|ar)$\">\nDeny from all\n</FilesMatch>",
        ),
    ];
    let fixture = closed(Fixture::named("attack-htaccess-upload"), &ways).start();
    for (directory, _) in ways {
        let name = match directory {
            "named" => "HtaccessDenied",
            _ => "HtaccessNoScripts",
        };
        for target in ["run.php", "run.php/x.jpg"] {
            assert_closed(&fixture, &format!("/{directory}/{target}"), 403, name);
        }
        let picture = ask(&fixture, &format!("/{directory}/secret.txt"));
        assert_eq!(
            picture.text(),
            SECRET,
            "other files in {directory} should be sent"
        );
    }
}

#[test]
fn closing_counts_for_the_next_request_whoever_wrote_it_and_however_deep() {
    let fixture = Fixture::named("attack-htaccess-later")
        .script(
            "install.php",
            "<?php mkdir('data'); file_put_contents('data/users.json', 'TOP SECRET'); file_put_contents('data/.htaccess', \"Require all denied\\n\"); echo 'installed';",
        )
        .file("late/x.txt", SECRET)
        .file("late/more/and/more/x.txt", SECRET)
        .start();
    assert_eq!(ask(&fixture, "/late/x.txt").text(), SECRET);
    assert_eq!(ask(&fixture, "/install.php").text(), "installed");
    assert_closed(&fixture, "/data/users.json", 403, "HtaccessDenied");
    let file = fixture.path("site/late/.htaccess");
    for _ in 0..50 {
        std::fs::write(&file, "Require all denied").unwrap();
        assert_closed(&fixture, "/late/x.txt", 403, "HtaccessDenied");
        assert_closed(&fixture, "/late/more/and/more/x.txt", 403, "HtaccessDenied");
        // The file may change twice within the same tick of the file system's clock.
        std::fs::write(&file, "Require all granted").unwrap();
        assert_eq!(ask(&fixture, "/late/x.txt").text(), SECRET);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(ask(&fixture, "/late/more/and/more/x.txt").text(), SECRET);
    }
}

#[test]
fn many_directories_open_no_closed_file() {
    let mut builder = Fixture::named("attack-htaccess-many")
        .file("zz/.htaccess", "Require all denied")
        .file("zz/secret.txt", SECRET)
        .file("aa/.htaccess", "Require all denied")
        .file("aa/secret.txt", SECRET);
    for day in 0..4500 {
        builder = builder.file(&format!("photos/{day}/.keep"), "");
    }
    let fixture = builder.start();
    assert_closed(&fixture, "/aa/secret.txt", 403, "HtaccessDenied");
    assert_closed(&fixture, "/zz/secret.txt", 403, "HtaccessDenied");
}

#[test]
fn configuration_file_changes_nothing_and_off_is_said() {
    let site = |lines: &str, name: &str| {
        Fixture::named(name)
            .file("up/.htaccess", "Require all denied")
            .file("up/secret.txt", SECRET)
            .script("up/index.php", "<?php echo 'index';")
            .script(
                "accel.php",
                "<?php header('X-Accel-Redirect: ' . $_GET['f']);",
            )
            .file("shut/.htaccess", "Require all denied")
            .file("shut/error.html", format!("page {SECRET}"))
            .site(lines)
            .start()
    };
    let fixture = site(
        "front_controller = \"/up/index.php\"\n[site.error_pages]\n404 = \"shut/error.html\"",
        "attack-htaccess-config",
    );
    assert_closed(&fixture, "/up/secret.txt", 403, "HtaccessDenied");
    assert_closed(&fixture, "/up/", 403, "HtaccessDenied");
    assert_closed(
        &fixture,
        "/accel.php?f=/up/secret.txt",
        403,
        "HtaccessDenied",
    );
    // The front controller and the error page are also in closed directories.
    assert_closed(&fixture, "/anything", 403, "HtaccessDenied");
    let off = site("htaccess = \"off\"", "attack-htaccess-off");
    assert_eq!(ask(&off, "/up/secret.txt").text(), SECRET);
}

#[test]
fn closing_closes_stored_pages() {
    let fixture = Fixture::named("attack-htaccess-cache")
        .script("shop/page.php", "<?php echo 'TOP SECRET price list';")
        .site("cache = \"on\"")
        .start();
    fixture.wait("a hit", |fixture| {
        let answer = ask(fixture, "/shop/page.php");
        let status = answer.header("Cache-Status").unwrap_or_default();
        status.contains("hit")
    });
    fixture.write("site/shop/.htaccess", "Require all denied");
    assert_closed(&fixture, "/shop/page.php", 403, "HtaccessDenied");
    std::fs::remove_file(fixture.path("site/shop/.htaccess")).unwrap();
    assert_eq!(
        ask(&fixture, "/shop/page.php").text(),
        "TOP SECRET price list"
    );
}

#[test]
fn files_that_decide_are_asked_for_stored_pages() {
    let fixture = Fixture::named("attack-htaccess-live-cache")
        .script("shop/page.php", "<?php echo 'TOP SECRET price list';")
        .site("cache = \"on\"\nhtaccess = \"on\"")
        .start();
    let hit = |fixture: &Fixture| {
        let answer = ask(fixture, "/shop/page.php");
        let status = answer.header("Cache-Status").unwrap_or_default();
        status.contains("hit")
    };
    fixture.wait("a hit", hit);
    let closed = |text: &str, status: u16, name: &str| {
        fixture.write("site/shop/.htaccess", text);
        assert_closed(&fixture, "/shop/page.php", status, name);
        std::fs::remove_file(fixture.path("site/shop/.htaccess")).unwrap();
        assert_eq!(
            ask(&fixture, "/shop/page.php").text(),
            "TOP SECRET price list"
        );
    };
    closed("Require all denied", 403, "HtaccessDenied");
    closed("Require ip 192.0.2.1", 403, "HtaccessDenied");
    closed("Nonsense", 500, "HtaccessNotUnderstood");
    closed(
        "RewriteEngine On\nRewriteRule (.*) x/$1",
        500,
        "HtaccessLoop",
    );
    // Headers are also added to pages that were stored before.
    fixture.write("site/shop/.htaccess", "Header set X-New 1");
    assert_eq!(ask(&fixture, "/shop/page.php").header("X-New"), Some("1"));
    // A page whose rules depend on the client's headers is not shared with other clients.
    let by_cookie = "RewriteEngine On\nRewriteCond %{HTTP_COOKIE} vip\nRewriteRule . - [F]";
    fixture.write("site/shop/.htaccess", by_cookie);
    for _ in 0..3 {
        assert!(!hit(&fixture));
    }
}

#[test]
fn strange_file_closes() {
    let rules = |line: &str, times: usize| format!("RewriteEngine On\n{}", line.repeat(times));
    let fixture = Fixture::named("attack-htaccess-strange")
        .file("long/.htaccess", "# padding\n".repeat(1 << 20))
        .file("long/secret.txt", SECRET)
        .file("directory/.htaccess/x", "")
        .file("directory/secret.txt", SECRET)
        .file("loop/secret.txt", SECRET)
        .file("dangling/secret.txt", SECRET)
        .file("unreadable/.htaccess", "Require all granted")
        .file("unreadable/secret.txt", SECRET)
        .file("marked/.htaccess", "\u{feff}Require all denied")
        .file("marked/secret.txt", SECRET)
        .file("crlf/.htaccess", "Require \\\r\nall denied\r\n")
        .file("crlf/secret.txt", SECRET)
        .file(
            "catastrophe/.htaccess",
            "RewriteEngine On\nRewriteRule ^(a*)*(?!b)\\.txt$ - [F]",
        )
        .file(&format!("catastrophe/{}.txt", "a".repeat(60)), SECRET)
        // Without limits, these small files would cost the front gigabytes of memory, seconds of CPU time, or a thread
        // forever.
        .file("growing/.htaccess", rules("RewriteRule (.*) $1$1\n", 40))
        .file("growing/secret.txt", SECRET)
        .file(
            "heavy/.htaccess",
            rules("RewriteRule (?:(?:[a-z]{99}){60}){5}x - [F]\n", 20_000),
        )
        .file("heavy/secret.txt", SECRET)
        .file("again/.htaccess", rules("RewriteRule ^ - [N]\n", 1))
        .file("again/secret.txt", SECRET)
        .file(
            "skip/.htaccess",
            rules(&format!("RewriteRule ^ - [S={}]\n", usize::MAX), 1),
        )
        .file("skip/page.txt", "sent")
        .start();
    std::os::unix::fs::symlink(".htaccess", fixture.path("site/loop/.htaccess")).unwrap();
    let locked = fixture.path("site/unreadable/.htaccess");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o000)).unwrap();
    for (directory, status, name) in [
        ("long", 500, "HtaccessNotUnderstood"),
        ("directory", 403, "HtaccessNotUnderstood"),
        ("loop", 403, "HtaccessNotUnderstood"),
        ("marked", 500, "HtaccessNotUnderstood"),
        ("heavy", 500, "HtaccessNotUnderstood"),
        ("crlf", 403, "HtaccessDenied"),
        ("growing", 500, "HtaccessLoop"),
        ("again", 500, "HtaccessLoop"),
    ] {
        let target = format!("/{directory}/secret.txt");
        assert_closed(&fixture, &target, status, name);
    }
    assert_eq!(ask(&fixture, "/skip/page.txt").text(), "sent");
    let explosive = format!("/catastrophe/{}.txt", "a".repeat(60));
    assert_closed(&fixture, &explosive, 403, "HtaccessDenied");
    // A server that runs as root can read the file. For any other server, the file system refuses it, so the directory
    // is closed.
    let answer = ask(&fixture, "/unreadable/secret.txt");
    let may_read = std::fs::read(&locked).is_ok();
    assert!(may_read || !answer.text().contains(SECRET));
    fixture.still_serves();
}

#[test]
fn lines_without_effect_are_named_at_the_start_by_check_and_once_in_the_log() {
    let fixture = Fixture::named("attack-htaccess-report")
        .file(
            ".htaccess",
            "Order allow,deny\nAllow from all\nDeny from example.org\n",
        )
        .file("staff/.htaccess", "AuthType Basic\nRequire ldap-user ann\n")
        .file("staff/secret.txt", SECRET)
        .config("listen = \"127.0.0.1:0\"")
        .site("pool = \"www\"")
        .pool("max_children = 2")
        .start();
    let lines = [
        "site/.htaccess:3: `Deny from example.org`: host names are not looked up",
        "staff/.htaccess:2: `Require ldap-user ann`: is not supported, so Howdah treats it as a requirement that no client meets",
    ];
    let log = fixture.howdah.process.log();
    for line in lines {
        assert!(
            log.contains(line),
            "the log of the start has no {line}:\n{log}"
        );
    }
    let config = fixture.howdah.directory().join("howdah.toml");
    let say = |words: &[&str]| {
        let output = std::process::Command::new(howdah_program())
            .args(words)
            .arg("--config")
            .arg(&config)
            .output()
            .expect("howdah can be started");
        let [out, err] = [output.stdout, output.stderr].map(|b| String::from_utf8(b).unwrap());
        out + &err
    };
    let said = say(&["check"]);
    for line in lines {
        assert!(
            said.contains(line),
            "`howdah check` does not report {line}:\n{said}"
        );
    }
    let route = say(&["explain", "/staff/secret.txt"]);
    assert!(
        route.contains("403 HtaccessDenied") && route.contains("staff/.htaccess:2"),
        "{route}"
    );
    for _ in 0..3 {
        assert_closed(&fixture, "/staff/secret.txt", 403, "HtaccessDenied");
    }
    fixture.write("site/late/.htaccess", "Require host example.org");
    for _ in 0..3 {
        assert_closed(&fixture, "/late/x", 403, "HtaccessDenied");
    }
    let log = fixture.wait_for_log(&["HtaccessNotExact", "late/.htaccess:1"]);
    let met = log.lines().filter(|line| line.contains("late/.htaccess:1"));
    assert_eq!(met.count(), 1, "{log}");
}
