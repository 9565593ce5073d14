//! Carries out a comparison on a user's application, from the check to the configuration file. Only the
//! order of the steps is here; the modules beside this one do the work.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::advise::{self, Advice, Facts};
use super::app::App;
use super::arm::{Arm, DEFAULT, Mode, Way};
use super::check::{self, Checked, Failed};
use super::howdah_toml::{self, Reasons, Wanted};
use super::plan::Plan;
use super::rows::{self, Level};
use super::run::{self, Bench, Block, End, Stage, Turn};
use super::schedule::Schedule;
use super::tree::{Changes, Tree};
use crate::LabError;
use crate::folder::Folder;
use crate::ini::Ini;
use crate::journal::{Journal, SCHEMA};
use crate::measure::Watch;
use crate::process::Servant;
use crate::stack::{Job, Running, configured};
use howdah_bench::report::words::capital;

/// Part of a quick run's time that is reserved for trying the configuration and for the report,
/// seconds.
const RESERVE: f64 = 6.0;

/// Share of a quick run's time that the check of the pages may take.
const LOOKING: f64 = 0.4;

/// The result of a comparison; also the JSON of `howdah compare --app`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Version of this JSON.
    pub schema: u32,
    /// The application's directory.
    pub directory: PathBuf,
    /// What the lab recognised in the directory.
    pub found: String,
    /// The host that the requests named.
    pub host: String,
    /// Names of the header fields that were sent; no report contains their values.
    pub headers: Vec<String>,
    /// Facts about the pages.
    pub pages: Vec<PageFacts>,
    /// The name of the stack that the others were compared with.
    pub reference: String,
    /// The machine, a line for each of its properties.
    pub machine: Vec<(String, String)>,
    /// The machine's load average before the comparison began.
    pub load: f64,
    /// Versions of the programs that took part, a line each.
    pub versions: Vec<String>,
    /// The levels, and the number and length of the windows.
    pub schedule: Schedule,
    /// The schedule in words.
    pub effort: String,
    /// The command line that repeats the measurement.
    pub command: String,
    /// When it began, seconds since 1970.
    pub began: f64,
    /// How long this session took, seconds.
    pub took: f64,
    /// Whether it was stopped before its end; `--resume` continues it.
    pub interrupted: bool,
    /// The figures of all arms at each level.
    pub levels: Vec<Level>,
    /// What to choose; None if no mode of Howdah gives the right pages.
    pub advice: Option<Advice>,
    /// The recommended configuration file; None if there is no advice.
    pub config: Option<Config>,
    /// The arms that were not measured, and why.
    pub failed: Vec<Failed>,
    /// What else the reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// Facts about a page, for the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageFacts {
    /// The path and the query.
    pub url: String,
    /// `Content-Type` without parameters.
    pub media_type: String,
    /// Length of the body, bytes.
    pub bytes: usize,
    /// The share of the page that is constant, per cent.
    pub constant: u8,
    /// Time that the page takes without concurrency, seconds.
    pub service: f64,
    /// Whether Howdah's page cache kept the page.
    pub kept_by_cache: bool,
}

/// The configuration file that is recommended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The path of the file.
    pub path: PathBuf,
    /// The content of the file.
    pub text: String,
    /// What `howdah check` printed about the file, and what a server started from it served; or why
    /// that failed.
    pub trial: Result<String, String>,
}

/// A comparison that is about to be carried out.
pub struct Study {
    /// What the user asked for, and what it is measured on.
    pub plan: Plan,
    /// The comparison's journal.
    pub saved: Journal,
    /// The path of the `howdah` program.
    pub howdah: PathBuf,
    /// Set it to end the comparison after the window in progress.
    pub interrupt: Arc<AtomicBool>,
    /// When this session began.
    pub started: Instant,
}

/// Looks at the directory before anything is started; reports all mistakes at once.
///
/// # Errors
/// A sentence for each mistake.
pub fn examine(app: &App) -> Result<Tree, Vec<String>> {
    let mut mistakes = Vec::new();
    for path in [&app.directory, &app.root] {
        if let Err(why) = super::app::writable_in_configurations(path)
            && !mistakes.contains(&why)
        {
            mistakes.push(why);
        }
    }
    let tree = Tree::of(&app.directory);
    if !tree.has_scripts() {
        mistakes.push(format!(
            "{}: there is no .php file in it: nothing to compare, files are served alike in every mode",
            app.directory.display()
        ));
    }
    match mistakes.is_empty() {
        true => Ok(tree),
        false => Err(mistakes),
    }
}

