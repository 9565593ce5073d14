//! A visitor who is logged in on one member is logged in on all members, if PHP keeps its sessions in Valkey.

use std::process::Command;

use howdah_tests::fixture::Fixture;
use howdah_tests::http::{Response, exchange};
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::valkey::Valkey;

const ADVICE: &str = "advice: site `shop`: PHP stores sessions in files on this server (";

const LOGIN: &str = r#"<?php
session_start();
if (isset($_GET['name'])) { session_regenerate_id(true); $_SESSION['name'] = $_GET['name']; }
if (isset($_GET['count'])) { $n = $_SESSION['n'] ?? 0; usleep(1000); $_SESSION['n'] = $n + 1; }
echo 'hello ', $_SESSION['name'] ?? 'stranger', ' ', $_SESSION['n'] ?? 0;
"#;

/// Returns the configuration of docs/several-servers.md, with the address of this Valkey.
fn of_the_guide(valkey: &Valkey) -> String {
    let page = repository().join("docs/several-servers.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let lines = page.split("```toml\n").nth(1).expect("a configuration");
    let lines = lines.split("```").next().unwrap_or_default();
    let path = "tcp://valkey.example.org:6379?auth=secret&database=1";
    assert!(lines.contains(path), "{lines}");
    let own = valkey.url().replace("redis://", "tcp://");
    lines.replace(path, &format!("{own}?auth=secret&database=1"))
}

fn members(site: &str) -> [Fixture; 2] {
    ["m0", "m1"].map(|name| {
        let builder = Fixture::named(&format!("sessions-{name}"));
        builder.script("login.php", LOGIN).site(site).start()
    })
}

fn get(member: &Fixture, path: &str, cookie: &str) -> Response {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: site\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
    );
    exchange(member.address(), request.as_bytes()).expect("a response")
}

fn login(member: &Fixture) -> String {
    let answer = get(member, "/login.php?name=ada", "");
    let cookies = answer.head.headers.all("Set-Cookie");
    let last = cookies.last().expect("a cookie");
    last.split(';').next().expect("a pair").to_owned()
}

#[test]
fn login_on_one_member_is_valid_on_the_other_and_two_requests_of_it_wait_for_each_other() {
    let valkey = Valkey::start();
    valkey.command(&["CONFIG", "SET", "requirepass", "secret"]);
    let members = members(&of_the_guide(&valkey));
    let cookie = login(&members[0]);
    assert_eq!(
        get(&members[1], "/login.php", &cookie).text(),
        "hello ada 0"
    );
    std::thread::scope(|scope| {
        for member in &members {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        assert_eq!(get(member, "/login.php?count", &cookie).status(), 200);
                    }
                });
            }
        }
    });
    assert_eq!(
        get(&members[0], "/login.php", &cookie).text(),
        "hello ada 40"
    );
}

#[test]
fn sessions_in_local_files_are_advised_against_where_there_is_a_fleet() {
    let check = |fleet: &str, handler: &str| {
        let scratch = Scratch::new("sessions-check");
        scratch.write("site/index.php", "<?php");
        let config = scratch.write(
            "howdah.toml",
            format!(
                "listen = \"127.0.0.1:8080\"\n{fleet}\n[[site]]\nname = \"shop\"\nroot = \"{}\"\ncache = \"on\"\n[site.php_value]\n\
                 \"session.save_handler\" = \"{handler}\"\n\"session.save_path\" = \"{}\"\n",
                scratch.join("site").display(),
                scratch.path().display()
            ),
        );
        let mut check = Command::new(howdah_program());
        let output = check.args(["check", "--config"]).arg(config).output();
        let output = output.expect("howdah starts");
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success());
        String::from_utf8_lossy(&said).into_owned()
    };
    let fleet = "[fleet]\nvalkey = \"redis://127.0.0.1:1\"";
    let said = check(fleet, "files");
    assert!(said.contains(ADVICE), "{said}");
    assert!(
        !check("", "files").contains(ADVICE),
        "advice without a fleet"
    );
    assert!(!check(fleet, "redis").contains(ADVICE));
}
