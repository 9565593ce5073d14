//! Tests of the whole server over real sockets: listeners, threads, limits, the graceful stop, and the cost of an idle
//! connection. No test here waits for time to pass; each waits for an event.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use howdah_http::listener::{
    BindError, HttpServer, ListenAddress, ListenerConfig, ThreadHooks, bind_sockets,
};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{
    ConnectionInfo, ConnectionNotice, HttpConfig, RequestBody, RequestHandler, Responder,
    ResponseLength,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The events that the server reported. Waiting for one does not poll.
#[derive(Default)]
struct Events {
    seen: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Events {
    fn add(&self, what: String) {
        self.seen.lock().unwrap().push(what);
        self.changed.notify_all();
    }

    fn wait_for(&self, what: &str) {
        let seen = self.seen.lock().unwrap();
        let missing = |seen: &mut Vec<String>| !seen.iter().any(|s| s.starts_with(what));
        let (seen, late) = self
            .changed
            .wait_timeout_while(seen, PATIENCE, missing)
            .unwrap();
        assert!(!late.timed_out(), "{what:?} did not happen; {seen:?} did");
    }

    fn count(&self, what: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|s| s.starts_with(what)).count()
    }
}

#[derive(Default)]
struct GatedHandler {
    events: Events,
    open: AtomicBool,
    gate: tokio::sync::Notify,
}

impl GatedHandler {
    fn open_gate(&self) {
        self.open.store(true, Ordering::SeqCst);
        self.gate.notify_waiters();
    }
}

impl RequestHandler for GatedHandler {
    async fn handle<'a>(
        &'a self,
        req: &'a RequestHead,
        conn: &'a ConnectionInfo,
        _body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        if req.path() == b"/until-close" {
            out.begin(&ResponseHead::new(200), ResponseLength::Unknown);
            out.push(Bytes::from_static(b"part"));
            out.flush().await.unwrap();
            return out.abort();
        }
        if req.path() == b"/hang" {
            // This blocks the whole thread, unlike a task that waits.
            self.events.add("hanging".into());
            while !self.open.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        if req.path() == b"/wait" {
            let opened = self.gate.notified();
            self.events.add("waiting".into());
            if !self.open.load(Ordering::SeqCst) {
                opened.await;
            }
        }
        let body = format!("{} {:?} {:?}\n", conn.listener, conn.peer, conn.local);
        out.respond(&ResponseHead::new(200), body);
    }

    fn notice(&self, notice: &ConnectionNotice<'_>) {
        self.events.add(format!("{notice:?}"));
    }
}

fn start(
    listeners: Vec<ListenerConfig>,
    threads: usize,
    config: HttpConfig,
) -> (HttpServer, Arc<GatedHandler>) {
    let answers = Arc::new(GatedHandler::default());
    let hooks = ThreadHooks::named("front");
    let server = HttpServer::start(listeners, answers.clone(), threads, config, hooks).unwrap();
    (server, answers)
}

fn any_port() -> ListenAddress {
    "127.0.0.1:0".parse().unwrap()
}

fn serve(threads: usize, config: HttpConfig) -> (HttpServer, Arc<GatedHandler>, SocketAddr) {
    let listener = ListenerConfig::bind(&any_port(), threads).unwrap();
    let (server, answers) = start(vec![listener], threads, config);
    let address = server.local_addrs()[0].unwrap();
    (server, answers, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const LAST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// Reads the text of one response, up to the newline that ends each body here.
fn answer(stream: &mut impl Read) -> String {
    let mut got = Vec::new();
    while !got.ends_with(b")\n") && !got.ends_with(b"None\n") {
        let mut piece = [0; 4096];
        match stream.read(&mut piece).unwrap() {
            0 => panic!("closed after {:?}", String::from_utf8_lossy(&got)),
            n => got.extend_from_slice(&piece[..n]),
        }
    }
    String::from_utf8(got).unwrap()
}

fn to_end(stream: &mut impl Read) -> String {
    let mut got = String::new();
    stream.read_to_string(&mut got).unwrap();
    got
}

/// The environment variable that is set in the process that is to panic.
const PANIC_VARIABLE: &str = "HOWDAH_TEST_PANIC_OF_A_FRONT_THREAD";

/// If the process did not abort, the server would continue with one thread less, and the connections of that thread's
/// sockets would wait for ever.
#[test]
fn front_thread_panic_aborts_the_process_with_a_named_error() {
    if std::env::var_os(PANIC_VARIABLE).is_some() {
        let hooks = ThreadHooks {
            park: Arc::new(|| panic!("as a bug would")),
            ..ThreadHooks::named("front")
        };
        let answers = Arc::new(GatedHandler::default());
        let server =
            HttpServer::start(Vec::new(), answers, 2, HttpConfig::for_tests(), hooks).unwrap();
        server.wait();
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("front_thread_panic_aborts_the_process_with_a_named_error")
        .env(PANIC_VARIABLE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(6), "SIGABRT, but: {output:?}");
    assert!(said.contains("as a bug would"), "{said}");
    assert!(said.contains("error FrontThreadPanicked"), "{said}");
}

#[test]
fn wait_for_turns_waits_for_a_blocked_thread() {
    let (server, answers, address) = serve(2, HttpConfig::for_tests());
    let control = server.control();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(control.wait_for_turns());
    connect(address)
        .write_all(b"GET /hang HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    answers.events.wait_for("hanging");
    runtime.block_on(async {
        let mut turn = std::pin::pin!(control.wait_for_turns());
        let early = tokio::time::timeout(Duration::from_millis(50), &mut turn).await;
        assert!(early.is_err(), "the thread stands still");
        answers.open_gate();
        turn.await;
    });
    control.stop(PATIENCE);
    server.wait();
    runtime.block_on(control.wait_for_turns());
}

#[test]
fn every_thread_serves_a_port_the_kernel_chose() {
    let (server, _, address) = serve(4, HttpConfig::for_tests());
    assert_ne!(address.port(), 0);
    for _ in 0..40 {
        let mut stream = connect(address);
        let from = stream.local_addr().unwrap();
        stream.write_all(LAST).unwrap();
        let got = to_end(&mut stream);
        let expect = format!("127.0.0.1:0 Some({from}) Some({address})\n");
        assert!(got.ends_with(&expect), "{got}");
    }
    let stats = server.control().stats();
    assert_eq!((stats.accepted, stats.requests), (40, 40));
    server.control().stop(PATIENCE);
    server.wait();
}

#[test]
fn port_in_use_is_an_error_although_ports_are_shared() {
    let (_server, _, address) = serve(2, HttpConfig::for_tests());
    match bind_sockets(&ListenAddress::Tcp(address), 2) {
        Err(e @ BindError::AddressInUse(_)) => assert!(e.to_string().contains("another program")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn unix_socket_has_its_mode_and_replaces_only_a_dead_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("web.sock");
    let address = ListenAddress::Unix {
        path: path.clone(),
        mode: 0o600,
    };
    // A server that was killed leaves a socket file behind. Closing the socket is not enough to simulate this: a
    // program that another test starts holds all our descriptors until its exec.
    let killed = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rustix::net::shutdown(&killed, rustix::net::Shutdown::Both).unwrap();
    drop(killed);
    let listener = ListenerConfig::bind(&address, 2).unwrap();
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(matches!(
        ListenerConfig::bind(&address, 1),
        Err(BindError::AddressInUse(_))
    ));

    let (server, _) = start(vec![listener], 2, HttpConfig::for_tests());
    for _ in 0..8 {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(LAST).unwrap();
        let got = to_end(&mut stream);
        assert!(got.ends_with("web.sock None None\n"), "{got}");
    }
    drop(server);

    let file = folder.path().join("precious");
    std::fs::write(&file, "x").unwrap();
    let address = ListenAddress::Unix {
        path: file.clone(),
        mode: 0o600,
    };
    assert!(matches!(
        ListenerConfig::bind(&address, 1),
        Err(BindError::BadSocketPath(..))
    ));
    assert_eq!(std::fs::read(&file).unwrap(), b"x");
}

#[test]
fn listeners_are_added_and_removed_while_connections_stay_open() {
    let (server, _, first) = serve(2, HttpConfig::for_tests());
    let control = server.control();
    let mut kept = connect(first);
    kept.write_all(GET).unwrap();
    answer(&mut kept);

    let listener = ListenerConfig::bind(&any_port(), 1).unwrap();
    let second = listener.local_addr().unwrap();
    control.add_listener(listener).unwrap();
    let mut other = connect(second);
    other.write_all(LAST).unwrap();
    assert!(to_end(&mut other).contains("200 OK"));

    control.remove_listener(server.listeners()[0]);
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(first).is_ok() {
        assert!(Instant::now() < end, "still listening");
        std::thread::yield_now();
    }
    kept.write_all(LAST).unwrap();
    assert!(to_end(&mut kept).contains("200 OK"));
}

#[test]
fn stop_finishes_requests_closes_idle_connections_and_accepts_no_more() {
    let (server, answers, address) = serve(2, HttpConfig::for_tests());
    let mut idle = connect(address);
    idle.write_all(GET).unwrap();
    answer(&mut idle);
    let mut busy = connect(address);
    busy.write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    answers.events.wait_for("waiting");

    server.control().stop(PATIENCE);
    assert_eq!(to_end(&mut idle), "");
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < end, "still listening");
        std::thread::yield_now();
    }
    answers.open_gate();
    assert!(to_end(&mut busy).contains("200 OK"));
    server.wait();
}

#[test]
fn stop_closes_stuck_requests_after_its_deadline() {
    let (server, answers, address) = serve(1, HttpConfig::for_tests());
    let mut stuck = connect(address);
    stuck
        .write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    answers.events.wait_for("waiting");
    server.control().stop(Duration::from_millis(1));
    server.wait();
    assert_eq!(to_end(&mut stuck), "");
}

#[test]
fn truncated_close_delimited_response_is_reset() {
    let (_server, _, address) = serve(1, HttpConfig::for_tests());
    let mut stream = connect(address);
    stream
        .write_all(b"GET /until-close HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn refusal_during_an_upload_reaches_the_client() {
    let (_server, _, address) = serve(1, HttpConfig::for_tests());
    let mut stream = connect(address);
    let mut writer = stream.try_clone().unwrap();
    // More bytes than all buffers in between can hold: without a lingering close the client would get a reset.
    let sending = std::thread::spawn(move || {
        writer.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8, 8\r\n\r\n")?;
        for _ in 0..256 {
            writer.write_all(&[b'x'; 64 << 10])?;
        }
        writer.shutdown(Shutdown::Write)
    });
    let got = to_end(&mut stream);
    assert!(got.contains("Howdah-Error: BadContentLength"), "{got}");
    sending.join().unwrap().unwrap();
}

fn at_most(connections: u32) -> HttpConfig {
    HttpConfig {
        max_connections: Some(connections),
        ..HttpConfig::for_tests()
    }
}

/// Sends a request and reads the response.
fn asked(stream: &mut TcpStream) {
    stream.write_all(GET).unwrap();
    let got = answer(stream);
    assert!(got.contains("200 OK"), "{got}");
}

#[test]
fn new_connection_at_the_limit_closes_only_the_longest_idle_one() {
    let (server, answers, address) = serve(1, at_most(40));
    let mut idle: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(address);
            asked(&mut stream);
            stream
        })
        .collect();
    asked(&mut idle[0]);
    let mut late = connect(address);
    asked(&mut late);
    assert_eq!(answers.events.count("TooManyConnections"), 1);
    assert_eq!(
        to_end(&mut idle.remove(1)),
        "",
        "the longest idle is closed"
    );
    for stream in idle.iter_mut().chain([&mut late]) {
        asked(stream);
    }
    assert_eq!(server.control().stats().open, 40);
    assert_eq!(
        server.control().stats().accepted,
        41,
        "nobody had to come again"
    );
}

#[test]
fn connections_without_a_complete_request_are_closed_before_active_ones() {
    let (server, _, address) = serve(1, at_most(20));
    let mut visitor = connect(address);
    asked(&mut visitor);
    let mut crowd = Vec::new();
    for number in 0..100 {
        let mut silent = connect(address);
        if number % 2 == 0 {
            silent.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n").unwrap();
        }
        crowd.push(silent);
        // Between two of the visitor's requests fewer connections arrive than there are slots: at most ten, as seen by
        // the server.
        if number % 4 == 0 {
            asked(&mut visitor);
            asked(&mut connect(address));
        }
    }
    let open = server.control().stats().open;
    assert!(open <= 20, "{open}");
    for silent in &mut crowd[..80] {
        assert_eq!(to_end(silent), "", "no 408: its place is needed");
    }
}

#[test]
fn connections_with_a_refused_request_or_unread_body_make_room_at_the_limit() {
    let (_server, answers, address) = serve(1, at_most(4));
    let mut crowd = Vec::new();
    for number in 0..40 {
        let mut stream = connect(address);
        if number % 2 == 0 {
            stream.write_all(b"GET / HTTP/9.9\r\n\r\n").unwrap();
            assert!(to_end(&mut stream).contains("BadVersion"));
        } else {
            let owing = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nfew";
            stream.write_all(owing).unwrap();
            answer(&mut stream);
        }
        crowd.push(stream);
    }
    asked(&mut connect(address));
    assert!(answers.events.count("TooManyConnections") > 30);
}

#[test]
fn lowered_connection_limit_closes_the_longest_idle_connections() {
    let (server, _, address) = serve(1, at_most(20));
    let mut idle: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = connect(address);
            asked(&mut stream);
            stream
        })
        .collect();
    server.control().set_config(at_most(5));
    let mut late = connect(address);
    asked(&mut late);
    for stream in &mut idle[..16] {
        assert_eq!(to_end(stream), "");
    }
    for stream in &mut idle[16..] {
        asked(stream);
    }
    assert_eq!(server.control().stats().open, 5);
}

#[test]
fn hung_thread_misses_heartbeats_while_others_continue() {
    let (server, answers, address) = serve(2, HttpConfig::for_tests());
    let control = server.control();
    let mut number = 0;
    let mut beat_until = |what: &str, holds: &dyn Fn(u64, [u64; 2]) -> bool| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            number += 1;
            let threads = control.request_heartbeat(number);
            let [(one, first), (two, second)] = threads[..] else {
                panic!("not two threads: {threads:?}");
            };
            if one != 0 && two != 0 && one != two && holds(number, [first, second]) {
                return [first, second];
            }
            assert!(Instant::now() < deadline, "{what}: {threads:?} of {number}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    };
    beat_until("both come", &|_, beats| beats.iter().all(|n| *n > 0));
    let mut stuck = connect(address);
    write!(stuck, "GET /hang HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    answers.events.wait_for("hanging");
    let ahead = |_, beats: [u64; 2]| beats[0].abs_diff(beats[1]) > 5;
    let before = beat_until("one falls behind", &ahead);
    let behind = usize::from(before[0] > before[1]);
    let after = beat_until("the other goes on", &|_, beats| {
        beats[1 - behind] > before[1 - behind] + 5
    });
    assert_eq!(after[behind], before[behind], "it has hung all the time");
    answers.open_gate();
    beat_until("it catches up", &|_, beats| {
        beats[behind] > after[1 - behind]
    });
    server.control().stop(PATIENCE);
    drop(stuck);
    server.wait();
}
