//! Sends a configuration to the front: at the start, after a crash, and at a reload. A configuration is accepted as a
//! whole or not at all. If it has any mistake, the previous one stays in use.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use howdah_log::log::LogTarget;

use super::control::{ControlClient, ControlSocket};
use super::facts::ServerFacts;
use super::listeners::BoundListeners;
use super::upgrade::UpgradeState;
use super::watchdog::FrontWatch;
use super::{MAX_GENERATIONS, Master, MasterState, notify, print_message, print_mistakes, process};
use crate::jobs::run_claims::FleetSettings;
use crate::jobs::settings as jobs;
use crate::process_channel::{FrontConfiguration, ProcessChannel, ToFront, text_file};
use crate::{exit, sys};
use howdah_config::arguments::ServeArguments;
use howdah_config::php;
use howdah_config::{self, ConfigSource, ServeSettings};
use howdah_os::safe_path;

/// How long a reload may take in addition to the time that PHP has for its start, since directories of sites are read.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The clients that wait for the result of a reload. `None` means a signal, which gets no response.
pub type ReloadClients = Vec<Option<ControlClient>>;

/// A reload in progress.
pub struct PendingReload {
    generation: u64,
    settings: ServeSettings,
    source: Option<ConfigSource>,
    listeners: BoundListeners,
    /// Another control socket, if the configuration names one.
    control: Option<ControlSocket>,
    advice: Vec<String>,
    askers: ReloadClients,
    /// When the clients are told that the reload takes too long; `None` once they have been told.
    deadline: Option<Instant>,
    limit: Duration,
}

/// Returns the response to `howdah reload`. It lists the automatic choices, which may have changed.
fn reloaded_message(chosen: &[String]) -> String {
    let mut text = String::from("reloaded");
    for line in chosen {
        text.push('\n');
        text.push_str(line);
    }
    text
}

impl PendingReload {
    /// Removes what was created for this reload.
    fn undo(&self, served: &BoundListeners) {
        self.listeners.remove_files_not_in(served, false);
        if let Some(control) = &self.control {
            control.remove_file();
        }
    }
}

/// The log files, opened with the master's rights.
pub struct LogFiles {
    /// The error log, if it is a file.
    pub error: Option<File>,
    /// The access log, if it is a file.
    pub access: Option<File>,
}

impl LogFiles {
    /// Returns the descriptors in the order in which they are sent.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        [&self.error, &self.access]
            .into_iter()
            .flatten()
            .map(|file| file.as_fd())
            .collect()
    }
}

/// Opens the log files.
pub fn open_logs(settings: &ServeSettings) -> io::Result<LogFiles> {
    Ok(LogFiles {
        error: open_error_log(settings)?,
        access: open_log("access", settings.log.access.as_ref())?,
    })
}

/// Opens the error log, if it is a file.
pub fn open_error_log(settings: &ServeSettings) -> io::Result<Option<File>> {
    open_log("error", Some(&settings.log.error))
}

fn open_log(key: &str, target: Option<&LogTarget>) -> io::Result<Option<File>> {
    match target {
        Some(LogTarget::File(path)) => safe_path::open_log(path).map(Some).map_err(|error| {
            let text = format!(
                "cannot open the log {}: {error}; \
                 set log.{key} to a file that can be written to, or to \"stderr\"",
                path.display()
            );
            io::Error::new(error.kind(), text)
        }),
        _ => Ok(None),
    }
}

/// Creates the directory of the page cache for the user that the front runs as, because that user may not be allowed to
/// create it. A directory that another user owns or that is not empty stays as it is.
fn give_cache_directory(settings: &ServeSettings) -> io::Result<()> {
    let (Some(disk), Some((user, group))) = (&settings.cache_disk, super::file_owner(settings))
    else {
        return Ok(());
    };
    if !sys::may_change_user() {
        return Ok(());
    }
    safe_path::give_directory(&disk.path, user, group).map_err(|error| {
        let text = format!(
            "cannot create the directory {} of the page cache: {error}",
            disk.path.display()
        );
        io::Error::new(error.kind(), text)
    })
}

