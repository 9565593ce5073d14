//! The order of a benchmark's windows. Each block has every page at every level, and there every stack once:
//! what drifts over the hours hits all stacks alike, and all levels too, so that a rate at 500 clients may be
//! compared with one at 10. A run that is stopped, or out of time, has whole blocks of everything.
//!
//! The order of the stacks turns from block to block and runs backwards in every other one, so that
//! a neighbour's habits favour nobody; so does the order of pages and levels. One stack is measured twice each
//! time: what separates it from itself is the noise that no verdict may go below.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use howdah_bench::driver;
use howdah_bench::plan::template::Random;
use serde::{Deserialize, Serialize};

use super::{Failure, Lab, LeftOut, Measured, Place, Watch, Window, stack};
use crate::LabError;
use crate::ceiling;
use crate::effort::Effort;
use crate::folder::Folder;
use crate::ini::Ini;
use crate::journal::Journal;
use crate::site::Sites;
use crate::stack::Job;
use crate::suite::Suite;

/// A row in the alternation; the control is the first row a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    row: usize,
    control: bool,
}

/// A page at a number of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Cell {
    page: usize,
    level: u32,
}

/// What a block measured in a cell; the journal keeps all of it or nothing.
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

/// A suite being measured.
pub(super) struct Course<'a> {
    lab: &'a Lab,
    suite: &'a Suite,
    effort: &'a Effort,
    watch: &'a mut dyn Watch,
    folder: Folder,
    sites: &'a mut Sites,
    journal: &'a Journal,
    ini: Ini,
    ini_without_opcache: Ini,
    measured: Measured,
    /// The state of each cell.
    got: BTreeMap<Cell, Got>,
    begun: Instant,
    progress: Progress,
}

