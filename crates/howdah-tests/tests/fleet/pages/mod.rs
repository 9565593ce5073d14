//! Several servers share one page cache. Whatever happens to Valkey and to the servers, no reader of any server sees a
//! page that is older than an acknowledged write, and no server stops responding.

mod command_line;
mod explain;
#[path = "../../../../howdah-fleet/tests/model/registry.rs"]
mod registry;
mod script;
mod valkey;

use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture, signal};
use howdah_tests::http;
use howdah_tests::link::{Link, LinkMode};
use howdah_tests::process::wait_until;
use howdah_tests::valkey::Valkey;
use rustix::process::Signal;

/// A page from a database that all members share.
const PAGE: &str = r#"<?php
$db = new PDO('sqlite:DATABASE', null, null, [PDO::ATTR_TIMEOUT => 20]);
if (isset($_GET['write'])) {
    $db->exec('UPDATE page SET edition = ' . (int) $_GET['write']);
    echo 'written';
    exit;
}
echo 'edition=', $db->query('SELECT edition FROM page')->fetchColumn();
"#;

/// How long a lease lasts.
const LEASE: &str = "1s";
/// Slightly more than the time for which a writer waits for a lease to expire.
const LEASE_OUT: Duration = Duration::from_millis(1500);
/// The limit for operations that normally take no longer than a lease, but take longer on a busy machine. An operation
/// that hangs takes a minute.
const IN_TIME: Duration = Duration::from_secs(15);

struct TestFleet {
    /// Dropped before Valkey, because members announce to it that they are leaving.
    members: Vec<Fixture>,
    valkey: Valkey,
    edition: u64,
}

impl TestFleet {
    /// Starts members with one database, all of which serve the page from the cache.
    fn start(name: &str, members: usize) -> TestFleet {
        let valkey = Valkey::start();
        let urls = vec![valkey.url(); members];
        let fleet = TestFleet::start_on(name, valkey, &urls, "", |builder| builder);
        fleet.all_hit();
        fleet
    }

    /// Starts a member for each URL of Valkey, with further lines of `[fleet]` and with changes to the fixture.
    fn start_on(
        name: &str,
        valkey: Valkey,
        urls: &[String],
        more: &str,
        change: impl Fn(Builder) -> Builder,
    ) -> TestFleet {
        let members = urls.len();
        let builders = (0..members).map(|number| Fixture::named(&format!("{name}-{number}")));
        let builders: Vec<_> = builders.collect();
        builders[0].scratch().writable_dir("db");
        let database = builders[0].scratch().join("db/site.sqlite");
        let make = "CREATE TABLE page (edition INTEGER); INSERT INTO page VALUES (1);";
        let made = std::process::Command::new("php")
            .args(["-r", "(new PDO('sqlite:' . $argv[1]))->exec($argv[2]);"])
            .arg("--")
            .arg(&database)
            .arg(make)
            .status();
        assert!(made.expect("php").success());
        let page = PAGE.replace("DATABASE", &database.display().to_string());
        let start = |(number, builder): (usize, Builder)| {
            let fleet = format!(
                "[fleet]\nvalkey = \"{}\"\nmember = \"m{number}\"\nlease = \"{LEASE}\"\n{more}",
                urls[number]
            );
            change(builder)
                .script("page.php", &page)
                .site("name = \"one\"\ncache = \"on\"")
                .config(&fleet)
                .start()
        };
        let members = builders.into_iter().enumerate().map(start).collect();
        TestFleet {
            valkey,
            members,
            edition: 1,
        }
    }

    /// Reads the page from a member, and checks that it shows the last edition. Returns whether it came from the cache.
    fn read(&self, member: usize) -> bool {
        let page = self.members[member].get("/page.php");
        assert_eq!(
            (page.status(), page.text()),
            (200, format!("edition={}", self.edition)),
            "m{member}"
        );
        page.header("X-Cache") == Some("HIT")
    }

    /// Writes on a member and returns how long that took.
    fn write(&mut self, member: usize) -> Duration {
        self.edition += 1;
        let begun = Instant::now();
        let answer = self.members[member].get(&format!("/page.php?write={}", self.edition));
        assert_eq!(answer.text(), "written");
        begun.elapsed()
    }

    fn all_hit(&self) {
        for member in 0..self.members.len() {
            wait_until("a page from the cache", Duration::from_secs(20), || {
                self.read(member)
            });
        }
    }

    /// Writes on each member, and checks that all members then show the new edition and serve it from the cache again.
    fn works(&mut self) {
        for writer in 0..self.members.len() {
            self.all_hit();
            self.write(writer);
            for reader in 0..self.members.len() {
                self.read(reader);
            }
        }
        self.all_hit();
    }

    /// Checks that no member serves a stored page, that all members respond, and that a further write does not wait for
    /// others.
    fn renders(&mut self) {
        for writer in 0..self.members.len() {
            self.write(writer);
            for reader in 0..self.members.len() {
                assert!(!self.read(reader), "m{reader} has no lease");
            }
        }
        let took = self.quickest_write();
        assert!(took < Duration::from_millis(500), "{took:?}");
    }

    /// Returns how long the fastest of five writes took: a busy machine may delay one of them, but a lease would delay
    /// each.
    fn quickest_write(&mut self) -> Duration {
        let took = (0..5).map(|_| self.write(0));
        took.min().expect("five writes")
    }
}

