//! Certificates by ACME, from a certificate authority of the test's own (`authority.rs`).

mod authority;
mod site;

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread::{Scope, ScopedJoinHandle};

use authority::{Authority, MAX_WAIT};
use howdah_tests::process::wait_until;
use howdah_tests::rig::{free_address, howdah_program, is_root};
use site::{AcmeSite, AcmeSiteOptions, NAMES, serial};

const DAY: u64 = 86400;

#[test]
fn two_names_are_served_with_certificates_that_outlive_a_restart_and_are_closed_to_php() {
    let authority = Authority::start(90 * DAY);
    let site = AcmeSite::start(&authority, &AcmeSiteOptions::default());
    for name in NAMES {
        site.wait_for(&format!("{name}: certificate issued by"));
        site.wait_until_served(name);
    }
    assert_eq!(authority.issued(), 2);
    // The redirect to HTTPS, and every other rule, is applied after the challenges.
    let plain = howdah_tests::http::get(([127, 0, 0, 1], authority.http).into(), "/hello.txt");
    assert_eq!(plain.status(), 301);
    let file = authority
        .scratch
        .join("state/certificates/one.example.org.pem");
    let closed = site
        .get(NAMES[0], &format!("/peek.php?file={}", file.display()))
        .unwrap();
    if is_root() {
        assert!(
            !closed.starts_with("0 ") && closed.ends_with("closed"),
            "{closed}"
        );
    }
    drop(site);
    let site = AcmeSite::start(&authority, &AcmeSiteOptions::default());
    for name in NAMES {
        site.wait_until_served(name);
    }
    assert_eq!(authority.issued(), 2, "a restart orders nothing");
}

#[test]
fn challenge_is_answered_in_the_handshake_without_a_plain_listener() {
    let authority = Authority::start(90 * DAY);
    let options = AcmeSiteOptions {
        http: false,
        ..AcmeSiteOptions::default()
    };
    let site = AcmeSite::start(&authority, &options);
    for name in NAMES {
        site.wait_until_served(name);
    }
    assert_eq!(authority.issued(), 2);
}

#[test]
fn proof_that_the_authority_does_not_find_is_named() {
    let authority = Authority::start(90 * DAY);
    // The server listens on other ports than those that the authority connects to, as if the name had the address of
    // another server.
    let options = AcmeSiteOptions {
        ports: Some((free_address().port(), free_address().port())),
        ..one()
    };
    let site = AcmeSite::start(&authority, &options);
    let line = site.wait_for("ChallengeFailed: ");
    for part in [NAMES[0], "-01 challenge", "must point to this server"] {
        assert!(line.contains(part), "{line}");
    }
    let listed = site.command(&["cert", "list"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("ChallengeFailed: "), "{listed}");
    assert_eq!(authority.issued(), 0);
}

/// Returns the user of the process that orders certificates. Returns `None` if there is no such process, or if it has
/// just exited.
fn orderers_user(site: &AcmeSite) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.orderer()?)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn certificates_are_ordered_by_another_user_if_root_serves() {
    if !is_root() {
        return;
    }
    let authority = Authority::start(90 * DAY);
    let state = authority.scratch.join("state");
    let owner = |path: &Path| std::fs::metadata(path).unwrap().uid();
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    let user = orderers_user(&site).expect("a process orders certificates");
    assert_ne!(user, 0);
    assert_eq!(owner(&state), user);
    drop(site);
    // A version that ordered certificates as root would have left the state like this.
    let root = Command::new("chown")
        .args(["-R", "0:0"])
        .arg(&state)
        .status();
    assert!(root.unwrap().success());
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    assert_eq!(orderers_user(&site), Some(user));
    let certificate = state.join("certificates/one.example.org.pem");
    assert_eq!(owner(&certificate), user);
    let renew = site.command(&["cert", "renew"]);
    assert!(renew.status.success(), "{renew:?}");
    assert_eq!(site.logged("StoreFailed"), 0, "{}", site.process.log());
    assert_eq!(authority.issued(), 2, "ordered once and renewed once");
    // This is what systemd does before it reloads a unit without `User`.
    let root = Command::new("chown")
        .args(["-R", "0:0"])
        .arg(&state)
        .status();
    assert!(root.unwrap().success());
    let reload = site.command(&["reload"]);
    assert!(reload.status.success(), "{reload:?}");
    assert_eq!((owner(&state), owner(&certificate)), (user, user));
    // This is what an administrator does who has created a user for this purpose.
    let daemon = Command::new("chown")
        .args(["-R", "1:1"])
        .arg(&state)
        .status();
    assert!(daemon.unwrap().success());
    site.wait_for("does not belong to the same user as before");
    wait_until("the owner to order certificates", MAX_WAIT, || {
        orderers_user(&site) == Some(1)
    });
    site.wait_until_served(NAMES[0]);
}

