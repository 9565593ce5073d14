//! A client that fills a pool's queue delays only its own requests: other clients are served in turn.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::Connection;
use howdah_tests::http2::{Http2Frames, headers};

/// The number of connections of the client that fills the queue. Each has [`STREAMS`] streams.
const CONNECTIONS: usize = 3;
const STREAMS: u32 = 100;

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn one_client_fills_the_queue_and_others_are_served_in_turn() {
    for mode in ["embed", "pool", "cgi"] {
        served_in_turn(mode);
    }
}

fn served_in_turn(mode: &str) {
    let runs = "<?php $runs = fopen(__DIR__ . '/runs', 'a'); fwrite($runs, 'x');";
    let fixture = Fixture::named(&format!("queue-{mode}"))
        .h2c()
        .children(1)
        .file("runs", "")
        .script("slow.php", &format!("{runs} usleep(20000);"))
        .script("visit.php", "<?php echo filesize(__DIR__ . '/runs');")
        .pool(&format!(
            "mode = \"{mode}\"\nqueue_size = 200\nqueue_timeout = \"60s\""
        ))
        .start();
    let attackers: Vec<Http2Frames> = (0..CONNECTIONS)
        .map(|_| {
            let mut frames = Http2Frames::open(fixture.address(), &[]);
            let request = |n| headers(2 * n + 1, "GET", "/slow.php", true);
            assert!(frames.send((0..STREAMS).flat_map(request).collect::<Vec<u8>>()));
            frames
        })
        .collect();
    let queue = |f: &Fixture| f.status()["pools"][0]["queue"].as_u64().unwrap();
    fixture.wait("the queue to be full", |f| queue(f) >= 190);
    let before: u64 = fixture.get("/runs").text().len() as u64;
    // The visitor has another address than the client that sends the frames.
    let mut visitor = Connection::open(fixture.address()).unwrap();
    visitor
        .send("GET /visit.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let response = visitor.read_response("GET").unwrap();
    assert_eq!(response.status(), 200, "{mode}: {}", response.text());
    let ran: u64 = response.text().parse().unwrap();
    // The only requests that run before the visitor's are the one that is already running and those that have been
    // offered to the pool in advance. These are far fewer than the two hundred that wait.
    assert!(
        ran - before < 50,
        "{mode}: {} requests of the other client ran first",
        ran - before
    );
    assert!(
        queue(&fixture) > 0,
        "{mode}: requests of the other client should still wait"
    );
    drop(attackers);
}
