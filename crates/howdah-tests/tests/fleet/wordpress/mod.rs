//! Four servers with one page cache behind haproxy, and one WordPress on one MariaDB: people read, write and comment
//! through all of them while servers are killed, paused and cut off, and while Valkey fails. No page is wrong, none is
//! older than a write that was acknowledged before its request, and no request fails except those of a killed server.
//!
//! `HOWDAH_TESTS_FLEET_ANSWERS` sets the number of responses after which the test ends; otherwise each fault happens
//! once.

mod people;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use howdah_tests::fixture::{Fixture, signal};
use howdah_tests::haproxy::Haproxy;
use howdah_tests::link::{Link, LinkMode};
use howdah_tests::process::wait_until;
use howdah_tests::valkey::Valkey;
use howdah_tests::wordpress_home::{HOST, WordpressHome};
use people::{FleetBlog, WritePause};
use rustix::process::Signal;

const MEMBERS: usize = 4;
const LEASE: &str = "1s";
/// A time longer than a lease, and longer than other members wait for a lease to expire.
const LEASE_OUT: Duration = Duration::from_millis(1500);
/// The time after which a fault ends, whatever has happened.
const MAX_FAULT_TIME: Duration = Duration::from_secs(5);

/// The number of responses between two faults of a long run.
const CALM: u64 = 3000;

/// A fault that the test causes.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A member is killed and started again.
    Kill,
    /// A member's front is stopped for longer than a lease, in the middle of writes and hits.
    Pause,
    /// Messages between a member and Valkey are held, and arrive late.
    Hold,
    /// Valkey's replies to a member are held.
    HoldAnswers,
    /// A member cannot connect to Valkey.
    Close,
    /// Two members are cut off from the other two.
    Partition,
    /// Each half is cut off, one after the other.
    TwoPartitions,
    ValkeyKilled,
    ValkeyPaused,
    ValkeyEmptied,
}

const FAULTS: [Fault; 10] = [
    Fault::Pause,
    Fault::Kill,
    Fault::Hold,
    Fault::Partition,
    Fault::ValkeyKilled,
    Fault::HoldAnswers,
    Fault::Close,
    Fault::TwoPartitions,
    Fault::ValkeyPaused,
    Fault::ValkeyEmptied,
];

/// Lifts the limit on how often a visitor may comment. WordPress also holds back first comments by default, which
/// `PREPARE` changes.
const PLUGIN: &str = "<?php
add_filter('wp_is_comment_flood', '__return_false', 99);
";
const PREPARE: &str = "
update_option('blogname', 'Edition 0');
update_option('comment_moderation', 0);
update_option('comment_previously_approved', 0);
update_option('page_comments', 0);
foreach (range(1, 6) as $n) {
    $id = wp_insert_post(['post_title' => 'Hello', 'post_status' => 'publish', 'post_content' => 'x']);
    wp_update_post(['ID' => $id, 'post_content' => \"This is post $id. Text 0\"]);
    echo $id, ' ';
}
";

/// The fields are dropped in this order: a member that leaves announces it to Valkey.
struct WordpressFleet {
    haproxy: Haproxy,
    members: Vec<Fixture>,
    links: Vec<Link>,
    valkey: Valkey,
    _home: WordpressHome,
}

impl WordpressFleet {
    fn start(pause: WritePause) -> (WordpressFleet, FleetBlog) {
        let home = WordpressHome::prepare();
        let site = home.site().children(3);
        let plugins = site.root.join("wp-content/mu-plugins");
        std::fs::create_dir_all(&plugins).expect("the site can be written to");
        std::fs::write(plugins.join("fleet.php"), PLUGIN).expect("the site can be written to");
        std::fs::write(site.root.join("alive.txt"), "alive").expect("the site can be written to");
        let ids = home.run(PREPARE);
        let ids: Vec<u64> = ids
            .split_whitespace()
            .map(|id| id.parse().expect("a number"))
            .collect();
        let valkey = Valkey::start();
        let links: Vec<Link> = (0..MEMBERS).map(|_| Link::to(valkey.address())).collect();
        let start = |(number, link): (usize, &Link)| {
            let fleet = format!(
                "[fleet]\nvalkey = \"redis://{}\"\nmember = \"m{number}\"\nlease = \"{LEASE}\"",
                link.address()
            );
            Fixture::of(&format!("fleet-wordpress-{number}"), site.clone())
                .argument("--cache", "on")
                .config(&fleet)
                .start()
        };
        let members: Vec<Fixture> = links.iter().enumerate().map(start).collect();
        let addresses: Vec<_> = members.iter().map(Fixture::address).collect();
        let haproxy = Haproxy::start(&addresses, HOST, "/alive.txt");
        let blog = FleetBlog::new(haproxy.address(), &ids, pause);
        let fleet = WordpressFleet {
            haproxy,
            members,
            links,
            valkey,
            _home: home,
        };
        (fleet, blog)
    }

    /// Waits until readers have got several pages from the cache of every member.
    fn works(&self, blog: &FleetBlog) {
        let before: Vec<u64> = (0..MEMBERS).map(|member| blog.hits_of(member)).collect();
        wait_until("hits of all members", Duration::from_secs(90), || {
            (0..MEMBERS).all(|member| blog.hits_of(member) > before[member] + 5)
        });
    }

    /// Waits until a lease has expired and something has been written, but at most for `MAX_FAULT_TIME`, because
    /// everyone may be waiting for the fault to end.
    fn lasts(&self, blog: &FleetBlog) {
        let counts = &blog.counts;
        let writes = || {
            let all = [&counts.renames, &counts.publishes, &counts.comments];
            all.map(|count| count.load(Ordering::SeqCst))
                .iter()
                .sum::<u64>()
        };
        let (begun, before) = (Instant::now(), writes());
        wait_until(
            "writes in the middle of a fault",
            MAX_FAULT_TIME * 2,
            || {
                let passed = begun.elapsed();
                passed > LEASE_OUT && writes() > before + 2 || passed > MAX_FAULT_TIME
            },
        );
    }

    fn set(&self, members: &[usize], way: LinkMode) {
        for member in members {
            self.links[*member].set(way);
        }
    }

    fn cut(&self, blog: &FleetBlog, members: &[usize], way: LinkMode) {
        self.set(members, way);
        self.lasts(blog);
        self.set(members, LinkMode::Open);
    }

    fn happens(&mut self, fault: Fault, round: usize, blog: &FleetBlog) {
        let member = round % MEMBERS;
        let half = [member, (member + 1) % MEMBERS];
        let rest = [(member + 2) % MEMBERS, (member + 3) % MEMBERS];
        match fault {
            Fault::Kill => {
                let mut kills = blog
                    .kills
                    .lock()
                    .expect("no thread panics while it holds the lock");
                kills.push((Instant::now(), None));
                drop(kills);
                self.members[member].kill_all();
                let mut kills = blog
                    .kills
                    .lock()
                    .expect("no thread panics while it holds the lock");
                kills.last_mut().expect("the kill was recorded").1 = Some(Instant::now());
                drop(kills);
                self.lasts(blog);
                self.members[member].start_again();
                self.haproxy.moved(member, self.members[member].address());
            }
            Fault::Pause => {
                let front = self.members[member].front();
                signal(front, Signal::STOP);
                self.lasts(blog);
                signal(front, Signal::CONT);
            }
            Fault::Hold => self.cut(blog, &[member], LinkMode::Held),
            Fault::HoldAnswers => self.cut(blog, &[member], LinkMode::AnswersHeld),
            Fault::Close => self.cut(blog, &[member], LinkMode::Closed),
            Fault::Partition => self.cut(blog, &half, LinkMode::Held),
            Fault::TwoPartitions => {
                self.set(&half, LinkMode::Held);
                self.lasts(blog);
                // The other members lose their connection when these get theirs back.
                self.set(&rest, LinkMode::Held);
                self.set(&half, LinkMode::Open);
                self.lasts(blog);
                self.set(&rest, LinkMode::Open);
            }
            Fault::ValkeyKilled => {
                self.valkey.kill();
                self.lasts(blog);
                self.valkey.start_again();
            }
            Fault::ValkeyPaused => {
                self.valkey.signal(Signal::STOP);
                self.lasts(blog);
                self.valkey.signal(Signal::CONT);
            }
            Fault::ValkeyEmptied => {
                self.valkey.command(&["FLUSHALL"]);
            }
        }
    }
}

/// Stops the people when it is dropped, even if the test fails.
struct StopPeopleOnDrop<'a>(&'a FleetBlog);

impl Drop for StopPeopleOnDrop<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}

