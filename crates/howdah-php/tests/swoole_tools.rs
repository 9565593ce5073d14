//! What scripts use of Swoole besides its server: names of constants, timers with and without a server, atomics that
//! wait, statistics of tables, media types, trailers.

#![allow(clippy::unwrap_used, reason = "a broken rig must stop the test")]

mod swoole_rig;

use swoole_rig::{RigDirectory, SwooleScript, run_to_end};

#[test]
fn swoole_constants_name_settings_and_events() {
    let script = SwooleScript::start(
        r#"use Swoole\Constant;
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set([Constant::OPTION_WORKER_NUM => 1, Constant::OPTION_PACKAGE_MAX_LENGTH => 10]);
        $s->on(Constant::EVENT_REQUEST, function ($q, $r) {
            $r->end(json_encode([Constant::EVENT_WORKER_START, OpenSwoole\Constant::EVENT_BEFORE_HANDSHAKE_RESPONSE,
                Constant::OPTION_HTTP2_MAX_FRAME_SIZE, Constant::OPTION_SOCKS5_HOST]));
        });
        $s->start();"#,
    );
    assert_eq!(
        script.get("/").text(),
        r#"["workerStart","beforeHandshakeResponse","http2_max_frame_size","socks5_host"]"#
    );
}

#[test]
fn script_that_only_sets_swoole_timers_runs_them() {
    let (status, said) = run_to_end(
        r#"$n = 0;
        Swoole\Timer::tick(5, function ($id) use (&$n) { echo "tick "; if (++$n === 3) { Swoole\Timer::clear($id); } });
        swoole_timer_after(1, fn ($word) => print("$word "), 'after');
        Swoole\Timer::clear(Swoole\Timer::after(86400000, fn () => print("never")));
        echo "script ";"#,
    );
    assert_eq!((status, said.as_str()), (0, "script after tick tick tick "));
}

#[test]
fn timer_that_exits_or_throws_ends_a_script_without_swoole_server() {
    let (status, said) = run_to_end(
        r#"register_shutdown_function(fn () => print("bye"));
        Swoole\Timer::tick(1, function () { echo "once "; exit(7); });"#,
    );
    assert_eq!((status, said.as_str()), (7, "once bye"));
    let (status, said) =
        run_to_end("Swoole\\Timer::tick(1, function () { throw new Exception('thrown'); });");
    assert!(
        status == 255 && said.matches("Exception: thrown").count() == 1,
        "{status}: {said}"
    );
    // An error that ends the script before its timer is due keeps the timer from running.
    let (status, said) =
        run_to_end("Swoole\\Timer::after(1, fn () => print('ran')); undefined_function();");
    assert!(status == 255 && !said.contains("ran\n"), "{status}: {said}");
}

#[test]
fn timer_info_and_stats_are_reported() {
    let (status, said) = run_to_end(
        r#"use Swoole\Timer;
        echo json_encode([Timer::info(1), Timer::stats()]), "\n";
        $tick = Timer::tick(1000, fn () => null);
        $after = Timer::after(60000, fn () => null);
        $info = Timer::info($after);
        echo json_encode([Timer::info($tick)['interval'], $info['interval'], $info['exec_count'], $info['removed'],
            $info['exec_msec'] >= 60000, Timer::info(99), Timer::stats()['num']]), "\n";
        $list = Timer::list();
        echo get_class($list), count($list), json_encode(iterator_to_array($list)), "\n";
        @Timer::set(['enable_coroutine' => false]);
        Timer::clearAll();
        echo count(swoole_timer_list());"#,
    );
    assert_eq!(
        (status, said.as_str()),
        (
            0,
            "[false,{\"initialized\":false,\"num\":0,\"round\":0}]\n[1000,0,0,false,true,null,2]\nSwoole\\Timer\\Iterator2[1,2]\n0"
        )
    );
}

#[test]
fn timer_info_works_in_a_cleared_timers_callback() {
    let (_, said) = run_to_end(
        r#"use Swoole\Timer;
        Timer::tick(1, function ($id) {
            Timer::clear($id);
            echo json_encode([Timer::exists($id), Timer::info($id)['removed'], Timer::info($id + 1)]);
        });
        register_shutdown_function(fn () => print(json_encode(Timer::info(1))));"#,
    );
    assert_eq!(said, "[false,true,null]null");
}

#[test]
fn swoole_constants_and_return_types_exist() {
    let (_, said) = run_to_end(
        "echo json_encode([SWOOLE_HAVE_ZLIB, SWOOLE_HAVE_COMPRESSION, SWOOLE_DISPATCH_STREAM, SWOOLE_DISPATCH_CONCURRENT_LB,
            (string) (new ReflectionFunction('swoole_timer_list'))->getReturnType()]);",
    );
    assert_eq!(said, r#"[true,true,7,10,"Swoole\\Timer\\Iterator"]"#);
}