#[test]
fn dns_hook_runs_as_root_where_nobody_else_is_named_and_that_is_said() {
    if !is_root() {
        return;
    }
    let authority = Authority::start(90 * DAY);
    let options = AcmeSiteOptions {
        lines: dns_hook(&authority),
        ..one()
    };
    let site = AcmeSite::start(&authority, &options);
    site.wait_for("CertificatesAsRoot: ");
    site.wait_until_served(NAMES[0]);
    assert_eq!(orderers_user(&site), Some(0));
    assert_eq!(
        site.logged("CertificatesAsRoot"),
        1,
        "{}",
        site.process.log()
    );
}

/// Returns a program that sets records at the test's DNS server; the program waits while the file `hold` exists.
fn dns_hook(authority: &Authority) -> String {
    let directory = authority.scratch.path().display();
    let port = authority.dns_management;
    let text = format!(
        "#!/bin/sh\n\
         echo \"$1 $2\" >> {directory}/hooked\n\
         n=0; while [ -e {directory}/hold ] && [ $n -lt 1000 ]; do sleep 0.02; n=$((n+1)); done\n\
         case $1 in\n\
         present) path=set-txt ;;\n\
         *) path=clear-txt ;;\n\
         esac\n\
         curl -sS -d \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" http://127.0.0.1:{port}/$path\n"
    );
    let path = authority.scratch.write("hook", text);
    howdah_tests::executable::make_executable(&path);
    format!("dns_hook = {path:?}\n")
}

/// Returns how often the hook program has been called to set a record.
fn hooks(authority: &Authority) -> usize {
    let hooked = std::fs::read_to_string(authority.scratch.join("hooked"));
    hooked.map_or(0, |text| text.matches("present").count())
}

/// Renews certificates until the hook program is called. Whatever its settings, pebble sometimes reuses an earlier
/// proof, and then the program is not called.
fn renew_up_to_the_hook<'s>(
    scope: &'s Scope<'s, '_>,
    site: &'s AcmeSite,
    authority: &Authority,
) -> ScopedJoinHandle<'s, Output> {
    loop {
        let before = hooks(authority);
        let renewing = scope.spawn(|| site.command(&["cert", "renew"]));
        howdah_tests::process::wait_until("a call of the hook", authority::MAX_WAIT, || {
            hooks(authority) > before || renewing.is_finished()
        });
        if hooks(authority) > before {
            return renewing;
        }
        let renewed = renewing.join().unwrap();
        assert!(renewed.status.success(), "{renewed:?}");
    }
}

#[test]
fn names_and_wildcards_are_proved_by_dns() {
    let authority = Authority::start(90 * DAY);
    let options = AcmeSiteOptions {
        names: &["one.example.org", "*.example.net"],
        lines: dns_hook(&authority),
        ..AcmeSiteOptions::default()
    };
    let site = AcmeSite::start(&authority, &options);
    site.wait_until_served("one.example.org");
    site.wait_until_served("any.example.net");
    assert_eq!(authority.issued(), 2);
    let hooked = std::fs::read_to_string(authority.scratch.join("hooked")).unwrap();
    for line in [
        "present _acme-challenge.example.net.",
        "cleanup _acme-challenge.example.net.",
    ] {
        assert!(hooked.contains(line), "{hooked}");
    }
}

#[test]
fn certificates_are_renewed_in_time_and_no_visit_fails() {
    let authority = Authority::start(15);
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    let mut visits = 0;
    while site.logged("renewed by") < 2 {
        site.get(NAMES[0], "/hello.txt")
            .unwrap_or_else(|why| panic!("visit {visits}: {why}"));
        visits += 1;
        assert!(visits < 10_000, "{}", site.process.log());
    }
}

