//! The exchange between a pool and its children, with threads of the test in place of children.

mod support;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::embed::EmbedPool;
use howdah_executor::launch::{LaunchedProcess, Launcher, SpawnerFds, ZygoteFds};
use howdah_executor::{BodyCutOff, ExecError, Executor, RunEvent, ScriptBody};
use howdah_executor::{PoolCondition, PoolConfig, PoolMode};
use support::fake_zygote::FakeLauncher;
use support::{TestLog, bytes, config, finish, get, next_event, on_front, request, until};

fn start(config: howdah_executor::PoolConfig) -> (Arc<EmbedPool>, Arc<TestLog>, Arc<FakeLauncher>) {
    let (log, launcher) = (
        Arc::new(TestLog::default()),
        Arc::new(FakeLauncher::default()),
    );
    let pool = EmbedPool::start(config, launcher.clone(), log.clone(), 2).unwrap();
    (pool, log, launcher)
}

/// Panics on the thread of the pool's supervisor.
struct PanickingLauncher;

impl Launcher for PanickingLauncher {
    fn launch(&self, _: &PoolConfig, _: ZygoteFds) -> io::Result<LaunchedProcess> {
        panic!("as the test demands");
    }

    fn launch_spawner(&self, _: &PoolMode, _: SpawnerFds) -> io::Result<LaunchedProcess> {
        Err(io::Error::other("no spawners here"))
    }
}

#[test]
fn supervisor_panic_refuses_waiting_and_new_requests_by_name() {
    let log = Arc::new(TestLog::default());
    // The first request of a pool that is asleep waits for the zygote, whose launch panics.
    let launcher = Arc::new(PanickingLauncher);
    let pool = EmbedPool::start_asleep(config(1), launcher, log.clone(), 1).unwrap();
    on_front(async {
        for _ in 0..2 {
            let refused = get(&pool, "/hello").await;
            assert!(
                matches!(&refused, Err(ExecError::PoolDown { name, .. }) if name == "SupervisorPanicked"),
                "{refused:?}"
            );
        }
    });
    let told = log.wait_for("SupervisorPanicked");
    assert!(told.contains("restart the server"), "{told}");
}

#[test]
fn small_response_is_complete_and_names_its_child() {
    let (pool, ..) = start(config(2));
    on_front(async {
        let mut run = pool.start(request("/hello", ScriptBody::Empty));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Head(h)) if h.status == 200));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Body(b)) if &b[..] == b"hello"));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::End)));
        assert!(run.timing().child.is_some() && run.timing().queued.is_some());
        assert_eq!(pool.status().accepted_requests, 1);
    });
}

#[test]
fn two_front_threads_get_responses_to_two_thousand_requests() {
    let (pool, ..) = start(config(3));
    std::thread::scope(|s| {
        for front in 0..2 {
            let pool = &pool;
            s.spawn(move || {
                let runtime = support::front_runtime(front);
                runtime.block_on(async {
                    let mut tasks = tokio::task::JoinSet::new();
                    for _ in 0..50 {
                        let pool = pool.clone();
                        tasks.spawn(async move {
                            for _ in 0..20 {
                                assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
                            }
                        });
                    }
                    while let Some(done) = tasks.join_next().await {
                        done.unwrap();
                    }
                });
            });
        }
    });
    assert_eq!(pool.status().accepted_requests, 2000);
    assert_eq!(pool.status().queue, 0);
}

#[test]
fn large_bodies_pass_both_ways_through_the_small_rings() {
    let (pool, ..) = start(config(1));
    on_front(async {
        assert_eq!(
            get(&pool, "/big/4000000").await.unwrap().body,
            bytes(4_000_000)
        );
        let body = bytes(4_000_000);
        let run = pool.start(request("/echo", ScriptBody::Memory(body.clone())));
        assert!(finish(run).await.unwrap().body == body);
    });
}

