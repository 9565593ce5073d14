//! A FastCGI backend whose behaviour a test scripts record by record: one thread that accepts and one thread per
//! connection. It has its own implementation of records, so the code under test is not tested against itself.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use howdah_executor::config::FastCgiConfig;
use howdah_proto::backend_address::{BackendAddress, FastCgiBackend};
use tempfile::TempDir;

use super::TEST_TIMEOUT;

/// A request as the backend received it.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    pub keep: bool,
    pub params: Vec<(String, String)>,
    pub stdin: Vec<u8>,
    /// The number of the connection, from 0.
    pub connection: usize,
}

impl ReceivedRequest {
    pub fn param(&self, name: &str) -> Option<&str> {
        let found = self.params.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The requests and counters that all connections of a backend share.
#[derive(Default)]
pub struct BackendLedger {
    pub seen: Mutex<Vec<ReceivedRequest>>,
    /// The number of connections that were accepted. A probe does not count.
    pub connections: AtomicUsize,
    pub open: AtomicUsize,
    pub max_open: AtomicUsize,
    /// The number of connections that the other end has closed.
    pub closed: AtomicUsize,
    stop: AtomicBool,
}

/// The backend's end of a connection, for a test's script.
pub struct ScriptedConnection {
    stream: UnixStream,
    ledger: Arc<BackendLedger>,
    pub connection: usize,
    /// The header of the first record, which was read to distinguish a probe from a request.
    first: Option<[u8; 8]>,
}

pub fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u16).to_be_bytes();
    let padding = (8 - content.len() % 8) % 8;
    let mut out = vec![1, kind, 0, 1, length[0], length[1], padding as u8, 0];
    out.extend_from_slice(content);
    out.resize(out.len() + padding, 0xee);
    out
}

pub const STDOUT: u8 = 6;
pub const STDERR: u8 = 7;
pub const END: u8 = 3;
pub const OVERLOADED: [u8; 8] = [0, 0, 0, 0, 2, 0, 0, 0];

