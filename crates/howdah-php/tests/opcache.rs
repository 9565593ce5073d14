//! opcache in a pool: shared by all children, preloaded, reset while the children serve.

mod front;

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::control::Exit;
use howdah_proto::shm::ChildId;

#[test]
fn opcache_is_on_and_shared_by_all_children() {
    let dir = TestDir::new();
    let lib = dir.write("lib.php", "<?php function lib() { return 'lib'; }");
    let script = dir.write(
        "a.php",
        "<?php require 'lib.php'; $s = opcache_get_status(); \
         echo json_encode([$s['opcache_enabled'], getmypid(), isset($s['scripts'][$_SERVER['LIB']])]);",
    );
    let args = ["--opcache", "on", "-d", "opcache.file_update_protection=0"];
    let mut front = TestFront::start(1, &args);
    assert!(front.opcache);
    let request = || FrontRequest::get(&script).var("LIB", lib.to_str().unwrap());
    let (first, first_pid) = (front.run(request()).text(), front.children[0].1);
    assert_eq!(first, format!("[true,{first_pid},true]"));
    front.retire(front.children[0].0);
    assert_eq!(
        front.wait_exit(ChildId {
            index: 0,
            incarnation: 1
        }),
        Exit::Code(0)
    );
    let cached = dir.write("b.php", "<?php $s = opcache_get_status(); echo json_encode([$s['scripts'][$_SERVER['LIB']]['full_path'] ?? null, getmypid()]);");
    let (_, pid) = front.spawn(0);
    let answer = front.run(FrontRequest::get(&cached).var("LIB", lib.to_str().unwrap()));
    let path = lib.to_str().unwrap().replace('/', "\\/");
    assert_eq!(
        answer.text(),
        format!("[\"{path}\",{pid}]"),
        "compiled by the child before"
    );
}

#[test]
fn preloaded_code_is_available_without_include() {
    let dir = TestDir::new();
    let preload = dir.write(
        "preload.php",
        "<?php class Preloaded { const A = 'there'; }",
    );
    let script = dir.write("a.php", "<?php echo Preloaded::A;");
    let preload = format!("opcache.preload={}", preload.display());
    let args = ["-d", &preload, "-d", "opcache.preload_user=root"];
    let mut front = TestFront::start(2, &args);
    assert_eq!(front.run(FrontRequest::get(&script)).text(), "there");
    if front::sys::is_root() {
        std::process::Command::new("chmod")
            .args(["-R", "a+rX"])
            .arg(&dir.0)
            .status()
            .unwrap();
        let mut front = TestFront::start(1, &["-d", &preload, "--user", "nobody"]);
        assert_eq!(front.run(FrontRequest::get(&script)).text(), "there");
    }
}

/// Under php-fpm such a loop kills about one process in 50 000 requests ("zend_mm_heap corrupted").
#[test]
fn opcache_reset_in_a_loop_disturbs_no_request() {
    let dir = TestDir::new();
    let mut requires = String::new();
    for n in 0..20 {
        dir.write(
            &format!("lib{n}.php"),
            &format!("<?php class Lib{n} {{ const N = {n}; static function f() {{ return str_repeat('x', self::N); }} }}"),
        );
        requires.push_str(&format!("require 'lib{n}.php'; $s .= Lib{n}::f();"));
    }
    let script = dir.write(
        "a.php",
        &format!("<?php $s = ''; {requires} echo strlen($s), md5($s);"),
    );
    let reset = dir.write("reset.php", "<?php opcache_reset(); echo 'reset';");
    let args = ["--opcache", "on", "-d", "opcache.file_update_protection=0"];
    let mut front = TestFront::start(4, &args);
    let expect = front.run(FrontRequest::get(&script)).text();
    assert!(expect.starts_with("190"), "{expect}");
    let restarts = dir.write(
        "restarts.php",
        "<?php echo opcache_get_status(false)['opcache_statistics']['manual_restarts'];",
    );
    // Repeated until the cache has been emptied several times: on a busy machine, some resets find an earlier one
    // pending.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut emptied: u64 = 0;
    while emptied <= 5 {
        assert!(
            std::time::Instant::now() < deadline,
            "emptied {emptied} times"
        );
        // Eight requests are always in flight, so there is hardly a moment without one.
        let mut flights = std::collections::VecDeque::new();
        for n in 0..608 {
            if n < 600 {
                let resets = n % 5 == 0;
                let request = FrontRequest::get(if resets { &reset } else { &script });
                flights.push_back((resets, front.publish(request)));
            }
            if n >= 8 {
                let (resets, mut flight) = flights.pop_front().unwrap();
                front.drive_until(&mut flight, |_| false);
                assert_eq!(flight.answer.died, None, "{}", front.log());
                let right = if resets { "reset" } else { &expect };
                assert_eq!(flight.answer.text(), right);
            }
        }
        assert_eq!(front.children.len(), 4, "nobody died");
        emptied = front
            .run(FrontRequest::get(&restarts))
            .text()
            .parse()
            .unwrap();
    }
    // The cache still works afterwards.
    let status = dir.write(
        "status2.php",
        "<?php echo opcache_get_status(false)['opcache_enabled'] ? 'enabled' : 'off';",
    );
    // A pending wipe waits for requests that are just ending.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while front.run(FrontRequest::get(&status)).text() != "enabled" {
        assert!(std::time::Instant::now() < deadline, "the cache stays off");
    }
}

