//! What Kubernetes does to a fleet: a rolling update, fewer pods, lost nodes and broken links. In the meantime,
//! visitors read and an author writes, and no page is older than an acknowledged write.

use std::net::SocketAddr;
use std::time::Duration;

use howdah_tests::process::wait_until;

use super::pods::PodCluster;
use super::visitors::{VisitorResults, Visitors};

const PODS: usize = 4;
const MAX_WAIT: Duration = Duration::from_secs(60);

fn visitors(cluster: &PodCluster) -> Visitors {
    let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
    Visitors::start(address, 6, cluster.network.enter("lb"))
}

/// Waits until readers get responses from caches and something is written.
fn goes_on(visitors: &Visitors) {
    let ((_, hits), writes) = (visitors.answers(), visitors.writes());
    wait_until("pages from the cache, and writes", MAX_WAIT, || {
        visitors.answers().1 > hits + 50 && visitors.writes() > writes + 2
    });
}

fn show(what: &str, seen: &VisitorResults) {
    println!(
        "{what}: {} responses, {} of them from the cache, {} writes, {} old, {} failed, {} failed writes, slowest {:?}",
        seen.answers,
        seen.hits,
        seen.writes,
        seen.old.len(),
        seen.failed.len(),
        seen.failed_writes.len(),
        seen.slowest
    );
    assert!(seen.old.is_empty(), "{what}: {:?}", seen.old);
}

fn nothing_was_lost(what: &str, seen: &VisitorResults) {
    show(what, seen);
    assert!(seen.failed.is_empty(), "{what}: {:?}", seen.failed);
    assert!(
        seen.failed_writes.is_empty(),
        "{what}: {:?}",
        seen.failed_writes
    );
}

#[test]
fn rolling_update_and_fewer_pods_lose_no_request_and_leave_no_member_behind() {
    let Some(mut cluster) = PodCluster::start("roll", PODS, "") else {
        return;
    };
    cluster.wait_for_members(PODS);
    let visitors = visitors(&cluster);
    goes_on(&visitors);
    let former: Vec<String> = cluster
        .pods
        .iter()
        .flatten()
        .map(|pod| pod.name.clone())
        .collect();
    for place in 0..PODS {
        // Every second pod is terminated as the chart does it, and the others by the signal alone.
        match place % 2 {
            0 => cluster.end(place),
            _ => cluster.end_by_signal(place),
        }
        cluster.replace(place);
        goes_on(&visitors);
    }
    // The new pods have new names, and no member waits for the former ones.
    cluster.wait_for_members(PODS);
    for pod in cluster.pods.iter().flatten() {
        assert!(!former.contains(&pod.name));
        let log = pod.process.log();
        assert!(!log.contains("FleetMemberSilent"), "{log}");
    }
    cluster.end(3);
    cluster.end(2);
    cluster.wait_for_members(2);
    goes_on(&visitors);
    nothing_was_lost("rolling update and scale-down", &visitors.stop());
}

#[test]
fn lost_node_and_a_cut_off_one_make_no_page_old() {
    let Some(mut cluster) = PodCluster::start("lost", PODS, "") else {
        return;
    };
    cluster.wait_for_members(PODS);
    let visitors = visitors(&cluster);
    goes_on(&visitors);

    // One pod cannot reach Valkey, and still receives requests.
    let valkey = cluster.valkey.clone();
    cluster.network.part("n2", &valkey);
    wait_until("the other members to miss it", MAX_WAIT, || {
        let silent = cluster.fleet(0)["silent"].clone();
        silent.as_array().is_some_and(|silent| !silent.is_empty())
    });
    let (answers, _) = visitors.answers();
    wait_until("responses in the meantime", MAX_WAIT, || {
        visitors.answers().0 > answers + 50
    });
    cluster.network.mend("n2", &valkey);
    cluster.wait_for_members(PODS);
    goes_on(&visitors);
    nothing_was_lost("a member that Valkey does not hear", &visitors.stop());

    let visitors = self::visitors(&cluster);
    goes_on(&visitors);
    let lost = cluster.lose(1);
    wait_until("the other members to miss it", MAX_WAIT, || {
        cluster.pods[0].as_ref().is_some_and(|pod| {
            let log = pod.process.log();
            log.contains("FleetMemberSilent") && log.contains(&lost.name)
        })
    });
    let (answers, _) = visitors.answers();
    wait_until("responses in the meantime", MAX_WAIT, || {
        visitors.answers().0 > answers + 50
    });
    // Kubernetes has deleted the pod of the lost node, and an administrator confirms that.
    cluster.control(0, &["cache", "forget", &lost.name]);
    cluster.wait_for_members(PODS - 1);
    goes_on(&visitors);
    let seen = visitors.stop();
    show("a lost node", &seen);
    // The requests that the node was handling are lost with it: at most one of each visitor.
    assert!(seen.failed.len() <= 6, "{:?}", seen.failed);
    assert!(seen.failed_writes.len() <= 1, "{:?}", seen.failed_writes);
}

/// A job that writes the member's name to `runs`, and runs until the file `end` exists.
const JOB: &str = r#"
[[job]]
name = "long"
schedule = "* * * * * *"
directory = "SHARED"
command = ["sh", "-c", "echo MEMBER >> runs; while [ ! -e end ]; do sleep 0.05; done"]
"#;

#[test]
fn run_of_a_cut_off_member_continues_and_another_member_has_the_next() {
    let Some(cluster) = PodCluster::start("jobs", 2, JOB) else {
        return;
    };
    let runs = || {
        let text = std::fs::read_to_string(cluster.scratch.join("runs")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    wait_until("a run", MAX_WAIT, || !runs().is_empty());
    let first = runs()[0].clone();
    let pods: Vec<_> = cluster.pods.iter().flatten().collect();
    let holder = pods.iter().position(|pod| pod.name == first);
    let holder = holder.expect("one of them");
    let (held, other) = (pods[holder], pods[1 - holder]);
    cluster.network.part(&held.node, &cluster.valkey);
    wait_until("the next run", MAX_WAIT, || runs().len() == 2);
    assert_eq!(runs()[1], other.name);
    let lost = format!(
        "error JobMemberLost job=long: {first} started a run and has been silent since then"
    );
    wait_until(&lost, MAX_WAIT, || other.process.log().contains(&lost));
    let list = cluster.control(holder, &["job", "list"]);
    assert!(list.contains("job long: running"), "{list}");
    cluster.network.mend(&held.node, &cluster.valkey);
    let replaced = format!("so {} now runs the job, too", other.name);
    wait_until("the first member to hear of the next run", MAX_WAIT, || {
        let log = held.process.log();
        log.contains("error JobLockLost job=long:") && log.contains(&replaced)
    });
    cluster.scratch.write("end", "");
    wait_until("further runs", MAX_WAIT, || runs().len() > 3);
}
