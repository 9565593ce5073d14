//! The master process: `howdah serve` itself. It has a single thread. It holds the listening sockets and its
//! privileges, if it has any, and keeps the other processes running. It does not handle HTTP and does not run PHP.
//!
//! It starts the *front* by executing itself with a hidden command instead of forking. So the front gets a fresh
//! address space and can be started again at any time. The front reads the same command line and the same text of the
//! configuration with the same code, so no typed value is passed between the processes. Root and other users take the
//! same path through the code; without root the changes of user are skipped.
//!
//! - [`listeners`]: bound sockets, which survive reloads and crashes of the front; [`service_manager_sockets`]: the
//!   sockets of a service manager.
//! - [`howdah_os::safe_path`]: files that root creates where other users may write.
//! - [`start`]: the start.
//! - [`front`]: the messages of the front and its end; [`process`]: its process, and the zygotes that are started for
//!   it.
//! - [`control`]: the control socket.
//! - [`reload`]: a new configuration, accepted or refused as a whole.
//! - [`certificates`]: the process that orders certificates; [`howdah_acme::certificate_directory`]: the user that it
//!   runs as.
//! - [`jobs`]: the process that runs background jobs.
//! - [`upgrade`]: replaces the program; [`predecessors`]: the fronts of the previous program.
//! - [`unconfirmed_writes`]: writes of other processes that the front's page cache must apply.
//! - [`restart`]: decides when the process for certificates or jobs is started again after it died.
//! - [`keys`]: TLS certificates and keys, which only the master reads.
//! - [`watchdog`]: decides whether the front hangs; [`unresponsive_front`]: handles a front that hangs.
//! - [`facts`]: what the master knows about the server without asking the front.
//! - [`notify`]: notifications to a service manager.

mod certificates;
pub mod control;
pub mod facts;
mod front;
mod jobs;
mod keys;
mod listeners;
mod notify;
mod predecessors;
mod process;
mod reload;
mod restart;
pub mod service_manager_sockets;
mod start;
mod unconfirmed_writes;
mod unresponsive_front;
mod upgrade;
pub mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use howdah_executor::PoolMode;
use howdah_os::output::write_stderr_line;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::process_channel::ToFront;
use crate::{exit, sys};
use certificates::OrderedCertificates;
use control::{ControlClient, ControlRequest, ControlSocket};
use facts::ServerFacts;
use howdah_config::arguments::ServeArguments;
use howdah_config::{ConfigSource, ServeSettings};
use jobs::BackgroundJobs;
use keys::KeyStore;
use listeners::BoundListeners;
use predecessors::Predecessors;
use process::FrontProcess;
use reload::{PendingReload, ReloadClients};
use unconfirmed_writes::UnconfirmedWrites;
use unresponsive_front::FRONT_RESPONSE_TIMEOUT;
use upgrade::{InstalledProgram, UpgradeState};
use watchdog::FrontWatch;

/// A front that runs this long is not in a crash loop.
const FRONT_SETTLED_AFTER: Duration = Duration::from_secs(10);
/// The maximum pause before the front is started again.
const MAX_FRONT_RESTART_PAUSE: Duration = Duration::from_secs(5);
/// The number of configurations whose pools may still request a zygote.
const MAX_GENERATIONS: usize = 16;
/// How long the front may take to exit after the time limit of a stop.
const FRONT_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of messages of the front that are received in one turn. A front that never stops sending must not
/// keep the master from everything else.
const MAX_MESSAGES_PER_TURN: usize = 64;

enum MasterState {
    /// The first configuration is not served yet.
    Starting,
    /// The front serves.
    Serving,
    /// The front has exited; another one will be started.
    Restarting {
        /// When the next front is started.
        at: Instant,
    },
    /// The front finishes the running requests.
    Stopping {
        /// When the front is killed.
        deadline: Instant,
    },
}

