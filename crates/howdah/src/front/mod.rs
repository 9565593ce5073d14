//! The front process: everything of HTTP. Started by the master with one end of a line; drops its
//! privileges, serves the configuration that the master sends, and ends when the master says so or
//! is gone. Holds no typed configuration of another process: it reads the text with the same code.
//!
//! - [`running`]: servers, pools and logs of a configuration, and the change from one to the next.
//! - [`launcher`]: zygotes, started by the master.
//! - [`desk`]: a thread for what may wait, so that the line's thread never does.
//! - [`farewell`]: what a stop waits for, in words.

mod desk;
mod farewell;
mod launcher;
mod running;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use howdah_server::listener::Control;
use howdah_server::log::ErrorLog;
use howdah_server::request::Front;

use crate::config::{self, Settings, Source};
use crate::link::{Configuration, Link, Received, ToFront, ToMaster, read_text, text_file};
use crate::{exit, sys};
use desk::Task;
use launcher::Launches;
use running::Running;

/// What the line's thread and the worker share.
#[derive(Default)]
struct Shared {
    /// Once it serves: to answer for the status.
    front: OnceLock<Arc<Front>>,
    /// Once it serves: servers and pools.
    running: Mutex<Option<Running>>,
    /// Once it serves: to see whether its threads still run. Without a lock that somebody may hold.
    control: OnceLock<Control>,
    error_log: OnceLock<Arc<ErrorLog>>,
    /// `timeouts.drain` in milliseconds.
    drain: AtomicU64,
    stopping: OnceLock<()>,
}

