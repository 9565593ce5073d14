//! The master process: `howdah serve` itself. Single-threaded; keeps the listening sockets, the
//! privileges if it has them, and the other processes alive. Speaks no HTTP and runs no PHP.
//!
//! It starts the *front* by executing itself with a hidden command, rather than by forking: the
//! front gets a fresh address space, can be started again at any time, and reads the same command
//! line and configuration text with the same code, so no typed value crosses the border. Root or
//! not, there is one way through here; without root the changes of user are left out.
//!
//! - [`listeners`]: bound sockets, kept over reloads and crashes of the front; [`inherited`]: those of a
//!   service manager.
//! - [`careful`]: files made as root where others may write.
//! - [`process`]: the front's process, and zygotes started for it.
//! - [`control`]: the control socket.
//! - [`reload`]: a new configuration, taken or refused as a whole.
//! - [`certificates`]: the process that orders certificates.
//! - [`jobs`]: the process that runs background jobs.
//! - [`restart`]: when one of these two that died is started again.
//! - [`keys`]: certificates and keys of TLS, which only it reads.
//! - [`watchdog`]: whether the front hangs; [`hung`]: what is done then.
//! - [`facts`]: what is known of the server without asking the front.
//! - [`notify`]: notifications of a service manager.

mod certificates;
pub mod control;
pub mod facts;
mod hung;
mod inherited;
mod jobs;
mod keys;
mod listeners;
mod notify;
mod process;
mod reload;
mod restart;
pub mod safe_path;
pub mod watchdog;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use howdah_executor::Mode;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::arguments::Serve;
use crate::config::{self, Settings, Source};
use crate::link::{Received, ToFront, ToMaster, read_text};
use crate::{exit, php, sys};
use certificates::OrderedCertificates;
use control::{Ask, Asker, ControlSocket};
use facts::Facts;
use hung::ANSWERING;
use inherited::InheritedSockets;
use jobs::BackgroundJobs;
use keys::KeyStore;
use listeners::Listeners;
use process::FrontProcess;
use reload::{Askers, Pending};
use watchdog::Watch;

/// A front that lives this long is not in a crash loop.
const SETTLED: Duration = Duration::from_secs(10);
/// Longest pause before the front is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Configurations whose pools may still ask for a zygote.
const GENERATIONS: usize = 16;
/// After the time limit of a stop, how long the front may take to leave.
const LEAVING: Duration = Duration::from_secs(5);
/// Messages of the front taken at once: one that never stops talking must not keep the master from
/// hearing anything else.
const MESSAGES: usize = 64;

/// What the master is at.
enum State {
    /// The first configuration is not served yet.
    Starting,
    /// It serves.
    Serving,
    /// The front is gone; another is started then.
    Restarting {
        /// When.
        at: Instant,
    },
    /// The front finishes what runs.
    Stopping {
        /// When it is killed.
        deadline: Instant,
    },
}

/// See the module.
struct Master {
    arguments: Serve,
    settings: Settings,
    source: Option<Source>,
    generation: u64,
    /// Pools by generation: a zygote is started only for a pool the master has read itself.
    generations: BTreeMap<u64, Vec<Mode>>,
    listeners: Listeners,
    control: ControlSocket,
    facts: Facts,
    keys: KeyStore,
    ordered: OrderedCertificates,
    jobs: BackgroundJobs,
    signals: sys::SignalDescriptor,
    front: Option<FrontProcess>,
    state: State,
    crashes: u32,
    pending: Option<Pending>,
    /// Reloads asked for while one is in progress.
    waiting: Askers,
    /// Who asked the front something, and when they get the answer that it does not respond.
    questions: BTreeMap<u64, (Asker, Instant)>,
    next_question: u64,
    /// When the service manager is next notified that the server lives, and how often.
    alive: Option<(Instant, Duration)>,
    ended: Option<ExitCode>,
}

/// What can be read.
struct Ready {
    signals: bool,
    front: bool,
    ordered: bool,
    jobs: bool,
    /// By descriptor of the control socket.
    controls: Vec<bool>,
}

/// `howdah serve`
pub fn serve(arguments: Serve) -> ExitCode {
    match start(arguments) {
        Ok(mut master) => master.run(),
        Err(code) => code,
    }
}

