//! `howdah import --verify`: the old server and Howdah run side by side and get the requests that the old server's log
//! contains.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Output};

use howdah_tests::process::Process;
use howdah_tests::rig::{free_address, howdah_program};

use super::case::{ImportCase, PhpRunner};

/// Starts Howdah beside the old server, as docs/import.md describes: at one address for all sites.
fn start_beside(case: &ImportCase) -> (Process, SocketAddr) {
    let path = case.path("howdah.toml");
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("listen = "));
    let trial: String = lines.flat_map(|line| [line, "\n"]).collect();
    fs::write(&path, trial).unwrap();
    let new = free_address();
    let howdah = case.start_howdah(&["--listen", &new.to_string()], &[new]);
    (howdah, new)
}

#[test]
fn two_servers_are_asked_for_what_a_log_names() {
    let case = ImportCase::new("symfony", PhpRunner::Howdah);
    let _fpm = case.start_php_fpm();
    let _nginx = case.start_old();
    let old = case.address();
    case.ask_all("nginx", |probe| probe.name.starts_with("shop-"));
    assert!(case.import(&[]).status.success());
    let (_howdah, new) = start_beside(&case);

    let log = case.path("log/shop_access.log");
    let verify = |log: &str, more: &[&str]| -> Output {
        let mut command = Command::new(howdah_program());
        command.args(["import", "--verify", log, "--host", "shop.test"]);
        command.arg("--old").arg(format!("http://{old}"));
        command.arg("--new").arg(format!("http://{new}"));
        command.args(more).output().unwrap()
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let output = verify(&log, &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let found: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("in the log"))
        .collect();
    assert_eq!(
        found,
        [
            "GET /.htaccess (1 in the log)",
            "GET /sub/inner.php/x (1 in the log)"
        ]
    );
    assert!(said.contains("    status: 200 -> 404\n"), "{said}");
    assert!(
        said.contains("    Content-Type: application/octet-stream -> text/html\n"),
        "{said}"
    );
    assert!(
        said.contains("; 3 lines with another method were skipped"),
        "{said}"
    );

    // Only one of the two servers sends this header.
    let output = verify(&log, &["--header", "Server", "--json", "--most", "3"]);
    let found: serde_json::Value = serde_json::from_str(&text(&output)).unwrap();
    assert_eq!(found["asked"], 3);
    assert_eq!(found["differences"].as_array().unwrap().len(), 3, "{found}");
    assert_eq!(found["differences"][0]["differs"][0]["name"], "Server");

    let lines = fs::read_to_string(&log).unwrap();
    let alike = lines
        .lines()
        .filter(|line| !line.contains(".htaccess") && !line.contains("inner.php/x"));
    let alike: String = alike.flat_map(|line| [line, "\n"]).collect();
    let shorter = case.path("log/shorter.log");
    fs::write(&shorter, alike).unwrap();
    let output = verify(&shorter, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));

    fs::write(&shorter, "this is no log\n").unwrap();
    assert_eq!(verify(&shorter, &[]).status.code(), Some(3));
    let nobody = format!("http://{}", free_address());
    let output = verify(&log, &["--host", "shop.test"]);
    assert_eq!(output.status.code(), Some(2), "an option is given twice");
    let mut command = Command::new(howdah_program());
    command.args(["import", "--verify", &log, "--old", &nobody]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot be reached"), "{said}");
}

#[test]
fn apache_is_asked_for_what_its_log_names() {
    let case = ImportCase::new("apache-panels", PhpRunner::Howdah);
    let _fpm = case.start_php_fpm();
    let _apache = case.start_old();
    let old = case.address();
    case.ask_all("apache", |probe| probe.name.starts_with("beta"));
    assert!(case.import(&[]).status.success());
    let (_howdah, new) = start_beside(&case);

    let log = case.path("log/beta_access_log");
    let mut command = Command::new(howdah_program());
    command.args(["import", "--verify", &log, "--host", "beta.example"]);
    command.arg("--old").arg(format!("http://{old}"));
    command.arg("--new").arg(format!("http://{new}"));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("16 of 16 requests get the same response from both servers"),
        "{said}"
    );
    assert!(
        said.contains("; 2 lines with another method were skipped"),
        "{said}"
    );
}
