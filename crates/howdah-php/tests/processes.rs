//! The life of zygotes and children: start, refusals, retiring, crashes, orphans.

mod front;

use front::{FrontRequest, TestDir, TestFront, is_alive, wait_gone, wait_until};
use howdah_proto::control::{Exit, ZygoteCommand, ZygoteReport};
use howdah_proto::shm::ChildId;

const BLOCKING_SCRIPT: &str =
    "<?php echo 'in'; @ob_flush(); flush(); fgetc(fopen($_SERVER['GATE'], 'r')); echo 'out';";

/// Creates a fifo on which a script can wait.
fn create_gate(dir: &TestDir) -> std::path::PathBuf {
    let path = dir.0.join("gate");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    path
}

/// Lets the waiting script continue.
fn open_gate(gate: &std::path::Path) {
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(gate)
        .unwrap();
    std::io::Write::write_all(&mut file, b"1").unwrap();
    // Kept open until the reader has opened its side, since the byte is lost when the last open end is closed.
    std::mem::forget(file);
}

fn start_failure(args: &[&str]) -> (String, String) {
    match TestFront::start_zygote(args).next_report() {
        ZygoteReport::Failed { name, message } => (name, message),
        other => panic!("{args:?}: {other:?}"),
    }
}

#[test]
fn ready_report_contains_versions_and_opcache() {
    let mut front = TestFront::start_zygote(&["--opcache", "on"]);
    let ZygoteReport::Ready { version, php } = front.next_report() else {
        panic!("not ready");
    };
    assert_eq!(version, howdah_proto::shm::VERSION);
    assert!(php.version.starts_with("8."), "{php:?}");
    assert!(php.opcache);
    for extension in ["standard", "Zend OPcache"] {
        assert!(php.extensions.iter().any(|e| e == extension), "{php:?}");
    }
    let directory = |path: &String| std::path::Path::new(path).is_dir();
    assert!(php.directories.iter().any(directory), "{php:?}");
    assert!(!TestFront::start(0, &["--opcache", "off"]).opcache);
}

#[test]
fn start_failures_are_named() {
    assert_eq!(
        start_failure(&["--user", "no-such-user-here"]).0,
        "NoSuchUser"
    );
    assert_eq!(
        start_failure(&["--user", "root", "--group", "no-such-group"]).0,
        "NoSuchGroup"
    );
    assert_eq!(start_failure(&["--group", "root"]).0, "CannotChangeUser");
    let (name, message) = start_failure(&["--php-ini", "/no/such/php.ini"]);
    assert_eq!(name, "PhpIniUnreadable");
    assert!(message.contains("/no/such/php.ini"));
    let memory = ["-d", "opcache.memory_consumption=16"];
    let strings = ["-d", "opcache.interned_strings_buffer=16"];
    let (name, message) = start_failure(&[memory, strings].concat());
    assert_eq!(name, "OpcacheMemory");
    assert!(message.contains("at least 24"), "{message}");
    let dir = TestDir::new();
    let preload = dir.write("preload.php", "<?php syntax error");
    let preload = format!("opcache.preload={}", preload.display());
    assert_eq!(
        start_failure(&["-d", &preload, "-d", "opcache.preload_user=root"]).0,
        "PhpStartup"
    );
}

#[test]
fn signal_that_kills_php_during_its_start_is_named() {
    let dir = TestDir::new();
    let preload = dir.write(
        "preload.php",
        "<?php posix_kill(posix_getpid(), 11 /* SIGSEGV */);",
    );
    let preload = format!("opcache.preload={}", preload.display());
    let args = [
        "--opcache",
        "on",
        "-d",
        &preload,
        "-d",
        "opcache.preload_user=root",
    ];
    let mut front = TestFront::start_zygote(&args);
    front.wait_log(
        "howdah-php: PhpCrashed: PHP was killed by SIGSEGV during its start, in the script of opcache.preload",
    );
    // Under root, opcache forks a process for the preload script, and its zygote exits by itself.
    assert!(!front.wait_zygote().success());
}

#[test]
fn invalid_pool_memory_is_refused() {
    let mut front = TestFront::start_zygote_with(&[], |command| {
        // The last --memory-fd takes effect: standard input, which is /dev/null.
        command.args(["--memory-fd", "0"]);
    });
    assert!(
        matches!(front.next_report(), ZygoteReport::Failed { name, .. } if name == "BadMemory")
    );
}

#[test]
fn spawn_on_a_missing_row_is_refused() {
    let mut front = TestFront::start(0, &[]);
    let child = ChildId {
        index: 900,
        incarnation: 1,
    };
    front.send_command(&ZygoteCommand::Spawn {
        child,
        max_requests: 0,
    });
    let report = front.next_report();
    assert!(
        matches!(report, ZygoteReport::SpawnFailed { child: c, .. } if c == child),
        "{report:?}"
    );
}

