//! Responses and bodies in pieces: flushed output arrives before the script continues, fastcgi_finish_request()
//! releases the client, and interim responses come first.

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http::{Connection, Headers, framing_of};

fn ask(fixture: &Fixture, request: &str) -> Connection {
    let mut connection = Connection::open(fixture.address()).unwrap();
    connection.send(request).unwrap();
    connection
}

#[test]
fn flushed_output_arrives_before_the_script_continues() {
    let fixture = Fixture::named("flush")
        .script(
            "events.php",
            "<?php require 'GATES';
            header('Content-Type: text/event-stream');
            while (ob_get_level()) ob_end_flush();
            for ($i = 0; $i < 3; $i++) { echo \"data: $i\\n\\n\"; flush(); stand_at(\"event$i\"); }",
        )
        .start();
    for coding in ["identity", "gzip"] {
        let gates = [0, 1, 2].map(|i| fixture.gate(&format!("event{i}")));
        let mut client = ask(
            &fixture,
            &format!("GET /events.php HTTP/1.1\r\nHost: x\r\nAccept-Encoding: {coding}\r\n\r\n"),
        );
        let head = client.read_head().unwrap();
        assert_eq!(
            head.headers.get("Content-Type").unwrap().split(';').next(),
            Some("text/event-stream")
        );
        let mut framing = framing_of("GET", &head).unwrap();
        let mut got = Vec::new();
        for (i, gate) in gates.into_iter().enumerate() {
            let before = got.len();
            let event = format!("data: {i}\n\n");
            while if coding == "identity" {
                !got.ends_with(event.as_bytes())
            } else {
                got.len() == before
            } {
                got.extend(
                    client
                        .read_piece(&mut framing, &mut Headers::default())
                        .unwrap()
                        .unwrap(),
                );
            }
            gate.wait().open();
        }
        while client
            .read_piece(&mut framing, &mut Headers::default())
            .unwrap()
            .is_some()
        {}
    }
}

#[test]
fn fastcgi_finish_request_frees_the_client_while_the_child_stays_busy() {
    let fixture = Fixture::named("finish")
        .children(1)
        .script(
            "finish.php",
            "<?php require 'GATES'; echo 'answered';
            echo fastcgi_finish_request() ? '' : 'failed';
            echo 'never seen'; stand_at('after'); file_put_contents('SCRATCH/done', 'yes');",
        )
        .start();
    let gate = fixture.gate("after");
    let mut client = ask(&fixture, "GET /finish.php HTTP/1.1\r\nHost: x\r\n\r\n");
    let answer = client.read_response("GET").unwrap();
    assert_eq!(answer.text(), "answered");
    assert!(answer.keeps_alive);
    let standing = gate.wait();
    let next = fixture.start_get("/hello.php");
    fixture.wait("the next request to queue behind the busy child", |f| {
        let status = f.status().to_string();
        status.contains("\"Finishing\"") && status.contains("\"queue\":1")
    });
    assert!(!next.is_there());
    standing.open();
    assert_eq!(next.answer().text(), HELLO);
    assert_eq!(
        std::fs::read_to_string(fixture.path("done")).unwrap(),
        "yes"
    );
}

#[test]
fn early_hints_arrive_before_the_answer() {
    let fixture = Fixture::named("hints")
        .script(
            "hints.php",
            "<?php require 'GATES';
            header('Link: </style.css>; rel=preload; as=style');
            headers_send(103);
            stand_at('hinted');
            header_remove('Link');
            echo 'page';",
        )
        .start();
    let gate = fixture.gate("hinted");
    let mut client = ask(&fixture, "GET /hints.php HTTP/1.1\r\nHost: x\r\n\r\n");
    let interim = client.read_head().unwrap();
    assert_eq!(interim.status, 103);
    assert_eq!(
        interim.headers.get("Link"),
        Some("</style.css>; rel=preload; as=style")
    );
    gate.wait().open();
    let answer = client.read_response("GET").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "page"));
    assert_eq!(answer.header("Link"), None);
}

#[test]
fn client_that_expects_100_continue_gets_it_before_it_sends_the_body() {
    let fixture = Fixture::named("continue")
        .script("echo.php", "<?php echo file_get_contents('php://input');")
        .file("page.html", "<p>page</p>")
        .start();
    let mut client = ask(
        &fixture,
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!(client.read_head().unwrap().status, 100);
    client.send("hello").unwrap();
    let answer = client.read_response("POST").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    // The server does not ask a client for a body that no one will read.
    let mut client = ask(
        &fixture,
        "POST /missing.php HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    );
    let answer = client.read_response("POST").unwrap();
    assert_eq!((answer.status(), answer.interim.len()), (404, 0));
}

#[test]
fn chunked_upload_reaches_php_with_its_length() {
    let fixture = Fixture::named("chunked")
        .script(
            "echo.php",
            "<?php echo $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ',
            isset($_SERVER['HTTP_TRANSFER_ENCODING']) ? 'encoded' : 'plain', ' ',
            $_POST['a'] ?? '', ' ', file_get_contents('php://input');",
        )
        .start();
    let mut client = ask(
        &fixture,
        "POST /echo.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n\
         2;ext=1\r\na=\r\n3\r\nyes\r\n0\r\nX-Trailer: 1\r\n\r\n\
         GET /hello.php HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    let answer = client.read_response("POST").unwrap();
    assert_eq!(answer.text(), "5 plain yes a=yes");
    assert_eq!(client.read_response("GET").unwrap().text(), HELLO);
}

#[test]
fn http_1_0_client_gets_an_answer_it_understands() {
    let fixture = Fixture::named("http10").start();
    let mut client = ask(&fixture, "GET /hello.php HTTP/1.0\r\n\r\n");
    let answer = client.read_response("GET").unwrap();
    assert_eq!(answer.text(), HELLO);
    assert_eq!(answer.header("Transfer-Encoding"), None);
    assert!(client.peer_closes());
}
