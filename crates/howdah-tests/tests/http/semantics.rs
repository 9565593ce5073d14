//! HTTP/1.1 end to end: pipelining, HEAD, ranges, methods, and files that are never sent.

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http::Connection;

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";

#[test]
fn pipelined_requests_are_answered_in_order() {
    let fixture = Fixture::named("pipeline")
        .children(4)
        .file("letters.txt", LETTERS)
        .script(
            "n.php",
            "<?php usleep((int) $_GET['us']); echo 'n=', $_GET['n'];",
        )
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    let mut requests = String::new();
    for n in 0..30 {
        let path = match n % 3 {
            0 => "/letters.txt".to_owned(),
            // Scripts that are requested earlier run for longer.
            _ => format!("/n.php?n={n}&us={}", (30 - n) * 300),
        };
        requests += &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    client.send(&requests).unwrap();
    for n in 0..30 {
        let answer = client.read_response("GET").unwrap();
        let expected = if n % 3 == 0 {
            LETTERS.to_owned()
        } else {
            format!("n={n}")
        };
        assert_eq!((answer.status(), answer.text()), (200, expected));
    }
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let fixture = Fixture::named("head")
        .file("letters.txt", LETTERS)
        .script(
            "page.php",
            "<?php header('X-Method: ' . $_SERVER['REQUEST_METHOD']); echo 'a page';",
        )
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    for path in ["/letters.txt", "/page.php"] {
        let mut heads = Vec::new();
        for method in ["GET", "HEAD", "GET"] {
            client
                .send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
                .unwrap();
            let answer = client.read_response(method).unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(answer.body.is_empty(), method == "HEAD");
            heads.push(
                ["Content-Type", "ETag", "Last-Modified"]
                    .map(|h| answer.header(h).map(str::to_owned)),
            );
        }
        assert_eq!(heads[0], heads[1], "{path}");
    }
}

#[test]
fn ranges_are_sent_as_asked() {
    let fixture = Fixture::named("ranges")
        .file("letters.txt", LETTERS)
        .start();
    let ask = |range: &str| {
        let mut client = Connection::open(fixture.address()).unwrap();
        client
            .send(format!(
                "GET /letters.txt HTTP/1.1\r\nHost: x\r\nRange: bytes={range}\r\n\r\n"
            ))
            .unwrap();
        client.read_response("GET").unwrap()
    };
    let check = |range: &str, body: &str, content_range: &str| {
        let answer = ask(range);
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (206, body),
            "{range}"
        );
        assert_eq!(
            answer.header("Content-Range"),
            Some(content_range),
            "{range}"
        );
    };
    check("0-0", "a", "bytes 0-0/26");
    check("-3", "xyz", "bytes 23-25/26");
    check("24-", "yz", "bytes 24-25/26");
    check("20-999", "uvwxyz", "bytes 20-25/26");
    let unsatisfiable = ask("26-");
    assert_eq!(unsatisfiable.status(), 416);
    assert_eq!(unsatisfiable.header("Content-Range"), Some("bytes */26"));
    assert_eq!(ask("nonsense").text(), LETTERS);
    let several = ask("0-1,24-25");
    assert_eq!(several.status(), 206);
    let kind = several.header("Content-Type").unwrap().to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let text = several.text();
    let parts: Vec<&str> = text.split(&format!("--{boundary}")).collect();
    assert_eq!(parts.len(), 4, "{text}");
    assert!(
        parts[1].contains("Content-Range: bytes 0-1/26\r\n")
            && parts[1].ends_with("\r\n\r\nab\r\n")
    );
    assert!(
        parts[2].contains("Content-Range: bytes 24-25/26\r\n")
            && parts[2].ends_with("\r\n\r\nyz\r\n")
    );
    // A range attack does not receive more bytes than the file has.
    let many = (0..26).map(|_| "0-25").collect::<Vec<_>>().join(",");
    let attacked = ask(&many);
    assert!(
        matches!(attacked.status(), 200 | 416),
        "{}",
        attacked.status()
    );
}

