//! Mode `pool` with real php-cgi, as one program with children and as several programs, which are killed, hang, age, or
//! never come up.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::config::{ProcessManager, Processes, ProgramPoolConfig};
use howdah_executor::program_pool::ProgramPool;
use howdah_executor::{ExecError, Executor, ScriptBody, ScriptPool};

use support::programs::{
    Scripts, TestLauncher, kill, lives, program_pool_config as config, request, stop,
};
use support::{CollectedResponse, TEST_TIMEOUT, TestLog, bytes, finish, on_front, text, until};

#[test]
#[ignore = "not a test: the spawner's process, which the tests start"]
fn spawner_process() {
    support::programs::spawner_process();
}

const INDEPENDENT: Processes = Processes::Independent { connections: 1 };

struct ProgramPoolFixture {
    pool: Arc<ProgramPool>,
    log: Arc<TestLog>,
    launcher: Arc<TestLauncher>,
    scripts: Scripts,
}

impl ProgramPoolFixture {
    fn new(config: ProgramPoolConfig) -> ProgramPoolFixture {
        let (log, launcher) = (
            Arc::new(TestLog::default()),
            Arc::new(TestLauncher::default()),
        );
        ProgramPoolFixture {
            pool: ProgramPool::start(config, launcher.clone(), log.clone(), 1).unwrap(),
            log,
            launcher,
            scripts: Scripts::new(),
        }
    }

    async fn get(&self, script: &Path) -> Result<CollectedResponse, ExecError> {
        finish(self.pool.start(request(script, "", ScriptBody::Empty))).await
    }

    async fn text(&self, script: &Path) -> String {
        text(&self.get(script).await.unwrap())
    }

    fn pids(&self) -> Vec<i32> {
        let rows = self.pool.status().children;
        rows.iter()
            .map(|row| row.pid)
            .filter(|pid| *pid != 0)
            .collect()
    }
}

const PID: &str = "<?php echo getmypid();";

#[test]
fn php_responds_from_shared_and_independent_programs() {
    for processes in [Processes::Shared, INDEPENDENT] {
        let rig = ProgramPoolFixture::new(config(processes, 2));
        let script = rig.scripts.script(
            "echo.php",
            "<?php http_response_code(201); echo $_SERVER['QUERY_STRING'], '|', file_get_contents('php://input');",
        );
        on_front(async {
            rig.pool.ready().await.unwrap();
            let body = bytes(300_000);
            for _ in 0..3 {
                let run = rig
                    .pool
                    .start(request(&script, "a=1", ScriptBody::Memory(body.clone())));
                let answer = finish(run).await.unwrap();
                assert_eq!(answer.head.status, 201);
                assert!(answer.body == [b"a=1|", &body[..]].concat());
            }
        });
    }
}

#[test]
fn four_processes_respond_to_five_hundred_requests() {
    for processes in [Processes::Shared, INDEPENDENT] {
        let rig = ProgramPoolFixture::new(config(processes, 4));
        let script = rig.scripts.script("pid.php", PID);
        on_front(async {
            let mut runs = Vec::new();
            for _ in 0..500 {
                let run = rig.pool.start(request(&script, "", ScriptBody::Empty));
                runs.push(tokio::spawn(finish(run)));
            }
            let mut pids = std::collections::BTreeSet::new();
            for run in runs {
                pids.insert(text(&run.await.unwrap().unwrap()));
            }
            assert!(pids.len() <= 4, "{processes:?}: {pids:?}");
            assert!(rig.pool.status().max_active_processes <= 4);
        });
    }
}

#[test]
fn children_of_one_program_share_an_opcache_and_independent_programs_do_not() {
    let script =
        "<?php echo opcache_get_status(false)['opcache_statistics']['num_cached_scripts'];";
    let opcache = |rig: &ProgramPoolFixture| {
        let php = rig.scripts.script("count.php", script);
        (0..3).for_each(|n| drop(rig.scripts.script(&format!("{n}.php"), PID)));
        php
    };
    let shared = ProgramPoolFixture::new(config(Processes::Shared, 3));
    let count = opcache(&shared);
    on_front(async {
        for n in 0..3 {
            let path = shared.scripts.0.join(format!("{n}.php"));
            shared.text(&path).await;
        }
        // Files of the current second are not cached (opcache.file_update_protection). What matters is that opcache is
        // on, and shared by all.
        assert!(shared.text(&count).await.parse::<u32>().is_ok());
        assert_eq!(shared.pids().len(), 1);
    });
}

