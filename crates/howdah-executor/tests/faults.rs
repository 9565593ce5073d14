//! All faults of real PHP processes: which requests each one costs, and that the pool continues to serve.

mod support;

use std::time::{Duration, Instant};

use howdah_executor::{ExecError, Executor, RunEvent, ScriptBody};
use howdah_proto::control::Exit;
use rustix::process::Signal;
use support::php::{PhpSite, kill, parent};
use support::{config, finish, next_event, on_front, until};

const HELLO: &str = "<?php echo 'hello';";
/// A script that outputs that it has begun, and never ends by itself.
const SLEEPER: &str = "<?php echo 'begun'; flush(); while (true) { sleep(100); }";

/// Starts a script that flushes, and waits until it has. Returns the run and its child.
async fn begun(site: &PhpSite, script: &str) -> (Box<dyn howdah_executor::ScriptRun>, u16) {
    site.pool.ready().await.unwrap();
    let mut run = site.start(script, ScriptBody::Empty);
    let mut body = 0;
    loop {
        match next_event(&mut run).await.unwrap() {
            RunEvent::Body(bytes) => body += bytes.len(),
            RunEvent::Flush if body > 0 => break,
            RunEvent::End => panic!("{script} has ended"),
            _ => {}
        }
    }
    let child = run.timing().child.expect("a child has it");
    (run, child)
}

#[test]
fn killed_child_fails_only_its_own_request() {
    let site = PhpSite::new(config(2));
    site.script("hello.php", HELLO);
    site.script("sleep.php", SLEEPER);
    on_front(async {
        let (victim, child) = begun(&site, "sleep.php").await;
        let (neighbour, other) = begun(&site, "sleep.php").await;
        assert_ne!(child, other);
        let queued = site.start("hello.php", ScriptBody::Empty);
        kill(site.pid(child).await, Signal::KILL);
        let error = finish(victim).await.unwrap_err();
        assert_eq!(error, ExecError::ChildDied(Exit::Signal(9)));
        assert_eq!(finish(queued).await.unwrap().body, b"hello");
        assert!(
            site.pool
                .status()
                .children
                .iter()
                .any(|c| c.index == other && c.state == "Busy")
        );
        drop(neighbour);
    });
    site.log.wait_for("ChildDied: child");
}

#[test]
fn php_crash_is_named_with_its_signal_and_the_next_request_is_served() {
    let site = PhpSite::new(config(1));
    site.script("hello.php", HELLO);
    site.script("crash.php", "<?php posix_kill(getmypid(), SIGSEGV);");
    on_front(async {
        for _ in 0..3 {
            let error = site.get("crash.php").await.unwrap_err();
            assert_eq!(error, ExecError::ChildDied(Exit::Signal(11)));
            assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
        }
    });
    site.log.wait_for("signal 11 (SIGSEGV)");
}

#[test]
fn exit_and_fatal_errors_are_responses_not_deaths() {
    let site = PhpSite::new(config(1));
    site.script("exit.php", "<?php echo 'left'; exit(1);");
    site.script("fatal.php", "<?php nothing();");
    site.script(
        "memory.php",
        "<?php ini_set('memory_limit', '4M'); $a = str_repeat('a', 9000000);",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        let answer = site.get("exit.php").await.unwrap();
        assert_eq!((answer.head.status, &answer.body[..]), (200, &b"left"[..]));
        let pid = site.pid(0).await;
        assert_eq!(site.get("fatal.php").await.unwrap().head.status, 500);
        assert_eq!(site.pid(0).await, pid, "the same process goes on");
        // PHP bails out of this request, so another process takes the next one.
        assert_eq!(site.get("memory.php").await.unwrap().head.status, 500);
        let answer = site.get("exit.php").await.unwrap();
        assert_eq!((answer.head.status, &answer.body[..]), (200, &b"left"[..]));
    });
    site.log.wait_for("nothing()");
    site.log.wait_for("Allowed memory size");
}

#[test]
fn killed_zygotes_children_finish_and_a_new_one_serves() {
    let site = PhpSite::new(config(2));
    site.script("hello.php", HELLO);
    let gate = site.path("gate");
    site.script(
        "gate.php",
        "<?php echo 'begun'; flush(); while (!file_exists(__DIR__.'/gate')) { usleep(1000); clearstatcache(); } echo ' done';",
    );
    on_front(async {
        let (mut run, child) = begun(&site, "gate.php").await;
        let pid = site.pid(child).await;
        kill(parent(pid), Signal::KILL);
        site.log.wait_for("ZygoteDied");
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
        std::fs::write(&gate, "").unwrap();
        let mut rest = Vec::new();
        loop {
            match next_event(&mut run).await.unwrap() {
                RunEvent::Body(bytes) => rest.extend_from_slice(&bytes),
                RunEvent::End => break,
                _ => {}
            }
        }
        assert_eq!(rest, b" done");
        until("the old child leaves", || {
            site.pool.status().children.iter().all(|c| c.pid != pid)
        })
        .await;
    });
}

