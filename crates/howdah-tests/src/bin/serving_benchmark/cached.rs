//! Hits of the page cache against nginx' fastcgi_cache and Varnish: 24 bytes at a hundred
//! connections, and WordPress' home page. Every server is asked for the page once before, and must
//! say that the second answer comes from its cache.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use howdah_tests::http;
use howdah_tests::process::Process;
use howdah_tests::rig::{Kind, Site, free_address, wait_for_listener};
use howdah_tests::scratch::Scratch;
use howdah_tests::wordpress_home::{HOST, MARK, WordpressHome};
use howdah_tests::wrk::{self, Load, Report};

use super::{Options, Spread, cpu_ticks_of, print_named, progress};

const VARNISH: &str = "/usr/sbin/varnishd";
const NAMES: [&str; 3] = ["howdah", "nginx", "varnish"];
const PROGRAMS: [&str; 3] = ["howdah", "nginx", "varnishd"];

/// varnishd in front of another server, with its own rules as they come.
struct Varnish {
    address: SocketAddr,
    _process: Process,
    _scratch: Scratch,
}

impl Varnish {
    fn start(backend: SocketAddr) -> Varnish {
        let (scratch, address) = (Scratch::new("varnish"), free_address());
        let directory = scratch.writable_dir("varnish");
        let mut command = Command::new(VARNISH);
        command
            .args(["-F", "-a", &address.to_string(), "-b", &backend.to_string()])
            .arg("-n")
            .arg(&directory)
            .args(["-s", "malloc,64m", "-j", "none"]);
        let process = Process::start("varnishd", &mut command);
        wait_for_listener("varnishd", address);
        Varnish {
            address,
            _process: process,
            _scratch: scratch,
        }
    }
}

struct Page<'a> {
    title: &'a str,
    target: &'a str,
    host: &'a str,
    mark: &'a str,
    connections: u32,
}

/// 24 bytes.
pub fn hello(options: &Options, scratch: &Scratch) {
    let page = Page {
        title: "cache: hits of /hello.php",
        target: "/hello.php",
        host: "localhost",
        mark: super::BODY,
        connections: 100,
    };
    let site = Site::new(scratch.join("site")).children(options.children);
    measure(options, &page, &site);
}

/// WordPress' home page.
pub fn wordpress(options: &Options) {
    let home = WordpressHome::prepare();
    let page = Page {
        title: "cache-wordpress: hits of WordPress' home page",
        target: "/",
        host: HOST,
        mark: MARK,
        connections: 100,
    };
    measure(options, &page, &home.site().children(options.children));
}

/// What the cache costs a request that PHP answers: a visitor with a login cookie, who passes, and a page
/// that is rendered and stored (a path nobody asked for before), with the cache on and off by turns.
pub fn misses(options: &Options, scratch: &Scratch) {
    let home = WordpressHome::prepare();
    let script = scratch.write(
        "paths.lua",
        "local n, run = 0, os.time()\nrequest = function()\n  n = n + 1\n  \
         return wrk.format(\"GET\", \"/index.php/\" .. run .. \"-\" .. n .. \"/\")\nend\n",
    );
    let script = script.display().to_string();
    let start = |cache: &str| {
        let mut site = home.site().children(options.children);
        site.howdah_arguments = ["--cache", cache].map(str::to_owned).to_vec();
        Kind::Howdah.start(&site)
    };
    let servers = [start("on"), start("off")];
    let load = Load {
        target: "/".to_owned(),
        connections: 4,
        seconds: options.seconds,
        host: Some(HOST.to_owned()),
    };
    for (title, arguments) in [
        (
            "pass",
            [
                "-H",
                "Cookie: wordpress_logged_in_0123456789abcdef=somebody",
            ],
        ),
        ("stored miss", ["-s", &*script]),
    ] {
        let mut ratios = Vec::new();
        let mut costs = [Vec::new(), Vec::new()];
        for round in 0..=options.rounds {
            let mut rates = [0.0; 2];
            for turn in 0..2 {
                let i = (round + turn) % 2;
                progress(&format!("cache-miss {title} round {round}: {i}"));
                let ticks = || cpu_ticks_of(|program| matches!(program, "howdah" | "howdah-php"));
                let before = ticks();
                let report = wrk::run_with(servers[i].address(), &load, &arguments);
                let used = (ticks() - before) as f64 * 10.0;
                assert_eq!(report.errors, 0, "{title}");
                rates[i] = report.good_per_second;
                if round > 0 {
                    costs[i].push(used / (rates[i] * f64::from(load.seconds)));
                }
            }
            // The first warms up.
            if round > 0 {
                ratios.push(rates[0] / rates[1]);
            }
        }
        progress("");
        let [on, off] = costs.map(|costs| Spread::of(costs.into_iter()).show(2));
        println!(
            "\ncache-miss: WordPress, {title}: rate with the cache / without {}; CPU of server and PHP {on} ms and {off} ms",
            Spread::of(ratios.into_iter()).show(3),
        );
    }
}

