//! Runs a benchmark: every stack on the suite's pages at its levels, in turns ([`crate::experiment`]). This module
//! measures, and judges nothing.

use std::path::PathBuf;
use std::time::Duration;

use howdah_bench::driver::{BenchSession, SessionEvent};
use howdah_bench::engine::{self, RunControl};
use howdah_bench::error::BenchError;
use howdah_bench::outcome::Outcome;
use howdah_bench::plan::template::XorshiftRandom;
use howdah_bench::plan::{Arrivals, LoadTarget, Plan, RequestTemplate, StopLimits};
use howdah_bench::run::Run;
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::budget::{POSTED_LIMIT, RunBudget};
use crate::experiment::runner::ExperimentRunner;
use crate::experiment::{ArmFailure, ArmTurn, Cell, ExperimentResult, ExperimentSubject};
use crate::fixture::wordpress;
use crate::folder::RunFolder;
use crate::ini::PhpIniFile;
use crate::journal::ComparisonJournal;
use crate::site::PreparedSites;
use crate::stack::{RunningStack, Stack, StackJob};
use crate::suite::{Suite, SuitePage, SuiteSite};
use crate::suite_page;

/// The directory in a run's folder that contains its journals, one for each benchmark.
pub const JOURNALS_DIRECTORY: &str = "measured";

/// A benchmark as it was requested, saved for `--resume`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuiteRequest {
    /// The benchmark, reduced to the requested pages and rows.
    pub suite: Suite,
    /// How long and how often.
    pub budget: RunBudget,
    /// The benchmark's name or file on the command line.
    pub benchmark: String,
    /// The options of the command line that set how often and how long.
    pub options: String,
}

/// The settings that the measurements of all suites share.
pub struct SuiteRunner {
    /// The folder for everything that is written.
    pub folder: RunFolder,
    /// The path of the `howdah` program.
    pub howdah: PathBuf,
    /// Whether to measure again the saved parts that lack figures of a stack.
    pub rerun_failed: bool,
}

impl SuiteRunner {
    /// Measures a suite on these sites, except for the parts in `journal` that need not be measured again
    /// ([`SuiteRunner::rerun_failed`]).
    ///
    /// # Errors
    /// Returns an error if the lab's own files could not be written. The failure of a stack or of a page is in the
    /// result, and the others continue.
    pub fn measure(
        &self,
        suite: &Suite,
        budget: &RunBudget,
        sites: &mut PreparedSites,
        journal: &ComparisonJournal,
        session: &mut BenchSession<'_>,
    ) -> Result<ExperimentResult, LabError> {
        let folder = self.folder.directory(&suite.name)?;
        let mut subject = SuiteSubject {
            suite,
            budget,
            ini: PhpIniFile::write(&folder, true, &[])?,
            ini_without_opcache: PhpIniFile::write(&folder, false, &[])?,
            folder,
            sites,
            howdah: self.howdah.clone(),
        };
        let mut failures = Vec::new();
        let turns = subject.turns(&mut failures, session);
        let cells = subject.cells(&mut failures, session);
        let runner = ExperimentRunner {
            journal: Some(journal),
            blocks: budget.blocks,
            ceilings: u32::MAX,
            limit: budget.limit,
            deadline: None,
            rerun_failed: self.rerun_failed,
            stop_at_failure: false,
        };
        let mut measured = runner.run(&mut subject, &turns, &cells, session)?;
        failures.append(&mut measured.failures);
        measured.failures = failures;
        Ok(measured)
    }
}

/// The pages of a suite, served by the stacks of its rows.
struct SuiteSubject<'a> {
    suite: &'a Suite,
    budget: &'a RunBudget,
    sites: &'a mut PreparedSites,
    folder: RunFolder,
    ini: PhpIniFile,
    ini_without_opcache: PhpIniFile,
    howdah: PathBuf,
}

