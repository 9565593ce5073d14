//! The loop of every comparison. The order of arms rotates from block to block and runs backwards
//! in every other one, so that no arm benefits from its position; so does the order of the cells.
//! What a block measured in a cell is a part. The journal keeps a part as a whole, and a run that
//! is stopped, or out of time, has whole blocks of everything.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use howdah_bench::driver::{Event, Session};
use serde::{Deserialize, Serialize};

use super::order::order;
use super::{Cell, End, Failure, LeftOut, Measured, Subject, Turn, Window, turn};
use crate::LabError;
use crate::ceiling;
use crate::journal::Journal;

/// How an experiment is carried out.
pub struct Runner<'a> {
    /// The journal that keeps the parts; None: nothing is saved, and nothing can be resumed.
    pub journal: Option<&'a Journal>,
    /// Number of blocks.
    pub blocks: u32,
    /// Number of blocks after whose parts the load tester's own maximum is measured.
    pub ceilings: u32,
    /// No part begins that would end after this time of measuring, all sessions together, if it
    /// took as long as the longest of its cell. None: no limit.
    pub limit: Option<Duration>,
    /// The experiment ends at this moment, and the part in progress is dropped. None: no limit.
    pub deadline: Option<Instant>,
    /// Whether to measure again the parts of the journal that lack figures of an arm.
    pub rerun_failed: bool,
    /// Whether the first failure ends the experiment with that error.
    pub stop_at_failure: bool,
}

/// What a block measured in a cell.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Part {
    windows: Vec<Window>,
    failures: Vec<Failure>,
    took: Duration,
}

/// A cell's state: its number of blocks, and how long the longest of them took.
#[derive(Clone, Copy, Debug, Default)]
struct Got {
    blocks: u32,
    longest: Duration,
}

