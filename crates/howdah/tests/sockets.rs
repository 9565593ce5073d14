//! Sockets that a service manager has bound, which are used instead of binding (sd_listen_fds(3)).

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{
    HOWDAH_PROGRAM, MAX_WAIT, Scratch, ServerUnderTest, begin_held_request, create_site,
    read_response, run, serve_with_passed_sockets, wait_until,
};

/// Returns a listening socket as a service manager holds it, and its address.
fn listening() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

fn copy(listener: &TcpListener) -> OwnedFd {
    listener.try_clone().unwrap().into()
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs systemd")]
fn socket_activation_starts_the_server_at_the_first_client() {
    let scratch = Scratch::new("activate");
    let root = create_site(&scratch);
    // The port is free again, so a server can bind it.
    let address = listening().1;
    let mut command = Command::new("systemd-socket-activate");
    command
        .args([
            "--listen",
            &address,
            "--fdname",
            "howdah.socket",
            HOWDAH_PROGRAM,
        ])
        .args(["serve", &root, "--listen", &address])
        .env_remove("NOTIFY_SOCKET");
    let mut first = None;
    // The service manager waits for this connection, which the server then accepts.
    let connecting = std::thread::spawn({
        let address = address.clone();
        move || {
            wait_until("systemd to listen", || {
                first = TcpStream::connect(&address).ok();
                first.is_some()
            });
            first.unwrap()
        }
    });
    let mut server = ServerUnderTest::start_command(&scratch, command);
    let mut first = connecting.join().unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    first.write_all(request).unwrap();
    assert_eq!(read_response(first), (200, "one".to_owned()));
    assert_eq!(server.address.to_string(), address);
    assert_eq!(server.run_command(&["reload"]).0, 0);
    assert_eq!(server.get("/").0, 200);
    server.signal(Signal::TERM);
    assert!(server.wait().success());
}

#[test]
fn passed_sockets_lose_no_request_during_a_restart() {
    let scratch = Scratch::new("kept");
    let root = create_site(&scratch);
    let (listener, address) = listening();
    let arguments = [root.as_str(), "--listen", &address];
    let start = || {
        let sockets = vec![("howdah.socket", copy(&listener))];
        ServerUnderTest::start_passed(&scratch, &arguments, sockets)
    };
    let mut server = start();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = TcpStream::connect(&address).unwrap();
                    // If the test fails, there is no server any more.
                    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
                    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                    stream.write_all(request).unwrap();
                    assert_eq!(read_response(stream), (200, "one".to_owned()));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..2 {
            let before = answered.load(Ordering::Relaxed);
            wait_until("answers", || answered.load(Ordering::Relaxed) > before + 20);
            let held = begin_held_request(&server, &scratch, "held");
            server.signal(Signal::TERM);
            scratch.write("held", "");
            assert_eq!(read_response(held), (200, "held".to_owned()));
            assert!(server.wait().success(), "{}", server.log());
            for file in ["held", "held.began"] {
                std::fs::remove_file(scratch.path(file)).unwrap();
            }
            // No process accepts this connection yet.
            let waiting = server.send_request("/");
            server = start();
            assert_eq!(read_response(waiting), (200, "one".to_owned()));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn passed_sockets_give_idle_connections_two_seconds_at_a_stop() {
    let scratch = Scratch::new("parting");
    let root = create_site(&scratch);
    let (listener, address) = listening();
    let arguments = [root.as_str(), "--listen", &address];
    let sockets = vec![("howdah.socket", copy(&listener))];
    let mut server = ServerUnderTest::start_passed(&scratch, &arguments, sockets);
    let mut idle = TcpStream::connect(&address).unwrap();
    idle.set_read_timeout(Some(MAX_WAIT)).unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"one") {
        let mut byte = [0];
        idle.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let since = Instant::now();
    server.signal(Signal::TERM);
    let mut rest = Vec::new();
    idle.read_to_end(&mut rest).unwrap();
    let took = since.elapsed();
    assert!(
        rest.is_empty() && took >= Duration::from_millis(1900),
        "{took:?}"
    );
    assert!(server.wait().success());
}

#[test]
fn passed_sockets_must_match_every_listen() {
    let scratch = Scratch::new("strict");
    let root = create_site(&scratch);
    let (listener, address) = listening();
    let udp = UdpSocket::bind(&address).unwrap();
    let other = listening().1;
    let refused = |listen: &str, sockets: Vec<(&str, OwnedFd)>| {
        let mut command = serve_with_passed_sockets(&[&root, "--listen", listen], sockets);
        command.arg("--control").arg(scratch.path("control.sock"));
        let (code, _, said) = run(&mut command);
        assert_eq!(code, 5, "{said}");
        said
    };
    let said = refused(&other, vec![("howdah.socket", copy(&listener))]);
    for part in [
        format!("SocketMissing: the service manager passed no socket for {other}, only "),
        format!("add ListenStream={other} to howdah.socket"),
        format!("SocketUnused: {address} (howdah.socket) was passed"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    let both = vec![
        ("a.socket", copy(&listener)),
        ("b.socket", udp.try_clone().unwrap().into()),
    ];
    let said = refused(&address, both);
    let part = format!(
        "SocketUnused: {address} (UDP) (b.socket) was passed, but no `listen` names it, so its clients would wait forever; add `http3`"
    );
    assert!(said.contains(&part), "{said}");
    let connected = TcpStream::connect(&address).unwrap();
    let said = refused(&address, vec![("c.socket", connected.into())]);
    assert!(
        said.contains("SocketUnusable: the socket c.socket"),
        "{said}"
    );

    // A reload is refused in the same way as a start.
    let text = |listen: &str| {
        scratch.write("howdah.toml", &format!("listen = \"{listen}\"\n"));
    };
    text(&address);
    let file = scratch.path("howdah.toml").display().to_string();
    let sockets = vec![("howdah.socket", copy(&listener))];
    let server = ServerUnderTest::start_passed(&scratch, &[&root, "--config", &file], sockets);
    text(&other);
    let (code, _, said) = server.run_command(&["reload"]);
    assert!(code == 3 && said.contains("SocketMissing"), "{code} {said}");
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn sockets_of_a_takeover_need_not_match_the_configuration() {
    let scratch = Scratch::new("takeover");
    let root = create_site(&scratch);
    let (shared, address) = listening();
    let (unused, closed) = listening();
    let own = listening().1;
    let text = |listen: &[&str]| {
        scratch.write("howdah.toml", &format!("listen = {listen:?}\n"));
    };
    text(&[&address, &own]);
    let file = scratch.path("howdah.toml").display().to_string();
    let arguments = [root.as_str(), "--config", &file];
    let sockets = vec![("takeover", copy(&shared)), ("takeover", copy(&unused))];
    drop((shared, unused));
    let server = ServerUnderTest::start_passed(&scratch, &arguments, sockets);
    let is_served = |address: &str| TcpStream::connect(address).is_ok();
    assert!(is_served(&address) && is_served(&own) && !is_served(&closed));
    // The socket is closed at once, so that the server can bind its address.
    let other = listening().1;
    for (listen, [shared, bound, added]) in [
        ([&*own, &*other], [false, true, true]),
        ([&*address, &*other], [true, false, true]),
    ] {
        text(&listen);
        let (code, _, said) = server.run_command(&["reload"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(is_served(&address), shared);
        assert_eq!(is_served(&own), bound);
        assert_eq!(is_served(&other), added);
        let (code, _, said) = server.run_command(&["upgrade"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(is_served(&address), shared, "after an upgrade");
        assert_eq!(is_served(&own), bound);
        assert_eq!(is_served(&other), added);
    }
}

#[test]
fn passed_socket_of_both_families_serves_ipv4() {
    let Ok(listener) = TcpListener::bind("[::]:0") else {
        return; // A machine without IPv6 has no such sockets.
    };
    let scratch = Scratch::new("families");
    let root = create_site(&scratch);
    let port = listener.local_addr().unwrap().port();
    let any = format!("0.0.0.0:{port}");
    let ipv6 = format!("[::]:{port}");
    scratch.write(
        "web/address.php",
        "<?php echo $_SERVER['REMOTE_ADDR'], ' ', $_SERVER['SERVER_ADDR'];",
    );
    let sockets = || vec![("howdah.socket", copy(&listener))];
    let mut command = serve_with_passed_sockets(
        &[&root, "--listen", &any, "--listen", &ipv6, "--user", "root"],
        sockets(),
    );
    let (code, _, said) = run(command.arg("--control").arg(scratch.path("control.sock")));
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("remove [::]:"), "{said}");
    let arguments = [root.as_str(), "--listen", &any, "--user", "root"];
    let server = ServerUnderTest::start_passed(&scratch, &arguments, sockets());
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = b"GET /address.php HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    assert_eq!(
        read_response(stream),
        (200, "127.0.0.1 127.0.0.1".to_owned())
    );
    drop(server);
}

#[test]
fn passed_unix_socket_and_its_file_stay_the_managers() {
    let scratch = Scratch::new("unix");
    let root = create_site(&scratch);
    let (listener, address) = listening();
    let path = scratch.path("http.sock");
    let unix = UnixListener::bind(&path).unwrap();
    let named = format!("unix:{}", path.display());
    let sockets = vec![
        ("howdah.socket", copy(&listener)),
        ("howdah.socket", unix.try_clone().unwrap().into()),
    ];
    let arguments = [root.as_str(), "--listen", &address, "--listen", &named];
    let mut server = ServerUnderTest::start_passed(&scratch, &arguments, sockets);
    let mut stream = UnixStream::connect(&path).unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    assert!(text.ends_with("one"), "{text}");
    server.signal(Signal::TERM);
    assert!(server.wait().success());
    assert!(path.exists(), "the file was removed");
}
