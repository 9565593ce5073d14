//! PHP's time limit, seen from inside by `getitimer()`, or by `timer_gettime()` in a thread-safe PHP: whichever system
//! calls are skipped, a script runs under the timer that its settings request.

mod front;

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::request::IniKind;

/// Defines `$left()`, which returns the remaining seconds of PHP's timer, rounded; 0 means not armed. Needs ext/ffi.
/// The only timer of a process has the number 0 in a thread-safe PHP.
const TIMER_SCRIPT: &str = "<?php $c = FFI::cdef('struct t { long v[4]; }; int getitimer(int, struct t *); \
    int timer_gettime(void *, struct t *);'); $t = $c->new('struct t'); $left = function () use ($c, $t) { \
    $failed = PHP_ZTS ? $c->timer_gettime(null, FFI::addr($t)) : $c->getitimer(2, FFI::addr($t)); \
    return $failed ? 'failed' : round($t->v[2] + $t->v[3] / (PHP_ZTS ? 1e9 : 1e6)); };";

fn pool(args: &[&str]) -> Option<TestFront> {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo class_exists('FFI') ? 'yes' : 'no';");
    let mut front = TestFront::start(1, &[&["-d", "ffi.enable=1"], args].concat());
    if front.run(FrontRequest::get(&script)).text() == "yes" {
        return Some(front);
    }
    eprintln!("skipped: the FFI extension is not there");
    None
}

#[test]
fn time_limit_is_per_request() {
    check_own_limit_per_request("max_input_time=60");
}

/// With `max_input_time=-1`, PHP arms its timer once, before it reads the request.
#[test]
fn time_limit_is_per_request_without_max_input_time() {
    check_own_limit_per_request("max_input_time=-1");
}

fn check_own_limit_per_request(input: &str) {
    let Some(mut front) = pool(&["-d", "max_execution_time=30", "-d", input]) else {
        return;
    };
    let dir = TestDir::new();
    let script = dir.write("a.php", &format!("{TIMER_SCRIPT} echo $left();"));
    let ask = |front: &mut TestFront, seconds: Option<&str>, body: bool| {
        let mut request = FrontRequest::get(&script);
        if let Some(seconds) = seconds {
            request = request.ini(IniKind::Value, "max_execution_time", seconds);
        }
        if body {
            request = request.body("application/x-www-form-urlencoded", b"a=1");
        }
        front.run(request).text()
    };
    // Quick requests leave the timer running; the next request must not notice that.
    for _ in 0..2 {
        assert_eq!(ask(&mut front, None, false), "30");
        assert_eq!(ask(&mut front, None, false), "30");
        assert_eq!(ask(&mut front, None, true), "30");
        assert_eq!(ask(&mut front, Some("7"), false), "7");
        assert_eq!(ask(&mut front, Some("0"), false), "0");
        assert_eq!(ask(&mut front, None, false), "30");
        assert_eq!(ask(&mut front, Some("100"), true), "100");
        assert_eq!(ask(&mut front, Some("-1"), false), "0");
    }
}

#[test]
fn time_limit_set_by_the_script_applies_at_once() {
    let Some(mut front) = pool(&["-d", "max_execution_time=30"]) else {
        return;
    };
    let dir = TestDir::new();
    let look = "echo $left(), ' ';";
    let script = dir.write(
        "a.php",
        &format!(
            "{TIMER_SCRIPT} set_time_limit(11); {look} set_time_limit(0); {look} set_time_limit(20); {look} \
             register_shutdown_function(function () use ($left) {{ set_time_limit(0); {look} set_time_limit(40); {look} }});"
        ),
    );
    let plain = dir.write("b.php", &format!("{TIMER_SCRIPT} echo $left();"));
    for _ in 0..2 {
        assert_eq!(
            front.run(FrontRequest::get(&script)).text(),
            "11 0 20 0 40 "
        );
        assert_eq!(front.run(FrontRequest::get(&plain)).text(), "30");
    }
}

#[test]
fn timer_does_not_run_without_limits() {
    let args = ["-d", "max_execution_time=0", "-d", "max_input_time=-1"];
    let Some(mut front) = pool(&args) else { return };
    let dir = TestDir::new();
    let set = dir.write("set.php", "<?php set_time_limit(50);");
    let plain = dir.write("b.php", &format!("{TIMER_SCRIPT} echo $left();"));
    for _ in 0..2 {
        assert_eq!(front.run(FrontRequest::get(&plain)).text(), "0");
        front.run(FrontRequest::get(&set));
    }
}

#[test]
fn time_limit_applies_after_requests_that_kept_the_timer() {
    let args = ["-d", "max_execution_time=30", "-d", "display_errors=1"];
    let mut front = TestFront::start(1, &args);
    front.replaces_bailed_out = true;
    let dir = TestDir::new();
    let quick = dir.write("a.php", "<?php echo 'quick';");
    let spin = dir.write("b.php", "<?php set_time_limit(1); while (true);");
    for _ in 0..2 {
        for _ in 0..5 {
            assert_eq!(front.run(FrontRequest::get(&quick)).text(), "quick");
        }
        let text = front.run(FrontRequest::get(&spin)).text();
        assert!(
            text.contains("Maximum execution time of 1 second exceeded"),
            "{text}"
        );
    }
}

#[test]
fn time_limit_of_a_thread_safe_php_counts_sleep() {
    let mut front = TestFront::start(
        1,
        &["-d", "max_execution_time=30", "-d", "display_errors=1"],
    );
    front.replaces_bailed_out = true;
    let dir = TestDir::new();
    let quick = dir.write("a.php", "<?php echo PHP_ZTS;");
    let sleeping = dir.write(
        "b.php",
        "<?php set_time_limit(20); set_time_limit(1); while (true) usleep(1000);",
    );
    for _ in 0..2 {
        if front.run(FrontRequest::get(&quick)).text() != "1" {
            eprintln!("skipped: this PHP is not thread-safe");
            return;
        }
        let text = front.run(FrontRequest::get(&sleeping)).text();
        assert!(
            text.contains("Maximum execution time of 1 second exceeded"),
            "{text}"
        );
    }
}
