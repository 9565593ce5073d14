//! Drives a pool without HTTP: two front threads send requests for one script in a closed loop. Prints the throughput,
//! the latency, and the number of wake-ups per request. It measures the exchange and the PHP cycle, not a server.
//!
//! ```text
//! cargo run --release -p howdah-executor --example exchange_bench -- PHP LIBRARY SCRIPT \
//!     [concurrency=100] [children=8] [seconds=4] [threads=2] [slow=0]
//! ```
//! Beside these requests, `slow` requests for `SCRIPT?slow` always run; they are not counted. Every request is a copy
//! of one frame of 21 variables, so building a frame is not measured.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use howdah_executor::config::{PoolConfig, ProcessManager, ProcessTimeouts};
use howdah_executor::embed::EmbedPool;
use howdah_executor::launch::DirectLauncher;
use howdah_executor::{
    Executor, PhpProgram, RunEvent, ScriptBody, ScriptLog, ScriptRequest, ScriptRole, front_thread,
};
use howdah_proto::level::LogLevel;
use howdah_proto::request::{FrameBuilder, RequestFrame};

struct Print;

impl ScriptLog for Print {
    fn script(&self, _: &str, _: u64, _: &RequestFrame, level: LogLevel, message: &[u8]) {
        eprintln!("script: {level} {}", String::from_utf8_lossy(message));
    }
    fn pool(&self, _: &str, level: LogLevel, name: &str, message: &str) {
        eprintln!("pool: {level} {name}: {message}");
    }
}

fn frame(script: &str, query: &str) -> RequestFrame {
    let mut b = FrameBuilder::new(Vec::new());
    for (name, value) in [
        ("SCRIPT_FILENAME", script),
        (
            "DOCUMENT_ROOT",
            script.rsplit_once('/').map_or("/", |s| s.0),
        ),
        ("SCRIPT_NAME", "/hello.php"),
        ("PHP_SELF", "/hello.php"),
        ("REQUEST_URI", "/hello.php"),
        ("QUERY_STRING", query),
        ("REQUEST_METHOD", "GET"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_SOFTWARE", "howdah"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "8080"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "40000"),
        ("REQUEST_SCHEME", "http"),
        ("HTTP_HOST", "localhost:8080"),
        ("HTTP_USER_AGENT", "exchange_bench"),
        ("HTTP_ACCEPT", "*/*"),
        ("HTTP_CONNECTION", "keep-alive"),
        ("HTTP_COOKIE", "a=b"),
    ] {
        b.named(name.as_bytes(), value.as_bytes());
    }
    b.finish(Some(0), 0).expect("a small frame")
}

#[derive(Default)]
struct BenchCounters {
    done: AtomicU64,
    failed: AtomicU64,
    stop: AtomicBool,
}

async fn client(
    pool: Arc<EmbedPool>,
    frame: RequestFrame,
    tally: Arc<BenchCounters>,
    counted: bool,
) -> Vec<u32> {
    let mut times = Vec::new();
    while !tally.stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut run = pool.start(ScriptRequest {
            frame: frame.clone(),
            body: ScriptBody::Empty,
            id: 1,
            role: ScriptRole::Responder,
            client: None,
            effects: None,
            drop_at_end: None,
        });
        loop {
            match poll_fn(|cx| run.poll_event(cx)).await {
                Ok(RunEvent::End) => break,
                Ok(_) => {}
                Err(error) => {
                    eprintln!("{error}");
                    tally.failed.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        if counted {
            tally.done.fetch_add(1, Ordering::Relaxed);
            times.push(begun.elapsed().as_micros() as u32);
        }
    }
    times
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        arguments
            .get(at)
            .map_or(default, |a| a.parse().expect("a number"))
    };
    let [host, library, script] = [0, 1, 2].map(|i| {
        let path = arguments
            .get(i)
            .expect("PHP LIBRARY SCRIPT [concurrency …]");
        std::fs::canonicalize(path).expect("an existing file")
    });
    let (concurrency, children, seconds, threads, slow) = (
        number(3, 100),
        number(4, 8) as u32,
        number(5, 4),
        number(6, 2) as u32,
        number(7, 0),
    );
    let pool = EmbedPool::start(
        configuration(PhpProgram { host, library }, children),
        Arc::new(DirectLauncher),
        Arc::new(Print),
        threads,
    )
    .expect("a pool");
    let tally = Arc::new(BenchCounters::default());
    let script = script.to_str().expect("a path in UTF-8").to_owned();
    let workers: Vec<_> = (0..threads)
        .map(|index| {
            let (pool, tally, script) = (pool.clone(), tally.clone(), script.clone());
            let here = concurrency / u64::from(threads)
                + u64::from(u64::from(index) < concurrency % u64::from(threads));
            let slow = if index == 0 { slow } else { 0 };
            std::thread::spawn(move || {
                front_thread::attach(index);
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .on_thread_park(front_thread::before_park)
                    .on_thread_unpark(front_thread::after_unpark)
                    .build()
                    .expect("a runtime");
                runtime.block_on(async {
                    pool.ready().await.expect("a pool that starts");
                    let mut tasks = tokio::task::JoinSet::new();
                    for n in 0..here + slow {
                        let frame = frame(&script, if n < here { "" } else { "slow" });
                        tasks.spawn(client(pool.clone(), frame, tally.clone(), n < here));
                    }
                    tasks.join_all().await.concat()
                })
            })
        })
        .collect();
    let measure = || {
        (
            Instant::now(),
            tally.done.load(Ordering::Relaxed),
            pool.exchange_costs(),
        )
    };
    std::thread::sleep(Duration::from_millis(500));
    let before = measure();
    std::thread::sleep(Duration::from_secs(seconds));
    let after = measure();
    tally.stop.store(true, Ordering::Relaxed);
    let mut times: Vec<u32> = workers
        .into_iter()
        .flat_map(|w| w.join().expect("a front thread"))
        .collect();
    times.sort_unstable();
    let n = (after.1 - before.1).max(1) as f64;
    let quantile = |q: f64| times[((times.len() - 1) as f64 * q) as usize];
    println!(
        "{:.0} req/s | per request: {:.3} futex wakes, {:.3} bells, {:.3} front sleeps | \
         p50 {} us p99 {} us max {} us | failed {}",
        n / (after.0 - before.0).as_secs_f64(),
        (after.2.futex_wakes - before.2.futex_wakes) as f64 / n,
        (after.2.bells - before.2.bells) as f64 / n,
        (after.2.front_sleeps - before.2.front_sleeps) as f64 / n,
        quantile(0.5),
        quantile(0.99),
        quantile(1.0),
        tally.failed.load(Ordering::Relaxed),
    );
}

fn configuration(program: PhpProgram, children: u32) -> PoolConfig {
    PoolConfig {
        name: "bench".to_owned(),
        program,
        pm: ProcessManager::Static,
        max_children: children,
        process_idle_timeout: Duration::from_secs(10),
        max_requests: 0,
        max_memory: None,
        shared_cache: None,
        queue_size: 100_000,
        queue_timeout: Duration::from_secs(30),
        request_terminate_timeout: None,
        track_finished: false,
        request_slowlog_timeout: None,
        php_ini: None,
        defines: Vec::new(),
        opcache: true,
        user: None,
        group: None,
        environment: Vec::new(),
        clear_env: false,
        watch: Vec::new(),
        worker: None,
        timeouts: ProcessTimeouts::for_tests(),
    }
}
