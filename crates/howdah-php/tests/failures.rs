//! Scripts that end badly: the response that php-fpm would give, a named log line, and a process that is either fit for
//! the next request or gone.

mod front;

use front::{ChildResponse, FrontRequest, TestDir, TestFront};
use howdah_proto::control::{Exit, ZygoteReport};
use howdah_proto::shm::EXIT_BAILED_OUT;

const QUIET_SETTINGS: &[&str] = &[
    "-d",
    "display_errors=0",
    "-d",
    "log_errors=1",
    "-d",
    "error_log=",
    "-d",
    "html_errors=0",
];

/// Runs the text, then a valid script, which must work. Only a bailout costs the process; see the test of
/// `EXIT_BAILED_OUT`.
fn run_then_valid_script(text: &str, args: &[&str]) -> ChildResponse {
    let (answer, exit) = answer_and_exit(text, args);
    assert!(
        matches!(exit, None | Some(Exit::Code(EXIT_BAILED_OUT))),
        "{text}: {exit:?}"
    );
    answer
}

/// Runs the text, then a valid script, which must work, in another process if the first one has exited.
fn answer_and_exit(text: &str, args: &[&str]) -> (ChildResponse, Option<Exit>) {
    let dir = TestDir::new();
    let (script, sound) = (
        dir.write("bad.php", text),
        dir.write("good.php", "<?php echo 'fit';"),
    );
    let mut front = TestFront::start(1, &[QUIET_SETTINGS, args].concat());
    let child = front.children[0].0;
    let answer = front.run(FrontRequest::get(&script));
    front.wait_child(child, |c| c.busy_since.is_none());
    let exit = if front.pool.child_status(child.index).spent {
        let exited = |report: &ZygoteReport| matches!(report, ZygoteReport::Exited { .. });
        let ZygoteReport::Exited { exit, .. } = front.wait_report(exited) else {
            unreachable!("only this kind of report is waited for");
        };
        let (successor, _) = front.spawn(0);
        front.wait_child(successor, |c| c.live);
        Some(exit)
    } else {
        None
    };
    let next = front.run(FrontRequest::get(&sound));
    assert_eq!((next.status(), next.text()), (200, "fit".into()), "{text}");
    (answer, exit)
}

#[test]
fn bailout_ends_the_process_and_exit_does_not() {
    let gone = Some(Exit::Code(EXIT_BAILED_OUT));
    for (text, expected) in [
        (
            "<?php ini_set('memory_limit', '16M'); $s = str_repeat('x', 32 << 20);",
            gone,
        ),
        ("<?php trigger_error('by hand', E_USER_ERROR);", gone),
        ("<?php set_time_limit(1); while (true);", gone),
        ("<?php function a() {} eval('function a() {}');", gone),
        // PHP's own shutdown catches the bailout of a shutdown function, an output handler or a destructor.
        (
            "<?php register_shutdown_function(fn () => trigger_error('late', E_USER_ERROR));",
            gone,
        ),
        (
            "<?php ob_start(function ($t) { trigger_error('held', E_USER_ERROR); return $t; }); echo 1;",
            gone,
        ),
        (
            "<?php class A { function __destruct() { trigger_error('end', E_USER_ERROR); } } $a = new A;",
            gone,
        ),
        ("<?php echo 'a'; exit;", None),
        ("<?php exit(3);", None),
        (
            "<?php (function () { try { exit; } finally { echo 'never'; } })();",
            None,
        ),
        ("<?php throw new RuntimeException('thrown');", None),
        ("<?php nothing_of_that_name();", None),
        ("<?php this is no php", None),
    ] {
        let (_, exit) = answer_and_exit(text, &[]);
        assert_eq!(exit, expected, "{text}");
    }
}