#[test]
fn write_on_one_member_is_seen_on_all() {
    let mut fleet = TestFleet::start("fleet", 4);
    fleet.works();
    let mut took: Vec<_> = (0..60)
        .map(|number| {
            let took = fleet.write(number % 4);
            fleet.read((number + 1) % 4);
            took
        })
        .collect();
    took.sort();
    println!("4 members, writes: p50 {:?}, p98 {:?}", took[30], took[58]);
    assert!(took[30] < Duration::from_millis(500), "{took:?}");
    let purge = fleet.members[0].control(&["cache", "purge", "--all"]);
    assert!(purge.status.success(), "{purge:?}");
    assert!(!fleet.read(2), "a purge reaches all members");
    let status = fleet.members[1].status();
    assert_eq!(status["cache"]["fleet"]["members"], 4, "{status}");
}

#[test]
fn stopped_server_serves_no_stale_page_when_it_continues() {
    let mut fleet = TestFleet::start("fleet-stopped", 2);
    let front = fleet.members[1].front();
    signal(front, Signal::STOP);
    let took = fleet.write(0);
    assert!(
        took > Duration::from_millis(500),
        "the write waits for the lease to expire: {took:?}"
    );
    let again = fleet.quickest_write();
    assert!(
        again < Duration::from_millis(500),
        "only the first write waits: {again:?}"
    );
    signal(front, Signal::CONT);
    fleet.read(1);
    fleet.works();
}

#[test]
fn without_valkey_all_servers_answer_and_none_from_its_store() {
    let mut fleet = TestFleet::start("fleet-killed", 2);
    fleet.valkey.kill();
    let took = fleet.write(0);
    assert!(took < IN_TIME, "{took:?}");
    fleet.renders();
    fleet.valkey.start_again();
    fleet.works();
    // Valkey hangs.
    fleet.valkey.signal(Signal::STOP);
    let took = fleet.write(1);
    assert!(took < IN_TIME, "{took:?}");
    fleet.renders();
    fleet.valkey.signal(Signal::CONT);
    fleet.works();
}

#[test]
fn emptied_valkey_and_a_full_one_make_pages_old_and_never_fresh() {
    let mut fleet = TestFleet::start("fleet-emptied", 2);
    for _ in 0..5 {
        fleet.valkey.command(&["FLUSHALL"]);
        fleet.write(0);
        fleet.read(1);
    }
    fleet.works();
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let took = fleet.write(0);
    assert!(took < IN_TIME, "{took:?}");
    fleet.renders();
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "0"]);
    fleet.works();
}

#[test]
fn server_that_died_is_waited_for_until_it_is_back_or_forgotten() {
    let mut fleet = TestFleet::start("fleet-died", 2);
    fleet.members[1].kill_all();
    let died = fleet.members.pop().expect("two members");
    fleet.write(0);
    wait_until("m0 to miss m1", Duration::from_secs(20), || !fleet.read(0));
    assert!(!fleet.read(0), "m1 may write without telling m0");
    let forget = fleet.members[0].control(&["cache", "forget", "m1"]);
    assert!(forget.status.success(), "{forget:?}");
    fleet.works();
    fleet.members.push(died);
    fleet.members[1].start_again();
    fleet.works();
}

#[test]
fn unpublished_write_of_a_dead_member_is_seen_once_it_is_forgotten() {
    let (mut fleet, links) = linked("fleet-unheard", "");
    links[1].set(LinkMode::Held);
    // The write waits for the leases of the other members to expire, because they cannot be notified.
    fleet.write(1);
    fleet.members[1].kill_all();
    let died = fleet.members.pop().expect("two members");
    let forget = fleet.members[0].control(&["cache", "forget", "m1"]);
    assert!(forget.status.success(), "{forget:?}");
    fleet.works();
    drop(died);
}

#[test]
fn server_that_is_silent_for_long_is_forgotten_and_writes_nothing_until_it_is_back() {
    let (mut fleet, links) = linked("fleet-fenced", "forget_after = \"3s\"");
    links[1].set(LinkMode::Held);
    // Until the other members forget m1, it may write without notifying them.
    fleet.write(1);
    let m0 = |fleet: &TestFleet| fleet.members[0].get("/page.php").header("X-Cache") == Some("HIT");
    wait_until("m0 to forget m1", Duration::from_secs(30), || m0(&fleet));
    fleet.read(0);
    // If a script turns out to have written, its response is refused; a request that announces a write does not run.
    let refused = fleet.members[1].get("/page.php?write=1000000");
    assert_eq!(
        (refused.status(), refused.header("Howdah-Error")),
        (503, Some("FleetFenced"))
    );
    let reset = fleet.members[0].get(&format!("/page.php?write={}", fleet.edition));
    assert_eq!(reset.text(), "written");
    let post = "POST /page.php?write=1000001 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let refused = http::exchange(fleet.members[1].address(), post.as_bytes()).expect("a response");
    assert_eq!(refused.header("Howdah-Error"), Some("FleetFenced"));
    assert!(!fleet.read(1), "m1 renders the page");
    let purge = fleet.members[1].control(&["cache", "purge", "--all"]);
    assert!(!purge.status.success(), "{purge:?}");
    links[1].set(LinkMode::Open);
    fleet.works();
}

/// Starts two members, each with its own link to Valkey.
fn linked(name: &str, more: &str) -> (TestFleet, [Link; 2]) {
    let valkey = Valkey::start();
    let links = [Link::to(valkey.address()), Link::to(valkey.address())];
    let urls = links
        .each_ref()
        .map(|link| format!("redis://{}", link.address()));
    let fleet = TestFleet::start_on(name, valkey, &urls, more, |builder| builder);
    fleet.all_hit();
    (fleet, links)
}
