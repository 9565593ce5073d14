//! Clients and scripts that try to keep PHP processes from other clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http::Connection;
use howdah_tests::load::{Load, LoadEnd};
use rustix::process::Signal;

/// Returns a client that has asked for PHP's upload progress and has sent more of an upload than the front keeps in
/// memory, but not the rest.
fn upload_with_progress(fixture: &Fixture) -> Connection {
    let mut client = Connection::open(fixture.address()).unwrap();
    let mut request = String::from(
        "POST /hello.php HTTP/1.1\r\nHost: x\r\nContent-Length: 7900000\r\n\
         Content-Type: multipart/form-data; boundary=b\r\n\r\n\
         --b\r\nContent-Disposition: form-data; name=\"PHP_SESSION_UPLOAD_PROGRESS\"\r\n\r\n1\r\n\
         --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n",
    );
    request.push_str(&"x".repeat(70_000));
    client.send(request).unwrap();
    client
}

#[test]
fn slow_uploads_that_ask_for_progress_leave_children_to_visitors() {
    for (name, buffering) in [("default", ""), ("auto", "request_buffering = \"auto\"")] {
        let fixture = Fixture::named(&format!("progress-{name}"))
            .children(2)
            .ini("post_max_size", "8M")
            .site(buffering)
            .start();
        let uploads: Vec<Connection> = (0..4).map(|_| upload_with_progress(&fixture)).collect();
        // Each visitor is served immediately while the uploads are stalled.
        for _ in 0..20 {
            let answer = fixture.get("/hello.php");
            assert_eq!((answer.status(), answer.text().as_str()), (200, HELLO));
        }
        let active = fixture.status()["pools"][0]["active_processes"].clone();
        let most = if buffering.is_empty() { 0 } else { 1 };
        assert!(
            active.as_u64().unwrap() <= most,
            "{active} processes are occupied"
        );
        drop(uploads);
    }
}

#[test]
fn clients_that_ask_and_leave_at_once_do_not_push_in_before_visitors() {
    let fixture = Fixture::named("leavers")
        .children(4)
        .script("slow.php", "<?php usleep(100_000); echo 'slow';")
        .pool("queue_timeout = \"8s\"")
        .start();
    let address = fixture.address();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let mut leaver = Connection::open_elsewhere(address).unwrap();
                    leaver
                        .send("GET /slow.php HTTP/1.1\r\nHost: x\r\n\r\n")
                        .unwrap();
                    leaver
                        .stream()
                        .set_read_timeout(Some(Duration::from_millis(5)))
                        .unwrap();
                    // No response arrives so soon: the client waits for a moment and then disconnects.
                    let _ = leaver.read_head();
                }
            });
        }
        // Soon these clients occupy only three children: by then the server has recognised them.
        fixture.wait("the children to be busy", |f| {
            f.status()["pools"][0]["active_processes"].as_u64() >= Some(3)
        });
        let answers: Vec<_> = (0..20)
            .map(|_| fixture.get("/hello.php").status())
            .collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(answers, [200; 20]);
    });
}

#[test]
fn load_test_after_one_that_has_left_its_requests_is_served() {
    let fixture = Fixture::named("load-tests")
        .children(4)
        .script("slow.php", "<?php usleep(70_000); echo 'slow';")
        .start();
    // One client sends more requests than may wait for a permit under a limit of `processes`.
    let begin = || -> Vec<Connection> {
        let request = "GET /slow.php HTTP/1.1\r\nHost: x\r\n\r\n";
        let one = |_| {
            let mut client = Connection::open(fixture.address()).unwrap();
            client.send(request).unwrap();
            client
        };
        (0..100).map(one).collect()
    };
    for _ in 0..3 {
        let left = begin();
        fixture.wait("the children to be busy", |f| {
            f.status()["pools"][0]["active_processes"].as_u64() >= Some(3)
        });
        drop(left);
    }
    for mut client in begin() {
        let answer = client.read_response("GET").unwrap();
        assert_eq!((answer.status(), answer.text().as_str()), (200, "slow"));
    }
}

#[test]
fn slow_reader_of_more_than_memory_and_file_does_not_keep_its_child() {
    let builder = Fixture::named("slow-reader").children(1);
    builder.scratch().writable_dir("spill");
    let fixture = builder
        .config("[limits]\nspill_directory = \"SCRATCH/spill\"\nresponse_spill = \"1M\"")
        .script(
            "endless.php",
            "<?php while (!connection_aborted()) { echo str_repeat('x', 65536); }",
        )
        .start();
    let mut slow = Connection::open(fixture.address()).unwrap();
    slow.send("GET /endless.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    assert_eq!(slow.read_head().unwrap().status, 200);
    // There is one child: a new request waits for it, but not until the queue's timeout (30 s) or the script's timeout
    // (300 s) expires.
    for _ in 0..3 {
        fixture.still_serves();
    }
    fixture.wait_for_log(&["ClientTooSlow", "/endless.php"]);
}

/// Returns the number of processes whose parent is `pid`, including exited ones.
fn children_of(pid: i32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().count()
}

#[test]
fn scripts_that_fork_and_forget_use_up_no_processes() {
    let fork = "<?php for ($i = 0; $i < 10; $i++) { if (!pcntl_fork()) { exit; } } echo 'forked';";
    let fixture = Fixture::named("forks")
        .script("fork.php", fork)
        .command_line_php()
        .start();
    for _ in 0..20 {
        assert_eq!(fixture.get("/fork.php").text(), "forked");
    }
    // Exited processes are reaped even if there is no further request.
    let children = fixture.children();
    fixture.wait("no forked process to be left", |_| {
        children.iter().all(|pid| children_of(*pid) == 0)
    });
    fixture.still_serves();
}

#[test]
fn no_process_runs_more_requests_than_the_pool_allows_however_many_clients_press() {
    let fixture = Fixture::named("max-requests")
        .children(2)
        .pool("max_requests = 25")
        .start();
    let pids = std::sync::Mutex::new(std::collections::HashMap::<String, u32>::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let answer = fixture.get("/pid.php");
                    assert_eq!(answer.status(), 200);
                    *pids.lock().unwrap().entry(answer.text()).or_default() += 1;
                }
            });
        }
    });
    let pids = pids.into_inner().unwrap();
    assert_eq!(pids.values().sum::<u32>(), 400);
    assert!(pids.values().all(|n| *n <= 25), "{pids:?}");
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-cgi")]
fn spawner_killed_repeatedly_under_load_loses_no_waiting_request() {
    let fixture = Fixture::named("spawner")
        .children(2)
        .pool("mode = \"pool\"")
        .start();
    let load = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(4)
        .start(LoadEnd::OnFinish);
    for _ in 0..4 {
        load.wait_for(20);
        let master = fixture.master();
        let front = fixture.front();
        let spawner = fixture
            .processes()
            .into_iter()
            .find(|e| e.parent == master && e.pid != front)
            .expect("a spawner");
        signal(spawner.pid, Signal::KILL);
        fixture.wait("the spawner to exit", |f| {
            f.processes().iter().all(|e| e.pid != spawner.pid)
        });
    }
    load.wait_for(20);
    let outcome = load.finish();
    println!("four spawners killed: {outcome}");
    // The current request of a killed program is lost; no other request is refused.
    assert_eq!(outcome.status(503), 0, "{outcome}");
}
