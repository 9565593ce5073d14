//! Measures the windows: blocks of the look and of the decision, each saved when it is finished. Every
//! stack is started afresh for its turn, must give a right page before anything is counted, and is
//! measured at the levels in a changing order. Judges nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use howdah_bench::driver;
use howdah_bench::engine::{self, Control};
use howdah_bench::plan::check::{BodyCheck, Pattern};
use howdah_bench::plan::{Arrivals, Plan, Stop, Target, Template};
use howdah_bench::run::{Ended, Run};
use serde::{Deserialize, Serialize};

use super::app::App;
use super::arm::Arm;
use super::check::{self, Failed, Page};
use super::schedule::Schedule;
use crate::LabError;
use crate::ceiling;
use crate::journal::Journal;
use crate::measure::Watch;
use crate::process::{Memory, busy_time, own_time, usage_of};
use crate::stack::Job;

/// Most requests of a warm-up, unless there are more clients.
const MOST_WARMING: u64 = 10_000;

/// A stage of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Measures every arm at every level.
    Look,
    /// Measures the default and its challengers at one level.
    Decide,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Stage::Look => "look",
            Stage::Decide => "decide",
        }
    }
}

/// One measurement: an arm at a level in one block.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Window {
    /// The arm's name.
    pub arm: String,
    /// Whether this is the default a second time, which shows the noise.
    pub control: bool,
    /// Number of clients.
    pub concurrency: u32,
    /// What the generator measured; the values of header fields are concealed.
    pub run: Run,
    /// CPU time of the whole stack per request, warm-up included, seconds.
    pub cpu: f64,
    /// Proportional memory of the whole stack after the window, bytes; 0 if the lab may not read it.
    pub memory: u64,
    /// Share of the cores that other programs used during the window, the application's database
    /// included.
    pub foreign: f64,
}

/// A round in which every arm has its turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Block {
    /// The stage that the block belongs to.
    pub stage: Stage,
    /// The block's number in its stage, from 0.
    pub number: u32,
    /// The windows, in the order measured.
    pub windows: Vec<Window>,
    /// Arms that failed in the block.
    pub failed: Vec<Failed>,
}

/// What all windows of a comparison share.
pub struct Bench<'a> {
    /// The application that is measured.
    pub app: &'a App,
    /// The job that every stack is started with.
    pub job: &'a Job,
    /// The application's pages.
    pub pages: &'a [Page],
    /// The levels, and the number and length of the windows.
    pub schedule: &'a Schedule,
    /// The journal in which blocks are saved.
    pub saved: &'a Journal,
    /// Set it to end the stage after the window in progress; on resume the block is measured again.
    pub interrupt: Arc<AtomicBool>,
    /// No window begins after this time; None: no limit.
    pub deadline: Option<Instant>,
}

/// Why a stage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All blocks were measured.
    Finished,
    /// Somebody interrupted it.
    Interrupted,
    /// The deadline passed.
    OutOfTime,
}

/// An arm's turn in a block.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The arm to measure.
    pub arm: Arm,
    /// Whether it is the default a second time.
    pub control: bool,
}

