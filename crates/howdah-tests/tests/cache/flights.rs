//! One render serves many readers, and a page may be served beyond its lifetime. The PHP script of these tests counts
//! its renders.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};

/// The largest number of readers that wait for a page in these tests.
const READERS: usize = 500;

/// Counts its renders, waits at a gate if there is one, and prints a text that can be changed.
const PAGE: &str = r#"<?php require 'GATES';
file_put_contents('SCRATCH/renders', 'x', FILE_APPEND | LOCK_EX);
if (file_exists('SCRATCH/gates/render')) { stand_at('render'); @unlink('SCRATCH/gates/render'); }
if (file_exists('SCRATCH/personal')) setcookie('visitor', bin2hex(random_bytes(8)));
if (file_exists('SCRATCH/broken')) { http_response_code(500); exit('broken'); }
echo 'text=', @file_get_contents('SCRATCH/text');
"#;

fn server(name: &str, lines: &str) -> Fixture {
    Fixture::named(name)
        .children(4)
        .pool("queue_size = 1024")
        .script("page.php", PAGE)
        .site(&format!("cache = \"on\"\n{lines}"))
        .start()
}

fn ask(address: SocketAddr) -> Response {
    let request = "GET /page.php HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{why}"))
}

fn cache_status(answer: &Response) -> String {
    answer.header("Cache-Status").unwrap_or("none").to_owned()
}

fn renders(fixture: &Fixture) -> usize {
    std::fs::read(fixture.path("renders")).map_or(0, |bytes| bytes.len())
}

/// Starts this many readers and waits until the server has received all their requests.
fn crowd(fixture: &Fixture, readers: usize) -> Vec<JoinHandle<Response>> {
    let address = fixture.address();
    let active = |f: &Fixture| f.status()["requests_active"].as_u64().unwrap();
    let before = active(fixture);
    let crowd = (0..readers)
        .map(|_| {
            let thread = std::thread::Builder::new().stack_size(256 << 10);
            thread.spawn(move || ask(address)).expect("a thread")
        })
        .collect();
    fixture.wait("all requests to arrive", |f| {
        active(f) >= before + readers as u64
    });
    crowd
}

#[test]
fn five_hundred_who_ask_for_a_cold_page_cost_one_run_of_the_first_and_one_for_all() {
    let fixture = server("flight-cold", "");
    let gate = fixture.gate("render");
    let crowd = crowd(&fixture, READERS);
    let standing = gate.wait();
    standing.open();
    let mut collapsed = 0;
    for reader in crowd {
        let answer = reader.join().unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.text(), "text=");
        collapsed += usize::from(cache_status(&answer) == "Howdah; fwd=miss; stored; collapsed");
    }
    assert_eq!((renders(&fixture), collapsed), (2, READERS - 2));
    assert!(cache_status(&ask(fixture.address())).starts_with("Howdah; hit"));
}

/// Requests that waited for a page that turns out to be personal run PHP immediately. Later requests do not wait
/// (hit-for-miss), and PHP never runs for the cache.
#[test]
fn waiting_requests_get_their_own_page_if_it_cannot_be_shared() {
    let fixture = server("flight-personal", "");
    fixture.write("personal", "");
    let gate = fixture.gate("render");
    let crowd = crowd(&fixture, 60);
    let standing = gate.wait();
    standing.open();
    let mut cookies = HashSet::new();
    for reader in crowd {
        let answer = reader.join().unwrap();
        assert_eq!(cache_status(&answer), "Howdah; fwd=miss; detail=SetCookie");
        let cookie = answer
            .header("Set-Cookie")
            .expect("a cookie of its own")
            .to_owned();
        assert!(cookies.insert(cookie), "{cookies:?}");
    }
    // Each reader has caused one render.
    assert_eq!(renders(&fixture), 60);
    for n in 1..=3 {
        let answer = ask(fixture.address());
        assert_eq!(cache_status(&answer), "Howdah; fwd=miss; detail=SetCookie");
        assert_eq!(renders(&fixture), 60 + n);
    }
}

