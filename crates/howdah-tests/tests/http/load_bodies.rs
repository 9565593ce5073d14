//! Bodies that are too large for memory, in both directions. The size is 256 MiB by default; `HOWDAH_TESTS_BODY_MIB`
//! increases it (1024 in the nightly run).

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Connection, Headers, framing_of};

/// The number of KiB by which the memory of all processes together may grow, whatever the size of the body is.
const GROWTH: u64 = 8 * 1024;

fn mebibytes() -> usize {
    std::env::var("HOWDAH_TESTS_BODY_MIB").map_or(256, |n| {
        n.parse().expect("HOWDAH_TESTS_BODY_MIB is a number")
    })
}

fn fixture(name: &str) -> Fixture {
    let builder = Fixture::named(name);
    builder.scratch().writable_dir("spill");
    builder
        .children(1)
        .ini("post_max_size", "0")
        .ini("max_execution_time", "0")
        .ini("memory_limit", "32M")
        .config("[limits]\nspill_directory = \"SCRATCH/spill\"")
        .site("max_body_size = \"off\"")
        .script(
            "sum.php",
            "<?php $in = fopen('php://input', 'r'); $n = 0; $hash = hash_init('crc32b');
            while (!feof($in)) {
                $piece = fread($in, 65536);
                $n += strlen($piece);
                hash_update($hash, $piece);
            }
            echo $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ', $n, ' ', hash_final($hash);",
        )
        .script(
            "stream.php",
            "<?php $piece = str_repeat('0123456789abcdef', 4096);
            for ($i = 0; $i < 16 * (int) $_GET['mib']; $i++) echo $piece;",
        )
        .start()
}

/// Runs `body`. Returns the largest number of KiB by which the memory of the server exceeded its earlier value.
fn growth_during(fixture: &Fixture, body: impl FnOnce()) -> u64 {
    fixture.still_serves();
    let before = fixture.whole_memory();
    let over = AtomicBool::new(false);
    let peak = AtomicU64::new(before);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(fixture.whole_memory(), Ordering::Relaxed);
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        let stop = StopAtEnd(&over);
        body();
        drop(stop);
    });
    peak.into_inner() - before
}

/// Stops the thread that watches the memory, even if `body` panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the CRC-32 of a whole upload. It is computed only once, because that takes seconds in a build without
/// optimisation.
fn expected_crc(piece: &[u8]) -> u32 {
    static CRC: OnceLock<u32> = OnceLock::new();
    *CRC.get_or_init(|| crc32(piece, mebibytes()))
}

/// Returns the CRC-32 (ISO 3309) of `times` repetitions of `piece`.
fn crc32(piece: &[u8], times: usize) -> u32 {
    let table: Vec<u32> = (0..256u32)
        .map(|byte| (0..8).fold(byte, |c, _| (c >> 1) ^ (0xEDB8_8320 * (c & 1))))
        .collect();
    let mut crc = u32::MAX;
    for _ in 0..times {
        for byte in piece {
            crc = (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xFF) as usize];
        }
    }
    !crc
}

fn upload(fixture: &Fixture, chunked: bool) {
    let mib = mebibytes();
    let piece: Vec<u8> = (0..1u32 << 20).map(|i| (i * 7 + i / 251) as u8).collect();
    let mut client = Connection::open(fixture.address()).unwrap();
    let framing = if chunked {
        "Transfer-Encoding: chunked".to_owned()
    } else {
        format!("Content-Length: {}", mib << 20)
    };
    client
        .send(format!(
            "PUT /sum.php HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n"
        ))
        .unwrap();
    for _ in 0..mib {
        if chunked {
            client.send(format!("{:x}\r\n", piece.len())).unwrap();
        }
        client.send(&piece).unwrap();
        if chunked {
            client.send("\r\n").unwrap();
        }
    }
    if chunked {
        client.send("0\r\n\r\n").unwrap();
    }
    let answer = client.read_response("PUT").unwrap();
    let total = mib << 20;
    let expected = format!("{total} {total} {:08x}", expected_crc(&piece));
    assert_eq!((answer.status(), answer.text()), (200, expected));
}

#[track_caller]
fn check_bounded(what: &str, growth: u64) {
    println!("{what} of {} MiB: {growth} KiB more at most", mebibytes());
    assert!(growth < GROWTH, "{what}: grew by {growth} KiB");
}

#[test]
fn large_upload_passes_with_bounded_memory() {
    let fixture = fixture("upload");
    check_bounded(
        "upload",
        growth_during(&fixture, || upload(&fixture, false)),
    );
}

#[test]
fn large_chunked_upload_gets_its_length_and_passes_with_bounded_memory() {
    let fixture = fixture("chunked-upload");
    check_bounded(
        "chunked upload",
        growth_during(&fixture, || upload(&fixture, true)),
    );
}

#[test]
fn large_download_from_php_passes_with_bounded_memory() {
    let fixture = fixture("download");
    let growth = growth_during(&fixture, || {
        let mut client = Connection::open(fixture.address()).unwrap();
        let mib = mebibytes();
        client
            .send(format!(
                "GET /stream.php?mib={mib} HTTP/1.1\r\nHost: x\r\n\r\n"
            ))
            .unwrap();
        let head = client.read_head().unwrap();
        let mut framing = framing_of("GET", &head).unwrap();
        let mut got = 0;
        let pattern = b"0123456789abcdef";
        while let Some(piece) = client
            .read_piece(&mut framing, &mut Headers::default())
            .unwrap()
        {
            let ok = piece
                .iter()
                .enumerate()
                .step_by(1021)
                .all(|(i, b)| *b == pattern[(got + i) % 16]);
            assert!(ok, "wrong bytes near {got}");
            got += piece.len();
        }
        assert_eq!(got, mib << 20);
    });
    check_bounded("download", growth);
}

#[test]
fn large_file_is_sent_with_bounded_memory() {
    let fixture = fixture("file");
    let file = std::fs::File::create(fixture.path("site/large.bin")).unwrap();
    let mut line = Vec::new();
    for i in 0..65536u32 {
        writeln!(line, "{i:015x}").unwrap();
    }
    let mib = mebibytes();
    for _ in 0..mib {
        (&file).write_all(&line).unwrap();
    }
    let growth = growth_during(&fixture, || {
        let mut client = Connection::open(fixture.address()).unwrap();
        client
            .send("GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let head = client.read_head().unwrap();
        let mut framing = framing_of("GET", &head).unwrap();
        let mut got = 0;
        while let Some(piece) = client
            .read_piece(&mut framing, &mut Headers::default())
            .unwrap()
        {
            let ok = piece
                .iter()
                .enumerate()
                .step_by(1021)
                .all(|(i, b)| *b == line[(got + i) % line.len()]);
            assert!(ok, "wrong bytes near {got}");
            got += piece.len();
        }
        assert_eq!(got, mib << 20);
    });
    check_bounded("file", growth);
}
