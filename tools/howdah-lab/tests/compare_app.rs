//! `howdah compare --app`, tested through the real program: a recommended configuration has been served, a stack that
//! returns another page is named and not measured, mistakes are reported immediately, and `--resume` continues a run
//! that was interrupted or killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant, SystemTime};

use howdah_machine::php;
use howdah_test_support::process::wait_until;
use howdah_test_support::process_tree::left_behind;
use howdah_test_support::scratch::{Scratch, copy_tree, howdah_program, repository, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Limits a wait; it is not part of a measurement.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// The shortest window, in seconds.
const WINDOW: &str = "0.2";

fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(howdah_program());
    command.arg("compare").args(arguments);
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("howdah can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of ours")
}

/// Returns the arguments that compare a site's home page among these stacks with this many clients, as briefly as
/// possible.
fn briefly<'a>(
    site: &'a Path,
    out: &'a Path,
    stacks: &'a str,
    clients: &'a str,
    more: &[&'a str],
) -> Vec<&'a str> {
    let mut arguments = vec!["--app", path(site), "--url", "/", "--stacks", stacks];
    arguments.extend([
        "--blocks",
        "2",
        "--window",
        WINDOW,
        "--concurrency",
        clients,
    ]);
    arguments.extend(["--out", path(out)]);
    arguments.extend(more);
    arguments
}

/// Returns every file with its content and modification time.
fn contents(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let time = entry.metadata().unwrap().modified().unwrap();
            all.insert(path.clone(), (std::fs::read(&path).unwrap(), time));
        }
    }
    all
}

/// Returns a level's rows by the names of the stacks.
fn rows(outcome: &Value, level: usize) -> BTreeMap<String, Value> {
    let rows = outcome["levels"][level]["rows"].as_array().expect("rows");
    let named = |row: &Value| (row["arm"].as_str().unwrap().to_owned(), row.clone());
    rows.iter().map(named).collect()
}

#[test]
fn guestbook_is_measured_untouched_and_gets_a_configuration_that_serves_it() {
    let scratch = Scratch::new("own-book");
    copy_tree(&repository().join("demo"), &scratch.join("site"));
    let data = scratch.writable_dir("data");
    let seed = scratch.join("site/seed.php");
    run(Command::new(php::expand_placeholders("php{php}"))
        .arg(seed)
        .env("DEMO_DATA", &data));
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(&data));
    let before = contents(&scratch.join("site"));
    let site = scratch.join("site");
    let out = scratch.join("run");
    let data = format!("DEMO_DATA={}", data.display());
    // The number of cores is among the numbers of children that are tried, whatever the machine is.
    let cores = std::thread::available_parallelism().unwrap();
    let fewer = format!("howdah-embed-{cores}");
    let stacks = format!("nginx-fpm-unix,{fewer}");
    let cookie = "taste=very-secret";
    let more = ["--url", "/api/entries", "--env", &data, "--cookie", cookie];
    let mut arguments = briefly(&site, &out, &stacks, "4", &more);
    // On a busy machine, 0.2 s may pass without any response.
    let window = arguments.iter().position(|word| *word == WINDOW);
    arguments[window.expect("a window")] = "1";
    arguments.push("--json");
    let output = output(&mut compare(&arguments));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(outcome["reference"], "nginx + php-fpm, unix socket");
    let rows = rows(&outcome, 0);
    for arm in ["howdah-embed", &fewer, "nginx-fpm-unix"] {
        let row = rows.get(arm).unwrap_or_else(|| panic!("{arm}: {outcome}"));
        assert!(row["good"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["errors"], serde_json::json!({}), "{row}");
        assert!(row["memory"].as_u64() > Some(1 << 20), "{row}");
    }
    // Two pairs of measurements cannot prove anything: the default stays, and the advice says so.
    let advice = &outcome["advice"];
    assert_eq!(advice["choice"]["mode"], "embed");
    assert!(advice["choice"]["children"].is_null(), "{advice}");
    let decisions = advice["decisions"].as_array().expect("decisions");
    let children = decisions
        .iter()
        .find(|d| d["question"] == "children")
        .unwrap();
    let evidence = children["evidence"].as_str().unwrap();
    assert!(!children["better"].as_bool().unwrap(), "{evidence}");

    let config = std::fs::read_to_string(out.join("howdah.toml")).expect("the configuration");
    assert!(
        config.contains("mode = \"embed\"") && config.contains("DEMO_DATA"),
        "{config}"
    );
    assert_eq!(outcome["config"]["text"], config);
    let trial = outcome["config"]["trial"]["Ok"]
        .as_str()
        .expect("the trial went well");
    assert!(
        trial.contains("no mistakes") && trial.contains("2 pages correctly"),
        "{trial}"
    );

    assert_eq!(
        contents(&site),
        before,
        "nothing was written into the application"
    );
    let page = std::fs::read_to_string(out.join("app.html")).expect("the page");
    for from_elsewhere in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    assert!(
        page.contains("<h1>Mode embed, page cache off</h1>"),
        "{page}"
    );
    // A cookie with which the site was requested does not appear in any file.
    for (file, (bytes, _)) in contents(&out) {
        let told = text(&bytes).contains("very-secret");
        assert_eq!(told, file.ends_with("plan.json"), "{}", file.display());
    }
    assert_eq!(left_behind(scratch.path()), Vec::<String>::new());
}

