//! Requests and their routes, as tables.

use std::fs;

use howdah_http::message::ResponseHead;

use super::super::condition::RuleConditions;
use super::super::config::{
    FrontController, HeaderEdit, RuleAction, SiteConfig, SiteRule, TryFile,
};
use super::super::pattern::PathPattern;
use super::super::template::RuleTemplate;
use super::*;
use crate::testing::request;

struct RouterFixture {
    _dir: tempfile::TempDir,
    site: Site,
}

const FILES: &[&str] = &[
    "index.php",
    "app.php",
    "a.html",
    "style.css",
    "d/index.html",
    "d/x.php",
    "e/y.txt",
    "s/index.php",
    ".env",
    ".git/config",
    "backup.sql",
    "a b/index.html",
    "x.php.bak",
    "form.html",
    ".well-known/security.txt",
    "wiki/real.png",
    "cache/page.html",
    "p.jpg",
];

fn fixture(change: impl FnOnce(&mut SiteConfig)) -> RouterFixture {
    let dir = tempfile::tempdir().unwrap();
    for file in FILES {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let mut config = SiteConfig::for_tests("test", dir.path());
    change(&mut config);
    let site = Site::new(config, 0).unwrap();
    RouterFixture { _dir: dir, site }
}

fn show(action: &RouteAction) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match action {
        RouteAction::Static(plan) => format!("file {}", text(&plan.relative)),
        RouteAction::Proxy(target) => format!("proxy {}", text(&target.path)),
        RouteAction::Script(target) => {
            let mut line = format!("script {}", text(target.script.script_name()));
            if !target.script.path_info().is_empty() {
                line += &format!(" info {}", text(target.script.path_info()));
            }
            if let Some(query) = &target.query {
                line += &format!(" query {}", text(query));
            }
            if target.redirected {
                line += " redirected";
            }
            line
        }
        RouteAction::Redirect { status, location } => format!("{status} {}", text(location)),
        RouteAction::Return { status, body, .. } => format!("return {status} {body}"),
        RouteAction::Refused {
            status,
            refusal,
            allow,
        } => {
            assert_eq!(allow.is_some(), *status == 405);
            format!("{status} {refusal}")
        }
        RouteAction::Options { allow } => format!("options {allow}"),
    }
}

impl RouterFixture {
    fn route(&self, line: &str) -> Route {
        let (method, target) = line.split_once(' ').unwrap_or(("GET", line));
        self.site
            .route(&request(method, target, &[("Host", "site.example")]))
    }

    fn check(&self, table: &[(&str, &str)]) {
        for (line, expected) in table {
            assert_eq!(show(&self.route(line).action), *expected, "{line}");
        }
    }
}

fn rule(pattern: PathPattern, action: RuleAction) -> SiteRule {
    SiteRule::new(pattern, action)
}

fn template(text: &str) -> RuleTemplate {
    RuleTemplate::parse(text).unwrap()
}

fn front(path_info: bool) -> Option<FrontController> {
    Some(FrontController {
        script: "/index.php".into(),
        path_info,
    })
}

#[test]
fn files_scripts_and_directories() {
    fixture(|_| {}).check(&[
        ("/", "script /index.php"),
        ("/?x=1", "script /index.php"),
        ("/a.html", "file a.html"),
        ("/d/", "file d/index.html"),
        ("/d", "301 /d/"),
        ("/d?q=1&r=%20", "301 /d/?q=1&r=%20"),
        ("/a%20b", "301 /a%20b/"),
        ("//d", "301 /d/"),
        ("POST /d", "308 /d/"),
        ("/s/", "script /s/index.php"),
        ("/e/", "403 NoIndex"),
        ("/e", "403 NoIndex"),
        ("/none", "404 NotFound"),
        ("/none/", "404 NotFound"),
        ("/none.php", "404 NotFound"),
        ("/a.html/", "404 NotFound"),
        ("/a.html/x", "404 NotFound"),
        ("/d/x.php", "script /d/x.php"),
        ("/d/x.php/a/b", "script /d/x.php info /a/b"),
        ("/p.jpg/y.php", "404 NotFound"),
        ("/.well-known/security.txt", "file .well-known/security.txt"),
    ]);
}

