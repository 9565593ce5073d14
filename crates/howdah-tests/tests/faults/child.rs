//! Failures inside one PHP child affect only that child: it is killed, crashes, runs out of memory or time, or exits.
//! The client of the failed request gets the right error, no other client notices, and the pool recovers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use howdah_tests::fixture::{Fixture, HELLO, signal};
use howdah_tests::http::from_elsewhere;
use howdah_tests::load::{Load, LoadEnd};
use howdah_tests::rig::Server;
use rustix::process::Signal;

#[test]
fn child_killed_in_the_middle_of_a_request_costs_exactly_that_request() {
    let fixture = Fixture::named("killed").children(3).start();
    let others = Load::new(fixture.address(), "/hello.php", HELLO)
        .clients(6)
        .start(LoadEnd::OnFinish);
    for round in 0..5 {
        let name = format!("victim{round}");
        let gate = fixture.gate(&name);
        let victim = fixture.start_get(&format!("/hold.php?gate={name}"));
        let standing = gate.wait();
        signal(standing.pid, Signal::KILL);
        let answer = victim.answer();
        assert_eq!(answer.status(), 502, "{}", answer.text());
        assert_eq!(answer.header("Howdah-Error"), Some("ChildDied"));
        others.wait_for(50);
    }
    let outcome = others.finish();
    outcome.only(&["200"]);
    fixture.wait_for_log(&["ChildDied", "signal 9"]);
    fixture.wait("the pool to have all its children again", |f| {
        f.children().len() == 3
    });
    // The log has one line for each death, with the request that was lost.
    let log = fixture.howdah.log();
    let deaths: Vec<&str> = log.lines().filter(|l| l.contains("ChildDied")).collect();
    assert!(
        deaths.len() == 5 && deaths.iter().all(|l| l.contains("/hold.php?gate=victim")),
        "{deaths:#?}"
    );
}

#[test]
fn response_begun_by_a_killed_child_is_seen_to_be_cut_off() {
    let fixture = Fixture::named("killed-late")
        .script(
            "late.php",
            "<?php require 'GATES'; echo str_repeat('x', 100000); flush(); stand_at('late');",
        )
        .ini("output_buffering", "0")
        .start();
    let gate = fixture.gate("late");
    let victim = fixture.start_get("/late.php");
    signal(gate.wait().pid, Signal::KILL);
    let result = victim.try_answer();
    assert!(
        matches!(
            result,
            Err(howdah_tests::http::ExchangeError::Closed { midway: true })
        ),
        "a client must not mistake half a response for a complete one: {result:?}"
    );
    fixture.still_serves();
}

#[test]
fn script_that_crashes_php_gets_502_and_the_next_request_is_served() {
    let fixture = Fixture::named("segfault")
        .children(1)
        // Disables the limit on C recursion that PHP 8.3 introduced, so the stack really overflows.
        .ini("zend.max_allowed_stack_size", "-1")
        .script(
            "crash.php",
            "<?php ini_set('memory_limit', '-1');
            function dive($x) { return array_map('dive', [$x]); }
            dive(1);",
        )
        .start();
    for _ in 0..3 {
        let answer = fixture.get("/crash.php");
        assert_eq!(answer.status(), 502, "{}", answer.text());
        assert_eq!(answer.header("Howdah-Error"), Some("ChildDied"));
        fixture.still_serves();
    }
    fixture.wait_for_log(&["ChildDied", "signal 11"]);
}

#[test]
fn child_exits_with_its_script_only_after_a_bailout() {
    let fixture = Fixture::named("endings")
        .children(1)
        .ini("display_errors", "Off")
        .ini("memory_limit", "16M")
        .ini("max_execution_time", "1")
        .script("exit.php", "<?php echo 'bye'; exit(1);")
        .script("fatal.php", "<?php no_such_function();")
        .script("exception.php", "<?php throw new Exception('uncaught');")
        .script("parse.php", "<?php this is not PHP")
        .script("memory.php", "<?php $a = str_repeat('x', 64 << 20);")
        .script("time.php", "<?php while (true) { sqrt(2); }")
        .script("die.php", "<?php http_response_code(418); die('teapot');")
        .start();
    let mut child = fixture.get("/pid.php").text();
    let mut bailouts = 0;
    let cases = [
        ("/exit.php", 200, "bye", None),
        (
            "/fatal.php",
            500,
            "",
            Some("undefined function no_such_function"),
        ),
        (
            "/exception.php",
            500,
            "",
            Some("Uncaught Exception: uncaught"),
        ),
        ("/parse.php", 500, "", Some("PHP Parse error")),
        (
            "/memory.php",
            500,
            "",
            Some("Allowed memory size of 16777216 bytes exhausted"),
        ),
        (
            "/time.php",
            500,
            "",
            Some("Maximum execution time of 1 second exceeded"),
        ),
        ("/die.php", 418, "teapot", None),
    ];
    for (path, status, body, message) in cases {
        let answer = fixture.get(path);
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (status, body),
            "{path}"
        );
        if let Some(message) = message {
            let line = fixture.wait_for_log(&[message]);
            assert!(line.contains(path), "the message names its request: {line}");
        }
        let next = fixture.get("/pid.php").text();
        let bailed_out = ["/memory.php", "/time.php"].contains(&path);
        assert_eq!(next != child, bailed_out, "{path}");
        bailouts += u64::from(bailed_out);
        child = next;
    }
    fixture.wait("the bailouts to be counted", |fixture| {
        fixture.status()["pools"][0]["bailouts"] == bailouts
    });
    fixture.still_serves();
}

