//! Runs a benchmark: every stack measured in turn, block by block, each started afresh for its
//! window, its page checked before anything is counted. Measures; judges nothing.
//!
//! - this file: a single window; [`course`]: in which order, for how long, and what failed;
//!   [`plan`]: what was asked for, as it is kept for `--resume`.

mod course;
pub mod plan;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use howdah_bench::engine::{self, Control};
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::check::BodyCheck;
use howdah_bench::plan::{Arrivals, Plan, Stop, Target, Template};
use howdah_bench::run::{Ended, Run};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::effort::{Effort, POSTED_LIMIT};
use crate::fixture::wordpress;
use crate::folder::Folder;
use crate::journal::Journal;
use crate::process::{Memory, Usage, busy_time, own_time, usage_of};
use crate::site::Sites;
use crate::stack::{Job, Running, Stack};
use crate::suite::{Row, Site, Suite};
use course::Course;

/// One measurement: a stack, a page and a number of clients in one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The row's index in the suite.
    pub row: usize,
    /// Whether this is the row a second time, which shows the noise.
    pub control: bool,
    /// The page's index in the suite.
    pub page: usize,
    /// Number of clients.
    pub concurrency: u32,
    /// The block's number, from 0.
    pub block: u32,
    /// What the generator measured.
    pub run: Run,
    /// CPU time of the whole stack per request; the database's is not in it. None: not known
    /// ([`Stack::loses_cpu`]).
    pub cpu_per_request: Option<Duration>,
    /// Proportional memory of the whole stack after the window, bytes; 0 if the lab may not read it.
    pub memory: u64,
    /// Share of the machine's cores that was busy with other programs than the stack, the database and
    /// the load tester. None: not known.
    pub foreign: Option<f64>,
}

/// Why a row has no figures, or no further ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The row's index in the suite; None: every row, because their site could not be made.
    pub row: Option<usize>,
    /// Page and level at which it failed; None: everywhere.
    pub at: Option<(usize, Option<u32>)>,
    /// The error's name ([`LabError::name`]).
    pub name: String,
    /// The error's whole message.
    pub message: String,
}

impl Failure {
    fn new(row: Option<usize>, at: Option<(usize, Option<u32>)>, error: &LabError) -> Failure {
        Failure {
            row,
            at,
            name: error.name().to_owned(),
            message: error.to_string(),
        }
    }
}

/// The windows and failures of a suite.
#[derive(Debug)]
pub struct Measured {
    /// All windows, in the order measured.
    pub windows: Vec<Window>,
    /// Rows that have no figures, and why.
    pub failures: Vec<Failure>,
    /// Cells that got fewer blocks than they should have had.
    pub left_out: Vec<LeftOut>,
    /// Whether somebody interrupted it; everything measured until then is included.
    pub interrupted: bool,
    /// How long the measuring took, earlier sessions included.
    pub took: Duration,
}

/// A page at a level for which the time was too short ([`Effort::limit`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The page's index in the suite.
    pub page: usize,
    /// Number of clients.
    pub concurrency: u32,
    /// Number of blocks that were measured.
    pub blocks: u32,
}

/// Receives the progress of a measurement.
pub trait Watch {
    /// Called before each window. `left`: the estimated rest of the time, from what the windows took so
    /// far.
    fn window(&mut self, done: usize, of: usize, what: &str, left: Option<Duration>);
    /// Called when a row has failed.
    fn failed(&mut self, what: &str, error: &LabError);
}

/// What measurements of all suites share.
pub struct Lab {
    /// The folder for everything that is written.
    pub folder: Folder,
    /// The path of the `howdah` program.
    pub howdah: PathBuf,
    /// Set it to end the measurement after the window in progress.
    pub interrupt: Arc<AtomicBool>,
    /// Whether to measure again the parts of the journal that lack figures of a stack.
    pub rerun_failed: bool,
}

impl Lab {
    /// Measures a suite on these sites, except for the parts that `journal` holds and need not be
    /// measured again ([`Lab::rerun_failed`]).
    ///
    /// # Errors
    /// The lab's own files could not be written. The failure of a stack or of a page is in the result,
    /// and the others continue.
    pub fn measure(
        &self,
        suite: &Suite,
        effort: &Effort,
        sites: &mut Sites,
        journal: &Journal,
        watch: &mut dyn Watch,
    ) -> Result<Measured, LabError> {
        Course::new(self, suite, effort, sites, journal, watch)?.run()
    }

    /// Warms the stack up with a run of its own. The generator's own warm-up would not do: a request
    /// begun in it and answered in the window is in no count, and with 500 clients that is most of a
    /// short window.
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

/// The place of a window in the suite: which stack, page and level.
struct Place<'a> {
    suite: &'a Suite,
    row: &'a Row,
    page: usize,
    level: u32,
    effort: &'a Effort,
}

/// What a window measured.
struct Seen {
    run: Run,
    cpu_per_request: Option<Duration>,
    memory: u64,
    foreign: Option<f64>,
}

/// What the stack, the database, the lab and the machine had used at one edge of a window.
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

/// The share of the cores' time that other programs used. Ticks are 10 ms, so in a short window it is
/// accurate to a few per cent.
fn foreign(before: &Moment, after: &Moment, took: Duration, cores: u32) -> f64 {
    let used = |of: fn(&Moment) -> Duration| of(after).saturating_sub(of(before));
    let ours = used(|m| m.stack.cpu) + used(|m| m.database.cpu) + used(|m| m.ourselves);
    let foreign = used(|m| m.machine).saturating_sub(ours);
    (foreign.as_secs_f64() / (took.as_secs_f64() * f64::from(cores.max(1)))).min(1.0)
}

/// The row's stack, which exists because the suite has been checked.
fn stack(row: &Row) -> &'static Stack {
    Stack::find(&row.stack).expect("a suite's rows name stacks that exist")
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

/// Checks that the stack gives the right page before anything is counted: error pages are fast.
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
