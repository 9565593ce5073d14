//! Scheduled jobs in a fleet: one member runs them, whatever happens to that member, to Valkey and to clocks.

use std::time::{Duration, Instant};

use howdah_tests::fixture::{Builder, Fixture, signal};
use howdah_tests::valkey::Valkey;
use rustix::process::Signal;

struct JobsFleet {
    valkey: Valkey,
    members: Vec<Fixture>,
}

impl JobsFleet {
    /// Starts two members with these jobs, in which `SHARED` is replaced by a directory that both use. `clock` is the
    /// offset of the second member's clock.
    fn start(name: &str, jobs: &str, clock: Option<&str>) -> JobsFleet {
        let valkey = Valkey::start();
        let builders: Vec<_> = (0..2)
            .map(|number| Fixture::named(&format!("{name}-{number}")))
            .collect();
        let shared = builders[0].scratch().writable_dir("shared");
        let start = |(number, builder): (usize, Builder)| {
            let state = format!("STATE_DIRECTORY={}", builder.scratch().path().display());
            let mut words = vec!["env", &state];
            let faked = clock
                .filter(|_| number == 1)
                .map(|off| format!("FAKETIME={off}"));
            let preload = format!(
                "LD_PRELOAD=/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1",
                std::env::consts::ARCH
            );
            if let Some(faked) = &faked {
                words.extend([preload.as_str(), "FAKETIME_DONT_FAKE_MONOTONIC=1", faked]);
            }
            let config = format!(
                "[fleet]\nvalkey = \"{}\"\nmember = \"m{number}\"\nlease = \"1s\"\n{}",
                valkey.url(),
                jobs.replace("MEMBER", &format!("m{number}"))
                    .replace("SHARED", &shared.display().to_string())
            );
            builder.through(&words).config(&config).start()
        };
        let members = builders.into_iter().enumerate().map(start).collect();
        JobsFleet { valkey, members }
    }

    /// Returns the lines of a file that the jobs write.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.members[0].path("shared").join(name));
        let text = text.unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn wait_for_lines(&self, name: &str, count: usize) -> Vec<String> {
        self.members[0].wait(name, |_| self.lines(name).len() >= count);
        self.lines(name)
    }

    fn touch(&self, name: &str) {
        self.members[0].write(&format!("shared/{name}"), "");
    }

    fn job(&self, member: usize) -> serde_json::Value {
        let output = self.members[member].control(&["job", "list", "--json"]);
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        all[0].clone()
    }

    fn failures(&self, member: usize, name: &str) -> u64 {
        let job = self.job(member);
        let all = job["failures"].as_array().expect("a list").clone();
        let mut counts = all.iter().filter(|pair| pair[0] == name);
        counts
            .next()
            .map_or(0, |pair| pair[1].as_u64().expect("a number"))
    }
}

const FREQUENT_JOB: &str = r#"
[[job]]
name = "often"
schedule = "*/2 * * * * *"
directory = "SHARED"
command = ["sh", "-c", "echo MEMBER >> runs"]
"#;

/// Runs until the file `end` exists; the first line names the member.
const LONG_JOB: &str = r#"
[[job]]
name = "long"
schedule = "* * * * * *"
directory = "SHARED"
command = ["sh", "-c", "echo MEMBER $$ >> runs; while [ ! -e end ]; do sleep 0.02; done; echo MEMBER >> ends"]
"#;

#[test]
fn scheduled_run_is_done_once_although_a_clock_is_late() {
    for clock in [None, Some("-3s")] {
        let fleet = JobsFleet::start("jobs-once", FREQUENT_JOB, clock);
        let before = fleet.wait_for_lines("runs", 1).len();
        let begun = Instant::now();
        let runs = fleet.wait_for_lines("runs", before + 4).len() - before;
        let seconds = begun.elapsed().as_secs_f64();
        assert!(
            runs as f64 <= seconds / 2.0 + 1.5,
            "{runs} runs in {seconds} s, {clock:?}"
        );
        let elsewhere = |member: usize| fleet.job(member)["runs_elsewhere"].as_u64().unwrap_or(0);
        fleet.members[0].wait("the members to hear of each other's runs", |_| {
            elsewhere(0) + elsewhere(1) > 2
        });
        if clock.is_some() {
            let last = fleet.lines("runs").pop();
            assert_eq!(
                last.as_deref(),
                Some("m0"),
                "the clock of the other member is late"
            );
        }
    }
}