fn measure(options: &Options, page: &Page<'_>, site: &Site) {
    let mut own = site.clone();
    own.howdah_arguments = ["--cache", "on"].map(str::to_owned).to_vec();
    let mut cached = site.clone();
    cached.nginx_cache = true;
    let howdah = Kind::Howdah.start(&own);
    let nginx = Kind::NginxFpm.start(&cached);
    let backend = Kind::NginxFpm.start(site);
    let varnish = Path::new(VARNISH)
        .is_file()
        .then(|| Varnish::start(backend.address()));
    if varnish.is_none() {
        println!("  varnish is not installed: left out");
    }
    let mut addresses = vec![howdah.address(), nginx.address()];
    addresses.extend(varnish.as_ref().map(|v| v.address));
    let load = Load {
        target: page.target.to_owned(),
        connections: page.connections,
        seconds: 1,
        host: Some(page.host.to_owned()),
    };
    for (address, name) in addresses.iter().zip(NAMES) {
        warm(*address, name, page);
        wrk::run(*address, &load);
    }
    let load = Load {
        seconds: options.seconds,
        ..load
    };
    let mut reports: Vec<Vec<Report>> = vec![Vec::new(); addresses.len()];
    let mut costs: Vec<Vec<f64>> = vec![Vec::new(); addresses.len()];
    for round in 0..options.rounds {
        for turn in 0..addresses.len() {
            let i = (round + turn) % addresses.len();
            progress(&format!("{} round {}: {}", page.title, round + 1, NAMES[i]));
            let ticks = || cpu_ticks_of(|program| program == PROGRAMS[i]);
            let before = ticks();
            let report = wrk::run(addresses[i], &load);
            // A tick is 10 ms.
            let used = (ticks() - before) as f64 * 10_000.0;
            costs[i].push(used / (report.good_per_second * f64::from(load.seconds)));
            reports[i].push(report);
        }
    }
    progress("");
    for (address, name) in addresses.iter().zip(NAMES) {
        warm(*address, name, page);
    }
    println!("\n{}, c={}", page.title, page.connections);
    print_named(&NAMES[..addresses.len()], &reports);
    for (name, costs) in NAMES.iter().zip(&costs) {
        let cost = Spread::of(costs.iter().copied());
        println!(
            "  {name:<10} CPU of the server for a hit: {} us",
            cost.show(1)
        );
    }
}

/// Asks until the page comes from the cache.
fn warm(address: SocketAddr, name: &str, page: &Page<'_>) {
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        page.target, page.host
    );
    for _ in 0..20 {
        let answer = http::exchange(address, request.as_bytes())
            .unwrap_or_else(|broken| panic!("{name}: {broken}"));
        assert!(
            answer.status() == 200 && answer.text().contains(page.mark.trim_end()),
            "{name}: {} {}",
            answer.status(),
            answer.text()
        );
        // Varnish says it by two transaction numbers in X-Varnish.
        let two = |v: &str| v.split_whitespace().count() == 2;
        let hit = answer.header("X-Cache") == Some("HIT");
        if hit || answer.header("X-Varnish").is_some_and(two) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{name}: {} never comes from the cache", page.target);
}