#[test]
fn source_secrets_and_backups_are_never_sent_by_any_encoding() {
    const SECRET: &str = "S3CRET-source";
    let mut builder = Fixture::named("secrets")
        .file("page.php", format!("<?php /* {SECRET} */ echo 'run';"))
        .file("public/ok.txt", "public")
        .file(".well-known/ok.txt", "known");
    let hidden = [
        ".env",
        ".git/config",
        ".htaccess",
        ".user.ini",
        "page.php~",
        "page.php.bak",
        "page.php.save",
        ".page.php.swp",
        "page.php.orig",
        "#page.php#",
        "sub/.hidden/file.txt",
        "lib.phar",
        "old.phtml",
    ];
    for name in hidden {
        // A line that Apache does not know would refuse every request.
        let text = match name {
            ".htaccess" => format!("# {SECRET}"),
            _ => format!("<?php /* {SECRET} */ echo 'run';"),
        };
        builder = builder.file(name, text);
    }
    builder.scratch().write("outside.txt", SECRET);
    let fixture = builder.start();
    let mut paths: Vec<String> = hidden
        .iter()
        .map(|name| format!("/{}", name.replace('#', "%23")))
        .collect();
    for name in hidden {
        let all: String = name.bytes().map(|b| format!("%{b:02x}")).collect();
        paths.push(format!("/{all}"));
        paths.push(format!("/public/..%2f{}", name.replace('#', "%23")));
        paths.push(format!("//./{}", name.replace('#', "%23")));
    }
    for path in [
        "/../outside.txt",
        "/%2e%2e/outside.txt",
        "/..%2foutside.txt",
        "/..%5coutside.txt",
        "/public/../../outside.txt",
        "/%252e%252e/outside.txt",
        "/%c0%ae%c0%ae/outside.txt",
        "/..;/outside.txt",
        "/public/..\\..\\outside.txt",
        "/page.php%00.txt",
        "/page.php%20",
        "/page.php.",
        "/page.php::$DATA",
        "/PAGE.PHP",
        "/page.ph%70",
        "/page.php/",
        "/page.php/x.txt",
        "/page.php%2fx",
        "/.%67it/config",
        "/%2egit/config",
    ] {
        paths.push(path.to_owned());
    }
    let mut client: Option<Connection> = None;
    for path in &paths {
        for coding in ["identity", "gzip"] {
            let mut connection = client
                .take()
                .unwrap_or_else(|| Connection::open(fixture.address()).unwrap());
            connection
                .send(format!(
                    "GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n"
                ))
                .unwrap();
            let answer = connection
                .read_response("GET")
                .unwrap_or_else(|broken| panic!("{path}: {broken}"));
            assert!(!answer.text().contains(SECRET), "{path} reveals the secret");
            let ran = answer.status() == 200 && answer.text() == "run";
            assert!(
                matches!(answer.status(), 400 | 403 | 404) || (ran && path.contains("page.ph")),
                "{path}: {} {}",
                answer.status(),
                answer.text()
            );
            client = answer.keeps_alive.then_some(connection);
        }
    }
    assert_eq!(fixture.get("/.well-known/ok.txt").text(), "known");
    assert_eq!(fixture.get("/public/ok.txt").text(), "public");
}

#[test]
fn file_that_is_not_a_script_is_never_run_by_path_info() {
    let fixture = Fixture::named("path-info")
        .file("upload.jpg", "<?php echo 'owned';")
        .script(
            "real.php",
            "<?php echo 'info=', $_SERVER['PATH_INFO'] ?? 'none';",
        )
        .start();
    for path in [
        "/upload.jpg/x.php",
        "/upload.jpg%00.php",
        "/upload.jpg/.php",
        "/upload.jpg%0a.php",
    ] {
        let answer = fixture.get(path);
        assert!(
            matches!(answer.status(), 400 | 404),
            "{path}: {}",
            answer.status()
        );
        assert!(!answer.text().contains("owned"), "{path}");
    }
    assert_eq!(fixture.get("/real.php/a/b").text(), "info=/a/b");
    assert_eq!(fixture.get("/real.php").text(), "info=none");
    assert_eq!(fixture.get("/hello.php").text(), HELLO);
}

