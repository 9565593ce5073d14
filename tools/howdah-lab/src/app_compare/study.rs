//! Carries out a comparison on a user's application, from the check to the configuration file. This module only
//! contains the order of the steps; the modules beside it do the work.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use howdah_bench::driver::{BenchSession, SessionEvent};
use serde::{Deserialize, Serialize};

use super::advise::{self, AdviceInput};
use super::app::TestedApp;
use super::arm::{AppArm, ArmKind, DEFAULT, HowdahMode};
use super::check::{self, CheckResult};
use super::outcome::{self, AppOutcome};
use super::rows::{self, ArmRow};
use super::schedule::{AppBudget, AppSchedule, TYPICAL_WARM_UPS};
use super::subject::AppSubject;
use super::tree::{FileChanges, FileTree};
use super::{config_trial, prepare};
use crate::LabError;
use crate::experiment::plan::SavedPlan;
use crate::experiment::runner::ExperimentRunner;
use crate::experiment::{ArmTurn, Cell, ExperimentEnd, ExperimentResult};
use crate::journal::{ComparisonJournal, FORMAT_VERSION};

/// The part of a quick run's time that is reserved for testing the configuration and for the report, in seconds.
const RESERVED_SECONDS: f64 = 6.0;

/// The share of a quick run's time that the check of the pages may take.
const CHECK_TIME_SHARE: f64 = 0.4;

/// The user's request, saved for `--resume`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppRequest {
    /// The application and its requests.
    pub app: TestedApp,
    /// The arms that take part, the default first.
    pub arms: Vec<AppArm>,
    /// How long and how often.
    pub budget: AppBudget,
    /// The time at which it began, in seconds since 1970.
    pub began: f64,
}

/// A comparison that is about to be carried out.
pub struct Study {
    /// The user's request, and the conditions of the measurement.
    pub plan: SavedPlan<AppRequest>,
    /// The comparison's journal.
    pub journal: ComparisonJournal,
    /// The path of the `howdah` program.
    pub howdah: PathBuf,
    /// The time at which this session began.
    pub started: Instant,
}

/// The measurements: a look at all arms, and the decision between the default and its challengers.
struct StudyWindows {
    look: ExperimentResult,
    /// The rows of the look at the deciding level.
    rows: Vec<ArmRow>,
    /// The decision; `None` if the look was not finished, or there is no default.
    decision: Option<ExperimentResult>,
}

impl StudyWindows {
    fn all(&self) -> Vec<&ExperimentResult> {
        [&self.look].into_iter().chain(&self.decision).collect()
    }

    fn end(&self) -> ExperimentEnd {
        self.decision.as_ref().unwrap_or(&self.look).end
    }
}

impl Study {
    /// Carries out the comparison.
    ///
    /// # Errors
    /// Returns an error if nothing can be measured or saved. The failure of a stack is in the outcome.
    pub fn run(
        self,
        tree: FileTree,
        session: &mut BenchSession<'_>,
    ) -> Result<AppOutcome, LabError> {
        let app = &self.plan.request.app;
        prepare::check_readable(app, self.journal.folder())?;
        let before = self.journal.load_or_save("tree", || tree)?;
        let load = load_average();
        let checked = self.check(session)?;
        let schedule = self
            .journal
            .load_or_save("schedule", || self.schedule(&checked))?;
        let arms = self.arms(&checked, &schedule);
        let windows = self.measure(&checked, &schedule, &arms, session)?;
        let changes = before.changes(&FileTree::read(&app.directory));
        self.outcome(load, &checked, schedule, &arms, &windows, &changes)
    }

    /// Checks which arms serve the right pages.
    fn check(&self, session: &mut BenchSession<'_>) -> Result<CheckResult, LabError> {
        let AppRequest {
            app, arms, budget, ..
        } = &self.plan.request;
        let folder = self.journal.folder();
        let job = prepare::stack_job(app, &self.howdah, folder, 64 * app.cores)?;
        let limit = budget.limit();
        let until = limit.map(|limit| self.started + limit.mul_f64(CHECK_TIME_SHARE));
        let mut asked = 0;
        let mut report = |arm: &AppArm, error: Option<&LabError>| match error {
            None => {
                let what = format!("checking the pages of {}", arm.title);
                asked += 1;
                (session.watch)(SessionEvent::Begins {
                    number: asked,
                    of: Some(arms.len()),
                    label: &what,
                    left: None,
                });
            }
            Some(error) => (session.watch)(SessionEvent::Failed {
                label: &arm.title,
                error,
            }),
        };
        check::check_arms(app, arms, &job, folder, until, &mut report)
    }

