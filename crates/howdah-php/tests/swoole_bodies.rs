//! How the body of a Swoole script's response is sent: in one piece, in chunks, as a file, compressed; and the server's
//! static files. The tests run over HTTP, against Swoole's documented behaviour.

#![allow(clippy::unwrap_used, reason = "a broken rig must stop the test")]

mod swoole_rig;

use swoole_rig::{RigDirectory, SwooleScript, run_to_end, serving};

#[test]
fn swoole_response_methods_return_false_after_end() {
    let script = serving(
        r#"if ($q->server['path_info'] === '/first') { $r->end('x'); $GLOBALS['seen'] = [@$r->end('y'), @$r->write('z'), @$r->header('a', 'b'), @$r->status(500), $r->isWritable()]; return; }
        $r->end(json_encode($GLOBALS['seen']));"#,
    );
    assert_eq!(script.get("/first").text(), "x");
    assert_eq!(script.get("/").text(), "[false,false,false,false,false]");
}

#[test]
fn swoole_written_pieces_are_chunked_except_for_http_1_0() {
    let script = serving("$r->write('one'); $r->write('two'); $r->end('three');");
    let mut client = script.connect();
    let answer = client.get("/");
    assert_eq!(answer.header("Transfer-Encoding"), Some("chunked"));
    assert_eq!(answer.text(), "onetwothree");
    // The connection stays open.
    assert_eq!(client.get("/").text(), "onetwothree");
    client.send(b"GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer(false);
    assert_eq!(answer.header("Transfer-Encoding"), None);
    assert_eq!(
        (answer.header("Connection"), answer.text()),
        (Some("close"), "onetwothree")
    );
}

#[test]
fn swoole_responses_to_head_and_with_204_or_304_have_no_body() {
    let script = serving(
        r#"if ($q->server['path_info'] === '/write') { $r->write('a'); return $r->end('b'); }
        if (isset($q->get['s'])) { $r->status((int) $q->get['s']); }
        $r->end('body');"#,
    );
    let mut client = script.connect();
    for target in ["/", "/write"] {
        assert_eq!(client.request("HEAD", target, "", b"").status, 200);
    }
    for status in [204, 304] {
        let answer = client.get(&format!("/?s={status}"));
        assert_eq!(
            (answer.status, answer.header("Content-Length")),
            (status, None)
        );
    }
    // No part of a body is left on the connection.
    assert_eq!(client.get("/").text(), "body");
}

#[test]
fn swoole_sendfile_sends_whole_files_and_parts() {
    let scratch = RigDirectory::new();
    let large: String = "0123456789".repeat(300_000);
    scratch.write("large.txt", &large);
    let script = SwooleScript::start_in(
        scratch,
        r#"$dir = $argv[1];
        $s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1]);
        $s->on('request', function ($q, $r) use ($dir) {
            switch ($q->server['path_info']) {
                case '/all': $r->sendfile("$dir/large.txt"); break;
                case '/part': $r->sendfile("$dir/large.txt", 5, 10); break;
                default: $r->end(json_encode([@$r->sendfile("$dir/none"), @$r->sendfile($dir), @$r->sendfile("$dir/large.txt", 9999999)]));
            }
        });
        $s->start();"#,
    );
    let mut client = script.connect();
    let answer = client.get("/all");
    assert_eq!(
        answer.header("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
    assert!(answer.text() == large);
    assert_eq!(client.get("/part").text(), "5678901234");
    assert_eq!(client.get("/").text(), "[false,false,false]");
}

#[test]
fn swoole_bodies_are_compressed_for_clients_that_accept_gzip() {
    let script = serving("$r->end(str_repeat('howdah ', 1000));");
    let mut client = script.connect();
    let packed = client.request("GET", "/", "Accept-Encoding: br, gzip\r\n", b"");
    assert_eq!(packed.header("Content-Encoding"), Some("gzip"));
    assert_eq!(packed.header("Vary"), Some("Accept-Encoding"));
    assert!(packed.body.starts_with(&[0x1f, 0x8b]) && packed.body.len() < 200);
    for fields in ["", "Accept-Encoding: gzip;q=0\r\n"] {
        let plain = client.request("GET", "/", fields, b"");
        assert_eq!(
            (plain.header("Content-Encoding"), plain.body.len()),
            (None, 7000)
        );
    }
}

#[test]
fn swoole_compression_is_limited_to_the_configured_media_types() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'http_compression_types' => ['text/html', 'application/json']]);
        $s->on('request', function ($q, $r) {
            if (isset($q->get['type'])) { $r->header('Content-Type', $q->get['type']); }
            $r->end(str_repeat('howdah ', 1000));
        });
        $s->start();"#,
    );
    let mut client = script.connect();
    for (target, coding) in [
        ("/", Some("gzip")),
        ("/?type=Application/JSON;charset=utf-8", Some("gzip")),
        ("/?type=application/jsonp", None),
        ("/?type=image/png", None),
    ] {
        let answer = client.request("GET", target, "Accept-Encoding: gzip\r\n", b"");
        assert_eq!(answer.header("Content-Encoding"), coding, "{target}");
    }
    let wrong = "$s = new Swoole\\Http\\Server('127.0.0.1', 0); $s->set(['compression_types' => 'text/html']);";
    assert!(
        run_to_end(wrong)
            .1
            .contains("BadSetting: compression_types needs an array of media types")
    );
}

