//! Pools of workers with the real `howdah-php`: failing boots, exiting workers, and restarts, during which no request
//! fails.

mod support;

use std::time::Duration;

use howdah_executor::{ExecError, Executor, ScriptBody};
use support::php::PhpSite;
use support::{config, on_front, until};

const LOOP: &str = "<?php $version = 'VERSION'; $n = 0;
while (frankenphp_handle_request(function () use ($version, &$n) {
    $do = $_GET['do'] ?? '';
    if ($do === 'exit') { echo 'left'; exit; }
    if ($do === 'crash') { posix_kill(getmypid(), SIGKILL); sleep(60); }
    if ($do === 'fatal') { echo 'half'; trigger_error('by hand', E_USER_ERROR); }
    if ($do === 'reset') { opcache_reset(); }
    if ($do === 'wait') { usleep(20000); }
    echo $version, ' ', getmypid(), ' ', ++$n;
})) {}";

fn version(text: &str) -> String {
    LOOP.replace("VERSION", text)
}

async fn get(site: &PhpSite, query: &str) -> Result<String, ExecError> {
    let request = site.request("index.php", query, ScriptBody::Empty);
    let answer = support::finish(site.pool.start(request)).await?;
    Ok(String::from_utf8_lossy(&answer.body).into_owned())
}

#[test]
fn worker_pool_is_ready_after_the_first_boot_and_serves_from_memory() {
    let site = PhpSite::worker(config(2), &version("a"));
    on_front(async {
        site.pool.ready().await.unwrap();
        // The file is gone; the code is in memory.
        std::fs::remove_file(site.path("worker.php")).unwrap();
        let first = get(&site, "").await.unwrap();
        assert!(first.starts_with("a "), "{first}");
        until("both workers are idle", || {
            let status = site.pool.status();
            status.children.iter().any(|c| c.state == "Idle")
        })
        .await;
        let status = site.pool.status();
        assert!(status.opcache && status.state == "Ready", "{status:?}");
    });
}

#[test]
fn boot_failure_is_logged_with_phps_message_and_ends_when_the_script_is_fixed() {
    for (text, name, part) in [
        (
            "<?php\n\nno_such_thing();",
            "WorkerBootFailed",
            "no_such_thing() in",
        ),
        ("<?php echo 'page';", "WorkerNeverAsked", "without calling"),
        (
            "<?php posix_kill(getmypid(), SIGSEGV);",
            "WorkerBootFailed",
            "SIGSEGV",
        ),
    ] {
        let counting = "<?php file_put_contents(__DIR__ . '/attempts', '.', FILE_APPEND);";
        let site = PhpSite::worker(config(2), &text.replacen("<?php", counting, 1));
        let attempts = || std::fs::read(site.path("attempts")).map_or(0, |dots| dots.len());
        on_front(async {
            let Err(ExecError::PoolDown { name: got, message }) = site.pool.ready().await else {
                panic!("ready: {text}");
            };
            assert_eq!(got, name, "{message}");
            assert!(
                message.contains(part) && message.contains("worker.php"),
                "{message}"
            );
            // Meanwhile requests are refused instead of waiting in vain.
            let refused = get(&site, "").await;
            assert!(
                matches!(refused, Err(ExecError::PoolDown { .. })),
                "{refused:?}"
            );
            // The failure of an attempt is logged before the next attempt begins.
            until("it has been tried three times", || attempts() >= 3).await;
            site.script("worker.php", &version("mended"));
            until("it is up", || site.pool.status().state == "Ready").await;
            assert!(get(&site, "").await.unwrap().starts_with("mended "));
        });
        let told = site.log.all().iter().filter(|l| l.contains(name)).count();
        assert_eq!(told, 1, "once, not at each attempt: {:?}", site.log.all());
    }
}

#[test]
fn boot_that_hangs_is_ended_by_name() {
    let mut config = config(1);
    config.timeouts.start = Duration::from_millis(800);
    let site = PhpSite::worker(config, "<?php sleep(600);");
    on_front(async {
        let down = site.pool.ready().await;
        let said = format!("{down:?}");
        assert!(said.contains("WorkerBootTimeout"), "{said}");
    });
}

#[test]
fn exit_and_fatal_errors_send_a_response_and_bring_a_fresh_worker() {
    let site = PhpSite::worker(config(1), &version("a"));
    on_front(async {
        for round in 0..3 {
            assert_eq!(get(&site, "do=exit").await.unwrap(), "left");
            let fresh = get(&site, "").await.unwrap();
            assert!(fresh.ends_with(" 1"), "{round}: {fresh}");
        }
        let fatal = get(&site, "do=fatal").await.unwrap();
        assert!(fatal.starts_with("half"), "{fatal}");
        let fresh = get(&site, "").await.unwrap();
        assert!(fresh.ends_with(" 1"), "{fresh}");
    });
    let lines = site.log.all();
    let died = lines.iter().filter(|l| l.contains("ChildDied")).count();
    assert_eq!(died, 1, "the fatal one; exit is no accident: {lines:?}");
}

