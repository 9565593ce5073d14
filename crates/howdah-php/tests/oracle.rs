//! The same script gives the same response here and under the stock php-fpm: status, headers, body. Where the two
//! differ on purpose, a test shows how.

mod front;

use front::fpm::{Fpm, PlainResponse};
use front::{FrontRequest, TestDir, TestFront};

const SETTINGS: &[&str] = &["display_errors=1", "html_errors=0", "date.timezone=UTC"];

/// A request that is sent to both servers.
struct OracleProbe<'a> {
    text: &'a str,
    method: &'a str,
    variables: &'a [(&'a str, &'a str)],
    kind: &'a str,
    body: &'a [u8],
}

const GET: OracleProbe<'static> = OracleProbe {
    text: "",
    method: "GET",
    variables: &[],
    kind: "",
    body: b"",
};

fn get(text: &str) -> OracleProbe<'_> {
    OracleProbe { text, ..GET }
}

struct ServerPair {
    dir: TestDir,
    front: TestFront,
    fpm: Fpm,
}

impl ServerPair {
    fn start() -> ServerPair {
        let fpm = Fpm::start(SETTINGS);
        let mut args = vec!["--no-php-ini"];
        for setting in SETTINGS {
            args.extend(["-d", setting]);
        }
        let mut front = TestFront::start_zygote_with(&args, |command| {
            command.env_clear();
        });
        front.next_report();
        front.spawn(0);
        front.replaces_bailed_out = true;
        ServerPair {
            dir: TestDir::new(),
            front,
            fpm,
        }
    }

    fn ask(&mut self, probe: &OracleProbe<'_>) -> (PlainResponse, PlainResponse) {
        let script = self.dir.write("www/script.php", probe.text);
        self.dir
            .write("www/part.php", "<?php return 'part in ' . getcwd();");
        let root = self.dir.0.join("www");
        let mut variables = vec![
            ("QUERY_STRING", "a=1&b[x]=2&c=%C3%A9"),
            ("CONTENT_TYPE", probe.kind),
            ("DOCUMENT_ROOT", root.to_str().unwrap()),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("PHP_SELF", "/script.php"),
            ("SERVER_NAME", "localhost"),
            ("SERVER_PORT", "80"),
            ("HTTP_HOST", "localhost"),
            ("HTTP_COOKIE", "one=1; two=a%20b; one=again"),
            ("HTTP_X_THING", "thing"),
        ];
        variables.extend_from_slice(probe.variables);
        let length = probe.body.len().to_string();
        let path = script.to_str().unwrap();
        let mut all: Vec<(String, String)> = [
            ("REQUEST_METHOD", probe.method),
            ("SCRIPT_FILENAME", path),
            ("SCRIPT_NAME", "/script.php"),
            ("REQUEST_URI", "/script.php"),
            ("CONTENT_LENGTH", &length),
        ]
        .iter()
        .chain(variables.iter().filter(|(n, _)| *n != "PHP_SELF"))
        .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
        .collect();
        all.retain(|(n, v)| n != "SCRIPT_FILENAME" || !v.is_empty());

        let mut request = FrontRequest::new(probe.method, &script);
        for (name, value) in &variables {
            if *name != "CONTENT_TYPE" {
                request = request.var(name, value);
            }
        }
        let answer = self.front.run(request.body(probe.kind, probe.body));
        let head = answer.head.as_ref().expect("a head");
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let ours = PlainResponse {
            status: head.status,
            headers: head
                .headers
                .iter()
                .map(|(n, v)| (text(n), text(v)))
                .collect(),
            body: answer.text(),
        };
        (ours, self.fpm.run(&all, probe.body))
    }

    fn assert_same(&mut self, probe: &OracleProbe<'_>) {
        let (ours, theirs) = self.ask(probe);
        assert_eq!(ours, theirs, "\n{}", probe.text);
    }
}

