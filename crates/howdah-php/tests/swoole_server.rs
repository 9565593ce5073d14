//! The processes of a Swoole script and their faults: bad HTTP, slow and silent clients, exceptions, `exit`, fatal
//! errors, kills, reloads, `max_request`, timers, tables, and a server script like Octane's. `Request` and
//! `Response` are tested in `swoole.rs` and `swoole_bodies.rs`.

#![allow(clippy::unwrap_used, reason = "a broken rig must stop the test")]

mod swoole_rig;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use swoole_rig::{SwooleScript, eventually, run_to_end, signal_to};

/// Starts a server with these settings whose callback is `code`, with `$q`, `$r` and `$s`.
fn serving(settings: &str, code: &str) -> SwooleScript {
    SwooleScript::start(&format!(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set({settings});
        $s->on('request', function ($q, $r) use ($s) {{ {code} }});
        $s->start();"#
    ))
}

#[test]
fn swoole_server_refuses_invalid_http_as_the_front_does() {
    let script = serving(
        "['worker_num' => 1, 'package_max_length' => 100]",
        "$r->end('ok');",
    );
    for (bytes, status, name) in [
        ("GET / HTTP/1.1\nHost: t\r\n\r\n", 400, "BareLf"),
        ("GET / HTTP/1.1\r\n\r\n", 400, "MissingHost"),
        (
            "GET / HTTP/1.1\r\nHost: t\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
            "ContentLengthAndTransferEncoding",
        ),
        (
            "GET / HTTP/1.1\r\nHost: t\r\n folded: x\r\n\r\n",
            400,
            "ObsFold",
        ),
        ("GET / HTTP/2.0\r\nHost: t\r\n\r\n", 505, "BadVersion"),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 101\r\n\r\n",
            413,
            "BodyTooLarge",
        ),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "BadChunkSize",
        ),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", 400, "BadMethod"),
    ] {
        let mut client = script.connect();
        client.send(bytes.as_bytes());
        let answer = client.answer(false);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error")),
            (status, Some(name)),
            "{bytes}"
        );
        assert!(client.is_closed(), "{bytes}");
    }
    assert_eq!(script.get("/").text(), "ok");
    script.wait_for_log("answered 400 to 127.0.0.1");
}

#[test]
fn swoole_pipelined_requests_are_answered_in_order() {
    let script = serving("['worker_num' => 1]", "$r->end($q->get['n']);");
    let mut client = script.connect();
    let all: String = (0..50)
        .map(|n| format!("GET /?n={n} HTTP/1.1\r\nHost: t\r\n\r\n"))
        .collect();
    client.send(all.as_bytes());
    for n in 0..50 {
        assert_eq!(client.answer(false).text(), n.to_string());
    }
    // A request that is sent byte by byte has the same result.
    for byte in b"GET /?n=slow HTTP/1.1\r\nHost: t\r\n\r\n" {
        client.send(&[*byte]);
    }
    assert_eq!(client.answer(false).text(), "slow");
}

