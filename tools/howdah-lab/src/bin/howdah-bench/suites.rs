//! Prepares the benchmarks that `compare` measures: turns the command line, or an earlier session, into plans and
//! journals.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use howdah_lab::LabError;
use howdah_lab::budget::{RunBudget, WindowEnd};
use howdah_lab::experiment::plan::SavedPlan;
use howdah_lab::folder::RunFolder;
use howdah_lab::identity::MeasurementIdentity;
use howdah_lab::journal::ComparisonJournal;
use howdah_lab::need;
use howdah_lab::process::RunAs;
use howdah_lab::stack::Stack;
use howdah_lab::suite::{self, BUILT_IN, FIVE, Suite};
use howdah_lab::suite_runner::{self, SuiteRequest};

use crate::compare::CompareArguments;

/// Returns the suites, reduced to what was requested, each with its name or file. Reports all mistakes at once.
pub fn suites(arguments: &CompareArguments) -> Result<Vec<(Suite, String)>, Vec<String>> {
    let mut mistakes = Vec::new();
    for name in &arguments.stacks {
        if Stack::find(name).is_none() {
            mistakes.push(format!(
                "--stacks: there is no stack `{name}`; `howdah compare --list` lists the stacks"
            ));
        }
    }
    let mut suites = read(arguments, &mut mistakes);
    for page in &arguments.pages {
        let mut pages = suites.iter().flat_map(|(suite, _)| &suite.pages);
        if mistakes.is_empty() && !pages.any(|known| known.name == *page) {
            let known = suites.iter().flat_map(|(suite, _)| &suite.pages);
            let known: Vec<&str> = known.map(|page| page.name.as_str()).collect();
            mistakes.push(format!(
                "--pages: there is no page `{page}`; the pages are {}",
                known.join(", ")
            ));
        }
    }
    for (suite, _) in &mut suites {
        reduce_suite(arguments, suite);
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

/// Reads the benchmarks that the command line names, or the five.
fn read(arguments: &CompareArguments, mistakes: &mut Vec<String>) -> Vec<(Suite, String)> {
    let names: Vec<String> = match arguments.benchmarks.is_empty() {
        true => FIVE.map(str::to_owned).to_vec(),
        false => arguments.benchmarks.clone(),
    };
    let mut suites = Vec::new();
    for name in &names {
        let read = match BUILT_IN.iter().any(|(known, _)| known == name) {
            true => Suite::built_in(name),
            false => match std::fs::read_to_string(name) {
                Ok(text) => Suite::parse(name, &text),
                Err(error) => {
                    mistakes.push(format!(
                        "{name}: neither a benchmark of the program ({}) nor a file that can be read: {error}",
                        suite::built_in_names()
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
    suites
}

/// Reduces a suite to the stacks, pages and levels of the command line.
fn reduce_suite(arguments: &CompareArguments, suite: &mut Suite) {
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

/// Returns the budget of `--quick`, `--full` or `--as-posted`, changed by the suite and then by the command line.
pub fn budget(arguments: &CompareArguments, suite: &Suite) -> RunBudget {
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
        budget.until = WindowEnd::Time(window);
    }
    if !arguments.concurrency.is_empty() {
        budget.levels = usize::MAX;
    }
    // There is no time limit if the user specifies a number or length.
    if arguments.blocks.is_some() || arguments.window.is_some() {
        budget.limit = None;
    }
    budget
}

/// The prepared benchmarks: the plan of each, and the journal that records it.
pub struct PreparedSuites {
    /// The folder of the run.
    pub folder: RunFolder,
    /// The plan and the journal of each benchmark.
    pub plans: Vec<(SavedPlan<SuiteRequest>, ComparisonJournal)>,
}

/// Prepares a new comparison.
pub fn begin(
    arguments: &CompareArguments,
    suites: &[(Suite, String)],
) -> Result<PreparedSuites, LabError> {
    let out = arguments.out.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        PathBuf::from(format!("howdah-compare-{}", now.map_or(0, |t| t.as_secs())))
    });
    let folder = RunFolder::create(&out, RunAs::choose()?)?;
    let identity = MeasurementIdentity::now(&need::howdah()?);
    let journals = folder.directory(suite_runner::JOURNALS_DIRECTORY)?;
    let mut plans = Vec::new();
    for (suite, source) in suites {
        let request = SuiteRequest {
            suite: suite.clone(),
            budget: budget(arguments, suite),
            benchmark: source.clone(),
            options: budget_options(arguments),
        };
        let directory = journals.directory(&suite.name)?;
        let command = repeat_command(arguments, source);
        plans.push(SavedPlan::begin(
            &directory,
            identity.clone(),
            command,
            request,
        )?);
    }
    Ok(PreparedSuites { folder, plans })
}

/// Prepares a comparison that was begun before, if the machine and the programs are still the same.
pub fn resume(directory: &Path) -> Result<PreparedSuites, LabError> {
    let folder = RunFolder::create(directory, RunAs::choose()?)?;
    let identity = MeasurementIdentity::now(&need::howdah()?);
    let mut plans = Vec::new();
    for journal in journals(directory) {
        let folder = RunFolder::create(journal, folder.run_as())?;
        plans.push(SavedPlan::resume(&folder, &identity)?);
    }
    Ok(PreparedSuites { folder, plans })
}

/// Returns the journals of benchmarks in a run's folder, by name.
pub fn journals(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory.join(suite_runner::JOURNALS_DIRECTORY));
    let mut found: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| ComparisonJournal::is_in(path))
        .collect();
    found.sort();
    found
}

/// Returns the command line that measures this benchmark again; `source` is its name or its file.
fn repeat_command(arguments: &CompareArguments, source: &str) -> String {
    let mut command = format!("howdah compare {source}{}", budget_options(arguments));
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

/// Returns the options that set how often and how long, each preceded by a space.
fn budget_options(arguments: &CompareArguments) -> String {
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
