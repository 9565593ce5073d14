//! `auth_request`: another server decides whether a request is allowed.

use howdah_tests::fixture::Fixture;

use super::{App, ask};

#[test]
fn server_is_asked_before_anything_is_answered() {
    let builder = Fixture::named("auth-request");
    let mut app = App::start(&builder, "app", "0", "");
    let fixture = builder
        .script(
            "area/who.php",
            "<?php header('Cache-Control: max-age=600'); echo $_SERVER['REMOTE_USER'] ?? '-', '|', $_SERVER['TOLD'] ?? '-', '|', file_get_contents('php://input');",
        )
        .file("area/plan.txt", "the plan")
        .site(&format!(
            "cache = \"on\"\n\
             [[site.rule]]\npath = \"/alias\"\nrewrite = \"/area/plan.txt\"\n\
             [[site.rule]]\nprefix = \"/area/\"\nauth_request = \"http://127.0.0.1:{0}/verify\"\n\
             auth_request_set = {{ REMOTE_USER = \"Remote-User\", TOLD = \"X-Told\" }}\n\
             [[site.rule]]\nprefix = \"/area/app\"\nproxy = \"http://127.0.0.1:{0}\"",
            app.at
        ))
        .start();
    let at = fixture.address();
    for _ in 0..2 {
        let yes = ask(
            at,
            "POST /area/who.php?q HTTP/1.1\r\nCookie: user=ann\r\nX-Forwarded-Uri: /forged\r\nRemote-User: forged\r\nContent-Length: 5",
            "hello",
        );
        let told = "ann|GET POST /area/who.php?q example.org 127.0.0.1 undefined|hello";
        assert_eq!((yes.status(), yes.text().as_str()), (200, told));
    }
    for path in [
        "/area/plan.txt",
        "/alias",
        "/area/app",
        "/area//plan.txt",
        "/area/none",
    ] {
        let line = format!("GET {path} HTTP/1.1");
        let status = if path.ends_with("none") { 404 } else { 200 };
        // The request is allowed at first, so a page could have been stored before it is denied.
        assert_eq!(
            ask(at, &format!("{line}\r\nCookie: user=ann"), "").status(),
            status,
            "{path}"
        );
        let no = ask(at, &format!("{line}\r\nCookie: user=bob"), "");
        assert_eq!(
            (no.status(), no.text().as_str()),
            (403, "not for bob"),
            "{path}"
        );
        let login = ask(at, &line, "");
        assert_eq!(
            (login.status(), login.header("Set-Cookie")),
            (302, Some("a=b")),
            "{path}"
        );
        // The service is asked about the path that the rules have seen.
        let cleaned = path.replace("//", "/");
        let rd = format!("https://login.example/?rd={}", cleaned.replace('/', "%2F"));
        assert_eq!(login.header("Location"), Some(rd.as_str()));
    }
    // If the service is not running, every request is refused.
    app.process.stop();
    let down = ask(at, "GET /area/plan.txt HTTP/1.1\r\nCookie: user=ann", "");
    assert_eq!(
        (down.status(), down.header("Howdah-Error")),
        (503, Some("BackendDown"))
    );
    fixture.still_serves();
}

#[test]
fn client_cannot_choose_the_url_that_the_service_decides_about() {
    let builder = Fixture::named("auth-request-url");
    let app = App::start(&builder, "app", "0", "");
    // The service allows only paths below /public/, by the headers that Authelia and others read.
    let fixture = builder
        .script(
            "index.php",
            "<?php echo 'route ', $_SERVER['PATH_INFO'] ?? '-';",
        )
        .file("secret.txt", "the secret")
        .file("public/page.txt", "public")
        .site(&format!(
            "front_controller = \"/index.php\"\n\
             [[site.rule]]\nprefix = \"/\"\nauth_request = \"http://127.0.0.1:{}/by-url\"",
            app.at
        ))
        .start();
    let at = fixture.address();
    for (target, headers, expected) in [
        ("/public/page.txt", "", 200),
        ("/secret.txt", "", 401),
        (
            "/secret.txt",
            "X-Original-URL: https://example.org/public/",
            401,
        ),
        (
            "/secret.txt",
            "x-original-uri: /public/\r\nX-Rewrite-URL: /public/",
            401,
        ),
        (
            "/secret.txt",
            "X-Forwarded-Uri: /public/\r\nX-Forwarded-Host: h/public/?",
            401,
        ),
        ("/secret.txt", "X-Auth-Request-Redirect: /public/", 401),
        ("/public/../secret.txt", "", 401),
        ("/public/%2e%2e/secret.txt", "", 401),
        ("/public/..%2fsecret.txt", "", 401),
        ("//public/../secret.txt", "", 401),
        ("http://example.org/secret.txt?/public/", "", 401),
        ("/%70ublic/page.txt", "", 200),
        ("/public/none", "", 200),
        ("/index.php/public/x", "", 401),
        ("/index.php/intern", "", 401),
    ] {
        let line = match headers {
            "" => format!("GET {target} HTTP/1.1"),
            _ => format!("GET {target} HTTP/1.1\r\n{headers}"),
        };
        let response = ask(at, &line, "");
        assert_eq!(response.status(), expected, "{line}: {}", response.text());
    }
}