/// Checks that the user that the stacks run as can read the application and the results.
///
/// # Errors
/// The directories that this user cannot read.
pub fn readable(app: &App, folder: &Folder) -> Result<(), LabError> {
    use std::os::unix::process::CommandExt;
    let Servant::Other { uid, gid } = folder.servant() else {
        return Ok(());
    };
    let mut mistakes = Vec::new();
    for path in [app.root.as_path(), folder.path()] {
        let mut test = Command::new("test");
        let test = test.arg("-r").arg(path).args(["-a", "-x"]).arg(path);
        if !test.uid(uid).gid(gid).status().is_ok_and(|s| s.success()) {
            mistakes.push(format!(
                "{}: www-data, who the stacks run as when root starts them, cannot read it: chmod a+rX \
                 it and what is above, or run the comparison as its owner",
                path.display()
            ));
        }
    }
    match mistakes.is_empty() {
        true => Ok(()),
        false => Err(LabError::OwnApp { mistakes }),
    }
}

impl Study {
    /// Carries out the comparison.
    ///
    /// # Errors
    /// Nothing can be measured, or nothing saved. The failure of a stack is in the outcome.
    pub fn run(self, tree: Tree, watch: &mut dyn Watch) -> Result<Outcome, LabError> {
        let Study { plan, saved, .. } = &self;
        let app = &plan.app;
        let folder = saved.folder();
        readable(app, folder)?;
        let before = match saved.kept::<Tree>("tree")? {
            Some(before) => before,
            None => {
                saved.keep("tree", &tree)?;
                tree
            }
        };
        let job = self.job(folder, 64 * app.cores)?;
        let load = load();
        let limit = plan.effort.limit();
        let until = limit.map(|limit| self.started + limit.mul_f64(LOOKING));
        let mut asked = 0;
        let mut told = |arm: &Arm, error: Option<&LabError>| match error {
            None => {
                let what = format!("the right pages? {}", arm.title);
                watch.window(asked, plan.arms.len(), &what, None);
                asked += 1;
            }
            Some(error) => watch.failed(&arm.title, error),
        };
        let checked = check::check(app, &plan.arms, &job, folder, until, &mut told)?;
        let schedule = match saved.kept::<Schedule>("schedule")? {
            Some(schedule) => schedule,
            None => {
                let schedule = self.schedule(&checked);
                saved.keep("schedule", &schedule)?;
                schedule
            }
        };
        let mut arms: Vec<Arm> = checked.fit.clone();
        arms.retain(|arm| !schedule.left_out.contains(&arm.name));
        // The default first, then as they were named.
        arms.sort_by_key(|arm| plan.arms.iter().position(|a| a.name == arm.name));
        let most = schedule.levels.iter().max().copied().unwrap_or(1);
        let job = Job {
            clients: most.max(100),
            ..job
        };
        let bench = Bench {
            app,
            job: &job,
            pages: &checked.pages,
            schedule: &schedule,
            saved,
            interrupt: self.interrupt.clone(),
            deadline: plan
                .effort
                .limit()
                .map(|limit| self.started + limit - Duration::from_secs_f64(RESERVE)),
        };
        let turn = |arm: &Arm, control| Turn {
            arm: arm.clone(),
            control,
        };
        let all: Vec<Turn> = arms.iter().map(|arm| turn(arm, false)).collect();
        let begun = Instant::now();
        let (look, mut end) = bench.stage(Stage::Look, &all, watch)?;
        let looked = begun.elapsed().as_secs_f64();
        let at_deciding = rows::levels(&arms, &look, &[schedule.deciding]);
        let look_rows = at_deciding.first().map_or(&[][..], |level| &level.rows);
        let default = arms.iter().find(|arm| arm.name == DEFAULT);
        let mut decided = Vec::new();
        if let (End::Finished, Some(default)) = (end, default) {
            let mut turns = vec![turn(default, false)];
            let asked = advise::challengers(&arms, look_rows);
            turns.extend(asked.iter().map(|(_, arm)| turn(arm, false)));
            turns.push(turn(default, true));
            let overhead = looked / f64::from(schedule.looks) / all.len().max(1) as f64
                - schedule.levels.len() as f64 * (schedule.window + schedule.warmup);
            let decision = self.for_decision(&schedule, overhead, turns.len(), bench.deadline)?;
            let bench = Bench {
                schedule: &decision,
                interrupt: self.interrupt.clone(),
                ..bench
            };
            (decided, end) = bench.stage(Stage::Decide, &turns, watch)?;
        }
        let changes = before.changes(&Tree::of(&app.directory));
        let changing: Vec<String> = checked
            .pages
            .iter()
            .filter(|page| page.shape.constant() < 100)
            .map(|page| page.url.clone())
            .collect();
        let advice = default.map(|_| {
            advise::advise(&Facts {
                arms: &arms,
                look: look_rows,
                blocks: &decided,
                personal: app.is_personal(),
                kept_by_cache: &checked.kept_by_cache,
                changing: &changing,
                auto_children: app.auto_children,
                machine_memory: memory_of(&plan.identity.machine),
            })
        });
        let interrupted = end == End::Interrupted;
        let config = match (&advice, interrupted) {
            (Some(advice), false) => Some(self.configure(advice, &checked, &schedule)?),
            _ => None,
        };
        let mut blocks = look;
        blocks.extend(decided);
        let levels = rows::levels(&arms, &blocks, &schedule.levels);
        let mut notes = self.notes(&checked, &schedule, &changes, end, &levels);
        notes.extend(foreign(&blocks));
        Ok(Outcome {
            schema: SCHEMA,
            directory: app.directory.clone(),
            found: app.found.clone(),
            host: app.host.clone(),
            headers: app.header_names().into_iter().map(str::to_owned).collect(),
            pages: facts(&checked),
            reference: checked.reference.clone(),
            machine: plan.identity.machine.clone(),
            load,
            versions: plan.identity.versions.clone(),
            effort: schedule.sentence(),
            command: plan.command.clone(),
            began: plan.began,
            took: self.started.elapsed().as_secs_f64(),
            interrupted,
            levels,
            advice,
            config,
            failed: failures(&checked, &blocks),
            notes,
            schedule: schedule.clone(),
        })
    }

