//! A front for tests: creates a pool's memory, starts the real `howdah-php`, forks children through the control socket,
//! publishes request frames and reads the responses as frames. It uses one thread, and every wait is bounded by
//! [`MAX_WAIT`].

#![allow(dead_code)]

pub mod fpm;
pub mod sys;
pub mod worker;

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use howdah_proto::control::{Exit, ZygoteCommand as Order, ZygoteReport};
use howdah_proto::level::LogLevel;
use howdah_proto::request::{FrameBuilder, IniKind, RequestFrame};
use howdah_proto::response::{Frame, ResponseParser, ScriptHead};
use howdah_proto::shm::{
    ChildId, EXIT_BAILED_OUT, FrontPort, FutexWake, Geometry, PoolPort, SlotState,
};
use howdah_proto::variables::Var;
use howdah_test_support::php::{howdah_php, php_library};

/// Longest time that a test waits for anything, even on a loaded machine.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

/// A private directory that is removed when the test is over.
pub struct TestDir(pub PathBuf);

impl TestDir {
    pub fn new() -> TestDir {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("howdah-php-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path.canonicalize().unwrap())
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pool under test: a zygote with its children, and the front's side of the memory.
pub struct TestFront {
    pub port: FrontPort,
    pub pool: PoolPort,
    pub zygote: Child,
    control: Option<OwnedFd>,
    bell: OwnedFd,
    free: Vec<u32>,
    lives: u16,
    reports: Vec<ZygoteReport>,
    pub children: Vec<(ChildId, i32)>,
    pub opcache: bool,
    /// Whether a child whose run ended in a bailout of PHP is replaced while a request waits.
    pub replaces_bailed_out: bool,
    log: Arc<Mutex<String>>,
    log_reader: Option<JoinHandle<()>>,
}

/// Everything that was received for one request.
#[derive(Debug, Default)]
pub struct ChildResponse {
    pub informational: Vec<ScriptHead>,
    pub head: Option<ScriptHead>,
    pub body: Vec<u8>,
    pub logs: Vec<(LogLevel, String)>,
    pub finished: bool,
    /// The child died before the request was done.
    pub died: Option<Exit>,
    /// How many times body bytes arrived.
    pub pieces: usize,
}

impl ChildResponse {
    pub fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, |h| h.status)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Vec<String> {
        let head = self.head.as_ref().expect("a head");
        head.headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, v)| String::from_utf8_lossy(v).into_owned())
            .collect()
    }

    pub fn logged(&self, part: &str) -> bool {
        self.logs.iter().any(|(_, text)| text.contains(part))
    }
}

/// A request that has been published and is not done yet.
pub struct Flight {
    pub slot: u32,
    parser: ResponseParser,
    pending: Vec<u8>,
    pub answer: ChildResponse,
    pub done: bool,
    body: Vec<u8>,
    body_at: usize,
    body_open: bool,
}

/// A request to be published: variables, settings and body.
pub struct FrontRequest<'a> {
    builder: FrameBuilder,
    body: &'a [u8],
    length: Option<u64>,
}

impl<'a> FrontRequest<'a> {
    pub fn get(script: &Path) -> FrontRequest<'a> {
        FrontRequest::new("GET", script)
    }

    pub fn new(method: &str, script: &Path) -> FrontRequest<'a> {
        let mut b = FrameBuilder::new(Vec::new());
        b.var(Var::RequestMethod, method.as_bytes());
        b.var(Var::ScriptFilename, script.as_os_str().as_encoded_bytes());
        b.var(Var::ScriptName, b"/script.php");
        b.var(Var::RequestUri, b"/script.php");
        FrontRequest {
            builder: b,
            body: b"",
            length: Some(0),
        }
    }

    pub fn var(mut self, name: &str, value: &str) -> Self {
        self.builder.named(name.as_bytes(), value.as_bytes());
        self
    }

    pub fn ini(mut self, kind: IniKind, name: &str, value: &str) -> Self {
        self.builder.ini(kind, name.as_bytes(), value.as_bytes());
        self
    }

    /// Sets a body of known length.
    pub fn body(self, kind: &str, body: &'a [u8]) -> Self {
        let mut this = self.var("CONTENT_TYPE", kind);
        let length = body.len().to_string();
        this = this.var("CONTENT_LENGTH", &length);
        this.body = body;
        this.length = Some(body.len() as u64);
        this
    }

    /// Sets a body of unknown length.
    pub fn chunked(self, kind: &str, body: &'a [u8]) -> Self {
        let mut this = self.var("CONTENT_TYPE", kind);
        this.body = body;
        this.length = None;
        this
    }

    /// Returns the request frame, without the body.
    pub fn into_frame(self) -> RequestFrame {
        self.finish().0
    }

    fn finish(self) -> (RequestFrame, Vec<u8>) {
        (
            self.builder.finish(self.length, 0).unwrap(),
            self.body.to_vec(),
        )
    }
}

