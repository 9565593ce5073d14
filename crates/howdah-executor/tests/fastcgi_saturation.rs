//! FastCGI backends that are full, missing, slow or stopped: requests wait, and are refused with a named error only
//! after their deadline.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use howdah_executor::config::FastCgiConfig;
use howdah_executor::fastcgi::FastCgiPool;
use howdah_executor::{ExecError, Executor, ScriptBody, ScriptPool};

use support::backend::{
    ScriptedBackend, ScriptedConnection, backend, fastcgi_config as config, serve,
};
use support::{
    CollectedResponse, TEST_TIMEOUT, TestLog, finish, front_runtime, next_event, on_front, request,
    until,
};

async fn start(config: FastCgiConfig) -> (Arc<FastCgiPool>, Arc<TestLog>) {
    let log = Arc::new(TestLog::default());
    let pool = FastCgiPool::start(config, log.clone(), 2).unwrap();
    pool.ready().await.unwrap();
    (pool, log)
}

async fn get(pool: &Arc<FastCgiPool>) -> Result<CollectedResponse, ExecError> {
    finish(pool.start(request("/", ScriptBody::Empty))).await
}

/// Holds its request until the other end closes the connection.
fn hold(peer: &mut ScriptedConnection) {
    peer.request();
    peer.wait_for_close();
}

#[test]
fn full_backlog_is_waited_for() {
    // A listening socket on which no process accepts, with room for two connections.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let family = rustix::net::AddressFamily::UNIX;
    let kind = rustix::net::SocketType::STREAM;
    let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    on_front(async {
        let mut config = config(vec![backend(&path)]);
        config.max_connections = None;
        let (pool, _) = start(config).await;
        let runs: Vec<_> = (0..40)
            .map(|_| tokio::task::spawn(finish(pool.start(request("/", ScriptBody::Empty)))))
            .collect();
        until("the backlog is full", || {
            pool.status().backends[0].overflows > 0
        })
        .await;
        let limit = pool.status().backends[0].limit;
        assert!(limit < 16, "{limit}: it learns");
        // From now on connections are accepted.
        let listener = std::os::unix::net::UnixListener::from(socket);
        let acceptor = std::thread::spawn(move || respond_to_all(&listener, 40));
        for run in runs {
            assert_eq!(run.await.unwrap().unwrap().body, b"late");
        }
        acceptor.join().unwrap();
    });
}

fn respond_to_all(listener: &std::os::unix::net::UnixListener, mut requests: u32) {
    use std::io::{Read, Write};
    while requests > 0 {
        let (mut stream, _) = listener.accept().unwrap();
        let mut read = vec![0; 4096];
        match stream.read(&mut read) {
            // This connection is the pool's own probe, which the pool has abandoned.
            Ok(n) if n > 1 && read[1] == 9 => continue,
            Ok(0) | Err(_) => continue,
            Ok(_) => {}
        }
        let mut answer = support::backend::record(6, b"A: 1\r\n\r\nlate");
        answer.extend(support::backend::record(3, &[0; 8]));
        stream.write_all(&answer).unwrap();
        requests -= 1;
    }
}

#[test]
fn missing_backend_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    on_front(async {
        let mut config = config(vec![backend(&path)]);
        config.keep_connections = false;
        let (pool, log) = start(config).await;
        log.wait_for("BackendDown");
        assert!(pool.status().state.starts_with("Down (BackendDown)"));
        let runs: Vec<_> = (0..10)
            .map(|_| tokio::task::spawn(finish(pool.start(request("/", ScriptBody::Empty)))))
            .collect();
        let fake = ScriptedBackend::at(path, serve);
        for run in runs {
            run.await.unwrap().unwrap();
        }
        log.wait_for("BackendUp");
        // The backend restarts: its socket disappears and comes back, and no request fails.
        let path = fake.path.clone();
        drop(fake);
        let runs: Vec<_> = (0..10)
            .map(|_| tokio::task::spawn(finish(pool.start(request("/", ScriptBody::Empty)))))
            .collect();
        until("it is missed", || log.count("BackendDown") == 2).await;
        let _fake = ScriptedBackend::at(path, serve);
        for run in runs {
            run.await.unwrap().unwrap();
        }
    });
}

#[test]
fn backends_that_stay_away_are_refused_at_once_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    on_front(async {
        let mut config = config(vec![backend(&path)]);
        config.restart_time = Duration::ZERO;
        let (pool, _) = start(config).await;
        let error = get(&pool).await.unwrap_err();
        let ExecError::BackendDown { message } = &error else {
            panic!("{error:?}");
        };
        assert!(message.contains("No such file"), "{message}");
    });
}

#[test]
fn dead_backend_fails_no_request_while_another_works() {
    let directory = tempfile::tempdir().unwrap();
    let dead = directory.path().join("socket");
    let fake = ScriptedBackend::start(serve);
    on_front(async {
        let (pool, _) = start(config(vec![backend(&dead), fake.backend()])).await;
        for _ in 0..50 {
            get(&pool).await.unwrap();
        }
        assert_eq!(pool.status().backends[0].state, "Down");
    });
}

