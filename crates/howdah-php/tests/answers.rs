//! Responses: the front reads the status, headers and body that a script writes, in the right order.

mod front;

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::level::LogLevel;

/// Runs one script text with one child.
fn answer_of(text: &str) -> front::ChildResponse {
    let dir = TestDir::new();
    let script = dir.write("script.php", text);
    TestFront::start(1, &[]).run(FrontRequest::get(&script))
}

#[test]
fn hello_script_prints_its_query_parameter() {
    let dir = TestDir::new();
    let script = dir.write(
        "hello.php",
        "<?php echo 'Hello, ', $_GET['name'] ?? 'nobody';",
    );
    let mut front = TestFront::start(1, &[]);
    let answer = front.run(FrontRequest::get(&script).var("QUERY_STRING", "name=world"));
    assert_eq!(
        (answer.status(), answer.text()),
        (200, "Hello, world".into())
    );
    assert_eq!(answer.header("Content-Type"), ["text/html; charset=UTF-8"]);
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(answer.text(), "Hello, nobody");
    assert!(answer.logs.is_empty(), "{:?}", answer.logs);
}

#[test]
fn status_can_be_set_in_every_way() {
    let status = |text: &str| {
        let head = answer_of(text).head.expect("a head");
        (
            head.status,
            String::from_utf8_lossy(&head.reason).into_owned(),
        )
    };
    for (script, code, reason) in [
        (
            "<?php header('HTTP/1.1 404 Gone Fishing');",
            404,
            "Gone Fishing",
        ),
        ("<?php http_response_code(201);", 201, ""),
        ("<?php header('Status: 418 Teapot');", 418, "Teapot"),
        ("<?php header('Location: /there');", 302, ""),
        ("<?php header('Location: /there', true, 308);", 308, ""),
        ("<?php header('X-A: b', true, 503);", 503, ""),
        ("<?php", 200, ""),
    ] {
        assert_eq!(status(script), (code, reason.to_owned()), "{script}");
    }
}

#[test]
fn invalid_status_becomes_a_logged_500() {
    let answer = answer_of("<?php http_response_code(99); echo 1;");
    assert_eq!(answer.status(), 500);
    assert!(answer.logged("BadStatus"), "{:?}", answer.logs);
}

#[test]
fn headers_keep_their_order_case_and_number() {
    let answer = answer_of(
        "<?php header('X-Case: 1'); setcookie('a', '1'); setcookie('b', '2'); \
         header('x-case: 2', false); header_remove('X-Powered-By');",
    );
    assert_eq!(answer.header("Set-Cookie"), ["a=1", "b=2"]);
    assert_eq!(answer.header("X-Case"), ["1", "2"]);
    assert!(answer.header("X-Powered-By").is_empty());
    assert!(answer.header("Status").is_empty());
}

#[test]
fn expose_php_decides_about_x_powered_by() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php");
    for (setting, expect) in [("expose_php=1", true), ("expose_php=0", false)] {
        let mut front = TestFront::start(1, &["-d", setting]);
        let answer = front.run(FrontRequest::get(&script));
        assert_eq!(
            !answer.header("X-Powered-By").is_empty(),
            expect,
            "{setting}"
        );
    }
}

#[test]
fn status_304_has_no_content_type() {
    let answer = answer_of("<?php http_response_code(304); header('ETag: \"x\"');");
    assert_eq!(answer.status(), 304);
    assert!(answer.header("Content-Type").is_empty());
    assert_eq!(answer.header("ETag"), ["\"x\""]);
}

#[test]
fn header_callback_runs_before_headers_are_sent() {
    let answer = answer_of(
        "<?php header_register_callback(function () { header('X-Late: yes'); }); echo 'body';",
    );
    assert_eq!(answer.header("X-Late"), ["yes"]);
    assert_eq!(answer.text(), "body");
}

