//! Several clients misuse HTTP/2 at the same time while other visitors request files and pages. All visitors get their
//! responses, no PHP child remains occupied by an attacker, and the status contains the name of the attack.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http2::{Http2Frames, frame, headers, reset};
use howdah_tests::process_tree;

/// The number of concurrent attackers.
pub(super) const ATTACKERS: usize = 6;
/// The number of visits during an attack, each to a file and to a page; `HOWDAH_VISITS` sets another number, for
/// measurements.
const VISITS: usize = 20;

/// SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113 §6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;

fn site(name: &str) -> Fixture {
    attacked(Fixture::named(name).h2c())
}

/// Returns a site with pages that take time or memory.
pub(super) fn attacked(builder: Builder) -> Fixture {
    builder
        .children(4)
        .file("a.txt", "a")
        .script("slow.php", "<?php usleep(300000); echo 'slow';")
        .script(
            "long.php",
            "<?php for ($i = 0; $i < 100; $i++) echo str_repeat('x', 10000);",
        )
        .start()
}

/// Attackers at work. Each repeats its attack on new connections until it is stopped.
pub(super) struct Attack {
    /// Only one attack runs at a time, because each uses the whole machine and would delay the visitors of another
    /// test's server.
    _alone: MutexGuard<'static, ()>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// Starts attackers that repeat `once`, which is the attack on one connection, until the attack is ended. `once`
    /// returns when it cannot continue or the flag is set.
    fn begin(fixture: &Fixture, once: fn(SocketAddr, &AtomicBool)) -> Attack {
        let address = fixture.address();
        Attack::begin_with(move |stop| once(address, stop))
    }

    /// Starts an attack as [`Attack::begin`] does, but passes no address to `once`.
    pub(super) fn begin_with(once: impl Fn(&AtomicBool) + Send + Sync + 'static) -> Attack {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let stop = Arc::new(AtomicBool::new(false));
        let once = Arc::new(once);
        let attack = |_| {
            let (stop, once) = (stop.clone(), once.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    once(&stop);
                }
            })
        };
        Attack {
            _alone: alone,
            threads: (0..ATTACKERS).map(attack).collect(),
            stop,
        }
    }

    pub(super) fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("an attacker does not panic");
        }
    }
}

/// Visits a file and a page repeatedly, and prints how long the responses took, for which there is no limit.
pub(super) fn visit(fixture: &Fixture) {
    let more = std::env::var("HOWDAH_VISITS").ok();
    let visits = more.map_or(VISITS, |number| number.parse().expect("a number"));
    let (mut files, mut pages) = (Vec::new(), Vec::new());
    for _ in 0..visits {
        let begun = Instant::now();
        assert_eq!(fixture.get("/a.txt").text(), "a");
        files.push(begun.elapsed());
        let begun = Instant::now();
        fixture.still_serves();
        pages.push(begun.elapsed());
    }
    let said = [("a file", &mut files), ("a page", &mut pages)].map(|(what, waits)| {
        waits.sort();
        let ms = |at: usize| waits[at.min(waits.len() - 1)].as_secs_f64() * 1e3;
        let (half, most, last) = (ms(visits / 2), ms(visits * 9 / 10), ms(visits));
        format!("{what} {half:.1}, {most:.1}, {last:.1}")
    });
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    println!("{name}: ms (p50, p90, longest): {}", said.join("; "));
}

pub(super) fn failures(fixture: &Fixture) -> Vec<String> {
    let status = fixture.status();
    let failures = status["failures"].as_array().expect("a list");
    failures
        .iter()
        .filter_map(|failure| failure[0].as_str().map(str::to_owned))
        .collect()
}

/// Checks that visitors get responses during the attack, that afterwards all children are free, and that the status has
/// the attack's name, if there is one.
fn check(fixture: &Fixture, name: Option<&str>, once: fn(SocketAddr, &AtomicBool)) {
    hold_out(fixture, name, Attack::begin(fixture, once));
}

/// Does the same as [`check`] for an attack that has already begun.
pub(super) fn hold_out(fixture: &Fixture, name: Option<&str>, attack: Attack) {
    visit(fixture);
    if let Some(name) = name {
        fixture.wait(name, |f| failures(f).iter().any(|failure| failure == name));
    }
    visit(fixture);
    attack.end();
    all_children_are_free(fixture);
}

pub(super) fn all_children_are_free(fixture: &Fixture) {
    fixture.wait("all children to be free", |f| {
        let pool = f.status()["pools"][0].clone();
        pool["active_processes"] == 0 && pool["queue"] == 0
    });
}

