//! Several runs as data, in the order measured: a comparison of servers, a sweep over concurrency, a search for the
//! highest rate. [`crate::driver`] measures them, [`crate::report`] draws the conclusions. A saved file holds one
//! [`SavedDocument`]; its format is described in `docs/bench-json.md`.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::run::{Run, SCHEMA_VERSION};
use crate::slo::Slo;

/// The content of a saved file.
#[derive(Clone, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, and not in a collection"
)]
pub enum SavedDocument {
    /// A single run: `howdah bench URL`.
    Run(Run),
    /// A comparison of servers: `--vs`.
    Comparison(Comparison),
    /// A sweep over concurrency: `--sweep`.
    Sweep(Sweep),
    /// A search for the highest rate: `--find-max`.
    Search(Search),
}

/// Servers that were measured alternately.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// The servers. The first is the base. One may be the control, which is the base again.
    pub arms: Vec<ComparisonArm>,
    /// Every window, in the order measured.
    pub windows: Vec<ComparisonWindow>,
    /// Differences below this share count as "the same".
    pub margin: f64,
    /// The seed for resampling the intervals.
    pub seed: u64,
}

/// One of the servers compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparisonArm {
    /// The arm's name: `A`, `B` …; the control is `A again`.
    pub name: String,
    /// The URL, or the first one if there are several.
    pub url: String,
    /// Whether this is the base measured again, which shows the noise.
    pub control: bool,
}

/// One measurement of one arm.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ComparisonWindow {
    /// The block's number. Every arm is measured once in a block, in an order that changes from block to block.
    pub block: u32,
    /// The arm's index in `Comparison::arms`.
    pub arm: usize,
    /// The run that was measured.
    pub run: Run,
}

/// Runs at several levels of concurrency, in random order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sweep {
    /// Every measurement of a level, in the order measured.
    pub points: Vec<SweepPoint>,
    /// The seed of the order.
    pub seed: u64,
}

/// One measurement of one level.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The number of clients.
    pub concurrency: u32,
    /// How many times the level had been measured before.
    pub repetition: u32,
    /// The run that was measured.
    pub run: Run,
}

/// The search for the highest rate that holds an objective.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Search {
    /// The objective that has to hold.
    pub slo: Slo,
    /// Every trial, in the order made.
    pub trials: Vec<Trial>,
    /// The highest rate that held and was confirmed; `None` if not even the lowest did.
    pub found: Option<f64>,
    /// Why the search ended there, in a sentence; `None` if the objective broke at a higher rate. It is set when the
    /// generator reached its limit or the search was interrupted.
    #[serde(default)]
    pub limited_by: Option<String>,
}

/// One trial of a rate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Trial {
    /// The offered rate, in requests per second.
    pub rate: f64,
    /// Whether this trial repeats an earlier one to confirm it.
    pub confirming: bool,
    /// The terms of the objective that the trial broke, in words; empty if it held.
    pub broken: Vec<String>,
    /// The run that was measured.
    pub run: Run,
}

#[derive(Serialize)]
struct DocumentJson<'a, T> {
    kind: &'a str,
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Serialize)]
struct RunJson<'a> {
    kind: &'a str,
    #[serde(flatten)]
    body: &'a Run,
}

#[derive(Deserialize)]
struct Envelope {
    kind: Option<String>,
    schema: Option<u32>,
}

impl SavedDocument {
    /// Returns the value of `kind` in the file.
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the document as indented JSON, with a line feed at the end.
    pub fn to_json(&self) -> String {
        let kind = self.kind();
        let schema = SCHEMA_VERSION;
        let text = match self {
            SavedDocument::Run(body) => serde_json::to_string_pretty(&RunJson { kind, body }),
            SavedDocument::Comparison(body) => {
                serde_json::to_string_pretty(&DocumentJson { kind, schema, body })
            }
            SavedDocument::Sweep(body) => {
                serde_json::to_string_pretty(&DocumentJson { kind, schema, body })
            }
            SavedDocument::Search(body) => {
                serde_json::to_string_pretty(&DocumentJson { kind, schema, body })
            }
        };
        text.expect("plain data becomes JSON") + "\n"
    }

