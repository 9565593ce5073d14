//! The whole server: front threads, each with a tokio `current_thread` runtime and its share of every listener.
//! Listeners can be added and removed while it runs, and it stops gracefully. This module does not depend on the
//! handler's work.

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
use super::accept::{ConnectionAcceptor, ListenerShare};
use super::packet_exchange::PacketExchange;
use super::quic::QuicListener;
use super::time_slice;
use crate::http::slots::ConnectionSlots;
use crate::http::{ConnectionSetup, FrontThreadConnections, HttpConfig, RequestHandler};
use crate::tls::quic::QuicSecrets;
use crate::turn;

/// How long clients remember that a port serves HTTP/3, in seconds; the value in nginx's documentation.
const ALT_SVC_MAX_AGE_SECONDS: u32 = 86_400;

/// The number of descriptors assumed when their limit is infinite.
const DESCRIPTORS_IF_UNLIMITED: u64 = 1 << 20;

/// Functions that each front thread runs besides serving connections.
#[derive(Clone)]
pub struct ThreadHooks {
    /// The prefix of the threads' names, followed by their index: `front-0`.
    pub name: &'static str,
    /// Runs at the start of each thread, with the thread's index from 0.
    pub start: Arc<dyn Fn(usize) + Send + Sync>,
    /// Runs before the thread sleeps. If it wakes a task, the thread does not sleep.
    pub park: Arc<dyn Fn() + Send + Sync>,
    /// Runs after the thread has slept, or would have slept.
    pub unpark: Arc<dyn Fn() + Send + Sync>,
}

impl ThreadHooks {
    /// Returns hooks that name the threads and do nothing else.
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
pub enum ServerStartError {
    /// A thread or its runtime cannot be created.
    FrontThread(io::Error),
    /// A listener's socket cannot be shared among the threads.
    Listener(io::Error),
}

impl fmt::Display for ServerStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerStartError::FrontThread(e) => write!(f, "cannot start a front thread: {e}"),
            ServerStartError::Listener(e) => {
                write!(f, "cannot share a listener among threads: {e}")
            }
        }
    }
}

impl std::error::Error for ServerStartError {}

/// Counts of connections and requests of the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Connections that are open now.
    pub open: u64,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Requests passed to the handler so far.
    pub requests: u64,
    /// Requests refused before they reached the handler.
    pub refused: u64,
    /// How many connections may be open at once.
    pub max_connections: u64,
}

/// How long idle connections stay open when another server continues on the same sockets. A request that a client has
/// already sent arrives within a round trip or two.
const SUCCESSION_IDLE_TIME: Duration = Duration::from_secs(2);

enum FrontThreadCommand {
    Add {
        id: u64,
        shares: Vec<ListenerShare>,
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
        /// Dropped when the thread reaches this command.
        _taken: oneshot::Sender<()>,
    },
}

struct FrontThreadHandle {
    commands: mpsc::UnboundedSender<FrontThreadCommand>,
    life: Arc<FrontThreadConnections>,
    beat: Arc<ThreadHeartbeat>,
}

/// Shows whether a thread's event loop still makes progress.
#[derive(Default)]
struct ThreadHeartbeat {
    /// The kernel's id of the thread; 0 until it runs.
    thread: AtomicI32,
    /// The number of the last beat command that the thread has reached.
    number: AtomicU64,
}

/// Controls a running server from any thread.
#[derive(Clone)]
pub struct ServerControl {
    threads: Arc<[FrontThreadHandle]>,
    next_listener: Arc<AtomicU64>,
    config: Arc<ArcSwap<HttpConfig>>,
    slots: Arc<ConnectionSlots>,
}

/// A listener of a running server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u64);

