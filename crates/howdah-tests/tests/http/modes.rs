//! One conformance suite for every mode: the oracle's requests go to Howdah in its default mode and in each other mode,
//! with the same scripts and the same `php.ini`. Every difference must be in the table of `modes.md` beside this file,
//! and every difference in the table must still exist.

use std::collections::BTreeMap;

use howdah_tests::differences::{self, Ledger};
use howdah_tests::oracle::{Probe, ProbedServer, ResponseProperties, compare};
use howdah_tests::rig::{Fpm, Howdah, Server, Site};
use howdah_tests::scratch::{Scratch, copy_tree, repository};

use crate::oracle_requests;

/// The modes that run any script; they are compared with `embed`.
const MODES: &[&str] = &["fastcgi", "pool", "cgi", "worker"];

/// Runs the script that the URL names. The benefit of a worker is not tested here.
const WORKER: &str = "<?php
while (frankenphp_handle_request(static function () {
    chdir(dirname($_SERVER['SCRIPT_FILENAME']));
    (static function () { require $_SERVER['SCRIPT_FILENAME']; })();
})) {
}
";

/// Howdah in a mode, and the programs that it needs. The fields are dropped in this order.
struct ServerInMode {
    howdah: Howdah,
    _fpm: Option<Fpm>,
    _scratch: Scratch,
}

fn start(mode: &str, site: &Site) -> ServerInMode {
    let scratch = Scratch::new(mode);
    let mut site = site.clone();
    let mut arguments = vec!["--mode".to_owned(), mode.to_owned()];
    let fpm = (mode == "fastcgi").then(|| Fpm::start(&site, &scratch));
    if let Some(fpm) = &fpm {
        arguments.push("--fastcgi".to_owned());
        arguments.push(format!("unix:{}", fpm.socket.display()));
    }
    if mode == "worker" {
        // The worker can run any script by including it, provided that the script defines nothing twice.
        let script = scratch.write("worker.php", WORKER);
        arguments.push("--worker".to_owned());
        arguments.push(script.display().to_string());
    }
    site.howdah_arguments = arguments;
    ServerInMode {
        howdah: Howdah::start(&site),
        _fpm: fpm,
        _scratch: scratch,
    }
}

fn testimony(mode: &str, site: &Site, probes: &[Probe]) -> BTreeMap<String, ResponseProperties> {
    let subject = start(mode, site);
    let root = site.root.display().to_string();
    let mut witness = ProbedServer::new(subject.howdah.address(), &root);
    let ask = |probe: &Probe| {
        let mut facts = witness.ask(probe);
        // Whether this header is sent depends on a few bytes of length, and on whether a flush was seen in time.
        facts.remove("header.vary");
        (probe.name.clone(), facts)
    };
    probes.iter().map(ask).collect()
}

#[test]
fn answers_differ_by_mode_only_where_the_docs_say_so() {
    let page = repository().join("crates/howdah-tests/tests/http/modes.md");
    let text = std::fs::read_to_string(&page)
        .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
    let accepted = differences::parse(&text, MODES)
        .unwrap_or_else(|mistakes| panic!("modes.md:\n{}", mistakes.join("\n")));
    let scratch = Scratch::new("modes");
    copy_tree(&repository().join("tests/probes"), &scratch.join("site"));
    // There is only one process, so each request finds whatever the previous one has left behind.
    let site = Site::new(scratch.join("site"))
        .children(1)
        .environment("PROBE_SETTING", "from the site")
        // The standard input of a FastCGI program is its listening socket, and a script that reads from it waits for
        // this long.
        .ini("default_socket_timeout", "1");
    let probes = oracle_requests::all();
    // The modes run in parallel: each waits for its own processes most of the time.
    let testimonies: BTreeMap<&str, BTreeMap<String, ResponseProperties>> =
        std::thread::scope(|scope| {
            let asked: Vec<_> = std::iter::once(&"embed")
                .chain(MODES)
                .map(|mode| (*mode, scope.spawn(|| testimony(mode, &site, &probes))))
                .collect();
            let heard = |(mode, thread): (_, std::thread::ScopedJoinHandle<'_, _>)| {
                let facts = thread.join();
                (
                    mode,
                    facts.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                )
            };
            asked.into_iter().map(heard).collect()
        });
    let ours = &testimonies["embed"];
    let mut ledger = Ledger::new(accepted);
    for mode in MODES {
        let theirs = &testimonies[mode];
        for probe in &probes {
            for found in compare(&probe.name, &ours[&probe.name], &theirs[&probe.name]) {
                ledger.enter("embed", mode, &found);
            }
        }
    }
    ledger.close("crates/howdah-tests/tests/http/modes.md", MODES);
}
