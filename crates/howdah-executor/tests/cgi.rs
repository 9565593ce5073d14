//! Mode `cgi` with real programs: php-cgi, sh, perl, python, C; correct and faulty ones.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use howdah_executor::cgi::CgiPool;
use howdah_executor::config::CgiConfig;
use howdah_executor::error::ExecErrno;
use howdah_executor::{ExecError, Executor, ScriptBody, ScriptPool, ScriptRole, ScriptRun};
use howdah_proto::cgi_response::CgiError;
use howdah_proto::control::Exit;
use howdah_proto::response::ResponseError;

use support::programs::{Scripts, TestLauncher, cgi_config as config, kill, lives, request, stop};
use support::{
    CollectedResponse, TEST_TIMEOUT, TestLog, bytes, finish, next_event, on_front, text, until,
};

#[test]
#[ignore = "not a test: the spawner's process, which the tests start"]
fn spawner_process() {
    support::programs::spawner_process();
}

struct CgiFixture {
    pool: Arc<CgiPool>,
    log: Arc<TestLog>,
    launcher: Arc<TestLauncher>,
    scripts: Scripts,
}

impl CgiFixture {
    fn new(config: CgiConfig) -> CgiFixture {
        let (log, launcher) = (
            Arc::new(TestLog::default()),
            Arc::new(TestLauncher::default()),
        );
        CgiFixture {
            pool: CgiPool::start(config, launcher.clone(), log.clone()).unwrap(),
            log,
            launcher,
            scripts: Scripts::new(),
        }
    }

    fn start(&self, script: &Path, query: &str, body: ScriptBody) -> Box<dyn ScriptRun> {
        let mut request = request(script, query, body);
        if script.extension().is_none_or(|e| e != "php") {
            request.role = ScriptRole::Program;
        }
        self.pool.start(request)
    }

    async fn get(&self, script: &Path) -> Result<CollectedResponse, ExecError> {
        finish(self.start(script, "", ScriptBody::Empty)).await
    }

    /// Starts a run of `script` and waits for its first event, the head.
    async fn begun(&self, script: &Path) -> Box<dyn ScriptRun> {
        let mut run = self.start(script, "", ScriptBody::Empty);
        next_event(&mut run).await.unwrap();
        run
    }

    /// Writes a program that stores its process id in `pid`, begins to respond, and does not exit.
    fn sleeper(&self) -> PathBuf {
        let text = "echo $$ >pid; printf 'X: y\\n\\n'; exec sleep 600";
        self.scripts.sh("long.sh", text)
    }

    /// Writes a program that responds `ok` and exits.
    fn quick(&self) -> PathBuf {
        self.scripts.sh("quick.sh", "printf 'X: y\\n\\nok'")
    }

    async fn pid_in(&self, file: &str) -> i32 {
        let path = self.scripts.0.join(file);
        let read = || std::fs::read_to_string(&path).ok()?.trim().parse().ok();
        until("a program writes its process id", || read().is_some()).await;
        read().unwrap()
    }
}

fn memory(bytes: impl Into<Bytes>) -> ScriptBody {
    ScriptBody::Memory(bytes.into())
}