#[test]
fn backend_with_invalid_responses_is_excluded_while_another_works() {
    let mad = ScriptedBackend::start(|peer| {
        peer.request();
        peer.raw(b"SSH-2.0-OpenSSH_9.2\r\n");
    });
    let sane = ScriptedBackend::start(serve);
    on_front(async {
        let (pool, log) = start(config(vec![mad.backend(), sane.backend()])).await;
        for _ in 0..10 {
            let together = (0..8).map(|_| pool.start(request("/", ScriptBody::Empty)));
            let together: Vec<_> = together.map(|run| tokio::spawn(finish(run))).collect();
            for run in together {
                run.await.unwrap().unwrap();
            }
        }
        let line = log.wait_for("BackendDown");
        assert!(line.contains("Version(83)"), "{line}");
        assert!(mad.seen().len() < 10, "{}", mad.seen().len());
    });
}

#[test]
fn connections_of_both_threads_stay_within_the_limit() {
    let fake = ScriptedBackend::start(serve);
    let pool = front_runtime(0)
        .block_on(start(config(vec![fake.backend()])))
        .0;
    let done = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..2)
        .map(|front| {
            let (pool, done) = (pool.clone(), done.clone());
            std::thread::spawn(move || {
                front_runtime(front).block_on(async {
                    let tasks: Vec<_> = (0..20)
                        .map(|_| {
                            let (pool, done) = (pool.clone(), done.clone());
                            tokio::task::spawn(async move {
                                for _ in 0..25 {
                                    get(&pool).await.unwrap();
                                    done.fetch_add(1, Ordering::Relaxed);
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(done.load(Ordering::Relaxed), 1000);
    let most = fake.ledger.max_open.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most}");
    assert!(
        fake.connections() < 100,
        "{}: they are used again",
        fake.connections()
    );
}

#[test]
fn queue_overflow_and_timeout_are_named() {
    let fake = ScriptedBackend::start(hold);
    on_front(async {
        let mut config = config(vec![fake.backend()]);
        config.max_connections = Some(1);
        config.queue_size = 1;
        config.queue_timeout = Duration::from_millis(100);
        let (pool, _) = start(config).await;
        let mut running = pool.start(request("/", ScriptBody::Empty));
        let waiting = pool.start(request("/", ScriptBody::Empty));
        assert_eq!(get(&pool).await.unwrap_err(), ExecError::QueueFull);
        assert_eq!(finish(waiting).await.unwrap_err(), ExecError::QueueTimeout);
        // The running request is not affected.
        let more = tokio::time::timeout(Duration::from_millis(200), next_event(&mut running));
        assert!(more.await.is_err());
    });
}

#[test]
fn terminate_timeout_closes_the_connection() {
    let fake = ScriptedBackend::start(hold);
    on_front(async {
        let mut config = config(vec![fake.backend()]);
        config.request_terminate_timeout = Some(Duration::from_millis(100));
        let (pool, _) = start(config).await;
        assert_eq!(get(&pool).await.unwrap_err(), ExecError::TerminateTimeout);
        until("its connection is closed", || fake.closed() == 1).await;
        assert_eq!(pool.status().active_processes, 0);
    });
}

#[test]
fn read_timeout_is_named() {
    let fake = ScriptedBackend::start(hold);
    on_front(async {
        let mut config = config(vec![fake.backend()]);
        config.read_timeout = Some(Duration::from_millis(100));
        let (pool, _) = start(config).await;
        assert_eq!(get(&pool).await.unwrap_err(), ExecError::BackendTimeout);
    });
}

#[test]
fn send_timeout_abandons_a_backend_that_reads_nothing() {
    let fake = ScriptedBackend::start(|peer| {
        peer.request_head();
        while peer.is_there() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    on_front(async {
        let mut config = config(vec![fake.backend()]);
        config.send_timeout = Duration::from_millis(100);
        let (pool, _) = start(config).await;
        let body = ScriptBody::Memory(support::bytes(5 << 20));
        let error = finish(pool.start(request("/", body))).await.unwrap_err();
        assert_eq!(error, ExecError::BackendTimeout);
    });
}

#[test]
fn drain_finishes_running_requests_and_ends_stuck_ones() {
    let fake = ScriptedBackend::start(|peer| {
        let seen = peer.request().unwrap();
        if seen.param("REQUEST_URI") == Some("/stuck") {
            peer.wait_for_close();
        } else {
            std::thread::sleep(Duration::from_millis(100));
            peer.answer("A: 1\r\n\r\ndone");
        }
    });
    on_front(async {
        let (old, _) = start(config(vec![fake.backend()])).await;
        let (new, _) = start(config(vec![fake.backend()])).await;
        let running = tokio::task::spawn(finish(old.start(request("/slow", ScriptBody::Empty))));
        let stuck = tokio::task::spawn(finish(old.start(request("/stuck", ScriptBody::Empty))));
        until("both run", || fake.seen().len() == 2).await;
        old.drain(Some(new.clone()), Duration::from_millis(500));
        assert_eq!(get(&old).await.unwrap().body, b"done", "by its successor");
        assert_eq!(new.status().accepted_requests, 1);
        assert_eq!(running.await.unwrap().unwrap().body, b"done");
        assert_eq!(stuck.await.unwrap().unwrap_err(), ExecError::Stopping);
        old.drained().await;
        let began = Instant::now();
        new.drain(None, TEST_TIMEOUT);
        assert_eq!(get(&new).await.unwrap_err(), ExecError::Stopping);
        new.drained().await;
        assert!(
            began.elapsed() < TEST_TIMEOUT,
            "an idle pool is gone at once"
        );
    });
}
