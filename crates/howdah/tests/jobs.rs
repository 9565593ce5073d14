//! Background jobs of a running server, with real PHP: they are started, replaced and stopped, and their failures are
//! handled.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;
use support::{Scratch, ServerUnderTest, create_site, front_pid, is_gone, kill, run, wait_until};

/// A worker that takes a job when there is a file `job`, reports that, and finishes it when there is a file `do`. When
/// it is asked to end, it ends between two jobs.
const WORKER: &str = r#"<?php
$ends = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$ends) { $ends = true; touch('asked'); });
require 'version.php';
echo VERSION, " starts\n";
file_put_contents('pid', getmypid());
while (!$ends) {
    clearstatcache();
    if (!file_exists('job')) { usleep(2000); continue; }
    unlink('job');
    touch('taken');
    while (!file_exists('do')) { usleep(2000); clearstatcache(); }
    unlink('do');
    file_put_contents('done', VERSION, FILE_APPEND);
}
echo VERSION, " ends\n";
"#;

struct JobsRig {
    scratch: Scratch,
    root: String,
}

impl JobsRig {
    /// Creates a site, a worker and these jobs; `DIR` represents their directory.
    fn new(name: &str, jobs: &str) -> JobsRig {
        let scratch = Scratch::new(name);
        let root = create_site(&scratch);
        scratch.write("jobs/worker.php", WORKER);
        scratch.write("jobs/version.php", "<?php const VERSION = 'a';");
        fs::create_dir_all(scratch.path("state")).unwrap();
        let this = JobsRig { scratch, root };
        this.configure(jobs);
        this
    }

    fn configure(&self, jobs: &str) -> PathBuf {
        let directory = self.path("");
        let jobs = jobs.replace("DIR", &directory.display().to_string());
        let text = format!("[pool.www]\nmax_children = 1\n{jobs}");
        self.scratch.write("howdah.toml", &text)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path("jobs").join(name)
    }

    fn start(&self) -> ServerUnderTest {
        let config = self.scratch.path("howdah.toml").display().to_string();
        let state = self.scratch.path("state");
        let env: [(&str, &Path); 1] = [("STATE_DIRECTORY", &state)];
        ServerUnderTest::start_with(&self.scratch, &[&self.root, "--config", &config], &env)
    }

    /// Waits for a file that a job writes, and returns its content.
    fn wait_for(&self, name: &str) -> String {
        let path = self.path(name);
        let mut text = String::new();
        wait_until(name, || {
            text = fs::read_to_string(&path).unwrap_or_default();
            path.exists() && (!name.ends_with("pid") || !text.is_empty())
        });
        text
    }

    /// Returns the process id that a job has written.
    fn pid(&self, name: &str) -> i32 {
        self.wait_for(name).trim().parse().unwrap()
    }

    fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }
}

/// Returns the status of a job.
fn job(server: &ServerUnderTest, name: &str) -> Value {
    let (code, out, err) = server.run_command(&["job", "list", "--json"]);
    assert_eq!(code, 0, "{err}");
    let all: Value = serde_json::from_str(&out).unwrap();
    let jobs = all.as_array().unwrap().iter();
    let mut jobs = jobs.filter(|job| job["job"] == name);
    jobs.next()
        .unwrap_or_else(|| panic!("no {name} in {out}"))
        .clone()
}

fn failures(job: &Value, name: &str) -> u64 {
    let all = job["failures"].as_array().unwrap().iter();
    let mut counts = all.filter(|pair| pair[0] == name);
    counts.next().map_or(0, |pair| pair[1].as_u64().unwrap())
}

fn wait_for_line(server: &ServerUnderTest, text: &str) {
    let deadline = std::time::Instant::now() + support::MAX_WAIT / 2;
    wait_until(text, || {
        let log = server.log();
        assert!(
            log.contains(text) || std::time::Instant::now() < deadline,
            "{text} is not in the log: {log}"
        );
        log.contains(text)
    });
}

const QUEUE: &str =
    "[[job]]\nname = \"queue\"\ncommand = [\"php\", \"worker.php\"]\ndirectory = \"DIR\"\n";

