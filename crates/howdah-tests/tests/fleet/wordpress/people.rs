//! The people who use a WordPress: readers, writers and commenters, all through the load balancer. Each of them checks
//! every response: a page is old if it lacks something whose write was acknowledged before the page was requested.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use howdah_tests::haproxy::SERVER;
use howdah_tests::http::{Response, exchange};
use howdah_tests::wordpress_home::HOST;

/// The number of hits for which a person waits between two writes, and the longest time for that.
#[derive(Clone, Copy, Debug)]
pub struct WritePause {
    pub hits: u64,
    pub longest: Duration,
}

/// The longest pause while a fault lasts.
const MAX_PAUSE_DURING_FAULT: Duration = Duration::from_millis(300);
/// The maximum number of mistakes that are printed as they occur.
const MAX_PRINTED_MISTAKES: usize = 10;
/// Texts that no anonymous reader may see.
const SECRETS: [&str; 4] = ["wpadminbar", "Howdy", "logged-in", "evil.example"];

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A post, and the comments on it that have been acknowledged.
#[derive(Debug)]
pub struct Post {
    pub id: u64,
    pub comments: Mutex<Vec<String>>,
}

/// Counts of what the people have done and seen.
#[derive(Debug, Default)]
pub struct PeopleCounts {
    pub answers: AtomicU64,
    pub hits: AtomicU64,
    pub renames: AtomicU64,
    pub publishes: AtomicU64,
    pub comments: AtomicU64,
    /// Requests that failed while the member that handled them was killed.
    pub killed: AtomicU64,
}

/// A WordPress that people use.
#[derive(Debug)]
pub struct FleetBlog {
    pub address: SocketAddr,
    pub posts: Vec<Post>,
    pub pause: WritePause,
    /// The newest name of the blog, and the newest text of the first post, whose writes have been acknowledged.
    pub named: AtomicU64,
    pub text: AtomicU64,
    pub over: AtomicBool,
    /// True while a fault lasts: people who write then pause only for a moment.
    pub hurry: AtomicBool,
    pub counts: PeopleCounts,
    /// When the kill of a member began and when it was over. The last kill may not be over yet.
    pub kills: Mutex<Vec<(Instant, Option<Instant>)>>,
    /// How long writes took, in milliseconds.
    pub took: Mutex<Vec<u64>>,
    /// The mistakes that were found in responses.
    pub mistakes: Mutex<Vec<String>>,
    /// Hits by the name of the member.
    hits: Mutex<BTreeMap<String, u64>>,
    more: Condvar,
}

