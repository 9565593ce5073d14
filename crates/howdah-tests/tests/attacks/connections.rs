//! Clients that take all connections, or keep connections open without sending anything, and a front that can open no
//! more descriptors.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http::Connection;

/// The limit of connections: three quarters of the limit of descriptors that `with_few_connections` sets.
const LIMIT: usize = 192;

/// Starts a server whose limit of connections is low, and whose timeouts free no connection within the duration of
/// these tests.
fn with_few_connections(name: &str) -> Fixture {
    Fixture::named(name)
        .through(&["prlimit", "--nofile=256:256"])
        .config("[timeouts]\nheader = \"10m\"\nkeepalive = \"10m\"\nbody = \"10m\"")
        .start()
}

/// Checks that a request on a new connection gets its response.
fn a_new_visitor_is_answered(fixture: &Fixture) {
    let answer = fixture.get("/hello.php");
    assert_eq!((answer.status(), answer.text().as_str()), (200, HELLO));
}

fn ask(visitor: &mut Connection) {
    visitor
        .send("GET /hello.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let answer = visitor.read_response("GET").unwrap();
    assert_eq!((answer.status(), answer.text().as_str()), (200, HELLO));
}

/// The ways in which `crowd` holds a connection.
const WAYS: [&[u8]; 5] = [
    b"",
    b"G",
    b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ",
    // The request was refused, but the connection is still open: the server waits for the client to close it.
    b"GET / HTTP/9.9\r\n\r\n",
    // The request got its response, although its body never arrives.
    b"POST /nothing.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n",
];

fn crowd(fixture: &Fixture, number: usize) -> TcpStream {
    let mut stream = TcpStream::connect(fixture.address()).unwrap();
    stream.write_all(WAYS[number % WAYS.len()]).unwrap();
    stream
}

#[test]
fn connections_that_owe_a_request_keep_no_visitor_out() {
    let fixture = with_few_connections("silent-crowd");
    let mut held: Vec<TcpStream> = (0..3 * LIMIT).map(|n| crowd(&fixture, n)).collect();
    for number in 0..40 {
        a_new_visitor_is_answered(&fixture);
        held.push(crowd(&fixture, number));
        held.push(crowd(&fixture, number + 1));
    }
    let open = fixture.status()["connections"]["open"].as_u64().unwrap();
    assert!(open <= LIMIT as u64 + 8, "{open} connections are open");
}

#[test]
fn crowd_of_new_connections_closes_none_of_an_active_visitor() {
    let fixture = with_few_connections("crowd-and-visitor");
    let mut visitors: Vec<Connection> = (0..4)
        .map(|_| Connection::open(fixture.address()).unwrap())
        .collect();
    let mut held = Vec::new();
    for round in 0..60 {
        visitors.iter_mut().for_each(ask);
        // There are fewer than the limit allows, so a visitor is never the client that has been silent for longest.
        held.extend((0..10).map(|n| crowd(&fixture, round + n)));
    }
    visitors.iter_mut().for_each(ask);
    let kept = |stream: &mut TcpStream| {
        stream
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let mut answer = [0; 1024];
        loop {
            match stream.read(&mut answer) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(e) => return e.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    };
    let gone = held.iter_mut().filter_map(|s| (!kept(s)).then_some(()));
    assert!(
        gone.count() >= 600 - LIMIT,
        "connections that owe a request should have been closed to make room"
    );
}

/// Sets the soft limit of the descriptors that a process may have, and returns the previous one.
fn limit_descriptors(pid: i32, limit: &str) -> String {
    let prlimit = |words: &[&str]| {
        let mut command = std::process::Command::new("prlimit");
        let output = command
            .args(["--pid", &pid.to_string()])
            .args(words)
            .output();
        let output = output.expect("prlimit");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("numbers")
    };
    let before = prlimit(&["--nofile", "--raw", "--noheadings", "--output=SOFT"]);
    prlimit(&[&format!("--nofile={limit}:")]);
    before.trim().to_owned()
}

#[test]
fn front_without_free_descriptors_is_logged_and_accepts_when_there_are_some() {
    let fixture = Fixture::named("no-descriptors").start();
    let mut visitor = Connection::open(fixture.address()).unwrap();
    ask(&mut visitor);
    let limit = limit_descriptors(fixture.front(), "3");
    let late = fixture.start_get("/hello.php");
    fixture.wait_for_log(&["AcceptFailed", "RLIMIT_NOFILE"]);
    ask(&mut visitor);
    limit_descriptors(fixture.front(), &limit);
    let answer = late.answer();
    assert_eq!((answer.status(), answer.text().as_str()), (200, HELLO));
}
