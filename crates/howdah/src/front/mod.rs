//! The front process, which handles all HTTP traffic. The master starts it with one end of a channel. The front drops
//! its privileges, serves the configuration that the master sends, and exits when the master asks it to or has exited
//! itself. It receives no typed configuration from another process, but reads the configuration's text with the same
//! code as the master.
//!
//! - [`running`]: servers, pools and logs of a configuration, and the change from one configuration to the next.
//! - [`launcher`]: starts zygotes through the master.
//! - [`background`]: a thread for tasks that may wait, so the thread that reads the master's messages never does.
//! - [`status_server`]: the listener for probes, status and metrics.
//! - [`hand_over`]: the program is replaced while this process finishes its requests.
//! - [`stop_progress`]: reports the requests that a stop waits for.

mod background;
mod hand_over;
mod launcher;
mod running;
mod status_server;
mod stop_progress;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use howdah_acme::ActiveChallenges;
use howdah_http::listener::ServerControl;
use howdah_http::tls::TlsSettings;
use howdah_http::tls::certificates::Certificate;
use howdah_http::tls::client_certificate::ClientAuthority;
use howdah_http::tls::crypto::provider;
use howdah_http::tls::tickets::KEY_BYTES;
use howdah_log::log::ErrorLog;
use howdah_os::output::write_stderr_line;
use howdah_server::cache::successor::Successor;
use howdah_server::request::Front;

use crate::process_channel::{
    FrontConfiguration, ProcessChannel, ReceiveOutcome, TlsSecrets, ToFront, ToMaster, read_text,
    text_file,
};
use crate::{child, exit, sys};
use background::BackgroundTask;
use howdah_config::{self, ConfigSource, ServeSettings};
use launcher::Launches;
use running::RunningServer;
use status_server::StatusServer;

/// The state that the thread that reads the master's messages shares with the worker.
#[derive(Default)]
struct FrontShared {
    /// Set once the front serves; used for the status.
    front: Arc<OnceLock<Arc<Front>>>,
    /// Servers and pools, set once the front serves.
    running: Mutex<Option<RunningServer>>,
    /// Set once the front serves; used to check whether its threads still run, without a lock that another thread may
    /// hold.
    control: OnceLock<ServerControl>,
    /// The status listener, which responds to probes even before the front serves.
    status: StatusServer,
    error_log: OnceLock<Arc<ErrorLog>>,
    /// Certificates and keys, which change independently of the configuration.
    tls: TlsSettings,
    /// The front of the next program, during an upgrade.
    successor: Arc<Successor>,
    /// Whether another front follows; set once the server stops.
    is_followed: AtomicBool,
    /// `timeouts.drain`, in milliseconds.
    drain_millis: AtomicU64,
    /// Set once the server stops: the earliest deadline that was requested.
    stop_deadline: Mutex<Option<Instant>>,
}

impl FrontShared {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<RunningServer>> {
        // A panic in the worker is a bug, but stopping what exists is still better than hanging.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests that the server has stopped by `deadline`. Returns whether this is the first such request.
    fn shorten_stop_deadline(&self, deadline: Instant) -> bool {
        let mut earliest = self
            .stop_deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let first = earliest.is_none();
        *earliest = Some(earliest.map_or(deadline, |earlier| earlier.min(deadline)));
        first
    }

