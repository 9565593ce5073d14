//! `compare` with benchmarks: the command line, the progress, and where results go. The work is the
//! lab's.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use howdah_bench::driver::{Event, Session};
use howdah_lab::LabError;
use howdah_lab::budget::{RunBudget, Until};
use howdah_lab::experiment::plan::SavedPlan;
use howdah_lab::folder::Folder;
use howdah_lab::identity::Identity;
use howdah_lab::journal::Journal;
use howdah_lab::process::RunAs;
use howdah_lab::site::Sites;
use howdah_lab::stack::STACKS;
use howdah_lab::suite::{self, BUILT_IN, FIVE, Suite};
use howdah_lab::suite_runner::{self, SuiteRequest, SuiteRunner};
use howdah_lab::table::{self, Origin, Table};
use howdah_lab::{need, php, report, saved};
use nix::sys::signal::Signal;

use crate::compare_app::{self, AppOptions};
use crate::{exit, interrupt};

/// `howdah compare`
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Compare {
    /// Work on saved results
    #[command(subcommand)]
    pub command: Option<CompareCommand>,
    /// Benchmarks: b1, b2, b3, b4, b5, hello, cache, cache-miss, or files of the same form [default: b1 to b5]
    #[arg(value_name = "BENCHMARK")]
    pub benchmarks: Vec<String>,
    /// Measure for minutes: short windows, few levels of concurrency [default]
    #[arg(long, conflicts_with_all = ["full", "as_posted"])]
    pub quick: bool,
    /// Measure for hours: long windows, every level of concurrency, to prove small differences
    #[arg(long, conflicts_with = "as_posted")]
    pub full: bool,
    /// Measure once with the post's number of requests and no warm-up, to see what the post saw
    #[arg(long, conflicts_with = "window")]
    pub as_posted: bool,
    /// Measure only these stacks, as `--list` names them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Measure only these pages of the benchmarks
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub pages: Vec<String>,
    /// Measure only these numbers of clients
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub concurrency: Vec<u32>,
    /// Windows per figure; more for smaller differences
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub blocks: Option<u32>,
    /// Length of a window in seconds; longer for slow pages
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub window: Option<Duration>,
    /// With --resume: measure blocks again in which a stack failed for a reason that is gone
    #[arg(long)]
    pub rerun_failed: bool,
    /// Directory for results and all generated files [default: howdah-compare-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON, for scripts
    #[arg(long)]
    pub json: bool,
    /// List the stacks, and how to install missing ones
    #[arg(long)]
    pub list: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub app_options: AppOptions,
}

/// Commands that do not measure.
#[derive(Subcommand, Debug)]
pub enum CompareCommand {
    /// Print saved results, or write them into a document
    Report(Report),
}

/// `howdah compare report`
#[derive(Args, Debug)]
pub struct Report {
    /// Results: files, or directories of `--out`
    #[arg(value_name = "RUN", required = true)]
    pub runs: Vec<PathBuf>,
    /// Replace each benchmark's section of this Markdown file, between its marks
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write the HTML pages into this directory
    #[arg(long, value_name = "DIR")]
    pub html: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&value) {
        Ok(Duration::from_secs_f64(value))
    } else {
        Err("expected 0.1 to 3600 seconds".to_owned())
    }
}

/// `howdah compare`
pub fn run(arguments: &Compare) -> ExitCode {
    if let Some(CompareCommand::Report(wanted)) = &arguments.command {
        return match report_saved(wanted) {
            Ok(()) => exit::done(),
            Err(error) => {
                eprintln!("howdah: {error}");
                exit::failed()
            }
        };
    }
    if let Ok(howdah) = need::howdah() {
        php::choose(&howdah);
    }
    if arguments.list {
        return list();
    }
    let resume = arguments.app_options.resume.as_deref();
    let resume = resume.filter(|directory| !journals(directory).is_empty());
    if arguments.rerun_failed && resume.is_none() {
        eprintln!(
            "howdah: --rerun-failed belongs to --resume DIR with a comparison of benchmarks in DIR"
        );
        return exit::configuration();
    }
    if resume.is_none() && arguments.app_options.is_asked() {
        return compare_app::run(arguments);
    }
    if let Some(stray) = arguments.app_options.strays() {
        eprintln!(
            "howdah: {stray} belongs to a comparison on an application: --app DIR is missing"
        );
        return exit::configuration();
    }
    let prepared = match resume {
        Some(directory) => resumed(directory),
        None => match suites(arguments) {
            Ok(suites) => begun(arguments, &suites),
            Err(mistakes) => {
                for mistake in mistakes {
                    eprintln!("howdah: {mistake}");
                }
                return exit::configuration();
            }
        },
    };
    match prepared.and_then(|prepared| compare(arguments, &prepared)) {
        Ok(tables) if tables.iter().any(|table| table.interrupted) => exit::interrupted(),
        Ok(_) => exit::done(),
        Err(error) => {
            eprintln!("howdah: {error}");
            match error {
                LabError::NotResumable { .. } | LabError::Changed { .. } => exit::configuration(),
                _ => exit::failed(),
            }
        }
    }
}