    /// Parses the output of [`SavedDocument::to_json`]. The error says what is wrong with the text, without the name of
    /// the file.
    pub fn from_json(text: &str) -> Result<SavedDocument, String> {
        let head: Envelope = serde_json::from_str(text)
            .map_err(|e| format!("not a saved run of howdah bench: {e}"))?;
        let (Some(kind), Some(schema)) = (head.kind, head.schema) else {
            return Err("not a saved run of howdah bench: `kind` and `schema` are missing".into());
        };
        if schema != SCHEMA_VERSION {
            return Err(format!(
                "saved in format version {schema}; this program reads version {SCHEMA_VERSION}"
            ));
        }
        // This is not done with serde's tag, because a tagged enum is buffered, and buffered maps lose their numeric
        // keys.
        let document = match kind.as_str() {
            "run" => serde_json::from_str(text).map(SavedDocument::Run),
            "comparison" => serde_json::from_str(text).map(SavedDocument::Comparison),
            "sweep" => serde_json::from_str(text).map(SavedDocument::Sweep),
            "search" => serde_json::from_str(text).map(SavedDocument::Search),
            other => {
                return Err(format!(
                    "the `kind` is `{other}`: expected run, comparison, sweep or search"
                ));
            }
        };
        let document = document.map_err(|e| format!("the {kind} is damaged: {e}"))?;
        document.check()?;
        Ok(document)
    }

    /// Returns all runs of the document, to be changed.
    pub fn runs_mut(&mut self) -> Vec<&mut Run> {
        match self {
            SavedDocument::Run(run) => vec![run],
            SavedDocument::Comparison(all) => all.windows.iter_mut().map(|w| &mut w.run).collect(),
            SavedDocument::Sweep(all) => all.points.iter_mut().map(|p| &mut p.run).collect(),
            SavedDocument::Search(all) => all.trials.iter_mut().map(|t| &mut t.run).collect(),
        }
    }

    /// Checks the rules that the types cannot guarantee.
    fn check(&self) -> Result<(), String> {
        let runs: Vec<&Run> = match self {
            SavedDocument::Run(run) => vec![run],
            SavedDocument::Comparison(comparison) => {
                if let Some(window) = comparison
                    .windows
                    .iter()
                    .find(|w| w.arm >= comparison.arms.len())
                {
                    return Err(format!(
                        "a window belongs to arm {}, which does not exist",
                        window.arm
                    ));
                }
                comparison.windows.iter().map(|w| &w.run).collect()
            }
            SavedDocument::Sweep(sweep) => sweep.points.iter().map(|p| &p.run).collect(),
            SavedDocument::Search(search) => search.trials.iter().map(|t| &t.run).collect(),
        };
        if matches!(self, SavedDocument::Comparison(comparison) if comparison.arms.is_empty()) {
            return Err("the comparison has no servers".to_owned());
        }
        for run in runs {
            run.plan
                .check()
                .map_err(|e| format!("the plan of a run is not valid: {e}"))?;
            if !(run.elapsed >= 0.0 && run.started >= 0.0) {
                return Err(format!(
                    "the times of a run are not valid: it began at {} and took {} seconds",
                    run.started, run.elapsed
                ));
            }
            for second in &run.seconds {
                if !(second.length >= 0.0 && second.end >= second.length * 0.999) {
                    return Err(format!(
                        "an entry of `seconds` is not valid: it ends at {} and is {} long",
                        second.end, second.length
                    ));
                }
                if !second.latency.is_empty() {
                    crate::histogram::Histogram::decode(&second.latency)?;
                }
            }
            if run.schema != SCHEMA_VERSION {
                return Err(format!(
                    "it contains a run in format version {}",
                    run.schema
                ));
            }
            run.balance()
                .map_err(|e| format!("the counts of a run do not add up: {e}"))?;
        }
        Ok(())
    }
}

impl Comparison {
    /// Returns the runs of an arm, in the order of their blocks.
    pub fn runs(&self, arm: usize) -> Vec<&Run> {
        let mut windows: Vec<&ComparisonWindow> =
            self.windows.iter().filter(|w| w.arm == arm).collect();
        windows.sort_by_key(|w| w.block);
        windows.into_iter().map(|w| &w.run).collect()
    }

    /// Returns `(base, arm)` of every block that has both. The last block may have been interrupted.
    pub fn pairs(&self, arm: usize) -> Vec<(&Run, &Run)> {
        let find = |block: u32, arm: usize| {
            let mut found = self.windows.iter();
            found.find(|w| w.block == block && w.arm == arm)
        };
        let mut blocks: Vec<u32> = self.windows.iter().map(|w| w.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks
            .into_iter()
            .filter_map(|block| Some((&find(block, 0)?.run, &find(block, arm)?.run)))
            .collect()
    }

    /// Returns the index of the control among the arms, if there is one.
    pub fn control(&self) -> Option<usize> {
        self.arms.iter().position(|arm| arm.control)
    }
}
