//! Pages on disk, tested through the whole program: which pages survive a restart and a `kill -9`, and what happens
//! when files are damaged or the disk is full. Every response is checked: its body is complete, belongs to this page,
//! and is not older than the last write that was acknowledged before the request.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{ExchangeError, Response, exchange};
use howdah_tests::rig::howdah_program;

/// The number of pages. They are `p0.php`, `p1.php` and so on; each has its own text and length, and shows the version
/// that was written last.
const PAGES: usize = 8;
const PAGE: &str = r#"<?php
$v = (int) @file_get_contents('SCRATCH/version');
echo 'NUMBER ', $v, ' ', str_repeat(chr(97 + (NUMBER + $v) % 26), 500 + NUMBER * 4000), ' end';
"#;
const WRITE: &str = r#"<?php
$v = 1 + (int) @file_get_contents('SCRATCH/version');
file_put_contents('SCRATCH/version.new', $v);
rename('SCRATCH/version.new', 'SCRATCH/version');
echo $v;
"#;

fn pages(name: &str) -> Builder {
    let mut builder = Fixture::named(name).script("write.php", WRITE);
    for page in 0..PAGES {
        let text = PAGE.replace("NUMBER", &page.to_string());
        builder = builder.script(&format!("p{page}.php"), &text);
    }
    builder.site("cache = \"on\"\ncache_ttl = \"1h\"")
}

fn with_disk(name: &str) -> Builder {
    pages(name).config("[cache]\npath = \"SCRATCH/cache\"")
}

fn try_ask(address: SocketAddr, method: &str, path: &str) -> Result<Response, ExchangeError> {
    let length = if method == "POST" {
        "Content-Length: 0\r\n"
    } else {
        ""
    };
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: example.org\r\n{length}Connection: close\r\n\r\n"
    );
    exchange(address, request.as_bytes())
}

fn ask(fixture: &Fixture, page: usize) -> Response {
    try_ask(fixture.address(), "GET", &format!("/p{page}.php"))
        .unwrap_or_else(|why| panic!("page {page}: {why}"))
}

fn is_hit(response: &Response) -> bool {
    response.header("X-Cache") == Some("HIT")
}

/// Returns the version in a page's text, after checking that the text is complete and belongs to this page.
#[track_caller]
fn version(page: usize, response: &Response) -> u64 {
    let text = response.text();
    assert_eq!(response.status(), 200, "page {page}: {text}");
    let mut words = text.split(' ');
    let own = words.next() == Some(&page.to_string()[..]);
    let version: u64 = words
        .next()
        .and_then(|v| v.parse().ok())
        .unwrap_or(u64::MAX);
    let letter = char::from(b'a' + ((page as u64).wrapping_add(version) % 26) as u8);
    let run = letter.to_string().repeat(500 + page * 4000);
    let rest = words.next() == Some(&run[..]) && words.next() == Some("end");
    assert!(
        own && rest && words.next().is_none(),
        "page {page}: {text:.80}"
    );
    version
}

fn disk(fixture: &Fixture) -> serde_json::Value {
    fixture.status()["cache"]["disk"].clone()
}

fn wait_for_files(fixture: &Fixture) {
    fixture.wait("all pages to be written", |f| disk(f)["waiting"] == 0);
}

