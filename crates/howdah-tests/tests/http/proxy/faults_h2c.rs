//! HTTP/2 upstream servers that declare wrong lengths, speak another protocol, never end a header section, or do not
//! process a request.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{self, Connection};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Encodes a frame (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let head = [&length.to_be_bytes()[1..], &[kind, flags, 0, 0, 0, stream]].concat();
    [&head, payload].concat()
}

/// Encodes `:status: 200`, and a `content-length` of one digit: entries 8 and 28 of HPACK's table.
fn fields(length: u8) -> [u8; 5] {
    [0x88, 0x0f, 28 - 15, 1, b'0' + length]
}

/// Reads the bytes that precede a client's frames. Returns false if they do not come.
fn reads_preface(stream: &mut TcpStream) -> bool {
    stream.read_exact(&mut [0; 24]).is_ok()
}

/// Reads up to the headers of the next request. Returns false if there is no request.
fn reads_to_headers(stream: &mut TcpStream) -> bool {
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).is_err() {
            return false;
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if stream.read_exact(&mut payload).is_err() {
            return false;
        }
        if head[3] == HEADERS {
            return true;
        }
    }
}

/// Starts a server that sends `first` immediately and `answer` in response to a request, and then repeats `again`,
/// unless it is empty.
fn serve(first: Vec<u8>, answer: Vec<u8>, again: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (first, answer, again) = (first.clone(), answer.clone(), again.clone());
            std::thread::spawn(move || {
                let _ = stream.write_all(&first);
                if reads_preface(&mut stream) && reads_to_headers(&mut stream) {
                    let _ = stream.write_all(&answer);
                    while !again.is_empty() && stream.write_all(&again).is_ok() {}
                    let _ = stream.read(&mut [0; 4096]);
                    while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
                }
            });
        }
    });
    port
}

#[test]
fn server_of_http_2_that_lies_is_named_and_its_client_sees_it() {
    let settings = frame(SETTINGS, 0, 0, b"");
    let head = |length| frame(HEADERS, END_HEADERS, 1, &fields(length));
    let body = |text: &[u8]| frame(DATA, END_STREAM, 1, text);
    let endless = frame(CONTINUATION, 0, 1, &[0x0f, 0, 1, b'x', 0].repeat(200));
    let none = Vec::new;
    for (what, first, answer, again, name) in [
        (
            "less than announced",
            settings.clone(),
            [head(9), body(b"only")].concat(),
            none(),
            "BackendInvalid",
        ),
        (
            "more than announced",
            settings.clone(),
            [head(2), body(b"too much")].concat(),
            none(),
            "BackendInvalid",
        ),
        (
            "a body without a head",
            settings.clone(),
            body(b"x"),
            none(),
            "BackendInvalid",
        ),
        (
            "a head without an end",
            settings.clone(),
            frame(HEADERS, 0, 1, &fields(1)),
            endless,
            "BackendInvalid",
        ),
        (
            "HTTP/1.1",
            none(),
            b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec(),
            none(),
            "BackendInvalid",
        ),
        ("nothing", none(), none(), none(), "BackendTimeout"),
    ] {
        let port = serve(first, answer, again);
        let fixture = Fixture::named("proxy-h2c-liar")
            .site(&format!(
                "[[site.rule]]\nif_missing = true\nproxy = \"h2c://127.0.0.1:{port}\"\nproxy_timeout = \"1s\""
            ))
            .start();
        let request = b"GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        if let Ok(answer) = http::exchange(fixture.address(), request) {
            let shown = (answer.status(), answer.header("Howdah-Error"));
            assert!(shown.0 >= 500 && shown.1 == Some(name), "{what}: {shown:?}");
        }
        fixture.wait_for_log(&[name]);
        fixture.still_serves();
    }
}

/// Returns the response to the first request of a connection: 200 with two bytes.
fn first_response() -> Vec<u8> {
    let body = frame(DATA, END_STREAM, 1, b"ok");
    [frame(HEADERS, END_HEADERS, 1, &fields(2)), body].concat()
}

/// Starts a server that sends these bytes in response to the first, second, … request of each connection, and then
/// closes the connection. `answers` gets the number of the connection, from 0.
fn serve_in_turn(answers: impl Fn(usize) -> Vec<Vec<u8>> + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().map_while(Result::ok).enumerate() {
            let (mut stream, answers) = (stream, answers(number));
            std::thread::spawn(move || {
                let _ = stream.write_all(&frame(SETTINGS, 0, 0, b""));
                let mut goes_on = reads_preface(&mut stream);
                for answer in answers {
                    goes_on = goes_on && reads_to_headers(&mut stream);
                    goes_on = goes_on && stream.write_all(&answer).is_ok();
                }
            });
        }
    });
    port
}

#[test]
fn request_that_is_refused_on_a_new_connection_is_sent_again_once() {
    let refusal = || frame(RST_STREAM, 0, 1, &[0, 0, 0, 7]);
    for (refusals, status) in [(1, 200), (2, 502)] {
        let port = serve_in_turn(move |number| match number < refusals {
            true => vec![refusal()],
            false => vec![first_response()],
        });
        let fixture = Fixture::named("proxy-h2c-refused")
            .site(&format!(
                "[[site.rule]]\nif_missing = true\nproxy = \"h2c://127.0.0.1:{port}\""
            ))
            .start();
        let request = b"DELETE /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let answer = http::exchange(fixture.address(), request).expect("a response");
        assert_eq!(answer.status(), status, "after {refusals} refusals");
    }
}

#[test]
fn request_that_a_server_of_http_2_did_not_process_is_sent_again() {
    let (get, delete) = ("GET /x", "DELETE /x");
    let post = "POST /x";
    for (what, second, repeated, not_repeated) in [
        (
            "a refused stream",
            frame(RST_STREAM, 0, 3, &[0, 0, 0, 7]),
            &[get, delete][..],
            &[post][..],
        ),
        (
            "a GOAWAY before the stream",
            frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]),
            &[get, delete],
            &[post],
        ),
        (
            "the end of the connection",
            Vec::new(),
            &[get],
            &[delete, post],
        ),
    ] {
        let port = serve_in_turn(move |_| vec![first_response(), second.clone()]);
        let fixture = Fixture::named("proxy-h2c-unprocessed")
            .site(&format!(
                "[[site.rule]]\nif_missing = true\nproxy = \"h2c://127.0.0.1:{port}\"\nproxy_timeout = \"10s\""
            ))
            .start();
        // All requests of a connection are handled by the same thread, so they use the same connection to the server.
        let status_of_second = |line: &str| {
            let mut client = Connection::open(fixture.address()).expect("a connection");
            let body = if line == post {
                "Content-Length: 1\r\n\r\nx"
            } else {
                "\r\n"
            };
            let request = format!("{line} HTTP/1.1\r\nHost: h\r\n{body}");
            for part in ["GET /x HTTP/1.1\r\nHost: h\r\n\r\n", &request] {
                client.send(part).expect("the request is sent");
            }
            let first = client.read_response("GET").expect("a response");
            assert_eq!(first.status(), 200, "{what}");
            client.read_response("GET").expect("a response").status()
        };
        for line in repeated {
            assert_eq!(status_of_second(line), 200, "{line} after {what}");
        }
        for line in not_repeated {
            assert_eq!(status_of_second(line), 502, "{line} after {what}");
        }
        fixture.still_serves();
    }
}