#[test]
fn early_hints_are_sent_first_and_keep_the_headers() {
    let answer = answer_of(
        "<?php header('Link: </a.css>; rel=preload'); $r = headers_send(103); \
         header('X-Later: 1'); echo $r, '/', http_response_code();",
    );
    assert_eq!(answer.informational.len(), 1);
    let hint = &answer.informational[0];
    assert_eq!(hint.status, 103);
    assert!(hint.headers.iter().any(|(n, _)| n == b"Link"));
    assert!(hint.headers.iter().all(|(n, _)| n != b"X-Later"));
    assert_eq!((answer.status(), answer.text()), (200, "1/200".into()));
    assert_eq!(answer.header("Link"), ["</a.css>; rel=preload"]);
}

#[test]
fn early_hints_after_the_headers_are_refused() {
    let answer = answer_of("<?php echo 'x'; flush(); echo headers_send(103);");
    assert_eq!(answer.informational.len(), 0);
    assert_eq!(answer.text(), "x3");
    let answer = answer_of("<?php try { headers_send(101); } catch (ValueError $e) { echo 'no'; }");
    assert_eq!(answer.text(), "no");
}

#[test]
fn head_request_runs_the_script_and_has_no_body() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php header('X-Ran: 1'); echo 'body';");
    let answer = TestFront::start(1, &[]).run(FrontRequest::new("HEAD", &script));
    assert_eq!(answer.header("X-Ran"), ["1"]);
    assert_eq!(answer.text(), "");
}

#[test]
fn flush_reaches_the_client_while_the_script_runs() {
    let dir = TestDir::new();
    // The script waits for its body after each flush, so the test sees the flushed output first.
    let script = dir.write(
        "sse.php",
        "<?php header('Content-Type: text/event-stream'); flush(); \
         $in = fopen('php://input', 'r'); \
         while (($line = fgets($in)) !== false) { echo 'data: ', $line; flush(); }",
    );
    let mut front = TestFront::start(1, &["-d", "output_buffering=0"]);
    let request = FrontRequest::new("PUT", &script).chunked("text/plain", b"");
    let mut flight = front.publish_part(request, false);
    front.drive_until(&mut flight, |a| a.head.is_some());
    assert_eq!(
        flight.answer.header("Content-Type"),
        ["text/event-stream;charset=UTF-8"]
    );
    assert!(!flight.done && flight.answer.body.is_empty());
    front.end_body(&flight, true);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "");
}

#[test]
fn flushed_pieces_arrive_in_order_and_one_by_one() {
    let dir = TestDir::new();
    let gate = dir.0.join("gate");
    let script = dir.write(
        "steps.php",
        "<?php $f = fopen($_SERVER['GATE'], 'r'); echo 'one'; flush(); fgetc($f); echo 'two'; \
         flush(); fgetc($f); echo 'three';",
    );
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()
            .unwrap()
            .success()
    );
    let mut front = TestFront::start(1, &["-d", "output_buffering=0"]);
    let request = FrontRequest::get(&script).var("GATE", gate.to_str().unwrap());
    let mut flight = front.publish(request);
    // Opening a fifo for both reading and writing does not block.
    let mut writer = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&gate)
        .unwrap();
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    assert_eq!(flight.answer.text(), "one");
    std::io::Write::write_all(&mut writer, b"1").unwrap();
    front.drive_until(&mut flight, |a| a.body.len() > 3);
    assert_eq!(flight.answer.text(), "onetwo");
    std::io::Write::write_all(&mut writer, b"2").unwrap();
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "onetwothree");
}

#[test]
fn small_response_arrives_in_one_piece() {
    let answer = answer_of("<?php for ($i = 0; $i < 100; $i++) { echo $i; ob_flush(); }");
    assert_eq!(answer.pieces, 1);
}