/// Returns the zygote of the child that responds. A child whose zygote has just died may still respond; its parent is
/// init then.
async fn living_parent(site: &PhpSite) -> i32 {
    loop {
        let parent = site.get("parent.php").await.unwrap().body;
        let parent = String::from_utf8(parent).unwrap().parse().unwrap();
        if parent != 1 {
            return parent;
        }
    }
}

#[test]
fn zygote_that_has_served_is_restarted_at_once_however_often_it_dies() {
    let site = PhpSite::new(config(1));
    site.script("parent.php", "<?php echo posix_getppid();");
    on_front(async {
        site.pool.ready().await.unwrap();
        for _ in 0..5 {
            let zygote = living_parent(&site).await;
            kill(zygote, Signal::KILL);
            site.log
                .wait_for(&format!("the zygote (pid {zygote}) exited"));
        }
        site.get("parent.php").await.unwrap();
    });
    assert_eq!(
        site.log.count("a new zygote starts in"),
        0,
        "{:?}",
        site.log.all()
    );
}

#[test]
fn requests_behind_hung_children_are_refused_in_time_and_served_when_those_are_gone() {
    let mut config = config(2);
    config.queue_timeout = Duration::from_millis(500);
    let site = PhpSite::new(config);
    site.script("hello.php", HELLO);
    site.script("sleep.php", SLEEPER);
    on_front(async {
        let (one, first) = begun(&site, "sleep.php").await;
        let (two, _) = begun(&site, "sleep.php").await;
        let begin = Instant::now();
        assert_eq!(
            site.get("hello.php").await.unwrap_err(),
            ExecError::QueueTimeout
        );
        let waited = begin.elapsed();
        assert!(waited >= Duration::from_millis(500), "{waited:?}");
        kill(site.pid(first).await, Signal::KILL);
        assert!(finish(one).await.is_err());
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
        drop(two);
    });
}

#[test]
fn terminate_timeout_ends_sleep_loops_flock_and_shutdown_functions() {
    let mut config = config(1);
    config.request_terminate_timeout = Some(Duration::from_millis(150));
    config.track_finished = true;
    let site = PhpSite::new(config);
    site.script("hello.php", HELLO);
    site.script("sleep.php", "<?php sleep(100);");
    site.script("loop.php", "<?php set_time_limit(0); while (true) {}");
    site.script(
        "flock.php",
        "<?php $f = fopen(__DIR__.'/lock', 'c'); flock($f, LOCK_EX);",
    );
    site.script(
        "shutdown.php",
        "<?php register_shutdown_function(function () { while (true) { sleep(100); } });
         echo 'answered'; fastcgi_finish_request();",
    );
    let lock = std::fs::File::create(site.path("lock")).unwrap();
    lock.lock().unwrap();
    on_front(async {
        site.pool.ready().await.unwrap();
        for script in ["sleep.php", "loop.php", "flock.php"] {
            assert_eq!(
                site.get(script).await.unwrap_err(),
                ExecError::TerminateTimeout,
                "{script}"
            );
            assert_eq!(
                site.get("hello.php").await.unwrap().body,
                b"hello",
                "{script}"
            );
        }
        // The response was in time, and the child is killed for its work afterwards.
        assert_eq!(site.get("shutdown.php").await.unwrap().body, b"answered");
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
    });
    assert_eq!(site.log.count("TerminateTimeout"), 4);
}

#[test]
fn work_after_a_complete_response_may_exceed_the_terminate_timeout() {
    let mut config = config(1);
    config.request_terminate_timeout = Some(Duration::from_millis(150));
    let site = PhpSite::new(config);
    site.script("hello.php", HELLO);
    site.script(
        "finished.php",
        "<?php echo 'answered'; fastcgi_finish_request(); usleep(600000); touch(__DIR__.'/done');",
    );
    site.script(
        "shutdown.php",
        "<?php register_shutdown_function(function () { while (true) { sleep(100); } });
         echo 'answered'; fastcgi_finish_request();",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        assert_eq!(site.get("finished.php").await.unwrap().body, b"answered");
        // This waits for the only child, which is not killed.
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
        assert!(site.path("done").exists(), "{:?}", site.log.all());
        assert_eq!(site.log.count("TerminateTimeout"), 0);
        assert_eq!(site.get("shutdown.php").await.unwrap().body, b"answered");
        // The script delays the end of its pool no longer than a request would.
        site.pool.drain(None, Duration::from_millis(300));
        site.pool.drained().await;
    });
    assert_eq!(site.log.count("TerminateTimeout"), 0);
    assert_eq!(site.log.count("Stopping"), 1);
}

