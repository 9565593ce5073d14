//! The life of a server with real PHP: start, reload, crash of the front, loss of the master, stop.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use support::{
    EndedWithTheTest, MAX_WAIT, Scratch, ServerUnderTest, begin_held_request, create_site,
    front_pid, howdah, is_gone, kill, read_response, run, wait_until,
};

#[test]
fn serve_of_a_directory_prints_its_choices() {
    let scratch = Scratch::new("serve");
    let server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "2"]);
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_eq!(server.get("/a.txt"), (200, "static".to_owned()));
    let log = server.log();
    assert!(log.contains("howdah: found "), "{log}");
    let status = server.status();
    assert_eq!(status["pools"][0]["children"].as_array().unwrap().len(), 2);
    assert_eq!(status["master"], server.pid());
    let (code, out, _) = server.run_command(&["status"]);
    assert_eq!(code, 0);
    assert!(out.contains("\npool www: Ready, static, PHP 8."), "{out}");
}

#[test]
fn log_lines_are_written_at_once() {
    let scratch = Scratch::new("lines");
    let root = create_site(&scratch);
    // Each write to a socket of this kind arrives as a message of its own.
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    ours.set_read_timeout(Some(MAX_WAIT)).unwrap();
    let mut command = howdah(["serve", &root, "--listen", "127.0.0.1:0"]);
    command.arg("--control").arg(scratch.path("control.sock"));
    command.stderr(OwnedFd::from(theirs));
    let _server = EndedWithTheTest(command.spawn().unwrap());
    let mut buffer = [0; 4096];
    loop {
        let length = ours.recv(&mut buffer).unwrap();
        let written = String::from_utf8_lossy(&buffer[..length]);
        let is_line = written.starts_with("howdah: ") && written.ends_with('\n');
        assert!(is_line, "{written:?}");
        if written.contains("listening on") {
            break;
        }
    }
}

#[test]
fn reload_loads_new_code_ini_and_rules_and_keeps_connections() {
    let scratch = Scratch::new("reload");
    let root = create_site(&scratch);
    scratch.write("web/ini.php", "<?php echo ini_get('memory_limit');");
    let config = |memory: &str| {
        let text = format!(
            "[pool.www]\nmax_children = 2\n[pool.www.php_value]\nmemory_limit = \"{memory}\"\n\
             \"opcache.validate_timestamps\" = 0\n\"opcache.file_update_protection\" = 0\n"
        );
        scratch.write("howdah.toml", &text).display().to_string()
    };
    let file = config("111M");
    let server = ServerUnderTest::start(&scratch, &[&root, "--config", &file]);
    assert_eq!(server.get("/ini.php").1, "111M");
    let mut kept = TcpStream::connect(server.address).unwrap();
    let mut ask = || ask(&mut kept, "localhost", "/");
    assert_eq!(ask(), "one");
    // With unvalidated timestamps, only a fresh opcache notices the change.
    scratch.write("web/index.php", "<?php echo 'two';");
    config("222M");
    assert_eq!(ask(), "one");
    let (code, out, err) = server.run_command(&["reload"]);
    assert!(code == 0 && out.starts_with("reloaded\n"), "{out}{err}");
    assert_eq!(ask(), "two");
    assert_eq!(server.get("/ini.php").1, "222M");
    assert_eq!(server.status()["configuration"], 2);
}

/// Returns the body of the response to a GET request, over a connection that stays open.
fn ask(stream: &mut (impl Read + Write), host: &str, path: &str) -> String {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).unwrap();
        assert!(read > 0, "the connection was closed");
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

fn ask_shop(stream: &mut UnixStream) -> String {
    ask(stream, "shop.test", "/a.txt")
}

#[test]
fn reload_keeps_connections_of_a_removed_address_from_other_sites() {
    let scratch = Scratch::new("removed-address");
    scratch.write("web/a.txt", "static");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let config = |socket: &str| {
        let socket = scratch.path(socket);
        let text = format!(
            "[[site]]\nroot = \"web\"\nlisten = [\"{address}\", \"unix:{}\"]\n",
            socket.display()
        );
        scratch.write("howdah.toml", &text)
    };
    let file = config("a.sock").display().to_string();
    let server = ServerUnderTest::start_listening(&scratch, &["--config", &file], &[]);
    let mut kept = UnixStream::connect(scratch.path("a.sock")).unwrap();
    assert_eq!(ask_shop(&mut kept), "static");
    config("b.sock");
    let (code, _, err) = server.run_command(&["reload"]);
    assert_eq!(code, 0, "{err}");
    let refused = ask_shop(&mut kept);
    assert!(refused.contains("421"), "{refused}");
    let mut new = UnixStream::connect(scratch.path("b.sock")).unwrap();
    assert_eq!(ask_shop(&mut new), "static");
}