#[test]
fn pool_runs_as_its_user() {
    if !front::sys::is_root() {
        return eprintln!("skipped: only root can start a pool as another user");
    }
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo json_encode([posix_geteuid(), posix_getegid(), posix_getuid(), posix_getgroups()]);");
    let mut front = TestFront::start(1, &["--user", "www-data"]);
    assert_eq!(
        front.run(FrontRequest::get(&script)).text(),
        "[33,33,33,[33]]"
    );
    assert!(front.opcache);
    // The zygote, which runs as the same user, can still trace it.
    let gate = create_gate(&dir);
    std::process::Command::new("chmod")
        .args(["a+r", gate.to_str().unwrap()])
        .status()
        .unwrap();
    let script = dir.write("block.php", BLOCKING_SCRIPT);
    let child = front.children[0].0;
    let mut flight = front.publish(FrontRequest::get(&script).var("GATE", gate.to_str().unwrap()));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    assert!(front.trace(child).contains("block.php"));
    open_gate(&gate);
    front.drive_until(&mut flight, |_| false);
}

#[test]
fn max_requests_requests_a_replacement_and_ends_the_child() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo getmypid();");
    let (gate, block) = (create_gate(&dir), dir.write("block.php", BLOCKING_SCRIPT));
    let mut front = TestFront::start(0, &[]);
    let (child, pid) = front.spawn(3);
    for n in 1..=2 {
        assert_eq!(
            front.run(FrontRequest::get(&script)).text(),
            pid.to_string()
        );
        front.wait_child(child, |c| c.requests == n);
        assert!(!front.pool.child_status(child.index).spent);
    }
    let mut last = front.publish(FrontRequest::get(&block).var("GATE", gate.to_str().unwrap()));
    front.drive_until(&mut last, |a| !a.body.is_empty());
    assert!(
        front.pool.child_status(child.index).spent,
        "while it runs the last"
    );
    let mut next = front.publish(FrontRequest::get(&script));
    open_gate(&gate);
    front.drive_until(&mut last, |_| false);
    assert_eq!(last.answer.text(), "inout");
    assert_eq!(front.wait_exit(child), Exit::Code(0));
    wait_gone(pid);
    assert!(
        !front.pool.child_status(child.index).live,
        "nobody waits for it"
    );
    let (_, other) = front.spawn(3);
    front.drive_until(&mut next, |_| false);
    assert_eq!(next.answer.text(), other.to_string());
}

#[test]
fn max_requests_of_one_uses_a_process_for_each_request() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo getmypid();");
    let mut front = TestFront::start(0, &[]);
    for _ in 0..3 {
        let (child, pid) = front.spawn(1);
        assert_eq!(
            front.run(FrontRequest::get(&script)).text(),
            pid.to_string()
        );
        assert_eq!(front.wait_exit(child), Exit::Code(0));
    }
}

#[test]
fn forked_processes_are_reaped_after_the_request() {
    let dir = TestDir::new();
    let forget = dir.write(
        "forget.php",
        "<?php for ($i = 0; $i < 10; $i++) { if (!pcntl_fork()) { exit; } } echo 'forked';",
    );
    // This script leaves a process that outlives the request and exits while the child sleeps.
    let linger = dir.write(
        "linger.php",
        "<?php if (!($pid = pcntl_fork())) { fgetc(fopen($_SERVER['GATE'], 'r')); exit; } echo $pid;",
    );
    let wait = dir.write(
        "wait.php",
        "<?php $pid = pcntl_fork(); if (!$pid) { exit(7); } \
         echo pcntl_waitpid($pid, $status) === $pid ? pcntl_wexitstatus($status) : 'lost';",
    );
    let gate = create_gate(&dir);
    let mut front = TestFront::start(1, &[]);
    let (_, child) = front.children[0];
    for _ in 0..5 {
        assert_eq!(front.run(FrontRequest::get(&forget)).text(), "forked");
        assert_eq!(
            front.run(FrontRequest::get(&wait)).text(),
            "7",
            "the script's own wait"
        );
    }
    wait_until("no zombies", || children_of(child).is_empty());
    let answer = front.run(FrontRequest::get(&linger).var("GATE", gate.to_str().unwrap()));
    let lingers: i32 = answer.text().parse().unwrap();
    assert_eq!(children_of(child), [lingers]);
    open_gate(&gate);
    // The process is reaped without a further request.
    wait_until("none that ended later", || children_of(child).is_empty());
    assert_eq!(
        front.run(FrontRequest::get(&wait)).text(),
        "7",
        "SIGCHLD as before"
    );
}

/// Returns the processes whose parent is `pid`, including zombies.
fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace()
        .map(|n| n.parse().unwrap())
        .collect()
}