#[test]
fn script_that_ignores_sigterm_is_killed_a_second_later() {
    let mut config = config(1);
    config.request_terminate_timeout = Some(Duration::from_millis(100));
    let site = PhpSite::new(config);
    site.script("hello.php", HELLO);
    site.script(
        "deaf.php",
        "<?php if (!function_exists('pcntl_signal')) { posix_kill(getmypid(), SIGSTOP); }
         pcntl_async_signals(true); pcntl_signal(SIGTERM, function () {}); while (true) { sleep(100); }",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        assert_eq!(
            site.get("deaf.php").await.unwrap_err(),
            ExecError::TerminateTimeout
        );
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
    });
}

#[test]
fn client_that_leaves_frees_the_child_at_the_next_write() {
    let site = PhpSite::new(config(1));
    site.script("hello.php", HELLO);
    site.script(
        "ticker.php",
        "<?php while (true) { echo 'tick'; flush(); usleep(1000); }",
    );
    site.script(
        "large.php",
        "<?php while (true) { echo str_repeat('x', 100000); }",
    );
    on_front(async {
        for script in ["ticker.php", "large.php"] {
            let mut run = site.start(script, ScriptBody::Empty);
            assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Head(_))));
            drop(run);
            assert_eq!(
                site.get("hello.php").await.unwrap().body,
                b"hello",
                "{script}"
            );
        }
        // The client disconnects in the middle of an upload: the script sees the end of its input.
        site.script(
            "upload.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        );
        let (tx, rx) = tokio::sync::mpsc::channel(1);
        let run = site.start("upload.php", ScriptBody::Stream(rx));
        tx.send(Ok(support::bytes(1000))).await.unwrap();
        drop(run);
        assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
    });
}

/// The client of a background request disconnects at once. The script must not take a part of a form for the whole.
#[test]
fn body_that_has_arrived_reaches_the_script_whole_without_a_client() {
    let mut settings = config(1);
    // PHP would otherwise read the body before the script begins.
    let reading = ("enable_post_data_reading".to_owned(), "0".to_owned());
    settings.defines.push(reading);
    let site = PhpSite::new(settings);
    site.script("hello.php", HELLO);
    let store =
        "copy('php://input', __DIR__ . '/part'); rename(__DIR__ . '/part', __DIR__ . '/whole');";
    site.script(
        "left.php",
        &format!(
            "<?php ignore_user_abort(true); \
             do {{ echo 'x'; flush(); usleep(1000); }} while (!connection_aborted()); {store}"
        ),
    );
    site.script(
        "finished.php",
        &format!("<?php echo 'done'; fastcgi_finish_request(); {store}"),
    );
    let body = support::bytes(2_000_000);
    std::fs::write(site.path("spooled"), &body).unwrap();
    let bodies = || {
        let file = std::fs::File::open(site.path("spooled")).unwrap();
        [
            ScriptBody::Memory(body.clone()),
            ScriptBody::File(file, body.len() as u64),
        ]
    };
    on_front(async {
        for script in ["left.php", "finished.php"] {
            for sent in bodies() {
                let mut run = site.start(script, sent);
                let ends = |event: &RunEvent| matches!(event, RunEvent::Flush | RunEvent::End);
                while !ends(&next_event(&mut run).await.unwrap()) {}
                drop(run);
                let whole = site.path("whole");
                until("the script has the body", || whole.exists()).await;
                let got = std::fs::read(&whole).unwrap();
                assert!(got == body, "{script} got {} bytes", got.len());
                std::fs::remove_file(&whole).unwrap();
                assert_eq!(site.get("hello.php").await.unwrap().body, b"hello");
            }
        }
    });
}

#[test]
fn slow_log_shows_the_stack_of_the_running_script() {
    let mut config = config(1);
    config.request_slowlog_timeout = Some(Duration::from_millis(60));
    let site = PhpSite::new(config);
    site.script(
        "slow.php",
        "<?php function dawdle() { usleep(400000); }\ndawdle(); echo 'late';",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        assert_eq!(site.get("slow.php").await.unwrap().body, b"late");
        assert_eq!(site.pool.status().slow_requests, 1);
    });
    let line = site.log.wait_for("SlowRequest");
    assert!(line.contains("GET /slow.php"), "{line}");
    assert!(
        line.contains("dawdle") && line.contains("slow.php:2"),
        "{line}"
    );
}

#[test]
fn start_failure_is_named() {
    let mut broken = config(1);
    broken.user = Some("no-such-user-here".to_owned());
    let site = PhpSite::new(broken);
    on_front(async {
        let error = site.pool.ready().await.unwrap_err();
        let ExecError::PoolDown { name, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(name, "NoSuchUser");
        site.script("hello.php", HELLO);
        assert_eq!(site.get("hello.php").await.unwrap_err().name(), "PoolDown");
    });
    site.log.wait_for("NoSuchUser");
}
