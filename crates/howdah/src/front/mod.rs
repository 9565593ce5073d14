//! The front process: everything of HTTP. Started by the master with one end of a line; gives up
//! what privileges it has, serves what it is told to, and ends when the master tells it or is gone.
//! Holds no typed configuration of another process: it reads the text with the same code.
//!
//! - [`running`]: servers, pools and logs of a configuration, and the change from one to the next.
//! - [`launcher`]: zygotes, started by the master.

mod launcher;
mod running;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use howdah_server::cache::steer;
use howdah_server::log::ErrorLog;
use howdah_server::request::Front;

use crate::arguments::Serve;
use crate::config::{self, Settings, Source};
use crate::link::{Link, Received, ToFront, ToMaster, read_text, text_file};
use crate::{exit, sys};
use launcher::Launches;
use running::Running;

/// What the line's thread and the worker share.
#[derive(Default)]
struct Shared {
    /// Once it serves: to answer for the status.
    front: OnceLock<Arc<Front>>,
    /// Once it serves: servers and pools.
    running: Mutex<Option<Running>>,
    error_log: OnceLock<Arc<ErrorLog>>,
    stopping: OnceLock<()>,
}

impl Shared {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        // A panic in the worker is a bug; stopping what there is still beats hanging.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A configuration to be served, as it comes from the master.
struct Order {
    generation: u64,
    settings: Settings,
    error_log: Option<OwnedFd>,
    access_log: Option<OwnedFd>,
    /// Sockets by `listen` entry.
    listeners: Vec<Vec<OwnedFd>>,
}

/// `howdah front`
pub fn run(link: i32) -> ExitCode {
    let link = match sys::inherited(link) {
        Ok(fd) => Link::new(fd),
        Err(error) => {
            eprintln!("howdah: front: no line to a master ({error}); start `howdah serve` instead");
            return exit::failed();
        }
    };
    // The master decides: a service manager that signals the whole group stops nothing half-way.
    let blocked = sys::signal_descriptor(&[
        libc::SIGTERM,
        libc::SIGINT,
        libc::SIGQUIT,
        libc::SIGHUP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ]);
    if let Err(error) = blocked {
        eprintln!("howdah: front: cannot block signals: {error}");
        return exit::failed();
    }
    let launches = Launches::new(link.clone());
    let shared = Arc::new(Shared::default());
    let (orders, inbox) = mpsc::channel::<Order>();
    let mut inbox = Some(inbox);
    let mut drain = Duration::from_secs(10);
    loop {
        match link.receive::<ToFront>() {
            Received::Nothing => {}
            Received::Closed => {
                // The master is gone: nobody holds the sockets, nobody can start PHP.
                launches.master_is_gone();
                stop(&shared, drain);
                wait_for_ever();
            }
            Received::Message(message, fds) => match message {
                ToFront::Launched { id, pid } => launches.launched(id, pid, fds),
                ToFront::NotLaunched { id, message } => launches.not_launched(id, message),
                ToFront::Status { id } => send_status(&link, &shared, id),
                ToFront::Cache { id, ask } => {
                    let answer = match shared.front.get() {
                        Some(front) => steer::answer(&front.config(), &ask),
                        None => Err("the server is starting".to_owned()),
                    };
                    let json = match answer {
                        Ok(text) => serde_json::json!({ "cache": text }),
                        Err(why) => serde_json::json!({ "mistake": why }),
                    };
                    send_answer(&link, id, &json.to_string());
                }
                ToFront::Stop { limit } => stop(&shared, Duration::from_millis(limit)),
                ToFront::Reopen {
                    error_log,
                    access_log,
                } => {
                    let mut fds = fds.into_iter();
                    let error = error_log.then(|| fds.next()).flatten();
                    let access = access_log.then(|| fds.next()).flatten();
                    reopen(&shared, error, access);
                }
                ToFront::Serve {
                    generation,
                    arguments,
                    file,
                    error_log,
                    access_log,
                    listeners,
                } => {
                    let read = read_order(
                        generation,
                        &arguments,
                        file,
                        (error_log, access_log),
                        &listeners,
                        fds,
                    );
                    let order = match read {
                        Ok(order) => order,
                        Err(mistakes) => {
                            refuse(&link, generation, &mistakes);
                            continue;
                        }
                    };
                    drain = order.settings.patience.drain;
                    // Before the first thread: a change of user is for the whole process then.
                    if let Some(inbox) = inbox.take() {
                        if let Err(why) = give_up_privileges(&order.settings) {
                            refuse(&link, generation, &[why]);
                            return exit::failed();
                        }
                        work(inbox, &link, &launches, &shared);
                    }
                    // The worker lives as long as the process.
                    let _ = orders.send(order);
                }
            },
        }
    }
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Changes configurations, one after the other, while the line's thread goes on listening.
fn work(inbox: mpsc::Receiver<Order>, link: &Link, launches: &Arc<Launches>, shared: &Arc<Shared>) {
    let (link, launches, shared) = (link.clone(), launches.clone(), shared.clone());
    std::thread::spawn(move || {
        for order in inbox {
            let generation = order.generation;
            match running::take(order, &launches, &shared) {
                Ok(()) => {
                    // A master that is gone is noticed by the line's thread.
                    let _ = link.send(&ToMaster::Serving { generation }, &[]);
                }
                Err(mistakes) => refuse(&link, generation, &mistakes),
            }
        }
    });
}

fn refuse(link: &Link, generation: u64, mistakes: &[String]) {
    let sent = text_file(&mistakes.join("\n"))
        .and_then(|text| link.send(&ToMaster::Refused { generation }, &[text.as_fd()]));
    if let Err(error) = sent {
        eprintln!("howdah: front: cannot reach the master: {error}");
    }
}

fn read_order(
    generation: u64,
    arguments: &Serve,
    file: Option<String>,
    (error_log, access_log): (bool, bool),
    listeners: &[u32],
    fds: Vec<OwnedFd>,
) -> Result<Order, Vec<String>> {
    let missing = || vec!["the master's message lacks descriptors".to_owned()];
    let mut fds = fds.into_iter();
    let text = read_text(fds.next().ok_or_else(missing)?)
        .map_err(|error| vec![format!("cannot read the configuration's text: {error}")])?;
    let source = file.map(|name| Source { name, text });
    let loaded = config::load(arguments, source.as_ref(), config::Eyes::Front);
    let settings = loaded.settings?;
    let error_log = error_log.then(|| fds.next()).flatten();
    let access_log = access_log.then(|| fds.next()).flatten();
    let mut sockets: Vec<Vec<OwnedFd>> = settings.listen.iter().map(|_| Vec::new()).collect();
    for number in listeners {
        let socket = fds.next().ok_or_else(missing)?;
        sockets
            .get_mut(*number as usize)
            .ok_or_else(missing)?
            .push(socket);
    }
    Ok(Order {
        generation,
        settings,
        error_log,
        access_log,
        listeners: sockets,
    })
}

fn give_up_privileges(settings: &Settings) -> Result<(), String> {
    if sys::is_root() {
        if let Some(name) = &settings.user {
            let account = sys::user(name).ok_or_else(|| format!("there is no user `{name}`"))?;
            let gid = match &settings.group {
                Some(group) => {
                    sys::group(group).ok_or_else(|| format!("there is no group `{group}`"))?
                }
                None => account.gid,
            };
            sys::become_user(&account, gid)
                .map_err(|error| format!("cannot become user `{name}`: {error}"))?;
        }
        // PHP may run as the same user: it must not read other sites' requests in our memory.
        sys::not_dumpable().map_err(|error| format!("cannot close our memory: {error}"))?;
    }
    sys::no_new_privileges().map_err(|error| format!("cannot give up new privileges: {error}"))
}

fn send_status(link: &Link, shared: &Shared, id: u64) {
    let json = match shared.front.get() {
        Some(front) => serde_json::to_string(&front.status()).unwrap_or_default(),
        None => r#"{"state":"starting"}"#.to_owned(),
    };
    send_answer(link, id, &json);
}

fn send_answer(link: &Link, id: u64, json: &str) {
    let sent =
        text_file(json).and_then(|text| link.send(&ToMaster::Status { id }, &[text.as_fd()]));
    if let Err(error) = sent {
        eprintln!("howdah: front: cannot send the status: {error}");
    }
}

fn reopen(shared: &Shared, error: Option<OwnedFd>, access: Option<OwnedFd>) {
    if let (Some(file), Some(log)) = (error, shared.error_log.get()) {
        // The old file stays in use; the log says so if it still can.
        let _ = log.sink().reopen_as(file.into());
    }
    let Some(front) = shared.front.get() else {
        return;
    };
    if let (Some(file), Some(log)) = (access, &front.config().settings.access_log) {
        let _ = log.sink().reopen_as(file.into());
    }
}

/// Stops within `limit`; a second call shortens it. Ends the process.
fn stop(shared: &Arc<Shared>, limit: Duration) {
    if shared.stopping.set(()).is_err() {
        running::hurry(shared, limit);
        return;
    }
    let shared = shared.clone();
    std::thread::spawn(move || {
        running::finish(&shared, limit);
        std::process::exit(0);
    });
}
