//! Howdah and its rivals on the same pages, alternately in one run: prints rates, latencies and
//! the ratios between them. `cargo run --release -p howdah-tests --bin serving_benchmark -- --help`.
//!
//! A round measures every server once, in an order that turns with each round; a ratio is taken
//! within a round, so that a machine whose speed drifts does not decide it. Bodies are checked
//! before and after. Figures are medians over rounds with minimum and maximum.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use howdah_tests::http;
use howdah_tests::rig::{Kind, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, Load, Report};

const HELP: &str = "\
serving_benchmark [SCENARIO]... [--rounds N] [--seconds N] [--children N]

  hello       hello.php, 100 keep-alive connections
  hello-one   hello.php, one connection (latency of a lone request)
  beside-slow hello.php, 16 connections, with two 200 ms requests always in progress
  static      a file of 24 bytes, 100 connections (nginx, Howdah)
  memory      resident memory: 10 000 idle connections, a PHP child

Without a scenario: all. Build the release binaries first (`make build`).
";

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
    if options.wants("memory") {
        memory(&options, &scratch);
    }
}

struct Options {
    scenarios: Vec<String>,
    rounds: usize,
    seconds: u32,
    children: usize,
}

impl Options {
    fn read() -> Options {
        let mut options = Options {
            scenarios: Vec::new(),
            rounds: 5,
            seconds: 4,
            children: 8,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut number = || {
                words
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or_else(|| {
                        eprintln!("serving_benchmark: {word} wants a number");
                        std::process::exit(2)
                    })
            };
            match word.as_str() {
                "--rounds" => options.rounds = number(),
                "--seconds" => options.seconds = number() as u32,
                "--children" => options.children = number(),
                "--help" | "-h" => {
                    print!("{HELP}");
                    std::process::exit(0)
                }
                name if name == "memory" || SCENARIOS.iter().any(|s| s.name == name) => {
                    options.scenarios.push(word);
                }
                other => {
                    eprintln!("serving_benchmark: no scenario or option {other:?}\n\n{HELP}");
                    std::process::exit(2)
                }
            }
        }
        options
    }

    fn wants(&self, name: &str) -> bool {
        self.scenarios.is_empty() || self.scenarios.iter().any(|s| s == name)
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
    for (kind, runs) in kinds.iter().zip(&reports) {
        let errors: u64 = runs.iter().map(|r| r.errors).sum();
        println!(
            "  {:<10} {:>26} good/s   p50 {:>22} ms   p99 {:>22} ms   errors {errors}",
            kind.name(),
            Spread::of(runs.iter().map(|r| r.good_per_second)).show(0),
            Spread::of(runs.iter().map(|r| r.p50)).show(3),
            Spread::of(runs.iter().map(|r| r.p99)).show(3),
        );
    }
    for (kind, runs) in kinds.iter().zip(&reports).skip(1) {
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
            kind.name(),
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

/// A line on a terminal that the next one replaces; nothing in a pipe.
fn progress(text: &str) {
    use std::io::IsTerminal as _;
    let mut err = std::io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r\x1b[K{text}");
        let _ = err.flush();
    }
}

/// Resident memory in KiB of every process of `server` whose command contains `word`.
fn resident(word: &str) -> Vec<(i32, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<i32>().ok())
        else {
            continue;
        };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let smaps = std::fs::read_to_string(entry.path().join("smaps_rollup")).unwrap_or_default();
        let pss = smaps.lines().find_map(|l| {
            l.strip_prefix("Pss:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        });
        if let Some(pss) = pss
            && String::from_utf8_lossy(&command).contains(word)
        {
            found.push((pid, pss));
        }
    }
    found
}

fn memory(options: &Options, scratch: &Scratch) {
    println!("\nmemory (proportional set size)");
    for (kind, word) in [(Kind::Howdah, "howdah-php"), (Kind::NginxFpm, "php-fpm")] {
        let server = start(kind, options, scratch);
        let load = Load {
            target: "/hello.php".into(),
            connections: 50,
            seconds: 2,
            host: None,
        };
        wrk::run(server.address(), &load);
        let sizes: Vec<u64> = resident(word).into_iter().map(|(_, kib)| kib).collect();
        let total: u64 = sizes.iter().sum();
        println!(
            "  {:<10} {} PHP processes, {} KiB in all, {} KiB each",
            kind.name(),
            sizes.len(),
            total,
            total / sizes.len().max(1) as u64
        );
    }
    let server = start(Kind::Howdah, options, scratch);
    let front = || {
        resident("howdah\0serve")
            .into_iter()
            .map(|(_, kib)| kib)
            .sum::<u64>()
    };
    let before = front();
    let mut held = Vec::new();
    raise_file_limit();
    for _ in 0..10_000 {
        match http::Connection::open(server.address()) {
            Ok(connection) => held.push(connection),
            Err(error) => {
                println!("  stopped at {} connections: {error}", held.len());
                break;
            }
        }
    }
    // Every connection has been served once and is idle: the honest kind of idle.
    for connection in &mut held {
        let request = "GET /hello.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
        connection
            .send(request)
            .expect("an idle connection takes a request");
        connection.read_response("GET").expect("and answers it");
    }
    let after = front();
    println!(
        "  howdah     {} idle connections: {:.1} KiB each in the server's processes",
        held.len(),
        (after.saturating_sub(before)) as f64 / held.len().max(1) as f64
    );
}

/// Ten thousand connections want as many descriptors here as in the server.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        eprintln!("cannot raise the limit of open files: {error}");
    }
}