impl Bench<'_> {
    /// Measures the blocks of a stage that are not saved yet; returns all blocks, and why it ended.
    ///
    /// # Errors
    /// A block cannot be saved or read. The failure of a stack is in its block.
    pub fn stage(
        &self,
        stage: Stage,
        turns: &[Turn],
        watch: &mut dyn Watch,
    ) -> Result<(Vec<Block>, End), LabError> {
        let (count, levels) = match stage {
            Stage::Look => (self.schedule.looks, self.schedule.levels.clone()),
            Stage::Decide => (self.schedule.blocks, vec![self.schedule.deciding]),
        };
        let of = count as usize * turns.len();
        let begun = Instant::now();
        let (mut measured, mut blocks) = (0, Vec::new());
        for number in 0..count {
            let name = format!("blocks/{}-{number:03}", stage.word());
            if let Some(block) = self.saved.kept::<Block>(&name)? {
                blocks.push(block);
                continue;
            }
            let mut block = Block {
                stage,
                number,
                windows: Vec::new(),
                failed: Vec::new(),
            };
            let order = driver::order(number as usize, turns.len());
            for (place, turn) in order.into_iter().map(|at| &turns[at]).enumerate() {
                if self.interrupt.load(Ordering::Relaxed) {
                    return Ok((blocks, End::Interrupted));
                }
                if self.is_out_of_time() {
                    return Ok((blocks, End::OutOfTime));
                }
                if has_failed(&blocks, &block, &turn.arm) {
                    continue;
                }
                let done = number as usize * turns.len() + place;
                let left = (measured > 0).then(|| begun.elapsed() / measured * (of - done) as u32);
                watch.window(
                    done,
                    of,
                    &format!("{}: {}", stage.word(), turn.arm.title),
                    left,
                );
                measured += 1;
                let turned = self.turn(turn, &levels, number);
                if self.is_out_of_time() {
                    // Its windows may have been cut short.
                    return Ok((blocks, End::OutOfTime));
                }
                match turned {
                    Ok(windows) => block.windows.extend(windows),
                    Err(_) if self.interrupt.load(Ordering::Relaxed) => {
                        return Ok((blocks, End::Interrupted));
                    }
                    Err(error) => {
                        watch.failed(&turn.arm.title, &error);
                        block.failed.push(Failed::new(&turn.arm, &error));
                    }
                }
            }
            if number == 0 {
                self.ceilings(&mut block, &levels, watch);
            }
            self.saved.keep(&name, &block)?;
            blocks.push(block);
        }
        Ok((blocks, End::Finished))
    }

    /// Measures how near the generator was to its own limit, once for each stage: the pages stay the
    /// same.
    fn ceilings(&self, block: &mut Block, levels: &[u32], watch: &mut dyn Watch) {
        for level in levels {
            let windows = block.windows.iter_mut();
            let here = windows.filter(|window| window.concurrency == *level);
            if let Err(why) = ceiling::tell(here.map(|w| &mut w.run), &self.interrupt) {
                let error = LabError::NotMeasured {
                    stack: "the load tester".to_owned(),
                    why,
                };
                watch.failed("its ceiling", &error);
            }
        }
    }

    /// Starts an arm afresh and measures it at all levels.
    fn turn(&self, turn: &Turn, levels: &[u32], number: u32) -> Result<Vec<Window>, LabError> {
        let arm = &turn.arm;
        let mut running = arm.start(self.app, self.job, self.saved.folder())?;
        check::recheck(self.app, arm, &running, self.pages)?;
        let mut order = levels.to_vec();
        order.rotate_left(number as usize % levels.len());
        let mut windows = Vec::new();
        for level in order {
            let plan = plan(self.app, self.pages, self.schedule, running.address, level)
                .map_err(|why| not_measured(arm, why))?;
            let sessions = running.sessions();
            let [before] = usage_of([&sessions], Memory::Leave);
            let began = (Instant::now(), busy_time(), own_time());
            let warmed = self.drive(&warm_up(&plan, self.pages, self.schedule, self.app.cores));
            let run = warmed.and_then(|warmed| Ok((warmed, self.drive(&plan)?)));
            let [after] = usage_of([&sessions], Memory::Read);
            // Its death explains whatever the load tester says.
            running.alive()?;
            let (warmed, mut run) = run.map_err(|why| not_measured(arm, why))?;
            if run.ended == Ended::Interrupted {
                return Err(not_measured(arm, "the window was interrupted".to_owned()));
            }
            for (_, value) in &mut run.plan.request.headers {
                *value = Template::new("(concealed)");
            }
            let requests = run.ended_requests() + warmed.ended_requests();
            let used = after.cpu.saturating_sub(before.cpu).as_secs_f64();
            let took = began.0.elapsed().as_secs_f64() * f64::from(self.app.cores);
            let busy = busy_time().saturating_sub(began.1).as_secs_f64();
            let ours = own_time().saturating_sub(began.2).as_secs_f64() + used;
            windows.push(Window {
                arm: arm.name.clone(),
                control: turn.control,
                concurrency: level,
                run,
                cpu: used / requests.max(1) as f64,
                memory: after.memory,
                foreign: ((busy - ours) / took).clamp(0.0, 1.0),
            });
        }
        Ok(windows)
    }

    fn is_out_of_time(&self) -> bool {
        let deadline = self.deadline;
        deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Runs a plan, cut off at the deadline, however slow the server is.
    fn drive(&self, plan: &Plan) -> Result<Run, String> {
        let mut plan = plan.clone();
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = left.max(Duration::from_millis(100));
            plan.stop.time = plan.stop.time.map(|time| time.min(left));
        }
        let control = Control {
            interrupt: self.interrupt.clone(),
            ..Control::default()
        };
        engine::run(&plan, control).map_err(|error| error.to_string())
    }
}

fn has_failed(blocks: &[Block], block: &Block, arm: &Arm) -> bool {
    let mut failed = blocks.iter().chain([block]).flat_map(|block| &block.failed);
    failed.any(|failed| failed.arm == arm.name)
}

