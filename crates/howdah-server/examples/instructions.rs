//! Sends requests of one kind through the whole front, from its connection to its response, in one thread and without a
//! network. `scripts/instructions.py` runs it under callgrind with two numbers of requests; the difference of the
//! counts is the cost of the additional requests alone, without that of the start. The arguments are the kind and the
//! number of requests. The kinds are:
//!
//! - `hello`: a script, which an executor in this process replaces;
//! - `file`: a static file of 1 KiB, which the front keeps in memory;
//! - `page`: a page that the page cache has stored.
//!
//! The program fails if a response is not the expected one, or if it came from elsewhere: the number of script runs
//! shows whether the page cache served the page.

use std::collections::HashMap;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::status::PoolStatus;
use howdah_executor::{
    ExecError, Executor, RunEvent, RunTiming, ScriptHead, ScriptRequest, ScriptRun,
};
use howdah_http::{HttpConfig, serve_connected};
use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::cache::CacheRules;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::site::config::CacheConfig;
use howdah_site::site::{Site, SiteConfig, Sites};

/// Requests before the first one that counts: the page cache stores a page at its second visit.
const WARM_UP_REQUESTS: u64 = 20;
/// The number of times that the client lets the server run before it gives up on a response.
const MAX_TURNS: u32 = 10_000;
const SCRIPT_BODY: &str = "Hello from the script.\n";

/// Responds to every request with [`SCRIPT_BODY`] at once.
#[derive(Default)]
struct HelloExecutor {
    runs: AtomicU64,
}

impl Executor for HelloExecutor {
    fn start(&self, _request: ScriptRequest) -> Box<dyn ScriptRun> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let head = ScriptHead {
            status: 200,
            headers: vec![(b"Content-Type".to_vec(), b"text/html".to_vec())],
            ..ScriptHead::default()
        };
        let body = Bytes::from_static(SCRIPT_BODY.as_bytes());
        Box::new(HelloRun {
            events: [RunEvent::Head(head), RunEvent::Body(body), RunEvent::End].into_iter(),
        })
    }

    fn mode(&self) -> &'static str {
        "hello"
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::default()
    }
}

struct HelloRun {
    events: std::array::IntoIter<RunEvent, 3>,
}

impl ScriptRun for HelloRun {
    fn poll_event(&mut self, _cx: &mut Context<'_>) -> Poll<Result<RunEvent, ExecError>> {
        self.events
            .next()
            .map_or(Poll::Pending, |event| Poll::Ready(Ok(event)))
    }

    fn timing(&self) -> RunTiming {
        RunTiming::default()
    }
}

fn front(site: SiteConfig, executor: Arc<HelloExecutor>) -> Result<Arc<Front>, Box<dyn Error>> {
    let site = Site::new(site, 0).map_err(|e| format!("{e:?}"))?;
    let sites = Sites::new(vec![Arc::new(site)], Vec::new()).map_err(|e| format!("{e:?}"))?;
    let executor: Arc<dyn Executor> = executor;
    let pools = HashMap::from([("www".to_owned(), executor)]);
    let config = ServerConfig::new(
        FrontSettings::for_tests(),
        OpenResources::default(),
        Arc::default(),
        sites,
        &pools,
    )
    .map_err(|e| format!("{e:?}"))?;
    let sink = LogSink::start("error", LogTarget::Stderr, Duration::ZERO)?;
    let log = Arc::new(ErrorLog::new(sink, ErrorStyle::Terminal, LogLevel::Info));
    Ok(Arc::new(Front::new(Arc::new(config), log)))
}

/// Sends a request and reads the response, which ends with `body`. Between two attempts to read, the tasks of the
/// server run in the same thread, so the order of all steps is the same in every run.
async fn exchange(
    client: &mut UnixStream,
    request: &[u8],
    body: &[u8],
    response: &mut Vec<u8>,
) -> Result<(), Box<dyn Error>> {
    client.write_all(request)?;
    response.clear();
    let mut piece = [0; 4096];
    for _ in 0..MAX_TURNS {
        tokio::task::yield_now().await;
        match client.read(&mut piece) {
            Ok(0) => return Err("the server closed the connection".into()),
            Ok(length) => response.extend_from_slice(&piece[..length]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        if response.ends_with(body) {
            if !response.starts_with(b"HTTP/1.1 200 ") {
                break;
            }
            return Ok(());
        }
    }
    Err(format!("unexpected response: {}", response.escape_ascii()).into())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().ok_or("KIND is missing")?;
    let requests: u64 = arguments.next().ok_or("REQUESTS is missing")?.parse()?;

    let root = tempfile::tempdir()?;
    let file = "x".repeat(1024);
    std::fs::write(root.path().join("file.txt"), &file)?;
    std::fs::write(root.path().join("index.php"), "")?;
    // The front keeps a file in memory once its times are older than a tick of the clock.
    std::thread::sleep(Duration::from_millis(100));

    let mut site = SiteConfig::for_tests("main", root.path());
    let (target, body, expected_runs) = match kind.as_str() {
        "hello" => (
            "/index.php",
            SCRIPT_BODY,
            WARM_UP_REQUESTS..=requests + WARM_UP_REQUESTS,
        ),
        "file" => ("/file.txt", file.as_str(), 0..=0),
        "page" => {
            site.cache = Some(CacheConfig {
                rules: CacheRules::for_tests(),
                flush_on_write: true,
                ..CacheConfig::default()
            });
            ("/index.php", SCRIPT_BODY, 1..=WARM_UP_REQUESTS - 1)
        }
        _ => return Err(format!("KIND is hello, file or page, not {kind}").into()),
    };
    let executor = Arc::new(HelloExecutor::default());
    let front = front(site, executor.clone())?;

    let request = format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: instructions\r\nAccept: */*\r\n\r\n"
    );
    let (mut client, server) = UnixStream::pair()?;
    client.set_nonblocking(true)?;
    server.set_nonblocking(true)?;
    let http = Arc::new(HttpConfig {
        keepalive_requests: 0,
        ..HttpConfig::for_tests()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let connection = tokio::spawn(serve_connected(front, OwnedFd::from(server), http));
        let mut response = Vec::new();
        for _ in 0..WARM_UP_REQUESTS + requests {
            exchange(
                &mut client,
                request.as_bytes(),
                body.as_bytes(),
                &mut response,
            )
            .await?;
        }
        drop(client);
        connection.await??;
        Ok::<(), Box<dyn Error>>(())
    })?;
    let runs = executor.runs.load(Ordering::Relaxed);
    if !expected_runs.contains(&runs) {
        return Err(format!("{runs} script runs, but {expected_runs:?} were expected").into());
    }
    Ok(())
}