#[test]
fn programs_of_any_kind_read_their_request_and_respond() {
    let rig = CgiFixture::new(config(2));
    let dir = &rig.scripts;
    let programs: Vec<(PathBuf, u16)> = vec![
        (
            dir.sh("a.sh", r#"printf 'Status: 201 Made\nX-By: it\n\n%s|' "$QUERY_STRING"; cat"#),
            201,
        ),
        (
            dir.script(
                "a.pl",
                "#!/usr/bin/perl\nprint \"Status: 404\\r\\nX-By: it\\r\\n\\r\\n$ENV{QUERY_STRING}|\";\nprint while <STDIN>;\n",
            ),
            404,
        ),
        (
            dir.script(
                "a.py",
                "#!/usr/bin/python3\nimport os, sys\nprint('X-By: it\\n\\n' + os.environ['QUERY_STRING'], end='|')\nprint(sys.stdin.read(), end='')\n",
            ),
            200,
        ),
        (
            dir.c(
                "a.cgi",
                "#include <stdio.h>\n#include <stdlib.h>\nint main(void){int c;printf(\"X-By: it\\n\\n%s|\",getenv(\"QUERY_STRING\"));while((c=getchar())!=EOF)putchar(c);return 0;}",
            ),
            200,
        ),
        (
            dir.script(
                "a.php",
                "<?php header('X-By: it'); http_response_code(203); echo $_SERVER['QUERY_STRING'], '|', file_get_contents('php://input');",
            ),
            203,
        ),
    ];
    on_front(async {
        rig.pool.ready().await.unwrap();
        for (program, status) in &programs {
            let run = rig.start(program, "a=1&b", memory("the body"));
            let answer = finish(run).await.unwrap();
            assert_eq!(answer.head.status, *status, "{program:?}");
            assert_eq!(text(&answer), "a=1&b|the body", "{program:?}");
            let by = answer.head.headers.iter().find(|(n, _)| n == b"X-By");
            assert_eq!(by.unwrap().1, b"it", "{program:?}");
        }
    });
}

#[test]
fn program_runs_in_its_directory_without_arguments_or_server_descriptors() {
    let rig = CgiFixture::new(config(1));
    let script = rig.scripts.sh(
        "env.sh",
        "printf 'Content-Type: text/plain\\n\\n'; pwd; echo $#; echo \"$HTTP_HOST $GATEWAY_INTERFACE\"; ls -l /proc/self/fd",
    );
    on_front(async {
        let run = rig.start(&script, "-s", ScriptBody::Empty);
        let answer = finish(run).await.unwrap();
        let said = text(&answer);
        let lines: Vec<&str> = said.lines().collect();
        let directory = std::fs::canonicalize(&rig.scripts.0).unwrap();
        assert_eq!(lines[0], directory.to_str().unwrap());
        assert_eq!(lines[1..3], ["0", "example.org CGI/1.1"]);
        for ours in ["socket:", "pidfd", "eventfd", "eventpoll"] {
            assert!(!said.contains(ours), "{said}");
        }
    });
}

#[test]
fn query_that_looks_like_an_option_runs_the_script_and_shows_no_source() {
    let rig = CgiFixture::new(config(1));
    let script = rig
        .scripts
        .script("q.php", "<?php echo 'ran ', $argc ?? 'without';");
    on_front(async {
        for query in [
            "-s",
            "-d+auto_prepend_file=/etc/passwd",
            "%ADs",
            "--version",
        ] {
            let answer = finish(rig.start(&script, query, ScriptBody::Empty)).await;
            let answer = answer.unwrap();
            assert!(
                text(&answer).starts_with("ran "),
                "{query}: {}",
                text(&answer)
            );
        }
    });
}

#[test]
fn large_body_streams_in_both_directions() {
    let rig = CgiFixture::new(config(1));
    let script = rig.scripts.sh("cat.sh", "printf 'X: y\\n\\n'; exec cat");
    let body = bytes(3 << 20);
    on_front(async {
        let answer = finish(rig.start(&script, "", memory(body.clone()))).await;
        assert!(answer.unwrap().body == body, "from memory");
        let (to, from) = tokio::sync::mpsc::channel(1);
        let sent = body.clone();
        tokio::spawn(async move {
            for piece in sent.chunks(50_000) {
                to.send(Ok(Bytes::copy_from_slice(piece))).await.unwrap();
            }
        });
        let answer = finish(rig.start(&script, "", ScriptBody::Stream(from))).await;
        assert!(answer.unwrap().body == body, "as it arrives");
        let path = rig.scripts.0.join("body");
        std::fs::write(&path, &body).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stored = ScriptBody::File(file, body.len() as u64);
        let answer = finish(rig.start(&script, "", stored)).await;
        assert!(answer.unwrap().body == body, "from a file");
    });
}

#[test]
fn output_that_pauses_is_passed_on() {
    let rig = CgiFixture::new(config(1));
    let go = rig.scripts.0.join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let script = rig.scripts.sh(
        "slow.sh",
        &format!("printf 'X: y\\n\\nfirst'; {wait}; printf second"),
    );
    on_front(async {
        let mut run = rig.start(&script, "", ScriptBody::Empty);
        let mut seen = Vec::new();
        loop {
            match next_event(&mut run).await.unwrap() {
                howdah_executor::RunEvent::Body(bytes) => seen.push(bytes),
                howdah_executor::RunEvent::Flush => {
                    assert_eq!(seen, ["first"]);
                    std::fs::write(&go, "").unwrap();
                }
                howdah_executor::RunEvent::End => break,
                _ => {}
            }
        }
        assert_eq!(seen.concat(), b"firstsecond");
    });
}

#[test]
fn program_failures_are_named() {
    let rig = CgiFixture::new(config(1));
    let dir = &rig.scripts;
    let cgi = |error| ExecError::ResponseInvalid(ResponseError::Cgi(error));
    let no_right = dir.sh("noright.sh", "echo");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&no_right, permissions).unwrap();
    let cases = [
        (dir.sh("empty.sh", "exit 3"), ExecError::ResponseMissing),
        (
            dir.sh("text.sh", "printf 'hello world\\n\\nhello'"),
            cgi(CgiError::NotAResponse),
        ),
        (
            dir.sh("cut.sh", "printf 'Content-Type: text/html\\n'"),
            cgi(CgiError::HeadUnfinished),
        ),
        (
            dir.sh(
                "endless.sh",
                "while :; do echo 'X-Long: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'; done",
            ),
            cgi(CgiError::HeadTooLong),
        ),
        (
            dir.sh("dead.sh", "printf 'X: y\\n\\nhalf'; kill -9 $$"),
            ExecError::ChildDied(Exit::Signal(9)),
        ),
        (
            dir.script(
                "dead.php",
                "<?php echo 'half'; flush(); posix_kill(getmypid(), 11);",
            ),
            ExecError::ChildDied(Exit::Signal(11)),
        ),
        (no_right, ExecError::CannotExecute(ExecErrno(13))),
        (
            dir.script("nobody.x", "#!/nonexistent/interpreter\n"),
            ExecError::CannotExecute(ExecErrno(2)),
        ),
        (
            dir.script("noformat.x", "just text\n"),
            ExecError::CannotExecute(ExecErrno(8)),
        ),
        (
            dir.0.join("missing.pl"),
            ExecError::CannotExecute(ExecErrno(2)),
        ),
    ];
    on_front(async {
        for (script, expected) in &cases {
            let outcome = rig.get(script).await;
            assert_eq!(outcome.err().as_ref(), Some(expected), "{script:?}");
        }
        let failures = rig.pool.status().failures;
        let count = |name: &str| failures.iter().find(|(n, _)| n == name).unwrap().1;
        assert_eq!(count("CannotExecute"), 4);
        assert_eq!(count("ResponseInvalid"), 3);
    });
}

