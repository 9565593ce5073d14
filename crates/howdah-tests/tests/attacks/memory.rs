//! Clients that try to fill the front's memory, or the disk with its files: with headers and bodies that they never
//! finish, and with responses that they do not read.

use howdah_tests::fixture::Fixture;
use howdah_tests::http::Connection;
use howdah_tests::http2::{Http2Frames, headers};
use howdah_tests::process_tree;

/// Returns the resident memory of the front, in KiB.
fn front_memory(fixture: &Fixture) -> u64 {
    process_tree::memory(fixture.front(), "Rss").expect("the front is there")
}

/// Opens connections on which the headers of a request with a body of `length` bytes have been sent.
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
fn body_byte_by_byte_takes_no_more_memory_than_a_body_at_once() {
    const CLIENTS: usize = 100;
    const BYTES: usize = 500;
    let fixture = Fixture::named("drip").file("a.txt", "a").start();
    // There are several visitors, so that each thread of the front very probably serves one.
    let open = |_| Connection::open(fixture.address()).unwrap();
    let mut visitors: Vec<Connection> = (0..6).map(open).collect();
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
        // A front thread that has sent a response has also read everything that arrived before. So the front reads each
        // byte separately.
        visit();
    }
    let grown = front_memory(&fixture).saturating_sub(before);
    // The bodies are 50 kB in total, and each connection occupies some pages of its own.
    assert!(
        grown < 4 << 10,
        "the front grew by {grown} KiB for {} bytes of bodies",
        CLIENTS * BYTES
    );
}

/// Returns the size of the unnamed files that the front has open, in bytes.
fn spilled(fixture: &Fixture) -> u64 {
    let open = std::fs::read_dir(format!("/proc/{}/fd", fixture.front())).expect("the front");
    open.flatten()
        .filter(|entry| {
            std::fs::read_link(entry.path()).is_ok_and(|to| {
                let to = to.display().to_string();
                to.contains("/spill/") && to.ends_with(" (deleted)")
            })
        })
        .filter_map(|entry| std::fs::metadata(entry.path()).ok())
        .map(|file| file.len())
        .sum()
}

#[test]
fn bodies_on_disk_stay_within_the_total_limit() {
    let builder = Fixture::named("spill-total");
    builder.scratch().writable_dir("spill");
    let fixture = builder
        .config("[limits]\nspill_directory = \"SCRATCH/spill\"\nspill_total = \"20M\"")
        .start();
    // Each client sends 8 MB of a body of one gigabyte, whose rest never arrives.
    let piece = vec![b'x'; 8 << 20];
    let mut clients = uploads(&fixture, 4, 1 << 30);
    for client in &mut clients {
        // This may fail, because a refused client is disconnected some time later.
        let _ = client.send(&piece);
    }
    let refused = |client: &mut Connection| {
        let ready = client.stream().set_nonblocking(true);
        ready.and_then(|()| client.stream().peek(&mut [0])).is_ok()
    };
    fixture.wait("two of four to be refused", |_| {
        clients
            .iter_mut()
            .filter_map(|client| refused(client).then_some(()))
            .count()
            == 2
    });
    fixture.wait("the files of the others to be written", |f| {
        spilled(f) >= 16 << 20
    });
    let on_disk = spilled(&fixture);
    assert!(on_disk <= 20 << 20, "{on_disk} bytes");
    for client in &mut clients {
        if refused(client) {
            client.stream().set_nonblocking(false).unwrap();
            let answer = client.read_response("POST").unwrap();
            let error = answer.header("Howdah-Error");
            assert_eq!((answer.status(), error), (503, Some("SpillFull")));
        }
    }
    fixture.still_serves();
    drop(clients);
    fixture.wait("the files to be gone", |f| spilled(f) == 0);
    let mut client = uploads(&fixture, 1, piece.len()).remove(0);
    client.send(&piece).unwrap();
    assert_eq!(client.read_response("POST").unwrap().status(), 200);
}

/// Opens connections on which `begin` and then `bytes` more bytes have been sent. The requests are never completed.
fn beginnings(fixture: &Fixture, clients: usize, begin: &str, bytes: usize) -> Vec<Connection> {
    let rest = "x".repeat(bytes);
    let begin = |_| {
        let mut client = Connection::open(fixture.address()).unwrap();
        // This may fail, because a refused client is disconnected some time later.
        let _ = client.send(begin).and_then(|()| client.send(&rest));
        client
    };
    (0..clients).map(begin).collect()
}

const HEAD: &str = "GET /hello.php HTTP/1.1\r\nHost: x\r\nX-Long: ";
const BODY: &str = "POST /hello.php HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n\
                    Content-Length: 65000\r\n\r\n";