    /// The job that every stack is started with.
    fn job(&self, folder: &Folder, clients: u32) -> Result<Job, LabError> {
        let app = &self.plan.app;
        let ini = Ini::write(folder, true, &[])?;
        if let Some(theirs) = &app.php_ini {
            // Theirs, but for what would leave the folder.
            let kept = std::fs::read_to_string(&ini.file).map_err(LabError::file(&ini.file))?;
            let ours = ["session.save_path", "sys_temp_dir", "upload_tmp_dir"];
            let ours = kept
                .lines()
                .filter(|line| ours.iter().any(|name| line.starts_with(name)));
            let ours: Vec<&str> = ours.collect();
            folder.write(
                "php/php.ini",
                format!("{}\n[PHP]\n{}\n", theirs.text, ours.join("\n")),
            )?;
        }
        Ok(Job {
            root: app.root.clone(),
            front_controller: app.front_controller.clone(),
            worker: app.worker.clone(),
            children: app.auto_children,
            clients: clients.max(100),
            server_name: app.host_name().to_owned(),
            environment: app.environment.clone(),
            ini_without_opcache: ini.clone(),
            ini,
            howdah: self.howdah.clone(),
        })
    }

    fn schedule(&self, checked: &Checked) -> Schedule {
        let plan = &self.plan;
        let left = plan.effort.limit().map(|limit| {
            (limit.as_secs_f64() - self.started.elapsed().as_secs_f64() - RESERVE).max(0.0)
        });
        let mut costs = checked.costs.clone();
        for cost in &mut costs {
            let arm = plan.arms.iter().find(|arm| arm.name == cost.name);
            cost.expendable = arm.map_or(0, |arm| expendable(arm, &checked.reference));
        }
        let service = run::mean_service(&checked.pages);
        plan.effort.schedule(plan.app.cores, service, &costs, left)
    }