#[test]
fn worker_crash_fails_only_its_request() {
    let site = PhpSite::worker(config(2), &version("a"));
    on_front(async {
        for _ in 0..3 {
            let crashed = get(&site, "do=crash").await;
            assert!(
                matches!(crashed, Err(ExecError::ChildDied(_))),
                "{crashed:?}"
            );
            assert!(get(&site, "").await.unwrap().starts_with("a "));
        }
    });
}

/// Runs requests until `done` returns true. Fails if a request fails.
async fn under_load(site: &PhpSite, mut done: impl FnMut(&str) -> bool) {
    let deadline = std::time::Instant::now() + support::TEST_TIMEOUT;
    loop {
        let four = ["do=wait", "", "do=wait", ""].map(|query| {
            let request = site.request("index.php", query, ScriptBody::Empty);
            site.pool.start(request)
        });
        let mut through = true;
        for run in four {
            let answer = support::finish(run)
                .await
                .unwrap_or_else(|e| panic!("{e}: {:?}", site.log.all()));
            through = done(&String::from_utf8_lossy(&answer.body)) && through;
        }
        if through {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "{:?}", site.log.all());
    }
}

#[test]
fn restart_replaces_all_workers_without_a_failed_request() {
    let site = PhpSite::worker(config(3), &version("old"));
    on_front(async {
        under_load(&site, |text| text.starts_with("old ")).await;
        site.script("worker.php", &version("new"));
        get(&site, "do=reset").await.unwrap();
        under_load(&site, |text| text.starts_with("new ")).await;
        until("the old zygote is gone", || {
            let status = site.pool.status();
            status.children.len() == 3
                && status
                    .children
                    .iter()
                    .all(|c| c.state == "Idle" || c.state == "Busy")
        })
        .await;
    });
    assert!(
        !site.log.all().iter().any(|l| l.contains("ChildDied")),
        "{:?}",
        site.log.all()
    );
}

#[test]
fn restart_with_a_broken_script_leaves_the_old_workers_serving() {
    let site = PhpSite::worker(config(2), &version("old"));
    on_front(async {
        under_load(&site, |text| text.starts_with("old ")).await;
        site.script("worker.php", "<?php this is no php");
        get(&site, "do=reset").await.unwrap();
        until("it has failed", || {
            site.log
                .all()
                .iter()
                .any(|l| l.contains("WorkerBootFailed"))
        })
        .await;
        let mut left = 10;
        under_load(&site, |text| {
            assert!(text.starts_with("old "), "{text}");
            left -= 1;
            left <= 0
        })
        .await;
        assert_eq!(site.pool.status().state, "Ready");
        site.script("worker.php", &version("mended"));
        under_load(&site, |text| text.starts_with("mended ")).await;
    });
}

#[test]
fn opcache_reset_restarts_the_workers_without_a_failed_request() {
    let site = PhpSite::worker(config(2), &version("a"));
    on_front(async {
        let mut asked = 0;
        under_load(&site, |_| {
            asked += 1;
            asked > 20
        })
        .await;
        for _ in 0..20 {
            assert!(get(&site, "do=reset").await.unwrap().starts_with("a "));
        }
        until("they restart", || {
            site.log.all().iter().any(|l| l.contains("WorkerRestart"))
        })
        .await;
        under_load(&site, |text| text.starts_with("a ")).await;
    });
    assert!(
        !site.log.all().iter().any(|l| l.contains("ChildDied")),
        "{:?}",
        site.log.all()
    );
}

#[test]
fn worker_at_max_requests_is_replaced_before_it_exits() {
    let mut config = config(2);
    config.max_requests = 5;
    let site = PhpSite::worker(config, &version("a"));
    on_front(async {
        let mut pids = std::collections::HashSet::new();
        under_load(&site, |text| {
            pids.extend(text.split(' ').nth(1).map(str::to_owned));
            pids.len() >= 5
        })
        .await;
    });
    assert!(
        !site.log.all().iter().any(|l| l.contains("ChildDied")),
        "{:?}",
        site.log.all()
    );
}

