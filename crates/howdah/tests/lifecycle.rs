//! A server's life with real PHP: start, reload, crash of the front, loss of the master, stop.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use support::{Scratch, Server, answer, howdah, run, wait_until};

fn site(scratch: &Scratch) -> String {
    scratch.write("web/index.php", "<?php echo 'one';");
    scratch.write("web/a.txt", "static");
    // Waits for a file, so that a test decides when the request ends.
    scratch.write(
        "web/hold.php",
        "<?php touch($_GET['f'] . '.began'); while (!file_exists($_GET['f'])) { usleep(2000); clearstatcache(); } echo 'held';",
    );
    scratch.path("web").display().to_string()
}

fn front_of(server: &Server) -> i32 {
    server.status()["pid"].as_i64().unwrap() as i32
}

fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// A process that is a zombie of somebody else's is gone, too.
fn is_gone(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat"));
    state.map_or(true, |text| text.contains(") Z "))
}

fn hold(server: &Server, scratch: &Scratch, name: &str) -> TcpStream {
    let file = scratch.path(name);
    let stream = server.begin(&format!("/hold.php?f={}", file.display()));
    let began = scratch.path(&format!("{name}.began"));
    wait_until("the script to begin", || began.exists());
    stream
}

#[test]
fn a_directory_is_served_and_the_choice_is_told() {
    let scratch = Scratch::new("serve");
    let server = Server::start(&scratch, &[&site(&scratch), "--children", "2"]);
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_eq!(server.get("/a.txt"), (200, "static".to_owned()));
    let log = server.log();
    assert!(log.contains("howdah: found "), "{log}");
    let status = server.status();
    assert_eq!(status["pools"][0]["children"].as_array().unwrap().len(), 2);
    assert_eq!(status["master"], server.pid());
    let (code, out, _) = server.ask(&["status"]);
    assert_eq!(code, 0);
    assert!(out.contains("pool www (static, PHP 8."), "{out}");
}

#[test]
fn a_reload_takes_new_code_ini_and_rules_and_keeps_connections_alive() {
    let scratch = Scratch::new("reload");
    let root = site(&scratch);
    scratch.write("web/ini.php", "<?php echo ini_get('memory_limit');");
    let config = |memory: &str| {
        let text = format!(
            "[pool.www]\nmax_children = 2\n[pool.www.php_value]\nmemory_limit = \"{memory}\"\n\
             \"opcache.validate_timestamps\" = 0\n\"opcache.file_update_protection\" = 0\n"
        );
        scratch.write("howdah.toml", &text).display().to_string()
    };
    let file = config("111M");
    let server = Server::start(&scratch, &[&root, "--config", &file]);
    assert_eq!(server.get("/ini.php").1, "111M");
    let mut kept = TcpStream::connect(server.address).unwrap();
    let mut ask = || {
        kept.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        let mut reader = BufReader::new(&kept);
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(
                reader.read_line(&mut line).unwrap() > 0,
                "the connection was closed"
            );
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
    };
    assert_eq!(ask(), "one");
    // With unvalidated timestamps only a fresh opcache sees it.
    scratch.write("web/index.php", "<?php echo 'two';");
    config("222M");
    assert_eq!(ask(), "one");
    let (code, out, err) = server.ask(&["reload"]);
    assert!(code == 0 && out.starts_with("reloaded\n"), "{out}{err}");
    assert_eq!(ask(), "two");
    assert_eq!(server.get("/ini.php").1, "222M");
    assert_eq!(server.status()["configuration"], 2);
}

