//! What one request leaves in a worker must not be visible to the next. There is a row for each thing that PHP keeps,
//! and for what the boot has set up and must stay. Each pair follows an earlier request, since some settings of the
//! first request are kept (see `shim/worker/state.c`).

mod front;

use std::io::{Read, Write};

use front::FrontRequest;
use front::worker::Worker;

/// Runs `change` in one request; `ask` must print the same before and after it.
#[track_caller]
fn is_undone(worker: &mut Worker, change: &str, ask: &str) {
    let before = worker.output_of(ask);
    worker.output_of(change);
    assert_eq!(worker.output_of(ask), before, "after {change}");
}

#[test]
fn state_changed_by_a_request_is_restored() {
    let mut worker = Worker::plain();
    worker.output_of("echo 1;");
    for (change, ask) in [
        ("ini_set('precision', '3');", "echo ini_get('precision');"),
        (
            "ini_set('memory_limit', '77M');",
            "echo ini_get('memory_limit');",
        ),
        ("set_time_limit(7);", "echo ini_get('max_execution_time');"),
        ("error_reporting(0);", "echo error_reporting();"),
        ("ini_set('session.name', 'OTHER');", "echo session_name();"),
        (
            "ini_set('include_path', '/nowhere');",
            "echo get_include_path();",
        ),
        ("ignore_user_abort(false);", "echo ignore_user_abort();"),
        ("putenv('LEAK=1');", "var_dump(getenv('LEAK'));"),
        ("$_ENV['LEAK'] = 1;", "var_dump($_ENV['LEAK'] ?? null);"),
        ("chdir('/');", "echo getcwd();"),
        ("umask(0077);", "echo umask();"),
        (
            "setlocale(LC_ALL, 'C.UTF-8');",
            "echo setlocale(LC_ALL, 0);",
        ),
        (
            "date_default_timezone_set('Asia/Tokyo');",
            "echo date_default_timezone_get();",
        ),
        (
            "mb_internal_encoding('ISO-8859-1');",
            "echo mb_internal_encoding();",
        ),
        (
            "mb_substitute_character(0x3042);",
            "echo mb_substitute_character();",
        ),
        (
            "mb_detect_order('ASCII');",
            "echo implode(',', mb_detect_order());",
        ),
        (
            "libxml_use_internal_errors(true);",
            "var_dump(libxml_use_internal_errors());",
        ),
        (
            "stream_context_set_default(['http' => ['header' => 'Authorization: secret']]);",
            "echo json_encode(stream_context_get_options(stream_context_get_default()));",
        ),
        (
            "stream_wrapper_unregister('http');",
            "var_dump(in_array('http', stream_get_wrappers()));",
        ),
        (
            "class_exists('W') || eval('class W {}'); stream_wrapper_register('leak', 'W');",
            "var_dump(in_array('leak', stream_get_wrappers()));",
        ),
        (
            "class_exists('F') || eval('class F extends php_user_filter {}'); stream_filter_register('leak.x', 'F');",
            "var_dump(in_array('leak.x', stream_get_filters()));",
        ),
        (
            "set_error_handler(fn () => true);",
            "var_dump(set_error_handler(null)); restore_error_handler();",
        ),
        (
            "set_exception_handler(fn () => true);",
            "var_dump(set_exception_handler(null)); restore_exception_handler();",
        ),
        ("@trigger_error('leak');", "var_dump(error_get_last());"),
        ("strtok('a b c', ' ');", "var_dump(strtok(' '));"),
        (
            "http_response_code(418); header('X-Leak: 1');",
            "echo http_response_code(), json_encode(headers_list());",
        ),
        ("ob_start(); echo 'kept?';", "echo ob_get_level();"),
        (
            "output_add_rewrite_var('leak', '1');",
            "echo '<a href=\"x.php\">';",
        ),
        (
            "ob_implicit_flush();",
            "echo ob_get_status()['level'] ?? 'none';",
        ),
        ("session_id('leak');", "var_dump(session_id());"),
        (
            "session_set_save_handler(new SessionHandler);",
            "echo ini_get('session.save_handler'), session_module_name();",
        ),
        ("gc_disable();", "var_dump(gc_enabled());"),
        (
            "header_register_callback(fn () => header('X-Leak: 2'));",
            "echo json_encode(headers_list());",
        ),
        (
            "ini_set('zlib.output_compression', '1');",
            "echo ini_get('zlib.output_compression');",
        ),
    ] {
        is_undone(&mut worker, change, ask);
    }
    let child = worker.child;
    worker.front.retire(child);
    worker.front.wait_exit(child);
    assert_eq!(worker.front.log(), "", "nothing to complain of");
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-mbstring")]
fn state_of_the_boot_survives_requests() {
    let boot = "ini_set('precision', '5'); ini_set('session.name', 'BOOT'); putenv('BOOT=1'); $_ENV['BOOT'] = 'e';
        error_reporting(E_ALL & ~E_NOTICE); date_default_timezone_set('Europe/Paris'); mb_internal_encoding('EUC-JP');
        umask(0027); chdir('/usr'); setlocale(LC_ALL, 'C.UTF-8');
        set_error_handler(function () { echo 'boot handler'; return true; });
        stream_context_set_default(['http' => ['timeout' => 3]]);
        class Wrapper {} stream_wrapper_register('boot', 'Wrapper');
        session_set_save_handler(new class implements SessionHandlerInterface {
            public array $data = [];
            function open($p, $n): bool { return true; } function close(): bool { return true; }
            function read($id): string { return $this->data[$id] ?? ''; }
            function write($id, $d): bool { $this->data[$id] = $d; return true; }
            function destroy($id): bool { return true; } function gc($t): int { return 0; }
        });";
    let mut worker = Worker::boot(
        boot,
        "",
        &[
            "-d",
            "session.use_cookies=0",
            "-d",
            "session.use_only_cookies=0",
            "-d",
            "session.cache_limiter=",
        ],
    );
    worker.output_of("echo 1;");
    for (change, ask, expect) in [
        (
            "ini_set('precision', '3');",
            "echo ini_get('precision');",
            "5",
        ),
        (
            "ini_restore('precision');",
            "echo ini_get('precision');",
            "5",
        ),
        ("session_name('X');", "echo session_name();", "BOOT"),
        (
            "putenv('BOOT=2'); putenv('BOOT');",
            "echo getenv('BOOT');",
            "1",
        ),
        ("$_ENV = [];", "echo $_ENV['BOOT'];", "e"),
        (
            "error_reporting(0);",
            "echo E_ALL & ~E_NOTICE ^ error_reporting();",
            "0",
        ),
        (
            "date_default_timezone_set('Asia/Tokyo');",
            "echo date_default_timezone_get();",
            "Europe/Paris",
        ),
        (
            "mb_internal_encoding('UTF-8');",
            "echo mb_internal_encoding();",
            "EUC-JP",
        ),
        ("umask(0);", "echo decoct(umask());", "27"),
        ("chdir('/');", "echo getcwd();", "/usr"),
        (
            "setlocale(LC_ALL, 'C');",
            "echo setlocale(LC_CTYPE, 0);",
            "C.UTF-8",
        ),
        (
            "set_error_handler(null);",
            "trigger_error('x');",
            "boot handler",
        ),
        (
            "restore_error_handler();",
            "trigger_error('x');",
            "boot handler",
        ),
        (
            "stream_context_set_default(['http' => ['timeout' => 9]]);",
            "echo stream_context_get_options(stream_context_get_default())['http']['timeout'];",
            "3",
        ),
        (
            "stream_wrapper_unregister('boot');",
            "echo in_array('boot', stream_get_wrappers());",
            "1",
        ),
        (
            "session_id('s1'); session_start(); $_SESSION['n'] = 4; session_write_close();",
            "session_id('s1'); session_start(); echo $_SESSION['n'];",
            "4",
        ),
        (
            "session_set_save_handler(new SessionHandler);",
            "session_id('s1'); session_start(); echo $_SESSION['n'];",
            "4",
        ),
    ] {
        worker.output_of(change);
        assert_eq!(worker.output_of(ask), expect, "after {change}");
        assert_eq!(worker.output_of(ask), expect, "again, after {change}");
    }
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-mbstring")]
fn error_handler_of_the_first_request_stays_and_its_settings_do_not() {
    let mut worker = Worker::plain();
    let look = "trigger_error('x'); echo json_encode([ini_get('display_errors'), date_default_timezone_get(), \
                mb_internal_encoding(), ini_get('precision'), error_reporting(), ini_get('memory_limit'), libxml_use_internal_errors()]);";
    let handler = "set_error_handler(function () { return true; });";
    let as_booted = worker.output_of(&format!("{handler} {look}"));
    let mut worker = Worker::plain();
    worker.output_of(&format!(
        "{handler} ini_set('display_errors', '1'); date_default_timezone_set('Asia/Tokyo'); mb_internal_encoding('EUC-JP');
         ini_set('precision', '3'); error_reporting(0); ini_set('memory_limit', '99M'); libxml_use_internal_errors(true);"
    ));
    for _ in 0..2 {
        assert_eq!(worker.output_of(look), as_booted);
    }
}

/// Two visitors. The second one sends nothing at all, which is the worst case: nothing overwrites the first one's data.
#[test]
fn superglobals_of_one_visitor_are_not_seen_by_the_next() {
    let mut worker = Worker::plain();
    let look = "echo json_encode([$_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST, $_SESSION ?? null, session_id(),
        $_SERVER['HTTP_AUTHORIZATION'] ?? null, $_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['QUERY_STRING'] ?? null,
        $_SERVER['HTTP_X_SECRET'] ?? null, getenv('HTTP_X_SECRET'), filter_input(INPUT_GET, 'g'), filter_input(INPUT_COOKIE, 'c'),
        filter_input(INPUT_POST, 'p'), filter_input(INPUT_SERVER, 'HTTP_X_SECRET'),
        file_get_contents('php://input'), getallheaders()['X-Secret'] ?? null, defined('SID') ? SID : '']);";
    // The code is compiled once before, so no superglobal is created later merely because its name is new.
    let empty = worker.output_of(look);
    for round in 0..3 {
        let rich = worker
            .request(&format!("session_start(); $_SESSION['secret'] = 1; $_GET['own'] = $_SERVER['own'] = $_REQUEST['own'] = 1; {look}"))
            .var("QUERY_STRING", "g=secret")
            .var("HTTP_COOKIE", "c=secret")
            .var("HTTP_AUTHORIZATION", "Basic dXNlcjpwYXNz")
            .var("HTTP_X_SECRET", "secret");
        let mut rich = rich.body("application/x-www-form-urlencoded", b"p=secret");
        rich = rich.var("REQUEST_METHOD", "POST");
        let answer = worker.front.run(rich);
        assert!(answer.text().contains("secret"), "{}", answer.text());
        assert_eq!(worker.output_of(look), empty, "round {round}");
    }
}