#[test]
fn missing_php_script_is_a_404_of_php() {
    let rig = CgiFixture::new(config(1));
    on_front(async {
        let answer = rig.get(&rig.scripts.0.join("missing.php")).await.unwrap();
        assert_eq!(answer.head.status, 404);
    });
}

#[test]
fn program_that_ignores_its_input_can_respond() {
    let rig = CgiFixture::new(config(1));
    let script = rig
        .scripts
        .sh("deaf.sh", "exec <&-; printf 'X: y\\n\\nno thanks'");
    on_front(async {
        let answer = finish(rig.start(&script, "", memory(bytes(1 << 20)))).await;
        assert_eq!(text(&answer.unwrap()), "no thanks");
    });
}

#[test]
fn standard_error_goes_to_the_log_line_by_line_and_is_bounded() {
    let rig = CgiFixture::new(config(1));
    let script = rig.scripts.sh(
        "noisy.sh",
        "echo first >&2; head -c 100000 /dev/zero | tr '\\0' 'x' >&2; echo >&2; printf 'X: y\\n\\nok'; exit 5",
    );
    on_front(async {
        let answer = rig.get(&script).await.unwrap();
        assert_eq!(text(&answer), "ok");
    });
    assert!(
        rig.log
            .wait_for("request 7 level 4: first")
            .ends_with("first")
    );
    rig.log.wait_for("program's standard error is not logged");
    rig.log
        .wait_for("ExitStatus: the program exited with code 5");
    let logged: usize = rig.log.all().iter().map(String::len).sum();
    assert!(logged < 90_000, "{logged} bytes in the log");
}

