//! `howdah run` from outside: the program becomes the script's server, receives its signals, and exits with its exit
//! code. The functions available to scripts are tested in `howdah-php`.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use howdah_tests::http;
use howdah_tests::load::Load;
use howdah_tests::process::Process;
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::{Scratch, repository};
use rustix::process::Signal;

const DEADLINE: Duration = Duration::from_secs(30);

const PAGE: &str = "<h1>\nHello Swoole.\n</h1>";

/// Starts the script of the fifth benchmark, which sets four workers.
fn start() -> (Process, SocketAddr) {
    let script = repository().join("crates/howdah-php/tests/scripts/hello_swoole.php");
    let mut command = Command::new(howdah_program());
    command.args(["run", "--listen", "127.0.0.1:0"]).arg(script);
    let server = Process::start("howdah run", &mut command);
    let address = server.wait_for_line("its address", DEADLINE, |line| {
        let (_, rest) = line.split_once("listening on http://")?;
        rest.split(',').next()?.parse().ok()
    });
    (server, address)
}

#[test]
fn five_hundred_clients_on_four_workers_all_get_their_answer() {
    let (mut server, address) = start();
    let load = Load::new(address, "/", PAGE).clients(500);
    load.run(2).only(&["200"]);
    server.stop();
}

#[test]
fn fifth_benchmarks_script_runs_unchanged_and_its_signals_are_its_own() {
    let (mut server, address) = start();
    let answer = http::get(address, "/");
    assert_eq!(answer.text(), PAGE);
    // The process that was started is the manager: there is no other process in between.
    assert!(server.log().contains(&format!("#{}]", server.pid())));
    server.signal(Signal::TERM);
    let status = server.wait_exit(DEADLINE).expect("the server exits");
    assert_eq!(status.code(), Some(0), "{}", server.log());
}

#[test]
fn arguments_and_the_exit_code_are_the_scripts() {
    let scratch = Scratch::new("run");
    let script = scratch.write(
        "args.php",
        "<?php echo json_encode(array_slice($argv, 1)), ini_get('precision'); exit(7);",
    );
    let output = Command::new(howdah_program())
        .args(["run", "-d", "precision=5"])
        .arg(&script)
        .args(["--listen", "-d", "x"])
        .output()
        .expect("howdah starts");
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, r#"["--listen","-d","x"]5"#);
    let missing = Command::new(howdah_program())
        .args(["run", "/nowhere/server.php"])
        .output()
        .expect("howdah starts");
    let said = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(
        said.contains("ScriptUnreadable: /nowhere/server.php"),
        "{said}"
    );
    assert_eq!(missing.status.code(), Some(1));
}
