//! The master process: `howdah serve` itself. It has a single thread. It holds the listening sockets and its
//! privileges, if it has any, and keeps the other processes running. It does not handle HTTP and does not run PHP.
//!
//! It starts the *front* by executing itself with a hidden command instead of forking. So the front gets a fresh
//! address space and can be started again at any time. The front reads the same command line and the same text of the
//! configuration with the same code, so no typed value is passed between the processes. Root and other users take the
//! same path through the code; without root the changes of user are skipped.
//!
//! - [`listeners`]: bound sockets, which survive reloads and crashes of the front; [`inherited`]: the sockets of a
//!   service manager.
//! - [`safe_path`]: files that root creates where other users may write.
//! - [`start`]: the start.
//! - [`front`]: the messages of the front and its end; [`process`]: its process, and the zygotes that are started for
//!   it.
//! - [`control`]: the control socket.
//! - [`reload`]: a new configuration, accepted or refused as a whole.
//! - [`certificates`]: the process that orders certificates; [`certificate_directory`]: the user that it runs as.
//! - [`jobs`]: the process that runs background jobs.
//! - [`upgrade`]: replaces the program; [`predecessors`]: the fronts of the previous program.
//! - [`unnoted`]: writes of other processes that the front's page cache must apply.
//! - [`restart`]: decides when one of these two processes is started again after it died.
//! - [`keys`]: TLS certificates and keys, which only the master reads.
//! - [`watchdog`]: decides whether the front hangs; [`hung`]: handles a front that hangs.
//! - [`facts`]: what the master knows about the server without asking the front.
//! - [`notify`]: notifications to a service manager.

pub mod certificate_directory;
mod certificates;
pub mod control;
pub mod facts;
mod front;
mod hung;
mod inherited;
mod jobs;
mod keys;
mod listeners;
mod notify;
mod predecessors;
mod process;
mod reload;
mod restart;
pub mod safe_path;
mod start;
mod unnoted;
mod upgrade;
pub mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use howdah_executor::Mode;
use howdah_os::output::line_to_stderr;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::arguments::Serve;
use crate::config::{Settings, Source};
use crate::link::ToFront;
use crate::{exit, sys};
use certificates::OrderedCertificates;
use control::{Ask, Asker, ControlSocket};
use facts::Facts;
use hung::ANSWERING;
use jobs::BackgroundJobs;
use keys::KeyStore;
use listeners::Listeners;
use predecessors::Predecessors;
use process::FrontProcess;
use reload::{Askers, Pending};
use unnoted::Unnoted;
use upgrade::{Program, Upgrade};
use watchdog::Watch;

/// A front that runs this long is not in a crash loop.
const SETTLED: Duration = Duration::from_secs(10);
/// The maximum pause before the front is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// The number of configurations whose pools may still request a zygote.
const GENERATIONS: usize = 16;
/// How long the front may take to exit after the time limit of a stop.
const LEAVING: Duration = Duration::from_secs(5);
/// The maximum number of messages of the front that are received in one turn. A front that never stops sending must not
/// keep the master from everything else.
const MESSAGES: usize = 64;

/// The state of the master.
enum State {
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
    arguments: Serve,
    settings: Settings,
    source: Option<Source>,
    generation: u64,
    /// The pools of each generation. A zygote is started only for a pool that the master has read itself.
    generations: BTreeMap<u64, Vec<Mode>>,
    listeners: Listeners,
    control: ControlSocket,
    facts: Facts,
    keys: KeyStore,
    ordered: OrderedCertificates,
    jobs: BackgroundJobs,
    unnoted: Unnoted,
    program: Program,
    upgrade: Upgrade,
    predecessors: Predecessors,
    signals: sys::SignalDescriptor,
    front: Option<FrontProcess>,
    state: State,
    crashes: u32,
    pending: Option<Pending>,
    /// The clients that requested a reload while one was in progress.
    waiting: Askers,
    /// The clients that wait for a response of the front, and when the master responds in its place.
    questions: BTreeMap<u64, (Asker, Instant)>,
    next_question: u64,
    /// The requests that a new program received before its front served.
    early: Vec<(Ask, Asker)>,
    /// When the service manager is next notified that the server is alive, and how often.
    alive: Option<(Instant, Duration)>,
    ended: Option<ExitCode>,
}

