//! What clients can do to the workers of a Swoole server, which have no front before them: send or read slowly, stay
//! silent, send a lot. Each test checks a limit of the cost, or that another visitor is served meanwhile.

#![allow(clippy::unwrap_used, reason = "a broken rig must stop the test")]

mod swoole_rig;

use std::io::{Read, Write};
use std::time::Duration;

use swoole_rig::{SwooleScript, eventually};

/// Starts a server of one worker with these additional settings.
fn serving(settings: &str) -> SwooleScript {
    SwooleScript::start(&format!(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1] + {settings});
        $s->on('request', function ($q, $r) use ($s) {{
            switch ($q->server['path_info']) {{
            case '/stream':
                for ($i = 0; $i < 1000; $i++) {{ if (!$r->write(str_repeat('x', 50000))) {{ return; }} }}
                return $r->end();
            case '/large': return $r->end(str_repeat('x', 10000000));
            case '/count': return $r->end((string) $s->stats()['connection_num']);
            case '/upload':
                $file = $q->files['f'] ?? ['tmp_name' => '/dev/null'];
                return $r->end(json_encode([md5_file($file['tmp_name']), md5($q->rawContent()), $q->post]));
            default: return $r->end('ok');
            }}
        }});
        $s->start();"#
    ))
}

const KIB: u64 = 1024;

#[test]
fn slow_reader_of_a_stream_does_not_block_the_swoole_worker() {
    let script = serving("[]");
    let mut slow = script.connect();
    slow.send(b"GET /stream HTTP/1.1\r\nHost: t\r\n\r\n");
    slow.stream.peek(&mut [0]).unwrap();
    // 50 MB wait for this client, more than sockets hold; the only worker serves other clients.
    let before = script.worker_memory();
    for _ in 0..5 {
        assert_eq!(script.get("/").text(), "ok");
    }
    assert!(script.worker_memory() < before + 512 * KIB);
    // The slow client loses no data.
    assert_eq!(slow.answer(false).body.len(), 50_000_000);
}

