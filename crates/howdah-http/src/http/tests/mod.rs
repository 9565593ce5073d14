//! Wire tests: bytes in and bytes out over a socket pair, with a paused clock. A wait of 75 seconds takes no time, and
//! a test can be certain that no byte arrives.

mod bodies;
mod heads;
mod http2;
mod http2_floods;
mod http3;
mod properties;
mod responses;
mod timeouts;
mod tls;

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::lifecycle::FrontThreadConnections;
use super::message::{RequestHead, ResponseHead};
use super::proxy_protocol::TrustedPeers;
use super::{
    BodyKind, ByteStream, ConnectionInfo, ConnectionNotice, ConnectionSetup, HttpConfig,
    RequestBody, RequestHandler, Responder, ResponseLength, SendFileError, serve,
};
use crate::socket::StreamSocket;

/// After this time without a byte the connection counts as open and silent. No real time passes.
const SILENCE: Duration = Duration::from_millis(500);

/// A handler whose behaviour is named by the path.
pub struct TestHandler {
    /// `/wait` continues when this is notified.
    gate: Notify,
    /// The reports of the handler and the connection.
    seen: Mutex<Vec<String>>,
    file: File,
}

/// The number of bytes in the file that `/file` sends.
const FILE_LEN: u64 = 300_000;

impl TestHandler {
    fn new() -> TestHandler {
        let mut file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..FILE_LEN).map(|n| (n % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        TestHandler {
            gate: Notify::new(),
            seen: Mutex::default(),
            file,
        }
    }

    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn text(out: &mut Responder, status: u16, body: impl Into<Vec<u8>>) {
    let body: Vec<u8> = body.into();
    out.respond(&ResponseHead::new(status), body);
}

impl RequestHandler for TestHandler {
    async fn handle<'a>(
        &'a self,
        req: &'a RequestHead,
        conn: &'a ConnectionInfo,
        body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        let ok = ResponseHead::new(200);
        let query = req.query().map(|q| String::from_utf8_lossy(q).into_owned());
        let number = || query.as_deref().and_then(|q| q.parse::<u64>().ok());
        match req.path() {
            b"/hello" | b"*" | b"/" => text(out, 200, "hello"),
            b"/what" => {
                let all = [req.method(), b" ", req.target(), b" ", req.host()].concat();
                text(out, 200, all);
            }
            b"/tls" => text(out, 200, format!("{:?}", conn.tls)),
            b"/conn" => text(out, 200, format!("{:?} {}", conn.peer, conn.request)),
            b"/ignore" => text(out, 200, "ignored"),
            b"/wait" => {
                self.note("waiting".into());
                self.gate.notified().await;
                text(out, 200, "waited");
            }
            b"/echo" => {
                if let Some(limit) = number() {
                    body.set_limit(limit);
                }
                let mut all = Vec::new();
                while let Some(piece) = body.next().await {
                    match piece {
                        Ok(piece) => all.extend_from_slice(&piece),
                        Err(why) => {
                            self.note(format!("body: {why}"));
                            return text(out, why.status(), why.name());
                        }
                    }
                }
                assert!(body.next().await.is_none());
                assert_eq!(body.received(), all.len() as u64);
                text(out, 200, all);
            }
            b"/body" => {
                let has_body = body.delimiter() != BodyKind::None;
                text(out, 200, format!("body: {has_body}"));
            }
            b"/duplex" => {
                assert_ne!(body.delimiter(), BodyKind::None);
                out.begin(&ok, ResponseLength::Unknown);
                while let Some(Ok(piece)) = body.next().await {
                    out.push(piece);
                    out.flush().await.unwrap();
                }
                out.end();
            }
            b"/pieces" => {
                out.begin(&ok, ResponseLength::Unknown);
                out.push(Bytes::from_static(b"a"));
                out.push(Bytes::new());
                out.push(Bytes::from_static(b"bcdefghijklmnopqr"));
                out.end();
            }
            b"/hints" => {
                let mut hints = ResponseHead::new(103);
                hints.header(b"Link", b"</a.css>; rel=preload");
                out.informational(&hints);
                self.gate.notified().await;
                text(out, 200, "hinted");
            }
            b"/status" => {
                let status = number().unwrap_or(200) as u16;
                out.begin(&ResponseHead::new(status), ResponseLength::Known(3));
                out.push(Bytes::from_static(b"abc"));
                out.end();
            }
            b"/nobody" => {
                out.begin(&ok, ResponseLength::NoBody);
                out.end();
            }
            b"/too-long" => {
                out.begin(&ok, ResponseLength::Known(3));
                out.push(Bytes::from_static(b"abcdef"));
                out.push(Bytes::from_static(b"g"));
                assert_eq!(out.body_bytes_sent(), 3);
                out.end();
            }
            b"/too-short" => {
                out.begin(&ok, ResponseLength::Known(5));
                out.push(Bytes::from_static(b"abc"));
                out.end();
            }
            b"/cut" => {
                out.begin(&ok, ResponseLength::Unknown);
                out.push(Bytes::from_static(b"abc"));
                out.abort();
            }
            b"/silent" => {}
            b"/panic" => panic!("as asked by the test"),
            b"/panic-late" => {
                out.begin(&ok, ResponseLength::Unknown);
                out.push(Bytes::from_static(b"abc"));
                panic!("as asked by the test");
            }
            b"/big" => {
                out.begin(&ok, ResponseLength::Unknown);
                for n in 0..number().unwrap_or(16) {
                    out.push(Bytes::from(vec![n as u8; 100_000]));
                    if out.flush().await.is_err() {
                        return self.note("send: client gone".into());
                    }
                }
                out.end();
            }
            b"/file" => {
                out.begin(&ok, ResponseLength::Known(FILE_LEN));
                out.send_file(&self.file, 0, FILE_LEN).await.unwrap();
                out.end();
            }
            b"/file-pieces" => {
                out.begin(&ok, ResponseLength::Unknown);
                out.send_file(&self.file, 10, 100_000).await.unwrap();
                out.push(Bytes::from_static(b"+"));
                out.send_file(&self.file, 1, 5).await.unwrap();
                out.end();
            }
            b"/file-short" => {
                out.begin(&ok, ResponseLength::Known(FILE_LEN + 1));
                match out.send_file(&self.file, 0, FILE_LEN + 1).await {
                    Err(SendFileError::FileTooShort) => self.note("file too short".into()),
                    other => panic!("{other:?}"),
                }
                out.end();
            }
            b"/gone" => {
                self.note("waiting".into());
                poll_fn(|cx| out.poll_client_gone(cx)).await;
                self.note("gone".into());
            }
            other => panic!("no such script: {}", String::from_utf8_lossy(other)),
        }
    }

    fn notice(&self, notice: &ConnectionNotice<'_>) {
        self.note(match notice {
            ConnectionNotice::Refused { why, line, .. } => {
                format!(
                    "refused: {why}: {}",
                    String::from_utf8_lossy(line).trim_end()
                )
            }
            ConnectionNotice::BadProxyHeader { why, .. } => format!("proxy: {why}"),
            ConnectionNotice::Http2Ended { why, .. } => format!("ended: {why}"),
            ConnectionNotice::Http3Ended { why, .. } => format!("ended: {why}"),
            ConnectionNotice::HandlerPanicked { .. } => "panicked".into(),
            ConnectionNotice::NoAnswer { .. } => "no answer".into(),
            other => format!("{other:?}"),
        });
    }
}

/// A connection under test, seen from the client.
struct TestClient {
    stream: UnixStream,
    script: Arc<TestHandler>,
    life: Arc<FrontThreadConnections>,
    server: JoinHandle<()>,
}

impl TestClient {
    fn new() -> TestClient {
        TestClient::with(HttpConfig::for_tests(), None)
    }