/// Whom what we make for the server belongs to: the user and group it is served as.
fn owner(settings: &Settings) -> Option<(u32, u32)> {
    let account = sys::user(settings.user.as_ref()?)?;
    let group = settings.group.as_ref().and_then(|name| sys::group(name));
    Some((account.uid, group.unwrap_or(account.gid)))
}

/// Tells the one who started us.
pub fn say(text: impl AsRef<str>) {
    for line in text.as_ref().lines() {
        eprintln!("howdah: {line}");
    }
}

/// Mistakes have lines of their own below them: no prefix there.
pub fn say_mistakes(mistakes: &[String]) {
    for mistake in mistakes {
        eprintln!("howdah: {mistake}");
    }
}

fn start(mut arguments: Serve) -> Result<Master, ExitCode> {
    let failed = |why: io::Error| {
        say(format!("cannot start: {why}"));
        exit::failed()
    };
    // Without root PHP runs as our user: what our environment and memory hold is not for its scripts.
    sys::set_dumpable(false).map_err(failed)?;
    let inherited = InheritedSockets::take().map_err(|why| {
        say(why);
        exit::address()
    })?;
    sys::close_inherited_on_exec();
    let signals = sys::SignalDescriptor::new(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGCHLD,
    ])
    .map_err(failed)?;
    let source = match &arguments.config {
        Some(path) => Some(Source::read(path).map_err(|why| {
            say(why);
            exit::configuration()
        })?),
        None => None,
    };
    let chosen = config::acme::complete(&mut arguments, source.as_ref());
    let loaded = config::load(&arguments, source.as_ref(), config::Validation::Full);
    say_mistakes(&loaded.advice);
    let mut settings = loaded.settings.map_err(|mistakes| {
        say_mistakes(&mistakes);
        match loaded.php_unfit {
            true => exit::php(),
            false => exit::configuration(),
        }
    })?;
    settings.chosen.extend(chosen);
    php::check_all(&settings.howdah_php()).map_err(|why| {
        say(why.to_string());
        exit::php()
    })?;
    if let Some(path) = &settings.pid {
        process::check_pid_file(path).map_err(|why| {
            say(why);
            exit::address()
        })?;
    }
    let owner = owner(&settings);
    let listeners =
        Listeners::bind(inherited, &settings.listen, settings.threads, owner).map_err(|why| {
            say(why);
            exit::address()
        })?;
    let control =
        ControlSocket::bind(settings.control.as_deref(), &listeners.label()).map_err(|why| {
            listeners.remove_files();
            say(why);
            exit::address()
        })?;
    let mut master = Master {
        generations: BTreeMap::from([(1, settings.pools.clone())]),
        arguments,
        settings,
        source,
        generation: 1,
        listeners,
        control,
        facts: Facts::default(),
        keys: KeyStore::new(Instant::now()).map_err(failed)?,
        ordered: OrderedCertificates::default(),
        jobs: BackgroundJobs::default(),
        signals,
        front: None,
        state: State::Starting,
        crashes: 0,
        pending: None,
        waiting: Askers::new(),
        questions: BTreeMap::new(),
        next_question: 0,
        alive: notify::watchdog().map(|every| (Instant::now(), every)),
        ended: None,
    };
    master.facts = Facts::of(&master);
    master.ordered.assign(master.settings.acme.as_ref());
    master.ordered.wait_for_the_first();
    master.start_front().map_err(|why| {
        master.clean_up();
        failed(why)
    })?;
    Ok(master)
}

impl Master {
    fn run(&mut self) -> ExitCode {
        loop {
            if let Some(code) = self.ended.take_if(|_| !self.jobs.runs()) {
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

    /// Waits for something and deals with it.
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
        for question in self.control.serve(&ready.controls) {
            self.answer(question);
        }
        self.act_on_time();
        Ok(())
    }

    /// When something is to be done although nobody says anything.
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
        ];
        others.into_iter().flatten().chain(questions).min()
    }

    fn is_stopping(&self) -> bool {
        matches!(self.state, State::Stopping { .. })
    }