/// The master with everything it holds.
struct Master {
    arguments: ServeArguments,
    settings: ServeSettings,
    source: Option<ConfigSource>,
    generation: u64,
    /// The pools of each generation. A zygote is started only for a pool that the master has read itself.
    generations: BTreeMap<u64, Vec<PoolMode>>,
    listeners: BoundListeners,
    control: ControlSocket,
    facts: ServerFacts,
    keys: KeyStore,
    ordered: OrderedCertificates,
    jobs: BackgroundJobs,
    unconfirmed_writes: UnconfirmedWrites,
    program: InstalledProgram,
    upgrade: UpgradeState,
    predecessors: Predecessors,
    signals: sys::SignalDescriptor,
    front: Option<FrontProcess>,
    state: MasterState,
    crashes: u32,
    pending: Option<PendingReload>,
    /// The clients that requested a reload while one was in progress.
    waiting_reloads: ReloadClients,
    /// The clients that wait for a response of the front, and when the master responds in its place.
    front_requests: BTreeMap<u64, (ControlClient, Instant)>,
    last_request_id: u64,
    /// The requests that a new program received before its front served.
    early_requests: Vec<(ControlRequest, ControlClient)>,
    /// When the service manager is next notified that the server is alive, and how often.
    next_alive: Option<(Instant, Duration)>,
    exit_code: Option<ExitCode>,
}

/// The sources that are readable.
struct ReadySources {
    signals: bool,
    front: bool,
    ordered: bool,
    jobs: bool,
    predecessors: bool,
    /// For each descriptor of the control socket, whether it is readable.
    controls: Vec<bool>,
}

/// Runs `howdah serve`.
pub fn serve(mut arguments: ServeArguments) -> ExitCode {
    if let Some(format) = arguments.takes_over.take() {
        return start::check_takeover(arguments, format);
    }
    match start::start(arguments) {
        Ok(mut master) => master.run(),
        Err(code) => code,
    }
}

/// Returns the owner of the files that are created for the server: the user and group that serve HTTP.
fn file_owner(settings: &ServeSettings) -> Option<(u32, u32)> {
    let account = sys::find_user(settings.user.as_ref()?)?;
    let group = settings
        .group
        .as_ref()
        .and_then(|name| sys::find_group(name));
    Some((account.uid, group.unwrap_or(account.gid)))
}

/// Prints lines for the person who started the server.
pub fn print_message(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        write_stderr_line(&format!("howdah: {line}"));
    }
}

/// Prints mistakes. Their text can have several lines; only the first gets the prefix.
pub fn print_mistakes(mistakes: &[String]) {
    for mistake in mistakes {
        write_stderr_line(&format!("howdah: {mistake}"));
    }
}

impl Master {
    fn run(&mut self) -> ExitCode {
        loop {
            if let Some(code) = self
                .exit_code
                .take_if(|_| !self.jobs.is_running() && self.predecessors.is_empty())
            {
                self.clean_up();
                if let MasterState::Stopping { .. } = self.state {
                    print_message("stopped");
                }
                return code;
            }
            if let Err(error) = self.turn() {
                print_message(format!("the master cannot continue: {error}"));
                self.clean_up();
                return exit::failed();
            }
        }
    }

    /// Waits for events and handles them.
    fn turn(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let pause = self
            .next_deadline()
            .map(|at| at.saturating_duration_since(now));
        let ready = self.wait(pause)?;
        if ready.signals {
            for signal in self.signals.take_pending() {
                self.handle_signal(signal);
            }
        }
        if ready.front {
            self.receive_from_front();
        }
        if ready.ordered {
            self.receive_from_certificates();
        }
        if ready.jobs {
            self.receive_from_jobs();
        }
        if ready.predecessors {
            self.predecessors.receive(&mut self.unconfirmed_writes);
            self.send_unconfirmed_writes();
        }
        for question in self.control.read_requests(&ready.controls) {
            self.handle_request(question);
        }
        self.act_on_deadlines();
        Ok(())
    }

    /// Returns when the master must act even if no event arrives.
    fn next_deadline(&self) -> Option<Instant> {
        let state = match self.state {
            MasterState::Restarting { at } => Some(at),
            MasterState::Stopping { deadline } => Some(deadline),
            MasterState::Starting | MasterState::Serving => None,
        };
        let questions = self.front_requests.values().map(|(_, deadline)| *deadline);
        let others = [
            state,
            self.next_alive.map(|(at, _)| at),
            self.front_deadline(),
            self.watch().map(FrontWatch::next_tick),
            self.reload_deadline(),
            self.keys.next_check(),
            self.ordered.next_start(),
            self.jobs.next_start(),
            self.upgrade_deadline(),
            self.predecessors.next_deadline(),
        ];
        others.into_iter().flatten().chain(questions).min()
    }