    /// The schedule of the decision: the same for all its blocks, even after a resume.
    fn for_decision(
        &self,
        schedule: &Schedule,
        overhead: f64,
        turns: usize,
        deadline: Option<Instant>,
    ) -> Result<Schedule, LabError> {
        const NAME: &str = "schedule-decision";
        if let Some(kept) = self.saved.kept(NAME)? {
            return Ok(kept);
        }
        let given = self.plan.effort.window.is_some();
        let decision = match deadline {
            Some(deadline) if !given => {
                let left = deadline.saturating_duration_since(Instant::now());
                schedule.for_decision(overhead.max(0.0), turns, left.as_secs_f64())
            }
            _ => schedule.clone(),
        };
        self.saved.keep(NAME, &decision)?;
        Ok(decision)
    }

    /// Writes the recommended file, runs `howdah check` on it, and serves the pages from it.
    fn configure(
        &self,
        advice: &Advice,
        checked: &Checked,
        schedule: &Schedule,
    ) -> Result<Config, LabError> {
        let app = &self.plan.app;
        let folder = self.saved.folder();
        let said = |question| {
            let found = advice.decisions.iter().find(|d| d.question == question);
            found.map_or(String::new(), |d| {
                format!("{}. {}.", capital(&d.therefore), capital(&d.evidence))
            })
        };
        let mut reasons = Reasons {
            mode: said(advise::Question::Mode),
            children: said(advise::Question::Children),
            cache: said(advise::Question::Cache),
        };
        if let Some(bytes) = advice.memory_per_child {
            reasons.children += &format!(
                " A child takes about {} of memory.",
                howdah_bench::report::words::bytes(bytes)
            );
        }
        if advice.choice.mode == Mode::Fastcgi {
            reasons.mode +=
                " Set pm = static and pm.max_children to max_connections in php-fpm's pool.";
        }
        let head = format!("For {}. {}", app.directory.display(), schedule.sentence());
        let head = [
            "Written by howdah compare --app; figures and caveats are in the report beside it.",
            &head,
        ];
        let text = |fastcgi: Option<&str>| {
            howdah_toml::text(&Wanted {
                app,
                choice: advice.choice,
                fastcgi,
                comment: &head,
                reasons: &reasons,
                user: match folder.servant() {
                    Servant::Other { .. } => Some("www-data"),
                    Servant::Ourselves => None,
                },
                php_ini: app.php_ini.as_ref().map(|ini| ini.path.as_path()),
            })
        };
        let ready = text(None);
        let path = folder.write("howdah.toml", &ready)?;
        let trial = self.try_out(&path, advice, checked, &text);
        Ok(Config {
            path,
            text: ready,
            trial: trial.map_err(|error| error.to_string()),
        })
    }

    fn try_out(
        &self,
        path: &Path,
        advice: &Advice,
        checked: &Checked,
        text: &dyn Fn(Option<&str>) -> String,
    ) -> Result<String, LabError> {
        let said = crate::folder::run(
            Command::new(&self.howdah)
                .args(["check", "--config"])
                .arg(path),
        )?;
        let folder = self.saved.folder().directory("trial")?;
        let job = self.job(self.saved.folder(), 100)?;
        let with_fpm = advice.choice.mode == Mode::Fastcgi;
        let running: Running = configured::start(&job, &folder, with_fpm, text)?;
        let arm = Arm {
            name: "trial".to_owned(),
            title: "the recommended configuration".to_owned(),
            way: Way::Howdah(advice.choice),
        };
        check::recheck(&self.plan.app, &arm, &running, &checked.pages)?;
        // What was recognised comes first, the verdict last.
        let said = said.lines().last().unwrap_or_default();
        let (_, verdict) = said.rsplit_once(": ").unwrap_or(("", said));
        let pages = checked.pages.len() as u64;
        let words = howdah_bench::report::words::plural(pages, "page", "pages");
        Ok(format!(
            "howdah check: {verdict}; served, it gave {words} rightly"
        ))
    }