#[test]
fn worker_script_that_ends_its_loop_is_restarted_silently() {
    let text = "<?php for ($i = 0; $i < 3; $i++) { frankenphp_handle_request(function () { echo getmypid(); }); }";
    let site = PhpSite::worker(config(1), text);
    on_front(async {
        let mut pids = std::collections::HashSet::new();
        for _ in 0..12 {
            pids.insert(get(&site, "").await.unwrap());
        }
        assert_eq!(pids.len(), 4);
    });
    assert!(
        !site.log.all().iter().any(|l| l.contains("ChildDied")),
        "{:?}",
        site.log.all()
    );
}

#[test]
fn hanging_worker_request_is_traced_and_terminated() {
    let mut config = config(1);
    config.request_slowlog_timeout = Some(Duration::from_millis(100));
    config.request_terminate_timeout = Some(Duration::from_millis(600));
    let text = "<?php function hangs() { sleep(60); } while (frankenphp_handle_request(function () { if (isset($_GET['hang'])) hangs(); echo 'ok'; })) {}";
    let site = PhpSite::worker(config, text);
    on_front(async {
        let hung = get(&site, "hang=1").await;
        assert!(matches!(hung, Err(ExecError::TerminateTimeout)), "{hung:?}");
        assert_eq!(get(&site, "").await.unwrap(), "ok");
    });
    let lines = site.log.all().join("\n");
    assert!(
        lines.contains("SlowRequest") && lines.contains("hangs()"),
        "{lines}"
    );
}

#[test]
fn drain_lets_workers_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let tidy = dir.path().join("tidy");
    let text = format!(
        "<?php while (frankenphp_handle_request(function () {{ echo 'x'; }})) {{}} file_put_contents('{}', 'tidy');",
        tidy.display()
    );
    let site = PhpSite::worker(config(1), &text);
    on_front(async {
        assert_eq!(get(&site, "").await.unwrap(), "x");
        site.pool.drain(None, Duration::from_secs(20));
        site.pool.drained().await;
    });
    assert_eq!(std::fs::read_to_string(&tidy).unwrap(), "tidy");
}

/// A worker serves as soon as it has booted; the zygote's report of it may be late.
#[test]
fn drain_lets_a_worker_clean_up_before_its_boot_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (go, tidy) = (dir.path().join("go"), dir.path().join("tidy"));
    let text = format!(
        "<?php while (!file_exists('{}')) {{ usleep(1000); }}
        posix_kill(posix_getppid(), SIGSTOP);
        while (frankenphp_handle_request(function () {{ echo 'x'; }})) {{}}
        file_put_contents('{}', 'tidy');
        posix_kill(posix_getppid(), SIGCONT);",
        go.display(),
        tidy.display()
    );
    let site = PhpSite::worker(config(1), &text);
    on_front(async {
        until("it is known to boot", || {
            let children = site.pool.status().children;
            children.iter().any(|c| c.state == "Booting")
        })
        .await;
        std::fs::write(&go, "").unwrap();
        assert_eq!(get(&site, "").await.unwrap(), "x");
        site.pool.drain(None, Duration::from_secs(20));
        site.pool.drained().await;
    });
    assert_eq!(std::fs::read_to_string(&tidy).unwrap(), "tidy");
}

#[test]
fn watched_file_change_restarts_the_workers_without_a_failed_request() {
    let mut config = config(2);
    config.watch = vec!["lib/**/*.{php,ini}".to_owned()];
    let text = "<?php $v = @file_get_contents(__DIR__ . '/lib/deep/version.ini') ?: 'none';
        while (frankenphp_handle_request(function () use ($v) {
            if (isset($_GET['do'])) { opcache_reset(); }
            echo $v, ' ', getmypid();
        })) {}";
    let site = PhpSite::worker(config, text);
    on_front(async {
        site.pool.ready().await.unwrap();
        // lib/ was missing when the watch began. This is reported, and a restart sets the watch up again.
        assert!(get(&site, "").await.unwrap().starts_with("none "));
        assert!(
            site.log.all().iter().any(|l| l.contains("WatchIncomplete")),
            "{:?}",
            site.log.all()
        );
        std::fs::create_dir_all(site.path("lib/deep")).unwrap();
        get(&site, "do=reset").await.unwrap();
        until("a restart", || {
            site.log.all().iter().any(|l| l.contains("WorkerRestart"))
        })
        .await;
        under_load(&site, |text| text.starts_with("none ")).await;
        for version in ["one", "two"] {
            site.script("lib/deep/version.ini", version);
            under_load(&site, |text| text.starts_with(&format!("{version} "))).await;
        }
    });
    assert!(
        !site.log.all().iter().any(|l| l.contains("ChildDied")),
        "{:?}",
        site.log.all()
    );
}