#[test]
fn paused_reader_gets_everything_and_does_not_block_the_swoole_worker() {
    let script = serving(
        "['worker_num' => 1]",
        "$r->end($q->server['path_info'] === '/large' ? str_repeat('0123456789', 2000000) : 'small');",
    );
    let mut slow = script.connect();
    slow.send(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\nGET /small HTTP/1.1\r\nHost: t\r\n\r\n");
    // 20 MB wait for the slow client; the only worker serves others meanwhile.
    for _ in 0..5 {
        assert_eq!(script.get("/small").text(), "small");
    }
    let answer = slow.answer(false);
    assert_eq!(answer.body.len(), 20_000_000);
    assert!(answer.body.chunks(10).all(|c| c == b"0123456789"));
    assert_eq!(slow.answer(false).text(), "small");
}

#[test]
fn swoole_stream_waits_for_its_reader_and_loses_nothing() {
    let script = serving(
        "['worker_num' => 1, 'socket_buffer_size' => 65536]",
        "for ($i = 0; $i < 400; $i++) { if (!$r->write(str_repeat(chr(97 + $i % 26), 20000))) { return; } } $r->end();",
    );
    let mut client = script.connect();
    let answer = client.get("/");
    assert_eq!(answer.body.len(), 8_000_000);
    for (i, piece) in answer.body.chunks(20_000).enumerate() {
        assert!(
            piece.iter().all(|b| usize::from(*b) == 97 + i % 26),
            "piece {i}"
        );
    }
}

#[test]
fn swoole_write_fails_after_a_client_disconnect() {
    let script = serving(
        "['worker_num' => 1]",
        "for ($i = 0; $i < 100; $i++) { if (!$r->write(str_repeat('x', 100000))) { $GLOBALS['gone'] = true; return; } }
         $r->end(json_encode(isset($GLOBALS['gone'])));",
    );
    for _ in 0..5 {
        let mut client = script.connect();
        client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    let mut half = script.connect();
    half.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10\r\n\r\nabc");
    drop(half);
    let answer = script.get("/");
    assert!(answer.body.ends_with(b"true"), "the script was not told");
}

#[test]
fn swoole_request_is_readable_after_its_connection_was_closed() {
    let script = serving(
        "['worker_num' => 1]",
        r#"if ($q->server['path_info'] === '/') { return $r->end('ok'); }
        if ($q->server['path_info'] === '/close') { $s->close($q->fd); } else { $r->close(); }
        echo json_encode([$q->get, $q->post, $q->rawContent(), $s->exists($q->fd), $r->isWritable(), @$r->end('x')]), "\n";"#,
    );
    for target in ["/close?a=1", "/gone?a=1"] {
        let mut client = script.connect();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: t\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\nb=2").as_bytes());
        let answer = client.try_answer(false);
        assert!(answer.is_none(), "{answer:?} {}", script.log());
    }
    let line = r#"[{"a":"1"},{"b":"2"},"b=2",false,false,false]"#;
    eventually("both have been told", || {
        (script.log().matches(line).count() == 2).then_some(())
    });
    assert_eq!(script.get("/").text(), "ok");
}

#[test]
fn idle_swoole_connections_are_closed_and_partial_requests_get_a_408() {
    let script = serving(
        "['worker_num' => 1, 'max_idle_time' => 1]",
        "$r->end('ok');",
    );
    let mut idle = script.connect();
    assert_eq!(idle.get("/").text(), "ok");
    let mut fresh = script.connect();
    let mut halves = Vec::new();
    for (half, name) in [
        ("GET / HTTP/1.1\r\nHos", "HeaderTimeout"),
        (
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\n\r\nab",
            "BodyTimeout",
        ),
    ] {
        let mut client = script.connect();
        client.send(half.as_bytes());
        halves.push((client, name));
    }
    for (mut client, name) in halves {
        let answer = client.answer(false);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error")),
            (408, Some(name))
        );
        assert!(client.is_closed());
    }
    assert!(idle.is_closed());
    assert!(fresh.is_closed());
    assert_eq!(script.get("/").text(), "ok");
}

#[test]
fn idle_swoole_connections_cost_little_memory_and_stay_open() {
    let script = serving(
        "['worker_num' => 1]",
        "$r->end($q->server['path_info'] === '/n' ? (string) $s->stats()['connection_num'] : 'ok');",
    );
    assert_eq!(script.get("/").text(), "ok");
    let before = script.worker_memory();
    let mut idle: Vec<_> = (0..400).map(|_| script.connect()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/").text(), "ok");
    }
    let count: u32 = script.get("/n").text().parse().unwrap();
    assert!((400..=402).contains(&count), "{count}");
    let each = script.worker_memory().saturating_sub(before) / 400;
    assert!(each < 4096, "{each} bytes for an idle connection");
    assert!(idle.iter_mut().all(|client| client.get("/").text() == "ok"));
}

#[test]
fn persistent_connections_are_shared_among_workers() {
    let script = serving(
        "['worker_num' => 2]",
        "$r->end((string) ($q->server['path_info'] === '/' ? $s->stats()['idle_worker_num'] : getmypid()));",
    );
    eventually("both serve", || {
        script.get("/").text().eq("2").then_some(())
    });
    let mut clients: Vec<_> = (0..60).map(|_| script.connect()).collect();
    let mut shares = std::collections::BTreeMap::new();
    for client in &mut clients {
        *shares
            .entry(client.get("/pid").text().to_owned())
            .or_insert(0) += 1;
    }
    assert!(
        shares.len() == 2 && shares.values().all(|share| *share >= 5),
        "{shares:?}"
    );
}

#[test]
fn exception_in_a_swoole_callback_fails_only_its_request() {
    let script = serving(
        "['worker_num' => 1]",
        r#"switch ($q->server['path_info']) {
            case '/throw': throw new RuntimeException('oops');
            case '/late': $r->write('begun'); throw new RuntimeException('late');
            case '/exit': exit(1);
            case '/drop': return;
            case '/status': $r->status(502); return;
            default: $r->end((string) getmypid());
        }"#,
    );
    let pid = script.get("/").text().to_owned();
    for (target, status, name) in [
        ("/throw", 500, Some("UncaughtException")),
        ("/exit", 500, Some("ExitInCallback")),
        ("/drop", 500, Some("ResponseNotEnded")),
        ("/status", 502, None),
    ] {
        let answer = script.get(target);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error")),
            (status, name),
            "{target}"
        );
        assert_eq!(answer.text(), "");
    }
    // The response has begun, so it is cut off, and the client sees that it is incomplete.
    let mut client = script.connect();
    client.send(b"GET /late HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut all = Vec::new();
    let _ = std::io::Read::read_to_end(&mut client.stream, &mut all);
    assert!(
        !all.ends_with(b"0\r\n\r\n"),
        "{}",
        String::from_utf8_lossy(&all)
    );
    assert_eq!(script.get("/").text(), pid, "the worker lives");
    for word in [
        "UncaughtException: onrequest threw RuntimeException",
        "oops",
        "ExitInCallback",
        "ResponseNotEnded",
    ] {
        script.wait_for_log(word);
    }
}