#[test]
fn hanging_program_is_terminated_with_its_process_group() {
    let rig = CgiFixture::new(CgiConfig {
        request_terminate_timeout: Some(Duration::from_millis(300)),
        ..config(1)
    });
    let script = rig.scripts.sh(
        "hang.sh",
        "trap '' TERM; echo $$ >pid; (trap '' TERM; sh -c 'echo $$ >below; exec sleep 600') & printf 'X: y\\n\\nhalf'; while :; do sleep 600; done",
    );
    let quick = rig.quick();
    on_front(async {
        let outcome = rig.get(&script).await;
        assert_eq!(outcome.err(), Some(ExecError::TerminateTimeout));
        let (leader, below) = (rig.pid_in("pid").await, rig.pid_in("below").await);
        until("the group is gone", || !lives(leader) && !lives(below)).await;
        assert_eq!(text(&rig.get(&quick).await.unwrap()), "ok");
    });
}

#[test]
fn program_is_terminated_when_its_client_leaves() {
    let rig = CgiFixture::new(config(1));
    let script = rig.sleeper();
    on_front(async {
        let run = rig.begun(&script).await;
        let pid = rig.pid_in("pid").await;
        assert!(lives(pid));
        drop(run);
        until("the program is gone", || !lives(pid)).await;
        until("its place is free", || {
            rig.pool.status().idle_processes == 1
        })
        .await;
    });
}

#[test]
fn background_process_of_a_program_continues() {
    let rig = CgiFixture::new(config(1));
    let script = rig.scripts.sh(
        "job.sh",
        "printf 'X: y\\n\\nok'; sh -c 'echo $$ >job; exec sleep 600' >/dev/null 2>&1 </dev/null &",
    );
    on_front(async {
        assert_eq!(text(&rig.get(&script).await.unwrap()), "ok");
        let pid = rig.pid_in("job").await;
        until("the place is free", || {
            rig.pool.status().idle_processes == 1
        })
        .await;
        assert!(lives(pid));
        kill(pid);
    });
}

#[test]
fn killed_spawner_ends_its_programs_and_another_serves() {
    let rig = CgiFixture::new(config(2));
    let script = rig.sleeper();
    let quick = rig.quick();
    on_front(async {
        let run = rig.begun(&script).await;
        let pid = rig.pid_in("pid").await;
        kill(rig.launcher.pid());
        let outcome = finish(run).await;
        assert_eq!(outcome.err(), Some(ExecError::ChildDied(Exit::Unseen)));
        until("its program is gone", || !lives(pid)).await;
        // Requests that arrive while another spawner starts wait for it.
        assert_eq!(text(&rig.get(&quick).await.unwrap()), "ok");
    });
    rig.log.wait_for("SpawnerDied");
    assert_eq!(rig.launcher.pids.lock().unwrap().len(), 2);
}

