//! `compare --app`: the command line of a comparison on the user's own application, and where its results are written.
//! The lab does the work (`howdah_lab::app_compare`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use howdah_bench::driver::{BenchSession, SessionEvent};
use howdah_lab::LabError;
use howdah_lab::app_compare::app::{self, TestedApp, UserPhpIni};
use howdah_lab::app_compare::arm::{self, AppArm};
use howdah_lab::app_compare::outcome::AppOutcome;
use howdah_lab::app_compare::prepare;
use howdah_lab::app_compare::report::{html, text};
use howdah_lab::app_compare::schedule::AppBudget;
use howdah_lab::app_compare::study::{AppRequest, Study};
use howdah_lab::app_compare::tree::FileTree;
use howdah_lab::experiment::plan::SavedPlan;
use howdah_lab::folder::RunFolder;
use howdah_lab::identity::MeasurementIdentity;
use howdah_lab::journal::ComparisonJournal;
use howdah_lab::need;
use howdah_lab::process::RunAs;

use crate::compare::CompareArguments;
use crate::progress::ProgressLine;
use crate::{exit, interrupt};

/// The maximum length of the path of the results, in bytes: unix sockets are created below it, and their paths may have
/// 107 bytes.
const MAX_OUT_PATH_BYTES: usize = 60;

/// Options of a comparison on one's own application.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Your own application")]
pub struct AppOptions {
    /// Measure the application in this directory, and recommend a mode, a number of children and whether to use the
    /// page cache
    #[arg(long, value_name = "DIR", conflicts_with_all = ["benchmarks", "pages"])]
    pub app: Option<PathBuf>,
    /// Page to measure: a path, or http://HOST/path if the application expects a certain host; may be repeated
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,
    /// Cookie to send, for pages that need one; may be repeated
    #[arg(long, value_name = "COOKIE")]
    pub cookie: Vec<String>,
    /// Header to send, as `NAME: VALUE`, for pages that need one; may be repeated
    #[arg(long, value_name = "LINE")]
    pub header: Vec<String>,
    /// Environment variable that the application needs; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Script that handles paths that are not files, such as /index.php, if Howdah does not recognise the application
    #[arg(long, value_name = "SCRIPT")]
    pub front_controller: Option<String>,
    /// Worker script for mode worker, if Howdah finds none
    #[arg(long, value_name = "FILE")]
    pub worker: Option<PathBuf>,
    /// php.ini for all stacks, if Debian's production values do not suit your application
    #[arg(long, value_name = "FILE")]
    pub php_ini: Option<PathBuf>,
    /// Continue the interrupted comparison in this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["app", "url", "benchmarks", "out", "full", "quick", "stacks", "pages", "concurrency", "blocks", "window"])]
    pub resume: Option<PathBuf>,
}

impl AppOptions {
    /// Returns whether these options request a comparison on an application.
    pub fn is_requested(&self) -> bool {
        self.app.is_some() || self.resume.is_some()
    }

    /// Returns the first specified option that has no meaning without `--app`.
    pub fn stray_option(&self) -> Option<&'static str> {
        let given = [
            ("--url", !self.url.is_empty()),
            ("--cookie", !self.cookie.is_empty()),
            ("--header", !self.header.is_empty()),
            ("--env", !self.env.is_empty()),
            ("--front-controller", self.front_controller.is_some()),
            ("--worker", self.worker.is_some()),
            ("--php-ini", self.php_ini.is_some()),
        ];
        let stray = given.into_iter().find(|(_, given)| *given);
        stray.map(|(name, _)| name).filter(|_| !self.is_requested())
    }
}

