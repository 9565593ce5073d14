//! Request bodies: forms, uploads, streams; known and unknown lengths; bodies that are cut off or not read.

mod front;

use front::{FrontRequest, TestDir, TestFront};

const FORM: &str = "application/x-www-form-urlencoded";

#[test]
fn form_is_available_in_post_and_php_input() {
    let dir = TestDir::new();
    let script = dir.write(
        "form.php",
        "<?php echo json_encode([$_POST, file_get_contents('php://input'), file_get_contents('php://input')]);",
    );
    let mut front = TestFront::start(1, &[]);
    let answer = front.run(FrontRequest::new("POST", &script).body(FORM, b"a=1&b[]=2&b[]=3"));
    assert_eq!(
        answer.text(),
        r#"[{"a":"1","b":["2","3"]},"a=1&b[]=2&b[]=3","a=1&b[]=2&b[]=3"]"#
    );
    let answer = front.run(FrontRequest::new("POST", &script).chunked(FORM, b"x=%20y"));
    assert_eq!(answer.text(), r#"[{"x":" y"},"x=%20y","x=%20y"]"#);
}

#[test]
fn form_longer_than_the_ring_arrives_whole() {
    let dir = TestDir::new();
    let script = dir.write(
        "form.php",
        "<?php echo strlen($_POST['a']), md5($_POST['a']);",
    );
    let value: String = (0..500_000)
        .map(|i| char::from(b'a' + (i % 26) as u8))
        .collect();
    let body = format!("a={value}");
    let mut front = TestFront::start(1, &[]);
    let answer = front.run(FrontRequest::new("POST", &script).body(FORM, body.as_bytes()));
    assert_eq!(answer.text().len(), 6 + 32);
    assert!(answer.text().starts_with("500000"));
}

fn multipart(parts: &[(&str, &str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, bytes) in parts {
        body.extend_from_slice(b"--frontier\r\n");
        let file = if file.is_empty() {
            String::new()
        } else {
            format!("; filename=\"{file}\"\r\nContent-Type: image/png")
        };
        body.extend_from_slice(
            format!("Content-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--frontier--\r\n");
    body
}

const MULTIPART: &str = "multipart/form-data; boundary=frontier";

#[test]
fn uploads_become_files_that_are_deleted_after_the_request() {
    let dir = TestDir::new();
    let script = dir.write(
        "upload.php",
        "<?php $f = $_FILES['pic']; echo json_encode([$_POST['t'], $f['name'], $f['type'], $f['error'], \
         $f['size'], md5_file($f['tmp_name']), is_uploaded_file($f['tmp_name']), $f['tmp_name']]);",
    );
    let picture: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
    let body = multipart(&[("t", "", b"title"), ("pic", "a.png", &picture)]);
    let mut front = TestFront::start(1, &[]);
    for chunked in [false, true] {
        let request = FrontRequest::new("POST", &script);
        let request = if chunked {
            request.chunked(MULTIPART, &body)
        } else {
            request.body(MULTIPART, &body)
        };
        let text = front.run(request).text();
        assert!(
            text.starts_with(r#"["title","a.png","image\/png",0,300000,""#)
                && text.contains(",true,"),
            "{text}"
        );
        let child = front.children[0].0;
        front.wait_child(child, |c| c.busy_since.is_none());
        let kept = text.rsplit('"').nth(1).unwrap().replace("\\/", "/");
        assert!(!std::path::Path::new(&kept).exists(), "{kept}");
    }
}

#[test]
fn large_body_streams_through_php_input_without_growing_the_child() {
    let dir = TestDir::new();
    let script = dir.write(
        "stream.php",
        "<?php $in = fopen('php://input', 'r'); $h = hash_init('crc32b'); $n = 0; \
         while (!feof($in)) { $s = fread($in, 65536); $n += strlen($s); hash_update($h, $s); } \
         echo $n, ' ', memory_get_peak_usage() < 4 << 20 ? 'small' : memory_get_peak_usage();",
    );
    let body = vec![b'z'; 100 << 20];
    let mut front = TestFront::start(1, &[]);
    let answer =
        front.run(FrontRequest::new("PUT", &script).body("application/octet-stream", &body));
    assert_eq!(answer.text(), format!("{} small", 100 << 20));
}

#[test]
fn unread_body_does_not_delay_the_next_request() {
    let dir = TestDir::new();
    let script = dir.write("deaf.php", "<?php echo 'done';");
    let mut front = TestFront::start(1, &[]);
    let request = FrontRequest::new("PUT", &script).chunked("text/plain", b"first part");
    let mut flight = front.publish_part(request, false);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "done");
    let answer = front.run(FrontRequest::get(&script));
    assert_eq!(
        answer.text(),
        "done",
        "and the next request is not confused"
    );
}

#[test]
fn truncated_body_ends_short_and_the_script_continues() {
    let dir = TestDir::new();
    let script = dir.write(
        "cut.php",
        "<?php echo strlen(file_get_contents('php://input'));",
    );
    let mut front = TestFront::start(1, &[]);
    let request = FrontRequest::new("PUT", &script).chunked("text/plain", b"12345");
    let mut flight = front.publish_part(request, false);
    front.poll_flight(&mut flight);
    front.end_body(&flight, false);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "5");
}

#[test]
fn post_above_post_max_size_is_dropped_with_a_warning() {
    let dir = TestDir::new();
    let script = dir.write("max.php", "<?php echo count($_POST);");
    let args = [
        "-d",
        "post_max_size=1K",
        "-d",
        "display_errors=0",
        "-d",
        "error_log=",
    ];
    let mut front = TestFront::start(1, &[&args[..], &["-d", "log_errors=1"]].concat());
    let body = [b"a=".to_vec(), vec![b'x'; 5000]].concat();
    let answer = front.run(FrontRequest::new("POST", &script).body(FORM, &body));
    assert_eq!(answer.text(), "0");
    assert!(answer.logged("exceeds the limit"), "{:?}", answer.logs);
    let answer = front.run(FrontRequest::new("POST", &script).body(FORM, b"a=1"));
    assert_eq!(answer.text(), "1");
}

/// The server stores such a body like any other, because its length does not show that PHP has no use for it.
#[test]
fn body_above_post_max_size_is_readable_from_php_input() {
    let dir = TestDir::new();
    let script = dir.write(
        "input.php",
        "<?php echo count($_POST), ' ', strlen(file_get_contents('php://input'));",
    );
    let mut front = TestFront::start(1, &["-d", "post_max_size=1K", "-d", "display_errors=0"]);
    let body = [b"a=".to_vec(), vec![b'x'; 5000]].concat();
    for method in ["POST", "PUT"] {
        for kind in [FORM, "multipart/form-data; boundary=b", "application/json"] {
            let answer = front.run(FrontRequest::new(method, &script).body(kind, &body));
            assert_eq!(answer.text(), "0 5002", "{method} {kind}");
        }
    }
}

#[test]
fn upload_progress_is_visible_while_the_body_arrives() {
    let dir = TestDir::new();
    let upload = dir.write("upload.php", "<?php session_start(); echo 'up';");
    let look = dir.write(
        "look.php",
        "<?php session_start(); $p = $_SESSION['upload_progress_me'] ?? null; \
         echo $p ? $p['bytes_processed'] > 0 && !$p['done'] ? 'running' : 'done' : 'none';",
    );
    let save = format!("session.save_path={}", dir.0.display());
    // Off by default since PHP 8.2.36.
    let on = ["-d", "session.upload_progress.enabled=1"];
    let args = ["-d", &save, "-d", "session.upload_progress.freq=1"];
    let args = [&on[..], &args[..]].concat();
    let args = [&args[..], &["-d", "session.upload_progress.min_freq=0"]].concat();
    let mut front = TestFront::start(
        2,
        &[&args[..], &["-d", "session.use_strict_mode=0"]].concat(),
    );
    let cookie = "PHPSESSID=abcdefghijklmnopqrstuvwxyz";
    let body = multipart(&[
        ("PHP_SESSION_UPLOAD_PROGRESS", "", b"me"),
        ("pic", "a.bin", &vec![b'x'; 50_000]),
    ]);
    let (first, second) = body.split_at(30_000);
    let request = FrontRequest::new("POST", &upload)
        .var("HTTP_COOKIE", cookie)
        .var("CONTENT_LENGTH", &body.len().to_string())
        .chunked(MULTIPART, first);
    let mut flight = front.publish_part(request, false);
    let deadline = std::time::Instant::now() + front::MAX_WAIT;
    loop {
        front.poll_flight(&mut flight);
        let seen = front
            .run(FrontRequest::get(&look).var("HTTP_COOKIE", cookie))
            .text();
        if seen == "running" {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "still {seen}");
    }
    front.write_body(&flight, second);
    front.end_body(&flight, true);
    front.drive_until(&mut flight, |_| false);
    assert_eq!(flight.answer.text(), "up");
}