#[test]
fn body_may_be_read_from_a_file() {
    let (pool, ..) = start(config(1));
    on_front(async {
        let body = bytes(300_000);
        let mut file = rustix_tempfile();
        std::io::Write::write_all(&mut file, &body).unwrap();
        let run = pool.start(request("/echo", ScriptBody::File(file, body.len() as u64)));
        assert!(finish(run).await.unwrap().body == body);
        // A file that is shorter than stated is a named error, and the body is not padded.
        let file = rustix_tempfile();
        let run = pool.start(request("/echo", ScriptBody::File(file, 10)));
        assert_eq!(finish(run).await.unwrap_err(), ExecError::BodyUnreadable);
    });
}

fn rustix_tempfile() -> std::fs::File {
    rustix::fs::memfd_create("body", rustix::fs::MemfdFlags::CLOEXEC)
        .unwrap()
        .into()
}

#[test]
fn streamed_body_arrives_in_order_and_its_cut_is_seen() {
    let (pool, ..) = start(config(1));
    on_front(async {
        for cut in [false, true] {
            let (tx, rx) = tokio::sync::mpsc::channel(1);
            let run = pool.start(request("/echo", ScriptBody::Stream(rx)));
            let sender = tokio::spawn(async move {
                for _ in 0..10 {
                    tx.send(Ok(bytes(50_000))).await.unwrap();
                }
                if cut {
                    tx.send(Err(BodyCutOff)).await.unwrap();
                }
            });
            let body = finish(run).await.unwrap().body;
            sender.await.unwrap();
            assert_eq!(body.ends_with(b"CUT OFF"), cut);
            assert_eq!(body.len(), if cut { 500_007 } else { 500_000 });
        }
    });
}

#[test]
fn flush_arrives_before_the_end_and_a_dropped_run_frees_the_child() {
    let (pool, ..) = start(config(1));
    on_front(async {
        let mut run = pool.start(request("/flush", ScriptBody::Empty));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Head(_))));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Body(b)) if &b[..] == b"one"));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Flush)));
        drop(run);
        // The only child is free again.
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
}

#[test]
fn client_that_leaves_a_large_response_unread_frees_the_child() {
    let (pool, ..) = start(config(1));
    on_front(async {
        let mut run = pool.start(request("/big/4000000", ScriptBody::Empty));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Head(_))));
        drop(run);
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
}

#[test]
fn finished_response_frees_the_client_while_the_child_stays_busy() {
    let mut config = config(1);
    config.queue_timeout = Duration::from_millis(50);
    let (pool, ..) = start(config);
    on_front(async {
        assert_eq!(get(&pool, "/finish").await.unwrap().body, b"answered");
        // A child may serve before the supervisor has put it on the scoreboard.
        until("it is on the scoreboard", || {
            !pool.status().children.is_empty()
        })
        .await;
        let row = &pool.status().children[0];
        assert_eq!(row.state, "Finishing");
        assert_eq!(row.uri, "/finish");
        assert_eq!(
            get(&pool, "/hello").await.unwrap_err(),
            ExecError::QueueTimeout
        );
    });
}

#[test]
fn log_message_of_a_script_names_its_request() {
    let (pool, log, _) = start(config(1));
    on_front(async {
        get(&pool, "/log").await.unwrap();
    });
    log.wait_for("request 7 level 4: bewar");
}

