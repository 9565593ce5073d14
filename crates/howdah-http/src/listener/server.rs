//! The server as a whole: front threads, each with a tokio `current_thread` runtime and its share
//! of every listener; listeners come and go while it runs; it ends gracefully. Knows nothing of what
//! the handler does.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::ListenerConfig;
use super::accept::{Acceptor, ThreadListener};
use super::exchange::Exchange;
use super::quic::QuicListener;
use super::slice;
use crate::http::slots::Slots;
use crate::http::{Beginning, Handler, HttpConfig, Lifecycle};
use crate::tls::quic::QuicSecrets;
use crate::turn;

/// How long clients remember that a port has HTTP/3, in seconds: as nginx' documentation has it.
const ALTERNATIVE: u32 = 86_400;

/// Descriptors assumed when the limit is infinite.
const UNLIMITED: u64 = 1 << 20;

/// What each front thread does besides connections.
#[derive(Clone)]
pub struct ThreadHooks {
    /// The threads are called so, with their index: `front-0`.
    pub name: &'static str,
    /// Runs at the thread's start, with the thread's index from 0.
    pub start: Arc<dyn Fn(usize) + Send + Sync>,
    /// Runs before the thread sleeps; if it wakes a task, the thread does not sleep.
    pub park: Arc<dyn Fn() + Send + Sync>,
    /// Runs after the thread has slept, or would have.
    pub unpark: Arc<dyn Fn() + Send + Sync>,
}

impl ThreadHooks {
    /// Threads that are called so and do nothing besides connections.
    pub fn named(name: &'static str) -> ThreadHooks {
        ThreadHooks {
            name,
            start: Arc::new(|_| {}),
            park: Arc::new(|| {}),
            unpark: Arc::new(|| {}),
        }
    }
}