/// Returns the number that follows a text.
fn number_after(page: &str, mark: &str) -> Option<u64> {
    let digits = page.split(mark).nth(1)?;
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

impl FleetBlog {
    pub fn new(address: SocketAddr, posts: &[u64], pause: WritePause) -> FleetBlog {
        let post = |id: &u64| Post {
            id: *id,
            comments: Mutex::default(),
        };
        FleetBlog {
            address,
            posts: posts.iter().map(post).collect(),
            pause,
            named: AtomicU64::new(0),
            text: AtomicU64::new(0),
            over: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            counts: PeopleCounts::default(),
            kills: Mutex::default(),
            took: Mutex::default(),
            mistakes: Mutex::default(),
            hits: Mutex::default(),
            more: Condvar::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn hits_of(&self, member: usize) -> u64 {
        let hits = lock(&self.hits);
        hits.get(&format!("m{member}")).copied().unwrap_or_default()
    }

    fn mistake(&self, text: String) {
        let mut mistakes = lock(&self.mistakes);
        if mistakes.len() < MAX_PRINTED_MISTAKES {
            eprintln!("{text}");
        }
        mistakes.push(text);
    }

    /// Sends one request. Returns `None` if it failed, which is a mistake unless the member that handled it was killed
    /// in the meantime.
    fn ask(&self, method: &str, path: &str, lines: &str, form: &str) -> Option<Response> {
        let length = match method {
            "POST" => format!(
                "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n",
                form.len()
            ),
            _ => String::new(),
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{lines}{length}Connection: close\r\n\r\n{form}"
        );
        let begun = Instant::now();
        let answer = exchange(self.address, request.as_bytes());
        let ended = Instant::now();
        let why = match answer {
            Ok(answer) if answer.status() < 400 => {
                self.counts.answers.fetch_add(1, Ordering::SeqCst);
                return Some(answer);
            }
            Ok(answer) => format!(
                "{} by {:?}: {}",
                answer.status(),
                answer.header(SERVER),
                answer.text()
            ),
            Err(broken) => broken.to_string(),
        };
        let kills = lock(&self.kills);
        let was_killed = |(from, to): &(Instant, Option<Instant>)| {
            *from <= ended && to.is_none_or(|to| begun <= to)
        };
        match kills.iter().any(was_killed) {
            true => {
                self.counts.killed.fetch_add(1, Ordering::SeqCst);
            }
            false => self.mistake(format!(
                "failed: {method} {path} after {:?}: {why}",
                ended - begun
            )),
        }
        None
    }

    /// Waits until readers have had enough hits since the last write. The time is limited, because there may be no
    /// hits.
    fn pause(&self) {
        let begun = Instant::now();
        let wanted = self.counts.hits.load(Ordering::SeqCst) + self.pause.hits;
        let mut hits = lock(&self.hits);
        while self.counts.hits.load(Ordering::SeqCst) < wanted {
            let longest = match self.hurry.load(Ordering::SeqCst) {
                true => MAX_PAUSE_DURING_FAULT,
                false => self.pause.longest,
            };
            let left = longest.saturating_sub(begun.elapsed());
            if left.is_zero() || self.is_over() {
                break;
            }
            (hits, _) = self
                .more
                .wait_timeout(hits, left.min(MAX_PAUSE_DURING_FAULT))
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn note(&self, begun: Instant) {
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        lock(&self.took).push(took);
    }

    /// Reads page after page; `way` selects how this reader sends requests.
    pub fn read(&self, way: usize) {
        const LINES: [&str; 4] = [
            "",
            "Cookie: _ga=GA1.2.3; _gid=4\r\n",
            "User-Agent: somebody\r\nX-Forwarded-Host: evil.example\r\n",
            "Cache-Control: no-cache\r\n",
        ];
        let mut turn = way;
        while !self.is_over() {
            turn += 1;
            match turn % 5 {
                0 => self.read_page("/", None, LINES[way % 4]),
                1 => self.read_page("/?utm_source=news", None, LINES[way % 4]),
                _ => {
                    let post = &self.posts[(turn / 5) % self.posts.len()];
                    self.read_page(&format!("/?p={}", post.id), Some(post), LINES[way % 4]);
                }
            }
        }
    }

    fn read_page(&self, path: &str, post: Option<&Post>, lines: &str) {
        let named = self.named.load(Ordering::SeqCst);
        let written = self.text.load(Ordering::SeqCst);
        let comments = post.map_or_else(Vec::new, |post| lock(&post.comments).clone());
        let Some(answer) = self.ask("GET", path, lines, "") else {
            return;
        };
        let text = answer.text();
        let is_hit = answer.header("X-Cache") == Some("HIT");
        let what = format!(
            "{path} by {:?}, {:?}",
            answer.header(SERVER),
            answer.header("X-Cache")
        );
        match number_after(&text, "Edition ") {
            Some(edition) if edition >= named => {}
            other => self.mistake(format!("old: {what}: name {other:?}, written {named}")),
        }
        if let Some(post) = post {
            if !text.contains(&format!("This is post {}.", post.id)) {
                self.mistake(format!("wrong: {what}: {text}"));
            }
            if post.id == self.posts[0].id
                && number_after(&text, "Text ").is_none_or(|text| text < written)
            {
                self.mistake(format!("old: {what}: text older than {written}"));
            }
            for missing in comments.iter().filter(|comment| !text.contains(*comment)) {
                self.mistake(format!("old: {what} lacks {missing}"));
            }
        }
        for secret in SECRETS.iter().filter(|secret| text.contains(**secret)) {
            self.mistake(format!("wrong: {what} has {secret}"));
        }
        if is_hit {
            self.counts.hits.fetch_add(1, Ordering::SeqCst);
            let server = answer.header(SERVER).unwrap_or_default().to_owned();
            *lock(&self.hits).entry(server).or_default() += 1;
            self.more.notify_all();
        }
    }

    pub fn log_in(&self, name: &str, password: &str) -> String {
        let form = format!("log={name}&pwd={password}&testcookie=1");
        let test = "Cookie: wordpress_test_cookie=WP%20Cookie%20check\r\n";
        let answer = self.ask("POST", "/wp-login.php", test, &form);
        let answer = answer.expect("a response to the login");
        assert_eq!(answer.status(), 302, "{}", answer.text());
        let cookies = answer.head.headers.all("Set-Cookie");
        let pairs: Vec<&str> = cookies
            .filter_map(|cookie| cookie.split(';').next())
            .collect();
        format!("Cookie: {}\r\n", pairs.join("; "))
    }

    /// Repeatedly gives the blog a new name, as the settings page does; then the owner and another user view their own
    /// pages.
    pub fn rename(&self, owner: &str, rider: &str) {
        let path = "/wp-admin/options-general.php";
        let page = self
            .ask("GET", path, owner, "")
            .expect("the settings")
            .text();
        let token = page.split("name=\"_wpnonce\" value=\"").nth(1);
        let token = token.and_then(|rest| rest.split('"').next());
        let token = token.unwrap_or_else(|| panic!("the settings have no token: {page}"));
        let mut edition = 0;
        while !self.is_over() {
            edition += 1;
            let form = format!(
                "option_page=general&action=update&_wpnonce={token}&blogname=Edition+{edition}\
                 &blogdescription=x&siteurl=http%3A%2F%2F{HOST}&home=http%3A%2F%2F{HOST}\
                 &new_admin_email=owner%40example.org&default_role=subscriber&timezone_string=UTC\
                 &date_format=Y-m-d&time_format=H%3Ai&start_of_week=1"
            );
            let begun = Instant::now();
            if self
                .ask("POST", "/wp-admin/options.php", owner, &form)
                .is_some()
            {
                self.note(begun);
                self.named.store(edition, Ordering::SeqCst);
                self.counts.renames.fetch_add(1, Ordering::SeqCst);
                self.read_page("/", None, "");
            }
            for (lines, shows, hides) in [(owner, "owner", "rider"), (rider, "rider", "owner")] {
                let Some(page) = self.ask("GET", "/", lines, "") else {
                    continue;
                };
                let text = page.text();
                let greeting = |name| format!("<span class=\"display-name\">{name}</span>");
                if !text.contains(&greeting(shows)) || text.contains(&greeting(hides)) {
                    self.mistake(format!("wrong: {shows}'s own page: {text}"));
                }
            }
            self.pause();
        }
    }

    /// Repeatedly publishes a new text of the first post, as the editor does.
    pub fn publish(&self, owner: &str) {
        let path = "/wp-admin/admin-ajax.php?action=rest-nonce";
        let token = self.ask("GET", path, owner, "").expect("a token").text();
        let post = self.posts[0].id;
        let path = format!("/index.php?rest_route=/wp/v2/posts/{post}");
        let lines = format!("{owner}X-WP-Nonce: {token}\r\n");
        let mut edition = 0;
        while !self.is_over() {
            edition += 1;
            let form =
                format!("title=Hello&content=This+is+post+{post}.+Text+{edition}&status=publish");
            let begun = Instant::now();
            if self.ask("POST", &path, &lines, &form).is_some() {
                self.note(begun);
                self.text.store(edition, Ordering::SeqCst);
                self.counts.publishes.fetch_add(1, Ordering::SeqCst);
                self.read_page(&format!("/?p={post}"), Some(&self.posts[0]), "");
            }
            self.pause();
        }
    }

    /// Comments on post after post, as a visitor.
    pub fn comment(&self, author: &str) {
        let mut number = 0;
        while !self.is_over() {
            number += 1;
            let post = &self.posts[number % self.posts.len()];
            let words = format!("{author} says {number}.");
            let form = format!(
                "comment={}&author={author}&email={author}%40example.org&comment_post_ID={}",
                words.replace(' ', "+"),
                post.id
            );
            let begun = Instant::now();
            if self
                .ask("POST", "/wp-comments-post.php", "", &form)
                .is_some()
            {
                self.note(begun);
                lock(&post.comments).push(words);
                self.counts.comments.fetch_add(1, Ordering::SeqCst);
                self.read_page(&format!("/?p={}", post.id), Some(post), "");
            }
            self.pause();
        }
    }
}
