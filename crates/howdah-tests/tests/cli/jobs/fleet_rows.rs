//! Checks Valkey's decisions about scheduled runs, case by case, with a real Valkey.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use howdah_fleet::jobs::{
    ClaimResult, FleetJobRun, FleetRunClaim, JobRows, JobsReply, JobsRequest,
};
use howdah_fleet::{Registry, Valkey as Address};
use howdah_tests::process::wait_until;
use howdah_tests::valkey::Valkey;
use rustix::process::Signal;
use tokio::runtime::Runtime;

/// The time for which a lock lasts. Even on a busy machine, a member does not have to wait for so long.
const LOCK: Duration = Duration::from_secs(3);
const JOB: &str = "report";

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_secs() as i64
}

/// A member that runs one job.
struct Member {
    name: &'static str,
    rows: JobRows,
    runtime: Runtime,
    message: JobsRequest,
    claims: u32,
}

impl Member {
    fn new(valkey: &Valkey, name: &'static str) -> Member {
        Member::at(&valkey.url(), name)
    }

    fn at(url: &str, name: &'static str) -> Member {
        let address: Address = url.parse().expect("a URL");
        let registry = Registry::new(address, "test", 0);
        let runtime = tokio::runtime::Builder::new_multi_thread();
        Member {
            name,
            rows: JobRows::new(registry, LOCK, LOCK),
            runtime: { runtime }.enable_all().build().expect("a runtime"),
            message: JobsRequest::default(),
            claims: 0,
        }
    }

    fn exchange(&mut self) -> Result<JobsReply, String> {
        self.runtime.block_on(self.rows.exchange(&self.message))
    }

    /// Reports what the member runs, and returns the resulting state.
    fn renews(&mut self) -> JobsReply {
        self.exchange().expect("Valkey answers")
    }

    /// Claims a run, and asks until Valkey has accepted or refused the claim.
    fn claims(&mut self, instant: i64) -> ClaimResult {
        self.claims += 1;
        let claim = FleetRunClaim {
            token: format!("{}.{}", self.name, self.claims),
            member: self.name.to_owned(),
            instant,
        };
        self.message.claims.insert(JOB.to_owned(), claim.clone());
        let mut verdict = None;
        wait_until("a verdict", 20 * LOCK, || {
            let answer = self.renews();
            verdict = answer.claims.get(JOB).cloned();
            !matches!(verdict, None | Some(ClaimResult::Wait(_)))
        });
        self.message.claims.clear();
        let verdict = verdict.expect("Valkey has decided");
        if let ClaimResult::Yours(at) = verdict {
            let run = FleetJobRun {
                at,
                decided: instant,
                token: claim.token,
                member: claim.member,
                ..FleetJobRun::default()
            };
            self.message.runs.insert(JOB.to_owned(), run);
        }
        verdict
    }

    fn ends(&mut self) {
        let run = self.message.runs.get_mut(JOB).expect("the member runs it");
        (run.ended, run.how, run.good) = (now(), "exit code 0".to_owned(), true);
        self.renews();
    }
}

fn members(valkey: &Valkey) -> [Member; 2] {
    [Member::new(valkey, "m0"), Member::new(valkey, "m1")]
}

fn is_yours(verdict: &ClaimResult) -> bool {
    matches!(verdict, ClaimResult::Yours(_))
}

#[test]
fn run_is_one_members_however_late_the_clock_of_the_other_is() {
    let valkey = Valkey::start();
    let [mut first, mut second] = members(&valkey);
    let due = now();
    assert!(is_yours(&first.claims(due)));
    assert_eq!(second.claims(due), ClaimResult::Taken("m0".to_owned()));
    first.ends();
    // The run has ended within a second, and the other member asks now.
    assert_eq!(second.claims(due), ClaimResult::Taken("m0".to_owned()));
    assert_eq!(second.claims(due - 60), ClaimResult::Taken("m0".to_owned()));
    assert!(is_yours(&second.claims(due + 60)));
    assert_eq!(second.renews().rows[JOB].member, "m1");
    // The next run is due while this one continues: it is skipped, which is reported once.
    assert_eq!(first.claims(due + 120), ClaimResult::Runs("m1".to_owned()));
    assert_eq!(
        second.claims(due + 120),
        ClaimResult::Taken("m1".to_owned())
    );
    assert_eq!(
        first.claims(0),
        ClaimResult::Runs("m1".to_owned()),
        "a run that is started by hand"
    );
    second.ends();
    assert!(is_yours(&first.claims(0)), "a run that is started by hand");
}