/// Sends the front a configuration to serve.
pub fn send_configuration(
    link: &ProcessChannel,
    generation: u64,
    arguments: &ServeArguments,
    source: Option<&ConfigSource>,
    settings: &ServeSettings,
    listeners: &BoundListeners,
    follows_another: bool,
) -> io::Result<()> {
    let text = text_file(&serde_json::to_string(&source).map_err(io::Error::other)?)?;
    let logs = open_logs(settings)?;
    give_cache_directory(settings)?;
    let (numbers, sockets) = listeners.sockets();
    let message = ToFront::Serve(Box::new(FrontConfiguration {
        generation,
        arguments: arguments.clone(),
        error_log: logs.error.is_some(),
        access_log: logs.access.is_some(),
        listeners: numbers,
        follows_another,
    }));
    let mut fds = vec![text.as_fd()];
    fds.extend(logs.fds());
    fds.extend(sockets);
    link.send_now(&message, &fds)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot reach the front: {error}")))
}

/// Returns the changed settings that take effect only at the next start.
fn needs_restart(old: &ServeSettings, new: &ServeSettings) -> Vec<String> {
    let changed = [
        ("threads", old.threads != new.threads),
        ("user", (&old.user, &old.group) != (&new.user, &new.group)),
    ];
    let changed = changed.into_iter().filter(|(_, changed)| *changed);
    changed
        .map(|(what, _)| {
            format!("NeedsRestart: {what} changed, which takes effect at the next start")
        })
        .collect()
}

impl Master {
    /// Loads new code, php.ini and configuration.
    pub(super) fn reload(&mut self, askers: ReloadClients) {
        if self.is_stopping() {
            return refuse_reload(askers, &["the server is stopping".to_owned()]);
        }
        if !matches!(
            self.upgrade,
            UpgradeState::No | UpgradeState::TakingOver { .. }
        ) {
            return refuse_reload(
                askers,
                &["an upgrade is in progress, which also loads the configuration".to_owned()],
            );
        }
        if let Some(pending) = &self.pending {
            match pending.deadline {
                Some(_) => self.waiting_reloads.extend(askers),
                None => report_late_reload(askers, pending.limit),
            }
            return;
        }
        let serving = self.front.as_ref().filter(|front| front.watch.is_some());
        let Some(link) = serving.map(|front| front.link.clone()) else {
            // The front is being started. The reload begins as soon as it serves.
            self.waiting_reloads.extend(askers);
            return;
        };
        notify::reloading();
        match self.prepare() {
            Err(mistakes) => {
                notify::ready();
                refuse_reload(askers, &mistakes);
            }
            Ok(mut pending) => {
                self.ordered.assign(pending.settings.acme.as_ref());
                let ordered = self.ordered.certificates();
                let sent = self
                    .keys
                    .send(&link, &pending.settings, ordered)
                    .and_then(|()| {
                        send_configuration(
                            &link,
                            pending.generation,
                            &self.arguments,
                            pending.source.as_ref(),
                            &pending.settings,
                            &pending.listeners,
                            !self.predecessors.is_empty(),
                        )
                    });
                if let Err(error) = sent {
                    pending.undo(&self.listeners);
                    notify::ready();
                    return refuse_reload(askers, &[error.to_string()]);
                }
                let pools = pending.settings.pools.clone();
                self.generations.insert(pending.generation, pools);
                while self.generations.len() > MAX_GENERATIONS {
                    self.generations.pop_first();
                }
                pending.askers = askers;
                self.pending = Some(pending);
            }
        }
    }