/// Returns a site whose page changes with every request, and differs under CGI.
fn moody(scratch: &Scratch, script: &str) -> PathBuf {
    scratch.write("site/index.php", script);
    scratch.join("site")
}

#[test]
fn stack_that_gives_another_page_is_named_and_the_others_continue() {
    let scratch = Scratch::new("own-moody");
    let site = moody(
        &scratch,
        "<?php echo '<h1>A caravan of elephants</h1><p>', uniqid(), '</p>';\n\
         echo PHP_SAPI === 'cgi-fcgi' ? '<p>Tents: none</p>' : '<p>Tents: 25</p>', '</html>';\n",
    );
    let out = scratch.join("run");
    let stacks = "nginx-fpm-unix,howdah-pool";
    let output = output(&mut compare(&briefly(
        &site,
        &out,
        stacks,
        "4",
        &["--json"],
    )));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let failed = &outcome["failed"][0];
    assert_eq!(
        (&failed["arm"], &failed["name"]),
        (&"howdah-pool".into(), &"WrongPage".into())
    );
    let message = failed["message"].as_str().unwrap();
    assert!(
        message.contains("Tents: none") && message.contains("Tents: 25"),
        "{message}"
    );
    let rows = rows(&outcome, 0);
    assert!(rows.contains_key("howdah-embed") && !rows.contains_key("howdah-pool"));
    let constant = outcome["pages"][0]["constant"].as_u64().unwrap();
    assert!((50..100).contains(&constant), "{constant}");
}

const WORKER: &str = "<?php
$booted = uniqid('booted ');
$page = function () use ($booted) { echo '<h1>A caravan of elephants</h1><p>', strlen($booted), '</p>'; };
while (frankenphp_handle_request($page)) { }
";

#[test]
fn worker_script_takes_part_where_there_is_one_and_is_asked_for_where_not() {
    let scratch = Scratch::new("own-worker");
    let site = moody(
        &scratch,
        "<?php echo '<h1>A caravan of elephants</h1><p>20</p>';\n",
    );
    let out = scratch.join("run");
    let stacks = "nginx-fpm-unix,howdah-worker";
    let more = ["--json", "--front-controller", "/index.php"];
    let arguments = briefly(&site, &out, stacks, "4", &more);
    let refused = output(&mut compare(&arguments));
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(
        said.contains("no worker script was found: name it with --worker FILE"),
        "{said}"
    );
    scratch.write("site/worker.php", WORKER);
    let output = output(&mut compare(&arguments));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = rows(&outcome, 0);
    let worker = rows
        .get("howdah-worker")
        .unwrap_or_else(|| panic!("{outcome}"));
    assert!(worker["good"].as_f64() > Some(0.0), "{worker}");
    assert_eq!(worker["errors"], serde_json::json!({}), "{worker}");
    // The worker was started with a configuration file of the form that would be recommended.
    let started = std::fs::read_to_string(out.join("howdah-worker/howdah.toml"));
    let started = started.expect("the file it was started from");
    assert!(
        started.contains("mode = \"worker\"") && started.contains("worker.php"),
        "{started}"
    );
    let checked = Command::new(howdah_program())
        .args([
            "check",
            "--config",
            path(&out.join("howdah-worker/howdah.toml")),
        ])
        .output()
        .expect("howdah can be run");
    assert!(checked.status.success(), "{}", text(&checked.stderr));
    // Every row says how close the load tester was to its own limit.
    for row in rows.values() {
        let share = row["generator"]["of_ceiling"].as_f64();
        assert!(share > Some(0.0), "{row}");
    }
}