    fn notes(
        &self,
        checked: &Checked,
        schedule: &Schedule,
        changes: &Changes,
        end: End,
        levels: &[Level],
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if end == End::OutOfTime {
            notes.push(
                "the time was over before all blocks were measured: --full has no such limit"
                    .to_owned(),
            );
        }
        if !schedule.left_out.is_empty() {
            notes.push(format!(
                "left out for want of time: {}; --full measures them",
                schedule.left_out.join(", ")
            ));
        }
        for page in &checked.pages {
            if page.shape.marks().is_empty() {
                notes.push(format!(
                    "{} has no constant text: during the load the status alone tells a right answer",
                    page.url
                ));
            }
        }
        for page in &checked.pages {
            let part = format!("{} gave another page", page.url);
            let wrong = checked
                .failed
                .iter()
                .filter(|f| f.message.contains(&part))
                .count();
            if wrong > 1 {
                notes.push(format!(
                    "{} is another page under {wrong} stacks: if it shows which server it runs under, leave it out",
                    page.url
                ));
            }
        }
        notes.extend(changes.sentence());
        let scripts = changes.scripts();
        if let Some(first) = scripts.first() {
            notes.push(format!(
                "{} changed during the comparison ({} …): if that was a deployment, figures of two \
                 versions are mixed here",
                howdah_bench::report::words::plural(scripts.len() as u64, "script", "scripts"),
                first.display()
            ));
        }
        if changes.cut {
            notes.push(
                "the directory has more than 200000 files: changes in the others were not watched"
                    .to_owned(),
            );
        }
        let rows = levels.iter().flat_map(|level| &level.rows);
        if rows.clone().any(|row| row.memory == 0) {
            notes.push("memory of processes of another user is not ours to see: run it as root, or as that user".to_owned());
        }
        let bound = rows.filter(|row| row.generator_bound.is_some()).count();
        if bound > 0 {
            notes.push(format!(
                "in {} the load tester was the bottleneck: these rates are lower bounds",
                howdah_bench::report::words::plural(bound as u64, "row", "rows")
            ));
        }
        notes
    }
}

/// How soon an arm is left out when time is short; 0: never.
fn expendable(arm: &Arm, reference: &str) -> u32 {
    match (&arm.way, arm.choice()) {
        _ if arm.name == DEFAULT || arm.title == reference => 0,
        (Way::Rival(_), _) => 4,
        (_, Some(choice)) => match choice.mode {
            Mode::Embed if choice.cache => 0,
            Mode::Embed | Mode::Worker => 1,
            Mode::Fastcgi => 2,
            Mode::Pool => 3,
            Mode::Cgi => 5,
        },
        (Way::Howdah(_), None) => 5,
    }
}

fn facts(checked: &Checked) -> Vec<PageFacts> {
    let pages = checked.pages.iter();
    pages
        .map(|page| PageFacts {
            url: page.url.clone(),
            media_type: page.media_type.clone(),
            bytes: page.bytes,
            constant: page.shape.constant(),
            service: page.service,
            kept_by_cache: checked.kept_by_cache.contains(&page.url),
        })
        .collect()
}

fn failures(checked: &Checked, blocks: &[Block]) -> Vec<Failed> {
    let mut all = checked.failed.clone();
    for failed in blocks.iter().flat_map(|block| &block.failed) {
        if !all.contains(failed) {
            all.push(failed.clone());
        }
    }
    all
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

/// A sentence about what other programs took of the cores; None if it was too little to matter.
fn foreign(blocks: &[Block]) -> Option<String> {
    let windows = blocks.iter().flat_map(|block| &block.windows);
    let shares: Vec<f64> = windows.map(|window| window.foreign).collect();
    let mean = howdah_bench::stats::mean(&shares);
    (mean > 0.1).then(|| {
        format!(
            "{} of the cores went to programs that are not the stacks' nor ours: a database of the application's, or others that disturb",
            howdah_bench::report::words::percent(mean)
        )
    })
}

/// The machine's memory, bytes, from its line `memory: N kB`.
fn memory_of(machine: &[(String, String)]) -> u64 {
    let line = machine.iter().find(|(name, _)| name == "memory");
    let kib = line.and_then(|(_, value)| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
