//! Data that does not fit in memory is stored in files. In these tests, a client reads a response very slowly, or the
//! disk is full.

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http::{Connection, Headers, framing_of};

/// The size of the slow reader's response in bytes. It is more than the sockets' buffers can take (at most 4 MiB to
/// send and 6 MiB to receive with the kernel's defaults), so the script cannot finish before the client reads.
const SIZE: usize = 64 << 20;
const LINE: usize = 32;

/// Serves `lines.php`, which prints numbered lines, so a byte that is lost or sent twice is noticed.
fn lines(builder: Builder, spill: &str) -> Builder {
    builder
        .children(1)
        .ini("max_execution_time", "0")
        .config(&format!(
            "[limits]\nspill_directory = \"SCRATCH/spill\"\n{spill}"
        ))
        .script(
            "lines.php",
            &format!(
                "<?php for ($i = 0; $i < {};) {{
                    $piece = '';
                    for ($n = 0; $n < 2048; $n++, $i++) $piece .= sprintf(\"%0{}d\\n\", $i);
                    echo $piece;
                }}
                file_put_contents('SCRATCH/through', 'yes');",
                SIZE / LINE,
                LINE - 1
            ),
        )
}

/// Returns a client that has read the headers and nothing more.
fn begin(fixture: &Fixture) -> (Connection, howdah_tests::http::Framing) {
    let mut client = Connection::open(fixture.address()).unwrap();
    client
        .send("GET /lines.php HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let head = client.read_head().unwrap();
    assert_eq!(head.status, 200);
    let framing = framing_of("GET", &head).unwrap();
    (client, framing)
}

fn read_all((mut client, mut framing): (Connection, howdah_tests::http::Framing)) {
    let (mut got, mut rest) = (0u64, Vec::new());
    while let Some(piece) = client
        .read_piece(&mut framing, &mut Headers::default())
        .unwrap()
    {
        rest.extend_from_slice(&piece);
        let whole = rest.len() / LINE * LINE;
        for line in rest[..whole].chunks(LINE) {
            let expected = format!("{got:0width$}\n", width = LINE - 1);
            assert_eq!(line, expected.as_bytes(), "line {got}");
            got += 1;
        }
        rest.drain(..whole);
    }
    assert_eq!((got as usize * LINE, rest.len()), (SIZE, 0));
}

/// Checks that the script waits for its slow reader: the pool's only child is not free.
fn check_the_script_waits(fixture: &Fixture) {
    fixture.wait(
        "another request to wait behind that of the slow reader",
        |f| f.status()["pools"][0]["queue"] == 1,
    );
    assert!(!fixture.path("through").exists());
}

#[test]
fn reader_slower_than_memory_and_file_holds_its_script_back_and_gets_every_byte() {
    let builder = Fixture::named("beyond-spill");
    builder.scratch().writable_dir("spill");
    let fixture = lines(builder, "response_spill = \"1M\"").start();
    let child = fixture.get("/pid.php").text();
    let slow = begin(&fixture);
    let behind = fixture.start_get("/pid.php");
    check_the_script_waits(&fixture);
    assert!(!behind.is_there());
    read_all(slow);
    assert_eq!(behind.answer().text(), child, "the same child continues");
    assert!(fixture.path("through").exists());
    fixture.still_serves();
}

/// By default at most half of the free space is used; in these tests the disk is meant to become full.
const BEYOND_THE_DISK: &str = "spill_total = \"1G\"";

/// Returns the command that starts the server in a mount namespace of its own, where the directory for spilled data has
/// 2 MiB. The command needs root, or user namespaces (unshare(1)).
fn small_disk() -> Vec<&'static str> {
    let mut words = vec!["unshare", "--mount"];
    if !rustix::process::geteuid().is_root() {
        words.push("--map-root-user");
    }
    words.extend([
        "sh",
        "-c",
        "mount -t tmpfs -o size=2m none SCRATCH/spill && exec \"$0\" \"$@\"",
    ]);
    words
}

#[test]
fn full_disk_under_a_slow_reader_is_named_and_costs_neither_bytes_nor_the_server() {
    let builder = Fixture::named("disk-full-response");
    builder.scratch().writable_dir("spill");
    let fixture = lines(builder, BEYOND_THE_DISK)
        .through(&small_disk())
        .start();
    let child = fixture.get("/pid.php").text();
    for _ in 0..2 {
        let slow = begin(&fixture);
        fixture.wait_for_log(&["SpillFailed", "No space left", "/lines.php"]);
        let behind = fixture.start_get("/pid.php");
        check_the_script_waits(&fixture);
        read_all(slow);
        assert_eq!(behind.answer().text(), child, "the same child continues");
        std::fs::remove_file(fixture.path("through")).unwrap();
    }
    fixture.still_serves();
}

#[test]
fn full_disk_fails_the_upload_by_name_and_nothing_else() {
    let builder = Fixture::named("disk-full");
    builder.scratch().writable_dir("spill");
    let fixture = builder
        .children(1)
        .config(&format!(
            "[limits]\nspill_directory = \"SCRATCH/spill\"\n{BEYOND_THE_DISK}"
        ))
        .script(
            "length.php",
            "<?php echo strlen(file_get_contents('php://input'));",
        )
        .through(&small_disk())
        .start();
    let upload = |length: usize| {
        let mut client = Connection::open(fixture.address()).unwrap();
        let head = format!(
            "PUT /length.php HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        );
        // The server may refuse the request before it has read everything.
        let _ = client
            .send(head)
            .and_then(|()| client.send(vec![b'x'; length]));
        client.read_response("PUT").unwrap()
    };
    for _ in 0..3 {
        let refused = upload(16 << 20);
        assert_eq!(
            refused.header("Howdah-Error"),
            Some("SpillFailed"),
            "{}",
            refused.text()
        );
        assert!(
            matches!(refused.status(), 500 | 507),
            "{}",
            refused.status()
        );
        // The refused upload has released its space.
        assert_eq!(upload(1 << 20).text(), (1 << 20).to_string());
    }
    fixture.wait_for_log(&["SpillFailed"]);
    fixture.still_serves();
}