#[test]
fn invalid_responses_are_named_and_their_child_is_replaced() {
    let (pool, log, _) = start(config(1));
    on_front(async {
        assert_eq!(
            get(&pool, "/nothing").await.unwrap_err(),
            ExecError::ResponseMissing
        );
        let error = get(&pool, "/nonsense").await.unwrap_err();
        assert_eq!(error.name(), "ResponseInvalid");
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
    log.wait_for("ResponseInvalid");
}

#[test]
fn queue_overflow_is_refused_at_once_and_a_late_request_in_time() {
    let mut config = config(2);
    config.queue_size = 3;
    config.queue_timeout = Duration::from_millis(100);
    let (pool, ..) = start(config);
    on_front(async {
        let hung: Vec<_> = (0..2)
            .map(|_| pool.start(request("/hang", ScriptBody::Empty)))
            .collect();
        let mut waiting: Vec<_> = (0..3)
            .map(|_| pool.start(request("/hello", ScriptBody::Empty)))
            .collect();
        assert_eq!(
            get(&pool, "/hello").await.unwrap_err(),
            ExecError::QueueFull
        );
        for run in waiting.drain(..) {
            assert_eq!(finish(run).await.unwrap_err(), ExecError::QueueTimeout);
        }
        assert_eq!(pool.status().queue, 0);
        assert_eq!(pool.status().max_queue, 3);
        drop(hung);
    });
}

/// Regression test: a script handled SIGTERM and ended within the time until SIGKILL. Its child claimed the next
/// request, was killed with it, and that request's client got a 504.
#[test]
fn terminated_child_claims_no_other_request() {
    let mut config = config(1);
    config.request_terminate_timeout = Some(Duration::from_millis(60));
    let (pool, ..) = start(config);
    on_front(async {
        let late = pool.start(request("/stubborn", ScriptBody::Empty));
        let next = pool.start(request("/hello-unless-terminated", ScriptBody::Empty));
        assert_eq!(finish(late).await.unwrap_err(), ExecError::TerminateTimeout);
        assert_eq!(finish(next).await.unwrap().body, b"hello");
    });
}

#[test]
fn terminate_timeout_ends_the_request_at_once_and_replaces_the_child() {
    let mut config = config(1);
    config.request_terminate_timeout = Some(Duration::from_millis(60));
    config.request_slowlog_timeout = Some(Duration::from_millis(20));
    let (pool, log, _) = start(config);
    on_front(async {
        assert_eq!(
            get(&pool, "/hang").await.unwrap_err(),
            ExecError::TerminateTimeout
        );
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
        assert_eq!(pool.status().slow_requests, 1);
    });
    log.wait_for("TerminateTimeout");
    let slow = log.wait_for("SlowRequest");
    assert!(
        slow.contains("GET /hang") && slow.contains("sleep() /fake.php:3"),
        "{slow}"
    );
}

#[test]
fn zygote_start_failure_is_named_to_requests_and_retried() {
    let launcher = Arc::new(FakeLauncher::default());
    launcher
        .first_reports
        .lock()
        .unwrap()
        .push(howdah_proto::control::ZygoteReport::Failed {
            name: "PhpStartup".into(),
            message: "no such extension: x".into(),
        });
    let log = Arc::new(TestLog::default());
    let pool = EmbedPool::start(config(1), launcher, log.clone(), 1).unwrap();
    on_front(async {
        let early = pool.start(request("/hello", ScriptBody::Empty));
        let down = pool.ready().await.unwrap_err();
        assert!(matches!(&down, ExecError::PoolDown { name, .. } if name == "PhpStartup"));
        assert_eq!(finish(early).await.unwrap_err(), down);
        assert_eq!(get(&pool, "/hello").await.unwrap_err(), down);
        log.wait_for("PhpStartup: no such extension");
        // The start is retried until it succeeds.
        until("it is ready", || pool.condition() == PoolCondition::Ready).await;
        assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
    });
}

#[test]
fn drain_finishes_running_requests_and_sends_the_rest_to_the_successor() {
    let (old, ..) = start(config(1));
    let (new, ..) = start(config(1));
    on_front(async {
        let mut run = old.start(request("/big/500000", ScriptBody::Empty));
        assert!(matches!(next_event(&mut run).await, Ok(RunEvent::Head(_))));
        let queued = old.start(request("/hello", ScriptBody::Empty));
        old.drain(Some(new.clone()), Duration::from_secs(20));
        assert_eq!(get(&old, "/hello").await.unwrap().body, b"hello");
        assert_eq!(new.status().accepted_requests, 1);
        assert_eq!(finish(run).await.unwrap().body.len(), 500_000);
        assert_eq!(finish(queued).await.unwrap().body, b"hello");
        old.drained().await;
        assert_eq!(old.status().children.len(), 0);
        new.drain(None, Duration::from_secs(20));
        assert_eq!(get(&new, "/hello").await.unwrap_err(), ExecError::Stopping);
        new.drained().await;
    });
}

#[test]
fn drain_does_not_wait_longer_than_its_limit_for_a_hung_child() {
    let (pool, ..) = start(config(1));
    on_front(async {
        let run = pool.start(request("/hang", ScriptBody::Empty));
        let queued = pool.start(request("/hello", ScriptBody::Empty));
        pool.ready().await.unwrap();
        pool.drain(None, Duration::from_millis(50));
        assert_eq!(finish(queued).await.unwrap_err(), ExecError::Stopping);
        assert_eq!(finish(run).await.unwrap_err(), ExecError::Stopping);
        pool.drained().await;
    });
}

#[test]
fn zygote_of_another_build_is_refused_by_name() {
    let launcher = Arc::new(FakeLauncher::default());
    let other = howdah_proto::control::ZygoteReport::Ready {
        version: 99,
        php: howdah_proto::control::StartedPhp::default(),
    };
    launcher.first_reports.lock().unwrap().push(other);
    let log = Arc::new(TestLog::default());
    let pool = EmbedPool::start(config(1), launcher, log, 1).unwrap();
    on_front(async {
        let error = pool.ready().await.unwrap_err();
        assert!(matches!(&error, ExecError::PoolDown { name, .. } if name == "OtherVersion"));
    });
}

#[test]
fn front_thread_that_hangs_does_not_delay_others() {
    let (pool, ..) = start(config(1));
    let (hung, is_hung) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|s| {
        let other = pool.clone();
        s.spawn(move || {
            support::front_runtime(1).block_on(async {
                let run = other.start(request("/hello", ScriptBody::Empty));
                // The test blocks this front thread, which the server's code must never do.
                hung.send(()).unwrap();
                may_go_on.recv().unwrap();
                assert_eq!(finish(run).await.unwrap().body, b"hello");
            });
        });
        is_hung.recv().unwrap();
        on_front(async {
            for _ in 0..100 {
                assert_eq!(get(&pool, "/hello").await.unwrap().body, b"hello");
            }
        });
        go_on.send(()).unwrap();
    });
}

#[test]
fn run_started_outside_a_front_thread_is_refused_by_name() {
    let (pool, ..) = start(config(1));
    let refused = std::thread::spawn(move || {
        let mut run = pool.start(request("/hello", ScriptBody::Empty));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        run.poll_event(&mut cx)
    });
    let std::task::Poll::Ready(Err(ExecError::PoolDown { name, .. })) = refused.join().unwrap()
    else {
        panic!("not refused");
    };
    assert_eq!(name, "NotAFrontThread");
}

#[test]
fn queue_time_is_the_time_before_the_child_began() {
    let (pool, ..) = start(config(1));
    on_front(async {
        pool.ready().await.unwrap();
        let mut run = pool.start(request("/flush", ScriptBody::Empty));
        while !matches!(next_event(&mut run).await.unwrap(), RunEvent::Flush) {}
        let mut queued = pool.start(request("/hello", ScriptBody::Empty));
        let pause = Duration::from_millis(30);
        tokio::time::sleep(pause).await;
        drop(run);
        while !matches!(next_event(&mut queued).await.unwrap(), RunEvent::End) {}
        let waited = queued.timing().queued.unwrap();
        assert!(waited >= pause && waited < pause * 100, "{waited:?}");
    });
}

#[test]
fn max_children_beyond_the_scoreboard_is_refused() {
    for (children, fits) in [(0, false), (1, true), (1000, true), (1001, false)] {
        let launcher = Arc::new(FakeLauncher::default());
        let mut config = config(children);
        config.pm = howdah_executor::config::ProcessManager::Ondemand;
        let pool = EmbedPool::start(config, launcher, Arc::new(TestLog::default()), 1);
        assert_eq!(pool.is_ok(), fits, "{children}");
    }
}