/// Why the server does not start.
#[derive(Debug)]
pub enum StartError {
    /// A thread or its runtime cannot be made.
    FrontThread(io::Error),
    /// A listener's socket cannot be shared out.
    Listener(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::FrontThread(e) => write!(f, "cannot start a front thread: {e}"),
            StartError::Listener(e) => write!(f, "cannot share a listener among threads: {e}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Counts of connections and requests of the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections that are open now.
    pub open: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Requests handed to the handler so far.
    pub requests: u64,
    /// Requests refused before that.
    pub refused: u64,
    /// How many connections may be open at once.
    pub max_connections: u64,
}

/// How long idle connections stay open when another server follows on the same sockets: a request that a client
/// has sent by then is there within a round trip or two.
const PARTING: Duration = Duration::from_secs(2);

enum Command {
    Add {
        id: u64,
        shares: Vec<ThreadListener>,
        quic: Vec<QuicListener>,
    },
    Remove {
        id: u64,
    },
    Stop {
        patience: Duration,
        /// How long connections may wait for their clients' next requests.
        idle: Duration,
    },
    Beat {
        number: u64,
    },
    Turn {
        /// Dropped when the thread has come to it.
        _taken: oneshot::Sender<()>,
    },
}

struct FrontThread {
    commands: mpsc::UnboundedSender<Command>,
    life: Arc<Lifecycle>,
    beat: Arc<Beat>,
}

/// Shows whether a thread still takes its turns.
#[derive(Default)]
struct Beat {
    /// The kernel's id of the thread; 0 until it runs.
    thread: AtomicI32,
    /// The last number it was asked for and came to.
    number: AtomicU64,
}

/// Steers a running server from any thread.
#[derive(Clone)]
pub struct Control {
    threads: Arc<[FrontThread]>,
    next_listener: Arc<AtomicU64>,
    config: Arc<ArcSwap<HttpConfig>>,
    slots: Arc<Slots>,
}

/// A listener of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

impl Control {
    /// Begins to serve one more listener.
    pub fn add_listener(&self, listener: ListenerConfig) -> Result<ListenerId, StartError> {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        let threads = self.threads.len();
        let mut listener = listener;
        let quic = share_out_quic(&mut listener, threads);
        let shares = share_out(listener, threads).map_err(StartError::Listener)?;
        for (thread, (shares, quic)) in self.threads.iter().zip(shares.into_iter().zip(quic)) {
            // A thread that has ended serves nothing any more.
            let _ = thread.commands.send(Command::Add { id, shares, quic });
        }
        Ok(ListenerId(id))
    }

    /// Stops accepting from a listener; its connections live on. The sockets are closed: what waits
    /// in their backlog is reset, unless another process holds them too.
    pub fn remove_listener(&self, id: ListenerId) {
        for thread in self.threads.iter() {
            let _ = thread.commands.send(Command::Remove { id: id.0 });
        }
    }

    /// Stops gracefully: accepts no more, closes idle connections, lets requests in progress finish
    /// (their answers say `Connection: close`) for at most `patience`, then drops them. A second
    /// call sets a new patience.
    pub fn stop(&self, patience: Duration) {
        for thread in self.threads.iter() {
            let idle = Duration::ZERO;
            let _ = thread.commands.send(Command::Stop { patience, idle });
        }
    }

    /// As [`Control::stop`], for a server that another follows on the same sockets: idle connections close only
    /// after [`PARTING`], since their clients may have sent a request that the other does not get.
    pub fn part(&self, patience: Duration) {
        for thread in self.threads.iter() {
            let idle = PARTING;
            let _ = thread.commands.send(Command::Stop { patience, idle });
        }
    }

    /// Other limits and time-outs: of connections that begin from now on, and how many there may be.
    /// When there are more already, those that end are not replaced until there are not.
    pub fn change(&self, config: HttpConfig) {
        self.slots.set_limit(connection_limit(&config));
        self.config.store(Arc::new(config));
    }

    /// Asks every thread to come to `number` in its event loop. Waits for none: returns the kernel's
    /// id of each thread and the last number it has come to so far.
    pub fn beat(&self, number: u64) -> Vec<(i32, u64)> {
        let each = self.threads.iter().map(|thread| {
            // A thread that has ended takes no commands; the server is stopping then.
            let _ = thread.commands.send(Command::Beat { number });
            let id = thread.beat.thread.load(Ordering::Relaxed);
            (id, thread.beat.number.load(Ordering::Relaxed))
        });
        each.collect()
    }

    /// Returns when every thread has come to its event loop once more, or has ended.
    pub async fn turn(&self) {
        let ask = |thread: &FrontThread| {
            let (_taken, turn) = oneshot::channel();
            // As above.
            let _ = thread.commands.send(Command::Turn { _taken });
            turn
        };
        let asked: Vec<_> = self.threads.iter().map(ask).collect();
        for turn in asked {
            // Nothing is ever sent.
            let _ = turn.await;
        }
    }

    /// The connection counts of all threads, summed.
    pub fn stats(&self) -> ServerStats {
        let mut stats = ServerStats {
            max_connections: u64::from(self.slots.limit()),
            ..ServerStats::default()
        };
        for thread in self.threads.iter() {
            stats.open += thread.life.open() as u64;
            stats.accepted += thread.life.accepted.load(Ordering::Relaxed);
            stats.requests += thread.life.requests.load(Ordering::Relaxed);
            stats.refused += thread.life.refused.load(Ordering::Relaxed);
        }
        stats
    }
}

/// A running server: its front threads and listeners.
pub struct Server {
    control: Control,
    addresses: Vec<Option<SocketAddr>>,
    listeners: Vec<ListenerId>,
    joins: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts `threads` front threads serving `listeners`. Raises the limit of descriptors to what
    /// is allowed.
    pub fn start<H: Handler>(
        listeners: Vec<ListenerConfig>,
        handler: Arc<H>,
        threads: usize,
        config: HttpConfig,
        hooks: ThreadHooks,
    ) -> Result<Server, StartError> {
        let threads = threads.max(1);
        let slots = Slots::new(connection_limit(&config));
        let config = Arc::new(ArcSwap::from_pointee(config));
        let mut ends = Vec::new();
        let mut joins = Vec::new();
        let all: Arc<[Arc<Lifecycle>]> = (0..threads).map(|_| Arc::default()).collect();
        for (index, life) in all.iter().cloned().enumerate() {
            let (commands, inbox) = mpsc::unbounded_channel();
            let acceptor = Arc::new(Acceptor {
                handler: handler.clone(),
                config: config.clone(),
                life: life.clone(),
                all: all.clone(),
                slots: slots.clone(),
                next_id: AtomicU64::new(index as u64),
                id_step: threads as u64,
            });
            let runtime = runtime(&hooks).map_err(StartError::FrontThread)?;
            let start = hooks.start.clone();
            let beat = Arc::<Beat>::default();
            let theirs = beat.clone();
            let join = std::thread::Builder::new()
                .name(format!("{}-{index}", hooks.name))
                .spawn(move || {
                    let _end = EndWithThisThread;
                    slice::ask_for_short_slices();
                    start(index);
                    let id = rustix::thread::gettid().as_raw_nonzero().get();
                    theirs.thread.store(id, Ordering::Relaxed);
                    runtime.block_on(front_thread(acceptor, inbox, theirs));
                })
                .map_err(StartError::FrontThread)?;
            ends.push(FrontThread {
                commands,
                life,
                beat,
            });
            joins.push(join);
        }
        let mut server = Server {
            control: Control {
                threads: ends.into(),
                next_listener: Arc::default(),
                config,
                slots,
            },
            addresses: Vec::new(),
            listeners: Vec::new(),
            joins,
        };
        for listener in listeners {
            server.addresses.push(listener.local_addr());
            let id = server.control.add_listener(listener)?;
            server.listeners.push(id);
        }
        Ok(server)
    }

    /// The addresses bound, in the order of the listeners given to [`Server::start`]; none for unix
    /// sockets.
    pub fn local_addrs(&self) -> &[Option<SocketAddr>] {
        &self.addresses
    }

    /// The listeners given to [`Server::start`].
    pub fn listeners(&self) -> &[ListenerId] {
        &self.listeners
    }

    /// A handle to steer the server from another thread.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Waits until the server has been stopped and all its threads have ended.
    pub fn wait(mut self) {
        for join in self.joins.drain(..) {
            // A thread that panicked has been reported by the panic hook.
            let _ = join.join();
        }
    }
}

impl Drop for Server {
    /// A server that nobody waits for does not outlive its owner's interest: it stops at once.
    fn drop(&mut self) {
        if !self.joins.is_empty() {
            self.control.stop(Duration::ZERO);
        }
    }
}

fn runtime(hooks: &ThreadHooks) -> io::Result<tokio::runtime::Runtime> {
    let (park, unpark) = (hooks.park.clone(), hooks.unpark.clone());
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .on_thread_park(move || {
            // First, for `park` may announce that the thread sleeps.
            slice::before_park();
            turn::take("collecting what scripts answered", || park());
        })
        .on_thread_unpark(move || {
            slice::after_unpark();
            unpark();
        })
        .build()
}

async fn front_thread<H: Handler>(
    acceptor: Arc<Acceptor<H>>,
    mut inbox: mpsc::UnboundedReceiver<Command>,
    beat: Arc<Beat>,
) {
    let life = acceptor.life.clone();
    let mut accepting: HashMap<u64, Vec<AbortHandle>> = HashMap::new();
    // None: serving.
    let mut deadline: Option<Instant> = None;
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = life.until_empty(), if deadline.is_some() => return,
            () = until(deadline), if deadline.is_some() => {
                life.kill();
                life.until_empty().await;
                return;
            }
        };
        match command {
            Some(Command::Add { id, shares, quic }) if deadline.is_none() => {
                let shares = shares.into_iter().map(|share| {
                    tokio::spawn(turn::measured("accepting", acceptor.clone().run(share)))
                        .abort_handle()
                });
                let quic = quic.into_iter().map(|listener| {
                    let run = acceptor.clone().run_quic(listener);
                    tokio::spawn(turn::measured("accepting", run)).abort_handle()
                });
                accepting.insert(id, shares.chain(quic).collect());
            }
            Some(Command::Add { .. }) => {}
            Some(Command::Remove { id }) => {
                for task in accepting.remove(&id).into_iter().flatten() {
                    task.abort();
                }
            }
            Some(Command::Stop { patience, idle }) => {
                for task in accepting.drain().flat_map(|(_, tasks)| tasks) {
                    task.abort();
                }
                life.drain(idle);
                deadline = Some(Instant::now() + patience);
            }
            Some(Command::Beat { number }) => beat.number.store(number, Ordering::Relaxed),
            Some(Command::Turn { .. }) => {}
            // Nobody can steer it any more.
            None => return,
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A panic of a front thread outside of its tasks (whose panics are theirs alone) ends the process:
/// with one thread less it would go on accepting connections that nobody serves. Who started it
/// starts it again.
struct EndWithThisThread;

impl Drop for EndWithThisThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's own message stands before it. By hand: a lost stderr must not stop us.
            let _ = io::stderr().write_all(
                b"howdah: error FrontThreadPanicked: this is a bug of the server, please report it; \
                  the front ends and is started again\n",
            );
            std::process::abort();
        }
    }
}