#[test]
fn stale_page_is_served_at_once_while_one_render_replaces_it() {
    let fixture = server("flight-grace", "cache_grace = \"1h\"");
    fixture.write("text", "old");
    ask(fixture.address());
    assert_eq!(
        cache_status(&ask(fixture.address())),
        "Howdah; fwd=miss; stored"
    );
    fixture.write("text", "new");
    let gate = fixture.gate("render");
    assert!(
        fixture
            .control(&["cache", "purge", "--soft", "--all"])
            .status
            .success()
    );
    for _ in 0..5 {
        let answer = ask(fixture.address());
        let stale = (answer.text(), answer.header("X-Cache").map(str::to_owned));
        assert!(
            stale.0 == "text=old" && stale.1.is_some_and(|x| x != "MISS" && x != "PASS"),
            "{:?}",
            answer.head
        );
    }
    let standing = gate.wait();
    standing.open();
    fixture.wait("the new page", |f| ask(f.address()).text() == "text=new");
    assert_eq!(renders(&fixture), 3);
}

#[test]
fn page_outlives_the_failure_of_its_script_but_not_a_write() {
    let lines = "cache_grace = \"0s\"\ncache_stale_if_error = \"1h\"";
    let fixture = server("flight-error", lines);
    fixture.write("text", "good");
    ask(fixture.address());
    assert_eq!(
        cache_status(&ask(fixture.address())),
        "Howdah; fwd=miss; stored"
    );
    fixture.write("broken", "");
    assert!(
        fixture
            .control(&["cache", "purge", "--soft", "--all"])
            .status
            .success()
    );
    for _ in 0..3 {
        let answer = ask(fixture.address());
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (200, "text=good")
        );
    }
    std::fs::remove_file(fixture.path("broken")).unwrap();
    fixture.write("text", "better");
    assert_eq!(ask(fixture.address()).text(), "text=better");
    let post = "POST /page.php HTTP/1.1\r\nHost: example.org\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    exchange(fixture.address(), post.as_bytes()).unwrap();
    fixture.write("broken", "");
    assert_eq!(
        ask(fixture.address()).status(),
        500,
        "the stored page is older than the write"
    );
}

/// Writes only if the server renders the page for the cache: the client of such a render has the address 192.0.2.1.
/// After the write, the script waits at a gate.
const WRITING_RENDER: &str = r#"<?php
if ($_SERVER['REMOTE_ADDR'] === '192.0.2.1') {
    $db = new PDO('sqlite:SCRATCH/render.sqlite');
    $db->exec('CREATE TABLE IF NOT EXISTS visits (at INTEGER)');
    $db->exec('INSERT INTO visits VALUES (1)');
    // The server learns of the write with the first output.
    echo 'begun';
    flush();
    require 'GATES';
    stand_at('written');
    for ($n = 0; $n < 100; $n++) { echo str_repeat('x', 10000); flush(); }
    file_put_contents('SCRATCH/finished', 'x');
}
echo 'the page';
"#;

#[test]
fn render_that_writes_is_not_stored_and_continues_to_its_end() {
    let fixture = Fixture::named("cache-writing-render")
        .children(4)
        .script("page.php", WRITING_RENDER)
        .site("cache = \"on\"")
        .start();
    assert_eq!(fixture.get("/page.php").text(), "the page");
    let gate = fixture.gate("written");
    let visitor = fixture.start_get("/page.php");
    let standing = gate.wait();
    // The visitor gets the response of another run, and does not wait for the render.
    let own = visitor.answer();
    assert_eq!((own.status(), own.text().as_str()), (200, "the page"));
    let status = own.header("Cache-Status").unwrap_or_default();
    assert!(status.contains("DatabaseWrite"), "{status}");
    assert!(!fixture.path("finished").exists());
    standing.open();
    fixture.wait("the end of the render", |f| f.path("finished").exists());
}