#[test]
fn worker_job_finishes_its_current_work_on_stop_and_reload() {
    let jobs = JobsRig::new("job-in-hand", QUEUE);
    let mut server = jobs.start();
    let first = jobs.pid("pid");
    jobs.touch("job");
    jobs.wait_for("taken");
    jobs.scratch
        .write("jobs/version.php", "<?php const VERSION = 'b';");
    let (code, _, err) = server.run_command(&["reload"]);
    assert_eq!(code, 0, "{err}");
    jobs.wait_for("asked");
    assert!(!is_gone(first), "it has a job in hand");
    assert_eq!(job(&server, "queue")["state"], "stopping");
    jobs.touch("do");
    wait_for_line(&server, "output job=queue: a ends");
    wait_for_line(&server, "output job=queue: b starts");
    assert_eq!(jobs.wait_for("done"), "a");
    wait_until("another process", || jobs.pid("pid") != first);

    for name in ["asked", "taken"] {
        fs::remove_file(jobs.path(name)).unwrap();
    }
    jobs.touch("job");
    jobs.wait_for("taken");
    server.signal(Signal::TERM);
    jobs.wait_for("asked");
    jobs.touch("do");
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    assert_eq!(jobs.wait_for("done"), "ab");
    assert!(server.log().contains("output job=queue: b ends"));
}

#[test]
fn job_commands_stop_and_start_it_and_status_and_metrics_show_it() {
    let jobs = JobsRig::new("job-person", QUEUE);
    let server = jobs.start();
    let first = jobs.pid("pid");
    let row = job(&server, "queue");
    assert_eq!(
        (&row["state"], &row["starts"]),
        (&"running".into(), &1.into())
    );
    wait_until("the front to show it", || {
        server.status()["jobs"][0]["processes"][0]["pid"] == first
    });
    let (code, out, err) = server.run_command(&["job", "stop", "queue"]);
    assert_eq!((code, out.as_str()), (0, "stopped\n"), "{err}");
    assert!(is_gone(first));
    assert_eq!(job(&server, "queue")["state"], "stopped");
    // A reload does not start a job that an administrator has stopped.
    assert_eq!(server.run_command(&["reload"]).0, 0);
    assert_eq!(job(&server, "queue")["state"], "stopped");
    fs::remove_file(jobs.path("pid")).unwrap();
    let (code, out, _) = server.run_command(&["job", "run", "queue"]);
    assert_eq!((code, out.as_str()), (0, "started\n"));
    jobs.pid("pid");
    let (code, _, err) = server.run_command(&["job", "run", "queue"]);
    assert!(code == 1 && err.contains("JobStillRunning"), "{err}");
    let (code, _, err) = server.run_command(&["job", "stop", "quue"]);
    assert!(code == 1 && err.contains("NoSuchJob"), "{err}");
    let (_, out, _) = server.run_command(&["status"]);
    assert!(out.contains("job queue: running, 2 starts"), "{out}");
}

#[test]
fn killed_worker_job_is_restarted_and_survives_the_front() {
    let jobs = JobsRig::new("job-killed", QUEUE);
    let server = jobs.start();
    let first = jobs.pid("pid");
    kill(front_pid(&server), Signal::KILL);
    wait_for_line(&server, "FrontDied");
    assert!(!is_gone(first));
    kill(first, Signal::KILL);
    wait_for_line(&server, "error JobFailed job=queue: signal 9 (SIGKILL)");
    wait_until("another process", || jobs.pid("pid") != first);
    let row = job(&server, "queue");
    assert_eq!(failures(&row, "JobFailed"), 1);
    assert_eq!(row["starts"], 2);
}

/// Writes its process id and those of the processes that it leaves behind, one of which is in a session of its own.
const FORKS: &str = "sleep 1000 & echo $! > child.pid; setsid sh -c 'echo $$ > daemon.pid; exec sleep 1000' & echo $$ > leader.pid; ";