#[test]
fn file_that_a_script_names_is_not_labelled_with_the_scripts_own_compression() {
    let fixture = Fixture::named("sendfile-compressed")
        .file("letters.txt", LETTERS)
        .script(
            "accel.php",
            "<?php ob_start('ob_gzhandler'); header('Vary: Cookie'); header('Content-MD5: x'); \
             header('Content-Range: bytes 0-0/1'); header('X-Own: yes'); \
             header('X-Accel-Redirect: /letters.txt'); echo str_repeat('y', 5000);",
        )
        .script(
            "zlib.php",
            "<?php ini_set('zlib.output_compression', '1'); header('X-Accel-Redirect: /letters.txt'); echo 'z';",
        )
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    for path in ["/accel.php", "/zlib.php"] {
        client
            .send(format!(
                "GET {path} HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n"
            ))
            .unwrap();
        let response = client.read_response("GET").unwrap();
        assert_eq!(
            (response.status(), response.text()),
            (200, LETTERS.to_owned())
        );
        for name in ["Content-Encoding", "Content-MD5", "Content-Range"] {
            assert_eq!(response.header(name), None, "{path} {name}");
        }
        if path == "/accel.php" {
            assert_eq!(response.header("X-Own"), Some("yes"));
            assert_eq!(
                response.header("Vary").map(|it| it.contains("Cookie")),
                Some(true)
            );
        }
    }
}

#[test]
fn status_304_has_the_length_that_a_script_announces_or_none() {
    let fixture = Fixture::named("not-modified")
        .script("plain.php", "<?php http_response_code(304);")
        .script(
            "wordy.php",
            "<?php http_response_code(304); echo 'nobody sees this';",
        )
        .script(
            "flushed.php",
            "<?php http_response_code(304); echo 'x'; flush();",
        )
        .script(
            "length.php",
            "<?php http_response_code(304); header('Content-Length: 9500');",
        )
        .file("letters.txt", LETTERS)
        .start();
    let mut client = Connection::open(fixture.address()).unwrap();
    for (path, length) in [
        ("/plain.php", None),
        ("/wordy.php", None),
        ("/flushed.php", None),
        ("/length.php", Some("9500")),
    ] {
        for method in ["GET", "HEAD"] {
            client
                .send(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
                .unwrap();
            // A response to HEAD has no body, and a 304 has none either.
            let response = client.read_response("HEAD").unwrap();
            assert_eq!(response.status(), 304, "{path}");
            assert_eq!(response.header("Content-Length"), length, "{method} {path}");
            assert_eq!(
                response.header("Transfer-Encoding"),
                None,
                "{method} {path}"
            );
        }
    }
    client
        .send("GET /letters.txt HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert_eq!(client.read_response("GET").unwrap().text(), LETTERS);
}

#[test]
fn htaccess_file_limits_request_bodies() {
    let fixture = Fixture::named("limit-request-body")
        .file(".htaccess", "LimitRequestBody 20\n")
        .file("free/.htaccess", "LimitRequestBody 0\n")
        .script(
            "up.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        )
        .script(
            "free/up.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        )
        .site("htaccess = \"on\"")
        .start();
    for (path, length, status) in [
        ("/up.php", 20, 200),
        ("/up.php", 21, 413),
        ("/up.php", 5000, 413),
        ("/free/up.php", 5000, 200),
    ] {
        let body = "x".repeat(length);
        for chunked in [false, true] {
            let framed = match chunked {
                false => format!("Content-Length: {length}\r\n\r\n{body}"),
                true => {
                    format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n")
                }
            };
            let mut client = Connection::open(fixture.address()).unwrap();
            client
                .send(format!("POST {path} HTTP/1.1\r\nHost: x\r\n{framed}"))
                .unwrap();
            let response = client.read_response("POST").unwrap();
            assert_eq!(response.status(), status, "{path} {length} {chunked}");
            if status == 200 {
                assert_eq!(response.text(), length.to_string());
            }
        }
    }
}

/// As under mod_php, a script that generates a missing thumbnail may respond with 200.
#[test]
fn script_of_an_error_document_has_the_errors_status_and_may_set_another() {
    let fixture = Fixture::named("document-status")
        .file(".htaccess", "ErrorDocument 404 /make.php\n")
        .script(
            "make.php",
            "<?php parse_str($_SERVER['REDIRECT_QUERY_STRING'] ?? '', $asked); $before = http_response_code();
             match ($asked['how'] ?? '') {
                 'line' => header('HTTP/1.1 200 OK'), 'code' => http_response_code(200), default => null };
             echo $before;",
        )
        .site("htaccess = \"on\"")
        .start();
    for (how, status) in [("line", 200), ("code", 200), ("none", 404)] {
        let made = fixture.get(&format!("/thumb.png?how={how}"));
        assert_eq!(
            (made.status(), made.text().as_str()),
            (status, "404"),
            "{how}"
        );
    }
    let direct = fixture.get("/make.php");
    assert_eq!((direct.status(), direct.text().as_str()), (200, "200"));
}
