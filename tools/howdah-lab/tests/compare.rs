//! Tests `howdah compare` on the command line: a failure of one stack costs only that stack, and nothing is left
//! running however the comparison ends. The stacks are those of the distribution; Howdah's own stacks are tested
//! elsewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use howdah_machine::php;
use howdah_test_support::executable::make_executable;
use howdah_test_support::process::{run_to_exit, wait_until};
use howdah_test_support::scratch::Scratch;
use serde_json::Value;

/// The maximum time to wait for anything.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_howdah-bench");

/// Returns a benchmark of one small page.
fn suite(scratch: &Scratch, stacks: &[&str], page: &str) -> PathBuf {
    let rows: String = stacks
        .iter()
        .map(|stack| format!("[[row]]\nstack = \"{stack}\"\n"))
        .collect();
    let (path, contains) = match page {
        "file" => ("/tiny.html", "Hello"),
        _ => ("/foreach_test.php", "500500"),
    };
    scratch.write(
        "mine.toml",
        format!(
            "name = \"mine\"\ntitle = \"Mine\"\nquestion = \"Which?\"\npost = \"none\"\nhid = []\nchildren = 1\n\
             load = {{ requests = 50, concurrency = [2], keepalive = false }}\n\
             [[page]]\nname = \"{page}\"\nsite = \"pages\"\npath = \"{path}\"\ncontains = \"{contains}\"\n{rows}"
        ),
    )
}

fn compare(scratch: &Scratch, suite: &Path, arguments: &[&str]) -> Command {
    // If root starts the stacks, they run as another user, which must be able to access the folder.
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(PROGRAM);
    command
        .arg("compare")
        .arg(suite)
        .args(arguments)
        .arg("--out")
        .arg(scratch.join("out"));
    command
}

fn tables(stdout: &str) -> Value {
    serde_json::from_str(stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
}

/// Returns processes from `/proc`: number and session, without zombies.
fn processes() -> Vec<(u32, u32)> {
    let of = |pid: u32| -> Option<(u32, u32)> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        (fields[0] != "Z").then_some((pid, fields[3].parse().ok()?))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(of).collect()
}

/// Returns the programs that a comparison has started: sessions whose first process has the folder in its command line.
fn started(out: &Path) -> BTreeSet<u32> {
    let out = out.display().to_string();
    let ours = |pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&out)
    };
    let leaders = processes()
        .into_iter()
        .filter(|(pid, session)| pid == session);
    leaders
        .map(|(pid, _)| pid)
        .filter(|pid| ours(*pid))
        .collect()
}

fn signal(pid: u32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// Waits until a stack's log shows requests beyond its start and its first page.
fn wait_until_measured(out: &Path, log: &str) {
    let log = out.join(log);
    wait_until("requests in the log", MAX_WAIT, || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().count() > 40
    });
}

/// Returns a comparison in the middle of a window of a minute.
fn start_with_long_window(scratch: &Scratch) -> (Child, PathBuf, BTreeSet<u32>) {
    let suite = suite(scratch, &["php-builtin", "apache-mod-fcgid"], "sum");
    let mut command = compare(
        scratch,
        &suite,
        &["--json", "--window", "60", "--blocks", "1"],
    );
    let stdout = fs::File::create(scratch.join("stdout")).unwrap();
    let child = command
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = scratch.join("out");
    wait_until_measured(&out, "mine/php-builtin/php.log");
    let sessions = started(&out);
    assert!(!sessions.is_empty());
    (child, out, sessions)
}

fn wait_until_gone(sessions: &BTreeSet<u32>, out: &Path) {
    wait_until("everything that was started to be gone", MAX_WAIT, || {
        started(out).is_empty()
            && processes()
                .iter()
                .all(|(_, session)| !sessions.contains(session))
    });
}

#[test]
fn compare_leaves_nothing_running_after_a_kill() {
    let scratch = Scratch::new("compare-kill");
    let (mut child, out, sessions) = start_with_long_window(&scratch);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_gone(&sessions, &out);
}

