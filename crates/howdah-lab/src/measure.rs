//! Runs a benchmark: every stack measured in turn, block by block, each started afresh for its
//! window, its page checked before anything is counted. Measures; judges nothing.
//!
//! The order of the stacks turns from block to block and runs backwards in every other one, so that
//! neither drift nor a neighbour's habits favour anybody. One stack is measured twice in each block:
//! what separates it from itself is the noise that no verdict may go below.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use howdah_bench::engine::{self, Control};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::check::BodyCheck;
use howdah_bench::plan::template::Random;
use howdah_bench::plan::{Arrivals, Plan, Stop, Target, Template};
use howdah_bench::run::{Ended, Run};

use crate::LabError;
use crate::ceiling;
use crate::effort::{Effort, POSTED_LIMIT};
use crate::fixture::wordpress;
use crate::folder::Folder;
use crate::ini::Ini;
use crate::process::{Memory, Usage, busy_time, own_time, usage_of};
use crate::site::Sites;
use crate::stack::{Job, Running, Stack};
use crate::suite::{Row, Site, Suite};

/// One stack, one page, one level, once.
#[derive(Debug)]
pub struct Window {
    /// Which row of the suite.
    pub row: usize,
    /// The row once more, to see the noise.
    pub control: bool,
    /// Which page of the suite.
    pub page: usize,
    /// Clients.
    pub concurrency: u32,
    /// Which block, from 0.
    pub block: u32,
    /// What the generator saw.
    pub run: Run,
    /// CPU time of the whole stack for each request; the database's is not in it. None: not known
    /// ([`Stack::loses_cpu`]).
    pub cpu_per_request: Option<Duration>,
    /// Proportional memory of the whole stack after the window, bytes; 0: not ours to see.
    pub memory: u64,
    /// Share of the machine's cores that was busy with none of ours: not the stack, the database or
    /// the load tester. None: not known.
    pub foreign: Option<f64>,
}

/// Why a row has no figures, or no more.
#[derive(Debug)]
pub struct Failure {
    /// Which row; none: every one, for what they serve is not there.
    pub row: Option<usize>,
    /// On which page, and at which level; none: everywhere.
    pub at: Option<(usize, Option<u32>)>,
    /// What happened.
    pub error: LabError,
}

/// What came of a suite.
#[derive(Debug)]
pub struct Measured {
    /// All windows, in the order measured.
    pub windows: Vec<Window>,
    /// Rows without figures.
    pub failures: Vec<Failure>,
    /// Cells that got fewer blocks than they should have had.
    pub left_out: Vec<LeftOut>,
    /// Somebody stopped it: what there is, is all here.
    pub interrupted: bool,
    /// How long it took.
    pub took: Duration,
}

/// A page at a level for which the time was too short ([`Effort::limit`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which page of the suite.
    pub page: usize,
    /// Clients.
    pub concurrency: u32,
    /// Blocks it got.
    pub blocks: u32,
}

/// Told as it goes.
pub trait Watch {
    /// Before each window. `left`: how long the rest will take, by what it took so far.
    fn window(&mut self, done: usize, of: usize, what: &str, left: Option<Duration>);
    /// A row has failed.
    fn failed(&mut self, what: &str, error: &LabError);
}

/// The surroundings of a measurement.
pub struct Lab {
    /// Where everything is written.
    pub folder: Folder,
    /// The `howdah` program.
    pub howdah: PathBuf,
    /// Set to end it after the window under way.
    pub interrupt: Arc<AtomicBool>,
}

/// A row, as one of those measured alternately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arm {
    row: usize,
    control: bool,
}

impl Lab {
    /// Measures a suite on these sites.
    ///
    /// # Errors
    /// The lab's own files could not be written. A stack's failure, or a page's, is in the result: the
    /// others go on.
    pub fn measure(
        &self,
        suite: &Suite,
        effort: &Effort,
        sites: &mut Sites,
        watch: &mut dyn Watch,
    ) -> Result<Measured, LabError> {
        let begun = Instant::now();
        let folder = self.folder.directory(&suite.name)?;
        let mut course = Course {
            lab: self,
            suite,
            effort,
            watch,
            ini: Ini::write(&folder, true, &[])?,
            ini_without_opcache: Ini::write(&folder, false, &[])?,
            folder,
            sites,
            measured: Measured {
                windows: Vec::new(),
                failures: Vec::new(),
                left_out: Vec::new(),
                interrupted: false,
                took: Duration::ZERO,
            },
            begun,
            done: 0,
            of: 0,
        };
        let mut arms = course.arms();
        let cells = course.cells();
        course.of = cells.len() * effort.blocks as usize * arms.len();
        let turn = |(page, level): &(usize, u32)| effort.turn(&suite.pages[*page], *level);
        for (at, (page, level)) in cells.iter().copied().enumerate() {
            let rest: Duration = cells[at..].iter().map(turn).sum();
            let until = effort.limit.map(|limit| {
                let left = (begun + limit).saturating_duration_since(Instant::now());
                Instant::now() + left.mul_f64(turn(&cells[at]).div_duration_f64(rest))
            });
            let flow = course.cell(&mut arms, page, level, until);
            if flow.is_break() {
                course.measured.interrupted = true;
                break;
            }
            course.ceilings(page, level);
        }
        course.measured.took = begun.elapsed();
        Ok(course.measured)
    }

