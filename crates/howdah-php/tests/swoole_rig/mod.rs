//! Starts `howdah-php run` with a script on a free port and talks HTTP to it, byte by byte where a test needs that.
//! This is not a test itself.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "used by several test programs; a broken rig must stop them"
)]

use howdah_test_support::php::howdah_php;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// The name of the notice about a script that starts no server.
const NO_SERVER: &str = "NoServerStarted";
/// Longest time that a test waits for anything, even on a loaded machine.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Checks a condition repeatedly until it holds.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + MAX_WAIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A directory that is removed with the test.
pub struct RigDirectory(PathBuf);

impl RigDirectory {
    pub fn new() -> RigDirectory {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("howdah-swoole-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        RigDirectory(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for RigDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `howdah-php run` with its log.
pub struct SwooleScript {
    child: Child,
    log: Arc<Mutex<String>>,
    pub port: u16,
    scratch: RigDirectory,
}

fn command(script: &Path, arguments: &[&str]) -> Command {
    let mut command = howdah_php();
    command
        .args(["run", "--listen", "127.0.0.1:0", "--no-php-ini"])
        .arg(script)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs a script that is expected to end by itself. Returns its exit code and its output.
pub fn run_to_end(code: &str) -> (i32, String) {
    let scratch = RigDirectory::new();
    let script = scratch.write("server.php", &format!("<?php\n{code}"));
    let mut child = command(&script, &[]).spawn().unwrap();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).unwrap();
        text
    });
    let mut text = String::new();
    out.read_to_string(&mut text).unwrap();
    let status = wait(&mut child);
    let errors = reader.join().unwrap();
    // These scripts test other things than servers.
    let errors = errors
        .split_inclusive('\n')
        .filter(|line| !line.contains(NO_SERVER));
    text.extend(errors);
    (status.code().unwrap_or(-1), text)
}

fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + MAX_WAIT;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("the script does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl SwooleScript {
    /// Starts the given PHP code (without `<?php`) and waits until it listens.
    pub fn start(code: &str) -> SwooleScript {
        SwooleScript::start_in(RigDirectory::new(), code)
    }

    /// Starts the code with files that the test has created beside it; `$argv[1]` is their directory.
    pub fn start_in(scratch: RigDirectory, code: &str) -> SwooleScript {
        let file = scratch.write("server.php", &format!("<?php\n{code}"));
        SwooleScript::start_file(scratch, &file)
    }

    /// Starts the script in this file.
    pub fn start_file(scratch: RigDirectory, file: &Path) -> SwooleScript {
        let directory = scratch.path().to_str().unwrap().to_owned();
        let mut child = command(file, &[&directory]).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        for stream in [
            Box::new(child.stdout.take().unwrap()) as Box<dyn Read + Send>,
            Box::new(child.stderr.take().unwrap()),
        ] {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let mut log = log.lock().unwrap();
                    log.push_str(&line);
                    log.push('\n');
                }
            });
        }
        let mut script = SwooleScript {
            child,
            log,
            port: 0,
            scratch,
        };
        script.port = eventually("the script listens", || {
            if let Some(status) = script.child.try_wait().unwrap() {
                panic!("the script ended with {status}: {}", script.log());
            }
            let log = script.log();
            let (_, rest) = log.split_once("listening on ")?;
            let address = rest.split(',').next()?;
            address.rsplit(':').next()?.parse().ok()
        });
        script
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Waits for a word in the log.
    pub fn wait_for_log(&self, word: &str) {
        let found = || self.log().contains(word).then_some(());
        let end = Instant::now() + MAX_WAIT;
        while found().is_none() {
            assert!(Instant::now() < end, "no {word:?} in: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn connect(&self) -> RigClient {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
        RigClient {
            stream,
            read: Vec::new(),
        }
    }

    /// Sends one GET over its own connection.
    pub fn get(&self, target: &str) -> SwooleResponse {
        self.connect().get(target)
    }

    pub fn signal(&self, signal: i32) {
        signal_to(self.child.id() as i32, signal);
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Returns the process ids of its workers.
    pub fn workers(&self) -> std::collections::BTreeSet<i32> {
        let pid = self.pid();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        let pids = children.split_whitespace();
        pids.map(|pid| pid.parse().unwrap()).collect()
    }

    /// Returns the bytes of private memory of its first worker.
    pub fn worker_memory(&self) -> u64 {
        let worker = self.workers().into_iter().next().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
        let line = status.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
        let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kilobytes * 1024
    }

    /// Stops it. Returns its exit code and its output.
    pub fn stop(mut self) -> (i32, String) {
        self.signal(libc::SIGTERM);
        let status = wait(&mut self.child);
        (status.code().unwrap_or(-1), self.log())
    }
}

impl Drop for SwooleScript {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(libc::SIGTERM);
            let end = Instant::now() + Duration::from_secs(10);
            while let Ok(None) = self.child.try_wait() {
                if Instant::now() > end {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

pub fn signal_to(pid: i32, signal: i32) {
    let (pid, signal) = (Pid::from_raw(pid), Signal::from_named_raw(signal));
    let _ = rustix::process::kill_process(pid.unwrap(), signal.unwrap());
}

/// A client's connection to the server.
pub struct RigClient {
    pub stream: TcpStream,
    read: Vec<u8>,
}

/// A response, read from a connection.
#[derive(Clone, Debug)]
pub struct SwooleResponse {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl SwooleResponse {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the first header whose name is spelled exactly like this.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (n, v) = line.split_once(": ")?;
            (n == name).then_some(v)
        })
    }

    pub fn headers(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1);
        let named = fields.filter_map(|line| line.split_once(": "));
        named.filter(|(n, _)| *n == name).map(|(_, v)| v).collect()
    }
}

impl RigClient {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn get(&mut self, target: &str) -> SwooleResponse {
        self.request("GET", target, "", b"")
    }

    /// Sends one GET whose response may be cut off.
    pub fn try_answer_to_get(mut self) -> Option<SwooleResponse> {
        self.stream
            .write_all(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            .ok()?;
        self.try_answer(false)
    }

    /// Sends a request with these headers (each terminated by CRLF) and reads the response.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
        body: &[u8],
    ) -> SwooleResponse {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        self.send(
            format!("{method} {target} HTTP/1.1\r\nHost: t\r\n{fields}{length}\r\n").as_bytes(),
        );
        self.send(body);
        self.answer(method == "HEAD")
    }

    /// Returns the bytes that follow the header block of the response, up to the end of the connection.
    pub fn raw_response(mut self, request: &str, version: &str) -> String {
        self.send(
            format!("{request} {version}\r\nHost: t\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        while self.more() {}
        let all = String::from_utf8(self.read).unwrap();
        let (_, body) = all.split_once("\r\n\r\n").unwrap();
        body.to_owned()
    }

    fn more(&mut self) -> bool {
        let mut buf = [0; 16 << 10];
        let n = self.stream.read(&mut buf).unwrap_or(0);
        self.read.extend_from_slice(&buf[..n]);
        n > 0
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        while self.read.len() < n {
            assert!(
                self.more(),
                "cut off after {} of {n} bytes",
                self.read.len()
            );
        }
        self.read.drain(..n).collect()
    }

    fn line(&mut self) -> String {
        loop {
            if let Some(at) = self.read.windows(2).position(|w| w == b"\r\n") {
                let line = self.take(at + 2);
                return String::from_utf8(line[..at].to_vec()).unwrap();
            }
            let got = self.more();
            assert!(got, "cut off: {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    /// Reads one response; panics if the connection ends instead.
    pub fn answer(&mut self, to_head: bool) -> SwooleResponse {
        self.try_answer(to_head).expect("an answer")
    }

    /// Reads one response, or returns `None` at the end of the connection.
    pub fn try_answer(&mut self, to_head: bool) -> Option<SwooleResponse> {
        if self.read.is_empty() && !self.more() {
            return None;
        }
        let mut head = self.line();
        let status = head[9..12].parse().unwrap();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            head.push('\n');
            head.push_str(&line);
        }
        let mut answer = SwooleResponse {
            status,
            head,
            body: Vec::new(),
        };
        if to_head || status == 204 || status == 304 || status == 100 {
            return Some(answer);
        }
        if let Some(length) = answer.header("Content-Length") {
            let length = length.parse().unwrap();
            answer.body = self.take(length);
        } else if answer.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line(), 16).unwrap();
                let chunk = self.take(size);
                answer.body.extend_from_slice(&chunk);
                assert_eq!(self.line(), "");
                if size == 0 {
                    break;
                }
            }
        } else {
            while self.more() {}
            answer.body = std::mem::take(&mut self.read);
        }
        Some(answer)
    }

    /// Returns whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        self.read.is_empty() && !self.more()
    }
}

/// Starts a server whose callback is `code`, with `$q`, `$r` and `$s`.
pub fn serving(code: &str) -> SwooleScript {
    SwooleScript::start(&format!(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('request', function ($q, $r) use ($s) {{ {code} }});
        $s->start();"#
    ))
}
