//! The script of the fifth benchmark, unchanged, under `howdah run`, beside a file of the same 24 bytes from
//! nginx, alternately: is a script that stays in memory as fast as a static file?

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use howdah_tests::http;
use howdah_tests::process::Process;
use howdah_tests::rig::{Kind, Server, Site, howdah_program};
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::wrk::{self, Load, Report};

use super::options::Options;
use super::{Spread, progress};

const BODY: &str = "<h1>\nHello Swoole.\n</h1>";
const START: Duration = Duration::from_secs(30);

/// `howdah run` with the script; its address is in the line it logs.
fn start_script() -> (Process, SocketAddr) {
    let script = repository().join("crates/howdah-php/tests/scripts/hello_swoole.php");
    let mut command = Command::new(howdah_program());
    command.args(["run", "--listen", "127.0.0.1:0"]).arg(script);
    let process = Process::start("howdah run", &mut command);
    let address = process.wait_for_line("its address", START, |line| {
        let (_, rest) = line.split_once("listening on http://")?;
        rest.split(',').next()?.parse().ok()
    });
    (process, address)
}

fn check(address: SocketAddr, target: &str) {
    let answer = http::get(address, target);
    assert_eq!((answer.status(), answer.text().as_ref()), (200, BODY));
}

/// Measures both in turns and prints rates, latencies and the ratio within each round.
pub fn measure(options: &Options, scratch: &Scratch) {
    scratch.write("site/hello_swoole.html", BODY);
    let nginx = Kind::NginxFpm.start(&Site::new(scratch.join("site")));
    let (_script, address) = start_script();
    let servers: [(&str, SocketAddr, &str); 2] = [
        ("howdah run", address, "/"),
        (
            "nginx file",
            Server::address(nginx.as_ref()),
            "/hello_swoole.html",
        ),
    ];
    let run = |server: &(&str, SocketAddr, &str), seconds| {
        let load = Load {
            target: server.2.to_owned(),
            connections: 100,
            seconds,
            host: None,
        };
        wrk::run(server.1, &load)
    };
    for server in &servers {
        check(server.1, server.2);
        run(server, 1);
    }
    let mut reports: [Vec<Report>; 2] = Default::default();
    for round in 0..options.rounds {
        for turn in 0..2 {
            let i = (round + turn) % 2;
            progress(&format!("swoole round {}: {}", round + 1, servers[i].0));
            reports[i].push(run(&servers[i], options.seconds));
        }
    }
    progress("");
    println!("\nswoole: the script's answer and nginx's file of the same bytes at c=100");
    for (server, runs) in servers.iter().zip(&reports) {
        check(server.1, server.2);
        let errors: u64 = runs.iter().map(|r| r.errors).sum();
        println!(
            "  {:<10} {:>26} good/s   p50 {:>22} ms   p99 {:>22} ms   errors {errors}",
            server.0,
            Spread::of(runs.iter().map(|r| r.good_per_second)).show(0),
            Spread::of(runs.iter().map(|r| r.p50)).show(3),
            Spread::of(runs.iter().map(|r| r.p99)).show(3),
        );
    }
    let ratios = reports[0].iter().zip(&reports[1]);
    let ratios = ratios.map(|(mine, file)| mine.good_per_second / file.good_per_second);
    println!(
        "  howdah run / nginx file: rate {}",
        Spread::of(ratios).show(2)
    );
}
