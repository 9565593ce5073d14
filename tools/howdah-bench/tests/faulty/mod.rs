//! A server that fails in known ways, and records the true counts: how many requests it received, and how it handled
//! each. It is blocking, with a thread per connection.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use howdah_bench::engine::{RunControl, run};
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, StopLimits};
use howdah_bench::run::Run;

/// The reply to a request.
#[derive(Clone, Debug)]
pub enum FaultyReply {
    /// 200 with this body.
    Ok(String),
    /// This status with this body.
    Status(u16, String),
    /// Exactly these bytes, after which the connection is closed.
    Bytes(Vec<u8>),
    /// Exactly these bytes, and the connection stays open.
    BytesAndStay(Vec<u8>),
    /// 200, after which the connection is closed, as announced.
    OkAndClose(String),
    /// The connection is reset.
    Reset,
    /// Nothing until the client disconnects.
    Nothing,
}

/// The parts of a request that a fault can depend on.
#[derive(Debug)]
pub struct FaultyRequest {
    /// The number of the request since the server started, from 1.
    pub number: u64,
    pub line: String,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl FaultyRequest {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(n, _)| n.eq_ignore_ascii_case(name))?;
        Some(value)
    }
}

type Decide = dyn Fn(&FaultyRequest) -> FaultyReply + Send + Sync;

/// The server, which stops at the end of the test.
pub struct Faulty {
    pub url: String,
    truth: Arc<TrueCounts>,
    stop: Arc<AtomicBool>,
    wake: WakeAddress,
}

enum WakeAddress {
    Tcp(std::net::SocketAddr),
    Unix(PathBuf),
}

/// The true counts.
#[derive(Default)]
pub struct TrueCounts {
    pub requests: AtomicU64,
    pub accepted: AtomicU64,
    /// No request gets a response before this time.
    pub stalled_until: Mutex<Option<Instant>>,
}

trait Conversation: Read + Write + Send {
    fn twin(&self) -> Box<dyn Conversation>;
    fn reset(&self);
}

impl Conversation for TcpStream {
    fn twin(&self) -> Box<dyn Conversation> {
        Box::new(self.try_clone().unwrap())
    }
    fn reset(&self) {
        rustix::net::sockopt::set_socket_linger(self, Some(Duration::ZERO)).unwrap();
    }
}

impl Conversation for UnixStream {
    fn twin(&self) -> Box<dyn Conversation> {
        Box::new(self.try_clone().unwrap())
    }
    fn reset(&self) {
        panic!("a unix socket has no reset");
    }
}

impl Faulty {
    /// Starts the server on a free port of loopback.
    pub fn start(decide: impl Fn(&FaultyRequest) -> FaultyReply + Send + Sync + 'static) -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 1024).unwrap();
        let address = listener.local_addr().unwrap();
        let (truth, stop) = (
            Arc::new(TrueCounts::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let (of_thread, stop_flag) = (truth.clone(), stop.clone());
        let decide: Arc<Decide> = Arc::new(decide);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop_flag.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                of_thread.accepted.fetch_add(1, Ordering::Relaxed);
                let (truth, decide) = (of_thread.clone(), decide.clone());
                std::thread::spawn(move || converse(&stream, &truth, &*decide));
            }
        });
        Faulty {
            url: format!("http://{address}/"),
            truth,
            stop,
            wake: WakeAddress::Tcp(address),
        }
    }

    /// Starts the server on a unix socket with this backlog. It accepts one connection at a time, at this pace.
    pub fn slow_unix(path: PathBuf, backlog: i32, pace: Duration) -> Faulty {
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, backlog).unwrap();
        let (truth, stop) = (
            Arc::new(TrueCounts::default()),
            Arc::new(AtomicBool::new(false)),
        );
        let (of_thread, stop_flag) = (truth.clone(), stop.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop_flag.load(Ordering::Relaxed) {
                    return;
                }
                of_thread.accepted.fetch_add(1, Ordering::Relaxed);
                // This pause is the fault itself: the server is busy with the connection.
                std::thread::sleep(pace);
                let close = |_: &FaultyRequest| FaultyReply::OkAndClose("slow".to_owned());
                converse(&stream.unwrap(), &of_thread, &close);
            }
        });
        Faulty {
            url: format!("unix:{}:/", path.display()),
            truth,
            stop,
            wake: WakeAddress::Unix(path),
        }
    }

    /// Returns the number of requests that the server received.
    pub fn requests(&self) -> u64 {
        self.truth.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of connections that the server accepted.
    pub fn accepted(&self) -> u64 {
        self.truth.accepted.load(Ordering::Relaxed)
    }

    /// Returns whether the server has not stalled yet.
    pub fn is_not_stalled(&self) -> bool {
        self.truth.stalled_until.lock().unwrap().is_none()
    }

    /// Delays all responses for this time from now.
    pub fn stall(&self, time: Duration) {
        *self.truth.stalled_until.lock().unwrap() = Some(Instant::now() + time);
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // This wakes the accepting thread, which then stops.
        match &self.wake {
            WakeAddress::Tcp(address) => drop(TcpStream::connect(address)),
            WakeAddress::Unix(path) => drop(UnixStream::connect(path)),
        }
    }
}

