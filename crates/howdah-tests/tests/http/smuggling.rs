//! Requests that may end at different bytes for different parsers. The server must refuse each of them and close the
//! connection, so the request that is hidden behind it never runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use howdah_tests::fixture::Fixture;

/// The bytes after the ambiguous request, which must never be treated as a request of their own.
const HIDDEN: &str = "GET /smuggled.php HTTP/1.1\r\nHost: x\r\n\r\n";

/// The messages sent before [`HIDDEN`]; RFC 9112 says why each must be refused.
const CORPUS: &[(&str, &str)] = &[
    // §6.3: both kinds of framing.
    (
        "CL.TE",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "TE.CL",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    ),
    // §6.3: lengths that differ, or are not numbers.
    (
        "two lengths",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n",
    ),
    (
        "length list",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: 0, 44\r\n\r\n",
    ),
    (
        "signed length",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: +0\r\n\r\n",
    ),
    (
        "negative length",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ),
    (
        "hexadecimal length",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: 0x0\r\n\r\n",
    ),
    (
        "empty length",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\n",
    ),
    (
        "huge length",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    ),
    // §6.1 and §7: transfer codings other than a single `chunked` at the end, and `chunked` in HTTP/1.0.
    (
        "obscured chunked",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked twice",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "identity",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ),
    (
        "vertical tab",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "two codings",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked in 1.0",
        "POST /echo.php HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    // §5: header lines.
    (
        "blank before colon",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nContent-Length : 0\r\n\r\n",
    ),
    (
        "folded",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n Content-Length: 44\r\n\r\n",
    ),
    (
        "first line blank",
        "POST /echo.php HTTP/1.1\r\n Host: x\r\n\r\n",
    ),
    ("bare line feed", "GET /echo.php HTTP/1.1\nHost: x\n\n"),
    (
        "bare line feed in the middle",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\nX-A: 1\nX-B: 2\r\n\r\n",
    ),
    (
        "bare carriage return",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\nX-A: 1\rContent-Length: 44\r\n\r\n",
    ),
    (
        "NUL",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\nX-A: \0\r\n\r\n",
    ),
    (
        "no colon",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\nX-A\r\n\r\n",
    ),
    (
        "empty name",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\n: 1\r\n\r\n",
    ),
    // §7.1: chunk sizes.
    (
        "chunk size with 0x",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    ),
    (
        "signed chunk size",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n+0\r\n\r\n",
    ),
    (
        "chunk size with blank",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n 0\r\n\r\n",
    ),
    (
        "huge chunk size",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n",
    ),
    (
        "chunk size ended by line feed",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\n\n",
    ),
    (
        "chunk longer than its size",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    ),
    (
        "line feed in a chunk extension",
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;a\nb\r\na\r\n0\r\n\r\n",
    ),
    // §3: request lines; §3.2: Host.
    ("no Host", "GET /echo.php HTTP/1.1\r\n\r\n"),
    (
        "two Hosts",
        "GET /echo.php HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    ),
    ("bad Host", "GET /echo.php HTTP/1.1\r\nHost: x/../y\r\n\r\n"),
    (
        "blank in the target",
        "GET /echo .php HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    (
        "tab for blank",
        "GET\t/echo.php\tHTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    (
        "two versions",
        "GET /echo.php HTTP/1.1 HTTP/1.1\r\nHost: x\r\n\r\n",
    ),
    (
        "lower-case version",
        "GET /echo.php http/1.1\r\nHost: x\r\n\r\n",
    ),
    (
        "HTTP/2 in text",
        "GET /echo.php HTTP/2.0\r\nHost: x\r\n\r\n",
    ),
    ("HTTP/0.9", "GET /echo.php\r\n\r\n"),
];

/// Sends `bytes`, then reads until the server closes the connection.
fn converse(fixture: &Fixture, name: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(fixture.address()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A reset after the response is not an error: the server did not read the remaining bytes.
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::ConnectionReset,
            "{name}: the connection was kept open"
        );
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn ambiguous_request_is_refused_and_what_it_hides_never_runs() {
    let fixture = Fixture::named("smuggling")
        .script(
            "echo.php",
            "<?php echo 'echo:', file_get_contents('php://input');",
        )
        .script(
            "smuggled.php",
            "<?php file_put_contents('SCRATCH/smuggled', $_SERVER['REQUEST_URI']);",
        )
        .start();
    let mut wrong = Vec::new();
    for (name, request) in CORPUS {
        let answer = converse(&fixture, name, format!("{request}{HIDDEN}").as_bytes());
        let answers = answer.matches("HTTP/1.1 ").count();
        let status = answer.split(' ').nth(1).unwrap_or("none").to_owned();
        let refused = matches!(status.as_str(), "400" | "413" | "501" | "505");
        if answers != 1 || !refused {
            wrong.push(format!(
                "{name}: {answers} responses, the first with status {status}"
            ));
        } else if !answer.contains("Howdah-Error: ") {
            wrong.push(format!(
                "{name}: the response has no Howdah-Error header: {answer}"
            ));
        }
        if fixture.path("smuggled").exists() {
            std::fs::remove_file(fixture.path("smuggled")).unwrap();
            wrong.push(format!("{name}: the hidden request was run"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The hidden request itself is valid, and works when it is not hidden.
    assert_eq!(fixture.get("/smuggled.php").status(), 200);
    assert!(fixture.path("smuggled").exists());
}