#[test]
fn job_processes_do_not_outlive_their_job_or_the_server() {
    let text = format!(
        "[[job]]\nname = \"ends\"\nschedule = \"0 0 1 1 *\"\ndirectory = \"DIR\"\ncommand = [\"sh\", \"-c\", \"\"\"{FORKS} while [ ! -s daemon.pid ]; do sleep 0.01; done\"\"\"]\n"
    );
    let jobs = JobsRig::new("job-forks", &text);
    let server = jobs.start();
    let (code, out, err) = server.run_command(&["job", "run", "ends"]);
    assert!(
        code == 0 && out.starts_with("exit code 0 after "),
        "{out}{err}"
    );
    for name in ["child.pid", "daemon.pid", "leader.pid"] {
        let pid = jobs.pid(name);
        wait_until(name, || is_gone(pid));
        fs::remove_file(jobs.path(name)).unwrap();
    }
    wait_for_line(&server, "warning JobStray: process ");

    // The master is killed, so no process asks the jobs to end, but they end.
    jobs.configure(
        &text
            .replace("schedule = \"0 0 1 1 *\"\n", "stop_timeout = \"1s\"\n")
            .replace(
                "while [ ! -s daemon.pid ]; do sleep 0.01; done",
                "trap '' TERM; while :; do sleep 0.01; done",
            ),
    );
    assert_eq!(server.run_command(&["reload"]).0, 0);
    let pids = ["leader.pid", "child.pid", "daemon.pid"].map(|name| jobs.pid(name));
    let front = front_pid(&server);
    server.signal(Signal::KILL);
    for pid in [pids[0], pids[1], pids[2], front] {
        wait_until("its end", || is_gone(pid));
    }
}

#[test]
fn job_runner_is_restarted_and_leaves_no_job_behind() {
    let text = format!(
        "[[job]]\nname = \"stays\"\ndirectory = \"DIR\"\ncommand = [\"sh\", \"-c\", \"\"\"{FORKS} trap '' TERM; while :; do sleep 0.01; done\"\"\"]\nstop_timeout = \"1s\"\n"
    );
    let jobs = JobsRig::new("jobs-died", &text);
    let server = jobs.start();
    let leader = jobs.pid("leader.pid");
    let child = jobs.pid("child.pid");
    wait_until("its status", || {
        job(&server, "stays")["processes"][0]["pid"] == leader
    });
    let stat = fs::read_to_string(format!("/proc/{leader}/stat")).unwrap();
    let parent = stat.split(' ').nth(3).unwrap().parse().unwrap();
    kill(parent, Signal::KILL);
    wait_for_line(
        &server,
        "howdah: JobsDied: the process that runs jobs exited (signal 9)",
    );
    for pid in [leader, child] {
        wait_until("its end", || is_gone(pid));
    }
    wait_until("another process", || jobs.pid("leader.pid") != leader);
    wait_until("its status", || job(&server, "stays")["state"] == "running");
}

#[test]
fn job_crash_loop_is_logged_with_last_lines_and_slowed_down() {
    let jobs = JobsRig::new(
        "job-dies",
        "[[job]]\nname = \"dies\"\ndirectory = \"DIR\"\ncommand = [\"sh\", \"-c\", \"echo no database >&2; exit 3\"]\n\
         [[job]]\nname = \"missing\"\ndirectory = \"DIR\"\ncommand = [\"DIR/gone\"]\n",
    );
    // The program exists when the configuration is checked.
    let program = jobs.scratch.write("jobs/gone", "#!/bin/sh\n");
    howdah_test_support::executable::make_executable(&program);
    let server = jobs.start();
    fs::remove_file(program).unwrap();
    let line = "error JobFailed job=dies: exit code 3 after 0.0 s; it is restarted in 2 s; its last lines: no database";
    wait_for_line(&server, line);
    wait_for_line(
        &server,
        "error JobNotStarted job=missing: the job cannot be started: ",
    );
    let row = job(&server, "dies");
    assert_eq!(row["state"], "waiting");
    assert!(
        failures(&row, "JobFailed") >= 2 && row["next"].is_u64(),
        "{row}"
    );
    assert_eq!(server.get("/").0, 200, "the site is served all the same");
}

