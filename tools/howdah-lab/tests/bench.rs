//! Tests `howdah bench` on the command line: ab's options, exit codes, files, an interruption. The tests of
//! `howdah-bench` cover what it counts; here a server that responds correctly is enough.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A server that responds to every request on a kept-alive connection with `ok` and a number; it ends with the test's
/// process.
struct CountingServer {
    address: SocketAddr,
    served: Arc<AtomicU64>,
    last: Arc<std::sync::Mutex<String>>,
}

impl CountingServer {
    fn start() -> CountingServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = CountingServer {
            address: listener.local_addr().unwrap(),
            served: Arc::default(),
            last: Arc::default(),
        };
        let (served, last) = (server.served.clone(), server.last.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (served, last) = (served.clone(), last.clone());
                std::thread::spawn(move || answer(stream.unwrap(), &served, &last));
            }
        });
        server
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Serves a connection until the client closes it; a body is read by its Content-Length.
fn answer(mut stream: TcpStream, served: &AtomicU64, last: &std::sync::Mutex<String>) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let Some(end) = read.windows(4).position(|w| w == b"\r\n\r\n") else {
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
                _ => return,
            }
            continue;
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .map_or(0, |n| n.parse().unwrap());
        while read.len() < end + 4 + length {
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        }
        let body = String::from_utf8_lossy(&read[end + 4..end + 4 + length]).into_owned();
        read.drain(..end + 4 + length);
        *last.lock().unwrap() = format!("{head}\n\n{body}");
        served.fetch_add(1, Ordering::SeqCst);
        let text = "HTTP/1.1 200 OK\r\nServer: plain\r\nContent-Length: 11\r\n\r\n{\"ok\":true}";
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_howdah-bench"))
        .arg("bench")
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn ab_options_give_abs_report() {
    let server = CountingServer::start();
    let output = bench(&["-kq", "-n3000", "-c", "10", &server.url()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for field in [
        "Server Software:        plain\n",
        "Document Length:        11 bytes\n",
        "Concurrency Level:      10\n",
        "Complete requests:      3000\n",
        "Failed requests:        0\n",
        "Keep-Alive requests:    3000\n",
        "HTML transferred:       33000 bytes\n",
        "Requests per second:    ",
        " 100%  ",
    ] {
        assert!(text.contains(field), "no {field:?} in {text}");
    }
    assert_eq!(server.served.load(Ordering::SeqCst), 3000);
    assert_eq!(stderr(&output), "", "-q is quiet");
}

#[test]
fn request_options_are_sent_as_typed() {
    let server = CountingServer::start();
    let dir = tempfile::tempdir().unwrap();
    let body = dir.path().join("body");
    std::fs::write(&body, "a=1").unwrap();
    let output = bench(&[
        "-q",
        "-n",
        "1",
        "-p",
        body.to_str().unwrap(),
        "-T",
        "application/x-www-form-urlencoded",
        "-C",
        "session=1",
        "-C",
        "lang=de",
        "-A",
        "user:secret",
        "-H",
        "Accept-Encoding: gzip",
        "-H",
        "User-Agent: me",
        &server.url(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = server.last.lock().unwrap().clone();
    for part in [
        "POST / HTTP/1.1",
        "Content-Type: application/x-www-form-urlencoded",
        "Cookie: session=1; lang=de",
        "Authorization: Basic dXNlcjpzZWNyZXQ=",
        "Accept-Encoding: gzip",
        "User-Agent: me",
        "Content-Length: 3",
        "\n\na=1",
    ] {
        assert!(request.contains(part), "no {part:?} in {request}");
    }
    for (flags, line) in [
        (&["-i"][..], "HEAD / HTTP/1.1"),
        (&["-m", "DELETE"], "DELETE / HTTP/1.1"),
        (&["-u", body.to_str().unwrap()], "PUT / HTTP/1.1"),
        (&["--http1.0"], "GET / HTTP/1.0"),
    ] {
        let url = server.url();
        let arguments: Vec<&str> = ["-q", "-n", "1", "-s", "1", "--expect-status=2xx"]
            .iter()
            .chain(flags)
            .copied()
            .chain([url.as_str()])
            .collect();
        bench(&arguments);
        let request = server.last.lock().unwrap().clone();
        assert!(request.starts_with(line), "{flags:?}: {request}");
    }
}

#[track_caller]
fn assert_refused(arguments: &[&str], code: i32, why: &str) {
    let output = bench(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.contains(why), "{arguments:?}: no {why:?} in {text}");
    assert_eq!(stdout(&output), "", "{arguments:?}");
}

#[test]
fn impossible_options_are_refused_before_anything_is_sent() {
    let server = CountingServer::start();
    let url = server.url();
    let url = url.as_str();
    assert_refused(&[], 2, "<URL>");
    assert_refused(&["ftp://a.example/"], 2, "BadUrl");
    assert_refused(
        &["-n", "5", "-c", "10", url],
        2,
        "10 clients (-c) cannot share 5 requests (-n)",
    );
    assert_refused(&["-n", "0", url], 2, "expected at least one request");
    assert_refused(&["-n", "x", url], 2, "invalid value 'x'");
    assert_refused(&["-t", "soon", url], 2, "-t soon: expected a time");
    assert_refused(&["--rate", "0", url], 2, "a rate of 0");
    assert_refused(
        &["-p", "/nonexistent/body", url],
        2,
        "MissingFile: cannot read /nonexistent/body",
    );
    assert_refused(
        &["-T", "text/html", url],
        2,
        "has no body: give a body with -p or -u",
    );
    assert_refused(&["-H", "novalue", url], 2, "expected a header, such as");
    assert_refused(&["-A", "nobody", url], 2, "expected user:password");
    assert_refused(&["--expect-match", "(", url], 2, "BadCheck");
    assert_refused(
        &["--expect-status", "99", url],
        2,
        "is not a set of statuses",
    );
    assert_refused(
        &["--sweep", "10,x", url],
        2,
        "--sweep 10,x: expected numbers of clients",
    );
    assert_refused(&["--find-max", url], 2, "--slo");
    assert_refused(&["--slo", "fast", url], 2, "`fast` is not an objective");
    assert_refused(&["--margin", "0", "--vs", url, url], 2, "--margin 0");
    assert_refused(&["-g", "/nonexistent/g", url], 1, "writing /nonexistent/g");
    assert_refused(
        &["-e", "x.csv", "--vs", url, url],
        2,
        "-e works only for a single run",
    );
    assert_refused(&["-b", "0", url], 2, "0 is not in 1..");
    assert_refused(&["-B", "here", url], 2, "invalid IP address");
    assert_refused(&["-B", "192.0.2.1", url], 2, "cannot send from");
    assert_refused(&["-X", "http://proxy/", url], 2, "expected host:port");
    assert_refused(
        &["-X", "proxy:80", "https://a.example/"],
        2,
        "measure the server directly",
    );
    assert_refused(&["-P", "a:b", url], 2, "-X");
    assert_refused(
        &["-X", "a:80", "-P", "secret", url],
        2,
        "-P: expected user:password",
    );
    assert_refused(&["-f", "TLS1.2", url], 2, "no URL begins with https://");
    assert_refused(&["--http3", url], 2, "is not an https:// URL");
    assert_refused(
        &["--log", "/nonexistent/access.log", url],
        2,
        "MissingFile: cannot read /nonexistent/access.log",
    );
    assert_refused(&["--speed", "2", url], 2, "--log");
    assert_refused(
        &["--log", "/dev/null", "--speed", "11x", url],
        2,
        "--speed 11x: expected 1",
    );
    assert_refused(
        &["--log", "/dev/null", "-c", "2", url],
        2,
        "cannot be used with",
    );
    assert_refused(&["--log", "/dev/null", url], 2, "0 lines were read");
    assert_refused(&["--streams", "2", url], 2, "--http2 or --http3");
    assert_refused(&["--http3", "--http2", url], 2, "cannot be used with");
    for (letter, value, why) in [
        ("-f", "TLS1.1", "RFC 8996"),
        ("-f", "TLS9", "expected TLS1.2, TLS1.3 or ALL"),
        ("-Z", "RC4-MD5", "the cipher `RC4-MD5` is not one of"),
        (
            "-E",
            "/nonexistent/me.pem",
            "MissingFile: cannot read /nonexistent/me.pem",
        ),
    ] {
        assert_refused(&[letter, value, "https://127.0.0.1:9/"], 2, why);
    }
    assert_refused(&["-x", "border=1", url], 2, "--html FILE");
    assert_refused(&["-w", url], 2, "--html FILE");
    assert_eq!(server.served.load(Ordering::SeqCst), 0);
}

#[test]
fn proxy_gets_the_absolute_url() {
    let proxy = CountingServer::start();
    let at = proxy.address.to_string();
    let url = "http://a.example:8080/x?y=1";
    let output = bench(&[
        "-q",
        "-n",
        "2",
        "-X",
        &at,
        "-P",
        "me:secret",
        "--json",
        "-",
        url,
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let request = proxy.last.lock().unwrap().clone();
    for part in [
        "GET http://a.example:8080/x?y=1 HTTP/1.1",
        "Host: a.example:8080",
        "Proxy-Authorization: Basic bWU6c2VjcmV0",
    ] {
        assert!(request.contains(part), "no {part:?} in {request}");
    }
    let text = stdout(&output);
    assert!(
        !text.contains("secret") && !text.contains("bWU6c2VjcmV0"),
        "{text}"
    );
}

#[test]
fn verbosity_shows_the_exchange() {
    let server = CountingServer::start();
    let output = bench(&["-q", "-v", "3", "-n", "2", &server.url()]);
    assert_eq!(stderr(&output), "response 1: 200\nresponse 2: 200\n");
    let output = bench(&["-q", "-v4", "-n1", "-H", "User-Agent: me", &server.url()]);
    let address = server.address;
    assert_eq!(
        stderr(&output),
        format!(
            "request 1\n> GET / HTTP/1.1\n> Host: {address}\n> Accept: */*\n> User-Agent: me\n\
             response 1\n< HTTP/1.1 200 OK\n< Server: plain\n< Content-Length: 11\n"
        )
    );
    assert!(
        stdout(&output).contains("-v 3, -v 4"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn unreachable_server_is_exit_code_6() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    assert_refused(&["-q", "-n", "10", &url], 6, "Unreachable");
    assert_refused(&["-q", "-n", "10", "http://nowhere.invalid/"], 6, "Dns");
}

#[test]
fn report_files_are_written_and_saved_runs_reported_alike() {
    let server = CountingServer::start();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let output = bench(&[
        "-q",
        "-n",
        "500",
        "-c",
        "5",
        "--no-ceiling",
        "--json",
        &at("a.json"),
        "--html",
        &at("a.html"),
        "-g",
        &at("a.tsv"),
        "-e",
        &at("e.csv"),
        &server.url(),
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(read("a.tsv").lines().count(), 501);
    assert_eq!(read("e.csv").lines().count(), 102);
    assert!(read("a.html").starts_with("<!DOCTYPE html>"));
    let json: Value = serde_json::from_str(&read("a.json")).unwrap();
    assert_eq!(json["kind"], "run");
    assert_eq!(json["outcomes"]["Good"]["count"], 500);

    let again = bench(&["report", &at("a.json")]);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert_eq!(stdout(&again), stdout(&output));

    let compared = bench(&["report", &at("a.json"), &at("a.json")]);
    assert!(
        stdout(&compared).contains("were not measured in turn"),
        "{}",
        stdout(&compared)
    );
    bench(&[
        "-q",
        "-n",
        "500",
        "-c",
        "4",
        "--json",
        &at("b.json"),
        &server.url(),
    ]);
    assert_refused(
        &["report", &at("a.json"), &at("b.json")],
        2,
        "are not comparable: arrivals",
    );
    std::fs::write(at("c.json"), "{\"kind\":\"run\"}").unwrap();
    assert_refused(
        &["report", &at("c.json")],
        2,
        "not a saved run of howdah bench",
    );
    assert_refused(&["report", &at("none.json")], 2, "MissingFile");
}

#[test]
fn json_is_alone_on_standard_output() {
    let server = CountingServer::start();
    let output = bench(&["-n", "50", "--json", "-", &server.url()]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["outcomes"]["Good"]["count"], 50);
    assert!(stderr(&output).contains("50 good responses, 0 errors in "));
}

#[test]
fn slo_violation_is_exit_code_1() {
    let server = CountingServer::start();
    let broken = bench(&["-q", "-n", "200", "--slo", "p50<1us", &server.url()]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(
        stderr(&broken).contains("did not meet --slo: "),
        "{}",
        stderr(&broken)
    );
    let held = bench(&[
        "-q",
        "-n",
        "200",
        "--slo",
        "max<20s,errors<1%",
        &server.url(),
    ]);
    assert_eq!(held.status.code(), Some(0), "{}", stderr(&held));
}

#[test]
fn failed_body_check_is_an_error() {
    let server = CountingServer::start();
    let output = bench(&[
        "-q",
        "-n",
        "20",
        "--expect-json",
        "/ok=true",
        "--expect-body",
        "ok",
        &server.url(),
    ]);
    assert!(
        stdout(&output).contains("Failed requests:        0\n"),
        "{}",
        stdout(&output)
    );
    let output = bench(&["-q", "-n", "20", "--expect-not", "true", &server.url()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stdout(&output).contains("wrong body"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn vs_compares_two_servers_in_turns() {
    let (a, b) = (CountingServer::start(), CountingServer::start());
    let output = bench(&[
        "-q",
        "-n",
        "100",
        "--pairs",
        "6",
        "--no-ceiling",
        &a.url(),
        "--vs",
        &b.url(),
        "--json",
        "-",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["kind"], "comparison");
    assert_eq!(json["windows"].as_array().unwrap().len(), 18);
    assert_eq!(b.served.load(Ordering::SeqCst), 600);
    // The base is also its own control.
    assert_eq!(a.served.load(Ordering::SeqCst), 1200);
}

#[test]
fn ctrl_c_prints_the_results_so_far() {
    let server = CountingServer::start();
    let child = Command::new(env!("CARGO_BIN_EXE_howdah-bench"))
        .args(["bench", "-t", "600", "-c", "2", "-q", &server.url()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while server.served.load(Ordering::SeqCst) < 100 {
        assert!(Instant::now() < deadline, "nothing was sent");
        std::thread::yield_now();
    }
    let pid = i32::try_from(child.id()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.starts_with("The run was interrupted after "), "{text}");
    assert!(text.contains("Requests per second:"), "{text}");
}

#[test]
fn version_is_printed_as_ab_does() {
    let output = bench(&["-V"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains(env!("CARGO_PKG_VERSION")));
}
