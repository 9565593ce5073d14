//! HTTP/3 through the whole program: the master's UDP sockets, the front's endpoints, and PHP; reloads, a stop, and the
//! death of the front. Most of HTTP/3 is tested in howdah-server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http::Response;
use howdah_tests::http2::Http2Request;
use howdah_tests::http3::Http3TestClient;
use howdah_tests::pki::Pki;
use howdah_tests::same_answers::same_as_over_http1;
use howdah_tests::tls_tunnel::{TlsTunnel, client_config};
use rustix::process::Signal;

const SCRIPT: &str = "<?php header('Content-Type: application/json');
    $_SERVER['BODY'] = strlen(file_get_contents('php://input')); echo json_encode($_SERVER);";

#[track_caller]
fn get(client: &mut Http3TestClient, path: &str) -> Response {
    client.ask(&Http2Request::get(path)).expect("a response")
}

#[test]
fn site_is_served_over_http3_through_a_reload_and_again_after_the_fronts_death() {
    let large: Vec<u8> = (0..5_000_000u32).map(|n| n as u8).collect();
    let builder = Fixture::named("http3")
        .script("server.php", SCRIPT)
        .file("large.bin", &large)
        .argument("--listen", "127.0.0.1:0 tls http3");
    let pki = Pki::new(builder.scratch().path());
    pki.sign("site", &["localhost"]);
    let fixture = builder.site(&Pki::site("site")).start();
    let address = fixture.tls_address();
    let told = pki.get(address, "localhost", "/server.php", &["-i"]);
    let told = told.to_ascii_lowercase();
    let alternative = format!("alt-svc: h3=\":{}\"; ma=86400", address.port());
    assert!(told.contains(&alternative), "{told}");

    let mut client = fixture.http3();
    let upload =
        Http2Request::new("POST", "localhost", "/server.php?a=1").body(&vec![b'x'; 3_000_000]);
    let server = client.ask(&upload).unwrap().json();
    for (name, value) in [
        ("SERVER_PROTOCOL", "HTTP/3.0"),
        ("HTTPS", "on"),
        ("SSL_PROTOCOL", "TLSv1.3"),
        ("SSL_CIPHER", "TLS_AES_128_GCM_SHA256"),
        ("REQUEST_METHOD", "POST"),
        ("QUERY_STRING", "a=1"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("SERVER_PORT", &address.port().to_string()),
    ] {
        assert_eq!(server[name], value, "{name}");
    }
    assert_eq!(server["BODY"], 3_000_000);
    assert!(get(&mut client, "/large.bin").body == large);
    assert_eq!(get(&mut client, "/none").status(), 404);
    let longer = Http2Request::new("POST", "localhost", "/server.php")
        .header("content-length", b"3")
        .body(b"hello");
    let refused = client.ask(&longer).expect("a response");
    assert_eq!(refused.header("Howdah-Error"), Some("BadContentLength"));

    fixture.reload();
    assert_eq!(get(&mut client, "/server.php").status(), 200);
    assert!(client.connection().close_reason().is_none());
    fixture.wait("the access log to contain the request", |f| {
        let lines = f.access_log();
        lines
            .last()
            .is_some_and(|l| l.contains("GET /server.php HTTP/3.0"))
    });

    let front = fixture.front();
    signal(front, Signal::KILL);
    fixture.wait("another front to serve", |f| {
        f.try_front().is_some_and(|new| new != front) && f.control(&["status"]).status.success()
    });
    // The new front does not know the connection, and tells the client so.
    assert!(client.ask(&Http2Request::get("/server.php")).is_err());
    let why = client.within(client.connection().closed()).unwrap();
    assert_eq!(why, quinn::ConnectionError::Reset);
    assert_eq!(get(&mut fixture.http3(), "/server.php").status(), 200);
}

const LONG_SCRIPT: &str = "<?php for ($i = 0; $i < 50; $i++) echo str_repeat('x', 10000);";

#[test]
fn no_request_fails_while_the_server_reloads_and_clients_move() {
    let fixture = Fixture::named("http3-reload")
        .http3()
        .file("a.txt", "a")
        .script("long.php", LONG_SCRIPT)
        .start();
    let stop = Arc::new(AtomicBool::new(false));
    let visit = |moves: bool| {
        let stop = stop.clone();
        let mut client = fixture.http3();
        std::thread::spawn(move || {
            let mut visits = 0;
            while !stop.load(Ordering::Relaxed) {
                let asked = ["/hello.php", "/a.txt", "/hello.php", "/long.php"]
                    .map(|path| client.send(&Http2Request::get(path)).unwrap());
                if moves {
                    client.move_elsewhere();
                }
                for asked in asked {
                    assert_eq!(client.read(asked).unwrap().status(), 200);
                    visits += 1;
                }
            }
            visits
        })
    };
    let visitors = [visit(false), visit(false), visit(true)];
    for _ in 0..20 {
        fixture.reload();
    }
    stop.store(true, Ordering::Relaxed);
    for visitor in visitors {
        assert!(visitor.join().expect("no visit failed") > 0);
    }
    fixture.still_serves();
}

#[test]
fn stop_completes_what_has_begun() {
    let mut fixture = Fixture::named("http3-stop").http3().start();
    let gate = fixture.gate("stop");
    let mut client = fixture.http3();
    assert_eq!(get(&mut client, "/hello.php").text(), HELLO);
    let waiting = client
        .send(&Http2Request::get("/hold.php?gate=stop"))
        .unwrap();
    let standing = gate.wait();
    signal(fixture.master(), Signal::QUIT);
    fixture.wait("the listener to be closed", |fixture| {
        std::net::TcpStream::connect(fixture.address()).is_err()
    });
    standing.open();
    assert_eq!(client.read(waiting).unwrap().text(), "released");
    let ended = fixture.howdah.process.wait_exit(Duration::from_secs(20));
    assert!(ended.unwrap().success());
}

#[test]
fn request_that_its_client_cancels_frees_its_child() {
    let fixture = Fixture::named("http3-cancel").http3().children(1).start();
    let gate = fixture.gate("cancel");
    let mut client = fixture.http3();
    let waiting = client
        .send(&Http2Request::get("/hold.php?gate=cancel"))
        .unwrap();
    let standing = gate.wait();
    waiting.cancel();
    fixture.wait("the access log to contain the request", |f| {
        f.access_log()
            .iter()
            .any(|line| line.contains("/hold.php") && line.contains(" 499 "))
    });
    standing.open();
    assert_eq!(get(&mut client, "/hello.php").text(), HELLO);
}

#[test]
fn stored_pages_and_files_are_the_same_over_both() {
    let page = "<?php header('Cache-Control: public, max-age=600'); header('ETag: \"v1\"'); \
        header('Content-Type: text/html'); echo str_repeat('<p>page</p>', 3000);";
    let fixture = Fixture::named("http3-stored")
        .site("cache = \"rfc\"")
        .http3()
        .script("page.php", page)
        .file("a.txt", "0123456789")
        .file("big.bin", vec![7; 300_000])
        .start();
    let mut client = fixture.http3();
    let stored = |page: &Response| page.header("x-cache") == Some("HIT");
    fixture.wait("the page to be stored", |_| {
        stored(&get(&mut client, "/page.php"))
    });
    let config = client_config(&fixture.path("ca.pem"), b"http/1.1");
    let tunnel = TlsTunnel::start(config, fixture.tls_address()).unwrap();
    same_as_over_http1(tunnel.address(), &["alt-svc"], |request| {
        client.ask(request).unwrap()
    });
}