impl ServerControl {
    /// Starts serving a further listener.
    pub fn add_listener(&self, listener: ListenerConfig) -> Result<ListenerId, ServerStartError> {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        let threads = self.threads.len();
        let mut listener = listener;
        let quic = distribute_udp_sockets(&mut listener, threads);
        let shares = distribute_sockets(listener, threads).map_err(ServerStartError::Listener)?;
        for (thread, (shares, quic)) in self.threads.iter().zip(shares.into_iter().zip(quic)) {
            // A thread that has exited serves no listeners.
            let _ = thread
                .commands
                .send(FrontThreadCommand::Add { id, shares, quic });
        }
        Ok(ListenerId(id))
    }

    /// Stops accepting from a listener; its connections live on. The sockets are closed, and connections in their
    /// backlog are reset unless another process holds the sockets too.
    pub fn remove_listener(&self, id: ListenerId) {
        for thread in self.threads.iter() {
            let _ = thread
                .commands
                .send(FrontThreadCommand::Remove { id: id.0 });
        }
    }

    /// Stops gracefully: stops accepting, closes idle connections, lets requests in progress finish (their responses
    /// say `Connection: close`) for at most `patience`, then drops them. A second call sets a new patience.
    pub fn stop(&self, patience: Duration) {
        for thread in self.threads.iter() {
            let idle = Duration::ZERO;
            let _ = thread
                .commands
                .send(FrontThreadCommand::Stop { patience, idle });
        }
    }

    /// Stops like [`ServerControl::stop`], for a server that is succeeded by another on the same sockets: idle
    /// connections close only after [`SUCCESSION_IDLE_TIME`], since their clients may already have sent a request,
    /// which the other server does not receive.
    pub fn stop_for_successor(&self, patience: Duration) {
        for thread in self.threads.iter() {
            let idle = SUCCESSION_IDLE_TIME;
            let _ = thread
                .commands
                .send(FrontThreadCommand::Stop { patience, idle });
        }
    }

    /// Applies other limits and timeouts to new connections, and another maximum number of connections. If more are
    /// open already, those that close are not replaced until the number is below the maximum.
    pub fn set_config(&self, config: HttpConfig) {
        self.slots.set_limit(connection_limit(&config));
        self.config.store(Arc::new(config));
    }

    /// Asks every thread to store `number` from its event loop, without waiting for it. Returns the kernel's id of each
    /// thread and the last number that it has stored so far.
    pub fn request_heartbeat(&self, number: u64) -> Vec<(i32, u64)> {
        let each = self.threads.iter().map(|thread| {
            // A thread that has exited takes no commands; this happens only while the server stops.
            let _ = thread.commands.send(FrontThreadCommand::Beat { number });
            let id = thread.beat.thread.load(Ordering::Relaxed);
            (id, thread.beat.number.load(Ordering::Relaxed))
        });
        each.collect()
    }

    /// Waits until every thread has passed through its event loop once, or has exited.
    pub async fn wait_for_turns(&self) {
        let ask = |thread: &FrontThreadHandle| {
            let (_taken, turn) = oneshot::channel();
            // A thread that has exited takes no commands.
            let _ = thread.commands.send(FrontThreadCommand::Turn { _taken });
            turn
        };
        let asked: Vec<_> = self.threads.iter().map(ask).collect();
        for turn in asked {
            // Nothing is ever sent; the channel is closed when the thread drops the command.
            let _ = turn.await;
        }
    }

