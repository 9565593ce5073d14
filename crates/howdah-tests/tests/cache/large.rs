//! Large pages: a page is in memory only once for all its readers, and a page that does not fit is not stored, which is
//! reported.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::exchange;
use howdah_tests::process_tree::memory;

const MIB: usize = 1 << 20;
/// The size of the page in MiB.
const PAGE_MIB: usize = 100;
const PAGE: &str = r"<?php
header('Content-Type: application/octet-stream');
for ($i = 0; $i < PAGE_MIB; $i++) echo str_repeat(chr(97 + $i % 26), 1 << 20);
";

/// A client that has read the headers of the response, and not yet its body.
struct SlowReader {
    stream: TcpStream,
    head: String,
    body: usize,
}

impl SlowReader {
    fn begin(address: SocketAddr) -> SlowReader {
        let mut stream = TcpStream::connect(address).expect("the server listens");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("a limit can be set");
        stream
            .write_all(b"GET /page.php HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .expect("a request can be sent");
        let mut begin = Vec::new();
        let mut byte = [0];
        while !begin.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("complete headers");
            begin.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&begin).into_owned();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        SlowReader {
            stream,
            head,
            body: 0,
        }
    }

    /// Reads the body and checks every byte. Returns the headers.
    fn finish(mut self) -> String {
        let mut buffer = vec![0; MIB];
        loop {
            let read = self.stream.read(&mut buffer).expect("a complete body");
            if read == 0 {
                break;
            }
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let letter = b'a' + (self.body / MIB % 26) as u8;
                let (part, behind) = rest.split_at(rest.len().min(MIB - self.body % MIB));
                assert!(part == vec![letter; part.len()], "at byte {}", self.body);
                self.body += part.len();
                rest = behind;
            }
        }
        assert_eq!(self.body, PAGE_MIB * MIB);
        self.head
    }
}

#[test]
fn long_page_from_disk_is_read_once_and_is_in_memory_once_for_all_its_readers() {
    let mut fixture = Fixture::named("cache-large")
        .script("page.php", &PAGE.replace("PAGE_MIB", &PAGE_MIB.to_string()))
        .config("[cache]\npath = \"SCRATCH/cache\"\nmemory = \"1600M\"")
        .site("cache = \"on\"\ncache_ttl = \"1h\"")
        .start();
    // The first response comes from the visitor's own run of the script, and is not stored.
    let own = "GET /page.php HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let own = exchange(fixture.address(), own.as_bytes()).expect("a complete response");
    assert_eq!(own.body.len(), PAGE_MIB * MIB);
    let head = SlowReader::begin(fixture.address()).finish();
    assert!(head.contains("\r\nX-Cache: MISS\r\n"), "{head}");
    fixture.wait("the page to be written", |f| {
        f.status()["cache"]["disk"]["waiting"] == 0
    });
    fixture.restart();
    let readers: Vec<SlowReader> = (0..4)
        .map(|_| SlowReader::begin(fixture.address()))
        .collect();
    let mib = memory(fixture.front(), "Rss").expect("the front is running") / 1024;
    assert!(
        (PAGE_MIB as u64..PAGE_MIB as u64 * 2).contains(&mib),
        "four readers of {PAGE_MIB} MiB: {mib} MiB"
    );
    for reader in readers {
        let head = reader.finish();
        assert!(head.contains("\r\nX-Cache: HIT\r\n"), "{head}");
    }
    let disk = &fixture.status()["cache"]["disk"];
    assert_eq!(
        (&disk["hits"], &disk["faults"]),
        (&1.into(), &serde_json::json!([]))
    );
}

#[test]
fn page_longer_than_half_of_the_memory_is_not_kept_and_says_so() {
    let fixture = Fixture::named("cache-too-large")
        .script("page.php", "<?php echo str_repeat('a', 3 << 20);")
        .config("[cache]\nmemory = \"4M\"")
        .site("cache = \"on\"")
        .start();
    // The headers of the first response are sent before its body has become too long; those of the second one name the
    // reason.
    for why in ["NotYetAdmitted", "TooLarge"] {
        let page = fixture.get("/page.php");
        assert_eq!(page.body.len(), 3 * MIB);
        let told = page.header("Cache-Status").unwrap_or_default().to_owned();
        assert!(told.ends_with(why), "{told}");
    }
}