/// Counts of windows: finished, in total, and measured in this session.
#[derive(Default)]
struct Progress {
    done: usize,
    of: usize,
    now: u32,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        lab: &'a Lab,
        suite: &'a Suite,
        effort: &'a Effort,
        sites: &'a mut Sites,
        journal: &'a Journal,
        watch: &'a mut dyn Watch,
    ) -> Result<Course<'a>, LabError> {
        let folder = lab.folder.directory(&suite.name)?;
        Ok(Course {
            lab,
            suite,
            effort,
            watch,
            ini: Ini::write(&folder, true, &[])?,
            ini_without_opcache: Ini::write(&folder, false, &[])?,
            folder,
            sites,
            journal,
            measured: Measured {
                windows: Vec::new(),
                failures: Vec::new(),
                left_out: Vec::new(),
                interrupted: false,
                took: Duration::ZERO,
            },
            got: BTreeMap::new(),
            begun: Instant::now(),
            progress: Progress::default(),
        })
    }

    /// Measures all blocks, as far as the time allows.
    pub(super) fn run(mut self) -> Result<Measured, LabError> {
        let arms = self.arms();
        let cells = self.cells();
        self.progress.of = cells.len() * self.effort.blocks as usize * arms.len();
        for block in 0..self.effort.blocks {
            if self.block(&arms, &cells, block)?.is_break() {
                break;
            }
        }
        if !self.measured.interrupted {
            let blocks = |cell: &Cell| self.got(*cell).blocks;
            let short = cells.iter().map(|cell| (cell, blocks(cell)));
            let short = short.filter(|(_, blocks)| *blocks < self.effort.blocks);
            self.measured.left_out = short
                .map(|(cell, blocks)| LeftOut {
                    page: cell.page,
                    concurrency: cell.level,
                    blocks,
                })
                .collect();
        }
        Ok(self.measured)
    }

    /// Measures a block of everything. Breaks if it was interrupted, or if a part was left out for lack
    /// of time: no cell gets two blocks more than another.
    fn block(
        &mut self,
        arms: &[Arm],
        cells: &[Cell],
        block: u32,
    ) -> Result<ControlFlow<()>, LabError> {
        let mut flow = ControlFlow::Continue(());
        for cell in in_turn(cells, block) {
            let name = format!("{}-{}-{block:03}", cell.page, cell.level);
            let is_too_late = block > 0 && self.is_too_late(cell);
            let kept = self.journal.kept::<Part>(&name)?;
            let kept = kept.filter(|part| is_too_late || !self.is_spoilt(part, arms, cell));
            if let Some(part) = kept {
                self.progress.done += arms.len();
                self.take(cell, part);
            } else if is_too_late {
                self.progress.done += arms.len();
                flow = ControlFlow::Break(());
            } else {
                let mut part = Part::default();
                let begun = Instant::now();
                let whole = self.part(&mut part, arms, cell, block);
                part.took = begun.elapsed();
                if whole.is_break() {
                    self.measured.interrupted = true;
                    self.measured.windows.append(&mut part.windows);
                    return Ok(ControlFlow::Break(()));
                }
                // A site that broke down may be whole again when this is gone on with.
                if part.failures.iter().all(|failure| failure.row.is_some()) {
                    self.journal.keep(&name, &part)?;
                }
                self.take(cell, part);
            }
        }
        Ok(flow)
    }

    /// Whether a saved part has to be measured again, because a stack that could have figures has none
    /// in it. A stack that failed again in this session does not count, or everybody would be measured
    /// again and again because of it.
    fn is_spoilt(&self, part: &Part, arms: &[Arm], cell: Cell) -> bool {
        let has = |arm: &Arm| {
            let mut windows = part.windows.iter();
            windows.any(|w| (w.row, w.control) == (arm.row, arm.control))
        };
        let lacks = |arm: &Arm| !has(arm) && !self.is_out(&[], arm.row, cell);
        self.lab.rerun_failed && arms.iter().any(lacks)
    }

    /// Adds a finished part. If a row failed, its windows in that cell are dropped: they are no sample
    /// of a healthy server.
    fn take(&mut self, cell: Cell, part: Part) {
        self.measured.took += part.took;
        let got = self.got.entry(cell).or_default();
        got.longest = got.longest.max(part.took);
        got.blocks += 1;
        self.measured.windows.extend(part.windows);
        for failure in part.failures {
            let Failure { row, at, .. } = &failure;
            if let (Some(row), Some((page, Some(level)))) = (*row, *at) {
                let failed = |w: &Window| (w.row, w.page, w.concurrency) == (row, page, level);
                self.measured.windows.retain(|w| !failed(w));
            }
            self.measured.failures.push(failure);
        }
    }

    /// Whether a part of this cell would end too late, if it takes as long as its longest one.
    fn is_too_late(&self, cell: Cell) -> bool {
        let after = self.measured.took + self.got(cell).longest;
        self.effort.limit.is_some_and(|limit| after > limit)
    }

    fn got(&self, cell: Cell) -> Got {
        self.got.get(&cell).copied().unwrap_or_default()
    }

    /// The rows whose programs are installed, and the first one a second time.
    fn arms(&mut self) -> Vec<Arm> {
        let mut arms = Vec::new();
        for (row, of) in self.suite.rows.iter().enumerate() {
            match stack(of).here() {
                Ok(()) => arms.push(Arm {
                    row,
                    control: false,
                }),
                Err(error) => self.failed(stack(of).title, Some(row), None, &error),
            }
        }
        let ranked = |arm: &&Arm| self.suite.rows[arm.row].trap.is_none();
        if let Some(first) = arms.iter().find(ranked) {
            arms.push(Arm {
                control: true,
                ..*first
            });
        }
        arms
    }

    /// Pages and levels in random order: a machine that warms up must not look like a curve. A page
    /// whose site could not be made is reported and left out.
    fn cells(&mut self) -> Vec<Cell> {
        let levels = self.effort.of(&self.suite.load.concurrency);
        let mut cells: Vec<Cell> = Vec::new();
        for (page, of) in self.suite.pages.iter().enumerate() {
            match self.sites.lacks(of.site) {
                None => cells.extend(levels.iter().map(|level| Cell {
                    page,
                    level: *level,
                })),
                Some(error) => self.failed(&of.name, None, Some((page, None)), &error),
            }
        }
        let mut random = Random::new(1, 0);
        for at in (1..cells.len()).rev() {
            cells.swap(at, random.between(0, at as u64) as usize);
        }
        cells
    }

    /// Measures every stack once, and afterwards what the load tester itself reaches. Breaks if it was
    /// interrupted.
    fn part(&mut self, part: &mut Part, arms: &[Arm], cell: Cell, block: u32) -> ControlFlow<()> {
        let Cell { page, level } = cell;
        let of = &self.suite.pages[page];
        let at = Some((page, Some(level)));
        let job = Job {
            root: self.sites.root(of.site),
            front_controller: self.sites.front_controller(of.site),
            worker: None,
            children: self.suite.children,
            clients: level.max(100),
            server_name: "localhost".to_owned(),
            environment: Vec::new(),
            ini: self.ini.clone(),
            ini_without_opcache: self.ini_without_opcache.clone(),
            howdah: self.lab.howdah.clone(),
        };
        for arm in in_turn(arms, block) {
            if self.lab.interrupted() {
                return ControlFlow::Break(());
            }
            let row = &self.suite.rows[arm.row];
            let what = format!("{} · {} · {level} clients", stack(row).title, of.name);
            self.tell(&what);
            if self.is_out(&part.failures, arm.row, cell) {
                continue;
            }
            if let Err(error) = self.sites.alive() {
                self.watch.failed(&of.name, &error);
                part.failures.push(Failure::new(None, at, &error));
                return ControlFlow::Continue(());
            }
            let place = Place {
                suite: self.suite,
                row,
                page,
                level,
                effort: self.effort,
            };
            self.progress.now += 1;
            match self.lab.window(&place, &job, &self.folder, self.sites) {
                Ok(seen) => part.windows.push(Window {
                    row: arm.row,
                    control: arm.control,
                    page,
                    concurrency: level,
                    block,
                    run: seen.run,
                    cpu_per_request: seen.cpu_per_request,
                    memory: seen.memory,
                    foreign: seen.foreign,
                }),
                // It was cut short, not slow.
                Err(_) if self.lab.interrupted() => return ControlFlow::Break(()),
                Err(error) => {
                    self.watch.failed(&what, &error);
                    part.failures.push(Failure::new(Some(arm.row), at, &error));
                }
            }
        }
        let told = ceiling::tell(
            part.windows.iter_mut().map(|window| &mut window.run),
            &self.lab.interrupt,
        );
        if let Err(why) = told {
            let error = LabError::NotMeasured {
                stack: "the load tester".to_owned(),
                why,
            };
            self.watch.failed("its ceiling", &error);
        }
        ControlFlow::Continue(())
    }

    /// Whether a row is no longer measured: a stack that did not start would not start at the next
    /// level either, and each attempt may take half a minute; one that failed in a cell has lost that
    /// cell, and a site that broke has lost its cells. `now`: failures of the part in progress.
    fn is_out(&self, now: &[Failure], row: usize, cell: Cell) -> bool {
        let here = Some((cell.page, Some(cell.level)));
        let mut failures = self.measured.failures.iter().chain(now);
        failures.any(|failure| match failure.row {
            Some(failed) => failed == row && (failure.at == here || failure.name == "DoesNotStart"),
            None => failure.at == here,
        })
    }

    fn tell(&mut self, what: &str) {
        let Progress { done, of, now } = self.progress;
        let rest = of.saturating_sub(done);
        let left = (now > 0).then(|| self.begun.elapsed() / now * rest as u32);
        self.watch.window(done, of.max(done), what, left);
        self.progress.done += 1;
    }

    fn failed(
        &mut self,
        what: &str,
        row: Option<usize>,
        at: Option<(usize, Option<u32>)>,
        error: &LabError,
    ) {
        self.watch.failed(what, error);
        self.measured.failures.push(Failure::new(row, at, error));
    }
}

/// The items in the order of this block.
fn in_turn<T: Copy>(all: &[T], block: u32) -> impl Iterator<Item = T> {
    let order = driver::order(block as usize, all.len());
    order.into_iter().map(|at| all[at])
}