// The tests of single faults (`pages`) and of one WordPress on several members (`renders.rs`) run every day.
#[ignore = "nightly"]
#[test]
fn no_page_is_old_and_none_is_wrong_while_servers_are_killed_paused_and_cut_off() {
    let wanted: Option<u64> = std::env::var("HOWDAH_TESTS_FLEET_ANSWERS")
        .ok()
        .map(|n| n.parse().expect("HOWDAH_TESTS_FLEET_ANSWERS is a number"));
    let (hits, longest) = match wanted {
        Some(_) => (20_000, Duration::from_secs(20)),
        None => (60, Duration::from_millis(700)),
    };
    let (mut fleet, blog) = WordpressFleet::start(WritePause { hits, longest });
    let owner = blog.log_in("owner", "carry+the+howdah");
    let rider = blog.log_in("rider", "ride+the+elephant");
    let begun = Instant::now();
    let mut faults = 0;
    std::thread::scope(|scope| {
        let over = StopPeopleOnDrop(&blog);
        let blog = &blog;
        for way in 0..4 {
            scope.spawn(move || blog.read(way));
        }
        scope.spawn(|| blog.rename(&owner, &rider));
        scope.spawn(|| blog.publish(&owner));
        for author in ["Ada", "Grace"] {
            scope.spawn(move || blog.comment(author));
        }
        fleet.works(blog);
        while match wanted {
            Some(wanted) => blog.counts.answers.load(Ordering::SeqCst) < wanted,
            None => faults < FAULTS.len(),
        } {
            let fault = FAULTS[faults % FAULTS.len()];
            let answers = blog.counts.answers.load(Ordering::SeqCst);
            println!("{:?}, {answers} answers: {fault:?}", begun.elapsed());
            blog.hurry.store(true, Ordering::SeqCst);
            fleet.happens(fault, faults, blog);
            blog.hurry.store(false, Ordering::SeqCst);
            fleet.works(blog);
            faults += 1;
            let answers = || blog.counts.answers.load(Ordering::SeqCst);
            let enough = wanted.map_or(0, |wanted| wanted.min(answers() + CALM));
            wait_until(
                "responses without a fault",
                Duration::from_secs(600),
                || answers() >= enough,
            );
        }
        drop(over);
    });
    let mut took = blog
        .took
        .lock()
        .expect("no thread panics while it holds the lock")
        .clone();
    took.sort_unstable();
    println!(
        "{faults} faults in {:?}: {:?}; writes: p50 {} ms, p99 {} ms, longest {} ms",
        begun.elapsed(),
        blog.counts,
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1],
    );
    let mistakes = blog
        .mistakes
        .lock()
        .expect("no thread panics while it holds the lock");
    assert!(
        mistakes.is_empty(),
        "{} mistakes, among them:\n{}",
        mistakes.len(),
        mistakes[..mistakes.len().min(20)].join("\n")
    );
}