/// The sources that are readable.
struct Ready {
    signals: bool,
    front: bool,
    ordered: bool,
    jobs: bool,
    predecessors: bool,
    /// For each descriptor of the control socket, whether it is readable.
    controls: Vec<bool>,
}

/// Runs `howdah serve`.
pub fn serve(mut arguments: Serve) -> ExitCode {
    if let Some(format) = arguments.takes_over.take() {
        return start::takes_over(arguments, format);
    }
    match start::start(arguments) {
        Ok(mut master) => master.run(),
        Err(code) => code,
    }
}

/// Returns the owner of the files that are created for the server: the user and group that serve HTTP.
fn owner(settings: &Settings) -> Option<(u32, u32)> {
    let account = sys::user(settings.user.as_ref()?)?;
    let group = settings.group.as_ref().and_then(|name| sys::group(name));
    Some((account.uid, group.unwrap_or(account.gid)))
}

/// Prints lines for the person who started the server.
pub fn say(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        line_to_stderr(&format!("howdah: {line}"));
    }
}

/// Prints mistakes. Their text can have several lines; only the first gets the prefix.
pub fn say_mistakes(mistakes: &[String]) {
    for mistake in mistakes {
        line_to_stderr(&format!("howdah: {mistake}"));
    }
}

impl Master {
    fn run(&mut self) -> ExitCode {
        loop {
            if let Some(code) = self
                .ended
                .take_if(|_| !self.jobs.runs() && self.predecessors.is_empty())
            {
                self.clean_up();
                if let State::Stopping { .. } = self.state {
                    say("stopped");
                }
                return code;
            }
            if let Err(error) = self.turn() {
                say(format!("the master cannot go on: {error}"));
                self.clean_up();
                return exit::failed();
            }
        }
    }

    /// Waits for events and handles them.
    fn turn(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let pause = self.wake().map(|at| at.saturating_duration_since(now));
        let ready = self.wait(pause)?;
        if ready.signals {
            for signal in self.signals.take() {
                self.signal(signal);
            }
        }
        if ready.front {
            self.hear_front();
        }
        if ready.ordered {
            self.hear_of_certificates();
        }
        if ready.jobs {
            self.hear_of_jobs();
        }
        if ready.predecessors {
            self.predecessors.hear(&mut self.unnoted);
            self.send_unnoted();
        }
        for question in self.control.serve(&ready.controls) {
            self.answer(question);
        }
        self.act_on_time();
        Ok(())
    }

    /// Returns when the master must act even if no event arrives.
    fn wake(&self) -> Option<Instant> {
        let state = match self.state {
            State::Restarting { at } => Some(at),
            State::Stopping { deadline } => Some(deadline),
            State::Starting | State::Serving => None,
        };
        let questions = self.questions.values().map(|(_, deadline)| *deadline);
        let others = [
            state,
            self.alive.map(|(at, _)| at),
            self.front_deadline(),
            self.watch().map(Watch::next),
            self.reload_deadline(),
            self.keys.next(),
            self.ordered.wake(),
            self.jobs.wake(),
            self.upgrade_deadline(),
            self.predecessors.wake(),
        ];
        others.into_iter().flatten().chain(questions).min()
    }

    fn is_stopping(&self) -> bool {
        matches!(self.state, State::Stopping { .. })
    }

    /// Waits until a descriptor is readable, or until the pause is over.
    fn wait(&self, pause: Option<Duration>) -> io::Result<Ready> {
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
        Ok(Ready {
            signals: ready[0],
            front: front && ready[1],
            ordered: ordered.is_some() && ready[of_master - 1 - usize::from(jobs.is_some())],
            jobs: jobs.is_some() && ready[of_master - 1],
            predecessors: ready[of_master..fixed].contains(&true),
            controls: ready[fixed..].to_vec(),
        })
    }

