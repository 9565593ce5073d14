//! Starts a front on a free port of this machine, with a site in a directory of its own, an executor made of a closure,
//! and a small client.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use howdah_executor::status::PoolStatus;
use howdah_executor::{
    ExecError, Executor, RunEvent, RunTiming, ScriptBody, ScriptRequest, ScriptRun,
};
use howdah_http::HttpConfig;
use howdah_http::listener::{HttpServer, ListenerConfig, ServerControl};
use howdah_log::log::{AccessLog, ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::front_thread;
use howdah_server::process_state::ProcessState;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::site::{Site, SiteConfig, Sites};
use tokio::sync::mpsc;

/// The timing that every run of the fake executor reports.
pub const TIMING: RunTiming = RunTiming {
    queued: Some(Duration::from_micros(5)),
    child: Some(7),
};

const PATIENCE: Duration = Duration::from_secs(10);

type ScriptEvent = Result<RunEvent, ExecError>;

/// A request, as the closure sees it.
pub struct ScriptCall {
    pub request: ScriptRequest,
    to: mpsc::UnboundedSender<ScriptEvent>,
}

impl ScriptCall {
    pub fn variable(&self, name: &str) -> String {
        let value = self.request.frame.variable(name).unwrap_or_default();
        String::from_utf8(value.to_vec()).unwrap()
    }

    /// Sends the run's events. If they contain no end, the run stays open after them.
    pub fn send_events(&self, events: Vec<ScriptEvent>) {
        for event in events {
            // The client may have disconnected already.
            let _ = self.to.send(event);
        }
    }

    /// Reads the whole body on another thread, then sends the events that `then` returns for it.
    pub fn read_body_then(self, then: impl FnOnce(Vec<u8>) -> Vec<ScriptEvent> + Send + 'static) {
        std::thread::spawn(move || {
            let body = match self.request.body {
                ScriptBody::Empty => Vec::new(),
                ScriptBody::Memory(bytes) => bytes.to_vec(),
                ScriptBody::File(mut file, length) => {
                    let mut body = Vec::new();
                    file.read_to_end(&mut body).unwrap();
                    assert_eq!(body.len() as u64, length);
                    body
                }
                ScriptBody::Stream(mut pieces) => {
                    let mut body = Vec::new();
                    while let Some(piece) = pieces.blocking_recv() {
                        body.extend_from_slice(&piece.unwrap());
                    }
                    body
                }
            };
            for event in then(body) {
                let _ = self.to.send(event);
            }
        });
    }
}

#[derive(Default)]
struct DroppedRuns(Mutex<usize>, Condvar);

struct FakeExecutor<F> {
    script: F,
    dropped: Arc<DroppedRuns>,
}

impl<F: Fn(ScriptCall) + Send + Sync> Executor for FakeExecutor<F> {
    fn start(&self, request: ScriptRequest) -> Box<dyn ScriptRun> {
        let (to, from) = mpsc::unbounded_channel();
        // One sender is kept, so silence is not mistaken for the end.
        let run = FakeRun {
            from,
            _open: to.clone(),
            dropped: self.dropped.clone(),
        };
        (self.script)(ScriptCall { request, to });
        Box::new(run)
    }

    fn mode(&self) -> &'static str {
        "fake"
    }

    fn status(&self) -> PoolStatus {
        PoolStatus {
            pool: "www".into(),
            ..PoolStatus::default()
        }
    }
}

struct FakeRun {
    from: mpsc::UnboundedReceiver<ScriptEvent>,
    _open: mpsc::UnboundedSender<ScriptEvent>,
    dropped: Arc<DroppedRuns>,
}

impl ScriptRun for FakeRun {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<ScriptEvent> {
        match self.from.poll_recv(cx) {
            Poll::Ready(Some(event)) => Poll::Ready(event),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    fn timing(&self) -> RunTiming {
        TIMING
    }
}

impl Drop for FakeRun {
    fn drop(&mut self) {
        *self.dropped.0.lock().unwrap() += 1;
        self.dropped.1.notify_all();
    }
}

/// A directory that is removed when its value is dropped.
pub struct TempDirectory(PathBuf);

impl TempDirectory {
    pub fn new() -> TempDirectory {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("howdah-front-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        TempDirectory(path)
    }

    pub fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.join(name), content).unwrap();
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct FrontRig {
    pub front: Arc<Front>,
    server: Option<HttpServer>,
    address: SocketAddr,
    executor: Arc<dyn Executor>,
    settings: FrontSettings,
    resources: OpenResources,
    process: Arc<ProcessState>,
    dropped: Arc<DroppedRuns>,
    _directory: TempDirectory,
}

fn config(
    directory: &TempDirectory,
    change: impl FnOnce(&mut SiteConfig),
    settings: &FrontSettings,
    resources: &OpenResources,
    process: &Arc<ProcessState>,
    executor: &Arc<dyn Executor>,
) -> Arc<ServerConfig> {
    let mut site = SiteConfig::for_tests("main", &directory.0);
    change(&mut site);
    let site = Arc::new(Site::new(site, 0).unwrap());
    let pools = HashMap::from([("www".to_owned(), executor.clone())]);
    let sites = Sites::new(vec![site], Vec::new()).unwrap();
    let (settings, resources, process) = (settings.clone(), resources.clone(), process.clone());
    Arc::new(ServerConfig::new(settings, resources, process, sites, &pools).unwrap())
}

impl FrontRig {
    pub fn start(
        fill: impl FnOnce(&TempDirectory),
        script: impl Fn(ScriptCall) + Send + Sync + 'static,
    ) -> FrontRig {
        FrontRig::start_with(fill, |_| {}, FrontSettings::for_tests(), script)
    }

