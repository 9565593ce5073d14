//! Drives the whole front over socket pairs, with requests made from the fuzzer's bytes, cut and
//! delayed as those bytes say, and compares every answer with a model: answers come in the order
//! of their requests, each is the one its request must get, and no byte of another connection's
//! answer is in any of them. One host has the page cache on, and pages that a cookie makes personal;
//! files are closed by an `.htaccess` file; scripts name files by `X-Accel-Redirect`; clients leave
//! and half-close. The client's half (`Reader`) shares no code with the server.

use std::collections::HashMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::status::PoolStatus;
use howdah_executor::{
    Event, ExecError, Executor, Head, Run, RunTiming, ScriptBody, ScriptRequest,
};
use howdah_server::http::{HttpConfig, serve_connected};
use howdah_server::log::{ErrorLog, ErrorStyle, LogTarget, Sink};
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, ServerConfig};
use howdah_server::site::config::{CacheConfig, HostPattern};
use howdah_server::site::{Site, SiteConfig, Sites};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// The files of the site: below and above what the front keeps in memory and sends in one piece.
const FILE_SIZES: [usize; 4] = [0, 5, 20_000, 300_000];
/// What nobody may read: it lies where an `.htaccess` file closes the directory.
const CLOSED: &[u8] = b"closed to everybody\n";
/// Pages that all connections ask for, so that they meet in the cache.
const PAGES: usize = 4;
/// Longest wait for anything: reaching it is a finding (a hang).
const PATIENCE: Duration = Duration::from_secs(30);

/// The fuzzer's bytes, as numbers; zeros when they have run out.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn byte(&mut self) -> usize {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        usize::from(*first)
    }

    fn word(&mut self) -> usize {
        self.byte() << 8 | self.byte()
    }
}

/// What a request must be answered with.
#[derive(Debug)]
enum Expected {
    /// This status, this body (after decoding), and, where it came from a script, its `X-Id`.
    Answer {
        status: u16,
        body: Vec<u8>,
        id: Option<String>,
        head_only: bool,
    },
    /// This status, with any body.
    Status { status: u16, head_only: bool },
    /// A refusal of the front's own (400 to 505), after which the connection is closed.
    Refusal,
}

/// A connection's requests, written down, with what must come back.
struct Dialogue {
    wire: Vec<u8>,
    expected: Vec<Expected>,
    /// Bytes of no known meaning follow the requests: what they are answered with is not modelled.
    has_junk: bool,
    /// The client closes the connection after so many bytes of `wire`.
    leaves_after: Option<usize>,
    /// The client closes its sending half when it has sent everything. What is still to be answered
    /// then is the server's choice.
    half_closes: bool,
    secret: String,
}

fn file_content(n: usize) -> Vec<u8> {
    (0..FILE_SIZES[n])
        .map(|at| b'!' + ((at * 7 + n) % 90) as u8)
        .collect()
}

/// What the script of this file answers: the request as it reached it, and filler.
fn echo(id: &str, method: &str, body: &[u8], filler: usize) -> Vec<u8> {
    let crc = crc32fast::hash(body);
    let mut text = format!(
        "id={id} method={method} crc={crc:08x} length={}\n",
        body.len()
    )
    .into_bytes();
    let letter = b'a' + (id.len() + filler) as u8 % 26;
    text.resize(text.len() + filler, letter);
    text
}

/// A page: the same for everybody without a cookie.
fn page(n: &str, cookie: &str) -> Vec<u8> {
    let whose = if cookie.is_empty() {
        "everybody"
    } else {
        cookie
    };
    let mut text = format!("page {n} for {whose}\n").into_bytes();
    let length = text.len() + n.len() * 100 + usize::from(n.as_bytes()[0]) * 500;
    text.resize(length, b'.');
    text
}

const REFUSED: [&str; 10] = [
    "GET / HTTP/1.1\nHost: h\n\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello",
    "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n",
    "GET / HTTP/3.0\r\nHost: h\r\n\r\n",
    "POST /echo.php HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
];