    /// Returns the connection counts of all threads, summed.
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
pub struct HttpServer {
    control: ServerControl,
    addresses: Vec<Option<SocketAddr>>,
    listeners: Vec<ListenerId>,
    joins: Vec<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts `threads` front threads that serve `listeners`. Raises the soft limit of descriptors to the hard one.
    pub fn start<H: RequestHandler>(
        listeners: Vec<ListenerConfig>,
        handler: Arc<H>,
        threads: usize,
        config: HttpConfig,
        hooks: ThreadHooks,
    ) -> Result<HttpServer, ServerStartError> {
        let threads = threads.max(1);
        let slots = ConnectionSlots::new(connection_limit(&config));
        let config = Arc::new(ArcSwap::from_pointee(config));
        let mut ends = Vec::new();
        let mut joins = Vec::new();
        let all: Arc<[Arc<FrontThreadConnections>]> =
            (0..threads).map(|_| Arc::default()).collect();
        for (index, life) in all.iter().cloned().enumerate() {
            let (commands, inbox) = mpsc::unbounded_channel();
            let acceptor = Arc::new(ConnectionAcceptor {
                handler: handler.clone(),
                config: config.clone(),
                life: life.clone(),
                all: all.clone(),
                slots: slots.clone(),
                next_id: AtomicU64::new(index as u64),
                id_step: threads as u64,
            });
            let runtime = runtime(&hooks).map_err(ServerStartError::FrontThread)?;
            let start = hooks.start.clone();
            let beat = Arc::<ThreadHeartbeat>::default();
            let theirs = beat.clone();
            let join = std::thread::Builder::new()
                .name(format!("{}-{index}", hooks.name))
                .spawn(move || {
                    let _end = AbortOnThreadPanic;
                    time_slice::request_short_slices();
                    start(index);
                    let id = rustix::thread::gettid().as_raw_nonzero().get();
                    theirs.thread.store(id, Ordering::Relaxed);
                    runtime.block_on(front_thread(acceptor, inbox, theirs));
                })
                .map_err(ServerStartError::FrontThread)?;
            ends.push(FrontThreadHandle {
                commands,
                life,
                beat,
            });
            joins.push(join);
        }
        let mut server = HttpServer {
            control: ServerControl {
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

    /// Returns the bound addresses in the order of the listeners given to [`HttpServer::start`]; `None` for unix
    /// sockets.
    pub fn local_addrs(&self) -> &[Option<SocketAddr>] {
        &self.addresses
    }

    /// Returns the ids of the listeners given to [`HttpServer::start`].
    pub fn listeners(&self) -> &[ListenerId] {
        &self.listeners
    }

    /// Returns a handle that controls the server from any thread.
    pub fn control(&self) -> ServerControl {
        self.control.clone()
    }

    /// Waits until the server has been stopped and all its threads have exited.
    pub fn wait(mut self) {
        for join in self.joins.drain(..) {
            // A thread that panicked has been reported by the panic hook.
            let _ = join.join();
        }
    }
}

impl Drop for HttpServer {
    /// Stops the server at once, since dropping it means that its owner does not wait for it.
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
            // This comes first because `park` may announce that the thread sleeps.
            time_slice::before_park();
            turn::run_measured("collecting what scripts answered", || park());
        })
        .on_thread_unpark(move || {
            time_slice::after_unpark();
            unpark();
        })
        .build()
}

async fn front_thread<H: RequestHandler>(
    acceptor: Arc<ConnectionAcceptor<H>>,
    mut inbox: mpsc::UnboundedReceiver<FrontThreadCommand>,
    beat: Arc<ThreadHeartbeat>,
) {
    let life = acceptor.life.clone();
    let mut accepting: HashMap<u64, Vec<AbortHandle>> = HashMap::new();
    // `None` while the server is not stopping.
    let mut deadline: Option<Instant> = None;
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = life.wait_until_empty(), if deadline.is_some() => return,
            () = sleep_until_deadline(deadline), if deadline.is_some() => {
                life.kill();
                life.wait_until_empty().await;
                return;
            }
        };
        match command {
            Some(FrontThreadCommand::Add { id, shares, quic }) if deadline.is_none() => {
                let shares = shares.into_iter().map(|share| {
                    tokio::spawn(turn::measure("accepting", acceptor.clone().run(share)))
                        .abort_handle()
                });
                let quic = quic.into_iter().map(|listener| {
                    let run = acceptor.clone().run_quic(listener);
                    tokio::spawn(turn::measure("accepting", run)).abort_handle()
                });
                accepting.insert(id, shares.chain(quic).collect());
            }
            Some(FrontThreadCommand::Add { .. }) => {}
            Some(FrontThreadCommand::Remove { id }) => {
                for task in accepting.remove(&id).into_iter().flatten() {
                    task.abort();
                }
            }
            Some(FrontThreadCommand::Stop { patience, idle }) => {
                for task in accepting.drain().flat_map(|(_, tasks)| tasks) {
                    task.abort();
                }
                life.drain(idle);
                deadline = Some(Instant::now() + patience);
            }
            Some(FrontThreadCommand::Beat { number }) => {
                beat.number.store(number, Ordering::Relaxed)
            }
            Some(FrontThreadCommand::Turn { .. }) => {}
            // All handles have been dropped, so no command can arrive any more.
            None => return,
        }
    }
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Aborts the process if a front thread panics outside of its tasks (whose panics are handled separately). With one
/// thread less, the server would continue to accept connections that no thread serves. The parent process restarts it.
struct AbortOnThreadPanic;

impl Drop for AbortOnThreadPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The panic's own message has been printed before this one. Written without `eprintln!`, because a lost
            // stderr must not prevent the abort.
            let _ = io::stderr().write_all(
                b"howdah: error FrontThreadPanicked: this is a bug in the server, please report it; the front exits and is restarted\n",
            );
            std::process::abort();
        }
    }
}

