//! Checks every answer to concurrent readers, users and a writer, in front of whom a page cache
//! must not fail. A page shows an edition, a number that each write raises; a request after a
//! write's answer must see that edition or a later one, and nobody may see another user's page.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::http::{Response, exchange};

/// Writes in a test run; `HOWDAH_TESTS_CACHE_SECONDS` goes on for so many seconds instead.
const WRITES: u64 = 6;
/// Hits between two writes.
const HITS: u64 = 20;
/// A cache that gives none for so long gives none.
const PATIENCE: Duration = Duration::from_secs(20);

/// Who reads what.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// What is asked for.
    pub path: &'a str,
    /// Request fields, each with its line end.
    pub lines: &'a str,
}

/// The application as readers know it.
#[derive(Clone, Copy, Debug)]
pub struct Drive<'a> {
    /// Where it is served.
    pub address: SocketAddr,
    /// `Host`.
    pub host: &'a str,
    /// The anonymous readers, a thread each.
    pub readers: &'a [Reader<'a>],
    /// The edition a page shows is the number behind this text.
    pub mark: &'a str,
    /// Texts that no anonymous reader may see.
    pub secrets: &'a [&'a str],
}

/// What the readers have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages that anonymous readers got.
    pub reads: u64,
    /// Of these, from the cache.
    pub hits: u64,
    /// Writes.
    pub writes: u64,
}

/// Ends the readers, also when the writer fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Drive<'_> {
    /// Asks once; the connection ends with the answer.
    ///
    /// # Panics
    /// If there is no well-formed answer.
    pub fn ask(&self, method: &str, path: &str, lines: &str, form: &str) -> Response {
        let length = if method == "POST" {
            let kind = "Content-Type: application/x-www-form-urlencoded\r\n";
            format!("{kind}Content-Length: {}\r\n", form.len())
        } else {
            String::new()
        };
        let host = self.host;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}{length}Connection: close\r\n\r\n{form}"
        );
        exchange(self.address, request.as_bytes())
            .unwrap_or_else(|why| panic!("{method} {path}: {why}"))
    }

    /// The edition a page shows.
    pub fn edition(&self, page: &str) -> Option<u64> {
        let digits = page.split(self.mark).nth(1)?;
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits[..end.unwrap_or(digits.len())].parse().ok()
    }

    /// Lets `users` go about their business, each in a loop of its own, while `write` publishes
    /// edition after edition; edition 1 is there already. Each checks every answer.
    ///
    /// # Panics If a reader gets an edition older than one written before the request, another's
    /// page, or too few answers from the cache.
    pub fn run(
        &self,
        users: Vec<Box<dyn FnMut() + Send + '_>>,
        mut write: impl FnMut(u64),
    ) -> Counts {
        let seconds = std::env::var("HOWDAH_TESTS_CACHE_SECONDS")
            .ok()
            .map(|n| Duration::from_secs(n.parse().expect("a number of seconds")));
        let begun = Instant::now();
        let written = AtomicU64::new(1);
        let (over, reads, hits) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (hit, hits_seen) = mpsc::channel();
        std::thread::scope(|scope| {
            let over_at_the_end = Over(&over);
            for reader in self.readers {
                let (written, over, reads, hits, hit) =
                    (&written, &over, &reads, &hits, hit.clone());
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let is_hit = self.read(reader, written);
                        reads.fetch_add(1, Ordering::SeqCst);
                        if is_hit {
                            hits.fetch_add(1, Ordering::SeqCst);
                            // The writer may have gone.
                            let _ = hit.send(());
                        }
                    }
                });
            }
            drop(hit);
            for mut user in users {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        user();
                    }
                });
            }
            let is_time = |next: u64| match seconds {
                Some(seconds) => begun.elapsed() < seconds,
                None => next <= WRITES + 1,
            };
            let mut next = 2;
            while is_time(next) {
                write(next);
                written.store(next, Ordering::SeqCst);
                // The writer sees the new edition, and so does everybody.
                for reader in self.readers {
                    self.read(reader, &written);
                }
                next += 1;
                if !some_hits(&hits_seen) {
                    break;
                }
            }
            drop(over_at_the_end);
        });
        let counts = Counts {
            reads: reads.into_inner(),
            hits: hits.into_inner(),
            writes: written.into_inner() - 1,
        };
        println!("{counts:?} in {:?}", begun.elapsed());
        assert!(
            counts.hits >= HITS * counts.writes && counts.writes > 0,
            "{counts:?}"
        );
        counts
    }

    /// Reads once; whether it was a hit.
    fn read(&self, reader: &Reader<'_>, written: &AtomicU64) -> bool {
        let before = written.load(Ordering::SeqCst);
        let answer = self.ask("GET", reader.path, reader.lines, "");
        let (path, text) = (reader.path, answer.text());
        assert_eq!(answer.status(), 200, "{path}: {text}");
        assert!(
            answer.header("Set-Cookie").is_none(),
            "{path}: {:?}",
            answer.head
        );
        if answer.header("Content-Encoding").is_none() {
            let edition = self.edition(&text);
            assert!(
                edition.is_some_and(|edition| edition >= before),
                "{path}: edition {edition:?} was read after {before} was written: {text}"
            );
            for secret in self.secrets {
                assert!(!text.contains(secret), "{path} has {secret}: {text}");
            }
        }
        answer.header("X-Cache") == Some("HIT")
    }
}

/// Waits until readers had some pages from the cache; false: they are gone, having failed.
fn some_hits(seen: &Receiver<()>) -> bool {
    // What came before the write counts for the write before.
    while seen.try_recv().is_ok() {}
    for _ in 0..HITS {
        match seen.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no page came from the cache for {PATIENCE:?}")
            }
        }
    }
    true
}