    /// Returns how much time is left until the deadline of the stop; `None` if the server is not stopping.
    fn time_to_stop(&self) -> Option<Duration> {
        let earliest = self
            .stop_deadline
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        earliest.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// A configuration that has been read, with its open files and sockets.
struct ReceivedConfiguration {
    generation: u64,
    settings: ServeSettings,
    error_log: Option<OwnedFd>,
    access_log: Option<OwnedFd>,
    /// After an upgrade: whether the previous front is still running.
    follows_another: bool,
    /// The sockets of each `listen` entry.
    listeners: Vec<Vec<OwnedFd>>,
}

/// A configuration that is sent to the worker ([`start_worker`]).
enum IncomingConfiguration {
    /// The first configuration is read before any thread is started, because it names the user to change to.
    First(Box<ReceivedConfiguration>),
    /// The worker reads later ones itself, because reading opens every site's directory and may take long.
    Later(Box<FrontConfiguration>, Vec<OwnedFd>),
}

/// Runs `howdah front`.
pub fn run(link: i32) -> ExitCode {
    howdah_http::memory::limit_malloc_arenas();
    let (link, _blocked) = match child::prepare(link) {
        Ok(prepared) => prepared,
        Err(why) => {
            write_stderr_line(&format!("howdah: front: {why}"));
            return exit::failed();
        }
    };
    let mut front = MasterReader {
        launches: Launches::new(link.clone()),
        link,
        shared: Arc::default(),
        workers: None,
    };
    let told = front.link.clone();
    front
        .shared
        .tls
        .on_demand
        .set_reporter(Box::new(move |name, client| {
            let name = name.to_owned();
            // If the master is busy, the name is reported at the next request.
            let _ = told.send_now(&ToMaster::Wanted { name, client }, &[]);
        }));
    front.shared.drain_millis.store(10_000, Ordering::Relaxed);
    loop {
        match front.link.receive::<ToFront>() {
            ReceiveOutcome::Nothing => {}
            ReceiveOutcome::Message(message, fds) => {
                if let Err(failed) = front.handle(message, fds) {
                    return failed;
                }
            }
            ReceiveOutcome::Closed => front.stop_without_master(),
        }
    }
}

/// The state of the thread that reads the master's messages.
struct MasterReader {
    link: ProcessChannel,
    launches: Arc<Launches>,
    shared: Arc<FrontShared>,
    /// The worker that changes configurations, and the background thread; `None` before the first configuration.
    workers: Option<(
        mpsc::Sender<IncomingConfiguration>,
        mpsc::Sender<BackgroundTask>,
    )>,
}

impl MasterReader {
    /// Acts on a message. On error, the process exits.
    fn handle(&mut self, message: ToFront, fds: Vec<OwnedFd>) -> Result<(), ExitCode> {
        match message {
            ToFront::Launched { id, pid, program } => {
                self.launches.complete(id, pid, program, fds);
            }
            ToFront::NotLaunched { id, message } => self.launches.fail(id, message),
            ToFront::Ping { number } => answer_ping(&self.link, &self.shared, number),
            ToFront::Status { id } => self.in_background(BackgroundTask::Status { id }),
            ToFront::Cache { id, ask } => self.in_background(BackgroundTask::Cache { id, ask }),
            ToFront::HandOver => hand_over::start_hand_over(&self.link, &self.shared),
            ToFront::Carried { number } => self.shared.successor.confirm(number),
            ToFront::Stop { limit, followed } => {
                self.shared.is_followed.store(followed, Ordering::Relaxed);
                stop(&self.link, &self.shared, Duration::from_millis(limit));
            }
            ToFront::Reopen {
                error_log,
                access_log,
            } => {
                let mut fds = fds.into_iter();
                let error = error_log.then(|| fds.next()).flatten();
                let access = access_log.then(|| fds.next()).flatten();
                self.in_background(BackgroundTask::Reopen { error, access });
            }
            ToFront::Keys => use_tls_secrets(&self.shared, fds),
            ToFront::Challenges { number } => {
                use_challenges(&self.shared, fds);
                // The next read of the channel notices if the master has exited.
                let _ = self.link.send(&ToMaster::Answering { number }, &[]);
            }
            ToFront::FailingOrders => show_failing_orders(&self.shared, fds),
            ToFront::Jobs => show_jobs(fds),
            ToFront::NotOrdered { name } => self.shared.tls.on_demand.deny(&name),
            ToFront::Serve(configuration) => return self.serve(configuration, fds),
        }
        Ok(())
    }

    /// Both threads run until the process exits. Before the first configuration, the master sends no such request.
    fn in_background(&self, task: BackgroundTask) {
        if let Some((_, background)) = &self.workers {
            let _ = background.send(task);
        }
    }

    fn serve(&mut self, sent: Box<FrontConfiguration>, fds: Vec<OwnedFd>) -> Result<(), ExitCode> {
        if let Some((worker, _)) = &self.workers {
            let _ = worker.send(IncomingConfiguration::Later(sent, fds));
            return Ok(());
        }
        let generation = sent.generation;
        let new = match read_config(*sent, fds) {
            Ok(new) => new,
            Err(mistakes) => {
                refuse_configuration(&self.link, generation, &mistakes);
                return Ok(());
            }
        };
        // This must happen before the first thread is started, so the change of user applies to the whole process.
        if let Err(why) = give_up_privileges(&new.settings) {
            refuse_configuration(&self.link, generation, &[why]);
            return Err(exit::failed());
        }
        let worker = start_worker(&self.link, &self.launches, &self.shared);
        let _ = worker.send(IncomingConfiguration::First(Box::new(new)));
        self.workers = Some((
            worker,
            background::start_background_thread(&self.link, &self.shared),
        ));
        Ok(())
    }

    /// Stops because the master has exited: no process holds the sockets any more, and no process can start PHP.
    fn stop_without_master(&self) -> ! {
        self.launches.fail_all();
        // By now another master may serve the sites, and its front does not learn what this one writes.
        self.shared.successor.mark_gone();
        let drain = self.shared.drain_millis.load(Ordering::Relaxed);
        stop(&self.link, &self.shared, Duration::from_millis(drain));
        park_forever();
    }
}

fn park_forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Uses the TLS secrets that the master has sent. The master has checked them; anything invalid is skipped.
fn use_tls_secrets(shared: &FrontShared, fds: Vec<OwnedFd>) {
    let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
    let Some(keys) = text.and_then(|text| serde_json::from_str::<TlsSecrets>(&text).ok()) else {
        return;
    };
    let certificates: Vec<Certificate> = keys
        .certificates
        .iter()
        .filter_map(|(chain, key)| {
            Certificate::parse(chain.as_bytes(), key.as_bytes(), &provider()).ok()
        })
        .collect();
    let tickets: Vec<[u8; KEY_BYTES]> = keys
        .tickets
        .iter()
        .filter_map(|key| key.as_slice().try_into().ok())
        .collect();
    let authority = keys
        .client_authority
        .map(|(certificates, required)| ClientAuthority {
            certificates: certificates.into_bytes(),
            required,
        });
    let context = authority.as_ref().map_or(Vec::new(), |authority| {
        [&authority.certificates[..], &[u8::from(authority.required)]].concat()
    });
    shared.tls.tickets.set(&tickets, &context);
    shared.tls.client_authority.store(authority.map(Arc::new));
    // This comes last, because clients that wait for one of the certificates continue at once.
    shared.tls.set_certificates(certificates);
}

/// Responds to the challenges that the master has sent, and to no others.
fn use_challenges(shared: &FrontShared, fds: Vec<OwnedFd>) {
    let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
    let challenges = text.and_then(|text| serde_json::from_str::<ActiveChallenges>(&text).ok());
    let challenges = challenges.unwrap_or_default();
    shared.tls.challenges.set(challenges.http, challenges.tls);
}

/// Shows the certificate orders that fail, and no others.
fn show_failing_orders(shared: &FrontShared, fds: Vec<OwnedFd>) {
    let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
    let failing = text.and_then(|text| serde_json::from_str(&text).ok());
    let failing = failing.unwrap_or_default();
    shared.tls.certificates.set_failing_orders(failing);
}

/// Shows the status of the jobs that the master has sent.
fn show_jobs(fds: Vec<OwnedFd>) {
    let text = fds.into_iter().next().and_then(|fd| read_text(fd).ok());
    let jobs = text.and_then(|text| serde_json::from_str(&text).ok());
    howdah_server::admin::jobs::set_shown_jobs(jobs.unwrap_or_default());
}

/// Starts the worker, which applies configurations one after the other while the main thread continues to read
/// messages.
fn start_worker(
    link: &ProcessChannel,
    launches: &Arc<Launches>,
    shared: &Arc<FrontShared>,
) -> mpsc::Sender<IncomingConfiguration> {
    let (worker, inbox) = mpsc::channel();
    let (link, launches, shared) = (link.clone(), launches.clone(), shared.clone());
    std::thread::spawn(move || {
        for incoming in inbox {
            let (generation, new) = match incoming {
                IncomingConfiguration::First(new) => (new.generation, Ok(*new)),
                IncomingConfiguration::Later(configuration, fds) => {
                    (configuration.generation, read_config(*configuration, fds))
                }
            };
            let applied = new.and_then(|new| {
                let drain = new.settings.server.timeouts.drain;
                running::apply(new, &launches, &shared)?;
                let drain = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
                shared.drain_millis.store(drain, Ordering::Relaxed);
                Ok(())
            });
            match applied {
                Ok(()) => {
                    // The thread that reads the master's messages notices if the master has exited.
                    let _ = link.send(&ToMaster::Serving { generation }, &[]);
                }
                Err(mistakes) => refuse_configuration(&link, generation, &mistakes),
            }
        }
    });
    worker
}

/// Responds to a ping. The response itself proves that this thread runs; the numbers in it show whether the threads
/// that serve requests do.
fn answer_ping(link: &ProcessChannel, shared: &FrontShared, number: u64) {
    let threads = match shared.control.get() {
        Some(control) => control.request_heartbeat(number),
        None => Vec::new(),
    };
    // The next read of the channel notices if the master has exited.
    let _ = link.send(&ToMaster::Pulse { number, threads }, &[]);
}

fn refuse_configuration(link: &ProcessChannel, generation: u64, mistakes: &[String]) {
    let sent = text_file(&mistakes.join("\n"))
        .and_then(|text| link.send(&ToMaster::Refused { generation }, &[text.as_fd()]));
    if let Err(error) = sent {
        write_stderr_line(&format!("howdah: front: cannot reach the master: {error}"));
    }
}

fn read_config(
    sent: FrontConfiguration,
    fds: Vec<OwnedFd>,
) -> Result<ReceivedConfiguration, Vec<String>> {
    let missing = || vec!["the master's message has too few descriptors".to_owned()];
    let mut fds = fds.into_iter();
    let text = read_text(fds.next().ok_or_else(missing)?)
        .map_err(|error| vec![format!("cannot read the configuration's text: {error}")])?;
    let source: Option<ConfigSource> = serde_json::from_str(&text)
        .map_err(|error| vec![format!("cannot read the configuration's text: {error}")])?;
    let loaded = howdah_config::load(
        &sent.arguments,
        source.as_ref(),
        howdah_config::Validation::Trusted,
    );
    let settings = loaded.settings?;
    let error_log = sent.error_log.then(|| fds.next()).flatten();
    let access_log = sent.access_log.then(|| fds.next()).flatten();
    let mut sockets: Vec<Vec<OwnedFd>> = settings.listen.iter().map(|_| Vec::new()).collect();
    for number in sent.listeners {
        let socket = fds.next().ok_or_else(missing)?;
        sockets
            .get_mut(number as usize)
            .ok_or_else(missing)?
            .push(socket);
    }
    Ok(ReceivedConfiguration {
        generation: sent.generation,
        settings,
        error_log,
        access_log,
        follows_another: sent.follows_another,
        listeners: sockets,
    })
}

fn give_up_privileges(settings: &ServeSettings) -> Result<(), String> {
    if let Some(name) = settings.user.as_ref().filter(|_| sys::may_change_user()) {
        let account = sys::find_user(name).ok_or_else(|| format!("there is no user `{name}`"))?;
        let gid = match &settings.group {
            Some(group) => {
                sys::find_group(group).ok_or_else(|| format!("there is no group `{group}`"))?
            }
            None => account.gid,
        };
        sys::become_user(&account, gid)
            .map_err(|error| format!("cannot become user `{name}`: {error}"))?;
    }
    sys::drop_capabilities().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    sys::forbid_new_privileges().map_err(|error| format!("cannot set no_new_privs: {error}"))
}

/// Stops within `limit`; another call shortens the limit. The process exits at the end.
fn stop(link: &ProcessChannel, shared: &Arc<FrontShared>, limit: Duration) {
    shared.status.handler.set_stopping();
    if shared.successor.has_taken_over() {
        shared.status.close();
    }
    if !shared.shorten_stop_deadline(Instant::now() + limit) {
        // The first stop may hold the lock that this needs, and this thread must not wait for it.
        let shared = shared.clone();
        std::thread::spawn(move || running::shorten_deadline(&shared));
        return;
    }
    stop_progress::report(link, shared, limit);
    let shared = shared.clone();
    std::thread::spawn(move || {
        running::finish(&shared);
        std::process::exit(0);
    });
}
