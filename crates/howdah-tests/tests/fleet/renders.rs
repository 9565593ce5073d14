//! One render serves the whole fleet: when a page has expired, the render of one member serves all members. No reader
//! sees a page that is older than an acknowledged write, no private page leaves its member, and every reader gets a
//! response whatever happens to the member that renders, to Valkey, or to the data in Valkey.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture, signal};
use howdah_tests::http::{ExchangeError, Response, exchange};
use howdah_tests::process::wait_until;
use howdah_tests::rig::{Howdah, Server};
use howdah_tests::scratch::Scratch;
use howdah_tests::valkey::Valkey;
use howdah_tests::wordpress_home::{HOST, WordpressHome};
use rustix::process::Signal;

/// A page from a database that all members share. It counts its own runs. If the file `hold` exists, one run waits at a
/// gate; if the file `private` exists, the page is personal.
const PAGE: &str = r#"<?php
$db = new PDO('sqlite:DATA/site.sqlite', null, null, [PDO::ATTR_TIMEOUT => 20]);
if (isset($_GET['write'])) {
    $db->exec('UPDATE page SET edition = ' . (int) $_GET['write']);
    echo 'written';
    exit;
}
$edition = $db->query('SELECT edition FROM page')->fetchColumn();
file_put_contents('DATA/runs', '.', FILE_APPEND | LOCK_EX);
if (@unlink('DATA/hold')) {
    require 'GATES';
    stand_at('render');
}
if (file_exists('DATA/private')) {
    header('Cache-Control: private');
    echo 'secret-', bin2hex(random_bytes(8)), ' ';
}
echo "edition=$edition;", str_repeat('howdah ', 2000);
"#;

/// How long a lease lasts, which is also how long other members wait for a member's render.
const LEASE: &str = "2s";
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Sends a request whose host is the fleet, not the member to which it is sent.
fn ask(address: SocketAddr, path: &str) -> Result<Response, ExchangeError> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: fleet.test\r\nConnection: close\r\n\r\n");
    exchange(address, request.as_bytes())
}