#[test]
fn comparison_recommends_nothing_if_no_mode_serves_the_page() {
    let scratch = Scratch::new("own-none");
    let site = moody(
        &scratch,
        "<?php echo 'I run under ', $_SERVER['SERVER_SOFTWARE'];\n",
    );
    let out = scratch.join("run");
    let output = output(&mut compare(&briefly(
        &site,
        &out,
        "nginx-fpm-unix",
        "2",
        &[],
    )));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(
        said.contains("No mode of Howdah serves these pages correctly"),
        "{said}"
    );
    assert!(said.contains("instead of `I run under nginx"), "{said}");
    assert!(!out.join("howdah.toml").exists());
}

#[test]
fn invalid_page_ends_the_comparison_before_anything_is_measured() {
    let scratch = Scratch::new("own-404");
    let site = moody(
        &scratch,
        "<?php if (isset($_GET['go'])) { header('Location: http://shop.test/', true, 301); exit; }\n\
         echo 'A caravan of elephants';\n",
    );
    let out = scratch.join("run");
    let output = output(&mut compare(&[
        "--app",
        path(&site),
        "--url",
        "/",
        "--url",
        "/nope",
        "--url",
        "/?go",
        "--stacks",
        "nginx-fpm-unix",
        "--out",
        path(&out),
    ]));
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(
        said.contains("--url /nope: nginx + php-fpm, unix socket responds with 404"),
        "{said}"
    );
    assert!(said.contains("--front-controller"), "{said}");
    assert!(
        said.contains("responds with 301: the page redirects to http://shop.test/"),
        "{said}"
    );
    assert!(!out.join("blocks/look-000.json").exists());
    assert_eq!(left_behind(scratch.path()), Vec::<String>::new());
}

#[test]
fn comparison_names_every_missing_program() {
    let scratch = Scratch::new("own-nothing");
    let site = moody(&scratch, "<?php echo 'A caravan of elephants';\n");
    let out = scratch.join("run");
    let mut command = compare(&[
        "--app",
        path(&site),
        "--url",
        "/",
        "--stacks",
        "howdah-embed",
        "--out",
        path(&out),
    ]);
    let output = output(command.env("HOWDAH_PHP", "/nowhere/howdah-php"));
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(
        said.contains("no installed stack can serve the application"),
        "{said}"
    );
    assert!(said.contains("PhpMissing"), "{said}");
}

