//! A judge of private pages: ten users log in, write, read and log out at the same time, each with a writer and a second
//! reader, such as another tab. Every response is checked: it shows the user's own data, not older than the last write
//! that was acknowledged before the request, and nothing of a session that had ended before the request.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use howdah_tests::http::{Response, exchange};

use crate::private::{builder, request, session_of};

const USERS: usize = 10;
/// The number of steps of each writer.
const STEPS: usize = 150;
/// The number of different pages that a user reads.
const PAGES: usize = 3;

/// What a user knows for certain.
#[derive(Clone, Default)]
struct Session {
    cookie: String,
    /// Whether the user has begun to log out.
    is_ending: bool,
    /// Whether the logout has been acknowledged.
    has_ended: bool,
    /// The last acknowledged version.
    version: u64,
}

struct User {
    name: String,
    session: Mutex<Session>,
    is_done: AtomicBool,
}

#[derive(Default)]
struct Score {
    responses: AtomicU64,
    hits: AtomicU64,
}

fn ask(address: SocketAddr, method: &str, query: &str, cookie: &str) -> Response {
    let path = format!("/app.php?{query}");
    let lines = match cookie {
        "" => String::new(),
        cookie => format!("Cookie: {cookie}\r\n"),
    };
    let request = request(method, &path, &lines);
    exchange(address, request.as_bytes()).unwrap_or_else(|why| panic!("{path}: {why}"))
}

impl User {
    fn log_in(&self, address: SocketAddr) {
        let response = ask(address, "POST", &format!("do=login&name={}", self.name), "");
        *self.session.lock().unwrap() = Session {
            cookie: session_of(&response),
            ..Session::default()
        };
    }

    fn write(&self, address: SocketAddr, method: &str) {
        let cookie = self.session.lock().unwrap().cookie.clone();
        let response = ask(address, method, "do=write", &cookie);
        let text = response.text();
        let version = text.strip_prefix("version=").and_then(|n| n.parse().ok());
        let version = version.unwrap_or_else(|| panic!("{}: {text}", self.name));
        self.session.lock().unwrap().version = version;
    }

    fn log_out(&self, address: SocketAddr, how: &str) {
        let cookie = {
            let mut session = self.session.lock().unwrap();
            session.is_ending = true;
            session.cookie.clone()
        };
        let response = ask(address, "GET", &format!("do=logout{how}"), &cookie);
        assert_eq!(response.text(), "out");
        self.session.lock().unwrap().has_ended = true;
        // The old cookie is worthless from now on.
        self.read(address, 0, &Score::default());
    }

    /// Reads a page and checks it.
    fn read(&self, address: SocketAddr, page: usize, score: &Score) {
        let before = self.session.lock().unwrap().clone();
        let cookie = &before.cookie;
        let response = ask(address, "GET", &format!("page={page}"), cookie);
        score.responses.fetch_add(1, Ordering::Relaxed);
        if response.header("X-Cache") == Some("HIT") {
            score.hits.fetch_add(1, Ordering::Relaxed);
        }
        let text = response.text();
        let shown = text
            .strip_prefix("user=")
            .and_then(|t| t.strip_suffix(" end"));
        let shown = shown.and_then(|text| text.split_once(" version="));
        let (user, shown) = shown.unwrap_or_else(|| panic!("{}: {response:?}", self.name));
        let after = self.session.lock().unwrap().clone();
        let is_same = after.cookie == before.cookie;
        if user == "nobody" {
            let is_over = after.is_ending || !is_same;
            assert!(is_over, "{}: logged out without a reason", self.name);
            return;
        }
        assert!(!before.has_ended, "{}: {text} after the logout", self.name);
        assert_eq!(user, self.name, "another visitor's page: {response:?}");
        let shown: u64 = shown.parse().unwrap();
        let written = before.version;
        assert!(
            shown >= written,
            "{}: {text}, but {written} was written: {response:?}",
            self.name
        );
        // At most one write has not been acknowledged.
        let is_known = !is_same || shown <= after.version + 1;
        assert!(
            is_known,
            "{}: {text}, but {} was written",
            self.name, after.version
        );
    }

    fn write_and_read(&self, address: SocketAddr, seed: usize, score: &Score) {
        let mut random = seed as u64 * 7919 + 1;
        for _ in 0..STEPS {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let choice = (random >> 33) % 40;
            match choice {
                0 => {
                    self.log_out(address, "");
                    self.log_in(address);
                }
                1 => {
                    self.log_out(address, "&silent");
                    self.log_in(address);
                }
                2..=4 => self.write(address, "POST"),
                5 => self.write(address, "GET"),
                other => self.read(address, other as usize % PAGES, score),
            }
        }
        self.is_done.store(true, Ordering::SeqCst);
    }

    fn read_on(&self, address: SocketAddr, score: &Score) {
        let mut page = 0;
        while !self.is_done.load(Ordering::SeqCst) {
            page = (page + 1) % PAGES;
            self.read(address, page, score);
        }
    }
}

#[test]
fn ten_users_never_see_what_is_old_or_another_users() {
    // A write invalidates only what is the visitor's own, so nothing else hides a mistake.
    let fixture = builder("private-judge", "cache_flush_on_write = \"off\"").start();
    let address = fixture.address();
    let users: Vec<User> = (0..USERS)
        .map(|n| User {
            name: format!("user{n}"),
            session: Mutex::default(),
            is_done: AtomicBool::new(false),
        })
        .collect();
    let score = Score::default();
    for user in &users {
        user.log_in(address);
    }
    std::thread::scope(|scope| {
        for (seed, user) in users.iter().enumerate() {
            let score = &score;
            scope.spawn(move || user.write_and_read(address, seed, score));
            scope.spawn(move || user.read_on(address, score));
        }
    });
    let (all, hits) = (score.responses.into_inner(), score.hits.into_inner());
    println!("{all} responses, {hits} of them stored");
    assert!(all > 1000, "{all}");
    assert!(hits > all / 3, "{hits} of {all} responses were stored ones");
}
