//! The loop of every comparison. The order of arms rotates from block to block and runs backwards in every other one,
//! so no arm benefits from its position; the order of the cells does the same. The measurements of one cell in one
//! block form a part. The journal saves a part as a whole, so a run that is stopped or out of time has only complete
//! parts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use howdah_bench::driver::{BenchSession, SessionEvent};
use serde::{Deserialize, Serialize};

use super::order::block_order;
use super::{
    ArmFailure, ArmTurn, Cell, ExperimentEnd, ExperimentResult, ExperimentSubject, IncompleteCell,
    MeasuredWindow, turn,
};
use crate::LabError;
use crate::ceiling;
use crate::journal::ComparisonJournal;

/// The settings of an experiment.
pub struct ExperimentRunner<'a> {
    /// The journal that saves the parts; `None` if nothing is saved, and nothing can be resumed.
    pub journal: Option<&'a ComparisonJournal>,
    /// The number of blocks.
    pub blocks: u32,
    /// The number of blocks, from the first on, after whose parts the load tester's own maximum is measured.
    pub ceilings: u32,
    /// The time limit of measuring, all sessions together: a part is not begun if it would exceed the limit when it
    /// takes as long as the longest part of its cell so far. `None` for no limit.
    pub limit: Option<Duration>,
    /// The moment at which the experiment ends, dropping the part in progress. `None` for no limit.
    pub deadline: Option<Instant>,
    /// Whether to measure again the saved parts that lack figures of an arm.
    pub rerun_failed: bool,
    /// Whether the first failure ends the experiment with that error.
    pub stop_at_failure: bool,
}

/// The measurements of one cell in one block.
#[derive(Debug, Default, Serialize, Deserialize)]
struct BlockPart {
    windows: Vec<MeasuredWindow>,
    failures: Vec<ArmFailure>,
    took: Duration,
}

/// A cell's state: its number of blocks, and how long the longest of them took.
#[derive(Clone, Copy, Debug, Default)]
struct CellProgress {
    blocks: u32,
    longest: Duration,
}