#[test]
fn job_that_ignores_its_signal_is_killed_after_stop_timeout() {
    let jobs = JobsRig::new(
        "job-ignores",
        "[[job]]\nname = \"deaf\"\ndirectory = \"DIR\"\nstop_timeout = \"300ms\"\n\
         command = [\"sh\", \"-c\", \"trap '' TERM; echo $$ > deaf.pid; while :; do sleep 0.01; done\"]\n\
         [[job]]\nname = \"late\"\nschedule = \"@yearly\"\ndirectory = \"DIR\"\ntimeout = \"200ms\"\n\
         command = [\"sh\", \"-c\", \"sleep 1000\"]\n",
    );
    let mut server = jobs.start();
    let pid = jobs.pid("deaf.pid");
    let (code, out, err) = server.run_command(&["job", "stop", "deaf"]);
    assert_eq!((code, out.as_str()), (0, "stopped\n"), "{err}");
    assert!(is_gone(pid) && server.log().contains("warning JobKilled job=deaf"));
    let (code, _, err) = server.run_command(&["job", "run", "late"]);
    assert!(
        code == 1 && err.contains("JobTimeout: signal 15 (SIGTERM) after 0."),
        "{err}"
    );
    assert!(server.log().contains("error JobTimeout job=late"));
    assert_eq!(server.run_command(&["job", "run", "deaf"]).0, 0);
    let again = jobs.pid("deaf.pid");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    assert!(is_gone(again));
}

#[test]
fn job_output_flood_is_dropped_and_counted() {
    let jobs = JobsRig::new(
        "job-floods",
        "[log]\nerror = \"DIR/error.log\"\n[[job]]\nname = \"loud\"\nschedule = \"@yearly\"\ndirectory = \"DIR\"\n\
         command = [\"php\", \"-r\", \"for ($i = 0; $i < 300000; $i++) echo $i, str_repeat('x', 200), PHP_EOL;\"]\n",
    );
    let server = jobs.start();
    let (code, _, err) = server.run_command(&["job", "run", "loud"]);
    assert_eq!(code, 0, "{err}");
    let log = || fs::read_to_string(jobs.path("error.log")).unwrap();
    wait_until("the message", || {
        log().contains("warning JobOutputDropped job=loud: ")
    });
    // 60 MB were printed.
    assert!(log().len() < 4 << 20, "{}", log().len());
    assert!(log().contains("notice output job=loud: 0xxx"));
    assert!(job(&server, "loud")["dropped_lines"].as_u64().unwrap() > 250_000);
}

#[test]
fn job_process_over_max_memory_is_replaced() {
    let jobs = JobsRig::new(
        "job-grows",
        "[[job]]\nname = \"grows\"\ndirectory = \"DIR\"\nmax_memory = \"64M\"\n\
         command = [\"php\", \"-d\", \"memory_limit=-1\", \"-r\", \"$a = []; while (true) { $a[] = str_repeat('x', 1 << 20); usleep(5000); if (count($a) > 200) { sleep(1000); } }\"]\n",
    );
    let server = jobs.start();
    wait_for_line(&server, "warning JobTooLarge job=grows: process ");
    wait_until("another process", || {
        job(&server, "grows")["starts"].as_u64() > Some(1)
    });
}

#[test]
fn job_schedule_runs_at_its_times_and_never_twice_at_once() {
    let jobs = JobsRig::new(
        "job-schedule",
        "[[job]]\nname = \"tick\"\nschedule = \"* * * * * *\"\ndirectory = \"DIR\"\n\
         command = [\"sh\", \"-c\", \"echo x >> ticks; while [ -e hold ]; do sleep 0.01; done\"]\nstop_timeout = \"0s\"\n",
    );
    let server = jobs.start();
    let ticks = || {
        fs::read_to_string(jobs.path("ticks"))
            .unwrap_or_default()
            .lines()
            .count()
    };
    wait_until("two runs", || ticks() >= 2);
    jobs.touch("hold");
    wait_for_line(&server, "warning JobStillRunning job=tick");
    let held = ticks();
    let (code, _, err) = server.run_command(&["job", "run", "tick"]);
    assert!(code == 1 && err.contains("JobStillRunning"), "{err}");
    assert_eq!(ticks(), held);
    fs::remove_file(jobs.path("hold")).unwrap();
    wait_until("the next run", || ticks() > held);
    let row = job(&server, "tick");
    assert!(
        failures(&row, "JobStillRunning") > 0 && row["next"].is_u64(),
        "{row}"
    );
    // The schedule has changed, so its old state is dropped.
    jobs.configure("");
    assert_eq!(server.run_command(&["reload"]).0, 0);
    wait_until("no job", || {
        server.run_command(&["job", "list"]).1 == "there are no jobs\n"
    });
}