fn converse<S: Conversation>(stream: &S, truth: &TrueCounts, decide: &Decide) {
    let mut reader = BufReader::new(stream.twin());
    let mut writer = stream.twin();
    while let Some(request) = read(&mut reader, truth) {
        loop {
            let stalled = *truth.stalled_until.lock().unwrap();
            match stalled.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(rest) if !rest.is_zero() => std::thread::sleep(rest),
                _ => break,
            }
        }
        let whole = |status: u16, body: &str, connection: &str| {
            let length = body.len();
            format!(
                "HTTP/1.1 {status} X\r\nServer: faulty\r\nConnection: {connection}\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .into_bytes()
        };
        let (bytes, stays) = match decide(&request) {
            FaultyReply::Ok(body) => (whole(200, &body, "keep-alive"), true),
            FaultyReply::Status(status, body) => (whole(status, &body, "keep-alive"), true),
            FaultyReply::OkAndClose(body) => (whole(200, &body, "close"), false),
            FaultyReply::Bytes(bytes) => (bytes, false),
            FaultyReply::BytesAndStay(bytes) => (bytes, true),
            FaultyReply::Reset => {
                stream.reset();
                return;
            }
            FaultyReply::Nothing => {
                let _ = reader.read(&mut [0]);
                return;
            }
        };
        let asked_to_close = request
            .field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let old = request.line.ends_with("HTTP/1.0") && request.field("connection").is_none();
        if writer.write_all(&bytes).is_err() || !stays || asked_to_close || old {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead, truth: &TrueCounts) -> Option<FaultyRequest> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let number = truth.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let line = lines.remove(0);
    let fields: Vec<(String, String)> = lines
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let mut request = FaultyRequest {
        number,
        line,
        fields,
        body: Vec::new(),
    };
    let length = request
        .field("content-length")
        .map_or(0, |l| l.parse().unwrap());
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

/// Returns the plan of a closed loop.
pub fn closed(url: &str, concurrency: u32, requests: u64) -> Plan {
    let stop = StopLimits {
        requests: Some(requests),
        time: None,
    };
    let arrivals = Arrivals::Closed { concurrency };
    Plan::new(LoadTarget::parse(url).unwrap(), arrivals, stop)
}

/// Executes the plan, and checks that the counts add up.
#[track_caller]
pub fn measure(plan: &Plan) -> Run {
    let run = run(plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    run
}

/// Returns the requests per second that wrk counts, and how many of them it reports as neither 2xx nor 3xx.
pub fn wrk(url: &str) -> (u64, u64) {
    let output = Command::new("wrk")
        .args(["-t1", "-c4", "-d1s", url])
        .output()
        .expect("wrk is installed (scripts/setup-debian.sh test)");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |text: &str| -> u64 { text.trim().parse().unwrap() };
    let requests = text
        .lines()
        .find_map(|line| line.split_once(" requests in "));
    let others = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses:"));
    let (requests, _) = requests.unwrap_or_else(|| panic!("wrk said: {text}"));
    (number(requests), others.map_or(0, number))
}

/// Runs ab and returns its report.
pub fn ab(arguments: &[&str]) -> AbReport {
    let output = Command::new("ab")
        .args(arguments)
        .output()
        .expect("ab is installed (scripts/setup-debian.sh test)");
    AbReport {
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        ok: output.status.success(),
    }
}

pub struct AbReport {
    pub text: String,
    pub errors: String,
    pub ok: bool,
}

impl AbReport {
    /// Returns the number after a label; 0 if ab omits the line.
    pub fn number(&self, label: &str) -> u64 {
        let line = self
            .text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(label));
        let Some(line) = line else { return 0 };
        let digits: String = line
            .trim_start_matches([':', ' ', '\t'])
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits
            .parse()
            .unwrap_or_else(|_| panic!("{label} in {}", self.text))
    }

    /// Returns a part of `(Connect: 0, Receive: 0, Length: 7, Exceptions: 0)`.
    pub fn failed(&self, kind: &str) -> u64 {
        let Some((_, parts)) = self.text.split_once("(Connect: ") else {
            return 0;
        };
        let parts = format!("Connect: {parts}");
        let (_, rest) = parts.split_once(&format!("{kind}: ")).unwrap();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }
}