#[test]
fn run_that_goes_on_is_not_joined_by_another_member_and_is_shown_on_both() {
    let fleet = JobsFleet::start("jobs-overlap", LONG_JOB, None);
    let first = fleet.wait_for_lines("runs", 1)[0].clone();
    let holder = usize::from(first.starts_with("m1"));
    let other = 1 - holder;
    // The other member does not start the job by hand either. For a moment in each second, its own claim for the
    // scheduled run is undecided, and the refusal does not name the holder.
    fleet.members[other].wait("the holder to be named", |member| {
        let run = member.control(&["job", "run", "long"]);
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        let refused = !run.status.success() && said.contains("JobStillRunning");
        assert!(refused, "{said}");
        said.contains(&format!("on m{holder}"))
    });
    fleet.members[other].wait("the run to be shown", |_| {
        fleet.job(other)["fleet"]["member"] == format!("m{holder}")
    });
    let list = fleet.members[other].control(&["job", "list"]);
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(
        list.contains(&format!("in the fleet: on m{holder}")),
        "{list}"
    );
    fleet.members[0].wait("runs to be skipped", |_| {
        (0..2)
            .map(|member| fleet.failures(member, "JobStillRunning"))
            .sum::<u64>()
            > 2
    });
    assert_eq!(fleet.lines("runs").len(), 1);
    fleet.touch("end");
    fleet.wait_for_lines("runs", 2);
}

#[test]
fn run_of_a_killed_server_is_named_and_not_repeated_and_the_next_is_done_elsewhere() {
    let mut fleet = JobsFleet::start("jobs-killed", LONG_JOB, None);
    let first = fleet.wait_for_lines("runs", 1)[0].clone();
    let holder = usize::from(first.starts_with("m1"));
    fleet.members[holder].kill_all();
    let other = &fleet.members[1 - holder];
    let name = format!("m{holder} started a run and has been silent since then");
    other.wait_for_log(&["error JobMemberLost job=long:", &name]);
    let runs = fleet.wait_for_lines("runs", 2);
    assert!(runs[1].starts_with(&format!("m{}", 1 - holder)), "{runs:?}");
    assert_eq!(runs.len(), 2);
}

#[test]
fn server_that_stops_in_order_gives_its_run_back() {
    let fleet = JobsFleet::start("jobs-stopped", LONG_JOB, None);
    let first = fleet.wait_for_lines("runs", 1)[0].clone();
    let holder = usize::from(first.starts_with("m1"));
    signal(fleet.members[holder].master(), Signal::TERM);
    let begun = Instant::now();
    let runs = fleet.wait_for_lines("runs", 2);
    let took = begun.elapsed();
    assert!(runs[1].starts_with(&format!("m{}", 1 - holder)), "{runs:?}");
    assert!(
        took < Duration::from_secs(4),
        "a lock lasts for 5 s: {took:?}"
    );
    let log = fleet.members[1 - holder].log();
    assert!(!log.contains("JobMemberLost"), "{log}");
}

#[test]
fn without_valkey_no_member_runs_it_and_what_is_left_out_is_named() {
    let mut fleet = JobsFleet::start("jobs-unreachable", FREQUENT_JOB, None);
    fleet.wait_for_lines("runs", 2);
    fleet.valkey.signal(Signal::STOP);
    for member in &fleet.members {
        member.wait_for_log(&["error JobLockUnreachable job=often: this server skips the run of"]);
    }
    let before = fleet.lines("runs").len();
    let failures = fleet.failures(0, "JobLockUnreachable");
    fleet.members[0].wait("two more runs to be skipped", |_| {
        fleet.failures(0, "JobLockUnreachable") >= failures + 2
    });
    assert_eq!(fleet.lines("runs").len(), before);
    fleet.valkey.signal(Signal::CONT);
    fleet.wait_for_lines("runs", before + 2);
    fleet.valkey.kill();
    let failures = fleet.failures(0, "JobLockUnreachable");
    fleet.members[0].wait("more runs to be skipped", |_| {
        fleet.failures(0, "JobLockUnreachable") >= failures + 2
    });
    let before = fleet.lines("runs").len();
    fleet.valkey.start_again();
    fleet.wait_for_lines("runs", before + 2);
}

#[test]
fn job_of_the_machine_runs_on_each_member_without_valkey_too() {
    let jobs = FREQUENT_JOB.replace("schedule", "members = \"each\"\nschedule");
    let fleet = JobsFleet::start("jobs-each", &jobs, None);
    fleet.valkey.signal(Signal::STOP);
    fleet.members[0].wait("runs on both", |_| {
        let runs = fleet.lines("runs");
        ["m0", "m1"]
            .iter()
            .all(|name| runs.iter().filter(|run| run == name).count() > 1)
    });
    fleet.valkey.signal(Signal::CONT);
}

#[test]
fn run_that_another_member_did_while_this_one_was_down_is_not_missed() {
    let mut fleet = JobsFleet::start("jobs-not-missed", FREQUENT_JOB, None);
    fleet.wait_for_lines("runs", 2);
    fleet.members[1].kill_all();
    let before = fleet.lines("runs").len();
    fleet.wait_for_lines("runs", before + 2);
    fleet.members[1].start_again();
    fleet.members[1].wait("m1 to hear of runs", |_| {
        fleet.job(1)["fleet"]["member"].is_string()
    });
    let log = fleet.members[1].log();
    assert!(!log.contains("JobMissed"), "{log}");
}