fn dialogue(numbers: &mut Numbers<'_>) -> Dialogue {
    static NEXT: AtomicU64 = AtomicU64::new(0x5eed_0000_0000);
    let secret = format!(
        "{:016x}",
        NEXT.fetch_add(0x9e37_79b9, Ordering::Relaxed)
            .wrapping_mul(0x2545_f491_4f6c_dd1d)
    );
    let mut made = Dialogue {
        wire: Vec::new(),
        expected: Vec::new(),
        has_junk: false,
        leaves_after: None,
        half_closes: false,
        secret,
    };
    for n in 0..1 + numbers.byte() % 6 {
        match numbers.byte() % 16 {
            0..=2 => made.ask_for_file(numbers),
            3..=9 => made.ask_for_script(numbers, n),
            10..=12 => made.ask_for_page(numbers),
            13 => {
                let (path, status) = [
                    ("/missing", 404),
                    ("/closed/secret.txt", 403),
                    ("/closed/missing", 403),
                    ("/.htaccess", 404),
                ][numbers.byte() % 4];
                made.wire.extend_from_slice(
                    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
                );
                made.expected.push(Expected::Status {
                    status,
                    head_only: false,
                });
            }
            14 => {
                made.wire
                    .extend_from_slice(REFUSED[numbers.byte() % REFUSED.len()].as_bytes());
                made.expected.push(Expected::Refusal);
                break;
            }
            _ => {
                let length = numbers.byte().min(numbers.0.len());
                let (junk, rest) = numbers.0.split_at(length);
                made.wire.extend_from_slice(junk);
                numbers.0 = rest;
                made.has_junk = true;
                break;
            }
        }
    }
    match numbers.byte() % 8 {
        7 => made.leaves_after = Some(numbers.word() % (made.wire.len() + 1)),
        6 => made.half_closes = true,
        _ => {}
    }
    made
}

impl Dialogue {
    fn ask_for_file(&mut self, numbers: &mut Numbers<'_>) {
        let n = numbers.byte() % FILE_SIZES.len();
        let content = file_content(n);
        let how = numbers.byte();
        let head_only = how & 1 == 1;
        let method = if head_only { "HEAD" } else { "GET" };
        let coding = ["", "Accept-Encoding: gzip\r\n"][how >> 1 & 1];
        let mut range = String::new();
        let (mut status, mut body) = (200, content.clone());
        if how >> 2 & 3 == 3 && !head_only && !content.is_empty() {
            let first = numbers.word() % content.len();
            let last = first + numbers.word();
            range = format!("Range: bytes={first}-{last}\r\n");
            status = 206;
            body = content[first..content.len().min(last + 1)].to_vec();
        }
        self.wire.extend_from_slice(
            format!("{method} /file{n}.txt HTTP/1.1\r\nHost: h\r\n{coding}{range}\r\n").as_bytes(),
        );
        self.expected.push(Expected::Answer {
            status,
            body,
            id: None,
            head_only,
        });
    }

    /// A page of the host whose cache is on: everybody's, or, with a cookie, one's own.
    fn ask_for_page(&mut self, numbers: &mut Numbers<'_>) {
        let n = (numbers.byte() % PAGES).to_string();
        let how = numbers.byte();
        let head_only = how & 1 == 1;
        let method = if head_only { "HEAD" } else { "GET" };
        let coding = ["", "Accept-Encoding: gzip\r\n"][how >> 1 & 1];
        let cookie = ["", &self.secret][how >> 2 & 1];
        let field = match cookie {
            "" => String::new(),
            secret => format!("Cookie: sid={secret}\r\n"),
        };
        self.wire.extend_from_slice(
            format!("{method} /page.php?n={n} HTTP/1.1\r\nHost: c\r\n{coding}{field}\r\n")
                .as_bytes(),
        );
        self.expected.push(Expected::Answer {
            status: 200,
            body: page(&n, cookie),
            id: None,
            head_only,
        });
    }

