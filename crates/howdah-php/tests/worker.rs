//! A worker's life: boot, requests, the ways in which a request can end it, its own end. `worker_leaks.rs` tests what
//! one request may leave for the next.

mod front;

use front::worker::{Worker, first_message, start_worker_pool};
use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::control::{Exit, ZygoteReport};
use howdah_proto::level::LogLevel;
use howdah_proto::worker::WorkerMessage;

/// Runs this code in a worker and returns its response and how its process exits.
#[track_caller]
fn response_and_exit(
    worker: &mut Worker,
    code: &str,
) -> (u16, String, Vec<(LogLevel, String)>, Exit) {
    let answer = worker.run(code);
    let exit = worker.front.wait_exit(worker.child);
    (answer.status(), answer.text(), answer.logs, exit)
}

#[test]
fn worker_script_boots_once_and_its_callback_answers_every_request() {
    let boot = "$boots = ($boots ?? 0) + 1; $n = 0;";
    let mut worker = Worker::boot(boot, "", &["-d", "expose_php=1"]);
    let count = "echo $GLOBALS['boots'], ' ', ++$GLOBALS['n'], ' ', getmypid(); http_response_code(201); header('X-N: ' . $GLOBALS['n']);";
    for n in 1..=5 {
        let answer = worker.run(count);
        assert_eq!(
            (answer.status(), answer.text()),
            (201, format!("1 {n} {}", worker.pid))
        );
        assert_eq!(answer.header("x-n"), [n.to_string()]);
        assert!(answer.header("x-powered-by")[0].starts_with("PHP/"));
    }
}

#[test]
fn worker_request_and_boot_have_superglobals_of_their_own() {
    let boot = "$boot = $_SERVER; $get = $_GET;";
    let mut worker = Worker::boot(boot, "", &[]);
    let ask = "echo json_encode([$GLOBALS['boot']['FRANKENPHP_WORKER'], $GLOBALS['boot']['REQUEST_METHOD'],
        basename($GLOBALS['boot']['SCRIPT_FILENAME']), $_SERVER['FRANKENPHP_WORKER'] ?? null, $_SERVER['REQUEST_URI'],
        $_GET, $_POST, $_COOKIE, file_get_contents('php://input'), $_SERVER['REQUEST_TIME'] >= $GLOBALS['boot']['REQUEST_TIME'],
        function_exists('howdah_handle_request')], JSON_UNESCAPED_SLASHES);";
    let request = FrontRequest::new("POST", std::path::Path::new("/x.php"))
        .var("CODE", ask)
        .var("QUERY_STRING", "a=1")
        .var("HTTP_COOKIE", "c=2");
    let answer = worker
        .front
        .run(request.body("application/x-www-form-urlencoded", b"p=3"));
    assert_eq!(
        answer.text(),
        r#"["1","GET","worker.php",null,"/script.php",{"a":"1"},{"p":"3"},{"c":"2"},"p=3",true,true]"#
    );
}

#[test]
fn worker_functions_do_not_exist_in_ordinary_children() {
    let dir = TestDir::new();
    let script = dir.write("i.php", "<?php var_dump(function_exists('frankenphp_handle_request'), function_exists('howdah_handle_request'), isset($_SERVER['FRANKENPHP_WORKER']));");
    let mut front = TestFront::start(1, &[]);
    let text = front.run(FrontRequest::get(&script)).text();
    assert_eq!(
        text.split_whitespace().collect::<Vec<_>>(),
        ["bool(false)"; 3]
    );
}

#[test]
fn open_stderr_stream_completes_its_line_with_each_request() {
    let mut worker = Worker::boot("$log = fopen('php://stderr', 'w');", "", &[]);
    for _ in 0..3 {
        worker.output_of("static $e; $e ??= fopen('php://stderr', 'w'); fwrite($e, 'piece');");
    }
    worker.front.wait_log("piece\npiece\npiece\n");
}

#[test]
fn shutdown_functions_run_at_the_end_of_the_request_or_boot_that_registered_them() {
    let mut worker = Worker::boot(
        "register_shutdown_function(function () { error_log('end of script'); });",
        "",
        &[],
    );
    for n in 0..3 {
        let code = "register_shutdown_function(function () { echo 'bye'; header('X-Late: 1'); }); echo 'hi ';";
        let answer = worker.run(code);
        assert_eq!(answer.text(), "hi bye", "request {n}");
        assert_eq!(answer.header("x-late"), ["1"]);
        assert_eq!(worker.output_of("echo 'plain';"), "plain");
    }
    assert!(!worker.front.log().contains("end of script"));
    let child = worker.child;
    worker.front.retire(child);
    assert_eq!(worker.front.wait_exit(child), Exit::Code(0));
    worker.front.wait_log("end of script");
}