/// Prints or writes saved results.
fn report_saved(wanted: &Report) -> Result<(), LabError> {
    let tables = saved::read(&wanted.runs)?;
    if let Some(directory) = &wanted.html {
        let folder = Folder::create(directory, RunAs::Ourselves)?;
        for table in &tables {
            let name = format!("{}.html", table.suite.name);
            println!(
                "{}",
                folder.write(&name, report::html::page(table))?.display()
            );
        }
    }
    if let Some(path) = &wanted.write {
        let failed = |error| LabError::File {
            path: path.clone(),
            error,
        };
        let document = std::fs::read_to_string(path).map_err(failed)?;
        let written = report::markdown::write(&path.display().to_string(), &document, &tables)?;
        // A rename replaces the document as a whole: one that was half written would be lost.
        let new = path.with_extension("md.new");
        std::fs::write(&new, written).map_err(failed)?;
        std::fs::rename(&new, path).map_err(failed)?;
        println!("{}", path.display());
    }
    if wanted.write.is_none() && wanted.html.is_none() {
        for table in &tables {
            println!("{}", report::text::render(table));
        }
    }
    Ok(())
}

fn list() -> ExitCode {
    let mut out = std::io::stdout().lock();
    for stack in STACKS {
        let here = match stack.here() {
            Ok(()) => "here".to_owned(),
            Err(error) => error.to_string(),
        };
        if writeln!(out, "{:<32} {:<58} {here}", stack.name, stack.title).is_err() {
            // The reader has seen enough (`| head`).
            break;
        }
    }
    exit::done()
}

/// The suites, reduced to what was asked for, each with the name or file it came from. Reports all
/// mistakes at once.
fn suites(arguments: &Compare) -> Result<Vec<(Suite, String)>, Vec<String>> {
    let mut mistakes = Vec::new();
    for name in &arguments.stacks {
        if howdah_lab::stack::Stack::find(name).is_none() {
            mistakes.push(format!(
                "--stacks: there is no stack `{name}`; `howdah compare --list` names them"
            ));
        }
    }
    let names: Vec<String> = match arguments.benchmarks.is_empty() {
        true => FIVE.map(str::to_owned).to_vec(),
        false => arguments.benchmarks.clone(),
    };
    let mut suites = Vec::new();
    for name in &names {
        let read = match BUILT_IN.iter().any(|(known, _)| known == name) {
            true => Suite::named(name),
            false => match std::fs::read_to_string(name) {
                Ok(text) => Suite::parse(name, &text),
                Err(error) => {
                    mistakes.push(format!(
                        "{name}: neither a benchmark of the program ({}) nor a file that can be read: {error}",
                        suite::known()
                    ));
                    continue;
                }
            },
        };
        match read {
            Ok(suite) => suites.push((suite, name.clone())),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    for page in &arguments.pages {
        if mistakes.is_empty()
            && !suites
                .iter()
                .any(|(suite, _)| suite.pages.iter().any(|p| p.name == *page))
        {
            let known: Vec<&str> = suites
                .iter()
                .flat_map(|(suite, _)| &suite.pages)
                .map(|p| p.name.as_str())
                .collect();
            mistakes.push(format!(
                "--pages: there is no page `{page}`; there are {}",
                known.join(", ")
            ));
        }
    }
    for (suite, _) in &mut suites {
        if !arguments.stacks.is_empty() {
            suite
                .rows
                .retain(|row| arguments.stacks.contains(&row.stack));
        }
        let form = match (arguments.full, arguments.as_posted) {
            (true, _) => suite.full.pages.clone(),
            (_, true) => None,
            _ => suite.quick.pages.clone(),
        };
        match (arguments.pages.is_empty(), form) {
            (false, _) => suite.keep_pages(&arguments.pages),
            (true, Some(pages)) => suite.keep_pages(&pages),
            (true, None) => {}
        }
        if !arguments.concurrency.is_empty() {
            suite.load.concurrency.clone_from(&arguments.concurrency);
        }
    }
    suites.retain(|(suite, _)| !suite.rows.is_empty() && !suite.pages.is_empty());
    if suites.is_empty() && mistakes.is_empty() {
        mistakes.push("none of the benchmarks has those stacks and pages".to_owned());
    }
    match mistakes.is_empty() {
        true => Ok(suites),
        false => Err(mistakes),
    }
}

/// The budget of `--quick`, `--full` or `--as-posted`, changed by the suite and then by the command
/// line.
fn budget(arguments: &Compare, suite: &Suite) -> RunBudget {
    let mut budget = if arguments.as_posted {
        RunBudget::as_posted()
    } else if arguments.full {
        RunBudget::full().with(&suite.full)
    } else {
        RunBudget::quick().with(&suite.quick)
    };
    if let Some(blocks) = arguments.blocks {
        budget.blocks = blocks;
    }
    if let Some(window) = arguments.window {
        budget.until = Until::Time(window);
    }
    if !arguments.concurrency.is_empty() {
        budget.levels = usize::MAX;
    }
    // A number or length that the user gives has no time limit.
    if arguments.blocks.is_some() || arguments.window.is_some() {
        budget.limit = None;
    }
    budget
}

/// What is to be measured: the plan of each benchmark, and the journal that records it.
struct PreparedSuites {
    folder: Folder,
    plans: Vec<(SavedPlan<SuiteRequest>, Journal)>,
}

/// Prepares a new comparison.
fn begun(arguments: &Compare, suites: &[(Suite, String)]) -> Result<PreparedSuites, LabError> {
    let out = arguments.out.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        PathBuf::from(format!("howdah-compare-{}", now.map_or(0, |t| t.as_secs())))
    });
    let folder = Folder::create(&out, RunAs::choose()?)?;
    let identity = Identity::now(&need::howdah()?);
    let journals = folder.directory(suite_runner::DIRECTORY)?;
    let mut plans = Vec::new();
    for (suite, source) in suites {
        let request = SuiteRequest {
            suite: suite.clone(),
            budget: budget(arguments, suite),
            benchmark: source.clone(),
            options: how_much(arguments),
        };
        let directory = journals.directory(&suite.name)?;
        let command = again(arguments, source);
        plans.push(SavedPlan::begin(
            &directory,
            identity.clone(),
            command,
            request,
        )?);
    }
    Ok(PreparedSuites { folder, plans })
}

