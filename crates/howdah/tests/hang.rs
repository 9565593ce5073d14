//! A front that hangs: the master notices it, reports it to clients of the control socket, and starts another front.
//! Also a service manager that watches the master.

mod support;

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use support::{Scratch, Server, front_of, is_gone, kill, site, wait_until};

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
    // No client waits forever in the meantime.
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