    fn act_on_time(&mut self) {
        let now = Instant::now();
        if let Some((at, every)) = &mut self.alive
            && now >= *at
        {
            *at = now + *every;
            notify::alive();
        }
        match self.state {
            State::Restarting { at } if now >= at => {
                if let Err(error) = self.start_front() {
                    say(format!("FrontNotStarted: cannot start the front: {error}"));
                    self.plan_restart();
                }
            }
            State::Stopping { deadline } if now >= deadline => {
                let what = if self.front.is_some() {
                    "the front"
                } else {
                    "the process that runs jobs"
                };
                say(format!(
                    "StopTimeout: {what} did not leave in time and is killed"
                ));
                if let Some(front) = &mut self.front {
                    front.kill();
                }
                self.jobs.kill();
                self.predecessors.kill();
                self.ended = Some(exit::failed());
            }
            _ => {}
        }
        self.watch_front(now);
        self.answer_for_the_front(now);
        self.end_late_reload(now);
        self.go_on_with_upgrade(now);
        self.predecessors.act(now);
        self.ordered.act(now);
        self.jobs.act(now, &self.settings);
        if let Some(front) = &self.front
            && self.pending.is_none()
        {
            self.keys.refresh(&front.link, &self.settings, now);
        }
    }

    fn signal(&mut self, signal: libc::c_int) {
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
            libc::SIGUSR1 => self.reopen_logs(),
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
                self.front_is_gone(&how, status.exit_status() == Some(0));
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

    fn answer(&mut self, (question, asker): (Ask, Asker)) {
        match question {
            Ask::Status | Ask::Cache { .. } if self.upgrade.is_taking_over() => {
                self.early.push((question, asker));
            }
            Ask::Status | Ask::Cache { .. } => {
                let Some(front) = self.front.as_ref() else {
                    return asker.refuse("the front is being started again; ask once more");
                };
                self.next_question += 1;
                let id = self.next_question;
                let message = match question {
                    Ask::Cache { ask } => ToFront::Cache { id, ask },
                    _ => ToFront::Status { id },
                };
                let sent = front.link.send_now(&message, &[]);
                let until = Instant::now() + ANSWERING;
                self.questions.insert(id, (asker, until));
                self.front_must_hear(sent);
            }
            Ask::Certificates { ask: None } => {
                asker.certificates(self.ordered.status().clone());
            }
            Ask::Certificates { ask: Some(ask) } => self.ordered.command(ask, asker),
            Ask::Jobs { ask: None } => asker.jobs(self.jobs.status().to_vec()),
            Ask::Jobs { ask: Some(ask) } => self.jobs.command(ask, asker),
            Ask::Who => asker.who(self.facts.clone()),
            Ask::Reload => self.reload(vec![Some(asker)]),
            Ask::Upgrade => self.upgrade(Some(asker)),
            Ask::Stop { limit_ms } => {
                let limit = limit_ms.map(Duration::from_millis);
                let limit = limit.unwrap_or(self.settings.server.timeouts.drain);
                self.control.stop_asker = Some(asker);
                self.stop(limit);
            }
        }
    }

    fn stop(&mut self, limit: Duration) {
        if !self.is_stopping() {
            notify::stopping();
        }
        self.state = State::Stopping {
            deadline: Instant::now() + limit + LEAVING,
        };
        self.abandon_reload("the server is stopping");
        self.end_upgrade(&["the server is stopping".to_owned()]);
        self.predecessors.stop(limit, false);
        self.jobs.stop(limit);
        // The service manager holds the sockets and starts the server again.
        let followed = self.listeners.outlive_us();
        self.listeners.close();
        match &self.front {
            None => self.ended = Some(exit::done()),
            Some(front) => {
                let limit = limit.as_millis() as u64;
                let sent = front.link.send_now(&ToFront::Stop { limit, followed }, &[]);
                self.front_must_hear(sent);
            }
        }
    }

    fn reopen_logs(&mut self) {
        let Some(front) = &self.front else { return };
        let sent = reload::open_logs(&self.settings).and_then(|logs| {
            let message = ToFront::Reopen {
                error_log: logs.error.is_some(),
                access_log: logs.access.is_some(),
            };
            self.jobs.reopen(logs.error.as_ref().map(AsFd::as_fd));
            front.link.send_now(&message, &logs.fds())
        });
        if let Err(error) = sent {
            say(format!(
                "LogNotReopened: {error}; the old files stay in use"
            ));
        }
    }

    fn clean_up(&mut self) {
        self.abandon_reload("the server has ended");
        if let Some(asker) = self.control.stop_asker.take() {
            asker.done("stopped", &[]);
        }
        self.ordered.end("nothing is ordered any more");
        self.jobs.kill();
        self.predecessors.kill();
        self.listeners.remove_files();
        self.control.remove_file();
        if let Some(path) = &self.settings.pid {
            process::remove_pid_file(path);
        }
    }
}
