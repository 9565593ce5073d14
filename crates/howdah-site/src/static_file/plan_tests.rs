//! Files on disk, requests, and the complete responses: status, headers, body.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::site::Site;
use crate::site::condition::RuleRequest;
use crate::site::config::{SiteConfig, StaticRule};
use crate::site::pattern::PathPattern;
use crate::site::route::RouteAction;
use crate::testing::request;

/// Returns a time well after everything that a test has written.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(10)
}

fn bytes_of(body: StaticBody) -> Vec<u8> {
    let read = |file: &File, offset: u64, len: u64| {
        let mut bytes = vec![0; len as usize];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    let expected = body.len();
    let bytes = match body {
        StaticBody::Empty => Vec::new(),
        StaticBody::Bytes(bytes) => bytes.to_vec(),
        StaticBody::File { file, offset, len } => read(&file, offset, len),
        StaticBody::Multipart { file, pieces } => pieces
            .iter()
            .flat_map(|piece| match piece {
                BodyPiece::Text(text) => text.to_vec(),
                BodyPiece::Range { offset, len } => read(&file, *offset, *len),
            })
            .collect(),
    };
    assert_eq!(bytes.len() as u64, expected);
    bytes
}

struct FileResponse {
    status: u16,
    lines: String,
    body: String,
}

impl FileResponse {
    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.lines.split("\r\n");
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn site(dir: &Path, change: impl FnOnce(&mut SiteConfig)) -> Site {
    let mut config = SiteConfig::for_tests("s", dir);
    change(&mut config);
    Site::new(config, 0).unwrap()
}

fn get(site: &Site, method: &str, url: &str, fields: &[(&str, &str)]) -> FileResponse {
    let head = request(method, url, fields);
    let RouteAction::Static(plan) = site.route(&head).action else {
        panic!("{url} is no file");
    };
    let answer = plan.respond_at(&head, later).unwrap();
    FileResponse {
        status: answer.head.status,
        lines: String::from_utf8(answer.head.lines().to_vec()).unwrap(),
        body: String::from_utf8(bytes_of(answer.body)).unwrap(),
    }
}

/// Creates a small file (sent from memory) and a large one (from disk), both of digits.
fn fixture() -> (tempfile::TempDir, Site, Vec<(&'static str, String)>) {
    let dir = tempfile::tempdir().unwrap();
    let small = "0123456789".to_owned();
    let large = small.repeat(10_000);
    fs::write(dir.path().join("small.txt"), &small).unwrap();
    fs::write(dir.path().join("large.txt"), &large).unwrap();
    let site = site(dir.path(), |_| {});
    (
        dir,
        site,
        vec![("/small.txt", small), ("/large.txt", large)],
    )
}

#[test]
fn file_is_sent_as_a_whole() {
    let (_dir, site, files) = fixture();
    for (url, content) in files {
        let answer = get(&site, "GET", url, &[]);
        assert_eq!((answer.status, &answer.body), (200, &content));
        assert_eq!(
            answer.field("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        assert_eq!(answer.field("Accept-Ranges"), Some("bytes"));
        assert!(answer.field("ETag").unwrap().starts_with('"'));
        assert!(answer.field("Last-Modified").unwrap().ends_with(" GMT"));
        assert_eq!(answer.field("Vary"), None);
        assert_eq!(answer.field("Content-Length"), None);
        // HEAD returns the same headers. The connection ensures that no body is sent.
        assert_eq!(get(&site, "HEAD", url, &[]).lines, answer.lines);
    }
}

#[test]
fn empty_file_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("e.txt"), "").unwrap();
    let site = site(dir.path(), |_| {});
    assert_eq!(get(&site, "GET", "/e.txt", &[]).status, 200);
    let answer = get(&site, "GET", "/e.txt", &[("Range", "bytes=0-")]);
    assert_eq!(
        (answer.status, answer.field("Content-Range")),
        (416, Some("bytes */0"))
    );
}

#[test]
fn preconditions() {
    let (_dir, site, files) = fixture();
    for (url, content) in files {
        let plain = get(&site, "GET", url, &[]);
        let (tag, date) = (
            plain.field("ETag").unwrap(),
            plain.field("Last-Modified").unwrap(),
        );
        for fields in [("If-None-Match", tag), ("If-Modified-Since", date)] {
            let answer = get(&site, "GET", url, &[fields]);
            assert_eq!((answer.status, answer.body.as_str()), (304, ""));
            assert_eq!(answer.field("ETag"), Some(tag));
            assert_eq!(answer.field("Content-Type"), None);
        }
        let answer = get(&site, "GET", url, &[("If-Match", "\"other\"")]);
        assert_eq!((answer.status, answer.body.as_str()), (412, ""));
        let answer = get(
            &site,
            "GET",
            url,
            &[("If-Range", tag), ("Range", "bytes=1-2")],
        );
        assert_eq!((answer.status, answer.body.as_str()), (206, "12"));
        let answer = get(
            &site,
            "GET",
            url,
            &[("If-Range", "\"old\""), ("Range", "bytes=1-2")],
        );
        assert_eq!((answer.status, answer.body), (200, content));
    }
}

#[test]
fn ranges() {
    let (_dir, site, files) = fixture();
    for (url, content) in files {
        let size = content.len();
        let answer = get(&site, "GET", url, &[("Range", "bytes=2-4")]);
        assert_eq!((answer.status, answer.body.as_str()), (206, "234"));
        assert_eq!(
            answer.field("Content-Range"),
            Some(&*format!("bytes 2-4/{size}"))
        );
        let answer = get(&site, "GET", url, &[("Range", "bytes=-3")]);
        assert_eq!(answer.body, "789");
        let answer = get(&site, "GET", url, &[("Range", "bytes=999999-")]);
        assert_eq!((answer.status, answer.body.as_str()), (416, ""));
        assert_eq!(
            answer.field("Content-Range"),
            Some(&*format!("bytes */{size}"))
        );

        let answer = get(&site, "GET", url, &[("Range", "bytes=0-1,5-5")]);
        assert_eq!(answer.status, 206);
        let media_type = answer.field("Content-Type").unwrap();
        let boundary = media_type
            .strip_prefix("multipart/byteranges; boundary=")
            .unwrap();
        let part = |range: &str, content: &str| {
            format!(
                "--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Range: bytes {range}/{size}\r\n\r\n{content}\r\n"
            )
        };
        let expected = part("0-1", "01") + &part("5-5", "5") + &format!("--{boundary}--\r\n");
        assert_eq!(answer.body, expected);
        let again = get(&site, "GET", url, &[("Range", "bytes=0-1,5-5")]);
        assert_ne!(
            again.field("Content-Type"),
            Some(media_type),
            "boundaries are not reused"
        );
    }
}

#[test]
fn changed_file_is_never_sent_from_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.txt");
    let site = site(dir.path(), |_| {});
    for number in 0..50 {
        // The file is changed in place or by rename, always with the same length, as fast as possible.
        let content = format!("content {number:02}");
        if number % 2 == 0 {
            fs::write(&path, &content).unwrap();
        } else {
            fs::write(dir.path().join("new"), &content).unwrap();
            fs::rename(dir.path().join("new"), &path).unwrap();
        }
        for _ in 0..2 {
            let head = request("GET", "/a.txt", &[]);
            let RouteAction::Static(plan) = site.route(&head).action else {
                panic!();
            };
            // With the real clock, a file that was written this moment is not kept and has no tag.
            let answer = plan.respond(&head).unwrap();
            assert_eq!(bytes_of(answer.body), content.as_bytes());
        }
    }
    // A tag identifies one content: it appears when no later change can have the same time.
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let tags = ["first", "again"].map(|content| {
        fs::write(&path, content).unwrap();
        loop {
            let answer = get(&site, "GET", "/a.txt", &[]);
            assert_eq!(answer.body, content);
            if let Some(tag) = answer.field("ETag") {
                break tag.to_owned();
            }
            assert!(std::time::Instant::now() < deadline, "no tag");
        }
    });
    assert_ne!(tags[0], tags[1]);
}

#[test]
fn settled_file_is_read_once() {
    let (dir, site, _) = fixture();
    let first = get(&site, "GET", "/small.txt", &[]);
    let head = request("GET", "/small.txt", &[]);
    let RouteAction::Static(plan) = site.route(&head).action else {
        panic!();
    };
    let kept =
        cache::with_thread_cache(|cache| cache.get(plan.root.id(), b"small.txt", &plan.meta));
    assert_eq!(kept.unwrap().body, first.body.as_bytes());
    // A replacement with the same size, another inode and the time set back is noticed by the inode's own time.
    let times = fs::metadata(dir.path().join("small.txt"))
        .unwrap()
        .modified()
        .unwrap();
    fs::write(dir.path().join("new"), "abcdefghij").unwrap();
    fs::File::open(dir.path().join("new"))
        .unwrap()
        .set_modified(times)
        .unwrap();
    fs::rename(dir.path().join("new"), dir.path().join("small.txt")).unwrap();
    assert_eq!(get(&site, "GET", "/small.txt", &[]).body, "abcdefghij");
}

#[test]
fn precompressed_file_is_sent_if_accepted() {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in [
        ("a.css", "plain"),
        ("a.css.gz", "gz"),
        ("a.css.br", "br"),
        ("b.css", "only plain"),
        ("c.png", "png"),
        ("c.png.gz", "never"),
    ] {
        fs::write(dir.path().join(name), content).unwrap();
    }
    let change_time = |name: &str, seconds: i64| {
        let time = SystemTime::now() - Duration::from_secs(seconds as u64);
        fs::File::open(dir.path().join(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    let site = site(dir.path(), |_| {});
    let check = |url: &str, accept: &str, body: &str, coding: Option<&str>, vary: Option<&str>| {
        let fields: &[(&str, &str)] = &[("Accept-Encoding", accept)];
        let answer = get(
            &site,
            "GET",
            url,
            if accept.is_empty() { &[] } else { fields },
        );
        assert_eq!(answer.body, body, "{url} {accept}");
        assert_eq!(answer.field("Content-Encoding"), coding, "{url} {accept}");
        assert_eq!(answer.field("Vary"), vary, "{url} {accept}");
        answer.field("ETag").unwrap().to_owned()
    };
    let varies = Some("Accept-Encoding");
    let mut tags = vec![
        check("/a.css", "", "plain", None, None),
        check("/a.css", "gzip", "gz", Some("gzip"), varies),
        check("/a.css", "gzip, br", "br", Some("br"), varies),
    ];
    tags.dedup();
    assert_eq!(tags.len(), 3, "each coding has its own tag");
    check("/a.css", "gzip, br;q=0.5", "gz", Some("gzip"), varies);
    check("/a.css", "gzip;q=0, br;q=0", "plain", None, varies);
    check("/a.css", "zstd", "plain", None, varies);
    check("/b.css", "gzip", "only plain", None, None);
    check("/c.png", "gzip", "png", None, None);
    // A compressed file that is older than the original has the original's former content.
    change_time("a.css.br", 100);
    check("/a.css", "gzip, br", "gz", Some("gzip"), varies);
    // Ranges refer to the original.
    let fields = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-1")];
    let answer = get(&site, "GET", "/a.css", &fields);
    assert_eq!((answer.status, answer.body.as_str()), (206, "pl"));
    assert_eq!(answer.field("Content-Encoding"), None);
    assert_eq!(answer.field("Content-Range"), Some("bytes 0-1/5"));
}

#[test]
fn file_headers_follow_the_rules() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("assets")).unwrap();
    for name in ["assets/a.js", "b.js", "data", "x.foo", "index.html"] {
        fs::write(dir.path().join(name), name).unwrap();
    }
    let rule =
        |pattern: &str, cache_control: Option<&str>, content_type: Option<&str>| StaticRule {
            pattern: PathPattern::glob(pattern).unwrap(),
            cache_control: cache_control.map(str::to_owned),
            content_type: content_type.map(str::to_owned),
        };
    let site = site(dir.path(), |config| {
        config.static_rules = vec![
            rule(
                "/assets/**",
                Some("public, max-age=31536000, immutable"),
                None,
            ),
            rule("*.js", Some("no-cache"), None),
            rule("/data", None, Some("text/csv")),
            rule("*.html", Some("max-age=60"), None),
        ];
        config.types = vec![("foo".into(), "application/x-foo".into())];
    });
    let check = |url: &str, cache_control: Option<&str>, content_type: &str| {
        let answer = get(&site, "GET", url, &[]);
        assert_eq!(answer.field("Cache-Control"), cache_control, "{url}");
        assert_eq!(answer.field("Content-Type"), Some(content_type), "{url}");
    };
    check(
        "/assets/a.js",
        Some("public, max-age=31536000, immutable"),
        "text/javascript; charset=utf-8",
    );
    check("/b.js", Some("no-cache"), "text/javascript; charset=utf-8");
    check("/data", None, "text/csv");
    check("/x.foo", None, "application/x-foo");
    check("/", Some("max-age=60"), "text/html; charset=utf-8");
    // A 304 has the `Cache-Control`, too.
    let tag = get(&site, "GET", "/b.js", &[])
        .field("ETag")
        .unwrap()
        .to_owned();
    let answer = get(&site, "GET", "/b.js", &[("If-None-Match", &tag)]);
    assert_eq!(
        (answer.status, answer.field("Cache-Control")),
        (304, Some("no-cache"))
    );
}

#[test]
fn file_that_disappears_after_routing_is_refused() {
    let (dir, site, _) = fixture();
    let head = request("GET", "/large.txt", &[]);
    let RouteAction::Static(plan) = site.route(&head).action else {
        panic!();
    };
    fs::remove_file(dir.path().join("large.txt")).unwrap();
    assert_eq!(plan.respond(&head).unwrap_err(), Refusal::NotFound);
}

#[test]
fn accelerated_file_may_have_the_scripts_type() {
    let (_dir, site, _) = fixture();
    let head = request("GET", "/download.php", &[("Range", "bytes=0-1")]);
    let plan = site
        .accel_redirect(
            b"/small.txt",
            RuleRequest::without_client(&head),
            &[],
            Some(b"application/x-secret"),
        )
        .unwrap();
    let answer = plan.respond_at(&head, later).unwrap();
    let lines = String::from_utf8(answer.head.lines().to_vec()).unwrap();
    assert!(lines.starts_with("Content-Type: application/x-secret\r\n"));
    assert_eq!(
        (answer.head.status, &*bytes_of(answer.body)),
        (206, &b"01"[..])
    );
    // A later visitor gets the file's own type.
    let answer = get(&site, "GET", "/small.txt", &[]);
    assert_eq!(
        answer.field("Content-Type"),
        Some("text/plain; charset=utf-8")
    );
}