/// Carries out the comparison, prints its result and returns the exit code.
pub fn run(arguments: &CompareArguments) -> ExitCode {
    let started = Instant::now();
    let prepared = match &arguments.app_options.resume {
        Some(folder) => resume(folder),
        None => begin(arguments),
    };
    let (plan, journal, tree) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("howdah: {error}");
            return match error {
                LabError::OwnApp { .. }
                | LabError::NotResumable { .. }
                | LabError::Changed { .. } => exit::configuration(),
                _ => exit::failed(),
            };
        }
    };
    let folder = journal.folder().clone();
    let result = interrupt::listen().and_then(|interrupt| {
        let study = Study {
            plan,
            journal,
            howdah: need::howdah()?,
            started,
        };
        let progress = ProgressLine::new("app");
        let mut session = BenchSession {
            interrupt,
            command: Vec::new(),
            watch: &mut |event: SessionEvent<'_>| progress.event(event),
        };
        let outcome = study.run(tree, &mut session)?;
        save_outcome(&folder, &outcome)?;
        Ok(outcome)
    });
    match result {
        Ok(outcome) => print(arguments, &folder, &outcome),
        Err(error) => {
            eprintln!("howdah: {error}");
            match error {
                LabError::OwnApp { .. } => exit::configuration(),
                _ => exit::failed(),
            }
        }
    }
}

fn print(arguments: &CompareArguments, folder: &RunFolder, outcome: &AppOutcome) -> ExitCode {
    let place = folder.path().display();
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string_pretty(outcome).unwrap_or_default()
        );
    } else {
        println!("{}", text::render(outcome));
        println!("{place}/app.html");
        println!("All generated files are in the same directory.");
    }
    if outcome.interrupted {
        eprintln!("howdah: to continue, run: howdah compare --resume {place}");
        return exit::interrupted();
    }
    match &outcome.config {
        Some(config) if config.trial.is_ok() => exit::done(),
        _ => exit::failed(),
    }
}

fn save_outcome(folder: &RunFolder, outcome: &AppOutcome) -> Result<(), LabError> {
    let json = serde_json::to_string_pretty(outcome).unwrap_or_default();
    folder.write("app.json", json)?;
    folder.write("app.txt", text::render(outcome))?;
    folder.write("app.html", html::page(outcome))?;
    Ok(())
}

type PreparedStudy = (SavedPlan<AppRequest>, ComparisonJournal, FileTree);

/// Prepares a new comparison. Reports all mistakes of the command line at once, and creates nothing if there are any.
fn begin(arguments: &CompareArguments) -> Result<PreparedStudy, LabError> {
    let mut mistakes = Vec::new();
    let app = parse_application(&arguments.app_options, &mut mistakes);
    let out = output_folder(arguments, app.as_ref(), &mut mistakes);
    let tree = app.as_ref().and_then(|app| match prepare::examine(app) {
        Ok(tree) => Some(tree),
        Err(more) => {
            mistakes.extend(more);
            None
        }
    });
    let arms = app
        .as_ref()
        .map(|app| select_arms(arguments, app, &mut mistakes))
        .unwrap_or_default();
    let (Some(app), Some(tree), true) = (app, tree, mistakes.is_empty()) else {
        return Err(LabError::OwnApp { mistakes });
    };
    let mut budget = match arguments.full {
        true => AppBudget::full(),
        false => AppBudget::quick(),
    };
    budget.blocks = arguments.blocks.or(budget.blocks);
    budget.window = arguments
        .window
        .map(|window| window.as_secs_f64())
        .or(budget.window);
    budget.levels.clone_from(&arguments.concurrency);
    let folder = RunFolder::create(&out, RunAs::choose()?)?;
    prepare::check_readable(&app, &folder)?;
    let command = repeat_command(arguments, &app);
    let request = AppRequest {
        arms,
        budget,
        began: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64()),
        app,
    };
    let identity = MeasurementIdentity::now(&need::howdah()?);
    let (plan, journal) = SavedPlan::begin(&folder, identity, command, request)?;
    Ok((plan, journal, tree))
}

