//! `howdah upgrade`: the server continues as the program that is now installed. No request is lost, no visitor waits
//! for the requests of others, and no page is older than an acknowledged write, whichever program wrote.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http::Response;
use howdah_tests::http2::Http2Request;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::process_tree::{self, ProcessEntry};
use rustix::process::Signal;

/// Returns the output of a command.
fn output_text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

/// Upgrades, and returns when the new front serves requests.
fn upgrade(fixture: &Fixture) {
    let output = fixture.control(&["upgrade"]);
    assert!(
        output.status.success(),
        "{}{}",
        output_text(&output),
        fixture.howdah.process.log()
    );
}

/// Returns the existing fronts: the master's children that are not PHP processes.
fn fronts(fixture: &Fixture) -> Vec<i32> {
    let ours = |entry: &ProcessEntry| entry.parent == fixture.master() && entry.program == "howdah";
    let all = fixture.processes();
    all.iter()
        .filter(|entry| ours(entry))
        .map(|entry| entry.pid)
        .collect()
}

fn wait_for_one_front(fixture: &Fixture) {
    fixture.wait("the previous front to exit", |fixture| {
        fronts(fixture).len() == 1
    });
}

#[test]
fn upgrades_under_load_lose_no_request() {
    let fixture = Fixture::named("upgrade-load")
        .children(2)
        .file("hello.txt", HELLO)
        .start();
    let master = fixture.master();
    let php = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(6)
        .start(LoadEnd::OnFinish);
    let files = Load::new(fixture.address(), "/hello.txt", HELLO)
        .clients(2)
        .start(LoadEnd::OnFinish);
    let over = Arc::new(AtomicBool::new(false));
    let (address, is_over) = (fixture.address(), over.clone());
    let slow = std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(ask_after_a_while(address), HELLO);
        }
    });
    for _ in 0..8 {
        let before = fronts(&fixture);
        upgrade(&fixture);
        php.wait_for(50);
        files.wait_for(50);
        fixture.wait("the previous front to exit", |fixture| {
            before.iter().all(|pid| !fronts(fixture).contains(pid))
        });
    }
    over.store(true, Ordering::Relaxed);
    slow.join().expect("every new connection gets its response");
    let (php, files) = (php.finish(), files.finish());
    println!("PHP: {php}; files: {files}");
    php.only(&["200"]);
    files.only(&["200"]);
    assert_eq!(
        fixture.master(),
        master,
        "the master is still the same process"
    );
    fixture.wait("one pool only", |f| f.zygotes().len() == 1);
}

/// Connects, and sends its request a moment later, as distant clients do. A front that exits in the meantime must still
/// handle the request. Returns the body of the response.
fn ask_after_a_while(address: SocketAddr) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let request = b"GET /hello.txt HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    connection.write_all(request).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    body.to_owned()
}

#[test]
fn upgrade_finishes_running_requests_without_delaying_others() {
    let fixture = Fixture::named("upgrade-slow").children(2).start();
    let before = fronts(&fixture);
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    upgrade(&fixture);
    assert_eq!(fixture.get("/hello.php").text(), HELLO);
    let both = fronts(&fixture);
    assert!(both.len() == 2 && both.contains(&before[0]), "{both:?}");
    // Upgrades again while the first front still finishes its requests.
    upgrade(&fixture);
    assert_eq!(fixture.get("/hello.php").text(), HELLO);
    assert!(fronts(&fixture).contains(&before[0]));
    assert!(!held.is_there(), "the request is still running");
    standing.open();
    assert_eq!(held.answer().text(), "released");
    wait_for_one_front(&fixture);
}