#[test]
fn process_memory_is_closed_to_its_own_user() {
    if !front::sys::is_root() {
        return eprintln!("skipped: only root can start a pool as another user");
    }
    let dir = TestDir::new();
    let script = dir.write(
        "look.php",
        "<?php $who = ['self' => 'self', 'zygote' => posix_getppid(), 'sibling' => $_SERVER['SIBLING']]; \
         foreach ($who as $name => $pid) { foreach (['mem', 'environ'] as $file) { \
         if (@file_get_contents(\"/proc/$pid/$file\", false, null, 0, 1) !== false || @fopen(\"/proc/$pid/$file\", 'r+')) \
         { echo \"$name $file \"; } } } \
         foreach (scandir('/proc/self/fd') as $fd) { $to = (string) @readlink(\"/proc/self/fd/$fd\"); \
         if (str_ends_with($to, '/mem')) { echo \"inherited $to \"; } } echo 'end';",
    );
    let mut front = TestFront::start(2, &["--user", "nobody"]);
    for (child, sibling) in [(0, 1), (1, 0)] {
        let (sleeper, pid) = (front.children[sibling], front.children[child].1);
        // Only one of the two may send the response.
        let stop = |signal| front::sys::kill(sleeper.1, signal);
        stop(libc::SIGSTOP);
        let found = front.run(FrontRequest::get(&script).var("SIBLING", &sleeper.1.to_string()));
        stop(libc::SIGCONT);
        assert_eq!(found.text(), "end", "process {pid}");
    }
}

#[test]
fn retired_child_finishes_its_request_first() {
    let dir = TestDir::new();
    let (gate, script) = (create_gate(&dir), dir.write("block.php", BLOCKING_SCRIPT));
    let mut front = TestFront::start(1, &[]);
    let child = front.children[0].0;
    let mut flight = front.publish(FrontRequest::get(&script).var("GATE", gate.to_str().unwrap()));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    front.retire(child);
    open_gate(&gate);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "inout");
    assert_eq!(front.wait_exit(child), Exit::Code(0));
}

#[test]
fn signal_reaches_only_the_child_it_is_meant_for() {
    let mut front = TestFront::start(1, &[]);
    let (child, pid) = front.children[0];
    let other = ChildId {
        incarnation: child.incarnation + 7,
        ..child
    };
    front.send_command(&ZygoteCommand::Signal {
        child: other,
        signal: libc::SIGKILL,
    });
    front.send_command(&ZygoteCommand::Trace { child: other });
    assert_eq!(
        front.next_report(),
        ZygoteReport::Trace {
            child: other,
            stack: String::new()
        }
    );
    assert!(is_alive(pid));
    front.send_command(&ZygoteCommand::Signal {
        child,
        signal: libc::SIGKILL,
    });
    assert_eq!(front.wait_exit(child), Exit::Signal(libc::SIGKILL));
}

#[test]
fn zygote_kill_ends_idle_children_and_lets_busy_ones_finish() {
    let dir = TestDir::new();
    let (gate, script) = (create_gate(&dir), dir.write("block.php", BLOCKING_SCRIPT));
    let mut front = TestFront::start(2, &[]);
    let pids = [front.children[0].1, front.children[1].1];
    let mut flight = front.publish(FrontRequest::get(&script).var("GATE", gate.to_str().unwrap()));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    let howdah_proto::shm::SlotState::Claimed(busy) = front.port.state(flight.slot) else {
        panic!("not claimed");
    };
    let (idle, busy) = if front.children[0].0 == busy {
        (pids[1], pids[0])
    } else {
        (pids[0], pids[1])
    };
    front.zygote.kill().unwrap();
    front.wait_zygote();
    wait_gone(idle);
    assert!(is_alive(busy));
    open_gate(&gate);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "inout");
    wait_gone(busy);
}

#[test]
fn front_exit_lets_children_finish_and_ends_the_pool() {
    let dir = TestDir::new();
    let (gate, script) = (create_gate(&dir), dir.write("block.php", BLOCKING_SCRIPT));
    let mut front = TestFront::start(2, &[]);
    let pids: Vec<i32> = front.children.iter().map(|(_, pid)| *pid).collect();
    let mut flight = front.publish(FrontRequest::get(&script).var("GATE", gate.to_str().unwrap()));
    front.drive_until(&mut flight, |a| !a.body.is_empty());
    front.close_control();
    let left = |pids: &[i32]| pids.iter().filter(|p| is_alive(**p)).count();
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    while left(&pids) > 1 {
        assert!(std::time::Instant::now() < deadline, "the idle child stays");
    }
    open_gate(&gate);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "inout");
    assert!(front.wait_zygote().success());
    assert_eq!(left(&pids), 0);
}