fn plan(
    app: &App,
    pages: &[Page],
    schedule: &Schedule,
    address: std::net::SocketAddr,
    level: u32,
) -> Result<Plan, String> {
    let target = |page: &Page| {
        Target::parse(&format!("http://{address}{}", page.url)).map_err(|e| e.to_string())
    };
    let targets: Vec<Target> = pages.iter().map(target).collect::<Result<_, _>>()?;
    let first = targets.first().ok_or("there is no page")?.clone();
    let stop = Stop {
        requests: None,
        time: Some(Duration::from_secs_f64(schedule.window)),
    };
    let mut plan = Plan::new(first, Arrivals::Closed { concurrency: level }, stop);
    plan.targets = targets;
    let host = [("Host".to_owned(), Template::new(&app.host))];
    let sent = app
        .headers
        .iter()
        .map(|(n, v)| (n.clone(), Template::new(v)));
    plan.request.headers = host.into_iter().chain(sent).collect();
    plan.checks.body = checks(pages)?;
    Ok(plan)
}

/// The plan of a warm-up: a separate run that ends when a number of requests have been answered. A
/// server that still works for clients who have left would be slow in the window.
fn warm_up(plan: &Plan, pages: &[Page], schedule: &Schedule, cores: u32) -> Plan {
    let mut warm = plan.clone();
    let service = mean_service(pages).max(1e-4);
    let fit = (schedule.warmup * f64::from(cores) / service) as u64;
    let clients = u64::from(plan.arrivals.connections());
    let requests = fit.clamp(clients, clients.max(MOST_WARMING));
    let expected = requests as f64 * service / f64::from(cores);
    warm.stop = Stop {
        requests: Some(requests),
        // For what hangs, or is many times slower than the reference was alone.
        time: Some(Duration::from_secs_f64((4.0 * expected).clamp(2.0, 120.0))),
    };
    warm
}

/// The mean time that a page takes without concurrency, seconds.
pub fn mean_service(pages: &[Page]) -> f64 {
    let sum: f64 = pages.iter().map(|page| page.service).sum();
    sum / pages.len().max(1) as f64
}

/// Checks that an answer contains a page's own text, and its end; with several pages, those of any of
/// them. Empty if a page has no constant text: then the status alone decides.
fn checks(pages: &[Page]) -> Result<Vec<BodyCheck>, String> {
    if pages.iter().any(|page| page.shape.marks().is_empty()) {
        return Ok(Vec::new());
    }
    if let [page] = pages {
        let marks = page.shape.marks().iter().cloned();
        return Ok(marks.map(BodyCheck::Contains).collect());
    }
    let any = |pick: fn(&[String]) -> Option<&String>| {
        let texts = pages.iter().filter_map(|page| pick(page.shape.marks()));
        let mut texts: Vec<String> = texts.map(|text| literal(text)).collect();
        texts.sort();
        texts.dedup();
        Pattern::new(&texts.join("|"))
            .map(BodyCheck::Matches)
            .map_err(|e| e.to_string())
    };
    Ok(vec![
        any(|marks| marks.first())?,
        any(|marks| marks.last())?,
    ])
}

/// A regular expression that finds the text. Escapes only characters with a meaning, for `\<` would
/// have one.
fn literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn not_measured(arm: &Arm, why: String) -> LabError {
    LabError::NotMeasured {
        stack: arm.title.clone(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::Shape;
    use super::*;

    fn page(url: &str, body: &str) -> Page {
        Page {
            url: url.to_owned(),
            media_type: "text/html".to_owned(),
            bytes: body.len(),
            shape: Shape::learn(&[body.as_bytes().to_vec()]),
            service: 0.01,
        }
    }

    #[test]
    fn an_answer_that_is_none_of_the_pages_fails_the_checks() {
        let one = page("/a", "<h1>Elephants (all) of $5</h1>\n<p>bye</p>");
        let two = page("/b", "<h1>Tigers [none]*</h1>\n");
        for pages in [vec![one.clone()], vec![one, two]] {
            let checks = checks(&pages).unwrap();
            let passes = |body: &str| checks.iter().all(|check| check.passes(body.as_bytes()));
            assert!(passes("<h1>Elephants (all) of $5</h1>\n<p>bye</p>"));
            assert_eq!(passes("<h1>Tigers [none]*</h1>"), pages.len() == 2);
            assert!(!passes("<h1>Tigers n*</h1>"));
            assert!(!passes("<b>Fatal error</b>"));
        }
        assert!(checks(&[page("/", "1")]).unwrap().is_empty());
    }

    #[test]
    fn every_mark_is_a_literal() {
        let awkward = "a.b*c(d)[e]{f}^$|\\?+-#&~ \u{e9}\n/";
        let pattern = Pattern::new(&literal(awkward)).unwrap();
        assert!(BodyCheck::Matches(pattern).passes(awkward.as_bytes()));
    }
}