#[test]
fn site_with_its_own_listen_is_served_only_there() {
    let scratch = Scratch::new("own-addresses");
    create_site(&scratch);
    scratch.write("admin/a.txt", "admin");
    scratch.write("other/a.txt", "other");
    let config = |sites: &str| {
        let shop = "[[site]]\nhosts = \"shop.test\"\nroot = \"web\"\n";
        scratch.write("howdah.toml", &format!("{sites}{shop}"))
    };
    let own = |name: &str, socket: &str| {
        let socket = scratch.path(socket);
        format!(
            "[[site]]\nname = \"{name}\"\nhosts = \"shop.test\"\nroot = \"{name}\"\nlisten = \"unix:{}\"\n",
            socket.display()
        )
    };
    let file = config(&own("admin", "a.sock")).display().to_string();
    let server = ServerUnderTest::start(&scratch, &["--config", &file]);
    let connect = |socket: &str| UnixStream::connect(scratch.path(socket)).unwrap();
    let mut kept = connect("a.sock");
    assert_eq!(ask_shop(&mut kept), "admin");
    // This site is the first of the file, but not the first of those at this address.
    assert_eq!(server.get_from("shop.test", "/a.txt").1, "static");
    assert_eq!(server.get_from("else.test", "/a.txt").1, "static");

    // One listener is added and one is removed. A connection of the removed listener must not lead to the new site.
    config(&own("other", "b.sock"));
    let (code, _, err) = server.run_command(&["reload"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(ask_shop(&mut connect("b.sock")), "other");
    assert_eq!(ask_shop(&mut kept), "static");
    assert!(UnixStream::connect(scratch.path("a.sock")).is_err());
}

#[test]
fn reload_with_mistakes_is_refused_and_the_old_configuration_stays() {
    let scratch = Scratch::new("refused");
    let root = create_site(&scratch);
    let file = scratch.write("howdah.toml", "[pool.www]\nmax_children = 1\n");
    let server =
        ServerUnderTest::start(&scratch, &[&root, "--config", &file.display().to_string()]);
    for (text, expect) in [
        (
            "[pool.www]\nmax_childern = 1\n",
            "did you mean `max_children`?",
        ),
        ("\u{0}", ":1:1: "),
        (
            // This mistake shows only when PHP is started.
            "[pool.www.php_value]\n\"opcache.preload\" = \"/nonexistent/preload.php\"\n",
            "pool `www`: PoolDown",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let (code, _, err) = server.run_command(&["reload"]);
        assert_eq!(code, 3, "{err}");
        assert!(err.contains(expect), "missing {expect:?} in\n{err}");
        assert!(
            err.contains("the previous configuration remains in use"),
            "{err}"
        );
        assert_eq!(server.get("/"), (200, "one".to_owned()));
        assert_eq!(server.status()["configuration"], 1);
    }
    fs::write(&file, "").unwrap();
    assert_eq!(server.run_command(&["reload"]).0, 0);
}

#[test]
fn reload_repeated_fails_no_request() {
    let scratch = Scratch::new("storm");
    let server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "2"]);
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(server.get("/"), (200, "one".to_owned()));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..10 {
            let before = count.load(Ordering::Relaxed);
            let (code, _, err) = server.run_command(&["reload"]);
            assert_eq!(code, 0, "{err}");
            wait_until("requests to go on", || {
                count.load(Ordering::Relaxed) > before
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.status()["configuration"], 11);
}

#[test]
fn crashed_front_is_restarted_on_the_same_port() {
    let scratch = Scratch::new("crash");
    let server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    let front = front_pid(&server);
    kill(front, Signal::KILL);
    wait_until("the front to be gone", || is_gone(front));
    // The master holds the socket, so the connection waits in its backlog until the new front accepts it.
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_ne!(front_pid(&server), front);
    assert!(server.log().contains("FrontDied: "), "{}", server.log());
}

#[test]
fn killed_master_leaves_only_running_requests() {
    let scratch = Scratch::new("master");
    let mut server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    let front = front_pid(&server);
    let child = server.status()["pools"][0]["children"][0]["pid"]
        .as_i64()
        .unwrap() as i32;
    let held = begin_held_request(&server, &scratch, "go");
    server.signal(Signal::KILL);
    server.wait();
    scratch.write("go", "");
    assert_eq!(read_response(held), (200, "held".to_owned()));
    wait_until("the front to leave", || is_gone(front));
    wait_until("PHP to leave", || is_gone(child));
}

#[test]
fn stop_finishes_running_requests_and_removes_its_files() {
    let scratch = Scratch::new("stop");
    let pid = scratch.path("howdah.pid");
    let site = create_site(&scratch);
    let arguments = [&site, "--children", "1", "--pid", pid.to_str().unwrap()];
    let mut server = ServerUnderTest::start(&scratch, &arguments);
    assert_eq!(
        fs::read_to_string(&pid).unwrap(),
        format!("{}\n", server.pid())
    );
    let held = begin_held_request(&server, &scratch, "go");
    server.signal(Signal::TERM);
    wait_until("new connections to be refused or closed", || {
        TcpStream::connect(server.address).is_err() || {
            scratch.write("go", "");
            true
        }
    });
    scratch.write("go", "");
    assert_eq!(read_response(held), (200, "held".to_owned()));
    assert_eq!(server.wait().code(), Some(0));
    assert!(!pid.exists() && !server.control.exists());
}

#[test]
fn stop_kills_an_endless_script_at_its_limit() {
    let scratch = Scratch::new("limit");
    let mut server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    let _held = begin_held_request(&server, &scratch, "never");
    let child = server.status()["pools"][0]["children"][0]["pid"]
        .as_i64()
        .unwrap() as i32;
    let (code, out, err) = server.run_command(&["stop", "--timeout", "100ms"]);
    assert_eq!((code, out.as_str()), (0, "stopped\n"), "{err}");
    assert_eq!(server.wait().code(), Some(0));
    wait_until("PHP to be gone", || is_gone(child));
}

#[test]
fn control_socket_in_use_refuses_another_server() {
    let scratch = Scratch::new("second");
    let server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    let (code, _, err) = run(howdah(["serve", "--listen", "127.0.0.1:0", "--control"])
        .arg(&server.control)
        .arg(scratch.path("web")));
    assert_eq!(code, 5);
    assert!(
        err.contains(&format!(
            "ControlInUse: another howdah (process {})",
            server.pid()
        )),
        "{err}"
    );
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn php_that_does_not_start_stops_the_server_with_its_reason() {
    let scratch = Scratch::new("preload");
    let (code, _, err) = run(howdah(["serve", "--listen", "127.0.0.1:0"])
        .args([
            "-d",
            "opcache.preload=/nonexistent/preload.php",
            "--control",
        ])
        .arg(scratch.path("control.sock"))
        .arg(create_site(&scratch)));
    assert_eq!(code, 1);
    assert!(err.contains("pool `www`: PoolDown"), "{err}");
    assert!(!err.contains("listening on"), "{err}");
}

#[test]
fn service_manager_is_notified_of_start_reload_and_stop() {
    let scratch = Scratch::new("notify");
    let path = scratch.path("notify.sock");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let told = || {
        let mut bytes = [0; 256];
        let n = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    };
    let site = create_site(&scratch);
    let arguments = [site.as_str(), "--children", "1"];
    let mut server = ServerUnderTest::start_with(&scratch, &arguments, &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(told(), format!("READY=1\nMAINPID={}\n", server.pid()));
    assert_eq!(server.run_command(&["reload"]).0, 0);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(told().starts_with("READY=1\n"));
    server.signal(Signal::INT);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn stop_by_another_interrupt_is_immediate() {
    let scratch = Scratch::new("twice");
    let config = scratch.write("howdah.toml", "[timeouts]\nstop = \"1h\"\n");
    let site = create_site(&scratch);
    let arguments = [
        &site,
        "--children",
        "1",
        "--config",
        config.to_str().unwrap(),
    ];
    let mut server = ServerUnderTest::start(&scratch, &arguments);
    let _held = begin_held_request(&server, &scratch, "never");
    server.signal(Signal::INT);
    // The master responds between the two signals, so they are not merged into one.
    assert_eq!(server.run_command(&["status"]).0, 0);
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn status_watch_refreshes_until_q_and_restores_the_terminal() {
    let scratch = Scratch::new("watch");
    scratch.write("web/index.php", "<?php echo 'x';");
    let web = scratch.path("web");
    let job = "[[job]]\nname = \"cleanup\"\ncommand = [\"true\"]\nschedule = \"0 3 1 1 *\"\n";
    let config = scratch.write("howdah.toml", job);
    let arguments = [web.to_str().unwrap(), "--config", config.to_str().unwrap()];
    let state = scratch.path("state");
    let server = ServerUnderTest::start_with(&scratch, &arguments, &[("STATE_DIRECTORY", &state)]);
    // script(1) provides a terminal; the input of script(1) is what is typed there.
    let command = format!(
        "stty rows 60 cols 160; '{}' status --watch --control '{}'; stty -a",
        support::HOWDAH_PROGRAM,
        server.control.display()
    );
    let mut terminal = std::process::Command::new("script")
        .args(["-qefc", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script(1), of util-linux, is there");
    let mut shown = Vec::new();
    let mut out = terminal.stdout.take().unwrap();
    let mut more = |shown: &mut Vec<u8>| {
        let mut piece = [0; 4096];
        let n = out.read(&mut piece).unwrap_or(0);
        shown.extend_from_slice(&piece[..n]);
        n > 0
    };
    let frames = |shown: &[u8]| String::from_utf8_lossy(shown).matches("q quits").count();
    let job = |shown: &[u8]| String::from_utf8_lossy(shown).contains("job cleanup: waiting");
    while frames(&shown) < 2 || !job(&shown) && frames(&shown) < 30 {
        assert!(
            more(&mut shown),
            "it ended: {}",
            String::from_utf8_lossy(&shown)
        );
    }
    terminal.stdin.take().unwrap().write_all(b"q").unwrap();
    while more(&mut shown) {}
    assert!(terminal.wait().unwrap().success());
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("pool www: Ready"), "{shown}");
    assert!(shown.contains("job cleanup: waiting"), "{shown}");
    let (_, after) = shown.split_once("\x1b[?1049l").expect("the screen is left");
    assert!(
        after.contains(" echo ") && after.contains(" icanon "),
        "{after}"
    );
}

#[test]
fn status_watch_needs_a_terminal() {
    let (code, out, err) = run(&mut howdah(["status", "--watch"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("NotATerminal") && err.contains("--json"),
        "{err}"
    );
}

#[test]
fn reload_during_the_start_is_executed_after_it() {
    let scratch = Scratch::new("early");
    let control = scratch.path("control.sock");
    let mut command = howdah(["serve", "--listen", "127.0.0.1:0", "--children", "1"]);
    command
        .arg("--control")
        .arg(&control)
        .arg(create_site(&scratch));
    let _server = EndedWithTheTest(command.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the control socket", || {
        UnixStream::connect(&control).is_ok()
    });
    let (code, out, err) = run(howdah(["reload", "--control"]).arg(&control));
    assert!(code == 0 && out.starts_with("reloaded\n"), "{out}{err}");
    let (_, out, _) = run(howdah(["status", "--json", "--control"]).arg(&control));
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["configuration"], 2);
}

#[test]
fn stop_prints_what_it_waits_for() {
    let scratch = Scratch::new("farewell");
    let mut server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    let held = begin_held_request(&server, &scratch, "go");
    server.signal(Signal::INT);
    wait_until("the sentence", || {
        let log = server.log();
        log.contains("waiting for 1 request, ") && log.contains(": GET /hold.php?f=")
    });
    scratch.write("go", "");
    assert_eq!(read_response(held), (200, "held".to_owned()));
    assert_eq!(server.wait().code(), Some(0));
    wait_until("the last word", || {
        server.log().ends_with("howdah: stopped")
    });
}

#[test]
fn server_is_found_by_its_configuration_and_listed_with_its_directory() {
    let scratch = Scratch::new("which");
    create_site(&scratch);
    // `control` is not set, so the server is searched in the default directory.
    let text = "listen = \"127.0.0.1:0\"\n[pool.www]\nmax_children = 1\n[[site]]\nroot = \"web\"\n";
    let file = scratch.write("a.toml", text);
    let start = || {
        let mut command = howdah(["serve", "--config"]);
        command.arg(&file).stderr(Stdio::null());
        command.env("XDG_RUNTIME_DIR", &scratch.0);
        EndedWithTheTest(command.spawn().unwrap())
    };
    let ask = |what: &[&str]| {
        let mut command = howdah(what);
        command.arg("--config").arg(&file);
        run(command.env("XDG_RUNTIME_DIR", &scratch.0))
    };
    let _first = start();
    wait_until("the server to be found", || ask(&["status"]).0 == 0);
    let (_, out, _) = ask(&["status"]);
    let web = scratch.path("web").canonicalize().unwrap();
    let serves = format!("; serves {}\n", web.display());
    assert!(out.contains("listening on http://127.0.0.1:"), "{out}");
    assert!(out.contains(&serves), "{out}");
    let (_, out, _) = ask(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    let expected = serde_json::json!([["site1", web]]);
    assert_eq!(status["server"]["sites"], expected);

    let _second = start();
    wait_until("the second", || ask(&["status"]).0 == 6);
    let (_, _, err) = ask(&["reload"]);
    let title = "SeveralServers: 2 servers are running with ";
    assert!(err.contains(title) && err.lines().count() == 3, "{err}");
    let named = format!(", {} ({})", web.display(), file.display());
    assert_eq!(err.matches(&named).count(), 2, "{err}");

    let other = scratch.write("b.toml", text);
    let mut command = howdah(["status", "--config"]);
    let (code, _, err) = run(command.arg(&other).env("XDG_RUNTIME_DIR", &scratch.0));
    assert_eq!(code, 6);
    let title = format!("NoServer: no server is running with {}", other.display());
    assert!(err.contains(&title) && err.contains(&named), "{err}");
}