#[test]
fn compare_ends_at_once_on_interrupt_and_prints_results() {
    let scratch = Scratch::new("compare-interrupt");
    let (mut child, out, sessions) = start_with_long_window(&scratch);
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    wait_until_gone(&sessions, &out);
    let results = tables(&fs::read_to_string(scratch.join("stdout")).unwrap());
    assert_eq!(results[0]["interrupted"], true);
    // A window that was cut short is neither a result nor a failure of the stack.
    assert_eq!(results[0]["missing"], serde_json::json!([]));
    assert!(out.join("mine.html").exists());
}

/// Returns the rates of a row's windows, block by block.
fn rates(results: &Value, row: usize) -> Vec<f64> {
    let windows = results[0]["cells"][0]["rows"][row]["windows"]
        .as_array()
        .unwrap();
    windows.iter().map(|rate| rate.as_f64().unwrap()).collect()
}

#[test]
fn resume_retains_the_blocks_before_a_kill() {
    let scratch = Scratch::new("compare-resume");
    let suite = suite(&scratch, &["nginx-static", "php-builtin"], "file");
    let mut command = compare(&scratch, &suite, &["--window", "0.3", "--blocks", "8"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let journal = scratch.join("out/measured/mine");
    let parts = || -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(&journal).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            .collect()
    };
    // The journal has the plan and two of eight blocks.
    wait_until("two blocks", MAX_WAIT, || parts().len() >= 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = parts();
    let before: Vec<Vec<u8>> = kept.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(kept.len() < 9, "it was over already: {kept:?}");

    // Another comparison cannot begin in the same directory.
    let (code, _, stderr) = run_to_exit(&mut compare(&scratch, &suite, &[]));
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("NotResumable: ") && stderr.contains("--resume"),
        "{stderr}"
    );
    let resume = || {
        run_to_exit(
            Command::new(PROGRAM)
                .args(["compare", "--json", "--resume"])
                .arg(scratch.join("out")),
        )
    };
    let (code, stdout, stderr) = resume();
    assert_eq!(code, 0, "{stderr}");
    let results = tables(&stdout);
    assert_eq!(rates(&results, 0).len(), 8);
    assert_eq!(rates(&results, 1).len(), 8);
    assert_eq!(results[0]["left_out"], serde_json::json!([]));
    let after: Vec<Vec<u8>> = kept.iter().map(|path| fs::read(path).unwrap()).collect();
    assert_eq!(before, after, "what had been measured was measured again");
    // The second time there is nothing to measure, and the result is the same.
    let (code, again, stderr) = resume();
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(rates(&tables(&again), 1), rates(&results, 1));

    // Figures of two machines or versions are not mixed.
    let plan = journal.join("plan.json");
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replace("\"cores\",\"", "\"cores\",\"9")).unwrap();
    let (code, _, stderr) = resume();
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("Changed: ") && stderr.contains("cores: "),
        "{stderr}"
    );
    let (code, _, stderr) = run_to_exit(
        Command::new(PROGRAM)
            .args(["compare", "--resume"])
            .arg(scratch.path()),
    );
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("there is no comparison in"), "{stderr}");
}

