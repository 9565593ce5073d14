//! Mode `worker` over HTTP: the separation of concurrent visitors, a worker like that of Octane, starts and reloads
//! that fail, and deployments under load. The state that PHP itself keeps between requests is tested in howdah-php, and
//! a whole framework in `apps/symfony.rs`.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use howdah_tests::fixture::{Builder, Fixture};
use howdah_tests::http;
use howdah_tests::process::wait_until;
use howdah_tests::rig::howdah_program;
use howdah_tests::scratch::Scratch;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Builds a site with this worker script; `index.php` exists so that URLs can name it.
fn worker(name: &str, php: &str) -> Builder {
    Fixture::named(name)
        .script("index.php", "<?php echo 'not the worker';")
        .script("worker.php", php)
        .pool("mode = \"worker\"\nworker = \"SCRATCH/site/worker.php\"")
}

fn get_with(fixture: &Fixture, path: &str, header: &str) -> http::Response {
    let address = fixture.address();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}Connection: close\r\n\r\n");
    http::exchange(address, request.as_bytes()).expect("a response")
}

/// Each visitor logs in once and must then see the same user and secret in every response, and a visitor without a
/// cookie must see no user.
#[test]
fn sessions_of_concurrent_visitors_never_mix() {
    let fixture = worker(
        "worker-sessions",
        "<?php class State { public static int $requests = 0; }
         while (frankenphp_handle_request(function () {
            State::$requests++;
            if (isset($_GET['anonymous'])) {
                echo json_encode([$_SESSION ?? null, session_id(), $_COOKIE, $_REQUEST['user'] ?? null, $_POST]);
                return;
            }
            session_start();
            $_SESSION['user'] ??= $_GET['user'];
            $_SESSION['seen'] = ($_SESSION['seen'] ?? 0) + 1;
            usleep(random_int(0, 300));
            echo $_SESSION['user'], ' ', $_SESSION['seen'];
         })) {}",
    )
    .children(3)
    .start();
    const VISITORS: usize = 6;
    const VISITS: usize = 60;
    std::thread::scope(|scope| {
        for visitor in 0..VISITORS {
            let fixture = &fixture;
            scope.spawn(move || {
                let first = get_with(fixture, &format!("/index.php?user=u{visitor}"), "");
                assert_eq!(first.text(), format!("u{visitor} 1"));
                let cookie = first.header("Set-Cookie").expect("a session").to_owned();
                let cookie = cookie.split(';').next().unwrap();
                let cookie = format!("Cookie: {cookie}\r\n");
                for visit in 2..VISITS {
                    let answer = get_with(fixture, "/index.php?user=wrong", &cookie);
                    assert_eq!(answer.text(), format!("u{visitor} {visit}"));
                    assert!(answer.header("Set-Cookie").is_none(), "{answer:?}");
                    let nobody = get_with(fixture, "/index.php?anonymous", "");
                    assert_eq!(nobody.text(), r#"[null,"",[],null,[]]"#);
                }
            });
        }
    });
}

/// The worker takes the steps of Octane's bin/frankenphp-worker.php, with our own classes instead of Laravel's.
#[test]
fn worker_of_octanes_shape_runs_as_it_is_written() {
    let fixture = worker(
        "worker-octane",
        "<?php
        if ((! ($_SERVER['FRANKENPHP_WORKER'] ?? false)) || ! function_exists('frankenphp_handle_request')) {
            echo 'FrankenPHP must be in worker mode to use this script.';
            exit(1);
        }
        ignore_user_abort(true);
        final class Application {
            public int $handled = 0;
            public function boot(): static { error_reporting(-1); date_default_timezone_set('Europe/Paris');
                set_error_handler(function ($level, $message) { throw new ErrorException($message); }); return $this; }
            public function handle(): void {
                $this->handled++;
                if (($_GET['fail'] ?? '') === 'warning') { $nothing = []; echo $nothing['missing']; }
                if (($_GET['fail'] ?? '') === 'throw') throw new LogicException('thrown');
                header('Content-Type: text/plain'); header('Status: 202 Accepted');
                echo json_encode([$this->handled, $_SERVER['REQUEST_METHOD'], $_GET, $_POST, $_FILES['f']['name'] ?? null,
                    file_get_contents('php://input'), date_default_timezone_get(), getallheaders()['X-Thing'] ?? null]);
            }
            public function terminate(): void { file_put_contents('SCRATCH/site/terminated', $this->handled); }
        }
        try { $worker = (new Application)->boot(); } catch (Throwable $e) { fwrite(STDERR, $e); exit(1); }
        $requestCount = 0;
        $maxRequests = $_ENV['MAX_REQUESTS'] ?? $_SERVER['MAX_REQUESTS'] ?? 1000;
        $requestMaxExecutionTime = $_ENV['REQUEST_MAX_EXECUTION_TIME'] ?? $_SERVER['REQUEST_MAX_EXECUTION_TIME'] ?? null;
        if (PHP_OS_FAMILY === 'Linux' && ! is_null($requestMaxExecutionTime)) set_time_limit((int) $requestMaxExecutionTime);
        try {
            $handleRequest = static function () use ($worker) {
                try { $worker->handle(); }
                catch (Throwable $e) { http_response_code(500); header('Content-Type: text/plain'); echo 'Internal Server Error'; }
            };
            while ($requestCount < $maxRequests && frankenphp_handle_request($handleRequest)) { $requestCount++; }
        } finally { $worker?->terminate(); gc_collect_cycles(); }",
    )
    .pool("[pool.www.env]\nMAX_REQUESTS = \"7\"\nREQUEST_MAX_EXECUTION_TIME = \"30\"")
    .children(1)
    .start();
    let boundary = "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\r\nx\r\n--B\r\nContent-Disposition: form-data; name=\"p\"\r\n\r\n1\r\n--B--\r\n";
    let post = format!(
        "POST /index.php?a=b HTTP/1.1\r\nHost: x\r\nX-Thing: y\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=B\r\nContent-Length: {}\r\n\r\n{boundary}",
        boundary.len()
    );
    let answer = http::exchange(fixture.address(), post.as_bytes()).unwrap();
    assert_eq!(
        (answer.status(), answer.text().as_str()),
        (
            202,
            r#"[1,"POST",{"a":"b"},{"p":"1"},"a.txt","","Europe\/Paris","y"]"#
        )
    );
    for fail in ["warning", "throw"] {
        let answer = fixture.get(&format!("/index.php?fail={fail}"));
        assert_eq!(
            (answer.status(), answer.text().as_str()),
            (500, "Internal Server Error")
        );
    }
    // The seventh request is the worker's last one; the eighth reaches a new worker.
    for handled in [4, 5, 6, 7, 1, 2] {
        let answer = fixture.get("/index.php");
        assert_eq!(
            answer.text(),
            format!(r#"[{handled},"GET",[],[],null,"","Europe\/Paris",null]"#)
        );
    }
    assert_eq!(
        std::fs::read_to_string(fixture.path("site/terminated")).unwrap(),
        "7"
    );
}

#[test]
fn worker_script_that_does_not_boot_stops_the_start_with_phps_sentence() {
    for (php, name, part) in [
        (
            "<?php\n\nrequire 'vendor/autoload.php';",
            "WorkerBootFailed",
            "worker.php on line 3",
        ),
        (
            "<?php echo 'hello';",
            "WorkerNeverAsked",
            "frankenphp_handle_request()",
        ),
    ] {
        let scratch = Scratch::new("worker-no-boot");
        scratch.write("site/index.php", "<?php echo 1;");
        let script = scratch.write("site/worker.php", php);
        let output = Command::new(howdah_program())
            .arg("serve")
            .arg(scratch.join("site"))
            .args(["--listen", "127.0.0.1:0", "--control"])
            .arg(scratch.join("control.sock"))
            .arg("--worker")
            .arg(&script)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && !said.contains("listening on"),
            "{said}"
        );
        assert!(said.contains(name) && said.contains(part), "{said}");
    }
}

#[test]
fn deployments_under_load_lose_no_request_and_a_broken_one_is_refused() {
    let version = |v: &str| {
        format!(
            "<?php $v = '{v}'; while (frankenphp_handle_request(function () use ($v) {{ usleep(2000); echo $v; }})) {{}}"
        )
    };
    let fixture = worker("worker-deploy", &version("one")).children(3).start();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut answers = 0;
                    while !over.load(Ordering::Relaxed) {
                        let answer = fixture.get("/index.php");
                        assert_eq!(answer.status(), 200, "{}", fixture.howdah.process.log());
                        answers += 1;
                    }
                    answers
                })
            })
            .collect();
        let serves = |text: &str| {
            wait_until(text, MAX_WAIT, || fixture.get("/index.php").text() == text);
        };
        serves("one");
        fixture.write("site/worker.php", version("two"));
        fixture.reload();
        serves("two");
        fixture.write("site/worker.php", "<?php this is broken");
        let refused = fixture.control(&["reload"]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains("WorkerBootFailed"),
            "{said}"
        );
        serves("two");
        fixture.write("site/worker.php", version("three"));
        fixture.reload();
        serves("three");
        over.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().expect("every request was answered") > 10);
        }
    });
}