    fn ask_for_script(&mut self, numbers: &mut Numbers<'_>, n: usize) {
        let id = format!("{}-{n}", self.secret);
        let mode = numbers.byte() % 8;
        let filler = match numbers.byte() {
            small @ 0..=127 => small,
            large => (large - 127) * 3000,
        };
        let how = numbers.byte();
        let coding = ["", "Accept-Encoding: gzip\r\n"][how & 1];
        let target = format!("/echo.php?id={id}&mode={mode}&filler={filler}");
        let (method, body) = match how >> 1 & 3 {
            0 => ("GET", None),
            1 => ("HEAD", None),
            _ => ("POST", Some((numbers.word() * 3) >> [8, 0][how >> 3 & 1])),
        };
        let sent: Vec<u8> = (0..body.unwrap_or(0)).map(|at| (at % 253) as u8).collect();
        let host = ["h", "c"][how >> 5 & 1];
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{coding}");
        let is_chunked = how >> 4 & 1 == 1;
        if body.is_some() && is_chunked {
            head += "Transfer-Encoding: chunked\r\n\r\n";
            self.wire.extend_from_slice(head.as_bytes());
            let mut left = &sent[..];
            while !left.is_empty() {
                let (piece, rest) = left.split_at(left.len().min(1 + numbers.word()));
                self.wire
                    .extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                self.wire.extend_from_slice(piece);
                self.wire.extend_from_slice(b"\r\n");
                left = rest;
            }
            self.wire.extend_from_slice(b"0\r\n\r\n");
        } else {
            if body.is_some() {
                head += &format!("Content-Length: {}\r\n", sent.len());
            }
            self.wire.extend_from_slice((head + "\r\n").as_bytes());
            self.wire.extend_from_slice(&sent);
        }
        self.expected.push(match mode {
            7 => Expected::Status {
                status: 403,
                head_only: method == "HEAD",
            },
            6 => Expected::Answer {
                status: 200,
                body: file_content(1),
                id: Some(id),
                head_only: method == "HEAD",
            },
            5 => Expected::Status {
                status: 502,
                head_only: method == "HEAD",
            },
            _ => Expected::Answer {
                status: 200,
                body: echo(&id, method, &sent, filler),
                id: Some(id),
                head_only: method == "HEAD",
            },
        });
    }
}

/// A script that answers with [`echo`], in the manner its query asks for.
struct Echo;

