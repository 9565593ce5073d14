//! The result of a comparison on a user's application, as data; also the JSON of `howdah compare
//! --app`.

use std::path::PathBuf;

use howdah_bench::report::formatting;
use serde::{Deserialize, Serialize};

use super::advise::Advice;
use super::arm::AppArm;
use super::check::{CheckResult, FailedArm};
use super::rows::LevelRows;
use super::schedule::AppSchedule;
use super::tree::FileChanges;
use crate::experiment::{ExperimentEnd, ExperimentResult};

/// The result of a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppOutcome {
    /// Version of this JSON.
    pub schema: u32,
    /// The application's directory.
    pub directory: PathBuf,
    /// What the lab recognised in the directory.
    pub found: String,
    /// The host that the requests named.
    pub host: String,
    /// The names of the headers that were sent; no report contains their values.
    pub headers: Vec<String>,
    /// Facts about the pages.
    pub pages: Vec<PageFacts>,
    /// The name of the stack that the others were compared with.
    pub reference: String,
    /// The machine, a line for each of its properties.
    pub machine: Vec<(String, String)>,
    /// The machine's load average before the comparison began.
    pub load: f64,
    /// Versions of the programs that took part, a line each.
    pub versions: Vec<String>,
    /// The levels, and the number and length of the windows.
    pub schedule: AppSchedule,
    /// The schedule in words.
    pub effort: String,
    /// The command line that repeats the measurement.
    pub command: String,
    /// The time at which it began, in seconds since 1970.
    pub began: f64,
    /// How long this session took, in seconds.
    pub took: f64,
    /// Whether it was stopped before its end; `--resume` continues it.
    pub interrupted: bool,
    /// The figures of all arms at each level.
    pub levels: Vec<LevelRows>,
    /// The recommendation; `None` if no mode of Howdah serves the right pages.
    pub advice: Option<Advice>,
    /// The recommended configuration file; `None` if there is no recommendation.
    pub config: Option<RecommendedConfig>,
    /// The arms that were not measured, and why.
    pub failed: Vec<FailedArm>,
    /// Other remarks for the reader, a sentence each.
    pub notes: Vec<String>,
}

/// Facts about a page, for the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageFacts {
    /// The path and the query.
    pub url: String,
    /// `Content-Type` without parameters.
    pub media_type: String,
    /// The length of the body, in bytes.
    pub bytes: usize,
    /// The share of the page that is constant, in per cent.
    pub constant: u8,
    /// The time that the page takes without concurrency, in seconds.
    pub service: f64,
    /// Whether Howdah's page cache stored the page.
    pub kept_by_cache: bool,
}

/// The configuration file that is recommended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecommendedConfig {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
    /// The output of `howdah check` about the file, and the result of serving the pages from it; or why that failed.
    pub trial: Result<String, String>,
}

/// Returns facts about the pages that were checked.
pub(super) fn page_facts(checked: &CheckResult) -> Vec<PageFacts> {
    let pages = checked.pages.iter();
    pages
        .map(|page| PageFacts {
            url: page.url.clone(),
            media_type: page.media_type.clone(),
            bytes: page.bytes,
            constant: page.shape.constant_percent(),
            service: page.service,
            kept_by_cache: checked.kept_by_cache.contains(&page.url),
        })
        .collect()
}

/// Returns the arms that were not measured because the check or a window failed.
pub(super) fn failed_arms(
    checked: &CheckResult,
    arms: &[AppArm],
    measured: &[&ExperimentResult],
) -> Vec<FailedArm> {
    let mut all = checked.failed.clone();
    for failure in measured.iter().flat_map(|of| &of.failures) {
        let Some(arm) = failure.arm.map(|arm| &arms[arm]) else {
            continue;
        };
        let failed = FailedArm {
            arm: arm.name.clone(),
            title: arm.title.clone(),
            name: failure.name.clone(),
            message: failure.message.clone(),
        };
        if !all.contains(&failed) {
            all.push(failed);
        }
    }
    all
}