#[test]
fn stopped_spawner_is_killed_with_its_programs_and_another_serves() {
    let rig = CgiFixture::new(CgiConfig {
        spawner_timeout: Duration::from_secs(2),
        ..config(2)
    });
    let script = rig.sleeper();
    let quick = rig.quick();
    on_front(async {
        let run = rig.begun(&script).await;
        let pid = rig.pid_in("pid").await;
        stop(rig.launcher.pid());
        let outcome = finish(run).await;
        assert_eq!(outcome.err(), Some(ExecError::ChildDied(Exit::Unseen)));
        until("its program is gone", || !lives(pid)).await;
        until("another serves", || {
            rig.launcher.pids.lock().unwrap().len() > 1
        })
        .await;
        assert_eq!(text(&rig.get(&quick).await.unwrap()), "ok");
    });
    rig.log.wait_for("SpawnerStuck");
}

#[test]
fn max_children_limits_five_hundred_requests_to_four_at_a_time() {
    let rig = CgiFixture::new(config(4));
    let script = rig.quick();
    on_front(async {
        let mut runs = Vec::new();
        for _ in 0..500 {
            let run = rig.start(&script, "", ScriptBody::Empty);
            runs.push(tokio::spawn(finish(run)));
        }
        for run in runs {
            assert_eq!(text(&run.await.unwrap().unwrap()), "ok");
        }
        let status = rig.pool.status();
        assert_eq!(
            (status.accepted_requests, status.max_active_processes),
            (500, 4)
        );
    });
}

#[test]
fn queue_overflow_and_timeout_are_refused_by_name() {
    let rig = CgiFixture::new(CgiConfig {
        queue_size: 1,
        queue_timeout: Duration::from_millis(100),
        ..config(1)
    });
    let script = rig.sleeper();
    on_front(async {
        rig.pool.ready().await.unwrap();
        let _first = rig.begun(&script).await;
        let second = tokio::spawn(finish(rig.start(&script, "", ScriptBody::Empty)));
        until("one waits", || rig.pool.status().queue == 1).await;
        let third = rig.get(&script).await;
        assert_eq!(third.err(), Some(ExecError::QueueFull));
        let second = second.await.unwrap();
        assert_eq!(second.err(), Some(ExecError::QueueTimeout));
    });
}

#[test]
fn drain_finishes_running_requests_and_sends_the_rest_to_the_successor() {
    let rig = CgiFixture::new(config(2));
    let next = CgiFixture::new(config(2));
    let go = rig.scripts.0.join("go");
    let wait = format!("while [ ! -e {} ]; do sleep 0.01; done", go.display());
    let script = rig.scripts.sh(
        "wait.sh",
        &format!("printf 'X: y\\n\\n'; {wait}; printf done"),
    );
    on_front(async {
        let run = rig.begun(&script).await;
        rig.pool.drain(Some(next.pool.clone()), TEST_TIMEOUT);
        std::fs::write(&go, "").unwrap();
        assert_eq!(text(&finish(run).await.unwrap()), "done");
        rig.pool.drained().await;
        assert!(!lives(rig.launcher.pid()));
        assert_eq!(text(&rig.get(&script).await.unwrap()), "done");
        assert_eq!(next.pool.status().accepted_requests, 1);
    });
}

#[test]
fn drain_cuts_off_running_requests_after_its_limit() {
    let rig = CgiFixture::new(config(1));
    let script = rig.sleeper();
    on_front(async {
        let run = rig.begun(&script).await;
        let pid = rig.pid_in("pid").await;
        rig.pool.drain(None, Duration::from_millis(50));
        assert_eq!(finish(run).await.err(), Some(ExecError::Stopping));
        rig.pool.drained().await;
        until("the program is gone", || !lives(pid)).await;
        assert_eq!(rig.get(&script).await.err(), Some(ExecError::Stopping));
    });
}

#[test]
fn missing_program_is_reported() {
    let rig = CgiFixture::new(CgiConfig {
        command: vec!["/nonexistent/php-cgi".to_owned()],
        ..config(1)
    });
    on_front(async {
        let Err(ExecError::PoolDown { name, message }) = rig.pool.ready().await else {
            panic!("it is ready");
        };
        assert_eq!(name, "ProgramMissing");
        assert!(message.contains("/nonexistent/php-cgi"), "{message}");
    });
    rig.log.wait_for("ProgramMissing");
}