#[test]
fn killed_program_fails_only_its_request_and_is_replaced() {
    let rig = ProgramPoolFixture::new(config(INDEPENDENT, 2));
    let die = rig.scripts.script(
        "die.php",
        "<?php echo 'half'; flush(); posix_kill(getmypid(), 9);",
    );
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        rig.pool.ready().await.unwrap();
        until("two serve", || rig.pool.status().idle_processes == 2).await;
        let before = rig.pids();
        // A GET would be repeated on the other program, and kill that, too.
        let body = ScriptBody::Memory(bytes(1));
        let outcome = finish(rig.pool.start(request(&die, "", body))).await;
        assert!(
            matches!(outcome, Err(ExecError::BackendClosed { .. })),
            "{outcome:?}"
        );
        assert!(before.contains(&rig.text(&pid).await.parse().unwrap()));
        until("another is there", || {
            let now = rig.pids();
            now.len() == 2 && now != before
        })
        .await;
    });
}

#[test]
fn killed_parent_is_replaced_with_its_children() {
    let rig = ProgramPoolFixture::new(config(Processes::Shared, 2));
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        let child: i32 = rig.text(&pid).await.parse().unwrap();
        let parent = rig.pids()[0];
        assert_ne!(child, parent);
        // A parent that dies at this age does not count as a failed start.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        kill(parent);
        until("its child is gone", || !lives(child)).await;
        let next: i32 = rig.text(&pid).await.parse().unwrap();
        assert_ne!(next, child);
    });
    rig.log.wait_for("ChildDied");
}

#[test]
fn hanging_script_is_ended_with_its_program_and_delays_no_request() {
    for processes in [Processes::Shared, INDEPENDENT] {
        let mut config = config(processes, 1);
        config.client.request_terminate_timeout = Some(Duration::from_millis(1000));
        let rig = ProgramPoolFixture::new(config);
        let hang = rig.scripts.script(
            "hang.php",
            "<?php file_put_contents('pid', getmypid()); while (true) sleep(600);",
        );
        let pid = rig.scripts.script("pid.php", PID);
        on_front(async {
            rig.pool.ready().await.unwrap();
            let outcome = rig.get(&hang).await;
            assert_eq!(outcome.err(), Some(ExecError::TerminateTimeout));
            let hanging = std::fs::read_to_string(rig.scripts.0.join("pid")).unwrap();
            let hanging: i32 = hanging.parse().unwrap();
            let next = rig.get(&pid).await.map(|answer| text(&answer));
            assert_ne!(
                next,
                Ok(hanging.to_string()),
                "{processes:?}: {:#?}",
                rig.log.all()
            );
            until("it is gone", || !lives(hanging)).await;
        });
        rig.log.wait_for("TerminateTimeout");
    }
}

#[test]
fn abandoned_script_does_not_delay_the_next_request() {
    let rig = ProgramPoolFixture::new(config(INDEPENDENT, 2));
    let slow = rig.scripts.script(
        "slow.php",
        "<?php file_put_contents('pid', getmypid()); while (!file_exists('go')) usleep(1000); echo 'late';",
    );
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        until("two serve", || rig.pool.status().idle_processes == 2).await;
        let mut run = rig.pool.start(request(&slow, "", ScriptBody::Empty));
        let path = rig.scripts.0.join("pid");
        let slow_pid = || std::fs::read_to_string(&path).ok()?.parse::<i32>().ok();
        let _ = tokio::time::timeout(Duration::from_millis(1), support::next_event(&mut run)).await;
        tokio::select! {
            _ = support::next_event(&mut run) => panic!("it has answered"),
            () = until("it runs", || slow_pid().is_some()) => {}
        }
        drop(run);
        for _ in 0..20 {
            assert_ne!(rig.text(&pid).await.parse().ok(), slow_pid());
        }
        std::fs::write(rig.scripts.0.join("go"), "").unwrap();
        until("it serves again", || rig.pool.status().idle_processes == 2).await;
        assert!(
            lives(slow_pid().unwrap()),
            "it was needlessly killed: {:#?}",
            rig.log.all()
        );
    });
}

#[test]
fn program_is_replaced_after_max_requests_without_a_failed_request() {
    let rig = ProgramPoolFixture::new(ProgramPoolConfig {
        max_requests: 5,
        ..config(INDEPENDENT, 1)
    });
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        let mut pids = std::collections::BTreeMap::<String, u32>::new();
        let since = std::time::Instant::now();
        while pids.len() < 4 {
            *pids.entry(rig.text(&pid).await).or_default() += 1;
            assert!(since.elapsed() < TEST_TIMEOUT, "not replaced: {pids:?}");
        }
        assert!(pids.values().all(|n| *n <= 5), "{pids:?}");
        assert_eq!(pids.values().filter(|n| **n == 5).count(), 3, "{pids:?}");
    });
}

#[test]
fn ondemand_programs_start_with_requests_and_exit_when_idle() {
    let rig = ProgramPoolFixture::new(ProgramPoolConfig {
        pm: ProcessManager::Ondemand,
        process_idle_timeout: Duration::from_millis(100),
        ..config(INDEPENDENT, 3)
    });
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        let run = rig.get(&pid).await;
        assert!(run.is_ok());
        until("it left", || rig.pool.status().children.is_empty()).await;
        assert!(rig.get(&pid).await.is_ok());
    });
}