/// Prepares a comparison that was begun before, if the machine and the programs are still the same.
fn resume(folder: &Path) -> Result<PreparedStudy, LabError> {
    if !folder.is_dir() {
        return Err(LabError::OwnApp {
            mistakes: vec![format!(
                "--resume: there is no directory {}",
                folder.display()
            )],
        });
    }
    let identity = MeasurementIdentity::now(&need::howdah()?);
    let folder = RunFolder::create(folder, RunAs::choose()?)?;
    let (plan, journal) = SavedPlan::<AppRequest>::resume(&folder, &identity)?;
    let tree = prepare::examine(&plan.request.app);
    let tree = tree.map_err(|mistakes| LabError::OwnApp { mistakes })?;
    Ok((plan, journal, tree))
}

fn parse_application(options: &AppOptions, mistakes: &mut Vec<String>) -> Option<TestedApp> {
    fn sorted<T>(result: Result<T, Vec<String>>, mistakes: &mut Vec<String>) -> Option<T> {
        result.map_err(|more| mistakes.extend(more)).ok()
    }
    let pages = sorted(app::parse_pages(&options.url), mistakes);
    let headers = sorted(
        app::parse_headers(&options.header, &options.cookie),
        mistakes,
    );
    let environment = sorted(app::parse_environment(&options.env), mistakes);
    let php_ini = options.php_ini.as_ref().map(|path| {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|e| mistakes.push(format!("--php-ini {}: {e}", path.display())));
        (path, text.ok())
    });
    if let Some(script) = &options.front_controller
        && !(script.starts_with('/') && script.ends_with(".php"))
    {
        mistakes.push(format!(
            "--front-controller {script}: expected the URL path of a script, such as /index.php"
        ));
    }
    let directory = options.app.as_ref()?;
    let found = match FoundApplication::in_directory(directory) {
        Ok(found) => found,
        Err(error) => {
            mistakes.push(format!("--app {error}"));
            return None;
        }
    };
    let directory = directory.canonicalize().ok()?;
    let absolute = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let worker = match &options.worker {
        Some(path) if !path.is_file() => {
            mistakes.push(format!(
                "--worker {}: there is no such file",
                path.display()
            ));
            None
        }
        Some(path) => Some(absolute(path)),
        None => arm::worker_script(&directory, &found.root),
    };
    let (host, urls) = pages?;
    Some(TestedApp {
        root: found.root,
        front_controller: options.front_controller.clone().or(found.front_controller),
        front_controller_given: options.front_controller.is_some(),
        found: found.application,
        host,
        urls,
        headers: headers?,
        environment: environment?,
        worker,
        php_ini: php_ini.and_then(|(path, text)| {
            Some(UserPhpIni {
                path: absolute(path),
                text: text?,
            })
        }),
        auto_children: found.max_children,
        cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        directory,
    })
}

/// The application in a directory, as `howdah check DIR --json` describes it.
#[derive(Debug, serde::Deserialize)]
struct FoundApplication {
    application: String,
    root: PathBuf,
    front_controller: Option<String>,
    max_children: u32,
}

impl FoundApplication {
    fn in_directory(directory: &Path) -> Result<FoundApplication, String> {
        let howdah = need::howdah().map_err(|error| error.to_string())?;
        let mut check = Command::new(&howdah);
        check.args(["check", "--json", "--"]).arg(directory);
        let output = check
            .output()
            .map_err(|error| format!("cannot run {}: {error}", howdah.display()))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            let why = why.trim();
            return Err(why.strip_prefix("howdah: ").unwrap_or(why).to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| {
            format!(
                "{}: {} check says: {error}",
                directory.display(),
                howdah.display()
            )
        })
    }
}