#[test]
fn script_fork_sends_no_response() {
    let dir = TestDir::new();
    let script = dir.write(
        "fork.php",
        "<?php $pid = pcntl_fork(); if ($pid === 0) { echo 'from the copy'; exit(7); } \
         pcntl_waitpid($pid, $status); echo 'parent ', pcntl_wexitstatus($status);",
    );
    let mut front = TestFront::start(1, &[]);
    for _ in 0..3 {
        assert_eq!(front.run(FrontRequest::get(&script)).text(), "parent 7");
    }
}

#[test]
fn signal_handlers_of_one_request_are_gone_in_the_next() {
    let dir = TestDir::new();
    let set = dir.write(
        "set.php",
        "<?php pcntl_async_signals(true); pcntl_signal(SIGUSR1, function () { echo 'caught'; }); \
         pcntl_signal(SIGWINCH, SIG_IGN); pcntl_signal(SIGTERM, SIG_IGN); \
         pcntl_sigprocmask(SIG_BLOCK, [SIGHUP]); posix_kill(posix_getpid(), SIGUSR1);",
    );
    let look = dir.write(
        "look.php",
        "<?php pcntl_sigprocmask(SIG_BLOCK, [], $old); preg_match('/SigIgn:\\s*(\\w+)/', file_get_contents('/proc/self/status'), $m); \
         echo json_encode([$old, $m[1], pcntl_signal_get_handler(SIGUSR1)]);",
    );
    let mut front = TestFront::start(1, &[]);
    let fresh = front.run(FrontRequest::get(&look)).text();
    assert_eq!(front.run(FrontRequest::get(&set)).text(), "caught");
    assert_eq!(front.run(FrontRequest::get(&look)).text(), fresh);
    // SIGTERM works again, in a request and outside of one.
    let (child, _) = front.children[0];
    front.send_command(&ZygoteCommand::Signal {
        child,
        signal: libc::SIGTERM,
    });
    assert_eq!(front.wait_exit(child), Exit::Signal(libc::SIGTERM));
}

#[test]
fn children_do_not_share_their_random_numbers() {
    let dir = TestDir::new();
    let preload = dir.write("preload.php", "<?php mt_srand(1); mt_rand(); lcg_value();");
    let script = dir.write(
        "a.php",
        "<?php echo mt_rand(), ' ', rand(), ' ', lcg_value(), ' ', uniqid('', true);",
    );
    let preload = format!("opcache.preload={}", preload.display());
    let mut front = TestFront::start(0, &["-d", &preload, "-d", "opcache.preload_user=root"]);
    let mut seen = std::collections::HashSet::new();
    for _ in 0..4 {
        let (child, _) = front.spawn(0);
        let text = front.run(FrontRequest::get(&script)).text();
        for number in text.split(' ') {
            assert!(seen.insert(number.to_owned()), "{number} twice");
        }
        front.retire(child);
        front.wait_exit(child);
    }
}

#[test]
fn process_titles_name_the_pool() {
    let mut front = TestFront::start(1, &[]);
    let child = front.children[0].0;
    front.wait_child(child, |c| c.live);
    let title = |pid: u32| {
        let raw = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        String::from_utf8_lossy(&raw)
            .trim_end_matches('\0')
            .to_owned()
    };
    assert_eq!(title(front.zygote.id()), "howdah-php: zygote test");
    assert_eq!(title(front.children[0].1 as u32), "howdah-php: pool test");
}

#[test]
fn version_needs_no_front() {
    let out = howdah_test_support::php::howdah_php()
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(
        text.contains("\nlibrary howdah-php-") && text.contains("\nshm "),
        "{text}"
    );
    let out = howdah_test_support::php::howdah_php()
        .arg("--frob")
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("UnknownOption: --frob"));
}

#[test]
fn children_killed_under_load_cost_their_own_requests_only() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo str_repeat('x', 100000);");
    let mut front = TestFront::start(3, &["-d", "output_buffering=0"]);
    let (mut answered, mut lost) = (0, 0);
    for round in 0..20 {
        let mut flights: Vec<_> = (0..6)
            .map(|_| front.publish(FrontRequest::get(&script)))
            .collect();
        let (child, pid) = front.children[round % 3];
        front::sys::kill(pid, libc::SIGKILL);
        for flight in &mut flights {
            front.drive_until(flight, |_| false);
            match flight.answer.died {
                None => {
                    assert_eq!(flight.answer.body.len(), 100_000);
                    answered += 1;
                }
                Some(exit) => {
                    assert_eq!(exit, Exit::Signal(libc::SIGKILL));
                    lost += 1;
                }
            }
        }
        assert_eq!(front.wait_exit(child), Exit::Signal(libc::SIGKILL));
        front.spawn(0);
    }
    assert_eq!(answered + lost, 120);
    assert!(lost <= 20, "at most one for each killed child: {lost}");
}