#[test]
fn six_names_share_one_account_and_are_all_renewed_twice() {
    let names = ["a", "b", "c", "d", "e", "f"].map(|label| format!("{label}.example.org"));
    let names = names.each_ref().map(String::as_str);
    let authority = Authority::start(20);
    let options = AcmeSiteOptions {
        names: &names,
        ..AcmeSiteOptions::default()
    };
    let site = AcmeSite::start(&authority, &options);
    for name in names {
        site.wait_until_served(name);
        let renewed = format!("{name}: renewed by");
        wait_until(&renewed, 3 * MAX_WAIT, || site.logged(&renewed) >= 2);
        site.wait_until_served(name);
    }
    assert_eq!(authority.accounts(), 1);
}

#[test]
fn names_stay_renewable_after_the_orderer_was_killed_during_the_first_orders() {
    let authority = Authority::start(20);
    let site = AcmeSite::start(&authority, &AcmeSiteOptions::default());
    authority.wait_for_an_order();
    kill(site.orderer().expect("a process orders certificates"));
    site.wait_for("CertificatesDied");
    for name in NAMES {
        site.wait_until_served(name);
        let renewed = format!("{name}: renewed by");
        wait_until(&renewed, 3 * MAX_WAIT, || site.logged(&renewed) >= 2);
    }
    assert_eq!(
        authority.accounts(),
        1,
        "the account is stored before anything is ordered"
    );
}

#[test]
fn certificate_that_another_account_has_ordered_is_renewed() {
    let authority = Authority::start(90 * DAY);
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    drop(site);
    // This is the state that earlier versions left behind: the account that ordered the certificate is lost.
    let accounts = authority.scratch.join("state/accounts");
    for account in std::fs::read_dir(accounts).unwrap() {
        std::fs::remove_file(account.unwrap().path()).unwrap();
    }
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    for renewals in 1..=2 {
        let renew = site.command(&["cert", "renew", NAMES[0]]);
        assert!(renew.status.success(), "{renew:?}\n{}", site.process.log());
        assert_eq!(authority.issued(), 1 + renewals);
    }
    assert_eq!(authority.accounts(), 2);
}

fn one() -> AcmeSiteOptions<'static> {
    AcmeSiteOptions {
        names: &NAMES[..1],
        ..AcmeSiteOptions::default()
    }
}

