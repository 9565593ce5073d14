//! A front that hangs: the master notices it, reports it to clients of the control socket, and starts another front.
//! The tests also cover a service manager that watches the master.

mod support;

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use support::{Scratch, ServerUnderTest, create_site, front_pid, is_gone, kill, wait_until};

#[test]
fn hung_front_is_killed_and_restarted() {
    let scratch = Scratch::new("hang");
    let config = scratch.write("howdah.toml", "[timeouts]\nhang = \"3s\"\n");
    let root = create_site(&scratch);
    let arguments = [
        &root,
        "--children",
        "1",
        "--config",
        config.to_str().unwrap(),
    ];
    let server = ServerUnderTest::start(&scratch, &arguments);
    let front = front_pid(&server);
    let name = fs::read_to_string(format!("/proc/{front}/comm")).unwrap();
    assert_eq!(name, "howdah\n");
    kill(front, Signal::STOP);
    // No client waits forever in the meantime.
    let (code, _, err) = server.run_command(&["reload"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("the front exited: signal 9"), "{err}");
    assert!(is_gone(front));
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    let log = server.log();
    let named = format!("FrontHung: the front (process {front}) has made no progress for 3 s");
    assert!(log.contains(&named), "{log}");
    assert!(log.contains("is stopped by a signal"), "{log}");
}

#[test]
fn stopped_front_is_reported_to_clients_and_a_late_reload_is_still_served() {
    let scratch = Scratch::new("silent");
    let text = "[timeouts]\nhang = \"1d\"\nstart = \"1s\"\n";
    let config = scratch.write("howdah.toml", text);
    let root = create_site(&scratch);
    let config = config.to_str().unwrap();
    let server = ServerUnderTest::start(&scratch, &[&root, "--children", "1", "--config", config]);
    let front = front_pid(&server);
    kill(front, Signal::STOP);
    std::thread::scope(|scope| {
        let status = scope.spawn(|| server.run_command(&["status"]));
        let (code, _, err) = server.run_command(&["reload"]);
        assert_eq!(code, 1, "{err}");
        assert!(err.contains("ReloadTimeout: "), "{err}");
        let (code, _, err) = status.join().unwrap();
        assert_eq!(code, 1, "{err}");
        let named = format!("FrontSilent: the front (process {front}) has not responded");
        assert!(err.contains(&named), "{err}");
        assert!(err.contains("is stopped by a signal"), "{err}");
    });
    kill(front, Signal::CONT);
    wait_until("the reload", || {
        server.log().contains("reloaded: configuration 2 is in use")
    });
    assert_eq!(server.get("/"), (200, "one".to_owned()));
    assert_eq!(front_pid(&server), front);
}

#[test]
fn watchdog_of_a_service_manager_is_notified() {
    let scratch = Scratch::new("watchdog");
    let path = scratch.path("notify.sock");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let every = Path::new("200000");
    let env = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", every)];
    let _server =
        ServerUnderTest::start_with(&scratch, &[&create_site(&scratch), "--children", "1"], &env);
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
