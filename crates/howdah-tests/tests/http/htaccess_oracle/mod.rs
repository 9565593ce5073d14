//! The same `.htaccess` files under Howdah and under Apache with `AllowOverride All`, in one tree that both serve. The
//! files of each case are written while both are running. Howdah never sends a response that Apache refuses; where a
//! case says [`Same`], Howdah also sends every response that Apache sends. The remaining differences are in
//! docs/differences.md: "closed here, open under Apache".

mod applications;
mod cases;
mod live;
mod live_cases;
mod random;

use std::path::Path;

use howdah_tests::http::{self, Response};
use howdah_tests::rig::{Howdah, ModPhp, Server, Site};
use howdah_tests::scratch::Scratch;

use cases::Strictness::{Same, Stricter};
use cases::{EVERYWHERE, INHERITED, MISTAKES, REQUESTS, Strictness};

const SECRET: &str = "TOP-SECRET";
const SCRIPT: &str = "<?php echo 'SCRIPT-', 'RAN';";
const SCRIPT_OUTPUT: &str = "SCRIPT-RAN";

/// Both servers on one tree.
struct ServersOnOneTree {
    scratch: Scratch,
    howdah: Howdah,
    apache: ModPhp,
}

impl ServersOnOneTree {
    fn start(name: &str, fill: impl FnOnce(&Scratch)) -> ServersOnOneTree {
        let scratch = Scratch::new(name);
        fill(&scratch);
        let mut site = Site::new(scratch.join("site")).children(2);
        site.htaccess = true;
        ServersOnOneTree {
            howdah: Howdah::start(&site),
            apache: ModPhp::start(&site),
            scratch,
        }
    }

    fn write(&self, file: &str, text: &str) {
        self.scratch.write(Path::new("site").join(file), text);
    }

    /// Returns what is wrong with the responses to one request.
    fn compare(
        &self,
        (method, target, fields): (&str, &str, &str),
        expected: Strictness,
    ) -> Option<String> {
        let ask = |server: &dyn Server| -> Response {
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 0\r\nConnection: close\r\n\r\n"
            );
            let answer = match method {
                "HEAD" => http::Connection::open(server.address())
                    .map_err(http::ExchangeError::Io)
                    .and_then(|mut connection| {
                        connection.send(&request)?;
                        connection.read_response("HEAD")
                    }),
                _ => http::exchange(server.address(), request.as_bytes()),
            };
            answer.unwrap_or_else(|broken| panic!("{method} {target}: {broken}\n{}", server.log()))
        };
        let (ours, theirs) = (ask(&self.howdah), ask(&self.apache));
        let (our, their) = (ours.text(), theirs.text());
        let shows = |text: &str, what: &str| text.contains(what);
        // A redirect by Apache is not a refusal: in this mode, Howdah does not follow redirects in `.htaccess` files.
        let redirected = (300..400).contains(&theirs.status());
        let more = !redirected
            && [SECRET, SCRIPT_OUTPUT, "<?php"]
                .iter()
                .any(|what| shows(&our, what) && !shows(&their, what));
        let answered = ours.status() < 400 && theirs.status() >= 400;
        let same = shows(&our, SECRET) == shows(&their, SECRET)
            && shows(&our, SCRIPT_OUTPUT) == shows(&their, SCRIPT_OUTPUT);
        // A response may contain neither text, for example a redirect to a directory's slash, an index file, or the
        // page for a missing file. Then only its status shows whether it is a refusal.
        let refused = (ours.status() >= 400) == (theirs.status() >= 400);
        let wrong = more || answered || expected == Same && !(same && refused);
        wrong.then(|| {
            let log = self.apache.log();
            let last = log.lines().last().unwrap_or_default();
            format!(
                "  {last}\n  {method} {target} {}: Howdah {} {:?} {our:?}, Apache {} {:.60?}",
                fields.trim_end(),
                ours.status(),
                ours.header("Howdah-Error"),
                theirs.status(),
                their
            )
        })
    }

    fn ask_all(&self, title: &str, expected: Strictness, wrong: &mut Vec<String>) {
        let found: Vec<String> = REQUESTS
            .iter()
            .filter_map(|asked| self.compare(*asked, expected))
            .collect();
        if !found.is_empty() {
            wrong.push(format!("{title}\n{}", found.join("\n")));
        }
    }
}

