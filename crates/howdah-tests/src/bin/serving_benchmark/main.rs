//! Howdah and its rivals on the same pages, alternately in one run: prints rates, latencies and
//! the ratios between them. `cargo run --release -p howdah-tests --bin serving_benchmark -- --help`.
//!
//! A round measures every server once, in an order that turns with each round; a ratio is taken
//! within a round, so that a machine whose speed drifts does not decide it. Bodies are checked
//! before and after. Figures are medians over rounds with minimum and maximum.

mod cached;
mod cost;
mod fastcgi;
mod memory;
mod opcache;
mod options;
mod pool;
mod swoole;
mod wordpress;
mod worker;

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_tests::http;
use howdah_tests::process_tree;
use howdah_tests::rig::{Kind, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, Load, Report};

use options::Options;

struct Scenario {
    name: &'static str,
    target: &'static str,
    connections: u32,
    beside_slow: bool,
    rivals: &'static [Kind],
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "hello",
        target: "/hello.php",
        connections: 100,
        beside_slow: false,
        rivals: &[Kind::NginxFpm, Kind::ModPhp],
    },
    Scenario {
        name: "hello-one",
        target: "/hello.php",
        connections: 1,
        beside_slow: false,
        rivals: &[Kind::NginxFpm, Kind::ModPhp],
    },
    Scenario {
        name: "beside-slow",
        target: "/hello.php",
        connections: 16,
        beside_slow: true,
        rivals: &[Kind::NginxFpm, Kind::ModPhp],
    },
    Scenario {
        name: "static",
        target: "/hello.txt",
        connections: 100,
        beside_slow: false,
        rivals: &[Kind::NginxFpm],
    },
];

const BODY: &str = "Hello, elephant riders!\n";

fn main() {
    let options = Options::read();
    println!("{}", machine());
    let scratch = Scratch::new("serving-benchmark");
    scratch.write(
        "site/hello.php",
        format!("<?php echo \"{}\\n\";", BODY.trim_end()),
    );
    scratch.write("site/hello.txt", BODY);
    scratch.write("site/slow.php", "<?php usleep(200000); echo 'slow';");
    for scenario in SCENARIOS.iter().filter(|s| options.wants(s.name)) {
        measure(scenario, &options, &scratch);
    }
    if options.wants("swoole") {
        swoole::measure(&options, &scratch);
    }
    if options.wants("worker") {
        worker::measure(&options, &scratch);
    }
    if options.wants("wordpress") {
        wordpress::measure(&options);
    }
    if options.wants("fastcgi") {
        fastcgi::measure(&options, &scratch);
    }
    if options.wants("pool") {
        pool::measure(&options, &scratch);
    }
    if options.wants("sweep") {
        wordpress::sweep(&options);
    }
    if options.wants("flat") {
        wordpress::flat(&options);
    }
    if options.wants("cache") {
        cached::hello(&options, &scratch);
    }
    if options.wants("cache-wordpress") {
        cached::wordpress(&options);
    }
    if options.wants("cache-miss") {
        cached::misses(&options, &scratch);
    }
    if options.wants("cost") {
        cost::measure(&options, &scratch);
    }
    if options.wants("opcache") {
        opcache::measure(&options, &scratch);
    }
    if options.wants("memory") {
        memory::measure(&options, &scratch);
    }
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown CPU", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "machine: {cores} x {model}, Linux {}; load: wrk -t1 on the same cores",
        kernel.trim()
    )
}

fn start(kind: Kind, options: &Options, scratch: &Scratch) -> Box<dyn Server> {
    // Under prefork a kept connection holds a process: give mod_php one for each client.
    let children = if kind == Kind::ModPhp {
        128
    } else {
        options.children
    };
    let site = Site::new(scratch.join("site"))
        .children(children)
        .ini("opcache.revalidate_freq", "2");
    kind.start(&site)
}

fn check_body(server: &dyn Server, target: &str) {
    let answer = http::get(server.address(), target);
    assert!(
        answer.status() == 200 && answer.text() == BODY,
        "{}: {target} answers {} {:?}",
        server.kind().name(),
        answer.status(),
        answer.text()
    );
}