#[test]
fn uncaught_exception_is_a_500_and_the_worker_continues() {
    let mut worker = Worker::plain();
    let answer = worker.run("throw new RuntimeException('thrown');");
    assert_eq!((answer.status(), answer.text()), (500, String::new()));
    assert!(
        answer.logged("Uncaught RuntimeException: thrown"),
        "{:?}",
        answer.logs
    );
    assert_eq!(worker.output_of("echo getmypid();"), worker.pid.to_string());
    let mut worker = Worker::boot(
        "set_exception_handler(function ($e) { http_response_code(503); echo 'handled ', $e->getMessage(); });",
        "",
        &[],
    );
    for _ in 0..2 {
        let answer = worker.run("throw new Exception('it');");
        assert_eq!((answer.status(), answer.text()), (503, "handled it".into()));
    }
}

#[test]
fn exit_completes_the_response_and_ends_the_worker_cleanly() {
    let mut worker = Worker::boot(
        "register_shutdown_function(function () { error_log('tidy'); });",
        "error_log('not reached');",
        &[],
    );
    let code = "register_shutdown_function(function () { echo ' late'; }); session_start(); $_SESSION['a'] = 1; header('Location: /x'); http_response_code(302); echo 'out'; exit;";
    let (status, text, logs, exit) = response_and_exit(&mut worker, code);
    assert_eq!(
        (status, text.as_str(), exit),
        (302, "out late", Exit::Code(0))
    );
    if !logs.iter().any(|(_, text)| text.contains("tidy")) {
        worker.front.wait_log("tidy");
    }
    assert!(!worker.front.log().contains("not reached"));
}

#[test]
fn fatal_error_runs_shutdown_functions_of_the_boot_and_ends_the_worker() {
    for (code, log) in [
        (
            "ini_set('memory_limit', '16M'); str_repeat('x', 32 << 20);",
            "Allowed memory size",
        ),
        ("set_time_limit(1); while (true);", "Maximum execution time"),
        ("trigger_error('by hand', E_USER_ERROR);", "by hand"),
        // "Cannot declare", or since PHP 8.3 "Cannot redeclare".
        ("eval('class A {} class A {}');", "declare class A"),
        (
            "register_shutdown_function(function () { trigger_error('late', E_USER_ERROR); });",
            "late",
        ),
    ] {
        let mut worker = Worker::boot(
            "register_shutdown_function(function () { if ($e = error_get_last()) { echo 'page: ', substr($e['message'], 0, 4); } });",
            "",
            &[],
        );
        worker.output_of("echo 1;");
        let (status, text, logs, exit) = response_and_exit(&mut worker, code);
        assert_eq!((status, exit), (500, Exit::Code(70)), "{code}");
        let late = code.contains("late");
        assert!(late || text.starts_with("page: "), "{code}: {text}");
        assert!(
            logs.iter().any(|(_, l)| l.contains(log)),
            "{code}: {logs:?}"
        );
    }
}

#[test]
fn worker_crash_loses_only_its_own_request() {
    let mut worker = Worker::plain();
    worker.output_of("echo 1;");
    let answer = worker.run("posix_kill(getmypid(), 11); sleep(60);");
    assert_eq!(answer.died, Some(Exit::Signal(11)));
    let (child, _) = worker.front.spawn(0);
    assert!(matches!(
        first_message(&mut worker.front, child),
        WorkerMessage::Booted { .. }
    ));
    assert_eq!(worker.output_of("echo 'again';"), "again");
}

#[test]
fn retired_worker_gets_false_and_can_clean_up() {
    let text = "<?php $n = 0; while (frankenphp_handle_request(function () { echo 'x'; })) { $n++; } error_log(\"tidied up after $n\");";
    let mut worker = Worker::script(text, &[], 0);
    worker.output_of("");
    worker.output_of("");
    let child = worker.child;
    worker.front.retire(child);
    assert_eq!(worker.front.wait_exit(child), Exit::Code(0));
    worker.front.wait_log("tidied up after 2");
}

#[test]
fn worker_that_ignores_its_stop_is_ended_and_logged() {
    let text = "<?php while (true) { frankenphp_handle_request(function () { echo 'x'; }); }";
    let mut worker = Worker::script(text, &[], 0);
    worker.output_of("");
    let child = worker.child;
    worker.front.retire(child);
    assert_eq!(worker.front.wait_exit(child), Exit::Code(0));
    worker.front.wait_log("WorkerIgnoresStop");
}