#[test]
fn watched_file_brings_new_workers_and_the_status_shows_them() {
    let fixture = worker(
        "worker-watch",
        "<?php $v = require __DIR__ . '/src/version.php'; while (frankenphp_handle_request(function () use ($v) { echo $v; })) {}",
    )
    .script("src/version.php", "<?php return 'one';")
    .pool("watch = [\"src/**/*.php\"]")
    .children(2)
    .start();
    assert_eq!(fixture.get("/index.php").text(), "one");
    let status = fixture.status().to_string();
    assert!(
        status.contains("\"Idle\"") || status.contains("\"Booting\""),
        "{status}"
    );
    fixture.write("site/src/version.php", "<?php return 'two';");
    wait_until("two", MAX_WAIT, || {
        fixture.get("/index.php").text() == "two"
    });
    fixture.wait_for_log(&["WorkerRestart", "watched file"]);
}

#[test]
fn crash_and_a_kill_cost_their_request_and_no_other() {
    let fixture = worker(
        "worker-crash",
        "<?php require 'GATES'; while (frankenphp_handle_request(function () {
            if (isset($_GET['gate'])) stand_at($_GET['gate']);
            if (isset($_GET['crash'])) posix_kill(getmypid(), 11);
            if (isset($_GET['fatal'])) { ini_set('memory_limit', '8M'); str_repeat('x', 1 << 30); }
            echo 'served'; })) {}",
    )
    .ini("display_errors", "Off")
    .children(2)
    .start();
    let gate = fixture.gate("held");
    let held = fixture.start_get("/index.php?gate=held");
    let standing = gate.wait();
    let crashed = fixture.get("/index.php?crash");
    assert_eq!(
        (crashed.status(), crashed.header("Howdah-Error")),
        (502, Some("ChildDied"))
    );
    assert_eq!(fixture.get("/index.php?fatal").status(), 500);
    fixture.wait("the bailout to be counted", |fixture| {
        fixture.status()["pools"][0]["bailouts"] == 1
    });
    assert_eq!(fixture.get("/index.php").text(), "served");
    standing.open();
    assert_eq!(held.answer().text(), "served");
}