impl Executor for Echo {
    fn start(&self, request: ScriptRequest) -> Box<dyn Run> {
        let (to, from) = mpsc::unbounded_channel();
        let open = to.clone();
        tokio::spawn(async move {
            for event in answer(request).await {
                let _ = to.send(event);
                tokio::task::yield_now().await;
            }
        });
        Box::new(Answering { from, _open: open })
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

async fn answer(request: ScriptRequest) -> Vec<Result<Event, ExecError>> {
    let variable = |name: &str| {
        let value = request.frame.variable(name).unwrap_or_default();
        String::from_utf8(value.to_vec()).expect("ASCII")
    };
    let query: HashMap<String, String> = variable("QUERY_STRING")
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let field = |name: &str| query.get(name).cloned().unwrap_or_default();
    let method = variable("REQUEST_METHOD");
    let mut body = Vec::new();
    match request.body {
        ScriptBody::Empty => {}
        ScriptBody::Memory(bytes) => body.extend_from_slice(&bytes),
        ScriptBody::File(mut file, length) => {
            file.read_to_end(&mut body)
                .expect("the spill file can be read");
            assert_eq!(body.len() as u64, length);
        }
        ScriptBody::Stream(mut pieces) => {
            while let Some(Ok(piece)) = pieces.recv().await {
                body.extend_from_slice(&piece);
            }
        }
    }
    if variable("SCRIPT_NAME") == "/page.php" {
        let cookie = variable("HTTP_COOKIE").replace("sid=", "");
        let text = Bytes::from(page(&field("n"), &cookie));
        let mut head = Head {
            status: 200,
            ..Head::default()
        };
        head.headers
            .push((b"Content-Type".to_vec(), b"text/html".to_vec()));
        return vec![Ok(Event::Head(head)), Ok(Event::Body(text)), Ok(Event::End)];
    }
    let (id, mode) = (field("id"), field("mode"));
    let text = Bytes::from(echo(
        &id,
        &method,
        &body,
        field("filler").parse().unwrap_or(0),
    ));
    let mut head = Head {
        status: 200,
        ..Head::default()
    };
    head.headers
        .push((b"Content-Type".to_vec(), b"text/plain".to_vec()));
    head.headers
        .push((b"X-Id".to_vec(), id.as_bytes().to_vec()));
    if mode == "0" {
        head.headers.push((
            b"Content-Length".to_vec(),
            text.len().to_string().into_bytes(),
        ));
    }
    let sent = [("6", "/file1.txt"), ("7", "/closed/secret.txt")];
    if let Some((_, path)) = sent.iter().find(|(m, _)| *m == mode) {
        head.headers
            .push((b"X-Accel-Redirect".to_vec(), path.as_bytes().to_vec()));
    }
    let mut events = Vec::new();
    if mode == "5" {
        return vec![Err(ExecError::ChildDied(
            howdah_proto::control::Exit::Signal(9),
        ))];
    }
    if mode == "4" {
        let mut hints = Head {
            status: 103,
            ..Head::default()
        };
        hints
            .headers
            .push((b"Link".to_vec(), b"</a.css>; rel=preload".to_vec()));
        events.push(Ok(Event::Informational(hints)));
    }
    events.push(Ok(Event::Head(head)));
    let cut = match mode.as_str() {
        "1" | "2" => text.len() / 3,
        _ => text.len(),
    };
    events.push(Ok(Event::Body(text.slice(..cut))));
    if mode == "1" {
        events.push(Ok(Event::Flush));
    }
    if cut < text.len() {
        events.push(Ok(Event::Body(text.slice(cut..))));
    }
    events.push(Ok(Event::End));
    events
}

struct Answering {
    from: mpsc::UnboundedReceiver<Result<Event, ExecError>>,
    _open: mpsc::UnboundedSender<Result<Event, ExecError>>,
}

impl Run for Answering {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, ExecError>> {
        match self.from.poll_recv(cx) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            _ => Poll::Pending,
        }
    }

    fn timing(&self) -> RunTiming {
        RunTiming {
            queued: None,
            child: None,
        }
    }
}

/// One front for all inputs of a process, and its site.
fn front() -> Arc<Front> {
    static FRONT: OnceLock<Arc<Front>> = OnceLock::new();
    FRONT
        .get_or_init(|| {
            let root = std::env::temp_dir().join(format!("howdah-fuzz-{}", std::process::id()));
            std::fs::create_dir_all(&root).expect("the temporary directory can be written");
            for n in 0..FILE_SIZES.len() {
                std::fs::write(root.join(format!("file{n}.txt")), file_content(n)).expect("a file");
            }
            std::fs::write(root.join("echo.php"), "").expect("a file");
            std::fs::write(root.join("page.php"), "").expect("a file");
            std::fs::create_dir_all(root.join("closed")).expect("a directory");
            std::fs::write(root.join("closed/.htaccess"), "Require all denied\n").expect("a file");
            std::fs::write(root.join("closed/secret.txt"), CLOSED).expect("a file");
            let executor: Arc<dyn Executor> = Arc::new(Echo);
            let cached = SiteConfig {
                hosts: vec![HostPattern::parse("c").expect("a host")],
                cache: Some(CacheConfig {
                    flush_on_write: true,
                    ..CacheConfig::default()
                }),
                ..SiteConfig::new("cached", &root)
            };
            let sites = [SiteConfig::new("main", &root), cached];
            let sites = sites.into_iter().enumerate();
            let sites = sites
                .map(|(n, site)| Arc::new(Site::new(site, n as u32).expect("a site")))
                .collect();
            let sites = Sites::new(sites).expect("sites");
            let pools = HashMap::from([("www".to_owned(), executor)]);
            let settings = FrontSettings {
                cache_memory: 2 << 20,
                ..FrontSettings::default()
            };
            let config = ServerConfig::new(settings, sites, &pools).expect("a configuration");
            let sink =
                Sink::start(LogTarget::File("/dev/null".into()), Duration::ZERO).expect("a log");
            let log = Arc::new(ErrorLog::new(sink, ErrorStyle::File, 2));
            Arc::new(Front::new(Arc::new(config), log))
        })
        .clone()
}

/// See the module.
pub fn whole_front(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
    }
    let mut numbers = Numbers(data);
    let dialogues: Vec<Dialogue> = (0..1 + numbers.byte() % 3)
        .map(|_| dialogue(&mut numbers))
        .collect();
    let secrets: Vec<String> = dialogues.iter().map(|d| d.secret.clone()).collect();
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let mut clients = Vec::new();
            for (n, dialogue) in dialogues.into_iter().enumerate() {
                let rhythm: Vec<usize> = (0..8).map(|_| numbers.word()).collect();
                clients.push((n, tokio::spawn(talk(dialogue, rhythm))));
            }
            for (n, client) in clients {
                let received = client.await.expect("the client's checks hold");
                assert!(
                    !contains(&received, CLOSED),
                    "connection {n} got what is closed"
                );
                for (other, secret) in secrets.iter().enumerate() {
                    assert!(
                        other == n || !contains(&received, secret.as_bytes()),
                        "an answer to connection {n} holds bytes of connection {other}"
                    );
                }
            }
        });
    });
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Has one conversation, checks it, and returns every byte received.
async fn talk(dialogue: Dialogue, rhythm: Vec<usize>) -> Vec<u8> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    for end in [&ours, &theirs] {
        end.set_nonblocking(true).expect("a non-blocking socket");
    }
    let config = HttpConfig {
        server_header: false,
        ..HttpConfig::default()
    };
    let server = tokio::spawn(serve_connected(
        front(),
        OwnedFd::from(theirs),
        Arc::new(config),
    ));
    let mut stream = UnixStream::from_std(ours).expect("a socket");
    let mut received = Vec::new();
    let mut left = &dialogue.wire[..dialogue.leaves_after.unwrap_or(dialogue.wire.len())];
    let mut beats = rhythm.iter().cycle();
    let mut is_closed = false;
    let mut writes = 0;
    while !left.is_empty() && !is_closed {
        let beat = beats.next().copied().unwrap_or(0);
        writes += 1;
        // Enough small pieces: the rest at once.
        let beat = if writes > 300 { beat | 7 } else { beat };
        let cut = [1, 2, 7, 100, 1460, 20_000, 70_000, usize::MAX][beat & 7].min(left.len());
        match stream.try_write(&left[..cut]) {
            Ok(n) => left = &left[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // The server may not read on before its answers are taken.
                let ready = stream.ready(Interest::READABLE | Interest::WRITABLE);
                let ready = tokio::time::timeout(PATIENCE, ready).await;
                let ready = ready.expect("nothing is read and nothing answered");
                if ready.expect("a socket").is_readable() {
                    is_closed = match stream.try_read_buf(&mut received) {
                        Ok(n) => n == 0,
                        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
                    };
                }
            }
            Err(_) => break,
        }
        for _ in 0..beat >> 3 & 15 {
            tokio::task::yield_now().await;
        }
    }
    let is_complete = dialogue.leaves_after.is_none() && !dialogue.half_closes;
    if dialogue.half_closes {
        drop(stream.shutdown().await);
        let rest = tokio::time::timeout(PATIENCE, read_all(&mut stream, &mut received)).await;
        rest.expect("the connection of a client that has half-closed ends");
    }
    if is_complete && dialogue.has_junk {
        // The end of what the client has to say, so that an unfinished request is not waited for.
        drop(
            tokio::time::timeout(
                Duration::from_millis(1),
                read_all(&mut stream, &mut received),
            )
            .await,
        );
    }
    while is_complete && !dialogue.has_junk && !is_closed {
        let done = Reader::new(&received).answers(&dialogue.expected).1 == dialogue.expected.len();
        let waits_for_end = matches!(dialogue.expected.last(), Some(Expected::Refusal));
        if done && !waits_for_end {
            break;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read_buf(&mut received)).await;
        is_closed = matches!(read.expect("an answer is missing"), Ok(0) | Err(_));
    }
    drop(stream);
    let ended = tokio::time::timeout(PATIENCE, server).await;
    ended
        .expect("the connection ends")
        .expect("no panic")
        .expect("a socket");
    let (rest, answered) = Reader::new(&received).answers(&dialogue.expected);
    if is_complete && !dialogue.has_junk {
        assert_eq!(
            answered,
            dialogue.expected.len(),
            "answers are missing or cut off"
        );
        assert!(
            rest.is_empty(),
            "bytes after the last answer: {}",
            rest.escape_ascii()
        );
    }
    received
}

