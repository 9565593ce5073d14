//! Compares the generator with `wrk -t1`: the same server, the same connections, in turns, and the ratio of each pair.
//! Without a URL the server is the built-in one that does nothing.
//!
//! `cargo run --release -p howdah-bench --example beside_wrk -- [--url URL] [--pairs 7] [--seconds 3] [-c 100]`

use std::process::{Command, ExitCode};
use std::time::Duration;

use howdah_bench::engine::null::{NullServer, RequestEnd};
use howdah_bench::engine::{RunControl, run};
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, StopLimits};

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("beside_wrk: {why}");
            ExitCode::FAILURE
        }
    }
}

struct WrkOptions {
    url: Option<String>,
    pairs: usize,
    seconds: u64,
    concurrency: u32,
}

fn options() -> Result<WrkOptions, String> {
    let mut options = WrkOptions {
        url: None,
        pairs: 7,
        seconds: 3,
        concurrency: 100,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let number = || {
            value
                .parse::<u64>()
                .map_err(|e| format!("{word} {value}: {e}"))
        };
        match word.as_str() {
            "--url" => options.url = Some(value),
            "--pairs" => options.pairs = number()? as usize,
            "--seconds" => options.seconds = number()?,
            "-c" => options.concurrency = number()? as u32,
            _ => return Err(format!("{word} is unknown")),
        }
    }
    Ok(options)
}

fn measure() -> Result<(), String> {
    let options = options()?;
    let server = NullServer::start(RequestEnd::EmptyLine, NullServer::response(24), true)
        .map_err(|e| e.to_string())?;
    let own = format!("http://{}/", server.address());
    let url = options.url.clone().unwrap_or(own);
    println!(
        "{url}, c={}, {} s each, in turns",
        options.concurrency, options.seconds
    );
    println!("pair  howdah/s     wrk/s   ratio   howdah/cpu-s    wrk/cpu-s   ratio");
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    for pair in 0..options.pairs {
        // The order is ABBA, so that neither is always first.
        let (ours, wrks) = if pair % 2 == 0 {
            let ours = howdah(&url, &options)?;
            (ours, wrk(&url, &options)?)
        } else {
            let wrks = wrk(&url, &options)?;
            (howdah(&url, &options)?, wrks)
        };
        rates.push(ours.rate / wrks.rate);
        costs.push(ours.per_cpu_second() / wrks.per_cpu_second());
        println!(
            "{:>4} {:>9.0} {:>9.0} {:>7.3}   {:>12.0} {:>12.0} {:>7.3}",
            pair + 1,
            ours.rate,
            wrks.rate,
            rates[pair],
            ours.per_cpu_second(),
            wrks.per_cpu_second(),
            costs[pair]
        );
    }
    print_ratios("responses per second", &mut rates);
    print_ratios("responses per second of the generator's CPU", &mut costs);
    Ok(())
}

fn print_ratios(what: &str, ratios: &mut [f64]) {
    ratios.sort_by(f64::total_cmp);
    if let [lowest, .., highest] = ratios {
        let (lowest, highest) = (*lowest, *highest);
        let median = ratios[ratios.len() / 2];
        println!("{what}: median ratio {median:.3} (lowest {lowest:.3}, highest {highest:.3})");
    }
}

/// The result of one of the two generators.
struct GeneratorResult {
    /// Responses per second.
    rate: f64,
    /// Cores the generator used.
    cpu: f64,
}

impl GeneratorResult {
    /// Returns the responses per second of CPU time, which is the fairer figure on a machine that is busy with other
    /// work.
    fn per_cpu_second(&self) -> f64 {
        self.rate / self.cpu
    }
}

fn howdah(url: &str, options: &WrkOptions) -> Result<GeneratorResult, String> {
    let target = LoadTarget::parse(url).map_err(|e| e.to_string())?;
    let arrivals = Arrivals::Closed {
        concurrency: options.concurrency,
    };
    let stop = StopLimits {
        requests: None,
        time: Some(Duration::from_secs(options.seconds)),
    };
    let run = run(&Plan::new(target, arrivals, stop), RunControl::default())
        .map_err(|e| e.to_string())?;
    run.balance()?;
    if run.errors() > 0 {
        return Err(format!(
            "{} requests failed: {:?}",
            run.errors(),
            run.reasons
        ));
    }
    Ok(GeneratorResult {
        rate: run.good_rate(),
        cpu: run.client.busiest(),
    })
}

fn wrk(url: &str, options: &WrkOptions) -> Result<GeneratorResult, String> {
    let before = children_ticks()?;
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{}", options.concurrency)])
        .args([&format!("-d{}s", options.seconds), url])
        .output()
        .map_err(|e| format!("starting wrk: {e}"))?;
    let ticks = children_ticks()? - before;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:"))
        .and_then(|rate| rate.trim().parse().ok())
        .ok_or(format!("wrk said: {text}"))?;
    let seconds = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    Ok(GeneratorResult {
        rate,
        cpu: seconds / options.seconds as f64,
    })
}

/// Returns the CPU time of children that have been waited for: proc(5), fields 16 and 17 of /proc/self/stat.
fn children_ticks() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    let (_, rest) = text.rsplit_once(") ").ok_or("no stat of this process")?;
    // The first of the remaining fields is the state, field 3.
    let mut times = rest.split(' ').skip(13).map(str::parse::<u64>);
    match (times.next(), times.next()) {
        (Some(Ok(user)), Some(Ok(system))) => Ok(user + system),
        _ => Err(format!("not understood: {text}")),
    }
}
