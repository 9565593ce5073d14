//! The ways to reach Valkey: over TLS, as a user with few permissions, through Sentinels whose primary fails, and in a
//! cluster.

use std::time::Duration;

use howdah_tests::fixture::Builder;
use howdah_tests::pki::Pki;
use howdah_tests::process::wait_until;
use howdah_tests::scratch::{Scratch, repository};
use howdah_tests::valkey::Valkey;
use howdah_tests::valkey::cluster::ValkeyCluster;
use rustix::process::Signal;

use super::TestFleet;

/// The permissions that a user needs according to docs/fleet.md.
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
    let mut fleet = TestFleet::start_on("fleet-tls", valkey, &[url.clone(), url], "", trusting);
    fleet.works();
    let log = fleet.members[0].log();
    assert!(!log.contains("cret"), "the password is in the log: {log}");
}

#[test]
fn faults_of_the_connection_to_valkey_are_named_and_every_page_is_rendered() {
    let scratch = Scratch::new("fleet-wrong");
    Pki::new(scratch.path()).sign("valkey", &["localhost"]);
    let others = Scratch::new("fleet-other-authority");
    Pki::new(others.path()).sign("valkey", &["localhost"]);
    for (valkey, url, more, why) in [
        (
            Valkey::tls(scratch.path()),
            "rediss://localhost",
            "",
            "ertificate",
        ),
        (
            Valkey::configured(&["--requirepass", "secret"], &["-a", "secret"]),
            "redis://:wrong@localhost",
            "",
            "assword",
        ),
        (
            Valkey::start(),
            "redis+cluster://localhost",
            "replicas = 1",
            "`cluster-enabled` is off on this server - Client: use redis://",
        ),
    ] {
        let url = format!("{url}:{}", valkey.address().port());
        let authority = others.join("ca.pem").display().to_string();
        let trusting = |builder: Builder| builder.environment("SSL_CERT_FILE", &authority);
        let fleet = TestFleet::start_on("fleet-wrong", valkey, &[url], more, trusting);
        let log = || fleet.members[0].log();
        // On a busy machine the first logged reason may be that Valkey did not respond in time.
        wait_until("the cause in the log", Duration::from_secs(60), || {
            log()
                .lines()
                .any(|line| line.contains("FleetUnreachable") && line.contains(why))
        });
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
    let mut fleet = TestFleet::start_on("fleet-sentinel", replica, &urls, "replicas = 1", |b| b);
    fleet.works();
    // The replica receives no further write, and then replaces the primary.
    fleet.valkey.signal(Signal::STOP);
    fleet.write(0);
    fleet.renders();
    primary.kill();
    fleet.valkey.signal(Signal::CONT);
    wait_until("the replica to take over", Duration::from_secs(60), || {
        fleet.valkey.command(&["ROLE"]).contains("master")
    });
    // The new primary has no replica yet, and there is no lease until it has one.
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

/// The hash tag of the fleet's keys.
const TAG: &str = "{howdah}";

#[test]
fn nodes_of_a_cluster_name_the_primary_whose_slot_moves_and_whose_replica_takes_over() {
    let mut cluster = ValkeyCluster::start(3);
    let slot = cluster.slot(TAG);
    let first = cluster.primary(slot);
    let (second, third) = ((first + 1) % 3, (first + 2) % 3);
    // Each member has one seed that dies, and one that does not.
    let at = |number: usize| cluster.nodes[number].address();
    let seeds = [(second, third), (second, third + 3)];
    let urls = seeds.map(|(dies, lives)| format!("redis+cluster://{},{}", at(dies), at(lives)));
    let replica = cluster.nodes.remove(second + 3);
    let scratch = Scratch::new("fleet-cluster-key");
    let key = scratch.write("fleet.key", "0123456789abcdef0123456789abcdef\n");
    let more = format!(
        "replicas = 1\nrelease = \"1\"\nkey_file = \"{}\"",
        key.display()
    );
    let mut fleet = TestFleet::start_on("fleet-cluster", replica, &urls, &more, |b| b);
    fleet.works();
    wait_until("a render by Valkey", Duration::from_secs(20), || {
        fleet.write(0);
        fleet.read(0);
        let status = fleet.members[0].status();
        let renders = status["cache"]["fleet"]["renders"].as_array();
        let mut renders = renders.expect("counts of renders").iter();
        renders.any(|one| one[0] == "Given" && one[1] != 0)
    });
    cluster.hand_over(slot, first, second);
    fleet.works();
    // The replica receives no further write, and then replaces the primary.
    fleet.valkey.signal(Signal::STOP);
    fleet.write(0);
    fleet.renders();
    let primary = &mut cluster.nodes[second];
    primary.kill();
    fleet.valkey.signal(Signal::CONT);
    wait_until("the replica to take over", Duration::from_secs(60), || {
        fleet.write(1);
        fleet.read(0);
        fleet.valkey.command(&["ROLE"]).contains("master")
    });
    // The new primary has no replica yet, and there is no lease until it has one.
    fleet.renders();
    primary.start_again();
    wait_until("a replica again", Duration::from_secs(60), || {
        let state = fleet.valkey.command(&["INFO", "replication"]);
        state.contains("state=online")
    });
    fleet.works();
}

#[test]
fn cluster_is_reached_by_tls_as_a_user_whom_each_node_lets_in() {
    let scratch = Scratch::new("fleet-cluster-tls");
    Pki::new(scratch.path()).sign("valkey", &["localhost", "127.0.0.1"]);
    let mut cluster = ValkeyCluster::tls(1, scratch.path(), "another");
    let mut user = vec!["ACL", "SETUSER", "fleet", "on", ">se:cret"];
    user.extend(USER.split(' '));
    for node in &cluster.nodes {
        node.command(&user);
    }
    // The member is configured with the address of a replica, which names the primary.
    let replica = cluster.nodes.pop().expect("a replica");
    let url = format!(
        "rediss+cluster://fleet:se%3Acret@localhost:{}",
        replica.address().port()
    );
    let authority = scratch.join("ca.pem").display().to_string();
    let trusting = |builder: Builder| builder.environment("SSL_CERT_FILE", &authority);
    let urls = [url.clone(), url];
    let mut fleet = TestFleet::start_on(
        "fleet-cluster-tls",
        replica,
        &urls,
        "replicas = 1",
        trusting,
    );
    fleet.works();
    let log = fleet.members[0].log();
    assert!(!log.contains("cret"), "the password is in the log: {log}");
}
