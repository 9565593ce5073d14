//! WordPress' home page: a script that works for its answer. Rates against the rivals at ten
//! connections, and whether Howdah's rate holds up to five hundred.

use howdah_tests::http;
use howdah_tests::rig::{Kind, Server};
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};
use howdah_tests::wrk::{self, Load};

use super::{Options, print_table, progress};

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

/// Howdah and nginx with php-fpm, more and more connections.
pub fn sweep(options: &Options) {
    let home = WordpressHome::prepare();
    // A slow page at 500 connections: a run must last for several answers per connection.
    let seconds = options.seconds.max(15);
    println!("\nsweep: WordPress' home page, {seconds} s each");
    for kind in [Kind::Howdah, Kind::NginxFpm] {
        let server = start(kind, &home);
        wrk::run(server.address(), &load(10, 3));
        let mut peak: f64 = 0.0;
        for connections in SWEEP {
            progress(&format!("sweep {} c={connections}", kind.name()));
            let report = wrk::run(server.address(), &load(*connections, seconds));
            peak = peak.max(report.good_per_second);
            progress("");
            println!(
                "  {:<10} c={connections:<4} {:>7.1} good/s ({:.2} of the peak so far)  p50 {:.0} ms  p99 {:.0} ms  errors {}",
                kind.name(),
                report.good_per_second,
                report.good_per_second / peak,
                report.p50,
                report.p99,
                report.errors,
            );
        }
        check_page(server.as_ref());
    }
}
