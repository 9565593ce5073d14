//! The hello page from a worker, against nginx sending the same 24 bytes from a file: what is left
//! between PHP and a file when the script stays in memory.

use howdah_tests::http;
use howdah_tests::rig::{Kind, Server, Site};
use howdah_tests::scratch::Scratch;
use howdah_tests::wrk::{self, Load};

use super::{BODY, Options, print_table, progress};

/// What each is asked for.
const TARGETS: [(Kind, &str); 2] = [(Kind::Howdah, "/hello.php"), (Kind::NginxFpm, "/hello.txt")];

/// nginx' static file and the worker's hello, 100 keep-alive connections.
pub fn measure(options: &Options, scratch: &Scratch) {
    let script = scratch.write(
        "worker/hello.php",
        format!(
            "<?php $hello = static function () {{ echo \"{}\\n\"; }};\nwhile (frankenphp_handle_request($hello)) {{\n}}\n",
            BODY.trim_end()
        ),
    );
    let servers: Vec<_> = TARGETS
        .iter()
        .map(|(kind, _)| start(*kind, options, scratch, &script))
        .collect();
    let load = |target: &str, seconds| Load {
        target: target.to_owned(),
        connections: 100,
        seconds,
        host: None,
    };
    for (server, (_, target)) in servers.iter().zip(TARGETS) {
        check(server.as_ref(), target);
        wrk::run(server.address(), &load(target, 1));
    }
    let mut reports = vec![Vec::new(); servers.len()];
    for round in 0..options.rounds {
        for turn in 0..servers.len() {
            let i = (round + turn) % servers.len();
            let (kind, target) = TARGETS[i];
            progress(&format!("worker round {}: {}", round + 1, kind.name()));
            reports[i].push(wrk::run(
                servers[i].address(),
                &load(target, options.seconds),
            ));
        }
    }
    progress("");
    for (server, (_, target)) in servers.iter().zip(TARGETS) {
        check(server.as_ref(), target);
    }
    println!("\nworker: hello from a worker, nginx' static file of the same 24 bytes, at c=100");
    let kinds: Vec<Kind> = TARGETS.iter().map(|(kind, _)| *kind).collect();
    print_table(&kinds, &reports);
}

fn start(
    kind: Kind,
    options: &Options,
    scratch: &Scratch,
    script: &std::path::Path,
) -> Box<dyn Server> {
    let mut site = Site::new(scratch.join("site")).children(options.children);
    let worker = ["--mode", "worker", "--worker"].map(str::to_owned);
    site.howdah_arguments.extend(worker);
    site.howdah_arguments.push(script.display().to_string());
    kind.start(&site)
}

fn check(server: &dyn Server, target: &str) {
    let answer = http::get(server.address(), target);
    assert!(
        answer.status() == 200 && answer.text() == BODY,
        "{}: {target} answers {} {:?}",
        server.kind().name(),
        answer.status(),
        answer.text()
    );
}