    fn prepare(&self) -> Result<PendingReload, Vec<String>> {
        let source = match &self.arguments.config {
            Some(path) => Some(ConfigSource::read(path).map_err(|why| vec![why])?),
            None => None,
        };
        let loaded = howdah_config::load(
            &self.arguments,
            source.as_ref(),
            howdah_config::Validation::Full,
        );
        let settings = loaded.settings?;
        let versions =
            php::check_all(&settings.php_programs()).map_err(|why| vec![why.to_string()])?;
        if let Some(path) = &settings.pid
            && settings.pid != self.settings.pid
        {
            process::check_pid_file(path).map_err(|why| vec![why])?;
        }
        let control = if settings.control == self.settings.control {
            None
        } else {
            let path = settings.control.as_deref();
            let bound = ControlSocket::bind(None, path, &self.listeners.label());
            Some(bound.map_err(|why| vec![why])?)
        };
        let owner = super::file_owner(&settings);
        let threads = self.settings.threads;
        let listeners = self
            .listeners
            .rebind(&settings.listen, threads, owner)
            .map_err(|why| {
                if let Some(control) = &control {
                    control.remove_file();
                }
                vec![why]
            })?;
        let mut advice = loaded.advice;
        advice.extend(php::advice_about(&versions));
        advice.extend(needs_restart(&self.settings, &settings));
        let limit = settings.server.timeouts.start + RELOAD_TIMEOUT;
        let last = self.generations.last_key_value().map_or(0, |(n, _)| *n);
        Ok(PendingReload {
            generation: last + 1,
            settings,
            source,
            listeners,
            control,
            advice,
            askers: ReloadClients::new(),
            deadline: Some(Instant::now() + limit),
            limit,
        })
    }

    /// Handles the front's message that it serves that configuration.
    pub(super) fn handle_serving(&mut self, generation: u64) {
        self.apply_served_configuration(generation);
        self.send_unconfirmed_writes();
        if self.pending.is_none() {
            self.start_waiting_reload();
        }
    }

    fn apply_served_configuration(&mut self, generation: u64) {
        if let Some(front) = self.front.as_mut().filter(|front| front.watch.is_none()) {
            let limit = self.settings.server.timeouts.hang;
            front.watch = Some(FrontWatch::new(front.pid, limit, Instant::now()));
        }
        if let Some(pending) = self.pending.take_if(|p| p.generation == generation) {
            pending.listeners.remove_files_not_in(&self.listeners, true);
            for why in pending.listeners.apply_socket_files(&self.listeners) {
                print_message(why);
            }
            self.generation = generation;
            if let Some(control) = pending.control {
                self.control.replace(control);
            }
            let threads = self.settings.threads;
            let old_pid = std::mem::replace(&mut self.settings, pending.settings).pid;
            self.settings.threads = threads;
            self.move_pid_file(old_pid);
            self.source = pending.source;
            self.listeners = pending.listeners;
            self.listeners.close_unused();
            for asker in pending.askers.into_iter().flatten() {
                asker.succeed(&reloaded_message(&self.settings.chosen), &pending.advice);
            }
            if let Some(watch) = self.front.as_mut().and_then(|front| front.watch.as_mut()) {
                watch.set_limit(self.settings.server.timeouts.hang);
            }
            self.facts = ServerFacts::of(self);
            self.assign_jobs();
            print_message(format!("reloaded: configuration {generation} is in use"));
            for line in &self.settings.chosen {
                print_message(line);
            }
            notify::ready();
        } else if matches!(self.state, MasterState::Starting) {
            self.state = MasterState::Serving;
            self.assign_jobs();
            self.write_pid_file();
            for sentence in &self.settings.chosen {
                print_message(sentence);
            }
            for line in self.facts.unmentioned_sites(&self.settings.chosen) {
                print_message(line);
            }
            for line in self.listeners.site_urls() {
                print_message(format!("listening on {line}"));
            }
            if let Some(line) = self.listeners.status_url() {
                print_message(format!("status on {line}"));
            }
            self.has_taken_over();
            notify::ready();
        }
    }