fn get(address: SocketAddr, path: &str) -> Response {
    ask(address, path).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// A response for which another thread waits.
struct PageRequestThread(JoinHandle<Result<Response, ExchangeError>>);

impl PageRequestThread {
    fn get(member: &Fixture) -> PageRequestThread {
        let address = member.address();
        PageRequestThread(std::thread::spawn(move || ask(address, "/page.php")))
    }

    fn text(self) -> String {
        let answer = self.0.join().expect("the thread ends");
        answer.expect("a response").text()
    }
}

struct RenderingFleet {
    valkey: Valkey,
    members: Vec<Fixture>,
    data: PathBuf,
    edition: u64,
}

/// Returns the configuration of a member.
fn config(valkey: &Valkey, number: usize, key: &str, release: &str) -> String {
    format!(
        "[fleet]\nvalkey = \"{}\"\nmember = \"m{number}\"\nlease = \"{LEASE}\"\nrelease = \"{release}\"\nkey_file = \"{key}\"",
        valkey.url()
    )
}

impl RenderingFleet {
    fn start(name: &str, members: usize) -> RenderingFleet {
        RenderingFleet::of_releases(name, &vec!["one"; members])
    }

    /// Starts members that serve one directory, each with its own release.
    fn of_releases(name: &str, releases: &[&str]) -> RenderingFleet {
        let valkey = Valkey::start();
        let builders = (0..releases.len()).map(|n| Fixture::named(&format!("{name}-{n}")));
        let mut builders: VecDeque<_> = builders.collect();
        let first = builders[0].scratch();
        let (data, root) = (first.writable_dir("data"), first.join("site"));
        let key = first.write("fleet.key", "0123456789abcdef0123456789abcdef\n");
        let key = key.display().to_string();
        let made = std::process::Command::new("php")
            .args([
                "-r",
                "(new PDO('sqlite:' . $argv[1]))->exec($argv[2]);",
                "--",
            ])
            .arg(data.join("site.sqlite"))
            .arg("CREATE TABLE page (edition INTEGER); INSERT INTO page VALUES (1);")
            .status();
        assert!(made.expect("php").success());
        let page = PAGE.replace("DATA", &data.display().to_string());
        if let Some(builder) = builders.pop_front() {
            builders.push_front(builder.script("page.php", &page));
        }
        let start = |(number, builder): (usize, Builder)| {
            builder
                .root(&root.display().to_string())
                .site("name = \"one\"\ncache = \"on\"")
                .config(&config(&valkey, number, &key, releases[number]))
                .start()
        };
        let members = builders.into_iter().enumerate().map(start).collect();
        let fleet = RenderingFleet {
            valkey,
            members,
            data,
            edition: 1,
        };
        fleet.all_hit();
        fleet
    }

    /// Reads the page from a member, and checks that it shows the last edition. Returns whether it came from the cache.
    fn read(&self, member: usize) -> bool {
        let page = get(self.members[member].address(), "/page.php");
        let own = format!("edition={};", self.edition);
        assert!(
            page.status() == 200 && page.text().contains(&own),
            "m{member}: {}",
            page.text()
        );
        page.header("X-Cache") == Some("HIT")
    }

    /// Reads the page from all members at the same time.
    fn read_all(&self) {
        std::thread::scope(|scope| {
            for member in 0..self.members.len() {
                scope.spawn(move || self.read(member));
            }
        });
    }

    fn write(&mut self, member: usize) {
        self.edition += 1;
        let answer = get(
            self.members[member].address(),
            &format!("/page.php?write={}", self.edition),
        );
        assert_eq!(answer.text(), "written");
    }

    fn all_hit(&self) {
        for member in 0..self.members.len() {
            wait_until("a page from the cache", MAX_WAIT, || self.read(member));
        }
    }

    /// Returns how often the application has rendered the page.
    fn runs(&self) -> u64 {
        std::fs::metadata(self.data.join("runs")).map_or(0, |meta| meta.len())
    }

    /// Returns how often renders had this outcome, on all members.
    fn outcomes(&self, name: &str) -> u64 {
        let of = |member: &Fixture| {
            let status = member.status();
            let renders = status["cache"]["fleet"]["renders"].as_array().cloned();
            let renders = renders.unwrap_or_default();
            let named = renders.iter().find(|one| one[0] == name);
            named
                .and_then(|one| one[1].as_u64())
                .unwrap_or_else(|| panic!("{name}: {status}"))
        };
        self.members.iter().map(of).sum()
    }

    /// Writes on a member and reads from all members, this many times. Returns how often the page was rendered.
    fn rounds(&mut self, rounds: usize) -> u64 {
        let before = self.runs();
        for round in 0..rounds {
            self.write(round % self.members.len());
            self.read_all();
        }
        self.runs() - before
    }

    /// Returns how often members have logged that they do not trust another member, or cannot reach Valkey.
    fn warnings(&self) -> usize {
        let said = |member: &Fixture| member.log().matches("warning Fleet").count();
        self.members.iter().map(said).sum()
    }

    /// Returns the pages that are stored in Valkey.
    fn kept(&self) -> Vec<String> {
        let keys = self.valkey.command(&["--scan", "--pattern", "*:render:*"]);
        keys.lines().map(str::to_owned).collect()
    }

    /// Returns the milliseconds after which the lead for the page expires if it is not renewed.
    fn lead_lifetime(&self) -> i64 {
        let keys = self.kept();
        let left = self.valkey.command(&["PTTL", &keys.join(" ")]);
        left.trim().parse().expect("a time")
    }

    fn hold(&self) -> howdah_tests::gate::Gate {
        std::fs::write(self.data.join("hold"), "").expect("a file");
        std::fs::set_permissions(
            self.data.join("hold"),
            std::os::unix::fs::PermissionsExt::from_mode(0o666),
        )
        .expect("a mode");
        self.members[0].gate("render")
    }
}

fn one_render_serves(members: usize) {
    const ROUNDS: usize = 12;
    let mut fleet = RenderingFleet::start(&format!("one-render-{members}"), members);
    let (mut rounds, mut runs, mut taken) = (0, 0, 0);
    for round in 0..5 * ROUNDS {
        fleet.all_hit();
        let before = (fleet.runs(), fleet.outcomes("Taken"), fleet.warnings());
        // A purge is one entry in the log. A write of a script may be two entries, the second of which follows after
        // the response.
        let purge = fleet.members[round % members].control(&["cache", "purge", "--all"]);
        assert!(purge.status.success(), "{purge:?}");
        fleet.read_all();
        // On a busy machine a member may be considered dead; then each member renders for itself.
        if fleet.warnings() != before.2 {
            continue;
        }
        runs += fleet.runs() - before.0;
        taken += fleet.outcomes("Taken") - before.1;
        rounds += 1;
        if rounds == ROUNDS {
            break;
        }
    }
    assert_eq!(
        rounds, ROUNDS,
        "rounds in which no member was considered dead"
    );
    println!("{members} members, {ROUNDS} purges: {runs} renders, {taken} taken");
    // The bounds allow for a warning that is logged only after its effect.
    assert!(
        (ROUNDS as u64..=ROUNDS as u64 + 2).contains(&runs),
        "{runs} renders"
    );
    assert!(
        taken as usize >= ROUNDS * (members - 1) - 4,
        "{taken} taken"
    );
    let runs = fleet.rounds(ROUNDS);
    println!("{members} members, {ROUNDS} writes: {runs} renders");
    fleet.all_hit();
}

#[test]
fn stale_page_is_rendered_once_by_two_members() {
    one_render_serves(2);
}

#[test]
fn stale_page_is_rendered_once_by_four_members() {
    one_render_serves(4);
}

/// A lead lasts for 900 ms unless its member renews it, which happens every 300 ms.
#[test]
fn stale_page_is_rendered_once_if_its_render_lasts_longer_than_a_lead() {
    const RENEWALS: usize = 4;
    let fleet = RenderingFleet::start("one-render-slow", 2);
    for _ in 0..5 {
        fleet.all_hit();
        let before = (fleet.runs(), fleet.outcomes("Taken"), fleet.warnings());
        let gate = fleet.hold();
        let purge = fleet.members[0].control(&["cache", "purge", "--all"]);
        assert!(purge.status.success(), "{purge:?}");
        let first = PageRequestThread::get(&fleet.members[0]);
        let standing = gate.wait();
        let (mut last, mut renewals) = (i64::MAX, 0);
        wait_until("the lead to be renewed", MAX_WAIT, || {
            let left = fleet.lead_lifetime();
            renewals += usize::from(left > last);
            last = left;
            renewals == RENEWALS
        });
        let second = PageRequestThread::get(&fleet.members[1]);
        standing.open();
        assert_eq!(first.text(), second.text());
        // On a busy machine a member may be considered dead; then each member renders for itself.
        if fleet.warnings() == before.2 {
            assert_eq!(fleet.runs() - before.0, 1, "renders");
            assert_eq!(fleet.outcomes("Taken") - before.1, 1, "taken");
            return;
        }
    }
    panic!("a member was considered dead in each round");
}

#[test]
fn no_reader_of_any_member_sees_a_page_older_than_an_answered_write() {
    let mut fleet = RenderingFleet::start("one-render-readers", 4);
    let (answered, over) = (AtomicU64::new(1), AtomicBool::new(false));
    let (mut reads, mut hits) = (0, 0);
    let addresses: Vec<_> = fleet.members.iter().map(Fixture::address).collect();
    std::thread::scope(|scope| {
        let reader = |address| {
            let (answered, over) = (&answered, &over);
            move || {
                let (mut reads, mut hits) = (0_u64, 0_u64);
                while !over.load(Ordering::SeqCst) {
                    let least = answered.load(Ordering::SeqCst);
                    let page = get(address, "/page.php");
                    let text = page.text();
                    let shown = text
                        .split("edition=")
                        .nth(1)
                        .and_then(|rest| rest.split(';').next());
                    let shown: u64 = shown.and_then(|n| n.parse().ok()).expect("an edition");
                    assert!(shown >= least, "{shown} after {least} was answered");
                    reads += 1;
                    hits += u64::from(page.header("X-Cache") == Some("HIT"));
                }
                (reads, hits)
            }
        };
        let readers: Vec<_> = addresses
            .iter()
            .chain(&addresses)
            .map(|a| scope.spawn(reader(*a)))
            .collect();
        let end = Instant::now() + howdah_tests_seconds();
        let mut round = 0;
        while Instant::now() < end || round < 40 {
            fleet.write(round % 4);
            answered.store(fleet.edition, Ordering::SeqCst);
            fleet.read((round + 1) % 4);
            round += 1;
        }
        over.store(true, Ordering::SeqCst);
        for reader in readers {
            let (r, h) = reader.join().expect("a reader that saw no old page");
            (reads, hits) = (reads + r, hits + h);
        }
    });
    let taken = fleet.outcomes("Taken");
    println!(
        "{} writes, {reads} reads, {hits} hits, {taken} pages taken",
        fleet.edition - 1
    );
    assert!(taken > 0 && hits > 0);
}

/// Returns the duration that `HOWDAH_TESTS_CACHE_SECONDS` sets.
fn howdah_tests_seconds() -> Duration {
    let seconds = std::env::var("HOWDAH_TESTS_CACHE_SECONDS").ok();
    Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(0))
}