impl ScriptedConnection {
    fn header(&mut self) -> Option<[u8; 8]> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let mut header = [0; 8];
        match self.stream.read_exact(&mut header) {
            Ok(()) => Some(header),
            Err(_) => {
                self.ledger.closed.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }

    fn content(&mut self, header: &[u8; 8]) -> Option<Vec<u8>> {
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let mut content = vec![0; length + usize::from(header[6])];
        self.stream.read_exact(&mut content).ok()?;
        content.truncate(length);
        Some(content)
    }

    /// Reads a request up to the end of its parameters, without its STDIN. Returns `None` if the other end has closed.
    pub fn request_head(&mut self) -> Option<ReceivedRequest> {
        let mut seen = ReceivedRequest {
            connection: self.connection,
            ..ReceivedRequest::default()
        };
        loop {
            let header = self.header()?;
            let content = self.content(&header)?;
            match header[1] {
                1 => seen.keep = content[2] & 1 == 1,
                4 if content.is_empty() => return Some(seen),
                4 => seen.params.extend(pairs(&content)),
                other => panic!("record of type {other} in a request's head"),
            }
        }
    }

    /// Reads a request. Returns `None` if the other end has closed.
    pub fn request(&mut self) -> Option<ReceivedRequest> {
        let mut seen = self.request_head()?;
        loop {
            let header = self.header()?;
            let content = self.content(&header)?;
            assert_eq!(header[1], 5, "STDIN comes next");
            if content.is_empty() {
                break;
            }
            seen.stdin.extend(content);
        }
        self.ledger.seen.lock().unwrap().push(seen.clone());
        Some(seen)
    }

    /// Writes bytes; the other end may be gone.
    pub fn raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn send(&mut self, kind: u8, content: &[u8]) {
        self.raw(&record(kind, content));
    }

    /// Sends a complete response in one write, as PHP does.
    pub fn answer(&mut self, cgi: &str) {
        let mut all = record(STDOUT, cgi.as_bytes());
        all.extend(record(END, &[0; 8]));
        self.raw(&all);
    }

    /// Returns whether the other end is still open, without reading.
    pub fn is_there(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        let now = rustix::time::Timespec::default();
        poll(&mut fds, Some(&now)).unwrap();
        !fds[0].revents().contains(PollFlags::HUP)
    }

    /// Waits until the other end closes.
    pub fn wait_for_close(&mut self) {
        let mut rest = [0; 4096];
        while matches!(self.stream.read(&mut rest), Ok(n) if n > 0) {}
        self.ledger.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn pairs(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let length = |bytes: &mut &[u8]| {
        let long = bytes[0] & 0x80 != 0;
        let (head, rest) = bytes.split_at(if long { 4 } else { 1 });
        *bytes = rest;
        head.iter().fold(0, |n, b| n << 8 | usize::from(*b)) & 0x7fff_ffff
    };
    while !bytes.is_empty() {
        let (name, value) = (length(&mut bytes), length(&mut bytes));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.push((text(&bytes[..name]), text(&bytes[name..name + value])));
        bytes = &bytes[name + value..];
    }
    found
}

/// A running backend. Dropping it closes its socket and removes the socket's file.
pub struct ScriptedBackend {
    pub path: PathBuf,
    pub ledger: Arc<BackendLedger>,
    directory: Option<TempDir>,
    acceptor: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedBackend {
    /// Runs `script` for each connection.
    pub fn start(
        script: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static,
    ) -> ScriptedBackend {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let mut backend = ScriptedBackend::at(path, script);
        backend.directory = Some(directory);
        backend
    }

    /// Runs `script` for each connection, on a socket at this path.
    pub fn at(
        path: PathBuf,
        script: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static,
    ) -> ScriptedBackend {
        let listener = UnixListener::bind(&path).unwrap();
        let ledger = Arc::new(BackendLedger::default());
        let acceptor = std::thread::spawn({
            let (ledger, script) = (ledger.clone(), Arc::new(script));
            move || accept(&listener, &ledger, &script)
        });
        ScriptedBackend {
            path,
            ledger,
            directory: None,
            acceptor: Some(acceptor),
        }
    }

    pub fn backend(&self) -> FastCgiBackend {
        backend(&self.path)
    }

    pub fn seen(&self) -> Vec<ReceivedRequest> {
        self.ledger.seen.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.ledger.connections.load(Ordering::SeqCst)
    }

    pub fn closed(&self) -> usize {
        self.ledger.closed.load(Ordering::SeqCst)
    }

    pub fn open(&self) -> usize {
        self.ledger.open.load(Ordering::SeqCst)
    }
}

/// Returns the configuration of a pool for these backends, each with at most four connections. A test changes the
/// values that it is about.
pub fn fastcgi_config(backends: Vec<FastCgiBackend>) -> FastCgiConfig {
    FastCgiConfig {
        name: "test".to_owned(),
        backends,
        max_connections: Some(4),
        keep_connections: true,
        keep_timeout: TEST_TIMEOUT,
        queue_size: 1000,
        queue_timeout: TEST_TIMEOUT,
        connect_timeout: TEST_TIMEOUT,
        send_timeout: TEST_TIMEOUT,
        restart_time: TEST_TIMEOUT,
        ..FastCgiConfig::default()
    }
}

pub fn backend(path: &std::path::Path) -> FastCgiBackend {
    FastCgiBackend {
        address: BackendAddress::Unix(path.to_owned()),
        weight: 1,
    }
}

impl Drop for ScriptedBackend {
    fn drop(&mut self) {
        self.ledger.stop.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

type ConnectionScript = Arc<dyn Fn(&mut ScriptedConnection) + Send + Sync>;

fn accept(
    listener: &UnixListener,
    ledger: &Arc<BackendLedger>,
    script: &Arc<impl Fn(&mut ScriptedConnection) + Send + Sync + 'static>,
) {
    let script: ConnectionScript = script.clone();
    for stream in listener.incoming() {
        if ledger.stop.load(Ordering::SeqCst) {
            return;
        }
        let (mut stream, ledger, script) = (stream.unwrap(), ledger.clone(), script.clone());
        std::thread::spawn(move || {
            let mut first = [0; 8];
            if stream.read_exact(&mut first).is_err() {
                return;
            }
            if first[1] == 9 {
                // GET_VALUES: respond with no values.
                let _ = stream.write_all(&[1, 10, 0, 0, 0, 0, 0, 0]);
                return;
            }
            let connection = ledger.connections.fetch_add(1, Ordering::SeqCst);
            let open = ledger.open.fetch_add(1, Ordering::SeqCst) + 1;
            ledger.max_open.fetch_max(open, Ordering::SeqCst);
            let mut peer = ScriptedConnection {
                stream,
                ledger: ledger.clone(),
                connection,
                first: Some(first),
            };
            script(&mut peer);
            ledger.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// Responds to each request, and keeps the connection if asked to, as PHP does.
pub fn serve(peer: &mut ScriptedConnection) {
    while let Some(seen) = peer.request() {
        let uri = seen.param("REQUEST_URI").unwrap_or_default().to_owned();
        peer.answer(&format!("Content-Type: text/plain\r\n\r\n{uri}"));
        if !seen.keep {
            return;
        }
    }
}