    /// Warms the stack up by a run of its own. The generator's own warm-up would not do: a request begun in it
    /// and answered in the window is in no count, and with 500 clients that is most of a short window.
    fn warm_up(&self, place: &Place<'_>, plan: &Plan) -> Result<(), LabError> {
        let clients = place.level.min(place.suite.children);
        let page = &place.suite.pages[place.page];
        let Some(stop) = place.effort.warm_up(page, clients) else {
            return Ok(());
        };
        let mut warm = plan.clone();
        warm.arrivals = Arrivals::Closed {
            concurrency: clients,
        };
        warm.stop = stop;
        let control = Control {
            interrupt: self.interrupt.clone(),
            ..Control::default()
        };
        engine::run(&warm, control)
            .map(drop)
            .map_err(|error| bench(place.row, &error.to_string()))
    }

    fn interrupted(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed)
    }

    fn window(
        &self,
        place: &Place<'_>,
        job: &Job,
        folder: &Folder,
        sites: &Sites,
    ) -> Result<Seen, LabError> {
        let row = place.row;
        let mut running = stack(row).start(job, folder)?;
        let seen = self.seen(place, &running, sites);
        // Its death explains whatever the load tester says.
        running.alive()?;
        seen
    }

    fn seen(&self, place: &Place<'_>, running: &Running, sites: &Sites) -> Result<Seen, LabError> {
        let row = place.row;
        let plan = plan(place, running)?;
        check_page(row, &plan, running)?;
        self.warm_up(place, &plan)?;
        let sessions = [running.sessions(), sites.sessions()];
        let groups = [&sessions[0][..], &sessions[1][..]];
        let begun = Instant::now();
        let before = Moment::now(groups, Memory::Leave);
        let control = Control {
            interrupt: self.interrupt.clone(),
            ..Control::default()
        };
        let run = engine::run(&plan, control).map_err(|error| bench(row, &error.to_string()))?;
        let took = begun.elapsed();
        let after = Moment::now(groups, Memory::Read);
        if run.ended == Ended::Interrupted {
            return Err(bench(row, "the window was interrupted"));
        }
        let cpu = cpu_per_request(&before.stack, &after.stack, run.ended_requests());
        let foreign = foreign(&before, &after, took, run.machine.cores);
        let is_known = !stack(row).loses_cpu();
        Ok(Seen {
            cpu_per_request: is_known.then_some(cpu),
            memory: after.stack.memory,
            foreign: is_known.then_some(foreign),
            run,
        })
    }
}

/// A suite under way.
struct Course<'a> {
    lab: &'a Lab,
    suite: &'a Suite,
    effort: &'a Effort,
    watch: &'a mut dyn Watch,
    folder: Folder,
    sites: &'a mut Sites,
    ini: Ini,
    ini_without_opcache: Ini,
    measured: Measured,
    begun: Instant,
    /// Windows, for the progress: done, and all.
    done: usize,
    of: usize,
}

