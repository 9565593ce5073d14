//! The part of the supervisor that only a pool of workers needs: it notices when a script has booted or has failed to
//! boot. This module also restarts all children through a second zygote, so they begin with a fresh opcache, while each
//! old child serves until its successor does. A pool without a worker script uses this restart, too, if it watches
//! files, and any pool does if PHP was updated (`php_update`).
//!
//! ```text
//! Restart → a second zygote starts → Ready: it becomes the pool's zygote, and the first is now a
//!           former one → children of the former zygote are outdated, and each is replaced by one that has
//!           booted → the former zygote has no children left and is told to exit
//! ```
//! If any step fails, the running processes continue with their code.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use howdah_os::clock;
use howdah_proto::control::{Exit, StartedPhp, ZygoteReport};
use howdah_proto::level::LogLevel;
use howdah_proto::shm::{ChildId, VERSION};
use howdah_proto::worker::WorkerMessage;

use super::super::children::PoolChild;
use super::super::file_watcher::FileWatcher;
use super::super::zygote::ProtocolError;
use super::zygote_lifecycle::MAX_REPORTS_PER_TURN;
use super::{ChildState, EXIT_TIMEOUT, Supervisor, ZygoteClient, ZygoteMessage, ZygoteState};
use crate::common::process;

/// The minimum time between two restarts, for scripts that ask for one at each request.
const MIN_RESTART_INTERVAL: Duration = Duration::from_secs(1);

/// Several files often change together, so a restart waits until no file has changed for this long.
const SETTLE_TIME: Duration = Duration::from_millis(150);

/// A zygote that has been replaced and does not fork any more.
struct FormerZygote {
    generation: u64,
    link: ZygoteClient,
    /// When the zygote is killed, once it has been asked to exit; `None` before that.
    leaving: Option<Instant>,
}

/// The supervisor's state for restarts through a second zygote: the zygotes involved, and the watch on files.
pub(super) struct ZygoteRestarts {
    /// Whether a worker of the current zygote has booted.
    booted: bool,
    /// A second zygote that is starting, and the deadline for its start.
    next: Option<(ZygoteClient, Instant)>,
    former: Vec<FormerZygote>,
    restart_reason: Option<String>,
    restarted_at: Option<Instant>,
    watch: WatchState,
}

/// The files that are watched for changes.
enum WatchState {
    /// The watch has not been set up yet.
    NotStarted,
    /// No files are watched.
    Nothing,
    /// The watcher, and the time of the last change that has not caused a restart yet.
    Files(FileWatcher, Option<Instant>),
}

impl ZygoteRestarts {
    pub fn new() -> ZygoteRestarts {
        ZygoteRestarts {
            booted: false,
            next: None,
            former: Vec::new(),
            restart_reason: None,
            restarted_at: None,
            watch: WatchState::NotStarted,
        }
    }

    /// Returns how many of `forks` may begin while `booting` children boot. Only one child may boot until the first has
    /// booted: it fills opcache for the others, and a script that cannot boot fails once instead of many times.
    pub fn limit_forks(&self, forks: u32, booting: u32) -> u32 {
        if self.booted {
            forks
        } else {
            forks.min(1u32.saturating_sub(booting))
        }
    }

    /// Returns whether the current zygote is the only one left.
    pub fn is_empty(&self) -> bool {
        self.next.is_none() && self.former.is_empty()
    }

    /// Returns whether a second zygote is starting.
    pub fn is_starting_next(&self) -> bool {
        self.next.is_some()
    }

    /// Returns whether the zygote of that generation is a former one that still manages its children.
    pub fn has_former(&self, generation: u64) -> bool {
        self.former
            .iter()
            .any(|f| f.generation == generation && f.leaving.is_none())
    }

    /// Returns the descriptors on which the supervisor has to wait for these zygotes.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let next = self
            .next
            .iter()
            .flat_map(|(link, _)| [link.control(), link.pidfd()]);
        let former = self.former.iter().flat_map(|f| {
            let control = f.leaving.is_none().then(|| f.link.control());
            control.into_iter().chain([f.link.pidfd()])
        });
        let files = match &self.watch {
            WatchState::Files(watch, _) => Some(watch.descriptor()),
            WatchState::NotStarted | WatchState::Nothing => None,
        };
        next.chain(former).chain(files)
    }
}