#[test]
fn slow_reader_is_disconnected() {
    let script = serving("[]");
    let mut slow = script.connect();
    slow.send(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
    let mut visitor = script.connect();
    eventually("both are there", || {
        visitor.get("/count").text().eq("2").then_some(())
    });
    eventually("the slow one is gone", || {
        // Ten bytes at a time, never 240 in a second.
        let _ = slow.stream.read(&mut [0; 10]);
        std::thread::sleep(Duration::from_millis(100));
        visitor.get("/count").text().eq("1").then_some(())
    });
}

#[test]
fn swoole_body_below_the_minimum_rate_is_refused() {
    let script = serving("[]");
    let mut slow = script.connect();
    slow.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\n");
    let nonblocking =
        |client: &swoole_rig::RigClient, on| client.stream.set_nonblocking(on).unwrap();
    nonblocking(&slow, true);
    eventually("an answer", || {
        let _ = slow.stream.write(b"x");
        std::thread::sleep(Duration::from_millis(100));
        slow.stream.peek(&mut [0]).is_ok().then_some(())
    });
    nonblocking(&slow, false);
    let answer = slow.answer(false);
    assert_eq!(
        (answer.status, answer.header("Howdah-Error")),
        (408, Some("BodyTooSlow"))
    );
}

#[test]
fn unfinished_bodies_and_unread_responses_cost_a_swoole_worker_little_memory() {
    let script = serving("[]");
    assert_eq!(script.get("/").text(), "ok");
    let before = script.worker_memory();
    let unfinished: Vec<_> = (0..40)
        .map(|_| {
            let mut client = script.connect();
            client.send(b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2000000\r\n\r\n");
            client.send(&vec![b'x'; 1_900_000]);
            client
        })
        .collect();
    let unread: Vec<_> = (0..20)
        .map(|_| {
            let mut client = script.connect();
            client.send(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
            client
        })
        .collect();
    eventually("all are there", || {
        script.get("/count").text().eq("61").then_some(())
    });
    // The clients have sent 76 MB of bodies and await 200 MB of responses, of which sockets hold a part. PHP keeps its
    // largest block of memory.
    let cost = script.worker_memory().saturating_sub(before);
    assert!(cost < 60 * 256 * KIB + 16_000 * KIB, "{} KiB", cost / KIB);
    drop((unfinished, unread));
    assert_eq!(script.get("/").text(), "ok");
}

#[test]
fn idle_swoole_connection_releases_the_memory_of_its_largest_request() {
    let script = serving("[]");
    assert_eq!(script.get("/").text(), "ok");
    let before = script.worker_memory();
    let long = "a".repeat(15_000);
    let fields: String = (0..4).map(|i| format!("X{i}: {long}\r\n")).collect();
    let mut idle: Vec<_> = (0..100).map(|_| script.connect()).collect();
    for client in &mut idle {
        let answer = client.request("POST", "/", &fields, &[b'x'; 60_000]);
        assert_eq!(answer.text(), "ok");
    }
    let each = script.worker_memory().saturating_sub(before) / 100;
    assert!(each < 8 * KIB, "{each} bytes for an idle connection");
}

#[test]
fn silent_swoole_connections_at_the_limit_do_not_lock_out_visitors() {
    let script = serving("['max_connection' => 20]");
    let mut regular = script.connect();
    let mut silent = Vec::new();
    for _ in 0..10 {
        for _ in 0..5 {
            silent.push(script.connect());
        }
        // A visitor who sends something from time to time keeps the connection.
        assert_eq!(regular.get("/").text(), "ok");
        assert_eq!(script.get("/").text(), "ok");
    }
    script.wait_for_log("TooManyConnections");
    let count: u32 = regular.get("/count").text().parse().unwrap();
    assert!(count <= 20, "{count}");
}

#[test]
fn visitor_at_the_limit_waits_until_a_swoole_connection_is_silent() {
    let script = SwooleScript::start(
        r#"$s = new Swoole\Http\Server("127.0.0.1", 0);
        $s->set(['worker_num' => 1, 'max_connection' => 2]);
        $large = 0;
        $s->on('request', function ($q, $r) use (&$large) {
            if ($q->server['path_info'] !== '/large') { return $r->end('ok'); }
            echo 'large ', ++$large, "\n";
            $r->end(str_repeat('x', 10000000));
        });
        $s->start();"#,
    );
    let mut unread: Vec<_> = (0..2).map(|_| script.connect()).collect();
    for client in &mut unread {
        client.send(b"GET /large HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    script.wait_for_log("large 2");
    // Neither connection may be closed for this visitor: their responses are in progress.
    let mut visitor = script.connect();
    visitor.send(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(unread[0].answer(false).text().len(), 10_000_000);
    assert_eq!(visitor.answer(false).text(), "ok");
    assert_eq!(unread[1].answer(false).text().len(), 10_000_000);
}

/// Builds a form with a file of that many bytes.
fn form(size: usize) -> Vec<u8> {
    let mut body = b"--xx\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--xx\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n".to_vec();
    body.resize(body.len() + size, b'z');
    body.extend_from_slice(b"\r\n--xx--\r\n");
    body
}

const FORM: &str = "Content-Type: multipart/form-data; boundary=xx\r\n";

#[test]
fn upload_max_filesize_lets_forms_with_files_be_longer_than_other_bodies() {
    let script = serving("['package_max_length' => 65536, 'upload_max_filesize' => 1 << 20]");
    let mut client = script.connect();
    let body = form(900_000);
    let first = client.request("POST", "/upload", FORM, &body);
    assert!(first.text().ends_with(r#",{"a":"1"}]"#), "{}", first.text());
    // The same form also arrives in chunks, after another request on the connection.
    client.send(
        format!("POST /upload HTTP/1.1\r\nHost: t\r\n{FORM}Transfer-Encoding: chunked\r\n\r\n")
            .as_bytes(),
    );
    for piece in body.chunks(30_000) {
        client.send(format!("{:x}\r\n", piece.len()).as_bytes());
        client.send(piece);
        client.send(b"\r\n");
    }
    client.send(b"0\r\n\r\n");
    assert_eq!(client.answer(false).text(), first.text());
    assert_eq!(client.get("/").text(), "ok");
    for (fields, body) in [(FORM, form(1_200_000)), ("", vec![b'x'; 70_000])] {
        let mut client = script.connect();
        let length = body.len();
        client.send(
            format!("POST / HTTP/1.1\r\nHost: t\r\n{fields}Content-Length: {length}\r\n\r\n")
                .as_bytes(),
        );
        let answer = client.answer(false);
        assert_eq!(
            (answer.status, answer.header("Howdah-Error")),
            (413, Some("BodyTooLarge"))
        );
    }
}

#[test]
fn missing_spill_directory_refuses_only_bodies_that_do_not_fit_memory() {
    let script = serving(
        "['upload_tmp_dir' => '/nonexistent', 'package_max_length' => 300000, 'upload_max_filesize' => 1 << 20, 'socket_buffer_size' => 65536]",
    );
    let mut client = script.connect();
    assert_eq!(
        client.request("POST", "/", "", &[b'x'; 200_000]).text(),
        "ok"
    );
    // The script waits for its reader, because there is no other place for its output.
    assert_eq!(client.get("/stream").body.len(), 50_000_000);
    script.wait_for_log("SpillFailed: /nonexistent");
    let body = form(900_000);
    client.send(
        format!(
            "POST /upload HTTP/1.1\r\nHost: t\r\n{FORM}Content-Length: {}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
    );
    client.send(&body[..400_000]);
    let answer = client.answer(false);
    assert_eq!(
        (answer.status, answer.header("Howdah-Error")),
        (507, Some("SpillFailed"))
    );
}

#[test]
fn swoole_request_sent_byte_by_byte_is_parsed() {
    let script = serving("[]");
    let mut client = script.connect();
    client.stream.set_nodelay(true).unwrap();
    let both = b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\nHost: t\r\n\r\n";
    for byte in both {
        client.send(&[*byte]);
    }
    assert_eq!(client.answer(false).text(), "ok");
    assert_eq!(client.answer(false).text(), "ok");
}

#[test]
fn request_headers_may_be_as_long_as_in_swoole() {
    let script = serving("[]");
    let mut client = script.connect();
    let long = |n: usize| format!("/?{}", "a".repeat(n));
    assert_eq!(client.get(&long(60_000)).text(), "ok");
    let answer = client.get(&long(70_000));
    assert_eq!(
        (answer.status, answer.header("Howdah-Error")),
        (414, Some("UriTooLong"))
    );
}
