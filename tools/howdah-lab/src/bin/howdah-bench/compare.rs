//! `compare` with benchmarks: the command line, the progress, and where results are written. The lab does the work.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use howdah_bench::driver::{BenchSession, SessionEvent};
use howdah_lab::LabError;
use howdah_lab::experiment::plan::SavedPlan;
use howdah_lab::folder::RunFolder;
use howdah_lab::journal::ComparisonJournal;
use howdah_lab::process::RunAs;
use howdah_lab::site::PreparedSites;
use howdah_lab::stack::STACKS;
use howdah_lab::suite_runner::{SuiteRequest, SuiteRunner};
use howdah_lab::table::{self, ResultTable, TableOrigin};
use howdah_lab::{need, report, saved};
use howdah_machine::php;

use crate::compare_app::{self, AppOptions};
use crate::progress::ProgressLine;
use crate::suites::{self, PreparedSuites};
use crate::{exit, interrupt};

/// `howdah compare`
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
                  howdah compare\n  \
                  howdah compare --app /srv/shop --url / --url '/search?q=tent'"
)]
pub struct CompareArguments {
    /// Print saved results, or write them into documents
    #[command(subcommand)]
    pub command: Option<CompareCommand>,
    /// Benchmarks: b1, b2, b3, b4, b5, hello, cache, cache-miss, web, visit, or files of the same format [default: b1 to b5]
    #[arg(value_name = "BENCHMARK")]
    pub benchmarks: Vec<String>,
    /// Measure for some minutes, with short windows and few numbers of clients [default]
    #[arg(long, conflicts_with_all = ["full", "as_posted"])]
    pub quick: bool,
    /// Measure for hours, with long windows and every number of clients, to prove small differences
    #[arg(long, conflicts_with = "as_posted")]
    pub full: bool,
    /// Measure once and without a warm-up, with as many requests as in the blog post that the benchmark is based on
    #[arg(long, conflicts_with = "window")]
    pub as_posted: bool,
    /// Measure only these stacks; `--list` prints their names
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Measure only these pages of the benchmarks
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub pages: Vec<String>,
    /// Measure only these numbers of clients
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub concurrency: Vec<u32>,
    /// Number of blocks, each of which measures every stack; smaller differences need more blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub blocks: Option<u32>,
    /// Length of one measurement (window) in seconds; slow pages need longer windows
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub window: Option<Duration>,
    /// With --resume: measure again where a server failed, after you have removed the cause
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
    #[command(after_help = "Example:\n  howdah compare report target/compare --html pages")]
    Report(ReportArguments),
}