    fn is_stopping(&self) -> bool {
        matches!(self.state, MasterState::Stopping { .. })
    }

    /// Waits until a descriptor is readable, or until the pause is over.
    fn wait(&self, pause: Option<Duration>) -> io::Result<ReadySources> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) {
            fds.push(PollFd::from_borrowed_fd(front.link.fd(), PollFlags::IN));
        }
        let front = fds.len() > 1;
        let ordered = self.ordered.fd();
        fds.extend(ordered.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let jobs = self.jobs.fd();
        fds.extend(jobs.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let of_master = fds.len();
        for fd in self.predecessors.descriptors() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let fixed = fds.len();
        for (number, fd) in self.control.descriptors().enumerate() {
            // The first descriptor is the listening socket. New connections are left to the new program while this one
            // is about to be replaced.
            let waits = number == 0 && self.upgrade.is_leaving();
            let flags = if waits {
                PollFlags::empty()
            } else {
                PollFlags::IN
            };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let timeout = pause.map(|pause| Timespec {
            tv_sec: pause.as_secs() as i64,
            tv_nsec: i64::from(pause.subsec_nanos()),
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok(ReadySources {
            signals: ready[0],
            front: front && ready[1],
            ordered: ordered.is_some() && ready[of_master - 1 - usize::from(jobs.is_some())],
            jobs: jobs.is_some() && ready[of_master - 1],
            predecessors: ready[of_master..fixed].contains(&true),
            controls: ready[fixed..].to_vec(),
        })
    }

    fn act_on_deadlines(&mut self) {
        let now = Instant::now();
        if let Some((at, every)) = &mut self.next_alive
            && now >= *at
        {
            *at = now + *every;
            notify::alive();
        }
        match self.state {
            MasterState::Restarting { at } if now >= at => {
                if let Err(error) = self.start_front() {
                    print_message(format!("FrontNotStarted: cannot start the front: {error}"));
                    self.plan_restart();
                }
            }
            MasterState::Stopping { deadline } if now >= deadline => {
                let what = if self.front.is_some() {
                    "the front"
                } else {
                    "the process that runs jobs"
                };
                print_message(format!(
                    "StopTimeout: {what} did not exit in time, so Howdah kills it"
                ));
                if let Some(front) = &mut self.front {
                    front.kill();
                }
                self.jobs.kill();
                self.predecessors.kill();
                self.exit_code = Some(exit::failed());
            }
            _ => {}
        }
        self.watch_front(now);
        self.respond_for_front(now);
        self.end_late_reload(now);
        self.continue_upgrade(now);
        self.predecessors.kill_overdue(now);
        self.ordered.restart_if_due(now);
        self.jobs.restart_if_due(now, &self.settings);
        if let Some(front) = &self.front
            && self.pending.is_none()
        {
            self.keys.refresh(&front.link, &self.settings, now);
        }
    }

    fn handle_signal(&mut self, signal: libc::c_int) {
        match signal {
            // As in nginx and php-fpm: TERM and INT stop soon, QUIT stops when all requests are finished.
            libc::SIGTERM | libc::SIGINT => {
                let again = self.is_stopping();
                let limit = if again {
                    Duration::ZERO
                } else {
                    self.settings.server.timeouts.stop
                };
                self.stop(limit);
            }
            libc::SIGQUIT => self.stop(self.settings.server.timeouts.drain),
            libc::SIGHUP => self.reload(vec![None]),
            libc::SIGUSR2 => self.upgrade(None),
            libc::SIGUSR1 => {
                if let Err(why) = self.reopen_logs() {
                    print_message(why);
                }
            }
            libc::SIGCHLD => self.reap(),
            _ => {}
        }
    }

    fn reap(&mut self) {
        // Reaps any child; waitpid(None) would reap only children of our own process group.
        use rustix::process::{WaitOptions, wait};
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if self.front.as_ref().is_some_and(|front| front.pid == pid) {
                let how = process::exit_text(status);
                self.handle_front_exit(&how, status.exit_status() == Some(0));
            } else {
                let how = process::exit_text(status);
                if self.predecessors.reaped(pid) {
                    self.predecessor_is_gone();
                } else {
                    let _ = self.ordered.reaped(pid, &how)
                        || self.jobs.reaped(pid, &how)
                        || self.upgrade_checked(pid, status);
                }
            }
            // The front watches zygotes by their pidfds.
        }
    }

    fn handle_request(&mut self, (question, asker): (ControlRequest, ControlClient)) {
        match question {
            ControlRequest::Status | ControlRequest::Cache { .. }
                if self.upgrade.is_taking_over() =>
            {
                self.early_requests.push((question, asker));
            }
            ControlRequest::Status | ControlRequest::Cache { .. } => {
                let Some(front) = self.front.as_ref() else {
                    return asker.refuse("the front is being restarted; try again");
                };
                self.last_request_id += 1;
                let id = self.last_request_id;
                let message = match question {
                    ControlRequest::Cache { ask } => ToFront::Cache { id, ask },
                    _ => ToFront::Status { id },
                };
                let sent = front.link.send_now(&message, &[]);
                let until = Instant::now() + FRONT_RESPONSE_TIMEOUT;
                self.front_requests.insert(id, (asker, until));
                self.kill_front_if_unsent(sent);
            }
            ControlRequest::Certificates { ask: None } => {
                asker.certificates(self.ordered.status().clone());
            }
            ControlRequest::Certificates { ask: Some(ask) } => self.ordered.command(ask, asker),
            ControlRequest::Jobs { ask: None } => asker.jobs(self.jobs.status().to_vec()),
            ControlRequest::Jobs { ask: Some(ask) } => self.jobs.command(ask, asker),
            ControlRequest::Who => asker.who(self.facts.clone()),
            ControlRequest::Reload => self.reload(vec![Some(asker)]),
            ControlRequest::Reopen => match self.reopen_logs() {
                Ok(()) => asker.succeed("the log files are open again", &[]),
                Err(why) => asker.refuse(&why),
            },
            ControlRequest::Upgrade => self.upgrade(Some(asker)),
            ControlRequest::Stop { limit_ms } => {
                let limit = limit_ms.map(Duration::from_millis);
                let limit = limit.unwrap_or(self.settings.server.timeouts.drain);
                self.control.stop_client = Some(asker);
                self.stop(limit);
            }
        }
    }

    fn stop(&mut self, limit: Duration) {
        if !self.is_stopping() {
            notify::stopping();
        }
        self.state = MasterState::Stopping {
            deadline: Instant::now() + limit + FRONT_EXIT_TIMEOUT,
        };
        self.abandon_reload("the server is stopping");
        self.end_upgrade(&["the server is stopping".to_owned()]);
        self.predecessors.stop(limit, false);
        self.jobs.stop(limit);
        // The service manager holds the sockets and starts the server again.
        let followed = self.listeners.outlive_process();
        self.listeners.close();
        match &self.front {
            None => self.exit_code = Some(exit::done()),
            Some(front) => {
                let limit = limit.as_millis() as u64;
                let sent = front.link.send_now(&ToFront::Stop { limit, followed }, &[]);
                self.kill_front_if_unsent(sent);
            }
        }
    }

    /// Opens the log files again. On error, returns the message for the user.
    fn reopen_logs(&mut self) -> Result<(), String> {
        let Some(front) = &self.front else {
            // A front that is started opens them itself.
            return Ok(());
        };
        let sent = reload::open_logs(&self.settings).and_then(|logs| {
            let message = ToFront::Reopen {
                error_log: logs.error.is_some(),
                access_log: logs.access.is_some(),
            };
            self.jobs.reopen(logs.error.as_ref().map(AsFd::as_fd));
            front.link.send_now(&message, &logs.fds())
        });
        sent.map_err(|error| format!("LogNotReopened: {error}; the old files remain in use"))
    }

    fn clean_up(&mut self) {
        self.abandon_reload("the server has exited");
        if let Some(asker) = self.control.stop_client.take() {
            asker.succeed("stopped", &[]);
        }
        self.ordered.end("certificates are not ordered any more");
        self.jobs.kill();
        self.predecessors.kill();
        self.listeners.remove_files();
        self.control.remove_file();
        if let Some(path) = &self.settings.pid {
            process::remove_pid_file(path);
        }
    }
}