#[test]
fn empty_server_header_is_omitted_and_empty_content_encoding_disables_compression() {
    let script = serving(
        "$r->header('Content-Encoding', ''); $r->header('Server', ''); $r->header('Content-Length', '');
        $r->header('X-Own', ''); $r->end(str_repeat('howdah ', 1000));",
    );
    let mut client = script.connect();
    let plain = client.request("GET", "/", "Accept-Encoding: gzip\r\n", b"");
    assert_eq!(plain.body.len(), 7000);
    assert_eq!(plain.header("Content-Length"), Some("7000"));
    for name in ["Content-Encoding:", "Server:"] {
        assert!(!plain.head.contains(name), "{}", plain.head);
    }
    assert!(plain.head.contains("X-Own:"), "{}", plain.head);
}

#[test]
fn swoole_static_handler_sends_only_public_files() {
    let scratch = RigDirectory::new();
    scratch.write("www/a.css", "css");
    scratch.write("www/index.php", "<?php secret");
    scratch.write("www/.env", "secret");
    for name in [
        "x.php.bak",
        "x.phpbak",
        "x.php_old",
        "x.inc",
        "dump.sql.gz",
        "auth.json",
    ] {
        scratch.write(&format!("www/{name}"), "secret");
    }
    std::os::unix::fs::symlink("index.php", scratch.path().join("www/page.css")).unwrap();
    scratch.write("outside.txt", "secret");
    std::os::unix::fs::symlink("../outside.txt", scratch.path().join("www/link.txt")).unwrap();
    let script = SwooleScript::start_in(
        scratch,
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'document_root' => "$argv[1]/www", 'enable_static_handler' => true]);
        $s->on('request', function ($q, $r) { $r->end('script'); });
        $s->start();"#,
    );
    let mut client = script.connect();
    let css = client.get("/a.css?v=1");
    assert_eq!(
        (css.text(), css.header("Content-Type")),
        ("css", Some("text/css; charset=utf-8"))
    );
    let since = format!(
        "If-Modified-Since: {}\r\n",
        css.header("Last-Modified").unwrap()
    );
    assert_eq!(client.request("GET", "/a.css", &since, b"").status, 304);
    assert_eq!(
        client
            .request("HEAD", "/a.css", "", b"")
            .header("Content-Length"),
        Some("3")
    );
    for target in [
        "/",
        "/index.php",
        "/.env",
        "/x.php.bak",
        "/x.phpbak",
        "/x%2ephpbak",
        "/x.php_old",
        "/x.inc",
        "/dump.sql.gz",
        "/auth.json",
        "/page.css",
        "/link.txt",
        "/../outside.txt",
        "/%2e%2e/outside.txt",
        "/none.css",
        "/a.css%00",
    ] {
        assert_eq!(client.get(target).text(), "script", "{target}");
    }
    assert_eq!(client.request("POST", "/a.css", "", b"x").text(), "script");
}

#[test]
fn missing_file_below_a_static_location_is_a_404_without_the_script() {
    let scratch = RigDirectory::new();
    scratch.write("www/static/a.css", "css");
    scratch.write("www/static/dir/.env", "secret");
    scratch.write("www/b.css", "css");
    scratch.write("outside.txt", "secret");
    let script = SwooleScript::start_in(
        scratch,
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'document_root' => "$argv[1]/www", 'enable_static_handler' => true,
            'static_handler_locations' => ['/static']]);
        $s->on('request', function ($q, $r) { $r->end('script'); });
        $s->start();"#,
    );
    let mut client = script.connect();
    assert_eq!(client.get("/static/a.css").text(), "css");
    let root = script.directory().join("www/b.css");
    assert_eq!(client.get(&format!("/{}", root.display())).text(), "script");
    for target in ["/static/none.css", "/static/none/", "/static/a.css/"] {
        let answer = client.get(target);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error"), answer.text()),
            (404, Some("NotFound"), ""),
            "{target}"
        );
    }
    assert_eq!(
        client.request("HEAD", "/static/none.css", "", b"").status,
        404
    );
    // The script answers for directories, for names that are never sent, whether or not they exist, and for other
    // targets.
    for target in [
        "/static",
        "/static/dir/",
        "/static/dir/.env",
        "/static/none/.env",
        "/static/../../outside.txt",
        "/static/../../none.txt",
        "/b.css",
        "/none.css",
    ] {
        assert_eq!(client.get(target).text(), "script", "{target}");
    }
    assert_eq!(
        client.request("POST", "/static/none", "", b"x").text(),
        "script"
    );
}