impl Shared {
    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        // A panic in the worker is a bug; stopping what there is still beats hanging.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A configuration that has been read, with what it needs open.
struct Order {
    generation: u64,
    settings: Settings,
    error_log: Option<OwnedFd>,
    access_log: Option<OwnedFd>,
    /// Sockets by `listen` entry.
    listeners: Vec<Vec<OwnedFd>>,
}

/// A configuration on its way to the worker ([`work`]).
enum Incoming {
    /// The first is read before any thread is started, because it names the user to become.
    First(Box<Order>),
    /// The worker reads later ones itself: reading looks at every site's directory and may take long.
    Later(Box<Configuration>, Vec<OwnedFd>),
}

/// `howdah front`
pub fn run(link: i32) -> ExitCode {
    howdah_server::memory::fit_address_space();
    let link = match sys::inherited(link) {
        Ok(fd) => Link::new(fd),
        Err(error) => {
            eprintln!("howdah: front: no line to a master ({error}); start `howdah serve` instead");
            return exit::failed();
        }
    };
    // PHP may run as the same user, always so without root: neither other sites' requests in our memory
    // nor our descriptors are for its scripts.
    if let Err(error) = sys::set_dumpable(false) {
        eprintln!("howdah: front: cannot close our memory: {error}");
        return exit::failed();
    }
    // The master decides: a service manager that signals the whole group stops nothing half-way.
    let blocked = sys::SignalDescriptor::new(&[
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
    shared.drain.store(10_000, Ordering::Relaxed);
    let mut threads: Option<(mpsc::Sender<Incoming>, mpsc::Sender<Task>)> = None;
    loop {
        let (message, fds) = match link.receive::<ToFront>() {
            Received::Nothing => continue,
            Received::Message(message, fds) => (message, fds),
            Received::Closed => {
                // The master is gone: nobody holds the sockets, nobody can start PHP.
                launches.master_is_gone();
                let drain = shared.drain.load(Ordering::Relaxed);
                stop(&link, &shared, Duration::from_millis(drain));
                wait_for_ever();
            }
        };
        // Both threads live as long as the process; before the first order nobody asks.
        let desk = |task| {
            if let Some((_, desk)) = &threads {
                let _ = desk.send(task);
            }
        };
        match message {
            ToFront::Launched { id, pid } => launches.launched(id, pid, fds),
            ToFront::NotLaunched { id, message } => launches.not_launched(id, message),
            ToFront::Ping { number } => answer_ping(&link, &shared, number),
            ToFront::Status { id } => desk(Task::Status { id }),
            ToFront::Cache { id, ask } => desk(Task::Cache { id, ask }),
            ToFront::Stop { limit } => stop(&link, &shared, Duration::from_millis(limit)),
            ToFront::Reopen {
                error_log,
                access_log,
            } => {
                let mut fds = fds.into_iter();
                let error = error_log.then(|| fds.next()).flatten();
                let access = access_log.then(|| fds.next()).flatten();
                desk(Task::Reopen { error, access });
            }
            ToFront::Serve(configuration) => {
                if let Some((orders, _)) = &threads {
                    let _ = orders.send(Incoming::Later(configuration, fds));
                    continue;
                }
                let generation = configuration.generation;
                let order = match read_order(*configuration, fds) {
                    Ok(order) => order,
                    Err(mistakes) => {
                        refuse(&link, generation, &mistakes);
                        continue;
                    }
                };
                // Before the first thread: a change of user is for the whole process then.
                if let Err(why) = give_up_privileges(&order.settings) {
                    refuse(&link, generation, &[why]);
                    return exit::failed();
                }
                let orders = work(&link, &launches, &shared);
                let _ = orders.send(Incoming::First(Box::new(order)));
                threads = Some((orders, desk::open(&link, &shared)));
            }
        }
    }
}

fn wait_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Changes configurations, one after the other, while the line's thread goes on listening.
fn work(link: &Link, launches: &Arc<Launches>, shared: &Arc<Shared>) -> mpsc::Sender<Incoming> {
    let (orders, inbox) = mpsc::channel();
    let (link, launches, shared) = (link.clone(), launches.clone(), shared.clone());
    std::thread::spawn(move || {
        for incoming in inbox {
            let (generation, order) = match incoming {
                Incoming::First(order) => (order.generation, Ok(*order)),
                Incoming::Later(configuration, fds) => {
                    (configuration.generation, read_order(*configuration, fds))
                }
            };
            let taken = order.and_then(|order| {
                let drain = order.settings.server.timeouts.drain;
                running::take(order, &launches, &shared)?;
                let drain = u64::try_from(drain.as_millis()).unwrap_or(u64::MAX);
                shared.drain.store(drain, Ordering::Relaxed);
                Ok(())
            });
            match taken {
                Ok(()) => {
                    // A master that is gone is noticed by the line's thread.
                    let _ = link.send(&ToMaster::Serving { generation }, &[]);
                }
                Err(mistakes) => refuse(&link, generation, &mistakes),
            }
        }
    });
    orders
}

/// The line's thread lives, as this shows; whether the threads that serve do, their numbers show.
fn answer_ping(link: &Link, shared: &Shared, number: u64) {
    let threads = match shared.control.get() {
        Some(control) => control.beat(number),
        None => Vec::new(),
    };
    // A master that is gone is noticed by the next look at the line.
    let _ = link.send(&ToMaster::Pulse { number, threads }, &[]);
}

fn refuse(link: &Link, generation: u64, mistakes: &[String]) {
    let sent = text_file(&mistakes.join("\n"))
        .and_then(|text| link.send(&ToMaster::Refused { generation }, &[text.as_fd()]));
    if let Err(error) = sent {
        eprintln!("howdah: front: cannot reach the master: {error}");
    }
}

fn read_order(sent: Configuration, fds: Vec<OwnedFd>) -> Result<Order, Vec<String>> {
    let missing = || vec!["the master's message lacks descriptors".to_owned()];
    let mut fds = fds.into_iter();
    let text = read_text(fds.next().ok_or_else(missing)?)
        .map_err(|error| vec![format!("cannot read the configuration's text: {error}")])?;
    let source = sent.file.map(|name| Source { name, text });
    let loaded = config::load(
        &sent.arguments,
        source.as_ref(),
        config::Validation::Trusted,
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
    Ok(Order {
        generation: sent.generation,
        settings,
        error_log,
        access_log,
        listeners: sockets,
    })
}

fn give_up_privileges(settings: &Settings) -> Result<(), String> {
    if let Some(name) = settings.user.as_ref().filter(|_| sys::is_root()) {
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
    sys::no_new_privileges().map_err(|error| format!("cannot give up new privileges: {error}"))
}

/// Stops within `limit`; a second call shortens it. Ends the process.
fn stop(link: &Link, shared: &Arc<Shared>, limit: Duration) {
    if shared.stopping.set(()).is_err() {
        // The first may hold what this needs; the line's thread must not wait for it.
        let shared = shared.clone();
        std::thread::spawn(move || running::hurry(&shared, limit));
        return;
    }
    farewell::tell(link, shared, limit);
    let shared = shared.clone();
    std::thread::spawn(move || {
        running::finish(&shared, limit);
        std::process::exit(0);
    });
}