#[test]
fn worker_requests_its_replacement_before_max_requests_are_served() {
    let text = "<?php while (frankenphp_handle_request(function () { echo getmypid(); })) {}";
    let mut worker = Worker::script(text, &[], 20);
    let child = worker.child;
    for n in 1..=20 {
        assert_eq!(worker.output_of(""), worker.pid.to_string());
        // The replacement is requested with the 18th request: a tenth of the requests before the end.
        let spent = worker.front.pool.child_status(child.index).spent;
        assert_eq!(spent, n >= 18, "after {n}");
    }
    assert_eq!(worker.front.wait_exit(child), Exit::Code(0));
    assert_eq!(worker.front.pool.child_status(child.index).requests, 20);
}

#[test]
fn handle_request_within_a_request_is_an_error() {
    let mut worker = Worker::plain();
    let answer = worker.run("try { frankenphp_handle_request(fn () => 1); } catch (RuntimeException $e) { echo $e->getMessage(); }");
    assert_eq!(
        answer.text(),
        "frankenphp_handle_request() called while it handles a request"
    );
}

#[test]
fn worker_boot_failure_is_reported_with_file_and_line() {
    for (text, name, parts) in [
        (
            "<?php\n\nnope();",
            "WorkerBootFailed",
            &["worker.php: ", "undefined function nope()", "on line 3"][..],
        ),
        (
            "<?php this is no php",
            "WorkerBootFailed",
            &["syntax error", "on line 1"],
        ),
        (
            "<?php throw new Exception('no database');",
            "WorkerBootFailed",
            &["Uncaught Exception: no database"],
        ),
        ("<?php exit(3);", "WorkerBootFailed", &["exit status 3"]),
        (
            "<?php echo 'an ordinary page';",
            "WorkerNeverAsked",
            &["without calling frankenphp_handle_request()"],
        ),
    ] {
        let dir = TestDir::new();
        let script = dir.write("worker.php", text);
        let mut front = start_worker_pool(&script, &[]);
        let (child, _) = front.spawn(0);
        let WorkerMessage::Failed {
            name: got, message, ..
        } = first_message(&mut front, child)
        else {
            panic!("booted: {text}");
        };
        assert_eq!(got, name, "{message}");
        for part in parts {
            assert!(message.contains(part), "{text}: {message}");
        }
        assert_eq!(front.wait_exit(child), Exit::Code(71));
    }
}

#[test]
fn missing_worker_script_is_a_boot_failure() {
    let dir = TestDir::new();
    let mut front = start_worker_pool(&dir.0.join("gone.php"), &[]);
    let (child, _) = front.spawn(0);
    let word = first_message(&mut front, child);
    let said = format!("{word:?}");
    assert!(
        said.contains("gone.php") && said.contains("No such file"),
        "{said}"
    );
}

#[test]
fn worker_boot_output_goes_to_the_log_and_to_no_client() {
    let mut worker = Worker::boot(
        "echo \"boot speaks\\n\"; header('X-Boot: 1'); http_response_code(404);",
        "",
        &[],
    );
    let answer = worker.run("echo 'answer';");
    assert_eq!((answer.status(), answer.text()), (200, "answer".into()));
    assert!(answer.header("x-boot").is_empty());
    worker.front.wait_log("boot speaks");
}

#[test]
fn finish_request_completes_the_response_while_the_callback_continues() {
    let mut worker = Worker::plain();
    let request = worker.request("echo 'early'; fastcgi_finish_request(); echo 'lost'; while (!file_exists($_SERVER['GO'])) { usleep(1000); }");
    let go = worker.dir.0.join("go");
    let request = request.var("GO", go.to_str().unwrap());
    let mut flight = worker.front.publish(request);
    worker
        .front
        .drive_until(&mut flight, |answer| answer.finished);
    assert_eq!((flight.answer.text(), flight.done), ("early".into(), false));
    std::fs::write(&go, "").unwrap();
    worker.front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "early");
    assert_eq!(worker.output_of("echo 'next';"), "next");
}

