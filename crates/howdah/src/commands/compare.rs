//! `howdah compare`: the five benchmarks, or a file of one's own, on this machine. The work is the
//! lab's; here is the command line, the progress, and where results go.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use howdah_lab::LabError;
use howdah_lab::folder::Folder;
use howdah_lab::measure::{Effort, Lab, Watch};
use howdah_lab::process::Servant;
use howdah_lab::stack::STACKS;
use howdah_lab::suite::{FIVE, Suite};
use howdah_lab::table::{self, Table};
use howdah_lab::{report, versions};

use crate::{exit, sys};

/// `howdah compare`
#[derive(Args, Debug)]
pub struct Compare {
    /// Benchmarks: b1, b2, b3, b4, b5, or files of the same form [default: all five]
    #[arg(value_name = "BENCHMARK")]
    pub benchmarks: Vec<String>,
    /// Minutes instead of hours: three short windows for each figure [default]
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// Ten windows of five seconds for each figure, every level of concurrency: hours
    #[arg(long)]
    pub full: bool,
    /// Only these stacks, as `--list` names them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub stacks: Vec<String>,
    /// Only these pages of the benchmarks
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub pages: Vec<String>,
    /// Only these levels of concurrency
    #[arg(long, value_name = "N,…", value_delimiter = ',')]
    pub concurrency: Vec<u32>,
    /// Windows of each figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub blocks: Option<u32>,
    /// Length of a window in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub window: Option<Duration>,
    /// Folder for results and every generated file [default: howdah-compare-TIME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Print the stacks, and which can run here
    #[arg(long)]
    pub list: bool,
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
    if arguments.list {
        return list();
    }
    let suites = match suites(arguments) {
        Ok(suites) => suites,
        Err(mistakes) => {
            for mistake in mistakes {
                eprintln!("howdah: {mistake}");
            }
            return exit::configuration();
        }
    };
    match compare(arguments, &suites) {
        Ok(tables) if tables.iter().any(|table| table.interrupted) => ExitCode::from(130),
        Ok(_) => exit::done(),
        Err(error) => {
            eprintln!("howdah: {error}");
            exit::failed()
        }
    }
}

fn list() -> ExitCode {
    for stack in STACKS {
        let here = match stack.here() {
            Ok(()) => "here".to_owned(),
            Err(error) => error.to_string(),
        };
        println!("{:<32} {:<58} {here}", stack.name, stack.title);
    }
    exit::done()
}

/// The suites, cut to what was asked for. All mistakes at once.
fn suites(arguments: &Compare) -> Result<Vec<Suite>, Vec<String>> {
    let mut mistakes = Vec::new();
    for name in &arguments.stacks {
        if howdah_lab::stack::Stack::find(name).is_none() {
            mistakes.push(format!(
                "--stacks: there is no stack `{name}`; `howdah compare --list` names them"
            ));
        }
    }
    let names: Vec<String> = match arguments.benchmarks.is_empty() {
        true => FIVE.iter().map(|(name, _)| (*name).to_owned()).collect(),
        false => arguments.benchmarks.clone(),
    };
    let mut suites = Vec::new();
    for name in &names {
        let read = match FIVE.iter().any(|(known, _)| known == name) {
            true => Suite::named(name),
            false => match std::fs::read_to_string(name) {
                Ok(text) => Suite::parse(name, &text),
                Err(error) => {
                    mistakes.push(format!(
                        "{name}: neither b1 to b5 nor a file that can be read: {error}"
                    ));
                    continue;
                }
            },
        };
        match read {
            Ok(suite) => suites.push(suite),
            Err(error) => mistakes.push(error.to_string()),
        }
    }
    for suite in &mut suites {
        if !arguments.stacks.is_empty() {
            suite
                .rows
                .retain(|row| arguments.stacks.contains(&row.stack));
        }
        if !arguments.pages.is_empty() {
            suite
                .pages
                .retain(|page| arguments.pages.contains(&page.name));
            let pages = &suite.pages;
            suite
                .reported
                .retain(|figure| pages.iter().any(|page| page.name == figure.page));
        }
        if !arguments.concurrency.is_empty() {
            suite.load.concurrency.clone_from(&arguments.concurrency);
        }
    }
    suites.retain(|suite| !suite.rows.is_empty() && !suite.pages.is_empty());
    if suites.is_empty() && mistakes.is_empty() {
        mistakes.push("none of the benchmarks has those stacks and pages".to_owned());
    }
    match mistakes.is_empty() {
        true => Ok(suites),
        false => Err(mistakes),
    }
}

