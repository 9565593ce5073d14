//! A closed-loop load generator that classifies the outcome of every request: it counts responses by status,
//! connections that were reset, closed or refused, and wrong bodies. It is made for correctness under load, not for
//! measuring speed: each client is a thread with one connection, which it keeps until the server closes it.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http::{Connection, ExchangeError, Response};
use crate::process::wait_until;

/// The stack size of a client thread, in bytes. It is small because a load may have two thousand clients.
const CLIENT_STACK_BYTES: usize = 256 * 1024;

/// The outcome of one request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestOutcome {
    /// A well-formed response with this status. For errors, the text is the server's name of the error
    /// (`Howdah-Error`), otherwise it is empty.
    Answered(u16, String),
    /// A 200 with another body than expected; the text is the beginning of the body.
    WrongBody(String),
    /// connect(2) failed.
    NotConnected(String),
    /// The connection was reset (ECONNRESET, EPIPE).
    Reset,
    /// The connection was closed before any byte of a response.
    ClosedUnanswered,
    /// The connection was closed in the middle of a response.
    ClosedMidway,
    /// No byte arrived within the client's time limit.
    Silent,
    /// The response was not valid HTTP, or the socket failed in another way; the text says why.
    Malformed(String),
}

impl fmt::Display for RequestOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestOutcome::Answered(status, name) if name.is_empty() => write!(f, "{status}"),
            RequestOutcome::Answered(status, name) => write!(f, "{status} {name}"),
            RequestOutcome::WrongBody(text) => write!(f, "wrong body {text:?}"),
            RequestOutcome::NotConnected(why) => write!(f, "not connected: {why}"),
            RequestOutcome::Reset => f.write_str("reset"),
            RequestOutcome::ClosedUnanswered => f.write_str("closed unanswered"),
            RequestOutcome::ClosedMidway => f.write_str("closed midway"),
            RequestOutcome::Silent => f.write_str("silent"),
            RequestOutcome::Malformed(why) => write!(f, "malformed: {why}"),
        }
    }
}

impl RequestOutcome {
    fn of(
        result: Result<&Response, &ExchangeError>,
        expected: &dyn Fn(&[u8]) -> bool,
    ) -> RequestOutcome {
        match result {
            Ok(response) if response.status() == 200 && !expected(&response.body) => {
                RequestOutcome::WrongBody(response.text().chars().take(120).collect())
            }
            Ok(response) => RequestOutcome::Answered(
                response.status(),
                response.header("Howdah-Error").unwrap_or("").to_owned(),
            ),
            Err(ExchangeError::Closed { midway: false }) => RequestOutcome::ClosedUnanswered,
            Err(ExchangeError::Closed { midway: true }) => RequestOutcome::ClosedMidway,
            Err(ExchangeError::Io(error)) => match error.kind() {
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => RequestOutcome::Reset,
                ErrorKind::WouldBlock | ErrorKind::TimedOut => RequestOutcome::Silent,
                _ => RequestOutcome::Malformed(error.to_string()),
            },
            Err(other) => RequestOutcome::Malformed(other.to_string()),
        }
    }
}

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub enum LoadEnd {
    /// Every client makes this many requests.
    AfterRequests(u64),
    /// The load runs until [`RunningLoad::finish`] is called.
    OnFinish,
}

/// Decides whether a body is the expected one.
type ExpectedBodyTest = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A load to put on a server.
#[derive(Clone)]
pub struct Load {
    address: SocketAddr,
    target: String,
    clients: usize,
    expected: ExpectedBodyTest,
}

impl Load {
    /// Creates a load of one client that requests `target` repeatedly and expects exactly `body`.
    pub fn new(address: SocketAddr, target: &str, body: &str) -> Load {
        let body = body.as_bytes().to_vec();
        Load {
            address,
            target: target.to_owned(),
            clients: 1,
            expected: Arc::new(move |got| got == body),
        }
    }

    /// Sets the number of concurrent clients.
    pub fn clients(mut self, clients: usize) -> Load {
        self.clients = clients;
        self
    }

    /// Accepts every body that satisfies `expected`.
    pub fn expecting(mut self, expected: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Load {
        self.expected = Arc::new(expected);
        self
    }

    /// Starts the clients.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub fn start(self, stop: LoadEnd) -> RunningLoad {
        let shared = Arc::new(LoadState::default());
        let threads = (0..self.clients)
            .map(|_| {
                let load = self.clone();
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .stack_size(CLIENT_STACK_BYTES)
                    .spawn(move || client(&load, stop, &shared))
                    .expect("a client thread starts")
            })
            .collect();
        RunningLoad {
            shared,
            threads,
            since: Instant::now(),
        }
    }

    /// Runs `requests` requests on every client and returns the outcome.
    pub fn run(self, requests: u64) -> LoadOutcome {
        self.start(LoadEnd::AfterRequests(requests)).finish()
    }
}

#[derive(Default)]
struct LoadState {
    over: AtomicBool,
    done: AtomicU64,
    outcome: Mutex<BTreeMap<RequestOutcome, u64>>,
}

/// A load in progress.
pub struct RunningLoad {
    shared: Arc<LoadState>,
    threads: Vec<JoinHandle<()>>,
    since: Instant,
}

