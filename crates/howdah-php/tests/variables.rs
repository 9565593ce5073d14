//! What a script sees of its request: `$_SERVER`, the environment, headers, cookies, auth.

mod front;

use front::{FrontRequest, TestDir, TestFront};
use howdah_proto::request::IniKind;

/// Starts a pool with an empty process environment, so `$_SERVER` contains exactly what was sent.
fn bare(args: &[&str]) -> TestFront {
    let mut front = TestFront::start_zygote_with(args, |command| {
        command.env_clear();
    });
    front.next_report();
    front.spawn(0);
    front
}

#[test]
fn server_superglobal_holds_only_the_sent_variables() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php $f = $_SERVER['REQUEST_TIME_FLOAT']; $t = $_SERVER['REQUEST_TIME']; \
         unset($_SERVER['REQUEST_TIME_FLOAT'], $_SERVER['REQUEST_TIME'], $_SERVER['USER'], $_SERVER['HOME']); \
         echo json_encode([$_SERVER, is_float($f), $t === (int)$f, abs(microtime(true) - $f) < 60]);",
    );
    let mut front = bare(&["-d", "register_argc_argv=0"]);
    let answer = front.run(
        FrontRequest::get(&script)
            .var("QUERY_STRING", "")
            .var("HTTP_X_NOT_KNOWN", "by number")
            .var("HTTP_HOST", "example.org")
            .var("SERVER_PORT", "8")
            .var("7", "a number")
            .ini(IniKind::Environment, "APP_ENV", "prod"),
    );
    let path = script.to_str().unwrap().replace('/', "\\/");
    assert_eq!(
        answer.text(),
        format!(
            "[{{\"APP_ENV\":\"prod\",\"REQUEST_METHOD\":\"GET\",\"SCRIPT_FILENAME\":\"{path}\",\
             \"SCRIPT_NAME\":\"\\/script.php\",\"REQUEST_URI\":\"\\/script.php\",\"QUERY_STRING\":\"\",\
             \"HTTP_X_NOT_KNOWN\":\"by number\",\"HTTP_HOST\":\"example.org\",\"SERVER_PORT\":\"8\",\
             \"7\":\"a number\"}},true,true,true]"
        )
    );
}

#[test]
fn environment_names_the_user_that_runs_php() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php $who = posix_getpwuid(posix_geteuid()); \
         echo json_encode([getenv('USER') === $who['name'], $_SERVER['HOME'] === $who['dir'], $who['name']]);",
    );
    let mut users = vec![&[][..]];
    if front::sys::is_root() {
        users.push(&["--user", "nobody"][..]);
    }
    for user in users {
        let mut front = TestFront::start_zygote_with(user, |command| {
            command.env("USER", "starter").env("HOME", "/starter");
        });
        front.next_report();
        front.spawn(0);
        let text = front.run(FrontRequest::get(&script)).text();
        assert!(text.starts_with("[true,true,"), "{text}");
    }
}

#[test]
fn sent_variables_override_the_environment() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([$_SERVER['HTTP_HOST'], getenv('HTTP_HOST'), $_SERVER['FROM_PROCESS'], \
         getenv('FROM_PROCESS'), getenv('SITE'), $_SERVER['SITE'], getenv()['SITE'], getenv('NOTHING')]);",
    );
    let mut front = TestFront::start_zygote_with(&[], |command| {
        command.env("HTTP_HOST", "spoofed").env("FROM_PROCESS", "p");
    });
    front.next_report();
    front.spawn(0);
    let answer = front.run(FrontRequest::get(&script).var("HTTP_HOST", "real").ini(
        IniKind::Environment,
        "SITE",
        "s",
    ));
    assert_eq!(
        answer.text(),
        r#"["real","real","p","p","s","s","s",false]"#
    );
}