#[test]
fn authority_that_is_down_is_named_and_tried_again() {
    let mut authority = Authority::down(90 * DAY);
    let site = AcmeSite::start(&authority, &one());
    site.wait_for("AuthorityUnreachable: one.example.org: ");
    let text = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let status = text(site.command(&["status"]));
    assert!(status.contains("one.example.org: missing"), "{status}");
    assert!(
        status.contains("AuthorityUnreachable: ") && status.contains("the next "),
        "{status}"
    );
    wait_until("the failing order in the front's status", MAX_WAIT, || {
        let shown = text(site.command(&["status", "--json"]));
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let failing = &shown["failing_orders"][0];
        failing["name"] == NAMES[0] && failing["failure"] == "AuthorityUnreachable"
    });
    let refused = site.get(NAMES[0], "/hello.txt").unwrap_err();
    assert!(
        refused.contains("curl: (35)"),
        "the handshake is refused: {refused}"
    );
    authority.come_up();
    let order = site.command(&["cert", "order", NAMES[0]]);
    assert!(order.status.success(), "{order:?}");
    site.wait_until_served(NAMES[0]);
    // The authority goes down again. When it returns, it has forgotten the account.
    authority.go_down();
    let renew = site.command(&["cert", "renew"]);
    assert!(!renew.status.success(), "{renew:?}");
    let why = String::from_utf8_lossy(&renew.stderr);
    assert!(
        why.contains("the current certificate remains in use"),
        "{why}"
    );
    site.wait_until_served(NAMES[0]);
    authority.come_up();
    let renew = site.command(&["cert", "renew"]);
    assert!(renew.status.success(), "{renew:?}\n{}", site.process.log());
    site.wait_until_served(NAMES[0]);
    let listed = text(site.command(&["cert", "list", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["name"], NAMES[0]);
    assert!(
        listed[0]["trouble"].is_null() && listed[0]["not_after"].is_u64(),
        "{listed}"
    );
}

#[test]
fn process_killed_in_the_middle_of_an_order_is_replaced_and_the_order_made_again() {
    let authority = Authority::start(90 * DAY);
    let hold = authority.scratch.write("hold", "");
    let options = AcmeSiteOptions {
        lines: dns_hook(&authority),
        ..one()
    };
    let site = AcmeSite::start(&authority, &options);
    authority.wait_for_an_order();
    let orderer = site.orderer().expect("a process orders certificates");
    kill(orderer);
    site.wait_for("CertificatesDied");
    std::fs::remove_file(hold).unwrap();
    site.wait_until_served(NAMES[0]);
    assert_eq!(authority.issued(), 1);
    // The front is killed in the middle of another order.
    let hold = authority.scratch.write("hold", "");
    std::thread::scope(|scope| {
        let renewing = renew_up_to_the_hook(scope, &site, &authority);
        kill(site.child_with("front").expect("a front serves"));
        site.wait_for("FrontDied");
        site.wait_until_served(NAMES[0]);
        std::fs::remove_file(&hold).unwrap();
        let renew = renewing.join().unwrap();
        assert!(renew.status.success(), "{renew:?}");
    });
    site.wait_until_served(NAMES[0]);
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn authority_killed_in_the_middle_of_an_order_costs_no_visit() {
    let mut authority = Authority::start(90 * DAY);
    let options = AcmeSiteOptions {
        lines: dns_hook(&authority),
        ..one()
    };
    let site = AcmeSite::start(&authority, &options);
    site.wait_until_served(NAMES[0]);
    let hold = authority.scratch.write("hold", "");
    std::thread::scope(|scope| {
        let renewing = renew_up_to_the_hook(scope, &site, &authority);
        authority.go_down();
        std::fs::remove_file(&hold).unwrap();
        let renew = renewing.join().unwrap();
        assert!(!renew.status.success(), "{renew:?}");
    });
    site.wait_until_served(NAMES[0]);
    authority.come_up();
    site.wait_for("renewed by");
    site.wait_until_served(NAMES[0]);
}

#[test]
fn truncated_certificate_is_ordered_again_and_a_removed_one_revoked() {
    let authority = Authority::start(90 * DAY);
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    drop(site);
    let file = authority
        .scratch
        .join("state/certificates/one.example.org.pem");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let site = AcmeSite::start(&authority, &one());
    site.wait_for("CertificateBroken: one.example.org");
    site.wait_until_served(NAMES[0]);
    assert_eq!(authority.issued(), 2);
    let old = serial(&authority, NAMES[0]);
    assert_eq!(authority.status_of(&old), "Valid");
    let remove = site.command(&["cert", "remove", NAMES[0]]);
    assert!(remove.status.success(), "{remove:?}");
    assert_eq!(authority.status_of(&old), "Revoked");
    // The site still has the name, so a certificate for it is ordered again.
    howdah_tests::process::wait_until("a third certificate", authority::MAX_WAIT, || {
        authority.issued() == 3
    });
}

#[test]
fn clock_that_is_set_back_holds_no_order_up() {
    let mut authority = Authority::start(90 * DAY);
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    // A renewal fails, and the failure is recorded.
    authority.go_down();
    let renew = site.command(&["cert", "renew"]);
    assert!(!renew.status.success(), "{renew:?}");
    drop(site);
    // A server whose clock was ten years ahead would have written this record.
    let record = authority
        .scratch
        .join("state/certificates/one.example.org.json");
    let text = std::fs::read(&record).unwrap();
    let mut noted: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let ahead = |time: &mut serde_json::Value| {
        let seconds = time.as_u64().expect("a time");
        *time = (seconds + 3650 * DAY).into();
    };
    for time in ["since", "next"] {
        ahead(&mut noted["trouble"][time]);
    }
    for time in ["renew_at", "ask_window_at"] {
        if !noted[time].is_null() {
            ahead(&mut noted[time]);
        }
    }
    std::fs::write(&record, noted.to_string()).unwrap();
    authority.come_up();
    let site = AcmeSite::start(&authority, &one());
    // The server does not wait until the recorded time.
    site.wait_for("renewed by");
    assert_eq!(authority.issued(), 2);
    site.wait_until_served(NAMES[0]);
    let listed = site.command(&["cert", "list", "--json"]).stdout;
    let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
    assert!(listed[0]["trouble"].is_null(), "{listed}");
}

#[test]
fn two_servers_that_share_the_directory_order_once() {
    let authority = Authority::start(90 * DAY);
    let port = || free_address().port();
    let first = AcmeSiteOptions {
        lines: dns_hook(&authority),
        ..AcmeSiteOptions::default()
    };
    let second = AcmeSiteOptions {
        lines: dns_hook(&authority),
        ports: Some((port(), port())),
        ..AcmeSiteOptions::default()
    };
    let sites = std::thread::scope(|scope| {
        [&first, &second]
            .map(|options| scope.spawn(|| AcmeSite::start(&authority, options)))
            .map(|starting| starting.join().unwrap())
    });
    for site in &sites {
        for name in NAMES {
            site.wait_until_served(name);
        }
    }
    assert_eq!(authority.issued(), 2);
    assert_eq!(authority.accounts(), 1);
}

#[test]
fn proof_is_given_by_whichever_server_the_authority_asks() {
    let authority = Authority::start(90 * DAY);
    let port = || free_address().port();
    for (http, name) in [(true, "two.example.org"), (false, "three.example.org")] {
        // The other name is ordered by a second server, which the authority cannot reach.
        let asked = AcmeSiteOptions { http, ..one() };
        let asked = AcmeSite::start(&authority, &asked);
        asked.wait_until_served(NAMES[0]);
        let ordering = AcmeSiteOptions {
            names: &[name],
            http,
            ports: Some((port(), port())),
            ..AcmeSiteOptions::default()
        };
        let ordering = AcmeSite::start(&authority, &ordering);
        ordering.wait_until_served(name);
    }
}

#[test]
fn name_that_the_platform_knows_is_ordered_when_a_client_asks_for_it() {
    let authority = Authority::start(90 * DAY);
    let platform = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = platform.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in platform.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            let n = stream.read(&mut request).unwrap();
            let known = request[..n].starts_with(b"GET /ask?domain=shop.example.net ");
            let status = if known { "200 OK" } else { "404 Not Found" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let options = AcmeSiteOptions {
        // On a slow machine, an order takes longer than the default time for which clients are held.
        lines: format!("ask = \"http://{address}/ask\"\n[timeouts]\nheader = \"60s\"\n"),
        ..one()
    };
    let site = AcmeSite::start(&authority, &options);
    site.wait_until_served(NAMES[0]);
    site.get("foreign.example.net", "/").unwrap_err();
    site.wait_for("OnDemandDenied: foreign.example.net");
    // The site whose only name is `one.example.org` also handles all other names; the first client is held until there
    // is a certificate.
    let first = site.get("shop.example.net", "/hello.txt");
    assert_eq!(first.as_deref(), Ok("hello\n"), "{}", site.process.log());
    site.wait_for("shop.example.net: certificate issued by");
    drop(site);
    let site = AcmeSite::start(&authority, &options);
    site.wait_until_served("shop.example.net");
    assert_eq!(authority.issued(), 2);
}

#[test]
fn on_a_full_disk_the_certificate_stays_in_use_and_is_renewed_when_there_is_room() {
    if !is_root() {
        return;
    }
    let authority = Authority::start(90 * DAY);
    let state = authority.scratch.join("state");
    std::fs::create_dir(&state).unwrap();
    let disk = SmallDisk::mount(&state);
    let site = AcmeSite::start(&authority, &one());
    site.wait_until_served(NAMES[0]);
    let ballast = state.join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap_err();
    let renew = site.command(&["cert", "renew"]);
    assert!(!renew.status.success(), "{renew:?}");
    site.wait_for("StoreFailed: one.example.org");
    site.wait_until_served(NAMES[0]);
    let status = site.command(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("StoreFailed"), "{status}");
    std::fs::remove_file(ballast).unwrap();
    site.wait_for("renewed by");
    site.wait_until_served(NAMES[0]);
    drop((site, disk));
}

/// A file system with little space.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &std::path::Path) -> SmallDisk {
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=256k,mode=0700", "none"])
            .arg(at);
        howdah_tests::scratch::run(&mut mount);
        SmallDisk(at.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[test]
fn local_name_gets_a_certificate_of_the_local_authority() {
    let authority = Authority::down(90 * DAY);
    let options = AcmeSiteOptions {
        names: &["localhost", "shop.localhost"],
        ..AcmeSiteOptions::default()
    };
    let mut site = AcmeSite::start(&authority, &options);
    site.wait_for(
        "the local authority issues certificates for localhost, shop.localhost; to make this machine trust the authority: ",
    );
    site.wait_for("howdah: localhost: certificate issued by local");
    let config = site.scratch.join("howdah.toml");
    let root = Command::new(howdah_program())
        .args(["cert", "root", "--config"])
        .arg(config)
        .output()
        .unwrap();
    let root = String::from_utf8(root.stdout).unwrap();
    assert_eq!(
        Path::new(root.trim()),
        authority.scratch.join("state/local/root.pem")
    );
    site.trust(root.trim().into());
    site.wait_until_served("localhost");
    site.wait_until_served("shop.localhost");
}