#[test]
fn superglobal_used_by_only_some_requests_is_always_current() {
    let mut worker = Worker::boot(
        "function ask() { static $f; $f ??= eval('return function () { return json_encode($_REQUEST); };'); return $f(); }",
        "",
        &[],
    );
    for (query, expect) in [
        ("", "[]"),
        ("v=1", r#"{"v":"1"}"#),
        ("", "[]"),
        ("w=2", r#"{"w":"2"}"#),
    ] {
        let request = worker.request("echo ask();").var("QUERY_STRING", query);
        assert_eq!(worker.front.run(request).text(), expect);
        worker.output_of("unset($GLOBALS['_REQUEST']);");
    }
}

#[test]
fn upload_is_deleted_with_its_request_and_not_seen_by_the_next() {
    let mut worker = Worker::plain();
    let body = b"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nhello\r\n--B--\r\n";
    let request = FrontRequest::new("POST", std::path::Path::new("/w.php"))
        .var("CODE", "echo $_FILES['f']['tmp_name'];")
        .body("multipart/form-data; boundary=B", body);
    let answer = worker.front.run(request);
    let file = answer.text();
    assert!(file.starts_with('/'), "{file}");
    // PHP deletes the file just after the response is complete.
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    while std::path::Path::new(&file).exists() {
        assert!(
            std::time::Instant::now() < deadline,
            "{file} is still there"
        );
        std::thread::yield_now();
    }
    assert_eq!(
        worker.output_of(&format!(
            "echo json_encode($_FILES), (int) is_uploaded_file('{file}');"
        )),
        "[]0"
    );
}

#[test]
fn input_stream_kept_from_one_request_does_not_read_the_next_body() {
    let mut worker = Worker::plain();
    let keep = FrontRequest::new("POST", std::path::Path::new("/w.php"))
        .var(
            "CODE",
            "$GLOBALS['in'] = fopen('php://input', 'r'); echo fread($GLOBALS['in'], 3);",
        )
        .body("text/plain", b"first body");
    assert_eq!(worker.front.run(keep).text(), "fir");
    let next = FrontRequest::new("POST", std::path::Path::new("/w.php"))
        .var(
            "CODE",
            "echo gettype($GLOBALS['in']), '|', file_get_contents('php://input');",
        )
        .body("text/plain", b"second body");
    assert_eq!(
        worker.front.run(next).text(),
        "resource (closed)|second body"
    );
}

#[test]
fn compressed_response_does_not_compress_the_next_one() {
    let mut worker = Worker::plain();
    let gzip = worker
        .request("ob_start('ob_gzhandler'); echo str_repeat('x', 500);")
        .var("HTTP_ACCEPT_ENCODING", "gzip");
    let answer = worker.front.run(gzip);
    assert_eq!(answer.header("content-encoding"), ["gzip"]);
    let answer = worker.run("ob_start('ob_gzhandler'); echo str_repeat('x', 500);");
    assert!(answer.header("content-encoding").is_empty());
    assert_eq!(answer.text(), "x".repeat(500));
}

/// Answers one connection with `response`, and returns the address.
fn answer_once(response: &'static str) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        client.write_all(response.as_bytes()).unwrap();
    });
    address
}