#[test]
fn client_whose_scripts_bail_out_all_the_time_waits_and_costs_few_processes() {
    let fixture = Fixture::named("many-bailouts")
        .children(2)
        .ini("display_errors", "Off")
        .ini("memory_limit", "16M")
        .script("memory.php", "<?php $a = str_repeat('x', 64 << 20);")
        .start();
    let bailouts = |fixture: &Fixture| fixture.status()["pools"][0]["bailouts"].as_u64().unwrap();
    let begun = Instant::now();
    let mut refused = 0;
    for number in 0..300 {
        // Every second client does not wait for its response.
        if number % 2 == 0 {
            let mut stream = TcpStream::connect(fixture.address()).unwrap();
            let _ = stream
                .write_all(b"POST /memory.php HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
            continue;
        }
        let response = fixture.get("/memory.php");
        if response.status() == 500 {
            continue;
        }
        refused += 1;
        assert_eq!(
            (response.status(), response.header("Howdah-Error")),
            (429, Some("ClientLimited"))
        );
        assert_eq!(response.header("Retry-After"), Some("1"));
    }
    // Besides ten requests a second, the server runs those that arrived before the first bailouts. Some of these wait
    // behind others.
    let most = 20 + 64 + 10 * (begun.elapsed().as_secs() + 1);
    let many = bailouts(&fixture);
    assert!(
        (20..=most).contains(&many),
        "{many} bailouts, of at most {most}"
    );
    assert!(refused > 0);
    fixture.wait_for_log(&["ClientLimited", "bails out of more than ten"]);
    // Other clients are served, and this client is served again a second later.
    let mut other = from_elsewhere(fixture.address()).unwrap();
    let get = b"GET /hello.php HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    other.write_all(get).unwrap();
    let mut response = String::new();
    other.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    fixture.wait("the client to be served again", |fixture| {
        fixture.get("/hello.php").status() == 200
    });
}

#[test]
fn children_are_recycled_under_load_without_an_error() {
    let fixture = Fixture::named("recycled")
        .children(2)
        .pool("max_requests = 40")
        .start();
    let before = fixture.children();
    let outcome = Load::new(fixture.address(), "/pid.php", "")
        .expecting(|body| body.iter().all(u8::is_ascii_digit) && !body.is_empty())
        .clients(8)
        .run(400);
    println!("recycling: {outcome}");
    outcome.only(&["200"]);
    fixture.wait("every first child to be replaced", |f| {
        let now = f.children();
        now.len() == 2 && before.iter().all(|pid| !now.contains(pid))
    });
}

#[test]
fn opcache_reset_in_a_loop_under_load_fails_no_request() {
    let mut builder = Fixture::named("opcache-reset")
        .children(3)
        .script(
            "reset.php",
            "<?php opcache_reset(); echo opcache_get_status(false)['opcache_enabled'] ? 'on' : 'off';",
        )
        .script(
            "opcache.php",
            "<?php echo opcache_get_status(false)['opcache_enabled'] ? 'on' : 'off';",
        )
        .script(
            "many.php",
            "<?php $sum = 0; for ($i = 0; $i < 20; $i++) $sum += require \"part$i.php\"; echo $sum;",
        );
    for i in 0..20 {
        builder = builder.script(&format!("part{i}.php"), &format!("<?php return {i};"));
    }
    let fixture = builder.start();
    let many = Load::new(fixture.address(), "/many.php", "190")
        .clients(4)
        .start(LoadEnd::OnFinish);
    // During a restart opcache reports that it is off.
    let resets = Load::new(fixture.address(), "/reset.php", "")
        .expecting(|body| body == b"on" || body == b"off")
        .run(300);
    many.wait_for(100);
    let outcome = many.finish();
    println!("opcache_reset: {outcome} beside {resets}");
    resets.only(&["200"]);
    outcome.only(&["200"]);
    assert_eq!(fixture.children().len(), 3);
    fixture.wait("opcache to be on again", |f| {
        f.get("/opcache.php").text() == "on"
    });
}