/// Gives every thread a socket and every socket a thread.
fn share_out(listener: ListenerConfig, threads: usize) -> io::Result<Vec<Vec<ThreadListener>>> {
    let mut shares: Vec<Vec<ThreadListener>> = (0..threads).map(|_| Vec::new()).collect();
    let local = listener
        .local_addr()
        .filter(|address| !address.ip().is_unspecified());
    let alternative = alternative(&listener);
    let share = |socket: OwnedFd| ThreadListener {
        local,
        alternative: alternative.clone(),
        address: listener.address.clone(),
        beginning: Beginning {
            proxies: listener.proxies.clone(),
            tls: listener.tls.clone(),
            h2c: listener.h2c,
        },
        socket,
    };
    let count = listener.sockets.len();
    for (thread, shares) in shares.iter_mut().enumerate().skip(count) {
        if count > 0 {
            let socket = listener.sockets[thread % count].try_clone()?;
            shares.push(share(socket));
        }
    }
    for (at, socket) in listener.sockets.into_iter().enumerate() {
        // Another process's socket may be in blocking mode.
        rustix::io::ioctl_fionbio(&socket, true)?;
        shares[at % threads].push(share(socket));
    }
    Ok(shares)
}

/// Gives every UDP socket a thread.
fn share_out_quic(listener: &mut ListenerConfig, threads: usize) -> Vec<Vec<QuicListener>> {
    let mut shares: Vec<Vec<QuicListener>> = (0..threads).map(|_| Vec::new()).collect();
    let local = listener.local_addr();
    let local = local.filter(|address| !address.ip().is_unspecified());
    let (Some(quic), Some(tls)) = (&mut listener.quic, &listener.tls) else {
        return shares;
    };
    let secrets = QuicSecrets::new(&quic.tickets);
    let exchange = Exchange::new(quic.sockets.len());
    for (number, socket) in quic.sockets.drain(..).enumerate() {
        shares[number % threads].push(QuicListener {
            address: listener.address.clone(),
            socket,
            local,
            tls: tls.clone(),
            secrets: secrets.clone(),
            number,
            exchange: exchange.clone(),
        });
    }
    shares
}

/// What tells clients that the port is served by HTTP/3, too.
fn alternative(listener: &ListenerConfig) -> Option<Arc<str>> {
    listener.quic.as_ref()?;
    let port = listener.local_addr()?.port();
    Some(format!("h3=\":{port}\"; ma={ALTERNATIVE}").into())
}

/// Most connections at once: as configured, or what the limits of descriptors and memory allow.
fn connection_limit(config: &HttpConfig) -> u32 {
    let descriptors = raise_descriptor_limit();
    config.max_connections.unwrap_or_else(|| {
        let most = (descriptors / 4 * 3).min(crate::memory::connections());
        u32::try_from(most).unwrap_or(u32::MAX)
    })
}

/// Raises the soft limit of open descriptors to the hard one; what holds then.
pub fn raise_descriptor_limit() -> u64 {
    // One thread at a time: the limit belongs to the process.
    static RAISING: Mutex<()> = Mutex::new(());
    let _raising = RAISING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let mut raised = limit;
        raised.current = raised.maximum;
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = getrlimit(Resource::Nofile);
        }
    }
    limit.current.unwrap_or(UNLIMITED)
}