#[test]
fn headers_that_a_request_has_fetched_are_not_seen_by_the_next() {
    let mut worker = Worker::plain();
    let address = answer_once("HTTP/1.0 200 OK\r\nSet-Cookie: token=secret\r\n\r\nfetched");
    let fetch = format!("echo file_get_contents('http://{address}/');");
    assert_eq!(worker.output_of(&fetch), "fetched");
    // The function exists since PHP 8.4.
    let ask = "$f = 'http_get_last_response_headers'; var_dump(function_exists($f) ? $f() : null);";
    assert_eq!(worker.output_of(ask), "NULL\n");
}

#[test]
fn stream_errors_that_a_request_has_stored_are_not_seen_by_the_next() {
    let mut worker = Worker::plain();
    // Errors of streams can be stored since PHP 8.6.
    let store = "if (enum_exists('StreamErrorStore')) {
        $context = stream_context_create(['stream' => ['error_mode' => StreamErrorMode::Silent,
            'error_store' => StreamErrorStore::All]]);
        fopen('/nonexistent/secret', 'r', false, $context);
        count(stream_last_errors()) === 1 or print('not stored');
    }";
    assert_eq!(worker.output_of(store), "");
    let ask = "echo function_exists('stream_last_errors') ? count(stream_last_errors()) : 0;";
    assert_eq!(worker.output_of(ask), "0");
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs php-xml")]
fn errors_of_libxml_are_not_seen_by_the_next_request() {
    let mut worker = Worker::boot("libxml_use_internal_errors(true);", "", &[]);
    let parse = "simplexml_load_string('<secret'); echo count(libxml_get_errors()) > 0;";
    assert_eq!(worker.output_of(parse), "1");
    let ask = "var_dump(libxml_get_last_error(), libxml_get_errors());
        var_dump(libxml_use_internal_errors());";
    let nothing = "bool(false)\narray(0) {\n}\nbool(true)\n";
    assert_eq!(worker.output_of(ask), nothing);
}