/// Returns the arms: all that make sense, or those that `--stacks` names; always with the default.
fn select_arms(
    arguments: &CompareArguments,
    app: &TestedApp,
    mistakes: &mut Vec<String>,
) -> Vec<AppArm> {
    let quick = !arguments.full;
    if arguments.stacks.is_empty() {
        return arm::arms(app, quick);
    }
    // A stack that is named is measured even in a quick comparison.
    let all = arm::arms(app, false);
    for name in &arguments.stacks {
        if !all.iter().any(|arm| arm.matches_name(name)) {
            if [arm::WORKER_ARM, arm::RIVAL_WORKER_ARM].contains(&name.as_str()) {
                mistakes.push(format!(
                    "--stacks {name}: no worker script was found: name it with --worker FILE"
                ));
                continue;
            }
            let known: Vec<&str> = all.iter().map(|arm| arm.name.as_str()).collect();
            mistakes.push(format!(
                "--stacks: there is no stack `{name}` for an application; the stacks are {}",
                known.join(", ")
            ));
        }
    }
    let named = |arm: &AppArm| arguments.stacks.iter().any(|name| arm.matches_name(name));
    let wanted = all.into_iter();
    wanted
        .filter(|arm| arm.name == arm::DEFAULT || named(arm))
        .collect()
}

/// Returns the folder of the results, which is never inside the application's.
fn output_folder(
    arguments: &CompareArguments,
    app: Option<&TestedApp>,
    mistakes: &mut Vec<String>,
) -> PathBuf {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let name = format!("howdah-compare-{}", now.map_or(0, |t| t.as_secs()));
    let here = std::env::current_dir().unwrap_or_default();
    let inside = |path: &Path| app.is_some_and(|app| path.starts_with(&app.directory));
    let out = match &arguments.out {
        Some(out) => here.join(out),
        // /var/tmp survives a reboot.
        None if inside(&here) => Path::new("/var/tmp").join(name),
        None => here.join(name),
    };
    // A path that does not exist yet has no canonical form, but one of its ancestors has.
    let above = out.ancestors().find_map(|path| {
        let real = path.canonicalize().ok()?;
        Some(real.join(out.strip_prefix(path).ok()?))
    });
    let out = above.unwrap_or(out);
    if inside(&out) {
        mistakes.push(format!(
            "--out {}: this is inside the application's directory, to which the comparison does not write",
            out.display()
        ));
    }
    if out.as_os_str().len() > MAX_OUT_PATH_BYTES {
        mistakes.push(format!(
            "--out {}: the path is {} bytes long; more than {MAX_OUT_PATH_BYTES} make the unix sockets below it too long",
            out.display(),
            out.as_os_str().len()
        ));
    }
    out
}

/// Returns the command line that repeats the measurement, without values that may be secret.
fn repeat_command(arguments: &CompareArguments, app: &TestedApp) -> String {
    let options = &arguments.app_options;
    let mut words = vec![format!("howdah compare --app {}", app.directory.display())];
    words.extend(options.url.iter().map(|url| format!("--url '{url}'")));
    words.extend(options.cookie.iter().map(|_| "--cookie '…'".to_owned()));
    let names = options
        .header
        .iter()
        .filter_map(|line| line.split_once(':'));
    words.extend(names.map(|(name, _)| format!("--header '{name}: …'")));
    words.extend(
        app.environment
            .iter()
            .map(|(name, _)| format!("--env '{name}=…'")),
    );
    words.extend(
        options
            .front_controller
            .iter()
            .map(|s| format!("--front-controller {s}")),
    );
    let paths = [
        ("--worker", &options.worker),
        ("--php-ini", &options.php_ini),
    ];
    for (name, path) in paths {
        words.extend(path.iter().map(|path| format!("{name} {}", path.display())));
    }
    if arguments.full {
        words.push("--full".to_owned());
    }
    if !arguments.stacks.is_empty() {
        words.push(format!("--stacks {}", arguments.stacks.join(",")));
    }
    if !arguments.concurrency.is_empty() {
        let levels: Vec<String> = arguments.concurrency.iter().map(u32::to_string).collect();
        words.push(format!("--concurrency {}", levels.join(",")));
    }
    words.extend(arguments.blocks.iter().map(|n| format!("--blocks {n}")));
    words.extend(
        arguments
            .window
            .iter()
            .map(|w| format!("--window {}", w.as_secs_f64())),
    );
    words.join(" ")
}