#[test]
fn names_that_are_never_sent_are_refused() {
    fixture(|_| {}).check(&[
        ("/.env", "404 DotFile"),
        ("/.git/config", "404 DotFile"),
        ("/.git/", "404 DotFile"),
        ("/%2eenv", "404 DotFile"),
        ("/backup.sql", "404 DatabaseFile"),
        ("/x.php.bak", "404 EditorBackup"),
        ("/none.phtml", "404 ProgramSource"),
        ("/../etc/passwd", "400 AboveRoot"),
        ("/%2e%2e/etc/passwd", "400 AboveRoot"),
        ("/%00", "400 NulByte"),
        ("/%zz", "400 BadEscape"),
        ("/..%5cx", "400 BackslashTraversal"),
    ]);
    fixture(|config| config.expose = vec![PathPattern::glob("/backup.sql").unwrap()])
        .check(&[("/backup.sql", "file backup.sql"), ("/.env", "404 DotFile")]);
}

#[test]
fn methods_of_files() {
    fixture(|_| {}).check(&[
        ("HEAD /a.html", "file a.html"),
        ("OPTIONS /a.html", "options GET, HEAD, OPTIONS"),
        ("OPTIONS *", "options GET, HEAD, OPTIONS"),
        ("POST /a.html", "405 MethodNotAllowed"),
        ("get /a.html", "405 MethodNotAllowed"),
        ("DELETE /index.php", "script /index.php"),
        ("OPTIONS /index.php", "script /index.php"),
        ("POST /none", "404 NotFound"),
        ("GET *", "400 BadTarget"),
    ]);
}

#[test]
fn front_controller_gets_requests_that_name_no_file() {
    let site = fixture(|config| config.front_controller = front(false));
    site.check(&[
        ("/2024/hello/?p=1", "script /index.php redirected"),
        ("/a.html", "file a.html"),
        ("/d", "301 /d/"),
        ("/e/", "script /index.php redirected"),
        ("/e", "script /index.php redirected"),
        ("/.env", "script /index.php redirected"),
        ("/none.php", "script /index.php redirected"),
        ("/p.jpg/y.php", "script /index.php redirected"),
        ("POST /x", "script /index.php redirected"),
        ("/index.php/x", "script /index.php info /x"),
        ("/../x", "400 AboveRoot"),
    ]);
    assert_eq!(
        site.route("/.env").info.skipped_refusal,
        Some(Refusal::DotFile)
    );
    assert_eq!(site.route("/x").info.skipped_refusal, None);
    fixture(|config| config.front_controller = front(true)).check(&[
        ("/a/b%20c/", "script /index.php info /a/b c/ redirected"),
        ("/index.php/x", "script /index.php info /x"),
    ]);
}

#[test]
fn front_controller_that_is_missing_is_not_found() {
    fixture(|config| {
        config.front_controller = Some(FrontController {
            script: "/gone.php".into(),
            path_info: false,
        });
    })
    .check(&[("/x", "404 NotFound"), ("/a.html", "file a.html")]);
}

#[test]
fn try_files_in_order() {
    let list = |entries: &[&str]| entries.iter().map(|e| TryFile::parse(e).unwrap()).collect();
    fixture(|config| {
        config.try_files = list(&["/cache$uri.html", "$uri", "$uri/", "/app.php?r=$uri&$query"]);
    })
    .check(&[
        ("/page", "file cache/page.html"),
        ("/a.html", "file a.html"),
        ("/d/", "file d/index.html"),
        ("/d", "301 /d/"),
        (
            "/x%26y?k=v",
            "script /app.php query r=/x%26y&k=v redirected",
        ),
        ("/..%2f..", "400 AboveRoot"),
    ]);
    fixture(|config| config.try_files = list(&["$uri", "=410"])).check(&[
        ("/a.html", "file a.html"),
        ("/d/", "410 Returned"),
        ("/d", "410 Returned"),
        ("/none", "410 Returned"),
    ]);
    fixture(|config| config.try_files = list(&["$uri/", "$uri"]))
        .check(&[("/a.html", "file a.html"), ("/d", "301 /d/")]);
    fixture(|config| config.try_files = list(&["$uri", "$uri.php"])).check(&[
        ("/app", "script /app.php redirected"),
        ("/app.php", "script /app.php"),
        ("/none", "404 NotFound"),
    ]);
    // An entry for a stored page must not match as the path info of a script; only the last entry may be a script with
    // path info.
    let entries = ["$uri/index.html", "$uri", "/app.php$uri"];
    fixture(|config| config.try_files = list(&entries)).check(&[
        ("/app.php", "script /app.php"),
        ("/d", "file d/index.html"),
        ("/none", "script /app.php info /none redirected"),
    ]);
    fixture(|config| {
        config.try_files = list(&["$uri", "$uri/index.html"]);
        config.front_controller = front(false);
    })
    .check(&[
        ("/app.php", "script /app.php"),
        ("/app.php/x", "script /app.php info /x"),
        ("/d", "file d/index.html"),
    ]);
}