#[test]
fn private_page_never_leaves_its_member() {
    let mut fleet = RenderingFleet::start("one-render-private", 2);
    // The visits so far have shown that the page can be stored.
    fleet.write(0);
    let shared = |fleet: &RenderingFleet| fleet.outcomes("Taken") + fleet.outcomes("Given");
    let before = shared(&fleet);
    std::fs::write(fleet.data.join("private"), "").expect("a file");
    let gate = fleet.hold();
    let first = PageRequestThread::get(&fleet.members[0]);
    let standing = gate.wait();
    let second = PageRequestThread::get(&fleet.members[1]);
    standing.open();
    let secret = |text: String| {
        let secret = text.split(' ').next().unwrap_or_default().to_owned();
        assert!(secret.starts_with("secret-"), "{text}");
        secret
    };
    let secrets = [first.text(), second.text()].map(secret);
    assert_ne!(secrets[0], secrets[1]);
    for key in fleet.kept() {
        let kept = fleet.valkey.command(&["GET", &key]);
        assert!(!kept.contains("secret-"), "{key}");
    }
    assert_eq!(shared(&fleet), before);
}

/// Sends a signal to a member in the middle of its render, and checks that another member takes over.
fn the_renderer_is_lost(name: &str, signals: Signal) {
    let mut fleet = RenderingFleet::start(name, 2);
    fleet.write(1);
    let gate = fleet.hold();
    let lost = PageRequestThread::get(&fleet.members[0]);
    let standing = gate.wait();
    signal(fleet.members[0].front(), signals);
    let begun = Instant::now();
    fleet.read(1);
    let took = begun.elapsed();
    println!("{name}: {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    standing.open();
    if signals == Signal::KILL {
        // The request of the killed member gets no response.
        drop(lost);
        return;
    }
    signal(fleet.members[0].front(), Signal::CONT);
    assert!(lost.text().contains("edition=2;"));
    fleet.all_hit();
    // No member uses the page that the stopped member has stored in Valkey too late.
    fleet.write(1);
    fleet.read_all();
}

#[test]
fn another_member_renders_if_the_rendering_member_is_killed() {
    the_renderer_is_lost("one-render-killed", Signal::KILL);
}

#[test]
fn another_member_renders_if_the_rendering_member_is_stopped() {
    the_renderer_is_lost("one-render-stopped", Signal::STOP);
}

#[test]
fn emptied_a_full_and_a_hung_valkey_cost_renders_and_keep_nobody() {
    let mut fleet = RenderingFleet::start("one-render-valkey", 2);
    for _ in 0..3 {
        fleet.valkey.command(&["FLUSHALL"]);
        fleet.rounds(1);
    }
    fleet.all_hit();
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "1"]);
    fleet.rounds(2);
    fleet.valkey.command(&["CONFIG", "SET", "maxmemory", "0"]);
    fleet.all_hit();
    fleet.valkey.signal(Signal::STOP);
    let begun = Instant::now();
    fleet.rounds(1);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    fleet.valkey.signal(Signal::CONT);
    fleet.all_hit();
    let before = fleet.outcomes("Taken");
    wait_until("pages to be handed over again", MAX_WAIT, || {
        fleet.rounds(1);
        fleet.outcomes("Taken") > before
    });
}

