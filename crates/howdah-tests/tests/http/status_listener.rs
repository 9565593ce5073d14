//! `[status] listen`: probes, status and metrics at an address of their own, whatever happens to the sites.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use howdah_tests::fixture::{Builder, Fixture, HELLO};
use howdah_tests::gate::Gate;
use howdah_tests::http::{Response, exchange, get};
use howdah_tests::rig::free_address;
use rustix::process::Signal;

/// Builds a site with a status listener at this address.
fn listening(name: &str, address: SocketAddr, more: &str) -> Builder {
    let config = format!("[status]\nlisten = \"{address}\"\n{more}");
    Fixture::named(name).config(&config)
}

#[track_caller]
fn check(address: SocketAddr, path: &str, status: u16, words: &str) {
    let response = get(address, path);
    assert_eq!(response.status(), status, "{path}: {}", response.text());
    assert!(
        response.text().contains(words),
        "{path}: {}",
        response.text()
    );
}

fn request(address: SocketAddr, lines: &str) -> Response {
    let request = format!("{lines}Connection: close\r\n\r\n");
    exchange(address, request.as_bytes()).expect("a response")
}

/// Waits until the address accepts no more connections. A front thread may still have to close the socket.
fn wait_until_closed(fixture: &Fixture, address: SocketAddr) {
    fixture.wait("the status listener to be closed", |_| {
        TcpStream::connect(address).is_err()
    });
}

#[test]
fn probes_report_the_state_from_the_start_to_the_last_request() {
    let status = free_address();
    let builder = listening("probes", status, "").script(
        "preload.php",
        // Does the same as gates.php, which cannot be preloaded: its function would then already be defined when a
        // script includes it.
        "<?php (function ($gate) {
            file_put_contents(\"$gate.pid\", getmypid());
            fgets(fopen($gate, 'r'));
        })('SCRATCH/gates/preload');",
    );
    let gates = builder.scratch().join("gates");
    let starting = Gate::new(&gates, "preload");
    let preload = builder.scratch().join("site/preload.php");
    let builder = builder
        .ini("opcache.preload", &preload.display().to_string())
        .ini("opcache.preload_user", "root");
    let mut fixture = std::thread::scope(|scope| {
        let fixture = scope.spawn(|| builder.start());
        let standing = starting.wait();
        check(status, "/livez", 200, "alive");
        check(status, "/readyz", 503, "Starting: PHP is being started");
        check(status, "/status", 503, "Starting");
        check(status, "/metrics", 503, "Starting");
        standing.open();
        fixture.join().expect("a server")
    });
    fixture.wait_for_log(&[&format!("howdah: status on http://{status}")]);
    check(status, "/livez", 200, "alive");
    check(status, "/readyz", 200, "ready");
    check(status, "/status", 200, "pool www: Ready");
    let gate = fixture.gate("last");
    let last = fixture.start_get("/hold.php?gate=last");
    let standing = gate.wait();
    fixture.howdah.process.signal(Signal::QUIT);
    fixture.wait("the sites to refuse new connections", |f| {
        TcpStream::connect(f.address()).is_err()
    });
    check(status, "/readyz", 503, "Stopping");
    check(status, "/livez", 200, "alive");
    check(status, "/status", 200, "/hold.php");
    check(status, "/metrics", 200, "howdah_requests_active 1");
    standing.open();
    assert_eq!(last.answer().text(), "released");
    let ended = fixture
        .howdah
        .process
        .wait_exit(std::time::Duration::from_secs(30));
    assert!(ended.expect("the server exits").success());
}

