//! The files of ab's `-g` and `-e`, compared with those of ab itself.

mod runs;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use howdah_bench::outcome::Outcome;
use howdah_bench::report::{gnuplot, percentile_csv};
use howdah_bench::run::Run;
use runs::{RunBuilder, assert_golden, healthy_run};

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn small() -> Run {
    RunBuilder::closed(2, 3.0)
        .ended(Outcome::Good, 30, 200, 20.0, 0.5)
        .ended(Outcome::Status5xx, 6, 502, 1.0, 0.1)
        .build()
}

/// Returns the files that ab writes for thirty responses of our server.
fn files_of_ab() -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        for _ in 0..30 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 2048];
            let mut read = Vec::new();
            while !read.ends_with(b"\r\n\r\n") {
                let n = stream.read(&mut buffer).unwrap();
                assert!(n > 0, "ab hung up");
                read.extend_from_slice(&buffer[..n]);
            }
            let answer = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).unwrap();
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let (g, e) = (dir.path().join("g"), dir.path().join("e"));
    let output = Command::new("ab")
        .args(["-q", "-n", "30", "-c", "1", "-g"])
        .arg(&g)
        .arg("-e")
        .arg(&e)
        .arg(format!("http://{address}/"))
        .output()
        .expect("ab is installed (apache2-utils)");
    assert!(output.status.success(), "{output:?}");
    server.join().unwrap();
    (
        std::fs::read_to_string(g).unwrap(),
        std::fs::read_to_string(e).unwrap(),
    )
}

/// Replaces runs of digits by 0, and names of days and months by x, which leaves the format.
fn format_of(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        let c = match c {
            '0'..='9' => '0',
            'a'..='z' | 'A'..='Z' => 'x',
            c => c,
        };
        if !(out.ends_with(c) && (c == '0' || c == 'x')) {
            out.push(c);
        }
    }
    out
}

#[test]
#[cfg_attr(not(feature = "packages"), ignore = "needs apache2-utils")]
fn gnuplot_and_percentile_files_match_the_format_of_ab() {
    let (g, e) = files_of_ab();
    let run = RunBuilder::closed(1, 3.0)
        .ended(Outcome::Good, 30, 200, 2.0, 0.5)
        .build();
    let ours = text(|out| gnuplot::write(&run, out).map(|_| ()));
    assert_eq!(ours.lines().next(), g.lines().next());
    assert_eq!(ours.lines().count(), g.lines().count());
    for (ours, abs) in ours.lines().zip(g.lines()).skip(1) {
        assert_eq!(format_of(ours), format_of(abs), "{ours}\n{abs}");
    }
    let ours = text(|out| percentile_csv::write(&run, out));
    assert_eq!(ours.lines().next(), e.lines().next());
    assert_eq!(ours.lines().count(), 102);
    assert_eq!(e.lines().count(), 102);
    for (ours, abs) in ours.lines().zip(e.lines()).skip(1) {
        assert_eq!(format_of(ours), format_of(abs), "{ours}\n{abs}");
        assert_eq!(ours.split(',').next(), abs.split(',').next());
    }
}

#[test]
fn gnuplot_rows_are_good_responses_sorted_by_time() {
    let mut out = Vec::new();
    assert_eq!(gnuplot::write(&small(), &mut out).unwrap(), 6);
    let out = String::from_utf8(out).unwrap();
    let ttime: Vec<u64> = out
        .lines()
        .skip(1)
        .map(|line| line.split('\t').nth(4).unwrap().parse().unwrap())
        .collect();
    assert_eq!(ttime.len(), 30);
    assert!(ttime.is_sorted(), "{ttime:?}");
    assert_golden("gnuplot.tsv", &out);
}

#[test]
fn percentile_file_runs_from_shortest_to_longest() {
    let run = healthy_run();
    let out = text(|out| percentile_csv::write(&run, out));
    let values: Vec<f64> = out
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
        .collect();
    assert!(values.is_sorted());
    let latency = run.latency();
    assert_eq!(values[0], (latency.min() as f64 / 1e3).round() / 1e3);
    assert_eq!(values[100], (latency.max() as f64 / 1e3).round() / 1e3);
}