#[test]
fn crash_loop_is_named_and_retried_with_growing_pauses() {
    let scripts = Scripts::new();
    let starts = scripts.0.join("starts");
    let program = scripts.sh("bad", &format!("echo x >>{}; exit 1", starts.display()));
    let rig = ProgramPoolFixture::new(ProgramPoolConfig {
        command: vec![program.to_str().unwrap().to_owned()],
        ..config(Processes::Shared, 2)
    });
    on_front(async {
        let Err(ExecError::PoolDown { name, message }) = rig.pool.ready().await else {
            panic!("it is ready");
        };
        assert_eq!(name, "CrashLoop");
        assert!(message.contains("exit code 1"), "{message}");
        let count = std::fs::read_to_string(&starts).unwrap().lines().count();
        assert_eq!(count, 5);
        let refused = rig.get(Path::new("/x.php")).await;
        assert!(
            matches!(refused, Err(ExecError::PoolDown { .. })),
            "{refused:?}"
        );
        // Once the program is repaired, the pool serves.
        scripts.sh("bad", "exec /usr/bin/php-cgi");
        let pid = rig.scripts.script("pid.php", PID);
        until("it serves", || rig.pool.status().state == "Ready").await;
        assert!(rig.get(&pid).await.is_ok());
    });
}

#[test]
fn program_that_is_not_fastcgi_is_named() {
    let scripts = Scripts::new();
    let program = scripts.script(
        "other.py",
        "#!/usr/bin/python3\nimport socket\nl = socket.socket(fileno=0)\nwhile True:\n    c, _ = l.accept()\n    c.sendall(b'HTTP/1.1 400 Bad Request\\r\\n\\r\\n')\n    c.close()\n",
    );
    let rig = ProgramPoolFixture::new(ProgramPoolConfig {
        command: vec![program.to_str().unwrap().to_owned()],
        ..config(INDEPENDENT, 1)
    });
    rig.log.wait_for("NotFastCgi");
}

#[test]
fn killed_spawner_ends_its_programs_and_another_serves() {
    let rig = ProgramPoolFixture::new(config(Processes::Shared, 2));
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        let child: i32 = rig.text(&pid).await.parse().unwrap();
        kill(rig.launcher.pid());
        until("its programs are gone", || !lives(child)).await;
        rig.log.wait_for("SpawnerDied");
        let next: i32 = rig.text(&pid).await.parse().unwrap();
        assert_ne!(next, child);
    });
}

#[test]
fn requests_wait_for_a_spawner_that_is_killed_repeatedly() {
    let rig = ProgramPoolFixture::new(config(Processes::Shared, 2));
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        for n in 1..=4 {
            // A spawner that is killed before it is ready has failed to start, which is a different case.
            rig.pool.ready().await.unwrap();
            rig.text(&pid).await;
            // The death of the previous spawner may be logged before the next one is started.
            until("it lives", || lives(rig.launcher.pid())).await;
            kill(rig.launcher.pid());
            until("it is gone", || rig.log.count("SpawnerDied") == n).await;
            // No request is refused, however soon after the last death.
            rig.text(&pid).await;
        }
    });
}

#[test]
fn stopped_spawner_is_killed_with_its_programs_and_another_serves() {
    let rig = ProgramPoolFixture::new(ProgramPoolConfig {
        spawner_timeout: Duration::from_secs(2),
        ..config(Processes::Shared, 2)
    });
    let pid = rig.scripts.script("pid.php", PID);
    on_front(async {
        let child: i32 = rig.text(&pid).await.parse().unwrap();
        stop(rig.launcher.pid());
        until("its programs are gone", || !lives(child)).await;
        rig.log.wait_for("SpawnerStuck");
        let next: i32 = rig.text(&pid).await.parse().unwrap();
        assert_ne!(next, child);
    });
}

#[test]
fn drained_pool_finishes_running_requests_and_leaves_no_process() {
    let rig = ProgramPoolFixture::new(config(Processes::Shared, 2));
    let next = ProgramPoolFixture::new(config(Processes::Shared, 2));
    let slow = rig.scripts.script(
        "slow.php",
        "<?php file_put_contents('runs', ''); while (!file_exists('go')) usleep(1000); echo getmypid();",
    );
    on_front(async {
        rig.pool.ready().await.unwrap();
        let run = tokio::spawn(finish(rig.pool.start(request(
            &slow,
            "",
            ScriptBody::Empty,
        ))));
        until("it runs", || rig.scripts.0.join("runs").exists()).await;
        rig.pool.drain(Some(next.pool.clone()), TEST_TIMEOUT);
        std::fs::write(rig.scripts.0.join("go"), "").unwrap();
        let pid: i32 = text(&run.await.unwrap().unwrap()).parse().unwrap();
        rig.pool.drained().await;
        until("its programs are gone", || !lives(pid)).await;
        assert!(!lives(rig.launcher.pid()));
        assert_ne!(
            rig.text(&slow).await.parse(),
            Ok(pid),
            "the successor answers"
        );
    });
}