impl RunningLoad {
    /// Returns the number of requests whose outcome is known so far.
    pub fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }

    /// Waits until `more` further requests are done, which proves that the load makes progress.
    ///
    /// # Panics
    /// If that takes longer than half a minute.
    pub fn wait_for(&self, more: u64) {
        let goal = self.done() + more;
        wait_until(
            &format!("{more} further requests"),
            Duration::from_secs(30),
            || self.done() >= goal,
        );
    }

    /// Stops the load (with [`LoadEnd::AfterRequests`], waits until it has ended) and returns the outcome.
    ///
    /// # Panics
    /// If a client thread panicked.
    pub fn finish(self) -> LoadOutcome {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("a client does not panic");
        }
        let outcomes = std::mem::take(
            &mut *self
                .shared
                .outcome
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        LoadOutcome {
            outcomes,
            took: self.since.elapsed(),
        }
    }
}

/// The outcome of all requests of a load.
#[derive(Clone, Debug)]
pub struct LoadOutcome {
    /// The number of requests for each outcome.
    pub outcomes: BTreeMap<RequestOutcome, u64>,
    /// The time from the start of the clients until the last of them has ended.
    pub took: Duration,
}

impl LoadOutcome {
    /// Returns the number of all requests made.
    pub fn total(&self) -> u64 {
        self.outcomes.values().sum()
    }

    /// Returns the number of responses with this status, whatever the name of the error.
    pub fn status(&self, status: u16) -> u64 {
        self.outcomes
            .iter()
            .filter(|(fate, _)| matches!(fate, RequestOutcome::Answered(s, _) if *s == status))
            .map(|(_, n)| n)
            .sum()
    }

    /// Returns the number of requests whose outcome is displayed as `text` (e.g. `200`, `503 QueueFull` or `reset`).
    pub fn count(&self, text: &str) -> u64 {
        self.outcomes
            .iter()
            .filter(|(fate, _)| fate.to_string() == text)
            .map(|(_, n)| n)
            .sum()
    }

    /// Checks that there were requests and that every outcome is among `allowed`.
    ///
    /// # Panics
    /// If not; the message lists all outcomes.
    #[track_caller]
    pub fn only(&self, allowed: &[&str]) -> &Self {
        assert!(self.total() > 0, "no request was made");
        let others: Vec<_> = self
            .outcomes
            .keys()
            .filter(|fate| !allowed.contains(&fate.to_string().as_str()))
            .collect();
        assert!(others.is_empty(), "expected only {allowed:?}, got {self}");
        self
    }
}

impl fmt::Display for LoadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} requests in {:.2} s:",
            self.total(),
            self.took.as_secs_f64()
        )?;
        for (fate, n) in &self.outcomes {
            write!(f, " [{n} x {fate}]")?;
        }
        Ok(())
    }
}

fn client(load: &Load, stop: LoadEnd, shared: &LoadState) {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\n\r\n",
        load.target, load.address
    );
    let mut outcomes: BTreeMap<RequestOutcome, u64> = BTreeMap::new();
    let mut connection: Option<Connection> = None;
    let mut made = 0;
    loop {
        let go_on = match stop {
            LoadEnd::AfterRequests(n) => made < n,
            LoadEnd::OnFinish => !shared.over.load(Ordering::Relaxed),
        };
        if !go_on {
            break;
        }
        made += 1;
        let fate = one_request(load, request.as_bytes(), &mut connection);
        let failed = !matches!(fate, RequestOutcome::Answered(..));
        *outcomes.entry(fate).or_default() += 1;
        shared.done.fetch_add(1, Ordering::Relaxed);
        if failed && matches!(stop, LoadEnd::OnFinish) {
            // Without this pause, the clients of a server that is down would try to connect a hundred thousand times a
            // second.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let mut all = shared
        .outcome
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (fate, n) in outcomes {
        *all.entry(fate).or_default() += n;
    }
}

fn one_request(load: &Load, request: &[u8], kept: &mut Option<Connection>) -> RequestOutcome {
    let mut connection = match kept.take() {
        Some(connection) => connection,
        None => match Connection::open(load.address) {
            Ok(connection) => connection,
            Err(error) => return RequestOutcome::NotConnected(error.kind().to_string()),
        },
    };
    let sent = connection.send(request);
    // The server may have sent a refusal before it closed the connection, so the response is read even after EPIPE.
    let result = connection
        .read_response("GET")
        .map_err(|broken| match sent {
            Err(error) => ExchangeError::Io(error),
            Ok(()) => broken,
        });
    let fate = RequestOutcome::of(result.as_ref(), load.expected.as_ref());
    if result.is_ok_and(|response| response.keeps_alive) {
        *kept = Some(connection);
    }
    fate
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Responds to the first request of every connection with `answer`, then closes the connection.
    fn server(answer: &'static str, connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(connections) {
                let mut stream = stream.unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    }

    #[track_caller]
    fn check(answer: &'static str, expected: &str) {
        let outcome = Load::new(server(answer, 3), "/", "yes").run(3);
        assert_eq!(
            outcome.count(expected),
            3,
            "{answer:?}: wanted {expected}, got {outcome}"
        );
    }

    #[test]
    fn every_fate_is_told_apart() {
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nyes",
            "200",
        );
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
            "wrong body \"no\"",
        );
        check(
            "HTTP/1.1 503 Full\r\nHowdah-Error: QueueFull\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n",
            "503 QueueFull",
        );
        check("", "closed unanswered");
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nyes",
            "closed midway",
        );
        check("hello\r\n\r\n", "malformed: bad status line \"hello\"");
    }
}
