//! `auth_request`: another server says whether a request may be answered.

use howdah_tests::fixture::Fixture;

use super::{App, ask};

#[test]
fn a_server_is_asked_before_anything_is_answered() {
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
        // Allowed first, so that a page could have been kept by then.
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
        let rd = format!("https://login.example/?rd={}", path.replace('/', "%2F"));
        assert_eq!(login.header("Location"), Some(rd.as_str()));
    }
    // Nobody who could allow it: nobody comes in.
    app.process.stop();
    let down = ask(at, "GET /area/plan.txt HTTP/1.1\r\nCookie: user=ann", "");
    assert_eq!(
        (down.status(), down.header("Howdah-Error")),
        (503, Some("BackendDown"))
    );
    fixture.still_serves();
}