    fn with(config: HttpConfig, proxies: Option<TrustedPeers>) -> TestClient {
        TestClient::beginning(
            config,
            ConnectionSetup {
                proxies: proxies.map(Arc::new),
                ..ConnectionSetup::default()
            },
        )
    }

    fn beginning(config: HttpConfig, beginning: ConnectionSetup) -> TestClient {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        for end in [&ours, &theirs] {
            end.set_nonblocking(true).unwrap();
        }
        let script = Arc::new(TestHandler::new());
        let life = Arc::new(FrontThreadConnections::default());
        let info = ConnectionInfo {
            peer: None,
            local: None,
            listener: "test".into(),
            tls: None,
            alternative: None,
            id: 7,
            request: 0,
        };
        let serving = serve(
            script.clone(),
            ByteStream::new(StreamSocket::new(OwnedFd::from(theirs)).unwrap()),
            Arc::new(config),
            info,
            life.enrol(None),
            beginning,
        );
        TestClient {
            stream: UnixStream::from_std(ours).unwrap(),
            script,
            life,
            server: tokio::spawn(serving),
        }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Receives everything until the end of the stream or [`SILENCE`]. Returns it without the headers `Server` and
    /// `Date`, and whether the connection is closed.
    async fn receive(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        let closed = loop {
            let read = tokio::time::timeout(SILENCE, self.stream.read_buf(&mut all));
            match read.await {
                Ok(Ok(0)) => break true,
                Ok(Ok(_)) => {}
                Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionReset => break true,
                Ok(Err(e)) => panic!("{e}"),
                Err(_) => break false,
            }
        };
        (without_own_fields(&all), closed)
    }

    /// Receives like [`TestClient::receive`], and returns text that ends in `[closed]` or `[open]`.
    async fn reply(&mut self) -> String {
        let (bytes, closed) = self.receive().await;
        let end = if closed { "[closed]" } else { "[open]" };
        String::from_utf8_lossy(&bytes).into_owned() + end
    }

    async fn ask(&mut self, bytes: impl AsRef<[u8]>) -> String {
        self.send(bytes).await;
        self.reply().await
    }

    /// Waits until the handler or the connection has reported `what`.
    async fn until_seen(&self, what: &str) {
        let seen = async {
            while !self.script.seen().iter().any(|s| s == what) {
                // A yield would not be enough: the clock moves only while no task can run.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within(Duration::from_secs(3600), seen).await;
    }
}

/// Returns the output of `what`, and fails if it is not available within `limit`.
async fn within<T>(limit: Duration, what: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, what).await {
        Ok(done) => done,
        Err(_) => panic!("not done within {limit:?}"),
    }
}

/// The number of bytes in the lines `Server` and `Date`, which every response has.
const SERVER_HEADER_BYTES: usize = 16 + 37;

fn without_own_fields(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        if !line.starts_with(b"Date: ") && line != b"Server: Howdah\r\n" {
            out.extend_from_slice(line);
        }
    }
    out
}

/// Returns the response of a new connection to `bytes`.
async fn ask(bytes: impl AsRef<[u8]>) -> String {
    TestClient::new().ask(bytes).await
}

/// Returns a plain response on a connection that is kept alive.
fn ok(body: &str) -> String {
    let n = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {n}\r\n\r\n{body}")
}