#[test]
fn environment_of_one_site_does_not_reach_the_next() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([getenv('A'), getenv('B'), $_SERVER['A'] ?? null]); putenv('B=put');",
    );
    let mut front = bare(&[]);
    let first = front.run(FrontRequest::get(&script).ini(IniKind::Environment, "A", "one"));
    assert_eq!(first.text(), r#"["one",false,"one"]"#);
    let second = front.run(FrontRequest::get(&script));
    assert_eq!(second.text(), "[false,false,null]");
}

#[test]
fn putenv_changes_are_visible_only_until_the_request_ends() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php if (isset($_GET['put'])) { putenv('NAME=changed'); putenv('NEW=1'); putenv('GONE'); } \
         $s = '_SERVER'; $e = $GLOBALS[$s] ?? []; eval('$e = $_SERVER;'); \
         echo json_encode([$e['NAME'] ?? null, $e['NEW'] ?? null, $e['GONE'] ?? null, $e['12'] ?? null, $e['BAD.NAME'] ?? null, $e['EMPTY'] ?? null]);",
    );
    let mut front = TestFront::start_zygote_with(&[], |command| {
        command
            .env_clear()
            .env("NAME", "as it was")
            .env("GONE", "there");
        command
            .env("12", "number")
            .env("BAD.NAME", "x")
            .env("EMPTY", "");
    });
    front.next_report();
    front.spawn(0);
    for _ in 0..2 {
        let plain = front.run(FrontRequest::get(&script)).text();
        assert_eq!(plain, r#"["as it was",null,"there","number",null,""]"#);
        let put = front.run(FrontRequest::get(&script).var("QUERY_STRING", "put=1"));
        assert_eq!(put.text(), r#"["changed","1",null,"number",null,""]"#);
    }
}

#[test]
fn env_superglobal_holds_the_environment_and_no_headers() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php unset($_ENV['USER'], $_ENV['HOME']); echo json_encode($_ENV);",
    );
    let mut front = bare(&["-d", "variables_order=EGPCS"]);
    let request = FrontRequest::get(&script).var("HTTP_X", "client");
    let answer = front.run(request.ini(IniKind::Environment, "SITE", "s"));
    assert_eq!(answer.text(), r#"{"SITE":"s"}"#);
}

#[test]
fn http_proxy_header_does_not_reach_the_environment() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([getenv('HTTP_PROXY'), $_SERVER['HTTP_PROXY'] ?? null]);",
    );
    let answer = bare(&[]).run(FrontRequest::get(&script).var("HTTP_PROXY", "evil"));
    assert_eq!(answer.text(), "[false,null]");
}

#[test]
fn filter_input_sees_the_server_variables() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([filter_has_var(INPUT_SERVER, 'HTTP_X'), filter_input(INPUT_SERVER, 'HTTP_X'), \
         filter_input(INPUT_SERVER, 'SERVER_PORT', FILTER_VALIDATE_INT), filter_input(INPUT_SERVER, 'NO'), \
         filter_input_array(INPUT_SERVER, ['HTTP_X' => FILTER_DEFAULT]), filter_input(INPUT_GET, 'q'), $_SERVER['HTTP_X']]);",
    );
    let mut front = bare(&[]);
    for value in ["one", "two"] {
        let request = FrontRequest::get(&script)
            .var("HTTP_X", value)
            .var("SERVER_PORT", "80");
        let answer = front.run(request.var("QUERY_STRING", "q=1"));
        let expect = format!(r#"[true,"{value}",80,null,{{"HTTP_X":"{value}"}},"1","{value}"]"#);
        assert_eq!(answer.text(), expect);
    }
}

#[test]
fn default_filter_setting_applies_to_server_variables() {
    let dir = TestDir::new();
    let script = dir.write("a.php", "<?php echo $_SERVER['HTTP_X'], ' ', filter_input(INPUT_SERVER, 'HTTP_X', FILTER_UNSAFE_RAW);");
    let mut front = bare(&["-d", "filter.default=special_chars"]);
    let answer = front.run(FrontRequest::get(&script).var("HTTP_X", "<b>"));
    assert_eq!(answer.text(), "&#60;b&#62; <b>");
}