#[test]
fn rewrites_change_path_and_query_for_what_follows() {
    let site = fixture(|config| {
        config.rules = vec![
            rule(
                PathPattern::regex("^/wiki/(.+)$").unwrap(),
                RuleAction::Rewrite(template("/index.php?title=$1")),
            ),
            rule(
                PathPattern::prefix("/old/").unwrap(),
                RuleAction::Rewrite(template("/d/$1")),
            ),
            rule(
                PathPattern::exact("/d/gone").unwrap(),
                RuleAction::Return {
                    status: 410,
                    content_type: "text/plain".into(),
                    body: "gone".into(),
                },
            ),
            rule(
                PathPattern::prefix("/up").unwrap(),
                RuleAction::Rewrite(template("/d/../..$1")),
            ),
        ];
    });
    site.check(&[
        (
            "/wiki/A%26B%20C",
            "script /index.php query title=A%26B%20C redirected",
        ),
        (
            "/wiki/X?action=edit",
            "script /index.php query title=X&action=edit redirected",
        ),
        ("/wiki/a/b", "script /index.php query title=a/b redirected"),
        ("/old/index.html", "file d/index.html"),
        ("/old/gone", "return 410 gone"),
        ("/up/x", "400 AboveRoot"),
    ]);
}

#[test]
fn if_missing_rules_leave_files_alone() {
    fixture(|config| {
        config.rules = vec![SiteRule {
            if_missing: true,
            ..rule(
                PathPattern::prefix("/wiki/").unwrap(),
                RuleAction::Rewrite(template("/index.php")),
            )
        }];
    })
    .check(&[
        ("/wiki/real.png", "file wiki/real.png"),
        ("/wiki/Page", "script /index.php redirected"),
        ("/wiki/.NET", "script /index.php redirected"),
        ("/wiki/Page?x=1", "script /index.php redirected"),
    ]);
}

#[test]
fn redirects_keep_the_query_and_the_host() {
    let redirect = |pattern, status, to| {
        rule(
            pattern,
            RuleAction::Redirect {
                status,
                to: template(to),
            },
        )
    };
    fixture(|config| {
        config.rules = vec![
            redirect(PathPattern::prefix("/blog/").unwrap(), 301, "/$1"),
            redirect(PathPattern::prefix("/raw").unwrap(), 308, "$1"),
            redirect(PathPattern::prefix("/q").unwrap(), 302, "/new?a=$1"),
            redirect(
                PathPattern::exact("/www").unwrap(),
                301,
                "https://www.$host$request_uri",
            ),
            redirect(
                PathPattern::exact("/").unwrap(),
                301,
                "https://new.example$request_uri",
            ),
        ];
    })
    .check(&[
        (
            "http://site.example/www?x=1",
            "301 https://www.site.example/www?x=1",
        ),
        ("http://site.example?x=1", "301 https://new.example/?x=1"),
        ("/blog/x?y=1", "301 /x?y=1"),
        ("/blog/%2fevil.example", "301 /evil.example"),
        ("/blog//evil.example", "301 /evil.example"),
        ("/blog/%5cevil.example", "301 /%5Cevil.example"),
        ("/blog/a%0d%0aX:y", "301 /a%0D%0AX:y"),
        ("/raw/a%20b", "308 /a%20b"),
        ("/q/z?k=v", "302 /new?a=/z"),
        ("/www?x=1", "301 https://www.site.example/www?x=1"),
    ]);
}