/// Returns the files of the stored pages.
fn files(fixture: &Fixture) -> Vec<PathBuf> {
    let objects = fixture.path("cache/objects");
    let directories = std::fs::read_dir(objects).unwrap().flatten();
    directories
        .flat_map(|directory| std::fs::read_dir(directory.path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect()
}

#[test]
fn restart_and_a_kill_keep_pages_and_purges() {
    let mut fixture = with_disk("disk-restart").start();
    for page in 0..PAGES {
        // A page is stored at its second visit.
        assert!(!is_hit(&ask(&fixture, page)));
        assert!(!is_hit(&ask(&fixture, page)));
    }
    wait_for_files(&fixture);
    assert_eq!(files(&fixture).len(), PAGES);
    fixture.restart();
    for page in 0..PAGES {
        let kept = ask(&fixture, page);
        assert!(is_hit(&kept), "page {page} after a restart");
        assert_eq!(version(page, &kept), 0);
    }
    assert_eq!(disk(&fixture)["hits"], PAGES);
    let purged = fixture.control(&["cache", "purge", "/p1.php", "/p2*"]);
    assert!(purged.status.success(), "{purged:?}");
    fixture.kill_all();
    fixture.start_again();
    for page in 0..PAGES {
        let hit = is_hit(&ask(&fixture, page));
        assert_eq!(hit, ![1, 2].contains(&page), "page {page} after a kill");
    }
    wait_for_files(&fixture);
    // A write over HTTP also purges.
    let written = try_ask(fixture.address(), "POST", "/write.php").unwrap();
    assert_eq!(written.text(), "1");
    fixture.kill_all();
    fixture.start_again();
    for page in 0..PAGES {
        let fresh = ask(&fixture, page);
        assert_eq!((is_hit(&fresh), version(page, &fresh)), (false, 1));
        ask(&fixture, page);
    }
    wait_for_files(&fixture);
    fixture.reload();
    let rendered = ask(&fixture, 0);
    assert!(!is_hit(&rendered), "a reload begins with an empty cache");
    fixture.restart();
    assert!(
        !is_hit(&ask(&fixture, 3)),
        "the cache is still empty after a restart"
    );
}

#[test]
fn write_that_a_kill_cut_off_leaves_no_older_page_behind() {
    let mut fixture = with_disk("disk-cut")
        .script(
            "cut.php",
            "<?php require 'GATES'; file_put_contents('SCRATCH/version', 7); stand_at('cut');",
        )
        .start();
    ask(&fixture, 0);
    assert_eq!(version(0, &ask(&fixture, 0)), 0);
    wait_for_files(&fixture);
    let gate = fixture.gate("cut");
    let address = fixture.address();
    let cut = std::thread::spawn(move || try_ask(address, "POST", "/cut.php"));
    let standing = gate.wait();
    // The script has written, and only PHP knows about the write.
    fixture.kill_all();
    drop(standing);
    assert!(cut.join().unwrap().is_err());
    fixture.start_again();
    let fresh = ask(&fixture, 0);
    assert_eq!((is_hit(&fresh), version(0, &fresh)), (false, 7));
}

#[test]
fn file_that_was_changed_is_a_miss_by_name() {
    let mut fixture = with_disk("disk-damage").start();
    ask(&fixture, 0);
    ask(&fixture, 0);
    wait_for_files(&fixture);
    let file = files(&fixture).remove(0);
    fixture.howdah.process.stop();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() - 300;
    bytes[middle] = b'!';
    std::fs::write(&file, bytes).unwrap();
    fixture.start_again();
    let again = ask(&fixture, 0);
    assert!(!is_hit(&again));
    version(0, &again);
    fixture.wait_for_log(&["FileCorrupt", &file.display().to_string()]);
    let faults = &disk(&fixture)["faults"];
    assert_eq!(*faults, serde_json::json!([["FileCorrupt", 1]]));
}

#[test]
fn full_disk_is_named_and_pages_are_served_from_memory() {
    let mut words = vec!["unshare", "--mount"];
    if !rustix::process::geteuid().is_root() {
        words.push("--map-root-user");
    }
    words.extend([
        "sh",
        "-c",
        "mkdir -m 700 SCRATCH/cache && mount -t tmpfs -o size=64k,mode=700 none SCRATCH/cache && exec \"$0\" \"$@\"",
    ]);
    let fixture = with_disk("disk-cache-full").through(&words).start();
    for round in 0..4 {
        for page in 0..PAGES {
            let answer = ask(&fixture, page);
            version(page, &answer);
            assert_eq!(is_hit(&answer), round > 1, "page {page}, round {round}");
        }
    }
    fixture.wait_for_log(&["DiskFull", "No space left"]);
    let status = disk(&fixture);
    assert_eq!(status["condition"], "DiskFull", "{status}");
    fixture.still_serves();
}

#[test]
fn directory_that_cannot_be_made_costs_the_disk_and_nothing_else() {
    // No user can create a directory there, not even root.
    let fixture = pages("disk-unwritable")
        .config("[cache]\npath = \"/proc/howdah-cache\"")
        .start();
    fixture.wait_for_log(&["DiskUnwritable", "/proc/howdah-cache", "only in memory"]);
    assert_eq!(disk(&fixture)["condition"], "DiskUnwritable");
    assert!(!is_hit(&ask(&fixture, 0)));
    assert!(!is_hit(&ask(&fixture, 0)));
    assert!(is_hit(&ask(&fixture, 0)));
}

#[test]
fn second_server_on_the_same_directory_is_refused() {
    let fixture = with_disk("disk-shared").start();
    let config = fixture.write(
        "second.toml",
        format!(
            "listen = [\"127.0.0.1:0\"]\n[cache]\npath = {:?}\n[[site]]\nroot = {:?}\ncache = \"on\"\n",
            fixture.path("cache"),
            fixture.path("site")
        ),
    );
    let second = Command::new(howdah_program())
        .args(["serve", "--children", "1", "--config"])
        .arg(config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success(), "{said}");
    let front = format!("process {}", fixture.front());
    assert!(
        said.contains("DirectoryInUse") && said.contains(&front),
        "{said}"
    );
    assert!(!is_hit(&ask(&fixture, 0)));
    assert!(!is_hit(&ask(&fixture, 0)));
    assert!(is_hit(&ask(&fixture, 0)));
}

/// The state that readers and a writer share: the last acknowledged write, and counts of responses and hits.
#[derive(Default)]
struct ReadersAndWriter {
    stop: AtomicBool,
    /// The last version whose write was acknowledged.
    acknowledged: AtomicU64,
    answers: AtomicU64,
    hits: AtomicU64,
}

impl ReadersAndWriter {
    /// Reads and checks a page. Returns `None` if the server does not respond, because it was killed.
    fn read(&self, address: SocketAddr, page: usize) -> Option<()> {
        let before = self.acknowledged.load(Ordering::SeqCst);
        let response = try_ask(address, "GET", &format!("/p{page}.php")).ok()?;
        let seen = version(page, &response);
        assert!(
            seen >= before,
            "page {page} shows version {seen}, although {before} was acknowledged"
        );
        self.answers.fetch_add(1, Ordering::SeqCst);
        self.hits
            .fetch_add(u64::from(is_hit(&response)), Ordering::SeqCst);
        Some(())
    }

    fn write(&self, address: SocketAddr) -> Option<()> {
        let response = try_ask(address, "POST", "/write.php").ok()?;
        let version = response.text().parse().ok()?;
        self.acknowledged.fetch_max(version, Ordering::SeqCst);
        Some(())
    }
}

#[test]
fn no_body_is_wrong_or_old_after_kills_under_load() {
    let rounds: u64 = std::env::var("HOWDAH_KILLS").map_or(20, |n| n.parse().expect("a number"));
    let mut fixture = with_disk("disk-kills").start();
    let load = ReadersAndWriter::default();
    let mut kept = 0;
    for round in 0..rounds {
        let address = fixture.address();
        // Reads every page once before the load begins: a hit is a page that has outlived the previous kill.
        let before = load.hits.load(Ordering::SeqCst);
        for page in 0..PAGES {
            load.read(address, page).expect("the server is up");
        }
        kept += load.hits.load(Ordering::SeqCst) - before;
        load.stop.store(false, Ordering::SeqCst);
        let begun = load.answers.load(Ordering::SeqCst);
        std::thread::scope(|scope| {
            let load = &load;
            for reader in 0..4 {
                scope.spawn(move || {
                    let mut page = reader;
                    while !load.stop.load(Ordering::SeqCst) && load.read(address, page).is_some() {
                        page = (page + 3) % PAGES;
                        if reader == 0 && page == 0 && load.write(address).is_none() {
                            break;
                        }
                    }
                });
            }
            // The kill comes at a different moment of the load in each round.
            let enough = begun + 30 + (round * 37) % 90;
            fixture.wait("some responses", |_| {
                load.answers.load(Ordering::SeqCst) >= enough
            });
            fixture.kill_all();
            load.stop.store(true, Ordering::SeqCst);
        });
        fixture.start_again();
    }
    for page in 0..PAGES {
        load.read(fixture.address(), page)
            .expect("the server is up");
    }
    let faults = &disk(&fixture)["faults"];
    assert_eq!(
        *faults,
        serde_json::json!([]),
        "after a kill, a stored page is either complete or absent"
    );
    println!(
        "{rounds} kills, {} responses, {} hits, {kept} of them from before a kill, {} writes",
        load.answers.load(Ordering::SeqCst),
        load.hits.load(Ordering::SeqCst),
        load.acknowledged.load(Ordering::SeqCst)
    );
    assert!(kept > 0, "no page outlived a kill");
}