#[test]
fn missed_job_runs_are_logged_and_not_made_up_for() {
    let jobs = JobsRig::new(
        "job-missed",
        "[[job]]\nname = \"hourly\"\nschedule = \"@hourly\"\ndirectory = \"DIR\"\ncommand = [\"touch\", \"ran\"]\n",
    );
    let state = |server: &ServerUnderTest| {
        let name = format!("state/jobs-{}.json", server.address.port());
        jobs.scratch.path(&name)
    };
    let mut server = jobs.start();
    wait_until("its state", || state(&server).exists());
    assert!(!server.log().contains("JobMissed"));
    server.signal(Signal::TERM);
    server.wait();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let before = now.unwrap().as_secs() - 3 * 3600;
    let text = format!("{{\"hourly\":{{\"schedule\":\"@hourly\",\"at\":{before}}}}}");
    fs::write(state(&server), text).unwrap();
    let port = server.address.to_string();
    drop(server);
    let config = jobs.scratch.path("howdah.toml").display().to_string();
    let directory = jobs.scratch.path("state");
    let arguments = [jobs.root.as_str(), "--config", &config, "--listen", &port];
    let env: [(&str, &Path); 1] = [("STATE_DIRECTORY", &directory)];
    let server = ServerUnderTest::start_listening(&jobs.scratch, &arguments, &env);
    wait_for_line(
        &server,
        "warning JobMissed job=hourly: 3 runs were missed while no server was running, the last one at ",
    );
    assert!(!jobs.path("ran").exists());
}