/// Returns remarks for the reader besides the figures, a sentence each.
pub(super) fn notes(
    checked: &CheckResult,
    schedule: &AppSchedule,
    changes: &FileChanges,
    end: ExperimentEnd,
    levels: &[LevelRows],
    measured: &[&ExperimentResult],
) -> Vec<String> {
    let mut notes = Vec::new();
    if end == ExperimentEnd::OutOfTime {
        notes.push(
            "the time limit was reached before all blocks were measured; --full has no time limit"
                .to_owned(),
        );
    }
    if !schedule.left_out.is_empty() {
        notes.push(format!(
            "skipped for lack of time: {}; --full measures them",
            schedule.left_out.join(", ")
        ));
    }
    notes.extend(page_notes(checked));
    notes.extend(change_notes(changes));
    notes.extend(limit_notes(levels));
    notes.extend(cold_window_note(measured));
    notes.extend(foreign_load_note(measured));
    notes
}

/// Returns a sentence about windows whose servers were still getting faster, or `None` if there are none.
fn cold_window_note(measured: &[&ExperimentResult]) -> Option<String> {
    let windows = || measured.iter().flat_map(|of| &of.windows);
    let cold = windows().filter(|window| !window.steady).count();
    (cold > 0).then(|| {
        format!(
            "in {} of {} the rate was still rising when the measurement began: the servers were not warm yet, and \
             --full gives them more time",
            cold,
            formatting::plural(windows().count() as u64, "window", "windows"),
        )
    })
}

/// Returns remarks about pages that are hard to check.
fn page_notes(checked: &CheckResult) -> Vec<String> {
    let mut notes = Vec::new();
    for page in &checked.pages {
        if page.shape.marks().is_empty() {
            notes.push(format!(
                "{} has no constant text, so under load only the status of its responses is checked",
                page.url
            ));
        }
    }
    for page in &checked.pages {
        let part = format!("{} gave another page", page.url);
        let wrong = checked
            .failed
            .iter()
            .filter(|f| f.message.contains(&part))
            .count();
        if wrong > 1 {
            notes.push(format!(
                "{} differs on {wrong} stacks: omit this page if it shows which server it runs on",
                page.url
            ));
        }
    }
    notes
}

/// Returns remarks about files that changed during the comparison.
fn change_notes(changes: &FileChanges) -> Vec<String> {
    let mut notes: Vec<String> = changes.sentence().into_iter().collect();
    let scripts = changes.scripts();
    if let Some(first) = scripts.first() {
        notes.push(format!(
            "{} changed during the comparison ({} …): if you deployed a new version, these figures are a mixture of \
             two versions",
            formatting::plural(scripts.len() as u64, "script", "scripts"),
            first.display()
        ));
    }
    if changes.cut {
        notes.push(
            "the directory has more than 200000 files, and changes of the further files were not noticed"
                .to_owned(),
        );
    }
    notes
}

/// Returns remarks about figures that are unknown or lower bounds.
fn limit_notes(levels: &[LevelRows]) -> Vec<String> {
    let mut notes = Vec::new();
    let rows = levels.iter().flat_map(|level| &level.rows);
    if rows.clone().any(|row| row.figures.memory == 0) {
        notes.push("the memory of another user's processes cannot be read: run the comparison as root, or as that user".to_owned());
    }
    let bound = rows
        .filter(|row| row.figures.generator_bound.is_some())
        .count();
    if bound > 0 {
        notes.push(format!(
            "in {} the load tester was the bottleneck, so these rates are lower bounds",
            formatting::plural(bound as u64, "row", "rows")
        ));
    }
    notes
}

/// Returns a sentence about the share of the cores that other programs used, or `None` if it was too small to matter.
fn foreign_load_note(measured: &[&ExperimentResult]) -> Option<String> {
    let windows = measured.iter().flat_map(|of| &of.windows);
    let shares: Vec<f64> = windows.filter_map(|window| window.foreign).collect();
    let mean = howdah_bench::stats::mean(&shares);
    (mean > 0.1).then(|| {
        format!(
            "programs other than the stacks and the load tester used {} of the cores: this may be the application's \
             database, or a program that disturbs the measurement",
            formatting::percent(mean)
        )
    })
}
