//! What a Swoole script sees: the classes under all their names, `Request`, cookies and sessions, and what is refused.
//! The tests run over HTTP, against Swoole's documented behaviour. Response bodies are tested in `swoole_bodies.rs`,
//! processes and faults in `swoole_server.rs`.

#![allow(clippy::unwrap_used, reason = "a broken rig must stop the test")]

mod swoole_rig;

use std::path::Path;

use swoole_rig::{RigDirectory, SwooleScript, run_to_end, serving};

#[test]
fn swoole_benchmark_script_runs_unchanged() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/hello_swoole.php");
    let script = SwooleScript::start_file(RigDirectory::new(), &file);
    let mut client = script.connect();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(
            (answer.status, answer.text()),
            (200, "<h1>\nHello Swoole.\n</h1>")
        );
        assert_eq!(
            answer.header("Last-Modified"),
            Some("Thu, 18 Jun 2015 10:24:27 GMT")
        );
        assert_eq!(answer.header("E-Tag"), Some("55829c5b-17"));
        assert_eq!(answer.header("Accept-Ranges"), Some("bytes"));
        assert_eq!(answer.header("Server"), Some("swoole-http-server"));
        assert_eq!(answer.header("Content-Type"), Some("text/html"));
        assert_eq!(answer.header("Connection"), Some("keep-alive"));
        assert!(answer.header("Date").unwrap().ends_with(" GMT"));
    }
    assert_eq!(script.stop().0, 0);
}

#[test]
fn swoole_class_aliases_name_the_same_classes() {
    for (server, request, response) in [
        (
            "swoole_http_server",
            "swoole_http_request",
            "swoole_http_response",
        ),
        (
            r"Swoole\Http\Server",
            r"Swoole\Http\Request",
            r"Swoole\Http\Response",
        ),
        (
            r"OpenSwoole\Http\Server",
            r"OpenSwoole\Http\Request",
            r"OpenSwoole\Http\Response",
        ),
    ] {
        let script = SwooleScript::start(&format!(
            r#"$s = new {server}("127.0.0.1", 0);
            $s->set(['worker_num' => 1]);
            $s->on('Request', function ({request} $q, {response} $r) use ($s) {{
                $r->end(get_class($q) . ' ' . ($s instanceof Swoole\Server ? 'server' : 'other'));
            }});
            $s->start();"#
        ));
        assert_eq!(script.get("/").text(), r"Swoole\Http\Request server");
    }
}

