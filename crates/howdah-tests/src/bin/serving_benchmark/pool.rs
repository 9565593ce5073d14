//! Howdah in mode `pool` and Apache with mod_fcgid, each with php-cgi programs of its own and as many
//! of them, in turns: hello.php at 10 and at 100 connections.

use std::net::SocketAddr;

use howdah_tests::http;
use howdah_tests::rig::{Howdah, ModFcgid, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, Load};

use super::{BODY, Options, print_named, progress};

const NAMES: [&str; 3] = ["howdah", "howdah-ind", "mod_fcgid"];
fn howdah(site: &Site, processes: &str) -> Howdah {
    let mut site = site.clone();
    site.howdah_config = Some(format!(
        "[pool.www]\nmode = \"pool\"\nprocesses = \"{processes}\"\n"
    ));
    Howdah::start(&site)
}

fn check(name: &str, address: SocketAddr) {
    let answer = http::get(address, "/hello.php");
    let got = (answer.status(), answer.text());
    assert_eq!(got, (200, BODY.to_owned()), "{name}");
}

/// Both numbers of connections.
pub fn measure(options: &Options, scratch: &Scratch) {
    let site = Site::new(scratch.join("site"))
        .children(options.children)
        .ini("opcache.revalidate_freq", "2");
    let (shared, single) = (howdah(&site, "shared"), howdah(&site, "independent"));
    let apache = ModFcgid::start(&site);
    let addresses = [shared.address(), single.address(), apache.address()];
    for connections in [10, 100] {
        let load = |seconds| Load {
            target: "/hello.php".to_owned(),
            connections,
            seconds,
            host: None,
        };
        for (name, address) in NAMES.iter().zip(addresses) {
            check(name, address);
            wrk::run(address, &load(1));
        }
        let mut reports = vec![Vec::new(); NAMES.len()];
        for round in 0..options.rounds {
            for turn in 0..NAMES.len() {
                let i = (round + turn) % NAMES.len();
                progress(&format!(
                    "pool c={connections} round {}: {}",
                    round + 1,
                    NAMES[i]
                ));
                reports[i].push(wrk::run(addresses[i], &load(options.seconds)));
            }
        }
        progress("");
        for (name, address) in NAMES.iter().zip(addresses) {
            check(name, address);
        }
        println!(
            "\npool: hello.php at c={connections}, {} php-cgi (howdah: children of one; howdah-ind: independent)",
            options.children
        );
        print_named(&NAMES, &reports);
    }
}
