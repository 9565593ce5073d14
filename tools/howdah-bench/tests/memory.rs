//! The generator's memory does not depend on the number of requests. This test is alone in its file, because it counts
//! the allocations of the whole process.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Duration;

use howdah_bench::engine::null::{NullServer, RequestEnd};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::plan::{Arrivals, LoadTarget, LogSource, Plan, StopLimits};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Returns how many more bytes were allocated at the peak of a run than before it, by both ends.
fn measure(server: &NullServer, concurrency: u32, requests: u64) -> usize {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let target = LoadTarget::parse(&format!("http://{}/", server.address())).unwrap();
    let stop = StopLimits {
        requests: Some(requests),
        time: None,
    };
    let plan = Plan::new(target, Arrivals::Closed { concurrency }, stop);
    let run = run(&plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    assert_eq!(
        run.good(),
        requests,
        "{:?} {:?}",
        run.outcomes.keys(),
        run.reasons
    );
    assert_eq!(run.connections.peak, u64::from(concurrency));
    ALLOCATED.peak_usage() - before
}

/// Returns the peak of a second of a replay whose log has this number of lines, a thousand for each second.
fn replay(server: &NullServer, lines: u64) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut file = BufWriter::new(File::create(&path).unwrap());
    for n in 0..lines {
        let seconds = n / 1000;
        let (minute, second) = (seconds / 60, seconds % 60);
        writeln!(
            file,
            "::1 - - [29/Nov/2026:09:{minute:02}:{second:02} +0000] \"GET /page?number={n} HTTP/1.1\" 200 1"
        )
        .unwrap();
    }
    file.flush().unwrap();
    drop(file);
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let target = LoadTarget::parse(&format!("http://{}/", server.address())).unwrap();
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs(1)),
    };
    let arrivals = Arrivals::Log {
        speed: 1.0,
        max_connections: 10,
    };
    let mut plan = Plan::new(target, arrivals, stop);
    plan.log = Some(LogSource {
        path,
        expects_logged_status: true,
    });
    let run = run(&plan, RunControl::default()).unwrap();
    run.balance().unwrap();
    assert!(run.good() > 100, "{:?}", run.reasons);
    ALLOCATED.peak_usage() - before
}

#[test]
fn memory_depends_on_connections_and_not_on_requests() {
    let server = NullServer::start(RequestEnd::EmptyLine, NullServer::response(24), true).unwrap();
    let short = measure(&server, 8, 15_000);
    let long = measure(&server, 8, 150_000);
    // A record of 32 bytes per request would be 4 MB. Each additional second of a run has its own histogram.
    assert!(
        long < short + 400_000,
        "{short} bytes, ten times the requests {long}"
    );

    // Both ends are in this process, whose open files are limited: 4000 connections use 8000 of them.
    let many = measure(&server, 4000, 12_000);
    let each = many.saturating_sub(long) / 4000;
    assert!(each < 1000, "{each} bytes for each of 4000 connections");

    let short = replay(&server, 40_000);
    let long = replay(&server, 400_000);
    assert!(
        long < short + 2_000_000,
        "{short} bytes, a log of ten times the length {long}"
    );
}
