//! The experiment behind every comparison: arms (servers) are measured in turns, in cells (a page at a number of
//! clients), in blocks that contain each arm and cell once. A drift over the hours affects all arms and cells alike, so
//! a rate at 500 clients can be compared with one at 10.
//!
//! - this file: the data, and [`ExperimentSubject`], the object of the measurement: the pages of a suite
//!   ([`crate::suite_runner`]), a user's application ([`crate::app_compare::subject`]) or servers that are already
//!   running ([`crate::url_compare`]).
//! - [`runner`]: the order, the time limits, the failures and the journal.
//! - [`turn`]: starts and measures one arm.
//! - [`plan`]: the data that `--resume` needs.

mod order;
pub mod plan;
pub mod runner;
mod turn;

use std::time::Duration;

use howdah_bench::plan::Plan;
use howdah_bench::report::figures::Figures;
use howdah_bench::run::Run;
use howdah_bench::stats::mean;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::stack::RunningStack;

/// The object of an experiment: how an arm is started for a cell, and which load it gets.
pub trait ExperimentSubject {
    /// Returns an arm's name for readers.
    fn title(&self, arm: usize) -> String;
    /// Fails if something that all arms need, such as their database, is broken.
    fn check_alive(&mut self) -> Result<(), LabError> {
        Ok(())
    }
    /// Starts an arm afresh for its turn in a cell.
    fn start(&self, arm: usize, cell: &Cell) -> Result<RunningStack, LabError>;
    /// Fails if a started arm responds with a different page: error pages are fast.
    fn check(&self, arm: usize, cell: &Cell, running: &RunningStack) -> Result<(), LabError>;
    /// Returns the load of a window.
    fn window_plan(
        &self,
        arm: usize,
        cell: &Cell,
        level: u32,
        running: &RunningStack,
    ) -> Result<Plan, LabError>;
    /// Returns the warm-up before a window, or `None` if there is none. It is a separate run: a request that begins in
    /// the generator's own warm-up and ends in the window is not counted, and with 500 clients that is most of a short
    /// window.
    fn warm_up_plan(&self, cell: &Cell, window: &Plan) -> Option<Plan>;
    /// Returns how often the warm-up is repeated at most, until its rate no longer rises.
    fn max_warm_ups(&self) -> u32 {
        1
    }
    /// Returns an additional load on the same server, whose requests are not counted.
    fn side_load(&self, _cell: &Cell, _window: &Plan) -> Option<Plan> {
        None
    }
    /// Returns the sessions of programs that all arms use, such as their database: their usage counts neither for an
    /// arm nor as foreign.
    fn shared_sessions(&self) -> Vec<u32> {
        Vec::new()
    }
    /// Returns whether the CPU time of an arm's programs can be measured.
    fn knows_cpu(&self, _arm: usize) -> bool {
        true
    }
}

/// An arm's position in the alternation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmTurn {
    /// The arm's index.
    pub arm: usize,
    /// Whether this measures an arm again, as the control that determines the noise: no verdict claims a smaller
    /// difference.
    pub control: bool,
}

/// The unit for which an arm is started once: a page, at one level or at several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The name of its parts in the journal, without the block's number.
    pub name: String,
    /// The name for readers.
    pub title: String,
    /// The page's index in the subject.
    pub page: usize,
    /// The numbers of clients.
    pub levels: Vec<u32>,
}

impl Cell {
    /// Returns the number of clients, if there is only one.
    pub fn level(&self) -> Option<u32> {
        match self.levels.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// One measurement: an arm, a page and a number of clients in one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MeasuredWindow {
    /// The arm's index.
    pub arm: usize,
    /// Whether this is the control, which measures the arm again to determine the noise.
    pub control: bool,
    /// The page's index in the subject.
    pub page: usize,
    /// The number of clients.
    pub concurrency: u32,
    /// The block's number, from 0.
    pub block: u32,
    /// Whether the rate no longer rose when the window began, as far as its warm-ups were compared.
    #[serde(default = "default_steady")]
    pub steady: bool,
    /// The generator's figures; header values are concealed.
    pub run: Run,
    /// CPU time of the whole stack per request, without the database's; `None` if it is not known
    /// ([`ExperimentSubject::knows_cpu`]).
    pub cpu_per_request: Option<Duration>,
    /// Proportional memory of the whole stack after the window, in bytes; 0 if the lab may not read it.
    pub memory: u64,
    /// The share of the machine's cores that was busy with programs other than the stack, the database and the load
    /// tester; `None` if it is not known.
    pub foreign: Option<f64>,
}

/// Returns the value of `steady` in windows that older versions saved.
fn default_steady() -> bool {
    true
}

/// Returns the figures of an arm's windows.
pub fn figures(windows: &[&MeasuredWindow]) -> Figures {
    let runs: Vec<&Run> = windows.iter().map(|window| &window.run).collect();
    let cpu = windows.iter().filter_map(|window| window.cpu_per_request);
    let cpu: Vec<f64> = cpu.map(|cpu| cpu.as_secs_f64()).collect();
    let memory = windows.iter().map(|window| window.memory);
    Figures {
        cpu: (!cpu.is_empty()).then(|| mean(&cpu)),
        memory: memory.max().unwrap_or(0),
        ..Figures::of(&runs)
    }
}

/// Why an arm has no figures, or no further ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArmFailure {
    /// The arm's index; `None` for every arm, because something that all arms need is broken.
    pub arm: Option<usize>,
    /// The page on which it failed; `None` for all pages.
    pub page: Option<usize>,
    /// The number of clients at which it failed; `None` for all levels.
    pub level: Option<u32>,
    /// The error's name ([`LabError::name`]).
    pub name: String,
    /// The error's whole message.
    pub message: String,
}

impl ArmFailure {
    /// Creates a failure in a cell, or everywhere.
    pub fn new(arm: Option<usize>, cell: Option<&Cell>, error: &LabError) -> ArmFailure {
        ArmFailure {
            arm,
            page: cell.map(|cell| cell.page),
            level: cell.and_then(Cell::level),
            name: error.name().to_owned(),
            message: error.to_string(),
        }
    }

    fn is_in(&self, cell: &Cell) -> bool {
        (self.page, self.level) == (Some(cell.page), cell.level())
    }
}

/// Why an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentEnd {
    /// All blocks were measured.
    Finished,
    /// The experiment was interrupted.
    Interrupted,
    /// The time limit was reached.
    OutOfTime,
}

/// The windows and failures of an experiment.
#[derive(Debug)]
pub struct ExperimentResult {
    /// All windows, in the order measured.
    pub windows: Vec<MeasuredWindow>,
    /// Arms that have no figures, and why.
    pub failures: Vec<ArmFailure>,
    /// Cells that got fewer blocks than planned.
    pub left_out: Vec<IncompleteCell>,
    /// Why the experiment ended. Everything that was measured until its end is included.
    pub end: ExperimentEnd,
    /// How long the measuring took, including earlier sessions.
    pub took: Duration,
}

/// A cell for which the time was too short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteCell {
    /// The cell that has too few blocks.
    pub cell: Cell,
    /// The number of blocks that were measured.
    pub blocks: u32,
}