#[test]
fn commands_are_answered_by_either_program() {
    let fixture = Fixture::named("upgrade-commands")
        .site("cache = \"on\"")
        .start();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = |words: &'static [&'static str]| {
            let (fixture, over) = (&fixture, &over);
            scope.spawn(move || {
                let mut count = 0;
                while !over.load(Ordering::Relaxed) {
                    let output = fixture.control(words);
                    assert!(
                        output.status.success(),
                        "{words:?}: {}",
                        output_text(&output)
                    );
                    count += 1;
                }
                count
            })
        };
        let all = [ask(&["status"]), ask(&["cache", "purge", "--all"])];
        for _ in 0..6 {
            upgrade(&fixture);
        }
        over.store(true, Ordering::Relaxed);
        for asked in all {
            println!(
                "{} answers",
                asked.join().expect("each command is answered")
            );
        }
    });
}

#[test]
fn new_program_that_finds_mistakes_changes_nothing() {
    let fixture = Fixture::named("upgrade-refused")
        .pool("request_terminate_timeout = \"60s\"")
        .start();
    let config = fixture.howdah.directory().join("howdah.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    let front = fronts(&fixture);
    std::fs::write(&config, "lisen = \"127.0.0.1:1\"\n").unwrap();
    let output = fixture.control(&["upgrade"]);
    let text = output_text(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    for word in [
        "howdah.toml:1",
        "lisen",
        "listen",
        "the previous program continues to serve",
    ] {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    std::fs::write(&config, good).unwrap();
    assert_eq!(fronts(&fixture), front);
    fixture.still_serves();
    // The failed upgrade has no lasting effect.
    upgrade(&fixture);
    wait_for_one_front(&fixture);
    assert_ne!(fronts(&fixture), front);
    // A reload and a stop work on the server as before.
    fixture.reload();
    fixture.still_serves();
    let output = fixture.control(&["stop"]);
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
fn signal_upgrades_and_a_stop_ends_both_fronts() {
    let mut fixture = Fixture::named("upgrade-signal").children(2).start();
    let before = fronts(&fixture);
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    signal(fixture.master(), Signal::USR2);
    fixture.wait("the new front", |fixture| {
        fronts(fixture).len() == 2 && fixture.howdah.process.log().contains("upgraded: ")
    });
    let after = fronts(&fixture);
    signal(fixture.master(), Signal::QUIT);
    standing.open();
    assert_eq!(held.answer().text(), "released");
    let ended = fixture
        .howdah
        .process
        .wait_exit(Duration::from_secs(20))
        .unwrap();
    assert!(ended.success(), "{ended}");
    for pid in before.iter().chain(&after) {
        assert!(!process_tree::is_alive(*pid));
    }
}

#[test]
fn front_that_dies_during_an_upgrade_is_started_again() {
    let fixture = Fixture::named("upgrade-crash").children(2).start();
    let gate = fixture.gate("held");
    let held = fixture.start_get("/hold.php?gate=held");
    let standing = gate.wait();
    let before = fronts(&fixture);
    upgrade(&fixture);
    let new = fronts(&fixture)
        .into_iter()
        .find(|pid| !before.contains(pid))
        .unwrap();
    signal(new, Signal::KILL);
    fixture.wait("another front", |fixture| {
        let now = fronts(fixture);
        now.len() == 2 && !now.contains(&new)
    });
    assert_eq!(fixture.get("/hello.php").text(), HELLO);
    standing.open();
    assert_eq!(held.answer().text(), "released");
    wait_for_one_front(&fixture);
    fixture.still_serves();
}

/// A page from a database, which `?write=TEXT&gate=NAME` changes when the gate is opened.
const PAGE: &str = r#"<?php
require 'GATES';
$db = new PDO('sqlite:DATABASE');
if (isset($_GET['write'])) {
    if (isset($_GET['gate'])) stand_at($_GET['gate']);
    $db->prepare('UPDATE page SET text = ?')->execute([$_GET['write']]);
    echo 'written';
    return;
}
echo $db->query('SELECT text FROM page')->fetchColumn();
"#;

/// Returns the page as a visitor sees it, and whether it came from the cache.
fn read(fixture: &Fixture) -> (String, bool) {
    let page = fixture.get("/page.php");
    let is_hit = |page: &Response| {
        page.header("Cache-Status")
            .is_some_and(|s| s.contains("hit"))
    };
    (page.text().to_owned(), is_hit(&page))
}

fn read_until_stored(fixture: &Fixture) -> String {
    let mut last = String::new();
    fixture.wait("the page to be stored", |fixture| {
        let (text, is_hit) = read(fixture);
        last = text;
        is_hit
    });
    last
}

#[test]
fn no_page_is_older_than_what_the_program_before_has_written() {
    for disk in ["", "[cache]\npath = \"SCRATCH/pages\"\n"] {
        let builder = Fixture::named("upgrade-writes").children(4);
        let database = builder.scratch().writable_dir("db").join("page.sqlite");
        builder.scratch().writable_dir("pages");
        let fixture = builder
            .script(
                "page.php",
                &PAGE.replace("DATABASE", &database.display().to_string()),
            )
            .config(disk)
            .site("cache = \"on\"")
            .start();
        let code = format!(
            "(new PDO('sqlite:{}'))->exec(\"CREATE TABLE page (text); INSERT INTO page VALUES ('first')\");",
            database.display()
        );
        let output = fixture.control(&["php", "-r", &code]);
        assert!(output.status.success(), "{}", output_text(&output));
        assert_eq!(read_until_stored(&fixture), "first");
        let gate = fixture.gate("write");
        let writer = fixture.start_get("/page.php?write=second&gate=write");
        let standing = gate.wait();
        let gate = fixture.gate("held");
        let held = fixture.start_get("/hold.php?gate=held");
        let other = gate.wait();
        upgrade(&fixture);
        // The new front stores pages while the old one still runs scripts.
        assert_eq!(read_until_stored(&fixture), "first");
        standing.open();
        assert_eq!(writer.answer().text(), "written");
        assert_eq!(read(&fixture), ("second".to_owned(), false));
        assert_eq!(read_until_stored(&fixture), "second");
        assert_eq!(fixture.get("/page.php?write=third").text(), "written");
        assert_eq!(read_until_stored(&fixture), "third");
        other.open();
        assert_eq!(held.answer().text(), "released");
        wait_for_one_front(&fixture);
        if !disk.is_empty() {
            fixture.wait_for_log(&["configuration 2 is in use"]);
            fixture.wait("pages to be stored on disk", |fixture| {
                read(fixture);
                let disk = &fixture.status()["cache"]["disk"];
                disk["condition"].is_null() && disk["entries"].as_u64() > Some(0)
            });
        }
        assert_eq!(read(&fixture).0, "third");
    }
}

#[test]
fn http3_is_served_again_when_the_front_before_has_ended() {
    let fixture = Fixture::named("upgrade-http3").http3().start();
    let hello = |fixture: &Fixture| {
        let answer = fixture.http3().ask(&Http2Request::get("/hello.php"));
        answer.expect("a response over HTTP/3").text().to_owned()
    };
    assert_eq!(hello(&fixture), HELLO);
    upgrade(&fixture);
    wait_for_one_front(&fixture);
    fixture.wait_for_log(&["configuration 2 is in use"]);
    assert_eq!(hello(&fixture), HELLO);
}

#[test]
fn job_has_ended_when_that_of_the_new_program_begins() {
    let builder = Fixture::named("upgrade-jobs");
    builder.scratch().writable_dir("run");
    let job = "exec 9>SCRATCH/run/lock; flock -n 9 || echo twice; echo begun; \
               trap 'echo ended; exit 0' TERM; while :; do sleep 0.05 9>&-; done";
    let fixture = builder
        .config(&format!(
            "[[job]]\nname = \"one\"\ncommand = [\"sh\", \"-c\", {job:?}]\n"
        ))
        .start();
    fixture.wait_for_log(&["job=one: begun"]);
    upgrade(&fixture);
    let count = |word: &str| fixture.howdah.process.log().matches(word).count();
    fixture.wait("the next job", |_| count("job=one: begun") == 2);
    assert_eq!((count("job=one: ended"), count("job=one: twice")), (1, 0));
    let list = output_text(&fixture.control(&["job", "list"]));
    assert!(list.contains("job one: running"), "{list}");
}