impl SuiteSubject<'_> {
    /// Returns the row's stack, which exists because the suite has been checked.
    fn stack(&self, row: usize) -> &'static Stack {
        Stack::find(&self.suite.rows[row].stack).expect("a suite's rows name stacks that exist")
    }

    fn page(&self, cell: &Cell) -> &SuitePage {
        &self.suite.pages[cell.page]
    }

    /// Returns the rows whose programs are installed, and the first ranked one again as the control.
    fn turns(
        &self,
        failures: &mut Vec<ArmFailure>,
        session: &mut BenchSession<'_>,
    ) -> Vec<ArmTurn> {
        let mut turns = Vec::new();
        for arm in 0..self.suite.rows.len() {
            match self.stack(arm).check_installed() {
                Ok(()) => turns.push(ArmTurn {
                    arm,
                    control: false,
                }),
                Err(error) => {
                    (session.watch)(SessionEvent::Failed {
                        label: self.stack(arm).title,
                        error: &error,
                    });
                    failures.push(ArmFailure::new(Some(arm), None, &error));
                }
            }
        }
        let ranked = |turn: &&ArmTurn| self.suite.rows[turn.arm].trap.is_none();
        if let Some(first) = turns.iter().find(ranked) {
            turns.push(ArmTurn {
                control: true,
                ..*first
            });
        }
        turns
    }

    /// Returns pages and levels in random order, so that the warming of the machine is not mistaken for a curve. A page
    /// whose site could not be prepared is reported and omitted.
    fn cells(&self, failures: &mut Vec<ArmFailure>, session: &mut BenchSession<'_>) -> Vec<Cell> {
        let levels = self.budget.pick_levels(&self.suite.load.concurrency);
        let mut cells: Vec<Cell> = Vec::new();
        for (page, of) in self.suite.pages.iter().enumerate() {
            let cell = |levels: Vec<u32>, level: u32| Cell {
                name: format!("{page}-{level}"),
                title: format!("{} · {level} clients", of.name),
                page,
                levels,
            };
            match self.sites.missing_because(of.site) {
                None => cells.extend(levels.iter().map(|level| cell(vec![*level], *level))),
                Some(error) => {
                    (session.watch)(SessionEvent::Failed {
                        label: &of.name,
                        error: &error,
                    });
                    failures.push(ArmFailure::new(None, Some(&cell(Vec::new(), 0)), &error));
                }
            }
        }
        let mut random = XorshiftRandom::new(1, 0);
        for at in (1..cells.len()).rev() {
            cells.swap(at, random.next_between(0, at as u64) as usize);
        }
        cells
    }

    /// Returns the path that is requested from the row's stack.
    fn path<'b>(&'b self, arm: usize, page: &'b SuitePage) -> &'b str {
        self.suite.rows[arm].path.as_ref().unwrap_or(&page.path)
    }

    /// Returns the host that requests for a page name.
    fn host(&self, page: &SuitePage) -> &'static str {
        match page.site {
            SuiteSite::Wordpress => wordpress::HOST,
            SuiteSite::Pages | SuiteSite::Database => "localhost",
        }
    }

    fn wrong_page(&self, arm: usize, plan: &Plan, running: &RunningStack, got: String) -> LabError {
        LabError::WrongPage {
            stack: self.suite.rows[arm].stack.clone(),
            url: plan.targets[0].text().to_owned(),
            got,
            log: running.log_tails(),
        }
    }

    fn not_measured(&self, arm: usize, why: BenchError) -> LabError {
        LabError::NotMeasured {
            stack: self.suite.rows[arm].stack.clone(),
            why,
        }
    }
}