#[test]
fn swoole_worker_is_replaced_after_a_fatal_error_or_crash() {
    let script = serving(
        "['worker_num' => 1]",
        r#"switch ($q->server['path_info']) {
            case '/fatal': trigger_error('broken', E_USER_ERROR);
            case '/memory': ini_set('memory_limit', '64M'); str_repeat('x', 1 << 40); $r->end('survived'); break;
            case '/kill': Swoole\Process::kill(getmypid(), 9);
            default: $r->end('fine');
        }"#,
    );
    for target in ["/fatal", "/memory"] {
        let answer = script.get(target);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error")),
            (500, Some("ScriptDied")),
            "{target}"
        );
        assert_eq!(script.get("/").text(), "fine");
    }
    script.wait_for_log("WorkerDied: worker 0");
    let mut client = script.connect();
    client.send(b"GET /kill HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(
        client.try_answer(false).is_none(),
        "the connection ends with its worker"
    );
    assert_eq!(script.get("/").text(), "fine");
    script.wait_for_log("was killed by signal 9");
}

/// Sends requests over persistent connections from three threads while `during` runs. Returns the number of responses.
fn load(script: &SwooleScript, during: impl FnOnce()) -> u32 {
    let (stop, answers) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = script.connect();
                while !stop.load(Ordering::Relaxed) {
                    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
                    let answer = client.answer(false);
                    assert_eq!(answer.status, 200);
                    answers.fetch_add(1, Ordering::Relaxed);
                    if answer.header("Connection") == Some("close") {
                        client = script.connect();
                    }
                }
            });
        }
        eventually("requests run", || {
            (answers.load(Ordering::Relaxed) > 50).then_some(())
        });
        during();
        let so_far = answers.load(Ordering::Relaxed);
        eventually("requests go on", || {
            (answers.load(Ordering::Relaxed) > so_far + 50).then_some(())
        });
        stop.store(true, Ordering::Relaxed);
    });
    answers.load(Ordering::Relaxed)
}

/// Returns the workers, once there are `count` of them.
fn workers(script: &SwooleScript, count: usize) -> BTreeSet<i32> {
    eventually("all workers are there", || {
        Some(script.workers()).filter(|pids| pids.len() == count)
    })
}

#[test]
fn swoole_reload_under_load_replaces_every_worker_and_drops_no_request() {
    let script = serving("['worker_num' => 2]", "$r->end((string) getmypid());");
    let answers = load(&script, || {
        for _ in 0..3 {
            let before = workers(&script, 2);
            script.signal(libc::SIGUSR1);
            eventually("two others have taken over", || {
                let now = script.workers();
                (now.len() == 2 && now.is_disjoint(&before)).then_some(())
            });
        }
    });
    assert!(answers > 100);
    assert!(!script.log().contains("Died"), "{}", script.log());
}

#[test]
fn swoole_workers_are_replaced_after_max_request_and_drop_no_request() {
    let script = serving(
        "['worker_num' => 2, 'max_request' => 20, 'max_request_grace' => 10]",
        "$r->end((string) getmypid());",
    );
    let mut seen = workers(&script, 2);
    load(&script, || {
        eventually("workers have been replaced", || {
            seen.extend(script.workers());
            (seen.len() >= 4).then_some(())
        });
    });
    assert!(!script.log().contains("WorkerDied"), "{}", script.log());
}