#[test]
fn status_is_served_while_all_connections_of_the_sites_are_taken() {
    let status = free_address();
    let fixture = listening("full", status, "[limits]\nconnections = 2\n").start();
    // The fixture has opened a connection to check whether the server listens. The test waits until that connection is
    // no longer counted.
    let connections = |count: &str| {
        let metrics = get(status, "/metrics").text();
        let line = format!("howdah_connections {count}");
        metrics.lines().any(|each| each == line)
    };
    fixture.wait("the connections to be closed", |_| connections("0"));
    let gates = [fixture.gate("a"), fixture.gate("b")];
    let held = ["a", "b"].map(|gate| fixture.start_get(&format!("/hold.php?gate={gate}")));
    let standing = gates.map(Gate::wait);
    let third = fixture.start_get("/hello.php");
    fixture.wait_for_log(&["TooManyConnections"]);
    check(status, "/livez", 200, "alive");
    check(status, "/readyz", 200, "ready");
    // While the server looks for a connection that the third one can replace, it also counts the third one.
    fixture.wait("the third connection not to be counted", |_| {
        connections("2")
    });
    fixture.wait(
        "the status listener to have only our own connection",
        |_| {
            let json = get(status, "/status?json").json();
            json["status_listener"]["connections"] == 1
        },
    );
    standing.into_iter().for_each(|gate| gate.open());
    for response in held {
        assert_eq!(response.answer().text(), "released");
    }
    assert_eq!(third.answer().text(), HELLO);
}

#[test]
fn reload_moves_the_status_listener_or_leaves_it_alone() {
    let (first, second) = (free_address(), free_address());
    let fixture = listening("moves", first, "").start();
    let config = fixture.howdah.directory().join("howdah.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    check(first, "/readyz", 200, "ready");
    fixture.reload();
    check(first, "/status", 200, "1 reload\n");
    let moved = text.replace(&first.to_string(), &second.to_string());
    std::fs::write(&config, &moved).unwrap();
    fixture.reload();
    check(second, "/status", 200, "2 reloads");
    wait_until_closed(&fixture, first);
    std::fs::write(&config, "").unwrap();
    fixture.reload();
    wait_until_closed(&fixture, second);
    std::fs::write(&config, &text).unwrap();
    fixture.reload();
    check(first, "/status", 200, "4 reloads");
    // The front that is started after a crash also listens there.
    let front = fixture.front();
    howdah_tests::fixture::signal(front, Signal::KILL);
    fixture.wait("another front", |f| {
        f.try_front().is_some_and(|pid| pid != front)
    });
    fixture.still_serves();
    check(first, "/readyz", 200, "ready");
}

#[test]
fn status_listener_serves_other_clients_only_probes_and_accepts_no_writes() {
    let (open, other) = (free_address(), free_address());
    let everywhere = format!("0.0.0.0:{}", open.port()).parse().unwrap();
    let _open = listening("others", everywhere, "allow = [\"192.0.2.1\"]\n").start();
    check(open, "/livez", 200, "alive");
    check(open, "/readyz", 200, "ready");
    for path in ["/status", "/metrics", "/", "/hello.php"] {
        check(open, path, 403, "StatusDenied");
    }
    let _own = listening("own", other, "").start();
    for host in ["evil.example", "127.0.0.1.evil.example:80"] {
        let response = request(other, &format!("GET /status HTTP/1.1\r\nHost: {host}\r\n"));
        assert_eq!(response.status(), 403, "{host}");
    }
    let response = request(other, "GET /status HTTP/1.1\r\nHost: localhost\r\n");
    assert_eq!(response.status(), 200);
    for method in ["POST", "PUT", "DELETE", "PURGE"] {
        let lines =
            format!("{method} /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n");
        assert_eq!(request(other, &lines).status(), 405, "{method}");
    }
    check(other, "/hello.php", 404, "/livez");
    let mut unix = Fixture::named("unix")
        .config("[status]\nlisten = \"unix:SCRATCH/status.sock mode=0600\"")
        .start();
    let socket = unix.path("status.sock");
    let output = Command::new("curl")
        .args(["-s", "http://any.name/status", "--unix-socket"])
        .arg(&socket)
        .output()
        .expect("curl can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("pool www: Ready"), "{text}");
    unix.howdah.process.stop();
    assert!(!socket.exists(), "the socket's file is removed");
}
