//! The number of processes, their replacement, and the end of a pool, with real PHP.

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use howdah_executor::config::ProcessManager;
use howdah_executor::embed::EmbedPool;
use howdah_executor::{ExecError, Executor, RunEvent, ScriptBody};
use support::php::PhpSite;
use support::{bytes, config, finish, next_event, on_front, until};

#[test]
fn scripts_see_nothing_of_the_preloaded_library() {
    // A descriptor of the library would show its path.
    let code = "<?php var_dump(getenv('LD_PRELOAD'), str_contains(file_get_contents('/proc/self/environ'), 'PRELOAD'));
        foreach (glob('/proc/self/fd/*') as $fd) if (str_contains(@readlink($fd), '.so')) echo readlink($fd);
        echo shell_exec('env | grep PRELOAD');";
    for site in [
        PhpSite::new(config(1)),
        PhpSite::with_library_at_separators(config(1)),
    ] {
        site.script("look.php", code);
        on_front(async {
            site.pool.ready().await.unwrap();
            let answer = site.get("look.php").await.unwrap();
            assert_eq!(
                String::from_utf8_lossy(&answer.body),
                "bool(false)\nbool(false)\n"
            );
        });
    }
}

/// Requests `script` on `clients` tasks until `enough` returns true. Every request must succeed.
async fn load(
    site: &PhpSite,
    pool: &dyn Fn() -> Arc<EmbedPool>,
    clients: usize,
    enough: impl Fn() -> bool,
) -> u64 {
    let done = Rc::new(Cell::new(0));
    let clients = (0..clients).map(|_| async {
        while !enough() {
            let run = pool().start(site.request("pid.php", "", ScriptBody::Empty));
            let answer = finish(run).await.expect("no request fails");
            assert_eq!(answer.head.status, 200);
            assert!(answer.body.starts_with(b"pid "));
            done.set(done.get() + 1);
        }
    });
    futures_join(clients).await;
    done.get()
}