#[test]
fn client_disconnect_does_not_end_the_worker() {
    let mut worker = Worker::plain();
    let request = worker.request("while (!connection_aborted()) { echo str_repeat('x', 9000); flush(); } $GLOBALS['through'] = true;");
    let mut flight = worker.front.publish(request);
    worker
        .front
        .drive_until(&mut flight, |answer| answer.body.len() > 20_000);
    worker.front.abort(&flight);
    worker.front.drive_until(&mut flight, |_| false);
    assert_eq!(
        worker
            .output_of("var_dump($GLOBALS['through'], connection_status());")
            .split_whitespace()
            .collect::<Vec<_>>(),
        ["bool(true)", "int(0)"]
    );
    assert_eq!(worker.output_of("echo getmypid();"), worker.pid.to_string());
}

#[test]
fn process_forked_by_a_worker_callback_exits_without_a_response() {
    let mut worker = Worker::plain();
    let code = "$pid = pcntl_fork(); if ($pid === 0) { echo 'copy'; return; } pcntl_waitpid($pid, $status); echo 'parent ', pcntl_wexitstatus($status);";
    assert_eq!(worker.output_of(code), "parent 0");
    assert_eq!(worker.output_of("echo 'next';"), "next");
}

/// opcache's memory is not wiped while a worker runs code from it: the call requests new workers instead.
#[test]
fn opcache_reset_in_a_worker_requests_new_workers() {
    let mut worker = Worker::boot(
        "function f() { return 'cached'; }",
        "",
        &["--opcache", "on"],
    );
    for _ in 0..50 {
        assert_eq!(
            worker.output_of("var_dump(opcache_reset());"),
            "bool(true)\n"
        );
        assert_eq!(worker.output_of("echo f();"), "cached");
    }
    let asked = |r: &ZygoteReport| matches!(r, ZygoteReport::Worker(WorkerMessage::Restart { .. }));
    worker.front.wait_report(asked);
}

#[test]
fn worker_time_limit_restarts_with_each_request() {
    let mut worker = Worker::boot("", "", &["-d", "max_execution_time=1"]);
    // Together, these use more time than one request may have. It is CPU time, except in a thread-safe PHP.
    for _ in 0..20 {
        let burnt = worker.output_of(
            "$used = function () { $u = getrusage(); return PHP_ZTS ? hrtime(true) / 1e9 : $u['ru_utime.tv_sec'] + $u['ru_utime.tv_usec'] / 1e6; };
             $start = $used(); while ($used() - $start < 0.1); echo 'done';",
        );
        assert_eq!(burnt, "done");
    }
}

#[test]
fn worker_stack_can_be_read_during_a_request() {
    let mut worker = Worker::boot(
        "function waits() { flush(); while (!file_exists($_SERVER['GO'])) { usleep(1000); } }",
        "",
        &[],
    );
    let go = worker.dir.0.join("go");
    let request = worker.request("waits();").var("GO", go.to_str().unwrap());
    let mut flight = worker.front.publish(request);
    worker
        .front
        .drive_until(&mut flight, |answer| answer.head.is_some());
    let child = worker.child;
    let stack = worker.front.trace(child);
    std::fs::write(&go, "").unwrap();
    worker.front.drive_until(&mut flight, |_| false);
    assert!(
        stack.contains("waits()") && stack.contains("frankenphp_handle_request()"),
        "{stack}"
    );
}

/// Runs everything that is restored between requests hundreds of times, which must free the memory it uses.
#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-mbstring")]
fn worker_memory_does_not_grow_over_hundreds_of_requests() {
    let text = "<?php class W {} $once = stream_context_get_default(['http' => ['timeout' => 3]]); putenv('BOOT=1');
        ini_set('precision', '9'); set_error_handler(fn () => true);
        while (frankenphp_handle_request(function () {
            session_id('worker' . getmypid()); session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; session_write_close();
            ini_set('precision', '4'); ini_set('display_errors', '1'); putenv('A=b'); $_ENV['x'] = $_REQUEST; setlocale(LC_ALL, 'C.UTF-8');
            set_error_handler(fn () => true); set_exception_handler(fn () => true); trigger_error('x'); @trigger_error('y');
            ob_start(); echo str_repeat('x', 100); register_shutdown_function(fn () => 1); umask(0); chdir('/');
            stream_context_set_default(['http' => []]); fopen('php://memory', 'r+'); file_get_contents('php://input');
            stream_wrapper_register('w', 'W'); mb_internal_encoding('EUC-JP'); date_default_timezone_set('Asia/Tokyo');
            filter_input(INPUT_POST, 'a'); header('X-A: 1'); header_register_callback(fn () => 1); strtok('a b', ' '); is_file('/x');
            ob_end_clean(); echo memory_get_usage(), ' ', count(get_resources());
        })) { gc_collect_cycles(); }";
    let mut worker = Worker::script(text, &["-d", "session.use_cookies=0"], 0);
    let usage = |worker: &mut Worker, n: u32| -> String {
        let request = FrontRequest::new("POST", std::path::Path::new("/w.php"))
            .var("HTTP_COOKIE", "c=d")
            .var("QUERY_STRING", &format!("n={n:04}"));
        let answer = worker
            .front
            .run(request.body("application/x-www-form-urlencoded", b"a=b&c=d"));
        assert_eq!(answer.status(), 200, "{:?}", answer.logs);
        answer.text()
    };
    let warm = (0..50).map(|n| usage(&mut worker, n)).last().unwrap();
    for n in 0..300 {
        usage(&mut worker, n);
    }
    let (memory, resources) = warm.split_once(' ').unwrap();
    let (memory, after) = (memory.parse::<i64>().unwrap(), usage(&mut worker, 9));
    let (now, resources_now) = after.split_once(' ').unwrap();
    let grown = now.parse::<i64>().unwrap() - memory;
    assert!(grown < 20_000, "{warm} -> {after}");
    assert_eq!(resources_now, resources);
}

