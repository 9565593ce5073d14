//! `howdah bench report A.json [B.json …]`: reports on runs that `--json` saved. Several runs are compared if their
//! plans are equal. They were not measured in turns, so any change on the machine between them is part of the
//! difference. The report says so.

use std::path::Path;

use crate::error::BenchError;
use crate::experiment::{Comparison, ComparisonArm, ComparisonWindow, SavedDocument};
use crate::report::experiments;
use crate::report::judge;
use crate::report::text::ReportStyle;
use crate::run::Run;

use super::arguments::SavedRuns;
use super::output::Outputs;
use super::planning;

/// Prints the report and returns the exit code.
pub fn report(typed: &SavedRuns) -> Result<u8, BenchError> {
    let outputs = Outputs::open_for_saved(typed)?;
    let mut documents = Vec::new();
    for path in &typed.files {
        documents.push(read(path)?);
    }
    let (document, text) = if documents.len() == 1 {
        let document = documents.remove(0);
        let text = experiments::report(&document, ReportStyle::default());
        (document, text)
    } else {
        let margin = planning::margin(&typed.margin)?;
        let comparison = compare(&typed.files, documents, margin)?;
        let mut text = experiments::comparison(&comparison);
        text.push_str(
            "\n  Saved runs were not measured in turn: any change on the machine between the runs is part of\n  \
             these differences. For a reliable verdict, run howdah bench URL --vs URL\n",
        );
        (SavedDocument::Comparison(comparison), text)
    };
    outputs.write(&document, &text)?;
    Ok(0)
}

fn read(path: &Path) -> Result<SavedDocument, BenchError> {
    let text = std::fs::read_to_string(path).map_err(|e| BenchError::MissingFile {
        path: path.to_owned(),
        why: e.to_string(),
    })?;
    SavedDocument::from_json(&text)
        .map_err(|why| BenchError::Impossible(format!("{}: {why}", path.display())))
}

/// Makes each file an arm of a comparison. A file with a single run becomes an arm with one window. From a saved
/// comparison, the windows of its base are used.
fn compare(
    files: &[std::path::PathBuf],
    documents: Vec<SavedDocument>,
    margin: f64,
) -> Result<Comparison, BenchError> {
    let mut comparison = Comparison {
        arms: Vec::new(),
        windows: Vec::new(),
        margin,
        seed: 1,
    };
    for (arm, (path, document)) in files.iter().zip(documents).enumerate() {
        let kind = document.kind();
        let runs: Vec<Run> = match document {
            SavedDocument::Run(run) => vec![run],
            // Only the base is used, to compare server A before and after a change.
            SavedDocument::Comparison(saved) => saved.runs(0).into_iter().cloned().collect(),
            SavedDocument::Sweep(_) | SavedDocument::Search(_) => {
                return Err(BenchError::Impossible(format!(
                    "{}: a {kind} cannot be compared with other files; save single runs, or measure with \
                     --vs",
                    path.display()
                )));
            }
        };
        if let Some(first) = comparison.windows.first()
            && let Some(run) = runs.first()
            && let Some(what) = judge::plans_differ(&first.run.plan, &run.plan)
        {
            return Err(BenchError::Impossible(format!(
                "{} and {} are not comparable: {what}",
                files[0].display(),
                path.display()
            )));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        comparison.arms.push(ComparisonArm {
            name: name.into_owned(),
            url: runs
                .first()
                .map_or_else(String::new, |run| run.plan.targets[0].text().to_owned()),
            control: false,
        });
        for (block, run) in (0..).zip(runs) {
            comparison
                .windows
                .push(ComparisonWindow { block, arm, run });
        }
    }
    Ok(comparison)
}