/// Distributes the sockets so that every thread has a socket and every socket a thread.
fn distribute_sockets(
    listener: ListenerConfig,
    threads: usize,
) -> io::Result<Vec<Vec<ListenerShare>>> {
    let mut shares: Vec<Vec<ListenerShare>> = (0..threads).map(|_| Vec::new()).collect();
    let local = listener
        .local_addr()
        .filter(|address| !address.ip().is_unspecified());
    let alternative = alt_svc_value(&listener);
    let share = |socket: OwnedFd| ListenerShare {
        local,
        alternative: alternative.clone(),
        address: listener.address.clone(),
        beginning: ConnectionSetup {
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
        // A socket of another process may be in blocking mode.
        rustix::io::ioctl_fionbio(&socket, true)?;
        shares[at % threads].push(share(socket));
    }
    Ok(shares)
}

/// Assigns every UDP socket to a thread.
fn distribute_udp_sockets(listener: &mut ListenerConfig, threads: usize) -> Vec<Vec<QuicListener>> {
    let mut shares: Vec<Vec<QuicListener>> = (0..threads).map(|_| Vec::new()).collect();
    let local = listener.local_addr();
    let local = local.filter(|address| !address.ip().is_unspecified());
    let (Some(quic), Some(tls)) = (&mut listener.quic, &listener.tls) else {
        return shares;
    };
    let secrets = QuicSecrets::new(&quic.tickets);
    let exchange = PacketExchange::new(quic.sockets.len());
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

/// Returns the value of `Alt-Svc` that announces HTTP/3 on this port.
fn alt_svc_value(listener: &ListenerConfig) -> Option<Arc<str>> {
    listener.quic.as_ref()?;
    let port = listener.local_addr()?.port();
    Some(format!("h3=\":{port}\"; ma={ALT_SVC_MAX_AGE_SECONDS}").into())
}

/// Returns the maximum number of connections: the configured one, or the number that the limits of descriptors and
/// memory allow.
fn connection_limit(config: &HttpConfig) -> u32 {
    let descriptors = raise_descriptor_limit();
    config.max_connections.unwrap_or_else(|| {
        let most = (descriptors / 4 * 3).min(crate::memory::max_connections());
        u32::try_from(most).unwrap_or(u32::MAX)
    })
}

/// Raises the soft limit of open descriptors to the hard one, and returns the limit that is then in effect.
pub fn raise_descriptor_limit() -> u64 {
    // Only one thread at a time may do this, because the limit belongs to the process.
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
    limit.current.unwrap_or(DESCRIPTORS_IF_UNLIMITED)
}