impl Supervisor {
    /// Returns the zygote of the children of a generation.
    pub(super) fn zygote_of(&self, generation: u64) -> Option<&ZygoteClient> {
        match &self.zygote {
            ZygoteState::Ready { link } if generation == self.generation => Some(link),
            _ => {
                let former = self.workers.former.iter();
                let mut theirs =
                    former.filter(|f| f.generation == generation && f.leaving.is_none());
                theirs.next().map(|f| &f.link)
            }
        }
    }

    /// Finds workers that accept requests and have therefore booted. Their message about it may still be under way,
    /// because the zygote forwards it.
    pub(super) fn find_booted_workers(&mut self, now: Instant) {
        let serves = |c: &&PoolChild| {
            matches!(c.state, ChildState::Booting)
                && self.shared.pool.port.child_status(c.id.index).live
        };
        let ids: Vec<_> = self.children.iter().filter(serves).map(|c| c.id).collect();
        for id in ids {
            self.record_boot(id, now);
        }
    }

    fn record_boot(&mut self, id: ChildId, now: Instant) {
        let Some(child) = self.children.get(id) else {
            return;
        };
        if matches!(child.state, ChildState::Booting | ChildState::Starting) {
            child.set_state(ChildState::serving(now), now);
        }
        let generation = child.generation;
        if generation == self.generation {
            self.workers.booted = true;
            self.fork_backoff.record_success();
        }
        // A worker without its zygote exits, and the pool waits for the next zygote.
        if self.has_zygote(generation) {
            self.mark_up();
        }
    }

    pub(super) fn on_worker_message(&mut self, word: WorkerMessage, now: Instant) {
        match word {
            WorkerMessage::Booted { child } => self.record_boot(child, now),
            WorkerMessage::Failed {
                child,
                name,
                message,
            } => {
                if let Some(child) = self.children.get(child) {
                    // The child's exit needs no further report.
                    child.set_state(ChildState::Retiring, now);
                    self.record_failed_boot(&name, &message, now);
                }
            }
            WorkerMessage::Restart { .. } => self.restart_workers("opcache_reset() was called"),
        }
    }

    fn worker_script(&self) -> PathBuf {
        let worker = self.shared.pool.config.worker.as_ref();
        worker.map(|w| w.script.clone()).unwrap_or_default()
    }

    /// Handles a child that has exited without a message while its script was booting.
    pub(super) fn on_exit_during_boot(&mut self, exit: Exit, now: Instant) {
        let script = self.worker_script();
        // Without the process id, so that the same failure of the next attempt is not logged again.
        let message = format!(
            "{}: its process exited ({}) before it asked for a request",
            script.display(),
            process::exit_text(exit)
        );
        self.record_failed_boot("WorkerBootFailed", &message, now);
    }

    fn record_failed_boot(&mut self, name: &str, message: &str, now: Instant) {
        self.next_fork_at = now + self.fork_backoff.record_failure();
        self.log_complaint(name, message);
        let serving = |c: &PoolChild| matches!(c.state, ChildState::Serving { .. });
        if !self.children.iter().any(serving) {
            self.mark_down(name, message);
        }
    }

    /// Returns whether the pool replaces its children by those of a second zygote when its scripts change.
    fn restarts_for_scripts(&self) -> bool {
        let config = &self.shared.pool.config;
        config.worker.is_some() || !config.watch.is_empty()
    }

    /// Orders the replacement of all children, which begins as soon as possible. Does nothing in a pool that does not
    /// restart for its scripts.
    pub(super) fn restart_workers(&mut self, why: &'static str) {
        if self.restarts_for_scripts() {
            self.order_restart(why.to_owned());
        }
    }

    /// Like [`Supervisor::restart_workers`], but in every pool.
    pub(super) fn order_restart(&mut self, why: String) {
        if self.drain_until.is_none() {
            self.workers.restart_reason = Some(why);
        }
    }

    /// Does everything that is due. Returns the time until the next action.
    pub(super) fn manage_restarts(&mut self, now: Instant) -> Duration {
        self.find_booted_workers(now);
        self.terminate_late_boots(now);
        self.stop_former_zygotes(now);
        let mut wait = Duration::from_secs(1);
        if self.drain_until.is_some() {
            self.workers.restart_reason = None;
            if let Some((link, _)) = self.workers.next.take() {
                self.workers.former.push(FormerZygote {
                    generation: u64::MAX,
                    link: link.close(),
                    leaving: Some(now + EXIT_TIMEOUT),
                });
            }
            return match self.workers.is_empty() && !self.restarts_for_scripts() {
                true => Duration::from_secs(3600),
                false => Duration::from_millis(50),
            };
        }
        wait = wait.min(self.check_watched_files(now));
        wait = wait.min(self.look_at_php_files(now));
        if let Some((link, deadline)) = &self.workers.next
            && *deadline <= now
        {
            link.kill();
            self.restart_failed(
                "StartTimeout",
                "the new zygote did not become ready in time",
            );
        }
        if self.workers.restart_reason.is_some()
            && self.workers.next.is_none()
            && matches!(self.zygote, ZygoteState::Ready { .. })
        {
            let due = self
                .workers
                .restarted_at
                .map(|at| at + MIN_RESTART_INTERVAL);
            match due {
                Some(due) if due > now => wait = due - now,
                _ => self.start_second_zygote(now),
            }
        }
        if self.workers.former.iter().any(|f| f.leaving.is_some()) {
            wait = wait.min(Duration::from_millis(50));
        }
        wait
    }

