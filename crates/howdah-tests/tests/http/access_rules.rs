//! Conditions of access rules: which requests they admit, across reloads, together with the page cache, and for files
//! that scripts name.

use howdah_tests::executable::make_executable;
use howdah_tests::fixture::{Builder, Fixture, TRUSTED_PROXIES, from};
use howdah_tests::http::{self, Response};
use howdah_tests::rig::howdah_check;
use howdah_tests::scratch::Scratch;

/// `ann` with the password `pw`.
const USERS: &str = "ann:$2y$04$6uIEqby2HLR.PpVdSTz2A.IS3XhKY6C8qujo6HuutCnYrJaR6x.4C\n";
const ANN: &str = "Authorization: Basic YW5uOnB3\r\n";

/// Sends the request `asked`, which is a path for GET, or `METHOD /path`.
fn ask(fixture: &Fixture, asked: &str, lines: &str) -> Response {
    let (method, path) = asked.split_once(' ').unwrap_or(("GET", asked));
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: site.example\r\n{lines}Connection: close\r\n\r\n"
    );
    http::exchange(fixture.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{path}: {broken}\n{}", fixture.howdah.process.log()))
}

fn site(name: &str) -> Builder {
    Fixture::named(name)
        .config(TRUSTED_PROXIES)
        .file("a.txt", "a")
        .file("admin/plan.txt", "the plan")
        .script("page.php", "<?php echo 'page ', $_GET['q'] ?? '';")
        .script("beta.php", "<?php echo 'beta';")
        .script(
            "send.php",
            "<?php header('X-Accel-Redirect: /admin/plan.txt');",
        )
}

/// Requests the page until it comes from the cache.
fn keep(fixture: &Fixture, path: &str, lines: &str) {
    fixture.wait("a hit", |fixture| is_hit(&ask(fixture, path, lines)));
}

fn is_hit(answer: &Response) -> bool {
    let status = answer.header("Cache-Status").unwrap_or_default();
    status.contains("hit")
}

#[test]
fn rules_decide_by_parameter_cookie_field_method_and_variable() {
    let fixture = site("rules-conditions")
        .site(
            "[site.env]\nSTAGE = \"trial\"\n\
             [[site.rule]]\ndeny = 403\nquery = { author = \"~ ^[0-9]+$\" }\n\
             [[site.rule]]\npath = \"/page.php\"\nrewrite = \"/beta.php\"\ncookie = { beta = \"on\" }\n\
             [[site.rule]]\ndeny = 410\nheader = { User-Agent = \"~* badbot\" }\nnot = { path = \"/a.txt\" }\n\
             [[site.rule]]\nset_header = { X-Stage = \"trial\" }\nenv = { STAGE = \"trial\", HTTPS = \"\" }\n\
             [[site.rule]]\nset_header = { X-Live = \"live\" }\nenv = { STAGE = \"live\" }\n\
             [[site.rule]]\nprefix = \"/admin\"\ndeny = 403\nnot = [{ methods = [\"GET\"], header = { X-Key = \"k*\" } }, { from = \"10.0.0.0/8\" }]",
        )
        .start();
    for (path, lines, expected) in [
        ("/page.php", "", 200),
        ("/page.php?author=1", "", 403),
        ("/page.php?%61uthor[]=1", "", 403),
        ("/page.php?author=ann", "", 200),
        ("/page.php", "User-Agent: a BADBOT\r\n", 410),
        ("/a.txt", "User-Agent: a BADBOT\r\n", 200),
        ("/admin/plan.txt", "", 403),
        ("/admin/plan.txt", "X-Key: k1\r\n", 200),
        ("/admin/plan.txt", "X-Key: l1\r\n", 403),
        ("/admin/plan.txt", "X-Forwarded-For: 10.1.2.3\r\n", 200),
        (
            "/admin/plan.txt",
            "X-Forwarded-For: 10.1.2.3, 11.1.1.1\r\n",
            403,
        ),
    ] {
        assert_eq!(
            ask(&fixture, path, lines).status(),
            expected,
            "{path} {lines}"
        );
    }
    assert_eq!(
        ask(&fixture, "/page.php", "Cookie: x=1; beta=on\r\n").text(),
        "beta"
    );
    let answer = ask(&fixture, "/page.php", "Cookie: beta=off\r\n");
    assert_eq!(answer.text(), "page ");
    assert_eq!(answer.header("X-Stage"), Some("trial"));
    assert_eq!(answer.header("X-Live"), None);
    fixture.still_serves();
}