#[test]
fn responses_equal_those_of_php_fpm() {
    let mut pair = ServerPair::start();
    for text in [
        "<?php echo 'hello';",
        "plain text, no php",
        "",
        "<?php header('HTTP/1.0 404 Not Found'); echo 'gone';",
        "<?php header('Status: 403 Forbidden'); echo 'no';",
        "<?php header('Status: 403 Forbidden'); http_response_code(404);",
        "<?php http_response_code(418); header('X-A: 1'); header('X-A: 2', false); header('X-a: 3');",
        "<?php header('Location: /x'); exit;",
        "<?php header('Location: /x', true, 301); exit('bye');",
        "<?php header('WWW-Authenticate: Basic realm=x'); header('HTTP/1.1 401 Unauthorized');",
        "<?php header('Content-Type: text/plain; charset=x'); header('Content-Length: 2'); echo 'ab';",
        "<?php header('Content-Type: application/json'); echo '{}';",
        "<?php header('Content-Type: image/png');",
        "<?php header('content-type:text/css'); echo 'a{}';",
        "<?php header_remove(); header('X-Colon:tight'); header('X-Space:   wide   ');",
        "<?php http_response_code(304); header('Content-Type: text/css'); header('ETag: x');",
        "<?php http_response_code(204);",
        "<?php setcookie('a', 'b c', 0, '/p', 'd', true, true); setrawcookie('r', 'x'); setcookie('a', 'z');",
        "<?php header_register_callback(function () { header('X-Cb: ' . http_response_code()); }); echo 1;",
        "<?php ini_set('default_mimetype', 'text/x'); ini_set('default_charset', ''); echo 1;",
        "<?php ini_set('default_mimetype', ''); echo 1;",
        "<?php ob_start(); echo 'a'; header('X-Late: 1'); echo 'b';",
        "<?php ob_start('strtoupper'); echo 'abc';",
        "<?php echo 'x'; header('X-Too-Late: 1'); flush(); header('X-Too-Late: 2');",
        "<?php echo json_encode(headers_list()), json_encode(headers_sent());",
        "<?php echo json_encode([$_GET, $_POST, $_COOKIE, $_FILES, $_REQUEST]);",
        "<?php echo json_encode([php_sapi_name(), PHP_SAPI, $_SERVER['PHP_SELF'], $_SERVER['SCRIPT_NAME'], __FILE__ === $_SERVER['SCRIPT_FILENAME']]);",
        "<?php echo json_encode([getcwd(), __DIR__, include 'part.php', include __DIR__ . '/part.php', get_included_files()]);",
        "<?php echo json_encode([getenv('HTTP_X_THING'), getenv('SERVER_NAME'), getenv('nope'), getenv('HTTP_X_THING', true)]);",
        "<?php $h = array_filter(getallheaders(), 'strlen'); ksort($h); echo json_encode($h);",
        "<?php echo json_encode([filter_input(INPUT_SERVER, 'HTTP_X_THING'), filter_input(INPUT_COOKIE, 'one'), filter_input(INPUT_GET, 'a')]);",
        "<?php echo json_encode([isset($argv), isset($_SERVER['argv']), ini_get('register_argc_argv'), $_SERVER['argc'] ?? null]);",
        "<?php echo json_encode([ini_get('html_errors'), ini_get('implicit_flush'), ini_get('max_execution_time'), ini_get('output_buffering'), ini_get('memory_limit'), ini_get('display_startup_errors'), ini_get('error_log'), ini_get('max_input_time')]);",
        "<?php echo connection_status(), ignore_user_abort(), ob_get_level();",
        "<?php echo $undefined; echo 1 / 0;",
        "<?php throw new Exception('x');",
        "<?php function f() { f2(); } f();",
        "<?php not php",
        "<?php echo 'begin'; exit(3);",
        "<?php register_shutdown_function(function () { echo 'down', http_response_code(); }); nope();",
        "<?php class D { function __destruct() { echo 'destroyed'; } } $d = new D; echo 'end';",
        "<?php set_error_handler(function ($n, $s) { echo \"<$s>\"; return true; }); echo $u; trigger_error('t');",
        "<?php ini_set('memory_limit', '8M'); str_repeat('x', 16 << 20);",
        "<?php ini_set('display_errors', '0'); nope();",
        "<?php ini_set('display_errors', '0'); echo 'a'; nope();",
        "<?php echo get_current_user() !== '', getlastmod() > 0, getmyinode() > 0;",
        "<?php echo json_encode([function_exists('fastcgi_finish_request'), function_exists('apache_request_headers'), function_exists('cli_set_process_title'), function_exists('dl')]);",
        "<?php echo file_get_contents('php://input'), strlen(file_get_contents('php://input'));",
        "<?php session_set_save_handler(new class implements SessionHandlerInterface { function open($p, $n): bool { return true; } function close(): bool { return true; } function read($i): string { return ''; } function write($i, $d): bool { return true; } function destroy($i): bool { return true; } function gc($m): int { return 0; } }); session_id('fixed'); session_start(); header_remove('Expires'); echo session_id();",
        "#!/usr/bin/php\n<?php echo 'shebang';",
        "<?php echo str_repeat('0123456789', 50000);",
        "<?php declare(ticks=1); echo 'ticks';",
        "<?php return; echo 'never';",
        "<?php __halt_compiler(); data",
    ] {
        pair.assert_same(&get(text));
    }
}