#[test]
fn swoole_atomic_wakes_a_waiting_worker() {
    let script = SwooleScript::start(
        r#"$a = new Swoole\Atomic(0);
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 2]);
        // The first worker waits for the second. If the second is earlier, the first finds its 1 and does not wait.
        $s->on('workerStart', function ($s, $n) use ($a) {
            if ($n === 0) { echo "waited ", json_encode($a->wait(-1)), $a->get(), "\n"; } else { $a->wakeup(); }
        });
        $s->on('request', fn ($q, $r) => $r->end());
        $s->start();"#,
    );
    script.wait_for_log("waited true0");
    let (_, said) = run_to_end(
        "$a = new Swoole\\Atomic(1); echo json_encode([$a->wait(), $a->wait(0.01), $a->wakeup(), $a->wakeup(), $a->get()]);",
    );
    assert_eq!(said, "[true,false,true,true,1]");
}

#[test]
fn swoole_table_stats_count_its_operations() {
    let (_, said) = run_to_end(
        r#"$t = new Swoole\Table(64);
        $t->column('n', Swoole\Table::TYPE_INT);
        $t->create();
        foreach (range(1, 40) as $i) { $t->set("key$i", ['n' => $i]); }
        $t->set('key1', ['n' => 7]); $t->incr('key2', 'n'); $t->get('key3'); $t->del('key4'); $t->del('none');
        $seen = $t->stats();
        echo json_encode([$seen['num'], $seen['insert_count'], $seen['update_count'], $seen['delete_count'],
            $seen['total_slice_num'] - $seen['available_slice_num'], $seen['conflict_count'] >= 0, $seen['conflict_max_level'] < 64]);"#,
    );
    assert_eq!(said, "[39,40,2,1,39,true,true]");
}

#[test]
fn swoole_mime_type_functions_set_the_content_type_of_files() {
    let scratch = RigDirectory::new();
    scratch.write("www/a.usdz", "model");
    scratch.write("www/index.php", "<?php secret");
    let script = SwooleScript::start_in(
        scratch,
        r#"echo json_encode([swoole_mime_type_exists('a.usdz'), swoole_mime_type_add('usdz', 'model/vnd.usdz+zip'),
            swoole_mime_type_add('usdz', 'other'), swoole_mime_type_add('css', 'other'), swoole_mime_type_get('b.usdz'),
            swoole_mime_type_exists('A.USDZ'), swoole_mime_type_set('css', 'text/x-css'), swoole_mime_type_get('a.css'),
            swoole_mime_type_delete('css'), swoole_mime_type_get('a.css'), @swoole_mime_type_add('x', "a\r\nb"),
            swoole_mime_type_set('php', 'text/plain')]), "\n";
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'document_root' => "$argv[1]/www", 'enable_static_handler' => true]);
        $s->on('request', fn ($q, $r) => $r->sendfile("$argv[1]/www/a.usdz"));
        $s->start();"#,
    );
    script.wait_for_log(
        r#"[false,true,false,false,"model\/vnd.usdz+zip",true,true,"text\/x-css",true,"application\/octet-stream",false,true]"#,
    );
    for target in ["/a.usdz", "/sent-by-the-script", "/index.php"] {
        let answer = script.get(target);
        assert_eq!(answer.text(), "model");
        assert_eq!(answer.header("Content-Type"), Some("model/vnd.usdz+zip"));
    }
}

#[test]
fn swoole_trailers_follow_only_a_chunked_body() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('request', function ($q, $r) {
            $whole = $q->server['path_info'] === '/whole';
            $r->header('Trailer', 'Digest');
            if (!$whole) { $r->write('body'); }
            $taken = [$r->trailer('Digest', 'd'), @$r->trailer('Content-Length', '9'), @$r->trailer('a b', 'x'), $r->trailer('X-Null', null)];
            $r->trailer['Transfer-Encoding'] = 'chunked';
            @$r->trailer('X-Split', "a\r\n\r\nHTTP/1.1 200 OK");
            $r->end(json_encode($taken));
        });
        $s->start();"#,
    );
    let chunks = "4\r\nbody\r\n17\r\n[true,false,false,true]\r\n0\r\ndigest: d\r\n\r\n";
    assert_eq!(script.connect().raw_response("GET /", "HTTP/1.1"), chunks);
    let plain = "body[true,false,false,true]";
    assert_eq!(script.connect().raw_response("GET /", "HTTP/1.0"), plain);
    let whole = "[true,false,false,true]";
    assert_eq!(
        script.connect().raw_response("GET /whole", "HTTP/1.1"),
        whole
    );
}