#[test]
fn finish_request_completes_the_response_while_the_script_continues() {
    let dir = TestDir::new();
    let gate = dir.0.join("gate");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()
            .unwrap()
            .success()
    );
    let script = dir.write(
        "finish.php",
        "<?php register_shutdown_function(function () { file_put_contents($_SERVER['OUT'], 'shut'); }); \
         echo 'answer'; $first = fastcgi_finish_request(); echo 'lost'; \
         $second = fastcgi_finish_request(); error_log('after the end'); \
         fgetc(fopen($_SERVER['GATE'], 'r')); \
         file_put_contents($_SERVER['OUT'], json_encode([$first, $second]));",
    );
    let out = dir.0.join("out");
    let mut front = TestFront::start(1, &["-d", "error_log="]);
    let child = front.children[0].0;
    let mut flight = front.publish(
        FrontRequest::get(&script)
            .var("GATE", gate.to_str().unwrap())
            .var("OUT", out.to_str().unwrap()),
    );
    front.drive_until(&mut flight, |a| a.finished);
    assert_eq!(flight.answer.text(), "answer");
    assert!(!flight.done && front.pool.child_status(child.index).busy_since.is_some());
    let mut writer = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&gate)
        .unwrap();
    std::io::Write::write_all(&mut writer, b"1").unwrap();
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "answer", "later output goes nowhere");
    assert!(
        flight.answer.logged("after the end"),
        "{:?}",
        flight.answer.logs
    );
    assert_eq!(std::fs::read_to_string(out).unwrap(), "shut");
    front.wait_child(child, |c| c.busy_since.is_none() && c.requests == 1);
}

#[test]
fn large_response_does_not_grow_the_child() {
    let dir = TestDir::new();
    let script = dir.write(
        "big.php",
        "<?php $block = str_repeat('0123456789abcdef', 65536); \
         for ($i = 0; $i < 100; $i++) { echo $block; }",
    );
    let mut front = TestFront::start(1, &["-d", "output_buffering=0"]);
    let pid = front.children[0].1;
    let mut flight = front.publish(FrontRequest::get(&script));
    let mut total = 0;
    while !flight.done {
        front.drive_until(&mut flight, |a| !a.body.is_empty());
        total += flight.answer.body.len();
        flight.answer.body.clear();
    }
    assert_eq!(total, 100 << 20);
    let anonymous = front::rss_anon_kib(pid);
    assert!(anonymous < 24 * 1024, "the child holds {anonymous} KiB");
}

#[test]
fn output_buffers_and_handlers_work() {
    let answer = answer_of(
        "<?php ob_start(fn ($b) => strtoupper($b)); echo 'abc'; ob_end_flush(); \
         ob_start(); echo 'kept back'; header('X-Still: 1');",
    );
    assert_eq!(answer.text(), "ABCkept back");
    assert_eq!(answer.header("X-Still"), ["1"]);
}

#[test]
fn oversized_response_headers_become_a_named_500() {
    let answer = answer_of("<?php header('X-Long: ' . str_repeat('x', 200000)); echo 'body';");
    assert_eq!(answer.status(), 500);
    assert!(answer.logged("HeadTooLong"), "{:?}", answer.logs);
}

#[test]
fn response_headers_larger_than_the_ring_arrive_whole() {
    let answer = answer_of(
        "<?php for ($i = 0; $i < 100; $i++) { header(\"X-$i: \" . str_repeat('y', 1000)); } echo 'b';",
    );
    assert_eq!(answer.header("X-99")[0].len(), 1000);
    assert_eq!(answer.text(), "b");
}

#[test]
fn stderr_line_is_completed_at_the_end_of_its_request() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php file_put_contents('php://stderr', 'first '); $e = fopen('PHP://STDERR', 'w'); fwrite($e, 'second');",
    );
    let mut front = TestFront::start(1, &[]);
    for _ in 0..3 {
        front.run(FrontRequest::get(&script));
    }
    front.wait_log("first second\nfirst second\nfirst second\n");
}

#[test]
fn log_messages_keep_their_level() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php error_log('told'); trigger_error('warned', E_USER_WARNING);",
    );
    let mut front = TestFront::start(1, &["-d", "error_log=", "-d", "log_errors=1"]);
    let answer = front.run(FrontRequest::get(&script));
    assert!(answer.logged("told"));
    let (level, text) = answer
        .logs
        .iter()
        .find(|(_, t)| t.contains("warned"))
        .unwrap();
    assert!(text.starts_with("PHP Warning:"), "{text}");
    assert!(*level <= LogLevel::Notice, "{level}");
}