    /// Checks for changes of watched files. Returns the maximum wait until the next check.
    fn check_watched_files(&mut self, now: Instant) -> Duration {
        let never = Duration::from_secs(3600);
        if let WatchState::NotStarted = self.workers.watch {
            self.workers.watch = self.create_watcher();
        }
        let WatchState::Files(watch, since) = &mut self.workers.watch else {
            return never;
        };
        let changed = watch.take_changed();
        if changed.is_some() {
            *since = Some(now);
        }
        let complaint = watch.take_complaint();
        let wait = match *since {
            None => never,
            Some(at) if now.duration_since(at) >= SETTLE_TIME => {
                *since = None;
                self.restart_workers("a watched file has changed");
                never
            }
            Some(at) => at + SETTLE_TIME - now,
        };
        if let Some(complaint) = complaint {
            self.log_event(LogLevel::Warning, "WatchIncomplete", &complaint);
        }
        wait
    }

    fn create_watcher(&self) -> WatchState {
        let patterns = &self.shared.pool.config.watch;
        if patterns.is_empty() {
            return WatchState::Nothing;
        }
        let script = self.worker_script();
        let base = script.parent().unwrap_or(&script);
        match FileWatcher::start(patterns, base) {
            Ok(watch) => WatchState::Files(watch, None),
            Err(why) => {
                self.log_event(LogLevel::Warning, "WatchIncomplete", &why);
                WatchState::Nothing
            }
        }
    }

    fn start_second_zygote(&mut self, now: Instant) {
        let why = self.workers.restart_reason.take().unwrap_or_default();
        self.workers.restarted_at = Some(now);
        // A directory that did not exist before may exist by now.
        self.workers.watch = self.create_watcher();
        let (name, what) = match self.shared.pool.config.worker {
            Some(_) => ("WorkerRestart", "all workers are being replaced"),
            None => (
                "PoolRestart",
                "all children are being replaced, with a fresh opcache",
            ),
        };
        if !self.tries_php_update_again() {
            self.log_event(LogLevel::Notice, name, &format!("{why}: {what}"));
        }
        self.note_php_files();
        match ZygoteClient::start(&self.shared, self.launcher.as_ref()) {
            Ok((link, output)) => {
                self.note_php_program(link.program());
                self.outputs.push(output);
                self.last_output_line.clear();
                let deadline = now + self.shared.pool.config.timeouts.start;
                self.workers.next = Some((link, deadline));
            }
            Err(error) => self.restart_failed("CannotStart", &error.to_string()),
        }
    }

    fn restart_failed(&mut self, name: &str, message: &str) {
        if let Some((link, _)) = self.workers.next.take() {
            link.kill();
            link.has_exited();
        }
        if self.record_failed_restart(name, message, clock::now()) {
            let message =
                format!("{message}; the running processes continue with their current code");
            self.log_event(LogLevel::Error, name, &message);
        }
    }

    fn terminate_late_boots(&mut self, now: Instant) {
        let limit = self.shared.pool.config.timeouts.start;
        let late = |c: &&PoolChild| {
            matches!(c.state, ChildState::Booting) && now.duration_since(c.since) >= limit
        };
        let ids: Vec<_> = self.children.iter().filter(late).map(|c| c.id).collect();
        for id in ids {
            let script = self.worker_script();
            self.terminate(id, "WorkerBootTimeout", now);
            let message = format!(
                "{}: the script has not asked for a request within {limit:?}",
                script.display()
            );
            self.record_failed_boot("WorkerBootTimeout", &message, now);
        }
    }