#[test]
fn conditions_apply_to_files_that_a_script_names() {
    let fixture = site("rules-by-script")
        .site("[[site.rule]]\nprefix = \"/admin\"\ndeny = 404\nnot = { from = \"10.0.0.0/8\" }")
        .start();
    for path in ["/admin/plan.txt", "/send.php"] {
        let answer = ask(&fixture, path, &from("192.0.2.1"));
        assert_eq!(answer.header("Howdah-Error"), Some("Denied"), "{path}");
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(
            ask(&fixture, path, &from("10.0.0.1")).text(),
            "the plan",
            "{path}"
        );
    }
}

#[test]
fn stored_page_is_not_sent_to_clients_that_a_rule_refuses() {
    let fixture = site("rules-cache")
        .file("bad", "192.0.2.0/24\n")
        .site(
            "cache = \"on\"\ncache_ignore_cookies = [\"beta\"]\ncache_ignore_query = [\"x\"]\n\
             [[site.rule]]\ndeny = 403\nfrom_file = \"ROOT/bad\"\n\
             [[site.rule]]\ndeny = 410\nquery = { x = \"evil\" }\n\
             [[site.rule]]\npath = \"/page.php\"\nrewrite = \"/beta.php\"\ncookie = { beta = \"*\" }",
        )
        .start();
    let good = from("198.51.100.1");
    keep(&fixture, "/page.php", &good);
    let denied = ask(&fixture, "/page.php", &from("192.0.2.9"));
    assert_eq!(denied.status(), 403);
    assert_eq!(denied.header("Howdah-Error"), Some("Denied"));
    assert_eq!(ask(&fixture, "/page.php?x=evil", &good).status(), 410);
    // Requests that a rule rewrites to another page neither receive the stored page nor leave their own page in the
    // cache.
    for _ in 0..4 {
        let beta = ask(&fixture, "/page.php", &format!("{good}Cookie: beta=1\r\n"));
        assert_eq!(beta.text(), "beta");
        let told = beta.header("Cache-Status").unwrap_or_default();
        assert!(told.contains("Rule"), "{told}");
        let page = ask(&fixture, "/page.php", &good);
        assert_eq!(page.text(), "page ");
        assert!(is_hit(&page));
    }
    // The server reads the changed list, which then also applies to stored pages.
    fixture.write("site/bad", "198.51.100.0/24\n");
    fixture.wait("the list to take effect", |fixture| {
        ask(fixture, "/page.php", &good).status() == 403
    });
    assert_eq!(ask(&fixture, "/page.php", &from("192.0.2.9")).status(), 200);
    // An invalid list changes nothing and is reported, and a reload with it is refused.
    fixture.write("site/bad", "everybody\n");
    fixture.wait("the warning", |fixture| {
        assert_eq!(ask(fixture, "/page.php", &good).status(), 403);
        fixture
            .howdah
            .process
            .log()
            .contains("NetworkFileUnreadable")
    });
    assert!(!fixture.control(&["reload"]).status.success());
    assert_eq!(ask(&fixture, "/page.php", &good).status(), 403);
    fixture.write("site/bad", "# nobody\n");
    fixture.reload();
    assert_eq!(ask(&fixture, "/page.php", &good).status(), 200);
}

#[test]
fn proxies_of_a_file_are_trusted_as_long_as_the_file_names_them() {
    let fixture = Fixture::named("proxies-file")
        .file("proxies", "127.0.0.0/8\n")
        .script("who.php", "<?php echo $_SERVER['REMOTE_ADDR'];")
        .config("[trusted_proxies]\nnetworks_file = \"ROOT/proxies\"")
        .start();
    let visitor = from("198.51.100.1");
    let address = |fixture: &Fixture| ask(fixture, "/who.php", &visitor).text();
    assert_eq!(address(&fixture), "198.51.100.1");
    // An invalid list changes nothing and is reported, although no rule uses it, and a reload with it is refused.
    fixture.write("site/proxies", "everybody\n");
    fixture.wait("the warning", |fixture| {
        assert_eq!(address(fixture), "198.51.100.1");
        let log = fixture.howdah.process.log();
        log.contains("NetworkFileUnreadable")
    });
    assert!(!fixture.control(&["reload"]).status.success());
    fixture.write("site/proxies", "10.0.0.0/8\n");
    fixture.wait("the list to take effect", |fixture| {
        address(fixture) == "127.0.0.1"
    });
}