/// Prepares a comparison that was begun before, if it still belongs to this machine and these
/// programs.
fn resumed(directory: &Path) -> Result<PreparedSuites, LabError> {
    let folder = Folder::create(directory, RunAs::choose()?)?;
    let identity = Identity::now(&need::howdah()?);
    let mut plans = Vec::new();
    for journal in journals(directory) {
        let folder = Folder::create(journal, folder.run_as())?;
        plans.push(SavedPlan::resume(&folder, &identity)?);
    }
    Ok(PreparedSuites { folder, plans })
}

/// The journals of benchmarks below a run's folder, by name.
fn journals(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join(suite_runner::DIRECTORY));
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| Journal::is_in(path))
        .collect();
    found.sort();
    found
}

fn compare(arguments: &Compare, prepared: &PreparedSuites) -> Result<Vec<Table>, LabError> {
    let PreparedSuites { folder, plans } = prepared;
    let runner = SuiteRunner {
        folder: folder.clone(),
        howdah: need::howdah()?,
        rerun_failed: arguments.rerun_failed,
    };
    let interrupt = listen_for_signals()?;
    announce(plans);
    let wanted = || {
        let pages = plans.iter().flat_map(|(plan, _)| &plan.request.suite.pages);
        pages.map(|page| page.site)
    };
    let mut sites = Some(Sites::make(&unused(&runner.folder, "sites")?, wanted())?);
    let mut tables = Vec::new();
    for (plan, journal) in plans {
        let SuiteRequest { suite, budget, .. } = &plan.request;
        let progress = ProgressLine::new(&suite.name);
        let mut watch = |event: Event<'_>| progress.event(event);
        let mut session = Session {
            interrupt: interrupt.clone(),
            command: Vec::new(),
            watch: &mut watch,
        };
        // A database that died costs the benchmark during which it died, and no other. It is ended
        // before the next one starts.
        let kept = sites
            .take()
            .and_then(|mut kept| kept.alive().is_ok().then_some(kept));
        let mut served = match kept {
            Some(kept) => kept,
            None => Sites::make(&unused(&runner.folder, "sites")?, wanted())?,
        };
        let measured = runner.measure(suite, budget, &mut served, journal, &mut session)?;
        sites = Some(served);
        progress.clear();
        let origin = Origin {
            versions: plan.identity.versions.clone(),
            benchmark: plan.request.benchmark.clone(),
            command: plan.command.clone(),
            options: plan.request.options.clone(),
        };
        let table = table::table(suite, budget, &measured, origin);
        keep(&runner.folder, &table)?;
        if !arguments.json {
            println!("{}", report::text::render(&table));
        }
        let interrupted = table.interrupted;
        tables.push(table);
        if interrupted {
            break;
        }
    }
    let place = runner.folder.path().display();
    if arguments.json {
        let text = serde_json::to_string_pretty(&tables).unwrap_or_default();
        println!("{text}");
    } else {
        for table in &tables {
            println!("{place}/{}.html", table.suite.name);
        }
        println!("The same directory has every generated file.");
    }
    let failed = |table: &Table| table.missing.iter().any(|m| m.name != "NotHere");
    if tables.iter().any(|table| table.interrupted) {
        eprintln!("howdah: continue with: howdah compare --resume {place}");
    } else if tables.iter().any(failed) {
        eprintln!(
            "howdah: measure blocks again in which a stack failed: howdah compare --resume {place} --rerun-failed"
        );
    }
    Ok(tables)
}