#[test]
fn frankenphp_log_header_and_finish_functions_work() {
    let mut worker = Worker::plain();
    let request = worker
        .request("header('X-A: 1'); frankenphp_log('told', FRANKENPHP_LOG_LEVEL_WARN, ['n' => 1]); echo frankenphp_request_headers()['X-Ask'], frankenphp_response_headers()['X-A']; frankenphp_finish_request(); echo 'lost';")
        .var("HTTP_X_ASK", "asked ");
    let answer = worker.front.run(request);
    assert_eq!(answer.text(), "asked 1");
    assert!(
        answer
            .logs
            .contains(&(LogLevel::Warning, r#"told {"n":1}"#.into())),
        "{:?}",
        answer.logs
    );
}

/// A regression test: opcache's optimizer read the module of functions that had none, and crashed.
#[test]
fn opcache_optimizer_survives_calls_of_worker_functions() {
    let text = "<?php function f() { try { while (1 < 2 && frankenphp_handle_request(function () { echo 'ok'; frankenphp_log('x'); })) {} }
        finally { howdah_handle_request(fn () => 1); } } f();";
    let mut worker = Worker::script(text, &["--opcache", "on"], 0);
    assert_eq!(worker.output_of(""), "ok");
}

const OWN_SESSIONS: &str = "class Own implements SessionHandlerInterface {
    public static array $data = []; public static bool $broken = false;
    function open($p, $n): bool { return true; } function close(): bool { return true; }
    function read($id): string { return self::$data[$id] ?? ''; }
    function write($id, $d): bool { if (self::$broken) throw new LogicException('cannot write'); self::$data[$id] = $d; file_put_contents($_SERVER['OUT'] ?? '/dev/null', $d); return true; }
    function destroy($id): bool { return true; } function gc($t): int { return 0; }
} session_set_save_handler(new Own);";

#[test]
fn session_is_written_by_its_own_handler_when_a_shutdown_function_exits() {
    let mut worker = Worker::boot(OWN_SESSIONS, "", &["-d", "session.use_cookies=0"]);
    worker.output_of("echo 1;");
    let out = worker.dir.0.join("out");
    let request = worker
        .request("register_shutdown_function(function () { echo 'bye'; exit; }); session_id('s'); session_start(); $_SESSION['kept'] = 1; echo 'hi ';")
        .var("OUT", out.to_str().unwrap());
    let answer = worker.front.run(request);
    assert_eq!(answer.text(), "hi bye");
    assert_eq!(worker.front.wait_exit(worker.child), Exit::Code(0));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "kept|i:1;");
}

#[test]
fn exception_at_the_end_of_a_request_is_logged_and_the_worker_continues() {
    let mut worker = Worker::boot(OWN_SESSIONS, "", &["-d", "session.use_cookies=0"]);
    for code in [
        "Own::$broken = true; session_id('s'); session_start(); $_SESSION['a'] = 1;",
        "register_shutdown_function(function () { throw new LogicException('cannot write'); });",
        "ob_start(function () { throw new LogicException('cannot write'); });",
    ] {
        let answer = worker.run(code);
        assert!(
            answer.logged("Uncaught LogicException: cannot write"),
            "{code}: {:?}",
            answer.logs
        );
        assert_eq!(
            worker.output_of("Own::$broken = false; echo getmypid();"),
            worker.pid.to_string()
        );
    }
}