/// Polls futures concurrently on this task until all have finished.
async fn futures_join<F: Future<Output = ()>>(futures: impl Iterator<Item = F>) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(move |cx| {
        futures.retain_mut(|f| f.as_mut().poll(cx).is_pending());
        if futures.is_empty() {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

fn pids(pool: &EmbedPool) -> Vec<i32> {
    let status = pool.status();
    let forked = status
        .children
        .iter()
        .map(|c| c.pid)
        .filter(|pid| *pid != 0);
    let mut pids: Vec<i32> = forked.collect();
    pids.sort_unstable();
    pids
}

const PID: &str = "<?php echo 'pid ', getmypid();";

#[test]
fn children_are_replaced_at_max_requests_under_load_without_a_failed_request() {
    let mut config = config(3);
    config.max_requests = 50;
    let site = PhpSite::new(config);
    site.script("pid.php", PID);
    on_front(async {
        site.pool.ready().await.unwrap();
        until("three children", || pids(&site.pool).len() == 3).await;
        let first = pids(&site.pool);
        let pool = || site.pool.clone();
        let done = load(&site, &pool, 10, || {
            pids(&site.pool).iter().all(|p| !first.contains(p))
        })
        .await;
        assert!(done >= 150, "{done}");
    });
    assert_eq!(site.log.count("ChildDied"), 0, "{:?}", site.log.all());
}

#[test]
fn max_requests_is_exact_for_every_process() {
    let mut config = config(2);
    config.max_requests = 10;
    let site = PhpSite::new(config);
    site.script("pid.php", PID);
    let by = std::cell::RefCell::new(std::collections::HashMap::<Vec<u8>, u32>::new());
    on_front(async {
        site.pool.ready().await.unwrap();
        let clients = (0..8).map(|_| async {
            for _ in 0..25 {
                let body = site.get("pid.php").await.unwrap().body;
                *by.borrow_mut().entry(body).or_default() += 1;
            }
        });
        futures_join(clients).await;
    });
    let by = by.into_inner();
    assert_eq!(by.values().sum::<u32>(), 200);
    assert!(by.values().all(|n| *n <= 10), "{by:?}");
    // All processes except those that were serving at the end.
    let whole = by.values().filter(|n| **n == 10).count();
    assert!(whole + 2 >= by.len() - 1, "{by:?}");
    assert_eq!(site.log.count("ChildDied"), 0, "{:?}", site.log.all());
}

#[test]
fn child_that_has_grown_is_replaced_between_requests() {
    let mut config = config(1);
    config.max_memory = Some(60 << 20);
    let site = PhpSite::new(config);
    site.script("pid.php", PID);
    // The script grows to more than `max_memory` and waits for the gate.
    site.script(
        "grow.php",
        "<?php ini_set('memory_limit', '-1'); $a = str_repeat('a', 100 << 20); echo strlen($a); flush();
         while (!file_exists(__DIR__.'/gate')) { usleep(1000); clearstatcache(); }",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        finish(site.start("pid.php", ScriptBody::Empty))
            .await
            .unwrap();
        let before = pids(&site.pool);
        let mut run = site.start("grow.php", ScriptBody::Empty);
        while !matches!(next_event(&mut run).await.unwrap(), RunEvent::Flush) {}
        // The child is found to be too large while it runs the script. It is retired, but its response is completed.
        until("a replacement", || pids(&site.pool).len() == 2).await;
        std::fs::write(site.path("gate"), "").unwrap();
        while !matches!(next_event(&mut run).await.unwrap(), RunEvent::End) {}
        until("the old one leaves", || {
            let now = pids(&site.pool);
            now.len() == 1 && now != before
        })
        .await;
    });
}

#[test]
fn ondemand_pool_forks_for_a_burst_and_shrinks_to_zero() {
    let mut config = config(6);
    config.pm = ProcessManager::Ondemand;
    config.process_idle_timeout = Duration::from_millis(100);
    let site = PhpSite::new(config);
    site.script("nap.php", "<?php usleep(100000); echo 'pid ', getmypid();");
    on_front(async {
        site.pool.ready().await.unwrap();
        assert_eq!(pids(&site.pool).len(), 0);
        let runs: Vec<_> = (0..6)
            .map(|_| site.start("nap.php", ScriptBody::Empty))
            .collect();
        let mut by = std::collections::HashSet::new();
        for run in runs {
            by.insert(finish(run).await.unwrap().body);
        }
        assert!(by.len() >= 5, "six at once need six children: {}", by.len());
        until("all have left", || pids(&site.pool).is_empty()).await;
    });
}

#[test]
fn asleep_pool_has_no_process_before_its_first_request() {
    let mut config = config(2);
    config.pm = ProcessManager::Ondemand;
    let site = PhpSite::asleep(config.clone());
    site.script("pid.php", PID);
    on_front(async {
        site.pool.ready().await.unwrap();
        assert!(site.pool.is_asleep());
        assert_eq!(site.pool.status().state, "Asleep");
        let answer = site.get("pid.php").await.unwrap();
        assert!(answer.body.starts_with(b"pid "));
        assert!(!site.pool.is_asleep());
        assert_eq!(site.pool.status().state, "Ready");
    });
    // A pool without requests ends at once.
    let site = PhpSite::asleep(config.clone());
    on_front(async {
        site.pool.drain(None, Duration::from_secs(20));
        site.pool.drained().await;
    });
    // A pool that cannot start reports this to its first request.
    config.user = Some("no-such-user-here".to_owned());
    let site = PhpSite::asleep(config);
    on_front(async {
        site.pool.ready().await.unwrap();
        let error = site.get("pid.php").await.unwrap_err();
        assert!(matches!(error, ExecError::PoolDown { name, .. } if name == "NoSuchUser"));
    });
}

#[test]
fn dynamic_pool_starts_with_start_servers_and_keeps_spares() {
    let mut config = config(6);
    config.pm = ProcessManager::Dynamic {
        start_servers: 2,
        min_spare_servers: 1,
        max_spare_servers: 2,
    };
    config.process_idle_timeout = Duration::from_millis(100);
    let site = PhpSite::new(config);
    site.script("nap.php", "<?php usleep(200000); echo 1;");
    on_front(async {
        site.pool.ready().await.unwrap();
        until("start_servers", || pids(&site.pool).len() == 2).await;
        let runs: Vec<_> = (0..6)
            .map(|_| site.start("nap.php", ScriptBody::Empty))
            .collect();
        until("max_children", || pids(&site.pool).len() == 6).await;
        for run in runs {
            finish(run).await.unwrap();
        }
        until("max_spare_servers", || pids(&site.pool).len() == 2).await;
    });
}

#[test]
fn opcache_reset_in_a_loop_under_load_fails_no_request() {
    let site = PhpSite::new(config(3));
    site.script("pid.php", PID);
    site.script(
        "reset.php",
        "<?php echo opcache_reset() ? 'reset' : 'under way';",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        let resets = Cell::new(0);
        let pool = || site.pool.clone();
        let resetting = async {
            while resets.get() < 100 {
                let answer = site.get("reset.php").await.unwrap();
                // This is false while an earlier reset waits for a moment without readers.
                if answer.body == b"reset" {
                    resets.set(resets.get() + 1);
                } else {
                    assert_eq!(answer.body, b"under way");
                }
            }
        };
        let (_, done) = tokio::join!(resetting, load(&site, &pool, 8, || resets.get() == 100));
        assert!(done > 100, "{done}");
    });
    assert_eq!(site.log.count("ChildDied"), 0, "{:?}", site.log.all());
}

#[test]
fn pools_are_exchanged_under_load_without_a_failed_request() {
    let site = PhpSite::new(config(2));
    site.script("pid.php", PID);
    on_front(async {
        site.pool.ready().await.unwrap();
        let current = std::cell::RefCell::new(site.pool.clone());
        let rounds = Cell::new(0);
        let exchange = async {
            for _ in 0..20 {
                let new = site.second_pool(config(2));
                new.ready().await.unwrap();
                let old = current.replace(new.clone());
                old.drain(Some(new), Duration::from_secs(20));
                old.drained().await;
                assert!(pids(&old).is_empty());
                rounds.set(rounds.get() + 1);
            }
        };
        let pool = || current.borrow().clone();
        let (_, done) = tokio::join!(exchange, load(&site, &pool, 8, || rounds.get() == 20));
        assert!(done > 100, "{done}");
    });
    assert_eq!(site.log.count("ChildDied"), 0, "{:?}", site.log.all());
}

#[test]
fn large_bodies_arrive_unchanged_from_memory_and_from_a_file() {
    let site = PhpSite::new(config(1));
    site.script(
        "echo.php",
        "<?php $in = fopen('php://input', 'r'); fpassthru($in);",
    );
    on_front(async {
        let body = bytes(4 << 20);
        let run = site.start("echo.php", ScriptBody::Memory(body.clone()));
        assert!(finish(run).await.unwrap().body == body);
        let path = site.path("spool");
        std::fs::write(&path, &body).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let run = site.start("echo.php", ScriptBody::File(file, body.len() as u64));
        assert!(finish(run).await.unwrap().body == body);
    });
}

#[test]
fn gigabyte_bodies_do_not_grow_memory() {
    let site = PhpSite::new(config(1));
    site.script(
        "up.php",
        "<?php ini_set('enable_post_data_reading', 0); $n = 0; $in = fopen('php://input', 'r');
         while (!feof($in)) { $n += strlen(fread($in, 65536)); } echo $n;",
    );
    site.script(
        "down.php",
        "<?php $piece = str_repeat('x', 65536);
         for ($i = 0; $i < $_GET['pieces']; $i++) { echo $piece; }",
    );
    on_front(async {
        site.pool.ready().await.unwrap();
        let down = |pieces: &str| {
            let query = format!("pieces={pieces}");
            let request = site.request("down.php", &query, ScriptBody::Empty);
            site.pool.start(request)
        };
        finish(down("64")).await.unwrap();
        let resident = |pid: &str| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
            text.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096
        };
        let child = site.pid(0).await.to_string();
        let (front_before, child_before) = (resident("self"), resident(&child));
        let mut run = down("16384");
        let mut n = 0u64;
        loop {
            match next_event(&mut run).await.unwrap() {
                RunEvent::Body(bytes) => n += bytes.len() as u64,
                RunEvent::End => break,
                _ => {}
            }
        }
        assert_eq!(n, 1 << 30);
        let (tx, rx) = tokio::sync::mpsc::channel(4);
        let run = site.start("up.php", ScriptBody::Stream(rx));
        let feed = async move {
            let piece = bytes(1 << 20);
            for _ in 0..1024 {
                tx.send(Ok(piece.clone())).await.unwrap();
            }
        };
        let (answer, ()) = tokio::join!(finish(run), feed);
        assert_eq!(answer.unwrap().body, b"1073741824");
        let grown = (resident("self") - front_before) >> 20;
        assert!(grown < 32, "the front grew by {grown} MiB");
        let grown = (resident(&child) - child_before) >> 20;
        assert!(grown < 32, "the child grew by {grown} MiB");
    });
}