#[test]
fn rerun_failed_measures_blocks_with_failures_again() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new("compare-rerun");
    let suite = suite(&scratch, &["nginx-static", "php-builtin"], "file");
    // A PHP whose server does not start while this file exists.
    let broken = scratch.write("broken", "");
    let php = scratch.write(
        php::expand_placeholders("bin/php{php}"),
        format!(
            "#!/bin/sh\n[ -e '{}' ] && [ \"$1\" != -n ] && exit 1\nexec {} \"$@\"\n",
            broken.display(),
            php::expand_placeholders("/usr/bin/php{php}")
        ),
    );
    make_executable(&php);
    fs::set_permissions(php.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        php.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut first = compare(
        &scratch,
        &suite,
        &["--json", "--window", "0.1", "--blocks", "3"],
    );
    let (code, stdout, stderr) = run_to_exit(first.env("PATH", &path));
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(tables(&stdout)[0]["missing"][0]["name"], "DoesNotStart");
    let hint = format!("--resume {} --rerun-failed", scratch.join("out").display());
    assert!(stderr.contains(&hint), "{stderr}");

    let resume = |options: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["compare", "--json", "--resume"]);
        let (code, stdout, stderr) = run_to_exit(
            command
                .arg(scratch.join("out"))
                .args(options)
                .env("PATH", &path),
        );
        assert_eq!(code, 0, "{stderr}");
        tables(&stdout)
    };
    let parts = || {
        let part = |block: u32| scratch.join(format!("out/measured/mine/0-2-{block:03}.json"));
        [0, 1, 2].map(|block| fs::read(part(block)).unwrap())
    };
    let before = parts();
    // The stack is still broken: it is tried again, and the others are not measured again because of it.
    assert_eq!(
        resume(&["--rerun-failed"])[0]["missing"][0]["name"],
        "DoesNotStart"
    );
    let again = parts();
    assert_ne!(before[0], again[0]);
    assert_eq!(before[1..], again[1..]);
    fs::remove_file(&broken).unwrap();
    // Without the option nothing is measured again.
    assert_eq!(resume(&[])[0]["missing"][0]["name"], "DoesNotStart");
    assert_eq!(again, parts());
    let results = resume(&["--rerun-failed"]);
    assert_eq!(results[0]["missing"], serde_json::json!([]));
    assert_eq!([rates(&results, 0).len(), rates(&results, 1).len()], [3, 3]);
    let whole = parts();
    assert!(again.iter().zip(&whole).all(|(before, now)| before != now));
    // Nothing is left to measure.
    assert_eq!(
        resume(&["--rerun-failed"])[0]["missing"],
        serde_json::json!([])
    );
    assert_eq!(whole, parts());
}

#[test]
fn rerun_failed_requires_resume_of_benchmarks() {
    let scratch = Scratch::new("compare-rerun-alone");
    let empty = scratch.path().display().to_string();
    for arguments in [&["b1"][..], &["--app", "."], &["--resume", &empty]] {
        let mut command = Command::new(PROGRAM);
        let (code, _, stderr) =
            run_to_exit(command.args(["compare", "--rerun-failed"]).args(arguments));
        assert_eq!(code, 3, "{stderr}");
        assert!(stderr.contains("works only with --resume DIR"), "{stderr}");
    }
}

#[test]
fn stack_that_dies_under_load_is_reported_and_others_continue() {
    let scratch = Scratch::new("compare-death");
    let suite = suite(&scratch, &["php-builtin", "nginx-static"], "file");
    // The window is long enough to be interrupted, and ends at once for a stack that has died.
    let mut command = compare(
        &scratch,
        &suite,
        &["--json", "--window", "4", "--blocks", "1"],
    );
    let stdout = fs::File::create(scratch.join("stdout")).unwrap();
    let mut child = command
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let out = scratch.join("out");
    wait_until_measured(&out, "mine/php-builtin/php.log");
    let sessions = started(&out);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    signal(*sessions.first().unwrap(), "KILL");
    assert!(child.wait().unwrap().success());
    let results = tables(&fs::read_to_string(scratch.join("stdout")).unwrap());
    let missing = &results[0]["missing"][0];
    assert_eq!(missing["name"], "Died", "{missing}");
    assert_eq!(missing["stack"], "php-builtin");
    let message = missing["message"].as_str().unwrap();
    assert!(message.contains("signal: 9"), "{message}");
    assert!(message.contains("    | "), "its last words: {message}");
    let rows = results[0]["cells"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["stack"], "nginx-static");
    assert!(rows[0]["good"].as_f64().unwrap() > 0.0);
}