    /// Waits until something is readable, or for that long.
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
        let fixed = fds.len();
        for fd in self.control.descriptors() {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
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
            ordered: ordered.is_some() && ready[fixed - 1 - usize::from(jobs.is_some())],
            jobs: jobs.is_some() && ready[fixed - 1],
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
                self.ended = Some(exit::failed());
            }
            _ => {}
        }
        self.watch_front(now);
        self.answer_for_the_front(now);
        self.end_late_reload(now);
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
            // As nginx and php-fpm: TERM and INT soon, QUIT when everything is finished.
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
            libc::SIGHUP | libc::SIGUSR2 => self.reload(vec![None]),
            libc::SIGUSR1 => self.reopen_logs(),
            libc::SIGCHLD => self.reap(),
            _ => {}
        }
    }

    fn reap(&mut self) {
        // Any child: waitpid(None) would be those of our own process group.
        use rustix::process::{WaitOptions, wait};
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if self.front.as_ref().is_some_and(|front| front.pid == pid) {
                let how = process::exit_text(status);
                self.front_is_gone(&how, status.exit_status() == Some(0));
            } else {
                let how = process::exit_text(status);
                let _ = self.ordered.reaped(pid, &how) || self.jobs.reaped(pid, &how);
            }
            // Zygotes are watched by the front, by their pidfds.
        }
    }

    fn front_is_gone(&mut self, how: &str, well: bool) {
        let Some(front) = self.front.take() else {
            return;
        };
        for (asker, _) in std::mem::take(&mut self.questions).into_values() {
            asker.refuse("the front has ended");
        }
        self.jobs.front_is_gone();
        match self.state {
            State::Stopping { .. } => {
                self.ended = Some(if well { exit::done() } else { exit::failed() });
            }
            State::Starting => {
                if !front.refused {
                    say(format!(
                        "FrontDied: the front ended during its start: {how}"
                    ));
                }
                self.ended = Some(exit::failed());
            }
            State::Serving | State::Restarting { .. } => {
                self.abandon_reload(&format!("the front ended: {how}"));
                if front.since.elapsed() >= SETTLED {
                    self.crashes = 0;
                }
                self.crashes += 1;
                self.plan_restart();
                say(format!(
                    "FrontDied: the front ended ({how}) and is started again"
                ));
            }
        }
    }

    fn plan_restart(&mut self) {
        let pause = match self.crashes {
            0 | 1 => Duration::ZERO,
            n => (Duration::from_millis(50) * (1 << n.min(8))).min(LONGEST_PAUSE),
        };
        let at = Instant::now() + pause;
        self.state = State::Restarting { at };
    }

    fn start_front(&mut self) -> io::Result<()> {
        let front = FrontProcess::start()?;
        let ordered = self.ordered.certificates();
        self.keys.send(&front.link, &self.settings, ordered)?;
        self.ordered.send_challenges(&front.link)?;
        self.ordered.send_failing(&front.link)?;
        self.jobs.send_status(&front.link)?;
        reload::send_configuration(
            &front.link,
            self.generation,
            &self.arguments,
            self.source.as_ref(),
            &self.settings,
            &self.listeners,
        )?;
        self.front = Some(front);
        if matches!(self.state, State::Restarting { .. }) {
            self.state = State::Serving;
        }
        Ok(())
    }

    fn hear_front(&mut self) {
        for _ in 0..MESSAGES {
            let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
                return;
            };
            match front.link.receive_now::<ToMaster>() {
                Received::Nothing => return,
                Received::Closed => {
                    // It ends or misbehaves; SIGCHLD shows the rest.
                    if let Some(front) = &mut self.front {
                        front.hung_up = true;
                        front.kill();
                    }
                    return;
                }
                Received::Message(message, fds) => self.front_says(message, fds),
            }
        }
    }

    fn front_says(&mut self, message: ToMaster, mut fds: Vec<OwnedFd>) {
        match message {
            ToMaster::Launch {
                id,
                generation,
                pool,
            } => {
                let pools = self.generations.get(&generation);
                let config = pools.and_then(|pools| pools.iter().find(|p| p.name() == pool));
                let launched = process::launch(config, fds);
                let Some(front) = &self.front else { return };
                let sent = match &launched {
                    Ok(zygote) => {
                        let message = ToFront::Launched {
                            id,
                            pid: zygote.pid,
                        };
                        front.link.send_now(&message, &[zygote.pidfd.as_fd()])
                    }
                    Err(error) => {
                        let message = error.to_string();
                        front
                            .link
                            .send_now(&ToFront::NotLaunched { id, message }, &[])
                    }
                };
                self.front_must_hear(sent);
            }
            ToMaster::Serving { generation } => self.serving(generation),
            ToMaster::Refused { generation } => {
                let text = fds.pop().map(read_text);
                let text = match text {
                    Some(Ok(text)) => text,
                    _ => "the front gave no reason".to_owned(),
                };
                self.refused(generation, &text);
            }
            ToMaster::Wanted { name } => self.ordered.wanted(name),
            ToMaster::Answering { number } => self.ordered.answering(number),
            ToMaster::Status { id } => {
                if self.jobs.noted(id) {
                    return;
                }
                if let Some((asker, _)) = self.questions.remove(&id) {
                    match fds.pop().map(read_text) {
                        Some(Ok(text)) => asker.status(
                            &text,
                            self.generation,
                            self.facts.clone(),
                            self.ordered.status().clone(),
                        ),
                        _ => asker.refuse("the front's answer could not be read"),
                    }
                }
            }
            ToMaster::Pulse { number, threads } => {
                let watch = self.front.as_mut().and_then(|front| front.watch.as_mut());
                if let Some(watch) = watch {
                    watch.heard(number, &threads);
                }
            }
            ToMaster::Waiting { text } => {
                if self.is_stopping() {
                    say(text);
                }
            }
        }
    }

    /// Passes on what the process that orders certificates has.
    fn hear_of_certificates(&mut self) {
        let news = self.ordered.hear();
        let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
            // The next front gets it at its start.
            return;
        };
        let mut sent = Ok(());
        if news.challenges {
            sent = self.ordered.send_challenges(&front.link);
        }
        if news.failing {
            sent = sent.and(self.ordered.send_failing(&front.link));
        }
        for name in news.not_ordered {
            // A front that is busy has them wait for as long as a handshake may take.
            let _ = front.link.send_now(&ToFront::NotOrdered { name }, &[]);
        }
        if news.certificates {
            let ordered = self.ordered.certificates();
            sent = sent.and(self.keys.replace_ordered(&front.link, ordered));
        }
        self.front_must_hear(sent);
    }

    /// Passes on what the process that runs jobs says.
    fn hear_of_jobs(&mut self) {
        let news = self.jobs.hear();
        let Some(front) = self.front.as_ref().filter(|front| !front.hung_up) else {
            // The next front gets it at its start.
            return;
        };
        let sent = match news {
            true => self.jobs.send_status(&front.link),
            false => Ok(()),
        };
        self.front_must_hear(sent);
        self.send_writes();
    }

    /// Has the front note what jobs wrote, once it serves: before, it has no page cache.
    fn send_writes(&mut self) {
        let serving = |front: &&FrontProcess| front.watch.is_some() && !front.hung_up;
        let Some(front) = self.front.as_ref().filter(serving) else {
            return;
        };
        let next = &mut self.next_question;
        let sent = self.jobs.send_writes(&front.link, || {
            *next += 1;
            *next
        });
        self.front_must_hear(sent);
    }

    /// A front that does not take messages any more is of no use.
    fn front_must_hear(&mut self, sent: io::Result<()>) {
        if let Err(error) = sent {
            say(format!(
                "FrontUnresponsive: the front takes no messages ({error}); it is killed"
            ));
            if let Some(front) = &mut self.front {
                front.kill();
            }
        }
    }

    fn answer(&mut self, (question, asker): (Ask, Asker)) {
        match question {
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
        self.jobs.stop(limit);
        self.listeners.close();
        match &self.front {
            None => self.ended = Some(exit::done()),
            Some(front) => {
                let limit = limit.as_millis() as u64;
                let sent = front.link.send_now(&ToFront::Stop { limit }, &[]);
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
        self.ordered.end();
        self.jobs.kill();
        self.listeners.remove_files();
        self.control.remove_file();
        if let Some(path) = &self.settings.pid {
            process::remove_pid_file(path);
        }
    }
}