#[test]
fn fatal_errors_are_500_with_a_log_line() {
    for (text, log) in [
        (
            "<?php nothing_of_that_name();",
            "undefined function nothing_of_that_name()",
        ),
        (
            "<?php throw new RuntimeException('thrown');",
            "Uncaught RuntimeException: thrown",
        ),
        ("<?php this is no php", "syntax error"),
        (
            "<?php ini_set('memory_limit', '16M'); $s = str_repeat('x', 32 << 20);",
            "Allowed memory size",
        ),
        ("<?php trigger_error('by hand', E_USER_ERROR);", "by hand"),
        ("<?php require 'not-there.php';", "Failed opening required"),
        (
            "<?php class A { function __destruct() { nope(); } } $a = new A; $a = null;",
            "undefined function nope",
        ),
    ] {
        let answer = run_then_valid_script(text, &[]);
        assert_eq!(
            (answer.status(), answer.text()),
            (500, String::new()),
            "{text}"
        );
        assert!(answer.logged(log), "{text}: {:?}", answer.logs);
    }
}

#[test]
fn error_after_output_keeps_the_sent_status() {
    let answer = run_then_valid_script("<?php echo 'begun'; @ob_flush(); flush(); nope();", &[]);
    assert_eq!((answer.status(), answer.text()), (200, "begun".into()));
    assert!(answer.logged("nope"));
}

#[test]
fn displayed_errors_appear_in_the_page() {
    let answer = run_then_valid_script(
        "<?php echo $undefined; echo 'on';",
        &["-d", "display_errors=1"],
    );
    assert!(answer.text().contains("Undefined variable $undefined"));
    assert!(answer.text().ends_with("on"));
}

#[test]
fn exit_is_not_a_failure() {
    for (text, body) in [
        ("<?php echo 'a'; exit; echo 'b';", "a"),
        ("<?php exit('text');", "text"),
        ("<?php exit(1);", ""),
        (
            "<?php register_shutdown_function(function () { echo 'down'; }); exit(3);",
            "down",
        ),
    ] {
        let answer = run_then_valid_script(text, &[]);
        assert_eq!(
            (answer.status(), answer.text()),
            (200, body.into()),
            "{text}"
        );
    }
}

#[test]
fn time_limit_ends_a_loop() {
    let answer = run_then_valid_script("<?php set_time_limit(1); while (true);", &[]);
    assert_eq!(answer.status(), 500);
    assert!(answer.logged("Maximum execution time of 1 second exceeded"));
    // The limit of one request is not the limit of the next.
    let answer = run_then_valid_script(
        "<?php echo ini_get('max_execution_time');",
        &["-d", "max_execution_time=7"],
    );
    assert_eq!(answer.text(), "7");
}

#[test]
fn post_above_the_memory_limit_is_a_500_and_not_a_dead_child() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo 'ran';");
    let mut front = TestFront::start(1, &[QUIET_SETTINGS, &["-d", "memory_limit=2M"]].concat());
    let body = [b"a=".to_vec(), vec![b'x'; 6 << 20]].concat();
    let request =
        FrontRequest::new("POST", &script).body("application/x-www-form-urlencoded", &body);
    let answer = front.run(request);
    assert_eq!(
        (answer.status(), answer.died),
        (500, None),
        "{}",
        answer.text()
    );
    assert!(answer.logged("Allowed memory size"), "{:?}", answer.logs);
    front.wait_report(|report| matches!(report, ZygoteReport::Exited { .. }));
    let (child, _) = front.spawn(0);
    front.wait_child(child, |c| c.live);
    assert_eq!(front.run(FrontRequest::get(&script)).text(), "ran");
}

#[test]
fn missing_script_is_a_404() {
    let dir = TestDir::new();
    let mut front = TestFront::start(1, QUIET_SETTINGS);
    for path in ["nowhere.php", "../etc/passwd", "sub/../nowhere.php"] {
        let answer = front.run(FrontRequest::get(&dir.0.join(path)));
        assert_eq!(
            (answer.status(), answer.text()),
            (404, "File not found.\n".into()),
            "{path}"
        );
        assert!(answer.logged("ScriptUnknown"), "{:?}", answer.logs);
    }
    let answer = front.run(FrontRequest::get(std::path::Path::new("")));
    assert_eq!(answer.status(), 404);
}