#[test]
fn swoole_request_carries_what_the_client_sent() {
    let script = serving(
        r#"$server = $q->server;
        unset($server['request_time'], $server['request_time_float'], $server['master_time'],
            $server['remote_port'], $server['server_port']);
        $r->end(json_encode([$q->header, $server, $q->cookie, $q->get, $q->post, $q->files,
            $q->tmpfiles, $q->getMethod(), $q->rawContent(), $q->getContent(), is_int($q->fd),
            is_float($q->server['request_time_float'])]));"#,
    );
    let mut client = script.connect();
    let answer = client.request(
        "POST",
        "/a%20b?x=1&y[]=2",
        "X-Two: 1\r\nX-Two: 2\r\nCookie: a=b%20c; q=\"z\"\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        b"p=1&q[k]=2",
    );
    let expected = concat!(
        r#"[{"host":"t","x-two":["1","2"],"content-type":"application\/x-www-form-urlencoded","content-length":"10"},"#,
        r#"{"query_string":"x=1&y[]=2","request_method":"POST","request_uri":"\/a%20b","path_info":"\/a b","server_protocol":"HTTP\/1.1","remote_addr":"127.0.0.1"},"#,
        r#"{"a":"b c","q":"\"z\""},{"x":"1","y":["2"]},{"p":"1","q":{"k":"2"}},null,null,"POST","p=1&q[k]=2","p=1&q[k]=2",true,true]"#,
    );
    assert_eq!(answer.text(), expected);
    // An absent array is null, as in Swoole.
    let answer = client.get("/");
    assert!(
        answer
            .text()
            .contains(r#"},null,null,null,null,null,"GET","","",true,true]"#),
        "{}",
        answer.text()
    );
}

#[test]
fn swoole_request_is_complete_however_it_is_read() {
    let script = serving(
        r#"switch ($q->server['path_info']) {
            case '/dump': ob_start(); var_dump($q); $r->end(ob_get_clean()); break;
            case '/array': $r->end(implode(',', array_keys((array) $q))); break;
            case '/isset': $r->end(json_encode([isset($q->get['a']), isset($q->post), empty($q->header), $q->nothing ?? 'none'])); break;
            case '/write': $q->get['b'] = 2; $q->own = 'x'; $r->end(json_encode([$q->get, $q->own])); break;
            case '/keep': $GLOBALS['kept'] = $q; $r->end('kept'); break;
            case '/kept': $k = $GLOBALS['kept']; $r->end(json_encode([$k->get, $k->header['host'], $k->rawContent(), $k->getMethod()])); break;
            case '/data': $r->end($q->getData()); break;
        }"#,
    );
    let dump = script.get("/dump?a=1");
    for part in [
        r#"["header"]=>"#,
        r#"["a"]=>"#,
        r#"["request_method"]=>"#,
        r#"["tmpfiles"]=>"#,
    ] {
        assert!(dump.text().contains(part), "{part}: {}", dump.text());
    }
    assert_eq!(
        script.get("/array").text(),
        "fd,streamId,header,server,cookie,get,files,post,tmpfiles"
    );
    assert_eq!(
        script.get("/isset?a=1").text(),
        r#"[true,false,false,"none"]"#
    );
    assert_eq!(script.get("/write?a=1").text(), r#"[{"a":"1","b":2},"x"]"#);
    let mut client = script.connect();
    client.request("POST", "/keep?k=v", "", b"body");
    // Another request has used the same connection since.
    assert_eq!(
        client.get("/kept").text(),
        r#"[{"k":"v"},"t","body","POST"]"#
    );
    assert_eq!(
        script.get("/data").text(),
        "GET /data HTTP/1.1\r\nHost: t\r\n\r\n"
    );
}

#[test]
fn swoole_uploads_are_files_until_the_request_ends() {
    let script = serving(
        r#"if ($q->server['path_info'] === '/gone') { return $r->end(json_encode(file_exists($q->get['f']))); }
        $f = $q->files['up'];
        $r->end(json_encode([$f['name'], $f['type'], $f['size'], $f['error'], file_get_contents($f['tmp_name']),
            is_uploaded_file($f['tmp_name']), array_keys($f), $q->tmpfiles === [$f['tmp_name']], $q->post, $f['tmp_name']]));"#,
    );
    let mut client = script.connect();
    let body = b"--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--xx\r\nContent-Disposition: form-data; name=\"up\"; filename=\"n.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--xx--\r\n";
    let fields = "Content-Type: multipart/form-data; boundary=xx\r\n";
    let answer = client.request("POST", "/", fields, body);
    let start = r#"["n.txt","text\/plain",5,0,"hello",true,["name","type","tmp_name","error","size"],true,{"a":"1"},""#;
    let path = answer
        .text()
        .strip_prefix(start)
        .unwrap_or_else(|| panic!("{}", answer.text()));
    let path = path.trim_end_matches("\"]").replace("\\/", "/");
    assert_eq!(client.get(&format!("/gone?f={path}")).text(), "false");
}

#[test]
fn swoole_file_arrays_are_grouped_as_in_swoole_or_as_in_php() {
    let part = |name: &str, file: &str| {
        format!(
            "--xx\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\n{file}!\r\n"
        )
    };
    let names = [
        ("one", "1"),
        ("form[a]", "2"),
        ("form[b][c]", "3"),
        ("list[]", "4"),
        ("list[]", "5"),
    ];
    let parts: String = names.iter().map(|(name, file)| part(name, file)).collect();
    let body = format!("{parts}--xx--\r\n");
    let code = r#"array_walk_recursive($q->files, function (&$v, $k) { if (is_string($v) && str_starts_with($v, '/')) { $v = file_get_contents($v); } });
        $f = $q->files;
        $r->end(json_encode([$f['one']['tmp_name'], $f['form']['a']['tmp_name'] ?? null, $f['form']['b']['c']['size'] ?? null,
            array_column($f['list'], 'name'), $f['form']['tmp_name']['b']['c'] ?? null, $f['list']['name'] ?? null, count($q->tmpfiles)]));"#;
    for (settings, expected) in [
        ("[]", r#"["1!","2!",2,["4","5"],null,null,5]"#),
        (
            "['http_parse_files' => true]",
            r#"["1!",null,null,[],"3!",["4","5"],5]"#,
        ),
    ] {
        let script = SwooleScript::start(&format!(
            r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
            $s->set(['worker_num' => 1] + {settings});
            $s->on('request', function ($q, $r) {{ {code} }});
            $s->start();"#
        ));
        let fields = "Content-Type: multipart/form-data; boundary=xx\r\n";
        let answer = script
            .connect()
            .request("POST", "/", fields, body.as_bytes());
        assert_eq!(answer.text(), expected, "{settings}");
    }
}

#[test]
fn declared_swoole_properties_cannot_be_unset() {
    let script = serving(
        r#"$said = [];
        foreach ([$r, $q] as $object) {
            try { unset($object->header); } catch (Error $e) { $said[] = $e->getMessage(); }
        }
        $r->own = 1;
        unset($r->own);
        $r->header('X-Still', 'here');
        $r->end(json_encode([$said, isset($r->own)], JSON_UNESCAPED_SLASHES));"#,
    );
    let answer = script.get("/");
    assert_eq!(
        answer.text(),
        r#"[["Property header of class Swoole\\Http\\Response cannot be unset","Property header of class Swoole\\Http\\Request cannot be unset"],false]"#
    );
    assert_eq!(answer.header("X-Still"), Some("here"));
}

#[test]
fn swoole_bodies_arrive_whole_when_chunked_or_after_continue() {
    let script = serving("$r->end(strlen($q->rawContent()) . ' ' . json_encode($q->post));");
    let mut client = script.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n");
    assert_eq!(client.answer(false).text(), r#"7 {"a":"1","b":"2"}"#);
    client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer(false).status, 100);
    client.send(b"abc");
    assert_eq!(client.answer(false).text(), "3 null");
    // This body is larger than any buffer on the path.
    let large = vec![b'x'; 1_500_000];
    assert_eq!(
        client.request("POST", "/", "", &large).text(),
        "1500000 null"
    );
}

#[test]
fn response_headers_are_written_as_in_swoole() {
    let script = serving(
        r#"$r->header('x-lower-case', 'a');
        $r->header('x-Raw', 'b', false);
        $r->setHeader('x-twice', 'first'); $r->setHeader('X-Twice', 'second');
        $r->header('x-list', ['1', '2']);
        $r->header('x-null', null);
        $r->header['X-Property'] = 'p';
        @$r->header('x-split', "a\r\nEvil: 1");
        @$r->header("bad name", 'x');
        $r->header('content-type', 'text/plain');
        $r->header('Content-Length', '9999');
        $r->header('Transfer-Encoding', 'chunked');
        $r->status(201, 'Made');
        $r->end('body');"#,
    );
    let answer = script.get("/");
    assert!(
        answer.head.starts_with("HTTP/1.1 201 Made\n"),
        "{}",
        answer.head
    );
    for (name, value) in [
        ("X-Lower-Case", Some("a")),
        ("x-Raw", Some("b")),
        ("X-Twice", Some("second")),
        ("X-Property", Some("p")),
        ("Content-Type", Some("text/plain")),
        // The server decides the framing.
        ("Content-Length", Some("4")),
        ("Transfer-Encoding", None),
        ("X-Null", None),
        ("X-Split", None),
        ("Evil", None),
    ] {
        assert_eq!(answer.header(name), value, "{}", answer.head);
    }
    assert_eq!(answer.headers("X-List"), ["1", "2"]);
    assert_eq!(answer.text(), "body");
}

#[test]
fn cookies_and_redirections_are_written_as_in_swoole() {
    let script = serving(
        r#"if ($q->server['path_info'] === '/go') { return $r->redirect('/there?a=b', 301); }
        $r->cookie('a', 'b c;', 1700000000, '/p', 'example.org', true, true, 'Lax', 'High');
        $r->rawcookie('raw', 'x%20y');
        $r->cookie('gone');
        $bad = [@$r->cookie("n\n", 'v'), @$r->rawcookie('r', "a\r\nb"), @$r->cookie('d', 'v', 0, "/;x"),
            @$r->cookie('late', 'v', PHP_INT_MAX)];
        $r->end(json_encode($bad));"#,
    );
    let answer = script.get("/");
    assert_eq!(
        answer.headers("Set-Cookie"),
        [
            "a=b+c%3B; expires=Tue, 14-Nov-2023 22:13:20 GMT; Max-Age=0; path=/p; domain=example.org; secure; httponly; samesite=Lax; priority=High",
            "raw=x%20y",
            "gone=deleted; expires=Thu, 01-Jan-1970 00:00:01 GMT; Max-Age=0",
        ]
    );
    assert_eq!(answer.text(), "[false,false,false,false]");
    let answer = script.get("/go");
    assert_eq!(
        (answer.status, answer.header("Location")),
        (301, Some("/there?a=b"))
    );
}

#[test]
fn swoole_cookie_with_expiry_has_max_age() {
    let script = serving("$r->cookie('a', 'b', time() + 3600); $r->end();");
    let answer = script.get("/");
    let (_, age) = answer.headers("Set-Cookie")[0]
        .split_once("GMT; Max-Age=")
        .unwrap_or_else(|| panic!("{}", answer.head));
    let age: u32 = age.parse().unwrap();
    assert!((3500..=3600).contains(&age), "{age}");
}

#[test]
fn swoole_cookies_are_parsed_as_in_php() {
    let script = serving("$r->end(json_encode($q->cookie));");
    let mut client = script.connect();
    for (sent, read) in [
        (
            "Cookie: PHPSESSID=1; HttpOnly; q=2\r\n",
            r#"{"PHPSESSID":"1","HttpOnly":"","q":"2"}"#,
        ),
        // The first one counts: browsers send the cookie of the more specific path first (RFC 6265 §5.4).
        (
            "Cookie: a=1; a=2\r\nCookie: a=3; b=4\r\n",
            r#"{"a":"1","b":"4"}"#,
        ),
        (
            "Cookie: a=x+y%2B; a.b=1; l[k]=2; =none; e=\r\n",
            r#"{"a":"x+y+","a_b":"1","l":{"k":"2"},"e":""}"#,
        ),
        // A cookie name with a prefix that the browser has not checked must not result from mangling another name.
        ("Cookie: a=1; ..Host-x=3\r\n", r#"{"a":"1"}"#),
    ] {
        assert_eq!(client.request("GET", "/", sent, b"").text(), read, "{sent}");
    }
}

#[test]
fn swoole_session_starts_in_every_callback_despite_printed_output() {
    let script = SwooleScript::start_in(
        RigDirectory::new(),
        r#"echo "printed by the manager\n";
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('request', function ($q, $r) use ($argv) {
            echo "printed by the worker\n";
            $before = headers_sent();
            session_save_path($argv[1]);
            $started = session_start();
            $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
            $id = session_id();
            session_write_close();
            header('X-Dropped: 1');
            $r->end(json_encode([$before, $started, is_file("$argv[1]/sess_$id"), headers_sent(), headers_list()]));
        });
        $s->start();"#,
    );
    let mut client = script.connect();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!(answer.text(), "[false,true,true,false,[]]");
        // A header that was not set through Swoole's own methods is not sent.
        assert_eq!(answer.header("X-Dropped"), None);
    }
}

#[test]
fn swoole_session_does_not_leak_to_the_next_visitor() {
    let script = SwooleScript::start_in(
        RigDirectory::new(),
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('workerStart', function () use ($argv) {
            // These settings remain in effect for the requests below, but the session of the start is closed before them.
            session_save_path($argv[1]);
            session_set_save_handler(new class extends SessionHandler {
                function open($path, $name): bool { $GLOBALS['opened'] = ($GLOBALS['opened'] ?? 0) + 1; return parent::open($path, $name); }
            });
            session_start();
            $_SESSION['of'] = 'the boot';
        });
        $s->on('request', function ($q, $r) {
            $before = [session_id(), $_SESSION ?? null, session_status()];
            if ($id = $q->cookie['PHPSESSID'] ?? '') { session_id($id); }
            session_start();
            $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1;
            $r->cookie('PHPSESSID', session_id());
            $r->end(json_encode([$before, $_SESSION, $GLOBALS['opened']]));
            if ($q->server['path_info'] === '/throw') { throw new Exception('late'); }
        });
        $s->start();"#,
    );
    let ask = |target: &str, cookie: Option<&str>| {
        let field = cookie.map_or_else(String::new, |id| format!("Cookie: PHPSESSID={id}\r\n"));
        let answer = script.connect().request("GET", target, &field, b"");
        let id = answer.headers("Set-Cookie")[0]
            .strip_prefix("PHPSESSID=")
            .unwrap()
            .to_owned();
        (answer.text().to_owned(), id)
    };
    let (said, first) = ask("/", None);
    assert_eq!(said, r#"[["",null,1],{"n":1},2]"#);
    // The session is also removed if the callback fails.
    let (said, second) = ask("/throw", None);
    assert_eq!(said, r#"[["",null,1],{"n":1},3]"#);
    assert_ne!(first, second);
    // A client that sends the id gets the data.
    let (said, again) = ask("/", Some(&first));
    assert_eq!(said, r#"[["",null,1],{"n":2},4]"#);
    assert_eq!(again, first);
}

#[test]
fn bailout_in_a_session_write_ends_the_swoole_worker() {
    let script = SwooleScript::start_in(
        RigDirectory::new(),
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('workerStart', function () {
            session_set_save_handler(new class extends SessionHandler {
                function open($path, $name): bool { return true; }
                function read($id): string { return ''; }
                function write($id, $data): bool { if ($_SESSION['large'] ?? false) { str_repeat('x', 1 << 40); } return true; }
                function close(): bool { return true; }
            });
        });
        $s->on('request', function ($q, $r) {
            session_start();
            $_SESSION['large'] = $q->server['path_info'] === '/large';
            $r->end((string) getmypid());
        });
        $s->start();"#,
    );
    let ask = |target: &str| {
        let answer = script.connect().request("GET", target, "", b"");
        answer.text().to_owned()
    };
    let first = ask("/");
    assert_eq!(ask("/"), first);
    assert_eq!(ask("/large"), first, "its response has left");
    let other: u32 = ask("/").parse().expect("the next visitor is served");
    assert_ne!(other.to_string(), first, "by another worker");
}

#[test]
fn unsupported_swoole_features_are_refused_by_name_before_serving() {
    let with = |settings: &str| {
        format!(
            r#"$s = new Swoole\Http\Server("127.0.0.1", 0); $s->set({settings});
            $s->on('request', function () {{}}); echo "STARTS\n"; $s->start();"#
        )
    };
    for (code, words) in [
        (with("['task_worker_num' => 2]"), "NotSupported: task_worker_num: needs task workers"),
        (with("['daemonize' => true]"), "NotSupported: daemonize"),
        (with("['open_websocket_protocol' => 1]"), "NotSupported: open_websocket_protocol"),
        (with("['open_http2_protocol' => true]"), "NotSupported: open_http2_protocol"),
        (with("['ssl_cert_file' => 'a.pem']"), "NotSupported: ssl_cert_file"),
        (with("['worker_num' => 0]"), "BadSetting: worker_num"),
        (with("['worker_num' => 'many']"), "BadSetting: worker_num"),
        (with("['enable_static_handler' => true]"), "BadSetting: enable_static_handler"),
        (r#"$s = new Swoole\Server("127.0.0.1", 0);"#.to_owned(), r"NotSupported: Swoole\Server"),
        (r#"$s = new Swoole\Http\Server("127.0.0.1", 0, SWOOLE_BASE, SWOOLE_SOCK_TCP | SWOOLE_SSL);"#.to_owned(), "NotSupported: SWOOLE_SSL"),
        (r#"$s = new Swoole\Http\Server("127.0.0.1", 0); $s->on('message', fn () => 1);"#.to_owned(), "NotSupported: on('message')"),
        (r#"$s = new Swoole\Http\Server("127.0.0.1", 0); $s->start();"#.to_owned(), "NoCallback"),
        (r#"$s = new Swoole\Http\Server("127.0.0.1", 0); $s->on('request', 'no_such_function');"#.to_owned(), "BadCallback"),
        (r#"echo "STARTS\n"; Swoole\Coroutine\run(function () {});"#.to_owned(), r"NotSupported: Swoole\Coroutine\run in "),
        (r#"echo "STARTS\n"; function handler() { go(function () {}); }"#.to_owned(), "NotSupported: go in "),
        (r#"echo "STARTS\n"; $f = fn () => new OpenSwoole\Coroutine\Channel(1);"#.to_owned(), r"NotSupported: OpenSwoole\Coroutine\Channel in "),
        (r#"echo "STARTS\n"; class A { function b() { return new Swoole\WebSocket\Server('a', 1); } }"#.to_owned(), r"NotSupported: Swoole\WebSocket\Server in "),
    ] {
        let (status, said) = run_to_end(&code);
        assert!(status == 255 && said.contains(words), "{code}\n{status}: {said}");
        assert!(!said.contains("STARTS") || words.contains("BadSetting: enable"), "{code}: {said}");
    }
}

#[test]
fn swoole_settings_without_effect_and_unknown_ones_are_logged() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'enable_coroutine' => true, 'wroker_num' => 4, 'reactor_num' => 2, 'stats_file' => '/x']);
        $s->on('request', function ($q, $r) use ($s) { $r->end(json_encode($s->setting)); });
        $s->start();"#,
    );
    assert_eq!(
        script.get("/").text(),
        r#"{"worker_num":1,"enable_coroutine":true,"wroker_num":4,"reactor_num":2,"stats_file":"\/x"}"#
    );
    let log = script.log();
    assert!(
        log.contains("SettingWithoutEffect: enable_coroutine"),
        "{log}"
    );
    assert!(log.contains("SettingWithoutEffect: stats_file"), "{log}");
    assert!(log.contains("UnknownSetting: wroker_num"), "{log}");
    assert!(!log.contains("reactor_num"), "{log}");
}

#[test]
fn script_without_a_swoole_server_runs_as_a_command_line_script() {
    let (status, said) = run_to_end(
        r#"$sent = headers_sent();
        echo PHP_SAPI, ' ', implode(',', array_slice($argv, 1)) !== '' ? 'args' : 'none', ' ',
            is_resource(STDERR) ? 'streams' : 'no', ' ', ini_get('max_execution_time'), ' ',
            json_encode([extension_loaded('swoole'), extension_loaded('openswoole'), SWOOLE_VERSION_ID >= 40000]);
        echo json_encode([$sent, headers_sent()]);
        register_shutdown_function(function () { echo " bye\n"; });
        exit(3);"#,
    );
    assert_eq!(
        (status, said.as_str()),
        (3, "cli none streams 0 [true,true,true][false,true] bye\n")
    );
}