impl Course<'_> {
    /// The stacks that are here, and the first one a second time.
    fn arms(&mut self) -> Vec<Arm> {
        let mut arms = Vec::new();
        for (row, of) in self.suite.rows.iter().enumerate() {
            match stack(of).here() {
                Ok(()) => arms.push(Arm {
                    row,
                    control: false,
                }),
                Err(error) => self.failed(stack(of).title, Some(row), None, error),
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

    /// Pages and levels in random order: a machine that warms up must not look like a curve. Pages whose site
    /// could not be made are told and left out.
    fn cells(&mut self) -> Vec<(usize, u32)> {
        let levels = self.effort.of(&self.suite.load.concurrency);
        let mut cells: Vec<(usize, u32)> = Vec::new();
        for (page, of) in self.suite.pages.iter().enumerate() {
            match self.sites.lacks(of.site) {
                None => cells.extend(levels.iter().map(|level| (page, *level))),
                Some(error) => self.failed(&of.name, None, Some((page, None)), error),
            }
        }
        let mut random = Random::new(1, 0);
        for at in (1..cells.len()).rev() {
            cells.swap(at, random.between(0, at as u64) as usize);
        }
        cells
    }

    /// All blocks of a page at a level. A stack that does not start is taken out of `arms`: it would not start at
    /// the next level either, and each attempt may take half a minute. A block that would not be over in time,
    /// if it takes as long as the longest one so far, is left out; the first one never is. Breaks if it was
    /// interrupted.
    fn cell(
        &mut self,
        arms: &mut Vec<Arm>,
        page: usize,
        level: u32,
        until: Option<Instant>,
    ) -> ControlFlow<()> {
        let of = &self.suite.pages[page];
        let job = Job {
            root: self.sites.root(of.site),
            front_controller: self.sites.front_controller(of.site),
            children: self.suite.children,
            clients: level.max(100),
            server_name: "localhost".to_owned(),
            environment: Vec::new(),
            ini: self.ini.clone(),
            ini_without_opcache: self.ini_without_opcache.clone(),
            howdah: self.lab.howdah.clone(),
        };
        let mut failed: Vec<usize> = Vec::new();
        let mut longest = Duration::ZERO;
        for block in 0..self.effort.blocks {
            let begun = Instant::now();
            if block > 0 && until.is_some_and(|until| begun + longest > until) {
                self.done += (self.effort.blocks - block) as usize * arms.len();
                self.measured.left_out.push(LeftOut {
                    page,
                    concurrency: level,
                    blocks: block,
                });
                break;
            }
            for arm in turned(arms, block) {
                if self.lab.interrupted() {
                    return ControlFlow::Break(());
                }
                let row = &self.suite.rows[arm.row];
                let what = format!("{} · {} · {level} clients", stack(row).title, of.name);
                self.progress(&what);
                if failed.contains(&arm.row) {
                    continue;
                }
                if let Err(error) = self.sites.alive() {
                    self.failed(&of.name, None, Some((page, Some(level))), error);
                    return ControlFlow::Continue(());
                }
                let place = Place {
                    suite: self.suite,
                    row,
                    page,
                    level,
                    effort: self.effort,
                };
                match self.lab.window(&place, &job, &self.folder, self.sites) {
                    Ok(seen) => self.measured.windows.push(Window {
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
                        if matches!(error, LabError::DoesNotStart { .. }) {
                            arms.retain(|other| other.row != arm.row);
                        }
                        failed.push(arm.row);
                        // What was measured of it in this cell is no sample of a healthy server.
                        self.measured
                            .windows
                            .retain(|w| (w.row, w.page, w.concurrency) != (arm.row, page, level));
                        let at = Some((page, Some(level)));
                        self.failed(&what, Some(arm.row), at, error);
                    }
                }
            }
            longest = longest.max(begun.elapsed());
        }
        ControlFlow::Continue(())
    }

    /// How near the generator was to its own end in each of a cell's windows.
    fn ceilings(&mut self, page: usize, level: u32) {
        let windows = self.measured.windows.iter_mut();
        let here = windows.filter(|w| (w.page, w.concurrency) == (page, level));
        let told = ceiling::tell(here.map(|window| &mut window.run), &self.lab.interrupt);
        if let Err(why) = told {
            let error = LabError::NotMeasured {
                stack: "the load tester".to_owned(),
                why,
            };
            self.watch.failed("its ceiling", &error);
        }
    }

    fn progress(&mut self, what: &str) {
        let done = self.done;
        let rest = self.of.saturating_sub(done);
        let left = (done > 0).then(|| self.begun.elapsed() / done as u32 * rest as u32);
        self.watch.window(done, self.of.max(done), what, left);
        self.done += 1;
    }

    fn failed(
        &mut self,
        what: &str,
        row: Option<usize>,
        at: Option<(usize, Option<u32>)>,
        error: LabError,
    ) {
        self.watch.failed(what, &error);
        self.measured.failures.push(Failure { row, at, error });
    }
}

/// Who is measured, and how.
struct Place<'a> {
    suite: &'a Suite,
    row: &'a Row,
    page: usize,
    level: u32,
    effort: &'a Effort,
}

/// What was seen of a window.
struct Seen {
    run: Run,
    cpu_per_request: Option<Duration>,
    memory: u64,
    foreign: Option<f64>,
}

/// What everybody had used at an edge of a window.
struct Moment {
    stack: Usage,
    database: Usage,
    ourselves: Duration,
    machine: Duration,
}

impl Moment {
    fn now([stack, database]: [&[u32]; 2], memory: Memory) -> Moment {
        // The clocks are read before the pass over the processes, which takes time of its own.
        let (machine, ourselves) = (busy_time(), own_time());
        let [stack, database] = usage_of([stack, database], memory);
        Moment {
            stack,
            database,
            ourselves,
            machine,
        }
    }
}

/// The part of the cores' time that nobody of ours used. Ticks are 10 ms, so a short window tells it to a
/// few per cent.
fn foreign(before: &Moment, after: &Moment, took: Duration, cores: u32) -> f64 {
    let used = |of: fn(&Moment) -> Duration| of(after).saturating_sub(of(before));
    let ours = used(|m| m.stack.cpu) + used(|m| m.database.cpu) + used(|m| m.ourselves);
    let foreign = used(|m| m.machine).saturating_sub(ours);
    (foreign.as_secs_f64() / (took.as_secs_f64() * f64::from(cores.max(1)))).min(1.0)
}

/// Every row's stack exists: the suite has been checked.
fn stack(row: &Row) -> &'static Stack {
    Stack::find(&row.stack).expect("a suite's rows name stacks that exist")
}

/// The arms, beginning with another one in each block, backwards in every other.
fn turned(arms: &[Arm], block: u32) -> Vec<Arm> {
    let mut order = arms.to_vec();
    if !order.is_empty() {
        order.rotate_left((block / 2) as usize % arms.len());
    }
    if block % 2 == 1 {
        order.reverse();
    }
    order
}

fn plan(place: &Place<'_>, running: &Running) -> Result<Plan, LabError> {
    let Place { suite, row, .. } = *place;
    let page = &suite.pages[place.page];
    let failed = |error: howdah_bench::error::BenchError| bench(row, &error.to_string());
    let path = row.path.as_ref().unwrap_or(&page.path);
    let url = format!("http://{}{path}", running.address);
    let stop = match place.effort.window(page, place.level) {
        Some(window) => Stop {
            requests: None,
            time: Some(window),
        },
        None => Stop {
            requests: Some(suite.load.requests),
            time: Some(POSTED_LIMIT),
        },
    };
    let concurrency = Arrivals::Closed {
        concurrency: place.level,
    };
    let mut plan = Plan::new(Target::parse(&url).map_err(failed)?, concurrency, stop);
    plan.connection.keep_alive = suite.load.keepalive;
    if page.site == Site::Wordpress {
        let host = Template::new(wordpress::HOST);
        plan.request.headers.push(("Host".to_owned(), host));
    }
    plan.checks.body = vec![BodyCheck::Contains(page.contains.clone())];
    Ok(plan)
}

/// One right answer before anything is counted: error pages are fast.
fn check_page(row: &Row, plan: &Plan, running: &Running) -> Result<(), LabError> {
    let mut one = plan.clone();
    one.arrivals = Arrivals::Closed { concurrency: 1 };
    one.warmup = Duration::ZERO;
    one.stop = Stop {
        requests: Some(1),
        time: Some(Duration::from_secs(30)),
    };
    let run = engine::run(&one, Control::default()).map_err(|e| bench(row, &e.to_string()))?;
    if run.count(Outcome::Good) == 1 {
        return Ok(());
    }
    let outcomes: Vec<String> = run.outcomes.keys().map(ToString::to_string).collect();
    let status = run.document.first_status;
    Err(LabError::WrongPage {
        stack: row.stack.clone(),
        url: plan.targets[0].text().to_owned(),
        got: format!(
            "{}{}",
            outcomes.join(", "),
            status.map_or(String::new(), |status| format!(", status {status}"))
        ),
        log: running.log_tails(),
    })
}

fn bench(row: &Row, why: &str) -> LabError {
    LabError::NotMeasured {
        stack: row.stack.clone(),
        why: why.to_owned(),
    }
}

fn cpu_per_request(before: &Usage, after: &Usage, requests: u64) -> Duration {
    let used = after.cpu.saturating_sub(before.cpu);
    if requests == 0 {
        return Duration::ZERO;
    }
    Duration::from_secs_f64(used.as_secs_f64() / requests as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_comes_once_in_each_block_and_the_order_turns() {
        let arms: Vec<Arm> = (0..3)
            .map(|row| Arm {
                row,
                control: false,
            })
            .collect();
        let rows = |block| {
            turned(&arms, block)
                .iter()
                .map(|a| a.row)
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(0), [0, 1, 2]);
        assert_eq!(rows(1), [2, 1, 0]);
        assert_eq!(rows(2), [1, 2, 0]);
        assert_eq!(rows(3), [0, 2, 1]);
    }
}