impl TestFront {
    /// Starts a pool with `children` children that are ready to serve.
    pub fn start(children: u16, args: &[&str]) -> TestFront {
        let mut front = TestFront::start_zygote(args);
        match front.next_report() {
            ZygoteReport::Ready { php, .. } => front.opcache = php.opcache,
            other => panic!("not ready: {other:?}\n{}", front.log()),
        }
        for _ in 0..children {
            front.spawn(0);
        }
        front
    }

    /// Starts a zygote without children.
    pub fn start_zygote(args: &[&str]) -> TestFront {
        TestFront::start_zygote_with(args, |_| {})
    }

    /// Starts a zygote after `prepare` has changed its command.
    pub fn start_zygote_with(args: &[&str], prepare: impl FnOnce(&mut Command)) -> TestFront {
        let geometry = Geometry {
            fronts: 1,
            slots: 16,
            children: 8,
            shared_cache: 0,
        };
        let (memory, port, pool) = sys::pool_memory(geometry);
        let bell = sys::eventfd();
        let (control, theirs) = sys::packet_pair();
        let its_bell = bell.try_clone().unwrap();
        let fds = [&memory, &its_bell, &theirs].map(|fd| fd.as_raw_fd());
        let mut command = howdah_php();
        command
            .args(["--pool", "test"])
            .args(["--memory-fd", &fds[0].to_string()])
            .args(["--bell-fds", &fds[1].to_string()])
            .args(["--control-fd", &fds[2].to_string()])
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        sys::inherit(&mut command, vec![memory, its_bell, theirs]);
        prepare(&mut command);
        // The environment may have been cleared.
        command.env("LD_PRELOAD", php_library());
        let mut zygote = command.spawn().expect("howdah-php starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (mut pipe, sink) = (zygote.stderr.take().unwrap(), log.clone());
        let log_reader = std::thread::spawn(move || {
            let mut buf = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut buf) {
                sink.lock()
                    .unwrap()
                    .push_str(&String::from_utf8_lossy(&buf[..n]));
            }
        });
        TestFront {
            port,
            pool,
            zygote,
            control: Some(control),
            bell,
            free: (0..geometry.slots).collect(),
            lives: 0,
            reports: Vec::new(),
            children: Vec::new(),
            opcache: false,
            replaces_bailed_out: false,
            log,
            log_reader: Some(log_reader),
        }
    }

    /// Returns what the zygote and its children have written to stderr so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Replaces the last child if PHP has bailed out of its request, as a supervisor does.
    fn replace_bailed_out(&mut self) {
        self.take_reports();
        let bailed_out = |report: &ZygoteReport| {
            let exit = Exit::Code(EXIT_BAILED_OUT);
            matches!(report, ZygoteReport::Exited { exit: how, .. } if *how == exit)
        };
        if self.children.is_empty() && self.reports.iter().any(bailed_out) {
            self.reports.retain(|report| !bailed_out(report));
            self.spawn(0);
        }
    }