/// A request that begins while a wipe is pending runs without the cache. If it held opcache's usage lock, a wipe would
/// never happen on a server that always has requests.
#[test]
fn request_that_begins_while_a_wipe_is_pending_holds_no_opcache_lock() {
    let dir = TestDir::new();
    dir.write("lib.php", "<?php");
    let wait = dir.write(
        "wait.php",
        "<?php require 'lib.php'; flush(); while (!file_exists($_SERVER['GO'])) { usleep(1000); } echo 'done';",
    );
    let reset = dir.write("reset.php", "<?php opcache_reset(); echo 'reset';");
    let look = dir.write(
        "look.php",
        "<?php echo (int) opcache_get_status(false)['restart_pending'], ' ', \
         preg_match('/ ' . getmypid() . ' /', file_get_contents('/proc/locks'));",
    );
    let go = dir.0.join("go");
    let mut front = TestFront::start(2, &["--opcache", "on"]);
    let request = FrontRequest::get(&wait).var("GO", go.to_str().unwrap());
    let mut waiting = front.publish(request);
    front.drive_until(&mut waiting, |answer| answer.head.is_some());
    assert_eq!(front.run(FrontRequest::get(&reset)).text(), "reset");
    assert_eq!(front.run(FrontRequest::get(&look)).text(), "1 0");
    dir.write("go", "");
    front.drive_until(&mut waiting, |_| false);
    assert_eq!(waiting.answer.text(), "done");
}

/// A child keeps opcache's usage lock while it has work; if it kept the lock while asleep, a wipe would wait for ever.
#[test]
fn sleeping_child_holds_no_opcache_lock() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo getmypid();");
    let reset = dir.write("reset.php", "<?php opcache_reset(); echo 'reset';");
    let status = dir.write(
        "status.php",
        "<?php $s = opcache_get_status(false); echo (int) $s['opcache_enabled'], $s['opcache_statistics']['manual_restarts'];",
    );
    let mut front = TestFront::start(3, &["--opcache", "on"]);
    // All three children have served and gone to sleep.
    let mut flights: Vec<_> = (0..9)
        .map(|_| front.publish(FrontRequest::get(&script)))
        .collect();
    for flight in &mut flights {
        front.drive_until(flight, |_| false);
    }
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    while front.pool.sleepers() < 3 {
        assert!(std::time::Instant::now() < deadline, "they do not sleep");
        std::thread::yield_now();
    }
    // The lock is dropped between the announcement of sleep and the sleep itself.
    let pids: Vec<String> = front.children.iter().map(|c| c.1.to_string()).collect();
    let held = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let theirs = |line: &&str| {
            line.split_whitespace()
                .any(|word| pids.iter().any(|p| p == word))
        };
        locks.lines().filter(theirs).count()
    };
    while held() > 0 {
        assert!(
            std::time::Instant::now() < deadline,
            "a lock is held asleep"
        );
        std::thread::yield_now();
    }
    // The next request finds the wipe possible.
    for restarts in 1..4 {
        assert_eq!(front.run(FrontRequest::get(&reset)).text(), "reset");
        while front.run(FrontRequest::get(&status)).text() != format!("1{restarts}") {
            assert!(std::time::Instant::now() < deadline, "the cache stays off");
        }
    }
}