#[test]
fn unfinished_heads_and_bodies_stay_within_the_memory_limit_and_visitors_are_served() {
    for (name, begin, bytes) in [("heads", HEAD, 31_000), ("bodies", BODY, 64_000)] {
        let builder = Fixture::named(&format!("memory-limit-{name}"));
        builder.scratch().writable_dir("spill");
        let fixture = builder
            .config("[limits]\nspill_directory = \"SCRATCH/spill\"\nmemory = \"32M\"")
            .start();
        fixture.still_serves();
        let before = front_memory(&fixture);
        // 32 MiB of memory allow 1024 connections, so no client is refused because of their number.
        let clients = beginnings(&fixture, 900, begin, bytes);
        fixture.still_serves();
        let grown = front_memory(&fixture).saturating_sub(before);
        assert!(grown < 32 << 10, "{name}: the front grew by {grown} KiB");
        drop(clients);
        fixture.still_serves();
    }
}

#[test]
fn front_survives_slow_clients_when_its_address_space_is_limited() {
    // `auto` might allow fewer connections than the test opens. With 5000, only the limit on memory applies.
    let builder = Fixture::named("ulimit").config("[limits]\nconnections = 5000");
    let fixture = builder
        .through(&["sh", "-c", "ulimit -v 400000 && exec \"$0\" \"$@\""])
        .start();
    let front = fixture.front();
    let clients = beginnings(&fixture, 3000, BODY, 64_000);
    let answer = fixture.get("/hello.php");
    let error = answer.header("Howdah-Error");
    assert!(
        matches!(
            (answer.status(), error),
            (200, None) | (503, Some("MemoryLimit"))
        ),
        "{} {error:?}",
        answer.status()
    );
    assert_eq!(
        fixture.front(),
        front,
        "the front should still be the same process"
    );
    drop(clients);
    fixture.wait("visitors to be served again", |f| {
        f.get("/hello.php").status() == 200
    });
}

#[test]
fn memory_of_slow_clients_is_released() {
    let fixture = Fixture::named("memory-released").start();
    fixture.still_serves();
    let before = front_memory(&fixture);
    let clients = beginnings(&fixture, 1000, BODY, 64_000);
    let grown = || front_memory(&fixture).saturating_sub(before);
    fixture.wait("bodies to be in memory", |_| grown() > 50 << 10);
    drop(clients);
    fixture.wait("most of the memory to be released", |_| grown() < 25 << 10);
}

/// Opens HTTP/2 connections with 100 streams each. Every stream requests a page of 70 kB, and its window is closed.
fn closed_windows(fixture: &Fixture, clients: usize) -> Vec<Http2Frames> {
    let ask = |_| {
        const INITIAL_WINDOW_SIZE: u16 = 4;
        let mut frames = Http2Frames::open(fixture.address(), &[(INITIAL_WINDOW_SIZE, 0)]);
        let request = |n: u32| headers(2 * n + 1, "GET", "/page.php", true);
        let _ = frames.send((0..100).flat_map(request).collect::<Vec<u8>>());
        frames
    };
    (0..clients).map(ask).collect()
}

fn pages(name: &str, limits: &str) -> Fixture {
    let builder = Fixture::named(name);
    builder.scratch().writable_dir("spill");
    builder
        .h2c()
        .script("page.php", "<?php echo random_bytes(70000);")
        .config(&format!(
            "[limits]\nspill_directory = \"SCRATCH/spill\"\nmemory = \"48M\"\n{limits}"
        ))
        .start()
}

fn rendered_pages(fixture: &Fixture) -> Option<u64> {
    fixture.status()["pools"][0]["accepted_requests"].as_u64()
}

#[test]
fn unread_pages_go_to_files_when_memory_is_short() {
    let fixture = pages("closed-windows", "");
    let clients = closed_windows(&fixture, 10);
    fixture.wait("all pages to be rendered", |f| {
        rendered_pages(f) >= Some(1000)
    });
    // The front holds 70 MB for the clients.
    fixture.wait("most pages to be in files", |f| spilled(f) > 35_000_000);
    fixture.still_serves();
    drop(clients);
    fixture.wait("the files to be gone", |f| spilled(f) == 0);
}

#[test]
fn clients_that_hold_most_memory_are_disconnected_when_memory_is_full() {
    // Without files, the only way to free memory is to disconnect clients.
    let fixture = pages("full", "response_spill = 0");
    let clients = closed_windows(&fixture, 10);
    fixture.wait("most pages to be rendered", |f| {
        rendered_pages(f) >= Some(450)
    });
    fixture.wait("clients to be disconnected", |f| {
        f.log().contains("ClientTooSlow")
    });
    fixture.wait("visitors to be served", |f| {
        f.get("/hello.php").status() == 200
    });
    drop(clients);
}
