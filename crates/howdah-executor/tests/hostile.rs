//! A zygote belongs to its pool's user, who may have taken it over, so its reports are untrusted. No report makes the
//! front signal a process that does not belong to the pool, or takes the pool down permanently.

mod support;

use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::Arc;

use howdah_executor::config::PoolConfig;
use howdah_executor::embed::EmbedPool;
use howdah_proto::control::{Exit, StartedPhp, ZygoteReport};
use howdah_proto::shm::ChildId;
use howdah_proto::worker::WorkerMessage;
use support::fake_zygote::FakeLauncher;
use support::{TestLog, config, get, on_front};

/// A process of the front's user that does not belong to the pool.
struct Bystander(Child);

impl Bystander {
    fn start() -> Bystander {
        Bystander(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id() as i32
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn pidfd(pid: i32) -> Option<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let flags = rustix::process::PidfdFlags::empty();
    Some(rustix::process::pidfd_open(pid, flags).unwrap())
}

/// Starts a pool whose first zygote sends these reports as soon as it is ready.
fn pool(
    config: PoolConfig,
    claims: Vec<(ZygoteReport, Option<OwnedFd>)>,
) -> (Arc<EmbedPool>, Arc<TestLog>) {
    let log = Arc::new(TestLog::default());
    let launcher = FakeLauncher {
        claims: claims.into(),
        ..FakeLauncher::default()
    };
    let pool = EmbedPool::start(config, Arc::new(launcher), log.clone(), 1).unwrap();
    (pool, log)
}

fn first_child() -> ChildId {
    ChildId {
        index: 0,
        incarnation: 1,
    }
}

#[test]
fn process_of_others_is_never_signalled_on_a_zygotes_report() {
    let mut bystander = Bystander::start();
    let pid = bystander.pid();
    let us = std::process::id() as i32;
    let child = first_child();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into();
    for (pid, fd) in [
        (pid, pidfd(pid)),
        (us, pidfd(us)),
        // The pidfd of another process than the reported one, and a descriptor that is not a pidfd.
        (pid, pidfd(us)),
        (pid, Some(socket)),
    ] {
        // If the front believed the report, it would send the signals for the request that times out through the
        // reported descriptor.
        let mut config = config(1);
        config.request_terminate_timeout = Some(std::time::Duration::from_millis(100));
        let (pool, log) = pool(config, vec![(ZygoteReport::Spawned { child, pid }, fd)]);
        on_front(async {
            let complaint = log.wait_for("ZygoteProtocolError");
            assert!(complaint.contains("is killed"), "{complaint}");
            get(&pool, "/hang").await.unwrap_err();
            assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
        });
    }
    assert!(bystander.0.try_wait().unwrap().is_none(), "it lives");
}

#[test]
fn impossible_reports_cost_only_their_zygote() {
    let nobody = ChildId {
        index: 60_000,
        incarnation: 1,
    };
    let (child, message) = (nobody, String::new());
    let name = "PhpStartup".to_owned();
    for claim in [
        ZygoteReport::SpawnFailed {
            child,
            message: message.clone(),
        },
        ZygoteReport::Spawned { child, pid: 1 },
        ZygoteReport::ScriptsDone,
        ZygoteReport::Failed { name, message },
        ZygoteReport::Ready {
            version: 1,
            php: StartedPhp::default(),
        },
    ] {
        let (pool, log) = pool(config(1), vec![(claim, None)]);
        on_front(async {
            log.wait_for("ZygoteProtocolError");
            assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
        });
    }
}

#[test]
fn packet_that_is_not_a_report_costs_only_its_zygote() {
    let log = Arc::new(TestLog::default());
    let launcher = FakeLauncher {
        unreadable: Some(b"spawned twice \xff".to_vec()).into(),
        ..FakeLauncher::default()
    };
    let pool = EmbedPool::start(config(1), Arc::new(launcher), log.clone(), 1).unwrap();
    on_front(async {
        let complaint = log.wait_for("ZygoteProtocolError");
        assert!(
            complaint.contains("not a report: spawned twice \u{fffd}; the zygote"),
            "{complaint}"
        );
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
}

#[test]
fn reports_about_unknown_children_are_ignored() {
    let child = ChildId {
        index: 60_000,
        incarnation: 1,
    };
    let exit = Exit::Code(0);
    let claims = vec![
        (ZygoteReport::Exited { child, exit }, None),
        (ZygoteReport::Worker(WorkerMessage::Booted { child }), None),
        (
            ZygoteReport::Trace {
                child,
                stack: "x".into(),
            },
            None,
        ),
    ];
    let (pool, log) = pool(config(1), claims);
    on_front(async {
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
    assert_eq!(log.count("level 0"), 0, "{:?}", log.all());
}

#[test]
fn child_reported_twice_is_refused() {
    let child = first_child();
    let again = || (ZygoteReport::Spawned { child, pid: 0 }, None);
    // The first report may be valid, if the front has ordered the child by then; the second cannot be.
    let (pool, log) = pool(config(1), vec![again(), again(), again()]);
    on_front(async {
        log.wait_for("ZygoteProtocolError");
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
}