#[test]
fn closed_file_of_an_application_is_refused_and_its_pages_are_not() {
    let site = fixture(|config| {
        config.front_controller = front(false);
        config.deny_files = ["/e/**", "/none/**", "/s/index.php", "/d/*.php"]
            .map(|pattern| PathPattern::glob(pattern).unwrap())
            .to_vec();
        config.rules = vec![rule(
            PathPattern::exact("/elsewhere").unwrap(),
            RuleAction::Rewrite(template("/e/y.txt")),
        )];
    });
    site.check(&[
        // Files, whatever led to them, and paths beside them.
        ("/e/y.txt", "403 Denied"),
        ("/d/x.php", "403 Denied"),
        ("/d/x.php/info", "403 Denied"),
        ("/s/", "403 Denied"),
        ("/elsewhere", "403 Denied"),
        ("/e/no-such-file", "403 Denied"),
        // Pages.
        ("/none/today", "script /index.php redirected"),
        ("/index.php/e/y.txt", "script /index.php info /e/y.txt"),
        ("/index.php/d/x.php", "script /index.php info /d/x.php"),
    ]);
}

#[test]
fn deny_holds_for_the_file_whatever_path_led_there() {
    let site = fixture(|config| {
        config.deny = vec![
            PathPattern::glob("/d/**.php").unwrap(),
            PathPattern::glob("/d/index.html").unwrap(),
        ];
        config.rules = vec![
            rule(
                PathPattern::exact("/alias").unwrap(),
                RuleAction::Rewrite(template("/d/x.php")),
            ),
            rule(
                PathPattern::exact("/to-s/").unwrap(),
                RuleAction::Rewrite(template("/s/")),
            ),
            rule(
                PathPattern::glob("/s/*.php").unwrap(),
                RuleAction::Deny(404),
            ),
            rule(
                PathPattern::exact("/index.php").unwrap(),
                RuleAction::Deny(403),
            ),
            SiteRule {
                conditions: RuleConditions {
                    methods: vec!["DELETE".into()],
                    ..RuleConditions::default()
                },
                ..rule(PathPattern::prefix("/").unwrap(), RuleAction::Deny(403))
            },
        ];
        config.front_controller = front(false);
    });
    site.check(&[
        ("/d/x.php", "403 Denied"),
        ("/d/x.php/info", "403 Denied"),
        ("/d/%78.php/info", "403 Denied"),
        ("/alias", "403 Denied"),
        ("/d/", "403 Denied"),
        ("/s/index.php", "404 Denied"),
        ("/s/index.php/info", "404 Denied"),
        ("/s/", "404 Denied"),
        ("/to-s/", "404 Denied"),
        ("/index.php", "403 Denied"),
        ("/index.php/x", "403 Denied"),
        ("/", "script /index.php"),
        ("/virtual", "script /index.php redirected"),
        ("DELETE /a.html", "403 Denied"),
    ]);
}

#[test]
fn header_rules_are_applied_to_the_response() {
    let site = fixture(|config| {
        let edit = |pattern: &str, edit| {
            rule(
                PathPattern::glob(pattern).unwrap(),
                RuleAction::Header(edit),
            )
        };
        config.rules = vec![
            edit(
                "*.css",
                HeaderEdit::Set("Cache-Control".into(), "max-age=9".into()),
            ),
            edit("/**", HeaderEdit::Add("X-One".into(), "1".into())),
            edit("/**", HeaderEdit::Unset("x-powered-by".into())),
        ];
    });
    let edited = |line: &str| {
        let mut head = ResponseHead::new(200);
        head.header(b"X-Powered-By", b"PHP")
            .header(b"cache-control", b"private");
        site.site.edit_headers(&site.route(line).info, &mut head);
        String::from_utf8(head.lines().to_vec()).unwrap()
    };
    assert_eq!(
        edited("/style.css"),
        "Cache-Control: max-age=9\r\nX-One: 1\r\n"
    );
    assert_eq!(edited("/"), "cache-control: private\r\nX-One: 1\r\n");
}

#[test]
fn paths_of_hostile_length_are_not_found() {
    let site = fixture(|_| {});
    for target in [
        "/x".repeat(4000),
        format!("/{}", "y".repeat(8000)),
        "/x.php".repeat(1000),
    ] {
        assert_eq!(show(&site.route(&target).action), "404 NotFound");
    }
}