/// `howdah compare report`
#[derive(Args, Debug)]
pub struct ReportArguments {
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

/// Runs `howdah compare`.
pub fn run(arguments: &CompareArguments) -> ExitCode {
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
        php::select_series(&howdah);
    }
    if arguments.list {
        return list_stacks();
    }
    let resume = arguments.app_options.resume.as_deref();
    let resume = resume.filter(|directory| !suites::journals(directory).is_empty());
    if arguments.rerun_failed && resume.is_none() {
        eprintln!(
            "howdah: --rerun-failed works only with --resume DIR, and DIR must contain a comparison of benchmarks"
        );
        return exit::configuration();
    }
    if resume.is_none() && arguments.app_options.is_requested() {
        return compare_app::run(arguments);
    }
    if let Some(stray) = arguments.app_options.stray_option() {
        eprintln!(
            "howdah: {stray} works only in a comparison on an application, but --app DIR is missing"
        );
        return exit::configuration();
    }
    let prepared = match resume {
        Some(directory) => suites::resume(directory),
        None => match suites::suites(arguments) {
            Ok(suites) => suites::begin(arguments, &suites),
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
fn report_saved(wanted: &ReportArguments) -> Result<(), LabError> {
    let tables = saved::read(&wanted.runs)?;
    if let Some(directory) = &wanted.html {
        let folder = RunFolder::create(directory, RunAs::Ourselves)?;
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
        let written =
            report::markdown::write_sections(&path.display().to_string(), &document, &tables)?;
        // The document is replaced as a whole by a rename, because a half-written one would be lost.
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

fn list_stacks() -> ExitCode {
    let mut out = std::io::stdout().lock();
    for stack in STACKS {
        let here = match stack.check_installed() {
            Ok(()) => "here".to_owned(),
            Err(error) => error.to_string(),
        };
        if writeln!(out, "{:<32} {:<58} {here}", stack.name, stack.title).is_err() {
            // The reader has closed the pipe (`| head`).
            break;
        }
    }
    exit::done()
}

fn compare(
    arguments: &CompareArguments,
    prepared: &PreparedSuites,
) -> Result<Vec<ResultTable>, LabError> {
    let PreparedSuites { folder, plans } = prepared;
    let runner = SuiteRunner {
        folder: folder.clone(),
        howdah: need::howdah()?,
        rerun_failed: arguments.rerun_failed,
    };
    let interrupt = interrupt::listen()?;
    announce_limit(plans);
    let wanted = || {
        let pages = plans.iter().flat_map(|(plan, _)| &plan.request.suite.pages);
        pages.map(|page| page.site)
    };
    let mut sites = Some(PreparedSites::prepare(
        &create_unused_folder(&runner.folder, "sites")?,
        wanted(),
    )?);
    let mut tables = Vec::new();
    for (plan, journal) in plans {
        let SuiteRequest { suite, budget, .. } = &plan.request;
        let progress = ProgressLine::new(&suite.name);
        let mut watch = |event: SessionEvent<'_>| progress.event(event);
        let mut session = BenchSession {
            interrupt: interrupt.clone(),
            command: Vec::new(),
            watch: &mut watch,
        };
        // If the database died, only the benchmark during which it died is lost. The old sites are stopped before the
        // next benchmark starts.
        let kept = sites
            .take()
            .and_then(|mut kept| kept.check_alive().is_ok().then_some(kept));
        let mut served = match kept {
            Some(kept) => kept,
            None => {
                PreparedSites::prepare(&create_unused_folder(&runner.folder, "sites")?, wanted())?
            }
        };
        let measured = runner.measure(suite, budget, &mut served, journal, &mut session)?;
        sites = Some(served);
        progress.clear();
        let origin = TableOrigin {
            versions: plan.identity.versions.clone(),
            benchmark: plan.request.benchmark.clone(),
            command: plan.command.clone(),
            options: plan.request.options.clone(),
        };
        let table = table::build_table(suite, budget, &measured, origin);
        save_table(&runner.folder, &table)?;
        if !arguments.json {
            println!("{}", report::text::render(&table));
        }
        let interrupted = table.interrupted;
        tables.push(table);
        if interrupted {
            break;
        }
    }
    print_places(arguments, &runner.folder, &tables);
    Ok(tables)
}

/// Prints where the results are, and how to continue or to repeat what failed.
fn print_places(arguments: &CompareArguments, folder: &RunFolder, tables: &[ResultTable]) {
    let place = folder.path().display();
    if arguments.json {
        let text = serde_json::to_string_pretty(tables).unwrap_or_default();
        println!("{text}");
    } else {
        for table in tables {
            println!("{place}/{}.html", table.suite.name);
        }
        println!("All generated files are in the same directory.");
    }
    let failed = |table: &ResultTable| table.missing.iter().any(|m| m.name != "NotHere");
    if tables.iter().any(|table| table.interrupted) {
        eprintln!("howdah: to continue, run: howdah compare --resume {place}");
    } else if tables.iter().any(failed) {
        eprintln!(
            "howdah: to repeat what failed, run: howdah compare --resume {place} --rerun-failed"
        );
    }
}

/// Creates a directory with that name in a folder, or with the first free name that follows: the sites of an earlier
/// session remain unchanged.
fn create_unused_folder(folder: &RunFolder, name: &str) -> Result<RunFolder, LabError> {
    let mut free = name.to_owned();
    for number in 2.. {
        if !folder.join(&free).exists() {
            break;
        }
        free = format!("{name}-{number}");
    }
    folder.directory(&free)
}

/// Prints the maximum duration of the comparison before anything is started.
fn announce_limit(plans: &[(SavedPlan<SuiteRequest>, ComparisonJournal)]) {
    let limits = plans.iter().map(|(plan, _)| plan.request.budget.limit);
    if let Some(all) = limits.sum::<Option<Duration>>() {
        eprintln!(
            "howdah: the measurement ends after {} minutes at the latest; the report names the measurements that it has skipped",
            all.as_secs_f64() / 60.0
        );
    }
}

fn save_table(folder: &RunFolder, table: &ResultTable) -> Result<(), LabError> {
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