#[test]
fn missing_stacks_are_reported_and_others_measured() {
    let scratch = Scratch::new("compare-start");
    // These programs have the names of real ones, and fail.
    for (name, script) in [
        ("php-fpm{php}", "echo 'no room for a pool' >&2; exit 78"),
        (
            "frankenphp",
            "echo 'Error: this is not FrankenPHP' >&2; exit 1",
        ),
    ] {
        use std::os::unix::fs::PermissionsExt;
        let program = scratch.write(
            php::expand_placeholders(&format!("bin/{name}")),
            format!("#!/bin/sh\n{script}\n"),
        );
        make_executable(&program);
        fs::set_permissions(scratch.join("bin"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Only the distribution's programs are in the path: rivals that were installed by hand are excluded.
    let path = format!(
        "{}:/usr/sbin:/usr/bin:/sbin:/bin",
        scratch.join("bin").display()
    );
    let stacks = ["nginx-fpm-unix", "frankenphp", "roadrunner", "php-builtin"];
    let suite = suite(&scratch, &stacks, "sum");
    let arguments = ["--json", "--window", "0.2", "--blocks", "2"];
    let mut command = compare(&scratch, &suite, &arguments);
    let (code, stdout, stderr) = run_to_exit(command.env("PATH", path));
    assert_eq!(code, 0, "{stderr}");
    let results = tables(&stdout);
    let message = |stack: &str| -> String {
        let missing = results[0]["missing"].as_array().unwrap();
        let found = missing.iter().find(|missing| missing["stack"] == stack);
        found.unwrap_or_else(|| panic!("{stack}: {missing:?}"))["message"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let fpm = message("nginx-fpm-unix");
    assert!(
        fpm.starts_with("DoesNotStart: php-fpm: it exited (exit status: 78)"),
        "{fpm}"
    );
    assert!(fpm.contains("    | no room for a pool"), "{fpm}");
    let franken = message("frankenphp");
    assert!(
        franken.contains("    | Error: this is not FrankenPHP"),
        "{franken}"
    );
    let runner = message("roadrunner");
    assert!(runner.starts_with("NotHere: RoadRunner"), "{runner}");
    assert!(runner.contains("https://docs.roadrunner.dev/"), "{runner}");
    // Each failed stack is reported once, although there were two blocks.
    assert_eq!(results[0]["missing"].as_array().unwrap().len(), 3);
    let rows = results[0]["cells"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["stack"], "php-builtin");
    assert!(stderr.contains("no room for a pool"), "{stderr}");
}

#[test]
fn command_of_a_row_measures_it_again() {
    let scratch = Scratch::new("compare-again");
    let suite = suite(&scratch, &["nginx-static", "php-builtin"], "file");
    let (code, stdout, stderr) = run_to_exit(&mut compare(
        &scratch,
        &suite,
        &["--json", "--window", "0.2", "--blocks", "2"],
    ));
    assert_eq!(code, 0, "{stderr}");
    let results = tables(&stdout);
    assert_eq!(results[0]["cells"][0]["rows"].as_array().unwrap().len(), 2);
    let page = fs::read_to_string(scratch.join("out/mine.html")).unwrap();
    let command = page
        .lines()
        .find_map(|line| {
            line.find("howdah compare ")
                .map(|at| &line[at..])
                .filter(|l| l.contains("--pages"))
        })
        .unwrap();
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    let again = scratch.join("again");
    let (code, stdout, stderr) = run_to_exit(
        Command::new(PROGRAM)
            .args(&words)
            .args(["--json", "--out"])
            .arg(&again),
    );
    assert_eq!(code, 0, "{command}: {stderr}");
    let results = tables(&stdout);
    let rows = results[0]["cells"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{command}: {rows:?}");
    assert_eq!(rows[0]["stack"], "nginx-static");
    assert_eq!(results[0]["cells"][0]["concurrency"], 2);
}

#[test]
fn as_posted_sends_the_posts_number_of_requests() {
    let scratch = Scratch::new("compare-posted");
    let suite = suite(&scratch, &["nginx-static"], "file");
    let (code, stdout, stderr) =
        run_to_exit(&mut compare(&scratch, &suite, &["--json", "--as-posted"]));
    assert_eq!(code, 0, "{stderr}");
    let results = tables(&stdout);
    assert_eq!(results[0]["cells"][0]["rows"][0]["requests"], 50);
    let effort = results[0]["effort"].to_string();
    assert!(
        effort.contains("1 block with the post's own number of requests (50)"),
        "{effort}"
    );
}

#[test]
fn time_limit_names_the_missing_blocks() {
    let scratch = Scratch::new("compare-limit");
    let suite = suite(&scratch, &["nginx-static", "php-builtin"], "file");
    let text = fs::read_to_string(&suite).unwrap();
    let quick = "[quick]\nblocks = 1000\nwindow = 0.2\nminutes = 0.02\n";
    fs::write(&suite, format!("{text}{quick}")).unwrap();
    let (code, stdout, stderr) = run_to_exit(&mut compare(&scratch, &suite, &["--json"]));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stderr.contains("the measurement ends after 0.02 minutes"),
        "{stderr}"
    );
    let results = tables(&stdout);
    let left_out = results[0]["left_out"][0].as_str().unwrap();
    assert!(
        left_out.starts_with("LeftOut: ") && left_out.contains("file at 2 clients, only "),
        "{left_out}"
    );
    // The results are complete: every stack has the same number of windows, each with figures of
    // the load tester.
    let rows = results[0]["cells"][0]["rows"].as_array().unwrap();
    let windows = |row: &Value| row["windows"].as_array().unwrap().len();
    assert_eq!(windows(&rows[0]), windows(&rows[1]));
    for row in rows {
        let generator = &row["generator"];
        assert!(generator["cpu"].as_f64().unwrap() > 0.0, "{row}");
        assert!(generator["ceiling"].as_f64().unwrap() > 0.0, "{row}");
        assert!(generator["of_ceiling"].as_f64().unwrap() > 0.0, "{row}");
    }
    for kept in ["out/mine.txt", "out/mine.html"] {
        let text = fs::read_to_string(scratch.join(kept)).unwrap();
        assert!(text.contains(left_out), "{kept}");
    }
}

#[test]
fn report_writes_sections_into_a_document() {
    let scratch = Scratch::new("compare-report");
    let suite = suite(&scratch, &["nginx-static"], "file");
    let arguments = ["--window", "0.2", "--blocks", "2"];
    let (code, _, stderr) = run_to_exit(&mut compare(&scratch, &suite, &arguments));
    assert_eq!(code, 0, "{stderr}");
    let document = scratch.write("performance.md", "# Performance\n\nBy hand.\n");
    let report = || {
        run_to_exit(
            Command::new(PROGRAM)
                .args(["compare", "report", "--write"])
                .arg(&document)
                .arg(scratch.join("out")),
        )
    };
    let (code, _, stderr) = report();
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("found none"), "{stderr}");
    let unmarked = fs::read_to_string(&document).unwrap();
    assert_eq!(unmarked, "# Performance\n\nBy hand.\n");
    let marks = "<!-- howdah compare mine: written by the tool, not by hand -->\n\
                 <!-- howdah compare mine: end -->\n";
    fs::write(&document, format!("{unmarked}\n{marks}\nBy hand, too.\n")).unwrap();
    let (code, _, stderr) = report();
    assert_eq!(code, 0, "{stderr}");
    let once = fs::read_to_string(&document).unwrap();
    assert!(
        once.starts_with("# Performance\n\nBy hand.\n\n<!-- howdah compare mine: "),
        "{once}"
    );
    assert!(once.contains("| nginx, files only | "), "{once}");
    assert!(once.ends_with("-->\n\nBy hand, too.\n"), "{once}");
    report();
    assert_eq!(fs::read_to_string(&document).unwrap(), once);

    let (code, _, stderr) = run_to_exit(
        Command::new(PROGRAM)
            .args(["compare", "report"])
            .arg(&document),
    );
    assert_eq!(code, 1);
    assert!(stderr.contains("NotAResult: "), "{stderr}");
}

#[test]
fn unknown_stacks_and_pages_are_refused_before_the_start() {
    let scratch = Scratch::new("compare-names");
    let suite = suite(&scratch, &["nginx-static"], "file");
    for (arguments, expected) in [
        (["--stacks", "nginx-fmp"], "there is no stack `nginx-fmp`"),
        (
            ["--pages", "hom"],
            "there is no page `hom`; the pages are file",
        ),
    ] {
        let (code, _, stderr) = run_to_exit(&mut compare(&scratch, &suite, &arguments));
        assert_ne!(code, 0);
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!scratch.join("out").exists());
    }
}