#[test]
fn page_that_only_some_addresses_may_see_is_stored_for_these_at_most() {
    const PAGE: &str =
        "<?php header('Cache-Control: public, max-age=600'); echo basename(__FILE__);";
    for cache in ["on", "rfc"] {
        let fixture = site(&format!("rules-some-{cache}"))
            .script("open.php", PAGE)
            .script("some.php", PAGE)
            .site(&format!(
                "cache = \"{cache}\"\n[[site.rule]]\npath = \"/some.php\"\n\
                 deny = 403\nnot = {{ from = \"10.0.0.0/8\" }}"
            ))
            .start();
        let inside = from("10.0.0.1");
        keep(&fixture, "/open.php", &inside);
        for _ in 0..8 {
            let page = ask(&fixture, "/some.php", &inside);
            assert_eq!(page.text(), "some.php");
            // Under "on", the page is rendered for an anonymous visitor, who may not see it; under "rfc", the visitor's
            // own response is stored.
            let told = page.header("Cache-Status").unwrap_or_default();
            let is_kept = told.contains("hit") || told.contains("stored");
            assert_eq!(is_kept, cache == "rfc", "{cache}: {told}");
            let outside = ask(&fixture, "/some.php", &from("192.0.2.1"));
            assert_eq!(refused(&outside), (403, "Denied"), "{cache}");
        }
    }
}

#[test]
fn exception_from_a_password_is_for_the_excepted_alone() {
    let fixture = site("rules-satisfy")
        .file("users", "ann:{SHA}wrong\n")
        .site(
            "cache = \"on\"\n[[site.rule]]\nauth_basic = \"Staging\"\n\
             auth_basic_user_file = \"ROOT/users\"\nnot = { from = \"10.0.0.0/8\" }",
        )
        .start();
    for _ in 0..4 {
        assert_eq!(
            ask(&fixture, "/page.php", &from("10.0.0.1")).text(),
            "page "
        );
        let outside = ask(&fixture, "/page.php", &from("192.0.2.1"));
        assert_eq!(outside.status(), 401);
        let beyond = ask(&fixture, "/page.php", &from("10.0.0.1, 192.0.2.1"));
        assert_eq!(beyond.status(), 401);
    }
}

#[test]
fn mistakes_in_conditions_are_reported_at_once_with_what_would_do() {
    let dir = Scratch::new("rules-mistakes");
    let text = "[[site]]\nroot = \".\"\n[[site.rule]]\ndeny = 403\n\
        query = { q = \"~ (\" }\n\
        env = { REMOTE_ADDR = \"x\" }\n\
        header = { \"a b\" = \"x\", Cookie = \"x\" }\n\
        from = \"10.0.0.1/8\"\n\
        from_file = \"none\"\n\
        not = [{}, { frm = \"::1\" }]\n\
        [[site.rule]]\ncache_control = \"no-cache\"\ncookie = { a = \"*\" }\n\
        [trusted_proxies]\nnetworks_file = \"none\"\n";
    let file = dir.write("a.toml", text);
    let (code, said) = howdah_check(&file);
    assert_eq!(code, Some(3), "{said}");
    for expected in [
        "a.toml:5:15: query: `q`: ",
        "a.toml:6:23: env: `REMOTE_ADDR`: use `from` instead",
        "header: `a b`: is not a valid header name",
        "header: `Cookie`: use `cookie`",
        "a.toml:8:8: from: `10.0.0.1/8`: ",
        "a.toml:9:13: from_file: ",
        "not: the table is empty, so it would exempt every request",
        "unknown key `frm` in [site.rule.not]; did you mean `from`?",
        "cookie: has no effect on how files are sent",
        "a.toml:15:17: networks_file: ",
    ] {
        assert!(said.contains(expected), "missing {expected:?} in\n{said}");
    }
}