    /// Handles the front's message that it has refused that configuration.
    pub(super) fn handle_refused(&mut self, generation: u64, why: &str) {
        let mistakes: Vec<String> = why.lines().map(str::to_owned).collect();
        if let Some(pending) = self.pending.take_if(|p| p.generation == generation) {
            pending.undo(&self.listeners);
            self.generations.remove(&generation);
            if let Some(front) = &self.front
                && let Err(error) = {
                    self.ordered.assign(self.settings.acme.as_ref());
                    let ordered = self.ordered.certificates();
                    self.keys.send(&front.link, &self.settings, ordered)
                }
            {
                print_message(format!("CertificateUnreadable: {error}"));
            }
            notify::ready();
            refuse_reload(pending.askers, &mistakes);
            self.start_waiting_reload();
            return;
        }
        print_mistakes(&mistakes);
        if let Some(front) = &mut self.front {
            front.refused = true;
            // The front exits by itself, but if it were stuck, SIGCHLD would never come.
            front.kill();
        }
        if matches!(self.state, MasterState::Starting) && self.predecessors.is_empty() {
            self.exit_code = Some(exit::failed());
        }
    }

    /// Runs the jobs of the configuration, with the code that is being served.
    fn assign_jobs(&mut self) {
        let label = self.listeners.label();
        let settings = jobs::JobRunnerSettings {
            jobs: self.settings.jobs.clone(),
            log: self.settings.log.error.clone(),
            level: self.settings.log.level as u8,
            state: howdah_config::acme::default_directory().join(format!("jobs-{label}.json")),
            fleet: self.settings.fleet.as_ref().map(|fleet| FleetSettings {
                valkey: fleet.valkey.url_with_password().to_owned(),
                fleet: fleet.fleet.clone(),
                member: fleet.member.clone(),
                lease: fleet.lease,
                replicas: fleet.replicas,
            }),
        };
        self.jobs.assign(settings, &self.settings);
    }

    fn write_pid_file(&self) {
        if let Some(path) = &self.settings.pid
            && let Err(why) = process::write_pid_file(path)
        {
            print_message(why);
        }
    }

    fn move_pid_file(&self, old: Option<PathBuf>) {
        if old == self.settings.pid {
            return;
        }
        if let Some(old) = old {
            process::remove_pid_file(&old);
        }
        self.write_pid_file();
    }

    /// Abandons the reload in progress and the reloads that wait for it.
    pub(super) fn abandon_reload(&mut self, why: &str) {
        let mut askers = std::mem::take(&mut self.waiting_reloads);
        if let Some(pending) = self.pending.take() {
            pending.undo(&self.listeners);
            askers.extend(pending.askers);
        }
        if !askers.is_empty() {
            refuse_reload(askers, &[why.to_owned()]);
        }
    }

    /// Returns when the reload in progress has taken too long.
    pub(super) fn reload_deadline(&self) -> Option<Instant> {
        self.pending.as_ref()?.deadline
    }

    /// Responds to the clients of a reload that takes too long. The front may still accept the configuration, which is
    /// then logged.
    pub(super) fn end_late_reload(&mut self, now: Instant) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        if pending.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        pending.deadline = None;
        let mut askers = std::mem::take(&mut pending.askers);
        askers.append(&mut self.waiting_reloads);
        report_late_reload(askers, pending.limit);
        notify::ready();
    }

    /// Starts another reload for the clients that requested one during the last reload, because it began before their
    /// request.
    fn start_waiting_reload(&mut self) {
        if !self.waiting_reloads.is_empty() {
            let askers = std::mem::take(&mut self.waiting_reloads);
            self.reload(askers);
        }
    }
}

/// Logs that the reload in progress has taken too long, and responds to its clients.
fn report_late_reload(askers: ReloadClients, limit: Duration) {
    let why = format!(
        "ReloadTimeout: the front has not loaded the configuration within {} s (timeouts.start and {} s); it continues to load it, and the log will show the result",
        limit.as_secs(),
        RELOAD_TIMEOUT.as_secs()
    );
    print_message(&why);
    for asker in askers.into_iter().flatten() {
        asker.refuse(&why);
    }
}

/// Logs that the reload was refused, and responds to its clients.
fn refuse_reload(askers: ReloadClients, mistakes: &[String]) {
    print_message("ReloadRefused: the previous configuration remains in use:");
    print_mistakes(mistakes);
    for asker in askers.into_iter().flatten() {
        asker.mistakes(mistakes);
    }
}
