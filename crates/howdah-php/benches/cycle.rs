//! The cost of one PHP request for the child that runs it: CPU time from `/proc/PID/schedstat` and, if strace is
//! installed, system calls; and its memory compared with php-fpm's. The front is the test front, which is kept busy on
//! purpose: the child never sleeps, so the figures do not include wake-ups.
//!
//! `cargo bench -p howdah-php --bench cycle [-- REQUESTS]`

#[path = "../tests/front/mod.rs"]
mod front;

use std::path::Path;
use std::process::{Command, Stdio};

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::request::RequestFrame;
use howdah_proto::shm::SlotState;

fn main() {
    let requests: u64 = std::env::args()
        .skip(1)
        .find_map(|a| a.parse().ok())
        .unwrap_or(50_000);
    let dir = TestDir::new();
    memory(&dir);
    let cases = [
        ("empty", "<?php"),
        ("hello", "<?php echo 'Hello, world. 24 bytes.';"),
        (
            "hello with $_SERVER",
            "<?php echo 'Hello, ', $_SERVER['HTTP_HOST'], '.';",
        ),
    ];
    worker(&dir, requests);
    for (settings, args) in [
        ("php.ini as installed", &["--opcache", "on"][..]),
        (
            "max_execution_time=0, max_input_time=0",
            &["-d", "max_execution_time=0", "-d", "max_input_time=0"][..],
        ),
    ] {
        println!("{settings}");
        for (name, text) in cases {
            let script = dir.write("bench.php", text);
            // The environment is as small as the one that a front gives.
            let mut front = TestFront::start_zygote_with(args, |command| {
                // The script is newer than opcache accepts by default.
                command.args(["-d", "opcache.file_update_protection=0"]);
                command.env_clear().env("PATH", "/usr/bin:/bin");
            });
            front.next_report();
            front.spawn(0);
            let pid = front.children[0].1;
            let frame = a_browsers_request(&script);
            pump(&mut front, &frame, 5_000);
            println!("  {name:22} {}", measure(&mut front, &frame, pid, requests));
            if let Some(calls) = system_calls(&mut front, &frame, pid) {
                println!("  {:22} {calls}", "");
            }
        }
    }
}

/// Measures the same pages from a worker: the cost that remains when the script stays in memory.
fn worker(dir: &TestDir, requests: u64) {
    println!("worker");
    for (name, body) in [
        ("hello", "echo 'Hello, world. 24 bytes.';"),
        (
            "hello with $_SERVER",
            "echo 'Hello, ', $_SERVER['HTTP_HOST'], '.';",
        ),
        ("boot with ten settings", "echo 'Hello, world. 24 bytes.';"),
    ] {
        let boot = match name {
            "boot with ten settings" => {
                "foreach (['precision', 'serialize_precision', 'default_charset', 'error_log', 'log_errors', 'html_errors',
                  'display_errors', 'include_path', 'memory_limit', 'session.name'] as $s) ini_set($s, ini_get($s) . '1');
                 set_error_handler(fn () => true); set_exception_handler(fn () => true);"
            }
            _ => "",
        };
        let text = format!(
            "<?php {boot} $f = static function () {{ {body} }}; while (frankenphp_handle_request($f)) {{}}"
        );
        let script = dir.write("worker.php", &text);
        let script_name = script.to_str().unwrap().to_owned();
        let mut front = TestFront::start_zygote_with(&["--worker", &script_name], |command| {
            command.env_clear().env("PATH", "/usr/bin:/bin");
        });
        front.next_report();
        front.spawn(0);
        let pid = front.children[0].1;
        let frame = a_browsers_request(&script);
        pump(&mut front, &frame, 5_000);
        println!("  {name:22} {}", measure(&mut front, &frame, pid, requests));
        if let Some(calls) = system_calls(&mut front, &frame, pid) {
            println!("  {:22} {calls}", "");
        }
    }
}

/// Compares the memory of a child after a few requests with that of a php-fpm child, both without php.ini.
fn memory(dir: &TestDir) {
    let script = dir.write("memory.php", "<?php echo getmypid();");
    let mut front = TestFront::start(1, &["--no-php-ini"]);
    for _ in 0..5 {
        front.run(FrontRequest::get(&script));
    }
    println!("memory of a child without php.ini");
    println!("  howdah-php  {}", smaps(front.children[0].1));
    let fpm = front::fpm::Fpm::start(&[]);
    let variables = [
        ("REQUEST_METHOD".to_owned(), "GET".to_owned()),
        ("SCRIPT_FILENAME".to_owned(), script.display().to_string()),
    ];
    let mut pid = String::new();
    for _ in 0..5 {
        pid = fpm.run(&variables, b"").body;
    }
    println!("  php-fpm     {}", smaps(pid.parse().unwrap()));
}

