//! The filter of fail2ban in the packages finds wrong passwords and exceeded limits in the access log of a real server,
//! in each format, and nothing that a client could forge.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use howdah_import::expression::compile;
use howdah_test_support::process::{Process, wait_until};
use howdah_test_support::scratch::{Scratch, howdah_program, repository};

/// How long a server may take to start, to respond or to write its log.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns the expressions of the filter, with `<ADDR>` replaced as fail2ban does.
fn expressions() -> Vec<String> {
    let text = fs::read_to_string(repository().join("packaging/fail2ban/howdah.conf")).unwrap();
    let (_, rest) = text.split_once("failregex =").unwrap();
    let (lines, _) = rest.split_once("ignoreregex").unwrap();
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| line.replace("<ADDR>", "[0-9a-f.:]+"))
        .collect()
}

/// Returns a line as fail2ban compares it: without the time, which it removes.
fn without_time(line: &str) -> String {
    let (before, after) = match line.split_once("\"time\":\"") {
        Some((before, rest)) => (
            format!("{before}\"time\":\""),
            rest.split_once('"').map(|(_, rest)| format!("\"{rest}")),
        ),
        None => {
            let (before, rest) = line.split_once('[').unwrap();
            (
                format!("{before}["),
                rest.split_once(']').map(|(_, rest)| format!("]{rest}")),
            )
        }
    };
    before + &after.unwrap()
}

fn request(address: SocketAddr, path: &str, headers: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
}

/// Starts a server with an access log in this format, sends it seven requests, and returns the lines of its log.
fn log_of(format: &str, scratch: &Scratch) -> Vec<String> {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let log = scratch.join(format!("{format}.log"));
    scratch.write("root/index.html", "x");
    // The password is `right`.
    let users = scratch.write("users", "ann:{SHA}0nofEXcSAJSXFLGvmfBIpBb11vQ=\n");
    let user = if howdah_os::process::is_root() {
        "user = \"www-data\"\n"
    } else {
        ""
    };
    let text = format!(
        "listen = [\"{address}\"]\n{user}control = \"{control}\"\n[log]\naccess = \"{log}\"\naccess_format = \"{format}\"\n\
         [[site]]\nhosts = [\"a.test\"]\nroot = \"{root}\"\n\
         [[site.rule]]\nprefix = \"/admin\"\nauth_basic = \"x\"\nauth_basic_user_file = \"{users}\"\n\
         [[site.rule]]\nprefix = \"/limited\"\nrate = \"1/m\"\n",
        control = scratch.join("control.sock").display(),
        log = log.display(),
        root = scratch.join("root").display(),
        users = users.display(),
    );
    let file = scratch.write(format!("{format}.toml"), text);
    let server = Process::start(
        "howdah",
        Command::new(howdah_program())
            .arg("serve")
            .arg("--config")
            .arg(file),
    );
    server.wait_for_line("the listener", DEADLINE, |line: &str| {
        line.contains("listening on").then_some(())
    });
    request(address, "/index.html", "");
    // A visitor whose browser does not know the password yet, and one who forges the end of a line.
    request(address, "/admin/", "");
    let forged =
        "User-Agent: x\" error=ClientLimited id=1\r\nReferer: \"error\":\"ClientLimited\"}\r\n";
    request(address, "/missing?\"error\":\"ClientLimited\"}", forged);
    // `ann:wrong`, and a name with a space and a quotation mark.
    request(address, "/admin/", "Authorization: Basic YW5uOndyb25n\r\n");
    request(
        address,
        "/admin/",
        "Authorization: Basic YSAiYjp3cm9uZw==\r\n",
    );
    request(address, "/limited", "");
    request(address, "/limited", "");
    wait_until("the access log", DEADLINE, || lines_of(&log).len() == 7);
    lines_of(&log)
}

fn lines_of(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn filter_of_fail2ban_finds_refused_clients_in_each_format() {
    let scratch = Scratch::new("fail2ban");
    let expressions: Vec<_> = expressions()
        .iter()
        .map(|text| compile(text).unwrap_or_else(|why| panic!("{text}: {why}")))
        .collect();
    for format in ["common", "combined", "extended", "json"] {
        let lines = log_of(format, &scratch);
        let found: Vec<&String> = lines
            .iter()
            .filter(|line| {
                let line = without_time(line);
                expressions
                    .iter()
                    .any(|expression| expression.is_match(line.as_bytes()))
            })
            .collect();
        let statuses: Vec<bool> = found
            .iter()
            .map(|line| line.contains("401") || line.contains("429"))
            .collect();
        assert_eq!(statuses, [true; 3], "{format}: {found:#?} of {lines:#?}");
    }
}
