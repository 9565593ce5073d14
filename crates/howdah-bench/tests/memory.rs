//! The generator's memory does not depend on the number of requests. Alone in its file: it looks at
//! the memory of the whole process.

use howdah_bench::engine::null::{NullServer, RequestEnd};
use howdah_bench::engine::{Control, run};
use howdah_bench::plan::{Arrivals, Plan, Stop, Target};

/// Resident memory, KiB, without what the allocator keeps for later: that depends on how many
/// histograms existed at once, and so on the load of the machine.
fn resident() -> u64 {
    // SAFETY: may be called at any time, by any thread (malloc_trim(3)).
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn measure(server: &NullServer, concurrency: u32, requests: u64) {
    let target = Target::parse(&format!("http://{}/", server.address())).unwrap();
    let stop = Stop {
        requests: Some(requests),
        time: None,
    };
    let plan = Plan::new(target, Arrivals::Closed { concurrency }, stop);
    let run = run(&plan, Control::default()).unwrap();
    run.balance().unwrap();
    assert_eq!(
        run.good(),
        requests,
        "{:?} {:?}",
        run.outcomes.keys(),
        run.reasons
    );
    assert_eq!(run.connections.peak, u64::from(concurrency));
}

#[test]
fn memory_depends_on_connections_and_not_on_requests() {
    let server = NullServer::start(RequestEnd::EmptyLine, NullServer::answer(24), true).unwrap();
    // The first is as long as the second: what the allocator keeps depends on how many seconds a run takes.
    measure(&server, 8, 150_000);
    let before = resident();
    measure(&server, 8, 150_000);
    let grown = resident().saturating_sub(before);
    // A record of 32 bytes per request would be 4690 KiB; pages of the allocator that are not quite
    // empty came to 460.
    assert!(grown < 1200, "{grown} KiB more after 150000 more requests");

    // Both ends are in this process, whose open files are limited: 4000 connections are 8000 of
    // them.
    let before = resident();
    measure(&server, 4000, 12_000);
    let each = resident().saturating_sub(before) / 4000;
    assert!(each < 4, "{each} KiB for each of 4000 connections");
}