fn small_tree(scratch: &Scratch) {
    for directory in ["", "c/", "c/sub/"] {
        let write = |name: &str, text: &str| {
            scratch.write(Path::new("site").join(format!("{directory}{name}")), text)
        };
        write("secret.txt", SECRET);
        write("run.php", SCRIPT);
        write("data.ini", SECRET);
        write("index.html", "an index page");
    }
}

fn check(wrong: &[String], pair: &ServersOnOneTree) {
    assert!(
        wrong.is_empty(),
        "{} cases:\n{}\n{}",
        wrong.len(),
        wrong.join("\n"),
        pair.howdah
            .log()
            .lines()
            .take(20)
            .collect::<Vec<_>>()
            .join("\n")
    );
}

#[test]
fn requests_that_apache_refuses_are_refused_in_the_root_and_below_it() {
    let pair = ServersOnOneTree::start("htaccess-oracle", small_tree);
    let mut wrong = Vec::new();
    for (expected, text) in EVERYWHERE {
        for place in ["c/.htaccess", ".htaccess"] {
            pair.write(place, text);
            // In the root, the lists restrict no client that is on none of them, as under Apache.
            let expected = match place {
                ".htaccess" if text.contains("192.0.2") => Same,
                _ => *expected,
            };
            pair.ask_all(&format!("{place}: {text}"), expected, &mut wrong);
            pair.write(place, "");
        }
    }
    check(&wrong, &pair);
}

#[test]
fn mistake_closes_as_apaches_500_does() {
    let pair = ServersOnOneTree::start("htaccess-oracle-mistakes", small_tree);
    let mut wrong = Vec::new();
    for text in MISTAKES {
        pair.write("c/.htaccess", text);
        pair.ask_all(text, Same, &mut wrong);
    }
    check(&wrong, &pair);
}

#[test]
fn directories_inherit_as_under_apache() {
    let pair = ServersOnOneTree::start("htaccess-oracle-inherited", small_tree);
    let mut wrong = Vec::new();
    for (expected, root, directory, sub) in INHERITED {
        pair.write(".htaccess", root);
        pair.write("c/.htaccess", directory);
        pair.write("c/sub/.htaccess", sub);
        let title = format!("/: {root}\n/c: {directory}\n/c/sub: {sub}");
        pair.ask_all(&title, *expected, &mut wrong);
    }
    check(&wrong, &pair);
}

/// `HOWDAH_HTACCESS_CASES=1000..5000` tests the files with these numbers instead of the first 150.
#[test]
fn random_files_serve_nothing_that_apache_refuses() {
    let range = std::env::var("HOWDAH_HTACCESS_CASES").unwrap_or("0..150".to_owned());
    let (first, end) = range.split_once("..").expect("FIRST..END");
    let (first, end): (u64, u64) = (first.parse().unwrap(), end.parse().unwrap());
    let pair = ServersOnOneTree::start("htaccess-oracle-random", small_tree);
    let mut wrong = Vec::new();
    for number in first..end {
        let directory = random::file(2 * number);
        // For every second number, there is no file in `/c/sub`.
        let sub = match number % 2 {
            0 => String::new(),
            _ => random::file(2 * number + 1),
        };
        pair.write("c/.htaccess", &directory);
        pair.write("c/sub/.htaccess", &sub);
        let title = format!("{number}\n/c: {directory}\n/c/sub: {sub}");
        pair.ask_all(&title, Stricter, &mut wrong);
    }
    check(&wrong, &pair);
}