#[test]
fn clock_far_ahead_runs_nothing_and_keeps_nobody_from_running() {
    let valkey = Valkey::start();
    let [mut first, mut second] = members(&valkey);
    let due = now();
    let year = 365 * 24 * 3600;
    let ClaimResult::Ahead(time) = first.claims(due + year) else {
        panic!("it is not due");
    };
    assert!(time.as_secs() + 100 > year as u64, "{time:?}");
    assert!(is_yours(&second.claims(due)));
}

#[test]
fn answer_that_was_lost_is_given_again() {
    let valkey = Valkey::start();
    let [mut first, _] = members(&valkey);
    let due = now();
    let verdict = first.claims(due);
    first.message.runs.clear();
    first.claims -= 1;
    assert_eq!(first.claims(due), verdict);
}

#[test]
fn lock_of_a_member_that_is_not_heard_runs_out_and_that_is_said_once() {
    let valkey = Valkey::start();
    let [mut first, mut second] = members(&valkey);
    let due = now();
    assert!(is_yours(&first.claims(due)));
    wait_until("the lock to run out", 20 * LOCK, || {
        second.renews().lost.get(JOB).map(String::as_str) == Some("m0")
    });
    assert!(second.renews().lost.is_empty());
    assert_eq!(
        second.claims(due),
        ClaimResult::Taken("m0".to_owned()),
        "the run is not repeated"
    );
    // The first member was cut off, and can reach Valkey again.
    assert_eq!(first.renews().rows[JOB].ended, 0);
    assert_eq!(second.claims(due + 1), ClaimResult::Runs("m0".to_owned()));
    wait_until("the lock to run out", 20 * LOCK, || {
        !second.renews().lost.is_empty()
    });
    assert!(is_yours(&second.claims(due + 2)));
    assert_eq!(first.renews().replaced[JOB], "m1");
}

#[test]
fn user_with_the_rights_that_the_page_cache_needs_runs_jobs() {
    let valkey = Valkey::start();
    let rights = "ACL SETUSER howdah on >secret ~howdah:* &howdah:* +@read +@write +@pubsub +@scripting \
                  +@connection -@dangerous +info +wait";
    let words: Vec<&str> = rights.split_whitespace().collect();
    valkey.command(&words);
    let url = valkey.url().replace("://", "://howdah:secret@");
    let mut member = Member::at(&url, "m0");
    assert!(is_yours(&member.claims(now())));
    member.ends();
}

#[test]
fn valkey_that_was_emptied_restarted_or_hung_gives_no_lock_that_is_held() {
    let emptied = |valkey: &mut Valkey, _: &mut Member| {
        valkey.command(&["FLUSHALL"]);
    };
    let restarted = |valkey: &mut Valkey, _: &mut Member| {
        valkey.kill();
        valkey.start_again();
    };
    let hung = |valkey: &mut Valkey, second: &mut Member| {
        valkey.signal(Signal::STOP);
        for _ in 0..2 {
            assert!(second.exchange().is_err(), "Valkey does not respond");
        }
        valkey.signal(Signal::CONT);
    };
    holder_keeps_its_lock_when("emptied", emptied);
    holder_keeps_its_lock_when("restarted", restarted);
    holder_keeps_its_lock_when("hung", hung);
}

/// Checks that the holder of a lock keeps it although another member asks for it directly after an incident, before the
/// holder does. If the machine is so slow that the other member's request arrives after the lock has expired, that
/// member rightly gets the lock, and the whole test is repeated.
fn holder_keeps_its_lock_when(incident: &str, happens: impl Fn(&mut Valkey, &mut Member)) {
    for _ in 0..20 {
        let mut valkey = Valkey::start();
        let [mut first, mut second] = members(&valkey);
        let due = now();
        assert!(is_yours(&first.claims(due)));
        happens(&mut valkey, &mut second);
        let over = Instant::now();
        let claim = FleetRunClaim {
            token: "m1.x".to_owned(),
            member: "m1".to_owned(),
            instant: due + 60,
        };
        second.message.claims.insert(JOB.to_owned(), claim);
        let mut verdict = None;
        wait_until("Valkey to answer", 20 * LOCK, || {
            let answer = second.exchange();
            verdict = answer.ok().map(|answer| answer.claims[JOB].clone());
            verdict.is_some()
        });
        if verdict.as_ref().is_some_and(is_yours) {
            assert!(over.elapsed() > LOCK, "{incident}: {verdict:?}");
            continue;
        }
        wait_until("the holder to be heard", 20 * LOCK, || {
            first.exchange().is_ok()
        });
        second.message.claims.clear();
        assert_eq!(second.renews().rows[JOB].member, "m0", "{incident}");
        assert_eq!(
            second.claims(due),
            ClaimResult::Taken("m0".to_owned()),
            "{incident}"
        );
        return;
    }
    panic!("{incident}: in no attempt did Valkey respond within {LOCK:?}, before the lock expired");
}