#[test]
fn random_numbers_do_not_repeat_after_a_request_has_seeded_them() {
    let mut worker = Worker::plain();
    let draw = "echo mt_rand(), ' ', mt_rand();";
    let first = worker.output_of(&format!("mt_srand(42); {draw}"));
    assert_eq!(worker.output_of(&format!("mt_srand(42); {draw}")), first);
    worker.output_of("mt_srand(42);");
    assert_ne!(worker.output_of(draw), first);
    assert_ne!(worker.output_of(draw), worker.output_of(draw));
}

#[test]
fn settings_of_one_site_do_not_reach_a_request_of_another() {
    use howdah_proto::request::IniKind;
    let mut worker = Worker::plain();
    for _ in 0..2 {
        let ask = "echo ini_get('memory_limit'), '|', ini_get('precision'), '|', getenv('SITE');";
        let plain = worker.output_of(ask);
        let request = worker
            .request(ask)
            .ini(IniKind::AdminValue, "memory_limit", "300M")
            .ini(IniKind::Value, "precision", "9")
            .ini(IniKind::Environment, "SITE", "one");
        assert_eq!(worker.front.run(request).text(), "300M|9|one");
        assert_eq!(worker.output_of(ask), plain);
    }
}

#[test]
fn code_between_worker_requests_leaks_no_state() {
    let mut worker = Worker::boot(
        "$n = 0;",
        "$n++; if ($n > 1) { ini_set('precision', '3'); setlocale(LC_ALL, 'C.UTF-8'); echo \"own words $n\\n\"; header('X-Own: 1'); ob_start(); echo 'own buffer'; }",
        &[],
    );
    let ask = "echo ini_get('precision'), setlocale(LC_ALL, 0), json_encode(headers_list()), ob_get_level();";
    let first = worker.output_of(ask);
    for _ in 0..3 {
        assert_eq!(worker.output_of(ask), first);
    }
    let child = worker.child;
    worker.front.retire(child);
    worker.front.wait_exit(child);
    worker.front.wait_log("own words 2");
    worker.front.wait_log("own buffer");
}

#[test]
fn site_open_basedir_applies_only_to_its_own_requests() {
    use howdah_proto::request::IniKind;
    let mut worker = Worker::plain();
    let dir = worker.dir.0.display().to_string();
    let ask = "echo json_encode([@file_get_contents('/etc/hostname') !== false, is_dir(dirname($_SERVER['SCRIPT_FILENAME']))]);";
    for _ in 0..3 {
        assert_eq!(worker.output_of(ask), "[true,true]");
        let request = worker
            .request(ask)
            .ini(IniKind::AdminValue, "open_basedir", &dir);
        assert_eq!(worker.front.run(request).text(), "[false,true]");
    }
}