    /// Makes all zygotes except the current one exit.
    pub(super) fn stop_other_zygotes(&mut self, now: Instant) {
        let mut former = std::mem::take(&mut self.workers.former);
        if let Some((link, _)) = self.workers.next.take() {
            former.push(FormerZygote {
                // The next zygote has not had any children yet.
                generation: 0,
                link,
                leaving: None,
            });
        }
        for mut one in former {
            if one.leaving.is_none() {
                one.link = one.link.close();
                one.leaving = Some(now + EXIT_TIMEOUT);
            }
            self.workers.former.push(one);
        }
    }

    fn stop_former_zygotes(&mut self, now: Instant) {
        let children = &self.children;
        let former = std::mem::take(&mut self.workers.former);
        for mut one in former {
            match one.leaving {
                None if children.iter().any(|c| c.generation == one.generation) => {}
                None => {
                    one.link = one.link.close();
                    one.leaving = Some(now + EXIT_TIMEOUT);
                }
                Some(_) if one.link.has_exited() => continue,
                Some(at) if at <= now => one.link.kill(),
                Some(_) => {}
            }
            self.workers.former.push(one);
        }
        self.forget_abandoned_scripts();
    }

    /// Reads the reports of the zygotes except the current one.
    pub(super) fn read_other_reports(&mut self) {
        self.read_next_zygotes_reports();
        for at in (0..self.workers.former.len()).rev() {
            if self.workers.former[at].leaving.is_none() {
                self.read_former_zygotes_reports(at);
            }
        }
    }

    fn read_next_zygotes_reports(&mut self) {
        while let Some((link, _)) = &self.workers.next {
            match link.receive() {
                ZygoteMessage::Nothing => break,
                ZygoteMessage::Report(ZygoteReport::Ready { version, php }, _) => {
                    self.replace_zygote(version, php);
                }
                ZygoteMessage::Report(ZygoteReport::Failed { name, message }, _) => {
                    self.read_outputs();
                    self.restart_failed(&name, &message);
                }
                ZygoteMessage::Report(..) | ZygoteMessage::ProtocolError(_) => {
                    let why = "a zygote reported something else before it was ready";
                    self.restart_failed("ZygoteProtocolError", why);
                }
                ZygoteMessage::Closed => {
                    self.read_outputs();
                    let (name, message) = self.exited_during_start();
                    self.restart_failed(name, &message);
                }
            }
        }
    }

    fn read_former_zygotes_reports(&mut self, at: usize) {
        for _ in 0..MAX_REPORTS_PER_TURN {
            let former = &self.workers.former[at];
            let generation = former.generation;
            let heard = match former.link.receive() {
                ZygoteMessage::Nothing => break,
                ZygoteMessage::Report(report, fd) => {
                    self.on_report(report, fd, generation, clock::now())
                }
                ZygoteMessage::ProtocolError(bytes) => Err(ProtocolError::unreadable(&bytes)),
                ZygoteMessage::Closed => {
                    // The zygote's children exit after their current requests; their pidfds report the exits.
                    let former = &mut self.workers.former[at];
                    former.leaving = Some(clock::now());
                    let message = "a previous zygote exited before its workers";
                    self.log_event(LogLevel::Warning, "ZygoteDied", message);
                    break;
                }
            };
            if let Err(error) = heard {
                let former = &mut self.workers.former[at];
                former.link.kill();
                former.leaving = Some(clock::now());
                let message = format!("{error}; the previous zygote is killed");
                self.log_event(LogLevel::Error, "ZygoteProtocolError", &message);
                break;
            }
        }
    }

    fn replace_zygote(&mut self, version: u32, php: StartedPhp) {
        let Some((link, deadline)) = self.workers.next.take() else {
            return;
        };
        if version != VERSION {
            self.workers.next = Some((link, deadline));
            let message = format!(
                "the new zygote uses version {version} of the shared memory, but this server uses {VERSION}"
            );
            return self.restart_failed("OtherVersion", &message);
        }
        if let Some((name, message)) = self.objection_to_updated_php(&php) {
            self.workers.next = Some((link, deadline));
            return self.restart_failed(name, &message);
        }
        let was = std::mem::replace(&mut self.zygote, ZygoteState::Ready { link });
        if let ZygoteState::Ready { link } = was {
            self.workers.former.push(FormerZygote {
                generation: self.generation,
                link,
                leaving: None,
            });
        } else if let ZygoteState::Starting { link, .. } = was {
            link.kill();
            link.has_exited();
        }
        self.generation += 1;
        self.workers.booted = false;
        self.served = false;
        self.ready_at = clock::now();
        self.record_started_php(php, self.ready_at);
    }
}