/// Redirects to its query with a local redirect, to which the server responds as if the client had requested that path.
const REDIRECT_PROGRAM: &str = "#!/usr/bin/perl\nprint \"Location: $ENV{QUERY_STRING}\\n\\n\";\n";

/// Paths that each kind of rule closes, with the status and the name of the refusal.
const CLOSED: &[(&str, u16, &str)] = &[
    ("/listed/f.txt", 403, "Denied"),
    ("/ruled/f.txt", 410, "Denied"),
    ("/near/f.txt", 404, "Denied"),
    ("/apache/f.txt", 403, "HtaccessDenied"),
    ("/.env", 404, "DotFile"),
];

fn closed(name: &str, htaccess: &str) -> Fixture {
    let mut builder = site(name)
        .file("users", USERS)
        .file("apache/.htaccess", "Require all denied\n")
        .file(".env", "secret")
        .file("cgi-bin/go.pl", REDIRECT_PROGRAM)
        .script(
            "accel.php",
            "<?php header('X-Accel-Redirect: ' . $_SERVER['QUERY_STRING']);",
        );
    for directory in ["listed", "ruled", "near", "apache", "login"] {
        builder = builder.file(&format!("{directory}/f.txt"), "secret");
    }
    let fixture = builder
        .pool("[pool.programs]\nmode = \"cgi\"\nmax_children = 2")
        .site(&format!(
            "htaccess = \"{htaccess}\"\ndeny = [\"/listed/**\"]\n\
             [[site.rule]]\nprefix = \"/cgi-bin/\"\ncgi = \"programs\"\n\
             [[site.rule]]\nprefix = \"/ruled\"\ndeny = 410\n\
             [[site.rule]]\nprefix = \"/near\"\ndeny = 404\nnot = {{ from = \"10.0.0.0/8\" }}\n\
             [[site.rule]]\nprefix = \"/login\"\nauth_basic = \"Login\"\nauth_basic_user_file = \"ROOT/users\""
        ))
        .start();
    make_executable(&fixture.path("site/cgi-bin/go.pl"));
    fixture
}