#[test]
fn unreadable_script_is_a_403() {
    use std::os::unix::fs::PermissionsExt;
    if !front::sys::is_root() {
        return eprintln!("skipped: only root can start a pool as another user");
    }
    let dir = TestDir::new();
    let script = dir.write("secret.php", "<?php echo 'leaked';");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o600)).unwrap();
    let mut front = TestFront::start(1, &[QUIET_SETTINGS, &["--user", "nobody"]].concat());
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(
        (answer.status(), answer.text()),
        (403, "Access denied.\n".into())
    );
    assert!(answer.logged("ScriptUnreadable"), "{:?}", answer.logs);
}

#[test]
fn crash_loses_only_its_own_request() {
    let dir = TestDir::new();
    let crash = dir.write(
        "crash.php",
        "<?php echo 'x'; @ob_flush(); flush(); posix_kill(posix_getpid(), 11);",
    );
    let sound = dir.write("good.php", "<?php echo 'fit';");
    let mut front = TestFront::start(2, QUIET_SETTINGS);
    let answer = front.run(FrontRequest::get(&crash));
    assert_eq!(answer.died, Some(Exit::Signal(11)));
    assert_eq!(answer.text(), "x");
    for _ in 0..4 {
        assert_eq!(front.run(FrontRequest::get(&sound)).text(), "fit");
    }
    let (child, _) = front.spawn(0);
    front.wait_child(child, |c| c.live);
    assert_eq!(front.run(FrontRequest::get(&sound)).text(), "fit");
}

#[test]
fn client_disconnect_ends_the_script_at_its_next_write() {
    let dir = TestDir::new();
    let out = dir.0.join("out");
    let script = dir.write(
        "endless.php",
        "<?php ignore_user_abort($_SERVER['IGNORE'] === 'yes'); \
         register_shutdown_function(function () { file_put_contents($_SERVER['OUT'], $GLOBALS['i'] . ' ' . connection_status()); }); \
         for ($i = 0; $i < 1000000; $i++) { echo str_repeat('x', 1000); flush(); \
         if ($i > 5 && connection_aborted()) { $i = 'noticed'; break; } }",
    );
    let mut front = TestFront::start(1, &[QUIET_SETTINGS, &["-d", "output_buffering=0"]].concat());
    for (ignore, expect) in [("no", "1"), ("yes", "noticed 1")] {
        let request = FrontRequest::get(&script)
            .var("OUT", out.to_str().unwrap())
            .var("IGNORE", ignore);
        let mut flight = front.publish(request);
        front.drive_until(&mut flight, |a| !a.body.is_empty());
        front.abort(&flight);
        front.drive_until(&mut flight, |_| false);
        let told = std::fs::read_to_string(&out).unwrap();
        assert!(told.ends_with(expect), "{ignore}: {told}");
    }
}

#[test]
fn client_disconnect_wakes_a_script_that_waits_for_buffer_space() {
    let dir = TestDir::new();
    let script = dir.write(
        "flood.php",
        "<?php while (true) { echo str_repeat('x', 100000); }",
    );
    let mut front = TestFront::start(1, QUIET_SETTINGS);
    let child = front.children[0].0;
    let mut flight = front.publish(FrontRequest::get(&script));
    front.wait_child(child, |c| c.busy_since.is_some());
    front.drive_until(&mut flight, |a| a.body.len() > 200_000);
    // The test stops reading: the ring fills up and the child sleeps.
    front.abort(&flight);
    front.drive_until(&mut flight, |_| false);
    front.wait_child(child, |c| c.busy_since.is_none());
}

#[test]
fn client_disconnect_wakes_a_script_that_waits_for_its_body() {
    let dir = TestDir::new();
    let script = dir.write(
        "reader.php",
        "<?php echo strlen(file_get_contents('php://input'));",
    );
    let mut front = TestFront::start(1, QUIET_SETTINGS);
    let child = front.children[0].0;
    let request = FrontRequest::new("PUT", &script).chunked("text/plain", b"abc");
    let mut flight = front.publish_part(request, false);
    front.poll_flight(&mut flight);
    front.wait_child(child, |c| c.busy_since.is_some());
    front.abort(&flight);
    front.end_body(&flight, false);
    front.drive_until(&mut flight, |_| false);
}