async fn read_all(stream: &mut UnixStream, received: &mut Vec<u8>) {
    while matches!(stream.read_buf(received).await, Ok(n) if n > 0) {}
}

/// Reads answers off the bytes received, by RFC 9112 §6.3, and holds each to the model.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(received: &'a [u8]) -> Reader<'a> {
        Reader(received)
    }

    /// What is left behind the whole answers, and how many those are.
    fn answers(mut self, expected: &[Expected]) -> (&'a [u8], usize) {
        for (n, expected) in expected.iter().enumerate() {
            let before = self.0;
            if self.answer(expected).is_none() {
                return (before, n);
            }
        }
        (self.0, expected.len())
    }

    /// None: it is not all there.
    fn answer(&mut self, expected: &Expected) -> Option<()> {
        let head = loop {
            let head = self.head()?;
            if !head.starts_with("HTTP/1.1 1") {
                break head;
            }
        };
        let status: u16 = head.get(9..12)?.parse().expect("a status");
        let field = |name: &str| {
            let fields = head.lines().filter_map(|line| line.split_once(": "));
            let mut found = fields
                .filter(|(n, _)| n.eq_ignore_ascii_case(name))
                .map(|(_, v)| v);
            let first = found.next();
            assert!(
                name == "vary" || found.next().is_none(),
                "two fields {name} in {head}"
            );
            first
        };
        let head_only = match expected {
            Expected::Answer { head_only, .. } | Expected::Status { head_only, .. } => *head_only,
            Expected::Refusal => false,
        };
        let mut body = match (field("transfer-encoding"), field("content-length")) {
            _ if head_only || status == 204 || status == 304 => Vec::new(),
            (Some(coding), None) => {
                assert_eq!(coding, "chunked");
                self.chunked()?
            }
            (None, Some(length)) => self.take(length.parse().expect("a length"))?.to_vec(),
            other => panic!("an answer framed by {other:?}: {head}"),
        };
        match expected {
            Expected::Status { status: wanted, .. } => assert_eq!(status, *wanted, "{head}"),
            Expected::Refusal => {
                assert!(
                    (400..=505).contains(&status),
                    "a refusal was expected: {head}"
                );
                assert_eq!(field("connection"), Some("close"), "{head}");
            }
            Expected::Answer {
                status: wanted,
                body: content,
                id,
                head_only,
            } => {
                assert_eq!(status, *wanted, "{head}");
                assert_eq!(field("x-id"), id.as_deref(), "another request's answer");
                if field("content-encoding") == Some("gzip") && !*head_only {
                    let mut plain = Vec::new();
                    let mut decoder = flate2::read::MultiGzDecoder::new(&body[..]);
                    decoder.read_to_end(&mut plain).expect("gzip");
                    body = plain;
                }
                if !*head_only {
                    assert!(
                        body == *content,
                        "the body is not the one of its request: {head}"
                    );
                }
            }
        }
        Some(())
    }

    fn head(&mut self) -> Option<String> {
        let end = self.0.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let head = self.take(end)?;
        Some(String::from_utf8(head.to_vec()).expect("an ASCII head"))
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    fn chunked(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = self.0.windows(2).position(|w| w == b"\r\n")?;
            let line = std::str::from_utf8(self.take(end)?).expect("a chunk size");
            self.take(2)?;
            let size = usize::from_str_radix(line, 16).expect("a chunk size");
            body.extend_from_slice(self.take(size)?);
            assert_eq!(self.take(2)?, b"\r\n");
            if size == 0 {
                return Some(body);
            }
        }
    }
}
