//! The files that a server creates outside of its site: logs, the pid file, and the files of unix sockets. The tests
//! check their owners, when they are replaced, and what happens if they cannot be written.

mod support;

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use support::{EndedWithTheTest, Scratch, ServerUnderTest, create_site, howdah, run, wait_until};

#[test]
fn logs_are_opened_again_after_a_rotation() {
    let scratch = Scratch::new("rotate");
    let access = scratch.path("access.log");
    let server = ServerUnderTest::start(
        &scratch,
        &[
            &create_site(&scratch),
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
    // The command does the same, and says when the new file is there, or why it is not.
    fs::rename(&access, scratch.path("access.log.2")).unwrap();
    let (code, out, err) = server.run_command(&["reopen"]);
    assert_eq!(
        (code, &out[..]),
        (0, "the log files are open again\n"),
        "{err}"
    );
    assert!(access.exists());
    wait_until("a line in it", || {
        server.get("/a.txt?third");
        has(&access, "?third")
    });
    fs::rename(&access, scratch.path("access.log.3")).unwrap();
    fs::create_dir(&access).unwrap();
    let (code, _, err) = server.run_command(&["reopen"]);
    assert_eq!(code, 1);
    assert!(
        err.contains("LogNotReopened: ") && err.contains("access.log"),
        "{err}"
    );
}

#[test]
fn lost_access_log_lines_are_in_the_error_log_and_the_status() {
    let scratch = Scratch::new("lost");
    create_site(&scratch);
    let error = scratch.path("error.log");
    let config = |access: &str| {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[log]\nerror = \"error.log\"\naccess = \"{access}\"\n\
             [[site]]\nroot = \"web\"\n"
        );
        scratch.write("a.toml", &text)
    };
    let file = config("full.log");
    // Every write to this file fails as on a full disk.
    std::os::unix::fs::symlink("/dev/full", scratch.path("full.log")).unwrap();
    let server =
        ServerUnderTest::start_listening(&scratch, &["--config", file.to_str().unwrap()], &[]);
    let said = || fs::read_to_string(&error).unwrap_or_default();
    assert_eq!(server.get("/a.txt").0, 200);
    let lost = " LogLost: access log: lines are being lost: No space left on device";
    wait_until("the error log to tell", || said().contains(lost));
    wait_until("the status to tell", || {
        server
            .run_command(&["status"])
            .1
            .contains("access log: 1 lines lost\n")
    });
    // The disk has space again: the log is a new file with the same name.
    fs::remove_file(scratch.path("full.log")).unwrap();
    server.signal(Signal::USR1);
    let again = " LogWorksAgain: access log: lines are written again; ";
    wait_until("the end", || {
        server.get("/a.txt");
        said().contains(again)
    });
    assert!(said().matches(lost).count() == 1, "{}", said());
}

#[test]
fn unix_socket_file_belongs_to_the_serving_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let scratch = Scratch::new("owner");
    scratch.write("web/a.txt", "x");
    // The user that serves must be able to reach the site and the socket's directory.
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
    let mut server = ServerUnderTest::start(&scratch, &arguments);
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
fn unix_socket_owner_and_mode_are_applied_at_start_and_reload() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixStream;
    let scratch = Scratch::new("listener-owner");
    scratch.write("web/a.txt", "x");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&scratch.0, open).unwrap();
    let socket = scratch.path("http.sock");
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // Debian's fixed numbers (base-passwd): www-data is 33, daemon is 1.
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
    let mut server = ServerUnderTest::start_listening(&scratch, &arguments, &[]);
    expect(0o600, 1, 1);
    let waiting = UnixStream::connect(&socket).unwrap();
    let inode = socket.metadata().unwrap().ino();
    configure("mode=0666", "group=daemon");
    assert_eq!(server.run_command(&["reload"]).0, 0);
    expect(0o666, 33, 1);
    assert_eq!(socket.metadata().unwrap().ino(), inode, "the same socket");
    drop(waiting);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
}

#[test]
fn unix_socket_of_a_dead_server_is_replaced() {
    let scratch = Scratch::new("stale");
    let listener = std::os::unix::net::UnixListener::bind(scratch.path("control.sock"));
    drop(listener.unwrap());
    let server = ServerUnderTest::start(&scratch, &[&create_site(&scratch), "--children", "1"]);
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn reload_moves_the_control_socket_and_the_pid_file() {
    let scratch = Scratch::new("move");
    create_site(&scratch);
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
    // A refused reload creates no files.
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
fn root_follows_no_link_of_the_serving_user() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scratch = Scratch::new("led-astray");
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&scratch.0, open).unwrap();
    scratch.write("web/a.txt", "static");
    // Debian's www-data, the server's user, may do anything in this directory.
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
             [log]\naccess = \"{0}/access.log\"\n[[site]]\nroot = \"web\"\n",
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
    let server = ServerUnderTest::start_listening(&scratch, &["--config", &config], &[]);
    let log = server.log();
    assert!(log.contains("cannot write the pid file"), "{log}");
    for name in ["access.log", "http.sock"] {
        put_link(name);
    }
    server.signal(Signal::USR1);
    wait_until("the refusal", || server.log().contains("LogNotReopened: "));
    assert_eq!(server.get("/a.txt").0, 200);
    configure("mode=0666 owner=daemon");
    let (code, _, err) = server.run_command(&["reload"]);
    assert!(
        code == 3 && err.starts_with("cannot open the log "),
        "{err}"
    );
    fs::remove_file(own.join("access.log")).unwrap();
    assert_eq!(server.run_command(&["reload"]).0, 0);
    wait_until("the refusal", || {
        server
            .log()
            .contains("BindFailed: cannot set the owner of ")
    });
    let there = victim.metadata().unwrap();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "secret");
    assert_eq!((there.uid(), there.mode() & 0o777), (0, 0o644));
}
