//! What the executor's tests share: a log, a pool configuration, front threads, and a driver that polls a run to its
//! end.
#![allow(dead_code)]

pub mod backend;
pub use howdah_test_support::executable;
pub mod fake_zygote;
pub mod php;
pub mod programs;

use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use howdah_executor::config::{PoolConfig, ProcessManager, ProcessTimeouts};
use howdah_executor::{
    ExecError, Executor, PhpProgram, RunEvent, ScriptBody, ScriptHead, ScriptLog, ScriptRequest,
    ScriptRole, ScriptRun, front_thread,
};
use howdah_proto::level::LogLevel;
use howdah_proto::request::{FrameBuilder, RequestFrame};
use howdah_proto::variables::Var;

/// The maximum time that a test waits for anything. After it the test has failed.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A log that stores every message and lets tests wait for one.
#[derive(Default)]
pub struct TestLog {
    lines: Mutex<Vec<String>>,
    grown: Condvar,
}

impl TestLog {
    fn add(&self, line: String) {
        self.lines.lock().unwrap().push(line);
        self.grown.notify_all();
    }

    /// Waits for a line that contains `text`, and returns it.
    #[track_caller]
    pub fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + TEST_TIMEOUT;
        let mut lines = self.lines.lock().unwrap();
        loop {
            if let Some(line) = lines.iter().find(|l| l.contains(text)) {
                return line.clone();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {text:?} in {lines:#?}");
            lines = self.grown.wait_timeout(lines, left).unwrap().0;
        }
    }

    pub fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn count(&self, text: &str) -> usize {
        self.all().iter().filter(|l| l.contains(text)).count()
    }
}

impl ScriptLog for TestLog {
    fn script(&self, pool: &str, request: u64, _: &RequestFrame, level: LogLevel, message: &[u8]) {
        let text = String::from_utf8_lossy(message);
        self.add(format!(
            "{pool} request {request} level {}: {text}",
            level as u8
        ));
    }

    fn pool(&self, pool: &str, level: LogLevel, name: &str, message: &str) {
        self.add(format!("{pool} level {} {name}: {message}", level as u8));
    }
}

/// Returns the configuration of a small static pool. Tests change the values that they are about.
pub fn config(children: u32) -> PoolConfig {
    PoolConfig {
        name: "test".to_owned(),
        program: PhpProgram::default(),
        pm: ProcessManager::Static,
        max_children: children,
        process_idle_timeout: Duration::from_secs(10),
        max_requests: 0,
        max_memory: None,
        shared_cache: None,
        queue_size: 1000,
        queue_timeout: TEST_TIMEOUT,
        request_terminate_timeout: None,
        track_finished: false,
        request_slowlog_timeout: None,
        php_ini: None,
        // Debian's php.ini sets a buffer of 4096 bytes, which flush() alone does not send.
        defines: vec![("output_buffering".to_owned(), "0".to_owned())],
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

/// Creates a front thread's runtime, with the hooks that the server installs.
pub fn front_runtime(index: u32) -> tokio::runtime::Runtime {
    front_thread::attach(index);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(front_thread::before_park)
        .on_thread_unpark(front_thread::after_unpark)
        .build()
        .unwrap()
}

/// Runs a future on this thread as front thread 0. Fails if it takes too long.
#[track_caller]
pub fn on_front<T>(future: impl Future<Output = T>) -> T {
    front_runtime(0).block_on(async {
        tokio::time::timeout(TEST_TIMEOUT * 2, future)
            .await
            .expect("the test hangs")
    })
}

/// The events of a run, from the first to the end.
#[derive(Debug, Default)]
pub struct CollectedResponse {
    pub head: ScriptHead,
    pub informational: Vec<ScriptHead>,
    pub body: Vec<u8>,
    /// The length of the body at each flush.
    pub flushes: Vec<usize>,
}

/// Returns the response's body as text.
pub fn text(answer: &CollectedResponse) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

pub async fn next_event(run: &mut Box<dyn ScriptRun>) -> Result<RunEvent, ExecError> {
    poll_fn(|cx| run.poll_event(cx)).await
}

/// Polls a run to its end and collects its events.
pub async fn finish(mut run: Box<dyn ScriptRun>) -> Result<CollectedResponse, ExecError> {
    let mut answer = CollectedResponse::default();
    loop {
        match next_event(&mut run).await? {
            RunEvent::Informational(head) => answer.informational.push(head),
            RunEvent::Head(head) => answer.head = head,
            RunEvent::Body(bytes) => answer.body.extend_from_slice(&bytes),
            RunEvent::Flush => answer.flushes.push(answer.body.len()),
            RunEvent::Effect => {}
            RunEvent::End => return Ok(answer),
        }
    }
}

/// Creates a request for the fake child, whose URI says what to do.
pub fn request(uri: &str, body: ScriptBody) -> ScriptRequest {
    let length = match &body {
        ScriptBody::Empty => Some(0),
        ScriptBody::Memory(bytes) => Some(bytes.len() as u64),
        ScriptBody::File(_, len) => Some(*len),
        ScriptBody::Stream(_) => None,
    };
    let mut b = FrameBuilder::new(Vec::new());
    b.var(Var::RequestUri, uri.as_bytes());
    b.var(Var::RequestMethod, b"GET");
    ScriptRequest {
        frame: b.finish(length, 0).unwrap(),
        body,
        id: 7,
        role: ScriptRole::Responder,
        client: None,
        effects: None,
        drop_at_end: None,
    }
}

pub async fn get(
    pool: &Arc<howdah_executor::embed::EmbedPool>,
    uri: &str,
) -> Result<CollectedResponse, ExecError> {
    finish(pool.start(request(uri, ScriptBody::Empty))).await
}

pub fn bytes(n: usize) -> Bytes {
    Bytes::from((0..n).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>())
}

/// Waits until a condition holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