#[test]
fn methods_bodies_and_credentials_are_seen_as_under_php_fpm() {
    let mut pair = ServerPair::start();
    let text = "<?php echo json_encode([$_SERVER['REQUEST_METHOD'], $_POST, $_FILES ? array_map(fn ($f) => [$f['name'], $f['full_path'], $f['type'], $f['error'], $f['size']], $_FILES) : 0, \
                file_get_contents('php://input'), $_SERVER['CONTENT_LENGTH'], $_SERVER['CONTENT_TYPE'], $_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null]);";
    let form = "application/x-www-form-urlencoded";
    let parts = b"--b\r\nContent-Disposition: form-data; name=\"t[]\"\r\n\r\n1\r\n--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"d/a.txt\"\r\nContent-Type: text/plain\r\n\r\nfile\r\n--b--\r\n";
    for (method, kind, body, variables) in [
        ("GET", "", &b""[..], &[][..]),
        ("HEAD", "", b"", &[]),
        ("OPTIONS", "", b"", &[]),
        ("BREW", "", b"", &[]),
        ("POST", form, b"x=1&y[]=2&y[]=3&z.z=4", &[]),
        (
            "POST",
            "application/x-www-form-urlencoded; charset=utf-8",
            b"x=%41",
            &[],
        ),
        ("POST", "", b"x=1", &[]),
        ("POST", "application/json", b"{\"a\":1}", &[]),
        ("PUT", form, b"x=1", &[]),
        ("PATCH", "text/plain", b"patch", &[]),
        ("DELETE", "text/plain", b"del", &[]),
        ("POST", "multipart/form-data; boundary=b", parts, &[]),
        (
            "POST",
            "multipart/form-data; boundary=b",
            b"--b\r\nbroken",
            &[],
        ),
        ("POST", "multipart/form-data", parts, &[]),
        ("GET", "", b"", &[("HTTP_AUTHORIZATION", "Basic dTpw")]),
        ("GET", "", b"", &[("HTTP_AUTHORIZATION", "Basic nonsense")]),
    ] {
        pair.assert_same(&OracleProbe {
            text,
            method,
            variables,
            kind,
            body,
        });
    }
}

#[test]
fn differences_from_php_fpm_are_the_intended_ones() {
    let mut pair = ServerPair::start();
    // Output after fastcgi_finish_request() ends the script under php-fpm; here it is discarded and the script
    // continues.
    let marker = pair.dir.0.join("went-on");
    let text = format!(
        "<?php echo 'a'; fastcgi_finish_request(); echo 'b'; flush(); touch('{}');",
        marker.display()
    );
    let (ours, theirs) = pair.ask(&get(&text));
    assert_eq!((ours.body.as_str(), theirs.body.as_str()), ("a", "a"));
    assert!(marker.exists());
    // A shutdown function finds the script's directory, not the server's.
    let text = "<?php register_shutdown_function(function () { echo getcwd() === __DIR__ ? 'here' : 'elsewhere'; });";
    let (ours, theirs) = pair.ask(&get(text));
    assert_eq!(
        (ours.body.as_str(), theirs.body.as_str()),
        ("here", "elsewhere")
    );
    // flush() before any output sends the headers, as under mod_php; under php-fpm since PHP 8.4 (GH-12385).
    let text = "<?php flush(); echo headers_sent() ? 'sent' : 'not yet', ' ', PHP_VERSION_ID >= 80400 ? 'sent' : 'not yet';";
    let (ours, theirs) = pair.ask(&get(text));
    assert!(ours.body.starts_with("sent "), "{ours:?}");
    assert!(
        ["not yet not yet", "sent sent"].contains(&&*theirs.body),
        "{theirs:?}"
    );
    // A Content-Type that the client did not send is not listed as a header, although the variable exists.
    let text = "<?php echo json_encode(isset(getallheaders()['Content-Type']));";
    let (ours, theirs) = pair.ask(&get(text));
    assert_eq!(
        (ours.body.as_str(), theirs.body.as_str()),
        ("false", "true")
    );
    // apache_response_headers() and headers_send() exist; fpm_get_status() does not.
    let text = "<?php echo json_encode(array_map('function_exists', ['apache_response_headers', 'headers_send', 'fpm_get_status']));";
    let (ours, theirs) = pair.ask(&get(text));
    assert_eq!(ours.body, "[true,true,false]");
    assert_eq!(theirs.body, "[false,false,true]");
}