#[test]
fn forged_page_and_one_put_back_are_not_served() {
    let mut fleet = RenderingFleet::start("one-render-forged", 2);
    fleet.write(0);
    fleet.read(0);
    wait_until("the page in Valkey", MAX_WAIT, || {
        fleet.outcomes("Given") > 0 && !fleet.kept().is_empty()
    });
    let key = fleet.kept().remove(0);
    let old = fleet.data.join("old");
    let get = format!(
        "redis-cli -u {} --raw GET {key} | head -c -1 >{}",
        fleet.valkey.url(),
        old.display()
    );
    let put = format!(
        "redis-cli -u {} -X v SET {key} v PX 60000 <{}",
        fleet.valkey.url(),
        old.display()
    );
    let shell = |text: &str| {
        let ran = std::process::Command::new("sh").args(["-c", text]).status();
        assert!(ran.expect("sh").success(), "{text}");
    };
    shell(&get);
    // The page is validly signed, but it was rendered before this write, so it is behind the log.
    fleet.write(0);
    shell(&put);
    fleet.read_all();
    // The page has been changed, but its position in the log is the right one.
    wait_until("the page in Valkey", MAX_WAIT, || !fleet.kept().is_empty());
    shell(&get);
    let mut bytes = std::fs::read(&old).expect("the page");
    let number = format!(" {} ", u64::MAX >> 12);
    let words: Vec<usize> = bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b' ')
        .map(|(at, _)| at)
        .take(3)
        .collect();
    bytes.splice(words[1]..=words[2], number.bytes());
    std::fs::write(&old, bytes).expect("the page");
    fleet.write(0);
    shell(&put);
    fleet.read(1);
    assert!(fleet.outcomes("RenderForged") > 0);
    fleet.members[1].wait_for_log(&["RenderForged"]);
    fleet.all_hit();
}

