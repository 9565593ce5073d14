//! A client that makes the front keep far more than it sends, in memory or on disk.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::Connection;
use howdah_tests::process_tree;

/// Resident memory of the front, KiB.
fn front_memory(fixture: &Fixture) -> u64 {
    process_tree::memory(fixture.front(), "Rss").expect("the front is there")
}

/// Clients that have begun to send a body of `length` bytes.
fn uploads(fixture: &Fixture, clients: usize, length: usize) -> Vec<Connection> {
    let begin = |_| {
        let mut client = Connection::open(fixture.address()).unwrap();
        client.stream().set_nodelay(true).unwrap();
        client
            .send(format!(
                "POST /hello.php HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\
                 Content-Length: {length}\r\n\r\n"
            ))
            .unwrap();
        client
    };
    (0..clients).map(begin).collect()
}

#[test]
fn a_body_byte_by_byte_takes_no_more_memory_than_a_body_at_once() {
    const CLIENTS: usize = 100;
    const BYTES: usize = 500;
    let fixture = Fixture::named("drip").file("a.txt", "a").start();
    // Several, so that each thread of the front serves one.
    let visitors = || Connection::open(fixture.address()).unwrap();
    let mut visitors: Vec<Connection> = (0..6).map(|_| visitors()).collect();
    let mut visit = || {
        for visitor in &mut visitors {
            visitor
                .send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            assert_eq!(visitor.read_response("GET").unwrap().text(), "a");
        }
    };
    visit();
    let before = front_memory(&fixture);
    let mut clients = uploads(&fixture, CLIENTS, 60_000);
    for _ in 0..BYTES {
        for client in &mut clients {
            client.send("x").unwrap();
        }
        // An event loop that has answered has read what came before: each byte is a read of its own.
        visit();
    }
    let grown = front_memory(&fixture).saturating_sub(before);
    // 50 kB were sent; a connection takes some pages of its own.
    assert!(
        grown < 4 << 10,
        "the front grew by {grown} KiB for {} bytes of bodies",
        CLIENTS * BYTES
    );
}