    /// Returns the arms that are measured: the default first, then in the order in which they were named.
    fn arms(&self, checked: &CheckResult, schedule: &AppSchedule) -> Vec<AppArm> {
        let mut arms: Vec<AppArm> = checked.fit.clone();
        arms.retain(|arm| !schedule.left_out.contains(&arm.name));
        let named = &self.plan.request.arms;
        arms.sort_by_key(|arm| named.iter().position(|a| a.name == arm.name));
        arms
    }

    fn measure(
        &self,
        checked: &CheckResult,
        schedule: &AppSchedule,
        arms: &[AppArm],
        session: &mut BenchSession<'_>,
    ) -> Result<StudyWindows, LabError> {
        let app = &self.plan.request.app;
        let folder = self.journal.folder();
        let most = schedule.levels.iter().max().copied().unwrap_or(1);
        let job = prepare::stack_job(app, &self.howdah, folder, most)?;
        let mut subject = AppSubject {
            app,
            arms,
            job: &job,
            pages: &checked.pages,
            schedule: schedule.clone(),
            folder,
        };
        let cell = |name: &str, levels: Vec<u32>| Cell {
            name: format!("blocks/{name}"),
            title: name.to_owned(),
            page: 0,
            levels,
        };
        let turn = |arm: usize, control| ArmTurn { arm, control };
        let turns: Vec<ArmTurn> = (0..arms.len()).map(|arm| turn(arm, false)).collect();
        let begun = Instant::now();
        let cells = [cell("look", schedule.levels.clone())];
        let look = self
            .runner(schedule.looks)
            .run(&mut subject, &turns, &cells, session)?;
        let looked = begun.elapsed().as_secs_f64();
        let at_deciding = rows::levels(arms, &[&look], &[schedule.deciding]);
        let rows = at_deciding.into_iter().next();
        let rows = rows.map_or_else(Vec::new, |level| level.rows);
        let index = |name: &str| arms.iter().position(|arm| arm.name == name);
        let mut decision = None;
        if let (ExperimentEnd::Finished, Some(default)) = (look.end, index(DEFAULT)) {
            let asked = advise::challengers(arms, &rows).into_iter();
            let asked = asked.filter_map(|(_, arm)| index(&arm.name));
            let mut turns = vec![turn(default, false)];
            turns.extend(asked.map(|arm| turn(arm, false)));
            turns.push(turn(default, true));
            let overhead = looked / f64::from(schedule.looks) / arms.len().max(1) as f64
                - schedule.levels.len() as f64
                    * (schedule.window + TYPICAL_WARM_UPS * schedule.warmup);
            subject.schedule = self.for_decision(schedule, overhead, turns.len())?;
            let cells = [cell("decide", vec![schedule.deciding])];
            let runner = self.runner(subject.schedule.blocks);
            decision = Some(runner.run(&mut subject, &turns, &cells, session)?);
        }
        Ok(StudyWindows {
            look,
            rows,
            decision,
        })
    }

    fn runner(&self, blocks: u32) -> ExperimentRunner<'_> {
        ExperimentRunner {
            journal: Some(&self.journal),
            blocks,
            // The pages stay the same, and so does the load tester's maximum.
            ceilings: 1,
            limit: None,
            deadline: self.deadline(),
            rerun_failed: false,
            stop_at_failure: false,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let limit = self.plan.request.budget.limit()?;
        Some(self.started + limit - Duration::from_secs_f64(RESERVED_SECONDS))
    }