#[test]
fn members_of_another_release_render_for_themselves() {
    let mut fleet = RenderingFleet::of_releases("one-render-releases", &["one", "two"]);
    let runs = fleet.rounds(4);
    assert!(runs >= 8, "each member renders: {runs}");
    assert_eq!(fleet.outcomes("Taken"), 0);
}

#[test]
fn reload_takes_nothing_whose_render_began_before() {
    let mut fleet = RenderingFleet::start("one-render-reload", 2);
    fleet.write(0);
    fleet.read(0);
    wait_until("the page in Valkey", MAX_WAIT, || !fleet.kept().is_empty());
    let runs = fleet.runs();
    fleet.members[1].reload();
    fleet.all_hit();
    assert!(fleet.runs() > runs, "the page is rendered again");
}

/// Counts the pages that WordPress renders.
const COUNT: &str = "<?php
add_action('template_redirect', fn() => file_put_contents('RUNS', '.', FILE_APPEND | LOCK_EX));
";
/// Renames the blog.
const RENAME: &str = "<?php
require __DIR__ . '/wp-load.php';
update_option('blogname', 'Edition ' . (int) $_GET['edition'] . '.');
echo 'done';
";

/// Returns how often WordPress renders pages that readers of all members request after each write, and how many readers
/// requested them.
fn wordpress_runs(home: &WordpressHome, members: usize, release: bool) -> (u64, u64) {
    const WRITES: u64 = 10;
    const PAGES: [&str; 3] = ["/", "/?p=1", "/?page_id=2"];
    let (valkey, scratch) = (Valkey::start(), Scratch::new("wordpress-renders"));
    let runs = scratch.writable_dir("runs").join("runs");
    let key = scratch.write("fleet.key", "0123456789abcdef0123456789abcdef\n");
    let root = home.site().root;
    let plugins = root.join("wp-content/mu-plugins");
    std::fs::create_dir_all(&plugins).expect("a directory");
    let count = COUNT.replace("RUNS", &runs.display().to_string());
    std::fs::write(plugins.join("count.php"), count).expect("a plugin");
    std::fs::write(root.join("rename.php"), RENAME).expect("a script");
    let start = |number| {
        let mut site = home.site().children(2);
        let name = if release {
            "one".to_owned()
        } else {
            format!("of m{number}")
        };
        site.howdah_arguments = ["--cache", "on"].map(str::to_owned).to_vec();
        site.howdah_config = Some(config(&valkey, number, &key.display().to_string(), &name));
        Howdah::start(&site)
    };
    let servers: Vec<Howdah> = (0..members).map(start).collect();
    let read = |server: &Howdah, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let page = exchange(server.address(), request.as_bytes()).expect("a response");
        assert_eq!(page.status(), 200, "{path}: {}", page.text());
        page
    };
    let hit = |server: &Howdah, path: &str| read(server, path).header("X-Cache") == Some("HIT");
    for path in PAGES {
        for server in &servers {
            wait_until("a page from the cache", MAX_WAIT, || hit(server, path));
        }
    }
    let made = || std::fs::metadata(&runs).map_or(0, |meta| meta.len());
    let before = made();
    for edition in 1..=WRITES {
        let writer = &servers[edition as usize % members];
        let done = read(writer, &format!("/rename.php?edition={edition}"));
        assert_eq!(done.text(), "done");
        std::thread::scope(|scope| {
            for (server, path) in servers.iter().flat_map(|s| PAGES.map(|path| (s, path))) {
                scope.spawn(move || {
                    let page = read(server, path);
                    let text = page.text();
                    assert!(
                        text.contains(&format!("Edition {edition}.")),
                        "{path} of {} after the write on {}, one release {release}: {:?} {text}",
                        server.address(),
                        writer.address(),
                        page.head,
                    );
                });
            }
        });
    }
    (made() - before, WRITES * (PAGES.len() * members) as u64)
}

#[test]
fn wordpress_makes_a_page_once_for_all_members() {
    let home = WordpressHome::prepare();
    for members in [2, 4] {
        let (alone, asked) = wordpress_runs(&home, members, false);
        let (shared, _) = wordpress_runs(&home, members, true);
        println!(
            "WordPress, {members} members, 10 writes, {asked} pages asked for: {alone} renders, shared {shared}"
        );
        assert!(shared < alone, "{shared} of {alone}");
    }
}