fn measure(scenario: &Scenario, options: &Options, scratch: &Scratch) {
    let mut kinds = vec![Kind::Howdah];
    kinds.extend_from_slice(scenario.rivals);
    let servers: Vec<_> = kinds.iter().map(|k| start(*k, options, scratch)).collect();
    let mut load = Load {
        target: scenario.target.to_owned(),
        connections: scenario.connections,
        seconds: 1,
        host: None,
    };
    for server in &servers {
        check_body(server.as_ref(), scenario.target);
        wrk::run(server.address(), &load);
    }
    load.seconds = options.seconds;
    let mut reports = vec![Vec::new(); servers.len()];
    for round in 0..options.rounds {
        for turn in 0..servers.len() {
            let i = (round + turn) % servers.len();
            progress(&format!(
                "{} round {}: {}",
                scenario.name,
                round + 1,
                kinds[i].name()
            ));
            reports[i].push(one_run(servers[i].as_ref(), scenario, &load));
        }
    }
    progress("");
    for server in &servers {
        check_body(server.as_ref(), scenario.target);
    }
    println!(
        "\n{}: {} at c={}",
        scenario.name, scenario.target, scenario.connections
    );
    print_table(&kinds, &reports);
}

/// A line per server, then a line per rival with the ratios taken within each round.
fn print_table(kinds: &[Kind], reports: &[Vec<Report>]) {
    let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
    print_named(&names, reports);
}

/// As [`print_table`], for servers that are no [`Kind`] of their own.
fn print_named(names: &[&str], reports: &[Vec<Report>]) {
    for (name, runs) in names.iter().zip(reports) {
        let errors: u64 = runs.iter().map(|r| r.errors).sum();
        println!(
            "  {:<10} {:>26} good/s   p50 {:>22} ms   p99 {:>22} ms   errors {errors}   wrk {} of a core",
            name,
            Spread::of(runs.iter().map(|r| r.good_per_second)).show(0),
            Spread::of(runs.iter().map(|r| r.p50)).show(3),
            Spread::of(runs.iter().map(|r| r.p99)).show(3),
            Spread::of(runs.iter().map(|r| r.generator)).show(2),
        );
    }
    for (name, runs) in names.iter().zip(reports).skip(1) {
        let ratio = |of: fn(&Report) -> f64| {
            Spread::of(
                reports[0]
                    .iter()
                    .zip(runs)
                    .map(|(mine, theirs)| of(mine) / of(theirs)),
            )
        };
        println!(
            "  howdah / {:<10} rate {}   p50 {}   p99 {}",
            name,
            ratio(|r| r.good_per_second).show(2),
            ratio(|r| r.p50).show(2),
            ratio(|r| r.p99).show(2),
        );
    }
}

fn one_run(server: &dyn Server, scenario: &Scenario, load: &Load) -> Report {
    if !scenario.beside_slow {
        return wrk::run(server.address(), load);
    }
    let over = AtomicBool::new(false);
    let address = server.address();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(http::get(address, "/slow.php").text(), "slow");
                }
            });
        }
        let report = wrk::run(address, load);
        over.store(true, Ordering::Relaxed);
        report
    })
}

/// Median, minimum and maximum.
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        Spread {
            median: sorted[sorted.len() / 2],
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }

    fn show(&self, digits: usize) -> String {
        format!(
            "{:.digits$} [{:.digits$}, {:.digits$}]",
            self.median, self.min, self.max
        )
    }
}

/// CPU time so far of the processes below this one that run `program`, in clock ticks.
fn cpu_ticks_of(program: impl Fn(&str) -> bool) -> u64 {
    let all = process_tree::below(std::process::id().cast_signed());
    let wanted = all.iter().filter(|entry| program(&entry.program));
    wanted
        .filter_map(|entry| process_tree::cpu_ticks(entry.pid))
        .sum()
}

/// A line on a terminal that the next one replaces; nothing in a pipe.
fn progress(text: &str) {
    use std::io::IsTerminal as _;
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}