/// A directory of that name in a folder, or of the first name after it that is free: the site of an
/// earlier session stays as it is.
fn unused(folder: &Folder, name: &str) -> Result<Folder, LabError> {
    let mut free = name.to_owned();
    for number in 2.. {
        if !folder.join(&free).exists() {
            break;
        }
        free = format!("{name}-{number}");
    }
    folder.directory(&free)
}

/// Prints how long the comparison takes at most, before it starts anything.
fn announce(plans: &[(SavedPlan<SuiteRequest>, Journal)]) {
    let limits = plans.iter().map(|(plan, _)| plan.request.budget.limit);
    if let Some(all) = limits.sum::<Option<Duration>>() {
        eprintln!(
            "howdah: measuring ends after {} minutes; the report names what did not fit",
            all.as_secs_f64() / 60.0
        );
    }
}

fn keep(folder: &Folder, table: &Table) -> Result<(), LabError> {
    let json = serde_json::to_string_pretty(table).unwrap_or_default();
    folder.write(&format!("{}.json", table.suite.name), json)?;
    folder.write(
        &format!("{}.txt", table.suite.name),
        report::text::render(table),
    )?;
    folder.write(
        &format!("{}.html", table.suite.name),
        report::html::page(table),
    )?;
    Ok(())
}

/// The command line that measures this benchmark again; `source` is its name or its file.
fn again(arguments: &Compare, source: &str) -> String {
    let mut command = format!("howdah compare {source}{}", how_much(arguments));
    for (option, values) in [
        ("--stacks", &arguments.stacks),
        ("--pages", &arguments.pages),
    ] {
        if !values.is_empty() {
            command += &format!(" {option} {}", values.join(","));
        }
    }
    if !arguments.concurrency.is_empty() {
        let levels: Vec<String> = arguments.concurrency.iter().map(u32::to_string).collect();
        command += &format!(" --concurrency {}", levels.join(","));
    }
    command
}

/// The options that say how often and how long, each with a space before it.
fn how_much(arguments: &Compare) -> String {
    let mut options = String::new();
    if arguments.full {
        options += " --full";
    }
    if arguments.as_posted {
        options += " --as-posted";
    }
    if let Some(blocks) = arguments.blocks {
        options += &format!(" --blocks {blocks}");
    }
    if let Some(window) = arguments.window {
        options += &format!(" --window {}", window.as_secs_f64());
    }
    options
}

/// Begins to handle signals. The first one ends the run after its window and prints the results so
/// far, the second one ends it at once. Both end the started programs, too.
pub fn listen_for_signals() -> Result<Arc<AtomicBool>, LabError> {
    let stop = Arc::new(AtomicBool::new(false));
    let signals = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
    let first = || eprintln!("howdah: stopping after this window; press again to stop at once");
    match interrupt::watch(&signals, stop.clone(), first) {
        Ok(()) => Ok(stop),
        Err(error) => Err(LabError::File {
            path: PathBuf::from("signalfd"),
            error,
        }),
    }
}

/// The progress on standard error: on a terminal one line that is overwritten, in a pipe only
/// failures.
pub struct ProgressLine {
    suite: String,
    terminal: bool,
}

impl ProgressLine {
    /// Shows the progress of this benchmark.
    pub fn new(suite: &str) -> ProgressLine {
        ProgressLine {
            suite: suite.to_owned(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }

    /// Shows what begins and what failed.
    pub fn event(&self, event: Event<'_>) {
        match event {
            Event::Begins {
                number,
                of,
                label,
                left,
            } if self.terminal => self.begins(number, of, label, left),
            Event::Failed { label, error } => {
                self.clear();
                eprintln!("{}: {label}: {error}", self.suite);
            }
            _ => {}
        }
    }

    fn begins(&self, number: usize, of: Option<usize>, what: &str, left: Option<Duration>) {
        let left = left.map_or(String::new(), |left| {
            format!(
                ", {} min {:02} s left",
                left.as_secs() / 60,
                left.as_secs() % 60
            )
        });
        let of = of.map_or(String::new(), |of| format!("/{of}"));
        let line = format!("{} {number}{of}{left}: {what}", self.suite);
        let line: String = line.chars().take(100).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }
}