    fn schedule(&self, checked: &CheckResult) -> AppSchedule {
        let AppRequest {
            app, arms, budget, ..
        } = &self.plan.request;
        let left = budget.limit().map(|limit| {
            (limit.as_secs_f64() - self.started.elapsed().as_secs_f64() - RESERVED_SECONDS).max(0.0)
        });
        let mut costs = checked.costs.clone();
        for cost in &mut costs {
            let arm = arms.iter().find(|arm| arm.name == cost.name);
            cost.omission_priority =
                arm.map_or(0, |arm| omission_priority(arm, &checked.reference));
        }
        let service = super::subject::mean_service_time(&checked.pages);
        budget.schedule(app.cores, service, &costs, left)
    }

    /// Returns the schedule of the decision, which is the same for all its blocks, even after a resume.
    fn for_decision(
        &self,
        schedule: &AppSchedule,
        overhead: f64,
        turns: usize,
    ) -> Result<AppSchedule, LabError> {
        let given = self.plan.request.budget.window.is_some();
        self.journal
            .load_or_save("schedule-decision", || match self.deadline() {
                Some(deadline) if !given => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    schedule.for_decision(overhead.max(0.0), turns, left.as_secs_f64())
                }
                _ => schedule.clone(),
            })
    }

    fn outcome(
        &self,
        load: f64,
        checked: &CheckResult,
        schedule: AppSchedule,
        arms: &[AppArm],
        windows: &StudyWindows,
        changes: &FileChanges,
    ) -> Result<AppOutcome, LabError> {
        let app = &self.plan.request.app;
        let pages = checked.pages.iter();
        let changing = pages.filter(|page| page.shape.constant_percent() < 100);
        let changing: Vec<String> = changing.map(|page| page.url.clone()).collect();
        let decision = windows.decision.as_ref();
        let has_default = arms.iter().any(|arm| arm.name == DEFAULT);
        let advice = has_default.then(|| {
            advise::advise(&AdviceInput {
                arms,
                look: &windows.rows,
                windows: decision.map_or(&[], |decision| &decision.windows),
                failures: decision.map_or(&[], |decision| &decision.failures),
                personal: app.is_personal(),
                kept_by_cache: &checked.kept_by_cache,
                changing: &changing,
                auto_children: app.auto_children,
                machine_memory: memory_of(&self.plan.identity.machine),
            })
        });
        let end = windows.end();
        let interrupted = end == ExperimentEnd::Interrupted;
        let config = match (&advice, interrupted) {
            (Some(advice), false) => {
                Some(config_trial::configure(self, advice, checked, &schedule)?)
            }
            _ => None,
        };
        let measured = windows.all();
        let levels = rows::levels(arms, &measured, &schedule.levels);
        let notes = outcome::notes(checked, &schedule, changes, end, &levels, &measured);
        Ok(AppOutcome {
            schema: FORMAT_VERSION,
            directory: app.directory.clone(),
            found: app.found.clone(),
            host: app.host.clone(),
            headers: app.header_names().into_iter().map(str::to_owned).collect(),
            pages: outcome::page_facts(checked),
            reference: checked.reference.clone(),
            machine: self.plan.identity.machine.clone(),
            load,
            versions: self.plan.identity.versions.clone(),
            effort: schedule.sentence(),
            command: self.plan.command.clone(),
            began: self.plan.request.began,
            took: self.started.elapsed().as_secs_f64(),
            interrupted,
            levels,
            advice,
            config,
            failed: outcome::failed_arms(checked, arms, &measured),
            notes,
            schedule,
        })
    }
}

/// Returns how early an arm is omitted when time is short; 0 for never.
fn omission_priority(arm: &AppArm, reference: &str) -> u32 {
    match (&arm.way, arm.choice()) {
        _ if arm.name == DEFAULT || arm.title == reference => 0,
        (ArmKind::Rival(_), _) => 4,
        (_, Some(choice)) => match choice.mode {
            HowdahMode::Embed if choice.cache => 0,
            HowdahMode::Embed if choice.jit => 2,
            HowdahMode::Embed | HowdahMode::Worker => 1,
            HowdahMode::Fastcgi => 2,
            HowdahMode::Pool => 3,
            HowdahMode::Cgi => 5,
        },
        (ArmKind::Howdah(_), None) => 5,
    }
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// Returns the machine's memory in bytes, from its line `memory: N kB`.
fn memory_of(machine: &[(String, String)]) -> u64 {
    let line = machine.iter().find(|(name, _)| name == "memory");
    let kib = line.and_then(|(_, value)| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