#[test]
fn killed_swoole_workers_are_replaced() {
    let script = serving("['worker_num' => 2]", "$r->end((string) getmypid());");
    for pid in workers(&script, 2) {
        signal_to(pid, libc::SIGKILL);
    }
    let answer = eventually("somebody answers", || script.connect().try_answer_to_get());
    assert_eq!(answer.status, 200);
    script.wait_for_log("was killed by signal 9");
}

#[test]
fn swoole_stop_finishes_running_requests_and_calls_the_stop_events() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'pid_file' => "$argv[1]/pid"]);
        foreach (['start', 'managerStart', 'managerStop', 'shutdown', 'beforeShutdown'] as $e) {
            $s->on($e, function ($s) use ($e) { echo "$e {$s->master_pid}\n"; });
        }
        foreach (['workerStart', 'workerStop'] as $e) {
            $s->on($e, function ($s, $id) use ($e) { echo "$e $id {$s->worker_id}\n"; });
        }
        $s->on('request', function ($q, $r) { echo "begun\n"; usleep(200000); $r->end('done'); });
        register_shutdown_function(function () { echo "over once\n"; });
        $s->start();
        echo "after start\n";"#,
    );
    script.wait_for_log("workerStart 0 0");
    let pid = std::fs::read_to_string(script.directory().join("pid")).unwrap();
    assert_eq!(pid, script.pid().to_string());
    let mut client = script.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    script.wait_for_log("begun");
    script.signal(libc::SIGTERM);
    let asked = client.answer(false);
    let pid_file = script.directory().join("pid");
    assert_eq!(asked.text(), "done");
    let pid = script.pid();
    script.wait_for_log("over once");
    let (status, log) = script.stop();
    assert_eq!(status, 0, "{log}");
    for line in [
        format!("start {pid}\n"),
        format!("managerStart {pid}\n"),
        "workerStop 0 0\n".to_owned(),
        format!("beforeShutdown {pid}\n"),
        format!("managerStop {pid}\n"),
        format!("shutdown {pid}\n"),
        "after start\n".to_owned(),
        "over once\n".to_owned(),
    ] {
        assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
    }
    assert!(!pid_file.exists());
}

#[test]
fn worker_that_calls_stop_exits_after_its_response_and_is_replaced() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('request', function ($q, $r) use ($s) {
            $stopped = $q->server['path_info'] === '/stop' ? $s->stop() : null;
            $r->end(var_export($stopped, true) . ' ' . getmypid());
        });
        $s->start();"#,
    );
    let first = script.get("/").text().to_owned();
    let pid = first.strip_prefix("NULL ").unwrap();
    assert_eq!(script.get("/stop").text(), format!("true {pid}"));
    eventually("a request to another worker", || {
        script.get("/").text().ne(&first).then_some(())
    });
}

#[test]
fn swoole_stop_while_workers_start_reaches_all_of_them() {
    // The fourth worker requests the stop while the manager forks the others: some receive the signal before they could
    // have handlers.
    for _ in 0..8 {
        let (status, said) = run_to_end(
            r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
            $s->set(['worker_num' => 24]);
            $s->on('workerStart', function ($s, $n) { if ($n === 3) { $s->shutdown(); } });
            $s->on('request', function ($q, $r) { $r->end(); });
            $s->start();"#,
        );
        assert!(
            status == 0 && said.contains(": stopped") && !said.contains("WorkerKilled"),
            "{status}: {said}"
        );
    }
}

#[test]
fn swoole_workers_exit_when_their_manager_is_killed() {
    let script = serving("['worker_num' => 1]", "$r->end((string) getmypid());");
    let worker: i32 = script.get("/").text().parse().unwrap();
    script.signal(libc::SIGKILL);
    eventually("the worker is gone", || {
        (!std::path::Path::new(&format!("/proc/{worker}/exe")).exists()
            || std::fs::read_to_string(format!("/proc/{worker}/stat"))
                .is_ok_and(|stat| stat.contains(") Z ")))
        .then_some(())
    });
}

#[test]
fn swoole_worker_that_fails_to_start_is_logged_and_delayed() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('workerStart', function () { throw new LogicException('no database'); });
        $s->on('request', function ($q, $r) { $r->end(); });
        $s->start();"#,
    );
    script.wait_for_log("starts in 400 ms");
    let log = script.log();
    assert!(
        log.contains("no database") && log.contains("WorkerStartFailed: worker 0"),
        "{log}"
    );
    assert_eq!(
        log.matches("WorkerStartFailed").count(),
        log.matches("WorkerDied").count()
    );
}