    pub fn start_with(
        fill: impl FnOnce(&TempDirectory),
        change: impl FnOnce(&mut SiteConfig),
        settings: FrontSettings,
        script: impl Fn(ScriptCall) + Send + Sync + 'static,
    ) -> FrontRig {
        FrontRig::start_with_log(fill, change, settings, None, script)
    }

    pub fn start_with_log(
        fill: impl FnOnce(&TempDirectory),
        change: impl FnOnce(&mut SiteConfig),
        settings: FrontSettings,
        access_log: Option<Arc<AccessLog>>,
        script: impl Fn(ScriptCall) + Send + Sync + 'static,
    ) -> FrontRig {
        let resources = OpenResources {
            access_log,
            ..OpenResources::default()
        };
        let process = Arc::<ProcessState>::default();
        let directory = TempDirectory::new();
        fill(&directory);
        let dropped = Arc::new(DroppedRuns::default());
        let executor: Arc<dyn Executor> = Arc::new(FakeExecutor {
            script,
            dropped: dropped.clone(),
        });
        let sink = LogSink::start("error", LogTarget::Stderr, Duration::ZERO).unwrap();
        let log = Arc::new(ErrorLog::new(
            sink,
            ErrorStyle::Terminal,
            LogLevel::Critical,
        ));
        let front = Arc::new(Front::new(
            config(
                &directory, change, &settings, &resources, &process, &executor,
            ),
            log,
        ));
        let listener = ListenerConfig::bind(&"127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let http = HttpConfig::for_tests();
        let server = HttpServer::start(
            vec![listener],
            front.clone(),
            1,
            http,
            front_thread::hooks(),
        )
        .unwrap();
        let address = server.local_addrs()[0].unwrap();
        let server = Some(server);
        FrontRig {
            front,
            server,
            address,
            executor,
            settings,
            resources,
            process,
            dropped,
            _directory: directory,
        }
    }

    pub fn swap(&self, directory: &TempDirectory, change: impl FnOnce(&mut SiteConfig)) {
        self.front.replace_config(config(
            directory,
            change,
            &self.settings,
            &self.resources,
            &self.process,
            &self.executor,
        ));
    }

    pub fn control(&self) -> ServerControl {
        self.server.as_ref().expect("it runs").control()
    }

    pub fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client
    }

    pub fn get(&self, target: &str, fields: &[(&str, &str)]) -> TestResponse {
        let mut request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n");
        for (name, value) in fields {
            request += &format!("{name}: {value}\r\n");
        }
        self.send_request((request + "\r\n").as_bytes(), &[])
    }

    pub fn post(&self, target: &str, body: &[u8]) -> TestResponse {
        let length = body.len();
        let head = format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        self.send_request(head.as_bytes(), body)
    }

    pub fn post_chunked(&self, target: &str, body: &[u8]) -> TestResponse {
        let head =
            format!("POST {target} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        let mut coded = Vec::new();
        for piece in body.chunks(5000) {
            coded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
            coded.extend_from_slice(piece);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        self.send_request(head.as_bytes(), &coded)
    }

    pub fn raw(&self, request: &[u8]) -> TestResponse {
        self.send_request(request, &[])
    }

    fn send_request(&self, head: &[u8], body: &[u8]) -> TestResponse {
        let mut client = self.connect();
        client.write_all(head).unwrap();
        // An early response may close the connection before the whole body has been read.
        let _ = client.write_all(body);
        read_response(&mut client)
    }

    pub fn wait_until_dropped(&self, count: usize) {
        let dropped = self.dropped.0.lock().unwrap();
        let waited = self
            .dropped
            .1
            .wait_timeout_while(dropped, PATIENCE, |n| *n < count)
            .unwrap();
        assert!(
            !waited.1.timed_out(),
            "{} of {count} runs dropped",
            waited.0
        );
    }

    pub fn wait_until(&self, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition() {
            assert!(Instant::now() < deadline, "the condition never came true");
            std::thread::yield_now();
        }
    }
}

impl Drop for FrontRig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.control().stop(Duration::ZERO);
            server.wait();
        }
    }
}

/// A response as the test client received it.
pub struct TestResponse {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields
        .filter(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v)
        .next()
}

/// Reads one response with a `Content-Length`, or without a body.
pub fn read_response(client: &mut TcpStream) -> TestResponse {
    let mut all = Vec::new();
    let end = loop {
        if let Some(at) = all.windows(4).position(|w| w == b"\r\n\r\n") {
            let status = String::from_utf8_lossy(&all[..at]).into_owned();
            if status.starts_with("HTTP/1.1 1") {
                all.drain(..at + 4);
                continue;
            }
            break at + 4;
        }
        read_more(client, &mut all);
    };
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head[9..12].parse().unwrap();
    // RFC 9112 §6.3: these have no body.
    let length: usize = match status {
        204 | 304 => 0,
        _ => header(&head, "content-length")
            .expect("a length")
            .parse()
            .unwrap(),
    };
    while all.len() < end + length {
        read_more(client, &mut all);
    }
    assert_eq!(all.len(), end + length, "bytes after the response");
    TestResponse {
        status,
        head,
        body: all.split_off(end),
    }
}

fn read_more(client: &mut TcpStream, all: &mut Vec<u8>) {
    let mut piece = [0; 4096];
    let n = client.read(&mut piece).unwrap();
    assert!(
        n > 0,
        "the connection ended after {:?}",
        String::from_utf8_lossy(all)
    );
    all.extend_from_slice(&piece[..n]);
}