/// Returns "Pss, private" of a process in KiB.
fn smaps(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let sum = |names: &[&str]| -> u64 {
        text.lines()
            .filter(|l| names.iter().any(|n| l.starts_with(n)))
            .filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    };
    format!(
        "{:6} KiB Pss, {:6} KiB private, {:6} KiB resident",
        sum(&["Pss:"]),
        sum(&["Private_Clean:", "Private_Dirty:"]),
        sum(&["Rss:"])
    )
}

/// Builds a frame like that of a browser's request, with 24 variables.
fn a_browsers_request(script: &Path) -> RequestFrame {
    let mut request = FrontRequest::get(script);
    for (name, value) in [
        ("QUERY_STRING", ""),
        ("PHP_SELF", "/script.php"),
        ("DOCUMENT_ROOT", script.parent().unwrap().to_str().unwrap()),
        ("DOCUMENT_URI", "/script.php"),
        ("CONTENT_TYPE", ""),
        ("CONTENT_LENGTH", ""),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", "Howdah"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_ADDR", "127.0.0.1"),
        ("SERVER_PORT", "8080"),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REMOTE_PORT", "54321"),
        ("REQUEST_SCHEME", "http"),
        ("HTTP_HOST", "localhost:8080"),
        ("HTTP_USER_AGENT", "Mozilla/5.0 (X11; Linux x86_64)"),
        ("HTTP_ACCEPT", "text/html,*/*;q=0.8"),
        ("HTTP_ACCEPT_ENCODING", "gzip, deflate, br"),
        ("HTTP_ACCEPT_LANGUAGE", "en-US,en;q=0.5"),
    ] {
        request = request.var(name, value);
    }
    request.into_frame()
}

/// Keeps all slots busy until `requests` have been answered.
fn pump(front: &mut TestFront, frame: &RequestFrame, requests: u64) {
    let port = &front.port;
    let slots = port.slots();
    let (mut sent, mut done) = (0u64, 0u64);
    let mut answer = Vec::new();
    let publish = |slot| {
        port.publish(slot, frame, true);
        TestFront::wake(front.pool.choose_wake(front::sys::monotonic_ns(), 2));
    };
    for slot in 0..slots.min(requests as u32) {
        publish(slot);
        sent += 1;
    }
    while done < requests {
        port.take_notified(|slot| {
            if !matches!(port.state(slot), SlotState::Done(_)) {
                return;
            }
            answer.clear();
            let _ = port.read_response(slot, &mut answer, usize::MAX).unwrap();
            assert!(!answer.is_empty(), "every answer has a head");
            port.free(slot);
            done += 1;
            if sent < requests {
                publish(slot);
                sent += 1;
            }
        });
        std::hint::spin_loop();
    }
}

/// Returns the nanoseconds of CPU time that a process has used.
fn cpu_ns(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Measures a child in batches, and shows their median and minimum, because other processes on the machine slow down
/// some of them.
fn measure(front: &mut TestFront, frame: &RequestFrame, pid: i32, requests: u64) -> String {
    const BATCH: u64 = 2_000;
    let start = std::time::Instant::now();
    let mut costs = Vec::new();
    while costs.len() as u64 * BATCH < requests {
        let before = cpu_ns(pid);
        pump(front, frame, BATCH);
        costs.push((cpu_ns(pid) - before) as f64 / BATCH as f64 / 1000.0);
    }
    let rate = (costs.len() as u64 * BATCH) as f64 / start.elapsed().as_secs_f64();
    costs.sort_by(f64::total_cmp);
    format!(
        "{:6.2} us CPU per request in the child (the least of {}: {:.2}), {rate:6.0} requests/s",
        costs[costs.len() / 2],
        costs.len(),
        costs[0],
    )
}

/// Returns the system calls per request by name, counted by strace over a thousand requests.
fn system_calls(front: &mut TestFront, frame: &RequestFrame, pid: i32) -> Option<String> {
    const COUNTED: u64 = 1000;
    let mut strace = Command::new("strace")
        .args([
            "-f",
            "-c",
            "-S",
            "calls",
            "-U",
            "calls,name",
            "-p",
            &pid.to_string(),
        ])
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .ok()?;
    let attached = || {
        std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|s| !s.contains("TracerPid:\t0\n"))
    };
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    while !attached() {
        assert!(
            std::time::Instant::now() < deadline,
            "strace does not attach"
        );
        std::thread::yield_now();
    }
    pump(front, frame, COUNTED);
    front::sys::kill(strace.id() as i32, libc::SIGINT);
    let mut report = String::new();
    std::io::Read::read_to_string(&mut strace.stderr.take()?, &mut report).ok()?;
    strace.wait().ok()?;
    let mut counts = Vec::new();
    for line in report.lines() {
        let mut words = line.split_whitespace();
        if let (Some(Ok(n)), Some(name)) = (words.next().map(str::parse::<u64>), words.next())
            && name != "total"
            && n >= COUNTED / 20
        {
            counts.push(format!("{} {:.1}", name, n as f64 / COUNTED as f64));
        }
    }
    Some(format!("system calls: {}", counts.join(", ")))
}