fn refused(answer: &Response) -> (u16, &str) {
    (
        answer.status(),
        answer.header("Howdah-Error").unwrap_or_default(),
    )
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn local_redirects_are_refused_like_requests_of_a_client() {
    for htaccess in ["deny", "on"] {
        let fixture = closed(&format!("rules-led-{htaccess}"), htaccess);
        let far = from("192.0.2.1");
        for (target, status, name) in CLOSED {
            for path in [
                (*target).to_owned(),
                format!("/accel.php?{target}"),
                format!("/cgi-bin/go.pl?{target}"),
            ] {
                let answer = ask(&fixture, &path, &far);
                assert_eq!(refused(&answer), (*status, *name), "{htaccess} {path}");
            }
        }
        // A client that is admitted gets the file in every way.
        for path in [
            "/near/f.txt",
            "/accel.php?/near/f.txt",
            "/cgi-bin/go.pl?/near/f.txt",
        ] {
            let answer = ask(&fixture, path, &from("10.0.0.1"));
            assert_eq!(answer.text(), "secret", "{htaccess} {path}");
        }
        // The server asks for a password when a client requests the file, or a program redirects to it. A script that
        // names the file is refused.
        for path in ["/login/f.txt", "/cgi-bin/go.pl?/login/f.txt"] {
            let answer = ask(&fixture, path, &far);
            assert_eq!(
                refused(&answer),
                (401, "NotAuthenticated"),
                "{htaccess} {path}"
            );
            assert_eq!(
                ask(&fixture, path, ANN).text(),
                "secret",
                "{htaccess} {path}"
            );
        }
        for lines in ["", ANN] {
            let answer = ask(&fixture, "/accel.php?/login/f.txt", lines);
            assert_eq!(refused(&answer), (403, "NotAuthorized"), "{htaccess}");
        }
        fixture.still_serves();
    }
}

#[test]
fn access_rules_hold_for_stored_pages_behind_htaccess_rewrites() {
    let leads = |short: &str| {
        format!(
            "RewriteEngine On\nRewriteRule ^short$ {short} [L]\nRewriteRule ^mine$ /login/page.php [L]\n\
             ErrorDocument 404 /near.php\n"
        )
    };
    let fixture = site("rules-htaccess-leads")
        .file("users", USERS)
        .file(".htaccess", leads("/near.php"))
        .file("in/.htaccess", "DirectoryIndex /near.php\n")
        .script("near.php", "<?php echo 'near';")
        .script("login/page.php", "<?php echo 'mine';")
        .site(
            "htaccess = \"on\"\ncache = \"on\"\n\
             [[site.rule]]\npath = \"/near.php\"\ndeny = 403\nfrom = \"192.0.2.0/24\"\n\
             [[site.rule]]\npath = \"/near.php\"\ndeny = 410\nmethods = [\"POST\"]\n\
             [[site.rule]]\nprefix = \"/login\"\nauth_basic = \"Login\"\nauth_basic_user_file = \"ROOT/users\"",
        )
        .start();
    let (good, bad) = (from("198.51.100.1"), from("192.0.2.1"));
    for path in ["/short", "/in/", "/near.php", "/near.php/info"] {
        keep(&fixture, path, &good);
        assert_eq!(ask(&fixture, path, &good).text(), "near", "{path}");
        let denied = ask(&fixture, path, &bad);
        assert_eq!(refused(&denied), (403, "Denied"), "{path}");
        let posted = ask(&fixture, &format!("POST {path}"), &good);
        assert_eq!(refused(&posted), (410, "Denied"), "{path}");
    }
    let missing = ask(&fixture, "/missing", &good);
    assert_eq!((missing.status(), missing.text()), (404, "near".into()));
    assert_eq!(refused(&ask(&fixture, "/missing", &bad)), (403, "Denied"));
    for _ in 0..4 {
        assert_eq!(ask(&fixture, "/mine", ANN).text(), "mine");
        let stranger = ask(&fixture, "/mine", &good);
        assert_eq!(refused(&stranger), (401, "NotAuthenticated"));
    }
    // A rewrite to a path that needs a password does not serve the stored page of the former target.
    fixture.write("site/.htaccess", leads("/login/page.php"));
    let stranger = ask(&fixture, "/short", &good);
    assert_eq!(refused(&stranger), (401, "NotAuthenticated"));
    fixture.still_serves();
}

/// A front controller that takes its route from the URL, as Symfony, Laravel and Drupal do, and prints the user.
const ROUTER: &str = r#"<?php
$path = explode('?', $_SERVER['REQUEST_URI'])[0];
$script = $_SERVER['SCRIPT_NAME'];
if (str_starts_with($path, $script)) $path = substr($path, strlen($script));
header('Cache-Control: public, max-age=600');
echo rawurldecode($path), ' for ', $_COOKIE['user'] ?? 'nobody';"#;

#[test]
fn rules_hold_for_the_route_behind_a_front_controller() {
    let builder = Fixture::named("rules-behind-script").config(TRUSTED_PROXIES);
    let users = builder.scratch().path().join("users");
    std::fs::write(&users, USERS).expect("a file of users");
    let fixture = builder
        .script("index.php", ROUTER)
        .script("shop/index.php", ROUTER)
        .script("app.php", ROUTER)
        .script("download.php", ROUTER)
        .site(&format!(
            "front_controller = \"/index.php\"\ndeny = [\"/closed/**\", \"/shop/closed/**\"]\n\
             cache = \"rfc\"\ncache_never = [\"/account\"]\n\
             [[site.rule]]\nprefix = \"/legacy/\"\nrewrite = \"/app.php/$1\"\n\
             [[site.rule]]\nprefix = \"/intern\"\nauth_basic = \"x\"\nauth_basic_user_file = {:?}\n\
             [[site.rule]]\nprefix = \"/admin\"\ndeny = 403\nnot = {{ from = \"10.0.0.0/8\" }}\n\
             [[site.rule]]\nprefix = \"/gone\"\nreturn = 410\n\
             [[site.rule]]\npath = \"/login\"\nmethods = [\"POST\"]\nrate = \"1/m\"",
            users.display()
        ))
        .start();
    for script in ["", "/index.php", "/app.php"] {
        for (route, lines, expected) in [
            ("/intern/x", "", 401),
            ("/intern/x", ANN, 200),
            ("/%69ntern/x", "", 401),
            ("/./intern/x", "", 401),
            ("//intern/x", "", 401),
            ("%2fintern/x", "", 401),
            ("/open/../intern/x", "", 401),
            ("/admin/x", "", 403),
            ("/admin/x", "X-Forwarded-For: 10.1.2.3\r\n", 200),
            ("/closed/x", "", 403),
            ("/gone/x", "", 410),
            ("/open/x", "", 200),
        ] {
            let path = format!("{script}{route}");
            // Only the front controller handles a path that begins with an escape.
            if path.starts_with('/') {
                let answer = ask(&fixture, &path, lines);
                assert_eq!(
                    answer.status(),
                    expected,
                    "{path} {lines} {}",
                    answer.text()
                );
            }
        }
    }
    // The route is the part after the script, with or without the script's directory in front of it. Any script may
    // have routes, however the script was reached.
    for (path, expected) in [
        ("/shop/index.php/closed/x", 403),
        ("/shop/index.php/admin/x", 403),
        ("/shop/index.php/open/x", 200),
        ("/legacy/intern/x", 401),
        ("/legacy/admin/x", 403),
        ("/legacy/closed/x", 403),
        ("/legacy/open/x", 200),
        ("/download.php/admin/x", 403),
        ("/download.php/open/x", 200),
    ] {
        assert_eq!(ask(&fixture, path, "").status(), expected, "{path}");
    }
    // A client may log in once, by whichever path.
    let log_in =
        |path: &str| ask(&fixture, &format!("POST {path}"), "Content-Length: 0\r\n").status();
    assert_eq!(log_in("/index.php/login"), 200);
    assert_eq!(log_in("/login"), 429);
    assert_eq!(log_in("/app.php/login"), 429);
    // No client gets another visitor's page of a route that is never cached.
    for path in [
        "/account",
        "/index.php/account",
        "/shop/index.php/account",
        "/download.php/account",
        "/legacy/account",
    ] {
        for user in ["ann", "bob"] {
            let answer = ask(&fixture, path, &format!("Cookie: user={user}\r\n"));
            let text = answer.text();
            assert!(
                text.ends_with(&format!("/account for {user}")),
                "{path}: {text}"
            );
        }
    }
}

#[test]
fn headers_of_rules_are_on_errors_too() {
    let builder = site("rules-error-headers");
    let users = builder.scratch().path().join("users");
    std::fs::write(&users, USERS).expect("a file of users");
    let fixture = builder
        .file("own.html", "the site's own page")
        .script("crash.php", "<?php posix_kill(getmypid(), 9);")
        .site(&format!(
            "error_pages = {{ 410 = \"own.html\" }}\n\
             [[site.rule]]\nset_header = {{ X-Frame-Options = \"DENY\", Cache-Control = \"max-age=600\" }}\n\
             [[site.rule]]\nprefix = \"/admin\"\nset_header = {{ X-Admin = \"yes\" }}\n\
             [[site.rule]]\nprefix = \"/admin\"\ndeny = 403\n\
             [[site.rule]]\nprefix = \"/gone\"\ndeny = 410\n\
             [[site.rule]]\nprefix = \"/intern\"\nauth_basic = \"x\"\nauth_basic_user_file = {:?}",
            users.display()
        ))
        .start();
    for (path, status, admin) in [
        ("/a.txt", 200, None),
        ("/none", 404, None),
        ("/admin/x", 403, Some("yes")),
        ("/intern/x", 401, None),
        ("/gone/x", 410, None),
        ("/crash.php", 502, None),
        ("DELETE /a.txt", 405, None),
    ] {
        let response = ask(&fixture, path, "");
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(response.header("X-Frame-Options"), Some("DENY"), "{path}");
        assert_eq!(response.header("X-Admin"), admin, "{path}");
        // An error must not carry the cache lifetime of the page that it replaces.
        let kept = response.header("Cache-Control") == Some("max-age=600");
        assert_eq!(kept, status == 200, "{path}");
    }
}