#[test]
fn swoole_timers_tick_stop_and_send_late_responses() {
    let script = serving(
        "['worker_num' => 1]",
        r#"if ($q->server['path_info'] === '/later') {
            Swoole\Timer::after(20, function ($word) use ($r) { $r->end($word); }, 'later');
            return;
        }
        if ($q->server['path_info'] === '/detached') {
            $r->detach();
            $fd = $q->fd;
            Swoole\Timer::after(10, function () use ($fd, $s) { Swoole\Http\Response::create($s, $fd)->end('created'); });
            return;
        }
        $n = 0;
        Swoole\Timer::tick(5, function ($id) use (&$n, $r) {
            if (++$n === 3) { $r->end(json_encode([Swoole\Timer::clear($id), Swoole\Timer::exists($id), @Swoole\Timer::clear($id)])); }
        });"#,
    );
    let mut client = script.connect();
    assert_eq!(client.get("/").text(), "[true,false,false]");
    assert_eq!(client.get("/later").text(), "later");
    assert_eq!(client.get("/detached").text(), "created");
    // A pipelined request after a late response waits for that response.
    client.send(b"GET /later HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.answer(false).text(), "later");
    assert_eq!(client.answer(false).text(), "[true,false,false]");
}

#[test]
fn swoole_tables_and_atomics_are_shared_by_all_workers() {
    let script = SwooleScript::start(
        r#"$t = new Swoole\Table(64);
        $t->column('n', Swoole\Table::TYPE_INT); $t->column('f', Swoole\Table::TYPE_FLOAT); $t->column('s', Swoole\Table::TYPE_STRING, 8);
        $t->create();
        $a = new Swoole\Atomic(5); $long = new swoole_atomic_long(0);
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 2]);
        $s->on('request', function ($q, $r) use ($t, $a, $long) {
            if ($q->server['path_info'] === '/count') { usleep(2000); $a->add(); $t->incr('row', 'n', 2); return $r->end((string) getmypid()); }
            $t->set('k', ['n' => 7, 'f' => 1.5, 's' => 'text']);
            $t->set('k', ['n' => 8]);
            $seen = ['row' => $t->get('k'), 'field' => $t->get('k', 's'), 'none' => $t->get('none'), 'count' => count($t),
                'exists' => [$t->exists('k'), $t->exists('none')], 'keys' => array_keys(iterator_to_array($t)),
                'cut' => [@$t->set('cut', ['s' => '123456789']), $t->get('cut', 's')],
                'del' => [$t->del('k'), $t->del('k'), $t->del('cut')], 'cmpset' => [$long->cmpset(0, -3), $long->get()]];
            $full = 0;
            while (@$t->set("x$full", ['n' => $full])) { $full++; }
            $seen['full'] = [$full, count($t)];
            for ($i = 0; $i < $full; $i++) { $t->del("x$i"); }
            $seen['left'] = [count($t), $t->get('row', 'n'), $a->get()];
            $r->end(json_encode($seen));
        });
        $s->start();"#,
    );
    // A sleeping worker leaves the next connection to the other.
    let (pids, asked) = (Mutex::new(BTreeSet::new()), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                eventually("both workers have counted", || {
                    asked.fetch_add(1, Ordering::Relaxed);
                    let pid = script.get("/count").text().to_owned();
                    let mut pids = pids.lock().unwrap();
                    pids.insert(pid);
                    (pids.len() == 2).then_some(())
                });
            });
        }
    });
    let asked = asked.into_inner();
    let seen = script.get("/").text().to_owned();
    for part in [
        r#""row":{"n":8,"f":1.5,"s":"text"},"field":"text","none":false,"count":2,"exists":[true,false]"#.to_owned(),
        r#""cut":[true,"12345678"],"del":[true,false,true],"cmpset":[true,-3],"full":[63,64]"#.to_owned(),
        format!(r#""left":[1,{},{}]"#, asked * 2, asked + 5),
    ] {
        assert!(seen.contains(&part), "{part}: {seen}");
    }
}