#[test]
fn all_mistakes_are_told_at_once_and_nothing_is_made() {
    let scratch = Scratch::new("own-mistakes");
    scratch.write("site/style.css", "p {}");
    let site = scratch.join("site");
    let inside = site.join("results");
    let output_of = |arguments: &[&str]| {
        let output = output(compare(arguments).current_dir(scratch.path()));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = output_of(&[
        "--app",
        path(&site),
        "--url",
        "blog",
        "--url",
        "https://x/",
        "--env",
        "1=2",
        "--php-ini",
        "/nowhere.ini",
        "--front-controller",
        "index",
        "--out",
        path(&inside),
    ]);
    for part in [
        "--url blog: expected a path",
        "--url https://x/: requests are sent to the stacks without TLS",
        "--env: `1` is not a name",
        "--php-ini /nowhere.ini: No such file",
        "--front-controller index: expected",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = output_of(&[
        "--app",
        path(&site),
        "--url",
        "/",
        "--stacks",
        "nginx",
        "--out",
        path(&inside),
    ]);
    for part in [
        "the directory contains no .php file",
        "inside the application's directory",
        "--stacks: there is no stack `nginx`",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!inside.exists());
    let said = output_of(&["--app", "/nowhere", "--url", "/"]);
    assert!(said.contains("--app /nowhere: No such file"), "{said}");
    let said = output_of(&["--url", "/"]);
    assert!(
        said.contains("--url works only in a comparison on an application"),
        "{said}"
    );
    let said = output_of(&["--resume", "/nowhere"]);
    assert!(said.contains("there is no directory /nowhere"), "{said}");
    let said = output_of(&["--resume", path(scratch.path())]);
    assert!(said.contains("there is no comparison in"), "{said}");
    let made: Vec<_> = std::fs::read_dir(scratch.path())
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(made.len(), 1, "{made:?}");
}

#[test]
fn killed_run_resumes_after_its_last_block_and_never_with_another_set_up() {
    let scratch = Scratch::new("own-resume");
    let site = moody(&scratch, "<?php echo '<h1>A caravan of elephants</h1>';\n");
    let out = scratch.join("run");
    let begin = briefly(&site, &out, "nginx-fpm-unix", "2", &["--full"]);
    let resume = ["--resume", path(&out), "--json"];
    let first = out.join("blocks/look-000.json");
    let until = |arguments: &[&str], block: &Path, signal| {
        // The output goes to files instead of pipes, because no one reads it while the program runs.
        let [stdout, stderr] = ["stdout", "stderr"].map(|name| scratch.join(name));
        let file = |path: &PathBuf| File::create(path).expect("a file for its output");
        let mut child = compare(arguments)
            .stdout(file(&stdout))
            .stderr(file(&stderr))
            .spawn()
            .expect("howdah can be run");
        let said = || std::fs::read_to_string(&stderr).unwrap_or_default();
        let begun = Instant::now();
        while !block.exists() {
            let ended = child.try_wait().expect("its state");
            assert!(
                ended.is_none(),
                "it ended before a block: {ended:?}\n{}",
                said()
            );
            assert!(
                begun.elapsed() < MAX_WAIT,
                "no block after {MAX_WAIT:?}:\n{}",
                said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        // The process may have exited in the meantime; then the status says so.
        let _ = kill_process(pid, signal);
        let status = child.wait().expect("its end");
        let gone = || left_behind(scratch.path()).is_empty();
        wait_until("its programs to end", MAX_WAIT, gone);
        let [stdout, stderr] = [stdout, stderr].map(|path| std::fs::read(path).unwrap());
        Output {
            status,
            stdout,
            stderr,
        }
    };
    let killed = until(&begin, &first, Signal::KILL);
    assert_eq!(killed.status.signal(), Some(9));
    let kept = std::fs::read(&first).expect("the block");

    let stopped = until(&resume, &out.join("blocks/look-001.json"), Signal::INT);
    assert_eq!(
        stopped.status.code(),
        Some(130),
        "{}",
        text(&stopped.stderr)
    );
    let said = text(&stopped.stderr);
    assert!(
        said.contains("to continue, run: howdah compare --resume"),
        "{said}"
    );
    let outcome: Value = serde_json::from_slice(&stopped.stdout).expect("JSON");
    assert_eq!(outcome["interrupted"], true);
    assert!(outcome["config"].is_null(), "nothing is recommended yet");

    // A changed program, or another version of one: its figures are not mixed with earlier ones.
    let plan = out.join("plan.json");
    let right = std::fs::read_to_string(&plan).unwrap();
    let howdah = howdah_program().canonicalize().unwrap();
    let other = right.replace("\"cores\",\"", "\"cores\",\"9");
    assert_ne!(other, right);
    std::fs::write(&plan, other).unwrap();
    let refused = output(&mut compare(&resume));
    assert_eq!(refused.status.code(), Some(3));
    let said = text(&refused.stderr);
    assert!(
        said.contains("Changed: ") && said.contains("cores: "),
        "{said}"
    );
    let sums = right.replace(
        &format!("{}\",\"", path(&howdah)),
        &format!("{}\",\"0", path(&howdah)),
    );
    std::fs::write(&plan, sums).unwrap();
    let said = text(&output(&mut compare(&resume)).stderr);
    assert!(
        said.contains("howdah has been replaced by another program"),
        "{said}"
    );
    std::fs::write(&plan, right).unwrap();

    let done = output(&mut compare(&resume));
    assert!(done.status.success(), "{}", text(&done.stderr));
    let outcome: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!(outcome["interrupted"], false);
    // Two windows of the first look, and two of the decision.
    assert_eq!(rows(&outcome, 0)["howdah-embed"]["windows"], 4);
    assert_eq!(std::fs::read(&first).unwrap(), kept, "measured once");
    // Starting again in the same folder would mix two comparisons.
    let again = output(&mut compare(&begin));
    assert_eq!(again.status.code(), Some(3));
    assert!(text(&again.stderr).contains("already holds a comparison"));
}