impl Runner<'_> {
    /// Measures all blocks that the journal does not hold, as far as the time allows.
    ///
    /// # Errors
    /// The journal cannot be read or written. The failure of an arm is in the result, and the
    /// others continue, unless [`Runner::stop_at_failure`] is set.
    pub fn run(
        &self,
        subject: &mut dyn Subject,
        turns: &[Turn],
        cells: &[Cell],
        session: &mut Session<'_>,
    ) -> Result<Measured, LabError> {
        let mut experiment = Experiment {
            runner: self,
            subject,
            turns,
            session,
            measured: Measured {
                windows: Vec::new(),
                failures: Vec::new(),
                left_out: Vec::new(),
                end: End::Finished,
                took: Duration::ZERO,
            },
            got: BTreeMap::new(),
            begun: Instant::now(),
            done: 0,
            of: cells.len() * self.blocks as usize * turns.len(),
            now: 0,
        };
        for block in 0..self.blocks {
            experiment.block(cells, block)?;
            if experiment.measured.end != End::Finished {
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
    runner: &'a Runner<'a>,
    subject: &'a mut dyn Subject,
    turns: &'a [Turn],
    session: &'a mut Session<'w>,
    measured: Measured,
    /// The state of each cell, by name.
    got: BTreeMap<String, Got>,
    begun: Instant,
    /// Counts of turns: finished, in total, and measured in this session.
    done: usize,
    of: usize,
    now: u32,
}

impl Experiment<'_, '_> {
    /// Measures a block of everything. If a part is left out for lack of time, the others of its
    /// block are still measured where they fit: no cell gets two blocks more than another.
    fn block(&mut self, cells: &[Cell], block: u32) -> Result<(), LabError> {
        for at in order(block as usize, cells.len()) {
            let cell = &cells[at];
            let name = format!("{}-{block:03}", cell.name);
            let is_too_late = block > 0 && self.is_too_late(cell);
            let kept = match self.runner.journal {
                Some(journal) => journal.kept::<Part>(&name)?,
                None => None,
            };
            let kept = kept.filter(|part| is_too_late || !self.is_spoilt(part, cell));
            if let Some(part) = kept {
                self.done += self.turns.len();
                self.take(cell, part);
                continue;
            }
            if is_too_late {
                self.done += self.turns.len();
                self.measured.end = End::OutOfTime;
                continue;
            }
            let mut part = Part::default();
            let begun = Instant::now();
            let whole = self.part(&mut part, cell, block)?;
            part.took = begun.elapsed();
            if let ControlFlow::Break(end) = whole {
                self.measured.end = end;
                if end == End::Interrupted {
                    self.measured.windows.append(&mut part.windows);
                }
                return Ok(());
            }
            // It may work again when the comparison is resumed.
            if let Some(journal) = self.runner.journal
                && part.failures.iter().all(|failure| failure.arm.is_some())
            {
                journal.keep(&name, &part)?;
            }
            self.take(cell, part);
        }
        Ok(())
    }

    /// Measures every arm once, and then the load tester's own maximum.
    fn part(
        &mut self,
        part: &mut Part,
        cell: &Cell,
        block: u32,
    ) -> Result<ControlFlow<End>, LabError> {
        for at in order(block as usize, self.turns.len()) {
            let turn = self.turns[at];
            if let Some(end) = self.stop() {
                return Ok(ControlFlow::Break(end));
            }
            let title = self.subject.title(turn.arm);
            let what = match cell.title.as_str() {
                "" => title,
                cell => format!("{title} · {cell}"),
            };
            self.announce(&what);
            if self.is_out(&part.failures, turn.arm, cell) {
                continue;
            }
            if let Err(error) = self.subject.alive() {
                self.failed(&cell.title, &error);
                part.failures.push(Failure::new(None, Some(cell), &error));
                return Ok(ControlFlow::Continue(()));
            }
            self.now += 1;
            let windows =
                turn::measure(self.runner, self.session, &*self.subject, turn, cell, block);
            // A window that was cut short says nothing about the speed.
            if self.runner.is_out_of_time() {
                return Ok(ControlFlow::Break(End::OutOfTime));
            }
            match windows {
                Ok(Some(windows)) => part.windows.extend(windows),
                Ok(None) => return Ok(ControlFlow::Break(End::Interrupted)),
                Err(_) if self.session.is_interrupted() => {
                    return Ok(ControlFlow::Break(End::Interrupted));
                }
                Err(error) if self.runner.stop_at_failure => return Err(error),
                Err(error) => {
                    self.failed(&what, &error);
                    let failure = Failure::new(Some(turn.arm), Some(cell), &error);
                    part.failures.push(failure);
                }
            }
        }
        if block < self.runner.ceilings {
            self.ceilings(part, cell);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn stop(&self) -> Option<End> {
        if self.session.is_interrupted() {
            Some(End::Interrupted)
        } else if self.runner.is_out_of_time() {
            Some(End::OutOfTime)
        } else {
            None
        }
    }

    fn failed(&mut self, label: &str, error: &LabError) {
        (self.session.watch)(Event::Failed { label, error });
    }

    fn ceilings(&mut self, part: &mut Part, cell: &Cell) {
        for level in &cell.levels {
            let windows = part.windows.iter_mut();
            let here = windows.filter(|window| window.concurrency == *level);
            let runs = here.map(|window| &mut window.run);
            if let Err(why) = ceiling::measure(runs, &self.session.interrupt) {
                let error = LabError::NotMeasured {
                    stack: "the load tester".to_owned(),
                    why,
                };
                self.failed("its ceiling", &error);
            }
        }
    }

    /// Whether an arm is no longer measured in a cell, because it did not start, which can take
    /// half a minute each time, or because it, or something that all arms need, failed in this
    /// cell. `now`: failures of the part in progress.
    fn is_out(&self, now: &[Failure], arm: usize, cell: &Cell) -> bool {
        let mut failures = self.measured.failures.iter().chain(now);
        failures.any(|failure| match failure.arm {
            Some(failed) => {
                failed == arm && (failure.is_in(cell) || failure.name == "DoesNotStart")
            }
            None => failure.is_in(cell),
        })
    }

    /// Whether a saved part has to be measured again, because an arm that could have figures has
    /// none in it. An arm that failed again in this session does not count: otherwise all arms
    /// would be measured again because of it.
    fn is_spoilt(&self, part: &Part, cell: &Cell) -> bool {
        let has = |turn: &Turn| {
            let mut windows = part.windows.iter();
            windows.any(|w| (w.arm, w.control) == (turn.arm, turn.control))
        };
        let lacks = |turn: &Turn| !has(turn) && !self.is_out(&[], turn.arm, cell);
        self.runner.rerun_failed && self.turns.iter().any(lacks)
    }

    /// Whether a part of this cell would end too late, if it takes as long as its longest one.
    fn is_too_late(&self, cell: &Cell) -> bool {
        let after = self.measured.took + self.got(cell).longest;
        self.runner.limit.is_some_and(|limit| after > limit)
    }

    fn got(&self, cell: &Cell) -> Got {
        self.got.get(&cell.name).copied().unwrap_or_default()
    }

    /// Adds a finished part. If an arm failed, its windows in that cell are dropped: they are no
    /// sample of a healthy server.
    fn take(&mut self, cell: &Cell, part: Part) {
        self.measured.took += part.took;
        let got = self.got.entry(cell.name.clone()).or_default();
        got.longest = got.longest.max(part.took);
        got.blocks += 1;
        self.measured.windows.extend(part.windows);
        for failure in part.failures {
            let lost = |w: &Window| {
                Some(w.arm) == failure.arm
                    && w.page == cell.page
                    && cell.levels.contains(&w.concurrency)
            };
            self.measured.windows.retain(|w| !lost(w));
            self.measured.failures.push(failure);
        }
    }

    fn announce(&mut self, what: &str) {
        let rest = self.of.saturating_sub(self.done);
        let left = (self.now > 0).then(|| self.begun.elapsed() / self.now * rest as u32);
        self.done += 1;
        (self.session.watch)(Event::Begins {
            number: self.done,
            of: Some(self.of.max(self.done)),
            label: what,
            left,
        });
    }

    fn finish(mut self, cells: &[Cell]) -> Measured {
        if self.measured.end != End::Interrupted {
            let got = cells.iter().map(|cell| (cell, self.got(cell).blocks));
            let short = got.filter(|(_, blocks)| *blocks < self.runner.blocks);
            self.measured.left_out = short
                .map(|(cell, blocks)| LeftOut {
                    cell: cell.clone(),
                    blocks,
                })
                .collect();
        }
        self.measured
    }
}