#[test]
fn octane_style_server_script_runs() {
    let script = SwooleScript::start(
        r#"use Swoole\Http\Server; use Swoole\Timer; use Swoole\Table;
        class TimerTable extends Table {}
        $server = new Server('127.0.0.1', '8000', SWOOLE_PROCESS, SWOOLE_SOCK_TCP);
        $server->set(['enable_coroutine' => false, 'daemonize' => false, 'log_file' => "$argv[1]/swoole.log",
            'log_level' => SWOOLE_LOG_INFO, 'max_request' => 500, 'package_max_length' => 10 * 1024 * 1024,
            'reactor_num' => 2, 'send_yield' => true, 'socket_buffer_size' => 10 * 1024 * 1024,
            'task_max_request' => 500, 'task_worker_num' => 0, 'worker_num' => '2']);
        $table = new TimerTable(1000);
        $table->column('worker_pid', Table::TYPE_INT); $table->column('time', Table::TYPE_INT); $table->column('fd', Table::TYPE_INT);
        $table->create();
        $state = new stdClass;
        $server->on('start', function (Server $server) use ($table) {
            cli_set_process_title('swoole_http_server: master process for test');
            Timer::tick(10, function () use ($table, $server) {
                foreach ($table as $id => $row) {
                    if ($row['time'] < 0) { $table->del($id); Swoole\Process::kill($row['worker_pid'], SIGKILL); }
                }
            });
            echo "listening on 127.0.0.1:{$server->port}, as {$server->master_pid} {$server->manager_pid}\n";
        });
        $server->on('managerstart', fn () => null);
        $server->on('workerstart', function (Server $server, int $id) use ($state) { $state->id = $id; $state->workers = $server->setting['worker_num']; });
        $server->on('request', function ($request, $response) use ($server, $state, $table) {
            $table->set((string) $state->id, ['worker_pid' => $server->worker_pid, 'time' => isset($request->get['hang']) ? -1 : 1, 'fd' => $request->fd]);
            if (isset($request->get['hang'])) { while (true) { usleep(1000); } }
            $response->status(200, 'OK');
            $response->header('Content-Type', 'text/plain');
            $response->cookie('a', 'b', 0, '/', '', false, true, 'lax');
            foreach (str_split(str_repeat('x', 20000), 8192) as $chunk) { $response->write($chunk); }
            $response->end();
            $table->del((string) $state->id);
        });
        $server->on('task', fn () => null);
        $server->on('finish', fn (Server $server, int $id, $result) => $result);
        $server->on('workerstop', function () { });
        $server->start();"#,
    );
    let answer = script.get("/");
    assert_eq!((answer.status, answer.body.len()), (200, 20_000));
    assert_eq!(
        answer.header("Set-Cookie"),
        Some("a=b; path=/; httponly; samesite=lax")
    );
    // Octane's own watchdog: a timer of the master kills the worker that hangs.
    let mut client = script.connect();
    client.send(b"GET /?hang=1 HTTP/1.1\r\nHost: t\r\n\r\n");
    assert!(client.try_answer(false).is_none());
    assert_eq!(script.get("/").status, 200);
    eventually("the log says so", || {
        let log = std::fs::read_to_string(script.directory().join("swoole.log")).unwrap();
        log.contains("was killed by signal 9").then_some(())
    });
}

#[test]
fn swoole_server_methods_report_and_control_the_server() {
    let script = serving(
        "['worker_num' => 1]",
        r#"switch ($q->server['path_info']) {
            case '/reload': return $r->end(json_encode($s->reload()));
            case '/shutdown': return $r->end(json_encode($s->shutdown()));
            case '/task': try { $s->task('x'); } catch (Swoole\Exception $e) { return $r->end($e->getMessage()); }
            default: $stats = $s->stats();
                $r->end(json_encode([$s->worker_id, $s->worker_pid === getmypid(), $s->master_pid, $s->manager_pid === $s->master_pid,
                    $s->getWorkerId(), $stats['connection_num'], $stats['worker_num'], $s->exists($q->fd), $s->exist(99999999), $s->getClientInfo($q->fd)['remote_ip'], getmypid()]));
        }"#,
    );
    let first = script.get("/").text().to_owned();
    let pid = script.pid();
    let expected = format!(r#"[0,true,{pid},true,0,1,1,true,false,"127.0.0.1","#);
    assert!(first.starts_with(&expected), "{first} {expected}");
    assert!(
        script
            .get("/task")
            .text()
            .starts_with(r"NotSupported: Swoole\Server::task()")
    );
    assert_eq!(script.get("/reload").text(), "true");
    eventually("another worker answers", || {
        (script.get("/").text() != first).then_some(())
    });
    assert_eq!(script.get("/shutdown").text(), "true");
    script.wait_for_log("stopped");
}
