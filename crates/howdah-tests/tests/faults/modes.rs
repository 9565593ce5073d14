//! Failures of PHP itself, with the same scripts in all five modes: PHP is killed, prints too much, sends a longer or
//! shorter response than it announced, or reads nothing. Failures of other programs, such as invalid output, are tested
//! in the executor's `program_faults`; tests/faults.md lists both.

use howdah_tests::fixture::{Fixture, HELLO};
use howdah_tests::http::{self, ExchangeError, Response};
use howdah_tests::load::Load;
use howdah_tests::rig::Fpm;

const MODES: [&str; 5] = ["embed", "worker", "fastcgi", "pool", "cgi"];

/// Runs the script that the URL names.
const WORKER: &str = "<?php
while (frankenphp_handle_request(static function () {
    (static function () { require $_SERVER['SCRIPT_FILENAME']; })();
})) {
}
";

const SCRIPTS: &[(&str, &str)] = &[
    (
        "die.php",
        "<?php posix_kill(getmypid(), 9); while (true) sleep(600);",
    ),
    (
        "half.php",
        "<?php while (ob_get_level()) ob_end_flush(); header('Content-Length: 9'); echo 'half'; flush(); posix_kill(getmypid(), 9);",
    ),
    (
        "noisy.php",
        "<?php for ($i = 0; $i < 100; $i++) error_log(\"line $i \" . str_repeat('x', 1000)); echo 'at last';",
    ),
    (
        "head.php",
        "<?php for ($i = 0; $i < 40; $i++) header(\"X-Field-$i: \" . str_repeat('h', 1000)); echo 'body';",
    ),
    (
        "longer.php",
        "<?php header('Content-Length: 4'); echo 'four, and more';",
    ),
    (
        "shorter.php",
        "<?php header('Content-Length: 40'); echo 'too short';",
    ),
    ("deaf.php", "<?php echo 'not interested';"),
];

/// Starts Howdah in this mode with four PHP processes, and php-fpm beside it if the mode needs it.
fn start(mode: &str) -> (Fixture, Option<Fpm>) {
    let mut builder = Fixture::named(mode)
        .children(4)
        .script("worker.php", WORKER)
        .pool("queue_size = 600");
    for (name, php) in SCRIPTS {
        builder = builder.script(name, php);
    }
    if mode == "fastcgi" {
        let socket = builder.scratch().join("fpm.sock").display().to_string();
        let fpm = Fpm::start_at(builder.as_site(), builder.scratch(), &socket, "");
        return (
            builder.fastcgi(&format!("unix:{socket}")).start(),
            Some(fpm),
        );
    }
    builder = builder.pool(&format!("mode = {mode:?}"));
    if mode == "worker" {
        builder = builder.pool("worker = \"SCRATCH/site/worker.php\"");
    }
    (builder.start(), None)
}

/// Sends a POST, which no mode repeats.
fn post(fixture: &Fixture, path: &str, body: &[u8]) -> Result<Response, ExchangeError> {
    let (address, length) = (fixture.address(), body.len());
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    http::exchange(address, &request)
}

fn check(mode: &str) {
    let (fixture, _fpm) = start(mode);
    let died = match mode {
        "fastcgi" | "pool" => "BackendClosed",
        _ => "ChildDied",
    };
    let killed = post(&fixture, "/die.php", b"").unwrap();
    assert_eq!(
        (killed.status(), killed.header("Howdah-Error")),
        (502, Some(died)),
        "{mode}"
    );
    fixture.still_serves();

    // A response that has begun can only be cut off; otherwise the client receives the error.
    match post(&fixture, "/half.php", b"") {
        Ok(answer) => assert_eq!(
            (answer.status(), answer.header("Howdah-Error")),
            (502, Some(died)),
            "{mode}"
        ),
        Err(ExchangeError::Io(error)) => panic!("{mode}: {error}"),
        Err(_) => {}
    }
    fixture.still_serves();

    assert_eq!(fixture.get("/noisy.php").text(), "at last", "{mode}");
    fixture.wait_for_log(&["line 0 xxx", "noisy.php"]);
    match mode {
        "cgi" => fixture.wait_for_log(&["program's standard error is not logged", "noisy.php"]),
        _ => fixture.wait_for_log(&["line 99 xxx", "noisy.php"]),
    };

    let head = fixture.get("/head.php");
    assert_eq!(head.text(), "body", "{mode}");
    for number in 0..40 {
        let field = head.header(&format!("X-Field-{number}")).map(str::len);
        assert_eq!(field, Some(1000), "{mode}: {number}");
    }

    assert_eq!(fixture.get("/longer.php").text(), "four", "{mode}");
    fixture.wait_for_log(&["LengthMismatch", "longer.php"]);
    let shorter = post(&fixture, "/shorter.php", b"");
    assert!(shorter.is_err(), "{mode}: {shorter:?}");
    fixture.wait_for_log(&["LengthMismatch", "shorter.php"]);

    let deaf = post(&fixture, "/deaf.php", &vec![b'y'; 4 << 20]).unwrap();
    assert_eq!(
        (deaf.status(), deaf.text().as_str()),
        (200, "not interested"),
        "{mode}"
    );
    fixture.still_serves();
}

#[test]
fn php_faults_have_names_and_affect_no_other_request_in_every_mode() {
    // The modes run in parallel: each waits for its own processes most of the time.
    std::thread::scope(|scope| {
        for mode in MODES {
            scope.spawn(move || check(mode));
        }
    });
}

/// Mode `cgi` is tested in the executor with a program that starts faster than PHP, and mode `fastcgi` with php-fpm in
/// `fastcgi.rs`, with a backlog of 16.
#[test]
fn five_hundred_clients_on_four_processes_all_get_their_answer() {
    for mode in ["embed", "worker", "pool"] {
        let (fixture, _) = start(mode);
        let load = Load::new(fixture.address(), "/hello.php", HELLO).clients(500);
        load.run(2).only(&["200"]);
    }
}