#[test]
fn a_reload_with_mistakes_is_refused_and_the_old_configuration_goes_on() {
    let scratch = Scratch::new("refused");
    let root = site(&scratch);
    let file = scratch.write("howdah.toml", "[pool.www]\nmax_children = 1\n");
    let server = Server::start(&scratch, &[&root, "--config", &file.display().to_string()]);
    for (text, expect) in [
        (
            "[pool.www]\nmax_childern = 1\n",
            "did you mean `max_children`?",
        ),
        ("\u{0}", ":1:1: "),
        (
            // Found only by starting PHP.
            "[pool.www.php_value]\n\"opcache.preload\" = \"/nonexistent/preload.php\"\n",
            "pool `www`: PoolDown",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let (code, _, err) = server.ask(&["reload"]);
        assert_eq!(code, 3, "{err}");
        assert!(err.contains(expect), "missing {expect:?} in\n{err}");
        assert!(
            err.contains("the configuration before stays in use"),
            "{err}"
        );
        assert_eq!(server.get("/"), (200, "one".to_owned()));
        assert_eq!(server.status()["configuration"], 1);
    }
    fs::write(&file, "").unwrap();
    assert_eq!(server.ask(&["reload"]).0, 0);
}

#[test]
fn no_request_fails_while_reload_follows_reload() {
    let scratch = Scratch::new("storm");
    let server = Server::start(&scratch, &[&site(&scratch), "--children", "2"]);
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
            let (code, _, err) = server.ask(&["reload"]);
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
fn a_front_that_crashes_is_started_again_and_the_port_stays() {
    let scratch = Scratch::new("crash");
    let server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
    let front = front_of(&server);
    kill(front, Signal::KILL);
    wait_until("the front to be gone", || is_gone(front));
    // The master holds the socket: this waits in its backlog until the new front accepts it.
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_ne!(front_of(&server), front);
    assert!(server.log().contains("FrontDied: "), "{}", server.log());
}

#[test]
fn a_killed_master_leaves_nothing_behind_but_what_still_runs() {
    let scratch = Scratch::new("master");
    let mut server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
    let front = front_of(&server);
    let child = server.status()["pools"][0]["children"][0]["pid"]
        .as_i64()
        .unwrap() as i32;
    let held = hold(&server, &scratch, "go");
    server.signal(Signal::KILL);
    server.wait();
    scratch.write("go", "");
    assert_eq!(answer(held), (200, "held".to_owned()));
    wait_until("the front to leave", || is_gone(front));
    wait_until("PHP to leave", || is_gone(child));
}

#[test]
fn a_stop_finishes_what_runs_and_takes_its_files_along() {
    let scratch = Scratch::new("stop");
    let pid = scratch.path("howdah.pid");
    let site = site(&scratch);
    let arguments = [&site, "--children", "1", "--pid", pid.to_str().unwrap()];
    let mut server = Server::start(&scratch, &arguments);
    assert_eq!(
        fs::read_to_string(&pid).unwrap(),
        format!("{}\n", server.pid())
    );
    let held = hold(&server, &scratch, "go");
    server.signal(Signal::TERM);
    wait_until("new connections to be refused or closed", || {
        TcpStream::connect(server.address).is_err() || {
            scratch.write("go", "");
            true
        }
    });
    scratch.write("go", "");
    assert_eq!(answer(held), (200, "held".to_owned()));
    assert_eq!(server.wait().code(), Some(0));
    assert!(!pid.exists() && !server.control.exists());
}

#[test]
fn a_script_that_never_ends_does_not_outlive_the_limit_of_a_stop() {
    let scratch = Scratch::new("limit");
    let mut server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
    let _held = hold(&server, &scratch, "never");
    let child = server.status()["pools"][0]["children"][0]["pid"]
        .as_i64()
        .unwrap() as i32;
    let (code, out, err) = server.ask(&["stop", "--timeout", "100ms"]);
    assert_eq!((code, out.as_str()), (0, "stopped\n"), "{err}");
    assert_eq!(server.wait().code(), Some(0));
    wait_until("PHP to be gone", || is_gone(child));
}

#[test]
fn logs_are_opened_again_after_a_rotation() {
    let scratch = Scratch::new("rotate");
    let access = scratch.path("access.log");
    let config = scratch.write("howdah.toml", "[log]\naccess_delay = \"0s\"\n");
    let server = Server::start(
        &scratch,
        &[
            &site(&scratch),
            "--config",
            config.to_str().unwrap(),
            "--access-log",
            access.to_str().unwrap(),
        ],
    );
    let has =
        |path: &Path, what: &str| fs::read_to_string(path).is_ok_and(|text| text.contains(what));
    server.get("/a.txt?first");
    wait_until("the first line", || has(&access, "?first"));
    let old = scratch.path("access.log.1");
    fs::rename(&access, &old).unwrap();
    server.signal(Signal::USR1);
    wait_until("the new file", || access.exists());
    wait_until("a line in it", || {
        server.get("/a.txt?second");
        has(&access, "?second")
    });
}

#[test]
fn a_second_server_on_the_same_control_socket_is_refused_by_name() {
    let scratch = Scratch::new("second");
    let server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
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
fn a_socket_that_a_dead_server_left_is_replaced() {
    let scratch = Scratch::new("stale");
    let listener = std::os::unix::net::UnixListener::bind(scratch.path("control.sock"));
    drop(listener.unwrap());
    let server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn php_that_does_not_start_ends_the_server_with_its_reason() {
    let scratch = Scratch::new("preload");
    let (code, _, err) = run(howdah(["serve", "--listen", "127.0.0.1:0"])
        .args([
            "-d",
            "opcache.preload=/nonexistent/preload.php",
            "--control",
        ])
        .arg(scratch.path("control.sock"))
        .arg(site(&scratch)));
    assert_eq!(code, 1);
    assert!(err.contains("pool `www`: PoolDown"), "{err}");
    assert!(!err.contains("listening on"), "{err}");
}

#[test]
fn a_service_manager_is_told_when_the_server_serves_reloads_and_stops() {
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
    let site = site(&scratch);
    let arguments = [site.as_str(), "--children", "1"];
    let mut server = Server::start_with(&scratch, &arguments, &[("NOTIFY_SOCKET", &path)]);
    assert_eq!(told(), format!("READY=1\nMAINPID={}\n", server.pid()));
    assert_eq!(server.ask(&["reload"]).0, 0);
    assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(told().starts_with("READY=1\n"));
    server.signal(Signal::INT);
    assert_eq!(told(), "STOPPING=1\n");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_second_interrupt_does_not_wait_for_anybody() {
    let scratch = Scratch::new("twice");
    let config = scratch.write("howdah.toml", "[timeouts]\nstop = \"1h\"\n");
    let site = site(&scratch);
    let arguments = [
        &site,
        "--children",
        "1",
        "--config",
        config.to_str().unwrap(),
    ];
    let mut server = Server::start(&scratch, &arguments);
    let _held = hold(&server, &scratch, "never");
    server.signal(Signal::INT);
    // Answered by the master between the two, so that they do not become one.
    assert_eq!(server.ask(&["status"]).0, 0);
    server.signal(Signal::INT);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_file_of_a_unix_listener_belongs_to_who_serves_it() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let scratch = Scratch::new("owner");
    scratch.write("web/a.txt", "x");
    // Who serves must reach the site and the socket's directory.
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&scratch.0, open).unwrap();
    let socket = scratch.path("http.sock");
    let listen = format!("unix:{}", socket.display());
    let web = scratch.path("web");
    let mut arguments = vec![web.to_str().unwrap(), "--listen", &listen];
    let root = rustix::process::geteuid().is_root();
    if root {
        arguments.extend(["--user", "www-data"]);
    }
    let mut server = Server::start(&scratch, &arguments);
    let there = socket.metadata().unwrap();
    let expected = if root {
        // Debian's fixed numbers of www-data (base-passwd).
        (33, 33)
    } else {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        (user.as_raw(), group.as_raw())
    };
    assert_eq!((there.uid(), there.gid()), expected);
    assert_eq!(there.permissions().mode() & 0o777, 0o660);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    assert!(!socket.exists());
}

#[test]
fn a_unix_listener_is_opened_to_whom_it_names_also_by_a_reload() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    let scratch = Scratch::new("listener-owner");
    scratch.write("web/a.txt", "x");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&scratch.0, open).unwrap();
    let socket = scratch.path("http.sock");
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // Debian's fixed numbers (base-passwd): www-data is 33, daemon 1.
    let root = user.is_root();
    let expect = |mode: u32, uid: u32, gid: u32| {
        let there = socket.metadata().unwrap();
        let ours = (user.as_raw(), group.as_raw());
        let who = if root { (uid, gid) } else { ours };
        assert_eq!((there.uid(), there.gid()), who);
        assert_eq!(there.permissions().mode() & 0o777, mode);
    };
    let configure = |words: &str, names: &str| {
        let names = if root { names } else { "" };
        let (path, user) = (
            socket.display(),
            if root { "user = \"www-data\"\n" } else { "" },
        );
        let text = format!(
            "{user}listen = [\"127.0.0.1:0\", \"unix:{path} {words} {names}\"]\n[[site]]\nroot = \"web\"\n"
        );
        scratch.write("a.toml", &text)
    };
    let config = configure("mode=0600", "owner=daemon group=daemon");
    let arguments = ["--config", config.to_str().unwrap()];
    let mut server = Server::start_listening(&scratch, &arguments, &[]);
    expect(0o600, 1, 1);
    let waiting = UnixStream::connect(&socket).unwrap();
    let inode = socket.metadata().unwrap().ino();
    configure("mode=0666", "group=daemon");
    assert_eq!(server.ask(&["reload"]).0, 0);
    expect(0o666, 33, 1);
    assert_eq!(socket.metadata().unwrap().ino(), inode, "the same socket");
    drop(waiting);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
}

#[test]
fn a_watched_status_is_refreshed_until_q_and_leaves_the_terminal_as_it_was() {
    let scratch = Scratch::new("watch");
    scratch.write("web/index.php", "<?php echo 'x';");
    let web = scratch.path("web");
    let server = Server::start(&scratch, &[web.to_str().unwrap()]);
    // script(1) gives it a terminal; its own input is what is typed there.
    let command = format!(
        "{} status --watch --control {}; stty -a",
        support::HOWDAH,
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
    while frames(&shown) < 2 {
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
    let (_, after) = shown.split_once("\x1b[?1049l").expect("the screen is left");
    assert!(
        after.contains(" echo ") && after.contains(" icanon "),
        "{after}"
    );
}

#[test]
fn a_watched_status_is_for_terminals_alone() {
    let (code, out, err) = run(&mut howdah(["status", "--watch"]));
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(
        err.contains("NotATerminal") && err.contains("--json"),
        "{err}"
    );
}

struct EndedWithTheTest(std::process::Child);

impl Drop for EndedWithTheTest {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_reload_moves_the_control_socket_and_the_pid_file() {
    let scratch = Scratch::new("move");
    site(&scratch);
    let config = |name: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\ncontrol = \"{0}/{name}.sock\"\npid = \"{0}/{name}.pid\"\n\
             [[site]]\nroot = \"web\"\n",
            scratch.0.display()
        );
        scratch.write("a.toml", &text)
    };
    let file = config("one");
    let mut command = howdah(["serve", "--children", "1", "--config"]);
    let command = command.arg(&file).stdout(Stdio::null());
    let mut server = EndedWithTheTest(command.stderr(Stdio::null()).spawn().unwrap());
    let there = |name: &str| scratch.path(name).exists();
    wait_until("the pid file", || there("one.pid"));
    let ask = |what: &str, name: &str| {
        let socket = scratch.path(&format!("{name}.sock"));
        run(howdah([what, "--control"]).arg(socket))
    };
    // A refused reload makes nothing.
    config("two");
    scratch.write("two.sock", "not a socket");
    let (code, _, err) = ask("reload", "one");
    assert!(code != 0 && err.contains("ControlFailed"), "{err}");
    let untouched = fs::read_to_string(scratch.path("two.sock")).unwrap();
    assert_eq!(
        untouched, "not a socket",
        "a file that is not ours was removed"
    );
    assert!(there("one.sock") && there("one.pid") && !there("two.pid"));
    fs::remove_file(scratch.path("two.sock")).unwrap();

    let (code, _, err) = ask("reload", "one");
    assert_eq!((code, err.contains("NeedsRestart")), (0, false), "{err}");
    assert!(there("two.sock") && there("two.pid") && !there("one.sock") && !there("one.pid"));
    let (code, _, err) = ask("status", "two");
    assert_eq!(code, 0, "{err}");
    let (code, _, err) = ask("stop", "two");
    assert_eq!(code, 0, "{err}");
    assert!(server.0.wait().unwrap().success());
    assert!(!there("two.sock") && !there("two.pid"));
}

#[test]
fn a_front_that_hangs_is_killed_and_started_again() {
    let scratch = Scratch::new("hang");
    let config = scratch.write("howdah.toml", "[timeouts]\nhang = \"3s\"\n");
    let root = site(&scratch);
    let arguments = [
        &root,
        "--children",
        "1",
        "--config",
        config.to_str().unwrap(),
    ];
    let server = Server::start(&scratch, &arguments);
    let front = front_of(&server);
    let name = fs::read_to_string(format!("/proc/{front}/comm")).unwrap();
    assert_eq!(name, "howdah\n");
    kill(front, Signal::STOP);
    // Nobody waits for ever meanwhile.
    let (code, _, err) = server.ask(&["reload"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("the front ended: signal 9"), "{err}");
    assert!(is_gone(front));
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    let log = server.log();
    let named = format!("FrontHung: the front (process {front}) has not gone on for 3 s");
    assert!(log.contains(&named), "{log}");
    assert!(log.contains("is stopped by a signal"), "{log}");
}

#[test]
fn a_reload_asked_for_during_the_start_is_carried_out_after_it() {
    let scratch = Scratch::new("early");
    let control = scratch.path("control.sock");
    let mut command = howdah(["serve", "--listen", "127.0.0.1:0", "--children", "1"]);
    command.arg("--control").arg(&control).arg(site(&scratch));
    let _server = EndedWithTheTest(command.stderr(Stdio::null()).spawn().unwrap());
    wait_until("the control socket", || control.exists());
    let (code, out, err) = run(howdah(["reload", "--control"]).arg(&control));
    assert!(code == 0 && out.starts_with("reloaded\n"), "{out}{err}");
    let (_, out, _) = run(howdah(["status", "--json", "--control"]).arg(&control));
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["configuration"], 2);
}

#[test]
fn a_stop_says_what_it_waits_for() {
    let scratch = Scratch::new("farewell");
    let mut server = Server::start(&scratch, &[&site(&scratch), "--children", "1"]);
    let held = hold(&server, &scratch, "go");
    server.signal(Signal::INT);
    wait_until("the sentence", || {
        let log = server.log();
        log.contains("waiting for 1 request, ") && log.contains(": GET /hold.php?f=")
    });
    scratch.write("go", "");
    assert_eq!(answer(held), (200, "held".to_owned()));
    assert_eq!(server.wait().code(), Some(0));
    wait_until("the last word", || {
        server.log().ends_with("howdah: stopped")
    });
}

#[test]
fn a_service_manager_that_watches_hears_that_the_server_lives() {
    let scratch = Scratch::new("watchdog");
    let path = scratch.path("notify.sock");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let every = Path::new("200000");
    let env = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", every)];
    let _server = Server::start_with(&scratch, &[&site(&scratch), "--children", "1"], &env);
    socket
        .set_read_timeout(Some(std::time::Duration::from_secs(30)))
        .unwrap();
    let mut alive = 0;
    while alive < 3 {
        let mut bytes = [0; 256];
        let n = socket.recv(&mut bytes).unwrap();
        alive += usize::from(&bytes[..n] == b"WATCHDOG=1\n");
    }
}

#[test]
fn a_server_is_found_by_its_configuration_and_told_from_others_by_its_directory() {
    let scratch = Scratch::new("which");
    site(&scratch);
    // Without `control`, so that it is looked for where all servers are.
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
    let title = "SeveralServers: 2 servers run with ";
    assert!(err.contains(title) && err.lines().count() == 3, "{err}");
    let named = format!(", {} ({})", web.display(), file.display());
    assert_eq!(err.matches(&named).count(), 2, "{err}");

    let other = scratch.write("b.toml", text);
    let mut command = howdah(["status", "--config"]);
    let (code, _, err) = run(command.arg(&other).env("XDG_RUNTIME_DIR", &scratch.0));
    assert_eq!(code, 6);
    let title = format!("NoServer: no server runs with {}", other.display());
    assert!(err.contains(&title) && err.contains(&named), "{err}");
}

#[test]
fn root_writes_and_gives_away_nothing_through_a_link_of_the_served_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("led-astray");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&scratch.0, open).unwrap();
    scratch.write("web/a.txt", "static");
    // Debian's www-data, who serves, may do what he likes in this directory.
    let own = scratch.path("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(33), Some(33)).unwrap();
    let victim = scratch.write("victim", "secret");
    let put_link = |name: &str| {
        let at = own.join(name);
        let _ = fs::remove_file(&at);
        symlink(&victim, &at).unwrap();
        lchown(&at, Some(33), Some(33)).unwrap();
    };
    let configure = |words: &str| {
        let text = format!(
            "user = \"www-data\"\nlisten = [\"127.0.0.1:0\", \"unix:{0}/http.sock {words}\"]\npid = \"{0}/a.pid\"\n\
             [log]\naccess = \"{0}/access.log\"\naccess_delay = \"0s\"\n[[site]]\nroot = \"web\"\n",
            own.display()
        );
        scratch.write("a.toml", &text).display().to_string()
    };
    let config = configure("");
    put_link("access.log");
    let control = scratch.path("refused.sock").display().to_string();
    let (code, _, err) = run(&mut howdah([
        "serve",
        "--config",
        &config,
        "--control",
        &control,
    ]));
    assert_eq!(code, 1, "{err}");
    assert!(
        err.contains("UnsafePath: ") && err.contains("is a link of user 33"),
        "{err}"
    );

    fs::remove_file(own.join("access.log")).unwrap();
    put_link("a.pid");
    let server = Server::start_listening(&scratch, &["--config", &config], &[]);
    let log = server.log();
    assert!(log.contains("cannot write the pid file"), "{log}");
    for name in ["access.log", "http.sock"] {
        put_link(name);
    }
    server.signal(Signal::USR1);
    wait_until("the refusal", || server.log().contains("LogNotReopened: "));
    assert_eq!(server.get("/a.txt").0, 200);
    configure("mode=0666 owner=daemon");
    let (code, _, err) = server.ask(&["reload"]);
    assert!(
        code == 3 && err.starts_with("cannot open the log "),
        "{err}"
    );
    fs::remove_file(own.join("access.log")).unwrap();
    assert_eq!(server.ask(&["reload"]).0, 0);
    wait_until("the refusal", || {
        server.log().contains("BindFailed: cannot give ")
    });
    let there = victim.metadata().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    assert_eq!((there.uid(), there.mode() & 0o777), (0, 0o644));
}

#[test]
fn lost_access_lines_are_in_the_error_log_and_in_the_status() {
    let scratch = Scratch::new("lost");
    site(&scratch);
    let error = scratch.path("error.log");
    let config = |access: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[log]\nerror = \"error.log\"\naccess = \"{access}\"\naccess_delay = \"0s\"\n\
             [[site]]\nroot = \"web\"\n"
        );
        scratch.write("a.toml", &text)
    };
    let file = config("full.log");
    // Every write to it fails as on a full disk.
    std::os::unix::fs::symlink("/dev/full", scratch.path("full.log")).unwrap();
    let server = Server::start_listening(&scratch, &["--config", file.to_str().unwrap()], &[]);
    let said = || fs::read_to_string(&error).unwrap_or_default();
    assert_eq!(server.get("/a.txt").0, 200);
    let lost = " LogLost: access log: lines are lost: No space left on device";
    wait_until("the error log to tell", || said().contains(lost));
    wait_until("the status to tell", || {
        server
            .ask(&["status"])
            .1
            .contains("access log: 1 lines lost\n")
    });
    // There is room again: in the same file, by its name.
    fs::remove_file(scratch.path("full.log")).unwrap();
    server.signal(Signal::USR1);
    let again = " LogWorksAgain: access log: it is written again; ";
    wait_until("the end", || {
        server.get("/a.txt");
        said().contains(again)
    });
    assert!(said().matches(lost).count() == 1, "{}", said());
}

#[test]
fn whoever_asks_a_front_that_is_stopped_is_told_so_and_a_late_reload_is_served_after_all() {
    let scratch = Scratch::new("silent");
    let text = "[timeouts]\nhang = \"1d\"\nstart = \"1s\"\n";
    let config = scratch.write("howdah.toml", text);
    let root = site(&scratch);
    let config = config.to_str().unwrap();
    let server = Server::start(&scratch, &[&root, "--children", "1", "--config", config]);
    let front = front_of(&server);
    kill(front, Signal::STOP);
    std::thread::scope(|scope| {
        let status = scope.spawn(|| server.ask(&["status"]));
        let (code, _, err) = server.ask(&["reload"]);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("ReloadTimeout: "), "{err}");
        let (code, _, err) = status.join().unwrap();
        assert_eq!(code, 1, "{err}");
        let named = format!("FrontSilent: the front (process {front}) has not answered");
        assert!(err.contains(&named), "{err}");
        assert!(err.contains("is stopped by a signal"), "{err}");
    });
    kill(front, Signal::CONT);
    wait_until("the reload", || {
        server.log().contains("reloaded: configuration 2 is served")
    });
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_eq!(front_of(&server), front);
}
