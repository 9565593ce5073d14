//! Visitors of a site behind the load balancer, and an author who writes: every response is compared with the state
//! that had been written before its request was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use howdah_tests::http::{Response, exchange};

/// The counts and messages that the visitors' threads collect.
#[derive(Debug, Default)]
struct VisitorCounters {
    answers: AtomicU64,
    hits: AtomicU64,
    writes: AtomicU64,
    /// The last edition whose write was acknowledged.
    written: AtomicU64,
    stops: AtomicBool,
    old: Mutex<Vec<String>>,
    failed: Mutex<Vec<String>>,
    failed_writes: Mutex<Vec<String>>,
    slowest: Mutex<Duration>,
}

/// Running visitors. [`Visitors::stop`] returns their results.
pub struct Visitors {
    counts: Arc<VisitorCounters>,
    threads: Vec<JoinHandle<()>>,
}

/// The results of the visitors.
#[derive(Debug)]
pub struct VisitorResults {
    /// Responses to readers.
    pub answers: u64,
    /// How many of them came from a page cache.
    pub hits: u64,
    /// Writes that were acknowledged.
    pub writes: u64,
    /// Pages older than a write that had been acknowledged.
    pub old: Vec<String>,
    /// Requests of readers without a good response.
    pub failed: Vec<String>,
    /// Writes without a good response.
    pub failed_writes: Vec<String>,
    /// The longest time that a reader waited.
    pub slowest: Duration,
}

fn ask(address: SocketAddr, request: &str) -> Result<Response, String> {
    let head = format!("{request} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n");
    let body = if request.starts_with("POST") {
        "Content-Length: 0\r\n\r\n"
    } else {
        "\r\n"
    };
    let answer = exchange(address, format!("{head}{body}").as_bytes());
    let answer = answer.map_err(|broken| format!("{broken:?}"))?;
    match answer.status() {
        200 => Ok(answer),
        status => Err(format!("{status} {:?}", answer.header("Howdah-Error"))),
    }
}

impl Visitors {
    /// Starts this many readers and one author, who all connect to this address; each thread calls `enter` first, which
    /// moves it to the network.
    pub fn start(
        address: SocketAddr,
        readers: usize,
        enter: impl Fn() + Send + Sync + 'static,
    ) -> Visitors {
        let counts = Arc::new(VisitorCounters::default());
        counts.written.store(1, Ordering::SeqCst);
        let enter = Arc::new(enter);
        let mut threads = Vec::new();
        for _ in 0..readers {
            let (counts, enter) = (counts.clone(), enter.clone());
            threads.push(std::thread::spawn(move || {
                enter();
                while !counts.stops.load(Ordering::SeqCst) {
                    read(&counts, address);
                }
            }));
        }
        let author = counts.clone();
        threads.push(std::thread::spawn(move || {
            enter();
            while !author.stops.load(Ordering::SeqCst) {
                write(&author, address);
                // Without a pause between the writes, no page would stay in the cache.
                std::thread::park_timeout(Duration::from_millis(300));
            }
        }));
        Visitors { counts, threads }
    }

    /// Returns how many responses readers have received so far, and how many of them came from a cache.
    pub fn answers(&self) -> (u64, u64) {
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (count(&self.counts.answers), count(&self.counts.hits))
    }

    /// Returns how many writes were acknowledged so far.
    pub fn writes(&self) -> u64 {
        self.counts.writes.load(Ordering::SeqCst)
    }

    /// Stops the visitors' threads, and returns their results.
    pub fn stop(self) -> VisitorResults {
        self.counts.stops.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.thread().unpark();
            thread.join().expect("no visitor panics");
        }
        let take = |list: &Mutex<Vec<String>>| std::mem::take(&mut *list.lock().expect("a list"));
        let counts = self.counts;
        VisitorResults {
            answers: counts.answers.load(Ordering::SeqCst),
            hits: counts.hits.load(Ordering::SeqCst),
            writes: counts.writes.load(Ordering::SeqCst),
            old: take(&counts.old),
            failed: take(&counts.failed),
            failed_writes: take(&counts.failed_writes),
            slowest: *counts.slowest.lock().expect("a time"),
        }
    }
}

fn read(counts: &VisitorCounters, address: SocketAddr) {
    let written = counts.written.load(Ordering::SeqCst);
    let begun = Instant::now();
    match ask(address, "GET /page.php") {
        Err(why) => {
            let failed = format!("{why} after {:?}", begun.elapsed());
            counts.failed.lock().expect("a list").push(failed);
        }
        Ok(page) => {
            counts.answers.fetch_add(1, Ordering::SeqCst);
            if page.header("X-Cache") == Some("HIT") {
                counts.hits.fetch_add(1, Ordering::SeqCst);
            }
            let edition = page.text();
            let edition = edition
                .strip_prefix("edition=")
                .and_then(|e| e.parse().ok());
            if edition.is_none_or(|edition: u64| edition < written) {
                let old = format!(
                    "{edition:?} after {written} by {:?}, {:?}",
                    page.header("X-Server"),
                    page.header("X-Cache")
                );
                counts.old.lock().expect("a list").push(old);
            }
        }
    }
    let mut slowest = counts.slowest.lock().expect("a time");
    *slowest = slowest.max(begun.elapsed());
}

fn write(counts: &VisitorCounters, address: SocketAddr) {
    let edition = counts.written.load(Ordering::SeqCst) + 1;
    match ask(address, &format!("POST /page.php?write={edition}")) {
        Ok(_) => {
            counts.written.store(edition, Ordering::SeqCst);
            counts.writes.fetch_add(1, Ordering::SeqCst);
        }
        Err(why) => counts.failed_writes.lock().expect("a list").push(why),
    }
}
