//! The ways to reach Valkey: by TLS, as a user who may do little, through Sentinels whose primary fails.

use std::time::Duration;

use howdah_tests::fixture::Builder;
use howdah_tests::pki::Pki;
use howdah_tests::process::wait_until;
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::valkey::Valkey;
use rustix::process::Signal;

use crate::Fleet;

/// What docs/fleet.md says that a user needs.
const USER: &str =
    "~howdah:* &howdah:* +@read +@write +@pubsub +@scripting +@connection -@dangerous +info +wait";

#[test]
fn valkey_is_reached_by_tls_as_a_user_who_may_do_what_the_document_says() {
    let document = std::fs::read_to_string(repository().join("docs/fleet.md"));
    assert!(document.expect("the document").contains(USER));
    let scratch = Scratch::new("fleet-tls");
    Pki::new(scratch.path()).sign("valkey", &["localhost", "127.0.0.1"]);
    let valkey = Valkey::tls(scratch.path());
    let mut user = vec!["ACL", "SETUSER", "fleet", "on", ">se:cret"];
    user.extend(USER.split(' '));
    valkey.command(&user);
    valkey.command(&["ACL", "SETUSER", "default", "off"]);
    let url = format!(
        "rediss://fleet:se%3Acret@localhost:{}",
        valkey.address().port()
    );
    let authority = scratch.join("ca.pem").display().to_string();
    let trusting = |builder: Builder| builder.environment("SSL_CERT_FILE", &authority);
    let mut fleet = Fleet::start_on("fleet-tls", valkey, &[url.clone(), url], "", trusting);
    fleet.works();
    let log = fleet.members[0].log();
    assert!(!log.contains("cret"), "the password is in no log: {log}");
}

#[test]
fn a_certificate_of_another_authority_and_a_wrong_password_are_named_and_every_page_rendered() {
    let scratch = Scratch::new("fleet-wrong");
    Pki::new(scratch.path()).sign("valkey", &["localhost"]);
    let others = Scratch::new("fleet-other-authority");
    Pki::new(others.path()).sign("valkey", &["localhost"]);
    for (valkey, url, why) in [
        (
            Valkey::tls(scratch.path()),
            "rediss://localhost",
            "ertificate",
        ),
        (
            Valkey::configured(&["--requirepass", "secret"], &["-a", "secret"]),
            "redis://:wrong@localhost",
            "assword",
        ),
    ] {
        let url = format!("{url}:{}", valkey.address().port());
        let authority = others.join("ca.pem").display().to_string();
        let trusting = |builder: Builder| builder.environment("SSL_CERT_FILE", &authority);
        let fleet = Fleet::start_on("fleet-wrong", valkey, &[url], "", trusting);
        let log = || fleet.members[0].log();
        wait_until("its name in the log", Duration::from_secs(20), || {
            log().contains("FleetUnreachable")
        });
        assert!(log().contains(why), "{}", log());
        for _ in 0..5 {
            assert!(!fleet.read(0), "there is no lease");
        }
    }
}

#[test]
fn sentinels_name_the_primary_and_one_whose_replica_lags_gives_no_lease() {
    let mut primary = Valkey::start();
    let replica = Valkey::start();
    let (ip, port) = (primary.address().ip(), primary.address().port());
    replica.command(&["REPLICAOF", &ip.to_string(), &port.to_string()]);
    let sentinel = Valkey::sentinel(&primary);
    let replicas = || sentinel.command(&["SENTINEL", "REPLICAS", "main"]);
    let wanted = replica.address().port().to_string();
    wait_until(
        "the Sentinel to find the replica",
        Duration::from_secs(30),
        || replicas().contains(&wanted),
    );
    let url = format!("redis+sentinel://{}/main", sentinel.address());
    let urls = [url.clone(), url];
    let mut fleet = Fleet::start_on("fleet-sentinel", replica, &urls, "replicas = 1", |b| b);
    fleet.works();
    // The replica gets no write any more, and then takes the primary's place.
    fleet.valkey.signal(Signal::STOP);
    fleet.write(0);
    fleet.renders();
    primary.kill();
    fleet.valkey.signal(Signal::CONT);
    wait_until("the replica to take over", Duration::from_secs(60), || {
        fleet.valkey.command(&["ROLE"]).contains("master")
    });
    // It has no replica now, so there is no lease before it has one.
    fleet.renders();
    primary.start_again();
    let to = fleet.valkey.address();
    primary.command(&["REPLICAOF", &to.ip().to_string(), &to.port().to_string()]);
    wait_until("a replica again", Duration::from_secs(60), || {
        fleet
            .valkey
            .command(&["INFO", "replication"])
            .contains("state=online")
    });
    fleet.works();
}