fn compare(arguments: &Compare, suites: &[Suite]) -> Result<Vec<Table>, LabError> {
    let mut effort = match arguments.full {
        true => Effort::full(),
        false => Effort::quick(),
    };
    if let Some(blocks) = arguments.blocks {
        effort.blocks = blocks;
    }
    if let Some(window) = arguments.window {
        effort.window = window;
    }
    if !arguments.concurrency.is_empty() {
        effort.levels = usize::MAX;
    }
    let out = arguments.out.clone().unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        PathBuf::from(format!("howdah-compare-{}", now.map_or(0, |t| t.as_secs())))
    });
    let howdah = std::env::current_exe().map_err(|error| LabError::File {
        path: PathBuf::from("/proc/self/exe"),
        error,
    })?;
    let lab = Lab {
        folder: Folder::create(&out, Servant::choose()?)?,
        howdah: howdah.clone(),
        interrupt: Arc::new(AtomicBool::new(false)),
    };
    listen_for_signals(lab.interrupt.clone());
    let versions = versions::lines(&howdah);
    let mut tables = Vec::new();
    for suite in suites {
        let mut progress = Progress::new(&suite.name);
        let measured = lab.measure(suite, &effort, &mut progress)?;
        progress.clear();
        let command = again(arguments, &suite.name);
        let table = table::table(suite, &effort, &measured, versions.clone(), command);
        keep(&lab.folder, &table)?;
        if !arguments.json {
            println!("{}", report::text::render(&table));
        }
        let interrupted = table.interrupted;
        tables.push(table);
        if interrupted {
            break;
        }
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&tables).unwrap_or_default();
        println!("{text}");
    } else {
        let folder = lab.folder.path().display();
        for table in &tables {
            println!("{folder}/{}.html", table.suite.name);
        }
        println!("Every generated file is beside it.");
    }
    Ok(tables)
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

/// The command line that measures this benchmark again.
fn again(arguments: &Compare, name: &str) -> String {
    let mut command = format!("howdah compare {name}");
    if arguments.full {
        command += " --full";
    }
    if let Some(blocks) = arguments.blocks {
        command += &format!(" --blocks {blocks}");
    }
    if let Some(window) = arguments.window {
        command += &format!(" --window {}", window.as_secs_f64());
    }
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

/// The first signal ends the run after its window, and prints what there is; the second at once.
/// Programs started meanwhile go with us either way.
fn listen_for_signals(interrupt: Arc<AtomicBool>) {
    let Ok(signals) = sys::signal_descriptor(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) else {
        return;
    };
    std::thread::spawn(move || {
        let mut file = std::fs::File::from(signals);
        let mut info = [0u8; 128];
        while std::io::Read::read(&mut file, &mut info).is_ok_and(|n| n > 0) {
            if interrupt.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            eprintln!("howdah: stopping after this window; once more ends at once");
        }
    });
}

/// A line that is written over on a terminal; failures only in a pipe.
struct Progress {
    suite: String,
    terminal: bool,
}

impl Progress {
    fn new(suite: &str) -> Progress {
        Progress {
            suite: suite.to_owned(),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

impl Watch for Progress {
    fn window(&mut self, done: usize, of: usize, what: &str, left: Option<Duration>) {
        if !self.terminal {
            return;
        }
        let left = left.map_or(String::new(), |left| {
            format!(
                ", {} min {:02} s left",
                left.as_secs() / 60,
                left.as_secs() % 60
            )
        });
        let line = format!("{} {}/{of}{left}: {what}", self.suite, done + 1);
        let line: String = line.chars().take(100).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
    }

    fn failed(&mut self, what: &str, error: &LabError) {
        self.clear();
        eprintln!("{}: {what}: {error}", self.suite);
    }
}