impl ExperimentSubject for SuiteSubject<'_> {
    fn title(&self, arm: usize) -> String {
        self.stack(arm).title.to_owned()
    }

    fn check_alive(&mut self) -> Result<(), LabError> {
        self.sites.check_alive()
    }

    fn start(&self, arm: usize, cell: &Cell) -> Result<RunningStack, LabError> {
        let site = self.page(cell).site;
        let job = StackJob {
            root: self.sites.root(site),
            front_controller: self.sites.front_controller(site),
            worker: None,
            children: self.suite.children,
            clients: cell.level().unwrap_or_default().max(100),
            server_name: "localhost".to_owned(),
            environment: Vec::new(),
            ini: self.ini.clone(),
            ini_without_opcache: self.ini_without_opcache.clone(),
            howdah: self.howdah.clone(),
            h2c: !self.page(cell).assets.is_empty(),
        };
        self.stack(arm).start(&job, &self.folder)
    }

    fn check(&self, arm: usize, cell: &Cell, running: &RunningStack) -> Result<(), LabError> {
        let mut one = self.window_plan(arm, cell, 1, running)?;
        let parts = u64::from(suite_page::parts(&one));
        one.stop = StopLimits {
            requests: Some(parts),
            time: Some(Duration::from_secs(30)),
        };
        let page = self.page(cell);
        suite_page::check(page, self.host(page), running.address, self.path(arm, page))
            .map_err(|got| self.wrong_page(arm, &one, running, got))?;
        if parts > 1 {
            let mut first = suite_page::first_page(page, &one);
            first.stop.requests = Some(1);
            let run = engine::run(&first, RunControl::default());
            let run = run.map_err(|error| self.not_measured(arm, error))?;
            if run.count(Outcome::Good) != 1 {
                let got = outcomes(&run);
                return Err(self.wrong_page(arm, &first, running, got));
            }
        }
        let run = engine::run(&one, RunControl::default());
        let run = run.map_err(|error| self.not_measured(arm, error))?;
        if run.count(Outcome::Good) == parts {
            return Ok(());
        }
        let got = outcomes(&run);
        Err(self.wrong_page(arm, &one, running, got))
    }

    fn window_plan(
        &self,
        arm: usize,
        cell: &Cell,
        level: u32,
        running: &RunningStack,
    ) -> Result<Plan, LabError> {
        let (page, load) = (self.page(cell), &self.suite.load);
        let path = self.path(arm, page);
        let target = LoadTarget::parse(&format!("http://{}{path}", running.address));
        let target = target.map_err(|error| self.not_measured(arm, error))?;
        let stop = match self.budget.window(page, level) {
            Some(window) => StopLimits {
                requests: None,
                time: Some(window),
            },
            None => StopLimits {
                requests: Some(load.requests),
                time: Some(POSTED_LIMIT),
            },
        };
        let mut plan = Plan::new(target, Arrivals::Closed { concurrency: level }, stop);
        plan.connection.keep_alive = load.keepalive;
        if page.site == SuiteSite::Wordpress {
            let host = RequestTemplate::new(wordpress::HOST);
            plan.request.headers.push(("Host".to_owned(), host));
        }
        let headers = page.headers.iter().filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(n, v)| (n.to_owned(), RequestTemplate::new(v.trim())));
        plan.request.headers.extend(headers);
        if page.logged_in
            && let Some(cookie) = self.sites.login_cookie()
        {
            let cookie = RequestTemplate::new(cookie);
            plan.request.headers.push(("Cookie".to_owned(), cookie));
        }
        suite_page::prepare(page, self.host(page), running.address, path, &mut plan)
            .map_err(|got| self.wrong_page(arm, &plan, running, got))?;
        Ok(plan)
    }

    fn warm_up_plan(&self, cell: &Cell, window: &Plan) -> Option<Plan> {
        let mut plan = window.clone();
        let visitors = window.arrivals.connections() / suite_page::parts(window);
        let clients = visitors.min(self.suite.children);
        suite_page::set_visitors(&mut plan, clients);
        let connections = plan.arrivals.connections();
        plan.stop = self.budget.warm_up(self.page(cell), connections)?;
        Some(plan)
    }

    fn side_load(&self, cell: &Cell, window: &Plan) -> Option<Plan> {
        let path = self.page(cell).beside.as_ref()?;
        let address = window.targets[0].text().split('/').nth(2)?;
        let mut plan = window.clone();
        plan.targets = vec![LoadTarget::parse(&format!("http://{address}{path}")).ok()?];
        plan.arrivals = Arrivals::Closed { concurrency: 2 };
        plan.checks.body.clear();
        Some(plan)
    }

    fn shared_sessions(&self) -> Vec<u32> {
        self.sites.sessions()
    }

    fn knows_cpu(&self, arm: usize) -> bool {
        !self.stack(arm).loses_cpu()
    }
}

/// Names the outcomes of a run, and the status of its first response.
fn outcomes(run: &Run) -> String {
    let outcomes: Vec<String> = run.outcomes.keys().map(ToString::to_string).collect();
    let status = run.document.first_status;
    format!(
        "{}{}",
        outcomes.join(", "),
        status.map_or(String::new(), |status| format!(", status {status}"))
    )
}
