//! Sends the requests of concurrent readers, users and a writer to an application behind a page cache, and checks every
//! response. A page shows an edition, which is a number that each write increases. A request that is sent after the
//! response to a write must see the edition of that write or a later one, and no user may see another user's page.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::http::{Response, exchange};

/// The number of writes in a test run; with `HOWDAH_TESTS_CACHE_SECONDS`, writes continue for that many seconds
/// instead.
const WRITES: u64 = 6;
/// The number of cache hits between two writes.
const HITS: u64 = 20;
/// How long the test waits for the next cache hit before it fails.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// An anonymous reader.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The path that the reader requests.
    pub path: &'a str,
    /// Request headers, each with its line ending.
    pub lines: &'a str,
}

/// The application as readers see it.
#[derive(Clone, Copy, Debug)]
pub struct CachedApplication<'a> {
    /// The address at which it is served.
    pub address: SocketAddr,
    /// The `Host` header.
    pub host: &'a str,
    /// The anonymous readers, one thread each.
    pub readers: &'a [Reader<'a>],
    /// The text that precedes the number of the edition in a page.
    pub mark: &'a str,
    /// Texts that no anonymous reader may see.
    pub secrets: &'a [&'a str],
}

/// Counts of the pages and writes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// The number of pages that anonymous readers received.
    pub reads: u64,
    /// How many of these came from the cache.
    pub hits: u64,
    /// The number of writes.
    pub writes: u64,
}

/// Stops the readers when it is dropped, which also happens if the writer fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl CachedApplication<'_> {
    /// Sends one request; the connection ends after the response.
    ///
    /// # Panics
    /// If there is no well-formed response.
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

    /// Returns the edition that a page shows.
    pub fn edition(&self, page: &str) -> Option<u64> {
        let digits = page.split(self.mark).nth(1)?;
        let end = digits.find(|c: char| !c.is_ascii_digit());
        digits[..end.unwrap_or(digits.len())].parse().ok()
    }

    /// Runs each of `users` in a loop of its own while `write` publishes edition after edition. Edition 1 exists
    /// already. Each user checks its own responses.
    ///
    /// # Panics
    /// If a reader receives another user's page, or an edition older than one that was written before the request, or
    /// if readers receive too few responses from the cache.
    pub fn run(
        &self,
        users: Vec<Box<dyn FnMut() + Send + '_>>,
        mut write: impl FnMut(u64),
    ) -> ReaderCounts {
        let seconds = std::env::var("HOWDAH_TESTS_CACHE_SECONDS")
            .ok()
            .map(|n| Duration::from_secs(n.parse().expect("a number of seconds")));
        let begun = Instant::now();
        let written = AtomicU64::new(1);
        let (over, reads, hits) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let (hit, hits_seen) = mpsc::channel();
        std::thread::scope(|scope| {
            let over_at_the_end = StopOnDrop(&over);
            for reader in self.readers {
                let (written, over, reads, hits, hit) =
                    (&written, &over, &reads, &hits, hit.clone());
                scope.spawn(move || {
                    while !over.load(Ordering::SeqCst) {
                        let is_hit = self.read(reader, written);
                        reads.fetch_add(1, Ordering::SeqCst);
                        if is_hit {
                            hits.fetch_add(1, Ordering::SeqCst);
                            // The writer may have stopped.
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
                // From now on, every reader must see the new edition, which the writer checks at once with a request of
                // each reader.
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
        let counts = ReaderCounts {
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

    /// Reads and checks a page once. The text of a compressed response is not checked. Returns whether the response was
    /// a cache hit.
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

/// Waits until readers have received [`HITS`] pages from the cache. Returns false if the readers have failed and are
/// gone.
fn some_hits(seen: &Receiver<()>) -> bool {
    // Hits from before this write belong to the previous write.
    while seen.try_recv().is_ok() {}
    for _ in 0..HITS {
        match seen.recv_timeout(MAX_WAIT) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                panic!("no page came from the cache for {MAX_WAIT:?}")
            }
        }
    }
    true
}