    /// Waits until `part` has been written to stderr, which a separate thread reads.
    pub fn wait_log(&self, part: &str) {
        let deadline = Instant::now() + MAX_WAIT;
        while !self.log().contains(part) {
            assert!(Instant::now() < deadline, "no {part:?} in {}", self.log());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn send_command(&self, order: &Order) {
        let control = self.control.as_ref().expect("not hung up");
        sys::send(control, order.encode().as_bytes());
    }

    /// Closes the control socket, by which the zygote notices the end of its front.
    pub fn close_control(&mut self) {
        self.control = None;
    }

    /// Forks a child on the lowest free row. Returns its identity and its pid.
    pub fn spawn(&mut self, max_requests: u64) -> (ChildId, i32) {
        let index = (0..8)
            .find(|i| self.children.iter().all(|(c, _)| c.index != *i))
            .expect("a free row");
        self.lives += 1;
        let child = ChildId {
            index,
            incarnation: self.lives,
        };
        self.pool.prepare_row(child);
        self.send_command(&Order::Spawn {
            child,
            max_requests,
        });
        let spawned = |r: &ZygoteReport| {
            matches!(
                r,
                ZygoteReport::Spawned { .. } | ZygoteReport::SpawnFailed { .. }
            )
        };
        match self.wait_report(spawned) {
            ZygoteReport::Spawned { child: who, pid } => {
                assert_eq!(who, child);
                self.children.push((child, pid));
                (child, pid)
            }
            other => panic!("not spawned: {other:?}"),
        }
    }

    fn take_reports(&mut self) -> bool {
        let Some(control) = &self.control else {
            return false;
        };
        loop {
            match sys::receive(control) {
                sys::ControlPacket::Packet(packet, _pidfd) => {
                    let report = ZygoteReport::parse(&packet).expect("a report");
                    if let ZygoteReport::Exited { child, .. } = &report {
                        self.pool.remove_child(child.index);
                        self.children.retain(|(c, _)| c != child);
                    }
                    self.reports.push(report);
                }
                sys::ControlPacket::Nothing => return true,
                sys::ControlPacket::End => return false,
            }
        }
    }

    /// Returns the oldest report that has not been read yet.
    pub fn next_report(&mut self) -> ZygoteReport {
        self.wait_report(|_| true)
    }

    /// Returns the oldest report for which `fits` returns true.
    pub fn wait_report(&mut self, fits: impl Fn(&ZygoteReport) -> bool) -> ZygoteReport {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let open = self.take_reports();
            if let Some(at) = self.reports.iter().position(&fits) {
                return self.reports.remove(at);
            }
            assert!(open, "the zygote is gone: {}", self.log());
            assert!(Instant::now() < deadline, "no report: {}", self.log());
            self.sleep_until_event();
        }
    }

    /// Waits until a child has exited.
    pub fn wait_exit(&mut self, child: ChildId) -> Exit {
        let report =
            self.wait_report(|r| matches!(r, ZygoteReport::Exited { child: c, .. } if *c == child));
        match report {
            ZygoteReport::Exited { exit, .. } => exit,
            _ => unreachable!(),
        }
    }

    /// Waits until the row of a child satisfies `fits`, for example because it sleeps between jobs.
    pub fn wait_child(
        &mut self,
        child: ChildId,
        fits: impl Fn(&howdah_proto::shm::ChildStatus) -> bool,
    ) {
        let deadline = Instant::now() + MAX_WAIT;
        while !fits(&self.pool.child_status(child.index)) {
            assert!(
                Instant::now() < deadline,
                "{:?}",
                self.pool.child_status(child.index)
            );
            std::thread::yield_now();
        }
    }

    /// Sleeps until a bell or a report arrives, or for a few milliseconds.
    fn sleep_until_event(&self) {
        if self.port.go_to_sleep() {
            let fds = sys::borrowed(self.control.iter().chain([&self.bell]));
            sys::wait_readable(&fds, Duration::from_millis(5));
            sys::reset_bell(&self.bell);
        }
        self.port.woke_up();
    }

    /// Wakes the process that the shared memory names.
    pub fn wake(wake: FutexWake<'_>) {
        if let Some(word) = wake.0 {
            sys::futex_wake(word);
        }
    }

    /// Publishes a request, whose body [`TestFront::poll_flight`] feeds.
    pub fn publish(&mut self, request: FrontRequest<'_>) -> Flight {
        self.publish_part(request, true)
    }

    /// Publishes a request. If `complete` is false, the body stays open after its last byte.
    pub fn publish_part(&mut self, request: FrontRequest<'_>, complete: bool) -> Flight {
        let (frame, body) = request.finish();
        let slot = self.free.pop().expect("a free slot");
        let none = body.is_empty() && complete;
        self.port.publish(slot, &frame, none);
        TestFront::wake(self.pool.choose_wake(sys::monotonic_ns(), 2));
        Flight {
            slot,
            parser: ResponseParser::default(),
            pending: Vec::new(),
            answer: ChildResponse::default(),
            done: false,
            body,
            body_at: 0,
            body_open: complete && !none,
        }
    }

    /// Performs one round for a flight: feeds its body, reads its response, notices its end. Returns whether anything
    /// arrived.
    pub fn poll_flight(&mut self, flight: &mut Flight) -> bool {
        if flight.done {
            return false;
        }
        self.take_reports();
        if self.port.has_unclaimed() {
            TestFront::wake(self.pool.choose_wake(sys::monotonic_ns(), 2));
        }
        if flight.body_at < flight.body.len() {
            let rest = &flight.body[flight.body_at..];
            let (n, wake) = self.port.write_body(flight.slot, rest).unwrap();
            flight.body_at += n;
            TestFront::wake(wake);
        } else if flight.body_open {
            flight.body_open = false;
            TestFront::wake(self.port.end_body(flight.slot, true));
        }
        let state = self.port.state(flight.slot);
        let came = self.read(flight);
        let dead = match state {
            SlotState::Done(_) => None,
            SlotState::Claimed(child) => self.reports.iter().find_map(|r| match r {
                ZygoteReport::Exited { child: c, exit } if *c == child => Some(*exit),
                _ => None,
            }),
            SlotState::Ready => return came,
            other => panic!("{other:?}"),
        };
        let ended = matches!(state, SlotState::Done(_)) || dead.is_some();
        if ended && !came {
            assert!(flight.parser.at_frame_end() || dead.is_some(), "cut frame");
            flight.answer.died = dead;
            flight.done = true;
            self.port.free(flight.slot);
            self.free.push(flight.slot);
        }
        came
    }

    fn read(&mut self, flight: &mut Flight) -> bool {
        let mut any = false;
        loop {
            let (n, wake) = self
                .port
                .read_response(flight.slot, &mut flight.pending, usize::MAX)
                .unwrap();
            TestFront::wake(wake);
            if n == 0 {
                return any;
            }
            any = true;
            let mut at = 0;
            while let Some((frame, used)) = flight.parser.parse(&flight.pending[at..]).unwrap() {
                let answer = &mut flight.answer;
                match frame {
                    Frame::Head(head) => answer.head = Some(head),
                    Frame::Informational(head) => answer.informational.push(head),
                    Frame::Body(bytes) => answer.body.extend_from_slice(bytes),
                    Frame::Log(level, text) => answer
                        .logs
                        .push((level, String::from_utf8_lossy(text).into_owned())),
                    Frame::Finish => answer.finished = true,
                    Frame::Effect(..) | Frame::BailedOut => {}
                }
                at += used;
            }
            flight.answer.pieces += 1;
            flight.pending.drain(..at);
        }
    }

    /// Continues a flight until `until` holds or it is done.
    pub fn drive_until(&mut self, flight: &mut Flight, until: impl Fn(&ChildResponse) -> bool) {
        let deadline = Instant::now() + MAX_WAIT;
        while !flight.done && !until(&flight.answer) {
            // Cleared before the check, so a later event is announced again.
            self.port.take_notified(|_| {});
            if !self.poll_flight(flight) && !flight.done {
                assert!(
                    Instant::now() < deadline,
                    "stuck: {:?}, head {:?}\n{}",
                    self.port.state(flight.slot),
                    flight.answer.head,
                    self.log()
                );
                if self.replaces_bailed_out {
                    self.replace_bailed_out();
                }
                self.sleep_until_event();
            }
        }
    }

    /// Publishes a request and polls it until it is done.
    pub fn run(&mut self, request: FrontRequest<'_>) -> ChildResponse {
        let mut flight = self.publish(request);
        self.drive_until(&mut flight, |_| false);
        flight.answer
    }

    /// Reports that the client of a flight is gone.
    pub fn abort(&self, flight: &Flight) {
        TestFront::wake(self.port.abort(flight.slot));
    }

    /// Appends body bytes manually (see [`TestFront::publish_part`]).
    pub fn write_body(&self, flight: &Flight, bytes: &[u8]) {
        let (n, wake) = self.port.write_body(flight.slot, bytes).unwrap();
        assert_eq!(n, bytes.len(), "the test feeds small pieces");
        TestFront::wake(wake);
    }

    /// Ends a body that was fed with [`TestFront::write_body`].
    pub fn end_body(&self, flight: &Flight, complete: bool) {
        TestFront::wake(self.port.end_body(flight.slot, complete));
    }

    /// Tells a child to exit when it is idle.
    pub fn retire(&self, child: ChildId) {
        TestFront::wake(self.pool.retire(child.index));
    }

    /// Requests the PHP stack of a child from the zygote.
    pub fn trace(&mut self, child: ChildId) -> String {
        self.send_command(&Order::Trace { child });
        match self.wait_report(|r| matches!(r, ZygoteReport::Trace { .. })) {
            ZygoteReport::Trace { child: who, stack } => {
                assert_eq!(who, child);
                stack
            }
            _ => unreachable!(),
        }
    }

    /// Waits until the zygote has exited. Returns its exit status.
    pub fn wait_zygote(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            if let Some(status) = self.zygote.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the zygote does not leave");
            std::thread::yield_now();
        }
    }
}

impl Drop for TestFront {
    fn drop(&mut self) {
        // The children are killed first, so a test that failed in the middle of a request ends at once.
        for (_, pid) in &self.children {
            sys::kill(*pid, libc::SIGKILL);
        }
        self.control = None;
        let _ = self.zygote.kill();
        let _ = self.zygote.wait();
        if let Some(reader) = self.log_reader.take() {
            let _ = reader.join();
        }
    }
}

/// Returns whether a process of that id exists and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

/// Waits until a process is gone.
pub fn wait_gone(pid: i32) {
    wait_until(&format!("the end of process {pid}"), || !is_alive(pid));
}

/// Waits until `holds` returns true; panics when that takes too long.
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + MAX_WAIT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the private memory of a process that is not backed by a file.
pub fn rss_anon_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
