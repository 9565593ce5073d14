//! WordPress' home page: a script that works for its answer. Rates against the rivals at ten
//! connections, and whether Howdah's rate holds up to five hundred.

use howdah_tests::http;
use howdah_tests::rig::{Kind, Server};
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};
use howdah_tests::wrk::{self, Load, Report};

use super::{Options, Spread, cpu_ticks_of, print_table, progress};

/// Processes for WordPress, which computes: more than cores only hides waits for the database.
const CHILDREN: usize = 8;
const SWEEP: &[u32] = &[10, 50, 100, 200, 500];

/// Every request of the sweep may wait: what is measured is the rate, not the refusals.
const QUEUE: &str = "[pool.www]\nqueue_size = 2000\nqueue_timeout = \"60s\"\n";

fn check_page(server: &dyn Server) {
    let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let page = http::exchange(server.address(), request.as_bytes())
        .unwrap_or_else(|broken| panic!("{}: {broken}", server.kind().name()));
    assert!(
        page.status() == 200 && page.text().contains(MARK) && page.text().contains("</html>"),
        "{}: {} {}",
        server.kind().name(),
        page.status(),
        page.text()
    );
}

fn start(kind: Kind, home: &WordpressHome) -> Box<dyn Server> {
    let mut site = home
        .site()
        // Under prefork a kept connection holds a process: mod_php gets enough for ten.
        .children(if kind == Kind::ModPhp { 16 } else { CHILDREN });
    site.howdah_config = Some(QUEUE.to_owned());
    let server = kind.start(&site);
    check_page(server.as_ref());
    server
}

fn load(connections: u32, seconds: u32) -> Load {
    Load {
        target: "/".into(),
        connections,
        seconds,
        host: Some(HOST.into()),
    }
}

/// Ten connections, all three servers.
pub fn measure(options: &Options) {
    let home = WordpressHome::prepare();
    let kinds = [Kind::Howdah, Kind::NginxFpm, Kind::ModPhp];
    let servers: Vec<_> = kinds.iter().map(|kind| start(*kind, &home)).collect();
    for server in &servers {
        wrk::run(server.address(), &load(10, 2));
    }
    let mut reports = vec![Vec::new(); servers.len()];
    for round in 0..options.rounds {
        for turn in 0..servers.len() {
            let i = (round + turn) % servers.len();
            progress(&format!(
                "wordpress round {}: {}",
                round + 1,
                kinds[i].name()
            ));
            reports[i].push(wrk::run(servers[i].address(), &load(10, options.seconds)));
        }
    }
    progress("");
    servers
        .iter()
        .for_each(|server| check_page(server.as_ref()));
    println!("\nwordpress: home page at c=10");
    print_table(&kinds, &reports);
}

/// Howdah and nginx with php-fpm, from few connections to many and back again: in rising order alone,
/// a host that slows down and processes that grow with age would be taken for the connections' doing.
pub fn sweep(options: &Options) {
    let home = WordpressHome::prepare();
    // A slow page at 500 connections: a run must last for several answers per connection.
    let seconds = options.seconds.max(15);
    println!("\nsweep: WordPress' home page, {seconds} s each, up and down by turns");
    for kind in [Kind::Howdah, Kind::NginxFpm] {
        let server = start(kind, &home);
        wrk::run(server.address(), &load(10, 3));
        let mut reports = vec![Vec::new(); SWEEP.len()];
        for round in 0..options.rounds.max(2) {
            for step in 0..SWEEP.len() {
                let level = if round % 2 == 0 {
                    step
                } else {
                    SWEEP.len() - 1 - step
                };
                let connections = SWEEP[level];
                progress(&format!(
                    "sweep {} round {} c={connections}",
                    kind.name(),
                    round + 1
                ));
                let before = cpu_ticks();
                let report = wrk::run(server.address(), &load(connections, seconds));
                let pages = report.good_per_second * f64::from(seconds);
                // A tick is 10 ms.
                let cost = cpu_ticks().map(|(name, ticks)| {
                    let before = before.iter().find(|(n, _)| *n == name);
                    let used = ticks.saturating_sub(before.map_or(0, |(_, ticks)| *ticks));
                    format!("{name} {:.2}", used as f64 * 10.0 / pages)
                });
                progress("");
                println!(
                    "  {:<10} round {} c={connections:<4} {:>7.1} good/s  CPU ms a page: {}",
                    kind.name(),
                    round + 1,
                    report.good_per_second,
                    cost.join(", "),
                );
                reports[level].push(report);
            }
        }
        let rates = reports
            .iter()
            .map(|runs| Spread::of(runs.iter().map(|r| r.good_per_second)));
        let rates: Vec<Spread> = rates.collect();
        let peak = rates.iter().map(|rate| rate.median).fold(0.0, f64::max);
        for ((connections, rate), runs) in SWEEP.iter().zip(&rates).zip(&reports) {
            println!(
                "  {:<10} c={connections:<4} {:>22} good/s  {:.2} of the peak  p50 {} ms  p99 {} ms  errors {}",
                kind.name(),
                rate.show(1),
                rate.median / peak,
                Spread::of(runs.iter().map(|r| r.p50)).show(0),
                Spread::of(runs.iter().map(|r| r.p99)).show(0),
                runs.iter().map(|r| r.errors).sum::<u64>(),
            );
        }
        check_page(server.as_ref());
    }
}

/// Fifty connections and five hundred, by turns: each run at 500 is compared with the two around it, so
/// that a host whose speed drifts is no difference.
pub fn flat(options: &Options) {
    let home = WordpressHome::prepare();
    let seconds = options.seconds.max(8);
    println!("\nflat: WordPress' home page, c=500 between two runs at c=50, {seconds} s each");
    for kind in [Kind::Howdah, Kind::NginxFpm] {
        let server = start(kind, &home);
        wrk::run(server.address(), &load(50, 3));
        let run = |connections, round: usize| {
            progress(&format!("flat {} {round} c={connections}", kind.name()));
            wrk::run(server.address(), &load(connections, seconds))
        };
        let mut few = vec![run(50, 0)];
        let mut many = Vec::new();
        for round in 1..=options.rounds {
            many.push(run(500, round));
            few.push(run(50, round));
        }
        progress("");
        check_page(server.as_ref());
        let ratios = many.iter().zip(few.windows(2)).map(|(many, around)| {
            let few = f64::midpoint(around[0].good_per_second, around[1].good_per_second);
            many.good_per_second / few
        });
        let ratios: Vec<f64> = ratios.collect();
        let rates = |runs: &[Report]| Spread::of(runs.iter().map(|r| r.good_per_second)).show(1);
        let shown: Vec<String> = ratios.iter().map(|r| format!("{r:.3}")).collect();
        println!(
            "  {:<10} c=50 {} good/s, c=500 {} good/s, errors {}; c=500 / c=50 {}: {}",
            kind.name(),
            rates(&few),
            rates(&many),
            many.iter().chain(&few).map(|r| r.errors).sum::<u64>(),
            Spread::of(ratios.iter().copied()).show(3),
            shown.join(" "),
        );
    }
}

/// CPU time so far of the server, of PHP and of the database, in clock ticks.
fn cpu_ticks() -> [(&'static str, u64); 3] {
    [
        (
            "server",
            cpu_ticks_of(|name| matches!(name, "howdah" | "nginx")),
        ),
        ("PHP", cpu_ticks_of(|name| name.contains("php"))),
        ("database", cpu_ticks_of(|name| name == "mariadbd")),
    ]
}
