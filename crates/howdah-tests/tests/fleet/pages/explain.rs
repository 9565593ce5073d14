//! `howdah cache explain` reports for the members of a fleet, and says which member does not respond.

use std::time::{Duration, Instant};

use howdah_tests::fixture::signal;
use howdah_tests::http;
use howdah_tests::process::wait_until;
use rustix::process::Signal;
use serde_json::Value;

use super::{LEASE_OUT, TestFleet};

/// Makes all members store the page of one host.
fn store(fleet: &TestFleet) {
    let request = b"GET /page.php HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for member in &fleet.members {
        wait_until("a page from the cache", Duration::from_secs(20), || {
            let page = http::exchange(member.address(), request).expect("a response");
            page.header("X-Cache") == Some("HIT")
        });
    }
}

/// Returns what a member says about the page.
fn explain(fleet: &TestFleet, member: usize, more: &[&str]) -> String {
    let words = [&["cache", "explain", "http://a/page.php"], more].concat();
    let output = fleet.members[member].control(&words);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the line about `member` in the output.
fn line<'t>(text: &'t str, member: &str) -> &'t str {
    let start = format!("{member}: ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no line of {member}:\n{text}"))
}

#[test]
fn explain_asks_all_members_and_names_those_that_do_not_respond() {
    let fleet = TestFleet::start("fleet-explain", 3);
    store(&fleet);
    let text = explain(&fleet, 0, &[]);
    assert!(text.contains("\nstored: fresh; status 200"), "{text}");
    // If the machine has stalled, the line may begin with a note that the member has no lease at the moment.
    for member in ["m1", "m2"] {
        assert!(
            line(&text, member).contains("stored: fresh; status 200"),
            "{text}"
        );
    }
    let purge = fleet.members[0].control(&["cache", "purge", "--all"]);
    assert!(purge.status.success(), "{purge:?}");
    let text = explain(&fleet, 0, &[]);
    assert!(line(&text, "m2").contains("not stored; "), "{text}");
    // The member still has its lease, but does not respond.
    let front = fleet.members[2].front();
    signal(front, Signal::STOP);
    let begun = Instant::now();
    let text = explain(&fleet, 0, &[]);
    assert!(begun.elapsed() < Duration::from_secs(5), "{text}");
    assert_eq!(line(&text, "m2"), "does not respond", "{text}");
    assert_ne!(line(&text, "m1"), "does not respond", "{text}");
    let json: Value = serde_json::from_str(&explain(&fleet, 1, &["--json"])).expect("JSON");
    let answers = &json["fleet"]["answers"];
    assert_eq!(json["fleet"]["member"], "m1", "{json}");
    assert!(
        answers["m0"].is_string() && answers["m2"].is_null(),
        "{json}"
    );
    signal(front, Signal::CONT);
    store(&fleet);
    // m2 serves visitors before it has caught up with the messages from Valkey.
    wait_until(
        "m2 to say what it has stored",
        Duration::from_secs(20),
        || line(&explain(&fleet, 1, &[]), "m2").starts_with("stored: "),
    );
}

#[test]
fn without_valkey_a_page_is_explained_for_the_server_that_is_asked() {
    let mut fleet = TestFleet::start("fleet-explain-alone", 2);
    fleet.valkey.kill();
    fleet.write(0);
    let begun = Instant::now();
    let text = explain(&fleet, 0, &[]);
    assert!(begun.elapsed() < LEASE_OUT + Duration::from_secs(5));
    for part in ["m0 has no lease", "the other members could not be asked: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    fleet.valkey.start_again();
    fleet.works();
    store(&fleet);
    // The members answer each other once they have reconnected to Valkey.
    wait_until("m1 to answer", Duration::from_secs(20), || {
        line(&explain(&fleet, 0, &[]), "m1").starts_with("stored: ")
    });
}

#[test]
fn questions_and_answers_of_strangers_cost_no_member_anything() {
    let fleet = TestFleet::start("fleet-explain-strangers", 2);
    store(&fleet);
    let say = |channel: &str, what: &str| {
        let channel = format!("howdah:{{howdah}}:{channel}");
        fleet.valkey.command(&["PUBLISH", &channel, what]);
    };
    // Malformed questions, or questions that no member can answer.
    for question in ["", "1f", "1f m9 [", "x m9 []", "1f m9 [\"nowhere\",[]]"] {
        say("questions", question);
    }
    let flood =
        "for i = 1, 20000 do redis.call('PUBLISH', KEYS[1], '1f m9 [\"/page.php\",[]]') end";
    let questions = "howdah:{howdah}:questions";
    fleet.valkey.command(&["EVAL", flood, "1", questions]);
    fleet.read(0);
    fleet.read(1);
    // Questions are answered again one second after the flood at the earliest.
    wait_until("m1 to answer", Duration::from_secs(20), || {
        line(&explain(&fleet, 0, &[]), "m1").starts_with("stored: ")
    });
    let status = fleet.members[0].status();
    assert_eq!(status["cache"]["fleet"]["trouble"], "", "{status}");
}