#[test]
fn request_and_response_headers_can_be_listed() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php header('X-Out: 1'); header_remove('X-Powered-By'); \
         echo json_encode([getallheaders(), getallheaders() == apache_request_headers(), apache_response_headers()]);",
    );
    let answer = bare(&[]).run(
        FrontRequest::get(&script)
            .var("HTTP_ACCEPT_LANGUAGE", "de")
            .var("CONTENT_TYPE", "text/plain")
            .var("CONTENT_LENGTH", "")
            .var("SERVER_NAME", "x"),
    );
    assert_eq!(
        answer.text(),
        r#"[{"Accept-Language":"de","Content-Type":"text\/plain"},true,{"X-Out":"1"}]"#
    );
}

#[test]
fn credentials_are_split_for_the_script_and_forgotten() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([$_SERVER['PHP_AUTH_USER'] ?? null, $_SERVER['PHP_AUTH_PW'] ?? null, $_SERVER['PHP_AUTH_DIGEST'] ?? null]);",
    );
    let mut front = bare(&[]);
    let mut with = |auth: &str| {
        let request = FrontRequest::get(&script).var("HTTP_AUTHORIZATION", auth);
        front.run(request).text()
    };
    assert_eq!(with("Basic dXNlcjpwYTpzcw=="), r#"["user","pa:ss",null]"#);
    assert_eq!(with("Bearer token"), "[null,null,null]");
    assert_eq!(with("Digest nonce=1"), r#"[null,null,"nonce=1"]"#);
    assert_eq!(
        front.run(FrontRequest::get(&script)).text(),
        "[null,null,null]"
    );
}

#[test]
fn cookies_and_sessions_work() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_COOKIE['c'] ?? '-', $_SESSION['n'];",
    );
    let save = format!("session.save_path={}", dir.0.display());
    let mut front = bare(&["-d", &save]);
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(answer.text(), "-1");
    let cookie = answer.header("Set-Cookie")[0].clone();
    let cookie = format!("c=v%20w; {}", cookie.split(';').next().unwrap());
    let answer = front.run(FrontRequest::get(&script).var("HTTP_COOKIE", &cookie));
    assert_eq!(answer.text(), "v w2");
    assert!(answer.header("Set-Cookie").is_empty());
}

#[test]
fn argv_comes_from_the_query_only_with_register_argc_argv() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo json_encode([$_SERVER['argv'] ?? null, $_SERVER['argc'] ?? null]);",
    );
    for (setting, expect) in [
        ("register_argc_argv=1", r#"[["a","b"],2]"#),
        ("register_argc_argv=0", "[null,null]"),
    ] {
        // Since PHP 8.5 the setting is deprecated, and PHP says so at each request.
        let mut front = bare(&["-d", setting, "-d", "display_errors=0"]);
        let answer = front.run(FrontRequest::get(&script).var("QUERY_STRING", "a+b"));
        assert_eq!(answer.text(), expect);
    }
}

#[test]
fn sapi_name_is_fpm_fcgi() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php echo php_sapi_name(), ' ', PHP_SAPI, ' ', defined('STDIN') ? 'cli' : 'web';",
    );
    assert_eq!(
        bare(&[]).run(FrontRequest::get(&script)).text(),
        "fpm-fcgi fpm-fcgi web"
    );
}

#[test]
fn server_superglobal_exists_without_auto_globals_jit() {
    let dir = TestDir::new();
    let script = dir.write(
        "a.php",
        "<?php $n = '_SERVER'; echo $GLOBALS[$n]['HTTP_X'];",
    );
    let answer =
        bare(&["-d", "auto_globals_jit=0"]).run(FrontRequest::get(&script).var("HTTP_X", "v"));
    assert_eq!(answer.text(), "v");
}