#[test]
fn job_state_on_a_full_disk_is_reported_and_jobs_still_run() {
    let jobs = JobsRig::new(
        "job-disk",
        "[[job]]\nname = \"often\"\nschedule = \"* * * * * *\"\ndirectory = \"DIR\"\ncommand = [\"sh\", \"-c\", \"echo >> runs\"]\n",
    );
    // A small file system for the server alone, which is full from the start.
    let state = jobs.scratch.path("state").display().to_string();
    let script = format!(
        "mount -t tmpfs -o size=64k howdah '{state}' && head -c 65536 /dev/zero > '{state}/full' && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let config = jobs.scratch.path("howdah.toml");
    command
        .args([
            "sh",
            "-c",
            &script,
            "sh",
            support::HOWDAH_PROGRAM,
            "serve",
            &jobs.root,
            "--config",
        ])
        .arg(config)
        .args(["--listen", "127.0.0.1:0"])
        .env("STATE_DIRECTORY", &state)
        .env_remove("NOTIFY_SOCKET");
    let server = ServerUnderTest::start_command(&jobs.scratch, command);
    let runs = || {
        fs::read_to_string(jobs.path("runs"))
            .unwrap_or_default()
            .len()
    };
    let lost = || {
        let log = server.log();
        let lines = log
            .lines()
            .filter(|line| line.contains("warning JobStateLost"));
        let lines = lines.filter(|line| line.contains("No space left on device"));
        lines.count()
    };
    wait_until("its name", || lost() == 1);
    let before = runs();
    wait_until("two runs", || runs() >= before + 2);
    assert_eq!(lost(), 1, "once");
    let inside = PathBuf::from(format!("/proc/{}/root{state}", server.pid()));
    fs::remove_file(inside.join("full")).unwrap();
    let file = inside.join(format!("jobs-{}.json", server.address.port()));
    let is_whole = || {
        let text = fs::read(&file).unwrap_or_default();
        serde_json::from_slice::<Value>(&text).is_ok()
    };
    wait_until("the file", is_whole);
    // The disk is full again; the file stays complete.
    let _ = fs::write(inside.join("full"), vec![0; 65536]);
    wait_until("its name again", || lost() == 2);
    assert!(is_whole());
}

#[test]
fn job_mistakes_are_reported_at_once_with_their_lines() {
    let scratch = Scratch::new("job-mistakes");
    create_site(&scratch);
    let config = scratch.write(
        "howdah.toml",
        "[[site]]\nroot = \"web\"\n\
         [[job]]\nname = \"a\"\ncommand = [\"no-such-program\"]\n\
         [[job]]\nname = \"a\"\ncommand = [\"php\"]\nschedule = \"0 25 * * *\"\n\
         [[job]]\ncommand = \"true\"\nschedule = \"@daily\"\ntime_zone = \"Europe/Berln\"\nprocesses = 2\n\
         [[job]]\nname = \"c\"\ndirectory = \"nowhere\"\njitter = \"5s\"\nusr = \"x\"\n\
         [[job]]\nname = \"d\"\ncommand = [\"true\"]\n[[job]]\nname = \"d\"\ncommand = [\"true\"]\n",
    );
    let (code, out, err) = run(support::howdah(["check", "--config"]).arg(&config));
    assert_eq!(code, 3, "{out}{err}");
    for (line, expect) in [
        (
            5,
            "ProgramMissing: command: there is no program `no-such-program`",
        ),
        (8, "command: `php` needs a script"),
        (9, "schedule: hour `25`: expected 0 to 23"),
        (10, "name: a job needs a name"),
        (
            13,
            "time_zone: there is no time zone `Europe/Berln`; did you mean `Europe/Berlin`?",
        ),
        (
            14,
            "processes: a job with `schedule` runs in a single process",
        ),
        (15, "command: a job needs a command"),
        (17, "directory: there is no directory "),
        (18, "jitter: has no effect without `schedule`"),
        (19, "unknown key `usr` in [job]; did you mean `user`?"),
        (24, "name: there are two jobs `d`"),
    ] {
        let all = out.clone() + &err;
        let at = format!("howdah.toml:{line}:");
        let found = all.lines().any(|l| l.contains(&at) && l.contains(expect));
        assert!(found, "{line}: {expect} in {all}");
    }
}

#[test]
fn job_preset_finds_its_application_and_reports_what_is_missing() {
    let scratch = Scratch::new("job-presets");
    create_site(&scratch);
    scratch.write("web/wp-cron.php", "<?php");
    let check = |jobs: &str| {
        let text = format!("[[site]]\nroot = \"web\"\n{jobs}");
        let config = scratch.write("howdah.toml", &text);
        let (code, out, err) = run(support::howdah(["check", "--config"]).arg(&config));
        (code, out + &err)
    };
    let (code, said) = check("[[job]]\npreset = \"wp-cron\"\n");
    assert!(code == 0 && !said.contains("DISABLE_WP_CRON"), "{said}");
    scratch.write("web/wp-config.php", "<?php");
    let (code, said) = check("[[job]]\npreset = \"wp-cron\"\n");
    assert!(
        code == 0 && said.contains("add define('DISABLE_WP_CRON', true);"),
        "{said}"
    );
    let (code, said) = check("[[job]]\npreset = \"laravel-scheduler\"\n");
    assert!(
        code == 3
            && said.contains(
                ":4:10: preset: no site has artisan in its root or next to it; set `directory`"
            ),
        "{said}"
    );
    scratch.write("artisan", "<?php");
    assert_eq!(check("[[job]]\npreset = \"laravel-scheduler\"\n").0, 0);
    let (code, said) = check("[[job]]\npreset = \"wp-cron\"\n[[job]]\npreset = \"wp-cron\"\n");
    assert!(
        code == 3 && said.contains("name: there are two jobs `wp-cron`"),
        "{said}"
    );
}

#[test]
fn job_runs_as_its_user_with_the_configured_environment() {
    if !rustix::process::geteuid().is_root() {
        // Only root can become another user.
        return;
    }
    let jobs = JobsRig::new(
        "job-user",
        "[[job]]\nname = \"who\"\nschedule = \"@yearly\"\nuser = \"daemon\"\ndirectory = \"DIR\"\n\
         command = [\"sh\", \"-c\", \"echo $(id -un) $(id -Gn) $HOME $HOWDAH_JOB $SECRET $CARGO_PKG_NAME.; grep CapEff /proc/self/status; grep SigBlk /proc/self/status; ls /proc/self/fd | wc -w\"]\n\
         [job.env]\nSECRET = \"s3cret\"\n",
    );
    let server = jobs.start();
    let (code, _, err) = server.run_command(&["job", "run", "who"]);
    assert_eq!(code, 0, "{err}");
    wait_for_line(
        &server,
        "output job=who: daemon daemon /usr/sbin who s3cret .",
    );
    wait_for_line(&server, "output job=who: CapEff: 0000000000000000");
    wait_for_line(&server, "output job=who: SigBlk: 0000000000000000");
    // The job has four open descriptors: the standard streams, and the directory that `ls` reads.
    wait_for_line(&server, "output job=who: 4");
}