/// Sends requests on streams 1, 3, 5 …, each followed by the frames that `then` returns for its stream, in bursts.
fn streams(
    address: SocketAddr,
    stop: &AtomicBool,
    settings: &[(u16, u32)],
    path: &str,
    end: bool,
    then: fn(u32) -> Vec<u8>,
) {
    let mut frames = Http2Frames::open(address, settings);
    for burst in 0..100 {
        let mut bytes = Vec::new();
        for n in 0..10 {
            let stream = (burst * 10 + n) * 2 + 1;
            bytes.extend(headers(stream, "GET", path, end));
            bytes.extend(then(stream));
        }
        if stop.load(Ordering::Relaxed) || !frames.send(bytes) {
            return;
        }
    }
    while !stop.load(Ordering::Relaxed) && frames.read().is_some() {}
}

/// Sends one frame repeatedly after `first`, without reading.
fn flood(address: SocketAddr, stop: &AtomicBool, first: &[u8], one: &[u8]) {
    let mut frames = Http2Frames::open(address, &[]);
    let _ = frames.send(first);
    while !stop.load(Ordering::Relaxed) && frames.send(one.repeat(100)) {}
}

/// Opens a connection that sends these bytes and waits; it is dropped when the attack ends.
fn held(address: SocketAddr, stop: &AtomicBool, settings: &[(u16, u32)], bytes: &[u8]) {
    let mut frames = Http2Frames::open(address, settings);
    let _ = frames.send(bytes);
    while !stop.load(Ordering::Relaxed) {
        std::thread::yield_now();
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
}

fn requests(count: u32, method: &str, path: &str, end: bool) -> Vec<u8> {
    let request = |n| headers(2 * n + 1, method, path, end);
    (0..count).flat_map(request).collect()
}

#[test]
fn streams_that_are_reset_at_once_hold_nobody_up() {
    check(&site("rapid-reset"), Some("RapidReset"), |address, stop| {
        streams(address, stop, &[], "/slow.php", true, reset);
    });
}

#[test]
fn clients_who_leave_scripts_running_never_have_all_children() {
    // After its client has disconnected, each script runs long enough to count as abandoned.
    let fixture = Fixture::named("h2-leavers")
        .h2c()
        .children(4)
        .script(
            "wait.php",
            "<?php while (!file_exists('SCRATCH/' . $_SERVER['QUERY_STRING'])) { usleep(5000); clearstatcache(); }
            usleep(60_000);",
        )
        .start();
    let pool = |f: &Fixture| f.status()["pools"][0].clone();
    let answered = |status: &str, times: usize| {
        let end = format!(" {status} ");
        fixture.wait(&format!("{times} responses with status {status}"), |f| {
            let log = f.access_log();
            let lines = log.iter().filter(|line| line.contains("/wait.php"));
            lines.filter(|line| line.contains(&end)).count() == times
        });
    };
    let mut attacker = Http2Frames::open(fixture.address(), &[]);
    let ask = |streams: Range<u32>, gate: &str| -> Vec<u8> {
        let one = |n| headers(2 * n + 1, "GET", &format!("/wait.php?{gate}"), true);
        streams.flat_map(one).collect()
    };
    assert!(attacker.send(ask(0..4, "first")));
    fixture.wait("all children to be busy", |f| {
        pool(f)["active_processes"] == 4
    });
    let resets: Vec<u8> = (0..4).flat_map(|n| reset(2 * n + 1)).collect();
    assert!(attacker.send(resets));
    answered("499", 4);
    fixture.write("first", "");
    all_children_are_free(&fixture);
    // The server knows the attacker now, so the attacker's requests leave one child to other clients.
    assert!(attacker.send(ask(4..12, "second")));
    fixture.wait("three children to be busy", |f| {
        pool(f)["active_processes"] == 3
    });
    for _ in 0..20 {
        fixture.still_serves();
        let now = pool(&fixture);
        assert!(now["active_processes"] == 3 && now["queue"] == 0, "{now}");
    }
    // No request is lost.
    fixture.write("second", "");
    answered("200", 8);
    all_children_are_free(&fixture);
}

#[test]
fn streams_that_the_server_is_made_to_reset_hold_nobody_up() {
    let fixture = site("made-you-reset");
    check(&fixture, Some("MadeYouReset"), |address, stop| {
        let overflow = |stream| frame(8, 0, stream, &[0x7f, 0xff, 0xff, 0xff]);
        streams(address, stop, &[], "/slow.php", true, overflow);
    });
}

#[test]
fn closed_windows_keep_no_child() {
    let fixture = site("zero-windows");
    let attack = Attack::begin(&fixture, |address, stop| {
        let settings = [(INITIAL_WINDOW_SIZE, 0)];
        held(
            address,
            stop,
            &settings,
            &requests(100, "GET", "/long.php", true),
        );
    });
    visit(&fixture);
    // The pages are rendered, although the clients do not read them.
    fixture.wait("all pages to be rendered", |f| {
        f.status()["pools"][0]["accepted_requests"].as_u64() >= Some(100 * ATTACKERS as u64)
    });
    all_children_are_free(&fixture);
    let memory = process_tree::memory(fixture.front(), "Rss").expect("the front is there");
    assert!(memory < 200 << 10, "{memory} KiB for 600 responses of 1 MB");
    visit(&fixture);
    attack.end();
}

#[test]
fn answers_that_nobody_reads_keep_no_child() {
    let fixture = site("unread");
    let attack = Attack::begin(&fixture, |address, stop| {
        let settings = [(INITIAL_WINDOW_SIZE, (1 << 31) - 1)];
        let mut bytes = frame(8, 0, 0, &[0x7f, 0, 0, 0]);
        bytes.extend(requests(100, "GET", "/long.php", true));
        held(address, stop, &settings, &bytes);
    });
    visit(&fixture);
    fixture.wait("all pages to be rendered", |f| {
        f.status()["pools"][0]["accepted_requests"].as_u64() >= Some(100 * ATTACKERS as u64)
    });
    all_children_are_free(&fixture);
    visit(&fixture);
    attack.end();
}

#[test]
fn windows_of_one_byte_hold_nobody_up() {
    let fixture = site("dribble");
    check(&fixture, Some("WindowUpdateFlood"), |address, stop| {
        let mut frames = Http2Frames::open(address, &[(INITIAL_WINDOW_SIZE, 1)]);
        let _ = frames.send(requests(100, "GET", "/long.php", true));
        let one = |n: u32| frame(8, 0, 2 * n + 1, &[0, 0, 0, 1]);
        let all: Vec<u8> = (0..100).flat_map(one).collect();
        while !stop.load(Ordering::Relaxed) && frames.send(&all) {}
    });
}

#[test]
fn bodies_that_never_come_keep_no_child() {
    check(&site("no-bodies"), None, |address, stop| {
        held(
            address,
            stop,
            &[],
            &requests(100, "POST", "/slow.php", false),
        );
    });
}

#[test]
fn floods_of_frames_hold_nobody_up() {
    let fixture = site("frame-floods");
    check(&fixture, Some("PingFlood"), |address, stop| {
        flood(address, stop, &[], &frame(6, 0, 0, &[0; 8]));
    });
    check(&fixture, Some("SettingsFlood"), |address, stop| {
        flood(address, stop, &[], &frame(4, 0, 0, &[]));
    });
    check(&fixture, Some("PriorityFlood"), |address, stop| {
        flood(address, stop, &[], &frame(2, 0, 3, &[0, 0, 0, 0, 16]));
    });
    check(&fixture, Some("UnknownFrameFlood"), |address, stop| {
        flood(address, stop, &[], &frame(99, 0, 0, &[]));
    });
    check(&fixture, Some("EmptyDataFlood"), |address, stop| {
        let post = headers(1, "POST", "/slow.php", false);
        flood(address, stop, &post, &frame(0, 0, 1, &[]));
    });
}

#[test]
fn headers_without_end_or_measure_hold_nobody_up() {
    let fixture = site("header-floods");
    check(&fixture, Some("ContinuationFlood"), |address, stop| {
        let begun = frame(1, 1, 1, &[0x82]);
        flood(address, stop, &begun, &frame(9, 0, 1, &[]));
    });
    check(&fixture, Some("HeaderBomb"), |address, stop| {
        // The block has an indexed header of 4000 bytes, and a thousand references to it.
        let mut block = vec![0x82, 0x86, 0x84, 0x40, 1, b'x', 0x7f, 0xa1, 0x1e];
        block.extend([b'v'; 4000]);
        block.extend([0xbe; 1000]);
        flood(address, stop, &[], &frame(1, 5, 1, &block));
    });
}

/// The number of connections, one after the other, each of which is closed for the same reason.
const FLOODS: usize = 60;

#[test]
fn flood_leaves_a_few_lines_in_the_logs_however_many_connections_it_has() {
    let fixture = site("h2-flood-logs");
    let pings: Vec<u8> = (0..1000).flat_map(|_| frame(6, 0, 0, &[0; 8])).collect();
    for _ in 0..FLOODS {
        let mut frames = Http2Frames::open(fixture.address(), &[]);
        frames.send(&pings);
        // Reads until the server closes the connection.
        while frames.read().is_some() {}
    }
    let times = |fixture: &Fixture| {
        let status = fixture.status();
        let failures = status["failures"].as_array().cloned().unwrap_or_default();
        let found = failures.iter().find(|failure| failure[0] == "PingFlood");
        found
            .and_then(|failure| failure[1].as_u64())
            .unwrap_or_default()
    };
    fixture.wait("all floods to be counted", |f| times(f) == FLOODS as u64);
    let log = fixture.howdah.process.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("warning PingFlood"));
    let lines: Vec<&str> = lines.collect();
    // At most five lines are logged in ten seconds, and sixty connections take less than a minute.
    assert!((1..=30).contains(&lines.len()), "{lines:?}");
    assert!(
        lines[0].contains("the connection was closed | client=127.0.0.2:"),
        "{lines:?}"
    );
    let access = std::fs::read_to_string(fixture.path("access.log")).unwrap_or_default();
    assert!(
        !access.contains("127.0.0."),
        "the access log has requests, although there were none: {access}"
    );
    fixture.still_serves();
}