impl ExperimentRunner<'_> {
    /// Measures all blocks that are not in the journal, as far as the time allows.
    ///
    /// # Errors
    /// Returns an error if the journal cannot be read or written. The failure of an arm is in the result, and the
    /// others continue, unless [`ExperimentRunner::stop_at_failure`] is set.
    pub fn run(
        &self,
        subject: &mut dyn ExperimentSubject,
        turns: &[ArmTurn],
        cells: &[Cell],
        session: &mut BenchSession<'_>,
    ) -> Result<ExperimentResult, LabError> {
        let mut experiment = Experiment {
            runner: self,
            subject,
            turns,
            session,
            measured: ExperimentResult {
                windows: Vec::new(),
                failures: Vec::new(),
                left_out: Vec::new(),
                end: ExperimentEnd::Finished,
                took: Duration::ZERO,
            },
            progress: BTreeMap::new(),
            begun: Instant::now(),
            done_turns: 0,
            total_turns: cells.len() * self.blocks as usize * turns.len(),
            session_turns: 0,
        };
        for block in 0..self.blocks {
            experiment.measure_block(cells, block)?;
            if experiment.measured.end != ExperimentEnd::Finished {
                break;
            }
        }
        Ok(experiment.finish(cells))
    }

    fn is_out_of_time(&self) -> bool {
        let deadline = self.deadline;
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// An experiment in progress.
struct Experiment<'a, 'w> {
    runner: &'a ExperimentRunner<'a>,
    subject: &'a mut dyn ExperimentSubject,
    turns: &'a [ArmTurn],
    session: &'a mut BenchSession<'w>,
    measured: ExperimentResult,
    /// The state of each cell, by name.
    progress: BTreeMap<String, CellProgress>,
    begun: Instant,
    /// Counts of turns: finished, in total, and measured in this session.
    done_turns: usize,
    total_turns: usize,
    session_turns: u32,
}

impl Experiment<'_, '_> {
    /// Measures one block of all cells. If a part is omitted for lack of time, the others of its block are still
    /// measured where they fit: no cell gets two blocks more than another.
    fn measure_block(&mut self, cells: &[Cell], block: u32) -> Result<(), LabError> {
        for at in block_order(block as usize, cells.len()) {
            let cell = &cells[at];
            let name = format!("{}-{block:03}", cell.name);
            let is_too_late = block > 0 && self.would_exceed_limit(cell);
            let kept = match self.runner.journal {
                Some(journal) => journal.load::<BlockPart>(&name)?,
                None => None,
            };
            let kept = kept.filter(|part| is_too_late || !self.needs_rerun(part, cell));
            if let Some(part) = kept {
                self.done_turns += self.turns.len();
                self.add_part(cell, part);
                continue;
            }
            if is_too_late {
                self.done_turns += self.turns.len();
                self.measured.end = ExperimentEnd::OutOfTime;
                continue;
            }
            let mut part = BlockPart::default();
            let begun = Instant::now();
            let whole = self.measure_part(&mut part, cell, block)?;
            part.took = begun.elapsed();
            if let ControlFlow::Break(end) = whole {
                self.measured.end = end;
                if end == ExperimentEnd::Interrupted {
                    self.measured.windows.append(&mut part.windows);
                }
                return Ok(());
            }
            // A part with a failure of all arms is not saved, because it may work again when the comparison is resumed.
            if let Some(journal) = self.runner.journal
                && part.failures.iter().all(|failure| failure.arm.is_some())
            {
                journal.save(&name, &part)?;
            }
            self.add_part(cell, part);
        }
        Ok(())
    }

    /// Measures every arm once, and then the load tester's own maximum.
    fn measure_part(
        &mut self,
        part: &mut BlockPart,
        cell: &Cell,
        block: u32,
    ) -> Result<ControlFlow<ExperimentEnd>, LabError> {
        for at in block_order(block as usize, self.turns.len()) {
            let turn = self.turns[at];
            if let Some(end) = self.reason_to_stop() {
                return Ok(ControlFlow::Break(end));
            }
            let title = self.subject.title(turn.arm);
            let what = match cell.title.as_str() {
                "" => title,
                cell => format!("{title} · {cell}"),
            };
            self.announce(&what);
            if self.is_excluded(&part.failures, turn.arm, cell) {
                continue;
            }
            if let Err(error) = self.subject.check_alive() {
                self.report_failure(&cell.title, &error);
                part.failures
                    .push(ArmFailure::new(None, Some(cell), &error));
                return Ok(ControlFlow::Continue(()));
            }
            self.session_turns += 1;
            let windows =
                turn::measure_turn(self.runner, self.session, &*self.subject, turn, cell, block);
            // A window that was cut short does not measure the speed.
            if self.runner.is_out_of_time() {
                return Ok(ControlFlow::Break(ExperimentEnd::OutOfTime));
            }
            match windows {
                Ok(Some(windows)) => part.windows.extend(windows),
                Ok(None) => return Ok(ControlFlow::Break(ExperimentEnd::Interrupted)),
                Err(_) if self.session.is_interrupted() => {
                    return Ok(ControlFlow::Break(ExperimentEnd::Interrupted));
                }
                Err(error) if self.runner.stop_at_failure => return Err(error),
                Err(error) => {
                    self.report_failure(&what, &error);
                    let failure = ArmFailure::new(Some(turn.arm), Some(cell), &error);
                    part.failures.push(failure);
                }
            }
        }
        if block < self.runner.ceilings {
            self.measure_ceilings(part, cell);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn reason_to_stop(&self) -> Option<ExperimentEnd> {
        if self.session.is_interrupted() {
            Some(ExperimentEnd::Interrupted)
        } else if self.runner.is_out_of_time() {
            Some(ExperimentEnd::OutOfTime)
        } else {
            None
        }
    }

    fn report_failure(&mut self, label: &str, error: &LabError) {
        (self.session.watch)(SessionEvent::Failed { label, error });
    }

    fn measure_ceilings(&mut self, part: &mut BlockPart, cell: &Cell) {
        for level in &cell.levels {
            let windows = part.windows.iter_mut();
            let here = windows.filter(|window| window.concurrency == *level);
            let runs = here.map(|window| &mut window.run);
            if let Err(why) = ceiling::measure(runs, &self.session.interrupt) {
                let error = LabError::NotMeasured {
                    stack: "the load tester".to_owned(),
                    why,
                };
                self.report_failure("its own maximum", &error);
            }
        }
    }

    /// Returns whether an arm is no longer measured in a cell: because it did not start, which can take half a minute
    /// each time, or because the arm, or something that all arms need, failed in this cell. `now` contains the failures
    /// of the part in progress.
    fn is_excluded(&self, now: &[ArmFailure], arm: usize, cell: &Cell) -> bool {
        let mut failures = self.measured.failures.iter().chain(now);
        failures.any(|failure| match failure.arm {
            Some(failed) => {
                failed == arm && (failure.is_in(cell) || failure.name == "DoesNotStart")
            }
            None => failure.is_in(cell),
        })
    }

    /// Returns whether a saved part has to be measured again, because an arm that could have figures has none in it. An
    /// arm that failed again in this session does not count: otherwise all arms would be measured again because of it.
    fn needs_rerun(&self, part: &BlockPart, cell: &Cell) -> bool {
        let has = |turn: &ArmTurn| {
            let mut windows = part.windows.iter();
            windows.any(|w| (w.arm, w.control) == (turn.arm, turn.control))
        };
        let lacks = |turn: &ArmTurn| !has(turn) && !self.is_excluded(&[], turn.arm, cell);
        self.runner.rerun_failed && self.turns.iter().any(lacks)
    }

    /// Returns whether a part of this cell would end too late, if it takes as long as its longest one.
    fn would_exceed_limit(&self, cell: &Cell) -> bool {
        let after = self.measured.took + self.cell_progress(cell).longest;
        self.runner.limit.is_some_and(|limit| after > limit)
    }

    fn cell_progress(&self, cell: &Cell) -> CellProgress {
        self.progress.get(&cell.name).copied().unwrap_or_default()
    }

    /// Adds a finished part. If an arm failed, its windows in that cell are dropped, because they are not a sample of a
    /// healthy server.
    fn add_part(&mut self, cell: &Cell, part: BlockPart) {
        self.measured.took += part.took;
        let got = self.progress.entry(cell.name.clone()).or_default();
        got.longest = got.longest.max(part.took);
        got.blocks += 1;
        self.measured.windows.extend(part.windows);
        for failure in part.failures {
            let lost = |w: &MeasuredWindow| {
                Some(w.arm) == failure.arm
                    && w.page == cell.page
                    && cell.levels.contains(&w.concurrency)
            };
            self.measured.windows.retain(|w| !lost(w));
            self.measured.failures.push(failure);
        }
    }

    fn announce(&mut self, what: &str) {
        let rest = self.total_turns.saturating_sub(self.done_turns);
        let left = (self.session_turns > 0)
            .then(|| self.begun.elapsed() / self.session_turns * rest as u32);
        self.done_turns += 1;
        (self.session.watch)(SessionEvent::Begins {
            number: self.done_turns,
            of: Some(self.total_turns.max(self.done_turns)),
            label: what,
            left,
        });
    }

    fn finish(mut self, cells: &[Cell]) -> ExperimentResult {
        if self.measured.end != ExperimentEnd::Interrupted {
            let got = cells
                .iter()
                .map(|cell| (cell, self.cell_progress(cell).blocks));
            let short = got.filter(|(_, blocks)| *blocks < self.runner.blocks);
            self.measured.left_out = short
                .map(|(cell, blocks)| IncompleteCell {
                    cell: cell.clone(),
                    blocks,
                })
                .collect();
        }
        self.measured
    }
}
