//! The cost of connections, and the behaviour when descriptors run out. This is a test binary of its own because it
//! measures the memory of the process and changes its limits, and a single test because several would disturb each
//! other.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use howdah_http::listener::{HttpServer, ListenerConfig, ThreadHooks, raise_descriptor_limit};
use howdah_http::message::{RequestHead, ResponseHead};
use howdah_http::{
    ConnectionInfo, ConnectionNotice, HttpConfig, RequestBody, RequestHandler, Responder,
};
use rustix::process::{Resource, getrlimit, setrlimit};

#[derive(Default)]
struct HelloHandler {
    failures: Mutex<usize>,
    failed: Condvar,
}

impl RequestHandler for HelloHandler {
    async fn handle<'a>(
        &'a self,
        _req: &'a RequestHead,
        _conn: &'a ConnectionInfo,
        _body: &'a mut RequestBody,
        out: &'a mut Responder,
    ) {
        out.respond(&ResponseHead::new(200), "hello");
    }

    fn notice(&self, notice: &ConnectionNotice<'_>) {
        if let ConnectionNotice::AcceptFailed { .. } = notice {
            *self.failures.lock().unwrap() += 1;
            self.failed.notify_all();
        }
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn ask(stream: &mut TcpStream) {
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut got = Vec::new();
    while !got.ends_with(b"hello") {
        let mut piece = [0; 1024];
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "closed after {}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&piece[..n]);
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

#[test]
fn idle_connections_cost_little_and_running_out_of_descriptors_is_survived() {
    // Both ends of each connection are in this process. Root may raise the limit; otherwise the test uses fewer
    // connections.
    let mut limit = getrlimit(Resource::Nofile);
    limit.maximum = limit.maximum.map(|most| most.max(24_000));
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let descriptors = raise_descriptor_limit();
    let count = 10_000.min((descriptors as usize - 200) / 2);

    let hello = Arc::new(HelloHandler::default());
    let listener = ListenerConfig::bind(&"127.0.0.1:0".parse().unwrap(), 2).unwrap();
    let config = HttpConfig {
        max_connections: Some(1 << 20),
        ..HttpConfig::for_tests()
    };
    let hooks = ThreadHooks::named("front");
    let server = HttpServer::start(vec![listener], hello.clone(), 2, config, hooks).unwrap();
    let address = server.local_addrs()[0].unwrap();
    for _ in 0..100 {
        ask(&mut connect(address));
    }

    let before = resident_kib();
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = connect(address);
        ask(&mut stream);
        idle.push(stream);
    }
    let each = (resident_kib() - before) * 1024 / count as u64;
    println!("{count} idle connections: {each} bytes each");
    assert!(each < 16 << 10, "{each} bytes for an idle connection");
    assert_eq!(server.control().stats().open, count as u64);
    // The connections still work.
    ask(&mut idle[0]);
    ask(&mut idle[count - 1]);

    // Now the server can open no more descriptors: clients wait, no thread spins, and the clients are served when
    // descriptors are free again.
    let mut waiting: Vec<TcpStream> = (0..4).map(|_| connect(address)).collect();
    for stream in &mut waiting {
        ask(stream);
    }
    let mut low = getrlimit(Resource::Nofile);
    let normal = low;
    // Descriptors are numbered densely, so the next ones would have about this number.
    let next = std::fs::File::open("/dev/null").unwrap();
    let lowest_free = u64::from(std::os::fd::AsRawFd::as_raw_fd(&next).unsigned_abs());
    drop(next);
    // There is only enough room for the client's end.
    low.current = Some(lowest_free + 1);
    setrlimit(Resource::Nofile, low).unwrap();
    let mut late = connect(address);
    late.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let failures = hello.failures.lock().unwrap();
    let (failures, late_notice) = hello
        .failed
        .wait_timeout_while(failures, Duration::from_secs(60), |n| *n == 0)
        .unwrap();
    assert!(!late_notice.timed_out(), "no AcceptFailed");
    assert!(*failures < 10, "{failures} notices at once: it spins");
    drop(failures);
    ask(&mut idle[1]);
    setrlimit(Resource::Nofile, normal).unwrap();
    let mut got = [0; 15];
    late.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"HTTP/1.1 200 OK");

    drop(idle);
    server.control().stop(Duration::from_secs(60));
    server.wait();
}