/// Requests to the front controller go to the worker, scripts that URLs name go to ordinary processes, and one path
/// goes to a worker pool of its own.
#[test]
fn one_site_has_several_pools_of_different_modes_by_rules() {
    let text = |who: &str| {
        format!(
            "<?php while (frankenphp_handle_request(function () {{ echo '{who} ', $_SERVER['REQUEST_URI']; }})) {{}}"
        )
    };
    let fixture = Fixture::named("worker-rules")
        .script("index.php", "<?php echo 'never';")
        .script(
            "old/page.php",
            "<?php echo 'classic ', $_SERVER['SCRIPT_NAME'];",
        )
        .file("style.css", "a{}")
        .file("app.php", text("app"))
        .file("slow.php", text("slow"))
        .config(
            "[pool.app]\nmode = \"worker\"\nworker = \"ROOT/app.php\"\n\
             [pool.slow]\nmode = \"worker\"\nworker = \"ROOT/slow.php\"\n[pool.www]",
        )
        .site(
            "pool = \"app\"\nfront_controller = \"/index.php\"\n\
             [[site.rule]]\nglob = \"*.php\"\npool = \"www\"\n\
             [[site.rule]]\nprefix = \"/export\"\npool = \"slow\"",
        )
        .start();
    for (path, expect) in [
        ("/", "app /"),
        ("/any/page", "app /any/page"),
        ("/export/all", "slow /export/all"),
        ("/old/page.php", "classic /old/page.php"),
        ("/style.css", "a{}"),
        ("/export/all", "slow /export/all"),
    ] {
        assert_eq!(fixture.get(path).text(), expect, "{path}");
    }
}

#[test]
fn worker_script_outside_of_an_empty_root_gets_every_request() {
    let builder = Fixture::named("worker-outside");
    let script = builder.scratch().write(
        "app/worker.php",
        "<?php while (frankenphp_handle_request(function () { echo $_SERVER['REQUEST_URI'], ' ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '-'; })) {}",
    );
    builder.scratch().write("public/style.css", "css");
    let fixture = builder
        .root("public")
        .pool(&format!("mode = \"worker\"\nworker = {script:?}"))
        .site("deny = [\"/private/**\"]")
        .start();
    for path in [
        "/",
        "/a/b?c=d",
        "/none.php",
        "/none.php/info",
        "/.env",
        "/x.php.bak",
    ] {
        let answer = fixture.get(path);
        let said = format!("{path} /worker.php -");
        assert_eq!((answer.status(), answer.text()), (200, said), "{path}");
    }
    assert_eq!(fixture.get("/style.css").text(), "css");
    assert_eq!(
        fixture.get("/private/x").header("Howdah-Error"),
        Some("Denied")
    );
}
