//! Drives the whole front over socket pairs. The fuzzer's bytes determine the requests, and how they are cut and
//! delayed. Each response is compared with a model: responses arrive in the order of their requests, each is the one
//! that its request must get, and none contains a byte of another connection's response. One host has the page cache
//! enabled, with pages that a cookie makes personal. An `.htaccess` file denies access to some files. One host has
//! rules that deny routes of its front controller in every spelling that reaches them. Scripts name files by
//! `X-Accel-Redirect`. Clients disconnect and half-close.
//!
//! - [`model`]: the requests, and the expected response of each; [`site`]: the sites and their files.
//! - [`script`]: the scripts of the site; [`echo`]: the executor that runs them in place of PHP.
//! - [`reader`]: the client's side.
//!
//! The crate `howdah-simulation` uses the model, the sites, the scripts and the reader as well.

mod echo;
mod model;
mod reader;
mod script;
mod site;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use howdah_executor::Executor;
use howdah_http::{HttpConfig, serve_connected};
use howdah_log::log::{ErrorLog, ErrorStyle, LogSink, LogTarget};
use howdah_proto::level::LogLevel;
use howdah_server::request::Front;
use howdah_server::server_config::{FrontSettings, OpenResources, ServerConfig};
use howdah_site::site::{Site, Sites};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use echo::Echo;
use model::{CLOSED, Dialogue, Expected, Numbers, dialogue};
use reader::Reader;
use site::{site_configs, write_files};

/// The longest wait for anything. Reaching it is a finding (a hang).
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the front and its sites, which all inputs of a process share.
fn front() -> Arc<Front> {
    static FRONT: OnceLock<Arc<Front>> = OnceLock::new();
    FRONT
        .get_or_init(|| {
            let root = std::env::temp_dir().join(format!("howdah-fuzz-{}", std::process::id()));
            write_files(&root).expect("the temporary directory can be written");
            let executor: Arc<dyn Executor> = Arc::new(Echo);
            let sites = site_configs(&root).into_iter().enumerate();
            let sites = sites
                .map(|(n, site)| Arc::new(Site::new(site, n as u32).expect("a site")))
                .collect();
            let sites = Sites::new(sites, Vec::new()).expect("sites");
            let pools = HashMap::from([("www".to_owned(), executor)]);
            let settings = FrontSettings {
                cache_memory: 2 << 20,
                ..FrontSettings::for_tests()
            };
            let (resources, process) = (OpenResources::default(), Arc::default());
            let config = ServerConfig::new(settings, resources, process, sites, &pools)
                .expect("a configuration");
            let sink = LogSink::start("error", LogTarget::File("/dev/null".into()), Duration::ZERO)
                .expect("a log");
            let log = Arc::new(ErrorLog::new(sink, ErrorStyle::File, LogLevel::Critical));
            Arc::new(Front::new(Arc::new(config), log))
        })
        .clone()
}

/// Runs up to three connections at once and checks their responses.
pub fn whole_front(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
    }
    let mut numbers = Numbers(data);
    let dialogues: Vec<Dialogue> = (0..1 + numbers.byte() % 3)
        .map(|_| dialogue(&mut numbers, next_secret()))
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

/// Compares each complete response with the model. Returns the bytes after them, and their number.
fn answers<'a>(received: &'a [u8], expected: &[Expected]) -> (&'a [u8], usize) {
    let mut reader = Reader::new(received);
    for (n, expected) in expected.iter().enumerate() {
        let before = reader.rest();
        match reader.response(expected.is_head_only()) {
            Some(response) => response.assert_is(expected),
            None => return (before, n),
        }
    }
    (reader.rest(), expected.len())
}

/// Returns a secret that no other connection of this process has.
fn next_secret() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0x5eed_0000_0000);
    let number = NEXT.fetch_add(0x9e37_79b9, Ordering::Relaxed);
    format!("{:016x}", number.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

/// Runs the dialogue of one connection, checks it, and returns every byte received.
async fn talk(dialogue: Dialogue, rhythm: Vec<usize>) -> Vec<u8> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
    for end in [&ours, &theirs] {
        end.set_nonblocking(true).expect("a non-blocking socket");
    }
    let server = tokio::spawn(serve_connected(
        front(),
        OwnedFd::from(theirs),
        Arc::new(HttpConfig::for_tests()),
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
        // After this many small pieces, the rest is sent in one piece.
        let beat = if writes > 300 { beat | 7 } else { beat };
        let cut = [1, 2, 7, 100, 1460, 20_000, 70_000, usize::MAX][beat & 7].min(left.len());
        match stream.try_write(&left[..cut]) {
            Ok(n) => left = &left[n..],
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                // The server may stop reading until its responses are received.
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
        // After this, the client closes the connection, so the server does not wait for an unfinished request.
        drop(
            tokio::time::timeout(
                Duration::from_millis(1),
                read_all(&mut stream, &mut received),
            )
            .await,
        );
    }
    while is_complete && !dialogue.has_junk && !is_closed {
        let done = answers(&received, &dialogue.expected).1 == dialogue.expected.len();
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
    let (rest, answered) = answers(&received, &dialogue.expected);
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
